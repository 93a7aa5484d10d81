"""Random streams: golden values, exact resume, independent splits."""

import copy
import pickle
import sys
import threading

import numpy as np
import pytest

import numtape as nt
from numtape.kernels import random as kernels


def test_golden_words():
    assert kernels.words(1, 0, 5).tolist() == [
        5599841837815857887,
        15655913098571550255,
        2880178291573394738,
        573812481542357666,
        16607021752199172844,
    ]


def test_golden_draws():
    assert nt.Generator(0).key == 226701168336279480164549693071564083199
    uniform = [0.27549583453920845, 0.5775134440454796, 0.49638920034988043, 0.29194504112641495]
    assert nt.rand(4, rng=0, dtype="float64").tolist() == uniform
    normal = [0.7616800932627619, 0.5493366831481385, -0.620152615418953, -0.3512048583081542]
    # Logarithm and cosine may differ in the last bit between builds of NumPy.
    np.testing.assert_allclose(nt.randn(4, rng=0, dtype="float64").numpy(), normal, rtol=1e-14)
    assert nt.randint(0, 100, (6,), rng=0).tolist() == [24, 51, 10, 76, 27, 74]
    assert nt.permutation(8, rng=0).tolist() == [4, 0, 3, 7, 2, 1, 6, 5]
    assert nt.dropout(np.ones(12), 0.5, rng=0).tolist() == [0, 2, 2, 0, 0, 2, 0, 2, 2, 2, 2, 0]


def test_a_draw_does_not_depend_on_what_was_drawn_with_another_generator():
    a, b = nt.Generator(7).split(2)
    assert nt.rand(2, rng=a, dtype="float64").tolist() == [0.470542521739332, 0.6570675551018363]
    assert nt.rand(2, rng=b, dtype="float64").tolist() == [0.7901340763473269, 0.13903106344974991]


def test_words_of_a_block_do_not_depend_on_its_start():
    whole = kernels.words(5, 0, 16)
    assert kernels.words(5, 2, 8).tolist() == whole[8:].tolist()


def test_a_generator_goes_on_from_a_saved_state():
    rng = nt.Generator(3)
    nt.rand(5, rng=rng)
    state = rng.state_dict()
    expected = nt.randn(7, rng=rng).tolist()
    assert nt.randn(7, rng=nt.Generator(0).load_state_dict(state)).tolist() == expected
    for copied in (copy.deepcopy(rng), pickle.loads(pickle.dumps(rng))):
        assert copied.state_dict() == rng.state_dict()


def test_the_threads_stream_is_seeded_and_moves_on():
    nt.seed(1)
    first, second = nt.rand(3).tolist(), nt.rand(3).tolist()
    assert first != second
    nt.manual_seed(1)
    assert [nt.rand(3).tolist(), nt.rand(3).tolist()] == [first, second]


def test_splits_differ_from_each_other_and_from_later_ones():
    rng = nt.Generator(1)
    keys = {g.key for g in [rng, *rng.split(3), *rng.split(3)]}
    assert len(keys) == 7


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_uniform_draws_lie_in_the_interval(dtype):
    drawn = nt.uniform(-1.0, 1.0, (1000,), dtype=dtype, rng=0)
    assert drawn.dtype == nt.dtypes.as_dtype(dtype)
    assert float(drawn.double().min()) >= -1.0
    assert float(drawn.double().max()) <= 1.0


def test_threads_that_share_a_generator_never_draw_the_same():
    rng = nt.Generator(0)
    taken = []
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=lambda: taken.extend(rng.take(1) for _ in range(5000))) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    assert len(set(taken)) == len(taken) == 20_000


def test_normal_draws_have_the_moments_asked_for():
    drawn = nt.normal(3.0, 2.0, (100_000,), dtype="float64", rng=0).numpy()
    assert abs(drawn.mean() - 3.0) < 0.03
    assert abs(drawn.std() - 2.0) < 0.02


def test_a_dropout_record_holds_key_and_counter():
    nt.seed(5)
    x = nt.ones(6, requires_grad=True)
    y = nt.dropout(x, 0.5)
    (record,) = nt.records(y)
    assert set(record.params) == {"p", "key", "counter"}
    y.sum().backward()
    assert x.grad.tolist() == y.tolist()


def test_shapes_are_tuples_or_separate_integers_and_everything_has_a_name():
    for shape in (((2, 3),), (2, 3)):
        for drawn in (nt.normal(0.0, 1.0, *shape, name="x"), nt.uniform(0.0, 1.0, *shape, name="x")):
            assert (drawn.shape, drawn.name) == ((2, 3), "x")
        assert nt.randint(0, 5, *shape, name="x").shape == (2, 3)
    assert nt.normal(0.0, 1.0, shape=(2,)).shape == (2,)
    order = nt.permutation(4, rng=0, dtype="float64", requires_grad=True, name="order")
    assert (order.name, order.requires_grad, sorted(order.tolist())) == ("order", True, [0.0, 1.0, 2.0, 3.0])
    with pytest.raises(nt.errors.DtypeError):
        nt.randint(0, 3, 2, requires_grad=True)
