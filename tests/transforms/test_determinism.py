"""The same bits every time: across processes, hash seeds and thread counts; what cannot promise it; scopes."""

import copy
import dataclasses
import os
import pickle
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import numtape as nt
from numtape.core.context import current
from numtape.core.declare import registry
from numtape.core.op import Op
from numtape.errors import ArgumentError, DeterminismError, OperandError
from numtape.kernels import blas, providers

Config = nt.DeterministicConfig

PROGRAM = """
import hashlib, sys
import numpy as np
import numtape as nt
from numtape.kernels import blas, providers

def train(steps):
    nt.seed(0)
    model = nt.nn.Sequential(
        nt.nn.Conv2d(1, 6, 3, stride=2), nt.nn.BatchNorm2d(6), nt.nn.ReLU(), nt.nn.Flatten(),
        nt.nn.Linear(726, 64), nt.nn.Tanh(), nt.nn.Dropout(0.3), nt.nn.Linear(64, 10),
    )
    optimizer = nt.optim.AdamW(model.parameters(), lr=0.01)
    loader = nt.data.DataLoader(
        (np.random.default_rng(0).normal(size=(64, 1, 24, 24)).astype(np.float32), np.arange(64) % 10),
        batch_size=32, shuffle=True, rng=0,
    )
    found = hashlib.sha256()
    done = 0
    while done < steps:
        for x, y in loader:
            loss = nt.cross_entropy(model(x), y)
            loss.backward()
            nt.clip_grad_norm(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            found.update(loss.numpy().tobytes())
            done += 1
    for param in model.parameters():
        found.update(param.numpy(copy=True).tobytes())
    return found.hexdigest()

blas.library().set_threads(int(sys.argv[1]))
with nt.deterministic():
    print(train(100))
assert blas.threads() == int(sys.argv[1])
"""


def set_threads(count):
    blas.library().set_threads(count)


@pytest.fixture
def two_threads():
    """Let BLAS use two threads, whatever it used before."""
    before = blas.threads()
    set_threads(2)
    yield
    set_threads(before)


@nt.custom_op(vjp={"x": lambda g, x: g * 2.0 * x}, deterministic=False, check=False)
def racy(x, /):
    return np.square(x)


# The same bits.


def test_twenty_processes_of_any_hash_seed_and_thread_count_train_to_the_same_bits():
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    found = []
    for start in range(0, 20, 2):
        running = [
            subprocess.Popen(
                [sys.executable, "-c", PROGRAM, str((1, 2, 4, 8)[number % 4])],
                env={**environment, "PYTHONHASHSEED": str(number)},
                stdout=subprocess.PIPE,
                text=True,
            )
            for number in (start, start + 1)
        ]
        found += [(process.communicate()[0], process.returncode) for process in running]
    assert found == [found[0]] * 20
    assert found[0][1] == 0
    assert len(found[0][0]) == 65


def work():
    """Return the bits of products, convolutions, factorisations and their gradients.

    Outside of strict mode OpenBLAS gives other bits with two threads for some of them, those of length 784 among them.
    """
    rng = np.random.default_rng(0)
    tall, wide = rng.normal(size=(64, 784)).astype(np.float32), rng.normal(size=(784, 256)).astype(np.float32)
    a, b = (nt.tensor(rng.normal(size=(200, 200)), requires_grad=True) for _ in range(2))
    x = nt.tensor(rng.normal(size=(8, 3, 16, 16)).astype(np.float32), requires_grad=True)
    w = nt.tensor(rng.normal(size=(12, 3, 3, 3)).astype(np.float32), requires_grad=True)
    losses = [
        (a @ b).sum(),
        nt.einsum("ij,jk,kl->il", a, b, a).sum(),
        nt.solve(a, b).sum(),
        nt.inv(a @ a.T + 200.0 * nt.eye(200, dtype=nt.float64)).sum(),
        nt.conv2d(x, w).sum(),
        (nt.tensor(tall, requires_grad=True) @ wide).sum() + (nt.tensor(wide, requires_grad=True) @ wide[0]).sum(),
        (a @ b[0]).sum() + (a * b).sum() + nt.logsumexp(a) + nt.norm(b),
    ]
    bits = [loss.numpy().tobytes() for loss in losses]
    for loss in losses:
        loss.backward()
    return [*bits, *(p.grad.numpy().tobytes() for p in (a, b, x, w))]


