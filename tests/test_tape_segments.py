"""Tapes are entered again, marked, rewound, reset and closed."""

import numpy as np
import pytest

import numtape as nt
from numtape.core.value import LEAF
from numtape.errors import (
    ArgumentError,
    ClosedError,
)


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
