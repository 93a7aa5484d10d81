"""A trace as the text of a module: `forward` and `gradient`, one line for each step that they need."""

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np

from .._typing import NDArray
from ..core.record import Link, Record
from ..core.value import Value
from .source_kernels import Kernels
from .source_literals import literal
from .source_names import Names, assigned_names, line_text, place_of
from .source_ops import OpWriter
from .source_trace import Step, Trace, Traced


class ModuleText:
    """Writes a trace: names for its values, arguments for its leaves and large constants, a line for each step."""

    def __init__(
        self,
        trace: Trace,
        loss: Traced,
        seed: Traced,
        derivatives: dict[Link, Traced],
        names: dict[Link, str],
        tolerance: float,
    ) -> None:
        self.trace = trace
        self._loss = loss
        self._seed = seed
        self._derivatives = derivatives
        self._names = Names()
        #: The arguments of both functions, with the arrays that they stood for.
        self.arguments: dict[str, NDArray] = {}
        self._notes: dict[str, str] = {}
        self._written: dict[Traced, str] = {}
        #: The statements of each step; both functions have them.
        self._lines_of: dict[Step, list[str]] = {}
        self._constants: list[tuple[NDArray, str]] = []
        self._name_arguments()
        self._wishes = self._wished_names(names)
        self._kernels = Kernels(self._names)
        self._ops = OpWriter(self._kernels, self._name_of, self._large, tolerance)

    @property
    def pasted(self) -> tuple[str, ...]:
        """The names of the ops that are written as pasted kernels."""
        return tuple(sorted(self._ops.pasted))

    def text(self) -> str:
        """Return the module."""
        forward = self._lines([self._loss])
        gradient = self._lines([self._loss, *self._derivatives.values()])
        loss = self._name_of(self._loss)
        keys = (self._name_of(self.trace.values[link]) for link in self._derivatives)
        pairs = ", ".join(
            f'"{key}": {self._name_of(g)}' for key, g in zip(keys, self._derivatives.values(), strict=True)
        )
        arguments = ", ".join(self.arguments)
        functions = [
            f"def forward({arguments}):",
            *self._docstring("Return the value."),
            *forward,
            f"    return {loss}",
            "",
            "",
            '@np.errstate(all="ignore")',
            f"def gradient({arguments}):",
            *self._docstring("Return the value and its derivatives by name."),
            *gradient,
            f"    return {loss}, {{{pairs}}}",
        ]
        body = "\n".join(functions)
        parts = [self._head(body), *self._kernels.definitions, body]
        return "\n\n\n".join(parts) + "\n"

    def _head(self, body: str) -> str:
        imports = {"import numpy as np", *self._kernels.imports}
        if "ml_dtypes." in body:
            imports.add("import ml_dtypes")
        return "\n".join(sorted(imports, key=lambda line: (line.startswith("from"), line)))

    def _docstring(self, title: str) -> list[str]:
        if not self.arguments:
            return [f'    """{title}"""']
        rows = [
            f"        {name}: {_describe(array)}{self._notes.get(name, '')}" for name, array in self.arguments.items()
        ]
        return [f'    """{title}', "", "    Args:", *rows, '    """']

    def _name_arguments(self) -> None:
        for leaf in self.trace.leaves:
            self._add_argument(self.trace.values[leaf], leaf.name or "x")
        for link, value in self.trace.values.items():
            if value in self._written or not isinstance(value, Traced) or not isinstance(link, Value):
                continue
            if value in self.trace.overwritten:
                place = place_of(self.trace.overwritten[value])
                name = self._add_argument(value, link.name or "before")
                self._notes[name] = f"; what it held at {place}: it was overwritten since"
            elif link.name is not None:
                self._add_argument(value, str(link.name))

    def _add_argument(self, value: Traced, wish: str) -> str:
        name = self._names.fresh(wish)
        self.arguments[name] = value.content
        self._written[value] = name
        return name

    def _wished_names(self, names: dict[Link, str]) -> dict[Traced, str]:
        """Return what values would be called if no other had the name."""
        wishes: dict[Traced, str] = {}
        for record, name in assigned_names(self.trace.records).items():
            value = self.trace.values[record]
            if isinstance(value, Traced):
                wishes[value] = name
        for link, name in names.items():
            if isinstance(link, Record):
                wishes[self.trace.values[link]] = name
        wishes.setdefault(self._loss, "loss")
        for record, cotangent in self.trace.cotangents:
            value = self.trace.values[record]
            if isinstance(value, Traced) and value in wishes:
                wishes.setdefault(cotangent, f"d_{wishes[value]}")
        for link, g in self._derivatives.items():
            value = self.trace.values[link]
            own = self._written.get(value) or wishes.get(value)
            if own is not None:
                wishes[g] = f"d_{own}"
        self._written[self._seed] = self._names.fresh(f"d_{wishes[self._loss]}")
        return wishes

    def _name_of(self, value: Traced) -> str:
        if value in self._written:
            return self._written[value]
        if value.step is None:
            return literal(value.content, self._large)
        wish = self._wishes.get(value)
        name = self._written[value] = self._names.numbered("t") if wish is None else self._names.fresh(wish)
        return name

    def _large(self, array: NDArray) -> str:
        """Make a large constant an argument, and return its name."""
        for known, name in self._constants:
            if known is array or (known.dtype == array.dtype and np.array_equal(known, array)):
                return name
        name = self._names.fresh("constant")
        self._constants.append((array, name))
        self.arguments[name] = array
        self._notes[name] = "; a constant of the recording"
        return name

    def _lines(self, wanted: Sequence[Traced]) -> list[str]:
        """Return the lines that compute the wanted values, with the user's line above what came from it."""
        lines: list[str] = []
        above = ""
        seed_line = (
            f"    {self._written[self._seed]} = {literal(self._seed.content)}" if self._seed.step is None else ""
        )
        for step in _needed(self.trace.steps, wanted):
            comment = _comment(step)
            if step.is_backward and seed_line:
                lines.append(seed_line)
                seed_line = ""
            if comment != above:
                lines.append(f"    # {comment}")
                above = comment
            lines += [f"    {line}" for line in self._statements(step)]
        if seed_line and any(value is self._seed for value in wanted):
            lines.append(seed_line)
        return lines

    def _statements(self, step: Step) -> list[str]:
        if step not in self._lines_of:
            left = ", ".join(map(self._name_of, step.outs))
            # One output of an op that returns a tuple is unpacked all the same.
            left += "," if isinstance(step.out, tuple) and len(step.out) == 1 else ""
            self._lines_of[step] = self._ops.statements(step, left, partial(self._names.numbered, "t"))
        return self._lines_of[step]


def _needed(steps: Sequence[Step], wanted: Iterable[Traced]) -> list[Step]:
    """Return the steps that the wanted values are computed by; the others are dead code."""
    live = {value.step for value in wanted if value.step is not None}
    for step in reversed(steps):
        if step in live:
            live.update(x.step for x in step.operands if isinstance(x, Traced) and x.step is not None)
    return [step for step in steps if step in live]


def _comment(step: Step) -> str:
    if step.record is None:
        return "rounded to the dtype of its tensor"
    line = line_text(step.record)
    place = f"{place_of(step.record)}: {line}" if line else place_of(step.record)
    return f"back through {step.record.op.name}, {place}" if step.is_backward else place


def _describe(array: Any) -> str:
    return f"{array.dtype} of shape {array.shape}"
