"""Derivatives of high order by power series: against mpmath at 50 digits, against nesting, and at what cost."""

import gc
import math
import re
from concurrent.futures import ThreadPoolExecutor

import mpmath as mp
import numpy as np
import pytest

import numtape as nt
from numtape import series
from numtape.core.declare import registry
from numtape.core.op import NON_DIFFERENTIABLE, Op
from numtape.errors import (
    ArgumentError,
    DtypeError,
    GradientError,
    NotConnectedError,
    NotDifferentiableError,
    OperandError,
    ShapeError,
)
from numtape.ops.samples import Sample
from numtape.series import derivatives

ORDER = 6


def mp_sigmoid(x):
    return 1 / (1 + mp.exp(-x))


def newton(x, y):
    """Return the root of x: each step doubles the number of derivatives that are right."""
    for _ in range(8):
        y = 0.5 * (y + x / y)
    return y


A = np.array([[0.5, -1.0, 0.3], [0.2, 0.7, -0.4], [1.1, 0.1, 0.6]])


def polynomial_of_matrix(t):
    """Return one element of exp(t A) to the fourth order, by products of matrices that hold t."""
    m = nt.stack([t * A[0], t * A[1], t * A[2]])
    term = total = nt.tensor(np.eye(3))
    for n in range(1, 5):
        term = term @ m / float(n)
        total = total + term
    return (total[0, 1:] * np.array([1.0, 2.0])).sum()


def mp_polynomial_of_matrix(t):
    powers = [mp.eye(3)]
    for n in range(1, 5):
        powers.append(powers[-1] * mp.matrix(A.tolist()) * t / n)
    return sum(p[0, 1] + 2 * p[0, 2] for p in powers)


def solved(t):
    """Return one element of the solution of a system of two equations that hold t."""
    matrix = nt.stack([nt.stack([nt.exp(t), t]), nt.stack([t, 3.0 + 0.0 * t])])
    return nt.solve(matrix, nt.stack([nt.cos(t), 1.0 + 0.0 * t]))[0]


