"""Replace a file by a new one, all or nothing, whatever stops the process in between."""

import contextlib
import errno
import os
import stat
import sys
from collections.abc import Iterable
from io import FileIO
from typing import Any

if sys.platform != "win32":
    import fcntl

#: What the names of unfinished files end with.
SUFFIX = ".numtape-tmp"
#: A kernel writes 2 GB at most at a time; a signal waits for a shorter while if it is less.
_CHUNK_BYTES = 1 << 26


def replace_file(path: str | os.PathLike[str], blocks: Iterable[Any], name: str = "save") -> None:
    """Make the file at `path` hold the given blocks of bytes; until they are all on the disk, it stays as it was.

    Messages begin with the `name` of the function that writes it.

    They are written to a file of another name in the same directory and flushed to the disk; then that file takes the
    name, which the file system does at once or not at all; then the directory is flushed. If anything fails, the other
    file is removed. If the process is killed, it stays behind, and the next save in the directory removes it.
    """
    # A link keeps pointing where it does.
    target = os.path.realpath(path)
    if os.path.isdir(target):
        raise IsADirectoryError(errno.EISDIR, f"{name}: this is a directory; give the name of a file", target)
    if os.path.exists(target) and not os.path.isfile(target):
        raise OSError(errno.EINVAL, f"{name}: only a file can be replaced, not a pipe or a device", target)
    directory, own = os.path.split(target)
    if not os.path.exists(directory):
        raise FileNotFoundError(errno.ENOENT, f"{name}: there is no such directory; make it first", directory)
    remove_leftovers(directory)
    temporary, file = _create(directory, own)
    with file:
        try:
            with contextlib.suppress(FileNotFoundError):
                os.chmod(temporary, stat.S_IMODE(os.stat(target).st_mode))
            for block in blocks:
                _write_all(file.fileno(), memoryview(block))
            os.fsync(file.fileno())
            if sys.platform == "win32":
                file.close()  # Windows does not rename open files. Elsewhere the lock lasts until the name is right.
            os.replace(temporary, target)
        except BaseException as error:
            file.close()
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            if isinstance(error, OSError):
                error.add_note(f"{name}: {target} is as it was before.")
            raise
    _flush_directory(directory)


def _create(directory: str, name: str) -> tuple[str, FileIO]:
    """Return the name of a new file, and the file, locked so that no other process takes it for a leftover."""
    while True:
        # Cut, since names have 255 bytes at most.
        temporary = os.path.join(directory, f".{name[:40]}.{os.urandom(6).hex()}{SUFFIX}")
        file = open(temporary, "xb", buffering=0)  # noqa: SIM115  (the caller closes it)
        _lock(file, wait=True)
        if os.path.exists(temporary):
            return temporary, file
        # Somebody took it for a leftover before it was locked.
        file.close()


def _lock(file: FileIO, wait: bool) -> bool:
    """Lock a file until it is closed or its process ends; say whether this was possible."""
    if sys.platform == "win32":
        return True  # Files that are open cannot be removed there.
    try:
        fcntl.flock(file, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _write_all(descriptor: int, block: memoryview) -> None:
    """Write all bytes; a disk that is nearly full takes fewer than it is asked to before it says so."""
    while block:
        written = os.write(descriptor, block[:_CHUNK_BYTES])
        if not written:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        block = block[written:]


def _flush_directory(directory: str) -> None:
    """Make a rename last through a power cut."""
    if sys.platform == "win32":
        return
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno != errno.EINVAL:  # Some network file systems do not flush directories.
            raise
    finally:
        os.close(descriptor)


def remove_leftovers(directory: str) -> None:
    """Remove unfinished files of processes that were killed; those that a living process writes are locked."""
    with os.scandir(directory) as found:
        leftovers = [entry.path for entry in found if entry.name.startswith(".") and entry.name.endswith(SUFFIX)]
    for path in leftovers:
        # It may be gone by now, belong to somebody else, or lie where files cannot be locked: then it stays.
        with contextlib.suppress(OSError), open(path, "r+b", buffering=0) as file:
            if _lock(file, wait=False):
                os.unlink(path)
