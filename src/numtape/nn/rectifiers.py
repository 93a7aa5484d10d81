"""Activations in pieces as layers: ReLU and its relatives, and those that are flat beyond bounds."""

from .. import ops
from .._typing import Array, DtypeLike
from ..devices import check_device
from .activations import Activation
from .checks import check_dtype
from .init import constant_, forget_writes
from .module import Module
from .parameter import blank


class ReLU(Activation):
    """Return ``max(x, 0)``.

    `inplace` is accepted for PyTorch's sake; ops here never change their operands.

    Example:
        >>> nt.nn.ReLU()(nt.tensor([-2.0, 0.0, 1.0, 4.0]))
        tensor([0., 0., 1., 4.])
    """

    def __init__(self, inplace: bool = False) -> None:
        pass

    def forward(self, x: Array) -> Array:
        """Return the activation of each element."""
        return ops.relu(x)


class ReLU6(Activation):
    """Return x between 0 and 6: ``min(max(x, 0), 6)``.

    `inplace` is accepted for PyTorch's sake; ops here never change their operands.

    Example:
        >>> nt.nn.ReLU6()(nt.tensor([-2.0, 0.0, 1.0, 4.0]))
        tensor([0., 0., 1., 4.])
    """

    def __init__(self, inplace: bool = False) -> None:
        pass

    def forward(self, x: Array) -> Array:
        """Return the activation of each element."""
        return ops.relu6(x)


class LeakyReLU(Activation):
    """Return x where it is positive, and `negative_slope` times x elsewhere.

    `inplace` is accepted for PyTorch's sake; ops here never change their operands.

    Example:
        >>> nt.nn.LeakyReLU()(nt.tensor([-2.0, 0.0, 1.0, 4.0]))
        tensor([-0.02,  0.  ,  1.  ,  4.  ])
    """

    options = ("negative_slope",)

    def __init__(self, negative_slope: float = 0.01, inplace: bool = False) -> None:
        self.negative_slope = negative_slope

    def forward(self, x: Array) -> Array:
        """Return the activation of each element."""
        return ops.leaky_relu(x, negative_slope=self.negative_slope)


class PReLU(Module):
    """Return x where it is positive, and `weight` times x elsewhere; the weight is learned.

    Args:
        num_parameters: 1, or the number of channels, on axis 1 of the input, for a weight of each.
        init: the weight's first value.
        device: "cpu" or None, for PyTorch's sake.
        dtype: of the weight; None for the default dtype.

    Example:
        >>> nt.nn.PReLU()(nt.tensor([-2.0, 4.0])).tolist()
        [-0.5, 4.0]
    """

    def __init__(
        self, num_parameters: int = 1, init: float = 0.25, device: str | None = None, dtype: DtypeLike = None
    ) -> None:
        check_device("PReLU", device)
        self.num_parameters = num_parameters
        self.init = init
        self.weight = blank((num_parameters,), dtype)
        self.reset_parameters()
        forget_writes(self.weight)

    def reset_parameters(self) -> None:
        """Set the weight to its first value."""
        constant_(self.weight, self.init)

    def forward(self, x: Array) -> Array:
        """Return the activation of each element."""
        check_dtype(self, x, self.weight)
        return ops.prelu(x, self.weight)

    def extra_repr(self) -> str:
        """Return the number of weights."""
        return f"num_parameters={self.num_parameters}"


class ELU(Activation):
    """Return x where it is positive, and ``alpha * (exp(x) - 1)`` elsewhere.

    `inplace` is accepted for PyTorch's sake; ops here never change their operands.

    Example:
        >>> nt.nn.ELU()(nt.tensor([-2.0, 0.0, 1.0, 4.0]))
        tensor([-0.86466473,  0.        ,  1.        ,  4.        ])
    """

    options = ("alpha",)

    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None:
        self.alpha = alpha

    def forward(self, x: Array) -> Array:
        """Return the activation of each element."""
        return ops.elu(x, alpha=self.alpha)


class CELU(Activation):
    """Return ``max(x, 0) + min(alpha * (exp(x / alpha) - 1), 0)``.

    `inplace` is accepted for PyTorch's sake; ops here never change their operands.

    Example:
        >>> nt.nn.CELU()(nt.tensor([-2.0, 0.0, 1.0, 4.0]))
        tensor([-0.86466473,  0.        ,  1.        ,  4.        ])
    """

    options = ("alpha",)

    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None:
        self.alpha = alpha

    def forward(self, x: Array) -> Array:
        """Return the activation of each element."""
        return ops.celu(x, alpha=self.alpha)


