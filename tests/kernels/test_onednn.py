"""oneDNN gives what NumPy gives, but for rounding; where it is missing, NumPy is put to the same tests."""

import os
import threading

import numpy as np
import pytest

import numtape as nt
from numtape.kernels import convolution, cpu, onednn, onednn_library, onednn_matmul, provided_convolution, providers
from numtape.kernels.onednn_plan import Plan, Plans

IS_THERE = onednn_library.why_missing() is None


@pytest.fixture
def by_onednn():
    """Let oneDNN run whatever it can, however small."""
    with providers.pinned("onednn" if IS_THERE else "auto"):
        yield


def normal(*shape, seed=0, dtype=np.float32):
    return np.random.default_rng(seed).normal(size=shape).astype(dtype)


def assert_close(ours, expected, terms):
    """Compare sums of so many products of numbers of size 1, in float32."""
    assert ours.shape == expected.shape
    assert ours.dtype == expected.dtype
    np.testing.assert_allclose(ours, expected, rtol=1e-5, atol=2e-6 * terms**0.5)


LAYOUTS = {
    "as they are": (normal(5, 7), normal(7, 4, seed=1)),
    "a transposed": (normal(7, 5).T, normal(7, 4, seed=1)),
    "b transposed": (normal(5, 7), normal(4, 7, seed=1).T),
    "both transposed": (normal(7, 5).T, normal(4, 7, seed=1).T),
    "rows of a larger matrix": (normal(5, 20)[:, :7], normal(7, 9, seed=1)[:, 2:6]),
    "every second row": (normal(10, 7)[::2], normal(7, 4, seed=1)),
    "one row": (normal(1, 7), normal(7, 4, seed=1)),
    "one column": (normal(5, 7), normal(7, 1, seed=1)),
    "an outer product": (normal(5, 1), normal(1, 3, seed=1)),
    "every second column": (normal(5, 14)[:, ::2], normal(7, 4, seed=1)),
    "backwards": (normal(5, 7)[::-1], normal(7, 4, seed=1)[:, ::-1]),
    "repeated": (np.broadcast_to(normal(7), (5, 7)), normal(7, 4, seed=1)),
    "stacks": (normal(4, 5, 7), normal(4, 7, 4, seed=1)),
    "heads": (normal(2, 5, 4, 7).swapaxes(1, 2), normal(2, 5, 4, 7, seed=1).transpose(0, 2, 3, 1)),
    "broadcast stacks": (normal(4, 1, 5, 7), normal(3, 7, 2, seed=1)),
    "nothing to add": (normal(5, 0), normal(0, 3)),
    "no rows": (normal(0, 7), normal(7, 3)),
    "a vector": (normal(7), normal(7, 3)),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_products_of_any_layout_agree(layout, by_onednn):
    a, b = LAYOUTS[layout]
    assert_close(providers.matmul(a, b), np.matmul(a, b), 7)


def test_a_bias_is_added_to_each_row(by_onednn):
    a, b = normal(5, 7), normal(7, 4, seed=1)
    for bias in (normal(4, seed=2), normal(8, seed=2)[::2]):
        assert_close(providers.matmul(a, b, bias), a @ b + bias, 7)


@pytest.mark.parametrize("dtype", [nt.float16, nt.bfloat16], ids=str)
def test_halves_are_added_up_in_float32(dtype, by_onednn):
    a, b = normal(64, 600, dtype=dtype), normal(600, 48, seed=1, dtype=dtype)
    exact = a.astype(np.float64) @ b.astype(np.float64)
    ours = providers.matmul(a, b)
    assert ours.dtype == dtype
    # Half a unit in the last place, and what float32 may add to it.
    unit = float(np.finfo(np.float16).eps if dtype == nt.float16 else 2.0**-7)
    assert (np.abs(ours.astype(np.float64) - exact) <= 0.51 * unit * np.abs(exact) + 1e-4).all()
    wide = providers.matmul(a, b, dtype=nt.float32)
    assert wide.dtype == nt.float32
    np.testing.assert_allclose(wide, exact, rtol=1e-5, atol=1e-4)


def test_float64_stays_with_numpy(by_onednn):
    a = normal(50, 50, dtype=np.float64)
    assert np.array_equal(providers.matmul(a, a), a @ a)


#: Input, weight, stride, padding, dilation and groups.
CONVOLUTIONS = {
    "plain": ((2, 3, 8, 9), (4, 3, 3, 3), (1, 1), ((0, 0), (0, 0)), (1, 1), 1),
    "padded": ((2, 16, 14, 14), (32, 16, 3, 3), (1, 1), ((1, 1), (1, 1)), (1, 1), 1),
    "one channel": ((2, 1, 12, 12), (16, 1, 5, 5), (1, 1), ((2, 2), (2, 2)), (1, 1), 1),
    "padded on one side": ((2, 3, 8, 9), (4, 3, 3, 2), (1, 1), ((0, 2), (1, 0)), (1, 1), 1),
    "strides that leave a rest": ((2, 3, 9, 12), (4, 3, 3, 2), (2, 3), ((1, 1), (0, 1)), (1, 1), 1),
    "dilated": ((2, 3, 11, 12), (4, 3, 3, 3), (1, 2), ((2, 2), (0, 0)), (2, 3), 1),
    "groups": ((2, 6, 8, 8), (4, 3, 3, 3), (1, 1), ((1, 1), (1, 1)), (1, 1), 2),
    "each channel by itself": ((2, 6, 8, 8), (6, 1, 3, 3), (1, 1), ((1, 1), (1, 1)), (1, 1), 6),
    "points": ((2, 6, 8, 8), (5, 6, 1, 1), (1, 1), ((0, 0), (0, 0)), (1, 1), 1),
    "one dimension": ((2, 3, 20), (4, 3, 3), (2,), ((1, 1),), (1,), 1),
    "three dimensions": ((2, 3, 5, 6, 4), (4, 3, 2, 3, 2), (1, 2, 1), ((1, 0), (1, 1), (0, 0)), (1, 1, 2), 1),
    "four dimensions": ((1, 2, 3, 3, 3, 3), (2, 2, 2, 2, 2, 2), (1,) * 4, ((0, 0),) * 4, (1,) * 4, 1),
    "cut": ((2, 3, 8, 9), (4, 3, 3, 3), (1, 1), ((-1, 0), (0, -2)), (1, 1), 1),
    "no samples": ((0, 3, 8, 9), (4, 3, 3, 3), (1, 1), ((0, 0), (0, 0)), (1, 1), 1),
}


@pytest.mark.parametrize("case", CONVOLUTIONS)
def test_convolutions_and_their_transposes_agree(case, by_onednn):
    x_shape, weight_shape, *how = CONVOLUTIONS[case]
    x, weight, bias = normal(*x_shape), normal(*weight_shape, seed=1), normal(weight_shape[0], seed=2)
    size, kernel = x_shape[2:], weight_shape[2:]
    out = convolution.conv(x, weight, bias, *how)
    y = normal(*out.shape, seed=3)
    terms = int(np.prod(weight_shape[1:]))
    assert_close(provided_convolution.conv(x, weight, bias, *how), out, terms)
    assert_close(provided_convolution.conv(x, weight, None, *how), convolution.conv(x, weight, None, *how), terms)
    given_back = convolution.conv_input(y, weight, size, *how)
    assert_close(provided_convolution.conv_input(y, weight, size, *how), given_back, terms * weight_shape[0])
    by_weight = convolution.conv_weight(x, y, kernel, *how)
    assert_close(provided_convolution.conv_weight(x, y, kernel, *how), by_weight, y.size // weight_shape[0])


def test_convolutions_of_views_agree(by_onednn):
    how = ((1, 1), ((1, 1), (1, 1)), (1, 1), 1)
    x, weight = normal(8, 9, 3, 2).transpose(3, 2, 0, 1), normal(3, 4, 3, 3, seed=1).swapaxes(0, 1)
    ones = np.broadcast_to(np.float32(1.0), (2, 4, 8, 9))
    assert_close(provided_convolution.conv(x, weight, None, *how), convolution.conv(x, weight, None, *how), 27)
    expected = convolution.conv_weight(x, np.ascontiguousarray(ones), (3, 3), *how)
    assert_close(provided_convolution.conv_weight(x, ones, (3, 3), *how), expected, 144)


def test_gradients_of_a_network_agree():
    x, first, second = normal(4, 2, 8, 8), normal(6, 2, 3, 3, seed=1), normal(5, 6 * 36, seed=2)

    def gradients():
        weights = [nt.tensor(w, requires_grad=True) for w in (first, second)]
        hidden = nt.relu(nt.conv2d(x, weights[0])).reshape((4, -1))
        (nt.linear(hidden, weights[1]) ** 2).sum().backward()
        return [w.grad.numpy() for w in weights]

    with providers.pinned("numpy"):
        expected = gradients()
    with providers.pinned("onednn" if IS_THERE else "auto"):
        ours = gradients()
    for one, other in zip(ours, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-3)


def test_large_work_goes_to_onednn_and_small_work_does_not(monkeypatch):
    asked = []
    monkeypatch.setattr(onednn, "matmul", lambda a, b, bias, dtype: asked.append(a.shape))
    providers.matmul(normal(80, 80), normal(80, 80))
    assert asked == []
    providers.matmul(normal(81, 81), normal(81, 81))
    assert asked == [(81, 81)]
    with providers.pinned("numpy"):
        providers.matmul(normal(81, 81), normal(81, 81))
    assert asked == [(81, 81)]


def test_a_plan_is_made_once_for_each_shape(monkeypatch, by_onednn):
    made = []
    make = onednn_matmul._plan
    monkeypatch.setattr(onednn_matmul, "_plan", lambda *operands: made.append(1) or make(*operands))
    for seed in range(3):
        a = normal(11, 13, seed=seed)
        assert_close(providers.matmul(a, a.T), a @ a.T, 13)
    assert len(made) == (1 if IS_THERE else 0)


def test_the_store_of_plans_is_bounded_and_forgets_the_oldest():
    plans = Plans(2)
    first, second, third = (object.__new__(Plan) for _ in range(3))
    for plan in (first, second, third):
        plan._made = []
    plans.give_back("a", first)
    plans.give_back("b", second)
    assert plans.take("a") is first
    assert plans.take("a") is None
    plans.give_back("a", first)
    plans.give_back("c", third)
    assert len(plans) == 2
    assert plans.take("b") is None
    assert plans.take("a") is first


def test_threads_that_run_the_same_shapes_do_not_disturb_each_other():
    how = ((1, 1), ((1, 1), (1, 1)), (1, 1), 1)
    weight = normal(8, 4, 3, 3)
    wrong = []

    def work(seed):
        x = normal(3, 4, 10, 10, seed=seed)
        a = normal(40, 50, seed=seed)
        with providers.pinned("onednn" if IS_THERE else "auto"):
            out, product = provided_convolution.conv(x, weight, None, *how), providers.matmul(a, a.T)
            for _ in range(50):
                if not np.array_equal(provided_convolution.conv(x, weight, None, *how), out):
                    wrong.append(("conv", seed))
                if not np.array_equal(providers.matmul(a, a.T), product):
                    wrong.append(("matmul", seed))
        np.testing.assert_allclose(out, convolution.conv(x, weight, None, *how), rtol=1e-4, atol=1e-4)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_what_lies_on_itself_or_has_gaps_is_left_to_numpy():
    a = normal(6, 6)
    assert onednn_matmul.can_read(a)
    assert onednn_matmul.can_read(a.T)
    assert onednn_matmul.can_read(a[::2])
    assert not onednn_matmul.can_read(a[:, ::2])
    assert not onednn_matmul.can_read(a[::-1])
    assert not onednn_matmul.can_read(np.broadcast_to(a[0], (6, 6)))
    windows = np.lib.stride_tricks.sliding_window_view(a[0], 3)
    assert not onednn_matmul.can_read(windows)


@pytest.mark.skipif(not IS_THERE, reason="oneDNN is missing")
def test_float32_beside_bfloat16_is_rounded_and_nothing_else(monkeypatch):
    monkeypatch.setattr(onednn_library.library(), "has_fast_bfloat16", True)
    wide, half, bias = normal(6, 9), normal(9, 5, seed=1, dtype=nt.bfloat16), normal(5, seed=2)
    for a, b, shift in ((wide, half, bias), (half.T, wide.T, None), (np.stack([wide] * 2), np.stack([half] * 2), None)):
        with providers.pinned("onednn"):
            out = providers.matmul(a, b, shift)
        assert out.dtype == np.float32
        rounded = [np.float64(x.astype(nt.bfloat16)) for x in (a, b)]
        assert_close(out, np.float32(rounded[0] @ rounded[1] + (0.0 if shift is None else shift)), 9)


@pytest.mark.skipif(not IS_THERE, reason="oneDNN is missing")
def test_float32_beside_halves_keeps_its_bits_where_that_is_no_faster(monkeypatch):
    wide, half = normal(6, 9), normal(9, 5, seed=1, dtype=nt.bfloat16)
    monkeypatch.setattr(onednn_library.library(), "has_fast_bfloat16", False)
    with providers.pinned("onednn"):
        for b in (half, half.astype(np.float16)):
            assert_close(providers.matmul(wide, b), wide @ b.astype(np.float32), 9)


def test_loading_leaves_the_environment_as_it_was():
    before = dict(os.environ)
    onednn_library._load.__wrapped__()
    assert dict(os.environ) == before


def test_tiles_whose_size_is_hidden_are_not_used(monkeypatch):
    told = {0: (0x1C, 0), 0x1D: (1, 0)}
    monkeypatch.setattr(cpu, "_cpuid", told.get)
    assert not cpu.has_tiles()
    told[0] = (0x20, 0)
    assert cpu.has_tiles()
    told[0x1D] = (0, 0)
    assert not cpu.has_tiles()


def test_dot_products_at_full_speed_are_amds(monkeypatch):
    for vendor, answer in ((b"Auth", True), (b"Genu", False)):
        monkeypatch.setattr(cpu, "_cpuid", lambda leaf, v=vendor: (0x10, int.from_bytes(v, "little")))
        assert cpu.has_full_dot_products() is answer
