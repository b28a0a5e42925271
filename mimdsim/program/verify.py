"""The rules of the machine, checked on a program without running it.

1 every vertex and every element is on a tile of the machine; 2 every box lies inside its variable; 3 every read is
local or delivered to the vertex's tile in the same superstep; 4 every write is local; 5 nothing is written twice in a
superstep, and nothing is read that another vertex of the superstep writes; 6 every timestep index is inside a repeat;
7 an output that vertices write is written whole (`mimdsim.program.outputs`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mimdsim.base.errors import MappingError, near
from mimdsim.numerics import boxes as numerics
from mimdsim.program.codelet import Field
from mimdsim.program.mapping import FLAT, TileMapping
from mimdsim.program.outputs import unwritten_outputs
from mimdsim.program.records import Delivery, Program, Superstep, Variable, VertexTable
from mimdsim.program.rows import (
    bounds_of,
    boxes_of,
    describe_box,
    equal_rows,
    is_local,
    order_of,
    spatial_mapping,
    spatial_shape,
    takes_timestep,
)

MAX_PROBLEMS = 20
Boxes = dict[tuple[int, str], np.ndarray]  # by (identity of the table, field), kept while a superstep is checked


@dataclass(frozen=True, kw_only=True)
class Problem:
    """A broken rule: which, where, and the vertex's row in its table (-1: not a vertex; empty: no one superstep)."""

    rule: str
    superstep: str
    codelet: str
    vertex: int
    tile: int
    message: str


def verify(program: Program, tiles: int) -> tuple[Problem, ...]:
    """Every broken rule (at most MAX_PROBLEMS), in program order; empty when the program is sound."""
    if not any(True for _ in program.supersteps()):
        raise MappingError("the program has no superstep")
    problems = check_homes(program, tiles)
    for superstep, times, _ in program.supersteps():
        kept: Boxes = {}
        problems += _check_copies(program, superstep)
        for table in superstep.tables:
            problems += _check_table(program, superstep, table, tiles, times, kept)
        problems += _check_writes(program, superstep, kept)
        if len(problems) >= MAX_PROBLEMS:
            break
    if not problems:  # boxes that are inside their variables and do not meet can be counted
        problems += [_at_large("outputs are written whole", text) for text in unwritten_outputs(program)]
    return tuple(problems[:MAX_PROBLEMS])


def check_homes(program: Program, tiles: int) -> list[Problem]:
    """Variables with elements on tiles that are not there."""
    problems = []
    for variable in program.variables.values():
        outside = _outside(variable.mapping.tiles, tiles)
        if len(outside):
            text = f"variable '{variable.name}' has elements on tile {int(variable.mapping.tiles[outside[0]])}"
            problems.append(_at_large("tile exists", f"{text}, {_but_tiles(tiles)}"))
    return problems


def check_places(program: Program, superstep: Superstep, tiles: int) -> list[Problem]:
    """What a superstep names that is not there, tiles and variables: without these its exchange cannot be planned."""
    problems = _check_copies(program, superstep)
    for table in superstep.tables:
        problems += _check_tiles(superstep, table, tiles)
        problems += [_unknown_variable(program, superstep, table, item) for item in table.codelet.fields
                     if table.operands[item.name] not in program.variables]  # fmt: skip
    return problems


def check_boxes(
    superstep: Superstep, table: VertexTable, field: Field, variable: Variable, bounds: np.ndarray, rows: np.ndarray
) -> list[Problem]:
    """The first of the boxes, as bounds and those of the vertices `rows`, that is not inside the variable."""
    shape = np.array(spatial_shape(variable, field), np.int64)
    first = int(numerics.first_outside(bounds, shape))
    if first < 0:
        return []
    text = f"touches {describe_box(variable.name, bounds[:, :, first])}, outside the variable's shape {shape.tolist()}"
    return [_problem("box inside variable", superstep, table, int(rows[first]), text)]


def unfit_box(superstep: Superstep, table: VertexTable, mismatch: ValueError) -> Problem:
    """A box that `boxes_of` could not make."""
    return _problem("box fits variable", superstep, table, 0, f"cannot be placed: {mismatch}")


def vertex_name(table: VertexTable, vertex: int) -> str:
    """`vertex 17 of LifUpdate (hidden0) on tile 5`"""
    layer = f" ({table.layer})" if table.layer else ""
    return f"vertex {vertex} of {table.codelet.name}{layer} on tile {int(table.tiles[vertex])}"


def _problem(rule: str, superstep: Superstep, table: VertexTable, vertex: int, text: str) -> Problem:
    return Problem(
        rule=rule,
        superstep=superstep.name,
        codelet=table.codelet.name,
        vertex=vertex,
        tile=int(table.tiles[vertex]),
        message=f"superstep '{superstep.name}': {vertex_name(table, vertex)} {text}",
    )


