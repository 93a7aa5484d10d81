"""Notice where a function leaves the tape in part, so that derivatives would be quietly wrong."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from ..arguments import title
from ..core.context import current
from ..core.record import describe_site
from ..errors import NotDifferentiableError

#: The conversion that nothing but a user's own call makes: it says that a plain number is meant.
_ON_PURPOSE = "item()"


@contextmanager
def on_tape(name: str, function: Callable[..., Any]) -> Iterator[None]:
    """Raise if a tracked tensor becomes a plain number or array inside, unless by item().

    Args:
        name: of the transform or solver, for messages.
        function: what runs inside, for messages.
    """
    thread = current().thread
    before, thread.last_exit = thread.last_exit, None
    try:
        yield
    finally:
        left, thread.last_exit = thread.last_exit, thread.last_exit or before
    if left is not None and left[2] != _ON_PURPOSE:
        code, lasti, how = left
        raise NotDifferentiableError(
            f"{name}: {title(function)} left the tape by {how} at {describe_site(code, lasti)}, so a part of its "
            "derivative would be lost. Compute with nt or np functions, and take detach() first of what is meant as a "
            "constant."
        )
