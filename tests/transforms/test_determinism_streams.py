"""The same draws every time: random streams of layers, threads and tasks; saved states and resumed runs."""

import asyncio
import shutil
import threading
import warnings

import numpy as np
import pytest

import numtape as nt
from numtape.core.context import current
from numtape.errors import ArgumentError
from numtape.serialization import reading

Config = nt.DeterministicConfig


# Resuming.

#: What runs are resumed with: None, and configurations of mixed precision.
AMP = [None]
STEPS = 50


class Plain:
    """A plain training loop with dropout, batch statistics, momentum and a shuffled loader."""

    def __init__(self, amp, operation_seeds):
        self.config = Config(global_seed=3, operation_seeds=operation_seeds)
        self.amp = {} if amp is None else {"amp": amp}
        with nt.deterministic(self.config):
            self.model = nt.nn.Sequential(
                nt.nn.Linear(2, 8), nt.nn.BatchNorm1d(8), nt.nn.Dropout(0.5), nt.nn.Linear(8, 2)
            )
            self.optimizer = nt.optim.Adam(self.model.parameters(), lr=0.05)
            self.loader = nt.data.DataLoader(nt.data.two_moons(80, rng=0), batch_size=16, shuffle=True)

    def run(self, steps, folder=None):
        losses = []
        while steps:
            for x, y in self.loader:
                with nt.GradientTape(deterministic=self.config, **self.amp) as tape:
                    loss = nt.cross_entropy(self.model(x), y)
                tape.backward(loss)
                self.optimizer.step()
                self.optimizer.zero_grad()
                losses.append(loss.item())
                steps -= 1
                if folder is not None:
                    nt.save(folder / f"{len(losses)}.safetensors", self.parts())
                if not steps:
                    break
        return losses

    def parts(self):
        return {name: getattr(self, name) for name in ("config", "model", "optimizer", "loader")}

    def load(self, path):
        state = nt.load(path)
        for name, part in self.parts().items():
            part.load_state_dict(state[name])

    def bits(self):
        return [value.numpy(copy=True).tobytes() for value in self.model.state_dict().values()]


@pytest.mark.parametrize("operation_seeds", [False, True])
@pytest.mark.parametrize("amp", AMP)
def test_a_plain_loop_resumed_at_any_step_gives_the_same_bits(tmp_path, amp, operation_seeds):
    whole = Plain(amp, operation_seeds)
    losses = whole.run(STEPS, tmp_path)
    for step in range(1, STEPS):
        resumed = Plain(amp, operation_seeds)
        resumed.load(tmp_path / f"{step}.safetensors")
        assert resumed.run(STEPS - step) == losses[step:]
        assert resumed.bits() == whole.bits()


def fitted(folder, resume, operation_seeds):
    with nt.deterministic(global_seed=3, operation_seeds=operation_seeds):
        model = nt.nn.Sequential(nt.nn.Linear(2, 8), nt.nn.BatchNorm1d(8), nt.nn.Dropout(0.5), nt.nn.Linear(8, 2))
        optimizer = nt.optim.Adam(model.parameters(), lr=0.05)
        loader = nt.data.DataLoader(nt.data.two_moons(80, rng=0), batch_size=16, shuffle=True)
        settings = {"folder": folder, "resume": resume, "progress": False}
        if not resume:
            settings |= {"save_every": 1, "keep": 100}
        history = nt.train.fit(model, nt.cross_entropy, optimizer, loader, 10, **settings)
    return history.step_losses, [value.numpy(copy=True).tobytes() for value in model.state_dict().values()]


def test_a_fit_resumed_at_any_step_gives_the_same_bits(tmp_path):
    whole = fitted(tmp_path / "whole", False, True)
    assert len(whole[0]) == STEPS
    for step in range(1, STEPS):
        # From the first states on, each with the steps after it.
        folder = tmp_path / str(step)
        folder.mkdir()
        (saved,) = (tmp_path / "whole").glob(f"step-{step:08}*")
        shutil.copy(saved, folder)
        found = fitted(folder, True, True)
        assert found[1] == whole[1]
        assert list(found[0]) == list(whole[0])
        shutil.rmtree(folder)


