"""numtape: tape-based automatic differentiation on NumPy arrays. This file is the table of contents."""

__version__ = "0.1.0"

import math as _math
from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any as _Any

from . import errors as errors
from . import ops as _ops
from . import tree as tree
from .api import grad as grad
from .api import jvp as jvp
from .api import value_and_grad as value_and_grad
from .api import vjp as vjp
from .contexts import GradientContext as GradientContext
from .contexts import clear_default_context_tape as clear_default_context_tape
from .contexts import clear_tape as clear_tape
from .contexts import compute_gradients as compute_gradients
from .contexts import current_context as current_context
from .contexts import default_context as default_context
from .core.declare import public as _public
from .creation import empty as empty
from .creation import empty_like as empty_like
from .creation import eye as eye
from .creation import from_numpy as from_numpy
from .creation import full as full
from .creation import full_like as full_like
from .creation import ones as ones
from .creation import ones_like as ones_like
from .creation import tensor as tensor
from .creation import zeros as zeros
from .creation import zeros_like as zeros_like
from .dtypes import SPELLINGS as _SPELLINGS
from .dtypes import bfloat16 as bfloat16
from .dtypes import bool_ as bool_
from .dtypes import default_dtype as default_dtype
from .dtypes import float16 as float16
from .dtypes import float32 as float32
from .dtypes import float64 as float64
from .dtypes import int32 as int32
from .dtypes import int64 as int64
from .dtypes import set_default_dtype as set_default_dtype
from .grad_mode import enable_grad as enable_grad
from .grad_mode import is_grad_enabled as is_grad_enabled
from .grad_mode import no_grad as no_grad
from .grad_mode import set_grad_enabled as set_grad_enabled
from .gradients import Gradients as Gradients
from .ops import *  # noqa: F403  (each op is listed once, in ops/__init__.py)
from .random_creation import normal as normal
from .random_creation import permutation as permutation
from .random_creation import rand as rand
from .random_creation import rand_like as rand_like
from .random_creation import randint as randint
from .random_creation import randn as randn
from .random_creation import randn_like as randn_like
from .random_creation import uniform as uniform
from .ranges import arange as arange
from .ranges import linspace as linspace
from .streams import Generator as Generator
from .streams import seed as seed
from .tapes import GradientTape as GradientTape
from .tapes import Tape as Tape
from .tapes import records as records
from .tapes import summary as summary
from .tensors import Tensor as Tensor