#: For each function: ours, mpmath's, and where.
FUNCTIONS = {
    "exp": (nt.exp, mp.exp, 0.7),
    "exp2": (nt.exp2, lambda x: mp.mpf(2) ** x, 0.7),
    "expm1": (nt.expm1, mp.expm1, 0.3),
    "log": (nt.log, mp.log, 0.7),
    "log2": (nt.log2, lambda x: mp.log(x, 2), 0.7),
    "log10": (nt.log10, mp.log10, 0.7),
    "log1p": (nt.log1p, mp.log1p, 0.7),
    "sqrt": (nt.sqrt, mp.sqrt, 0.7),
    "rsqrt": (nt.rsqrt, lambda x: 1 / mp.sqrt(x), 0.7),
    "cbrt": (nt.cbrt, mp.cbrt, 0.7),
    "square": (nt.square, lambda x: x * x, 0.7),
    "reciprocal": (nt.reciprocal, lambda x: 1 / x, 0.7),
    "negative power": (lambda x: x**-1.5, lambda x: x ** mp.mpf(-1.5), 0.7),
    "power of a negative number": (lambda x: x**5, lambda x: x**5, -0.7),
    "constant to the power of x": (lambda x: 2.5**x, lambda x: mp.mpf(2.5) ** x, 0.7),
    "x to the power of x": (lambda x: x**x, lambda x: x**x, 0.7),
    "sin": (nt.sin, mp.sin, 0.7),
    "cos": (nt.cos, mp.cos, 0.7),
    "tan": (nt.tan, mp.tan, 0.7),
    "asin": (nt.asin, mp.asin, 0.3),
    "acos": (nt.acos, mp.acos, 0.3),
    "atan": (nt.atan, mp.atan, 0.7),
    "sinh": (nt.sinh, mp.sinh, 0.7),
    "cosh": (nt.cosh, mp.cosh, 0.7),
    "tanh": (nt.tanh, mp.tanh, 0.7),
    "asinh": (nt.asinh, mp.asinh, 0.7),
    "acosh": (nt.acosh, mp.acosh, 1.7),
    "atanh": (nt.atanh, mp.atanh, 0.3),
    "sinc": (nt.sinc, lambda x: mp.sinc(mp.pi * x), 0.7),
    "sigmoid": (nt.sigmoid, mp_sigmoid, 0.7),
    "logit": (nt.logit, lambda x: mp.log(x / (1 - x)), 0.3),
    "softplus": (nt.softplus, lambda x: mp.log(1 + mp.exp(x)), 0.7),
    "logsigmoid": (nt.logsigmoid, lambda x: -mp.log(1 + mp.exp(-x)), 0.7),
    "silu": (nt.silu, lambda x: x * mp_sigmoid(x), 0.7),
    "mish": (nt.mish, lambda x: x * mp.tanh(mp.log(1 + mp.exp(x))), 0.7),
    "gelu": (nt.gelu, lambda x: x * (1 + mp.erf(x / mp.sqrt(2))) / 2, 0.7),
    "elu": (nt.elu, mp.expm1, -0.7),
    "softsign": (nt.softsign, lambda x: x / (1 + x), 0.7),
    "erf": (nt.erf, mp.erf, 0.7),
    "erfc": (nt.erfc, mp.erfc, 0.7),
    "erfinv": (nt.erfinv, mp.erfinv, 0.3),
    "lgamma": (nt.lgamma, mp.loggamma, 2.3),
    "digamma": (nt.digamma, mp.digamma, 2.3),
    "hypot": (lambda x: nt.hypot(x, nt.exp(x)), lambda x: mp.sqrt(x * x + mp.exp(2 * x)), 0.7),
    "atan2": (lambda x: nt.atan2(nt.sin(x), x * x), lambda x: mp.atan2(mp.sin(x), x * x), 0.7),
    "logaddexp": (lambda x: nt.logaddexp(x, x * x), lambda x: mp.log(mp.exp(x) + mp.exp(x * x)), 0.7),
    "xlogy": (lambda x: nt.xlogy(x * x, x), lambda x: x * x * mp.log(x), 0.7),
    "deg2rad": (lambda x: nt.sin(nt.deg2rad(x)), lambda x: mp.sin(x * mp.pi / 180), 70.0),
    "quotient": (lambda x: nt.exp(nt.sin(x)) / (1 + x**2), lambda x: mp.exp(mp.sin(x)) / (1 + x**2), 0.7),
    "log of a sum": (lambda x: nt.log(1 + nt.exp(x)), lambda x: mp.log(1 + mp.exp(x)), -0.4),
    "tanh twice": (lambda x: nt.tanh(nt.tanh(x)), lambda x: mp.tanh(mp.tanh(x)), 0.7),
    "sqrt of a sum": (lambda x: nt.sqrt(1 + x * x), lambda x: mp.sqrt(1 + x * x), 0.7),
    "erf times x": (lambda x: nt.erf(x) * x, lambda x: mp.erf(x) * x, 0.7),
    "Runge's": (lambda x: 1 / (1 + 25 * x**2), lambda x: 1 / (1 + 25 * x**2), 0.3),
    "Newton's steps": (lambda x: newton(x, 2.0), mp.sqrt, 2.1),
    "polynomial of a matrix": (polynomial_of_matrix, mp_polynomial_of_matrix, 0.7),
    "solution of a system": (solved, lambda x: (3 * mp.cos(x) - x) / (3 * mp.exp(x) - x * x), 0.7),
}


def nested(function, x, order):
    """Return the derivatives by nested reverse mode."""
    found = derivatives(function, x, 0)
    for _ in range(order):
        function = nt.grad(function)
        found.append(function(x))
    return found