def test_any_number_of_threads_gives_the_same_bits_in_strict_mode(two_threads):
    found = []
    for count in (1, 2, 4, 8):
        set_threads(count)
        with nt.deterministic():
            assert blas.threads() == 1
            found.append(work())
        assert blas.threads() == count
    assert found == [found[0]] * 4


def test_a_tape_is_strict_inside_its_block_and_in_its_derivatives(two_threads):
    class Spy(nt.nn.Module):
        def __init__(self):
            self.threads = []
            self.weight = nt.nn.Parameter(nt.ones(3, 3))

        def forward(self, x):
            out = x @ self.weight
            self.threads.append(blas.threads())
            out.register_hook(lambda g: self.threads.append(blas.threads()))
            return out

    spy = Spy()
    x = nt.ones(2, 3)
    tape = nt.Tape(persistent=True, deterministic=Config(global_seed=0))
    with tape:
        loss = spy(x).sum()
    assert blas.threads() == 2
    tape.gradient(loss, x)
    tape.backward(loss, retain_graph=True)
    list(tape.backward_steps(loss))
    assert spy.threads == [1, 1, 1, 1]
    assert blas.threads() == 2


def test_start_and_stop_recording_hold_and_release(two_threads):
    tape = nt.Tape(deterministic=Config(global_seed=0))
    tape.start_recording()
    tape.start_recording()
    assert blas.threads() == 1
    tape.stop_recording()
    tape.stop_recording()
    assert blas.threads() == 2


def test_every_op_of_the_library_promises_the_same_bits():
    assert [op.name for op in registry.values() if isinstance(op, Op) and not op.facts.deterministic] == []


def test_one_provider_runs_all_kernels_in_strict_mode():
    before = nt.kernels.provider()
    with nt.deterministic():
        assert nt.kernels.provider() == "numpy"
    assert nt.kernels.provider() == before


# What cannot promise it.


def test_an_op_that_cannot_promise_it_raises_in_strict_mode_and_names_the_line():
    with pytest.raises(DeterminismError) as caught, nt.deterministic():
        racy(nt.ones(2))
    line = racy_line("racy(nt.ones(2))")
    assert str(caught.value) == (
        f"deterministic: racy says that it cannot promise the same bits every time, at {__file__}:{line} "
        '(racy(nt.ones(2))); replace it, or allow it with mode="warn".'
    )
    assert racy(nt.ones(2)).tolist() == [1.0, 1.0]


def racy_line(source):
    with open(__file__) as file:
        return next(number for number, text in enumerate(file, 1) if text.strip() == source)


def test_it_warns_once_where_it_should_warn():
    @nt.deterministic("warn")
    def twice():
        return racy(racy(nt.full((2,), 2.0)))

    with pytest.warns(UserWarning, match="deterministic: racy says that it cannot promise the same bits") as caught:
        assert twice().tolist() == [16.0, 16.0]
    assert len(caught) == 1


def test_the_innermost_scope_decides(two_threads):
    with nt.deterministic():
        with nt.deterministic("off"):
            assert blas.threads() == 2
            racy(nt.ones(2))
            with nt.deterministic():
                assert blas.threads() == 1
                with pytest.raises(DeterminismError):
                    racy(nt.ones(2))
            assert blas.threads() == 2
        assert blas.threads() == 1
        with pytest.raises(DeterminismError):
            racy(nt.ones(2))
    assert blas.threads() == 2


def test_off_suspends_all_of_a_scope_around_it():
    wide = np.frombuffer(bytearray(4 * 50 + 1), np.float32, offset=1)  # Its numbers lie across words.
    seen = []

    @nt.custom_op(vjp={"x": lambda g: g}, check=False)
    def look(x, /):
        seen.append(x.flags.aligned)
        return x.copy()

    def draw():
        with nt.deterministic():
            with nt.deterministic("off"):
                assert nt.kernels.provider() == "auto"
                look(wide)
                nt.rand(2)  # Without a seed.
                with providers.pinned("numpy"):
                    assert nt.kernels.provider() == "numpy"
                with nt.deterministic("warn"):
                    assert nt.kernels.provider() == "numpy"
                    look(wide)
            assert nt.kernels.provider() == "numpy"
            with pytest.raises(DeterminismError):
                nt.rand(2)
            with providers.pinned("auto"), nt.deterministic("off"):
                assert nt.kernels.provider() == "auto"
        with providers.pinned("auto"), nt.deterministic(), nt.deterministic("off"):
            assert nt.kernels.provider() == "auto"
        assert nt.kernels.provider() == "auto"
        return True

    with ThreadPoolExecutor(1) as pool:  # A fresh thread, which has no seed.
        assert pool.submit(draw).result()
    assert seen == [False, True]


