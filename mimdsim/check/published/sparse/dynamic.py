"""Plans of sparse products whose positions arrive at run time: (rows, columns, batch) parts and buckets of equal size.

The partition is chosen as popsparse's planner chooses it: by the sum of its estimates for a uniform pattern over every
partition that fits, the propagation of displaced blocks left out. What the chosen partition then costs adds what a
random pattern displaces, the pieces of the dense operand that arrive scattered, and what the codelets repeat.
Sources: lib/popsparse/FullyConnectedPlan.cpp, FullyConnected.cpp, MatMulOptions.hpp, graphcore/poplibs 7eac0f2.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from mimdsim.check.published.sparse.buckets import Buckets, Propagation, propagate
from mimdsim.check.published.sparse.dynamic_terms import (
    arrange_cycles,
    busiest_products_cycles,
    products_cycles,
    propagation_cycles,
    reduction_cycles,
)
from mimdsim.check.published.sparse.shapes import PLANNED_SHARE, SparseShape, ceil_divide
from mimdsim.costs.library.sparse import zero_partials_cycles
from mimdsim.machine import MimdMachine

OVERSIZE = 1.3  # room of a bucket over its mean: metaInfoBucketOversizeProportion = 0.3
PARTIAL_BYTES = 4  # partial sums are fp32 by default (partialsType)
# 16-bit entries of a group of rows (of which a bucket is planned to hold two), of a row, and alignment of the list
GROUP_ENTRIES = {True: 5, False: 9 + 6 * 5}
ROW_ENTRIES, ENTRY_ALIGNMENT = 2, 4
INDEX_LIMIT = 65535

Ints = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class DynamicChoice:
    """Parts of rows, columns and batch; `rows` and `columns` of a tile are in blocks, `batch` in elements."""

    parts: tuple[int, int, int]
    rows: int
    columns: int
    batch: int
    bucket_bytes: int
    bucket_blocks: int
    temporary_bytes: int
    estimate_cycles: int
    propagation: Propagation | None
    terms: dict[str, int]
    phases: int


def _parts(groups: int, tiles: int, exact: bool = False) -> Ints:
    """Numbers of parts that differ in the size of their largest; `exact`: only those that divide `groups`."""
    numbers = range(1, min(groups, tiles) + 1)
    kept = {
        p if exact else ceil_divide(groups, ceil_divide(groups, p)) for p in numbers if not exact or groups % p == 0
    }
    return np.array(sorted(kept), dtype=np.int64)


def plan_dynamic(shape: SparseShape, machine: MimdMachine, seed: int) -> DynamicChoice | None:
    """The plan of lowest estimate; the planner doubles its memory share once before it gives up."""
    if shape.dtype == "f32" and shape.block == 16:
        # No such codelet: popsparse takes four blocks of 8 (getBlockDimensionsToUse); placed singly here (assumed).
        shape = replace(shape, block=8)
    tiles, contexts, fabric = machine.chip.tiles, machine.tile.worker_contexts, machine.exchange
    size, block, blocky = shape.element_bytes, shape.block, shape.block > 1
    grain = 1 if blocky else shape.grain
    batch_groups = ceil_divide(shape.batch, grain)
    grids = np.meshgrid(
        _parts(shape.block_rows, tiles),
        _parts(shape.block_columns, tiles),
        _parts(batch_groups, tiles, exact=True),
        indexing="ij",
    )
    x, y, z = (grid.ravel() for grid in grids)
    kept = x * y * z <= tiles
    x, y, z = x[kept], y[kept], z[kept]
    parts = x * y * z
    rows, columns, batch = -(-shape.block_rows // x), -(-shape.block_columns // y), batch_groups // z * grain
    used_rows = np.ceil(rows * (1 - (1 - shape.block_density) ** columns)).astype(np.int64)
    row_blocks = -(-np.ceil(rows * columns * shape.block_density).astype(np.int64) // used_rows)
    room = np.round(-(-shape.nonzero_blocks // parts) * OVERSIZE).astype(np.int64)
    if block * block * size % 4:
        room += room % 2  # whole 4-byte words
    entries = 2 * GROUP_ENTRIES[blocky] + np.ceil(used_rows * (ROW_ENTRIES + row_blocks) * OVERSIZE).astype(np.int64)
    entries = -(-entries // ENTRY_ALIGNMENT) * ENTRY_ALIGNMENT
    bucket = room * block * block * size + entries * 2
    dense_bytes = columns * block * batch * size
    resident = -(-shape.block_columns * batch_groups // parts) * block * grain * size
    # Parts of rows lie on neighbouring tiles, then parts of the batch: those share buses when they come in pairs.
    pairs = fabric.tiles_per_bus
    dense_rate = fabric.bytes_per_cycle * np.where((x % pairs == 0) | (x == parts), pairs, 1)
    bucket_rate = fabric.bytes_per_cycle * np.where((x == 1) & ((z % pairs == 0) | (z == parts)), pairs, 1)
    dense = np.where(dense_bytes > resident, np.ceil(dense_bytes / dense_rate), 0)
    fetching = np.where(z > 1, np.ceil(z * bucket / bucket_rate), 0)
    partials = rows * block * batch
    partial_bytes = partials * PARTIAL_BYTES
    gathering = np.where(y > 1, np.ceil(partial_bytes / fabric.bytes_per_cycle), 0)
    cast = shape.dtype == "f16"
    waiting = np.where((z > 1) | cast, partial_bytes, 0)
    finished = -(-partials // y) * size
    temporary = np.maximum.reduce(
        [
            dense_bytes + (z - 1) * bucket + waiting,
            2 * bucket + dense_bytes + waiting,
            waiting + np.where(y > 1, partial_bytes, 0) + finished,
        ]
    )
    fits = np.ones(len(x), dtype=bool)
    if not blocky:
        fits = (columns - 1) * batch * size <= INDEX_LIMIT
    possible = next(
        (
            inside
            for share in (PLANNED_SHARE, 2 * PLANNED_SHARE)
            if (inside := np.flatnonzero(fits & (temporary <= share * machine.tile.sram_bytes))).size
        ),
        None,
    )
    if possible is None:
        return None
    quick = dense + fetching + gathering
    best, lowest = -1, math.inf
    # Vertex cycles are whole-number formulas of one tile, shared with the profiler: cheapest exchange first, and a
    # partition whose exchange alone costs more than the best sum cannot win.
    for i in possible[np.argsort(quick[possible], kind="stable")]:
        if quick[i] >= lowest:
            break
        each = zero_partials_cycles(ceil_divide(int(partials[i]), contexts), as_vendor=True, worker_contexts=contexts)
        each += products_cycles(
            shape, int(used_rows[i]), int(row_blocks[i]), int(batch[i]), int(z[i]), contexts, counted=False
        )
        each += reduction_cycles(shape, int(partials[i]), int(y[i]), contexts)
        if quick[i] + each < lowest:
            best, lowest = int(i), float(quick[i] + each)

    def at(values: object) -> int:
        return int(np.asarray(values)[best])

    buckets = Buckets(
        parts=(at(x), at(y), at(z)),
        room_blocks=at(room),
        room_entries=at(entries),
        group_entries=GROUP_ENTRIES[blocky],
        row_blocks=at(row_blocks),
    )
    propagation = propagate(shape, buckets, seed)
    shared = ceil_divide(at(partials), contexts)
    terms = {
        "dense exchange": at(dense),
        "arrange dense": arrange_cycles(shape, machine, at(x), at(columns), at(batch)) if at(dense) else 0,
        "bucket exchange": at(fetching),
        "clear partials": zero_partials_cycles(shared, dtype="f32", block=blocky, worker_contexts=contexts),
        "partial products": busiest_products_cycles(shape, propagation, at(used_rows), at(batch), at(z), contexts),
        "bucket propagation": propagation_cycles(shape, machine, propagation, buckets, at(bucket), at(batch)),
        "reduction exchange": at(gathering),
        "reduction": reduction_cycles(shape, at(partials), at(y), contexts),
    }
    return DynamicChoice(
        parts=buckets.parts,
        rows=at(rows),
        columns=at(columns),
        batch=at(batch),
        bucket_bytes=at(bucket),
        bucket_blocks=at(room),
        temporary_bytes=at(temporary),
        estimate_cycles=math.ceil(lowest),
        propagation=propagation,
        terms=terms,
        phases=(at(dense) > 0) + (at(fetching) > 0) + (at(gathering) > 0) + (propagation.steps if propagation else 0),
    )
