"""Piecewise linear activation functions: relu and its relatives."""

import math
from typing import Any

import numpy as np

from .._typing import Array
from ..core.binding import as_static, plain_number
from ..core.declare import composed, elementwise
from ..core.value import Value
from ..dtypes import plain_array
from ..errors import ArgumentError, NotDifferentiableError, OperandError, ShapeError
from .comparisons import greater
from .origins import derived
from .samples import SHAPES, rejected, sample, unary_samples, values
from .selection import where
from .shapes import as_arrays

#: Elements from which on memory for zeros pays.
_MANY = 1 << 13


def as_constant(name: str, argument: str, x: Array) -> Any:
    """Return an argument without derivative as an array, and None as it is; raise if it is tracked."""
    if not isinstance(x, Value):
        if isinstance(x, np.ndarray):
            return plain_array(f"{name}: {argument}", x)
        return None if x is None else np.asarray(x)
    if x.node is not None:
        raise NotDifferentiableError(
            f"{name}: argument {argument!r} has no derivative, but a tracked tensor was given; "
            f"pass {argument}.detach() if its gradient is not wanted."
        )
    return x.array


def as_number(name: str, argument: str, x: Any) -> Any:
    """Return a static argument that is a number; raise if it is none, or if it is tracked."""
    number = plain_number(as_static(name, argument, x))
    if number is None:
        raise OperandError(f"{name}: {argument} is {x!r}; it must be a number.")
    return number


def slope(is_one: Array, elsewhere: float, like: Array) -> Array:
    """Return 1 where a condition holds and `elsewhere` where not; by arithmetic, several times faster than where."""
    ones = is_one.astype(like.dtype)
    return ones + (1.0 - ones) * elsewhere


@elementwise(
    # The result is never negative; "not 0" lets the gradient of NaN pass.
    partials={"x": lambda g, out: g * (out != 0)},
    kinks="at 0, where the derivative is taken as 0",
    reference=lambda x: (x + np.abs(x)) / 2,
    samples=lambda: unary_samples(-2, 2, avoid=(0,)),
)
def relu(x: Array, /) -> Array:
    """Return ``max(x, 0)``, elementwise. The derivative at 0 is 0.

    Example:
        >>> nt.relu(np.array([-1.0, 0.0, 2.0]))
        array([0., 0., 2.])
    """
    if x.size < _MANY:
        return np.maximum(x, 0)
    # NumPy compares two arrays three times as fast as an array with a number.
    zeros = np.zeros_like(x)
    return np.maximum(x, zeros, out=zeros)


@elementwise(
    partials={"x": lambda g, out: g * ((out != 0) * (out != 6))},
    flops=2,
    kinks="at 0 and 6, where the derivative is taken as 0",
    reference=lambda x: np.clip(x, 0, 6),
    samples=lambda: unary_samples(-4, 10, avoid=(0, 6)),
)
def relu6(x: Array, /) -> Array:
    """Return ``min(max(x, 0), 6)``, elementwise. The derivative at 0 and 6 is 0.

    Example:
        >>> nt.relu6(np.array([-1.0, 2.0, 8.0]))
        array([0., 2., 6.])
    """
    return np.minimum(np.maximum(x, 0), 6)


@elementwise(
    partials={"x": lambda g, x, negative_slope: g * slope(x > 0, negative_slope, g)},
    flops=2,
    to_float=True,
    kinks="at 0, where the derivative is taken as negative_slope",
    reference=lambda x, negative_slope=0.01: np.where(x > 0, x, negative_slope * x),
    samples=lambda: [
        *(sample(values(*shape, avoid=(0,))) for shape in SHAPES),
        sample(values(4, avoid=(0,)), negative_slope=0.3),
        sample(values(4, avoid=(0,)), negative_slope=-0.5),
        sample(values(4, avoid=(0,)), negative_slope=2.0),
        sample(values(4, avoid=(0,)), negative_slope=0),
    ],
)
def leaky_relu(x: Array, /, negative_slope: float = 0.01) -> Array:
    """Return x where it is positive and ``negative_slope * x`` elsewhere.

    Example:
        >>> nt.leaky_relu(np.array([-1.0, 2.0]), 0.1)
        array([-0.1,  2. ])
    """
    if 0 <= negative_slope <= 1:
        return np.maximum(x, negative_slope * x)
    return np.where(x > 0, x, negative_slope * x)


