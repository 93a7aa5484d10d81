"""Make tensors of random numbers, drawn from streams."""

import math
from typing import Any

import numpy as np

from ._typing import DtypeLike, Shape
from .core.binding import naming_arguments, plain_number
from .core.value import Lifted
from .creation import finished, finished_on_tape, given_count, given_shape, shape_and_dtype
from .devices import check_device
from .dtypes import as_dtype, as_integers
from .errors import ArgumentError, DtypeError, OperandError
from .kernels import random as kernels
from .ops.random import stream_for
from .ranges import float_of, numbers_of, value_of
from .tensors import Tensor


def _float_dtype(name: str, dtype: DtypeLike, *numbers: Any) -> Any:
    chosen = float_of(dtype, *numbers)
    if chosen.kind in "biu":
        raise DtypeError(f"{name}: draws floats, but dtype is {chosen}; use randint.")
    return chosen


def _shape(caller: str, lengths: tuple[Any, ...], size: Any) -> Shape:
    """Return a shape that was given as a tuple, as integers, or as `size`, but not twice."""
    shape = given_shape(caller, lengths)
    if size is None:
        return shape
    if shape:
        raise ArgumentError(f"{caller}: the shape was given twice, as {shape} and as {size!r}.")
    return given_shape(caller, (size,))


@naming_arguments
def rand(
    *shape: Any,
    size: Any = None,
    dtype: DtypeLike = None,
    requires_grad: bool = False,
    name: str | None = None,
    rng: Any = None,
    device: Any = None,
) -> Tensor:
    """Return random numbers, uniform in [0, 1).

    Example:
        >>> nt.rand(2, rng=0)
        tensor([0.27549583, 0.57751346])
    """
    check_device("rand", device)
    return _uniform("rand", 0.0, 1.0, _shape("rand", shape, size), dtype, requires_grad, name, rng)


@naming_arguments
def uniform(
    low: float = 0.0,
    high: float = 1.0,
    *lengths: Any,
    shape: Any = (),
    size: Any = None,
    dtype: DtypeLike = None,
    requires_grad: bool = False,
    name: str | None = None,
    rng: Any = None,
    device: Any = None,
) -> Tensor:
    """Return random numbers, uniform in [low, high); the shape is given as a tuple, as integers, or by ``size=``.

    If a bound is tracked, so is the result: the numbers move with it.

    Example:
        >>> nt.uniform(-1.0, 1.0, (2, 3), rng=0).shape
        (2, 3)
    """
    check_device("uniform", device)
    whole = _shape("uniform", lengths or (shape,), size)
    return _uniform("uniform", low, high, whole, dtype, requires_grad, name, rng)


def _uniform(
    caller: str, low: Any, high: Any, size: Shape, dtype: DtypeLike, requires_grad: bool, name: str | None, rng: Any
) -> Tensor:
    chosen = _float_dtype(caller, dtype, low, high)
    is_moving, (first, last) = numbers_of(caller, low=low, high=high)
    key, counter = stream_for(caller, rng).take(math.prod(size))
    drawn = first + (last - first) * kernels.uniform(key, counter, size)
    if is_moving:
        return finished_on_tape(caller, drawn, chosen, requires_grad, name)
    return finished(kernels.rounded(drawn, first, last, chosen), requires_grad, name)


@naming_arguments
def randn(
    *shape: Any,
    size: Any = None,
    dtype: DtypeLike = None,
    requires_grad: bool = False,
    name: str | None = None,
    rng: Any = None,
    device: Any = None,
) -> Tensor:
    """Return random numbers of the standard normal distribution.

    Example:
        >>> nt.randn(2, 3, rng=0).shape
        (2, 3)
    """
    check_device("randn", device)
    return _normal("randn", 0.0, 1.0, _shape("randn", shape, size), dtype, requires_grad, name, rng)


@naming_arguments
def rand_like(
    other: Any,
    dtype: DtypeLike = None,
    requires_grad: bool = False,
    name: str | None = None,
    rng: Any = None,
    device: Any = None,
) -> Tensor:
    """Return random numbers, uniform in [0, 1), with the shape and dtype of another tensor or array.

    Example:
        >>> nt.rand_like(nt.zeros(2, 3)).shape
        (2, 3)
    """
    check_device("rand_like", device)
    shape, like = shape_and_dtype("rand_like", other, dtype)
    return _uniform("rand_like", 0.0, 1.0, shape, like, requires_grad, name, rng)