@pytest.fixture
def no_nesting(monkeypatch):
    """Fail if a function does not run on series."""

    def fail(function, order):
        raise AssertionError("the function was run by nesting")

    monkeypatch.setattr(series, "_by_nesting", fail)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_six_derivatives_agree_with_fifty_digits(name, no_nesting):
    ours, theirs, x = FUNCTIONS[name]
    with mp.workdps(50):
        expected = [float(c * math.factorial(n)) for n, c in enumerate(mp.taylor(theirs, mp.mpf(x), ORDER))]
    found = derivatives(ours, x, ORDER)
    assert all(type(value) is float for value in found)
    assert found == pytest.approx(expected, rel=1e-10, abs=1e-12)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_series_agree_with_nested_gradients(name):
    ours, _, x = FUNCTIONS[name]
    assert derivatives(ours, x, 3) == pytest.approx(nested(ours, x, 3), rel=1e-11, abs=1e-11)


def along_lines(entry, sample):
    """Return a function of one number that moves every operand of a sample along a line, or None if there is none."""
    rng = np.random.default_rng(0)

    def direction(position, x):
        is_fixed = isinstance(entry, Op) and not entry.is_variadic and entry.push(position) is NON_DIFFERENTIABLE
        if isinstance(x, np.ndarray) and x.dtype.kind == "f" and not is_fixed:
            return rng.uniform(-0.1, 0.1, x.shape)
        if isinstance(x, list | tuple) and x and all(isinstance(each, np.ndarray) for each in x):
            return type(x)(direction(position, each) for each in x)
        return None

    def move(x, d, t):
        if isinstance(d, list | tuple):
            return type(x)(move(each, slope, t) for each, slope in zip(x, d, strict=True))
        return x if d is None else x + t * d

    directions = [direction(i, x) for i, x in enumerate(sample.args)]
    if all(d is None for d in directions):
        return None

    def function(t):
        args = [move(x, d, t) for x, d in zip(sample.args, directions, strict=True)]
        out = entry.face(*args, **sample.params)
        outs = out if isinstance(out, tuple | list) else [out]
        return [y for y in outs if y is not None and y.dtype.kind == "f"]

    return function


@pytest.mark.parametrize("name", sorted(name for name, entry in registry.items() if not entry.facts.is_discrete))
def test_every_op_agrees_with_nested_forward_mode(name, monkeypatch):
    entry = registry[name]
    nested_runs = []
    by_nesting = series._by_nesting

    def note(function, order):
        nested_runs.append(function)
        return by_nesting(function, order)

    samples = [s for s in entry.facts.samples() if isinstance(s, Sample) and not s.skip_derivatives]
    for function in [f for s in samples if (f := along_lines(entry, s)) is not None][:3]:
        with monkeypatch.context() as patch:
            patch.setattr(series, "_by_nesting", note)
            found = derivatives(function, 0.0, 3)
        expected = by_nesting(function, 3)(np.array(0.0))
        for ours, theirs in zip(found, expected, strict=True):
            for a, b in zip(ours, theirs, strict=True):
                np.testing.assert_allclose(a, np.asarray(b), rtol=1e-9, atol=1e-9)
    assert nested_runs == []


def count_ops(function, x, order):
    """Return how many ops a tape sees, those on coefficients included."""
    source = nt.tensor(x, dtype=nt.float64)
    with nt.Tape() as tape:
        derivatives(function, source, order)
    return len(tape.records)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_cost_is_at_most_cubic_in_the_order(name, no_nesting):
    ours, _, x = FUNCTIONS[name]
    four, eight, sixteen = (count_ops(ours, x, order) for order in (4, 8, 16))
    assert eight <= 8 * four
    assert sixteen <= 8 * eight


def test_the_sine_of_the_variable_itself_costs_five_ops_for_each_order(no_nesting):
    assert [count_ops(nt.sin, 0.7, order) for order in (4, 8, 16)] == [20, 40, 80]


def test_high_orders_are_exact(no_nesting):
    found = derivatives(nt.sin, 0.0, 60)
    assert found == pytest.approx([(0.0, 1.0, 0.0, -1.0)[n % 4] for n in range(61)])


