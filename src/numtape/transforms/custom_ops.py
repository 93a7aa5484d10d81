"""Declare an op of your own: a NumPy forward with a rule for one mode; the other mode's rule is its transpose."""

import contextlib
import dataclasses
import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ..core import batching
from ..core.apply import apply
from ..core.batching import Batched
from ..core.context import current
from ..core.op import NON_DIFFERENTIABLE, REQUIRED, Facts, Marker, Op, Structure
from ..core.reverse import unbroadcast
from ..core.value import Value
from ..errors import ArgumentError, NotDifferentiableError, OperandError, ShapeError
from ..ops.samples import Sample
from .custom import bind, per_output
from .rule_checks import check_rules
from .transposing import Transpose, is_recorded, run_on_tape

Function = Callable[..., Any]
Rules = Mapping[str, Function | Marker | None]

#: Calls with derivatives that the first check may take until differences could tell.
_PATIENCE = 3
#: What a declaration may say beside its rules.
_FACTS = {f.name for f in dataclasses.fields(Facts)} - {"also", "is_discrete", "numpy", "samples"}


def custom_op(
    function: None = None,
    /,
    *,
    vjp: Rules | Function | None = None,
    jvp: Rules | None = None,
    samples: Sequence[Any] = (),
    check: bool = True,
    **facts: Any,
) -> Callable[[Function], Function]:
    """Declare a function of arrays as an op with derivative rules of its own, for both modes.

    The function is a NumPy forward: operands positional-only, static parameters keyword-only. It never sees a tensor
    and never changes an operand. A rule is ``lambda g, ...`` (or ``lambda t, ...``) and names what it reads: operands,
    ``out``, ``x_shape``, ``out_shape``, parameters. It gets arrays in first order and tensors otherwise, so it is
    written with nt or np functions and operators. Give an argument a rule in one mode, and that of the other is made by
    transposing it; or in both. None in place of a rule says that the argument has no derivative.

    The rules given are compared with finite differences: on `samples` at once, or else at the first calls on tensors.
    The op is not listed among the library's own, so it may have any name and be declared again.

    Args:
        function: nothing; there only to tell who forgets the rules.
        vjp: for each argument, the rule from the output's cotangent to the argument's; or one function that returns a
            tuple with a cotangent for every argument.
        jvp: for each argument, the rule from its tangent to the output's.
        samples: tuples of operands to check the rules on, in both modes.
        check: whether to check the rules at all.
        **facts: what is known about the op: `cost`, `structure` ("elementwise", "dense", ...), `batch`, `aliases`,
            `precision`, `linear`, `kinks`, `to_float`.

    Raises:
        GradientError: if a rule disagrees with differences of the function.

    Example:
        >>> @nt.custom_op(vjp={"x": lambda g, x, scale: g * 2.0 * scale * x})
        ... def scaled_square(x, /, *, scale=1.0):
        ...     return scale * np.square(x)
        >>> nt.grad(lambda x: scaled_square(x, scale=3.0).sum())(np.array([1.0, 2.0]))
        array([ 6., 12.])
        >>> nt.jvp(scaled_square, np.array([1.0, 2.0]), np.array([1.0, 0.0]))[1]
        array([2., 0.])
    """
    if function is not None:
        raise OperandError("custom_op: wants the rules first; write @nt.custom_op(vjp={...}) above the function.")
    unknown = sorted(set(facts) - _FACTS)
    if unknown:
        raise ArgumentError(f"custom_op: there is no fact {unknown[0]!r}; the facts are {', '.join(sorted(_FACTS))}.")

    def decorate(function: Function) -> Function:
        if not inspect.isfunction(function):
            raise OperandError(
                f"custom_op: declares functions, not {type(function).__name__}; write @nt.custom_op(vjp=...) above one."
            )
        declaration = _Declaration(function, vjp, jvp, _as_facts(facts))
        return declaration.face(tuple(samples), check)

    return decorate


def _as_facts(facts: dict[str, Any]) -> Facts:
    found = dict(facts)
    structure = found.get("structure", Structure.DENSE)
    if isinstance(structure, str):
        if structure.upper() not in Structure.__members__:
            known = ", ".join(name.lower() for name in Structure.__members__)
            raise ArgumentError(f"custom_op: there is no structure {structure!r}; the structures are {known}.")
        structure = found["structure"] = Structure[structure.upper()]
    if structure is Structure.ELEMENTWISE:
        found.setdefault("batch", batching.elementwise)
    if "linear" in found:
        found["linear"] = frozenset(found["linear"])
    return Facts(**{"cost": per_output, **found})


