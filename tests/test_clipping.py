"""Clipping of gradients: globally, one by one, by value; in place and as new values; in every form they come in."""

import math

import numpy as np
import pytest

import numtape as nt
from numtape.errors import ArgumentError, GradientError, NotDifferentiableError, OperandError
from numtape.gradient_clipping import (
    clip_by_global_norm,
    clip_by_norm,
    clip_by_value,
    clip_grad_norm,
    clip_grad_norm_,
    clip_grad_value,
    clip_grad_value_,
)


def with_gradients(*grads, dtype="float64"):
    params = [nt.zeros(np.shape(g), dtype=dtype, requires_grad=True) for g in grads]
    for param, g in zip(params, grads, strict=True):
        param.grad = np.array(g, dtype)
    return params


def test_the_norm_is_global_and_the_one_before_clipping_is_returned():
    params = with_gradients([3.0, 0.0], [[4.0]])
    norm = clip_grad_norm(params, max_norm=1.0)
    assert norm.item() == 5.0
    assert norm.shape == ()
    scale = 1.0 / (5.0 + 1e-6)
    assert params[0].grad.tolist() == [3.0 * scale, 0.0]
    assert params[1].grad.tolist() == [[4.0 * scale]]


def test_small_gradients_are_left_alone_bit_for_bit():
    params = with_gradients([0.3, 0.4])
    assert clip_grad_norm(params, 1.0).item() == 0.5
    assert params[0].grad.tolist() == [0.3, 0.4]


@pytest.mark.parametrize(("order", "expected"), [(1.0, 7.0), (2.0, 5.0), (3.0, 91 ** (1 / 3)), (math.inf, 4.0)])
def test_other_norms(order, expected):
    params = with_gradients([3.0], [-4.0])
    assert clip_grad_norm(params, 100.0, norm_type=order).item() == pytest.approx(expected, rel=1e-14)


def test_parameters_without_gradients_are_skipped():
    params = [nt.zeros(2, requires_grad=True), *with_gradients([3.0, 4.0])]
    assert clip_grad_norm(iter(params), 10.0).item() == 5.0
    assert clip_grad_norm([nt.zeros(2)], 10.0).item() == 0.0
    clip_grad_value({"a": params[1]}, 3.5)
    assert params[1].grad.tolist() == [3.0, 3.5]


def test_a_single_tensor_and_a_model_are_accepted():
    (w,) = with_gradients([3.0, 4.0])

    class Model:
        def parameters(self):
            yield w

    assert clip_grad_norm(w, 10.0).item() == 5.0
    assert clip_grad_norm(Model(), 10.0).item() == 5.0


def test_norms_of_large_and_tiny_float32_gradients_do_not_overflow_or_vanish():
    (large,) = with_gradients([3e30, 4e30], dtype="float32")
    assert clip_grad_norm(large, 1.0).item() == pytest.approx(5e30, rel=1e-6)
    np.testing.assert_allclose(large.grad.numpy(), [0.6, 0.8], rtol=1e-6)
    (tiny,) = with_gradients([3e-30, 4e-30], dtype="float32")
    assert clip_grad_norm(tiny, 1.0).item() == pytest.approx(5e-30, rel=1e-6)


def test_a_norm_that_is_not_finite_is_an_error_on_request():
    (w,) = with_gradients([np.nan, 1.0])
    with pytest.raises(GradientError) as caught:
        clip_grad_norm(w, 1.0, error_if_nonfinite=True)
    assert str(caught.value) == (
        "clip_grad_norm: the norm of the gradients is nan; look for the gradient with NaN or inf (grad.has_nan()), or "
        "give error_if_nonfinite=False to clip in spite of it."
    )
    assert w.grad.numpy()[1] == 1.0
    assert np.isnan(clip_grad_norm(w, 1.0).item())


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_gradients_stay_half(dtype):
    (w,) = with_gradients([3.0, 4.0], dtype=nt.bfloat16 if dtype == "bfloat16" else dtype)
    assert clip_grad_norm(w, 1.0).item() == pytest.approx(5.0)
    assert w.grad.dtype == w.dtype
    np.testing.assert_allclose(w.grad.numpy().astype(float), [0.6, 0.8], rtol=2**-7)
    clip_grad_value(w, 0.5)
    assert w.grad.numpy().astype(float).tolist() == [0.5, 0.5]


def test_clipping_by_value_in_place():
    (w,) = with_gradients([3.0, -0.2, -7.0])
    assert clip_grad_value(w, 0.5) is None
    assert w.grad.tolist() == [0.5, -0.2, -0.5]


