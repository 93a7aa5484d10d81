"""Load what was saved here or by other tools, or say what is wrong with it."""

import os
import struct
from typing import Any, BinaryIO

import numpy as np

from .._typing import NDArray
from ..core.context import current
from ..core.record import warn_user
from ..core.value import wrap
from ..errors import DamagedFileError, OperandError, SavedFileError
from ..kernels.machine import machine
from ..tensors import Tensor
from .foreign import read_exactly, read_foreign
from .format import Entry, bytes_of, check_length, checksum, parse_header
from .structure import rebuild


def load(path: str | os.PathLike[str], *, trusted: bool = False) -> Any:
    """Return the tree that a file holds, all of it and exactly as saved, or raise.

    Also reads files of other tools, told apart by their contents: plain safetensors files (a dict of tensors), ``.npz``
    (a dict of arrays) and ``.npy`` (an array). Nothing in a file is ever executed, and no pickle is read. Every tensor
    and array has memory of its own.

    May be called from any thread or process, also while the file is being saved: a reader sees the old file or the new.

    Args:
        path: the file.
        trusted: whether its description may be longer than 300,000 bytes, some 2,000 tensors. A malformed file of that
            length takes a while to refuse; a shorter one is refused within 50 ms.

    Raises:
        DamagedFileError: the file was cut short or changed.
        SavedFileError: the file is of another kind, or breaks the rules of its own.
        OSError: there is no such file, or it cannot be read.

    Example:
        >>> import os, tempfile
        >>> path = os.path.join(tempfile.mkdtemp(), "arrays.npz")
        >>> np.savez(path, x=np.arange(3), y=np.eye(2))
        >>> nt.load(path)["x"]
        array([0, 1, 2])
    """
    if not isinstance(path, str | os.PathLike):
        raise OperandError(f"load: wants the path of a file, not {type(path).__name__}.")
    with open(path, "rb") as file:
        try:
            return _load(file, os.fstat(file.fileno()).st_size, trusted)
        except SavedFileError as error:
            raise type(error)(f"load: {os.fspath(path)} {error}") from error.__cause__


def _load(file: BinaryIO, size: int, trusted: bool) -> Any:
    start = file.read(16)
    file.seek(0)
    # The first byte of a safetensors header; no other kind of file that is read here has it in this place.
    return _read_safetensors(file, size, trusted) if start[8:9] == b"{" else read_foreign(file, start, size)


def _read_safetensors(file: BinaryIO, size: int, trusted: bool) -> Any:
    length = file.read(8)
    (header_bytes,) = struct.unpack("<Q", length)
    data_bytes = size - 8 - header_bytes
    if data_bytes < 0:
        raise DamagedFileError(
            f"is damaged or no safetensors file: it has {size} bytes, and its header alone would have {header_bytes}."
        )
    check_length(header_bytes, trusted)
    header = parse_header(length, file.read(header_bytes), data_bytes)
    arrays = {entry.name: _read_array(file, entry, header.checksums) for entry in header.entries}
    if header.checksums is None:
        return {name: wrap(Tensor, array) for name, array in arrays.items()}
    _warn_of_another_machine(header.machine)
    return rebuild(header.tree, arrays)


def _warn_of_another_machine(written_on: Any) -> None:
    """Warn in strict mode if a run that goes on here will not give the bits that it would have given there."""
    says = [scope.is_strict for scope in current().scopes if scope.is_strict is not None]
    if not isinstance(written_on, dict) or not says or not says[-1]:
        return
    here = machine()
    others = [
        f"{name} {written_on[name]} there and {here[name]} here"
        for name in ("cpu", "numpy", "blas")
        if written_on.get(name, here[name]) != here[name]
    ]
    if others:
        warn_user(
            f"load: the file was written on another class of machine ({', '.join(others)}), so a run that goes on here "
            "may give other bits than there.",
        )


def _read_array(file: BinaryIO, entry: Entry, checksums: dict[str, str] | None) -> NDArray:
    """Return the next array of a file whose header was checked, so that its size is real."""
    try:
        array = np.empty(entry.shape, entry.dtype)
    except ValueError as error:
        # Without elements, and yet with an axis that NumPy cannot count along.
        raise SavedFileError(f"holds the tensor {entry.name!r} of the impossible shape {entry.shape}.") from error
    block = bytes_of(array)
    read_exactly(file, block)
    if checksums is not None and checksum(block) != checksums[entry.name]:
        raise DamagedFileError(f"is damaged: the tensor {entry.name!r} does not match its checksum.")
    if entry.dtype == np.bool_ and (block > 1).any():
        raise SavedFileError(f"breaks the safetensors format: the tensor {entry.name!r} has bools that are not 0 or 1.")
    return array.astype(entry.dtype.newbyteorder("="), copy=False)
