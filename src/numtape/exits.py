"""Notice where a tracked tensor becomes a plain number or array: its part in derivatives would be lost unnoticed."""

import re
from types import CodeType
from typing import NoReturn

from .core.context import current
from .core.record import describe_site
from .errors import NotDifferentiableError

#: The conversion that nothing but a user's own call makes: it says that a plain number is meant.
ON_PURPOSE = "item()"


#: What says in the text of a call that a number is only looked at.
_LOOKS = re.compile(r"\b(float|isnan|isinf|isfinite|isclose)\b")


def is_unnoticed(code: CodeType, lasti: int) -> bool:
    """Say whether a conversion by ``float()`` was hardly meant: to fill an array, or to call a function of numbers."""
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
    text = source[begin : end if last == line else None].decode(errors="replace")
    return "(" in text and not _LOOKS.search(text)


class noted_exits:
    """Notes exits inside of a block: ``with noted_exits() as exits: ...``; then `exits.last` is the last one, or None.

    It is the code object, the instruction and the kind of a conversion. An outer block sees it as well.
    """

    __slots__ = ("_before", "last")

    def __enter__(self) -> "noted_exits":
        thread = current().thread
        self._before, thread.last_exit = thread.last_exit, None
        return self

    def __exit__(self, *exc: object) -> None:
        thread = current().thread
        self.last = thread.last_exit
        thread.last_exit = self.last or self._before

    def raise_last(self, what: str, repair: str) -> NoReturn:
        """Raise for the last exit, which `what` made."""
        assert self.last is not None
        code, lasti, how = self.last
        raise NotDifferentiableError(
            f"{what} left the tape by {how} at {describe_site(code, lasti)}, so a part of its derivative would be "
            f"lost. {repair}"
        )
