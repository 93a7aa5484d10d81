"""What custom_op guards against: shared memory, rules that nobody checked, outputs that nobody used."""

import numpy as np
import pytest

import numtape as nt
from numtape.errors import ArgumentError, DtypeError, GradientError, NotDifferentiableError, OperandError
from numtape.transforms.custom_ops import custom_op

X = np.array([1.0, 2.0, 3.0])
SQUARE = {"x": lambda g, x: g * 2.0 * x}


def message_of(error, run):
    """Return the text of the error that `run` raises."""
    with pytest.raises(error) as caught:
        run()
    return str(caught.value)


def squared(x, /):
    return x * x


def times(x, y, /):
    return x * y


# Memory.


@pytest.mark.parametrize("forward", [lambda x, /: x, lambda x, /: x[:], lambda x, /: x.reshape(-1)])
def test_an_output_that_is_an_operand_or_a_view_of_it_has_memory_of_its_own(forward):
    same = custom_op(vjp={"x": lambda g: g})(forward)
    given = X.copy()
    same(given)[0] = 9.0
    assert given.tolist() == [1.0, 2.0, 3.0]
    x = nt.tensor(X, requires_grad=True)
    y = x * 1.0
    out = same(y)
    squares = (y * y).sum()
    out += 100.0
    assert y.tolist() == [1.0, 2.0, 3.0]
    squares.backward()
    assert x.grad.tolist() == [2.0, 4.0, 6.0]


def test_outputs_that_are_views_of_each_other_have_memory_of_their_own():
    twice = custom_op(vjp={"x": lambda g: 2.0 * g[0] + 2.0 * g[1]})(lambda x, /: (lambda y: (y, y))(2.0 * x))
    first, second = twice(nt.tensor(X))
    first += 1.0
    assert second.tolist() == [2.0, 4.0, 6.0]


def test_an_op_that_says_so_returns_views_and_writes_are_noticed():
    view = custom_op(vjp={"x": lambda g: g}, aliases=True)(lambda x, /: x[:])
    x = nt.tensor(X.copy())
    out = view(x)
    out += 1.0
    assert x.tolist() == [2.0, 3.0, 4.0]
    leaf = nt.tensor(X, requires_grad=True)
    y = leaf * 1.0
    squares = (y * y).sum()
    alias = view(y)
    alias += 1.0
    with pytest.raises(nt.errors.GradientError):
        squares.backward()


def test_a_view_of_another_operand_than_the_first_is_copied_whatever_is_said():
    second = custom_op(vjp={"x": lambda g: 0.0 * g, "y": lambda g: g}, aliases=True)(lambda x, y, /: y[:])
    given = X.copy()
    second(np.ones(3), given)[0] = 9.0
    assert given.tolist() == [1.0, 2.0, 3.0]


@pytest.mark.parametrize(("out", "name"), [([1.0], "list"), (None, "NoneType"), ((X, None), "NoneType")])
def test_a_function_that_returns_no_array_is_named(out, name):
    odd = custom_op(vjp={"x": lambda g: g})(lambda x, /: out)
    text = f"<lambda>: the function of a custom_op returns an array or a tuple of arrays, not {name}."
    assert message_of(nt.errors.OperandError, lambda: odd(nt.tensor(X, requires_grad=True))) == text
    assert message_of(nt.errors.OperandError, lambda: odd(X)) == text
    assert message_of(nt.errors.OperandError, lambda: custom_op(vjp=SQUARE, samples=[X])(lambda x, /: out)) == text


# Samples.


@pytest.mark.parametrize(
    "sample", [2.0, 2, np.float32(2.0), (2.0,), [1.0, 2.0], ([1, 2],), np.array([1.0, 2.0], np.float32), nt.ones(2)]
)
def test_samples_of_numbers_and_lists_check_the_rules(sample):
    text = message_of(
        nt.errors.GradientError, lambda: custom_op(vjp={"x": lambda g, x: g * x}, samples=[sample])(squared)
    )
    assert text.startswith("squared: the vjp rule of argument 'x' gives a directional derivative of ")
    assert custom_op(vjp=SQUARE, samples=[sample])(squared)(X).tolist() == [1.0, 4.0, 9.0]


