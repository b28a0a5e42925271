"""A broken rule of a program, and how messages name vertices."""

from __future__ import annotations

from dataclasses import dataclass

from mimdsim.program.records import Superstep, VertexTable


@dataclass(frozen=True, kw_only=True)
class Problem:
    """A broken rule: which, where, and the vertex's row in its table (-1: not a vertex; empty: no single superstep)."""

    rule: str
    superstep: str
    codelet: str
    vertex: int
    tile: int
    message: str


def vertex_name(table: VertexTable, vertex: int) -> str:
    """`vertex 17 of LifUpdate (hidden0) on tile 5`"""
    return f"vertex {vertex} of {_codelet_name(table)} on tile {int(table.tiles[vertex])}"


def _codelet_name(table: VertexTable) -> str:
    return table.codelet.name + (f" ({table.layer})" if table.layer else "")


def of_vertex(rule: str, superstep: Superstep, table: VertexTable, vertex: int, text: str) -> Problem:
    """What a vertex does wrong, or what the fields of a table without vertices would do wrong."""
    empty = not table.vertices
    who = f"the empty table of {_codelet_name(table)}" if empty else vertex_name(table, vertex)
    return Problem(
        rule=rule,
        superstep=superstep.name,
        codelet=table.codelet.name,
        vertex=-1 if empty else vertex,
        tile=-1 if empty else int(table.tiles[vertex]),
        message=f"superstep '{superstep.name}': {who} {text}",
    )


def at_large(rule: str, text: str, superstep: str = "") -> Problem:
    """A problem not caused by a vertex."""
    return Problem(rule=rule, superstep=superstep, codelet="", vertex=-1, tile=-1, message=text)
