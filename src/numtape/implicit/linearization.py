"""An equation and its derivatives at one point, from one recording: a matrix, or products without it."""

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np

from .._typing import NDArray
from ..core.batching import Batched
from ..core.forward import forward
from ..core.gradients import link_of
from ..core.graph import Graph, Way, graph_of, way_of
from ..core.reverse import reverse
from ..core.tape import watching
from ..core.value import Value
from ..errors import NotDifferentiableError
from ..jacobians import matrix_blocks
from ..lifted import BatchedTensor
from ..schedule import HybridScheduler
from ..transforms.loop_states import tensors_of, with_tensors
from .capturing import Watcher, alone, check_known, on_tape
from .equations import Equation, tracked_copy
from .traces import Results, Trace, trace_of


class Linearization:
    """F at a point, recorded: dF = F_x dx + F_p dp, in products with either side.

    Args:
        equation: F(x, args) = 0.
        x: arrays, the leaves of the unknowns.
        args: the arguments; their float tensors are parameters.
        captured: tensors that the function takes from outside, parameters too; None to find them.
        is_traced: whether to note what `trace` needs.
    """

    def __init__(
        self,
        equation: Equation,
        x: Sequence[NDArray],
        args: tuple[Any, ...],
        captured: Sequence[Value] | None = (),
        is_traced: bool = False,
    ) -> None:
        self.equation = equation
        self.space = equation.space
        #: The leaves of x.
        self.unknowns = [tracked_copy(part) for part in x]
        given = tensors_of(args)
        #: The parameters: float tensors of the arguments, then captured ones.
        self.parameters = [tracked_copy(value.array) for value in (*given, *(captured or ()))]
        args = with_tensors(args, self.parameters[: len(given)])
        stand_ins = dict(zip(map(link_of, captured or ()), self.parameters[len(given) :], strict=True))
        watcher = Watcher([*self.unknowns, *tensors_of(args)], stand_ins)
        self._results = Results()
        with watching(captured or ()), alone(grad=True), on_tape(equation.title), np.errstate(all="ignore"):
            with watcher, self._results if is_traced else nullcontext():
                self._outs = equation.residual(self.unknowns, args)
            if captured is not None:
                check_known(equation.title, watcher)
        self._targets = [link_of(out) if out.node is not None else None for out in self._outs]
        #: What F is made of, found once for all products.
        self._graph: Graph | None = None
        #: How it leads to the unknowns, found once for all products too.
        self._way: Way | None = None
        #: F_x, for products that cannot be had otherwise.
        self._matrix: NDArray | None = None
        #: The tracked tensors that the function took from outside and that were not known.
        self.captured = watcher.captured()

    @property
    def x(self) -> NDArray:
        """The point, as a vector."""
        return self.space.join([part.array for part in self.unknowns])

    @property
    def residual(self) -> NDArray:
        """F, as a vector."""
        return self.space.join([out.array for out in self._outs])

    def trace(self) -> Trace:
        """Return how F was computed, to compare with another run."""
        return trace_of(self._outs, [*self.unknowns, *self.parameters, *self.captured], self._results.prints)

    def matrix(self) -> NDArray:
        """Return F_x: a row for each equation, a column for each unknown."""
        blocks = matrix_blocks(self._outs, self.unknowns, HybridScheduler(), None, is_recorded=False)
        return joined(blocks, self._outs, self.unknowns)

    def times(self, vector: NDArray) -> NDArray:
        """Return F_x times a vector."""
        try:
            return self.space.join(self._pushed(self.unknowns, self.space.split(vector)))
        except NotDifferentiableError:  # A user's rule for one mode need not give the other.
            if self._matrix is None:
                self._matrix = self.matrix()
            return np.asarray(self._matrix @ vector)

    def transposed_times(self, vector: NDArray) -> NDArray:
        """Return the transpose of F_x times a vector."""
        return self.space.join(self._pulled(self.space.split(vector), self.unknowns))

    def push(self, position: int, tangent: Any) -> list[Any]:
        """Return F_p times a tangent of one parameter: arrays, or batches for a batch."""
        return self._pushed([self.parameters[position]], [tangent])

    def pull(self, cotangents: Sequence[NDArray], is_batch: bool, needs: Sequence[bool]) -> list[Any]:
        """Return the transpose of F_p times cotangents of F: an array or a batch of them for each parameter in `needs`.

        Others get zeros.
        """
        batches = [BatchedTensor.of(c) for c in cotangents] if is_batch else cotangents
        wanted = [x for x, is_needed in zip(self.parameters, needs, strict=True) if is_needed]
        found = iter(self._pulled(batches, wanted))
        return [
            next(found) if is_needed else np.zeros(x.shape, x.dtype)
            for x, is_needed in zip(self.parameters, needs, strict=True)
        ]

    def _pushed(self, sources: Sequence[Any], tangents: Sequence[Any]) -> list[Any]:
        seeds = [(link_of(source), t) for source, t in zip(sources, tangents, strict=True)]
        found = forward(seeds, [link_of(out) for out in self._outs])
        return [np.zeros(out.shape) if t is None else t for out, t in zip(self._outs, found, strict=True)]

    def _pulled(self, cotangents: Sequence[Any], sources: Sequence[Any]) -> list[Any]:
        seeds = [(link, c) for link, c in zip(self._targets, cotangents, strict=True) if link is not None]
        links = [link_of(source) for source in sources]
        if self._graph is None:
            self._graph = graph_of([link for link, _ in seeds])
        if sources is self.unknowns and self._way is None:
            self._way = way_of(self._graph, set(links))
        found = reverse(seeds, links, graph=self._graph, way=self._way if sources is self.unknowns else None)
        return [
            np.zeros(source.shape, source.dtype) if (c := found.get(link)) is None else c
            for source, link in zip(sources, links, strict=True)
        ]


def joined(blocks: Sequence[Sequence[Any]], outs: Sequence[Any], sources: Sequence[Any]) -> NDArray:
    """Return the blocks of a Jacobian as one matrix; None stands for zeros."""
    widths = [x.array.size for x in sources]
    rows = [
        [np.zeros((y.array.size, n)) if b is None else b for b, n in zip(row, widths, strict=True)]
        for row, y in zip(blocks, outs, strict=True)
    ]
    return np.block(rows).astype(np.float64, copy=False)


def columns(parts: Sequence[Any]) -> tuple[NDArray, bool]:
    """Return (co)tangents of several leaves as columns of one matrix, and whether they came in batches."""
    count = next((len(part.members) for part in parts if isinstance(part, Batched)), None)
    rows = []
    for part in parts:
        members = part.members if isinstance(part, Batched) else np.asarray(part)[None]
        flat = np.asarray(members, np.float64).reshape(len(members), -1).T
        rows.append(np.broadcast_to(flat, (flat.shape[0], count or 1)))
    return np.concatenate(rows), count is not None
