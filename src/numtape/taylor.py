"""Truncated power series as operands of ops: derivatives of any order in one variable, at a cost polynomial in it.

A series stands for ``c[0] + c[1] h + ... + c[k] h**k``. An op runs on it by its own derivative rules, in one of four
ways, whichever comes first:

- The rules read no series: the op is affine in its series, and the rules take coefficient to coefficient.
- The op has a `series` fact: a recurrence of its own.
- The op is linear in each series: its coefficients are sums of products (Cauchy's).
- Otherwise ``y' = JVP(x')``: the JVP runs on series of one order less, and ``y[n] = y'[n - 1] / n``. Where the rule
  reads the output, the lower coefficients of that are known when they are asked for: series are as lazy as needed.
"""

import functools
import itertools
import operator
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from ._typing import Dtype, Shape
from .core.apply import apply, as_operand
from .core.context import State, Thread, current
from .core.forward import fit, push
from .core.op import Marker, Rule, same
from .core.value import Lifted, Value, array_of, wrap
from .dtypes import FLOAT_DTYPES
from .errors import NotDifferentiableError

if TYPE_CHECKING:
    from .core.op import Op

#: From n to the n-th coefficient: an array or a tensor, or None for zero.
Coefficients = Callable[[int], Any]


_levels = itertools.count(1)


class Variable:
    """What a function is developed in while it runs."""

    __slots__ = ("depth", "is_refused", "level", "thread")

    def __init__(self, depth: int) -> None:
        #: Later variables, which are nested in those before, have larger numbers.
        self.level = next(_levels)
        self.thread: Thread = current().thread
        #: The number of transforms around it, in its thread.
        self.depth = depth
        #: Whether the function wanted something that a series cannot do, whatever it made of the error.
        self.is_refused = False


#: The variables of functions that run, by level.
_RUNNING: dict[int, Variable] = {}


@contextmanager
def variable(depth: int) -> Iterator[Variable]:
    """Begin with a variable to develop in, inside of so many transforms."""
    made = Variable(depth)
    _RUNNING[made.level] = made
    try:
        yield made
    finally:
        del _RUNNING[made.level]


