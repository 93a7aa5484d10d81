"""`jacobian(sparse=True)` and `hessian(sparse=True)`: forms, modes, prices, memory and misuse."""

import threading
import tracemalloc

import numpy as np
import programs
import pytest
import scipy.optimize
import scipy.sparse
from programs import assert_same

import numtape as nt
from numtape.errors import ArgumentError, LeavesTapeError, MissingExtraError, ShapeError
from numtape.sparse import matrices

x = np.linspace(1.0, 2.0, 8)


def chain(x):
    return x[1:] * x[:-1] ** 2


def rosenbrock(v):
    return (100.0 * (v[1:] - v[:-1] ** 2) ** 2 + (1.0 - v[:-1]) ** 2).sum()


def tridiagonal(x):
    u = np.pad(x, 1)
    return (u[2:] - 2.0 * u[1:-1] + u[:-2]) * 100.0 - np.exp(x)


def test_one_array_in_and_one_array_out_give_one_matrix():
    jacobian = nt.jacobian(chain, sparse=True)(x)
    assert isinstance(jacobian, scipy.sparse.csr_array)
    assert (jacobian.shape, jacobian.nnz, jacobian.dtype) == ((7, 8), 14, np.float64)
    assert_same(jacobian, nt.jacobian(chain)(x))


def test_arrays_of_any_shape_are_laid_out_in_rows():
    u = x.reshape(2, 4)

    def function(u):
        return u.T[1:] * u[0, 0]

    jacobian = nt.jacobian(function, sparse=True)(u)
    assert jacobian.shape == (6, 8)
    assert_same(jacobian, nt.jacobian(function)(u))


def test_trees_give_the_trees_of_the_dense_jacobian():
    def function(p, scale):
        return {"u": p["a"] * scale, "v": (p["b"][:1], p["a"].sum())}

    p = {"a": x[:3], "b": x[3:]}
    sparse = nt.jacobian(function, argnums=(0, 1), sparse=True)(p, 2.0)
    dense = nt.jacobian(function, argnums=(0, 1))(p, 2.0)
    assert sparse["v"][0][0]["b"].shape == (1, 5)
    for path in (
        lambda t: t["u"][0]["a"],
        lambda t: t["u"][0]["b"],
        lambda t: t["u"][1],
        lambda t: t["v"][0][0]["b"],
        lambda t: t["v"][1][0]["a"],
        lambda t: t["v"][1][1],
    ):
        assert_same(path(sparse), path(dense))


def test_hessians_of_trees_are_blocks():
    def function(p):
        return (p["a"][1:] * p["a"][:-1] * p["b"][0]).sum() + (p["b"] ** 3).sum()

    p = {"a": x[:5], "b": x[5:]}
    sparse, dense = nt.hessian(function, sparse=True)(p), nt.hessian(function)(p)
    for row in "ab":
        for column in "ab":
            assert_same(sparse[row][column], dense[row][column])


def test_auxiliary_output_passes_through():
    jacobian, aux = nt.jacobian(lambda x: (x * 2.0, ["kept"]), has_aux=True, sparse=True)(x)
    assert (jacobian.nnz, aux) == (8, ["kept"])
    hessian, aux = nt.hessian(lambda x: ((x**2).sum(), 7), has_aux=True, sparse=True)(x)
    assert (hessian.nnz, aux) == (8, 7)


def test_tensors_give_matrices_too():
    assert_same(nt.jacobian(chain, sparse=True)(nt.tensor(x)), nt.jacobian(chain)(x))


@pytest.mark.parametrize(
    ("given", "expected"),
    [("float16", np.float32), (nt.bfloat16, np.float32), ("float32", np.float32), ("float64", np.float64)],
)
def test_halves_give_float32_since_scipy_has_no_halves(given, expected):
    assert nt.jacobian(chain, sparse=True)(x.astype(given)).dtype == expected
    assert nt.hessian(rosenbrock, sparse=True)(x.astype(given)).dtype == expected


