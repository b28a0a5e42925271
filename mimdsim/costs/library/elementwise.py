"""Cycles of the popops element-wise codelets: binary, unary, scalar broadcast, select and clamp.

Unless a docstring says otherwise the source is lib/popops/popopsCycleEstimators.cpp, graphcore/poplibs 7eac0f2.
`n` is an element count or an integer array of counts; `worker_contexts` is both the number of contexts that share the
work and the length of their round robin, since each context issues once per round.
"""

from __future__ import annotations

from collections.abc import Iterable

from mimdsim.costs.library import operation_costs as costs
from mimdsim.costs.library.arithmetic import (
    Elements,
    NoCycleFormula,
    ceil_div,
    check_float,
    element_bytes,
    truncated_loop_cycles,
    vector_elements,
)

# Supervisor part of every 1-D element-wise codelet: load the vertex, start the workers, wait and return.
SUPERVISOR_CYCLES = 11
# Two more instructions unpack the pointers when both are stored scaled.
SCALED_POINTER_CYCLES = 2


def _cost(table: costs.CostTable, op: str, dtype: str, where: str) -> costs.Cost:
    if op not in table:
        raise NoCycleFormula(where, op, table)
    if dtype not in table[op]:
        raise NoCycleFormula(f"{where} {op}", dtype, table[op])
    return table[op][dtype]


def _float_assembly(op: str, dtype: str) -> bool:
    return op in costs.ASSEMBLY_OPERATIONS and dtype in ("f32", "f16")


def _binary_loop_cycles(
    n: Elements, op: str, dtype: str, in_place: bool, interleaved: bool, vector_bytes: int
) -> Elements:
    table = costs.BINARY_IN_PLACE if in_place else costs.BINARY
    cycles, elements = _cost(table, op, dtype, "binary operation")
    if elements == costs.VECTOR:
        elements = vector_elements(dtype, vector_bytes)
        # Two separate loads besides the operation; interleaved memory lets an in-place loop load and store at once.
        cycles += (1 if in_place and interleaved else 2) if _float_assembly(op, dtype) else 5
    return ceil_div(n, elements) * cycles


def binary_1d_cycles(
    n: Elements,
    *,
    op: str = "ADD",
    dtype: str = "f32",
    in_place: bool = False,
    interleaved: bool = False,
    scaled_pointers: bool = False,
    worker_contexts: int = 6,
    vector_bytes: int = 8,
) -> Elements:
    """Tile cycles of out = a op b over `n` elements that all worker contexts share (BinaryOp1D, BinaryOp1DInPlace).

    Raises NoCycleFormula for an operation or format that the vendor's tables do not have.
    """
    # Worker prologue: longer for the in-place codelet, as calibrated by the vendor.
    prologue = 58 if in_place else (29 if dtype == "f32" else 26)
    loop = _binary_loop_cycles(ceil_div(n, worker_contexts), op, dtype, in_place, interleaved, vector_bytes)
    supervisor = SUPERVISOR_CYCLES + (SCALED_POINTER_CYCLES if scaled_pointers else 0)
    return supervisor + worker_contexts * (prologue + loop)


def binary_2d_cycles(
    rows: Iterable[Elements],
    *,
    op: str = "ADD",
    dtype: str = "f32",
    in_place: bool = False,
    interleaved: bool = False,
    vector_bytes: int = 8,
) -> Elements:
    """Worker cycles of out = a op b over rows of the given element counts (BinaryOp2D, BinaryOp2DInPlace)."""
    loops = (_binary_loop_cycles(n, op, dtype, in_place, interleaved, vector_bytes) for n in rows)
    return sum(loops, 20 if in_place else 5)


def _unary_loop_cycles(n: Elements, op: str, dtype: str, in_place: bool, vector_bytes: int) -> Elements:
    table = costs.UNARY_IN_PLACE if in_place else costs.UNARY
    cycles, elements = _cost(table, op, dtype, "unary operation")
    if elements > 0:
        return ceil_div(n, elements) * cycles
    # +4: load, store and loop decision, not in the table for vectors and single elements.
    per_pass = vector_elements(dtype, vector_bytes) if elements == costs.VECTOR else 1
    return truncated_loop_cycles(n, cycles + 4, per_pass)


def unary_1d_cycles(
    n: Elements,
    *,
    op: str,
    dtype: str = "f32",
    in_place: bool = False,
    worker_contexts: int = 6,
    vector_bytes: int = 8,
) -> Elements:
    """Tile cycles of out = op(a) over `n` elements that all worker contexts share (UnaryOp1D, UnaryOp1DInPlace)."""
    prologue = 55 if in_place else (33 if op == "EXPONENT" else 17)
    loop = _unary_loop_cycles(ceil_div(n, worker_contexts), op, dtype, in_place, vector_bytes)
    # +9: the vendor adds a supervisor call to the common supervisor part.
    return SUPERVISOR_CYCLES + 9 + worker_contexts * (prologue + loop)


