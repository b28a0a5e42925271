"""Cycles of the popops reductions, one worker context each, and of poplin's partial-sum addition on all contexts.

Sources: lib/popops/reduction/CycleEstimationFunctions.cpp; ReduceAdd: lib/poplin/PerformanceEstimation.hpp,
graphcore/poplibs 7eac0f2.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from mimdsim.costs.library.arithmetic import (
    Elements,
    NoCycleFormula,
    ceil_div,
    ceil_log2,
    element_bytes,
    vector_elements,
)
from mimdsim.costs.library.elementwise import SUPERVISOR_CYCLES

ACCUMULATING = ("ADD", "SQUARE_ADD")
VECTORISED = (*ACCUMULATING, "MAX", "MIN", "MUL")


def accumulator_elements(dtype: str) -> int:
    """Elements that one accumulate instruction adds: 128 bits of halves or floats, otherwise one element."""
    return {"f16": 8, "f32": 4}.get(dtype, 1)


def _widest(op: str, dtype: str, vector_bytes: int) -> int:
    # Only sums go through the accumulators; the others work on plain vectors.
    return accumulator_elements(dtype) if op in ACCUMULATING else vector_elements(dtype, vector_bytes)


def _check(op: str, known: tuple[str, ...]) -> None:
    if op not in known:
        raise NoCycleFormula("reduction", op, known)


def reduce_strided_cycles(
    outputs: Elements,
    partials: int,
    *,
    stride: int,
    outer_strides: int = 1,
    op: str = "ADD",
    dtype: str = "f32",
    out_dtype: str = "f32",
    update: bool = False,
    vector_bytes: int = 8,
) -> Elements:
    """Worker cycles to reduce `partials` rows, `stride` elements apart, to `outputs` elements (STRIDED_REDUCE)."""
    _check(op, ("ADD", "MAX", "MIN"))
    path = vector_elements(dtype, vector_bytes)
    widest = accumulator_elements(dtype)
    per_loop = math.gcd(min(widest, path), stride)  # the next row must start aligned
    # Empty the accumulators, convert and store; an update also loads, adds and stores again.
    if dtype == "f16" and op == "ADD":
        finish = {("f16", False): 8, ("f16", True): 10, ("f32", False): 7, ("f32", True): 12}[out_dtype, update]
    elif dtype == "f16":
        finish = 11 if update else 8
    else:
        finish = (5 if op == "ADD" else 4) + ((3 if out_dtype == "f32" else 2) if update else 0)
    each = 3 + finish + outer_strides * (3 + (partials - 1))
    return 16 + ceil_div(outputs, per_loop) * each


def reduce_to_scalar_cycles(
    partials: Elements, *, op: str = "ADD", dtype: str = "f32", out_dtype: str = "f32", vector_bytes: int = 8
) -> Elements:
    """Worker cycles to reduce one contiguous row to one element (SCALAR_OUTPUT_SINGLE_INPUT)."""
    _check(op, VECTORISED)
    widest = _widest(op, dtype, vector_bytes)
    loads = max(1, widest // vector_elements(dtype, vector_bytes))
    # 17 = entry 1, checks 6, remainder and accumulators 5 + 3, store and exit 2.
    cycles = 17 + loads * partials // widest + partials % widest
    return cycles + (0 if out_dtype == "f32" else 5)


def reduce_contiguous_cycles(
    outputs: Elements, partials: int, *, dtype: str = "f32", update: bool = False, vector_bytes: int = 8
) -> Elements:
    """Worker cycles to reduce `outputs` contiguous rows of `partials` elements each (ALL_REGIONS_CONTINUOUS).

    The vendor gives its own estimator the number of outputs minus one; pass that here to repeat its figures.
    """
    per_loop = min(accumulator_elements(dtype), vector_elements(dtype, vector_bytes))
    # 12 around each row's loop; 2 for an odd last element; 17 = 10 setup and 7 call and return.
    return outputs * (partials // per_loop + 12) + (2 if partials % 2 else 0) + 17 + (1 if update else 0)


def reduce_add_cycles(
    outputs: Elements,
    partials: int,
    *,
    dtype: str = "f32",
    out_dtype: str = "f32",
    single_input: bool = False,
    interleaved: bool = False,
    worker_contexts: int = 6,
    vector_bytes: int = 8,
) -> Elements:
    """Tile cycles to add `partials` vectors of `outputs` elements, as after a split matrix product (ReduceAdd).

    `single_input`: the partials are contiguous; `interleaved`: in memory that loads twice as much per cycle.
    """
    if dtype not in ("f32", "f16") or out_dtype not in ("f32", "f16"):
        raise NoCycleFormula("ReduceAdd", f"{dtype}->{out_dtype}", ["f32->f32", "f16->f32", "f32->f16", "f16->f16"])
    widest = accumulator_elements(dtype)
    path = vector_elements(dtype, vector_bytes)
    # Store and loop: halves unpack more accumulators; a float result takes one more store.
    finish = (7 if dtype == "f32" else 9) + (out_dtype == "f32")
    if single_input:
        per_partial = max(1, widest // (path * (2 if interleaved else 1)))
        loops = -(-(outputs // widest) // worker_contexts)
        return 33 + worker_contexts * (20 + (per_partial * partials + finish) * loops)
    finish -= 1
    per_partial = max(1, widest // path) + 1  # +1: load the next partial's pointer
    tail = outputs % widest  # below 8: a piece for each of its bits
    loops, uneven = divmod(outputs // widest + (tail & 1) + (tail >> 1 & 1) + (tail >> 2), worker_contexts)
    short = (uneven > 0) & (tail > 0)
    worker = 32 + short * (2 * partials + (13 if dtype == "f32" else 11))  # the last round handles only short pieces
    loops = loops + ((uneven > 0) & (tail == 0))
    return worker_contexts * (worker + (per_partial * partials + finish) * loops)


def _copy_width(dtype: str, vector_bytes: int) -> int:
    # Bytes go four at a time; 64-bit elements are copied as pairs of 32-bit ones.
    size = element_bytes(dtype)
    return 4 if size == 1 else vector_bytes // min(size, 4)


def dynamic_slice_1d_cycles(
    region: Elements, sub_elements: Elements, *, dtype: str = "f32", worker_contexts: int = 6, vector_bytes: int = 8
) -> Elements:
    """Tile cycles to copy `sub_elements` rows of `region` elements from or to an offset known only at run time.

    DynamicSlice1D and DynamicUpdateSlice1D cost the same.
    """
    size = element_bytes(dtype)
    each = ceil_div(region * (2 if size == 8 else 1), worker_contexts)
    copies = each // _copy_width(dtype, vector_bytes)
    # Bytes need their alignment sorted out first; then each vector takes two bundles, a load and a store.
    entry, each_row = (76, 72) if size == 1 else (39, 24)
    worker = entry + sub_elements * (each_row + 2 * copies)
    # +14: start the workers (1 + 6) and wait for them (1 + 6).
    return SUPERVISOR_CYCLES + 14 + worker_contexts * worker


def dynamic_slice_2d_cycles(
    regions: Iterable[Elements],
    sub_elements: Elements,
    *,
    dtype: str = "f32",
    update: bool = False,
    vector_bytes: int = 8,
) -> Elements:
    """Worker cycles to copy `sub_elements` rows of each region (DynamicSlice2D; `update`: DynamicUpdateSlice2D)."""
    total: Elements = 27
    size = element_bytes(dtype)
    for region in regions:
        vectors = ceil_div(region * (2 if size == 8 else 1), _copy_width(dtype, vector_bytes))
        if size == 1:
            each = 50 + (23 if update else 2) * vectors
        elif size == 2:
            each = 31 + 2 * vectors
        else:
            each = 29 + (1 if update and size == 8 else 0) + vectors
        total = total + each * sub_elements + 13
    return total


def _binary_search_cycles(offsets: int, repeats_per_entry: int) -> int:
    # Lower and upper bound at 10 per halving, 7 + 8 for each repeated entry, 4 + 5 around them.
    return 2 * ceil_log2(offsets) * 10 + repeats_per_entry * (7 + 8) + 9


def multi_slice_cycles(
    elements: Elements,
    offsets: int,
    *,
    in_range: Elements | None = None,
    dtype: str = "f32",
    update: bool = False,
    sorted_indices: bool = False,
    repeats_per_entry: int = 0,
    split_single_region: bool = False,
    worker_contexts: int = 6,
    vector_bytes: int = 8,
) -> Elements:
    """Tile cycles to gather (or, with `update`, overwrite) rows of `elements` elements at `offsets` indices.

    `in_range`: indices that the busiest context copies; by default all of them, the vendor's worst case, in which the
    others are idle. `sorted_indices` finds them by binary search and never looks at the rest.
    """
    size = element_bytes(dtype)
    if size == 8:
        raise NoCycleFormula("multi slice", dtype, ["f32", "f16", "u8"])
    # Halves are copied 32 bits at a time, as the aligned 64-bit path cannot be assumed for them.
    width, per_vector = {1: (4, 3), 2: (2, 2), 4: (vector_bytes // 4, 2)}[size]
    vectors = ceil_div(elements, width)
    if split_single_region:
        vectors = ceil_div(vectors, worker_contexts)
    hits: Elements = offsets if in_range is None else in_range
    misses: Elements = 0 if sorted_indices else offsets - hits
    search = _binary_search_cycles(offsets, repeats_per_entry) + 20 if sorted_indices else 0
    worker = (29 if update else 30) + hits * (19 + per_vector * vectors) + 8 * misses + search
    return worker_contexts * worker


def scatter_add_cycles(
    elements: Elements,
    offsets: int,
    *,
    in_range: Elements | None = None,
    op: str = "ADD",
    dtype: str = "f32",
    scaled: bool = False,
    scale_dtype: str | None = None,
    sorted_indices: bool = False,
    repeats_per_entry: int = 0,
    subword_writes: bool = False,
    worker_contexts: int = 6,
    atomic_bytes: int = 4,
) -> Elements:
    """Tile cycles to combine rows of `elements` elements into a table at `offsets` indices.

    MultiUpdateOp, or ScaledMultiUpdateOp with `scaled`. `in_range`: indices that fall on the busiest context, by
    default all. `subword_writes`: rows do not fill whole words of `atomic_bytes`, and each element is merged alone.
    """
    size = element_bytes(dtype)
    if size not in (2, 4):
        raise NoCycleFormula("scatter-add", dtype, ["f32", "f16", "i32"])
    full = size == 4
    wider_scale = scaled and scale_dtype is not None and element_bytes(scale_dtype) > size
    overhead = 3 + (29 if full else 30)  # 3: load the length, test it for zero, exit
    if scaled:
        overhead += 6 if full else 4  # load the scales, test the region's size
    if sorted_indices:
        overhead += _binary_search_cycles(offsets, repeats_per_entry) + 15
    # Around the inner loop; half needs one more to broadcast the scale.
    outer = 11 if full else 12 + scaled
    special: Elements = 0
    if subword_writes:
        per_hit: Elements = outer + 20 * elements
    else:
        # Load the base, multiply with the next load, add with the store: three bundles per word.
        words = elements // max(1, atomic_bytes // size)
        per_hit = outer + (words - 1) * (3 + wider_scale)
        if scaled and op == "ADD":
            # One or two 64-bit vectors have their own unrolled code, one cycle shorter to enter.
            short = {2: 8, 4: 16} if full else {4: 12 if wider_scale else 9}
            for count, cycles in short.items():
                per_hit = per_hit + (cycles - per_hit) * (elements == count)
                special = special + 1 * (elements == count)
    hits: Elements = offsets if in_range is None else in_range
    misses: Elements = 0 if sorted_indices else offsets - hits
    return worker_contexts * (overhead - special + hits * per_hit + 5 * misses)