def test_constants_identities_and_nothing_at_all():
    assert nt.jacobian(lambda x: np.ones(3), sparse=True)(x).shape == (3, 8)
    assert nt.jacobian(lambda x: np.ones(3), sparse=True)(x).nnz == 0
    np.testing.assert_array_equal(nt.jacobian(lambda x: x, sparse=True)(x).toarray(), np.eye(8))
    assert nt.jacobian(chain, sparse=True)(np.zeros(1)).shape == (0, 1)
    assert nt.jacobian(lambda x: x * 2.0, sparse=True)(np.zeros(0)).shape == (0, 0)
    assert nt.hessian(lambda x: 3.0, sparse=True)(x).nnz == 0
    assert nt.hessian(lambda x: x.sum(), sparse=True)(x).nnz == 0
    assert nt.hessian(lambda x: x**3, sparse=True)(2.0).toarray().tolist() == [[12.0]]


@pytest.mark.parametrize("mode", ["auto", "forward", "reverse", "mixed"])
@pytest.mark.parametrize("chunk_size", [None, 1, 2])
def test_every_mode_and_chunk_size_gives_the_same(mode, chunk_size):
    found = nt.jacobian(tridiagonal, sparse=True, mode=mode, chunk_size=chunk_size)(x)
    assert_same(found, nt.jacobian(tridiagonal)(x))
    found = nt.hessian(rosenbrock, sparse=True, mode=mode, chunk_size=chunk_size)(x)
    assert_same(found, nt.hessian(rosenbrock)(x))


def test_the_scheduler_prices_colours_and_explains():
    scheduler = nt.HybridScheduler()
    nt.jacobian(tridiagonal, sparse=True, scheduler=scheduler)(np.linspace(0.0, 1.0, 1000))
    assert scheduler.explain() == (
        "Jacobian of 1000 outputs by 1000 inputs: forward, the cheapest\n"
        "    mode                         tangents  cotangents  multiply-adds\n"
        "->  forward (coloured: columns)         3           0         60,024\n"
        "    forward                         1,000           0     20,008,000\n"
        "    reverse                             0       1,000     20,008,000\n"
        "    mixed (cut of 1000)             1,000       1,000  1,020,008,000"
    )


def test_an_arrow_is_computed_from_both_sides():
    def arrow(x):
        return nt.concat([(x * x).sum().reshape(1), x[1:] * x[0]])

    v = np.linspace(1.0, 2.0, 100)
    scheduler = nt.HybridScheduler()
    assert_same(nt.jacobian(arrow, sparse=True, scheduler=scheduler)(v), nt.jacobian(arrow)(v))
    chosen = scheduler.last_decision.chosen
    assert (chosen.colouring, chosen.tangents, chosen.cotangents) == ("two-sided", 2, 1)


def test_an_arrow_shaped_hessian_takes_two_colours():
    def function(x):
        return (x[0] * x[1:] ** 2).sum()

    v = np.linspace(1.0, 2.0, 100)
    scheduler = nt.HybridScheduler()
    assert_same(nt.hessian(function, sparse=True, scheduler=scheduler)(v), nt.hessian(function)(v))
    assert (scheduler.last_decision.chosen.colouring, scheduler.last_decision.chosen.tangents) == ("star", 2)


def test_a_product_at_a_narrow_cut_wins_where_it_is_cheaper():
    def function(x):
        return np.linspace(0.0, 1.0, 50) * np.sin(x.sum())

    scheduler = nt.HybridScheduler()
    v = np.linspace(1.0, 2.0, 200)
    assert_same(nt.jacobian(function, sparse=True, scheduler=scheduler)(v), nt.jacobian(function)(v))
    assert (scheduler.last_decision.mode.value, scheduler.last_decision.chosen.width) == ("mixed", 1)


@nt.custom_gradient
def clipped(x, bound):
    return x * 1.0, lambda g: nt.clip(g, -bound, bound)


