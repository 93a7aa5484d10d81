"""Data for examples: digits, moons and spirals."""

import sys

import numpy as np
import pytest

import numtape as nt
from numtape import data
from numtape.errors import ArgumentError, MissingExtraError


def test_digits_have_the_shapes_and_values_of_images():
    images, labels = data.digits()
    assert (images.shape, images.dtype) == ((1797, 1, 8, 8), nt.float32)
    assert (labels.shape, labels.dtype) == ((1797,), nt.int64)
    assert (images.min().item(), images.max().item()) == (0.0, 1.0)
    assert images[0, 0, 0, :4].tolist() == [0.0, 0.0, 0.3125, 0.8125]
    assert data.digits(dtype="float64")[0].dtype == nt.float64


def test_digits_are_split_within_each_digit_without_overlap():
    train, test = data.digits("train"), data.digits("test")
    assert (len(train[1]), len(test[1])) == (1442, 355)
    counts = np.bincount(data.digits()[1].numpy())
    assert np.bincount(test[1].numpy()).tolist() == (counts // 5).tolist()
    assert np.bincount(train[1].numpy()).tolist() == (counts - counts // 5).tolist()
    rows = np.concatenate([train[0].numpy(), test[0].numpy()]).reshape(1797, 64)
    everything = data.digits()[0].numpy().reshape(1797, 64)
    assert sorted(rows.tolist()) == sorted(everything.tolist())


def test_digits_feed_a_loader_as_they_are():
    images, labels = next(iter(data.DataLoader(data.digits("train"), batch_size=32)))
    assert (images.shape, labels.shape) == ((32, 1, 8, 8), (32,))


def test_digits_without_scikit_learn_name_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(MissingExtraError) as caught:
        data.digits()
    assert str(caught.value) == "digits: needs scikit-learn; pip install numtape[sklearn]"


def test_moons_without_noise_lie_on_their_circles():
    points, labels = data.two_moons(101, noise=0.0, rng=0, dtype="float64")
    first, second = points.numpy()[labels.numpy() == 0], points.numpy()[labels.numpy() == 1]
    assert (len(first), len(second)) == (50, 51)
    np.testing.assert_allclose((first**2).sum(axis=1), 1.0, rtol=1e-14)
    np.testing.assert_allclose(((second - [1.0, 0.5]) ** 2).sum(axis=1), 1.0, rtol=1e-14)
    assert first[:, 1].min() >= 0.0
    assert second[:, 1].max() <= 0.5


def test_moons_follow_from_their_seed():
    points, labels = data.two_moons(40, noise=0.2, rng=7)
    again, same = data.two_moons(40, noise=0.2, rng=nt.Generator(7))
    assert (points.dtype, labels.dtype) == (nt.float32, nt.int64)
    assert points.tolist() == again.tolist()
    assert labels.tolist() == same.tolist()
    assert 0 < labels[:20].sum().item() < 20  # Mixed: a part of them has both.


def test_noise_has_the_standard_deviation_asked_for():
    noisy, labels = data.two_moons(20000, noise=0.3, rng=3, dtype="float64")
    plain, same = data.two_moons(20000, noise=0.0, rng=3, dtype="float64")
    assert labels.tolist() == same.tolist()
    assert abs((noisy - plain).numpy().std() - 0.3) < 0.005


def test_spirals_wind_around_the_origin():
    points, labels = data.spirals(300, classes=3, turns=0.5, noise=0.0, rng=0, dtype="float64")
    radius = np.hypot(*points.numpy().T)
    np.testing.assert_allclose(np.sort(radius), np.arange(1, 301) / 300, rtol=1e-13)
    angle = np.arctan2(points.numpy()[:, 1], points.numpy()[:, 0])
    expected = 2.0 * np.pi * (labels.numpy() / 3 + 0.5 * radius)
    np.testing.assert_allclose(np.cos(angle - expected), 1.0, rtol=1e-12)


def test_bad_arguments_are_named():
    cases = [
        (lambda: data.digits("valid"), "digits: split is 'valid'; it must be 'train', 'test' or None for all."),
        (lambda: data.two_moons(1), "two_moons: n is 1; it must be an integer of at least 2."),
        (
            lambda: data.two_moons(10, noise=-0.1),
            "two_moons: noise is -0.1; a standard deviation is a number that is not negative.",
        ),
        (lambda: data.spirals(10, classes=0), "spirals: classes is 0; it must be an integer of at least 1."),
    ]
    for call, message in cases:
        with pytest.raises(ArgumentError) as caught:
            call()
        assert str(caught.value) == message
