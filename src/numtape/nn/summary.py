"""A model as a table: each module with its path, class, output shape and number of parameters."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .. import tree
from ..core.value import Value
from ..creation import zeros
from ..grad_mode import no_grad

if TYPE_CHECKING:
    from .module import Module

#: An output shape for each module that ran, by the module's id.
Shapes = dict[int, str]


@dataclass(frozen=True)
class ModelSummary:
    """What `Module.summary` returns; it prints as a table."""

    #: Path, class, output shape and number of parameters of each module; shared parameters count wherever they are.
    rows: tuple[tuple[str, str, str, int], ...]
    #: The number of parameters, of those that require a gradient, and their bytes; shared ones count once.
    parameters: int
    trainable: int
    nbytes: int

    def __str__(self) -> str:
        has_shapes = any(shape for _, _, shape, _ in self.rows)
        cells = [("path", "class", "output", "parameters"), *((p, c, s, f"{n:,}") for p, c, s, n in self.rows)]
        shown = [0, 1, 2, 3] if has_shapes else [0, 1, 3]
        widths = [max(len(row[i]) for row in cells) for i in shown]
        lines = [_line([row[i] for i in shown], widths) for row in cells]
        rule = "  ".join("-" * width for width in widths)
        total = f"{self.parameters:,} parameters ({self.trainable:,} trainable), {self.nbytes:,} bytes"
        return "\n".join([lines[0], rule, *lines[1:], total])

    __repr__ = __str__


def _line(cells: list[str], widths: list[int]) -> str:
    texts = [cell.ljust(width) for cell, width in zip(cells[:-1], widths, strict=False)]
    return "  ".join([*texts, cells[-1].rjust(widths[-1])])


def summarise(module: "Module", example: tuple[Any, ...]) -> ModelSummary:
    """Return the summary of a module; an example input is run through it, in evaluation and without gradients."""
    shapes = _output_shapes(module, tuple(_input(module, each) for each in example)) if example else {}
    rows = tuple(
        (path, type(part).__name__, shapes.get(id(part), ""), sum(p.size for p in part.parameters()))
        for path, part in module.named_modules()
    )
    parameters = list(module.parameters())
    return ModelSummary(
        rows,
        sum(p.size for p in parameters),
        sum(p.size for p in parameters if p.requires_grad),
        sum(p.nbytes for p in parameters),
    )


def _input(module: "Module", example: Any) -> Any:
    """Return an example input; zeros of the model's dtype if a shape is given."""
    if isinstance(example, tuple) and example and all(isinstance(length, int) for length in example):
        return zeros(example, dtype=next((p.dtype for p in module.parameters()), None))
    return example


def _output_shapes(module: "Module", example: tuple[Any, ...]) -> Shapes:
    shapes: Shapes = {}

    def note(part: "Module", args: Any, out: Any) -> None:
        found = [str(leaf.shape) for leaf in tree.leaves(out) if isinstance(leaf, Value)]
        shapes[id(part)] = ", ".join(found)

    parts = list(module.modules())
    modes = [part.training for part in parts]
    handles = [part.register_forward_hook(note) for part in parts]
    try:
        module.eval()
        with no_grad():
            module(*example)
    finally:
        for part, mode, handle in zip(parts, modes, handles, strict=True):
            part.training = mode
            handle.remove()
    return shapes