def _prelu_reference(x: Array, weight: Array) -> Array:
    shape = [1] * np.ndim(x)
    if np.size(weight) > 1:
        shape[min(1, np.ndim(x) - 1)] = np.size(weight)
    return np.where(x > 0, x, np.reshape(weight, shape) * x)


@composed(
    kinks="at 0, where the derivative is taken as weight",
    reference=_prelu_reference,
    samples=lambda: [
        sample(values(3, avoid=(0,)), values(1, seed=1)),
        sample(values(2, 3, avoid=(0,)), values(3, seed=1)),
        sample(values(2, 3, 4, avoid=(0,)), values(3, seed=1)),
        sample(values(2, 3, 4, avoid=(0,)), values(1, seed=1)),
        sample(values(avoid=(0,)), values(1, seed=1)),
        sample(values(2, 3, avoid=(0,)), values(seed=1)),
        sample(values(0, 3), values(3, seed=1)),
        sample(values(3, avoid=(0,)), values(3, seed=1)),
        rejected(
            ShapeError,
            "prelu: weight has shape (4,) and x has shape (2, 3); weight must hold one number, or one for each of the "
            "3 channels on axis 1 of x.",
            np.ones((2, 3)),
            np.ones(4),
        ),
    ],
)
def prelu(x: Array, weight: Array) -> Array:
    """Return x where it is positive and ``weight * x`` elsewhere: leaky_relu with a slope that is learned.

    Args:
        x: of shape (batch, channels, ...), or of one axis, which then holds the channels.
        weight: one slope, or one for each channel.

    Raises:
        ShapeError: if weight has several elements, but not one for each channel.

    Example:
        >>> nt.prelu(np.array([[-1.0, -1.0]]), np.array([0.1, 0.2]))
        array([[-0.1, -0.2]])
    """
    x, weight = as_arrays(x, weight)
    x_shape, weight_shape = x.shape, weight.shape
    if math.prod(weight_shape) == 1:
        if weight_shape:
            # Of as many axes as x: a number would not decide the dtype.
            weight = weight.reshape((1,) * len(x_shape))
    else:
        axis = min(1, len(x_shape) - 1)
        if len(weight_shape) != 1 or not x_shape or weight_shape[0] != x_shape[axis]:
            channels = f"{x_shape[axis]} channels on axis {axis}" if x_shape else "channels"
            raise ShapeError(
                f"prelu: weight has shape {weight_shape} and x has shape {x_shape}; weight must hold one number, or "
                f"one for each of the {channels} of x."
            )
        weight = weight.reshape(weight_shape + (1,) * (len(x_shape) - 1 - axis))
    return where(derived(greater, x, 0, beside=(weight,)), x, weight * x)


@elementwise(
    partials={"x": lambda g, x, min_val, max_val: where(x <= min_val, 0.0, where(x >= max_val, 0.0, g))},
    flops=2,
    to_float=True,
    kinks="at min_val and max_val, where the derivative is taken as 0",
    reference=lambda x, min_val=-1.0, max_val=1.0: np.clip(x, min_val, max_val),
    samples=lambda: [
        *(sample(values(*shape, avoid=(-1, 1))) for shape in SHAPES),
        sample(values(5, avoid=(-0.5, 1.5)), min_val=-0.5, max_val=1.5),
        sample(values(5, avoid=(0, 1)), min_val=0),
        rejected(
            ArgumentError,
            "hardtanh: min_val is 2.0 and max_val is 1.0; min_val must be below max_val.",
            values(2),
            min_val=2.0,
        ),
    ],
)
def hardtanh(x: Array, /, min_val: float = -1.0, max_val: float = 1.0) -> Array:
    """Return x, no less than `min_val` and no more than `max_val`. The derivative at the bounds is 0.

    Example:
        >>> nt.hardtanh(np.array([-2.0, 0.5, 2.0]))
        array([-1. ,  0.5,  1. ])
    """
    if min_val >= max_val:
        raise ArgumentError(f"hardtanh: min_val is {min_val} and max_val is {max_val}; min_val must be below max_val.")
    return np.minimum(np.maximum(x, min_val), max_val)


