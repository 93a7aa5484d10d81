"""The loader: order, batches, resuming, and prefetching."""

import copy
import gc
import os
import pickle
import subprocess
import sys
import textwrap
import threading
import time
import traceback
import warnings
from operator import length_hint

import numpy as np
import pytest

import numtape as nt
from numtape import data
from numtape.errors import ArgumentError, DeterminismError, DtypeError, OperandError
from numtape.kernels import providers

N = 23
#: Orders of epochs 0 and 1 of seed 0; they never change.
PINNED = [[4, 5, 2, 6, 3, 1, 7, 0], [4, 3, 0, 7, 1, 5, 2, 6]]


class Numbers:
    """Samples one by one, with a random number of the thread's stream for each; remembers what was read."""

    def __init__(self, n=N):
        self.n = n
        self.read = []

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        self.read.append(i)
        return i, nt.rand(()).item()


class Breaks(Numbers):
    def __getitem__(self, i):
        if i == 5:
            raise KeyError("sample five is missing")
        return super().__getitem__(i)


def values(loader):
    return [batch.tolist() for batch in loader]


def samples(loader):
    return [sample for batch in values(loader) for sample in batch]


def pairs(loader):
    return [(i.tolist(), r.tolist()) for i, r in loader]


def prefetchers():
    return [thread for thread in threading.enumerate() if thread.name == "numtape-prefetch"]


def wait_until_no_thread_is_left():
    deadline = time.monotonic() + 5.0
    while prefetchers() and time.monotonic() < deadline:
        time.sleep(0.001)
    assert prefetchers() == []


@pytest.fixture(autouse=True)
def no_thread_is_left():
    yield
    wait_until_no_thread_is_left()


def test_batches_come_in_order_with_a_smaller_one_at_the_end():
    loader = data.DataLoader(np.arange(7), batch_size=3)
    assert len(loader) == 3
    assert values(loader) == [[0, 1, 2], [3, 4, 5], [6]]


def test_drop_last_leaves_the_smaller_batch_out():
    loader = data.DataLoader(np.arange(7), batch_size=3, drop_last=True)
    assert len(loader) == 2
    assert values(loader) == [[0, 1, 2], [3, 4, 5]]
    assert loader.epoch == 1


def test_shuffled_epochs_have_every_sample_once_and_differ():
    loader = data.DataLoader(np.arange(N), batch_size=5, shuffle=True, rng=0)
    first, second = (samples(loader) for _ in range(2))
    assert sorted(first) == sorted(second) == list(range(N))
    assert first != second


def test_the_order_of_a_seed_and_an_epoch_is_pinned():
    loader = data.DataLoader(np.arange(8), batch_size=8, shuffle=True, rng=0)
    assert values(loader) + values(loader) == PINNED


def test_an_epoch_does_not_depend_on_what_was_drawn_before():
    whole = data.DataLoader(np.arange(N), batch_size=5, shuffle=True, rng=3)
    epochs = [values(whole) for _ in range(3)]
    other = data.DataLoader(np.arange(N), batch_size=5, shuffle=True, rng=3)
    next(iter(other))  # Epoch 0, left after one batch.
    nt.rand(5, rng=0)
    assert values(other) == epochs[1]
    assert values(other) == epochs[2]


def test_batch_size_does_not_change_the_order():
    by_two = data.DataLoader(np.arange(N), batch_size=2, shuffle=True, rng=3)
    by_seven = data.DataLoader(np.arange(N), batch_size=7, shuffle=True, rng=3)
    assert samples(by_two) == samples(by_seven)


def test_loaders_of_one_generator_differ_and_follow_from_its_seed():
    orders = []
    for _ in range(2):
        rng = nt.Generator(5)
        orders.append([values(data.DataLoader(np.arange(N), N, shuffle=True, rng=rng)) for _ in range(2)])
    assert orders[0] == orders[1]
    assert orders[0][0] != orders[0][1]


def test_the_seed_of_the_thread_decides_without_rng():
    orders = []
    for _ in range(2):
        nt.seed(11)
        orders.append(values(data.DataLoader(np.arange(N), N, shuffle=True)))
    assert orders[0] == orders[1]


