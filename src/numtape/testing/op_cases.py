"""Samples of ops as functions of flat arrays, with their values, VJPs, JVPs and difference quotients."""

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .._typing import NDArray
from ..core.declare import registry
from ..core.forward import forward
from ..core.gradients import link_of
from ..core.op import NON_DIFFERENTIABLE, Composite, Op
from ..core.reverse import reverse
from ..core.value import LEAF, wrap
from ..dtypes import FLOAT_DTYPES
from ..ops import load_all
from ..ops.samples import Rejected, Sample
from ..tensors import Tensor

#: The step of the six-point stencil: truncation h**6, rounding 1e-16 / h.
STEP = 1e-3
STENCIL = ((1, 45.0), (2, -9.0), (3, 1.0))


@dataclass(frozen=True)
class Case:
    """A function of flat arrays: the differentiable operands of one sample, everything else fixed."""

    name: str
    function: Callable[..., Any]
    operands: list[NDArray]

    def values(self, operands: list[Any]) -> list[Any]:
        """Return the float outputs as a list."""
        out = self.function(*operands)
        outs = list(out) if isinstance(out, tuple | list) else [out]
        return [x for x in outs if np.dtype(x.dtype) in FLOAT_DTYPES]


def entries() -> list[Op | Composite]:
    """Return everything that is registered, of all families."""
    load_all()
    return list(registry.values())


def samples(entry: Op | Composite) -> list[Sample]:
    """Return the samples that must work."""
    return [s for s in entry.facts.samples() if isinstance(s, Sample)]


def rejections(entry: Op | Composite) -> list[Rejected]:
    """Return the samples that must raise."""
    return [s for s in entry.facts.samples() if isinstance(s, Rejected)]


def case_of(entry: Op | Composite, sample: Sample) -> Case:
    """Return the sample as a function of its differentiable operands."""
    flat: list[Any] = []
    slots: list[Any] = []
    named = named_operands(entry, sample)
    for i, arg in enumerate((*sample.args, *named.values())):
        is_sequence = isinstance(arg, tuple | list) and any(isinstance(x, np.ndarray) for x in arg)
        parts = list(arg) if is_sequence else [arg]
        places: list[Any] = []
        for part in parts:
            if is_differentiable(entry, i, part):
                places.append(len(flat))
                flat.append(part)
            else:
                places.append((part,))
        slots.append((is_sequence, places))

    def function(*operands: Any) -> Any:
        args = []
        for is_sequence, places in slots:
            parts = [place[0] if isinstance(place, tuple) else operands[place] for place in places]
            args.append(tuple(parts) if is_sequence else parts[0])
        given = args[len(sample.args) :]
        return entry.face(*args[: len(sample.args)], **{**sample.params, **dict(zip(named, given, strict=True))})

    return Case(entry.name, function, flat)


def is_differentiable(entry: Op | Composite, position: int, part: Any) -> bool:
    """Say whether a part of an operand is one that derivatives are taken by."""
    if not is_float_array(part):
        return False
    return isinstance(entry, Composite) or entry.pull(position) is not NON_DIFFERENTIABLE


def named_operands(entry: Op | Composite, sample: Sample) -> dict[str, NDArray]:
    """Return the operands of a sample that can only be given by name, as functions made of ops may have."""
    if isinstance(entry, Op):
        return {}
    parameters = inspect.signature(entry.face).parameters
    return {
        name: x
        for name, x in sample.params.items()
        if is_float_array(x) and parameters[name].kind is inspect.Parameter.KEYWORD_ONLY
    }


def is_float_array(x: Any) -> bool:
    """Say whether something is an array of floats."""
    return isinstance(x, np.ndarray) and x.dtype in FLOAT_DTYPES


def leaves(operands: list[NDArray]) -> list[Any]:
    """Return tracked tensors around copies of arrays."""
    return [wrap(Tensor, np.array(x), LEAF) for x in operands]


def vjp(case: Case, operands: list[NDArray], cotangents: Sequence[NDArray | None]) -> list[NDArray]:
    """Return the cotangents of the operands; an output may be left without a cotangent."""
    tensors = leaves(operands)
    outs = case.values(tensors)
    pairs = zip(outs, cotangents, strict=True)
    seeds = [(link_of(y), g) for y, g in pairs if y.node is not None and g is not None]
    found = reverse(seeds, tensors)
    return [np.asarray(found.get(x, np.zeros(x.shape))) for x in tensors]


def jvp(case: Case, operands: list[NDArray], tangents: list[NDArray]) -> list[NDArray]:
    """Return the tangents of the outputs, by pushing over the recorded graph."""
    tensors = leaves(operands)
    outs = case.values(tensors)
    links = [link_of(y) for y in outs]
    pushed = forward(list(zip(tensors, tangents, strict=True)), links)
    return [np.zeros(y.shape) if t is None else np.asarray(t) for y, t in zip(outs, pushed, strict=True)]


def differences(case: Case, operands: list[NDArray], tangents: list[NDArray]) -> list[NDArray]:
    """Return directional derivatives of the outputs by the six-point stencil."""

    def at(k: float) -> list[NDArray]:
        return [np.asarray(y) for y in case.values([x + k * STEP * t for x, t in zip(operands, tangents, strict=True)])]

    totals: list[Any] = []
    for k, weight in STENCIL:
        deltas = [(a - b) * (weight / (60.0 * STEP)) for a, b in zip(at(k), at(-k), strict=True)]
        totals = deltas if not totals else [x + d for x, d in zip(totals, deltas, strict=True)]
    return totals


def directions(operands: list[NDArray], seed: int) -> list[NDArray]:
    """Return random directions of the shapes of arrays, of length about one each element."""
    rng = np.random.default_rng(seed)
    return [np.asarray(rng.uniform(0.5, 1.0, x.shape) * rng.choice([-1.0, 1.0], x.shape)) for x in operands]


def outputs(case: Case) -> list[NDArray]:
    """Return the float outputs on plain arrays."""
    return [np.asarray(y) for y in case.values(list(case.operands))]


class Title:
    """What is compared, in parts that are put together only if it fails: samples take longer to print than to check."""

    def __init__(self, *parts: Any) -> None:
        self.parts = parts

    def __str__(self) -> str:
        return "".join(map(str, self.parts))


def assert_close(actual: Any, expected: Any, tolerance: float, what: Title | str) -> None:
    """Compare with an absolute and relative tolerance; NaN equals NaN."""
    actual, expected = np.asarray(actual, np.float64), np.asarray(expected, np.float64)
    assert actual.shape == expected.shape, f"{what}: shape {actual.shape}, expected {expected.shape}"
    scale = max(1.0, float(np.max(np.abs(expected), initial=0.0, where=np.isfinite(expected))))
    try:
        np.testing.assert_allclose(actual, expected, rtol=tolerance, atol=tolerance * scale)
    except AssertionError as error:
        raise AssertionError(f"{what}: {error}") from None
