"""What contexts and tapes of all threads hold, and a tape that was started and forgotten."""

import contextlib
import gc
import threading

import numpy as np
import pytest

import numtape as nt
from numtape.core.record import Record
from numtape.insight.leaks import live_records
from numtape.insight.live import live_tapes

pytestmark = pytest.mark.usefixtures("everything_in_sight")


def leaf():
    return nt.tensor(np.ones(1000, dtype=np.float32), requires_grad=True)


def places(found, name):
    """Return the places of a name that hold or record something, contexts of this thread alone."""
    own = threading.current_thread().name
    return [
        tape
        for tape in found
        if tape.name == name
        and (tape.records or tape.is_recording)
        and (tape.thread == own or not name.startswith("context"))
    ]


def test_the_context_of_a_thread_holds_what_was_recorded_in_it():
    w = leaf()
    y = nt.exp(w)
    z = y[:10].sum()
    (here,) = [tape for tape in live_tapes() if tape.name == "context 0" and tape.records]
    assert here.thread == threading.current_thread().name
    assert (here.records, here.nbytes) == (3, 4000)
    assert here.is_recording
    assert not here.is_forgotten
    assert here.line.endswith("(y = nt.exp(w))")
    del z


def test_views_of_one_buffer_count_once():
    w = leaf()
    y = nt.exp(w)
    kept = [part * part for part in (y[:500], y[500:])]
    (here,) = places(live_tapes(), "context 0")
    assert here.nbytes == 4000
    del kept


def test_a_tape_that_records_and_one_that_does_not():
    w = leaf()
    with nt.Tape() as finished:
        y = nt.exp(w)
    with nt.Tape() as recording:
        z = nt.exp(w[:10])
        found = places(live_tapes(), "a tape")
    assert sorted((tape.records, tape.nbytes, tape.is_recording) for tape in found) == [
        (1, 4000, False),
        (2, 40, True),
    ]
    assert not any(tape.is_forgotten for tape in found)
    assert [tape.thread for tape in found if tape.is_recording] == [threading.current_thread().name]
    assert len(finished) + len(recording) == 3
    del y, z


def test_a_forgotten_start_recording_is_marked():
    w = leaf()
    tape = nt.Tape()
    tape.start_recording()
    try:
        y = nt.exp(w)
        found = live_tapes()
        (forgotten,) = found.forgotten
        with nt.no_grad():
            assert len(live_tapes().forgotten) == 1
    finally:
        tape.stop_recording()
    assert (forgotten.records, forgotten.nbytes, forgotten.is_recording) == (1, 4000, True)
    assert forgotten.line.endswith("(y = nt.exp(w))")
    row = next(line for line in str(found).splitlines() if "a tape" in line and "start_recording" in line)
    assert "recording since start_recording(): call stop_recording()" in row
    assert live_tapes().forgotten == []
    del y


def test_a_forgotten_tape_holds_what_was_recorded_on_tapes_that_are_gone():
    forgotten = nt.Tape()
    forgotten.start_recording()
    try:
        for _ in range(100):
            with nt.Tape() as tape:
                loss = nt.exp(nt.ones(1000)).sum()
            del tape, loss
        with nt.Tape() as other:
            kept = nt.exp(nt.ones(10))
        found = live_tapes()
        assert len(forgotten) == 201
    finally:
        forgotten.stop_recording()
    (place,) = found.forgotten
    assert (place.records, place.nbytes) == (200, 100 * 4000)
    assert place.line.endswith("(loss = nt.exp(nt.ones(1000)).sum())")
    assert [each.records for each in places(found, "a tape") if not each.is_forgotten] == [1]
    assert not any(each.name.startswith("cleared") for each in found)
    del other, kept


def test_nothing_records_without_gradients():
    y = nt.exp(leaf())
    with nt.no_grad():
        assert [place.is_recording for place in places(live_tapes(), "context 0")] == [False]
    with nt.Tape():
        z = nt.exp(leaf())
        with nt.no_grad():
            (place,) = places(live_tapes(), "a tape")
            own = threading.current_thread().name
            assert not any(each.is_recording for each in live_tapes() if each.thread == own)
            with nt.enable_grad():
                assert [each.is_recording for each in places(live_tapes(), "a tape")] == [True]
    assert (place.records, place.thread) == (1, threading.current_thread().name)
    del y, z


