"""What tapes promise: watching, single use, segments, marks, nesting, and where gradients live."""

import copy
import gc
import pickle
import weakref

import numpy as np
import pytest

import numtape as nt
from numtape.core.value import LEAF
from numtape.errors import (
    ArgumentError,
    ClosedError,
    DtypeError,
    FreedError,
    GradientError,
    MissingGradientError,
    NotConnectedError,
    OperandError,
    ShapeError,
    TapeConsumedError,
)


def tensor(*values):
    return nt.tensor(np.array(values))


# Single use.


def test_a_second_gradient_raises_and_names_persistent():
    tape = nt.GradientTape()
    x = tape.watch(nt.tensor(3.0))
    y = x * x
    assert tape.gradient(y, x).item() == 6.0
    with pytest.raises(TapeConsumedError) as error:
        tape.gradient(y, x)
    assert str(error.value) == (
        "gradient: this tape was consumed by an earlier gradient(); use persistent=True to call it again, or give "
        "several targets in one call."
    )


@pytest.mark.parametrize("kind", [nt.Tape, nt.GradientTape])
def test_a_persistent_tape_gives_any_number_of_gradients(kind):
    x = nt.tensor(3.0)
    with kind(persistent=True) as tape:
        tape.watch(x)
        y = x * x
        z = y * x
    assert [tape.gradient(t, x).item() for t in (y, z, y)] == [6.0, 27.0, 6.0]


def test_several_targets_in_one_call_are_added():
    tape = nt.GradientTape()
    x = tape.watch(nt.tensor(3.0))
    assert tape.gradient([x * x, 5.0 * x], x).item() == 11.0


def test_single_use_is_a_state_of_the_tape_and_not_of_the_graph():
    first, second = nt.GradientTape(), nt.GradientTape()
    x = first.watch(nt.tensor(3.0))
    second.watch(x)
    y = x * x
    assert first.gradient(y, x).item() == 6.0
    assert second.gradient(y, x).item() == 6.0


def test_a_consumed_tape_cannot_be_entered():
    tape = nt.Tape()
    x = nt.tensor(3.0)
    with tape:
        y = x * x
    tape.gradient(y, x)
    with pytest.raises(TapeConsumedError, match=r"reset\(\), or use persistent=True"), tape:
        pass
    assert not tape.is_recording
    with pytest.raises(TapeConsumedError):
        tape.start_recording()


def test_a_gradient_that_raises_consumes_nothing():
    tape = nt.GradientTape()
    x = tape.watch(nt.tensor(3.0))
    y = x * x
    with pytest.raises(NotConnectedError):
        tape.gradient(y, nt.tensor(1.0), unconnected="error")
    with pytest.raises(ShapeError):
        tape.gradient(y, x, output_gradients=nt.ones(2))
    assert tape.gradient(y, x).item() == 6.0


def test_backward_frees_only_the_graph_of_its_loss():
    x = nt.tensor([1.0, 2.0])
    with nt.Tape() as tape:
        loss = (x * x).sum()
        other = (x * x * x).sum()
    assert tape.backward(loss)[x].tolist() == [2.0, 4.0]
    assert tape.backward(other)[x].tolist() == [3.0, 12.0]
    with pytest.raises(FreedError, match="retain_graph=True"):
        tape.backward(loss)


def test_backward_frees_what_losses_share_unless_the_graph_is_retained():
    x = nt.tensor([1.0, 2.0])
    with nt.Tape() as tape:
        y = x * x * x
        loss, other = y.sum(), (2.0 * y).sum()
    assert tape.backward(loss, retain_graph=True)[x].tolist() == [3.0, 12.0]
    assert tape.backward(other)[x].tolist() == [6.0, 24.0]
    with pytest.raises(FreedError, match="retain_graph=True"):
        tape.backward(loss)


def test_gradient_frees_nothing():
    x = nt.tensor([1.0, 2.0], requires_grad=True)
    loss = (x * x).sum()
    assert nt.GradientTape().gradient(loss, x).tolist() == [2.0, 4.0]
    loss.backward()
    assert x.grad.tolist() == [2.0, 4.0]


# What is watched.


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


# Dropped tapes and sources without influence.


def test_the_output_of_a_dropped_tape_keeps_its_graph():
    x = nt.tensor([1.0, 2.0])

    def make():
        tape = nt.GradientTape()
        tape.watch(x)
        return weakref.ref(tape), (x * x).sum()

    tape, y = make()
    assert tape() is None
    assert nt.GradientTape().gradient(y, x).tolist() == [2.0, 4.0]


def test_a_dropped_tape_frees_its_records_without_the_collector():
    x = nt.tensor([1.0, 2.0])
    gc.collect()
    gc.disable()
    try:
        with nt.Tape() as tape:
            y = (x * x).sum()
        held = weakref.ref(tape)
        del tape
        assert held() is None
        assert x.node is None
        assert y.requires_grad
    finally:
        gc.enable()


