"""Half numbers beside integers and wider floats: integers keep their digits, and the wider float wins."""

import numpy as np
import pytest

import numtape as nt

HALVES = [nt.float16, nt.bfloat16]


def half(values, dtype, **kwargs):
    return nt.tensor(np.asarray(values, np.float32).astype(dtype), **kwargs)


# Integers.


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_products_with_integers_lose_no_digits(dtype):
    ones, numbers = half([1.0, 1.0], dtype, requires_grad=True), np.array([2051, -2048])
    rows, row = half(np.ones((3, 2)), dtype), half(np.ones((1, 1, 2)), dtype)
    found = [
        nt.dot(ones, numbers),
        ones @ numbers,
        numbers @ ones,
        ones @ nt.tensor(numbers),
        nt.vecdot(ones, numbers),
        nt.vdot(ones, numbers),
        nt.inner(ones, numbers),
        nt.linear(rows, numbers[None])[0, 0],
        nt.conv1d(row, numbers.reshape(1, 1, 2))[0, 0, 0],
        nt.conv1d(numbers.reshape(1, 1, 2), row)[0, 0, 0],
        nt.einsum("i,i->", ones, numbers),
        nt.tensordot(ones, numbers, axes=1),
    ]
    assert [(y.item(), y.dtype) for y in found] == [(3.0, dtype)] * len(found)
    (ones @ numbers).backward()
    assert ones.grad.tolist() == half(numbers, dtype).tolist()


@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize(
    ("loss", "expected", "slope"),
    [
        (nt.l1_loss, 3.0, -1.0),
        (nt.mse_loss, 9.0, -6.0),
        (nt.smooth_l1_loss, 2.5, -1.0),
        (nt.huber_loss, 2.5, -1.0),
        (lambda x, t: nt.gaussian_nll_loss(x, t, nt.ones_like(x)), 4.5, -3.0),
    ],
)
def test_losses_see_integer_targets_as_they_are(loss, expected, slope, dtype):
    target = np.array([[2051]])
    for given in (target, nt.tensor(target), target.tolist()):
        for region in (nt.autocast(dtype=dtype), nt.autocast(enabled=False)):
            x = half([[2048.0]], dtype, requires_grad=True)
            with region:
                found = loss(x, given)
            assert found.dtype == (nt.float32 if region.enabled else dtype)
            assert found.item() == expected
            found.backward()
            assert x.grad.tolist() == [[slope]]


def test_losses_are_widened_beside_integers():
    x, target = half([[2448.0]], nt.float16, requires_grad=True), nt.tensor([[2051]])
    with nt.autocast(dtype=nt.float16):
        loss = nt.mse_loss(x, target)
    assert (loss.dtype, loss.item()) == (nt.float32, 397.0**2)
    loss.backward()
    assert x.grad.tolist() == [[794.0]]


def test_counts_and_weights_may_lie_beyond_the_range_of_a_half():
    h, counts = half([1.0], nt.float16, requires_grad=True), np.array([70000])
    with nt.autocast(dtype=nt.float16):
        loss = nt.poisson_nll_loss(h, counts)
        np.testing.assert_allclose(loss.item(), np.e - 70000.0, rtol=1e-6)
        assert nt.average(half([1.0, 1.0], nt.float16), weights=np.array([70000, 1])).item() == 1.0
    assert nt.average(half([1.0, 2.0], nt.float16), weights=np.array([70000, 1])).item() == 1.0
    assert nt.average(half([1.0, 2.0], nt.float16), weights=[70000, 70000]).item() == 1.5
    loss.backward()
    assert h.grad.item() == -np.inf  # The gradient, -69997, is that of a half number.


