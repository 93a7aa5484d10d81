"""Per-sample gradients, Fisher information and Laplace's approximation: against loops and closed forms."""

import threading
from unittest import mock

import numpy as np
import pytest

import numtape as nt
from numtape import uncertainty
from numtape.errors import (
    ArgumentError,
    GradientError,
    LinearAlgebraError,
    MissingExtraError,
    OperandError,
    ShapeError,
)
from numtape.uncertainty import fisher_information, laplace, per_sample_gradients

RNG = np.random.default_rng(0)
GENERATOR = nt.Generator(5)
NETWORK = {"a": RNG.normal(size=(5, 4)), "b": RNG.normal(size=5), "c": RNG.normal(size=(3, 5))}
INPUTS = RNG.normal(size=(7, 4))
LABELS = RNG.integers(0, 3, 7)
IMAGES = RNG.normal(size=(6, 1, 8, 8))


def raises(error, message, call):
    with pytest.raises(error) as caught:
        call()
    assert str(caught.value) == message


def logits(p, x):
    return p["c"] @ nt.tanh(p["a"] @ x + p["b"])


def looks_at_numbers(p, x):
    total = (p["a"] @ x).sum()
    return total * total if total > 0 else total


FUNCTIONS = {
    "a network with cross-entropy": (
        lambda p, x, y: nt.cross_entropy_loss(logits(p, x)[None], y[None]),
        NETWORK,
        (INPUTS, LABELS),
    ),
    "a label as an index": (lambda p, x, y: nt.logsumexp(logits(p, x)) - logits(p, x)[y], NETWORK, (INPUTS, LABELS)),
    "softmax": (lambda p, x: (nt.softmax(logits(p, x)) ** 2).sum(), NETWORK, (INPUTS,)),
    "a convolution": (
        lambda p, x: nt.max_pool2d(nt.relu(nt.conv2d(x[None], p["k"])), 2).mean(),
        {"k": RNG.normal(size=(2, 1, 3, 3))},
        (IMAGES,),
    ),
    "a loop": (
        lambda w, x: sum((w * part).sin().sum() for part in x),
        RNG.normal(size=3),
        (RNG.normal(size=(4, 2, 3)),),
    ),
    "a branch on numbers": (looks_at_numbers, NETWORK, (INPUTS,)),
    "a solve": (
        lambda w, x: nt.solve(w @ w.T + np.eye(2), x).sum(),
        RNG.normal(size=(2, 2)),
        (RNG.normal(size=(5, 2)),),
    ),
    "a number as parameter": (lambda k, x: (k * x).exp().sum(), 0.5, (RNG.normal(size=(4, 2)),)),
    "samples as a tree": (
        lambda w, s: (w * s["x"]).sum() * s["y"],
        np.ones(2),
        ({"x": RNG.normal(size=(4, 2)), "y": np.arange(4.0)},),
    ),
    "a loss of the parameters alone": (lambda w, x: (w**2).sum(), np.ones(2), (np.zeros((3, 1)),)),
    "one sample": (lambda w, x: (w * x).sum(), np.ones(2), (np.ones((1, 2)),)),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_per_sample_gradients_equal_a_loop(name):
    function, parameters, samples = FUNCTIONS[name]
    found = nt.tree.leaves(per_sample_gradients(function, parameters, *samples))
    count = len(nt.tree.leaves(samples)[0])
    rows = [
        nt.tree.leaves(nt.grad(function)(parameters, *nt.tree.map(lambda x, i=i: x[i], samples))) for i in range(count)
    ]
    for number, gradients in enumerate(found):
        np.testing.assert_allclose(gradients, np.stack([row[number] for row in rows]), rtol=1e-12, atol=1e-14)


def test_the_function_runs_once_for_all_samples():
    calls = []

    def loss(w, x):
        calls.append(1)
        return ((w * x) ** 2).sum()

    per_sample_gradients(loss, np.ones(3), np.ones((50, 3)))
    assert len(calls) == 1


def test_tensors_and_modules_as_parameters():
    model = nt.nn.Linear(4, 1)
    x = INPUTS.astype(np.float32)
    found = per_sample_gradients(lambda m, x: m(x).sum(), model, x)
    weight, bias = nt.tree.leaves(found)
    assert isinstance(weight, nt.Tensor)
    np.testing.assert_allclose(weight.detach().numpy()[:, 0], x, rtol=1e-6)
    np.testing.assert_allclose(bias.detach().numpy(), np.ones((7, 1)))


def test_per_sample_gradients_can_be_differentiated():
    def spread(w):
        gradients = per_sample_gradients(lambda w, x: (w * x).sum() ** 2, w, INPUTS)
        return (gradients**2).sum()

    w = RNG.normal(size=4)
    expected = sum((4.0 * (x @ w) ** 2 * (x @ x)) for x in INPUTS)
    assert spread(nt.tensor(w)).item() == pytest.approx(expected, rel=1e-12)
    slope = sum(8.0 * (x @ w) * (x @ x) * x for x in INPUTS)
    np.testing.assert_allclose(nt.grad(spread)(w), slope, rtol=1e-12)


def test_no_samples_give_no_gradients():
    assert per_sample_gradients(lambda w, x: (w * x).sum(), np.ones(2), np.ones((0, 2))).shape == (0, 2)


def test_samples_that_do_not_go_together_are_refused():
    name = "per_sample_gradients"
    raises(
        ShapeError,
        f"{name}: the samples have shapes (3, 2), (2,); their first axes must be of one length.",
        lambda: per_sample_gradients(lambda w, x, y: w, 1.0, np.ones((3, 2)), np.ones(2)),
    )
    raises(
        OperandError,
        f"{name}: there are no samples; give arrays, of which each sample has one part.",
        lambda: per_sample_gradients(lambda w: w, 1.0),
    )
    raises(OperandError, f"{name}: wants a function, not int.", lambda: per_sample_gradients(1, 1.0, np.ones(2)))


def test_a_loss_that_is_no_scalar_is_refused():
    def doubled(w, x):
        return w * x

    with pytest.raises(ShapeError, match=r"^per_sample_gradients: doubled returned shape \(2,\); a gradient is of a"):
        per_sample_gradients(doubled, np.ones(2), np.ones((3, 2)))


def test_an_error_of_the_function_is_raised_as_it_is():
    def wrong(w, x):
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        per_sample_gradients(wrong, np.ones(2), np.ones((3, 2)))


# Fisher information.


def test_information_of_a_linear_model_is_the_normal_matrix():
    design = RNG.normal(size=(20, 3))
    deviations = np.linspace(0.5, 2.0, 20)
    covariance = np.diag(deviations**2) + 0.1
    model = lambda p: design @ p["b"]  # noqa: E731
    start = {"b": np.ones(3)}
    for noise, weights in (
        (0.5, np.eye(20) * 4.0),
        (deviations, np.diag(deviations**-2.0)),
        (covariance, np.linalg.inv(covariance)),
    ):
        found = fisher_information(model, start, noise=noise)
        np.testing.assert_allclose(found, design.T @ weights @ design, rtol=1e-12)


def test_empirical_information_is_the_sum_of_outer_products():
    data = 1.5 + 2.0 * RNG.normal(size=3000)

    def log_likelihood(p, x):
        return -0.5 * ((x - p["mean"]) / nt.exp(p["log_scale"])) ** 2 - p["log_scale"]

    found = fisher_information(log_likelihood, {"mean": 1.5, "log_scale": np.log(2.0)}, data)
    z = (data - 1.5) / 2.0
    gradients = np.stack([z / 2.0, z**2 - 1.0], axis=1)
    np.testing.assert_allclose(found, gradients.T @ gradients, rtol=1e-11)
    # What it tends to: n / scale**2 and 2 n.
    np.testing.assert_allclose(np.diagonal(found), [3000 / 4.0, 6000.0], rtol=0.1)


def test_information_takes_several_arrays_of_data():
    x, y = RNG.normal(size=(10, 2)), RNG.normal(size=10)
    found = fisher_information(lambda w, x, y: -0.5 * (y - x @ w) ** 2, np.zeros(2), (x, y))
    gradients = y[:, None] * x
    np.testing.assert_allclose(found, gradients.T @ gradients, rtol=1e-12)


def test_information_says_what_it_needs():
    name = "fisher_information"
    raises(
        ArgumentError,
        f"{name}: give either data, for a log-likelihood of one sample, or noise, for a model with Gaussian noise.",
        lambda: fisher_information(lambda p: p, np.ones(2)),
    )
    raises(
        ShapeError,
        f"{name}: noise has shape (3,) for 2 predictions; it must be a number, a standard deviation for each, or their "
        "covariance of shape (2, 2).",
        lambda: fisher_information(lambda p: p * 2.0, np.ones(2), noise=np.ones(3)),
    )
    raises(
        ArgumentError,
        f"{name}: noise has an element that is not positive; standard deviations are.",
        lambda: fisher_information(lambda p: p * 2.0, np.ones(2), noise=0.0),
    )
    raises(
        LinearAlgebraError,
        f"{name}: noise is a matrix, but not a positive definite one.",
        lambda: fisher_information(lambda p: p * 2.0, np.ones(2), noise=-np.eye(2)),
    )


# Laplace's approximation.


def test_laplace_is_exact_for_a_gaussian():
    factor = RNG.normal(size=(3, 3))
    precision = factor @ factor.T + np.eye(3)
    center = np.array([1.0, -2.0, 30.0])

    def log_density(x):
        return 5.0 - 0.5 * (x - center) @ (precision @ (x - center))

    found = laplace(log_density, np.zeros(3))
    np.testing.assert_allclose(found.mode, center, rtol=1e-12)
    np.testing.assert_allclose(found.covariance, np.linalg.inv(precision), rtol=1e-12)
    np.testing.assert_allclose(found.errors, np.sqrt(np.diagonal(np.linalg.inv(precision))), rtol=1e-12)
    log_integral = 5.0 + 1.5 * np.log(2.0 * np.pi) - 0.5 * np.linalg.slogdet(precision).logabsdet
    assert found.log_evidence == pytest.approx(log_integral, rel=1e-12)
    assert found.log_density == pytest.approx(5.0, rel=1e-12)


def test_the_evidence_of_a_linear_regression_is_that_of_its_marginal_gaussian():
    design, y = RNG.normal(size=(12, 2)), RNG.normal(size=12)
    noise, prior = 0.5, 2.0

    def joint(p):
        misfit, size = (y - design @ p["w"]) / noise, p["w"] / prior
        constants = 12 * np.log(noise) + 2 * np.log(prior) + 7 * np.log(2.0 * np.pi)
        return -0.5 * (misfit**2).sum() - 0.5 * (size**2).sum() - constants

    found = laplace(joint, {"w": np.zeros(2)})
    marginal = noise**2 * np.eye(12) + prior**2 * design @ design.T
    expected = -0.5 * (y @ np.linalg.solve(marginal, y) + np.linalg.slogdet(2.0 * np.pi * marginal).logabsdet)
    assert found.log_evidence == pytest.approx(expected, rel=1e-12)
    assert found.names == ["w[0]", "w[1]"]


def test_laplace_finds_the_mode_of_a_logistic_regression():
    x = RNG.normal(size=(40, 2))
    y = (x @ np.array([1.0, -1.0]) + 0.3 * RNG.normal(size=40) > 0).astype(float)

    def posterior(w):
        z = x @ w
        return (y * z - nt.softplus(z)).sum() - 0.5 * (w**2).sum()

    found = laplace(posterior, np.zeros(2))
    assert np.max(np.abs(nt.grad(posterior)(found.mode))) < 1e-10
    np.testing.assert_allclose(np.linalg.inv(found.covariance), -nt.hessian(posterior)(found.mode), rtol=1e-9)


@pytest.mark.parametrize("deviations_away", [0.0, 10.0, 1e3, 1e6])
@pytest.mark.parametrize("scales", [[1e4, 1e-6], [1e-150, 1e150], [1.0, 1.0]])
def test_laplace_is_exact_whatever_the_units(scales, deviations_away):
    scale = np.array(scales)
    center = 100.0 * scale

    def log_density(x):
        z = (x - center) / scale
        return -0.5 * (z**2).sum() + 0.25 * z[0] * z[1]

    found = laplace(log_density, center + deviations_away * scale * np.array([-1.0, 0.5]))
    covariance = np.linalg.inv([[1.0, -0.25], [-0.25, 1.0]])
    np.testing.assert_allclose(found.mode / scale, [100.0, 100.0], rtol=1e-12)
    np.testing.assert_allclose(found.covariance / scale / scale[:, None], covariance, rtol=1e-12)


@pytest.mark.parametrize("rate", [1e-6, 1.0, 1e6])
@pytest.mark.parametrize("start", [1e-3, 1.0, 1e3])
def test_laplace_finds_the_mode_of_a_gamma_density_from_afar(rate, start):
    found = laplace(lambda x: 3.0 * nt.log(x) - rate * x, start)
    assert found.mode == pytest.approx(3.0 / rate, rel=1e-9)
    assert found.errors == pytest.approx(np.sqrt(3.0) / rate, rel=1e-9)


def test_laplace_says_that_a_straight_density_has_no_mode():
    with pytest.raises(GradientError, match=r"^laplace: <lambda> has no maximum along x\[0\], x\[1\] where"):
        laplace(lambda x: 1e-3 * (x[0] + x[1]) - 0.1 * (x[0] - x[1]) ** 2, np.zeros(2))


def test_samples_of_the_approximation_are_trees_and_have_its_covariance():
    found = laplace(lambda p: -0.5 * (p["a"] - 1.0) ** 2 - 2.0 * (p["b"] ** 2).sum(), {"a": 0.0, "b": np.zeros(2)})
    draws = found.sample(4000, rng=1)
    assert draws[0]["b"].shape == (2,)
    assert draws[0]["a"] == found.sample(1, rng=1)[0]["a"] or len(draws) == 4000
    assert np.mean([draw["a"] for draw in draws]) == pytest.approx(1.0, abs=0.05)
    assert np.std([draw["b"][1] for draw in draws]) == pytest.approx(0.5, rel=0.05)
    assert str(found).splitlines()[-1].startswith("log evidence ")


@pytest.mark.parametrize(
    ("log_density", "names"),
    [
        (lambda x: -(x[0] ** 2) - x[2] ** 2, "x[1]"),
        (lambda x: -((x[0] + x[1]) ** 2) - x[2] ** 2, "x[0], x[1]"),
    ],
)
def test_a_flat_direction_is_named(log_density, names):
    def density(x):
        return log_density(x)

    raises(
        GradientError,
        f"laplace: density has no maximum along {names} where the search ended, so there is no Gaussian in its place; "
        "add a prior, fix a parameter, or start elsewhere.",
        lambda: laplace(density, np.ones(3)),
    )


def test_a_maximum_that_is_no_gaussians_is_refused():
    def quartic(x):
        return -(x**4).sum()

    raises(
        GradientError,
        "laplace: no mode of quartic was found from x0, around which it falls as a Gaussian does; start nearer to it, "
        "or check that there is one.",
        lambda: laplace(quartic, np.ones(3)),
    )


def test_without_scipy_laplace_says_what_to_install():
    with mock.patch.dict("sys.modules", {"scipy": None, "scipy.optimize": None}):
        raises(
            MissingExtraError,
            "laplace: needs SciPy; pip install numtape[scipy]",
            lambda: laplace(lambda x: -(x**2).sum(), np.ones(2)),
        )


def test_two_threads_at_once():
    found = {}

    def work(seed):
        x = np.random.default_rng(seed).normal(size=(20, 3))
        found[seed] = (
            per_sample_gradients(lambda w, x: (w * x).sum() ** 2, np.ones(3), x),
            2.0 * x.sum(1)[:, None] * x,
        )

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    for gradients, expected in found.values():
        np.testing.assert_allclose(gradients, expected, rtol=1e-12)


def test_the_package_lists_its_functions():
    assert {"propagate", "sensitivities", "fisher_information", "laplace", "per_sample_gradients"} <= set(
        dir(uncertainty)
    )


def test_samples_without_rng_are_drawn_from_the_streams_of_threads_and_scopes():
    found = laplace(lambda x: -0.5 * ((x - 3.0) / 2.0) ** 2, 0.0)
    drawn = []
    for _ in range(2):
        nt.seed(0)
        drawn.append((found.sample(3), found.sample(3)))
    assert drawn[0] == drawn[1]
    assert drawn[0][0] != drawn[0][1]
    inside = []
    for _ in range(2):
        with nt.deterministic(global_seed=0):
            inside.append(found.sample(3))
    assert inside[0] == inside[1]


def test_a_generator_draws_the_same_trees_again():
    found = laplace(lambda x: -0.5 * ((x - 3.0) / 2.0) ** 2, 0.0)
    first, second = (found.sample(4000, rng=nt.Generator(1)) for _ in range(2))
    assert first == second
    assert abs(np.mean(first) - 3.0) < 0.15
    assert abs(np.std(first) - 2.0) < 0.1


def test_a_kink_is_no_mode_of_a_gaussian():
    with pytest.raises(GradientError) as error:
        laplace(lambda x: -nt.abs(x).sum(), np.ones(2))
    assert str(error.value) == (
        "laplace: no mode of <lambda> was found from x0, around which it falls as a Gaussian does; start nearer to it, "
        "or check that there is one."
    )


def test_an_error_of_the_density_itself_passes():
    def density(x):
        if x[0].item() < 0.5:
            raise ValueError("too small")
        return -((x - 0.1) ** 2).sum()

    with pytest.raises(ValueError, match=r"^too small$"):
        laplace(lambda x: density(nt.detach(x)) * 0.0 - (x**2).sum(), np.ones(1))


@pytest.mark.parametrize(
    "noise", [lambda: nt.randn(4), lambda: nt.rand(4, rng=GENERATOR), lambda: nt.dropout(nt.ones(4), 0.5)]
)
def test_random_numbers_are_drawn_for_each_sample(noise):
    def loss(w, x):
        return (w * x * noise().astype("float64")).sum()

    w, x = np.ones(4), np.ones((6, 4))
    nt.seed(0)
    place = GENERATOR.place()
    found = per_sample_gradients(loss, w, x)
    after = nt.randn(2).numpy()
    nt.seed(0)
    GENERATOR.go_to(place)
    expected = [nt.grad(loss)(w, row) for row in x]
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(after, nt.randn(2).numpy())
    assert len(np.unique(found, axis=0)) > 2


def test_the_information_of_random_losses_has_a_draw_for_each_sample():
    nt.seed(0)
    found = fisher_information(lambda p, x: (p * x * nt.randn(2).astype("float64")).sum(), np.ones(2), np.ones((50, 2)))
    assert np.linalg.matrix_rank(found) == 2


def test_a_list_of_samples_is_told_to_be_a_tree():
    raises(
        ShapeError,
        "per_sample_gradients: the samples have shapes (), (); their first axes must be of one length. A list is a "
        "tree of samples here: make it an array by np.array.",
        lambda: per_sample_gradients(lambda a, x: a * x, 2.0, [1.0, 2.0]),
    )


COUNTS = np.array([2, 3, 5])
OF_INTEGERS = {
    "a root by np": (lambda w, n: w * np.sqrt(n), np.sqrt(COUNTS)),
    "a root by nt": (lambda w, n: w * nt.sqrt(n), np.sqrt(COUNTS)),
    "a quotient": (lambda w, n: w * (n / 3), COUNTS / 3),
    "a power": (lambda w, n: w * n**-0.5, COUNTS**-0.5),
    "a number": (lambda w, n: w * (n * 0.1), COUNTS * 0.1),
    "a choice": (lambda w, n: w * nt.where(n > 2, n, 0.1), np.array([0.1, 3.0, 5.0])),
    "an exponent": (lambda w, n: nt.exp(w * np.log(n)), COUNTS**1.7 * np.log(COUNTS)),
}


@pytest.mark.parametrize("name", OF_INTEGERS)
def test_integers_of_samples_become_float64_as_in_numpy(name):
    function, expected = OF_INTEGERS[name]
    found = per_sample_gradients(function, 1.7, COUNTS)
    one_by_one = per_sample_gradients(lambda w, n: function(w, n) if int(n) else w, 1.7, COUNTS)
    assert found.dtype == one_by_one.dtype == np.float64
    np.testing.assert_allclose(found, expected, rtol=1e-15)
    np.testing.assert_allclose(one_by_one, expected, rtol=1e-15)
    information = fisher_information(function, 1.7, COUNTS)
    np.testing.assert_allclose(information, [[expected @ expected]], rtol=1e-14)


@pytest.mark.parametrize("pick", [lambda w, y: w[y], lambda w, y: nt.take(w, y), lambda w, y: w @ nt.one_hot(y, 3)])
def test_labels_stay_integers_where_they_index(pick):
    weights = RNG.normal(size=(3, 4))
    found = per_sample_gradients(lambda w, x, y: pick(w @ x, y) / (y + 1), weights, INPUTS, LABELS)
    expected = np.eye(3)[LABELS][:, :, None] * INPUTS[:, None, :] / (LABELS + 1)[:, None, None]
    np.testing.assert_allclose(found, expected, rtol=1e-15)


@pytest.mark.parametrize("parameters", [[1.0, 2.0], (1, 2), np.array([1.0, 2.0])])
def test_a_list_of_parameters_is_an_array(parameters):
    x = np.array([[3.0, 4.0], [5.0, 6.0]])
    found = per_sample_gradients(lambda w, x: (w * w * x).sum(), parameters, x)
    np.testing.assert_array_equal(found, 2.0 * np.array([1.0, 2.0]) * x)
    found = per_sample_gradients(lambda w, x: (w * w * x).sum() if x[0] > 0 else w, parameters, x)
    np.testing.assert_array_equal(found, 2.0 * np.array([1.0, 2.0]) * x)
