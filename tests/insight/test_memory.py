"""Activation bytes and the memory profiler: every number is known beforehand."""

import sys
import threading
import tracemalloc

import numpy as np
import pytest

import numtape as nt
from numtape.core.context import current
from numtape.errors import ArgumentError, MissingExtraError, OverwrittenError
from numtape.insight import activations
from numtape.insight.memory import Activations, Checkpoint, GradientMemoryProfiler, Row

MB = 2**20


def leaf(n=1000):
    return nt.tensor(np.linspace(0.1, 1.0, n, dtype=np.float32), requires_grad=True)


def mlp(depth, width=32, rows=64):
    rng = np.random.default_rng(0)
    weights = [nt.tensor(rng.standard_normal((width, width)) / 6.0, requires_grad=True) for _ in range(depth)]
    x = nt.tensor(rng.standard_normal((rows, width)))

    def loss():
        h = x
        for weight in weights:
            h = nt.gelu(h @ weight)
        return (h * h).mean()

    return loss, weights


# Activations.


def test_what_a_record_keeps_counts_until_the_backward_passes_it():
    x = leaf()
    with Activations() as bytes:
        y = nt.exp(x)
        assert bytes.live == 4000
        loss = y.sum()
        assert bytes.live == 4004
        del y
        assert bytes.live == 4004  # The rule of exp reads it.
        loss.backward()
    assert bytes.live == 4  # The loss itself.
    assert bytes.forward_peak == 4004
    assert bytes.backward_peak == 4008  # The cotangent of a sum is one number, repeated.
    assert bytes.peak == 4008
    del loss
    assert bytes.live == 0


def test_an_output_that_no_rule_reads_counts_while_the_program_holds_it():
    x = leaf()
    with Activations() as bytes:
        y = x + 1.0
        assert bytes.live == 4000
        y = y + 1.0
        assert bytes.live == 4000
        assert bytes.peak == 8000
        del y
        assert bytes.live == 0


def test_leaves_their_views_and_their_gradients_do_not_count():
    w = nt.tensor(np.ones((50, 20), dtype=np.float32), requires_grad=True)
    with Activations() as bytes:
        y = w.T.reshape(20, 50)[3:]
        assert bytes.live == 0 or bytes.live == 4000  # A transposed array is copied where it cannot be a view.
        (w + 0.0).backward(np.ones((50, 20), dtype=np.float32))
        del y
    assert w.grad.nbytes == 4000
    assert bytes.live == 0


def test_a_view_of_an_intermediate_counts_its_buffer_once():
    x = leaf()
    with Activations() as bytes:
        y = nt.exp(x)
        parts = [y[:10], y[10:20], y.reshape(10, 100)]
        assert bytes.live == 4000
        del y
        assert bytes.live == 4000
        del parts
    assert bytes.live == 0


def test_constants_that_ops_made_count_when_a_record_holds_them():
    x = leaf()
    given = nt.ones(1000)
    with Activations() as bytes:
        mask = given * 2.0
        assert bytes.live == 0
        y = x * mask
        assert bytes.live == 8000
        z = x * given
        assert bytes.live == 12000
    del y, z


MADE_INSIDE = {
    "nt": lambda: nt.randn(1000, rng=0),
    "zeros": lambda: nt.zeros(1000),
    "tensor": lambda: nt.tensor(np.ones(1000, np.float32)),
    "numpy": lambda: np.ones(1000, np.float32),
}


@pytest.mark.parametrize("make", MADE_INSIDE.values(), ids=MADE_INSIDE)
def test_constants_that_were_made_inside_count_while_a_record_holds_them(make):
    x = leaf()
    with Activations() as bytes:
        y = x * make()
        z = y + 1.0  # So that nobody but the record holds an array.
        assert bytes.live == 12_000
        del y
        assert bytes.live == 8_000
    del z


def test_constants_that_the_program_has_made_before_do_not_count():
    x, array, tensor = leaf(), np.ones(1000, np.float32), nt.ones(1000)
    with Activations() as bytes:
        y = x * array * tensor * nt.from_numpy(array)
        z = y + 1.0
        assert bytes.live == 8_000
    del y, z


