"""What goes into a file comes out of it: every kind of leaf and container, and clear errors for everything else."""

import collections
import dataclasses
import math
import threading
from pathlib import Path

import numpy as np
import pytest

import numtape as nt
from numtape.errors import ArgumentError, DtypeError, OperandError
from numtape.serialization import load, save

DTYPES = [nt.float16, nt.bfloat16, nt.float32, nt.float64, np.dtype(bool)]
DTYPES += [np.dtype(f"{kind}{size}") for kind in "iu" for size in (1, 2, 4, 8)]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "state.safetensors"


def round_trip(path, tree):
    save(path, tree)
    return load(path)


def same_bits(a, b):
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 0, 3), (2, 3, 4)], ids=str)
def test_arrays_and_tensors_of_every_dtype_come_back_bit_for_bit(path, dtype, shape):
    numbers = np.random.default_rng(0).integers(0, 2 if dtype.kind == "b" else 100, shape)
    array = np.asarray(numbers).astype(dtype)
    back = round_trip(path, {"array": array, "tensor": nt.tensor(array)})
    assert type(back["array"]) is np.ndarray
    assert type(back["tensor"]) is nt.Tensor
    assert same_bits(back["array"], array)
    assert same_bits(back["tensor"].array, array)


def test_numbers_that_are_hard_to_keep_come_back_bit_for_bit(path):
    payload = np.array([0x7FF8000000000123, 0xFFF0000000000000, 0x8000000000000000, 1], np.uint64).view(np.float64)
    assert same_bits(round_trip(path, payload), payload)


@pytest.mark.parametrize(
    "leaf",
    [None, True, False, 0, 1, -7, 2**127 + 1, 0.1, 1.0, 1e308, 5e-324, math.inf, -math.inf, "", "text", "é\n\0\ud800"],
    ids=repr,
)
def test_plain_leaves_come_back_with_their_type(path, leaf):
    back = round_trip(path, leaf) if not isinstance(leaf, str) else round_trip(path, [leaf])[0]
    assert type(back) is type(leaf)
    assert back == leaf


def test_nan_and_negative_zero_come_back(path):
    nan, zero = round_trip(path, [math.nan, -0.0])
    assert math.isnan(nan)
    assert math.copysign(1.0, zero) == -1.0


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_numpy_scalars_come_back_with_their_dtype(path, dtype):
    scalar = dtype.type(1)
    back = round_trip(path, {"scalar": scalar})["scalar"]
    assert type(back) is type(scalar)
    assert back == scalar


def test_a_scalar_nan_comes_back(path):
    back = round_trip(path, [np.float32("nan")])[0]
    assert type(back) is np.float32
    assert np.isnan(back)


def test_containers_come_back_in_order_and_with_their_type(path):
    tree = {"b": [1, (2, 3.5, ()), []], "a": {}, 7: {"x": None, -1: "y"}, "dict": [["tuple"]], "tensor": "array"}
    back = round_trip(path, tree)
    assert back == tree
    assert list(back) == list(tree)
    assert type(back["b"][1]) is tuple


def test_named_tuples_and_kinds_of_dicts_come_back_plain(path):
    point = collections.namedtuple("point", "x y")(1, 2)
    back = round_trip(path, {"point": point, "ordered": collections.OrderedDict(a=1)})
    assert type(back["point"]) is tuple
    assert back["point"] == (1, 2)
    assert type(back["ordered"]) is dict


def test_name_and_requires_grad_of_tensors_come_back(path):
    tree = {"w": nt.tensor([1.0], requires_grad=True, name="weight"), "b": nt.tensor([2.0])}
    back = round_trip(path, tree)
    assert (back["w"].name, back["w"].requires_grad) == ("weight", True)
    assert (back["b"].name, back["b"].requires_grad) == (None, False)
    (back["w"] * 3.0).sum().backward()
    assert back["w"].grad.tolist() == [3.0]


def test_tracked_results_are_saved_without_their_graph(path):
    w = nt.tensor([2.0], requires_grad=True)
    assert round_trip(path, [w * w])[0].tolist() == [4.0]


def test_loaded_arrays_have_writable_memory_of_their_own(path):
    shared = np.arange(6.0)
    back = round_trip(path, [shared, shared, nt.tensor(shared)])
    back[0] += 1.0
    assert back[0].flags.owndata
    assert back[1].tolist() == back[2].tolist() == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]


@pytest.mark.parametrize(
    "layout",
    [
        lambda a: a.T,
        lambda a: a[:, ::-1],
        lambda a: a[::2, 1:],
        np.asfortranarray,
        lambda a: a.astype(">f8"),
        lambda a: np.broadcast_to(a[:1], (3, 5)),
    ],
    ids=["transposed", "reversed", "stepped", "fortran", "other byte order", "stride 0"],
)
def test_values_do_not_depend_on_the_layout_in_memory(path, layout):
    array = layout(np.arange(20.0).reshape(4, 5))
    back = round_trip(path, {"a": array})["a"]
    assert back.dtype == nt.float64
    assert back.tolist() == array.tolist()
    assert back.flags.c_contiguous


