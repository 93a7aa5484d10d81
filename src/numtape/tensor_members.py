"""What a tensor does beside ops: leave the tape, be iterated, carry a gradient, be copied and shown."""

import itertools
import sys
import weakref
from collections.abc import Callable, Iterator
from typing import Any, Self

import numpy as np

from . import ops, protocols
from ._typing import NDArray
from .core.apply import is_tracked, leave_out
from .core.context import BY_CALLS, current, entered
from .core.gradients import backward, check_constant, is_leaf, note_into_grad
from .core.record import Record, call_site, next_index, note
from .core.value import Lifted, Value, extras_of, make_writable, single_array, update_node, wrap
from .core.write import forget_history, mark_written, replace_memory
from .dtypes import FLOAT_DTYPES, default_dtype, int64, is_float
from .errors import ArgumentError, DtypeError, GradientError, IndexingError, OperandError, ShapeError
from .ops.indexing import setitem

#: How to go on with more than one element.
_MANY = ". Index one, reduce with sum() or mean(), or use tolist()."
#: So few parts, as in ``a, b = x``, are taken one by one, which is faster than as the outputs of one op.
_FEW = 4


class Members(Value):
    """The members of `Tensor` that are not ops."""

    __slots__ = ()

    # Shape and place.
    @property
    def ndim(self) -> int:
        """The number of axes."""
        return self.array.ndim

    @property
    def size(self) -> int:
        """The number of elements."""
        return self.array.size

    @property
    def nbytes(self) -> int:
        """The number of bytes that the elements take."""
        return self.array.nbytes

    def numel(self) -> int:
        """Return the number of elements."""
        return self.array.size

    def dim(self) -> int:
        """Return the number of axes."""
        return self.array.ndim

    @property
    def device(self) -> str:
        """Where the tensor is: always "cpu"."""
        return "cpu"

    # Leaving the tape.
    def numpy(self, copy: Any = False) -> NDArray:
        """Return the array: a read-only view, or with `copy` one that can be written."""
        self._note_exit("numpy()")
        return self.array.copy() if copy else protocols.read_only(self.array)

    def item(self, *index: Any) -> Any:
        """Return the only element as a Python number, or that at a flat index, or at one index for each axis."""
        if index:
            return self._item(index)
        if self.array.size != 1:
            raise ShapeError(f"item(): the tensor has shape {self.shape}; only one element makes a number{_MANY}")
        self._note_exit("item()")
        return self.array.item()

    to_scalar = item

    def _item(self, index: tuple[Any, ...]) -> Any:
        try:
            found = self.array.item(*index)
        except (IndexError, ValueError) as error:
            raise IndexingError(f"item(): the tensor has shape {self.shape}; {error}.") from error
        except TypeError as error:
            raise OperandError(f"item(): {index[0]!r} is no index; give integers.") from error
        self._note_exit("item()")
        return found

    def tolist(self) -> Any:
        """Return nested lists of Python numbers."""
        self._note_exit("tolist()")
        return self.array.tolist()

    def __float__(self) -> Any:
        return self._number(float, BY_CALLS)

    def __int__(self) -> Any:
        return self._number(int, "int()")

    def __trunc__(self) -> Any:
        # Python's math.trunc wants it; floor and ceil of the module take float().
        return self._number(int, "math.trunc()")

    def __index__(self) -> Any:
        if self.dtype.kind not in "iu" or self.array.size != 1:
            raise OperandError(
                f"index: only integer tensors of one element stand for an integer, not {self.dtype} of shape "
                f"{self.shape}; use int()."
            )
        return int(self.array.item())

    def __bool__(self) -> Any:
        if self.array.size != 1:
            raise ShapeError(f"bool(): the tensor has shape {self.shape}; use any() or all() for all but one element.")
        return bool(self.array.item())

    def __complex__(self) -> complex:
        raise DtypeError("complex(): numtape computes with real numbers; use float().")

    def _number(self, kind: Callable[[Any], Any], how: str) -> Any:
        if self.array.size != 1:
            raise ShapeError(f"{how}: the tensor has shape {self.shape}; only one element makes a number{_MANY}")
        self._note_exit(how)
        return kind(self.array.item())

    def _note_exit(self, how: str) -> None:
        if is_tracked(self):
            current().thread.note_exit(*call_site(sys._getframe()), how)

    def __dlpack__(self, **kwargs: Any) -> Any:
        protocols.check_may_leave(self, "DLPack export")
        # Only from version 1 on can the other side be told that memory is not to be written.
        is_told = (kwargs.get("max_version") or (0,)) >= (1, 0)
        return (protocols.read_only(self.array) if is_told else self.array).__dlpack__(**kwargs)

    def __dlpack_device__(self) -> Any:
        return self.array.__dlpack_device__()

    # Containers.
    def __len__(self) -> int:
        if not self.shape:
            raise OperandError("len(): a tensor without axes has no length; size is 1, and item() gives the number.")
        return self.shape[0]

    def __iter__(self) -> Iterator[Any]:
        if not self.shape:
            raise OperandError("iteration: a tensor without axes has no elements to go through; use item().")
        if self.shape[0] <= _FEW:
            return iter([ops.getitem(self, i) for i in range(self.shape[0])])
        if len(self.shape) > 1:
            return iter(ops.unbind(self))
        numbers: tuple[Any, ...] = ops.unbind(ops.clone(self))
        for number in numbers:  # As in NumPy: copies that cannot be written.
            if not isinstance(number, Lifted):
                number.array.setflags(write=False)
        return iter(numbers)

    def __contains__(self, item: Any) -> Any:
        return bool((self.array == (item.array if isinstance(item, Value) else item)).any())

    # Gradients.
    @property
    def is_leaf(self) -> Any:
        """Whether the tensor was made by the user, not computed from tracked ones."""
        return is_leaf(self)

    @property
    def grad(self) -> Any:
        """The gradient that backward has added up here, or None."""
        return None if self.extras is None else self.extras.grad

    @grad.setter
    def grad(self, gradient: Any) -> None:
        if gradient is not None:
            note_into_grad(gradient)
            array = gradient.array if isinstance(gradient, Value) else self._as_gradient(gradient)
            if array.shape != self.shape:
                raise ShapeError(
                    f"grad: the tensor has shape {self.shape} and the gradient {array.shape}; they must be equal."
                )
            if array.dtype != self.dtype:
                raise DtypeError(
                    f"grad: the tensor has dtype {self.dtype} and the gradient {array.dtype}; use astype()."
                )
            gradient = wrap(self.plain, np.array(array, order="C"))
        extras_of(self).grad = gradient

    def _as_gradient(self, gradient: Any) -> NDArray:
        """Return what is no tensor as an array of this tensor's dtype."""
        array = np.asarray(gradient)
        if array.dtype not in FLOAT_DTYPES and array.dtype.kind not in "biu":
            raise OperandError(
                f"grad: a gradient is a tensor, an array of real numbers or None, not {type(gradient).__name__} "
                f"({array.dtype})."
            )
        return array.astype(self.dtype)

    @property
    def requires_grad(self) -> Any:
        """Whether `backward` delivers a gradient here, or a gradient flows through here."""
        if isinstance(self.node, Record):
            return True
        return self.extras is not None and self.extras.requires_grad

    @requires_grad.setter
    def requires_grad(self, flag: Any) -> None:
        self.requires_grad_(flag)

    @property
    def is_frozen(self) -> bool:
        """Whether a gradient, wherever it comes from, is not to change this tensor; parameters of modules say so."""
        return False

    @property
    def data(self) -> Any:
        """The tensor without its history, of the same memory; assigning gives the tensor new memory with a copy."""
        return ops.stop_gradient(self)

    @data.setter
    def data(self, source: Any) -> None:
        array = single_array(self)
        if isinstance(source, Value) and single_array(source) is array:
            return  # The last step of x.data -= v: the memory holds the result.
        check_constant("data", "write x[...] = value, which is recorded", source)
        made = wrap(self.plain, np.empty_like(array))
        with entered(grad=False):
            setitem(made, ..., source)
        replace_memory(self, made.array)

    def requires_grad_(self, flag: Any = True) -> Self:
        """Say whether `backward` shall deliver a gradient here, and return self."""
        if not isinstance(flag, bool | np.bool_):
            raise OperandError(f"requires_grad: the flag is {flag!r}; it must be True or False.")
        if flag and not is_float(self.dtype):
            raise DtypeError(
                f"requires_grad: a tensor of {self.dtype} has no derivative; only float tensors do. "
                "Use astype(nt.float32), or write 1.0 instead of 1."
            )
        if isinstance(self.node, Record):
            if not flag:
                raise GradientError(
                    "requires_grad: this tensor was computed from tracked ones, so it stays tracked; use detach()."
                )
            return self
        if flag:
            make_writable(self)
        extras = extras_of(self)
        extras.requires_grad = bool(flag)
        if flag and self.node is None and extras.since is None:
            extras.since = next_index()  # No record before depends on it.
        update_node(self)
        return self

    set_requires_grad = requires_grad_

    def detach_(self) -> Self:
        """Make the tensor a constant, without a history, and return self."""
        single_array(self)
        if self.extras is not None and self.extras.watchers and not isinstance(self.node, Record):
            raise GradientError("detach_: the tensor is watched, or being differentiated by; use detach().")
        forget_history(self)
        leave_out(self)
        return self.requires_grad_(False)

    def retain_grad(self) -> None:
        """Let `backward` deliver a gradient here although the tensor is not a leaf."""
        if self.node is None:
            raise GradientError(
                "retain_grad: the tensor is untracked, so no gradient will arrive; make it depend on a tensor with "
                "requires_grad=True."
            )
        if isinstance(self.node, Record):
            note(self.node).retained = weakref.ref(self)

    def register_hook(self, hook: Callable[[Any], Any]) -> "Hook":
        """Call a function with the gradient of this tensor whenever a reverse sweep has computed it.

        Args:
            hook: gets the gradient as a tensor; returns None, or a tensor that takes its place.

        Returns:
            A handle; ``handle.remove()`` takes the hook off again.

        Whole Jacobians and forward mode pass hooks by.

        Example:
            >>> x = nt.tensor([1.0, 2.0], requires_grad=True)
            >>> handle = x.register_hook(lambda g: g * 10.0)
            >>> (x * x).sum().backward()
            >>> x.grad
            tensor([20., 40.])
        """
        if not callable(hook):
            raise OperandError(f"register_hook: a hook is a function of the gradient, not {type(hook).__name__}.")
        if self.node is None:
            raise GradientError(
                "register_hook: the tensor is untracked, so no gradient will arrive; make it depend on a tensor with "
                "requires_grad=True."
            )
        if isinstance(self.node, Record):
            notes = note(self.node)
            notes.hooks = notes.hooks or ({}, self.plain)
            return Hook(notes.hooks[0], hook)
        extras = extras_of(self)
        extras.hooks = extras.hooks or {}
        return Hook(extras.hooks, hook)

    def backward(self, gradient: Any = None, retain_graph: Any = False, create_graph: Any = False) -> None:
        """Add the derivatives of this scalar to the ``.grad`` of its leaves, and free its graph.

        Args:
            gradient: the cotangent to start from; needed if the tensor is not scalar.
            retain_graph: keep the graph's arrays for another backward.
            create_graph: not here, since ``.grad`` never carries a graph.
        """
        if create_graph:
            raise ArgumentError(
                "backward: .grad never carries a graph; to differentiate gradients, take them by nt.grad(f)(x), or by "
                "tape.gradient(loss, x) within another tape."
            )
        if gradient is None and self.array.size != 1:
            raise ShapeError(
                f"backward: the tensor has shape {self.shape}; give gradient=, or reduce it with sum() or mean()."
            )
        backward("backward", self, gradient, free=not retain_graph)

    def zero_grad(self, set_to_none: Any = True) -> None:
        """Reset the gradient: to None, or to zeros in place."""
        if self.extras is None or self.extras.grad is None:
            return
        if set_to_none:
            self.extras.grad = None
        else:
            self.extras.grad.array[...] = 0
            mark_written(self.extras.grad, None)

    def has_nan(self) -> Any:
        """Say whether some element is NaN."""
        return bool(np.isnan(self.array).any()) if is_float(self.dtype) else False

    def has_inf(self) -> Any:
        """Say whether some element is infinite."""
        return bool(np.isinf(self.array).any()) if is_float(self.dtype) else False

    # Copies and text.
    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        self._check_leaf("deepcopy")
        copied = _rebuild(*self.__reduce__()[1])
        if self.grad is not None:
            copied.grad = self.grad.array.copy()
        memo[id(self)] = copied
        return copied

    def __copy__(self) -> Any:
        self._check_leaf("copy")
        return _rebuild(*self.__reduce__()[1])

    def __reduce__(self) -> tuple[Any, ...]:
        self._check_leaf("pickle")
        is_required = self.extras is not None and self.extras.requires_grad
        return _rebuild, (type(self), self.array.copy(), is_required, self.name)

    def _check_leaf(self, what: str) -> None:
        if isinstance(self.node, Record):
            raise GradientError(
                f"{what}: this tensor was computed from tracked ones, and its history cannot be copied; {what} "
                "detach() of it, or use clone() to stay on the tape."
            )
        state = current()
        is_watched = self.extras is not None and self.extras.watchers > 0 and not self.extras.requires_grad
        if is_watched and state.grad and (state.transforms or state.tapes):
            raise GradientError(
                f"{what}: this tensor is being differentiated by, and a copy has no part in that; {what} detach() of "
                "it, or use clone() to stay on the tape."
            )

    def __repr__(self) -> str:
        text = np.array2string(self.array, separator=", ", prefix="tensor(")
        notes = [text]
        if self.array.size == 0 and self.array.ndim > 1:
            notes.append(f"shape={self.shape}")
        if self.dtype not in (default_dtype(), int64, np.bool_) or self.array.size == 0:
            notes.append(f"dtype={self.dtype}")
        if isinstance(self.node, Record):
            notes.append(f"op={self.node.op.name}")
        elif self.requires_grad:
            notes.append("requires_grad=True")
        if self.name:
            notes.append(f"name={self.name!r}")
        return f"tensor({', '.join(notes)})"

    def __format__(self, spec: str) -> str:
        if spec and self.array.size == 1:
            return format(self.array.item(), spec)
        try:
            return format(str(self), spec)
        except ValueError as error:
            raise ShapeError(
                f"format: the tensor has shape {self.shape} and the format is {spec!r}, which is for one number{_MANY}"
            ) from error


class Hook:
    """A hook that was registered; `remove`, or the end of a ``with`` block, takes it off."""

    _numbers = itertools.count()

    def __init__(self, hooks: dict[int, Any], function: Callable[[Any], Any]) -> None:
        self._hooks = hooks
        self._number = next(self._numbers)
        hooks[self._number] = function

    def remove(self) -> None:
        """Take the hook off; doing it twice is fine."""
        self._hooks.pop(self._number, None)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.remove()


def _rebuild(cls: type[Value], array: NDArray, requires_grad: bool, name: str | None) -> Any:
    made = wrap(cls, array)
    if name is not None:
        made.name = name
    return made.requires_grad_() if requires_grad else made
