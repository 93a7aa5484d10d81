"""What an op is: a forward function, derivative rules that say by their parameters what they read, and facts.

A rule's first parameter is the cotangent ``g`` (or tangent ``t``); the others name what it reads:

======================  ==========================================================================
``x``                   the value of the argument ``x`` (for a variadic argument, all of them)
``x_shape``             only its shape, so that the value need not be kept
``out``                 the output (a tuple if there are several)
``out_shape``           only its shape
``axis``                a static parameter
``index``               the position within a variadic argument
``needs``               for each argument, whether its derivative is wanted (joint rules)
======================  ==========================================================================

So a rule's signature is the declaration of what a record must keep; nothing is said twice.
"""

from collections.abc import Callable, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakSet

import numpy as np

from .._typing import Rule as RuleFunction
from .facts import Facts, Structure

if TYPE_CHECKING:
    from .reader import Reader
    from .record import Record


class Marker(Enum):
    """What an argument says in place of a rule."""

    NON_DIFFERENTIABLE = "the argument has no derivative; a tracked tensor there is an error"
    ZERO = "the derivative exists and is zero"
    ITSELF = "JVP only: the op itself, with the tangent in the argument's place"
    ITSELF_ALONE = "JVP only: the op itself, with the tangent in the argument's place and zeros in the others'"


NON_DIFFERENTIABLE = Marker.NON_DIFFERENTIABLE
ZERO = Marker.ZERO


class _Required:
    """Stands where a parameter has no default."""

    def __repr__(self) -> str:
        return "REQUIRED"


REQUIRED = _Required()


class Reads(Enum):
    """Where a rule's parameter comes from, as an expression of the record and what the sweep knows."""

    OPERAND = "reader.operand(record, {key})"
    PARAM = "record.params[{key!r}]"
    SHAPE = "shape_of(record.inputs[{key}])"
    OUT = "reader.output(record)"
    OUT_SHAPE = "record.shape"
    OPERANDS = "reader.operands(record)"
    SHAPES = "tuple(map(shape_of, record.inputs))"
    INDEX = "index"
    WANTED_SHAPE = "reader.wanted_shape(record, index)"
    NEEDS = "tuple(bool(record.needs >> i & 1) for i in range(len(record.inputs)))"


#: What says nothing about shapes.
_FOR_PARTIALS = (Reads.OPERAND, Reads.OUT, Reads.PARAM)
#: A kind of `Reads`, and the operand's position or the parameter's name.
Read = tuple[Reads, Any]


class Rule:
    """A derivative rule with the places of what it reads."""

    __slots__ = ("can_sum", "function", "is_partial", "is_product", "operand", "operands", "reads", "reads_out", "run")

    def __init__(self, function: RuleFunction, reads: tuple[Read, ...]) -> None:
        self.function = function
        self.is_product = getattr(function, "is_product", False)
        #: Whether it is an elementwise op's partial, which may be given an array with further axes in front.
        self.is_partial = False
        self.reads = reads
        #: The position of the operand if the rule reads just one operand and nothing else; the fast path.
        self.operand: int | None = reads[0][1] if len(reads) == 1 and reads[0][0] is Reads.OPERAND else None
        #: The positions of the operands whose values are read; None for all of a variadic argument.
        self.operands: tuple[int, ...] | None = tuple(key for kind, key in reads if kind is Reads.OPERAND)
        if any(kind is Reads.OPERANDS for kind, _ in reads):
            self.operands = None
        #: Whether it may return a cotangent that is summed over some axes.
        self.can_sum = any(kind is Reads.WANTED_SHAPE for kind, _ in reads)
        self.reads_out = any(kind is Reads.OUT for kind, _ in reads)
        #: Calls the function with a (co)tangent and all that it reads, given the record, the `Reader` and the operand's
        #: position. Made on first use.
        self.run: Callable[[Any, Record, Reader, int], Any] = self._run_first

    def _run_first(self, moved: Any, record: "Record", reader: "Reader", index: int) -> Any:
        # One expression with everything in its place takes a third of the time of a loop over `reads`.
        arguments = "".join(f", {kind.value.format(key=key)}" for kind, key in self.reads)
        source = f"lambda moved, record, reader, index: function(moved{arguments})"
        # Compiled as part of this file, so that what it calls is not taken for a user's line.
        code = compile(source, __file__, "eval")
        self.run = eval(code, {"function": self.function, "shape_of": shape_of})
        return self.run(moved, record, reader, index)


def shape_of(link: Any) -> Any:
    """Return the shape of what a record links to."""
    try:
        return link.shape
    except AttributeError:
        return np.shape(link)


def same(g: Any) -> Any:
    """The rule of an argument that is passed on as it is; sweeps know it and do not call it."""
    return g


