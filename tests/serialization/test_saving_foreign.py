"""Files of other tools: NumPy's and plain safetensors load, others are named, and no claim is believed."""

import io
import json
import os
import pickle
import struct
import time
import tracemalloc
import zipfile

import numpy as np
import pytest

import numtape as nt
from numtape.errors import DamagedFileError, OperandError, SavedFileError
from numtape.serialization import load


@pytest.fixture
def path(tmp_path):
    return tmp_path / "file"


def message_of(path, data):
    path.write_bytes(data)
    with pytest.raises(SavedFileError) as error:
        load(path)
    return type(error.value), str(error.value).removeprefix(f"load: {path} ")


def npy(array, **options):
    stream = io.BytesIO()
    np.save(stream, array, **options)
    return stream.getvalue()


def npy_claiming(shape, descr="<f8", data=b"", order=False):
    stream = io.BytesIO()
    np.lib.format.write_array_header_1_0(stream, {"descr": descr, "fortran_order": order, "shape": shape})
    return stream.getvalue() + data


def archive(**members):
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as file:
        for name, data in members.items():
            file.writestr(name.replace("__", "."), data)
    return stream.getvalue()


def test_a_plain_safetensors_file_loads_as_a_dict_of_tensors(path):
    values = np.array([1.5, -2.0], "<f4")
    header = {"__metadata__": {"format": "pt"}, "0.weight": {"dtype": "F32", "shape": [2, 1], "data_offsets": [0, 8]}}
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + values.tobytes())
    back = load(path)
    assert list(back) == ["0.weight"]
    assert type(back["0.weight"]) is nt.Tensor
    assert back["0.weight"].tolist() == [[1.5], [-2.0]]
    assert back["0.weight"].array.flags.owndata


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6.0).reshape(2, 3),
        np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        np.array(3.5),
        np.zeros((0, 4), np.int16),
        np.arange(3, dtype=">i4"),
        np.array(["a", "bc"]),
        np.array([(1, 2.0)], [("a", "i4"), ("b", "f8")]),
    ],
    ids=["plain", "fortran", "no axes", "empty", "big-endian", "strings", "structured"],
)
@pytest.mark.parametrize("write", [np.savez, np.savez_compressed], ids=["stored", "compressed"])
def test_npy_and_npz_load_as_arrays_with_memory_of_their_own(path, array, write):
    path.write_bytes(npy(array))
    stream = io.BytesIO()
    write(stream, a=array)
    single = load(path)
    path.write_bytes(stream.getvalue())
    both = load(path)
    assert list(both) == ["a"]
    for back in (single, both["a"]):
        assert back.tolist() == array.tolist()
        assert back.shape == array.shape
        assert back.dtype == array.dtype.newbyteorder("=")
        assert back.flags.writeable
        assert back.flags.owndata


def test_an_npz_without_arrays_is_an_empty_dict(path):
    np.savez(path.with_suffix(".npz"))
    assert load(path.with_suffix(".npz")) == {}


TORCH = (
    "numtape does not unpickle, since that can run code. Where PyTorch is installed, convert it: "
    "safetensors.torch.save_file(torch.load(path, weights_only=True), 'model.safetensors')."
)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (archive(**{"model/data__pkl": b"x"}), f"is a file of torch.save; {TORCH}"),
        (pickle.dumps({"a": 1}), f"is a pickle, perhaps from torch.save or joblib; {TORCH}"),
        (archive(readme__txt=b"x"), "is a zip archive, but not of arrays alone, as .npz files are; unpack it first."),
        (b"\x89HDF\r\n\x1a\n" + bytes(8), "is an HDF5 file; read it with h5py and save its arrays with nt.save."),
        (b"\x1f\x8b\x08" + bytes(20), "is compressed by gzip; decompress it first."),
        (b"GGUF" + bytes(20), "is a GGUF file; read it with the package gguf and save its arrays with nt.save."),
        (
            b"a,b\n1,2\n",
            "is neither a safetensors, .npz nor .npy file, or it is damaged at its beginning; it starts with "
            "b'a,b\\n1,2\\n'.",
        ),
        (
            npy(np.array([None, 1]), allow_pickle=True),
            "holds Python objects, which are pickled; numtape does not unpickle. Save plain arrays.",
        ),
    ],
    ids=["torch", "pickle", "zip", "hdf5", "gzip", "gguf", "text", "objects"],
)  # fmt: skip
def test_other_files_are_named(path, data, message):
    assert message_of(path, data) == (SavedFileError, message)


def test_a_missing_file_is_the_usual_error(path):
    with pytest.raises(FileNotFoundError):
        load(path)


