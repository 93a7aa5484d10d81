"""Functions that do something else when they run again for their derivative are refused, in any unit and order."""

import numpy as np
import pytest

import numtape as nt
from numtape.errors import GradientError, LinearAlgebraError
from numtape.implicit.traces import _agree, _bits, _printed

implicit = nt.implicit


def recorded(function, at):
    """Return a gradient that can be differentiated again."""
    a = nt.tensor(np.array(at))
    with nt.Tape(), nt.Tape() as inner:
        y = function(a)
        return inner.gradient(y, a)


DERIVATIVES = {
    "plain": lambda function, at: nt.grad(function)(at),
    "recorded": recorded,
    "forward": lambda function, at: nt.jvp(function, (np.array(at),), (np.array(1.0),)),
    "second": lambda function, at: nt.grad(nt.grad(function))(at),
    "forward over reverse": lambda function, at: nt.hessian(function)(np.array(at)),
}

AGAIN = r"^\w+: <lambda> did something else when it ran again for its derivative, from \w+ at .* on: another number "


def test_other_values_in_a_second_run_are_an_error():
    a = nt.tensor([1.0], dtype="float64", requires_grad=True)
    target = 9.0
    answer = implicit.root(lambda x: a * x * x - target, np.ones(1))
    target = 4.0
    with pytest.raises(GradientError) as error:
        answer.sum().backward()
    line = test_other_values_in_a_second_run_are_an_error.__code__.co_firstlineno + 3
    assert str(error.value) == (
        f"root: <lambda> did something else when it ran again for its derivative, from sub at {__file__}:{line} "
        "(answer = implicit.root(lambda x: a * x * x - target, np.ones(1))) on: another number entered, or another op "
        "ran. It must depend on its arguments and on what does not change; pass what changes as an argument."
    )


@pytest.mark.parametrize("derivative", DERIVATIVES.values(), ids=DERIVATIVES)
@pytest.mark.parametrize(
    ("make", "at"),
    [
        (lambda p, k: implicit.minimize(lambda z: (z - p) ** 2 + k[0] * z**2, 1.0), 1.0),
        (lambda p, k: implicit.minimize(lambda z: 1e-9 * ((z - p) ** 2 + k[0] * z**2), 1.0), 1.0),
        (lambda p, k: implicit.fixed_point(lambda z: (p + z * k[0]) / 5.0, 1e-9), 1e-9),
        (lambda p, k: implicit.root(lambda z: z - k[0] * p, 1.0), 0.0),
        (lambda p, k: implicit.root(lambda z: 1e-300 * z - 1e-300 * k[0] * p, 1.0), 1.0),
        (lambda p, k: implicit.linear_solve(lambda z: k[0] * z, p), 1.0),
        (lambda p, k: implicit.root(lambda z: z - implicit.root(lambda w: w - k[0] * p, 1.0), 1.0), 0.0),
    ],
)
def test_a_number_that_changes_in_a_loop_is_noticed_in_every_mode_and_unit(make, at, derivative):
    def total(p):
        k, found = [0.0], []
        for k[0] in (1.0, 2.0, 3.0):
            found.append(make(p, k))
        return sum(found[1:], found[0])

    with pytest.raises(GradientError, match=AGAIN):
        derivative(total, at)


def test_a_recorded_derivative_at_a_double_root_is_refused():
    with pytest.raises(LinearAlgebraError, match="as at a double root"):
        recorded(lambda a: implicit.root(lambda z: (z - 1.0) ** 2 - (a - 1.0), 3.0), 1.0)
    with pytest.raises(LinearAlgebraError, match="as at a double root"):
        nt.grad(lambda b: nt.grad(lambda a: implicit.root(lambda z: (z - 1.0) ** 2 - (a - b), 3.0))(b))(1.0)


def test_a_captured_array_that_is_overwritten_before_a_recorded_derivative_is_noticed():
    a, c = nt.tensor(1.0, dtype="float64"), np.array([2.0, 3.0])
    with nt.Tape(), nt.Tape() as inner:
        y = implicit.root(lambda z: z * c - a, np.ones(2)).sum()
        c[0] = 5.0
        with pytest.raises(GradientError, match=AGAIN):
            inner.gradient(y, a)


def test_a_tensor_that_takes_the_place_of_another_is_noticed_in_a_recorded_derivative():
    a, box = nt.tensor(1.0, dtype="float64"), [nt.tensor(3.0, dtype="float64")]
    with nt.Tape(), nt.Tape() as inner:
        y = implicit.root(lambda z: 2.0 * z - a * box[0], 1.0)
        first, box[0] = box[0], nt.tensor(3.0, dtype="float64")
        with pytest.raises(GradientError):
            inner.gradient(y, first)


def test_tensors_that_change_places_are_noticed_although_their_values_are_equal():
    a, b = (nt.tensor(4.0, dtype="float64", requires_grad=True) for _ in range(2))
    pair = [a, b]
    answer = implicit.root(lambda z: pair[0] * z - pair[1], 2.0)
    pair.reverse()
    with pytest.raises(GradientError, match=AGAIN):
        answer.backward()


