"""Comparisons and tests of elements: results are bools, and nothing flows back through them."""

from typing import Any

import numpy as np

from .._typing import Array
from ..core import batching
from ..core.declare import discrete, face_of
from ..core.facts import Structure
from ..core.value import Value
from ..errors import OperandError
from .samples import binary_samples, does_not_broadcast, rejected, sample, unary_samples, values
from .shapes import common_shape

_TIES = (
    sample(np.array([1.0, 2.0, 3.0]), 2.0),
    sample(np.array([1, 2, 3]), np.array([3, 2, 1])),
    sample(np.array([np.nan, np.inf, -np.inf]), np.array([np.nan, np.inf, 0.0])),
)


@discrete(
    np.equal,
    numpy=np.equal,
    also=("eq",),
    samples=lambda: binary_samples((-2, 2), (-2, 2), *_TIES, does_not_broadcast("equal")),
)
def equal(a: Array, b: Array, /) -> Array:
    """Return whether ``a == b``, elementwise.

    Example:
        >>> nt.equal(np.array([1.0, 2.0, 3.0]), 2.0)
        array([False,  True, False])
    """


@discrete(
    np.not_equal,
    numpy=np.not_equal,
    also=("ne",),
    samples=lambda: binary_samples((-2, 2), (-2, 2), *_TIES, does_not_broadcast("not_equal")),
)
def not_equal(a: Array, b: Array, /) -> Array:
    """Return whether ``a != b``, elementwise.

    Example:
        >>> nt.not_equal(np.array([1.0, 2.0, 3.0]), 2.0)
        array([ True, False,  True])
    """


@discrete(
    np.less,
    numpy=np.less,
    also=("lt",),
    samples=lambda: binary_samples((-2, 2), (-2, 2), *_TIES, does_not_broadcast("less")),
)
def less(a: Array, b: Array, /) -> Array:
    """Return whether ``a < b``, elementwise.

    Example:
        >>> nt.less(np.array([1.0, 2.0, 3.0]), 2.0)
        array([ True, False, False])
    """


@discrete(
    np.less_equal,
    numpy=np.less_equal,
    also=("le",),
    samples=lambda: binary_samples((-2, 2), (-2, 2), *_TIES, does_not_broadcast("less_equal")),
)
def less_equal(a: Array, b: Array, /) -> Array:
    """Return whether ``a <= b``, elementwise.

    Example:
        >>> nt.less_equal(np.array([1.0, 2.0, 3.0]), 2.0)
        array([ True,  True, False])
    """


@discrete(
    np.greater,
    numpy=np.greater,
    also=("gt",),
    samples=lambda: binary_samples((-2, 2), (-2, 2), *_TIES, does_not_broadcast("greater")),
)
def greater(a: Array, b: Array, /) -> Array:
    """Return whether ``a > b``, elementwise.

    Example:
        >>> nt.greater(np.array([1.0, 2.0, 3.0]), 2.0)
        array([False, False,  True])
    """


@discrete(
    np.greater_equal,
    numpy=np.greater_equal,
    also=("ge",),
    samples=lambda: binary_samples((-2, 2), (-2, 2), *_TIES, does_not_broadcast("greater_equal")),
)
def greater_equal(a: Array, b: Array, /) -> Array:
    """Return whether ``a >= b``, elementwise.

    Example:
        >>> nt.greater_equal(np.array([1.0, 2.0, 3.0]), 2.0)
        array([False,  True,  True])
    """


_TRUTHS = (
    sample(np.array([True, True, False, False]), np.array([True, False, True, False])),
    sample(np.array([0, 2]), np.array([[0], [3]])),
    sample(np.array([0.0, -0.0, np.nan]), True),
)


@discrete(
    np.logical_and,
    numpy=np.logical_and,
    samples=lambda: binary_samples((-2, 2), (-2, 2), *_TRUTHS, does_not_broadcast("logical_and")),
)
def logical_and(a: Array, b: Array, /) -> Array:
    """Return whether both elements are true (not zero), elementwise.

    Example:
        >>> nt.logical_and(np.array([True, False]), True)
        array([ True, False])
    """