def unary_2d_cycles(
    rows: Iterable[Elements], *, op: str, dtype: str = "f32", in_place: bool = False, vector_bytes: int = 8
) -> Elements:
    """Worker cycles of out = op(a) over rows of the given element counts (UnaryOp2D, UnaryOp2DInPlace)."""
    return sum((_unary_loop_cycles(n, op, dtype, in_place, vector_bytes) for n in rows), 20)


def _broadcast_loop_cycles(
    n: Elements, op: str, dtype: str, in_place: bool, interleaved: bool, uniform: bool, vector_bytes: int
) -> Elements:
    table = costs.BROADCAST_IN_PLACE if in_place else costs.BROADCAST
    cycles, elements = _cost(table, op, dtype, "scalar broadcast")
    if elements == costs.VECTOR:
        elements = vector_elements(dtype, vector_bytes)
        # One store besides the operation, none where interleaved memory serves load and store at once.
        store = (0 if in_place and interleaved else 1) if uniform and _float_assembly(op, dtype) else 4
        cycles += store
    return ceil_div(n, elements) * cycles


def broadcast_scalar_1d_cycles(
    n: Elements,
    *,
    op: str = "MULTIPLY",
    dtype: str = "f32",
    in_place: bool = False,
    interleaved: bool = False,
    worker_contexts: int = 6,
    vector_bytes: int = 8,
) -> Elements:
    """Tile cycles of out = a op scalar over `n` elements (BroadcastScalar1D, BroadcastScalar1DInPlace)."""
    each = ceil_div(n, worker_contexts)
    loop = _broadcast_loop_cycles(each, op, dtype, in_place, interleaved, True, vector_bytes)
    return SUPERVISOR_CYCLES + worker_contexts * (20 + loop)


def broadcast_scalar_2d_cycles(
    rows: Iterable[Elements],
    *,
    op: str = "MULTIPLY",
    dtype: str = "f32",
    in_place: bool = False,
    interleaved: bool = False,
    uniform_scalar: bool = True,
    vector_bytes: int = 8,
) -> Elements:
    """Worker cycles over rows; `uniform_scalar` False gives each row its own scalar (BroadcastScalar2D[Data])."""
    # +28: fetch the row's pointers and length and call the shared loop.
    loops = (_broadcast_loop_cycles(n, op, dtype, in_place, interleaved, uniform_scalar, vector_bytes) for n in rows)
    return sum((28 + loop for loop in loops), 20)


def select_cycles(rows: Iterable[Elements]) -> Elements:
    """Worker cycles of out = where(condition, a, b) over rows (Select)."""
    # Three loads, a conditional move and a store for each element; nothing is vectorised.
    return sum((6 + 5 * n for n in rows), 5)


def broadcast_select_cycles(rows: Iterable[Elements], *, dtype: str = "f32") -> Elements:
    """Worker cycles of out = where(condition, scalar, scalar) over rows (BroadcastSelect), the vendor's worst case."""
    entry_and_exit, size = 9 + 1, element_bytes(dtype)
    if size == 4:
        return sum((8 + 4 * n for n in rows), entry_and_exit)
    if size == 2:
        return sum((4 * n + 30 - 7 * (n % 2) for n in rows), entry_and_exit)  # an even row may start misaligned
    return sum((66 + 17 * (n // 4) for n in rows), entry_and_exit)


def clamp_cycles(rows: Iterable[Elements], *, dtype: str = "f32", vector_bytes: int = 8) -> Elements:
    """Worker cycles of out = min(max(a, low), high) over rows (Clamp, BroadcastClamp and their in-place forms)."""
    floats = dtype in ("f32", "f16")
    per_pass = vector_elements(dtype, vector_bytes) if floats else 1
    cycles = 2 if floats else 7  # integers: three loads, two compares, a move and a store
    return sum((6 + truncated_loop_cycles(n, cycles, per_pass) for n in rows), 5)


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
    check_float(dtype, "bias addition")
    if dtype == "f32":
        worker: Elements = 17
        core = _bias_core_f32_cycles(length, blocks)
    else:
        # An odd length: contexts round their blocks so that no two share a 32-bit word.
        worker = 19 + (7 if length % 2 else 0)
        core = _bias_core_f16_cycles(length, blocks)
    worker = worker + slices * ((17 if slices > 1 else 0) + core)
    # 13 = setzi 1, runall 6, br 6; +6 for another supervisor branch; +3 for a preamble in each worker.
    return 13 + 6 + worker_contexts * (worker + 3)
