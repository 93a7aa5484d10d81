"""A column: many rows of an array, a tensor, a list or a pandas object, of which few at a time become a tensor.

Float data is usually float64 by accident (pandas, scikit-learn and NumPy know little else), and layers do not promote.
So floats of arrays, lists and pandas objects leave in the default dtype, the one that layers are made in; tensors,
whose dtype somebody chose, keep theirs; a dtype that is given counts for all floats. Integers and bools keep theirs.
"""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from .._typing import Dtype, DtypeLike, NDArray
from ..core.value import Value, wrap
from ..dtypes import as_dtype, check_unmasked, default_dtype, is_float
from ..errors import DtypeError, GradientError, OperandError, ShapeError
from ..tensors import Tensor

#: What picks rows: one row, a stretch of them, or an array of their numbers.
Index = Any


@dataclass(frozen=True)
class Floats:
    """What becomes of floats: the dtype that was asked for, and the one for arrays and numbers if none was."""

    chosen: Dtype | None
    default: Dtype

    @classmethod
    def of(cls, caller: str, dtype: DtypeLike) -> Self:
        """Read a ``dtype=`` argument; the default dtype is that of now."""
        chosen = None if dtype is None else as_dtype(dtype)
        if chosen is not None and not is_float(chosen):
            raise DtypeError(
                f"{caller}: dtype is {chosen}; it is the dtype of float data (integers keep theirs), so it must be a "
                "float dtype."
            )
        return cls(chosen, default_dtype())

    def out(self, dtype: Dtype, is_tensor: bool) -> Dtype:
        """Return the dtype in which data of a dtype leaves."""
        if dtype.kind == "f" or is_float(dtype):
            return self.chosen or (dtype if is_tensor else self.default)
        return dtype.newbyteorder("=")


def to_tensor(array: NDArray, dtype: Dtype) -> Tensor:
    """Return an array that nobody else holds as a tensor of a dtype."""
    made: Tensor = wrap(Tensor, np.asarray(array, dtype, order="C").view(np.ndarray))
    return made


def is_frame(data: Any) -> bool:
    """Say whether an object is pandas', by what it can do: nobody needs pandas to be asked."""
    return hasattr(data, "iloc") and hasattr(data, "to_numpy")


class _Frame:
    """A pandas object that is indexed like an array: only the rows that are asked for are converted."""

    def __init__(self, frame: Any, what: str) -> None:
        _check_missing(frame, what)
        self.frame = frame
        #: The dtype that columns of several ones have in common, if pandas finds none but object.
        self.common = _common_dtype(frame)
        first = self[:1]
        self.dtype: Dtype = first.dtype
        self.shape: tuple[int, ...] = (len(frame), *first.shape[1:])

    def __getitem__(self, index: Index) -> NDArray:
        if isinstance(index, int | np.integer):
            return self[[index]][0]  # type: ignore[no-any-return]
        rows = self.frame.iloc[index]
        found: NDArray = rows.to_numpy() if self.common is None else rows.to_numpy(self.common)
        return found


def _common_dtype(frame: Any) -> Dtype | None:
    """Return the dtype that numbers and bools of a pandas object become together; None if there is nothing to do."""
    if not hasattr(frame, "dtypes") or frame.iloc[:1].to_numpy().dtype != object:
        return None
    given = list(frame.dtypes) if hasattr(frame, "columns") else [frame.dtype]
    # pandas' own dtypes, such as Int64 and boolean, tell what NumPy calls them.
    dtypes = [getattr(dtype, "numpy_dtype", dtype) for dtype in given]
    if not all(isinstance(dtype, np.dtype) and dtype.kind in "biuf" for dtype in dtypes):
        return None
    return np.result_type(*dtypes)


def _check_missing(frame: Any, what: str) -> None:
    """Raise if a column of a dtype of pandas' own, such as Int64 or boolean, lacks values: no number stands for NA."""
    for name, column in frame.items() if hasattr(frame, "columns") else [(getattr(frame, "name", None), frame)]:
        if not hasattr(column, "isna") or isinstance(column.dtype, np.dtype):
            continue
        count = int(column.isna().sum())
        if count:
            raise DtypeError(
                f"{what}: the column {name!r} of dtype {column.dtype} lacks {count} of {len(column)} values (NA); fill "
                "them with fillna, or leave their rows out with dropna."
            )


class Column:
    """Rows that are taken as tensors with memory of their own. What it is made of is not copied.

    Args:
        data: an array (memory-mapped or not), a tensor, a pandas object, or nested lists, which are copied once.
        what: how errors call it.
    """

    def __init__(self, data: Any, what: str) -> None:
        self.is_tensor = isinstance(data, Value)
        if isinstance(data, Value) and data.requires_grad:
            raise GradientError(
                f"{what} requires a gradient, which batches do not carry back to it; give t.detach() instead."
            )
        self.source = _source(data, what)
        if not self.source.shape:
            raise ShapeError(f"{what} is a single number, of shape (); it must have rows along its first axis.")
        if self.source.dtype.kind not in "biuf" and not is_float(self.source.dtype):
            raise DtypeError(
                f"{what} holds {self.source.dtype}, which are no numbers; turn them into numbers first, as with "
                "np.unique(..., return_inverse=True) or pandas.get_dummies."
            )

    def __len__(self) -> int:
        return int(self.source.shape[0])

    def rows(self, index: Index, floats: Floats) -> Tensor:
        """Return the rows of an index as a tensor, always a copy: writing to a batch must not change the data."""
        taken = self.source[index]
        dtype = floats.out(self.source.dtype, self.is_tensor)
        if not isinstance(index, np.ndarray):
            # One row and stretches are views of the source; rows by number are copies already.
            taken = np.array(taken, dtype, order="C")
        return to_tensor(taken, dtype)


def _source(data: Any, what: str) -> Any:
    """Return what has shape and dtype and gives rows by indexing."""
    if isinstance(data, Value):
        return data.array
    check_unmasked(what, data)
    if isinstance(data, np.ndarray):
        return data
    if is_frame(data):
        return _Frame(data, what)
    for row in data if isinstance(data, list | tuple) else ():
        check_unmasked(f"a row of {what}", row)
    try:
        return np.asarray(data)
    except (ValueError, TypeError) as error:
        raise OperandError(
            f"{what}, of type {type(data).__name__}, does not make an array; nested lists must hold numbers and have "
            "equal lengths at each depth."
        ) from error
