"""Autocast: ops that gain from it run in a half dtype, those that need it in float32, each by its own `precision`."""

import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, TypeVar, overload

import numpy as np

from .._typing import Dtype, DtypeLike, NDArray
from ..config import AmpConfig, PrecisionMode
from ..core.apply import as_operand, record, tracked_operands
from ..core.context import current, entered
from ..core.declare import registry
from ..core.op import Composite, Op, every_op
from ..core.scopes import Scope, casting, without_casts
from ..core.value import Lifted, Value, wrap, writes_to
from ..dtypes import HALF_DTYPES, as_dtype, bfloat16, float16, float32
from ..errors import ArgumentError, DtypeError, OperandError
from ..grad_mode import decorated
from ..kernels.halves import to_float32, to_half
from ..ops import load_all
from ..ops.casting import CAST, cast

F = TypeVar("F", bound=Callable[..., Any])

#: Stands where an argument was not given.
_UNSET: Any = object()
_CASTABLE = HALF_DTYPES | {float32}
_DTYPES = {PrecisionMode.FLOAT16: float16, PrecisionMode.BFLOAT16: bfloat16, PrecisionMode.FLOAT32: float32}


class CastArrays:
    """The half copies of tensors, each for as long as its tensor lives and is not written to."""

    def __init__(self) -> None:
        self._copies: dict[int, tuple[weakref.ref[Value], NDArray, int, NDArray]] = {}

    def __len__(self) -> int:
        return len(self._copies)

    def of(self, value: Value, dtype: Dtype) -> NDArray:
        """Return the array of a tensor, rounded to a half dtype.

        Data, which needs no gradient, is rounded anew: it may be a buffer of NumPy's that somebody fills again.
        """
        if not value.requires_grad:
            return to_half(value.array, dtype)
        writes = writes_to(value)
        held = self._copies.get(id(value))
        if held is not None:
            reference, source, count, copy = held
            if reference() is value and source is value.array and count == writes and copy.dtype is dtype:
                return copy
        copy = to_half(value.array, dtype)
        # Ops that return views of it hand it out, and a write through one would change what later ops read.
        copy.setflags(write=False)
        self._copies[id(value)] = (weakref.ref(value, self._forgetting(id(value))), value.array, writes, copy)
        return copy

    def _forgetting(self, key: int) -> Callable[[Any], None]:
        # Weak, since these copies hold the reference that holds this function: no cycle.
        owner = weakref.ref(self)

        def forget(gone: Any) -> None:
            copies = owner()
            held = copies._copies.get(key) if copies is not None else None
            if copies is not None and held is not None and held[0] is gone:
                del copies._copies[key]

        return forget


