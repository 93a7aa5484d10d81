"""Optimizers, schedules of their learning rates, and averages of parameters."""

import sys as _sys
from typing import TYPE_CHECKING as _TYPE_CHECKING

from ..spelling import suggesting as _suggesting
from .adagrad import Adadelta as Adadelta
from .adagrad import Adagrad as Adagrad
from .adagrad import RMSprop as RMSprop
from .adam import Adam as Adam
from .adam import AdamW as AdamW
from .adam import NAdam as NAdam
from .adam import RAdam as RAdam
from .ema import EMA as EMA
from .lion import Lion as Lion
from .one_cycle import OneCycleLR as OneCycleLR
from .optimizer import Optimizer as Optimizer
from .plateau import ReduceLROnPlateau as ReduceLROnPlateau
from .schedules import CosineAnnealingLR as CosineAnnealingLR
from .schedules import ExponentialLR as ExponentialLR
from .schedules import LambdaLR as LambdaLR
from .schedules import LRScheduler as LRScheduler
from .schedules import MultiStepLR as MultiStepLR
from .schedules import PolynomialLR as PolynomialLR
from .schedules import StepLR as StepLR
from .schedules import WarmupCosineLR as WarmupCosineLR
from .sgd import SGD as SGD

#: Where PyTorch has its schedules: ``optim.lr_scheduler.StepLR`` works too.
lr_scheduler = _sys.modules[__name__]

if not _TYPE_CHECKING:  # Else every name would be one of the package.
    __getattr__ = _suggesting(__name__)