if _TYPE_CHECKING:
    from . import accumulation as accumulation
    from . import data as data
    from . import gradient_clipping as gradient_clipping
    from . import implicit as implicit
    from . import interop as interop
    from . import nn as nn
    from . import optim as optim
    from . import train as train
    from . import uncertainty as uncertainty
    from .accumulation import GradientAccumulator as GradientAccumulator
    from .accumulation import accumulate_gradients as accumulate_gradients
    from .config import AmpConfig as AmpConfig
    from .config import BenchmarkConfig as BenchmarkConfig
    from .config import CheckpointConfig as CheckpointConfig
    from .config import CheckpointStrategy as CheckpointStrategy
    from .config import DeterministicConfig as DeterministicConfig
    from .config import DeterministicMode as DeterministicMode
    from .config import PrecisionMode as PrecisionMode
    from .gradient_clipping import clip_grad_norm as clip_grad_norm
    from .gradient_clipping import clip_grad_norm_ as clip_grad_norm_
    from .gradient_clipping import clip_grad_value as clip_grad_value
    from .gradient_clipping import clip_grad_value_ as clip_grad_value_
    from .insight.anomaly import detect_anomaly as detect_anomaly
    from .insight.benchmark import PerformanceBenchmark as PerformanceBenchmark
    from .insight.digest import Digest as Digest
    from .insight.digest_difference import DigestDifference as DigestDifference
    from .insight.digest_difference import diff_digests as diff_digests
    from .insight.dot import to_dot as to_dot
    from .insight.graph_json import from_json as from_json
    from .insight.graph_json import to_json as to_json
    from .insight.live import live_tapes as live_tapes
    from .insight.memory import GradientMemoryProfiler as GradientMemoryProfiler
    from .insight.page import to_html as to_html
    from .insight.profile import profile as profile
    from .insight.provenance import Explanation as Explanation
    from .insight.provenance import explain_nan as explain_nan
    from .insight.source import to_numpy_source as to_numpy_source
    from .jacobians import elementwise_grad as elementwise_grad
    from .jacobians import hessian as hessian
    from .jacobians import hvp as hvp
    from .jacobians import jacobian as jacobian
    from .kernels.blas import get_num_threads as get_num_threads
    from .kernels.blas import set_num_threads as set_num_threads
    from .schedule import HybridScheduler as HybridScheduler
    from .scheduler_config import SchedulerConfig as SchedulerConfig
    from .scheduler_config import SchedulingStrategy as SchedulingStrategy
    from .serialization.reading import load as load
    from .serialization.rotation import Checkpoints as Checkpoints
    from .serialization.writing import save as save
    from .series import derivatives as derivatives
    from .sparse.sparsity import sparsity as sparsity
    from .testing.checker import NumericalChecker as NumericalChecker
    from .testing.checker import ValidationResult as ValidationResult
    from .testing.gradients import check_gradients as check_gradients
    from .transforms.checkpoint import checkpoint as checkpoint
    from .transforms.checkpoint import checkpoint_sequential as checkpoint_sequential
    from .transforms.custom import custom_gradient as custom_gradient
    from .transforms.custom_ops import custom_op as custom_op
    from .transforms.determinism import deterministic as deterministic
    from .transforms.grad_scaler import GradScaler as GradScaler
    from .transforms.loops import checkpoint_loop as checkpoint_loop
    from .transforms.precision import autocast as autocast
    from .transforms.scaling import LossScaler as LossScaler

#: What is imported when it is first asked for, and from where: not every program needs it.
_LAZY = {
    "elementwise_grad": "jacobians",
    "hessian": "jacobians",
    "hvp": "jacobians",
    "jacobian": "jacobians",
    "HybridScheduler": "schedule",
    "SchedulerConfig": "scheduler_config",
    "SchedulingStrategy": "scheduler_config",
    "AmpConfig": "config",
    "BenchmarkConfig": "config",
    "CheckpointConfig": "config",
    "CheckpointStrategy": "config",
    "DeterministicConfig": "config",
    "DeterministicMode": "config",
    "PrecisionMode": "config",
    "PerformanceBenchmark": "insight.benchmark",
    "Checkpoints": "serialization.rotation",
    "GradientAccumulator": "accumulation",
    "GradScaler": "transforms.grad_scaler",
    "LossScaler": "transforms.scaling",
    "autocast": "transforms.precision",
    "accumulate_gradients": "accumulation",
    "clip_grad_norm": "gradient_clipping",
    "clip_grad_norm_": "gradient_clipping",
    "clip_grad_value": "gradient_clipping",
    "clip_grad_value_": "gradient_clipping",
    "GradientMemoryProfiler": "insight.memory",
    "NumericalChecker": "testing.checker",
    "ValidationResult": "testing.checker",
    "check_gradients": "testing.gradients",
    "checkpoint": "transforms.checkpoint",
    "checkpoint_loop": "transforms.loops",
    "checkpoint_sequential": "transforms.checkpoint",
    "custom_gradient": "transforms.custom",
    "custom_op": "transforms.custom_ops",
    "Digest": "insight.digest",
    "DigestDifference": "insight.digest_difference",
    "diff_digests": "insight.digest_difference",
    "derivatives": "series",
    "deterministic": "transforms.determinism",
    "detect_anomaly": "insight.anomaly",
    "Explanation": "insight.provenance",
    "explain_nan": "insight.provenance",
    "from_json": "insight.graph_json",
    "get_num_threads": "kernels.blas",
    "set_num_threads": "kernels.blas",
    "profile": "insight.profile",
    "live_tapes": "insight.live",
    "load": "serialization.reading",
    "save": "serialization.writing",
    "sparsity": "sparse.sparsity",
    "to_numpy_source": "insight.source",
    "to_dot": "insight.dot",
    "to_html": "insight.page",
    "to_json": "insight.graph_json",
}
_PACKAGES = frozenset(
    ("accumulation", "data", "gradient_clipping", "implicit", "interop", "nn", "optim", "train", "uncertainty")
)

