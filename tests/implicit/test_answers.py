"""Roots, fixed points, minima, fits and linear systems: their answers, and derivatives against closed forms."""

import numpy as np
import pytest

import numtape as nt
from numtape.implicit.equations import Equation
from numtape.implicit.linearization import Linearization

implicit = nt.implicit


def differences(function, x, step=1e-5):
    """Return the Jacobian of a function of an array by central differences."""
    columns = []
    for index in np.ndindex(x.shape):
        shift = np.zeros_like(x)
        shift[index] = step
        columns.append((np.asarray(function(x + shift)) - np.asarray(function(x - shift))) / (2.0 * step))
    return np.stack(columns, axis=-1).reshape(columns[0].shape + x.shape)


def coupled(x, p):
    """A system of four equations with a dict of parameters."""
    return p["matrix"] @ x + 0.1 * nt.tanh(x) ** 2 - p["right"]


@pytest.fixture
def parameters():
    rng = np.random.default_rng(0)
    return {"matrix": rng.normal(size=(4, 4)) + 4.0 * np.eye(4), "right": rng.normal(size=4)}


def test_the_square_root_has_the_derivatives_of_the_square_root():
    def square_root(a):
        return implicit.root(lambda x, a: x * x - a, 1.0, a)

    assert square_root(9.0) == pytest.approx(3.0, rel=1e-15)
    derivative = square_root
    for expected in (1 / 6, -1 / 108, 1 / 648, -5 / 11664):
        derivative = nt.grad(derivative)
        assert derivative(9.0) == pytest.approx(expected, rel=1e-13)


def test_every_mix_of_modes_gives_the_second_derivative():
    def square_root(a):
        return implicit.root(lambda x, a: x * x - a, 1.0, a)

    def slope(a):
        return nt.jvp(square_root, a, np.ones(()) if isinstance(a, nt.Tensor) else 1.0)[1]

    expected = -1 / 108
    assert nt.grad(nt.grad(square_root))(9.0) == pytest.approx(expected, rel=1e-13)
    assert nt.jvp(nt.grad(square_root), 9.0, 1.0)[1] == pytest.approx(expected, rel=1e-13)
    assert nt.jvp(slope, 9.0, 1.0)[1] == pytest.approx(expected, rel=1e-13)
    assert nt.grad(slope)(9.0) == pytest.approx(expected, rel=1e-13)
    assert nt.derivatives(square_root, 9.0, 3) == pytest.approx([3.0, 1 / 6, expected, 1 / 648], rel=1e-13)


@pytest.mark.parametrize("mode", ["forward", "reverse"])
@pytest.mark.parametrize("linear", ["dense", "gmres"])
def test_a_jacobian_by_a_tree_agrees_with_differences(parameters, mode, linear):
    def answer(p):
        return implicit.root(coupled, np.zeros(4), p, linear=linear)

    found = nt.jacobian(answer, mode=mode)(parameters)
    for name in parameters:
        expected = differences(lambda v, name=name: answer({**parameters, name: v}), parameters[name])
        np.testing.assert_allclose(found[name], expected, atol=1e-10)


def test_captured_tensors_count_as_arguments_do(parameters):
    weights = np.array([1.0, -2.0, 3.0, -4.0])
    expected = nt.grad(lambda p: (implicit.root(coupled, np.zeros(4), p) * weights).sum())(parameters)
    held = {name: nt.tensor(value, requires_grad=True) for name, value in parameters.items()}
    (implicit.root(lambda x: coupled(x, held), np.zeros(4)) * weights).sum().backward()
    for name, tensor in held.items():
        np.testing.assert_allclose(tensor.grad.numpy(), expected[name], rtol=1e-13, atol=1e-15)


def test_what_is_captured_and_computed_from_it_counts_once_each():
    def answer(a):
        square = a * a
        return implicit.root(lambda x: x**3 + x - a * square, 1.0)

    x = answer(1.3)
    slope = 3 * 1.3**2 / (3 * x**2 + 1)
    assert nt.grad(answer)(1.3) == pytest.approx(slope, rel=1e-13)
    curve = (6 * 1.3 - 6 * x * slope**2) / (3 * x**2 + 1)
    assert nt.grad(nt.grad(answer))(1.3) == pytest.approx(curve, rel=1e-12)
    assert nt.jvp(nt.grad(answer), 1.3, 1.0)[1] == pytest.approx(curve, rel=1e-12)


