"""What last wrote an element when a program has run: the superstep, its timestep, and the vertex."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np

from mimdsim.program import Program, Superstep, VertexTable
from mimdsim.program.codelet import Field, now_shift
from mimdsim.program.records import vertex_name
from mimdsim.program.vertex_boxes import boxes_of


def last_writer(program: Program, variable: str, where: tuple[int, ...]) -> str:
    """`superstep 'sum', timestep 3: vertex 17 of Sum on tile 5`, or that nothing writes the element."""

    @cache
    def rows(table: VertexTable, field: Field) -> np.ndarray:
        return _rows_with(program, table, field, variable, where)

    for superstep, t in reversed(list(program.turns())):
        found = _vertex(program, superstep, variable, where, t, rows)
        if found:
            at = f", timestep {t}" if program.timesteps > 1 else ""
            return f"superstep '{superstep.name}'{at}: {found}"
    return "no superstep of the program"


def _vertex(
    program: Program,
    superstep: Superstep,
    variable: str,
    where: tuple[int, ...],
    t: int,
    rows: Callable[..., np.ndarray],
) -> str:
    """The vertex or copy of the superstep that writes the element in timestep t, '' if none does."""
    held = program.variables[variable]
    for table in superstep.tables:
        for field in table.codelet.fields:
            if not field.writes or table.operands[field.name] != variable:
                continue
            shift = now_shift(field.box[0])
            if shift is not None and held.entry(t, shift) != where[0]:
                continue
            found = rows(table, field)
            if len(found):
                return vertex_name(table, int(found[0]))
    for copy in superstep.copies:
        if copy.target == variable and (copy.target_shift is None or held.entry(t, copy.target_shift) == where[0]):
            return f"the copy of '{copy.source}'"
    return ""


def _rows_with(program: Program, table: VertexTable, field: Field, variable: str, where: tuple[int, ...]) -> np.ndarray:
    """Vertices of a table whose box of a field holds the element."""
    boxes = boxes_of(table, field, program.variables[variable])
    element = np.array(where[len(where) - boxes.shape[1] :])
    return np.flatnonzero(((boxes[:, :, 0] <= element) & (element < boxes[:, :, 1])).all(axis=1))


MOST_NAMED = 8  # supersteps on the way to a value


def way_to(program: Program, variable: str) -> str:
    """`; made of what 'multiply 0' and 'add' write`: the supersteps that a variable's values come from, last first.

    Empty if it is made of inputs alone, by the superstep that is named anyway.
    """
    supersteps = [superstep for superstep, _, _ in program.supersteps()]
    wanted, names = {variable}, []
    for superstep in reversed(supersteps):
        if wanted.isdisjoint(superstep.variables_written):
            continue
        wanted |= {copy.source for copy in superstep.copies}
        wanted |= {
            table.operands[item.name] for table in superstep.tables for item in table.codelet.fields if item.reads
        }
        names.append(superstep.name)
    before = [f"'{name}'" for name in dict.fromkeys(names[1:])]
    more = " and earlier ones" if len(before) > MOST_NAMED else ""
    return f"; made of what {', '.join(before[:MOST_NAMED])}{more} left" if before else ""
