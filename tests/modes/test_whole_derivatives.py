"""Jacobians and Hessians in every mode, of functions and of tapes, and the memory they take."""

import tracemalloc

import numpy as np
import pytest
from functions import MATRIX, POINT, bowl, close, curve

import numtape as nt
from numtape.core import batching
from numtape.core import jacobian as engine


@pytest.mark.parametrize("mode", ["auto", "forward", "reverse", "mixed"])
@pytest.mark.parametrize("chunk_size", [None, 1, 2, 100])
def test_every_mode_gives_the_same_jacobian(mode, chunk_size):
    jacobian = nt.jacobian(curve, mode=mode, chunk_size=chunk_size)(POINT)
    y = np.tanh(MATRIX @ POINT)
    expected = (1 - y * y)[:, None] * MATRIX * POINT[:3, None] + y[:, None] * np.eye(3, 4) + 1.0
    close(jacobian, expected)


@pytest.mark.parametrize("mode", ["auto", "forward", "reverse", "mixed"])
def test_every_mode_gives_the_same_hessian(mode):
    hessian = nt.hessian(bowl, mode=mode, chunk_size=3)(POINT)
    close(hessian, nt.jacobian(nt.grad(bowl), mode="reverse")(POINT))
    close(hessian, hessian.T)


def test_a_jacobian_of_trees_has_the_outputs_structure_outside():
    def function(x, y):
        return {"a": x["u"] * y, "b": (x["v"].sum() * y, x["u"].sum())}

    x = {"u": np.array([1.0, 2.0]), "v": np.array([3.0, 4.0, 5.0])}
    found = nt.jacobian(function, argnums=(0, 1))(x, 2.0)
    by_x, by_y = found["a"]
    close(by_x["u"], 2.0 * np.eye(2))
    close(by_x["v"], np.zeros((2, 3)))
    close(by_y, [1.0, 2.0])
    by_x, by_y = found["b"][0]
    close(by_x["v"], [2.0, 2.0, 2.0])
    assert by_y == 12.0
    by_x, by_y = found["b"][1]
    close(by_x["u"], [1.0, 1.0])
    assert by_y == 0.0


def test_a_hessian_of_several_arguments_is_a_matrix_of_blocks():
    x, y = np.array([1.0, 2.0]), np.array([3.0])
    ((xx, xy), (yx, yy)) = nt.hessian(lambda x, y: (x * x).sum() * y[0] ** 2, argnums=(0, 1))(x, y)
    close(xx, 18.0 * np.eye(2))
    close(xy, [[12.0], [24.0]])
    close(yx, [[12.0, 24.0]])
    close(yy, [[10.0]])


def test_jacobian_and_hessian_have_aux():
    jacobian, aux = nt.jacobian(lambda x: (x * x, "note"), has_aux=True)(np.array([3.0]))
    assert (jacobian.tolist(), aux) == ([[6.0]], "note")
    hessian, aux = nt.hessian(lambda x: ((x * x).sum(), "note"), has_aux=True)(np.array([3.0]))
    assert (hessian.tolist(), aux) == ([[2.0]], "note")


def test_numbers_in_give_numbers_out():
    assert nt.jacobian(lambda x: x * x)(3.0) == 6.0
    assert nt.hessian(lambda x: x**3)(2.0) == 12.0
    assert nt.jacobian(lambda x: nt.stack([x, x * x]))(3.0).tolist() == [1.0, 6.0]
    assert type(nt.hvp(lambda x: x**3, 2.0, 1.0)) is float


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_arrays_of_no_axes_in_give_arrays_out(dtype):
    x, t = np.array(2.0, dtype), np.array(1.0, dtype)
    cube = nt.hvp(lambda x: x**3, x, t)
    both = nt.hvp(lambda x, y: x**2 * y, (x, 3.0), (t, 0.0))
    tree, aux = nt.hvp(lambda d: (d["x"] ** 3, "aux"), {"x": x}, {"x": t}, has_aux=True)
    found = [nt.grad(lambda x: x**3)(x), nt.hessian(lambda x: x**3)(x), cube, both[0], tree["x"]]
    assert [(type(each), each.shape, each.dtype) for each in found] == [(np.ndarray, (), dtype)] * 5
    assert [each.item() for each in found] == [12.0, 12.0, 12.0, 6.0, 12.0]
    assert type(both[1]) is float
    assert aux == "aux"


