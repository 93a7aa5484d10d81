"""Ops with derivative rules that a test chooses, right or wrong."""

import numpy as np

import numtape as nt
from numtape.core import declare

POINT = np.array([0.3, -1.2, 2.1])


def unregistered(face):
    """Take an op that a test declared out of the registry again."""
    declare.registry.pop(face.op.name)
    declare.public.pop(face.op.name, None)
    return face


def planted(forward, derivative):
    """Return an elementwise op whose derivative rule is `derivative`, right or not."""

    @declare.elementwise(partials={"x": lambda g, x: g * derivative(x)}, samples=lambda: [])
    def planted_op(x, /):
        return forward(x)

    return unregistered(planted_op)


def sin_times(factor):
    """Return the sine with a rule that is wrong by a factor."""
    return planted(np.sin, lambda x: nt.cos(x) * factor)
