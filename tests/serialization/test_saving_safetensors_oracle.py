"""The safetensors library reads our files, and we read its."""

import json

import ml_dtypes
import numpy as np
import pytest

import numtape as nt
from numtape.serialization import load, save

safetensors = pytest.importorskip("safetensors")
library = pytest.importorskip("safetensors.numpy")

DTYPES = [np.float16, np.float32, np.float64, np.bool_, np.int8, np.int16, np.int32, np.int64]
DTYPES += [np.uint8, np.uint16, np.uint32, np.uint64, ml_dtypes.bfloat16]


def arrays():
    rng = np.random.default_rng(0)
    return {np.dtype(dtype).name: rng.integers(0, 2, (2, 3)).astype(dtype) for dtype in DTYPES}


def test_the_library_reads_our_files(tmp_path):
    path = tmp_path / "state.safetensors"
    ours = {"model": arrays(), "empty": np.zeros((0, 2)), "scalar": nt.tensor(2.5), "lr": 0.1, "tuple": (nt.ones(3).T,)}
    save(path, ours)
    with safetensors.safe_open(path, "numpy") as file:
        assert set(file.metadata()) == {"numtape", "numtape.checksums", "numtape.machine", "numtape.tree"}
        names = set(file.keys())
        for name, array in ours["model"].items():
            if name != "bfloat16":  # The library's NumPy door has no name for it; its bytes are compared below.
                read = file.get_tensor(f"model.{name}")
                assert read.dtype == array.dtype
                assert read.tolist() == array.tolist()
        assert file.get_tensor("empty").shape == (0, 2)
        assert file.get_tensor("scalar").shape == ()
    assert names == {*(f"model.{name}" for name in ours["model"]), "empty", "scalar", "tuple.0"}
    raw = dict(safetensors.deserialize(path.read_bytes()))["model.bfloat16"]
    assert raw["dtype"] == "BF16"
    assert bytes(raw["data"]) == ours["model"]["bfloat16"].tobytes()


def test_names_beyond_ascii_are_read_by_the_library(tmp_path):
    path = tmp_path / "state.safetensors"
    save(path, {"größe 😀": np.ones(1), "\ud800": np.zeros(1)})
    with safetensors.safe_open(path, "numpy") as file:
        assert sorted(file.keys()) == ["\\ud800", "größe 😀"]
    assert list(load(path)) == ["größe 😀", "\ud800"]


def test_we_read_the_librarys_files(tmp_path):
    path = tmp_path / "model.safetensors"
    theirs = {name: array for name, array in arrays().items() if name != "bfloat16"}
    library.save_file(theirs, path, metadata={"format": "np"})
    back = load(path)
    assert back.keys() == theirs.keys()
    for name, array in theirs.items():
        assert type(back[name]) is nt.Tensor
        assert back[name].dtype == array.dtype
        assert back[name].tolist() == array.tolist()


def test_each_tensor_starts_at_a_multiple_of_its_elements_size(tmp_path):
    path = tmp_path / "state.safetensors"
    save(path, {"a": np.ones(3, np.int8), "b": np.ones(2), "c": np.ones(3, np.float16), "d": np.ones(1, np.float32)})
    data = path.read_bytes()
    header_bytes = int.from_bytes(data[:8], "little")
    assert header_bytes % 8 == 0
    header = json.loads(data[8 : 8 + header_bytes])
    assert {name: header[name]["data_offsets"] for name in "abcd"} == {
        "b": [0, 16],
        "d": [16, 20],
        "c": [20, 26],
        "a": [26, 29],
    }
    assert len(safetensors.deserialize(data)) == 4
