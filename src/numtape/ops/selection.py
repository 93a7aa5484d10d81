"""Choose between values by a condition."""

from typing import Any

import ml_dtypes
import numpy as np

from .._typing import Array
from ..core.declare import composed, discrete, elementwise, face_of
from ..core.op import NON_DIFFERENTIABLE
from ..dtypes import as_integers, is_float
from ..errors import ArgumentError, DtypeError, ShapeError
from .casting import cast
from .comparisons import isfinite
from .samples import SHAPES, rejected, sample, values
from .shapes import common_shape, shape_of


def _where_a(g: Array, condition: Array) -> Array:
    # Select, never multiply: NaN or inf in the branch not taken does not pass.
    return _where(condition, g, 0.0)


def _where_b(g: Array, condition: Array) -> Array:
    return _where(condition, 0.0, g)


@elementwise(
    np.where,
    partials={"condition": NON_DIFFERENTIABLE, "a": _where_a, "b": _where_b},
    promoted=("a", "b"),
    linear=("a", "b"),
    numpy=np.where,
    samples=lambda: [
        sample(values(3) > 0, values(3), values(3, seed=1)),
        sample(values(2, 3) > 0, values(3), values(2, 1, seed=1)),
        sample(values(3) > 0, values(2, 3), values(seed=1)),
        sample(np.array(True), values(3), values(3, seed=1)),
        sample(np.array([True, False]), values(), values(seed=1)),
        sample(values(0) > 0, values(0), values(0)),
        sample(values(4, 1) > 0, values(1, 3), values(2, 1, 1, seed=1)),
        sample(np.zeros((2, 2), bool), values(2, 2), values(2, 2, seed=1)),
        sample(np.array([0, 2]), values(2), 1.5),
        rejected(
            ShapeError,
            "where: condition has shape (2,) and a has shape (3,) and b has shape (); the shapes do not broadcast: "
            "from the last axis on, lengths must be equal or 1.",
            np.array([True, False]),
            np.ones(3),
            0.0,
        ),
    ],
)
def _where(condition: Array, a: Array, b: Array, /) -> Array:
    """Return `a` where `condition` holds and `b` elsewhere."""


class _Nothing:
    """What an argument is that was not given."""

    def __repr__(self) -> str:
        return "<not given>"


_NOTHING: Any = _Nothing()


@face_of(_where)
def where(condition: Array, a: Array = _NOTHING, b: Array = _NOTHING, /, *, out: Any = None) -> Array:
    """Return `a` where `condition` holds and `b` elsewhere; without them, where it holds, as `nonzero` does.

    The derivative selects as well: what the branch not taken holds, NaN included, has no effect on the gradient.

    Args:
        condition: bools, of a shape that broadcasts with the others.
        a: any shape.
        b: any shape.
        out: a tensor or array to write the result to.

    Example:
        >>> nt.where(np.array([True, False]), np.array([1.0, 2.0]), 0.0)
        array([1., 0.])
    """
    if b is _NOTHING:
        if a is not _NOTHING:
            raise ArgumentError("where: one branch is missing; give both a and b, or none to get positions.")
        if out is not None:
            raise ArgumentError("where: out goes with both branches, a and b; positions are always new arrays.")
        return nonzero(condition)
    return _where(condition, a, b, out=out)  # type: ignore[call-arg]


@discrete(
    numpy=np.nonzero,
    cost=lambda out, x: 0,
    samples=lambda: [
        sample(np.array([0.0, 1.0, 2.0])),
        sample(np.array([[True, False], [True, True]])),
        sample(np.array([0, 3])),
        sample(np.zeros(0)),
        sample(np.zeros((2, 3))),
        sample(np.ones((2, 1, 2))),
        sample(np.array([np.nan, 0.0])),
        sample(np.array([0.0])),
        rejected(ShapeError, "nonzero: x has no axes; use x != 0, or atleast_1d(x).", np.ones(())),
    ],
)
def nonzero(x: Array, /) -> tuple[Array, ...]:
    """Return the positions of the elements that are not zero, one integer array for each axis.

    Example:
        >>> nt.nonzero(np.array([0.0, 2.0, 3.0]))
        (array([1, 2]),)
    """
    if not np.ndim(x):
        raise ShapeError("nonzero: x has no axes; use x != 0, or atleast_1d(x).")
    return np.nonzero(x)


