"""What a tensor stores: an array, the node that made it, a version shared with its views, and rarely used extras."""

import copy
import itertools
from collections.abc import Sequence
from types import CodeType
from typing import TYPE_CHECKING, Any, ClassVar
from weakref import ref

from .._typing import Dtype, NDArray, Shape
from ..errors import OperandError

if TYPE_CHECKING:
    from .record import Record

_ids = itertools.count(1)


class Leaf:
    """The node of a tensor that starts a graph. There is one, `LEAF`: in records, the tensor itself is the link."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "LEAF"


LEAF = Leaf()

#: How often somebody has begun to watch what functions write to (`effects`): a buffer that was viewed or written in an
#: epoch was there before the next one.
epoch = [0]


class Version:
    """Counts the writes to a buffer; all views of the buffer share it. Remembers the last write."""

    __slots__ = ("born", "code", "count", "lasti", "leaves", "recorded", "writer")

    #: Where the last write was made, and a weak reference to the tensor that it went through; set by the first write.
    code: CodeType
    lasti: int
    writer: Any

    def __init__(self) -> None:
        self.count = 0
        #: The `epoch` of the first view or write.
        self.born = epoch[0]
        #: The count at the last write that was recorded, which only the tensor that it went through knows about.
        self.recorded = 0
        #: The leaves whose memory this or a part of it is, and of which a view was taken.
        self.leaves: tuple[ref[Value], ...] = ()

    def parted(self) -> "Version":
        """Return the version of a copy: whoever read the buffer before it was made notices the same writes."""
        made = copy.copy(self)
        made.leaves = ()
        return made


#: A buffer's version and the count at which somebody last knew it to hold his value.
Stamp = tuple[Version, int]


class Extras:
    """What few tensors have: a gradient, a name, an identity that was asked for, tapes that watch it, hooks.

    Each has few of them, so that an instance holds only what differs from these defaults.
    """

    grad: Any = None
    id: int | None = None
    name: str | None = None
    requires_grad = False
    watchers = 0
    #: Whether a sweep made it to start from: nobody else has it, although a tape that watches all may watch it.
    is_seed = False
    #: Whether a transform that is running differentiates by it.
    is_argument = False
    #: For a leaf that was tracked at some time: no record with a smaller index depends on it. None if it never was.
    since: int | None = None
    #: Functions of the gradient of a leaf, in the order in which they were registered; None without any.
    hooks: dict[int, Any] | None = None


class Value:
    """The storage of a Tensor.

    Invariants:
    - `node` is None (untracked), `LEAF` (a source of gradients) or the `Record` that computed the array.
    - `version` is None until the buffer is shared with a view or written in place; then a `Stamp`. A tensor whose stamp
      is behind its buffer's count was overwritten through another name.
    - `extras` is None until one of them is set.
    """

    __slots__ = ("__weakref__", "array", "extras", "node", "version")

    #: The class that wraps results of ops on instances of this one; a subclass of Tensor leaves it as it is.
    plain: ClassVar[type["Value"]]

    array: NDArray
    node: "Record | Leaf | None"
    version: Stamp | None
    extras: Extras | None

    @property
    def shape(self) -> Shape:
        """The length of each axis."""
        shape: Shape = self.array.shape
        return shape

    @property
    def dtype(self) -> Dtype:
        """The NumPy dtype of the elements."""
        return self.array.dtype

    @property
    def id(self) -> int:
        """A number that no other tensor of this process has or will have."""
        extras = extras_of(self)
        if extras.id is None:
            extras.id = next(_ids)
        return extras.id

    @property
    def name(self) -> str | None:
        """What summaries and errors call the tensor."""
        return None if self.extras is None else self.extras.name

    @name.setter
    def name(self, name: str | None) -> None:
        if name is not None and not isinstance(name, str):
            raise OperandError(f"name: the name of a tensor is text, not {type(name).__name__}.")
        extras_of(self).name = name

    @property
    def requires_grad(self) -> bool:
        """Whether `backward` delivers a gradient here, or a gradient flows through here."""
        if self.node is None or self.node is LEAF:
            return self.extras is not None and self.extras.requires_grad
        return True


class Lifted(Value):
    """A value that stands for more than one array: a batch of values, or a power series.

    It has no `array`, so the faces leave it to `apply`, which lets its class run the op.
    """

    __slots__ = ()

    @property
    def inside(self) -> Any:
        """The array or tensor that holds the values; rules look at it to tell which of several formulas is right."""
        raise NotImplementedError

    def detached(self) -> Any:
        """Return the same as a constant."""
        raise NotImplementedError

    def settled(self) -> Any:
        """Return what it stands for now: itself, as long as whoever made it is at work."""
        return self

    def run_op(self, op: Any, operands: Sequence[Any], params: dict[str, Any]) -> Any:
        """Run an op that has this value among its operands."""
        raise NotImplementedError

    def refuse(self) -> None:
        """Note that somebody wants what this value does not have, and will get an error."""


def single_array(x: Value) -> NDArray:
    """Return the array of a value, for what cannot do with several; one that stands for more has none."""
    if isinstance(x, Lifted):
        x.refuse()
    return x.array


def array_of(x: Any) -> Any:
    """Return the array behind a tensor, a lifted one's with its leading axes; anything else as it is."""
    while isinstance(x, Lifted):
        x = x.inside
    return x.array if isinstance(x, Value) else x


def extras_of(value: Value) -> Extras:
    """Return the extras of a value, made on first use."""
    if value.extras is None:
        value.extras = Extras()
    return value.extras


def writes_to(value: Value) -> int:
    """Return how often the memory of a tensor was written to."""
    return value.version[0].count if value.version is not None else 0


def wrap_seed(cls: type[Value], array: NDArray) -> Any:
    """Return a new value of class `cls` around the array that a sweep starts from."""
    value = wrap(cls, array)
    extras_of(value).is_seed = True
    return value


def is_seed(value: Value) -> bool:
    """Say whether a sweep made a value to start from."""
    return value.extras is not None and value.extras.is_seed


def wrap(cls: type[Value], array: NDArray, node: "Record | Leaf | None" = None, version: Stamp | None = None) -> Any:
    """Return a new value of class `cls` around `array`."""
    value = cls.__new__(cls)
    value.array = array
    value.node = node
    value.version = version
    value.extras = None
    return value


def update_node(value: Value) -> None:
    """Make a leaf's node agree with its extras: tracked while it requires a gradient or some tape watches it."""
    extras = extras_of(value)
    value.node = LEAF if extras.requires_grad or extras.watchers else None
    if extras.since is None:
        extras.since = 0


def has_lost_history(value: Value) -> bool:
    """Say whether a recorded write through another name changed what a value without a record holds."""
    return value.version is not None and value.version[0].recorded > value.version[1]


def is_element(value: Value) -> bool:
    """Say whether a value is an element that was taken out of another: a number that cannot be written."""
    array = getattr(value, "array", None)  # Of a lifted one there is none.
    return array is not None and not array.ndim and not array.flags.writeable


def make_writable(value: Value) -> None:
    """Give a value memory of its own if it cannot be written: it is to be a variable from now on."""
    array = getattr(value, "array", None)  # Of a lifted one there is none.
    if array is None or array.flags.writeable:
        return
    value.array = array.copy()
    if value.version is not None:
        version, stamp = value.version
        value.version = (version.parted(), stamp)