def test_a_source_without_influence_gets_none_zeros_or_an_error():
    tape = nt.GradientTape(persistent=True)
    x, other = tape.watch(nt.tensor([1.0, 2.0]), nt.tensor([[3.0], [4.0]]))
    other.name = "other"
    y = x * x
    assert tape.gradient(y, other) is None
    assert tape.gradient(y, [x, other])[1] is None
    zeros = tape.gradient(y, other, unconnected="zero")
    assert zeros.tolist() == [[0.0], [0.0]]
    assert zeros.dtype == other.dtype
    with pytest.raises(NotConnectedError) as error:
        tape.gradient(y, other, unconnected="error")
    assert str(error.value) == "gradient: the targets do not depend on other; was it watched before use?"


def test_the_error_about_an_untracked_target_explains():
    x = nt.tensor([1.0, 2.0])
    y = x * x
    tape = nt.GradientTape()
    tape.watch(x)
    with pytest.raises(NotConnectedError, match="depends on nothing that is tracked") as error:
        tape.gradient(y, x, unconnected="error")
    assert "requires_grad=True" in str(error.value)


def test_an_unknown_value_of_unconnected_raises():
    with pytest.raises(ArgumentError, match=r"unconnected is 'zeros'; .*\"none\", \"zero\" or \"error\""):
        nt.GradientTape().gradient(nt.tensor(1.0), nt.tensor(1.0), unconnected="zeros")


# Arguments of gradient.


def test_one_tensor_in_gives_one_tensor_and_an_iterable_gives_a_list():
    tape = nt.GradientTape(persistent=True)
    x, y = tape.watch(nt.tensor(2.0), nt.tensor(3.0))
    z = x * y
    assert tape.gradient(z, x).item() == 3.0
    for sources in ([x, y], (x, y), (t for t in (x, y)), {"x": x, "y": y}.values()):
        result = tape.gradient(z, sources)
        assert type(result) is list
        assert [g.item() for g in result] == [3.0, 2.0]
    assert tape.gradient(z, [x])[0].item() == 3.0
    assert tape.gradient(z, []) == []
    assert tape.gradient((t for t in (z, x)), x).item() == 4.0
    assert tape.gradient(targets=z, sources=x).item() == 3.0


def test_gradient_wants_tensors():
    tape = nt.GradientTape()
    x = tape.watch(nt.tensor(2.0))
    with pytest.raises(OperandError, match=r"^gradient: targets must be .*float"):
        tape.gradient(4.0, x)
    with pytest.raises(OperandError, match=r"^gradient: sources must be .*int"):
        tape.gradient(x * x, [x.id])


def test_a_target_that_is_a_source_has_derivative_one():
    tape = nt.GradientTape()
    x = tape.watch(nt.tensor([2.0, 3.0]))
    y = x * x
    assert [g.tolist() for g in tape.gradient([x, y], [x, y])] == [[5.0, 7.0], [1.0, 1.0]]


def test_targets_that_are_not_scalar_are_seeded_with_ones():
    x = nt.tensor([[1.0, 2.0], [3.0, 4.0]])
    with nt.Tape(persistent=True) as tape:
        y = x * x
    assert tape.gradient(y, x).tolist() == [[2.0, 4.0], [6.0, 8.0]]
    assert tape.backward(y)[x].tolist() == [[2.0, 4.0], [6.0, 8.0]]
    w = nt.tensor([1.0, 2.0], requires_grad=True)
    nt.compute_gradients(w * w)
    assert w.grad.tolist() == [2.0, 4.0]


def test_tensor_backward_wants_a_scalar_or_a_gradient():
    w = nt.tensor([1.0, 2.0], requires_grad=True)
    with pytest.raises(ShapeError, match=r"the tensor has shape \(2,\); give gradient=, or reduce it with sum"):
        (w * w).backward()
    assert w.grad is None
    (w * w).backward(nt.tensor([1.0, 10.0]))
    assert w.grad.tolist() == [2.0, 40.0]


@pytest.mark.parametrize("as_given", [nt.tensor, np.array], ids=["tensor", "array"])
def test_output_gradients_replace_the_ones(as_given):
    tape = nt.GradientTape(persistent=True)
    x = tape.watch(nt.tensor([1.0, 2.0]))
    y, z = x * x, x * 3.0
    assert tape.gradient([y], x, output_gradients=[as_given([1.0, 10.0])]).tolist() == [2.0, 40.0]
    assert tape.gradient([y, z], x, [as_given([1.0, 10.0]), None]).tolist() == [5.0, 43.0]
    assert tape.gradient(y, x, output_gradients=as_given([1.0, 10.0])).tolist() == [2.0, 40.0]


def test_a_number_is_an_output_gradient_of_a_scalar():
    tape = nt.GradientTape()
    x = tape.watch(nt.tensor(3.0))
    assert tape.gradient(x * x, x, output_gradients=2.0).item() == 12.0


