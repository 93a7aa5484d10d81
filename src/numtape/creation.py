"""Make tensors: from data, and filled."""

from typing import Any

import numpy as np

from . import tree
from ._typing import DtypeLike, NDArray, Shape
from .core.binding import naming_arguments, plain_number
from .core.buffers import shared_with_numpy
from .core.context import current
from .core.declare import numpy_faces
from .core.value import Value, wrap
from .counts import is_count
from .devices import check_device
from .dtypes import as_dtype, as_integers, check_supported, default_dtype, float_beside, plain_array
from .errors import ArgumentError, DtypeError, GradientError, OperandError, ShapeError
from .ops.casting import cast, clone
from .ops.joining import stack
from .ops.shapes import as_shape, broadcast_to
from .tensors import Tensor


def finished(array: NDArray, requires_grad: bool, name: str | None) -> Tensor:
    """Wrap an array that nobody else holds, and show it to scopes."""
    for scope in current().scopes:
        scope.on_created(array)
    return _wrapped(array, requires_grad, name)


def _wrapped(array: NDArray, requires_grad: bool, name: str | None) -> Tensor:
    made: Tensor = wrap(Tensor, array)
    if name is not None:
        made.name = name
    if requires_grad:
        made.requires_grad_()
    return made


def _array(name: str, data: Any, dtype: DtypeLike) -> NDArray:
    """Return a new array of data; Python floats take the default dtype, all that has a dtype keeps it."""
    if isinstance(data, np.ndarray):
        data = plain_array(f"{name}: the data", np.asarray(data) if isinstance(data, np.matrix) else data)
    if isinstance(data, np.ndarray | np.generic):
        array = np.array(data, None if dtype is None else as_dtype(dtype))
    else:
        try:
            array = np.array(data)
        except (ValueError, TypeError) as error:
            raise OperandError(
                f"{name}: the data, of type {type(data).__name__}, does not make an array; nested lists must hold "
                "numbers and have equal lengths at each depth."
            ) from error
        if dtype is not None:
            _checked(name, data, array)
            chosen = as_dtype(dtype)
            array = as_integers(name, data, chosen) if chosen.kind in "iu" else array.astype(chosen)
        elif array.dtype.kind == "f" and not _has_dtype(data):
            array = array.astype(default_dtype())
    return _checked(name, data, array)


def _checked(name: str, data: Any, array: NDArray) -> NDArray:
    """Return an array made of data, or raise if it does not hold real numbers."""
    if array.dtype.kind not in "biufcV":
        large = next((x for x in array.flat if isinstance(x, int) and x.bit_length() > 63), None)
        if large is not None:
            raise OperandError(
                f"{name}: an integer of {large.bit_length()} bits is beyond those of int64; write it as a float."
            )
        raise OperandError(
            f"{name}: data of type {type(data).__name__} makes an array of {array.dtype}, which are no numbers; give "
            "numbers, nested lists of them, or an array."
        )
    check_supported(array.dtype)
    return array


def given_shape(name: str, given: tuple[Any, ...]) -> Shape:
    """Return a shape that was given as one tuple or as separate integers."""
    try:
        shape = as_shape(given)
    except OperandError as error:
        raise OperandError(
            f"{name}: the shape is {given!r}; give integers or one tuple of them, and dtype by keyword."
        ) from error
    if any(length < 0 for length in shape):
        raise ShapeError(f"{name}: the shape is {shape}; lengths are not negative.")
    return shape


def given_count(name: str, what: str, given: Any) -> int:
    """Return a number of things, or raise if it is none."""
    if not is_count(given, 0):
        raise ArgumentError(f"{name}: {what} is {given!r}; it must be an integer that is not negative.")
    return int(given)


def given_number(name: str, what: str, given: Any) -> Any:
    """Return a real number as one of Python's, or raise if it is none."""
    number = given if type(given) is bool else plain_number(given)
    if number is None:
        raise OperandError(f"{name}: {what} is {given!r}; it must be a real number.")
    return number


def _has_dtype(data: Any) -> bool:
    """Say whether data brings a dtype of its own: arrays of any library, buffers, and lists that hold one of them."""
    if type(data) is float or type(data) is int:
        return False
    if isinstance(data, list | tuple):
        return any(map(_has_dtype, data))
    if hasattr(data, "__array__") or hasattr(data, "__array_interface__"):
        return True
    try:
        memoryview(data)
    except TypeError:
        return False
    return True


def _holds_tensors(data: Any) -> bool:
    return isinstance(data, Value) or (isinstance(data, list | tuple) and any(map(_holds_tensors, data)))


