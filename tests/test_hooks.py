"""Hooks on tensors."""

import pytest

import numtape as nt
from numtape.errors import (
    GradientError,
    OperandError,
    OverwrittenError,
)


def test_a_hook_sees_and_replaces_the_gradient_of_a_leaf():
    x = nt.tensor([1.0, 2.0], requires_grad=True)
    seen = []
    x.register_hook(lambda g: seen.append(g.tolist()))
    handle = x.register_hook(lambda g: g * 10.0)
    (x * x).sum().backward()
    assert (seen, x.grad.tolist()) == ([[2.0, 4.0]], [20.0, 40.0])
    handle.remove()
    handle.remove()
    x.grad = None
    (x * x).sum().backward()
    assert x.grad.tolist() == [2.0, 4.0]


def test_a_hook_on_an_intermediate_changes_what_goes_on():
    x = nt.tensor([1.0, -2.0], requires_grad=True)
    y = x * 3.0
    y.retain_grad()
    y.register_hook(lambda g: nt.clip(g, -1.0, 1.0))
    (y * y).sum().backward()
    assert y.grad.tolist() == [1.0, -1.0]
    assert x.grad.tolist() == [3.0, -3.0]


def test_a_hook_sees_the_whole_gradient_once():
    x = nt.tensor(2.0, requires_grad=True)
    y = x * 1.0
    calls = []
    y.register_hook(lambda g: calls.append(float(g)))
    (y * y + y).backward()
    assert calls == [5.0]


def test_hooks_act_on_gradients_of_tapes_and_in_second_order():
    x = nt.tensor(2.0, dtype=nt.float64)
    with nt.Tape() as outer:
        outer.watch(x)
        with nt.Tape() as inner:
            y = x**3
            y.register_hook(lambda g: g * 2.0)
        first = inner.gradient(y, x)
    assert first.item() == 24.0
    assert outer.gradient(first, x).item() == 24.0


def test_jacobians_pass_hooks_by():
    def function(x):
        y = x * x
        y.register_hook(lambda g: g * 100.0)
        return y

    for mode in ("forward", "reverse", "mixed"):
        assert nt.jacobian(function, mode=mode)(3.0) == 6.0
    assert nt.grad(function)(3.0) == 600.0


def test_bad_hooks_raise():
    x = nt.tensor([1.0, 2.0], requires_grad=True)
    with pytest.raises(OperandError) as caught:
        x.register_hook("print")
    assert str(caught.value) == "register_hook: a hook is a function of the gradient, not str."
    with pytest.raises(GradientError) as caught:
        nt.tensor(1.0).register_hook(print)
    assert str(caught.value) == (
        "register_hook: the tensor is untracked, so no gradient will arrive; make it depend on a tensor with "
        "requires_grad=True."
    )

    def halve(g):
        return g[:1]

    x.register_hook(halve)
    with pytest.raises(GradientError) as caught:
        (x * x).sum().backward()
    assert str(caught.value) == (
        "register_hook: halve returned Tensor of shape (1,) for a gradient of shape (2,) and dtype float32; a hook "
        "returns None or a tensor like the gradient."
    )


def test_a_hook_cannot_write_to_memory_that_others_share():
    a = nt.tensor([1.0, 2.0], requires_grad=True)
    b = nt.tensor([3.0, 4.0], requires_grad=True)
    a.register_hook(lambda g: g.__imul__(0.5))
    with pytest.raises(OverwrittenError, match="read-only"):
        ((a + b) ** 2).sum().backward()


def test_a_gradient_that_was_retained_is_not_the_memory_that_the_sweep_goes_on_with():
    x = nt.tensor([0.0, 1.0, 2.0], requires_grad=True)
    u = x + 0.0
    y = u + 1.0
    y.retain_grad()
    y.register_hook(lambda g: g * 2.0)
    u.register_hook(lambda g: y.grad.array.fill(-1.0))
    (y * nt.tensor([1.0, 2.0, 3.0])).sum().backward()
    assert x.grad.tolist() == [2.0, 4.0, 6.0]


def hooked_intermediate(tape):
    x = nt.tensor([1.0, 2.0], requires_grad=True)
    with tape:
        y = x * 3.0
        y.register_hook(lambda g: g * 10.0)
        loss = (y * 1.0).sum()
    return x, y, loss


def test_the_gradient_of_an_intermediate_is_what_its_hooks_leave():
    tape = nt.Tape(persistent=True)
    x, y, loss = hooked_intermediate(tape)
    assert tape.gradient(loss, y).tolist() == [10.0, 10.0]
    assert [g.tolist() for g in tape.gradient(loss, [y, x])] == [[10.0, 10.0], [30.0, 30.0]]
    assert tape.gradient(loss, x).tolist() == [30.0, 30.0]


def test_all_gradients_of_a_backward_are_what_hooks_leave():
    tape = nt.Tape(persistent=True)
    _, y, loss = hooked_intermediate(tape)
    assert tape.backward(loss, keep="all", retain_graph=True)[y].tolist() == [10.0, 10.0]
    y.retain_grad()
    tape.watch(y)
    assert tape.backward(loss)[y].tolist() == [10.0, 10.0]
    assert y.grad.tolist() == [10.0, 10.0]


def test_a_target_that_is_its_own_source_passes_its_hooks():
    x = nt.tensor([1.0, 2.0], requires_grad=True)
    y = x * 1.0
    for target in (x, y):
        target.register_hook(lambda g: g * 10.0)
        assert nt.Tape().gradient(target, target).tolist() == [10.0, 10.0]


def test_the_gradient_of_an_intermediate_is_hooked_once_and_stays_differentiable():
    x = nt.tensor([1.0, 2.0], requires_grad=True)
    calls = []
    y = x * x
    y.register_hook(lambda g: calls.append(g.tolist()))
    y.register_hook(lambda g: g * 10.0)
    loss = (y * y).sum()
    with nt.Tape(persistent=True) as outer:
        (dy,) = nt.Tape(persistent=True).gradient(loss, [y])
    assert dy.tolist() == [20.0, 80.0]
    assert calls == [[2.0, 8.0]]
    # Its own derivative passes y as well.
    assert outer.gradient(dy, x).tolist() == [400.0, 800.0]


def test_hooks_of_what_is_neither_source_nor_on_the_way_to_one_are_left_alone():
    x, w = nt.tensor([1.0, 2.0], requires_grad=True), nt.tensor([1.0, 2.0], requires_grad=True)
    y, z = x * 2.0, w * 3.0
    y.register_hook(lambda g: pytest.fail("nobody asked for the gradient of y"))
    loss = nt.concat([y, z]).sum()
    assert nt.Tape().gradient(loss, w).tolist() == [3.0, 3.0]
