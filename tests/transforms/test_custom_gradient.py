"""Functions that return their own pull function."""

import gc

import numpy as np
import pytest
from custom_functions import OperandError, X, cube, message_of, product_and_sum

import numtape as nt
from numtape.core.record import Record
from numtape.transforms.custom import custom_gradient

# custom_gradient: what it computes.


def test_a_pull_function_replaces_the_derivative():
    @custom_gradient
    def clip_gradient(x):
        return x, lambda g: nt.clip(g, -1.0, 1.0)

    assert nt.grad(lambda x: (3.0 * clip_gradient(x)).sum())(X).tolist() == [1.0, 1.0, 1.0]


def test_a_custom_gradient_leaves_one_record_that_holds_no_function():
    x = nt.tensor(X)
    with nt.Tape() as tape:
        y = cube(x, scale=2.0)
    (record,) = tape.records
    assert record.op.name == "cube"
    assert repr(record.params) == "{'call': (x=operand, scale=2.0)}"
    assert not any(callable(value) for value in record.params["call"].values)
    np.testing.assert_allclose(tape.gradient(y, x).numpy(), 6.0 * X**2, rtol=1e-12)


def test_arrays_in_arrays_out_and_numbers_in_numbers_out():
    assert type(cube(X)) is np.ndarray
    assert cube(X).tolist() == (X**3).tolist()
    assert cube(2.0) == 8.0
    assert cube.__name__ == "cube"
    assert cube.__doc__ == "Return scale * x**3."


def test_backward_delivers_to_leaves_and_obeys_no_grad():
    w = nt.tensor(X, requires_grad=True)
    cube(w).sum().backward()
    np.testing.assert_allclose(w.grad.numpy(), 3.0 * X**2, rtol=1e-12)
    with nt.no_grad():
        assert not cube(w).requires_grad


def test_contexts_and_gradient_tapes_record_it():
    with nt.GradientContext() as context:
        w = nt.tensor(X, requires_grad=True)
        loss = cube(w).sum()
        assert len(context.tape) == 2
        loss.backward()
    np.testing.assert_allclose(w.grad.numpy(), 3.0 * X**2, rtol=1e-12)
    tape = nt.GradientTape()
    x = tape.watch(nt.tensor(3.0))
    assert tape.gradient(cube(x), x).item() == 27.0


def test_higher_orders_run_the_function_on_tensors():
    second = nt.grad(nt.grad(cube))
    third = nt.grad(nt.grad(nt.grad(cube)))
    assert (nt.grad(cube)(2.0), second(2.0), third(2.0)) == (12.0, 12.0, 6.0)
    assert nt.grad(lambda x: nt.grad(lambda y: cube(y, scale=2.0) * x)(x))(2.0) == 72.0


def test_forward_mode_transposes_the_pull_function():
    value, tangent = nt.jvp(cube, X, np.array([1.0, 2.0, -1.0]))
    np.testing.assert_allclose(value, X**3, rtol=1e-12)
    np.testing.assert_allclose(tangent, 3.0 * X**2 * [1.0, 2.0, -1.0], rtol=1e-12)


def test_modes_nest_in_every_order():
    def forward(function):
        return lambda x: nt.jvp(function, (x,), (1.0,))[1]

    assert forward(forward(cube))(2.0) == 12.0
    assert forward(nt.grad(cube))(2.0) == 12.0
    assert nt.grad(forward(cube))(2.0) == 12.0
    assert forward(forward(forward(cube)))(2.0) == 6.0
    assert nt.grad(forward(nt.grad(cube)))(2.0) == 6.0


def test_several_outputs_share_a_pull_function():
    a, b = nt.tensor(X, requires_grad=True), nt.tensor(X + 1.0, requires_grad=True)
    product, total = product_and_sum(a, b)
    (product.sum() + 10.0 * total.sum()).backward()
    np.testing.assert_allclose(a.grad.numpy(), X + 11.0, rtol=1e-12)
    np.testing.assert_allclose(b.grad.numpy(), X + 10.0, rtol=1e-12)


def test_an_output_that_is_not_used_has_a_cotangent_of_zeros():
    gradient = nt.grad(lambda a: product_and_sum(a, X + 1.0)[0].sum())(X)
    assert gradient.tolist() == (X + 1.0).tolist()


