"""One step of recurrent layers, for loops of one's own: RNNCell, LSTMCell and GRUCell."""

import math
from typing import Any

from .._typing import Array, DtypeLike
from ..core.stream import stream_of
from ..creation import zeros
from ..devices import check_device
from ..errors import ArgumentError, ShapeError
from ..ops import chunk, relu, sigmoid, tanh
from . import init
from .checks import check_count, check_dtype
from .functional import linear
from .module import Module
from .parameter import Parameter, blank


class Stateful(Module):
    """A module with a state, whose parameters are all drawn alike."""

    hidden_size: int

    def reset_parameters(self, rng: Any = None) -> None:
        """Draw all parameters, uniform between plus and minus ``1 / sqrt(hidden_size)``."""
        stream = stream_of(rng)
        bound = 1.0 / math.sqrt(self.hidden_size)
        for parameter in self.parameters():
            init.uniform_(parameter, -bound, bound, stream)


class _Cell(Stateful):
    """What all cells share: the weights of input and state, and how both are checked."""

    gates = 1
    weight_ih: Parameter
    weight_hh: Parameter
    bias_ih: Parameter | None
    bias_hh: Parameter | None

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        device: str | None = None,
        dtype: DtypeLike = None,
        rng: Any = None,
    ) -> None:
        name = type(self).__name__
        check_device(name, device)
        self.input_size = input_size = check_count(name, "input_size", input_size)
        self.hidden_size = hidden_size = check_count(name, "hidden_size", hidden_size)
        rows = self.gates * hidden_size
        self.weight_ih = blank((rows, input_size), dtype)
        self.weight_hh = blank((rows, hidden_size), dtype)
        self.register_parameter("bias_ih", blank((rows,), dtype) if bias else None)
        self.register_parameter("bias_hh", blank((rows,), dtype) if bias else None)
        self.reset_parameters(rng)
        init.forget_writes(*self.parameters())

    def _state(self, x: Any, state: Any, name: str) -> Any:
        """Return the state to go on from, zeros if there is none."""
        check_dtype(self, x, self.weight_ih)
        shape = tuple(x.shape)
        if len(shape) not in (1, 2) or shape[-1] != self.input_size:
            raise ShapeError(
                f"{type(self).__name__}: the input has shape {shape}; it must have shape (batch, {self.input_size}) or "
                f"({self.input_size},)."
            )
        wanted = (*shape[:-1], self.hidden_size)
        if state is None:
            return zeros(wanted, dtype=self.weight_ih.dtype)
        check_dtype(self, state, self.weight_ih)
        if tuple(state.shape) != wanted:
            raise ShapeError(f"{type(self).__name__}: {name} has shape {tuple(state.shape)}; it must be {wanted}.")
        return state

    def _both(self, x: Array, h: Array) -> tuple[Array, Array]:
        """Return what input and state contribute."""
        return linear(x, self.weight_ih, self.bias_ih), linear(h, self.weight_hh, self.bias_hh)

    def extra_repr(self) -> str:
        """Return the sizes."""
        return f"{self.input_size}, {self.hidden_size}" + ("" if self.bias_ih is not None else ", bias=False")


class RNNCell(_Cell):
    """Compute ``tanh(x @ weight_ih.T + bias_ih + h @ weight_hh.T + bias_hh)``.

    Args:
        input_size: the number of features of the input.
        hidden_size: the number of features of the state.
        bias: whether there are biases.
        nonlinearity: "tanh" or "relu".
        device: "cpu" or None, for PyTorch's sake.
        dtype: of the parameters; None for the default dtype.
        rng: what the first values are drawn from; None for the thread's stream.

    Example:
        >>> nt.nn.RNNCell(3, 5)(nt.ones(2, 3)).shape
        (2, 5)
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        nonlinearity: str = "tanh",
        device: str | None = None,
        dtype: DtypeLike = None,
        rng: Any = None,
    ) -> None:
        if nonlinearity not in ("tanh", "relu"):
            raise ArgumentError(f"RNNCell: nonlinearity is {nonlinearity!r}; it must be 'tanh' or 'relu'.")
        self.nonlinearity = nonlinearity
        super().__init__(input_size, hidden_size, bias, device, dtype, rng)

    def forward(self, x: Array, hx: Any = None) -> Array:
        """Return the next state."""
        of_x, of_h = self._both(x, self._state(x, hx, "hx"))
        return (tanh if self.nonlinearity == "tanh" else relu)(of_x + of_h)


class LSTMCell(_Cell):
    """Compute one step of a long short-term memory; the arguments are those of `RNNCell`, without `nonlinearity`.

    Example:
        >>> h, c = nt.nn.LSTMCell(3, 5)(nt.ones(2, 3))
        >>> h.shape, c.shape
        ((2, 5), (2, 5))
    """

    gates = 4

    def forward(self, x: Array, hx: Any = None) -> tuple[Array, Array]:
        """Return the next ``(h, c)``."""
        h, c = (None, None) if hx is None else hx
        h, c = self._state(x, h, "h"), self._state(x, c, "c")
        of_x, of_h = self._both(x, h)
        enter, keep, new, leave = chunk(of_x + of_h, 4, axis=-1)
        c = sigmoid(keep) * c + sigmoid(enter) * tanh(new)
        return sigmoid(leave) * tanh(c), c


class GRUCell(_Cell):
    """Compute one step of gated recurrent units; the arguments are those of `RNNCell`, without `nonlinearity`.

    Example:
        >>> nt.nn.GRUCell(3, 5)(nt.ones(2, 3)).shape
        (2, 5)
    """

    gates = 3

    def forward(self, x: Array, hx: Any = None) -> Array:
        """Return the next state."""
        h = self._state(x, hx, "hx")
        of_x, of_h = self._both(x, h)
        reset_x, update_x, new_x = chunk(of_x, 3, axis=-1)
        reset_h, update_h, new_h = chunk(of_h, 3, axis=-1)
        update = sigmoid(update_x + update_h)
        new = tanh(new_x + sigmoid(reset_x + reset_h) * new_h)
        return new + update * (h - new)
