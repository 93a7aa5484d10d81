"""Checks that all derivative modes agree on every op: forward, reverse and mixed, batched or not, in all pairs."""

from collections.abc import Iterable
from typing import Any

import numpy as np

from ..api import grad, jvp, vjp
from ..core.op import Composite, Marker, Op, Rule
from ..jacobians import jacobian
from ..ops.samples import Sample
from .op_checks import Case, Title, assert_close, case_of, directions

#: How well modes must agree, relative to the largest element.
TOLERANCE = 1e-11


def check_jacobian_modes(entry: Op | Composite, sample: Sample) -> None:
    """Jacobians by forward, reverse and mixed sweeps agree, in one batch and in several, and match single sweeps."""
    case = case_of(entry, sample)
    function = _flat(case)
    argnums = tuple(range(len(case.operands)))
    with np.errstate(all="ignore"):
        expected = jacobian(function, argnums, mode="reverse", chunk_size=1)(*case.operands)
        for mode, chunk_size in (("reverse", 7), ("forward", None), ("forward", 3), ("mixed", None)):
            found = jacobian(function, argnums, mode=mode, chunk_size=chunk_size)(*case.operands)
            for row, expected_row in zip(found, expected, strict=True):
                for block, expected_block in zip(row, expected_row, strict=True):
                    assert_close(block, expected_block, TOLERANCE, Title(mode, " Jacobian of ", entry.name, sample))


def check_streaming(entry: Op | Composite, sample: Sample) -> None:
    """The streaming JVP is the transpose of the VJP."""
    case = case_of(entry, sample)
    function = _flat(case)
    tangents = directions(case.operands, 11)
    with np.errstate(all="ignore"):
        values, pushed = jvp(function, tuple(case.operands), tuple(tangents))
        cotangents = [np.asarray(w) for w in directions([np.asarray(y) for y in values], 12)]
        _, pull = vjp(function, *case.operands)
        pulled = pull(cotangents)
    left = sum(float(np.sum(np.asarray(y) * w)) for y, w in zip(pushed, cotangents, strict=True))
    right = sum(float(np.sum(x * t)) for x, t in zip(pulled, tangents, strict=True))
    size = sum(float(np.sum(np.abs(x * t))) for x, t in zip(pulled, tangents, strict=True))
    assert abs(left - right) <= TOLERANCE * max(1.0, size), f"streaming JVP of {entry.name}{sample}: {left} != {right}"


def check_mode_pairs(entry: Op | Composite, sample: Sample) -> None:
    """The four ways to nest forward and reverse mode give one second derivative."""
    case = case_of(entry, sample)
    function = _flat(case)
    weights = directions([np.asarray(y) for y in function(*case.operands)], 13)
    tangents = tuple(directions(case.operands, 14))
    argnums = tuple(range(len(case.operands)))

    def scalar(*operands: Any) -> Any:
        total: Any = 0.0
        for y, w in zip(function(*operands), weights, strict=True):
            # Squares: a linear op has a second derivative, too.
            total = total + (w * y * y).sum()
        return total

    def slope(*operands: Any) -> Any:
        return jvp(scalar, operands, tangents)[1]

    def pulled_slope(*operands: Any) -> Any:
        total: Any = 0.0
        for g, t in zip(grad(scalar, argnums)(*operands), tangents, strict=True):
            total = total + (g * t).sum()
        return total

    with np.errstate(all="ignore"):
        expected = grad(pulled_slope, argnums)(*case.operands)
        ways = {
            "forward over reverse": jvp(grad(scalar, argnums), tuple(case.operands), tangents)[1],
            "reverse over forward": grad(slope, argnums)(*case.operands),
        }
        twice = jvp(slope, tuple(case.operands), tangents)[1]
    scale = max((float(np.max(np.abs(x), initial=0.0)) for x in expected), default=0.0)
    for way, found in ways.items():
        for a, b in zip(found, expected, strict=True):
            assert np.max(np.abs(np.asarray(a) - b), initial=0.0) <= TOLERANCE * max(1.0, scale), (
                f"{way} of {entry.name}{sample}: {a}, expected {b}"
            )
    curvature = sum(float(np.sum(x * t)) for x, t in zip(expected, tangents, strict=True))
    size = sum(float(np.sum(np.abs(x * t))) for x, t in zip(expected, tangents, strict=True))
    assert abs(twice - curvature) <= TOLERANCE * max(1.0, size), (
        f"forward over forward of {entry.name}{sample}: {twice}, expected {curvature}"
    )


def check_reads(op: Op) -> None:
    """What the JVP of an argument reads, its VJP reads as well, so that a record keeps enough for both sweeps."""
    for position, name in enumerate(op.arguments):
        operands, keeps_out = op.kept(1 << position)
        rule = op.push(position)
        if operands is None or rule is Marker.NON_DIFFERENTIABLE:
            continue
        read: Iterable[int]
        if isinstance(rule, Rule):
            read = range(len(op.arguments)) if rule.operands is None else rule.operands
            assert not rule.reads_out or keeps_out, f"{op.name}: the JVP of {name} reads the output, the VJP does not"
        else:
            read = [i for i in range(len(op.arguments)) if i != position] if rule is Marker.ITSELF else []
        differentiable = [i for i in read if op.push(i) is not Marker.NON_DIFFERENTIABLE]
        missing = [op.arguments[i] for i in differentiable if i not in operands]
        assert not missing, f"{op.name}: the JVP of {name} reads {missing}, the VJP does not"


def _flat(case: Case) -> Any:
    def function(*operands: Any) -> list[Any]:
        return case.values(list(operands))

    return function


MODE_CHECKS = {
    "jacobian modes": check_jacobian_modes,
    "streaming": check_streaming,
    "mode pairs": check_mode_pairs,
}
