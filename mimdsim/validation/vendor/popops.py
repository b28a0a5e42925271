"""The popops codelets of the registry: which formula gives the cost of each, and the spelling of its parameters."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from mimdsim.costs.library import casts, elementwise, network, reductions
from mimdsim.costs.library.arithmetic import (
    Elements,
    NoCycleFormula,
    cycles_if,
    larger,
    vector_elements,
    whole_and_rest,
)
from mimdsim.costs.library.elementwise import SUPERVISOR_CYCLES
from mimdsim.validation.vendor.params import Formula, VendorParams, formats


def _over_n(function: Callable[..., Elements], **fixed: Any) -> Formula:
    return lambda op, dtype, p: function(p.count("n"), dtype=dtype, **fixed)


def _op_over_n(function: Callable[..., Elements], **fixed: Any) -> Formula:
    return lambda op, dtype, p: function(p.count("n"), op=op, dtype=dtype, **fixed)


def _op_over_rows(function: Callable[..., Elements], **fixed: Any) -> Formula:
    return lambda op, dtype, p: function(p.counts("rows"), op=op, dtype=dtype, **fixed)


def _scaled(op: str) -> Formula:
    def formula(_: str, dtype: str, p: VendorParams) -> Elements:
        return scaled_add_1d_cycles(
            p.count("n"),
            op=op,
            dtype=formats(dtype)[0],
            memory_constrained=p.flag("memConstrained"),
            constant_scale=p.flag("isConstant"),
            as_vendor=True,
        )

    return formula


def _outer(function: Callable[..., Elements]) -> Formula:
    return lambda op, dtype, p: function(
        p.count("rows"), p.count("cols"), op=op, dtype=dtype, misaligned=p.flag("misaligned")
    )


def _bias(op: str, dtype: str, p: VendorParams) -> Elements:
    if op not in ("ADD", "SUBTRACT"):
        raise NoCycleFormula("broadcast of an inner vector", op, ["ADD", "SUBTRACT"])
    return elementwise.bias_add_cycles(
        p.count("broadcastFactor"), p.count("bLen"), dtype=dtype, slices=p.count("bSlices", 1)
    )


def _cast_1d(op: str, dtype: str, p: VendorParams) -> Elements:
    source, target = formats(dtype)
    return casts.cast_1d_cycles(p.count("n"), source=source, target=target)


def _cast_2d(op: str, dtype: str, p: VendorParams) -> Elements:
    source, target = formats(dtype)
    return casts.cast_2d_cycles(p.counts("rows"), source=source, target=target)


def _slice_1d(op: str, dtype: str, p: VendorParams) -> Elements:
    return reductions.dynamic_slice_1d_cycles(p.count("regionSize"), p.count("numSubElements"), dtype=dtype)


def _slice_2d(op: str, dtype: str, p: VendorParams, *, update: bool) -> Elements:
    regions = p.counts("regions" if "regions" in p else "regionSize") * p.count("numRegions", 1)
    return reductions.dynamic_slice_2d_cycles(regions, p.count("numSubElements"), dtype=dtype, update=update)


def _multi_slice(op: str, dtype: str, p: VendorParams, *, update: bool) -> Elements:
    return reductions.multi_slice_cycles(
        p.count("elemsPerSlice"),
        p.count("numOffsets"),
        in_range=p.count("inRange", p.count("numOffsets")),
        dtype=dtype,
        update=update,
        sorted_indices=p.flag("sorted"),
        split_single_region=p.flag("splitSingleRegion"),
    )


def _scatter(op: str, dtype: str, p: VendorParams, *, scaled: bool) -> Elements:
    data, scale = formats(dtype)
    return reductions.scatter_add_cycles(
        p.count("elemsPerSlice"),
        p.count("numOffsets"),
        in_range=p.count("inRangePerWorker", p.count("numOffsets")),
        op=op,
        dtype=data,
        scaled=scaled,
        scale_dtype=p.get("scaleType", scale),
        sorted_indices=p.flag("sorted"),
        subword_writes=p.flag("subWordWrites"),
    )


def _reduce(template: str, dtype: str, p: VendorParams) -> Elements:
    op, _, special = (part.strip() for part in template.partition(","))
    out = p.get("out", dtype)
    update = p.flag("update")
    if special in ("STRIDED", "STRIDED_REDUCE"):
        return reductions.reduce_strided_cycles(
            p.count("numOutputs"),
            p.count("numPartials"),
            stride=p.count("stride"),
            outer_strides=p.count("numOuterStrides", 1),
            op=op,
            dtype=dtype,
            out_dtype=out,
            update=update,
        )
    if special in ("SCALAR_SINGLE_INPUT", "SCALAR_OUTPUT_SINGLE_INPUT"):
        return reductions.reduce_to_scalar_cycles(p.count("numPartials"), op=op, dtype=dtype, out_dtype=out)
    if special == "ALL_REGIONS_CONTINUOUS":
        # As the vendor calls it: one output too few.
        return reductions.reduce_contiguous_cycles(
            p.count("numOutputsM1"), p.count("numPartials"), dtype=dtype, update=update
        )
    raise NoCycleFormula("reduction", special, ["STRIDED", "SCALAR_SINGLE_INPUT", "ALL_REGIONS_CONTINUOUS"])


def _nan_check(op: str, dtype: str, p: VendorParams) -> Elements:
    return network.nan_check_1d_cycles(
        p.count("sizeIn8BytesPerWorker"),
        extra_vector_workers=p.count("remWorkerId", 0),
        rest=p.count("remExtras", 0),
        infinities=p.flag("checkInf"),
        dtype=dtype,
    )


POPOPS: dict[str, Formula] = {
    "popops::BinaryOp1D": _op_over_n(elementwise.binary_1d_cycles),
    "popops::BinaryOp1DInPlace": _op_over_n(elementwise.binary_1d_cycles, in_place=True),
    "popops::BinaryOp2D": _op_over_rows(elementwise.binary_2d_cycles),
    "popops::BinaryOp2DInPlace": _op_over_rows(elementwise.binary_2d_cycles, in_place=True),
    "popops::BroadcastClamp": lambda op, dtype, p: elementwise.clamp_cycles(p.counts("rows"), dtype=dtype),
    "popops::BroadcastScalar1D": _op_over_n(elementwise.broadcast_scalar_1d_cycles),
    "popops::BroadcastScalar1DInPlace": _op_over_n(elementwise.broadcast_scalar_1d_cycles, in_place=True),
    "popops::BroadcastScalar2DData": _op_over_rows(elementwise.broadcast_scalar_2d_cycles),
    "popops::BroadcastScalar2DDataInPlace": _op_over_rows(elementwise.broadcast_scalar_2d_cycles, in_place=True),
    "popops::BroadcastSelect": lambda op, dtype, p: elementwise.broadcast_select_cycles(p.counts("rows"), dtype=dtype),
    "popops::BroadcastVectorInner1D": _bias,
    "popops::BroadcastVectorOuterByColumn1D": _outer(elementwise.broadcast_outer_by_column_cycles),
    "popops::BroadcastVectorOuterByColumn1DInPlace": _outer(elementwise.broadcast_outer_by_column_cycles),
    "popops::BroadcastVectorOuterByRow1D": _outer(elementwise.broadcast_outer_by_row_cycles),
    "popops::BroadcastVectorOuterByRow1DInPlace": _outer(elementwise.broadcast_outer_by_row_cycles),
    "popops::Cast1D": _cast_1d,
    "popops::Cast2D": _cast_2d,
    "popops::Clamp": lambda op, dtype, p: elementwise.clamp_cycles(p.counts("rows"), dtype=dtype),
    "popops::DynamicSlice1D": _slice_1d,
    "popops::DynamicSlice2D": partial(_slice_2d, update=False),
    "popops::DynamicUpdateSlice1D": _slice_1d,
    "popops::DynamicUpdateSlice2D": partial(_slice_2d, update=True),
    "popops::EncodeOneHot": lambda op, dtype, p: network.one_hot_cycles(
        p.count("n" if "n" in p else "numIndices"), dtype=dtype
    ),
    "popops::Fill": _over_n(casts.fill_cycles),
    "popops::HasNaNOrInf1D": _nan_check,
    "popops::HeapSortVertex": lambda op, dtype, p: network.heap_sort_cycles(p.count("n")),
    "popops::HeapSortVertexKV": lambda op, dtype, p: network.heap_sort_cycles(p.count("n"), key_and_value=True),
    "popops::MultiSlice": partial(_multi_slice, update=False),
    "popops::MultiUpdate": partial(_multi_slice, update=True),
    "popops::MultiUpdateOp": partial(_scatter, scaled=False),
    "popops::Reduce": _reduce,
    "popops::ScaledAddSupervisor": _scaled("ADD"),
    "popops::ScaledMultiUpdateOp": partial(_scatter, scaled=True),
    "popops::ScaledSubtractSupervisor": _scaled("SUBTRACT"),
    "popops::Select": lambda op, dtype, p: elementwise.select_cycles(p.counts("rows")),
    "popops::UnaryOp1D": _op_over_n(elementwise.unary_1d_cycles),
    "popops::UnaryOp1DInPlace": _op_over_n(elementwise.unary_1d_cycles, in_place=True),
    "popops::UnaryOp2D": _op_over_rows(elementwise.unary_2d_cycles),
    "popops::UnaryOp2DInPlace": _op_over_rows(elementwise.unary_2d_cycles, in_place=True),
    "popops::aXMinusbYSupervisor": _scaled("AXMINUSBY"),
    "popops::aXPlusbYSupervisor": _scaled("AXPLUSBY"),
}


OPERATIONS = ("ADD", "SUBTRACT", "AXPLUSBY", "AXMINUSBY")


def _check(op: str, dtype: str) -> None:
    if op not in OPERATIONS:
        raise NoCycleFormula("scaled arithmetic", op, OPERATIONS)
    if dtype not in ("f32", "f16"):
        raise NoCycleFormula("scaled arithmetic", dtype, ["f32", "f16"])


def scaled_add_1d_cycles(
    n: Elements,
    *,
    op: str = "ADD",
    dtype: str = "f32",
    constant_scale: bool = False,
    memory_constrained: bool = False,
    as_vendor: bool = False,
    worker_contexts: int = 6,
    vector_bytes: int = 8,
) -> Elements:
    """Tile cycles of a scaled addition of `n` elements (ScaledAddSupervisor, aXPlusbYSupervisor ...).

    `memory_constrained`: the operands lie in different memory elements, so that loads and stores overlap.
    `as_vendor` repeats the vendor's slip: a comparison of an unsigned number with zero, never true, drops the extra
    vector that some contexts process. By default that vector is counted.
    """
    _check(op, dtype)
    per_vector = vector_elements(dtype, vector_bytes)
    vectors, rest = whole_and_rest(n, per_vector)
    each, extra = whole_and_rest(vectors, worker_contexts)
    both_scaled = op in ("AXPLUSBY", "AXMINUSBY")
    wide = both_scaled and dtype == "f32"
    # Load, load, multiply-add with store: three bundles a vector; two, then one, if memory lets them overlap.
    inner: Elements = 3
    if memory_constrained and not wide:
        inner = 2 - 1 * (each >= 16)
    # 1 = exit; the common codelet also compares its context's number (2) before the remainder.
    prologue, ending = (16, 1) if wide else (15, 3)

    def worker(count: Elements) -> Elements:
        return prologue + (6 + inner * (count - 1)) * (count > 0) + ending  # 6 fills the pipeline with one vector

    if dtype == "f32":
        tail = cycles_if(rest > 0, 5 if wide else 8)
    else:
        tail = cycles_if(rest > 0, 5) + cycles_if(rest >= 2, 7) + cycles_if(rest == 3, 6)
    # +1: the context after the last one with an extra vector asks whether a remainder is left.
    slowest = worker(each) + 1 + tail
    if not as_vendor:
        slowest = larger(slowest, worker(each + 1 * (extra > 0)))
    fixed = 21 + SUPERVISOR_CYCLES + 7 + 12
    if not constant_scale:
        fixed += 6 + {"AXPLUSBY": 12, "SUBTRACT": 7}.get(op, 0)  # 6: setzi and branch around the constant
    remainder = cycles_if(rest > 0, 6)  # the branch around the remainder is not taken
    return fixed + remainder + worker_contexts * slowest


def _row_tail_cycles(rest: Elements, dtype: str) -> Elements:
    if dtype == "f32":
        return cycles_if(rest > 0, 7)
    return cycles_if(rest > 0, 4) + cycles_if(rest >= 2, 6) + 7 * (rest % 2)  # look, a pair, a single element


def scaled_add_2d_cycles(
    rows: Iterable[Elements],
    *,
    op: str = "ADD",
    dtype: str = "f32",
    constant_scale: bool = False,
    memory_constrained: bool = False,
    vector_bytes: int = 8,
) -> Elements:
    """Worker cycles of a scaled addition over rows (ScaledAdd2D, aXPlusbY2D ...; popopsCycleEstimators.cpp)."""
    _check(op, dtype)
    wide = op in ("AXPLUSBY", "AXMINUSBY") and dtype == "f32"
    inner = 2 if memory_constrained and not wide else 3
    total: Elements = 9
    if constant_scale:
        total = total + (4 if op == "AXPLUSBY" else 0)
    else:
        total = total + 1 + {"SUBTRACT": 2, "AXPLUSBY": 6}.get(op, 0)
    per_vector = vector_elements(dtype, vector_bytes)
    for n in rows:
        vectors, rest = whole_and_rest(n, per_vector)
        total = total + 15 + cycles_if(vectors > 0, 5) + inner * vectors + _row_tail_cycles(rest, dtype)
    return total
