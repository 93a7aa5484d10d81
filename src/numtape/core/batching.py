"""Forward functions with a leading batch axis on any subset of the operands: what the `batch` fact of an op holds.

A batch function takes the op, the operands, for each whether it carries a leading batch axis, and the parameters; it
returns the outputs of all members, stacked along a leading axis. Sweeps use it to carry many (co)tangents at once.
"""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .._typing import Dtype, NDArray, Shape
from ..kernels.broadcasting import LEAST_RESULT
from .apply import apply
from .faces import on_arrays
from .value import Lifted

if TYPE_CHECKING:
    from .op import Op, Rule
    from .reader import Reader
    from .record import Record


class Batched(Lifted):
    """Many values of one shape, which ops treat alike: sweeps carry many (co)tangents at once in one of these."""

    __slots__ = ("members",)

    #: The values along a leading axis: an array, or a tensor where the sweep is recorded.
    members: Any

    @classmethod
    def of(cls, members: Any) -> Any:
        """Return the batch of what stands along the first axis of an array or a tensor."""
        batch = cls.__new__(cls)
        batch.members = members
        batch.node = batch.version = batch.extras = None
        return batch

    @classmethod
    def of_units(cls, members: NDArray, first: int) -> Any:
        """Return the batch of the rows of a matrix: the unit vectors whose 1 is in the `first` place, and the next."""
        return cls.of(members)

    @property
    def shape(self) -> Shape:
        """The shape of one member."""
        shape: Shape = self.members.shape[1:]
        return shape

    @property
    def dtype(self) -> Dtype:
        """The dtype of the members."""
        dtype: Dtype = self.members.dtype
        return dtype

    @property
    def inside(self) -> Any:
        """All members."""
        return self.members

    def detached(self) -> Any:
        """Return the same members as constants."""
        return self.of(self.members if isinstance(self.members, np.ndarray) else self.members.detach())

    def mapped(self, rule: "Rule", record: "Record", reader: "Reader", position: int) -> Any:
        """Run a partial of a record once, on the array of all members; None if it must run as ops.

        It computes the same for each element, whichever axes stand in front. Ops do better for large arrays alone.
        """
        members = self.members
        ndim = len(record.shape)
        if reader.cls is not None or len(members) * math.prod(record.shape) >= LEAST_RESULT:
            return None
        if members.ndim <= ndim:
            members = _lined_up(members, ndim)
        out = rule.run(members, record, reader, position)
        return self.of(out) if out.ndim > ndim else out

    def run_op(self, op: "Op", operands: Sequence[Any], params: dict[str, Any]) -> Any:
        """Run an op on all members."""
        batched: list[bool] = []
        members: list[Any] = []
        for x in operands:
            is_batched = isinstance(x, Batched)
            batched.append(is_batched)
            members.append(x.members if is_batched else x)
        out = run(op, members, batched, params)
        return tuple(map(self.of, out)) if type(out) is tuple else self.of(out)


def run(op: "Op", operands: Sequence[Any], batched: Sequence[bool], params: dict[str, Any]) -> Any:
    """Run an op on batched operands, by its own batch function or member by member."""
    batch = op.facts.batch or loop
    return batch(op, operands, batched, params)


def loop(op: "Op", operands: Sequence[Any], batched: Sequence[bool], params: dict[str, Any]) -> Any:
    """Run the members one by one and stack the results: right for every op."""
    size = next(len(x) for x, is_batched in zip(operands, batched, strict=True) if is_batched)
    results = [
        apply(op, [x[i] if is_batched else x for x, is_batched in zip(operands, batched, strict=True)], params)
        for i in range(size)
    ]
    if isinstance(results[0], tuple):
        return tuple(np.stack(parts) for parts in zip(*results, strict=True))
    return np.stack(results)


def elementwise(op: "Op", operands: Sequence[Any], batched: Sequence[bool], params: dict[str, Any]) -> Any:
    """Line up the members' axes at the end, so that broadcasting keeps the batch axis in front."""
    most, fewest = 0, math.inf
    for x, is_batched in zip(operands, batched, strict=True):
        ndim = getattr(x, "ndim", 0) - is_batched
        if ndim > most:
            most = ndim
        if is_batched and ndim < fewest:
            fewest = ndim
    if fewest < most:
        operands = [
            _lined_up(x, most) if is_batched and x.ndim <= most else x
            for x, is_batched in zip(operands, batched, strict=True)
        ]
    return on_arrays(op, tuple(operands), params)


def _lined_up(members: Any, ndim: int) -> Any:
    """Return members with as many axes as a result that has `ndim`."""
    return members.reshape((members.shape[0],) + (1,) * (ndim + 1 - members.ndim) + members.shape[1:])


def along_axis(op: "Op", operands: Sequence[Any], batched: Sequence[bool], params: dict[str, Any]) -> Any:
    """Shift the parameter `axis` of an op of one operand past the batch axis."""
    (x,) = operands
    axis = params["axis"]
    ndim = x.ndim - 1
    if axis is None:
        axis = tuple(range(ndim))
    if ndim == 0:
        return loop(op, operands, batched, params)
    shifted = tuple(a % ndim + 1 for a in axis) if isinstance(axis, tuple) else axis % ndim + 1
    return apply(op, operands, {**params, "axis": shifted})


def along_one_axis(op: "Op", operands: Sequence[Any], batched: Sequence[bool], params: dict[str, Any]) -> Any:
    """Shift the parameter `axis` of an op that goes along one, or along the flattened operand, past the batch axis."""
    (x,) = operands
    axis = params["axis"]
    if axis is None:
        x, axis = x.reshape((x.shape[0], -1)), 0
    return op.face(x, **{**params, "axis": axis % (len(x.shape) - 1) + 1})
