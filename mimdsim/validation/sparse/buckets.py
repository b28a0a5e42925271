"""Overflow of the equal buckets of dynamic sparsity: what does not fit at home waits elsewhere and must travel back.

Buckets have room for 1.3 times the mean. A random pattern is drawn (seeded), blocks beyond a bucket's room go to the
nearest earlier bucket with room, first within the same rows, then anywhere, and the buckets are passed on step by step
until the farthest block has met its tile.
Source: lib/popsparse/SparsePartitionerImpl.cpp (balanceBuckets, findOverflowDistance) and FullyConnected.cpp
(propagation), graphcore/poplibs 7eac0f2.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from mimdsim.base.rng import stream
from mimdsim.validation.sparse.shapes import SparseShape, ceil_divide

SAMPLED_BLOCKS = 2_000_000  # beyond this many blocks the pattern is drawn as counts per partition only


@dataclass(frozen=True, kw_only=True)
class Buckets:
    """How one partition fills: `parts` (rows, columns, batch); room in blocks and in 16-bit entries of positions."""

    parts: tuple[int, int, int]
    room_blocks: int
    room_entries: int
    group_entries: int  # entries that every group of rows brings with it, besides its rows and blocks
    row_blocks: int  # blocks a row has on a tile, on average


@dataclass(frozen=True, kw_only=True)
class Propagation:
    """Steps in which buckets are handed on, and for each distance the largest number of blocks a tile multiplies.

    busiest_blocks: blocks that the fullest tile finds at home.
    """

    busiest_blocks: int
    steps: int
    displaced_blocks: int
    arrivals: tuple[int, ...]


def _fill(shape: SparseShape, buckets: Buckets, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Blocks and used rows of every (row part, column part) of a random pattern."""
    x, y, _ = buckets.parts
    height, width = ceil_divide(shape.block_rows, x), ceil_divide(shape.block_columns, y)
    random = stream(seed, "sparse pattern", shape.block_rows, shape.block_columns, shape.nonzero_blocks)
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


def propagate(shape: SparseShape, buckets: Buckets, seed: int = 1) -> Propagation | None:
    """Steps until every displaced block has met its tile; None when not all blocks find room."""
    x, y, z = buckets.parts
    blocks, rows = _fill(shape, buckets, seed)
    # Rows are dealt to the z buckets of a part; the last entry of a bucket marks its end.
    blocks_each, rows_each = np.maximum(-(-blocks // z), 1), np.maximum(-(-rows // z), 1)
    entries_per_block = 1 + 2 * rows_each / blocks_each
    usable = buckets.room_entries - 1 - buckets.group_entries
    most = np.clip(np.floor(usable / entries_per_block), 0, buckets.room_blocks).astype(np.int64)
    kept = np.minimum(blocks, most * z)
    over = blocks - kept
    room = buckets.room_blocks * z - kept
    entries = usable * z - np.ceil(kept * entries_per_block).astype(np.int64)
    entries_per_guest = 1 + 2 / max(1, buckets.row_blocks)
    busiest = int(kept.max())
    arrivals: dict[tuple[int, int], int] = {}

    def settle(home: tuple[int, int], count: int, hosts: list[tuple[int, int]]) -> int:
        for host in hosts:
            spare = (int(entries[host]) - buckets.group_entries) / entries_per_guest
            moved = min(count, int(room[host]), math.floor(spare))
            if moved <= 0:
                continue
            room[host] -= moved
            entries[host] -= buckets.group_entries + math.ceil(moved * entries_per_guest)
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
    displaced = int(over.sum())
    if not arrivals:
        return Propagation(busiest_blocks=busiest, steps=0, displaced_blocks=displaced, arrivals=())
    farthest = max(arrivals)
    # Beyond the own rows: whole rounds over the columns for every distance of rows that is in use.
    rounds = len({rows_away for rows_away, _ in arrivals} | {0})
    steps = farthest[1] * z if farthest[0] == 0 else rounds * y * z - z
    return Propagation(
        busiest_blocks=busiest, steps=steps, displaced_blocks=displaced, arrivals=tuple(arrivals.values())
    )
