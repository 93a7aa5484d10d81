"""Ctrl-C at any instruction of a step leaves parameters and states before or after it, never between."""

import random
import signal
import sys
import threading

import numpy as np
import pytest

import numtape as nt
from numtape import optim
from numtape.optim.interrupts import uninterrupted


class Interrupt:
    """Sends SIGINT at the n-th instruction that runs while it is active."""

    def __init__(self, at):
        self.left = at

    def __call__(self, frame, event, arg):
        frame.f_trace_opcodes = True
        if event == "opcode":
            self.left -= 1
            if self.left == 0:
                signal.raise_signal(signal.SIGINT)
        return self


def run(optimizer, at):
    """Take a step that is interrupted at an instruction; say whether the interrupt came, and how many were left."""
    interrupt = Interrupt(at)
    before = sys.gettrace()
    try:
        sys.settrace(interrupt)
        optimizer.step()
    except KeyboardInterrupt:
        return True, interrupt.left
    finally:
        sys.settrace(before)
    return False, interrupt.left


class Halves(optim.Optimizer):
    """A rule that is not an expression, so that it runs whole."""

    def init(self, param):
        return {"count": 0, "largest": nt.zeros_like(param)}

    def update(self, param, grad, state, lr):
        norm = grad.norm()
        largest = nt.maximum(state["largest"], nt.abs(grad))
        return param - lr * grad / norm, {"count": state["count"] + 1, "largest": largest}


def snapshot(optimizer, params):
    found = [param.numpy(copy=True) for param in params]
    for param in params:
        found += [np.array(x.numpy() if isinstance(x, nt.Tensor) else x) for x in optimizer.state[param].values()]
    return found


# Python (3.12 and 3.14 did) may run instructions of a generator that it closes; it only reports what is raised there.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("make", [optim.Adam, lambda params: Halves(params, lr=0.1)])
def test_a_thousand_interrupts_find_no_half_step(make):
    generator = random.Random(7)
    params = [nt.tensor(np.linspace(-1.0, 1.0, n), requires_grad=True) for n in (20_000, 5, 1)]
    optimizer = make(params)
    for param in params:
        param.grad = np.ones(param.shape)
    optimizer.step()
    run(optimizer, 10**9)  # Python 3.12 may see no instructions the first time.
    _, left = run(optimizer, 10**9)
    length = 10**9 - left
    interrupted = outcomes = 0
    for _ in range(700):
        before = snapshot(optimizer, params)
        was_interrupted, _ = run(optimizer, generator.randint(1, length))
        after = snapshot(optimizer, params)
        states = [optimizer.state[param] for param in params]
        counts = {state.get("step", state.get("count")) for state in states}
        assert len(counts) == 1
        changed = [not np.array_equal(a, b) for a, b in zip(before, after, strict=True)]
        moved = changed[: len(params)]
        assert all(moved) or not any(moved)
        assert any(moved) or not any(changed)
        interrupted += was_interrupted
        outcomes |= 1 << any(moved)
    assert interrupted > 600
    assert outcomes == 0b11


def test_the_signal_takes_effect_right_after_the_block():
    done = []
    with pytest.raises(KeyboardInterrupt):  # noqa: PT012
        with uninterrupted():
            signal.raise_signal(signal.SIGINT)
            done.append("the block ends")
        done.append("never")
    assert done == ["the block ends"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_handler_of_the_users_own_is_called():
    seen = []
    before = signal.signal(signal.SIGINT, lambda number, frame: seen.append(number))
    try:
        with uninterrupted(), uninterrupted():
            signal.raise_signal(signal.SIGINT)
            assert seen == []
        assert seen == [signal.SIGINT]
    finally:
        signal.signal(signal.SIGINT, before)


def test_other_threads_step_without_touching_signals():
    w = nt.tensor([1.0], requires_grad=True)
    optimizer = optim.SGD([w], lr=0.5)
    thread = threading.Thread(target=lambda: optimizer.step([np.ones(1)]))
    thread.start()
    thread.join()
    assert w.item() == 0.5
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_error_of_the_rule_changes_nothing():
    class Fails(Halves):
        def update(self, param, grad, state, lr):
            if param.size == 1:
                raise ZeroDivisionError
            return super().update(param, grad, state, lr)

    params = [nt.ones(3, requires_grad=True), nt.ones(1, requires_grad=True)]
    optimizer = Fails(params, lr=0.1)
    with pytest.raises(ZeroDivisionError):
        optimizer.step([np.ones(3), np.ones(1)])
    assert params[0].tolist() == [1.0, 1.0, 1.0]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
