"""What products of bfloat16 matrices compile to on CPUs with matrix instructions (AMX).

A tile is a register of 16 rows of 64 bytes. One instruction adds the product of two of them to a third: A holds 16 rows
by 32 terms, B the same for 16 columns, but as 16 pairs of terms by columns. So both operands are packed first, into
panels of 32 rows (of A) or columns (of B), here called lanes: ``packed[panel, step of 32 terms, half of the panel]``, a
tile each. What lies beyond the edges is packed as zeros, and never stored.
"""

import itertools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]

#: Lanes in a panel, and terms in a step.
WIDTH = 32
#: Bytes of a tile, and of one step of a panel.
TILE, STEP = 1024, 2048

#: How many addresses and how many integers the kernels take.
PACK_ARGUMENTS, PRODUCT_ARGUMENTS = (2, 5), (5, 11)

#: Packs A once, unless it is to be read as it lies, and then some columns of B at a time, and multiplies: all that a
#: thread does, so that it need not wait for Python's lock in between. The second parts of A and B may be null.
DRIVER = """
define void @drive(ptr %pack_a, ptr %pack_b, ptr %multiply, ptr %a, ptr %a_second, ptr %b, ptr %b_second, ptr %bias,
                   ptr %out, ptr %flag, ptr %left, ptr %right, i64 %a_stride, i64 %b_stride, i64 %b_lane, i64 %row,
                   i64 %step, i64 %tile, i64 %panel, i64 %a_part, i64 %b_part, i64 %part, i64 %stride, i64 %itemsize,
                   i64 %rows, i64 %columns, i64 %terms, i64 %row_panels, i64 %steps, i64 %width) {
entry:
  %is_read_as_it_lies = icmp eq ptr %left, %a
  br i1 %is_read_as_it_lies, label %body, label %packing
packing:
  call void %pack_a(ptr %a, ptr %left, i64 %a_stride, i64 %rows, i64 %terms, i64 %row_panels, i64 %steps)
  %a_is_single = icmp eq ptr %a_second, null
  br i1 %a_is_single, label %body, label %packing_second
packing_second:
  %left_second = getelementptr i8, ptr %left, i64 %a_part
  call void %pack_a(ptr %a_second, ptr %left_second, i64 %a_stride, i64 %rows, i64 %terms, i64 %row_panels, i64 %steps)
  br label %body
body:
  %first = phi i64 [ 0, %entry ], [ 0, %packing ], [ 0, %packing_second ], [ %next, %multiplying ]
  %rest = sub i64 %columns, %first
  %is_last = icmp sle i64 %rest, %width
  %count = select i1 %is_last, i64 %rest, i64 %width
  %padded = add i64 %count, 31
  %panels = ashr i64 %padded, 5
  %b_distance = mul i64 %first, %b_lane
  %b_here = getelementptr i8, ptr %b, i64 %b_distance
  call void %pack_b(ptr %b_here, ptr %right, i64 %b_stride, i64 %count, i64 %terms, i64 %panels, i64 %steps)
  %b_is_single = icmp eq ptr %b_second, null
  br i1 %b_is_single, label %multiplying, label %packing_more
packing_more:
  %b_second_here = getelementptr i8, ptr %b_second, i64 %b_distance
  %right_second = getelementptr i8, ptr %right, i64 %b_part
  call void %pack_b(ptr %b_second_here, ptr %right_second, i64 %b_stride, i64 %count, i64 %terms, i64 %panels,
                    i64 %steps)
  br label %multiplying
multiplying:
  %bias_here = getelementptr float, ptr %bias, i64 %first
  %out_distance = mul i64 %first, %itemsize
  %out_here = getelementptr i8, ptr %out, i64 %out_distance
  call void %multiply(ptr %left, ptr %right, ptr %bias_here, ptr %out_here, ptr %flag, i64 %row, i64 %step, i64 %tile,
                      i64 %panel, i64 %part, i64 %stride, i64 %rows, i64 %count, i64 %row_panels, i64 %panels,
                      i64 %steps)
  %next = add i64 %first, %count
  br i1 %is_last, label %done, label %body
done:
  ret void
}
"""
DRIVER_ARGUMENTS = 30

