"""The half dtypes, numbers to compute with, and what dtypes a loss was computed in, for tests of autocast."""

import numpy as np

import numtape as nt

HALVES = [nt.bfloat16, nt.float16]


def floats(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def dtypes_of(loss):
    return [(record.op.name, str(record.dtype)) for record in nt.records(loss)]
