"""What the configurations given to a tape do while it records: scopes, loaded when a tape is given one."""

import gc
from collections.abc import Sequence, Set
from math import prod
from typing import TYPE_CHECKING, Any

from .core.graph import collect
from .core.record import Record
from .core.scopes import Scope
from .core.value import Value
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


def plan_of(scope: "Dropping | None", records: Sequence[Record], frees: bool, keeps: Set[Record]) -> "Plan":
    """Return what a backward over records, newest first, will do."""
    from .transforms.dropping import Dropping
    from .transforms.planning import plan
    from .transforms.walking import Backward

    return plan(Dropping() if scope is None else scope, Backward(records, frees, keeps))


def check_budget(scope: "Dropping | None", records: Sequence[Record], keeps_all: bool) -> None:
    """Raise if a forward, which has left some records, did not stay within a budget.

    `keeps_all` says whether a backward is going to keep the cotangents of all intermediates.
    """
    if scope is not None and scope.account.shortage is not None:
        from .transforms.planning import raise_shortage
        from .transforms.walking import Backward

        graph = collect([_likely_loss(records)])
        raise_shortage(scope, Backward(graph, keeps=set(graph) if keeps_all else frozenset()))


def _likely_loss(records: Sequence[Record]) -> Record:
    """Return the record whose gradients will be asked for: of those whose tensors the program holds, the last number.

    What was computed for a log is none of it.
    """
    nodes = {value.node for value in gc.get_referrers(*records) if isinstance(value, Value)}
    held = [record for record in records if record in nodes]
    numbers = [record for record in held if not isinstance(record.shape, list) and prod(record.shape) == 1]
    return (numbers or held or records)[-1]
