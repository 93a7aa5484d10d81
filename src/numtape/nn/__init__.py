"""Layers and losses as modules, with PyTorch's names, weight layouts and first values."""

from typing import TYPE_CHECKING as _TYPE_CHECKING

from ..spelling import suggesting as _suggesting
from . import functional as functional
from . import init as init
from . import parameter_vectors as parameter_vectors
from .activations import GELU as GELU
from .activations import GLU as GLU
from .activations import LogSigmoid as LogSigmoid
from .activations import LogSoftmax as LogSoftmax
from .activations import Mish as Mish
from .activations import Sigmoid as Sigmoid
from .activations import SiLU as SiLU
from .activations import Softmax as Softmax
from .activations import Softmin as Softmin
from .activations import Softplus as Softplus
from .activations import Softsign as Softsign
from .activations import Tanh as Tanh
from .activations import Tanhshrink as Tanhshrink
from .attention import MultiheadAttention as MultiheadAttention
from .calling import functional_call as functional_call
from .cells import GRUCell as GRUCell
from .cells import LSTMCell as LSTMCell
from .cells import RNNCell as RNNCell
from .containers import ModuleDict as ModuleDict
from .containers import ModuleList as ModuleList
from .containers import Sequential as Sequential
from .convolution import Conv1d as Conv1d
from .convolution import Conv2d as Conv2d
from .convolution import ConvTranspose1d as ConvTranspose1d
from .convolution import ConvTranspose2d as ConvTranspose2d
from .dropout import Dropout as Dropout
from .dropout import Dropout1d as Dropout1d
from .dropout import Dropout2d as Dropout2d
from .embedding import Embedding as Embedding
from .linear import Dense as Dense
from .linear import Linear as Linear
from .losses import BCELoss as BCELoss
from .losses import BCEWithLogitsLoss as BCEWithLogitsLoss
from .losses import CosineEmbeddingLoss as CosineEmbeddingLoss
from .losses import CrossEntropyLoss as CrossEntropyLoss
from .losses import GaussianNLLLoss as GaussianNLLLoss
from .losses import HingeLoss as HingeLoss
from .losses import HuberLoss as HuberLoss
from .losses import KLDivLoss as KLDivLoss
from .losses import L1Loss as L1Loss
from .losses import MSELoss as MSELoss
from .losses import NLLLoss as NLLLoss
from .losses import PoissonNLLLoss as PoissonNLLLoss
from .losses import SmoothL1Loss as SmoothL1Loss
from .losses import TripletMarginLoss as TripletMarginLoss
from .module import Module as Module
from .normalisation import BatchNorm1d as BatchNorm1d
from .normalisation import BatchNorm2d as BatchNorm2d
from .normalisation import GroupNorm as GroupNorm
from .normalisation import InstanceNorm2d as InstanceNorm2d
from .normalisation import LayerNorm as LayerNorm
from .normalisation import RMSNorm as RMSNorm
from .parameter import Parameter as Parameter
from .parameter_containers import ParameterDict as ParameterDict
from .parameter_containers import ParameterList as ParameterList
from .pooling import AdaptiveAvgPool1d as AdaptiveAvgPool1d
from .pooling import AdaptiveAvgPool2d as AdaptiveAvgPool2d
from .pooling import AvgPool1d as AvgPool1d
from .pooling import AvgPool2d as AvgPool2d
from .pooling import MaxPool1d as MaxPool1d
from .pooling import MaxPool2d as MaxPool2d
from .rectifiers import CELU as CELU
from .rectifiers import ELU as ELU
from .rectifiers import SELU as SELU
from .rectifiers import Hardshrink as Hardshrink
from .rectifiers import Hardsigmoid as Hardsigmoid
from .rectifiers import Hardswish as Hardswish
from .rectifiers import Hardtanh as Hardtanh
from .rectifiers import LeakyReLU as LeakyReLU
from .rectifiers import PReLU as PReLU
from .rectifiers import ReLU as ReLU
from .rectifiers import ReLU6 as ReLU6
from .rectifiers import Softshrink as Softshrink
from .rectifiers import Threshold as Threshold
from .recurrent import GRU as GRU
from .recurrent import LSTM as LSTM
from .recurrent import RNN as RNN
from .reshaping import Flatten as Flatten
from .reshaping import Identity as Identity
from .reshaping import Unflatten as Unflatten
from .transformer import TransformerEncoder as TransformerEncoder
from .transformer import TransformerEncoderLayer as TransformerEncoderLayer

#: PyTorch's name of it.
utils = parameter_vectors

if not _TYPE_CHECKING:  # Else every name would be one of the package.
    __getattr__ = _suggesting(__name__)
