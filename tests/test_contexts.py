"""What contexts promise: separate places to record, and nothing to clear."""

import gc
import threading

import numpy as np
import pytest

import numtape as nt
from numtape.core.record import Record
from numtape.errors import ClosedError, FreedError, LeafWriteError, NotConnectedError, OperandError


def live_records():
    return sum(type(o) is Record for o in gc.get_objects())


# Nothing is left to clear.


def test_backward_frees_the_graph_so_that_nothing_is_left_to_clear():
    w = nt.tensor([1.0, 2.0], requires_grad=True)
    with nt.GradientContext() as ctx:
        loss = (w * w).sum()
        assert len(ctx.tape) == 2
        nt.compute_gradients(loss)
        assert len(ctx.tape) == 0
        with pytest.raises(FreedError, match="retain_graph=True"):
            nt.compute_gradients(loss)


def test_records_that_a_tape_lists_inside_of_a_context_are_counted():
    w = nt.tensor([1.0, 2.0], requires_grad=True)
    with nt.GradientContext() as ctx:
        first = w * 2.0
        with nt.Tape() as tape:
            y = (w * w).sum()
            with nt.Tape():
                z = y * y
        assert len(ctx.tape) == 4
        assert len(nt.default_context().tape) == 0
        assert [record.op.name for record in ctx.tape.records] == ["mul", "mul", "sum", "mul"]
        assert "4 records" in ctx.tape.summary()
        tape.backward(z)
        assert len(ctx.tape) == 1
        with nt.Tape() as other:
            y = w * w
        assert len(ctx.tape) == 2
        other.reset()
        assert len(ctx.tape) == 1
        del first
        assert len(ctx.tape) == 0


def test_a_retained_graph_stays_on_the_tape():
    w = nt.tensor([1.0, 2.0], requires_grad=True)
    with nt.GradientContext() as ctx:
        loss = (w * w).sum()
        loss.backward(retain_graph=True)
        assert len(ctx.tape) == 2
        loss.backward()
        assert len(ctx.tape) == 0
    assert w.grad.tolist() == [4.0, 8.0]


@pytest.mark.parametrize("order", ["before forward", "between", "after backward"])
def test_zero_grad_never_touches_a_graph(order):
    w = nt.tensor([3.0], requires_grad=True)
    for _ in range(3):
        if order == "before forward":
            w.zero_grad()
        loss = (w * w).sum()
        if order == "between":
            w.zero_grad()
        loss.backward()
        assert w.grad.tolist() == [6.0]
        if order == "after backward":
            w.zero_grad()
            assert w.grad is None


def test_zero_grad_can_keep_the_memory():
    w = nt.tensor([3.0], requires_grad=True)
    (w * w).sum().backward()
    held = w.grad
    w.zero_grad(set_to_none=False)
    assert w.grad is held
    assert held.tolist() == [0.0]
    (w * w).sum().backward()
    assert held.tolist() == [6.0]


def test_grad_accumulates():
    w = nt.tensor([3.0], requires_grad=True)
    for total in (6.0, 12.0, 18.0):
        (w * w).sum().backward()
        assert w.grad.tolist() == [total]


def test_memory_is_constant_when_nobody_clears():
    w = nt.tensor(np.ones((4, 3), np.float32), requires_grad=True)
    x = nt.tensor(np.ones((2, 4), np.float32))
    counts = []
    with nt.GradientContext() as ctx:
        for i in range(300):
            loss = (x @ w).mean()
            nt.compute_gradients(loss)
            with nt.no_grad():
                w -= 0.01 * w.grad
            w.zero_grad()
            if i in (10, 150, 299):
                gc.collect()
                counts.append((live_records(), len(ctx.tape)))
    assert counts == [counts[0]] * 3


def test_an_update_inside_no_grad_is_not_recorded_and_the_leaf_stays_a_leaf():
    w = nt.tensor([3.0], requires_grad=True)
    with nt.no_grad():
        w -= 1.0
    assert w.is_leaf
    assert w.requires_grad
    assert nt.records(w) == []
    (w * w).sum().backward()
    assert w.grad.tolist() == [4.0]
    with pytest.raises(LeafWriteError, match="no_grad"):
        w -= 1.0
    assert w.tolist() == [2.0]


# Clearing.


