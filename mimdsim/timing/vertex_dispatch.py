"""The part of a program's compute that depends on neither machine nor activity: the places of its vertices, their cost
by loop level, identical tiles. Computed once per program, and used for every machine it is timed on."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from mimdsim.base.compressed_columns import compact, single
from mimdsim.numerics.columns.worker_load import places_among
from mimdsim.program import Program, Superstep, VertexTable, WorkerBundles, extents_of
from mimdsim.program.overlap import synchronised_chips
from mimdsim.timing.extents import DataDependentTerm, Extents, data_dependent_term, split_extents
from mimdsim.timing.tile_classes import CountingPlan, PlacedTable, plan_counting


@dataclass(frozen=True, kw_only=True, eq=False)
class SuperstepPlacement:
    """One superstep: the tiles first..first + tiles - 1 that it uses, its workers by table (None for library vertices
    and empty tables), how they are counted if their cost depends on spikes, flops per execution and those that
    depend on spikes; extents of its tables; synchronised bool[chips]: which chips wait before it."""

    first: int
    tiles: int
    placed: tuple[PlacedTable | None, ...]
    extents: tuple[Extents, ...]
    counting: CountingPlan | None
    flops: float
    counted_flops: tuple[DataDependentTerm, ...]
    synchronised: np.ndarray

    def on_chip(self, chip: int, tiles_per_chip: int) -> tuple[slice, slice]:
        """Its tiles on a chip, counted from `first`, and from the chip's first tile; empty if it has none there."""
        begin = chip * tiles_per_chip
        low = max(self.first, begin)
        high = max(low, min(self.first + self.tiles, begin + tiles_per_chip))
        return slice(low - self.first, high - self.first), slice(low - begin, high - begin)


@lru_cache(maxsize=8)
def superstep_placements(program: Program) -> dict[Superstep, SuperstepPlacement]:
    """By superstep. Raises MappingError if neither codelet nor table gives an extent that a cost needs."""
    return {superstep: _superstep_placement(program, superstep) for superstep, _, _ in program.supersteps()}


def _superstep_placement(program: Program, superstep: Superstep) -> SuperstepPlacement:
    first, last = _tile_range(superstep)
    placed: list[PlacedTable | None] = []
    flops = 0.0
    counted_flops: list[DataDependentTerm] = []
    turns = np.zeros(last - first, np.int64)  # workers of each tile so far
    extents = tuple(extents_of(program, table) for table in superstep.tables)
    for table, own in zip(superstep.tables, extents, strict=True):
        cost = table.codelet.cost
        if table.vertices and isinstance(cost, WorkerBundles):
            placed.append(_placed_table(table, own, cost, first, turns))
        else:
            placed.append(None)
        always, by_spikes = table_flops(table, own)
        flops += always
        counted_flops += by_spikes
    working = [one for one in placed if one is not None]
    return SuperstepPlacement(
        first=first,
        tiles=last - first,
        placed=tuple(placed),
        extents=extents,
        counting=plan_counting(working, last - first) if any(one.terms for one in working) else None,
        flops=flops,
        counted_flops=tuple(counted_flops),
        synchronised=synchronised_chips(program, superstep),
    )


def _tile_range(superstep: Superstep) -> tuple[int, int]:
    """First tile and one past the last that compute or arrange in a superstep; (0, 0) if none does."""
    tiles = [table.tiles for table in superstep.tables if table.vertices]
    if superstep.exchange is not None:
        tiles.append(superstep.exchange.tiles[superstep.exchange.column("fragments_arranged") > 0])
    bounds = [(int(column.min()), int(column.max()) + 1) for column in tiles if len(column)]
    return (min(low for low, _ in bounds), max(high for _, high in bounds)) if bounds else (0, 0)


def _placed_table(
    table: VertexTable, extents: Extents, cost: WorkerBundles, first: int, turns: np.ndarray
) -> PlacedTable:
    """The vertices of a table, in the places after those of earlier tables, as counted by `turns` int64[tiles]."""
    # in most tables all vertices cost the same and pair nothing: one number for all takes no memory
    bundles: Any = float(cost.fixed)
    pairable: Any = 0.0
    terms = []
    for term in cost.terms:
        static, recorded = split_extents(table, extents, term)
        if recorded is None:
            bundles = bundles + term.bundles * single(static)
            pairable = pairable + term.pairable * single(static) if term.pairable else pairable
        else:
            terms.append(data_dependent_term(table, term, static, recorded))
    place = compact(places_among(np.subtract(table.tiles, first, dtype=np.int64), turns))
    bundles, pairable = (np.broadcast_to(np.asarray(each, np.float64), table.vertices) for each in (bundles, pairable))
    return PlacedTable(
        tiles=table.tiles, first=first, place=place, bundles=bundles, pairable=pairable, terms=tuple(terms)
    )


def table_flops(table: VertexTable, extents: Extents) -> tuple[float, list[DataDependentTerm]]:
    """(operations that do not depend on spikes, terms for those that do)."""
    always = 0.0
    by_spikes = []
    for term in table.codelet.flops:
        static, recorded = split_extents(table, extents, term)
        if recorded is None:
            always += float(np.broadcast_to(term.bundles * single(static), table.vertices).sum())
        else:
            by_spikes.append(data_dependent_term(table, term, static, recorded))
    return always, by_spikes