@pytest.mark.parametrize("dtype", [nt.float16, nt.bfloat16, nt.float32, nt.float64])
@pytest.mark.parametrize("mode", ["forward", "reverse", "mixed"])
def test_jacobians_have_the_dtype_of_the_argument(dtype, mode):
    jacobian = nt.jacobian(lambda x: x * x, mode=mode)(nt.tensor([1.0, 2.0], dtype=dtype))
    assert jacobian.dtype == dtype
    assert jacobian.tolist() == [[2.0, 0.0], [0.0, 4.0]]


def test_empty_arguments_have_empty_jacobians():
    assert nt.jacobian(lambda x: x * 2.0)(np.zeros(0)).shape == (0, 0)
    assert nt.jacobian(lambda x: x.sum())(np.zeros((2, 0))).shape == (2, 0)


def test_a_linear_function_has_a_zero_hessian():
    assert nt.hessian(lambda x: (MATRIX @ x).sum())(POINT).tolist() == np.zeros((4, 4)).tolist()


def test_jacobians_of_captured_parameters_are_differentiated():
    weight = nt.tensor([2.0, 3.0], dtype=nt.float64, requires_grad=True)
    jacobian = nt.jacobian(lambda x: weight * x * x)(nt.tensor([1.0, 2.0], dtype=nt.float64))
    (jacobian**2).sum().backward()
    # The diagonal is 2 w x.
    close(weight.grad.numpy(), 8 * weight.numpy() * np.array([1.0, 4.0]))


def test_elementwise_grad_is_the_diagonal():
    x = np.array([[0.1, 0.2], [0.3, 0.4]])
    close(nt.elementwise_grad(lambda x: nt.exp(x) * x)(x), np.exp(x) * (1 + x))
    by_x, by_y = nt.elementwise_grad(lambda x, y: x * y, argnums=(0, 1))(x, 2 * x)
    close(by_x, 2 * x)
    close(by_y, x)


def test_scalar_results_of_a_jacobian_are_its_gradient():
    close(nt.jacobian(bowl)(POINT), nt.grad(bowl)(POINT))


def test_forward_gradient_gives_all_derivatives_or_a_directional_one():
    tape = nt.GradientTape()
    x = tape.watch(nt.tensor([1.0, 2.0, 3.0]))
    y = nt.stack([x.sum(), (x * x).sum()])
    assert tape.forward_gradient(x, y).tolist() == [[1.0, 1.0, 1.0], [2.0, 4.0, 6.0]]
    assert tape.forward_gradient(x, y, tangent=nt.tensor([1.0, 0.0, 1.0])).tolist() == [2.0, 8.0]
    # Nothing is consumed.
    assert tape.jacobian(y, x).tolist() == [[1.0, 1.0, 1.0], [2.0, 4.0, 6.0]]
    assert tape.gradient(y, x).tolist() == [3.0, 5.0, 7.0]


def test_jacobian_of_a_tape_takes_several_sources():
    with nt.Tape() as tape:
        x, y = nt.tensor([1.0, 2.0]), nt.tensor(3.0)
        z = x * y
    by_x, by_y = tape.jacobian(z, [x, y])
    assert by_x.tolist() == [[3.0, 0.0], [0.0, 3.0]]
    assert by_y.tolist() == [1.0, 2.0]


@pytest.mark.parametrize("mode", ["auto", "forward", "reverse", "mixed"])
def test_jacobian_by_an_intermediate(mode):
    with nt.Tape() as tape:
        x = nt.tensor([1.0, 2.0])
        y = x * x
        z = y * y + x
    assert tape.jacobian(z, y, mode=mode).tolist() == [[2.0, 0.0], [0.0, 8.0]]


