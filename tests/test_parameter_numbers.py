"""A number given as a parameter is that number, whichever type holds it: dtypes and bits are those of Python's."""

import numpy as np
import pytest

import numtape as nt
from numtape import tree
from numtape.core.declare import registry
from numtape.core.op import Op
from numtape.testing.op_cases import samples

NARROW = (np.int8, np.uint8)


def forms(number):
    """Return what else may hold a number, exactly."""
    if type(number) is float:
        return [np.float64(number), np.array(number)]
    if type(number) is not int or not -(2**63) <= number < 2**63:
        return []
    fitting = [kind(number) for kind in NARROW if np.iinfo(kind).min <= number <= np.iinfo(kind).max]
    return [np.int64(number), np.array(number), *fitting]


def narrowed(x, dtype):
    """Return operands as tensors, those of floats in a dtype; numbers stay."""
    if isinstance(x, np.ndarray) and x.ndim:
        return nt.tensor(x.astype(dtype) if x.dtype.kind == "f" else x)
    return x


def variants(sample, is_inner):
    """Return a sample with one of its numbers, also inside of tuples, in another form each.

    Of `is_inner` ops, to which functions such as conv2d give tuples, these may hold NumPy's usual integers.
    """
    slots = {**dict(enumerate(sample.args)), **sample.params}
    for slot, value in slots.items():
        leaves = tree.leaves(value)
        for place, leaf in enumerate(leaves):
            for other in forms(leaf)[: 1 if is_inner and leaf is not value else None]:
                changed = tree.unflatten(value, [*leaves[:place], other, *leaves[place + 1 :]])
                given = {**slots, slot: changed}
                yield [given.pop(i) for i in range(len(sample.args))], given, other


def bits(result):
    parts = [np.asarray(x.numpy() if isinstance(x, nt.Tensor) else x) for x in tree.leaves(result)]
    return [(part.dtype, part.shape, part.tobytes()) for part in parts]


PUBLIC = sorted(name for name in registry if hasattr(nt, name))


@pytest.mark.parametrize("name", PUBLIC)
@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.filterwarnings("ignore::RuntimeWarning", "ignore::UserWarning")
def test_a_parameter_in_a_type_of_numpy_changes_no_bit(name, dtype):
    entry = registry[name]
    for sample in samples(entry):
        if not any(isinstance(x, np.ndarray) and x.ndim for x in tree.leaves((sample.args, sample.params))):
            continue  # Then the number is the operand.
        args, params = tree.map(lambda x: narrowed(x, dtype), (sample.args, sample.params))
        sample = sample._replace(args=args, params=params)
        try:
            expected = bits(entry.face(*args, **params))
        except nt.errors.NumtapeError:
            continue  # What float64 alone can do.
        for other_args, other_params, other in variants(sample, isinstance(entry, Op)):
            result = bits(entry.face(*other_args, **other_params))
            assert result == expected, f"{name}{sample.args, sample.params}: {other!r} of {type(other)}"


X = nt.ones(3, 4, dtype="float32")
HALF = nt.ones(3, 4, dtype="float16")
RAW = np.array(0.1)


@pytest.mark.parametrize(
    "call",
    [
        lambda x: nt.leaky_relu(x, np.float64(0.1)),
        lambda x: nt.leaky_relu(x, RAW),
        lambda x: nt.elu(x, np.int64(1)),
        lambda x: nt.celu(x, np.float64(0.1)),
        lambda x: nt.hardtanh(x, np.float64(-0.1), np.float64(0.1)),
        lambda x: nt.softshrink(x, np.float64(0.1)),
        lambda x: nt.threshold(x, np.float64(0.1), np.float64(2.0)),
        lambda x: nt.huber_loss(x, 2 * x, delta=np.float64(0.1)),
        lambda x: nt.smooth_l1_loss(x, 2 * x, beta=np.float64(0.1)),
        lambda x: nt.rms_norm(x, 4, eps=np.float64(0.1)),
        lambda x: nt.layer_norm(x, 4, eps=RAW),
        lambda x: nt.var(x, ddof=np.int64(1)),
        lambda x: nt.std(x, ddof=np.int64(1)),
        lambda x: x.std(correction=np.int64(1)),
        lambda x: np.var(x, ddof=np.int32(1)),
        lambda x: nt.nn.LeakyReLU(np.float64(0.1))(x),
        lambda x: nt.nn.GELU()(x),
        lambda x: nt.addmm(x, x, nt.ones(4, 4, dtype=x.dtype), beta=np.float64(2.0), alpha=RAW),
        lambda x: nt.nan_to_num(x, nan=np.float64(0.1), posinf=np.float64(1.0)),
        lambda x: nt.clip(2.5, x, x),
        lambda x: nt.clip(2, x, 5),
        lambda x: nt.clip(np.float64(2.5), x, x),
        lambda x: np.clip(2, x, x),
        lambda x: nt.clip(2, None, x),
    ],
)
@pytest.mark.parametrize("x", [X, HALF], ids=["float32", "float16"])
def test_a_parameter_changes_no_dtype(call, x):
    assert call(x).dtype == x.dtype


@pytest.mark.parametrize("kind", [np.int8, np.int16, np.int32, np.int64])
def test_random_integers_are_drawn_alike_for_bounds_of_any_type(kind):
    expected = nt.randint(-100, 100, (9,), rng=1)
    for low, high in [(kind(-100), kind(100)), (-100, kind(100)), (kind(-100), 100), (np.array(-100), 100)]:
        assert nt.randint(low, high, (9,), rng=1).tolist() == expected.tolist()
    assert nt.randint(kind(0), 3, (9,), rng=1).tolist() == nt.randint(3, size=9, rng=1).tolist()