def test_nothing_waits_for_the_garbage_collector(no_nesting):
    def function(x):
        return nt.exp(nt.sin(x)) / nt.sqrt(1.0 + nt.tanh(x) ** 2)

    derivatives(function, 0.7, 5)
    gc.collect()
    gc.disable()
    try:
        derivatives(function, 0.7, 5)
        assert gc.collect() == 0
    finally:
        gc.enable()


def test_results_have_the_form_of_the_function(no_nesting):
    rows = derivatives(lambda t: {"a": nt.stack([t, t * t]), "b": (t**3, 2.0)}, 2.0, 2)
    assert [row["a"].tolist() for row in rows] == [[2.0, 4.0], [1.0, 4.0], [0.0, 2.0]]
    assert [row["b"] for row in rows] == [(8.0, 2.0), (12.0, 0.0), (12.0, 0.0)]


def test_an_array_or_a_number_gives_numbers_and_a_tensor_tensors(no_nesting):
    assert derivatives(lambda x: x * x, 3, 2) == [9.0, 6.0, 2.0]
    assert derivatives(lambda x: x * x, np.array(3.0), 2) == [9.0, 6.0, 2.0]
    found = derivatives(lambda x: x * x, nt.tensor(3.0), 2)
    assert all(type(each) is nt.Tensor and each.node is None for each in found)
    assert [each.item() for each in found] == [9.0, 6.0, 2.0]


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_results_have_the_dtype_of_the_function(dtype, no_nesting):
    found = derivatives(nt.exp, nt.tensor(0.5, dtype=dtype), 3)
    assert [each.dtype for each in found] == [dtype] * 4
    assert [each.item() for each in found] == pytest.approx([math.exp(0.5)] * 4, rel=float(2 * np.finfo(dtype).eps))


def test_order_zero_is_the_value_and_constants_have_derivative_zero(no_nesting):
    assert derivatives(nt.exp, 0.0, 0) == [1.0]
    assert derivatives(lambda x: 5.0, 1.0, 2) == [5.0, 0.0, 0.0]
    assert derivatives(lambda x: x, 1.5, 2) == [1.5, 1.0, 0.0]


def test_pieces_are_chosen_by_the_value(no_nesting):
    assert derivatives(lambda x: nt.where(x > 0, x**3, x), 2.0, 3) == [8.0, 12.0, 12.0, 6.0]
    assert derivatives(lambda x: nt.maximum(x, 1.0) * x, 2.0, 2) == [4.0, 4.0, 2.0]
    assert derivatives(lambda x: nt.abs(x) * x, -2.0, 2) == [-4.0, 4.0, -2.0]
    assert derivatives(lambda x: nt.clip(x, 0.0, 1.0) + x * x, 2.0, 2) == [5.0, 4.0, 2.0]
    assert derivatives(lambda x: x * x if x > 0 else -x, -2.0, 2) == [2.0, -1.0, 0.0]
    assert derivatives(lambda x: nt.floor(x) * x, 2.5, 2) == [5.0, 2.0, 0.0]


def test_numpy_functions_run_on_series(no_nesting):
    found = derivatives(lambda x: np.sum(np.exp(x * np.array([1.0, 2.0]))) + np.ndim(x), 0.0, 2)
    assert found == [2.0, 3.0, 5.0]
    assert derivatives(lambda x: sum(row for row in nt.stack([x, x * x])), 3.0, 1) == [12.0, 7.0]


def test_a_product_of_three_series_is_one_op(no_nesting):
    x = np.array([1.0, 2.0])
    found = derivatives(lambda t: nt.einsum("i,i,i->", t + x, t * x, nt.exp(t) * x), 0.5, 3)
    expected = derivatives(lambda t: ((t + x) * (t * x) * (nt.exp(t) * x)).sum(), 0.5, 3)
    assert found == pytest.approx(expected, rel=1e-13)


