"""Functions and data for tests of SciPy's solvers."""

import numpy as np

import numtape as nt


def rosenbrock(v):
    return (100.0 * (v[1:] - v[:-1] ** 2) ** 2 + (1.0 - v[:-1]) ** 2).sum()


def bowl(p):
    return ((p["a"] - nt.tensor(np.array([1.0, 2.0]))) ** 2).sum() + (p["b"] + 3.0) ** 2


def decay(x, a, b, c):
    return a * np.exp(-b * x) + c


def observations():
    rng = np.random.default_rng(2)
    x = np.linspace(0.0, 4.0, 50)
    return x, decay(x, 2.5, 1.3, 0.5) + 0.1 * rng.normal(size=50)