class Counter:
    def __init__(self, array):
        self.array = array

    def state_dict(self):
        return {"array": self.array, "steps": 3}


def test_of_objects_the_state_dict_is_saved(path):
    rng = nt.Generator(5)
    nt.rand(3, rng=rng)
    back = round_trip(path, {"counter": Counter(np.ones(2)), "rng": rng})
    assert back["counter"]["array"].tolist() == [1.0, 1.0]
    assert back["counter"]["steps"] == 3
    assert nt.rand(4, rng=nt.Generator().load_state_dict(back["rng"])).tolist() == nt.rand(4, rng=rng).tolist()


def test_keys_that_make_one_path_do_not_meet(path):
    tree = {"a.b": np.zeros(1), "a": {"b": np.ones(1), "b#2": np.full(1, 2.0)}, "__metadata__": np.full(1, 3.0)}
    back = round_trip(path, tree)
    assert [back["a.b"][0], back["a"]["b"][0], back["a"]["b#2"][0], back["__metadata__"][0]] == [0, 1, 2, 3]


def test_arguments_come_in_either_order(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    save("one", [1])
    save([2], "two")
    save(Path("three"), "text")
    save([4], Path("four"))
    save("five", "text")
    assert [load(name) for name in ("one", "two", "three", "four", "five")] == [[1], [2], "text", [4], "text"]


def test_without_a_path_the_error_says_how_to_call():
    with pytest.raises(OperandError) as error:
        save({"a": 1}, [2])
    assert str(error.value) == (
        "save: got a dict and a list, and neither is a path; write nt.save('state.safetensors', tree)."
    )


@dataclasses.dataclass
class Config:
    rate: float = 0.1


GENERAL = "save tensors, arrays, numbers, strings, None, lists, tuples, dicts, or objects that have state_dict()."


@pytest.mark.parametrize(
    ("part", "error", "message"),
    [
        (Config(), OperandError, "is of type Config, which cannot be saved; save dataclasses.asdict() of it, and make "
                                 "it again after loading."),
        (nt.CheckpointStrategy.FULL, OperandError,
         "is of type CheckpointStrategy, which cannot be saved; save its value."),
        (b"ab", OperandError, "is of type bytes, which cannot be saved; save np.frombuffer(data, np.uint8)."),
        ({3, 1}, OperandError, "is of type set, which cannot be saved; save sorted() of it."),
        (1j, OperandError, f"is of type complex, which cannot be saved; {GENERAL}"),
        (len, OperandError, f"is of type builtin_function_or_method, which cannot be saved; {GENERAL}"),
        (Counter, OperandError, f"is of type type, which cannot be saved; {GENERAL}"),
        (np.ma.masked_array([1.0], [True]), OperandError,
         "is of type MaskedArray, which cannot be saved; save what it is made of, as plain arrays."),
        (np.array([None]), DtypeError,
         "has dtype object, which cannot be saved; dtypes are bool, integers, float16, bfloat16, float32 and float64."),
        (np.complex64(1), DtypeError, "has dtype complex64, which cannot be saved; dtypes are bool, integers, float16, "
                                      "bfloat16, float32 and float64."),
        ({(1, 2): 0}, OperandError, "has the key (1, 2) of type tuple; keys are strings or integers."),
        ({True: 0}, OperandError, "has the key True of type bool; keys are strings or integers."),
        (1 << 5000, ArgumentError, "is an integer of 5001 bits; 4096 can be saved."),
    ],
)  # fmt: skip
def test_what_cannot_be_saved_is_named_by_its_place(path, part, error, message):
    save(path, "old")
    with pytest.raises(error) as raised:
        save(path, {"model": [0, part]})
    assert str(raised.value) == f"save: tree['model'][1] {message}"
    assert load(path) == "old"


def test_a_tree_that_contains_itself_is_an_error(path):
    tree = {}
    tree["a"] = tree
    with pytest.raises(ArgumentError) as error:
        save(path, tree)
    assert str(error.value) == (
        "save: the tree is nested more than 64 deep at tree['a']['a']['a']...; does it contain itself?"
    )
    assert not path.exists()


def test_trees_may_be_nested_deeply(path):
    tree = 1
    for _ in range(63):
        tree = {"a": tree}
    assert round_trip(path, tree) == tree


def test_a_tree_too_large_for_a_header_is_an_error(path, monkeypatch):
    monkeypatch.setattr("numtape.serialization.writing.MAX_HEADER_BYTES", 300)
    monkeypatch.setattr("numtape.serialization.writing.machine", dict)
    with pytest.raises(ArgumentError) as error:
        save(path, [0] * 300)
    assert str(error.value) == (
        "save: the tree without its arrays takes 696 bytes, and 300 are possible; keep long lists of numbers as arrays."
    )


def test_threads_that_save_to_one_path_leave_one_complete_file(path):
    def work(number):
        for _ in range(10):
            save(path, {"a": np.full(1000, number), "b": np.full(1000, number)})
            back = load(path)
            assert back["a"].tolist() == back["b"].tolist()

    failures = []

    def guarded(number):
        try:
            work(number)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=guarded, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert list(path.parent.iterdir()) == [path]