def test_an_outer_tape_differentiates_a_jacobian():
    x = nt.tensor([1.0, 2.0])
    with nt.Tape() as outer:
        with nt.Tape() as inner:
            y = x**3
        total = inner.jacobian(y, x).sum() + inner.forward_gradient(x, y, tangent=nt.ones(2)).sum()
    assert outer.gradient(total, x).tolist() == [12.0, 24.0]


def smooth(w):
    return lambda x: nt.sin(w @ nt.exp(-((w @ nt.tanh(w @ x)) ** 2)) + x) * nt.cos(x)


@pytest.mark.parametrize("mode", ["auto", "forward", "reverse"])
@pytest.mark.parametrize("order", [1, 2])
def test_memory_is_at_most_three_times_the_result(mode, order):
    w = np.random.default_rng(0).normal(size=(200, 200)) / 14
    x = np.linspace(0.0, 1.0, 200)
    function = smooth(w)
    derivative = (
        nt.jacobian(function, mode=mode) if order == 1 else nt.hessian(lambda x: (function(x) ** 2).sum(), mode=mode)
    )
    derivative(x)
    tracemalloc.start()
    result = derivative(x)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak <= 3 * result.nbytes


@pytest.mark.parametrize(("dtype", "large"), [("float32", 6e23), ("float64", 1e200), ("float64", 1e160)])
@pytest.mark.parametrize("mode", ["forward", "reverse", "mixed", "auto"])
def test_what_is_too_small_on_one_side_of_the_cut_is_not_lost(mode, dtype, large):
    weights = np.ones(50, dtype)
    jacobian = nt.jacobian(lambda x: (x * large / large / large).sum() * large * weights, mode=mode)
    np.testing.assert_allclose(jacobian(np.ones(50, dtype)), 1.0, rtol=1e-6 if dtype == "float32" else 1e-15)


@pytest.mark.parametrize("mode", ["forward", "reverse", "mixed"])
def test_sweeps_overflow_without_a_word(mode):
    with np.errstate(all="raise"):
        found = nt.jacobian(lambda x: (x * 1e200).sum() * np.full(2, 1e200), mode=mode)(np.full(2, 1e-300))
        halves = nt.jacobian(lambda x: x.astype("float32") * 1e5, mode=mode)(np.ones(1, np.float16))
    assert found.tolist() == [[np.inf, np.inf]] * 2
    assert halves.tolist() == [[np.inf]]


def test_gradients_of_halves_overflow_without_a_word():
    with np.errstate(all="raise"):
        assert nt.grad(lambda x: (x.astype("float32") * 1e5).sum())(np.ones(1, np.float16)).tolist() == [np.inf]


def test_an_infinite_derivative_at_the_cut_stays_where_it_is():
    weights = np.ones((50, 2))
    x = np.r_[np.zeros(25), np.ones(25)]

    def narrow(x):
        return weights @ nt.log(nt.stack([x[:25].sum(), x[25:].sum()]))

    with np.errstate(divide="ignore"):
        by_default, by_reverse = nt.jacobian(narrow)(x), nt.jacobian(narrow, mode="reverse")(x)
    assert np.isinf(by_reverse[:, :25]).all()
    np.testing.assert_array_equal(by_default, by_reverse)


def test_a_pull_function_that_is_not_linear_is_not_multiplied_by():
    matrix = np.arange(1.0, 301.0).reshape(3, 100) / 100

    @nt.custom_gradient
    def clipped(x):
        return x * 1.0, lambda g: nt.clip(g, -0.1, 0.1)

    def narrow(x):
        return matrix.T @ (matrix @ clipped(x))

    by_default, by_reverse = nt.jacobian(narrow)(np.ones(100)), nt.jacobian(narrow, mode="reverse")(np.ones(100))
    np.testing.assert_array_equal(by_default, by_reverse)


def test_axes_of_a_number_are_those_that_numpy_takes():
    for reduce in (nt.sum, nt.mean, nt.max, nt.prod, nt.logsumexp, nt.nanmean):
        assert nt.grad(lambda x, reduce=reduce: reduce(x * x, axis=0))(0.7) == pytest.approx(1.4)