def test_off_is_the_default_and_changes_nothing(two_threads):
    with nt.deterministic("off"):
        assert blas.threads() == 2
        assert nt.rand(2).shape == (2,)
        assert racy(nt.ones(1)).tolist() == [1.0]


def without_seed():
    """Return what drawing without a seed in a fresh thread raises."""
    found = []

    def run():
        try:
            with nt.deterministic():
                nt.dropout(nt.ones(3))
        except DeterminismError as error:
            found.append(str(error))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return found[0]


def test_drawing_without_a_seed_raises_in_strict_mode():
    line = racy_line("nt.dropout(nt.ones(3))")
    assert without_seed() == (
        f"deterministic: random numbers are drawn without a seed, at {__file__}:{line} (nt.dropout(nt.ones(3))); call "
        "nt.seed(0) before, or give global_seed=0."
    )


def test_drawing_from_a_seeded_stream_or_with_a_seed_of_ones_own_is_fine():
    nt.seed(0)
    with nt.deterministic():
        first = nt.rand(3).tolist()
        assert nt.rand(3, rng=5).shape == (3,)
    nt.seed(0)
    assert nt.rand(3).tolist() == first


def test_a_seed_set_inside_lasts():
    with nt.deterministic(global_seed=1):
        nt.seed(7)
        inside = nt.rand(2).tolist()
    after = nt.rand(2).tolist()
    nt.seed(7)
    assert [nt.rand(2).tolist(), nt.rand(2).tolist()] == [inside, after]


def test_threads_that_are_set_inside_are_noticed(two_threads):
    with pytest.warns(UserWarning, match="BLAS was set") as caught, nt.deterministic():
        set_threads(2)
    assert [str(warning.message) for warning in caught] == [
        "deterministic: BLAS was set to 2 threads inside, so results may depend on that number; set it outside."
    ]
    assert blas.threads() == 2


def test_a_blas_whose_threads_cannot_be_set_raises_unless_the_environment_sets_one(monkeypatch):
    monkeypatch.setattr(blas, "library", lambda: None)
    for name in ("VECLIB_MAXIMUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(DeterminismError, match="NumPy's BLAS is no library whose threads can be set"):
        nt.deterministic().__enter__()
    assert current().scopes == ()
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    with nt.deterministic():
        assert blas.threads() is None


# Scopes.


def test_an_exception_midway_puts_everything_back(two_threads):
    generator = nt.seed(0)
    with pytest.raises(ZeroDivisionError), nt.deterministic(global_seed=1, operation_seeds=True):
        nt.rand(2 // 0)
    assert blas.threads() == 2
    assert current().thread.stream is generator
    assert generator.counter == 0


def test_two_threads_may_enter_and_leave_in_any_order(two_threads):
    scope = nt.deterministic()
    is_in, may_leave = threading.Event(), threading.Event()

    def other():
        with scope:
            is_in.set()
            may_leave.wait()

    thread = threading.Thread(target=other)
    with scope:
        thread.start()
        is_in.wait()
    assert blas.threads() == 1
    may_leave.set()
    thread.join()
    assert blas.threads() == 2


def test_it_decorates_functions(two_threads):
    @nt.deterministic(global_seed=4)
    def draw():
        """Draw."""
        return blas.threads(), nt.rand(2).tolist()

    assert draw.__doc__ == "Draw."
    first, second = draw(), draw()
    assert first[0] == second[0] == 1
    assert first[1] != second[1]  # The stream goes on.
    with nt.deterministic(global_seed=4):
        assert [nt.rand(2).tolist(), nt.rand(2).tolist()] == [first[1], second[1]]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (
            lambda: nt.deterministic(7),
            "deterministic: wants a mode or a DeterministicConfig, not int; write `with nt.deterministic():`, "
            "`@nt.deterministic()` or `nt.deterministic(global_seed=0)`.",
        ),
        (
            lambda: nt.deterministic(Config(), global_seed=1),
            "deterministic: a DeterministicConfig has all settings; give the seed there.",
        ),
        (
            lambda: nt.deterministic()(3),
            "deterministic: decorates functions, not int; for a block, write `with nt.deterministic():`.",
        ),
        (lambda: nt.Tape(deterministic=True), "Tape: deterministic must be an nt.DeterministicConfig, not bool."),
    ],
)
def test_misuse_says_what_to_write(wrong, message):
    with pytest.raises(OperandError) as caught:
        wrong()
    assert str(caught.value) == message


