"""Who runs products and convolutions: chosen for the process, or for a scope."""

import subprocess
import sys
import threading

import numpy as np
import pytest

import numtape as nt
from numtape.cli import info
from numtape.errors import ArgumentError, MissingExtraError
from numtape.kernels import amx, blas, onednn_library, pool, provided_convolution, providers


@pytest.fixture(autouse=True)
def the_choice_is_put_back():
    yield
    nt.kernels.provider("auto")


@pytest.fixture
def without_tiles(monkeypatch):
    """Let matrix instructions be missing."""
    monkeypatch.setattr(amx, "why_missing", lambda: "AMX: not an instruction of this CPU")


@pytest.fixture
def without_onednn(monkeypatch, without_tiles):
    """Let the package be missing, and whatever else is not NumPy."""
    reason = 'onednn-cpu-gomp is missing: pip install "numtape[onednn]"'
    monkeypatch.setattr(onednn_library, "_load", lambda: reason)


def test_whoever_is_fastest_is_chosen_unless_told_otherwise():
    assert nt.kernels.provider() == "auto"
    assert nt.kernels.provider("numpy") == "numpy"
    assert nt.kernels.provider() == "numpy"


def test_an_unknown_provider_is_an_error_and_changes_nothing():
    with pytest.raises(ArgumentError) as caught:
        nt.kernels.provider("onedn")
    assert str(caught.value) == "provider: 'onedn' is not one; use 'auto', 'numpy', 'onednn' or 'amx'."
    assert nt.kernels.provider() == "auto"
    with pytest.raises(ArgumentError, match="'mkl' is not one"), providers.pinned("mkl"):
        pass


def test_a_missing_provider_is_an_error_and_changes_nothing(without_onednn):
    with pytest.raises(MissingExtraError) as caught:
        nt.kernels.provider("onednn")
    assert str(caught.value) == 'oneDNN: onednn-cpu-gomp is missing: pip install "numtape[onednn]".'
    assert nt.kernels.provider() == "auto"


def test_without_onednn_numpy_runs_everything(without_onednn):
    a = np.ones((128, 128), np.float32)
    assert (providers.matmul(a, a) == 128.0).all()
    assert info.gather()["providers"] == (
        'NumPy; oneDNN: onednn-cpu-gomp is missing: pip install "numtape[onednn]"; AMX: not an instruction of this CPU'
    )


def test_a_library_that_does_not_load_is_named_in_one_line(monkeypatch, without_tiles):
    def fail(path):
        raise OSError("libgomp.so.1: cannot open shared object file: No such file or directory")

    monkeypatch.setattr(onednn_library, "_paths", lambda: ["libdnnl.so.3"])
    monkeypatch.setattr(onednn_library.ctypes, "CDLL", fail)
    monkeypatch.setattr(onednn_library, "_load", onednn_library._load.__wrapped__)
    expected = (
        "NumPy; oneDNN: onednn-cpu-gomp is installed, but does not load: "
        "libgomp.so.1: cannot open shared object file: No such file or directory; AMX: not an instruction of this CPU"
    )
    assert info.gather()["providers"] == expected


def test_info_shows_the_choice():
    assert info.gather()["providers"].startswith("NumPy")
    nt.kernels.provider("numpy")
    assert info.gather()["providers"].endswith("(chosen: numpy)")


def test_a_pinned_provider_ends_with_its_scope():
    with providers.pinned("numpy"):
        assert providers.active() == "numpy"
        with providers.pinned("auto"):
            assert providers.active() == "auto"
        assert providers.active() == "numpy"
        assert nt.kernels.provider("auto") == "numpy"
    with pytest.raises(RuntimeError, match="midway"), providers.pinned("numpy"):
        raise RuntimeError("midway")
    assert providers.active() == "auto"


def test_a_pinned_provider_is_no_concern_of_other_threads():
    seen = []
    with providers.pinned("numpy"):
        thread = threading.Thread(target=lambda: seen.append(providers.active()))
        thread.start()
        thread.join()
    assert seen == ["auto"]


