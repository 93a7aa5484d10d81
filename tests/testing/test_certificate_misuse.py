"""What the gradient certificate and the checker say to mistakes, and the checker on functions of a tape."""

import numpy as np
import pytest

import numtape as nt
from numtape import errors
from numtape.errors import OperandError
from numtape.testing.checker import NumericalChecker, ValidationResult
from numtape.testing.gradients import check_gradients


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            lambda: check_gradients(lambda: 1.0),
            errors.OperandError,
            "check_gradients: no argument is a float tensor, array or number.",
        ),
        (
            lambda: check_gradients(nt.tanh, 3, np.arange(2)),
            errors.OperandError,
            "check_gradients: the arguments of tanh are of int, int64, which have no derivative; give it floats, as "
            "2.0 or x.astype(float).",
        ),
        (
            lambda: check_gradients(np.ones(3), np.ones(3)),
            errors.OperandError,
            "check_gradients: wants a function, not ndarray; its arguments follow it: nt.check_gradients(f, x).",
        ),
        (
            lambda: check_gradients(describe, 1.0),
            errors.OperandError,
            "check_gradients: describe returned str; it must return a tensor or a tree of tensors.",
        ),
        (
            lambda: check_gradients(largest, np.ones(3)),
            errors.DtypeError,
            "check_gradients: largest returned a tensor of int64, which has no derivative; leave it out of what is "
            "checked, or return floats.",
        ),
        (
            lambda: check_gradients(forget, 1.0),
            errors.ArgumentError,
            "check_gradients: forget returned nothing to differentiate.",
        ),
        (
            lambda: check_gradients(leave, np.ones(2)),
            errors.OperandError,
            "check_gradients: leave returned float64, which is no tensor, so its gradient is lost; compute with "
            "tensors to the end, with nt's or NumPy's functions, and without numpy(), item() and float().",
        ),
        (
            lambda: check_gradients(nt.tanh, 1.0, method="forward"),
            errors.ArgumentError,
            "check_gradients: there is no method 'forward'; the methods are 'central', 'four_point', 'six_point', "
            "'richardson'.",
        ),
        (
            lambda: check_gradients(nt.tanh, 1.0, tolerance=0.0),
            errors.ArgumentError,
            "check_gradients: tolerance is 0.0; it must lie between 0 and 1.",
        ),
        (
            lambda: check_gradients(nt.tanh, 1.0, step=-1.0),
            errors.ArgumentError,
            "check_gradients: step is -1.0; it must be positive, or None to have it found.",
        ),
        (
            lambda: check_gradients(nt.tanh, 1.0, tolerance="a"),
            errors.ArgumentError,
            "check_gradients: tolerance is 'a'; it must lie between 0 and 1.",
        ),
        (
            lambda: check_gradients(nt.tanh, 1.0, step="1"),
            errors.ArgumentError,
            "check_gradients: step is '1'; it must be positive, or None to have it found.",
        ),
        (
            lambda: NumericalChecker(tolerance="a"),
            errors.ArgumentError,
            "NumericalChecker: tolerance is 'a'; it must lie between 0 and 1.",
        ),
        (
            lambda: NumericalChecker(tolerance=-1),
            errors.ArgumentError,
            "NumericalChecker: tolerance is -1; it must lie between 0 and 1.",
        ),
        (
            lambda: NumericalChecker(step=0),
            errors.ArgumentError,
            "NumericalChecker: step is 0; it must be positive, or None to have it found.",
        ),
        (
            lambda: NumericalChecker(method="best"),
            errors.ArgumentError,
            "NumericalChecker: there is no method 'best'; the methods are 'central', 'four_point', 'six_point', "
            "'richardson'.",
        ),
        (
            lambda: NumericalChecker().check_gradient_central(np.ones(3), nt.tanh, None),
            errors.OperandError,
            "NumericalChecker: wants a tape, a point and a function, in this order, not ndarray first; "
            "nt.check_gradients(f, x) needs no tape.",
        ),
        (
            lambda: NumericalChecker().check_gradient_central(nt.GradientTape(), np.ones(3), 1.0),
            errors.OperandError,
            "NumericalChecker: wants a function of (tape, x), not float.",
        ),
    ],
)
def test_mistakes_are_explained(call, error, message):
    with pytest.raises(error) as raised:
        call()
    assert str(raised.value) == message


def describe(x):
    return "a string"


def largest(x):
    return x.argmax()


def forget(x):
    return None


def leave(x):
    return np.sum(x.numpy() ** 2)


def positives(x):
    return x[np.asarray(x.numpy() > 0.0)]


def test_a_shape_that_depends_on_values_is_an_error():
    with pytest.raises(errors.ShapeError) as raised:
        check_gradients(positives, np.array([1e-12, 2.0]))
    assert str(raised.value).startswith(
        "check_gradients: positives returns shape (2,) at the point and (1,) where args[0]"
    )
    assert str(raised.value).endswith("Use nt.where instead of selecting elements by a condition.")


@pytest.mark.parametrize(
    "method",
    ["check_gradient_central", "check_gradient_four_point", "check_gradient_six_point", "check_gradient_richardson"],
)
def test_the_checker_calls_functions_of_a_tape(method):
    tape = nt.GradientTape()
    x = tape.watch(nt.ones(5))
    seen = []

    def custom(given, x):
        seen.append((given, x.dtype))
        return (x * x).sum()

    result = getattr(NumericalChecker(), method)(tape, x, custom)
    assert isinstance(result, ValidationResult)
    assert result.is_valid, f"Gradient check failed: {result.max_error}"
    assert result
    assert result.max_error < 1e-6
    assert str(result).startswith(f"{method.removeprefix('check_gradient_')} differences\nargument ")
    assert set(seen) == {(tape, nt.float64)}
    # The tape was not consumed.
    assert tape.gradient((x * x).sum(), x).tolist() == [2.0] * 5


def test_a_function_without_a_tape_among_its_arguments_is_told_about_it():
    with pytest.raises(OperandError, match=r"calls <lambda>\(tape, x\), which does not take two arguments"):
        nt.NumericalChecker().check_gradient_central(nt.GradientTape(), np.ones(2), lambda x: x.sum())
