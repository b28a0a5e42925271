"""Sums and products of listed rows in vector registers, in an explicit order.

The compiler may not reorder float additions, so a plain loop over a row of weights either goes through memory after
every row or, for a product, makes one addition at a time. These are written in the compiler's own instructions instead:
a strip of WIDTH adjacent numbers stays in registers while the listed rows pass by.

    add_strip   out[n] <- (((out[n] + rows[id_0, n]) + rows[id_1, n]) + ...): one number at a time in the order listed
    sum_strip   out[n] <- ((0 + rows[id_0, n]) + rows[id_1, n]) + ...
    dot_strip   out[k] <- out[k] + sum over n of rows[id_k, n] * q[n], the strip summed as a tree (a different order)
    above       which of WIDTH numbers lie above a limit, as bits
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba.core import types

from mimdsim.numerics.compiled import compiled
from mimdsim.numerics.fused import interpreted
from mimdsim.numerics.fused.interpreted import LANES, WIDTH, in_registers

CACHE_LINE = 16  # floats
FLOAT, INDEX = ir.FloatType(), ir.IntType(64)
VECTOR = ir.VectorType(FLOAT, LANES)
WHOLE_VECTOR = ir.VectorType(ir.IntType(32), LANES)


# ---- the compiler's own instructions


def widest(builder: Any) -> None:
    set.add(builder.function.attributes, '"prefer-vector-width"="512"')
    set.add(builder.function.attributes, '"min-legal-vector-width"="512"')


def data_of(context: Any, builder: Any, kind: Any, value: Any) -> Any:
    return context.make_array(kind)(context, builder, value).data


def vector_at(builder: Any, base: Any, offset: Any, number: int, kind: Any = VECTOR) -> Any:
    place = builder.gep(base, [builder.add(offset, ir.Constant(INDEX, number * LANES))])
    return builder.bitcast(place, kind.as_pointer())


def load(builder: Any, base: Any, offset: Any, number: int, kind: Any = VECTOR) -> Any:
    loaded = builder.load(vector_at(builder, base, offset, number, kind))
    loaded.align = 4
    return loaded


def in_all_lanes(builder: Any, value: Any, kind: Any) -> Any:
    vector = ir.Constant(kind, ir.Undefined)
    for lane in range(kind.count):
        vector = builder.insert_element(vector, value, ir.Constant(ir.IntType(32), lane))
    return vector


def anywhere(builder: Any, value: Any, place: Any) -> None:
    """Store a vector."""
    builder.store(value, place, align=4)


def streamed(builder: Any, value: Any, place: Any) -> None:
    """Store a vector at the beginning of a cache line past the caches, which need not fetch the line first."""
    stored = builder.store(value, place, align=4 * CACHE_LINE)
    stored.set_metadata("nontemporal", builder.module.add_metadata([ir.Constant(ir.IntType(32), 1)]))


def prefetch(builder: Any, place: Any) -> None:
    """Fetch the cache line of a place that will be read; it need not exist."""
    byte, flag = ir.IntType(8).as_pointer(), ir.IntType(32)
    kind = ir.FunctionType(ir.VoidType(), [byte, *[flag] * 3])
    fetch = builder.module.declare_intrinsic("llvm.prefetch", (byte,), kind)
    builder.call(fetch, [builder.bitcast(place, byte), *(ir.Constant(flag, each) for each in (0, 3, 1))])


class Loop:
    """for k in range(first, last), with values carried from turn to turn."""

    def __init__(self, builder: Any, first: Any, last: Any, carried: list[Any]):
        self.builder = builder
        before = builder.block
        function = builder.function
        self.head = function.append_basic_block("rows.head")
        body, self.after = function.append_basic_block("rows.body"), function.append_basic_block("rows.after")
        builder.branch(self.head)
        builder.position_at_end(self.head)
        self.k = builder.phi(INDEX)
        self.k.add_incoming(first, before)
        self.values = [builder.phi(value.type) for value in carried]
        for phi, value in zip(self.values, carried, strict=True):
            phi.add_incoming(value, before)
        builder.cbranch(builder.icmp_signed("<", self.k, last), body, self.after)
        builder.position_at_end(body)

    def close(self, carried: list[Any]) -> None:
        builder = self.builder
        self.k.add_incoming(builder.add(self.k, ir.Constant(INDEX, 1)), builder.block)
        for phi, value in zip(self.values, carried, strict=True):
            phi.add_incoming(value, builder.block)
        builder.branch(self.head)
        builder.position_at_end(self.after)


def row_offset(builder: Any, signed: bool, ids: Any, k: Any, start: Any, stride: Any) -> Any:
    number = builder.load(builder.gep(ids, [k]))
    wide = number if number.type == INDEX else (builder.sext if signed else builder.zext)(number, INDEX)
    return builder.add(start, builder.mul(wide, stride))


def shuffled(builder: Any, one: Any, other: Any, order: list[int]) -> Any:
    return builder.shuffle_vector(one, other, ir.Constant(ir.VectorType(ir.IntType(32), len(order)), order))


def instruction(interpreted: Callable[..., None]) -> Callable[[Callable[..., None]], Any]:
    """An intrinsic that returns nothing, from write(builder, kinds, *arguments): an array comes as the place of its
    first element, a number as int64, uint64 or float32; kinds: numba's types of all arguments."""

    def of(write: Callable[..., None]) -> Any:
        def made(typing_context, *given):  # type: ignore[no-untyped-def]
            def build(context: Any, builder: Any, signature: Any, values: Any) -> Any:
                widest(builder)
                passed = (
                    data_of(context, builder, kind, value) if isinstance(kind, types.Array) else value
                    for kind, value in zip(signature.args, values, strict=True)
                )
                write(builder, signature.args, *passed)
                return context.get_dummy_value()

            return types.void(*(_passed(kind) for kind in given)), build

        context, _, *arguments = inspect.signature(write).parameters.values()
        made.__signature__ = inspect.Signature([context, *arguments])  # type: ignore[attr-defined]  # as numba binds them
        made.__name__ = write.__name__
        return in_registers(interpreted)(made)

    return of