def test_several_outputs_have_tangents():
    _, (product, total) = nt.jvp(product_and_sum, (X, X + 1.0), (np.ones(3), 2.0 * np.ones(3)))
    np.testing.assert_allclose(product, X + 1.0 + 2.0 * X, rtol=1e-12)
    np.testing.assert_allclose(total, np.full(3, 3.0), rtol=1e-12)


def test_arguments_by_keyword_keep_the_order_of_the_signature():
    gradient = nt.grad(lambda a: product_and_sum(b=X + 1.0, a=a)[0].sum())(X)
    assert gradient.tolist() == (X + 1.0).tolist()


def test_a_cotangent_for_every_argument_may_be_given_where_some_are_numbers():
    @custom_gradient
    def scaled(x, factor):
        return x * factor, lambda g: (g * factor, (g * x).sum())

    assert nt.grad(lambda x: scaled(x, 3.0).sum())(X).tolist() == [3.0, 3.0, 3.0]
    assert nt.grad(scaled, argnums=(0, 1))(2.0, 3.0) == (3.0, 2.0)


def test_trees_and_variable_arguments_are_arguments():
    @custom_gradient
    def affine(params, *xs):
        w, b = params["w"], params["b"]
        return w * xs[0] + b + xs[1], lambda g: ({"w": g * xs[0], "b": g}, g * w, None)

    params = {"w": np.array(3.0), "b": np.array(1.0)}
    gradients = nt.grad(affine, argnums=(0, 1, 2))(params, np.array(2.0), np.array(5.0))
    assert gradients == ({"w": 2.0, "b": 1.0}, 3.0, 0.0)


def test_cotangents_in_a_dict_go_by_their_keys():
    line = custom_gradient(lambda s: (s["a"] * 10.0 + s["b"], lambda g: {"b": g, "a": 10.0 * g}))
    at = {"a": 1.0, "b": 2.0}
    assert nt.grad(line)(at) == {"a": 10.0, "b": 1.0}
    assert nt.jvp(line, (at,), ({"b": 0.0, "a": 1.0},)) == (12.0, 10.0)
    assert nt.hessian(lambda s: line(s) ** 2)(at)["a"] == {"a": 200.0, "b": 20.0}
    nested = custom_gradient(
        lambda s: (s[0]["a"] * 10.0 + s[0]["b"] * s[1], lambda g: [{"b": s[1] * g, "a": 10.0 * g}, s[0]["b"] * g])
    )
    assert nt.grad(nested)(({"a": 1.0, "b": 2.0}, 3.0)) == ({"a": 10.0, "b": 3.0}, 2.0)


@pytest.mark.parametrize("rest", [{}, {"n": None}])
def test_keys_of_constants_may_be_left_out(rest):
    x = {"a": nt.tensor(1.0, requires_grad=True), "n": 3, "b": nt.tensor(2.0, requires_grad=True)}

    def line(s):
        return s["a"] * s["n"] + s["b"], lambda g: {"b": g, **rest, "a": s["n"] * g}

    custom_gradient(line)(x).backward()
    assert [x["a"].grad.item(), x["b"].grad.item()] == [3.0, 1.0]


def test_what_is_no_float_tensor_is_passed_on_as_it_is():
    seen = []

    @custom_gradient
    def pick(x, index, mode="sum"):
        seen.append((type(index), mode))
        return x[index], lambda g: nt.zeros(3, dtype="float64") + g * np.eye(3)[index]

    assert nt.grad(lambda x: pick(x, 1, mode="one"))(X).tolist() == [0.0, 1.0, 0.0]
    assert set(seen) == {(int, "one")}


def test_a_pull_function_of_vjp_fits():
    @custom_gradient
    def tanh_of_sum(a, b):
        return nt.vjp(lambda x, y: np.tanh(x + y), a, b)

    expected = 1.0 - np.tanh(1.1) ** 2
    np.testing.assert_allclose(nt.grad(tanh_of_sum, argnums=(0, 1))(0.4, 0.7), (expected, expected), rtol=1e-12)


