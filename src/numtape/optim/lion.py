"""Lion: steps of one size, along the sign of a momentum."""

from typing import Any

from .. import ops
from ..creation import zeros_like
from .optimizer import Optimizer
from .parameters import Parameters, accepted
from .rule import State


class Lion(Optimizer):
    """Step by the sign of an average of gradient and momentum; it keeps one array per parameter.

    Chen and others, 2023.

    Args:
        params: what to optimize; a number as first argument is the learning rate.
        lr: the size of each step; some three to ten times smaller than for Adam.
        betas: how much of the momentum goes into a step, and how much stays.
        weight_decay: by how much, times `lr`, a parameter shrinks.
        **settings: ``maximize=True`` follows the gradient uphill; `foreach`, `fused`, `capturable` and `differentiable`
            are accepted for PyTorch's sake.

    Example:
        >>> w = nt.tensor([1.0, -2.0], requires_grad=True)
        >>> optimizer = nt.optim.Lion([w], lr=0.1)
        >>> (w * w).sum().backward()
        >>> optimizer.step()
        >>> print(np.round(w.numpy(), 3))
        [ 0.9 -1.9]
    """

    def __init__(
        self,
        params: Parameters = None,
        lr: float = 1e-4,
        betas: tuple[float, float] = (0.9, 0.99),
        weight_decay: float = 0.0,
        **settings: Any,
    ) -> None:
        super().__init__(params, lr=lr, betas=betas, weight_decay=weight_decay, **accepted("Lion", settings))

    def init(self, param: Any) -> State:
        """Return a momentum of zero."""
        return {"exp_avg": zeros_like(param)}

    def update(self, param: Any, grad: Any, state: State, lr: Any, betas: Any, weight_decay: Any) -> tuple[Any, State]:
        """Return ``param - lr * sign(average)``."""
        mean = state["exp_avg"]
        direction = ops.sign(betas[0] * mean + (1.0 - betas[0]) * grad)
        if weight_decay:
            param = param * (1.0 - lr * weight_decay)
        return param - lr * direction, {"exp_avg": betas[1] * mean + (1.0 - betas[1]) * grad}
