"""Plans of sparse products with positions known at compile time: bands of columns, tiles per band, pieces of the batch.

The bands and pieces are chosen as popsparse's static partitioner chooses them, by its own sum of estimates over every
(bands, pieces). What the chosen plan then costs is told with the reductions as popops places them, because that is
where the partitioner's estimate is known (from its own comments) to be optimistic.

There is one reduction for each row of blocks and piece of the batch. Each is placed by itself: either where its result
lies, or, when popops' estimate says that is dearer, spread over the chip in pieces of four vectors from a pseudo-random
first tile, all without regard to the others. So a tile runs many short vertices, the fullest tile more than the mean.
Sources: lib/popsparse/StaticMatMulPartitioner.cpp, StaticMatMul.cpp; lib/popops/reduction/ReductionStages.cpp
(intermediateToOutput), ReductionPlan.cpp (shouldReduceAtDestination) and CycleEstimationFunctions.cpp,
graphcore/poplibs 7eac0f2.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mimdsim.costs.library.arithmetic import Elements, larger
from mimdsim.costs.library.reductions import reduce_strided_cycles
from mimdsim.machine import MimdMachine
from mimdsim.validation.sparse.codelets import (
    PLANNED_SHARE,
    Choice,
    SparseShape,
    Splits,
    ceil_divide,
    fewest_parts,
    planned_reduction_cycles,
    static_block_cycles,
    static_element_cycles,
    static_zeroing_cycles,
)

PLANNED_GRAIN = 8  # elements in which the balanced estimate spreads a result (ReductionPlan.cpp)


@dataclass(frozen=True, kw_only=True)
class Reduction:
    """Cycles of the phase, and the exchange code of its fragments in bytes of the fullest tile."""

    partials_cycles: int
    compute_cycles: int
    moving_cycles: int
    code_bytes: int


def place_reductions(
    shape: SparseShape,
    machine: MimdMachine,
    *,
    bands: int,
    pieces: int,
    batch: int,
    tiles_per_band: int,
    row_share: float,
) -> Reduction:
    """Partial sums from `bands` bands to the results; a row has nonzeros in a band with probability `row_share`.

    A tile's run of nonzeros ends within a row, so a cut between two tiles adds a partial sum for that row.
    """
    fabric, tiles, contexts = machine.exchange, machine.chip.tiles, machine.tile.worker_contexts
    size, vector = shape.element_bytes, shape.grain
    outputs = batch * shape.block  # of one reduction
    pairs_per_row = bands * (row_share + (tiles_per_band - 1) / shape.block_rows)
    empty = (1 - row_share) ** bands
    uncut = max(0.0, 1 - (tiles_per_band - 1) / (shape.block_rows * row_share))
    single = bands * row_share * (1 - row_share) ** (bands - 1) * uncut
    several = max(0.0, 1 - empty - single)
    held = ceil_divide(shape.rows * shape.batch, tiles)  # results of a tile
    result_cycles = math.ceil(held * size / fabric.bytes_per_cycle)
    if several < 1e-9:
        return Reduction(partials_cycles=0, compute_cycles=0, moving_cycles=result_cycles, code_bytes=0)
    depth = max(2.0, (pairs_per_row - single) / several)
    here, widest = min(outputs, held), 2 * vector
    # vertices, bytes received and fragments are those of the fullest tile
    if _cheaper_at_result(machine, outputs, here, depth, size, vector):  # each result where it lies
        moved, each, turns = 0, ceil_divide(ceil_divide(here, contexts), widest) * widest, max(1.0, held / here)
        vertices, wide = math.ceil(several * ceil_divide(here, each) * turns), min(each, here)
        received, fragments = held * (several * depth + single) * size, several * depth * turns
    else:  # in pieces of four vectors, each from a first tile of its own
        moved, piece, wide = result_cycles, max(4 * vector, ceil_divide(outputs, tiles)), widest
        calls = several * shape.block_rows * pieces * ceil_divide(outputs, piece) / tiles
        # Expected maximum over the tiles of independent choices of the first tile.
        most = max(1.0, calls + math.sqrt(2 * calls * math.log(max(2, tiles))))
        vertices = math.ceil(most * ceil_divide(piece, widest))
        received, fragments = most * piece * depth * size, most * depth
    compute = contexts * ceil_divide(vertices, contexts) * _vertex_cycles(shape, wide, depth)
    wire = max(received / fabric.bytes_per_cycle, fragments * fabric.receive_fragment_cycles)
    return Reduction(
        partials_cycles=math.ceil(wire),
        compute_cycles=math.ceil(compute),
        moving_cycles=moved,
        code_bytes=math.ceil(2 * fragments * fabric.fragment_code_bytes),
    )


def _cheaper_at_result(machine: MimdMachine, outputs: int, here: int, depth: float, size: int, vector: int) -> bool:
    """popops' estimate: where the result lies, or in grains over all tiles and then moved there."""
    rate, sync = machine.exchange.bytes_per_cycle, machine.sync.internal_cycles
    at_result = here * size / rate + depth * ceil_divide(here, vector) + sync
    grains = ceil_divide(ceil_divide(outputs, PLANNED_GRAIN), machine.chip.tiles)
    spread_out = (
        PLANNED_GRAIN * grains * depth * size / rate
        + depth * ceil_divide(PLANNED_GRAIN * grains, vector)
        + here * size / rate
        + 2 * sync
    )
    return at_result < spread_out