def test_start_recording_inside_of_a_block_ends_with_it_and_is_not_forgotten():
    tape = nt.Tape()
    with nt.enable_grad():
        tape.start_recording()
        assert live_tapes().forgotten == []
        assert [place.is_recording for place in places(live_tapes(), "a tape")] == [True]


def test_other_threads_are_named():
    w = leaf()
    results = []
    is_ready, may_end = threading.Event(), threading.Event()

    def work():
        with nt.Tape():
            results.append(nt.exp(w))
            is_ready.set()
            may_end.wait(10)

    thread = threading.Thread(target=work, name="a worker")
    thread.start()
    assert is_ready.wait(10)
    found = [tape for tape in live_tapes() if tape.thread == "a worker"]
    may_end.set()
    thread.join()
    assert sorted((tape.name, tape.records, tape.nbytes, tape.is_recording) for tape in found) == [
        ("a tape", 1, 4000, True),
        ("context 0", 0, 0, False),
    ]


def test_what_was_cleared_or_freed_is_listed_last():
    w = leaf()
    y = nt.exp(w)
    nt.clear_tape()
    loss = (w * w).sum()
    loss.backward()
    cleared, freed = list(live_tapes())[-2:]
    assert (cleared.name, cleared.thread, cleared.records, cleared.nbytes) == (
        "cleared, or its tape is gone",
        "-",
        1,
        4000,
    )
    assert (freed.name, freed.records, freed.nbytes) == ("freed by a backward", 2, 0)
    del y


def test_the_table_has_a_row_for_each_place():
    found = live_tapes()
    lines = str(found).splitlines()
    assert lines[0].split() == ["thread", "place", "records", "bytes", "state", "oldest", "line"]
    assert len(lines) == 2 + len(found)
    assert found[0].name == "context 0"
    assert found.nbytes == sum(tape.nbytes for tape in found)


@pytest.mark.parametrize("budget", [0.002, 1e-6])
def test_the_plan_of_a_budget_leaves_nothing_alive(budget):
    x = nt.ones(64, requires_grad=True)
    gc.disable()
    try:
        before = len(live_records())
        with nt.GradientTape(persistent=True, checkpoint=nt.CheckpointConfig(memory_budget_mb=0.002)) as tape:
            y = x
            for _ in range(20):
                y = nt.sin(y)
            loss = y.sum()
        count = len(live_records())
        tape.checkpoint_plan(loss)
        tape._dropping.budget = budget * 2**20  # The smaller one raises.
        with contextlib.suppress(nt.errors.MemoryBudgetError):
            tape.gradient(loss, x)
        assert len(live_records()) == count == before + 21
        assert len(nt.live_tapes()) >= 1
    finally:
        gc.enable()


def test_records_that_another_thread_is_filling_in_are_passed_over():
    unfinished = Record()
    assert not any(record is unfinished for record in live_records())
    nt.live_tapes()
    unfinished.inputs = ()  # So that it can be freed.


def test_states_that_a_loop_has_kept_count():
    with nt.GradientMemoryProfiler() as profiler, nt.GradientContext():
        before = nt.live_tapes()
        x = nt.ones(1000, dtype="float64", requires_grad=True)
        y = nt.checkpoint_loop(lambda s: nt.sin(s * x), x, 60, snapshots=12).sum()
        held = sum(t.nbytes for t in nt.live_tapes()) - sum(t.nbytes for t in before)
        # All but the first, which is the leaf's own memory.
        assert 11 * 8000 <= held < 12 * 8000
        assert 11 * 8000 <= profiler.detect_leaks().nbytes < 12 * 8000
        y.backward()
        assert sum(t.nbytes for t in nt.live_tapes()) - sum(t.nbytes for t in before) < 8000