def test_the_result_never_shares_memory_with_an_argument():
    @custom_gradient
    def same(x):
        return x, lambda g: -g

    x = nt.tensor(X, requires_grad=True)
    y = same(x)
    y += 1.0
    assert x.tolist() == X.tolist()
    y.sum().backward()
    assert x.grad.tolist() == [-1.0, -1.0, -1.0]


def test_half_precision_is_storage():
    x = nt.tensor([1.0, 2.0], dtype="float16", requires_grad=True)
    y = cube(x)
    y.sum().backward()
    assert (y.dtype, x.grad.dtype) == (np.float16, np.float16)
    assert x.grad.tolist() == [3.0, 12.0]


def test_random_numbers_of_the_library_repeat_in_the_derivative():
    @custom_gradient
    def noisy(x):
        mask = nt.rand(1000, dtype="float64") < 0.5
        return x * mask, lambda g: g * mask

    nt.seed(0)
    x = nt.tensor(np.ones(1000), requires_grad=True)
    y = noisy(x)
    later = nt.rand(1)
    y.sum().backward()
    assert x.grad.tolist() == y.tolist()
    assert 400 < y.sum().item() < 600
    nt.seed(0)
    with nt.no_grad():
        noisy(x)
    assert nt.rand(1).tolist() == later.tolist()


def test_a_dropped_value_is_made_again():
    x = nt.tensor(X, requires_grad=True)
    y = cube(x)
    z = nt.exp(y) * y
    for record in nt.records(z):
        record.array = None
    z.sum().backward()
    expected = np.exp(X**3) * (1.0 + X**3) * 3.0 * X**2
    np.testing.assert_allclose(x.grad.numpy(), expected, rtol=1e-12)


def test_dropping_the_result_frees_its_graph():
    gc.collect()
    gc.disable()
    try:
        before = sum(type(x) is Record for x in gc.get_objects())
        y = cube(nt.tensor(X, requires_grad=True))
        del y
        assert sum(type(x) is Record for x in gc.get_objects()) == before
    finally:
        gc.enable()


# custom_gradient: what it refuses.


def test_custom_gradient_decorates_functions_only():
    assert message_of(OperandError, lambda: custom_gradient(3)) == (
        "custom_gradient: decorates functions, not int; the function returns its value and a function from cotangents "
        "to cotangents."
    )


def test_a_function_that_returns_no_pair_is_named():
    alone = custom_gradient(lambda x: x)
    three = custom_gradient(lambda x: (x, x, x))
    wrong = custom_gradient(lambda x: (x, x))
    start = (
        "<lambda>: a custom_gradient function returns a pair, its value and a function from cotangents to cotangents; "
        "it returned "
    )
    assert message_of(OperandError, lambda: alone(X)) == start + "Tensor."
    assert message_of(OperandError, lambda: three(X)) == start + "a tuple of 3."
    assert message_of(OperandError, lambda: wrong(X)) == start + "a pair whose second part is Tensor."


def test_a_value_that_is_no_tensor_is_named():
    words = custom_gradient(lambda x: ("words", lambda g: g))
    assert message_of(OperandError, lambda: words(X)) == (
        "<lambda>: the value of a custom_gradient function is a tensor or a tuple of tensors, not str."
    )


def test_arguments_that_do_not_fit_the_signature_are_named():
    assert message_of(OperandError, lambda: cube(X, factor=2.0)) == (
        "cube: got an unexpected keyword argument 'factor'; its signature is cube(x, scale=1.0)."
    )


def test_a_wrong_number_of_cotangents_is_named():
    @custom_gradient
    def short(a, b):
        return a * b, lambda g: g * b

    assert message_of(nt.errors.ArgumentError, lambda: nt.grad(short, argnums=(0, 1))(2.0, 3.0)) == (
        "short: its pull function returned one cotangent, but 2 arguments have a derivative (a, b); return a tuple "
        "with one for each, None for zeros."
    )

    @custom_gradient
    def long(a, b):
        return a * b, lambda g: (g * b, g * a, g)

    assert message_of(nt.errors.ArgumentError, lambda: nt.grad(long, argnums=(0, 1))(2.0, 3.0)) == (
        "long: its pull function returned 3 cotangents, but 2 arguments have a derivative (a, b); return a tuple "
        "with one for each, None for zeros."
    )


