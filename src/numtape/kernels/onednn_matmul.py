"""Products of matrices by oneDNN: operands as they lie in memory, transposed or not, float32 or bfloat16."""

from collections.abc import Hashable

import numpy as np

from .._typing import Dtype, NDArray, Shape
from .onednn_library import Library
from .onednn_plan import BIAS, DST, SRC, WEIGHTS, Plan, Plans, address_of, contiguous_steps

_plans = Plans(256)


def is_plain(array: NDArray) -> bool:
    """Say whether the last two axes are laid out as a matrix or its transpose, and those before in order."""
    return False


def matmul(library: Library, a: NDArray, b: NDArray, bias: NDArray | None, dtype: Dtype) -> NDArray:
    """Return ``a @ b``, plus `bias` on each row, in `dtype`."""
    key = (a.shape, a.strides, b.shape, b.strides, a.dtype, dtype, bias is not None)
    plan = _plans.take(key, lambda: _plan(library, a, b, bias, dtype))
    out = np.empty((*a.shape[:-1], b.shape[-1]), dtype)
    if bias is None:
        plan.run(address_of(a), address_of(b), address_of(out))
    else:
        plan.run(address_of(a), address_of(b), address_of(bias), address_of(out))
    _plans.give_back(key, plan)
    return out


def _plan(library: Library, a: NDArray, b: NDArray, bias: NDArray | None, dtype: Dtype) -> Plan:
    plan = Plan(library)
    shape = (*a.shape[:-1], b.shape[-1])
    src, weights = (plan.layout(x.shape, x.dtype, _steps(x)) for x in (a, b))
    dst = plan.layout(shape, dtype, contiguous_steps(shape))
    row = None
    if bias is not None:
        row_shape = (1,) * (len(shape) - 1) + shape[-1:]
        row = plan.layout(row_shape, bias.dtype, contiguous_steps(row_shape))
    descriptor = plan.make(
        "primitive_desc",
        "matmul_primitive_desc_create",
        library.engine,
        src,
        weights,
        row,
        dst,
        library.attributes,
    )
    memories = {SRC: plan.port(src), WEIGHTS: plan.port(weights)}
    if row is not None:
        memories[BIAS] = plan.port(row)
    memories[DST] = plan.port(dst)
    plan.step(descriptor, memories)
    return plan


def _steps(array: NDArray) -> Shape:
    return tuple(stride // array.itemsize for stride in array.strides)
