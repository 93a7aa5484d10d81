"""Interpolation and convolution of sampled functions of one variable."""

import math

import numpy as np

from .._typing import Array, Shape
from ..core.declare import composed, discrete, face_of, linear
from ..core.facts import Structure
from ..core.terms import Terms
from ..errors import ArgumentError, ShapeError
from .arithmetic import add, sub
from .comparisons import greater, less
from .origins import derived
from .padding import pad_zeros
from .samples import rejected, sample, values
from .selection import where
from .shapes import shape_of, without_lists
from .taking import take


@discrete(
    reference=lambda x, xp: np.clip(np.searchsorted(xp, x, side="right") - 1, 0, max(len(xp) - 2, 0)),
    samples=lambda: [
        sample(np.array([0.5, 1.5, 2.5]), np.array([0.0, 1.0, 2.0])),
        sample(np.array([-1.0, 1.0, 9.0]), np.array([0.0, 1.0, 2.0])),
        sample(np.array([[0.1], [1.1]]), np.array([0.0, 1.0, 2.0])),
        sample(np.array(0.5), np.array([0.0, 1.0])),
        sample(np.array([0.5]), np.array([1.0])),
        sample(np.zeros(0), np.array([0.0, 1.0])),
        sample(np.array([2.0]), np.array([0.0, 1.0, 2.0])),
        sample(np.array([np.nan]), np.array([0.0, 1.0, 2.0])),
    ],
)
def _interval(x: Array, xp: Array, /) -> Array:
    """Return the number of the interval between points that holds each x; the outer ones reach on."""
    return np.clip(np.searchsorted(xp, x, side="right") - 1, 0, max(len(xp) - 2, 0))


@composed(
    to_float=True,
    rounds_once=True,
    precision="widen",
    numpy=np.interp,
    kinks="where x is one of xp",
    samples=lambda: [
        sample(np.array([0.3, 1.7, 2.2]), np.array([0.0, 1.0, 2.0, 4.0]), values(4)),
        sample(np.array([[0.3, 3.1], [1.7, 0.6]]), np.array([0.0, 1.0, 2.0, 4.0]), values(4)),
        sample(np.array(0.3), np.array([0.0, 1.0]), values(2)),
        sample(np.array([-1.0, 0.3, 5.0]), np.array([0.0, 1.0, 2.0, 4.0]), values(4)),
        sample(np.array([-1.0, 0.3, 5.0]), np.array([0.0, 1.0, 2.0, 4.0]), values(4), left=7.0, right=8.0),
        sample(np.array([0.3, 0.4, 0.6]), np.array([0.0, 1.0]), values(2)),
        sample(values(0), np.array([0.0, 1.0]), values(2)),
        sample(np.array([0.0, 1.0, 4.0]), np.array([0.0, 1.0, 4.0]), values(3), skip_derivatives="on the kinks"),
        sample(np.array([-1.0, 2.0]), np.array([1.0]), values(1)),
        rejected(
            ShapeError,
            "interp: xp has shape (3,) and fp has shape (2,); both have one axis, of the same length, at least 1.",
            np.ones(2),
            np.arange(3.0),
            np.ones(2),
        ),
    ],
)
def interp(x: Array, xp: Array, fp: Array, left: Array = None, right: Array = None) -> Array:
    """Return the piecewise linear function through the points ``(xp, fp)`` at `x`.

    Args:
        x: where to evaluate, any shape.
        xp: the points' coordinates, increasing.
        fp: the points' values.
        left: the value below ``xp[0]``; ``fp[0]`` by default.
        right: the value above ``xp[-1]``; ``fp[-1]`` by default.

    Example:
        >>> nt.interp(np.array([0.5, 3.0]), np.array([0.0, 1.0, 2.0]), np.array([0.0, 10.0, 30.0]))
        array([ 5., 30.])
    """
    x, xp, fp = without_lists(x, xp, fp)
    points = shape_of(xp)
    if len(points) != 1 or points != shape_of(fp) or not points[0]:
        raise ShapeError(
            f"interp: xp has shape {points} and fp has shape {shape_of(fp)}; both have one axis, of the same length, "
            "at least 1."
        )
    start = derived(_interval, x, xp)
    low = derived(take, fp, start)
    inside = low
    if points[0] > 1:
        end = derived(add, start, 1)
        x0 = derived(take, xp, start)
        rise = derived(sub, derived(take, fp, end), low)
        inside = low + rise * ((x - x0) / derived(sub, derived(take, xp, end), x0))
    below, above = (derived(take, xp, i, beside=(x,)) for i in (0, -1))
    first, last = (derived(take, fp, i, beside=(x, xp)) for i in (0, -1))
    out = where(derived(less, x, below), first if left is None else left, inside)
    return where(derived(greater, x, above), last if right is None else right, out)