def test_an_op_that_lacks_forward_mode_is_swept_in_reverse():
    def function(x):
        return clipped(np.sin(x), 3.0)

    scheduler = nt.HybridScheduler()
    assert_same(nt.jacobian(function, sparse=True, scheduler=scheduler)(x), np.diag(np.cos(x)))
    assert scheduler.last_decision.chosen.colouring == "rows"
    assert scheduler.last_decision.reason == (
        "since forward failed: clipped: forward mode transposes its pull function, which is not linear, so that it has "
        "no transpose. Write it with nt or np functions, linear in the cotangent, or use reverse mode."
    )


def test_a_tridiagonal_system_of_10000_unknowns_takes_three_tangents_and_less_than_20_megabytes():
    v = np.linspace(0.0, 1.0, 10_000)
    scheduler = nt.HybridScheduler()
    nt.jacobian(tridiagonal, sparse=True)(x)
    tracemalloc.start()
    jacobian = nt.jacobian(tridiagonal, sparse=True, scheduler=scheduler)(v)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (jacobian.nnz, scheduler.last_decision.chosen.tangents) == (29_998, 3)
    assert peak < 20e6
    diagonals = [jacobian.diagonal(k) for k in (-1, 0, 1)]
    np.testing.assert_array_equal(diagonals[0], np.full(9_999, 100.0))
    np.testing.assert_allclose(diagonals[1], -200.0 - np.exp(v), rtol=1e-14)


def test_a_later_call_finds_the_pattern_of_another_branch():
    jacobian = nt.jacobian(lambda x: x * x if x[0].item() > 0.0 else x * x.sum(), sparse=True)
    assert jacobian(x).nnz == 8
    assert jacobian(-x).nnz == 64
    assert jacobian(x).nnz == 8


def test_results_are_the_callers_own():
    jacobian = nt.jacobian(chain, sparse=True)
    first = jacobian(x)
    first.indices[:] = 0
    first.data[:] = 0.0
    assert_same(jacobian(x), nt.jacobian(chain)(x))


def test_scipy_solvers_take_it_as_it_is():
    def residuals(v):
        return nt.concat([10.0 * (v[1:] - v[:-1] ** 2), 1.0 - v[:-1]])

    def value(v):
        return residuals(nt.tensor(v)).numpy()

    found = scipy.optimize.least_squares(value, np.zeros(40), jac=nt.jacobian(residuals, sparse=True))
    np.testing.assert_allclose(found.x, np.ones(40), atol=1e-8)


