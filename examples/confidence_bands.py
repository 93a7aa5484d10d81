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
from numtape.uncertainty import propagate

TRUTH = {"bottom": 0.1, "top": 2.0, "half": 3.0, "slope": 1.6}
GUESS = {"bottom": 0.0, "top": 1.0, "half": 1.0, "slope": 1.0}
DOSES = np.repeat(np.geomspace(0.1, 60.0, 12), 2)
CURVE = np.geomspace(0.05, 120.0, 60)


def response(dose: np.ndarray, p: dict[str, Any]) -> Any:
    """Return the effect of a dose: from bottom to top, and in the middle between them at half (Hill, 1910)."""
    return p["bottom"] + (p["top"] - p["bottom"]) / (1.0 + nt.exp(p["slope"] * (nt.log(p["half"]) - np.log(dose))))


def main(repeats: int = 150, noise: float = 0.08, seed: int = 2, plot: str | None = None) -> dict[str, Any]:
    """Fit one experiment and many; return the errors of the one, and how often bands of the many hold the truth."""
    rng = np.random.default_rng(seed)
    measured = response(DOSES, TRUTH) + noise * rng.standard_normal(DOSES.shape)
    fit = curve_fit(response, DOSES, measured, GUESS, bounds=(0.0, None))
    print("parameter   truth   found")
    for name, true in TRUTH.items():
        print(f"{name:9} {true:7.2f} {fit.x[name]:7.3f} +- {fit.errors[name]:.3f}")
    dose = propagate(lambda p: dose_for(0.9, p), fit.x, fit.covariance)
    print(f"90% of the effect: dose {dose.value:.2f} +- {dose.errors:.2f}; {dose_for(0.9, TRUTH):.2f} is right")

    is_held = np.zeros((repeats, len(CURVE)))
    for row in is_held:
        other = response(DOSES, TRUTH) + noise * rng.standard_normal(DOSES.shape)
        low, high = band(curve_fit(response, DOSES, other, fit.x))
        row[:] = (low < response(CURVE, TRUTH)) & (response(CURVE, TRUTH) < high)
    coverage = float(is_held.mean())
    print(f"the 95% band holds the curve at {coverage:.1%} of its places, on average over {repeats} experiments")
    if plot:
        draw(plot, measured, fit, is_held.mean(axis=0))
    worst = max(abs(fit.x[name] - true) / fit.errors[name] for name, true in TRUTH.items())
    return {"coverage": coverage, "worst": worst, "dose": dose.value, "dose_error": dose.errors}


def dose_for(share: float, p: dict[str, Any]) -> Any:
    """Return the dose that has a share of the whole effect."""
    return p["half"] * (share / (1.0 - share)) ** (1.0 / p["slope"])


def band(fit: CurveFit, extra: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
    """Return the lower and the upper end of 95% intervals along the curve; `extra` is the error of a measurement."""
    curve = propagate(lambda p: response(CURVE, p), fit.x, fit.covariance)
    reach = student.ppf(0.975, fit.degrees_of_freedom) * np.hypot(curve.errors, extra)
    return curve.value - reach, curve.value + reach


def draw(path: str, measured: np.ndarray, fit: CurveFit, coverage: np.ndarray) -> None:
    """Save a picture: the fit with its bands, and how often the band holds the truth along the curve."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 6), layout="constrained")
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1))
    sigma = np.sqrt(np.sum(fit.fun**2) / fit.degrees_of_freedom)
    upper.fill_between(CURVE, *band(fit, sigma), color="tab:blue", alpha=0.15, label="95% of new measurements")
    upper.fill_between(CURVE, *band(fit), color="tab:blue", alpha=0.4, label="95% confidence of the curve")
    upper.plot(CURVE, response(CURVE, fit.x), color="tab:blue", label="fit")
    upper.plot(CURVE, response(CURVE, TRUTH), "--", color="black", label="truth")
    upper.plot(DOSES, measured, "o", color="tab:orange", markersize=5, label="measured")
    upper.set(xscale="log", ylabel="effect")
    upper.legend(loc="upper left", frameon=False)
    lower.plot(CURVE, coverage, color="tab:blue")
    lower.axhline(0.95, color="black", linestyle="--", linewidth=1.0)
    lower.set(xlabel="dose", ylabel="coverage", ylim=(0.8, 1.0))
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--plot", metavar="FILE", help="save a picture there; needs numtape[plot]")
    main(**vars(parser.parse_args()))
