"""What functions change besides their results is as after one run, however often a transform runs them."""

import tracemalloc

import numpy as np
import pytest

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


def half_mask():
    """A constant that is made by writing in place."""
    mask = nt.ones(3, dtype="float64")
    mask[1] = 0.25
    return mask


POINT = np.array([1.0, 2.0, 3.0])
HALF = half_mask().numpy()
SECOND_ORDERS = {
    "hessian": nt.hessian,
    "forward over reverse": lambda f: lambda x: nt.jacobian(nt.grad(f), mode="forward")(x),
    "reverse over forward": lambda f: nt.jacobian(lambda x: nt.jvp(f, x, np.ones(3))[1]),
}


@pytest.mark.parametrize("transform", SECOND_ORDERS.values(), ids=SECOND_ORDERS)
@pytest.mark.parametrize(
    "program",
    [
        lambda x, mask: nt.checkpoint_loop(lambda s: s * mask() * 0.9 + 0.1 * s * s, x, 5, snapshots=2).sum(),
        lambda x, mask: (
            nt.implicit.odeint(lambda t, y: -(y**2) * mask(), x, [0.0, 0.5], gradient="adjoint") ** 2
        ).sum(),
        lambda x, mask: (
            nt.implicit.odeint(lambda t, y: -(y**2) * mask(), x, [0.0, 0.5], gradient="checkpointed") ** 2
        ).sum(),
    ],
    ids=["loop", "adjoint", "checkpointed"],
)
def test_what_a_function_makes_and_writes_to_is_its_own_when_it_runs_again(program, transform):
    found = transform(lambda x: program(x, half_mask))(POINT)
    np.testing.assert_allclose(found, transform(lambda x: program(x, lambda: HALF))(POINT), rtol=1e-9)


def test_a_pull_function_reads_what_its_function_has_written_to():
    @nt.custom_gradient
    def masked(x):
        mask = half_mask()
        return x * mask, lambda g: g * mask

    @nt.custom_gradient
    def softplus(x):
        e = nt.exp(x)
        e += 1.0
        return nt.log(e), lambda g: g * (e - 1.0) / e

    for function, derivative in ((masked, HALF), (softplus, 1 / (1 + np.exp(-POINT)))):
        np.testing.assert_allclose(nt.grad(lambda x, f=function: f(x).sum())(POINT), derivative, rtol=1e-14)
        np.testing.assert_allclose(nt.jvp(function, POINT, np.ones(3))[1], derivative, rtol=1e-14)
        for mode in ("reverse", "forward"):
            np.testing.assert_allclose(nt.jacobian(function, mode=mode)(POINT), np.diag(derivative), rtol=1e-14)


def test_a_custom_gradient_may_return_what_it_has_written_to():
    @nt.custom_gradient
    def shifted(x):
        y = nt.sin(x)
        y += x
        return y, lambda g: g * (nt.cos(x) + 1.0)

    np.testing.assert_allclose(nt.grad(lambda x: shifted(x).sum())(POINT), np.cos(POINT) + 1.0, rtol=1e-14)


def test_a_counter_of_a_custom_gradient_counts_calls_and_not_runs():
    calls = nt.zeros((), dtype="float64")

    @nt.custom_gradient
    def counted(x):
        calls.add_(1.0)
        return x * 2.0, lambda g: g * 2.0

    for _ in range(3):
        nt.grad(lambda x: counted(x).sum())(POINT)
    assert calls.item() == 3.0


@pytest.mark.parametrize(
    "write",
    [
        lambda buffer, x: (buffer.add_(1.0), buffer[:1].add_(1.0)),
        lambda buffer, x: (buffer[:1].add_(1.0), buffer.add_(1.0), buffer[1:].mul_(2.0)),
        lambda buffer, x: buffer.add_(x),
        lambda buffer, x: buffer.__setitem__(0, buffer[0] * 1.0 + x[0]),
    ],
    ids=["view last", "view first", "recorded", "recorded in part"],
)
def test_a_function_that_jvp_runs_again_writes_once(write):
    weight = nt.tensor(2.0, dtype="float64", requires_grad=True)

    def run(primal, tangent):
        buffer = nt.zeros(3, dtype="float64")

        def function(x):
            write(buffer, x)
            return (x * weight * buffer.sum()).sum()

        value, derivative = nt.jvp(function, primal, tangent)
        return value.item(), derivative.item(), buffer.tolist()

    once = run(nt.tensor(POINT), nt.tensor(np.ones(3)))  # Of tensors, nothing is streamed, and nothing runs again.
    assert run(POINT, np.ones(3)) == once


def test_a_check_of_gradients_leaves_buffers_alone():
    buffer = nt.zeros(3, dtype="float64")

    def function(x):
        buffer.add_(1.0)
        buffer[:1].add_(1.0)
        return x * 2.0

    nt.check_gradients(function, POINT)
    assert buffer.tolist() == [0.0, 0.0, 0.0]


def test_forward_mode_holds_nothing_of_what_was_written_to_and_is_gone():
    def peak(steps):
        def function(x):
            for k in range(steps):
                constant = nt.zeros(1000, dtype="float64")
                constant += 0.5 * k
                x = nt.sin(x + constant)
            return x

        tracemalloc.start()
        nt.jvp(function, np.zeros(1000), np.ones(1000))
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return most

    assert peak(1000) < 1.2 * peak(200)