@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("is_list", [False, True])
def test_integer_positions_keep_their_distance(dtype, is_list):
    y, positions = half(np.ones(4), dtype, requires_grad=True), np.array([1000, 1001, 1002, 1003])
    given = positions.tolist() if is_list else positions
    area = nt.trapezoid(y, given)
    assert (area.item(), area.dtype) == (3.0, dtype)
    assert nt.cumulative_trapezoid(y, given).tolist() == [1.0, 2.0, 3.0]
    assert nt.gradient(y * 0.0 + half([0.0, 1.0, 2.0, 3.0], dtype), given).tolist() == [1.0] * 4
    assert nt.interp(half([1001.0 if dtype == nt.float16 else 1000.0], dtype), given, positions).item() > 999.0
    area.backward()
    assert y.grad.tolist() == [0.5, 1.0, 1.0, 0.5]


def test_powers_of_halves_are_widened_by_autocast_beside_integers():
    x = half([300.0], nt.float16, requires_grad=True)
    with nt.autocast(dtype=nt.float16):
        for exponent in (np.array([2]), nt.tensor([2])):
            y = x**exponent
            assert (y.dtype, y.tolist()) == (nt.float32, [90000.0])
    y.backward(nt.ones(1))
    assert x.grad.tolist() == [600.0]


def test_what_was_widened_beside_integers_is_made_again_in_float32():
    x = half([300.0], nt.float16, requires_grad=True)

    def power(x):
        return (x ** np.array([2])) * 2.0

    with nt.autocast(dtype=nt.float16):
        found = nt.checkpoint(power, x)
    assert (found.dtype, found.tolist()) == (nt.float32, [180000.0])
    found.backward(nt.ones(1))
    assert x.grad.tolist() == [1200.0]


def test_rules_read_integers_as_the_floats_that_they_were():
    x = np.array([[3, 1, 2], [5, 0, 1]])
    for function in (nt.rms_norm, nt.layer_norm):
        slopes = []
        for given in (x, nt.tensor(x), x.astype(np.uint8), x.astype(np.float32)):
            weight = nt.tensor(np.ones(3, np.float32), requires_grad=True)
            (function(given, 3, weight)[0] ** 2).sum().backward()
            slopes.append(weight.grad.tolist())
        np.testing.assert_allclose(slopes, [slopes[-1]] * 4, rtol=1e-5)
    base = nt.tensor([2.0, 3.0], requires_grad=True)
    (base ** np.array([0, 3], np.uint8)).sum().backward()
    assert base.grad.tolist() == [0.0, 27.0]


# Wider floats.

WIDE, NARROW = np.full((2, 2), 1e6, np.float32), np.ones((2, 2), np.float32)
CALLS = {
    "addmm": lambda wide, half: nt.addmm(wide, half, half),
    "attention": lambda wide, half: nt.scaled_dot_product_attention(half, half, wide),
    "trapezoid": lambda wide, half: nt.trapezoid(wide[0], half[0].cumsum(axis=0)),
    "cumulative_trapezoid": lambda wide, half: nt.cumulative_trapezoid(half[0], wide[0].cumsum(axis=0)),
    "average": lambda wide, half: nt.average(wide[0], weights=half[0]),
    "poisson_nll_loss": lambda wide, half: nt.poisson_nll_loss(half, wide),
    "kl_div_loss": lambda wide, half: nt.kl_div_loss(-half, wide),
    "gaussian_nll_loss": lambda wide, half: nt.gaussian_nll_loss(half, wide, wide),
    "l1_loss": lambda wide, half: nt.l1_loss(half, wide),
    "huber_loss": lambda wide, half: nt.huber_loss(wide, half),
    "bce_with_logits_loss": lambda wide, half: nt.bce_with_logits_loss(wide, half * 0.5, half),
    "triplet_loss": lambda wide, half: nt.triplet_loss(half, wide, half * 2.0),
    "interp": lambda wide, half: nt.interp(half[0] / 2, half[0].cumsum(axis=0), wide[0]),
    "group_norm": lambda wide, half: nt.group_norm(half, 1, half[0], wide[0]),
    "instance_norm": lambda wide, half: nt.instance_norm(half[None], weight=half[0], bias=wide[0]),
    "layer_norm": lambda wide, half: nt.layer_norm(half, (2,), half[0], wide[0]),
    "batch_norm": lambda wide, half: nt.batch_norm(half, np.ones(2, np.float16), np.ones(2), half[0], wide[0]),
    "conv_transpose1d": lambda wide, half: nt.conv_transpose1d(half[None], half[:, None], wide[0, :1]),
    "prelu": lambda wide, half: nt.prelu(-half, wide[0]),
    "lstsq": lambda wide, half: nt.lstsq(half + half * [[1.0, 0.0], [0.0, 0.0]], wide),
}


