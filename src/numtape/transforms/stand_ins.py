"""What stands for arrays in a walk through a backward: the bytes of buffers that are alive."""

from collections.abc import Sequence
from typing import Any

from .._typing import NDArray
from ..core.buffers import buffer_of, held_by_others
from ..core.recompute import array_if_alive
from ..core.record import Record
from ..core.restoring import cotangent_bytes
from ..core.value import Value
from .dropping import Dropping
from .layouts import Strides, in_rows


class Count:
    """The bytes of the buffers of a walk that are alive, now and at most, and those of them that cotangents take."""

    __slots__ = ("live", "moved", "peak")

    def __init__(self) -> None:
        self.live = self.moved = self.peak = 0


class Buffer:
    """Stands for an array and its views in a walk, and is counted as long as it lives."""

    __slots__ = ("__weakref__", "_count", "nbytes")

    def __init__(self, count: Count, nbytes: int) -> None:
        self._count = count
        self.nbytes = nbytes
        count.live += nbytes
        count.peak = max(count.peak, count.live)

    def __del__(self) -> None:
        self._count.live -= self.nbytes


class Cotangent(Buffer):
    """Stands for a cotangent and its views; `strides` are those of several arrays, too, where nobody asks for them."""

    __slots__ = ("_is_moved", "strides")

    def __init__(self, count: Count, record: Record, strides: Strides | None = None) -> None:
        self.strides: Strides = in_rows(() if isinstance(record.shape, list) else record.shape)
        if strides is not None:
            self.strides = strides
        super().__init__(count, cotangent_bytes(record))
        self._is_moved = True
        count.moved += self.nbytes

    def stay(self) -> None:
        """Be asked for, and so held to the end."""
        if self._is_moved:
            self._is_moved = False
            self._count.moved -= self.nbytes

    def leave(self) -> None:
        """Become the gradient of a leaf, which does not count."""
        self.stay()
        self._count.live -= self.nbytes
        self.nbytes = 0

    def __del__(self) -> None:
        self.stay()
        super().__del__()


class View:
    """Stands for a cotangent that is a view of another: nothing is added to it in place."""

    __slots__ = ("base", "strides")

    def __init__(self, of: "Cotangent | View", strides: Strides) -> None:
        self.base: Cotangent = of.base if isinstance(of, View) else of
        self.strides = strides

    def stay(self) -> None:
        """Be asked for, and so held to the end."""
        self.base.stay()


def _arrays(array: Any) -> tuple[Any, ...]:
    """Return the arrays that there are for a record: none, one or several."""
    return () if array is None else array if isinstance(array, tuple) else (array,)


class KeptBuffers:
    """What stands for the arrays that records keep: one for each buffer, however many arrays are views of it."""

    def __init__(self, scope: Dropping, records: Sequence[Record], count: Count) -> None:
        self._account = scope.account
        self._count = count
        self._made: dict[int, Buffer] = {}
        #: The memory of leaves, which does not count.
        self._outside = {
            id(buffer_of(link.array)) for record in records for link in record.inputs if isinstance(link, Value)
        }
        #: The bytes of those buffers that the account counts, too.
        self.known = 0
        kept = [array for record in records if record.is_kept for array in _arrays(record.array)]
        found = [array for record in records if not record.is_kept for array in _arrays(array_if_alive(record))]
        ids = held_by_others(kept, found)
        self.held = [self.of(array) for array in (*kept, *found) if id(buffer_of(array)) in ids]

    def bytes_besides(self, arrays: Sequence[NDArray]) -> int:
        """Return the bytes of arrays that the account counts, and that are in the memory of no record."""
        buffers = {id(buffer): buffer for buffer in map(buffer_of, arrays)}
        known = self._account.buffers
        return sum(buffer.nbytes for key, buffer in buffers.items() if key not in self._made and buffer in known)

    def of(self, array: Any) -> Any:
        """Return what stands for an array, or for each of several; None for none."""
        if array is None:
            return None
        if isinstance(array, tuple):
            return tuple(map(self.of, array))
        buffer = buffer_of(array)
        if id(buffer) not in self._made:
            is_known = array in self._account.buffers
            counts = is_known or id(buffer) not in self._outside
            self._made[id(buffer)] = Buffer(self._count, buffer.nbytes if counts else 0)
            self.known += buffer.nbytes if is_known else 0
        return self._made[id(buffer)]
