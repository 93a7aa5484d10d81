"""Recurrent layers: RNN, LSTM and GRU, in several layers and both directions."""

from typing import Any

import numpy as np

from .._typing import Array, DtypeLike
from ..devices import check_device
from ..errors import ArgumentError, ShapeError
from ..ops import chunk, concat, dropout, matmul, permute, relu, sigmoid, stack, tanh, unbind
from . import init
from .cells import Stateful
from .checks import check_absent, check_count, check_dtype, check_probability
from .functional import linear
from .parameter import Parameter, blank


class _Recurrent(Stateful):
    """What all recurrent layers share: parameters by layer and direction, and the walk over them.

    A subclass defines `steps`, which runs one direction of one layer, and says how many gates it has and how many
    tensors its state is.
    """

    gates = 1
    #: The names of the state's tensors in errors.
    state_names: tuple[str, ...] = ("h0",)

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        device: str | None = None,
        dtype: DtypeLike = None,
        rng: Any = None,
    ) -> None:
        name = type(self).__name__
        check_device(name, device)
        check_absent(name, "proj_size", proj_size, 0)
        self.input_size = input_size = check_count(name, "input_size", input_size)
        self.hidden_size = hidden_size = check_count(name, "hidden_size", hidden_size)
        self.num_layers = num_layers = check_count(name, "num_layers", num_layers)
        self.bias = bias
        self.batch_first = batch_first
        self.dropout = dropout = check_probability(name, dropout)
        self.bidirectional = bidirectional
        rows = self.gates * hidden_size
        for layer, suffix in self._directions():
            width = input_size if layer == 0 else hidden_size * (1 + bidirectional)
            setattr(self, f"weight_ih{suffix}", blank((rows, width), dtype))
            setattr(self, f"weight_hh{suffix}", blank((rows, hidden_size), dtype))
            if bias:
                setattr(self, f"bias_ih{suffix}", blank((rows,), dtype))
                setattr(self, f"bias_hh{suffix}", blank((rows,), dtype))
        self.reset_parameters(rng)
        init.forget_writes(*self.parameters())

    def _directions(self) -> list[tuple[int, str]]:
        """Return the layers, once for each direction, with the ending of their parameters' names."""
        endings = ("", "_reverse") if self.bidirectional else ("",)
        return [(layer, f"_l{layer}{ending}") for layer in range(self.num_layers) for ending in endings]

    def _weights(self, suffix: str) -> tuple[Any, Any, Any, Any]:
        members = self.__dict__
        biases = (members[f"bias_ih{suffix}"], members[f"bias_hh{suffix}"]) if self.bias else (None, None)
        return members[f"weight_ih{suffix}"], members[f"weight_hh{suffix}"], *biases

    def steps(self, x: Array, state: list[Array], suffix: str, is_reverse: bool) -> tuple[Array, list[Array]]:
        """Run one direction of one layer over x, of shape (steps, batch, features); return outputs and last state."""
        raise NotImplementedError

    def run(self, x: Array, state: Any) -> tuple[Array, list[Array]]:
        """Return the outputs of the last layer, and the last states of all, stacked."""
        first: Parameter = self.__dict__["weight_ih_l0"]
        check_dtype(self, x, first)
        is_single = len(x.shape) == 2
        self._check_input(x)
        if is_single:
            x = x[:, None]
        elif self.batch_first:
            x = permute(x, (1, 0, 2))
        states = self._first_states(state, x.shape[1], is_single, first.dtype)
        lasts: list[list[Array]] = []
        directions = self._directions()
        ways = 1 + self.bidirectional
        for layer in range(self.num_layers):
            outs = []
            for k in range(layer * ways, layer * ways + ways):
                out, last = self.steps(x, [part[k] for part in states], directions[k][1], bool(k % ways))
                outs.append(out)
                lasts.append(last)
            x = outs[0] if ways == 1 else concat(outs, axis=-1)
            if self.dropout and self.training and layer < self.num_layers - 1:
                x = dropout(x, self.dropout)
        stacked = [stack(parts) for parts in zip(*lasts, strict=True)]
        if is_single:
            return x[:, 0], [part[:, 0] for part in stacked]
        return permute(x, (1, 0, 2)) if self.batch_first else x, stacked

    def _check_input(self, x: Array) -> None:
        if len(x.shape) not in (2, 3) or x.shape[-1] != self.input_size:
            layout = "(batch, steps, features)" if self.batch_first else "(steps, batch, features)"
            raise ShapeError(
                f"{type(self).__name__}: the input has shape {x.shape} and weight_ih_l0 "
                f"{self.__dict__['weight_ih_l0'].shape}; the input must have shape {layout} or, for one sample, "
                f"(steps, features), with {self.input_size} features."
            )
        if not x.shape[1 if len(x.shape) == 3 and self.batch_first else 0]:
            raise ShapeError(f"{type(self).__name__}: the input has shape {x.shape}, without any step.")

    def _first_states(self, given: Any, batch: int, is_single: bool, dtype: Any) -> list[Any]:
        """Return the states to start from, each of shape (layers and directions, batch, hidden)."""
        count = len(self._directions())
        if given is None:
            # An array, not a tensor, so that no tape watches it.
            return [np.zeros((count, batch, self.hidden_size), dtype)] * len(self.state_names)
        parts = list(given) if isinstance(given, tuple | list) else [given]
        names = " and ".join(self.state_names)
        if len(parts) != len(self.state_names):
            raise ArgumentError(f"{type(self).__name__}: the state has {len(parts)} parts; it must be {names}.")
        shape = (count, self.hidden_size) if is_single else (count, batch, self.hidden_size)
        for name, part in zip(self.state_names, parts, strict=True):
            check_dtype(self, part, self.__dict__["weight_ih_l0"])
            if tuple(part.shape) != shape:
                raise ShapeError(f"{type(self).__name__}: {name} has shape {tuple(part.shape)}; it must be {shape}.")
        return [part[:, None] for part in parts] if is_single else parts

    def extra_repr(self) -> str:
        """Return the sizes, and what differs from its default."""
        options = {
            "num_layers": (self.num_layers, 1),
            "bias": (self.bias, True),
            "batch_first": (self.batch_first, False),
            "dropout": (self.dropout, 0.0),
            "bidirectional": (self.bidirectional, False),
        }
        changed = [f"{name}={value}" for name, (value, default) in options.items() if value != default]
        return ", ".join([str(self.input_size), str(self.hidden_size), *changed])


