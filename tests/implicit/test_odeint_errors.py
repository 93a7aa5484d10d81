"""What goes wrong with differential equations, and what is said about it."""

import numpy as np
import pytest
import scipy.sparse

import numtape as nt
from numtape.core.context import current
from numtape.errors import (
    ArgumentError,
    ConvergenceError,
    DtypeError,
    GradientError,
    LeavesTapeError,
    NotDifferentiableError,
    OperandError,
    OverwrittenError,
    ShapeError,
)

odeint = nt.implicit.odeint


def test_a_singularity_ends_in_steps_that_are_too_small():
    with pytest.raises(ConvergenceError) as error:
        odeint(lambda t, y: y * y, 1.0, [0.0, 2.0])
    assert str(error.value).startswith("odeint: the step has become too small at t=1 (")
    assert str(error.value).endswith(
        "to keep rtol=1e-06 and atol=1e-09. The solution has a singularity there, or the equation is stiff: end before "
        "it, allow more error, or write the steps of an implicit method with nt.implicit.root."
    )


def test_a_stiff_equation_runs_out_of_steps():
    with pytest.raises(ConvergenceError) as error:
        odeint(lambda t, y: -1e6 * (y - np.cos(t)), 1.0, [0.0, 10.0], max_steps=300)
    assert str(error.value).startswith("odeint: took max_steps=300 steps to t=0.00")
    assert str(error.value).endswith(
        "on the way to 10. The equation may be stiff; allow more error by rtol and atol, or more steps by max_steps."
    )


def test_the_steps_of_an_implicit_method_do_solve_it():
    # What the message names: backward Euler, each step a root.
    def solved(rate):
        y = nt.tensor(2.0, dtype="float64")
        for t in np.linspace(0.1, 1.0, 10):
            y = nt.implicit.root(lambda z, t, y: z - y + 0.1 * rate * (z - np.cos(t)), y.detach(), t, y)
        return y

    assert solved(1e6).item() == pytest.approx(np.cos(1.0), abs=1e-5)
    exact = (solved(3.0 + 1e-6).item() - solved(3.0 - 1e-6).item()) / 2e-6
    assert nt.grad(solved)(3.0) == pytest.approx(exact, rel=1e-6)


def test_a_slope_that_is_not_finite_is_named_with_its_time():
    message = (
        "odeint: f is not finite at t={}; see where y leaves the domain of f, take shorter steps, or start elsewhere."
    )
    with pytest.raises(ConvergenceError) as error:
        odeint(lambda t, y: nt.log(y), -1.0, [0.0, 2.0])
    assert str(error.value) == message.format("0")
    with pytest.raises(ConvergenceError) as error:
        odeint(lambda t, y: -nt.sqrt(y) - 1.0, 1.0, [0.0, 2.0])
    assert str(error.value) == message.format("0.613706")
    with pytest.raises(ConvergenceError) as error:
        odeint(lambda t, y: y * y * y, 1.0, [0.0, 2.0], method="rk4", step_size=0.1)
    assert str(error.value).startswith("odeint: f is not finite at t=")


def test_an_adjoint_that_misses_its_way_back_says_so():
    def end(k, gradient):
        return odeint(lambda t, y: -k * y, 1.0, [0.0, 10.0], gradient=gradient)[-1]

    with pytest.raises(GradientError) as error:
        nt.grad(lambda k: end(k, "adjoint"))(3.0)
    assert str(error.value).startswith("odeint: going back to t=0 for gradient='adjoint', y missed its way by ")
    assert str(error.value).endswith(
        "(its size is 1.0e+00): errors grow backward in time here, and the gradient would be wrong. Use "
        "gradient='checkpointed', closer times, or smaller rtol and atol."
    )
    assert nt.grad(lambda k: end(k, "checkpointed"))(3.0) == nt.grad(lambda k: end(k, "unrolled"))(3.0)


def test_an_adjoint_of_a_chaotic_system_gives_up_soon():
    calls = []

    def lorenz(t, y, p):
        calls.append(t)
        return nt.stack([p * (y[1] - y[0]), y[0] * (28.0 - y[2]) - y[1], y[0] * y[1] - 8.0 / 3.0 * y[2]])

    p = nt.tensor(10.0, dtype="float64", requires_grad=True)
    end = odeint(lorenz, np.ones(3), [0.0, 5.0], p, gradient="adjoint", rtol=1e-4, atol=1e-6)[-1].sum()
    there = len(calls)
    with pytest.raises(GradientError) as error:
        end.backward()
    assert str(error.value).startswith(
        "odeint: there is no way back from t=5 to t=0 for gradient='adjoint' in 1000 steps: errors grow backward in "
        "time here. Use gradient='checkpointed', or closer times. The last try ended so: odeint: took max_steps=1000 "
        "steps to t="
    )
    assert len(calls) - there < 10_000


