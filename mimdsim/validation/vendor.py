"""Cycles of library codelets by the vendor's names and parameters, as its own cycle estimators give them.

`vendor_cycles` answers in the unit the vendor uses for the codelet: tile cycles for 1-D and supervisor codelets, worker
cycles for 2-D ones. Where the vendor's own formula has a known slip, the registry repeats it (`as_vendor`), so that its
figures can be checked; the functions themselves are right by default.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from mimdsim.base.errors import MimdsimError
from mimdsim.costs.library import casts, dense, elementwise, network, reductions, sparse
from mimdsim.costs.library.arithmetic import (
    Elements,
    NoCycleFormula,
)
from mimdsim.validation.vendor_formulas import horizontal_mac_cycles, scaled_add_1d_cycles


class VendorParams(dict[str, str]):
    """Parameters of one vendor figure: text by name."""

    def count(self, name: str, default: int | None = None) -> int:
        """The integer parameter `name`; raises MimdsimError if it is missing without default, or not an integer."""
        text = self.get(name)
        if text is None:
            if default is None:
                raise MimdsimError(f"parameter '{name}' is missing; given: {', '.join(sorted(self)) or 'none'}")
            return default
        try:
            return int(text)
        except ValueError:
            raise MimdsimError(f"parameter '{name}' must be an integer, not '{text}'") from None

    def flag(self, name: str) -> bool:
        """True if `name` is given and not 0."""
        return self.count(name, 0) != 0

    def counts(self, name: str) -> list[int]:
        """The integers of a parameter written as 7|9|33; raises MimdsimError if missing or not integers."""
        return [VendorParams({name: text}).count(name) for text in self.get(name, "").split("|")]


# (template argument such as ADD, number format, parameters) -> cycles
Formula = Callable[[str, str, VendorParams], Elements]


def formats(dtype: str) -> tuple[str, str]:
    """The two formats of "f16/f32" or "f16->f32"; one alone stands for both."""
    first, _, second = dtype.replace("->", "/").partition("/")
    return first, second or first


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


def _reduce_add(op: str, dtype: str, p: VendorParams) -> Elements:
    source, target = formats(dtype)
    return reductions.reduce_add_cycles(
        p.count("numOutputs"),
        p.count("numPartials"),
        dtype=source,
        out_dtype=target,
        single_input=p.flag("singleInput"),
        interleaved=p.flag("interleaved"),
    )


def _conv_units(dtype: str, partials: str) -> int:
    # Half inputs with float partials are limited by the store of the partials to eight units.
    return 8 if (dtype, partials) == ("f16", "f32") else 16


def _conv_1x1(op: str, dtype: str, p: VendorParams) -> Elements:
    data, sums = formats(dtype)
    return dense.amp_1x1_cycles(
        p.count("positions"),
        conv_groups=p.count("numConvGroups", 1),
        in_groups=p.count("numInGroups", 1),
        out_groups=p.count("numOutGroups", 1),
        out_channels_per_group=p.count("outChansPerGroup"),
        in_channels_per_group=p.count("inChansPerGroup", 16 if data == "f16" else 8),
        dtype=data,
        partials_dtype=sums,
        conv_units=p.count("convUnits", _conv_units(data, sums)),
        load_bytes_per_cycle=p.count("coeffBytesPerCycle", 8),
    )


def _conv_nx1(op: str, dtype: str, p: VendorParams) -> Elements:
    data, sums = formats(dtype)
    outer, _, inner = p.get("kernel", "1x1").partition("x")
    kernel = VendorParams(outer=outer, inner=inner)
    height = p.count("filterHeight", 1)
    return dense.amp_nx1_cycles(
        [[p.count("rowLen")] * p.count("rowsPerWorker")] * 6,
        kernel_outer=-(-kernel.count("outer") // height),
        kernel_inner=kernel.count("inner"),
        filter_height=height,
        conv_groups=p.count("numConvGroups", 1),
        in_groups=p.count("numInGroups", 1),
        out_groups=p.count("numOutGroups", 1),
        out_channels_per_group=p.count("outChansPerGroup"),
        in_channels_per_group=p.count("inChansPerGroup", 16 if data == "f16" else 8),
        zeroed_elements=p.count("zeroedElems", 0),
        dtype=data,
        partials_dtype=sums,
        conv_units=p.count("convUnits", _conv_units(data, sums)),
        load_bytes_per_cycle=p.count("coeffBytesPerCycle", 8),
    )


def _horizontal_mac(op: str, dtype: str, p: VendorParams) -> Elements:
    data, sums = formats(dtype)
    return horizontal_mac_cycles(
        p.count("convSizePerWorker"),
        in_channels_per_group=p.count("inChansPerGroup"),
        out_channels_per_group=p.count("outChansPerGroup"),
        kernel=p.count("kernel", 1),
        zeroed_elements=p.count("zeroedElems", 0),
        dtype=data,
        partials_dtype=sums,
    )


def _outer_product(op: str, dtype: str, p: VendorParams) -> Elements:
    return dense.outer_product_cycles(p.count("width"), p.count("numChannels"), p.count("chansPerGroup"), dtype=dtype)


def _sparse(function: Callable[..., int], **fixed: Any) -> Formula:
    return lambda op, dtype, p: function(
        p.count("numX"),
        p.count("numZ"),
        p.count("numY"),
        dtype=formats(dtype)[0],
        buckets=p.count("buckets", 1),
        subgroups=p.count("subgroups", 1),
        **fixed,
    )


def _sparse_block(edges: str, dtype: str, p: VendorParams) -> Elements:
    data, sums = formats(dtype)
    return sparse.sparse_dense_block_cycles(
        p.count("numXBlocks"),
        p.count("numZ"),
        p.count("numYBlocks"),
        block=VendorParams(block=edges.partition("x")[0]).count("block"),
        dtype=data,
        partials_dtype=sums,
        conv_units=p.count("convUnits", 16),
        buckets=p.count("buckets", 1),
        subgroups=p.count("subgroups", 1),
    )


def _random(function: Callable[..., Elements], **fixed: Any) -> Formula:
    return lambda op, dtype, p: function(p.count("n"), dtype=dtype, **fixed)


def _transpose(op: str, dtype: str, p: VendorParams) -> Elements:
    return sparse.transpose_cycles(p.count("numTransposes"), p.count("rows"), p.count("cols"), dtype=dtype)


OTHER_LIBRARIES: dict[str, Formula] = {
    "poplin::ConvPartial1x1Out": _conv_1x1,
    "poplin::ConvPartialHorizontalMac": _horizontal_mac,
    "poplin::ConvPartialnx1": _conv_nx1,
    "poplin::OuterProduct": _outer_product,
    "poplin::ReduceAdd": _reduce_add,
    "popnn::NonLinearityGrad1D": lambda op, dtype, p: network.nonlinearity_gradient_1d_cycles(
        p.count("n"), op=op, dtype=dtype
    ),
    "popnn::ReduceMaxClassGather": lambda op, dtype, p: network.arg_max_cycles(
        p.count("size"), p.count("workerSize"), dtype=dtype
    ),
    "poprand::Bernoulli": _random(network.bernoulli_cycles, as_vendor=True),
    "poprand::Dropout": _random(network.dropout_cycles),
    "poprand::Normal": _random(network.normal_cycles),
    "poprand::Uniform": _random(network.uniform_cycles, as_vendor=True),
    "popsparse::SparseDenseMatMulBlock": _sparse_block,
    "popsparse::SparseDenseMatMulElementWise": _sparse(sparse.sparse_dense_elementwise_cycles),
    "popsparse::SparseDenseMatMulElementWiseTranspose": _sparse(sparse.sparse_dense_transposed_cycles),
    "popsparse::SparseDenseMatMulGradAElementWise": _sparse(sparse.sparse_dense_elementwise_cycles, gradient_a=True),
    "popsparse::SparseDenseMatMulGradWElementWise": _sparse(sparse.sparse_gradient_w_cycles),
    "popsparse::SparseGatherElementWise": lambda op, dtype, p: sparse.sparse_gather_cycles(
        p.count("numIndices"), dtype=formats(dtype)[0]
    ),
    "popsparse::Transpose(half/float)": _transpose,
}


# By name without template arguments; those reach the formula as its first argument.
FORMULAS: dict[str, Formula] = {**POPOPS, **OTHER_LIBRARIES}


def vendor_cycles(codelet: str, dtype: str, params: Mapping[str, str]) -> int | None:
    """Cycles of a codelet named as the vendor does, e.g. "popops::BinaryOp1D<ADD>"; None if no formula is known.

    `dtype` is one format or two ("f16->f32", "f16/f32": data and partial sums). Raises MimdsimError that names the
    codelet and the parameter when one is missing or not an integer.
    """
    name, _, template = codelet.partition("<")
    formula = FORMULAS.get(name)
    if formula is None:
        return None
    try:
        return int(formula(template.removesuffix(">"), dtype, VendorParams(params)))
    except NoCycleFormula:
        return None
    except MimdsimError as problem:
        raise MimdsimError(f"codelet {codelet}: {problem}") from None
