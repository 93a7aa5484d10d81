"""The adjoint test of check_gradients: a wrong forward rule is found beside whatever is large, and rounding is none."""

import numpy as np
import pytest

import numtape as nt


def sine_with(factor):
    """Return a sine whose forward rule is multiplied by a factor."""

    @nt.custom_op(vjp={"x": lambda g, x: g * nt.cos(x)}, jvp={"x": lambda t, x: factor * t * nt.cos(x)}, check=False)
    def sine(x, /):
        return np.sin(x)

    return sine


SECOND_OF_TWO = np.array([1.0, 1.01])
ONE_OF_MANY = np.where(np.arange(1000) == 700, 1.01, 1.0)

HIDDEN = {
    "beside another argument": lambda sine: nt.check_gradients(lambda a, b: 1e6 * a + sine(b), 1.0, 0.3),
    "beside a far larger one": lambda sine: nt.check_gradients(lambda a, b: 1e30 * a + sine(b), 1.0, 0.3),
    "beside another element": lambda sine: nt.check_gradients(
        lambda x: (np.array([1e9, 1.0]) * sine(x)).sum(), np.array([0.2, 0.3])
    ),
    "beside another output": lambda sine: nt.check_gradients(lambda a, b: (1e9 * a * b, sine(b)), 1.0, 0.3),
    "in an output of one argument": lambda sine: nt.check_gradients(lambda a: (1e9 * a, sine(a)), 0.3),
    "on a large value": lambda sine: nt.check_gradients(lambda a: 1e9 + sine(a), 0.3),
    "with a small derivative": lambda sine: nt.check_gradients(lambda a: 1e-12 * sine(a), 0.3),
    "beside a derivative of zero": lambda sine: nt.check_gradients(lambda a, b: 0.0 * a + sine(b), 1.0, 0.3),
}


@pytest.mark.parametrize("place", HIDDEN)
@pytest.mark.parametrize("factor", [2.0, 1.001, 0.0])
def test_a_wrong_forward_rule_is_found(place, factor):
    check = HIDDEN[place](sine_with(factor))
    assert check.verdict == "wrong rule"
    assert not check
    assert " differs from " in str(check)
    assert "forward mode is WRONG" in str(check).splitlines()[-1]
    assert HIDDEN[place](sine_with(1.0)).adjoint.is_equal


def test_a_forward_rule_that_is_wrong_at_one_element_is_found():
    sine = sine_with(SECOND_OF_TWO)
    for sizes in ([1e9, 1.0], [1.0, 1e9], [1.0, 1e-12]):
        check = nt.check_gradients(lambda x, sizes=sizes: (sizes * sine(x)).sum(), np.array([0.2, 0.3]))
        assert check.verdict == "wrong rule"


def test_a_forward_rule_that_is_wrong_at_one_element_of_many_is_found():
    x = np.linspace(0.1, 1.0, 1000)
    assert nt.check_gradients(lambda x: (x * sine_with(1.0)(x)).sum(), x)
    assert nt.check_gradients(lambda x: (x * sine_with(ONE_OF_MANY)(x)).sum(), x).verdict == "wrong rule"


def test_a_forward_rule_of_a_derivative_that_is_zero_is_found():
    @nt.custom_op(vjp={"x": lambda g, x: g * 0.0}, jvp={"x": lambda t, x: t * 1e-3}, check=False)
    def constant(x, /):
        return np.ones_like(x)

    assert nt.check_gradients(constant, 2.0).verdict == "wrong rule"
    assert nt.check_gradients(lambda a, b: 3.0 * a + constant(b), 1.0, 2.0).verdict == "wrong rule"


def test_modes_that_differ_only_at_a_tie_differ():
    @nt.custom_op(vjp={"x": lambda g, x: g * (x > 0.0)}, jvp={"x": lambda t, x: t * (x >= 0.0)}, check=False)
    def ramp(x, /):
        return np.maximum(x, 0.0)

    check = nt.check_gradients(lambda x: (x + ramp(x)).sum(), np.array([-1.0, 0.0, 1.0]))
    assert check.verdict == "wrong rule"
    assert check.rows[0].verdict == "kink"
    conclusion = str(check).splitlines()[-1]
    assert "NOT CERTIFIED: kink" in conclusion
    assert "forward mode is WRONG" in conclusion


@pytest.mark.parametrize("x", [np.array([27.0]), np.array([1.0, 27.0]), np.array([26.9, 27.1, 27.2])])
def test_numbers_next_to_underflow_do_not_accuse_a_rule(x):
    check = nt.check_gradients(lambda x: (1e-4 * nt.exp(-x * x)).sum(), x)
    assert check.verdict == check.rows[0].verdict == "cancellation noise"
    assert check.adjoint.is_equal
    assert "WRONG" not in str(check)


ROUNDED = {
    "lost in a sum": (lambda x: ((3.0 * nt.sin(x) + 1e18 * x) - 1e18 * x).sum(), np.array([0.3, 0.7])),
    "half lost": (lambda x: ((3.0 * nt.sin(x) + 1e11 * x) - 1e11 * x).sum(), np.array([0.3, 0.7])),
    "zero but for rounding": (lambda x: nt.softmax(x).sum(), np.linspace(-1.0, 2.0, 7)),
    "in float32": (lambda x: ((x.astype("float32") * 3.0 + 1e6 * x) - 1e6 * x).sum(), np.array([0.3, 0.7])),
    "subnormal on the way": (lambda x: (1e300 * (1e-315 * nt.exp(x))).sum(), np.array([0.3, 0.7])),
    "nearly infinite on the way": (lambda x: (1e-300 * (1e-8 * (1e300 * nt.exp(x)))).sum(), np.array([0.3, 0.7])),
    "of all sizes": (lambda x: (10.0 ** np.arange(-150.0, 151.0, 50.0) * nt.exp(x)).sum(), np.linspace(0.1, 0.9, 7)),
}


@pytest.mark.parametrize("name", ROUNDED)
def test_rounding_is_no_wrong_forward_rule(name):
    function, x = ROUNDED[name]
    check = nt.check_gradients(function, x)
    assert check.adjoint.is_equal
    assert not check.adjoint.reason
    assert check.verdict != "wrong rule"


def test_what_rounding_hides_of_forward_mode_is_told():
    function, x = ROUNDED["lost in a sum"]
    check = nt.check_gradients(function, x)
    assert not check
    assert check.adjoint.verdict == "cancellation noise"
    assert " is, up to rounding errors, " in str(check)
    assert "forward mode is NOT CERTIFIED: cancellation noise hides what it gives" in str(check)
