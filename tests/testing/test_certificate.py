"""The gradient certificate: planted defects are named, right gradients pass, and nothing wrong is called right."""

import math

import numpy as np
import pytest
from planted import POINT, planted, sin_times, unregistered

import numtape as nt
from numtape import errors
from numtape.core import declare
from numtape.testing.checker import NumericalChecker
from numtape.testing.gradients import LARGE, SAMPLED, check_gradients
from numtape.verdicts.differences import STENCILS, at_zero, measure
from numtape.verdicts.judging import Gauge, Spot, Verdict, judge


def biased(pull):
    """Return the op x + b for a matrix and a row, whose VJP by b is `pull`."""

    @declare.differentiable(
        jvps={"x": lambda t: t, "b": lambda t, x_shape: nt.broadcast_to(t, x_shape)},
        vjps={"x": lambda g: g, "b": pull},
        cost=lambda out, *shapes: 0,
        samples=lambda: [],
    )
    def biased_op(x, b, /):
        return x + b

    return unregistered(biased_op)


def first_element(factor):
    """Return a factor for each element: `factor` for the first, 1 for the others."""
    return lambda x: np.where(np.arange(x.shape[0]) == 0, factor, 1.0)


def in_float32(x):
    return np.exp(np.asarray(x, np.float32)).astype(np.float64)


right_sin, wrong_sin = sin_times(1.0), sin_times(1.01)
right_float32 = planted(in_float32, nt.exp)
wrong_float32 = planted(in_float32, lambda x: nt.exp(x) * 1.01)
one_sign = first_element(-1.0)
sin_with_a_wrong_sign = planted(np.sin, lambda x: nt.cos(x) * one_sign(x))
sin_without_an_element = planted(np.sin, lambda x: nt.cos(x) * first_element(0.0)(x))
x_squared_without_a_term = planted(lambda x: x**2 + 0.1 * x, lambda x: 2.0 * x)
wrong_at_zero_only = planted(lambda x: x**2 + x, lambda x: nt.where(x == 0.0, 0.0, 2.0 * x + 1.0))
steep_relu = planted(lambda x: np.maximum(x, 0.0), lambda x: nt.where(x >= 0.0, 1.2, 0.0))
leaky_dead_relu = planted(lambda x: np.maximum(x, 0.0), lambda x: nt.where(x > 0.0, 1.0, 0.01))
straight_through = planted(np.floor, nt.ones_like)
wrong_square = planted(np.square, lambda x: 3.0 * x)
shifted_square = planted(np.square, lambda x: 2.0 * x + 1.0)


def tail(x):
    """Return x times the share of a normal distribution below x, as computed by a formula that cancels."""
    return 0.5 * x * (1.0 + np.vectorize(math.erf)(x / math.sqrt(2.0)))


lost_tail = planted(tail, lambda x: x * nt.exp(-0.5 * x * x) / math.sqrt(2.0 * math.pi))


@nt.custom_gradient
def wrong_log_of_large(x):
    return nt.log(x).sum(), lambda g: g * nt.where(x > 1e9, 1.5 / x, 1.0 / x)


@nt.custom_gradient
def without_the_small(x):
    return (x * np.array([1.0, 1e-10])).sum(), lambda g: g * np.array([1.0, 0.0])


