"""`sensitivities`: a table of how much each result depends on each input."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .._typing import NDArray
from ..errors import ArgumentError
from ..interop.functions import Residuals
from ..interop.vectors import Layout
from .covariances import check_constant


@dataclass(frozen=True, eq=False)
class Sensitivities:
    """How each result depends on each input; printed, it is a table with the strongest first."""

    #: The derivatives, with a row for each result and a column for each input.
    derivatives: NDArray
    #: The same relative to both: by how many percent a result changes if an input changes by one. NaN where a result
    #: is zero.
    elasticities: NDArray
    #: What the inputs and the results are called, and what they are.
    inputs: list[str] = field(repr=False)
    outputs: list[str] = field(repr=False)
    input_values: NDArray = field(repr=False)
    output_values: NDArray = field(repr=False)

    def __str__(self) -> str:
        width = max(map(len, [*self.inputs, "input"]))
        lines = []
        for output, value, slopes, relative in zip(
            self.outputs, self.output_values, self.derivatives, self.elasticities, strict=True
        ):
            lines += [
                f"{output} = {value:.6g}",
                f"  {'input':{width}}  {'value':>12}  {'derivative':>12}  {'% per %':>10}",
            ]
            # An input that is zero has no elasticity to speak of: its derivative decides.
            order = np.lexsort((-np.abs(slopes), -np.abs(np.nan_to_num(relative))))
            lines += [
                f"  {self.inputs[i]:{width}}  {self.input_values[i]:12.6g}  {slopes[i]:12.6g}  {relative[i]:10.4g}"
                for i in order
            ]
        return "\n".join(lines)


def sensitivities(function: Callable[..., Any], x: Any, names: Sequence[str] | None = None) -> Sensitivities:
    """Return how much each result of a function depends on each input, absolutely and relatively.

    Args:
        function: takes a tree of tensors and returns a tensor or a tree of tensors.
        x: the inputs: tensors, arrays, numbers or a tree of them.
        names: what the elements of `x` are called, in the order of `nt.tree.leaves`; by default the paths to them.

    Returns:
        A `Sensitivities`; print it for a table.

    Example:
        >>> print(nt.uncertainty.sensitivities(lambda p: p["k"] * p["m"] ** 2, {"k": 3.0, "m": 2.0}))
        result = 12
          input         value    derivative     % per %
          m                 2            12           2
          k                 3             4           1
    """
    name = "sensitivities"
    check_constant(name, "x", x)
    layout = Layout(name, "x", x)
    labels = layout.names if names is None else list(map(str, names))
    if len(labels) != layout.size:
        raise ArgumentError(f"{name}: {len(labels)} names were given for {layout.size} inputs; give one for each.")
    values = Residuals(name, function, layout, ())
    out_tree, outs = values.start()
    derivatives = values.jacobian(layout.vector)
    results = np.concatenate([out.array.ravel() for out in outs]).astype(np.float64)
    with np.errstate(all="ignore"):
        elasticities = derivatives * layout.vector / np.where(results == 0, np.nan, results)[:, None]
    outputs = Layout(name, "result", values.as_returned(out_tree, outs, results)).names
    return Sensitivities(derivatives, elasticities, labels, outputs, layout.vector, results)
