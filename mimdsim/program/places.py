"""Whether the tiles, variables and boxes that vertices and copies name exist, which all other rules assume."""

from __future__ import annotations

import numpy as np

from mimdsim.base.errors import MappingError, near
from mimdsim.numerics.columns import boxes as numerics
from mimdsim.program.codelet import Field
from mimdsim.program.copies import check_copies
from mimdsim.program.diagnostics import Problem, of_vertex
from mimdsim.program.homes import check_tiles
from mimdsim.program.program import Program
from mimdsim.program.records import Superstep, Variable, VertexTable
from mimdsim.program.vertex_boxes import describe_box, spatial_mapping, spatial_shape, takes_timestep


def check_places(program: Program, superstep: Superstep, tiles: int) -> list[Problem]:
    """Tiles and variables that a superstep names but that do not exist, so that its exchange cannot be planned."""
    problems = check_copies(program, superstep)
    for table in superstep.tables:
        problems += check_tiles(program, superstep, table, tiles)
        for item in table.codelet.fields:
            variable = program.variables.get(table.operands[item.name])
            if variable is None:
                problems.append(unknown_variable(program, superstep, table, item))
            else:
                problems += check_spread(superstep, table, item, variable)
    return problems


def check_boxes(
    superstep: Superstep, table: VertexTable, field: Field, variable: Variable, bounds: np.ndarray, rows: np.ndarray
) -> list[Problem]:
    """The first of the boxes (given as bounds, those of the vertices `rows`) that is not inside the variable."""
    shape = np.array(spatial_shape(variable, field), np.int64)
    first = int(numerics.first_outside(bounds, shape))
    if first < 0:
        return []
    text = f"touches {describe_box(variable.name, bounds[:, :, first])}, "
    turned = np.flatnonzero(bounds[:, 0, first] > bounds[:, 1, first])
    if len(turned):
        text += f"whose start lies beyond its stop on axis {int(turned[0])}; a box runs from start up to stop"
    else:
        text += f"outside the variable's shape {shape.tolist()}"
    return [of_vertex("box inside variable", superstep, table, int(rows[first]), text)]


def unfit_box(superstep: Superstep, table: VertexTable, mismatch: ValueError) -> Problem:
    """A box that `boxes_of` could not make."""
    return of_vertex("box fits variable", superstep, table, 0, f"cannot be placed: {mismatch}")


def unknown_variable(program: Program, superstep: Superstep, table: VertexTable, field: Field) -> Problem:
    """A field whose operand is not a variable."""
    name = table.operands[field.name]
    text = f"reads '{name}' through field '{field.name}', which is not a variable of the program"
    return of_vertex("variable exists", superstep, table, 0, text + near(name, program.variables))


def check_spread(superstep: Superstep, table: VertexTable, item: Field, variable: Variable) -> list[Problem]:
    """A timestep taken of a variable that is spread over tiles by timesteps: its tile would change with time."""
    if takes_timestep(item):
        try:
            spatial_mapping(variable, drop_axis=True)
        except MappingError as failure:
            return [of_vertex("box fits variable", superstep, table, 0, f"cannot be placed: {failure}")]
    return []