#: What to check, where, and the verdicts that must be found.
PLANTED = {
    "factor 1.01": (lambda x: wrong_sin(x).sum(), POINT, {"wrong rule": 3}),
    "factor 0.99": (lambda x: sin_times(0.99)(x).sum(), POINT, {"wrong rule": 3}),
    "factor 1.0001": (lambda x: sin_times(1.0001)(x).sum(), POINT, {"wrong rule": 3}),
    "factor 2": (lambda x: sin_times(2.0)(x).sum(), POINT, {"wrong rule": 3}),
    "opposite sign": (lambda x: sin_times(-1.0)(x).sum(), POINT, {"wrong rule": 3}),
    "no derivative": (lambda x: sin_times(0.0)(x).sum(), POINT, {"wrong rule": 3}),
    "sign of one element": (lambda x: sin_with_a_wrong_sign(x), POINT, {"right": 2, "wrong rule": 1}),
    "one element lost": (lambda x: sin_without_an_element(x), POINT, {"right": 2, "wrong rule": 1}),
    "a term too many, where all is flat": (
        lambda x: shifted_square(x).sum(),
        np.array([0.0, 1e-300]),
        {"wrong rule": 2},
    ),
    "a term is missing": (lambda x: x_squared_without_a_term(x), POINT, {"wrong rule": 3}),
    "a path is detached": (lambda x: (x * x.detach()).sum(), POINT, {"wrong rule": 3}),
    "wrong among others": (lambda x: (wrong_sin(x) + x**3).sum(), POINT, {"wrong rule": 3}),
    "wrong deep inside": (lambda x: nt.exp(wrong_sin(nt.tanh(x))).mean(), POINT, {"wrong rule": 3}),
    "wrong and tiny": (lambda x: wrong_sin(x).sum() * 1e-12, POINT, {"wrong rule": 3}),
    "wrong and huge": (lambda x: wrong_sin(x).sum() * 1e12, POINT, {"wrong rule": 3}),
    "wrong on a large value": (lambda x: wrong_sin(x).sum() + 1e10, POINT, {"wrong rule": 3}),
    "wrong at small points": (lambda x: wrong_sin(x).sum(), POINT * 1e-8, {"wrong rule": 3}),
    "wrong at large points": (lambda x: wrong_sin(x).sum(), POINT * 1e6, {"wrong rule": 3}),
    "wrong and fast": (lambda x: wrong_sin(x * 1e6).sum(), POINT, {"wrong rule": 3}),
    "wrong 1e-5 beside a kink": (lambda x: (wrong_sin(x) + x.abs()).sum(), POINT * 1e-5, {"wrong rule": 3}),
    "wrong 1e-9 beside a kink": (lambda x: (wrong_sin(x) + x.abs()).sum(), POINT * 1e-9, {"wrong rule": 3}),
    "wrong at a kink": (lambda x: (wrong_sin(x + 1.0) + x.abs()).sum(), np.zeros(3), {"wrong rule": 3}),
    "wrong at one element alone": (
        lambda x: wrong_at_zero_only(x).sum(),
        np.array([0.0, 0.5]),
        {"right": 1, "wrong rule": 1},
    ),
    "no slope between both": (lambda x: steep_relu(x), np.zeros(2), {"wrong rule": 2}),
    "slope where it is flat": (lambda x: leaky_dead_relu(x).sum(), np.array([-0.05, -3.0]), {"wrong rule": 2}),
    "wrong in float32": (lambda x: wrong_sin(x.astype("float32")).sum(), POINT, {"wrong rule": 3}),
    "wrong in hidden float32": (lambda x: wrong_float32(x).sum(), POINT, {"wrong rule": 3}),
    "wrong next to a jump": (lambda x: (wrong_sin(x) + x.floor()).sum(), POINT, {"wrong rule": 3}),
    "kink of abs": (lambda x: x.abs().sum(), np.array([0.0, 1.0, -2.0]), {"right": 2, "kink": 1}),
    "kink of relu": (lambda x: (nt.relu(x) * 3.0 + x).sum(), np.array([0.0, 1.0]), {"right": 1, "kink": 1}),
    "tie of max": (lambda x: x.max(), np.array([1.0, 1.0, 0.0]), {"right": 1, "kink": 2}),
    "jump": (lambda x: (x.floor() + x).sum(), np.array([1.0, 0.5]), {"right": 1, "kink": 1}),
    "edge of the domain": (lambda x: (x**1.5).sum(), np.array([0.0, 1.0]), {"right": 1, "kink": 1}),
    "float32 inside": (lambda x: x.astype("float32").exp().sum(), POINT, {"precision": 3}),
    "float16 inside": (lambda x: x.astype("float16").exp().sum(), POINT, {"precision": 3}),
    "bfloat16 inside": (lambda x: x.astype("bfloat16").exp().sum(), POINT, {"precision": 3}),
    "float32 hidden in an op": (lambda x: right_float32(x).sum(), POINT, {"precision": 3}),
    "straight through a staircase": (lambda x: straight_through(x * 1e6 + 0.3).sum(), POINT, {"precision": 3}),
    "dropout": (lambda x: nt.dropout(x, 0.5).sum(), np.ones(20), {"non-deterministic": 20}),
    "cancellation at 1e-8": (lambda x: (1.0 - x.cos()) / x**2, 1e-8, {"cancellation noise": 1}),
    "cancellation at 3e-9": (lambda x: (1.0 - x.cos()) / x**2, 3e-9, {"cancellation noise": 1}),
    "cancellation at 1e-6": (lambda x: (1.0 - x.cos()) / x**2, 1e-6, {"cancellation noise": 1}),
    "cancellation at 1e-4": (lambda x: (1.0 - x.cos()) / x**2, 1e-4, {"cancellation noise": 1}),
    "a large value": (lambda x: x.sin().sum() + 1e12, POINT, {"cancellation noise": 3}),
    "an overwhelming value": (lambda x: x.sin().sum() + 1e17, POINT, {"cancellation noise": 3}),
    "an overwhelming value on the way": (
        lambda x: (1e16 + x) - 1e16,
        np.linspace(0.1, 5.0, 50),
        {"cancellation noise": 50},
    ),
    "faster than numbers are dense": (
        lambda x: nt.sin(nt.exp(x)),
        np.linspace(36.0, 100.0, 30),
        {"cancellation noise": 30},
    ),
    "underflow": (lambda x: lost_tail(x), np.array([-11.2, -9.0, -8.1]), {"cancellation noise": 3}),
    "outputs that round the change away": (
        lambda x: nt.softmax(x),
        np.array([40.95358974952665, -425.62928061809964, 208.0306193949415]),
        {"cancellation noise": 3},
    ),
    "noise of another element": (
        lambda x: nt.cos(nt.exp(x.abs())).sum(),
        np.array([5.627157643016027, 7.307988821350505, -38.005236957242744]),
        {"cancellation noise": 3},
    ),
    "wrong and small among large": (
        lambda x: wrong_log_of_large(x),
        np.array([1.0, 1e12]),
        {"right": 1, "wrong rule": 1},
    ),
    "wrong and beyond resolution": (
        lambda x: wrong_square(x).sum(),
        np.array([1e-12, 1e-30, 1e-100]),
        {"cancellation noise": 2, "wrong rule": 1},
    ),
    "lost and small among large": (
        lambda x: without_the_small(x),
        np.ones(2),
        {"right": 1, "wrong rule": 1},
    ),
    "infinite slope": (lambda x: x.sqrt().sum(), np.array([0.0, 1.0]), {"right": 1, "not finite": 1}),
    "value is NaN": (lambda x: x.log().sum(), np.array([-1.0, 1.0]), {"not finite": 2}),
    "an argument is infinite": (lambda x: (-x).exp().sum(), np.array([np.inf]), {"not finite": 1}),
}

