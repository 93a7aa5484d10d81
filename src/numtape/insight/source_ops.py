"""How one step is written in NumPy: as an operator, a NumPy function, the op's own expression, or a pasted kernel.

No op is named here. What an op declares tells how it is written: its forward, and the NumPy functions that it stands
for. A NumPy function is taken only if, called as it would be written, it gives what the forward gave.
"""

import ast
import operator
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from ..core.facts import Structure
from ..core.op import REQUIRED, Op
from ..dtypes import bfloat16
from ..errors import UnsupportedError
from .replay import is_close
from .source_inlining import NotInline, inlined
from .source_kernels import Kernels, numpy_name
from .source_literals import dtype_name, literal
from .source_trace import Step, Traced

#: NumPy functions of two operands that Python has a sign for, and what the sign does.
_SIGNS: dict[Any, tuple[str, Callable[..., Any]]] = {
    np.add: ("+", operator.add),
    np.subtract: ("-", operator.sub),
    np.multiply: ("*", operator.mul),
    np.divide: ("/", operator.truediv),
    np.floor_divide: ("//", operator.floordiv),
    np.remainder: ("%", operator.mod),
    np.power: ("**", operator.pow),
    np.matmul: ("@", operator.matmul),
    np.bitwise_and: ("&", operator.and_),
    np.bitwise_or: ("|", operator.or_),
    np.bitwise_xor: ("^", operator.xor),
    np.less: ("<", operator.lt),
    np.less_equal: ("<=", operator.le),
    np.greater: (">", operator.gt),
    np.greater_equal: (">=", operator.ge),
    np.equal: ("==", operator.eq),
    np.not_equal: ("!=", operator.ne),
}
_UNARY_SIGNS: dict[Any, tuple[str, Callable[..., Any]]] = {
    np.negative: ("-", operator.neg),
    np.invert: ("~", operator.invert),
}
#: How far, in units of the dtype's last digit at 1, a NumPy function may be from the forward that it stands for.
READABLE = 64.0


