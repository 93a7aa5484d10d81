"""`jacobian(sparse=True)` and `hessian(sparse=True)`: record, find or recognise the pattern, choose a plan, sweep.

What was found for one graph serves all later graphs of the same signature, so that the steps of a solver pay for
patterns and colours once.
"""

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .. import tree
from ..arguments import Argnums, Arguments, call, depends_on_others, released
from ..config import SchedulingStrategy
from ..core.context import current
from ..core.gradients import link_of
from ..core.jacobian import LostAtCut, Path, Sweeper, by_cut, size_of
from ..core.value import Value
from ..dtypes import HALF_DTYPES, float32
from ..errors import LeavesTapeError, NotDifferentiableError, PatternError
from ..lifted import BatchedTensor
from ..schedule import Alternative, HybridScheduler
from .compressed import compute
from .exits import on_tape
from .matrices import Matrix, check_library, matrix, rows_of
from .pattern import find_pattern
from .plans import Plan, Plans
from .signature import Signature, describe_change, signature

_FORWARD, _REVERSE, _MIXED = SchedulingStrategy.FORWARD, SchedulingStrategy.REVERSE, SchedulingStrategy.MIXED
_MODES = {"columns": _FORWARD, "star": _FORWARD, "rows": _REVERSE, "two-sided": _MIXED}