def test_a_function_that_leaves_the_tape_is_named():
    with pytest.raises(NotDifferentiableError, match=r"^odeint: <lambda> left the tape by float\(\) at .*test_odeint"):
        odeint(lambda t, y: -float(y) * y, 1.0, [0.0, 1.0])
    k = nt.tensor(1.0, dtype="float64", requires_grad=True)
    with pytest.raises(NotDifferentiableError, match=r"^odeint: <lambda> left the tape by item\(\) at "):
        odeint(lambda t, y: -k.item() * y, 1.0, [0.0, 1.0])


def test_another_tensor_on_the_way_back_is_an_error():
    early, late = (nt.tensor([k], dtype="float64", requires_grad=True) for k in (1.0, 2.0))

    def right_side(t, y):
        return -(early if t < 0.5 else late) * y

    with pytest.raises(GradientError, match=r"^odeint: right_side used a tensor of shape \(1,\) when it ran again "):
        odeint(right_side, np.ones(1), [0.0, 1.0], gradient="adjoint").sum().backward()
    with pytest.raises(GradientError, match=r"^odeint: right_side used a tensor of shape \(1,\) when it ran again "):
        nt.jvp(lambda y: odeint(right_side, y, [0.0, 1.0], gradient="adjoint"), (np.ones(1),), (np.ones(1),))
    odeint(right_side, np.ones(1), [0.0, 1.0], gradient="checkpointed")[-1].sum().backward()
    # Half of the way each, and y ends at exp(-1.5); a jump in the slope costs accuracy.
    np.testing.assert_allclose([early.grad.item(), late.grad.item()], [-0.5 * np.exp(-1.5)] * 2, rtol=1e-3)


@pytest.mark.parametrize("gradient", ["unrolled", "adjoint", "checkpointed"])
def test_a_parameter_that_was_overwritten_is_an_error(gradient):
    k = nt.tensor([1.0], dtype="float64", requires_grad=True)
    y = odeint(lambda t, y: k * -y, np.ones(1), [0.0, 1.0], gradient=gradient)
    with nt.no_grad():
        k += 1.0
    with pytest.raises(OverwrittenError):
        y.sum().backward()