NOTHING = (
    "checks nothing: its operands are empty or zero, or differences cannot tell there. Give one inside of the domain, "
    "away from kinks and from zero."
)


@pytest.mark.parametrize(
    ("samples", "message"),
    [
        ([X, np.zeros(0)], f"squared: sample 1 {NOTHING}"),
        ([np.zeros(3)], f"squared: sample 0 {NOTHING}"),
        ([0.0], f"squared: sample 0 {NOTHING}"),
        ([np.full(2, np.nan)], f"squared: sample 0 {NOTHING}"),
        (
            [np.arange(3)],
            "squared: sample 0 gives argument 'x' as an array of int64, which has no derivative; give floats, as "
            "x.astype(float), or None in place of its rule.",
        ),
        (
            [{"x": X}],
            "squared: sample 0 gives argument 'x' as dict; a sample is a tuple of operands, as in samples=[(x, y)].",
        ),
        (
            ["x"],
            "squared: sample 0 gives argument 'x' as str; a sample is a tuple of operands, as in samples=[(x, y)].",
        ),
        ([(["a"],)], "squared: sample 0 gives argument 'x' as ['a'], which is no array of floats."),
        (
            [(X, X)],
            "squared: sample 0 does not fit: too many positional arguments. A sample is a tuple of operands of "
            "squared(x).",
        ),
        (
            [()],
            "squared: sample 0 does not fit: missing a required argument: 'x'. A sample is a tuple of operands of "
            "squared(x).",
        ),
    ],
)
def test_a_sample_that_cannot_check_anything_is_named(samples, message):
    assert message_of(nt.errors.ArgumentError, lambda: custom_op(vjp=SQUARE, samples=samples)(squared)) == message


@pytest.mark.parametrize("samples", [{"x": X}, 3.0, "x"])
def test_samples_are_a_list(samples):
    assert message_of(nt.errors.OperandError, lambda: custom_op(vjp=SQUARE, samples=samples)) == (
        f"custom_op: samples is {type(samples).__name__}; it must be a list of tuples of operands, as in "
        "samples=[(x, y)]."
    )


def test_operands_without_derivative_are_given_as_they_are():
    row = custom_op(
        vjp={"x": lambda g, index, x_shape: g * np.eye(x_shape[0])[index], "index": None}, samples=[(X, 1)]
    )(lambda x, index, /: x[index])
    assert row(X, 2) == 3.0


def test_a_derivative_of_zero_away_from_zero_is_a_check():
    assert custom_op(vjp={"x": lambda g: 0.0 * g}, samples=[X])(lambda x, /: np.sign(x))(X).tolist() == [1.0, 1.0, 1.0]
    with pytest.raises(nt.errors.GradientError):
        custom_op(vjp={"x": lambda g: g}, samples=[X])(lambda x, /: np.sign(x))


def test_an_argument_that_samples_do_not_settle_is_checked_at_its_first_call():
    wrong = custom_op(vjp={"x": lambda g, y: g * y, "y": lambda g, x: 2.0 * g * x}, samples=[(0.0, 2.0)])(times)
    with pytest.raises(nt.errors.GradientError, match="the vjp rule of argument 'y'"):
        nt.grad(wrong, argnums=1)(X[0], 2.0)


# First calls.


def test_an_argument_that_was_a_number_at_the_first_call_is_checked_when_it_is_differentiated():
    wrong = custom_op(vjp={"x": lambda g, y: g * y, "y": lambda g, x: 2.0 * g * x})(times)
    assert nt.grad(lambda x: wrong(x, 2.0).sum())(X).tolist() == [2.0, 2.0, 2.0]
    assert message_of(nt.errors.GradientError, lambda: nt.grad(lambda y: wrong(X, y).sum())(2.0)) == (
        "times: the vjp rule of argument 'y' gives a directional derivative of 10.5288, differences of the function "
        "give 5.26438 (at its first call). Correct the rule, or declare the op with check=False if its derivative "
        "differs on purpose."
    )