_I1, _I8, _I16, _I32, _I64, _F32 = *(ir.IntType(bits) for bits in (1, 8, 16, 32, 64)), ir.FloatType()
_WORDS, _ROW, _FLOATS = (ir.VectorType(kind, 16) for kind in (_I16, _I32, _F32))
_PAIRS = ir.VectorType(_I16, 32)
#: Palette 1, and eight tiles of 64 bytes and 16 rows, as the CPU wants to be told.
_CONFIGURATION = bytes([1, *[0] * 15, *[64, 0] * 8, *[0] * 16, *[16] * 8, *[0] * 8])
#: The numbers of the tiles: two by two sums, two of A and two of B.
_SUMS, _OF_A, _OF_B = ((0, 1), (2, 3)), (4, 5), (6, 7)


def pack(is_b: bool, terms_first: bool) -> str:
    """Return the code of ``pack(source, target, stride, lanes, terms, panels, steps)``, as text.

    Args:
        is_b: whether it packs the right operand.
        terms_first: whether the source is ``[term, lane]``, not ``[lane, term]``; the last axis is contiguous.
    """
    b, (source, target, stride, lanes, terms, panels, steps) = _begin("pack", PACK_ARGUMENTS)
    height, width = (terms, lanes) if terms_first else (lanes, terms)
    # Along the rows of the source, so that each is read once, from left to right.
    with b.loop(steps if terms_first else panels) as outer, b.loop(panels if terms_first else steps) as inner:
        panel, step = (inner, outer) if terms_first else (outer, inner)
        place = b.at(target, (b.add(b.mul(panel, steps), step), STEP))
        top, left = b.mul(outer, _I64(WIDTH)), b.mul(inner, _I64(WIDTH))
        with b.loop(_I64(2)) as half:
            y, x = (
                (top, b.add(left, b.mul(half, _I64(16)))) if terms_first else (b.add(top, b.mul(half, _I64(16))), left)
            )
            count, kind = (WIDTH, _WORDS) if terms_first else (16, _PAIRS)
            mask = b.below(x, width, kind)
            rows = []
            for i in range(count):
                row = b.add(y, _I64(i))
                some = b.either(b.icmp_signed("<", row, height), mask)
                rows.append(b.masked_load(b.at(source, (row, stride), (x, 2)), some, kind, 2))
            if terms_first:
                # The elements of each two rows in turn: pairs of terms.
                order = [j // 2 + 16 * (j % 2) for j in range(WIDTH)]
                rows = [b.shuffled(rows[i], rows[i + 1], order) for i in range(0, WIDTH, 2)]
            if is_b != terms_first:
                rows = b.transposed(rows)
            for i, value in enumerate(rows):
                b.store(value, b.at(place, (half, TILE), 64 * i), align=64)
    return b.finished()


def product(is_half: bool, parts: tuple[int, int]) -> str:
    """Return the code of a product of packed matrices, as text.

    It is ``product(a, b, bias, out, flag, row, step, tile, panel, part, stride, rows, columns, row_panels,
    column_panels, steps)``: `row`, `step`, `tile` and `panel` are the distances, in bytes, from one of A to the next,
    so that a matrix need not be packed if its rows are contiguous and it has no edges; `part` is that between two parts
    of A or B, and `stride` is that of `out`. The 16 bits at `flag` are no longer 0 if the result has a NaN.

    Args:
        is_half: whether the result is bfloat16, not float32.
        parts: of how many matrices A and B are the sums; one of them is 1.
    """
    b, arguments = _begin("product", PRODUCT_ARGUMENTS)
    a, packed, bias, out, flag, row, step, tile, panel, part, stride, rows, columns = arguments[:13]
    row_panels, column_panels, steps = arguments[13:]
    b.call_llvm("x86.ldtilecfg", b.constant_bytes(_CONFIGURATION))
    sums, nans = b.alloca(ir.ArrayType(_FLOATS, 64)), b.alloca(_I16)
    b.store(_I16(0), nans)
    with b.loop(row_panels) as m, b.loop(column_panels) as n:
        for i, j in _TWO_BY_TWO:
            b.call_llvm("x86.tilezero", _I8(_SUMS[i][j]))
        with b.loop(steps) as k:
            for a_part, b_part in itertools.product(range(parts[0]), range(parts[1])):
                if a_part == 0:
                    for j in (0, 1):
                        place = b.at(packed, (b.add(b.mul(n, steps), k), STEP), (_I64(b_part), part), TILE * j)
                        b.call_llvm("x86.tileloadd64", _I8(_OF_B[j]), place, _I64(64))
                for i in (0, 1):
                    if b_part == 0:
                        place = b.at(a, (m, panel), (k, step), (_I64(a_part), part), (_I64(i), tile))
                        b.call_llvm("x86.tileloadd64", _I8(_OF_A[i]), place, row)
                    for j in (0, 1):
                        b.call_llvm("x86.tdpbf16ps", _I8(_SUMS[i][j]), _I8(_OF_A[i]), _I8(_OF_B[j]))
        for i, j in _TWO_BY_TWO:
            b.call_llvm("x86.tilestored64", _I8(_SUMS[i][j]), b.at(sums, STEP * i + 64 * j), _I64(128))
        top, left = b.mul(m, _I64(WIDTH)), b.mul(n, _I64(WIDTH))
        below = b.sub(rows, top)
        halves = []
        for j in (0, 1):
            x = b.add(left, _I64(16 * j))
            mask = b.below(x, columns, _FLOATS)
            halves.append((j, x, mask, b.masked_load(b.at(bias, (x, 4)), mask, _FLOATS, 4)))
        with b.loop(b.select(b.icmp_signed("<", below, _I64(WIDTH)), below, _I64(WIDTH))) as y:
            for j, x, mask, shift in halves:
                value = b.fadd(b.load(b.at(sums, (y, 128), 64 * j), typ=_FLOATS, align=64), shift)
                is_nan = b.bitcast(b.and_(b.fcmp_unordered("uno", value, value), mask), _I16)
                b.store(b.or_(b.load(nans), is_nan), nans)
                place = b.at(out, (b.add(top, y), stride), (x, 2 if is_half else 4))
                if is_half:
                    b.masked_store(b.rounded(value), place, mask, 2)
                else:
                    b.masked_store(value, place, mask, 4)
    b.store(b.or_(b.load(flag, typ=_I16), b.load(nans)), flag)
    b.call_llvm("x86.tilerelease")
    return b.finished()


_TWO_BY_TWO = ((0, 0), (0, 1), (1, 0), (1, 1))


def _begin(name: str, arguments: tuple[int, int]) -> tuple["_Builder", Sequence[Any]]:
    """Return the builder of a function, and the function's arguments: addresses and integers."""
    module = ir.Module()
    addresses, integers = arguments
    signature = ir.FunctionType(ir.VoidType(), [ir.PointerType()] * addresses + [_I64] * integers)
    function = ir.Function(module, signature, name)
    return _Builder(function.append_basic_block()), function.args


class _Builder(ir.IRBuilder):  # type: ignore[misc]
    """Writes a function: its loops, addresses in bytes and vectors of 16 elements."""

    def finished(self) -> str:
        """End the function; return it as text."""
        self.ret_void()
        # LLVM prefers narrower vectors on these CPUs, and would cut ours.
        return str(self.module).replace(")\n{", ') "min-legal-vector-width"="512" "prefer-vector-width"="512"\n{')

    @contextmanager
    def loop(self, count: Any) -> Iterator[Any]:
        """Write a loop over 0, 1, ... below `count`, which is at least 1."""
        before, body, after = self.block, self.append_basic_block(), self.append_basic_block()
        self.branch(body)
        self.position_at_end(body)
        index = self.phi(_I64)
        yield index
        following = self.add(index, _I64(1))
        index.add_incoming(_I64(0), before)
        index.add_incoming(following, self.block)
        self.cbranch(self.icmp_signed("<", following, count), body, after)
        self.position_at_end(after)

    def at(self, base: Any, *distances: tuple[Any, Any] | int) -> Any:
        """Return an address so many bytes behind another; a pair stands for its product."""
        for distance in distances:
            if isinstance(distance, tuple):
                count, size = distance
                distance = self.mul(count, _I64(size) if isinstance(size, int) else size)
            else:
                distance = _I64(distance)
            base = self.gep(base, [distance], source_etype=_I8)
        return base

    def call_llvm(self, name: str, *arguments: Any, returns: Any = None) -> Any:
        """Call a function that LLVM knows."""
        full = f"llvm.{name}"
        function = self.module.globals.get(full)
        if function is None:
            kind = ir.FunctionType(returns or ir.VoidType(), [argument.type for argument in arguments])
            function = ir.Function(self.module, kind, full)
        return self.call(function, arguments)

    def constant_bytes(self, content: bytes) -> Any:
        """Return the address of some bytes."""
        held = ir.GlobalVariable(self.module, ir.ArrayType(_I8, len(content)), "bytes")
        held.initializer, held.global_constant = ir.Constant(held.value_type, bytearray(content)), True
        return held

    def below(self, first: Any, size: Any, kind: Any) -> Any:
        """Return which of a vector's indices, counted from `first` on, are less than `size`."""
        mask = ir.VectorType(_I1, kind.count)
        return self.call_llvm(f"get.active.lane.mask.v{kind.count}i1.i64", first, size, returns=mask)

    def either(self, condition: Any, mask: Any) -> Any:
        """Return the mask if the condition holds, or else an empty one."""
        bits = ir.IntType(mask.type.count)
        return self.bitcast(self.select(condition, self.bitcast(mask, bits), bits(0)), mask.type)

    def masked_load(self, place: Any, mask: Any, kind: Any, align: int) -> Any:
        """Return the elements in the mask, and zeros."""
        zeros = ir.Constant(kind, None)
        return self.call_llvm(f"masked.load.{_SUFFIXES[kind]}", place, _I32(align), mask, zeros, returns=kind)

    def masked_store(self, value: Any, place: Any, mask: Any, align: int) -> None:
        """Store the elements in the mask."""
        self.call_llvm(f"masked.store.{_SUFFIXES[value.type]}", value, place, _I32(align), mask)

    def shuffled(self, x: Any, y: Any, order: list[int]) -> Any:
        """Return elements of two vectors, one behind the other, in some order."""
        return self.shuffle_vector(x, y, ir.Constant(ir.VectorType(_I32, len(order)), order))

    def transposed(self, rows: list[Any]) -> list[Any]:
        """Return 16 rows of 16 numbers of 32 bits as columns: swap blocks of 1, 2, 4 and 8 beside the diagonal."""
        rows = [self.bitcast(row, _ROW) for row in rows]
        for size in (1, 2, 4, 8):
            low = [j + 16 - size if j & size else j for j in range(16)]
            high = [j + 16 if j & size else j + size for j in range(16)]
            rows = [self.shuffled(rows[i & ~size], rows[i | size], high if i & size else low) for i in range(16)]
        return rows

    def rounded(self, values: Any) -> Any:
        """Return the bits of float32 numbers rounded to bfloat16, ties to even, with the one NaN of each sign.

        In integers, since the CPU's own instruction takes numbers below 2**-126 for zero.
        """
        bits = self.bitcast(values, _ROW)
        upper = self.lshr(bits, _every(_ROW, 16))
        odd = self.and_(upper, _every(_ROW, 1))
        nearest = self.lshr(self.add(bits, self.add(odd, _every(_ROW, 0x7FFF))), _every(_ROW, 16))
        nan = self.or_(self.and_(upper, _every(_ROW, 0x8000)), _every(_ROW, 0x7FC0))
        is_nan = self.fcmp_unordered("uno", values, values)
        return self.trunc(self.select(is_nan, nan, nearest), _WORDS)


#: How intrinsics are called for vectors.
_SUFFIXES = {_WORDS: "v16i16.p0", _PAIRS: "v32i16.p0", _FLOATS: "v16f32.p0"}


def _every(kind: Any, value: int) -> Any:
    """Return a vector of equal numbers."""
    return ir.Constant(kind, [value] * kind.count)