RIGHT = {
    "sin": (lambda x: right_sin(x), POINT),
    "tiny": (lambda x: x.sin().sum() * 1e-12, POINT),
    "huge": (lambda x: x.sin().sum() * 1e12, POINT),
    "log of tiny": (lambda x: x.log().sum(), np.array([1e-20, 1e-8, 1.0, 1e8])),
    "log of tiny, scales apart": (lambda x: x.log(), np.array([1e-20, 1e-8, 1.0, 1e8])),
    "steep": (lambda x: nt.tanh(x / 1e-9).sum(), np.array([0.0, 1e-10])),
    "fast": (lambda x: (x * 1e6).sin().sum(), POINT),
    "far": (lambda x: x.sin().sum(), POINT * 1e6),
    "beside kinks": (lambda x: x.abs().sum(), POINT * 1e-5),
    "zero gradient of one element": (lambda x: (x[1:] ** 2).sum(), POINT),
    "flat": (lambda x: x.floor().sum(), POINT),
    "dead relu": (lambda x: nt.relu(x).sum(), np.array([-0.05, -3.0])),
    "dropout with a fixed stream": (lambda x: nt.dropout(x, 0.5, rng=0), np.ones(20)),
    "outputs of all sizes": (lambda x: (x * 1e9, x.sin() * 1e-9), POINT),
    "outputs that cancel": (lambda x: (x.sum(), -x.sum()), POINT),
    "tree": (lambda p: nt.tanh(p["w"] @ p["w"].T) + p["b"], {"w": np.ones((2, 2)) * 0.3, "b": np.array([1.0, 2.0])}),
    "matrix": (lambda x: nt.inv(x), np.array([[2.0, 0.3], [0.1, 1.0]])),
    "log of large": (lambda x: x.log().sum(), np.array([1.0, 1e12])),
    "bend of x * abs(x)": (lambda x: x * x.abs(), 0.0),
    "bend of relu squared": (lambda x: nt.relu(x) ** 2, 0.0),
    "bend of abs cubed": (lambda x: x.abs() ** 3, 0.0),
    "bends in a sum": (lambda x: (x * x.abs() + nt.relu(x) ** 2 + x.abs() ** 3).sum(), np.array([0.0, 1.0, -1.0])),
    "bend on a slope": (lambda x: x * x.abs() + 3.0 * x, 0.0),
    "clipped values": (lambda x: (nt.clip(x * 3.0, -1.0, 6.0) + nt.relu6(x * 5.0)).sum(), POINT),
    "picked values": (lambda x: (x * 1.1).max() + nt.sort(x * 1.3)[0] + nt.maximum(x * 1.7, 0.2).sum(), POINT),
    "zero but for rounding": (lambda x: x[0] + nt.softmax(x).sum(), POINT),
    "no elements": (lambda x: x.sum(), np.zeros((0, 3))),
    "period of the usual steps": (lambda x: (x * (2000.0 * math.pi)).sin().sum(), POINT),
}


