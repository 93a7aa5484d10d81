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
