"""Sums of products over the axes that share a label: einsum."""

import functools
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from numbers import Integral
from typing import Any

import numpy as np

from .._typing import Array, NDArray, Shape
from ..core import batching
from ..core.declare import face_of, linear
from ..core.facts import Structure
from ..core.op import Op
from ..core.terms import Terms, contraction
from ..dtypes import is_float
from ..errors import ArgumentError, ShapeError
from ..kernels.sums import add_reduce
from .diagonals import diagonal
from .reductions import sum
from .samples import rejected, sample, values
from .selection import where
from .shapes import as_array, broadcast_to, permute, shape_of

#: The least elements of an operand that BLAS sums.
_MANY = 2048
_LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"


@functools.lru_cache(maxsize=1024)
def _parse(subscripts: str, ndims: tuple[int, ...]) -> tuple[tuple[str, ...], str]:
    """Return the labels of each operand's axes and of the result's, a letter each; `...` is spelled out."""
    text = subscripts.replace(" ", "")
    left, arrow, right = text.partition("->")
    terms = left.split(",")
    if len(terms) != len(ndims):
        raise ArgumentError(f"einsum: {subscripts!r} describes {len(terms)} operands, but {len(ndims)} were given.")
    for term in (*terms, right):
        for letter in term.replace("...", "", 1):
            if letter not in _LETTERS:
                raise ArgumentError(
                    f"einsum: {subscripts!r} contains {letter!r}; labels are letters, commas, `->` and `...`."
                )
    ranks = []
    for position, (term, ndim) in enumerate(zip(terms, ndims, strict=True)):
        rank = ndim - len(term.replace("...", ""))
        if rank < 0 or (rank and "..." not in term):
            raise ShapeError(f"einsum: {term!r} labels {ndim - rank} axes, but operand {position} has {ndim}.")
        ranks.append(rank)
    longest = max(ranks)
    spare = "".join(letter for letter in _LETTERS if letter not in text)[:longest]
    if len(spare) < longest:
        raise ArgumentError(f"einsum: {subscripts!r} needs more labels than there are letters.")
    # Broadcasting lines up the last of the axes that `...` stands for.
    inputs = tuple(term.replace("...", spare[longest - rank :]) for term, rank in zip(terms, ranks, strict=True))
    if not arrow:
        counts = Counter(left)
        return inputs, spare + "".join(sorted(x for x in counts if counts[x] == 1 and x in _LETTERS))
    if longest and "..." not in right:
        raise ArgumentError(f"einsum: {subscripts!r} has `...` before the arrow, so it must have it after the arrow.")
    output = right.replace("...", spare)
    for letter in output:
        if output.count(letter) > 1 or not any(letter in labels for labels in inputs):
            raise ArgumentError(
                f"einsum: label {letter!r} after the arrow of {subscripts!r} must be unique and stand before the arrow."
            )
    return inputs, output


def _lengths(inputs: Sequence[str], shapes: Sequence[Shape]) -> dict[str, int]:
    """Return the length of each label's axis; an axis of length 1 goes with any other, as in broadcasting."""
    lengths: dict[str, int] = {}
    for position, (labels, shape) in enumerate(zip(inputs, shapes, strict=True)):
        for place, (label, length) in enumerate(zip(labels, shape, strict=True)):
            known = lengths.setdefault(label, length)
            is_repeated = shape[labels.index(label)] != length and labels.index(label) < place
            if known != length and (is_repeated or 1 not in (known, length)):
                raise ShapeError(
                    f"einsum: operand {position} has shape {shape}; label {label!r} has length {length} there and "
                    f"{known} before."
                )
            if known == 1:
                lengths[label] = length
    return lengths


