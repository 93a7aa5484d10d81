"""How gradients flow: sources grouped by the module that owns them, and which norms vanish or explode."""

import math
from collections.abc import Iterable, Sequence

from .graph import Layer, Source

#: A norm vanishes (explodes) if it is so much smaller (larger) than the one nearest to the loss.
VANISHING = 1e-4
EXPLODING = 1e4


def layer_name(source: Source) -> str:
    """Return the module that a leaf belongs to: its path without the last part; "" for what is no named leaf."""
    if source.kind != "leaf" or source.name.startswith("tensor["):
        return ""
    return source.name.rpartition(".")[0] or source.name


def layers_of(links: Sequence[Sequence[int | str]], sources: Sequence[Source]) -> tuple[tuple[Layer, ...], list[str]]:
    """Return the layers, in order of use, and for each record the one that it uses or, if none, follows."""
    members: dict[str, list[int]] = {}
    of_record: list[str] = []
    for inputs in links:
        own = ""
        followed = ""
        for link in inputs:
            if isinstance(link, str):
                continue
            if link >= 0:
                followed = of_record[link] or followed
                continue
            name = layer_name(sources[~link])
            if name:
                own = own or name
                group = members.setdefault(name, [])
                if ~link not in group:
                    group.append(~link)
        of_record.append(own or followed)
    norms = [_norm(sources[i].numbers.get("grad_norm") for i in group) for group in members.values()]
    marks = mark_all(norms)
    layers = zip(members.items(), norms, marks, strict=True)
    return tuple(Layer(name, tuple(group), norm, mark) for (name, group), norm, mark in layers), of_record


def _norm(norms: Iterable[float | None]) -> float | None:
    known = [norm for norm in norms if norm is not None]
    return math.hypot(*known) if known else None


def mark_all(norms: Sequence[float | None]) -> list[str]:
    """Return what is wrong with each norm, given in the order of the forward; "" where nothing is, or none is known."""
    usable = (norm for norm in reversed(norms) if norm is not None and math.isfinite(norm) and norm > 0)
    nearest = next(usable, None)
    return [_mark(norm, nearest) for norm in norms]


def _mark(norm: float | None, nearest: float | None) -> str:
    if norm is None:
        return ""
    if not math.isfinite(norm):
        return "not finite"
    if norm == 0 or nearest is None:
        return "zero"
    ratio = norm / nearest
    return "vanishing" if ratio < VANISHING else "exploding" if ratio > EXPLODING else ""
