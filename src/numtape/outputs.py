"""What a function that is differentiated returned: checked, and as tensors."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from . import tree
from ._typing import NDArray
from .core.context import BY_CALLS, BY_GRAD, Exits
from .core.record import describe_site, warn_user
from .core.value import Lifted, Value, wrap
from .core.write import check_history
from .dtypes import is_float
from .errors import DtypeError, NotConnectedError, OperandError
from .exits import is_unnoticed
from .tensors import Tensor


def as_outputs(name: str, function: Callable[..., Any], out_tree: Any, exits: Exits) -> list[Any]:
    """Return the leaves of what a function returned as tensors, checked."""
    given = tree.leaves(out_tree)
    if not given:
        raise OperandError(
            f"{name}: {title(function)} returned {out_tree!r}; it must return a tensor or a tree of them."
        )
    check_connected(name, function, given, exits)
    return [as_output(name, function, out) for out in given]


def check_connected(name: str, function: Callable[..., Any], outs: Sequence[Any], exits: Exits) -> None:
    """Raise if an output is a constant, and a tracked tensor left the tape inside of the function.

    A tensor made after item() or numpy() is a constant by the user's will; but float() is also what ``math.sin(x)`` and
    ``array[0] = x`` call, `backward` leaves constants in ``.grad``, and a result that is no tensor at all was computed
    beside the tape. If the output is connected all the same, and nobody wrote ``float``, warn: what left may have a
    part in it.
    """
    if not exits:
        return
    unnoticed = [exit for exit in exits if is_unnoticed(*exit)]
    code, lasti, how = unnoticed[-1] if unnoticed else next(reversed(exits))
    for number, out in enumerate(outs):
        is_connected = isinstance(out, Lifted) or (isinstance(out, Value) and out.node is not None)
        if is_connected or (isinstance(out, Value) and how not in (BY_CALLS, BY_GRAD)):
            continue
        place = f" as output {number}" if len(outs) > 1 else ""
        raise NotConnectedError(
            f"{name}: {title(function)} returned a constant{place}, and a tracked tensor left the tape by {how} at "
            f"{describe_site(code, lasti)}, so its gradient would be lost. "
            f"{_repair(how, 'take item()' if isinstance(out, Value) else 'return a tensor', 'constant')}"
        )
    for code, lasti, how in unnoticed[:1]:
        site = describe_site(code, lasti)
        left = f"a tracked tensor became a number at {site}; if the result depends on that number"
        if how == BY_GRAD:
            left = f"gradients of a tracked tensor went into .grad at {site}; if the result depends on them"
        warn_user(
            f"{name}: in {title(function)}, {left}, a part of its derivative is lost. "
            f"{_repair(how, 'item()', 'number')}"
        )


def _repair(how: str, instead: str, meant: str) -> str:
    if how == BY_GRAD:
        return "Since it carries no graph, take gradients by nt.grad, tape.gradient, or as tape.backward gives them."
    return (
        f"Use nt functions instead of math, nt.stack instead of filling an array, and {instead} if a {meant} is meant."
    )


def as_output(name: str, function: Callable[..., Any], out: Any) -> Any:
    if isinstance(out, Lifted):
        out = out.settled()
    if isinstance(out, Value):
        check_history(f"{name} of {title(function)}", out)
        if not is_float(out.dtype):
            raise DtypeError(
                f"{name}: {title(function)} returned a tensor of {out.dtype}, which has no derivative; it must return "
                "floats."
            )
        return out
    if isinstance(out, float | int | complex | np.ndarray | np.generic) and not isinstance(out, bool):
        # A constant: its derivatives are zero.
        return wrap(Tensor, _as_constant(name, function, np.asarray(out)))
    hint = "; with has_aux=True, it may return a pair" if isinstance(out, tuple) and len(out) == 2 else ""
    what = "a scalar tensor" if name in ("grad", "value_and_grad") else "a tensor"
    raise OperandError(f"{name}: {title(function)} returned {type(out).__name__}; it must return {what}{hint}.")


def _as_constant(name: str, function: Callable[..., Any], array: NDArray) -> NDArray:
    kind = array.dtype.kind
    if kind == "c":
        raise DtypeError(
            f"{name}: {title(function)} returned {array.dtype}, but numtape computes with real numbers; return real "
            "and imaginary parts as two outputs."
        )
    if kind not in "iu" and not is_float(array.dtype):
        raise DtypeError(f"{name}: {title(function)} returned an array of {array.dtype}; it must return floats.")
    return array.astype(np.float64)


def split_aux(name: str, function: Callable[..., Any], out: Any) -> tuple[Any, Any]:
    """Return what a function with `has_aux` returned, as a pair."""
    if not isinstance(out, tuple) or len(out) != 2:
        got = f"a tuple of {len(out)}" if isinstance(out, tuple) else type(out).__name__
        raise OperandError(
            f"{name}: has_aux is set, but {title(function)} returned {got}; it must return a pair, what is "
            "differentiated and anything else."
        )
    return out


def title(function: Callable[..., Any]) -> str:
    return getattr(function, "__name__", repr(function))
