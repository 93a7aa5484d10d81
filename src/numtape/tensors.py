"""Tensor: an array that remembers how it was computed. One line per operator, naming its op."""

import weakref
from collections.abc import Callable, Iterator
from typing import Any, Self

import numpy as np

from . import ops, protocols
from ._typing import NDArray
from .core.context import current
from .core.faces import binary, is_operand
from .core.gradients import backward, is_leaf
from .core.inplace import write_op
from .core.record import Record, call_site, note
from .core.value import Value, extras_of, update_node, wrap
from .core.write import mark_written
from .dtypes import FLOAT_DTYPES, as_dtype, default_dtype, float32, float64, int64, is_float
from .errors import ArgumentError, DtypeError, GradientError, OperandError, ShapeError
from .ops.indexing import setitem


def _operator(face: Any) -> Any:
    """Return an op of two operands as an operator: what it cannot use is left to the other operand, as Python wants."""
    if face.op.is_elementwise:
        return binary(face.op, is_operator=True)

    def operator(self: Any, other: Any) -> Any:
        return face(self, other) if is_operand(other) else NotImplemented

    return operator


def _swapped(face: Any) -> Any:
    """Return an operator with its operands exchanged."""
    operator = _operator(face)

    def swapped(self: Any, other: Any) -> Any:
        return operator(other, self)

    return swapped


def _in_place(face: Any) -> Any:
    """Return an augmented assignment that writes an op's result into its first operand."""

    def operator(self: Any, other: Any) -> Any:
        return write_op(self, face.op, (self, other)) if is_operand(other) else NotImplemented

    return operator


def _power(self: Any, exponent: Any, modulus: None = None) -> Any:
    """Return ``self ** exponent``; squares are an op of their own, since they are common and cheaper."""
    if type(exponent) is int and exponent == 2:
        return ops.square(self)
    return ops.pow(self, exponent) if modulus is None and is_operand(exponent) else NotImplemented


