"""Data: datasets, loaders that can stop and go on anywhere, and small sets of data for examples."""

from typing import TYPE_CHECKING as _TYPE_CHECKING

from ..spelling import suggesting as _suggesting
from .collating import collate as collate
from .datasets import ConcatDataset as ConcatDataset
from .datasets import Dataset as Dataset
from .datasets import Subset as Subset
from .datasets import TensorDataset as TensorDataset
from .examples import digits as digits
from .examples import spirals as spirals
from .examples import two_moons as two_moons
from .loader import DataLoader as DataLoader
from .sampling import random_split as random_split

__all__ = [
    "ConcatDataset",
    "DataLoader",
    "Dataset",
    "Subset",
    "TensorDataset",
    "collate",
    "digits",
    "random_split",
    "spirals",
    "two_moons",
]

if not _TYPE_CHECKING:  # Else every name would be one of the package.
    __getattr__ = _suggesting(__name__)
