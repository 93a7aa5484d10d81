"""Datasets: columns of arrays, parts, sums, and random splits."""

from collections import namedtuple
from typing import NamedTuple

import numpy as np
import pytest

import numtape as nt
from numtape import data
from numtape.errors import ArgumentError, DtypeError, GradientError, IndexingError, OperandError, ShapeError


class Squares:
    def __init__(self, n=10):
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        return float(i), i * i


class FakeFrame:
    """What of a pandas DataFrame is used, counting the rows that were converted."""

    def __init__(self, array, converted=None):
        self.array = array
        self.converted = [] if converted is None else converted

    def __len__(self):
        return len(self.array)

    def __getitem__(self, column):
        raise AssertionError("a frame is indexed by columns, which are no samples")

    @property
    def iloc(self):
        frame = self

        class Rows:
            def __getitem__(self, index):
                return FakeFrame(frame.array[index], frame.converted)

        return Rows()

    def to_numpy(self):
        self.converted.append(len(self.array))
        return self.array


def test_a_tensor_dataset_gives_a_tuple_of_rows():
    dataset = data.TensorDataset(np.arange(6.0).reshape(3, 2), np.array([4, 5, 6]))
    x, y = dataset[1]
    assert len(dataset) == 3
    assert (x.tolist(), y.item()) == ([2.0, 3.0], 5)
    assert isinstance(x, nt.Tensor)
    assert isinstance(y, nt.Tensor)
    assert isinstance(dataset, data.Dataset)


@pytest.mark.parametrize(
    ("index", "expected"),
    [
        (-1, 3.0),
        (slice(1, 3), [1.0, 2.0]),
        ([2, 0], [2.0, 0.0]),
        (np.array([3, 3]), [3.0, 3.0]),
        (nt.tensor([1, 2]), [1.0, 2.0]),
        (np.array([True, False, False, True]), [0.0, 3.0]),
    ],
)
def test_rows_are_picked_like_those_of_an_array(index, expected):
    assert data.TensorDataset(np.arange(4.0))[index][0].tolist() == expected


def test_floats_of_arrays_and_lists_come_in_the_default_dtype():
    for source in (np.ones(2), np.ones(2, np.float16), np.ones(2, np.longdouble), np.ones(2, ">f8"), [1.0, 1.0]):
        assert data.TensorDataset(source)[0][0].dtype == nt.float32
    nt.set_default_dtype("float64")
    try:
        assert data.TensorDataset(np.ones(2, np.float32))[0][0].dtype == nt.float64
    finally:
        nt.set_default_dtype("float32")


def test_floats_of_tensors_keep_their_dtype():
    for dtype in (nt.float16, nt.bfloat16, nt.float32, nt.float64):
        assert data.TensorDataset(nt.ones(2, dtype=dtype))[0][0].dtype == dtype
    assert data.TensorDataset(nt.from_numpy(np.ones(2)))[0][0].dtype == nt.float64


def test_a_given_dtype_counts_for_all_floats_and_no_integers():
    dataset = data.TensorDataset(np.full(2, 0.1), nt.ones(2), [1, 2], dtype="float64")
    assert [part.dtype for part in dataset[0]] == [nt.float64, nt.float64, nt.int64]
    assert dataset[0][0].item() == 0.1


def test_integers_and_bools_keep_their_dtype():
    sources = [np.ones(2, dtype) for dtype in (np.int64, np.int32, np.uint8, np.bool_)]
    assert [part.dtype for part in data.TensorDataset(*sources)[:]] == [source.dtype for source in sources]
    assert data.TensorDataset([3, 4])[0][0].dtype == nt.int64
    assert data.TensorDataset(np.array([3], ">i4"))[0][0].dtype == nt.int32


def test_rows_are_copies():
    source = np.zeros((3, 2), np.float32)
    for index in (0, slice(0, 2), [0, 1]):
        (rows,) = data.TensorDataset(source)[index]
        rows += 1.0
    assert not source.any()