def _einsum_part(g: Array, index: int, arrays: Sequence[Array], wanted_shape: Shape, subscripts: str) -> Array:
    # The cotangent of an operand is the einsum of g with the other operands, to the labels of this one ...
    shapes = [shape_of(x) for x in arrays]
    inputs, output = _parse(subscripts, tuple(len(shape) for shape in shapes))
    labels, shape = inputs[index], shapes[index]
    others = [i for i in range(len(arrays)) if i != index]
    # Where others have length 1, they are repeated: they say no more of a label than those that do not have it.
    known = {label for i in others for label, n in zip(inputs[i], shapes[i], strict=True) if n != 1}.union(output)
    distinct = "".join(dict.fromkeys(labels))
    if len(distinct) < len(labels):
        wanted_shape = shape
    lengths = dict(zip(labels, wanted_shape, strict=True))
    # ... but for those along which it is summed ...
    reached = "".join(label for label in distinct if label in known and lengths[label] != 1)
    terms = ",".join((output, *(inputs[i] for i in others)))
    part = _einsum((g, *(arrays[i] for i in others)), subscripts=f"{terms}->{reached}")
    # ... repeated along labels that nothing else has ...
    found = dict(zip(reached, part.shape, strict=True))
    part = part.reshape(tuple(found.get(label, 1) for label in distinct))
    alike = math.prod(shape[labels.index(label)] for label in distinct if label not in known and lengths[label] == 1)
    if alike != 1:
        part = part * float(alike)  # The sum of so many that would be repeated.
    full = tuple(n if n != 1 else lengths[label] for label, n in zip(distinct, part.shape, strict=True))
    if part.shape != full:
        part = broadcast_to(part, full)
    if len(distinct) == len(labels):
        return part
    # ... and placed on the diagonal of labels that the operand repeats.
    lengths = dict(zip(distinct, full, strict=True))
    is_first = [labels.index(label) == place for place, label in enumerate(labels)]
    part = part.reshape(tuple(lengths[x] if first else 1 for x, first in zip(labels, is_first, strict=True)))
    grid = np.indices(tuple(lengths[label] for label in labels), sparse=True)
    is_diagonal = functools.reduce(
        np.logical_and,
        [grid[i] == grid[labels.index(label)] for i, label in enumerate(labels) if not is_first[i]],
    )
    return where(is_diagonal, part, 0.0)


def _einsum_cost(out: Shape, *shapes: Shape, subscripts: str) -> int:
    inputs, output = _parse(subscripts, tuple(len(shape) for shape in shapes))
    lengths = _lengths(inputs, shapes)
    terms, total = list(map(set, inputs)), 0
    for group in _order(inputs, output, shapes):
        together = set().union(*(terms[i] for i in group))
        total += max(2, len(group)) * math.prod(lengths[label] for label in together)
        terms = [term for i, term in enumerate(terms) if i not in group]
        terms.append(together.intersection(set(output).union(*terms)))
    return total


def _einsum_size(*shapes: Shape, subscripts: str) -> int:
    inputs, output = _parse(subscripts, tuple(len(shape) for shape in shapes))
    lengths = _lengths(inputs, shapes)
    return math.prod(lengths[label] for label in output)


def _einsum_terms(out: Shape, *shapes: Shape, subscripts: str) -> list[Terms]:
    inputs, output = _parse(subscripts, tuple(len(shape) for shape in shapes))
    return [contraction(inputs, output, shapes)]


def _einsum_batch(op: Op, operands: Sequence[Any], batched: Sequence[bool], params: dict[str, Any]) -> Any:
    ndims = (len(shape_of(x)) - is_batched for x, is_batched in zip(operands, batched, strict=True))
    inputs, output = _parse(params["subscripts"], tuple(ndims))
    letter = next((letter for letter in _LETTERS if not any(letter in term for term in inputs)), None)
    if letter is None:
        return batching.loop(op, operands, batched, params)
    terms = [letter + labels if is_batched else labels for labels, is_batched in zip(inputs, batched, strict=True)]
    return _einsum(operands, subscripts=f"{','.join(terms)}->{letter}{output}")


