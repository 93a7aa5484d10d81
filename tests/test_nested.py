"""Transforms, tapes and grad mode inside each other: every derivative arrives, none is counted twice."""

import asyncio

import numpy as np
import pytest

import numtape as nt


def leaf(*values):
    return nt.tensor(values if len(values) > 1 else values[0], dtype="float64", requires_grad=True)


def test_grad_switches_recording_on_for_its_own_call():
    with nt.no_grad():
        assert nt.grad(lambda x: (x * x).sum())(leaf(1.0, 2.0)).tolist() == [2.0, 4.0]
        assert nt.grad(lambda x: (x * x).sum())(np.array([1.0, 2.0])).tolist() == [2.0, 4.0]


def test_no_grad_inside_a_function_counts():
    def f(x):
        with nt.no_grad():
            y = x * x
        return (x * y).sum()

    assert nt.grad(f)(np.array([3.0])).tolist() == [9.0]


def test_a_tape_that_ends_inside_a_function_does_not_untrack_its_argument():
    def f(x):
        tape = nt.GradientTape()
        tape.watch(x)
        del tape
        return x * x * x

    assert nt.grad(f)(2.0) == 12.0


@pytest.mark.parametrize("kind", [nt.Tape, nt.GradientTape])
def test_a_tape_inside_a_transform_is_differentiated(kind):
    def f(x):
        with kind() as tape:
            tape.watch(x)
            y = x**3
        return tape.gradient(y, x) * x  # 3 x**3

    assert nt.grad(f)(2.0) == 36.0


def test_a_transform_inside_a_tape_is_recorded():
    x = nt.tensor([2.0, 3.0], dtype="float64")
    w = nt.tensor(2.0, dtype="float64")
    with nt.Tape() as tape:
        g = nt.grad(lambda z: (w * z * z).sum())(x)  # 2 w x
        loss = (g * g).sum() + x.sum()
    # d/dx of (2 w x)**2 + x
    assert tape.gradient(loss, x).tolist() == [65.0, 97.0]


def test_second_order_after_a_leaf_stopped_being_watched():
    x = nt.tensor(2.0, dtype="float64")
    with nt.Tape() as first:
        y = nt.exp(x) * x
    del first
    second = nt.Tape(persistent=True)
    g = second.backward(y, create_graph=True)[x]
    assert second.gradient(g, x).item() == pytest.approx(np.exp(2.0) * 4.0)
    assert x.node is None


def test_third_order_with_an_innermost_tape_that_watches_itself():
    x = nt.tensor(2.0, dtype="float64")
    with nt.Tape() as a:
        with nt.Tape() as b:
            c = nt.GradientTape()
            c.watch(x)
            y = x**4
            first = c.gradient(y, x)
        second = b.gradient(first, x)
    assert a.gradient(second, x).item() == 48.0


def test_an_inner_tape_is_not_an_outer_one():
    x = nt.tensor(2.0, dtype="float64")
    with nt.Tape() as a, nt.Tape() as b:
        y = x * x
        g = a.gradient(y, x)
    assert g.node is None
    assert b.gradient(y, x).item() == 4.0


def test_gradient_does_not_fill_retained_gradients():
    x = leaf(2.0)
    with nt.Tape() as tape:
        y = x * 3.0
        y.retain_grad()
        z = y * y
    tape.gradient(z, x)
    assert y.grad is None


def test_a_graph_penalty_reaches_captured_parameters():
    w = leaf(3.0)
    x = nt.tensor(2.0, dtype="float64")
    g = nt.grad(lambda z: w * z * z)(x)  # 2 w x
    (g * g).backward()  # d/dw 4 w**2 x**2
    assert w.grad.item() == 96.0


def test_a_generator_that_outlives_a_scope_does_not_bring_it_back():
    def hold():
        with nt.no_grad():
            yield

    generator = hold()
    next(generator)
    tape = nt.Tape()
    with tape:
        pass
    generator.close()
    assert nt.is_grad_enabled()
    assert not tape.is_recording


def test_a_scope_object_can_be_entered_inside_itself():
    ctx = nt.GradientContext()
    scope = ctx.activate()
    with scope, scope:
        assert nt.current_context() == ctx
    assert nt.current_context() == nt.default_context()


