"""What a sparse product multiplies, and the counts that both planners derive from it."""

from __future__ import annotations

import math
from dataclasses import dataclass

from mimdsim.base.errors import DescriptionError
from mimdsim.costs.library.arithmetic import element_bytes
from mimdsim.validation.sparse.static_costs import check_block

PLANNED_SHARE = 0.6  # of a tile's memory for temporaries: availableMemoryProportion of popsparse's options


def ceil_divide(dividend: int, divisor: int) -> int:
    """The quotient of two integers, rounded up."""
    return -(-dividend // divisor)


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
    def band_grain(self) -> int:
        return 1 if self.block == 1 else self.grain

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
