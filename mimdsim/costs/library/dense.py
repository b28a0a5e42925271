"""Cycles of poplin's matrix-unit (AMP) codelets 1x1 and nx1, and of the outer product.

Source: lib/poplin/PerformanceEstimation.hpp, graphcore/poplibs 7eac0f2; where `assembler` is asked for, the loops of
1x1 as they are written, every bundle counted (lib/poplin/codelets/asm/conv_partial_1x1_float_float_16.S and
conv_partial_1x1_half_float_8_and_half_half_h16.S of the same commit). In a pass of three positions a context and more,
the estimates have 6 bundles too few in f32 and 4 too many in f16.

"Position" is one output point (for a matrix product: one row of the batch). Input channels per group are the depth of
the matrix unit: 16 halves or 8 floats.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from mimdsim.costs.library.arithmetic import check_float, vector_elements


def weight_load_cycles(
    conv_units: int,
    in_channels_per_group: int,
    element_size_bytes: int,
    load_bytes_per_cycle: int,
    filter_height: int = 1,
) -> int:
    """Supervisor cycles to load the weights of one pass into all units; four-high filters never use the wide load."""
    if filter_height == 4 and load_bytes_per_cycle > 8:
        load_bytes_per_cycle //= 2
    return conv_units * in_channels_per_group * element_size_bytes // load_bytes_per_cycle


@dataclass(frozen=True, kw_only=True)
class _Loop:
    """Bundles of a loop of 1x1: with 0, 1, 2 and 3 positions, for each further one, and more to set sums to zero first;
    once in a launch, and at every new group of inputs."""

    starts: tuple[int, int, int, int]
    each: int
    cleared: tuple[int, int]  # once, and for each position
    first_call: int
    each_group: int

    def bundles(self, positions: int, zeroing: bool) -> int:
        once, each = self.cleared if zeroing and positions else (0, 0)
        return self.starts[min(positions, 3)] + self.each * max(positions - 3, 0) + once + each * positions


_FLOATS = _Loop(starts=(9, 44, 50, 52), each=8, cleared=(2, 8), first_call=8, each_group=3)
_HALVES = _Loop(starts=(12, 26, 28, 27), each=4, cleared=(0, 0), first_call=12, each_group=2)
_HALVES_SET = replace(_HALVES, starts=(10, 24, 25, 26))  # a path of its own that loads no sums


def _loop(zeroing: bool, dtype: str, partials_dtype: str, conv_units: int) -> _Loop | None:
    """The loop as it is written, None where it was not counted: narrower units than Mk2's."""
    if dtype == "f32":
        return _FLOATS if conv_units == 16 else None
    common = conv_units == 16 or partials_dtype == "f32"
    return (_HALVES_SET if zeroing else _HALVES) if common else None


def amp_1x1_worker_cycles(
    positions: int,
    *,
    zeroing: bool,
    dtype: str = "f16",
    partials_dtype: str = "f16",
    conv_units: int = 16,
    assembler: bool = False,
) -> int:
    """Worker cycles for one context's positions in one pass; `zeroing` starts the partial sums instead of adding.
    assembler: as it is written instead of as the vendor estimates it, where it was counted."""
    check_float(dtype, "matrix unit")
    loop = _loop(zeroing, dtype, partials_dtype, conv_units) if assembler else None
    if loop is not None:
        return loop.bundles(positions, zeroing)
    floats = dtype == "f32"
    if not floats and (conv_units == 16 or partials_dtype == "f32"):
        # The common path. Adding to sums costs one more than setting them; 7: state retained between calls.
        start = (20, 31, 40)[positions] if positions < 3 else 36 + 4 * (positions - 3)
        return start + (1 if zeroing else 2) - 7
    zero = (8 if conv_units == 16 else 4 if partials_dtype == "f32" else 2) if floats else 2
    clear = 2 + zero * positions if zeroing and positions else 0
    if floats:
        return ((24, 47, 46)[positions] if positions < 3 else 46 + 8 * (positions - 3)) + clear
    return ((24, 39, 40)[positions] if positions < 3 else 41 + 4 * (positions - 3)) + clear


