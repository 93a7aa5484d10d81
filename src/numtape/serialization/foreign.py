"""Read NumPy's files without trusting what they claim, and name the kinds that cannot be read."""

import math
from typing import IO, Any, BinaryIO

import numpy as np

from .._typing import Dtype, NDArray, Shape
from ..errors import DamagedFileError, SavedFileError
from .format import bytes_of

_NPY = b"\x93NUMPY"
_ZIP = b"PK\x03\x04"
_EMPTY_ZIP = b"PK\x05\x06"
#: Deflate makes nothing smaller than this; a file that claims more is a trap.
_MAX_RATIO = 1032
_KINDS = {
    b"\x89HDF\r\n\x1a\n": "is an HDF5 file; read it with h5py and save its arrays with nt.save.",
    b"\x1f\x8b": "is compressed by gzip; decompress it first.",
    b"GGUF": "is a GGUF file; read it with the package gguf and save its arrays with nt.save.",
}
_FROM_TORCH = (
    "numtape does not unpickle, since that can run code. Where PyTorch is installed, convert it: "
    "safetensors.torch.save_file(torch.load(path, weights_only=True), 'model.safetensors')."
)


def read_foreign(file: BinaryIO, start: bytes, size: int) -> Any:
    """Return what a file of NumPy's holds, or raise an error that names the kind of file."""
    if not size:
        raise DamagedFileError("is empty.")
    if start.startswith(_NPY):
        return _read_npy(file, size)
    if start.startswith((_ZIP, _EMPTY_ZIP)):
        return _read_zip(file, size)
    for magic, kind in _KINDS.items():
        if start.startswith(magic):
            raise SavedFileError(kind)
    if start[:1] == b"\x80" and start[1:2] in (b"\x02", b"\x03", b"\x04", b"\x05"):
        raise SavedFileError(f"is a pickle, perhaps from torch.save or joblib; {_FROM_TORCH}")
    raise SavedFileError(
        "is neither a safetensors, .npz nor .npy file, or it is damaged at its beginning; it starts with "
        f"{start[:8]!r}."
    )


def read_exactly(file: IO[bytes], block: NDArray) -> None:
    """Fill a block of bytes from a file, or raise if the file ends before."""
    view = block.data
    while view:
        count = file.readinto(view)  # type: ignore[attr-defined]
        if not count:
            raise DamagedFileError(f"is damaged: it ends {len(view)} bytes too early.")
        view = view[count:]


def _read_npy(file: IO[bytes], size: int) -> NDArray:
    """Return the array of an ``.npy`` file of `size` bytes.

    NumPy's own reader allocates what the header claims; this one compares the claim with the size first.
    """
    shape, is_fortran, dtype, header_bytes = _read_npy_header(file)
    if dtype.hasobject:
        raise SavedFileError("holds Python objects, which are pickled; numtape does not unpickle. Save plain arrays.")
    claimed = math.prod(shape) * dtype.itemsize
    if claimed != size - header_bytes:
        raise DamagedFileError(
            f"is damaged: an array of shape {shape} and dtype {dtype} takes {claimed} bytes, but it has "
            f"{size - header_bytes} for it."
        )
    try:
        array = np.empty(shape, dtype, order="F" if is_fortran else "C")
    except ValueError as error:
        raise SavedFileError(f"holds an array of the impossible shape {shape}.") from error
    if claimed:
        read_exactly(file, bytes_of(array))
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def _read_npy_header(file: IO[bytes]) -> tuple[Shape, bool, Dtype, int]:
    """Return shape, order, dtype and the number of bytes up to the elements."""
    form = np.lib.format
    try:
        read = {1: form.read_array_header_1_0, 2: form.read_array_header_2_0}[form.read_magic(file)[0]]
        shape, is_fortran, dtype = read(file)
    except Exception as error:  # The header is a Python literal, whose parser fails in many ways.
        raise DamagedFileError(f"is damaged: its .npy header cannot be read ({type(error).__name__}).") from error
    if any(length < 0 for length in shape) or not dtype.itemsize:
        raise SavedFileError(f"holds an array of the impossible shape {shape} or dtype {dtype}.")
    return shape, is_fortran, dtype, file.tell()


def _read_zip(file: BinaryIO, size: int) -> dict[str, NDArray]:
    """Return the arrays of an ``.npz`` file, or raise if the archive holds anything else."""
    import zipfile  # Only here, since it imports a lot.

    try:
        with zipfile.ZipFile(file) as archive:
            members = archive.infolist()
            _check_members(members, size)
            return {member.filename.removesuffix(".npy"): _read_member(archive, member) for member in members}
    except SavedFileError:
        raise
    except Exception as error:  # The parser of archives fails in many ways, too.
        raise DamagedFileError(f"is a damaged zip archive: {error}.") from error


def _check_members(members: list[Any], size: int) -> None:
    """Raise unless an archive holds arrays alone, of sizes that can be true."""
    names = [member.filename for member in members]
    if any(name.split("/")[-1] == "data.pkl" for name in names):
        raise SavedFileError(f"is a file of torch.save; {_FROM_TORCH}")
    if not all(name.endswith(".npy") for name in names):
        raise SavedFileError("is a zip archive, but not of arrays alone, as .npz files are; unpack it first.")
    if len(set(names)) != len(names):
        raise SavedFileError("is an .npz file that holds two arrays of one name.")
    is_possible = all(member.file_size <= _MAX_RATIO * member.compress_size for member in members)
    if not is_possible or sum(member.compress_size for member in members) > size:
        raise SavedFileError("is an .npz file that claims to hold more than its bytes can.")


def _read_member(archive: Any, member: Any) -> NDArray:
    with archive.open(member) as file:
        array = _read_npy(file, member.file_size)
        file.read(1)  # At its end the archive's own checksum is compared.
    return array
