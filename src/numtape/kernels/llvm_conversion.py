"""Conversions between float32 and halves, compiled by LLVM for the CPU at hand (the extra ``compile``)."""

import functools
from collections.abc import Callable

from .._typing import Dtype
from ..dtypes import bfloat16, float16, float32
from . import llvm

Kernel = Callable[[int, int, int], None]

_TYPES: dict[Dtype, str] = {float16: "half", bfloat16: "bfloat", float32: "float"}
#: What takes %x to %y, with NumPy's bits also for NaN, for which the CPU has others: NumPy shifts those of float16, and
#: ml_dtypes has one NaN of each sign for bfloat16.
_INSTRUCTIONS: dict[tuple[Dtype, Dtype], str] = {}
_INSTRUCTIONS[float32, float16] = """
  %bits = bitcast float %x to i32
  %high = lshr i32 %bits, 16
  %sign = and i32 %high, 32768
  %shifted = lshr i32 %bits, 13
  %payload = and i32 %shifted, 1023
  %none = icmp eq i32 %payload, 0
  %kept = select i1 %none, i32 1, i32 %payload
  %signed = or i32 %sign, 31744
  %patched = or i32 %signed, %kept
  %nan_bits = trunc i32 %patched to i16
  %number = fptrunc float %x to half
  %number_bits = bitcast half %number to i16
  %nan = fcmp uno float %x, %x
  %chosen = select i1 %nan, i16 %nan_bits, i16 %number_bits
  %y = bitcast i16 %chosen to half
"""
_INSTRUCTIONS[float16, float32] = """
  %bits = bitcast half %x to i16
  %wide = zext i16 %bits to i32
  %sign = and i32 %wide, 32768
  %high = shl i32 %sign, 16
  %payload = and i32 %wide, 1023
  %shifted = shl i32 %payload, 13
  %signed = or i32 %high, 2139095040
  %nan_bits = or i32 %signed, %shifted
  %number = fpext half %x to float
  %number_bits = bitcast float %number to i32
  %size = and i32 %wide, 32767
  %nan = icmp ugt i32 %size, 31744
  %chosen = select i1 %nan, i32 %nan_bits, i32 %number_bits
  %y = bitcast i32 %chosen to float
"""
#: In integers, since the CPU's own instruction takes numbers below 2**-126 for zero: add a bit less than half a unit,
#: or half if that makes the result even, and cut.
_INSTRUCTIONS[float32, bfloat16] = """
  %bits = bitcast float %x to i32
  %shifted = lshr i32 %bits, 16
  %odd = and i32 %shifted, 1
  %bias = add i32 %odd, 32767
  %sum = add i32 %bits, %bias
  %rounded = lshr i32 %sum, 16
  %sign = and i32 %shifted, 32768
  %nan_bits = or i32 %sign, 32704
  %nan = fcmp uno float %x, %x
  %chosen = select i1 %nan, i32 %nan_bits, i32 %rounded
  %narrow = trunc i32 %chosen to i16
  %y = bitcast i16 %narrow to bfloat
"""
_INSTRUCTIONS[bfloat16, float32] = """
  %bits = bitcast bfloat %x to i16
  %wide = zext i16 %bits to i32
  %shifted = shl i32 %wide, 16
  %y = bitcast i32 %shifted to float
"""
#: One element at a time; LLVM makes vectors of it. Takes two addresses and a count above 0.
_LOOP = """
define void @convert(ptr noalias %source, ptr noalias %target, i64 %count) {{
entry:
  br label %body
body:
  %i = phi i64 [ 0, %entry ], [ %next, %body ]
  %from = getelementptr {source}, ptr %source, i64 %i
  %to = getelementptr {target}, ptr %target, i64 %i
  %x = load {source}, ptr %from
{instructions}
  store {target} %y, ptr %to
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %count
  br i1 %more, label %body, label %done
done:
  ret void
}}
"""


#: Two bfloat16 numbers whose sum is a float32 number to 17 bits: the nearest, and what it lacks. Both are cut, not
#: rounded, where the nearest would be infinite.
_SPLIT = """
define void @split(ptr noalias %source, ptr noalias %upper, ptr noalias %lower, i64 %count) {
entry:
  br label %body
body:
  %i = phi i64 [ 0, %entry ], [ %next, %body ]
  %from = getelementptr float, ptr %source, i64 %i
  %to_upper = getelementptr i16, ptr %upper, i64 %i
  %to_lower = getelementptr i16, ptr %lower, i64 %i
  %x = load float, ptr %from
  %bits = bitcast float %x to i32
  %cut = and i32 %bits, -65536
  %bits_shifted = lshr i32 %bits, 16
  %bits_odd = and i32 %bits_shifted, 1
  %half = add i32 %bits_odd, 32767
  %more_bits = add i32 %bits, %half
  %nearest = and i32 %more_bits, -65536
  %nearest_exponent = and i32 %nearest, 2139095040
  %too_large = icmp eq i32 %nearest_exponent, 2139095040
  %near_bits = select i1 %too_large, i32 %cut, i32 %nearest
  %nan = fcmp uno float %x, %x
  %quiet = or i32 %cut, 4194304
  %upper_bits = select i1 %nan, i32 %quiet, i32 %near_bits
  %upper_shifted = lshr i32 %upper_bits, 16
  %upper_narrow = trunc i32 %upper_shifted to i16
  store i16 %upper_narrow, ptr %to_upper
  %near = bitcast i32 %near_bits to float
  %rest = fsub float %x, %near
  %rest_bits = bitcast float %rest to i32
  %rest_shifted = lshr i32 %rest_bits, 16
  %odd = and i32 %rest_shifted, 1
  %bias = add i32 %odd, 32767
  %sum = add i32 %rest_bits, %bias
  %rest_rounded = lshr i32 %sum, 16
  %rounded = select i1 %too_large, i32 %rest_shifted, i32 %rest_rounded
  %exponent = and i32 %bits, 2139095040
  %finite = icmp ne i32 %exponent, 2139095040
  %chosen = select i1 %finite, i32 %rounded, i32 0
  %narrow = trunc i32 %chosen to i16
  store i16 %narrow, ptr %to_lower
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %count
  br i1 %more, label %body, label %done
done:
  ret void
}
"""


@functools.cache
def splitter() -> Callable[[int, int, int, int], None] | None:
    """Return a function of three addresses and a count that splits contiguous float32 elements, or None."""
    return llvm.compiled(_SPLIT, "split", arguments=4) if llvm.is_there() else None


@functools.cache
def kernel(source: Dtype, target: Dtype) -> Kernel | None:
    """Return a function of two addresses and a count that converts contiguous elements, or None without llvmlite.

    Compiling takes about 10 ms, and importing llvmlite 70 ms.
    """
    if not llvm.is_there():
        return None
    text = _LOOP.format(source=_TYPES[source], target=_TYPES[target], instructions=_INSTRUCTIONS[source, target])
    return llvm.compiled(text, "convert", arguments=3)
