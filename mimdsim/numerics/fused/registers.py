"""Vector registers and loops over rows in the compiler's own instructions, for `vectors` and `nested`."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import types

from mimdsim.numerics.fused.interpreted import LANES

CACHE_LINE = 16  # floats
FLOAT, INDEX = ir.FloatType(), ir.IntType(64)
VECTOR = ir.VectorType(FLOAT, LANES)


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


def indices(count: int) -> tuple[Any, ...]:
    return (types.int64,) * count


def shuffled(builder: Any, one: Any, other: Any, order: list[int]) -> Any:
    return builder.shuffle_vector(one, other, ir.Constant(ir.VectorType(ir.IntType(32), len(order)), order))