def test_each_argument_is_checked_once():
    calls = []

    def counted(x, y, /):
        calls.append(1)
        return x * y

    op = custom_op(vjp={"x": lambda g, y: g * y, "y": lambda g, x: g * x})(counted)
    x, y = nt.tensor(X, requires_grad=True), nt.tensor(X, requires_grad=True)
    op(x, 2.0)
    calls.clear()
    op(x, 2.0)
    assert len(calls) == 1
    op(x, y)
    assert len(calls) > 2
    calls.clear()
    op(x, y)
    assert len(calls) == 1


def test_power_series_are_no_first_call():
    cubed = custom_op(vjp={"x": lambda g, x: g * 3.0 * x * x})(lambda x, /: x**3)
    assert [float(d) for d in nt.derivatives(cubed, 2.0, order=2)] == [8.0, 12.0, 12.0]


# Outputs that are not used.


@pytest.mark.parametrize(
    "vjp", [lambda g, x: (2.0 * g[0] + 2.0 * x * g[1],), {"x": lambda g, x: 2.0 * g[0] + 2.0 * x * g[1]}]
)
def test_a_rule_gets_zeros_for_outputs_that_are_not_used(vjp):
    both = custom_op(vjp=vjp)(lambda x, /: (2.0 * x, x * x))
    assert nt.grad(lambda x: both(x)[0].sum())(X).tolist() == [2.0, 2.0, 2.0]
    assert nt.grad(lambda x: both(x)[1].sum())(X).tolist() == [2.0, 4.0, 6.0]
    assert nt.hessian(lambda x: both(x)[1].sum())(X).tolist() == (2.0 * np.eye(3)).tolist()
    assert nt.jacobian(lambda x: both(x)[1], mode="reverse")(X).tolist() == np.diag(2.0 * X).tolist()
    x = nt.tensor(X, dtype="float32", requires_grad=True)
    both(x)[1].sum().backward()
    assert x.grad.tolist() == [2.0, 4.0, 6.0]


# Linearity is a matter of each call.

NOT_LINEAR = (
    "{name}: forward mode by argument 'x' transposes the vjp rule, which is not linear, so that it has no transpose. "
    "Write the rule with nt or np functions, linear in g, or give jvp={{'x': ...}}."
)


def test_a_pull_function_that_a_parameter_makes_nonlinear_is_refused_after_a_linear_call():
    @nt.custom_gradient
    def clip_gradient(x, bound=None):
        return x * 1.0, lambda g: g if bound is None else nt.clip(g, -bound, bound)

    assert nt.jvp(clip_gradient, np.ones(2), np.ones(2))[1].tolist() == [1.0, 1.0]
    with pytest.raises(NotDifferentiableError) as caught:
        nt.jacobian(lambda x: clip_gradient(x, bound=0.5), mode="forward")(np.ones(1))
    assert str(caught.value) == (
        "clip_gradient: forward mode transposes its pull function, which is not linear, so that it has no transpose. "
        "Write it with nt or np functions, linear in the cotangent, or use reverse mode."
    )
    assert nt.jvp(clip_gradient, np.ones(2), np.ones(2))[1].tolist() == [1.0, 1.0]


def test_a_rule_that_a_parameter_makes_nonlinear_is_refused_after_a_linear_call():
    @nt.custom_op(vjp={"x": lambda g, bound: g if bound is None else nt.clip(g, -bound, bound)}, check=False)
    def clipped(x, /, *, bound=None):
        return x * 1.0

    assert nt.jvp(clipped, np.ones(2), np.ones(2))[1].tolist() == [1.0, 1.0]
    with pytest.raises(NotDifferentiableError) as caught:
        nt.jvp(lambda x: clipped(x, bound=0.5), np.ones(2), np.ones(2))
    assert str(caught.value) == NOT_LINEAR.format(name="clipped")