def test_a_memory_mapped_file_is_read_row_by_row(tmp_path):
    np.save(tmp_path / "x.npy", np.arange(12.0, dtype=np.float32).reshape(6, 2))
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    dataset = data.TensorDataset(mapped)
    assert dataset.columns[0].source is mapped
    for index in (slice(0, 2), [4, 1]):
        (rows,) = dataset[index]
        assert type(rows.array) is np.ndarray
        assert rows.array.flags.writeable
        assert not np.shares_memory(rows.array, mapped)
    assert dataset[[4, 1]][0].tolist() == [[8.0, 9.0], [2.0, 3.0]]


def test_only_the_rows_asked_for_are_converted_from_a_frame():
    frame = FakeFrame(np.arange(200.0).reshape(100, 2))
    dataset = data.TensorDataset(frame, FakeFrame(np.arange(100)))
    x, y = dataset[np.array([3, 98])]
    assert (x.tolist(), x.dtype) == ([[6.0, 7.0], [196.0, 197.0]], nt.float32)
    assert (y.tolist(), y.dtype) == ([3, 98], nt.int64)
    assert dataset[-1][0].tolist() == [198.0, 199.0]
    assert frame.converted == [1, 2, 1]


def test_a_subset_has_samples_of_its_own_order():
    subset = data.Subset(Squares(), [7, -1, 7])
    assert len(subset) == 3
    assert [subset[i] for i in range(3)] == [(7.0, 49), (9.0, 81), (7.0, 49)]
    assert data.Subset(subset, [1])[0] == (9.0, 81)
    assert len(data.Subset(Squares(), [])) == 0
    assert data.Subset((np.arange(4.0), [5, 6, 7, 8]), nt.tensor([3, 1]))[:][1].tolist() == [8, 6]


def test_concatenated_datasets_follow_each_other():
    both = data.ConcatDataset([Squares(2), Squares(0), Squares(3)])
    assert len(both) == 5
    assert [both[i][1] for i in range(5)] == [0, 1, 0, 1, 4]
    assert both[-5] == (0.0, 0)


def test_a_random_split_deals_each_sample_to_one_part():
    parts = data.random_split(Squares(10), [5, 3, 2], rng=1)
    assert [len(part) for part in parts] == [5, 3, 2]
    assert sorted(int(i) for part in parts for i in part.indices) == list(range(10))
    again = data.random_split(Squares(10), [5, 3, 2], rng=1)
    assert [part.indices.tolist() for part in again] == [part.indices.tolist() for part in parts]
    other = data.random_split(Squares(10), [5, 3, 2], rng=2)
    assert [part.indices.tolist() for part in other] != [part.indices.tolist() for part in parts]


@pytest.mark.parametrize(
    ("n", "fractions", "lengths"),
    [
        (10, [0.8, 0.2], [8, 2]),
        (100, [0.29, 0.71], [29, 71]),
        (10, [0.33, 0.33, 0.34], [4, 3, 3]),
        (3, [0.5, 0.0, 0.5], [2, 0, 1]),
        (5, [1], [5]),
        (5, [1, 0], [5, 0]),
        (1, [1, 0], [1, 0]),
        (7, [0.1] * 10, [1] * 7 + [0] * 3),
    ],
)
def test_fractions_are_rounded_down_and_the_rest_goes_to_the_first_parts(n, fractions, lengths):
    assert [len(part) for part in data.random_split(Squares(n), fractions, rng=0)] == lengths


def test_a_split_of_one_stream_moves_it_on():
    rng = nt.Generator(0)
    first, second = (data.random_split(Squares(20), [10, 10], rng=rng)[0].indices.tolist() for _ in range(2))
    assert first != second


def raises(error, message, function, *args, **kwargs):
    with pytest.raises(error) as caught:
        function(*args, **kwargs)
    assert str(caught.value) == message


