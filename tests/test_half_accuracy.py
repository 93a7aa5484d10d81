"""What half inputs give: finite and right to the last places at the edge of float16; sums correctly rounded."""

import math
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest

import numtape as nt

HALVES = [np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16)]
LARGEST = 65504.0


def ulp_of(x, dtype):
    """Return the distance between neighbouring numbers of a dtype around float64 numbers."""
    info = ml_dtypes.finfo(dtype)
    exponent = np.floor(np.log2(np.maximum(np.abs(x), float(info.smallest_normal))))
    return 2.0 ** (exponent - info.nmant)


def assert_within_ulps(found, expected, ulps):
    """Assert that a half array is finite and within so many units of the last place of float64 numbers."""
    values = np.asarray(found).astype(np.float64)
    assert np.isfinite(values).all()
    distance = np.abs(values - expected) / ulp_of(expected, np.asarray(found).dtype)
    assert distance.max() <= ulps


def at_the_edge(shape, dtype, seed=0):
    """Return numbers of both signs up to the largest of float16, some of them equal to it."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-LARGEST, LARGEST, shape)
    x[rng.random(shape) < 0.1] = LARGEST
    return x.astype(dtype)


def near_the_edge(shape, dtype, seed=0):
    """Return large numbers that differ in their last digits only, so that differences of them are small."""
    rng = np.random.default_rng(seed)
    return (60000.0 + 64.0 * rng.integers(0, 8, shape)).astype(dtype)


INPUTS = {"all over": at_the_edge, "close together": near_the_edge}


def softmax(x, axis=-1):
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


def log_softmax(x):
    shifted = x - x.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))


def logsumexp(x):
    top = x.max(-1)
    return top + np.log(np.exp(x - top[..., None]).sum(-1))


def normalised(x, over, eps=1e-5):
    return (x - x.mean(over, keepdims=True)) / np.sqrt(x.var(over, keepdims=True) + eps)


def grouped(x, groups):
    return normalised(x.reshape(x.shape[0], groups, -1), 2).reshape(x.shape)


RUNNING = np.linspace(-60000.0, 60000.0, 6), np.linspace(1e6, 1e9, 6)


def by_running(x):
    mean, var = (each.astype(np.float32).astype(np.float64)[:, None] for each in RUNNING)
    return (x - mean) / np.sqrt(var + 1e-5)


def batch_norm(x):
    return nt.batch_norm(x, None, None, training=True)


def batch_norm_by_running(x):
    return nt.batch_norm(x, *(each.astype(np.float32) for each in RUNNING))


FUNCTIONS = {
    "softmax": (nt.softmax, softmax),
    "softmax along the first axis": (lambda x: nt.softmax(x, axis=0), lambda x: softmax(x, 0)),
    "log_softmax": (nt.log_softmax, log_softmax),
    "logsumexp": (lambda x: nt.logsumexp(x, axis=-1), logsumexp),
    "layer_norm": (lambda x: nt.layer_norm(x, x.shape[-1:]), lambda x: normalised(x, -1)),
    "rms_norm": (
        lambda x: nt.rms_norm(x, x.shape[-1:], eps=1e-5),
        lambda x: x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5),
    ),
    "batch_norm": (batch_norm, lambda x: normalised(x, (0, 2))),
    "batch_norm by running statistics": (batch_norm_by_running, by_running),
    "group_norm": (lambda x: nt.group_norm(x, 2), lambda x: grouped(x, 2)),
    "instance_norm": (nt.instance_norm, lambda x: normalised(x, 2)),
}


@pytest.mark.filterwarnings("ignore:overflow")
@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("inputs", INPUTS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_at_the_edge_of_float16_results_are_finite_and_right_to_two_places(name, inputs, dtype):
    function, reference = FUNCTIONS[name]
    for seed, shape in enumerate([(4, 6, 8), (3, 6, 50), (2, 6, 1000)]):
        x = INPUTS[inputs](shape, dtype, seed)
        expected = reference(x.astype(np.float64))
        found = function(nt.tensor(x))
        assert found.dtype == dtype
        # A logarithm of a probability may lie beyond the dtype, and nothing else here.
        fits = np.abs(expected) < LARGEST if name == "log_softmax" else np.full(expected.shape, True)
        assert_within_ulps(found.numpy()[fits], expected[fits], 2)


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_layers_of_constants_give_zeros_at_the_edge(dtype):
    x = nt.tensor(np.full((2, 4, 6), LARGEST).astype(dtype))
    for found in (nt.layer_norm(x, (6,)), nt.group_norm(x, 2), nt.instance_norm(x), batch_norm(x)):
        assert not found.numpy().astype(np.float64).any()


def rounded_to_half(exact, dtype):
    """Return the half number next to a fraction, ties to even, found among all half numbers."""
    with np.errstate(invalid="ignore"):
        patterns = np.arange(2**16, dtype=np.uint16).view(dtype)
        finite = patterns[np.isfinite(patterns.astype(np.float64))]
    numbers, where = np.unique(finite.astype(np.float64), return_index=True)
    top = Fraction(float(numbers[-1]))
    step = top - Fraction(float(numbers[-2]))
    if abs(exact) >= top + step / 2:
        return math.copysign(math.inf, exact)
    above = int(np.searchsorted(numbers, float(exact)))
    around = range(max(above - 2, 0), min(above + 3, len(numbers)))
    is_odd = finite[where].view(np.uint16) & 1
    return float(numbers[min(around, key=lambda i: (abs(Fraction(float(numbers[i])) - exact), is_odd[i]))])


@pytest.mark.filterwarnings("ignore:overflow")
@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_sums_are_correctly_rounded_and_infinite_where_that_overflows(dtype):
    rng = np.random.default_rng(3)
    overflows = 0
    for size in (1, 2, 3, 10, 100, 5000):
        for scale in (1e-6, 1.0, LARGEST):
            for _ in range(5):
                x = (rng.uniform(-1, 1, size) * scale).astype(dtype)
                expected = rounded_to_half(sum(map(Fraction, x.astype(float).tolist())), dtype)
                assert float(nt.sum(nt.tensor(x)).numpy()) == expected
                assert float(nt.sum(nt.tensor(x[:, None]), axis=0).numpy()[0]) == expected
                overflows += math.isinf(expected)
    assert overflows > 0 or dtype == nt.bfloat16


def test_a_sum_whose_float32_value_is_a_tie_is_rounded_by_its_exact_value():
    # 1 + 2**-11 lies between two neighbours of float16; what is added is below the last place of float32.
    x = np.array([1.0, 2.0**-11, 2.0**-24], np.float16)
    big = np.concatenate([x, [2048.0, -2048.0]]).astype(np.float16)
    assert float(nt.sum(nt.tensor(big)).numpy()) == 1.0 + 2.0**-10


@pytest.mark.filterwarnings("ignore:overflow")
@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_norms_are_correctly_rounded_and_infinite_where_that_overflows(dtype):
    rng = np.random.default_rng(4)
    for size in (1, 2, 10, 300):
        for scale in (1e-6, 1.0, LARGEST):
            x = (rng.uniform(-1, 1, size) * scale).astype(dtype)
            squares = sum(Fraction(v) ** 2 for v in x.astype(float).tolist())
            expected = rounded_to_half(Fraction(math.isqrt(int(squares * 4**80))) / 2**80, dtype)
            assert float(nt.norm(nt.tensor(x)).numpy()) == expected
            assert float(nt.vector_norm(nt.tensor(x[None]), axis=1).numpy()[0]) == expected


@pytest.mark.filterwarnings("ignore:overflow")
def test_a_norm_beyond_the_largest_number_is_infinite_and_one_below_it_is_not():
    assert float(nt.norm(nt.tensor([60000.0, 60000.0], dtype=nt.float16))) == math.inf
    assert float(nt.norm(nt.tensor([45000.0, 45000.0], dtype=nt.float16))) == 63616.0
    # The squares of these are beyond float32; the root of 2 in bfloat16 is 181 / 128.
    assert float(nt.norm(nt.tensor([2.0**126, 2.0**126], dtype=nt.bfloat16))) == 2.0**126 * 181 / 128


@pytest.mark.filterwarnings("ignore:overflow")
@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("draw", ["ones", "normal", "cancelling"])
def test_sums_of_a_million_are_right_to_two_places(draw, dtype):
    rng = np.random.default_rng(5)
    x = {
        "ones": np.full(10**6, 0.01),
        "normal": rng.standard_normal(10**6),
        "cancelling": np.concatenate([np.full(500_000, 60000.0), np.full(499_999, -60000.0), [-59999.5]]),
    }[draw].astype(dtype)
    exact = math.fsum(x.astype(np.float64).tolist())
    assert_within_ulps(nt.sum(nt.tensor(x)).numpy(), exact, 2)
    columns = nt.sum(nt.tensor(x.reshape(1000, 1000)), axis=0).numpy()
    fits = np.isfinite(columns.astype(float))
    assert_within_ulps(columns[fits], x.astype(np.float64).reshape(1000, 1000).sum(axis=0)[fits], 2)


def test_sums_whose_terms_cancel_keep_what_is_left():
    assert float(nt.tensor([2.0**60, 1.0, -(2.0**60)], dtype=nt.bfloat16).sum()) == 1.0
    x = np.zeros((1_000_001, 1), np.float16)
    x[:500_000], x[500_000], x[500_001:] = LARGEST, 2.0**-24, -LARGEST
    for axis in (None, 0, -2, (0, 1), (0,)):
        for keepdims in (False, True):
            assert float(nt.sum(nt.tensor(x), axis=axis, keepdims=keepdims).reshape(())) == 2.0**-24


def test_what_decides_a_tie_may_lie_beyond_the_digits_of_float64():
    for sign in (1.0, -1.0):
        for tail, expected in ((2.0**-100, 1.0 + 2.0**-7), (-(2.0**-100), 1.0), (0.0, 1.0)):
            x = np.array([2.0**90, 1.0, 2.0**-8, tail, -(2.0**90)]) * sign
            assert float(nt.tensor(x, dtype=nt.bfloat16).sum()) == sign * expected


@pytest.mark.filterwarnings("ignore:overflow")
@pytest.mark.parametrize("axis", [None, 0, 1, -1, (0, 2), (1, 2), (-1, 0, 1)], ids=str)
def test_sums_of_all_sizes_of_bfloat16_are_correctly_rounded_along_any_axis(axis):
    rng = np.random.default_rng(6)
    x = (rng.choice([-1.0, 1.0], (6, 4, 10)) * 2.0 ** rng.uniform(-133, 127, (6, 4, 10))).astype(nt.bfloat16)
    # Each number once more with the other sign, but for the smallest.
    x = np.concatenate([x, np.where(np.abs(x.astype(float)) < 2.0**-100, 0.0, -x.astype(float)).astype(nt.bfloat16)])
    found = nt.sum(nt.tensor(x), axis=axis, keepdims=True).numpy()
    exact = np.vectorize(Fraction, otypes=[object])(x.astype(float)).sum(axis=axis, keepdims=True)
    assert found.shape == exact.shape
    assert found.astype(float).ravel().tolist() == [rounded_to_half(each, x.dtype) for each in exact.ravel()]
    summed = 0 if axis is None else axis if isinstance(axis, int) else axis[0]
    with_nan = np.insert(x, (1, 3), np.nan, axis=summed)
    assert nt.nansum(nt.tensor(with_nan), axis=axis, keepdims=True).numpy().tobytes() == found.tobytes()


@pytest.mark.parametrize("axis", [None, 1, (0, 1)], ids=str)
@pytest.mark.parametrize("spread", [16, 30, 45, 60])
def test_long_sums_that_cancel_are_correctly_rounded_whatever_their_spread(spread, axis):
    rng = np.random.default_rng(spread)
    x = (rng.choice([-1.0, 1.0], (3, 1001)) * 2.0 ** rng.uniform(0, spread, (3, 1001))).astype(nt.bfloat16)
    left = rng.permutation(np.concatenate([x, -x, x[:, :3] * nt.bfloat16.type(2.0**-spread)], axis=1), axis=1)
    for each in (left, np.ascontiguousarray(left.T).T, np.repeat(left, 2, axis=1)[:, ::2]):
        found = nt.sum(nt.tensor(each), axis=axis).numpy().astype(float)
        exact = np.asarray(np.vectorize(Fraction, otypes=[object])(left.astype(float)).sum(axis=axis))
        assert found.ravel().tolist() == [rounded_to_half(total, nt.bfloat16) for total in exact.ravel()]


def test_what_is_not_finite_stays_in_its_own_sum():
    x = np.array([[2.0**60, 1.0, -(2.0**60)], [math.inf, 1.0, 2.0], [math.nan, 1.0, 2.0], [-0.0, -0.0, -0.0]])
    found = nt.tensor(x, dtype=nt.bfloat16).sum(axis=1).numpy().astype(float)
    np.testing.assert_array_equal(found, [1.0, math.inf, math.nan, np.sum([-0.0, -0.0, -0.0])])
    assert np.signbit(found[3]) == np.signbit(np.add.reduce(x[3]))


@pytest.mark.parametrize("size", [1e30, 1e-30])
@pytest.mark.parametrize("power", [20, -20, 3, 0.5])
def test_powers_beyond_float64_do_not_show_in_a_norm(power, size):
    x = nt.tensor([[size, -size], [0.0, size]], dtype=nt.bfloat16)
    value = float(x[0, 0])
    found = nt.norm(x[0], power)
    assert_within_ulps(found.numpy(), np.float64(value * 2.0 ** (1 / power)), 0.5)
    assert float(nt.norm(x[:1], power, axis=1, keepdims=True)[0, 0]) == float(found)
    if power > 0:
        assert nt.norm(x, power, axis=1).tolist() == [float(found), value]


def test_norms_of_numbers_that_are_zero_or_missing_or_infinite_have_no_scale():
    for values, expected in (([0.0, 0.0], 0.0), ([], 0.0), ([math.inf, 1.0], math.inf)):
        assert float(nt.norm(nt.tensor(values, dtype=nt.float16), 3)) == expected


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_singular_values_are_summed_before_they_are_rounded(dtype):
    x = np.random.default_rng(7).normal(size=(200, 12, 9)).astype(dtype)
    values = np.linalg.svd(x.astype(np.float64), compute_uv=False)
    for ord, expected in (("nuc", values.sum(-1)), (2, values[:, 0]), (-2, values[:, -1])):
        found = nt.norm(nt.tensor(x), ord, axis=(1, 2))
        assert found.dtype == dtype
        assert_within_ulps(found.numpy(), expected, 0.5 + 1e-6)


def test_the_gradient_of_a_nuclear_norm_of_halves_is_half():
    x = nt.tensor([[3.0, 0.0], [0.0, 2.0]], dtype=nt.float16, requires_grad=True)
    nt.norm(x, "nuc").backward()
    assert x.grad.dtype == nt.float16
    assert x.grad.tolist() == [[1.0, 0.0], [0.0, 1.0]]


def test_gradients_of_half_leaves_are_half_and_carried_in_float32():
    # In float16, 2**-20 times 2**-6 would be lost on the way.
    x = nt.tensor([1.0], dtype=nt.float16, requires_grad=True)
    (((x * 2.0**-20) * 2.0**-6) * 2.0**26).sum().backward()
    assert x.grad.dtype == nt.float16
    assert x.grad.tolist() == [1.0]


# Training: the accuracy of float32, in both half types.


def convolutions(stream):
    return nt.nn.Sequential(
        nt.nn.Conv2d(1, 8, 3, stride=2, padding=1, rng=stream),
        nt.nn.ReLU(),
        nt.nn.Conv2d(8, 16, 3, padding=1, rng=stream),
        nt.nn.ReLU(),
        nt.nn.Flatten(),
        nt.nn.Linear(256, 10, rng=stream),
    )


class RowTransformer(nt.nn.Module):
    """One encoder layer whose words are the rows of an image."""

    def __init__(self, stream):
        self.embed = nt.nn.Linear(8, 32, rng=stream)
        self.place = nt.nn.Parameter(0.1 * nt.randn(8, 32, rng=stream))
        self.layer = nt.nn.TransformerEncoderLayer(32, 4, 64, 0.0, batch_first=True, norm_first=True, rng=stream)
        self.head = nt.nn.Linear(256, 10, rng=stream)

    def forward(self, images):
        words = self.embed(images.reshape(-1, 8, 8)) + self.place
        return self.head(self.layer(words).reshape(len(words), -1))


def points(make, precision, epochs=8, seed=1):
    """Train on digits under a config; return how many of all digits are right, in percent."""
    model = make(nt.Generator(seed))
    images, labels = nt.data.digits("train")
    optimizer = nt.optim.Adam(model.parameters(), lr=1e-2)
    batches = len(images) // 64
    schedule = nt.optim.OneCycleLR(optimizer, 1e-2, total_steps=epochs * batches)
    config = nt.AmpConfig(precision_mode=precision)
    for epoch in range(epochs):
        order = np.random.default_rng([seed, epoch]).permutation(len(images))
        for part in np.array_split(order, batches):
            optimizer.zero_grad()
            with nt.GradientTape.with_amp_config(config) as tape:
                loss = nt.cross_entropy(model(images[part]), labels[part])
            optimizer.step(tape.backward(loss))
            schedule.step()
    images, labels = nt.data.digits()
    with nt.no_grad(), nt.autocast(precision):
        right = model(images).argmax(axis=-1) == labels
    return 100.0 * float(right.numpy().mean())


@pytest.mark.parametrize("make", [convolutions, RowTransformer])
def test_a_model_learns_digits_as_well_in_half_precision(make):
    plain = points(make, "float32")
    assert plain > 98.0
    assert points(make, "bfloat16") >= plain - 0.3
    assert points(make, "float16") >= plain - 0.3


@pytest.mark.parametrize(("shape", "least"), [((65536, 2), 0.0), ((4096, 40), 0.0), ((2048, 8), 50_000.0)], ids=str)
def test_batch_norm_is_right_near_the_mean(shape, least):
    x = np.random.default_rng(0).uniform(least, LARGEST, shape).astype(np.float16)
    wide = x.astype(np.float64)
    expected = (wide - wide.mean(0)) / np.sqrt(wide.var(0) + 1e-5)
    assert_within_ulps(nt.nn.BatchNorm1d(shape[1]).half()(nt.from_numpy(x)).numpy(), expected, 2)


@pytest.mark.parametrize("rows", [[np.linspace(-20.0, 0.0, 4097)] * 3, "uniform"], ids=["linspace", "uniform"])
def test_layer_norm_is_right_near_the_mean(rows):
    if rows == "uniform":
        rows = np.random.default_rng(0).uniform(0.0, LARGEST, (400, 4096))
    x = np.asarray(rows).astype(np.float16)
    wide = x.astype(np.float64)
    expected = (wide - wide.mean(1, keepdims=True)) / np.sqrt(wide.var(1, keepdims=True) + 1e-5)
    assert_within_ulps(nt.nn.functional.layer_norm(nt.from_numpy(x), x.shape[1:]).numpy(), expected, 2)


def test_batch_norm_is_right_near_a_mean_of_almost_nothing():
    draws = np.random.default_rng(54).standard_normal((256, 4000)) * LARGEST
    x = np.clip(draws, -LARGEST, LARGEST).astype(np.float16)
    wide = x.astype(np.float64)
    expected = (wide - wide.mean(0)) / np.sqrt(wide.var(0) + 1e-5)
    assert_within_ulps(nt.nn.functional.batch_norm(nt.tensor(x), None, None, training=True).numpy(), expected, 2)


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_directions_of_large_and_of_no_vectors(dtype):
    x, zero = nt.tensor([[60000.0, 60000.0]], dtype=dtype), nt.zeros(1, 2, dtype=dtype)
    functional = nt.nn.functional
    assert functional.normalize(x).tolist() == [[pytest.approx(0.5**0.5, rel=1e-2)] * 2]
    assert functional.cosine_similarity(x, x).tolist() == [pytest.approx(1.0, rel=1e-2)]
    assert functional.normalize(zero).tolist() == [[0.0, 0.0]]
    assert functional.cosine_similarity(zero, zero).tolist() == [0.0]
    assert functional.normalize(x).dtype == functional.cosine_similarity(x, x).dtype == dtype


#: Reductions with options that no op of ours has: NumPy computes them, and would add in the half type.
REDUCTIONS = {
    "sum where": lambda x, even: np.sum(x, where=even),
    "mean where": lambda x, even: np.mean(x, where=even),
    "var where": lambda x, even: np.var(x, where=even),
    "sum initial": lambda x, even: np.sum(x, initial=1.0),
    "nancumsum": lambda x, even: np.nancumsum(x)[-1],
    "nanstd": lambda x, even: np.nanstd(x),
    "add.reduce where": lambda x, even: np.add.reduce(x, where=even),
    "add.reduceat": lambda x, even: np.add.reduceat(x, [0])[0],
    "logaddexp.reduce": lambda x, even: np.logaddexp.reduce(x),
}


@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("name", REDUCTIONS)
def test_what_numpy_adds_up_for_us_is_added_in_float64(name, dtype):
    x = (0.1 + 0.01 * np.random.default_rng(0).standard_normal(100_000)).astype(dtype)
    even = np.arange(x.size) % 2 == 0
    found = REDUCTIONS[name](nt.from_numpy(x), even)
    assert isinstance(found, nt.Tensor)
    assert found.dtype == dtype
    assert_within_ulps(found.numpy(), REDUCTIONS[name](x.astype(np.float64), even), 1)


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_what_numpy_adds_up_for_us_can_be_written_to_a_tensor(dtype):
    x, out = nt.full((100_000,), 0.125, dtype=dtype), nt.zeros((), dtype=dtype)
    even = np.arange(100_000) % 2 == 0
    assert np.sum(x, where=even, out=out) is out
    assert_within_ulps(out.numpy(), 6250.0, 1)
    assert np.add.reduce(x, 0, None, out).item() == out.item() == np.sum(x).item()
    assert np.sum(x, where=even, dtype=np.float32).item() == 6250.0


def test_doubles_are_rounded_once_to_halves():
    ties = np.array([1.0 + 2.0**-8, 1.0 + 2.0**-11, 3.0 + 2.0**-7])
    for dtype, digits in ((nt.bfloat16, 7), (nt.float16, 10)):
        for tail in (2.0**-40, 0.0, -(2.0**-40)):
            found = nt.tensor(ties + tail).astype(dtype).numpy().astype(float)
            expected = [rounded_to_half(Fraction(value), dtype) for value in (ties + tail).tolist()]
            assert found.tolist() == expected, (digits, tail)
    x = nt.tensor(np.array([np.inf, np.nan, -0.0, 1e300]))
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(x.astype(nt.bfloat16).numpy().astype(float), [np.inf, np.nan, -0.0, np.inf])


@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("ord", [1, -1, np.inf, -np.inf])
def test_norms_of_matrices_by_sums_are_correctly_rounded_and_differentiable(ord, dtype):
    x = np.random.default_rng(0).normal(size=(50, 7, 9)).astype(dtype)
    found = nt.norm(nt.tensor(x), ord, axis=(1, 2))
    for each, matrix in zip(found.numpy(), x, strict=True):
        sums = [
            sum(map(Fraction, row)) for row in np.abs((matrix.T if abs(ord) == 1 else matrix).astype(float)).tolist()
        ]
        assert float(each) == rounded_to_half(max(sums) if ord > 0 else min(sums), dtype)
    # Sums that differ, but not in the half type, are no ties.
    close = nt.tensor(np.array([[1.0, 1.0], [2.0**-12, 2.0**-13]], np.float32).astype(dtype), requires_grad=True)
    nt.norm(close, 1).backward()
    assert close.grad.tolist() == [[1.0, 0.0], [1.0, 0.0]]
    with nt.autocast(dtype=dtype):
        assert {str(nt.norm(close, each).dtype) for each in (1, 2, "nuc", "fro")} == {"float32"}
        assert nt.matrix_norm(close, ord="nuc").dtype == nt.float32


# Functions made of several ops: rounded once, at the end.


def half(values, dtype=nt.float16, **kwargs):
    return nt.tensor(np.asarray(values, np.float64).astype(dtype), **kwargs)


@pytest.mark.parametrize(
    ("loss", "expected"), [(nt.l1_loss, 12000.0), (nt.smooth_l1_loss, 11999.95), (nt.huber_loss, 11999.95)]
)
def test_losses_beyond_the_range_may_have_a_mean_within_it(loss, expected):
    a, b = np.zeros((2, 10))
    a[0], b[0] = 60000.0, -60000.0
    prediction = half(a, requires_grad=True)
    found = loss(prediction, half(b))
    assert found.dtype == nt.float16
    assert_within_ulps(found.numpy(), expected, 0.5)
    found.backward()
    np.testing.assert_allclose(prediction.grad.numpy(), np.sign(a) * 0.1, atol=1e-4)


def test_areas_of_large_numbers_are_within_the_range():
    y = half([60000.0] * 3, requires_grad=True)
    areas = nt.cumulative_trapezoid(y, dx=0.25)
    assert areas.tolist() == [15000.0, 30000.0]
    areas.sum().backward()
    assert y.grad.tolist() == [0.25, 0.375, 0.125]


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_what_cancels_does_so_before_it_is_rounded(dtype):
    x = np.linspace(0.05, 3.0, 60).astype(dtype)
    wide = x.astype(np.float64)
    assert_within_ulps(nt.tanhshrink(nt.tensor(x)).numpy(), wide - np.tanh(wide), 0.5 + 1e-3)
    matrices = np.random.default_rng(0).normal(size=(20, 3, 3)).astype(dtype)
    expected = np.linalg.matrix_power(matrices.astype(np.float64), 3)
    assert_within_ulps(nt.matrix_power(nt.tensor(matrices), 3).numpy(), expected, 0.5 + 1e-2)


@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("transpose", [nt.conv_transpose1d, nt.conv_transpose2d])
def test_a_transposed_convolution_and_its_bias_are_rounded_together(transpose, dtype):
    rng = np.random.default_rng(0)
    size = (9,) * (1 if transpose is nt.conv_transpose1d else 2)
    kernel = (3,) * len(size)
    x, weight = (rng.normal(size=shape).astype(dtype) for shape in ((8, 4, *size), (4, 6, *kernel)))
    bias = (rng.normal(size=6) - 20.0).astype(dtype)
    found = transpose(*map(nt.tensor, (x, weight, bias)))
    assert found.dtype == dtype
    expected = transpose(*(each.astype(np.float64) for each in (x, weight, bias)))
    np.testing.assert_allclose(found.numpy().astype(float), expected, atol=0.51 * ulp_of(32.0, dtype))
    assert_within_ulps(found.numpy()[np.abs(expected) > 1.0], expected[np.abs(expected) > 1.0], 0.51)


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_functions_of_layers_are_rounded_once(dtype):
    functional = nt.nn.functional
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(2, 4, 6)).astype(dtype), rng.normal(size=(2, 4, 6)).astype(dtype)
    calls = {
        "softplus": lambda x, y: functional.softplus(x, 0.7),
        "avg_pool2d": lambda x, y: functional.avg_pool2d(x, 2, divisor_override=3),
        "dropout1d": lambda x, y: functional.dropout1d(x, 0.3, rng=0),
        "dropout2d": lambda x, y: functional.dropout2d(x, 0.3, rng=0),
        "cosine_similarity": functional.cosine_similarity,
        "normalize": lambda x, y: functional.normalize(x),
    }
    for call in calls.values():
        expected = np.asarray(call(*(each.astype(np.float64) for each in (x, y))))
        found = call(nt.tensor(x), nt.tensor(y))
        assert found.dtype == dtype
        assert_within_ulps(found.numpy(), expected, 0.5 + 1e-2)
    assert functional.cosine_similarity(nt.tensor(x), nt.tensor(y.astype(np.float32))).dtype == nt.float32


# Gradients where the value has left the range: right, since they are within it.


@pytest.mark.filterwarnings("ignore:overflow")
@pytest.mark.parametrize(
    ("function", "slopes"),
    [
        (nt.norm, [0.5] * 4),
        (lambda x: nt.norm(x.reshape(2, 2), "fro"), [0.5] * 4),
        (lambda x: nt.vector_norm(x, axis=0, ord=4), [0.25**0.75] * 4),
        (lambda x: nt.hypot(x[0], x[1]), [0.5**0.5, 0.5**0.5, 0.0, 0.0]),
        (lambda x: nt.std(x * half([1.0, -1.0, 1.0, -1.0], x.dtype), ddof=1) * 3.0, [0.75**0.5] * 4),
    ],
)
@pytest.mark.parametrize(("dtype", "value"), [(np.float16, 65504.0), (np.float32, 3e38), (np.float64, 1.7e308)])
def test_a_norm_that_overflows_has_its_gradient(function, slopes, dtype, value):
    x = nt.tensor(np.full(4, value, dtype), requires_grad=True)
    with np.errstate(over="ignore"):
        y = function(x)
    assert y.dtype == dtype
    assert np.isinf(y.item())
    y.backward()
    np.testing.assert_allclose(x.grad.numpy().astype(float), slopes, rtol=1e-3)
    tangent = nt.jvp(function, (x.detach(),), (nt.ones_like(x),))[1] if dtype != np.float16 else None
    if tangent is not None:
        np.testing.assert_allclose(tangent.item(), sum(slopes), rtol=1e-3)


@pytest.mark.filterwarnings("ignore:overflow")
def test_only_what_overflows_is_scaled():
    x = nt.tensor(np.array([[3e38, 3e38], [1e-45, 0.0], [3.0, 4.0], [np.inf, 1.0]], np.float32), requires_grad=True)
    nt.norm(x, axis=1).sum().backward()
    expected = [[0.5**0.5, 0.5**0.5], [0.0, 0.0], [0.6, 0.8], [np.nan, 0.0]]
    np.testing.assert_allclose(x.grad.numpy(), expected, rtol=1e-6)
