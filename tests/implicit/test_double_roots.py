"""Answers that are not isolated have no derivatives, wherever they hide; those that are keep theirs."""

import numpy as np
import pytest
import scipy.stats

import numtape as nt
from numtape.errors import ConvergenceError, LinearAlgebraError

implicit = nt.implicit

#: Equations of one unknown whose root at 1 is a multiple one for a = 1.
MULTIPLE = {
    "a product": lambda x, a: (x - a) * (x - 1.0),
    "a square that rounds": lambda x, a: x * x - 2.0 * x + a,
    "a cube": lambda x, a: (x - 1.0) ** 3 - (a - 1.0),
    "a level crest": lambda x, a: 1.0 - nt.cos(x - 1.0) - (a - 1.0),
}


def refused(derivative, *args):
    with pytest.raises(LinearAlgebraError, match="as at a double root"):
        derivative(*args)


def rotation(n, seed=0):
    return scipy.stats.ortho_group.rvs(n, random_state=seed) if n > 1 else np.ones((1, 1))


@pytest.mark.parametrize("name", MULTIPLE)
@pytest.mark.parametrize(("n", "place"), [(1, 0), (2, 0), (2, 1), (5, 2), (50, 49)])
def test_a_double_root_beside_regular_unknowns_is_refused_wherever_it_is(name, n, place):
    is_double = np.arange(n) == place

    def answer(a, order):
        def equations(x):
            return nt.where(is_double, MULTIPLE[name](x, a), 2.0 * x - 3.0 * a)[order]

        return implicit.root(equations, np.full(n, 2.0)).sum()

    for order in (np.arange(n), np.arange(n)[::-1].copy(), np.roll(np.arange(n), 1)):
        refused(nt.grad(answer), 1.0, order)


@pytest.mark.parametrize("n", [2, 5, 50, 600])
@pytest.mark.parametrize("seed", [0, 1])
def test_a_double_root_is_refused_in_rotated_equations(n, seed):
    matrix, is_double = rotation(n, seed), np.arange(n) == n // 2

    def answer(a):
        return implicit.root(
            lambda x: matrix @ nt.where(is_double, (x - a) * (x - 1.0), x - 2.0 * a), np.full(n, 2.0)
        ).sum()

    refused(nt.grad(answer), 1.0)


@pytest.mark.parametrize("n", [2, 5, 50])
def test_a_double_root_is_refused_in_rotated_unknowns(n):
    matrix, is_double = rotation(n), np.arange(n) == 0

    def answer(a):
        def equations(x):
            y = matrix @ x
            return nt.where(is_double, (y - a) * (y - 1.0), y - 2.0 * a)

        return implicit.root(equations, matrix.T @ np.full(n, 2.0)).sum()

    refused(nt.grad(answer), 1.0)


@pytest.mark.parametrize("off", [1e-7, 1e-6, 1e-5])
@pytest.mark.parametrize("n", [1, 2, 5, 50])
def test_a_double_root_is_refused_however_near_a_solver_came(off, n):
    matrix, is_double = rotation(n), np.arange(n) == n - 1

    def answer(a):
        return implicit.root(
            lambda x: matrix @ nt.where(is_double, (x - a) * (x - 1.0), x - a),
            np.ones(n),
            solver=lambda f, x: 1.0 + off * is_double,
        ).sum()

    refused(nt.grad(answer), 1.0)


@pytest.mark.parametrize("units", [1e-14, 1e-6, 1e6, 1e12])
@pytest.mark.parametrize("name", ["a product", "a cube"])
def test_a_double_root_is_refused_in_any_units(units, name):
    def answer(a):
        def equations(v):
            return nt.stack([v[0] - 2.0 * a, units * MULTIPLE[name](v[1] / units, a)])

        return implicit.root(equations, np.array([2.0, 2.0 * units]))[1]

    refused(nt.grad(answer), 1.0)


def test_a_double_root_is_refused_in_float32():
    e = np.array([0.0, 1.0], np.float32)

    def answer(a):
        return implicit.root(lambda x: nt.where(e > 0, (x - a) * (x - 1.0), 2 * x - 3 * a), np.full_like(e, 2.0)).sum()

    refused(nt.grad(answer), np.float32(1.0))


def test_a_second_derivative_at_a_double_root_is_refused():
    def answer(a):
        return implicit.root(lambda v: nt.stack([v[0] - 2 * a, (v[1] - a) * (v[1] - 1.0)]), np.array([2.0, 2.0]))[1]

    refused(nt.grad(nt.grad(answer)), 1.0)


