"""Refuse functions that leave the tape in part, whose derivatives would be quietly wrong."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from ..exits import noted_exits
from ..outputs import title


@contextmanager
def on_tape(name: str, function: Callable[..., Any]) -> Iterator[None]:
    """Raise if a tracked tensor becomes a plain number or array inside, unless by item().

    Args:
        name: of the transform or solver, for messages.
        function: what runs inside, for messages.
    """
    with noted_exits() as noted:
        yield
    noted.check(
        f"{name}: {title(function)}",
        "Compute with nt or np functions, and take detach() first of what is meant as a constant.",
        may_be_meant=True,
    )
