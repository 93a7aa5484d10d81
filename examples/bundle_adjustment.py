"""Bundle adjustment: where did the cameras stand, and where are the points that their pictures show?

Every residual depends on one camera and one point, so the Jacobian is almost empty. Its pattern is read off the
recorded graph once; each step of Levenberg and Marquardt then costs a few sweeps and the solution of sparse equations.
Pictures tell neither place nor direction nor size of the world, so what was found is moved, turned and scaled onto the
truth before distances are measured.
"""

import argparse
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.sparse import diags_array, sparray
from scipy.sparse.linalg import spsolve

import numtape as nt


def main(
    cameras: int = 8, points: int = 120, pixels: float = 1.0, seed: int = 0, plot: str | None = None
) -> dict[str, Any]:
    """Start from wrong cameras and points; return the errors of both before and after, in pixels and lengths."""
    rng = np.random.default_rng(seed)
    true_poses, true_points = world(cameras, points, rng)
    # Who sees what: each point is missed by some cameras.
    camera, point = np.nonzero(rng.random((cameras, points)) < 0.7)
    focal = 800.0
    noise = pixels * rng.standard_normal((len(camera), 2))
    seen = project(true_poses[camera], true_points[point]) * focal + noise

    def residuals(flat: nt.Tensor) -> nt.Tensor:
        poses, places = flat[: 6 * cameras].reshape(cameras, 6), flat[6 * cameras :].reshape(points, 3)
        return ((project(poses[camera], places[point]) * focal - seen) / pixels).reshape(-1)

    start = np.concatenate(
        [
            (true_poses + 0.05 * rng.standard_normal(true_poses.shape)).ravel(),
            (true_points + 0.2 * rng.standard_normal(true_points.shape)).ravel(),
        ]
    )
    jacobian = nt.jacobian(residuals, sparse=True)
    found, costs = levenberg_marquardt(residuals, jacobian, start)

    share = jacobian(start).nnz / (2 * len(camera) * len(start))
    places = aligned(found[6 * cameras :].reshape(points, 3), true_points)
    first_places = aligned(start[6 * cameras :].reshape(points, 3), true_points)
    error, first_error = (np.sqrt(np.mean((p - true_points) ** 2)) for p in (places, first_places))
    print(f"{2 * len(camera)} residuals, {len(start)} unknowns; {share:.1%} of the Jacobian is not zero")
    print(f"off by {pixels * costs[0]:.1f} pixels at first, {pixels * costs[-1]:.3f} after {len(costs) - 1} steps")
    print(f"points off by {first_error:.3f} at first, {error:.4f} in the end")


def project(poses: nt.Tensor, places: nt.Tensor) -> nt.Tensor:
    """Return where cameras (a rotation vector and a translation, one row each) see places (one row each)."""
    turn, move = poses[:, :3], poses[:, 3:]
    # Rodrigues' formula. The summand under the root keeps the derivative finite where nothing is turned.
    angle = nt.sqrt((turn**2).sum(axis=1, keepdims=True) + 1e-20)
    axis = turn / angle
    along = (axis * places).sum(axis=1, keepdims=True) * axis
    turned = places * nt.cos(angle) + nt.cross(axis, places) * nt.sin(angle) + along * (1.0 - nt.cos(angle))
    inside = turned + move
    return inside[:, :2] / inside[:, 2:]


def levenberg_marquardt(
    residuals: Callable[[Any], Any], jacobian: Callable[[np.ndarray], sparray], x: np.ndarray, steps: int = 50
) -> tuple[np.ndarray, list[float]]:
    """Return where the sum of squares is least, and the root mean squares on the way."""
    damping, r = 1e-3, residuals(x)
    sizes = [np.sqrt(np.mean(r**2))]
    for _ in range(steps):
        j = jacobian(x)
        normal, slope = (j.T @ j).tocsc(), j.T @ r
        is_better = False
        while not is_better and damping < 1e12:
            trial = x - spsolve(normal + diags_array(damping * normal.diagonal()), slope)
            new = residuals(trial)
            is_better = new @ new < r @ r
            damping *= 0.2 if is_better else 5.0
        if not is_better:
            break
        x, r = trial, new
        sizes.append(np.sqrt(np.mean(r**2)))
        if sizes[-1] > (1.0 - 1e-9) * sizes[-2]:
            break
    return x, sizes


def world(cameras: int, points: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Return cameras on a circle that look at its middle, and points on a helix and on the ground."""
    height = np.linspace(-1.0, 1.0, points)
    wide = np.stack([np.cos(9.0 * height), height, np.sin(9.0 * height)], axis=1)
    places = wide + 0.05 * rng.standard_normal(wide.shape)
    poses = np.zeros((cameras, 6))
    # A camera at angle a around the vertical sees the world turned by -a, five lengths away.
    poses[:, 1] = np.linspace(0.0, 2.0, cameras)
    poses[:, 5] = 5.0
    return poses, places


def aligned(places: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """Return places moved, turned and scaled to be as near to the truth as they get (Umeyama, 1991)."""
    a, b = places - places.mean(axis=0), truth - truth.mean(axis=0)
    u, s, v = np.linalg.svd(b.T @ a)
    signs = np.array([1.0, 1.0, np.sign(np.linalg.det(u @ v))])
    return truth.mean(axis=0) + (s @ signs) / np.sum(a * a) * a @ (u * signs @ v).T


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--plot", metavar="FILE", help="save a picture there; needs numtape[plot]")
    main(**vars(parser.parse_args()))
