"""Names for the variables of written code: those of tensors, and those that the user's lines assign to."""

import builtins
import keyword
import linecache
import os
import re
import unicodedata
from collections.abc import Sequence
from types import CodeType

from ..core.record import Record

_RESERVED = {*keyword.kwlist, *dir(builtins), "np", "ml_dtypes", "forward", "gradient"}

#: How much of a line of the user's is shown.
_LONGEST = 80


class Names:
    """Identifiers, each given out once."""

    def __init__(self) -> None:
        self._taken = set(_RESERVED)
        self._count = 0

    def fresh(self, wish: str) -> str:
        """Return an identifier like `wish` that is not in use."""
        # As Python reads identifiers, which are not all that is a word: a subscript is none.
        wish = unicodedata.normalize("NFKC", wish)
        wish = "".join(letter if f"x{letter}".isidentifier() else " " for letter in wish)
        wish = re.sub(r"\s+", "_", wish) or "x"
        if not wish.isidentifier():
            wish = f"p{wish}"
        name, number = wish, 1
        while name in self._taken:
            number += 1
            name = f"{wish}_{number}"
        self._taken.add(name)
        return name

    def numbered(self, letter: str) -> str:
        """Return a letter with the next number."""
        self._count += 1
        return self.fresh(f"{letter}{self._count}")


def place_of(record: Record) -> str:
    """Return file and line of the user's code that ran an op: ``model.py:12``."""
    return f"{os.path.basename(record.code.co_filename)}:{record.line}"


def line_text(record: Record) -> str:
    """Return the user's line that ran an op, cut if it is long."""
    source = linecache.getline(record.code.co_filename, record.line).strip()
    return source if len(source) <= _LONGEST else source[: _LONGEST - 3] + "..."


def assigned_names(records: Sequence[Record]) -> dict[Record, str]:
    """Return, for the last record of each run of a line such as ``h = np.tanh(x @ w)``, the name it assigns to."""
    found: dict[Record, str] = {}
    for position, record in enumerate(records):
        after = records[position + 1] if position + 1 < len(records) else None
        is_same_run = after is not None and _line_key(after) == _line_key(record) and after.lasti >= record.lasti
        name = None if is_same_run else _target(record.code, record.line)
        if name is not None:
            found[record] = name
    return found


def _line_key(record: Record) -> tuple[CodeType, int]:
    return record.code, record.line


def _target(code: CodeType, line: int) -> str | None:
    """Return the one plain name that a line assigns to."""
    source = linecache.getline(code.co_filename, line).strip()
    if ";" in source:
        return None
    # Not parsed: the line may be the first of a longer statement.
    match = re.match(r"([A-Za-z_]\w*)\s*(=(?!=)|[-+*/@]=)", source)
    return match[1] if match else None