def _at_large(rule: str, text: str, superstep: str = "") -> Problem:
    return Problem(rule=rule, superstep=superstep, codelet="", vertex=-1, tile=-1, message=text)


def _outside(numbers: np.ndarray, tiles: int) -> np.ndarray:
    """Which of some tile numbers the machine does not have; two passes without a copy when it has them all."""
    if not len(numbers) or (numbers.min() >= 0 and numbers.max() < tiles):
        return np.zeros(0, np.int64)
    return np.flatnonzero((numbers < 0) | (numbers >= tiles))


def _but_tiles(tiles: int) -> str:
    return f"but the machine has tiles 0 to {tiles - 1}; map it to fewer tiles or choose a larger machine"


def _check_tiles(superstep: Superstep, table: VertexTable, tiles: int) -> list[Problem]:
    outside = _outside(table.tiles, tiles)
    row = int(outside[0]) if len(outside) else 0
    return [_problem("tile exists", superstep, table, row, _but_tiles(tiles))] if len(outside) else []


def _check_copies(program: Program, superstep: Superstep) -> list[Problem]:
    names = [name for copy in superstep.copies for name in (copy.source, copy.target) if name not in program.variables]
    return [
        _at_large(
            "variable exists",
            f"superstep '{superstep.name}': copies '{name}', which is no variable of the program"
            f"{near(name, program.variables)}",
            superstep.name,
        )
        for name in names
    ]


def _unknown_variable(program: Program, superstep: Superstep, table: VertexTable, field: Field) -> Problem:
    name = table.operands[field.name]
    text = f"reads '{name}' through field '{field.name}', which is no variable of the program"
    return _problem("variable exists", superstep, table, 0, text + near(name, program.variables))


def _first(mask: np.ndarray | np.bool_) -> int:
    return int(np.flatnonzero(mask)[0])


def _boxes_once(table: VertexTable, field: Field, variable: Variable, kept: Boxes) -> np.ndarray:
    """`boxes_of`, made once for all checks of a superstep."""
    key = (id(table), field.name)
    if key not in kept:
        kept[key] = boxes_of(table, field, variable)
    return kept[key]


def _check_table(
    program: Program, superstep: Superstep, table: VertexTable, tiles: int, times: int, kept: Boxes
) -> list[Problem]:
    problems = _check_tiles(superstep, table, tiles)
    if problems:
        return problems
    for item in table.codelet.fields:
        name = table.operands[item.name]
        if name not in program.variables:
            problems.append(_unknown_variable(program, superstep, table, item))
            continue
        variable = program.variables[name]
        if takes_timestep(item) and variable.entries != "segment" and times != variable.shape[0]:
            where = "outside a repeat" if times == 1 else f"in a repeat of {times} timesteps"
            text = f"takes the timestep of '{name}' {where}; it has {variable.shape[0]}"
            problems.append(_problem("timestep in repeat", superstep, table, 0, text))
            continue
        try:
            boxes = _boxes_once(table, item, variable, kept)
        except ValueError as mismatch:
            problems.append(unfit_box(superstep, table, mismatch))
            continue
        misplaced = check_boxes(superstep, table, item, variable, bounds_of(boxes), np.arange(len(boxes)))
        if misplaced:
            problems += misplaced
            continue
        shape = np.array(spatial_shape(variable, item), np.int64)
        mapping = spatial_mapping(variable, takes_timestep(item))
        remote = ~is_local(mapping, table.tiles, boxes, spatial_shape(variable, item))
        if item.writes and mapping.is_replicated and len(mapping.tiles) > 1:
            text = f"writes one replica of '{name}', which {len(mapping.tiles)} tiles hold; the others would stay old"
            problems.append(_problem("writes are local", superstep, table, 0, text))
            continue
        if not remote.any():
            continue
        if item.writes:
            row = _first(remote)
            text = f"writes {describe_box(name, boxes[row])}, which lies on tile {_owner(mapping, boxes[row], shape)}"
            problems.append(_problem("writes are local", superstep, table, row, text))
            continue
        undelivered = _undelivered(superstep, name, table.tiles[remote], boxes[remote])
        if undelivered.any():
            row = int(np.flatnonzero(remote)[_first(undelivered)])
            text = (
                f"reads {describe_box(name, boxes[row])}, which lies on tile {_owner(mapping, boxes[row], shape)} "
                "and is not delivered in this superstep's exchange"
            )
            problems.append(_problem("reads are local or delivered", superstep, table, row, text))
    return problems


