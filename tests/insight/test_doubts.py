"""NumPy arrays that were overwritten after ops had read them: what is held tells, and nothing is guessed."""

import numpy as np
import pytest

import numtape as nt
from numtape.errors import OverwrittenError

AGAIN = "computed again, the {} is not what it was{}: 'b', the NumPy array that {} read at {}, was overwritten since."


def ones():
    return nt.ones(2, dtype="float64", requires_grad=True, name="w")


@pytest.fixture(autouse=True)
def quiet():
    with np.errstate(all="ignore"):
        yield


@pytest.mark.parametrize("retain_graph", [False, True])
def test_a_gradient_that_was_delivered_tells_that_an_operand_was_refilled(retain_graph):
    b = np.array([1.0, 0.0])
    w = ones()
    loss = nt.sqrt(w * b).sum()
    loss.backward(retain_graph=retain_graph)
    assert np.isnan(w.grad.numpy()).tolist() == [False, True]
    before = nt.explain_nan(loss)
    assert (before.direction, before.op, before.index) == ("backward", "sqrt", (1,))
    assert before.cause == "the derivative of sqrt by x is inf where x = 0."
    b[:] = [0.0, 1.0]
    for found in (nt.explain_nan(loss), nt.explain_nan(w), nt.explain_nan(w.grad)):
        assert (found.direction, found.op, found.number, found.index) == ("unknown", "mul", 0, (1,))
        assert np.isnan(found.value)
        of = f"result of sqrt at {found.site}" if retain_graph else "gradient of w"
        where = "" if retain_graph else " (nan at index (1,))"
        assert found.cause == AGAIN.format(of, where, "mul", found.site)
        assert found.repair == "ask before it is written, or give a copy of it to the op."


def test_the_loss_alone_tells_that_an_operand_was_refilled_if_all_gradients_are_finite_now():
    b = np.array([1.0, 0.0])
    w = ones()
    loss = nt.sqrt(w * b).sum()
    loss.backward()
    b[:] = 5.0
    for found in (nt.explain_nan(loss), nt.explain_nan(w), nt.explain_nan(w.grad, loss=loss)):
        assert (found.direction, found.op, found.index) == ("unknown", "mul", (1,))
        assert found.cause == AGAIN.format(f"result of sum at {found.site}", "", "mul", found.site)


def test_a_tensor_that_the_program_holds_tells_that_an_operand_was_refilled():
    b = np.array([1.0, 0.0])
    y = ones() / b
    loss = y.sum()
    assert nt.explain_nan(loss).cause == "div is finite where b != 0, and here a = 1 and b = 0."
    b[:] = [0.0, 1.0]
    found = nt.explain_nan(loss)
    assert (found.direction, found.op, found.index, found.value) == ("unknown", "div", (1,), np.inf)
    assert found.operands == ()
    assert found.cause == AGAIN.format(f"result of div at {found.site}", " (inf at index (1,))", "div", found.site)
    assert y.numpy().tolist() == [1.0, np.inf]


def test_where_nothing_is_held_the_answer_says_what_it_takes_for_granted():
    b = np.array([1.0, 0.0])
    loss = (ones() / b).sum()
    b[:] = [0.0, 1.0]
    found = nt.explain_nan(loss)
    assert found.cause == (
        f"div is finite where b != 0, and here a = 1 and b = 0. That is so if 'b', the NumPy array that div read at "
        f"{found.site}, was not written since: nothing that is held tells."
    )
    b[:] = 1.0
    found = nt.explain_nan(loss)
    assert (found.direction, found.op) == ("unknown", "div")
    assert "is not what it was: 'b', the NumPy array that div read at " in found.cause


def test_an_array_that_was_refilled_elsewhere_does_not_hide_what_is_certain():
    buffer = np.ones(2)
    v = nt.tensor([0.0, 1.0], dtype="float64", requires_grad=True)
    loss = (ones() * buffer).sum() + nt.log(v).sum()
    buffer[:] = 7.0
    found = nt.explain_nan(loss)
    assert (found.direction, found.op, found.index) == ("forward", "log", (0,))
    assert found.cause == "log is finite where x > 0, and here x = 0."


def test_a_number_that_the_engine_made_an_array_of_is_not_suspected():
    x = nt.tensor([1.0, 0.0], dtype="float64", requires_grad=True)
    loss = (nt.log(x * 2.0) * 3.0).sum()
    assert nt.explain_nan(loss).cause == "log is finite where x > 0, and here x = 0."


@pytest.mark.parametrize("b", [np.array([1.0, 2.0]), np.array(3.0), np.ones(40)], ids=["array", "number", "large"])
def test_code_of_an_array_that_was_overwritten_is_refused(b):
    w = nt.ones(b.shape, dtype="float64", requires_grad=True, name="w")
    loss = (w * b).sum()
    nt.to_numpy_source(loss)
    kept = b.copy()
    b += 1.0
    with pytest.raises(OverwrittenError) as caught:
        nt.to_numpy_source(loss)
    site = nt.records(loss)[0].site
    assert str(caught.value) == (
        f"to_numpy_source: computed again, the result of sum at {site} is not what it was: 'b', the NumPy array that "
        f"mul read at {site}, was overwritten since; write the code before that, or give a copy of it to the op. "
        "check=False gives code with what it holds now."
    )
    assert "def forward" in nt.to_numpy_source(loss, check=False)
    b[...] = kept
    nt.to_numpy_source(loss)


def test_code_can_be_written_after_the_parameters_were_updated():
    b = np.array([1.0, 2.0])
    w = ones()
    loss = nt.sin(w * b).sum()
    with nt.no_grad():
        w += 1.0
    assert nt.to_numpy_source(loss).load()["forward"](np.ones(2)) == pytest.approx(np.sin(b).sum())