@pytest.mark.parametrize("name", PLANTED)
def test_planted_defects_are_named(name):
    function, point, verdicts = PLANTED[name]
    check = check_gradients(function, point)
    assert {str(verdict): n for verdict, n in check.counts.items()} == verdicts, str(check)
    assert not check.is_valid


@pytest.mark.parametrize("name", RIGHT)
def test_right_gradients_are_right(name):
    function, point = RIGHT[name]
    check = check_gradients(function, point)
    assert check.is_valid, str(check)
    assert check.max_error <= check.tolerance
    assert check.verdict is Verdict.RIGHT


@pytest.mark.parametrize("factor", [0.99, 1.01])
def test_a_rule_wrong_by_a_percent_is_never_called_right(factor):
    rng = np.random.default_rng(3)
    op = sin_times(factor)
    for _ in range(100):
        x = rng.normal(size=2) * 10.0 ** rng.uniform(-10, 4)
        scale, offset = 10.0 ** rng.uniform(-12, 12, 2)
        kinks = rng.integers(0, 2)
        check = check_gradients(lambda x, s=scale, o=offset, k=kinks: ((op(x) + k * x.abs()) * s).sum() + o, x)
        assert Verdict.RIGHT not in check.counts, str(check)


def test_a_kink_nearby_is_no_evidence_against_a_rule():
    x = np.array([-7.532555436656692e-08, -4.579778157000475e-07, -4.343278982388669e-07])
    check = check_gradients(lambda x: nt.exp(nt.gelu(nt.relu(x - x.mean())) ** 2), x)
    assert Verdict.WRONG not in check.counts, str(check)


