"""Random changes of a program. Each operator takes a program and a random stream, and gives a mutant or None.

What an operator changes before exchanges are planned (tiles, boxes, operands, mappings) is planned anew for every other
mutant, as where its author made the mistake; else the exchange stays as it was.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from mimdsim.base.errors import MimdsimError
from mimdsim.compiler import plan_exchanges
from mimdsim.program import Program, Repeat, Superstep, VertexTable
from mimdsim.program.loops import RECORDED
from mimdsim.program.program import Body

Draw = np.random.Generator


@dataclass(frozen=True, kw_only=True, eq=False)
class Mutant:
    """A changed program, what was changed in words, and the names one of which a finding should give."""

    program: Program
    text: str
    places: tuple[str, ...]


Operator = Callable[[Program, Draw], Mutant | None]


def steps_of(program: Program) -> list[Superstep]:
    return [superstep for superstep, _, _ in program.supersteps()]


def any_of(draw: Draw, items: Any) -> Any:
    """One of a sequence, or None."""
    items = list(items)
    return items[int(draw.integers(len(items)))] if items else None


def with_step(program: Program, old: Superstep, new: Superstep) -> Program:
    return program.map_supersteps(lambda step: new if step is old else step)


def with_table(program: Program, step: Superstep, old: VertexTable, new: VertexTable | None) -> Program:
    tables = tuple(new if table is old else table for table in step.tables)
    return with_step(program, step, replace(step, tables=tuple(table for table in tables if table is not None)))


def planned(program: Program, draw: Draw) -> Program:
    """With exchanges planned, if they can be: every other time all anew, else where there is none, as a check does."""
    every = draw.random() < 0.5
    try:
        new = iter(steps_of(plan_exchanges(program)))
    except (MimdsimError, ValueError, IndexError):
        return program
    return program.map_supersteps(lambda old: _newer(old, next(new), every))


def _newer(old: Superstep, new: Superstep, every: bool) -> Superstep:
    return new if every or old.exchange is None else old


def table_of(program: Program, draw: Draw, wanted: Callable[[VertexTable], bool]) -> Any:
    """(superstep, one of its tables), or (None, None): supersteps as likely as one another."""
    found = [(step, table) for step in steps_of(program) for table in step.tables if table.vertices and wanted(table)]
    names = sorted({table.codelet.name for _, table in found})
    name = any_of(draw, names)  # codelets alike, however many tables they have
    return any_of(draw, [each for each in found if each[1].codelet.name == name]) or (None, None)


def called(step: Superstep, table: VertexTable, row: int = -1) -> str:
    vertex = f"vertex {row} of " if row >= 0 else ""
    return f"superstep '{step.name}', {vertex}{table.codelet.name} ({table.layer})"


def column_with(table: VertexTable, name: str, values: np.ndarray) -> VertexTable:
    return replace(table, columns=table.columns | {name: values})


# ---- vertices


def moved_vertex(program: Program, draw: Draw) -> Mutant | None:
    step, table = table_of(program, draw, lambda _: True)
    row = int(draw.integers(table.vertices))
    tiles = table.tiles.copy()
    tiles[row] = (tiles[row] + draw.integers(1, program.tiles)) % program.tiles
    made = planned(with_table(program, step, table, replace(table, tiles=tiles)), draw)
    return Mutant(program=made, text=f"{called(step, table, row)} moved to tile {tiles[row]}", places=(step.name,))


def swapped_boxes(program: Program, draw: Draw) -> Mutant | None:
    step, table = table_of(program, draw, lambda table: table.vertices > 1)
    if table is None:
        return None
    one, other = draw.choice(table.vertices, 2, replace=False).tolist()
    item = any_of(draw, [item for item in table.codelet.fields if set(_columns_of(item, table))])
    if item is None:
        return None
    new = table
    for name in _columns_of(item, table):
        column = table.columns[name].copy()
        column[[one, other]] = column[[other, one]]
        new = column_with(new, name, column)
    text = f"{called(step, table, one)}: box of '{item.name}' swapped with that of vertex {other}"
    return Mutant(program=planned(with_table(program, step, table, new), draw), text=text, places=(step.name,))


def _columns_of(item: Any, table: VertexTable) -> list[str]:
    names = [name for entry in item.box if entry != ":" and not entry.startswith("@") for name in entry.split(":")]
    return [name for name in names if name in table.columns]


def off_by_one_box(program: Program, draw: Draw) -> Mutant | None:
    step, table = table_of(program, draw, lambda table: any(_columns_of(item, table) for item in table.codelet.fields))
    item = any_of(draw, [item for item in table.codelet.fields if _columns_of(item, table)])
    name = any_of(draw, _columns_of(item, table))
    column, by = table.columns[name].copy(), int(draw.choice([-1, 1]))
    row = int(draw.integers(table.vertices)) if draw.random() < 0.7 else -1
    column[row if row >= 0 else slice(None)] += by
    made = planned(with_table(program, step, table, column_with(table, name, column)), draw)
    return Mutant(program=made, text=f"{called(step, table, row)}: column '{name}' {by:+d}", places=(step.name,))


def dropped_vertex(program: Program, draw: Draw) -> Mutant | None:
    step, table = table_of(program, draw, lambda _: True)
    row = int(draw.integers(table.vertices))
    new = _rows(table, np.delete(np.arange(table.vertices), row))
    made = planned(with_table(program, step, table, new), draw)
    return Mutant(program=made, text=f"{called(step, table, row)} left out", places=(step.name,))


def dropped_vertices(program: Program, draw: Draw) -> Mutant | None:
    """Vertices of a table left out: all on a tile, every second one, the last half, or the whole table."""
    step, table = table_of(program, draw, lambda table: table.vertices > 1)
    if table is None:
        return None
    kind = any_of(draw, ["those of a tile", "every second", "the last half", "all"])
    rows = np.arange(table.vertices)
    left = {
        "those of a tile": np.flatnonzero(table.tiles != any_of(draw, table.tiles)),
        "every second": rows[::2],
        "the last half": rows[: len(rows) // 2],
        "all": rows[:0],
    }[kind]
    made = planned(with_table(program, step, table, _rows(table, left) if len(left) else None), draw)
    written = [table.operands[item.name] for item in table.codelet.fields if item.writes]
    text = f"{called(step, table)}: vertices left out: {kind}"
    return Mutant(program=made, text=text, places=(step.name, *written))


def duplicated_vertex(program: Program, draw: Draw) -> Mutant | None:
    step, table = table_of(program, draw, lambda _: True)
    row = int(draw.integers(table.vertices))
    new = _rows(table, np.insert(np.arange(table.vertices), row, row))
    if draw.random() < 0.3:
        tiles = new.tiles.copy()
        tiles[row] = draw.integers(program.tiles)
        new = replace(new, tiles=tiles)
    made = planned(with_table(program, step, table, new), draw)
    return Mutant(program=made, text=f"{called(step, table, row)} there twice", places=(step.name,))


def _rows(table: VertexTable, rows: np.ndarray) -> VertexTable:
    extents = {name: each if isinstance(each, RECORDED) else each[rows] for name, each in table.extents.items()}
    columns = {name: column[rows] for name, column in table.columns.items()}
    return replace(table, tiles=table.tiles[rows], columns=columns, extents=extents)


def field_mode(program: Program, draw: Draw) -> Mutant | None:
    step, table = table_of(program, draw, lambda _: True)
    item = any_of(draw, table.codelet.fields)
    mode = any_of(draw, [each for each in ("read", "write", "update") if each != item.access])
    fields = tuple(replace(each, access=mode) if each is item else each for each in table.codelet.fields)
    new = table.with_codelet(replace(table.codelet, fields=fields))
    text = f"{called(step, table)}: field '{item.name}' declared {mode}, was {item.access}"
    return Mutant(program=planned(with_table(program, step, table, new), draw), text=text, places=(step.name,))


def wrong_shift(program: Program, draw: Draw) -> Mutant | None:
    step, table = table_of(
        program, draw, lambda table: any(item.box[0].startswith("@t") for item in table.codelet.fields)
    )
    if table is None:
        return None
    item = any_of(draw, [item for item in table.codelet.fields if item.box[0].startswith("@t")])
    now = "@t-1" if item.box[0] == "@t" else "@t"
    fields = tuple(replace(each, box=(now, *each.box[1:])) if each is item else each for each in table.codelet.fields)
    new = table.with_codelet(replace(table.codelet, fields=fields))
    text = f"{called(step, table)}: field '{item.name}' at {now}, was {item.box[0]}"
    return Mutant(program=with_table(program, step, table, new), text=text, places=(step.name,))


def other_operand(program: Program, draw: Draw) -> Mutant | None:
    step, table = table_of(program, draw, lambda _: True)
    item = any_of(draw, table.codelet.fields)
    name = table.operands[item.name]
    shape = program.variables[name].shape
    alike = [each for each in program.variables.values() if each.shape == shape and each.name != name]
    other = any_of(draw, alike)
    if other is None:
        return None
    new = replace(table, operands=table.operands | {item.name: other.name})
    text = f"{called(step, table)}: '{item.name}' is '{other.name}', was '{name}'"
    places = (step.name, name) if item.writes else (step.name,)  # nobody writes it now
    return Mutant(program=planned(with_table(program, step, table, new), draw), text=text, places=places)


def changed_constant(program: Program, draw: Draw) -> Mutant | None:
    def numbers(table: VertexTable) -> list[str]:
        return [name for name, value in table.constants.items() if isinstance(value, (int, float, np.number))]

    step, table = table_of(program, draw, lambda table: bool(numbers(table)))
    if table is None:
        return None
    name = any_of(draw, numbers(table))
    old: Any = table.constants[name]
    new = type(old)(any_of(draw, [old * 2, old + 1, -old, 0, old * 1.01] if float(old) else [1, -1]))
    made = with_table(program, step, table, replace(table, constants=table.constants | {name: new}))
    return Mutant(program=made, text=f"{called(step, table)}: constant '{name}' {new}, was {old}", places=(step.name,))


def missing_zero(program: Program, draw: Draw) -> Mutant | None:
    step, table = table_of(program, draw, lambda table: table.codelet.name.startswith("Fill"))
    if table is None:
        return None
    made = with_table(program, step, table, None)
    written = [table.operands[item.name] for item in table.codelet.fields if item.writes]
    return Mutant(program=made, text=f"{called(step, table)} left out", places=(step.name, *written))


# ---- supersteps


def bodies_of(body: Body) -> list[tuple[Body, int]]:
    """(a body, the place of each superstep in it), repeats included."""
    found: list[tuple[Body, int]] = []
    for place, item in enumerate(body):
        found += bodies_of(item.body) if isinstance(item, Repeat) else [(body, place)]
    return found


def with_body(body: Body, old: Body, new: Body) -> Body:
    if body is old:
        return new
    return tuple(
        replace(item, body=with_body(item.body, old, new)) if isinstance(item, Repeat) else item for item in body
    )


def swapped_supersteps(program: Program, draw: Draw) -> Mutant | None:
    pairs = [
        (body, place)
        for body, place in bodies_of(program.body)
        if place + 1 < len(body) and not isinstance(body[place + 1], Repeat)
    ]
    found = any_of(draw, pairs)
    if found is None:
        return None
    body, place = found
    first, second = body[place : place + 2]
    made = replace(program, body=with_body(program.body, body, (*body[:place], second, first, *body[place + 2 :])))
    text = f"supersteps '{first.name}' and '{second.name}' swapped"
    return Mutant(program=made, text=text, places=(first.name, second.name))


def dropped_superstep(program: Program, draw: Draw) -> Mutant | None:
    places = [(body, place) for body, place in bodies_of(program.body) if len(body) > 1]
    found = any_of(draw, places)
    if found is None:
        return None
    body, place = found
    step = body[place]
    made = replace(program, body=with_body(program.body, body, (*body[:place], *body[place + 1 :])))
    return Mutant(program=made, text=f"superstep '{step.name}' left out", places=(step.name, *written_by(step)))


def written_by(step: Superstep) -> tuple[str, ...]:
    """The variables that a superstep writes."""
    names = [table.operands[item.name] for table in step.tables for item in table.codelet.fields if item.writes]
    return (*dict.fromkeys(names), *(copy.target for copy in step.copies))


def across_repeat(program: Program, draw: Draw) -> Mutant | None:
    """The first or last superstep of a repeat moved out of it, or a neighbour of a repeat moved in."""
    moves: list[tuple[Superstep, Body]] = []
    body = program.body
    for place, item in enumerate(body):
        if not isinstance(item, Repeat) or len(item.body) < 2:
            continue
        first, last = item.body[0], item.body[-1]
        before, after = body[:place], body[place + 1 :]
        if isinstance(first, Superstep):
            moves.append((first, (*before, first, replace(item, body=item.body[1:]), *after)))
        if isinstance(last, Superstep):
            moves.append((last, (*before, replace(item, body=item.body[:-1]), last, *after)))
        if before and isinstance(before[-1], Superstep):
            moves.append((before[-1], (*before[:-1], replace(item, body=(before[-1], *item.body)), *after)))
        if after and isinstance(after[0], Superstep):
            moves.append((after[0], (*before, replace(item, body=(*item.body, after[0])), *after[1:])))
    found = any_of(draw, moves)
    if found is None:
        return None
    step, new = found
    made = replace(program, body=new)
    text = f"superstep '{step.name}' moved across the edge of a repeat"
    return Mutant(program=made, text=text, places=(step.name, *written_by(step)))


def repeat_changed(program: Program, draw: Draw) -> Mutant | None:
    """A turn more or less, or the other way round."""
    repeats = [(place, item) for place, item in enumerate(program.body) if isinstance(item, Repeat)]
    found = any_of(draw, repeats)
    if found is None:
        return None
    place, item = found
    kind = any_of(draw, ["+1", "-1", "reverse"])
    new = replace(item, reverse=not item.reverse) if kind == "reverse" else replace(item, times=item.times + int(kind))
    made = replace(program, body=(*program.body[:place], new, *program.body[place + 1 :]))
    inside = tuple(step.name for step in steps_of(replace(program, body=(item,))))
    return Mutant(program=made, text=f"repeat from '{inside[0]}': {kind}", places=inside)