@pytest.mark.parametrize(
    "rule",
    [
        lambda g, x: nt.where(x > 2.5, g * abs(g), g),
        lambda g, x: nt.where((x > 2.5) & (g > 0.0), 2.0 * g, g),
        lambda g, x: g + nt.where(x > 2.5, 1.0, 0.0),
    ],
)
def test_a_rule_that_a_value_makes_nonlinear_is_refused_after_a_linear_call(rule):
    @nt.custom_op(vjp={"x": rule}, check=False)
    def bent(x, /):
        return x * 1.0

    assert nt.jvp(bent, np.ones(2), np.ones(2))[1].tolist() == [1.0, 1.0]
    with pytest.raises(NotDifferentiableError) as caught:
        nt.jvp(bent, np.array([1.0, 3.0]), np.ones(2))
    assert str(caught.value) == NOT_LINEAR.format(name="bent")


def test_a_value_that_leaves_the_tape_for_some_values_is_noticed():
    @nt.custom_op(vjp={"x": lambda g, x: nt.where(x > 2.5, nt.stop_gradient(g), g)}, check=False)
    def partly(x, /):
        return x * 1.0

    assert nt.jvp(partly, np.ones(2), np.ones(2))[1].tolist() == [1.0, 1.0]
    for tangent in np.eye(2):
        if tangent[0]:
            assert nt.jvp(partly, np.array([1.0, 3.0]), tangent)[1].tolist() == [1.0, 0.0]
            continue
        with pytest.raises(NotDifferentiableError, match="uses more of what it gets than its records tell"):
            nt.jvp(partly, np.array([1.0, 3.0]), tangent)


def clipped_square(**facts):
    return custom_op(vjp={"x": lambda g, x: np.clip(g * 2.0 * x, -20.0, 20.0)}, check=False, **facts)(squared)


@pytest.mark.parametrize(
    "facts",
    [{}, {"structure": "elementwise"}, {"jvp": {"x": lambda t, x: t * 2.0 * x}}],
    ids=["plain", "elementwise", "with a jvp"],
)
def test_a_rule_is_not_taken_for_linear_in_its_cotangent(facts):
    square = clipped_square(**facts)
    x = np.arange(1.0, 11.0)

    def function(x):
        return square(x).sum() * np.array([1.0, 50.0, 100.0, 1000.0, 1.0])

    expected = nt.jacobian(function, mode="reverse")(x)
    assert expected[2].tolist() == [20.0] * 10
    assert nt.jacobian(function)(x).tolist() == expected.tolist()
    assert message_of(NotDifferentiableError, lambda: nt.jacobian(function, mode="mixed")(x)) == (
        "squared: a mixed sweep multiplies by its pull function, which may not be linear; use reverse mode, or declare "
        "it by nt.custom_op with is_linear_backward=True if it is."
    )
    with nt.Tape() as tape:
        watched = tape.watch(nt.tensor(x))
        y = function(watched)
    assert tape.jacobian(y, watched).tolist() == expected.tolist()


def test_an_elementwise_rule_that_is_not_linear_does_not_serve_forward_mode():
    square = clipped_square(structure="elementwise")
    assert message_of(NotDifferentiableError, lambda: nt.jvp(square, X, X)) == (
        "squared: forward mode by argument 'x' transposes the vjp rule, which is not linear, so that it has no "
        "transpose. Write the rule with nt or np functions, linear in g, or give jvp={'x': ...}."
    )
    # Forward mode would be the cheapest.
    found = nt.jacobian(lambda x: square(x).sum() * np.full(5, 100.0))(X)
    assert found.tolist() == [[20.0] * 3] * 5


