"""Threads that sweep one checkpointed graph at once: each gets the gradients of a plain graph, bit for bit."""

import sys
import threading

import numpy as np
import pytest

import numtape as nt
from numtape.core import restoring

RNG = np.random.default_rng(0)
X = nt.tensor(RNG.standard_normal((8, 16)).astype("f4"))
W = [nt.tensor(RNG.standard_normal((16, 16)).astype("f4") / 5, requires_grad=True) for _ in range(12)]
THREADS = 4


def layer(h, i):
    h = nt.tanh(h @ W[i]) * nt.sigmoid(h)
    return nt.dropout(nt.where(h > 0, h * 1.1, nt.sin(h)), 0.1, rng=i)


def nested(h, i):
    return nt.checkpoint(lambda h: nt.checkpoint(layer, h, i) + nt.checkpoint(nt.sin, h), h)


def unnested(h, i):
    return layer(h, i) + nt.sin(h)


def recorded(call, config=None):
    """Return a tape and a loss on it."""
    with nt.GradientTape(persistent=True, checkpoint=config) as tape:
        h = X
        for i in range(len(W)):
            h = call(h, i)
        loss = (h * h).mean()
    return tape, loss


def gradients(tape, loss):
    return [gradient.numpy(copy=True) for gradient in tape.gradient(loss, W)]


@pytest.fixture
def switching():
    """Let threads take turns as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def in_threads(function):
    """Return what a function returned, or raised, in each of some threads that run it at once."""
    found = []
    barrier = threading.Barrier(THREADS)

    def work():
        barrier.wait()
        for _ in range(3):
            try:
                found.append(function())
            except Exception as error:
                found.append(error)

    threads = [threading.Thread(target=work, daemon=True) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
        assert not thread.is_alive()
    return found


def check(call, plain, config=None, rounds=6, is_left=True):
    """Run sweeps in threads, and compare."""
    expected = gradients(*recorded(plain))
    for _ in range(rounds):
        tape, loss = recorded(call, config)
        kept = [record.is_kept for record in nt.records(loss)]
        for found in in_threads(lambda tape=tape, loss=loss: gradients(tape, loss)):
            if isinstance(found, Exception):
                raise found
            np.testing.assert_array_equal(found, expected)
        if is_left:  # Nothing that was put back stays.
            assert [record.is_kept for record in nt.records(loss)] == kept


def checkpointed(h, i):
    return nt.checkpoint(layer, h, i)


@pytest.mark.usefixtures("switching")
@pytest.mark.parametrize(("call", "plain"), [(checkpointed, layer), (nested, unnested)])
def test_checkpoints(call, plain):
    check(call, plain)


@pytest.mark.usefixtures("switching")
@pytest.mark.parametrize("call", [layer, checkpointed])
@pytest.mark.parametrize("strategy", ["full", "selective", "block"])
def test_strategies(strategy, call):
    check(call, layer, nt.CheckpointConfig(strategy, checkpoint_every_n=6))


@pytest.mark.usefixtures("switching")
@pytest.mark.filterwarnings("ignore:memory_budget_mb")
def test_budgets():
    check(layer, layer, nt.CheckpointConfig(memory_budget_mb=0.02), rounds=2, is_left=False)


@pytest.mark.usefixtures("switching")
def test_forward_and_reverse_sweeps_at_once():
    tape, loss = recorded(checkpointed)
    directions = [nt.ones(16, 16) for _ in W]
    expected = gradients(tape, loss), tape.forward_gradient(W, loss, directions).item()
    found = in_threads(lambda: (gradients(tape, loss), tape.forward_gradient(W, loss, directions).item()))
    for reverse, forward in found:
        np.testing.assert_array_equal(reverse, expected[0])
        assert forward == expected[1]


class InHook(threading.local):
    """Whether a hook runs in this thread."""

    is_running = False


@pytest.mark.usefixtures("switching")
def test_hooks_that_sweep_the_graph_which_is_being_swept():
    expected = gradients(*recorded(layer))
    state, inside = InHook(), []

    def sweep(_):
        if not state.is_running:
            state.is_running = True
            inside.append(gradients(tape, loss))
            state.is_running = False

    with nt.GradientTape(persistent=True, checkpoint=nt.CheckpointConfig("full")) as tape:
        h = X
        for i in range(len(W)):
            h = nt.checkpoint(layer, h, i)
            if i in (4, 8):
                h.register_hook(sweep)
        loss = (h * h).mean()
    found = in_threads(lambda: gradients(tape, loss))
    assert len(inside) == 2 * len(found) == 2 * 3 * THREADS
    for each in (*found, *inside):
        np.testing.assert_array_equal(each, expected)


def test_an_interrupt_while_values_are_put_back_leaves_a_graph_that_can_be_swept(monkeypatch):
    expected = gradients(*recorded(layer))
    tape, loss = recorded(checkpointed, nt.CheckpointConfig("full"))
    kept = [record.is_kept for record in nt.records(loss)]
    put = restoring.Restorer._put
    for count in range(0, 60, 7):
        left = [count]

        def interrupted(*args, left=left):
            left[0] -= 1
            if left[0] == 0:
                raise KeyboardInterrupt
            put(*args)

        monkeypatch.setattr(restoring.Restorer, "_put", interrupted)
        try:
            gradients(tape, loss)
        except KeyboardInterrupt:
            assert [record.is_kept for record in nt.records(loss)] == kept
        monkeypatch.undo()
        np.testing.assert_array_equal(in_threads(lambda: gradients(tape, loss))[-1], expected)