def test_a_pull_function_works_after_the_transform_has_ended():
    _, pull = nt.vjp(lambda a: implicit.root(lambda x: x * x - a, 1.0), 9.0)
    assert pull(1.0)[0] == pytest.approx(1 / 6, rel=1e-14)
    assert pull(2.0)[0] == pytest.approx(1 / 3, rel=1e-14)


def test_a_hessian_through_a_root_is_symmetric_and_agrees_with_differences(parameters):
    def loss(right):
        return (implicit.root(coupled, np.zeros(4), {**parameters, "right": right}) ** 2).sum()

    found = nt.hessian(loss)(parameters["right"])
    np.testing.assert_allclose(found, found.T, atol=1e-14)
    np.testing.assert_allclose(found, differences(nt.grad(loss), parameters["right"]), atol=1e-9)


def test_a_tree_of_unknowns_comes_back_as_one():
    def equations(x, a):
        return {"u": x["u"] + x["v"].sum() - a, "v": x["v"] * x["u"] - nt.stack([a, 2.0 * a])}

    start = {"u": np.array(1.0), "v": np.array([1.0, 1.0])}

    answer = implicit.root(equations, start, 16.0)
    assert list(answer) == ["u", "v"]
    np.testing.assert_allclose(answer["u"] + answer["v"].sum(), 16.0, rtol=1e-14)
    slopes = nt.jacobian(lambda a: implicit.root(equations, start, a))(16.0)
    shifted = [implicit.root(equations, start, 16.0 + step) for step in (1e-5, -1e-5)]
    for name in start:
        expected = (shifted[0][name] - shifted[1][name]) / 2e-5
        np.testing.assert_allclose(slopes[name], expected, rtol=1e-8)


def test_answers_are_what_the_start_is():
    assert isinstance(implicit.root(lambda x: x - 2.0, 1.0), float)
    assert isinstance(implicit.root(lambda x: x - 2.0, np.array([1.0])), np.ndarray)
    assert isinstance(implicit.root(lambda x: x - 2.0, nt.tensor([1.0])), nt.Tensor)
    a = nt.tensor([2.0], requires_grad=True)
    answer = implicit.root(lambda x: x - a, np.array([1.0]))
    assert isinstance(answer, nt.Tensor)
    assert answer.dtype == np.float64
    with nt.no_grad():
        assert not implicit.root(lambda x: x - a, np.array([1.0])).requires_grad


def test_one_record_is_left_whatever_the_solver_did():
    a = nt.tensor(9.0, dtype="float64", requires_grad=True)
    answer = implicit.root(
        lambda x: x * x - a, 1.0, solver=lambda f, x: [x := x - f(x) / (2 * x) for _ in range(9)][-1]
    )
    assert [record.op.name for record in nt.records(answer)] == ["implicit"]
    answer.backward()
    assert a.grad.item() == pytest.approx(1 / 6, rel=1e-13)


def test_a_fixed_point_is_differentiable_by_a_matrix():
    rng = np.random.default_rng(1)
    matrix, shift = 0.3 * rng.normal(size=(5, 5)), rng.normal(size=5)

    def answer(matrix):
        return implicit.fixed_point(lambda x: nt.tanh(matrix @ x + shift), np.zeros(5))

    x = answer(matrix)
    np.testing.assert_allclose(x, np.tanh(matrix @ x + shift), rtol=1e-13)
    np.testing.assert_allclose(nt.jacobian(answer)(matrix), differences(answer, matrix), atol=1e-9)


def banana(x, a):
    return a[0] * ((1.0 - x[:-1]) ** 2).sum() + a[1] * ((x[1:] - x[:-1] ** 2) ** 2).sum() + 0.1 * a[0] * x.sum()


