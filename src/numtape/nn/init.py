"""Fill tensors with first values, in place; each function also goes by its name without the underscore."""

import math
from typing import Any

import numpy as np

from .. import random_creation
from .._typing import NDArray, Shape
from ..core.gradients import check_constant
from ..core.stream import Stream, stream_of
from ..core.value import Value
from ..errors import ArgumentError, OperandError, ShapeError
from ..grad_mode import no_grad
from .parameter import BY_CALL

#: By how much a nonlinearity's layer must scale its weights to keep the variance of what passes.
_GAINS = {"linear": 1.0, "sigmoid": 1.0, "tanh": 5.0 / 3.0, "relu": math.sqrt(2.0), "selu": 0.75}
#: Below this share of the normal distribution, drawing until enough lie between the bounds takes too long.
_LEAST_SHARE = 1e-3


def _write(name: str, tensor: Any, array: Any) -> Any:
    """Write values into a tensor, unrecorded, and return it."""
    if not isinstance(tensor, Value):
        raise OperandError(
            f"{name}: fills a tensor in place, not {type(tensor).__name__}; make one with nt.empty or nt.nn.Parameter."
        )
    check_constant(name, BY_CALL, array)
    with no_grad():
        tensor[...] = array  # type: ignore[index]
    return tensor


def _fans(name: str, tensor: Any) -> tuple[int, int]:
    """Return how many inputs and outputs one element of the output, and of the input, is connected with."""
    shape = tensor.shape
    if len(shape) < 2:
        raise ShapeError(
            f"{name}: the tensor has shape {shape}; inputs and outputs are told from two axes or more. Use normal_ or "
            "uniform_ for others."
        )
    places = math.prod(shape[2:])
    return shape[1] * places, shape[0] * places


def calculate_gain(nonlinearity: str, param: float | None = None) -> float:
    """Return the factor by which weights before a nonlinearity are scaled.

    Args:
        nonlinearity: "linear", "conv2d" and the like, "sigmoid", "tanh", "relu", "leaky_relu" or "selu".
        param: the negative slope of "leaky_relu".

    Example:
        >>> nt.nn.init.calculate_gain("leaky_relu", 1.0)
        1.0
    """
    if nonlinearity == "leaky_relu":
        return math.sqrt(2.0 / (1.0 + (0.01 if param is None else float(param)) ** 2))
    if nonlinearity.startswith("conv"):
        nonlinearity = "linear"
    if nonlinearity not in _GAINS:
        known = ", ".join([*_GAINS, "leaky_relu"])
        raise ArgumentError(f"calculate_gain: nonlinearity is {nonlinearity!r}; it must be one of {known}.")
    return _GAINS[nonlinearity]


def uniform_(tensor: Any, a: float = 0.0, b: float = 1.0, rng: Any = None) -> Any:
    """Fill a tensor with random numbers, uniform in [a, b).

    Example:
        >>> bool((nt.nn.init.uniform_(nt.empty(3), 2.0, 3.0, rng=0) >= 2.0).all())
        True
    """
    return _write("uniform_", tensor, random_creation.uniform(a, b, tensor.shape, dtype=tensor.dtype, rng=rng))


def normal_(tensor: Any, mean: float = 0.0, std: float = 1.0, rng: Any = None) -> Any:
    """Fill a tensor with normally distributed random numbers.

    Example:
        >>> nt.nn.init.normal_(nt.empty(2), mean=5.0, std=0.0)
        tensor([5., 5.])
    """
    return _write("normal_", tensor, random_creation.normal(mean, std, tensor.shape, dtype=tensor.dtype, rng=rng))


def trunc_normal_(
    tensor: Any, mean: float = 0.0, std: float = 1.0, a: float = -2.0, b: float = 2.0, rng: Any = None
) -> Any:
    """Fill a tensor with normally distributed random numbers between `a` and `b`: others are drawn again.

    Example:
        >>> bool((nt.nn.init.trunc_normal_(nt.empty(100), std=10.0, rng=0).abs() <= 2.0).all())
        True
    """
    check_constant("trunc_normal_", BY_CALL, mean, std, a, b)
    share = 0.5 * (math.erf((b - mean) / std / math.sqrt(2.0)) - math.erf((a - mean) / std / math.sqrt(2.0)))
    if not share > _LEAST_SHARE:
        raise ArgumentError(
            f"trunc_normal_: a is {a} and b is {b}; too little of a normal distribution with mean {mean} and standard "
            f"deviation {std} lies between them ({share:.2g})."
        )
    stream = stream_of(rng)
    drawn = random_creation.normal(mean, std, tensor.shape, dtype=np.float64, rng=stream).array
    while (is_outside := (drawn < a) | (drawn > b)).any():
        drawn[is_outside] = random_creation.normal(mean, std, int(is_outside.sum()), dtype=np.float64, rng=stream).array
    return _write("trunc_normal_", tensor, drawn.astype(tensor.dtype))


def constant_(tensor: Any, val: float) -> Any:
    """Fill a tensor with one number.

    Example:
        >>> nt.nn.init.constant_(nt.empty(2), 7.0)
        tensor([7., 7.])
    """
    return _write("constant_", tensor, val)


def zeros_(tensor: Any) -> Any:
    """Fill a tensor with zeros.

    Example:
        >>> nt.nn.init.zeros_(nt.ones(2))
        tensor([0., 0.])
    """
    return _write("zeros_", tensor, 0)


def ones_(tensor: Any) -> Any:
    """Fill a tensor with ones.

    Example:
        >>> nt.nn.init.ones_(nt.zeros(2))
        tensor([1., 1.])
    """
    return _write("ones_", tensor, 1)