def test_output_gradients_are_checked():
    tape = nt.GradientTape()
    x = tape.watch(nt.tensor([1.0, 2.0]))
    with pytest.raises(ArgumentError, match=r"2 targets and 1 output_gradients were given"):
        tape.gradient([x, x * x], x, output_gradients=[nt.ones(2)])
    with pytest.raises(ShapeError, match=r"the gradient given has shape \(3,\) and the tensor \(2,\)"):
        tape.gradient(x * x, x, output_gradients=nt.ones(3))


def test_backward_takes_a_gradient_to_start_from():
    x = nt.tensor([1.0, 2.0])
    with nt.Tape() as tape:
        y = x * x
    assert tape.backward(y, gradient=nt.tensor([1.0, 10.0]))[x].tolist() == [2.0, 40.0]


# Where gradients live.


def test_backward_adds_to_grad_of_leaves_that_require_it_and_returns_all():
    w = nt.tensor([1.0, 2.0], requires_grad=True)
    x = nt.tensor([3.0, 4.0])
    with nt.Tape() as tape:
        loss = (w * x).sum()
    grads = tape.backward(loss)
    assert w.grad.tolist() == [3.0, 4.0]
    assert grads[w].tolist() == [3.0, 4.0]
    # Watched only: in the map, no .grad.
    assert grads[x].tolist() == [1.0, 2.0]
    assert x.grad is None
    assert grads.delivered == {w.id}


def test_the_map_holds_this_call_and_grad_the_sum():
    w = nt.tensor([1.0, 2.0], requires_grad=True)
    tape = nt.GradientTape()
    assert tape.backward((w * 3.0).sum())[w].tolist() == [3.0, 3.0]
    assert tape.backward((w * 4.0).sum())[w].tolist() == [4.0, 4.0]
    assert w.grad.tolist() == [7.0, 7.0]


def test_the_map_and_grad_share_no_memory():
    w = nt.tensor([1.0, 2.0], requires_grad=True)
    grads = nt.GradientTape().backward((w * 3.0).sum())
    grads[w][0] = 100.0
    assert w.grad.tolist() == [3.0, 3.0]


def test_gradient_only_returns():
    w = nt.tensor([1.0, 2.0], requires_grad=True)
    nt.GradientTape().gradient(w * w, w)
    assert w.grad is None


def test_tensor_backward_returns_none():
    w = nt.tensor(1.0, requires_grad=True)
    assert (w * w).backward() is None


def test_gradients_look_up_by_tensor():
    x, y, other = nt.tensor([1.0, 2.0]), nt.tensor([3.0, 4.0]), nt.tensor([5.0])
    with nt.Tape() as tape:
        loss = (x * y).sum()
    grads = tape.backward(loss)
    assert isinstance(grads, nt.Gradients)
    assert grads[x].tolist() == grads.get(x).tolist() == [3.0, 4.0]
    assert x in grads
    assert other not in grads
    assert x.id not in grads
    assert grads.get(other) is None
    assert grads.get(other, "nothing") == "nothing"
    assert len(grads) == 2
    assert {id(t) for t in grads.tensors()} == {id(x), id(y)}
    assert {number: g.tolist() for number, g in grads.items()} == {x.id: [3.0, 4.0], y.id: [1.0, 2.0]}
    assert [id(t) for t in grads] == [id(t) for t in grads.tensors()]
    with pytest.raises(MissingGradientError, match=r"the loss does not depend on .* get\(\) gives None"):
        grads[other]
    with pytest.raises(OperandError, match=r"^Gradients: look up by .*tensor.* not by int"):
        grads[x.id]


def test_a_look_up_of_what_is_no_tensor_raises_one_kind_of_error():
    x = nt.tensor(2.0)
    with nt.Tape() as tape:
        loss = x * x
    with pytest.raises(OperandError, match=r"^Gradients: look up by .*tensor.* not by int"):
        tape.backward(loss).get(x.id)


def test_the_gradient_of_an_intermediate_names_its_two_repairs():
    x = nt.tensor(2.0)
    with nt.Tape() as tape:
        z = x * x
        loss = z * 3.0
    grads = tape.backward(loss)
    with pytest.raises(KeyError) as error:
        grads[z]
    assert str(error.value) == (
        "Gradients: this tensor is an intermediate result, whose gradient is not kept; use "
        'tape.backward(loss, keep="all"), or tape.watch(tensor) before backward.'
    )
    assert z not in grads


def test_keep_all_gives_the_gradients_of_intermediates():
    x = nt.tensor(2.0)
    with nt.Tape() as tape:
        z = x * x
        loss = z * 3.0
    grads = tape.backward(loss, keep="all")
    assert grads[z].item() == 3.0
    assert grads[loss].item() == 1.0
    assert grads[x].item() == 12.0
    assert z in grads
    with pytest.raises(ArgumentError, match=r"keep is 'some'; .*\"leaves\" or \"all\""):
        tape.backward(loss, keep="some")


