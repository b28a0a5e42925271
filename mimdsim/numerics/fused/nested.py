"""Products of listed rows with one row, in sums within sums, each in its order.

A program sums the products of a tile's neurons (a part), the parts of a group of tiles, and the groups. Parts are
summed side by side, one per vector lane; then EIGHT vectors of EIGHT listed rows are turned over, so that groups are
summed side by side, one listed row per lane.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import types

from mimdsim.numerics.compiled import compiled
from mimdsim.numerics.fused import interpreted
from mimdsim.numerics.fused.interpreted import EIGHT, WIDTH, in_registers
from mimdsim.numerics.fused.registers import (
    FLOAT,
    INDEX,
    Loop,
    anywhere,
    data_of,
    indices,
    load,
    prefetch,
    shuffled,
    widest,
)

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


def pieces_of(numbers: int) -> int:
    """Pieces of EIGHT parts of so many numbers that are summed while a row is at hand: about WIDTH numbers."""
    return max(1, WIDTH // (EIGHT * numbers))


def _deal(numbers: int) -> Any:
    """numbers: of a part."""
    kind = ir.VectorType(FLOAT, numbers * EIGHT)

    @in_registers(interpreted.deal(numbers))
    def deal(typing_context, source, first, each, count, into, at, width):  # type: ignore[no-untyped-def]
        signature = types.void(source, *indices(3), into, *indices(2))

        def build(context: Any, builder: Any, signature: Any, given: Any) -> Any:
            widest(builder)
            source, first, each, count, into, at, width = given
            source, into = (data_of(context, builder, signature.args[k], base) for k, base in ((0, source), (4, into)))
            none, size = ir.Constant(INDEX, 0), ir.Constant(INDEX, numbers * EIGHT)
            row = Loop(builder, none, count, [])
            begin, to = (builder.add(start, builder.mul(row.k, step)) for start, step in ((first, each), (at, width)))
            piece = Loop(builder, none, builder.udiv(width, size), [])
            begin, to = (builder.add(start, builder.mul(piece.k, size)) for start in (begin, to))
            parts = load(builder, source, begin, 0, kind)
            for number in range(numbers):
                order = list(range(number, numbers * EIGHT, numbers))
                dealt = shuffled(builder, parts, ir.Constant(kind, ir.Undefined), order)
                place = builder.gep(into, [builder.add(to, ir.Constant(INDEX, number * EIGHT))])
                anywhere(builder, dealt, builder.bitcast(place, EIGHT_VECTOR.as_pointer()))
            piece.close([])
            row.close([])
            return context.get_dummy_value()

        return signature, build

    return deal


MOST_DEALT = 4  # numbers of a part
deal_1, deal_2, deal_3, deal_4 = map(_deal, range(1, MOST_DEALT + 1))


@compiled
def deal(source, first, each, count, into, at, width, numbers):  # type: ignore[no-untyped-def]
    """into[at + width * row:][:width], row < count: numbers that follow one another from source[first + each * row] on,
    of EIGHT parts after EIGHT parts of up to MOST_DEALT numbers: first the first of every part, then the second."""
    if numbers == 4:
        deal_4(source, first, each, count, into, at, width)
    elif numbers == 3:
        deal_3(source, first, each, count, into, at, width)
    elif numbers == 2:
        deal_2(source, first, each, count, into, at, width)
    else:
        deal_1(source, first, each, count, into, at, width)


def _nested(unrolled: int) -> Any:
    """unrolled: numbers of a part; 0: as many as the last argument says.

    All pieces of EIGHT rows are gone through before the next EIGHT, so that the lines of a row that a cache brings in
    are adjacent. The first lines of these next rows, which no processor foresees, are fetched meanwhile; the lines that
    follow them it foresees, and fetching these too takes longer.
    """

    @in_registers(interpreted.nested(unrolled, pieces_of(unrolled) if unrolled else 1))
    def dot(typing_context, sums, w, w_start, rows, first, last, q, q_starts, ends, first_end, numbers):  # type: ignore[no-untyped-def]
        signature = types.void(sums, w, types.int64, rows, *indices(2), q, q_starts, ends, *indices(2))

        def build(context: Any, builder: Any, signature: Any, given: Any) -> Any:
            widest(builder)
            sums, w, w_start, rows, first, last, q, q_starts, ends, first_end, numbers = given
            sums, w, rows, q, q_starts, ends = (
                data_of(context, builder, signature.args[index], given[index]) for index in (0, 1, 3, 6, 7, 8)
            )
            w = builder.gep(w, [w_start])

            def whole(number: int) -> Any:
                return ir.Constant(INDEX, number)

            def place(base: Any, offset: Any) -> Any:
                return builder.bitcast(builder.gep(base, [offset]), EIGHT_VECTOR.as_pointer())

            def eight(base: Any, offset: Any) -> Any:
                loaded = builder.load(place(base, offset))
                loaded.align = 4
                return loaded

            def parts_of(own: Any, listed: list[Any], begin: int) -> list[Any]:
                """A part per vector, a row per lane; begin: of the piece in a row."""

                def products(parts: list[Any], step: Any) -> list[Any]:
                    factor = eight(own, step)
                    made = [builder.fmul(eight(w, builder.add(row, step)), factor) for row in listed]
                    return [builder.fadd(*pair) for pair in zip(parts, made, strict=True)] if parts else made

                parts = products([], whole(begin))
                for number in range(1, unrolled):
                    parts = products(parts, whole(begin + number * EIGHT))
                if not unrolled:
                    inner = Loop(builder, whole(1), numbers, parts)
                    inner.close(products(inner.values, builder.mul(inner.k, whole(EIGHT))))
                    parts = inner.values
                return _turned_over(builder, parts)

            loop = Loop(builder, first, last, [])
            begin, at = (builder.mul(loop.k, whole(number)) for number in (EIGHT, 2 * EIGHT))
            own = builder.gep(q, [builder.load(builder.gep(q_starts, [loop.k]))])
            listed = [builder.load(builder.gep(rows, [builder.add(begin, whole(lane))])) for lane in range(2 * EIGHT)]
            size = (unrolled or 1) * EIGHT
            pieces = pieces_of(unrolled) if unrolled else 1
            for soon in listed[EIGHT:]:
                prefetch(builder, builder.gep(w, [soon]))
            held = [eight(sums, builder.add(at, whole(number))) for number in (0, EIGHT)]
            for piece in range(pieces):
                bits = builder.load(builder.gep(ends, [builder.add(first_end, whole(piece))]))
                held = _in_groups(builder, parts_of(own, listed[:EIGHT], piece * size), bits, *held)
            for number, value in enumerate(held):
                builder.store(value, place(sums, builder.add(at, whole(number * EIGHT))), align=4)
            loop.close([])
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


@compiled
def dot_nested(sums, w, w_start, rows, first, last, q, q_starts, ends, first_end, numbers):  # type: ignore[no-untyped-def]
    """Goes on with the sums of rows[EIGHT * first:EIGHT * last], sums [eights, 2, EIGHT]: of the group and of all
    groups before, by the products of w[w_start + row:] for every row with q[q_starts[eight]:]; pieces
    [numbers, EIGHT], numbers of EIGHT parts, as many as `pieces_of` says. ends[first_end:], a number for a piece: bits
    say after which parts a group ends."""
    if numbers == 4:
        dot_nested_of_4(sums, w, w_start, rows, first, last, q, q_starts, ends, first_end, numbers)
    elif numbers == 2:
        dot_nested_of_2(sums, w, w_start, rows, first, last, q, q_starts, ends, first_end, numbers)
    elif numbers == 3:
        dot_nested_of_3(sums, w, w_start, rows, first, last, q, q_starts, ends, first_end, numbers)
    elif numbers == 1:
        dot_nested_of_1(sums, w, w_start, rows, first, last, q, q_starts, ends, first_end, numbers)
    else:
        dot_nested_of_any(sums, w, w_start, rows, first, last, q, q_starts, ends, first_end, numbers)