def _einsum_samples() -> list[Any]:
    x, y, z = values(2, 3), values(3, 4, seed=1), values(4, 2, seed=2)
    return [
        sample((x, y), subscripts="ij,jk->ik"),
        sample((x, y), subscripts="ij, jk"),
        sample((y, x), subscripts="jk,ij"),
        sample((x,), subscripts="ij->ji"),
        sample((x,), subscripts="ba"),
        sample((x,), subscripts="ij->j"),
        sample((x,), subscripts="ij->"),
        sample((values(3, 3),), subscripts="ii"),
        sample((values(3, 3),), subscripts="ii->i"),
        sample((values(2, 3, 2),), subscripts="iji->j"),
        sample((values(2, 2, 2),), subscripts="iii->i"),
        sample((values(3, 3), values(3, 3, seed=1)), subscripts="ii,jj->ij"),
        sample((values(3, 3), values(3, seed=1)), subscripts="ii,i->"),
        sample((values(2, 3, 4), values(2, 4, 5, seed=1)), subscripts="bij,bjk->bik"),
        sample((values(2, 3, 4, 2), values(2, 5, 4, 2, seed=1)), subscripts="bihd,bjhd->bhij"),
        sample((x, x), subscripts="ij,ij->ij"),
        sample((x, values(4, seed=1)), subscripts="ij,k->kji"),
        sample((x, values(4, 5, seed=1)), subscripts="ij,kl->jk"),
        sample((x, y, z), subscripts="ij,jk,kl->il"),
        sample((x, y, z), subscripts="ij,jk,ki->"),
        sample((x, y, z, values(2, seed=3)), subscripts="ij,jk,kl,l->i"),
        sample((values(2, 3, 4),), subscripts="i...->..."),
        sample((values(2, 3, 4), values(4, 5, seed=1)), subscripts="...j,jk->...k"),
        sample((values(5, 1, 2, 3), values(4, 3, 2, seed=1)), subscripts="...ij,...ji->..."),
        sample((values(2, 3, 3),), subscripts="...ii->...i"),
        sample((values(2, 1), values(3, 4, seed=1)), subscripts="ij,jk->ik"),
        sample((values(2, 3), values(1, 4, seed=1)), subscripts="ij,jk->ik"),
        sample((values(3), values(seed=1)), subscripts="i,->i"),
        sample((values(), values(seed=1)), subscripts=","),
        sample((values(2, 0), values(0, 3)), subscripts="ij,jk->ik"),
    ]


def _einsum_rejected() -> list[Any]:
    x, y = np.ones((2, 3)), np.ones((4, 5))
    return [
        rejected(
            ShapeError,
            "einsum: operand 1 has shape (4, 5); label 'j' has length 4 there and 3 before.",
            (x, y),
            subscripts="ij,jk->ik",
        ),
        rejected(ShapeError, "einsum: 'ijk' labels 3 axes, but operand 0 has 2.", (x,), subscripts="ijk->k"),
        rejected(
            ShapeError,
            "einsum: operand 0 has shape (2, 3); label 'i' has length 3 there and 2 before.",
            (x,),
            subscripts="ii->i",
        ),
        rejected(
            ArgumentError, "einsum: 'ij,jk->ik' describes 2 operands, but 1 were given.", (x,), subscripts="ij,jk->ik"
        ),
        rejected(
            ArgumentError,
            "einsum: label 'k' after the arrow of 'ij->k' must be unique and stand before the arrow.",
            (x,),
            subscripts="ij->k",
        ),
        rejected(
            ArgumentError,
            "einsum: '...j->j' has `...` before the arrow, so it must have it after the arrow.",
            (x,),
            subscripts="...j->j",
        ),
        rejected(
            ArgumentError,
            "einsum: 'i1->i' contains '1'; labels are letters, commas, `->` and `...`.",
            (x,),
            subscripts="i1->i",
        ),
    ]


