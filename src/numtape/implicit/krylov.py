"""Linear systems by products alone: conjugate gradients for symmetric positive ones, GMRES for all."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from .._typing import NDArray

Product = Callable[[NDArray], NDArray]

#: After so many steps GMRES starts again: it keeps a vector for each.
_MOST_STEPS = 100


class Result(NamedTuple):
    """What an iteration came to."""

    x: NDArray
    #: The norm of the residual, over that of the right-hand side.
    residual: float
    iterations: int
    #: The curvature along the direction at which conjugate gradients had to stop, if it was not positive.
    curvature: float | None = None
    #: That direction.
    direction: NDArray | None = None
    #: What the product with x leaves of the right-hand side, if it was looked at.
    rest: NDArray | None = None


def conjugate_gradients(
    product: Product, b: NDArray, tolerance: float, iterations: int, is_rough: bool = False
) -> Result:
    """Solve a symmetric positive definite system.

    Args:
        product: multiplies the matrix by a vector.
        b: the right-hand side.
        tolerance: the relative residual to stop at.
        iterations: at most so many.
        is_rough: whether the residual that the iteration keeps will do, which saves a product: rounding has hardly
            touched it if the tolerance is not small.
    """
    x = np.zeros_like(b)
    size = float(np.linalg.norm(b))
    if size == 0.0:
        return Result(x, 0.0, 0)
    r = b.copy()
    p = r.copy()
    square = float(r @ r)
    best, least = x, 1.0
    for iteration in range(1, iterations + 1):
        product_p = product(p)
        curvature = float(p @ product_p)
        if not curvature > 0.0:
            return Result(best, least, iteration, curvature / float(p @ p), p)
        x = x + (square / curvature) * p
        r = r - (square / curvature) * product_p
        before, square = square, float(r @ r)
        if square**0.5 / size < least:
            best, least = x, square**0.5 / size
        if least <= tolerance or not np.isfinite(square):
            break
        p = r + (square / before) * p
    rest = r if is_rough and least <= tolerance else b - product(best)
    return Result(best, float(np.linalg.norm(rest)) / size, iteration, rest=rest)


def gmres(product: Product, b: NDArray, tolerance: float, iterations: int) -> Result:
    """Solve any system by the generalised minimal residual method."""
    x = np.zeros_like(b)
    size = float(np.linalg.norm(b))
    if size == 0.0:
        return Result(x, 0.0, 0)
    done = 0
    residual = 1.0
    while True:
        r = b - product(x) if done else b
        before, residual = residual, float(np.linalg.norm(r)) / size
        is_stuck = done > 0 and not residual < 0.99 * before
        if residual <= tolerance or done >= iterations or is_stuck:
            return Result(x, residual, done, rest=r)
        step, used = _cycle(product, r, tolerance * size, min(_MOST_STEPS, len(b), iterations - done))
        x = x + step
        done += used


def _cycle(product: Product, r: NDArray, target: float, steps: int) -> tuple[NDArray, int]:
    """Return the correction that makes the residual least over a Krylov space, and how many steps it took."""
    beta = float(np.linalg.norm(r))
    basis = np.empty((steps + 1, len(r)))
    basis[0] = r / beta
    h = np.zeros((steps + 1, steps))
    rotations = np.zeros((steps, 2))
    g = np.zeros(steps + 1)
    g[0] = beta
    used = steps
    for k in range(steps):
        w = product(basis[k])
        length = float(np.linalg.norm(w))
        for _ in range(2):  # Twice is enough to keep the basis orthogonal.
            parts = basis[: k + 1] @ w
            w = w - parts @ basis[: k + 1]
            h[: k + 1, k] += parts
        h[k + 1, k] = np.linalg.norm(w)
        is_full = not h[k + 1, k] > 1e-14 * length
        for i in range(k):
            c, s = rotations[i]
            h[i, k], h[i + 1, k] = c * h[i, k] + s * h[i + 1, k], c * h[i + 1, k] - s * h[i, k]
        radius = float(np.hypot(h[k, k], h[k + 1, k]))
        if radius == 0.0:
            used = k
            break
        rotations[k] = h[k, k] / radius, h[k + 1, k] / radius
        h[k, k], h[k + 1, k] = radius, 0.0
        g[k], g[k + 1] = rotations[k, 0] * g[k], -rotations[k, 1] * g[k]
        if is_full or abs(g[k + 1]) <= target:
            used = k + 1
            break
        basis[k + 1] = w / np.linalg.norm(w)
    if not used:
        return np.zeros_like(r), steps
    weights, *_ = np.linalg.lstsq(h[:used, :used], g[:used], rcond=None)
    return weights @ basis[:used], used