class SELU(Activation):
    """Return the scaled ELU, with which activations keep mean 0 and variance 1.

    `inplace` is accepted for PyTorch's sake; ops here never change their operands.

    Example:
        >>> nt.nn.SELU()(nt.tensor([-2.0, 0.0, 1.0, 4.0]))
        tensor([-1.5201665,  0.       ,  1.050701 ,  4.202804 ])
    """

    def __init__(self, inplace: bool = False) -> None:
        pass

    def forward(self, x: Array) -> Array:
        """Return the activation of each element."""
        return ops.selu(x)


class Hardsigmoid(Activation):
    """Return ``min(max(x / 6 + 1 / 2, 0), 1)``.

    `inplace` is accepted for PyTorch's sake; ops here never change their operands.

    Example:
        >>> nt.nn.Hardsigmoid()(nt.tensor([-2.0, 0.0, 1.0, 4.0]))
        tensor([0.16666667, 0.5       , 0.6666667 , 1.        ])
    """

    def __init__(self, inplace: bool = False) -> None:
        pass

    def forward(self, x: Array) -> Array:
        """Return the activation of each element."""
        return ops.hardsigmoid(x)


class Hardswish(Activation):
    """Return ``x * hardsigmoid(x)``.

    `inplace` is accepted for PyTorch's sake; ops here never change their operands.

    Example:
        >>> nt.nn.Hardswish()(nt.tensor([-2.0, 0.0, 1.0, 4.0]))
        tensor([-0.33333334,  0.        ,  0.6666667 ,  4.        ])
    """

    def __init__(self, inplace: bool = False) -> None:
        pass

    def forward(self, x: Array) -> Array:
        """Return the activation of each element."""
        return ops.hardswish(x)


class Hardtanh(Activation):
    """Return x between `min_val` and `max_val`.

    `inplace` is accepted for PyTorch's sake; ops here never change their operands.

    Example:
        >>> nt.nn.Hardtanh()(nt.tensor([-2.0, 0.0, 1.0, 4.0]))
        tensor([-1.,  0.,  1.,  1.])
    """

    options = ("min_val", "max_val")

    def __init__(self, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> None:
        self.min_val = min_val
        self.max_val = max_val

    def forward(self, x: Array) -> Array:
        """Return the activation of each element."""
        return ops.hardtanh(x, min_val=self.min_val, max_val=self.max_val)


class Hardshrink(Activation):
    """Return x, and 0 where its absolute value is at most `lambd`.

    Example:
        >>> nt.nn.Hardshrink()(nt.tensor([-2.0, 0.0, 1.0, 4.0]))
        tensor([-2.,  0.,  1.,  4.])
    """

    options = ("lambd",)

    def __init__(self, lambd: float = 0.5) -> None:
        self.lambd = lambd

    def forward(self, x: Array) -> Array:
        """Return the activation of each element."""
        return ops.hardshrink(x, lambd=self.lambd)


class Softshrink(Activation):
    """Return x moved towards 0 by `lambd`, and 0 where that would pass it.

    Example:
        >>> nt.nn.Softshrink()(nt.tensor([-2.0, 0.0, 1.0, 4.0]))
        tensor([-1.5,  0. ,  0.5,  3.5])
    """

    options = ("lambd",)

    def __init__(self, lambd: float = 0.5) -> None:
        self.lambd = lambd

    def forward(self, x: Array) -> Array:
        """Return the activation of each element."""
        return ops.softshrink(x, lambd=self.lambd)


class Threshold(Activation):
    """Return x where it is larger than `threshold`, and `value` elsewhere.

    `inplace` is accepted for PyTorch's sake; ops here never change their operands.

    Example:
        >>> nt.nn.Threshold(0.5, 0.0)(nt.tensor([-2.0, 0.0, 1.0, 4.0]))
        tensor([0., 0., 1., 4.])
    """

    options = ("threshold", "value")

    def __init__(self, threshold: float, value: float, inplace: bool = False) -> None:
        self.threshold = threshold
        self.value = value

    def forward(self, x: Array) -> Array:
        """Return the activation of each element."""
        return ops.threshold(x, threshold=self.threshold, value=self.value)
