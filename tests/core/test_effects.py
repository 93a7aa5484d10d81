"""What functions change besides their results is as after one run, however often a transform runs them."""

import numpy as np

import numtape as nt

X = np.array([[1.0, 2.0], [3.0, 5.0], [0.0, 1.0]])


def statistics_after(use):
    layer = nt.nn.BatchNorm1d(2, dtype="float64")
    use(layer)
    return [layer.running_mean.tolist(), layer.running_var.tolist(), layer.num_batches_tracked.item()]


def once(layer):
    return layer(nt.tensor(X))


def test_a_function_that_jvp_runs_again_updates_statistics_once():
    assert statistics_after(lambda layer: nt.jvp(layer, X, X)) == statistics_after(once)


def test_a_function_that_hvp_runs_again_updates_statistics_once():
    expected = statistics_after(once)
    assert statistics_after(lambda layer: nt.hvp(lambda x: (layer(x) ** 2).sum(), X, X)) == expected


def test_a_function_that_derivatives_runs_again_updates_statistics_once():
    def use(layer):
        nt.derivatives(lambda s: (layer(nt.tensor(X) * s), s.item())[0], 1.0, 1)

    assert statistics_after(use) == statistics_after(once)


def test_a_function_that_derivatives_runs_again_draws_the_same_numbers():
    def dropped(s):
        s.item()
        return nt.dropout(s * np.ones(20), 0.5)

    nt.seed(1)
    expected = dropped(nt.tensor(1.0, dtype="float64"))
    nt.seed(1)
    assert nt.derivatives(dropped, 1.0, 1)[0].tolist() == expected.tolist()


def test_the_backward_of_a_checkpointed_loop_leaves_statistics_alone():
    layer = nt.nn.BatchNorm1d(2, dtype="float64")
    end = nt.checkpoint_loop(lambda state, i: layer(state) * 1.5, nt.tensor(X, requires_grad=True), 5, snapshots=2)
    before = [layer.running_mean.tolist(), layer.num_batches_tracked.item()]
    (end**2).sum().backward()
    assert [layer.running_mean.tolist(), layer.num_batches_tracked.item()] == before
    assert before[1] == 5


def test_a_function_that_jvp_runs_again_draws_once_from_a_generator():
    generator = nt.Generator(3)
    weight = nt.tensor(np.ones(20), requires_grad=True)
    value, _ = nt.jvp(lambda x: nt.dropout(x * weight, 0.5, rng=generator), np.ones(20), np.ones(20))
    assert value.tolist() == nt.dropout(nt.tensor(np.ones(20)), 0.5, rng=nt.Generator(3)).tolist()
    once = nt.Generator(3)
    nt.dropout(nt.tensor(np.ones(20)), 0.5, rng=once)
    assert generator.counter == once.counter


def test_a_check_of_gradients_leaves_a_generator_alone():
    generator = nt.Generator(3)
    nt.check_gradients(lambda x: x * nt.rand(2, rng=generator), np.ones(2))
    assert generator.counter == nt.Generator(3).counter


def test_samples_do_not_share_what_is_drawn_by_operation():
    def loss(weights, row):
        return (weights * row * nt.rand(40)).sum()

    with nt.deterministic(global_seed=0, operation_seeds=True):
        found = nt.uncertainty.per_sample_gradients(loss, np.ones(40), np.ones((2, 40)))
    assert found[0].tolist() != found[1].tolist()
