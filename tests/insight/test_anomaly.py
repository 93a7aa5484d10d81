"""detect_anomaly raises before a gradient that is not finite is delivered, and names what explain_nan names."""

import contextvars
import threading

import numpy as np
import pytest

import numtape as nt
from numtape.core.context import current
from numtape.errors import GradientError, NonFiniteError

OPS = 200


@pytest.fixture(autouse=True)
def quiet():
    with np.errstate(all="ignore"):
        yield


def found_line(text):
    """Return the number of the first line of this file that has a text."""
    with open(__file__) as file:
        return next(number for number, line in enumerate(file, 1) if text in line)


def raised(function, *arguments):
    with nt.detect_anomaly(), pytest.raises(NonFiniteError) as caught:
        function(*arguments)
    return caught.value


def chain(x, k):
    steady = (nt.sin, nt.tanh, nt.atan, lambda y: y * 0.99)
    for i in range(OPS):
        x = nt.sqrt(x) if i == k else steady[i % 4](x)
    return x.sum()


@pytest.mark.parametrize(("bad", "direction"), [(-0.5, "forward"), (0.0, "backward")])
def test_what_is_born_at_any_of_200_ops_is_found(bad, direction):
    x = nt.tensor([0.5, bad], requires_grad=True)
    count = 0
    for k in range(OPS):
        found = raised(chain(x, k).backward).explanation
        count += (found.number, found.op, found.direction, found.index) == (k, "sqrt", direction, (1,))
    assert count == OPS
    assert x.grad is None


def test_the_error_says_what_explain_nan_says():
    for values in ([1.0, -1.0], [1.0, 0.0]):
        x = nt.tensor(values, requires_grad=True)
        loss = nt.sqrt(x).sum()
        explanation = nt.explain_nan(loss)
        error = raised(loss.backward)
        what = "the target" if explanation.direction == "forward" else "a gradient"
        assert str(error) == f"detect_anomaly: {what} of this backward is not finite.\n{explanation}"
        assert error.explanation == explanation or np.isnan(explanation.value)
        assert isinstance(error, GradientError | FloatingPointError)
        assert x.grad is None


def test_operands_that_nobody_holds_are_still_seen():
    x = nt.tensor(np.linspace(-1.0, 1.0, 8001), requires_grad=True)
    error = raised(nt.where(x > 0, nt.sqrt(nt.relu(x)), 0.0).sum().backward)
    assert error.explanation.cause.startswith("0 * inf under a mask: the derivative of sqrt by x is inf where x = 0;")


def test_gradients_that_are_finite_are_the_same_bits():
    values = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)
    w = nt.tensor(values, requires_grad=True)
    nt.softmax(w @ nt.ones(3, 2), axis=0)[0].sum().backward()
    plain = w.grad.numpy(copy=True)
    w.zero_grad()
    with nt.detect_anomaly():
        nt.softmax(w @ nt.ones(3, 2), axis=0)[0].sum().backward()
    assert w.grad.numpy().tobytes() == plain.tobytes()


def test_what_reaches_neither_loss_nor_gradients_is_left_alone():
    x = nt.tensor([1.0, 2.0, 3.0], requires_grad=True)
    with nt.detect_anomaly():
        scores = nt.where(np.array([True, False, True]), x, -np.inf)
        (nt.softmax(scores) * x).sum().backward()
        nt.where(np.array([True, False, True]), nt.log(x - np.array([0.0, 5.0, 0.0], np.float32)), 0.0).sum().backward()
    assert np.isfinite(x.grad.numpy()).all()


def test_every_way_to_a_gradient_is_watched():
    tape = nt.GradientTape()
    x = tape.watch(nt.zeros(2))
    root = nt.sqrt(x).sum()
    with nt.Tape() as second:
        again = nt.sqrt(nt.zeros(2)).sum()
    for run in (
        lambda: tape.gradient(root, x),
        lambda: second.backward(again),
        lambda: nt.grad(lambda v: nt.sqrt(v).sum())(np.zeros(2)),
        lambda: nt.vjp(nt.sqrt, np.zeros(2))[1](np.ones(2)),
        lambda: nt.jacobian(nt.sqrt, mode="reverse")(np.zeros(2)),
        lambda: nt.hessian(lambda v: nt.sqrt(v).sum())(np.zeros(2)),
    ):
        assert raised(run).explanation.op == "sqrt"


def test_a_second_derivative_is_named_by_the_line_of_the_function_with_both_factors():
    def power(x):
        return (x**1.5).sum()

    found = raised(lambda: nt.hessian(power)(np.array([0.0, 1.0]))).explanation
    assert found.op == "pow"
    assert found.site == f"{__file__}:{found_line('return (x**1.5).sum()')} (return (x**1.5).sum())"
    assert [(seen.name, seen.value) for seen in found.operands] == [
        ("a", 0.0),
        ("b", 0.5),
        ("the cotangent of its result", 0.0),
    ]
    call = "found = raised(lambda: nt.hessian(power)(np.array([0.0, 1.0]))).explanation"
    assert found.cause == (
        f"in the derivative of pow, which {__file__}:{found_line(call)} ({call}) differentiates again: the derivative "
        "of pow by a is inf where a = 0 and b = 0.5; the cotangent that comes in for row 1 of the derivative is 0 "
        "there, and 0 times that is nan."
    )


