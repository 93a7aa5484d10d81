"""What a tape watches, and how long."""

import pytest

import numtape as nt
from numtape.core.value import LEAF
from numtape.errors import (
    ClosedError,
    DtypeError,
    OperandError,
)


def test_watch_returns_the_tensor_itself_and_several_as_a_tuple():
    tape = nt.GradientTape()
    a, b, c = nt.ones(2), nt.ones(2), nt.ones(2)
    assert tape.watch(a) is a
    assert tape.watch(a, b) == (a, b)
    assert tape.watch(a, c=c)[1] is c
    assert c.name == "c"


def test_watch_accepts_trees():
    tape = nt.GradientTape()
    parameters = {"w": nt.ones(2), "layers": [nt.ones(3), (nt.ones(1), None)]}
    assert tape.watch(parameters) is parameters
    w, first, last = parameters["w"], parameters["layers"][0], parameters["layers"][1][0]
    grads = tape.gradient(w.sum() * 2.0 + first.sum() * 3.0 + last.sum() * 4.0, [w, first, last])
    assert [g.tolist() for g in grads] == [[2.0, 2.0], [3.0, 3.0, 3.0], [4.0]]


def test_watch_refuses_what_has_no_derivative():
    tape = nt.GradientTape()
    with pytest.raises(DtypeError, match=r"a tensor of int64 has no derivative; use astype\(nt.float32\)"):
        tape.watch(nt.tensor([1, 2]))
    with pytest.raises(OperandError, match=r"wants tensors, not float; make one with nt.tensor"):
        tape.watch(1.0)


@pytest.mark.parametrize("is_entered", [False, True])
@pytest.mark.parametrize("watches_inside", [False, True])
def test_a_watched_tensor_is_recorded_in_and_out_of_with(is_entered, watches_inside):
    tape = nt.GradientTape()
    x = nt.tensor([1.0, 2.0])
    if watches_inside:
        with tape:
            tape.watch(x)
    else:
        tape.watch(x)
    if is_entered:
        with tape:
            y = x * x
    else:
        y = x * x
    assert len(tape) == (1 if is_entered else 0)
    assert tape.gradient(y, x).tolist() == [2.0, 4.0]


def test_a_gradient_tape_watches_only_what_it_is_told_to():
    x, w = nt.tensor([1.0, 2.0]), nt.tensor([3.0, 4.0])
    with nt.GradientTape() as tape:
        tape.watch(x)
        y = x * w
        assert not (w * 2.0).requires_grad
    assert not tape.watch_all
    grads = tape.backward(y)
    assert grads[x].tolist() == [3.0, 4.0]
    assert w not in grads


def test_a_tape_watches_any_float_tensor_on_first_use():
    x, w, counts = nt.tensor([1.0, 2.0]), nt.tensor([3.0, 4.0]), nt.tensor([1, 2])
    with nt.Tape() as tape:
        assert tape.watch_all
        y = x * w * counts
    grads = tape.backward(y)
    assert grads[x].tolist() == [3.0, 8.0]
    assert grads[w].tolist() == [1.0, 4.0]
    assert counts not in grads
    assert len(grads) == 2


def test_a_tape_that_does_not_watch_all_is_a_gradient_tape():
    x = nt.tensor([1.0, 2.0])
    with nt.Tape(watch_all=False) as tape:
        assert not (x * x).requires_grad
    with nt.GradientTape(watch_all=True) as tape:
        y = x * x
    assert tape.gradient(y, x).tolist() == [2.0, 4.0]


def test_a_tape_lists_leaves_that_require_gradients_too():
    w = nt.tensor([1.0, 2.0], requires_grad=True)
    with nt.GradientTape() as tape:
        y = w * w
    assert len(tape) == 1
    assert tape.gradient(y, w).tolist() == [2.0, 4.0]


def test_gradient_follows_the_links_of_a_target_that_others_recorded():
    w = nt.tensor([1.0, 2.0], requires_grad=True)
    y = w * w
    with nt.Tape() as recorder:
        z = y * 3.0
    assert len(recorder) == 1
    assert nt.GradientTape().gradient(z, w).tolist() == [6.0, 12.0]
    assert nt.Tape().gradient(z, y).tolist() == [3.0, 3.0]


def test_gradient_computes_only_what_its_sources_need():
    w, x = nt.tensor([1.0, 2.0], requires_grad=True), nt.tensor([3.0, 4.0], requires_grad=True)
    with nt.GradientContext():
        lost = w * w
    y = (lost * x).sum()
    # The part before the closed context is not wanted, so it is not looked at.
    assert nt.GradientTape().gradient(y, x).tolist() == [1.0, 4.0]
    with pytest.raises(ClosedError):
        nt.GradientTape().gradient(y, w)


def test_two_tapes_may_watch_one_tensor():
    first, second = nt.GradientTape(), nt.GradientTape()
    x = nt.tensor(2.0)
    first.watch(x)
    second.watch(x)
    first.close()
    assert second.gradient(x * x, x).item() == 4.0
    assert x.node is None


def test_watching_twice_counts_once():
    tape = nt.GradientTape()
    x = nt.tensor(2.0)
    tape.watch(x, x)
    tape.watch(x)
    tape.close()
    assert x.node is None


def consume(tape, x):
    tape.gradient(x * x, x)


def drop(tape, x):
    pass


@pytest.mark.parametrize(
    "end",
    [consume, lambda tape, x: tape.reset(), lambda tape, x: tape.close(), drop],
    ids=["consumed", "reset", "closed", "dropped"],
)
def test_a_tensor_is_watched_until_its_tape_ends(end):
    x = nt.tensor(2.0)
    tape = nt.GradientTape()
    tape.watch(x)
    assert x.node is LEAF
    end(tape, x)
    del tape
    assert x.node is None
    assert not (x * x).requires_grad


def test_a_leaf_that_requires_gradients_stays_one_when_its_tape_ends():
    x = nt.tensor(2.0, requires_grad=True)
    tape = nt.GradientTape()
    tape.watch(x)
    tape.close()
    assert x.node is LEAF
    (x * x).backward()
    assert x.grad.item() == 4.0


def test_watching_after_use_is_too_late():
    x = nt.tensor(2.0)
    y = x * x
    tape = nt.GradientTape()
    tape.watch(x)
    assert tape.gradient(y, x) is None