def _passed(kind: Any) -> Any:
    """As what an argument of this type is passed."""
    if isinstance(kind, types.Float):
        return types.float32
    return types.int64 if isinstance(kind, types.Integer) and kind != types.uint64 else kind


# ---- strips


def _summed(
    builder: Any, carried: list[Any], rows: Any, row_start: Any, stride: Any, kind: Any, ids: Any, first: Any, last: Any
) -> list[Any]:
    """The carried vectors with those of the rows ids[first:last] added, one row after another; kind: of ids."""
    loop = Loop(builder, first, last, carried)
    offset = row_offset(builder, kind.dtype.signed, ids, loop.k, row_start, stride)
    loop.close([builder.fadd(value, load(builder, rows, offset, number)) for number, value in enumerate(loop.values)])
    return loop.values


def _strip(vectors: int, start: str) -> Any:
    """start: sums begin from "out" or "zero"."""

    @instruction(interpreted.strip(vectors, start))
    def add(builder, kinds, out, out_start, rows, row_start, stride, ids, first, last):  # type: ignore[no-untyped-def]
        carried = [ir.Constant(VECTOR, [0.0] * LANES)] * vectors
        if start == "out":
            carried = [load(builder, out, out_start, number) for number in range(vectors)]
        total = _summed(builder, carried, rows, row_start, stride, kinds[5], ids, first, last)
        for number, value in enumerate(total):
            anywhere(builder, value, vector_at(builder, out, out_start, number))

    return add


def _sums_of_lanes(builder: Any, values: list[Any]) -> Any:
    """One vector of the sum of every value's lanes: halves are added, then halves of these, down to one lane.

    Two values that are each in halves fill a vector, so that the last additions are made for all of them at once.
    """
    lanes = LANES  # of a value that are still to be added up
    while len(values) > 1:
        half, pairs = lanes // 2, []
        for one, other in zip(values[::2], values[1::2], strict=True):
            parts = [range(at, at + half) for at in range(0, LANES, lanes)]
            low = [lane for part in parts for lane in part]
            halves = [low, [lane + half for lane in low]]
            first, second = (
                shuffled(builder, one, other, [*order, *(lane + LANES for lane in order)]) for order in halves
            )
            pairs.append(builder.fadd(first, second))
        values, lanes = pairs, half
    value, width = values[0], LANES
    while lanes > 1:
        lanes //= 2
        starts = range(0, width, 2 * lanes)
        halves = [[at + lane + more for at in starts for lane in range(lanes)] for more in (0, lanes)]
        value = builder.fadd(*(shuffled(builder, value, value, order) for order in halves))
        width //= 2
    return value


TOGETHER = (8, 4, 1)  # listed rows whose sums of lanes are made at once


