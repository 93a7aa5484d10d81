"""Leaks are named: the line that recorded them, who holds them, the line that makes them grow."""

import gc
import threading
import types
import warnings

import numpy as np
import pytest

import numtape as nt
from numtape.insight.leaks import Leak, LeakReport, running_total
from numtape.insight.memory import GradientMemoryProfiler

HERE = __file__
kept_by_module = []


def leaf():
    return nt.tensor(np.ones(1000, dtype=np.float32), requires_grad=True)


def line_of(text):
    """Return the number of the only line of this file that ends with a text."""
    with open(HERE) as file:
        (found,) = [number for number, line in enumerate(file, 1) if line.rstrip().endswith(text)]
    return found


def only_leak(profiler):
    report = profiler.detect_leaks()
    assert report.num_suspicious == len(report) == 1
    return next(iter(report))


def test_a_training_step_leaves_no_leak():
    w = leaf()
    with GradientMemoryProfiler() as profiler:
        for _ in range(3):
            hidden = nt.exp(w)
            loss = hidden.sum()
            loss.backward()
            w.zero_grad()
        report = profiler.detect_leaks()
    assert report == LeakReport(())
    assert report.num_suspicious == report.nbytes == 0
    assert str(report) == "no leaks: no graph that was recorded since the start holds arrays"
    assert (hidden.shape, loss.shape) == ((1000,), ())


def test_an_empty_block_has_no_leak():
    with GradientMemoryProfiler() as profiler:
        pass
    assert profiler.detect_leaks().num_suspicious == 0


def test_a_graph_that_was_never_differentiated_is_named_in_full():
    w = leaf()
    with GradientMemoryProfiler() as profiler:
        metric = nt.exp(w).mean()  # A metric.
    line = line_of("# A metric.")
    leak = only_leak(profiler)
    assert leak == Leak(
        line=f"{HERE}:{line} (metric = nt.exp(w).mean()  # A metric.)",
        graphs=1,
        records=2,
        nbytes=4000,
        is_freed=False,
        holder=leak.holder,
        total=None,
        times=0,
    )
    assert str(leak) == (
        f"a graph of 2 records (4,000 bytes of arrays), recorded at {HERE}:{line} (metric = nt.exp(w).mean()  "
        f"# A metric.)\n  held by {leak.holder}\n  drop it, call backward(), keep a detach()ed copy, or compute it in "
        "nt.no_grad()"
    )
    here = "test_a_graph_that_was_never_differentiated_is_named_in_full"
    assert leak.holder.startswith(f"local 'metric' of {here} ({HERE}:")
    assert leak.holder.endswith(") -> .node Record")
    del metric
    assert profiler.detect_leaks().num_suspicious == 0


def test_what_was_recorded_before_the_start_is_no_leak():
    w = leaf()
    before = nt.exp(w)
    with GradientMemoryProfiler() as profiler:
        pass
    assert profiler.detect_leaks().num_suspicious == 0
    del before


@pytest.mark.usefixtures("everything_in_sight")
def test_a_global_list_is_found():
    w = leaf()
    try:
        with GradientMemoryProfiler() as profiler:
            kept_by_module.append(nt.exp(w))
        leak = only_leak(profiler)
        assert leak.holder == f"global 'kept_by_module' of module {__name__} -> [0] Tensor -> .node Record"
    finally:
        kept_by_module.clear()


def test_an_attribute_in_a_dictionary_is_found():
    w = leaf()
    trainer = types.SimpleNamespace(logs={"loss": None})
    with GradientMemoryProfiler() as profiler:
        trainer.logs["loss"] = nt.exp(w)
    holder = only_leak(profiler).holder
    assert holder.startswith("local 'trainer' of ")
    assert holder.endswith("['logs'] dict -> ['loss'] Tensor -> .node Record")


def test_a_closure_is_found():
    w = leaf()
    with GradientMemoryProfiler() as profiler:

        def closure_of(value):
            return lambda: value

        functions = {"f": closure_of(nt.exp(w))}
    holder = only_leak(profiler).holder
    assert holder.startswith("local 'functions' of test_a_closure_is_found (")
    assert holder.endswith(") -> ['f'] function <lambda> -> captured 'value' Tensor -> .node Record")
    assert holder.endswith("Tensor -> .node Record")
    assert len(functions) == 1


def test_a_tape_that_lists_records_is_found():
    w = leaf()
    with GradientMemoryProfiler() as profiler, nt.Tape(persistent=True) as tape:
        nt.exp(w)
    holder = only_leak(profiler).holder
    assert holder.startswith("local 'tape' of ")
    assert holder.endswith("-> .records list -> [0] Record")
    assert len(tape) == 1


