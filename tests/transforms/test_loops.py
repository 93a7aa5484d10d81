"""`nt.checkpoint_loop`: a long loop differentiated in the memory of a few states."""

import numpy as np
import pytest

import numtape as nt
from numtape.core.binomial import advances
from numtape.insight.activations import Activations


def plain_loop(step, state, n):
    for _ in range(n):
        state = step(state)
    return state


def pendulum(state):
    angle, speed = state
    return angle + 0.01 * speed, speed - 0.01 * nt.sin(angle)


def start():
    return tuple(nt.tensor(v, dtype="float64", requires_grad=True) for v in (1.0, 0.5))


@pytest.mark.parametrize("n", [0, 1, 2, 3, 10, 97])
@pytest.mark.parametrize("snapshots", [1, 2, 5, None])
def test_gradients_equal_those_of_the_plain_loop_bit_for_bit(n, snapshots):
    x, v = start()
    angle, speed = plain_loop(pendulum, (x, v), n)
    (angle * 2.0 + speed).backward()
    a, b = start()
    angle2, speed2 = nt.checkpoint_loop(pendulum, (a, b), n, snapshots=snapshots)
    assert angle2.item() == angle.item()
    (angle2 * 2.0 + speed2).backward()
    assert (a.grad.item(), b.grad.item()) == (x.grad.item(), v.grad.item())


def test_only_one_record_is_left_and_steps_run_as_often_as_the_best_schedule_says():
    runs = []

    def step(x):
        runs.append(1)
        return nt.sin(x) * 1.1

    x = nt.tensor(0.5, requires_grad=True)
    y = nt.checkpoint_loop(step, x, 50, snapshots=4)
    assert [record.op.name for record in nt.records(y)] == ["loop"]
    assert len(runs) == 50
    y.backward()
    # Once more each for the pull; and what the schedule advances, beyond the first run that placed three states.
    assert len(runs) - 100 < advances(50, 3)


def test_captured_tensors_and_intermediates_get_their_gradients():
    w = nt.tensor([0.1, 0.2], dtype="float64", requires_grad=True)
    twice = w * 2.0
    controls = nt.tensor(np.linspace(0, 1, 30), requires_grad=True)

    def step(x, i):
        return x + 0.1 * nt.tanh(x * twice) + 0.01 * controls[i]

    x = nt.tensor([1.0, -1.0], dtype="float64", requires_grad=True)
    nt.checkpoint_loop(step, x, 30, snapshots=3).sum().backward()
    found = [t.grad.numpy(copy=True) for t in (x, w, controls)]
    for t in (x, w, controls):
        t.grad = None
    state = x
    twice = w * 2.0
    for i in range(30):
        state = step(state, i)
    state.sum().backward()
    for a, b in zip(found, (x, w, controls), strict=True):
        np.testing.assert_allclose(a, b.grad.numpy(), rtol=1e-14)


def test_a_tape_that_watches_everything_sees_what_the_step_captures():
    rate = nt.tensor(0.3, dtype="float64")
    x = nt.tensor(1.0, dtype="float64")
    with nt.Tape() as tape:
        y = nt.checkpoint_loop(lambda x: x - 0.1 * rate * x, x, 20)
    grads = tape.backward(y)
    assert grads[x].item() == pytest.approx(0.97**20, rel=1e-14)
    assert grads[rate].item() == pytest.approx(-0.1 * 20 * 0.97**19, rel=1e-13)


def test_an_unknown_number_of_steps():
    def half(x):
        return x * 0.5

    x = nt.tensor(8.0, dtype="float64", requires_grad=True)
    y = nt.checkpoint_loop(half, x, until=lambda x: x.item() < 1e-30, snapshots=4)
    y.backward()
    assert y.item() < 1e-30 <= 2 * y.item()
    assert x.grad.item() == y.item() / 8.0


def test_random_draws_repeat_and_the_stream_goes_on():
    def step(x):
        return nt.dropout(x * 1.01, 0.1)

    nt.seed(5)
    x = nt.ones(50, requires_grad=True)
    y = plain_loop(step, x, 40)
    after = nt.rand(1).item()
    y.sum().backward()
    nt.seed(5)
    z = nt.ones(50, requires_grad=True)
    out = nt.checkpoint_loop(step, z, 40, snapshots=3)
    assert nt.rand(1).item() == after
    before = nt.rand(1).item()
    nt.seed(7)
    expected = nt.rand(1).item()
    nt.seed(7)
    out.sum().backward()
    assert nt.rand(1).item() == expected
    assert before != expected
    np.testing.assert_array_equal(z.grad.numpy(), x.grad.numpy())


