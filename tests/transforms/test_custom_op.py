"""Ops that users declare."""

import copy
import math

import numpy as np
import pytest
from custom_functions import OperandError, X, cube, message_of

import numtape as nt
from numtape.core.declare import registry
from numtape.core.facts import Facts
from numtape.transforms.custom_ops import custom_op

# custom_op: what it computes.


def square_op(**options):
    def my_square(x, /, *, scale=1.0):
        return scale * np.square(x)

    return custom_op(**options)(my_square)


SQUARES = {
    "vjp": dict(vjp={"x": lambda g, x, scale: g * 2.0 * scale * x}),
    "jvp": dict(jvp={"x": lambda t, x, scale: t * 2.0 * scale * x}),
    "both": dict(
        vjp={"x": lambda g, x, scale: g * 2.0 * scale * x}, jvp={"x": lambda t, x, scale: t * 2.0 * scale * x}
    ),
    "joint": dict(vjp=lambda g, x, scale: (g * 2.0 * scale * x,)),
    "elementwise": dict(vjp={"x": lambda g, x, scale: g * 2.0 * scale * x}, structure="elementwise"),
    "elementwise jvp": dict(jvp={"x": lambda t, x, scale: t * 2.0 * scale * x}, structure="elementwise"),
}


@pytest.mark.parametrize("options", SQUARES.values(), ids=SQUARES)
def test_one_rule_gives_both_modes_and_all_orders(options):
    my_square = square_op(**options)
    t = np.array([1.0, -2.0, 0.5])
    assert my_square(X, scale=2.0).tolist() == (2.0 * X**2).tolist()
    np.testing.assert_allclose(nt.grad(lambda x: my_square(x, scale=3.0).sum())(X), 6.0 * X, rtol=1e-12)
    np.testing.assert_allclose(nt.jvp(lambda x: my_square(x, scale=3.0), X, t)[1], 6.0 * X * t, rtol=1e-12)

    def forward(function):
        return lambda x: nt.jvp(function, (x,), (1.0,))[1]

    def cubed(x):
        return my_square(x) * x

    assert nt.grad(nt.grad(cubed))(2.0) == 12.0
    assert forward(forward(cubed))(2.0) == 12.0
    assert forward(nt.grad(cubed))(2.0) == 12.0
    assert nt.grad(forward(cubed))(2.0) == 12.0
    assert nt.grad(forward(nt.grad(cubed)))(2.0) == 6.0


def matmul_op(**options):
    def my_matmul(a, b, /):
        return a @ b

    return custom_op(**options)(my_matmul)


MATMULS = {
    "vjp": dict(vjp={"a": lambda g, b: g @ b.T, "b": lambda g, a: a.T @ g}),
    "jvp": dict(jvp={"a": lambda t, b: t @ b, "b": lambda t, a: a @ t}),
    "one each": dict(vjp={"a": lambda g, b: g @ b.T}, jvp={"b": lambda t, a: a @ t}),
    "joint": dict(vjp=lambda g, a, b: (g @ b.T, a.T @ g)),
}


@pytest.mark.parametrize("options", MATMULS.values(), ids=MATMULS)
def test_rules_of_several_arguments_may_be_given_in_either_mode(options):
    my_matmul = matmul_op(**options)
    rng = np.random.default_rng(1)
    a, b, s, t = (rng.normal(size=shape) for shape in ((2, 3), (3, 4), (2, 3), (3, 4)))
    mine = nt.grad(lambda a, b: (my_matmul(a, b) ** 2).sum(), argnums=(0, 1))(a, b)
    library = nt.grad(lambda a, b: ((a @ b) ** 2).sum(), argnums=(0, 1))(a, b)
    for ours, theirs in zip(mine, library, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-12)
    np.testing.assert_allclose(nt.jvp(my_matmul, (a, b), (s, t))[1], s @ b + a @ t, rtol=1e-12)


def test_jacobians_and_hessians_go_through_custom_derivatives():
    my_square = square_op(**SQUARES["vjp"])
    weights = np.arange(9.0).reshape(3, 3)
    my_matmul = matmul_op(**MATMULS["jvp"])
    expected = weights @ np.diag(2.0 * X) * (3.0 * (weights @ X**2) ** 2)[:, None]
    for mode in ("forward", "reverse"):
        jacobian = nt.jacobian(lambda x: cube(my_matmul(weights, my_square(x).reshape(3, 1)).reshape(3)), mode=mode)
        np.testing.assert_allclose(jacobian(X), expected, rtol=1e-12)
    hessian = nt.hessian(lambda x: (cube(x) * my_square(x)).sum())(X)
    np.testing.assert_allclose(hessian, np.diag(20.0 * X**3), rtol=1e-12, atol=1e-12)


