"""Vertices with adjoining slices as one wide vertex, where their codelet works element by element along the slices."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from mimdsim.functional.shares import Shares, aligned, streams
from mimdsim.numerics.arrays.rows import Kept
from mimdsim.numerics.fused.vectors import WIDTH
from mimdsim.numerics.fused.whole_tensors import into_blocks
from mimdsim.numerics.fused.wide import WIDE, lif_update, lif_update_turns
from mimdsim.program import VertexTable
from mimdsim.program.codelet import now_shift

HEAVY = (lif_update,)  # worth more than what it takes to wake a thread
TURNS = {lif_update: lif_update_turns}  # what makes many turns at once: state, weights, what changes by the turn


@dataclass(kw_only=True, eq=False)
class OverTurns:
    """A wide table for many turns at once; its weights lie in blocks of neighbours meanwhile."""

    compute: Any
    state: np.ndarray
    weights: np.ndarray
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    columns: list[np.ndarray]
    constants: list[Any]
    share: Shares
    blocks: np.ndarray = field(default_factory=lambda: aligned((0, 0, WIDTH)))

    def before(self, _t: int) -> None:
        """What does not change from turn to turn."""
        if not len(self.blocks):
            inputs, neurons = self.weights.shape
            self.blocks = aligned((-(-neurons // WIDTH), inputs, WIDTH))
        into_blocks(self.weights, self.blocks)

    def __call__(self, read: dict[str, np.ndarray], made: dict[str, np.ndarray]) -> None:
        (name,) = self.writes
        given = (
            self.state,
            self.blocks,
            *(read[each] for each in self.reads),
            made[name],
            streams(made[name]),
            *self.columns,
            *self.constants,
        )
        self.share(len(self.blocks), lambda first, last: self.compute(*given, first, last))


def over_turns(table: VertexTable, arrays: dict[str, np.ndarray], share: Shares) -> OverTurns | None:
    """The table for many turns at once, where there is a kernel for it."""
    codelet = table.codelet
    compute, columns = widened(table)
    if compute not in TURNS or any(now_shift(item.box[0]) is not None for item in codelet.fields):
        return None
    state, weights, *reads = (table.operands[item.name] for item in codelet.fields)
    return OverTurns(
        compute=TURNS[compute],
        state=arrays[state],
        weights=arrays[weights],
        reads=tuple(reads),
        writes=(state,),
        columns=columns,
        constants=[table.constants[name] for name in codelet.constants],
        share=share,
    )


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
