"""Cycles of the popops vector broadcasts: a vector along the outer dimension, and a bias along the inner one.

Source: lib/popops/popopsCycleEstimators.cpp, graphcore/poplibs 7eac0f2. Counts may be integers or integer arrays.
"""

from __future__ import annotations

from mimdsim.costs.library import operation_costs as costs
from mimdsim.costs.library.arithmetic import (
    Elements,
    NoCycleFormula,
    ceil_div,
    truncated_loop_cycles,
    vector_elements,
)
from mimdsim.costs.library.elementwise import SUPERVISOR_CYCLES


def _outer_loop_cycles(n: Elements, op: str, dtype: str, interleaved: bool, vector_bytes: int) -> Elements:
    if op not in costs.ASSEMBLY_OPERATIONS or dtype not in ("f32", "f16"):
        raise NoCycleFormula("broadcast of an outer vector", f"{op} {dtype}", ["ADD f32", "MULTIPLY f16"])
    # One operation with its load, and a store unless interleaved memory allows both at once.
    return truncated_loop_cycles(n, 1 if interleaved else 2, vector_elements(dtype, vector_bytes))


def broadcast_outer_by_row_cycles(
    rows: Elements,
    columns: Elements,
    *,
    op: str = "ADD",
    dtype: str = "f32",
    misaligned: bool = False,
    interleaved: bool = False,
    worker_contexts: int = 6,
    vector_bytes: int = 8,
) -> Elements:
    """Tile cycles of a[r, :] op b[r] with whole rows dealt to the contexts (BroadcastVectorOuterByRow1D[InPlace])."""
    loop = _outer_loop_cycles(columns, op, dtype, interleaved, vector_bytes)
    each_row = (25 if misaligned else 7) + loop
    return SUPERVISOR_CYCLES + worker_contexts * (15 + ceil_div(rows, worker_contexts) * each_row)


def broadcast_outer_by_column_cycles(
    rows: Elements,
    columns: Elements,
    *,
    op: str = "ADD",
    dtype: str = "f32",
    misaligned: bool = False,
    interleaved: bool = False,
    worker_contexts: int = 6,
    vector_bytes: int = 8,
) -> Elements:
    """Tile cycles of a[r, :] op b[r] with each row's columns shared (BroadcastVectorOuterByColumn1D[InPlace])."""
    loop = _outer_loop_cycles(ceil_div(columns, worker_contexts), op, dtype, interleaved, vector_bytes)
    return SUPERVISOR_CYCLES + worker_contexts * (15 + rows * ((25 if misaligned else 7) + loop))


def _bias_core_f32_cycles(length: int, blocks: Elements) -> Elements:
    # 7 = test, setup and return; for each bias element 8 around a two-bundle loop over the blocks.
    return 2 + (5 + length * (8 + 2 * blocks)) * (blocks > 0)


def _bias_core_f16_cycles(length: int, blocks: Elements) -> Elements:
    scalar = length * (5 + 9 * blocks) + 6  # 9 is the mean of aligned (8) and misaligned (10) passes
    if length > 2048:
        busy: Elements = 3 + scalar  # too long for the accumulator paths
    elif length % 8 == 0:
        loops = length // 8  # two vectors per pass, as the accumulators are read one pass late
        many = 12 + loops * (15 + 2 * (blocks - 1))
        busy = many + (11 + 7 * loops - many) * (blocks == 1)
    else:
        few = 7 + scalar  # fewer than two blocks: one test fewer, and the scalar loop
        paired = 15 + (length // 4) * (13 + 2 * (blocks // 2 - 1) + blocks % 2)
        many = paired if length % 4 == 0 else 9 + scalar
        busy = many + (few - many) * (blocks < 2)
    return 1 + (busy - 1) * (blocks > 0)


def bias_add_cycles(
    factor: Elements, length: int, *, dtype: str = "f32", slices: int = 1, worker_contexts: int = 6
) -> Elements:
    """Tile cycles of a[k, :] + bias, `factor` repeats of a bias of `length` elements (BroadcastVectorInner1D<ADD>).

    `slices` biases are added in turn, each to `factor` repeats.
    """
    blocks = ceil_div(factor, worker_contexts)
    if dtype == "f32":
        worker: Elements = 17
        core = _bias_core_f32_cycles(length, blocks)
    elif dtype == "f16":
        # An odd length: contexts round their blocks so that no two share a 32-bit word.
        worker = 19 + (7 if length % 2 else 0)
        core = _bias_core_f16_cycles(length, blocks)
    else:
        raise NoCycleFormula("bias addition", dtype, ["f32", "f16"])
    worker = worker + slices * ((17 if slices > 1 else 0) + core)
    # 13 = setzi 1, runall 6, br 6; +6 for another supervisor branch; +3 for a preamble in each worker.
    return 13 + 6 + worker_contexts * (worker + 3)