def test_a_rule_that_needs_arrays_gets_the_members_of_a_batch_one_by_one():
    def pull(g, x):
        return np.array([2.0 * float(a) * b for a, b in zip(g, x, strict=True)])

    for rule in ({"x": pull}, lambda g, x: (pull(g, x),)):
        my_square = square_op(vjp=rule)
        assert nt.jacobian(my_square, mode="reverse")(X).tolist() == np.diag(2.0 * X).tolist()


def test_broadcasting_is_undone():
    my_mul = custom_op(vjp={"a": lambda g, b: g * b, "b": lambda g, a: g * a})(_times)
    gradient = nt.grad(lambda b: my_mul(np.ones((4, 3)), b).sum())(X)
    assert gradient.tolist() == [4.0, 4.0, 4.0]
    np.testing.assert_allclose(nt.jvp(lambda b: my_mul(np.ones((2, 3)), b), X, X)[1], np.stack([X, X]), rtol=1e-12)


def _times(a, b, /):
    return a * b


def split_op(**options):
    def halves(x, /):
        return x[:2] * 2.0, x[2:] ** 2

    return custom_op(**options)(halves)


def test_several_outputs_have_rules_in_both_modes():
    def pull(g, x):
        first = np.zeros(2) if g[0] is None else g[0] * 2.0
        second = np.zeros(1) if g[1] is None else g[1] * 2.0 * x[2:]
        return nt.concat([first, second])

    for options in ({"vjp": {"x": pull}}, {"jvp": {"x": lambda t, x: (t[:2] * 2.0, 2.0 * x[2:] * t[2:])}}):
        halves = split_op(**options)
        gradient = nt.grad(lambda x, halves=halves: halves(x)[0].sum() + 10.0 * halves(x)[1].sum())(X)
        assert gradient.tolist() == [2.0, 2.0, 40.0]
        tangents = nt.jvp(halves, X, np.ones(3))[1]
        assert [t.tolist() for t in tangents] == [[2.0, 2.0], [4.0]]


def test_a_rule_reads_the_output_and_shapes():
    my_exp = custom_op(vjp={"x": lambda g, out: g * out})(_exp)
    my_sum = custom_op(vjp={"x": lambda g, x_shape: np.ones(x_shape) * g})(_sum)
    np.testing.assert_allclose(nt.grad(lambda x: my_sum(my_exp(x)))(X), np.exp(X), rtol=1e-12)
    np.testing.assert_allclose(nt.jvp(lambda x: my_sum(my_exp(x)), X, X)[1], np.sum(np.exp(X) * X), rtol=1e-12)
    np.testing.assert_allclose(nt.grad(nt.grad(my_exp))(0.5), math.exp(0.5), rtol=1e-12)


def _exp(x, /):
    return np.exp(x)


def _sum(x, /):
    return np.sum(x)


def test_operands_may_be_named_and_have_defaults():
    my_mul = custom_op(vjp={"a": lambda g, b: g * b, "b": lambda g, a: g * a})(_times_two)
    assert my_mul(a=X).tolist() == (2.0 * X).tolist()
    assert nt.grad(lambda x: my_mul(b=x, a=3.0))(2.0) == 3.0


def _times_two(a, b=2.0, /):
    return a * b


def test_an_op_of_a_name_that_the_library_has_is_another_op():
    before = registry["exp"]

    def exp(x, /):
        return 2.0 * np.exp(x)

    rule = {"x": lambda g, out: g * out}
    mine = custom_op(vjp=rule)(exp)
    again = custom_op(vjp=rule)(exp)
    assert registry["exp"] is before
    assert nt.exp(0.0) == 1.0
    assert mine.op is not again.op
    assert nt.grad(again)(0.0) == 2.0


def test_facts_are_those_of_any_op():
    op = square_op(vjp={"x": lambda g, x, scale: g * 2.0 * scale * x}, structure="elementwise", kinks="none").op
    assert (op.facts.structure.name, op.facts.kinks, op.facts.cost((2, 3), (2, 3), scale=1.0)) == (
        "ELEMENTWISE",
        "none",
        6,
    )
    dense = matmul_op(vjp=MATMULS["joint"]["vjp"], cost=lambda out, a, b: 2 * a[0] * a[1] * b[1]).op
    assert dense.facts.cost((2, 4), (2, 3), (3, 4)) == 48
    assert dense.facts.batch is None