def test_a_bare_call_in_a_worker_thread_does_not_change_the_parent():
    async def main():
        await asyncio.to_thread(nt.set_grad_enabled, False)
        return nt.is_grad_enabled()

    assert asyncio.run(main())
    assert nt.is_grad_enabled()


def test_keep_all_works_with_several_outputs():
    x = leaf([2.0, 1.0], [1.0, 3.0])
    with nt.Tape() as tape:
        q, r = nt.qr(x)
        loss = (q * q).sum() + r.sum()
    grads = tape.backward(loss, keep="all")
    assert grads[r].shape == (2, 2)


ONES = np.ones(2)

#: What each transform gives for an elementwise function at an array, or a tensor; all its leaves in one list.
TRANSFORMS = {
    "grad": lambda f, x: [nt.grad(lambda x: f(x).sum())(x)],
    "value_and_grad": lambda f, x: [*nt.value_and_grad(lambda x: f(x).sum())(x)],
    "vjp": lambda f, x: (lambda value, pull: [value, *pull(ONES)])(*nt.vjp(f, x)),
    "jvp": lambda f, x: [*nt.jvp(f, x, ONES)],
    "jacobian": lambda f, x: [nt.jacobian(f)(x)],
    "jacobian, forward": lambda f, x: [nt.jacobian(f, mode="forward")(x)],
    "jacobian, reverse": lambda f, x: [nt.jacobian(f, mode="reverse")(x)],
    "jacobian, in parts": lambda f, x: [nt.jacobian(f, chunk_size=1)(x)],
    "hessian": lambda f, x: [nt.hessian(lambda x: f(x).sum())(x)],
    "hvp": lambda f, x: [nt.hvp(lambda x: f(x).sum(), x, ONES)],
    "elementwise_grad": lambda f, x: [nt.elementwise_grad(f)(x)],
}


def in_a_tape(run):
    with nt.Tape():
        return run()


def in_a_tape_that_watches_another(run):
    with nt.GradientTape() as tape:
        tape.watch(nt.tensor([5.0]))
        return run()


def in_a_transform(run):
    seen = []
    nt.grad(lambda y: seen.append(run()) or y * y)(2.0)
    return seen[0]


SURROUNDINGS = [in_a_tape, in_a_tape_that_watches_another, in_a_transform]


@pytest.mark.parametrize("surrounded", SURROUNDINGS)
@pytest.mark.parametrize(
    "function", [lambda x: (x - 3.0) ** 3, lambda x: np.array([4.0, 5.0])], ids=["cube", "constant"]
)
@pytest.mark.parametrize("name", TRANSFORMS)
def test_arrays_give_the_same_arrays_inside_of_tapes_and_transforms_that_they_have_nothing_to_do_with(
    name, function, surrounded
):
    expected = TRANSFORMS[name](function, ONES)
    found = surrounded(lambda: TRANSFORMS[name](function, ONES))
    assert list(map(type, found)) == list(map(type, expected))
    assert not any(isinstance(each, nt.Tensor) for each in found)
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_array_equal(a, b, strict=True)


@pytest.mark.parametrize("surrounded", SURROUNDINGS)
def test_numbers_give_numbers_there(surrounded):
    found = surrounded(lambda: [nt.grad(nt.sin)(1.0), *nt.jvp(nt.sin, 1.0, 1.0), nt.jacobian(nt.sin)(1.0)])
    assert list(map(type, found)) == [float] * 4


@pytest.mark.parametrize("surrounded", SURROUNDINGS)
@pytest.mark.parametrize("name", TRANSFORMS)
def test_tensors_give_tensors_there(name, surrounded):
    found = surrounded(lambda: TRANSFORMS[name](lambda x: x**3, nt.tensor(ONES)))
    assert {type(each) for each in found} == {nt.Tensor}


