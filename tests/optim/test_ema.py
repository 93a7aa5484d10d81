"""Moving averages of parameters: their formula, swapping them in, half precision, saving, errors."""

import numpy as np
import pytest

import numtape as nt
from numtape import optim
from numtape.errors import ArgumentError, ShapeError


def test_the_average_follows_its_formula():
    generator = np.random.default_rng(0)
    w = nt.tensor(generator.normal(size=(3, 4)), requires_grad=True)
    ema = optim.EMA([w], decay=0.9)
    expected = w.numpy(copy=True)
    for _ in range(50):
        with nt.no_grad():
            w += generator.normal(size=(3, 4))
        ema.update()
        expected = 0.9 * expected + 0.1 * w.numpy()
    np.testing.assert_allclose(ema.averages[0].numpy(), expected, rtol=1e-12)


def test_a_warm_up_trusts_early_parameters_less():
    w = nt.tensor([0.0], requires_grad=True)
    ema = optim.EMA([w], decay=0.999, warmup=True)
    with nt.no_grad():
        w += 1.0
    ema.update()
    assert ema.averages[0].item() == pytest.approx(1 - 2 / 11)


def test_averages_act_inside_the_block_and_parameters_return_even_after_an_error():
    w = nt.tensor([4.0], requires_grad=True)
    ema = optim.EMA([w], decay=0.5)
    with nt.no_grad():
        w -= 4.0
    ema.update()
    with pytest.raises(ZeroDivisionError), ema.applied():
        1 / (w.item() - 2.0)
    assert w.item() == 0.0
    ema.copy_to()
    assert w.item() == 2.0
    assert w.is_leaf
    assert w.requires_grad


def test_swapping_is_a_write_that_graphs_notice():
    w = nt.tensor([4.0], requires_grad=True)
    ema = optim.EMA([w])
    loss = (w * w).sum()
    with ema.applied():
        pass
    with pytest.raises(nt.errors.OverwrittenError):
        loss.backward()


def test_the_average_of_half_parameters_is_float32():
    w = nt.tensor([1.0], dtype=nt.float16, requires_grad=True)
    ema = optim.EMA([w], decay=0.9999)
    with nt.no_grad():
        w += 1.0
    for _ in range(10):
        ema.update()
    assert ema.averages[0].dtype == nt.float32
    assert ema.averages[0].item() == pytest.approx(2 - 0.9999**10, rel=1e-6)


def test_an_average_resumes():
    w = nt.tensor([1.0, 2.0], requires_grad=True)
    first = optim.EMA([w], decay=0.5)
    with nt.no_grad():
        w += 1.0
    first.update()
    second = optim.EMA([w])
    second.load_state_dict(first.state_dict())
    assert second.averages[0].tolist() == [1.5, 2.5]
    assert (second.decay, second.num_updates) == (0.5, 1)
    with pytest.raises(ShapeError) as caught:
        optim.EMA([nt.zeros(3)]).load_state_dict(first.state_dict())
    assert str(caught.value) == (
        "EMA.load_state_dict: the parameters have shapes [(3,)], and the saved averages [(2,)]."
    )


def test_bad_arguments_say_why():
    with pytest.raises(ArgumentError) as caught:
        optim.EMA([nt.zeros(1)], decay=1.5)
    assert str(caught.value) == "EMA: decay is 1.5; it must be a number from 0 to 1."
    with pytest.raises(ArgumentError) as caught:
        optim.EMA([])
    assert str(caught.value) == (
        "EMA: the list of parameters is empty; a generator that was used up before gives none."
    )


def test_averages_follow_the_dtype_of_their_parameters():
    model = nt.nn.Linear(1, 1, bias=False)
    ema = optim.EMA(model, decay=0.5)
    model.double()
    assert ema.averages[0].dtype == nt.float64
    with nt.no_grad():
        model.weight[...] = 1.0 + 1e-12
    for _ in range(100):
        ema.update()
    assert ema.averages[0].item() == pytest.approx(1.0 + 1e-12, abs=1e-15)
    saved = ema.state_dict()
    other = optim.EMA(model.float())
    model.double()
    other.load_state_dict(saved)
    assert other.averages[0].item() == ema.averages[0].item()
    other.update()