def test_a_suspended_generator_is_found():
    w = leaf()

    def batches():
        held = nt.exp(w)
        yield 1
        yield held

    with GradientMemoryProfiler() as profiler:
        generator = batches()
        next(generator)
    assert only_leak(profiler).holder.startswith("local 'generator' of ")


def fail_after(calls):
    if calls:
        fail_after(calls - 1)
    raise ValueError("no data")


@pytest.mark.parametrize("depth", [0, 20])
def test_an_exception_that_was_stored_is_found(depth):
    w = leaf()
    errors = []

    def work(calls):
        if calls:
            work(calls - 1)
        loss = nt.exp(w)
        fail_after(2)
        return loss

    with GradientMemoryProfiler() as profiler:
        try:
            work(depth)
        except ValueError as error:
            errors.append(error)
    holder = only_leak(profiler).holder
    work_name = f"{test_an_exception_that_was_stored_is_found.__name__}.<locals>.work"
    line = line_of("        fail_after(2)")
    assert holder.startswith("local 'errors' of test_an_exception_that_was_stored_is_found (")
    assert holder.endswith(
        f") -> [0] ValueError -> traceback -> local 'loss' of {work_name} ({HERE}:{line}) -> .node Record"
    )
    # Looking at the variables leaves nothing in the frame.
    errors.clear()
    assert profiler.detect_leaks().num_suspicious == 0


def test_a_variable_that_a_function_inside_uses_is_found_in_an_exception():
    w = leaf()
    errors = []

    def work():
        loss = nt.exp(w)
        (lambda: fail_after(loss.ndim - 1))()

    with GradientMemoryProfiler() as profiler:
        try:
            work()
        except ValueError as error:
            errors.append(error)
    holder = only_leak(profiler).holder
    assert " -> [0] ValueError -> traceback -> local 'loss' of " in holder


def test_garbage_in_a_cycle_is_no_leak():
    w = leaf()
    with GradientMemoryProfiler() as profiler:
        cycle = [nt.exp(w)]
        cycle.append(cycle)
        del cycle
    assert profiler.detect_leaks().num_suspicious == 0


def test_looking_for_holders_holds_nothing():
    w = leaf()
    with GradientMemoryProfiler() as profiler:
        y = nt.exp(w)
        profiler.detect_leaks()
        profiler.detect_leaks()
        del y
        assert profiler.live_bytes == 0


def test_a_list_of_losses_is_one_leak_although_each_was_freed():
    w = leaf()
    losses = []
    with GradientMemoryProfiler() as profiler:
        for _ in range(5):
            loss = nt.exp(w).sum()
            loss.backward()
            losses.append(loss)
    leak = only_leak(profiler)
    assert (leak.graphs, leak.records, leak.nbytes, leak.is_freed) == (5, 10, 0, True)
    assert str(leak).splitlines()[0].startswith("5 graphs of 10 records (freed by a backward), recorded at ")
    assert str(leak).splitlines()[2] == "  collect loss.item() or loss.detach() instead of the tracked tensors"


def test_the_largest_leak_comes_first():
    w = leaf()
    with GradientMemoryProfiler() as profiler:
        small = nt.exp(w[:10])
        large = nt.exp(w)
    report = profiler.detect_leaks()
    assert [leak.nbytes for leak in report] == [4000, 40]
    assert report.nbytes == 4040
    assert str(report).startswith("1. a graph of 1 records (4,000 bytes of arrays)")
    del small, large


def test_a_leak_of_another_thread_is_found():
    w = leaf()
    kept = []
    with GradientMemoryProfiler() as profiler:
        thread = threading.Thread(target=lambda: kept.append(nt.exp(w)))
        thread.start()
        thread.join()
    assert only_leak(profiler).nbytes == 4000


# Growth.


def test_a_running_total_in_an_evaluation_is_named():
    w = leaf()
    with GradientMemoryProfiler() as profiler:
        total = 0.0
        for _ in range(4):
            loss = nt.exp(w).sum()
            total = total + loss  # Evaluation.
    leak = only_leak(profiler)
    assert leak.total == f"{HERE}:{line_of('# Evaluation.')} (total = total + loss  # Evaluation.)"
    assert (leak.times, leak.records, leak.nbytes) == (4, 12, 16000)
    assert str(leak).splitlines()[2] == (
        f"  grows at {leak.total}, recorded 4 times, each linked to the one before: add loss.item() or loss.detach() "
        "instead of the tracked loss"
    )