@pytest.mark.parametrize("order", [2, 3])
def test_what_changes_between_two_orders_is_noticed(order):
    a, c = nt.tensor(1.0, dtype="float64"), 2.0
    tapes = [nt.Tape() for _ in range(order)]
    for tape in tapes:
        tape.__enter__()
    y = implicit.root(lambda z: z**3 * c - a, 1.0)
    for tape in tapes[:0:-1]:
        y = tape.gradient(y, a)
        tape.__exit__(None, None, None)
    tapes[0].__exit__(None, None, None)
    c = 5.0
    with pytest.raises(GradientError, match=AGAIN):
        tapes[0].gradient(y, a)


def test_a_parameter_of_an_op_that_changes_is_noticed():
    a, index, power = nt.tensor([2.0, 2.0], dtype="float64", requires_grad=True), 0, 2
    answer = implicit.root(lambda z: z**power - a[index], 1.5)
    index = 1
    with pytest.raises(GradientError, match=AGAIN):
        answer.backward()


def test_what_ops_of_the_users_own_return_is_compared():
    c = 2.0

    @nt.custom_gradient
    def by_function(x):
        return c * x, lambda g: c * g

    @nt.custom_op(vjp={"x": lambda g: c * g}, linear=("x",), check=False)
    def by_op(x, /):
        return c * x

    a = nt.tensor(4.0, dtype="float64", requires_grad=True)
    answers = [implicit.root(lambda z, each=each: each(z) - a, 1.0) for each in (by_function, by_op)]
    c = 3.0
    for answer in answers:
        with pytest.raises(GradientError):
            answer.backward()


def test_statistics_and_constants_that_stay_are_no_difference():
    layer = nt.nn.BatchNorm1d(3)
    weight = nt.tensor(np.eye(3), requires_grad=True)
    x = np.random.default_rng(0).normal(size=(8, 3))
    state = implicit.fixed_point(lambda z: 0.1 * nt.tanh(layer(z.astype("float32")) @ weight + x), np.ones((8, 3)))
    (state**2).sum().backward()
    assert weight.grad is not None


def overwritten_matrix(dtype, large, solve):
    """Overwrite a small element of a matrix, beside a large one, after a system with it was solved."""
    matrix = np.diag([large, 2.0]).astype(dtype)
    right = nt.tensor(np.ones(2, dtype), requires_grad=True)
    x = solve(matrix, right)
    matrix[1, 1] = 8.0
    return x[1]


def solved_by_function(matrix, right):
    return implicit.root(lambda x: matrix @ x - right, np.zeros(2, matrix.dtype))


def solved_by_view(matrix, right):
    return implicit.root(lambda x: matrix.T @ x - right, np.zeros(2, matrix.dtype))


def overwritten_half(dtype, value, how):
    """Overwrite a tensor of a narrow dtype after a root was found."""
    a = nt.tensor(np.ones(1), requires_grad=True)
    k = nt.tensor(np.array([2.0])).astype(dtype)
    x = implicit.root(lambda x: x * how(k) - a, np.zeros(1))
    k[0] = value
    return x


def overwritten_among_many(how):
    """Overwrite one element of many after a fixed point was found."""
    weight = np.ones((256, 256), np.float32)
    a = nt.tensor(np.float32(1.0), requires_grad=True)
    x = implicit.fixed_point(lambda x: 0.5 * x * how(weight) + a, np.zeros((256, 256), np.float32))
    weight[3, 4] = 1.0015
    return x[3, 4]


@pytest.mark.parametrize(
    "answer",
    [
        lambda: overwritten_matrix("float32", 1e6, implicit.linear_solve),
        lambda: overwritten_matrix("float64", 1e18, implicit.linear_solve),
        lambda: overwritten_matrix("float64", 1e18, solved_by_function),
        lambda: overwritten_matrix("float64", 1e18, solved_by_view),
        lambda: overwritten_half("bfloat16", 2.4, lambda k: k),
        lambda: overwritten_half("bfloat16", 2.4, lambda k: k * 1),
        lambda: overwritten_half("float16", 2.1, lambda k: k),
        lambda: overwritten_half("float16", 2.1, lambda k: k * 1),
        lambda: overwritten_among_many(lambda weight: weight),
        lambda: overwritten_among_many(lambda weight: weight * 1),
    ],
)
def test_a_constant_that_changes_is_noticed_however_small_it_is_beside_others(answer):
    changed = answer()
    with pytest.raises(GradientError, match="did something else when it ran again"):
        changed.backward()


def test_the_matrix_of_a_linear_system_that_was_overwritten_is_named():
    matrix, right = np.diag([1.0, 2.0]), nt.tensor(np.ones(2), requires_grad=True)
    x = implicit.linear_solve(matrix, right)
    matrix[1, 1] = 8.0
    message = "^linear_solve: the product with the matrix A did something else when it ran again for its derivative, "
    with pytest.raises(GradientError, match=message):
        x[1].backward()