def test_generators_and_coroutines_are_refused():
    def steps():
        yield 1

    async def step():
        return 1

    for function in (steps, step):
        with pytest.raises(OperandError, match="is a generator or a coroutine, which runs in pieces; use `with"):
            nt.deterministic()(function)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"mode": "sloppy"}, "DeterministicConfig: mode is 'sloppy'; it must be one of 'strict', 'warn', 'off'."),
        ({"global_seed": 1.5}, "DeterministicConfig: global_seed is 1.5; seeds are integers."),
        ({"global_seed": True}, "DeterministicConfig: global_seed is True; seeds are integers."),
        ({"global_seed": 2**300}, "DeterministicConfig: the seed has 301 bits; seeds have 255 at most."),
        ({"cudnn_deterministic": 1}, "DeterministicConfig: cudnn_deterministic is 1; it must be a bool."),
        (
            {"operation_seeds": True},
            "DeterministicConfig: operation_seeds is True and there is no global_seed; give one, for the seeds of "
            "operations follow from it.",
        ),
    ],
)
def test_a_configuration_is_checked_when_it_is_made(settings, message):
    with pytest.raises(ArgumentError) as caught:
        Config(**settings)
    assert str(caught.value) == message


def test_a_configuration_is_strict_by_default_and_can_be_copied_and_pickled():
    config = Config(global_seed=1)
    assert config.mode is nt.DeterministicMode.STRICT
    with nt.deterministic(config):
        nt.rand(2)
    assert pickle.loads(pickle.dumps(config)).state_dict() == copy.deepcopy(config).state_dict() == config.state_dict()
    assert dataclasses.replace(config, cudnn_deterministic=True).state_dict() == Config(global_seed=1).state_dict()
    assert config == Config(global_seed=1)
    with pytest.raises(ArgumentError, match="wants a dict with 'counter' and 'counts', as state_dict"):
        config.load_state_dict({"key": 1})


def test_a_tape_never_entered_warns_once():
    tape = nt.GradientTape.with_deterministic_config(Config(global_seed=0))
    x = tape.watch(nt.tensor(3.0))
    with pytest.warns(UserWarning, match="this tape was given a configuration but never entered"):
        assert tape.gradient(x * x, x).item() == 6.0


def test_a_number_of_threads_that_is_set_in_strict_mode_holds_after_it():
    a = np.random.default_rng(0).normal(size=(517, 1030)).astype(np.float32)
    before = nt.get_num_threads()
    found = set()
    try:
        for count in (1, 2, 4, 8):
            with nt.deterministic(global_seed=0):
                nt.set_num_threads(count)
                assert nt.get_num_threads() == 1
                found.add((nt.tensor(a) @ nt.tensor(a[0].copy())).numpy().tobytes())
            assert nt.get_num_threads() == count
    finally:
        nt.set_num_threads(before)
    assert len(found) == 1


def test_bits_do_not_depend_on_where_an_array_begins():
    numbers = np.random.default_rng(0).normal(size=(65, 33)).astype(np.float32)

    def run(offset):
        memory = bytearray(b"\0" * offset + numbers.tobytes())
        x = nt.from_numpy(np.frombuffer(memory, np.float32, offset=offset).reshape(numbers.shape))
        y = nt.tensor(numbers[:, :21].T.copy() @ numbers, requires_grad=True)
        with nt.deterministic():
            first = x.T @ nt.tensor(numbers)
            nt.sin(x @ y.T).sum().backward()
        return first.numpy().tobytes(), y.grad.numpy().tobytes()

    assert len({run(offset) for offset in range(5)}) == 1
