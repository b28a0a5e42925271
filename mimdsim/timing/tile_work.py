"""The cost of the vertices of one tile in one superstep, by vertex and loop level.

The engine sums the same numbers over all tiles at once (`mimdsim.timing.worker_cycles`); here they keep their names.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mimdsim.base.compressed_columns import wide
from mimdsim.program import Program, RecordedActivity, Superstep, Term, TileFormula, VertexTable
from mimdsim.program.vertex_boxes import boxes_of
from mimdsim.timing.recording import Extents, Recording, split_extents
from mimdsim.timing.static_plan import SuperstepPlacement, straight_line_plans, superstep_placements, table_flops
from mimdsim.timing.tile_classes import PlacedTable
from mimdsim.timing.tile_cycles import TileIssue
from mimdsim.timing.worker_cycles import tile_turns


@dataclass(frozen=True, kw_only=True, eq=False)
class Level:
    """A loop level of a codelet's cost, or its fixed part (no extents): bundles per turn that remain after dual
    issue; turns float64[executions, vertices]; extents: by name, of the same shape or with one row for all."""

    bundles: float
    paired: float
    turns: np.ndarray
    extents: dict[str, np.ndarray]

    @property
    def title(self) -> str:
        return f"for each of {' x '.join(self.extents)}" if self.extents else "to begin with"

    def at(self, execution: int, vertex: int) -> str:
        """Its cost for a vertex in an execution, as a product: '5 x 4 cells'."""
        factors = [
            f"{column[min(execution, len(column) - 1), vertex]:g} {name}" for name, column in self.extents.items()
        ]
        return " x ".join([f"{self.bundles:g}", *factors])


@dataclass(frozen=True, kw_only=True, eq=False)
class TableWork:
    """Vertices `rows` of a table, all those on the tile, each with its place among the tile's workers (context
    place % contexts runs it)."""

    table: VertexTable
    rows: np.ndarray
    place: np.ndarray
    levels: tuple[Level, ...]

    def bundles(self) -> np.ndarray:
        """float64[executions, vertices]"""
        total = np.zeros((1, len(self.rows)))
        for level in self.levels:
            total = total + level.bundles * level.turns
        return total


def work_of_tile(
    superstep: Superstep, placement: SuperstepPlacement, tile: int, times: int, recording: Recording, issue: TileIssue
) -> tuple[TableWork, ...]:
    """The work of the tile's workers by table, without tables that have no vertex on it. Executions: `times` if they
    differ, else 1."""
    found = []
    for table, placed, extents in zip(superstep.tables, placement.placed, placement.extents, strict=True):
        rows = np.flatnonzero(table.tiles == tile)
        if len(rows) and placed is not None:
            found.append(_workers(table, extents, placed, rows, times, recording, issue.compiled_dual_issue))
    return tuple(found)


def _workers(
    table: VertexTable,
    every: Extents,
    placed: PlacedTable,
    rows: np.ndarray,
    times: int,
    recording: Recording,
    dual_issue: float,
) -> TableWork:
    cost = table.codelet.cost
    assert not isinstance(cost, TileFormula)
    levels = [Level(bundles=float(cost.fixed), paired=0.0, turns=np.ones((1, len(rows))), extents={})]
    data_dependent = {id(each.term): each for each in placed.terms}
    for term in cost.terms:
        static, recorded = split_extents(table, every, term)
        turns = static[rows][None].astype(np.float64)
        extents = {name: _single_extent(table, every, name, rows) for name in term.extents}
        if recorded is not None:
            turns = recording.by_vertex(data_dependent[id(term)], rows, times)
            (counted,) = (name for name, column in extents.items() if not len(column))
            rest = np.prod([column for name, column in extents.items() if name != counted], axis=0, initial=1.0)
            extents[counted] = np.divide(turns, rest, out=np.zeros_like(turns), where=rest != 0)
        paired = dual_issue * term.pairable
        levels.append(Level(bundles=term.bundles - paired, paired=paired, turns=turns, extents=extents))
    return TableWork(table=table, rows=rows, place=wide(placed.place[rows]), levels=tuple(levels))


def _single_extent(table: VertexTable, every: Extents, name: str, rows: np.ndarray) -> np.ndarray:
    """An extent as float64[1, vertices]; without rows if it is counted from spikes."""
    static, recorded = split_extents(table, every, Term(bundles=1, extents=(name,)))
    return np.zeros((0, len(rows))) if recorded is not None else static[rows][None].astype(np.float64)


def contexts_with_work(program: Program, issue: TileIssue) -> np.ndarray:
    """int64[supersteps, tiles]: worker contexts that have a vertex; a library vertex uses all that it starts."""
    placements = superstep_placements(program)
    rows = [placements[superstep] for superstep, _, _ in program.supersteps()]
    found = np.zeros((len(rows), program.tiles), np.int64)
    for (superstep, _, _), placement, row in zip(program.supersteps(), rows, found, strict=True):
        for table, placed in zip(superstep.tables, placement.placed, strict=True):
            if isinstance(table.codelet.cost, TileFormula):
                row[table.tiles] = issue.working
            elif placed is not None:
                np.maximum.at(row, wide(placed.tiles), np.minimum(wide(placed.place) + 1, issue.contexts))
    return found


def bytes_accessed(program: Program, activity: RecordedActivity) -> np.ndarray:
    """int64[supersteps]: bytes of tile memory that vertices read and write, over all executions.

    Estimated from what codelets declare: a vertex accesses every element of its boxes once, an updated one twice; but
    of a box no more elements than the codelet has flops, if it has any, as lists of spikes choose rows of the weights.
    """
    recording, placements = Recording(activity), superstep_placements(program)
    found = []
    for superstep, times, _ in program.supersteps():
        total = 0.0
        for table, own in zip(superstep.tables, placements[superstep].extents, strict=True):
            always, by_spikes = table_flops(table, own)
            most = always * times + sum(term.bundles(0) * recording.total(term, times) for term in by_spikes)
            for field in table.codelet.fields:
                variable = program.variables[table.operands[field.name]]
                elements = float((np.diff(boxes_of(table, field, variable))[..., 0].prod(axis=1)).sum()) * times
                accesses = min(elements, most) if table.codelet.flops else elements
                total += accesses * variable.item_bytes * (1 + (field.access == "update"))
        found.append(round(total))
    return np.array(found, np.int64)


def cycles_in_timesteps(
    program: Program, activity: RecordedActivity, issue: TileIssue, timesteps: Sequence[int]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(timesteps int64[W] that the program has, supersteps int64[R] that run once in each, busy cycles of tiles
    int64[R, W, tiles])."""
    every = max((len(stretch.timesteps) for stretch in program.stretches()), default=1)
    chosen = np.array([timestep for timestep in timesteps if 0 <= timestep < every], np.int64)
    recording = Recording(activity)
    numbers, found, begin = [], [], 0
    for stretch, planned in zip(program.stretches(), straight_line_plans(program, issue), strict=True):
        first, begin = begin, begin + len(stretch.body)
        if len(stretch.timesteps) != every or every == 1:
            continue
        for index, plan in enumerate(planned.plans):
            row, placement = np.zeros((len(chosen), program.tiles), np.int64), plan.placement
            busy = tile_turns(plan, planned.times, issue, recording)  # by timestep, in whichever order they run
            busy = busy[chosen] if len(busy) > 1 else busy
            row[:, placement.first : placement.first + placement.tiles] = busy
            numbers.append(first + index)
            found.append(row)
    columns = np.array(found, np.int64).reshape(len(numbers), len(chosen), program.tiles)
    return chosen, np.array(numbers, np.int64), columns
