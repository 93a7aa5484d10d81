"""Kernels: arrays in, arrays out. What NumPy lacks, and faster providers, chosen in one place."""

from .providers import pinned as pinned
from .providers import provider as provider
