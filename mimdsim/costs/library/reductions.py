"""Cycles of the popops reductions, one worker context each, and of poplin's partial-sum addition on all contexts.

Sources: lib/popops/reduction/CycleEstimationFunctions.cpp; ReduceAdd: lib/poplin/PerformanceEstimation.hpp,
graphcore/poplibs 7eac0f2.
"""

from __future__ import annotations

import math

from mimdsim.costs.library.arithmetic import Elements, NoCycleFormula, ceil_div, ceil_log2, vector_elements

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


def reduce_regions_cycles(
    regions: list[tuple[int, list[int]]],
    *,
    op: str = "ADD",
    dtype: str = "f32",
    out_dtype: str = "f32",
    update: bool = False,
    vector_bytes: int = 8,
) -> int:
    """Worker cycles of the general reduction: `regions` pairs each output length with the lengths of its partials."""
    _check(op, VECTORISED)
    adds = op in ACCUMULATING
    widest = _widest(op, dtype, vector_bytes)
    path = vector_elements(dtype, vector_bytes)
    out_path = vector_elements(out_dtype, vector_bytes)
    checks = ceil_log2(widest)

    def store(width: int) -> int:
        # The first value leaves the accumulators one cycle late.
        return (2 + update) * min(width, out_path) + adds

    total = 7 + 3 + 23  # entry and exit; load the vertex's state
    per_load = (2 if adds else 0) + 2 + max(1, widest // path)  # call, check alignment, load
    for outputs, partials in regions:
        vectors, rest = divmod(outputs, widest)
        total += 24 + 2 * checks  # 16 set up, 6 split off the remainder, 2 end of loop
        total += vectors * ((5 if adds else 3) + store(widest) + 1 + len(partials) * 10)
        lengths = sum(length // outputs for length in partials)
        total += vectors * lengths * (per_load + 3)
        for bit in range(checks):
            width = 1 << bit
            if rest & width:
                total += (4 if adds else 2) + store(width) + len(partials) * 10
                total += lengths * (2 + width // min(width, path) + 3)
    return total


def reduce_add_cycles(
    outputs: int,
    partials: int,
    *,
    dtype: str = "f32",
    out_dtype: str = "f32",
    single_input: bool = False,
    interleaved: bool = False,
    worker_contexts: int = 6,
    vector_bytes: int = 8,
) -> int:
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
    tail = outputs % widest
    loops, uneven = divmod(outputs // widest + tail.bit_count(), worker_contexts)
    worker = 32
    if uneven and tail:
        worker += 2 * partials + (13 if dtype == "f32" else 11)  # the last round handles only short pieces
    elif uneven:
        loops += 1
    return worker_contexts * (worker + (per_partial * partials + finish) * loops)
