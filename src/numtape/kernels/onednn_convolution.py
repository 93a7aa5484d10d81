"""Convolutions by oneDNN: forward and both backward passes, in the blocked layouts that it prefers.

Operands come and go in the layout of the arrays; a plan changes layouts on the way in and out, which is included in
every time that was measured to decide when oneDNN is used.
"""

from collections.abc import Hashable
from typing import Any

import numpy as np

from .._typing import Dtype, NDArray, Shape
from .addresses import address_of
from .convolution import Convolution
from .onednn_library import Library
from .onednn_plan import (
    BIAS,
    DIFF_DST,
    DIFF_SRC,
    DIFF_WEIGHTS,
    DST,
    LAYOUT_OF,
    SRC,
    WEIGHTS,
    Plan,
    Plans,
    contiguous_steps,
    longs,
)

_FORWARD_TRAINING = 64
_DIRECT = 1

plans = Plans(256)


def forward(library: Library, what: Convolution, x: NDArray, weight: NDArray, bias: NDArray | None) -> NDArray:
    """Return the convolution of `x` with `weight`, plus `bias`."""
    key = ("forward", what, bias is not None)
    plan = plans.take(key) or _plan_forward(library, what, bias is not None)
    return _run(key, plan, what, what.out, (x, weight) if bias is None else (x, weight, bias))


def backward_data(library: Library, what: Convolution, y: NDArray, weight: NDArray) -> NDArray:
    """Return the transpose by the input."""
    key = ("data", what)
    return _run(key, plans.take(key) or _plan_data(library, what), what, what.x, (y, weight))


def backward_weights(library: Library, what: Convolution, x: NDArray, y: NDArray) -> NDArray:
    """Return the transpose by the weight."""
    key = ("weights", what)
    return _run(key, plans.take(key) or _plan_weights(library, what), what, what.weight, (x, y))


def _run(key: Hashable, plan: Plan, what: Convolution, shape: Shape, operands: tuple[NDArray, ...]) -> NDArray:
    out = np.empty(shape, what.dtype)
    arrays = [np.ascontiguousarray(operand) for operand in operands]
    plan.run(*map(address_of, arrays), address_of(out))
    plans.give_back(key, plan)
    return out


def _plan_forward(library: Library, what: Convolution, has_bias: bool) -> Plan:
    plan = Plan(library)
    bias = plan.layout(what.out[1:2], what.dtype, (1,)) if has_bias else None
    descriptor = _describe_forward(plan, what, bias)
    memories = {
        SRC: _operand(plan, descriptor, SRC, what.x, what.dtype),
        WEIGHTS: _operand(plan, descriptor, WEIGHTS, _grouped_weight(what), what.dtype),
    }
    if bias is not None:
        memories[BIAS] = plan.port(bias)
    return _finish(plan, descriptor, memories, DST, what.out, what.dtype)


def _plan_data(library: Library, what: Convolution) -> Plan:
    plan = Plan(library)
    hint = _describe_forward(plan, what, None)
    operands = (*_free_layouts(plan, what), *_numbers(what), hint, library.attributes)
    descriptor = plan.describe("convolution_backward_data_primitive_desc_create", library.engine, _DIRECT, *operands)
    memories = {
        DIFF_DST: _operand(plan, descriptor, DIFF_DST, what.out, what.dtype),
        WEIGHTS: _operand(plan, descriptor, WEIGHTS, _grouped_weight(what), what.dtype),
    }
    return _finish(plan, descriptor, memories, DIFF_SRC, what.x, what.dtype)


def _plan_weights(library: Library, what: Convolution) -> Plan:
    plan = Plan(library)
    hint = _describe_forward(plan, what, None)
    src, weights, dst = _free_layouts(plan, what)
    operands = (src, weights, None, dst, *_numbers(what), hint, library.attributes)
    descriptor = plan.describe("convolution_backward_weights_primitive_desc_create", library.engine, _DIRECT, *operands)
    memories = {
        SRC: _operand(plan, descriptor, SRC, what.x, what.dtype),
        DIFF_DST: _operand(plan, descriptor, DIFF_DST, what.out, what.dtype),
    }
    return _finish(plan, descriptor, memories, DIFF_WEIGHTS, _grouped_weight(what), what.dtype)


def _describe_forward(plan: Plan, what: Convolution, bias: int | None) -> int:
    """Return the forward's descriptor, which those of the backward passes take as a hint."""
    src, weights, dst = _free_layouts(plan, what)
    operands = (src, weights, bias, dst, *_numbers(what), plan.library.attributes)
    return plan.describe(
        "convolution_forward_primitive_desc_create", plan.library.engine, _FORWARD_TRAINING, _DIRECT, *operands
    )


def _free_layouts(plan: Plan, what: Convolution) -> list[int]:
    """Return descriptors of input, weight and output, whose layouts oneDNN may choose."""
    return [plan.free_layout(shape, what.dtype) for shape in (what.x, _grouped_weight(what), what.out)]


def _operand(plan: Plan, descriptor: int, name: int, shape: Shape, dtype: Dtype) -> int:
    """Return the memory of an operand in the layout that the primitive wants."""
    plain = plan.layout(shape, dtype, contiguous_steps(shape))
    return plan.operand(plain, plan.library.descriptor(descriptor, LAYOUT_OF[name]))


def _finish(plan: Plan, descriptor: int, memories: dict[int, int], name: int, shape: Shape, dtype: Dtype) -> Plan:
    """Add the primitive and, where its layout is not the array's, the way back."""
    plain = plan.layout(shape, dtype, contiguous_steps(shape))
    found = plan.library.descriptor(descriptor, LAYOUT_OF[name])
    port = plan.port(plain)
    if plan.library.is_equal(plain, found):
        plan.step(descriptor, {**memories, name: port})
    else:
        inner = plan.inner(found)
        plan.step(descriptor, {**memories, name: inner})
        plan.reorder(inner, found, port, plain)
    return plan


def _grouped_weight(what: Convolution) -> Shape:
    """Return the weight's shape with an axis of groups, if there are several, as oneDNN wants it."""
    if what.groups == 1:
        return what.weight
    return (what.groups, what.weight[0] // what.groups, *what.weight[1:])


def _numbers(what: Convolution) -> tuple[Any, ...]:
    """Return strides, dilations (0 for none) and paddings before and after."""
    before, after = zip(*what.padding, strict=True)
    return longs(what.stride), longs(tuple(d - 1 for d in what.dilation)), longs(before), longs(after)
