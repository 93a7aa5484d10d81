"""How NumPy's functions reach ours: ``np.exp(t)`` and ``np.concatenate([t, u])`` record.

A NumPy function that has an op runs it. One that has none answers for untracked tensors, by computing on their arrays,
and raises for tracked ones, so that no gradient is lost unnoticed.
"""

import functools
import inspect
import sys
from types import FrameType
from typing import Any

import numpy as np

from . import ops, tree
from ._typing import Dtype, NDArray
from .core.apply import is_tracked
from .core.context import current
from .core.declare import numpy_faces, public
from .core.inplace import write_op
from .core.value import Value, wrap
from .core.write import check_writable, link_version, mark_unrecorded
from .dtypes import FLOAT_DTYPES, HALF_DTYPES
from .errors import ArgumentError, LeavesTapeError, NumtapeError, OperandError, ShapeError, UnsupportedError
from .kernels.half_sums import rounded

#: NumPy functions that look only at shape and dtype, or compare: nothing to differentiate is lost by running them.
VALUE_FREE = frozenset(
    (
        np.shape,
        np.ndim,
        np.size,
        np.zeros_like,
        np.ones_like,
        np.empty_like,
        np.result_type,
        np.can_cast,
        np.min_scalar_type,
        np.iscomplexobj,
        np.isrealobj,
        np.array_equal,
        np.array_equiv,
        np.allclose,
        np.isclose,
        np.array_repr,
        np.array_str,
        np.array2string,
        np.may_share_memory,
        np.shares_memory,
    )
)


#: NumPy functions that write into their first argument.
MUTATORS = frozenset((np.copyto, np.put, np.place, np.putmask, np.fill_diagonal, np.put_along_axis))