def test_a_gradient_flows_through_derivatives():
    w = np.array([0.3, 0.8])

    def loss(w):
        value, slope, bend = derivatives(lambda t: (nt.sin(w * t)).sum(), 0.5, 2)
        return value + slope * bend

    def expected(w):
        return np.sin(w * 0.5).sum() + (w * np.cos(w * 0.5)).sum() * (-w * w * np.sin(w * 0.5)).sum()

    h = 1e-5
    slopes = [(expected(w + h * e) - expected(w - h * e)) / (2 * h) for e in np.eye(2)]
    np.testing.assert_allclose(nt.grad(loss)(w), slopes, rtol=1e-8)
    _, pushed = nt.jvp(loss, w, np.array([1.0, 0.0]))
    assert pushed == pytest.approx(slopes[0], rel=1e-8)


def test_the_derivative_of_derivatives_is_the_next_one(no_nesting):
    third = nt.grad(lambda x: derivatives(nt.tanh, x, 2)[2])(0.4)
    assert third == pytest.approx(derivatives(nt.tanh, 0.4, 3)[3], rel=1e-13)
    x = nt.tensor(0.4, dtype=nt.float64, requires_grad=True)
    derivatives(nt.tanh, x, 2)[2].backward()
    assert x.grad.item() == pytest.approx(third, rel=1e-13)


def test_derivatives_nest_without_confusion(no_nesting):
    # d/dx (x * d/dy (x + y)) = 1, not 2.
    assert derivatives(lambda x: x * derivatives(lambda y: x + y, 1.0, 1)[1], 1.0, 1) == [1.0, 1.0]
    found = derivatives(lambda x: derivatives(lambda y: nt.exp(x * y), x, 2)[2], 0.5, 2)
    # The second derivative by y at y = x is x**2 exp(x**2).
    expected = derivatives(lambda x: x**2 * nt.exp(x * x), 0.5, 2)
    assert found == pytest.approx(expected, rel=1e-13)


def test_no_grad_makes_constants_inside_and_plain_results_outside():
    def function(x):
        with nt.no_grad():
            held = x * x
        return held * x

    assert derivatives(function, 3.0, 2) == [27.0, 9.0, 0.0]
    x = nt.tensor(3.0, requires_grad=True)
    with nt.no_grad():
        assert all(each.node is None for each in derivatives(lambda x: x * x, x, 1))


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda x: nt.grad(lambda y: y**3 * x)(x), [24.0, 36.0, 36.0]),
        (lambda x: nt.jvp(lambda w: w * w * x, 3.0, 1.0)[1], [12.0, 6.0, 0.0]),
        (lambda x: x * x if x.item() > 0 else x, [4.0, 4.0, 2.0]),
        (lambda x: written(x), [8.0, 12.0, 12.0]),
        (lambda x: nt.stop_gradient(x) * x, [4.0, 2.0, 0.0]),
    ],
)
def test_what_series_cannot_do_is_done_by_nesting(function, expected):
    assert derivatives(function, 2.0, 2) == pytest.approx(expected, rel=1e-13)


@pytest.mark.parametrize(
    "error",
    [ValueError("not there"), AttributeError("no such thing"), KeyError("name")],
    ids=lambda x: type(x).__name__,
)
def test_an_error_of_the_function_itself_comes_through_at_once(error):
    runs = []

    def fails_at_first(x):
        runs.append(x)
        if len(runs) == 1:
            raise error
        return x * x

    with pytest.raises(type(error), match=str(error)):
        derivatives(fails_at_first, 2.0, 2)
    assert len(runs) == 1


def test_numpy_that_wants_a_number_is_refused_as_float_is():
    def put(x):
        values = np.zeros(2)
        values[0] = x
        return values.sum() * x

    with pytest.raises(nt.errors.NotConnectedError, match="makes a plain number of what depends on x by float"):
        derivatives(put, 2.0, 1)


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda x: x.astype("int64") * x, [5.0, 2.0, 0.0]),
        (lambda x: x.bool() * x, [2.5, 1.0, 0.0]),
        (lambda x: x.long().astype("float64"), [2.0, 0.0, 0.0]),
        (lambda x: x.astype("float32").astype("float64") * x, [6.25, 5.0, 2.0]),
    ],
)
def test_casts_to_integers_end_a_series(function, expected):
    assert derivatives(function, 2.5, 2) == expected