def test_loops_at_the_same_time_are_independent():
    loader = data.DataLoader(np.arange(N), batch_size=4, shuffle=True, rng=2, prefetch=2)
    alone = data.DataLoader(np.arange(N), batch_size=4, shuffle=True, rng=2)
    expected = values(alone), values(alone)
    together = [(a.tolist(), b.tolist()) for a, b in zip(loader, loader, strict=True)]
    assert [a for a, _ in together] == expected[0]
    assert [b for _, b in together] == expected[1]


def test_the_epoch_counts_loops():
    loader = data.DataLoader(np.arange(4), batch_size=2)
    assert [loader.epoch for _ in range(2) for _ in loader] == [0, 0, 1, 1]
    assert loader.epoch == 2
    for _ in loader:
        break
    assert loader.epoch == 2
    iter(loader)
    assert loader.epoch == 3


def test_the_rest_of_a_loop_has_a_length_hint():
    batches = iter(data.DataLoader(np.arange(7), batch_size=3))
    assert length_hint(batches) == 3
    assert [length_hint(batches) for _ in batches] == [2, 1, 0]


def test_a_batch_of_columns_is_one_indexing_per_column():
    class Counted(np.ndarray):
        calls = 0

        def __getitem__(self, index):
            type(self).calls += 1
            return np.asarray(self)[index]

    x = np.arange(60.0).reshape(20, 3).view(Counted)
    for dataset in ((x,), data.Subset(data.TensorDataset(x), range(20))):
        Counted.calls = 0
        assert len(list(data.DataLoader(dataset, batch_size=5, shuffle=True, rng=0))) == 4
        assert Counted.calls == 4


def test_a_subclass_that_changes_indexing_is_asked_for_each_sample():
    class Doubled(data.TensorDataset):
        def __getitem__(self, index):
            return tuple(2.0 * part for part in super().__getitem__(index))

    (batch,) = data.DataLoader(Doubled(np.arange(3.0)), batch_size=3)
    assert batch[0].tolist() == [0.0, 2.0, 4.0]
    (batch,) = data.DataLoader(data.Subset(Doubled(np.arange(3.0)), [2]), batch_size=3)
    assert batch[0].tolist() == [4.0]


def test_fast_and_slow_ways_give_the_same_batches():
    columns = data.TensorDataset(np.arange(N) * 0.1, np.arange(N), nt.arange(N, dtype="float64"))
    slow = data.ConcatDataset([columns])
    for dtype in (None, "float16"):
        for a, b in zip(
            data.DataLoader(columns, 4, shuffle=True, rng=1, dtype=dtype),
            data.DataLoader(slow, 4, shuffle=True, rng=1, dtype=dtype),
            strict=True,
        ):
            assert [part.dtype for part in a] == [part.dtype for part in b]
            assert [part.tolist() for part in a] == [part.tolist() for part in b]


def test_floats_of_samples_come_in_the_default_dtype_and_labels_in_int64():
    for dataset in ((np.ones((4, 2)), np.arange(4)), [(np.ones(2), 1)] * 4, [(np.float64(1.0), np.int64(1))] * 4):
        for x, y in data.DataLoader(dataset, batch_size=2):
            assert (x.dtype, y.dtype) == (nt.float32, nt.int64)
        for x, y in data.DataLoader(dataset, batch_size=2, dtype="float64"):
            assert (x.dtype, y.dtype) == (nt.float64, nt.int64)


def test_the_default_dtype_is_that_of_the_beginning_of_the_loop():
    loader = data.DataLoader(np.ones(4), batch_size=1, prefetch=1)
    batches = iter(loader)
    nt.set_default_dtype("float64")
    try:
        assert {batch.dtype for batch in batches} == {nt.float32}
        assert {batch.dtype for batch in loader} == {nt.float64}
    finally:
        nt.set_default_dtype("float32")


def test_loading_is_not_recorded():
    with nt.Tape() as tape:
        for _ in data.DataLoader((nt.ones(4, 2), np.ones(4)), batch_size=2):
            pass
        for _ in data.DataLoader([nt.ones(2)] * 4, batch_size=2):
            pass
    assert len(tape) == 0


