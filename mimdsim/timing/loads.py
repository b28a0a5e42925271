"""Compute cycles of every superstep, from the cost of its vertices and the recorded spikes.

A tile's worker contexts issue in strict round robin, each at most one bundle every `issue_cycles`. Vertices of a table
are dealt to the contexts in turn. A compute set takes a tile

    max(issue_cycles * longest context, all bundles together)  +  cycles of its library vertices
    + arranged fragments * arrange_fragment_bundles, the contexts sharing them

and tiles that are not synchronised go on without waiting: between two syncs the chip takes the longest *sum*.
The result depends on the machine only through contexts, issue and vector width, and is kept for re-timing.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from mimdsim.base.errors import MappingError
from mimdsim.numerics import loads as numerics
from mimdsim.program import (
    Hits,
    Listed,
    Program,
    RecordedActivity,
    Repeat,
    Spikes,
    SpikesOver,
    Superstep,
    Term,
    TileFormula,
    VertexTable,
    Within,
    WorkerBundles,
)
from mimdsim.program.codelet import UNCERTAINTY, Recorded

RECORDED = (Spikes, Listed, SpikesOver, Hits, Within)


@dataclass(frozen=True, kw_only=True)
class Barrel:
    """What compute cycles depend on in a tile."""

    contexts: int
    issue_cycles: int
    vector_bytes: int
    arrange_fragment_bundles: float


@dataclass(frozen=True, kw_only=True, eq=False)
class SuperstepLoad:
    """Compute of one superstep over all its executions, in tile cycles.

    cycles_by_execution: what it adds to the critical path in each; busy int64[tiles]; flops over all executions;
    uncertainty: relative, weighted by the busy cycles of its codelets.
    """

    cycles_by_execution: np.ndarray
    busy: np.ndarray
    slowest_tile: int
    flops: int
    uncertainty: float

    @property
    def cycles(self) -> int:
        return int(self.cycles_by_execution.sum())


@lru_cache(maxsize=8)
def program_loads(program: Program, activity: RecordedActivity, barrel: Barrel) -> tuple[SuperstepLoad, ...]:
    """One load per superstep in program order. Raises MappingError when activity lacks a layer the program needs."""
    for layer, (ids_name, _) in program.recorded.items():
        batch = program.variables[ids_name].shape[1]
        if layer in activity.counts and activity.counts[layer].shape[1] != batch:
            raise MappingError(
                f"recorded activity has a batch of {activity.counts[layer].shape[1]}, the program {batch}: "
                "record it with a run of the same batch"
            )
    loads: list[SuperstepLoad] = []
    for item in program.body:
        if isinstance(item, Repeat):
            loads += _stretch(program, item.body, item.times, activity, barrel)
    tops = _tops(program)
    single = {
        id(step): load
        for stretch in tops
        for step, load in zip(stretch, _stretch(program, tuple(stretch), 1, activity, barrel), strict=True)
    }
    repeated = iter(loads)
    return tuple(single[id(step)] if id(step) in single else next(repeated) for step, _, _ in program.supersteps())


def _tops(program: Program) -> list[list[Superstep]]:
    """Runs of supersteps outside repeats."""
    runs: list[list[Superstep]] = [[]]
    for item in program.body:
        if isinstance(item, Repeat):
            runs.append([])
        else:
            runs[-1].append(item)
    return runs


def _stretch(
    program: Program, body: tuple[Superstep, ...], times: int, activity: RecordedActivity, barrel: Barrel
) -> list[SuperstepLoad]:
    """Loads of consecutive supersteps; each turn of a repeat begins with a sync."""
    since_sync = np.zeros((times, program.tiles), np.float64)
    before = np.zeros(times)
    loads = []
    for superstep in body:
        if superstep.exchange is not None and superstep.exchange.bytes_received.any():
            since_sync[:] = 0
            before = np.zeros(times)
        cycles, flops, uncertainty = _tile_cycles(program, superstep, times, activity, barrel)
        since_sync += cycles
        after = since_sync.max(axis=1)
        busy = np.rint(cycles.sum(axis=0)).astype(np.int64)
        loads.append(
            SuperstepLoad(
                cycles_by_execution=np.rint(after).astype(np.int64) - np.rint(before).astype(np.int64),
                busy=busy,
                slowest_tile=int(busy.argmax()),
                flops=flops,
                uncertainty=uncertainty,
            )
        )
        before = after
    return loads


def _tile_cycles(
    program: Program, superstep: Superstep, times: int, activity: RecordedActivity, barrel: Barrel
) -> tuple[np.ndarray, int, float]:
    """float64[times, tiles] cycles, flops, relative uncertainty of one superstep."""
    tiles = program.tiles
    library = np.zeros((1, tiles))
    bundles: np.ndarray | None = None
    flops, doubt, weight = 0.0, 0.0, 0.0
    dealt = np.zeros(tiles, np.int64)  # vertices dealt to the contexts of each tile so far, by earlier tables
    for table in superstep.tables:
        codelet = table.codelet
        if isinstance(codelet.cost, TileFormula):
            extents = {name: column for name, column in table.extents.items() if isinstance(column, np.ndarray)}
            cost = library_cycles(codelet.cost, extents, barrel)
            np.add.at(library[0], table.tiles, np.broadcast_to(cost, table.tiles.shape))
            size = float(np.sum(cost)) * times
        else:
            load = _bundles(table, codelet.cost, times, activity, barrel.contexts, dealt)
            dealt += np.bincount(table.tiles, minlength=tiles)
            bundles = load if bundles is None else bundles + load
            size = float(load.sum())
        flops += _flops(table, times, activity, tiles)
        doubt += size * UNCERTAINTY[codelet.cost.kind]
        weight += size
    if superstep.exchange is not None and superstep.exchange.fragments_arranged.any():
        arranging = superstep.exchange.fragments_arranged * barrel.arrange_fragment_bundles
        arranging = arranging * barrel.issue_cycles / min(barrel.contexts, barrel.issue_cycles)
        library[0] += arranging
        doubt += float(arranging.sum()) * times * UNCERTAINTY["derived"]
        weight += float(arranging.sum()) * times
    cycles = np.broadcast_to(library, (times, tiles)).copy()
    if bundles is not None:
        by_context = bundles.reshape(times, tiles, barrel.contexts)
        cycles += np.maximum(barrel.issue_cycles * by_context.max(axis=2), by_context.sum(axis=2))
    return cycles, round(flops), doubt / weight if weight else 0.0


def library_cycles(cost: TileFormula, extents: dict[str, np.ndarray], barrel: Barrel) -> np.ndarray:
    """float64[vertices]: tile cycles of library vertices, which spread their work over the contexts themselves.

    The vendor's formulas multiply the longest worker by its six contexts, which there is also the issue interval.
    Fewer contexts leave issue slots empty; more than the interval add no throughput, and a library would not start
    them (derived).
    """
    working = min(barrel.contexts, barrel.issue_cycles)
    cycles = np.asarray(cost.cycles(extents, working, barrel.vector_bytes), np.float64)
    return cycles * barrel.issue_cycles / working


def _cells(table: VertexTable, contexts: int, dealt: np.ndarray) -> np.ndarray:
    """int64[vertices]: tile * contexts + context; the vertices of a tile are dealt out in turn."""
    order = np.argsort(table.tiles, kind="stable")
    ordered = table.tiles[order]
    turn = np.arange(len(ordered)) - np.searchsorted(ordered, ordered, side="left")
    cell = np.empty(len(ordered), np.int64)
    cell[order] = ordered * contexts + (dealt[ordered] + turn) % contexts
    return cell


def _bundles(
    table: VertexTable, cost: WorkerBundles, times: int, activity: RecordedActivity, contexts: int, dealt: np.ndarray
) -> np.ndarray:
    """float64[times, tiles * contexts]: bundles in every cell."""
    tiles = len(dealt)
    cell = _cells(table, contexts, dealt)
    constant = np.full(table.vertices, float(cost.fixed))
    load = np.zeros((times, tiles * contexts))
    for term in cost.terms:
        static, recorded = _split(table, term)
        if recorded is None:
            constant += static
        else:
            add_recorded(load, cell, static, table, recorded, activity)
    load += np.bincount(cell, weights=constant, minlength=tiles * contexts)
    return load


def _flops(table: VertexTable, times: int, activity: RecordedActivity, tiles: int) -> float:
    total = 0.0
    for term in table.codelet.flops:
        static, recorded = _split(table, term)
        if recorded is None:
            total += float(static.sum()) * times
        else:
            load = np.zeros((times, 1))
            add_recorded(load, np.zeros(table.vertices, np.int64), static, table, recorded, activity)
            total += float(load.sum())
    return total


def _split(table: VertexTable, term: Term) -> tuple[np.ndarray, Recorded | None]:
    """(bundles times the static extents per vertex, the recorded extent if there is one)."""
    static = np.full(table.vertices, float(term.bundles))
    recorded: Recorded | None = None
    for name in term.extents:
        if name not in table.extents:
            raise MappingError(
                f"codelet '{table.codelet.name}' ({table.layer}): its cost needs the extent '{name}', "
                f"the table gives {sorted(table.extents)}"
            )
        extent = table.extents[name]
        if isinstance(extent, RECORDED):
            if recorded is not None:
                raise MappingError(f"codelet '{table.codelet.name}': a cost term has two extents that depend on spikes")
            recorded = extent
        else:
            static = static * np.asarray(extent)
    return static, recorded


def add_recorded(
    load: np.ndarray,
    cell: np.ndarray,
    weight: np.ndarray,
    table: VertexTable,
    extent: Recorded,
    activity: RecordedActivity,
) -> None:
    """load[t, cell] += weight * extent at t, for every vertex."""
    if extent.layer not in activity.counts:
        raise MappingError(
            f"recorded activity has no layer '{extent.layer}' (it has {sorted(activity.counts)}): "
            "record it with a run of the same network"
        )
    times = load.shape[0]
    counts = _shifted(activity.counts[extent.layer], extent.shift, times)
    samples = 1 + max(
        int(table.columns[name].max(initial=0)) - (name == "sample_stop")
        for name in ("sample", "sample_stop")
        if name in table.columns
    )
    if samples > counts.shape[1]:
        raise MappingError(
            f"recorded activity has a batch of {counts.shape[1]}, the program has {samples} samples: "
            "record it with a run of the same batch"
        )
    spikes, listed = np.ascontiguousarray(counts[..., 0]), np.ascontiguousarray(counts[..., 1])
    columns = {name: np.ascontiguousarray(column, np.int64) for name, column in table.columns.items()}
    if isinstance(extent, SpikesOver):
        running = np.zeros((times, spikes.shape[1] + 1), np.int64)
        np.cumsum(spikes, axis=1, out=running[:, 1:])
        numerics.add_by_count_over(load, cell, weight, columns["sample_start"], columns["sample_stop"], running)
    elif isinstance(extent, Within):
        scaled = weight * extent.times
        numerics.add_if_within(load, cell, scaled, columns["sample"], columns["slot"], listed)
    elif isinstance(extent, Hits):
        ids = _shifted(activity.ids[extent.layer], extent.shift, times)
        first = spikes if extent.which == "gradient" else np.zeros_like(spikes)
        last = spikes if extent.which == "spikes" else listed
        owner = _owner(columns, int(max(ids.max(initial=0) + 1, columns["stop"].max(initial=0))), ids.shape[1])
        numerics.add_by_hit(load, cell, weight, owner, np.ascontiguousarray(ids), first, last)
    else:
        chosen = spikes if isinstance(extent, Spikes) else listed
        numerics.add_by_count(load, cell, weight, columns["sample"], chosen)


def _shifted(sequence: np.ndarray, shift: int, times: int) -> np.ndarray:
    """The sequence at t + shift, zero before the first timestep."""
    if len(sequence) != times:
        raise MappingError(f"recorded activity has {len(sequence)} timesteps, the program repeats {times}")
    if shift == 0:
        return sequence
    moved = np.zeros_like(sequence)
    source = np.arange(times) + shift
    inside = (source >= 0) & (source < times)
    moved[inside] = sequence[source[inside]]
    return moved


def _owner(columns: dict[str, np.ndarray], neurons: int, batch: int) -> np.ndarray:
    """int64[batch, neurons]: the vertex whose sample and range hold a neuron, -1 where none does."""
    owner = np.full((batch, neurons), -1, np.int64)
    start, stop = columns["start"], columns["stop"]
    lengths = stop - start
    vertex = np.repeat(np.arange(len(start)), lengths)
    neuron = np.arange(len(vertex)) - np.repeat(np.cumsum(lengths) - lengths, lengths) + start[vertex]
    owner[columns["sample"][vertex], neuron] = vertex
    return owner
