"""Plans of sparse products whose positions arrive at run time: (rows, columns, batch) parts and buckets of equal size.

The partition is chosen as popsparse's planner chooses it: by the sum of its estimates for a uniform pattern over every
partition that fits, the propagation of displaced blocks left out. What the chosen partition then costs adds what a
random pattern displaces, the pieces of the dense operand that arrive scattered, and what the codelets repeat.
Sources: lib/popsparse/FullyConnectedPlan.cpp, FullyConnected.cpp, MatMulOptions.hpp, graphcore/poplibs 7eac0f2.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from mimdsim.costs.library.sparse import zero_partials_cycles
from mimdsim.machine import MimdMachine
from mimdsim.machine.mimd import Fabric
from mimdsim.validation.sparse.buckets import Buckets, Propagation, propagate
from mimdsim.validation.sparse.dynamic_terms import (
    arrange_cycles,
    busiest_products_cycles,
    products_cycles,
    propagation_cycles,
    reduction_cycles,
)
from mimdsim.validation.sparse.shapes import PLANNED_SHARE, SparseShape, ceil_divide

OVERSIZE = 1.3  # room of a bucket over its mean: metaInfoBucketOversizeProportion = 0.3
PARTIAL_BYTES = 4  # partial sums are fp32 by default (partialsType)
# 16-bit entries of a group of rows (of which a bucket is planned to hold two), of a row, and alignment of the list
GROUP_ENTRIES = {True: 5, False: 9 + 6 * 5}
ROW_ENTRIES, ENTRY_ALIGNMENT = 2, 4
INDEX_LIMIT = 65535

Ints = NDArray[np.int64]
Columns = TypeVar("Columns", "_Partitions", "_Moves")


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

    @property
    def busiest_blocks(self) -> int:
        """Of a tile, over all buckets that pass it."""
        return self.bucket_blocks * self.parts[2]


@dataclass(frozen=True, kw_only=True, eq=False)
class _Partitions:
    """Partitions into x parts of the rows, y of the columns, z of the batch; int64[partitions], or int of a single one.

    rows, columns of a tile in blocks, used_rows: those that hold some, row_blocks: how many; batch in elements. A
    bucket has room for `room` blocks and `entries` of their positions, and takes `bucket` bytes.
    """

    x: Any
    y: Any
    z: Any
    rows: Any
    columns: Any
    batch: Any
    used_rows: Any
    row_blocks: Any
    room: Any
    entries: Any
    bucket: Any
    partials: Any


@dataclass(frozen=True, kw_only=True, eq=False)
class _Moves:
    """Cycles of the exchanges of partitions, and bytes that a tile needs for a while; as `_Partitions`."""

    dense: Any
    fetching: Any
    gathering: Any
    temporary: Any


def _parts(groups: int, tiles: int, exact: bool = False) -> Ints:
    """Numbers of parts that differ in the size of their largest; `exact`: only those that divide `groups`."""
    numbers = range(1, min(groups, tiles) + 1)
    kept = {
        p if exact else ceil_divide(groups, ceil_divide(groups, p)) for p in numbers if not exact or groups % p == 0
    }
    return np.array(sorted(kept), dtype=np.int64)


def _partitions(shape: SparseShape, tiles: int) -> _Partitions:
    """Every one that takes no more than `tiles`."""
    size, block, blocky = shape.element_bytes, shape.block, shape.block > 1
    grain = 1 if blocky else shape.grain
    batch_groups = ceil_divide(shape.batch, grain)
    numbers = _parts(shape.block_rows, tiles), _parts(shape.block_columns, tiles), _parts(batch_groups, tiles, True)
    x, y, z = (grid.ravel() for grid in np.meshgrid(*numbers, indexing="ij"))
    kept = x * y * z <= tiles
    x, y, z = x[kept], y[kept], z[kept]
    rows, columns, batch = -(-shape.block_rows // x), -(-shape.block_columns // y), batch_groups // z * grain
    used_rows = np.ceil(rows * (1 - (1 - shape.block_density) ** columns)).astype(np.int64)
    row_blocks = -(-np.ceil(rows * columns * shape.block_density).astype(np.int64) // used_rows)
    room = np.round(-(-shape.nonzero_blocks // (x * y * z)) * OVERSIZE).astype(np.int64)
    if block * block * size % 4:
        room += room % 2  # whole 4-byte words
    entries = 2 * GROUP_ENTRIES[blocky] + np.ceil(used_rows * (ROW_ENTRIES + row_blocks) * OVERSIZE).astype(np.int64)
    entries = -(-entries // ENTRY_ALIGNMENT) * ENTRY_ALIGNMENT
    return _Partitions(
        x=x, y=y, z=z, rows=rows, columns=columns, batch=batch, used_rows=used_rows, row_blocks=row_blocks, room=room,
        entries=entries, bucket=room * block * block * size + entries * 2, partials=rows * block * batch,
    )  # fmt: skip


def _moves(shape: SparseShape, fabric: Fabric, p: _Partitions) -> _Moves:
    size, block = shape.element_bytes, shape.block
    grain = 1 if block > 1 else shape.grain
    parts = p.x * p.y * p.z
    dense_bytes = p.columns * block * p.batch * size
    resident = -(-shape.block_columns * ceil_divide(shape.batch, grain) // parts) * block * grain * size
    # Parts of rows lie on neighbouring tiles, then parts of the batch: those share buses when they come in pairs.
    pairs = fabric.tiles_per_bus
    dense_rate = fabric.bytes_per_cycle * np.where((p.x % pairs == 0) | (p.x == parts), pairs, 1)
    bucket_rate = fabric.bytes_per_cycle * np.where((p.x == 1) & ((p.z % pairs == 0) | (p.z == parts)), pairs, 1)
    partial_bytes = p.partials * PARTIAL_BYTES
    waiting = np.where((p.z > 1) | (shape.dtype == "f16"), partial_bytes, 0)  # for others, or to be cast
    temporary = (
        dense_bytes + (p.z - 1) * p.bucket + waiting,
        2 * p.bucket + dense_bytes + waiting,
        waiting + np.where(p.y > 1, partial_bytes, 0) + -(-p.partials // p.y) * size,
    )
    return _Moves(
        dense=np.where(dense_bytes > resident, np.ceil(dense_bytes / dense_rate), 0),
        fetching=np.where(p.z > 1, np.ceil(p.z * p.bucket / bucket_rate), 0),
        gathering=np.where(p.y > 1, np.ceil(partial_bytes / fabric.bytes_per_cycle), 0),
        temporary=np.maximum.reduce(temporary),
    )


def _possible(shape: SparseShape, p: _Partitions, temporary: Ints, sram_bytes: int) -> Ints | None:
    """Indices of partitions that fit; the planner doubles its memory share once before it gives up."""
    fits = np.ones(len(p.x), dtype=bool)
    if shape.block == 1:
        fits = (p.columns - 1) * p.batch * shape.element_bytes <= INDEX_LIMIT
    for share in (PLANNED_SHARE, 2 * PLANNED_SHARE):
        inside = np.flatnonzero(fits & (temporary <= share * sram_bytes))
        if inside.size:
            return inside
    return None


def _lowest(shape: SparseShape, p: _Partitions, quick: Ints, possible: Ints, contexts: int) -> tuple[int, float]:
    """The partition of lowest estimate, and that.

    Vertex cycles are whole-number formulas of one tile, shared with the profiler: cheapest exchange (`quick`) first,
    and a partition whose exchange alone is dearer than the best sum cannot win.
    """
    best, lowest = -1, math.inf
    for i in possible[np.argsort(quick[possible], kind="stable")]:
        if quick[i] >= lowest:
            break
        one = _at(p, i)
        each = zero_partials_cycles(ceil_divide(one.partials, contexts), as_vendor=True, worker_contexts=contexts)
        each += products_cycles(shape, one.used_rows, one.row_blocks, one.batch, one.z, contexts, counted=False)
        each += reduction_cycles(shape, one.partials, one.y, contexts)
        if quick[i] + each < lowest:
            best, lowest = int(i), float(quick[i] + each)
    return best, lowest


def _at(columns: Columns, index: int) -> Columns:
    return type(columns)(**{field.name: int(getattr(columns, field.name)[index]) for field in fields(columns)})


def plan_dynamic(shape: SparseShape, machine: MimdMachine, seed: int) -> DynamicChoice | None:
    """The plan of lowest estimate; None where none fits."""
    if shape.dtype == "f32" and shape.block == 16:
        # No such codelet: popsparse takes four blocks of 8 (getBlockDimensionsToUse); placed singly here (assumed).
        shape = replace(shape, block=8)
    contexts = machine.tile.worker_contexts
    partitions = _partitions(shape, machine.chip.tiles)
    moves = _moves(shape, machine.exchange, partitions)
    possible = _possible(shape, partitions, moves.temporary, machine.tile.sram_bytes)
    if possible is None:
        return None
    quick = moves.dense + moves.fetching + moves.gathering
    best, lowest = _lowest(shape, partitions, quick, possible, contexts)
    one, move = _at(partitions, best), _at(moves, best)
    buckets = Buckets(
        parts=(one.x, one.y, one.z),
        room_blocks=one.room,
        room_entries=one.entries,
        group_entries=GROUP_ENTRIES[shape.block > 1],
        row_blocks=one.row_blocks,
    )
    propagation = propagate(shape, buckets, seed)
    shared = ceil_divide(one.partials, contexts)
    terms = {
        "dense exchange": move.dense,
        "arrange dense": arrange_cycles(shape, machine, one.x, one.columns, one.batch) if move.dense else 0,
        "bucket exchange": move.fetching,
        "clear partials": zero_partials_cycles(shared, dtype="f32", block=shape.block > 1, worker_contexts=contexts),
        "partial products": busiest_products_cycles(shape, propagation, one.used_rows, one.batch, one.z, contexts),
        "bucket propagation": propagation_cycles(shape, machine, propagation, buckets, one.bucket, one.batch),
        "reduction exchange": move.gathering,
        "reduction": reduction_cycles(shape, one.partials, one.y, contexts),
    }
    exchanges = (move.dense, move.fetching, move.gathering)
    return DynamicChoice(
        parts=buckets.parts,
        rows=one.rows,
        columns=one.columns,
        batch=one.batch,
        bucket_bytes=one.bucket,
        bucket_blocks=one.room,
        temporary_bytes=move.temporary,
        estimate_cycles=math.ceil(lowest),
        propagation=propagation,
        terms=terms,
        phases=sum(cycles > 0 for cycles in exchanges) + (propagation.steps if propagation else 0),
    )