def test_a_watched_intermediate_has_its_gradient_in_the_map():
    tape = nt.GradientTape()
    x = tape.watch(nt.tensor(2.0))
    z = tape.watch(x * x)
    unwatched = z * 5.0
    grads = tape.backward(unwatched * z)
    assert grads[z].item() == 40.0
    assert grads[x].item() == 160.0
    assert z in grads
    assert unwatched not in grads
    assert len(grads) == 2
    assert z.grad is None


def test_a_watched_intermediate_is_a_source_and_its_graph_goes_on():
    tape = nt.GradientTape(persistent=True)
    x = tape.watch(nt.tensor(2.0))
    z = tape.watch(x * x)
    loss = z * z
    assert [g.item() for g in tape.gradient(loss, [z, x])] == [8.0, 32.0]


def test_backward_of_an_untracked_loss_explains():
    with pytest.raises(NotConnectedError, match=r"^backward: the tensor depends on nothing that is tracked\."):
        nt.Tape().backward(nt.tensor(1.0))
    with pytest.raises(OperandError, match="wants the loss tensor itself, not float"):
        nt.Tape().backward(1.0)


# Entering, segments, marks, reset, close.


def test_a_tape_records_inside_its_with_block_only():
    tape = nt.Tape()
    x = nt.tensor([1.0, 2.0])
    assert not tape.is_recording
    with tape as same:
        assert same is tape
        assert tape.is_recording
        y = x * x
    assert not tape.is_recording
    _ = y * 2.0
    assert [record.op.name for record in tape.records] == ["mul"]


def test_entering_again_before_a_backward_goes_on():
    tape = nt.Tape()
    x = nt.tensor([1.0, 2.0])
    with tape:
        y = x * x
    with tape:
        loss = y.sum()
    assert [record.op.name for record in tape.records] == ["mul", "sum"]
    assert tape.backward(loss)[x].tolist() == [2.0, 4.0]


def test_entering_inside_itself_lists_each_record_once():
    x = nt.tensor(2.0)
    with nt.Tape() as tape:
        with tape:
            y = x * x
        assert tape.is_recording
        z = y * x
    assert len(tape) == 2
    assert tape.gradient(z, x).item() == 12.0


def test_entering_again_after_a_backward_starts_a_new_segment():
    w = nt.tensor([1.0, 2.0], requires_grad=True)
    tape = nt.Tape()
    for i in range(3):
        with tape:
            assert len(tape) == 0
            loss = (w * w).sum() / 3
        assert len(tape) == 3
        tape.backward(loss)
        # The segment stays readable until the next one begins.
        assert len(tape) == 3
        np.testing.assert_allclose(w.grad.numpy(), [2.0 * (i + 1) / 3, 4.0 * (i + 1) / 3], rtol=1e-6)


def test_a_watched_tensor_stays_watched_in_the_next_segment_and_one_watched_by_use_does_not():
    x, used = nt.tensor(2.0), nt.tensor(3.0)
    tape = nt.Tape()
    tape.watch(x)
    with tape:
        loss = x * used
    tape.backward(loss)
    assert used.node is None
    with tape:
        assert x.node is LEAF
        assert used.node is None


def test_weights_that_a_loop_replaces_are_leaves_of_the_next_tape():
    w = nt.ones(3)
    for _ in range(3):
        tape = nt.Tape()
        with tape:
            loss = (w * w).sum()
        w = w - 0.25 * tape.backward(loss)[w]
    assert w.tolist() == [0.125, 0.125, 0.125]
    assert w.node is None


def test_tensors_keep_the_graph_of_an_earlier_segment():
    x = nt.tensor(2.0)
    tape = nt.Tape()
    with tape:
        early = x * x
        loss = x * 3.0
    tape.backward(loss)
    with tape:
        late = early * x
    assert tape.backward(late)[x].item() == 12.0


def test_start_and_stop_recording():
    tape = nt.Tape()
    x = nt.tensor([1.0, 2.0])
    tape.start_recording()
    try:
        y = x * x
    finally:
        tape.stop_recording()
    assert not tape.is_recording
    z = y * 2.0
    assert len(tape) == 1
    tape.stop_recording()
    assert tape.backward(z)[x].tolist() == [4.0, 8.0]


def test_stopping_one_of_two_tapes_leaves_the_other_recording():
    first, second = nt.Tape(), nt.GradientTape()
    x = nt.tensor(2.0)
    first.start_recording()
    second.start_recording()
    try:
        first.stop_recording()
        assert second.is_recording
        assert not (x * x).requires_grad
        second.watch(x)
        _ = x * x
    finally:
        second.stop_recording()
    assert (len(first), len(second)) == (0, 1)


