"""What a power series cannot do: the function runs again without one, whatever it makes of the error."""

import pytest

import numtape as nt
from numtape import derivatives


# The name of what is called does not tell that a number is meant.
@pytest.mark.filterwarnings("ignore:derivatives. in .*, a tracked tensor became a number")
@pytest.mark.parametrize(
    "take", [nt.Tensor.item, float, int, nt.Tensor.numpy, nt.Tensor.tolist, bool], ids=lambda take: take.__name__
)
def test_a_function_that_catches_what_a_series_refuses_is_run_again(take):
    def function(x):
        try:
            constant = 1.0 * take(x)
        except TypeError:
            constant = -100.0
        return x * x * constant

    expected = float(take(nt.tensor(3.0)))
    assert derivatives(function, 3.0, 2) == [9.0 * expected, 6.0 * expected, 2.0 * expected]


def test_a_function_that_makes_other_errors_of_what_a_series_refuses_is_run_again():
    def translated(function):
        def run(x):
            try:
                return function(x)
            except Exception:
                raise RuntimeError("the model failed") from None

        return run

    def filled(x):
        out = nt.zeros((), dtype="float64")
        out += x * x
        return out

    assert derivatives(translated(filled), 3.0, 2) == [9.0, 6.0, 2.0]
    assert derivatives(translated(lambda x: nt.grad(lambda y: y * y * x)(x)), 3.0, 2) == [18.0, 12.0, 4.0]


def test_a_function_that_catches_a_refused_write_or_transform_is_run_again():
    def caught(function):
        def run(x):
            try:
                return function(x)
            except Exception:
                return x

        return run

    def filled(x):
        out = nt.zeros(2, dtype="float64")
        out += x
        out.copy_(nt.stack([x, x * x]))
        return out.sum()

    assert derivatives(caught(filled), 3.0, 2) == [12.0, 7.0, 2.0]
    assert derivatives(caught(lambda x: nt.grad(lambda y: y * y * x)(x)), 3.0, 2) == [18.0, 12.0, 4.0]


def test_a_number_has_no_length_on_series_either():
    with pytest.raises(nt.errors.OperandError, match=r"^len\(\): a tensor without axes has no length"):
        derivatives(lambda x: x * len(x), 3.0, 2)
