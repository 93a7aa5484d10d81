"""Forward mode passes tensors by that are tracked and do not move, though they were overwritten since."""

import numpy as np
import pytest

import numtape as nt

MODES = ("forward", "reverse", "mixed", "auto")
SQUARE = np.arange(9.0).reshape(3, 3)
WEIGHTS = np.random.default_rng(0).normal(size=(3, 3))


def written_over_a_weight(s):
    w = nt.tensor([1.0, 2.0], requires_grad=True, dtype="float64")
    u = w * 1.0
    u[0] = nt.sin(s)
    return (u * u).sum()


def test_a_number_is_written_into_what_depends_on_a_weight():
    slope, curvature = np.sin(1.0), 2.0 * np.cos(1.0)
    assert nt.jvp(written_over_a_weight, 0.5, 1.0)[1].item() == pytest.approx(slope, rel=1e-14)
    assert nt.hvp(written_over_a_weight, 0.5, 1.0).item() == pytest.approx(curvature, rel=1e-14)
    found = nt.derivatives(written_over_a_weight, 0.5, 2)
    assert [x.item() for x in found] == pytest.approx([4.0 + np.sin(0.5) ** 2, slope, curvature], rel=1e-14)


def filled(a, b):
    y = a * 1.0
    y[0] = b * 2
    return y


@pytest.mark.parametrize("mode", MODES)
def test_a_jacobian_in_chunks_by_the_written_and_what_is_written(mode):
    by_a, by_b = nt.jacobian(filled, argnums=(0, 1), mode=mode, chunk_size=1)(np.ones(3), np.array(2.0))
    assert by_a.tolist() == [[0.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
    assert by_b.tolist() == [2.0, 0.0, 0.0]


def test_a_gradient_of_a_forward_derivative_by_what_is_written_to():
    def moved(x, s):
        u = x * 1.0
        u[0] = nt.sin(s) * x[1]
        return u * u

    found = nt.grad(lambda x: nt.jvp(lambda s: moved(x, s), 1.5, 1.0)[1].sum())(np.array([1.0, 2.0]))
    np.testing.assert_allclose(found, [0.0, 4.0 * np.sin(3.0)], rtol=1e-14)


def mixed_up(x):
    for _ in range(2):
        y = x * 1.0
        y[0, 1] = x[1, 2] * x[2, 2]
        y[1:, 0] += x[0, 1:]
        x = y
    return x


@pytest.mark.parametrize("weights", [1.0, WEIGHTS], ids=["plain", "weighted"])
@pytest.mark.parametrize("mode", MODES)
def test_a_hessian_of_writes_from_the_tensor_itself(mode, weights):
    def total(x):
        return (mixed_up(x) * weights).sum()

    # Of second order at most: the difference of gradients is exact.
    gradient = nt.grad(total)
    steps = np.eye(9).reshape(9, 3, 3)
    expected = np.stack([gradient(SQUARE + step) - gradient(SQUARE - step) for step in steps]) / 2.0
    np.testing.assert_allclose(nt.hessian(total, mode=mode)(SQUARE).reshape(9, 3, 3), expected, rtol=1e-12, atol=1e-12)


JOINS = {
    "concatenate": lambda y, b: nt.concatenate([y, b]),
    "stack": lambda y, b: nt.stack([y, b]),
    "hstack": lambda y, b: nt.hstack([y, b]),
    "scatter_add": lambda y, b: nt.scatter_add(y, 0, np.array([0, 2]), b[:2]),
}


@pytest.mark.parametrize("name", JOINS)
def test_what_was_joined_may_be_overwritten(name):
    def run(is_written):
        tape = nt.GradientTape()
        a = tape.watch(nt.tensor([1.0, 1.0, 1.0]))
        b = tape.watch(nt.tensor([2.0, 3.0, 4.0]))
        y = a * 1.0
        z = JOINS[name](y, b)
        if is_written:
            y += 1.0
        return [tape.forward_gradient(source, z).tolist() for source in (a, b)]

    assert run(True) == run(False)
