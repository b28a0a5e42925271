"""What the vendor's estimates of dynamic sparse products leave out, counted in the assembly of the codelets.

Two things repeat that the estimates charge once: opening and closing the loop over nonzeros for every group of columns
(eight halves or four floats), and the set-up of the workers for every bucket. The static estimates do charge the first.
Source: lib/popsparse/codelets/asm/SparseDenseMatMulElementWise_half_float.S (17 bundles around the loop LzLoop8) and
BlockSparseDenseMatMul.h.S (s_wkrFunction set anew in LmetaInfoListLoop), graphcore/poplibs.
"""

from __future__ import annotations

from mimdsim.costs.library.sparse import sparse_dense_block_cycles, sparse_dense_elementwise_cycles

# Columns of a group, and bundles around its loop. f32: the estimate's own 12, not counted (assumed).
GROUP = {"f16": (8, 17), "f32": (4, 12)}
WORKER_SETUP = {"element": 30, "block": 23}  # worker cycles, as in the estimates


def repeated_loop_cycles(rows: int, columns: int, *, dtype: str, worker_contexts: int = 6) -> int:
    """Tile cycles of the loops over nonzeros beyond the first of each row."""
    width, around = GROUP[dtype]
    return max(0, columns // width - 1) * around * rows * worker_contexts


def counted_elementwise_cycles(
    rows: int, columns: int, nonzeros: int, *, dtype: str = "f16", buckets: int = 1, worker_contexts: int = 6
) -> int:
    """Tile cycles as sparse_dense_elementwise_cycles, with what repeats."""
    return (
        sparse_dense_elementwise_cycles(
            rows, columns, nonzeros, dtype=dtype, buckets=buckets, worker_contexts=worker_contexts
        )
        + repeated_loop_cycles(rows, columns, dtype=dtype, worker_contexts=worker_contexts)
        + (buckets - 1) * WORKER_SETUP["element"] * worker_contexts
    )


def counted_block_cycles(
    rows: int,
    columns: int,
    row_blocks: int,
    *,
    block: int,
    dtype: str = "f16",
    partials_dtype: str = "f32",
    conv_units: int = 8,
    buckets: int = 1,
    worker_contexts: int = 6,
) -> int:
    """Tile cycles as sparse_dense_block_cycles, with what repeats."""
    once = sparse_dense_block_cycles(
        rows,
        columns,
        row_blocks,
        block=block,
        dtype=dtype,
        partials_dtype=partials_dtype,
        conv_units=conv_units,
        buckets=buckets,
        worker_contexts=worker_contexts,
    )
    return once + (buckets - 1) * WORKER_SETUP["block"] * worker_contexts