def _inputs(x: Array, is_reverse: bool) -> Any:
    """Return the inputs of each step, in the order in which the steps run."""
    parts = unbind(x)
    return parts[::-1] if is_reverse else parts


def _outputs(outs: list[Array], is_reverse: bool) -> Array:
    return stack(outs[::-1] if is_reverse else outs)


class RNN(_Recurrent):
    """Run ``h = tanh(x @ weight_ih.T + bias_ih + h @ weight_hh.T + bias_hh)`` over the steps of sequences.

    Args:
        input_size: the number of features of a step.
        hidden_size: the number of features of the state.
        num_layers: how many such layers follow each other.
        nonlinearity: "tanh" or "relu".
        bias: whether there are biases.
        batch_first: whether inputs and outputs have shape (batch, steps, features), not (steps, batch, features).
        dropout: the probability of dropout between layers, in training.
        bidirectional: whether each layer also runs from the last step to the first; outputs are then twice as wide.
        device: "cpu" or None, for PyTorch's sake.
        dtype: of the parameters; None for the default dtype.
        rng: what the first values are drawn from; None for the thread's stream.

    Example:
        >>> output, last = nt.nn.RNN(3, 5)(nt.ones(7, 2, 3))
        >>> output.shape, last.shape
        ((7, 2, 5), (1, 2, 5))
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        nonlinearity: str = "tanh",
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        device: str | None = None,
        dtype: DtypeLike = None,
        rng: Any = None,
    ) -> None:
        check_device("RNN", device)
        if nonlinearity not in ("tanh", "relu"):
            raise ArgumentError(f"RNN: nonlinearity is {nonlinearity!r}; it must be 'tanh' or 'relu'.")
        self.nonlinearity = nonlinearity
        super().__init__(
            input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, dtype=dtype, rng=rng
        )

    def steps(self, x: Array, state: list[Array], suffix: str, is_reverse: bool) -> tuple[Array, list[Array]]:
        """Run one direction of one layer."""
        weight_ih, weight_hh, bias_ih, bias_hh = self._weights(suffix)
        bend = tanh if self.nonlinearity == "tanh" else relu
        turned = permute(weight_hh, (1, 0))
        # Of all steps at once; what does not depend on the state is one large product.
        projected = linear(x, weight_ih, bias_ih if bias_ih is None else bias_ih + bias_hh)
        h, outs = state[0], []
        for part in _inputs(projected, is_reverse):
            h = bend(part + matmul(h, turned))
            outs.append(h)
        return _outputs(outs, is_reverse), [h]

    def forward(self, x: Array, h0: Array = None) -> tuple[Array, Array]:
        """Return the outputs of the last layer at all steps, and the last state of each layer and direction."""
        out, last = self.run(x, h0)
        return out, last[0]


class LSTM(_Recurrent):
    """Run a long short-term memory over the steps of sequences; the arguments are those of `RNN`.

    Example:
        >>> output, (h, c) = nt.nn.LSTM(3, 5, num_layers=2, batch_first=True)(nt.ones(2, 7, 3))
        >>> output.shape, h.shape, c.shape
        ((2, 7, 5), (2, 2, 5), (2, 2, 5))
    """

    gates = 4
    state_names = ("h0", "c0")

    def steps(self, x: Array, state: list[Array], suffix: str, is_reverse: bool) -> tuple[Array, list[Array]]:
        """Run one direction of one layer."""
        weight_ih, weight_hh, bias_ih, bias_hh = self._weights(suffix)
        turned = permute(weight_hh, (1, 0))
        projected = linear(x, weight_ih, bias_ih if bias_ih is None else bias_ih + bias_hh)
        h, c = state
        outs = []
        for part in _inputs(projected, is_reverse):
            enter, keep, new, leave = chunk(part + matmul(h, turned), 4, axis=-1)
            c = sigmoid(keep) * c + sigmoid(enter) * tanh(new)
            h = sigmoid(leave) * tanh(c)
            outs.append(h)
        return _outputs(outs, is_reverse), [h, c]

    def forward(self, x: Array, state: Any = None) -> tuple[Array, tuple[Array, Array]]:
        """Return the outputs of the last layer at all steps, and the last ``(h, c)`` of each layer and direction."""
        out, (h, c) = self.run(x, state)
        return out, (h, c)


class GRU(_Recurrent):
    """Run gated recurrent units over the steps of sequences; the arguments are those of `RNN`.

    Example:
        >>> output, last = nt.nn.GRU(3, 5, bidirectional=True)(nt.ones(7, 2, 3))
        >>> output.shape, last.shape
        ((7, 2, 10), (2, 2, 5))
    """

    gates = 3

    def steps(self, x: Array, state: list[Array], suffix: str, is_reverse: bool) -> tuple[Array, list[Array]]:
        """Run one direction of one layer."""
        weight_ih, weight_hh, bias_ih, bias_hh = self._weights(suffix)
        turned = permute(weight_hh, (1, 0))
        h, outs = state[0], []
        for part in _inputs(linear(x, weight_ih, bias_ih), is_reverse):
            product = matmul(h, turned)
            reset_x, update_x, new_x = chunk(part, 3, axis=-1)
            reset_h, update_h, new_h = chunk(product if bias_hh is None else product + bias_hh, 3, axis=-1)
            update = sigmoid(update_x + update_h)
            new = tanh(new_x + sigmoid(reset_x + reset_h) * new_h)
            h = new + update * (h - new)
            outs.append(h)
        return _outputs(outs, is_reverse), [h]

    def forward(self, x: Array, h0: Array = None) -> tuple[Array, Array]:
        """Return the outputs of the last layer at all steps, and the last state of each layer and direction."""
        out, last = self.run(x, h0)
        return out, last[0]