def test_right_gradients_are_never_called_wrong():
    rng = np.random.default_rng(4)
    steps = [
        nt.sin,
        nt.exp,
        nt.tanh,
        nt.abs,
        nt.relu,
        nt.gelu,
        nt.softmax,
        nt.expm1,
        lambda x: x * x,
        lambda x: nt.log(abs(x) + 1e-3),
        lambda x: 1.0 / (x * x + 0.01),
        lambda x: x - x.mean(),
        lambda x: x * 1e5,
        lambda x: x * 1e-5,
        lambda x: x + 1e8,
    ]
    for _ in range(150):
        chosen = [steps[i] for i in rng.integers(0, len(steps), rng.integers(1, 6))]

        def composite(x, chosen=chosen):
            for step in chosen:
                x = step(x)
            return x

        check = check_gradients(composite, rng.normal(size=2) * 10.0 ** rng.uniform(-6, 4))
        assert Verdict.WRONG not in check.counts, str(check)


def test_a_dropped_broadcasting_sum_is_named_and_fails_the_adjoint_test():
    right, wrong = biased(lambda g: g.sum(0)), biased(lambda g: g[0] * 1.0)
    x, b = np.arange(6.0).reshape(3, 2), np.array([0.5, -0.5])
    assert check_gradients(lambda x, b: right(x, b) ** 2, x, b).is_valid
    check = check_gradients(lambda x, b: wrong(x, b) ** 2, x, b)
    assert [row.verdict for row in check.rows] == [Verdict.RIGHT, Verdict.WRONG]
    assert not check.adjoint.is_equal
    assert " differs from " in str(check.adjoint)


def test_a_wrong_forward_rule_alone_fails_the_adjoint_test():
    @declare.differentiable(
        jvps={"x": lambda t: t * 3.03},
        vjps={"x": lambda g: g * 3.0},
        cost=lambda out, *shapes: 0,
        samples=lambda: [],
    )
    def tripled(x, /):
        return x * 3.0

    tripled = unregistered(tripled)
    check = check_gradients(lambda x: tripled(x).sum(), POINT)
    assert check.counts == {Verdict.RIGHT: 3}
    assert not check.is_valid
    assert "gradients are right, but forward mode is WRONG: a JVP is not the transpose of its VJP;" in str(check)


def test_the_table_shows_arguments_verdicts_and_the_worst_element():
    w = nt.tensor([1.0, 2.0], dtype="float64", name="w")
    check = check_gradients(lambda w, x: (w * x).abs().sum() + nt.stop_gradient(w).sum(), w, np.array([0.0, 1.0]))
    lines = str(check).splitlines()
    assert lines[0].split("  ")[0] == "argument"
    assert "w         (2,)   2 wrong rule" in lines[1]
    assert "args[1]   (2,)   1 right, 1 kink  [0]" in lines[2]
    assert lines[3].startswith("adjoint test: <w, J t> = ")
    assert lines[4].startswith("gradients are WRONG: the gradient is not the derivative of the value; largest error ")
    assert not check


def test_what_is_not_certified_comes_with_advice():
    text = str(check_gradients(lambda x: x.abs().sum(), np.zeros(1)))
    assert text.splitlines()[-1] == (
        "gradients are NOT CERTIFIED: kink: the function has a kink there, or bends so near that steps pass over it; "
        "check away from it; largest error "
        "1.0e+00, tolerance 1e-06"
    )


def test_a_coarse_tolerance_certifies_low_precision():
    assert check_gradients(lambda x: x.astype("float32").exp().sum(), POINT, tolerance=1e-3).is_valid
    assert not check_gradients(lambda x: wrong_sin(x.astype("float32")).sum(), POINT, tolerance=1e-3).is_valid