@pytest.mark.parametrize(
    ("function", "slope"),
    [
        (lambda s: nt.jvp(nt.sin, 0.5, s)[1], np.cos(0.5)),
        (lambda s: nt.vjp(nt.sin, 0.5)[1](s)[0], np.cos(0.5)),
        (lambda s: nt.hvp(lambda y: y**3, 2.0, s), 12.0),
        (lambda s: nt.jvp(lambda y: y * y * s, 3.0, 1.0)[1], 6.0),
    ],
)
@pytest.mark.parametrize("is_in_thread", [False, True])
def test_directions_of_transforms_within_may_be_series(function, slope, is_in_thread):
    def run(s):
        if not is_in_thread:
            return function(s)
        with ThreadPoolExecutor(1) as pool:
            return pool.submit(function, s).result()

    found = derivatives(run, 0.7, 2)
    np.testing.assert_allclose(found, [0.7 * slope, slope, 0.0], rtol=1e-14)
    assert all(isinstance(x, float) for x in found)


def test_transforms_of_other_threads_see_through_a_series():
    def slope(x):
        return nt.jacobian(lambda y: nt.sin(x * y))(2.0)

    with ThreadPoolExecutor(1) as pool:
        found = derivatives(lambda x: pool.submit(slope, x).result() * x, 0.7, 2)
    np.testing.assert_allclose(found, derivatives(lambda x: slope(x) * x, 0.7, 2), rtol=1e-12)


@pytest.mark.parametrize("factor", [None, 1.0])
def test_what_is_kept_from_an_ended_call_is_still_what_others_differentiate_by(factor):
    def outer(x):
        kept = []

        def inner(y):
            kept.append(x * y)
            return y * y

        derivatives(inner, 3.0, 1)
        return kept[-1] if factor is None else kept[-1] * factor

    assert nt.grad(outer)(2.0) == 3.0
    w = nt.tensor(2.0, dtype="float64", requires_grad=True)
    (outer(w) + w * w).backward()
    assert w.grad.item() == 7.0


def written(x):
    y = nt.zeros(2)
    y[0] = x * x
    y[1] = x
    return y.prod()


@pytest.mark.parametrize(
    ("x", "order", "error", "message"),
    [
        (
            np.ones(2),
            1,
            ShapeError,
            "derivatives: x has shape (2,); the derivatives are those of a function of one number. Use nt.jacobian and "
            "nt.hessian for functions of several, or nt.elementwise_grad.",
        ),
        (
            np.array(1),
            1,
            DtypeError,
            "derivatives: x has dtype int64, which has no derivative; use astype(float).",
        ),
        (
            np.array(1j),
            1,
            DtypeError,
            "derivatives: x has dtype complex128, which has no derivative; use astype(float).",
        ),
        ("text", 1, OperandError, "derivatives: x is of type str; it must be a number or a tensor without axes."),
        (True, 1, OperandError, "derivatives: x is of type bool; it must be a number or a tensor without axes."),
        (
            1.0,
            -1,
            ArgumentError,
            "derivatives: order is -1; it must be an integer from 0 on, the highest order wanted.",
        ),
        (
            1.0,
            2.0,
            ArgumentError,
            "derivatives: order is 2.0; it must be an integer from 0 on, the highest order wanted.",
        ),
    ],
)
def test_bad_arguments_are_explained(x, order, error, message):
    with pytest.raises(error) as caught:
        derivatives(nt.exp, x, order)
    assert str(caught.value) == message