class Series(Lifted):
    """A power series in the variable of one transform, up to some order.

    Invariants:
    - The coefficient of order 0 is known from the start, and is never None.
    - `more` makes those that are not known yet, in order.
    - Ops on growing series return growing ones; on others, finished ones.
    - Series of a lower level, and all else, are constants to an op on series; so are those whose call has ended.
    """

    __slots__ = ("known", "level", "more", "order", "pool")

    #: The class of tensors without a series.
    constant_class: type[Value]

    known: list[Any]
    order: int
    #: Which variable it is a series in: later ones, which are nested in those before, have larger numbers.
    level: int
    more: Coefficients | None
    #: What grows together with this, by the op and the operand that made it; None if the series does not grow.
    pool: "_Pool | None"

    @classmethod
    def of(cls, known: list[Any], order: int, level: int) -> Self:
        """Return a series with some coefficients; the others are zero."""
        return cls._of(known + [None] * (order + 1 - len(known)), order, level, None, None)

    @classmethod
    def _of(cls, known: list[Any], order: int, level: int, more: Coefficients | None, pool: "_Pool | None") -> Self:
        series = cls.__new__(cls)
        series.known = known
        series.order = order
        series.level = level
        series.more = more
        series.pool = pool
        series.node = series.version = series.extras = None
        return series

    @property
    def shape(self) -> Shape:
        """The shape of every coefficient."""
        shape: Shape = self.known[0].shape
        return shape

    @property
    def dtype(self) -> Dtype:
        """The dtype of the value."""
        dtype: Dtype = self.known[0].dtype
        return dtype

    @property
    def inside(self) -> Any:
        """The value, by which rules tell which of several formulas is right."""
        return self.known[0]

    def detached(self) -> Any:
        """Return the value as a constant."""
        return wrap(self.constant_class, array_of(self))

    def settled(self) -> Any:
        """Return the series while its call is running; after that its value, which others may still differentiate."""
        return self if self.level in _RUNNING else self.constant(self.known[0])

    def refuse(self) -> None:
        """Note that the function wants what a series does not have, and has to run without."""
        if self.level in _RUNNING:
            _RUNNING[self.level].is_refused = True

    def at(self, n: int) -> Any:
        """Return the n-th coefficient; None for zero."""
        known = self.known
        while len(known) <= n:
            assert self.more is not None
            known.append(self.more(len(known)))
        return known[n]

    def derivative(self) -> Self:
        """Return the derivative of a growing series."""

        def more(n: int) -> Any:
            coefficient = self.at(n + 1)
            return None if coefficient is None else coefficient * float(n + 1)

        first = self.at(1)
        if first is None:
            first = np.zeros(self.shape, self.dtype)
        return self._of([first], self.order - 1, self.level, more, self.pool)

    def run_op(self, op: "Op", operands: Sequence[Any], params: dict[str, Any]) -> Any:
        """Run an op on series and constants."""
        state = current()
        operands = [x.settled() if isinstance(x, Series) else x for x in operands]
        level = max([x.level for x in operands if isinstance(x, Series)], default=None)
        if level is None:
            return apply(op, operands, params)
        inputs: list[Any] = []
        values: list[Any] = []
        moved: tuple[int, ...] = ()
        pool = None
        for i, x in enumerate(operands):
            if isinstance(x, Series) and x.level == level:
                moved += (i,)
                if pool is None:
                    pool = x.pool
                inputs.append(x)
                values.append(x.known[0])
            else:
                constant = _as_constant(op, operands, i, state)
                inputs.append(constant)
                values.append(constant)
        if pool is not None and (made := pool.get(_key(op, inputs, params))) is not None:
            return made
        out = apply(op, values, params)
        if op.facts.is_discrete or not state.grad or not _has_floats(out):
            return _map(self.constant, out)
        running = _RUNNING[level]
        # What transforms in other threads there are, nobody knows.
        is_within = state.transforms > running.depth or state.thread is not running.thread
        if is_within and any(isinstance(x, Value) and x.node is not None for x in inputs):
            running.is_refused = True
            raise _no_series(op, "a transform within would have to see through it")
        call = _Call(op, inputs, values, params, moved, out)
        self._start(call, level, pool)
        if pool is None:
            _finish(call)
        else:
            pool[_key(op, inputs, params)] = call.out
        return call.out

    def constant(self, value: Any) -> Any:
        """Return a tensor without a series around an array; tensors as they are."""
        return value if isinstance(value, Value) else wrap(self.constant_class, np.asarray(value))

    def _start(self, call: "_Call", level: int, pool: "_Pool | None") -> None:
        """Make growing series of what an op returned."""
        order = min([call.inputs[i].order for i in call.moved])
        row = _way(call.op, call.moved, len(call.inputs))(call)
        if not isinstance(call.value, tuple):
            call.out = self._of([call.value], order, level, row, pool)
            return
        rows = functools.cache(row)

        def part(i: int) -> Coefficients:
            return lambda n: None if rows(n) is None else rows(n)[i]

        call.out = tuple(
            self._of([value], order, level, part(i), pool) if value.dtype in FLOAT_DTYPES else self.constant(value)
            for i, value in enumerate(call.value)
        )


def _finish(call: "_Call") -> None:
    """Make all coefficients of what an op returned."""
    parts = _series_among(call.out)
    with np.errstate(all="ignore"):
        for x in parts:
            x.at(x.order)
    # Growing series refer to themselves; without this, they would wait for the garbage collector.
    for x in parts:
        x.more = None
        if x.pool:
            for made in x.pool.values():
                for each in _series_among(made):
                    each.more = each.pool = None
        x.pool = None


#: Results of the ops of a rule while they grow, by the op and its only operand.
_Pool = dict[Any, Any]


def _key(op: "Op", inputs: list[Any], params: dict[str, Any]) -> Any:
    """Return what tells whether an op runs on the same series again, as in the chain of sin, cos, sin."""
    return (op, id(inputs[0])) if len(inputs) == 1 and not params else object()


def _series_among(out: Any) -> list[Series]:
    return [x for x in (out if isinstance(out, tuple) else (out,)) if isinstance(x, Series)]


