"""Normalisation: layers that shift and scale what passes to mean 0 and variance 1, or to length 1."""

from typing import Any

from .._typing import Array, DtypeLike
from ..creation import ones, zeros
from ..devices import check_device
from ..dtypes import HALF_DTYPES, as_dtype, default_dtype, float32
from ..errors import ArgumentError, ShapeError
from ..ops import batch_norm, group_norm, instance_norm, layer_norm, rms_norm
from ..tensors import Tensor
from .checks import check_absent, check_count, check_dtype, is_integer
from .init import ones_, zeros_
from .module import Module
from .parameter import Parameter


class _Affine(Module):
    """A normalisation with a factor and a summand for each feature, or without."""

    weight: Parameter | None
    bias: Parameter | None

    def _make(self, shape: tuple[int, ...], has_weight: bool, has_bias: bool, dtype: DtypeLike) -> None:
        self.register_parameter("weight", Parameter(ones(shape, dtype=dtype)) if has_weight else None)
        self.register_parameter("bias", Parameter(zeros(shape, dtype=dtype)) if has_bias else None)

    def reset_parameters(self) -> None:
        """Set factors to 1 and summands to 0."""
        if self.weight is not None:
            ones_(self.weight)
        if self.bias is not None:
            zeros_(self.bias)

    def _check(self, x: Array) -> None:
        if self.weight is not None:
            check_dtype(self, x, self.weight)


class _BatchNorm(_Affine):
    """Normalise each channel over the batch."""

    #: How many axes the input may have, and what they are.
    ndims: tuple[int, ...]
    layout: str
    running_mean: Tensor | None
    running_var: Tensor | None
    num_batches_tracked: Tensor | None
    _follows = True

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        device: str | None = None,
        dtype: DtypeLike = None,
    ) -> None:
        check_device(type(self).__name__, device)
        self.num_features = num_features = check_count(type(self).__name__, "num_features", num_features)
        self.eps = eps
        self.momentum = momentum
        self.affine = affine
        self.track_running_stats = track_running_stats
        self._make((num_features,), affine, affine, dtype)
        has_stats = track_running_stats
        # A variance of float16 numbers may be as large as 2**32, which float16 cannot hold.
        wide = float32 if (default_dtype() if dtype is None else as_dtype(dtype)) in HALF_DTYPES else dtype
        mean, var = (make(num_features, dtype=wide) if has_stats else None for make in (zeros, ones))
        self.register_buffer("running_mean", mean, is_statistic=True)
        self.register_buffer("running_var", var, is_statistic=True)
        self.register_buffer("num_batches_tracked", zeros(dtype="int64") if has_stats else None)

    def reset_running_stats(self) -> None:
        """Forget all batches: mean 0, variance 1."""
        if self.running_mean is not None and self.running_var is not None and self.num_batches_tracked is not None:
            zeros_(self.running_mean)
            ones_(self.running_var)
            zeros_(self.num_batches_tracked)

    def forward(self, x: Array) -> Array:
        """Return the input normalised: by its own statistics in training, by the running ones otherwise."""
        self._check(x)
        if len(x.shape) not in self.ndims or x.shape[1] != self.num_features:
            raise ShapeError(
                f"{type(self).__name__}: the input has shape {x.shape} and there are {self.num_features} features; the "
                f"input must have shape {self.layout}, with {self.num_features} channels."
            )
        count = self.num_batches_tracked
        is_following = self.training and count is not None
        momentum = self.momentum
        if momentum is None and count is not None:
            # Without a momentum all batches count alike.
            momentum = 1.0 / (count.array.item() + 1)
        return batch_norm(
            x,
            self.running_mean,
            self.running_var,
            self.weight,
            self.bias,
            is_following or self.running_mean is None,
            0.0 if momentum is None else momentum,
            self.eps,
            num_batches_tracked=count,
        )

    def extra_repr(self) -> str:
        """Return the arguments."""
        return (
            f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, affine={self.affine}, "
            f"track_running_stats={self.track_running_stats}"
        )


class BatchNorm1d(_BatchNorm):
    """Normalise each channel of an input of shape (batch, channels) or (batch, channels, length).

    The arguments are those of `BatchNorm2d`.

    Example:
        >>> nt.nn.BatchNorm1d(1, eps=0.0)(nt.tensor([[1.0], [3.0]])).tolist()
        [[-1.0], [1.0]]
    """

    ndims = (2, 3)
    layout = "(batch, channels) or (batch, channels, length)"


class BatchNorm2d(_BatchNorm):
    """Normalise each channel of an input of shape (batch, channels, height, width).

    In training, mean and variance are those of the batch, and the running ones, which evaluation uses, move towards
    them. A batch whose mean or variance is not finite leaves those as they are and is not counted. Running statistics
    of a half layer are float32.

    Args:
        num_features: the number of channels.
        eps: added to the variance.
        momentum: how far the running statistics move; None for the mean over all batches.
        affine: whether each channel has a factor and a summand.
        track_running_stats: whether there are running statistics; without, those of the batch are used always.
        dtype: of parameters and, if it is no half type, of statistics; None for the default dtype.

    Example:
        >>> nt.nn.BatchNorm2d(3)(nt.ones(2, 3, 4, 4)).shape
        (2, 3, 4, 4)
    """

    ndims = (4,)
    layout = "(batch, channels, height, width)"


