"""The cost of the vertices of one tile in one superstep, by vertex and loop level.

The engine sums the same numbers over all tiles at once (`mimdsim.timing.worker_cycles`); here they keep their names.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mimdsim.base.compressed_columns import wide
from mimdsim.program import Superstep, Term, TileFormula, VertexTable
from mimdsim.timing.extents import Extents, split_extents
from mimdsim.timing.recording import Recording
from mimdsim.timing.tile_classes import Dealt
from mimdsim.timing.tile_cycles import Barrel, library_cycles
from mimdsim.timing.vertex_dispatch import SuperstepDeal


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
    place % contexts runs it); or of a library, with cycles float64[rows] of the tile."""

    table: VertexTable
    rows: np.ndarray
    place: np.ndarray
    levels: tuple[Level, ...]
    cycles: np.ndarray
    extents: dict[str, np.ndarray]

    @property
    def title(self) -> str:
        return self.table.codelet.name + (f" ({self.table.layer})" if self.table.layer else "")

    def bundles(self) -> np.ndarray:
        """float64[executions, vertices]"""
        total = np.zeros((1, len(self.rows)))
        for level in self.levels:
            total = total + level.bundles * level.turns
        return total


def work_of_tile(
    superstep: Superstep, deal: SuperstepDeal, tile: int, times: int, recording: Recording, barrel: Barrel
) -> tuple[TableWork, ...]:
    """The work by table, without tables that have no vertex on the tile. Executions: `times` if they differ, else 1."""
    found = []
    for table, dealt, extents in zip(superstep.tables, deal.dealt, deal.extents, strict=True):
        rows = np.flatnonzero(table.tiles == tile)
        if not len(rows):
            continue
        if isinstance(table.codelet.cost, TileFormula):
            found.append(_library(table, extents, rows, barrel))
        elif dealt is not None:
            found.append(_workers(table, extents, dealt, rows, times, recording, barrel.compiled_dual_issue))
    return tuple(found)


def _library(table: VertexTable, every: Extents, rows: np.ndarray, barrel: Barrel) -> TableWork:
    extents = {name: column for name, column in every.items() if isinstance(column, np.ndarray)}
    cycles = np.broadcast_to(library_cycles(table.codelet, extents, barrel, table.vertices), table.vertices)
    return TableWork(
        table=table,
        rows=rows,
        place=np.full(len(rows), -1),
        levels=(),
        cycles=cycles[rows],
        extents={name: column[rows] for name, column in extents.items()},
    )


def _workers(
    table: VertexTable,
    every: Extents,
    dealt: Dealt,
    rows: np.ndarray,
    times: int,
    recording: Recording,
    dual_issue: float,
) -> TableWork:
    cost = table.codelet.cost
    assert not isinstance(cost, TileFormula)
    levels = [Level(bundles=float(cost.fixed), paired=0.0, turns=np.ones((1, len(rows))), extents={})]
    charges = {id(charge.term): charge for charge in dealt.charges}
    for term in cost.terms:
        static, recorded = split_extents(table, every, term)
        turns = static[rows][None].astype(np.float64)
        extents = {name: _alone(table, every, name, rows) for name in term.extents}
        if recorded is not None:
            turns = recording.by_vertex(charges[id(term)].counted, rows, times)
            (counted,) = (name for name, column in extents.items() if not len(column))
            rest = np.prod([column for name, column in extents.items() if name != counted], axis=0, initial=1.0)
            extents[counted] = np.divide(turns, rest, out=np.zeros_like(turns), where=rest != 0)
        paired = dual_issue * term.pairable
        levels.append(Level(bundles=term.bundles - paired, paired=paired, turns=turns, extents=extents))
    return TableWork(
        table=table, rows=rows, place=wide(dealt.place[rows]), levels=tuple(levels), cycles=np.zeros(0), extents={}
    )


def _alone(table: VertexTable, every: Extents, name: str, rows: np.ndarray) -> np.ndarray:
    """An extent as float64[1, vertices]; without rows if it is counted from spikes."""
    static, recorded = split_extents(table, every, Term(bundles=1, extents=(name,)))
    return np.zeros((0, len(rows))) if recorded is not None else static[rows][None].astype(np.float64)
