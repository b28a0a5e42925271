"""Cycles of the popops element-wise codelets: binary, unary, scalar broadcast, select, clamp, casts and fills.

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
    ceil_log2,
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


# ---- casts and fills: lib/popops/PerformanceEstimation.cpp of the same commit


FLOATS = ("f32", "f16")
CHARS = ("u8", "i8")


def _byte_cast_cycles(n: Elements, fill_drain: int, per_loop: int, tails: tuple[int, int, int, int]) -> Elements:
    # A pipelined loop over four elements and one exit path for each remainder.
    atoms, rest = n // 4, n % 4
    tail = sum(cycles * (rest == count) for count, cycles in enumerate(tails))
    return (fill_drain + (atoms - 1) * per_loop) * (atoms > 0) + tail


def _cast_core_cycles(
    n: Elements, source: str, target: str, read_ports: int, interleaved: bool, vector_bytes: int
) -> Elements:
    if target in ("i64", "u64"):
        return 3 + n * (4 + (source in ("i32", "i8", "i16")))  # signed sources: one more cycle for the sign
    if source == "u8" and target == "f16":
        return 4 + _byte_cast_cycles(n, 14, 9, (2, 12, 14, 22))
    if source == "f16" and target in CHARS:
        # 4 = entry, 4 = set up the clamp to the range of a byte
        return 4 + 4 + _byte_cast_cycles(n, 19, 16, (2, 14, 21, 29))
    load = max(1, vector_bytes // element_bytes(source))
    store = max(1, vector_bytes // element_bytes(target))
    in_float_pipe = source in FLOATS and target in FLOATS
    width = min(load * read_ports, store) if in_float_pipe else 1
    load_cycles = width // min(width, load * (read_ports if interleaved else 1))
    store_cycles = width // min(width, store)
    per_vector = max(load_cycles, store_cycles) + (not in_float_pipe)
    rest = n % width
    cycles: Elements = 19 + per_vector * (n // width)
    for bit in range(ceil_log2(width)):
        # One cycle to test the bit of the remainder; two to convert and store if set.
        cycles = cycles + 1 + 2 * ((rest >> bit) & 1)
    return cycles


def cast_1d_cycles(
    n: Elements,
    *,
    source: str,
    target: str,
    interleaved: bool = False,
    worker_contexts: int = 6,
    read_ports: int = 2,
    vector_bytes: int = 8,
) -> Elements:
    """Tile cycles to convert `n` elements from format `source` to `target` (Cast1D)."""
    each = ceil_div(n, worker_contexts)
    core = _cast_core_cycles(each, source, target, read_ports, interleaved, vector_bytes)
    # 12 supervisor; 18 divide the work between contexts, call and exit.
    return 12 + worker_contexts * (core + 18)


def cast_2d_cycles(
    rows: Iterable[Elements],
    *,
    source: str,
    target: str,
    interleaved: bool = False,
    read_ports: int = 2,
    vector_bytes: int = 8,
) -> Elements:
    """Worker cycles to convert rows of the given element counts (Cast2D)."""
    return sum((11 + _cast_core_cycles(n, source, target, read_ports, interleaved, vector_bytes) for n in rows), 5)


def fill_cycles(n: Elements, *, dtype: str = "f32", vector_bytes: int = 8) -> Elements:
    """Worker cycles to write `n` equal elements on one context (Fill)."""
    size = element_bytes(dtype)
    if size == 8:
        return 5 + n
    if size == 1:
        # Short fills store 32 bits at a time, others 64.
        short = n < 64
        return (28 + n // 4) * short + (39 + n // 8) * (1 - short)
    width = vector_elements(dtype, vector_bytes)
    if size == 2:
        # Fills of one or two elements never reach the aligned loop.
        return 15 * (n == 1) + 21 * (n == 2) + (26 + n // width) * ((n != 1) & (n != 2))
    # 16 before the loop, 6 checks after it, 1 for the mean alignment; 1 for a last odd element.
    return 23 + n // width + 1 * (n % width == 1)
