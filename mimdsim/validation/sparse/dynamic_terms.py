"""What one tile spends on its part of a dynamic sparse product, term by term.

Sources: lib/popsparse/PerformanceEstimation.hpp, FullyConnected.cpp, FullyConnectedUtils.cpp (splitTileBetweenWorkers),
graphcore/poplibs 7eac0f2; what the estimates leave out: dynamic_costs.py.
"""

from __future__ import annotations

import math

from mimdsim.costs.library.reductions import reduce_add_cycles
from mimdsim.costs.library.sparse import sparse_dense_block_cycles, sparse_dense_elementwise_cycles
from mimdsim.machine import MimdMachine
from mimdsim.validation.sparse.buckets import Buckets, Propagation
from mimdsim.validation.sparse.dynamic_costs import counted_block_cycles, counted_elementwise_cycles
from mimdsim.validation.sparse.shapes import SparseShape, ceil_divide

CONV_UNITS = {"f16": 8, "f32": 16}  # units that deliver fp32 sums


def products_cycles(
    shape: SparseShape, rows: int, row_blocks: int, batch: int, buckets: int, contexts: int, *, counted: bool = True
) -> int:
    """Partial products of a tile; not `counted`: as the planner estimates them."""
    if shape.block > 1:
        of_blocks = counted_block_cycles if counted else sparse_dense_block_cycles
        return of_blocks(
            rows,
            ceil_divide(batch, contexts),
            row_blocks,
            block=shape.block,
            dtype=shape.dtype,
            partials_dtype="f32",
            conv_units=CONV_UNITS[shape.dtype],
            buckets=buckets,
            worker_contexts=contexts,
        )
    # Contexts share rows first, then vectors of the batch.
    vectors = ceil_divide(batch, shape.grain)
    each = ceil_divide(rows * vectors, contexts)
    rows_each = min(ceil_divide(each, vectors), rows)
    columns_each = min(ceil_divide(each, rows_each), vectors) * shape.grain
    of_elements = counted_elementwise_cycles if counted else sparse_dense_elementwise_cycles
    return of_elements(
        rows_each, columns_each, row_blocks, dtype=shape.dtype, buckets=buckets, worker_contexts=contexts
    )


def busiest_products_cycles(
    shape: SparseShape, propagation: Propagation | None, rows: int, batch: int, buckets: int, contexts: int
) -> int:
    """Partial products of the fullest tile, whose rows are dealt to the buckets and there to the contexts."""
    if propagation is None:
        return 0
    each = propagation.busiest_blocks / rows

    def with_blocks(row_blocks: int) -> int:
        if shape.block > 1:
            return products_cycles(shape, rows, row_blocks, batch, buckets, contexts)
        return buckets * products_cycles(shape, ceil_divide(rows, buckets), row_blocks, batch, 1, contexts)

    low, high = math.floor(each), math.ceil(each)
    less = with_blocks(low)
    return less if low == high else math.ceil(less + (each - low) * (with_blocks(high) - less))


def reduction_cycles(shape: SparseShape, partials: int, depth: int, contexts: int) -> int:
    """Add `depth` fp32 partial sums of each result, shared by the `depth` tiles, or only cast."""
    if depth > 1:
        return reduce_add_cycles(
            ceil_divide(partials, depth), depth, dtype="f32", out_dtype=shape.dtype, worker_contexts=contexts
        )
    if shape.dtype == "f32":
        return 0
    # Only a cast: 26 to start, then a vector of fp32 a cycle (popsparse getCastCycleEstimate).
    return (26 + ceil_divide(ceil_divide(partials, contexts), 2)) * contexts


def arrange_cycles(shape: SparseShape, machine: MimdMachine, row_parts: int, columns: int, batch: int) -> int:
    """Cycles to put the pieces of the dense operand in their rows.

    Block codelets want batch rows of all the tile's columns in one piece. The operand lies spread over the tiles that
    will read it, by columns first (mapTensorsByUse in FullyConnected.cpp), so each row arrives in a piece from each.
    Element codelets want rows of the batch, which lie as they are wanted.
    """
    if shape.block == 1 or row_parts == 1:
        return 0
    fragments = batch * min(row_parts, columns)
    copied = columns * shape.block * batch * shape.element_bytes / machine.tile.copy_bytes_per_cycle
    bundles = fragments * machine.exchange.arrange_fragment_bundles
    return math.ceil(bundles * machine.tile.issue_cycles / machine.tile.worker_contexts + copied)


def propagation_cycles(
    shape: SparseShape,
    machine: MimdMachine,
    propagation: Propagation | None,
    buckets: Buckets,
    bucket_bytes: int,
    batch: int,
) -> int:
    """Cycles of all steps: hand the bucket to the neighbour, search it, multiply what belongs here."""
    if propagation is None or not propagation.steps:
        return 0
    x, y, z = buckets.parts
    contexts = machine.tile.worker_contexts
    # A step finds groups of its own and of guests; those of others cost the search only.
    groups = 1 + min(1.0, propagation.displaced_blocks / max(1, x * y * z))
    search = 40 + 33 * groups if shape.block > 1 else 30 + 32 * groups
    hand_on = machine.exchange.fixed_cycles + bucket_bytes / machine.exchange.bytes_per_cycle
    total = propagation.steps * (hand_on + search)
    for blocks in propagation.arrivals:
        rows = ceil_divide(blocks, buckets.row_blocks)
        total += products_cycles(shape, rows, ceil_divide(blocks, rows), batch, 1, contexts)
    return math.ceil(total)
