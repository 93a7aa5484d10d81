"""What is made again must be what it was: refilled memory is named, and what does not repeat is kept."""

import subprocess
import sys
import tracemalloc
from contextlib import nullcontext

import numpy as np
import pytest

import numtape as nt
from numtape.core.recompute import fingerprint
from numtape.errors import NonFiniteError, OverwrittenError

CONFIGS = {
    "block": nt.CheckpointConfig("block", checkpoint_every_n=3),
    "selective": nt.CheckpointConfig("selective"),
    "full": nt.CheckpointConfig("full"),
    "auto": nt.CheckpointConfig("auto", memory_budget_mb=300 / 2**20),
}

VIEWS = {
    "a slice": lambda data: data[:3],
    "a reshape": lambda data: data.reshape(3, 4)[:, :2],
    "a transpose": lambda data: data.T[:, :3].T,
    "repeated": lambda data: nt.broadcast_to(data[0], (3, 2)),
    "a part": lambda data: nt.split(data, 2)[0],
    "backward": lambda data: data[::-2],
    "a view of a view": lambda data: data[1:][:3],
}


def leaf(*values):
    return nt.tensor(values, dtype="float64", requires_grad=True)


def gradient_after_a_refill(view, tape, watches, refill):
    buffer = np.linspace(0.1, 1.0, 12).reshape(6, 2)
    data = nt.from_numpy(buffer)
    if watches:
        data.requires_grad_()
    w = leaf(0.5, 0.2)
    with tape as holder:
        h = view(data) + w
        for _ in range(6):
            h = nt.tanh(h)
        loss = (h**2).sum()
        del h
    if refill:
        buffer[:] = np.random.default_rng(0).normal(size=buffer.shape)
    loss.backward()
    del holder
    return w.grad.numpy()


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
@pytest.mark.parametrize("config", ["selective", "full", "auto"])
@pytest.mark.parametrize(("tape", "watches"), [(nt.Tape, False), (nt.GradientTape, False), (nt.GradientTape, True)])
def test_a_refilled_array_is_named_also_where_a_view_of_it_was_read(view, config, tape, watches):
    plain = gradient_after_a_refill(view, nullcontext(), watches, False)
    checkpointed = tape(checkpoint=CONFIGS[config])
    np.testing.assert_array_equal(gradient_after_a_refill(view, checkpointed, watches, False), plain)
    with pytest.raises(OverwrittenError, match=r"NumPy array given for .* was overwritten since"):
        gradient_after_a_refill(view, tape(checkpoint=CONFIGS[config]), watches, True)


TABLE = np.ones(2)


@nt.custom_op(vjp={"x": lambda g, x, table: g * table + 0.0 * x}, samples=[(np.ones(2),)])
def scaled(x, /, *, table=TABLE):
    return x * table


@nt.custom_op(vjp={"x": lambda g: g}, samples=[(np.ones(2),)])
def shifted(x, /, *, table=TABLE):
    return x + table


@pytest.mark.parametrize("op", [scaled, shifted])
def test_a_refilled_parameter_is_named(op):
    def gradient(checkpointed, refill):
        table, x = np.array([0.3, 0.4]), leaf(0.1, 0.2)

        def compute(x):
            return nt.exp(nt.tanh(op(nt.sin(x), table=table))) * 1.0

        y = nt.checkpoint(compute, x) if checkpointed else compute(x)
        if refill:
            table[:] = 3.0
        y.sum().backward()
        return x.grad.tolist()

    assert gradient(True, False) == gradient(False, False)
    with pytest.raises(
        OverwrittenError,
        match=rf"^{op.__name__}: its result at .* is computed again, but the NumPy array given for 'table' was over",
    ):
        gradient(True, True)


def noisy_ops():
    """Return ops that draw beside the streams, and say so; of one output and of two."""
    rng = np.random.default_rng(0)

    @nt.custom_op(vjp={"x": lambda g: g}, check=False, deterministic=False)
    def jitter(x, /):
        return x + rng.normal(size=x.shape)

    @nt.custom_op(vjp=lambda g: (g[0] + 2.0 * g[1],), check=False, deterministic=False)
    def pair(x, /):
        noise = rng.normal(size=x.shape)
        return x + noise, 2.0 * x + noise

    return jitter, pair


def program(x, noisy):
    jitter, pair = noisy
    h = nt.tanh(jitter(nt.sin(x)))
    a, b = pair(h * 1.5)
    return nt.exp(nt.tanh(a) * nt.cos(b)) * nt.sin(jitter(a + b))


