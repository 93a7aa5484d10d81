"""Tapes are used once, dropped, and asked for gradients of what has no influence."""

import gc
import inspect
import weakref

import pytest

import numtape as nt
from numtape.errors import (
    ArgumentError,
    FreedError,
    NotConnectedError,
    OperandError,
    ShapeError,
    TapeConsumedError,
)

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


def test_tapes_take_their_settings_in_one_order():
    order = ["persistent", "watch_all", "checkpoint", "amp", "deterministic", "scheduler"]
    for kind in (nt.Tape, nt.GradientTape):
        assert list(inspect.signature(kind).parameters) == order
        settings = (None, nt.AmpConfig(), nt.DeterministicConfig(), nt.SchedulerConfig("forward"))
        tape = kind(True, True, *settings)
        assert tape.persistent
        assert tape.watch_all
        assert tape.scheduler.config.strategy is nt.SchedulingStrategy.FORWARD


@pytest.mark.parametrize("kind", [nt.Tape, nt.GradientTape])
def test_flags_of_tapes_are_true_or_false(kind):
    with pytest.raises(OperandError, match=r"^Tape: persistent is CheckpointConfig\(.*\); it must be True or False\.$"):
        kind(nt.CheckpointConfig())
    with pytest.raises(OperandError, match=r"^Tape: watch_all is 'all'; it must be True or False\.$"):
        kind(True, "all")
