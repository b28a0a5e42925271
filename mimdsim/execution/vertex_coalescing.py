"""Vertices with adjoining slices as one wide vertex, where their codelet works element by element along the slices."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from mimdsim.numerics.dense.rows import Kept
from mimdsim.numerics.fused.wide import WIDE, lif_update
from mimdsim.program import VertexTable

HEAVY = (lif_update,)  # worth more than what it takes to wake a thread


def wide_of(compute: Callable[..., None]) -> Callable[..., None]:
    """What stands in for a function on wide slices, if anything does."""
    if isinstance(compute, Kept):
        return replace(compute, compute=wide_of(compute.compute))
    return WIDE.get(compute, compute)


def widened(table: VertexTable) -> tuple[Callable[..., None], list[np.ndarray]]:
    """What computes the table, and its columns with adjoining vertices joined; the same bits as vertex by vertex."""
    codelet = table.codelet
    columns = {name: table.column(name) for name in codelet.columns}
    compute = wide_of(codelet.compute)
    if codelet.along is None or codelet.count is not None:  # what is counted is told vertex by vertex
        return compute, list(columns.values())
    start, stop = codelet.along
    if start == stop:  # a column of single indices; only a kernel of its own takes ranges
        if compute is codelet.compute:
            return compute, list(columns.values())
        single = columns.pop(start)
        columns |= {"start": single, "stop": single + 1}
        start, stop = "start", "stop"
    return compute, _joined(columns, start, stop)


def _joined(columns: dict[str, np.ndarray], start: str, stop: str) -> list[np.ndarray]:
    """Rows that agree but for [start, stop) and follow one another, as one."""
    if not len(columns[start]):
        return list(columns.values())
    others = [column for name, column in columns.items() if name not in (start, stop)]
    order = np.lexsort((columns[start], *reversed(others)))
    begins = np.ones(len(order), bool)
    begins[1:] = columns[start][order][1:] != columns[stop][order][:-1]
    for column in others:
        begins[1:] |= column[order][1:] != column[order][:-1]
    first = np.flatnonzero(begins)
    last = np.append(first[1:], len(order)) - 1
    return [np.ascontiguousarray(column[order][last if name == stop else first]) for name, column in columns.items()]
