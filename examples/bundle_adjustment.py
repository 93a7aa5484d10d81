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
from scipy.sparse import diags_array
from scipy.sparse.linalg import spsolve

import numtape as nt

FOCAL = 800.0


def main(
    cameras: int = 8, points: int = 120, noise: float = 1.0, seed: int = 0, plot: str | None = None
) -> dict[str, Any]:
    """Start from wrong cameras and points; return how far off pictures and points are, before and after."""
    rng = np.random.default_rng(seed)
    true_poses, truth = world(cameras, points, rng)
    # Cameras miss some points, but the first and the last see all.
    is_seen = rng.random((cameras, points)) < 0.7
    is_seen[[0, -1]] = True
    camera, point = np.nonzero(is_seen)
    seen = FOCAL * project(true_poses[camera], truth[point]) + noise * rng.standard_normal((len(camera), 2))

    def residuals(unknown: nt.Tensor) -> nt.Tensor:
        poses, places = unknown[: 6 * cameras].reshape(cameras, 6), unknown[6 * cameras :].reshape(points, 3)
        return (FOCAL * project(poses[camera], places[point]) - seen).reshape(-1)

    start = np.concatenate([true_poses.ravel(), truth.ravel()])
    start += np.repeat((0.05, 0.2), (6 * cameras, 3 * points)) * rng.standard_normal(len(start))
    jacobian = nt.jacobian(residuals, sparse=True)
    unknown, pixels = levenberg_marquardt(residuals, jacobian, start)

    before, after = (aligned(x[6 * cameras :].reshape(points, 3), truth) for x in (start, unknown))
    first_error, error = (float(np.sqrt(np.mean((places - truth) ** 2))) for places in (before, after))
    pattern = jacobian(start)
    share = pattern.nnz / np.prod(pattern.shape)
    # Noise that the unknowns could not follow; seven of them move, turn and scale the world and follow nothing.
    expected = noise * np.sqrt(1.0 - (len(start) - 7) / (2 * len(camera)))
    print(f"{2 * len(camera)} residuals, {len(start)} unknowns; {share:.1%} of the Jacobian is not zero")
    print(f"pictures off by {pixels[0]:.1f} pixels at first, by {pixels[-1]:.3f} after {len(pixels) - 1} steps")
    print(f"(noise alone leaves {expected:.3f}); points off by {first_error:.3f} at first, by {error:.4f} in the end")
    if plot:
        draw(plot, truth, before, after, pattern)
    return {
        "pixels": pixels[-1],
        "expected": expected,
        "error": error,
        "first_error": first_error,
        "steps": len(pixels) - 1,
        "share": share,
    }


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
    residuals: Callable[[Any], Any], jacobian: Callable[[np.ndarray], Any], x: np.ndarray, steps: int = 50
) -> tuple[np.ndarray, list[float]]:
    """Return where the sum of squares is least, and the root mean squares on the way there."""
    r, damping, sizes = residuals(x), 1e-3, []
    is_new = True
    for _ in range(steps):
        if is_new:
            j = jacobian(x)
            normal, slope = (j.T @ j).tocsc(), j.T @ r
            sizes.append(float(np.sqrt(np.mean(r**2))))
        # Without damping this is a step of Gauss and Newton, with much of it a short one downhill.
        trial = x - spsolve(normal + diags_array(damping * normal.diagonal(), format="csc"), slope)
        new = residuals(trial)
        gain = r @ r - new @ new
        is_new = gain > 0.0
        if is_new:
            x, r = trial, new
        damping *= 0.2 if is_new else 5.0
        if abs(gain) <= 1e-9 * (r @ r):
            break
    return x, [*sizes, float(np.sqrt(np.mean(r**2)))]


def world(cameras: int, points: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Return cameras that walk a third of the way round a spring and look at it, and the points of the spring."""
    turns = np.linspace(-3.0 * np.pi, 3.0 * np.pi, points)
    places = np.stack([np.cos(turns), turns / (3.0 * np.pi), np.sin(turns)], axis=1)
    poses = np.zeros((cameras, 6))
    poses[:, 1] = np.linspace(0.0, 2.0, cameras)
    poses[:, 5] = 5.0
    poses += 0.02 * rng.standard_normal(poses.shape)
    return poses, places


def aligned(places: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """Return places moved, turned and scaled to be as near to the truth as they get (Umeyama, 1991)."""
    a, b = places - places.mean(axis=0), truth - truth.mean(axis=0)
    u, s, v = np.linalg.svd(b.T @ a)
    signs = np.array([1.0, 1.0, np.sign(np.linalg.det(u @ v))])
    return truth.mean(axis=0) + (s @ signs) / np.sum(a * a) * a @ (u * signs @ v).T


def draw(path: str, truth: np.ndarray, before: np.ndarray, after: np.ndarray, pattern: Any) -> None:
    """Save a picture: the points at first and in the end, and where the Jacobian is not zero."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(13, 4.6), layout="constrained")
    for number, places, title in ((1, before, "at first"), (2, after, "in the end")):
        axes = figure.add_subplot(1, 3, number, projection="3d")
        # The vertical is the second axis.
        axes.plot(*truth[:, (0, 2, 1)].T, color="black", linewidth=1.0, label="truth")
        axes.plot(*places[:, (0, 2, 1)].T, "o", color="tab:orange", markersize=3, label="points")
        axes.set(title=title, xlim=(-1.4, 1.4), ylim=(-1.4, 1.4), zlim=(-1.4, 1.4))
        axes.set(xticks=(-1, 0, 1), yticks=(-1, 0, 1), zticks=(-1, 0, 1))
        axes.set_box_aspect((1, 1, 1))
        axes.legend(loc="upper left", frameon=False)
    axes = figure.add_subplot(1, 3, 3)
    axes.spy(pattern, markersize=0.6, aspect="auto", color="tab:blue")
    axes.set(title="the Jacobian", xlabel="cameras, then points", ylabel="residuals", xticks=[], yticks=[])
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--plot", metavar="FILE", help="save a picture there; needs numtape[plot]")
    main(**vars(parser.parse_args()))
