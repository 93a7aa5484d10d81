"""The form of unknowns: results go by the keys of dicts, another form is an error, a list of numbers is a vector."""

from typing import Any, NamedTuple

import numpy as np
import pytest
import scipy.optimize

import numtape as nt
from numtape.errors import ArgumentError, OperandError, ShapeError

implicit = nt.implicit
GRADIENTS = ("unrolled", "checkpointed", "adjoint")
START = {"q": 1.0, "p": 0.0}


class State(NamedTuple):
    parts: Any
    rest: Any


def turned(t, s):
    return {"p": -s["q"], "q": s["p"]}


def test_a_slope_goes_by_its_keys():
    found = implicit.odeint(turned, START, [0.0, 1.0], rtol=1e-10)
    assert list(found) == ["q", "p"]
    np.testing.assert_allclose([found["q"][-1], found["p"][-1]], [np.cos(1.0), -np.sin(1.0)], rtol=1e-8)


@pytest.mark.parametrize("gradient", GRADIENTS)
def test_gradients_of_a_slope_go_by_its_keys(gradient):
    def end(start):
        return implicit.odeint(turned, start, [0.0, 1.0], gradient=gradient, rtol=1e-10)["q"][-1]

    found = nt.grad(end)(START)
    np.testing.assert_allclose([found["q"], found["p"]], [np.cos(1.0), np.sin(1.0)], rtol=1e-6)


def test_keys_within_another_container_count_too():
    start = State({"q": 1.0, "p": 0.0}, [np.ones(2), 1.0])
    found = implicit.odeint(
        lambda t, s: State(turned(t, s.parts), (-s.rest[0], s.rest[1])), start, [0.0, 1.0], rtol=1e-10
    )
    assert found.parts["q"][-1] == pytest.approx(np.cos(1.0))
    assert found.rest[1][-1] == pytest.approx(np.e)


def test_equations_go_by_their_keys():
    start = {"a": 1.0, "b": 0.5}
    found = implicit.fixed_point(lambda x: {"b": 0.5 * x["b"] + 1.0, "a": nt.cos(x["a"])}, start)
    assert list(found) == ["a", "b"]
    np.testing.assert_allclose([found["a"], found["b"]], [0.7390851332151607, 2.0])

    def equations(x, p):
        return {"b": x["b"] - p, "a": x["a"] - x["b"] ** 2}

    assert implicit.root(equations, start, 3.0) == {"a": 9.0, "b": 3.0}
    assert nt.jacobian(lambda p: implicit.root(equations, start, p))(3.0) == {"a": 6.0, "b": 1.0}
    found = implicit.linear_solve(lambda x: {"b": 2.0 * x["b"], "a": 4.0 * x["a"]}, {"a": 1.0, "b": 1.0})
    assert found == {"a": 0.25, "b": 0.5}


def test_a_solver_may_ask_with_keys_in_another_order():
    def newton(function, x):
        off = function({"b": x["b"], "a": x["a"]})
        return {"b": x["b"] - off["b"], "a": x["a"] - off["a"]}

    start = {"a": 0.0, "b": 0.0}
    assert implicit.root(lambda x: {"a": x["a"] - 1.0, "b": x["b"] - 2.0}, start, solver=newton) == {"a": 1.0, "b": 2.0}
    with pytest.raises(ArgumentError) as error:
        implicit.root(lambda x: x, start, solver=lambda f, x: f({"a": 1.0, "c": 2.0}))
    assert str(error.value) == (
        "root: the solver called the function with another form than that of x0; tree: a dict of 'a', 'b' is wanted, "
        "not one of 'a', 'c'."
    )


@pytest.mark.parametrize(
    ("out", "difference"),
    [
        (lambda s: {"q": s["q"], "r": s["p"]}, "a dict of 'q', 'p' is wanted, not one of 'q', 'r'."),
        (lambda s: {"q": s["q"]}, "a dict of 'q', 'p' is wanted, not one of 'q'."),
        (lambda s: (s["q"], s["p"]), "a dict of 'q', 'p' is wanted, not tuple."),
        (lambda s: s["q"], "a dict of 'q', 'p' is wanted, not Tensor."),
        (lambda s: {"q": s["q"], "p": [s["p"]]}, "a list stands where a leaf belongs."),
    ],
)
def test_another_form_is_an_error_that_names_the_difference(out, difference):
    calls = {
        "odeint: <lambda> returned another form than that of y": lambda: implicit.odeint(
            lambda t, s: out(s), START, [0.0, 1.0]
        ),
        "root: <lambda> returned another form than that of x": lambda: implicit.root(lambda x: out(x), START),
        "fixed_point: <lambda> returned another form than that of x": lambda: implicit.fixed_point(
            lambda x: out(x), START
        ),
        "linear_solve: <lambda> returned another form than that of x": lambda: implicit.linear_solve(
            lambda x: out(x), START
        ),
    }
    for message, call in calls.items():
        with pytest.raises(OperandError) as error:
            call()
        assert str(error.value) == f"{message}; tree: {difference}"