def test_draws_of_until_repeat():
    generator = nt.Generator(3)
    place = generator.state_dict()

    def step(x):
        return x * nt.rand(2, dtype="float64") + nt.sin(x) * nt.rand(2, rng=generator, dtype="float64")

    def stop(x):
        return nt.rand(1).item() + nt.rand(1, rng=generator).item() < 0.4

    def gradients(loop):
        nt.seed(3)
        generator.load_state_dict(place)
        x = nt.tensor([1.0, 2.0], dtype="float64", requires_grad=True)
        loop(x).sum().backward()
        with nt.GradientTape() as tape:
            with nt.GradientTape(persistent=True) as inner:
                y = loop(x).sum()
            first = inner.gradient(y, x).sum()
        return x.grad.numpy(), inner.forward_gradient(x, y).numpy(), tape.gradient(first, x).numpy(), nt.rand(1).item()

    def plain(x):
        while not stop(x):
            x = step(x)
        return x

    for a, b in zip(
        gradients(lambda x: nt.checkpoint_loop(step, x, until=stop, snapshots=2)), gradients(plain), strict=True
    ):
        np.testing.assert_allclose(a, b, rtol=1e-13)


def test_memory_goes_by_snapshots():
    w = nt.tensor(np.eye(50) * 0.99, requires_grad=True)
    x = nt.ones(50, dtype="float64", requires_grad=True)

    def step(x):
        return nt.tanh(w @ x)

    peaks = []
    for n in (100, 400):
        with Activations() as held:
            nt.checkpoint_loop(step, x, n, snapshots=5).sum().backward()
        peaks.append(held.peak)
    assert peaks[1] <= peaks[0] * 1.1


def test_higher_orders_and_forward_mode():
    def f(x):
        return nt.checkpoint_loop(lambda x: nt.sin(x) * 1.2, x, 12, snapshots=3)

    def plain(x):
        return plain_loop(lambda x: nt.sin(x) * 1.2, x, 12)

    assert nt.grad(nt.grad(f))(0.7) == pytest.approx(nt.grad(nt.grad(plain))(0.7), rel=1e-13)
    assert nt.jvp(f, 0.7, 1.0) == pytest.approx(nt.jvp(plain, 0.7, 1.0), rel=1e-14)
    x = np.linspace(0.1, 0.9, 3)
    np.testing.assert_allclose(nt.jacobian(f, mode="reverse")(x), nt.jacobian(plain)(x), rtol=1e-13)


WEIGHT = nt.tensor([0.4, 0.5, 0.6], dtype="float64", requires_grad=True)


def of_state(loop, x):
    return loop(lambda s: nt.sin(s) * 1.2 + 0.1 * s.sum(), x, 12)


def of_captured_tensors_that_depend_on_each_other(loop, x):
    w = x * 2.0
    v = nt.sin(w) * x
    k = v.sum()
    a, b = loop(lambda s: (nt.sin(s[0] * w) + s[1], s[1] * 0.9 + v * k * 0.1), (x * 1.0, v), 7)
    return a * b


def of_parts_that_do_not_move(loop, x):
    w = x * 2.0
    zeros = nt.zeros(3, dtype="float64")
    a, b, c = loop(lambda s: (nt.sin(s[0]), s[1] + 1.0, w), (x * 1.0, zeros, zeros), 4)
    return a + b * c


def of_one_tensor_in_two_parts(loop, x):
    a, b = loop(lambda s: (nt.sin(s[0]) * s[1], s[1] * 0.9 + s[0]), (x, x), 5)
    return a * b


def of_a_state_that_is_captured_too(loop, x):
    return loop(lambda s: nt.sin(s) * x + WEIGHT, x, 5)


LOOPS = [
    of_state,
    of_captured_tensors_that_depend_on_each_other,
    of_parts_that_do_not_move,
    of_one_tensor_in_two_parts,
    of_a_state_that_is_captured_too,
]


def looped_and_plain(make):
    def looped(x):
        return make(lambda step, state, n: nt.checkpoint_loop(step, state, n, snapshots=3), x)

    return looped, lambda x: make(plain_loop, x)


def values(x):
    return x.detach().numpy() if isinstance(x, nt.Tensor) else x


