"""The rules of the machine, checked on a program without running it.

1 every vertex and every element is on a tile of the machine, and codelets take no arrays from elsewhere (`homes`); 2
every box lies inside its variable; 3 every read and every part of a copy is local or delivered to its tile in the same
superstep; 4 every write is local; 5 nothing is written twice in a superstep, and nothing is read that another vertex of
the superstep (`conflicts`) or a copy of its exchange writes (`copies`); 6 every timestep index is inside a repeat, and
names an existing entry (`entries`); 7 a copy's shapes agree (`copies`); 8 an exchange delivers exactly what is read and
counts it correctly (`exchange_rule`); 9 every element that is read, and every element of an output, was written before
(`written`); 10 loops run as often as boxes and recorded spikes say (`trips`, `origins`).
"""

from __future__ import annotations

from weakref import WeakSet

import numpy as np

from mimdsim.base.errors import MappingError
from mimdsim.program.check_initialised import check_writers, check_written
from mimdsim.program.codelet import Field, now_shift
from mimdsim.program.conflicts import MEANWHILE, Touch, check_conflicts
from mimdsim.program.copies import check_copies, check_copies_apart, check_planned_copies, reaches
from mimdsim.program.delivered import undelivered
from mimdsim.program.exchange_rule import check_deliveries, check_exchange
from mimdsim.program.exchanges import Described
from mimdsim.program.local import ByTile, in_bands, is_local
from mimdsim.program.mapping import BANDED, FLAT, TileMapping
from mimdsim.program.places import (
    check_beside,
    check_boxes,
    check_homes,
    check_names,
    check_spread,
    check_tiles,
    unfit_box,
    unknown_variable,
)
from mimdsim.program.program import Program
from mimdsim.program.records import Problem, Superstep, Variable, VertexTable, of_vertex
from mimdsim.program.repeats import IN_REPEAT, Stretch, unfit_entries
from mimdsim.program.trip_counts import check_extents
from mimdsim.program.vertex_boxes import (
    bounds_of,
    boxes_of,
    by_rows,
    describe_box,
    spatial_mapping,
    spatial_shape,
    takes_timestep,
)

MAX_PROBLEMS = 20
_SOUND: WeakSet[Program] = WeakSet()  # programs that were verified and keep all rules


def verify(program: Program, tiles: int) -> tuple[Problem, ...]:
    """Every broken rule (at most MAX_PROBLEMS), in program order; empty when the program is sound.

    If elements are on no existing tile, only these are reported: nothing else can be determined.
    """
    if not any(True for _ in program.supersteps()):
        raise MappingError("the program has no superstep")
    homeless = check_homes(program, tiles)
    problems = check_names(program) + homeless
    if homeless:
        return tuple(problems[:MAX_PROBLEMS])
    described: Described = {}
    for stretch in program.stretches():
        for superstep in stretch.body:
            problems += _check_superstep(program, superstep, stretch, tiles, described)
            if len(problems) >= MAX_PROBLEMS:
                return tuple(problems[:MAX_PROBLEMS])
    if not problems:  # boxes that lie inside their variables and do not conflict can be counted and followed
        problems += check_written(program) or check_writers(program)
        for superstep, _, _ in program.supersteps():
            for table in superstep.tables:
                problems += check_extents(program, superstep, table)
    if not problems:
        _SOUND.add(program)
    return tuple(problems[:MAX_PROBLEMS])


def require_sound(program: Program) -> None:
    """Raise MappingError with the first broken rule of a program; a program already verified is not checked again."""
    problems = () if program in _SOUND else verify(program, program.tiles)
    if problems:
        raise MappingError(problems[0].message)


def _check_superstep(
    program: Program, superstep: Superstep, stretch: Stretch, tiles: int, described: Described
) -> list[Problem]:
    if unfit := check_deliveries(program, superstep):
        return unfit
    problems = check_copies(program, superstep) or check_planned_copies(program, superstep, stretch)
    problems = problems or check_copies_apart(superstep)
    touches: list[Touch] = []
    for table in superstep.tables:
        misplaced = check_tiles(program, superstep, table, tiles)
        problems += misplaced + check_beside(superstep, table)
        for item in () if misplaced else table.codelet.fields:
            problems += _check_field(program, superstep, table, item, stretch, touches)
    problems += check_conflicts(superstep, touches, stretch.timesteps, local=not problems)
    return problems or check_exchange(program, superstep, described)


