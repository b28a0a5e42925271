"""Cycles of library codelets by the vendor's names and parameters, as its own cycle estimators give them.

`vendor_cycles` answers in the unit the vendor uses for the codelet: tile cycles for 1-D and supervisor codelets, worker
cycles for 2-D ones. Where the vendor's own formula has a known slip, the registry repeats it (`as_vendor`), so that its
figures can be checked; the functions themselves are right by default. Those that only published figures need, of scaled
additions and of convolutions by dot products, are here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from mimdsim.base.errors import MimdsimError, shortened
from mimdsim.costs.library import dense, elementwise, network, reductions, sparse
from mimdsim.costs.library.arithmetic import Elements, NoCycleFormula, check_float, larger, vector_elements
from mimdsim.validation.reference_table import MOST_WHOLE, Asked, Cells, Fields, ReferenceTable, around

OPERATIONS = ("ADD", "SUBTRACT", "AXPLUSBY", "AXMINUSBY")


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
    if op not in OPERATIONS:
        raise NoCycleFormula("scaled arithmetic", op, OPERATIONS)
    check_float(dtype, "scaled arithmetic")
    per_vector = vector_elements(dtype, vector_bytes)
    vectors, rest = divmod(n, per_vector)
    each, extra = divmod(vectors, worker_contexts)
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

    of_halves = (rest > 0) * 5 + (rest >= 2) * 7 + (rest == 3) * 6
    tail = (rest > 0) * (5 if wide else 8) if dtype == "f32" else of_halves
    # +1: the context after the last one with an extra vector asks whether a remainder is left.
    slowest = worker(each) + 1 + tail
    if not as_vendor:
        slowest = larger(slowest, worker(each + 1 * (extra > 0)))
    fixed = 21 + elementwise.SUPERVISOR_CYCLES + 7 + 12
    if not constant_scale:
        fixed += 6 + {"AXPLUSBY": 12, "SUBTRACT": 7}.get(op, 0)  # 6: setzi and branch around the constant
    remainder = (rest > 0) * 6  # the branch around the remainder is not taken
    return fixed + remainder + worker_contexts * slowest


def dot_product_cycles(size: int, *, dtype: str = "f16", partials_dtype: str = "f16", vector_bytes: int = 8) -> int:
    """Worker cycles of one dot product of `size` elements; for f16 with f16 partials, of the pair made at a time."""
    check_float(dtype, "dot product")
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
    cleared = dense.zero_partials_pass_cycles(
        0 if half else zeroed_elements,
        groups=out_groups * conv_groups,
        partials_dtype=partials_dtype,
        worker_contexts=worker_contexts,
        vector_bytes=vector_bytes,
    )
    return setup + loops + cleared


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
            found = int(text)
        except ValueError:
            raise MimdsimError(f"parameter '{name}' must be an integer, not '{shortened(text)}'") from None
        if abs(found) >= MOST_WHOLE:
            raise MimdsimError(f"parameter '{name}' must be below 2^53, not {shortened(text)}")
        return found

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


def _value(p: VendorParams, text: str) -> int | list[int]:
    """A parameter as the table below writes it: "n", "n=1" or "n=m" with a number or another one where it is missing,
    "n?" a flag, "n|" several."""
    name, has_default, default = text.partition("=")
    if name.endswith("?"):
        return p.flag(name[:-1])
    if name.endswith("|"):
        return p.counts(name[:-1])
    if not has_default:
        return p.count(name)
    return p.count(name, int(default) if default.isdigit() else p.count(default))


def _of(
    function: Callable[..., Elements],
    parameters: str,
    *,
    op: bool = False,
    ops: tuple[str, ...] = (),
    edge: bool = False,
    formats_as: tuple[str, ...] | None = None,
    **named: str | bool,
) -> Formula:
    """The function of these parameters, and by keyword of others; texts are parameters, what is not is passed on.

    op: whether it takes the operation; ops: which there are, where it does not say; edge: whether the template is the
    edges of a block, of which it takes one. formats_as: keywords for the one or two formats; None: `dtype` for both.
    """

    def formula(operation: str, dtype: str, p: VendorParams) -> Elements:
        if ops and operation not in ops:
            raise NoCycleFormula(function.__name__, operation, ops)
        given = [_value(p, text) for text in parameters.split()]
        more: dict[str, Any] = {name: _value(p, one) if isinstance(one, str) else one for name, one in named.items()}
        more |= {"dtype": dtype} if formats_as is None else dict(zip(formats_as, formats(dtype), strict=False))
        if edge:
            more["block"] = VendorParams(block=operation.partition("x")[0]).count("block")
        return function(*given, **more, **({"op": operation} if op else {}))

    return formula


def _scaled(op: str) -> Formula:
    function = partial(scaled_add_1d_cycles, op=op, as_vendor=True)
    return _of(function, "n", formats_as=("dtype",), memory_constrained="memConstrained?", constant_scale="isConstant?")


def _slice_2d(op: str, dtype: str, p: VendorParams, *, update: bool) -> Elements:
    regions = p.counts("regions" if "regions" in p else "regionSize") * p.count("numRegions", 1)
    return reductions.dynamic_slice_2d_cycles(regions, p.count("numSubElements"), dtype=dtype, update=update)


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


def _amp(dtype: str, p: VendorParams) -> dict[str, Any]:
    """What convolutions on the matrix units have in common."""
    data, sums = formats(dtype)
    return {
        "conv_groups": p.count("numConvGroups", 1),
        "in_groups": p.count("numInGroups", 1),
        "out_groups": p.count("numOutGroups", 1),
        "out_channels_per_group": p.count("outChansPerGroup"),
        "in_channels_per_group": p.count("inChansPerGroup", 16 if data == "f16" else 8),
        "dtype": data,
        "partials_dtype": sums,
        # Half inputs with float partials are limited by the store of the partials to eight units.
        "conv_units": p.count("convUnits", 8 if (data, sums) == ("f16", "f32") else 16),
        "load_bytes_per_cycle": p.count("coeffBytesPerCycle", 8),
    }


def _conv_nx1(op: str, dtype: str, p: VendorParams) -> Elements:
    outer, _, inner = p.get("kernel", "1x1").partition("x")
    kernel = VendorParams(outer=outer, inner=inner)
    height = p.count("filterHeight", 1)
    return dense.amp_nx1_cycles(
        [[p.count("rowLen")] * p.count("rowsPerWorker")] * 6,
        kernel_outer=-(-kernel.count("outer") // height),
        kernel_inner=kernel.count("inner"),
        filter_height=height,
        zeroed_elements=p.count("zeroedElems", 0),
        **_amp(dtype, p),
    )


def _sparse(function: Callable[..., int], **fixed: Any) -> Formula:
    return _of(function, "numX numZ numY", formats_as=("dtype",), buckets="buckets=1", subgroups="subgroups=1", **fixed)


# By name without template arguments; those reach the formula as its first argument.
FORMULAS: dict[str, Formula] = {
    **{
        f"popops::{name}{in_place}": _of(function, parameters, op=True, in_place=bool(in_place))
        for name, function, parameters in (
            ("BinaryOp1D", elementwise.binary_1d_cycles, "n"),
            ("BinaryOp2D", elementwise.binary_2d_cycles, "rows|"),
            ("BroadcastScalar1D", elementwise.broadcast_scalar_1d_cycles, "n"),
            ("BroadcastScalar2DData", elementwise.broadcast_scalar_2d_cycles, "rows|"),
            ("UnaryOp1D", elementwise.unary_1d_cycles, "n"),
            ("UnaryOp2D", elementwise.unary_2d_cycles, "rows|"),
        )
        for in_place in ("", "InPlace")
    },
    "popops::BroadcastClamp": _of(elementwise.clamp_cycles, "rows|"),
    "popops::BroadcastSelect": _of(elementwise.broadcast_select_cycles, "rows|"),
    "popops::BroadcastVectorInner1D": _of(
        elementwise.bias_add_cycles, "broadcastFactor bLen", ops=("ADD", "SUBTRACT"), slices="bSlices=1"
    ),
    **{
        f"popops::BroadcastVectorOuterBy{name}1D{in_place}": _of(
            function, "rows cols", op=True, misaligned="misaligned?"
        )
        for name, function in (
            ("Column", elementwise.broadcast_outer_by_column_cycles),
            ("Row", elementwise.broadcast_outer_by_row_cycles),
        )
        for in_place in ("", "InPlace")
    },
    "popops::Cast1D": _of(elementwise.cast_1d_cycles, "n", formats_as=("source", "target")),
    "popops::Cast2D": _of(elementwise.cast_2d_cycles, "rows|", formats_as=("source", "target")),
    "popops::Clamp": _of(elementwise.clamp_cycles, "rows|"),
    "popops::DynamicSlice1D": _of(reductions.dynamic_slice_1d_cycles, "regionSize numSubElements"),
    "popops::DynamicSlice2D": partial(_slice_2d, update=False),
    "popops::DynamicUpdateSlice1D": _of(reductions.dynamic_slice_1d_cycles, "regionSize numSubElements"),
    "popops::DynamicUpdateSlice2D": partial(_slice_2d, update=True),
    "popops::EncodeOneHot": _of(network.one_hot_cycles, "n=numIndices"),
    "popops::Fill": _of(elementwise.fill_cycles, "n"),
    "popops::HasNaNOrInf1D": _of(
        network.nan_check_1d_cycles,
        "sizeIn8BytesPerWorker",
        extra_vector_workers="remWorkerId=0",
        rest="remExtras=0",
        infinities="checkInf?",
    ),
    "popops::HeapSortVertex": _of(network.heap_sort_cycles, "n", formats_as=()),
    "popops::HeapSortVertexKV": _of(network.heap_sort_cycles, "n", formats_as=(), key_and_value=True),
    **{
        name: _of(
            reductions.multi_slice_cycles,
            "elemsPerSlice numOffsets",
            in_range="inRange=numOffsets",
            update=update,
            sorted_indices="sorted?",
            split_single_region="splitSingleRegion?",
        )
        for name, update in (("popops::MultiSlice", False), ("popops::MultiUpdate", True))
    },
    "popops::MultiUpdateOp": partial(_scatter, scaled=False),
    "popops::Reduce": _reduce,
    "popops::ScaledAddSupervisor": _scaled("ADD"),
    "popops::ScaledMultiUpdateOp": partial(_scatter, scaled=True),
    "popops::ScaledSubtractSupervisor": _scaled("SUBTRACT"),
    "popops::Select": _of(elementwise.select_cycles, "rows|", formats_as=()),
    "popops::aXMinusbYSupervisor": _scaled("AXMINUSBY"),
    "popops::aXPlusbYSupervisor": _scaled("AXPLUSBY"),
    "poplin::ConvPartial1x1Out": lambda _, dtype, p: dense.amp_1x1_cycles(p.count("positions"), **_amp(dtype, p)),
    "poplin::ConvPartialHorizontalMac": _of(
        horizontal_mac_cycles,
        "convSizePerWorker",
        formats_as=("dtype", "partials_dtype"),
        in_channels_per_group="inChansPerGroup",
        out_channels_per_group="outChansPerGroup",
        kernel="kernel=1",
        zeroed_elements="zeroedElems=0",
    ),
    "poplin::ConvPartialnx1": _conv_nx1,
    "poplin::OuterProduct": _of(dense.outer_product_cycles, "width numChannels chansPerGroup"),
    "poplin::ReduceAdd": _of(
        reductions.reduce_add_cycles,
        "numOutputs numPartials",
        formats_as=("dtype", "out_dtype"),
        single_input="singleInput?",
        interleaved="interleaved?",
    ),
    "popnn::NonLinearityGrad1D": _of(network.nonlinearity_gradient_1d_cycles, "n", op=True),
    "popnn::ReduceMaxClassGather": _of(network.arg_max_cycles, "size workerSize"),
    "poprand::Bernoulli": _of(network.bernoulli_cycles, "n", as_vendor=True),
    "poprand::Dropout": _of(network.dropout_cycles, "n"),
    "poprand::Normal": _of(network.normal_cycles, "n"),
    "poprand::Uniform": _of(network.uniform_cycles, "n", as_vendor=True),
    "popsparse::SparseDenseMatMulBlock": _of(
        sparse.sparse_dense_block_cycles,
        "numXBlocks numZ numYBlocks",
        edge=True,
        formats_as=("dtype", "partials_dtype"),
        conv_units="convUnits=16",
        buckets="buckets=1",
        subgroups="subgroups=1",
    ),
    "popsparse::SparseDenseMatMulElementWise": _sparse(sparse.sparse_dense_elementwise_cycles),
    "popsparse::SparseDenseMatMulElementWiseTranspose": _sparse(sparse.sparse_dense_transposed_cycles),
    "popsparse::SparseDenseMatMulGradAElementWise": _sparse(sparse.sparse_dense_elementwise_cycles, gradient_a=True),
    "popsparse::SparseDenseMatMulGradWElementWise": _sparse(sparse.sparse_gradient_w_cycles),
    "popsparse::SparseGatherElementWise": _of(sparse.sparse_gather_cycles, "numIndices", formats_as=("dtype",)),
    "popsparse::Transpose(half/float)": _of(sparse.transpose_cycles, "numTransposes rows cols"),
}


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


def _vendor_row(row: Cells, _asked: Asked) -> Iterator[Fields]:
    name, unit = f"{row['codelet']} {row['dtype']} {row['params']}", f"{row['scope']} cycles"
    yield row.figure(name, unit, row.number("cycles"), 0.01, unit)
    try:
        parameters = dict(part.split("=", 1) for part in row["params"].split(";") if part)
        cycles = vendor_cycles(row["codelet"], row["dtype"], parameters)
    except ValueError:
        raise MimdsimError(f"params '{row['params']}' are not key=value;...") from None
    except ArithmeticError as failure:  # a count of units or bytes that is 0
        raise MimdsimError(f"the formula has no result for params '{row['params']}' ({failure})") from None
    if cycles is None:
        raise MimdsimError("no formula for this codelet")
    yield around(float(cycles), 0.0)


VENDOR_CODELETS = ReferenceTable(
    needed={"codelet", "scope", "dtype", "params", "cycles"}, also={"vendor_source"}, read_row=_vendor_row, on=""
)