def test_indices_count_where_a_record_holds_them_alone():
    x = leaf()
    with Activations() as bytes:
        y = x[np.arange(1000)]
        z = y + 1.0
        assert bytes.live == 8_000 + 8_000
    del y, z


def test_parts_of_an_op_with_several_outputs_count_once_each():
    x = leaf()
    with Activations() as bytes:
        first, second = nt.split(nt.exp(x), 2)
        assert bytes.live == 4000
        (first * second).sum().backward()
        assert bytes.live == 4000  # The parts are views of one buffer, and the program holds them.
        del first, second
    assert bytes.live == 0


def test_recomputed_values_count():
    loss, _ = mlp(8)
    with Activations() as plain:
        loss().backward()
    with Activations() as bytes:
        result = nt.checkpoint(loss)
        assert bytes.live == 8
        result.backward()
    rows = {account.kind: 0 for account in bytes.ledger.at_peak}
    for account, nbytes in bytes.ledger.at_peak.items():
        rows[account.kind] += nbytes
    assert rows["recomputed"] == 16 * 64 * 32 * 8  # Product and output of each layer.
    assert bytes.backward_peak >= 0.9 * plain.backward_peak
    assert bytes.live == 8


@pytest.mark.parametrize(
    "part",
    [
        nt.nn.BatchNorm1d(50, dtype="float64"),
        lambda h: nt.concatenate(nt.split(h, 2)),
        lambda h: nt.stack(nt.unbind(h.reshape(2, 20, 50))).reshape(40, 50),
    ],
    ids=["batch_norm", "split", "unbind"],
)
def test_a_gradient_of_a_leaf_beside_an_op_with_several_outputs_does_not_count(part):
    def peak(requires_grad):
        x = nt.tensor(np.ones((40, 50)), requires_grad=True)
        z = nt.tensor(np.ones((40, 50)), requires_grad=requires_grad)
        with Activations() as bytes:
            h = x
            for _ in range(5):
                h = nt.tanh(h)
            loss = ((z + part(h)) ** 2).sum()
            del h
            loss.backward()
        return bytes.peak

    assert peak(True) == peak(False)


def test_what_is_made_on_the_way_to_what_is_made_again_counts():
    """Of four values that are made again, only the last is read; each lives with the next, beside the cotangent."""
    x = leaf()
    with Activations() as bytes:

        def region(x):
            return nt.sin((((x + 1.0) * 2.0) - 1.0) * 3.0)

        loss = nt.checkpoint(region, x).sum()
        loss.backward()
    assert bytes.ledger.peak == bytes.backward_peak == 3 * x.nbytes + 4


def test_a_gradient_of_a_leaf_that_a_cotangent_becomes_does_not_count_beside_what_takes_its_place():
    x = nt.ones(100, requires_grad=True)
    with Activations() as bytes:
        a = nt.tanh(x + nt.tanh(x))
        b = nt.tanh((x + a) + a)
        del a
        b.sum().backward()
    assert bytes.peak == max(bytes.forward_peak, bytes.backward_peak)


def test_the_mean_carries_one_number_back():
    x = nt.ones(1000, requires_grad=True)
    with Activations() as bytes:
        loss = (x * 2.0).mean()
        loss.backward()
    assert bytes.backward_peak < 2 * 4000


def test_the_peak_of_the_backward_is_near_the_end_of_the_forward_for_a_deep_network():
    loss, _ = mlp(50)
    with Activations() as bytes:
        result = loss()
        end_of_forward = bytes.live
        result.backward()
    assert end_of_forward == 100 * 64 * 32 * 8 + 8
    assert bytes.backward_peak <= 1.1 * end_of_forward
    assert bytes.live == 8


def test_cotangents_of_half_values_are_float32():
    x = nt.tensor(np.ones(1000, dtype=np.float16), requires_grad=True)
    with Activations() as bytes:
        y = nt.exp(nt.exp(x))
        assert bytes.live == 4000
        y.backward(np.ones(1000, dtype=np.float16))
    kinds = {account.kind: nbytes for account, nbytes in bytes.ledger.at_peak.items()}
    assert kinds["cotangent"] == 2 * 4000  # That of y, and what its rule makes of it.
    assert x.grad.dtype == nt.float16


