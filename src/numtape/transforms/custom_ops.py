"""Declare an op of your own: a NumPy forward with a rule for one mode; the other mode's rule is its transpose."""

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ..core import batching
from ..core.apply import apply
from ..core.context import current
from ..core.facts import Facts, Structure
from ..core.op import NON_DIFFERENTIABLE, Marker, Op
from ..core.value import Value, array_of
from ..dtypes import is_float
from ..errors import ArgumentError, DtypeError, OperandError
from .batch_checks import CheckedBatch
from .custom import per_output
from .custom_calls import bind
from .custom_rules import Rule
from .rule_checks import Given, RuleChecks
from .transposing import Transpose, is_recorded

Function = Callable[..., Any]
Rules = Mapping[str, Function | Marker | None]

_AMONG_OPERANDS = " A tensor that it computes with must be one of its operands, which stand before the /."
#: For how many sets of static parameters the rules of an op are checked at its calls.
_MOST_PARAMS = 16
#: What a declaration may say beside its rules.
_FACTS = set(Facts._fields) - {"also", "flops", "inside", "is_discrete", "numpy", "of_units", "samples"}
#: For facts of these names: what they must be, and whether they are.
_KINDS: tuple[tuple[str, set[str], Callable[[Any], bool]], ...] = (
    ("a function", {"cost"}, callable),
    (
        "a function or None",
        {"batch", "series", "size", "terms", "add_back", "reference"},
        lambda x: x is None or callable(x),
    ),
    (
        "True or False",
        {"aliases", "deterministic", "is_linear_backward", "native_half", "native_half_rules", "to_float"},
        lambda x: isinstance(x, bool | np.bool_),
    ),
    ("a text", {"domain", "kinks"}, lambda x: isinstance(x, str)),
)


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

    The rules given are compared with finite differences: on `samples` at once; those of arguments that samples do not
    settle at the first calls on tensors, anew for other static parameters (sixteen times). An output that shares memory
    with an operand is copied, unless `aliases` says that it is a view of the first. A rule of several outputs gets a
    tuple, with zeros for those that are not used. The op is not listed among the library's own, so it may have any name
    and be declared again.

    Args:
        function: nothing; there only to tell who forgets the rules.
        vjp: for each argument, the rule from the output's cotangent to the argument's; or one function that returns a
            tuple with a cotangent for every argument.
        jvp: for each argument, the rule from its tangent to the output's.
        samples: tuples of operands to check the rules on, in both modes; numbers and lists are taken as float64.
        check: whether to check the rules at all.
        **facts: what is known about the op: `cost`, `structure` ("elementwise", "dense", ...), `batch`, `aliases`,
            `precision`, `linear` (the operands in which the function itself is linear, each alone), `kinks`,
            `to_float`; `deterministic=False` if the same operands may give other bits; `is_linear_backward=True` if the
            VJP is linear in the cotangent, as every true one is and one that clips is not: only then Jacobians may be
            computed in mixed mode through the op. It is known if there is no VJP.

    Raises:
        GradientError: if a rule disagrees with differences of the function.
        ArgumentError: if a sample can check nothing.

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
    if not isinstance(samples, Sequence) or isinstance(samples, str):
        raise OperandError(
            f"custom_op: samples is {type(samples).__name__}; it must be a list of tuples of operands, as in "
            "samples=[(x, y)]."
        )
    unknown = sorted(set(facts) - _FACTS)
    if unknown:
        raise ArgumentError(f"custom_op: there is no fact {unknown[0]!r}; the facts are {', '.join(sorted(_FACTS))}.")

    def decorate(function: Function) -> Function:
        if not inspect.isfunction(function):
            raise OperandError(
                f"custom_op: declares functions, not {type(function).__name__}; write @nt.custom_op(vjp=...) above one."
            )
        # A VJP may clip or round its cotangent, and neither the structure nor a JVP beside it tells. The transpose of a
        # JVP does not.
        return _Declaration(function, vjp, jvp, _as_facts(facts, is_linear_backward=vjp is None)).face(samples, check)

    return decorate


