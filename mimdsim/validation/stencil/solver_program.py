"""The published solvers as programs written by hand: fields in blocks on tiles, halos by exchange, rows gathered.

A vertex takes its slice of a field as a list of rows, each one piece of memory. A row with a halo at its ends lies in
pieces, so the compiler keeps a second copy of such rows: what a tile holds of them is copied there by its contexts,
what others hold is received there. What is computed on a tile but held by another (`boxes.py`) goes through a copy of
its own on the way back. Both copies cost as those of the blur (`copies.py`), taken over as they were.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mimdsim.base.errors import MappingError
from mimdsim.compiler import plan_exchanges
from mimdsim.machine import MimdMachine
from mimdsim.program import Codelet, Program, Repeat, Superstep, Variable, VertexTable
from mimdsim.validation.stencil.boxes import CONTEXTS, Boxes, computed, held, least_surface, squarest
from mimdsim.validation.stencil.copies import column_codelet, row_codelet
from mimdsim.validation.stencil.solvers import Solver, box_of, codelet_of

WRITTEN = "computed in rows"
ITEM_BYTES = 4
MOST_CELLS = 1 << 33


@dataclass(frozen=True, kw_only=True, eq=False)
class Places:
    """Boxes of a program: what every context computes, and what it copies of what its tile holds.

    moved: whether some cells are computed on another tile than the one that holds them.
    """

    shape: tuple[int, ...]
    work: Boxes
    own: Boxes
    moved: bool

    @property
    def row_axes(self) -> int:
        return len(self.shape) - 1


def solver_program(
    solver: Solver, grid: tuple[int, ...], machine: MimdMachine, chips: int = 1, *, reloaded: bool = False
) -> Program:
    """One turn of the loop: `solver.turning` steps, after which every field has its role again; exchanges planned.

    grid: cells of the published figure; with `solver.boundary`, copied edges come on top. Inputs and outputs are
    the fields that take turns (the last one holds the result of a turn), those that are updated and constants; each
    float32[grid]. reloaded: the slowest reading of the codelet (`codelet_of`). Raises MappingError for grids of another
    number of axes, too small to be cut, or of more than 2^33 cells.
    """
    if len(grid) != solver.axes or min(grid) < 1 or np.prod(grid, dtype=float) > MOST_CELLS:
        size = "x".join(map(str, grid))
        raise MappingError(f"a grid of {size}: {solver.axes} axes of at least 1 cell, at most 2^33 cells, are needed")
    tiles, strips = machine.chip.tiles, chips
    shape = grid
    if solver.boundary:  # this program takes the tiles of all chips for those of one
        tiles, strips = tiles * chips, 1
        shape, splits = tuple(extent + 2 for extent in grid), squarest(grid, tiles)
    else:
        splits = least_surface(grid, tiles, chips)
    computing = computed(shape, solver.pad, splits, strips, tiles)
    holding = held(shape, splits, strips, tiles)
    moved = any((a[1:-1] != b[1:-1]).any() for a, b in zip(computing.edges, holding.edges, strict=True))
    contexts = CONTEXTS[solver.axes]
    places = Places(
        shape=shape, work=computing.boxes().split(contexts), own=holding.boxes().split(contexts), moved=moved
    )
    turning = tuple(f"field {number}" for number in range(solver.turning))
    fields = (*turning, *solver.updated, *solver.constant)
    mappings = dict.fromkeys((*fields, *_in_rows(solver, places)), holding.mapping())
    if moved:
        mappings[WRITTEN] = computing.filling(shape).mapping()
    codelet = codelet_of(solver, reloaded=reloaded)
    steps = [
        _step(solver, codelet, places, turning[number:] + turning[:number], number) for number in range(solver.turning)
    ]
    program = Program(
        tiles=strips * tiles,
        chips=chips,
        variables={
            name: Variable(name=name, shape=shape, dtype="float32", mapping=mapping, category="neuron states")
            for name, mapping in mappings.items()
        },
        body=(Repeat(times=1, body=tuple(superstep for step in steps for superstep in step)),),
        inputs={name: name for name in fields},
        outputs={name: name for name in (*turning, *solver.updated)},
    )
    return plan_exchanges(program)


def _in_rows(solver: Solver, places: Places) -> dict[str, str]:
    """Variable of gathered rows -> the role of which it holds them; rows on their own tile without a halo need none."""
    return {f"{role} in rows": role for role, pad in solver.reads.items() if pad or places.moved}


def _step(solver: Solver, codelet: Codelet, places: Places, turning: tuple[str, ...], number: int) -> list[Superstep]:
    """Steps from turning[-2] to turning[-1]; a role before that reads turning[-3]."""
    varying = [role for role in solver.reads if role not in solver.constant]
    fields = dict(zip(varying, turning[-2::-1], strict=False)) | {role: role for role in solver.constant}
    gathered = _in_rows(solver, places)
    operands = fields | {role: name for name, role in gathered.items()} | {name: name for name in solver.updated}
    operands["new"] = WRITTEN if places.moved else turning[-1]
    rows = row_codelet(ITEM_BYTES, box_of(len(places.shape), 0), places.row_axes)
    body = _boundary(turning[-2], places, number) if solver.boundary else []
    before = tuple(_copies(rows, places.own, fields[role], name) for name, role in gathered.items())
    body.append(_superstep("pre copies", number, before))
    body.append(_superstep("compute", number, (_vertices(solver, codelet, places, operands),)))
    if places.moved:
        back = _copies(rows, places.own.inside(solver.pad, places.shape), WRITTEN, turning[-1])
        body.append(_superstep("post copies", number, (back,)))
    return body


def _superstep(stage: str, number: int, tables: tuple[VertexTable, ...]) -> Superstep:
    return Superstep(
        name=f"{stage}, step {number}", op="stencil", phase="forward", stage=stage, tables=tables, mergeable=False
    )


def _vertices(solver: Solver, codelet: Codelet, places: Places, operands: dict[str, str]) -> VertexTable:
    bounds, lengths = places.work.bounds, places.work.lengths
    rows, along = lengths[:, :-1].prod(axis=1), lengths[:, -1]
    in_pairs = solver.pairs is not None  # both ends of a row one by one, or the first alone if that leaves pairs
    ends = (2 - along % 2) * rows if in_pairs else 0 * rows
    columns = {"rows": rows, "cells": rows * along, "ends": ends, "pairs": (rows * along - ends) // 2}
    for axis in range(len(places.shape)):
        low, high = bounds[:, axis].T
        columns |= {f"low{axis}": low, f"high{axis}": high}
        columns |= {f"before{axis}": low - solver.pad, f"after{axis}": high + solver.pad}
    return VertexTable(codelet=codelet, layer="", tiles=places.work.tiles, operands=operands, columns=columns)


def _copies(codelet: Codelet, boxes: Boxes, source: str, target: str) -> VertexTable:
    columns = {
        f"{name}{axis}": boxes.bounds[:, axis, side]
        for axis in range(boxes.bounds.shape[1])
        for side, name in enumerate(("low", "high"))
    }
    operands = {"source": source, "target": target}
    return VertexTable(codelet=codelet, layer="", tiles=boxes.tiles, operands=operands, columns=columns)


def _boundary(field: str, places: Places, number: int) -> list[Superstep]:
    """The four copies before a step: each edge of the grid without its corners becomes the line two further inside."""
    high, wide = places.shape
    whole = places.own.inside(1, places.shape)
    found = []
    for stage, axis, target, source in (
        ("north", 0, 0, 2),
        ("south", 0, high - 1, high - 3),
        ("west", 1, 0, 2),
        ("east", 1, wide - 1, wide - 3),
    ):
        beside = 1 if target == 0 else places.shape[axis] - 2  # the first line inside lies on the tile of the edge
        at = np.flatnonzero((whole.bounds[:, axis, 0] <= beside) & (beside < whole.bounds[:, axis, 1]))
        lines = whole.bounds[at].copy()
        columns: dict[str, np.ndarray] = {}
        for part, line in (("target ", target), ("source ", source)):
            lines[:, axis] = line, line + 1
            columns |= {
                f"{part}{name}{along}": lines[:, along, side].copy()
                for along in range(2)
                for side, name in enumerate(("low", "high"))
            }
        box = tuple(f"target low{along}:target high{along}" for along in range(2))
        codelet = row_codelet(ITEM_BYTES, box, 1) if axis == 0 else column_codelet(ITEM_BYTES, box)
        table = VertexTable(
            codelet=codelet,
            layer="",
            tiles=whole.tiles[at],
            operands={"source": field, "target": field},
            columns=columns,
        )
        found.append(_superstep(f"{stage} edge", number, (table,)))
    return found
