"""Linear: a product with a matrix of weights, plus a bias."""

import math
from typing import Any

from .._typing import Array, DtypeLike
from ..core.stream import stream_of
from ..devices import check_device
from ..errors import OperandError, ShapeError
from ..grad_mode import no_grad
from . import init
from .checks import check_count, check_dtype
from .functional import linear
from .module import Module
from .parameter import Parameter, blank


class Linear(Module):
    """Compute ``x @ weight.T + bias`` along the last axis.

    Args:
        in_features: the length of the last axis of the input.
        out_features: the length of the last axis of the output.
        bias: whether there is a bias.
        device: "cpu" or None, for PyTorch's sake.
        dtype: of the parameters; None for the default dtype.
        rng: what the first values are drawn from; None for the thread's stream.

    Example:
        >>> nt.nn.Linear(2, 3)(nt.ones(4, 2)).shape
        (4, 3)
    """

    weight: Parameter
    bias: Parameter | None

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        device: str | None = None,
        dtype: DtypeLike = None,
        rng: Any = None,
    ) -> None:
        check_device("Linear", device)
        self.in_features = in_features = check_count("Linear", "in_features", in_features, 0)
        self.out_features = out_features = check_count("Linear", "out_features", out_features, 0)
        self.weight = blank((out_features, in_features), dtype)
        self.register_parameter("bias", blank((out_features,), dtype) if bias else None)
        self.reset_parameters(rng)
        init.forget_writes(self.weight, self.bias)

    def reset_parameters(self, rng: Any = None) -> None:
        """Draw weight and bias, uniform between plus and minus ``1 / sqrt(in_features)``."""
        stream = stream_of(rng)
        init.kaiming_uniform_(self.weight, a=math.sqrt(5.0), rng=stream)
        if self.bias is not None:
            bound = 1.0 / math.sqrt(self.in_features) if self.in_features else 0.0
            init.uniform_(self.bias, -bound, bound, stream)

    def forward(self, x: Array) -> Array:
        """Return the product with the weights, plus the bias."""
        weight = self.weight
        if getattr(x, "dtype", None) is not weight.dtype:
            check_dtype(self, x, weight)
        shape = x.shape
        if not shape or shape[-1] != self.in_features:
            raise ShapeError(
                f"Linear: the input has shape {shape} and the weight {weight.shape}; the last axis of the input must "
                f"have length {self.in_features}."
            )
        return linear(x, weight, self.bias)

    def weights(self) -> Parameter:
        """Return the weight."""
        return self.weight

    def set_weights(self, weight: Any) -> None:
        """Write a tensor or an array of the weight's shape into the weight."""
        if not hasattr(weight, "shape"):
            raise OperandError(
                f"Linear.set_weights: the new weight is of type {type(weight).__name__}; it must be a tensor or an "
                "array."
            )
        if tuple(weight.shape) != self.weight.shape:
            raise ShapeError(
                f"Linear.set_weights: the new weight has shape {tuple(weight.shape)} and the layer's has "
                f"{self.weight.shape}; they must be equal."
            )
        with no_grad():
            self.weight[...] = weight

    def extra_repr(self) -> str:
        """Return the sizes."""
        return f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}"


Dense = Linear