def test_an_exception_inside_ends_the_recording():
    tape = nt.Tape()
    x = nt.tensor(2.0)

    def fail():
        with tape:
            _ = x * x
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert not tape.is_recording
    assert len(tape) == 1


def test_rewinding_forgets_and_invalidates_what_came_after_the_mark():
    x = nt.tensor(2.0)
    tape = nt.Tape()
    with tape:
        y = x * x
        mark = tape.mark()
        z = y * x
        w = z * x
        tape.rewind(mark)
        assert [record.op.name for record in tape.records] == ["mul"]
        again = y * 5.0
    assert len(tape) == 2
    with pytest.raises(ClosedError, match=r"detach\(\)"):
        tape.backward(w)
    assert tape.backward(again)[x].item() == 20.0


def test_a_mark_can_be_rewound_to_again():
    x = nt.tensor(2.0)
    with nt.Tape() as tape:
        mark = tape.mark()
        for _ in range(3):
            y = x * x * x
            assert len(tape) == 2
            tape.rewind(mark)
            assert len(tape) == 0
            with pytest.raises(ClosedError):
                tape.backward(y)


def test_marks_nest():
    x = nt.tensor(2.0)
    with nt.Tape(persistent=True) as tape:
        outer = tape.mark()
        a = x * x
        inner = tape.mark()
        b = a * x
        tape.rewind(inner)
        assert tape.gradient(a, x).item() == 4.0
        with pytest.raises(ClosedError):
            tape.gradient(b, x)
        tape.rewind(outer)
        with pytest.raises(ClosedError):
            tape.gradient(a, x)
    assert len(tape) == 0


def test_a_mark_of_another_tape_raises():
    tape, other = nt.Tape(), nt.Tape()
    with pytest.raises(ArgumentError, match=r"^rewind: this mark is of another tape"):
        tape.rewind(other.mark())


def test_a_mark_in_a_part_that_was_rewound_raises_even_if_new_records_took_its_place():
    x = nt.tensor(2.0)
    with nt.Tape() as tape:
        outer = tape.mark()
        _ = x * 2.0
        inner = tape.mark()
        tape.rewind(outer)
        _ = x * 3.0
        _ = x * 4.0
        with pytest.raises(ArgumentError, match=r"^rewind: this mark is of .* rewound"):
            tape.rewind(inner)
    assert len(tape) == 2


@pytest.mark.parametrize("how", ["segment", "reset"])
def test_a_mark_of_an_earlier_segment_raises(how):
    x = nt.tensor(2.0)
    tape = nt.Tape()
    with tape:
        mark = tape.mark()
        loss = x * x
    if how == "segment":
        tape.backward(loss)
    else:
        tape.reset()
    with tape:
        _ = x * x
        with pytest.raises(ArgumentError, match=r"^rewind: this mark is of .* rewound"):
            tape.rewind(mark)


def test_reset_empties_and_makes_reusable():
    tape = nt.Tape()
    x = nt.tensor([1.0, 2.0])
    with tape:
        y = x * x
    tape.gradient(y, x)
    tape.reset()
    assert len(tape) == 0
    with tape:
        z = x * x * x
    assert tape.gradient(z, x).tolist() == [3.0, 12.0]


def test_reset_invalidates_what_was_recorded():
    tape = nt.Tape()
    x = nt.tensor([1.0, 2.0], requires_grad=True)
    with tape:
        y = (x * x).sum()
    tape.reset()
    with pytest.raises(ClosedError, match="belongs to a tape, which was cleared, rewound, reset or closed since"):
        tape.backward(y)
    with pytest.raises(ClosedError):
        y.backward()


def test_a_closed_tape_says_so_and_closing_twice_is_fine():
    tape = nt.Tape(persistent=True)
    x = nt.tensor([1.0, 2.0])
    with tape:
        y = x * x
    mark = tape.mark()
    tape.close()
    tape.close()
    assert len(tape) == 0
    for use in (
        lambda: tape.gradient(y, x),
        lambda: tape.backward(y),
        lambda: tape.watch(x),
        lambda: tape.mark(),
        lambda: tape.rewind(mark),
        lambda: tape.reset(),
        lambda: tape.start_recording(),
        lambda: tape.__enter__(),
        lambda: list(tape.backward_steps(y)),
    ):
        with pytest.raises(ClosedError, match="this tape is closed; make a new one"):
            use()


def test_closing_invalidates_what_was_recorded_inside():
    x = nt.tensor([1.0, 2.0], requires_grad=True)
    with nt.Tape() as tape:
        y = x * x
    tape.close()
    with pytest.raises(ClosedError):
        nt.compute_gradients(y)


def test_a_tape_closed_inside_its_block_records_nothing_more():
    x = nt.tensor(2.0)
    with nt.Tape() as tape:
        _ = x * x
        tape.close()
        assert not tape.is_recording
        y = x * x
    assert len(tape) == 0
    assert x.node is None
    assert not y.requires_grad


