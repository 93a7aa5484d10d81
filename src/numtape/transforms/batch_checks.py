"""The batch function that a user gives for an op, against the op itself."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..core import batching
from ..core.op import Op
from ..core.record import warn_user
from ..core.value import Lifted, array_of


class CheckedBatch:
    """A batch function whose first result is compared with what the op gives for each member."""

    def __init__(self, batch: Callable[..., Any]) -> None:
        self._batch = batch
        self._is_checked = False

    def __call__(self, op: Op, operands: Sequence[Any], batched: Sequence[bool], params: dict[str, Any]) -> Any:
        """Run an op on batched operands."""
        out = self._batch(op, operands, batched, params)
        if self._is_checked or not op.facts.deterministic or any(isinstance(x, Lifted) for x in operands):
            return out
        self._is_checked = True
        expected = batching.loop(op, list(map(array_of, operands)), batched, params)
        if _are_close(out, expected, operands):
            return out
        self._batch = batching.loop
        warn_user(
            f"custom_op: batch of {op.name} gives something else than the function does for each member, so that they "
            "run one by one. It is called with the op, the operands, for each whether it has a leading batch axis, and "
            "the parameters."
        )
        return batching.loop(op, operands, batched, params)


def _are_close(out: Any, expected: Any, operands: Sequence[Any]) -> bool:
    parts, members = (tuple(map(array_of, x if isinstance(x, tuple) else (x,))) for x in (out, expected))
    scale = max((_largest(array_of(x)) for x in operands), default=0.0)
    return len(parts) == len(members) and all(_is_close(a, b, scale) for a, b in zip(parts, members, strict=True))


def _is_close(found: Any, expected: Any, scale: float) -> bool:
    if np.shape(found) != np.shape(expected) or getattr(found, "dtype", None) != expected.dtype:
        return False
    if expected.dtype.kind in "biu":
        return bool(np.array_equal(found, expected))
    # A batch may add up in another order, and small results of large operands tell little.
    relative, absolute = (1e-2, 1e-2) if expected.dtype.itemsize == 2 else (1e-4, 1e-6)
    found, expected = (np.asarray(x, np.float64) for x in (found, expected))
    return bool(np.allclose(found, expected, rtol=relative, atol=absolute * scale, equal_nan=True))


def _largest(array: Any) -> float:
    array = np.asarray(array).astype(np.float64)
    return float(np.max(np.abs(array), initial=0.0, where=np.isfinite(array)))
