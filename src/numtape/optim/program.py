"""A captured rule as two compiled functions: one for its numbers, and one that updates a block of memory in place."""

from collections.abc import Iterable
from typing import Any

import numpy as np

from .._typing import Dtype, NDArray
from .capture import Instruction, Trace

#: The bytes of one operand that a block works on: scratch memory stays in the cache, and calls weigh little.
BLOCK_BYTES = 1 << 20


def _store(value: Any, out: NDArray) -> None:
    np.copyto(out, value, casting="same_kind")


class Program:
    """Runs a captured rule.

    Args:
        trace: the instructions.
        arrays: the values that hold the parameter, its gradient and the arrays of the state, in this order.
        results: for each of `arrays` the value that it gets in the end; None leaves it as it is.
        numbers: the values of the numbers that are given in each step.
        new_numbers: the values of the numbers that are wanted back.

    `source` shows what runs on each block: ``a0`` is the parameter, ``a1`` the gradient, ``a2`` and so on the state,
    ``c0`` and so on the numbers, ``t0`` and so on scratch memory.
    """

    def __init__(
        self, trace: Trace, arrays: list[int], results: list[int | None], numbers: list[int], new_numbers: list[int]
    ) -> None:
        self.dtype = trace.dtype
        self.block = BLOCK_BYTES // trace.dtype.itemsize
        results = _apart(trace, arrays, results)
        live = _live(trace.instructions, [*(r for r in results if r is not None), *new_numbers])
        on_numbers = [each for each in live if trace.kinds[each.output] is None]
        on_arrays = [each for each in live if trace.kinds[each.output] is not None]
        # Numbers that instructions on arrays read, as arrays without axes: NumPy takes these twice as fast.
        read = sorted({i for each in on_arrays for i in each.inputs if trace.kinds[i] is None})
        self._constants = np.zeros(len(read), trace.dtype)
        self._views = tuple(self._constants[i : i + 1].reshape(()) for i in range(len(read)))
        self._compute_numbers = _compile_numbers(trace, on_numbers, numbers, read, new_numbers)
        allocation = _Allocation(trace, on_arrays, arrays, read, results)
        self.source = allocation.source
        self.run = _compile("run", self.source, allocation.functions)
        #: What tells it from other programs.
        self.content = (self.source, trace.constants, [(each.inputs, each.output) for each in live])
        self._scratch_dtypes = tuple(allocation.scratch)
        #: Scratch memory, by the size of a block and the lane that it runs in.
        self._cut: dict[tuple[int, int], tuple[NDArray, ...]] = {}

    def numbers(self, given: Iterable[Any]) -> list[Any]:
        """Compute the numbers of a step, keep those that blocks read, and return the new numbers of the state."""
        read, new = self._compute_numbers(*given)
        self._constants[:] = read
        return [each.item() if isinstance(each, np.ndarray | np.generic) else each for each in new]

    def rest(self, size: int, lane: int = 0) -> tuple[NDArray, ...]:
        """Return what `run` takes after the arrays of a block of `size` elements: numbers and scratch memory.

        Blocks of one lane have it in common; threads that run at once have lanes of their own.
        """
        if (self.block, lane) not in self._cut:
            self._cut[self.block, lane] = tuple(np.empty(self.block, dtype) for dtype in self._scratch_dtypes)
        if (size, lane) not in self._cut:
            self._cut[size, lane] = tuple(each[:size] for each in self._cut[self.block, lane])
        return self._views + self._cut[size, lane]

    def rest_like(self, array: NDArray) -> tuple[NDArray, ...]:
        """Return the same for an array that is worked on whole, with scratch memory of its shape."""
        return self._views + tuple(np.empty_like(array, dtype) for dtype in self._scratch_dtypes)