def test_collate_gets_the_samples_and_its_result_is_left_alone():
    loader = data.DataLoader(["one", "two", "three"], batch_size=2, collate="-".join)
    assert list(loader) == ["one-two", "three"]
    loader = data.DataLoader((np.arange(4.0),), batch_size=2, collate=len)
    assert list(loader) == [2, 2]


def test_a_dataset_may_fetch_many_samples_at_once():
    class Many(Numbers):
        def __getitems__(self, numbers):
            return [-i for i in numbers]

    assert values(data.DataLoader(Many(4), batch_size=2)) == [[0, -1], [-2, -3]]


def test_num_workers_means_two_batches_ahead_for_each_in_one_thread():
    loader = data.DataLoader(np.arange(N), batch_size=2, num_workers=3)
    assert repr(loader) == "DataLoader(23 samples, batch_size=2, shuffle=False, prefetch=6 in one thread, epoch=0)"
    batches = iter(loader)
    next(batches)
    assert len(prefetchers()) <= 1
    assert data.DataLoader(np.arange(N), num_workers=3, prefetch=0).prefetch == 0
    assert repr(data.DataLoader(np.arange(N))) == "DataLoader(23 samples, batch_size=1, shuffle=False, epoch=0)"


# Going on.


@pytest.mark.parametrize("prefetch", [0, 1, 3])
@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("drop_last", [False, True])
def test_a_loader_goes_on_from_every_batch_of_two_epochs(prefetch, shuffle, drop_last):
    def make(seed):
        return data.DataLoader(Numbers(), 5, shuffle=shuffle, drop_last=drop_last, rng=seed, prefetch=prefetch)

    loader = make(8)
    whole = pairs(loader) + pairs(loader)
    for taken in range(len(whole) + 1):
        loader, resumed = make(8), make(99)
        seen = []
        for batch in (batch for _ in range(2) for batch in loader):
            if len(seen) == taken:
                break
            seen.append((batch[0].tolist(), batch[1].tolist()))
            state = loader.state_dict()
        resumed.load_state_dict(pickle.loads(pickle.dumps(state)) if taken else make(8).state_dict())
        while resumed.epoch < 2:
            seen += pairs(resumed)
        assert seen == whole


def test_what_was_prefetched_but_not_handed_out_does_not_count():
    dataset = Numbers()
    loader = data.DataLoader(dataset, batch_size=2, prefetch=4, rng=0)
    batches = iter(loader)
    next(batches)
    while len(dataset.read) < 10:
        time.sleep(0.001)
    assert loader.state_dict()["position"] == 2
    rest = data.DataLoader(Numbers(), batch_size=2, rng=0).load_state_dict(loader.state_dict())
    assert next(iter(rest))[0].tolist() == [2, 3]


def test_a_state_after_the_last_batch_has_an_empty_rest():
    loader = data.DataLoader(np.arange(4), batch_size=2)
    batches = iter(loader)
    next(batches), next(batches)
    other = data.DataLoader(np.arange(4), batch_size=2).load_state_dict(loader.state_dict())
    assert (other.epoch, values(other), other.epoch) == (0, [], 1)
    assert values(other) == [[0, 1], [2, 3]]


def test_a_state_stays_where_an_interrupted_loop_stood():
    loader = data.DataLoader(np.arange(9), batch_size=2)

    def interrupted():
        for batch in loader:
            if batch[0].item() == 4:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    state = loader.state_dict()
    assert (state["epoch"], state["position"]) == (0, 6)
    assert values(loader.load_state_dict(state)) == [[6, 7], [8]]


def test_the_batch_size_changes_between_epochs_only():
    loader = data.DataLoader(np.arange(N), batch_size=4, shuffle=True, rng=0)
    other = data.DataLoader(np.arange(N), batch_size=7, shuffle=True)
    next(iter(loader))
    with pytest.raises(ArgumentError) as caught:
        other.load_state_dict(loader.state_dict())
    assert str(caught.value) == (
        "DataLoader.load_state_dict: the state stands amid an epoch with batch_size=4 and this loader has "
        "batch_size=7; the rest of the epoch would not be the rest. Change it between epochs."
    )
    list(loader)
    assert samples(other.load_state_dict(loader.state_dict())) == samples(loader)


