"""How often the loops of a table's vertices run: by the codelet's declarations and the table's own extents."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np

from mimdsim.base.compressed_columns import single, uniform
from mimdsim.base.errors import MappingError
from mimdsim.program.codelet import Field, TileFormula
from mimdsim.program.loop_extents import Column, Derived, Length, Recorded, Turns
from mimdsim.program.program import Program, Stretch
from mimdsim.program.records import Superstep, Variable, VertexTable


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
        for name in sorted(extents_named(table) - set(found)):
            found[name] = Turns(layer=f"{_places(program)[id(table)]}.{name}")
    return found


def stretch_of(program: Program, superstep: Superstep) -> Stretch:
    """The place of a superstep."""
    return next(stretch for stretch in program.stretches() if any(step is superstep for step in stretch.body))


def extents_named(table: VertexTable) -> set[str]:
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


def _count(variables: Mapping[str, Variable], table: VertexTable, extent: Derived) -> Any:
    if isinstance(extent, Column):
        return table.column(extent.name)
    item = table.codelet.field(extent.field)
    variable = variables[table.operands[item.name]]
    if isinstance(extent, Length):
        passed: Any = table.constants[extent.after] if extent.after else 0
        return _length(table, item, variable, extent.axis) - passed
    axes = range(item.shift is not None, len(item.box))
    return math.prod(_length(table, item, variable, axis) for axis in axes)


def _length(table: VertexTable, item: Field, variable: Variable, axis: int) -> Any:
    """The length of a field's box along an axis: one number, or int64[vertices]."""
    entry = item.box[axis]
    if entry == ":":
        return variable.shape[axis]
    start, _, stop = entry.partition(":")
    return single(uniform(np.subtract(table.columns[stop], table.columns[start], dtype=np.int64))) if stop else 1
