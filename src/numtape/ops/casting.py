"""Change the dtype, or cut the graph."""

from typing import Any
from typing import cast as cast_to

import numpy as np

from .._typing import Array, Dtype, DtypeLike
from ..core.apply import leave_out
from ..core.binding import as_kind
from ..core.context import current
from ..core.declare import differentiable, face_of, linear
from ..core.facts import Structure
from ..core.op import Op, same
from ..core.value import Lifted, Value, array_of, wrap
from ..core.write import link_version
from ..dtypes import as_dtype, bfloat16, float64, is_float, widened
from ..kernels.half_sums import rounded
from .samples import SHAPES, sample, values


def _cast_batch(op: Any, operands: Any, batched: Any, params: Any) -> Any:
    return cast(operands[0], params["dtype"])


@differentiable(
    # The sweeps bring tangents and cotangents to their operand's dtype; those of halves stay float32.
    vjps=dict(x=same),
    jvps=dict(x=same),
    linear=frozenset(("x",)),
    structure=Structure.ELEMENTWISE,
    native_half=True,
    batch=_cast_batch,
    cost=lambda out, x, dtype: 0,
    numpy=np.astype,
    reference=lambda x, dtype: x.astype(dtype),
    samples=lambda: [sample(values(*shape), dtype=float64) for shape in SHAPES],
)
def _cast(x: Array, /, *, dtype: Dtype) -> Array:
    """Return `x` in another dtype, rounded once: to bfloat16 NumPy goes by way of float32."""
    return rounded(x, dtype) if dtype == bfloat16 and x.dtype == float64 else x.astype(dtype)


#: The op behind `cast`, which autocast records.
CAST: Op = cast_to(Any, _cast).op


@face_of(_cast)
def cast(x: Array, dtype: DtypeLike, *, copy: Any = True) -> Array:
    """Return `x` in another dtype; differentiable between float dtypes.

    Args:
        x: any shape.
        dtype: a dtype, or its name.
        copy: False for `x` itself if it has the dtype already.

    Example:
        >>> nt.cast(np.array([1.5, 2.5]), "float32")
        array([1.5, 2.5], dtype=float32)
    """
    dtype = as_dtype(dtype)
    if copy is not True and not as_kind("cast", "copy", copy, bool) and getattr(x, "dtype", None) == dtype:
        return x
    return _cast(x, dtype=dtype)


def stop_gradient(x: Array) -> Array:
    """Return `x` as a constant: no gradient flows back through the result. Memory is shared.

    Example:
        >>> x = nt.tensor([2.0], requires_grad=True)
        >>> (x * nt.stop_gradient(x)).sum().backward()
        >>> x.grad.tolist()
        [2.0]
    """
    if not isinstance(x, Value):
        return x
    if isinstance(x, Lifted):
        return x.detached()
    constant = wrap(x.plain, x.array)
    link_version(x, constant)
    leave_out(constant)
    for scope in current().scopes:
        scope.on_constant((x,), (constant,))
    return constant


def _copy_batch(op: Any, operands: Any, batched: Any, params: Any) -> Any:
    return op.face(operands[0])


@linear(
    transposes=dict(x=lambda g: g),
    structure=Structure.ELEMENTWISE,
    native_half=True,
    batch=_copy_batch,
    numpy=np.copy,
    also=("copy",),
    samples=lambda: [sample(values(*shape)) for shape in SHAPES],
)
def clone(x: Array, /) -> Array:
    """Return a copy with memory of its own; gradients flow through.

    Example:
        >>> nt.clone(np.array([1.0, 2.0]))
        array([1., 2.])
    """
    return x.copy()


def own_memory(out: Array, x: Array) -> Array:
    """Return what was made of `x` as a copy, unless it was copied on the way."""
    return clone(out) if np.may_share_memory(array_of(out), array_of(x)) else out


@linear(
    transposes=dict(x=lambda g: g),
    structure=Structure.ELEMENTWISE,
    native_half=True,
    aliases=True,
    batch=_copy_batch,
    samples=lambda: [sample(values(*shape)) for shape in SHAPES],
)
def alias(x: Array, /) -> Array:
    """Return another name for `x`: the same memory, a record of its own.

    Transforms use it to tell their own differentiation from that of transforms around them.

    Example:
        >>> nt.alias(np.array([1.0, 2.0]))
        array([1., 2.])
    """
    return x.view()


def in_dtype_of(like: Array, given: Array) -> Array:
    """Return integers, and lists of numbers, in the dtype that a float operand beside them is computed in."""
    dtype = getattr(like, "dtype", None)
    if dtype is None or not is_float(dtype):
        return given
    dtype = widened(dtype)
    if not hasattr(given, "dtype"):
        return np.asarray(given, dtype)
    return given if is_float(given.dtype) else cast(given, dtype)