class _Call:
    """One run of an op on series: what its rules read, in the place of a record and of its reader."""

    __slots__ = ("inputs", "moved", "op", "out", "params", "value", "values")

    def __init__(
        self, op: "Op", inputs: list[Any], values: list[Any], params: dict[str, Any], moved: tuple[int, ...], out: Any
    ) -> None:
        self.op = op
        self.inputs = inputs
        #: The operands as the op got them: coefficients of order 0, and constants.
        self.values = values
        self.params = params
        #: The positions of the series.
        self.moved = moved
        #: What the op returned, and the series of it.
        self.value = self.out = out

    # Lists for several outputs, as those of a record.
    @property
    def shape(self) -> Any:
        return [x.shape for x in self.value] if isinstance(self.value, tuple) else self.value.shape

    @property
    def dtype(self) -> Any:
        return [x.dtype for x in self.value] if isinstance(self.value, tuple) else self.value.dtype

    @property
    def needs(self) -> int:
        return sum(1 << i for i in self.moved)

    def operand(self, record: Any, position: int) -> Any:
        return self.inputs[position]

    def operands(self, record: Any) -> tuple[Any, ...]:
        return tuple(self.inputs)

    def output(self, record: Any) -> Any:
        return self.out

    def at_values(self) -> "_Call":
        """Return the same call for rules that read the values of series; these may be changed."""
        return _Call(self.op, self.values, self.values, self.params, self.moved, self.value)

    def push(self, tangents: list[tuple[int, Any]]) -> Any:
        """Return the tangent of the output by the op's rules, given those of operands by their positions."""
        total: Any = None
        for position, tangent in tangents:
            rule = self.op.push(position)
            if type(rule) is not Rule:
                given = dict(tangents)
                return self.fit(push(self, [given.get(i) for i in range(len(self.inputs))], self))  # type: ignore[arg-type]
            if rule.operand is not None:
                tangent = rule.function(tangent, self.inputs[rule.operand])
            elif rule.function is not same:
                tangent = rule.run(tangent, self, self, position)  # type: ignore[arg-type]
            total = plus(total, self.fit(tangent))
        return total

    def fit(self, pushed: Any) -> Any:
        """Repeat what rules returned to the shape of the output, and bring it to its dtype."""
        value = self.value
        if isinstance(pushed, tuple) or (pushed.shape == value.shape and pushed.dtype is value.dtype):
            return pushed
        return fit(pushed, value)


@functools.lru_cache(4096)
def _way(op: "Op", moved: tuple[int, ...], count: int) -> Callable[[_Call], Coefficients]:
    """Return how an op with series at the given positions makes coefficients of order 1 and on."""
    if any(op.push(i) is Marker.NON_DIFFERENTIABLE for i in moved):
        raise _no_series(op, "an argument has no derivative")
    factors = [i for i in moved if _reads_any(op, i, moved)]
    if not factors:
        return _by_coefficient
    if op.facts.series is not None:
        return _by_recurrence
    names = op.arguments * count if op.is_variadic else op.arguments
    if all(names[i] in op.facts.linear for i in factors):
        return functools.partial(_by_products, factors, [i for i in moved if i not in factors])
    return _by_derivative


def _reads_any(op: "Op", position: int, moved: tuple[int, ...]) -> bool:
    """Say whether the JVP by an operand reads series: the output, or an operand that is one."""
    rule = op.push(position)
    if isinstance(rule, Rule):
        return rule.reads_out or rule.operands is None or any(i in moved for i in rule.operands)
    return rule is Marker.ITSELF and len(moved) > 1


def _by_coefficient(call: _Call) -> Coefficients:
    values = call.at_values()
    series = [(i, call.inputs[i]) for i in call.moved]
    return lambda n: values.push([(i, c) for i, x in series if (c := x.at(n)) is not None])


def _by_recurrence(call: _Call) -> Coefficients:
    rule = call.op.facts.series
    assert rule is not None
    return lambda n: rule(n, *[_up_to(n, x) for x in call.inputs], call.out.known)


def _by_products(factors: list[int], terms: list[int], call: _Call) -> Coefficients:
    # The rule of the first factor, linear in it, is the product: it reads the others.
    first, *others = factors
    values = call.at_values()
    rule = call.op.push(first)

    def product(coefficient: Any, *rest: Any) -> Any:
        for i, x in zip(others, rest, strict=True):
            values.inputs[i] = x
        return values.push([(first, coefficient)])

    if isinstance(rule, Rule) and [rule.operand] == others:
        product = rule.function

    def row(n: int) -> Any:
        total = values.push([(i, c) for i in terms if (c := call.inputs[i].at(n)) is not None])
        products = convolve(product, [_up_to(n, call.inputs[i]) for i in factors], n)
        return plus(total, None if products is None else values.fit(products))

    return row


