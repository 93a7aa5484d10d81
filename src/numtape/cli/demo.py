"""Fit a small real problem on a tape: the planets' distances and years, and the law behind them."""

from typing import Any, TextIO

import numpy as np

from ..creation import tensor
from ..grad_mode import no_grad
from ..tapes import Tape
from ..tensors import Tensor
from ..testing.gradients import check_gradients

#: Semi-major axis in astronomical units and sidereal period in years.
PLANETS = {
    "Mercury": (0.38710, 0.24085),
    "Venus": (0.72333, 0.61520),
    "Earth": (1.00000, 1.00002),
    "Mars": (1.52368, 1.88082),
    "Jupiter": (5.20260, 11.86262),
    "Saturn": (9.55491, 29.44750),
    "Uranus": (19.21845, 84.01685),
    "Neptune": (30.11039, 164.79132),
}
LEARNING_RATE = 0.05


def misfit(exponent: Any, log_factor: Any, distance: Any, period: Any) -> Any:
    """Return the mean squared error of log(period) = log_factor + exponent * log(distance)."""
    residual = log_factor + exponent * distance.log() - period.log()
    return (residual * residual).mean()


def curve(losses: list[float], height: int = 10, width: int = 60) -> str:
    """Return losses over steps as a picture of characters, on a logarithmic scale."""
    logs = np.log10(np.maximum(losses, 1e-300))
    columns = [float(part[-1]) for part in np.array_split(logs, min(width, len(logs)))]
    low, high = min(columns), max(columns)
    levels = [round((value - low) / ((high - low) or 1.0) * (height - 1)) for value in columns]
    lines = []
    for level in range(height - 1, -1, -1):
        label = f"{10 ** (low + (high - low) * level / (height - 1)):8.1e}" if level in (0, height - 1) else " " * 8
        lines.append(f"{label} |" + "".join("*" if at == level else " " for at in levels).rstrip())
    return "\n".join([*lines, f"{'':8} +{'-' * len(columns)} {len(losses)} steps"])


def fit(steps: int) -> tuple[Tensor, Tensor, list[float], str]:
    """Return exponent, log factor, the loss at each step, and the summary of the first step's tape."""
    distance = tensor([d for d, _ in PLANETS.values()], dtype="float64", name="distance")
    period = tensor([p for _, p in PLANETS.values()], dtype="float64", name="period")
    exponent = tensor(1.0, dtype="float64", requires_grad=True, name="exponent")
    log_factor = tensor(0.5, dtype="float64", requires_grad=True, name="log_factor")
    losses: list[float] = []
    summary = ""
    tape = Tape()
    for _ in range(steps):
        with tape:
            loss = misfit(exponent, log_factor, distance, period)
        summary = summary or tape.summary()
        gradients = tape.backward(loss)
        with no_grad():
            for parameter in (exponent, log_factor):
                parameter -= LEARNING_RATE * gradients[parameter]
        losses.append(loss.item())
    return exponent, log_factor, losses, summary


def run(steps: int, out: TextIO) -> int:
    """Run the demo and write what happens."""
    print("Eight planets: distance from the sun (au) and length of the year (years).", file=out)
    for name, (distance, period) in PLANETS.items():
        print(f"  {name:8} {distance:9.5f} {period:10.5f}", file=out)
    print(f"\nFitting  period = factor * distance ** exponent  with {steps} gradient steps on a tape.\n", file=out)
    exponent, log_factor, losses, summary = fit(steps)
    print("The tape of the first step, before backward:", file=out)
    print(summary, file=out)
    arrays = [np.array(column) for column in zip(*PLANETS.values(), strict=True)]
    names = {"exponent": 1.0, "log_factor": 0.5, "distance": arrays[0], "period": arrays[1]}
    check = check_gradients(misfit, *(tensor(data, dtype="float64", name=name) for name, data in names.items()))
    print("\nGradients against difference quotients:", file=out)
    print(check, file=out)
    print("\nLoss (mean squared error of the logarithms):", file=out)
    print(curve(losses), file=out)
    print(
        f"\nexponent = {exponent.item():.4f}, factor = {float(np.exp(log_factor.item())):.4f}."
        "  Kepler's third law (1619) says 1.5 and 1.",
        file=out,
    )
    return 0 if check.is_valid else 1
