"""Functions that the tests of derivative modes share."""

import numpy as np

import numtape as nt

MATRIX = np.random.default_rng(0).normal(size=(3, 4))
POINT = np.array([0.3, -0.7, 1.1, 0.4])


def curve(x):
    return nt.tanh(MATRIX @ x) * x[:3] + x.sum()


def bowl(x):
    return (nt.tanh(MATRIX @ x) ** 2).sum() * x[0]


def close(actual, expected, tolerance=1e-11):
    np.testing.assert_allclose(actual, expected, rtol=tolerance, atol=tolerance)
