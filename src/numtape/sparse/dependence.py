"""Which elements of one record's outputs depend on which elements of one of its inputs, read off its op's structure.

The answer is a chain of sparse matrices of bools whose product is the pattern; the chain of a softmax, from elements to
lanes and from lanes to elements, is far smaller than the product.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from .._typing import NDArray, Shape
from ..core.facts import Structure
from ..core.op import NON_DIFFERENTIABLE, Rule, shape_of
from ..core.reader import Reader
from ..core.record import Record
from .matrices import Matrix, pairs, selection

#: Matrices to multiply from the right to the left, the input's elements first; none: each on the one at its own place.
Chain = list[Matrix]

_reader = Reader(None)


def dependence(record: Record, position: int) -> list[Chain]:
    """Return for each output of a record how it depends on an input."""
    shapes: list[Shape] = record.shape if isinstance(record.shape, list) else [record.shape]
    return _BY_STRUCTURE[record.op.facts.structure](record, position, shapes)


def constant(record: Record, position: int) -> Any:
    """Return the value of an input that is not tracked."""
    return _reader.operand(record, position)


def _elementwise(record: Record, position: int, shapes: list[Shape]) -> list[Chain]:
    shape = shape_of(record.inputs[position])
    return [[] if shape == out else [_repeated(shape, out)] for out in shapes]


def _repeated(shape: Shape, out: Shape) -> Matrix:
    size = math.prod(shape)
    return selection(np.broadcast_to(np.arange(size).reshape(shape), out).ravel(), size)


def _moves(record: Record, position: int, shapes: list[Shape]) -> list[Chain]:
    # The forward moves labels as it moves values. Label 0 stands for no element.
    op = record.op
    operands: list[Any] = []
    for i, link in enumerate(record.inputs):
        if i == position:
            size = math.prod(shape_of(link))
            operands.append(np.arange(1, size + 1).reshape(shape_of(link)))
        elif op.pull(i) is NON_DIFFERENTIABLE:
            operands.append(constant(record, i))
        else:
            operands.append(np.zeros(shape_of(link), np.int64))
    params = record.params or {}
    moved = op.forward(tuple(operands), **params) if op.is_variadic else op.forward(*operands, **params)
    outs = moved if isinstance(moved, tuple | list) else (moved,)
    return [[selection(np.asarray(labels).ravel() - 1, size)] for labels in outs]


def _scatters(record: Record, position: int, shapes: list[Shape]) -> list[Chain]:
    # The VJP takes labels of the output back to the elements that affect them; floats count to 2**53.
    shape = shape_of(record.inputs[position])
    (out,) = shapes
    size = math.prod(out)
    labels = np.arange(1.0, size + 1.0).reshape(out)
    op = record.op
    rule = op.pull(position)
    if op.joint is not None or not isinstance(rule, Rule):
        return _dense(record, position, shapes)
    pulled = np.asarray(rule.run(labels, record, _reader, position))
    if pulled.shape != shape:  # Repeated: what it affects was added up.
        return _dense(record, position, shapes)
    found = np.rint(pulled.ravel()).astype(np.int64) - 1
    return [[selection(found, size).T.tocsr()]]


def _lanes(record: Record, position: int, shapes: list[Shape]) -> list[Chain]:
    shape = shape_of(record.inputs[position])
    axis = (record.params or {}).get("axis", record.op.defaults.get("axis"))
    given = range(len(shape)) if axis is None else [int(a) % max(1, len(shape)) for a in np.atleast_1d(axis)]
    axes = set(given) if shape else set()
    lane_shape = tuple(1 if a in axes else n for a, n in enumerate(shape))
    count = math.prod(lane_shape)
    lanes = np.arange(count).reshape(lane_shape)
    chains = []
    for out in shapes:
        if math.prod(out) == count:
            own = lanes
        elif len(out) == len(shape):
            own = np.broadcast_to(lanes, tuple(out[a] if a in axes else n for a, n in enumerate(shape)))
        else:  # One lane of all elements, laid out in a row.
            own = np.zeros(out, np.int64)
        chains.append(_through(np.broadcast_to(lanes, shape), own, count))
    return chains


def _matrices(record: Record, position: int, shapes: list[Shape]) -> list[Chain]:
    every = np.broadcast_shapes(*(shape_of(link)[:-2] for link in record.inputs))
    shape = shape_of(record.inputs[position])
    lead = shape[:-2]
    count = math.prod(lead)
    places = np.arange(count).reshape(lead)
    own = np.broadcast_to(places.reshape((*lead, *(1,) * (len(shape) - len(lead)))), shape)
    chains = []
    for out in shapes:
        there = np.broadcast_to(places, every).reshape((*every, *(1,) * (len(out) - len(every))))
        chains.append(_through(own, np.broadcast_to(there, out), count))
    return chains


def _dense(record: Record, position: int, shapes: list[Shape]) -> list[Chain]:
    shape = shape_of(record.inputs[position])
    return [_through(np.zeros(shape, np.int64), np.zeros(out, np.int64), 1) for out in shapes]


def _through(lanes: NDArray, out_lanes: NDArray, count: int) -> Chain:
    """Return the chain from elements to the lanes that they are in, and from these to the outputs' elements."""
    chain = [selection(lanes.ravel(), count).T.tocsr()]
    is_itself = out_lanes.size == count and np.array_equal(out_lanes.ravel(), np.arange(count))
    return chain if is_itself else [*chain, selection(out_lanes.ravel(), count)]


def _terms(record: Record, position: int, shapes: list[Shape]) -> list[Chain]:
    listed = record.op.facts.terms
    if listed is None:
        return _dense(record, position, shapes)
    sizes = [shape_of(link) for link in record.inputs]
    (out,) = shapes
    rows, columns = [], []
    for terms in listed(out, *sizes, **(record.params or {})):
        if position not in terms.factors:
            continue
        factors = terms.factors[position]
        full = np.broadcast_shapes(terms.out.shape, *(places.shape for places in terms.factors.values()))
        # A product with a constant zero is zero, whatever the other factors are.
        kept: Any = ...
        for other, places in terms.factors.items():
            if other != position and not record.needs >> other & 1:
                is_set = (np.asarray(constant(record, other)).ravel() != 0)[places]
                if not is_set.all():
                    kept = np.broadcast_to(is_set, full) if kept is ... else kept & is_set
        rows.append(np.broadcast_to(terms.out, full)[kept].ravel())
        columns.append(np.broadcast_to(factors, full)[kept].ravel())
    shape = (math.prod(out), math.prod(sizes[position]))
    return [[pairs(np.concatenate(rows), np.concatenate(columns), shape)]]


_BY_STRUCTURE: dict[Structure, Callable[[Record, int, list[Shape]], list[Chain]]] = {
    Structure.ELEMENTWISE: _elementwise,
    Structure.MOVES: _moves,
    Structure.SCATTERS: _scatters,
    Structure.LANES: _lanes,
    Structure.MATRICES: _matrices,
    Structure.TERMS: _terms,
    Structure.DENSE: _dense,
}
