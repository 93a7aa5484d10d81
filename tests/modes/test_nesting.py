"""Forward and reverse mode nested in any order, without confusion."""

import itertools
import math

import numpy as np
import pytest
from functions import POINT, bowl, close

import numtape as nt


def forward_derivative(function):
    return lambda x: nt.jvp(function, x, nt.ones_like(x) if isinstance(x, nt.Tensor) else 1.0)[1]


def jacobian_forward(function):
    return nt.jacobian(function, mode="forward")


def jacobian_reverse(function):
    return nt.jacobian(function, mode="reverse")


WAYS = {"grad": nt.grad, "jvp": forward_derivative, "forward": jacobian_forward, "reverse": jacobian_reverse}


@pytest.mark.parametrize("ways", list(itertools.product(WAYS, repeat=3)), ids="-".join)
def test_all_nestings_of_three_give_the_third_derivative(ways):
    def function(x):
        return nt.exp(x * 0.5) * nt.sin(x) + x**4 / (1.0 + x * x)

    expected = nt.grad(nt.grad(nt.grad(function)))(0.7)
    derivative = function
    for way in ways:
        derivative = WAYS[way](derivative)
    close(derivative(0.7), expected)


def test_six_gradients_of_a_power():
    derivative = function = lambda x: x**7
    for order in range(1, 7):
        derivative = nt.grad(derivative) if order % 2 else forward_derivative(derivative)
        close(derivative(1.5), math.factorial(7) / math.factorial(7 - order) * 1.5 ** (7 - order))
    assert function(2.0) == 128.0


@pytest.mark.parametrize("outer", WAYS)
@pytest.mark.parametrize("inner", WAYS)
def test_no_perturbation_confusion(outer, inner):
    # d/dx [x * d/dy (x + y)] = 1 at x = 1: confusing the two gives 2.
    assert WAYS[outer](lambda x: x * WAYS[inner](lambda y: x + y)(1.0))(1.0) == 1.0
    # d/dx [x * d/dy (x * y)] = 2 x.
    assert WAYS[outer](lambda x: x * WAYS[inner](lambda y: x * y)(2.0))(3.0) == 6.0
    # The inner point depends on the outer one: d/dx [d/dy (x y**2) at y = x] = 4 x.
    assert WAYS[outer](lambda x: WAYS[inner](lambda y: x * y * y)(x * 1.0))(3.0) == 12.0


@pytest.mark.parametrize("outer", WAYS)
@pytest.mark.parametrize("inner", ["grad", "jvp", "reverse"])
def test_an_argmin_inside_of_an_argmin(outer, inner):
    def argmin(function, start, rate, steps):
        x = start
        for _ in range(steps):
            x = x - rate * WAYS[inner](function)(x)
        return x

    def best_response(x):
        # argmin over y of (y - x**2)**2 is x**2.
        return argmin(lambda y: (y - x * x) ** 2, 0.0 * x, 0.5, 3)

    def outer_loss(x):
        return (best_response(x) - 4.0) ** 2

    # d/dx (x**2 - 4)**2 = 4 x (x**2 - 4)
    close(WAYS[outer](outer_loss)(1.5), 4 * 1.5 * (1.5**2 - 4.0))
    solution = 1.5
    for _ in range(60):
        solution = solution - 0.02 * WAYS[outer](outer_loss)(solution)
    close(solution, 2.0, 1e-8)


def test_forward_over_reverse_is_the_hessian_vector_product():
    tangent = np.array([1.0, -2.0, 0.5, 3.0])
    expected = nt.hessian(bowl)(POINT) @ tangent
    close(nt.hvp(bowl, POINT, tangent), expected)
    close(nt.grad(lambda x: (nt.grad(bowl)(x) * tangent).sum())(POINT), expected)
    close(nt.grad(lambda x: nt.jvp(bowl, x, tangent)[1])(POINT), expected)


def test_hvp_of_several_arguments():
    def function(x, y):
        return (x * x * y).sum()

    x, y = np.array([1.0, 2.0]), np.array([3.0, 4.0])
    a, b = np.array([1.0, 0.0]), np.array([0.0, 1.0])
    by_x, by_y = nt.hvp(function, (x, y), (a, b))
    close(by_x, 2 * y * a + 2 * x * b)
    close(by_y, 2 * x * a)


def test_third_derivatives_by_nested_jacobians():
    third = nt.jacobian(nt.hessian(lambda x: (x**3).sum() + x[0] * x[1] * x[2]))(POINT)
    expected = np.zeros((4, 4, 4))
    expected[range(4), range(4), range(4)] = 6.0
    for order in itertools.permutations(range(3)):
        expected[order] = 1.0
    close(third, expected)
