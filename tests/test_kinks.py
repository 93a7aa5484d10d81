"""Derivatives at ties and kinks: one case for each row of docs/kinks.md."""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import numtape as nt
from numtape.core.declare import registry
from numtape.errors import GradientError

DOCUMENT = Path(__file__).parent.parent / "docs" / "kinks.md"
INF, NAN = np.inf, np.nan


@dataclass(frozen=True)
class At:
    """A function at a kink, and the gradients of the sum of its results by each argument."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    gradients: tuple[Any, ...]


@dataclass(frozen=True)
class Raises:
    """A function at a point where its derivative does not exist, and what it says."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    message: str


@dataclass(frozen=True)
class SomeOrder:
    """A function at equal elements, and its gradient up to the order of these elements, which come first."""

    function: Callable[..., Any]
    argument: list[float]
    equal: int
    gradient: list[float]


EYE = [[1.0, 0.0], [0.0, 1.0]]
ZEROS = [[0.0, 0.0], [0.0, 0.0]]
RANK_ONE = [[1.0, 0.0], [0.0, 0.0]]
DEPENDENT = [[1.0, 2.0], [2.0, 4.0]]
NO_QR = "qr: the first 2 columns of a matrix are linearly dependent; there, Q and R have no derivative."


def _vectors_of_equal_singular_values(x):
    u, s, vh = nt.svd(x)
    return u * nt.sqrt(s) @ vh


def _vectors_of_a_zero_singular_value(x):
    u, s, vh = nt.svd(x)
    return u * s @ vh


def _vectors_of_equal_eigenvalues(x):
    w, v = nt.eigh(x)
    return (v * nt.sqrt(w) @ v.T)[0, 1]


def _projector_onto_another_eigenvector(x):
    v = nt.eigh(x).eigenvectors
    return v[:, 2:] @ v[:, 2:].T * WEIGHTS


def _projector_onto_another_singular_vector(x):
    u = nt.svd(x).U
    return u[:, :1] @ u[:, :1].T * WEIGHTS


WEIGHTS = np.array([[1.0, 2.0, 3.0], [2.0, 4.0, 5.0], [3.0, 5.0, 6.0]])