@pytest.mark.parametrize("name", TRANSFORMS)
def test_what_each_transform_of_arrays_captures_still_counts_inside_of_a_tape(name):
    w = nt.tensor([1.0, 2.0], dtype="float64")
    with nt.Tape() as tape:
        found = TRANSFORMS[name](lambda x: w * x**3, ONES)
    assert {type(each) for each in found} == {nt.Tensor}
    # The value is w, its derivative 3 w, its second one 6 w.
    order = {"hessian": 6.0, "hvp": 6.0}.get(name, 3.0)
    assert tape.gradient(found[-1].sum(), w).tolist() == [order, order]


@pytest.mark.parametrize("name", ["jvp", "vjp"])
def test_a_direction_that_is_a_tensor_counts_inside_of_a_tape(name):
    direction = nt.tensor(ONES)
    with nt.Tape() as tape:
        if name == "jvp":
            moved = nt.jvp(lambda x: x**3, ONES, direction)[1]
        else:
            (moved,) = nt.vjp(lambda x: x**3, ONES)[1](direction)
    assert tape.gradient(moved.sum(), direction).tolist() == [3.0, 3.0]


def test_what_a_hook_alone_captures_counts_inside_of_a_tape():
    w = nt.tensor(2.0, dtype="float64")

    def tripled(x):
        y = x * 3.0
        y.register_hook(lambda g: g * w)
        return y

    with nt.Tape() as tape:
        slope = nt.vjp(tripled, ONES)[1](ONES)[0].sum()
    assert tape.gradient(slope, w).item() == 6.0


def test_what_a_function_captures_still_counts_inside_of_a_tape():
    w = nt.tensor([1.0, 2.0], dtype="float64")
    with nt.Tape() as tape:
        slope = nt.grad(lambda x: (w * x * x).sum())(np.ones(2))
    assert isinstance(slope, nt.Tensor)
    assert tape.gradient(slope, w).tolist() == [2.0, 2.0]


def doubled_in_place(x):
    x *= 2.0
    return (x**2).sum()


@pytest.mark.parametrize(
    "gradient",
    [
        lambda x: nt.grad(doubled_in_place)(x),
        lambda x: nt.value_and_grad(doubled_in_place)(x)[1],
        lambda x: nt.vjp(doubled_in_place, x)[1](1.0)[0],
        lambda x: nt.jacobian(doubled_in_place)(x),
        lambda x: nt.jacobian(doubled_in_place, mode="forward")(x),
        lambda x: nt.hvp(doubled_in_place, (x,), (x.detach().clone(),))[-1],
        lambda x: nt.jvp(nt.grad(doubled_in_place), (x,), (x.detach().clone(),))[1],
    ],
)
def test_writes_to_an_argument_are_differentiated(gradient):
    """The gradient is by the argument as it was given, not by what the function has made of it."""
    x = nt.tensor([0.5, 1.5, 2.5], dtype="float64", requires_grad=True)
    np.testing.assert_allclose(gradient(x * 1.0).numpy(), 8.0 * x.numpy())


@pytest.mark.parametrize(
    "aux_of",
    [
        lambda f, x: nt.value_and_grad(f, has_aux=True)(x)[0][1],
        lambda f, x: nt.grad(f, has_aux=True)(x)[1],
        lambda f, x: nt.hessian(f, has_aux=True)(x)[1],
        lambda f, x: nt.jacobian(f, has_aux=True)(x)[1],
    ],
)
@pytest.mark.parametrize("part", [lambda x: x, lambda x: x[:2], lambda x: x.reshape(3, 1), lambda x: x * 1.0])
@pytest.mark.parametrize("make", [np.asarray, nt.tensor])
def test_what_a_transform_returns_is_not_in_the_memory_of_an_argument(aux_of, part, make):
    x = make(np.array([1.0, 2.0, 3.0]))
    w = leaf(1.0, 1.0, 1.0)
    loss = (w * x).sum()
    aux = aux_of(lambda x: ((x * x).sum(), part(x)), x)
    aux[...] = 100.0
    assert x.tolist() == [1.0, 2.0, 3.0]
    loss.backward()
    assert w.grad.tolist() == [1.0, 2.0, 3.0]


def test_the_value_of_value_and_grad_is_not_in_the_memory_of_an_argument():
    x = nt.tensor(np.array(2.0))
    value, _ = nt.value_and_grad(lambda x: x)(x)
    value += 5.0
    assert x.item() == 2.0