def test_threads_share_a_jacobian():
    jacobian = nt.jacobian(chain, sparse=True)
    gaps = []

    def work(shift):
        for k in range(20):
            v = np.linspace(shift, shift + 1.0, 5 + k % 3)
            gaps.append(np.abs(jacobian(v).toarray() - nt.jacobian(chain)(v)).max())

    threads = [threading.Thread(target=work, args=(shift,)) for shift in (0.0, 1.0, 2.0)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(gaps) == 60
    assert max(gaps) == 0.0


def test_nan_is_no_missing_entry_and_other_rows_stay_right():
    def function(x):
        return np.log(x[1:]) * x[:-1]

    v = np.array([1.0, 0.0, np.nan, 3.0, 4.0])
    with np.errstate(all="ignore"):
        found = nt.jacobian(function, sparse=True)(v).toarray()
    assert np.isnan(found[1, 1])
    np.testing.assert_allclose(found[3], [0.0, 0.0, 0.0, np.log(4.0), 0.75])


def test_nothing_outside_may_differentiate_through_a_scipy_matrix():
    message = (
        "jacobian: something outside differentiates by what this depends on (a tape, a transform, or a tensor that "
        "requires a gradient), and a SciPy matrix cannot be tracked. Use sparse=False, detach() the tensor, or call it "
        "inside of nt.no_grad()."
    )
    with pytest.raises(LeavesTapeError) as error:
        nt.grad(lambda x: nt.jacobian(chain, sparse=True)(x).sum())(x)
    assert str(error.value) == message
    w = nt.tensor(2.0, requires_grad=True, dtype="float64")
    with pytest.raises(LeavesTapeError) as error:
        nt.jacobian(lambda x: x * w, sparse=True)(x)
    assert str(error.value) == message
    with nt.no_grad():
        assert nt.jacobian(lambda x: x * w, sparse=True)(x).sum() == 16.0


def test_inside_of_a_tape_and_of_transforms_what_depends_on_nothing_tracked_is_a_matrix():
    def weight(scale):
        pattern = nt.sparsity(np.sin, x)
        jacobian = nt.jacobian(np.sin, sparse=True)(x)
        assert (pattern.jacobian(x) != jacobian).nnz == 0
        hessian = nt.hessian(lambda x: np.sin(x).sum(), sparse=True)(x)
        np.testing.assert_array_equal(jacobian.diagonal(), np.cos(x))
        np.testing.assert_allclose(hessian.diagonal(), -np.sin(x))
        return scale * jacobian.sum()

    scale = nt.tensor(2.0, dtype="float64")
    with nt.Tape() as tape:
        y = weight(scale)
    for found in (tape.gradient(y, scale), nt.grad(weight)(2.0), nt.jvp(weight, (2.0,), (1.0,))[1]):
        np.testing.assert_allclose(found, np.cos(x).sum())


def test_patterns_of_what_others_differentiate_by_are_refused_without_a_dense_form_to_offer():
    w = nt.tensor(2.0, requires_grad=True, dtype="float64")
    for name, work in {
        "sparsity": lambda: nt.sparsity(lambda x: x * w, x),
        "Sparsity.jacobian": lambda: nt.sparsity(np.sin, x).jacobian(x * w),
        "Sparsity.hessian": lambda: nt.sparsity(lambda x: np.sin(x).sum(), x).hessian(x * w),
    }.items():
        with pytest.raises(LeavesTapeError) as error:
            work()
        assert str(error.value) == (
            f"{name}: something outside differentiates by what this depends on (a tape, a transform, or a tensor that "
            "requires a gradient), and a SciPy matrix cannot be tracked. Use detach() of the tensor, or call it inside "
            "of nt.no_grad()."
        )


def test_without_scipy_one_line_says_so(monkeypatch):
    def missing():
        raise ImportError("no scipy")

    monkeypatch.setattr(matrices, "_library", missing)
    with pytest.raises(MissingExtraError) as error:
        nt.jacobian(chain, sparse=True)
    assert str(error.value) == "jacobian: sparse matrices need SciPy; pip install numtape[scipy]"


def test_sparse_is_a_bool():
    with pytest.raises(ArgumentError) as error:
        nt.hessian(rosenbrock, sparse="csr")
    assert str(error.value) == "hessian: sparse is 'csr'; it must be a bool."


def test_a_hessian_is_of_a_scalar():
    with pytest.raises(ShapeError) as error:
        nt.hessian(chain, sparse=True)(x)
    assert str(error.value) == (
        "hessian: chain returned shape (7,); a Hessian is of a scalar. Use sum(), or nt.jacobian(nt.jacobian(f)) for "
        "all second derivatives."
    )


def test_an_exception_midway_leaves_nothing_behind():
    def broken(x):
        x * 2.0
        raise KeyError("midway")

    jacobian = nt.jacobian(broken, sparse=True)
    with pytest.raises(KeyError, match="midway"):
        jacobian(x)
    assert_same(nt.jacobian(chain, sparse=True)(x), nt.jacobian(chain)(x))


def test_programs_are_also_hessians_of_bundle_adjustment():
    residuals, cameras, points = programs.bundle(3, 12, 25)

    def cost(c, p):
        return (residuals(c, p) ** 2).sum()

    sparse = nt.hessian(cost, argnums=(0, 1), sparse=True)(cameras, points)
    dense = nt.hessian(cost, argnums=(0, 1))(cameras, points)
    for i in range(2):
        for j in range(2):
            assert_same(sparse[i][j], dense[i][j])
    assert sparse[1][1].nnz <= 12 * 9
