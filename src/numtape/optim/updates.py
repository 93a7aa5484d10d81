"""Apply a rule to parameters: in place, in blocks that fit the cache, all or nothing towards interrupts."""

from operator import is_not
from typing import Any

import numpy as np

from .._typing import Dtype, NDArray
from ..core.context import current, settle
from ..core.value import Value, make_writable, wrap, writes_to
from ..core.write import mark_unrecorded
from ..dtypes import widened
from ..kernels import pool
from .interrupts import uninterrupted
from .program import Program
from .rule import MASTER, Group, Rule, State

#: Blocks that a thread must have to be worth its waking.
_LEAST_BLOCKS = 2
#: What `Program.run` takes for a block: the parameter's memory, where the gradient's lies, and all that follows them.
Block = tuple[NDArray, Any, tuple[NDArray, ...]]


class Slot:
    """A parameter with its state, laid out for programs; made anew if its memory is replaced."""

    __slots__ = (
        "_arrays",
        "_blocks",
        "_lanes",
        "_program",
        "_scratch",
        "_writes",
        "master",
        "names",
        "numbers",
        "param",
        "pattern",
        "state",
    )

    def __init__(self, param: Value, state: State) -> None:
        self.param = param
        self.state = state
        self.names = tuple(name for name, value in state.items() if isinstance(value, Value) and name != MASTER)
        self.numbers = tuple(name for name, value in state.items() if not isinstance(value, Value))
        self._arrays = [param.array, *(state[name].array for name in self.names)]
        self._program: Program | None = None
        self._blocks: list[Block] = []
        #: How many threads may share the blocks, each of which has scratch memory for one.
        self._lanes = 1
        #: The pattern of options that the program was made for.
        self.pattern: Any = None
        #: A half parameter in float32, which is what steps change; None for the others.
        self.master: NDArray | None = state[MASTER].array if MASTER in state else None
        #: Where the gradient of a half parameter is widened, block by block.
        self._scratch: NDArray | None = None
        #: How often the parameter had been written to when the master last agreed with it.
        self._writes: int | None = None

    def is_stale(self, state: State) -> bool:
        """Say whether the parameter or its state have got other memory since this was made."""
        if self.state is not state or self.param.array is not self._arrays[0]:
            return True
        if len(state) != len(self.names) + len(self.numbers) + (self.master is not None):
            return True
        if self.master is not None and getattr(state.get(MASTER), "array", None) is not self.master:
            return True
        held = [getattr(state.get(name), "array", None) for name in self.names]
        return any(map(is_not, held, self._arrays[1:]))

    def prepare(self, rule: Rule, group: Group, pattern: Any) -> None:
        """Find the program for a pattern of options, and cut the memory into blocks for it."""
        dtype = widened(self.param.dtype)
        is_alike = all(each.shape == self.param.shape and each.dtype == dtype for each in self._arrays[1:])
        program = rule.program(group, pattern, (self.names, self.numbers), dtype) if is_alike else None
        self.pattern, self._program, self._blocks, self._lanes = pattern, program, [], 1
        if program is None:
            return
        if not all(each.flags.c_contiguous for each in self._arrays):
            rest = program.rest_like(self.param.array)
            self._blocks = [(self._arrays[0], ..., (*self._arrays[1:], *rest))]
        else:
            flat = [each.reshape(-1) for each in self._arrays]
            starts = range(0, flat[0].size, program.block)
            if self.master is None:
                self._lanes = max(1, min(pool.threads(), len(starts) // _LEAST_BLOCKS))
            for number, start in enumerate(starts):
                part = slice(start, min(start + program.block, flat[0].size))
                first, *others = (each[part] for each in flat)
                rest = program.rest(first.size, number % self._lanes)
                self._blocks.append((first, part, (*others, *rest)))
        if self.master is not None and self._blocks:
            self._scratch = np.empty(self._blocks[0][0].shape, dtype)

    def follow(self) -> None:
        """Let the master take what others have written to a half parameter: a loaded model, a new initialisation."""
        writes = writes_to(self.param)
        if self.master is not None and writes != self._writes:
            array = self.param.array
            is_other = self.master.astype(array.dtype) != array
            np.copyto(self.master, array, where=is_other)
            self._writes = writes

    def agree(self) -> None:
        """Note that a step wrote the parameter, and that the master agrees with it."""
        mark_unrecorded(self.param)
        self._writes = writes_to(self.param)

    @property
    def dtype(self) -> Dtype:
        """The dtype that the parameter had when this was made."""
        dtype: Dtype = self._arrays[0].dtype
        return dtype

    @property
    def program(self) -> Program | None:
        """The program that `run` runs; None if the rule has to run on whole tensors."""
        return self._program

    def run(self, grad: NDArray) -> None:
        """Run the program on each block; its numbers are those of the step."""
        assert self._program is not None
        run = self._program.run
        if self._blocks and self._blocks[0][1] is not ...:
            grad = grad.reshape(-1)
        if self.master is not None:
            return self._run_master(grad)
        if self._lanes > 1 and pool.threads() > 1:
            pool.run(self._run_lane, [(grad, lane) for lane in range(self._lanes)])
            return None
        for param, part, rest in self._blocks:
            run(param, grad[part], *rest)
        return None

    def _run_lane(self, grad: NDArray, lane: int) -> None:
        """Run the program on the blocks of one of the threads that share them."""
        assert self._program is not None
        with np.errstate(all="ignore"):  # A thread has a state of its own.
            for param, part, rest in self._blocks[lane :: self._lanes]:
                self._program.run(param, grad[part], *rest)

    def _run_master(self, grad: NDArray) -> None:
        """Run the program on the master, and round it to the parameter."""
        assert self._program is not None
        assert self.master is not None
        for param, part, rest in self._blocks:
            assert self._scratch is not None
            wide = self.master if part is ... else self.master.reshape(-1)[part]
            wide_grad = self._scratch if part is ... else self._scratch[: param.size]
            np.copyto(wide_grad, grad[part])
            self._program.run(wide, wide_grad, *rest)
            np.copyto(param, wide, casting="same_kind")


class Updates:
    """The updates of one optimizer: its rule and a slot for each parameter."""

    def __init__(self, rule: Rule) -> None:
        self.rule = rule
        self._slots: dict[Value, Slot] = {}

    def forget(self) -> None:
        """Look at parameters and states anew, since they were replaced."""
        self._slots = {}

    def apply(self, jobs: list[tuple[Group, list[tuple[Value, NDArray]]]], states: dict[Value, State]) -> None:
        """Update parameters by their gradients: all of them and their states, or none if a rule raises.

        An interrupt waits for the end. Nothing is written before every rule that runs on whole tensors has run.
        """
        with uninterrupted(), np.errstate(all="ignore"):
            settle(current())
            planned = []
            for group, pairs in jobs:
                numbers, pattern = self.rule.read(group)
                for param, grad in pairs:
                    slot = self._slot(param, group, pattern, states)
                    whole = None if slot.program is not None else self.rule.run_whole(param, grad, slot.state, group)
                    planned.append((slot, grad, numbers, whole))
            _write(planned)

    def _slot(self, param: Value, group: Group, pattern: Any, states: dict[Value, State]) -> Slot:
        slot = self._slots.get(param)
        state = states.get(param)
        if slot is None or state is None or slot.pattern != pattern or slot.is_stale(state):
            make_writable(param)
            if state is None or slot is None or slot.pattern != pattern:
                # Other options may need a state that these did not.
                state = states[param] = {**self.rule.init(param, group), **(state or {})}
            if slot is not None and slot.dtype != param.dtype:
                state = states[param] = _converted(state, self.rule.init(param, group))
            if widened(param.dtype) == param.dtype:
                state.pop(MASTER, None)
            slot = self._slots[param] = Slot(param, state)
            slot.prepare(self.rule, group, pattern)
        slot.follow()
        return slot


def _converted(state: State, fresh: State) -> State:
    """Return a state in the dtypes of a fresh one, after its parameter got another dtype."""
    new = {**{name: value for name, value in fresh.items() if name == MASTER}, **state}
    for name, value in fresh.items():
        held = state.get(name)
        if isinstance(value, Value) and isinstance(held, Value) and held.dtype != value.dtype:
            new[name] = wrap(held.plain, held.array.astype(value.dtype))
    return new


def _write(planned: list[tuple[Slot, NDArray, list[float], tuple[NDArray, State] | None]]) -> None:
    last: Any = None
    new: list[Any] = []
    for slot, grad, numbers, whole in planned:
        if whole is not None:
            _write_whole(slot, *whole)
            continue
        program, state = slot.program, slot.state
        assert program is not None
        given = [*numbers, *(state[name] for name in slot.numbers)]
        # Most parameters of a group share their numbers: these are computed once.
        if last != (program, given):
            new = program.numbers(given)
            last = (program, given)
        slot.run(grad)
        for name, value in zip(slot.numbers, new, strict=True):
            state[name] = value
        slot.agree()


def _write_whole(slot: Slot, param: NDArray, state: State) -> None:
    if slot.master is not None:
        np.copyto(slot.master, param, casting="same_kind")
    np.copyto(slot.param.array, param, casting="same_kind")
    slot.agree()
    for name, value in state.items():
        held = slot.state[name]
        if isinstance(held, Value):
            np.copyto(held.array, value, casting="same_kind")
        else:
            slot.state[name] = value