class _Allocation:
    """Gives each value of a rule a place: in an array that is replaced and read no more, or in scratch memory.

    A result goes to the array that it replaces if that is free when it is computed, and is copied there in the end if
    not. Until then other values may use it, which saves memory for the cache.
    """

    def __init__(
        self,
        trace: Trace,
        instructions: list[Instruction],
        arrays: list[int],
        numbers: list[int],
        results: list[int | None],
    ) -> None:
        self.names = {value: f"a{i}" for i, value in enumerate(arrays)} | {v: f"c{i}" for i, v in enumerate(numbers)}
        self.scratch: list[Dtype] = []
        self.functions: dict[str, Any] = {"store": _store, "copyto": np.copyto}
        self._lines: list[str] = []
        self._last = {value: at for at, each in enumerate(instructions) for value in each.inputs}
        homes = {result: f"a{i}" for i, result in enumerate(results) if result is not None}
        self._last.update(dict.fromkeys(homes, len(instructions)))
        #: The dtypes of the places that may be written, and which of them are free.
        self._places = dict.fromkeys(homes.values(), trace.dtype)
        self._free = [home for home in self._places if arrays[int(home[1:])] not in self._last]
        parameters = list(self.names.values())
        for at, each in enumerate(instructions):
            inputs = [self.names[value] for value in each.inputs]
            # Elementwise functions may write over what they read for the last time.
            self._release(each.inputs, at)
            kind = trace.kinds[each.output]
            self.names[each.output] = self._take(kind, homes.get(each.output))
            self._write(each.function, inputs, self.names[each.output])
        self._lines += [f"copyto({home}, {self.names[v]})" for v, home in homes.items() if self.names[v] != home]
        parameters += [f"t{i}" for i in range(len(self.scratch))]
        self.source = f"def run({', '.join(parameters)}):\n    " + "\n    ".join(self._lines or ["pass"]) + "\n"

    def _release(self, values: tuple[int, ...], at: int) -> None:
        for value in dict.fromkeys(values):
            if self.names[value] in self._places and self._last[value] == at:
                self._free.append(self.names[value])

    def _take(self, kind: Dtype | None, home: str | None) -> str:
        """Return a place for a value of some dtype; `home` is the array that it replaces, if it is a result."""
        assert kind is not None
        usable = [place for place in self._free if self._places[place] == kind]
        if home is not None:
            # A result must not end up in the array of another one.
            usable = [home] if home in usable else [place for place in usable if place.startswith("t")]
        if usable:
            self._free.remove(usable[-1])  # What was used last is still in the cache.
            return usable[-1]
        place = f"t{len(self.scratch)}"
        self.scratch.append(kind)
        self._places[place] = kind
        return place

    def _write(self, function: Any, inputs: list[str], out: str) -> None:
        name = getattr(function, "__name__", "")
        if not isinstance(function, np.ufunc) or self.functions.get(name, function) is not function:
            name = f"f{len(self.functions)}"
        self.functions[name] = function
        call = f"{name}({', '.join(inputs)}"
        self._lines.append(f"{call}, out={out})" if isinstance(function, np.ufunc) else f"store({call}), {out})")


def _apart(trace: Trace, arrays: list[int], results: list[int | None]) -> list[int | None]:
    """Give each result a value of its own: an array that moves to another place, or to two, is copied first."""
    taken: set[int] = set()
    found: list[int | None] = []
    for array, result in zip(arrays, results, strict=True):
        if result is None or result == array:
            found.append(None)
            continue
        if result in arrays or result in taken:
            copied = trace.array().number
            trace.instructions.append(Instruction(np.positive, (result,), copied))
            result = copied
        taken.add(result)
        found.append(result)
    return found


def _live(instructions: list[Instruction], wanted: list[int]) -> list[Instruction]:
    """Return the instructions that the wanted values need, in order."""
    needed = set(wanted)
    found = []
    for each in reversed(instructions):
        if each.output in needed:
            needed.update(each.inputs)
            found.append(each)
    return found[::-1]


def _compile_numbers(
    trace: Trace, instructions: list[Instruction], given: list[int], read: list[int], new: list[int]
) -> Any:
    """Return a function of the given numbers that returns those that blocks read and those that the state gets."""
    functions: dict[str, Any] = {f"n{number}": value for number, value in trace.constants.items()}
    lines = []
    for at, each in enumerate(instructions):
        functions[f"f{at}"] = each.function
        lines.append(f"n{each.output} = f{at}({', '.join(f'n{i}' for i in each.inputs)})")
    results = ", ".join(f"({''.join(f'n{i}, ' for i in numbers)})" for numbers in (read, new))
    body = "\n    ".join([*lines, f"return {results}"])
    return _compile("numbers", f"def numbers({', '.join(f'n{i}' for i in given)}):\n    {body}\n", functions)


def _compile(name: str, source: str, functions: dict[str, Any]) -> Any:
    # One function with everything in its place takes a third of the time of a loop over instructions.
    space = dict(functions)
    exec(compile(source, f"<captured {name}>", "exec"), space)
    return space.pop(name)  # A function that is among its own globals would be a cycle.
