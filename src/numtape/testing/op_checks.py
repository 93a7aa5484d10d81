"""The checks that every op and composed function must pass on each of its samples.

A function under test is called on tensors; its VJP is the reverse sweep over the records that it left, its JVP the
forward push over the same records. So ops and functions made of ops are checked alike.
"""

import itertools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from .._typing import NDArray
from ..core import batching
from ..core.facts import Structure
from ..core.gradients import link_of
from ..core.op import Composite, Op
from ..core.record import Record
from ..core.reverse import reverse
from ..core.value import LEAF, Value, wrap
from ..dtypes import FLOAT_DTYPES, widened
from ..ops.samples import Rejected, Sample
from ..tensors import Tensor
from .half_checks import check_beside_float32, check_beside_integers, check_halves, check_large_halves
from .narrowing_checks import check_narrowing
from .op_cases import Case as Case
from .op_cases import Title as Title
from .op_cases import assert_close as assert_close
from .op_cases import case_of as case_of
from .op_cases import differences as differences
from .op_cases import directions as directions
from .op_cases import entries as entries
from .op_cases import is_differentiable as is_differentiable
from .op_cases import jvp as jvp
from .op_cases import leaves as leaves
from .op_cases import outputs as outputs
from .op_cases import rejections as rejections
from .op_cases import samples as samples
from .op_cases import vjp as vjp


def check_value(entry: Op | Composite, sample: Sample) -> None:
    """The forward equals the reference: NumPy's function, or the one declared."""
    reference = entry.facts.reference or next(iter(entry.facts.numpy), None)
    if reference is None:
        return
    expected = reference(*sample.args, **sample.params)
    actual = entry.face(*sample.args, **sample.params)
    actuals = list(actual) if isinstance(actual, tuple | list) else [actual]
    expecteds = list(expected) if isinstance(expected, tuple | list) else [expected]
    for a, e in zip(actuals, expecteds, strict=True):
        assert_close(a, e, 1e-12, Title(entry.name, sample))


def check_jvp(entry: Op | Composite, sample: Sample) -> None:
    """The JVP equals finite differences to 1e-8."""
    case = case_of(entry, sample)
    tangents = directions(case.operands, 1)
    for a, e in zip(jvp(case, case.operands, tangents), differences(case, case.operands, tangents), strict=True):
        assert_close(a, e, 1e-8, Title("JVP of ", entry.name, sample))


def check_transpose(entry: Op | Composite, sample: Sample) -> None:
    """The VJP is the transpose of the JVP to 1e-11."""
    case = case_of(entry, sample)
    transpose_gap(case, case.operands, sample)


def transpose_gap(case: Case, operands: list[NDArray], what: Any) -> None:
    """Assert that ``<g, J t> = <J^T g, t>`` for each output and operand alone."""
    outs = outputs(case)
    for i, j in itertools.product(range(len(outs)), range(len(operands))):
        tangents = [d * (k == j) for k, d in enumerate(directions(operands, 2))]
        cotangent = directions(outs, 3)[i]
        pushed = jvp(case, operands, tangents)
        # The other outputs get no cotangent at all: rules must take None for them.
        pulled = vjp(case, operands, [cotangent if k == i else None for k in range(len(outs))])
        left = np.sum(cotangent * pushed[i])
        right = np.sum(pulled[j] * tangents[j])
        size = np.sum(np.abs(cotangent * pushed[i])) + np.sum(np.abs(pulled[j] * tangents[j])) + 1.0
        assert abs(left - right) <= 1e-11 * size, f"VJP of {case.name} is not its JVP's transpose on {what}"


def check_second_order(entry: Op | Composite, sample: Sample) -> None:
    """The derivative of the VJP, through recorded rules, equals finite differences to 1e-6."""
    case = case_of(entry, sample)
    cotangents = directions(outputs(case), 4)
    tangents = directions(case.operands, 5)

    def gradient(*operands: Any) -> Any:
        if not isinstance(operands[0], Value):
            return tuple(vjp(case, list(operands), cotangents))
        outs = case.values(list(operands))
        seeds = [
            (y.node, wrap(Tensor, g.copy()))
            for y, g in zip(outs, cotangents, strict=True)
            if isinstance(y.node, Record)
        ]
        found = reverse(seeds, operands, cls=Tensor)
        return tuple(found.get(x, np.zeros(x.shape)) for x in operands)

    tensors = leaves(case.operands)
    firsts = gradient(*tensors)
    weights = directions(case.operands, 6)
    seeds = [(y.node, w) for y, w in zip(firsts, weights, strict=True) if isinstance(y, Value) and y.node is not None]
    found = reverse(seeds, tensors)
    actual = sum(float(np.sum(np.asarray(found.get(x, 0.0)) * t)) for x, t in zip(tensors, tangents, strict=True))
    slopes = differences(Case(case.name, gradient, case.operands), case.operands, tangents)
    expected = sum(float(np.sum(s * w)) for s, w in zip(slopes, weights, strict=True))
    assert abs(actual - expected) <= 1e-6 * max(1.0, abs(expected)), (
        f"second order of {entry.name}{sample}: {actual}, expected {expected}"
    )


