"""Whether the cost of a vertex covers what it was seen to do: bytes that it must load and store take bundles.

A bound from below, which finds costs without loops and loops that never turn: no bundle loads more than two vectors and
stores one (`ld2xst64pace` of the vendor's instruction set, whose vectors have 8 bytes; other machines have wider ones).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from mimdsim.machine import MimdMachine
from mimdsim.program import Program, Term, TileFormula, VertexTable, extents_of
from mimdsim.program.codelet import formula_cycles
from mimdsim.program.loops import RECORDED
from mimdsim.program.records import vertex_name

CONTEXTS, VECTOR_BYTES = 6, 8  # that the formulas of the library were made for; the narrowest that costs are held to
MANY_TURNS = 1 << 20  # of loops whose turns are not known
UNIT_DEPTH = 4  # products deep is a unit of the matrix unit (PopLibs getWeightsPerConvUnit)


def declared_bundles(
    program: Program, table: VertexTable, counted: Mapping[str, object] | None = None
) -> np.ndarray | None:
    """float64[vertices]: what a table's cost declares, tile cycles for library vertices; None where data decides.

    counted: the turns that its codelet has counted itself, by name.
    """
    extents = {**extents_of(program, table), **(counted or {})}
    cost = table.codelet.cost
    if isinstance(cost, TileFormula):
        columns = {name: np.asarray(each) for name, each in extents.items() if not isinstance(each, RECORDED)}
        cycles = formula_cycles(table.codelet, columns, CONTEXTS, VECTOR_BYTES, table.vertices)
        return np.broadcast_to(cycles, (table.vertices,))
    if any(isinstance(extents[name], RECORDED) for term in cost.terms for name in term.extents):
        return None
    return _total(cost.fixed, cost.terms, extents, table.vertices)


def cost_shortfall(declared: float, loaded: int, stored: int, vector_bytes: int) -> str:
    """What is wrong with a cost of `declared` bundles for a vertex that loads and stores so many bytes, or ''."""
    vector = max(vector_bytes, VECTOR_BYTES)
    least = max(-(-loaded // (2 * vector)), -(-stored // vector))
    if declared >= least:
        return ""
    return (
        f"loads {loaded:,} and stores {stored:,} bytes for a cost of {declared:,.0f} bundles; these alone take "
        f"{least:,} ({2 * vector} bytes loaded and {vector} stored in a bundle at most): correct its cost or its "
        "extents"
    )


def excess_flops(program: Program, machine: MimdMachine) -> str:
    """The first vertex with more floating-point operations declared than its cost could issue, in words, or ''.

    A bundle of a worker multiplies and adds one vector; a library vertex may use the matrix unit too. Loops whose turns
    data decides count as many turns.
    """
    for superstep, _, _ in program.supersteps():
        for table in superstep.tables:
            codelet = table.codelet
            if not codelet.flops or not table.vertices:
                continue
            extents = extents_of(program, table)
            many = {
                name: np.full(table.vertices, MANY_TURNS)
                for name, each in extents.items()
                if isinstance(each, RECORDED)
            }
            flops = _total(0.0, codelet.flops, {**extents, **many}, table.vertices)
            cost = declared_bundles(program, table, many)
            assert cost is not None
            most = _flops_at_once(program, table, machine)
            over = flops > most * cost
            if over.any():
                vertex = int(np.argmax(over))
                what = "cycles" if isinstance(codelet.cost, TileFormula) else "bundles"
                return (
                    f"superstep '{superstep.name}': {vertex_name(table, vertex)} declares {flops[vertex]:,.0f} "
                    f"floating-point operations for a cost of {cost[vertex]:,.0f} {what}; at most {most:,.0f} "
                    f"are issued in one on {machine.name}: correct its flops, its cost or its extents"
                )
    return ""


def _total(fixed: float, terms: Sequence[Term], extents: Mapping[str, object], vertices: int) -> np.ndarray:
    """float64[vertices]: fixed, and what the terms add."""
    total = np.full(vertices, float(fixed))
    for term in terms:
        total += term.bundles * term.turns(extents)
    return total


def _flops_at_once(program: Program, table: VertexTable, machine: MimdMachine) -> float:
    """Of a bundle of a worker: a multiplication and an addition of a vector of the smallest floats among its fields; of
    a cycle of a library vertex: of the matrix unit, four deep, if the machine has one that does more."""
    held = [program.variables[name] for name in table.operands.values()]
    item = min((each.item_bytes for each in held if each.dtype.startswith("f")), default=4)
    vector = 2.0 * max(machine.tile.vector_bytes, VECTOR_BYTES) / item
    if machine.matrix is None or not isinstance(table.codelet.cost, TileFormula):
        return vector
    kind, matrix = ("f16" if item == 2 else "f32"), machine.matrix
    units = max(matrix.units(kind, sums) for sums in ("f16", "f32"))
    return max(vector, 2.0 * units * matrix.channels(kind) / UNIT_DEPTH)