def test_a_second_order_sweep_records_in_the_phase_backward():
    x = leaf(10)
    with Activations() as bytes, nt.Tape() as tape:
        loss = nt.exp(x).sum()
        first = tape.backward(loss, create_graph=True)[x]
        first.sum().backward()
    phases = {account.phase for account in bytes.ledger.balances if account.kind == "value"}
    assert phases == {"forward", "backward"}
    assert bytes.timeline[-1][0] == "backward ends"


def test_ops_after_a_sweep_that_raised_are_forward():
    x = leaf(10)
    with Activations() as bytes:
        y = nt.exp(x)
        loss = (y * y).sum()
        y += 1.0
        with pytest.raises(OverwrittenError):
            loss.backward()
        z = nt.sin(x)
    assert bytes.timeline[-1] == ("forward sin", bytes.live)
    del z


def test_the_timeline_says_what_happened_and_what_was_alive():
    x = leaf()
    with Activations() as bytes:
        nt.exp(x).sum().backward()
    assert bytes.timeline == [
        ("forward exp", 4000),
        ("forward sum", 4004),
        ("backward begins", 4004),
        ("backward sum", 4008),
        ("backward exp", 4008),
        ("backward ends", 8),
    ]


def test_a_long_timeline_loses_detail_and_never_its_peaks(monkeypatch):
    monkeypatch.setattr(activations, "MOST_POINTS", 10)
    x = leaf()
    with Activations() as bytes:
        for n in range(1, 40):
            nt.exp(x[: 10 * n if n != 20 else 1000])
    assert len(bytes.timeline) < 10
    assert max(nbytes for _, nbytes in bytes.timeline) == bytes.peak == 4000


def test_counting_changes_no_bits():
    def gradients():
        loss, weights = mlp(6)
        result = loss()
        result.backward()
        return [result.numpy(), *(weight.grad.numpy() for weight in weights)]

    plain = gradients()
    with GradientMemoryProfiler():
        counted = gradients()
    assert all(np.array_equal(a, b) for a, b in zip(plain, counted, strict=True))


def test_counting_holds_nothing_and_adds_nothing_after_its_block():
    x = leaf()
    with Activations() as bytes:
        pass
    assert (current().scopes, current().observers) == ((), ())
    nt.exp(x).sum().backward()
    assert (bytes.timeline, bytes.peak) == ([], 0)


def test_the_peak_of_tracemalloc_stands_beside_it():
    x = leaf(100_000)
    with Activations() as bytes:
        nt.exp(x).sum().backward()
    assert bytes.traced_peak is None
    tracemalloc.start()
    try:
        with Activations() as outer:
            nt.exp(x).sum().backward()
            with Activations() as inner:
                nt.exp(x[:10]).sum().backward()
    finally:
        tracemalloc.stop()
    assert inner.traced_peak < outer.traced_peak
    assert outer.traced_peak >= outer.peak


def test_another_thread_is_not_counted():
    x = leaf()
    results = []
    with Activations() as bytes:
        thread = threading.Thread(target=lambda: results.append(nt.exp(x)))
        thread.start()
        thread.join()
    assert len(results) == 1
    assert bytes.peak == 0


