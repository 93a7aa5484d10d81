"""Rules that divide the gradient by the root of its squares, summed or averaged: Adagrad, RMSprop and Adadelta."""

from typing import Any

from .. import ops
from ..creation import zeros_like
from .optimizer import Optimizer
from .parameters import Parameters, accepted
from .rule import State


class Adagrad(Optimizer):
    """Divide the gradient by the root of the sum of all its squares.

    Duchi, Hazan and Singer, 2011.

    Args:
        params: what to optimize; a number as first argument is the learning rate.
        lr: the learning rate.
        lr_decay: how fast the learning rate falls with the steps.
        weight_decay: how much of the parameter is added to the gradient.
        initial_accumulator_value: what the sum starts with.
        eps: added to the root.
        **settings: ``maximize=True`` follows the gradient uphill; `foreach`, `fused`, `capturable` and `differentiable`
            are accepted for PyTorch's sake.

    Example:
        >>> w = nt.tensor([1.0, -2.0], requires_grad=True)
        >>> optimizer = nt.optim.Adagrad([w], lr=0.1)
        >>> (w * w).sum().backward()
        >>> optimizer.step()
        >>> print(np.round(w.numpy(), 3))
        [ 0.9 -1.9]
    """

    def __init__(
        self,
        params: Parameters = None,
        lr: float = 1e-2,
        lr_decay: float = 0.0,
        weight_decay: float = 0.0,
        initial_accumulator_value: float = 0.0,
        eps: float = 1e-10,
        **settings: Any,
    ) -> None:
        super().__init__(
            params,
            lr=lr,
            lr_decay=lr_decay,
            weight_decay=weight_decay,
            initial_accumulator_value=initial_accumulator_value,
            eps=eps,
            **accepted("Adagrad", settings),
        )

    def init(self, param: Any, initial_accumulator_value: Any) -> State:
        """Return the start of the sum."""
        return {"step": 0, "sum": zeros_like(param) + initial_accumulator_value}

    def update(
        self,
        param: Any,
        grad: Any,
        state: State,
        lr: Any,
        lr_decay: Any,
        weight_decay: Any,
        eps: Any,
    ) -> tuple[Any, State]:
        """Return ``param - lr * grad / (sqrt(sum) + eps)``."""
        if weight_decay:
            grad = grad + weight_decay * param
        size = lr / (1.0 + state["step"] * lr_decay) if lr_decay else lr
        total = state["sum"] + ops.square(grad)
        return param - size * (grad / (ops.sqrt(total) + eps)), {"step": state["step"] + 1, "sum": total}


class RMSprop(Optimizer):
    """Divide the gradient by its root mean square.

    Tieleman and Hinton, 2012.

    Args:
        params: what to optimize; a number as first argument is the learning rate.
        lr: the learning rate.
        alpha: how much of the average of squares stays in each step.
        eps: added to the root mean square.
        weight_decay: how much of the parameter is added to the gradient.
        momentum: how much of the last velocity stays.
        centered: divide by the standard deviation instead, about a running mean.
        **settings: ``maximize=True`` follows the gradient uphill; `foreach`, `fused`, `capturable` and `differentiable`
            are accepted for PyTorch's sake.

    Example:
        >>> w = nt.tensor([1.0, -2.0], requires_grad=True)
        >>> optimizer = nt.optim.RMSprop([w], lr=0.01)
        >>> (w * w).sum().backward()
        >>> optimizer.step()
        >>> print(np.round(w.numpy(), 3))
        [ 0.9 -1.9]
    """

    def __init__(
        self,
        params: Parameters = None,
        lr: float = 1e-2,
        alpha: float = 0.99,
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        momentum: float = 0.0,
        centered: bool = False,
        **settings: Any,
    ) -> None:
        super().__init__(
            params,
            lr=lr,
            alpha=alpha,
            eps=eps,
            weight_decay=weight_decay,
            momentum=momentum,
            centered=centered,
            **accepted("RMSprop", settings),
        )

    def init(self, param: Any, momentum: Any, centered: bool) -> State:
        """Return averages of zero, as many as the options need."""
        names = ["square_avg"] + ["momentum_buffer"] * bool(momentum) + ["grad_avg"] * bool(centered)
        return {"step": 0, **{name: zeros_like(param) for name in names}}

    def update(
        self,
        param: Any,
        grad: Any,
        state: State,
        lr: Any,
        alpha: Any,
        eps: Any,
        weight_decay: Any,
        momentum: Any,
        centered: bool,
    ) -> tuple[Any, State]:
        """Return ``param - lr * grad / (sqrt(square) + eps)``."""
        if weight_decay:
            grad = grad + weight_decay * param
        square = alpha * state["square_avg"] + (1.0 - alpha) * ops.square(grad)
        new = {"step": state["step"] + 1, "square_avg": square}
        if centered:
            mean = new["grad_avg"] = alpha * state["grad_avg"] + (1.0 - alpha) * grad
            square = square - ops.square(mean)
        direction = grad / (ops.sqrt(square) + eps)
        if momentum:
            direction = new["momentum_buffer"] = momentum * state["momentum_buffer"] + direction
        return param - lr * direction, new


class Adadelta(Optimizer):
    """Scale the gradient by the root mean squares of the steps before and of itself, which needs no learning rate.

    Zeiler, 2012.

    Args:
        params: what to optimize; a number as first argument is the learning rate.
        lr: scales each step.
        rho: how much of the averages stays in each step.
        eps: added to the mean squares.
        weight_decay: how much of the parameter is added to the gradient.
        **settings: ``maximize=True`` follows the gradient uphill; `foreach`, `fused`, `capturable` and `differentiable`
            are accepted for PyTorch's sake.

    Example:
        >>> w = nt.tensor([1.0, -2.0], requires_grad=True)
        >>> optimizer = nt.optim.Adadelta([w], eps=0.01)
        >>> (w * w).sum().backward()
        >>> optimizer.step()
        >>> print(np.round(w.numpy(), 3))
        [ 0.688 -1.685]
    """

    def __init__(
        self,
        params: Parameters = None,
        lr: float = 1.0,
        rho: float = 0.9,
        eps: float = 1e-6,
        weight_decay: float = 0.0,
        **settings: Any,
    ) -> None:
        super().__init__(params, lr=lr, rho=rho, eps=eps, weight_decay=weight_decay, **accepted("Adadelta", settings))

    def init(self, param: Any) -> State:
        """Return averages of zero."""
        return {"step": 0, "square_avg": zeros_like(param), "acc_delta": zeros_like(param)}

    def update(
        self,
        param: Any,
        grad: Any,
        state: State,
        lr: Any,
        rho: Any,
        eps: Any,
        weight_decay: Any,
    ) -> tuple[Any, State]:
        """Return ``param - lr * delta``."""
        if weight_decay:
            grad = grad + weight_decay * param
        square = rho * state["square_avg"] + (1.0 - rho) * ops.square(grad)
        delta = ops.sqrt(state["acc_delta"] + eps) / ops.sqrt(square + eps) * grad
        total = rho * state["acc_delta"] + (1.0 - rho) * ops.square(delta)
        return param - lr * delta, {"step": state["step"] + 1, "square_avg": square, "acc_delta": total}