def test_an_argument_without_derivative_says_so():
    @custom_op(vjp={"x": lambda g, index, x_shape: g * np.eye(x_shape[0])[index], "index": None})
    def row(x, index, /):
        return x[index]

    assert nt.grad(lambda x: row(x, np.array(1)))(X).tolist() == [0.0, 1.0, 0.0]
    tracked = nt.tensor(1.0, requires_grad=True)
    not_picked = custom_op(vjp={"x": lambda g: g, "y": None})(lambda x, y, /: x + 0.0 * y)
    assert message_of(nt.errors.NotDifferentiableError, lambda: not_picked(X, tracked)) == (
        "<lambda>: argument 'y' has no derivative, but a tracked tensor was given; pass y.detach() if its gradient is "
        "not wanted."
    )


# custom_op: its checks.


def test_a_wrong_rule_is_named_at_the_first_call():
    wrong = square_op(vjp={"x": lambda g, x, scale: g * 3.0 * scale * x})
    text = message_of(nt.errors.GradientError, lambda: nt.grad(wrong)(2.0))
    assert text == (
        "my_square: the vjp rule of argument 'x' gives a directional derivative of -5.1121, differences of the "
        "function give -3.40807 (at its first call with scale=1.0). Correct the rule, or declare the op with "
        "check=False if its derivative differs on purpose."
    )
    wrong = square_op(jvp={"x": lambda t, x, scale: t * 2.0 * x * scale**2})
    assert nt.jvp(wrong, 2.0, 1.0)[1] == 4.0
    text = message_of(nt.errors.GradientError, lambda: nt.jvp(lambda x: wrong(x, scale=2.0), 2.0, 1.0))
    assert text.startswith("my_square: the jvp rule of argument 'x' gives a directional derivative of ")
    assert "(at its first call with scale=2.0)" in text


def test_rules_are_checked_anew_for_sixteen_sets_of_static_parameters():
    calls = []

    def rule(g, x, scale):
        calls.append(scale)
        return g * 2.0 * x * scale

    op = square_op(vjp={"x": rule})
    counts = []
    for scale in range(1, 20):
        for _ in range(2):
            before = len(calls)
            nt.grad(lambda x, scale=float(scale): op(x, scale=scale))(2.0)
            counts.append(len(calls) - before)
    assert all(count > 1 for count in counts[:32:2])  # Once for the gradient, the others are checks.
    assert counts[1:32:2] == [1] * 16
    assert counts[32:] == [1] * 6


def test_of_parameters_that_cannot_be_told_apart_the_first_is_checked():
    op = nt.custom_op(vjp={"x": lambda g, x, weights: g * weights[0]})(named("weighted"))
    assert nt.grad(lambda x: op(x, weights=[2.0]))(3.0) == 2.0
    assert nt.grad(lambda x: op(x, weights=[5.0]))(3.0) == 5.0


def named(name):
    def function(x, /, *, weights):
        return x * weights[0]

    function.__name__ = name
    return function


def test_what_samples_settle_is_checked_at_calls_with_other_parameters_alone():
    calls = []

    def rule(g, x, scale):
        calls.append(scale)
        return g * 2.0 * x

    op = square_op(vjp={"x": rule}, samples=[(X,)])
    calls.clear()
    assert nt.grad(op)(2.0) == 4.0
    assert calls == [1.0]
    text = message_of(nt.errors.GradientError, lambda: nt.grad(lambda x: op(x, scale=3.0))(2.0))
    assert "(at its first call with scale=3.0)" in text


def test_a_wrong_rule_is_named_at_its_declaration_if_there_are_samples():
    text = message_of(
        nt.errors.GradientError,
        lambda: square_op(vjp={"x": lambda g, x, scale: g * 2.0 * abs(x)}, samples=[(np.ones(2),), (X,)]),
    )
    assert text.startswith("my_square: the vjp rule of argument 'x' gives a directional derivative of ")
    assert "(on sample 1). Correct the rule, or declare" in text
    assert square_op(**SQUARES["vjp"], samples=[(X,)])(X).tolist() == (X**2).tolist()