def test_clear_tape_invalidates_what_the_current_context_recorded():
    w = nt.tensor([1.0, 2.0], requires_grad=True)
    outside = w * 2.0
    with nt.GradientContext() as ctx:
        inside = w * 3.0
        nt.clear_tape()
        assert len(ctx.tape) == 0
        with pytest.raises(ClosedError) as error:
            nt.compute_gradients(inside)
        assert f"belongs to context {ctx.id}, which was cleared" in str(error.value)
        assert "detach()" in str(error.value)
        assert "inside = w * 3.0" in str(error.value)
        # What the context records from now on is alive.
        nt.compute_gradients(w * 4.0)
    nt.compute_gradients(outside)
    assert w.grad.tolist() == [6.0, 6.0]


def test_clear_default_context_tape_leaves_the_current_context_alone():
    w = nt.tensor([1.0, 2.0], requires_grad=True)
    outside = w * 2.0
    with nt.GradientContext() as ctx:
        inside = w * 3.0
        nt.clear_default_context_tape()
        assert len(ctx.tape) == 1
        nt.compute_gradients(inside)
    assert w.grad.tolist() == [3.0, 3.0]
    with pytest.raises(ClosedError):
        nt.compute_gradients(outside)


def test_clearing_is_idempotent_and_works_on_an_empty_tape():
    for _ in range(3):
        nt.clear_tape()
        nt.clear_default_context_tape()
    w = nt.tensor([1.0], requires_grad=True)
    nt.compute_gradients(w * 2.0)
    assert w.grad.tolist() == [2.0]


def test_cleared_memory_goes_with_the_tensor_that_holds_it():
    w = nt.tensor([1.0, 2.0], requires_grad=True)
    gc.collect()
    gc.disable()
    try:
        before = live_records()
        with nt.GradientContext():
            loss = (w * w).sum()
            nt.clear_tape()
            assert live_records() == before + 2
            del loss
            assert live_records() == before
    finally:
        gc.enable()


def test_a_context_clears_itself_too():
    w = nt.tensor([1.0], requires_grad=True)
    with nt.GradientContext() as ctx:
        lost = w * 2.0
        ctx.clear()
        assert len(ctx.tape) == 0
        with pytest.raises(ClosedError):
            nt.compute_gradients(lost)


# Contexts.


def test_constructing_does_not_activate():
    ctx = nt.GradientContext()
    assert nt.current_context() != ctx
    assert nt.current_context() == nt.default_context()
    w = nt.tensor([1.0], requires_grad=True)
    y = w * 2.0
    assert len(ctx.tape) == 0
    assert len(nt.default_context().tape) == 1
    nt.compute_gradients(y)


def test_with_activates_and_closes_at_the_end():
    with nt.GradientContext() as ctx:
        assert nt.current_context() == ctx
        assert not ctx.is_closed
    assert ctx.is_closed
    assert nt.current_context() == nt.default_context()


def test_with_closes_after_an_exception_too():
    ctx = nt.GradientContext()

    def fail():
        with ctx:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert ctx.is_closed
    assert nt.current_context().id == 0


def test_activate_only_activates():
    w = nt.tensor([1.0], requires_grad=True)
    ctx = nt.GradientContext()
    with ctx.activate():
        assert nt.current_context() == ctx
        y = w * 2.0
    assert not ctx.is_closed
    assert nt.current_context().id == 0
    assert len(ctx.tape) == 1
    with ctx.activate():
        z = y * 3.0
    assert len(ctx.tape) == 2
    nt.compute_gradients(z)
    assert w.grad.tolist() == [6.0]
    ctx.close()


def test_context_0_can_be_activated_inside_another():
    w = nt.tensor([1.0], requires_grad=True)
    with nt.GradientContext() as ctx:
        with nt.default_context().activate():
            y = w * 2.0
        assert nt.current_context() == ctx
        assert len(ctx.tape) == 0
        assert len(nt.default_context().tape) == 1
    nt.compute_gradients(y)
    assert w.grad.tolist() == [2.0]


def test_context_0_cannot_be_closed():
    with pytest.raises(ClosedError, match=r"context 0.* cannot be closed"):
        nt.default_context().close()
    assert not nt.default_context().is_closed