CASES: dict[str, list[At | Raises | SomeOrder]] = {
    # The ops that say where their kinks are.
    "nan_to_num": [At(nt.nan_to_num, ([NAN, INF, -INF, 1.0],), ([0.0, 0.0, 0.0, 1.0],))],
    "maximum": [At(nt.maximum, ([2.0, 1.0], [2.0, 3.0]), ([0.5, 0.0], [0.5, 1.0]))],
    "minimum": [At(nt.minimum, ([2.0, 1.0], [2.0, 3.0]), ([0.5, 1.0], [0.5, 0.0]))],
    "clip": [At(nt.clip, ([-1.0, 0.0, 1.0], -1.0, 1.0), ([1.0, 1.0, 1.0], 0.0, 0.0))],
    "floor": [At(nt.floor, ([-2.0, 0.0, 1.0],), ([0.0, 0.0, 0.0],))],
    "ceil": [At(nt.ceil, ([-2.0, 0.0, 1.0],), ([0.0, 0.0, 0.0],))],
    "trunc": [At(nt.trunc, ([-2.0, 0.0, 1.0],), ([0.0, 0.0, 0.0],))],
    "round": [At(nt.round, ([-1.5, 0.5, 2.5],), ([0.0, 0.0, 0.0],))],
    "rint": [At(nt.rint, ([-1.5, 0.5, 2.5],), ([0.0, 0.0, 0.0],))],
    "floor_divide": [At(nt.floor_divide, ([4.0, -4.0], [2.0, 2.0]), ([0.0, 0.0], [0.0, 0.0]))],
    "remainder": [At(nt.remainder, ([4.0, -4.0], [2.0, 2.0]), ([1.0, 1.0], [-2.0, 2.0]))],
    "fmod": [At(nt.fmod, ([4.0, -4.0], [2.0, 2.0]), ([1.0, 1.0], [-2.0, 2.0]))],
    "cbrt": [At(nt.cbrt, ([0.0],), ([INF],))],
    "hypot": [At(nt.hypot, ([0.0], [0.0]), ([0.0], [0.0]))],
    "sign": [At(nt.sign, ([0.0],), ([0.0],))],
    "abs": [At(nt.abs, ([0.0],), ([0.0],))],
    "relu": [At(nt.relu, ([0.0],), ([0.0],))],
    "relu6": [At(nt.relu6, ([0.0, 6.0],), ([0.0, 0.0],))],
    "leaky_relu": [At(lambda x: nt.leaky_relu(x, 0.25), ([0.0],), ([0.25],))],
    "prelu": [At(nt.prelu, ([0.0], 0.25), ([0.25], 0.0))],
    "hardtanh": [
        At(nt.hardtanh, ([-1.0, 1.0],), ([0.0, 0.0],)),
        At(lambda x: nt.hardtanh(x, -2.0, 3.0), ([-2.0, 3.0],), ([0.0, 0.0],)),
    ],
    "hardsigmoid": [At(nt.hardsigmoid, ([-3.0, 3.0],), ([0.0, 0.0],))],
    "hardswish": [At(nt.hardswish, ([-3.0, 3.0],), ([0.0, 1.0],))],
    "softshrink": [At(lambda x: nt.softshrink(x, 0.5), ([-0.5, 0.5],), ([0.0, 0.0],))],
    "hardshrink": [At(lambda x: nt.hardshrink(x, 0.5), ([-0.5, 0.5],), ([0.0, 0.0],))],
    "threshold": [At(lambda x: nt.threshold(x, 1.0, 5.0), ([1.0],), ([0.0],))],
    "atan2": [At(nt.atan2, ([0.0, 0.0, -0.0], [0.0, -1.0, -1.0]), ([0.0, -1.0, -1.0], [0.0, 0.0, 0.0]))],
    "elu": [At(lambda x: nt.elu(x, 2.0), ([0.0],), ([2.0],))],
    "selu": [At(nt.selu, ([0.0],), ([1.0507009873554805 * 1.6732632423543772],))],
    "max": [
        At(nt.max, ([1.0, 3.0, 3.0],), ([0.0, 0.5, 0.5],)),
        At(lambda x: nt.max(x, axis=1), ([[1.0, 1.0], [2.0, 1.0]],), ([[0.5, 0.5], [1.0, 0.0]],)),
    ],
    "min": [At(nt.min, ([1.0, 1.0, 3.0],), ([0.5, 0.5, 0.0],))],
    "hinge_loss": [At(nt.hinge_loss, ([1.0, -1.0], [1.0, -1.0]), ([0.0, 0.0], [0.0, 0.0]))],
    "cross_entropy_loss": [
        At(
            lambda p: nt.cross_entropy_loss(p, np.array([0]), from_logits=False, reduction="sum"),
            ([[0.0, 1.0]],),
            ([[0.0, 0.0]],),
        )
    ],
    "tall_qr": [Raises(lambda x: registry["tall_qr"].face(x)[1], (DEPENDENT,), NO_QR)],
    "qr": [Raises(lambda x: nt.qr(x)[1], (DEPENDENT,), NO_QR)],
    "gaussian_nll_loss": [
        At(
            lambda mean, target, var: nt.gaussian_nll_loss(mean, target, var, eps=0.5),
            ([1.0], [0.0], [0.5]),
            ([2.0], [-2.0], [-1.0]),
        )
    ],
    "cosine_embedding_loss": [
        At(
            lambda a, b: nt.cosine_embedding_loss(a, b, np.array([-1]), margin=0.0),
            ([[1.0, 0.0]], [[0.0, 1.0]]),
            ([[0.0, 0.0]], [[0.0, 0.0]]),
        )
    ],
    "triplet_loss": [
        At(
            lambda a, b, c: nt.triplet_loss(a, b, c, margin=0.0),
            ([[0.0, 0.0]], [[1.0, 0.0]], [[1.0, 0.0]]),
            ([[0.0, 0.0]], [[0.0, 0.0]], [[0.0, 0.0]]),
        )
    ],
    "vector_norm": [
        At(nt.vector_norm, ([0.0, 0.0],), ([0.0, 0.0],)),
        At(lambda x: nt.vector_norm(x, 1), ([0.0, -2.0],), ([0.0, -1.0],)),
        At(lambda x: nt.vector_norm(x, 3), ([0.0, 0.0],), ([0.0, 0.0],)),
        At(lambda x: nt.vector_norm(x, INF), ([-2.0, 2.0, 1.0],), ([-0.5, 0.5, 0.0],)),
    ],
    "norm": [At(nt.norm, ([0.0, 0.0],), ([0.0, 0.0],)), At(nt.norm, (ZEROS,), (ZEROS,))],
    "svd": [
        At(
            _projector_onto_another_singular_vector,
            (np.diag([3.0, 1.0, 1.0]).tolist(),),
            ([[0.0, 0.5, 0.75], [1.5, 0.0, 0.0], [2.25, 0.0, 0.0]],),
        ),
        At(lambda x: nt.svd(x).S, (EYE,), (EYE,)),
        Raises(
            _vectors_of_equal_singular_values,
            (EYE,),
            "svd: singular values 0 and 1 are equal, so the derivative of their vectors does not exist; differentiate "
            "a function of the values (svdvals), or break the tie.",
        ),
        Raises(
            _vectors_of_a_zero_singular_value,
            ([*RANK_ONE, [0.0, 0.0]],),
            "svd: singular value 1 is zero and the matrix is not square, so the derivative of its vectors does not "
            "exist; differentiate a function of the values (svdvals), or of the vectors of the other values.",
        ),
    ],
    "svdvals": [At(nt.svdvals, (EYE,), (EYE,))],
    "eigh": [
        At(
            _projector_onto_another_eigenvector,
            (np.diag([1.0, 1.0, 3.0]).tolist(),),
            ([[0.0, 0.0, 1.5], [0.0, 0.0, 2.5], [1.5, 2.5, 0.0]],),
        ),
        At(lambda x: nt.eigh(x).eigenvalues, (EYE,), (EYE,)),
        Raises(
            _vectors_of_equal_eigenvalues,
            (EYE,),
            "eigh: eigenvalues 0 and 1 are equal, so the derivative of their vectors does not exist; differentiate a "
            "function of the values (eigvalsh), or break the tie.",
        ),
    ],
    "eigvalsh": [At(nt.eigvalsh, (EYE,), (EYE,))],
    "slogdet": [
        Raises(
            lambda x: nt.slogdet(x)[1],
            (RANK_ONE,),
            "slogdet: x has shape (2, 2) and is singular, where the logarithm of the determinant is -inf and has no "
            "derivative.",
        )
    ],
    "pinv": [At(nt.pinv, (RANK_ONE,), ([[-1.0, 1.0], [1.0, 0.0]],))],
    "matrix_norm": [
        At(nt.matrix_norm, (ZEROS,), (ZEROS,)),
        At(lambda x: nt.matrix_norm(x, "nuc"), (EYE,), (EYE,)),
        At(lambda x: nt.matrix_norm(x, 1), (EYE,), ([[0.5, 0.0], [0.0, 0.5]],)),
        At(lambda x: nt.matrix_norm(x, INF), (EYE,), ([[0.5, 0.0], [0.0, 0.5]],)),
    ],
    "l1_loss": [At(nt.l1_loss, ([1.0], [1.0]), ([0.0], [0.0]))],
    "max_pool": [
        At(
            lambda x: nt.max_pool(x, kernel=(2,), stride=(2,), padding=((0, 0),), dilation=(1,)),
            ([[[3.0, 3.0, 1.0, 1.0]]],),
            ([[[1.0, 0.0, 1.0, 0.0]]],),
        )
    ],
    "max_pool1d": [At(lambda x: nt.max_pool1d(x, 2), ([[[3.0, 3.0, 1.0, 1.0]]],), ([[[1.0, 0.0, 1.0, 0.0]]],))],
    "max_pool2d": [At(lambda x: nt.max_pool2d(x, 2), ([[[[1.0, 1.0], [1.0, 1.0]]]],), ([[[[1.0, 0.0], [0.0, 0.0]]]],))],
    "sort": [SomeOrder(lambda x: nt.sort(x) * np.array([4.0, 1.0, 2.0]), [3.0, 3.0, 1.0], 2, [1.0, 2.0, 4.0])],
    "topk": [SomeOrder(lambda x: nt.topk(x, 1)[0], [3.0, 3.0, 1.0], 2, [0.0, 1.0, 0.0])],
    "ranked": [SomeOrder(lambda x: nt.ranked(x, (2,))[0], [3.0, 3.0, 1.0], 2, [0.0, 1.0, 0.0])],
    "quantile": [SomeOrder(lambda x: nt.quantile(x, 0.5), [3.0, 3.0, 3.0, 1.0], 3, [0.0, 0.5, 0.5, 0.0])],
    "percentile": [SomeOrder(lambda x: nt.percentile(x, 50), [3.0, 3.0, 1.0], 2, [0.0, 1.0, 0.0])],
    "median": [SomeOrder(nt.median, [3.0, 3.0, 1.0], 2, [0.0, 1.0, 0.0])],
    "interp": [
        At(
            lambda x, fp: nt.interp(x, np.array([0.0, 1.0, 2.0]), fp),
            ([0.0, 1.0, 2.0], [0.0, 1.0, 3.0]),
            ([1.0, 2.0, 2.0], [1.0, 1.0, 1.0]),
        )
    ],
    "std": [At(nt.std, ([2.0, 2.0],), ([0.0, 0.0],))],
    "unique": [At(nt.unique, ([3.0, 1.0, 3.0],), ([1.0, 1.0, 0.0],))],
    # Edges of ops that are smooth elsewhere.
    "sqrt": [At(nt.sqrt, ([0.0],), ([INF],))],
    "rsqrt": [At(nt.rsqrt, ([0.0],), ([-INF],))],
    "log": [At(nt.log, ([0.0],), ([INF],))],
    "pow": [At(nt.pow, ([0.0, 0.0, 0.0], [2.0, 1.0, 0.0]), ([0.0, 1.0, 0.0], [0.0, 0.0, 0.0]))],
    "xlogy": [At(nt.xlogy, ([0.0, 0.0], [0.0, 1.0]), ([0.0, 0.0], [0.0, 0.0]))],
    "kl_div_loss": [At(lambda p, t: nt.kl_div_loss(p, t, "sum"), ([-1.0], [0.0]), ([0.0], [1.0]))],
    "sinc": [At(nt.sinc, ([0.0],), ([0.0],))],
    "softplus": [At(nt.softplus, ([0.0, 1000.0, -1000.0],), ([0.5, 1.0, 0.0],))],
    "logaddexp": [At(nt.logaddexp, ([-INF], [-INF]), ([0.0], [0.0]))],
    "logsumexp": [At(nt.logsumexp, ([-INF, -INF],), ([0.0, 0.0],))],
    "prod": [
        At(nt.prod, ([0.0, 2.0, 3.0],), ([6.0, 0.0, 0.0],)),
        At(nt.prod, ([0.0, 0.0, 3.0],), ([0.0, 0.0, 0.0],)),
    ],
    "cumprod": [At(nt.cumprod, ([0.0, 2.0, 3.0],), ([9.0, 0.0, 0.0],))],
    "det": [
        At(nt.det, (DEPENDENT,), ([[4.0, -2.0], [-2.0, 1.0]],)),
        At(nt.det, (ZEROS,), (ZEROS,)),
        At(nt.det, (np.zeros((3, 3)).tolist(),), (np.zeros((3, 3)).tolist(),)),
    ],
    "where": [
        At(
            lambda a, b: nt.where(np.array([True, False]), a, b),
            ([1.0, INF], [NAN, 2.0]),
            ([1.0, 0.0], [0.0, 1.0]),
        )
    ],
    "var": [At(nt.var, ([2.0, 2.0],), ([0.0, 0.0],))],
    "nansum": [At(nt.nansum, ([NAN, 1.0],), ([0.0, 1.0],))],
    "nanmean": [At(nt.nanmean, ([NAN, 1.0],), ([0.0, 1.0],))],
    "celu": [At(lambda x: nt.celu(x, 2.0), ([0.0],), ([1.0],))],
    "huber_loss": [At(nt.huber_loss, ([1.0], [0.0]), ([1.0], [-1.0]))],
    "smooth_l1_loss": [At(nt.smooth_l1_loss, ([1.0], [0.0]), ([1.0], [-1.0]))],
    "bce_loss": [At(nt.bce_loss, ([0.0], [1.0]), ([-1e12], [100.0]))],
}