def test_random_integers_over_more_than_half_of_the_range_of_a_bound():
    drawn = nt.randint(-(2**30), np.int32(2**30 + 2**29), (9,), rng=1).tolist()
    assert drawn == nt.randint(-(2**30), 2**30 + 2**29, (9,), rng=1).tolist()


@pytest.mark.parametrize(("low", "high"), [(np.int8(-100), np.int8(100)), (np.float16(-6e4), np.float16(6e4))])
def test_random_floats_are_drawn_alike_for_bounds_of_any_type(low, high):
    drawn = nt.uniform(low, high, (9,), rng=1).tolist()
    assert drawn == nt.uniform(float(low), float(high), (9,), rng=1).tolist()
    assert nt.normal(low, high, (9,), rng=1).tolist() == nt.normal(float(low), float(high), (9,), rng=1).tolist()
    assert nt.linspace(low, high, 5).tolist() == nt.linspace(float(low), float(high), 5).tolist()
    assert len(nt.arange(low, high)) == float(high) - float(low)


def test_narrow_integers_count_without_wrapping_around():
    assert [len(part) for part in nt.chunk(nt.ones(300), np.uint8(3))] == [100, 100, 100]
    assert [len(part) for part in nt.array_split(nt.ones(301), np.uint8(3))] == [101, 100, 100]
    assert nt.group_norm(nt.ones(1, 300, 2), np.uint8(3)).shape == (1, 300, 2)
    assert nt.nn.GroupNorm(np.uint8(3), np.int16(300))(nt.ones(1, 300, 2)).shape == (1, 300, 2)
    assert nt.avg_pool1d(nt.ones(1, 300), np.uint8(200), np.uint8(100)).shape == (1, 2)
    kept = nt.dropout(nt.ones(6), np.float16(0.3), rng=1)
    assert kept.tolist() == nt.dropout(nt.ones(6), float(np.float16(0.3)), rng=1).tolist()


@pytest.mark.parametrize(
    ("make", "shape"),
    [
        (lambda n: nt.nn.Linear(n(6), n(100)), (2, 5, 6)),
        (lambda n: nt.nn.LSTM(n(6), n(100), n(2), dropout=np.float64(0.1)), (2, 5, 6)),
        (lambda n: nt.nn.GRU(n(6), n(100)), (2, 5, 6)),
        (lambda n: nt.nn.LSTMCell(n(6), n(100)), (5, 6)),
        (lambda n: nt.nn.MultiheadAttention(n(100), n(4), np.float64(0.1)), (2, 5, 100)),
        (lambda n: nt.nn.Conv1d(n(5), n(100), n(3), n(2), n(1), n(1), n(5)), (2, 5, 6)),
        (lambda n: nt.nn.ConvTranspose1d(n(100), n(50), n(3), n(2), n(1), n(1), n(50)), (2, 100, 6)),
        (lambda n: nt.nn.BatchNorm1d(n(5), np.float64(1e-5), np.float64(0.1)), (2, 5, 6)),
        (lambda n: nt.nn.GroupNorm(n(5), n(100), np.float64(1e-5)), (2, 100, 6)),
        (lambda n: nt.nn.TransformerEncoderLayer(n(100), n(4), n(120), np.float64(0.1)), (2, 5, 100)),
    ],
)
def test_layers_of_narrow_integers_are_those_of_pythons(make, shape):
    x = nt.ones(shape)
    nt.seed(0)
    expected = make(int)
    wanted = bits(expected(x, x, x) if isinstance(expected, nt.nn.MultiheadAttention) else expected(x))
    nt.seed(0)
    layer = make(np.uint8)
    assert bits(layer(x, x, x) if isinstance(layer, nt.nn.MultiheadAttention) else layer(x)) == wanted
    assert repr(layer) == repr(expected)


def test_a_padding_row_may_be_a_narrow_integer():
    layer = nt.nn.Embedding(np.uint8(200), np.uint8(100), padding_idx=np.int8(-1))
    assert layer.padding_idx == 199
    assert nt.nn.functional.embedding(nt.tensor([1]), layer.weight, np.int8(-1)).shape == (1, 100)


@pytest.mark.parametrize("number", [np.longdouble(0.25), np.array(0.25, ">f8"), np.array(0.25, "<f4")])
def test_numbers_of_any_float_type_are_taken(number):
    x = nt.tensor([1.0, -2.0, 3.0, 4.0], requires_grad=True)
    assert nt.leaky_relu(x, number).tolist() == nt.leaky_relu(x, 0.25).tolist()
    assert np.quantile(x, number).item() == np.quantile(x, 0.25).item()
    assert nt.linspace(number, 1, 3).tolist() == nt.linspace(0.25, 1, 3).tolist()


def test_a_number_of_parts_may_be_a_float_that_is_whole():
    assert len(np.split(nt.ones(4), 2.0)) == len(np.array_split(nt.ones(4), 2.0)) == 2


def test_errors_of_a_users_code_are_left_alone():
    class Lazy:
        def __array__(self, dtype=None, copy=None):
            raise ZeroDivisionError("in the user's code")

    with pytest.raises(ZeroDivisionError, match="in the user's code"):
        nt.tensor(Lazy())