def assert_same(transform, make):
    looped, plain = looped_and_plain(make)
    np.testing.assert_allclose(values(transform(looped)), values(transform(plain)), rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("make", LOOPS)
def test_a_recorded_loop_has_a_forward_sweep(make):
    x = np.linspace(0.1, 0.9, 3)
    assert_same(lambda f: nt.jvp(f, nt.tensor(x), nt.tensor(x))[1], make)
    assert_same(lambda f: nt.grad(lambda x: nt.jvp(f, x, x)[1].sum())(x), make)
    assert_same(lambda f: nt.jvp(lambda x: nt.jvp(f, x, x)[1], x, x)[1], make)
    assert_same(lambda f: nt.jacobian(f, mode="forward", chunk_size=2)(x), make)


@pytest.mark.parametrize("mode", ["forward", "reverse", "mixed", "auto"])
@pytest.mark.parametrize("make", LOOPS)
def test_derivatives_of_derivatives_of_loops_in_every_mode(make, mode):
    x = np.linspace(0.1, 0.9, 3)
    assert_same(lambda f: nt.hessian(lambda x: (f(x) ** 2).sum(), mode=mode)(x), make)
    assert_same(lambda f: nt.jacobian(nt.jacobian(f, mode=mode), mode=mode)(x), make)


def test_a_forward_derivative_of_a_loop_trains_what_its_step_captures():
    def slope(loop):
        w = nt.tensor(0.7, dtype="float64", requires_grad=True)
        x = nt.tensor(0.5, dtype="float64")
        _, tangent = nt.jvp(lambda x: loop(lambda s: nt.sin(s * w), x, 6), x, nt.ones_like(x))
        (tangent**2).backward()
        return w.grad.item()

    assert slope(nt.checkpoint_loop) == pytest.approx(slope(plain_loop), rel=1e-13)


def test_the_forward_sweep_of_a_loop_keeps_one_step_at_a_time():
    peaks = []
    for n in (50, 400):
        tape = nt.GradientTape()
        x = tape.watch(nt.ones(50, dtype="float64"))
        y = nt.checkpoint_loop(lambda s: nt.tanh(s) * 1.1, x, n, snapshots=5)
        with Activations() as held:
            tape.forward_gradient(x, y, np.ones(50))
        peaks.append(held.peak)
    assert peaks[1] <= peaks[0] * 1.1


def test_the_forward_sweep_of_a_loop_draws_the_same_numbers():
    nt.seed(3)
    tape = nt.GradientTape()
    x = tape.watch(nt.ones(20, dtype="float64"))
    y = nt.checkpoint_loop(lambda s: nt.dropout(s, 0.1), x, 4, snapshots=2)
    # Linear, from ones: the derivative by all at once is the value.
    np.testing.assert_allclose(tape.forward_gradient(x, y, np.ones(20)).numpy(), y.detach().numpy(), rtol=1e-14)


def test_it_works_inside_checkpoint_and_a_budgeted_tape():
    x = nt.tensor([0.5, 0.6], dtype="float64", requires_grad=True)

    def f(x):
        return nt.exp(nt.checkpoint_loop(nt.sin, nt.exp(x), 10, snapshots=2))

    expected = nt.grad(lambda x: nt.exp(plain_loop(nt.sin, nt.exp(x), 10)).sum())(x.numpy())
    nt.checkpoint(f, x).sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), expected)


def test_a_step_that_does_something_else_when_it_runs_again_is_named():
    calls = []

    def step(x):
        calls.append(1)
        return nt.sin(x) if len(calls) <= 10 else nt.cos(x)

    y = nt.checkpoint_loop(step, nt.tensor(1.0, requires_grad=True), 10)
    with pytest.raises(nt.errors.GradientError, match=r"step 7 of .* ran other ops, or on other shapes"):
        y.backward()


def test_verify_finds_other_values():
    calls = []

    def step(x):
        calls.append(1)
        return nt.sin(x) * float(len(calls))

    y = nt.checkpoint_loop(step, nt.tensor(1.0, requires_grad=True), 5, verify=True)
    with pytest.raises(nt.errors.GradientError, match=r"step 2 of .* gave other values when it ran again"):
        y.backward()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "checkpoint_loop: give n, the number of steps, or until, which says when to stop."),
        ({"n": -1}, "checkpoint_loop: n is -1; it must be a number of steps."),
        ({"n": 1.5}, "checkpoint_loop: n is 1.5; it must be a number of steps."),
        ({"n": 5, "snapshots": 0}, "checkpoint_loop: snapshots is 0; it must be a positive integer."),
    ],
)
def test_wrong_arguments_are_named(arguments, message):
    with pytest.raises(nt.errors.ArgumentError) as caught:
        nt.checkpoint_loop(nt.sin, nt.ones(1), **arguments)
    assert str(caught.value) == message