_MODES = ("full", "same", "valid")


def _in_full(g: Array, a: Shape, b: Shape, mode: str) -> Array:
    """Return the cotangent of the full convolution, of which the other modes keep a part."""
    (m,), (n,) = a, b
    lost = min(m, n) - 1
    start = {"full": 0, "same": lost // 2, "valid": lost}[mode]
    return pad_zeros(g, widths=((start, m + n - 1 - start - g.shape[0]),))


# The transpose of a convolution is the correlation: the other operand reversed.
def _convolve_a(g: Array, a_shape: Shape, b: Array, mode: str) -> Array:
    return _convolve(_in_full(g, a_shape, b.shape, mode), b[::-1], mode="valid")


def _convolve_b(g: Array, a: Array, b_shape: Shape, mode: str) -> Array:
    return _convolve(_in_full(g, a.shape, b_shape, mode), a[::-1], mode="valid")


def _convolve_terms(out: Shape, a: Shape, b: Shape, mode: str) -> list[Terms]:
    lost = min(*a, *b) - 1
    start = {"full": 0, "same": lost // 2, "valid": lost}[mode]
    i, j = np.ogrid[: a[0], : b[0]]
    place = i + j - start
    i, j = np.nonzero((place >= 0) & (place < out[0]))
    return [Terms(place[i, j], {0: i, 1: j})]


@linear(
    transposes={"a": _convolve_a, "b": _convolve_b},
    structure=Structure.TERMS,
    terms=_convolve_terms,
    precision="lower",
    cost=lambda out, a, b, mode: 2 * math.prod(a) * math.prod(b),
    numpy=np.convolve,
    samples=lambda: [
        sample(values(5), values(3, seed=1)),
        sample(values(3), values(5, seed=1)),
        sample(values(5), values(3, seed=1), mode="same"),
        sample(values(5), values(2, seed=1), mode="same"),
        sample(values(3), values(4, seed=1), mode="same"),
        sample(values(5), values(3, seed=1), mode="valid"),
        sample(values(2), values(4, seed=1), mode="valid"),
        sample(values(1), values(1, seed=1)),
        sample(values(4), values(4, seed=1), mode="valid"),
        rejected(
            ShapeError,
            "convolve: a has shape (2, 2) and b has shape (3,); both must have one axis and at least one element.",
            np.ones((2, 2)),
            np.ones(3),
        ),
        rejected(
            ShapeError,
            "convolve: a has shape (0,) and b has shape (3,); both must have one axis and at least one element.",
            np.ones(0),
            np.ones(3),
        ),
        rejected(
            ArgumentError, "convolve: mode is 'half'; it is full, same or valid.", np.ones(3), np.ones(3), mode="half"
        ),
    ],
)
def _convolve(a: Array, b: Array, /, *, mode: str = "full") -> Array:
    """Return the discrete convolution of two vectors."""
    shapes = np.shape(a), np.shape(b)
    if any(len(shape) != 1 or not shape[0] for shape in shapes):
        raise ShapeError(
            f"convolve: a has shape {shapes[0]} and b has shape {shapes[1]}; both must have one axis and at least one "
            "element."
        )
    if mode not in _MODES:
        raise ArgumentError(f"convolve: mode is {mode!r}; it is full, same or valid.")
    return np.convolve(a, b, mode)  # type: ignore[call-overload]


@face_of(_convolve)
def convolve(a: Array, b: Array, mode: str = "full") -> Array:
    """Return the discrete convolution of two vectors: ``out[k]`` is the sum of ``a[i] * b[k - i]``.

    Args:
        a: one axis.
        b: one axis.
        mode: "full" for all overlaps, "same" for the length of the longer one, "valid" for full overlaps only.

    Example:
        >>> nt.convolve(np.array([1.0, 2.0, 3.0]), np.array([1.0, 1.0]))
        array([1., 3., 5., 3.])
    """
    return _convolve(a, b, mode=mode)