def gradients(function, arguments):
    arrays = [np.array(argument) for argument in arguments]
    total = nt.grad(lambda *operands: function(*operands).sum(), argnums=tuple(range(len(arrays))))
    with np.errstate(all="ignore"):
        return total(*arrays)


@pytest.mark.parametrize("name", CASES)
def test_the_derivative_at_a_kink_is_the_documented_one(name):
    for case in CASES[name]:
        if isinstance(case, Raises):
            with pytest.raises(GradientError, match=f"^{re.escape(case.message)}$"):
                gradients(case.function, case.arguments)
        elif isinstance(case, SomeOrder):
            (actual,) = gradients(case.function, (case.argument,))
            assert sorted(actual[: case.equal]) == case.gradient[: case.equal]
            assert actual[case.equal :].tolist() == case.gradient[case.equal :]
        else:
            for actual, expected in zip(gradients(case.function, case.arguments), case.gradients, strict=True):
                np.testing.assert_allclose(actual, expected, rtol=1e-14, atol=1e-14)


def test_nan_in_the_branch_not_taken_comes_from_the_rule_further_up_and_a_double_where_repairs_it():
    x = np.array([0.0, 1.0])
    with np.errstate(all="ignore"):
        spoiled = nt.grad(lambda x: nt.where(x > 0, nt.log(x), 0.0).sum())(x)
        repaired = nt.grad(lambda x: nt.where(x > 0, nt.log(nt.where(x > 0, x, 1.0)), 0.0).sum())(x)
    np.testing.assert_array_equal(spoiled, [NAN, 1.0])
    np.testing.assert_array_equal(repaired, [0.0, 1.0])


