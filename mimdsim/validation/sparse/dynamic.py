"""Plans of sparse products whose positions arrive at run time: (rows, columns, batch) parts and buckets of equal size.

The partition is chosen as popsparse's planner chooses it: by the sum of its estimates for a uniform pattern over every
partition that fits, the propagation of displaced blocks left out. What the chosen partition then costs adds what a
random pattern displaces, the pieces of the dense operand that arrive scattered, and what the codelets repeat
(`codelets.py`).

Buckets have room for 1.3 times the mean. A random pattern is drawn (seeded), blocks beyond a bucket's room go to the
nearest earlier bucket with room, first within the same rows, then anywhere, and the buckets are passed on step by step
until the farthest block has met its tile.
Sources: lib/popsparse/FullyConnectedPlan.cpp, FullyConnected.cpp (propagation), FullyConnectedUtils.cpp
(splitTileBetweenWorkers), PerformanceEstimation.hpp, SparsePartitionerImpl.cpp (balanceBuckets, findOverflowDistance)
and MatMulOptions.hpp, graphcore/poplibs 7eac0f2.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mimdsim.base.rng import stream
from mimdsim.costs.library.reductions import reduce_add_cycles
from mimdsim.costs.library.sparse import (
    sparse_dense_block_cycles,
    sparse_dense_elementwise_cycles,
    zero_partials_cycles,
)
from mimdsim.machine import MimdMachine
from mimdsim.machine.mimd import Fabric
from mimdsim.validation.sparse.codelets import (
    PLANNED_SHARE,
    Choice,
    SparseShape,
    Splits,
    ceil_divide,
    fewest_parts,
    repeated_cycles,
)

SEED = 1  # of the pattern
SAMPLED_BLOCKS = 2_000_000  # beyond this many blocks the pattern is drawn as counts per partition only


@dataclass(frozen=True, kw_only=True)
class Propagation:
    """Steps in which buckets are handed on, and for each distance the largest number of blocks a tile multiplies.

    busiest_blocks: blocks that the fullest tile finds at home.
    """

    busiest_blocks: int
    steps: int
    displaced_blocks: int
    arrivals: tuple[int, ...]


def _fill(shape: SparseShape, one: Splits) -> tuple[np.ndarray, np.ndarray]:
    """Blocks and used rows of every (row part, column part) of a random pattern."""
    x, y = one.x, one.y
    height, width = ceil_divide(shape.block_rows, x), ceil_divide(shape.block_columns, y)
    random = stream(SEED, "sparse pattern", shape.block_rows, shape.block_columns, shape.nonzero_blocks)
    cells = shape.block_rows * shape.block_columns
    if cells > SAMPLED_BLOCKS:
        # Binomial counts; with this many blocks every row is in use but for its chance of being empty.
        blocks = random.binomial(height * width, shape.block_density, size=(x, y))
        return blocks, np.ceil(height * (1 - (1 - shape.block_density) ** width) + 0 * blocks).astype(np.int64)
    chosen = random.choice(cells, shape.nonzero_blocks, replace=False)
    row, column = chosen // shape.block_columns, chosen % shape.block_columns
    part = row // height * y + column // width
    rows = np.unique(part * shape.block_rows + row) // shape.block_rows
    return (
        np.bincount(part, minlength=x * y).reshape(x, y),
        np.bincount(rows, minlength=x * y).reshape(x, y),
    )


def propagate(shape: SparseShape, one: Splits) -> Propagation | None:
    """Steps until every displaced block has met its tile; None when not all blocks find room. one: as `_partitions`
    has it."""
    x, y, z, group = one.x, one.y, one.z, GROUP_ENTRIES[shape.block > 1]
    blocks, rows = _fill(shape, one)
    # Rows are dealt to the z buckets of a part; the last entry of a bucket marks its end.
    blocks_each, rows_each = np.maximum(-(-blocks // z), 1), np.maximum(-(-rows // z), 1)
    entries_per_block = 1 + 2 * rows_each / blocks_each
    usable = one.entries - 1 - group
    most = np.clip(np.floor(usable / entries_per_block), 0, one.room).astype(np.int64)
    kept = np.minimum(blocks, most * z)
    over = blocks - kept
    room = one.room * z - kept
    entries = usable * z - np.ceil(kept * entries_per_block).astype(np.int64)
    entries_per_guest = 1 + 2 / max(1, one.row_blocks)
    busiest = int(kept.max())
    arrivals: dict[tuple[int, int], int] = {}

    def settle(home: tuple[int, int], count: int, hosts: list[tuple[int, int]]) -> int:
        for host in hosts:
            spare = (int(entries[host]) - group) / entries_per_guest
            moved = min(count, int(room[host]), math.floor(spare))
            if moved <= 0:
                continue
            room[host] -= moved
            entries[host] -= group + math.ceil(moved * entries_per_guest)
            distance = ((home[0] - host[0]) % x, (home[1] - host[1]) % y)
            arrivals[distance] = max(arrivals.get(distance, 0), moved)
            count -= moved
            if not count:
                break
        return count

    left: list[tuple[int, int, int]] = []
    for i in range(x):
        for j in np.argsort(-over[i], kind="stable"):
            if not over[i, j]:
                break
            rest = settle((i, int(j)), int(over[i, j]), [(i, int(j - d) % y) for d in range(1, y)])
            if rest:
                left.append((rest, i, int(j)))
    for count, i, j in sorted(left, reverse=True):
        home = i * y + j
        if settle((i, j), count, [divmod((home - d) % (x * y), y) for d in range(1, x * y)]):
            return None
    farthest = max(arrivals, default=(0, 0))
    # Beyond the own rows: whole rounds over the columns for every distance of rows that is in use.
    rounds = len({rows_away for rows_away, _ in arrivals} | {0})
    steps = farthest[1] * z if farthest[0] == 0 else rounds * y * z - z
    return Propagation(
        busiest_blocks=busiest, steps=steps, displaced_blocks=int(over.sum()), arrivals=tuple(arrivals.values())
    )


CONV_UNITS = {"f16": 8, "f32": 16}  # units that deliver fp32 sums


def products_cycles(
    shape: SparseShape, rows: int, row_blocks: int, batch: int, buckets: int, contexts: int, *, counted: bool = True
) -> int:
    """Partial products of a tile; not `counted`: as the planner estimates them."""
    shared: dict[str, Any] = {"dtype": shape.dtype, "buckets": buckets, "worker_contexts": contexts}
    if shape.block > 1:
        columns = ceil_divide(batch, contexts)
        units = CONV_UNITS[shape.dtype]
        cycles = sparse_dense_block_cycles(
            rows, columns, row_blocks, block=shape.block, partials_dtype="f32", conv_units=units, **shared
        )
    else:  # contexts share rows first, then vectors of the batch
        vectors = ceil_divide(batch, shape.grain)
        each = ceil_divide(rows * vectors, contexts)
        rows = min(ceil_divide(each, vectors), rows)
        columns = min(ceil_divide(each, rows), vectors) * shape.grain
        cycles = sparse_dense_elementwise_cycles(rows, columns, row_blocks, **shared)
    return cycles + (repeated_cycles(rows, columns, block=shape.block, **shared) if counted else 0)


def busiest_products_cycles(shape: SparseShape, propagation: Propagation | None, one: Splits, contexts: int) -> int:
    """Partial products of the fullest tile, whose rows are dealt to the buckets and there to the contexts."""
    if propagation is None:
        return 0
    each = propagation.busiest_blocks / one.used_rows

    def with_blocks(row_blocks: int) -> int:
        if shape.block > 1:
            return products_cycles(shape, one.used_rows, row_blocks, one.batch, one.z, contexts)
        rows = ceil_divide(one.used_rows, one.z)
        return int(one.z) * products_cycles(shape, rows, row_blocks, one.batch, 1, contexts)

    low, high = math.floor(each), math.ceil(each)
    less = with_blocks(low)
    return less if low == high else math.ceil(less + (each - low) * (with_blocks(high) - less))


def reduction_cycles(shape: SparseShape, partials: int, depth: int, contexts: int) -> int:
    """Add `depth` fp32 partial sums of each result, shared by the `depth` tiles, or only cast."""
    if depth > 1:
        own = ceil_divide(partials, depth)
        return int(reduce_add_cycles(own, depth, dtype="f32", out_dtype=shape.dtype, worker_contexts=contexts))
    if shape.dtype == "f32":
        return 0
    # Only a cast: 26 to start, then a vector of fp32 a cycle (popsparse getCastCycleEstimate).
    return (26 + ceil_divide(ceil_divide(partials, contexts), 2)) * contexts


def arrange_cycles(shape: SparseShape, machine: MimdMachine, one: Splits) -> int:
    """Cycles to put the pieces of the dense operand in their rows.

    Block codelets want batch rows of all the tile's columns in one piece. The operand lies spread over the tiles that
    will read it, by columns first (mapTensorsByUse in FullyConnected.cpp), so each row arrives in a piece from each.
    Element codelets want rows of the batch, which lie as they are wanted.
    """
    if shape.block == 1 or one.x == 1 or not one.dense:
        return 0
    copied: float = one.columns * shape.block * one.batch * shape.element_bytes / machine.tile.copy_bytes_per_cycle
    bundles: float = one.batch * min(one.x, one.columns) * machine.exchange.arrange_fragment_bundles
    return math.ceil(bundles * machine.tile.issue_cycles / machine.tile.worker_contexts + copied)


def propagation_cycles(shape: SparseShape, machine: MimdMachine, propagation: Propagation | None, one: Splits) -> int:
    """Cycles of all steps: hand the bucket to the neighbour, search it, multiply what belongs here."""
    if propagation is None or not propagation.steps:
        return 0
    contexts = machine.tile.worker_contexts
    # A step finds groups of its own and of guests; those of others cost the search only.
    groups = 1 + min(1.0, propagation.displaced_blocks / max(1, one.x * one.y * one.z))
    search = 40 + 33 * groups if shape.block > 1 else 30 + 32 * groups
    hand_on = machine.exchange.fixed_cycles + one.bucket / machine.exchange.bytes_per_cycle
    total: float = propagation.steps * (hand_on + search)
    for blocks in propagation.arrivals:
        rows = ceil_divide(blocks, one.row_blocks)
        total += products_cycles(shape, rows, ceil_divide(blocks, rows), one.batch, 1, contexts)
    return math.ceil(total)


OVERSIZE = 1.3  # room of a bucket over its mean: metaInfoBucketOversizeProportion = 0.3
PARTIAL_BYTES = 4  # partial sums are fp32 by default (partialsType)
# 16-bit entries of a group of rows (of which a bucket is planned to hold two), of a row, and alignment of the list
GROUP_ENTRIES = {True: 5, False: 9 + 6 * 5}
ROW_ENTRIES, ENTRY_ALIGNMENT = 2, 4
INDEX_LIMIT = 65535

Ints = NDArray[np.int64]


def _partitions(shape: SparseShape, tiles: int, fabric: Fabric) -> Splits:
    """Every one into x parts of the rows, y of the columns, z of the batch that takes no more than `tiles`.

    rows, columns of a tile in blocks, used_rows: those that hold some, row_blocks: how many; batch in elements. A
    bucket has room for `room` blocks and `entries` of their positions, and takes `bucket` bytes. dense, fetching,
    gathering: cycles of the exchanges; temporary: bytes that a tile needs for a while.
    """
    size, block, blocky = shape.element_bytes, shape.block, shape.block > 1
    grain = 1 if blocky else shape.grain
    batch_groups = ceil_divide(shape.batch, grain)
    exact = np.array([parts for parts in range(1, min(batch_groups, tiles) + 1) if batch_groups % parts == 0], np.int64)
    numbers = fewest_parts(shape.block_rows, tiles), fewest_parts(shape.block_columns, tiles), exact
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
    bucket, partials = room * block * block * size + entries * 2, rows * block * batch
    parts, pairs, rate = x * y * z, fabric.tiles_per_bus, fabric.bytes_per_cycle
    dense_bytes = columns * block * batch * size
    resident = -(-shape.block_columns * batch_groups // parts) * block * grain * size
    # Parts of rows lie on neighbouring tiles, then parts of the batch: those share buses when they come in pairs.
    dense_rate = rate * np.where((x % pairs == 0) | (x == parts), pairs, 1)
    bucket_rate = rate * np.where((x == 1) & ((z % pairs == 0) | (z == parts)), pairs, 1)
    partial_bytes = partials * PARTIAL_BYTES
    waiting = np.where((z > 1) | (shape.dtype == "f16"), partial_bytes, 0)  # for others, or to be cast
    temporary = (
        dense_bytes + (z - 1) * bucket + waiting,
        2 * bucket + dense_bytes + waiting,
        waiting + np.where(y > 1, partial_bytes, 0) + -(-partials // y) * size,
    )
    return Splits(
        x=x, y=y, z=z, rows=rows, columns=columns, batch=batch, used_rows=used_rows, row_blocks=row_blocks, room=room,
        entries=entries, bucket=bucket, partials=partials,
        dense=np.where(dense_bytes > resident, np.ceil(dense_bytes / dense_rate), 0),
        fetching=np.where(z > 1, np.ceil(z * bucket / bucket_rate), 0),
        gathering=np.where(y > 1, np.ceil(partial_bytes / rate), 0),
        temporary=np.maximum.reduce(temporary),
    )  # fmt: skip


def _possible(shape: SparseShape, p: Splits, sram_bytes: int) -> Ints | None:
    """Indices of partitions that fit; the planner doubles its memory share once before it gives up."""
    fits = np.ones(len(p.x), dtype=bool)
    if shape.block == 1:
        fits = (p.columns - 1) * p.batch * shape.element_bytes <= INDEX_LIMIT
    for share in (PLANNED_SHARE, 2 * PLANNED_SHARE):
        inside = np.flatnonzero(fits & (p.temporary <= share * sram_bytes))
        if inside.size:
            return inside
    return None


def _lowest(shape: SparseShape, p: Splits, possible: Ints, contexts: int) -> tuple[int, float]:
    """The partition of lowest estimate, and that.

    Vertex cycles are whole-number formulas of one tile, shared with the profiler: cheapest exchange first,
    and a partition whose exchange alone is dearer than the best sum cannot win.
    """
    best, lowest = -1, math.inf
    quick = p.dense + p.fetching + p.gathering
    for i in possible[np.argsort(quick[possible], kind="stable")]:
        if quick[i] >= lowest:
            break
        one = p.at(i)
        each = zero_partials_cycles(ceil_divide(one.partials, contexts), as_vendor=True, worker_contexts=contexts)
        each += products_cycles(shape, one.used_rows, one.row_blocks, one.batch, one.z, contexts, counted=False)
        each += reduction_cycles(shape, one.partials, one.y, contexts)
        if quick[i] + each < lowest:
            best, lowest = int(i), float(quick[i] + each)
    return best, lowest


def plan_dynamic(shape: SparseShape, machine: MimdMachine) -> Choice | None:
    """The plan of lowest estimate; None where none fits."""
    if shape.dtype == "f32" and shape.block == 16:
        # No such codelet: popsparse takes four blocks of 8 (getBlockDimensionsToUse); placed singly here (assumed).
        shape = replace(shape, block=8)
    contexts = machine.tile.worker_contexts
    partitions = _partitions(shape, machine.chip.tiles, machine.exchange)
    possible = _possible(shape, partitions, machine.tile.sram_bytes)
    if possible is None:
        return None
    best, lowest = _lowest(shape, partitions, possible, contexts)
    one = partitions.at(best)
    propagation = propagate(shape, one)
    shared = ceil_divide(one.partials, contexts)
    terms = {
        "dense exchange": one.dense,
        "arrange dense": arrange_cycles(shape, machine, one),
        "bucket exchange": one.fetching,
        "clear partials": zero_partials_cycles(shared, dtype="f32", block=shape.block > 1, worker_contexts=contexts),
        "partial products": busiest_products_cycles(shape, propagation, one, contexts),
        "bucket propagation": propagation_cycles(shape, machine, propagation, one),
        "reduction exchange": one.gathering,
        "reduction": reduction_cycles(shape, one.partials, one.y, contexts),
    }
    return Choice(
        parts=(one.x, one.y, one.z),
        busiest_blocks=one.room * one.z,  # over all buckets that pass a tile
        temporary_bytes=one.temporary,
        estimate_cycles=math.ceil(lowest),
        terms=terms,
        exchanges=sum(cycles > 0 for cycles in (one.dense, one.fetching, one.gathering)),
        steps=propagation.steps if propagation else 0,
        refused="" if propagation else f"a random pattern overflows all buckets ({one.room} blocks each)",
    )
