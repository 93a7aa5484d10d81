"""Tensor: an array that remembers how it was computed. One line per operator, naming its op."""

from typing import Any

from . import protocols
from .core.value import Value
from .ops import arithmetic, casting, comparisons, exponential, indexing, matrices, reductions, shapes


def _swapped(face: Any) -> Any:
    """Return a binary operator with its operands exchanged."""

    def operator(self: Any, other: Any) -> Any:
        return face(other, self)

    return operator


class Tensor(Value):
    """An n-dimensional array of numbers whose ops can be recorded and differentiated."""

    __slots__ = ()
    # NumPy's operators defer to ours.
    __array_priority__ = 1000

    __hash__ = object.__hash__
    __array_ufunc__ = protocols.array_ufunc
    __array_function__ = protocols.array_function

    __add__ = arithmetic.add
    __radd__ = _swapped(arithmetic.add)
    __sub__ = arithmetic.sub
    __rsub__ = _swapped(arithmetic.sub)
    __mul__ = arithmetic.mul
    __rmul__ = _swapped(arithmetic.mul)
    __truediv__ = arithmetic.div
    __rtruediv__ = _swapped(arithmetic.div)
    __pow__ = arithmetic.pow
    __rpow__ = _swapped(arithmetic.pow)
    __abs__ = arithmetic.abs
    __neg__ = arithmetic.neg
    __matmul__ = matrices.matmul
    __rmatmul__ = _swapped(matrices.matmul)
    __getitem__ = indexing.getitem
    __setitem__ = indexing.setitem
    __eq__ = comparisons.equal
    __ne__ = comparisons.not_equal
    __lt__ = comparisons.less
    __le__ = comparisons.less_equal
    __gt__ = comparisons.greater
    __ge__ = comparisons.greater_equal
    sum = reductions.sum
    max = reductions.max
    exp = exponential.exp
    reshape = shapes.reshape
    swapaxes = shapes.swapaxes
    astype = casting.cast


Tensor.plain = Tensor
