"""Adam and its relatives: steps scaled by running averages of the gradient and of its square."""

from typing import Any

from .. import ops
from ..creation import zeros_like
from .optimizer import Optimizer
from .parameters import Parameters, accepted
from .rule import State

Betas = tuple[float, float]


def _moments(grad: Any, state: State, betas: Any) -> tuple[Any, Any, Any]:
    """Return the count of steps and the running averages of the gradient and of its square."""
    beta1, beta2 = betas
    mean = beta1 * state["exp_avg"] + (1.0 - beta1) * grad
    square = beta2 * state["exp_avg_sq"] + (1.0 - beta2) * ops.square(grad)
    return state["step"] + 1, mean, square


class Adam(Optimizer):
    """Scale each step by the gradient's running average and root mean square, both corrected for their start at zero.

    Kingma and Ba, 2015. ``Adam(0.001, 0.9, 0.999, 1e-8)`` gets its parameters with each step.

    Args:
        params: what to optimize; a number as first argument is the learning rate.
        lr: the learning rate.
        betas: how much of the two averages stays in each step.
        eps: added to the root mean square.
        weight_decay: how much of the parameter is added to the gradient.
        amsgrad: divide by the largest root mean square so far.
        decoupled_weight_decay: shrink the parameter instead, as AdamW does.
        **settings: ``maximize=True`` follows the gradient uphill; `foreach`, `fused`, `capturable` and `differentiable`
            are accepted for PyTorch's sake.

    Example:
        >>> w = nt.tensor([1.0, -2.0], requires_grad=True)
        >>> optimizer = nt.optim.Adam([w], lr=0.1)
        >>> (w * w).sum().backward()
        >>> optimizer.step()
        >>> print(np.round(w.numpy(), 3))
        [ 0.9 -1.9]
    """

    def __init__(
        self,
        params: Parameters = None,
        lr: float = 1e-3,
        betas: Betas = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        amsgrad: bool = False,
        *,
        decoupled_weight_decay: bool = False,
        **settings: Any,
    ) -> None:
        super().__init__(
            params,
            lr=lr,
            betas=betas,
            eps=eps,
            weight_decay=weight_decay,
            amsgrad=amsgrad,
            decoupled_weight_decay=decoupled_weight_decay,
            **accepted(type(self).__name__, settings),
        )

    def init(self, param: Any, amsgrad: bool) -> State:
        """Return averages of zero."""
        state = {"step": 0, "exp_avg": zeros_like(param), "exp_avg_sq": zeros_like(param)}
        return {**state, "max_exp_avg_sq": zeros_like(param)} if amsgrad else state

    def update(
        self,
        param: Any,
        grad: Any,
        state: State,
        lr: Any,
        betas: Any,
        eps: Any,
        weight_decay: Any,
        amsgrad: bool,
        decoupled_weight_decay: bool,
    ) -> tuple[Any, State]:
        """Return ``param - lr * mean / (sqrt(square) + eps)``, with mean and square corrected."""
        if weight_decay and decoupled_weight_decay:
            param = param * (1.0 - lr * weight_decay)
        elif weight_decay:
            grad = grad + weight_decay * param
        step, mean, square = _moments(grad, state, betas)
        new = {"step": step, "exp_avg": mean, "exp_avg_sq": square}
        if amsgrad:
            square = new["max_exp_avg_sq"] = ops.maximum(state["max_exp_avg_sq"], square)
        # Both corrections go into numbers instead of arrays, which saves a pass over memory:
        # (m / c1) / (sqrt(v / c2) + eps) = sqrt(c2) / c1 * m / (sqrt(v) + eps * sqrt(c2))
        root = ops.sqrt(1.0 - betas[1] ** step)
        size = lr * root / (1.0 - betas[0] ** step)
        return param - size * (mean / (ops.sqrt(square) + eps * root)), new


