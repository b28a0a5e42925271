"""What of a program's timing is the same for every activity.

First the part of its compute that depends on no machine either: the places of its vertices, their cost by loop level,
identical tiles. Computed once per program, and used for every machine it is timed on. Then the part of its loads that
does not depend on spikes: computed once per machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np

from mimdsim.base.compressed_columns import compact, single, uniform, wide
from mimdsim.numerics.columns.worker_load import places_among
from mimdsim.program import Program, Superstep, TileFormula, VertexTable, WorkerBundles, extents_of
from mimdsim.program.overlap import synchronised_chips
from mimdsim.timing.recording import DataDependentTerm, Extents, data_dependent_term, split_extents
from mimdsim.timing.tile_classes import CountingPlan, PlacedTable, classes_of, plan_counting
from mimdsim.timing.tile_cycles import (
    ARRANGING_KIND,
    TileIssue,
    arranging_cycles,
    arranging_parts,
    library_cycles,
    tile_cycles,
    worker_cycles,
)


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


# ---- the part of a program's loads that does not depend on spikes: computed once per machine, used for every activity
#
# Supersteps between two syncs of a chip are a segment; tiles that agree in all of them form one class. A segment
# without dependence on spikes is costed completely here.


Part = tuple[str, str, str, str]  # what costs, kind of source, operation, layer


@dataclass(frozen=True, kw_only=True, eq=False)
class SuperstepPlan:
    """One superstep on a machine: the work and cycles of its tiles per execution, and its parts.

    beside: as by `_work_beside`, `compact`; workers float64[tiles]: cycles of the workers. Where workers depend on
    spikes, `placement.counting` has them, and there are no cycles. parts: by part, in the order of the tables, the
    cycles per execution that it takes all tiles beside their workers; working: the tables of workers, and their parts.
    """

    placement: SuperstepPlacement
    workers: np.ndarray
    beside: np.ndarray
    parts: dict[Part, float]
    working: tuple[tuple[Part, PlacedTable], ...]

    def cycles(self, own: slice) -> np.ndarray:
        """float64: all cycles of some of the tiles, if no spikes are counted; not kept, as they would take memory for
        every superstep."""
        return tile_cycles(self.workers[own], self.beside[own])

    def beside_of(self, tile: int) -> np.ndarray:
        """float64[1]: of one tile of the program."""
        own = tile - self.placement.first
        return self.beside[own : own + 1] if 0 <= own < self.placement.tiles else np.zeros(1)


@dataclass(frozen=True, kw_only=True, eq=False)
class Member:
    """A superstep of a segment, by class: the row of its counting, or the cycles of workers that do not depend on
    spikes, and the work beside them."""

    index: int
    row: np.ndarray
    workers: np.ndarray
    beside: np.ndarray


@dataclass(frozen=True, kw_only=True, eq=False)
class DataDependentSegment:
    """Supersteps of one chip without a sync in between, some counting spikes. class_of int64[tiles of the chip]."""

    chip: int
    members: tuple[Member, ...]
    class_of: np.ndarray
    classes: int


@dataclass(frozen=True, kw_only=True, eq=False)
class StaticSegment:
    """Such supersteps, but independent of spikes. reached float64[indices]: the longest sum of a tile after each."""

    chip: int
    indices: tuple[int, ...]
    reached: np.ndarray


@dataclass(frozen=True, kw_only=True, eq=False)
class StraightLinePlan:
    """Consecutive supersteps, all in one repeat or in none: their plans, and the segments of every chip."""

    supersteps: tuple[Superstep, ...]
    times: int
    plans: tuple[SuperstepPlan, ...]
    segments: tuple[DataDependentSegment | StaticSegment, ...]


@lru_cache(maxsize=8)
def straight_line_plans(program: Program, issue: TileIssue) -> tuple[StraightLinePlan, ...]:
    """The plans of consecutive supersteps, in program order."""
    return tuple(_straight_line_plan(program, stretch.body, stretch.times, issue) for stretch in program.stretches())


def _straight_line_plan(
    program: Program, supersteps: Sequence[Superstep], times: int, issue: TileIssue
) -> StraightLinePlan:
    placements = superstep_placements(program)
    plans = tuple(_plan(superstep, placements[superstep], issue) for superstep in supersteps)
    segments = []
    for chip in range(program.chips):
        begins = [index for index, plan in enumerate(plans) if plan.placement.synchronised[chip]]
        for first, last in pairwise(sorted({0, *begins, len(plans)})):
            segments.append(_segment(plans, first, last, chip, program.tiles_per_chip))
    return StraightLinePlan(supersteps=tuple(supersteps), times=times, plans=plans, segments=tuple(segments))


def _segment(
    plans: Sequence[SuperstepPlan], first: int, last: int, chip: int, per_chip: int
) -> DataDependentSegment | StaticSegment:
    """The segment of those supersteps first..last-1 that use tiles of the chip."""
    used = [(index, *plans[index].placement.on_chip(chip, per_chip)) for index in range(first, last)]
    used = [(index, own, here) for index, own, here in used if own.start < own.stop]
    if all(plans[index].placement.counting is None for index, _, _ in used):
        total, reached = np.zeros(per_chip), []
        for index, own, here in used:
            total[here] += plans[index].cycles(own)
            reached.append(total.max())
        return StaticSegment(chip=chip, indices=tuple(index for index, _, _ in used), reached=np.array(reached))
    rows = np.empty((len(used), per_chip), np.int64)
    workers, beside = np.zeros(rows.shape), np.zeros(rows.shape)
    for row, cycles, more, (index, own, here) in zip(rows, workers, beside, used, strict=True):
        counting = plans[index].placement.counting
        row[:] = 0 if counting is None else counting.rows
        if counting is not None:
            row[here] = counting.row_of[own]
        cycles[here], more[here] = plans[index].workers[own], plans[index].beside[own]
    every = beside[beside.any(axis=1)]
    each = (*rows, *workers.view(np.int64), *every.view(np.int64))
    class_of, chosen = classes_of([row for row in each if (row != row[0]).any()], per_chip)
    return DataDependentSegment(
        chip=chip,
        members=tuple(
            Member(index=index, row=compact(row[chosen]), workers=uniform(cycles[chosen]), beside=uniform(more[chosen]))
            for (index, _, _), row, cycles, more in zip(used, rows, workers, beside, strict=True)
        ),
        class_of=compact(class_of),
        classes=len(chosen),
    )


def _plan(superstep: Superstep, placement: SuperstepPlacement, issue: TileIssue) -> SuperstepPlan:
    parts: dict[Part, float] = {}
    working: list[tuple[Part, PlacedTable]] = []
    library: list[np.ndarray | None] = []
    for table, one, own in zip(superstep.tables, placement.placed, placement.extents, strict=True):
        codelet, cost = table.codelet, None
        stage = table.stage or superstep.stage or superstep.name
        part = (f"codelet {codelet.name}", codelet.cost.kind, stage, table.layer)
        parts.setdefault(part, 0.0)
        if isinstance(codelet.cost, TileFormula):
            extents = {name: column for name, column in own.items() if isinstance(column, np.ndarray)}
            cost = library_cycles(codelet, extents, issue, table.vertices)
            parts[part] += float(cost.sum() if cost.ndim else cost * table.vertices)
        elif one is not None:
            working.append((part, one))
        library.append(cost)
    if superstep.exchange is not None and superstep.exchange.column("fragments_arranged").any():
        pieces, volume = (("arranging rows", kind, "", "") for kind in (issue.arranging_kind, ARRANGING_KIND))
        if pieces == volume:
            parts[pieces] = float(arranging_cycles(superstep.exchange, issue).sum())
        else:  # what is known of the pieces does not make the copy of their bytes known
            of_pieces, of_bytes = arranging_parts(superstep.exchange, issue)
            contexts = issue.issue_cycles / issue.working
            parts |= {pieces: float(of_pieces.sum()) * contexts, volume: float(of_bytes.sum()) * contexts}
    beside = _work_beside(superstep, placement, library, issue)
    workers = np.broadcast_to(0.0, placement.tiles)
    if placement.counting is None:
        workers = uniform(_constant_cycles([one for _, one in working], placement.tiles, issue))
    return SuperstepPlan(
        placement=placement,
        workers=workers,
        beside=compact(beside),
        parts=parts,
        working=tuple(working),
    )


def _work_beside(
    superstep: Superstep, placement: SuperstepPlacement, library: Sequence[np.ndarray | None], issue: TileIssue
) -> np.ndarray:
    """float64[tiles from the first of the superstep]: what takes a tile cycles beside its workers, which is its library
    vertices, and arranging rows; library: cycles of the vertices of every table."""
    exchange = superstep.exchange
    arranging = np.zeros(0) if exchange is None else arranging_cycles(exchange, issue)
    where = arranging > 0
    if not where.any() and all(cycles is None for cycles in library):
        return np.broadcast_to(0.0, placement.tiles)  # of most supersteps: takes no memory
    beside = np.zeros(placement.tiles)
    for table, cycles in zip(superstep.tables, library, strict=True):
        if cycles is not None:
            np.add.at(beside, table.tiles - placement.first, cycles)
    if exchange is not None:
        np.add.at(beside, exchange.tiles[where] - placement.first, arranging[where])
    return beside


def _constant_cycles(placed: list[PlacedTable], tiles: int, issue: TileIssue) -> np.ndarray:
    """float64[tiles]: cycles of workers whose bundles do not depend on spikes."""
    if not placed:
        return np.broadcast_to(0.0, tiles)
    bundles = np.zeros((tiles, issue.contexts))
    for one in placed:
        cell = one.tile * issue.contexts + wide(one.place) % issue.contexts
        constant = one.constant(issue.compiled_dual_issue)
        bundles += np.bincount(cell, weights=constant, minlength=bundles.size).reshape(bundles.shape)
    return worker_cycles(bundles, issue)
