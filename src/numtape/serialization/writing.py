"""Save a tree to a file."""

import os
from typing import Any

from ..errors import ArgumentError, OperandError
from ..kernels.machine import machine
from .format import MAX_HEADER_BYTES, Entry, build_header, bytes_of, checksum
from .replacing import replace_file
from .structure import describe


def save(path: Any, tree: Any) -> None:
    """Save a tree to a file; until the new file is complete and on the disk, the old one stays.

    A tree is made of tensors, NumPy arrays and scalars, numbers, strings, None, lists, tuples and dicts with string or
    integer keys. Of an object that has ``state_dict()``, such as a model, an optimizer, a loader or a generator, the
    state dict is saved. Namedtuples come back as tuples, subclasses of dict as dicts and parameters as tensors; what
    appears twice in a tree comes back as two things. Tensors keep their name and `requires_grad`, and lose graph and
    gradient.

    The file is a safetensors file, which other tools read: a tensor's name is its path in the tree, joined with dots.
    It also holds the tree and checksums, so that `load` notices any damage. Trees of more than 2,000 tensors or so are
    loaded by ``nt.load(path, trusted=True)``.

    Threads and processes may save to one path at the same time: each file is complete, and the last one stays. A
    reader sees the old file or the new one, never a part. The arrays are copied before they are written, so
    another thread may go on training: the file is valid, and what is changed during the copy is in it or not.
    On errors, a full disk among them, and on Ctrl-C the old file stays and no other is left. A killed process may leave
    a file named ``.*.numtape-tmp``, which the next save in that directory removes.

    Args:
        path: where to; the directory must exist. The arguments may also come in the other order.
        tree: what to save.

    Raises:
        OperandError: the tree holds something that cannot be saved; the message says where.
        OSError: the file cannot be written.

    Example:
        >>> import os, tempfile
        >>> path = os.path.join(tempfile.mkdtemp(), "state.safetensors")
        >>> nt.save(path, {"weight": nt.ones(2), "epoch": 3, "rng": nt.Generator(0)})
        >>> state = nt.load(path)
        >>> state["weight"], state["epoch"], sorted(state["rng"])
        (tensor([1., 1.]), 3, ['counter', 'key'])
    """
    path, tree = _in_order(path, tree)
    description, arrays = describe(tree)
    # The widest first, as the safetensors library does: so each one starts at a multiple of its element's size.
    order = sorted(arrays, key=lambda name: -arrays[name].itemsize)
    entries: list[Entry] = []
    position = 0
    for name in order:
        array = arrays[name]
        entries.append(Entry(name, array.dtype, array.shape, position, position + array.nbytes))
        position += array.nbytes
    blocks = [bytes_of(arrays[name]) for name in order]
    checksums = {name: checksum(block) for name, block in zip(order, blocks, strict=True)}
    header = build_header(entries, checksums, description, machine())
    if len(header) > MAX_HEADER_BYTES:
        raise ArgumentError(
            f"save: the tree without its arrays takes {len(header)} bytes, and {MAX_HEADER_BYTES} are possible; keep "
            "long lists of numbers as arrays."
        )
    replace_file(path, [header, *blocks])


def _in_order(first: Any, second: Any) -> tuple[Any, Any]:
    """Return path and tree. A string may be either, so the first one is the path; a Path object is never a tree."""
    if isinstance(second, os.PathLike):
        if isinstance(first, str | os.PathLike):
            raise OperandError(
                f"save: got two paths, {os.fspath(first)!r} and {os.fspath(second)!r}; give the tree to save, with "
                "paths in it as strings."
            )
        return second, first
    if isinstance(first, str | os.PathLike):
        return first, second
    if isinstance(second, str):
        return second, first
    raise OperandError(
        f"save: got a {type(first).__name__} and a {type(second).__name__}, and neither is a path; "
        "write nt.save('state.safetensors', tree)."
    )
