"""Cycles of poplin's codelets that multiply and add without the matrix unit: horizontal and vertical MAC.

Source: lib/poplin/PerformanceEstimation.hpp, graphcore/poplibs 7eac0f2.
"""

from __future__ import annotations

from mimdsim.costs.library.arithmetic import NoCycleFormula, vector_elements
from mimdsim.costs.library.dense import zero_partials_pass_cycles


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
