"""The check of custom rules at first calls: operands that hide a mistake do not settle a rule."""

import numpy as np
import pytest

import numtape as nt
from numtape.errors import GradientError

X = np.array([0.5, 1.0, 2.0])


def wrong_product():
    """Return a product whose rule by `b` is right only where both operands are equal."""

    @nt.custom_op(vjp={"a": lambda g, a, b: g * b, "b": lambda g, a, b: g * b})
    def product(a, b, /):
        return a * b

    return product


@pytest.mark.parametrize("count", [1, 100])
def test_equal_operands_do_not_settle_a_rule(count):
    product = wrong_product()
    for _ in range(count):
        assert nt.grad(lambda x: product(x, x).sum())(X).tolist() == (2.0 * X).tolist()
    with pytest.raises(GradientError, match="the vjp rule of argument 'b'"):
        nt.grad(lambda b: product(X, b).sum())(2.0 * X)


def test_equal_operands_of_a_sample_do_not_settle_a_rule():
    @nt.custom_op(vjp={"a": lambda g, a, b: g * b, "b": lambda g, a, b: g * b}, samples=[(X, X)])
    def product(a, b, /):
        return a * b

    with pytest.raises(GradientError, match="the vjp rule of argument 'b'"):
        nt.grad(lambda b: product(X, b).sum())(2.0 * X)


@pytest.mark.parametrize(
    ("forward", "rule", "x"),
    [
        (np.square, lambda g: 2.0 * g, np.ones(3)),
        (np.square, lambda g: 4.0 * g, np.array(2.0)),
        (np.prod, lambda g, x: g * x, np.full(2, 2.0)),
        (np.linalg.inv, lambda g, x: -x @ g @ x, np.eye(2)),
    ],
)
def test_special_operands_do_not_settle_a_rule(forward, rule, x):
    op = nt.custom_op(vjp={"x": rule})(lambda x, /: forward(x))
    for _ in range(10):
        nt.grad(lambda x: op(x).sum())(x)
    with pytest.raises(GradientError, match="Correct the rule"):
        nt.grad(lambda x: op(x).sum())(x + 0.3 * np.arange(1.0, 1.0 + x.size).reshape(x.shape))


def counted(forward, **options):
    """Return an op and the list that grows with each run of its forward."""
    calls = []

    def run(*arrays):
        calls.append(1)
        return forward(*arrays)

    if len(options["vjp"]) == 1:
        return nt.custom_op(**options)(lambda x, /: run(x)), calls
    return nt.custom_op(**options)(lambda x, y, /: run(x, y)), calls


SPD = np.array([[2.0, 0.3], [0.3, 1.0]])
SETTLED = {
    "equal operands": (np.multiply, {"x": lambda g, y: g * y, "y": lambda g, x: g * x}, (X, X)),
    "ones": (np.square, {"x": lambda g, x: 2.0 * g * x}, (np.ones(3),)),
    "the upper edge": (np.arccos, {"x": lambda g, x: -g / np.sqrt(1.0 - x * x)}, (np.array([0.995]),)),
    "the lower edge": (np.arccosh, {"x": lambda g, x: g / np.sqrt(x * x - 1.0)}, (np.array([1.005]),)),
    # Right for symmetric matrices only, as all that come are.
    "symmetric matrices": (lambda x: np.linalg.slogdet(x)[1], {"x": lambda g, x: g * np.linalg.inv(x)}, (SPD,)),
}


@pytest.mark.parametrize("name", SETTLED)
def test_a_right_rule_is_settled_at_its_first_call(name):
    forward, rules, arrays = SETTLED[name]
    op, calls = counted(forward, vjp=rules)
    operands = [nt.tensor(x, requires_grad=True) for x in arrays]
    op(*operands)
    assert len(calls) > 2
    calls.clear()
    op(*operands)
    assert len(calls) == 1


def test_equal_operands_are_checked_once():
    wrong, calls = counted(np.multiply, vjp={"x": lambda g, y: g * y, "y": lambda g, y: g * y})
    x = nt.tensor(X, requires_grad=True)
    wrong(x, x)
    calls.clear()
    wrong(x, x)
    assert len(calls) == 1


def test_a_rule_that_is_right_where_it_is_called_is_not_accused():
    """On unit vectors this one is; the check beside them only keeps watching, and not forever."""
    op, calls = counted(lambda x: x / np.sqrt(np.sum(x * x)), vjp={"x": lambda g, x: g - x * np.sum(g * x)})
    for k in range(60):
        x = np.array([np.cos(k), np.sin(k)])
        calls.clear()
        assert np.allclose(nt.grad(lambda x: op(x)[0])(x), np.array([1.0, 0.0]) - x * x[0])
    assert len(calls) == 1


def test_an_operand_that_is_symmetric_hides_no_mistake_about_another():
    """The rule by `a` forgets to transpose `b`."""
    op = nt.custom_op(vjp={"a": lambda g, b: g @ b, "b": lambda g, a: a.T @ g})(lambda a, b, /: a @ b)
    nt.grad(lambda a: op(a, np.eye(2)).sum())(np.eye(2))
    with pytest.raises(GradientError, match="the vjp rule of argument 'a'"):
        nt.grad(lambda a: op(a, np.array([[2.0, 5.0], [1.0, 3.0]])).sum())(np.eye(2))