def test_large_arguments_are_sampled_and_checked_along_directions():
    x = np.random.default_rng(0).normal(size=(60, 50))
    assert x.size > LARGE
    check = check_gradients(lambda x: nt.relu(x @ x.T), x)
    assert check.is_valid, str(check)
    assert [(row.unit, row.checked) for row in check.rows] == [("element", SAMPLED), ("direction", 4)]
    assert f"{SAMPLED} right (of 3000)" in str(check)
    assert "gradients are right as far as sampled" in str(check)


def test_one_wrong_element_of_many_is_found_along_directions():
    x = np.random.default_rng(1).normal(size=5000)
    lost = planted(np.sin, lambda x: nt.cos(x) * np.where(np.arange(x.shape[0]) == 1234, 1.01, 1.0))
    check = check_gradients(lambda x: lost(x), x)
    assert check.rows[0].counts == {Verdict.RIGHT: SAMPLED}
    assert check.rows[1].counts == {Verdict.WRONG: 4}


def test_many_wrong_elements_end_the_search():
    check = check_gradients(lambda x: wrong_sin(x), np.linspace(0.1, 1.0, 500))
    assert check.rows[0].counts == {Verdict.WRONG: 64}
    assert "64 wrong rule (of 500)" in str(check)


def test_arguments_and_the_random_stream_are_left_alone():
    x = POINT.copy()

    def halved(x):
        x /= 2.0
        return (x * x).sum()

    assert check_gradients(lambda x: halved(x * 1.0), x).is_valid
    np.testing.assert_array_equal(x, POINT)


@pytest.mark.parametrize("method", STENCILS)
def test_every_method_tells_right_from_wrong(method):
    assert check_gradients(lambda x: (x.exp() * x).sum(), POINT, method=method).is_valid
    assert check_gradients(lambda x: wrong_sin(x), POINT, method=method).counts == {Verdict.WRONG: 3}
    assert check_gradients(lambda x: x.abs().sum(), np.zeros(1), method=method).counts == {Verdict.KINK: 1}


@pytest.mark.parametrize(("method", "order"), [("central", 2), ("four_point", 4), ("six_point", 6), ("richardson", 6)])
def test_stencils_have_their_order(method, order):
    def error(step):
        return abs(measure(lambda t: (math.exp(t) - 1.0, math.exp(t)), STENCILS[method], step).slope - 1.0)

    assert math.log2(error(0.4) / error(0.2)) == pytest.approx(order, abs=0.1)


def test_extrapolation_is_exact_for_polynomials():
    nodes = (1.0, 4.0, 9.0)
    assert sum(w * (3.0 - n + 2.0 * n**2) for w, n in zip(at_zero(nodes), nodes, strict=True)) == pytest.approx(3.0)


def test_a_line_can_be_judged_by_itself():
    gauge = Gauge(STENCILS["six_point"], 1e-6)
    line = lambda t: (math.sin(t), abs(math.sin(t)))  # noqa: E731
    assert judge(Spot(line, 1.0, 0.0), gauge).verdict is Verdict.RIGHT
    finding = judge(Spot(line, 1.01, 0.0), gauge)
    assert (finding.verdict, finding.numeric) == (Verdict.WRONG, pytest.approx(1.0))
    assert finding.error == pytest.approx(0.01 / 1.01)


def test_a_given_step_is_tried_first():
    tried = []

    def square(x):
        tried.append(x.item())
        return x * x

    assert check_gradients(square, 1.0, step=1e-5, method="central").is_valid
    assert [abs(x - 1.0) for x in tried if x != 1.0][-4:] == pytest.approx([1e-5, 2e-5, 1e-5, 2e-5])
    # A step that is far too coarse condemns nothing.
    assert check_gradients(lambda x: x.exp().sum(), POINT, step=0.5, method="central").is_valid


# Modules, hooks and edges.


def test_the_parameters_of_a_float32_module_are_certified():
    model = nt.nn.Linear(3, 2, rng=0)
    before = [p.numpy(copy=True) for p in model.parameters()]
    check = check_gradients(lambda model: (model(nt.ones(4, 3)) ** 2).sum(), model)
    assert check.is_valid
    assert [(row.argument, row.shape) for row in check.rows] == [("weight", (2, 3)), ("bias", (2,))]
    assert [p.dtype for p in model.parameters()] == [nt.float32, nt.float32]
    assert all(np.array_equal(p.numpy(), b) for p, b in zip(model.parameters(), before, strict=True))
    assert nt.default_dtype() == nt.float32