def test_an_error_of_the_function_itself_passes_and_leaves_no_state():
    class Broken(Exception):
        pass

    def right_side(t, y):
        if t > 0.1:
            raise Broken
        return y

    before = current()
    with pytest.raises(Broken):
        odeint(right_side, nt.ones(1, requires_grad=True), [0.0, 1.0])
    assert current() is before


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (lambda: odeint(3, 1.0, [0, 1]), OperandError, "odeint: wants a function of t and y first, not int."),
        (
            lambda: odeint(lambda t, y: nt.stack([y, y]), 1.0, [0.0, 1.0]),
            ShapeError,
            "odeint: <lambda> returned shapes [(2,)] for y of shapes [()]; the slope of y has its form.",
        ),
        (
            lambda: odeint(lambda t, y: y, 1.0, [0.0, 2.0, 1.0]),
            ArgumentError,
            "odeint: t must rise from each time to the next, or fall; it has t[1]=2, t[2]=1.",
        ),
        (
            lambda: odeint(lambda t, y: y, 1.0, [0.0, 0.0]),
            ArgumentError,
            "odeint: t must rise from each time to the next, or fall; it has t[0]=0, t[1]=0.",
        ),
        (
            lambda: odeint(lambda t, y: y, 1.0, [0.0, np.nan]),
            ArgumentError,
            "odeint: t must rise from each time to the next, or fall; it has t[0]=0, t[1]=nan.",
        ),
        (
            lambda: odeint(lambda t, y: y, 1.0, 2.0),
            ShapeError,
            "odeint: t has shape (); it must be a vector of times, the first that of y0.",
        ),
        (
            lambda: odeint(lambda t, y: y, 1.0, ["a"]),
            DtypeError,
            "odeint: t has dtype <U1; it must be real numbers.",
        ),
        (
            lambda: odeint(lambda t, y: y, np.float16(1.0), [0.0, 1.0]),
            DtypeError,
            "odeint: y0 has dtype float16, in which equations cannot be solved accurately; use astype('float32').",
        ),
        (
            lambda: odeint(lambda t, y: y, 1.0, [0.0, 1.0], method="euler"),
            ArgumentError,
            "odeint: method is 'euler'; it must be one of 'dopri5', 'rk4'.",
        ),
        (
            lambda: odeint(lambda t, y: y, 1.0, [0.0, 1.0], gradient="exact"),
            ArgumentError,
            "odeint: gradient is 'exact'; it must be one of 'unrolled', 'adjoint', 'checkpointed'.",
        ),
        (
            lambda: odeint(lambda t, y: y, 1.0, [0.0, 1.0], rtol=0.0),
            ArgumentError,
            "odeint: rtol is 0.0; it must be a positive number.",
        ),
        (
            lambda: odeint(lambda t, y: y, 1.0, [0.0, 1.0], step_size=0.1),
            ArgumentError,
            "odeint: dopri5 chooses its own steps; step_size is for method='rk4'.",
        ),
        (
            lambda: odeint(lambda t, y: y, 1.0, [0.0, 1.0], method="rk4", step_size=-0.1),
            ArgumentError,
            "odeint: step_size is -0.1; it must be a positive number, or None.",
        ),
        (
            lambda: odeint(lambda t, y: y, 1.0, [0.0, 1.0], max_steps=0),
            ArgumentError,
            "odeint: max_steps is 0; it must be a positive integer.",
        ),
        (
            lambda: odeint(lambda t, y: y, 1.0, [0.0, 1.0], snapshots=3),
            ArgumentError,
            "odeint: snapshots is for gradient='checkpointed'.",
        ),
        (
            lambda: odeint(lambda t, y: y, 1.0, [0.0, 1.0], dense=True, gradient="adjoint"),
            ArgumentError,
            "odeint: dense output keeps all steps, so it wants gradient='unrolled'.",
        ),
        (
            lambda: odeint(lambda t, y: y, 1.0, [0.0, 1.0], dense=True)(1.5),
            ArgumentError,
            "odeint: the solution is known from t=0 to 1, not at 1.5.",
        ),
        (
            lambda: odeint(lambda t, y: y, 1.0, [0.0, 1.0], dense=True)(np.ones((2, 2))),
            ShapeError,
            "odeint: a solution is asked at a time or at a vector of them, not at shape (2, 2).",
        ),
    ],
)
def test_misuse_is_explained(call, kind, message):
    with pytest.raises(kind) as error:
        call()
    assert str(error.value) == message


def test_a_time_that_is_only_looked_at_is_detached_as_a_number_and_as_a_tensor():
    def last(times, look):
        return odeint(lambda t, y: -y * (look(t) < 5.0), 1.0, times)[-1]

    times = np.array([0.0, 1.0])
    with pytest.raises(NotDifferentiableError, match=r"and take nt\.detach of what is only looked at\.$"):
        nt.grad(last)(times, float)
    found = nt.grad(last)(times, lambda t: float(nt.detach(t)))
    np.testing.assert_allclose(found, [np.exp(-1.0), -np.exp(-1.0)], rtol=1e-5)


JUMPS = (
    " jumps between t=0 and t=1, where a comparison in it turns. Derivatives take the time of a jump as fixed: if it "
    "depends on what is differentiated by, they miss its part. Integrate up to the jump, find its time by "
    "nt.implicit.root, and go on from there."
)


def branching(t, y, a):
    if y > 0.7:
        return 2.0 * a
    return a


@pytest.mark.parametrize("gradient", ["unrolled", "adjoint", "checkpointed"])
@pytest.mark.parametrize(
    "function", [branching, lambda t, y, a: nt.where(y > 0.7, 2.0 * a, a), lambda t, y, a: nt.where(t < a / 3.0, a, y)]
)
def test_a_jump_of_the_right_side_that_derivatives_do_not_see_is_warned_of(function, gradient):
    a = nt.tensor(1.2, dtype="float64", requires_grad=True)
    with pytest.warns(UserWarning, match="a comparison in it turns") as caught:
        odeint(function, 0.0, [0.0, 1.0], a, gradient=gradient)
    assert [str(each.message) for each in caught] == [f"odeint: {function.__name__}{JUMPS}"]
    assert caught[0].filename == __file__