def test_a_step_that_changes_the_form_of_the_state_is_named():
    with pytest.raises(nt.errors.OperandError, match="step 0 returned a state of 1 parts, and got one of 2"):
        nt.checkpoint_loop(lambda s: (s[0],), (nt.ones(1), nt.ones(2)), 3)
    with pytest.raises(nt.errors.OperandError, match=r"step 0 returned a tensor of shape \(2,\) and dtype"):
        nt.checkpoint_loop(lambda s: nt.concatenate([s, s]), nt.ones(1), 3)


@pytest.mark.soak
def test_a_hundred_thousand_steps():
    x, v = start()
    angle, speed = nt.checkpoint_loop(pendulum, (x, v), 100_000)
    (angle + speed).backward()
    a, b = start()
    angle, speed = plain_loop(pendulum, (a, b), 100_000)
    (angle + speed).backward()
    assert (x.grad.item(), v.grad.item()) == (a.grad.item(), b.grad.item())


def test_a_captured_tensor_and_what_is_made_of_it_are_not_counted_twice():
    w = nt.tensor([0.5], dtype="float64", requires_grad=True)
    c = nt.exp(w)
    y = nt.checkpoint_loop(lambda s: s * w + c, nt.ones(1, dtype="float64"), 3)
    y.sum().backward()
    assert w.grad.item() == pytest.approx(6.9327, abs=1e-3)
    x = nt.tensor([0.5], dtype="float64", requires_grad=True)
    h = x * 1.0
    nt.checkpoint_loop(lambda s: s * h * x, h, 2).sum().backward()
    assert x.grad.item() == pytest.approx(5 * 0.5**4)


def test_second_order_where_state_and_step_share_a_variable():
    def cube(v):
        return nt.checkpoint_loop(lambda s: s * v, v * 1.0, 2).sum()

    np.testing.assert_allclose(nt.hessian(cube)(np.array([0.5])), [[3.0]])
    np.testing.assert_allclose(nt.grad(lambda v: nt.grad(cube)(v).sum())(np.array([0.5])), [3.0])


def test_all_derivatives_of_a_loop_that_depends_on_nothing_are_zero():
    constant, x = nt.tensor([0.2, 0.9], dtype="float64"), np.array([0.3, 0.5])

    def f(x):
        return nt.checkpoint_loop(lambda _: nt.sin(constant * 2.0), x, 3).sum()

    assert not nt.grad(f)(x).any()
    assert not nt.grad(lambda x: nt.grad(f)(x).sum())(x).any()
    assert not nt.hessian(f)(x).any()


def test_draws_from_a_generator_repeat():
    generator = nt.Generator(0)
    x = nt.tensor([1.0], dtype="float64", requires_grad=True)

    def step(s):
        return s * nt.rand(1, rng=generator, dtype="float64")

    y = nt.checkpoint_loop(step, x, 9, snapshots=2, verify=True)
    after = generator.state_dict()
    y.sum().backward()
    assert x.grad.item() == pytest.approx(y.item(), rel=1e-14)
    assert generator.state_dict() == after


def test_what_a_step_writes_in_place_in_its_state_is_left_alone_by_the_backward():
    def step(state):
        x, k, counts = state
        y = x + 0.1 * nt.sin(x) * k.astype("float64") * counts[0]
        k += 1
        counts += 1
        return y, k, counts

    def start():
        return nt.tensor(np.ones(3), requires_grad=True), nt.tensor(1), np.ones(1)

    x, k, counts = start()
    out = nt.checkpoint_loop(step, (x, k, counts), 10, snapshots=2)
    out[0].sum().backward()
    plain = start()
    expected = plain_loop(step, plain, 10)
    expected[0].sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), plain[0].grad.numpy())
    assert (out[1].item(), out[2].item()) == (expected[1].item(), expected[2].item()) == (11, 11.0)


def test_a_constant_that_is_overwritten_before_the_backward_is_named():
    x = nt.tensor(np.ones(3), requires_grad=True)
    w = nt.tensor(np.full(3, 0.5))
    y = nt.checkpoint_loop(lambda s: s + 0.1 * nt.sin(s * w), x, 10)
    w *= 2.0
    with pytest.raises(nt.errors.OverwrittenError, match=r"its step reads a tensor of shape .* that was overw"):
        y.sum().backward()


def test_a_tape_sees_tensors_that_are_captured_through_an_object():
    class Model:
        k = nt.tensor([2.0])

        def step(self, s):
            return s * self.k

    model = Model()
    with nt.Tape() as tape:
        y = nt.checkpoint_loop(model.step, nt.tensor([1.0]), 3).sum()
    assert tape.gradient(y, model.k).tolist() == [12.0]