def test_an_elementwise_rule_of_arrays_serves_forward_mode():
    def pull(g, x):
        assert type(g) is np.ndarray
        return g * 2.0 * x

    square = custom_op(vjp={"x": pull}, structure="elementwise", check=False)(squared)
    assert nt.jvp(square, X, X)[1].tolist() == [2.0, 8.0, 18.0]


@pytest.mark.parametrize("rules", [{"vjp": SQUARE, "is_linear_backward": True}, {"jvp": SQUARE}])
def test_an_op_that_is_known_to_be_linear_has_mixed_mode(rules):
    square = custom_op(**rules)(squared)
    scheduler = nt.HybridScheduler()
    found = nt.jacobian(lambda x: square(x).sum() * np.ones(20), scheduler=scheduler)(np.arange(10.0))
    assert scheduler.last_decision.mode is nt.SchedulingStrategy.MIXED
    assert found.tolist() == [(2.0 * np.arange(10.0)).tolist()] * 20


# Rules as people write them.


def test_a_rule_that_fills_an_array_works_in_jacobians():
    def fill(g, x):
        out = np.zeros(x.shape)
        for i in range(len(x)):
            out[i] = g[i] * 2.0 * x[i]
        return out

    @nt.custom_op(vjp={"x": fill})
    def squared(x, /):
        return x * x

    x = np.array([1.0, 2.0, 3.0])
    assert nt.grad(lambda x: squared(x).sum())(x).tolist() == [2.0, 4.0, 6.0]
    assert nt.jacobian(squared, mode="reverse")(x).tolist() == np.diag(2.0 * x).tolist()


def test_an_error_of_a_rule_is_that_of_a_single_cotangent():
    def failing(g, x):
        raise KeyError(f"a cotangent of type {type(g).__name__}")

    @nt.custom_op(vjp={"x": failing}, check=False)
    def failed(x, /):
        return x * x

    with pytest.raises(KeyError, match="a cotangent of type ndarray"):
        nt.jacobian(failed, mode="reverse")(np.ones(2))


def test_a_rule_may_write_to_its_cotangent():
    def in_place(g, x):
        g *= 2.0 * x
        return g

    @nt.custom_op(vjp={"x": in_place})
    def squared(x, /):
        return x * x

    x = np.array([1.0, 2.0, 3.0])
    assert nt.grad(lambda x: (squared(x) + x).sum())(x).tolist() == [3.0, 5.0, 7.0]
    assert nt.jacobian(lambda x: squared(x) + x, mode="reverse")(x).tolist() == np.diag(2.0 * x + 1.0).tolist()
    assert nt.jvp(squared, x, x)[1].tolist() == [2.0, 8.0, 18.0]


def scaled_in_place(moved, x):
    moved *= 2.0 * x
    return moved


def multiplied_into(moved, x):
    return np.multiply(moved, 2.0 * x, out=moved)


def assigned_in_part(moved, x):
    moved[:2] = moved[:2] * 2.0 * x[:2]
    moved[2:] *= 2.0 * x[2:]
    return moved


@pytest.mark.parametrize("rule", [scaled_in_place, multiplied_into, assigned_in_part])
@pytest.mark.parametrize("kind", ["vjp", "jvp"])
def test_a_rule_may_write_to_what_it_gets_in_all_modes_and_orders(kind, rule):
    square = custom_op(**{kind: {"x": rule}})(squared)

    def cubed(x):
        return square(x) * x

    def forward(function):
        return lambda x: nt.jvp(function, x, np.ones(3))[1]

    gradient = nt.grad(lambda x: cubed(x).sum())
    np.testing.assert_allclose(gradient(X), 3.0 * X**2)
    np.testing.assert_allclose(forward(cubed)(X), 3.0 * X**2)
    for mode in ("forward", "reverse"):
        jacobian = nt.jacobian(cubed, mode=mode)
        np.testing.assert_allclose(jacobian(X), np.diag(3.0 * X**2))
        np.testing.assert_allclose(nt.grad(lambda x, jacobian=jacobian: jacobian(x).sum())(X), 6.0 * X)
    for second in (forward(gradient), forward(forward(cubed)), nt.grad(lambda x: forward(cubed)(x).sum())):
        np.testing.assert_allclose(second(X), 6.0 * X)