def test_small_programs_never_load_onednn():
    program = (
        "import sys, numpy as np, numtape as nt\n"
        "a = nt.tensor(np.ones((32, 32), np.float32), requires_grad=True)\n"
        "(a @ a).sum().backward()\n"
        "nt.conv2d(np.ones((1, 1, 8, 8), np.float32), np.ones((1, 1, 3, 3), np.float32))\n"
        "assert not [name for name in sys.modules if 'onednn' in name or 'llvmlite' in name]\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_a_product_of_halves_is_rounded_once():
    # Terms of 2**-9 are lost beside 1.0 in bfloat16, one by one; in float32 they are not.
    a = np.full((1, 513), 2.0**-9, nt.bfloat16)
    a[0, 0] = 1.0
    b = np.ones((513, 1), nt.bfloat16)
    for name in ("numpy", "auto"):
        with providers.pinned(name):
            assert providers.matmul(a, b).dtype == nt.bfloat16
            assert providers.matmul(a, b).item() == 2.0
            assert providers.matmul(a, b, dtype=nt.float32).dtype == nt.float32


def test_a_bias_is_added_before_rounding():
    a = np.full((1, 1), 1.0, nt.bfloat16)
    bias = np.full(1, 2.0**-8, nt.bfloat16)
    # 1 + 2**-8 lies between two bfloat16 and ties to even; with 2**-8 more it is exact.
    assert providers.matmul(a, a, bias).item() == 1.0
    assert providers.matmul(
        np.full((1, 2), 1.0, nt.bfloat16), np.array([[1.0], [2.0**-8]], nt.bfloat16), bias
    ).item() == (1.0 + 2.0**-7)


def test_half_convolutions_run_in_float32_and_are_rounded_once():
    rng = np.random.default_rng(0)
    how = ((1, 1), ((1, 1), (1, 1)), (1, 1), 1)
    x, weight = (rng.normal(size=shape).astype(np.float16) for shape in ((2, 3, 5, 5), (4, 3, 3, 3)))
    wide = provided_convolution.conv(x.astype(np.float32), weight.astype(np.float32), None, *how)
    with providers.pinned("numpy"):
        out = provided_convolution.conv(x, weight, None, *how)
        assert np.array_equal(out, wide.astype(np.float16))
        assert provided_convolution.conv_input(out, weight, (5, 5), *how).dtype == np.float16
        assert provided_convolution.conv_weight(x, out, (3, 3), *how).dtype == np.float16


@pytest.mark.parametrize("dtype", [nt.float32, nt.bfloat16], ids=str)
def test_a_number_as_an_operand_keeps_its_error(dtype):
    with pytest.raises(nt.errors.ShapeError) as caught:
        nt.matmul(np.ones((2, 3), dtype), np.array(2.0, dtype))
    assert str(caught.value) == "matmul: a has shape (2, 3) and b has shape (); numbers are multiplied with *."


FORKED = """
import multiprocessing
import numpy as np
import numtape as nt
from numtape.errors import MissingExtraError
from numtape.kernels import amx, blas, onednn_library, pool, provided_convolution, providers

x, weight = np.ones((4, 8, 32, 32), np.float32), np.ones((8, 8, 3, 3), np.float32)

def convolve(choice):
    try:
        nt.kernels.provider(choice)
        return provided_convolution.conv(x, weight, None, (1, 1), ((0, 0), (0, 0)), (1, 1), 1).max()
    except MissingExtraError as error:
        return error

is_there = onednn_library.why_missing() is None
assert convolve("onednn" if is_there else "auto") == 72.0
with multiprocessing.get_context("fork").Pool(1) as pool:
    for choice in (None, "onednn", "auto", "numpy"):
        print(pool.apply(convolve, (choice,)) if is_there or choice in ("auto", "numpy") else REASON)
    pool.apply(convolve, ("auto",))
    assert pool.apply(providers.taken) == "auto"
assert convolve(None) == 72.0
"""


def test_a_forked_process_uses_numpy_and_says_so_if_told_otherwise():
    reason = f"oneDNN: {onednn_library._FORKED}."
    script = FORKED.replace("REASON", repr(reason))
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=30)
    assert done.stderr == ""
    assert done.stdout.splitlines() == [reason, reason, "72.0", "72.0"]
    assert reason == (
        "oneDNN: this process was forked from one that had loaded it, and its threads stayed behind; use 'auto' or "
        "'numpy' here, or start processes by 'spawn'."
    )


