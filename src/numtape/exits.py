"""Notice where a tracked tensor becomes a plain number or array: its part in derivatives would be lost unnoticed."""

import functools
import re
from types import CodeType

from .core.context import BY_CALLS, BY_GRAD, Exits, current
from .core.record import describe_site
from .errors import NotDifferentiableError

#: The conversion that nothing but a user's own call makes: it says that a plain number is meant.
_ON_PURPOSE = "item()"

#: What says in the text of a call, or among the names of code without text, that a number is meant, or looked at. As an
#: argument, float is a dtype as a rule.
_LOOKS = re.compile(r"\b(float *\(|(map *\(|key *=) *float\b|isnan|isinf|isfinite|isclose)")
_LOOKING_NAMES = frozenset(("float", "isnan", "isinf", "isfinite", "isclose", "print", "format"))


@functools.lru_cache(maxsize=128)
def is_unnoticed(code: CodeType, lasti: int, how: str) -> bool:
    """Say whether a tensor hardly left the tape on purpose: to fill an array, to call a function of numbers, to .grad.

    Nor was ``float()`` written there. It is what the first two call.
    """
    if how != BY_CALLS:
        return how == BY_GRAD
    import dis  # Rarely needed, and slow to import.
    import itertools
    import linecache

    operation = dis.opname[code.co_code[lasti]]
    if operation == "STORE_SUBSCR":  # array[0] = x
        return True
    if "CALL" not in operation:  # PRECALL is one, in loops of Python 3.11.
        return False
    line, last, begin, end = next(itertools.islice(code.co_positions(), lasti // 2, None))
    source = linecache.getline(code.co_filename, line or 0).encode()
    if not source:  # Code that was typed in, or evaluated.
        return _LOOKING_NAMES.isdisjoint(code.co_names)
    text = source[begin : end if last == line else None].decode(errors="replace")
    return "(" in text and not _LOOKS.search(text)


class noted_exits:
    """Notes exits inside of a block: ``with noted_exits() as noted: ...``. An outer block sees them as well."""

    __slots__ = ("_before", "_exits")

    def __enter__(self) -> "noted_exits":
        thread = current().thread
        self._exits: Exits = {}
        self._before, thread.exits = thread.exits, self._exits
        return self

    def __exit__(self, *exc: object) -> None:
        current().thread.end_exits(self._before)

    def check(self, what: str, repair: str, may_be_meant: bool = False) -> None:
        """Raise for the last exit, which `what` made; with `may_be_meant`, for the last that was not by item()."""
        found = [exit for exit in self._exits if not may_be_meant or exit[2] != _ON_PURPOSE]
        if not found:
            return
        code, lasti, how = found[-1]
        raise NotDifferentiableError(
            f"{what} left the tape by {how} at {describe_site(code, lasti)}, so a part of its derivative would be "
            f"lost. {repair}"
        )
