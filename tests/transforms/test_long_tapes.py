"""Tapes with checkpointing that live long: rewound, entered again, with many backwards inside, or after an error."""

import numpy as np
import pytest

import numtape as nt
from numtape.insight.activations import Activations

CONFIGS = {
    "none": nt.CheckpointConfig("none"),
    "block": nt.CheckpointConfig("block", checkpoint_every_n=3),
    "selective": nt.CheckpointConfig("selective"),
    "full": nt.CheckpointConfig("full"),
    "budget": nt.CheckpointConfig(memory_budget_mb=0.1),
}


@pytest.fixture
def x():
    return nt.tensor(np.linspace(0.1, 1.0, 1000), requires_grad=True)


def chain(x, steps=20):
    h = x
    for _ in range(steps):
        h = nt.sin(h) * 1.1
    return h.mean()


@pytest.mark.parametrize("name", CONFIGS)
def test_what_is_rewound_is_held_no_more(name, x):
    with Activations() as held:
        with nt.GradientTape(checkpoint=CONFIGS[name]) as tape:
            base = nt.sin(x)
            for _ in range(50):
                mark = tape.mark()
                nt.sin(nt.cos(nt.exp(base))).sum()
                tape.rewind(mark)
            assert (len(tape), held.live) == (1, 8000)
            loss = (nt.exp(base) * base).sum()
        tape.backward(loss)
    value = np.sin(x.numpy())
    np.testing.assert_allclose(x.grad.numpy(), np.exp(value) * (1 + value) * np.cos(x.numpy()), rtol=1e-14)


@pytest.mark.parametrize("name", [None, *CONFIGS])
def test_a_backward_that_knows_no_tape_ends_a_segment(name, x):
    tape = nt.GradientTape(checkpoint=CONFIGS.get(name))
    for _ in range(3):
        with tape:
            loss = chain(x)
        loss.backward()
        assert len(tape) == 41


@pytest.mark.parametrize("name", ["block", "full", "budget"])
def test_what_backwards_inside_have_freed_is_forgotten(name, x):
    plain = nt.tensor(x.numpy(copy=True), requires_grad=True)
    tape = nt.GradientTape(checkpoint=CONFIGS[name])
    with tape:
        for _ in range(60):
            chain(x).backward()
    assert len(tape._dropping.stretches) < 100
    assert len(tape._dropping.seconds) < 60 * 41 / 2
    for _ in range(60):
        chain(plain).backward()
    np.testing.assert_array_equal(x.grad.numpy(), plain.grad.numpy())


def test_a_tape_begins_anew_after_a_budget_was_exceeded(x):
    tape = nt.GradientTape(checkpoint=nt.CheckpointConfig(memory_budget_mb=5 * 8000 / 2**20))

    def hold_all():
        with tape:
            held = [x]
            for _ in range(20):
                held.append(nt.sin(held[-1]))

    with pytest.raises(nt.errors.MemoryBudgetError):
        hold_all()
    with tape:
        loss = chain(x)
    loss.backward()
    assert x.grad is not None