def test_a_running_mean_on_one_line_is_named():
    w = leaf()
    with GradientMemoryProfiler() as profiler:
        mean = nt.tensor(0.0)
        for _ in range(5):
            mean = 0.9 * mean + 0.1 * nt.exp(w).sum()
    leak = only_leak(profiler)
    assert leak.times == 5
    assert leak.total.endswith("(mean = 0.9 * mean + 0.1 * nt.exp(w).sum())")


def test_layers_that_carry_arrays_are_no_running_total():
    x = leaf()
    with GradientMemoryProfiler() as profiler:
        for _ in range(5):
            x = x + nt.sin(x)
        loss = x.sum() * 0.5 + 1.0
    assert only_leak(profiler).total is None
    assert running_total(nt.records(loss)) is None


def test_the_alarm_names_the_running_total_after_ten_steps():
    w = leaf()
    with GradientMemoryProfiler() as profiler, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        total = nt.tensor(0.0)
        for _ in range(20):
            loss = nt.exp(w).sum()
            loss.backward()
            w.zero_grad()
            total += loss  # Training.
    (alarm,) = caught
    line = line_of("# Training.")
    assert alarm.filename == HERE
    text = str(alarm.message)
    assert text.startswith("GradientMemoryProfiler: memory grows after each backward, 10 times in a row: a graph of ")
    assert f"grows at {HERE}:{line} (total += loss  # Training.), recorded 10 times" in text
    assert "held by local 'total' of test_the_alarm_names_the_running_total_after_ten_steps" in text
    assert profiler.detect_leaks().num_suspicious == 1


def test_the_alarm_names_a_state_that_is_carried_from_step_to_step():
    state, u = nt.zeros(10), nt.ones(10, requires_grad=True)
    with GradientMemoryProfiler(), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(15):
            state = nt.tanh(state * u + 1.0)  # Carried.
            loss = state.sum()
            loss.backward(retain_graph=True)
    (alarm,) = caught
    where, holder, advice = str(alarm.message).split("\n")
    place = f"{HERE}:{line_of('# Carried.')} (state = nt.tanh(state * u + 1.0)  # Carried.)"
    assert where.endswith(f"of arrays), recorded at {place}")
    assert holder.startswith(
        "  held by local 'state' of test_the_alarm_names_a_state_that_is_carried_from_step_to_step"
    )
    assert advice == (
        "  each of 10 steps goes on from what the one before made there, and from its graph: begin a step with the "
        "detach()ed state"
    )


def test_the_alarm_is_silent_if_a_state_is_carried_without_its_graph():
    state, u = nt.zeros(10), nt.ones(10, requires_grad=True)
    with GradientMemoryProfiler(), warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(15):
            state = nt.tanh(state.detach() * u + 1.0)
            state.sum().backward()


def test_what_all_steps_read_is_no_carried_state():
    u = nt.ones(10, requires_grad=True)
    kept = []
    with GradientMemoryProfiler(), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        shared = nt.exp(u)
        for _ in range(15):
            kept.append((shared * 2.0).sum())
            kept[-1].backward(retain_graph=True)
    assert str(caught[0].message).endswith("collect loss.item() or loss.detach() instead of the tracked tensors")


def test_the_alarm_works_at_checkpoints_without_a_backward():
    w = leaf()
    with GradientMemoryProfiler() as profiler:
        total = nt.tensor(0.0)
        for step in range(11):
            total = total + nt.exp(w).sum()  # Validation.
            if step < 10:
                profiler.record_checkpoint("batch")
        with pytest.warns(UserWarning, match="memory grows at the checkpoint 'batch', 10 times in a row"):
            profiler.record_checkpoint("batch")
    assert only_leak(profiler).total.endswith("# Validation.)")


def train(w, keep):
    """Take steps, and check each gradient."""
    for step in range(20):
        w.zero_grad()
        loss = nt.exp(w).sum()
        loss.backward()
        assert np.array_equal(w.grad.numpy(), np.exp(w.numpy()))
        keep(step, loss)


def test_the_alarm_names_a_list_of_losses():
    losses = []
    with GradientMemoryProfiler(), pytest.warns(UserWarning, match="collect loss.item") as caught:
        train(leaf(), lambda step, loss: losses.append(loss))
    assert len(caught) == 1


