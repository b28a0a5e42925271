"""Products of listed rows with one row, in sums within sums, each in its order.

A program sums the products of a tile's neurons (a part), the parts of a group of tiles, and the groups. Parts are
summed side by side, one per vector lane; then EIGHT vectors of EIGHT listed rows are turned over, so that groups are
summed side by side, one listed row per lane.

The compiled code of a kernel that uses them is cached next to its own file: after a change here, remove `__pycache__`.
"""

from __future__ import annotations

from typing import Any

import numba
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from mimdsim.numerics.fused.registers import (
    CACHE_LINE,
    FLOAT,
    INDEX,
    Loop,
    data_of,
    indices,
    prefetch,
    shuffled,
    widest,
)

EIGHT = 8  # as many vectors as lanes, so that they can be turned over in registers
EIGHT_VECTOR = ir.VectorType(FLOAT, EIGHT)


def _turned_over(builder: Any, rows: list[Any]) -> list[Any]:
    """EIGHT vectors of EIGHT lanes with rows and lanes exchanged, by shuffles that processors have: of numbers and of
    pairs within halves of a vector, then of halves."""
    single = [0, 8, 1, 9, 4, 12, 5, 13], [2, 10, 3, 11, 6, 14, 7, 15]
    double = [0, 1, 8, 9, 4, 5, 12, 13], [2, 3, 10, 11, 6, 7, 14, 15]
    half = [0, 1, 2, 3, 8, 9, 10, 11], [4, 5, 6, 7, 12, 13, 14, 15]

    low, high = ([shuffled(builder, rows[k], rows[k + 1], order) for k in range(0, EIGHT, 2)] for order in single)
    quads = [shuffled(builder, some[k], some[k + 1], order) for k in (0, 2) for some in (low, high) for order in double]
    return [shuffled(builder, quads[k], quads[k + 4], order) for order in half for k in range(4)]


def _nested(unrolled: int) -> Any:
    """unrolled: numbers of a part; 0: as many as the last argument says.

    While products of EIGHT rows are summed up in parts, the parts of the EIGHT before are added to their groups, which
    cannot be done any faster than one addition after another. The next EIGHT rows, which no processor foresees, are
    fetched meanwhile.
    """

    @intrinsic
    def dot(typing_context, sums, w, w_start, rows, first, last, q, q_starts, q_start, bits, numbers):  # type: ignore[no-untyped-def]
        signature = types.void(
            sums, w, types.int64, rows, *indices(2), q, q_starts, types.int64, types.uint8, types.int64
        )

        def build(context: Any, builder: Any, signature: Any, given: Any) -> Any:
            widest(builder)
            sums, w, w_start, rows, first, last, q, q_starts, q_start, bits, numbers = given
            sums, w, rows, q, q_starts = (
                data_of(context, builder, signature.args[index], given[index]) for index in (0, 1, 3, 6, 7)
            )
            w, q = builder.gep(w, [w_start]), builder.gep(q, [q_start])

            def whole(number: int) -> Any:
                return ir.Constant(INDEX, number)

            def place(base: Any, offset: Any) -> Any:
                return builder.bitcast(builder.gep(base, [offset]), EIGHT_VECTOR.as_pointer())

            def eight(base: Any, offset: Any) -> Any:
                loaded = builder.load(place(base, offset))
                loaded.align = 4
                return loaded

            def parts_of(k: Any) -> list[Any]:
                """A part per vector, a row per lane."""
                begin, own = builder.mul(k, whole(EIGHT)), builder.gep(q, [builder.load(builder.gep(q_starts, [k]))])
                listed = [builder.load(builder.gep(rows, [builder.add(begin, whole(lane))])) for lane in range(EIGHT)]
                for lane in range(EIGHT, 2 * EIGHT):
                    soon = builder.load(builder.gep(rows, [builder.add(begin, whole(lane))]))
                    for line in range(0, (unrolled or 1) * EIGHT, CACHE_LINE):
                        prefetch(builder, builder.gep(w, [builder.add(soon, whole(line))]))

                def products(parts: list[Any], step: Any) -> list[Any]:
                    factor = eight(own, step)
                    made = [builder.fmul(eight(w, builder.add(row, step)), factor) for row in listed]
                    return [builder.fadd(*pair) for pair in zip(parts, made, strict=True)] if parts else made

                parts = products([], whole(0))
                for number in range(1, unrolled):
                    parts = products(parts, whole(number * EIGHT))
                if not unrolled:
                    inner = Loop(builder, whole(1), numbers, parts)
                    inner.close(products(inner.values, builder.mul(inner.k, whole(EIGHT))))
                    parts = inner.values
                return _turned_over(builder, parts)

            def add(k: Any, parts: list[Any]) -> None:
                at = builder.mul(k, whole(2 * EIGHT))
                held = [eight(sums, builder.add(at, whole(number))) for number in (0, EIGHT)]
                for number, value in enumerate(_in_groups(builder, parts, bits, *held)):
                    builder.store(value, place(sums, builder.add(at, whole(number * EIGHT))), align=4)

            loop = Loop(builder, builder.add(first, whole(1)), last, parts_of(first))
            add(builder.sub(loop.k, whole(1)), loop.values)
            loop.close(parts_of(loop.k))
            add(builder.sub(last, whole(1)), loop.values)
            return context.get_dummy_value()

        return signature, build

    return dot