def _as_facts(facts: dict[str, Any], is_linear_backward: bool) -> Facts:
    found = dict(facts)
    for kind, names, is_right in _KINDS:
        for name in names & found.keys():
            if not is_right(found[name]):
                raise OperandError(f"custom_op: {name} is {found[name]!r}; it must be {kind}.")
    if found.get("batch") is not None:
        found["batch"] = CheckedBatch(found["batch"])
    structure = found.get("structure", Structure.DENSE)
    if isinstance(structure, str):
        if structure.upper() not in Structure.__members__:
            known = ", ".join(name.lower() for name in Structure.__members__)
            raise ArgumentError(f"custom_op: there is no structure {structure!r}; the structures are {known}.")
        structure = found["structure"] = Structure[structure.upper()]
    precision = found.get("precision", "keep")
    if precision not in ("lower", "widen", "keep"):
        raise ArgumentError(f"custom_op: there is no precision {precision!r}; the precisions are lower, widen, keep.")
    if structure is Structure.ELEMENTWISE:
        found.setdefault("batch", batching.elementwise)
    if "linear" in found:
        if isinstance(found["linear"], str) or not isinstance(found["linear"], Iterable):
            raise ArgumentError(
                f'custom_op: linear is {found["linear"]!r}; it must name the arguments, as in linear=("x",).'
            )
        found["linear"] = frozenset(found["linear"])
    return Facts(**{"cost": per_output, "is_linear_backward": is_linear_backward, **found})


class CallChecks:
    """The checks of an op at its calls, anew for other static parameters: a rule may ignore one of them.

    Args:
        op: the op.
        given: which rules to check.
    """

    def __init__(self, op: Op, given: Given) -> None:
        self._op = op
        self._given = given
        self._of_samples = RuleChecks(op, given)
        self._by_params: dict[Any, RuleChecks] = {}

    def on_sample(self, number: int, sample: Any, signature: inspect.Signature) -> None:
        """Check the rules on a sample. What samples settle is not checked at calls with their parameters."""
        params = self._of_samples.on_sample(number, sample, signature)
        self._by_params[_key(params)] = self._of_samples

    def waiting(self, params: dict[str, Any]) -> RuleChecks | None:
        """Return the checks that a call with some parameters is to make; None if there are none."""
        if len(self._by_params) >= _MOST_PARAMS and not any(checks.waiting for checks in self._by_params.values()):
            return None
        key = _key(params)
        checks = self._by_params.get(key)
        if checks is None and len(self._by_params) < _MOST_PARAMS:
            checks = self._by_params[key] = RuleChecks(self._op, self._given)
        return checks if checks is not None and checks.waiting else None


