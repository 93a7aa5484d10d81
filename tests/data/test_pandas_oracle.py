"""The loader on real pandas objects."""

import numpy as np
import pytest

import numtape as nt
from numtape import data
from numtape.errors import DtypeError

pandas = pytest.importorskip("pandas")


def test_frames_and_series_are_columns():
    frame = pandas.DataFrame({"a": np.arange(5.0), "b": np.arange(5), "y": [0, 1, 0, 1, 0]}, index=[9, 8, 7, 6, 5])
    loader = data.DataLoader((frame[["a", "b"]], frame["y"]), batch_size=2, shuffle=True, rng=0)
    seen = []
    for x, y in loader:
        assert (x.dtype, y.dtype) == (nt.float32, nt.int64)
        seen += zip(x.tolist(), y.tolist(), strict=True)
    assert sorted(seen) == [([float(i), float(i)], i % 2) for i in range(5)]


def test_a_frame_alone_gives_its_rows():
    frame = pandas.DataFrame({"a": [1, 2, 3], "b": [4, 5, 6]})
    assert [batch.tolist() for batch in data.DataLoader(frame, batch_size=2)] == [[[1, 4], [2, 5]], [[3, 6]]]
    assert data.TensorDataset(frame)[-1][0].tolist() == [3, 6]


def test_a_column_of_words_is_refused():
    frame = pandas.DataFrame({"a": [1.0, 2.0], "b": ["x", "y"]})
    with pytest.raises(DtypeError) as caught:
        data.DataLoader((frame,))
    assert str(caught.value) == (
        "DataLoader: array 0 holds object, which are no numbers; turn them into numbers first, as with "
        "np.unique(..., return_inverse=True) or pandas.get_dummies."
    )


@pytest.mark.parametrize(
    ("dtype", "values"), [("Int64", [1, None, 3]), ("boolean", [True, False, None]), ("Float64", [0.5, None, 1.5])]
)
def test_a_column_with_missing_values_is_named_with_the_repair(dtype, values):
    frame = pandas.DataFrame({"a": [1.0, 2.0, 3.0], "b": pandas.array(values, dtype=dtype)})
    with pytest.raises(DtypeError) as caught:
        data.DataLoader((np.zeros(3), frame["b"]))
    assert str(caught.value) == (
        f"DataLoader: array 1: the column 'b' of dtype {dtype} lacks 1 of 3 values (NA); fill them with fillna, or "
        "leave their rows out with dropna."
    )
    with pytest.raises(DtypeError) as caught:
        data.TensorDataset(frame)
    assert str(caught.value).startswith(f"TensorDataset: array 0: the column 'b' of dtype {dtype} lacks 1 of 3 values")
    filled = frame["b"].fillna(values[0])
    assert [float(row) for (row,) in data.DataLoader((filled,))] == [
        float(values[0] if v is None else v) for v in values
    ]
