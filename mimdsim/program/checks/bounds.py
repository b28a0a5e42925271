"""Whether the tiles, variables, boxes and timesteps that vertices and copies name exist, as all other rules assume."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from mimdsim.base.errors import MappingError, near
from mimdsim.base.units import show_bytes
from mimdsim.numerics.columns import boxes as numerics
from mimdsim.program.checks.scope import IN_REPEAT, ON_A_TILE, Access, Scope, entries_taken
from mimdsim.program.checks.spike_provenance import provenance_of
from mimdsim.program.codelet import LackingExtent, TileFormula, formula_cycles
from mimdsim.program.codelet_closure import closure_of, is_library, size_of
from mimdsim.program.loops import RECORDED, Derived, Hits, Lists, Recorded
from mimdsim.program.mapping import BANDED, FLAT, PER_TIMESTEP, TileMapping
from mimdsim.program.program import Program, Stretch, extents_named, extents_of
from mimdsim.program.records import MOST_CONSTANT_BYTES, Problem, Relay, Variable, VertexTable
from mimdsim.program.vertex_boxes import bounds_of, describe_box, spatial_mapping

NO_VARIABLE = "which is not a variable of the program"
BOX_FITS = "box fits variable"


# ---- of a whole program


def check_homes(program: Program, tiles: int) -> Iterator[Problem]:
    """Variables with elements on no tile, beyond their shape, or on tiles that do not exist."""
    for variable in program.variables.values():
        if text := _coverage_gap(variable.mapping, variable.shape, set()):
            yield Problem(rule=ON_A_TILE, message=f"variable '{variable.name}' {text}")
            continue
        outside = _out_of_range(variable.mapping.tiles, min(tiles, program.tiles))
        if len(outside):
            tile = int(variable.mapping.tiles[outside[0]])
            text = f"variable '{variable.name}' has elements on tile {tile}, {_describe_tiles(program, tile, tiles)}"
            yield Problem(rule="tile exists", message=text)


def check_interface(program: Program, _tiles: int) -> Iterator[Problem]:
    """Inputs and outputs of the program that are not variables."""
    for kind, names in (("input", program.inputs), ("output", program.outputs)):
        for value, name in names.items():
            if name not in program.variables:
                text = f"{kind} '{value}' is held in '{name}', {NO_VARIABLE}{near(name, program.variables)}"
                yield Problem(rule="variable exists", message=text)


def require_homes(program: Program) -> None:
    """Raises MappingError if a vertex or an element is on no tile of the program and so could not be counted."""
    problems = [*check_homes(program, program.tiles)]
    for superstep, _, _ in program.supersteps():
        problems += check_tiles(Scope(program=program, superstep=superstep, tiles=program.tiles))
    if problems:
        raise MappingError(problems[0].message)


def _out_of_range(numbers: np.ndarray, tiles: int) -> np.ndarray:
    """The positions of tile numbers that are not among the first `tiles`; two passes without a copy if all are."""
    if not len(numbers) or (numbers.min() >= 0 and numbers.max() < tiles):
        return np.zeros(0, np.int64)
    return np.flatnonzero((numbers < 0) | (numbers >= tiles))


def _describe_tiles(program: Program, tile: int, tiles: int) -> str:
    if not 0 <= tile < program.tiles:
        return (
            f"but the program is placed on tiles 0 to {program.tiles - 1}; map it to these or place the program on more"
        )
    return f"but the machine has tiles 0 to {tiles - 1}; map it to fewer tiles or choose a larger machine"


def _coverage_gap(mapping: TileMapping, shape: tuple[int, ...], covered: set[TileMapping]) -> str:
    """Which elements the mapping omits or has in excess; empty if it covers a variable of `shape` exactly.

    covered: mappings that do: over many chips, most of the bands of bands are the same few.
    """
    if mapping in covered:
        return ""
    covered.add(mapping)  # any other ends the search
    if mapping.axis == BANDED:
        return _coverage_gap_of_bands(mapping, shape, covered)
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


def _coverage_gap_of_bands(mapping: TileMapping, shape: tuple[int, ...], covered: set[TileMapping]) -> str:
    axis = mapping.bands[0].axis
    if not 0 <= axis < len(shape):
        return f"is cut into bands along axis {axis}, its shape {list(shape)} has {len(shape)}; cut an axis it has"
    (starts, stops), own = mapping.columns.edges, mapping.columns.own
    alien = (FLAT, PER_TIMESTEP, axis) if len(starts) > 1 else (FLAT, PER_TIMESTEP)
    if any(one.axis in alien for one in own):
        return f"has bands along axis {axis} that are spread along it or element by element; spread them along others"
    gaps = (_coverage_gap(one, shape, covered) for one in own)
    return _gap(starts, stops, shape[axis], f"indices of axis {axis}") or next((text for text in gaps if text), "")


def _gap(starts: np.ndarray, stops: np.ndarray, extent: int, counted: str) -> str:
    least, most = (int(starts[0]), int(stops[-1])) if len(starts) else (0, 0)
    if least < 0 or most > extent:
        return f"is mapped from {least} to {most}, it has {extent} {counted}; map no more than there are"
    if int((stops - starts).sum()) == extent:  # intervals do not overlap (TileMapping), so nothing is left out
        return ""
    begins, ends = np.append(starts, extent), np.insert(stops, 0, 0)
    gap = int(np.flatnonzero(begins > ends)[0])
    return f"lacks a tile for {ends[gap]} to {begins[gap] - 1} of its {extent} {counted}; let its TileMapping hold all"


# ---- of a superstep


def check_copies(scope: Scope) -> Iterator[Problem]:
    """Copies of unknown variables, of variables spread by timesteps, and between different shapes, which cannot be
    planned."""
    for copy in scope.superstep.copies:
        unknown = [name for name in (copy.source, copy.target) if name not in scope.program.variables]
        for name in unknown:
            text = f"copies '{name}', {NO_VARIABLE}{near(name, scope.program.variables)}"
            yield scope.problem("variable exists", text)
        if unknown:
            continue
        shapes = []
        for name, shift in ((copy.source, copy.source_shift), (copy.target, copy.target_shift)):
            shapes.append(scope.program.variables[name].shape[shift is not None :])
            try:
                spatial_mapping(scope.program.variables[name], shift is not None)
            except MappingError as failure:
                yield scope.problem(BOX_FITS, f"cannot copy: {failure}")
        text = f"copies '{copy.source}' {list(shapes[0])} to '{copy.target}' {list(shapes[1])}"
        if shapes[0] != shapes[1]:
            text += "; the shapes must be the same, without the axis of a timestep that is taken"
            yield scope.problem("shapes of a copy agree", text)
        elif not shapes[0]:
            text += ", which leaves no axis to copy along; give both one of extent 1"
            yield scope.problem("shapes of a copy agree", text)
        if copy.relay is not None and (text := _relay_problem(copy.relay, scope.program.chips)):
            yield scope.problem("chips pass on what they have", f"copies '{copy.source}' {text}")


def _relay_problem(relay: Relay, chips: int) -> str:
    """What of a relay cannot be: a chip that passes on what it gets later, or never."""
    if any(len(rows) != chips or any(len(row) != chips for row in rows) for rows in (relay.parent, relay.step)):
        return f"by a relay that is not of the program's {chips} chips; give parent and step for every pair of chips"
    parent, step = np.array(relay.parent), np.array(relay.step)
    source, target = np.nonzero(parent >= 0)
    giver = parent[source, target]
    known = (giver < chips) & (source != target)
    by = source, np.minimum(giver, chips - 1)
    has = np.where(giver == source, 0, np.where(parent[by] < 0, 1, step[by]))
    wrong = np.flatnonzero((source != target) & (~known | (step[source, target] <= has) | (giver == target)))
    if not len(wrong):
        return ""
    one, to, way = (int(each[wrong[0]]) for each in (source, target, giver))
    return (
        f"from chip {one} to chip {to} by way of chip {way} in round {int(step[one, to])}, before that chip has it; "
        "let a chip pass it on in a later round than it gets it"
    )


def check_tiles(scope: Scope) -> Iterator[Problem]:
    """The first vertex of a table on a tile that does not exist: beyond the program's tiles, or the machine's."""
    for table in scope.superstep.tables:
        outside = _out_of_range(table.tiles, min(scope.tiles, scope.program.tiles))
        if len(outside):
            row = int(outside[0])
            text = _describe_tiles(scope.program, int(table.tiles[row]), scope.tiles)
            yield scope.problem("tile exists", text, table, row)


def check_closures(scope: Scope) -> Iterator[Problem]:
    """What a codelet's function takes from around it, larger than its code can hold: no tile has it.

    Of the library's functions arrays alone are looked at, which are whole; of users', all that they hold together.
    """
    for table in scope.superstep.tables:
        compute = table.codelet.compute
        held = closure_of(compute)
        if is_library(compute):
            held = {name: value for name, value in held.items() if isinstance(value, np.ndarray)}
        seen: set[int] = set()
        sizes = {name: size_of(value, seen) for name, value in held.items()}
        if sum(sizes.values()) > MOST_CONSTANT_BYTES:
            name = max(sizes, key=lambda each: sizes[each])
            others = len([size for size in sizes.values() if size]) - 1
            text = (
                f"reads '{name}', {show_bytes(sizes[name])} that lie on no tile"
                f"{f', beside {others} more' if others else ''}: make it a variable "
                "(Kernel.constant) and a field of the codelet"
            )
            yield scope.problem(ON_A_TILE, text, table)


def check_operands(scope: Scope) -> Iterator[Problem]:
    """Fields whose operand is not a variable."""
    for table in scope.superstep.tables:
        for item in table.codelet.fields:
            name = table.operands[item.name]
            if name not in scope.program.variables:
                text = f"reads '{name}' through field '{item.name}', {NO_VARIABLE}{near(name, scope.program.variables)}"
                yield scope.problem("variable exists", text, table)


def check_shapes(scope: Scope) -> Iterator[Problem]:
    """Fields whose box has not the axes of its variable, and timesteps taken of a variable that is spread over tiles by
    timesteps: its tile would change with time."""
    for access in scope.accesses:
        try:
            access.mapping  # noqa: B018
            (access if access.is_small else access.on(access.table.some(slice(0)))).boxes  # noqa: B018
        except (MappingError, ValueError) as mismatch:
            yield scope.problem(BOX_FITS, f"cannot be placed: {mismatch}", access.table)


def check_entries(scope: Scope) -> Iterator[Problem]:
    """Timesteps of fields and copies that do not exist, or are taken outside a repeat."""
    variables = scope.program.variables
    for copy in scope.superstep.copies:
        for name, shift, writes in ((copy.source, copy.source_shift, False), (copy.target, copy.target_shift, True)):
            if shift is not None and (text := _entry_problem(variables[name], shift, scope.stretch, writes=writes)):
                yield scope.problem(IN_REPEAT, f"a copy {text}")
    for access in scope.accesses:
        shift, writes = access.shift, access.field.writes
        if shift is not None and (text := _entry_problem(access.variable, shift, scope.stretch, writes=writes)):
            yield scope.problem(IN_REPEAT, text, access.table)


def _entry_problem(variable: Variable, shift: int, stretch: Stretch, *, writes: bool) -> str:
    """What is wrong with taking "@t" and a shift of a variable in a stretch, or ''.

    Reading before the first timestep is legal and gives zero; no such entry exists to be written, nor does one before
    the first segment.
    """
    name, held = f"'{variable.name}'", variable.shape[0] if variable.shape else 0
    if not stretch.repeats and held != 1:
        return f"takes the timestep of {name} outside a repeat; it has {held}; put the superstep into a Repeat"
    least, most = entries_taken(variable, shift, stretch.timesteps)
    if most >= held:
        last = f"the last is {held - 1}" if held else "it has none"
        return f"takes entry {most} of {name} within its repeat, {last}; let it run less often or give {name} more"
    if least < 0 and (writes or variable.entries != "timesteps"):
        verb = "writes" if writes else "reads"
        return f"{verb} entry {least} of {name}, which has none before 0; take '@t' without that shift, or later"
    return ""


def check_boxes(scope: Scope) -> Iterator[Problem]:
    """The first vertex of each field whose box is not inside the variable."""
    for access in scope.accesses:
        outside = (outside_boxes(scope, access, bounds_of(part.boxes), rows) for part, rows in access.parts())
        yield from next(filter(None, outside), [])


def outside_boxes(scope: Scope, access: Access, bounds: np.ndarray, rows: np.ndarray) -> list[Problem]:
    """The first of the boxes (given as bounds, those of the vertices `rows`) that is not inside the variable."""
    shape = np.array(access.shape, np.int64)
    first = int(numerics.first_outside(bounds, shape))
    if first < 0:
        return []
    text = f"touches {describe_box(access.variable.name, bounds[:, :, first])}, "
    turned = np.flatnonzero(bounds[:, 0, first] > bounds[:, 1, first])
    if len(turned):
        text += f"whose start lies beyond its stop on axis {int(turned[0])}; a box runs from start up to stop"
    else:
        text += f"outside the variable's shape {shape.tolist()}"
    return [scope.problem("box inside variable", text, access.table, int(rows[first]))]


# ---- rule 10: extents that costs name exist, and those that recorded spikes determine count what the vertex reads


EXTENTS_FOLLOW = "extents follow"
ANY_CONTEXTS, ANY_VECTOR_BYTES = 6, 8  # formulas are called to learn names, not cycles


def check_extents(scope: Scope) -> Iterator[Problem]:
    """Extents that costs name but nothing gives, and recorded ones of spikes that the vertex does not read.

    Expects boxes that fit their variables.
    """
    for table in scope.superstep.tables:
        for text in _extent_problems(scope.program, table):
            yield scope.problem(EXTENTS_FOLLOW, text, table)


def _extent_problems(program: Program, table: VertexTable) -> list[str]:
    codelet = table.codelet
    derived = {name for name, extent in codelet.extents.items() if isinstance(extent, Derived)}
    known = derived | set(table.extents)
    named = extents_named(table)
    if isinstance(codelet.cost, TileFormula):
        lacking, unfit = _call_formula(program, table)
        if unfit:
            return [f"has no cost: {unfit}"]
        named |= lacking
    elif codelet.count is not None:
        named = set()
    texts = [
        f"has a cost that needs the extent '{name}', which neither its codelet declares nor its table gives"
        f"{near(name, known)}"
        for name in sorted(named - known)
    ]
    for name, extent in table.extents.items():
        declared = codelet.extents.get(name)
        text = _count_problem(table, extent, declared) if isinstance(declared, Lists) else ""
        if not text and isinstance(extent, RECORDED):
            text = provenance_of(program).contradiction(table, extent)
            text = f"spikes of {text}" if text else ""
        texts += [f"counts in its extent '{name}' {text}"] if text else []
    return texts


class _RequiredExtents(dict[str, Any]):
    def __missing__(self, name: str) -> Any:
        raise LackingExtent(name)


def _call_formula(program: Program, table: VertexTable) -> tuple[set[str], str]:
    """(the first missing extent that a formula needs, what else is wrong with it); nothing for an empty table."""
    if not table.vertices:
        return set(), ""
    every = extents_of(program, table).items()
    columns = {name: each[:1] for name, each in every if isinstance(each, np.ndarray)}
    try:
        formula_cycles(table.codelet, _RequiredExtents(columns), ANY_CONTEXTS, ANY_VECTOR_BYTES, 1)
    except LackingExtent as name:
        return {str(name)}, ""
    except MappingError as unfit:
        return set(), str(unfit)
    return set(), ""


def _count_problem(table: VertexTable, extent: np.ndarray | Recorded, declared: Lists) -> str:
    """How a table's counting differs from its codelet's declaration, or ''."""
    if not isinstance(extent, declared.kind):
        given = "a column" if isinstance(extent, np.ndarray) else type(extent).__name__
        return f"{given}, where its codelet counts {declared.kind.__name__}"
    if not isinstance(extent, Hits):
        return ""
    meant = set(declared.which)
    if declared.by:
        if declared.by not in table.columns:
            return f"hits, which its codelet tells apart by the column '{declared.by}'; the table has none"
        each = dict(enumerate(declared.which))
        meant = {each.get(place, f"row {place}") for place in np.unique(table.columns[declared.by]).tolist()}
    if {extent.which} == meant:
        return ""
    return f"hits of which '{extent.which}', where its codelet counts {' and '.join(sorted(meant))}"