def test_a_module_is_certified_as_a_function_and_stays_as_it_is():
    model = nt.nn.Sequential(nt.nn.Linear(3, 2, rng=0), nt.nn.BatchNorm1d(2), nt.nn.Tanh())
    before = [x.numpy(copy=True) for x in model.buffers()]
    assert check_gradients(model, nt.randn(4, 3, rng=0)).is_valid
    assert all(np.array_equal(x.numpy(), b) for x, b in zip(model.buffers(), before, strict=True))


def test_what_a_function_captures_in_float32_is_explained():
    x = nt.ones(4, 3)

    def loss(model):
        return model(x).sum()

    with pytest.raises(errors.DtypeError) as caught:
        check_gradients(loss, nt.nn.Linear(3, 2))
    assert str(caught.value) == (
        "check_gradients: it runs in float64, and loss failed at that: Linear: the input has dtype float32 and the "
        "weights have float64; use x.astype(nt.float64), or model.to(nt.float32). Pass what the function captures as "
        "arguments, or make it float64 for the check."
    )


def test_a_function_that_registers_a_hook_is_certified():
    def hooked(x):
        y = x * 2.0
        y.register_hook(lambda g: g * 1.0)
        return (y * y).sum()

    def spoiled(x):
        y = x * 2.0
        y.register_hook(lambda g: g * 1.5)
        return (y * y).sum()

    assert check_gradients(hooked, np.array([1.0, 2.0])).is_valid
    assert check_gradients(spoiled, np.array([1.0, 2.0])).verdict is Verdict.WRONG


def test_an_edge_beside_the_point_is_no_kink_at_it():
    assert check_gradients(nt.arccos, 1.0 - 1e-13).verdict is Verdict.NOISE
    assert check_gradients(lambda x: x**1.5, 0.0).verdict is Verdict.KINK


def test_a_large_output_does_not_hide_a_wrong_small_one():
    x = np.array([0.3, 1.2, -0.7])
    assert not nt.check_gradients(lambda x: nt.stack([x.sum() * 1e6, (x * x.detach()).sum()]), x)
    assert not nt.check_gradients(lambda x: nt.stack([nt.exp(20 * x).sum(), 1e-3 * (x * x.detach()).sum()]), x)
    assert nt.check_gradients(lambda x: nt.stack([nt.exp(20 * x).sum(), 1e-3 * x.sum(), x.sum() * 0.0 + 7.0]), x)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("count", [1, LARGE])
@pytest.mark.parametrize("large", [1e150, 1.7e308])
def test_a_check_at_large_numbers_does_not_warn(large, count):
    x = np.array([large] + count * [1.0])
    assert check_gradients(lambda v: v * 0.5, x)
    assert not check_gradients(lambda v: v.detach() * 0.25 + v * 0.25, x)


@pytest.mark.filterwarnings("error")
def test_slopes_that_overflow_when_they_are_compared_do_not_warn():
    assert check_gradients(lambda v: v * v, np.array([1e150, 1.0]))


def test_an_overflow_far_away_does_not_make_a_slope_negligible():
    assert not check_gradients(lambda v: v.detach() + 0.0 * v, 1.7e308)


def test_what_a_function_raises_beside_the_point_is_told():
    def above_one(v):
        if not (v.numpy() >= 1.0).all():
            raise ValueError("below one")
        return nt.log(v)

    check = check_gradients(above_one, np.array([1.0, 4.0]))
    assert check.counts == {Verdict.RIGHT: 1, Verdict.KINK: 1}
    assert check.rows[0].notes == {
        Verdict.KINK: "where args[0] differs by -1.8e-14, above_one raised ValueError: below one"
    }
    assert str(check).splitlines()[-1] == (
        "gradients are NOT CERTIFIED: kink: the function has a kink there, or bends so near that steps pass over it; "
        "check away from it; where args[0] "
        "differs by -1.8e-14, above_one raised ValueError: below one; largest error inf, tolerance 1e-06"
    )