def test_a_tape_consumed_inside_its_block_watches_nothing_more():
    x = nt.tensor(2.0)
    with nt.Tape() as tape:
        y = x * x
        assert tape.gradient(y, x).item() == 4.0
        z = x * x
    assert x.node is None
    assert not z.requires_grad


# Second and third order.


def first_orders(function, x, levels, kind):
    """Return the derivatives of orders 1 to `levels` of a sum, by tapes nested that deep."""
    tapes = [kind() for _ in range(levels)]
    for tape in tapes:
        tape.__enter__()
        tape.watch(x)
    value = function(x)
    derivatives = []
    try:
        while tapes:
            tape = tapes.pop()
            tape.__exit__(None, None, None)
            value = tape.gradient(value, x)
            derivatives.append(value)
    finally:
        while tapes:
            tapes.pop().__exit__(None, None, None)
    return derivatives


@pytest.mark.parametrize("kind", [nt.Tape, nt.GradientTape])
def test_nested_tapes_differentiate_a_cube_three_times(kind):
    x = tensor(2.0, 3.0)
    derivatives = first_orders(lambda t: t**3, x, 3, kind)
    assert [d.tolist() for d in derivatives] == [[12.0, 27.0], [12.0, 18.0], [6.0, 6.0]]
    assert not derivatives[-1].requires_grad


@pytest.mark.parametrize("kind", [nt.Tape, nt.GradientTape])
def test_nested_tapes_differentiate_exp_three_times(kind):
    x = tensor(0.5, -1.0)
    for derivative in first_orders(nt.exp, x, 3, kind):
        np.testing.assert_allclose(derivative.numpy(), np.exp([0.5, -1.0]), rtol=1e-14)


@pytest.mark.parametrize("kind", [nt.Tape, nt.GradientTape])
def test_nested_tapes_differentiate_tanh_three_times(kind):
    x = tensor(0.5, -1.0)
    t = np.tanh([0.5, -1.0])
    expected = [1 - t**2, -2 * t * (1 - t**2), (1 - t**2) * (6 * t**2 - 2)]
    for derivative, value in zip(first_orders(nt.tanh, x, 3, kind), expected, strict=True):
        np.testing.assert_allclose(derivative.numpy(), value, rtol=1e-13)


def third_order_of_outer_target(function, x):
    """Return the derivatives of y, of y + dy and of both and their derivative, at three levels."""
    with nt.Tape() as third:
        with nt.Tape() as second:
            with nt.Tape() as first:
                y = function(x)
            dy = first.gradient(y, x)
            target = y.sum() + (dy * dy).sum()
        d2 = second.gradient(target, x)
        last = target + (d2 * d2).sum()
    return dy, d2, third.gradient(last, x)


def numeric(function, x, step):
    """Return the gradient of a function of an array by differences of eighth order."""
    weights = {1: 4 / 5, 2: -1 / 5, 3: 4 / 105, 4: -1 / 280}
    result = np.zeros_like(x)
    for i in range(x.size):
        for k, weight in weights.items():
            for sign in (1, -1):
                moved = x.copy()
                moved.flat[i] += sign * k * step
                result.flat[i] += sign * weight * function(moved) / step
    return result


