"""Who asked for the bytes that are alive: each buffer once, on the account of the record that made it.

Like `core.buffers.Buffers`, which only counts, but with an account for each buffer, and what each had at the peak.
"""

import weakref
from types import CodeType
from typing import Any

import numpy as np

from .._typing import NDArray
from ..core.buffers import buffer_of
from ..core.record import Record, describe_site
from ..core.value import Value, array_of


class Account:
    """What made a buffer: an op, at a line, in a phase; and what for: a value, a recomputed one or a cotangent.

    There is one object for each, so that it is its own key: to compare code objects takes longer than many ops.
    """

    __slots__ = ("code", "kind", "lasti", "op", "phase")

    def __init__(self, op: str, code: CodeType, lasti: int, phase: str, kind: str) -> None:
        self.op = op
        self.code = code
        self.lasti = lasti
        self.phase = phase
        self.kind = kind

    @property
    def line(self) -> str:
        """The user's line that ran the op."""
        return describe_site(self.code, self.lasti)


class _Entry(weakref.ref[Any]):
    """A buffer that is in the books until it dies."""

    __slots__ = ("account", "key", "nbytes")

    key: int
    nbytes: int
    account: Account


class Ledger:
    """The bytes of the arrays that were entered and are still alive, by account. Arrays are not held."""

    def __init__(self) -> None:
        self.live = 0
        self.peak = 0
        #: The bytes of each account.
        self.balances: dict[Account, int] = {}
        self._at_peak: dict[Account, int] = {}
        #: Whether now is the peak, so that the balances are what `at_peak` is to show.
        self._is_at_peak = True
        self._entries: dict[int, _Entry] = {}
        self._accounts: dict[tuple[str, int, int, str, str], Account] = {}
        self._close = _closer(weakref.ref(self))

    def account(self, record: Record, phase: str, kind: str) -> Account:
        """Return the account of a record."""
        key = (record.op.name, id(record.code), record.lasti, phase, kind)
        found = self._accounts.get(key)
        if found is None:
            found = self._accounts[key] = Account(record.op.name, record.code, record.lasti, phase, kind)
        return found

    def enter(self, array: Any, account: Account) -> None:
        """Count an array unless its buffer is counted already."""
        buffer = buffer_of(array)
        if id(buffer) in self._entries:
            return
        entry = _Entry(buffer, self._close)
        entry.key = id(buffer)
        entry.nbytes = buffer.nbytes
        entry.account = account
        self._entries[entry.key] = entry
        self.live += entry.nbytes
        self.balances[account] = self.balances.get(account, 0) + entry.nbytes
        if self.live >= self.peak:
            self.peak = self.live
            self._is_at_peak = True

    def remove(self, array: Any) -> None:
        """Count an array no longer, although it lives."""
        entry = self._entries.get(id(buffer_of(array)))
        if entry is not None:
            self._strike(entry)

    def __contains__(self, array: Any) -> bool:
        return id(buffer_of(array)) in self._entries

    @property
    def at_peak(self) -> dict[Account, int]:
        """The bytes that each account had when most were alive."""
        return dict(self.balances if self._is_at_peak else self._at_peak)

    def _strike(self, entry: _Entry) -> None:
        if self._is_at_peak and entry.nbytes:
            self._at_peak = dict(self.balances)
            self._is_at_peak = False
        del self._entries[entry.key]
        self.live -= entry.nbytes
        self.balances[entry.account] -= entry.nbytes


def _closer(owner: "weakref.ref[Ledger]") -> Any:
    """Return what is called when a buffer dies. It does not hold the ledger, which holds it."""

    def close(entry: _Entry) -> None:
        ledger = owner()
        if ledger is not None and ledger._entries.get(entry.key) is entry:
            ledger._strike(entry)

    return close


def arrays_in(value: Any) -> list[NDArray]:
    """Return the arrays of a value: of a tensor, of each of several outputs; none if there are none yet."""
    if type(value) is np.ndarray:
        return [value]
    if isinstance(value, tuple | list):
        return [array for part in value for array in arrays_in(part)]
    return arrays_in(array_of(value)) if isinstance(value, Value) else []