def test_cotangents_of_a_tree_must_have_its_form():
    pair = custom_gradient(lambda xs: (xs[0] * xs[1], lambda g: [g]))
    assert message_of(nt.errors.ArgumentError, lambda: nt.grad(pair)([2.0, 3.0])) == (
        "<lambda>: its pull function returned 1 cotangents for argument 'xs', which holds 2 tensors; return a tree of "
        "its form."
    )
    for out, difference in ((lambda g: {"a": g, "c": g}, "one of 'a', 'c'"), (lambda g: (g, g), "tuple")):
        line = custom_gradient(lambda s, out=out: (s["a"] + s["b"], out))
        assert message_of(nt.errors.ArgumentError, lambda line=line: nt.grad(line)({"a": 2.0, "b": 3.0})) == (
            "<lambda>: its pull function returned another form than that of argument 's'; tree: a dict of 'a', 'b' is "
            f"wanted, not {difference}."
        )
    single = custom_gradient(lambda s: (s["a"] * 2.0, lambda g: {"b": 2.0 * g}))
    with pytest.raises(nt.errors.ArgumentError, match="a dict of 'a' is wanted, not one of 'b'"):
        nt.grad(single)({"a": 2.0})


def test_a_cotangent_of_a_wrong_shape_is_named():
    @custom_gradient
    def total(x):
        return x.sum(), lambda g: g

    assert message_of(nt.errors.ShapeError, lambda: nt.grad(total)(X)) == (
        "total: its pull function returned a cotangent of shape () for argument 'x' of shape (3,); they must be equal."
    )


def test_a_captured_tracked_tensor_is_named():
    w = nt.tensor([1.0, 2.0, 3.0], requires_grad=True, name="w")
    v = nt.tensor(np.ones(3), requires_grad=True)
    text = (
        "<lambda>: its value depends on {}, a tracked tensor that is no argument, so the gradient of that would be "
        "lost. Pass it as an argument, or its detach() if it is a constant here."
    )
    by_w = custom_gradient(lambda x: (x * w, lambda g: g * w))
    by_v = custom_gradient(lambda x: (x * (2.0 * v), lambda g: g * v))
    assert message_of(nt.errors.GradientError, lambda: by_w(nt.tensor(X))) == text.format("'w'")
    assert message_of(nt.errors.GradientError, lambda: by_v(nt.tensor(X))) == text.format("a tensor of shape (3,)")
    by_constant = custom_gradient(lambda x: (x * w.detach(), lambda g: g * w.detach()))
    assert nt.grad(lambda x: by_constant(x).sum())(X).tolist() == [1.0, 2.0, 3.0]


def test_a_tensor_that_a_tape_would_watch_counts_as_captured():
    w = nt.tensor(X, name="w")
    by_w = custom_gradient(lambda x: (x * w, lambda g: g * w))
    with nt.Tape():
        text = message_of(nt.errors.GradientError, lambda: by_w(nt.tensor(X)))
    assert text.startswith("<lambda>: its value depends on 'w', a tracked tensor that is no argument")


def test_a_tensor_captured_by_the_pull_function_alone_is_differentiated_in_second_order():
    w = nt.tensor(3.0, dtype="float64", requires_grad=True)
    weighted = custom_gradient(lambda x: (x, lambda g: g * w))
    x = nt.tensor(2.0, dtype="float64", requires_grad=True)
    with nt.Tape() as outer:
        with nt.Tape() as inner:
            y = weighted(x) ** 2
        first = inner.gradient(y, x)
    assert first.item() == 12.0
    assert outer.gradient(first, w).item() == 4.0


def test_a_function_that_gives_another_value_the_second_time_is_named():
    rng = np.random.default_rng(0)
    noisy = custom_gradient(lambda x: (x * rng.random(), lambda g: g))
    assert message_of(nt.errors.GradientError, lambda: nt.grad(noisy)(2.0)) == (
        "<lambda>: a second run on the same arguments gave another value, but the function runs again for its "
        "derivative. Draw random numbers with nt, or outside of it, and keep no state in it."
    )