@elementwise(
    partials={"x": lambda g, out: g * ((out != 0) * (out != 1)) / 6.0},
    flops=4,
    to_float=True,
    kinks="at -3 and 3, where the derivative is taken as 0",
    reference=lambda x: np.clip(x / 6 + 0.5, 0, 1),
    samples=lambda: unary_samples(-5, 5, avoid=(-3, 3)),
)
def hardsigmoid(x: Array, /) -> Array:
    """Return ``min(max(x + 3, 0), 6) / 6``, elementwise. The derivative at -3 and 3 is 0.

    Example:
        >>> nt.hardsigmoid(np.array([-4.0, 0.0, 4.0]))
        array([0. , 0.5, 1. ])
    """
    return np.minimum(np.maximum(x + 3.0, 0), 6) / 6.0


@elementwise(
    partials={"x": lambda g, x: where(x <= -3.0, 0.0, where(x < 3.0, g * (x / 3.0 + 0.5), g))},
    flops=5,
    to_float=True,
    kinks="at -3, where the derivative is taken as 0, and at 3, where it is taken as 1",
    reference=lambda x: x * np.clip(x / 6 + 0.5, 0, 1),
    samples=lambda: unary_samples(-5, 5, avoid=(-3, 3)),
)
def hardswish(x: Array, /) -> Array:
    """Return ``x * hardsigmoid(x)``, elementwise. The derivative is 0 at -3 and 1 at 3.

    Example:
        >>> nt.hardswish(np.array([-4.0, 1.5, 4.0]))
        array([-0.   ,  1.125,  4.   ])
    """
    return x * (np.minimum(np.maximum(x + 3.0, 0), 6) / 6.0)


def _shrink_samples(name: str) -> Any:
    return lambda: [
        *(sample(values(*shape, avoid=(-0.5, 0.5))) for shape in SHAPES),
        sample(values(5, avoid=(-1, 1)), lambd=1.0),
        sample(values(5, avoid=(0,)), lambd=0.0),
        rejected(ArgumentError, f"{name}: lambd is -1.0; it must not be negative.", values(2), lambd=-1.0),
    ]


def _check_lambd(name: str, lambd: float) -> None:
    if not lambd >= 0:
        raise ArgumentError(f"{name}: lambd is {lambd}; it must not be negative.")


@elementwise(
    partials={"x": lambda g, out: g * (out != 0)},
    flops=2,
    to_float=True,
    kinks="at -lambd and lambd, where the derivative is taken as 0",
    reference=lambda x, lambd=0.5: np.sign(x) * np.clip(np.abs(x) - lambd, 0, None),
    samples=_shrink_samples("softshrink"),
)
def softshrink(x: Array, /, lambd: float = 0.5) -> Array:
    """Return x moved towards 0 by `lambd`, and 0 where that would change its sign.

    Example:
        >>> nt.softshrink(np.array([-2.0, 0.3, 2.0]))
        array([-1.5,  0. ,  1.5])
    """
    _check_lambd("softshrink", lambd)
    return x - np.minimum(np.maximum(x, -lambd), lambd)


@elementwise(
    partials={"x": lambda g, out: g * (out != 0)},
    to_float=True,
    kinks="at -lambd and lambd, where the derivative is taken as 0",
    reference=lambda x, lambd=0.5: np.where((x > lambd) | (x < -lambd), x, 0),
    samples=_shrink_samples("hardshrink"),
)
def hardshrink(x: Array, /, lambd: float = 0.5) -> Array:
    """Return x where it is farther from 0 than `lambd`, and 0 elsewhere.

    Example:
        >>> nt.hardshrink(np.array([-2.0, 0.3, 2.0]))
        array([-2.,  0.,  2.])
    """
    _check_lambd("hardshrink", lambd)
    return x * (np.abs(x) > lambd)


@elementwise(
    partials={"x": lambda g, x, threshold: where(x <= threshold, 0.0, g)},
    to_float=True,
    kinks="at threshold, where the derivative is taken as 0",
    reference=lambda x, threshold, value: np.where(x <= threshold, value, x),
    samples=lambda: [
        *(sample(values(*shape, avoid=(0.5,)), threshold=0.5, value=-3.0) for shape in SHAPES),
        sample(values(5, avoid=(0,)), threshold=0, value=0),
    ],
)
def threshold(x: Array, /, threshold: float, value: float) -> Array:
    """Return x where it is above `threshold`, or NaN, and `value` elsewhere.

    Example:
        >>> nt.threshold(np.array([0.5, 2.0]), threshold=1.0, value=-1.0)
        array([-1.,  2.])
    """
    return np.where(x <= threshold, value, x)