def test_one_of_several_products_has_a_double_root():
    others = np.array([0.5, 0.7, 1.0, 0.2, 0.1])

    def answer(a, others):
        return implicit.root(lambda x: (x - a) * (x - others), np.full(5, 3.0))

    refused(nt.jacobian(answer), 1.0, others)
    others[2] = 0.9
    np.testing.assert_allclose(nt.jacobian(answer)(1.0, others), np.ones(5), rtol=1e-9)


def test_a_line_that_touches_a_circle_is_refused_and_one_that_crosses_it_is_not():
    def crossing(c):
        return implicit.root(lambda v: nt.stack([v[0] ** 2 + v[1] ** 2 - 1, v[1] - c]), np.array([0.5, 0.5]))[0]

    refused(nt.grad(crossing), 1.0)
    for c in (0.6, 0.99, 1.0 - 1e-8):
        # As exact as the height over the line is.
        assert nt.grad(crossing)(c) == pytest.approx(-c / np.sqrt((1.0 - c) * (1.0 + c)), rel=1e-15 / (1.0 - c) + 1e-12)


def lowest(a):
    e = np.array([0.0, 1.0])
    return implicit.minimize(lambda x: nt.where(e > 0, ((x - a) * (x - 1)) ** 2, (x - a) ** 2).sum(), np.full(2, 2.0))


def fitted(a):
    e = np.array([0.0, 1.0])
    return implicit.least_squares(lambda x: nt.where(e > 0, (x - a) * (x - 1), x - a), np.full(2, 2.0))


def standing(a):
    e = np.array([0.0, 1.0])
    return implicit.fixed_point(lambda x: nt.where(e > 0, x - (x - a) * (x - 1) / 2, 0.5 * x + a), np.full(2, 1.5))


def in_a_tree(a):
    start = {"u": np.full(3, 2.0), "v": np.full(2, 2.0)}
    found = implicit.root(lambda x: {"u": x["u"] - 2 * a, "v": (x["v"] - a) * (x["v"] - 1.0)}, start)
    return nt.concatenate([found["u"], found["v"]])


@pytest.mark.parametrize("answer", [lowest, fitted, standing, in_a_tree])
def test_a_flat_direction_is_refused_in_every_form(answer):
    refused(nt.grad(lambda a: answer(a).sum()), 1.0)
    assert np.isfinite(nt.grad(lambda a: answer(a).sum())(1.2))


@pytest.mark.parametrize(("n", "linear"), [(600, "cg"), (1000, "auto"), (600, "dense")])
def test_one_flat_direction_among_many_is_refused_by_products_too(n, linear):
    is_flat = np.arange(n) == 7

    def answer(a):
        def value(x):
            return nt.where(is_flat, (x - 1.0) ** 4 - a * x, (x - 1.0 - a) ** 2).sum()

        return implicit.minimize(value, np.full(n, 2.0), linear=linear).sum()

    refused(nt.grad(answer), 0.0)
    slope = n - 1 + 1.0 / (12.0 * 0.25 ** (2.0 / 3.0))  # Of 1 + (a / 4)^(1/3), at a = 1.
    assert nt.grad(answer)(1.0) == pytest.approx(slope, rel=1e-9)


@pytest.mark.parametrize("anomaly", [1.0, 1e4, 1e8 + 1.0, 1e12, np.float32(1.0), np.float32(1005)])
def test_an_equation_that_bends_within_a_small_part_of_its_answer_keeps_its_derivative(anomaly):
    def eccentric(m):
        return implicit.root(lambda e: e - 0.9 * nt.sin(e) - m, m)

    expected = 1.0 / (1.0 - 0.9 * np.cos(np.float64(eccentric(anomaly))))
    tolerance = 1e-5 if isinstance(anomaly, np.float32) else 1e-12
    assert nt.grad(eccentric)(anomaly) == pytest.approx(expected, rel=tolerance)


@pytest.mark.parametrize("gap", [1e-1, 1e-4, 1e-8, 1e-12])
def test_roots_that_lie_close_together_are_isolated_as_long_as_digits_tell_them_apart(gap):
    found = nt.grad(lambda a: implicit.root(lambda x: (x - a) * (x - 1.0), 3.0))(1.0 + gap)
    assert found == pytest.approx(1.0, rel=1e-3)


def test_a_function_that_rounds_coarsely_keeps_its_derivative():
    def answer(a):
        return implicit.root(
            lambda x: x.astype("float32").astype("float64") ** 2 - a,
            np.ones(3),
            solver=lambda f, x: np.sqrt(np.arange(1.0, 4.0)),
        ).sum()

    found = nt.grad(answer)(np.arange(1.0, 4.0))
    np.testing.assert_allclose(found, 0.5 / np.sqrt(np.arange(1.0, 4.0)), rtol=1e-6)