class OpWriter:
    """Writes steps as expressions, and remembers which ops took a pasted kernel."""

    def __init__(
        self, kernels: Kernels, name_of: Callable[[Traced], str], large: Callable[[Any], str], tolerance: float
    ) -> None:
        self._tolerance = tolerance
        self._kernels = kernels
        self._name_of = name_of
        self._large = large
        #: The names of the ops that were pasted.
        self.pasted: set[str] = set()

    def statements(self, step: Step, left: str, fresh: Callable[[], str]) -> list[str]:
        """Return the statements that compute a step and assign its result to `left`."""
        text = self._function(step)
        before: list[str] = []
        if text is None:
            *before, text = self._inlined(step, left, fresh) or [self._kernel(step)]
        if isinstance(step.out, tuple):
            return [*before, f"{left} = {text}", *self._roundings(step)]
        rounded = step.out.dtype
        if np.asarray(step.raw).dtype != rounded:
            text = f"{_bracketed(text)}.astype({dtype_name(rounded)})"
        return before if text == left else [*before, f"{left} = {text}"]

    def _roundings(self, step: Step) -> Iterator[str]:
        """Yield a statement for each of several outputs that the forward returns wider than it is."""
        for value, raw in zip(step.outs, _results_of(step.raw), strict=True):
            if np.asarray(raw).dtype != value.dtype:
                name = self._name_of(value)
                yield f"{name} = {name}.astype({dtype_name(value.dtype)})"

    def _function(self, step: Step) -> str | None:
        """Return a step as an operator or a NumPy function, if one does what the op does."""
        operands = [self._operand(step, position) for position in range(len(step.operands))]
        for function in (step.op.forward, *step.op.facts.numpy):
            name = numpy_name(function)
            if name is None:
                continue
            text = self._with_sign(step, function, operands)
            if text is not None:
                return text
            for arguments, (args, params) in self._calls(step, operands):
                if self._agrees(step, function, args, params):
                    return f"{name}({', '.join(arguments)})"
        return None

    def _with_sign(self, step: Step, function: Any, operands: Sequence[str]) -> str | None:
        """Return ``a + b`` for a function that Python has a sign for."""
        signs = _SIGNS if len(operands) == 2 else _UNARY_SIGNS if len(operands) == 1 else {}
        if step.params or function not in signs:
            return None
        sign, run = signs[function]
        if not self._agrees(step, run, step.seen, {}):
            return None
        texts = [f"({text})" if text.startswith("-") else text for text in operands]
        return f" {sign} ".join(texts) if len(texts) == 2 else f"{sign}{texts[0]}"

    def _agrees(self, step: Step, function: Any, args: Sequence[Any], params: dict[str, Any]) -> bool:
        """Say whether a function gives what the forward gives, on what was recorded and on slightly other operands."""
        if not self._is_same(_results(function, args, params), _results_of(step.raw)):
            return False
        if function is step.op.forward:
            return True
        adds_up = step.op.facts.structure not in (Structure.ELEMENTWISE, Structure.MOVES)
        if adds_up and any(getattr(x, "dtype", None) == bfloat16 for x in step.seen):
            return False  # NumPy would add up in bfloat16 itself, which may agree here and not elsewhere.
        nudged = {id(x): _nudged(x) for x, o in zip(step.seen, step.operands, strict=True) if isinstance(o, Traced)}
        seen = tuple(nudged.get(id(x), x) for x in step.seen)
        expected = _results(step.op.forward, (seen,) if step.op.is_variadic else seen, step.params)
        args = [tuple(nudged.get(id(x), x) for x in a) if a is step.seen else nudged.get(id(a), a) for a in args]
        return expected is None or self._is_same(_results(function, args, params), expected)

    def _is_same(self, found: Sequence[Any] | None, expected: Sequence[Any]) -> bool:
        if found is None or len(found) != len(expected):
            return False
        return all(is_close(x, y, self._tolerance) for x, y in zip(found, expected, strict=True))

    def _calls(self, step: Step, operands: list[str]) -> Iterator[tuple[list[str], tuple[tuple[Any, ...], Any]]]:
        """Yield the ways in which a NumPy function may take operands and parameters, as text and as values."""
        params = step.params
        changed = {k: v for k, v in params.items() if not _is_default(step.op, k, v)}
        values = (step.seen,) if step.op.is_variadic else step.seen
        texts = [f"({', '.join(operands)}{',' if len(operands) == 1 else ''})"] if step.op.is_variadic else operands
        # Those without a default come in order, the others by name.
        first = [v for k, v in params.items() if step.op.defaults.get(k) is REQUIRED]
        for chosen in (changed, params):
            named = {k: v for k, v in chosen.items() if step.op.defaults.get(k) is not REQUIRED}
            yield (
                [*texts, *map(self._literal, first), *(f"{k}={self._literal(v)}" for k, v in named.items())],
                ((*values, *first), named),
            )
        if params:
            in_order = [self._literal(v) for v in params.values()]
            yield [*texts, *in_order], ((*values, *params.values()), {})
            yield [*in_order, *operands], ((*params.values(), *step.seen), {})

    def _inlined(self, step: Step, left: str, fresh: Callable[[], str]) -> list[str] | None:
        """Return the body of the op's forward, if that is a line or two."""
        if step.op.is_variadic or isinstance(step.out, tuple):
            return None
        found: list[str] = []
        try:
            for is_array in (False, True):
                texts = (self._operand(step, position, is_array) for position in range(len(step.operands)))
                operands = dict(zip(step.op.arguments, texts, strict=False))
                found = inlined(step.op.forward, operands, step.params, self._literal, self._large)
                if len(found) == 1:
                    break
        except NotInline:
            return None
        # The variable that is returned is the one that is assigned to.
        names = {found[-1]: left} if re.fullmatch(r"_\d+", found[-1]) and step.out.dtype == step.raw.dtype else {}
        return [re.sub(r"\b_\d+\b", lambda match: _name(names, match[0], fresh), text) for text in found]

    def _kernel(self, step: Step) -> str:
        op = step.op
        try:
            name = self._kernels.paste(op.forward, "its forward")
        except UnsupportedError as error:
            raise UnsupportedError(
                f"to_numpy_source: the op {op.name} cannot be written without numtape: {error} Leave it out of the "
                "graph, or compute its result outside and give it as a constant with detach()."
            ) from error
        self.pasted.add(op.name)
        operands = [self._operand(step, position, is_array=True) for position in range(len(step.operands))]
        if op.is_variadic:
            operands = [f"({', '.join(operands)},)"]
        params = [f"{k}={self._literal(v)}" for k, v in step.params.items() if not _is_default(op, k, v)]
        return f"{name}({', '.join([*operands, *params])})"

    def _operand(self, step: Step, position: int, is_array: bool = False) -> str:
        """Return an operand as the forward saw it. Kernels want arrays where NumPy's results are scalars."""
        operand, seen = step.operands[position], step.seen[position]
        if not is_array and _is_weak(step, position):
            # A Python number takes the dtype of what it meets.
            return repr(float(str(seen)))
        name = self._name_of(operand) if isinstance(operand, Traced) else self._literal(seen)
        if is_array and getattr(seen, "shape", None) == ():
            name = f"np.asarray({name})"
        if not isinstance(operand, Traced):
            return name
        return name if seen.dtype == operand.dtype else f"{name}.astype({dtype_name(seen.dtype)})"

    def _literal(self, value: Any) -> str:
        return literal(value, self._large)


def _name(names: dict[str, str], variable: str, fresh: Callable[[], str]) -> str:
    """Return the name of a variable, a new one at its first use."""
    if variable not in names:
        names[variable] = fresh()
    return names[variable]


def _is_weak(step: Step, position: int) -> bool:
    """Say whether an operand is a constant number of the dtype that another operand has anyway."""
    operand, seen = step.operands[position], step.seen[position]
    if isinstance(operand, Traced) or not isinstance(seen, np.ndarray) or seen.shape or not np.isfinite(seen):
        return False
    others = [other for i, other in enumerate(step.operands) if i != position and isinstance(other, Traced)]
    return seen.dtype.kind == "f" and step.op.is_elementwise and any(x.dtype == seen.dtype for x in others)


def _is_default(op: Op, name: str, value: Any) -> bool:
    default = op.defaults.get(name)
    return type(value) is type(default) and not isinstance(value, np.ndarray) and bool(value == default)


def _bracketed(text: str) -> str:
    return text if isinstance(ast.parse(text, mode="eval").body, ast.Call | ast.Name) else f"({text})"


def _results(function: Any, args: Sequence[Any], params: dict[str, Any]) -> tuple[Any, ...] | None:
    """Return what a function returns, as a tuple; None if it does not take these arguments."""
    try:
        with np.errstate(all="ignore"):
            return _results_of(function(*args, **params))
    except Exception:
        return None


def _results_of(out: Any) -> tuple[Any, ...]:
    return tuple(out) if isinstance(out, tuple | list) else (out,)


def _nudged(x: Any) -> Any:
    """Return slightly other values: what two functions have in common by chance, such as symmetry, is gone."""
    if x.dtype.kind != "f":
        return x
    return np.asarray(x + np.sin(np.arange(1, x.size + 1)).reshape(x.shape) * 0.01).astype(x.dtype)