@linear(
    transposes=dict(arrays=_einsum_part),
    is_variadic=True,
    cost=_einsum_cost,
    size=_einsum_size,
    structure=Structure.TERMS,
    terms=_einsum_terms,
    precision="lower",
    batch=_einsum_batch,
    numpy=np.einsum,
    reference=lambda arrays, subscripts: np.einsum(subscripts, *arrays),
    samples=lambda: [*_einsum_samples(), *_einsum_rejected()],
)
def _einsum(arrays: Sequence[Array], /, *, subscripts: str) -> Array:
    """Return the sum of products of the arrays over the labels that the result does not have."""
    operands = [np.asarray(x) for x in arrays]
    shapes = tuple(x.shape for x in operands)
    inputs, output = _parse(subscripts, tuple(x.ndim for x in operands))
    lengths = _lengths(inputs, shapes)
    terms = [_reduced(labels, x, lengths) for labels, x in zip(inputs, operands, strict=True)]
    for group in _order(inputs, output, shapes):
        taken = [terms[i] for i in group]
        terms = [term for i, term in enumerate(terms) if i not in group]
        while len(taken) > 1:
            first, second = taken.pop(0), taken.pop(0)
            kept = set(output).union(*(labels for labels, _ in (*taken, *terms)))
            taken.insert(0, _product(*first, *second, kept, output))
        terms += taken
    labels, out = _summed(*terms[0], set(output))
    out = out.transpose([labels.index(label) for label in output])
    if len(operands) == 1 and np.may_share_memory(out, operands[0]):
        # NumPy returns a view here, through which the operand can be written. This one is not shared, so it must not be
        # written either: that would be lost.
        out = out.copy()
        out.setflags(write=False)
    return out


@functools.lru_cache(maxsize=1024)
def _order(inputs: tuple[str, ...], output: str, shapes: tuple[Shape, ...]) -> tuple[tuple[int, ...], ...]:
    """Return which terms to multiply at each step; the product becomes the last term."""
    if len(inputs) <= 2:
        return (tuple(range(len(inputs))),)
    dummies = [np.broadcast_to(np.float64(0.0), shape) for shape in shapes]
    path, _ = np.einsum_path(f"{','.join(inputs)}->{output}", *dummies, optimize=("greedy", 2**62))
    return tuple(tuple(int(i) for i in group) for group in path[1:])


def _reduced(labels: str, x: NDArray, lengths: dict[str, int]) -> tuple[str, NDArray]:
    """Take diagonals of repeated labels, and drop axes of length 1 that others lengthen: they say nothing."""
    if len(set(labels)) < len(labels):
        distinct = "".join(dict.fromkeys(labels))
        labels, x = distinct, np.einsum(f"{labels}->{distinct}", x)
    stretched = tuple(i for i, label in enumerate(labels) if x.shape[i] != lengths[label])
    if stretched:
        labels, x = "".join(label for i, label in enumerate(labels) if i not in stretched), x.squeeze(stretched)
    return labels, x


def _summed(labels: str, x: NDArray, kept: set[str]) -> tuple[str, NDArray]:
    axes = tuple(i for i, label in enumerate(labels) if label not in kept)
    if not axes:
        return labels, x
    if len(axes) == 1 and x.ndim > 1 and x.dtype == np.float64 and x.size >= _MANY and x.strides[axes[0]] > x.itemsize:
        # BLAS adds up rows three times as fast as NumPy, and as accurately.
        total = np.matmul(np.ones(x.shape[axes[0]]), np.moveaxis(x, axes[0], -2))
    elif x.dtype.kind == "f":
        total = add_reduce(x, axes, False)
    else:
        total = x.sum(axis=axes, dtype=x.dtype)
    return "".join(label for label in labels if label in kept), np.asarray(total)


def _product(a_labels: str, a: NDArray, b_labels: str, b: NDArray, kept: set[str], output: str) -> tuple[str, NDArray]:
    """Multiply two terms as a stack of matrices, which BLAS does, and sum over the labels that are not kept.

    If the result has the labels of `output`, it is laid out in their order, as far as a matrix product can. Where it
    cannot, BLAS reads the larger term as it lies.
    """
    a_labels, a = _summed(a_labels, a, kept.union(b_labels))
    b_labels, b = _summed(b_labels, b, kept.union(a_labels))
    stack = [x for x in a_labels if x in b_labels and x in kept]
    lengths = {**dict(zip(a_labels, a.shape, strict=True)), **dict(zip(b_labels, b.shape, strict=True))}
    if output.startswith("".join(stack)):
        is_swapped = output[-1:] in set(a_labels) - set(b_labels)
    else:
        # On the left of a product, what is summed over lies side by side, and on the right what is not.
        larger = a_labels if a.size > b.size else b_labels
        is_left = larger[-1] in a_labels and larger[-1] in b_labels and larger[-1] not in kept
        is_swapped = (larger is a_labels) != is_left
    if is_swapped:
        a_labels, a, b_labels, b = b_labels, b, a_labels, a
    summed = [x for x in a_labels if x in b_labels and x not in kept]
    rows = [x for x in a_labels if x not in b_labels]
    columns = [x for x in b_labels if x not in a_labels]
    leading, heights, inner, widths = (tuple(lengths[x] for x in group) for group in (stack, rows, summed, columns))
    left = a.transpose([a_labels.index(x) for x in (*stack, *rows, *summed)])
    left = left.reshape((*leading, math.prod(heights), math.prod(inner)))
    right = b.transpose([b_labels.index(x) for x in (*stack, *summed, *columns)])
    right = right.reshape((*leading, math.prod(inner), math.prod(widths)))
    if right.size * 4 < left.size:
        right = np.ascontiguousarray(right)  # BLAS reads it again and again.
    elif left.size * 4 < right.size:
        left = np.ascontiguousarray(left)
    labels = "".join((*stack, *rows, *columns))
    if not summed:
        return labels, (left * right).reshape((*leading, *heights, *widths))
    return labels, (left @ right).reshape((*leading, *heights, *widths))