def test_pytorchs_names_are_the_same_functions():
    assert clip_grad_norm_ is clip_grad_norm
    assert clip_grad_value_ is clip_grad_value


def test_new_values_come_in_the_form_that_was_given():
    a, b = nt.tensor([3.0]), np.array([4.0])
    clipped = clip_by_global_norm({"a": a, "b": [b, None]}, 1.0)
    np.testing.assert_allclose(clipped["a"].numpy(), [0.6], rtol=1e-6)
    np.testing.assert_allclose(clipped["b"][0], [0.8])
    assert clipped["b"][1] is None
    assert isinstance(clipped["b"][0], np.ndarray)
    assert a.item() == 3.0
    assert clip_by_global_norm((a, b), 5.0) == (a, b)


def test_each_by_its_own_norm():
    clipped = clip_by_norm([np.array([3.0, 4.0]), np.array([0.1])], 1.0)
    assert clipped[0].tolist() == [3.0 * (1.0 / 5.0), 4.0 * (1.0 / 5.0)]
    assert clipped[1].tolist() == [0.1]


def test_by_value_symmetric_or_between():
    assert clip_by_value([np.array([3.0, -3.0])], 1.0)[0].tolist() == [1.0, -1.0]
    assert clip_by_value(np.array([3.0, -3.0]), (-2.0, 1.0)).tolist() == [1.0, -2.0]


def test_a_map_of_gradients_stays_a_map_and_steps():
    w = nt.tensor([3.0, 4.0], requires_grad=True)
    with nt.Tape() as tape:
        loss = (w * np.array([3.0, 4.0], np.float32)).sum()
    grads = tape.backward(loss)
    clipped = clip_by_global_norm(grads, 1.0)
    np.testing.assert_allclose(clipped[w].numpy(), [0.6, 0.8], rtol=1e-6)
    assert grads[w].tolist() == [3.0, 4.0]
    nt.optim.SGD([w], lr=1.0).step(clip_by_value(clipped, 0.7))
    np.testing.assert_allclose(w.numpy(), [2.4, 3.3], rtol=1e-6)


def test_tracked_gradients_stay_tracked():
    x = nt.tensor([3.0], requires_grad=True)
    (clipped,) = clip_by_norm([x * 2.0], 3.0)
    clipped.sum().backward()
    assert x.grad.tolist() == [0.0]  # What is clipped has the norm 3 whatever x is.


@pytest.mark.parametrize(
    "clip",
    [
        lambda g: clip_by_global_norm([g, g[:1] * 2.0], 1.0)[0],
        lambda g: clip_by_global_norm([g], 100.0)[0],
        lambda g: clip_by_norm([g, g * 2.0], 3.0)[1],
        lambda g: clip_by_value([g], (-2.0, 7.0))[0],
    ],
)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_clipping_is_differentiable(clip, dtype):
    x, weights = np.array([1.5, 2.0, -0.5], dtype), np.array([1.0, 2.0, 3.0], dtype)

    def loss(x):
        return (clip(x**2 * 2.0) * weights).sum()

    assert nt.check_gradients(loss, x)
    by_hand = [nt.jvp(loss, x, unit)[1] for unit in np.eye(3, dtype=dtype)]
    np.testing.assert_allclose(nt.grad(loss)(x), by_hand, rtol=1e-5, atol=1e-6)
    given = clip(x**2 * 2.0)
    np.testing.assert_allclose(clip(nt.tensor(x, requires_grad=True) ** 2 * 2.0).numpy(), given, rtol=1e-6)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("clip", [clip_by_global_norm, clip_by_norm])
@pytest.mark.parametrize("given", [[6e4, 6e4], [1e3] * 10_000, [1e-3] * 5])
def test_clipping_on_a_tape_gives_what_it_gives_elsewhere(clip, dtype, given):
    plain = nt.tensor(given, dtype=dtype)
    (expected,) = clip([plain], 1.0)
    (found,) = clip([nt.tensor(given, dtype=dtype, requires_grad=True) * 1.0], 1.0)
    assert found.dtype == expected.dtype == plain.dtype
    np.testing.assert_allclose(found.to("float64").numpy(), expected.to("float64").numpy(), rtol=1e-2)
    mixed = clip([nt.tensor(given, dtype=dtype, requires_grad=True) * 1.0, np.ones(2), 3.0], 1.0)
    assert mixed[0].dtype == plain.dtype


