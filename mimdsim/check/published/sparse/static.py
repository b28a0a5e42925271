"""Plans of sparse products with positions known at compile time: bands of columns, tiles per band, pieces of the batch.

The bands and pieces are chosen as popsparse's static partitioner chooses them, by its own sum of estimates over every
(bands, pieces). What the chosen plan then costs is told with the reductions as popops places them, because that is
where the partitioner's estimate is known (from its own comments) to be optimistic.
Sources: lib/popsparse/StaticMatMulPartitioner.cpp, StaticMatMul.cpp; lib/popops/reduction/ReductionStages.cpp and
ReductionPlan.cpp, graphcore/poplibs 7eac0f2.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mimdsim.check.published.sparse.reductions import Reduction, place_reductions
from mimdsim.check.published.sparse.shapes import PLANNED_SHARE, SparseShape, ceil_divide
from mimdsim.check.published.sparse.static_costs import (
    planned_reduction_cycles,
    static_block_cycles,
    static_element_cycles,
    static_zeroing_cycles,
)
from mimdsim.costs.library.arithmetic import Elements, larger
from mimdsim.machine import MimdMachine

MOST_PIECES = 32  # limits of the partitioner's search (maxNSplit, maxKSplit)
MOST_BANDS = 128
INDEX_LIMIT = 65535  # positions on a tile are 16-bit offsets, in units of 8 * block elements for blocks

Ints = NDArray[np.integer[Any]]


@dataclass(frozen=True, kw_only=True)
class StaticChoice:
    """The plan of the busiest tile: `rows` and `columns` are in blocks and count those that hold a nonzero."""

    bands: int
    pieces: int
    tiles_per_band: int
    batch: int
    nonzero_blocks: int
    rows: int
    columns: int
    band_columns: int
    row_share: float
    temporary_bytes: int
    estimate_cycles: int
    terms: dict[str, int]
    phases: int


def _spread(probability: NDArray[np.floating[Any]], count: Ints) -> Ints:
    """Expected number present out of `count`, plus one standard deviation, as the partitioner counts."""
    spread = np.ceil(np.sqrt(probability * (1 - probability) * count))
    return np.minimum(np.ceil(probability * count + spread), count).astype(np.int64)


def _candidates(shape: SparseShape, tiles: int, pair: int) -> tuple[Ints, Ints]:
    grains = ceil_divide(shape.batch, shape.grain)
    bands = np.arange(1, min(MOST_BANDS, max(1, ceil_divide(shape.block_columns, shape.band_grain))) + 1)
    pieces = np.unique([ceil_divide(grains, ceil_divide(grains, p)) for p in range(1, min(MOST_PIECES, grains) + 1)])
    many, each = (grid.ravel() for grid in np.meshgrid(bands, pieces, indexing="ij"))
    fits = many * each <= max(1, tiles // pair)
    return many[fits], each[fits]


def plan_static(shape: SparseShape, machine: MimdMachine) -> StaticChoice | None:
    """The plan of lowest estimate within the planner's share of memory; None when there is none."""
    tiles, pair, fabric = machine.chip.tiles, machine.exchange.tiles_per_bus, machine.exchange
    contexts, size, block, density = machine.tile.worker_contexts, shape.element_bytes, shape.block, shape.block_density
    bands, pieces = _candidates(shape, tiles, pair)
    padded = ceil_divide(shape.batch, shape.grain) * shape.grain
    batch = -(-(padded // shape.grain) // pieces) * shape.grain
    band_blocks, band_columns = -(-shape.nonzero_blocks // bands), -(-shape.block_columns // bands)
    # Tiles of a band: its share of the nonzeros, no more than it has blocks for, in whole pairs.
    tiles_each = larger(tiles // pair // pieces * pair, 1)
    in_band = larger((band_blocks * tiles_each) // shape.nonzero_blocks, 1)
    needed = -(-band_blocks // -(-band_blocks // in_band))
    in_band = np.where(in_band >= pair, np.minimum(-(-needed // pair) * pair, in_band) // pair * pair, in_band)
    nonzeros = -(-band_blocks // in_band)
    rows = -(-shape.block_rows // in_band)
    part_of_row = np.minimum(np.ceil(band_blocks / density), shape.block_columns).astype(np.int64)
    columns = np.where(rows == 1, part_of_row, band_columns)
    row_share = 1 - (1 - density) ** columns
    used_rows = larger(_spread(row_share, rows), 1)
    used_columns = larger(_spread(1 - (1 - density) ** rows, columns), 1)
    if block == 1:
        compute: Elements = static_element_cycles(
            -(-used_rows // contexts), -(-nonzeros // used_rows), batch, dtype=shape.dtype, worker_contexts=contexts
        )
    else:
        compute = static_block_cycles(
            used_rows,
            used_rows * -(-nonzeros // used_rows),
            -(-batch // contexts),
            block=block,
            dtype=shape.dtype,
            worker_contexts=contexts,
        )
    outputs = used_rows * batch * block
    zeroing: Elements = 0 * outputs
    if shape.dtype == "f32" and block > 4:
        zeroing = static_zeroing_cycles(outputs, dtype=shape.dtype, worker_contexts=contexts)
    # Every tile of a band listens while all of the band's columns pass, two neighbours on shared buses.
    dense_bytes = batch * used_columns * block * size
    dense = np.ceil(batch * columns * block * size / (pair * fabric.bytes_per_cycle))
    value_bytes = nonzeros * block * block * size
    values: NDArray[Any] = np.where(pieces > 1, np.ceil(value_bytes / fabric.bytes_per_cycle), 0)
    depth = np.ceil(
        (row_share * bands + np.ceil(np.sqrt(row_share * (1 - row_share) * bands))) * band_columns / columns
    )
    depth = np.maximum(depth.astype(np.int64), 1)
    partial_bytes = -(-outputs * size * (depth - 1) // depth)
    reducing = planned_reduction_cycles(-(-outputs // depth), depth, dtype=shape.dtype, worker_contexts=contexts)
    moving = -(
        -shape.rows * padded * size // tiles
    )  # the partitioner counts a cycle a byte: move, and clear empty rows
    estimate = dense + values + compute + zeroing + np.ceil(partial_bytes / fabric.bytes_per_cycle) + reducing + moving
    temporary = larger(dense_bytes + value_bytes + outputs * size, partial_bytes + outputs * size)
    fits = temporary <= PLANNED_SHARE * machine.tile.sram_bytes
    fits &= band_columns * block * batch * size <= INDEX_LIMIT * (1 if block == 1 else 8 * block)
    if not fits.any():
        return None
    best = int(np.where(fits, estimate, np.inf).argmin())

    def at(values_of: object) -> int:
        return int(np.asarray(values_of)[best])

    reduction = place_reductions(
        shape,
        machine,
        bands=at(bands),
        pieces=at(pieces),
        batch=at(batch),
        tiles_per_band=at(in_band),
        row_share=float(1 - (1 - density) ** at(band_columns)),
    )
    terms = _terms(shape, machine, at(compute), at(zeroing), at(dense), at(values), reduction)
    return StaticChoice(
        bands=at(bands),
        pieces=at(pieces),
        tiles_per_band=at(in_band),
        batch=at(batch),
        nonzero_blocks=at(nonzeros),
        rows=at(used_rows),
        columns=at(used_columns),
        band_columns=at(band_columns),
        row_share=float(row_share[best]),
        temporary_bytes=at(temporary) + reduction.code_bytes,
        estimate_cycles=math.ceil(float(estimate[best])),
        terms=terms,
        phases=1 + (at(values) > 0) + (reduction.partials_cycles > 0) + (reduction.moving_cycles > 0),
    )


def _terms(
    shape: SparseShape, machine: MimdMachine, compute: int, zeroing: int, dense: int, values: int, reduction: Reduction
) -> dict[str, int]:
    return {
        "dense exchange": dense,
        "nonzero exchange": values,
        "clear partials": zeroing,
        "partial products": compute,
        "reduction exchange": reduction.partials_cycles,
        "reduction": reduction.compute_cycles,
        "result exchange": reduction.moving_cycles,
    }