@pytest.mark.parametrize("tape", [nt.Tape, nt.GradientTape])
@pytest.mark.parametrize("config", CONFIGS)
def test_what_does_not_repeat_is_kept(tape, config):
    def gradient(checkpointed):
        x, noisy = leaf(0.1, 0.2), noisy_ops()
        # Nobody but the graph holds what is computed on the way.
        with checkpointed as holder:
            loss = program(x, noisy).sum()
        loss.backward()
        del holder
        return x.grad.tolist()

    budget = CONFIGS[config].memory_budget_mb
    given = CONFIGS[config] if budget is None else nt.CheckpointConfig("auto", memory_budget_mb=200 / 2**20)
    assert gradient(tape(checkpoint=given)) == gradient(nullcontext())


def test_what_does_not_repeat_is_kept_in_a_checkpoint():
    def derivatives(wrap):
        x, noisy = leaf(0.1, 0.2), noisy_ops()
        wrap(lambda x: program(x, noisy), x).sum().backward()
        return x.grad.tolist()

    assert derivatives(nt.checkpoint) == derivatives(lambda f, x: f(x))


def test_a_loop_names_the_op_that_does_not_repeat():
    jitter, _ = noisy_ops()
    with pytest.warns(
        UserWarning,
        match=r"^checkpoint_loop: its step runs jitter at .*, which is declared with deterministic=False",
    ):
        nt.checkpoint_loop(lambda s: nt.tanh(jitter(s)), leaf(0.1, 0.2), 8, snapshots=2)


def test_no_index_is_guessed_behind_an_op_that_does_not_repeat():
    rng = np.random.default_rng(0)

    @nt.custom_op(vjp={"x": lambda g, x: g * (x > 0)}, check=False, deterministic=False)
    def keep(x, /):
        return x * (rng.random(x.shape) > 0.2)

    x = nt.tensor(np.linspace(1.0, 2.0, 10), requires_grad=True)
    loss = nt.sqrt(keep(x)).sum()
    loss.backward()
    assert not np.isfinite(x.grad.numpy()).all()
    found = nt.explain_nan(loss)
    assert found.index is None
    assert "cannot be computed again: the op is declared with deterministic=False" in str(found)


@pytest.mark.filterwarnings("ignore:divide by zero")
@pytest.mark.parametrize("config", [None, *CONFIGS])
@pytest.mark.parametrize("is_in_region", [False, True])
def test_nans_are_found_where_numpys_memory_is_read_and_values_are_dropped(config, is_in_region):
    data = nt.from_numpy(np.array([[1.0, 2.0], [0.0, 4.0]]))

    def compute(w):
        return nt.log(nt.tanh(data * w) * 1.0) + 0.0

    def loss_of(w):
        with nullcontext() if config is None else nt.GradientTape(checkpoint=CONFIGS[config]):
            return (nt.checkpoint(compute, w) if is_in_region else compute(w)).sum()

    found = nt.explain_nan(loss_of(leaf(0.5, 0.2)))
    assert (found.op, found.index) == ("log", (1, 0))
    with (
        pytest.raises(NonFiniteError, match=r"The first value that is not finite is -inf at index \(1, 0\)"),
        nt.detect_anomaly(),
    ):
        loss_of(leaf(0.5, 0.2)).backward()


@pytest.mark.filterwarnings("ignore:invalid value", "ignore:divide by zero")
def test_a_nan_that_such_an_op_itself_gives_is_named():
    rng = np.random.default_rng(0)

    @nt.custom_op(vjp={"x": lambda g: g}, check=False, deterministic=False)
    def spoil(x, /):
        return np.where(rng.random(x.shape) > 0.5, x, np.nan)

    x = leaf(*np.linspace(1.0, 2.0, 10))
    y = spoil(nt.sin(x))
    first = int(np.flatnonzero(np.isnan(y.numpy()))[0])
    found = nt.explain_nan((y * 2.0).sum())
    assert (found.op, found.index) == ("spoil", (first,))


