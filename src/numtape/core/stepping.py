"""Walk the records backward one by one, for who wants to see each: what `reverse` does, and stops after each record."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from ..kernels.silence import silent
from .context import current, entered
from .delivery import noted
from .graph import graph_of, way_of
from .reader import Reader
from .record import Link, Record
from .reverse import Cotangents, Part, accumulate, fit, plan_for, pull
from .scopes import inside_sweep


def backward_steps(target: Link, seed: Any, is_planned: bool = False) -> Iterator[tuple[Record, Any, list[Any]]]:
    """Yield records, newest first, each with its cotangent and those that it passes on (None where none is wanted).

    Nothing is delivered, and nothing freed. Between two steps the ambient state is that of the caller. A plan for a
    memory budget may drop more; without one, nobody is told that it is exceeded.
    """
    graph = graph_of([target])
    records = graph[0]
    way_of(graph, None)  # Which raises if one of them is dead.
    if is_planned:
        plan_for(records, frozenset(), (None, None))
    cotangents: Cotangents = {target: fit(seed, target)}
    del seed
    reader = Reader(None, records, cotangents)
    reader.warns = is_planned
    try:
        for record in records:
            g = cotangents.pop(record, None)
            if g is None:
                continue
            with entered(scopes=inside_sweep(current().scopes, False)), silent():
                if record.notes is not None:
                    g = noted(record, g, False)
                reader.current = g
                produced = pull(record, g, reader)
                for link, cotangent in zip(record.inputs, produced, strict=True):
                    if cotangent is not None:
                        accumulate(cotangents, link, cotangent)
            passed = [part.cotangent if type(part) is Part else part for part in produced]
            yield record, list(map(_shown, g)) if type(g) is list else _shown(g), list(map(_shown, passed))
            del produced, passed, cotangent
            reader.current = g = None
            reader.pass_by(record)
    finally:
        reader.drop_restored()


def _shown(cotangent: Any) -> Any:
    """Return a cotangent as it is shown: NumPy's numbers, as its functions return them, are arrays without axes."""
    return np.asarray(cotangent) if isinstance(cotangent, np.generic) else cotangent
