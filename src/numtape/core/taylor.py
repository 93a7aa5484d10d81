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
import math
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from .._typing import Dtype, Shape
from ..dtypes import FLOAT_DTYPES
from ..errors import NotDifferentiableError
from .apply import apply, as_operand
from .context import State, current
from .forward import fit, push
from .op import Marker, Rule
from .value import Lifted, Value, wrap

if TYPE_CHECKING:
    from .op import Op

#: From n to the n-th coefficient: an array or a tensor, or None for zero.
Coefficients = Callable[[int], Any]


class Series(Lifted):
    """A power series in the variable of one transform, up to some order.

    Invariants:
    - The coefficient of order 0 is known from the start, and is never None.
    - `more` makes the coefficients that are not known yet, in order; it is None as soon as all of them are.
    - Series of a lower level, and all else, are constants to an op on series.
    """

    __slots__ = ("known", "level", "more", "order")

    #: The class of tensors without a series.
    constant_class: type[Value]

    known: list[Any]
    order: int
    #: The number of transforms around the variable, which tells nested ones apart.
    level: int
    more: Coefficients | None

    @classmethod
    def of(cls, known: list[Any], order: int, level: int, more: Coefficients | None = None) -> Self:
        """Return a series with some coefficients, and a function that makes the others if they are not zero."""
        series = cls.__new__(cls)
        series.known = known if more is not None else known + [None] * (order + 1 - len(known))
        series.order = order
        series.level = level
        series.more = more
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

    def at(self, n: int) -> Any:
        """Return the n-th coefficient; None for zero."""
        known = self.known
        while len(known) <= n:
            assert self.more is not None
            known.append(self.more(len(known)))
        return known[n]

    def truncated(self) -> Self:
        """Return the series without its last coefficient."""
        if self.more is not None:
            return self.of([self.known[0]], self.order - 1, self.level, self.at)
        return self.of(self.known[:-1], self.order - 1, self.level)

    def derivative(self) -> Self:
        """Return the derivative, which has an order less."""

        def more(n: int) -> Any:
            coefficient = self.at(n + 1)
            return coefficient if coefficient is None or n == 0 else coefficient * float(n + 1)

        first = more(0)
        if first is None:
            first = np.zeros(self.shape, self.dtype)
        if self.more is not None:
            return self.of([first], self.order - 1, self.level, more)
        return self.of([first, *map(more, range(1, self.order))], self.order - 1, self.level)

    def run_op(self, op: "Op", operands: Sequence[Any], params: dict[str, Any]) -> Any:
        """Run an op on series and constants."""
        state = current()
        level = max(x.level for x in operands if isinstance(x, Series))
        moved = tuple(i for i, x in enumerate(operands) if isinstance(x, Series) and x.level == level)
        inputs = [x if i in moved else _as_constant(op, x, i, state) for i, x in enumerate(operands)]
        out = apply(op, [x.known[0] if i in moved else x for i, x in enumerate(inputs)], params)
        if op.facts.is_discrete or not state.grad:
            return _map(self._as_tensor, out)
        if state.transforms > level and any(isinstance(x, Value) and x.node is not None for x in operands):
            raise _no_series(op, "a transform within would have to see through it")
        return self._grow(_Call(op, inputs, params, moved, out))

    def _as_tensor(self, value: Any) -> Any:
        return value if isinstance(value, Value) else wrap(self.constant_class, np.asarray(value))

    def _grow(self, call: "_Call") -> Any:
        """Return the series of what an op returned: finished, unless one of its operands is not."""
        operands = [call.inputs[i] for i in call.moved]
        order = min(x.order for x in operands)
        row = _way(call.op, call.moved, len(call.inputs))(call, order)
        grown: list[Any] = []

        def part(value: Any, coefficient: Coefficients) -> Any:
            if value.dtype not in FLOAT_DTYPES:
                return self._as_tensor(value)
            grown.append(self.of([value], order, operands[0].level, coefficient))
            return grown[-1]

        if isinstance(call.out, tuple):
            rows = functools.cache(row)
            call.out = tuple(part(x, lambda n, i=i: rows(n)[i]) for i, x in enumerate(call.out))
        else:
            call.out = part(call.out, row)
        if all(x.more is None for x in operands):
            with np.errstate(all="ignore"):
                for n in range(1, order + 1):
                    for series in grown:
                        series.at(n)
            for series in grown:
                series.more = None
        return call.out


class _Call:
    """One run of an op on series: what its rules read, in the place of a record and of its reader."""

    __slots__ = ("dtype", "inputs", "moved", "needs", "op", "out", "params", "shape")

    def __init__(self, op: "Op", inputs: list[Any], params: dict[str, Any], moved: tuple[int, ...], out: Any) -> None:
        self.op = op
        self.inputs = inputs
        self.params = params
        self.moved = moved
        self.needs = sum(1 << i for i in moved)
        self.out = out
        self.shape: Any = _map(lambda x: x.shape, out)
        self.dtype: Any = _map(lambda x: x.dtype, out)

    def operand(self, record: Any, position: int) -> Any:
        return self.inputs[position]

    def operands(self, record: Any) -> tuple[Any, ...]:
        return tuple(self.inputs)

    def output(self, record: Any) -> Any:
        return self.out

    def with_inputs(self, inputs: list[Any]) -> "_Call":
        """Return the same call with other values for its rules to read."""
        other = _Call(self.op, inputs, self.params, (), self.out)
        other.needs, other.shape, other.dtype = self.needs, self.shape, self.dtype
        return other

    def push(self, tangents: list[Any]) -> Any:
        """Return the tangent of the output, by the op's rules; None where nothing flows."""
        if all(tangent is None for tangent in tangents):
            return None if not isinstance(self.out, tuple) else (None,) * len(self.out)
        pushed = push(self, tangents, self)  # type: ignore[arg-type]
        return pushed if isinstance(pushed, tuple) else fit(pushed, self)