def test_an_alarm_that_is_an_error_costs_no_gradient():
    kept = {}
    with GradientMemoryProfiler(), pytest.raises(UserWarning, match="memory grows"):
        train(leaf(), kept.__setitem__)
    # It comes with the first op of the next step.
    assert list(kept) == list(range(11))


def test_steps_that_do_not_grow_raise_no_alarm():
    w = leaf()
    with GradientMemoryProfiler() as profiler:
        total = 0.0
        for _ in range(30):
            loss = nt.exp(w).sum()
            loss.backward()
            w.zero_grad()
            total += loss.item()
            profiler.record_checkpoint("step")
    gc.collect()
    assert profiler.detect_leaks().num_suspicious == 0


def kept_in_a_closure():
    losses = []
    return lambda step, loss: losses.append(loss)


@pytest.mark.parametrize("kind", ["list", "dict", "closure"])
def test_the_alarm_names_the_collection_and_not_the_variable_of_the_last_loss(kind):
    losses, by_step, keep = [], {}, kept_in_a_closure()
    keepers = {"list": lambda step, loss: losses.append(loss), "dict": by_step.__setitem__, "closure": keep}
    with GradientMemoryProfiler() as profiler, pytest.warns(UserWarning, match="memory grows") as caught:
        train(leaf(), keepers[kind])
    # The closure is an argument of the function that is running.
    name = {"list": "'losses'", "dict": "'by_step'", "closure": "'keep'"}[kind]
    middle = "captured 'losses' list -> " if kind == "closure" else ""
    text = str(caught[0].message)
    assert f"held by local {name} of t" in text
    assert f" -> {middle}[5] Tensor -> .node Record" in text
    assert only_leak(profiler).holder.endswith(f" -> {middle}[9] Tensor -> .node Record")


@pytest.mark.parametrize("has_backward", [True, False])
def test_sequences_that_get_longer_and_leave_nothing_raise_no_alarm(has_backward):
    w = leaf()
    with GradientMemoryProfiler() as profiler:
        for step in range(40):
            h = w
            for _ in range(step + 1):
                h = nt.tanh(h)
            loss = h.sum()
            profiler.record_checkpoint("after forward")
            if has_backward:
                loss.backward()


def test_a_leak_under_sequences_that_get_longer_is_still_found():
    w, losses = leaf(), []

    def take_steps(profiler):
        for step in range(15):
            h = w
            for _ in range(step + 1):
                h = nt.tanh(h)
            losses.append(h.sum())
            profiler.record_checkpoint("after forward")

    with GradientMemoryProfiler() as profiler, pytest.warns(UserWarning, match="at the checkpoint 'after forward'"):
        take_steps(profiler)


@pytest.mark.parametrize(
    "use",
    [
        lambda w: w + nt.randn(1000, rng=0),
        lambda w: w * (nt.randn(1000, rng=0) * 2.0),
        lambda w: w * np.ones(1000, np.float32),
        lambda w: w[np.arange(1000, dtype=np.int32)],
    ],
    ids=["tensor", "computed", "array", "indices"],
)
def test_constants_that_graphs_alone_hold_are_counted(use):
    w = nt.zeros(1000, requires_grad=True)
    profiler = nt.GradientMemoryProfiler()
    profiler.start_profiling()
    before = nt.live_tapes().nbytes
    losses = [use(w).sum() for _ in range(5)]
    assert profiler.detect_leaks().nbytes == 5 * 4000
    assert nt.live_tapes().nbytes - before == 5 * 4000
    del losses


def test_constants_that_the_program_holds_are_none_of_a_graphs():
    w, tensor, array = nt.zeros(1000, requires_grad=True), nt.ones(1000), np.ones(1000, np.float32)
    profiler = nt.GradientMemoryProfiler()
    profiler.start_profiling()
    losses = [(w + tensor + array + array[::-1]).sum() for _ in range(5)]
    assert profiler.detect_leaks().nbytes == 0
    del losses


def test_records_that_link_arrays_of_the_program_are_looked_at():
    w = leaf()
    target = np.zeros(w.shape, np.float32)
    with GradientMemoryProfiler() as profiler:
        total = 0.0
        for _ in range(4):
            total = total + nt.mse_loss(w * 1.0, target)  # Over arrays.
    assert only_leak(profiler).total.startswith(f"{HERE}:{line_of('# Over arrays.')}")
    labels = np.array([0, 1])
    with GradientMemoryProfiler() as profiler:
        loss = nt.cross_entropy_loss(nt.reshape(w, 2, -1), labels)
        assert profiler.detect_leaks().num_suspicious == 1
    del loss
