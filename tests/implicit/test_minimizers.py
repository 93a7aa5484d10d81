"""The default minimiser finds the minimum whatever the units and the dtype, or says that it did not."""

import numpy as np
import pytest

import numtape as nt


def well(x, p, units):
    """A function whose minimum, uncoupled, lies where z + z^3 = p, z in units."""
    z = x / units
    return (0.5 * z**2 - p * z + 0.25 * z**4).sum()


@pytest.mark.parametrize(("count", "reach"), [(2, 8), (12, 6), (16, 4), (30, 8)])
def test_unknowns_may_have_any_units(count, reach):
    units = 10.0 ** np.linspace(-reach, reach, count)
    found = nt.implicit.minimize(lambda x: well(x, 1.0, units), units) / units
    np.testing.assert_allclose(found, 0.6823278038280193, rtol=1e-7)


@pytest.mark.parametrize("seed", range(10))
def test_coupled_unknowns_may_have_any_units(seed):
    rng = np.random.default_rng(seed)
    units = 10.0 ** rng.uniform(-8.0, 8.0, 4)
    p = rng.uniform(0.3, 3.0, 4)

    def coupled(x, p, units):
        return well(x, p, units) + 0.15 * (x / units).sum() ** 2

    def least(p, units, start):
        return nt.implicit.minimize(coupled, start, p, units)

    ones = np.ones(4)
    np.testing.assert_allclose(least(p, units, units) / units, least(p, ones, ones), rtol=1e-7)
    np.testing.assert_allclose(
        nt.jacobian(lambda p: least(p, units, units))(p) / units[:, None],
        nt.jacobian(lambda p: least(p, ones, ones))(p),
        rtol=1e-6,
        atol=1e-9,
    )


def test_float32_is_solved_where_values_no_longer_tell():
    for seed in range(40):
        rng = np.random.default_rng(seed)
        a, b = rng.normal(size=(100, 5)).astype(np.float32), rng.normal(size=100).astype(np.float32)
        found = nt.implicit.minimize(lambda w, a=a, b=b: ((a @ w - b) ** 2).sum() + (w * w).sum(), np.zeros(5, "f4"))
        a, b = np.float64(a), np.float64(b)
        np.testing.assert_allclose(found, np.linalg.solve(a.T @ a + np.eye(5), a.T @ b), atol=1e-5)