def check_numbers(entry: Op | Composite, sample: Sample) -> None:
    """Rules take NumPy's numbers for (co)tangents without axes, which is what NumPy's functions make of such arrays."""
    case = case_of(entry, sample)
    cotangents, tangents = directions(outputs(case), 2), directions(case.operands, 1)
    pulled = zip(vjp(case, case.operands, cotangents), vjp(case, case.operands, _numbers(cotangents)), strict=True)
    pushed = zip(jvp(case, case.operands, tangents), jvp(case, case.operands, _numbers(tangents)), strict=True)
    for expected, actual in (*pulled, *pushed):
        np.testing.assert_array_equal(actual, expected, err_msg=f"{entry.name}{sample}")


def _numbers(arrays: list[NDArray]) -> list[Any]:
    """Return arrays, but NumPy's numbers for those without axes."""
    return [x[()] for x in arrays]


def check_dtypes(entry: Op | Composite, sample: Sample) -> None:
    """Cotangents have the operands' shapes and dtypes, and outputs the operands' dtype, in all four float dtypes."""
    case = case_of(entry, sample)
    for dtype in FLOAT_DTYPES:
        tensors = [wrap(Tensor, x.astype(dtype), LEAF) for x in case.operands]
        with np.errstate(all="ignore"):
            outs = case.values(tensors)
        for i, y in enumerate(outs):
            wanted = widened(dtype) if i in entry.facts.wide_outputs else sample.params.get("dtype", dtype)
            assert y.dtype == wanted, f"{entry.name}: output of {y.dtype} from {dtype}"
        seeds = [(y.node, np.ones(y.shape, dtype)) for y in outs if isinstance(y.node, Record)]
        found = reverse(seeds, tensors)
        for x in tensors:
            if x in found:
                assert found[x].shape == x.shape
                wide = np.dtype(np.float32) if dtype.itemsize == 2 else dtype
                assert found[x].dtype == wide, f"{entry.name}: cotangent of {found[x].dtype} for {dtype}"


def check_low_precision(entry: Op | Composite, sample: Sample) -> None:
    """In float32 the value is the float64 one to single precision."""
    case = case_of(entry, sample)
    singles = [x.astype(np.float32) for x in case.operands]
    with np.errstate(all="ignore"):
        expected = case.values([x.astype(np.float64) for x in singles])
        actual = case.values(list(singles))
    for a, e in zip(actual, expected, strict=True):
        assert_close(a, e, 2e-4, Title("float32 ", entry.name, sample))


def check_inputs_unchanged(entry: Op | Composite, sample: Sample) -> None:
    """Neither forward nor reverse writes to an operand."""
    case = case_of(entry, sample)
    tensors = leaves(case.operands)
    for x in tensors:
        x.array.setflags(write=False)
    outs = case.values(tensors)
    cotangents = [np.ones(y.shape) for y in outs]
    for g in cotangents:
        g.setflags(write=False)
    reverse([(y.node, g) for y, g in zip(outs, cotangents, strict=True) if isinstance(y.node, Record)], tensors)
    for x, before in zip(tensors, case.operands, strict=True):
        np.testing.assert_array_equal(x.array, before)


def layouts(x: NDArray) -> Iterator[tuple[str, NDArray]]:
    """Yield arrays equal to `x` with other strides; what lies between their elements is NaN."""
    yield "Fortran", np.array(x, order="F")
    yield "transposed", np.array(x.T, order="C").T
    padded = np.full(tuple(2 * n + 1 for n in x.shape), np.nan)
    key: Any = (*(slice(0, 2 * n, 2) for n in x.shape), ...)
    view = padded[key]
    view[...] = x
    yield "stepped", view
    backward: Any = (*(slice(None, None, -1) for _ in x.shape), ...)
    yield "negative", np.array(x[backward])[backward]
    offset = np.full(x.size + 3, np.nan)[3:].reshape(x.shape)
    offset[...] = x
    yield "offset", offset