def _key(value: Any) -> Any:
    """Return what tells a static parameter, or a container of some, from others: of arrays, what they hold."""
    if isinstance(value, dict):
        return tuple((name, _key(part)) for name, part in value.items())
    if isinstance(value, list | tuple):
        return tuple(map(_key, value))
    array = array_of(value) if isinstance(value, Value) else value
    if isinstance(array, np.ndarray):
        return array.shape, array.dtype.str, hash(array.tobytes())
    try:
        hash(value)
    except TypeError:
        return type(value)
    return value


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
        self._check_complete(facts, joint, vjps, jvps)
        lent: set[str] = set()
        if facts.structure is Structure.ELEMENTWISE and joint is None:
            # The Jacobian is diagonal: one rule serves both modes.
            lent = set() if facts.is_linear_backward else vjps.keys() - jvps.keys()
            vjps, jvps = {**jvps, **vjps}, {**vjps, **jvps}
        self.facts = facts
        pull_all = self._rule("vjp", None, joint) if joint else None
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
            pull = pull_all or (self._rule("vjp", argument, given["vjp"]) if "vjp" in given else None)
            push = self._rule("jvp", argument, given["jvp"]) if "jvp" in given else None
            self.given[argument] = [rule.kind for rule in (pull, push) if rule is not None]
            pulls[argument] = self._named(pull.names, pull) if pull else self._transposed_push(argument, push)
            if push is not None:
                pushes[argument] = self._named(push.names, self._lent(argument, push) if argument in lent else push)
            else:
                pushes[argument] = self._transposed_pull(argument, pull)
        self.op = Op(
            self._forward,
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

    def _check_complete(self, facts: Facts, joint: Any, vjps: dict[str, Any], jvps: dict[str, Any]) -> None:
        unknown = sorted(facts.linear.difference(self.arguments))
        if unknown:
            raise ArgumentError(
                f"{self.name}: linear names {unknown[0]!r}, which is no operand; the operands are "
                f"{', '.join(self.arguments)}."
            )
        missing = [name for name in self.arguments if not joint and name not in vjps and name not in jvps]
        if missing:
            raise ArgumentError(
                f"{self.name}: argument {missing[0]!r} has no rule; give one in vjp or jvp, or None there if it has no "
                "derivative."
            )

    def _rule(self, kind: str, argument: str | None, function: Any) -> Rule:
        return Rule(self.name, self.arguments, self.params, kind, argument, function)

    def _named(self, names: Sequence[str], run: Callable[[Any, dict[str, Any]], Any]) -> Function:
        """Return a rule as ops want it: a function whose parameters say what it reads."""
        parameters = "".join(f", {name}" for name in names)
        reads = ", ".join(f"{name!r}: {name}" for name in names)
        # Compiled as part of this file, so that what it calls is not taken for a user's line.
        code = compile(f"lambda moved_{parameters}: run_(moved_, {{{reads}}})", __file__, "eval")
        rule: Function = eval(code, {"run_": run})
        return rule

    def _transpose_of_pull(self, argument: str) -> Transpose:
        return Transpose(
            f"{self.name}: forward mode by argument {argument!r} transposes the vjp rule, which",
            f"Write the rule with nt or np functions, linear in g, or give jvp={{{argument!r}: ...}}.",
        )

    def _lent(self, argument: str, push: Rule) -> Callable[[Any, dict[str, Any]], Any]:
        """Return a VJP that serves as the JVP of an argument, which it does only if it is linear."""
        transpose = self._transpose_of_pull(argument)
        return lambda t, reads: transpose.of_diagonal(lambda ts: [push(ts[0], reads)], t)

    def _transposed_pull(self, argument: str, pull: Rule | None) -> Function:
        """Return the JVP of an argument whose VJP is given."""
        assert pull is not None
        position = self.arguments.index(argument)
        transpose = self._transpose_of_pull(argument)

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

    def _transposed_push(self, argument: str, push: Rule | None) -> Function:
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

    def _forward(self, *arrays: Any, **params: Any) -> Any:
        """Run the function; return arrays that share no memory with an operand, where nobody would look for it."""
        out = self.function(*arrays, **params)
        # Views of the first operand are told by the fact.
        taken = list(arrays[1:] if self.facts.aliases else arrays)
        self._check_dtypes(out if isinstance(out, tuple) else (out,))
        if not isinstance(out, tuple):
            return self._own(out, taken)
        parts = []
        for part in out:
            parts.append(self._own(part, taken))
            if not self.facts.aliases:
                taken.append(part)
        return tuple(parts)

    def _check_dtypes(self, parts: Sequence[Any]) -> None:
        """Raise if there are rules, and no output that could have a derivative."""
        dtypes = [np.asarray(part).dtype for part in parts if isinstance(part, np.ndarray | np.generic | float | int)]
        if dtypes and any(self.given.values()) and not any(map(is_float, dtypes)):
            raise DtypeError(
                f"{self.name}: the function of a custom_op returned {dtypes[0]}, which has no derivative, and there "
                "are rules; return floats, as by astype(x.dtype), or None in place of the rules."
            )

    def _own(self, part: Any, taken: Sequence[Any]) -> Any:
        if not isinstance(part, np.ndarray | np.generic | float | int):
            raise OperandError(
                f"{self.name}: the function of a custom_op returns an array or a tuple of arrays, not "
                f"{type(part).__name__}.{_AMONG_OPERANDS if isinstance(part, Value) else ''}"
            )
        if any(isinstance(x, np.ndarray) and np.may_share_memory(part, x) for x in taken):
            return np.array(part)
        return part

    def face(self, samples: Sequence[Any], check: bool) -> Function:
        """Return the public function of the op; check the rules on samples now, and let it check the others later."""
        op, name = self.op, self.name
        # Operands may be given by name, as those of every op.
        signature = self.signature.replace(
            parameters=[
                p.replace(kind=p.POSITIONAL_OR_KEYWORD) if p.kind is p.POSITIONAL_ONLY else p
                for p in self.signature.parameters.values()
            ]
        )
        checks = CallChecks(op, self.given if check else {})

        @functools.wraps(self.function)
        def face(*args: Any, **kwargs: Any) -> Any:
            bound = bind(name, signature, args, kwargs)
            bound.apply_defaults()
            params = bound.arguments
            operands = [params.pop(argument) for argument in op.arguments]
            waiting = checks.waiting(params)
            if waiting is not None and current().grad and any(isinstance(x, Value) for x in operands):
                waiting.at_call(operands, params)
            return apply(op, operands, params)

        op.face = face
        face.op = op  # type: ignore[attr-defined]
        if samples:
            face.samples = samples  # type: ignore[attr-defined]
        if check:
            for number, sample in enumerate(samples):
                checks.on_sample(number, sample, signature)
        return face