def test_entering_context_0_to_close_it_raises_before_anything_runs():
    ran = []

    def run():
        with nt.default_context():
            ran.append(True)

    with pytest.raises(ClosedError, match=r"nt\.default_context\(\)\.activate\(\)"):
        run()
    assert ran == []
    assert nt.current_context().id == 0


def test_a_closed_context_cannot_be_entered_and_closing_twice_is_fine():
    ctx = nt.GradientContext()
    ctx.close()
    ctx.close()
    with pytest.raises(ClosedError, match=f"context {ctx.id} is closed"):
        ctx.activate()
    with pytest.raises(ClosedError, match=f"context {ctx.id} is closed"), ctx:
        pass
    assert repr(ctx) == f"<GradientContext {ctx.id}, closed>"


def test_contexts_have_ids_of_their_own():
    first, second = nt.GradientContext(), nt.GradientContext()
    assert 0 < first.id < second.id
    assert first != second
    assert nt.default_context().id == 0
    assert nt.default_context() == nt.default_context()
    assert len({nt.default_context(), nt.default_context(), first}) == 2
    assert repr(first) == f"<GradientContext {first.id}>"


def test_nested_contexts_return_to_the_one_around_them():
    with nt.GradientContext() as outer:
        with nt.GradientContext() as inner:
            assert nt.current_context() == inner
        assert nt.current_context() == outer
        assert inner.is_closed
        assert not outer.is_closed


def test_each_thread_has_a_context_0_of_its_own():
    found = []

    def run():
        w = nt.tensor([1.0], requires_grad=True)
        y = w * 2.0
        found.append((nt.current_context().id, len(nt.default_context().tape)))
        nt.compute_gradients(y)
        found.append(w.grad.tolist())

    w = nt.tensor([1.0], requires_grad=True)
    kept = w * 5.0
    with nt.GradientContext():
        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
    assert found == [(0, 1), [2.0]]
    nt.compute_gradients(kept)
    assert w.grad.tolist() == [5.0]


# The tape of a context.


def test_the_length_of_a_contexts_tape_counts_live_records():
    w = nt.tensor([1.0, 2.0], requires_grad=True)
    with nt.GradientContext() as ctx:
        assert len(ctx.tape) == 0
        y = w * w
        assert len(ctx.tape) == 1
        z = y.sum()
        assert len(ctx.tape) == 2
        # A temporary is gone with its tensor; what a tensor depends on stays.
        _ = w * 3.0
        assert len(ctx.tape) == 3
        del _
        assert len(ctx.tape) == 2
        del y
        assert len(ctx.tape) == 2
        del z
        assert len(ctx.tape) == 0
        # Untracked work and work inside no_grad are no records.
        _ = nt.ones(2) * 2.0
        with nt.no_grad():
            _ = w * w
        assert len(ctx.tape) == 0


def test_the_records_of_a_contexts_tape_can_be_seen():
    w = nt.tensor([1.0, 2.0], requires_grad=True, name="w")
    with nt.GradientContext() as ctx:
        loss = (w * w).exp().sum()
        assert [record.op.name for record in ctx.tape.records] == ["mul", "exp", "sum"]
        assert ctx.tape.summary() == nt.summary(loss)
        assert "w, w" in ctx.tape.summary()
        assert repr(ctx.tape) == f"<tape of context {ctx.id}: 3 records>"
        assert "<table>" in ctx.tape._repr_html_()
        assert ctx.tape


# Backward follows the loss's own graph.


def test_backward_follows_the_graph_of_the_loss_and_not_the_active_context():
    w = nt.tensor([1.0, 2.0], requires_grad=True)
    loss = (w * w).sum()
    with nt.GradientContext():
        nt.compute_gradients(loss)
    assert w.grad.tolist() == [2.0, 4.0]


def test_a_graph_may_cross_live_contexts():
    w = nt.tensor([1.0, 2.0], requires_grad=True)
    a = w * 2.0
    first, second = nt.GradientContext(), nt.GradientContext()
    with first.activate():
        b = a * a
    with second.activate():
        c = b * w
    assert (len(nt.default_context().tape), len(first.tape), len(second.tape)) == (1, 1, 1)
    nt.compute_gradients(c)
    # c is 4 w**3.
    assert w.grad.tolist() == [12.0, 48.0]
    assert (len(nt.default_context().tape), len(first.tape), len(second.tape)) == (0, 0, 0)


