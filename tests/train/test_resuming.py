"""Runs that were stopped or killed at any batch go on bit for bit, with several batches to a step as well."""

import os
import signal
import subprocess
import sys

import numpy as np
import pytest

import numtape as nt
from numtape.errors import ArgumentError

PROGRAM = """
import os, signal, sys
import numpy as np
import numtape as nt

class Shuffled:
    # Batches in an order that is drawn anew from the thread's stream in each epoch; it has no state to save.
    def __iter__(self):
        x, y = nt.data.two_moons(70, rng=0)
        order = nt.permutation(70).numpy()
        for i in range(0, 70, 10):
            yield x[order[i : i + 10]], y[order[i : i + 10]]


def run(folder, resume=False, accumulate=3, stop=None, kill=None, loader=None, **settings):
    nt.seed(0)
    model = nt.nn.Sequential(nt.nn.Linear(2, 4), nt.nn.Dropout(0.5), nt.nn.Linear(4, 2))
    optimizer = nt.optim.Adam(model.parameters(), lr=0.1)
    if loader is None:
        loader = nt.data.DataLoader(nt.data.two_moons(70, rng=0), batch_size=10, shuffle=True, rng=0)
    calls = [0]

    def loss(prediction, target):
        calls[0] += 1
        if calls[0] == stop:
            os.kill(os.getpid(), signal.SIGINT)
        if calls[0] == kill:
            os.kill(os.getpid(), signal.SIGKILL)
        return nt.cross_entropy(prediction, target)

    history = nt.train.fit(
        model, loss, optimizer, loader, 2, validation=[nt.data.two_moons(20, rng=1)], accumulate=accumulate,
        folder=folder, resume=resume, progress=False, **settings
    )
    return [param.numpy(copy=True) for param in model.parameters()], history
"""
space = {}
exec(PROGRAM, space)
run = space["run"]


def check_equal(found, wanted):
    np.testing.assert_array_equal(found[1].step_losses, wanted[1].step_losses)
    for name in wanted[1]:
        np.testing.assert_array_equal(found[1][name], wanted[1][name])
    for a, b in zip(found[0], wanted[0], strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("accumulate", [1, 3])
def test_a_loader_without_a_state_begins_its_epoch_again(tmp_path, accumulate):
    whole = run(None, accumulate=accumulate, loader=space["Shuffled"]())
    for stop in (2, 5, 7, 9, 13):
        folder = tmp_path / str(stop)
        run(folder, accumulate=accumulate, stop=stop, loader=space["Shuffled"]())
        check_equal(run(folder, resume=True, accumulate=accumulate, loader=space["Shuffled"]()), whole)


@pytest.mark.parametrize("accumulate", [1, 2, 3, 7, 9])
def test_a_run_stopped_in_any_batch_goes_on_bit_for_bit(tmp_path, accumulate):
    whole = run(None, accumulate=accumulate)
    for stop in range(1, 16):
        folder = tmp_path / str(stop)
        run(folder, accumulate=accumulate, stop=stop)
        check_equal(run(folder, resume=True, accumulate=accumulate), whole)


def test_a_run_killed_while_it_validates_goes_on_bit_for_bit(tmp_path):
    whole = run(None, save_every=1)
    code = PROGRAM + f"run({str(tmp_path)!r}, kill=8, save_every=1)"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    killed = subprocess.run([sys.executable, "-c", code], env=environment, check=False)
    assert killed.returncode == -signal.SIGKILL
    check_equal(run(tmp_path, resume=True, save_every=1), whole)


def test_gradients_from_before_are_not_of_the_run():
    def trained(is_dirty):
        nt.seed(0)
        model = nt.nn.Linear(2, 2)
        if is_dirty:
            (model(nt.ones(3, 2)) ** 2).sum().backward()
        optimizer = nt.optim.SGD(model.parameters(), lr=0.1)
        nt.train.fit(model, nt.cross_entropy, optimizer, [nt.data.two_moons(20, rng=0)], progress=False)
        return model.weight.numpy()

    np.testing.assert_array_equal(trained(True), trained(False))


def test_an_optimizer_of_another_model_is_refused():
    model, other = nt.nn.Linear(2, 2), nt.nn.Linear(2, 2)
    optimizer = nt.optim.SGD(other.parameters(), lr=0.1)
    with pytest.raises(ArgumentError) as caught:
        nt.train.fit(model, nt.cross_entropy, optimizer, [nt.data.two_moons(20, rng=0)], progress=False)
    assert str(caught.value) == (
        "fit: none of the optimizer's 2 parameters is one of the model's 2, so that nothing would be trained; make the "
        "optimizer with model.parameters(), after any change of the model's dtype or layers."
    )


def test_two_numbers_of_one_name_are_refused():
    model = nt.nn.Linear(2, 2)
    optimizer = nt.optim.SGD(model.parameters(), lr=0.1)
    metrics = [nt.train.Accuracy(), nt.train.Accuracy()]
    data = [nt.data.two_moons(20, rng=0)]
    with pytest.raises(ArgumentError) as caught:
        nt.train.fit(model, nt.cross_entropy, optimizer, data, metrics=metrics, progress=False)
    assert str(caught.value) == (
        "fit: two numbers of the history would be called 'accuracy'; give each metric a name of its own, as in "
        'metric.name = "other".'
    )
    metrics[1].name = "other"
    history = nt.train.fit(model, nt.cross_entropy, optimizer, data, metrics=metrics, progress=False)
    assert list(history) == ["loss", "accuracy", "other"]


class Given:
    """A metric whose values are given."""

    name = "score"

    def __init__(self, values):
        self.values = list(values)

    def reset(self): ...

    def update(self, prediction, target): ...

    def compute(self):
        return self.values.pop(0)

    def state_dict(self):
        return {"values": self.values}

    def load_state_dict(self, state):
        self.values = state["values"]


def test_the_best_state_is_by_what_early_stopping_looks_at(tmp_path):
    model = nt.nn.Linear(2, 2)
    optimizer = nt.optim.SGD(model.parameters(), lr=0.1)
    nt.train.fit(
        model,
        nt.cross_entropy,
        optimizer,
        [nt.data.two_moons(20, rng=0)],
        epochs=5,
        metrics=[Given([0.1, 0.9, 0.3, 0.4, 0.5])],
        early_stopping=nt.train.EarlyStopping(9, monitor="score", maximize=True),
        folder=tmp_path,
        progress=False,
    )
    assert nt.Checkpoints(tmp_path, mode="max").load_best()["run"]["epoch"] == 2


def test_how_many_batches_make_a_step_changes_between_epochs_only(tmp_path):
    run(tmp_path, stop=4)
    with pytest.raises(ArgumentError) as caught:
        run(tmp_path, resume=True, accumulate=2)
    assert str(caught.value) == (
        "fit: the saved state stands amid an epoch with accumulate=3, and now it is 2; resume with the settings of the "
        "first run."
    )
    run(tmp_path, resume=True)
    assert not run(tmp_path, resume=True, accumulate=2)[1].is_interrupted


def test_how_large_batches_are_changes_between_epochs_only(tmp_path):
    run(tmp_path, stop=4)
    other = nt.data.DataLoader(nt.data.two_moons(70, rng=0), batch_size=7, shuffle=True, rng=0)
    with pytest.raises(ArgumentError, match="amid an epoch with batch_size=10 and this loader has batch_size=7"):
        run(tmp_path, resume=True, loader=other)
