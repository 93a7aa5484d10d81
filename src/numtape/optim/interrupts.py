"""Keep Ctrl-C out of a block: it takes effect right after."""

import _signal  # type: ignore[import-not-found]
import signal
import threading
from types import FrameType
from typing import Any

_MAIN = threading.main_thread()
# Those of `signal` convert to and from enums around these, which would be most of the time.
_handler_of = _signal.getsignal
_set_handler = _signal.signal


class uninterrupted:
    """Put off SIGINT while a block writes what belongs together, so that nobody sees half of it.

    Python runs handlers of signals in the main thread only; in other threads there is nothing to do. The process's own
    handler, be it the one that raises KeyboardInterrupt, is called at the end of the block.
    """

    __slots__ = ("_handler", "_pending")

    def __enter__(self) -> None:
        self._handler: Any = None
        self._pending: tuple[int, FrameType | None] | None = None
        if threading.current_thread() is _MAIN and callable(_handler_of(signal.SIGINT)):
            # From here on nothing interrupts: a signal before this line raises before the block has begun.
            self._handler = _set_handler(signal.SIGINT, self._put_off)

    def _put_off(self, number: int, frame: FrameType | None) -> None:
        self._pending = (number, frame)

    def __exit__(self, *exc: object) -> None:
        if self._handler is not None:
            handler, self._handler = self._handler, None
            _set_handler(signal.SIGINT, handler)
            if self._pending is not None:
                handler(*self._pending)