def eye_(tensor: Any) -> Any:
    """Fill a matrix with ones on its diagonal and zeros elsewhere.

    Example:
        >>> nt.nn.init.eye_(nt.empty(2, 2))
        tensor([[1., 0.],
                [0., 1.]])
    """
    if len(tensor.shape) != 2:
        raise ShapeError(f"eye_: the tensor has shape {tensor.shape}; it must be a matrix.")
    return _write("eye_", tensor, np.eye(*tensor.shape, dtype=tensor.dtype))


def xavier_uniform_(tensor: Any, gain: float = 1.0, rng: Any = None) -> Any:
    """Fill with uniform numbers of variance ``gain**2 * 2 / (inputs + outputs)`` (Glorot and Bengio, 2010).

    Example:
        >>> bool((nt.nn.init.xavier_uniform_(nt.empty(3, 3), rng=0).abs() <= 1.0).all())
        True
    """
    bound = gain * math.sqrt(6.0 / sum(_fans("xavier_uniform_", tensor)))
    return uniform_(tensor, -bound, bound, rng)


def xavier_normal_(tensor: Any, gain: float = 1.0, rng: Any = None) -> Any:
    """Fill with normal numbers of variance ``gain**2 * 2 / (inputs + outputs)`` (Glorot and Bengio, 2010).

    Example:
        >>> nt.nn.init.xavier_normal_(nt.empty(2, 3), rng=0).shape
        (2, 3)
    """
    return normal_(tensor, 0.0, gain * math.sqrt(2.0 / sum(_fans("xavier_normal_", tensor))), rng)


def _kaiming_std(name: str, tensor: Any, a: float, mode: str, nonlinearity: str) -> float:
    fans = dict(zip(("fan_in", "fan_out"), _fans(name, tensor), strict=True))
    if mode not in fans:
        raise ArgumentError(f"{name}: mode is {mode!r}; it must be 'fan_in' or 'fan_out'.")
    return calculate_gain(nonlinearity, a) / math.sqrt(max(fans[mode], 1))


def kaiming_uniform_(
    tensor: Any, a: float = 0.0, mode: str = "fan_in", nonlinearity: str = "leaky_relu", rng: Any = None
) -> Any:
    """Fill with uniform numbers of variance ``gain**2 / fan`` (He and others, 2015).

    Args:
        tensor: what is filled; axis 0 is the outputs, axis 1 the inputs.
        a: the negative slope of "leaky_relu".
        mode: "fan_in" keeps the variance in the forward pass, "fan_out" that in the backward pass.
        nonlinearity: what follows; see `calculate_gain`.
        rng: a Generator, a seed, or None for the thread's stream.

    Example:
        >>> bool((nt.nn.init.kaiming_uniform_(nt.empty(4, 6), rng=0).abs() <= 1.0).all())
        True
    """
    bound = math.sqrt(3.0) * _kaiming_std("kaiming_uniform_", tensor, a, mode, nonlinearity)
    return uniform_(tensor, -bound, bound, rng)


def kaiming_normal_(
    tensor: Any, a: float = 0.0, mode: str = "fan_in", nonlinearity: str = "leaky_relu", rng: Any = None
) -> Any:
    """Fill with normal numbers of variance ``gain**2 / fan``; the arguments are those of `kaiming_uniform_`.

    Example:
        >>> nt.nn.init.kaiming_normal_(nt.empty(2, 3), rng=0).shape
        (2, 3)
    """
    return normal_(tensor, 0.0, _kaiming_std("kaiming_normal_", tensor, a, mode, nonlinearity), rng)


def orthogonal_(tensor: Any, gain: float = 1.0, rng: Any = None) -> Any:
    """Fill with a random matrix whose rows or columns are orthonormal, times `gain`; further axes count as columns.

    Example:
        >>> w = nt.nn.init.orthogonal_(nt.empty(2, 4, dtype=nt.float64), rng=0)
        >>> bool(nt.allclose(w @ w.T, nt.eye(2, dtype=nt.float64)))
        True
    """
    _fans("orthogonal_", tensor)
    return _write("orthogonal_", tensor, (gain * _orthonormal(tensor.shape, stream_of(rng))).astype(tensor.dtype))


def _orthonormal(shape: Shape, stream: Stream) -> NDArray:
    rows, columns = shape[0], math.prod(shape[1:])
    drawn = random_creation.normal(
        0.0, 1.0, (max(rows, columns), min(rows, columns)), dtype=np.float64, rng=stream
    ).array
    q, r = np.linalg.qr(drawn)
    # Without the signs, the distribution would not be uniform over orthogonal matrices.
    q = q * np.where(np.diag(r) < 0.0, -1.0, 1.0)
    return (q if rows >= columns else q.T).reshape(shape)


def forget_writes(*parameters: Any) -> None:
    """Take the first values of new parameters as what they were made with.

    Nobody has read them before, and ops are faster on memory that was never written.
    """
    for parameter in parameters:
        if parameter is not None:
            parameter.version = None


uniform = uniform_
normal = normal_
trunc_normal = trunc_normal_
constant = constant_
zeros = zeros_
ones = ones_
eye = eye_
xavier_uniform = glorot_uniform = glorot_uniform_ = xavier_uniform_
xavier_normal = glorot_normal = glorot_normal_ = xavier_normal_
kaiming_uniform = he_uniform = he_uniform_ = kaiming_uniform_
kaiming_normal = he_normal = he_normal_ = kaiming_normal_
orthogonal = orthogonal_