def test_rules_that_are_not_transposes_of_each_other_are_named():
    wrong = square_op(vjp=SQUARES["vjp"]["vjp"], jvp={"x": lambda t, x, scale: t * scale * x})
    assert message_of(nt.errors.GradientError, lambda: nt.grad(wrong)(2.0)) == (
        "my_square: the vjp rule of argument 'x' is not the transpose of its jvp rule: <vjp(g), t> is -3.40807 and "
        "<g, jvp(t)> is -1.70403 (at its first call with scale=1.0). Correct one of them, or leave one out: it is then "
        "made from the other."
    )


def test_a_derivative_that_differs_on_purpose_is_not_checked():
    rounded = custom_op(vjp={"x": lambda g: g}, check=False)(_round)
    assert nt.grad(lambda x: (rounded(x) * 3.0).sum())(X).tolist() == [3.0, 3.0, 3.0]
    with pytest.raises(nt.errors.GradientError, match="check=False if its derivative differs on purpose"):
        nt.grad(custom_op(vjp={"x": lambda g: g})(_round))(0.2)


def _round(x, /):
    return np.round(x)


def test_the_check_runs_until_differences_can_tell_and_not_longer():
    calls = []

    @custom_op(vjp={"x": lambda g, x: g * 2.0 * x})
    def counted(x, /):
        calls.append(1)
        return np.square(x)

    x = nt.tensor(X, requires_grad=True)
    counted(X)
    assert len(calls) == 1
    counted(nt.tensor([0.0], requires_grad=True))  # A derivative of zero says little.
    counted(x)
    assert len(calls) > 2
    calls.clear()
    counted(x)
    assert len(calls) == 1


def test_a_right_rule_passes_at_kinks_in_noise_and_at_the_edge_of_its_domain():
    my_relu = custom_op(vjp={"x": lambda g, x: g * (x > 0.0)})(lambda x, /: np.maximum(x, 0.0))
    assert nt.grad(lambda x: my_relu(x).sum())(np.array([0.0, 1.0, -1.0, 0.0])).tolist() == [0.0, 1.0, 0.0, 0.0]
    offset = custom_op(vjp={"x": lambda g: g})(lambda x, /: x + 1e12)
    assert nt.grad(offset)(1.0) == 1.0
    my_log = custom_op(vjp={"x": lambda g, x: g / x})(lambda x, /: np.log(x))
    assert nt.grad(my_log)(1e-12) == 1e12
    my_arccos = custom_op(vjp={"x": lambda g, x: -g / np.sqrt(1.0 - x * x)})(lambda x, /: np.arccos(x))
    assert nt.grad(my_arccos)(0.0) == -1.0
    large = custom_op(vjp={"x": lambda g, x: g * 2.0 * x})(lambda x, /: x * x)
    assert nt.grad(large)(1e9) == 2e9


def test_the_check_runs_in_float64_whatever_the_operands_are():
    my_square = square_op(**SQUARES["vjp"])
    for dtype in ("float16", "bfloat16", "float32"):
        x = nt.tensor([1.0, 2.0], dtype=dtype, requires_grad=True)
        y = my_square(x)
        y.sum().backward()
        assert (y.dtype, x.grad.dtype) == (x.dtype, x.dtype)
        assert x.grad.tolist() == [2.0, 4.0]


# custom_op: what it refuses.


def test_custom_op_declares_functions_only():
    assert message_of(OperandError, lambda: custom_op(vjp={})(3)) == (
        "custom_op: declares functions, not int; write @nt.custom_op(vjp=...) above one."
    )


def test_custom_op_without_rules_says_how_to_write_them():
    assert message_of(OperandError, lambda: custom_op(_exp)) == (
        "custom_op: wants the rules first; write @nt.custom_op(vjp={...}) above the function."
    )


def test_operands_must_be_positional_only():
    assert message_of(OperandError, lambda: custom_op(vjp={"x": lambda g: g})(lambda x, scale=1.0: x)) == (
        "custom_op: the signature is <lambda>(x, scale=1.0); operands must be positional-only and static parameters "
        "keyword-only, as in `def f(x, y, /, *, scale=1.0)`."
    )


def test_a_rule_of_an_unknown_argument_is_named():
    assert message_of(nt.errors.ArgumentError, lambda: square_op(vjp={"y": lambda g: g})) == (
        "my_square: vjp has a rule for 'y', which is no operand; the operands are x."
    )
    assert message_of(nt.errors.ArgumentError, lambda: square_op(jvp={"scale": lambda t: t})) == (
        "my_square: jvp has a rule for 'scale', which is no operand; the operands are x."
    )


