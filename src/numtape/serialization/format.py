"""The layout of a saved file: that of safetensors, with checksums in its metadata.

A file is 8 bytes with the length of the header, the header, which is JSON, and the elements of the tensors::

    {"__metadata__": {"numtape": "1 5d41402a", "numtape.checksums": "...", "numtape.tree": "...",
      "numtape.machine": "..."},
     "weight": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, ...}

The first entry holds the version of the format and the seal: the checksum of the length and of the header around the
seal's own digits. The second holds a checksum for each tensor, the third the tree that the tensors are leaves of, and
the last what it was written on, which older files do not have.

Checksums are CRC-32: it notices every change of up to 32 neighbouring bits, so every single flipped bit, for sure and
not just very likely, at memory speed. It does not protect against people who forge files; nothing in a file is ever
executed, so a forged one is only a file with other numbers.

All three entries mark the file as ours. Whatever single one is damaged, the others still say that checksums must be
there and must be right, so the file is not taken for one of another tool, which has none. If the key around them is
damaged, what is left is no tensor, and no safetensors file either.
"""

import json
import math
import re
import struct
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np

from .._typing import Dtype, NDArray, Shape
from ..dtypes import bfloat16
from ..errors import DamagedFileError, SavedFileError

VERSION = 1
#: The limit of the safetensors library, which could not read a longer one.
MAX_HEADER_BYTES = 100_000_000
#: The limit for headers of files that nobody vouches for, some 2,000 tensors: more cannot be judged in 50 ms.
MAX_JUDGED_BYTES = 300_000
METADATA = "__metadata__"
_SIGNED = {f"I{8 * size}": np.dtype(f"<i{size}") for size in (1, 2, 4, 8)}
_UNSIGNED = {f"U{8 * size}": np.dtype(f"<u{size}") for size in (1, 2, 4, 8)}
_FLOATS = {"F16": np.dtype("<f2"), "BF16": bfloat16, "F32": np.dtype("<f4"), "F64": np.dtype("<f8")}
#: The dtypes by their names in the file, where numbers are little-endian.
DTYPES: dict[str, Dtype] = {"BOOL": np.dtype("?"), **_SIGNED, **_UNSIGNED, **_FLOATS}
DTYPE_NAMES = {dtype: name for name, dtype in DTYPES.items()}
_FIELDS = dict.fromkeys(("dtype", "shape", "data_offsets")).keys()
_MAX_AXES = 64
_SEAL = re.compile(rb'\{"__metadata__":\{"numtape":"(\d{1,9}) ([0-9a-f]{8})"')


class Entry(NamedTuple):
    """What the header says of a tensor: where its elements are, counted from the end of the header."""

    name: str
    dtype: Dtype
    shape: Shape
    begin: int
    end: int


class Header(NamedTuple):
    """A header that was checked: the tensors by offset, and for our files their checksums and the tree."""

    entries: list[Entry]
    checksums: dict[str, str] | None
    tree: Any
    #: What the file was written on; None if it does not say.
    machine: Any = None


def checksum(*parts: Any) -> str:
    """Return the CRC-32 of blocks of bytes as eight digits."""
    total = 0
    for part in parts:
        total = crc32(part, total)
    return f"{total:08x}"


def bytes_of(array: NDArray) -> NDArray:
    """Return the elements of an array that lies in one block, in the order of memory, as bytes that share it."""
    block = array if array.flags.c_contiguous else array.T
    return block.reshape(-1).view(np.uint8)


def build_header(
    entries: Iterable[Entry], checksums: Mapping[str, str], tree: Any, machine: Mapping[str, str] | None = None
) -> bytes:
    """Return the length and the header of a file, sealed."""
    metadata = {
        "numtape": f"{VERSION} 00000000",
        "numtape.checksums": _compact(checksums),
        "numtape.tree": _compact(tree),
    }
    if machine:
        metadata["numtape.machine"] = _compact(machine)
    document: dict[str, Any] = {METADATA: metadata}
    for name, dtype, shape, begin, end in entries:
        document[name] = {"dtype": DTYPE_NAMES[dtype], "shape": shape, "data_offsets": [begin, end]}
    header = _compact(document).encode()
    header += b" " * (-len(header) % 8)  # Elements start at a multiple of 8, as mapped files like it.
    length = struct.pack("<Q", len(header))
    start, end = _seal_span(header)
    return length + header[:start] + checksum(length, header[:start], header[end:]).encode() + header[end:]


def _compact(document: Any) -> str:
    return json.dumps(document, separators=(",", ":"), allow_nan=False)


def _seal_span(header: bytes) -> tuple[int, int]:
    found = _SEAL.match(header)
    assert found is not None  # Our own headers start with it.
    return found.span(2)


