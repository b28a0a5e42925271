"""The time and memory of a mapping, estimated from a sample of its tiles: the program is lowered as always, and its
exchanges and cycles are counted by the same formulas, but only for the vertices of some tiles."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from mimdsim.compiler import Placement, Watch, memory_of, merged_program
from mimdsim.machine import MimdMachine
from mimdsim.program import Program, Superstep
from mimdsim.program.exchanges import sampled_exchange
from mimdsim.search.case import Case, Figures
from mimdsim.timing import program_cycles
from mimdsim.workload.mapping import MappingOptions

SAMPLED_TILES = 10  # drawn from all tiles, besides those that stand out and neighbours on a bus


def estimate(case: Case, options: MappingOptions) -> Figures:
    """The figures of a mapping, somewhat less than those of all its tiles.

    Raises DoesNotFit for too few tiles and MappingError for a mapping that cannot be.
    """
    placement, program = merged_program(case.graph, case.network, case.machine, options, Watch())
    chosen = _with_neighbours(_sampled_tiles(placement, program), case.machine, placement.tiles_per_chip)
    sampled = program.map_supersteps(lambda superstep: _on_some(program, superstep, chosen))
    return Figures(
        cycles=sum(program_cycles(sampled, case.machine, case.activity)),
        peak_bytes=memory_of(sampled, case.machine).peak_bytes,
        tiles=sum(layer.occupied for layer in placement.layers),
    )


def _sampled_tiles(placement: Placement, program: Program) -> np.ndarray:
    """bool[tiles]: a draw that is the same for every mapping, a tile of each size of part of every layer, and the tile
    with most vertices of every superstep."""
    tiles = placement.tiles
    chosen = np.zeros(tiles, bool)
    chosen[np.random.default_rng(0).permutation(tiles)[:SAMPLED_TILES]] = True
    for layer in placement.layers:
        samples, neurons = np.diff(layer.batch_edges)[:, None, None], (layer.stops - layer.starts)[None, None, :]
        size = np.broadcast_to(samples * (int(neurons.max()) + 1) + neurons, layer.grid.shape)
        chosen[layer.grid.ravel()[np.unique(size, return_index=True)[1]]] = True
        chosen[layer.grid[0, :, 0]] = True
    for superstep, _, _ in program.supersteps():
        if superstep.tables:
            chosen[np.bincount(np.concatenate([table.tiles for table in superstep.tables])).argmax()] = True
    return chosen


def _with_neighbours(chosen: np.ndarray, machine: MimdMachine, tiles_per_chip: int) -> np.ndarray:
    """bool[tiles]: also those with which chosen tiles share a bus, as what both receive comes once."""
    if machine.exchange.tiles_per_bus == 1:
        return chosen
    tiles = np.flatnonzero(chosen)
    within = tiles % tiles_per_chip
    beside = within ^ 1
    chosen[(tiles - within + beside)[beside < tiles_per_chip]] = True
    return chosen


def _on_some(program: Program, superstep: Superstep, chosen: np.ndarray) -> Superstep:
    """What a superstep does and receives on the tiles of `chosen`, with its exchange."""
    tables = tuple(table for table in (table.on_some(chosen) for table in superstep.tables) if table.vertices)
    sampled = replace(superstep, tables=tables)
    return replace(sampled, exchange=sampled_exchange(program, sampled, chosen))
