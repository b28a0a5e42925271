"""The poplin, popnn, poprand and popsparse codelets of the registry: formulas and the spelling of their parameters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mimdsim.costs.library import dense, network, reductions, sparse
from mimdsim.costs.library.arithmetic import Elements, NoCycleFormula, vector_elements
from mimdsim.costs.library.dense import zero_partials_pass_cycles
from mimdsim.validation.vendor.params import Formula, VendorParams, formats


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


def dot_product_cycles(size: int, *, dtype: str = "f16", partials_dtype: str = "f16", vector_bytes: int = 8) -> int:
    """Worker cycles of one dot product of `size` elements; for f16 with f16 partials, of the pair made at a time."""
    if dtype not in ("f32", "f16"):
        raise NoCycleFormula("dot product", dtype, ["f32", "f16"])
    pair = dtype == "f16" and partials_dtype == "f16"
    outputs = 2 if pair else 1
    widest = vector_elements(dtype, vector_bytes)
    width = widest
    while size % width:
        width //= 2
    # Repeat and wind down 3 an output, convert the format 1, add to the partial sum 3, branch 1. Below a full vector
    # weights and activations cannot be loaded together: two cycles a load and one to fill the pipeline.
    # Half formats: one less than the instruction count (fitted, see horizontal_mac_cycles).
    narrow = width < widest
    return (
        3 * outputs + pair + 4 + (outputs if narrow else 0) + (size // width) * (2 if narrow else 1) - (dtype == "f16")
    )


def horizontal_mac_cycles(
    conv_size_per_worker: int,
    *,
    in_channels_per_group: int,
    out_channels_per_group: int,
    kernel: int = 1,
    conv_groups: int = 1,
    in_groups: int = 1,
    out_groups: int = 1,
    zeroed_elements: int = 0,
    dtype: str = "f16",
    partials_dtype: str = "f16",
    worker_contexts: int = 6,
    vector_bytes: int = 8,
) -> int:
    """Tile cycles of a convolution by dot products along the input channels (ConvPartialHorizontalMac).

    f32 follows the vendor's code. For f16 that code is not known in full: three figures (one less for each dot product,
    clearing independent of the number of elements, 14 more for the supervisor) are fitted to two of the vendor's
    results, so other f16 shapes may be off by about a percent.
    """
    half = dtype == "f16"
    float_partials = partials_dtype == "f32"
    dot = dot_product_cycles(
        in_channels_per_group, dtype=dtype, partials_dtype=partials_dtype, vector_bytes=vector_bytes
    )
    outputs = out_channels_per_group if float_partials else out_channels_per_group // 2
    # 19 sets up a row, 7 a position; an empty row costs its test.
    row = 19 + conv_size_per_worker * (7 + outputs * dot) if conv_size_per_worker else 7
    worker = kernel * (16 + row) + 16
    loops = conv_groups * (23 + in_groups * (15 + out_groups * (10 + worker_contexts * worker)))
    setup = (63 + 14 if half else 58) + worker_contexts * (9 if float_partials else 10)
    cleared = zero_partials_pass_cycles(
        0 if half else zeroed_elements,
        groups=out_groups * conv_groups,
        partials_dtype=partials_dtype,
        worker_contexts=worker_contexts,
        vector_bytes=vector_bytes,
    )
    return setup + loops + cleared


def vertical_mac_dot_cycles(taps: int, channels: int) -> int:
    """Worker cycles of the inner loop of the vertical MAC: `taps` products for each of `channels` half channels."""
    # Three bundles for eight channels, two for four; the first tap is part of the 3 that fill the pipeline.
    return 3 + (3 * (taps - 1) * (channels // 8) if channels >= 8 else 2 * (taps - 1) * (channels // 4))


def slic_macs_per_cycle(in_channels: int, *, vector_bytes: int = 8) -> int:
    """Products a tile cycle of the sliding-window unit (SLIC) on halves: a window of four, eight output channels."""
    return min(vector_elements("f16", vector_bytes), in_channels) * 8