def amp_1x1_cycles(
    positions: int,
    *,
    conv_groups: int = 1,
    in_groups: int = 1,
    out_groups: int = 1,
    out_channels_per_group: int = 16,
    in_channels_per_group: int = 16,
    dtype: str = "f16",
    partials_dtype: str = "f16",
    conv_units: int = 16,
    load_bytes_per_cycle: int = 8,
    worker_contexts: int = 6,
    assembler: bool = False,
) -> int:
    """Tile cycles of a matrix product on one tile (ConvPartial1x1Out); assembler: as of `amp_1x1_worker_cycles`."""
    half = dtype == "f16"
    common = (half and conv_units == 16) or partials_dtype == "f32"
    retained, retained_per_group = (7, 3) if half and common else (0, 0)
    loop = _loop(True, dtype, partials_dtype, conv_units) if assembler else None
    if loop is not None:
        retained, retained_per_group = loop.first_call + loop.each_group, loop.each_group
    shares = -(-positions // worker_contexts), positions // worker_contexts  # the largest and the smallest
    passes = -(-out_channels_per_group // conv_units)
    load = weight_load_cycles(conv_units, in_channels_per_group, 2 if half else 4, load_bytes_per_cycle)

    def inner(zeroing: bool) -> int:
        most, least = (
            worker_contexts
            * amp_1x1_worker_cycles(
                n,
                zeroing=zeroing,
                dtype=dtype,
                partials_dtype=partials_dtype,
                conv_units=conv_units,
                assembler=assembler,
            )
            for n in shares
        )
        return max(most, least + 14)  # the supervisor's own 14 cycles hide behind a context that ends early

    # First input group: sets the partial sums. 7 and 6: branch and start around a pass.
    first = 11 + out_groups * (19 - common + passes * (7 + load + inner(True)))
    # The others: add to them. +1: one more input channel group to count down.
    later = (in_groups - 1) * (15 - common + 1 + out_groups * (19 + passes * (6 + load + inner(False))))
    # The first call of each worker builds the state that later ones retain.
    setup = worker_contexts * (retained + retained_per_group * (in_groups * conv_groups - 1))
    return 50 + setup + conv_groups * (12 + common + first + later)


def zero_partials_pass_cycles(
    elements: int, *, groups: int = 1, partials_dtype: str = "f32", worker_contexts: int = 6, vector_bytes: int = 8
) -> int:
    """Tile cycles to clear `elements` partial sums of each group before the accumulation of nx1 and HMAC codelets."""
    vectors = -(-elements // (worker_contexts * vector_elements(partials_dtype, vector_bytes)))
    # 14 or 15 minus what workers retain (9 or 10): 5 either way.
    return (vectors + 5) * worker_contexts * groups


def amp_nx1_worker_cycles(
    rows: Sequence[int], *, dtype: str = "f16", partials_dtype: str = "f16", conv_units: int = 16
) -> int:
    """Worker cycles for one kernel position over rows of the given numbers of output positions."""
    check_float(dtype, "matrix unit")
    floats, float_partials = dtype == "f32", partials_dtype == "f32"
    # Full-width half paths need one more special stride for two positions.
    stride = 0 if floats else int(conv_units == (8 if float_partials else 16))
    total = 17 + (0 if float_partials else 1)
    for n in rows:
        if n < 3:
            busy = (17, 33, 44)[n] if floats else (17, 29, 33 + stride)[n]
        else:
            busy = 45 + 8 * (n - 3) if floats else 34 + 4 * (n - 3)
        total += 3 + busy - 9  # 3: pointers of the row; 9: state retained between calls
    return total


def amp_nx1_cycles(
    rows_by_worker: Sequence[Sequence[int]],
    *,
    kernel_outer: int = 1,
    kernel_inner: int = 1,
    filter_height: int = 1,
    conv_groups: int = 1,
    in_groups: int = 1,
    out_groups: int = 1,
    out_channels_per_group: int = 16,
    in_channels_per_group: int = 16,
    zeroed_elements: int = 0,
    dtype: str = "f16",
    partials_dtype: str = "f16",
    conv_units: int = 16,
    load_bytes_per_cycle: int = 8,
    worker_contexts: int = 6,
) -> int:
    """Tile cycles of a convolution by kernel position (ConvPartialnx1), the same rows at every position.

    `rows_by_worker` holds each context's row lengths; contexts left out are idle.
    """
    passes = out_channels_per_group // conv_units
    size = 4 if dtype == "f32" else 2
    load = weight_load_cycles(conv_units, in_channels_per_group, size, load_bytes_per_cycle, filter_height)
    # Input offsets for each filter row; +3: the pass's own loop.
    one_pass = load + {1: 15, 2: 46, 4: 60}.get(filter_height, 20 * filter_height) + 3
    workers = [
        worker_contexts * amp_nx1_worker_cycles(rows, dtype=dtype, partials_dtype=partials_dtype, conv_units=conv_units)
        for rows in rows_by_worker
    ]
    least = min(workers) if len(workers) == worker_contexts else 0
    busy = max(*workers, least + 9) * passes
    inner = kernel_outer * (14 + kernel_inner * (12 + passes * one_pass)) + busy * kernel_outer * kernel_inner
    # First calls build the state that later ones retain: 9 for the product, 9 or 10 for clearing.
    setup = worker_contexts * (9 + (9 if partials_dtype == "f32" else 10))
    # Supervisor loops that clear; a taken brnzdec stalls 6 cycles, the last one does not.
    clear_loops = conv_groups * (17 * out_groups + 6 * (out_groups - 1) + 1) + 6 * (conv_groups - 1) + 1
    loops = conv_groups * (16 + in_groups * (14 + out_groups * (14 + inner)))
    cleared = zero_partials_pass_cycles(
        zeroed_elements,
        groups=out_groups * conv_groups,
        partials_dtype=partials_dtype,
        worker_contexts=worker_contexts,
    )
    return 109 + setup + clear_loops + loops + cleared


def outer_product_cycles(width: int, channels: int, channels_per_group: int, *, dtype: str = "f32") -> int:
    """Worker cycles of an outer product of `width` by `channels` elements (OuterProduct)."""
    check_float(dtype, "matrix unit")
    groups = channels // channels_per_group
    vector, least, entry = (2, 6, 11) if dtype == "f32" else (4, 12, 10)
    grains = channels_per_group // vector
    # The fast path unrolls three vectors and needs the repeat count (12 bits) and the stride to fit their fields.
    fast = channels_per_group >= least and channels_per_group % vector == 0 and grains - 3 < 4096 and grains + 1 < 512
    if fast:
        row = 6 + (channels_per_group - least) // vector
    else:
        row = 10 + (2 * channels_per_group if dtype == "f32" else 5 * channels_per_group // 2)
    return 25 + groups * (entry + width * row)
