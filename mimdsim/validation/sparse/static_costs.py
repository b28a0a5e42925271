"""Cycles of popsparse's static codelets, whose positions of nonzeros are known when the program is compiled.

Source: lib/popsparse/StaticMatMulPartitioner.cpp, graphcore/poplibs (first public with commit 396694d, unchanged at
7eac0f2). The inner loop of the 4 x 4 fp16 codelet was counted in its assembly and agrees: one bundle a column.
"""

from __future__ import annotations

import numpy as np

from mimdsim.costs.library.arithmetic import Elements, NoCycleFormula, element_bytes

BLOCKS = (1, 4, 8, 16)
# (first call of a worker, start of a row of blocks, first column of a block, each further column) in worker cycles
_BLOCK: dict[tuple[str, int], tuple[int, int, int, int]] = {
    ("f16", 4): (17, 1, 14, 1),
    ("f32", 4): (13, 1, 12, 4),
    ("f16", 8): (13, 1, 14, 2),
    ("f32", 8): (13, 4, 19, 8),
    ("f16", 16): (13, 1, 19, 4),
    ("f32", 16): (16, 4, 2 * 37, 2 * 8),  # two 16 x 8 halves, each loaded and passed over
}


def check_block(block: int, dtype: str, where: str) -> None:
    """Refuse number formats and block edges that have no codelet."""
    if dtype not in ("f16", "f32"):
        raise NoCycleFormula(where, dtype, ["f16", "f32"])
    if block not in BLOCKS:
        raise NoCycleFormula(f"{where}: block edge", block, BLOCKS)


def static_element_cycles(
    rows: Elements, nonzeros: Elements, columns: Elements, *, dtype: str = "f16", worker_contexts: int = 6
) -> Elements:
    """Tile cycles when each context has `rows` rows of `nonzeros` each and all `columns` of the dense operand."""
    check_block(1, dtype, "static sparse product")
    later = nonzeros - 1
    if dtype == "f16":
        wide = 33 + rows * (11 + columns // 8 * (14 + later * 3) + (columns % 8 != 0) * (9 + later * 2))
        one, two = 31 + rows * (7 + later * 2), 31 + rows * (8 + later * 3)
        narrow = (4, 8)
    else:
        wide = 31 + rows * (12 + columns // 4 * (10 + later * 3) + (columns % 4 != 0) * (10 + later * 2))
        one, two = 29 + rows * (5 + later * 2), 30 + rows * (6 + later * 3)
        narrow = (2, 4)
    worker: Elements = np.where(columns == narrow[0], one, np.where(columns == narrow[1], two, wide))
    return worker * worker_contexts


def static_block_cycles(
    rows: Elements,
    blocks: Elements,
    columns: Elements,
    *,
    block: int,
    dtype: str = "f16",
    worker_contexts: int = 6,
) -> Elements:
    """Tile cycles of `blocks` nonzero blocks in `rows` rows of blocks, each context on `columns` of the dense operand.

    A supervisor loads each block's weights, 64 bit a cycle, and starts all contexts on it.
    """
    check_block(block, dtype, "static block-sparse product")
    if block == 1:
        raise NoCycleFormula("static block-sparse product: block edge", block, BLOCKS[1:])
    first, row, column, further = _BLOCK[dtype, block]
    load = block * block * element_bytes(dtype) // 8
    each = column + (columns - 1) * further
    if (dtype, block) == ("f16", 4):
        each = np.where(columns <= 2, 7 + columns, each)
    elif (dtype, block) == ("f32", 16):
        each = np.where(columns == 1, 58, each)
    start = 30 + first * worker_contexts
    return start + rows * (row * worker_contexts + 17) + blocks * (16 + load + each * worker_contexts)


def static_zeroing_cycles(elements: Elements, *, dtype: str, worker_contexts: int = 6) -> Elements:
    """Tile cycles to clear `elements` partial sums; only fp32 blocks wider than 4 need it."""
    vectors = elements * element_bytes(dtype) // 8
    return (12 + (vectors + worker_contexts - 1) // worker_contexts) * worker_contexts


def planned_reduction_cycles(
    outputs: Elements, partials: Elements, *, dtype: str, worker_contexts: int = 6
) -> Elements:
    """Tile cycles the partitioner expects for a reduction, perfectly spread: optimistic, as its comments say."""
    wide, finish = (8, 8) if dtype == "f16" else (4, 5)
    each = (outputs + worker_contexts - 1) // worker_contexts
    loops = (each + wide - 1) // wide
    return (partials > 1) * (16 + loops * (finish + 6 + partials - 1)) * worker_contexts
