"""Where popops puts the many small reductions of a static sparse product, and what they cost.

There is one reduction for each row of blocks and piece of the batch. Each is placed by itself: either where its result
lies, or, when popops' estimate says that is dearer, spread over the chip in pieces of four vectors from a pseudo-random
first tile, all without regard to the others. So a tile runs many short vertices, the fullest tile more than the mean.
Source: lib/popops/reduction/ReductionStages.cpp (intermediateToOutput), ReductionPlan.cpp (shouldReduceAtDestination),
CycleEstimationFunctions.cpp, graphcore/poplibs 7eac0f2.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from mimdsim.costs.library.reductions import reduce_strided_cycles
from mimdsim.machine import MimdMachine
from mimdsim.validation.sparse.shapes import SparseShape, ceil_divide

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
    rows = _Rows(several=several, single=single, depth=max(2.0, (pairs_per_row - single) / several), held=held)
    if _cheaper_at_result(machine, rows, outputs, size, vector):
        compute, received, fragments = _at_result(shape, contexts, rows, outputs)
        moved = 0
    else:
        calls = several * shape.block_rows * pieces
        compute, received, fragments = _spread_out(shape, machine, rows, outputs, calls)
        moved = result_cycles
    wire = max(received / fabric.bytes_per_cycle, fragments * fabric.receive_fragment_cycles)
    return Reduction(
        partials_cycles=math.ceil(wire),
        compute_cycles=math.ceil(compute),
        moving_cycles=moved,
        code_bytes=math.ceil(2 * fragments * fabric.fragment_code_bytes),
    )


@dataclass(frozen=True, kw_only=True)
class _Rows:
    """Shares of the rows that get several partial sums, `depth` in the mean, and a single one; results of a tile."""

    several: float
    single: float
    depth: float
    held: int


def _cheaper_at_result(machine: MimdMachine, rows: _Rows, outputs: int, size: int, vector: int) -> bool:
    """popops' estimate: where the result lies, or in grains over all tiles and then moved there."""
    rate, sync, depth = machine.exchange.bytes_per_cycle, machine.sync.internal_cycles, rows.depth
    here = min(outputs, rows.held)
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


def _at_result(shape: SparseShape, contexts: int, rows: _Rows, outputs: int) -> tuple[float, float, float]:
    """(cycles, bytes received, fragments) of the fullest tile, each result where it lies."""
    widest, here, depth = 2 * shape.grain, min(outputs, rows.held), rows.depth
    each = ceil_divide(ceil_divide(here, contexts), widest) * widest
    turns = max(1.0, rows.held / here)
    vertices = math.ceil(rows.several * ceil_divide(here, each) * turns)
    compute = contexts * ceil_divide(vertices, contexts) * _vertex_cycles(shape, min(each, here), depth)
    received = rows.held * (rows.several * depth + rows.single) * shape.element_bytes
    return compute, received, rows.several * depth * turns


def _spread_out(
    shape: SparseShape, machine: MimdMachine, rows: _Rows, outputs: int, reductions: float
) -> tuple[float, float, float]:
    """The same of `reductions` in pieces of four vectors, each from a first tile of its own."""
    tiles, contexts, widest = machine.chip.tiles, machine.tile.worker_contexts, 2 * shape.grain
    piece = max(4 * shape.grain, ceil_divide(outputs, tiles))
    calls = reductions * ceil_divide(outputs, piece) / tiles
    # Expected maximum over the tiles of independent choices of the first tile.
    most = max(1.0, calls + math.sqrt(2 * calls * math.log(max(2, tiles))))
    vertices = math.ceil(most * ceil_divide(piece, widest))
    compute = contexts * ceil_divide(vertices, contexts) * _vertex_cycles(shape, widest, rows.depth)
    return compute, most * piece * rows.depth * shape.element_bytes, most * rows.depth