def test_what_a_function_raises_all_around_the_point_is_told():
    def only_at_one(v):
        if v.item() != 1.0:
            raise ZeroDivisionError
        return nt.log(v)

    check = check_gradients(only_at_one, 1.0)
    assert check.verdict is Verdict.NOT_FINITE
    assert "only_at_one raised ZeroDivisionError;" in str(check)


def test_the_checker_finds_wrong_rules():
    result = NumericalChecker("richardson", tolerance=1e-4).check_gradient(
        nt.GradientTape(), POINT, lambda tape, x: wrong_sin(x).sum()
    )
    assert not result.is_valid
    assert result.max_error == pytest.approx(0.01 / 1.01, rel=1e-3)


def test_steps_of_the_function_itself_are_no_lack_of_precision():
    through = nt.custom_gradient(lambda x: (nt.round(x), lambda g: g))
    for point in (0.3, 1.2, -7.4):
        assert nt.check_gradients(lambda x: through(x).sum(), np.array([point])).rows[0].verdict is Verdict.WRONG


def test_functions_may_run_transforms_at_arrays():
    points = np.array([0.5, 1.0, 2.0])

    def loss(w):
        return ((nt.elementwise_grad(lambda t: nt.sin(w * t))(points) - 1.0) ** 2).mean()

    w = np.array([1.3, 0.7, 0.2])
    assert nt.check_gradients(loss, w)
    assert nt.check_gradients(lambda w: nt.hessian(lambda t: (w * t**3).sum())(points), w)


def test_functions_may_use_tapes_inside():
    def slope(x, **options):
        with nt.GradientTape() as tape:
            z = tape.watch(x * 1.0)
            y = (z**3).sum()
        return tape.gradient(y, z, **options).sum()

    point = np.array([0.3, 1.2])
    assert nt.check_gradients(slope, point)
    assert nt.check_gradients(lambda x: slope(x, unconnected="zero"), point)
    tape = nt.GradientTape(persistent=True)
    checked = nt.NumericalChecker().check_gradient_central(
        tape, tape.watch(nt.tensor(point)), lambda tape, x: tape.gradient((tape.watch(x) ** 3).sum(), x).sum()
    )
    assert checked.is_valid


def test_a_check_changes_nothing():
    norm = nt.nn.BatchNorm1d(3).double()
    x = np.random.default_rng(0).normal(size=(5, 3))
    nt.seed(0)
    expected = nt.rand(2).tolist()
    nt.seed(0)
    with nt.Tape() as tape:
        nt.check_gradients(lambda x: (norm(x) ** 3).sum() * nt.rand(1, dtype="float64"), x)
        assert nt.check_gradients(lambda x: (norm(x) ** 3).sum(), x)
    assert len(tape) == 0
    assert norm.num_batches_tracked.item() == 0
    assert norm.running_mean.tolist() == [0.0, 0.0, 0.0]
    assert nt.rand(2).tolist() == expected


@pytest.mark.parametrize("seed", ["a", -1, 1.5, True])
def test_a_seed_is_an_integer(seed):
    with pytest.raises(nt.errors.ArgumentError, match=r"check_gradients: seed is .*; it must be an integer"):
        nt.check_gradients(lambda x: x.sum(), np.ones(2), seed=seed)


def test_functions_of_a_tape_may_ask_it_for_gradients():
    tape = nt.GradientTape(persistent=True)
    x = tape.watch(nt.tensor([1.0, 2.0], dtype="float64"))
    assert NumericalChecker().check_gradient(tape, x, lambda tape, x: tape.gradient((x**3).sum(), x).sum()).is_valid
