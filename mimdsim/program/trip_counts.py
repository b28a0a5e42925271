"""How often the loops of a table's vertices run: the codelet's declarations and the table's own extents, checked for
consistency.

`extents_of` works out the numbers; `check_extents` is the rule: every extent that a cost names exists, and one that
recorded spikes determine counts what the vertex reads (`origins`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np

from mimdsim.base.compressed_columns import single, uniform
from mimdsim.base.errors import MappingError, near
from mimdsim.program.codelet import Field, LackingExtent, TileFormula, formula_cycles
from mimdsim.program.loop_extents import RECORDED, Column, Derived, Hits, Length, Lists, Recorded, Turns
from mimdsim.program.program import Program
from mimdsim.program.records import Problem, Superstep, Variable, VertexTable, of_vertex
from mimdsim.program.repeats import Stretch
from mimdsim.program.spike_provenance import origins_of
from mimdsim.program.vertex_boxes import takes_timestep

EXTENTS_FOLLOW = "extents follow"
ANY_CONTEXTS, ANY_VECTOR_BYTES = 6, 8  # formulas are called to learn names, not cycles


def extents_of(program: Program, table: VertexTable) -> dict[str, np.ndarray | Recorded]:
    """int64[vertices] or a recorded extent by name: given by the table, declared by its codelet, or counted as it runs.

    Long columns with one value for all vertices take no memory and are read-only.
    """
    found = dict(table.extents)
    for name, extent in table.codelet.extents.items():
        if isinstance(extent, Derived):
            turns = -(-_count(program.variables, table, extent) // extent.per)
            found[name] = uniform(np.broadcast_to(np.asarray(turns, np.int64), (table.vertices,)))
    if table.codelet.count is not None:
        for name in sorted(_asked(table) - set(found)):
            found[name] = Turns(layer=f"{_place(program, table)}.{name}")
    return found


def stretch_of(program: Program, superstep: Superstep) -> Stretch:
    """The place of a superstep."""
    return next(stretch for stretch in program.stretches() if any(step is superstep for step in stretch.body))


def _asked(table: VertexTable) -> set[str]:
    """Extents that the terms of a table's cost and flops name; formulas do not list names."""
    cost = table.codelet.cost
    terms = table.codelet.flops if isinstance(cost, TileFormula) else (*cost.terms, *table.codelet.flops)
    return {name for term in terms for name in term.extents}


@lru_cache(maxsize=8)
def _places(program: Program) -> dict[int, str]:
    """Unique names, by identity, of tables whose codelet counts turns."""
    found: dict[int, str] = {}
    for number, (superstep, _, _) in enumerate(program.supersteps()):
        for index, table in enumerate(superstep.tables):
            if table.codelet.count is not None:
                if id(table) in found:
                    raise MappingError(
                        f"superstep '{superstep.name}': a table of '{table.codelet.name}', which counts its turns, "
                        "is used in two supersteps; make one for each"
                    )
                found[id(table)] = f"{number} {superstep.name}, table {index}"
    return found


def _place(program: Program, table: VertexTable) -> str:
    return _places(program)[id(table)]


def _count(variables: Mapping[str, Variable], table: VertexTable, extent: Derived) -> Any:
    if isinstance(extent, Column):
        return table.column(extent.name)
    item = table.codelet.field(extent.field)
    variable = variables[table.operands[item.name]]
    if isinstance(extent, Length):
        passed: Any = table.constants[extent.after] if extent.after else 0
        return _length(table, item, variable, extent.axis) - passed
    axes = range(takes_timestep(item), len(item.box))
    return math.prod(_length(table, item, variable, axis) for axis in axes)


def _length(table: VertexTable, item: Field, variable: Variable, axis: int) -> Any:
    """The length of a field's box along an axis: one number, or int64[vertices]."""
    entry = item.box[axis]
    if entry == ":":
        return variable.shape[axis]
    start, _, stop = entry.partition(":")
    return single(uniform(np.subtract(table.columns[stop], table.columns[start], dtype=np.int64))) if stop else 1


def check_extents(program: Program, superstep: Superstep, table: VertexTable) -> list[Problem]:
    """Extents that costs name but nothing gives, and recorded ones of spikes that the vertex does not read.

    Expects boxes that fit their variables.
    """
    codelet = table.codelet
    derived = {name for name, extent in codelet.extents.items() if isinstance(extent, Derived)}
    known = derived | set(table.extents)
    asked = _asked(table)
    if isinstance(codelet.cost, TileFormula):
        lacking, unfit = _tried(program, table)
        if unfit:
            return [of_vertex(EXTENTS_FOLLOW, superstep, table, 0, f"has no cost: {unfit}")]
        asked |= lacking
    elif codelet.count is not None:
        asked = set()
    texts = [
        f"has a cost that needs the extent '{name}', which neither its codelet declares nor its table gives"
        f"{near(name, known)}"
        for name in sorted(asked - known)
    ]
    for name, extent in table.extents.items():
        declared = codelet.extents.get(name)
        text = _otherwise(table, extent, declared) if isinstance(declared, Lists) else ""
        if not text and isinstance(extent, RECORDED):
            text = origins_of(program).disagrees(table, extent)
            text = f"spikes of {text}" if text else ""
        texts += [f"counts in its extent '{name}' {text}"] if text else []
    return [of_vertex(EXTENTS_FOLLOW, superstep, table, 0, text) for text in texts]


class _Asked(dict[str, Any]):
    def __missing__(self, name: str) -> Any:
        raise LackingExtent(name)


def _tried(program: Program, table: VertexTable) -> tuple[set[str], str]:
    """(the first missing extent that a formula needs, what else is wrong with it); nothing for an empty table."""
    if not table.vertices:
        return set(), ""
    every = extents_of(program, table).items()
    columns = {name: each[:1] for name, each in every if isinstance(each, np.ndarray)}
    try:
        formula_cycles(table.codelet, _Asked(columns), ANY_CONTEXTS, ANY_VECTOR_BYTES, 1)
    except LackingExtent as name:
        return {str(name)}, ""
    except MappingError as unfit:
        return set(), str(unfit)
    return set(), ""


def _otherwise(table: VertexTable, extent: np.ndarray | Recorded, declared: Lists) -> str:
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