@face_of(_einsum)
def einsum(subscripts: Any, *operands: Any, optimize: Any = True) -> Array:
    """Return the sum of products of the operands that `subscripts` describes, with matrix products where possible.

    Args:
        subscripts: a letter for each axis of each operand, then the axes of the result: ``"ij,jk->ik"``. Without the
            arrow, the result has the letters that occur once, in alphabetic order. ``...`` stands for further axes,
            which broadcast. NumPy's form with lists of integers, ``einsum(a, [0, 1], b, [1, 2], [0, 2])``, works too.
        operands: one array for each term.
        optimize: accepted for NumPy's sake; a good order of the products is always chosen.

    Example:
        >>> nt.einsum("ij,ij->i", np.ones((2, 3)), np.ones((2, 3)))
        array([3., 3.])
    """
    if not isinstance(subscripts, str):
        subscripts, operands = _from_lists((subscripts, *operands))
    if len(operands) == 1 and is_float((x := as_array(operands[0])).dtype):
        return _einsum_of_one(subscripts, x)
    return _einsum(operands, subscripts=subscripts)


def _einsum_of_one(subscripts: str, x: Array) -> Array:
    """Return an einsum of one operand, by ops whose derivatives need no values and that return views as NumPy does."""
    (labels,), output = _parse(subscripts, (len(x.shape),))
    _lengths((labels,), (x.shape,))
    for label in dict.fromkeys(labels):
        while labels.count(label) > 1:
            first, second = labels.index(label), labels.index(label, labels.index(label) + 1)
            x = diagonal(x, 0, first, second)
            labels = labels[:first] + labels[first + 1 : second] + labels[second + 1 :] + label
    axes = tuple(i for i, label in enumerate(labels) if label not in output)
    if axes:
        x = sum(x, axis=axes)
    kept = [label for label in labels if label in output]
    return permute(x, [kept.index(label) for label in output])


def _from_lists(args: tuple[Any, ...]) -> tuple[str, tuple[Any, ...]]:
    """Return subscripts and operands given as ``a, [0, 1], b, [1, 2], [0, 2]``."""

    def spell(labels: Any) -> str:
        if not isinstance(labels, Iterable) or isinstance(labels, str):
            raise ArgumentError(f"einsum: {labels!r} stands for labels; they are a list of integers, or subscripts.")
        for label in labels:
            if label is not Ellipsis and not (isinstance(label, Integral) and 0 <= int(label) < len(_LETTERS)):
                raise ArgumentError(
                    f"einsum: {label!r} is no label; labels are integers from 0 to {len(_LETTERS) - 1}, and `...`."
                )
        return "".join("..." if label is Ellipsis else _LETTERS[label] for label in labels)

    if len(args) < 2:
        raise ArgumentError(f"einsum: {args[0]!r} are no subscripts; write einsum('ij,jk->ik', a, b).")
    pairs = len(args) // 2
    terms = ",".join(spell(labels) for labels in args[1 : 2 * pairs : 2])
    arrow = f"->{spell(args[-1])}" if len(args) % 2 else ""
    return terms + arrow, args[0 : 2 * pairs : 2]
