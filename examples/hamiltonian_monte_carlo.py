"""Bayesian logistic regression with a Hamiltonian Monte Carlo sampler in 40 lines: where does one class end?

Points are told apart by a curve of second degree, and labels near it are noisy. Chains are rows of one array, and one
`vjp` gives the gradients of all of them. The truth is known, so the report says how far from it the posterior is, and
also whether the chains agree (R-hat near 1) and how far they wander (acceptance, effective draws).
"""

import argparse
from collections.abc import Callable
from typing import Any

import numpy as np

import numtape as nt

NAMES = ("1", "x", "y", "x²", "xy", "y²")
TRUTH = np.array([2.5, 0.8, -0.6, -2.0, 1.5, -2.6])


def sample(
    log_density: Callable[[nt.Tensor], nt.Tensor], start: np.ndarray, warm_up: int, draws: int, seed: int
) -> tuple[np.ndarray, float]:
    """Return draws from a density, shape (draws, chains, dimensions), and the share of proposals that were accepted.

    `log_density` takes states, one a row, to one number each; `start` has a row for each chain. The steps of `warm_up`
    tune the step size and the scale of each dimension, and are thrown away.
    """
    rng = np.random.default_rng(seed)

    def climb(q: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        height, pull = nt.vjp(log_density, q, argnums=0)
        return height, pull(np.ones(len(q)))

    q, scale, step = start, np.ones(start.shape[1]), 0.1
    height, slope = climb(q)
    kept, accepted = [], []
    for i in range(warm_up + draws):
        p = rng.standard_normal(q.shape)
        energy = 0.5 * (p**2).sum(axis=1) - height
        new_q, new_slope = q, slope
        # A trajectory of the leapfrog; its length varies, so that no chain comes back to where it began every time.
        pace = step * scale * rng.uniform(0.8, 1.2)
        for _ in range(rng.integers(6, 13)):
            p = p + 0.5 * pace * new_slope
            new_q = new_q + pace * p
            new_height, new_slope = climb(new_q)
            p = p + 0.5 * pace * new_slope
        chance = np.exp(np.minimum(0.0, energy - 0.5 * (p**2).sum(axis=1) + new_height))
        is_taken = rng.random(len(q)) < chance
        height = np.where(is_taken, new_height, height)
        q, slope = (np.where(is_taken[:, None], new, old) for new, old in ((new_q, q), (new_slope, slope)))
        kept.append(q)
        accepted.append(is_taken.mean())
        if i < warm_up:
            step *= np.exp((chance.mean() - 0.8) / np.sqrt(i + 1.0))
        if i == warm_up // 2:
            scale, step = np.concatenate(kept[i // 2 :]).std(axis=0), 0.3
    return np.array(kept[warm_up:]), float(np.mean(accepted[warm_up:]))


def main(
    points: int = 400, draws: int = 500, chains: int = 4, seed: int = 0, plot: str | None = None
) -> dict[str, Any]:
    """Sample the posterior of the curve; return its distance from the truth and how well the chains mixed."""
    rng = np.random.default_rng(seed)
    places = rng.uniform(-2.0, 2.0, (points, 2))
    x = features(places)
    labels = (rng.random(points) < 1.0 / (1.0 + np.exp(-x @ TRUTH))).astype(float)

    def log_posterior(w: nt.Tensor) -> nt.Tensor:
        scores = w @ x.T
        # Coefficients are N(0, 5) beforehand.
        return (labels * scores - nt.softplus(scores)).sum(axis=1) - 0.5 * ((w / 5.0) ** 2).sum(axis=1)

    start = rng.standard_normal((chains, len(TRUTH)))
    found, acceptance = sample(log_posterior, start, warm_up=draws, draws=draws, seed=seed + 1)

    r_hat, effective = diagnose(found)
    every = found.reshape(-1, len(TRUTH))
    mean, spread = every.mean(axis=0), every.std(axis=0)
    low, high = np.quantile(every, (0.05, 0.95), axis=0)
    covered = int(np.sum((low < TRUTH) & (high > TRUTH)))

    print("term   truth    mean      90% interval    R-hat  effective draws")
    for row in zip(NAMES, TRUTH, mean, low, high, r_hat, effective, strict=True):
        print("{:4} {:7.2f} {:7.2f}  [{:6.2f}, {:6.2f}]   {:.3f}  {:15.0f}".format(*row))
    # The boundary is what was asked for: how much of the square is on the wrong side of the mean curve?
    grid = features(np.stack(np.meshgrid(*2 * [np.linspace(-2.0, 2.0, 101)]), axis=-1).reshape(-1, 2))
    misplaced = float(np.mean((grid @ mean > 0.0) != (grid @ TRUTH > 0.0)))
    print(f"\n{chains} chains of {draws} draws, {acceptance:.0%} of the proposals accepted")
    print(f"{covered} of {len(TRUTH)} intervals hold the truth; {misplaced:.1%} of the square is on the wrong side")
    if plot:
        draw(plot, places, labels, every, low, high, mean)
    return {
        "acceptance": acceptance,
        "r_hat": float(r_hat.max()),
        "effective": float(effective.min()),
        "covered": covered,
        "distance": float(np.max(np.abs(mean - TRUTH) / spread)),
        "misplaced": misplaced,
    }


def features(places: np.ndarray) -> np.ndarray:
    """Return the terms of second degree of points, one point a row."""
    x, y = places.T
    return np.stack([np.ones_like(x), x, y, x * x, x * y, y * y], axis=1)


def diagnose(found: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return split R-hat and the number of effective draws of each dimension (Gelman and others, 2013)."""
    half = len(found) // 2
    parts = np.concatenate([found[:half], found[half : 2 * half]], axis=1)
    within = parts.var(axis=0, ddof=1).mean(axis=0)
    between = parts.mean(axis=0).var(axis=0, ddof=1)
    total = within * (half - 1) / half + between
    # Correlations with later draws, summed in pairs until a pair falls below zero.
    correlations = [np.ones_like(total)]
    for lag in range(1, half // 2):
        variogram = ((parts[lag:] - parts[:-lag]) ** 2).mean(axis=(0, 1))
        correlations.append(1.0 - variogram / (2.0 * total))
    pairs = np.array(correlations[: len(correlations) // 2 * 2]).reshape(-1, 2, len(total)).sum(axis=1)
    pairs *= np.cumprod(pairs > 0.0, axis=0)
    return np.sqrt(total / within), parts.shape[0] * parts.shape[1] / (2.0 * pairs.sum(axis=0) - 1.0)


def draw(
    path: str,
    places: np.ndarray,
    labels: np.ndarray,
    every: np.ndarray,
    low: np.ndarray,
    high: np.ndarray,
    mean: np.ndarray,
) -> None:
    """Save a picture: data with curves of the posterior, and the coefficients with their intervals."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 5), layout="constrained")
    left, right = figure.subplots(1, 2)
    side = np.linspace(-2.0, 2.0, 161)
    grid = features(np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2))

    def curve(w: np.ndarray, **style: Any) -> None:
        left.contour(side, side, (grid @ w).reshape(161, 161), levels=[0.0], **style)

    for w in every[:: len(every) // 60]:
        curve(w, colors="tab:blue", alpha=0.15, linewidths=1.0)
    curve(TRUTH, colors="black", linewidths=2.0)
    for value, colour in ((0.0, "tab:gray"), (1.0, "tab:orange")):
        left.scatter(*places[labels == value].T, s=12, color=colour, label=f"class {value:.0f}")
    left.plot([], [], color="black", linewidth=2.0, label="true boundary")
    left.plot([], [], color="tab:blue", alpha=0.5, label="draws of the posterior")
    left.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=4, frameon=False, columnspacing=1.0)
    left.set(xlabel="x", ylabel="y", aspect="equal")

    rows = np.arange(len(TRUTH))[::-1]
    right.hlines(rows, low, high, color="tab:blue", linewidth=5.0, alpha=0.4, label="90% of the posterior")
    right.plot(mean, rows, "o", color="tab:blue", label="mean")
    right.plot(TRUTH, rows, "|", color="black", markersize=18, markeredgewidth=2.0, label="truth")
    right.set(xlabel="coefficient", yticks=rows, yticklabels=NAMES)
    right.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3, frameon=False)
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--plot", metavar="FILE", help="save a picture there; needs numtape[plot]")
    main(**vars(parser.parse_args()))