def test_a_run_is_not_resumed_with_other_seeds(tmp_path):
    fitted(tmp_path, False, True)
    with pytest.raises(ArgumentError) as caught:
        fitted(tmp_path, True, False)
    assert str(caught.value) == (
        "DeterministicConfig: the saved random stream has another seed, or other operation_seeds; go on with the "
        "settings of the first run."
    )


# Random streams.


class Net(nt.nn.Module):
    def __init__(self, has_more=False):
        self.first = nt.nn.Dropout(0.5)
        if has_more:
            self.more = nt.nn.Dropout(0.5)
        self.block = nt.nn.Sequential(nt.nn.Dropout(0.5), nt.nn.Identity())

    def forward(self, x):
        first = self.first(x)
        if hasattr(self, "more"):
            self.more(x)
        return first, self.block(x)


def draws(config, net, times=2):
    with nt.deterministic(config):
        return [[part.tolist() for part in net(nt.ones(8))] for _ in range(times)]


def test_another_layer_does_not_shift_the_draws_of_the_others():
    one, other = Config(global_seed=0, operation_seeds=True), Config(global_seed=0, operation_seeds=True)
    assert draws(one, Net()) == draws(other, Net(has_more=True))
    assert one.state_dict()["counts"] == {"Net.first:dropout": 2, "Net.block.0:dropout": 2}
    assert other.state_dict()["counts"] == {
        "Net.first:dropout": 2,
        "Net.more:dropout": 2,
        "Net.block.0:dropout": 2,
    }
    # Without seeds by operation they do shift.
    assert draws(Config(global_seed=0), Net()) != draws(Config(global_seed=0), Net(has_more=True))


def test_draws_by_operation_differ_from_place_to_place_and_time_to_time_and_by_seed():
    found = [x for seed in (0, 1) for pair in draws(Config("off", seed, True), Net(), 3) for x in pair]
    assert len({str(x) for x in found}) == len(found) == 12


def drawn_in(module, call):
    """Return the places that numbers were drawn at in a call of something of a module."""
    config = Config(global_seed=0, operation_seeds=True)
    with nt.deterministic(config):
        call(module, nt.ones(8))
    return set(config.state_dict()["counts"])


class Dropping(nt.nn.Module):
    """A module whose methods call their module as they like."""

    def __init__(this):
        this.first = nt.nn.Dropout(0.5)

    def encode(this, x):
        return this.first(x)

    @nt.autocast()
    def decode(me, x):
        return me.encode(x)


class Further(Dropping):
    def encode(module, x):
        return super().encode(x)


def test_methods_may_call_their_module_as_they_like():
    assert drawn_in(Dropping(), lambda module, x: module.encode(x)) == {"Dropping.first:dropout"}
    assert drawn_in(Dropping(), lambda module, x: module.decode(x)) == {"Dropping.first:dropout"}
    assert drawn_in(Further(), lambda module, x: module.decode(x)) == {"Further.first:dropout"}

    def added(net, x):
        return net.first(x)

    Further.added = added
    assert drawn_in(Further(), lambda module, x: module.added(x)) == {"Further.first:dropout"}


def test_functions_on_a_module_are_no_methods_of_it():
    def function(module, x):
        return module.first(x)

    assert drawn_in(Dropping(), function) == {"Dropout:dropout"}


def test_weights_are_drawn_by_the_classes_that_make_them():
    config = Config(global_seed=0, operation_seeds=True)
    with nt.deterministic(config):
        weight = nt.nn.Linear(2, 3).weight.tolist()
        nt.randn(2)
    with nt.deterministic(Config(global_seed=0, operation_seeds=True)):
        nt.randn(5)
        nt.nn.Conv1d(1, 1, 1)
        assert nt.nn.Linear(2, 3).weight.tolist() == weight
    assert config.state_dict()["counts"] == {"Linear:uniform": 2, ":normal": 1}