class Computer:
    """Computes sparse Jacobians of recorded graphs, and remembers the pattern and the plans of the last one.

    Args:
        name: of the transform, for messages.
        scheduler: chooses among the plans.
        chunk_size: how many tangents or cotangents to carry at once; None: by the size of the pattern.
        is_symmetric: whether the matrices are Hessians.
        is_fixed: whether the first pattern must hold for all later graphs; otherwise it is found anew for another one.
    """

    def __init__(
        self, name: str, scheduler: HybridScheduler, chunk_size: int | None, is_symmetric: bool, is_fixed: bool = False
    ) -> None:
        self.name = name
        self.scheduler = scheduler
        self.chunk_size = chunk_size
        self.is_symmetric = is_symmetric
        self.is_fixed = is_fixed
        #: The plans, which hold the pattern, and the signature of the graph that they were made for.
        self.known: tuple[Signature, Plans] | None = None
        #: The last graph of another signature whose pattern lies within a fixed one.
        self._within: Signature | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Return what to pickle: the pattern and its plans, but not the signature, since ops are no data.

        The first graph after that has its pattern found again, and compared.
        """
        known = None if self.known is None else (Signature((), ()), self.known[1])
        return {**self.__dict__, "known": known, "_within": None}

    def learn(self, outs: Sequence[Value], sources: Sequence[Value]) -> Plans:
        """Return the plans for a graph: those that are known, or new ones."""
        return self._plans(_path(outs, sources))

    def blocks(self, outs: Sequence[Value], sources: Sequence[Value]) -> list[list[Matrix]]:
        """Return the Jacobian of tensors by tensors: a sparse matrix for each pair."""
        path = _path(outs, sources)
        try:
            whole = self._matrix(path, self._plans(path))
        except NotDifferentiableError as error:
            raise NotDifferentiableError(
                f"{self.name}: with sparse=True unit vectors are added up, which takes rules that are linear and known "
                f"in both modes; use sparse=False. {error}"
            ) from error
        if len(outs) == len(sources) == 1:
            return [[_as_dtype(whole, sources[0])]]
        rows, columns = _slices(outs), _slices(sources)
        return [
            [_as_dtype(whole[row, column], source) for column, source in zip(columns, sources, strict=True)]
            for row in rows
        ]

    def _plans(self, path: Path) -> Plans:
        shown = signature(path)
        if self.known is not None and shown in (self.known[0], self._within):
            return self.known[1]
        pattern = find_pattern(path)
        if self.is_symmetric:
            # What is read from either side of the diagonal is right for both.
            pattern = pattern.multiply(pattern.T).tocsr()
            pattern.sort_indices()
        if self.known is not None and self.is_fixed:
            self._check_within(pattern, shown, path)
            self._within = shown
            return self.known[1]
        plans = Plans(pattern, self.is_symmetric)
        self.known = shown, plans
        return plans

    def _check_within(self, pattern: Matrix, shown: Signature, path: Path) -> None:
        """Raise if a new pattern has entries that the fixed one lacks."""
        assert self.known is not None
        before, plans = self.known
        what = "Hessian" if self.is_symmetric else "Jacobian"
        advice = (
            f"Make a new one with nt.sparsity, or use nt.{what.lower()}(f, sparse=True), which finds the pattern of "
            "each graph."
        )
        if pattern.shape != plans.pattern.shape:
            raise PatternError(
                f"{self.name}: the pattern is of a {what} of shape {plans.pattern.shape}, and this one has shape "
                f"{pattern.shape}. {advice}"
            )
        extra = pattern > plans.pattern
        if extra.nnz:
            row, column = int(rows_of(extra.tocsr())[0]), int(extra.tocsr().indices[0])
            raise PatternError(
                f"{self.name}: the sparsity pattern no longer holds: {describe_change(before, shown, path)}, and "
                f"{extra.nnz} entries of the {what} lie outside of it, the first in row {row}, column {column}. "
                f"{advice}"
            )

    def _matrix(self, path: Path, plans: Plans) -> Matrix:
        refused: dict[SchedulingStrategy, str] = {}
        while True:
            ways = [(plan, _alternative(plan, path)) for plan in self._candidates(plans, refused)]
            decision = self.scheduler.decide(path, refused, [way for _, way in ways])
            plan = next((plan for plan, way in ways if way is decision.chosen), None)
            try:
                if plan is None:
                    return _through_cut(path, plans.pattern)
                return compute(self.name, path, plans.pattern, plan, self.chunk_size)
            except LostAtCut as lost:
                refused[decision.mode] = str(lost)
            except NotDifferentiableError as error:
                refused[decision.mode] = str(error)
                if not self.scheduler.can_decide_anew(refused):
                    raise

    def _candidates(self, plans: Plans, refused: dict[SchedulingStrategy, str]) -> list[Plan]:
        strategy = self.scheduler.config.strategy
        if strategy is _FORWARD:
            return [plans.columns, plans.star] if self.is_symmetric else [plans.columns]
        if strategy is _REVERSE:
            return [plans.rows]
        if strategy is _MIXED:
            return [plans.two_sided]
        if refused:
            return [plans.columns if _REVERSE in refused else plans.rows]
        return list(plans.promising())


def _path(outs: Sequence[Value], sources: Sequence[Value]) -> Path:
    return Path([link_of(out) for out in outs], [link_of(source) for source in sources])


def _alternative(plan: Plan, path: Path) -> Alternative:
    price = plan.colours * path.work
    return Alternative(_MODES[plan.name], plan.tangents, plan.cotangents, price, colouring=plan.name)


def _through_cut(path: Path, pattern: Matrix) -> Matrix:
    """Return the entries of a pattern from the product at the narrowest cut."""
    chunk = max(1, pattern.nnz // max(1, *path.widths))
    blocks = by_cut(path, path.narrowest, Sweeper(BatchedTensor, None, lambda parts, axis: parts, chunk))
    rows = []
    for target, row in zip(path.targets, blocks, strict=True):
        sizes = [(size_of(target), size_of(source)) for source in path.sources]
        parts = [np.zeros(size) if part is None else part for part, size in zip(row, sizes, strict=True)]
        rows.append(np.concatenate(parts, axis=1))
    values = np.concatenate(rows)[rows_of(pattern), pattern.indices]
    return matrix(values, pattern.indices.copy(), pattern.indptr.copy(), pattern.shape)


def _slices(values: Sequence[Value]) -> list[slice]:
    ends = np.cumsum([0, *map(size_of, values)]).tolist()
    return list(itertools.starmap(slice, itertools.pairwise(ends)))


def _as_dtype(block: Matrix, source: Value) -> Matrix:
    dtype = float32 if source.dtype in HALF_DTYPES else source.dtype
    return block if block.dtype == dtype else block.astype(dtype)


#: Takes the name of the transform, the function, what it returned, its leaves as tensors and the arguments; returns the
#: tensors to differentiate once more.
Prepare = Callable[[str, Callable[..., Any], Any, list[Any], Arguments], list[Any]]


def recorded(
    name: str,
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    argnums: Argnums,
    has_aux: bool,
    prepare: Prepare | None,
) -> tuple[Arguments, Any, list[Any], Any]:
    """Call a function; return its arguments, what it returned, the tensors to differentiate, and the auxiliary part."""
    inputs = Arguments(name, args, argnums)
    with on_tape(name, function):
        out_tree, outs, aux = call(name, function, inputs, kwargs, has_aux)
    if current().grad and depends_on_others(inputs, outs):
        # Only some have a dense form to offer.
        advice = "Use sparse=False, detach()" if name in ("jacobian", "hessian") else "Use detach() of"
        raise LeavesTapeError(
            f"{name}: something outside differentiates by what this depends on (a tape, a transform, or a tensor that "
            f"requires a gradient), and a SciPy matrix cannot be tracked. {advice} the tensor, or call it inside of "
            "nt.no_grad()."
        )
    aux = released(inputs, aux, False)
    if prepare is not None:
        outs = prepare(name, function, out_tree, outs, inputs)
    return inputs, out_tree, outs, aux


def sparse_derivative(
    function: Callable[..., Any],
    argnums: Argnums,
    has_aux: bool,
    computer: Computer,
    prepare: Prepare | None = None,
) -> Callable[..., Any]:
    """Return a function that returns the sparse Jacobian of a function, or Hessian if `prepare` takes gradients.

    The result has the structure of the dense one: for one array in and one array out, a single matrix.
    """
    name = computer.name
    check_library(name)

    @functools.wraps(function, assigned=("__doc__",), updated=())
    def differentiated(*args: Any, **kwargs: Any) -> Any:
        inputs, out_tree, outs, aux = recorded(name, function, args, kwargs, argnums, has_aux, prepare)
        rows = [inputs.results(row) for row in computer.blocks(outs, inputs.tensors)]
        result = tree.unflatten(out_tree, rows) if prepare is None else inputs.results(rows)
        inputs.release()
        return (result, aux) if has_aux else result

    return differentiated
