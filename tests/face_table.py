"""Public functions that are written by hand around an op: what they take, every way to call them, and a reference."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.special

import numtape as nt

X = np.array([[1.0, 5.0, 3.0], [4.0, 2.0, 6.0]])
V = np.array([0.5, -1.5, 2.0, 0.25])
K = np.array([1.0, -2.0, 0.5])
CUBE = np.arange(24.0).reshape(2, 3, 4) / 10.0
SPD = np.array([[4.0, 1.0, 0.5], [1.0, 3.0, 0.25], [0.5, 0.25, 2.0]])
INDEX = np.array([[2, 0], [1, 1]])
MASK = np.array([[True, False, True], [False, False, True]])
SEGMENTS = np.array([1, 0, 1])
HOLES = np.array([1.0, np.nan, -2.0, np.inf, -np.inf])


@dataclass(frozen=True)
class Face:
    """Calls of one function that must all give what NumPy, or a formula, gives."""

    name: str
    x: Any
    #: The value, from arrays alone; the expected gradient is that of its differences.
    reference: Callable[[Any], Any]
    #: Calls that work on arrays and tensors.
    functions: tuple[Callable[[Any], Any], ...]
    #: Calls that need a tensor: methods, and NumPy's functions.
    methods: tuple[Callable[[Any], Any], ...] = field(default=())


def scattered(x, index, src, is_added):
    out = np.array(x)
    for i, j in np.ndindex(index.shape):
        out[i, index[i, j]] = src[i, j] + (out[i, index[i, j]] if is_added else 0.0)
    return out


def segments_of(x, axis):
    lanes = np.moveaxis(x, axis, 0)
    return np.moveaxis(np.stack([lanes[s == SEGMENTS].sum(axis=0) for s in range(3)]), 0, axis)


SRC = np.array([[10.0, 20.0], [30.0, 40.0]])
DROPPED = nt.dropout(np.ones((2, 3)), 0.5, rng=3)

FACES = [
    Face(
        "reshape",
        X,
        lambda x: np.reshape(x, (3, 2)),
        (
            lambda x: nt.reshape(x, (3, 2)),
            lambda x: nt.reshape(x, [3, 2]),
            lambda x: nt.reshape(x, 3, 2),
            lambda x: nt.reshape(x, 3, -1),
            lambda x: nt.reshape(x, (-1, 2)),
            lambda x: nt.reshape(x, np.int64(3), 2),
            lambda x: nt.reshape(x, shape=(3, 2)),
        ),
        (
            lambda t: t.reshape(3, 2),
            lambda t: t.reshape((3, -1)),
            lambda t: t.reshape(shape=(3, 2)),
            lambda t: np.reshape(t, (3, 2)),
            lambda t: np.reshape(t, shape=(3, 2)),
        ),
    ),
    Face(
        "reshape",
        X,
        lambda x: x.ravel(),
        (lambda x: nt.reshape(x, -1), lambda x: nt.reshape(x, (6,)), lambda x: nt.ravel(x), lambda x: nt.flatten(x)),
        (lambda t: t.reshape(-1), lambda t: t.ravel(), lambda t: t.flatten(), lambda t: np.ravel(t)),
    ),
    Face(
        "permute",
        CUBE,
        lambda x: np.transpose(x, (2, 0, 1)),
        (
            lambda x: nt.permute(x, 2, 0, 1),
            lambda x: nt.permute(x, (2, 0, 1)),
            lambda x: nt.permute(x, [-1, 0, 1]),
            lambda x: nt.permute(x, dims=(2, 0, 1)),
            lambda x: nt.permute_dims(x, (2, 0, 1)),
            lambda x: nt.transpose(x, (2, 0, 1)),
            lambda x: nt.transpose(x, axes=(2, 0, 1)),
            lambda x: nt.moveaxis(x, 2, 0),
            lambda x: nt.movedim(x, -1, 0),
        ),
        (
            lambda t: t.permute(2, 0, 1),
            lambda t: t.permute((2, 0, 1)),
            lambda t: np.transpose(t, (2, 0, 1)),
            lambda t: np.transpose(t, axes=(2, 0, 1)),
            lambda t: np.moveaxis(t, source=2, destination=0),
        ),
    ),
    Face(
        "broadcast_to",
        X,
        lambda x: np.broadcast_to(x, (2, 2, 3)),
        (
            lambda x: nt.broadcast_to(x, (2, 2, 3)),
            lambda x: nt.broadcast_to(x, [2, 2, 3]),
            lambda x: nt.broadcast_to(x, shape=(2, 2, 3)),
            lambda x: nt.expand(x, 2, -1, -1),
            lambda x: nt.expand(x, (2, 2, 3)),
        ),
        (
            lambda t: t.broadcast_to((2, 2, 3)),
            lambda t: t.expand(2, 2, 3),
            lambda t: np.broadcast_to(t, (2, 2, 3)),
            lambda t: np.broadcast_to(t, shape=(2, 2, 3)),
        ),
    ),
    Face(
        "flip",
        X,
        lambda x: np.flip(x, 1),
        (
            lambda x: nt.flip(x, 1),
            lambda x: nt.flip(x, -1),
            lambda x: nt.flip(x, axis=1),
            lambda x: nt.flip(x, axis=(1,)),
            lambda x: nt.flip(x, dim=1),
            lambda x: nt.flip(x, dims=(1,)),
            lambda x: nt.fliplr(x),
        ),
        (lambda t: t.flip(1), lambda t: t.flip(dims=[1]), lambda t: np.flip(t, 1), lambda t: np.flip(t, axis=1)),
    ),
    Face(
        "flip",
        X,
        lambda x: x[::-1, ::-1],
        (lambda x: nt.flip(x), lambda x: nt.flip(x, (0, 1)), lambda x: nt.flip(x, axis=None)),
        (lambda t: t.flip(), lambda t: t.flip(dims=(0, 1)), lambda t: np.flip(t)),
    ),
    Face(
        "roll",
        X,
        lambda x: np.roll(x, 2, 1),
        (
            lambda x: nt.roll(x, 2, 1),
            lambda x: nt.roll(x, shift=2, axis=1),
            lambda x: nt.roll(x, 2, dim=1),
            lambda x: nt.roll(x, 2, dims=1),
            lambda x: nt.roll(x, (2,), (1,)),
            lambda x: nt.roll(x, -1, -1),
            lambda x: nt.roll(x, (1, 1), (1, 1)),
        ),
        (lambda t: t.roll(2, 1), lambda t: t.roll(2, dims=1), lambda t: np.roll(t, 2, axis=1)),
    ),
    Face(
        "roll",
        X,
        lambda x: np.roll(x, 1),
        (lambda x: nt.roll(x, 1), lambda x: nt.roll(x, 1, None), lambda x: nt.roll(x, shift=7)),
        (lambda t: t.roll(1), lambda t: np.roll(t, 1), lambda t: np.roll(t, shift=1)),
    ),
    Face(
        "repeat",
        X,
        lambda x: np.repeat(x, 2, 1),
        (
            lambda x: nt.repeat(x, 2, 1),
            lambda x: nt.repeat(x, repeats=2, axis=-1),
            lambda x: nt.repeat(x, 2, dim=1),
            lambda x: nt.repeat(x, [2], 1),
            lambda x: nt.repeat(x, [2, 2, 2], 1),
        ),
        (lambda t: t.repeat(2, 1), lambda t: t.repeat(2, axis=1), lambda t: np.repeat(t, 2, axis=1)),
    ),
    Face(
        "repeat",
        X,
        lambda x: np.repeat(x, [1, 0, 2], axis=1),
        (lambda x: nt.repeat(x, [1, 0, 2], 1), lambda x: nt.repeat(x, np.array([1, 0, 2]), axis=1)),
        (lambda t: t.repeat([1, 0, 2], axis=1), lambda t: np.repeat(t, [1, 0, 2], axis=1)),
    ),
    Face(
        "gather",
        X,
        lambda x: np.take_along_axis(x, INDEX, 1),
        (
            lambda x: nt.gather(x, 1, INDEX),
            lambda x: nt.gather(x, -1, INDEX),
            lambda x: nt.gather(x, axis=1, index=INDEX),
            lambda x: nt.gather(x, dim=1, index=INDEX),
            lambda x: nt.gather(x, 1, nt.tensor(INDEX)) if isinstance(x, nt.Tensor) else nt.gather(x, 1, INDEX),
            lambda x: nt.take_along_axis(x, INDEX, 1),
            lambda x: nt.take_along_axis(x, INDEX, axis=1),
            lambda x: nt.take_along_axis(x, INDEX, dim=1),
        ),
        (
            lambda t: t.gather(1, INDEX),
            lambda t: t.gather(dim=1, index=nt.tensor(INDEX)),
            lambda t: np.take_along_axis(t, INDEX, axis=1),
        ),
    ),
    Face(
        "scatter",
        X,
        lambda x: scattered(x, INDEX, SRC, False),
        (
            lambda x: nt.scatter(x, 1, INDEX, SRC),
            lambda x: nt.scatter(x, axis=1, index=INDEX, src=SRC),
            lambda x: nt.scatter(x, dim=1, index=INDEX, src=SRC),
            lambda x: nt.scatter(x, -1, INDEX, SRC),
        ),
        (lambda t: t.scatter(1, INDEX, SRC), lambda t: t.scatter(dim=1, index=nt.tensor(INDEX), src=nt.tensor(SRC))),
    ),
    Face(
        "scatter",
        SRC,
        lambda src: scattered(X, INDEX, src, False),
        (lambda src: nt.scatter(X, 1, INDEX, src), lambda src: nt.scatter(X, dim=1, index=INDEX, src=src)),
        (lambda src: nt.tensor(X).scatter(1, INDEX, src),),
    ),
    Face(
        "scatter_add",
        X,
        lambda x: scattered(x, INDEX, SRC, True),
        (
            lambda x: nt.scatter_add(x, 1, INDEX, SRC),
            lambda x: nt.scatter_add(x, axis=1, index=INDEX, src=SRC),
            lambda x: nt.scatter_add(x, dim=1, index=INDEX, src=SRC),
        ),
        (lambda t: t.scatter_add(1, INDEX, SRC), lambda t: t.scatter_add(dim=1, index=INDEX, src=SRC)),
    ),
    Face(
        "scatter_add",
        SRC,
        lambda src: scattered(X, INDEX, src, True),
        (lambda src: nt.scatter_add(X, 1, INDEX, src), lambda src: nt.scatter_add(X, dim=1, index=INDEX, src=src)),
        (lambda src: nt.tensor(X).scatter_add(1, INDEX, src),),
    ),
    Face(
        "diagonal",
        CUBE,
        lambda x: np.diagonal(x, 1, 2, 0),
        (
            lambda x: nt.diagonal(x, 1, 2, 0),
            lambda x: nt.diagonal(x, offset=1, axis1=2, axis2=0),
            lambda x: nt.diagonal(x, 1, axis1=-1, axis2=-3),
        ),
        (
            lambda t: t.diagonal(1, 2, 0),
            lambda t: t.diagonal(offset=1, axis1=2, axis2=0),
            lambda t: np.diagonal(t, offset=1, axis1=2, axis2=0),
        ),
    ),
    Face(
        "diagonal",
        X,
        lambda x: np.diagonal(x),
        (lambda x: nt.diagonal(x), lambda x: nt.diag(x), lambda x: nt.diagonal(x, 0)),
        (lambda t: t.diagonal(), lambda t: np.diagonal(t), lambda t: np.diag(t)),
    ),
    Face(
        "diff",
        X,
        lambda x: np.diff(x, 2, 1),
        (
            lambda x: nt.diff(x, 2),
            lambda x: nt.diff(x, 2, 1),
            lambda x: nt.diff(x, n=2, axis=-1),
            lambda x: nt.diff(x, n=2, dim=1),
        ),
        (lambda t: np.diff(t, 2), lambda t: np.diff(t, n=2, axis=1)),
    ),
    Face(
        "diff",
        X,
        lambda x: np.diff(x, axis=0, prepend=1.0, append=np.ones((1, 3))),
        (
            lambda x: nt.diff(x, axis=0, prepend=1.0, append=np.ones((1, 3))),
            lambda x: nt.diff(x, 1, 0, 1.0, np.ones((1, 3))),
            lambda x: nt.diff(x, dim=0, prepend=1.0, append=np.ones((1, 3))),
        ),
        (lambda t: np.diff(t, axis=0, prepend=1.0, append=np.ones((1, 3))),),
    ),
    Face(
        "convolve",
        V,
        lambda x: np.convolve(x, K),
        (
            lambda x: nt.convolve(x, K),
            lambda x: nt.convolve(K, x),
            lambda x: nt.convolve(x, K, "full"),
            lambda x: nt.convolve(a=x, b=K, mode="full"),
        ),
        (lambda t: np.convolve(t, K), lambda t: np.convolve(K, t), lambda t: np.convolve(t, K, mode="full")),
    ),
    Face(
        "convolve",
        V,
        lambda x: np.convolve(x, K, "same"),
        (lambda x: nt.convolve(x, K, "same"), lambda x: nt.convolve(x, K, mode="same")),
        (lambda t: np.convolve(t, K, "same"),),
    ),
    Face(
        "convolve",
        V,
        lambda x: np.convolve(x, x, "valid") + np.convolve(x, K, "valid").sum(),
        (lambda x: nt.convolve(x, x, "valid") + nt.convolve(x, K, mode="valid").sum(),),
    ),
    Face(
        "where",
        X,
        lambda x: np.where(MASK, x, -x),
        (
            lambda x: nt.where(MASK, x, -x),
            lambda x: nt.where(~MASK, -x, x),
            lambda x: nt.where(MASK.astype(int), x, -x),
        ),
        (
            lambda t: nt.where(nt.tensor(MASK), t, -t),
            lambda t: np.where(MASK, t, -t),
            lambda t: np.where(nt.tensor(MASK), t, -t),
        ),
    ),
    Face(
        "where",
        X,
        lambda x: np.where(MASK, 0.5, x),
        (
            lambda x: nt.where(MASK, 0.5, x),
            lambda x: nt.masked_fill(x, MASK, 0.5),
            lambda x: nt.masked_fill(x, mask=MASK, value=0.5),
        ),
        (
            lambda t: np.where(MASK, 0.5, t),
            lambda t: t.masked_fill(MASK, 0.5),
            lambda t: t.masked_fill(MASK, value=0.5),
        ),
    ),
    Face(
        "nan_to_num",
        HOLES,
        lambda x: np.nan_to_num(x, nan=0.5, posinf=9.0, neginf=-9.0),
        (
            lambda x: nt.nan_to_num(x, nan=0.5, posinf=9.0, neginf=-9.0),
            lambda x: nt.nan_to_num(x, True, 0.5, 9.0, -9.0),
        ),
        (
            lambda t: t.nan_to_num(nan=0.5, posinf=9.0, neginf=-9.0),
            lambda t: np.nan_to_num(t, nan=0.5, posinf=9.0, neginf=-9.0),
        ),
    ),
    Face(
        "segment_sum",
        X,
        lambda x: segments_of(x, 1),
        (
            lambda x: nt.segment_sum(x, SEGMENTS, 3, 1),
            lambda x: nt.segment_sum(x, SEGMENTS, 3, -1),
            lambda x: nt.segment_sum(x, SEGMENTS, count=3, axis=1),
            lambda x: nt.segment_sum(x, segments=SEGMENTS, count=3, axis=1),
        ),
        (lambda t: nt.segment_sum(t, nt.tensor(SEGMENTS), 3, axis=1),),
    ),
    Face(
        "segment_sum",
        X.T.copy(),
        lambda x: segments_of(x, 0),
        (lambda x: nt.segment_sum(x, SEGMENTS, 3), lambda x: nt.segment_sum(x, SEGMENTS, count=3)),
    ),
    Face(
        "getitem",
        X,
        lambda x: x[1:, ::-1],
        (
            lambda x: nt.getitem(x, (slice(1, None), slice(None, None, -1))),
            lambda x: x[1:, ::-1],
            lambda x: x[-1:, ..., ::-1],
        ),
    ),
    Face(
        "getitem",
        X,
        lambda x: x[:, [2, 0, 2]],
        (
            lambda x: x[:, [2, 0, 2]],
            lambda x: x[:, np.array([2, 0, 2])],
            lambda x: nt.getitem(x, (slice(None), [2, 0, 2])),
            lambda x: nt.take(x, [2, 0, 2], axis=1),
            lambda x: nt.take(x, [2, 0, 2], dim=1),
            lambda x: nt.index_select(x, 1, np.array([2, 0, 2])),
            lambda x: nt.index_select(x, dim=1, index=np.array([2, 0, 2])),
        ),
        (
            lambda t: t[:, nt.tensor([2, 0, 2])],
            lambda t: t.take([2, 0, 2], axis=1),
            lambda t: t.index_select(1, np.array([2, 0, 2])),
            lambda t: np.take(t, [2, 0, 2], axis=1),
        ),
    ),
    Face(
        "getitem",
        X,
        lambda x: x[MASK],
        (lambda x: x[MASK], lambda x: nt.getitem(x, MASK)),
        (lambda t: t[nt.tensor(MASK)],),
    ),
    Face(
        "dropout",
        X,
        lambda x: x * DROPPED,
        (
            lambda x: nt.dropout(x, 0.5, True, rng=3),
            lambda x: nt.dropout(x, 0.5, rng=3),
            lambda x: nt.dropout(x, p=0.5, training=True, rng=nt.Generator(3)),
        ),
    ),
    Face(
        "dropout",
        X,
        lambda x: x * 1.0,
        (lambda x: nt.dropout(x, 0.5, False), lambda x: nt.dropout(x, training=False), lambda x: nt.dropout(x, p=0.0)),
    ),
    Face(
        "cast",
        X,
        lambda x: x * 1.0,
        (
            lambda x: nt.cast(x, "float64"),
            lambda x: nt.cast(x, nt.float64),
            lambda x: nt.cast(x, float),
            lambda x: nt.cast(x, dtype=np.float64),
        ),
        (
            lambda t: t.astype("float64"),
            lambda t: t.astype(np.float64),
            lambda t: t.to(nt.float64),
            lambda t: t.double(),
            lambda t: t.to("cpu"),
        ),
    ),
    Face(
        "clip",
        X,
        lambda x: np.clip(x, 2.5, 4.5),
        (
            lambda x: nt.clip(x, 2.5, 4.5),
            lambda x: nt.clip(x, min=2.5, max=4.5),
            lambda x: nt.clip(x, a_min=2.5, a_max=4.5),
            lambda x: nt.clamp(x, 2.5, 4.5),
            lambda x: nt.clamp(x, max=4.5, min=2.5),
            lambda x: nt.clip(nt.clip(x, 2.5), None, 4.5),
        ),
        (
            lambda t: t.clip(2.5, 4.5),
            lambda t: t.clamp(min=2.5, max=4.5),
            lambda t: np.clip(t, 2.5, 4.5),
            lambda t: np.clip(t, a_min=2.5, a_max=4.5),
            lambda t: np.clip(t, min=2.5, max=4.5),
        ),
    ),
    Face(
        "clip",
        np.array([[2.5, 0.5, 3.25]]),
        lambda lo: np.clip(X, lo, 4.5),
        (lambda lo: nt.clip(X, lo, 4.5), lambda lo: nt.clip(X, min=lo, max=4.5)),
        (lambda lo: nt.tensor(X).clip(lo, 4.5), lambda lo: np.clip(X, lo, 4.5)),
    ),
    Face(
        "topk",
        X,
        lambda x: np.sort(x, 1)[:, :0:-1],
        (
            lambda x: nt.topk(x, 2)[0],
            lambda x: nt.topk(x, 2, 1)[0],
            lambda x: nt.topk(x, k=2, axis=1, largest=True, sorted=True)[0],
            lambda x: nt.topk(x, 2, dim=1)[0],
        ),
        (lambda t: t.topk(2)[0], lambda t: t.topk(2, dim=-1)[0], lambda t: t.topk(k=2, dim=1)[0]),
    ),
    Face(
        "topk",
        X,
        lambda x: np.sort(x, 0)[:1],
        (lambda x: nt.topk(x, 1, 0, False)[0], lambda x: nt.topk(x, 1, dim=0, largest=False)[0]),
        (lambda t: t.topk(1, 0, False)[0], lambda t: t.topk(1, dim=0, largest=False)[0]),
    ),
    Face(
        "einsum",
        X,
        lambda x: np.einsum("ij,kj->ik", x, X),
        (
            lambda x: nt.einsum("ij,kj->ik", x, X),
            lambda x: nt.einsum("ij,kj", x, X),
            lambda x: nt.einsum("...j,kj->...k", x, X),
            lambda x: nt.einsum(x, [0, 1], X, [2, 1], [0, 2]),
            lambda x: nt.einsum("ij,kj->ik", x, X, optimize=False),
        ),
        (
            lambda t: np.einsum("ij,kj->ik", t, X),
            lambda t: np.einsum(t, [0, 1], X, [2, 1], [0, 2]),
            lambda t: np.einsum("ij,kj->ik", t, X, optimize=True),
        ),
    ),
    Face(
        "cross",
        X,
        lambda x: np.cross(x, X[::-1]),
        (
            lambda x: nt.cross(x, X[::-1]),
            lambda x: nt.cross(x, X[::-1], axis=1),
            lambda x: nt.cross(x, X[::-1].T.copy(), axisb=0),
            lambda x: nt.cross(x, X[::-1], -1, -1, -1),
            lambda x: -nt.cross(X[::-1], x),
        ),
        (lambda t: np.cross(t, X[::-1]), lambda t: np.linalg.cross(t, X[::-1])),
    ),
    Face(
        "cholesky",
        SPD,
        lambda x: np.linalg.cholesky((x + x.T) / 2),
        (lambda x: nt.cholesky(x), lambda x: nt.cholesky(x, False), lambda x: nt.cholesky(x, upper=True).T),
        (lambda t: np.linalg.cholesky(t), lambda t: np.linalg.cholesky(t, upper=True).T),
    ),
    Face(
        "pinv",
        X,
        np.linalg.pinv,
        (lambda x: nt.pinv(x), lambda x: nt.pinv(x, rcond=1e-10), lambda x: nt.pinv(x, rtol=1e-10)),
        (lambda t: np.linalg.pinv(t), lambda t: np.linalg.pinv(t, rtol=1e-10)),
    ),
    Face(
        "svd",
        X,
        lambda x: np.linalg.svd(x, compute_uv=False),
        (lambda x: nt.svd(x)[1], lambda x: nt.svd(x).S, lambda x: nt.svd(x, compute_uv=False), lambda x: nt.svdvals(x)),
        (
            lambda t: np.linalg.svd(t, full_matrices=False)[1],
            lambda t: np.linalg.svd(t, compute_uv=False),
            lambda t: np.linalg.svdvals(t),
        ),
    ),
    Face(
        "eigh",
        SPD,
        lambda x: np.linalg.eigvalsh((x + x.T) / 2),
        (
            lambda x: nt.eigh(x)[0],
            lambda x: nt.eigh(x).eigenvalues,
            lambda x: nt.eigh(x, "U")[0],
            lambda x: nt.eigh(x, UPLO="L")[0],
            lambda x: nt.eigvalsh(x),
        ),
        (lambda t: np.linalg.eigh(t)[0], lambda t: np.linalg.eigh(t).eigenvalues, lambda t: np.linalg.eigvalsh(t)),
    ),
    Face(
        "polygamma",
        X,
        lambda x: scipy.special.polygamma(1, x),
        (lambda x: nt.polygamma(1, x), lambda x: nt.polygamma(n=1, x=x)),
    ),
    Face(
        "sinc",
        V,
        np.sinc,
        (lambda x: nt.sinc(x), lambda x: nt.sinc(x=x)),
        (lambda t: np.sinc(t),),
    ),
]
