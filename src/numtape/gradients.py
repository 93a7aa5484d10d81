"""The map from tensors to gradients that a backward returns."""

from collections.abc import Iterable, Iterator
from typing import Any

from . import tree
from .core.gradients import link_of
from .core.record import Record
from .core.value import Value
from .errors import MissingGradientError, OperandError
from .tensors import Tensor


class Gradients:
    """The gradients of one backward, by tensor.

    ``grads[x]`` raises if there is none, ``grads.get(x)`` gives None. `items` pairs the id of each tensor with its
    gradient, in the order in which the sweep reached them.

    `items`, `tensors`, iteration and the length are those of leaves and watched tensors. With ``keep="all"``, ``x in
    grads`` and ``grads[x]`` know intermediate results as well; they are not listed, since the map does not keep them
    alive.

    Under loss scaling, `overflow` says that something was not finite: then the map is empty, and nothing was delivered.
    """

    def __init__(
        self,
        tensors: list[Tensor],
        gradients: list[Tensor],
        delivered: set[int],
        left: str = "",
        overflow: bool = False,
    ) -> None:
        #: Whether gradients overflowed, so that there are none.
        self.overflow = overflow
        #: The running statistics that moved on the way to a loss that was scaled, if any.
        self.statistics: Any = None
        self._tensors = tensors
        self._by_link = {link_of(t): g for t, g in zip(tensors, gradients, strict=True)}
        self._intermediates: dict[Any, Tensor] = {}
        #: The ids of tensors whose ``.grad`` already holds this gradient.
        self.delivered = delivered
        #: The sentence that names where a tensor last left the tape before the backward; empty if none did.
        self._left = left

    def get(self, tensor: Tensor, default: Any = None) -> Any:
        """Return the gradient of a tensor, or `default`."""
        if not isinstance(tensor, Value):
            raise OperandError(f"Gradients: look up by the tensor itself, not by {type(tensor).__name__}.")
        link = link_of(tensor)
        return self._by_link.get(link, self._intermediates.get(link, default))

    def __getitem__(self, tensor: Tensor) -> Tensor:
        found = self.get(tensor)
        if found is None:
            if isinstance(tensor.node, Record) and not self.overflow:
                raise MissingGradientError(
                    "Gradients: this tensor is an intermediate result, whose gradient is not kept; use "
                    'tape.backward(loss, keep="all"), or tape.watch(tensor) before backward.'
                )
            name = tensor.name or f"tensor{list(tensor.shape)}"
            if self.overflow:
                raise MissingGradientError(
                    f"Gradients: there is none of {name}, for gradients overflowed under loss scaling; ask "
                    "grads.overflow before, or get(), which gives None instead. A step with these does nothing."
                )
            raise MissingGradientError(
                f"Gradients: the loss does not depend on {name}, or it was not tracked then; get() gives None instead."
                f"{self._left}"
            )
        return found  # type: ignore[no-any-return]

    def __contains__(self, tensor: object) -> bool:
        return isinstance(tensor, Tensor) and self.get(tensor) is not None

    def __len__(self) -> int:
        return len(self._tensors)

    def items(self) -> Iterator[tuple[int, Tensor]]:
        """Yield the id of each tensor and its gradient."""
        for tensor in self._tensors:
            yield tensor.id, self[tensor]

    def tensors(self) -> list[Tensor]:
        """Return the tensors that have a gradient here."""
        return list(self._tensors)

    def __iter__(self) -> Iterator[Tensor]:
        return iter(self._tensors)

    def __repr__(self) -> str:
        if self.overflow:
            return "Gradients(overflow)"
        names = ", ".join(t.name or f"tensor{list(t.shape)}" for t in self._tensors)
        return f"Gradients({names})"


class ScaledGradients(list[Any]):
    """The gradients of several sources under loss scaling: a list; all None if `overflow` is True."""

    def __init__(self, gradients: Iterable[Any], overflow: bool, statistics: Any = None) -> None:
        super().__init__(gradients)
        #: Whether gradients overflowed, so that there are none.
        self.overflow = overflow
        #: The running statistics that moved on the way to the targets, if any.
        self.statistics = statistics


tree.register(
    ScaledGradients, lambda grads: grads, lambda grads, new: ScaledGradients(new, grads.overflow, grads.statistics)
)