def test_a_state_without_a_batch_size_goes_on_with_the_same_samples():
    loader = data.DataLoader(np.arange(N), batch_size=4, shuffle=True, rng=0)
    whole = samples(data.DataLoader(np.arange(N), N, shuffle=True, rng=0))
    next(iter(loader))
    older = {name: value for name, value in loader.state_dict().items() if name != "batch_size"}
    other = data.DataLoader(np.arange(N), batch_size=7, shuffle=True).load_state_dict(older)
    assert samples(other) == whole[4:]


def test_random_numbers_of_the_dataset_follow_from_the_seed_with_and_without_prefetch():
    nt.seed(0)
    before = nt.rand(2)
    plain = pairs(data.DataLoader(Numbers(), 4, shuffle=True, rng=1))
    nt.seed(0)
    assert nt.rand(2).tolist() == before.tolist()
    nt.rand(100)
    assert pairs(data.DataLoader(Numbers(), 4, shuffle=True, rng=1, prefetch=3)) == plain
    assert pairs(data.DataLoader(Numbers(), 4, shuffle=True, rng=2)) != plain


def test_loading_leaves_the_stream_of_the_thread_alone():
    nt.seed(0)
    expected = nt.rand(4).tolist()
    nt.seed(0)
    list(data.DataLoader(Numbers(), 4, rng=1))
    assert nt.rand(4).tolist() == expected


def test_a_loader_is_copied_and_pickled_with_its_place():
    loader = data.DataLoader(np.arange(N), batch_size=5, shuffle=True, rng=4)
    next(iter(loader))
    expected = values(copy.deepcopy(loader))
    assert values(pickle.loads(pickle.dumps(loader))) == expected
    assert values(loader) == expected


# The thread.


def test_prefetched_batches_are_the_same():
    plain = data.DataLoader(np.arange(N), batch_size=4, shuffle=True, rng=0)
    ahead = data.DataLoader(np.arange(N), batch_size=4, shuffle=True, rng=0, prefetch=2)
    for _ in range(3):
        assert values(plain) == values(ahead)


class Products(Numbers):
    """Samples that say what runs kernels where they are made, and how many threads BLAS has there."""

    def __getitem__(self, i):
        self.read.append((providers.active(), nt.get_num_threads()))
        return nt.rand(2).numpy() if i else jitter(nt.ones(2)).numpy()


@nt.custom_op(vjp={"x": lambda g: g}, deterministic=False, check=False)
def jitter(x, /):
    return x