def _check_field(
    program: Program, superstep: Superstep, table: VertexTable, item: Field, stretch: Stretch, touches: list[Touch]
) -> list[Problem]:
    """Rules 2 to 4 and 6 for a field; the boxes it touches are added to `touches`."""
    name = table.operands[item.name]
    if name not in program.variables:
        return [unknown_variable(program, superstep, table, item)]
    variable = program.variables[name]
    try:
        boxes_of(table.some(slice(0)), item, variable)
    except ValueError as mismatch:
        return [unfit_box(superstep, table, mismatch)]
    shift = now_shift(item.box[0])
    text = "" if shift is None else unfit_entries(variable, shift, stretch, writes=item.writes)
    if text:
        return [of_vertex(IN_REPEAT, superstep, table, 0, text)]
    if not table.vertices:
        return []
    touches.append(Touch(table=table, field=item, variable=variable))
    for part, rows in by_rows(table):
        outside = check_boxes(superstep, table, item, variable, bounds_of(boxes_of(part, item, variable)), rows)
        if outside:
            return outside
    misplaced = check_spread(superstep, table, item, variable)
    if misplaced:
        return misplaced
    known: dict[TileMapping, ByTile] = {}
    reached = (_check_reach(superstep, table, item, variable, *part, known) for part in by_rows(table))
    return next(filter(None, reached), [])


def _check_reach(
    superstep: Superstep,
    table: VertexTable,
    item: Field,
    variable: Variable,
    part: VertexTable,
    rows: np.ndarray,
    known: dict[TileMapping, ByTile],
) -> list[Problem]:
    """Rules 3 and 4 for the boxes of `part`, the vertices `rows` of a table; all lie inside their variable."""
    boxes = boxes_of(part, item, variable)
    name, shape = variable.name, spatial_shape(variable, item)
    mapping = spatial_mapping(variable, takes_timestep(item))
    if item.writes and mapping.has_copies:
        text = f"writes one replica of '{name}', which {len(mapping.tiles)} tiles hold; the others would stay old"
        return [of_vertex("writes are local", superstep, table, 0, text)]
    remote = np.flatnonzero(~is_local(mapping, part.tiles, boxes, shape, known))
    if not len(remote):
        return []
    if item.writes:
        row = int(remote[0])
        text = _lies_elsewhere("writes", name, mapping, boxes[row], shape, int(part.tiles[row]))
        return [of_vertex("writes are local", superstep, table, int(rows[row]), text)]
    if any(reaches(copy, name, now_shift(item.box[0])) for copy in superstep.copies):
        text = (
            f"reads {describe_box(name, boxes[remote[0]])} of another tile while a copy of the same exchange writes it"
        )
        text += "; read it in the next superstep"
        return [of_vertex(MEANWHILE, superstep, table, int(rows[remote[0]]), text)]
    far = bounds_of(boxes).take(remote, axis=2).transpose(2, 0, 1)
    missing = remote[undelivered(superstep, name, part.tiles[remote], far)]
    if not len(missing):
        return []
    row = int(missing[0])
    text = _lies_elsewhere("reads", name, mapping, boxes[row], shape, int(part.tiles[row]))
    text += " and is not delivered in this superstep's exchange"
    return [of_vertex("reads are local or delivered", superstep, table, int(rows[row]), text)]


def _lies_elsewhere(
    does: str, name: str, mapping: TileMapping, box: np.ndarray, shape: tuple[int, ...], tile: int
) -> str:
    element, owner = _first_elsewhere(mapping, box, shape, tile)
    part = "" if element == tuple(box[:, 0].tolist()) else f"from {name}{list(element)} on "
    return f"{does} {describe_box(name, box)}, which {part}lies on tile {owner}"


def _first_elsewhere(
    mapping: TileMapping, box: np.ndarray, shape: tuple[int, ...], tile: int
) -> tuple[tuple[int, ...], int]:
    """(the first element of a box that lies on another tile than `tile`, that tile); box int64[axes, 2]."""
    if mapping.axis == BANDED:
        one, boxes = np.array([tile]), box[None]
        for copies, _, _, inside in in_bands(mapping, one, boxes):
            if not any(is_local(copy, one, inside, shape).all() for copy in copies):
                return _first_elsewhere(copies[0], inside[0], shape, tile)
    if mapping.axis == FLAT:
        corners = np.ix_(*(np.arange(start, stop) for start, stop in box.tolist()))
        places = np.ravel_multi_index(corners, shape).reshape(-1)
    else:
        places = np.arange(*box[max(mapping.axis, 0)].tolist())
    owners = mapping.owners(places)
    at = int(np.argmax(owners != tile))
    found = int(places[at])
    first = [int(start) for start in box[:, 0]]
    if mapping.axis == FLAT:
        first = [int(index) for index in np.unravel_index(found, shape)]
    elif not mapping.is_replicated:
        first[max(mapping.axis, 0)] = found
    return tuple(first), int(owners[at])