#: Prepares the coefficients of order 1 and on of a call's output, up to some order.
_Way = Callable[[_Call, int], Coefficients]


@functools.cache
def _way(op: "Op", moved: tuple[int, ...], count: int) -> _Way:
    """Return how an op runs on series at the given positions."""
    if any(op.push(i) is Marker.NON_DIFFERENTIABLE for i in moved):
        raise _no_series(op, "an argument has no derivative")
    factors = tuple(i for i in moved if _reads_any(op, i, moved))
    if not factors:
        return _by_coefficient
    if op.facts.series is not None:
        return _by_recurrence
    names = op.arguments * count if op.is_variadic else op.arguments
    if all(names[i] in op.facts.linear for i in factors):
        return functools.partial(_by_products, factors)
    return _by_derivative


def _reads_any(op: "Op", position: int, moved: tuple[int, ...]) -> bool:
    """Say whether the JVP by an operand reads series: the output, or an operand that is one."""
    rule = op.push(position)
    if isinstance(rule, Rule):
        return rule.reads_out or rule.operands is None or any(i in moved for i in rule.operands)
    return rule is Marker.ITSELF and len(moved) > 1


def _by_coefficient(call: _Call, order: int) -> Coefficients:
    values = call.with_inputs([_at(x, 0) if i in call.moved else x for i, x in enumerate(call.inputs)])
    return lambda n: values.push([_at(x, n) if i in call.moved else None for i, x in enumerate(call.inputs)])


def _by_recurrence(call: _Call, order: int) -> Coefficients:
    rule = call.op.facts.series
    assert rule is not None
    operands = [functools.partial(_at, x) for x in call.inputs]
    return lambda n: rule(n, lambda m: call.out.at(m), *operands)


def _by_products(factors: tuple[int, ...], call: _Call, order: int) -> Coefficients:
    # The rule of the first factor, linear in it, is the product: it reads the others.
    first, *others = factors
    values = call.with_inputs([_at(x, 0) if i in call.moved else x for i, x in enumerate(call.inputs)])
    nothing: list[Any] = [None] * len(call.inputs)

    def row(n: int) -> Any:
        total = values.push([_at(x, n) if i not in factors else None for i, x in enumerate(call.inputs)])
        for split in _splits(n, len(factors)):
            chosen = [_at(call.inputs[i], m) for i, m in zip(factors, split, strict=True)]
            if any(x is None for x in chosen):
                continue
            for i, x in zip(others, chosen[1:], strict=True):
                values.inputs[i] = x
            tangents = nothing.copy()
            tangents[first] = chosen[0]
            total = plus(total, values.push(tangents))
        return total

    return row


def _by_derivative(call: _Call, order: int) -> Coefficients:
    @functools.cache
    def derivative() -> Any:
        lower = [x.truncated() if i in call.moved else x for i, x in enumerate(call.inputs)]
        tangents = [x.derivative() if i in call.moved else None for i, x in enumerate(call.inputs)]
        return call.with_inputs(lower).push(tangents)

    def row(n: int) -> Any:
        return _map(lambda slope: None if _at(slope, n - 1) is None else _at(slope, n - 1) / float(n), derivative())

    return row


def quotient(
    n: int,
    out: Coefficients,
    a: Coefficients,
    b: Coefficients,
    multiply: Callable[[Any, Any], Any],
    divide: Callable[[Any, Any], Any],
) -> Any:
    """Return the n-th coefficient of the solution of ``b * out = a``, for the `series` fact of an op.

    Args:
        n: the order, at least 1.
        out: the coefficients of the solution, of which those below n are known.
        a: the coefficients of the right-hand side.
        b: those of the divisor.
        multiply: takes coefficients of b and of out.
        divide: takes the remainder, and the first coefficient of b.
    """
    rest = a(n)
    for j in range(1, n + 1):
        divisor, solution = b(j), out(n - j)
        if divisor is not None and solution is not None:
            product = multiply(divisor, solution)
            rest = -product if rest is None else rest - product
    return None if rest is None else divide(rest, b(0))


def plus(a: Any, b: Any) -> Any:
    """Return the sum of two coefficients, either of which may be None for zero."""
    if isinstance(a, tuple):
        return tuple(map(plus, a, b))
    return b if a is None else a if b is None else a + b


def _splits(n: int, parts: int) -> Iterator[tuple[int, ...]]:
    """Yield the ways to write n as a sum of non-negative integers, in order."""
    if parts == 1:
        yield (n,)
        return
    for first in range(n + 1):
        for rest in _splits(n - first, parts - 1):
            yield (first, *rest)


def _at(x: Any, n: int) -> Any:
    """Return the n-th coefficient of a series or of a constant."""
    if isinstance(x, Series):
        return x.at(n)
    return x if n == 0 else None


def _as_constant(op: "Op", operand: Any, position: int, state: State) -> Any:
    """Return an operand without a series as rules read it: an array or number, or a tensor that something tracks."""
    if isinstance(operand, Value):
        is_free = operand.node is None and not state.watch_all and not isinstance(operand, Lifted)
        return operand.array if is_free else operand
    return operand if operand is None or type(operand) is np.ndarray else as_operand(op, operand, position)


def _map(function: Callable[[Any], Any], out: Any) -> Any:
    """Apply a function to the output of an op, or to each of several."""
    return tuple(map(function, out)) if isinstance(out, tuple) else function(out)


def _no_series(op: "Op", why: str) -> NotDifferentiableError:
    return NotDifferentiableError(f"{op.name}: does not run on power series: {why}; take derivatives by nesting.")
