"""The popops codelets of the registry: which formula gives the cost of each, and the spelling of its parameters."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from mimdsim.costs.library import broadcasts, casts, elementwise, network, reductions, slices
from mimdsim.costs.library.arithmetic import Elements, NoCycleFormula
from mimdsim.validation.vendor import scaled_add
from mimdsim.validation.vendor.params import Formula, VendorParams, formats


def _over_n(function: Callable[..., Elements], **fixed: Any) -> Formula:
    return lambda op, dtype, p: function(p.count("n"), dtype=dtype, **fixed)


def _op_over_n(function: Callable[..., Elements], **fixed: Any) -> Formula:
    return lambda op, dtype, p: function(p.count("n"), op=op, dtype=dtype, **fixed)


def _op_over_rows(function: Callable[..., Elements], **fixed: Any) -> Formula:
    return lambda op, dtype, p: function(p.counts("rows"), op=op, dtype=dtype, **fixed)


def _scaled(op: str) -> Formula:
    def formula(_: str, dtype: str, p: VendorParams) -> Elements:
        return scaled_add.scaled_add_1d_cycles(
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
    return broadcasts.bias_add_cycles(
        p.count("broadcastFactor"), p.count("bLen"), dtype=dtype, slices=p.count("bSlices", 1)
    )


def _cast_1d(op: str, dtype: str, p: VendorParams) -> Elements:
    source, target = formats(dtype)
    return casts.cast_1d_cycles(p.count("n"), source=source, target=target)


def _cast_2d(op: str, dtype: str, p: VendorParams) -> Elements:
    source, target = formats(dtype)
    return casts.cast_2d_cycles(p.counts("rows"), source=source, target=target)


def _slice_1d(op: str, dtype: str, p: VendorParams) -> Elements:
    return slices.dynamic_slice_1d_cycles(p.count("regionSize"), p.count("numSubElements"), dtype=dtype)


def _slice_2d(op: str, dtype: str, p: VendorParams, *, update: bool) -> Elements:
    regions = p.counts("regions" if "regions" in p else "regionSize") * p.count("numRegions", 1)
    return slices.dynamic_slice_2d_cycles(regions, p.count("numSubElements"), dtype=dtype, update=update)


def _multi_slice(op: str, dtype: str, p: VendorParams, *, update: bool) -> Elements:
    return slices.multi_slice_cycles(
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
    return slices.scatter_add_cycles(
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
    "popops::BroadcastVectorOuterByColumn1D": _outer(broadcasts.broadcast_outer_by_column_cycles),
    "popops::BroadcastVectorOuterByColumn1DInPlace": _outer(broadcasts.broadcast_outer_by_column_cycles),
    "popops::BroadcastVectorOuterByRow1D": _outer(broadcasts.broadcast_outer_by_row_cycles),
    "popops::BroadcastVectorOuterByRow1DInPlace": _outer(broadcasts.broadcast_outer_by_row_cycles),
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
