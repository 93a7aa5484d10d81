"""Tomography: an image from its shadows along far fewer rays than it has pixels.

The rays are a sparse matrix of SciPy; `linear_operator` makes its product with a tensor an op, whose derivative is the
product with the transpose. Least squares alone fill the image with streaks. Total variation, the sum of the lengths of
the gradients, prefers flat regions with sharp edges, and L-BFGS minimises both together.
"""

import argparse

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.linalg import lsqr

import numtape as nt
from numtape.interop.scipy import linear_operator, minimize

#: Centre, half axes, angle in degrees and brightness of the ellipses of the phantom; where they meet they add up.
ELLIPSES = (
    (0.0, 0.0, 0.70, 0.92, 0.0, 0.9),
    (0.0, 0.02, 0.64, 0.85, 0.0, -0.6),
    (0.24, 0.0, 0.13, 0.32, -18.0, -0.25),
    (-0.24, 0.0, 0.17, 0.42, 18.0, -0.25),
    (0.0, -0.38, 0.22, 0.16, 0.0, 0.4),
    (0.0, 0.55, 0.11, 0.07, 0.0, 0.5),
    (-0.25, 0.58, 0.05, 0.05, 0.0, 0.5),
    (0.22, 0.60, 0.04, 0.07, 0.0, 0.5),
)


def main(
    size: int = 96, angles: int = 30, noise: float = 0.01, weight: float = 10.0, seed: int = 0, plot: str | None = None
) -> dict[str, float]:
    """Reconstruct the phantom; return the relative errors without and with total variation, and the misfit."""
    truth = phantom(size)
    rays = ray_matrix(size, angles)
    shadows = rays @ truth.ravel()
    sigma = noise * shadows.max()
    measured = shadows + sigma * np.random.default_rng(seed).standard_normal(len(shadows))
    project = linear_operator(rays)

    def objective(image: nt.Tensor) -> nt.Tensor:
        misfit = (project @ image.reshape(-1) - measured) / sigma
        return 0.5 * (misfit**2).sum() + weight * total_variation(image)

    # Brightness is not negative.
    answer = minimize(objective, np.zeros((size, size)), method="L-BFGS-B", bounds=(0.0, None))
    least_squares = min(
        (lsqr(rays, measured, iter_lim=count)[0].reshape(size, size) for count in (5, 10, 15, 20, 30)),
        key=lambda image: distance(image, truth),
    )
    error, plain_error = distance(answer.x, truth), distance(least_squares, truth)
    misfit = float(np.sqrt(np.mean((rays @ answer.x.ravel() - measured) ** 2)) / sigma)
    print(
        f"{size * size} pixels from {len(measured)} rays; {rays.nnz / np.prod(rays.shape):.1%} of the matrix is not 0"
    )
    print(f"error of least squares, stopped when best: {plain_error:.1%}")
    print(f"error with total variation: {error:.1%}, after {answer.scipy.nit} steps; misfit {misfit:.2f} of the noise")
    if plot:
        draw(plot, truth, measured.reshape(angles, size), least_squares, answer.x)
    return {"error": error, "plain_error": plain_error, "misfit": misfit}


def total_variation(image: nt.Tensor) -> nt.Tensor:
    """Return the sum of the lengths of the image's gradients, rounded off near 0 so that it has a derivative there."""
    across, down = nt.diff(image, axis=1)[:-1], nt.diff(image, axis=0)[:, :-1]
    return nt.sqrt(across**2 + down**2 + 1e-4).sum()


def ray_matrix(size: int, angles: int) -> csr_array:
    """Return the matrix from the pixels of an image to its integrals along parallel rays, `size` for each angle."""
    middle = (size - 1) / 2
    offset = np.arange(size)[:, None] - middle
    along = np.arange(-0.75 * size, 0.75 * size, 0.5)
    rows, columns, weights = [], [], []
    for number, angle in enumerate(np.linspace(0.0, np.pi, angles, endpoint=False)):
        x = middle + offset * np.cos(angle) - along * np.sin(angle)
        y = middle + offset * np.sin(angle) + along * np.cos(angle)
        ray = np.broadcast_to(np.arange(size)[:, None] + number * size, x.shape)
        # Each sample of a ray is shared by the four pixels around it.
        for column, row in ((np.floor(x) + i, np.floor(y) + j) for i in (0, 1) for j in (0, 1)):
            is_inside = (column >= 0) & (column < size) & (row >= 0) & (row < size)
            rows.append(ray[is_inside])
            columns.append((row * size + column)[is_inside].astype(int))
            weights.append((0.5 * (1.0 - np.abs(x - column)) * (1.0 - np.abs(y - row)))[is_inside])
    entries = np.concatenate(weights), (np.concatenate(rows), np.concatenate(columns))
    return csr_array(entries, shape=(angles * size, size * size))


def phantom(size: int) -> np.ndarray:
    """Return a head of ellipses, in the manner of Shepp and Logan."""
    y, x = np.mgrid[-1.0 : 1.0 : size * 1j, -1.0 : 1.0 : size * 1j]
    image = np.zeros((size, size))
    for centre_x, centre_y, width, height, degrees, brightness in ELLIPSES:
        turn = np.exp(-1j * np.deg2rad(degrees)) * (x - centre_x + 1j * (y - centre_y))
        image[(turn.real / width) ** 2 + (turn.imag / height) ** 2 <= 1.0] += brightness
    return image


def distance(image: np.ndarray, truth: np.ndarray) -> float:
    """Return the relative error of an image."""
    return float(np.linalg.norm(image - truth) / np.linalg.norm(truth))


def draw(path: str, truth: np.ndarray, shadows: np.ndarray, least_squares: np.ndarray, found: np.ndarray) -> None:
    """Save a picture: the truth, its shadows, and both reconstructions."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(13, 3.75), layout="constrained")
    titles = (
        "truth",
        f"its shadows at {len(shadows)} angles",
        f"least squares: error {distance(least_squares, truth):.0%}",
        f"with total variation: error {distance(found, truth):.0%}",
    )
    panels = zip(figure.subplots(1, 4), (truth, shadows, least_squares, found), titles, strict=True)
    for axes, image, title in panels:
        brightest = shadows.max() if image is shadows else truth.max()
        axes.imshow(image, cmap="gray", aspect="auto", vmin=0.0, vmax=brightest)
        axes.set(title=title, xticks=[], yticks=[], box_aspect=1.0)
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--plot", metavar="FILE", help="save a picture there; needs numtape[plot]")
    main(**vars(parser.parse_args()))