@naming_arguments
def randn_like(
    other: Any,
    dtype: DtypeLike = None,
    requires_grad: bool = False,
    name: str | None = None,
    rng: Any = None,
    device: Any = None,
) -> Tensor:
    """Return random numbers of the standard normal distribution, with the shape and dtype of another tensor or array.

    Example:
        >>> nt.randn_like(nt.zeros(2, 3)).shape
        (2, 3)
    """
    check_device("randn_like", device)
    shape, like = shape_and_dtype("randn_like", other, dtype)
    return _normal("randn_like", 0.0, 1.0, shape, like, requires_grad, name, rng)


@naming_arguments
def normal(
    mean: float = 0.0,
    std: float = 1.0,
    *lengths: Any,
    shape: Any = (),
    size: Any = None,
    dtype: DtypeLike = None,
    requires_grad: bool = False,
    name: str | None = None,
    rng: Any = None,
    device: Any = None,
) -> Tensor:
    """Return random numbers of a normal distribution; the shape is given as a tuple, as integers, or by ``size=``.

    If `mean` or `std` is tracked, so is the result: the numbers move with them.

    Example:
        >>> nt.normal(5.0, 0.1, (3,), rng=0).shape
        (3,)
    """
    check_device("normal", device)
    if not isinstance(std, Lifted) and (deviation := value_of("normal", "std", std)) < 0:
        raise ArgumentError(f"normal: std is {deviation!r}; a standard deviation is not negative.")
    whole = _shape("normal", lengths or (shape,), size)
    return _normal("normal", mean, std, whole, dtype, requires_grad, name, rng)


def _normal(
    caller: str, mean: Any, std: Any, size: Shape, dtype: DtypeLike, requires_grad: bool, name: str | None, rng: Any
) -> Tensor:
    chosen = _float_dtype(caller, dtype, mean, std)
    is_moving, (middle, scale) = numbers_of(caller, mean=mean, std=std)
    key, counter = stream_for(caller, rng).take(2 * math.prod(size))
    drawn = middle + scale * kernels.normal(key, counter, size)
    if is_moving:
        return finished_on_tape(caller, drawn, chosen, requires_grad, name)
    return finished(np.asarray(drawn).astype(chosen), requires_grad, name)


@naming_arguments
def randint(
    low: int,
    high: int | None = None,
    *lengths: Any,
    shape: Any = (),
    size: Any = None,
    dtype: DtypeLike = "int64",
    requires_grad: bool = False,
    name: str | None = None,
    rng: Any = None,
    device: Any = None,
) -> Tensor:
    """Return random integers from `low` (0 if only one bound is given) up to but not including `high`.

    The shape is given as a tuple, as separate integers, or by ``size=``.

    Example:
        >>> nt.randint(0, 10, (4,), rng=0)
        tensor([4, 1, 0, 6])
    """
    check_device("randint", device)
    if high is None:
        low, high = 0, low
    low, high = _bound("low", low), _bound("high", high)
    if high <= low:
        raise ArgumentError(f"randint: low is {low} and high is {high}; high must be larger.")
    if as_dtype(dtype).kind not in "iu":
        raise DtypeError(f"randint: draws integers, but dtype is {as_dtype(dtype)}; use uniform, or astype().")
    for bound in (low, high - 1):
        as_integers("randint", bound, as_dtype(dtype))
    size = _shape("randint", lengths or (shape,), size)
    key, counter = stream_for("randint", rng).take(math.prod(size))
    return finished(kernels.integers(key, counter, size, low, high, as_dtype(dtype)), requires_grad, name)


def _bound(what: str, given: Any) -> int:
    bound: int | None = int(given) if type(given) is bool else plain_number(given, int)
    if bound is None:
        raise OperandError(f"randint: {what} is {given!r}; bounds are integers.")
    return bound


@naming_arguments
def permutation(
    n: int,
    rng: Any = None,
    *,
    dtype: DtypeLike = "int64",
    requires_grad: bool = False,
    name: str | None = None,
    device: Any = None,
) -> Tensor:
    """Return the integers 0 to n - 1 in random order.

    Example:
        >>> sorted(nt.permutation(4, rng=0).tolist())
        [0, 1, 2, 3]
    """
    check_device("permutation", device)
    count, chosen = given_count("permutation", "n", n), as_dtype(dtype)
    if chosen.kind in "iu" and count:
        as_integers("permutation", count - 1, chosen)
    key, counter = stream_for("permutation", rng).take(count)
    drawn = kernels.permutation(key, counter, count).astype(chosen, copy=False)
    return finished(drawn, requires_grad, name)
