"""The frozen configuration objects, validated when they are made; strategies may be given as strings."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from numbers import Integral, Real
from typing import Any

from ._typing import DtypeLike
from .dtypes import as_dtype
from .errors import ArgumentError, DtypeError, OperandError
from .scheduler_config import SchedulerConfig as SchedulerConfig
from .scheduler_config import SchedulingStrategy as SchedulingStrategy
from .scheduler_config import as_member as as_member


class CheckpointStrategy(Enum):
    """What a tape keeps of the values that it records."""

    NONE = "none"
    SELECTIVE = "selective"
    BLOCK = "block"
    FULL = "full"
    AUTO = "auto"


@dataclass(frozen=True)
class CheckpointConfig:
    """What a tape keeps of the values that it records; the backward makes the others again, bit for bit.

    Args:
        strategy: NONE keeps all; BLOCK every n-th record; SELECTIVE what is expensive to make again; FULL inputs and a
            few values between; AUTO whatever fits `memory_budget_mb`.
        checkpoint_every_n: the n of BLOCK; for SELECTIVE, every n-th of the expensive values is kept.
        min_compute_cost: floating-point operations per element from which on SELECTIVE takes a value to be expensive.
        memory_budget_mb: how much the values kept, made again and carried back may take at any time, in units of
            2**20 bytes; it bounds every strategy. None for no bound.

    Example:
        >>> nt.CheckpointConfig("block", checkpoint_every_n=8).strategy
        <CheckpointStrategy.BLOCK: 'block'>
    """

    strategy: CheckpointStrategy | str = CheckpointStrategy.AUTO
    checkpoint_every_n: int = 1
    min_compute_cost: float = 100
    memory_budget_mb: float | None = None

    def __post_init__(self) -> None:
        strategy = as_member("CheckpointConfig", "strategy", CheckpointStrategy, self.strategy)
        object.__setattr__(self, "strategy", strategy)
        n: Any = self.checkpoint_every_n
        if isinstance(n, bool) or not isinstance(n, Integral) or n < 1:
            raise ArgumentError(f"CheckpointConfig: checkpoint_every_n is {n!r}; it must be a positive integer.")
        for name in ("min_compute_cost", "memory_budget_mb"):
            value: Any = getattr(self, name)
            if value is None and name == "memory_budget_mb":
                continue
            if isinstance(value, bool) or not isinstance(value, Real) or not 0 <= float(value) < float("inf"):
                raise ArgumentError(f"CheckpointConfig: {name} is {value!r}; it must be a number from 0 on.")


@dataclass(frozen=True)
class BenchmarkConfig:
    """What a `PerformanceBenchmark` measures.

    Args:
        num_warmup: how often `run` calls a function before it measures.
        num_iterations: how often `run` calls a function and measures.
        measure_throughput: whether results have calls per second.
        measure_memory: whether results have the most bytes that Python and NumPy held at a time.
        statistical_analysis: whether results have confidence intervals and the number of outliers.

    Example:
        >>> nt.BenchmarkConfig(num_iterations=20).num_warmup
        10
    """

    num_warmup: int = 10
    num_iterations: int = 100
    measure_throughput: bool = True
    measure_memory: bool = False
    statistical_analysis: bool = True

    def __post_init__(self) -> None:
        for name, least in (("num_warmup", 0), ("num_iterations", 1)):
            count: Any = getattr(self, name)
            if isinstance(count, bool) or not isinstance(count, Integral) or count < least:
                raise ArgumentError(f"BenchmarkConfig: {name} is {count!r}; it must be an integer from {least} on.")
        for name in ("measure_throughput", "measure_memory", "statistical_analysis"):
            flag: Any = getattr(self, name)
            if not isinstance(flag, bool):
                raise ArgumentError(f"BenchmarkConfig: {name} is {flag!r}; it must be a bool.")


class DeterministicMode(Enum):
    """What happens to an op that cannot promise the same bits every time."""

    STRICT = "strict"
    WARN = "warn"
    OFF = "off"


class Draws:
    """How far the random stream of a `DeterministicConfig` has come: its counter, or draws by place and op."""

    def __init__(self) -> None:
        self.counter = 0
        self.counts: dict[str, int] = {}


@dataclass(frozen=True)
class DeterministicConfig:
    """The same bits every time, on one class of CPU: whatever the run, the process and the number of threads.

    The random stream belongs to this object: it goes on over all tapes and scopes that are given it, and is saved and
    restored by `state_dict` and `load_state_dict`.

    Args:
        mode: STRICT raises for an op that cannot promise it; WARN warns; OFF lets BLAS use all its threads.
        global_seed: of the random stream inside; None for the thread's own, which must have been seeded in STRICT.
        operation_seeds: whether each random op has numbers of its own, by the path of its module, so that a layer more
            or less does not change those of the others. Needs a `global_seed`.
        cudnn_deterministic: accepted, and without effect on CPUs.

    Example:
        >>> config = nt.DeterministicConfig("strict", global_seed=42)
        >>> with nt.deterministic(config):
        ...     first = nt.rand(2)
        >>> with nt.deterministic(config):
        ...     second = nt.rand(2)
        >>> bool((first == second).any()), config.state_dict()
        (False, {'counter': 2, 'counts': {}, 'global_seed': 42, 'operation_seeds': False})
    """

    mode: DeterministicMode | str = DeterministicMode.STRICT
    global_seed: int | None = None
    operation_seeds: bool = False
    cudnn_deterministic: bool = False
    draws: Draws = field(default_factory=Draws, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        mode = as_member("DeterministicConfig", "mode", DeterministicMode, self.mode)
        object.__setattr__(self, "mode", mode)
        seed: Any = self.global_seed
        if seed is not None and (isinstance(seed, bool) or not isinstance(seed, Integral)):
            raise ArgumentError(f"DeterministicConfig: global_seed is {seed!r}; seeds are integers.")
        if seed is not None and not -(2**255) <= int(seed) < 2**255:
            raise ArgumentError(
                f"DeterministicConfig: the seed has {int(seed).bit_length()} bits; seeds have 255 at most."
            )
        for name in ("operation_seeds", "cudnn_deterministic"):
            flag: Any = getattr(self, name)
            if not isinstance(flag, bool):
                raise ArgumentError(f"DeterministicConfig: {name} is {flag!r}; it must be a bool.")
        if self.operation_seeds and seed is None:
            raise ArgumentError(
                "DeterministicConfig: operation_seeds is True and there is no global_seed; give one, for the seeds of "
                "operations follow from it."
            )

    def state_dict(self) -> dict[str, Any]:
        """Return how far the random stream has come, and which one it is."""
        return {"counter": self.draws.counter, "counts": dict(self.draws.counts), **self._stream()}

    def _stream(self) -> dict[str, Any]:
        seed = self.global_seed
        return {"global_seed": None if seed is None else int(seed), "operation_seeds": self.operation_seeds}

    def load_state_dict(self, state: Any) -> None:
        """Go on with the random stream from a saved state; nothing changes if it is of another one."""
        match state:
            case {"counter": counter, "counts": dict(counts), **rest} if {*rest} <= {*self._stream()}:
                for name, own in self._stream().items():
                    if rest.get(name, own) != own:
                        raise ArgumentError(
                            f"DeterministicConfig.load_state_dict: the state was saved with {name}={rest[name]!r}, and "
                            f"this configuration has {own!r}; its numbers would not go on."
                        )
                number = _as_draws("counter", counter)
                self.draws.counts = {str(name): _as_draws(f"counts[{name!r}]", n) for name, n in counts.items()}
                self.draws.counter = number
            case _:
                got = sorted(map(str, state)) if isinstance(state, dict) else type(state).__name__
                raise ArgumentError(
                    "DeterministicConfig.load_state_dict: wants a dict with 'counter' and 'counts', as state_dict() "
                    f"gives, not {got}."
                )


def _as_draws(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, Integral) or value < 0:
        raise ArgumentError(
            f"DeterministicConfig.load_state_dict: {name} is {value!r}; it must be an integer that is not negative."
        )
    return int(value)


class PrecisionMode(Enum):
    """The dtype that autocast lowers ops to."""

    FLOAT16 = "float16"
    BFLOAT16 = "bfloat16"
    FLOAT32 = "float32"


def _dtype_name(given: Any) -> Any:
    """Return the name of a dtype, however it is spelled; what is none as it is."""
    try:
        # None would be a dtype to NumPy.
        return given if given is None or isinstance(given, Enum) else as_dtype(given).name
    except DtypeError:
        return given


@dataclass(frozen=True)
class AmpConfig:
    """How a tape computes in mixed precision. The scaler is stateful: all tapes of one configuration continue it.

    It is saved and restored by `state_dict` and `load_state_dict`. `dataclasses.replace` shares a `loss_scaler` that it
    was given; one that it was not starts anew.

    Args:
        enabled: False for a tape that computes as if it had no configuration.
        precision_mode: what matrix products, convolutions and attention run in, or that dtype; FLOAT32 casts nothing.
        loss_scaler: an `nt.LossScaler`; None for a dynamic one with FLOAT16, and for none otherwise.
        autocast_ops: the names of further ops to run in that precision; tapes look them up, since ops may be declared
            later.
        keep_fp32_ops: the names of further ops to run in float32; it wins over `autocast_ops`.

    Example:
        >>> nt.AmpConfig(precision_mode="float16").precision_mode
        <PrecisionMode.FLOAT16: 'float16'>
    """

    enabled: bool = True
    precision_mode: PrecisionMode | DtypeLike = PrecisionMode.BFLOAT16
    loss_scaler: Any = None
    autocast_ops: tuple[str, ...] = ()
    keep_fp32_ops: tuple[str, ...] = ()
    #: The scaler that goes with a configuration that names none, made by the first tape that needs it.
    own_scaler: list[Any] = field(default_factory=list, init=False, repr=False, compare=False)
    #: The state that it begins with, if one was loaded before it was made.
    loaded: dict[str, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not isinstance(self.enabled, bool):
            raise ArgumentError(f"AmpConfig: enabled is {self.enabled!r}; it must be a bool.")
        mode = as_member("AmpConfig", "precision_mode", PrecisionMode, _dtype_name(self.precision_mode))
        object.__setattr__(self, "precision_mode", mode)
        for name in ("autocast_ops", "keep_fp32_ops"):
            names: Any = getattr(self, name)
            is_sequence = isinstance(names, Iterable) and not isinstance(names, str)
            names = tuple(names) if is_sequence else names
            if not is_sequence or not all(isinstance(each, str) for each in names):
                raise ArgumentError(f"AmpConfig: {name} is {names!r}; it must be a sequence of names of ops.")
            object.__setattr__(self, name, names)
        scaler = self.loss_scaler
        # By what it can do, since scalers are made of much that configurations know nothing of.
        if scaler is not None and (isinstance(scaler, type) or not hasattr(scaler, "unscale_found")):
            kind = f"the class {scaler.__name__}" if isinstance(scaler, type) else f"of type {type(scaler).__name__}"
            raise OperandError(
                f"AmpConfig: loss_scaler is {kind}; it must be an nt.LossScaler.Dynamic() or .Static(scale)."
            )

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the loss scaler; None stands for one that no tape has used yet, or for none at all."""
        scaler = self._scaler()
        return {"loss_scaler": (dict(self.loaded) or None) if scaler is None else scaler.state_dict()}

    def _scaler(self) -> Any:
        """Return the scaler that was given or made; None if there is none so far."""
        return self.loss_scaler if self.loss_scaler is not None else next(iter(self.own_scaler), None)

    def load_state_dict(self, state: Any) -> None:
        """Go on with the loss scaler from a saved state; nothing changes if it does not fit.

        A configuration that makes its scaler by itself does so, and checks the numbers, when a tape uses it first.
        """
        title = "AmpConfig.load_state_dict"
        saved = state.get("loss_scaler", state) if isinstance(state, dict) and len(state) == 1 else state
        if saved is state or not isinstance(saved, dict | None):
            got = sorted(map(str, state)) if isinstance(state, dict) else type(state).__name__
            raise ArgumentError(f"{title}: wants a dict with 'loss_scaler', as state_dict() gives, not {got}.")
        if saved is not None and self.loss_scaler is None and self.precision_mode is not PrecisionMode.FLOAT16:
            raise ArgumentError(
                f"{title}: the state is that of a loss scaler, and this configuration has none; give it a loss_scaler."
            )
        if saved is None and self.loss_scaler is not None:
            raise ArgumentError(f"{title}: the state has no loss scaler, and this configuration has one; leave it out.")
        scaler = self._scaler()
        if scaler is not None and saved is not None:
            scaler.load_state_dict(saved)
            return
        self.own_scaler.clear()
        self.loaded.clear()
        self.loaded.update(saved or {})