NONLINEAR = {
    "tanh": nt.tanh,
    "sin": lambda z: nt.sin(3.0 * z),
    "square": lambda z: z * z,
    "cube": lambda z: z**3,
    "exp": lambda z: nt.exp(0.5 * z),
}


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("name", NONLINEAR)
def test_ordinary_systems_in_many_units_are_not_refused(name, dtype):
    bend, digits = NONLINEAR[name], 8 if dtype is np.float64 else 4
    for seed, n in enumerate((1, 2, 3, 5, 8, 13, 21, 30)):
        rng = np.random.default_rng(seed)
        matrix = (rotation(n, seed) * np.exp(rng.uniform(-2.0, 2.0, n)) @ rotation(n, seed + 1)).astype(dtype)
        mixed = (0.3 * rng.normal(size=(n, n)) / n).astype(dtype)
        of_x, of_f = (10.0 ** rng.uniform(-digits, digits, (2, n))).astype(dtype)
        z = rng.normal(size=n).astype(dtype)
        right = matrix @ z + mixed @ np.asarray(bend(z))

        def answer(b, matrix=matrix, mixed=mixed, of_x=of_x, of_f=of_f, z=z):
            def equations(x):
                return of_f * (matrix @ (x / of_x) + mixed @ bend(x / of_x) - b)

            return implicit.root(equations, 1.001 * of_x * z) / of_x

        jacobian = matrix + mixed * np.diagonal(nt.jacobian(bend)(z))
        if np.linalg.cond(jacobian) < 1e3:
            off = np.abs(nt.jacobian(answer)(right) @ jacobian - np.eye(n)).max()
            assert off < (1e-10 if dtype is np.float64 else 1e-1)


@pytest.mark.parametrize("k", [0.5, 0.9, 1.0, 2.0])
def test_a_valley_that_bends_is_no_double_root_in_float32(k):
    def lowest(k):
        return nt.implicit.minimize(
            lambda v: 100 * (v[1] - v[0] ** 2) ** 2 + (k - v[0]) ** 2, np.array([0.5, 0.7], np.float32)
        )

    np.testing.assert_allclose(nt.jacobian(lowest)(np.float32(k)), [1.0, 2 * k], rtol=1e-4)


@pytest.mark.parametrize("weight", [1e6, 1e7, 1e8])
def test_a_stiff_penalty_makes_no_double_root(weight):
    def lowest(angle):
        far = nt.stack([nt.cos(angle), nt.sin(angle)]) * 2.0
        return nt.implicit.minimize(
            lambda v: ((v - far) ** 2).sum() + weight * ((v * v).sum() - 1) ** 2,
            np.array([0.7, 0.71]),
            max_iterations=2000,
        )

    np.testing.assert_allclose(nt.jacobian(lowest)(np.pi / 4), [-(0.5**0.5), 0.5**0.5], rtol=1e-5)


@pytest.mark.parametrize("linear", ["dense", "gmres"])
@pytest.mark.parametrize("unit", [1e-150, 1e-170])
def test_a_double_root_is_refused_where_amounts_are_too_small_for_a_float(unit, linear):
    def answer(a, other, by):
        return implicit.root(lambda x: (x - a) * ((x - other) / by), np.full(2, 1.5 * unit), linear=linear).sum()

    refused(nt.grad(answer), unit, unit, 1.0)
    refused(nt.grad(answer), unit, unit, unit)


@pytest.mark.parametrize("unit", [1e-150, 1e-170, 1e-300])
def test_a_simple_root_in_tiny_units_has_its_derivative(unit):
    def answer(a):
        return implicit.root(lambda x: (x - a) * (x / unit + 1.0), np.full(2, 1.5 * unit)).sum()

    assert nt.grad(answer)(unit) == pytest.approx(2.0)


@pytest.mark.parametrize("off", [0.0, 1e-15, 1e-14, 1e-12, 1e-10, 1e-8])
@pytest.mark.parametrize("power", [2, 3])
def test_a_multiple_root_along_a_mixture_is_refused_however_the_answer_is_off(power, off):
    def system(x, p):
        return nt.stack([(x[0] + x[1] - 3.0) ** power - p, x[0] - 2.0 * x[1], x[2] + x[0] * x[1] - 1.0])

    def answer(p):
        found = np.array([2.0 + off, 1.0 - 3.0 * off, -1.0 + off])
        return nt.implicit.root(lambda x: system(x, p), np.ones(3), solver=lambda f, x: found)

    with pytest.raises((LinearAlgebraError, ConvergenceError)):
        nt.jacobian(answer)(0.0)
