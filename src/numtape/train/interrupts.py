"""Let a loop finish its step when the user or the system asks it to stop."""

import signal
import threading
from types import FrameType
from typing import Any, Self


class StopSignals:
    """Catches SIGINT and SIGTERM in the main thread: the first one is noted, a second SIGINT interrupts at once.

    Example:
        >>> with nt.train.StopSignals() as stop:
        ...     bool(stop)
        False
    """

    def __init__(self) -> None:
        self.received: signal.Signals | None = None
        self._before: dict[signal.Signals, Any] = {}

    def __bool__(self) -> bool:
        return self.received is not None

    def __enter__(self) -> Self:
        # Elsewhere signals cannot be caught; a run in another thread is stopped by whoever started it.
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *exc: object) -> None:
        while self._before:
            number, handler = self._before.popitem()
            signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.received is not None and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.received = signal.Signals(number)