class _Rule:
    """A user's rule of one argument in one mode, which checks what it returns.

    Args:
        owner: the declaration.
        kind: "vjp" or "jvp".
        argument: whose rule it is; None for a joint VJP.
        function: the user's.
    """

    def __init__(self, owner: "_Declaration", kind: str, argument: str | None, function: Any) -> None:
        self.title = f"{owner.name}: the {kind} rule" + (f" of argument {argument!r}" if argument else "")
        if not callable(function):
            raise OperandError(
                f"{self.title} is {type(function).__name__}; it must be a function, or None if there is no derivative."
            )
        self.kind = kind
        self.function = function
        self.arguments = owner.arguments
        self.own_names = owner.names_read(self.title, function)
        shapes = (
            ["out_shape"] if kind == "jvp" else [f"{x}_shape" for x in ([argument] if argument else self.arguments)]
        )
        self.shape_names = shapes
        self.names = tuple(dict.fromkeys((*self.own_names, *shapes, *(("needs",) if argument is None else ()))))
        self.is_joint = argument is None
        other = "jvp" if kind == "vjp" else "vjp"
        self.repair = (
            f"Write it with nt or np functions of what it gets; for first derivatives a {other} rule would do as well."
        )

    def __call__(self, moved: Any, reads: dict[str, Any]) -> Any:
        """Return what the rule gives: one array or tensor, or a tuple for a joint rule or for several outputs."""
        values = [reads[name] for name in self.own_names]
        if isinstance(moved, list):  # Of several outputs.
            moved = tuple(moved)
        if is_recorded((moved, *values)):
            what = f"{self.title} runs on tensors for other than first derivatives of its own mode, and"
            out = run_on_tape(lambda: self.function(moved, *values), what, self.repair)
        else:
            out = self._run(moved, values)
        if self.is_joint:
            return self._joint(out, reads)
        shape = reads[self.shape_names[0]]
        if isinstance(shape, list):
            return tuple(
                self._fitted(part, s, "the output") for part, s in zip(self._all(out, len(shape)), shape, strict=True)
            )
        return self._fitted(out, shape, "the output" if self.kind == "jvp" else "the argument")

    def _run(self, moved: Any, values: list[Any]) -> Any:
        """Run the rule; if it cannot do with a batch, on its members one by one."""
        try:
            return self.function(moved, *values)
        except (TypeError, AttributeError):
            batch = next((x for x in _parts(moved) if isinstance(x, Batched)), None)
            if batch is None:
                raise
        outs = []
        for i in range(len(batch.members)):
            member = tuple(x.members[i] if isinstance(x, Batched) else x for x in _parts(moved))
            outs.append(_parts(self.function(member if isinstance(moved, tuple) else member[0], *values)))
        stacked = tuple(None if parts[0] is None else batch.of(np.stack(parts)) for parts in zip(*outs, strict=True))
        return stacked if self.is_joint or len(stacked) > 1 else stacked[0]

    def _joint(self, out: Any, reads: dict[str, Any]) -> tuple[Any, ...]:
        parts = self._all(out, len(self.arguments))
        return tuple(
            self._fitted(part, reads[name], f"argument {argument!r}") if is_needed else None
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

    def _fitted(self, part: Any, shape: Any, whose: str) -> Any:
        """Return a (co)tangent in the shape that it must have; broadcasting is undone or done."""
        if part is None and self.kind == "jvp":
            return np.zeros(shape)
        if not hasattr(part, "shape") and part is not None:
            part = np.asarray(part)
        if part is None or (part.shape != shape and not self._can_fit(part.shape, shape)):
            got = "None" if part is None else f"shape {part.shape}"
            raise ShapeError(f"{self.title} returned {got}; {whose} has shape {shape}, and they must be equal.")
        if part.shape == shape:
            return part
        return unbroadcast(part, shape) if self.kind == "vjp" else part + np.zeros(shape, part.dtype)

    def _can_fit(self, found: Any, wanted: Any) -> bool:
        try:
            return bool(np.broadcast_shapes(found, wanted) == (found if self.kind == "vjp" else wanted))
        except ValueError:
            return False


def _parts(x: Any) -> tuple[Any, ...]:
    return x if isinstance(x, tuple) else (x,)


class _Declaration:
    """A function with rules, on its way to an op."""

    def __init__(self, function: Function, vjp: Any, jvp: Any, facts: Facts) -> None:
        self.function = function
        self.name = function.__name__.strip("_")
        self.signature = inspect.signature(function)
        self._check_signature()
        joint = vjp if callable(vjp) else None
        vjps = {} if vjp is None or joint else self._rules("vjp", vjp)
        jvps = {} if jvp is None else self._rules("jvp", jvp)
        self._check_complete(joint, vjps, jvps)
        if facts.structure is Structure.ELEMENTWISE and joint is None:
            # The Jacobian is diagonal: one rule serves both modes.
            vjps, jvps = {**jvps, **vjps}, {**vjps, **jvps}
        pull_all = _Rule(self, "vjp", None, joint) if joint else None
        #: The kinds of rules that were given for each argument; none if it has no derivative.
        self.given: dict[str, list[str]] = {}
        pulls: dict[str, Any] = {}
        pushes: dict[str, Any] = {}
        for argument in self.arguments:
            given = {kind: rules[argument] for kind, rules in (("vjp", vjps), ("jvp", jvps)) if argument in rules}
            if any(rule is None or rule is NON_DIFFERENTIABLE for rule in given.values()):
                self.given[argument] = []
                pulls[argument] = pushes[argument] = NON_DIFFERENTIABLE
                continue
            pull = pull_all or (_Rule(self, "vjp", argument, given["vjp"]) if "vjp" in given else None)
            push = _Rule(self, "jvp", argument, given["jvp"]) if "jvp" in given else None
            self.given[argument] = [rule.kind for rule in (pull, push) if rule is not None]
            pulls[argument] = self._named(pull.names, pull) if pull else self._transposed_push(argument, push)
            pushes[argument] = self._named(push.names, push) if push else self._transposed_pull(argument, pull)
        self.op = Op(
            function,
            function,
            pulls=pulls,
            pushes=pushes,
            joint=self._named(pull_all.names, pull_all) if pull_all else None,
            facts=facts,
        )

    def _check_signature(self) -> None:
        kinds = {p.kind for p in self.signature.parameters.values()}
        self.arguments = tuple(n for n, p in self.signature.parameters.items() if p.kind is p.POSITIONAL_ONLY)
        self.params = tuple(n for n, p in self.signature.parameters.items() if p.kind is p.KEYWORD_ONLY)
        if not self.arguments or kinds - {inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.KEYWORD_ONLY}:
            raise OperandError(
                f"custom_op: the signature is {self.name}{self.signature}; operands must be positional-only and static "
                "parameters keyword-only, as in `def f(x, y, /, *, scale=1.0)`."
            )

    def _rules(self, kind: str, rules: Any) -> dict[str, Any]:
        if not isinstance(rules, Mapping):
            also = " or one function that returns a tuple" if kind == "vjp" else ""
            raise OperandError(
                f"{self.name}: {kind} is {type(rules).__name__}; it must be a dictionary with a rule for each argument"
                f"{also}."
            )
        for name in rules:
            if name not in self.arguments:
                raise ArgumentError(
                    f"{self.name}: {kind} has a rule for {name!r}, which is no operand; the operands are "
                    f"{', '.join(self.arguments)}."
                )
        return dict(rules)

    def _check_complete(self, joint: Any, vjps: dict[str, Any], jvps: dict[str, Any]) -> None:
        missing = [name for name in self.arguments if not joint and name not in vjps and name not in jvps]
        if missing:
            raise ArgumentError(
                f"{self.name}: argument {missing[0]!r} has no rule; give one in vjp or jvp, or None there if it has no "
                "derivative."
            )

    def names_read(self, title: str, function: Function) -> tuple[str, ...]:
        """Return what a rule reads, by the names of its parameters but the first; those with a default are its own."""
        parameters = list(inspect.signature(function).parameters.values())[1:]
        names = tuple(p.name for p in parameters if p.default is p.empty)
        shapes = [f"{name}_shape" for name in (*self.arguments, "out")]
        for name in names:
            if name not in (*self.arguments, *self.params, *shapes, "out", "needs"):
                raise ArgumentError(
                    f"{title} reads {name!r}; it may read {', '.join((*self.arguments, *self.params, 'out'))}, and "
                    f"shapes as in {shapes[0]}."
                )
        return names

    def _named(self, names: Sequence[str], run: Callable[[Any, dict[str, Any]], Any]) -> Function:
        """Return a rule as ops want it: a function whose parameters say what it reads."""
        parameters = "".join(f", {name}" for name in names)
        reads = ", ".join(f"{name!r}: {name}" for name in names)
        rule: Function = eval(f"lambda moved_{parameters}: run_(moved_, {{{reads}}})", {"run_": run})
        return rule

    def _transposed_pull(self, argument: str, pull: _Rule | None) -> Function:
        """Return the JVP of an argument whose VJP is given."""
        assert pull is not None
        position = self.arguments.index(argument)
        transpose = Transpose(
            f"{self.name}: forward mode by argument {argument!r} transposes the vjp rule, which",
            f"Write the rule with nt or np functions, linear in g, or give jvp={{{argument!r}: ...}}.",
        )

        def run(t: Any, reads: dict[str, Any]) -> Any:
            shape = reads["out_shape"]
            is_tuple = isinstance(shape, list)

            def linear(gs: list[Any]) -> list[Any]:
                pulled = pull(tuple(gs) if is_tuple else gs[0], reads)
                return [pulled[position] if pull.is_joint else pulled]

            must_record = is_recorded((t, *reads.values()))
            tangents = transpose(linear, shape if is_tuple else [shape], [t], must_record)
            return tuple(tangents) if is_tuple else tangents[0]

        return self._named(tuple(dict.fromkeys((*pull.names, "out_shape"))), run)

    def _transposed_push(self, argument: str, push: _Rule | None) -> Function:
        """Return the VJP of an argument whose JVP is given."""
        assert push is not None
        transpose = Transpose(
            f"{self.name}: reverse mode by argument {argument!r} transposes the jvp rule, which",
            f"Write the rule with nt or np functions, linear in t, or give vjp={{{argument!r}: ...}}.",
        )
        shape_name = f"{argument}_shape"

        def run(g: Any, reads: dict[str, Any]) -> Any:
            gs = list(g) if isinstance(g, tuple | list) else [g]

            def linear(ts: list[Any]) -> list[Any]:
                pushed = push(ts[0], reads)
                return list(pushed) if isinstance(pushed, tuple) else [pushed]

            return transpose(linear, [reads[shape_name]], gs, is_recorded((*gs, *reads.values())))[0]

        return self._named(tuple(dict.fromkeys((*push.names, shape_name))), run)

    def face(self, samples: tuple[Any, ...], check: bool) -> Function:
        """Return the public function of the op; check the rules on samples now, or else let it check them once."""
        op, name = self.op, self.name
        # Operands may be given by name, as those of every op.
        signature = self.signature.replace(
            parameters=[
                p.replace(kind=p.POSITIONAL_OR_KEYWORD) if p.kind is p.POSITIONAL_ONLY else p
                for p in self.signature.parameters.values()
            ]
        )
        patience = _PATIENCE if check and not samples else 0

        @functools.wraps(self.function)
        def face(*args: Any, **kwargs: Any) -> Any:
            nonlocal patience
            bound = bind(name, signature, args, kwargs)
            bound.apply_defaults()
            params = bound.arguments
            operands = [params.pop(argument) for argument in op.arguments]
            if patience and current().grad and any(isinstance(x, Value) for x in operands):
                patience -= 1
                if check_rules(op, operands, params, self.given, "at its first call"):
                    patience = 0
            return apply(op, operands, params)

        op.face = face
        face.op = op  # type: ignore[attr-defined]
        if check:
            self._check_samples(samples)
        return face

    def _check_samples(self, samples: tuple[Any, ...]) -> None:
        both = {argument: ("vjp", "jvp") if kinds else () for argument, kinds in self.given.items()}
        for number, given in enumerate(samples):
            sample = given if isinstance(given, Sample) else Sample(given if isinstance(given, tuple) else (given,))
            params = {**{k: v for k, v in self.op.defaults.items() if v is not REQUIRED}, **sample.params}
            if not sample.skip_derivatives:
                check_rules(self.op, sample.args, params, self.given, f"on sample {number}")
                with contextlib.suppress(NotDifferentiableError):  # A mode that the op lacks says so when it is used.
                    check_rules(self.op, sample.args, params, both, f"on sample {number}")
