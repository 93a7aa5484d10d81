"""Conversions between float32 and halves: the same bits whoever converts."""

import numpy as np
import pytest

import numtape as nt
from numtape.kernels import halves, llvm_conversion

EVERY = np.arange(1 << 16, dtype=np.uint16)
HALVES = [nt.float16, nt.bfloat16]


@pytest.fixture
def compiled(monkeypatch):
    """Do not wait until compiling pays; without llvmlite, NumPy is put to the same tests."""
    monkeypatch.setattr(halves, "_converted", halves._PATIENCE)


def bits(array):
    return array.view(np.uint16 if array.dtype.itemsize == 2 else np.uint32)


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_every_half_value_becomes_the_float32_that_it_stands_for(dtype, compiled):
    every = EVERY.view(dtype)
    ours, numpys = halves.to_float32(every), every.astype(np.float32)
    assert ours.dtype == nt.float32
    is_number = ~np.isnan(numpys)
    assert np.array_equal(bits(ours)[is_number], bits(numpys)[is_number])
    assert np.isnan(ours[~is_number]).all()


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_every_half_value_comes_back_from_float32(dtype, compiled):
    every = EVERY.view(dtype)
    back = halves.to_half(halves.to_float32(every), dtype)
    is_number = ~np.isnan(every.astype(np.float32))
    assert np.array_equal(bits(back)[is_number], bits(every)[is_number])


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_rounding_is_to_nearest_and_ties_go_to_even(dtype, compiled):
    # All patterns of the upper bits of float32, with lower bits around a tie of either half type.
    upper = np.arange(1 << 16, dtype=np.uint32) << 16
    for lower in (0x0000, 0x0001, 0x0FFF, 0x1000, 0x1001, 0x7FFF, 0x8000, 0x8001, 0xFFFF):
        x = (upper | np.uint32(lower)).view(np.float32)
        x = x[~np.isnan(x)]
        with np.errstate(over="ignore", invalid="ignore"):
            expected = x.astype(dtype)
        assert np.array_equal(bits(halves.to_half(x, dtype)), bits(expected)), hex(lower)


@pytest.mark.parametrize("size", [1, 100, 5000])
def test_beyond_the_range_is_inf_without_a_warning(size):
    x = np.full(size, 1e6, np.float32)
    assert (halves.to_half(x, nt.float16) == np.inf).all()
    assert (halves.to_half(-x, nt.float16) == -np.inf).all()


def test_nan_stays_nan(compiled):
    x = np.full(5000, np.nan, np.float32)
    for dtype in HALVES:
        assert np.isnan(halves.to_half(x, dtype).astype(np.float32)).all()


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_nan_has_the_same_bits_whether_or_not_its_kernel_is_compiled(dtype, compiled):
    patterns = np.arange(0x7F800001, 0x80000000, 997, dtype=np.uint32)
    wide = np.concatenate([patterns, patterns | np.uint32(0x80000000)]).view(np.float32)
    narrow = EVERY.view(dtype)
    with np.errstate(invalid="ignore"):
        assert np.array_equal(bits(halves.to_half(wide, dtype)), bits(wide.astype(dtype)))
        assert np.array_equal(bits(halves.to_float32(narrow)), bits(narrow.astype(np.float32)))


def test_any_layout_and_shape_is_converted(compiled):
    x = np.random.default_rng(0).normal(size=(80, 90)).astype(np.float32)
    for array in (x.T, x[::2, ::3], x[::-1], x[0, 0], x[:0]):
        array = np.asarray(array)
        ours = halves.to_half(array, nt.float16)
        assert ours.shape == array.shape
        assert np.array_equal(ours, array.astype(np.float16))


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_a_transposed_array_is_converted_by_the_same_kernel_and_keeps_its_layout(dtype, compiled, monkeypatch):
    array = np.random.default_rng(0).standard_normal((64, 128)).astype(np.float32).T
    calls = []
    kernel = llvm_conversion.kernel
    monkeypatch.setattr(llvm_conversion, "kernel", lambda *types: calls.append(types) or kernel(*types))
    half = halves.to_half(array, dtype)
    assert calls == [(nt.float32, dtype)]
    assert half.strides == array.astype(dtype).strides
    assert np.array_equal(bits(half), bits(array.astype(dtype)))
    back = halves.to_float32(half)
    assert back.strides == array.strides
    assert np.array_equal(back, half.astype(np.float32))


def test_float64_and_the_other_half_are_converted():
    assert halves.to_half(np.array([1.0, 2.5]), nt.float16).tolist() == [1.0, 2.5]
    assert halves.to_half(np.array([1.0, 2.5], nt.bfloat16), nt.float16).tolist() == [1.0, 2.5]


def test_what_has_the_dtype_is_returned_itself():
    x = np.ones(3, np.float32)
    assert halves.to_float32(x) is x
    half = halves.to_half(x, nt.bfloat16)
    assert halves.to_half(half, nt.bfloat16) is half


def test_a_dtype_that_is_no_half_is_an_error():
    with pytest.raises(nt.errors.DtypeError) as caught:
        halves.to_half(np.ones(3, np.float32), nt.float64)
    assert str(caught.value) == "to_half: float64 is not a half type; use float16 or bfloat16."


def test_nothing_is_compiled_before_it_pays(monkeypatch):
    asked = []
    monkeypatch.setattr(halves, "_converted", 0)
    monkeypatch.setattr(halves, "_PATIENCE", 3 * 8192)
    monkeypatch.setattr(llvm_conversion, "kernel", lambda source, target: asked.append((source, target)))
    x = np.ones(8192, np.float32)
    halves.to_half(x, nt.float16)
    halves.to_half(x, nt.float16)
    assert asked == []
    assert (halves.to_half(x, nt.float16) == 1.0).all()
    assert asked == [(nt.float32, nt.float16)]


def test_without_llvmlite_numpy_converts(monkeypatch, compiled):
    llvm_conversion.kernel.cache_clear()
    with monkeypatch.context() as patched:
        patched.setitem(__import__("sys").modules, "llvmlite.binding", None)
        assert not halves.compile_now()
        assert (halves.to_half(np.ones(5000, np.float32), nt.float16) == 1.0).all()
    llvm_conversion.kernel.cache_clear()