def array_ufunc(self: Any, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
    """Run a ufunc, or one of its methods, on tensors."""
    if method == "__call__" and not kwargs and (plain := numpy_faces.get(ufunc)) is not None:
        return plain(*inputs)
    title = _title(ufunc) + ("" if method == "__call__" else f".{method}")
    if method != "__call__":
        reduction = numpy_faces.get(getattr(ufunc, method))
        options = {key: value for key, value in kwargs.items() if key in ("axis", "keepdims")}
        axis = inputs[1] if len(inputs) == 2 else options.pop("axis", 0)
        if reduction is None or len(inputs) > 2 or len(options) + ("axis" in kwargs) < len(kwargs) or axis == ():
            return _fall_back(getattr(ufunc, method), inputs, kwargs, title, is_mutator=method == "at")
        return reduction(inputs[0], axis=axis, **options)
    out = kwargs.pop("out", None)
    where = kwargs.pop("where", True)
    if where is not True:
        _check_mask(title, where, inputs, out)
    face: Any = numpy_faces.get(ufunc) or _face_of_scipy(ufunc)
    # A composed function has no op that could write.
    if face is None or kwargs or (out is not None and not hasattr(face, "op")):
        given = {"out": out, "where": where}
        defaults = {"out": None, "where": True}
        kwargs |= {key: value for key, value in given.items() if value is not defaults[key]}
        return _fall_back(ufunc, inputs, kwargs, title)
    if out is None and where is True:
        return face(*inputs)
    if where is True:
        return write_op(out, face.op, inputs)
    result = _computed_where(face, inputs, where)
    target = out[0] if isinstance(out, tuple) else out
    select: Any = public["where"]
    if target is None:
        # NumPy leaves what is not computed uninitialised; zero is a value that can be relied upon. False is that of
        # every dtype.
        return select(where, result, False)
    return write_op(target, select.op, (where, result, target))


def _check_mask(title: str, where: Any, inputs: tuple[Any, ...], out: Any) -> None:
    """Raise if the ``where=`` of a ufunc holds no bools, which NumPy lets lists alone do, or has no fitting shape."""
    dtype = getattr(where, "dtype", np.bool_)
    if dtype != np.bool_:
        raise OperandError(f"{title}: where has dtype {dtype}; it must be of bools, such as where != 0.")
    shapes = [np.shape(x) for x in (*inputs, *tree.leaves(out), where)]
    try:
        np.broadcast_shapes(*shapes)
    except ValueError as error:
        raise ShapeError(
            f"{title}: where has shape {shapes[-1]} and the operands have {', '.join(map(str, shapes[:-1]))}; the "
            "shapes do not broadcast: from the last axis on, lengths must be equal or 1."
        ) from error


def _computed_where(face: Any, inputs: tuple[Any, ...], where: Any) -> Any:
    """Return what a function gives where a condition holds, and anything elsewhere.

    The operands there have a value that is computed anyway in their place: they may be outside of the domain, where
    there would be warnings, and derivatives of 0 times infinity.
    """
    mask = np.asarray(where, bool)
    shape = np.broadcast_shapes(mask.shape, *map(np.shape, inputs))
    mask = np.broadcast_to(mask, shape)
    if mask.all():
        return face(*inputs)
    if not mask.any():
        return public["broadcast_to"](_zero_of(face, inputs), shape)
    first = tuple(int(places[0]) for places in np.nonzero(mask))
    select: Any = public["where"]

    def filled(x: Any) -> Any:
        if np.ndim(x) == 0:
            return x
        array = np.asarray(x.array if isinstance(x, Value) else x)
        return select(mask, x, np.broadcast_to(array, shape)[first])

    return face(*map(filled, inputs))


def _zero_of(face: Any, inputs: tuple[Any, ...]) -> Any:
    """Return a zero with the dtype and the history of what a function gives, computed of no elements."""
    reshape: Any = public["reshape"]
    nothing = face(*(x if isinstance(x, int | float) else reshape(x, (-1,))[:0] for x in inputs))
    return public["cast"](public["sum"](nothing), nothing.dtype)


def _face_of_scipy(ufunc: Any) -> Any:
    """Return the public function that has the name of one of SciPy's special functions and its meaning, or None.

    SciPy is not imported for it: whoever calls one has done so. Its `huber` and `kl_div` are elementwise, our losses of
    these names are not, so only elementwise ops of as many operands count.
    """
    name = ufunc.__name__
    theirs: Any = getattr(sys.modules.get("scipy.special"), name, None)
    if theirs is not ufunc:
        return None
    ops.load_all()
    face = public.get(name)
    op = getattr(face, "op", None)
    is_same = op is not None and op.is_elementwise and len(op.arguments) == ufunc.nin
    return face if is_same and ufunc.nout == 1 else None


def _title(ufunc: Any) -> str:
    """Return what a ufunc is called; those of other packages do not tell where they are from."""
    name = ufunc.__name__
    return f"np.{name}" if getattr(np, name, None) is ufunc else f"ufunc {name}"


def array_function(self: Any, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
    """Run a NumPy function on tensors."""
    if function is np.shape and isinstance(args[0] if args else None, Value) and not kwargs:
        return args[0].shape  # Which is asked for again and again.
    title = f"{getattr(function, '__module__', 'np')}.{function.__name__}".replace("numpy.", "np.")
    face = numpy_faces.get(function)
    if face is None:
        ops.load_all()  # Its op may be of a family that is not there yet.
        face = numpy_faces.get(function)
    refusal: NumtapeError | None = None
    if face is not None:
        bound = _bind(function, face, args, kwargs)
        if bound is not None:
            try:
                return face(*bound[0], **bound[1])
            except NumtapeError as error:
                # NumPy may have options that we do not.
                if function in MUTATORS or any(map(_is_tracked, tree.leaves((args, kwargs)))):
                    raise
                refusal = error
    is_safe, is_mutator = function in VALUE_FREE, function in MUTATORS
    try:
        return _fall_back(function, args, kwargs, title, is_safe=is_safe, is_mutator=is_mutator)
    except (TypeError, ValueError, IndexError, OverflowError) as error:
        if refusal is None or isinstance(error, NumtapeError):
            raise
        raise refusal from error


def _bind(function: Any, face: Any, args: Any, kwargs: Any) -> tuple[list[Any], dict[str, Any]] | None:
    """Return the arguments for our function of a call of NumPy's, or None if it has options that ours does not.

    Arguments are matched by NumPy's own signature, since the same position may mean other things in the two.
    """
    theirs = _parameters(function)
    ours = _parameters(face)
    if theirs is not None and ours is not None and any(p.kind is p.VAR_POSITIONAL for p in theirs.values()):
        has_more = any(name in _NUMPY_OPTIONS and name not in ours for name in kwargs)
        return None if has_more else (list(args), kwargs)
    if theirs is None or ours is None:
        return list(args), kwargs
    try:
        bound = inspect.Signature(list(theirs.values())).bind(*args, **kwargs)
    except TypeError:
        return list(args), kwargs  # Our function explains better what is wrong.
    is_open = any(p.kind is p.VAR_POSITIONAL for p in ours.values())
    leading = sum(p.kind is p.POSITIONAL_ONLY for p in ours.values()) or 1
    positional: list[Any] = []
    named: dict[str, Any] = {}
    for place, (name, value) in enumerate(bound.arguments.items()):
        default = theirs[name].default
        if value is getattr(np, "_NoValue", None):
            continue  # As if it were not given.
        if name == "axis" and isinstance(value, tuple | list) and not value:
            return None  # No axes at all, which ours takes as all of them.
        if theirs[name].kind is inspect.Parameter.VAR_KEYWORD:
            if not all(option in ours for option in value):
                return None
            named |= value
            continue
        if name == "out" and getattr(getattr(face, "op", None), "is_elementwise", False):
            named[name] = value  # Which the faces of elementwise ops take, whatever their signature.
        elif name in ours and ours[name].kind is not inspect.Parameter.POSITIONAL_ONLY and place:
            named[name] = value
        elif place == len(positional) and (place < leading or is_open):
            positional.append(value)
        elif value is default or value is None:
            continue
        elif place < len(args) and name not in _NUMPY_OPTIONS and not named:
            positional.append(value)
        else:
            return None
    return positional, named


#: Options of NumPy's functions that none of ours takes.
_NUMPY_OPTIONS = frozenset(("dtype", "out", "where", "initial", "kind", "order", "casting", "subok", "method", "like"))


@functools.cache
def _parameters(function: Any) -> dict[str, inspect.Parameter] | None:
    try:
        return dict(inspect.signature(function).parameters)
    except (ValueError, TypeError):
        return None


def _is_tracked(leaf: Any) -> bool:
    return isinstance(leaf, Value) and is_tracked(leaf)


def _fall_back(
    function: Any, args: Any, kwargs: dict[str, Any], title: str, is_safe: bool = False, is_mutator: bool = False
) -> Any:
    """Run a NumPy function on the arrays of untracked tensors; results of other dtypes than ours stay arrays."""
    leaves = tree.leaves((args, kwargs))
    state = current()
    operands = [x for x in leaves if isinstance(x, Value)]
    if not is_safe and state.grad and any(map(is_tracked, operands)):
        raise UnsupportedError(
            f"{title}: has no op in numtape (or not with these options), and an operand is tracked, so its gradient "
            "would be lost. Write it with nt functions, or leave the tape with numpy() or detach()."
        )
    written = [x for x in tree.leaves((args[:1] if is_mutator else (), kwargs.get("out"))) if isinstance(x, Value)]
    for target in written:
        check_writable(title, target, state.grad)
    args, kwargs = tree.unflatten((args, kwargs), (x.array if isinstance(x, Value) else x for x in leaves))
    dtypes = {x.dtype for x in operands if x.dtype in FLOAT_DTYPES}
    if len(dtypes) == 1 and dtypes <= HALF_DTYPES and _chooses_dtype(function, args, kwargs):
        result = _in_float64(function, args, kwargs, *dtypes)
    else:
        result = function(*args, **kwargs)
    for target in written:
        mark_unrecorded(target)
    return tree.map(lambda x: _wrapped(x, operands) if _is_supported(x) else x, result)


def _chooses_dtype(function: Any, args: Any, kwargs: dict[str, Any]) -> bool:
    """Say whether a NumPy function can be told in which dtype to compute, as those that add up can, and is not."""
    if kwargs.get("dtype") is not None:
        return False
    theirs = _parameters(function)
    if theirs is None:
        return getattr(function, "__name__", "") in ("reduce", "reduceat", "accumulate")  # Methods of ufuncs.
    return "dtype" in theirs and not {"dtype", "out"} & set(list(theirs)[: len(args)])


def _in_float64(function: Any, args: Any, kwargs: dict[str, Any], dtype: Dtype) -> Any:
    """Run a function in float64, and round what it returns, or writes, once."""
    (target,) = tree.leaves(kwargs.pop("out", None)) or (None,)
    wide = function(*args, **(kwargs | {"dtype": np.float64}))
    result = tree.map(lambda x: rounded(np.asarray(x), dtype) if getattr(x, "dtype", None) == np.float64 else x, wide)
    if target is None:
        return result
    target[...] = result
    return target


def _is_supported(x: Any) -> bool:
    """Say whether something is an array that a tensor can hold, or a float as an array has them."""
    is_number = isinstance(x, np.generic) and x.dtype in FLOAT_DTYPES
    return is_number or (isinstance(x, np.ndarray) and (x.dtype in FLOAT_DTYPES or x.dtype.kind in "biu"))


def _wrapped(result: Any, operands: list[Value]) -> Any:
    """Wrap a result; if it is an operand's memory, as that operand or as a view of it."""
    array = np.asarray(result)
    for operand in operands:
        if array is operand.array:
            return operand
    made = wrap(operands[0].plain, array)
    for operand in operands:
        if np.may_share_memory(array, operand.array):
            link_version(operand, made, is_view=True)
    return made


def check_may_leave(self: Any, how: str) -> None:
    """Raise if a tensor is tracked, so that it would leave the tape unnoticed."""
    if is_tracked(self):
        hint = _scipy_hint(sys._getframe(2))
        error = LeavesTapeError(
            f"{how}: the tensor is tracked, and its gradient would be lost without a word. Use tensor.numpy() to leave "
            f"the tape, nt.stack([...]) or nt.tensor([...]) to join tensors, and nt functions to compute.{hint}"
        )
        error.how, error.hint = how, hint
        raise error


def _scipy_hint(caller: FrameType) -> str:
    """Return what to use if SciPy asked for the array of a tensor: a function of ours, or a constant, may be meant."""
    frame: FrameType | None = caller
    frames: list[FrameType] = []
    while frame is not None and frame.f_globals.get("__name__", "").startswith("scipy."):
        frames.append(frame)
        frame = frame.f_back
    if not frames:
        return ""
    if any(each.f_globals["__name__"].startswith("scipy.optimize") for each in frames):
        return (
            " SciPy asked for it: detach() what is tracked, be it the start or captured by the function, or call SciPy "
            "in nt.no_grad(); numtape.interop.scipy has solvers on functions of tensors."
        )
    called = frames[-1].f_code.co_name
    ops.load_all()
    if called in public:
        return f" SciPy asked for it: use nt.{called}."
    # Its sparse matrices never let ours multiply.
    return (
        " SciPy asked for it: numtape.interop.scipy has linear_operator(A) @ x and spsolve for sparse matrices, "
        "fftconvolve, dct, and solvers on functions of tensors."
    )


def read_only(array: NDArray) -> NDArray:
    """Return a view that cannot be written: nobody would see a write to the memory of a tensor."""
    view = array.view()
    view.setflags(write=False)
    return view


def array(self: Any, dtype: Any = None, copy: bool | None = None) -> Any:
    """Return the array of an untracked tensor, for ``np.asarray``; refuse to let a tracked one leave unnoticed."""
    check_may_leave(self, "np.asarray(tensor)")
    if dtype is None or dtype == self.array.dtype:
        return self.array.copy() if copy else read_only(self.array)
    if copy is False:
        raise ArgumentError(
            f"np.asarray(tensor): a copy is needed to convert {self.array.dtype} to {dtype}; leave copy=False out."
        )
    return self.array.astype(dtype)