def test_a_rule_of_several_outputs_may_write_to_each():
    def pull(g, x):
        g[0][x < 2.0] = 0.0
        g[1].__imul__(2.0 * x)
        return g[0] + g[1]

    @nt.custom_op(vjp={"x": pull}, check=False)
    def kept_and_squared(x, /):
        return np.where(x < 2.0, 0.0, x), x * x

    kept, squares = nt.jvp(kept_and_squared, X, np.ones(3))[1]
    assert (kept.tolist(), squares.tolist()) == ([0.0, 1.0, 1.0], [2.0, 4.0, 6.0])


def test_a_pull_function_may_write_to_its_cotangent():
    @nt.custom_gradient
    def doubled(x):
        def pull(g):
            g *= 2.0
            return g

        return 2.0 * x, pull

    assert nt.grad(lambda x: (doubled(x) + x).sum())(np.ones(2)).tolist() == [3.0, 3.0]
    assert nt.jvp(doubled, np.ones(2), np.ones(2))[1].tolist() == [2.0, 2.0]
    assert nt.hessian(lambda x: (doubled(x) * x).sum())(np.ones(2)).tolist() == [[4.0, 0.0], [0.0, 4.0]]


def test_calls_at_zeros_do_not_use_up_the_checks():
    @nt.custom_op(vjp={"x": lambda g, x: g * 3 * x})
    def square(x, /):
        return x**2

    for _ in range(4):
        nt.grad(lambda x: square(x).sum())(np.zeros(2))
    with pytest.raises(GradientError, match="Correct the rule"):
        nt.grad(lambda x: square(x).sum())(np.array([0.3, 1.2]))


def test_outputs_without_derivative_beside_rules_are_refused():
    @nt.custom_op(vjp={"x": lambda g: g}, check=False)
    def quantised(x, /):
        return np.round(x).astype(np.int64)

    with pytest.raises(DtypeError, match="returned int64, which has no derivative, and there are rules"):
        quantised(nt.tensor([1.2], requires_grad=True))


def test_a_function_that_writes_to_its_operand_is_named():
    @nt.custom_op(vjp={"x": lambda g: 2 * g})
    def doubled(x, /):
        x *= 2
        return x

    with pytest.raises(OperandError, match="writes to its operand 'x'"):
        doubled(nt.tensor([1.0, 2.0], requires_grad=True))


def test_a_cotangent_that_may_be_anothers_is_refused():
    @nt.custom_gradient
    def product(x, y):
        return x * y, lambda g: (g * y,)

    with pytest.raises(ArgumentError, match="fewer cotangents than there are arguments"):
        nt.grad(lambda y: product(3.0, y))(2.0)


def test_a_cotangent_that_has_neither_the_shape_of_the_operand_nor_of_the_output_is_refused():
    @nt.custom_op(vjp={"x": lambda g, x: np.outer(g, np.cos(x))}, check=False)
    def sine(x, /):
        return np.sin(x)

    with pytest.raises(nt.errors.ShapeError, match=r"returned shape \(3, 3\); the argument has shape \(3,\)"):
        nt.grad(lambda x: sine(x).sum())(np.array([0.3, 1.2, -0.7]))


def test_a_cotangent_of_the_shape_of_the_output_is_summed_to_an_operand_that_was_repeated():
    @nt.custom_op(vjp={"a": lambda g, b: g * b, "b": lambda g, a: g * a})
    def times(a, b, /):
        return a * b

    a, b = np.array([1.0, 2.0]), np.arange(6.0).reshape(3, 2)
    assert nt.grad(lambda a, b: times(a, b).sum())(a, b).tolist() == [6.0, 9.0]


