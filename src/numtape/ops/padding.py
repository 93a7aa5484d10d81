"""Put elements around a tensor: zeros, constants, or its own elements again."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from .._typing import Array, NDArray, Shape
from ..core.binding import as_static
from ..core.declare import composed, linear
from ..core.facts import Back, Structure
from ..core.op import Op
from ..errors import ArgumentError, ShapeError
from .samples import rejected, sample, values
from .selection import where
from .shapes import axis_of, shape_of
from .taking import take

Widths = tuple[tuple[int, int], ...]


def _inside(shape: Shape, widths: Widths) -> tuple[slice, ...]:
    return tuple(slice(before, before + n) for n, (before, _) in zip(shape, widths, strict=True))


def _pad_zeros_batch(op: Op, operands: Sequence[Any], batched: Sequence[bool], params: dict[str, Any]) -> Any:
    return pad_zeros(operands[0], widths=((0, 0), *params["widths"]))


@linear(
    transposes={"x": lambda g, x_shape, widths: g[(*_inside(x_shape, widths), ...)]},
    back=Back.SHARED,
    structure=Structure.MOVES,
    native_half=True,
    batch=_pad_zeros_batch,
    size=lambda x, widths: math.prod(n + sum(width) for n, width in zip(x, widths, strict=True)),
    reference=lambda x, widths: np.pad(x, widths) if x.ndim else x,
    samples=lambda: [
        sample(values(3), widths=((1, 2),)),
        sample(values(3), widths=((0, 2),)),
        sample(values(3), widths=((0, 0),)),
        sample(values(2, 3), widths=((1, 0), (0, 2))),
        sample(values(2, 3, 2), widths=((1, 1), (2, 0), (0, 0))),
        sample(values(), widths=()),
        sample(values(0), widths=((1, 1),)),
        sample(values(1, 1), widths=((1, 1), (1, 1))),
    ],
)
def pad_zeros(x: Array, /, *, widths: Widths) -> Array:
    """Return `x` with zeros around it: for each axis, how many before and after.

    Example:
        >>> nt.pad_zeros(np.array([1.0, 2.0]), widths=((1, 0),))
        array([0., 1., 2.])
    """
    shape = np.shape(x)
    out = np.zeros(tuple(before + n + after for n, (before, after) in zip(shape, widths, strict=True)), x.dtype)
    out[_inside(shape, widths)] = x
    return out


def _pairs(name: str, given: Any, ndim: int, shape: Shape) -> NDArray:
    """Return one number, a pair for all axes, a pair for each axis or a dict of pairs as an array of pairs."""
    if isinstance(given, dict):
        found = np.zeros((ndim, 2), np.asarray(list(given.values())).dtype)
        for axis, pair in given.items():
            found[axis_of("pad", axis, shape)] = pair
        return found
    array = np.asarray(given)
    try:
        return np.broadcast_to(array, (ndim, 2))
    except ValueError as error:
        raise ArgumentError(
            f"pad: {name} has shape {array.shape} and x has shape {shape}; give a number, a pair (before, after), or a "
            "pair for each axis."
        ) from error


_MODES = ("constant", "reflect", "symmetric", "edge", "wrap")


def _pad_reference(x: Any, pad_width: Any, mode: Any = "constant", **params: Any) -> Any:
    # NumPy takes a dict from version 2.2 on.
    if isinstance(pad_width, dict):
        pairs = {axis % x.ndim: pair for axis, pair in pad_width.items()}
        pad_width = [pairs.get(axis, (0, 0)) for axis in range(x.ndim)]
    return np.pad(x, pad_width, mode, **params)


@composed(
    numpy=np.pad,
    reference=_pad_reference,
    samples=lambda: [
        sample(values(3), 1),
        sample(values(3), (1, 2)),
        sample(values(2, 3), ((1, 0), (0, 2))),
        sample(values(2, 3), 1, constant_values=1.5),
        sample(values(2, 3), ((1, 1), (2, 0)), constant_values=((1, 2), (3, 4))),
        sample(values(2, 3), {-1: (1, 2)}),
        sample(values(4), (2, 3), mode="reflect"),
        sample(values(2, 3), ((1, 3), (2, 4)), mode="reflect"),
        sample(values(2, 3), ((1, 0), (2, 2)), mode="symmetric"),
        sample(values(2, 3), ((1, 0), (2, 2)), mode="edge"),
        sample(values(2, 3), ((1, 3), (2, 7)), mode="wrap"),
        sample(values(1, 3), ((2, 1), (0, 1)), mode="reflect"),
        sample(values(2, 0), ((1, 1), (0, 0)), mode="edge"),
        sample(values(0), 2),
        sample(values(3), 0, mode="wrap"),
        rejected(
            ArgumentError,
            "pad: mode is 'mean'; the modes are constant, reflect, symmetric, edge, wrap.",
            np.ones(3),
            1,
            mode="mean",
        ),
        rejected(
            ArgumentError,
            "pad: pad_width has shape (3,) and x has shape (2, 3); give a number, a pair (before, after), or a pair "
            "for each axis.",
            np.ones((2, 3)),
            (1, 2, 3),
        ),
        rejected(ArgumentError, "pad: pad_width is -1; widths are integers from 0 on.", np.ones(3), -1),
        rejected(
            ShapeError,
            "pad: axis 0 of x has length 0, which mode 'edge' cannot extend; use mode 'constant'.",
            np.ones(0),
            1,
            mode="edge",
        ),
    ],
)
def pad(x: Array, pad_width: Any, mode: str = "constant", constant_values: Any = 0) -> Array:
    """Return `x` with elements around it.

    Args:
        x: any shape.
        pad_width: a number, a pair (before, after) for all axes, a pair for each axis (NumPy's order, first axis
            first), or a dict of axes and pairs.
        mode: "constant", "reflect" (without the edge), "symmetric" (with it), "edge" or "wrap".
        constant_values: what "constant" puts, in the same forms as `pad_width`; no gradient flows to it.

    Example:
        >>> nt.pad(np.array([1.0, 2.0, 3.0]), (1, 2), mode="reflect")
        array([2., 1., 2., 3., 2., 1.])
    """
    if mode not in _MODES:
        raise ArgumentError(f"pad: mode is {mode!r}; the modes are {', '.join(_MODES)}.")
    shape = shape_of(x)
    pairs = _pairs("pad_width", pad_width, len(shape), shape)
    if (pairs.size and pairs.dtype.kind not in "iu") or (pairs < 0).any():
        raise ArgumentError(f"pad: pad_width is {pad_width!r}; widths are integers from 0 on.")
    widths = tuple((int(before), int(after)) for before, after in pairs)
    if mode == "constant":
        return _pad_constant(x, shape, widths, as_static("pad", "constant_values", constant_values))
    for axis, (n, width) in enumerate(zip(shape, widths, strict=True)):
        if width != (0, 0):
            if not n:
                raise ShapeError(
                    f"pad: axis {axis} of x has length 0, which mode {mode!r} cannot extend; use mode 'constant'."
                )
            x = take(x, np.pad(np.arange(n), width, mode=mode), axis=axis)  # type: ignore[call-overload]
    return x if any(width != (0, 0) for width in widths) else pad_zeros(x, widths=widths)


def _pad_constant(x: Array, shape: Shape, widths: Widths, constant_values: Any) -> Array:
    out = pad_zeros(x, widths=widths)
    constants = _pairs("constant_values", constant_values, len(shape), shape)
    if not constants.any():
        return out
    pairs = tuple((before, after) for before, after in constants)
    fill = np.pad(np.zeros(shape), widths, constant_values=pairs).astype(out.dtype)
    inside = np.zeros(out.shape, bool)
    inside[_inside(shape, widths)] = True
    return where(inside, out, fill)