@pytest.mark.parametrize("prefetch", [0, 2])
def test_a_strict_scope_around_a_loop_is_around_its_dataset(prefetch):
    threads = nt.get_num_threads()
    nt.set_num_threads(2)
    try:
        dataset = Products(6)
        with nt.deterministic("warn"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            loader = data.DataLoader(dataset, batch_size=1, prefetch=prefetch, rng=0)
            first = values(loader)
        assert set(dataset.read) == {("numpy", 1)}
        with nt.deterministic(), pytest.raises(DeterminismError, match="jitter says that it cannot promise the same"):
            values(loader)
        wait_until_no_thread_is_left()
        assert nt.get_num_threads() == 2
        with nt.deterministic("off"):
            loader = data.DataLoader(Products(6), batch_size=1, prefetch=prefetch, rng=0)
            assert values(loader) == first
    finally:
        nt.set_num_threads(threads)


def test_batches_made_ahead_after_a_strict_scope_was_left_are_of_it():
    dataset = Products(6)
    with nt.deterministic():
        batches = iter(data.DataLoader(dataset, batch_size=1, prefetch=1, sampler=range(1, 6), rng=0))
        next(batches)
    assert len(list(batches)) == 4
    assert set(dataset.read) == {("numpy", 1)}


def test_no_more_is_made_ahead_than_asked_for():
    dataset = Numbers(100)
    batches = iter(data.DataLoader(dataset, batch_size=1, prefetch=3))
    for taken in range(1, 5):
        next(batches)
        deadline = time.monotonic() + 5.0
        while len(dataset.read) < taken + 3 and time.monotonic() < deadline:
            time.sleep(0.001)
        time.sleep(0.01)
        assert len(dataset.read) == taken + 3


def test_the_thread_ends_with_the_epoch():
    list(data.DataLoader(np.arange(N), prefetch=2))
    wait_until_no_thread_is_left()


def test_the_thread_ends_when_the_loop_is_left():
    gc.disable()
    try:
        for _ in range(5):
            for _ in data.DataLoader(np.arange(N), prefetch=2):
                break
            iter(data.DataLoader(np.arange(N), prefetch=2))
        wait_until_no_thread_is_left()
    finally:
        gc.enable()


def test_the_thread_ends_when_the_loop_raises():
    loader = data.DataLoader(np.arange(N), prefetch=2)
    with pytest.raises(ZeroDivisionError):
        [1 / 0 for _ in loader]
    wait_until_no_thread_is_left()


@pytest.mark.parametrize("prefetch", [0, 2])
def test_an_error_in_the_dataset_arrives_with_its_traceback_and_its_place(prefetch):
    loader = data.DataLoader(Breaks(), batch_size=2, prefetch=prefetch)
    batches = iter(loader)
    assert [next(batches)[0].tolist() for _ in range(2)] == [[0, 1], [2, 3]]
    with pytest.raises(KeyError, match="sample five is missing") as caught:
        next(batches)
    assert "raise KeyError" in traceback.extract_tb(caught.value.__traceback__)[-1].line
    assert list(batches) == []
    assert loader.epoch == 0
    assert loader.state_dict()["position"] == 4


def test_a_stop_iteration_in_the_dataset_does_not_end_the_epoch_silently():
    class Stops(Numbers):
        def __getitem__(self, i):
            raise StopIteration

    for prefetch in (0, 2):
        with pytest.raises(RuntimeError, match="generator raised StopIteration"):
            list(data.DataLoader(Stops(), prefetch=prefetch))


def test_an_iterator_still_held_does_not_keep_the_process_alive():
    code = """
        import numpy as np
        from numtape import data
        batches = iter(data.DataLoader(np.arange(9), prefetch=2))
        next(batches)
        print("end")
    """
    result = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=60, check=True
    )
    assert (result.stdout, result.stderr) == ("end\n", "")


@pytest.mark.parametrize("started", [True, False], ids=["before", "after"])
def test_a_fork_makes_its_batches_without_a_thread(started):
    if not hasattr(os, "fork"):
        return
    code = f"""
        import os, threading, warnings
        import numpy as np
        from numtape import data
        warnings.simplefilter("ignore", DeprecationWarning)  # of forks of processes with threads
        loader = data.DataLoader(np.arange(8), batch_size=2, prefetch=2)
        batches = iter(loader)
        first = next(batches).tolist()
        child = os.fork()
        if child == 0:
            batches = batches if {started} else iter(loader)
            print(first, [batch.tolist() for batch in batches], threading.active_count(), flush=True)
            os._exit(0)
        os.waitpid(child, 0)
        print(first, [batch.tolist() for batch in batches])
    """
    result = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=60, check=True
    )
    rest = [[2, 3], [4, 5], [6, 7]]
    in_child = rest if started else [[0, 1], *rest]
    assert result.stdout.splitlines() == [f"[0, 1] {in_child} 1", f"[0, 1] {rest}"]


# Bad input.

