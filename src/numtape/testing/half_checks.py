"""The checks of half operands, alone and beside others: each op and composed function rounds once, at the end.

What is right is what float32 operands of the same values give.
"""

import inspect
from collections.abc import Iterator
from typing import Any

import numpy as np

from .._typing import Dtype, NDArray
from ..core.gradients import link_of
from ..core.op import Composite, Op
from ..core.reverse import reverse
from ..core.value import LEAF, wrap
from ..dtypes import FLOAT_DTYPES, HALF_DTYPES, bfloat16, float16, float32, float64, promote, widened
from ..errors import DtypeError, NumtapeError
from ..ops.samples import Sample
from ..tensors import Tensor
from .op_cases import Case, Title, case_of, directions, is_differentiable, named_operands

#: The distance of the smallest numbers, and how many binary digits follow the first.
_STEPS: dict[Any, tuple[float, int]] = {
    float16: (2.0**-24, 10),
    bfloat16: (2.0**-133, 7),
    float32: (2.0**-149, 20),
    float64: (2.0**-1074, 40),
}


def check_halves(entry: Op | Composite, sample: Sample) -> None:
    """In half precision, values and gradients are those of float32 on the same operands, rounded once."""
    case = case_of(entry, sample)
    for dtype in HALF_DTYPES:
        _compare(entry, case, [x.astype(dtype) for x in case.operands], sample, is_valid=True)


@np.errstate(all="ignore")
def check_large_halves(entry: Op | Composite, sample: Sample) -> None:
    """Numbers near the end of float16's range, or its beginning, do not leave it on the way to a result within it."""
    case = case_of(entry, sample)
    for scale in (2.0**14, 2.0**-12):
        _compare(entry, case, [np.asarray(x * scale).astype(float16) for x in case.operands], sample)


def check_beside_integers(entry: Op | Composite, sample: Sample) -> None:
    """Integers beside floats are floats of their value, to values and gradients; halves beside them stay halves."""
    case = case_of(entry, sample)
    for i, array in enumerate(case.operands if len(case.operands) > 1 else ()):
        signed, unsigned = np.rint(array * 1500.0), np.rint(np.abs(array * 3.0))
        for integers in (np.asarray(signed, np.int64), np.asarray(unsigned, np.uint8)):
            for dtype in FLOAT_DTYPES:
                operands = [integers if k == i else x.astype(dtype) for k, x in enumerate(case.operands)]
                _compare(entry, case, operands, sample)


def check_beside_float32(entry: Op | Composite, sample: Sample) -> None:
    """Between arrays the wider float wins: beside float32 a half number is one of float32."""
    case = case_of(entry, sample)
    for i, array in enumerate(case.operands if len(case.operands) > 1 else ()):
        for scale in (1.0, 1e5) if array.ndim else ():  # A number decides nothing.
            for dtype in HALF_DTYPES:
                operands = [x.astype(dtype) for x in case.operands]
                operands[i] = np.asarray(array * scale, float32)
                _compare(entry, case, operands, sample)