def _stacked(data: Any) -> Any:
    """Return nested lists that hold tensors as one tensor, recorded."""
    dtype = float_beside(tree.leaves(data))

    def joined(item: Any) -> Any:
        if isinstance(item, list | tuple):
            return stack(list(map(joined, item)))
        if isinstance(item, Value):
            return item
        return wrap(Tensor, _array("tensor", item, dtype if type(item) is float else None))

    return joined(data)


@naming_arguments
def tensor(
    data: Any,
    dtype: DtypeLike = None,
    requires_grad: bool = False,
    name: str | None = None,
    device: Any = None,
) -> Tensor:
    """Return a tensor of numbers, nested lists or an array, with memory of its own.

    Python floats take the default dtype (float32); arrays, those of other libraries too, keep theirs. Tensors inside of
    lists are stacked, and the stacking is recorded.

    Args:
        data: a number, nested lists, an array, a tensor, or what NumPy makes an array of.
        dtype: the dtype, if it is not to follow from the data.
        requires_grad: whether `backward` shall deliver a gradient to it.
        name: shown in summaries and errors.
        device: "cpu" or None, for PyTorch's sake.

    Example:
        >>> nt.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
        tensor([[1., 2.],
                [3., 4.]], requires_grad=True)
    """
    check_device("tensor", device)
    if _holds_tensors(data):
        made = clone(data) if isinstance(data, Value) else _stacked(data)
        return finished_on_tape("tensor", made, dtype, requires_grad, name)
    return finished(_array("tensor", data, dtype), requires_grad, name)


def finished_on_tape(caller: str, made: Tensor, dtype: DtypeLike, requires_grad: bool, name: str | None) -> Tensor:
    """Finish a tensor that ops made of others; it stays on the tape, so it cannot be a leaf if they are tracked."""
    if requires_grad and not made.is_leaf:
        raise GradientError(
            f"{caller}: requires_grad=True makes a leaf, but the data is tracked, and its gradient would be lost "
            "without a word. Leave requires_grad out to stay on the tape, or detach() the data."
        )
    made = made if dtype is None else cast(made, as_dtype(dtype))
    if name is not None:
        made.name = name
    return made.requires_grad_() if requires_grad else made


@naming_arguments
def from_numpy(array: NDArray, requires_grad: bool = False, name: str | None = None) -> Tensor:
    """Return a tensor that shares the memory of an array; writes to the array are not seen by any check.

    Example:
        >>> nt.from_numpy(np.arange(3.0))
        tensor([0., 1., 2.], dtype=float64)
    """
    if not isinstance(array, np.ndarray):
        raise OperandError(f"from_numpy: wants an array, not {type(array).__name__}; use nt.tensor, which copies.")
    if not array.dtype.isnative:
        raise DtypeError(
            f"from_numpy: the array has the other byte order ({array.dtype.str}); use nt.tensor, which copies."
        )
    array = plain_array("from_numpy: the data", array)
    check_supported(array.dtype)
    shared_with_numpy.hold(array)
    return _wrapped(array.view(), requires_grad, name)


def given_dtype(dtype: DtypeLike) -> Any:
    return default_dtype() if dtype is None else as_dtype(dtype)


@naming_arguments
def zeros(
    *shape: Any,
    dtype: DtypeLike = None,
    requires_grad: bool = False,
    name: str | None = None,
    device: Any = None,
) -> Tensor:
    """Return zeros of a shape, given as a tuple or as separate integers.

    Example:
        >>> nt.zeros(2, 2)
        tensor([[0., 0.],
                [0., 0.]])
    """
    check_device("zeros", device)
    return finished(np.zeros(given_shape("zeros", shape), given_dtype(dtype)), requires_grad, name)


@naming_arguments
def ones(
    *shape: Any,
    dtype: DtypeLike = None,
    requires_grad: bool = False,
    name: str | None = None,
    device: Any = None,
) -> Tensor:
    """Return ones of a shape.

    Example:
        >>> nt.ones(3)
        tensor([1., 1., 1.])
    """
    check_device("ones", device)
    return finished(np.ones(given_shape("ones", shape), given_dtype(dtype)), requires_grad, name)


@naming_arguments
def full(
    shape: Any,
    fill_value: Any,
    dtype: DtypeLike = None,
    requires_grad: bool = False,
    name: str | None = None,
    device: Any = None,
) -> Tensor:
    """Return a tensor of a shape filled with a value.

    Example:
        >>> nt.full((2,), 7.0)
        tensor([7., 7.])
    """
    check_device("full", device)
    return _filled("full", given_shape("full", (shape,)), fill_value, dtype, requires_grad, name)