@composed(
    reference=lambda x, mask, value: np.where(mask, value, x),
    samples=lambda: [
        sample(values(3), np.array([True, False, True]), 0.5),
        sample(values(2, 3), np.array([True, False, True]), -np.inf, skip_derivatives="differences of infinities"),
        sample(values(2, 3), np.array([[True], [False]]), 1),
        sample(values(2, 3), np.array(True), 0.0),
        sample(values(), np.array(False), 2.0),
        sample(values(0), np.zeros(0, bool), 1.0),
        sample(values(2, 3), values(2, 3, seed=2) > 0, values(seed=1)),
        sample(values(1, 1), np.array([[True]]), 3.0),
        sample(values(3), np.array([[True, False, True], [False, False, True]]), 0.5),
        sample(np.arange(3, dtype=np.uint8), np.array([True, False, True]), 200),
        rejected(
            ShapeError,
            "masked_fill: x has shape (3,) and mask has shape (2,); the shapes do not broadcast: from the last axis "
            "on, lengths must be equal or 1.",
            np.ones(3),
            np.ones(2, bool),
            0.0,
        ),
        rejected(
            DtypeError,
            "masked_fill: a value of float64 cannot be stored in a tensor of int64; use x.astype(nt.float32).",
            np.arange(3),
            np.ones(3, bool),
            2.5,
        ),
        rejected(
            ArgumentError,
            "masked_fill: Python integer 300 out of bounds for uint8; use a wider dtype, or a float one.",
            np.arange(3, dtype=np.uint8),
            np.ones(3, bool),
            300,
        ),
        rejected(
            ShapeError,
            "masked_fill: the value has shape (3,); it is one number (where takes arrays).",
            np.ones(3),
            np.ones(3, bool),
            np.ones(3),
        ),
    ],
)
def masked_fill(x: Array, mask: Array, value: Array) -> Array:
    """Return `x` with one value where a mask holds, in the dtype of `x`.

    Args:
        x: any shape; it is broadcast with the mask.
        mask: bools.
        value: a number, or a tensor without axes; it gets a gradient, too.

    Example:
        >>> nt.masked_fill(np.array([1.0, 2.0]), np.array([True, False]), 0.0)
        array([0., 2.])
    """
    if shape_of(value):
        raise ShapeError(f"masked_fill: the value has shape {shape_of(value)}; it is one number (where takes arrays).")
    common_shape("masked_fill", x=x, mask=mask)
    return _where(mask, _as_element("masked_fill", value, x), x)


def _as_element(name: str, value: Array, x: Array) -> Array:
    """Return a number that is to stand among the elements of `x`, in the dtype of `x` unless it is a Python number."""
    dtype = getattr(x, "dtype", None)
    if dtype is None:
        return value
    if is_float(dtype):
        return value if getattr(value, "dtype", dtype) == dtype else cast(value, dtype)
    kind = np.result_type(value) if isinstance(value, float) else getattr(value, "dtype", dtype)
    if is_float(kind):
        raise DtypeError(
            f"{name}: a value of {kind} cannot be stored in a tensor of {dtype}; use x.astype(nt.float32)."
        )
    return as_integers(name, value.item() if hasattr(value, "item") else value, dtype)


@elementwise(
    # A constant in place of x has no derivative.
    partials={"x": lambda g, x: _where(isfinite(x), g, 0.0)},
    native_half=True,
    kinks="at NaN and the infinities, where the derivative is taken as 0",
    samples=lambda: [
        *(sample(values(*shape)) for shape in SHAPES),
        sample(np.array([1.0, np.nan, -2.0]), skip_derivatives="differences of NaN"),
        sample(
            np.array([1.0, np.nan, np.inf, -np.inf, -2.0]),
            nan=0.5,
            posinf=9.0,
            neginf=-9.0,
            skip_derivatives="differences of infinities",
        ),
        sample(values(3), nan=1.0, posinf=2.0, neginf=-2.0),
    ],
    reference=np.nan_to_num,
    numpy=np.nan_to_num,
)
def _nan_to_num(x: Array, /, *, nan: float = 0.0, posinf: float | None = None, neginf: float | None = None) -> Array:
    """Return `x` with numbers in place of NaN and the infinities."""
    out = np.array(x)
    if out.dtype.kind in "biu":
        return out
    limits = ml_dtypes.finfo(out.dtype)  # type: ignore[no-untyped-call]
    np.copyto(out, out.dtype.type(limits.max if posinf is None else posinf), where=out == np.inf)
    np.copyto(out, out.dtype.type(limits.min if neginf is None else neginf), where=out == -np.inf)
    np.copyto(out, out.dtype.type(nan), where=np.isnan(x))
    return out


@face_of(_nan_to_num)
def nan_to_num(
    x: Array,
    copy: bool = True,
    nan: float = 0.0,
    posinf: float | None = None,
    neginf: float | None = None,
    *,
    out: Any = None,
) -> Array:
    """Return `x` with numbers in place of NaN and the infinities; their derivative is 0.

    Args:
        x: any shape.
        copy: only True; NumPy's in-place form is ``out=x``.
        nan: what replaces NaN.
        posinf: what replaces inf; the largest number of the dtype by default.
        neginf: what replaces -inf; the smallest number of the dtype by default.
        out: a tensor or array to write the result to.

    Example:
        >>> nt.nan_to_num(np.array([1.0, np.nan, np.inf]), posinf=9.0)
        array([1., 0., 9.])
    """
    if copy is not True:
        raise ArgumentError(f"nan_to_num: copy is {copy!r}; x is never overwritten, so leave it True.")
    return _nan_to_num(x, nan=nan, posinf=posinf, neginf=neginf, out=out)  # type: ignore[call-arg]