class Tensor(Value):
    """An n-dimensional array of numbers whose ops can be recorded and differentiated.

    Made by `nt.tensor`, `nt.zeros` and the like, or by ops on tensors. It hashes by identity and compares
    elementwise. NumPy's functions accept it and record.
    """

    __slots__ = ()
    # NumPy's operators defer to ours.
    __array_priority__ = 1000

    # What NumPy calls.
    __array__ = protocols.array
    __array_ufunc__ = protocols.array_ufunc
    __array_function__ = protocols.array_function

    # Operators.
    __hash__ = object.__hash__
    __pos__ = ops.positive
    __neg__ = ops.neg
    __abs__ = ops.abs
    __add__ = _operator(ops.add)
    __radd__ = _swapped(ops.add)
    __iadd__ = _in_place(ops.add)
    __sub__ = _operator(ops.sub)
    __rsub__ = _swapped(ops.sub)
    __isub__ = _in_place(ops.sub)
    __mul__ = _operator(ops.mul)
    __rmul__ = _swapped(ops.mul)
    __imul__ = _in_place(ops.mul)
    __truediv__ = _operator(ops.div)
    __rtruediv__ = _swapped(ops.div)
    __itruediv__ = _in_place(ops.div)
    __floordiv__ = _operator(ops.floor_divide)
    __rfloordiv__ = _swapped(ops.floor_divide)
    __ifloordiv__ = _in_place(ops.floor_divide)
    __mod__ = _operator(ops.remainder)
    __rmod__ = _swapped(ops.remainder)
    __imod__ = _in_place(ops.remainder)
    __pow__ = _power
    __rpow__ = _swapped(ops.pow)
    __ipow__ = _in_place(ops.pow)
    __matmul__ = _operator(ops.matmul)
    __rmatmul__ = _swapped(ops.matmul)
    __eq__ = _operator(ops.equal)
    __ne__ = _operator(ops.not_equal)
    __lt__ = _operator(ops.less)
    __le__ = _operator(ops.less_equal)
    __gt__ = _operator(ops.greater)
    __ge__ = _operator(ops.greater_equal)
    __and__ = _operator(ops.bitwise_and)
    __rand__ = _swapped(ops.bitwise_and)
    __or__ = _operator(ops.bitwise_or)
    __ror__ = _swapped(ops.bitwise_or)
    __xor__ = _operator(ops.bitwise_xor)
    __rxor__ = _swapped(ops.bitwise_xor)
    __invert__ = ops.bitwise_not
    __getitem__ = ops.getitem
    __setitem__ = setitem

    # Ops as methods.
    add = ops.add
    sub = ops.sub
    mul = ops.mul
    div = ops.div
    neg = ops.neg
    pow = ops.pow
    abs = ops.abs
    sign = ops.sign
    square = ops.square
    sqrt = ops.sqrt
    rsqrt = ops.rsqrt
    reciprocal = ops.reciprocal
    maximum = ops.maximum
    minimum = ops.minimum
    clip = clamp = ops.clip
    floor = ops.floor
    ceil = ops.ceil
    round = ops.round
    trunc = ops.trunc
    exp = ops.exp
    expm1 = ops.expm1
    log = ops.log
    log2 = ops.log2
    log10 = ops.log10
    log1p = ops.log1p
    sigmoid = ops.sigmoid
    sin = ops.sin
    cos = ops.cos
    tan = ops.tan
    sinh = ops.sinh
    cosh = ops.cosh
    tanh = ops.tanh
    eq = ops.equal
    ne = ops.not_equal
    lt = ops.less
    le = ops.less_equal
    gt = ops.greater
    ge = ops.greater_equal
    isnan = ops.isnan
    isinf = ops.isinf
    isfinite = ops.isfinite
    matmul = mm = ops.matmul
    dot = ops.dot
    outer = ops.outer
    sum = ops.sum
    mean = ops.mean
    prod = ops.prod
    max = amax = ops.max
    min = amin = ops.min
    var = ops.var
    std = ops.std
    logsumexp = ops.logsumexp
    any = ops.any
    all = ops.all
    argmax = ops.argmax
    argmin = ops.argmin
    norm = ops.norm
    cumsum = ops.cumsum
    cumprod = ops.cumprod
    argsort = ops.argsort
    sort = ops.sort
    topk = ops.topk
    median = ops.median
    nonzero = ops.nonzero
    reshape = ops.reshape
    view = ops.view
    flatten = ops.flatten
    ravel = ops.ravel
    transpose = ops.transpose
    permute = ops.permute
    moveaxis = ops.moveaxis
    swapaxes = ops.swapaxes
    squeeze = ops.squeeze
    unsqueeze = ops.unsqueeze
    broadcast_to = ops.broadcast_to
    expand = ops.expand
    flip = ops.flip
    roll = ops.roll
    repeat = ops.repeat
    tile = ops.tile
    split = ops.split
    chunk = ops.chunk
    unbind = ops.unbind
    diagonal = ops.diagonal
    tril = ops.tril
    triu = ops.triu
    trace = ops.trace
    take = ops.take
    gather = ops.gather
    scatter = ops.scatter
    scatter_add = ops.scatter_add
    index_select = ops.index_select
    masked_fill = ops.masked_fill
    nan_to_num = ops.nan_to_num
    inverse = ops.inv
    det = ops.det
    relu = ops.relu
    softmax = ops.softmax
    log_softmax = ops.log_softmax
    acos = ops.acos
    acosh = ops.acosh
    addmm = ops.addmm
    allclose = ops.allclose
    asin = ops.asin
    asinh = ops.asinh
    atan = ops.atan
    atan2 = ops.atan2
    atanh = ops.atanh
    cbrt = ops.cbrt
    cholesky = ops.cholesky
    count_nonzero = ops.count_nonzero
    cross = ops.cross
    deg2rad = ops.deg2rad
    diag = ops.diag
    diff = ops.diff
    digamma = ops.digamma
    erf = ops.erf
    erfc = ops.erfc
    erfinv = ops.erfinv
    exp2 = ops.exp2
    floor_divide = ops.floor_divide
    fmod = ops.fmod
    hardshrink = ops.hardshrink
    hypot = ops.hypot
    inner = ops.inner
    isclose = ops.isclose
    kron = ops.kron
    lgamma = ops.lgamma
    logaddexp = ops.logaddexp
    logaddexp2 = ops.logaddexp2
    logical_and = ops.logical_and
    logical_not = ops.logical_not
    logical_or = ops.logical_or
    logical_xor = ops.logical_xor
    logit = ops.logit
    matrix_power = ops.matrix_power
    nanmean = ops.nanmean
    nansum = ops.nansum
    positive = ops.positive
    prelu = ops.prelu
    qr = ops.qr
    quantile = ops.quantile
    rad2deg = ops.rad2deg
    remainder = ops.remainder
    sinc = ops.sinc
    slogdet = ops.slogdet
    svd = ops.svd
    unique = ops.unique
    vdot = ops.vdot
    vecdot = ops.vecdot
    xlogy = ops.xlogy
    multiply = ops.mul
    subtract = ops.sub
    divide = true_divide = ops.div
    negative = ops.neg
    absolute = ops.abs
    greater = ops.greater
    less = ops.less
    not_equal = ops.not_equal
    movedim = ops.moveaxis
    swapdims = ops.swapaxes
    bmm = ops.matmul
    astype = ops.cast
    clone = copy = ops.clone
    detach = ops.stop_gradient

    def tensor(self) -> "Tensor":
        """Return the untracked value, sharing memory."""
        untracked: Tensor = ops.stop_gradient(self)
        return untracked

    def mul_into(self, other: Any, out: "Tensor") -> "Tensor":
        """Write ``self * other`` into `out` and return it."""
        written: Tensor = ops.mul(self, other, out=out)  # type: ignore[call-arg]
        return written

    # Shape and dtype.
    @property
    def ndim(self) -> int:
        """The number of axes."""
        return self.array.ndim

    @property
    def size(self) -> int:
        """The number of elements."""
        return self.array.size

    @property
    def nbytes(self) -> int:
        """The number of bytes that the elements take."""
        return self.array.nbytes

    def numel(self) -> int:
        """Return the number of elements."""
        return self.array.size

    def dim(self) -> int:
        """Return the number of axes."""
        return self.array.ndim

    @property
    def T(self) -> "Tensor":
        """The tensor with its axes reversed."""
        turned: Tensor = ops.permute(self, tuple(range(self.ndim))[::-1])
        return turned

    @property
    def mT(self) -> "Tensor":
        """The tensor with its last two axes exchanged."""
        if self.ndim < 2:
            raise ShapeError(f"mT: the tensor has shape {self.shape}; a matrix has two axes or more. Use reshape.")
        turned: Tensor = ops.swapaxes(self, -1, -2)
        return turned

    @property
    def device(self) -> str:
        """Where the tensor is: always "cpu"."""
        return "cpu"

    def cpu(self) -> Self:
        """Return the tensor itself."""
        return self

    def to(self, target: Any) -> "Tensor":
        """Return the tensor in another dtype, or itself for the device "cpu" and for its own dtype."""
        if isinstance(target, str) and target.split(":")[0] in ("cpu", "cuda", "mps", "gpu"):
            if target.split(":")[0] != "cpu":
                raise ArgumentError(f'to: there is no device {target!r}; numtape computes on "cpu".')
            return self
        dtype = target.dtype if isinstance(target, Value) else as_dtype(target)
        if dtype == self.dtype:
            return self
        cast: Tensor = ops.cast(self, dtype)
        return cast

    def float(self) -> "Tensor":
        """Return the tensor as float32."""
        return self.to(float32)

    def double(self) -> "Tensor":
        """Return the tensor as float64."""
        return self.to(float64)

    def long(self) -> "Tensor":
        """Return the tensor as int64."""
        return self.to(int64)

    def bool(self) -> "Tensor":
        """Return the tensor as bools."""
        return self.to(np.bool_)

    # Leaving the tape.
    def numpy(self, copy: Any = False) -> NDArray:
        """Return the array: a read-only view, or with `copy` one that can be written."""
        if copy:
            return self.array.copy()
        view = self.array.view()
        view.flags.writeable = False
        return view

    def item(self) -> Any:
        """Return the only element as a Python number."""
        if self.array.size != 1:
            raise ShapeError(f"item(): the tensor has shape {self.shape}; only one element makes a number{_MANY}")
        self._note_exit("item()")
        return self.array.item()

    to_scalar = item

    def tolist(self) -> Any:
        """Return nested lists of Python numbers."""
        return self.array.tolist()

    def __float__(self) -> Any:
        return self._number(float, "float()")

    def __int__(self) -> Any:
        return self._number(int, "int()")

    def __index__(self) -> Any:
        if self.dtype.kind not in "iu" or self.array.size != 1:
            raise OperandError(
                f"index: only integer tensors of one element stand for an integer, not {self.dtype} of shape "
                f"{self.shape}; use int()."
            )
        return int(self.array.item())

    def __bool__(self) -> Any:
        if self.array.size != 1:
            raise ShapeError(f"bool(): the tensor has shape {self.shape}; use any() or all() for all but one element.")
        return bool(self.array.item())

    def __complex__(self) -> complex:
        raise DtypeError("complex(): numtape computes with real numbers; use float().")

    def _number(self, kind: Callable[[Any], Any], how: str) -> Any:
        if self.array.size != 1:
            raise ShapeError(f"{how}: the tensor has shape {self.shape}; only one element makes a number{_MANY}")
        self._note_exit(how)
        return kind(self.array.item())

    def _note_exit(self, how: str) -> None:
        if self.node is not None:
            code, lasti = call_site()
            current().thread.last_exit = (code, lasti, how)

    def __dlpack__(self, **kwargs: Any) -> Any:
        protocols.check_may_leave(self, "DLPack export")
        return self.array.__dlpack__(**kwargs)

    def __dlpack_device__(self) -> Any:
        return self.array.__dlpack_device__()

    # Containers.
    def __len__(self) -> int:
        if not self.ndim:
            raise OperandError("len(): a tensor without axes has no length; size is 1, and item() gives the number.")
        return len(self.array)

    def __iter__(self) -> Iterator[Any]:
        if not self.ndim:
            raise OperandError("iteration: a tensor without axes has no elements to go through; use item().")
        return iter(ops.unbind(self))

    def __contains__(self, item: Any) -> Any:
        return bool((self.array == (item.array if isinstance(item, Value) else item)).any())

    # Gradients.
    @property
    def is_leaf(self) -> Any:
        """Whether the tensor was made by the user, not computed from tracked ones."""
        return is_leaf(self)

    @property
    def name(self) -> str | None:
        """What summaries and errors call the tensor."""
        return None if self.extras is None else self.extras.name

    @name.setter
    def name(self, name: str | None) -> None:
        if name is not None and not isinstance(name, str):
            raise OperandError(f"name: the name of a tensor is text, not {type(name).__name__}.")
        extras_of(self).name = name

    @property
    def grad(self) -> "Tensor | None":
        """The gradient that backward has added up here, or None."""
        return None if self.extras is None else self.extras.grad

    @grad.setter
    def grad(self, gradient: Any) -> None:
        if gradient is not None:
            array = gradient.array if isinstance(gradient, Value) else self._as_gradient(gradient)
            if array.shape != self.shape:
                raise ShapeError(
                    f"grad: the tensor has shape {self.shape} and the gradient {array.shape}; they must be equal."
                )
            if array.dtype != self.dtype:
                raise DtypeError(
                    f"grad: the tensor has dtype {self.dtype} and the gradient {array.dtype}; use astype()."
                )
            gradient = wrap(self.plain, np.array(array, order="C"))
        extras_of(self).grad = gradient

    def _as_gradient(self, gradient: Any) -> NDArray:
        """Return what is no tensor as an array of this tensor's dtype."""
        array = np.asarray(gradient)
        if array.dtype not in FLOAT_DTYPES and array.dtype.kind not in "biu":
            raise OperandError(
                f"grad: a gradient is a tensor, an array of real numbers or None, not {type(gradient).__name__} "
                f"({array.dtype})."
            )
        return array.astype(self.dtype)

    @property
    def requires_grad(self) -> Any:
        """Whether `backward` delivers a gradient here, or a gradient flows through here."""
        if isinstance(self.node, Record):
            return True
        return self.extras is not None and self.extras.requires_grad

    @requires_grad.setter
    def requires_grad(self, flag: Any) -> None:
        self.requires_grad_(flag)

    def requires_grad_(self, flag: Any = True) -> Self:
        """Say whether `backward` shall deliver a gradient here, and return self."""
        if flag and not is_float(self.dtype):
            raise DtypeError(
                f"requires_grad: a tensor of {self.dtype} has no derivative; only float tensors do. "
                "Use astype(nt.float32), or write 1.0 instead of 1."
            )
        if isinstance(self.node, Record):
            if not flag:
                raise GradientError(
                    "requires_grad: this tensor was computed from tracked ones, so it stays tracked; use detach()."
                )
            return self
        extras_of(self).requires_grad = bool(flag)
        update_node(self)
        return self

    set_requires_grad = requires_grad_

    def retain_grad(self) -> None:
        """Let `backward` deliver a gradient here although the tensor is not a leaf."""
        if self.node is None:
            raise GradientError(
                "retain_grad: the tensor is untracked, so no gradient will arrive; make it depend on a tensor with "
                "requires_grad=True."
            )
        if isinstance(self.node, Record):
            note(self.node).retained = weakref.ref(self)

    def backward(self, gradient: Any = None, retain_graph: Any = False, create_graph: Any = False) -> None:
        """Add the derivatives of this scalar to the ``.grad`` of its leaves, and free its graph.

        Args:
            gradient: the cotangent to start from; needed if the tensor is not scalar.
            retain_graph: keep the graph's arrays for another backward.
            create_graph: not here, since ``.grad`` never carries a graph.
        """
        if create_graph:
            raise ArgumentError(
                "backward: .grad never carries a graph; use tape.backward(loss, create_graph=True), or nt.grad, to "
                "differentiate gradients."
            )
        if gradient is None and self.array.size != 1:
            raise ShapeError(
                f"backward: the tensor has shape {self.shape}; give gradient=, or reduce it with sum() or mean()."
            )
        backward("backward", self, gradient, free=not retain_graph)

    def zero_grad(self, set_to_none: Any = True) -> None:
        """Reset the gradient: to None, or to zeros in place."""
        if self.extras is None or self.extras.grad is None:
            return
        if set_to_none:
            self.extras.grad = None
        else:
            self.extras.grad.array[...] = 0
            mark_written(self.extras.grad, None)

    def has_nan(self) -> Any:
        """Say whether some element is NaN."""
        return bool(np.isnan(self.array).any()) if is_float(self.dtype) else False

    def has_inf(self) -> Any:
        """Say whether some element is infinite."""
        return bool(np.isinf(self.array).any()) if is_float(self.dtype) else False

    # Copies and text.
    def __deepcopy__(self, memo: dict[int, Any]) -> "Tensor":
        self._check_leaf("deepcopy")
        copied: Tensor = _rebuild(*self.__reduce__()[1])
        if self.grad is not None:
            copied.grad = self.grad.array.copy()
        memo[id(self)] = copied
        return copied

    def __copy__(self) -> "Tensor":
        self._check_leaf("copy")
        copied: Tensor = _rebuild(*self.__reduce__()[1])
        return copied

    def __reduce__(self) -> tuple[Any, ...]:
        self._check_leaf("pickle")
        is_required = self.extras is not None and self.extras.requires_grad
        return _rebuild, (type(self), self.array.copy(), is_required, self.name)

    def _check_leaf(self, what: str) -> None:
        if isinstance(self.node, Record):
            raise GradientError(
                f"{what}: this tensor was computed from tracked ones, and its history cannot be copied; {what} "
                "detach() of it, or use clone() to stay on the tape."
            )

    def __repr__(self) -> str:
        text = np.array2string(self.array, separator=", ", prefix="tensor(")
        notes = [text]
        if self.dtype not in (default_dtype(), int64, np.bool_) or self.array.size == 0:
            notes.append(f"dtype={self.dtype}")
        if isinstance(self.node, Record):
            notes.append(f"op={self.node.op.name}")
        elif self.requires_grad:
            notes.append("requires_grad=True")
        if self.name:
            notes.append(f"name={self.name!r}")
        return f"tensor({', '.join(notes)})"

    def __format__(self, spec: str) -> str:
        if spec and self.array.size == 1:
            return format(self.array.item(), spec)
        try:
            return format(str(self), spec)
        except ValueError as error:
            raise ShapeError(
                f"format: the tensor has shape {self.shape} and the format is {spec!r}, which is for one number{_MANY}"
            ) from error


Tensor.plain = Tensor

#: How to go on with more than one element.
_MANY = ". Index one, reduce with sum() or mean(), or use tolist()."


def _rebuild(cls: type[Tensor], array: NDArray, requires_grad: bool, name: str | None) -> Any:
    made = wrap(cls, array)
    if name is not None:
        made.name = name
    return made.requires_grad_() if requires_grad else made
