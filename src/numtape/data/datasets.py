"""Datasets: anything with a length and samples by number; columns of arrays, parts and sums of other datasets."""

from abc import abstractmethod
from bisect import bisect_right
from itertools import accumulate
from typing import Any, Protocol, runtime_checkable

import numpy as np

from .._typing import DtypeLike, NDArray
from ..core.value import Value
from ..errors import ArgumentError, IndexingError, OperandError, ShapeError
from ..tensors import Tensor
from .columns import Column, Floats, Index, is_frame


@runtime_checkable
class Dataset(Protocol):
    """What a loader reads: samples by number from 0 to ``len(dataset) - 1``.

    Any class with these two methods will do, inherited or not. A sample is a number, an array or a tensor, or a tuple,
    dict, namedtuple or dataclass of them. Random numbers drawn in ``__getitem__`` without an ``rng=`` come from the
    loader's own stream for that batch, so that they are the same with and without prefetch, and after a resume.

    Example:
        >>> class Squares(nt.data.Dataset):
        ...     def __len__(self): return 4
        ...     def __getitem__(self, i): return float(i), i * i
        >>> [y.tolist() for x, y in nt.data.DataLoader(Squares(), batch_size=2)]
        [[0, 1], [4, 9]]
    """

    @abstractmethod
    def __len__(self) -> int:
        """Return the number of samples."""

    @abstractmethod
    def __getitem__(self, index: Any, /) -> Any:
        """Return the sample of a number."""


class Columns:
    """Columns of equal length in a tuple, a dict or alone; rows come in the same form."""

    def __init__(self, data: Any, caller: str, dtype: DtypeLike = None) -> None:
        self.dtype = dtype if dtype is None else Floats.of(caller, dtype).chosen
        #: A tuple, a dict, or one column.
        self.columns: Any
        if isinstance(data, dict):
            self.columns = {name: Column(part, f"{caller}: {name!r}") for name, part in data.items()}
        elif isinstance(data, tuple):
            made = [Column(part, f"{caller}: array {i}") for i, part in enumerate(data)]
            self.columns = _tuple_like(data, made)
        else:
            self.columns = Column(data, f"{caller}: the data")
        lengths = [len(column) for column in self._all()]
        if not lengths:
            raise ArgumentError(f"{caller}: there are no arrays; give at least one.")
        if len(set(lengths)) > 1:
            raise ShapeError(
                f"{caller}: the arrays have {', '.join(map(str, lengths))} rows; all must have as many as there are "
                "samples."
            )

    def _all(self) -> list[Column]:
        if isinstance(self.columns, Column):
            return [self.columns]
        return list(self.columns.values() if isinstance(self.columns, dict) else self.columns)

    def __len__(self) -> int:
        return len(self._all()[0])

    def __getitem__(self, index: Any) -> Any:
        index = index.array if isinstance(index, Value) else index
        try:
            return self.rows(np.asarray(index) if isinstance(index, list) else index, Floats.of("dataset", None))
        except IndexError as error:
            raise IndexingError(
                f"{type(self).__name__}: there are no samples {index!r}; there are {len(self)}, by integers from 0 on, "
                "slices, or arrays of integers or bools."
            ) from error

    def rows(self, index: Index, floats: Floats) -> Any:
        """Return the rows of an index, all columns at once."""
        columns = self.columns
        floats = Floats(floats.chosen or self.dtype, floats.default)
        if isinstance(columns, Column):
            return columns.rows(index, floats)
        if isinstance(columns, dict):
            return {name: column.rows(index, floats) for name, column in columns.items()}
        return _tuple_like(columns, [column.rows(index, floats) for column in columns])


def _tuple_like(given: Any, parts: list[Any]) -> Any:
    """Return parts as a tuple, or as the same namedtuple."""
    return type(given)(*parts) if hasattr(given, "_fields") else tuple(parts)