def product(rule: RuleFunction) -> RuleFunction:
    """Mark a rule that multiplies `g` by the one operand that it reads.

    Where the other operand was repeated, the reverse sweep then sums the products without making them.
    """
    rule.is_product = True  # type: ignore[attr-defined]
    return rule


def _zeros(g: Any, shape: Any) -> Any:
    """The rule of an argument whose derivative is zero: constant zeros, whatever `g` holds."""
    return np.zeros(shape, g.dtype)


#: For each operand: its position, its rule's function (None for `same`), the one operand that the rule reads (None: see
#: the rule).
Plan = tuple[tuple[int, RuleFunction | None, int | None, Rule], ...]


#: What annotates flags, integers and other numbers, of which some may be None.
_KINDS = (bool, int, float, float | None)


def kinds_of(function: Callable[..., Any]) -> dict[str, Any]:
    """Return which parameters are flags, integers or other numbers, by their annotations."""
    return {name: kind for name, kind in function.__annotations__.items() if kind in _KINDS}


def _defaults_of(function: Callable[..., Any]) -> dict[str, Any]:
    code, given = function.__code__, function.__defaults__ or ()
    in_order = code.co_varnames[code.co_argcount - len(given) : code.co_argcount]
    return {**dict(zip(in_order, given, strict=True)), **(function.__kwdefaults__ or {})}


#: The ops that there are, those of users included. `declare.registry` has those that have a name.
every_op: "WeakSet[Op]" = WeakSet()