WEIGHTS = np.array([[0.3, -0.7, 0.2], [0.5, 0.4, -0.6], [-0.1, 0.8, 0.9]])
FUNCTIONS = {
    "cube": lambda t: t**3,
    "exp": lambda t: nt.exp(t * 0.5),
    "tanh": nt.tanh,
    "softmax": lambda t: nt.softmax(t) * np.array([1.0, 2.0, -1.0]),
    "matmul": lambda t: (t * t).reshape(1, 3) @ WEIGHTS @ t,
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_nested_tapes_are_right_for_an_outer_target_of_y_and_dy(name):
    function = FUNCTIONS[name]
    start = np.array([0.4, -0.3, 0.8])

    def total(array, level):
        """Return the target of each level, from derivatives by plain tapes one level down."""
        x = nt.tensor(array)
        if level == 1:
            return function(x).sum().item()
        dy, d2, _ = third_order_of_outer_target(function, x)
        second = function(x).sum().item() + (dy.numpy() ** 2).sum()
        return second if level == 2 else second + (d2.numpy() ** 2).sum()

    found = third_order_of_outer_target(function, nt.tensor(start))
    for level, derivative in enumerate(found, 1):
        expected = numeric(lambda array, level=level: total(array, level), start, 1e-2)
        np.testing.assert_allclose(derivative.numpy(), expected, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_an_outer_target_that_adds_y_and_dy_equals_the_sum_of_its_parts(name):
    x = tensor(0.4, -0.3, 0.8)
    with nt.Tape(persistent=True) as outer:
        with nt.Tape() as inner:
            y = FUNCTIONS[name](x).sum()
        dy = inner.gradient(y, x)
        both = y + dy
    total = outer.gradient(both, x).numpy()
    parts = 3 * outer.gradient(y, x).numpy() + outer.gradient(dy, x).numpy()
    np.testing.assert_allclose(total, parts, rtol=1e-12, atol=1e-14)


def test_a_nested_backward_implies_create_graph_and_frees_nothing():
    x = tensor(2.0, 3.0)
    with nt.Tape() as outer:
        with nt.Tape() as inner:
            y = (x**3).sum()
        dy = inner.backward(y)[x]
        assert dy.requires_grad
    assert outer.gradient(dy.sum() + y, x).tolist() == [24.0, 45.0]


def test_a_gradient_inside_its_own_with_or_a_context_implies_nothing():
    x = tensor(2.0, 3.0)
    with nt.GradientContext(), nt.Tape() as tape:
        y = (x**3).sum()
        loss = (x * x).sum()
        assert not tape.backward(loss)[x].requires_grad
        assert not tape.gradient(y, x).requires_grad
    with pytest.raises(FreedError):
        nt.GradientTape().gradient(loss, x)


def test_tensor_backward_never_implies_create_graph():
    w = nt.tensor([2.0, 3.0], requires_grad=True)
    with nt.Tape() as tape:
        loss = (w * w).sum()
        loss.backward()
        assert not w.grad.requires_grad
    with pytest.raises(FreedError):
        tape.gradient(loss, w)


def test_create_graph_gives_six_x_for_a_cube():
    x = tensor(2.0, 3.0)
    with nt.Tape() as tape:
        y = (x**3).sum()
        grads = tape.backward(y, create_graph=True)
        dy = grads[x]
    assert dy.tolist() == [12.0, 27.0]
    assert nt.GradientTape().gradient(dy, x).tolist() == [12.0, 18.0]


def test_create_graph_works_outside_of_every_block_and_keeps_grad_untracked():
    w = nt.tensor(np.array([2.0, 3.0]), requires_grad=True)
    tape = nt.GradientTape()
    dw = tape.backward((w**3).sum(), create_graph=True)[w]
    assert dw.requires_grad
    assert not w.grad.requires_grad
    assert w.grad.tolist() == [12.0, 27.0]
    d2w = tape.backward(dw.sum(), create_graph=True)[w]
    assert d2w.tolist() == [12.0, 18.0]
    assert tape.backward(d2w.sum())[w].tolist() == [6.0, 6.0]


def test_retain_graph_alone_is_not_enough_for_second_order():
    x = tensor(2.0, 3.0)
    tape = nt.GradientTape()
    tape.watch(x)
    dy = tape.backward((x**3).sum(), retain_graph=True)[x]
    assert not dy.requires_grad
    assert tape.gradient(dy, x) is None


def test_watching_a_plain_gradient_on_a_new_tape_gives_none():
    tape1 = nt.GradientTape()
    x = tape1.watch(tensor(2.0, 3.0))
    dy = tape1.gradient(x**3, x)
    tape2 = nt.GradientTape()
    tape2.watch(dy, x)
    assert tape2.gradient(dy, x) is None


def test_the_derivative_by_an_output_gradient_is_a_jacobian_product():
    x, v = tensor(2.0, 3.0), tensor(1.0, 1.0)
    with nt.GradientTape() as outer:
        outer.watch(v)
        with nt.GradientTape() as inner:
            inner.watch(x)
            y = x**3
        pulled = inner.gradient(y, x, output_gradients=v)
    assert outer.gradient(pulled, v, output_gradients=[tensor(1.0, 10.0)]).tolist() == [12.0, 270.0]


def test_a_tape_that_watches_all_watches_the_output_gradient_of_an_inner_one():
    x, v = tensor(2.0, 3.0), tensor(1.0, 1.0)
    with nt.Tape() as outer:
        with nt.Tape() as inner:
            y = x**3
        pulled = inner.gradient(y, x, output_gradients=v)
    assert outer.gradient(pulled, v).tolist() == [12.0, 27.0]


# What can be seen.


def test_backward_steps_show_each_record_with_its_cotangents():
    x = nt.tensor(3.0)
    with nt.Tape() as tape:
        z = x * x
        y = z * 5.0 + x
    steps = list(tape.backward_steps(y))
    assert [record.op.name for record, _, _ in steps] == ["add", "mul", "mul"]
    assert [float(g) for _, g, _ in steps] == [1.0, 1.0, 5.0]
    produced = [[None if c is None else float(c) for c in out] for _, _, out in steps]
    assert produced == [[1.0, 1.0], [5.0, None], [15.0, 15.0]]
    assert [record for record, _, _ in steps] == tape.records[::-1]


def test_backward_steps_deliver_and_free_nothing():
    w = nt.tensor(3.0, requires_grad=True)
    tape = nt.Tape()
    with tape:
        y = w * w
    assert len(list(tape.backward_steps(y))) == 1
    assert w.grad is None
    y.backward()
    assert w.grad.item() == 6.0


def test_backward_steps_check_their_loss_when_called():
    with pytest.raises(NotConnectedError, match=r"^backward_steps: the tensor depends on nothing"):
        nt.Tape().backward_steps(nt.tensor(1.0))


def test_records_are_listed_oldest_first_and_the_list_is_a_copy():
    x = nt.tensor([1.0, 2.0])
    with nt.Tape() as tape:
        y = (x * x).exp().sum()
    assert [record.op.name for record in tape.records] == ["mul", "exp", "sum"]
    tape.records.clear()
    assert len(tape) == 3
    assert [record.op.name for record in nt.records(y)] == ["mul", "exp", "sum"]
    assert nt.records(nt.tensor(1.0)) == []


def test_an_empty_tape_is_true():
    assert nt.Tape()
    assert len(nt.Tape()) == 0


def test_a_summary_names_ops_inputs_shapes_bytes_and_lines():
    tape = nt.GradientTape()
    x = nt.tensor([[1.0, 2.0]])
    tape.watch(x=x)
    with tape:
        y = (x * 2.0).exp()
        loss = y.sum()
    lines = tape.summary().splitlines()
    assert lines[0].split() == ["record", "op", "inputs", "shape", "dtype", "bytes", "kept", "line"]
    assert lines[2].startswith("%0      mul  x, 2")
    assert lines[3].startswith("%1      exp  %0")
    assert "(1, 2)" in lines[3]
    assert "yes" in lines[3]
    assert "test_tapes.py" in lines[3]
    assert "y = (x * 2.0).exp()" in lines[3]
    assert lines[4].startswith("%2      sum  %1")
    assert lines[5] == "3 records, 20 bytes computed, 8 bytes kept for derivatives"
    assert tape.summary() == nt.summary(loss)


def test_a_summary_is_readable_after_backward():
    x = nt.tensor([1.0, 2.0], name="x")
    with nt.Tape() as tape:
        loss = (x * np.float32(2.0) * np.ones(2, np.float32)).exp().sum()
    tape.backward(loss)
    text = tape.summary()
    assert text.count("freed") == 4
    assert "array[2]" in text
    assert text.endswith("0 bytes kept for derivatives")
    assert text == nt.summary(loss)


def test_a_long_summary_leaves_out_its_middle():
    x = nt.tensor(1.0)
    with nt.Tape() as tape:
        for _ in range(100):
            x = x * 1.5
    lines = tape.summary().splitlines()
    assert len(lines) == 2 + 41 + 1
    assert "60 more" in lines[22]
    assert lines[-1].startswith("100 records")


def test_printing_a_tape_shows_its_state_and_its_records(capsys):
    tape = nt.GradientTape()
    x = tape.watch(nt.tensor(2.0))
    with tape:
        y = x * x
    print(tape)
    shown = capsys.readouterr().out
    assert shown == f"<GradientTape: 1 records, open>\n{tape.summary()}\n"
    tape.gradient(y, x)
    assert repr(tape) == "<GradientTape: 0 records, consumed>"
    tape.close()
    assert repr(tape) == "<GradientTape: 0 records, closed>"
    assert repr(nt.Tape()) == "<Tape: 0 records, open>"


def test_a_notebook_shows_a_tape_as_an_escaped_table():
    tape = nt.GradientTape()
    x = nt.tensor([1.0, 2.0], name="<x>")
    tape.watch(x)
    with tape:
        _ = x * x
    page = tape._repr_html_()
    assert "<table><thead><tr><th>record</th>" in page
    assert "&lt;x&gt;, &lt;x&gt;" in page
    assert "<x>" not in page
    assert page.count("<tr>") == 2
    assert "<summary>1 records, 8 bytes computed, 0 bytes kept for derivatives</summary>" in page


def test_an_empty_tape_can_be_shown():
    assert nt.Tape().summary().splitlines()[-1] == "0 records, 0 bytes computed, 0 bytes kept for derivatives"
    assert "<tbody></tbody>" in nt.Tape()._repr_html_()


def test_gradients_by_a_dict_of_tensors_are_a_dict():
    x, y = nt.tensor(2.0), nt.tensor(3.0)
    with nt.Tape() as tape:
        z = x * y
    found = tape.gradient(z, {"x": x, "both": [x, y]})
    assert {key: nt.tree.map(float, value) for key, value in found.items()} == {"x": 3.0, "both": [3.0, 2.0]}


@pytest.mark.parametrize("copied", [pickle.dumps, copy.copy, copy.deepcopy])
def test_a_tape_is_not_copied(copied):
    with pytest.raises(GradientError, match="cannot be copied or pickled"):
        copied(nt.GradientTape())
