"""What a mapping costs: estimated from a sample of its tiles, or timed in full; many of them by several processes.

For an estimate the program is lowered as always, and its exchanges and cycles are counted by the same formulas, but
only for the vertices of some tiles.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from mimdsim.base.errors import DoesNotFit, MappingError
from mimdsim.base.processes import Each, shared_pool
from mimdsim.base.shown import Shown
from mimdsim.compiler import (
    Compiled,
    Memory,
    Placement,
    Watch,
    compile_graph,
    memory_of,
    memory_profile,
    merged_program,
)
from mimdsim.costs.area_power import silicon_profile, tiled_energy
from mimdsim.machine import MimdMachine
from mimdsim.profile import TiledProfile
from mimdsim.program import Program, Superstep
from mimdsim.program.exchanges import sampled_exchange
from mimdsim.search.objective import Aims, Case, Figures, TimedMapping
from mimdsim.timing import GroupCycles, bundles_of, group_cycles, host_stream_seconds, time_program
from mimdsim.workload.description.mapping import MappingOptions

SAMPLED_TILES = 10  # drawn from all tiles, besides those that stand out and neighbours on a bus
FULLEST = 8  # tiles with most in their memory, before what their exchanges take


@dataclass(frozen=True, kw_only=True, eq=False)
class LayerCosts(Shown):
    """Shares of the layers in what a mapping costs; the last group is of tiles without layer. steps: (name of a
    superstep, how many of this name come before it); peak_bytes, tiles (those that compute) int64[layers + 1]."""

    steps: tuple[tuple[str, int], ...]
    cycles: GroupCycles
    peak_bytes: np.ndarray
    tiles: np.ndarray


@dataclass(frozen=True, kw_only=True)
class Candidate(Shown):
    """A mapping and what it is estimated to cost; layers: None if it was not lowered."""

    options: MappingOptions
    figures: Figures
    layers: LayerCosts | None = None


def estimate(case: Case, options: MappingOptions, joules: bool = False) -> Candidate:
    """The figures of a mapping, somewhat less than those of all its tiles; with `joules` also its energy but for what
    is moved, which takes the bundles of all tiles.

    Raises DoesNotFit for too few tiles and MappingError for a mapping that cannot be.
    """
    placement, program = merged_program(case.graph, case.network, case.machine, options, Watch(case.machine))
    chosen = _with_neighbours(_sampled_tiles(placement, program, case.machine), case.machine, placement.tiles_per_chip)
    sampled = program.map_supersteps(lambda superstep: _on_some(program, superstep, chosen))
    memory = memory_of(sampled, case.machine)
    layers = _by_layer(case, placement, sampled, memory, _with_vertices(program))
    stream = host_stream_seconds(program, case.machine.host)
    figures = Figures(
        cycles=layers.cycles.whole,
        peak_bytes=memory.peak_bytes,
        tiles=int(layers.tiles.sum()),
        joules=_estimate_joules(case, placement, program, layers.cycles.whole, stream) if joules else None,
        host_seconds=stream,
    )
    return Candidate(options=options, figures=figures, layers=layers)


def _with_vertices(program: Program) -> np.ndarray:
    """bool[tiles]: those with vertices, which are those that compute."""
    found = np.zeros(program.tiles, bool)
    for superstep, _, _ in program.supersteps():
        for table in superstep.tables:
            found[table.tiles] = True
    return found


def _by_layer(
    case: Case, placement: Placement, sampled: Program, memory: Memory, with_vertices: np.ndarray
) -> LayerCosts:
    groups = len(placement.layers) + 1
    group = np.full(placement.tiles, groups - 1)
    for place, layer in enumerate(placement.layers):
        group[layer.tiles] = place
    peaks = np.zeros(groups, np.int64)
    np.maximum.at(peaks, group, memory.peak_by_tile)
    times: Counter[str] = Counter()
    steps = []
    for superstep, _, _ in sampled.supersteps():
        steps.append((superstep.name, times[superstep.name]))
        times[superstep.name] += 1
    return LayerCosts(
        steps=tuple(steps),
        cycles=group_cycles(sampled, case.machine, case.activity, group, groups),
        peak_bytes=peaks,
        tiles=np.bincount(group[with_vertices], minlength=groups),
    )


def _estimate_joules(case: Case, placement: Placement, program: Program, cycles: int, stream: float) -> float | None:
    """Of static power and of all bundles; None: the machine has no energies."""
    machine = case.machine
    bundles = bundles_of(program, machine, case.activity)
    seconds = placement.chips * Aims.of(machine).seconds(cycles, stream)
    spent = tiled_energy(machine, silicon_profile(machine), seconds, (("instructions", "bundle_joules", bundles),))
    return None if spent is None else spent.joules


def _sampled_tiles(placement: Placement, program: Program, machine: MimdMachine) -> np.ndarray:
    """bool[tiles]: a draw that is the same for every mapping, the fullest tiles, a tile of each size of part of every
    layer, and the tile with most vertices of every superstep."""
    tiles = placement.tiles
    chosen = np.zeros(tiles, bool)
    chosen[np.random.default_rng(0).permutation(tiles)[:SAMPLED_TILES]] = True
    chosen[np.argsort(-memory_of(program, machine).peak_by_tile, kind="stable")[:FULLEST]] = True
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
    exchange = sampled_exchange(program, sampled, chosen)
    if exchange is not None and superstep.tables:
        working = np.unique(np.concatenate([table.tiles for table in superstep.tables]))
        exchange = replace(exchange, stand_ins=np.stack([working, _nearest(working, working[chosen[working]])]))
    return replace(sampled, exchange=exchange)


def _nearest(tiles: np.ndarray, sampled: np.ndarray) -> np.ndarray:
    """int64[tiles]: of the sampled tiles, both ascending, the one nearest by number; each itself where there are
    none."""
    if not len(sampled):
        return tiles
    return np.asarray(sampled[np.searchsorted((sampled[1:] + sampled[:-1]) / 2, tiles)])


class Evaluator:
    """Evaluates mappings of a case, in the order in which they are given."""

    def __init__(self, case: Case, each: Each, joules: bool):
        self.case, self._each, self._joules = case, each, joules

    def estimates(self, mappings: Sequence[MappingOptions]) -> list[Candidate | None]:
        """None: it cannot be placed."""
        return list(self._each(partial(_estimate, joules=self._joules), mappings))

    def timings(self, mappings: Sequence[MappingOptions]) -> list[TimedMapping | None]:
        return list(self._each(_time, mappings))


@contextlib.contextmanager
def evaluator(case: Case, processes: int, joules: bool = False) -> Iterator[Evaluator]:
    """An evaluator with its processes; one process: this one. joules: energy is estimated too."""
    with shared_pool(processes, case) as each:
        yield Evaluator(case, each, joules)


def _estimate(case: Case, options: MappingOptions, joules: bool) -> Candidate | None:
    try:
        return estimate(case, options, joules)
    except (DoesNotFit, MappingError):
        return None


def _time(case: Case, options: MappingOptions) -> TimedMapping | None:
    try:
        return time_mapping(case, options)
    except DoesNotFit:
        return None


def compile_and_time(case: Case, options: MappingOptions) -> tuple[Compiled, TiledProfile]:
    """A mapping compiled and timed in full, whether it fits the tile memory or not; raises DoesNotFit for too few tiles
    and MappingError for a mapping that cannot be."""
    machine = case.machine
    made = compile_graph(case.graph, case.network, machine, options, must_fit=False)
    memory = memory_profile(made.program, made.memory, machine)
    return made, time_program(made.program, machine, case.activity, memory, must_fit=False)


def time_mapping(case: Case, options: MappingOptions) -> TimedMapping:
    """A mapping compiled and timed in full; raises DoesNotFit for too few tiles."""
    made, profile = compile_and_time(case, options)
    layers = made.placement.layers
    return TimedMapping(
        options=options,
        figures=Figures(
            cycles=profile.cycles,
            peak_bytes=made.memory.peak_bytes,
            tiles=profile.tiles_used,
            joules=None if profile.energy is None else profile.energy.joules,
            host_seconds=profile.host_seconds,
        ),
        unknown=profile.unknown,
        code_alone=profile.memory.code_alone,
        seconds=profile.seconds_per_training_step,
        exposed_seconds=profile.host_exposed_seconds,
        spans=tuple((span.name, span.cycles) for span in profile.spans),
        fits=profile.memory.fits,
        shares=tuple(
            (layer.name, layer.copies, layer.fan_in_parts, len(layer.starts), layer.replicas) for layer in layers
        ),
        chips=made.placement.chips,
    )