class LayerNorm(_Affine):
    """Normalise over the last axes.

    Args:
        normalized_shape: the lengths of these axes; an integer for one.
        eps: added to the variance.
        elementwise_affine: whether each element has a factor and a summand.
        bias: whether there is a summand.
        device: "cpu" or None, for PyTorch's sake.
        dtype: of the parameters; None for the default dtype.

    Example:
        >>> nt.nn.LayerNorm(2, eps=0.0)(nt.tensor([[1.0, 3.0]])).tolist()
        [[-1.0, 1.0]]
    """

    def __init__(
        self,
        normalized_shape: int | tuple[int, ...],
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
        device: str | None = None,
        dtype: DtypeLike = None,
    ) -> None:
        check_device(type(self).__name__, device)
        self.normalized_shape = _as_tuple(normalized_shape)
        self.eps = eps
        self.elementwise_affine = elementwise_affine
        self._make(self.normalized_shape, elementwise_affine, elementwise_affine and bias, dtype)

    def forward(self, x: Array) -> Array:
        """Return the input normalised."""
        self._check(x)
        return layer_norm(x, self.normalized_shape, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        """Return the arguments."""
        return f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}"


class RMSNorm(_Affine):
    """Divide by the root of the mean square over the last axes.

    Args:
        normalized_shape: the lengths of these axes; an integer for one.
        eps: added to the mean square; None for the dtype's resolution.
        elementwise_affine: whether each element has a factor.
        device: "cpu" or None, for PyTorch's sake.
        dtype: of the parameter; None for the default dtype.

    Example:
        >>> nt.nn.RMSNorm(2, eps=0.0)(nt.tensor([[3.0, 3.0]])).tolist()
        [[1.0, 1.0]]
    """

    def __init__(
        self,
        normalized_shape: int | tuple[int, ...],
        eps: float | None = None,
        elementwise_affine: bool = True,
        device: str | None = None,
        dtype: DtypeLike = None,
    ) -> None:
        check_device(type(self).__name__, device)
        self.normalized_shape = _as_tuple(normalized_shape)
        self.eps = eps
        self.elementwise_affine = elementwise_affine
        weight = Parameter(ones(self.normalized_shape, dtype=dtype)) if elementwise_affine else None
        self.register_parameter("weight", weight)

    def reset_parameters(self) -> None:
        """Set factors to 1."""
        if self.weight is not None:
            ones_(self.weight)

    def forward(self, x: Array) -> Array:
        """Return the input normalised."""
        self._check(x)
        return rms_norm(x, self.normalized_shape, self.weight, self.eps)

    def extra_repr(self) -> str:
        """Return the arguments."""
        return f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}"


class GroupNorm(_Affine):
    """Normalise each group of channels of each member of the batch.

    Args:
        num_groups: into how many groups the channels are cut.
        num_channels: the number of channels.
        eps: added to the variance.
        affine: whether each channel has a factor and a summand.
        device: "cpu" or None, for PyTorch's sake.
        dtype: of the parameters; None for the default dtype.

    Example:
        >>> nt.nn.GroupNorm(2, 4, eps=0.0)(nt.tensor([[1.0, 3.0, 10.0, 30.0]])).tolist()
        [[-1.0, 1.0, -1.0, 1.0]]
    """

    def __init__(
        self,
        num_groups: int,
        num_channels: int,
        eps: float = 1e-5,
        affine: bool = True,
        device: str | None = None,
        dtype: DtypeLike = None,
    ) -> None:
        check_device(type(self).__name__, device)
        self.num_groups = num_groups = check_count("GroupNorm", "num_groups", num_groups)
        self.num_channels = num_channels = check_count("GroupNorm", "num_channels", num_channels)
        if num_channels % num_groups:
            raise ArgumentError(f"GroupNorm: num_groups ({num_groups}) does not divide num_channels ({num_channels}).")
        self.eps = eps
        self.affine = affine
        self._make((num_channels,), affine, affine, dtype)

    def forward(self, x: Array) -> Array:
        """Return the input normalised."""
        self._check(x)
        return group_norm(x, self.num_groups, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        """Return the arguments."""
        return f"{self.num_groups}, {self.num_channels}, eps={self.eps}, affine={self.affine}"


class InstanceNorm2d(_Affine):
    """Normalise each channel of each image, of shape (batch, channels, height, width).

    Args:
        num_features: the number of channels.
        eps: added to the variance.
        momentum: for PyTorch's sake; it is that of running statistics, which there are none of.
        affine: whether each channel has a factor and a summand.
        track_running_stats: must be False.
        device: "cpu" or None, for PyTorch's sake.
        dtype: of the parameters; None for the default dtype.

    Example:
        >>> nt.nn.InstanceNorm2d(3)(nt.ones(2, 3, 4, 4)).shape
        (2, 3, 4, 4)
    """

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = False,
        track_running_stats: bool = False,
        device: str | None = None,
        dtype: DtypeLike = None,
    ) -> None:
        check_device(type(self).__name__, device)
        check_absent("InstanceNorm2d", "track_running_stats", track_running_stats, False)
        self.num_features = num_features = check_count("InstanceNorm2d", "num_features", num_features)
        self.eps = eps
        self.affine = affine
        self._make((num_features,), affine, affine, dtype)

    def forward(self, x: Array) -> Array:
        """Return the input normalised."""
        self._check(x)
        if len(x.shape) != 4 or x.shape[1] != self.num_features:
            raise ShapeError(
                f"InstanceNorm2d: the input has shape {x.shape} and there are {self.num_features} features; the input "
                f"must have shape (batch, channels, height, width), with {self.num_features} channels."
            )
        return instance_norm(x, weight=self.weight, bias=self.bias, eps=self.eps)

    def extra_repr(self) -> str:
        """Return the arguments."""
        return f"{self.num_features}, eps={self.eps}, affine={self.affine}"


def _as_tuple(shape: Any) -> tuple[int, ...]:
    return (int(shape),) if is_integer(shape) else tuple(shape)
