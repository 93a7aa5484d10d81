"""Train models: a thin loop, metrics, early stopping, loggers and history."""

from typing import TYPE_CHECKING as _TYPE_CHECKING

from ..spelling import suggesting as _suggesting
from .fitting import fit as fit
from .history import History as History
from .interrupts import StopSignals as StopSignals
from .loggers import CSVLogger as CSVLogger
from .loggers import Logger as Logger
from .metrics import R2 as R2
from .metrics import Accuracy as Accuracy
from .metrics import ConfusionMatrix as ConfusionMatrix
from .metrics import Metric as Metric
from .metrics import TopK as TopK
from .progress import Progress as Progress
from .stopping import EarlyStopping as EarlyStopping

if not _TYPE_CHECKING:  # Else every name would be one of the package.
    __getattr__ = _suggesting(__name__)
