"""A rule that a user gave an op, as the sweeps call it: what it gets is made ready, and what it returns is checked."""

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .. import tree
from ..core.batching import Batched
from ..core.reverse import unbroadcast
from ..core.value import wrap
from ..creation import tensor
from ..errors import ArgumentError, DtypeError, OperandError, ShapeError
from ..tensors import Tensor
from .transposing import is_recorded, own, plain, run_on_tape


class Rule:
    """A user's rule of one argument in one mode, which checks what it returns.

    Args:
        op_name: the op's.
        arguments: the operands' names.
        params: the static parameters' names.
        kind: "vjp" or "jvp".
        argument: whose rule it is; None for a joint VJP.
        function: the user's.
    """

    def __init__(
        self,
        op_name: str,
        arguments: Sequence[str],
        params: Sequence[str],
        kind: str,
        argument: str | None,
        function: Any,
    ) -> None:
        self.title = f"{op_name}: the {kind} rule" + (f" of argument {argument!r}" if argument else "")
        if not callable(function):
            raise OperandError(
                f"{self.title} is {type(function).__name__}; it must be a function, or None if there is no derivative."
            )
        self.kind = kind
        self.function = function
        self.arguments = arguments
        self.own_names = self._names_read(params)
        shapes = (
            ["out_shape"] if kind == "jvp" else [f"{x}_shape" for x in ([argument] if argument else self.arguments)]
        )
        self.shape_names = shapes
        needs = ("needs",) if argument is None else ()
        self.names = tuple(dict.fromkeys((*self.own_names, *shapes, "out_shape", *needs)))
        self.is_joint = argument is None
        other = "jvp" if kind == "vjp" else "vjp"
        self.repair = (
            f"Write it with nt or np functions of what it gets; for first derivatives a {other} rule would do as well."
        )

    def _names_read(self, params: Sequence[str]) -> tuple[str, ...]:
        """Return what the rule reads, by the names of all parameters but the first that have no default."""
        parameters = list(inspect.signature(self.function).parameters.values())[1:]
        names = tuple(p.name for p in parameters if p.default is p.empty)
        shapes = [f"{name}_shape" for name in (*self.arguments, "out")]
        for name in names:
            if name not in (*self.arguments, *params, *shapes, "out", "needs"):
                raise ArgumentError(
                    f"{self.title} reads {name!r}; it may read {', '.join((*self.arguments, *params, 'out'))}, and "
                    f"shapes as in {shapes[0]}."
                )
        return names

    def __call__(self, moved: Any, reads: dict[str, Any]) -> Any:
        """Return what the rule gives: one array or tensor, or a tuple for a joint rule or for several outputs."""
        values = [reads[name] for name in self.own_names]
        if isinstance(moved, tuple | list):  # Of several outputs.
            moved = _without_gaps(moved, reads["out_shape"])
        if is_recorded((moved, *values)):
            what = f"{self.title} runs on tensors for other than first derivatives of its own mode, and"
            out = run_on_tape(lambda: self._run(moved, values, _own_tensors), what, self.repair)
        else:
            out = tree.map(plain, self._run(moved, values, own))
        if self.is_joint:
            return self._joint(out, reads)
        shape = reads[self.shape_names[0]]
        if isinstance(shape, list):
            return tuple(
                np.zeros(s) if part is None and self.kind == "jvp" else self._fitted(part, s, "the output", shape)
                for part, s in zip(self._all(out, len(shape)), shape, strict=True)
            )
        return self._fitted(out, shape, "the output" if self.kind == "jvp" else "the argument", reads["out_shape"])

    def _run(self, moved: Any, values: list[Any], copied: Callable[[Any], Any]) -> Any:
        """Run the rule on copies; if it cannot do with a batch, on its members one by one."""
        batch = next((x for x in _parts(moved) if isinstance(x, Batched)), None)
        if batch is None:
            return self.function(copied(moved), *values)
        outs = []
        try:
            out = self.function(moved, *values)
            if self.is_joint or not isinstance(out, list):  # A list of batches is no array.
                return out
        except Exception:  # Whatever is wrong with the rule itself, its members will show as well.
            pass
        for i in range(len(batch.members)):
            member = tuple(x.members[i] if isinstance(x, Batched) else x for x in _parts(moved))
            outs.append(_parts(self.function(copied(member if isinstance(moved, tuple) else member[0]), *values)))
        stacked = tuple(None if parts[0] is None else batch.of(np.stack(parts)) for parts in zip(*outs, strict=True))
        return stacked if self.is_joint or len(stacked) > 1 else stacked[0]

    def _joint(self, out: Any, reads: dict[str, Any]) -> tuple[Any, ...]:
        parts = self._all(out, len(self.arguments))
        return tuple(
            self._fitted(part, reads[name], f"argument {argument!r}", reads["out_shape"]) if is_needed else None
            for part, name, argument, is_needed in zip(
                parts, self.shape_names, self.arguments, reads["needs"], strict=True
            )
        )

    def _all(self, out: Any, count: int) -> tuple[Any, ...]:
        if not isinstance(out, tuple | list) or len(out) != count:
            got = f"{len(out)}" if isinstance(out, tuple | list) else type(out).__name__
            whose = "argument" if self.is_joint else "output"
            raise ArgumentError(
                f"{self.title} returned {got}; it must return a tuple of {count}, one for each {whose}."
            )
        return tuple(out)

    def _fitted(self, part: Any, shape: Any, whose: str, out_shape: Any) -> Any:
        """Return a (co)tangent in the shape that it must have; broadcasting is undone or done."""
        if not hasattr(part, "shape") and part is not None:
            part = tensor(part) if is_recorded(tree.leaves(part)) else np.asarray(part)
        if part is None or (part.shape != shape and not self._can_fit(part.shape, shape, out_shape)):
            got = "None" if part is None else f"shape {part.shape}"
            raise ShapeError(f"{self.title} returned {got}; {whose} has shape {shape}, and they must be equal.")
        if part.dtype.kind == "c":
            raise DtypeError(f"{self.title} returned {part.dtype}; derivatives are real: return what is real of it.")
        if part.shape == shape:
            return part
        return unbroadcast(part, shape) if self.kind == "vjp" else part + np.zeros(shape, part.dtype)

    def _can_fit(self, found: Any, wanted: Any, out_shape: Any) -> bool:
        """Say whether a tangent can be repeated to the output, or a cotangent be summed to an argument.

        An argument was repeated along axes that the output has, and no others.
        """
        axes = max(map(len, out_shape if isinstance(out_shape, list) else [out_shape]))
        if self.kind == "vjp" and len(found) > max(len(wanted), axes):
            return False
        try:
            return bool(np.broadcast_shapes(found, wanted) == (found if self.kind == "vjp" else wanted))
        except ValueError:
            return False


def _without_gaps(cotangents: Sequence[Any], shapes: Sequence[Any]) -> tuple[Any, ...]:
    """Return the cotangents of several outputs, with zeros for those that nothing depends on."""
    dtype = next(g.dtype for g in cotangents if g is not None)
    zeros = (np.zeros(shape, dtype) for shape in shapes)
    # Where the rule runs on tensors it may use their methods on each.
    return tuple(
        g if g is not None else wrap(Tensor, zero) if is_recorded(cotangents) else zero
        for g, zero in zip(cotangents, zeros, strict=True)
    )


def _own_tensors(moved: Any) -> Any:
    """Return (co)tangents as copies and, where they are arrays, as tensors: only these can be written tensors to."""
    if isinstance(moved, tuple):
        return tuple(map(_own_tensors, moved))
    return wrap(Tensor, moved.copy()) if isinstance(moved, np.ndarray) else own(moved)


def _parts(x: Any) -> tuple[Any, ...]:
    return x if isinstance(x, tuple) else (x,)
