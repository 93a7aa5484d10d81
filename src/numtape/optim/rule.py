"""An optimizer's rule as the engine calls it: which options it reads, and its captured program for each case."""

import inspect
import math
import weakref
from contextlib import suppress
from types import FunctionType
from typing import Any

import numpy as np

from .._typing import Dtype
from ..core.binding import check_untracked
from ..core.scopes import aside
from ..core.value import Value, wrap
from ..dtypes import float32, is_float, widened
from ..errors import DtypeError, OperandError, ShapeError
from ..tensors import Tensor
from .capture import Symbol, Trace
from .parameters import check_option
from .program import Program
from .reads import Reads, is_plain

Group = dict[str, Any]
State = dict[str, Any]
#: The names of the arrays and of the numbers of a state.
Layout = tuple[tuple[str, ...], tuple[str, ...]]

#: The part of the state of a half parameter that holds it in float32: steps too small for the half type add up there.
MASTER = "master"

_NUMBERS = (int, float)
#: A rule with options that change in each step, yet are no numbers, would fill the memory.
_MOST_PROGRAMS = 256


class Rule:
    """The methods `init` and `update` of an optimizer, called with the options that their parameters name.

    Options that are numbers reach a captured rule as symbols, so that a schedule may change them in each step. One that
    is zero stays zero, and all others count as true: a rule may skip what it does not need. Anything else is told by
    its value, and another value makes another program.
    """

    def __init__(self, optimizer: Any) -> None:
        # Weak, since the optimizer owns the rule: no cycle keeps parameters alive after it.
        self._owner = weakref.ref(optimizer)
        self._name = type(optimizer).__name__
        self._init_options = _options(optimizer.init, 1)
        self._update_options = _options(optimizer.update, 4)
        self._programs: dict[Any, Program | None] = {}
        self._reads: Reads | None = None
        self._function: FunctionType | None = None
        #: How often the rule was looked at, since it called other functions than before.
        self._generation = 0

    @property
    def option_names(self) -> set[str]:
        """The options that the rule names."""
        return {*self._init_options, *self._update_options}

    @property
    def _optimizer(self) -> Any:
        return self._owner()

    def check_options(self, group: Group) -> None:
        """Raise if the rule names an option that the group does not have."""
        for method, names in (("init", self._init_options), ("update", self._update_options)):
            for name, is_required in names.items():
                if is_required and name not in group:
                    raise OperandError(
                        f"{self._name}.{method}: there is no option {name!r}; the options are "
                        f"{', '.join(each for each in group if each != 'params')}. Give it to Optimizer.__init__."
                    )

    def init(self, param: Value, group: Group) -> State:
        """Return the state of a parameter that is met for the first time; float32 for a half one, with a copy of it."""
        options = {name: group[name] for name in self._init_options if name in group}
        with aside(grad=False):
            seen = wrap(param.plain, param.array.astype(float32) if _is_half(param.dtype) else param.array)
            state = self._optimizer.init(seen, **options)
        if not isinstance(state, dict):
            raise OperandError(
                f"{self._name}.init: returned {type(state).__name__}; the state is a dict of tensors and numbers."
            )
        made = {name: self._checked(name, value, param) for name, value in state.items()}
        if _is_half(param.dtype):
            if MASTER in made:
                raise OperandError(
                    f"{self._name}.init: state {MASTER!r} is where a half parameter is kept in float32; choose another "
                    "name."
                )
            made[MASTER] = wrap(param.plain, param.array.astype(float32))
        return made

    def _checked(self, name: str, value: Any, param: Value) -> Any:
        if isinstance(value, np.generic):
            return value.item()
        if isinstance(value, _NUMBERS):
            return value
        if not isinstance(value, Value | np.ndarray):
            raise OperandError(
                f"{self._name}.init: state {name!r} is of type {type(value).__name__}; it is a tensor, an array or a "
                "number."
            )
        # Memory of its own: the state is written in place.
        return wrap(param.plain, np.array(value.array if isinstance(value, Value) else value))

    def read(self, group: Group) -> tuple[list[float], Any]:
        """Return the numbers among the options of a group, and a pattern that tells which program fits them."""
        rate = group.get("lr")
        if type(rate) is not float or not 0.0 <= rate < math.inf:
            rate = check_option(f"{self._name}.step", "lr", rate)
        numbers = [rate]
        pattern: list[Any] = [self._ascends(group)]
        is_known = True
        for name in self._update_options:
            option = group.get(name)
            if not is_plain(option):
                check_untracked(f"{self._name}.step", name, option)  # An update is not recorded.
                is_known = False
            for value in option if type(option) is tuple else (option,):
                if isinstance(value, _NUMBERS) and not isinstance(value, bool) and value:
                    numbers.append(value)
                    pattern.append(_NUMBERS)
                else:
                    pattern.append(value)
        # What a rule reads from elsewhere is part of the program.
        elsewhere = self._read_elsewhere() if is_known else None
        return numbers, (*pattern, self._generation, elsewhere)

    def _ascends(self, group: Group) -> bool:
        """Say whether to follow the gradient uphill, which the rule need not know; one that names the option does."""
        return bool(group.get("maximize")) and "maximize" not in self._update_options

    def _read_elsewhere(self) -> str | None:
        optimizer = self._optimizer
        function = getattr(optimizer.update, "__func__", None)
        if not isinstance(function, FunctionType):
            return None
        # Not before the subclass has set its attributes.
        if self._reads is None or self._function is not function or not self._reads.is_current(optimizer):
            self._reads, self._function = Reads(optimizer, function), function
            self._programs.clear()
            self._generation += 1
        return self._reads.values(optimizer)

    def program(self, group: Group, pattern: Any, layout: Layout, dtype: Dtype) -> Program | None:
        """Return the program of the rule for a case, captured on first need; None if it is not an expression."""
        key = (dtype, layout, pattern)
        try:
            return self._programs[key]
        except KeyError:
            pass
        except TypeError:  # An option that cannot be a key.
            return None
        program = None
        if pattern[-1] is not None:  # Else only running it in each step is right.
            # What is wrong with the rule itself shows when it runs on tensors.
            with suppress(Exception):
                first, second = (self._capture(group, layout, dtype) for _ in range(2))
                # One that draws random numbers or looks at the clock does not do the same twice.
                if first is not None and second is not None and first.content == second.content:
                    program = first
        if len(self._programs) >= _MOST_PROGRAMS:
            self._programs.clear()
        self._programs[key] = program
        return program

    def _capture(self, group: Group, layout: Layout, dtype: Dtype) -> Program | None:
        trace = Trace(dtype)
        names, number_names = layout
        arrays = [trace.array() for _ in range(2 + len(names))]
        rate = trace.number()
        numbers = [rate]

        def symbol(value: Any) -> Any:
            if type(value) is tuple:
                return tuple(map(symbol, value))
            if isinstance(value, bool) or not isinstance(value, _NUMBERS) or not value:
                return value
            numbers.append(trace.number(is_true=True))
            return numbers[-1]

        options = {name: symbol(group[name]) for name in self._update_options if name in group}
        state_numbers = [trace.number() for _ in number_names]
        state = dict(zip((*names, *number_names), (*arrays[2:], *state_numbers), strict=True))
        grad: Any = arrays[1]
        if self._ascends(group):
            grad = -grad
        param, new = self._optimizer.update(arrays[0], grad, dict(state), rate, **options)
        if trace.is_refused or set(new) - set(state):
            return None
        results = [param, arrays[1], *(new.get(name, state[name]) for name in names)]
        if not all(isinstance(each, Symbol) and trace.kinds[each.number] is not None for each in results):
            return None
        new_numbers = [trace.number_of(new.get(name, state[name])) for name in number_names]
        if any(trace.kinds[number] is not None for number in new_numbers):
            return None
        return Program(
            trace,
            [each.number for each in arrays],
            [each.number for each in results],
            [each.number for each in (*numbers, *state_numbers)],
            new_numbers,
        )

    def run_whole(self, param: Value, grad: Any, state: State, group: Group) -> tuple[Any, State]:
        """Run the rule on tensors and return new arrays, with memory of their own; nothing is written."""
        dtype = widened(param.dtype)
        state = dict(state)
        master = state.pop(MASTER, None)
        # Copies, which a rule may write to: a step that is interrupted leaves everything as it was.
        given = {name: _copied(value) if isinstance(value, Value) else value for name, value in state.items()}
        options = {name: group[name] for name in self._update_options if name in group}
        seen: Any = _copied(param if master is None else master)
        wide = grad.astype(dtype, copy=False)
        if param.extras is not None:
            seen.name = param.extras.name
        with aside(grad=False):
            result = self._optimizer.update(
                seen,
                wrap(param.plain, -wide if self._ascends(group) else wide.copy()),
                given,
                group["lr"],
                **options,
            )
        if not isinstance(result, tuple) or len(result) != 2 or not isinstance(result[1], dict):
            raise OperandError(f"{self._name}.update: must return the new parameter and the new state, a dict.")
        new = {name: self._fitting(name, value, state) for name, value in result[1].items()}
        return self._fitting("the parameter", result[0], {"the parameter": param}), new

    def _fitting(self, name: str, value: Any, before: State) -> Any:
        """Return a result of the rule in the form of what it replaces."""
        if name not in before:
            raise OperandError(
                f"{self._name}.update: returned state {name!r}, which init did not make; it made "
                f"{', '.join(before) or 'nothing'}."
            )
        old = before[name]
        if not isinstance(old, Value):
            return np.asarray(value.array if isinstance(value, Value) else value).item()
        array = np.asarray(value.array if isinstance(value, Value) else value)
        if array.shape != old.shape:
            raise ShapeError(
                f"{self._name}.update: {name} has shape {old.shape}, and its new value {array.shape}; they must be "
                "equal."
            )
        if not np.can_cast(array.dtype, widened(old.dtype), "same_kind"):
            raise DtypeError(f"{self._name}.update: {name} is {old.dtype}, and its new value {array.dtype}.")
        return array if array.base is None and isinstance(value, Tensor) else array.copy()


def _is_half(dtype: Dtype) -> bool:
    return is_float(dtype) and widened(dtype) != dtype


def _copied(value: Value) -> Any:
    return wrap(value.plain, value.array.copy())


def _options(method: Any, leading: int) -> dict[str, bool]:
    """Return the parameters of a method after the leading ones, the options that it reads; true if it must have it."""
    parameters = list(inspect.signature(method).parameters.values())[leading:]
    fixed = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return {each.name: each.default is inspect.Parameter.empty for each in parameters if each.kind not in fixed}