class Casting(Scope):
    """Gives ops operands of the dtypes that they are to run in.

    To lower is to round: such casts are ops, and recorded. To widen is exact: the record has the half operand and the
    float32 result, so that nothing is kept that a half number tells. Only float32 and the half types are ever cast:
    integers stay, and float64 is what somebody asked for.
    """

    casts = True

    def __init__(
        self,
        dtype: Dtype,
        overrides: Mapping[str, str],
        copies: CastArrays | None = None,
        everything: Dtype | None = None,
    ) -> None:
        self.dtype = dtype
        #: The precision of ops that have another than their own here, by name.
        self.overrides = overrides
        self.copies = CastArrays() if copies is None else copies
        self.everything = everything
        self._targets: dict[Op, Dtype | None] = {}

    def restart(self) -> None:
        """Forget the copies."""
        self.copies = CastArrays()

    def operands(self, op: Op, operands: Sequence[Any]) -> tuple[Sequence[Any], bool]:
        """Return the operands in the dtype that the op is to run in, and whether it widens half ones by itself."""
        try:
            target = self._targets[op]
        except KeyError:
            target = self._targets[op] = self._target(op)
        if target is None:
            return operands, False
        positions = [i for i in (range(len(operands)) if op.is_variadic else op.promoted) if i < len(operands)]
        # Arrays alone are none of our business: derivative rules and NumPy code compute on them.
        if not any(isinstance(operands[i], Value) for i in positions):
            return operands, False
        replaced = list(operands)
        for i in positions:
            if isinstance(operands[i], list | tuple):
                replaced[i] = as_operand(op, operands[i], i, operands)
        given = [i for i in positions if getattr(replaced[i], "ndim", None) is not None]
        if target is float32:
            if not any(isinstance(x, Lifted) for x in operands):
                return replaced, True
        elif any(replaced[i].dtype not in _CASTABLE and replaced[i].ndim for i in given):
            return operands, False  # Beside integers and float64 a half number would have too few digits.
        for i in given:
            if replaced[i].dtype in _CASTABLE and replaced[i].dtype != target:
                replaced[i] = self.cast(replaced[i], target)
        return replaced, False

    def _target(self, op: Op) -> Dtype | None:
        if op is CAST:
            return None
        if self.everything is not None:
            return self.everything
        precision = self.overrides.get(op.name, op.facts.precision)
        return None if precision == "keep" else self.dtype if precision == "lower" else float32

    def cast(self, x: Any, dtype: Dtype) -> Any:
        """Return a tensor or an array in another dtype; the half copy of a tensor is made once."""
        if not isinstance(x, Value):
            return x if not isinstance(x, np.ndarray) else to_float32(x) if dtype is float32 else to_half(x, dtype)
        if isinstance(x, Lifted) or dtype is float32:
            return cast(x, dtype)
        state = current()
        array = self.copies.of(x, dtype)
        needs = tracked_operands(CAST, (x,), state)
        node = record(CAST, (x,), {"dtype": dtype}, needs, array, state) if needs else None
        return wrap(x.plain, array, node)

    def run_composed(self, composite: Composite, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run a composed function: all of its ops in one dtype if it is widened or overridden, else each in its own."""
        override = self.overrides.get(composite.name)
        if self.everything is not None or (override is None and composite.facts.precision == "lower"):
            return composite.function(*args, **kwargs)
        dtype = float32 if (override or composite.facts.precision) == "widen" else self.dtype
        inner = Casting(self.dtype, self.overrides, self.copies, everything=dtype)
        with entered(scopes=(*without_casts(current().scopes), inner)):
            return composite.function(*args, **kwargs)


class autocast:
    """Run ops in the precision that suits each, in a ``with`` block or a decorated function.

    Products of matrices, convolutions and attention run in `dtype`; exponentials, sums, norms and losses in float32;
    all others in the dtype of what they get. Parameters stay float32, and so do their gradients: casts are recorded
    and differentiated. Regions nest, and ``enabled=False`` is a region without casts. Sweeps, writes in place and
    ``out=`` are left as they are, and so are integers and float64.

    Args:
        dtype: bfloat16 or float16; float32 casts nothing.
        enabled: False for a region in which nothing is cast.
        autocast_ops: the names of further ops to run in `dtype`.
        keep_fp32_ops: the names of further ops to run in float32; it wins over `autocast_ops`.
        device_type: "cpu", for PyTorch's sake; it may also come first, as there.
        cache_enabled: accepted for PyTorch's sake: the cast of a weight is always kept until the weight changes.

    Raises:
        DtypeError: if dtype is none of these.
        ArgumentError: if there is no op of a name.

    Example:
        >>> weight = nt.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
        >>> with nt.autocast(dtype=nt.bfloat16):
        ...     product = nt.ones(1, 2) @ weight
        ...     total = product.sum()
        >>> product.dtype, total.dtype
        (dtype(bfloat16), dtype('float32'))
        >>> total.backward()
        >>> weight.grad.dtype
        dtype('float32')
    """

    @overload
    def __init__(
        self,
        dtype: DtypeLike = bfloat16,
        enabled: bool = True,
        *,
        autocast_ops: Iterable[str] = (),
        keep_fp32_ops: Iterable[str] = (),
        device_type: str = "cpu",
        cache_enabled: bool | None = None,
    ) -> None: ...

    @overload
    def __init__(
        self,
        device_type: Literal["cpu"],
        /,
        dtype: DtypeLike = bfloat16,
        enabled: bool = True,
        *,
        autocast_ops: Iterable[str] = (),
        keep_fp32_ops: Iterable[str] = (),
        cache_enabled: bool | None = None,
    ) -> None: ...

    def __init__(
        self,
        *args: Any,
        dtype: Any = _UNSET,
        enabled: Any = _UNSET,
        autocast_ops: Iterable[str] = (),
        keep_fp32_ops: Iterable[str] = (),
        device_type: str = "cpu",
        cache_enabled: bool | None = None,
    ) -> None:
        if not _is_cpu(device_type):
            raise ArgumentError(f'autocast: there is no device {device_type!r}; numtape computes on "cpu".')
        given = args[1:] if args and _is_cpu(args[0]) else args
        self.dtype = _as_precision(given[0] if given else bfloat16 if dtype is _UNSET else dtype)
        if len(given) > 2 or (given and dtype is not _UNSET) or (len(given) == 2 and enabled is not _UNSET):
            raise OperandError("autocast: takes a dtype and whether it is enabled, each once; name the other settings.")
        enabled = given[1] if len(given) == 2 else True if enabled is _UNSET else enabled
        if not isinstance(enabled, bool | np.bool_):
            raise OperandError(f"autocast: enabled is {enabled!r}; it must be True or False.")
        self.enabled = bool(enabled) and self.dtype is not float32
        self._overrides = _overrides("autocast", autocast_ops, keep_fp32_ops)
        self._entered = entered()

    def _changes(self) -> dict[str, Any]:
        """Return what a region changes. It shares the copies of the one that it replaces."""
        scopes = current().scopes
        if not self.enabled:
            return {"scopes": without_casts(scopes)}
        replaced = casting(scopes)
        copies = replaced.copies if isinstance(replaced, Casting) else None
        return {"scopes": (*without_casts(scopes), Casting(self.dtype, self._overrides, copies))}

    def __enter__(self) -> None:
        self._entered.enter(self._changes())

    def __exit__(self, *exc: Any) -> None:
        self._entered.__exit__(*exc)

    def __call__(self, function: F) -> F:
        return decorated("autocast", function, lambda: entered(**self._changes()))


class WithoutCasts(Scope):
    """Ends the casts of regions further out."""

    ends_casts = True


def casting_of(config: AmpConfig) -> Casting | WithoutCasts | None:
    """Return the scope of a configuration; None if it has nothing to say."""
    overrides = _overrides("AmpConfig", config.autocast_ops, config.keep_fp32_ops)
    if not config.enabled:
        return None
    dtype = _DTYPES[PrecisionMode(config.precision_mode)]
    return WithoutCasts() if dtype is float32 else Casting(dtype, overrides)


def _is_cpu(device: Any) -> bool:
    return isinstance(device, str) and device.split(":")[0] == "cpu"


def _as_precision(dtype: Any) -> Dtype:
    if callable(dtype) and not isinstance(dtype, type):
        raise OperandError("autocast: takes a dtype; write `@nt.autocast()`, with parentheses, to decorate a function.")
    if isinstance(dtype, PrecisionMode):
        return _DTYPES[dtype]
    try:
        # None would be the default dtype elsewhere.
        found = None if dtype is None else as_dtype(dtype)
    except DtypeError:
        found = None
    for known in _DTYPES.values():
        if found == known:
            return known
    shown = repr(dtype) if isinstance(dtype, str) else str(found or dtype)
    device = ", and there is one device, so that it is not named" if dtype == "cuda" else ""
    raise DtypeError(f"autocast: dtype is {shown}; it must be bfloat16, float16, or float32 to cast nothing{device}.")


def _overrides(title: str, lower: Iterable[str], widen: Iterable[str]) -> dict[str, str]:
    """Return the precision of ops that are given by any of their names; raise for a name that none has."""
    found: dict[str, str] = {}
    for argument, names, precision in (("autocast_ops", lower, "lower"), ("keep_fp32_ops", widen, "widen")):
        if isinstance(names, str):
            raise OperandError(f"{title}: {argument} is {names!r}; it must be a sequence of names: [{names!r}].")
        if not isinstance(names, Iterable):
            raise OperandError(f"{title}: {argument} is {names!r}; it must be a sequence of names of ops.")
        for name in names:
            entry = _entry(title, argument, name)
            if isinstance(entry, Composite) and entry.facts.precision == "keep":
                raise ArgumentError(
                    f"{title}: {argument} has {name!r}, which is made of other ops and runs in the dtype of what it "
                    "gets; name those ops."
                )
            if entry is CAST:
                raise ArgumentError(
                    f"{title}: {argument} has {name!r}, which gives the dtype that it is asked for; name the ops that "
                    "read what it gives."
                )
            found[entry.name] = precision
    return found


def _entry(title: str, argument: str, name: Any) -> Op | Composite:
    """Return the op or composed function of a name, or of a further spelling; also one that a user declared."""
    load_all()
    if isinstance(name, str) and name in registry:
        return registry[name]
    # Without the ops that have no function of their own, which nobody calls by name.
    declared = [op for op in list(every_op) if op.face is not op.forward]
    entries: list[Op | Composite] = [*registry.values(), *declared]
    for entry in entries:
        if name == entry.name or name in entry.facts.also:
            return entry
    import difflib  # Only for the message.

    spellings = {spelling: None for entry in entries for spelling in (entry.name, *entry.facts.also)}
    near = difflib.get_close_matches(str(name), spellings, n=3)
    hint = f" Did you mean {' or '.join(map(repr, near))}?" if near else ""
    raise ArgumentError(f"{title}: {argument} has {name!r}, and there is no op of that name.{hint}")