def test_bad_functions_are_explained():
    def text(x):
        return "text"

    def whole(x):
        return nt.argmax(nt.stack([x, x]))

    def chosen(x):
        return nt.where(x, 1.0, 2.0 * x)

    with pytest.raises(OperandError) as caught:
        derivatives(3.0, 1.0, 1)
    assert str(caught.value) == (
        "derivatives: wants a function, not float; nt.derivatives differentiates functions, and backward() a loss that "
        "is computed already."
    )
    with pytest.raises(OperandError) as caught:
        derivatives(text, 1.0, 1)
    assert str(caught.value) == "derivatives: text returned str; it must return a tensor."
    with pytest.raises(DtypeError) as caught:
        derivatives(whole, 1.0, 2)
    assert str(caught.value) == (
        "derivatives: whole returned a tensor of int64, which has no derivative; it must return floats."
    )
    with pytest.raises(NotDifferentiableError) as caught:
        derivatives(chosen, 1.0, 1)
    assert str(caught.value) == (
        "where: argument 'condition' has no derivative, but a tracked tensor was given; pass condition.detach() if its "
        "gradient is not wanted."
    )
    with pytest.raises(NotConnectedError, match=r"^derivatives: sin makes a plain number of what "):
        derivatives(math.sin, 1.0, 2)


def test_a_number_that_leaves_the_tape_in_a_product_is_named():
    with pytest.raises(NotConnectedError) as caught:
        derivatives(lambda x: x * math.sin(x), 1.0, 2)
    assert re.sub(r" at \S+:\d+ \(.*\), so its", " at FILE (LINE), so its", str(caught.value)) == (
        "derivatives: <lambda> makes a plain number of what depends on x by float() at FILE (LINE), so its part in the "
        "derivatives would be lost. Use nt functions instead of math; if a constant is meant, take item()."
    )
    # By the user's will it is a constant.
    assert derivatives(lambda x: x * x.item(), 3.0, 2) == [9.0, 3.0, 0.0]
    assert derivatives(lambda x: 2.0 * x if x > 0.0 else x, 3.0, 2) == [6.0, 2.0, 0.0]


def test_a_custom_op_with_two_outputs_runs_on_series():
    @nt.custom_op(vjp={"x": lambda g, x: g[0] * nt.cos(x) + g[1] * 2.0 * x})
    def sine_and_square(x, /):
        return np.sin(x), np.square(x)

    def product(x):
        sine, square = sine_and_square(x)
        return sine * square

    expected = derivatives(lambda x: nt.sin(x) * x * x, 0.7, 4)
    np.testing.assert_allclose(derivatives(product, 0.7, 4), expected, rtol=1e-12)


@pytest.mark.parametrize(("dtype", "order"), [("float16", 11), ("float32", 36), ("float64", 180)])
def test_high_orders_keep_within_the_range_of_the_dtype(dtype, order):
    found = nt.derivatives(nt.exp, np.zeros((), dtype), order)
    np.testing.assert_allclose(found, np.ones(order + 1), rtol=200 * float(np.finfo(dtype).eps))


def test_a_series_in_another_thread_is_nested_all_the_same():
    def outer(x):
        with ThreadPoolExecutor() as pool:
            return x * pool.submit(lambda: derivatives(lambda y: x + y, 1.0, 1)[1]).result()

    assert derivatives(outer, 1.0, 1) == [1.0, 1.0]


def test_a_series_that_outlives_its_call_is_a_constant():
    kept = []

    def function(x):
        if not kept:
            kept.append(nt.exp(x))
        return kept[0] * x

    derivatives(function, 1.0, 2)
    assert derivatives(function, 2.0, 3) == pytest.approx([2.0 * math.e, math.e, 0.0, 0.0])
    assert nt.grad(function)(2.0) == pytest.approx(math.e)


def test_a_wrong_rule_is_found_by_derivatives_too():
    @nt.custom_op(jvp={"x": lambda t, x: t * nt.sin(x)})
    def sine(x, /):
        return np.sin(x)

    with pytest.raises(GradientError, match="Correct the rule"):
        derivatives(sine, 0.5, 2)


def test_what_a_half_can_hold_does_not_depend_on_the_order_asked_for():
    assert derivatives(lambda x: x**4 * x**4, np.float16(3), 2)[2] == pytest.approx(40824.0, rel=1e-3)
    assert derivatives(lambda x: nt.exp(8 * x), np.float16(0.25), 4)[4] == pytest.approx(30265.6, rel=1e-3)