def _by_derivative(call: _Call) -> Coefficients:
    slopes: list[Any] = []

    def row(n: int) -> Any:
        if not slopes:
            _let_grow(call)
            slopes.append(call.push([(i, call.inputs[i].derivative()) for i in call.moved]))
        return _map(lambda slope: None if (c := _at(slope, n - 1)) is None else c / float(n), slopes[0])

    return row


def _let_grow(call: _Call) -> None:
    """Make the operands and the output of a call growing ones, so that its rules ask for no more than is needed."""
    pool = next((pool for i in call.moved if (pool := call.inputs[i].pool) is not None), None)
    if pool is None:
        pool = {}
        for x in _series_among(call.out):
            x.pool = pool
    for i in call.moved:
        x = call.inputs[i]
        if x.pool is None:
            call.inputs[i] = x._of(x.known, x.order, x.level, None, pool)
    pool[_key(call.op, call.inputs, call.params)] = call.out


def convolve(product: Callable[..., Any], factors: Sequence[list[Any]], n: int, last: int | None = None) -> Any:
    """Return the n-th coefficient of a product of series, from those of its factors; None for zero.

    With `last`, the first factor is taken up to that order only.
    """
    first, *others = factors
    total: Any = None
    for m in range(n + 1 if last is None else last + 1):
        a = first[m]
        if a is None:
            continue
        if len(others) == 1:
            b = others[0][n - m]
            term = None if b is None else product(a, b)
        else:
            term = convolve(functools.partial(product, a), others, n - m) if others else product(a) if m == n else None
        if term is not None:
            total = term if total is None else plus(total, term)
    return total


def quotient(
    n: int,
    a: list[Any],
    b: list[Any],
    out: list[Any],
    multiply: Callable[[Any, Any], Any] = operator.mul,
    divide: Callable[[Any, Any], Any] = operator.truediv,
) -> Any:
    """Return the n-th coefficient of the solution of ``out * b = a``, for the `series` fact of an op.

    Args:
        n: the order, at least 1.
        a: the coefficients of the right-hand side, None for zeros.
        b: those of the divisor.
        out: those of the solution, up to order n - 1.
        multiply: takes coefficients of out and of b.
        divide: takes what is left of that of a, and the first one of b.
    """
    product = convolve(multiply, (out, b), n, n - 1)
    rest = a[n] if product is None else -product if a[n] is None else a[n] - product
    return None if rest is None else divide(rest, b[0])


def plus(a: Any, b: Any) -> Any:
    """Return the sum of two coefficients, or of those of several outputs; None for zero."""
    if isinstance(a, tuple):
        return tuple(map(plus, a, b))
    return b if a is None else a if b is None else a + b


def _up_to(n: int, x: Any) -> list[Any]:
    """Return the coefficients of a series or of a constant, up to order n at least."""
    if isinstance(x, Series):
        x.at(n)
        return x.known
    return [x, *[None] * n]


def _at(x: Any, n: int) -> Any:
    """Return the n-th coefficient of a series or of a constant."""
    if isinstance(x, Series):
        return x.at(n)
    return x if n == 0 else None


def _as_constant(op: "Op", operands: Sequence[Any], position: int, state: State) -> Any:
    """Return an operand without a series as rules read it: an array or number, or a tensor that something tracks."""
    operand = operands[position]
    if isinstance(operand, Value):
        is_free = operand.node is None and not state.watch_all and not isinstance(operand, Lifted)
        return operand.array if is_free else operand
    return operand if operand is None or type(operand) is np.ndarray else as_operand(op, operand, position, operands)


def _has_floats(out: Any) -> bool:
    return any(x.dtype in FLOAT_DTYPES for x in (out if isinstance(out, tuple) else (out,)))


def _map(function: Callable[[Any], Any], out: Any) -> Any:
    """Apply a function to the output of an op, or to each of several."""
    return tuple(map(function, out)) if isinstance(out, tuple) else function(out)


def _no_series(op: "Op", why: str) -> NotDifferentiableError:
    return NotDifferentiableError(f"{op.name}: does not run on power series: {why}; take derivatives by nesting.")