def check_layouts(entry: Op | Composite, sample: Sample) -> None:
    """Value and VJP do not depend on the operands' or the cotangents' strides."""
    case = case_of(entry, sample)
    plain = outputs(case)
    cotangents = directions(plain, 7)
    expected = vjp(case, case.operands, cotangents)
    strided = [list(layouts(x)) for x in case.operands]
    strided_cotangents = [list(layouts(g)) for g in cotangents]
    for k in range(5):
        operands = [forms[k][1] for forms in strided]
        for a, e in zip(case.values(list(operands)), plain, strict=True):
            assert_close(a, e, 1e-12, f"{entry.name} on a {next(layouts(np.ones(1)))[0]} operand")
        tensors = [wrap(Tensor, x, LEAF) for x in operands]
        outs = case.values(tensors)
        seeds = [
            (y.node, forms[k][1])
            for y, forms in zip(outs, strided_cotangents, strict=True)
            if isinstance(y.node, Record)
        ]
        found = reverse(seeds, tensors)
        for x, e in zip(tensors, expected, strict=True):
            assert_close(found.get(x, np.zeros(x.shape)), e, 1e-11, f"VJP of {entry.name}, layout {k}")
    # Stride 0: all elements of an operand the same.
    repeated = [np.broadcast_to(x.ravel()[:1].reshape((1,) * x.ndim), x.shape) if x.size else x for x in case.operands]
    if not entry.facts.kinks and not sample.skip_derivatives and len(case.operands) == 1:
        try:
            expected = vjp(case, [x.copy() for x in repeated], cotangents)
        except ValueError:
            return  # Equal elements are not a valid input: a singular matrix.
        tensors = [wrap(Tensor, x, LEAF) for x in repeated]
        outs = case.values(tensors)
        found = reverse([(link_of(y), g) for y, g in zip(outs, cotangents, strict=True)], tensors)
        for x, e in zip(tensors, expected, strict=True):
            assert_close(found.get(x, np.zeros(x.shape)), e, 1e-11, f"VJP of {entry.name}, stride 0")


def check_batch(entry: Op | Composite, sample: Sample) -> None:
    """The op's batch function equals a loop, for every subset of batched operands."""
    if isinstance(entry, Composite):
        return
    args = sample.args[0] if entry.is_variadic else sample.args
    given = tuple(args) + entry.operand_defaults[len(entry.operand_defaults) - (len(entry.arguments) - len(args)) :]
    if not entry.is_variadic and len(args) >= len(entry.arguments):
        given = tuple(args)
    params = {**entry.defaults, **sample.params}
    floats = [i for i, x in enumerate(given) if isinstance(x, np.ndarray) and is_differentiable(entry, i, x)]
    for count in range(1, len(floats) + 1):
        for chosen in itertools.combinations(floats, count):
            operands = [np.stack([x, x * 0.9 + 0.01, x * 0.8]) if i in chosen else x for i, x in enumerate(given)]
            batched = [i in chosen for i in range(len(given))]
            actual = batching.run(entry, operands, batched, params)
            expected = batching.loop(entry, operands, batched, params)
            actuals = actual if isinstance(actual, tuple) else (actual,)
            expecteds = expected if isinstance(expected, tuple) else (expected,)
            for a, e in zip(actuals, expecteds, strict=True):
                assert_close(a, e, 1e-11, Title("batch of ", entry.name, sample, " with ", batched))


