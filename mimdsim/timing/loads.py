"""Compute cycles of every superstep, from the cost of its vertices and the recorded spikes.

A tile's worker contexts issue in strict round robin, each at most one bundle every `issue_cycles`. Vertices of a table
are dealt to the contexts in turn. A compute set takes a tile

    max(issue_cycles * longest context, all bundles together)  +  cycles of its library vertices
    + arranged fragments * arrange_fragment_bundles, the contexts sharing them, + arranged bytes at the copy's rate

and tiles that are not synchronised go on without waiting: between two syncs a chip takes the longest *sum*. An exchange
synchronises the chips whose tiles take part, one over links all of them.
The result depends on the machine only through what `Barrel` holds, and is kept for re-timing.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from mimdsim.base.errors import MappingError
from mimdsim.numerics import loads as numerics
from mimdsim.program import (
    Exchange,
    Program,
    RecordedActivity,
    Repeat,
    Superstep,
    TileFormula,
    VertexTable,
    WorkerBundles,
)
from mimdsim.program.codelet import UNCERTAINTY
from mimdsim.timing.extents import add_recorded, split_extents


@dataclass(frozen=True, kw_only=True)
class Barrel:
    """What compute cycles depend on in a tile."""

    contexts: int
    issue_cycles: int
    vector_bytes: int
    arrange_fragment_bundles: float
    copy_bytes_per_cycle: float = 8.0
    compiled_dual_issue: float = 0.0


@dataclass(frozen=True, kw_only=True, eq=False)
class SuperstepLoad:
    """Compute of one superstep over all its executions, in tile cycles.

    cycles_by_execution int64[times, chips]: what it adds to the critical path of each chip; busy_part int64[tiles from
    first_tile on]; flops and issued bundles over all tiles and executions, a library vertex counted as one bundle a
    cycle; parts: (what costs, kind of source, share of the busy cycles).
    """

    cycles_by_execution: np.ndarray
    first_tile: int
    busy_part: np.ndarray
    total_tiles: int
    flops: int
    parts: tuple[tuple[str, str, float], ...]
    bundles: int = 0

    @property
    def uncertainty(self) -> float:
        """Relative, of the compute cycles."""
        return sum(share * UNCERTAINTY[kind] for _, kind, share in self.parts)

    @property
    def cycles(self) -> int:
        """On the slowest chip of every execution."""
        return int(self.cycles_by_execution.max(axis=1).sum())

    @property
    def busy(self) -> np.ndarray:
        """int64[total_tiles]"""
        spread = np.zeros(self.total_tiles, np.int64)
        spread[self.first_tile : self.first_tile + len(self.busy_part)] = self.busy_part
        return spread

    @property
    def slowest_tile(self) -> int:
        return self.first_tile + int(self.busy_part.argmax()) if len(self.busy_part) else 0


@lru_cache(maxsize=8)
def program_loads(program: Program, activity: RecordedActivity, barrel: Barrel) -> tuple[SuperstepLoad, ...]:
    """One load per superstep in program order. Raises MappingError when activity lacks a layer the program needs."""
    for layer, names in program.recorded.items():
        batch = program.variables[names[0]].shape[-2]
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


def synchronised_chips(program: Program, superstep: Superstep) -> np.ndarray:
    """bool[chips]: the chips that wait for all their tiles before this superstep."""
    exchange = superstep.exchange
    synced = np.zeros(program.chips, bool)
    if exchange is not None and exchange.moves:
        moves = (exchange.column("bytes_sent") > 0) | (exchange.column("bytes_received") > 0)
        synced[exchange.tiles[moves] // program.tiles_per_chip] = True  # what only arranges rows waits for nobody
        synced |= exchange.link_bytes is not None
    return synced


def _stretch(
    program: Program, body: tuple[Superstep, ...], times: int, activity: RecordedActivity, barrel: Barrel
) -> list[SuperstepLoad]:
    """Loads of consecutive supersteps; each turn of a repeat begins with a sync."""
    per_chip = program.tiles_per_chip
    since_sync = np.zeros((program.tiles, times), np.float64)
    longest = np.zeros((program.chips, times))
    loads = []
    for superstep in body:
        for chip in np.flatnonzero(synchronised_chips(program, superstep)).tolist():
            since_sync[chip * per_chip : (chip + 1) * per_chip] = 0
            longest[chip] = 0
        first, cycles, flops, parts, bundles = _tile_cycles(program, superstep, times, activity, barrel)
        last = first + len(cycles)
        since_sync[first:last] += cycles
        after = longest.copy()
        for chip in range(first // per_chip, -(-last // per_chip)):
            reached = since_sync[max(first, chip * per_chip) : min(last, (chip + 1) * per_chip)]
            after[chip] = np.maximum(after[chip], reached.max(axis=0))
        loads.append(
            SuperstepLoad(
                cycles_by_execution=(np.rint(after) - np.rint(longest)).astype(np.int64).T,
                first_tile=first,
                busy_part=np.rint(cycles.sum(axis=1)).astype(np.int64),
                total_tiles=program.tiles,
                flops=flops,
                parts=parts,
                bundles=bundles,
            )
        )
        longest = after
    return loads


def _tile_range(superstep: Superstep) -> tuple[int, int]:
    """First tile and one past the last that compute or arrange in a superstep; (0, 0) when none does."""
    tiles = [table.tiles for table in superstep.tables if table.vertices]
    if superstep.exchange is not None:
        tiles.append(superstep.exchange.tiles[superstep.exchange.column("fragments_arranged") > 0])
    bounds = [(int(column.min()), int(column.max()) + 1) for column in tiles if len(column)]
    return (min(low for low, _ in bounds), max(high for _, high in bounds)) if bounds else (0, 0)


def _tile_cycles(
    program: Program, superstep: Superstep, times: int, activity: RecordedActivity, barrel: Barrel
) -> tuple[int, np.ndarray, int, tuple[tuple[str, str, float], ...], int]:
    """(first tile, float64[tiles from there, times] cycles, flops, parts by share, bundles) of one superstep."""
    first, last = _tile_range(superstep)
    tiles = last - first
    library = np.zeros(tiles)
    bundles: np.ndarray | None = None
    flops = 0.0
    weights: dict[tuple[str, str], float] = {}
    dealt = np.zeros(tiles, np.int64)  # vertices dealt to the contexts of each tile so far, by earlier tables
    for table in superstep.tables:
        codelet = table.codelet
        on = table.tiles - first
        if isinstance(codelet.cost, TileFormula):
            extents = {name: column for name, column in table.extents.items() if isinstance(column, np.ndarray)}
            cost = library_cycles(codelet.cost, extents, barrel)
            np.add.at(library, on, np.broadcast_to(cost, on.shape))
            size = float(np.sum(cost)) * times
        else:
            if bundles is None:
                bundles = np.zeros((tiles * barrel.contexts, times))
            size = _add_bundles(bundles, table, codelet.cost, activity, barrel, on, dealt)
        flops += _flops(table, times, activity)
        part = (f"codelet {codelet.name}", codelet.cost.kind)
        weights[part] = weights.get(part, 0.0) + size
    if superstep.exchange is not None and superstep.exchange.column("fragments_arranged").any():
        arranging = _arranging_cycles(superstep.exchange, barrel)
        np.add.at(library, superstep.exchange.tiles[arranging > 0] - first, arranging[arranging > 0])
        weights["arranging rows", "derived"] = float(arranging.sum()) * times
    cycles = np.broadcast_to(library[:, None], (tiles, times)).copy()
    if bundles is not None:
        numerics.add_barrel(cycles, bundles, barrel.contexts, barrel.issue_cycles)
    whole = sum(weights.values())
    parts = tuple((name, kind, weight / whole) for (name, kind), weight in weights.items() if weight)
    return first, cycles, round(flops), parts, round(whole)


def _arranging_cycles(exchange: Exchange, barrel: Barrel) -> np.ndarray:
    """float64[taking part]: cycles to copy gathered pieces into rows, pieces and bytes."""
    pieces = exchange.column("fragments_arranged") * barrel.arrange_fragment_bundles
    volume = exchange.column("bytes_arranged") / barrel.copy_bytes_per_cycle
    cycles: np.ndarray = (pieces + volume) * barrel.issue_cycles / min(barrel.contexts, barrel.issue_cycles)
    return cycles


def library_cycles(cost: TileFormula, extents: dict[str, np.ndarray], barrel: Barrel) -> np.ndarray:
    """float64[vertices]: tile cycles of library vertices, which spread their work over the contexts themselves.

    The vendor's formulas multiply the longest worker by its six contexts, which there is also the issue interval.
    Fewer contexts leave issue slots empty; more than the interval add no throughput, and a library would not start
    them (derived).
    """
    working = min(barrel.contexts, barrel.issue_cycles)
    cycles = np.asarray(cost.cycles(extents, working, barrel.vector_bytes), np.float64)
    return cycles * barrel.issue_cycles / working


def _cells(on: np.ndarray, contexts: int, dealt: np.ndarray) -> np.ndarray:
    """int64[vertices]: tile * contexts + context; the vertices of a tile are dealt out in turn."""
    order = np.argsort(on, kind="stable")
    ordered = on[order]
    turn = np.arange(len(ordered)) - np.searchsorted(ordered, ordered, side="left")
    cell = np.empty(len(ordered), np.int64)
    cell[order] = ordered * contexts + (dealt[ordered] + turn) % contexts
    return cell


def _add_bundles(
    bundles: np.ndarray,
    table: VertexTable,
    cost: WorkerBundles,
    activity: RecordedActivity,
    barrel: Barrel,
    on: np.ndarray,
    dealt: np.ndarray,
) -> float:
    """Add the bundles of a table to its cells of `bundles` [tiles * contexts, times]; returns their sum.

    `on` counts tiles from the first of the superstep; `dealt` goes on by the table's vertices.
    """
    if not table.vertices:
        return 0.0
    contexts, first, last = barrel.contexts, int(on.min()), int(on.max()) + 1
    cell = _cells(on - first, contexts, dealt[first:last])
    dealt[first:last] += np.bincount(on - first, minlength=last - first)
    constant = np.full(table.vertices, float(cost.fixed))
    load = bundles[first * contexts : last * contexts]
    before = float(load.sum())
    for term in cost.terms:
        static, recorded = split_extents(table, term, term.bundles - barrel.compiled_dual_issue * term.pairable)
        if recorded is None:
            constant += static
        else:
            add_recorded(load, cell, static, table, recorded, activity)
    load += np.bincount(cell, weights=constant, minlength=len(load))[:, None]
    return float(load.sum()) - before


def _flops(table: VertexTable, times: int, activity: RecordedActivity) -> float:
    total = 0.0
    for term in table.codelet.flops:
        static, recorded = split_extents(table, term, term.bundles)
        if recorded is None:
            total += float(static.sum()) * times
        else:
            load = np.zeros((1, times))
            add_recorded(load, np.zeros(table.vertices, np.int64), static, table, recorded, activity)
            total += float(load.sum())
    return total