def tampered(data, **sizes):
    """Return an archive of one member whose directory claims other sizes."""
    stream = io.BytesIO(data)
    with zipfile.ZipFile(stream, "a") as file:
        (info,) = file.infolist()
        for name, size in sizes.items():
            setattr(info, name, size)
        file._didModify = True
    return stream.getvalue()


ONES = npy(np.ones(100))
MALFORMED = {
    "cut npy": ONES[:-1],
    "longer npy": ONES + b"\0",
    "npy of 1e18 elements": npy_claiming((10**18,)),
    "npy of 1e10 elements": npy_claiming((10**10,), data=bytes(80)),
    "npy of negative shape": npy_claiming((-1, -2), data=bytes(16)),
    "npy of 100 axes": npy_claiming((1,) * 100, data=bytes(8)),
    "npy of an endless axis": npy_claiming((0, 2**62, 2**62)),
    "npy of elements without size": npy_claiming((10**18,), "|S0"),
    "npy of a dtype of arrays": npy_claiming((10**6,), ("<f8", (10**6,))),
    "npy with a wrong dtype": npy_claiming((1,), "<q9", bytes(9)),
    "npy with a damaged header": ONES.replace(b"'descr'", b"'desxr'"),
    "npy whose header is code": ONES.replace(b"(100,)", b"exit()"),
    "npy of an unknown version": b"\x93NUMPY\x07\x00" + ONES[8:],
    "npy whose header is cut": ONES[:40],
    "npz of 1e18 elements": archive(a__npy=npy_claiming((10**18,))),
    "npz of 1e9 elements": archive(a__npy=npy_claiming((10**9,))),
    "npz cut": archive(a__npy=ONES)[:-10],
    "npz cut in half": archive(a__npy=ONES)[:100],
    "npz with damaged elements": archive(a__npy=ONES).replace(b"npy", b"npy\0", 1),
    "npz that claims too much": tampered(archive(a__npy=ONES), file_size=2**40),
    "npz that claims too many bytes": tampered(archive(a__npy=ONES), compress_size=2**40),
    "npz without a directory": b"PK\x03\x04" + np.random.default_rng(0).bytes(1000),
    "npz of text": archive(a__npy=b"text"),
}


@pytest.mark.parametrize("kind", MALFORMED)
def test_malformed_files_raise_a_typed_error_soon_and_with_little_memory(path, kind):
    path.write_bytes(MALFORMED[kind])
    times = []
    for _ in range(3):
        start = time.perf_counter()
        with pytest.raises(SavedFileError):
            load(path)
        times.append(time.perf_counter() - start)
    assert min(times) < 0.05
    tracemalloc.start()
    try:
        with pytest.raises(SavedFileError):
            load(path)
        assert tracemalloc.get_traced_memory()[1] < 2_000_000
    finally:
        tracemalloc.stop()


def test_errors_of_numpys_files_say_what_is_wrong(path):
    assert message_of(path, MALFORMED["npy of 1e18 elements"]) == (
        DamagedFileError,
        "is damaged: an array of shape (1000000000000000000,) and dtype float64 takes 8000000000000000000 bytes, but "
        "it has 0 for it.",
    )
    assert message_of(path, MALFORMED["npz that claims too much"]) == (
        SavedFileError,
        "is an .npz file that claims to hold more than its bytes can.",
    )
    assert message_of(path, MALFORMED["npz cut"]) == (
        DamagedFileError,
        "is a damaged zip archive: File is not a zip file.",
    )
    assert message_of(path, MALFORMED["npy whose header is code"])[1] == (
        "is damaged: its .npy header cannot be read (ValueError)."
    )


def test_bits_flipped_in_the_elements_of_an_npz_are_detected(path):
    stream = io.BytesIO()
    np.savez(stream, a=np.arange(4000.0))
    data = bytearray(stream.getvalue())
    data[data.index(np.float64(3999.0).tobytes())] ^= 1
    error, message = message_of(path, data)
    assert error is DamagedFileError
    assert message == "is a damaged zip archive: Bad CRC-32 for file 'a.npy'."


def test_two_arrays_of_one_name_are_an_error(path):
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as file:
        file.writestr("a.npy", ONES)
        with pytest.warns(UserWarning, match="Duplicate name"):
            file.writestr("a.npy", ONES)
    assert message_of(path, stream.getvalue()) == (SavedFileError, "is an .npz file that holds two arrays of one name.")


@pytest.mark.parametrize("path", [None, 1, True, io.BytesIO(b"")])
def test_only_paths_are_loaded_and_no_descriptor_is_closed(path):
    with pytest.raises(OperandError) as caught:
        load(path)
    assert str(caught.value) == f"load: wants the path of a file, not {type(path).__name__}."
    os.fstat(1)