def test_the_number_of_threads_is_set_for_products_and_kernels():
    before = nt.get_num_threads()
    try:
        nt.set_num_threads(1)
        assert nt.get_num_threads() == pool.threads() == blas.threads() == 1
    finally:
        nt.set_num_threads(before)
    for count in (0, 1.5, True, "2"):
        with pytest.raises(ArgumentError) as caught:
            nt.set_num_threads(count)
        assert str(caught.value) == (
            f"set_num_threads: the number of threads is {count!r}; it must be a positive integer."
        )


def test_threads_that_cannot_be_set_say_so(monkeypatch):
    monkeypatch.setattr(blas, "library", lambda: None)
    assert nt.get_num_threads() == 1
    with pytest.raises(ArgumentError, match="does not let its threads be set"):
        nt.set_num_threads(1)


HISTORY = """
import numpy as np
import numtape as nt
from numtape.kernels import onednn_library, provided_convolution, providers

rng = np.random.default_rng(0)
pairs = [
    [nt.tensor(rng.normal(size=shape).astype(dtype)) for shape in shapes]
    for shapes in (((256, 256), (256, 256)), ((64, 384), (384, 96)), ((8, 64, 96), (8, 96, 64)), ((16, 16), (16, 16)))
    for dtype in (np.float32, nt.bfloat16, nt.float16)
]

def products():
    return [(a @ b).numpy().tobytes() for a, b in pairs]

first = products()
is_there = onednn_library.why_missing() is None and onednn_library.library().has_vectors
assert not is_there or "onednn" in providers.taken()
nt.conv2d(nt.ones(16, 16, 14, 14), nt.ones(32, 16, 3, 3))
assert products() == first
with providers.pinned("onednn" if is_there else "auto"):
    products()
with nt.deterministic():
    products()
assert products() == first
"""


def test_the_bits_of_a_product_do_not_depend_on_what_ran_before():
    subprocess.run([sys.executable, "-c", HISTORY], check=True, timeout=60)


@pytest.mark.parametrize("k", [0, 1, 3, 16])
@pytest.mark.parametrize("order", "CF")
@pytest.mark.parametrize("dtypes", [(np.float64, np.float64), (np.float64, np.float32), (np.int64, np.int32)])
def test_products_with_short_sums_are_the_same_in_pieces(k, order, dtypes):
    rng = np.random.default_rng(k)
    for m, n in [(1000, 1100), (7, 3), (100_001, 2), (2, 100_001), (0, 5), (5, 0)]:
        a, b = (
            np.asarray(rng.integers(-9, 9, shape), dtype, order=order)
            for shape, dtype in zip([(m, k), (k, n)], dtypes, strict=True)
        )
        found = providers.matmul(a, b)
        assert found.dtype == np.result_type(*dtypes)
        np.testing.assert_array_equal(found, np.matmul(a, b))


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int64, bool])
@pytest.mark.parametrize("terms", [0, 1, 2, 8, 9])
@pytest.mark.parametrize(("rows", "columns"), [(1000, 500), (9, 40_000), (40_000, 9), (3, 2)])
def test_products_with_few_terms_are_right_in_all_pieces(rows, columns, terms, dtype):
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-3, 4, shape).astype(dtype) for shape in ((rows, terms), (terms, columns)))
    for x in (a, np.asfortranarray(a), np.repeat(a, 2, 0)[::2]):
        found = providers.matmul(x, b)
        assert found.dtype == (a @ b).dtype
        np.testing.assert_array_equal(found, a @ b)


def test_products_with_few_terms_stay_with_numpy(monkeypatch):
    monkeypatch.setattr(providers, "by_onednn", lambda *args: pytest.fail("asked"))
    a, b = np.ones((2000, 4), np.float32), np.ones((4, 1000), np.float32)
    assert (providers.matmul(a, b) == 4.0).all()