def test_an_argument_without_rule_is_named():
    assert message_of(nt.errors.ArgumentError, lambda: matmul_op(vjp={"a": lambda g, b: g @ b.T})) == (
        "my_matmul: argument 'b' has no rule; give one in vjp or jvp, or None there if it has no derivative."
    )
    assert message_of(nt.errors.ArgumentError, lambda: square_op()) == (
        "my_square: argument 'x' has no rule; give one in vjp or jvp, or None there if it has no derivative."
    )


def test_rules_of_a_wrong_type_are_named():
    assert message_of(OperandError, lambda: square_op(vjp=[1])) == (
        "my_square: vjp is list; it must be a dictionary with a rule for each argument or one function that returns a "
        "tuple."
    )
    assert message_of(OperandError, lambda: square_op(jvp=lambda t: t)) == (
        "my_square: jvp is function; it must be a dictionary with a rule for each argument."
    )
    assert message_of(OperandError, lambda: square_op(vjp={"x": 3})) == (
        "my_square: the vjp rule of argument 'x' is int; it must be a function, or None if there is no derivative."
    )


def test_a_rule_that_reads_something_unknown_is_named():
    assert message_of(nt.errors.ArgumentError, lambda: square_op(vjp={"x": lambda g, y: g})) == (
        "my_square: the vjp rule of argument 'x' reads 'y'; it may read x, scale, out, and shapes as in x_shape."
    )
    factor = 2.0
    bound = square_op(vjp={"x": lambda g, x, scale, factor=factor: g * factor * x * scale})
    assert nt.grad(bound)(3.0) == 6.0


def test_unknown_facts_and_structures_are_named():
    hidden = {"also", "flops", "inside", "is_discrete", "numpy", "of_units", "samples"}
    names = ", ".join(sorted(set(Facts._fields) - hidden))
    assert message_of(nt.errors.ArgumentError, lambda: custom_op(vjp={}, flops=3)) == (
        f"custom_op: there is no fact 'flops'; the facts are {names}."
    )
    assert message_of(nt.errors.ArgumentError, lambda: square_op(**SQUARES["vjp"], structure="flat")) == (
        "custom_op: there is no structure 'flat'; the structures are elementwise, moves, scatters, lanes, matrices, "
        "terms, dense."
    )


def test_wrong_results_of_rules_are_named():
    cases = [
        ({"vjp": {"x": lambda g: g[:2]}}, "the vjp rule of argument 'x' returned shape (2,); the argument"),
        ({"vjp": {"x": lambda g: None}}, "the vjp rule of argument 'x' returned None; the argument"),
        ({"vjp": lambda g: (g[:2],)}, "the vjp rule returned shape (2,); argument 'x'"),
    ]
    for options, start in cases:
        text = message_of(
            nt.errors.ShapeError,
            lambda options=options: nt.grad(lambda x: square_op(check=False, **options)(x).sum())(X),
        )
        assert text == f"my_square: {start} has shape (3,), and they must be equal."


def test_a_tangent_of_a_wrong_shape_is_named():
    wrong = square_op(jvp={"x": lambda t: t[:2]}, check=False)
    assert message_of(nt.errors.ShapeError, lambda: nt.jvp(wrong, X, X)) == (
        "my_square: the jvp rule of argument 'x' returned shape (2,); the output has shape (3,), and they must be "
        "equal."
    )


def test_a_wrong_number_of_cotangents_of_a_joint_rule_is_named():
    one = matmul_op(vjp=lambda g, a, b: (g @ b.T,))
    none = matmul_op(vjp=lambda g, a, b: g @ b.T)
    a = nt.tensor(np.eye(2), requires_grad=True)
    assert message_of(nt.errors.ArgumentError, lambda: one(a, np.eye(2))) == (
        "my_matmul: the vjp rule returned 1; it must return a tuple of 2, one for each argument."
    )
    assert message_of(nt.errors.ArgumentError, lambda: none(a, np.eye(2))) == (
        "my_matmul: the vjp rule returned ndarray; it must return a tuple of 2, one for each argument."
    )


def test_calls_that_do_not_fit_the_signature_are_named():
    my_square = square_op(**SQUARES["vjp"])
    assert message_of(OperandError, lambda: my_square(X, factor=2.0)) == (
        "my_square: got an unexpected keyword argument 'factor'; its signature is my_square(x, *, scale=1.0)."
    )