@pytest.mark.parametrize(
    "differentiate",
    [
        lambda tape, y, w: tape.jacobian(y, w, mode="forward"),
        lambda tape, y, w: tape.jacobian(y, w, mode="reverse"),
        lambda tape, y, w: tape.forward_gradient(w, y),
        lambda tape, y, w: tape.gradient(y, w),
    ],
)
@pytest.mark.parametrize("shared", [False, True])
def test_a_refilled_array_is_named_in_every_mode(differentiate, shared):
    buffer, w = np.ones(3), leaf(0.5)
    data = nt.from_numpy(buffer)[:] if shared else buffer
    with nt.Tape(persistent=True, checkpoint=CONFIGS["full"]) as tape:
        y = nt.tanh(nt.sin(w) * data)
    differentiate(tape, y, w)
    buffer[:] = [5.0, 6.0, 7.0]
    with pytest.raises(OverwrittenError, match="NumPy array given for 'b' was overwritten since"):
        differentiate(tape, y, w)


@pytest.mark.parametrize(
    "held",
    [
        lambda array: (array,),
        lambda array: [1.0, [array]],
        lambda array: {"table": array},
        lambda array: np.array([array, None], object)[:1],
    ],
)
def test_a_refilled_array_is_named_also_within_a_parameter(held):
    @nt.custom_op(vjp={"x": lambda g, tables: g * find(tables)}, check=False)
    def scaled_by(x, /, *, tables):
        return x * find(tables)

    def find(tables):
        while not isinstance(tables, np.ndarray) or tables.dtype == object:
            tables = tables["table"] if isinstance(tables, dict) else tables[-1]
        return tables

    array, w = np.ones(3), leaf(1.0, 2.0, 3.0)
    loss = nt.checkpoint(lambda: nt.sin(scaled_by(nt.sin(w), tables=held(array))).sum())
    loss.backward(retain_graph=True)
    array[:] = 5.0
    with pytest.raises(OverwrittenError, match="given for 'tables' was overwritten"):
        loss.backward()


def test_files_in_memory_are_read_like_arrays(tmp_path):
    np.save(tmp_path / "ones.npy", np.ones((5, 4)))
    data, w = np.load(tmp_path / "ones.npy", mmap_mode="r+"), leaf(1.0, 2.0, 3.0, 4.0)

    def loss():
        return nt.tanh(data @ nt.sin(w)).sum()

    loss().backward()
    plain = w.grad.tolist()
    for scope in (
        nt.GradientMemoryProfiler(),
        nt.profile(memory=True),
        *(nt.GradientTape(checkpoint=config) for config in CONFIGS.values()),
    ):
        w.zero_grad()
        with scope:
            found = loss()
            assert str(nt.live_tapes())
        found.backward()
        assert w.grad.tolist() == plain
    with nt.GradientTape(checkpoint=CONFIGS["full"]) as tape:
        found = loss()
    data[:] = 2.0
    with pytest.raises(OverwrittenError, match="given for 'a' was overwritten since"):
        tape.backward(found)


@pytest.mark.parametrize("kind", [lambda m: np.ma.masked_array(m, m > 2.5), lambda m: m.view(np.recarray)])
def test_parameters_of_other_classes_of_arrays_have_fingerprints(kind):
    @nt.custom_op(vjp={"x": lambda g, table: g * table_of(table)}, check=False)
    def scaled_by(x, /, *, table):
        return x * table_of(table)

    def table_of(table):
        return np.asarray(table).reshape(-1)[:3]

    array, w = np.arange(1.0, 40_001.0), leaf(1.0, 2.0, 3.0)
    loss = nt.checkpoint(lambda: nt.sin(scaled_by(nt.sin(w), table=kind(array))).sum())
    loss.backward(retain_graph=True)
    array[:] = 5.0
    with pytest.raises(OverwrittenError, match="given for 'table' was overwritten"):
        loss.backward()


def test_a_fingerprint_takes_no_memory_by_windows_that_overlap():
    series = np.random.default_rng(0).standard_normal(200_000)
    windows, w = np.lib.stride_tricks.sliding_window_view(series, 1000), leaf(*np.ones(1000))
    tracemalloc.start()
    loss = nt.checkpoint(lambda: nt.tanh(nt.matmul(windows[::1000], nt.sin(w))).sum())
    whole = nt.checkpoint(lambda: (nt.sin(w)[:1] * windows[:1, :1]).sum() * windows.shape[0])
    fingerprint(windows)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8e6  # All windows take 1.6 GB.
    (loss + whole).backward()
    series[0] += 1.0
    assert fingerprint(windows) == fingerprint(windows)


def test_the_first_element_that_is_taken_under_a_profile():
    code = "import numtape as nt; x = nt.tensor([1.0, 2.0], requires_grad=True)\nwith nt.profile(): x[0] * 2"
    subprocess.run([sys.executable, "-c", code], check=True)