class Op:
    """A differentiable function of arrays, declared once."""

    __slots__ = (
        "__weakref__",
        "all_needs",
        "arguments",
        "defaults",
        "face",
        "facts",
        "forward",
        "is_elementwise",
        "is_variadic",
        "joint",
        "keeps",
        "kinds",
        "name",
        "operand_defaults",
        "plans",
        "positional",
        "promoted",
        "pulls",
        "push_plans",
        "pushes",
    )

    def __init__(
        self,
        forward: Callable[..., Any],
        declaration: Callable[..., Any],
        pulls: dict[str, RuleFunction | Marker],
        pushes: dict[str, RuleFunction | Marker],
        facts: Facts,
        joint: RuleFunction | None = None,
        is_variadic: bool = False,
        promoted: Sequence[str] | None = None,
    ) -> None:
        self.name = declaration.__name__.strip("_")
        self.forward = forward
        #: The function that applies the op; set when it is published.
        self.face: Callable[..., Any] = forward
        self.facts = facts
        self.is_variadic = is_variadic
        self.is_elementwise = facts.structure is Structure.ELEMENTWISE
        code = declaration.__code__
        self.arguments: tuple[str, ...] = code.co_varnames[: code.co_posonlyargcount]
        #: The `needs` of a record all of whose operands are tracked; none of an op that takes any number of them.
        self.all_needs = -1 if is_variadic else (1 << len(self.arguments)) - 1
        defaults = _defaults_of(declaration)
        self.operand_defaults: tuple[Any, ...] = tuple(defaults[name] for name in self.arguments if name in defaults)
        #: The static parameters in order, with their defaults.
        self.defaults: dict[str, Any] = {
            name: defaults.get(name, REQUIRED)
            for name in code.co_varnames[len(self.arguments) : code.co_argcount + code.co_kwonlyargcount]
        }
        #: Those of them that are flags, integers or other numbers.
        self.kinds = kinds_of(declaration)
        #: How many of them may be given by position.
        self.positional = code.co_argcount - len(self.arguments)
        self._check_names(pulls if joint is None else pushes)
        if joint is not None:
            fixed = (NON_DIFFERENTIABLE, ZERO)
            pulls = {name: pushes[name] if pushes[name] in fixed else joint for name in self.arguments}
        #: The rule that returns the cotangents of all operands, but for those whose own rule in `pulls` is another one.
        self.joint = None if joint is None else self._rule(joint)
        self.pulls = tuple(
            Rule(_zeros, ((Reads.SHAPE, i),)) if pulls[name] is ZERO else self._compile(pulls[name])
            for i, name in enumerate(self.arguments)
        )
        self.pushes = tuple(
            Rule(_zeros, ((Reads.OUT_SHAPE, None),)) if pushes[name] is ZERO else self._compile(pushes[name])
            for name in self.arguments
        )
        for pull, push in zip(self.pulls, self.pushes, strict=True) if self.is_elementwise else ():
            if isinstance(pull, Rule) and isinstance(push, Rule) and pull.function is push.function:
                pull.is_partial = push.is_partial = all(kind in _FOR_PARTIALS for kind, _ in pull.reads)
        differentiable = [i for i, rule in enumerate(self.pulls) if rule is not NON_DIFFERENTIABLE]
        #: The positions of the operands that are brought to one dtype.
        self.promoted: tuple[int, ...] = (
            tuple(differentiable or range(len(self.arguments)))
            if promoted is None
            else tuple(self.arguments.index(name) for name in promoted)
        )
        #: For each `needs` of one or two operands, the positions that it names and their rules' parts; absent if the
        #: sweep must go the general way.
        self.plans: dict[int, Plan] = {}
        for needs in range(1, 1 << min(2, len(self.arguments))):
            plan = self._plan(needs)
            if plan is not None:
                self.plans[needs] = plan
        #: The same for JVPs, filled by `forward`; empty if that sweep must go the general way.
        self.push_plans: dict[int, Plan] = {}
        #: For each `needs`, which operands' arrays the rules read (None for all) and whether they read the output.
        self.keeps: dict[int, tuple[tuple[int, ...] | None, bool]] = {}
        every_op.add(self)

    def _plan(self, needs: int) -> "Plan | None":
        rules = [(i, self.pulls[i]) for i in range(min(2, len(self.pulls))) if needs >> i & 1]
        if self.joint is not None or self.is_variadic or not all(isinstance(rule, Rule) for _, rule in rules):
            return None
        return tuple(
            (i, None if rule.function is same else rule.function, rule.operand, rule)
            for i, rule in rules
            if isinstance(rule, Rule)
        )

    def _check_names(self, rules: dict[str, Any]) -> None:
        missing = set(self.arguments) - set(rules)
        unknown = set(rules) - set(self.arguments)
        if missing or unknown:
            raise TypeError(
                f"op {self.name}: arguments {sorted(missing)} have no rule (say NON_DIFFERENTIABLE if they have no "
                f"derivative) and rules {sorted(unknown)} have no argument."
            )

    def _compile(self, rule: RuleFunction | Marker) -> Rule | Marker:
        return rule if isinstance(rule, Marker) else self._rule(rule)

    def _rule(self, function: RuleFunction) -> Rule:
        code = function.__code__
        names = code.co_varnames[1 : code.co_argcount]
        return Rule(function, tuple(map(self._find, names)))

    def _find(self, name: str) -> tuple[Reads, Any]:
        plain = name.removesuffix("_shape")
        is_shape = plain != name
        if plain == "out":
            return (Reads.OUT_SHAPE if is_shape else Reads.OUT, None)
        if plain in self.arguments:
            if self.is_variadic:
                return (Reads.SHAPES if is_shape else Reads.OPERANDS, None)
            return (Reads.SHAPE if is_shape else Reads.OPERAND, self.arguments.index(plain))
        if name in self.defaults:
            return (Reads.PARAM, name)
        if name in ("index", "needs", "wanted_shape"):
            return (Reads[name.upper()], None)
        raise TypeError(f"op {self.name}: a rule reads {name!r}, which is no argument, parameter or known name.")

    def argument(self, position: int) -> str:
        """Return the name of the argument that an operand belongs to."""
        return self.arguments[0 if self.is_variadic else position]

    def pull(self, position: int) -> Rule | Marker:
        """Return the VJP rule of an operand."""
        return self.pulls[0 if self.is_variadic else position]

    def push(self, position: int) -> Rule | Marker:
        """Return the JVP rule of an operand."""
        return self.pushes[0 if self.is_variadic else position]

    def kept(self, needs: int) -> tuple[tuple[int, ...] | None, bool]:
        """Return which operands and whether the output must be kept when the operands in `needs` are tracked."""
        found = self.keeps.get(needs)
        if found is None:
            found = self.keeps[needs] = self._kept(needs)
        return found

    def _kept(self, needs: int) -> tuple[tuple[int, ...] | None, bool]:
        if self.joint is not None:
            compiled = [self.joint]
        else:
            rules = [self.pull(i) for i in range(needs.bit_length()) if needs >> i & 1]
            compiled = [rule for rule in rules if isinstance(rule, Rule)]
        # What cannot be computed again is kept, whether a rule reads it or not.
        reads_out = not self.facts.deterministic or any(rule.reads_out for rule in compiled)
        if any(rule.operands is None for rule in compiled):
            return None, reads_out
        return tuple(sorted({i for rule in compiled for i in rule.operands or ()})), reads_out

    def __repr__(self) -> str:
        return f"<op {self.name}>"


class Composite(NamedTuple):
    """A public function made of ops: no rules of its own, but samples and facts that tests and documents use."""

    name: str
    face: Callable[..., Any]
    facts: Facts
    #: The function as it was written, with other spellings of its arguments: what the face runs.
    function: Callable[..., Any]
    #: The arguments whose dtypes decide that of the result; None for all.
    promoted: tuple[str, ...] | None = None