def test_the_numbers_of_a_seed_are_pinned():
    with nt.deterministic(global_seed=42):
        assert nt.rand(2, dtype=nt.float64).tolist() == nt.rand(2, rng=42, dtype=nt.float64).tolist()
    with nt.deterministic(global_seed=42, operation_seeds=True):
        assert (nt.rand(3, dtype=nt.float64) * 1e6).floor().tolist() == [187978.0, 884783.0, 493143.0]


def test_the_stream_goes_on_over_tapes_given_the_same_configuration():
    config = Config(global_seed=0)
    x = nt.ones(20)

    def drop(config):
        with nt.GradientTape(deterministic=config):
            return nt.dropout(x).tolist()

    first, second = drop(config), drop(config)
    assert first != second
    again = Config(global_seed=0)
    assert [drop(again), drop(again)] == [first, second]


def test_threads_that_share_a_configuration_never_draw_the_same_numbers():
    for operation_seeds in (False, True):
        config = Config(global_seed=0, operation_seeds=operation_seeds)
        found = []

        def draw(config=config, found=found):
            with nt.deterministic(config):
                found.extend(nt.rand(1, dtype=nt.float64).item() for _ in range(200))

        threads = [threading.Thread(target=draw) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(set(found)) == 800


class Looped(nt.nn.Module):
    """Runs a loop whose steps run again in the backward, in a module around the one that draws."""

    def __init__(self, is_checkpointed):
        self.is_checkpointed = is_checkpointed
        self.drop = nt.nn.Dropout(0.5)

    def forward(self, x, weight):
        def step(state):
            return self.drop(nt.tanh(state * weight))

        if self.is_checkpointed:
            return nt.checkpoint_loop(step, x, 6, snapshots=2, verify=True)
        for _ in range(6):
            x = step(x)
        return x


@pytest.mark.parametrize("operation_seeds", [False, True])
def test_loops_that_run_again_draw_what_they_drew(operation_seeds):
    found = []
    for is_checkpointed in (False, True):
        weight = nt.full((12,), 2.0, requires_grad=True)
        with nt.deterministic(global_seed=5, operation_seeds=operation_seeds):
            loss = Looped(is_checkpointed)(nt.ones(12), weight).sum()
        loss.backward()  # Outside of the scope, and of the module.
        found.append((loss.item(), weight.grad.tolist()))
    assert found[0] == found[1]


@pytest.mark.parametrize("operation_seeds", [False, True])
def test_functions_with_derivatives_of_their_own_draw_what_they_drew(operation_seeds):
    @nt.custom_gradient
    def noisy(x):
        mask = nt.dropout(nt.ones_like(x))
        return x * mask, lambda g: g * mask

    x = nt.ones(16, requires_grad=True)
    with nt.deterministic(global_seed=5, operation_seeds=operation_seeds):
        out = noisy(x)
        after = nt.rand(2).tolist()
    out.sum().backward()
    assert x.grad.tolist() == out.tolist()
    with nt.deterministic(global_seed=5, operation_seeds=operation_seeds):
        assert noisy(nt.ones(16)).tolist() == out.tolist()
        assert nt.rand(2).tolist() == after


# Saved states.


def test_a_state_of_another_class_of_machine_warns_in_strict_mode_only(tmp_path, monkeypatch):
    path = tmp_path / "state.safetensors"
    nt.save(path, {"x": nt.ones(2)})
    with nt.deterministic():
        assert nt.load(path)["x"].tolist() == [1.0, 1.0]
    elsewhere = {**reading.machine(), "cpu": "aarch64 NEON"}
    here = reading.machine()["cpu"]
    monkeypatch.setattr(reading, "machine", lambda: elsewhere)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        nt.load(path)
        with nt.deterministic("warn"):
            nt.load(path)
        with nt.deterministic(), nt.deterministic("off"):
            nt.load(path)
    with pytest.warns(UserWarning, match="load: the file") as caught, nt.deterministic():
        nt.load(path)
    assert [str(warning.message) for warning in caught] == [
        f"load: the file was written on another class of machine (cpu {here} there and aarch64 NEON here), so a run "
        "that goes on here may give other bits than there."
    ]
    assert caught[0].filename == __file__


# Tasks.


@pytest.mark.parametrize("is_shared", [False, True])
def test_tasks_that_leave_in_the_order_they_came_put_the_stream_back(is_shared):
    scopes = [nt.deterministic(global_seed=0)] * 2 if is_shared else [nt.deterministic(global_seed=i) for i in range(2)]

    async def inside(scope, entered, leaving):
        with scope:
            entered.set()
            await leaving.wait()
        assert scope not in current().scopes

    async def both():
        events = [asyncio.Event() for _ in range(4)]
        async with asyncio.timeout(10):
            tasks = [asyncio.create_task(inside(scopes[i], *events[2 * i : 2 * i + 2])) for i in range(2)]
            await events[0].wait()
            await events[2].wait()
            events[1].set()
            await tasks[0]
            events[3].set()
            await tasks[1]

    before = current().thread.stream
    asyncio.run(both())
    assert current().thread.stream is before


# Methods, and states that are loaded.


def test_layers_called_by_any_method_have_paths_of_their_own():
    class Net(nt.nn.Module):
        def __init__(self, has_more):
            self.first = nt.nn.Dropout(0.5)
            self.more = nt.nn.Dropout(0.5) if has_more else nt.nn.Identity()
            self.last = nt.nn.Dropout(0.5)

        def encode(self, x):
            self.first(x), self.more(x)
            return self._finish(x)

        def _finish(self, x):
            return self.last(x)

    found = []
    for has_more in (False, True):
        config = Config(global_seed=0, operation_seeds=True)
        with nt.deterministic(config):
            found.append(Net(has_more).encode(nt.ones(32)).tolist())
    assert found[0] == found[1]
    assert set(config.state_dict()["counts"]) == {f"Net.{name}:dropout" for name in ("first", "more", "last")}


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ({"counter": -1, "counts": {}}, "counter is -1; it must be an integer that is not negative."),
        ({"counter": True, "counts": {}}, "counter is True; it must be an integer that is not negative."),
        ({"counter": 0.5, "counts": {}}, "counter is 0.5; it must be an integer that is not negative."),
        ({"counter": 1, "counts": {"a": -2}}, "counts['a'] is -2; it must be an integer that is not negative."),
        ({"counter": 1, "counts": {"a": "b"}}, "counts['a'] is 'b'; it must be an integer that is not negative."),
    ],
)
def test_a_state_that_cannot_be_is_refused_and_changes_nothing(state, message):
    config = Config(global_seed=0)
    with pytest.raises(nt.errors.ArgumentError) as error:
        config.load_state_dict(state)
    assert str(error.value) == f"DeterministicConfig.load_state_dict: {message}"
    assert (config.draws.counter, config.draws.counts) == (0, {})


def test_a_state_may_hold_numpys_integers():
    config = Config(global_seed=0)
    config.load_state_dict({"counter": np.int64(3), "counts": {"a": np.int32(2)}})
    assert (config.draws.counter, config.draws.counts) == (3, {"a": 2})
    assert type(config.draws.counter) is int


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (Config(global_seed=1, operation_seeds=True), "global_seed=0, and this configuration has 1"),
        (Config(global_seed=0), "operation_seeds=True, and this configuration has False"),
        (Config(), "global_seed=0, and this configuration has None"),
    ],
)
def test_a_state_of_another_stream_is_refused(other, message):
    config = Config(global_seed=0, operation_seeds=True)
    with nt.deterministic(config):
        nt.nn.Dropout(0.5)(nt.ones(4))
    with pytest.raises(nt.errors.ArgumentError) as error:
        other.load_state_dict(config.state_dict())
    assert message in str(error.value)
    assert (other.draws.counter, other.draws.counts) == (0, {})
    same = Config(global_seed=0, operation_seeds=True)
    same.load_state_dict(config.state_dict())
    assert same.state_dict() == config.state_dict()
