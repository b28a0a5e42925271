"""The poplin, popnn, poprand and popsparse codelets of the registry: formulas and the spelling of their parameters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mimdsim.costs.library import dense, network, random_numbers, reductions, sparse
from mimdsim.costs.library.arithmetic import Elements
from mimdsim.validation.vendor import dense_mac
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
    return dense_mac.horizontal_mac_cycles(
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
    "poprand::Bernoulli": _random(random_numbers.bernoulli_cycles, as_vendor=True),
    "poprand::Dropout": _random(random_numbers.dropout_cycles),
    "poprand::Normal": _random(random_numbers.normal_cycles),
    "poprand::Uniform": _random(random_numbers.uniform_cycles, as_vendor=True),
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