def _in_groups(builder: Any, parts: list[Any], bits: Any, group: Any, total: Any) -> list[Any]:
    """Group and total after some parts; bits: after which of them a group ends."""
    zero = ir.Constant(EIGHT_VECTOR, [0.0] * EIGHT)
    inside, across, after = (builder.function.append_basic_block(f"sums.{name}") for name in ("in", "over", "after"))
    builder.cbranch(builder.icmp_unsigned("==", bits, ir.Constant(bits.type, 0)), inside, across)
    builder.position_at_end(inside)
    one = group
    for part in parts:
        one = builder.fadd(one, part)
    builder.branch(after)
    builder.position_at_end(across)
    new, larger = group, total
    for number, part in enumerate(parts):
        new = builder.fadd(new, part)
        bit = builder.and_(bits, ir.Constant(bits.type, 1 << number))
        ending = builder.icmp_unsigned("!=", bit, ir.Constant(bits.type, 0))
        larger = builder.select(ending, builder.fadd(larger, new), larger)
        new = builder.select(ending, zero, new)
    builder.branch(after)
    builder.position_at_end(after)
    made = [builder.phi(EIGHT_VECTOR) for _ in range(2)]
    for phi, values in zip(made, ((one, new), (total, larger)), strict=True):
        for value, block in zip(values, (inside, across), strict=True):
            phi.add_incoming(value, block)
    return made


dot_nested_of_1, dot_nested_of_2, dot_nested_of_3, dot_nested_of_4, dot_nested_of_any = map(_nested, (1, 2, 3, 4, 0))


@numba.njit(cache=True, nogil=True)
def dot_nested(sums, w, w_start, rows, first, last, q, q_starts, q_start, bits, numbers):  # type: ignore[no-untyped-def]
    """Goes on with the sums of rows[EIGHT * first:EIGHT * last], sums [eights, 2, EIGHT]: of the group and of all
    groups before, by the products of w[w_start + row:] for every row with q[q_start + q_starts[eight]:]; pieces
    [numbers, EIGHT], numbers of EIGHT parts. bits: after which parts a group ends. One EIGHT at least."""
    if numbers == 4:
        dot_nested_of_4(sums, w, w_start, rows, first, last, q, q_starts, q_start, bits, numbers)
    elif numbers == 2:
        dot_nested_of_2(sums, w, w_start, rows, first, last, q, q_starts, q_start, bits, numbers)
    elif numbers == 3:
        dot_nested_of_3(sums, w, w_start, rows, first, last, q, q_starts, q_start, bits, numbers)
    elif numbers == 1:
        dot_nested_of_1(sums, w, w_start, rows, first, last, q, q_starts, q_start, bits, numbers)
    else:
        dot_nested_of_any(sums, w, w_start, rows, first, last, q, q_starts, q_start, bits, numbers)
