"""Save trees to files and load them: atomic writes, checksums, and no pickle."""

from .reading import load as load
from .rotation import Checkpoints as Checkpoints
from .writing import save as save
