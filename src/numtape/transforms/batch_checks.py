"""The batch function that a user gives for an op, against the op itself."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..core import batching
from ..core.op import Op
from ..core.value import Lifted, array_of
from ..errors import GradientError

#: How far results may be apart, in units of rounding of the largest element: a batch may add up in another order.
_TOLERANCE = 1e4


class CheckedBatch:
    """A batch function whose first result is compared with what the op gives for each member."""

    def __init__(self, batch: Callable[..., Any]) -> None:
        self._batch = batch
        self._is_checked = False

    def __call__(self, op: Op, operands: Sequence[Any], batched: Sequence[bool], params: dict[str, Any]) -> Any:
        """Run an op on batched operands."""
        out = self._batch(op, operands, batched, params)
        if not self._is_checked and op.facts.deterministic and not any(isinstance(x, Lifted) for x in operands):
            expected = batching.loop(op, list(map(array_of, operands)), batched, params)
            self._compare(op, out, expected)
            self._is_checked = True
        return out

    def _compare(self, op: Op, out: Any, expected: Any) -> None:
        parts, members = (tuple(map(array_of, x if isinstance(x, tuple) else (x,))) for x in (out, expected))
        if len(parts) != len(members) or not all(map(_is_close, parts, members)):
            raise GradientError(
                f"{op.name}: batch gives something else than the function does for each member; it is called with the "
                "op, the operands, for each whether it has a leading batch axis, and the parameters. Leave it out, and "
                "members run one by one."
            )


def _is_close(found: Any, expected: Any) -> bool:
    if np.shape(found) != np.shape(expected) or getattr(found, "dtype", None) != expected.dtype:
        return False
    if expected.dtype.kind in "biu":
        return bool(np.array_equal(found, expected))
    found, expected = (np.asarray(x, np.float64) for x in (found, expected))
    largest = np.max(np.abs(expected), initial=0.0, where=np.isfinite(expected))
    unit = float(np.finfo(np.float32).eps) if found.size and largest else 0.0
    return bool(np.allclose(found, expected, rtol=0.0, atol=_TOLERANCE * unit * largest, equal_nan=True))