@np.errstate(all="ignore")
def _compare(
    entry: Op | Composite, case: Case, operands: list[NDArray], sample: Sample, is_valid: bool = False
) -> None:
    """Assert that operands of mixed dtypes give what floats of one width give on the same values, rounded once.

    Those of a sample itself are valid; others may be a singular matrix, or a probability above 1.
    """
    wide = np.float64 if any(x.dtype == np.float64 for x in operands) else float32
    try:
        expected, expected_slopes = _value_and_slopes(case, [x.astype(wide) for x in operands], operands)
    except NumtapeError:
        if is_valid:
            raise
        return
    try:
        actual, slopes = _value_and_slopes(case, operands, operands)
    except DtypeError:
        assert any(x.dtype not in FLOAT_DTYPES for x in operands), f"{entry.name}{sample} refuses floats"
        return
    if len(actual) < len(expected):
        return  # A part of integers alone keeps them.
    what = Title(entry.name, sample, " of ", [(x.dtype, x.shape) for x in operands])
    dtype = sample.params.get("dtype") or _dtype_of_result(entry, sample, operands)
    for i, (a, e) in enumerate(zip(actual, expected, strict=True)):
        wanted = widened(dtype) if dtype is not None and i in entry.facts.wide_outputs else dtype
        is_decided_apart = len(actual) > 1 and len({x.dtype for x in operands}) > 1
        assert is_decided_apart or a.dtype == wanted, f"{what}: result {i} is {a.dtype}, expected {wanted}"
        rounded = e.astype(a.dtype).astype(np.float64)
        scale = np.max(np.abs(e), initial=0.0, where=np.isfinite(e))
        least, digits = _STEPS[a.dtype]
        step = np.maximum(2.0 ** (np.floor(np.log2(np.maximum(np.abs(rounded), 2.0**-200))) - digits), least)
        # Sums of float32 numbers may be added up in another order.
        is_near = np.abs(a.astype(np.float64) - rounded) <= step + 2.0**-18 * scale * (a.dtype != np.float64)
        is_same = (a == rounded) | (np.isnan(a) & np.isnan(rounded))
        assert (is_near | is_same).all(), f"{what}: {a}, expected {rounded}"
    overflows = not all(np.isfinite(a).all() for a in actual)
    for x, a, e in zip(operands, slopes, expected_slopes, strict=True):
        if a is None or e is None:
            continue
        least, digits = _STEPS[next((y.dtype for y in operands if y.dtype in HALF_DTYPES), np.dtype(wide))]
        scale = np.max(np.abs(e), initial=0.0, where=np.isfinite(e))
        # Rules may read a result that was rounded.
        is_near = np.abs(a - e) <= 32.0 * 2.0**-digits * scale + least
        # Where the result has left the range, so may the gradient, but it must not be a number that is wrong.
        is_known = (a == e) | ((~np.isfinite(e) | overflows) & ~np.isfinite(a))
        assert (is_near | is_known).all(), f"gradient of {what} by {x.dtype}{x.shape}: {a}, expected {e}"


def _value_and_slopes(case: Case, operands: list[NDArray], like: list[NDArray]) -> tuple[list[NDArray], list[Any]]:
    """Return the outputs and the cotangents of those operands that are floats in `like`, None for others."""
    is_float = [x.dtype in FLOAT_DTYPES for x in like]
    tensors = [wrap(Tensor, x.copy(), LEAF if f else None) for x, f in zip(operands, is_float, strict=True)]
    outs = case.values(list(tensors))
    arrays = [y.array for y in outs]
    cotangents = [g.astype(widened(y.dtype)) for g, y in zip(directions(arrays, 8), arrays, strict=True)]
    found = reverse([(link_of(y), g) for y, g in zip(outs, cotangents, strict=True) if y.node is not None], tensors)
    slopes = [np.asarray(found.get(x, np.zeros(x.shape))) if x.node is not None else None for x in tensors]
    return arrays, slopes


def _dtype_of_result(entry: Op | Composite, sample: Sample, operands: list[NDArray]) -> Dtype | None:
    """Return the dtype that the operands decide together."""
    deciding = [x for x, decides in zip(operands, _deciding(entry, sample), strict=True) if decides]
    return promote(deciding, entry.facts.to_float)


def _deciding(entry: Op | Composite, sample: Sample) -> Iterator[bool]:
    """Yield for each differentiable operand whether its dtype decides that of the result."""
    names = [] if isinstance(entry, Op) else list(inspect.signature(entry.function).parameters)
    for i, argument in enumerate((*sample.args, *named_operands(entry, sample).values())):
        if isinstance(entry, Op):
            decides = entry.is_variadic or i in entry.promoted
        else:
            decides = entry.promoted is None or (i < len(names) and names[i] in entry.promoted)
        is_sequence = isinstance(argument, tuple | list) and any(isinstance(x, np.ndarray) for x in argument)
        for part in argument if is_sequence else [argument]:
            if is_differentiable(entry, i, part):
                yield decides
