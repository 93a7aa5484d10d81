"""Convolutions by oneDNN: forward and both backward passes, in the blocked layouts that it prefers.

Operands come and go in the layout of the arrays; a plan changes layouts on the way in and out, which is included in
every time that was measured to decide when oneDNN is used.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from .._typing import Dtype, NDArray, Shape
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
    address_of,
    contiguous_steps,
    longs,
)

Ints = tuple[int, ...]
Pairs = tuple[tuple[int, int], ...]

_FORWARD_TRAINING = 64
_DIRECT = 1

_plans = Plans(256)


class Convolution(NamedTuple):
    """What a convolution is, but for the values."""

    x: Shape
    weight: Shape
    out: Shape
    dtype: Dtype
    stride: Ints
    padding: Pairs
    dilation: Ints
    groups: int

    def grouped_weight(self) -> Shape:
        """Return the weight's shape with an axis of groups, if there are several, as oneDNN wants it."""
        if self.groups == 1:
            return self.weight
        return (self.groups, self.weight[0] // self.groups, *self.weight[1:])

    def numbers(self) -> tuple[object, ...]:
        """Return strides, dilations (0 for none) and paddings before and after."""
        before, after = zip(*self.padding, strict=True)
        return longs(self.stride), longs(tuple(d - 1 for d in self.dilation)), longs(before), longs(after)


def forward(library: Library, what: Convolution, x: NDArray, weight: NDArray, bias: NDArray | None) -> NDArray:
    """Return the convolution of `x` with `weight`, plus `bias`."""
    if bias is None:
        return _run("forward", what, lambda: _plan_forward(library, what, False), what.out, x, weight)
    return _run("forward with bias", what, lambda: _plan_forward(library, what, True), what.out, x, weight, bias)


def backward_data(library: Library, what: Convolution, y: NDArray, weight: NDArray) -> NDArray:
    """Return the transpose by the input."""
    return _run("data", what, lambda: _plan_data(library, what), what.x, y, weight)


def backward_weights(library: Library, what: Convolution, x: NDArray, y: NDArray) -> NDArray:
    """Return the transpose by the weight."""
    return _run("weights", what, lambda: _plan_weights(library, what), what.weight, x, y)


def _run(kind: str, what: Convolution, make: Callable[[], Plan], shape: Shape, *operands: NDArray) -> NDArray:
    out = np.empty(shape, what.dtype)
    arrays = [np.ascontiguousarray(operand) for operand in operands]
    plan = _plans.take((kind, what), make)
    plan.run(*map(address_of, arrays), address_of(out))
    _plans.give_back((kind, what), plan)
    return out


def _plan_forward(library: Library, what: Convolution, has_bias: bool) -> Plan:
    plan = Plan(library)
    bias = plan.layout(what.out[1:2], what.dtype, (1,)) if has_bias else None
    descriptor = _describe_forward(plan, what, bias)
    memories = {
        SRC: _operand(plan, descriptor, SRC, what.x, what.dtype),
        WEIGHTS: _operand(plan, descriptor, WEIGHTS, what.grouped_weight(), what.dtype),
    }
    if bias is not None:
        memories[BIAS] = plan.port(bias)
    return _finish(plan, descriptor, memories, DST, what.out, what.dtype)


def _describe_forward(plan: Plan, what: Convolution, bias: int | None = None) -> int:
    """Return the forward's descriptor, which those of the backward passes take as a hint."""
    library = plan.library
    src, weights, dst = (plan.free_layout(shape, what.dtype) for shape in (what.x, what.grouped_weight(), what.out))
    return plan.make(
        "primitive_desc",
        "convolution_forward_primitive_desc_create",
        *(library.engine, _FORWARD_TRAINING, _DIRECT, src, weights, bias, dst, *what.numbers(), library.attributes),
    )


def _plan_data(library: Library, what: Convolution) -> Plan:
    plan = Plan(library)
    hint = _describe_forward(plan, what)
    src, weights, dst = (plan.free_layout(shape, what.dtype) for shape in (what.x, what.grouped_weight(), what.out))
    descriptor = plan.make(
        "primitive_desc",
        "convolution_backward_data_primitive_desc_create",
        *(library.engine, _DIRECT, src, weights, dst, *what.numbers(), hint, library.attributes),
    )
    memories = {
        DIFF_DST: _operand(plan, descriptor, DIFF_DST, what.out, what.dtype),
        WEIGHTS: _operand(plan, descriptor, WEIGHTS, what.grouped_weight(), what.dtype),
    }
    return _finish(plan, descriptor, memories, DIFF_SRC, what.x, what.dtype)


def _plan_weights(library: Library, what: Convolution) -> Plan:
    plan = Plan(library)
    hint = _describe_forward(plan, what)
    src, weights, dst = (plan.free_layout(shape, what.dtype) for shape in (what.x, what.grouped_weight(), what.out))
    descriptor = plan.make(
        "primitive_desc",
        "convolution_backward_weights_primitive_desc_create",
        *(library.engine, _DIRECT, src, weights, None, dst, *what.numbers(), hint, library.attributes),
    )
    memories = {
        SRC: _operand(plan, descriptor, SRC, what.x, what.dtype),
        DIFF_DST: _operand(plan, descriptor, DIFF_DST, what.out, what.dtype),
    }
    return _finish(plan, descriptor, memories, DIFF_WEIGHTS, what.grouped_weight(), what.dtype)


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
