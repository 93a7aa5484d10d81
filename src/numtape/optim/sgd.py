"""Stochastic gradient descent, with momentum."""

from typing import Any

from .. import ops
from ..creation import zeros_like
from ..errors import ArgumentError
from .optimizer import Optimizer
from .parameters import Parameters, accepted
from .rule import State


class SGD(Optimizer):
    """Descend along the gradient, or along its running sum.

    Args:
        params: what to optimize; a number as first argument is the learning rate.
        lr: the learning rate.
        momentum: how much of the last velocity stays.
        dampening: how much of the gradient is left out of the velocity, from the second step on.
        weight_decay: how much of the parameter is added to the gradient.
        nesterov: look ahead along the velocity.
        **settings: ``maximize=True`` follows the gradient uphill; `foreach`, `fused`, `capturable` and `differentiable`
            are accepted for PyTorch's sake.

    Example:
        >>> w = nt.tensor([1.0, 2.0], requires_grad=True)
        >>> optimizer = nt.optim.SGD([w], lr=0.1)
        >>> (w * w).sum().backward()
        >>> optimizer.step()
        >>> w
        tensor([0.8, 1.6], requires_grad=True)
    """

    def __init__(
        self,
        params: Parameters = None,
        lr: float = 1e-3,
        momentum: float = 0.0,
        dampening: float = 0.0,
        weight_decay: float = 0.0,
        nesterov: bool = False,
        **settings: Any,
    ) -> None:
        if nesterov and (momentum == 0 or dampening != 0):
            raise ArgumentError(
                f"SGD: nesterov needs momentum and no dampening; momentum is {momentum!r} and dampening {dampening!r}."
            )
        super().__init__(
            params,
            lr=lr,
            momentum=momentum,
            dampening=dampening,
            weight_decay=weight_decay,
            nesterov=nesterov,
            **accepted("SGD", settings),
        )

    def init(self, param: Any, momentum: Any) -> State:
        """Return a velocity of zero, and whether there was a step already."""
        return {"momentum_buffer": zeros_like(param), "step": 0} if momentum else {}

    def update(
        self,
        param: Any,
        grad: Any,
        state: State,
        lr: Any,
        momentum: Any,
        dampening: Any,
        weight_decay: Any,
        nesterov: bool,
    ) -> tuple[Any, State]:
        """Return ``param - lr * velocity``."""
        if weight_decay:
            grad = grad + weight_decay * param
        if not momentum:
            return param - lr * grad, {}
        step = state["step"]
        # The first velocity is the gradient itself.
        taken = ops.where(ops.equal(step, 0), 1.0, 1.0 - dampening) * grad if dampening else grad
        velocity = momentum * state["momentum_buffer"] + taken
        direction = grad + momentum * velocity if nesterov else velocity
        return param - lr * direction, {"momentum_buffer": velocity, "step": step + 1}