def pattern(entry: Op, sample: Sample, position: int, operand: NDArray, out: NDArray) -> NDArray:
    """Return which outputs may depend on which elements of an operand, as the op's structure says."""
    kind = entry.facts.structure
    # Label 0 stands for no element; its row and column are cut off at the end.
    allowed = np.zeros((out.size + 1, operand.size + 1), bool)
    out_labels = np.arange(1, out.size + 1).reshape(out.shape)
    labels = np.arange(1, operand.size + 1).reshape(operand.shape)
    params = {**entry.defaults, **sample.params}
    if kind is Structure.ELEMENTWISE:
        allowed[out_labels, np.broadcast_to(labels, out.shape)] = True
    elif kind is Structure.MOVES:
        args = [
            np.zeros(np.shape(x), np.int64) if is_differentiable(entry, i, x) else x
            for i, x in enumerate(_operands(entry, sample))
        ]
        args[position] = labels
        moved = entry.forward(tuple(args), **params) if entry.is_variadic else entry.forward(*args, **params)
        allowed[out_labels, moved] = True
    elif kind is Structure.SCATTERS and not operand.ndim:
        allowed[:] = True  # A number is repeated: it affects all.
    elif kind is Structure.SCATTERS:
        case = case_of(entry, sample)
        # The op is linear in this operand: its VJP moves labels without touching values.
        pulled = vjp(case, case.operands, [out_labels.astype(np.float64)])
        index = [i for i, x in enumerate(_operands(entry, sample)) if is_differentiable(entry, i, x)].index(position)
        allowed[np.rint(pulled[index]).astype(np.int64), labels] = True
    elif kind is Structure.LANES:
        axis = params["axis"]
        axes = (
            tuple(range(operand.ndim))
            if axis is None
            else tuple(int(a) % max(1, operand.ndim) for a in np.atleast_1d(axis))
        )
        if operand.ndim == 0:
            axes = ()
        # Number the lanes; an output of the operand's shape, or of the reduced one, has the same lanes.
        lane_shape = tuple(1 if a in axes else n for a, n in enumerate(operand.shape))
        lanes = np.arange(int(np.prod(lane_shape))).reshape(lane_shape)
        operand_lanes = np.broadcast_to(lanes, operand.shape).ravel()
        is_full = out.ndim == operand.ndim and out.size != lanes.size
        out_shape = tuple(out.shape[a] if a in axes else n for a, n in enumerate(operand.shape)) if is_full else ()
        out_lanes = np.broadcast_to(lanes, out_shape).ravel() if is_full else lanes.ravel()
        allowed[1:, 1:] = out_lanes[:, None] == operand_lanes[None]
    elif kind is Structure.MATRICES:
        # Number the operand's own places; where it is repeated, several outputs have one.
        lead, every = operand.shape[:-2], np.broadcast_shapes(*(np.shape(x)[:-2] for x in _operands(entry, sample)))
        places = np.arange(math.prod(lead)).reshape(lead)
        own = np.broadcast_to(places.reshape((*lead, *(1,) * (operand.ndim - len(lead)))), operand.shape)
        there = np.broadcast_to(places, every).reshape((*every, *(1,) * (out.ndim - len(every))))
        allowed[1:, 1:] = np.broadcast_to(there, out.shape).ravel()[:, None] == own.ravel()[None]
    elif kind is Structure.TERMS:
        assert entry.facts.terms is not None
        given = _operands(entry, sample)
        for terms in entry.facts.terms(out.shape, *map(np.shape, given), **params):
            if position in terms.factors:
                rows, columns = np.broadcast_arrays(terms.out, terms.factors[position])
                allowed[rows + 1, columns + 1] = True
    else:
        allowed[:] = True
    return allowed[1:, 1:]


def _operands(entry: Op, sample: Sample) -> list[Any]:
    return list(sample.args[0]) if entry.is_variadic else list(sample.args)


def check_pattern(entry: Op | Composite, sample: Sample) -> None:
    """Nonzero entries of the Jacobian lie within the pattern that the structure gives."""
    if isinstance(entry, Composite):
        return
    case = case_of(entry, sample)
    outs = outputs(case)
    if len(outs) != 1 or entry.facts.structure is Structure.DENSE:
        return
    positions = [i for i, x in enumerate(_operands(entry, sample)) if is_differentiable(entry, i, x)]
    for j, position in enumerate(positions):
        operand = case.operands[j]
        allowed = pattern(entry, sample, position, operand, outs[0])
        for k in range(operand.size):
            tangents = [np.zeros(x.shape) for x in case.operands]
            tangents[j].ravel()[k] = 1.0
            column = jvp(case, case.operands, tangents)[0].ravel()
            assert not np.any((column != 0) & ~allowed[:, k]), f"pattern of {entry.name}{sample} misses entries"


def check_rejected(entry: Op | Composite, rejected: Rejected) -> None:
    """A rejected sample raises exactly what it says."""
    message = None
    try:
        entry.face(*rejected.args, **rejected.params)
    except rejected.error as error:
        message = str(error)
    assert message == rejected.message, f"{entry.name}: {message!r}"


#: The checks of a sample, by name; those of derivatives are left out where a sample says so.
VALUE_CHECKS = {"value": check_value, "low precision": check_low_precision, "batch": check_batch}
DERIVATIVE_CHECKS = {
    "jvp": check_jvp,
    "transpose": check_transpose,
    "second order": check_second_order,
    "numbers": check_numbers,
    "dtypes": check_dtypes,
    "halves": check_halves,
    "large halves": check_large_halves,
    "beside integers": check_beside_integers,
    "beside float32": check_beside_float32,
    "inputs unchanged": check_inputs_unchanged,
    "layouts": check_layouts,
    "pattern": check_pattern,
    "narrowing": check_narrowing,
}


def has_derivative(entry: Op | Composite, sample: Sample) -> bool:
    """Say whether the derivatives of a sample can be checked."""
    return not entry.facts.is_discrete and not sample.skip_derivatives and bool(case_of(entry, sample).operands)


def check_entry(entry: Op | Composite, name: str) -> None:
    """Run one check over all samples of an op."""
    for sample in samples(entry):
        if name in VALUE_CHECKS:
            VALUE_CHECKS[name](entry, sample)
        elif has_derivative(entry, sample):
            DERIVATIVE_CHECKS[name](entry, sample)
