"""A graph as plain data: what records are, link to and cost, without their arrays. All pictures are drawn from it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

#: Plain numbers about a record or a source, by name: see `NUMBERS`.
Numbers = dict[str, float]
#: For the index of a record, numbers that a profile measured.
Profile = Mapping[int, Mapping[str, float]]

#: The numbers that pictures know, with their meaning. Others are shown under their own name.
NUMBERS = {
    "seconds": "time of the forward",
    "backward_seconds": "time of the backward",
    "flops": "floating-point operations",
    "mean": "mean of the finite elements",
    "std": "standard deviation of the finite elements",
    "min": "smallest finite element",
    "max": "largest finite element",
    "nans": "elements that are NaN",
    "infs": "elements that are infinite",
    "grad_norm": "Euclidean norm of the gradient",
    "live_bytes": "bytes held after the forward",
    "backward_live_bytes": "bytes held after the backward",
}


@dataclass(frozen=True, slots=True)
class Source:
    """What records begin with: a leaf, a constant, or a record that lies outside of the graph."""

    name: str
    #: "leaf" (gradients flow here), "constant" or "earlier" (a record that is not in the graph).
    kind: str
    shape: tuple[int, ...]
    dtype: str
    nbytes: int
    numbers: Numbers = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Node:
    """One record."""

    op: str
    #: How elements of the output depend on those of the operands: the name of the op's `Structure`, in lower case.
    kind: str
    #: The record's number, ``~n`` for source n, the text of anything else.
    inputs: tuple[int | str, ...]
    #: One shape; several for an op with several outputs.
    shape: tuple[Any, ...]
    dtype: str
    nbytes: int
    #: "yes", "freed" (by a backward), "dropped" (to be made again), or "" (no rule reads it).
    kept: str
    #: The user's line, the file's name without its directories, and the whole path.
    site: str
    file: str
    params: str = ""
    name: str = ""
    #: The module whose parameters it uses, or that it follows; "" if there is none.
    layer: str = ""
    numbers: Numbers = field(default_factory=dict)
    #: What is wrong with its gradient: "", "vanishing", "exploding", "zero" or "not finite".
    mark: str = ""


@dataclass(frozen=True, slots=True)
class Layer:
    """The sources of one module, and the norm of their gradients together; None if it is not known."""

    name: str
    sources: tuple[int, ...]
    norm: float | None
    mark: str


@dataclass(frozen=True, slots=True)
class Timeline:
    """Bytes that records and the sweep hold, after each record of the forward and, newest first, of the backward."""

    forward: tuple[int, ...]
    backward: tuple[int, ...]
    is_measured: bool


@dataclass(frozen=True, slots=True)
class Graph:
    """Records, oldest first, and what they begin with."""

    records: tuple[Node, ...]
    sources: tuple[Source, ...]
    layers: tuple[Layer, ...]
    memory: Timeline
    #: Whose gradient the norms are: a record's number.
    target: int | None = None
    #: What a reader should know, such as why there are no gradient norms.
    notes: tuple[str, ...] = ()
