"""Optimizer: everything that optimizers have in common, so that one of them is its rule and little else."""

from collections.abc import Iterator
from typing import Any

from .._typing import NDArray
from ..core.context import entered
from ..core.value import Value
from ..errors import ArgumentError, GradientError, OperandError
from ..gradient_clipping import clip_grad_norm, clip_grad_value
from ..gradients import Gradients
from ..tensors import Tensor
from ..transforms.unscaling import check_step
from .pairing import gradients_for, is_model, is_overflow, is_pairs, listed, split_pairs
from .parameters import (
    Parameters,
    check_names,
    check_option,
    check_parameter,
    gradient_of,
    groups_of,
    names_of,
    owner_of,
    rate_first,
    tensors_of,
)
from .rule import Group, Rule, State
from .states import load_state, save_state
from .updates import Updates


class Optimizer:
    """Improves parameters by their gradients; subclasses say how.

    A subclass writes `update`, and `init` if its rule keeps a state. Both are written as if for one number; they name
    the options that they read as parameters. The rule runs once on symbols and is then replayed in place, in blocks
    that fit the cache, and is never recorded. A rule that does more than elementwise ops (norms, branches on values)
    runs on tensors in each step.

    Args:
        params: tensors, pairs of names and tensors, a model, or dicts with "params" and options of their own; None for
            an optimizer that gets its parameters with each step.
        **options: the learning rate ``lr`` and whatever else the rule reads, as defaults of the groups. With
            ``maximize=True`` the rule is given gradients with their signs changed.

    Attributes:
        param_groups: a dict for each group, with "params" and the options, which may be changed between steps.
        state: for each parameter the dict that `init` made and `update` keeps up to date.

    Example:
        >>> class Momentum(nt.optim.Optimizer):
        ...     def __init__(self, params=None, lr=0.1, momentum=0.9):
        ...         super().__init__(params, lr=lr, momentum=momentum)
        ...     def init(self, param):
        ...         return {"velocity": nt.zeros_like(param)}
        ...     def update(self, param, grad, state, lr, momentum):
        ...         velocity = momentum * state["velocity"] + grad
        ...         return param - lr * velocity, {"velocity": velocity}
        >>> w = nt.tensor([1.0, 2.0], requires_grad=True)
        >>> optimizer = Momentum([w])
        >>> (w * w).sum().backward()
        >>> optimizer.step()
        >>> w
        tensor([0.8, 1.6], requires_grad=True)
    """

    def __init__(self, params: Parameters = None, /, **options: Any) -> None:
        title = type(self).__name__
        if "lr" not in options:
            raise OperandError(f"{title}: an optimizer has a learning rate; call Optimizer.__init__(params, lr=...).")
        self.defaults: dict[str, Any] = {name: check_option(title, name, value) for name, value in options.items()}
        self.param_groups: list[Group] = []
        self.state: dict[Any, State] = {}
        self._names: dict[Any, str] = {}
        self._rule = Rule(self)
        self._updates = Updates(self._rule)
        if params is None:
            self.param_groups.append({"params": [], **self.defaults})
            self._rule.check_options(self.param_groups[0])
            return
        for group in groups_of(title, params):
            self.add_param_group(group)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "__init__" in vars(cls):
            cls.__init__ = rate_first(cls.__init__)  # type: ignore[method-assign]

    # What a subclass writes. The signatures of these two leave it to the subclass which options it names.
    def init(self, *args: Any, **options: Any) -> State:
        """Return the state of a parameter that is met for the first time: a dict of tensors and numbers.

        A subclass writes ``init(self, param)``, followed by the options that it reads.
        """
        return {}

    def update(self, *args: Any, **options: Any) -> tuple[Any, State]:
        """Return the new parameter and the new state.

        A subclass writes ``update(self, param, grad, state, lr)``, followed by the options that it reads.
        """
        raise NotImplementedError(f"{type(self).__name__}: a subclass of Optimizer defines update().")

    # Groups.
    def add_param_group(self, group: Group) -> None:
        """Add parameters with options of their own.

        Args:
            group: a dict with "params"; options that it leaves out are those of the optimizer.

        Example:
            >>> backbone, head = nt.zeros(2, requires_grad=True), nt.zeros(3, requires_grad=True)
            >>> optimizer = nt.optim.SGD([backbone], lr=0.01)
            >>> optimizer.add_param_group({"params": [head], "lr": 0.1})
            >>> [group["lr"] for group in optimizer.param_groups]
            [0.01, 0.1]
        """
        title = type(self).__name__
        if not isinstance(group, dict) or "params" not in group:
            raise OperandError(f'{title}: a group of parameters is a dict with "params", not {type(group).__name__}.')
        named = names_of(title, group["params"])
        params = list(named)
        if not params:
            raise ArgumentError(
                f"{title}: the list of parameters is empty; a generator that was used up before gives none."
            )
        own = set(self._own())
        if any(param in own for param in params):
            raise ArgumentError(f"{title}: a parameter is in two groups; each belongs to one, once.")
        options = {name: check_option(title, name, value) for name, value in group.items() if name != "params"}
        check_names(title, options, {*self.defaults, *self._rule.option_names})
        complete = {"params": params, **self.defaults, **options}
        self._rule.check_options(complete)
        self.param_groups.append(complete)
        self._names.update((param, name) for param, name in named.items() if name is not None)

    def _own(self) -> Iterator[Any]:
        for group in self.param_groups:
            yield from group["params"]

    # Gradients.
    def zero_grad(self, params: Parameters = None, set_to_none: bool = True) -> None:
        """Reset gradients: those of the optimizer's own parameters, or of `params`. Graphs are left alone.

        Args:
            params: tensors to reset instead of the optimizer's own.
            set_to_none: drop gradients; otherwise they are filled with zeros.
        """
        if isinstance(params, bool):  # PyTorch's first argument.
            params, set_to_none = None, params
        chosen = self._known() if params is None else tensors_of(f"{type(self).__name__}.zero_grad", params)
        for param in chosen:
            param.zero_grad(set_to_none)

    def clip_grad_norm(self, max_norm: float, norm_type: float = 2.0, error_if_nonfinite: bool = False) -> Tensor:
        """Scale the gradients of the optimizer's own parameters so that their common norm is at most `max_norm`."""
        return clip_grad_norm(self._known(), max_norm, norm_type, error_if_nonfinite)

    def clip_grad_value(self, clip_value: float) -> None:
        """Limit each element of the gradients of the optimizer's own parameters to ``[-clip_value, clip_value]``."""
        clip_grad_value(self._known(), clip_value)

    def _known(self) -> list[Any]:
        """Return the optimizer's own parameters, or without any those that it has updated."""
        return list(self._own()) or list(self.state)

    # Steps.
    def step(self, x: Any = None, /, *, params: Parameters = None, grads: Any = None) -> Any:
        """Update parameters. Those without a gradient are skipped. An interrupt finds all of it done or nothing.

        Args:
            x: nothing, for the own parameters and their ``.grad``; a `Gradients` map (one that overflowed under loss
                scaling does nothing); a sequence of parameters, if the
                optimizer has none of its own or all of them are its own; a sequence of gradients in the order of the
                parameters, or a dict by their names; a model, as the one or the other; or a function that computes the
                loss and its gradients, whose result is returned.
            params: the parameters to update.
            grads: their gradients: a map, a dict by the names that parameters were given with, or a tree whose leaves
                are in the order of the parameters.

        Example:
            >>> w = nt.tensor([1.0, 2.0], requires_grad=True)
            >>> nt.optim.SGD([w], lr=0.5).step([nt.tensor([1.0, 1.0])])
            >>> w
            tensor([0.5, 1.5], requires_grad=True)
        """
        title = f"{type(self).__name__}.step"
        if is_overflow(x) or is_overflow(grads):
            return None
        result = None
        if x is not None:
            if params is not None and grads is not None:
                raise OperandError(f"{title}: params and grads are given by name, and something else by position.")
            if callable(x) and not isinstance(x, Value) and not is_model(x):
                with entered(grad=True):
                    result = x()
            elif isinstance(x, Gradients) or params is not None:
                grads = x
            elif grads is not None:
                params = x
            else:
                params, grads = self._tell(x)
        self._apply(title, params, grads)
        return result

    def apply_gradients(self, grads: Any, params: Parameters = None) -> None:
        """Update parameters by gradients that are given: a map, a sequence, or pairs of gradient and parameter.

        Example:
            >>> w = nt.tensor([1.0, 2.0], requires_grad=True)
            >>> optimizer = nt.optim.SGD(0.5)
            >>> optimizer.apply_gradients(zip([nt.tensor([1.0, 1.0])], [w]))
            >>> w
            tensor([0.5, 1.5], requires_grad=True)
        """
        title = f"{type(self).__name__}.apply_gradients"
        if grads is None:
            raise OperandError(f"{title}: gradients are a map, a sequence or a tree of tensors, not NoneType.")
        if is_overflow(grads):
            return
        if params is None:
            grads = listed(grads)
            if is_pairs(grads):
                grads, params = split_pairs(title, grads, set(self._known()))
        self._apply(title, params, grads)

    def _apply(self, title: str, params: Parameters, grads: Any) -> None:
        self._updates.apply(self._jobs(title, params, grads), self.state)

    def _tell(self, x: Any) -> tuple[Any, Any]:
        """Tell whether a sequence, a dict or a model holds parameters or gradients."""
        x = listed(x)
        if is_model(x):
            held = list(x.parameters())
        else:
            held = list(x.values()) if isinstance(x, dict) else x if isinstance(x, list) else [x]
        return (x, None) if self._is_own(held) else (None, x)

    def _is_own(self, tensors: list[Any]) -> bool:
        own = set(self._own())
        return not own or (bool(tensors) and all(isinstance(each, Tensor) and each in own for each in tensors))

    def _jobs(self, title: str, params: Parameters, grads: Any) -> list[tuple[Group, list[tuple[Any, NDArray]]]]:
        """Pair parameters with gradients, group by group."""
        if params is None and grads is None:
            if not any(group["params"] for group in self.param_groups):
                raise ArgumentError(
                    f"{title}: the optimizer has no parameters of its own; give them to it, or to step(params)."
                )
            own_jobs = [
                (group, [(p, p.extras.grad.array) for p in group["params"] if p.extras and p.extras.grad is not None])
                for group in self.param_groups
            ]
            if not any(pairs for _, pairs in own_jobs) and not any(param.requires_grad for param in self._own()):
                raise GradientError(
                    f"{title}: no parameter requires grad or has a gradient, so that nothing can be trained; give the "
                    "optimizer model.parameters(), not state_dict(), or give gradients to step()."
                )
            check_step(title, ((p, p.extras.grad) for group in self.param_groups for p in group["params"] if p.extras))
            return own_jobs
        own = {param: group for group in self.param_groups for param in group["params"]}
        names = self._names
        if params is not None:
            named = names_of(title, params)
            chosen = list(named)
            names = {**names, **{param: name for param, name in named.items() if name is not None}}
        elif isinstance(grads, Gradients) and not own:
            chosen = grads.tensors()
        else:
            chosen = list(own)
        pairs = zip(chosen, gradients_for(title, chosen, names, grads), strict=True)
        written = {owner_of(param.array) for param in chosen}
        jobs: dict[int, tuple[Group, list[tuple[Any, NDArray]]]] = {}
        for param, gradient in pairs:
            if gradient is not None and not param.is_frozen:
                check_parameter(title, "a parameter", param)
                check_step(title, [(param, gradient)])
                group = own.get(param, self.param_groups[0])
                jobs.setdefault(id(group), (group, []))[1].append((param, gradient_of(title, param, gradient, written)))
        return list(jobs.values())

    # Saving.
    def state_dict(self) -> dict[str, Any]:
        """Return copies of all states and options, with numbers in place of parameters, in PyTorch's layout."""
        return save_state(self.param_groups, self.state)

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        """Take states and options from what `state_dict` returned; nothing changes if they do not fit."""
        self.param_groups, self.state = load_state(type(self).__name__, self.param_groups, saved, self._rule.init)
        self._updates.forget()

    def __getstate__(self) -> dict[str, Any]:
        # Programs hold views of memory, which copies would not share; they are captured again.
        return {name: value for name, value in vars(self).items() if name not in ("_rule", "_updates")}

    def __setstate__(self, saved: dict[str, Any]) -> None:
        vars(self).update(saved)
        self._rule = Rule(self)
        self._updates = Updates(self._rule)

    def __repr__(self) -> str:
        parts = []
        for group in self.param_groups:
            options = ", ".join(f"{name}={value!r}" for name, value in group.items() if name != "params")
            parts.append(f"{len(group['params'])} parameters, {options}")
        return f"{type(self).__name__}({'; '.join(parts)})"