@discrete(
    np.logical_or,
    numpy=np.logical_or,
    samples=lambda: binary_samples((-2, 2), (-2, 2), *_TRUTHS, does_not_broadcast("logical_or")),
)
def logical_or(a: Array, b: Array, /) -> Array:
    """Return whether at least one of the elements is true (not zero), elementwise.

    Example:
        >>> nt.logical_or(np.array([True, False]), False)
        array([ True, False])
    """


@discrete(
    np.logical_xor,
    numpy=np.logical_xor,
    samples=lambda: binary_samples((-2, 2), (-2, 2), *_TRUTHS, does_not_broadcast("logical_xor")),
)
def logical_xor(a: Array, b: Array, /) -> Array:
    """Return whether exactly one of the elements is true (not zero), elementwise.

    Example:
        >>> nt.logical_xor(np.array([True, False]), True)
        array([False,  True])
    """


@discrete(
    np.logical_not,
    numpy=np.logical_not,
    samples=lambda: unary_samples(
        -2, 2, sample(np.array([True, False])), sample(np.array([0, 1, 2])), sample(np.zeros(2))
    ),
)
def logical_not(x: Array, /) -> Array:
    """Return whether an element is false (zero), elementwise.

    Example:
        >>> nt.logical_not(np.array([True, False]))
        array([False,  True])
    """


_SPECIAL = (sample(np.array([np.nan, np.inf, -np.inf, 0.0])), sample(np.array([1, 2])), sample(np.nan))


@discrete(np.isnan, numpy=np.isnan, samples=lambda: unary_samples(-2, 2, *_SPECIAL))
def isnan(x: Array, /) -> Array:
    """Return whether an element is NaN, elementwise.

    Example:
        >>> nt.isnan(np.array([1.0, np.nan, np.inf]))
        array([False,  True, False])
    """


@discrete(np.isinf, numpy=np.isinf, samples=lambda: unary_samples(-2, 2, *_SPECIAL))
def isinf(x: Array, /) -> Array:
    """Return whether an element is infinite, elementwise.

    Example:
        >>> nt.isinf(np.array([1.0, np.nan, -np.inf]))
        array([False, False,  True])
    """


@discrete(np.isfinite, numpy=np.isfinite, samples=lambda: unary_samples(-2, 2, *_SPECIAL))
def isfinite(x: Array, /) -> Array:
    """Return whether an element is neither infinite nor NaN, elementwise.

    Example:
        >>> nt.isfinite(np.array([1.0, np.nan, np.inf]))
        array([ True, False, False])
    """


def _close_samples() -> list[Any]:
    return [
        sample(np.array([1.0, 2.0]), np.array([1.0 + 1e-9, 2.1])),
        sample(np.array([1.0, 2.0]), np.array([1.0 + 1e-9, 2.0])),
        sample(np.array([1.0, 2.0]), np.array([1.05, 2.05]), rtol=0.1),
        sample(np.array([1.0, 2.0]), 1.5, atol=0.6),
        sample(np.array([np.nan, np.inf]), np.array([np.nan, np.inf])),
        sample(np.array([np.nan, np.inf]), np.array([np.nan, np.inf]), equal_nan=True),
        sample(np.array([[1, 2], [3, 4]]), np.array([1, 2])),
        sample(values(0), values(0)),
        sample(values(), values()),
        sample(values(2, 1), values(1, 3)),
    ]