#: Dtypes and numbers by the names that PyTorch and NumPy have for them; ``import *`` leaves Python's own alone.
_CONSTANTS = {**_SPELLINGS, "pi": _math.pi, "e": _math.e, "inf": _math.inf, "nan": _math.nan, "newaxis": None}

#: Names of other libraries, and what to write instead.
_ELSEWHERE = {
    "FloatTensor": 'Did you mean nt.tensor(data, dtype="float32")?',
    "LongTensor": 'Did you mean nt.tensor(data, dtype="int64")?',
    "Variable": "Did you mean nt.tensor(data, requires_grad=True)?",
    "amp": "Did you mean nt.autocast, or nt.GradScaler?",
    "array": "Did you mean nt.tensor?",
    "as_tensor": "Did you mean nt.tensor, which copies, or nt.from_numpy, which does not?",
    "asarray": "Did you mean nt.tensor, which copies, or nt.from_numpy, which does not?",
    "autograd": "Did you mean nt.grad(f)(x), which can itself be differentiated?",
    "backends": 'There is one device, the string "cpu".',
    "cuda": 'There is one device, the string "cpu".',
    "device": 'There is one device, the string "cpu".',
    "fft": "numtape.interop.scipy has dct and fftconvolve.",
    "inference_mode": "Did you mean nt.no_grad?",
    "is_tensor": "Did you mean isinstance(x, nt.Tensor)?",
    "jacfwd": 'Did you mean nt.jacobian(f, mode="forward")?',
    "jacrev": 'Did you mean nt.jacobian(f, mode="reverse")?',
    "linalg": "Its functions are in nt itself, as nt.norm, nt.solve and nt.svd.",
    "random": "Its functions are in nt itself, as nt.randn; nt.Generator(seed) has a stream of its own.",
    "randperm": "Did you mean nt.permutation?",
    "size": "Did you mean x.size, or x.shape?",
    "special": "Its functions are in nt itself, as nt.erf, nt.lgamma and nt.xlogy.",
}

TrackedTensor = Tensor
manual_seed = seed
detach = stop_gradient  # noqa: F405

#: What ``import *`` gives, what is loaded late included.
__all__ = sorted({name for name in globals() if not name.startswith("_")}.union(_LAZY, _PACKAGES, _ops.FAMILIES))


def __getattr__(name: str) -> _Any:
    """Return an op by any of its spellings, or what is loaded late; `dir` lists them all."""
    if name in _public:
        return _public[name]
    if name in _CONSTANTS:
        return _CONSTANTS[name]
    from importlib import import_module

    if name in _LAZY:
        found = globals()[name] = getattr(import_module(f".{_LAZY[name]}", __name__), name)
        return found
    if name in _PACKAGES:
        return import_module(f".{name}", __name__)
    if name in _ops.FAMILIES:
        found = globals()[name] = getattr(_ops, name)
        return found
    if not name.startswith("__"):
        _ops.load_all()  # It may be a further spelling of an op of theirs.
        if name in _public:
            return _public[name]
    from .spelling import suggesting

    return suggesting(__name__, _ELSEWHERE)(name)


def __dir__() -> list[str]:
    _ops.load_all()
    return sorted({*globals(), *_public, *_CONSTANTS, *_LAZY, *_PACKAGES})
