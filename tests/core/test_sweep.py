"""Tests of the door to the sweeps: its arguments hold whether the rules are recorded or not."""

import numpy as np
import pytest

import numtape as nt
from numtape.core.cells import Cell
from numtape.core.gradients import sweep


@pytest.mark.parametrize("create_graph", [False, True])
def test_a_sweep_goes_not_past_its_ends(create_graph):
    x = nt.tensor([1.0, 2.0], requires_grad=True)
    middle = x * 3.0
    out = (middle * middle).sum()
    found = sweep([out], [np.ones(())], None, ends={middle.node}, create_graph=create_graph)
    assert list(found) == [middle.node]
    assert found[middle.node].tolist() == [6.0, 12.0]


@pytest.mark.parametrize("create_graph", [False, True])
def test_what_is_dead_is_no_matter_for_leaves_that_nobody_requires(create_graph):
    x = nt.tensor([1.0, 2.0])
    tape = nt.Tape(persistent=True)
    with tape:
        tape.watch(x)
        out = (x * x).sum()
    out.node.cell = Cell("a test")
    out.node.cell.kill()
    assert sweep([out], [np.ones(())], None, required_only=True, create_graph=create_graph) == {}
    with pytest.raises(nt.errors.ClosedError):
        sweep([out], [np.ones(())], None, create_graph=create_graph)