def rows():
    found = re.findall(r"^\| `(\w+)` \| (.*) \|$", DOCUMENT.read_text(encoding="utf-8"), re.MULTILINE)
    assert len(dict(found)) == len(found), "a function has two rows"
    return dict(found)


def test_every_row_of_the_table_has_a_case_and_every_case_a_row():
    assert sorted(rows()) == sorted(CASES)


def test_the_table_says_what_the_ops_say():
    said = {name: entry.facts.kinks for name, entry in registry.items() if entry.facts.kinks}
    assert {name: text for name, text in rows().items() if name in said} == said


def test_second_derivatives_of_a_distance_at_the_origin_are_taken_as_0():
    assert nt.hessian(lambda v: nt.hypot(v[0], v[1]))(np.zeros(2)).tolist() == [[0.0, 0.0], [0.0, 0.0]]
    assert nt.grad(nt.grad(lambda x: nt.hypot(x, 2.0 * x)))(0.0) == 0.0


@pytest.mark.parametrize(
    "function", [np.median, nt.median, lambda x: nt.quantile(x, 0.3), lambda x: np.percentile(x, 90)]
)
def test_the_gradient_of_a_median_of_nan_is_nan_at_it(function):
    x = np.array([1.0, NAN, 3.0, INF])
    assert math.isnan(function(nt.tensor(x)).item())
    gradient = nt.grad(function)(x)
    np.testing.assert_array_equal(np.isnan(gradient), np.isnan(x))
    assert math.isnan(nt.jvp(function, x, np.ones(4))[1])
    # Lanes without one are as ever.
    rows = nt.grad(lambda x: nt.median(x, axis=1).sum())(np.array([[1.0, NAN, 3.0], [1.0, INF, 3.0], [2.0, 0.0, 1.0]]))
    np.testing.assert_array_equal(rows, [[0.0, NAN, 0.0], [0.0, 0.0, 1.0], [0.0, 0.0, 1.0]])


@pytest.mark.parametrize(
    "function",
    [
        *(nt.relu, nt.relu6, nt.leaky_relu, nt.hardtanh, nt.hardsigmoid, nt.hardswish, nt.hardshrink, nt.softshrink),
        *(nt.elu, nt.selu, nt.celu, lambda x: nt.threshold(x, 0.1, 5.0), lambda x: nt.clip(x, -1.0, 1.0)),
    ],
)
def test_nothing_hides_a_nan(function):
    assert np.isnan(function(nt.tensor(np.nan)).item())
    assert nt.grad(function)(np.nan) != 0.0
