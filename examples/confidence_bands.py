"""Nonlinear regression with confidence bands: how sure is a fitted curve, and is it as sure as it says?

A dose-response curve is fitted to noisy measurements. The fit knows the covariance of its parameters; first-order
propagation takes it to a band around the curve, and to what nobody measured, as the dose with 90% of the effect. Then
the experiment is repeated with new noise, to see whether bands that promise 95% hold the truth 95% of the time.
"""

import argparse
from typing import Any

import numpy as np
from scipy.stats import t as student

import numtape as nt
from numtape.interop.scipy import CurveFit, curve_fit

TRUTH = {"bottom": 0.1, "top": 2.0, "half": 3.0, "slope": 1.6}
DOSES = np.repeat(np.geomspace(0.1, 60.0, 12), 2)
NOISE = 0.08


def response(dose: np.ndarray, p: dict[str, Any]) -> Any:
    """Return the effect of a dose: from bottom to top, and in the middle between them at half (Hill, 1910)."""
    return p["bottom"] + (p["top"] - p["bottom"]) / (1.0 + (p["half"] / dose) ** p["slope"])


def dose_for(share: float, p: dict[str, Any]) -> Any:
    """Return the dose that has a share of the whole effect."""
    return p["half"] * (share / (1.0 - share)) ** (1.0 / p["slope"])


def main(repeats: int = 200, seed: int = 0, plot: str | None = None) -> dict[str, Any]:
    """Fit one experiment and many; return the errors of the one, and how often bands of the many hold the truth."""
    rng = np.random.default_rng(seed)
    fit = experiment(rng)
    print("parameter   truth   found")
    for name, true in TRUTH.items():
        print(f"{name:9} {true:7.2f} {fit.x[name]:7.3f} +- {fit.errors[name]:.3f}")
    dose, error = propagated(lambda p: dose_for(0.9, p), fit)
    print(f"dose with 90% of the effect: {dose:.2f} +- {error:.2f}; {dose_for(0.9, TRUTH):.2f} is right")