@discrete(
    structure=Structure.ELEMENTWISE,
    batch=batching.elementwise,
    numpy=np.isclose,
    samples=lambda: [*_close_samples(), does_not_broadcast("isclose")],
)
def isclose(a: Array, b: Array, /, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> Array:
    """Return whether ``abs(a - b) <= atol + rtol * abs(b)``, elementwise.

    Args:
        a: any shape.
        b: a shape that broadcasts with a's.
        rtol: the difference allowed, relative to `b`.
        atol: the difference allowed beside it.
        equal_nan: whether NaN is close to NaN.

    Example:
        >>> nt.isclose(np.array([1.0, 2.0]), np.array([1.0 + 1e-9, 2.1]))
        array([ True, False])
    """
    return np.isclose(a, b, rtol=rtol, atol=atol, equal_nan=equal_nan)


@discrete(
    numpy=np.allclose,
    samples=lambda: [
        *_close_samples(),
        does_not_broadcast("allclose"),
    ],
)
def _allclose(a: Array, b: Array, /, *, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> Array:
    """Return whether all elements are close."""
    common_shape("allclose", a=a, b=b)
    return np.allclose(a, b, rtol=rtol, atol=atol, equal_nan=equal_nan)


@face_of(_allclose)
def allclose(a: Array, b: Array, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> bool:
    """Return whether `isclose` holds for all elements, as a Python bool.

    Example:
        >>> nt.allclose(np.array([1.0, 2.0]), np.array([1.0 + 1e-9, 2.0]))
        True
    """
    out = _allclose(a, b, rtol=rtol, atol=atol, equal_nan=equal_nan)
    return bool(out.array if isinstance(out, Value) else out)


def _bit_samples(name: str) -> list[Any]:
    """Return samples of integers and bools."""
    integers, bits = np.arange(-3, 3).reshape(2, 3), np.array([True, False, True])
    return [
        sample(integers, integers[0]),
        sample(integers, 1),
        sample(bits, ~bits),
        sample(bits, True),
        sample(integers[0], integers[:, :1]),
        sample(np.array(5), np.array(3)),
        sample(np.zeros(0, np.int64), np.zeros(0, np.int64)),
        sample(integers.astype(np.int32), integers.astype(np.int32)),
        rejected(
            OperandError,
            f"{name}: bits are of integers and bools, not of float64.",
            np.ones(2),
            np.ones(2),
        ),
    ]


@discrete(
    structure=Structure.ELEMENTWISE,
    batch=batching.elementwise,
    numpy=np.bitwise_and,
    samples=lambda: _bit_samples("bitwise_and"),
)
def bitwise_and(a: Array, b: Array, /) -> Array:
    """Return ``a & b``, bit by bit for integers and logically for bools.

    Example:
        >>> nt.bitwise_and(np.array([6, 1]), 3)
        array([2, 1])
    """
    _check_bits("bitwise_and", a, b)
    return np.bitwise_and(a, b)


@discrete(
    structure=Structure.ELEMENTWISE,
    batch=batching.elementwise,
    numpy=np.bitwise_or,
    samples=lambda: _bit_samples("bitwise_or"),
)
def bitwise_or(a: Array, b: Array, /) -> Array:
    """Return ``a | b``, bit by bit for integers and logically for bools.

    Example:
        >>> nt.bitwise_or(np.array([6, 1]), 3)
        array([7, 3])
    """
    _check_bits("bitwise_or", a, b)
    return np.bitwise_or(a, b)


@discrete(
    structure=Structure.ELEMENTWISE,
    batch=batching.elementwise,
    numpy=np.bitwise_xor,
    samples=lambda: _bit_samples("bitwise_xor"),
)
def bitwise_xor(a: Array, b: Array, /) -> Array:
    """Return ``a ^ b``, bit by bit for integers and logically for bools.

    Example:
        >>> nt.bitwise_xor(np.array([6, 1]), 3)
        array([5, 2])
    """
    _check_bits("bitwise_xor", a, b)
    return np.bitwise_xor(a, b)


@discrete(
    structure=Structure.ELEMENTWISE,
    batch=batching.elementwise,
    numpy=np.bitwise_not,
    also=("bitwise_invert", "invert"),
    samples=lambda: [
        *(sample(np.arange(-3, 3).reshape(shape)) for shape in ((6,), (2, 3), (1, 6), (3, 2), (6, 1))),
        sample(np.array([True, False])),
        sample(np.array(5)),
        sample(np.zeros(0, np.int64)),
        rejected(OperandError, "bitwise_not: bits are of integers and bools, not of float64.", np.ones(2)),
    ],
)
def bitwise_not(x: Array, /) -> Array:
    """Return ``~x``, bit by bit for integers and logically for bools.

    Example:
        >>> nt.bitwise_not(np.array([True, False]))
        array([False,  True])
    """
    _check_bits("bitwise_not", x)
    return np.bitwise_not(x)


def _check_bits(name: str, *operands: Any) -> None:
    for x in operands:
        dtype = np.asarray(x).dtype
        if dtype.kind not in "biu":
            raise OperandError(f"{name}: bits are of integers and bools, not of {dtype}.")
