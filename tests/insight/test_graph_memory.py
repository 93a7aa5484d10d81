"""The bytes over time that a picture predicts from its records, against those that were held."""

import pytest

import numtape as nt
from numtape import nn
from numtape.insight.memory import Activations

CONFIGS = {
    "nothing": None,
    "full": nt.CheckpointConfig("full"),
    "block": nt.CheckpointConfig("block", checkpoint_every_n=8),
    "selective": nt.CheckpointConfig("selective"),
    "budget": nt.CheckpointConfig("auto", memory_budget_mb=0.2),
}


RNG = nt.Generator(0)
MODEL = nn.Sequential(*(layer for _ in range(16) for layer in (nn.Linear(32, 32, rng=RNG), nn.GELU())))
BATCH = nt.randn(128, 32, rng=RNG)


def loss_of(tape):
    with tape:
        return (MODEL(BATCH) ** 2).mean()


@pytest.mark.parametrize("name", CONFIGS)
def test_the_predicted_peak_is_the_one_of_the_backward(name):
    tape = nt.GradientTape(checkpoint=CONFIGS[name])
    memory = nt.from_json(nt.to_json(loss_of(tape))).memory
    assert not memory.is_measured
    predicted = max(*memory.forward, *memory.backward)
    tape = nt.GradientTape(checkpoint=CONFIGS[name])
    with Activations() as held:
        tape.backward(loss_of(tape))
    assert predicted == pytest.approx(held.peak, rel=0.01)


def test_the_states_of_a_loop_are_held_until_the_sweep_has_passed_it():
    w, x = nt.ones(100, 100, requires_grad=True), nt.ones(100, 100)
    loss = nt.checkpoint_loop(lambda s: nt.tanh(s * w), x, 100, snapshots=10).sum()
    states = 9 * 40_000  # The first one is x.
    memory = nt.from_json(nt.to_json(loss, values=False)).memory
    assert memory.forward[-1] == states
    assert max(memory.backward) >= states
    assert str(nt.summary(loss)).endswith(f"{states:,} bytes kept for derivatives")
