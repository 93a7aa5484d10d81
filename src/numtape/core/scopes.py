"""What acts around ops and sweeps while it is active: scopes of transforms, and observers that only look."""

from collections.abc import Callable, Sequence, Set
from typing import TYPE_CHECKING, Any, Self

from .context import current, entered, peek

if TYPE_CHECKING:
    from .._typing import Dtype, NDArray
    from .graph import Way
    from .op import Composite, Op
    from .record import Link, Record
    from .value import Value


class Scope:
    """What a transform does around ops while it is active. Subclasses override what they need.

    `around` runs an op: it gets the op, the function that computes it, its arrays and its static parameters, and
    returns the function's result or another one. `on_record` sees each new record, with the operands of its op.

    A scope that `casts` also says what ops get as `operands`, and how a composed function runs. The innermost of them
    does, and none inside of sweeps: derivative rules compute in the dtypes of what was recorded.
    """

    #: Whether the scope gives ops operands of other dtypes.
    casts = False
    #: Whether it acts on all ops that run inside, also those of functions that ops and derivatives call.
    reaches_all = False
    #: Whether what steps of a loop do is hidden from it, like what is inside of an op.
    skips_loops = False
    #: Whether nothing is cast inside, whatever scopes further out say.
    ends_casts = False
    #: What all ops get, inside of a function that is widened or lowered as a whole.
    everything: "Dtype | None" = None

    def operands(self, op: "Op", operands: Sequence[Any]) -> tuple[Sequence[Any], bool]:
        """Return what an op gets for its operands, and whether it computes on half ones in float32."""
        return operands, False

    def run_composed(self, composite: "Composite", args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run a composed function; asked of a scope that casts."""
        return composite.function(*args, **kwargs)

    #: Whether the same bits are wanted every time; None for a scope that has no say. The innermost decides.
    is_strict: bool | None = None

    def hold(self) -> None:
        """Take what a scope needs outside of the ambient state, before it is entered; the default needs nothing."""

    def release(self) -> None:
        """Give back what the last `hold` took, after it was left."""

    def around(self, op: "Op", compute: Callable[..., Any], arrays: tuple[Any, ...], params: dict[str, Any]) -> Any:
        """Compute the op; the default does nothing else."""
        return compute(op, arrays, params)

    def on_record(self, record: "Record", operands: Sequence[Any]) -> None:
        """Look at a record that was just made; the default ignores it."""

    #: Whether it has nothing to do with what rules compute, unless they leave records.
    skips_sweeps = False

    def inside_loop(self) -> "Scope | None":
        """Return what acts around the ops of steps of a loop, the first time that they run; None for nothing."""
        return None if self.skips_loops else self

    def before_sweep(self) -> None:
        """Look at what a sweep is about to run in, whose rules need not be ops; the default does nothing."""

    #: Whether it is to `plan` backwards over the records that it saw.
    plans = False

    def plan(self, records: "Sequence[Record]", frees: bool, keeps: "Set[Link]", is_recorded: bool, way: "Way") -> None:
        """Get ready for a backward that is about to begin.

        Args:
            records: what it passes, newest first.
            frees: whether it frees what it passes.
            keeps: the links whose cotangents stay.
            is_recorded: whether it is recorded itself, for higher orders.
            way: that to the sources that are wanted.
        """

    def on_constant(self, operands: Sequence[Any], results: Sequence[Any]) -> None:
        """Look at the results of an op that left no record, since none of its operands is tracked."""

    def on_created(self, array: "NDArray") -> None:
        """Look at the array of a tensor that was made of nothing, as zeros and random numbers are."""

    def restart(self) -> None:
        """Forget the records seen: the tape that the scope belongs to starts anew; the default keeps none."""

    def forget(self, records: "Sequence[Record]") -> None:
        """Forget some of the records seen, which the tape has let go; the default keeps none."""

    #: Where its blocks begin and end.
    _entered: "entered"

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        made = super().__new__(cls)
        made._entered = entered()
        return made

    def __enter__(self) -> Self:
        self._entered.enter({"scopes": (*current().scopes, self)})
        return self

    def __exit__(self, *exc: Any) -> None:
        self._entered.__exit__(*exc)


def reaching_all(scopes: "tuple[Scope, ...]") -> "tuple[Scope, ...]":
    """Return the scopes that also act on what functions do of which nobody outside knows."""
    return tuple(scope for scope in scopes if scope.reaches_all)


def aside(**changes: Any) -> entered:
    """Return a block of which tapes outside of it know nothing, nor scopes but those that reach all, with changes."""
    return entered(**{"tapes": (), "watch_all": False, "scopes": reaching_all(current().scopes), **changes})


def casting(scopes: "tuple[Scope, ...]") -> Scope | None:
    """Return the innermost of the scopes that cast; None if there is none, or one inside of it ends casts."""
    for scope in reversed(scopes):
        if scope.casts:
            return scope
        if scope.ends_casts:
            break
    return None


def inside_sweep(scopes: "tuple[Scope, ...]", is_recorded: bool) -> "tuple[Scope, ...]":
    """Return the scopes that act on what rules compute: none that casts, and some only if it is recorded."""
    return without_casts(tuple(scope for scope in scopes if is_recorded or not scope.skips_sweeps))


def without_casts(scopes: "tuple[Scope, ...]") -> "tuple[Scope, ...]":
    """Return the scopes that leave dtypes alone."""
    return tuple(scope for scope in scopes if not scope.casts)


class Follower:
    """Follows one reverse sweep."""

    def on_step(self, record: "Record", cotangent: Any, cotangents: dict[Any, Any]) -> None:
        """Look at a record that was just passed, its cotangent, and those that wait; nothing of it is freed yet."""

    def on_made_again(self, record: "Record", made: Any) -> None:
        """Look at the output of a record that was run again, to be put back or to make others of."""

    def on_end(self) -> None:
        """Note that the sweep is over; one that raises just stops."""


class Observer:
    """Looks at reverse sweeps while it is active: ``with entered(observers=(*current().observers, observer))``."""

    #: Whether it also looks at the sweeps that derivative rules run inside of a sweep.
    looks_inside = True

    def on_targets(self, targets: "Sequence[Value]") -> None:
        """Look at the tensors that a sweep will start from, before anything is done."""

    def on_sweep(self, records: "Sequence[Record]") -> Follower | None:
        """Look at the records that a sweep is about to pass, newest first, and say who follows it."""


def followers_of(records: "Sequence[Record]") -> list[Follower]:
    """Begin a sweep over records, newest first, and return who follows it."""
    observers = (peek() or current()).observers
    if not observers:
        return []
    return [follower for each in observers if (follower := each.on_sweep(records)) is not None]