@pytest.mark.parametrize("clip", [clip_by_global_norm, clip_by_norm])
def test_integers_are_clipped_to_floats(clip):
    np.testing.assert_allclose(clip([np.array([3, 4])], 1.0)[0], [0.6, 0.8])
    np.testing.assert_allclose(clip([nt.tensor([3, 4])], 1.0)[0].numpy(), [0.6, 0.8], rtol=1e-6)


@pytest.mark.parametrize("size", [1e200, 1e-200])
@pytest.mark.parametrize("tracked", [False, True])
@pytest.mark.parametrize("clip", [clip_by_global_norm, clip_by_norm])
def test_norms_of_the_largest_and_smallest_numbers_are_right(clip, tracked, size):
    given = nt.tensor([3.0 * size, 4.0 * size], dtype="float64", requires_grad=tracked)
    np.testing.assert_allclose(clip([given], size)[0].numpy(), [0.6 * size, 0.8 * size], rtol=1e-12)


def test_limits_and_options_within_a_tape_are_constants():
    (w,) = with_gradients([3.0, 4.0])
    with nt.Tape():
        clip_grad_norm_([w], nt.tensor(1.0))
        nt.optim.SGD([w], lr=nt.tensor(0.5)).step()
    np.testing.assert_allclose(w.numpy(), [-0.3, -0.4], rtol=1e-5)


@pytest.mark.parametrize(
    "clip",
    [
        lambda limit: clip_by_global_norm([nt.ones(2)], limit)[0],
        lambda limit: clip_by_norm([nt.ones(2)], limit)[0],
        lambda limit: clip_by_value([nt.ones(2)], limit)[0],
        lambda limit: clip_by_value([nt.ones(2)], (-1.0, limit))[0],
    ],
)
def test_a_tracked_limit_is_refused(clip):
    with pytest.raises(NotDifferentiableError, match=r"has no derivative, but a tracked tensor was given"):
        nt.grad(lambda limit: clip(limit).sum())(0.5)


ERRORS = [
    (lambda: clip_grad_norm([], -1.0), ArgumentError, "clip_grad_norm: max_norm is -1; it must be a number from 0 on."),
    (
        lambda: clip_grad_norm([], "big"),
        OperandError,
        "clip_grad_norm: max_norm is of type str; it must be a number.",
    ),
    (
        lambda: clip_grad_norm(with_gradients([1.0]), 1.0, norm_type=-1),
        ArgumentError,
        "clip_grad_norm: norm_type is -1; it must be a number above 0, or inf.",
    ),
    (
        lambda: clip_grad_value([np.ones(2)], 1.0),
        OperandError,
        "clip_grad_value: a parameter is of type ndarray; parameters are tensors.",
    ),
    (
        lambda: clip_by_value([np.ones(2)], (1.0, -1.0)),
        ArgumentError,
        "clip_by_value: clip_value is (1.0, -1.0); a range is the least and the largest.",
    ),
    (
        lambda: clip_by_global_norm(["text"], 1.0),
        OperandError,
        "clip_by_global_norm: a gradient is of type str; it must be a tensor or an array.",
    ),
]


@pytest.mark.parametrize(("call", "kind", "text"), ERRORS)
def test_what_is_wrong_is_said(call, kind, text):
    with pytest.raises(kind) as caught:
        call()
    assert str(caught.value) == text


@pytest.mark.parametrize("order", [2.0, math.inf])
def test_a_gradient_that_is_infinite_or_nan_spreads_without_a_warning(order):
    a, b = nt.zeros(2, requires_grad=True), nt.zeros(2, requires_grad=True)
    a.grad, b.grad = np.ones(2), np.array([np.inf, 1.0])
    assert math.isinf(clip_grad_norm([a, b], 1.0, order).item())
    np.testing.assert_array_equal(b.grad.numpy(), [np.nan, 0.0])
    a.grad, b.grad = np.ones(2), np.array([np.nan, 1.0])
    assert math.isnan(clip_grad_norm([a, b], 1.0, order).item())
    assert a.grad.has_nan()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_many_half_gradients_are_scaled_in_float32(dtype):
    p = nt.zeros(1_000_000, dtype=dtype, requires_grad=True)
    p.grad = nt.full((1_000_000,), 60000.0, dtype=dtype)
    nt.clip_grad_norm([p], 1.0)
    assert float(p.grad.numpy()[0]) == pytest.approx(0.001, rel=1e-2)


def test_nothing_has_no_gradients_to_clip():
    with pytest.raises(OperandError) as caught:
        clip_grad_norm(None, 1.0)
    assert str(caught.value) == "clip_grad_norm: params is None; give tensors or a model."
