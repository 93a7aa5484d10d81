"""Functions with sparse derivatives, as users write them, and how to compare these with dense ones."""

import numpy as np

import numtape as nt


def assert_same(sparse, dense, tolerance=1e-11):
    """Compare a sparse matrix with a dense derivative, relative to its largest entry."""
    dense = np.asarray(dense).reshape(sparse.shape)
    scale = max(1.0, float(np.abs(dense).max(initial=0.0, where=np.isfinite(dense))))
    np.testing.assert_allclose(sparse.toarray(), dense, rtol=tolerance, atol=tolerance * scale)


def laplacian_by_slices(u):
    middle = u[1:-1, 1:-1]
    return u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2] - 4.0 * middle + middle**2


def laplacian_by_rolls(u):
    return np.roll(u, 1, 0) + np.roll(u, -1, 0) + np.roll(u, 1, 1) + np.roll(u, -1, 1) - 4.0 * u + np.sin(u)


def laplacian_by_padding(u):
    p = np.pad(u, 1)
    return p[2:, 1:-1] + p[:-2, 1:-1] + p[1:-1, 2:] + p[1:-1, :-2] - 4.0 * u + np.exp(-u)


def laplacian_by_differences(u):
    across = np.diff(np.pad(u, ((1, 1), (0, 0))), 2, axis=0)
    along = np.diff(np.pad(u, ((0, 0), (1, 1))), 2, axis=1)
    return across + along + u**3


def laplacian_by_convolution(u):
    kernel = np.array([[0.0, 1.0, 0.0], [1.0, -4.0, 1.0], [0.0, 1.0, 0.0]])
    return nt.conv2d(u[None, None], kernel[None, None], padding=1)[0, 0] + u * u


def burgers(u):
    """One step of Burgers' equation, upwind."""
    left = np.roll(u, 1)
    return u - 0.1 * np.where(u.detach().numpy() > 0.0, u * (u - left), u * (np.roll(u, -1) - u))


def neural_ode_residuals(states):
    """How far a path is from following a small network, by the midpoint rule: each row couples two states."""
    rng = np.random.default_rng(5)
    first, second = rng.normal(size=(3, 8)), rng.normal(size=(8, 3))
    middle = 0.5 * (states[1:] + states[:-1])
    return states[1:] - states[:-1] - 0.1 * np.tanh(middle @ first) @ second


def thomas(diagonal):
    """Solve a tridiagonal system with ones beside the diagonal, by elimination, for its last five unknowns."""
    n = diagonal.shape[0]
    pivots, right = [diagonal[0]], [1.0]
    for i in range(1, n):
        factor = 1.0 / pivots[-1]
        pivots.append(diagonal[i] - factor)
        right.append(1.0 - factor * right[-1])
    return nt.stack([a / b for a, b in zip(right, pivots, strict=True)][:5])


def bundle(cameras, points, observations, seed=0):
    """Return the residuals of bundle adjustment, and parameters: six of each camera, three of each point."""
    rng = np.random.default_rng(seed)
    camera_of, point_of = rng.integers(cameras, size=observations), rng.integers(points, size=observations)
    seen = rng.normal(size=(observations, 2))

    def residuals(camera, point):
        pose, place = camera[camera_of], nt.take(point, point_of, axis=0)
        angle = np.sqrt((pose[:, :3] ** 2).sum(axis=1, keepdims=True))
        axis = pose[:, :3] / angle
        along = np.einsum("ni,ni->n", axis, place)[:, None]
        turned = np.cos(angle) * place + np.sin(angle) * np.cross(axis, place) + (1.0 - np.cos(angle)) * along * axis
        moved = turned + pose[:, 3:] + np.array([0.0, 0.0, 5.0])
        return moved[:, :2] / moved[:, 2:] - seen

    return residuals, rng.normal(0.0, 0.3, (cameras, 6)), rng.normal(size=(points, 3))


def random_program(seed):
    """Return a function of a vector of 12 elements, made of ops that move, mix and bend."""
    rng = np.random.default_rng(seed)
    index = rng.integers(12, size=12)
    mask = rng.random(12) > 0.5
    matrix = rng.normal(size=(12, 12)) * (rng.random((12, 12)) < 0.15)
    segments = rng.integers(12, size=12)
    steps = [
        lambda v: v[index] * v,
        lambda v: np.roll(v, 3) + np.sin(v),
        lambda v: np.where(mask, v, v**2),
        lambda v: matrix @ v,
        lambda v: nt.concat([v[6:], v[:6] * 0.5]),
        lambda v: np.tanh(v.reshape(3, 4) - v.reshape(3, 4).mean(axis=1, keepdims=True)).reshape(-1),
        lambda v: np.pad(np.diff(v), (0, 1)) + v,
        lambda v: nt.segment_sum(v, segments, 12),
        lambda v: nt.softmax(v.reshape(4, 3), axis=0).reshape(-1) * v,
        lambda v: nt.flip(v) / (2.0 + np.cos(v)),
        lambda v: np.convolve(v, np.array([1.0, 0.0, -1.0]), "same"),
        lambda v: (v.reshape(2, 6).T @ np.array([[0.0, 1.0], [2.0, 0.0]])).reshape(-1),
        lambda v: nt.cumsum(v.reshape(6, 2), axis=1).reshape(-1),
        lambda v: nt.repeat(v[:6], 2) * 0.3 + v,
    ]
    chosen = [steps[i] for i in rng.integers(len(steps), size=4)]

    def program(v):
        for step in chosen:
            v = step(v)
        return v

    return program