def test_a_minimum_is_differentiable_by_what_shapes_it():
    def answer(a):
        return implicit.minimize(banana, np.zeros(6), a)

    a = np.array([1.0, 100.0])
    found = nt.jacobian(answer)(a)
    # Scaling the function does not move its minimum.
    np.testing.assert_allclose(found @ a, np.zeros(6), atol=1e-10)
    np.testing.assert_allclose(found, differences(answer, a), atol=1e-8)
    for linear in ("cg", "dense", "gmres"):
        other = nt.jacobian(lambda a, linear=linear: implicit.minimize(banana, np.zeros(6), a, linear=linear))(a)
        np.testing.assert_allclose(other, found, atol=1e-10)


def test_the_second_derivative_of_a_minimum_agrees_with_differences():
    def total(a):
        return implicit.minimize(banana, np.zeros(4), a).sum()

    a = np.array([1.0, 20.0])
    np.testing.assert_allclose(nt.hessian(total)(a), differences(nt.grad(total), a), atol=1e-8)


def test_a_linear_fit_has_the_pseudoinverse_as_its_derivative():
    t = np.linspace(0.0, 1.0, 7)
    design = np.stack([np.ones(7), t, t**2], axis=1)
    y = np.cos(t)
    found = nt.jacobian(lambda y: implicit.least_squares(lambda p: design @ p - y, np.zeros(3)))(y)
    np.testing.assert_allclose(found, np.linalg.pinv(design), atol=1e-12)


def test_a_nonlinear_fit_is_differentiable_by_its_data():
    t = np.linspace(0.0, 3.0, 20)
    y = 2.0 * np.exp(-1.3 * t) + 0.05 * np.sin(9.0 * t)
    start = {"size": np.array(1.0), "rate": np.array(1.0)}

    def rate(y):
        return implicit.least_squares(lambda p: p["size"] * nt.exp(-p["rate"] * t) - y, start)["rate"]

    np.testing.assert_allclose(nt.grad(rate)(y), differences(rate, y), atol=1e-9)


@pytest.mark.parametrize("linear", ["dense", "cg", "gmres"])
def test_a_linear_system_agrees_with_solve(linear):
    rng = np.random.default_rng(2)
    root = rng.normal(size=(6, 6))
    matrix, right = root @ root.T + np.eye(6), rng.normal(size=6)

    def ours(matrix, right):
        return implicit.linear_solve(lambda x, m: m @ x, right, matrix, is_positive=linear == "cg", linear=linear)

    np.testing.assert_allclose(ours(matrix, right), np.linalg.solve(matrix, right), rtol=1e-12)
    for number in (0, 1):
        mine = nt.grad(lambda m, b: (ours(m, b) ** 2).sum(), number)(matrix, right)
        theirs = nt.grad(lambda m, b: (nt.solve(m, b) ** 2).sum(), number)(matrix, right)
        np.testing.assert_allclose(mine, theirs, rtol=1e-11, atol=1e-13)


def test_a_linear_system_is_given_as_a_matrix_too():
    matrix, right = np.array([[2.0, 1.0], [0.0, 4.0]]), np.array([1.0, 2.0])
    np.testing.assert_allclose(implicit.linear_solve(matrix, right), [0.25, 0.5], rtol=1e-15)
    found = nt.jacobian(lambda b: implicit.linear_solve(matrix, b))(right)
    np.testing.assert_allclose(found, np.linalg.inv(matrix), rtol=1e-14)


def test_products_alone_solve_what_has_no_room_for_a_matrix():
    # The second difference of 2,000 unknowns; its inverse takes the sine to a multiple of it.
    n = 2000
    frequency = np.pi / (n + 1)
    mode = np.sin(frequency * np.arange(1, n + 1))

    def bent(x, k):
        padded = nt.pad(x, 1)
        return k * x + 2.0 * x - padded[2:] - padded[:-2]

    def amplitude(k):
        return implicit.linear_solve(bent, mode, k, is_positive=True) @ mode

    value = 1.0 / (0.5 + 2.0 - 2.0 * np.cos(frequency))
    assert amplitude(0.5) == pytest.approx(value * (mode @ mode), rel=1e-10)
    assert nt.grad(amplitude)(0.5) == pytest.approx(-(value**2) * (mode @ mode), rel=1e-10)


