"""Cycles of popsparse: dynamic sparse-dense products by element and by block, index gather, transpose on a tile.

Source: lib/popsparse/PerformanceEstimation.hpp, graphcore/poplibs 7eac0f2.
The sparse operand has `x` rows with `y` nonzeros each on average, the dense one `z` columns. It arrives in `buckets` of
`subgroups` parts; of these, `others` buckets hold nothing for this tile and cost only the search.
"""

from __future__ import annotations

from mimdsim.costs.library.arithmetic import NoCycleFormula, ceil_div, check_float


def _search_cycles(
    base: int, first_match: int, found: int, miss: int, buckets: int, others: int, subgroups: int
) -> int:
    # On average half of the subgroups are passed before the first that belongs to this tile.
    hit = (subgroups + 1) * first_match // 2 + found
    return base + miss * others * subgroups + hit * buckets


def _element_cycles(z: int, y: int, dtype: str, row_entry: tuple[int, int]) -> int:
    """Worker cycles of one row's products; `row_entry`: to open the loop over the widest, narrowest piece of z."""
    wide, narrow = row_entry
    if dtype == "f32":
        if z in (2, 4):
            return (2 if z == 2 else 3) * y
        cycles = 3 if z & 3 else 1
        if z // 4:
            cycles += wide + (z // 4) * 3 * y
        if z & 2:
            # The vendor charges all of z here, not the remaining pair; kept, as no measurement contradicts it.
            cycles += 8 + (z // 2) * 2 * y
        if z & 1:
            cycles += 8 + 2 * y
        return cycles
    if z in (4, 8):
        return (2 if z == 4 else 3) * y
    cycles = 0
    if z // 8:
        cycles += wide + (z // 8) * 3 * y
    if z & 4:
        cycles += 13 + 2 * y
    if z & 3:
        cycles += narrow + 2 * y * (z & 3)
    return cycles


# (worker overhead, overhead per row) by z; 0 stands for every other z. Specialised codelets exist for one or two
# vectors per row of the dense operand.
_FORWARD = {"f32": {2: (27, 11), 4: (25, 13), 0: (30, 13)}, "f16": {4: (30, 11), 8: (28, 15), 0: (33, 12)}}
_GRADIENT_A = {"f32": {2: (25, 11), 4: (23, 13), 0: (33, 13)}, "f16": {4: (28, 11), 8: (26, 15), 0: (32, 11)}}
_GRADIENT_W = {"f32": {2: (36, 6), 4: (34, 8), 0: (38, 8)}, "f16": {4: (36, 9), 8: (34, 10), 0: (39, 7)}}
_TRANSPOSED = {"f32": {0: (31, 23)}, "f16": {4: (28, 19), 8: (28, 16), 0: (34, 21)}}


def sparse_dense_elementwise_cycles(
    x: int,
    z: int,
    y: int,
    *,
    dtype: str = "f16",
    buckets: int = 1,
    others: int = 0,
    subgroups: int = 1,
    gradient_a: bool = False,
    worker_contexts: int = 6,
) -> int:
    """Tile cycles of sparse times dense, each context on its share of z (SparseDenseMatMulElementWise).

    `gradient_a`: the codelet for the gradient of the dense operand (SparseDenseMatMulGradAElementWise); the same loop
    with indirect rows.
    """
    check_float(dtype, "sparse-dense product")
    table = (_GRADIENT_A if gradient_a else _FORWARD)[dtype]
    overhead, per_row = table.get(z, table[0])
    # Opening the loops over z: the gradient's codelets reuse pointers that the forward ones load.
    entries = {"f32": (10, 8), "f16": (14, 10)} if gradient_a else {"f32": (12, 8), "f16": (16, 11)}
    worker = overhead + x * (per_row + _element_cycles(z, y, dtype, entries[dtype]))
    search = _search_cycles(30, 46 if gradient_a else 47, 46, 32, buckets, others, subgroups)
    return worker * worker_contexts + search


def sparse_dense_transposed_cycles(
    x: int,
    z: int,
    y: int,
    *,
    dtype: str = "f16",
    buckets: int = 1,
    others: int = 0,
    subgroups: int = 1,
    worker_contexts: int = 6,
) -> int:
    """Tile cycles of the transposed product, a row's nonzeros shared by the contexts (...ElementWiseTranspose).

    Contexts split the nonzeros, so each pays ceil(y / contexts). Overheads are fitted to the vendor's figures for
    f32 z=16 and f16 z=8; those of other z follow the same offsets (assumed).
    """
    check_float(dtype, "transposed sparse-dense product")
    overhead, per_row = _TRANSPOSED[dtype].get(z, _TRANSPOSED[dtype][0])
    each = -(-y // worker_contexts)
    if dtype == "f32":
        row = 8 + ((2 + 3 * (z // 2)) * each if z // 2 else 0) + (4 * each if z & 1 else 0)
    elif z in (4, 8):
        row = (7 if z == 4 else 10) * each
    else:
        row = 8 + ((2 + 5 * (z // 4)) * each if z // 4 else 0) + ((5 + 3 * (z & 3)) * each if z & 3 else 0)
    worker = overhead + x * (per_row + row)
    search = _search_cycles(30, 44, 68, 32, buckets, others, subgroups)
    return worker * worker_contexts + search


def sparse_gradient_w_cycles(
    x: int,
    z: int,
    y: int,
    *,
    dtype: str = "f16",
    buckets: int = 1,
    subgroups: int = 1,
    worker_contexts: int = 6,
) -> int:
    """Tile cycles of the gradient at the nonzeros, a dot product over z for each (SparseDenseMatMulGradWElementWise).

    Row overheads are fitted to the vendor's figures for z=8; those of other z follow the same offsets (assumed).
    """
    check_float(dtype, "sparse weight gradient")
    overhead, per_row = _GRADIENT_W[dtype].get(z, _GRADIENT_W[dtype][0])
    one, two = (2, 4) if dtype == "f32" else (4, 8)
    if z in (one, two):
        each = 4 if z == one else 5
    elif dtype == "f32":
        each = 9 + z // 2 + (z & 1)
    else:
        each = 11 + z // 4 + (3 if z & 2 else 0) + (4 if z & 1 else 0)
    worker = overhead + x * (per_row + each * y)
    return worker * worker_contexts + _search_cycles(37 + 38, 26, 0, 0, buckets, 0, subgroups)


def _block_overheads(
    block: int, floats: bool, float_partials: bool, conv_units: int
) -> tuple[tuple[int, int, int], int]:
    """Overhead of a block before its z columns, by (z == 1, z == 2, more), and of the whole worker."""
    if block == 4:
        if not float_partials:
            return (15, 16, 17), 26
        return ((14, 14, 14) if floats else (17, 18, 19)), 26
    if block == 8:
        if not float_partials:
            return (19, 20, 20), 23
        return ((22, 22, 23), 23) if floats else ((22, 23, 23), 20)
    if conv_units == 16 and not float_partials:
        return (22, 23, 22), 22
    return (24, 25, 24), 23


def sparse_dense_block_cycles(
    x_blocks: int,
    z: int,
    y_blocks: int,
    *,
    block: int,
    dtype: str = "f16",
    partials_dtype: str = "f16",
    conv_units: int = 16,
    buckets: int = 1,
    others: int = 0,
    subgroups: int = 1,
    retain_row: bool = True,
    worker_contexts: int = 6,
) -> int:
    """Tile cycles of block-sparse times dense on the matrix unit (SparseDenseMatMulBlock), blocks of 4, 8 or 16.

    `retain_row`: workers keep their row pointers between blocks, which saves three cycles per block.
    """
    check_float(dtype, "block-sparse product")
    floats = dtype == "f32"
    per_z = {4: 4 if floats else 2, 8: 8 if floats else 4, 16: 4}
    if block not in per_z:
        raise NoCycleFormula("block-sparse product: block edge", block, per_z)
    # Eight units hold half of a 16-wide block: load and pass twice.
    loads = 2 if block == 16 and conv_units == 8 else 1
    columns, overhead = _block_overheads(block, floats, partials_dtype == "f32", conv_units)
    each = columns[min(z, 3) - 1] + z * per_z[block] - 3 * retain_row
    worker = overhead + x_blocks * y_blocks * loads * each
    weights = block * block // (2 if floats else 4)  # one 64-bit load per cycle
    supervisor = (y_blocks * (weights + 3 + 12 * loads) + retain_row) * x_blocks + 2
    return worker * worker_contexts + supervisor + _search_cycles(40, 46, 56, 33, buckets, others, subgroups)


def sparse_gather_cycles(indices: int, *, dtype: str = "f16", worker_contexts: int = 6) -> int:
    """Tile cycles to collect the elements that a list of indices names (SparseGatherElementWise)."""
    check_float(dtype, "sparse gather")
    width, first, each = (2, 5, 3) if dtype == "f32" else (4, 8, 5)
    vectors = int(ceil_div(indices // width, worker_contexts))
    loop = first + (vectors - 1) * each if vectors else 0
    rest = indices % width
    tail = 5 * rest if dtype == "f32" else (0, 10, 10, 14)[rest]
    # The context with the remainder has one vector fewer, if there are any.
    return 18 + worker_contexts * (23 + max(loop, loop + tail - (each if vectors else 0)))


def zero_partials_cycles(
    n: int, *, dtype: str = "f32", block: bool = False, as_vendor: bool = False, worker_contexts: int = 6
) -> int:
    """Tile cycles to clear `n` partial sums.

    `as_vendor` repeats the vendor's n times contexts, which drops the cycles it has just counted.
    """
    if as_vendor:
        return n * worker_contexts
    vectors = -(-n // (2 if dtype == "f32" else 4))
    return ((3 if block else 5) + (10 + vectors if n else 0)) * worker_contexts


def transpose_cycles(transposes: int, rows: int, columns: int, *, dtype: str = "f16", worker_contexts: int = 6) -> int:
    """Tile cycles to transpose `transposes` matrices stored one after the other on a tile (Transpose).

    `rows` and `columns` are multiples of the grain: 2 elements for f32, 4 for f16.
    """
    check_float(dtype, "transpose")
    grain, per_grain = (2, 3) if dtype == "f32" else (4, 4)
    row_grains, column_grains = rows // grain, columns // grain
    each = -(-transposes // worker_contexts)
    if row_grains == 1 and column_grains == 1:
        worker = 29 if each == 1 else 37 + (each - 2) * per_grain
    elif column_grains == 1:
        worker = 27 + each * (35 + per_grain * (row_grains - 2))
    else:
        worker = 29 + each * (18 + row_grains * (12 + per_grain * (column_grains - 2)))
    return 7 + worker_contexts * worker