def test_forward_gradients_of_several_tensors_are_lists():
    tape = nt.GradientTape()
    x, y = tape.watch(nt.tensor([1.0, 2.0])), tape.watch(nt.tensor([3.0, 4.0]))
    product = x * y
    by_x, by_y = tape.forward_gradient([x, y], product)
    assert (by_x.tolist(), by_y.tolist()) == ([[3.0, 0.0], [0.0, 4.0]], [[1.0, 0.0], [0.0, 2.0]])
    assert tape.forward_gradient([x, y], product, [[1.0, 0.0], [0.0, 1.0]]).tolist() == [3.0, 2.0]
    assert [found.tolist() for found in tape.forward_gradient(x, [product, x * x], [1.0, 1.0])] == [
        [3.0, 4.0],
        [2.0, 4.0],
    ]


def test_a_list_of_numbers_takes_the_dtype_of_its_argument():
    assert nt.jvp(lambda x: x * x, nt.tensor([2.0, 3.0]), [1.0, 0.0])[1].tolist() == [4.0, 0.0]


@pytest.mark.parametrize("shape", [(1,), (2,), (2, 3)])
def test_a_tape_gives_zeros_where_a_derivative_is_zero(shape):
    tape = nt.GradientTape()
    x = tape.watch(nt.full(shape, 2.5))
    zero = nt.custom_gradient(lambda x: (x * 2.0, lambda g: None))
    for y in (nt.floor(x), nt.sign(x), x[:0].sum(), zero(x)):
        for found in (tape.jacobian(y, x), tape.forward_gradient(x, y), tape.jacobian(y, x, mode="reverse")):
            assert found.shape == y.shape + x.shape
            assert not found.numpy().any()


def test_a_source_in_the_midst_of_the_graph_moves_by_itself_and_with_what_it_depends_on():
    tape = nt.GradientTape(persistent=True)
    x = tape.watch(nt.tensor(3.0))
    z = tape.watch(x * 2.0)
    y = x * z
    assert [g.item() for g in tape.gradient(y, [x, z])] == [12.0, 3.0]
    assert [g.item() for g in tape.forward_gradient([x, z], y)] == [12.0, 3.0]
    for tangents, slope in (([1.0, 0.0], 12.0), ([0.0, 1.0], 3.0), ([1.0, 1.0], 15.0)):
        assert tape.forward_gradient([x, z], y, tangents).item() == slope
        assert tape.forward_gradient([z, x], y, tangents[::-1]).item() == slope


def test_tails_that_become_too_small_leave_a_mixed_sweep_cheap(monkeypatch):
    carried = [0, 0]

    def counted(position, sweep):
        def run(seeds, *args, **kwargs):
            carried[position] += max(len(seed.members) for _, seed in seeds)
            return sweep(seeds, *args, **kwargs)

        return run

    monkeypatch.setattr(engine, "forward", counted(0, engine.forward))
    monkeypatch.setattr(engine, "reverse", counted(1, engine.reverse))
    rng = np.random.default_rng(0)
    narrow, wide = rng.normal(size=(3, 200)), rng.normal(size=(200, 3))

    def function(x):
        return wide @ nt.tanh(narrow @ nt.exp(-x * x))

    x = np.linspace(-30.0, 30.0, 200)
    scheduler = nt.HybridScheduler()
    found = nt.jacobian(function, scheduler=scheduler)(x)
    assert max(carried) <= 6
    assert scheduler.last_decision.mode is nt.SchedulingStrategy.MIXED
    np.testing.assert_allclose(found, nt.jacobian(function, mode="reverse")(x), rtol=1e-9, atol=1e-300)


def test_a_mixed_sweep_that_would_lose_numbers_says_what_was_done_instead():
    def function(x):
        return nt.sqrt(x[:1]).sum() * np.arange(50.0) + x.sum()

    x = np.arange(60.0)
    scheduler = nt.HybridScheduler(nt.SchedulerConfig("mixed"))
    found = nt.jacobian(function, scheduler=scheduler)(x)
    assert np.array_equal(found, nt.jacobian(function, mode="reverse")(x), equal_nan=True)
    assert "since mixed failed: a derivative on one side of the cut is too large" in scheduler.explain()