@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("name", CALLS)
def test_the_wider_float_wins(name, dtype):
    for wider in (np.float32, np.float64):
        wide = nt.tensor(WIDE.astype(wider), requires_grad=True)
        narrow, single = half(NARROW, dtype, requires_grad=True), nt.tensor(NARROW.astype(wider), requires_grad=True)
        found, expected = CALLS[name](wide, narrow), CALLS[name](wide.detach(), single)
        assert found.dtype == wider
        np.testing.assert_allclose(found.detach().numpy(), expected.detach().numpy(), rtol=1e-6)
        found.sum().backward()
        expected.sum().backward()
        if single.grad is not None:
            assert narrow.grad.dtype == dtype
            with np.errstate(over="ignore"):
                slopes = single.grad.numpy().astype(dtype)
            np.testing.assert_allclose(narrow.grad.numpy().astype(float), slopes.astype(float), rtol=1e-2, atol=1e-6)


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_numbers_masks_and_class_weights_decide_no_dtype(dtype):
    x = half(NARROW, dtype)
    number = nt.tensor(np.array(2.0, np.float32))
    results = [
        nt.trapezoid(x, dx=number),
        nt.gradient(x[0], number),
        nt.scaled_dot_product_attention(x, x, x, np.zeros((2, 2)), scale=number),
        nt.cross_entropy(x, np.array([0, 1]), weight=np.array([0.5, 2.0], np.float32)),
        nt.nll_loss(x, np.array([0, 1]), weight=np.array([0.5, 2.0])),
        nt.batch_norm(x, np.zeros(2, np.float32), np.ones(2)),
        nt.quantile(x, np.array([0.25, 0.5])),
        nt.average(x[0], weights=[1.0, 2.0]),
    ]
    assert {str(y.dtype) for y in results} == {str(dtype)}


@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("wide", [np.float32, np.float64])
@pytest.mark.parametrize("is_left", [True, False])
def test_gradients_of_products_beside_halves_are_as_wide_as_the_product(dtype, wide, is_left):
    rng = np.random.default_rng(0)
    x = nt.tensor(rng.normal(size=(128, 128)).astype(wide), requires_grad=True)
    other = nt.tensor(rng.normal(size=(128, 128)), dtype=dtype)
    g = rng.normal(size=(128, 128)).astype(wide)
    out = x @ other if is_left else other @ x
    assert out.dtype == wide
    out.backward(nt.tensor(g))
    exact = other.numpy().astype(np.float64).T
    expected = g.astype(np.float64) @ exact if is_left else exact @ g.astype(np.float64)
    error = 1e-6 if wide is np.float32 else 1e-14
    np.testing.assert_allclose(x.grad.numpy(), expected, rtol=error, atol=error * 128)


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_gradients_in_float64_beside_halves_have_its_range(dtype):
    w = nt.ones(2, 2, dtype=dtype)
    for scale in (1e-50, 1e50):
        x = nt.tensor(np.ones((2, 2)), requires_grad=True)
        (nt.linear(x, w) * scale).sum().backward()
        np.testing.assert_allclose(x.grad.numpy(), 2 * scale)
    x = nt.tensor(1.7, dtype=np.float64, requires_grad=True)
    (nt.tensor(3.0, dtype=dtype) ** x).backward()
    np.testing.assert_allclose(x.grad.item(), 3**1.7 * np.log(3), rtol=1e-14)
