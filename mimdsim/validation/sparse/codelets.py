"""What a sparse product multiplies (`SparseShape`), and cycles of popsparse's codelets.

Static codelets, whose positions of nonzeros are known when the program is compiled. Source:
lib/popsparse/StaticMatMulPartitioner.cpp, graphcore/poplibs (first public with commit 396694d, unchanged at 7eac0f2).
The inner loop of the 4 x 4 fp16 codelet was counted in its assembly and agrees: one bundle a column.

Dynamic codelets: what the vendor's estimates leave out, counted in the assembly. Two things repeat that the estimates
charge once: opening and closing the loop over nonzeros for every group of columns (eight halves or four floats), and
the set-up of the workers for every bucket. The static estimates do charge the first. Source:
lib/popsparse/codelets/asm/SparseDenseMatMulElementWise_half_float.S (17 bundles around the loop LzLoop8) and
BlockSparseDenseMatMul.h.S (s_wkrFunction set anew in LmetaInfoListLoop), graphcore/poplibs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
from numpy.typing import NDArray

from mimdsim.base.errors import DescriptionError
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


# Columns of a group, and bundles around its loop. f32: the estimate's own 12, not counted (assumed).
GROUP = {"f16": (8, 17), "f32": (4, 12)}
ELEMENT_SETUP, BLOCK_SETUP = 30, 23  # worker cycles of a bucket, as in the estimates


def repeated_cycles(
    rows: int, columns: int, *, dtype: str, block: int = 1, buckets: int = 1, worker_contexts: int = 6
) -> int:
    """Tile cycles beyond the vendor's estimate of a dynamic product: loops over nonzeros after the first of each row,
    which block codelets do not have, and the set-up for buckets after the first."""
    width, around = GROUP[dtype]
    loops = max(0, columns // width - 1) * around * rows if block == 1 else 0
    return (loops + (buckets - 1) * (ELEMENT_SETUP if block == 1 else BLOCK_SETUP)) * worker_contexts


PLANNED_SHARE = 0.6  # of a tile's memory for temporaries: availableMemoryProportion of popsparse's options


def ceil_divide(dividend: int, divisor: int) -> int:
    """The quotient of two integers, rounded up."""
    return -(-dividend // divisor)


def fewest_parts(whole: int, most: int) -> NDArray[np.int64]:
    """The fewest parts for every size of the largest part, up to `most` parts."""
    parts = np.arange(1, min(whole, most) + 1)
    return np.sort(parts[np.unique(-(-whole // parts), return_index=True)[1]])


@dataclass(frozen=True, kw_only=True)
class SparseShape:
    """Sparse [rows, columns] times dense [columns, batch]; nonzeros come in square blocks at random places."""

    rows: int
    columns: int
    batch: int
    block: int
    density: float
    dtype: str

    def __post_init__(self) -> None:
        check_block(self.block, self.dtype, "sparse product")
        problems = [
            f"{name} = {count}: must be at least 1"
            for name, count in (("rows", self.rows), ("columns", self.columns), ("batch", self.batch))
            if count < 1
        ]
        problems += [
            f"{name} = {count} is not a multiple of the block edge {self.block}; choose "
            f"{count // self.block * self.block} or {ceil_divide(count, self.block) * self.block}"
            for name, count in (("rows", self.rows), ("columns", self.columns))
            if count > 0 and count % self.block
        ]
        if not 0 < self.density <= 1:
            problems.append(f"density = {self.density}: must be over 0 and at most 1")
        if problems:
            raise DescriptionError("sparse product", problems)

    @property
    def element_bytes(self) -> int:
        return element_bytes(self.dtype)

    @property
    def grain(self) -> int:
        """Columns of the dense operand that go together: one 64-bit vector."""
        return 8 // self.element_bytes

    @property
    def block_rows(self) -> int:
        return self.rows // self.block

    @property
    def block_columns(self) -> int:
        return self.columns // self.block

    @property
    def nonzero_blocks(self) -> int:
        return math.ceil(self.density * self.block_rows * self.block_columns)

    @property
    def block_density(self) -> float:
        """Share of blocks that are nonzero, after rounding up to whole blocks."""
        return self.nonzero_blocks / (self.block_rows * self.block_columns)

    @property
    def flops(self) -> int:
        """Multiply and add for every nonzero and column of the dense operand."""
        return 2 * self.nonzero_blocks * self.block**2 * self.batch

    @property
    def operand_bytes(self) -> int:
        """Dense operand, result and nonzero values."""
        return self.element_bytes * (
            (self.rows + self.columns) * self.batch + self.nonzero_blocks * self.block * self.block
        )


class Splits(SimpleNamespace):
    """Columns of a table with a row for every way to split a product, int64[ways], or one of them as integers."""

    def at(self, index: int) -> Splits:
        """One of them."""
        return Splits(**{name: int(column[index]) for name, column in vars(self).items()})


@dataclass(frozen=True, kw_only=True)
class Choice:
    """The partition of lowest estimate, `estimate_cycles`: parts of rows, columns and batch; static: parts of the rows
    are the tiles of one band of columns.

    busiest_blocks: room for nonzero blocks of the fullest tile. temporary_bytes: of a tile. terms: cycles by name, in
    order, without syncs. exchanges: those whose fixed part is in no term; steps: exchanges that have it. refused: why
    it cannot run; '' if it can.
    """

    parts: tuple[int, int, int]
    busiest_blocks: int
    temporary_bytes: int
    estimate_cycles: int
    terms: Mapping[str, int]
    exchanges: int
    steps: int = 0
    refused: str = ""
