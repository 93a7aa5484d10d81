"""The path of ``x * y`` to its gradient, hop by hop: ARCHITECTURE.md tells the same story in words."""

import numpy as np

import numtape as nt
from numtape.core import reverse
from numtape.core.cells import FREED
from numtape.core.context import current
from numtape.core.declare import public, registry
from numtape.core.reader import Reader
from numtape.core.record import Record
from numtape.core.value import LEAF
from numtape.tensors import Tensor


def test_the_story_of_x_times_y():
    # 1. Leaves: tensors that require a gradient have the node LEAF and no record.
    x = nt.tensor([1.0, 2.0], requires_grad=True)
    y = nt.tensor([3.0, 4.0], requires_grad=True)
    assert x.node is LEAF
    assert y.node is LEAF

    # 2. The operator runs the op of that name, whose public function is nt.mul.
    op = registry["mul"]
    assert public["mul"] is nt.mul
    assert nt.mul.op is op

    # 3. The forward is plain NumPy.
    assert op.forward is np.multiply

    # 4. Running it wraps the result and leaves a record: data, with links to its inputs.
    z = x * y
    record = z.node
    assert type(record) is Record
    assert record.op is op
    assert record.inputs == (x, y)
    assert record.needs == 0b11
    assert record.shape == (2,)
    assert record.dtype == np.float32
    assert "z = x * y" in record.site

    # 5. The rules say by their parameters what they read: the other factor.
    assert op.kept(0b11) == ((0, 1), False)
    assert record.array is None  # Nobody reads the product itself.

    # 6. The record belongs to the current context's generation, and nothing points back at the tensor.
    assert record.cell is current().context.cell

    # 7. The rule, on arrays.
    g = np.array([1.0, 10.0], np.float32)
    assert reverse.pull(record, g, Reader(None))[0].tolist() == [3.0, 40.0]

    # 8. The sweep walks the records from the newest and returns the leaves' cotangents.
    found = reverse.reverse([(record, g)])
    assert found[x].tolist() == [3.0, 40.0]
    assert found[y].tolist() == [1.0, 20.0]

    # 9. Backward seeds it with ones, delivers to .grad and frees the graph.
    z.sum().backward()
    assert x.grad.tolist() == [3.0, 4.0]
    assert y.grad.tolist() == [1.0, 2.0]
    assert record.cell is FREED


def test_the_same_rule_runs_on_tensors_for_second_order():
    x = nt.tensor(3.0, requires_grad=True)
    y = x * x
    seed = nt.tensor(1.0)
    first = reverse.reverse([(y.node, seed)], [x], cls=Tensor)[x]
    assert first.item() == 6.0
    assert type(first.node) is Record
    second = reverse.reverse([(first.node, np.ones((), np.float32))], [x])[x]
    assert second == 2.0