def test_a_pull_function_that_is_not_linear_has_no_forward_mode():
    @custom_gradient
    def clipped(x):
        return x, lambda g: nt.clip(g, -1.0, 1.0)

    text = (
        "clipped: forward mode transposes its pull function, which is not linear, so that it has no transpose. Write "
        "it with nt or np functions, linear in the cotangent, or use reverse mode."
    )
    assert message_of(nt.errors.NotDifferentiableError, lambda: nt.jvp(clipped, X, X)) == text
    for bend in (abs, nt.relu, lambda g: g + 1.0, lambda g: g / nt.norm(g), lambda g: g * 0.0 + 2.0):
        bent = custom_gradient(lambda x, bend=bend: (x, bend))
        with pytest.raises(nt.errors.NotDifferentiableError, match="is not linear"):
            nt.jvp(bent, X, X)


def test_a_pull_function_that_leaves_the_tape_is_named():
    @custom_gradient
    def leaves(x):
        return x * 2.0, lambda g: g + float(g)

    assert nt.grad(leaves)(3.0) == 2.0
    repair = "Write it with nt or np functions, linear in the cotangent, or use reverse mode."
    text = message_of(nt.errors.NotDifferentiableError, lambda: nt.jvp(leaves, 3.0, 1.0))
    assert text.startswith("leaves: forward mode transposes its pull function, which left the tape by float() at ")
    assert text.endswith(
        f"(return x * 2.0, lambda g: g + float(g)), so a part of its derivative would be lost. {repair}"
    )
    text = message_of(nt.errors.NotDifferentiableError, lambda: nt.grad(nt.grad(lambda x: leaves(x) * x))(3.0))
    assert text.startswith(
        "leaves: higher derivatives run the function and its pull function on tensors, which left the tape by float() "
    )
    assert text.endswith("Compute with nt or np functions in both, and use nt.stop_gradient for what is a constant.")


def test_a_pull_function_that_uses_arrays_only_is_named():
    @custom_gradient
    def hidden(x):
        return x, lambda g: nt.tensor(g.detach().numpy() * 2.0)

    assert nt.grad(lambda x: hidden(x).sum())(X).tolist() == [2.0, 2.0, 2.0]
    assert message_of(nt.errors.NotDifferentiableError, lambda: nt.jvp(hidden, X, X)) == (
        "hidden: forward mode transposes its pull function, which uses more of what it gets than its records tell: a "
        "value has left the tape. Write it with nt or np functions, linear in the cotangent, or use reverse mode."
    )


def test_a_pull_function_that_returns_no_numbers_is_named():
    with pytest.raises(nt.errors.OperandError) as error:
        nt.grad(nt.custom_gradient(lambda x: (x * 2, lambda g: "a")))(1.0)
    assert "its pull function returned 'a' for argument 'x'; it must be numbers." in str(error.value)


def test_a_function_that_writes_to_its_argument_is_refused():
    @nt.custom_gradient
    def rectify(x):
        x[x.numpy() < 0.0] = 0.0
        return x * 1.0, lambda g: g * (x > 0.0).astype(x.dtype)

    array = np.array([-3.0, 2.0])
    w = nt.tensor(array, requires_grad=True)
    for run in (
        lambda: nt.grad(lambda x: rectify(x * 2.0).sum())(array),
        lambda: nt.jvp(rectify, array, np.ones(2)),
        lambda: rectify(w),
        lambda: rectify(nt.tensor(array)),
        lambda: rectify(array),
    ):
        with pytest.raises(nt.errors.OverwrittenError, match="memory is read-only; use clone"):
            run()
    assert array.tolist() == w.tolist() == [-3.0, 2.0]


def test_a_pull_function_of_two_arguments_is_named():
    @custom_gradient
    def both(x):
        return (x * 2.0, x * 3.0), lambda g, h: g * 2.0 + h * 3.0

    with pytest.raises(OperandError) as caught:
        nt.grad(lambda x: sum(both(x)).sum())(np.ones(2))
    assert str(caught.value).startswith(
        "both: its pull function must take one argument, a tuple of 2 cotangents, as its value is one; "
    )