@pytest.mark.parametrize("kind", ["vjp", "jvp"])
def test_rules_that_return_nothing_or_complex_numbers_are_refused(kind):
    def doubled(x, /):
        return 2.0 * x

    for rule, returned in ((lambda moved: None, "None"), (lambda moved: moved * (2.0 + 3.0j), "complex128")):
        op = custom_op(**{kind: {"x": rule}}, check=False)(doubled)
        for run in (
            lambda op=op: nt.vjp(op, X)[1](X),
            lambda op=op: nt.jvp(op, (X,), (X,)),
            lambda op=op: nt.jacobian(op)(X),
        ):
            text = message_of((DtypeError, NotDifferentiableError, nt.errors.ShapeError), run)
            assert returned in text
            assert f"doubled: the {kind} rule of argument 'x'" in text


# What differences cannot tell.


@pytest.mark.parametrize(
    ("function", "vjp", "points"),
    [
        (np.tanh, lambda g, x: g * (1.0 - np.tanh(x) ** 2), np.linspace(8.0, 14.0, 60)),
        (lambda x: x**2 + 1e10, lambda g, x: 2.0 * g * x, np.linspace(1.0, 2.0, 20)),
        (lambda x: x**2 + 1e6, lambda g, x: 2.0 * g * x, np.linspace(0.01, 0.02, 20)),
        (np.cos, lambda g, x: -g * np.sin(x), np.linspace(1e-5, 2e-5, 20)),
        (lambda x: np.square(x.astype(np.float32)), lambda g, x: 2.0 * g * x, np.linspace(0.5, 1.0, 60)),
        (np.tanh, lambda g, x: g / np.cosh(x) ** 2, np.linspace(15.0, 40.0, 20)),
        (lambda x: x + 1e15, lambda g, x: g, np.linspace(1.0, 2.0, 20)),
    ],
    ids=["flat", "large", "rather large", "even", "narrow", "flatter", "largest"],
)
def test_a_right_rule_is_not_refused_for_what_rounding_does_to_differences(function, vjp, points):
    for point in points:
        op = custom_op(vjp={"x": vjp})(lambda x, /: function(x))
        nt.grad(lambda x, op=op: op(x).sum())(np.array([point]))


@pytest.mark.parametrize("factor", [1000.0, -1.0, 10.0])
def test_a_rule_that_is_far_off_is_refused_where_differences_tell_little(factor):
    op = custom_op(vjp={"x": lambda g, x: 2.0 * factor * g * x})(lambda x, /: x**2 + 1e10)
    points = np.random.default_rng(0).uniform(1.0, 2.0, (30, 5))
    with pytest.raises(nt.errors.GradientError):
        list(map(nt.grad(lambda x: op(x).sum()), points))


def test_a_symmetric_matrix_does_not_settle_the_rule_of_a_product():
    op = custom_op(vjp={"a": lambda g, b: g @ b.T, "b": lambda g, a: a @ g})(lambda a, b, /: a @ b)
    b = np.arange(1.0, 5.0).reshape(2, 2)
    for symmetric in (np.eye(2), np.array([[2.0, 1.0], [1.0, 3.0]])):
        nt.grad(lambda b, a=symmetric: op(a, b).sum())(b)
    with pytest.raises(nt.errors.GradientError, match="the vjp rule of argument 'b'"):
        nt.grad(lambda b: op(np.array([[2.0, 1.0], [0.0, 3.0]]), b).sum())(b)


def test_a_tensor_among_the_parameters_is_named():
    op = custom_op(vjp={"x": lambda g, k: g * k})(lambda x, /, *, k=2.0: x * k)
    assert message_of(nt.errors.OperandError, lambda: op(X, k=nt.tensor(2.0))).endswith(
        "returns an array or a tuple of arrays, not Tensor. A tensor that it computes with must be one of its "
        "operands, which stand before the /."
    )