@instruction(interpreted.dot_strip)
def dot_strip(builder, kinds, out, rows, row_start, stride, ids, first, last, q, q_start):  # type: ignore[no-untyped-def]
    """out[k] += the sum of q[q_start:] * rows[ids[k]], WIDTH numbers each, as a tree."""
    factors = [load(builder, q, q_start, number) for number in range(WIDTH // LANES)]

    def product(k: Any) -> Any:
        offset = row_offset(builder, kinds[4].dtype.signed, ids, k, row_start, stride)
        terms = [builder.fmul(factor, load(builder, rows, offset, number)) for number, factor in enumerate(factors)]
        while len(terms) > 1:
            half = len(terms) // 2
            terms = [builder.fadd(one, other) for one, other in zip(terms[:half], terms[half:], strict=True)]
        return terms[0]

    for some in TOGETHER:
        size = ir.Constant(INDEX, some)
        turns = builder.sdiv(builder.sub(last, first), size)
        loop = Loop(builder, ir.Constant(INDEX, 0), turns, [first])
        (k,) = loop.values
        made = _sums_of_lanes(builder, [product(builder.add(k, ir.Constant(INDEX, number))) for number in range(some)])
        place = builder.bitcast(builder.gep(out, [k]), made.type.as_pointer())
        before = builder.load(place)
        before.align = 4
        builder.store(builder.fadd(before, made), place, align=4)
        loop.close([builder.add(k, size)])
        (first,) = loop.values


@in_registers(interpreted.above)
def above(typing_context, numbers, begin, limit):  # type: ignore[no-untyped-def]
    """uint64: bit n is set where numbers[begin + n] > limit, for WIDTH numbers of four bytes, float or int."""
    signature = types.uint64(numbers, types.int64, numbers.dtype)
    whole = isinstance(numbers.dtype, types.Integer)

    def build(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        numbers, begin, limit = given
        numbers = data_of(context, builder, signature.args[0], numbers)
        limits = in_all_lanes(builder, limit, WHOLE_VECTOR if whole else VECTOR)
        bits = ir.Constant(INDEX, 0)
        for number in range(WIDTH // LANES):
            loaded = load(builder, numbers, begin, number, limits.type)
            higher = builder.icmp_signed(">", loaded, limits) if whole else builder.fcmp_ordered(">", loaded, limits)
            some = builder.zext(builder.bitcast(higher, ir.IntType(LANES)), INDEX)
            bits = builder.or_(bits, builder.shl(some, ir.Constant(INDEX, number * LANES)))
        return bits

    return signature, build


@in_registers(interpreted.lowest_bit)
def lowest_bit(typing_context, bits):  # type: ignore[no-untyped-def]
    """int64: the number of the lowest set bit; at least one must be set."""
    signature = types.int64(types.uint64)

    def build(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        return builder.cttz(given[0], ir.Constant(ir.IntType(1), 1))

    return signature, build


@instruction(interpreted.integrate_strip)
def integrate_strip(  # type: ignore[no-untyped-def]
    builder, kinds, v, start, rows, row_start, ids, first, last, decay, scale, threshold
):
    """`equations.integrated` of WIDTH neighbours v[start:], by the sum of listed rows of WIDTH numbers."""
    decay, scale, threshold = (in_all_lanes(builder, constant, VECTOR) for constant in (decay, scale, threshold))
    zero, width = ir.Constant(VECTOR, [0.0] * LANES), ir.Constant(INDEX, WIDTH)
    total = _summed(builder, [zero] * (WIDTH // LANES), rows, row_start, width, kinds[4], ids, first, last)
    for number, current in enumerate(total):
        before = load(builder, v, start, number)
        spiked = builder.fcmp_ordered(">", before, threshold)
        kept = builder.select(spiked, zero, builder.fmul(before, decay))
        after = builder.fadd(kept, builder.fmul(scale, current))
        anywhere(builder, after, vector_at(builder, v, start, number))


@instruction(interpreted.weigh_strips)
def weigh_strips(builder, kinds, strips, sums, count, sources, coefficients, begin, bits):  # type: ignore[no-untyped-def]
    """Strips of WIDTH numbers from weighted strips: for every row of sums int64[count, 3], strips[row 0] <- the sum,
    over terms from row 1 up to row 2, of coefficients times strips[sources[term]], in this order.

    The two strips of coefficients of a term begin at begin + 2 * term * WIDTH; the second holds where a bit is set. One
    that is zero adds nothing, whatever it is multiplied with.
    """
    vectors, zero, width = range(WIDTH // LANES), ir.Constant(VECTOR, [0.0] * LANES), ir.Constant(INDEX, WIDTH)
    parts = (builder.lshr(bits, ir.Constant(INDEX, number * LANES)) for number in vectors)
    mask = ir.VectorType(ir.IntType(1), LANES)
    chosen = [builder.bitcast(builder.trunc(part, ir.IntType(LANES)), mask) for part in parts]

    def make(by_bits: bool) -> None:
        row = Loop(builder, ir.Constant(INDEX, 0), count, [])
        at = builder.mul(row.k, ir.Constant(INDEX, 3))
        into, first, last = (
            builder.load(builder.gep(sums, [builder.add(at, ir.Constant(INDEX, column))])) for column in range(3)
        )
        term = Loop(builder, first, last, [zero] * len(vectors))
        offset = row_offset(builder, True, sources, term.k, ir.Constant(INDEX, 0), width)
        at = builder.add(begin, builder.mul(term.k, ir.Constant(INDEX, 2 * WIDTH)))
        made = []
        for number, value in enumerate(term.values):
            weight = load(builder, coefficients, at, number)
            if by_bits:
                other = load(builder, coefficients, builder.add(at, width), number)
                weight = builder.select(chosen[number], other, weight)
            product = builder.fmul(weight, load(builder, strips, offset, number))
            nothing = builder.fcmp_unordered("==", weight, zero)
            made.append(builder.fadd(value, builder.select(nothing, zero, product)))
        term.close(made)
        for number, value in enumerate(term.values):
            anywhere(builder, value, vector_at(builder, strips, builder.mul(into, width), number))
        row.close([])

    with builder.if_else(builder.icmp_unsigned("==", bits, ir.Constant(INDEX, 0))) as (none, some):
        with none:
            make(False)
        with some:
            make(True)


def _copied(stored: Callable[[Any, Any, Any], Any]) -> Any:
    """stored: how vectors are stored in `made`."""

    @instruction(interpreted.copy)
    def copy(builder, kinds, made, made_start, given, given_start, count):  # type: ignore[no-untyped-def]
        loop = Loop(builder, ir.Constant(INDEX, 0), count, [])
        offset = builder.mul(loop.k, ir.Constant(INDEX, WIDTH))
        at, into = builder.add(given_start, offset), builder.add(made_start, offset)
        for number in range(WIDTH // LANES):
            stored(builder, load(builder, given, at, number), vector_at(builder, made, into, number))
        loop.close([])

    return copy


# made <- given, `count` strips of WIDTH numbers; past the caches, or anywhere
stream_strips, copy_strips = _copied(streamed), _copied(anywhere)


@instruction(interpreted.add_products)
def add_products(builder, kinds, made, made_start, one, one_start, other, other_start):  # type: ignore[no-untyped-def]
    """made += one * other, a strip of WIDTH numbers."""
    for number in range(WIDTH // LANES):
        total = load(builder, made, made_start, number)
        product = builder.fmul(load(builder, one, one_start, number), load(builder, other, other_start, number))
        anywhere(builder, builder.fadd(total, product), vector_at(builder, made, made_start, number))


@instruction(interpreted.fetch_strips)
def fetch_strips(builder, kinds, rows, row_start, ids, first, last):  # type: ignore[no-untyped-def]
    """Fetch listed rows of WIDTH numbers that are soon read, which no processor foresees."""
    loop = Loop(builder, first, last, [])
    offset = row_offset(builder, kinds[2].dtype.signed, ids, loop.k, row_start, ir.Constant(INDEX, WIDTH))
    for line in range(0, WIDTH, CACHE_LINE):
        prefetch(builder, builder.gep(rows, [builder.add(offset, ir.Constant(INDEX, line))]))
    loop.close([])


add_strip = _strip(WIDTH // LANES, "out")
add_vector = _strip(1, "out")
sum_strip = _strip(WIDTH // LANES, "zero")


@compiled
def add_run(out, out_start, rows, row_start, stride, ids, first, last, width):  # type: ignore[no-untyped-def]
    """`add_strip` for any number of neighbours; other formats than float32 are added one by one."""
    n = 0
    in_vectors = width if rows.itemsize == 4 else 0
    while in_vectors - n >= WIDTH:
        add_strip(out, out_start + n, rows, row_start + n, stride, ids, first, last)
        n += WIDTH
    while in_vectors - n >= LANES:
        add_vector(out, out_start + n, rows, row_start + n, stride, ids, first, last)
        n += LANES
    while n < width:
        total = out[out_start + n]
        for k in range(first, last):
            total += rows[row_start + n + ids[k] * stride]
        out[out_start + n] = total
        n += 1
