"""The loader: batches of a dataset, in an order that a seed and the epoch decide, from any point on."""

from collections.abc import Callable, Iterator
from typing import Any, Self

import numpy as np

from .._typing import DtypeLike, NDArray
from ..counts import is_count
from ..errors import ArgumentError, OperandError
from .columns import Floats
from .datasets import as_dataset, gives_rows
from .epochs import Batches, Epoch, Progress
from .sampling import new_key, order_from, order_of

#: How many batches PyTorch's workers make ahead, each.
_BATCHES_PER_WORKER = 2


class DataLoader:
    """Iterate over a dataset in batches; each `for` loop over it is an epoch.

    The order of an epoch is a function of the seed and the epoch's number, whatever was drawn before. Loops at the
    same time are independent, each with an epoch of its own. `state_dict` says which batch comes next, and a loader
    that loads it goes on exactly there, prefetch or not.

    Args:
        dataset: anything with a length and samples by number; or a tuple or dict of arrays, or one array, with samples
            along the first axis. Arrays are NumPy's (also memory-mapped), tensors, or pandas'; only the rows of a
            batch are copied, all at once.
        batch_size: samples in a batch; the last one may be smaller.
        shuffle: whether each epoch has a random order of its own.
        drop_last: whether to leave out a last, smaller batch.
        rng: a Generator, a seed, or None for the thread's stream: where the loader draws its key from.
        collate: makes a batch of a list of samples, instead of `nt.data.collate`. Its result is left as it is.
            `collate_fn` is PyTorch's name of it.
        prefetch: how many batches to make ahead, in one background thread; it helps where samples are slow to make,
            rows of arrays are not. None means two for each of `num_workers`.
        num_workers: for programs written for PyTorch; there are no worker processes here. NumPy lets go of the
            interpreter while it copies and computes, so one thread (see `prefetch`) serves where workers would.
        sampler: the numbers of the samples of an epoch in their order, as an iterable with a length that can be gone
            through again; instead of `shuffle`. The rest of an epoch is saved; the orders to come are the sampler's.
        generator: PyTorch's name of `rng`.
        pin_memory: accepted for PyTorch's sake, like `persistent_workers`; both are without effect.
        dtype: the dtype of all floats. Without it, floats of arrays, pandas objects and Python come in the default
            dtype, which layers are made in, and tensors keep theirs. Integers and bools keep theirs always.

    Raises:
        ArgumentError: if the dataset is empty or an argument has no sense.
        OperandError: if samples cannot be read by number.

    Example:
        >>> x, y = np.array([[0.0], [1.0], [2.0]]), np.array([0, 1, 0])
        >>> loader = nt.data.DataLoader((x, y), batch_size=2, shuffle=True, rng=0)
        >>> for inputs, labels in loader:
        ...     print(inputs.shape, inputs.dtype, labels.dtype)
        (2, 1) float32 int64
        (1, 1) float32 int64
        >>> len(loader), loader.epoch
        (2, 1)
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int = 1,
        shuffle: bool = False,
        drop_last: bool = False,
        rng: Any = None,
        collate: Callable[[list[Any]], Any] | None = None,
        prefetch: int | None = None,
        num_workers: int = 0,
        dtype: DtypeLike = None,
        *,
        sampler: Any = None,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        generator: Any = None,
        pin_memory: bool = False,
        persistent_workers: bool = False,
    ) -> None:
        collate = _one_of("collate", collate, "collate_fn", collate_fn)
        rng = _one_of("rng", rng, "generator", generator)
        self.dataset = as_dataset(dataset, "DataLoader")
        self.batch_size = _count("batch_size", batch_size, 1)
        self.shuffle = _flag("shuffle", shuffle)
        self.drop_last = _flag("drop_last", drop_last)
        self.collate = collate
        workers = _count("num_workers", num_workers, 0)
        self.prefetch = _BATCHES_PER_WORKER * workers if prefetch is None else _count("prefetch", prefetch, 0)
        self.dtype = Floats.of("DataLoader", dtype).chosen
        if collate is not None and not callable(collate):
            raise OperandError(f"DataLoader: collate is {collate!r}; it must be a function of a list of samples.")
        self.sampler = sampler
        if sampler is not None:
            _check_sampler(sampler, self.shuffle)
        self._check_length()
        self._key = new_key(rng)
        #: The order that a sampler gave for the loop that began last.
        self._order: NDArray | None = None
        #: Where the loop that began last stands, and where the next one begins.
        self._latest = Progress(0, 0)
        self._next = Progress(0, 0)

    def _check_length(self) -> None:
        length = self._samples()
        if length == 0:
            raise ArgumentError("DataLoader: the dataset is empty; there is nothing to iterate over.")
        if self.drop_last and length < self.batch_size:
            raise ArgumentError(
                f"DataLoader: the dataset has {length} samples and batch_size is {self.batch_size}, so drop_last "
                "leaves no batch; make batch_size smaller, or keep the last batch."
            )

    @property
    def epoch(self) -> int:
        """The epoch of the loop that began last, or the one after it if that loop came to its end."""
        return self._latest.epoch

    def __len__(self) -> int:
        """Return the number of batches of a whole epoch."""
        rounding = 0 if self.drop_last else self.batch_size - 1
        return (self._samples() + rounding) // self.batch_size

    def _samples(self) -> int:
        """Return the number of samples of an epoch."""
        return len(self.dataset if self.sampler is None else self.sampler)

    def __iter__(self) -> Iterator[Any]:
        self._latest = progress = self._next
        self._next = Progress(progress.epoch + 1, 0)
        order = self._next_order(progress)
        plan = Epoch(
            dataset=self.dataset,
            key=self._key,
            number=progress.epoch,
            order=order,
            length=len(self.dataset) if order is None else len(order),
            batch_size=self.batch_size,
            drop_last=self.drop_last,
            collate=self.collate,
            floats=Floats.of("DataLoader", self.dtype),
            takes_rows=self.collate is None and gives_rows(self.dataset),
        )
        return Batches(plan, progress, self.prefetch)

    def _next_order(self, progress: Progress) -> NDArray | None:
        """Return the order of the samples in an epoch; None for that of the dataset."""
        if self.sampler is None:
            return order_of(self._key, progress.epoch, len(self.dataset)) if self.shuffle else None
        if self._order is None or not progress.position:  # Else the rest of an epoch is gone on with.
            self._order = order_from(self.sampler, len(self.dataset))
        return self._order

    def state_dict(self) -> dict[str, Any]:
        """Return where the loop that began last stands: what it was given counts, what was only prefetched does not.

        Example:
            >>> loader = nt.data.DataLoader(np.arange(6), batch_size=2, rng=0)
            >>> batches = iter(loader)
            >>> next(batches).tolist()
            [0, 1]
            >>> other = nt.data.DataLoader(np.arange(6), batch_size=2).load_state_dict(loader.state_dict())
            >>> [batch.tolist() for batch in other]
            [[2, 3], [4, 5]]
        """
        state = {
            "epoch": self._latest.epoch,
            "position": self._latest.position,
            "length": len(self.dataset),
            "shuffle": self.shuffle,
            "batch_size": self.batch_size,
            "key": self._key,
        }
        is_amid = self._order is not None and self._latest.position
        return {**state, "order": np.array(self._order)} if is_amid else state

    def load_state_dict(self, state: dict[str, Any]) -> Self:
        """Let the next loop go on from a saved state; loops that run already are not touched.

        Raises:
            ArgumentError: if the state is none, or one of a dataset of another length or of another order, or if it
                stands amid an epoch of batches of another size.
        """
        _check_state(state)
        length = len(self.dataset)
        if state["length"] != length:
            raise ArgumentError(
                f"DataLoader.load_state_dict: the state is of a dataset of {state['length']} samples and this one has "
                f"{length}; load it with the dataset that it was saved with."
            )
        if bool(state["shuffle"]) != self.shuffle:
            raise ArgumentError(
                f"DataLoader.load_state_dict: the state was saved with shuffle={bool(state['shuffle'])} and this "
                f"loader has shuffle={self.shuffle}; the rest of the epoch would not be the rest."
            )
        is_amid = 0 < state["position"] < _samples_of(state)
        if is_amid and state.get("batch_size", self.batch_size) != self.batch_size:
            raise ArgumentError(
                f"DataLoader.load_state_dict: the state stands amid an epoch with batch_size={state['batch_size']} and "
                f"this loader has batch_size={self.batch_size}; the rest of the epoch would not be the rest. Change it "
                "between epochs."
            )
        had_sampler = "order" in state
        if state["position"] and had_sampler != (self.sampler is not None):
            with_or_without = ("with", "without") if had_sampler else ("without", "with")
            raise ArgumentError(
                "DataLoader.load_state_dict: the state was saved {} a sampler and this loader is {} one; the rest of "
                "the epoch would not be the rest.".format(*with_or_without)
            )
        self._key = int(state["key"])
        self._order = np.array(state["order"]) if "order" in state else None
        self._latest = self._next = Progress(int(state["epoch"]), int(state["position"]))
        return self

    def __repr__(self) -> str:
        ahead = f", prefetch={self.prefetch} in one thread" if self.prefetch else ""
        return (
            f"DataLoader({len(self.dataset)} samples, batch_size={self.batch_size}, shuffle={self.shuffle}{ahead}, "
            f"epoch={self.epoch})"
        )


def _one_of(name: str, given: Any, other: str, also: Any) -> Any:
    """Return an argument that has two names, and is given under one of them."""
    if given is not None and also is not None:
        raise ArgumentError(f"DataLoader: {name} and {other} are two names of one argument; give one of them.")
    return given if also is None else also


def _check_sampler(sampler: Any, shuffle: bool) -> None:
    if shuffle:
        raise ArgumentError("DataLoader: a sampler has an order of its own; give it, or shuffle=True.")
    if not hasattr(sampler, "__len__") or not hasattr(sampler, "__iter__"):
        raise OperandError(
            f"DataLoader: sampler is of type {type(sampler).__name__}; it must be numbers of samples, with a length."
        )


def _count(name: str, given: Any, least: int) -> int:
    """Return an argument that counts something, or raise if it does not."""
    if not is_count(given, least):
        raise ArgumentError(f"DataLoader: {name} is {given!r}; it must be an integer of at least {least}.")
    return int(given)


def _flag(name: str, given: Any) -> bool:
    """Return an argument that is on or off; a text such as "no" would be on."""
    if not isinstance(given, bool | np.bool_) and given not in (0, 1):
        raise ArgumentError(f"DataLoader: {name} is {given!r}; it must be True or False.")
    return bool(given)


def _samples_of(state: dict[str, Any]) -> int:
    """Return the number of samples of the epoch that a state is of; a sampler may give more than there are."""
    return len(state.get("order", range(state["length"])))


def _check_state(state: Any) -> None:
    names = {"epoch", "position", "length", "shuffle", "key"}
    # States from before batch_size was kept lack it.
    if not isinstance(state, dict) or set(state) - {"order", "batch_size"} != names:
        got = sorted(map(str, state)) if isinstance(state, dict) else type(state).__name__
        raise ArgumentError(
            f"DataLoader.load_state_dict: wants a dict with {sorted(names)}, as state_dict() gives, not {got}."
        )
    for name in ("epoch", "position", "length", "key"):
        value = state[name]
        if not is_count(value, 0):
            raise ArgumentError(f"DataLoader.load_state_dict: {name!r} is {value!r}; it must be an integer from 0 on.")
    length = _samples_of(state)
    if state["position"] > length:
        raise ArgumentError(
            f"DataLoader.load_state_dict: position {state['position']} lies beyond the {length} samples."
        )