def test_the_first_gradient_takes_one_value_more_than_the_solves_to_look_for_double_roots(monkeypatch):
    counts = {"times": 0, "transposed_times": 0, "at": 0}
    for name in counts:
        kind = Equation if name == "at" else Linearization
        original = getattr(kind, name)

        def counted(self, *args, name=name, original=original):
            counts[name] += 1
            return original(self, *args)

        monkeypatch.setattr(kind, name, counted)
    right = nt.tensor(np.linspace(-1.0, 1.0, 40), requires_grad=True)

    def bowl(x, right):
        return (x * x + 0.1 * x**4).sum() - (right * x).sum()

    answer = implicit.minimize(bowl, np.zeros(40), right, linear="cg")
    counts.update(times=0, transposed_times=0, at=0)
    answer.backward(np.ones(40), retain_graph=True)
    first = dict(counts)
    counts.update(times=0, transposed_times=0, at=0)
    answer.backward(np.ones(40))
    assert (first["at"], counts["at"]) == (1, 0)
    assert first["times"] == counts["times"] == 0
    assert first["transposed_times"] <= 2 * counts["transposed_times"]


def test_checkpointing_solves_again_with_the_same_answer():
    a = nt.tensor([9.0], dtype="float64", requires_grad=True)
    nt.checkpoint(lambda a: implicit.root(lambda x, a: x * x - a, np.array([1.0]), a * 1.0) ** 3, a).sum().backward()
    assert a.grad.item() == pytest.approx(4.5, rel=1e-14)


def test_a_tape_watches_what_a_function_captures():
    with nt.Tape() as tape:
        a = nt.tensor([9.0], dtype="float64")
        answer = implicit.root(lambda x: x * x - a, np.array([1.0]))
    np.testing.assert_allclose(tape.gradient(answer, a).numpy(), [1 / 6], rtol=1e-14)


def test_float32_and_half_parameters_keep_their_dtypes():
    a = nt.tensor([9.0, 4.0], requires_grad=True)
    answer = implicit.root(lambda x: x * x - a, nt.ones(2))
    assert answer.dtype == np.float32
    answer.sum().backward()
    np.testing.assert_allclose(a.grad.numpy(), [1 / 6, 1 / 4], rtol=1e-6)
    half = nt.tensor([9.0, 4.0], dtype="float16", requires_grad=True)
    implicit.root(lambda x: x * x - half, nt.ones(2)).sum().backward()
    assert half.grad.dtype == np.float16
    np.testing.assert_allclose(half.grad.numpy(), [1 / 6, 1 / 4], rtol=1e-3)


def test_equations_and_unknowns_may_have_any_units():
    def answer(a):
        return implicit.root(lambda x: 1e-20 * (1e12 * x * x - a), 1e-6)

    assert answer(9.0) == pytest.approx(3e-6, rel=1e-14)
    assert nt.grad(answer)(9.0) == pytest.approx(1e-6 / 6, rel=1e-13)


def test_a_root_at_zero_is_found_from_zero():
    assert nt.grad(lambda a: implicit.root(lambda x: nt.exp(x) - 1.0 - a, 0.0))(0.0) == pytest.approx(1.0, rel=1e-12)


@pytest.mark.parametrize(
    ("function", "start", "expected"),
    [
        (lambda x: nt.log(x) + 30.0, 1.0, np.exp(-30.0)),
        (lambda x: x * x - 1e-20, 1.0, 1e-10),
        (lambda x: x**3 - 8.0, 1e8, 2.0),
        (lambda x: nt.log(x) + np.array([0.0, 20.0]), np.ones(2), np.array([1.0, np.exp(-20.0)])),
        (
            lambda x: nt.stack([1e10 * (x[0] ** 2 - 2.0), x[1] ** 3 - 1e-30]),
            np.ones(2),
            np.array([np.sqrt(2.0), 1e-10]),
        ),
    ],
)
def test_a_root_has_all_digits_however_small_it_is_beside_the_start_and_the_others(function, start, expected):
    np.testing.assert_allclose(implicit.root(function, start), expected, rtol=1e-12)


