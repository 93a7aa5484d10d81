"""Capture an update rule as data: run it once on symbols, which remember each op instead of computing it."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NoReturn

import numpy as np

from .._typing import Dtype, Shape
from ..core.computing import compute
from ..core.op import Op
from ..core.value import Value
from ..errors import NumtapeError
from ..lifted import LiftedTensor


class NotAnExpression(NumtapeError):
    """A rule does what symbols cannot tell: branch on values, look at shapes, mix elements, write in place."""


@dataclass(frozen=True)
class Instruction:
    """One op of a captured rule: a function of values and the number of the value that it makes."""

    function: Any
    inputs: tuple[int, ...]
    output: int


@dataclass
class Trace:
    """A rule as a straight line of instructions over numbered values.

    A value is an array like the parameter, or a number. Numbers are computed apart, once for many parameters, in
    double precision; only then are they rounded to the dtype of the arrays.
    """

    dtype: Dtype
    instructions: list[Instruction] = field(default_factory=list)
    #: For each value the dtype of its elements, or None for a number.
    kinds: list[Dtype | None] = field(default_factory=list)
    #: The numbers that the rule itself holds.
    constants: dict[int, Any] = field(default_factory=dict)
    #: Whether the rule did what symbols cannot tell. It may have caught the error, and gone on another way.
    is_refused: bool = False

    def refuse(self, why: str) -> NoReturn:
        """Raise since the rule cannot be captured."""
        self.is_refused = True
        raise NotAnExpression(why)

    def array(self) -> "Symbol":
        """Return a symbol for an array like the parameter."""
        return self._new(self.dtype)

    def number(self, is_true: bool = False) -> "Symbol":
        """Return a symbol for a number; one that `is_true` is known not to be zero, so that a rule may ask."""
        return self._new(None, is_true)

    def _new(self, kind: Dtype | None, is_true: bool = False) -> "Symbol":
        symbol = Symbol()
        symbol.origin, symbol.number, symbol.is_true = self, len(self.kinds), is_true
        self.kinds.append(kind)
        return symbol

    def run(self, op: Op, operands: Sequence[Any]) -> "Symbol":
        """Remember an op and return the symbol of its result."""
        inputs = tuple(self.number_of(operand) for operand in operands)
        kinds = [self.kinds[number] for number in inputs]
        function = _function(op)
        kind: Dtype | None = None
        if any(each is not None for each in kinds):
            with np.errstate(all="ignore"):
                kind = function(*(np.ones(1, each or self.dtype) for each in kinds)).dtype
        made = self._new(kind)
        self.instructions.append(Instruction(function, inputs, made.number))
        return made

    def number_of(self, operand: Any) -> int:
        """Return the number of the value that an operand is: of a symbol, or of a constant."""
        if isinstance(operand, Symbol) and operand.origin is self:
            return operand.number
        if isinstance(operand, Value) or not isinstance(operand, float | int | np.generic):
            self.refuse(f"an operand of type {type(operand).__name__} may change between steps")
        made = self._new(None).number
        self.constants[made] = operand.item() if isinstance(operand, np.generic) else operand
        return made


def _function(op: Op) -> Any:
    """Return what computes an op on arrays and numbers: best a ufunc, which can write into memory that is there."""
    for function in (op.forward, *op.facts.numpy):
        if isinstance(function, np.ufunc) and function.nout == 1:
            return function
    return op.forward if op.forward in op.facts.numpy else partial(_compute, op)


def _compute(op: Op, *arrays: Any) -> Any:
    return compute(op, arrays, {})


class Symbol(LiftedTensor):
    """Stands for the parameter, its gradient, a part of the state or a number while a rule is captured."""

    __slots__ = ("is_true", "number", "origin")
    meaning = "a symbol"

    origin: Trace
    number: int
    is_true: bool

    @property
    def shape(self) -> Shape:
        """Not known: a rule serves parameters of all shapes."""
        self.origin.refuse("the shape of a symbol is not known")

    def leave(self, how: str) -> NoReturn:
        """Refuse to be captured: the rule wants a number or an array now."""
        self.origin.refuse(f"{how} of a symbol is not known")

    @property
    def dtype(self) -> Dtype:
        """The dtype that the arrays of the rule are computed in; numbers are double."""
        return self.origin.kinds[self.number] or np.dtype(np.float64)

    def run_op(self, op: Op, operands: Sequence[Any], params: dict[str, Any]) -> "Symbol":
        """Remember an elementwise op on symbols and numbers."""
        if not op.is_elementwise or params or op.is_variadic:
            self.origin.refuse(f"{op.name} is not an elementwise op without parameters")
        return self.origin.run(op, operands)

    def __bool__(self) -> bool:
        if not self.is_true:
            self.origin.refuse("a branch on a value that changes from step to step")
        return True

    def __repr__(self) -> str:
        return f"<symbol {self.number}>"


Symbol.plain = Symbol