def test_no_warning_is_given_where_nothing_is_missed():
    a = nt.tensor(1.2, dtype="float64", requires_grad=True)
    odeint(lambda t, y, a: 1.0 + nt.where(y > 0.7, a * (y - 0.7), 0.0), 0.0, [0.0, 0.5, 1.0], a)  # A kink.
    odeint(lambda t, y, a: nt.where(y > 0.7, 2.0 * a, a), 0.0, [0.0, 1.0], 1.2)  # Nothing is tracked.
    odeint(lambda t, y, a: nt.where(y > 70.0, 2.0 * a, a), 0.0, [0.0, 1.0], a)  # It never turns.


def test_looking_for_jumps_refuses_nothing():
    a = nt.tensor(1.0, dtype="float64", requires_grad=True)

    def on_the_circle(t, y):
        assert abs((y * y).sum() - 1.0) < 0.5
        return a * nt.stack([-y[1], y[0]]) * nt.where(y[0] > 0.0, 1.0, 2.0)

    odeint(on_the_circle, np.array([1.0, 0.0]), [0.0, 2.5])


def turning(t, y):
    return np.array([-y[1], y[0]])


def scaled_turning(k):
    return lambda t, y: np.array([-y[1], y[0]]) * k


def test_a_slope_that_is_an_array_of_tensors_is_fine_where_nothing_is_differentiated():
    expected = [np.cos(1.0) - 2.0 * np.sin(1.0), np.sin(1.0) + 2.0 * np.cos(1.0)]
    y0 = np.array([1.0, 2.0])
    np.testing.assert_allclose(odeint(turning, y0, [0.0, 1.0])[-1], expected, rtol=1e-5)
    np.testing.assert_allclose(odeint(turning, y0, [0.0, 1.0], dense=True)(1.0), expected, rtol=1e-5)
    np.testing.assert_allclose(odeint(turning, nt.tensor(y0), [0.0, 1.0])[-1].numpy(), expected, rtol=1e-5)
    with nt.no_grad():
        k = nt.tensor(1.0, dtype="float64", requires_grad=True)
        np.testing.assert_allclose(odeint(scaled_turning(k), y0, [0.0, 1.0])[-1].numpy(), expected, rtol=1e-5)


@pytest.mark.parametrize("gradient", ["unrolled", "adjoint", "checkpointed"])
@pytest.mark.parametrize(
    "solve",
    [
        lambda x, **how: odeint(turning, nt.stack([x, x]), [0.0, 1.0], **how),
        lambda x, **how: odeint(turning, np.ones(2), nt.stack([0.0, x]), **how),
        lambda x, **how: odeint(lambda t, y, k: np.array([-y[1], k * y[0]]), np.ones(2), [0.0, 1.0], x, **how),
        lambda x, **how: odeint(lambda t, y: np.array([-y[1], x * y[0]]), np.ones(2), [0.0, 1.0], **how),
        lambda x, **how: odeint(scaled_turning(x), np.ones(2), [0.0, 1.0], **how),
    ],
)
def test_a_slope_that_is_an_array_of_tensors_is_not_lost_quietly(solve, gradient):
    for transform in (nt.grad, lambda f: lambda x: nt.jvp(f, x, 1.0)):
        with pytest.raises(
            LeavesTapeError, match=r"^odeint: .* would leave the tape by np\.asarray\(tensor\) at .*test_"
        ):
            transform(lambda x: solve(x, gradient=gradient)[-1].sum())(1.0)


def test_an_array_of_tensors_is_told_with_function_line_and_repair():
    with pytest.raises(LeavesTapeError) as error:
        nt.grad(lambda y0: odeint(turning, y0, [0.0, 1.0])[-1, 0])(np.array([1.0, 2.0]))
    line = turning.__code__.co_firstlineno + 1
    assert str(error.value) == (
        f"odeint: turning would leave the tape by np.asarray(tensor) at {__file__}:{line} (return np.array([-y[1], "
        "y[0]])), so a part of its derivative would be lost. Join tensors by nt.stack([...]), or return them as a "
        "list, in the place of np.array([...]); compute with nt or np functions, and take nt.detach of what is only "
        "looked at."
    )


def test_an_array_that_scipy_asks_for_is_told_with_the_line_of_the_user():
    matrix = scipy.sparse.csr_array(np.array([[0.0, -1.0], [1.0, 0.0]]))
    with pytest.raises(LeavesTapeError) as error:
        nt.grad(lambda y0: odeint(lambda t, y: matrix @ y, y0, [0.0, 1.0])[-1, 0])(np.array([1.0, 2.0]))
    assert f" at {__file__}:" in str(error.value)
    assert " SciPy asked for it: numtape.interop.scipy has linear_operator(A) @ x " in str(error.value)
