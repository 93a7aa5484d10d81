"""Predators and prey: the rates of Lotka and Volterra, from noisy counts of hares and lynxes.

The law is a differential equation without a solution in closed form. `odeint` solves it with steps as long as the
tolerance allows, and differentiates by the start and by all rates. Least squares on logarithms then find all six
unknowns at once, with the standard errors that the counts allow.
"""

import argparse
from typing import Any

import numpy as np

import numtape as nt
from numtape.implicit import odeint
from numtape.interop.scipy import least_squares

ANIMALS = ("hares", "lynxes")
# Hares alone grow at 0.55 a year, lynxes alone vanish at 0.80; what they do to each other goes with their meetings.
TRUTH = {"start": np.array([30.0, 5.0]), "alone": np.array([0.55, 0.80]), "together": np.array([0.028, 0.024])}
GUESS = {"start": np.array([20.0, 10.0]), "alone": np.array([1.0, 1.0]), "together": np.array([0.05, 0.05])}


def change(t: Any, animals: nt.Tensor, p: dict[str, nt.Tensor]) -> nt.Tensor:
    """Return how fast hares are born and hunted, and how fast lynxes die and are fed."""
    others = animals[::-1]
    return np.array([1.0, -1.0]) * animals * (p["alone"] - p["together"] * others)


def main(years: int = 20, noise: float = 0.1, seed: int = 1, plot: str | None = None) -> dict[str, Any]:
    """Simulate yearly counts and fit them; return the largest error of an unknown, relative and in standard errors."""
    rng = np.random.default_rng(seed)
    times = np.arange(years + 1.0)
    counts = populations(TRUTH, times) * np.exp(noise * rng.standard_normal((years + 1, 2)))

    def residuals(logs: dict[str, nt.Tensor], count: int) -> nt.Tensor:
        # Logarithms keep everything positive, and make errors relative.
        found = populations(nt.tree.map(nt.exp, logs), times[:count])
        return (nt.log(found) - np.log(counts[:count])) / noise

    # The first years before all of them: from a bad guess, cycles of a wrong length would fit every other peak.
    logs = nt.tree.map(np.log, GUESS)
    for count in (years // 4, years // 2, years + 1):
        fit = least_squares(residuals, logs, args=(count,), ftol=1e-8 if count > years else 1e-2)
        logs = fit.x
        size = np.sqrt(np.mean(fit.fun**2))
        print(f"first {count:2} counts: {fit.scipy.nfev:2} steps, residuals {size:.2f} of the noise")

    found = nt.tree.map(np.exp, fit.x)
    print("\nunknown           truth    found   error")
    for name in TRUTH:
        for animal, true, value, error in zip(ANIMALS, TRUTH[name], found[name], fit.errors[name], strict=True):
            print(f"{name:8} {animal:7} {true:6.3f}   {value:6.3f}  {value / true - 1.0:+6.1%} +- {error:.1%}")
    if plot:
        draw(plot, times, counts, found)
    apart = [fit.x[name] - np.log(TRUTH[name]) for name in TRUTH]
    errors = [fit.errors[name] for name in TRUTH]
    return {
        "error": float(np.max(np.abs(apart))),
        "worst": float(np.max(np.abs(apart) / np.array(errors))),
        "residual": float(size),
    }


def populations(p: dict[str, Any], times: np.ndarray) -> Any:
    """Return hares and lynxes at given times, one row for each."""
    return odeint(change, p["start"], times, p)


def draw(path: str, times: np.ndarray, counts: np.ndarray, found: dict[str, Any]) -> None:
    """Save a picture: counts and curves over time, and one against the other."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 4.5), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(3, 2))
    dense = np.linspace(times[0], times[-1], 8 * len(times))
    true, fitted = populations(TRUTH, dense), populations(found, dense)
    for number, colour in enumerate(("tab:orange", "tab:blue")):
        left.plot(times, counts[:, number], "o", color=colour, markersize=5, label=f"{ANIMALS[number]}, counted")
        left.plot(dense, fitted[:, number], color=colour, label=f"{ANIMALS[number]}, fitted")
        left.plot(dense, true[:, number], "--", color="black", linewidth=1.0, label="truth" if number else None)
    left.set(xlabel="year", ylabel="animals", ylim=(0.0, 1.35 * counts.max()), xticks=times[::5])
    left.legend(loc="upper center", ncols=3, frameon=False)
    right.plot(*counts.T, "o", color="tab:gray", markersize=5, label="counted")
    right.plot(*fitted.T, color="tab:green", label="fitted")
    right.plot(*true.T, "--", color="black", linewidth=1.0, label="truth")
    right.set(xlabel="hares", ylabel="lynxes")
    right.legend(frameon=False)
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--plot", metavar="FILE", help="save a picture there; needs numtape[plot]")
    main(**vars(parser.parse_args()))