def _owner(mapping: TileMapping, box: np.ndarray, shape: np.ndarray) -> int:
    """The tile that holds the first element of a box."""
    if mapping.axis == FLAT:
        return mapping.owner(int(np.ravel_multi_index(box[:, 0].tolist(), shape.tolist())))
    return mapping.owner(int(box[max(mapping.axis, 0), 0]))


def _undelivered(superstep: Superstep, variable: str, tiles: np.ndarray, boxes: np.ndarray) -> np.ndarray:
    """bool[rows]: not contained in any delivered box of the variable to that tile."""
    missing = np.ones(len(tiles), bool)
    if superstep.exchange is None:
        return missing
    for delivery in superstep.exchange.deliveries:
        if delivery.variable == variable and len(delivery.tiles):
            missing &= ~_contained(delivery, tiles, boxes)
    return missing


def _contained(delivery: Delivery, tiles: np.ndarray, boxes: np.ndarray) -> np.ndarray:
    """bool[rows]: inside one delivered box."""
    order = order_of(delivery.tiles[None], [0])
    given = delivery.tiles[order], bounds_of(delivery.boxes).take(order, axis=2), tiles, bounds_of(boxes)
    inside: np.ndarray = numerics.contained_boxes(*given)
    return inside


def _check_writes(program: Program, superstep: Superstep, kept: Boxes) -> list[Problem]:
    """Rule 5, per variable written in the superstep."""
    written: dict[str, list[tuple[VertexTable, np.ndarray]]] = {}
    read: dict[str, list[tuple[VertexTable, np.ndarray]]] = {}
    for table in superstep.tables:
        for item in table.codelet.fields:
            variable = program.variables.get(table.operands[item.name])
            if variable is None:
                continue
            try:
                boxes = _boxes_once(table, item, variable, kept)
            except ValueError:
                continue  # reported by _check_table
            if item.writes:
                written.setdefault(variable.name, []).append((table, boxes))
            if item.access == "read":
                read.setdefault(variable.name, []).append((table, boxes))
    problems = []
    for name, groups in written.items():
        boxes = np.concatenate([part for _, part in groups])
        tables = [table for table, _ in groups]
        offsets = np.cumsum([0, *(len(part) for _, part in groups)])
        for one, two in _overlapping(boxes, boxes, same=True):
            table, row = _locate(tables, offsets, two)
            other, other_row = _locate(tables, offsets, one)
            text = f"writes {describe_box(name, boxes[two])}, which {vertex_name(other, other_row)} writes too"
            problems.append(_problem("nothing is written twice", superstep, table, row, text))
        for table, wanted in read.get(name, []):
            for one, two in _overlapping(boxes, wanted, same=False):
                other, other_row = _locate(tables, offsets, one)
                if other is table and other_row == two:
                    continue
                text = f"reads {describe_box(name, wanted[two])} while {vertex_name(other, other_row)} writes it"
                problems.append(_problem("nothing is read while written", superstep, table, two, text))
    return problems


def _locate(tables: list[VertexTable], offsets: np.ndarray, row: int) -> tuple[VertexTable, int]:
    group = int(np.searchsorted(offsets, row, side="right")) - 1
    return tables[group], row - int(offsets[group])


def _overlapping(left: np.ndarray, right: np.ndarray, *, same: bool) -> list[tuple[int, int]]:
    """At most one pair of rows that share an element (for `same`, of different rows)."""
    if same and _is_grid(left):
        which, one_of_each = equal_rows(bounds_of(left).reshape(-1, len(left)))
        if len(one_of_each) == len(left):
            return []
        first = np.unique(which, return_index=True)[1]
        repeated = _first(first[which] != np.arange(len(which)))
        return [(int(first[which[repeated]]), repeated)]
    # sweep along the first axis that splits the rows: rows sorted by start can only meet their neighbours
    order = np.argsort(left[:, 0, 0], kind="stable")
    for two in range(len(right)):
        stop = np.searchsorted(left[order, 0, 0], right[two, 0, 1], side="left")
        rows = order[:stop]
        meet = ((left[rows, :, 0] < right[two, :, 1]) & (left[rows, :, 1] > right[two, :, 0])).all(axis=1)
        hits = rows[meet]
        if same:
            hits = hits[hits != two]
        if len(hits):
            return [(int(hits[0]), two)]
    return []


def _is_grid(boxes: np.ndarray) -> bool:
    """Whether the intervals along every axis are pairwise equal or disjoint; then boxes meet only if they are equal."""
    for axis in range(boxes.shape[1]):
        intervals = bounds_of(boxes)[axis]
        starts, stops = intervals[:, equal_rows(intervals)[1]]
        if np.any(starts[1:] < stops[:-1]):
            return False
    return True