class AdamW(Adam):
    """Adam with a weight decay that does not pass through the averages: the parameter itself shrinks.

    Loshchilov and Hutter, 2019.

    Args:
        params: what to optimize; a number as first argument is the learning rate.
        lr: the learning rate.
        betas: how much of the two averages stays in each step.
        eps: added to the root mean square.
        weight_decay: by how much, times `lr`, a parameter shrinks.
        amsgrad: divide by the largest root mean square so far.
        **settings: ``maximize=True`` follows the gradient uphill; `foreach`, `fused`, `capturable` and `differentiable`
            are accepted for PyTorch's sake.

    Example:
        >>> w = nt.tensor([1.0, -2.0], requires_grad=True)
        >>> optimizer = nt.optim.AdamW([w], lr=0.1, weight_decay=0.5)
        >>> (w * w).sum().backward()
        >>> optimizer.step()
        >>> print(np.round(w.numpy(), 3))
        [ 0.85 -1.8 ]
    """

    def __init__(
        self,
        params: Parameters = None,
        lr: float = 1e-3,
        betas: Betas = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        amsgrad: bool = False,
        **settings: Any,
    ) -> None:
        super().__init__(params, lr, betas, eps, weight_decay, amsgrad, decoupled_weight_decay=True, **settings)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a saved state; that of Adam makes no Adam of it."""
        super().load_state_dict(state)
        for group in self.param_groups:
            group["decoupled_weight_decay"] = True


class NAdam(Optimizer):
    """Adam with Nesterov's momentum.

    Dozat, 2016, as PyTorch computes it.

    Args:
        params: what to optimize; a number as first argument is the learning rate.
        lr: the learning rate.
        betas: how much of the two averages stays in each step.
        eps: added to the root mean square.
        weight_decay: how much of the parameter is added to the gradient.
        momentum_decay: how fast the momentum grows to its full size.
        decoupled_weight_decay: shrink the parameter instead, as AdamW does.
        **settings: ``maximize=True`` follows the gradient uphill; `foreach`, `fused`, `capturable` and `differentiable`
            are accepted for PyTorch's sake.

    Example:
        >>> w = nt.tensor([1.0, -2.0], requires_grad=True)
        >>> optimizer = nt.optim.NAdam([w], lr=0.1)
        >>> (w * w).sum().backward()
        >>> optimizer.step()
        >>> print(np.round(w.numpy(), 3))
        [ 0.894 -1.894]
    """

    def __init__(
        self,
        params: Parameters = None,
        lr: float = 2e-3,
        betas: Betas = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        momentum_decay: float = 4e-3,
        decoupled_weight_decay: bool = False,
        **settings: Any,
    ) -> None:
        super().__init__(
            params,
            lr=lr,
            betas=betas,
            eps=eps,
            weight_decay=weight_decay,
            momentum_decay=momentum_decay,
            decoupled_weight_decay=decoupled_weight_decay,
            **accepted("NAdam", settings),
        )

    def init(self, param: Any) -> State:
        """Return averages of zero, and the product of no momenta."""
        return {"step": 0, "mu_product": 1.0, "exp_avg": zeros_like(param), "exp_avg_sq": zeros_like(param)}

    def update(
        self,
        param: Any,
        grad: Any,
        state: State,
        lr: Any,
        betas: Any,
        eps: Any,
        weight_decay: Any,
        momentum_decay: Any,
        decoupled_weight_decay: bool,
    ) -> tuple[Any, State]:
        """Return the parameter after a step along the gradient and the momentum of the step to come."""
        if weight_decay and decoupled_weight_decay:
            param = param * (1.0 - lr * weight_decay)
        elif weight_decay:
            grad = grad + weight_decay * param
        step, mean, square = _moments(grad, state, betas)
        now = betas[0] * (1.0 - 0.5 * 0.96 ** (step * momentum_decay))
        then = betas[0] * (1.0 - 0.5 * 0.96 ** ((step + 1) * momentum_decay))
        product = state["mu_product"] * now
        of_grad = lr * (1.0 - now) / (1.0 - product)
        of_mean = lr * then / (1.0 - product * then)
        scale = ops.sqrt(square / (1.0 - betas[1] ** step)) + eps
        new = {"step": step, "mu_product": product, "exp_avg": mean, "exp_avg_sq": square}
        return param - (of_grad * grad + of_mean * mean) / scale, new


class RAdam(Optimizer):
    """Adam without a division in the first steps, in which too few squares were seen to trust their average.

    Liu and others, 2020.

    Args:
        params: what to optimize; a number as first argument is the learning rate.
        lr: the learning rate.
        betas: how much of the two averages stays in each step.
        eps: added to the root mean square.
        weight_decay: how much of the parameter is added to the gradient.
        decoupled_weight_decay: shrink the parameter instead, as AdamW does.
        **settings: ``maximize=True`` follows the gradient uphill; `foreach`, `fused`, `capturable` and `differentiable`
            are accepted for PyTorch's sake.

    Example:
        >>> w = nt.tensor([1.0, -2.0], requires_grad=True)
        >>> optimizer = nt.optim.RAdam([w], lr=0.1)
        >>> (w * w).sum().backward()
        >>> optimizer.step()
        >>> print(np.round(w.numpy(), 3))
        [ 0.8 -1.6]
    """

    def __init__(
        self,
        params: Parameters = None,
        lr: float = 1e-3,
        betas: Betas = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        decoupled_weight_decay: bool = False,
        **settings: Any,
    ) -> None:
        super().__init__(
            params,
            lr=lr,
            betas=betas,
            eps=eps,
            weight_decay=weight_decay,
            decoupled_weight_decay=decoupled_weight_decay,
            **accepted("RAdam", settings),
        )

    def init(self, param: Any) -> State:
        """Return averages of zero."""
        return {"step": 0, "exp_avg": zeros_like(param), "exp_avg_sq": zeros_like(param)}

    def update(
        self,
        param: Any,
        grad: Any,
        state: State,
        lr: Any,
        betas: Any,
        eps: Any,
        weight_decay: Any,
        decoupled_weight_decay: bool,
    ) -> tuple[Any, State]:
        """Return the parameter after a step that is scaled by the root mean square once that can be trusted."""
        if weight_decay and decoupled_weight_decay:
            param = param * (1.0 - lr * weight_decay)
        elif weight_decay:
            grad = grad + weight_decay * param
        step, mean, square = _moments(grad, state, betas)
        correction = 1.0 - betas[1] ** step
        most = 2.0 / (1.0 - betas[1]) - 1.0
        # The number of squares that the average is worth.
        seen = most - 2.0 * step * betas[1] ** step / correction
        is_known = ops.greater(seen, 5.0)
        trusted = ops.maximum(seen, 5.0)
        rectified = (trusted - 4.0) * (trusted - 2.0) * most / ((most - 4.0) * (most - 2.0) * trusted)
        size = lr / (1.0 - betas[0] ** step) * ops.where(is_known, ops.sqrt(rectified * correction), 1.0)
        # A choice by numbers costs less than one for each element.
        scale = ops.where(is_known, 1.0, 0.0) * (ops.sqrt(square) + eps) + ops.where(is_known, 0.0, 1.0)
        return param - size * mean / scale, {"step": step, "exp_avg": mean, "exp_avg_sq": square}
