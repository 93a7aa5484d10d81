"""The same bits every time: `nt.deterministic`, for a block, a function or a tape.

Sums change with the number of threads that share them, so BLAS is held to one thread, and one provider runs all
kernels. NumPy's own sums, the order of records and that of cotangents depend on the program alone.
"""

import functools
import inspect
import os
import sys
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from contextvars import ContextVar
from typing import Any, Self, TypeVar

from ..config import DeterministicConfig, DeterministicMode
from ..core.context import current
from ..core.op import Op
from ..core.record import call_site, describe_site, warn_user
from ..core.scopes import Scope
from ..core.stream import Stream, Unseeded, key_from
from ..errors import DeterminismError, OperandError
from ..kernels import blas, providers
from ..kernels.views import aligned
from .operation_seeds import stream_of_config

F = TypeVar("F", bound=Callable[..., Any])

#: What runs all kernels: always there, and the same whatever else is installed.
_PROVIDER = "numpy"


class deterministic(Scope):
    """Give the same bits every time inside of a ``with`` block or a decorated function.

    On one class of CPU results are bitwise equal across runs, processes, hash seeds and thread counts: BLAS uses one
    thread, NumPy runs all kernels, and what cannot promise it raises. See docs/determinism.md.

    Args:
        mode: "strict" (raise for what cannot promise it), "warn" or "off"; or a `DeterministicConfig`, which has all
            settings, and whose random stream then goes on from block to block.
        global_seed: the seed of the random stream inside; None for the thread's own.
        operation_seeds: whether each random op has numbers of its own, by the path of its module.

    Raises:
        DeterminismError: inside, in strict mode, for an op that cannot promise it and for draws without a seed.

    Example:
        >>> with nt.deterministic(global_seed=0):
        ...     first = nt.rand(2)
        >>> with nt.deterministic(global_seed=0):
        ...     second = nt.rand(2)
        >>> bool((first == second).all())
        True
    """

    reaches_all = True

    def __init__(
        self,
        mode: DeterministicConfig | DeterministicMode | str = DeterministicMode.STRICT,
        *,
        global_seed: int | None = None,
        operation_seeds: bool = False,
    ) -> None:
        if isinstance(mode, DeterministicMode | str):
            mode = DeterministicConfig(mode, global_seed, operation_seeds)
        elif not isinstance(mode, DeterministicConfig):
            raise OperandError(
                f"deterministic: wants a mode or a DeterministicConfig, not {type(mode).__name__}; write "
                "`with nt.deterministic():`, `@nt.deterministic()` or `nt.deterministic(global_seed=0)`."
            )
        elif global_seed is not None or operation_seeds:
            raise OperandError("deterministic: a DeterministicConfig has all settings; give the seed there.")
        self.config = mode
        self.is_strict = mode.mode is DeterministicMode.STRICT
        self._is_off = mode.mode is DeterministicMode.OFF
        self._told: set[str] = set()

    def around(self, op: Op, compute: Callable[..., Any], arrays: tuple[Any, ...], params: dict[str, Any]) -> Any:
        """Compute an op, if it gives the same bits every time or the innermost scope lets it."""
        innermost = _innermost()
        if innermost is not None and innermost._is_off:
            return compute(op, arrays, params)
        self._check_threads()
        if not op.facts.deterministic and innermost is self:
            self._tell(
                f"{op.name} says that it cannot promise the same bits every time",
                'replace it, or allow it with mode="warn"',
            )
        return compute(op, tuple(map(aligned, arrays)), params)

    def before_sweep(self) -> None:
        """Look whether BLAS still has one thread: rules call it without ops."""
        self._check_threads()

    def _check_threads(self) -> None:
        if _innermost() is self and not self._is_off and blas.threads() not in (1, None):
            self._tell(
                f"BLAS was set to {blas.threads()} threads inside, so results may depend on that number",
                "set it outside",
            )

    def _tell(self, what: str, repair: str) -> None:
        """Raise in strict mode; otherwise warn, once for each thing."""
        if self._is_off:
            return
        code, lasti = call_site(sys._getframe(2))
        text = f"deterministic: {what}, at {describe_site(code, lasti)}; {repair}."
        if self.is_strict:
            raise DeterminismError(text)
        if what not in self._told:
            self._told.add(what)
            warn_user(text)

    def hold(self) -> None:
        """Hold BLAS to one thread, pin the provider, and let random functions draw from the configuration's stream.

        A scope that is off inside of another lets go of both for as long.
        """
        outer = _innermost()
        is_held = outer is not None and not outer._is_off
        if not is_held and not blas.can_be_single():
            self._tell(
                "NumPy's BLAS is no library whose threads can be set, so matrix products may change with their number",
                "set OMP_NUM_THREADS=1 or VECLIB_MAXIMUM_THREADS=1 before Python starts",
            )
        _HELD.set((*_HELD.get(), (self, _Hold(self._stream(), is_held, not self._is_off))))

    def release(self) -> None:
        """Undo the last `hold` of this thread and task."""
        hold = _pop(self)
        if hold is None:
            raise DeterminismError(
                "deterministic: the scope is left in another thread or task than it was entered in; leave it there."
            )
        used = hold.release()
        if used != 1:
            warn_user(
                f"deterministic: BLAS was set to {used} threads inside, so results may depend on that number; set it "
                "outside.",
            )

    def _stream(self) -> Stream | None:
        """Return the stream to draw from inside; None to leave it as it is."""
        if self.config.global_seed is not None:
            return stream_of_config(self.config)
        before = current().thread.stream
        is_seeded = before is not None and not isinstance(before, Unseeded)
        return None if self._is_off or is_seeded else _Seedless(self._tell)

    def __enter__(self) -> Self:
        self.hold()
        try:
            return super().__enter__()
        except BaseException:
            self.release()
            raise

    def __exit__(self, *exc: Any) -> None:
        try:
            super().__exit__(*exc)
        finally:
            self.release()

    def __call__(self, function: F) -> F:
        """Return a function that runs inside of this scope."""
        if not callable(function):
            raise OperandError(
                f"deterministic: decorates functions, not {type(function).__name__}; for a block, write "
                "`with nt.deterministic():`."
            )
        kinds = (inspect.isgeneratorfunction, inspect.iscoroutinefunction, inspect.isasyncgenfunction)
        if any(is_kind(function) for is_kind in kinds):
            raise OperandError(
                f"deterministic: {getattr(function, '__qualname__', 'this')} is a generator or a coroutine, which runs "
                "in pieces; use `with nt.deterministic():` inside."
            )

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            with self:
                return function(*args, **kwargs)

        wrapped: Any = call
        result: F = wrapped
        return result

    def __repr__(self) -> str:
        return f"nt.deterministic({self.config})"


