"""Rule 10: extents that costs name exist, and those that recorded spikes determine count what the vertex reads."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from mimdsim.base.errors import MappingError, near
from mimdsim.program.checks.scope import Scope
from mimdsim.program.checks.spike_provenance import provenance_of
from mimdsim.program.codelet import LackingExtent, TileFormula, formula_cycles
from mimdsim.program.loop_extents import RECORDED, Derived, Hits, Lists, Recorded
from mimdsim.program.program import Program
from mimdsim.program.records import Problem, VertexTable
from mimdsim.program.trip_counts import extents_named, extents_of

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
