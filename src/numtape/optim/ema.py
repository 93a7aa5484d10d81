"""Exponential moving averages of parameters, and how to compute with them for a while."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from ..core.context import current, settle
from ..core.value import Value, wrap
from ..core.write import mark_unrecorded
from ..dtypes import check_unmasked, widened
from ..errors import ArgumentError, ShapeError
from ..tensors import Tensor
from .interrupts import uninterrupted
from .parameters import Parameters, is_number, tensors_of


class EMA:
    """Keeps a running average of parameters; models often do better with it than with the last parameters.

    Args:
        params: tensors, or a model.
        decay: how much of the average stays in each update.
        warmup: average over few updates while there are few: the n-th one keeps at most ``(1 + n) / (10 + n)``.

    Example:
        >>> w = nt.tensor([1.0], requires_grad=True)
        >>> ema = nt.optim.EMA([w], decay=0.5)
        >>> with nt.no_grad():
        ...     w += 2.0
        >>> ema.update()
        >>> with ema.applied():
        ...     print(w)
        tensor([2.], requires_grad=True)
        >>> w
        tensor([3.], requires_grad=True)
    """

    def __init__(self, params: Parameters, decay: float = 0.999, warmup: bool = False) -> None:
        if not is_number(decay) or not 0 <= decay <= 1:
            raise ArgumentError(f"EMA: decay is {decay!r}; it must be a number from 0 to 1.")
        self._params = tensors_of("EMA", params)
        if not self._params:
            raise ArgumentError("EMA: the list of parameters is empty; a generator that was used up before gives none.")
        self.decay = float(decay)
        self.warmup = warmup
        self.num_updates = 0
        # Averages of half parameters are float32: small changes would be rounded away.
        self._averages = [param.array.astype(widened(param.dtype)) for param in self._params]
        self._scratch = [np.empty_like(average) for average in self._averages]

    @property
    def averages(self) -> list[Tensor]:
        """Copies of the averages, in the order of the parameters."""
        self._follow()
        return [wrap(Tensor, average.copy()) for average in self._averages]

    def _follow(self) -> None:
        """Keep averages in the dtypes of the parameters, which ``model.double()`` changes in place."""
        for place, param in enumerate(self._params):
            dtype = widened(param.dtype)
            if self._averages[place].dtype != dtype:
                self._scratch[place] = np.empty(param.shape, dtype)
                self._averages[place] = self._averages[place].astype(dtype)

    def update(self) -> None:
        """Take the parameters as they are now into the average; call it after ``optimizer.step()``."""
        count = self.num_updates + 1
        decay = min(self.decay, (1 + count) / (10 + count)) if self.warmup else self.decay
        with uninterrupted(), np.errstate(all="ignore"):
            self._follow()
            for param, average, scratch in zip(self._params, self._averages, self._scratch, strict=True):
                np.multiply(param.array, average.dtype.type(1.0 - decay), out=scratch)
                np.multiply(average, average.dtype.type(decay), out=average)
                np.add(average, scratch, out=average)
            self.num_updates = count

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Put the averages in the place of the parameters inside a ``with`` block."""
        kept = [param.array.copy() for param in self._params]
        try:
            self.copy_to()
            yield
        finally:
            _write(self._params, kept)

    def copy_to(self) -> None:
        """Overwrite the parameters with their averages."""
        _write(self._params, self._averages)

    def state_dict(self) -> dict[str, Any]:
        """Return copies of the averages and the number of updates."""
        return {"decay": self.decay, "warmup": self.warmup, "num_updates": self.num_updates, "averages": self.averages}

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        """Go on from what `state_dict` returned; nothing changes if it does not fit."""
        names = ("decay", "warmup", "num_updates", "averages")
        if not isinstance(saved, dict) or not all(name in saved for name in names):
            raise ArgumentError(f"EMA.load_state_dict: the state of an average is a dict with {', '.join(names)}.")
        for x in saved["averages"]:
            check_unmasked("EMA.load_state_dict: a saved average", x)
        arrays = [x.array if isinstance(x, Value) else np.asarray(x) for x in saved["averages"]]
        shapes = [param.shape for param in self._params]
        if [array.shape for array in arrays] != shapes:
            raise ShapeError(
                f"EMA.load_state_dict: the parameters have shapes {shapes}, and the saved averages "
                f"{[array.shape for array in arrays]}."
            )
        self._follow()
        self._averages = [array.astype(each.dtype) for array, each in zip(arrays, self._averages, strict=True)]
        self.decay, self.warmup, self.num_updates = saved["decay"], saved["warmup"], saved["num_updates"]


def _write(params: list[Tensor], arrays: list[Any]) -> None:
    settle(current())
    with uninterrupted():
        for param, array in zip(params, arrays, strict=True):
            np.copyto(param.array, array, casting="same_kind")
            mark_unrecorded(param)
