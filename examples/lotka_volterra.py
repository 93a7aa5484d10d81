"""Predators and prey: the rates of Lotka and Volterra from noisy counts of hares and lynxes.

The law is a differential equation without a closed solution. `odeint` solves it with steps as long as the tolerance
allows, and its derivatives by all rates and by both starts come with it. Least squares on the logarithms then find all
six at once, with the standard errors that the counts allow.
"""

import argparse
from typing import Any

import numpy as np

import numtape as nt
from numtape.implicit import odeint
from numtape.interop.scipy import least_squares

TRUTH = {"hares": 30.0, "lynxes": 5.0, "births": 0.55, "hunting": 0.028, "feeding": 0.024, "deaths": 0.80}


def main(samples: int = 41, noise: float = 0.1, seed: int = 0, plot: str | None = None) -> dict[str, Any]:
    """Simulate twenty years, fit them; return the largest error of a rate, in percent and in standard errors."""
    rng = np.random.default_rng(seed)
    years = np.linspace(0.0, 20.0, samples)
    counts = np.exp(np.log(populations(TRUTH, years)) + noise * rng.standard_normal((samples, 2)))

    def residuals(logs: dict[str, nt.Tensor], count: int) -> nt.Tensor:
        # Logarithms keep all six positive, and make errors relative.
        found = populations(nt.tree.map(nt.exp, logs), years[:count])
        return (nt.log(found) - np.log(counts[:count])) / noise

    # A guess that knows nothing but the order of magnitude. Three years first: over all twenty, cycles of a wrong
    # length fit some peaks and miss others, and least squares would settle there.
    guess = {"hares": 20.0, "lynxes": 10.0, "births": 1.0, "hunting": 0.05, "feeding": 0.05, "deaths": 1.0}
    logs = {name: np.log(value) for name, value in guess.items()}
    for count in (samples // 5, samples // 2, samples):
        fit = least_squares(residuals, logs, args=(count,))
        logs = fit.x

    return {}


def populations(p: dict[str, Any], years: np.ndarray) -> Any:
    """Return hares and lynxes at given times, shape (times, 2)."""
    start = nt.stack([p["hares"], p["lynxes"]])
    return odeint(change, start, years, p)


def change(t: Any, y: Any, p: dict[str, Any]) -> Any:
    """Return how fast both populations grow: hares are born and hunted, lynxes fed by hares, and die."""
    hares, lynxes = y[0], y[1]
    meetings = hares * lynxes
    return nt.stack([p["births"] * hares - p["hunting"] * meetings, p["feeding"] * meetings - p["deaths"] * lynxes])
