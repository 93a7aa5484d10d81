"""What the configurations given to a tape do while it records: scopes, loaded when a tape is given one."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .core.context import Scope
from .core.record import Record
from .errors import OperandError

if TYPE_CHECKING:
    from .transforms.determinism import deterministic as Deterministic
    from .transforms.dropping import Dropping
    from .transforms.planning import Plan
    from .transforms.precision import Casting, WithoutCasts
    from .transforms.scaling import LossScaler


def given(*scopes: Scope | None) -> tuple[Scope, ...]:
    """Return the scopes that there are."""
    return tuple(scope for scope in scopes if scope is not None)


def check_kind(name: str, kind: type, value: Any) -> None:
    """Raise unless a configuration is of its kind."""
    if not isinstance(value, kind):
        raise OperandError(f"Tape: {name} must be an nt.{kind.__name__}, not {type(value).__name__}.")


def dropping_of(checkpoint: Any) -> "Dropping | None":
    """Return the scope of a `CheckpointConfig`."""
    if checkpoint is None:
        return None
    from .config import CheckpointConfig
    from .transforms.strategies import dropping

    check_kind("checkpoint", CheckpointConfig, checkpoint)
    return dropping(checkpoint)


def casting_of(amp: Any) -> "Casting | WithoutCasts | None":
    """Return the scope of an `AmpConfig`."""
    if amp is None:
        return None
    from .config import AmpConfig
    from .transforms.precision import casting_of

    check_kind("amp", AmpConfig, amp)
    return casting_of(amp)


def scaler_of(amp: Any) -> "LossScaler | None":
    """Return what an `AmpConfig` scales losses with."""
    if amp is None:
        return None
    from .transforms.scaling import scaler_of

    return scaler_of(amp)


def deterministic_of(config: Any) -> "Deterministic | None":
    """Return the scope of a `DeterministicConfig`."""
    if config is None:
        return None
    from .config import DeterministicConfig
    from .transforms.determinism import deterministic

    check_kind("deterministic", DeterministicConfig, config)
    return deterministic(config)


def plan_of(scope: "Dropping | None", records: Sequence[Record], frees: bool) -> "Plan":
    """Return what a backward over records, newest first, will do; `frees` says whether it frees what it passes."""
    from .transforms.dropping import Dropping
    from .transforms.planning import plan

    return plan(Dropping() if scope is None else scope, records, frees)


def prepare(scope: "Dropping", records: Sequence[Record], frees: bool) -> None:
    """Get ready for a backward over records, newest first, within a budget."""
    from .transforms.planning import prepare

    prepare(scope, records, frees)
