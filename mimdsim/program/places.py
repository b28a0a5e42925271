"""Whether the tiles, variables and boxes that vertices and copies name exist, which all other rules assume."""

from __future__ import annotations

import numpy as np

from mimdsim.base.errors import MappingError, near
from mimdsim.base.units import show_bytes
from mimdsim.numerics.columns import boxes as numerics
from mimdsim.program.codelet import Field
from mimdsim.program.codelet_closure import around, is_library, size_of
from mimdsim.program.copies import check_copies
from mimdsim.program.mapping import BANDED, FLAT, PER_TIMESTEP, TileMapping
from mimdsim.program.program import Program
from mimdsim.program.records import MOST_CONSTANT_BYTES, Problem, Superstep, Variable, VertexTable, at_large, of_vertex
from mimdsim.program.vertex_boxes import describe_box, spatial_mapping, spatial_shape, takes_timestep

ON_A_TILE = "every element is on a tile"


def check_homes(program: Program, tiles: int) -> list[Problem]:
    """Variables with elements on no tile, beyond their shape, or on tiles that do not exist."""
    problems = []
    for variable in program.variables.values():
        text = _misfit(variable)
        if text:
            problems.append(at_large(ON_A_TILE, f"variable '{variable.name}' {text}"))
            continue
        outside = _outside(variable.mapping.tiles, min(tiles, program.tiles))
        if len(outside):
            tile = int(variable.mapping.tiles[outside[0]])
            text = f"variable '{variable.name}' has elements on tile {tile}, {_but_tiles(program, tile, tiles)}"
            problems.append(at_large("tile exists", text))
    return problems


def check_names(program: Program) -> list[Problem]:
    """Inputs and outputs of the program that are not variables."""
    problems = []
    for kind, names in (("input", program.inputs), ("output", program.outputs)):
        for value, name in names.items():
            if name not in program.variables:
                text = f"{kind} '{value}' is held in '{name}', which is not a variable of the program"
                problems.append(at_large("variable exists", text + near(name, program.variables)))
    return problems


def check_tiles(program: Program, superstep: Superstep, table: VertexTable, tiles: int) -> list[Problem]:
    """The first vertex on a tile that does not exist: beyond the program's tiles, or the machine's `tiles`."""
    outside = _outside(table.tiles, min(tiles, program.tiles))
    if not len(outside):
        return []
    row = int(outside[0])
    return [of_vertex("tile exists", superstep, table, row, _but_tiles(program, int(table.tiles[row]), tiles))]


def check_beside(superstep: Superstep, table: VertexTable) -> list[Problem]:
    """What a codelet's function takes from around it, larger than its code can hold: no tile has it.

    Of the library's functions arrays alone are looked at, which are whole; of users', all that they hold together.
    """
    compute = table.codelet.compute
    held = around(compute)
    if is_library(compute):
        held = {name: value for name, value in held.items() if isinstance(value, np.ndarray)}
    seen: set[int] = set()
    sizes = {name: size_of(value, seen) for name, value in held.items()}
    if sum(sizes.values()) <= MOST_CONSTANT_BYTES:
        return []
    name = max(sizes, key=lambda each: sizes[each])
    others = len([size for size in sizes.values() if size]) - 1
    text = (
        f"reads '{name}', {show_bytes(sizes[name])} that lie on no tile"
        f"{f', beside {others} more' if others else ''}: make it a variable "
        "(Kernel.constant) and a field of the codelet"
    )
    return [of_vertex(ON_A_TILE, superstep, table, 0, text)]


def require_homes(program: Program) -> None:
    """Raises MappingError if a vertex or an element is on no tile of the program and so could not be counted."""
    problems = check_homes(program, program.tiles)
    for superstep, _, _ in program.supersteps():
        for table in superstep.tables:
            problems += check_tiles(program, superstep, table, program.tiles)
    if problems:
        raise MappingError(problems[0].message)


def _outside(numbers: np.ndarray, tiles: int) -> np.ndarray:
    """The positions of tile numbers that are not among the first `tiles`; two passes without a copy if all are."""
    if not len(numbers) or (numbers.min() >= 0 and numbers.max() < tiles):
        return np.zeros(0, np.int64)
    return np.flatnonzero((numbers < 0) | (numbers >= tiles))


def _but_tiles(program: Program, tile: int, tiles: int) -> str:
    if not 0 <= tile < program.tiles:
        return (
            f"but the program is placed on tiles 0 to {program.tiles - 1}; map it to these or place the program on more"
        )
    return f"but the machine has tiles 0 to {tiles - 1}; map it to fewer tiles or choose a larger machine"


def _misfit(variable: Variable) -> str:
    """Which elements the mapping omits or has in excess; empty if it covers the variable exactly."""
    return _uncovered(variable.mapping, variable.shape, set())


def _uncovered(mapping: TileMapping, shape: tuple[int, ...], covered: set[TileMapping]) -> str:
    """covered: mappings that cover the variable: over many chips, most of the bands of bands are the same few."""
    if mapping in covered:
        return ""
    covered.add(mapping)  # any other ends the search
    if mapping.axis == BANDED:
        return _uncovered_in_bands(mapping, shape, covered)
    if mapping.is_replicated:
        return "" if len(mapping.tiles) else "is not replicated on any tile; name the tiles that hold it"
    if mapping.axis == FLAT:
        counted, extent = "elements", int(np.prod(shape, dtype=np.int64))
    elif mapping.axis == PER_TIMESTEP and shape:
        counted, extent = "elements of a timestep", int(np.prod(shape[1:], dtype=np.int64))
    elif 0 <= mapping.axis < len(shape):
        counted, extent = f"indices of axis {mapping.axis}", shape[mapping.axis]
    else:
        return f"is mapped along axis {mapping.axis}, its shape {list(shape)} has {len(shape)}; map an axis it has"
    return _gap(mapping.starts, mapping.stops, extent, counted)


def _uncovered_in_bands(mapping: TileMapping, shape: tuple[int, ...], covered: set[TileMapping]) -> str:
    axis = mapping.bands[0].axis
    if not 0 <= axis < len(shape):
        return f"is cut into bands along axis {axis}, its shape {list(shape)} has {len(shape)}; cut an axis it has"
    (starts, stops), own = mapping.columns.edges, mapping.columns.own
    alien = (FLAT, PER_TIMESTEP, axis) if len(starts) > 1 else (FLAT, PER_TIMESTEP)
    if any(one.axis in alien for one in own):
        return f"has bands along axis {axis} that are spread along it or element by element; spread them along others"
    found = (_uncovered(one, shape, covered) for one in own)
    return _gap(starts, stops, shape[axis], f"indices of axis {axis}") or next((text for text in found if text), "")


def _gap(starts: np.ndarray, stops: np.ndarray, extent: int, counted: str) -> str:
    least, most = (int(starts[0]), int(stops[-1])) if len(starts) else (0, 0)
    if least < 0 or most > extent:
        return f"is mapped from {least} to {most}, it has {extent} {counted}; map no more than there are"
    if int((stops - starts).sum()) == extent:  # intervals do not overlap (TileMapping), so nothing is left out
        return ""
    begins, ends = np.append(starts, extent), np.insert(stops, 0, 0)
    gap = int(np.flatnonzero(begins > ends)[0])
    return f"lacks a tile for {ends[gap]} to {begins[gap] - 1} of its {extent} {counted}; let its TileMapping hold all"


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