def check_length(length: int, trusted: bool) -> None:
    """Raise if a header is too long, or too long to be judged quickly in a file that is not `trusted`."""
    if length > MAX_HEADER_BYTES:
        raise SavedFileError(f"has a header of {length} bytes; safetensors files have {MAX_HEADER_BYTES} at most.")
    if length > MAX_JUDGED_BYTES and not trusted:
        raise SavedFileError(
            f"has a header of {length} bytes, and above {MAX_JUDGED_BYTES} a malformed one could take long to refuse. "
            "If you know where the file comes from, give load(..., trusted=True)."
        )


def parse_header(length: bytes, header: bytes, data_bytes: int) -> Header:
    """Return what a header says, if it is intact and true of a file with `data_bytes` behind it."""
    seal = _SEAL.match(header)
    if seal:
        start, end = seal.span(2)
        if checksum(length, header[:start], header[end:]).encode() != seal[2]:
            raise DamagedFileError("is damaged: its header does not match its checksum.")
        if int(seal[1]) > VERSION:
            raise SavedFileError(f"has format {int(seal[1])}; this numtape reads up to {VERSION}: update numtape.")
    document = parse_json(header, "header", is_checked=False)
    if not isinstance(document, dict):
        raise SavedFileError("breaks the safetensors format: its header is not an object.")
    metadata = document.pop(METADATA, None) or {}
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise SavedFileError("breaks the safetensors format: its metadata are not strings.")
    if not seal and any(key.startswith("numtape") for key in metadata):
        raise DamagedFileError("is damaged: its header has no checksum.")
    entries = [_entry(name, description) for name, description in document.items()]
    entries.sort(key=lambda entry: (entry.begin, entry.end))
    _check_layout(entries, data_bytes)
    parse_json(header, "header")  # Names that come twice are looked for last, as it takes time.
    if not seal:
        return Header(entries, None, None)
    checksums = parse_json(metadata.get("numtape.checksums", ""), "list of checksums")
    if not isinstance(checksums, dict) or checksums.keys() != document.keys():
        raise SavedFileError("has a list of checksums that does not name its tensors.")
    machine = parse_json(metadata.get("numtape.machine", "null"), "description of the machine")
    return Header(entries, checksums, parse_json(metadata.get("numtape.tree", ""), "tree"), machine)


def parse_json(text: bytes | str, what: str, is_checked: bool = True) -> Any:
    """Return a JSON document; numbers are finite and, if that `is_checked`, no name may come twice."""
    try:
        decoded = text.decode() if isinstance(text, bytes) else text
        hook = _unique if is_checked else None
        return json.loads(decoded, object_pairs_hook=hook, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise SavedFileError(f"is damaged or no safetensors file: its {what} is not valid JSON ({error}).") from error


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name comes twice")
    return found


def _refuse_constant(constant: str) -> Any:
    raise ValueError(f"{constant} is no number")


def _entry(name: str, description: Any) -> Entry:
    """Return one tensor's entry, or raise if it is not one, or contradicts itself."""
    if not isinstance(description, dict) or description.keys() != _FIELDS:
        raise _no_tensor(name)
    dtype_name, shape, offsets = map(description.get, _FIELDS)
    if not isinstance(dtype_name, str) or not isinstance(shape, list):
        raise _no_tensor(name)
    if not isinstance(offsets, list) or len(offsets) != 2:
        raise _no_tensor(name)
    if dtype_name not in DTYPES:
        raise SavedFileError(
            f"holds the tensor {_shown(name)} of dtype {dtype_name[:20]!r}, which numtape does not compute with; "
            f"its dtypes are {', '.join(DTYPES)}."
        )
    if len(shape) > _MAX_AXES or not _are_lengths(shape) or not _are_lengths(offsets):
        raise SavedFileError(
            f"breaks the safetensors format: the tensor {_shown(name)} has an impossible shape or offset."
        )
    dtype = DTYPES[dtype_name]
    begin, end = offsets
    if math.prod(shape) * dtype.itemsize != end - begin:
        raise SavedFileError(
            f"breaks the safetensors format: the tensor {_shown(name)} has shape {tuple(shape)} and dtype "
            f"{dtype_name}, but {end - begin} bytes."
        )
    return Entry(name, dtype, tuple(shape), begin, end)


def _no_tensor(name: str) -> SavedFileError:
    return SavedFileError(f"breaks the safetensors format: the entry {_shown(name)} does not describe a tensor.")


def _shown(name: str) -> str:
    return repr(name[:80])


def _are_lengths(numbers: list[Any]) -> bool:
    return all(type(number) is int and 0 <= number < 2**63 for number in numbers)


def _check_layout(entries: list[Entry], data_bytes: int) -> None:
    """Raise unless the tensors follow one another without gaps or overlaps up to the end of the file."""
    position = 0
    for entry in entries:
        if entry.begin != position:
            raise SavedFileError(
                f"breaks the safetensors format: the tensor {entry.name!r} starts at {entry.begin}, not at {position}, "
                "where the one before it ends."
            )
        position = entry.end
    if position != data_bytes:
        raise DamagedFileError(f"is damaged: its tensors take {position} bytes, but it has {data_bytes} for them.")