def test_another_matrix_in_the_place_of_one_that_is_still_held_is_noticed():
    matrix = kept = np.diag([1e18, 2.0])
    right = nt.tensor(np.ones(2), requires_grad=True)
    x = implicit.root(lambda x: matrix @ x - right, np.zeros(2))
    matrix = np.diag([1e18, 8.0])
    with pytest.raises(GradientError, match="did something else when it ran again"):
        x[1].backward()
    matrix = kept.copy()
    x[1].backward()
    assert right.grad[1] == 0.5


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_what_a_function_computes_for_itself_may_be_off_by_rounding_even_where_terms_cancel(dtype):
    basis = np.linalg.qr(np.random.default_rng(0).normal(size=(200, 200)))[0].astype(dtype)
    a = nt.tensor(np.ones(200, dtype), requires_grad=True)
    order = np.arange(200)

    def function(x):
        # The identity, but for rounding, which is all that most elements are.
        nearly = basis[:, order] @ basis.T[order]
        return nearly @ x - a

    x = implicit.root(function, np.zeros(200, dtype))
    order = order[::-1]
    x.sum().backward()
    np.testing.assert_allclose(a.grad.numpy(), np.ones(200), rtol=1e-4)


@pytest.mark.parametrize("shape", [(), (1,), (7,), (1021 * 3,), (40, 50), (3, 0)])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int8", "int64"])
def test_bits_tell_every_element_and_its_place(shape, dtype):
    x = np.random.default_rng(0).integers(1, 100, shape).astype(dtype)
    assert _bits(x) == _bits(x.copy())
    assert _bits(x) == _bits(x.copy(order="F"))
    for place in {0, x.size // 2, x.size - 1} & set(range(x.size)):
        other = x.copy()
        other.reshape(-1)[place] += 1
        assert _bits(x) != _bits(other)
    if x.size > 1:
        assert _bits(np.arange(x.size, dtype=dtype)) != _bits(np.arange(x.size, dtype=dtype)[::-1])


@pytest.mark.parametrize("count", [1, 7, 1021, 1022, 5000, 1_200_000])
def test_prints_of_arrays_tell_changes_from_rounding(count):
    x = np.random.default_rng(count).normal(size=count)
    same = x * (1.0 + 2.0**-52 * np.random.default_rng(0).integers(-2, 3, count))
    assert _printed(x).is_near(_printed(same))
    for place in (0, count // 2, count - 1):
        other = x.copy()
        other[place] *= 1.0 + 1e-7
        assert not _printed(x).is_near(_printed(other))
    if count > 1:
        assert not _printed(x).is_near(_printed(x[::-1]))
    for scale in (1e-250, 1e250):
        assert _printed(scale * x).is_near(_printed(scale * same))
        assert not _printed(scale * x).is_near(_printed(scale * (1.0 + 1e-7) * x))


def test_prints_take_what_is_not_finite_as_it_is():
    for value in (np.nan, np.inf, -np.inf):
        x = np.array([1.0, value])
        assert _agree(_printed(x), _printed(x.copy()))
        assert not _agree(_printed(x), _printed(np.array([3.0, value])))
        assert not _agree(_printed(x), _printed(np.array([1.0, 2.0])))
    assert not _agree(_printed(np.zeros(2)), _printed(np.full(2, 1e-300)))
    assert _agree(_printed(np.zeros(0)), _printed(np.zeros(0)))


@nt.custom_op(jvp={"x": lambda t, y: t * y, "y": lambda t, x: x * t})
def product_by_jvp(x, y, /):
    return x * y


@nt.custom_op(vjp={"x": lambda g, y: g * y, "y": lambda g, x: x * g})
def product_by_vjp(x, y, /):
    return x * y


@nt.custom_gradient
def product_by_pull_function(x, y):
    return x * y, lambda g: (g * y, g * x)


@pytest.mark.parametrize("product", [product_by_jvp, product_by_vjp, product_by_pull_function])
def test_what_the_transpose_of_a_rule_starts_from_is_not_taken_for_captured(product):
    def answers(times):
        def captured(x):
            return nt.implicit.fixed_point(lambda z: 0.2 * nt.tanh(times(z, x)) + x, np.zeros(3))

        def passed(x):
            return nt.implicit.root(lambda z, a: z - 0.2 * nt.tanh(times(z, a)) - a, np.zeros(3), x)

        at = np.array([0.3, -0.5, 0.7])
        for solution in (captured, passed):
            yield nt.hessian(lambda x, solution=solution: solution(x).sum())(at)
            yield nt.derivatives(lambda t, solution=solution: solution(t * at), 1.0, 2)[2]

    for found, wanted in zip(answers(product), answers(lambda x, y: x * y), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-9)