GOOD = {"epoch": 0, "position": 0, "length": N, "shuffle": False, "key": 1}
BAD = [
    (lambda: data.DataLoader([]), ArgumentError, "DataLoader: the dataset is empty; there is nothing to iterate over."),
    (
        lambda: data.DataLoader(np.ones((0, 3))),
        ArgumentError,
        "DataLoader: the dataset is empty; there is nothing to iterate over.",
    ),
    (
        lambda: data.DataLoader(np.ones(3), batch_size=0),
        ArgumentError,
        "DataLoader: batch_size is 0; it must be an integer of at least 1.",
    ),
    (
        lambda: data.DataLoader(np.ones(3), batch_size=2.0),
        ArgumentError,
        "DataLoader: batch_size is 2.0; it must be an integer of at least 1.",
    ),
    (
        lambda: data.DataLoader(np.ones(3), prefetch=-1),
        ArgumentError,
        "DataLoader: prefetch is -1; it must be an integer of at least 0.",
    ),
    (
        lambda: data.DataLoader(np.ones(3), num_workers=True),
        ArgumentError,
        "DataLoader: num_workers is True; it must be an integer of at least 0.",
    ),
    (
        lambda: data.DataLoader(np.ones(3), batch_size=4, drop_last=True),
        ArgumentError,
        "DataLoader: the dataset has 3 samples and batch_size is 4, so drop_last leaves no batch; make batch_size "
        "smaller, or keep the last batch.",
    ),
    (
        lambda: data.DataLoader(np.ones(3), collate=3),
        OperandError,
        "DataLoader: collate is 3; it must be a function of a list of samples.",
    ),
    (
        lambda: data.DataLoader(np.ones(3), rng="seed"),
        OperandError,
        "rng must be an nt.Generator, an integer seed or None, not str.",
    ),
    (
        lambda: data.DataLoader(np.ones(3), dtype="int32"),
        DtypeError,
        "DataLoader: dtype is int32; it is the dtype of float data (integers keep theirs), so it must be a float "
        "dtype.",
    ),
    (
        lambda: data.DataLoader({"x": np.ones(3), "y": np.float64(1.0)}),
        ValueError,
        "DataLoader: 'y' is a single number, of shape (); it must have rows along its first axis.",
    ),
    (
        lambda: data.DataLoader((np.ones(3), np.ones(4))),
        ValueError,
        "DataLoader: the arrays have 3, 4 rows; all must have as many as there are samples.",
    ),
    (
        lambda: data.DataLoader(Numbers()).load_state_dict(GOOD | {"length": 90}),
        ArgumentError,
        "DataLoader.load_state_dict: the state is of a dataset of 90 samples and this one has 23; load it with the "
        "dataset that it was saved with.",
    ),
    (
        lambda: data.DataLoader(Numbers()).load_state_dict(GOOD | {"shuffle": True}),
        ArgumentError,
        "DataLoader.load_state_dict: the state was saved with shuffle=True and this loader has shuffle=False; the rest "
        "of the epoch would not be the rest.",
    ),
    (
        lambda: data.DataLoader(Numbers()).load_state_dict({"epoch": 1}),
        ArgumentError,
        "DataLoader.load_state_dict: wants a dict with ['epoch', 'key', 'length', 'position', 'shuffle'], as "
        "state_dict() gives, not ['epoch'].",
    ),
    (
        lambda: data.DataLoader(Numbers()).load_state_dict(3),
        ArgumentError,
        "DataLoader.load_state_dict: wants a dict with ['epoch', 'key', 'length', 'position', 'shuffle'], as "
        "state_dict() gives, not int.",
    ),
    (
        lambda: data.DataLoader(Numbers()).load_state_dict(GOOD | {"position": -1}),
        ArgumentError,
        "DataLoader.load_state_dict: 'position' is -1; it must be an integer from 0 on.",
    ),
    (
        lambda: data.DataLoader(Numbers()).load_state_dict(GOOD | {"position": 24}),
        ArgumentError,
        "DataLoader.load_state_dict: position 24 lies beyond the 23 samples.",
    ),
]


@pytest.mark.parametrize(("call", "error", "message"), BAD)
def test_bad_input_is_named(call, error, message):
    with pytest.raises(error) as caught:
        call()
    assert str(caught.value) == message


def test_columns_given_as_a_list_are_told_apart():
    with pytest.raises(ValueError, match=r"Columns are given as a tuple, \(x, y\), not as a list\.$"):
        list(data.DataLoader([np.ones((4, 2)), np.ones(4)], batch_size=2))


@pytest.mark.parametrize("name", ["shuffle", "drop_last"])
def test_a_flag_is_no_text(name):
    with pytest.raises(ArgumentError) as caught:
        data.DataLoader(np.arange(3), **{name: "no"})
    assert str(caught.value) == f"DataLoader: {name} is 'no'; it must be True or False."
    assert getattr(data.DataLoader(np.arange(3), **{name: np.True_}), name) is True