@pytest.mark.parametrize("mode", ["forward", "reverse", "mixed"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_partials_on_the_array_of_a_batch_give_the_bits_of_ops(mode, dtype, monkeypatch):
    def function(x):
        low, high = x[0], x[1:]
        wide = nt.tanh(low * high[:, None]) + nt.exp(-high) / (1.0 + low**2)
        return nt.maximum(wide, nt.sin(high)) * nt.where(high > 0.5, low, high) + high

    x = np.linspace(0.1, 1.0, 5).astype(dtype)
    derivative = nt.jacobian(function, mode=mode)
    at_once = derivative(x)
    monkeypatch.setattr(batching, "LEAST_RESULT", 0)
    by_ops = derivative(x)
    assert at_once.shape == (4, 4, 5)
    assert at_once.dtype == by_ops.dtype == dtype
    np.testing.assert_array_equal(at_once, by_ops)


@pytest.mark.parametrize("keepdims", [False, True])
def test_lanes_of_nothing_have_no_second_derivatives(keepdims):
    """A sum of exponentials of -inf alone, as of a state that cannot be reached, moves with none of them."""
    x = np.array([[-np.inf, -np.inf], [0.5, 1.0]])

    def reached(x):
        return nt.logsumexp(x, axis=1, keepdims=keepdims).ravel()[1]

    expected = np.zeros((2, 2, 2, 2))
    expected[1, :, 1] = nt.hessian(lambda x: nt.logsumexp(x))(x[1])
    for mode in ("auto", "forward", "reverse", "mixed"):
        np.testing.assert_allclose(nt.jacobian(nt.grad(reached), mode=mode)(x), expected, atol=1e-15)
        np.testing.assert_allclose(nt.hessian(reached, mode=mode)(x), expected, atol=1e-15)


def test_an_infinite_derivative_leaves_its_neighbours_alone():
    """Tangents and cotangents make NaN of other zeros beside it; what one of them knows is there."""
    x = np.array([0.0, 1.0, 2.0])
    at_inputs = np.tile(np.r_[np.inf, 0.5 / np.sqrt(x[1:])], (4, 1))
    for mode in ("auto", "mixed"):
        found = nt.jacobian(lambda x: nt.sqrt(x).sum() * np.ones(4), mode=mode)(x)
        np.testing.assert_array_equal(found, at_inputs)
        found = nt.jacobian(lambda x: nt.sqrt(x.sum() * np.r_[0.0, 1.0, 2.0, 3.0]), mode=mode)(x)
        np.testing.assert_allclose(found[1:], np.tile(0.5 * np.sqrt(np.arange(1.0, 4.0) / 3.0)[:, None], (1, 3)))


def test_the_arguments_of_a_transform_are_nobody_elses_to_write():
    def doubled(x):
        with nt.no_grad():
            x *= 2.0
        return x * x

    for x in (np.arange(3.0), nt.arange(3.0), nt.arange(3.0, requires_grad=True)):
        for transform in (nt.grad(lambda x: doubled(x).sum()), nt.jacobian(doubled), lambda x: nt.jvp(doubled, x, x)):
            with pytest.raises(nt.errors.LeafWriteError) as caught:
                transform(x)
            assert str(caught.value) == (
                "mul: an argument of a function that is being differentiated cannot be written in place, since that "
                "would change what the caller holds; clone() it first."
            )
        assert x.tolist() == [0.0, 1.0, 2.0]


def test_a_buffer_of_which_an_argument_is_a_part_is_the_callers_to_write():
    history = nt.ones(2, 3)

    def function(x):
        before = x.detach()
        with nt.no_grad():
            history[1] = 2.0
        return (before * x).sum()

    assert nt.grad(function)(history[0]).tolist() == [1.0, 1.0, 1.0]
    assert history[1].tolist() == [2.0, 2.0, 2.0]