class TensorDataset(Columns):
    """Arrays of equal length; a sample is a tuple of one row of each. Nothing is copied but the rows asked for.

    Args:
        arrays: tensors, arrays (also memory-mapped ones), pandas objects or lists, with samples along the first axis.
        dtype: the dtype of all floats.

    Rows are tensors. Without `dtype`, floats of arrays, pandas objects and lists come in the default dtype, those of
    tensors in their own; integers keep theirs. To keep the float64 of an array, give ``dtype="float64"``, or
    ``nt.from_numpy(array)`` in its place.

    Raises:
        ShapeError: if the lengths differ.

    Example:
        >>> dataset = nt.data.TensorDataset(np.array([[0.1], [0.2], [0.3]]), [0, 1, 1])
        >>> len(dataset), dataset[2]
        (3, (tensor([0.3]), tensor(1)))
    """

    def __init__(self, *arrays: Any, dtype: DtypeLike = None) -> None:
        super().__init__(arrays, "TensorDataset", dtype)

    def __getitem__(self, index: Any) -> tuple[Tensor, ...]:
        rows: tuple[Tensor, ...] = super().__getitem__(index)
        return rows


class Subset:
    """Some samples of a dataset, by their numbers.

    Args:
        dataset: a dataset, or arrays as `DataLoader` takes them.
        indices: the numbers of the samples, in the order wanted; repeats are allowed.

    Example:
        >>> subset = nt.data.Subset([10.0, 20.0, 30.0], [2, 0])
        >>> len(subset), subset[0]
        (2, 30.0)
    """

    def __init__(self, dataset: Any, indices: Any) -> None:
        self.dataset = as_dataset(dataset, "Subset")
        self.indices = _checked(indices, len(self.dataset))

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, index: Any) -> Any:
        chosen = self.indices[index]
        return self.dataset[int(chosen) if np.ndim(chosen) == 0 else chosen]


class ConcatDataset:
    """Datasets one after the other.

    Example:
        >>> both = nt.data.ConcatDataset([[1.0, 2.0], [3.0]])
        >>> len(both), both[2], both[-3]
        (3, 3.0, 1.0)
    """

    def __init__(self, datasets: Any) -> None:
        self.datasets = [as_dataset(dataset, "ConcatDataset") for dataset in datasets]
        #: How many samples lie up to the end of each.
        self.ends = list(accumulate(len(dataset) for dataset in self.datasets))
        if not self.ends:
            raise ArgumentError("ConcatDataset: there are no datasets; give at least one.")

    def __len__(self) -> int:
        return self.ends[-1]

    def __getitem__(self, index: int) -> Any:
        place = index + len(self) if index < 0 else index
        if not 0 <= place < len(self):
            raise IndexingError(f"ConcatDataset: there is no sample {index}; there are {len(self)}.")
        part = bisect_right(self.ends, place)
        return self.datasets[part][place - (self.ends[part - 1] if part else 0)]


def as_dataset(data: Any, caller: str) -> Any:
    """Return a dataset of what a loader may be given.

    A tuple or dict holds columns, and so does an array, a tensor or a pandas object alone. Whatever else has a length
    and is indexed, lists included, is a dataset itself.
    """
    if isinstance(data, tuple | dict | Value | np.ndarray) or is_frame(data):
        return Columns(data, caller)
    if not isinstance(data, Dataset):
        raise OperandError(
            f"{caller}: the dataset, of type {type(data).__name__}, lacks __len__ or __getitem__; samples are read by "
            "number. Collect what comes one by one in a list first."
        )
    return data


def gives_rows(dataset: Any) -> bool:
    """Say whether a batch can be taken at once: columns, or a part of some, whose indexing no subclass changed."""
    indexing = getattr(type(dataset), "__getitem__", None)
    if indexing is Subset.__getitem__:
        return gives_rows(dataset.dataset)
    return indexing in (Columns.__getitem__, TensorDataset.__getitem__)


def rows_of(dataset: Any, index: Index, floats: Floats) -> Any:
    """Return the rows of an index from a dataset that gives rows."""
    while isinstance(dataset, Subset):
        index = dataset.indices[index]
        dataset = dataset.dataset
    return dataset.rows(index, floats)


def _checked(indices: Any, length: int) -> NDArray:
    """Return numbers of samples as an array of non-negative ones, or raise if they are none."""
    array = indices.array if isinstance(indices, Value) else np.asarray(indices)
    if array.size == 0:
        array = array.astype(np.int64)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise OperandError(
            f"Subset: indices are {array.dtype} of shape {array.shape}; they must be one row of integers. From a mask, "
            "np.flatnonzero(mask) makes them."
        )
    wrong = array[(array < -length) | (array >= length)]
    if wrong.size:
        raise IndexingError(f"Subset: there is no sample {wrong[0]}; the dataset has {length}.")
    return np.where(array < 0, array + length, array).astype(np.int64)
