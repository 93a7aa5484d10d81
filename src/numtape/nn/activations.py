"""Smooth activations as layers."""

from .. import ops
from .._typing import Array
from . import functional
from .module import Module


class Activation(Module):
    """A function of the input, with options that `repr` shows."""

    options: tuple[str, ...] = ()

    def extra_repr(self) -> str:
        """Return the options."""
        return ", ".join(f"{name}={self.__dict__[name]!r}" for name in self.options)


class GELU(Activation):
    """Return x times the normal distribution function of x; "tanh" approximates that.

    Example:
        >>> nt.nn.GELU()(nt.tensor([-2.0, 0.0, 1.0, 4.0]))
        tensor([-0.04550028,  0.        ,  0.8413448 ,  3.9998732 ])
    """

    options = ("approximate",)

    def __init__(self, approximate: str = "none") -> None:
        self.approximate = approximate

    def forward(self, x: Array) -> Array:
        """Return the activation of each element."""
        return ops.gelu(x, approximate=self.approximate)


class SiLU(Activation):
    """Return ``x * sigmoid(x)``.

    `inplace` is accepted for PyTorch's sake; ops here never change their operands.

    Example:
        >>> nt.nn.SiLU()(nt.tensor([-2.0, 0.0, 1.0, 4.0]))
        tensor([-0.23840587,  0.        ,  0.7310586 ,  3.928055  ])
    """

    def __init__(self, inplace: bool = False) -> None:
        pass

    def forward(self, x: Array) -> Array:
        """Return the activation of each element."""
        return ops.silu(x)


class Mish(Activation):
    """Return ``x * tanh(softplus(x))``.

    `inplace` is accepted for PyTorch's sake; ops here never change their operands.

    Example:
        >>> nt.nn.Mish()(nt.tensor([-2.0, 0.0, 1.0, 4.0]))
        tensor([-0.2525015,  0.       ,  0.8650984,  3.997413 ])
    """

    def __init__(self, inplace: bool = False) -> None:
        pass

    def forward(self, x: Array) -> Array:
        """Return the activation of each element."""
        return ops.mish(x)


class Sigmoid(Activation):
    """Return ``1 / (1 + exp(-x))``.

    Example:
        >>> nt.nn.Sigmoid()(nt.tensor([-2.0, 0.0, 1.0, 4.0]))
        tensor([0.11920293, 0.5       , 0.7310586 , 0.98201376])
    """

    def forward(self, x: Array) -> Array:
        """Return the activation of each element."""
        return ops.sigmoid(x)


class LogSigmoid(Activation):
    """Return ``log(1 / (1 + exp(-x)))``.

    Example:
        >>> nt.nn.LogSigmoid()(nt.tensor([-2.0, 0.0, 1.0, 4.0]))
        tensor([-2.126928  , -0.6931472 , -0.31326163, -0.01814993])
    """

    def forward(self, x: Array) -> Array:
        """Return the activation of each element."""
        return ops.logsigmoid(x)


class Tanh(Activation):
    """Return the hyperbolic tangent.

    Example:
        >>> nt.nn.Tanh()(nt.tensor([-2.0, 0.0, 1.0, 4.0]))
        tensor([-0.9640276,  0.       ,  0.7615942,  0.9993293])
    """

    def forward(self, x: Array) -> Array:
        """Return the activation of each element."""
        return ops.tanh(x)


class Tanhshrink(Activation):
    """Return ``x - tanh(x)``.

    Example:
        >>> nt.nn.Tanhshrink()(nt.tensor([-2.0, 0.0, 1.0, 4.0]))
        tensor([-1.0359724 ,  0.        ,  0.23840582,  3.0006707 ])
    """

    def forward(self, x: Array) -> Array:
        """Return the activation of each element."""
        return ops.tanhshrink(x)


class Softsign(Activation):
    """Return ``x / (1 + |x|)``.

    Example:
        >>> nt.nn.Softsign()(nt.tensor([-2.0, 0.0, 1.0, 4.0]))
        tensor([-0.6666667,  0.       ,  0.5      ,  0.8      ])
    """

    def forward(self, x: Array) -> Array:
        """Return the activation of each element."""
        return ops.softsign(x)


class Softplus(Activation):
    """Return ``log(1 + exp(beta * x)) / beta``, a smooth relu; x itself where ``beta * x`` is above `threshold`.

    Example:
        >>> nt.nn.Softplus()(nt.tensor([-2.0, 0.0, 1.0, 4.0]))
        tensor([0.126928 , 0.6931472, 1.3132616, 4.01815  ])
    """

    options = ("beta", "threshold")

    def __init__(self, beta: float = 1.0, threshold: float = 20.0) -> None:
        self.beta = beta
        self.threshold = threshold

    def forward(self, x: Array) -> Array:
        """Return the activation of each element."""
        return functional.softplus(x, self.beta, self.threshold)


class Softmax(Activation):
    """Return ``exp(x)`` divided by its sum along axis `dim`; an input of three axes or more needs it.

    Example:
        >>> nt.nn.Softmax()(nt.tensor([-2.0, 0.0, 1.0, 4.0]))
        tensor([0.00231533, 0.01710812, 0.0465047 , 0.93407184])
    """

    options = ("dim",)

    def __init__(self, dim: int | None = None) -> None:
        self.dim = dim

    def forward(self, x: Array) -> Array:
        """Return the activation of each element."""
        return functional.softmax(x, self.dim)


class LogSoftmax(Activation):
    """Return the logarithm of softmax along axis `dim`; an input of three axes or more needs it.

    Example:
        >>> nt.nn.LogSoftmax()(nt.tensor([-2.0, 0.0, 1.0, 4.0]))
        tensor([-6.068202 , -4.068202 , -3.068202 , -0.0682019])
    """

    options = ("dim",)

    def __init__(self, dim: int | None = None) -> None:
        self.dim = dim

    def forward(self, x: Array) -> Array:
        """Return the activation of each element."""
        return functional.log_softmax(x, self.dim)


class Softmin(Activation):
    """Return the softmax of -x along axis `dim`; an input of three axes or more needs it.

    Example:
        >>> nt.nn.Softmin()(nt.tensor([-2.0, 0.0, 1.0, 4.0]))
        tensor([0.84203357, 0.11395685, 0.04192238, 0.00208719])
    """

    options = ("dim",)

    def __init__(self, dim: int | None = None) -> None:
        self.dim = dim

    def forward(self, x: Array) -> Array:
        """Return the activation of each element."""
        return functional.softmin(x, self.dim)


class GLU(Activation):
    """Return the first half of axis `dim` times the sigmoid of the second.

    Example:
        >>> nt.nn.GLU()(nt.tensor([-2.0, 0.0, 1.0, 4.0]))
        tensor([-1.4621172,  0.       ])
    """

    options = ("dim",)

    def __init__(self, dim: int = -1) -> None:
        self.dim = dim

    def forward(self, x: Array) -> Array:
        """Return the activation of each element."""
        return ops.glu(x, axis=self.dim)
