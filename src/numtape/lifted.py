"""Tensors that stand for more than one array, with every op and method of `Tensor`: what sweeps compute on."""

import math
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np

from ._typing import NDArray
from .core.batching import Batched
from .core.context import BY_CALLS, current
from .core.op import Op
from .core.record import call_site
from .core.value import Lifted
from .errors import LeavesTapeError
from .tensors import Tensor


def _leaves(how: str) -> Any:
    def method(self: Any, *args: Any, **kwargs: Any) -> None:
        self.leave(how)

    return method


class LiftedTensor(Lifted, Tensor):
    """A tensor that has a shape and a dtype, but no array of its own."""

    __slots__ = ()

    #: What one of these stands for, in words.
    meaning = "several values"

    def leave(self, how: str) -> NoReturn:
        """Raise since somebody wants the array or the number that this tensor does not have."""
        current().thread.note_exit(*call_site(sys._getframe()), how)
        raise LeavesTapeError(
            f"{how}: this tensor stands for {self.meaning} while a derivative is computed, so it has no single value; "
            "compute with nt or np functions, or take the derivative in another mode."
        )

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """The number of bytes of one array of this shape."""
        return self.size * self.dtype.itemsize

    def numel(self) -> int:
        """Return the number of elements."""
        return self.size

    def dim(self) -> int:
        """Return the number of axes."""
        return self.ndim

    def __repr__(self) -> str:
        return f"<{self.meaning} of shape {self.shape}, {self.dtype}>"

    numpy = _leaves("numpy()")
    item = _leaves("item()")
    tolist = _leaves("tolist()")
    __array__ = _leaves("np.asarray()")
    __float__ = _leaves(BY_CALLS)
    __int__ = _leaves("int()")
    __bool__ = _leaves("bool()")
    __index__ = _leaves("index")


class BatchedTensor(Batched, LiftedTensor):
    """A batch of tangents or cotangents."""

    __slots__ = ()
    meaning = "a batch of values"

    def __add__(self, other: Any) -> Any:
        """Add another batch, as sweeps add up what arrives from several sides: without an op where both are arrays."""
        if type(other) is BatchedTensor:
            a, b = self.members, other.members
            if type(a) is type(b) is np.ndarray and a.shape == b.shape and a.dtype is b.dtype:
                return self.of(a + b)
        return super().__add__(other)

    @classmethod
    def of_units(cls, members: NDArray, first: int) -> "UnitVectors":
        """Return the batch of the rows of a matrix, which are unit vectors."""
        batch = UnitVectors.__new__(UnitVectors)
        batch.members = members
        batch.node = batch.version = batch.extras = None
        batch.first = first
        return batch


class UnitVectors(BatchedTensor):
    """A batch of unit vectors, whose 1 moves on by one from member to member: what whole Jacobians begin with."""

    __slots__ = ("first",)

    #: The place of the 1 in the first member.
    first: int

    #: What is computed of them is any batch.
    of = BatchedTensor.of

    def run_op(self, op: Op, operands: Sequence[Any], params: dict[str, Any]) -> Any:
        """Run an op on all members; without arithmetic, if it only selects parts of another operand."""
        of_units = op.facts.of_units
        if of_units is not None:
            others = [x for x in operands if x is not self]
            if len(others) == len(operands) - 1 and all(
                type(x) is np.ndarray and x.dtype == self.dtype for x in others
            ):
                position = next(i for i, x in enumerate(operands) if x is self)
                parts = of_units(operands, position, slice(self.first, self.first + len(self.members)))
                if parts is not None:
                    parts.setflags(write=False)  # They are in the memory of the operand.
                    return self.of(parts)
        return super().run_op(op, operands, params)


BatchedTensor.plain = UnitVectors.plain = BatchedTensor
