"""Products of matrices by oneDNN: operands as they lie in memory, transposed or not; stacks of matrices, too."""

import numpy as np

from .._typing import Dtype, NDArray, Shape
from .addresses import address_of
from .onednn_library import Library
from .onednn_plan import BIAS, DST, SRC, WEIGHTS, Plan, Plans, contiguous_steps

plans = Plans(256)


def matmul(library: Library, a: NDArray, b: NDArray, bias: NDArray | None, dtype: Dtype) -> NDArray:
    """Return ``a @ b`` in `dtype`, with `bias` added to each row before it is rounded.

    Both have the same leading axes and steps that `can_read` accepts; `bias` is contiguous and of the length of a row.
    """
    key = (a.shape, a.strides, b.shape, b.strides, a.dtype, dtype, None if bias is None else bias.dtype)
    plan = plans.take(key) or _plan(library, a, b, bias, dtype)
    out = np.empty((*a.shape[:-1], b.shape[-1]), dtype)
    if bias is None:
        plan.run(address_of(a), address_of(b), address_of(out))
    else:
        plan.run(address_of(a), address_of(b), address_of(bias), address_of(out))
    plans.give_back(key, plan)
    return out


def can_read(array: NDArray) -> bool:
    """Say whether rows or columns are dense, the others beside or behind them, and nothing lies on itself."""
    size, (rows, columns), (row, column) = array.itemsize, array.shape[-2:], array.strides[-2:]
    if min(array.strides) < size or any(step % size for step in array.strides):
        return False
    return (column == size and row >= columns * size) or (row == size and column >= rows * size)


def _plan(library: Library, a: NDArray, b: NDArray, bias: NDArray | None, dtype: Dtype) -> Plan:
    plan = Plan(library)
    shape = (*a.shape[:-1], b.shape[-1])
    layouts = {SRC: plan.layout(a.shape, a.dtype, _steps(a)), WEIGHTS: plan.layout(b.shape, b.dtype, _steps(b))}
    if bias is not None:
        row = (1,) * (len(shape) - 1) + shape[-1:]
        layouts[BIAS] = plan.layout(row, bias.dtype, contiguous_steps(row))
    layouts[DST] = plan.layout(shape, dtype, contiguous_steps(shape))
    operands = (layouts[SRC], layouts[WEIGHTS], layouts.get(BIAS), layouts[DST])
    descriptor = plan.describe("matmul_primitive_desc_create", library.engine, *operands, library.attributes)
    plan.step(descriptor, {name: plan.port(layout) for name, layout in layouts.items()})
    return plan


def _steps(array: NDArray) -> Shape:
    """Return the strides in elements."""
    return tuple(stride // array.itemsize for stride in array.strides)