def test_backward_through_a_closed_context_raises_and_names_detach():
    w = nt.tensor([1.0, 2.0], requires_grad=True)
    with nt.GradientContext() as ctx:
        a = w * w
    loss = (a * 2.0).sum()
    with pytest.raises(ClosedError) as error:
        loss.backward()
    assert f"belongs to context {ctx.id}" in str(error.value)
    assert "a = w * w" in str(error.value)
    assert "detach()" in str(error.value)
    assert w.grad is None


def test_detaching_what_crosses_is_the_repair():
    w = nt.tensor([1.0, 2.0], requires_grad=True)
    with nt.GradientContext():
        a = w * w
    (a.detach() * w).sum().backward()
    assert w.grad.tolist() == [1.0, 4.0]


def test_only_a_wanted_source_beyond_a_closed_part_raises():
    w, v = nt.tensor([1.0, 2.0], requires_grad=True), nt.tensor([3.0, 4.0], requires_grad=True)
    with nt.GradientContext():
        a = w * w
    loss = (a * v).sum()
    assert nt.GradientTape().gradient(loss, v).tolist() == [1.0, 4.0]
    assert nt.GradientTape().gradient(loss, a).tolist() == [3.0, 4.0]
    with pytest.raises(ClosedError):
        nt.GradientTape().gradient(loss, w)


def test_a_watched_tensor_beyond_a_closed_part_is_not_wanted_by_tensor_backward():
    # Tensor.backward delivers to leaves that require gradients only; nobody asked for the watched one.
    x, w = nt.tensor([1.0, 2.0]), nt.tensor([3.0, 4.0], requires_grad=True)
    tape = nt.GradientTape()
    tape.watch(x)
    with nt.GradientContext():
        a = x * x
    (a * w).sum().backward()
    assert w.grad.tolist() == [1.0, 4.0]


def test_an_untracked_value_of_a_closed_context_is_just_a_value():
    with nt.GradientContext():
        a = nt.ones(2) * 3.0
    w = nt.tensor([1.0, 2.0], requires_grad=True)
    (a * w).sum().backward()
    assert w.grad.tolist() == [3.0, 3.0]


def test_grad_outlives_its_context():
    with nt.GradientContext():
        w = nt.tensor([1.0, 2.0], requires_grad=True)
        nt.compute_gradients(w * w)
    assert w.grad.tolist() == [2.0, 4.0]
    nt.compute_gradients(w * w)
    assert w.grad.tolist() == [4.0, 8.0]


def test_contexts_are_independent():
    w, v = nt.tensor([1.0], requires_grad=True), nt.tensor([1.0], requires_grad=True)
    first, second = nt.GradientContext(), nt.GradientContext()
    with first.activate():
        a = w * 2.0
    with second.activate():
        b = v * 3.0
    first.close()
    with pytest.raises(ClosedError):
        nt.compute_gradients(a)
    nt.compute_gradients(b)
    assert (w.grad, v.grad.tolist()) == (None, [3.0])


def test_a_tape_works_inside_a_context():
    w = nt.tensor([1.0, 2.0], requires_grad=True)
    with nt.GradientContext():
        with nt.GradientTape() as tape:
            y = w * w
        assert len(tape) == 1
        assert tape.gradient(y, w).tolist() == [2.0, 4.0]


# compute_gradients.


def test_compute_gradients_seeds_with_ones_and_returns_none():
    w = nt.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    assert nt.compute_gradients(w * w) is None
    assert w.grad.tolist() == [[2.0, 4.0], [6.0, 8.0]]


def test_compute_gradients_given_an_id_says_so():
    w = nt.tensor([1.0], requires_grad=True)
    loss = (w * w).sum()
    with pytest.raises(OperandError, match=r"^compute_gradients: .*tensor.*not int.*id") as error:
        nt.compute_gradients(loss.id)
    assert isinstance(error.value, TypeError)


def test_compute_gradients_of_an_untracked_tensor_explains():
    with pytest.raises(NotConnectedError, match=r"^compute_gradients: the tensor depends on nothing that is tracked"):
        nt.compute_gradients(nt.ones(2))
    with pytest.raises(NotConnectedError, match="dtype int64, which has no derivative"):
        nt.compute_gradients(nt.tensor([1, 2]))