def test_bad_columns_are_named():
    raises(
        ShapeError,
        "TensorDataset: the arrays have 3, 2 rows; all must have as many as there are samples.",
        data.TensorDataset,
        np.ones(3),
        np.ones(2),
    )
    raises(ArgumentError, "TensorDataset: there are no arrays; give at least one.", data.TensorDataset)
    raises(
        ShapeError,
        "TensorDataset: array 1 is a single number, of shape (); it must have rows along its first axis.",
        data.TensorDataset,
        np.ones(3),
        2.0,
    )
    raises(
        DtypeError,
        "TensorDataset: array 0 holds <U1, which are no numbers; turn them into numbers first, as with "
        "np.unique(..., return_inverse=True) or pandas.get_dummies.",
        data.TensorDataset,
        ["a", "b"],
    )
    raises(
        OperandError,
        "TensorDataset: array 0, of type list, does not make an array; nested lists must hold numbers and have equal "
        "lengths at each depth.",
        data.TensorDataset,
        [[1.0], [1.0, 2.0]],
    )
    raises(
        GradientError,
        "TensorDataset: array 0 requires a gradient, which batches do not carry back to it; give t.detach() instead.",
        data.TensorDataset,
        nt.ones(2, requires_grad=True) * 2.0,
    )
    raises(
        DtypeError,
        "TensorDataset: dtype is int64; it is the dtype of float data (integers keep theirs), so it must be a float "
        "dtype.",
        data.TensorDataset,
        np.ones(2),
        dtype="int64",
    )


def test_bad_numbers_of_samples_are_named():
    raises(IndexingError, "Subset: there is no sample 10; the dataset has 10.", data.Subset, Squares(), [0, 10])
    raises(
        OperandError,
        "Subset: indices are bool of shape (10,); they must be one row of integers. From a mask, np.flatnonzero(mask) "
        "makes them.",
        data.Subset,
        Squares(),
        np.ones(10, bool),
    )
    raises(
        IndexingError,
        "ConcatDataset: there is no sample 4; there are 4.",
        data.ConcatDataset([Squares(4)]).__getitem__,
        4,
    )
    raises(ArgumentError, "ConcatDataset: there are no datasets; give at least one.", data.ConcatDataset, [])


def test_bad_lengths_of_a_split_are_named():
    raises(
        ArgumentError,
        "random_split: fractions are [0.8, 0.3], 1.1 in all; they must add up to 1.",
        data.random_split,
        Squares(),
        [0.8, 0.3],
    )
    raises(
        ArgumentError,
        "random_split: lengths are [5, 4], 9 in all, and the dataset has 10 samples; they must add up to them. "
        "Fractions, which add up to 1, work for any dataset.",
        data.random_split,
        Squares(),
        [5, 4],
    )
    raises(
        ArgumentError,
        "random_split: lengths are [11, -1]; none may be negative.",
        data.random_split,
        Squares(),
        [11, -1],
    )
    raises(
        ArgumentError,
        "random_split: lengths are ['8', '2']; they must be numbers of samples, or fractions.",
        data.random_split,
        Squares(),
        ["8", "2"],
    )


def test_what_cannot_be_indexed_is_no_dataset():
    for function in (data.DataLoader, data.ConcatDataset):
        given = (i for i in range(3))
        raises(
            OperandError,
            f"{function.__name__}: the dataset, of type generator, lacks __len__ or __getitem__; samples are read by "
            "number. Collect what comes one by one in a list first.",
            function,
            given if function is data.DataLoader else [given],
        )


def test_a_dataset_that_forgets_a_method_cannot_be_made():
    class Half(data.Dataset):
        def __len__(self):
            return 3

    with pytest.raises(TypeError, match=r"abstract method '?__getitem__"):
        Half()


class Sample(NamedTuple):
    x: object
    y: object


def test_samples_of_every_structure_are_collated():
    pairs = data.collate([(1.0, 2), (3.0, 4)])
    assert type(pairs) is tuple
    assert [part.tolist() for part in pairs] == [[1.0, 3.0], [2, 4]]
    assert [part.dtype for part in pairs] == [nt.float32, nt.int64]
    named = data.collate([Sample(np.ones(2), "a"), Sample(np.zeros(2), "b")])
    assert type(named) is Sample
    assert named.x.tolist() == [[1.0, 1.0], [0.0, 0.0]]
    assert named.y == ["a", "b"]
    nested = data.collate([{"a": [True, None]}, {"a": [False, None]}])
    assert nested["a"][0].tolist() == [True, False]
    assert nested["a"][1] is None


