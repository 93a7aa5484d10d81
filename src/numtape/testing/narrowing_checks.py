"""The check that rules which sum cotangents on the way give the sums of what they give whole."""

import itertools

from .._typing import Shape
from ..core.op import Composite, Op, Rule
from ..core.reader import Reader
from ..core.record import Record
from ..ops.samples import Sample
from .op_cases import Title, assert_close, case_of, directions, leaves


class _Narrowed(Reader):
    """Wants cotangents summed along some axes."""

    __slots__ = ("shape",)

    shape: Shape

    def wanted_shape(self, record: Record, position: int) -> Shape:
        return self.shape


def check_narrowing(entry: Op | Composite, sample: Sample) -> None:
    """A rule that can sum on the way gives the sums of what it gives whole, along any axes."""
    if isinstance(entry, Composite) or not any(isinstance(rule, Rule) and rule.can_sum for rule in entry.pulls):
        return
    case = case_of(entry, sample)
    (out,) = case.values(leaves(case.operands))
    (g,) = directions([out.array], 4)
    for position, x in enumerate(case.operands):
        rule = entry.pull(position)
        assert isinstance(rule, Rule)
        whole = rule.run(g, out.node, Reader(None), position)
        for axes in itertools.chain(*(itertools.combinations(range(x.ndim), n) for n in range(1, x.ndim + 1))):
            reader = _Narrowed(None)
            reader.shape = tuple(1 if axis in axes else n for axis, n in enumerate(x.shape))
            found = rule.run(g, out.node, reader, position)
            # What it cannot sum, the sweep sums.
            axes_left = tuple(axis for axis in axes if found.shape[axis] != 1)
            expected = whole.sum(axis=axes, keepdims=True)
            title = Title("narrowed VJP of ", entry.name, sample, " along ", axes)
            assert_close(found.sum(axis=axes_left, keepdims=True), expected, 1e-11, title)