def test_two_threads_count_their_own():
    def work(n, found):
        x = leaf(n)
        for _ in range(50):
            with Activations() as bytes:
                nt.exp(x).sum().backward()
            found.append(bytes.peak)

    found = {1000: [], 2000: []}
    threads = [threading.Thread(target=work, args=item) for item in found.items()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {1000: [4008] * 50, 2000: [8008] * 50}


# The profiler.


def test_it_says_which_operations_use_most_memory():
    loss, _ = mlp(4)
    with GradientMemoryProfiler() as profiler:
        loss().backward()
    assert [row.name for row in profiler.by_op()[:2]] == ["gelu", "matmul"]


def test_bytes_by_op_line_kind_and_phase_add_up_to_the_peak():
    x = leaf()
    with GradientMemoryProfiler() as profiler:
        y = nt.exp(x)
        z = nt.exp(y)
        profiler.record_checkpoint("half way")
        z.backward(np.ones(1000, dtype=np.float32))
    assert profiler.peak_bytes == 16000
    assert profiler.live_bytes == 8000  # y and z are still held here.
    assert profiler.by_op() == [Row("exp", 8000, 16000)]
    names = [row.name for row in profiler.by_line()]
    assert [(row.live, row.peak) for row in profiler.by_line()] == [(4000, 12000), (4000, 4000)]
    assert names[0].endswith("(z = nt.exp(y))")
    assert names[1].endswith("(y = nt.exp(x))")
    assert profiler.by_kind() == [Row("value", 8000, 8000), Row("cotangent", 0, 8000)]
    assert profiler.by_phase() == [
        Row("forward", 8000, 8000),
        Row("backward", 0, 16000),
        Row("at half way", 8000, 8000),
    ]
    del y, z
    assert profiler.live_bytes == 0


def test_the_table_shows_totals_and_parts():
    x = leaf()
    with GradientMemoryProfiler() as profiler:
        nt.exp(x).sum().backward()
    text = profiler.table()
    assert str(profiler) == text
    assert text.splitlines()[:6] == [
        "peak 3.91 KB (forward 3.91 KB, backward 3.91 KB), alive 0 B",
        "",
        "by op  alive  at peak  share",
        "----------------------------",
        "exp      0 B  3.91 KB   100%",
        "sum      0 B      8 B     0%",
    ]
    assert [line.split("  ")[0] for line in text.splitlines() if line.startswith("by ")] == [
        "by op",
        "by line",
        "by kind",
        "by phase",
    ]
    assert "test_memory.py:" in text
    assert repr(profiler) == "<GradientMemoryProfiler: 0 bytes alive, 4,008 at the peak>"
    assert "(1 more)" in profiler.table(most_rows=1)


def test_checkpoints_know_the_peak_since_the_one_before():
    x = leaf()
    with GradientMemoryProfiler() as profiler:
        profiler.record_checkpoint("start")
        nt.exp(x)
        profiler.record_checkpoint("end")
        profiler.record_checkpoint("later")
    assert profiler.checkpoints == [
        Checkpoint("start", 0, 0, profiler.checkpoints[0].records, None),
        Checkpoint("end", 0, 4000, profiler.checkpoints[0].records, None),
        Checkpoint("later", 0, 0, profiler.checkpoints[0].records, None),
    ]


def test_an_unknown_checkpoint_is_named_with_those_that_there_are():
    with GradientMemoryProfiler() as profiler:
        profiler.record_checkpoint("before_forward")
        profiler.record_checkpoint("after_forward")
    with pytest.raises(ArgumentError) as caught:
        profiler.get_memory_delta("before_forward", "after_froward")
    assert str(caught.value) == (
        "get_memory_delta: there is no checkpoint 'after_froward'; there are: 'before_forward', 'after_forward'. "
        "Did you mean 'after_forward'?"
    )


def test_a_profiler_that_was_not_started_says_so():
    profiler = GradientMemoryProfiler()
    with pytest.raises(ArgumentError) as caught:
        profiler.record_checkpoint("start")
    assert str(caught.value) == (
        "GradientMemoryProfiler: nothing was profiled yet; call start_profiling(), or use the profiler as a with block."
    )
    assert str(profiler) == "<GradientMemoryProfiler: nothing profiled>"
    profiler.stop_profiling()


def test_nothing_is_lost_when_the_block_raises():
    x = leaf()
    profiler = GradientMemoryProfiler()
    kept = []

    def fails():
        with profiler:
            profiler.record_checkpoint("start")
            kept.append(nt.exp(x))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fails()
    assert (current().scopes, current().observers) == ((), ())
    assert profiler.peak_bytes == 4000
    assert [checkpoint.name for checkpoint in profiler.checkpoints] == ["start"]
    assert profiler.by_op() == [Row("exp", 4000, 4000)]
    assert profiler.detect_leaks().num_suspicious == 1
    kept[0].sum().backward()
    assert np.array_equal(x.grad.numpy(), np.exp(x.numpy()))


def test_nothing_is_lost_when_a_backward_raises():
    x = leaf()
    with GradientMemoryProfiler() as profiler:
        y = nt.exp(x)
        loss = (y * y).sum()
        y += 1.0
        with pytest.raises(OverwrittenError):
            loss.backward()
        del y, loss
        assert profiler.detect_leaks().num_suspicious == 0
        (x * x).sum().backward()
    assert np.array_equal(x.grad.numpy(), 2 * x.numpy())
    assert profiler.by_phase()[1].peak > 0


def test_starting_again_begins_from_zero():
    x = leaf()
    profiler = GradientMemoryProfiler()
    profiler.start_profiling()
    nt.exp(x)
    profiler.record_checkpoint("first")
    profiler.start_profiling()
    assert profiler.peak_bytes == 0
    assert profiler.checkpoints == []
    assert len(current().scopes) == 1
    profiler.stop_profiling()
    with profiler:
        nt.exp(x[:10])
    assert profiler.peak_bytes == 40


def test_a_profiler_that_nobody_has_stops():
    profiler = GradientMemoryProfiler()
    profiler.start_profiling()
    assert len(current().scopes) == 1
    del profiler
    assert (current().scopes, current().observers) == ((), ())


def test_nothing_stands_on_the_path_of_an_op_while_no_profiler_is_on():
    x = leaf(3)
    called = []

    def trace(frame, event, arg):
        if event == "call" and "insight" in frame.f_code.co_filename.rsplit("numtape", 1)[-1]:
            called.append(frame.f_code.co_name)

    with GradientMemoryProfiler():
        nt.exp(x)
    sys.setprofile(trace)
    try:
        nt.exp(x).sum().backward()
    finally:
        sys.setprofile(None)
    assert called == []


# The plot.


def test_the_plot_is_a_picture(tmp_path):
    pytest.importorskip("matplotlib")
    loss, _ = mlp(5)
    with GradientMemoryProfiler() as profiler:
        for _ in range(2):
            profiler.record_checkpoint("before forward")
            result = loss()
            profiler.record_checkpoint("after forward")
            result.backward()
    profiler.plot(tmp_path / "memory.png")
    assert (tmp_path / "memory.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"


def test_a_plot_of_nothing_says_so(tmp_path):
    with GradientMemoryProfiler() as profiler:
        pass
    with pytest.raises(ArgumentError) as caught:
        profiler.plot(tmp_path / "memory.png")
    assert str(caught.value) == "GradientMemoryProfiler.plot: no op was recorded, so there is nothing to draw."


def test_a_plot_without_matplotlib_names_the_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    x = leaf()
    with GradientMemoryProfiler() as profiler:
        nt.exp(x)
    with pytest.raises(MissingExtraError) as caught:
        profiler.plot(tmp_path / "memory.png")
    assert str(caught.value) == "GradientMemoryProfiler.plot: needs Matplotlib; pip install numtape[plot]."


def test_the_name_of_a_checkpoint_is_a_string():
    with GradientMemoryProfiler() as profiler, pytest.raises(ArgumentError) as error:
        profiler.record_checkpoint(3)
    assert str(error.value) == "record_checkpoint: name is 3; it must be a string, such as 'after forward'."
    assert profiler.checkpoints == []


def drawn(profiler, path, monkeypatch):
    """Draw, and return the axes."""
    figure = pytest.importorskip("matplotlib.figure")
    seen = []
    save = figure.Figure.savefig
    monkeypatch.setattr(figure.Figure, "savefig", lambda self, *a, **k: (seen.append(self), save(self, *a, **k)))
    profiler.plot(path)
    return seen[0].axes[0]


def test_a_plot_ends_with_what_is_alive_now(tmp_path, monkeypatch):
    w = nt.ones(1000, requires_grad=True)
    with GradientMemoryProfiler() as profiler:
        loss = nt.exp(w).sum()
    del loss
    assert profiler.live_bytes == 0
    axes = drawn(profiler, tmp_path / "memory.png", monkeypatch)
    assert axes.lines[0].get_ydata()[-1] == 0.0


def test_a_plot_says_how_many_checkpoints_it_leaves_out(tmp_path, monkeypatch):
    w = nt.ones(10, requires_grad=True)
    with GradientMemoryProfiler() as profiler:
        for number in range(25):
            nt.exp(w)
            profiler.record_checkpoint(f"step {number}")
    axes = drawn(profiler, tmp_path / "memory.png", monkeypatch)
    assert axes.get_xlabel().endswith("\nthe last 20 of 25 checkpoints are marked")
    assert axes.texts[0].get_text() == "step 5"