def test_dicts_are_collated_by_key_whatever_their_order():
    batch = data.collate([{"x": 1, "y": 2}, {"y": 20, "x": 10}])
    assert {key: value.tolist() for key, value in batch.items()} == {"x": [1, 10], "y": [2, 20]}


def test_collated_tensors_keep_their_dtype_and_their_graph():
    assert data.collate([nt.ones(2, dtype="float64")] * 2).dtype == nt.float64
    assert data.collate([nt.ones(2, dtype="float64")] * 2, dtype="float32").dtype == nt.float32
    w = nt.tensor([1.0, 2.0], requires_grad=True)
    data.collate([w[0], w[1]]).sum().backward()
    assert w.grad.tolist() == [1.0, 1.0]


def test_samples_that_do_not_go_together_are_named():
    raises(ArgumentError, "collate: there are no samples; a batch has at least one.", data.collate, [])
    raises(
        ShapeError,
        "collate: samples 0 and 2 of the batch have shapes (3,) and (4,); pad them, or give the loader a function "
        "collate= that does. Columns are given as a tuple, (x, y), not as a list.",
        data.collate,
        [np.ones(3), np.ones(3), np.ones(4)],
    )
    raises(
        ArgumentError,
        "collate: samples 0 and 1 of the batch are of types tuple and list; all samples must have the same structure.",
        data.collate,
        [(1, 2), [1, 2]],
    )
    raises(
        ArgumentError,
        "collate: samples 0 and 1 of the batch have 2 and 3 parts; all samples must have the same structure.",
        data.collate,
        [(1, 2), (1, 2, 3)],
    )
    raises(
        ArgumentError,
        "collate: samples 0 and 1 of the batch have the keys ['a', 'b'] and ['a', 'c']; all samples must have the "
        "same structure.",
        data.collate,
        [{"a": 1, "b": 2}, {"a": 1, "c": 2}],
    )


def test_columns_keep_the_form_they_came_in():
    Pair = namedtuple("Pair", "x y")
    (batch,) = data.DataLoader(Pair(np.arange(3.0), [0, 1, 2]), batch_size=3)
    assert type(batch) is Pair
    (batch,) = data.DataLoader({"x": np.arange(3.0)}, batch_size=3)
    assert batch["x"].tolist() == [0.0, 1.0, 2.0]
    (batch,) = data.DataLoader(np.arange(3.0), batch_size=3)
    assert batch.tolist() == [0.0, 1.0, 2.0]


@pytest.mark.parametrize("index", [7, -4, "a", [0, 7]])
def test_a_sample_that_is_not_there_is_named(index):
    with pytest.raises(IndexingError) as caught:
        data.TensorDataset(np.arange(3))[index]
    assert str(caught.value) == (
        f"TensorDataset: there are no samples {index!r}; there are 3, "
        "by integers from 0 on, slices, or arrays of integers or bools."
    )


MASKED = np.ma.masked_array([[1.0, 2.0], [3.0, 4.0]], [[True, False], [False, False]])


@pytest.mark.parametrize(
    ("make", "what"),
    [
        (lambda: data.TensorDataset(MASKED), "TensorDataset: array 0"),
        (lambda: data.TensorDataset([MASKED[0], MASKED[1]]), "a row of TensorDataset: array 0"),
        (lambda: data.DataLoader({"x": MASKED}), "DataLoader: 'x'"),
        (lambda: data.DataLoader(MASKED), "DataLoader: the data"),
        (lambda: data.collate([np.ones(2), MASKED[0]]), "collate: sample 1 of the batch"),
        (lambda: next(iter(data.DataLoader([(MASKED[0], 1)]))), "collate: sample 0 of the batch"),
    ],
)
def test_a_mask_of_data_is_not_lost_silently(make, what):
    with pytest.raises(OperandError) as caught:
        make()
    assert str(caught.value) == (
        f"{what} is a masked array, whose mask would be ignored; pass x.filled(...), and choose elements with nt.where."
    )
