"""Formulas of library codelets that only published figures need: scaled additions and convolutions by dot products."""

from __future__ import annotations

from mimdsim.costs.library.arithmetic import (
    Elements,
    NoCycleFormula,
    check_float,
    larger,
    vector_elements,
)
from mimdsim.costs.library.dense import zero_partials_pass_cycles
from mimdsim.costs.library.elementwise import SUPERVISOR_CYCLES

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
    fixed = 21 + SUPERVISOR_CYCLES + 7 + 12
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
    cleared = zero_partials_pass_cycles(
        0 if half else zeroed_elements,
        groups=out_groups * conv_groups,
        partials_dtype=partials_dtype,
        worker_contexts=worker_contexts,
        vector_bytes=vector_bytes,
    )
    return setup + loops + cleared
