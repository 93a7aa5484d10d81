"""Right sides run again for gradients: what they read must not have changed, and what they write counts once."""

import numpy as np
import pytest

import numtape as nt
from numtape.errors import GradientError

implicit = nt.implicit


def total(right_side, start, gradient, at):
    """Return a gradient by p of solutions of equations that differ by a number, which changes under them."""
    p, k = nt.tensor(at, dtype="float64", requires_grad=True), np.zeros(1)
    found = []
    for k[0] in (1.0, 2.0, 3.0):
        found.append(implicit.odeint(lambda t, y: right_side(y, k[0], p), start, [0.0, 0.5, 1.0], gradient=gradient))
    sum(each[-1] for each in found).backward()
    return p.grad.item()


RIGHT_SIDES = {
    "a rate": (lambda y, k, p: -k * p * y, 1.0, 0.5),
    "small units": (lambda y, k, p: -y + k * p * 1e-9, 0.0, 1.0),
    "equal values": (lambda y, k, p: -y + k * p, 0.0, 0.0),
}


@pytest.mark.parametrize("gradient", ["checkpointed", "adjoint"])
@pytest.mark.parametrize(("right_side", "start", "at"), RIGHT_SIDES.values(), ids=RIGHT_SIDES)
def test_a_number_that_changes_between_solutions_is_noticed(right_side, start, at, gradient):
    assert total(right_side, start, "unrolled", at) != 0.0
    cause = "It reads something that has changed since the equation was solved: pass that as an argument, an array as"
    with pytest.raises(GradientError, match=rf"^odeint: <lambda> (gave other values|did something else) .*{cause}"):
        total(right_side, start, gradient, at)


def test_the_message_says_what_to_do():
    p, k = nt.tensor(1.0, dtype="float64", requires_grad=True), 1.0
    y = implicit.odeint(lambda t, y: -k * p * y, 1.0, [0.0, 1.0], gradient="checkpointed")
    k = 2.0
    with pytest.raises(GradientError) as error:
        y.sum().backward()
    assert str(error.value) == (
        "odeint: <lambda> gave other values when it ran again for gradient='checkpointed'. It reads something that has "
        "changed since the equation was solved: pass that as an argument, an array as a copy, and overwrite nothing "
        "that it reads before the derivative is taken."
    )


@pytest.mark.parametrize("gradient", ["checkpointed", "adjoint"])
def test_an_array_that_was_overwritten_is_noticed_and_a_copy_helps(gradient):
    def slope(take):
        p, rates = nt.tensor(1.0, dtype="float64", requires_grad=True), np.ones(2)
        y = implicit.odeint(lambda t, y, k: -k * p * y, np.ones(2), [0.0, 1.0], take(rates), gradient=gradient)
        rates[:] = 2.0
        y[-1].sum().backward()
        return p.grad.item()

    assert slope(np.copy) == pytest.approx(-2.0 * np.exp(-1.0), rel=1e-5)
    with pytest.raises(GradientError, match="an array as a copy, and overwrite nothing that it reads before"):
        slope(lambda rates: rates)


@pytest.mark.parametrize("gradient", ["checkpointed", "adjoint"])
def test_other_derivatives_notice_it_too(gradient):
    p, k = nt.tensor(1.0, dtype="float64"), 1.0
    with nt.Tape(), nt.Tape() as inner:
        y = implicit.odeint(lambda t, y: -k * p * y, 1.0, [0.0, 1.0], gradient=gradient)[-1]
        k = 2.0
        with pytest.raises(GradientError, match="It reads something that has changed"):
            inner.gradient(y, p)


@pytest.mark.parametrize("gradient", ["unrolled", "checkpointed"])
@pytest.mark.parametrize("rng", [None, "own"])
def test_random_numbers_of_a_right_side_repeat(gradient, rng):
    nt.seed(0)
    rng = nt.Generator(3) if rng else None
    p = nt.tensor(1.0, dtype="float64", requires_grad=True)

    def right_side(t, y):
        return -p * y + 0.1 * nt.randn(rng=rng).astype("float64")

    y = implicit.odeint(right_side, 1.0, [0.0, 0.5, 1.0], method="rk4", gradient=gradient)
    y[-1].backward()
    nt.randn(2)
    assert p.grad.item() < 0.0


@pytest.mark.parametrize("gradient", ["unrolled", "checkpointed", "adjoint", None])
def test_modules_with_state_keep_that_of_one_run(gradient):
    layer, mix = nt.nn.BatchNorm1d(3), nt.nn.Linear(3, 3)
    start = nt.randn(5, 3, rng=0)

    def right_side(t, y):
        layer(y.detach())
        return 0.1 * mix(y)

    options = {"method": "rk4"}
    if gradient is None:
        with nt.no_grad():
            implicit.odeint(right_side, start, [0.0, 1.0, 2.0], **options)
    else:
        y = implicit.odeint(right_side, start, [0.0, 1.0, 2.0], gradient=gradient, rtol=1e-3, atol=1e-3, **options)
        (y[-1] ** 2).sum().backward()
        assert mix.weight.grad is not None
    assert layer.num_batches_tracked.item() == 8


def test_a_right_side_that_takes_nothing_at_first_leaves_the_state_of_one_run():
    layer, p = nt.nn.BatchNorm1d(3), nt.tensor(1.0, requires_grad=True)

    def right_side(t, y):
        layer(y.detach())
        return -y * p if t > 0.2 else -y

    y = implicit.odeint(right_side, nt.randn(5, 3, rng=0), [0.0, 1.0, 2.0], method="rk4")
    y[-1].sum().backward()
    assert layer.num_batches_tracked.item() == 8
    assert p.grad is not None


@pytest.mark.parametrize("gradient", ["unrolled", "checkpointed", "adjoint"])
def test_an_equation_may_hold_a_solution(gradient):
    times = [0.0, 1.0]

    def speed(a):
        def miss(v):
            start = nt.stack([0.0 * v, v])
            found = implicit.odeint(
                lambda t, y: nt.stack([y[1], -a * nt.sin(y[0])]), start, times, gradient=gradient, rtol=1e-9
            )
            return found[-1][0] - 0.5

        return implicit.root(miss, 0.6)

    assert type(speed(1.3)) is float
    slope = (speed(1.3001) - speed(1.2999)) / 2e-4
    assert nt.grad(speed)(1.3) == pytest.approx(slope, rel=1e-6)
    a = nt.tensor(1.3, dtype="float64", requires_grad=True)
    speed(a).backward()
    assert a.grad.item() == pytest.approx(slope, rel=1e-6)