def _innermost() -> deterministic | None:
    """Return the scope of this kind that decides here."""
    return next((scope for scope in reversed(current().scopes) if isinstance(scope, deterministic)), None)


#: What scopes hold in this context, each with its scope, innermost last: tasks and threads may share a scope.
_HELD: ContextVar[tuple[tuple[deterministic, "_Hold"], ...]] = ContextVar("numtape_held", default=())


def _pop(scope: deterministic) -> "_Hold | None":
    """Return what a scope holds since it was entered last, and forget it; None if that was in another context."""
    found = _HELD.get()
    for position in range(len(found) - 1, -1, -1):
        if found[position][0] is scope:
            _HELD.set(found[:position] + found[position + 1 :])
            return found[position][1]
    return None


class _Streams(threading.local):
    """The entries of all scopes that have replaced the stream of a thread, in the order they came."""

    def __init__(self) -> None:
        self.open: list[_Hold] = []


_streams = _Streams()


class _Hold:
    """One entry of a scope: what it changed outside of the ambient state, and how to change it back."""

    def __init__(self, stream: Stream | None, is_held: bool, is_wanted: bool) -> None:
        self._thread = current().thread
        self._stream = stream
        self._before = self._thread.stream
        if stream is not None:
            self._thread.stream = stream
            _streams.open.append(self)
        #: They are held once, by the outermost scope; one that is off inside of it lets go for a while.
        self._holds = is_wanted and not is_held
        self._frees = is_held and not is_wanted
        self._pin: AbstractContextManager[None] | None = None
        if self._holds:
            blas.single_thread.hold()
            self._pin = providers.held(_PROVIDER)
        elif self._frees:
            blas.single_thread.release()
            self._pin = providers.held(None)
        if self._pin is not None:
            self._pin.__enter__()

    def release(self) -> int:
        """Put everything back; return how many threads BLAS was using, if it should have been one."""
        if self._stream is not None:
            self._put_stream_back()
        if self._pin is not None:
            self._pin.__exit__(None, None, None)
        if self._frees:
            blas.single_thread.hold()
        return blas.single_thread.release() if self._holds else 1

    def _put_stream_back(self) -> None:
        """Give the thread the stream that it had; tasks may leave their scopes in another order than they came."""
        _streams.open.remove(self)
        for later in _streams.open:
            if later._before is self._stream:
                later._before = self._before
        # Whoever calls nt.seed inside means it to last.
        if self._thread.stream is self._stream:
            self._thread.stream = self._before


class _Seedless(Unseeded):
    """Stands for a stream without a seed, and says so when it is drawn from."""

    __slots__ = ("_tell",)

    def __init__(self, tell: Callable[[str, str], None]) -> None:
        super().__init__(key_from(os.urandom(16)))
        self._tell = tell

    def take(self, words: int) -> tuple[int, int]:
        """Draw, after saying that the numbers will be others next time."""
        innermost = _innermost()
        if innermost is None or not innermost._is_off:
            self._tell("random numbers are drawn without a seed", "call nt.seed(0) before, or give global_seed=0")
        return super().take(words)