def _filled(caller: str, shape: Shape, value: Any, dtype: DtypeLike, requires_grad: bool, name: str | None) -> Tensor:
    """Return a value, broadcast to a shape; recorded if it is tracked."""
    if not _holds_tensors(value):
        value = _array(caller, value, dtype)
    elif not isinstance(value, Value):
        value = _stacked(value)
    try:
        np.broadcast_to(np.empty(value.shape, np.bool_), shape)
    except ValueError as error:
        raise ShapeError(
            f"{caller}: the shape is {shape} and fill_value has shape {value.shape}, which does not broadcast to it."
        ) from error
    if isinstance(value, Value):
        return finished_on_tape(caller, clone(broadcast_to(value, shape)), dtype, requires_grad, name)
    return finished(np.array(np.broadcast_to(value, shape)), requires_grad, name)


@naming_arguments
def empty(
    *shape: Any,
    dtype: DtypeLike = None,
    requires_grad: bool = False,
    name: str | None = None,
    device: Any = None,
) -> Tensor:
    """Return a tensor of a shape whose contents are arbitrary.

    Example:
        >>> nt.empty(2, 3).shape
        (2, 3)
    """
    check_device("empty", device)
    return finished(np.empty(given_shape("empty", shape), given_dtype(dtype)), requires_grad, name)


@naming_arguments
def eye(
    n: int,
    m: int | None = None,
    dtype: DtypeLike = None,
    requires_grad: bool = False,
    name: str | None = None,
    device: Any = None,
) -> Tensor:
    """Return the identity matrix, or n rows and m columns of it.

    Example:
        >>> nt.eye(2)
        tensor([[1., 0.],
                [0., 1.]])
    """
    check_device("eye", device)
    rows, columns = given_count("eye", "n", n), None if m is None else given_count("eye", "m", m)
    return finished(np.eye(rows, columns, dtype=given_dtype(dtype)), requires_grad, name)


def shape_and_dtype(name: str, other: Any, dtype: DtypeLike) -> tuple[Shape, Any]:
    """Return the shape and the dtype of a tensor or an array, or the dtype that was given instead."""
    if isinstance(other, Value):
        array = other.array
    else:
        array = _checked(name, other, other) if isinstance(other, np.ndarray) else _array(name, other, None)
    return array.shape, array.dtype if dtype is None else as_dtype(dtype)


@naming_arguments
def zeros_like(
    other: Any,
    dtype: DtypeLike = None,
    requires_grad: bool = False,
    name: str | None = None,
    device: Any = None,
) -> Tensor:
    """Return zeros of another tensor's shape and dtype.

    Example:
        >>> nt.zeros_like(nt.ones(2))
        tensor([0., 0.])
    """
    check_device("zeros_like", device)
    return finished(np.zeros(*shape_and_dtype("zeros_like", other, dtype)), requires_grad, name)


@naming_arguments
def ones_like(
    other: Any,
    dtype: DtypeLike = None,
    requires_grad: bool = False,
    name: str | None = None,
    device: Any = None,
) -> Tensor:
    """Return ones of another tensor's shape and dtype.

    Example:
        >>> nt.ones_like(nt.zeros(2))
        tensor([1., 1.])
    """
    check_device("ones_like", device)
    return finished(np.ones(*shape_and_dtype("ones_like", other, dtype)), requires_grad, name)


@naming_arguments
def full_like(
    other: Any,
    fill_value: Any,
    dtype: DtypeLike = None,
    requires_grad: bool = False,
    name: str | None = None,
    device: Any = None,
) -> Tensor:
    """Return a tensor of another one's shape and dtype, filled with a value.

    Example:
        >>> nt.full_like(nt.zeros(2), 3.0)
        tensor([3., 3.])
    """
    check_device("full_like", device)
    shape, chosen = shape_and_dtype("full_like", other, dtype)
    return _filled("full_like", shape, fill_value, chosen, requires_grad, name)


numpy_faces[np.full_like] = full_like


@naming_arguments
def empty_like(
    other: Any,
    dtype: DtypeLike = None,
    requires_grad: bool = False,
    name: str | None = None,
    device: Any = None,
) -> Tensor:
    """Return a tensor of another one's shape and dtype whose contents are arbitrary.

    Example:
        >>> nt.empty_like(nt.zeros(2)).shape
        (2,)
    """
    check_device("empty_like", device)
    return finished(np.empty(*shape_and_dtype("empty_like", other, dtype)), requires_grad, name)
