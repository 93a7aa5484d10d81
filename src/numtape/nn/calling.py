"""Call a model with other parameters than its own."""

from collections.abc import Mapping
from typing import Any

from ..errors import ArgumentError, OperandError, ShapeError
from . import traversal
from .module import Module
from .traversal import Kind


def functional_call(model: Module, params: Any, *args: Any, **kwargs: Any) -> Any:
    """Return ``model(*args, **kwargs)``, computed with other parameters; the model stays as it is.

    Args:
        model: the model.
        params: tensors or arrays by path, as `named_parameters` and `named_buffers` give them; what is not there is
            the model's own.
        args: the model's arguments; one tuple is taken as all of them, as PyTorch passes them.
        kwargs: the model's keyword arguments.

    Raises:
        ArgumentError: if the model has nothing under a path.
        ShapeError: if a value has another shape than the model's own.

    Example:
        >>> line = nt.nn.Linear(1, 1, bias=False)
        >>> nt.nn.functional_call(line, {"weight": nt.tensor([[3.0]])}, nt.tensor([[2.0]]))
        tensor([[6.]])
    """
    if not isinstance(model, Module):
        raise OperandError(f"functional_call: the model is of type {type(model).__name__}; it must be an nn.Module.")
    if not isinstance(params, Mapping):
        raise OperandError(
            f"functional_call: params is of type {type(params).__name__}; it must be a dict of tensors by path, such "
            "as dict(model.named_parameters())."
        )
    if len(args) == 1 and isinstance(args[0], tuple):
        args = args[0]
    kinds = (Kind.PARAMETER, Kind.BUFFER, Kind.TRANSIENT)
    own = dict(traversal.members(model, kinds, is_unique=False))
    unknown = [path for path in params if path not in own]
    if unknown:
        raise ArgumentError(
            f"functional_call: {type(model).__name__} has no {', '.join(map(str, unknown))}; it has {', '.join(own)}."
        )
    for path, value in params.items():
        if not hasattr(value, "shape"):
            raise OperandError(
                f"functional_call: {path} is of type {type(value).__name__}; it must be a tensor or an array."
            )
        if tuple(value.shape) != own[path].shape:
            raise ShapeError(
                f"functional_call: {path} has shape {value.shape}, and the model's own {own[path].shape}; they must be "
                "equal."
            )
    return traversal.copy_with(model, params)(*args, **kwargs)
