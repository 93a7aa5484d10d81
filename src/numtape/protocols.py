"""How NumPy's functions reach ours: ``np.exp(t)`` and ``np.concatenate([t, u])`` record.

A NumPy function that has an op runs it. One that has none answers for untracked tensors, by computing on their arrays,
and raises for tracked ones, so that no gradient is lost unnoticed.
"""

from typing import Any

import numpy as np

from . import tree
from .core.context import current
from .core.declare import numpy_faces, public
from .core.inplace import write_op
from .core.value import Value, wrap
from .errors import ArgumentError, LeavesTapeError, UnsupportedError

#: NumPy functions that look only at shape and dtype, or compare: nothing to differentiate is lost by running them.
VALUE_FREE = frozenset(
    (
        np.shape,
        np.ndim,
        np.size,
        np.zeros_like,
        np.ones_like,
        np.empty_like,
        np.full_like,
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


def array_ufunc(self: Any, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
    """Run a ufunc, or one of its methods, on tensors."""
    out = kwargs.pop("out", None)
    where = kwargs.pop("where", True)
    if method == "__call__":
        # SciPy's special functions are known by name, so that SciPy need not be imported.
        face = numpy_faces.get(ufunc) or public.get(ufunc.__name__)
    else:
        face = numpy_faces.get(getattr(ufunc, method))
        if face is not None and method in ("reduce", "accumulate"):
            kwargs.setdefault("axis", 0)
            kwargs = {k: v for k, v in kwargs.items() if k in ("axis", "keepdims")}
    if face is None or (kwargs and method == "__call__"):
        return _fall_back(getattr(ufunc, method), inputs, {**kwargs, **_given(out, where)}, _title(ufunc, method))
    if out is None and where is True:
        return face(*inputs, **kwargs)
    if where is True and hasattr(face, "op") and method == "__call__":
        return write_op(out, face.op, inputs)
    result = face(*inputs, **kwargs)
    target = out[0] if isinstance(out, tuple) else out
    select: Any = public["where"]
    if target is None:
        # NumPy leaves what is not computed uninitialised; zero is a value that can be relied upon.
        return select(where, result, 0.0)
    return write_op(target, select.op, (where, result, target))


def _given(out: Any, where: Any) -> dict[str, Any]:
    given = {} if out is None else {"out": out}
    return given if where is True else {**given, "where": where}


def _title(ufunc: Any, method: str) -> str:
    return f"np.{ufunc.__name__}" + ("" if method == "__call__" else f".{method}")


def array_function(self: Any, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
    """Run a NumPy function on tensors."""
    face = numpy_faces.get(function)
    if face is not None:
        return face(*args, **kwargs)
    title = f"{getattr(function, '__module__', 'np')}.{function.__name__}".replace("numpy.", "np.")
    return _fall_back(function, args, kwargs, title, is_safe=function in VALUE_FREE)


def _fall_back(function: Any, args: Any, kwargs: dict[str, Any], title: str, is_safe: bool = False) -> Any:
    """Run a NumPy function on the arrays of untracked tensors."""
    leaves = tree.leaves((args, kwargs))
    if not is_safe and current().grad and any(isinstance(x, Value) and x.node is not None for x in leaves):
        raise UnsupportedError(
            f"{title}: has no op in numtape (or not with these options), and an operand is tracked, so its gradient "
            "would be lost. Write it with nt functions, or leave the tape with numpy() or detach()."
        )
    cls = next(x.plain for x in leaves if isinstance(x, Value))
    args, kwargs = tree.unflatten((args, kwargs), (x.array if isinstance(x, Value) else x for x in leaves))
    result = function(*args, **kwargs)
    return tree.map(lambda x: wrap(cls, x) if isinstance(x, np.ndarray) else x, result)


def check_may_leave(self: Any, how: str) -> None:
    """Raise if a tensor is tracked, so that it would leave the tape unnoticed."""
    if self.node is not None:
        raise LeavesTapeError(
            f"{how}: the tensor is tracked, and its gradient would be lost without a word. Use tensor.numpy() to leave "
            "the tape, nt.stack([...]) or nt.tensor([...]) to join tensors, and nt functions to compute."
        )


def array(self: Any, dtype: Any = None, copy: bool | None = None) -> Any:
    """Return the array of an untracked tensor, for ``np.asarray``; refuse to let a tracked one leave unnoticed."""
    check_may_leave(self, "np.asarray(tensor)")
    if dtype is None or dtype == self.array.dtype:
        return self.array.copy() if copy else self.array
    if copy is False:
        raise ArgumentError(
            f"np.asarray(tensor): a copy is needed to convert {self.array.dtype} to {dtype}; leave copy=False out."
        )
    return self.array.astype(dtype)
