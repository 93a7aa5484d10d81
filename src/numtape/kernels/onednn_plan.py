"""Plans of oneDNN primitives: made once for operands of given shapes and layouts, and run on many arrays.

A plan has ports, memories that are pointed at operands and result anew in each run, and inner memories: scratch, and
operands in a layout that the primitive prefers. The inner ones lie in an arena, of which each thread has one, as
large as its largest plan needs. A plan is run by one thread at a time: `Plans` hands it out and takes it back.
"""

import ctypes
import threading
from collections import OrderedDict
from collections.abc import Hashable
from typing import Any

import numpy as np

from .._typing import Dtype, NDArray, Shape
from ..dtypes import bfloat16, float16, float32
from .onednn_library import Library, Refused

#: What oneDNN calls the dtypes.
DTYPES: dict[Dtype, int] = {float16: 1, bfloat16: 2, float32: 3}
#: Layouts: oneDNN may choose it.
ANY = 1
#: The arguments of primitives.
SRC, DST, WEIGHTS, BIAS, SCRATCHPAD = 1, 17, 33, 41, 80
DIFF_SRC, DIFF_DST, DIFF_WEIGHTS = 129, 145, 161
#: What a primitive's descriptor tells: the memory descriptor of an argument.
LAYOUT_OF = {SRC: 129, DIFF_SRC: 130, WEIGHTS: 131, DIFF_WEIGHTS: 132, DST: 133, DIFF_DST: 134, SCRATCHPAD: 136}

_ALIGNMENT = 64


class _Argument(ctypes.Structure):
    _fields_ = [("name", ctypes.c_int), ("memory", ctypes.c_void_p)]


def longs(numbers: Shape) -> Any:
    """Return numbers as the C array that oneDNN takes for shapes, strides and paddings."""
    return (ctypes.c_int64 * 12)(*numbers)


def contiguous_steps(shape: Shape) -> Shape:
    """Return the strides, in elements, of an array of this shape without gaps."""
    steps = [1]
    for length in reversed(shape[1:]):
        steps.append(steps[-1] * length)
    return tuple(reversed(steps))


class Arena(threading.local):
    """A buffer for each thread that all plans share, since a thread runs one of them at a time."""

    def __init__(self) -> None:
        self.buffer: NDArray = np.empty(0, np.uint8)
        self.address = 0

    def of_size(self, size: int) -> int:
        """Return the aligned address of at least `size` bytes."""
        if size + _ALIGNMENT > self.buffer.size:
            self.buffer = np.empty(size + _ALIGNMENT, np.uint8)
            self.address = -(-self.buffer.ctypes.data // _ALIGNMENT) * _ALIGNMENT
        return self.address


_arena = Arena()


class Plan:
    """Primitives that run one after the other on memories that they share."""

    def __init__(self, library: Library) -> None:
        self.library = library
        self._ports: list[int] = []
        self._inner: list[tuple[int, int]] = []
        self._size = 0
        self._base = 0
        self._steps: list[tuple[int, int, Any]] = []
        self._made: list[tuple[str, int]] = []

    def make(self, kind: str, name: str, *arguments: Any) -> int:
        """Make something of oneDNN's that lives as long as this plan."""
        handle = self.library.made(name, *arguments)
        self._made.append((f"{kind}_destroy", handle))
        return handle

    def __del__(self) -> None:
        while self._made:
            self.library.call(*self._made.pop())

    def layout(self, shape: Shape, dtype: Dtype, strides: Shape) -> int:
        """Return the descriptor of an array, its strides counted in elements."""
        sizes, steps = longs(shape), longs(strides)
        return self.make("memory_desc", "memory_desc_create_with_strides", len(shape), sizes, DTYPES[dtype], steps)

    def free_layout(self, shape: Shape, dtype: Dtype) -> int:
        """Return the descriptor of an array whose layout oneDNN may choose."""
        return self.make("memory_desc", "memory_desc_create_with_tag", len(shape), longs(shape), DTYPES[dtype], ANY)

    def describe(self, name: str, *arguments: Any) -> int:
        """Return the descriptor of a primitive; refuse code that is written to be right rather than fast."""
        descriptor = self.make("primitive_desc", name, *arguments)
        if self.library.implementation(descriptor).startswith("ref"):
            raise Refused(f"oneDNN: {name} has no fast code for this.")
        return descriptor

    def port(self, layout: int) -> int:
        """Return a memory that `run` points at the next of its arrays."""
        memory = self.make("memory", "memory_create", layout, self.library.engine, None)
        self._ports.append(memory)
        return memory

    def inner(self, layout: int) -> int:
        """Return a memory in the arena."""
        memory = self.make("memory", "memory_create", layout, self.library.engine, None)
        self._inner.append((memory, self._size))
        self._size += -(-self.library.byte_size(layout) // _ALIGNMENT) * _ALIGNMENT
        return memory

    def step(self, descriptor: int, memories: dict[int, int]) -> None:
        """Add a primitive by its descriptor, and the memories of its arguments."""
        primitive = self.make("primitive", "primitive_create", descriptor)
        scratch = self.library.descriptor(descriptor, LAYOUT_OF[SCRATCHPAD])
        if scratch and self.library.byte_size(scratch):
            memories = {**memories, SCRATCHPAD: self.inner(scratch)}
        arguments = (_Argument * len(memories))(*(_Argument(*pair) for pair in memories.items()))
        self._steps.append((primitive, len(memories), arguments))

    def reorder(self, source: int, source_layout: int, target: int, target_layout: int) -> None:
        """Add a copy from one layout, or dtype, to another."""
        engine, attributes = self.library.engine, self.library.attributes
        layouts = (source_layout, engine, target_layout, engine)
        descriptor = self.describe("reorder_primitive_desc_create", *layouts, attributes)
        self.step(descriptor, {SRC: source, DST: target})

    def operand(self, layout: int, wanted: int) -> int:
        """Return a port brought to the layout that a primitive wants."""
        port = self.port(layout)
        if self.library.is_equal(layout, wanted):
            return port
        inner = self.inner(wanted)
        self.reorder(port, layout, inner, wanted)
        return inner

    def run(self, *addresses: int) -> None:
        """Run all steps on the arrays at `addresses`, one for each port in the order they were made."""
        point, stream, execute = self.library.point, self.library.stream, self.library.execute
        base = _arena.of_size(self._size) if self._size else 0
        if base != self._base:
            for memory, offset in self._inner:
                point(memory, base + offset)
            self._base = base
        for memory, address in zip(self._ports, addresses, strict=True):
            point(memory, address)
        for primitive, count, arguments in self._steps:
            status = execute(primitive, stream, count, arguments)
            if status:
                raise MemoryError(f"oneDNN: a primitive returned status {status}.")


class Plans:
    """A bounded store of plans that are at rest, by what they are for."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._resting: OrderedDict[Hashable, list[Plan]] = OrderedDict()
        self._lock = threading.Lock()

    def take(self, key: Hashable) -> Plan | None:
        """Return a plan that nobody runs, or None if one must be made."""
        with self._lock:
            resting = self._resting.get(key)
            return resting.pop() if resting else None

    def give_back(self, key: Hashable, plan: Plan) -> None:
        """Keep a plan for the next who needs it; forget the one that was used longest ago if there are too many."""
        with self._lock:
            self._resting.setdefault(key, []).append(plan)
            self._resting.move_to_end(key)
            if len(self._resting) > self._most:
                self._resting.popitem(last=False)

    def __len__(self) -> int:
        return len(self._resting)