def _vertex_cycles(shape: SparseShape, count: int, depth: float) -> float:
    """`count` results of a region as wide as one is cut for the contexts; between whole depths, in proportion."""
    low, high = (
        int(reduce_strided_cycles(count, d, stride=2 * shape.grain, dtype=shape.dtype, out_dtype=shape.dtype))
        for d in (math.floor(depth), math.ceil(depth))
    )
    return low + (depth - math.floor(depth)) * (high - low)


MOST_PIECES = 32  # limits of the partitioner's search (maxNSplit, maxKSplit)
MOST_BANDS = 128
INDEX_LIMIT = 65535  # positions on a tile are 16-bit offsets, in units of 8 * block elements for blocks

Ints = NDArray[np.integer[Any]]


def _spread(probability: NDArray[np.floating[Any]], count: Ints) -> Ints:
    """Expected number present out of `count`, plus one standard deviation, as the partitioner counts."""
    spread = np.ceil(np.sqrt(probability * (1 - probability) * count))
    result: Ints = np.minimum(np.ceil(probability * count + spread), count).astype(np.int64)
    return result


def _candidates(shape: SparseShape, tiles: int, pair: int) -> tuple[Any, Any]:
    grains = ceil_divide(shape.batch, shape.grain)
    bands = np.arange(
        1, min(MOST_BANDS, max(1, ceil_divide(shape.block_columns, 1 if shape.block == 1 else shape.grain))) + 1
    )
    many, each = (grid.ravel() for grid in np.meshgrid(bands, fewest_parts(grains, MOST_PIECES), indexing="ij"))
    fits = many * each <= max(1, tiles // pair)
    return many[fits], each[fits]


def _sizes(shape: SparseShape, tiles: int, pair: int) -> Splits:
    """What the busiest tile of every candidate holds, in blocks (batch and outputs in elements)."""
    density = shape.block_density
    bands, pieces = _candidates(shape, tiles, pair)
    band_blocks, band_columns = -(-shape.nonzero_blocks // bands), -(-shape.block_columns // bands)
    # Tiles of a band: its share of the nonzeros, no more than it has blocks for, in whole pairs.
    tiles_each = larger(tiles // pair // pieces * pair, 1)
    in_band = larger((band_blocks * tiles_each) // shape.nonzero_blocks, 1)
    needed = -(-band_blocks // -(-band_blocks // in_band))
    in_band = np.where(in_band >= pair, np.minimum(-(-needed // pair) * pair, in_band) // pair * pair, in_band)
    rows = -(-shape.block_rows // in_band)
    part_of_row = np.minimum(np.ceil(band_blocks / density), shape.block_columns).astype(np.int64)
    columns = np.where(rows == 1, part_of_row, band_columns)
    row_share = 1 - (1 - density) ** columns
    used_rows, batch = larger(_spread(row_share, rows), 1), -(-(_padded(shape) // shape.grain) // pieces) * shape.grain
    return Splits(
        bands=bands, pieces=pieces, in_band=in_band, batch=batch, nonzeros=-(-band_blocks // in_band), columns=columns,
        band_columns=band_columns, row_share=row_share, used_rows=used_rows, outputs=used_rows * batch * shape.block,
        used_columns=larger(_spread(1 - (1 - density) ** rows, columns), 1),
    )  # fmt: skip


def _padded(shape: SparseShape) -> int:
    return ceil_divide(shape.batch, shape.grain) * shape.grain


def _products(shape: SparseShape, sizes: Splits, contexts: int) -> tuple[Elements, Elements]:
    """Cycles of the partial products, and of clearing them first."""
    used_rows, row_blocks = sizes.used_rows, -(-sizes.nonzeros // sizes.used_rows)
    each: dict[str, Any] = {"dtype": shape.dtype, "worker_contexts": contexts}
    if shape.block == 1:
        return static_element_cycles(-(-used_rows // contexts), row_blocks, sizes.batch, **each), 0 * sizes.outputs
    batch = -(-sizes.batch // contexts)
    compute = static_block_cycles(used_rows, used_rows * row_blocks, batch, block=shape.block, **each)
    cleared = shape.dtype == "f32" and shape.block > 4
    return compute, static_zeroing_cycles(sizes.outputs, **each) if cleared else 0 * sizes.outputs


def _reducing(shape: SparseShape, machine: MimdMachine, sizes: Splits) -> tuple[Any, Any]:
    """(bytes of partial sums that a tile receives, cycles to receive, add and move them on), as the planner has it."""
    size, outputs, row_share = shape.element_bytes, sizes.outputs, sizes.row_share
    bands = row_share * sizes.bands + np.ceil(np.sqrt(row_share * (1 - row_share) * sizes.bands))
    depth = np.maximum(np.ceil(bands * sizes.band_columns / sizes.columns).astype(np.int64), 1)
    partial_bytes = -(-outputs * size * (depth - 1) // depth)
    each: dict[str, Any] = {"dtype": shape.dtype, "worker_contexts": machine.tile.worker_contexts}
    reducing = planned_reduction_cycles(-(-outputs // depth), depth, **each)
    # the partitioner counts a cycle a byte: move, and clear empty rows
    moving = -(-shape.rows * _padded(shape) * size // machine.chip.tiles)
    return partial_bytes, np.ceil(partial_bytes / machine.exchange.bytes_per_cycle) + reducing + moving


def plan_static(shape: SparseShape, machine: MimdMachine) -> Choice | None:
    """The plan of lowest estimate within the planner's share of memory; None when there is none."""
    pair, rate = machine.exchange.tiles_per_bus, machine.exchange.bytes_per_cycle
    size, block = shape.element_bytes, shape.block
    sizes = _sizes(shape, machine.chip.tiles, pair)
    sizes.products, sizes.zeroing = _products(shape, sizes, machine.tile.worker_contexts)
    # Every tile of a band listens while all of the band's columns pass, two neighbours on shared buses.
    sizes.dense = np.ceil(sizes.batch * sizes.columns * block * size / (pair * rate))
    value_bytes = sizes.nonzeros * block * block * size
    sizes.values = np.where(sizes.pieces > 1, np.ceil(value_bytes / rate), 0)
    partial_bytes, reducing = _reducing(shape, machine, sizes)
    estimate = sizes.dense + sizes.values + sizes.products + sizes.zeroing + reducing
    output_bytes = sizes.outputs * size
    dense_bytes = sizes.batch * sizes.used_columns * block * size
    sizes.temporary = larger(dense_bytes + value_bytes + output_bytes, partial_bytes + output_bytes)
    fits = sizes.temporary <= PLANNED_SHARE * machine.tile.sram_bytes
    fits &= sizes.band_columns * block * sizes.batch * size <= INDEX_LIMIT * (1 if block == 1 else 8 * block)
    if not fits.any():
        return None
    best = int(np.where(fits, estimate, np.inf).argmin())
    one = sizes.at(best)
    reduction = place_reductions(
        shape,
        machine,
        bands=one.bands,
        pieces=one.pieces,
        batch=one.batch,
        tiles_per_band=one.in_band,
        row_share=float(1 - (1 - shape.block_density) ** one.band_columns),
    )
    return Choice(
        parts=(one.in_band, one.bands, one.pieces),
        busiest_blocks=one.nonzeros,
        temporary_bytes=one.temporary + reduction.code_bytes,
        estimate_cycles=math.ceil(float(estimate[best])),
        terms={
            "dense exchange": one.dense,
            "nonzero exchange": one.values,
            "clear partials": one.zeroing,
            "partial products": one.products,
            "reduction exchange": reduction.partials_cycles,
            "reduction": reduction.compute_cycles,
            "result exchange": reduction.moving_cycles,
        },
        exchanges=1 + (one.values > 0) + (reduction.partials_cycles > 0) + (reduction.moving_cycles > 0),
    )