def test_a_covariance_hides_no_mistake_about_another_operand():
    """The rule by `f` forgets to transpose `g`."""
    covariance = np.array([[2.0, 0.5], [0.5, 1.0]])
    op = nt.custom_op(vjp={"f": lambda g, f, p: g @ f @ (p + p.T), "p": None})(lambda f, p, /: f @ p @ f.T)
    gradient = nt.grad(lambda f: (op(f, covariance) * np.array([[1.0, 2.0], [3.0, 7.0]])).sum())
    with pytest.raises(GradientError, match="the vjp rule of argument 'f'"):
        list(map(gradient, (np.eye(2), np.array([[1.0, 2.0], [0.5, 3.0]]))))


RNG = np.random.default_rng(0)
HARD = {
    "float32 inside": (
        lambda x: np.sum(x.astype(np.float32) ** 2).astype(x.dtype),
        lambda g, x: g * 2.0 * x,
        [np.arange(1.0, 60.0), *RNG.normal(5.0, 1.0, (10, 50)), *RNG.normal(1000.0, 1.0, (10, 50))],
    ),
    "many periods": (
        np.sin,
        lambda g, x: g * nt.cos(x),
        [*RNG.normal(size=(5, 3)) * 1e6, *RNG.normal(size=(5, 3)) * 1e9],
    ),
    "fast": (lambda x: np.sin(1e4 * x), lambda g, x: 1e4 * g * nt.cos(1e4 * x), [np.array([-40.0, 3.0])]),
    "steps between which it is straight": (
        lambda x: np.mod(x, 1.0),
        lambda g: g,
        1.7e9 + RNG.uniform(0.0, 1e6, (10, 3)),
    ),
    "steps between which it is flat": (np.floor, lambda g: 0.0 * g, 1.7e9 + RNG.uniform(0.0, 1e6, (10, 3))),
    "rounded away": (
        lambda x: np.log(1.0 + np.exp(x)),
        lambda g, x: g / (1.0 + nt.exp(-x)),
        [np.array([-40.0]), np.array([-40.0, -39.0])],
    ),
    "nearly rounded away": (lambda x: 1.0 - np.cos(x), lambda g, x: g * nt.sin(x), [np.array([1e-7, 2e-7])]),
}


@pytest.mark.parametrize("name", HARD)
def test_a_right_rule_is_not_refused_where_differences_are_hard_to_take(name):
    forward, rule, points = HARD[name]
    for x in points:
        op = nt.custom_op(vjp={"x": rule})(lambda x, /: forward(x))
        nt.grad(lambda x, op=op: nt.sum(op(x)))(x)


@pytest.mark.parametrize("factor", [0.5, 1.1, 2.0])
@pytest.mark.parametrize("forward", [lambda x: x * x + 1e10, lambda x: (x.astype(np.float32) ** 2).astype(x.dtype)])
def test_a_wrong_rule_is_caught_in_the_midst_of_rounding(forward, factor):
    """At one of its first calls at the latest."""
    for row in RNG.normal(size=(10, 3, 4)):
        op = nt.custom_op(vjp={"x": lambda g, x: factor * g * 2.0 * x})(lambda x, /: forward(x))
        with pytest.raises(GradientError, match="Correct the rule"):
            list(map(nt.grad(lambda x, op=op: op(x).sum()), row))


@pytest.mark.parametrize("make", [list, tuple, np.array, lambda w: {"w": w}], ids=["list", "tuple", "array", "dict"])
def test_rules_are_checked_anew_for_other_parameters_that_cannot_be_hashed(make):
    @nt.custom_op(vjp={"x": lambda g: g * 1.0})  # It ignores w.
    def scaled(x, /, *, w):
        return x * np.asarray(w["w"] if isinstance(w, dict) else w)

    assert nt.grad(lambda x: scaled(x, w=make([1.0, 1.0, 1.0])).sum())(X).tolist() == [1.0, 1.0, 1.0]
    with pytest.raises(GradientError, match="scaled: the vjp rule of argument 'x'"):
        nt.grad(lambda x: scaled(x, w=make([3.0, 3.0, 3.0])).sum())(X)


def test_a_function_that_is_not_linear_as_declared_is_named():
    message = (
        "square: linear names 'x', but -2 times that operand does not give -2 times the output (on sample 0). Leave it "
        "out of linear."
    )
    rules = {"x": lambda g, x: g * 2.0 * x}

    def square(x, /):
        return x * x

    with pytest.raises(GradientError) as caught:
        nt.custom_op(vjp=rules, linear=("x",), samples=[(X,)])(square)
    assert str(caught.value) == message
    with pytest.raises(GradientError, match="linear names 'x'"):
        nt.derivatives(nt.custom_op(vjp=rules, linear=("x",))(square), 2.0, 2)
    with pytest.raises(nt.errors.ArgumentError) as caught:
        nt.custom_op(vjp=rules, linear=("z",))(square)
    assert str(caught.value) == "square: linear names 'z', which is no operand; the operands are x."
    halved = nt.custom_op(vjp={"x": lambda g: g * 0.5}, linear=("x",), samples=[(X,)])(lambda x, /: x * 0.5)
    np.testing.assert_allclose(nt.derivatives(lambda x: halved(x * x), 2.0, 2), [2.0, 2.0, 1.0])


def test_operands_that_are_none_are_named_by_the_op():
    @nt.custom_op(vjp={"x": lambda g, y: g * y, "y": lambda g, x: g * x})
    def product(x, y, /):
        return x * y

    for operand, told in (
        ("ab", "product: operand 'y' is of type str; it must be a tensor, an array or a number."),
        ({"a": 1}, "product: operand 'y' is of type dict; it must be a tensor, an array or a number."),
        (
            1j * X,
            "product: operand 'y' has dtype complex128, which is not supported, since numtape computes with real ",
        ),
    ):
        with pytest.raises(nt.errors.NumtapeError) as caught:
            product(nt.tensor(X), operand)
        assert str(caught.value).startswith(told)