def test_a_dict_for_a_number_is_an_error_and_so_is_nothing():
    with pytest.raises(OperandError, match=r"^root: <lambda> returned another form than that of x; tree: a dict"):
        implicit.root(lambda x: {"x": x}, 1.0)
    with pytest.raises(OperandError) as error:
        implicit.odeint(lambda t, y: None, 1.0, [0.0, 1.0])
    assert str(error.value) == "odeint: <lambda> returned None; it must return a tensor or a tree of them."


def test_a_list_of_numbers_is_a_vector():
    found = implicit.odeint(lambda t, y: -y, [1, 2], [0, 1], rtol=1e-10)
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, [[1.0, 2.0], [np.exp(-1.0), 2.0 * np.exp(-1.0)]], rtol=1e-8)
    assert implicit.odeint(lambda t, y: -y, [[1, 2.0], [3, 4]], [0, 1]).shape == (2, 2, 2)
    assert implicit.odeint(lambda t, y: -y, list(np.ones(2, np.float32)), [0, 1]).dtype == np.float32
    np.testing.assert_allclose(implicit.root(lambda x: [x[0] - 1.0, x[0] * x[1] - 2.0], [1, 1]), [1.0, 2.0])
    np.testing.assert_allclose(implicit.fixed_point(lambda x: 0.5 * x + 1.0, [1, 1]), [2.0, 2.0])
    np.testing.assert_allclose(implicit.minimize(lambda x: ((x - 3.0) ** 2).sum(), [1, 1]), [3.0, 3.0])
    np.testing.assert_allclose(implicit.least_squares(lambda x: x - np.arange(2), [1, 1]), [0.0, 1.0], atol=1e-12)
    np.testing.assert_allclose(implicit.linear_solve(lambda x: 2.0 * x, [1, 3]), [0.5, 1.5])
    found = implicit.root(lambda x: [x[0] - 1.0, x[0] * x[1] - 2.0], [1, 1], solver=scipy.optimize.root)
    np.testing.assert_allclose(found, [1.0, 2.0])


@pytest.mark.parametrize("gradient", GRADIENTS)
def test_a_list_is_a_vector_where_it_is_differentiated_by_as_well(gradient):
    def end(start):
        return implicit.odeint(lambda t, y: -y, start, [0.0, 1.0], gradient=gradient, rtol=1e-10)[-1][1]

    assert end([1.0, 2.0]) == pytest.approx(2.0 * np.exp(-1.0))
    np.testing.assert_allclose(nt.grad(end)([1.0, 2.0]), [0.0, np.exp(-1.0)], rtol=1e-7)
    a = nt.tensor(2.0, dtype="float64", requires_grad=True)
    end([0.0, a]).backward()
    assert a.grad.item() == pytest.approx(np.exp(-1.0))
    found = nt.grad(lambda b: implicit.linear_solve(lambda x: 2.0 * x, b)[0])([1.0, 1.0])
    np.testing.assert_allclose(found, [0.5, 0.0])


def test_tuples_and_lists_of_arrays_are_trees():
    found = implicit.odeint(lambda t, y: (-y[0], y[1]), (1, 2), [0, 1])
    assert type(found) is tuple
    assert found[1].shape == (2,)
    found = implicit.odeint(lambda t, y: [-y[0], y[1]], [np.ones(2), 1.0], [0, 1])
    assert [part.shape for part in found] == [(2, 2), (2,)]
    assert implicit.root(lambda x: (x[0] - 1.0, x[1] - 2.0), (0, 0)) == (1.0, 2.0)


def test_lists_that_make_no_vector_are_named():
    with pytest.raises(ShapeError) as error:
        implicit.odeint(lambda t, y: -y, [[1, 2], [3]], [0, 1])
    assert str(error.value) == (
        "odeint: y0 is a list that makes no array; nested lists must have equal lengths at each depth."
    )
    with pytest.raises(ShapeError, match=r"^root: x0 is a list that makes no array"):
        implicit.root(lambda x: x, [[nt.tensor(1.0), 2.0], 3.0])
    with pytest.raises(OperandError, match=r"^root: x0 holds bool"):
        implicit.root(lambda x: x, [True, 1.0])
    with pytest.raises(OperandError, match=r"^root: x0 is \[\[\], \[\]\]; it must be"):
        implicit.root(lambda x: x, [[], []])