def test_a_rule_that_is_not_linear_has_no_transpose():
    bent = square_op(vjp={"x": lambda g, x: np.clip(g * 2.0 * x, -1.0, 1.0)}, check=False)
    assert nt.grad(bent)(2.0) == 1.0
    assert message_of(nt.errors.NotDifferentiableError, lambda: nt.jvp(bent, 2.0, 1.0)) == (
        "my_square: forward mode by argument 'x' transposes the vjp rule, which is not linear, so that it has no "
        "transpose. Write the rule with nt or np functions, linear in g, or give jvp={'x': ...}."
    )
    bent = square_op(jvp={"x": lambda t, x: np.abs(t) * 2.0 * x}, check=False)
    assert message_of(nt.errors.NotDifferentiableError, lambda: nt.grad(bent)(2.0)) == (
        "my_square: reverse mode by argument 'x' transposes the jvp rule, which is not linear, so that it has no "
        "transpose. Write the rule with nt or np functions, linear in t, or give vjp={'x': ...}."
    )


def test_a_rule_that_leaves_the_tape_works_in_first_order_of_its_own_mode_only():
    plain = square_op(vjp={"x": lambda g, x: 2.0 * float(g) * np.asarray(x)})
    assert nt.grad(plain)(2.0) == 4.0
    repair = "Write it with nt or np functions of what it gets; for first derivatives a jvp rule would do as well."
    start = (
        "my_square: the vjp rule of argument 'x' runs on tensors for other than first derivatives of its own mode, and "
        "left the tape by float() at "
    )
    text = message_of(nt.errors.NotDifferentiableError, lambda: nt.jvp(plain, 2.0, 1.0))
    assert text.startswith(start)
    assert text.endswith(repair)
    text = message_of(nt.errors.NotDifferentiableError, lambda: nt.grad(nt.grad(lambda x: plain(x) * x))(2.0))
    assert " failed: " in text or text.startswith(start)
    assert text.endswith(repair)


def test_a_rule_that_calls_numpy_code_without_an_op_is_named_in_second_order():
    plain = square_op(vjp={"x": lambda g, x: g * 2.0 * np.nextafter(x, x)})
    assert nt.grad(plain)(2.0) == 4.0
    text = message_of(nt.errors.NotDifferentiableError, lambda: nt.grad(nt.grad(plain))(2.0))
    assert text.startswith(
        "my_square: the vjp rule of argument 'x' runs on tensors for other than first derivatives of its own mode, and "
        "failed: "
    )


def test_a_pull_function_of_arrays_has_whole_jacobians():
    matrix = np.diag([2.0, 3.0, 4.0]) + 0.1

    @nt.custom_gradient
    def solved(b):
        return nt.tensor(np.linalg.solve(matrix, b.numpy())), lambda g: nt.tensor(np.linalg.solve(matrix.T, g.numpy()))

    for mode in ("auto", "reverse"):
        np.testing.assert_allclose(nt.jacobian(solved, mode=mode)(np.ones(3)), np.linalg.inv(matrix), rtol=1e-12)


def test_a_rule_that_returns_a_list_runs_member_by_member():
    @nt.custom_op(vjp={"x": lambda g, x: [2 * a for a in g]})
    def doubled(x, /):
        return 2 * x

    for mode in ("reverse", "auto"):
        assert np.array_equal(nt.jacobian(doubled, mode=mode)(np.ones(3)), 2 * np.eye(3))


def test_a_rule_that_copies_what_it_gets_is_named_where_that_cannot_be():
    def rule(g):
        h = copy.copy(g)
        h *= 2
        return h

    @nt.custom_op(vjp={"x": rule}, check=False)
    def doubled(x, /):
        return 2 * x

    assert nt.grad(lambda x: doubled(x).sum())(np.ones(2)).tolist() == [2.0, 2.0]
    with pytest.raises(nt.errors.NotDifferentiableError, match="doubled: the vjp rule of argument 'x' runs on tensors"):
        nt.jvp(doubled, np.ones(2), np.ones(2))


def test_a_rule_may_return_a_list_in_every_mode_and_order():
    @nt.custom_op(vjp={"x": lambda g: [part * 2.0 for part in g]})
    def twice(x, /):
        return x * 2.0

    def loss(x):
        return (twice(x) ** 2).sum()

    assert nt.grad(loss)(X).tolist() == (8.0 * X).tolist()
    assert nt.hessian(loss)(X).tolist() == np.diag(np.full(X.shape, 8.0)).tolist()
    assert nt.hvp(loss, X, np.ones(X.shape)).tolist() == np.full(X.shape, 8.0).tolist()