def test_a_minimum_has_all_digits_however_far_the_start_was():
    found = implicit.minimize(lambda x: (x - 2.0) ** 2 + 1e-3 * (x - 2.0) ** 4, 1e7)
    assert found == pytest.approx(2.0, rel=1e-14)


def test_a_root_is_found_to_the_last_digits_where_the_equation_bends_within_a_small_part_of_it():
    assert implicit.root(lambda x: (x - 1e6) ** 2 - 1e-4, 1e6 + 1.0) - 1e6 == pytest.approx(0.01, abs=1e-9)


def test_a_root_of_several_orders_at_zero_is_zero():
    assert implicit.root(lambda x: x**2, 1.0) == 0.0
    np.testing.assert_array_equal(implicit.root(lambda x: x**3, np.ones(2)), np.zeros(2))


def test_a_matrix_takes_over_where_products_do_not_converge():
    rng = np.random.default_rng(0)
    left, right = (np.linalg.qr(rng.normal(size=(600, 600)))[0] for _ in range(2))
    matrix = left * np.logspace(0.0, 3.0, 600) @ right
    expected = np.linalg.solve(matrix, np.ones(600)).sum()
    slope = nt.grad(lambda a: implicit.root(lambda x: matrix @ x - a, np.zeros(600)).sum())(1.0)
    assert slope == pytest.approx(expected, rel=1e-9)


def test_equations_may_come_as_a_list_of_numbers():
    answer = nt.jacobian(lambda a: implicit.root(lambda x: [x[1] - a, x[0] * x[1] - 6.0], np.ones(2)))(2.0)
    np.testing.assert_allclose(answer, [-1.5, 1.0], rtol=1e-13)


@pytest.mark.parametrize("seeks", [implicit.root, lambda f, x: implicit.odeint(lambda t, y: f(y), x, [0.0, 0.1])])
def test_an_untracked_tensor_that_is_captured_makes_the_answer_a_tensor(seeks):
    u = nt.tensor(4.0, dtype="float64")

    def inner(x):
        return x * x - u

    assert isinstance(seeks(inner, 1.0), nt.Tensor)
    assert isinstance(seeks(lambda x: inner(x), 1.0), nt.Tensor)
    assert not isinstance(seeks(lambda x: x * x - 4.0, 1.0), nt.Tensor)


def test_the_gradient_of_an_answer_to_what_is_captured_can_be_checked():
    assert nt.check_gradients(lambda a: implicit.root(lambda x: x**3 + x - a, np.zeros(2)), np.ones(2))


def slope_by_tape(x):
    with nt.enable_grad(), nt.GradientTape() as tape:
        y = tape.watch(x * 1.0)
        loss = (y**4).sum() / 4
    return tape.gradient(loss, y)


@pytest.mark.parametrize(
    "solve",
    [
        lambda slope, a: nt.implicit.root(lambda x: x + slope(x) - slope(a), np.ones(2)),
        lambda slope, a: nt.implicit.root(lambda x, a: x + slope(x) - slope(a), np.ones(2), a),
        lambda slope, a: nt.implicit.fixed_point(lambda x: 0.1 * slope(x) + 0.2 * slope(a), np.zeros(2)),
        lambda slope, a: nt.implicit.minimize(lambda x: (x * slope(x) - x * slope(a)).sum(), np.ones(2)),
        lambda slope, a: nt.implicit.least_squares(lambda x: x + slope(x) - slope(a), np.ones(2)),
    ],
    ids=["captured", "passed", "fixed_point", "minimize", "least_squares"],
)
def test_a_function_may_take_derivatives_by_a_tape(solve):
    def derivatives(slope):
        at = np.array([1.2, 0.7])
        yield solve(slope, nt.tensor(at))
        yield nt.grad(lambda a: solve(slope, a).sum())(at)
        yield nt.jvp(lambda a: solve(slope, a), at, at)[1]
        yield nt.hessian(lambda a: solve(slope, a).sum())(at)

    by_grad = nt.grad(lambda x: (x**4).sum() / 4)
    for found, wanted in zip(derivatives(slope_by_tape), derivatives(by_grad), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-9)
