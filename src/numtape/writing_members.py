"""In-place methods of tensors, in PyTorch's spelling: each writes into the tensor, recorded, and returns it."""

from typing import Any, Self

from . import ops
from .core.inplace import write_op
from .core.value import Value
from .errors import ArgumentError
from .ops.indexing import setitem


class WritingMembers(Value):
    """What tensors can do to themselves; ``x += y`` and ``x[i] = y`` say the same."""

    __slots__ = ()

    def copy_(self, source: Any) -> Self:
        """Write the elements of another tensor, an array or a number into this one."""
        setitem(self, ..., source)
        return self

    def fill_(self, value: Any) -> Self:
        """Write a number into all elements."""
        return self.copy_(value)

    def zero_(self) -> Self:
        """Write 0 into all elements."""
        return self.copy_(0)

    def add_(self, other: Any, alpha: Any = 1) -> Self:
        """Add `alpha` times another operand."""
        return self._write(ops.add, scaled(other, alpha))

    def sub_(self, other: Any, alpha: Any = 1) -> Self:
        """Subtract `alpha` times another operand."""
        return self._write(ops.sub, scaled(other, alpha))

    def mul_(self, other: Any) -> Self:
        """Multiply by another operand."""
        return self._write(ops.mul, other)

    def div_(self, other: Any) -> Self:
        """Divide by another operand."""
        return self._write(ops.div, other)

    def clamp_(self, min: Any = None, max: Any = None) -> Self:
        """Bring elements that are below `min` or above `max` to these bounds."""
        if min is None and max is None:
            raise ArgumentError("clamp_: neither min nor max is given; give one of them.")
        written: Self = ops.clip(self, min, max, out=self)
        return written

    def exp_(self) -> Self:
        """Replace each element by its exponential."""
        written: Self = ops.exp(self, out=self)  # type: ignore[call-arg]
        return written

    def relu_(self) -> Self:
        """Bring elements that are below 0 to 0."""
        written: Self = ops.relu(self, out=self)  # type: ignore[call-arg]
        return written

    def masked_fill_(self, mask: Any, value: Any) -> Self:
        """Write a number where a mask holds."""
        return self.copy_(ops.masked_fill(self, mask, value))

    def scatter_(self, dim: int, index: Any, src: Any = None, *, value: Any = None) -> Self:
        """Write elements of `src`, or one number, where an index points along an axis."""
        if (src is None) == (value is None):
            raise ArgumentError("scatter_: give what to write, as src or as value, and not both.")
        return self.copy_(ops.scatter(self, dim, index, value if src is None else src))

    def scatter_add_(self, dim: int, index: Any, src: Any) -> Self:
        """Add elements of `src`, or one number, where an index points along an axis."""
        return self.copy_(ops.scatter_add(self, dim, index, src))

    def _write(self, face: Any, other: Any) -> Self:
        written: Self = write_op(self, face.op, (self, other))
        return written


def scaled(other: Any, alpha: Any) -> Any:
    """Return ``alpha * other``."""
    return other if type(alpha) is int and alpha == 1 else ops.mul(other, alpha)
