"""Whether the cost of a vertex covers what it was seen to do: bytes that it must load and store take bundles.

A bound from below, which finds costs without loops and loops that never turn: no bundle of such a tile loads more than
two vectors of 8 bytes and stores one (`ld2xst64pace` of the vendor's instruction set).
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from mimdsim.program import Program, TileFormula, VertexTable, extents_of
from mimdsim.program.extents import RECORDED

LOADED, STORED = 16, 8  # bytes a bundle at most
CONTEXTS, VECTOR_BYTES = 6, 8  # that the formulas of the library were made for


def declared_bundles(
    program: Program, table: VertexTable, counted: Mapping[str, object] | None = None
) -> np.ndarray | None:
    """float64[vertices]: what a table's cost declares, tile cycles for library vertices; None where data decides.

    counted: the turns that its codelet has counted itself, by name.
    """
    extents = extents_of(program, table)
    cost = table.codelet.cost
    if isinstance(cost, TileFormula):
        columns = {name: each for name, each in extents.items() if isinstance(each, np.ndarray)}
        cycles = np.asarray(cost.cycles(columns, CONTEXTS, VECTOR_BYTES), np.float64)
        return np.broadcast_to(cycles, (table.vertices,))
    bundles = np.full(table.vertices, float(cost.fixed))
    for term in cost.terms:
        turns = np.ones(table.vertices)
        for name in term.extents:
            extent = (counted or {}).get(name, extents[name])
            if isinstance(extent, RECORDED):
                return None
            turns = turns * np.asarray(extent, np.float64)
        bundles += term.bundles * turns
    return bundles


def uncovered(declared: float, loaded: int, stored: int) -> str:
    """What is wrong with a cost of `declared` bundles for a vertex that loads and stores so many bytes, or ''."""
    least = max(-(-loaded // LOADED), -(-stored // STORED))
    if declared >= least:
        return ""
    return (
        f"loads {loaded:,} and stores {stored:,} bytes for a cost of {declared:,.0f} bundles; these alone take "
        f"{least:,} ({LOADED} bytes loaded and {STORED} stored in a bundle at most): correct its cost or its extents"
    )