def test_a_third_derivative_is_named_by_the_line_of_the_function():
    def power(x):
        return x**2.5

    twice = nt.grad(nt.grad(power))
    found = raised(lambda: nt.grad(twice)(0.0)).explanation
    assert found.site == f"{__file__}:{found_line('return x**2.5')} (return x**2.5)"
    assert found.cause.startswith("in the derivative of pow, which ")


def test_what_a_rule_of_the_user_does_has_its_own_line():
    @nt.custom_gradient
    def root(x):
        def rule(g):
            return g * nt.sqrt(x)

        return x * 1.0, rule

    found = raised(lambda: nt.hessian(lambda x: root(x).sum())(np.array([0.0, 1.0]))).explanation
    assert found.site.startswith(f"{__file__}:{found_line('return g * nt.sqrt(x)')} ")
    assert found.cause.startswith("the derivative of sqrt by x is inf where x = 0")


def test_a_hook_that_returns_nan_is_named():
    x = nt.tensor([1.0], requires_grad=True)
    y = x * 2.0
    y.register_hook(lambda g: g * np.nan)
    found = raised(y.sum().backward).explanation
    place = f"{__file__}:{found_line('y.register_hook(lambda g: g * np.nan)')}"
    assert (found.op, found.cause) == (
        "mul",
        f"the hook <lambda> at {place} on the result of mul returned a gradient that is not finite.",
    )


def test_a_graph_is_watched_again_after_an_error():
    x = nt.tensor([0.0], requires_grad=True)
    with nt.detect_anomaly():
        for _ in range(20):
            with pytest.raises(NonFiniteError):
                nt.sqrt(x).sum().backward()
        (x * 2.0).sum().backward()
    assert x.grad.tolist() == [2.0]


def test_the_block_ends_as_it_began_whatever_happens():
    before = current()
    anomaly = nt.detect_anomaly()
    with pytest.raises(KeyError), anomaly, anomaly:
        raise KeyError
    assert current() is before
    assert current().observers == ()
    nt.sqrt(nt.zeros(1, requires_grad=True)).sum().backward()


def test_other_threads_are_watched_only_if_they_get_the_context():
    errors = []

    def run():
        with np.errstate(all="ignore"):
            try:
                nt.sqrt(nt.zeros(1, requires_grad=True)).sum().backward()
            except NonFiniteError as error:
                errors.append(error.explanation.op)

    with nt.detect_anomaly():
        context = contextvars.copy_context()
        threads = [threading.Thread(target=run), threading.Thread(target=context.run, args=(run,))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert errors == ["sqrt"]


def test_a_sweep_inside_of_a_rule_does_not_confuse_the_one_around():
    inner = nt.grad(lambda v: (v * v).sum())

    def outer(v):
        return nt.sqrt(inner(v)).sum()

    found = raised(nt.grad(outer), nt.tensor([1.0, 0.0])).explanation
    assert (found.op, found.direction) == ("sqrt", "backward")


def test_a_hook_on_a_leaf_that_returns_nan_is_named_before_anything_is_delivered():
    x = nt.tensor([1.0], requires_grad=True, name="x")
    handle = x.register_hook(lambda g: g * np.inf)  # On a leaf.
    found = raised((x * 2.0).sum().backward).explanation
    place = f"{__file__}:{found_line('# On a leaf.')}"
    assert found.cause == f"the hook <lambda> at {place} on x returned a gradient that is not finite."
    assert x.grad is None
    assert len(x.extras.hooks) == 1
    handle.remove()
    with nt.detect_anomaly():
        (x * 2.0).sum().backward()
    assert x.grad.tolist() == [2.0]


def test_no_hook_is_left_behind_by_one_that_raises():
    x = nt.tensor([1.0], requires_grad=True)

    def fail(g):
        raise KeyError("mine")

    x.register_hook(fail)
    with pytest.raises(KeyError, match="mine"), nt.detect_anomaly():
        (x * 2.0).sum().backward()
    assert list(x.extras.hooks.values()) == [fail]


def test_one_of_several_hooks_is_named_with_the_others():
    x = nt.tensor([1.0], requires_grad=True)
    y = x * 2.0
    y.register_hook(abs)
    y.register_hook(lambda g: g * np.nan)
    cause = raised(y.sum().backward).explanation.cause
    assert cause.startswith(f"one of the hooks abs, <lambda> at {__file__}:")
    assert cause.endswith(" on the result of mul returned a gradient that is not finite.")


def test_gradients_that_overflow_only_when_they_are_added_up_are_found():
    x = nt.tensor([0.5, 0.5], dtype=nt.float16, requires_grad=True)
    with nt.detect_anomaly():
        (x * 40000.0).sum().backward()
        loss = (x * 40000.0).sum()
        with pytest.raises(NonFiniteError) as caught:
            loss.backward()
    found = caught.value.explanation
    assert (found.op, found.direction, found.index) == ("mul", "backward", (0,))
    assert found.cause == (
        "overflow of .grad when this gradient was added to what it held from an earlier backward: the sum is 8e+04, "
        "and the largest float16 is 6.55e+04."
    )
    assert np.isfinite(x.grad.numpy()).all()


def test_it_decorates_functions():
    x = nt.tensor([0.0], requires_grad=True)

    @nt.detect_anomaly()
    def step(x):
        nt.sqrt(x).sum().backward()

    with pytest.raises(nt.errors.NonFiniteError, match="the derivative of sqrt by x is inf where x = 0"):
        step(x)
    nt.sqrt(x).sum().backward()
    assert x.grad.tolist() == [np.inf]