def test_a_loop_inside_of_a_loop_is_one_record():
    x = nt.tensor([1.0], dtype="float64", requires_grad=True)
    y = nt.checkpoint_loop(lambda x: nt.checkpoint_loop(nt.sin, x, 4), x, 30)
    assert len(nt.records(y)[0].inputs) == 1
    y.sum().backward()
    z = nt.tensor([1.0], dtype="float64", requires_grad=True)
    plain_loop(nt.sin, z, 120).sum().backward()
    assert x.grad.item() == z.grad.item()


def test_a_captured_tensor_that_a_step_passes_on_gets_its_gradient():
    x = nt.tensor([0.1, 0.2], dtype="float64")
    found = []
    for run in (nt.checkpoint_loop, plain_loop):
        w = nt.tensor([1.0, 2.0], dtype="float64", requires_grad=True)
        run(lambda s, w=w: (nt.sin(s[0]) * s[1], w), (x, w), 4)[0].sum().backward()
        found.append(w.grad.tolist())
    assert found[0] == pytest.approx(found[1], rel=1e-14)


def test_other_ops_while_it_advances_are_named():
    calls = []

    def step(z):
        calls.append(1)
        return nt.sin(nt.sin(z)) if len(calls) == 6 else nt.sin(z)

    y = nt.checkpoint_loop(step, nt.tensor([1.0], requires_grad=True), 5, snapshots=1)
    with pytest.raises(nt.errors.GradientError, match=r"step 0 of .* ran other ops"):
        y.sum().backward()


def test_a_step_may_take_gradients_with_a_tape():
    def step(s):
        with nt.GradientTape() as tape:
            tape.watch(s)
            energy = nt.cos(s).sum()
        return s - 0.1 * tape.gradient(energy, s)

    x = nt.tensor([0.5, 0.6], dtype="float64", requires_grad=True)
    y = nt.checkpoint_loop(step, x * 1.0, 5, snapshots=2)
    y.sum().backward()
    z = nt.tensor([0.5, 0.6], dtype="float64", requires_grad=True)
    forward = plain_loop(lambda s: s + 0.1 * nt.sin(s), z, 5)
    np.testing.assert_allclose(y.detach().numpy(), forward.detach().numpy(), rtol=1e-14)


def test_a_second_backward_runs_from_the_first_state_again():
    x = nt.tensor([0.5], dtype="float64", requires_grad=True)
    y = nt.checkpoint_loop(nt.sin, x, 20, snapshots=4).sum()
    y.backward(retain_graph=True)
    first = x.grad.item()
    y.backward()
    assert x.grad.item() == 2 * first


def test_other_parameters_are_named():
    axis = 0

    def step(x):
        return x - 0.1 * nt.softmax(x, axis=axis)

    y = nt.checkpoint_loop(step, nt.tensor(np.eye(3), requires_grad=True), 10)
    axis = 1
    with pytest.raises(nt.errors.GradientError) as caught:
        y.sum().backward()
    assert str(caught.value) == (
        "checkpoint_loop: step 7 of test_other_parameters_are_named.<locals>.step ran other ops, or on other shapes, "
        "or with other parameters, or with other tensors of its own, when it ran again for the backward. A step must "
        "depend on its state, its number and what does not change; keep what changes in the state."
    )


def test_parameters_that_hold_arrays_are_passed_over():
    def step(x):
        return 0.9 * x[np.arange(3)[::-1], 0:3] + nt.clip(x, -1.0, 1.0).sum(axis=(0, 1))

    x = nt.tensor(np.eye(3) / 9, requires_grad=True)
    nt.checkpoint_loop(step, x, 5, snapshots=2).sum().backward()
    expected = nt.grad(lambda x: plain_loop(step, x, 5).sum())(x.numpy())
    np.testing.assert_array_equal(x.grad.numpy(), expected)


def test_a_step_that_writes_to_its_state_in_place_is_named():
    def writes(s):
        s += s * 0.1
        return s

    def writes_to_a_copy(s):
        s = s.clone()
        s += s * 0.1
        return s

    x = nt.tensor([1.0, 2.0], dtype="float64", requires_grad=True)
    with pytest.raises(nt.errors.LeafWriteError) as caught:
        nt.checkpoint_loop(writes, x * 1.0, 3)
    assert str(caught.value) == (
        "checkpoint_loop: step 0 of test_a_step_that_writes_to_its_state_in_place_is_named.<locals>.writes writes in "
        "place to its state, or to a leaf that it captures; the backward runs it again on what these hold. Compute new "
        "tensors, such as s = s + s * 0.1 for s += s * 0.1, or write to s.clone()."
    )
    nt.checkpoint_loop(writes_to_a_copy, x * 1.0, 3).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), [1.331, 1.331])
