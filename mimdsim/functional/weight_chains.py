"""Weight gradients of all timesteps, and their sum over replicas, in one pass at the end with the same bits.

What the gradient of the currents was in every timestep is kept, or, where the adjoint it comes from is a decay and
sparse additions, made anew strip by strip from these: less memory, and the strip stays in cache.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mimdsim.functional.adjoint_lists import AdjointLists, replayable
from mimdsim.functional.passes import Chains, Memory
from mimdsim.functional.shares import aligned
from mimdsim.functional.uses import Use, Uses
from mimdsim.functional.wide import is_whole, widened
from mimdsim.numerics.arrays import dense
from mimdsim.numerics.fused import adjoints
from mimdsim.numerics.fused import chains as kernels
from mimdsim.numerics.fused.vectors import WIDTH
from mimdsim.numerics.lists import spikes
from mimdsim.program import VertexTable


def find_weight_gradients(uses: Uses, memory: Memory, chains: Chains) -> None:
    """Sums over samples, timesteps and replicas in one pass; after `find_adjoints`."""
    changes: dict[str, AdjointLists | None] = {}
    for use, table in uses.computed_by(spikes.weight_gradient):
        dw, q = table.operands["dw"], table.operands["q"]
        fills = [pair for pair in uses.computed_by(dense.fill_columns) if pair[1].operands["target"] == dw]
        sums = [pair for pair in uses.computed_by(dense.sum_replicas) if pair[1].operands["replicas"] == dw]
        if use.repeat is None or len(fills) != 1 or len(sums) != 1 or dw in uses.outside:
            continue
        (fill, filled), (end, summed) = fills[0], sums[0]
        alone = {id(one) for one in (use, fill, end)} == {id(one) for one in uses.of[dw]}
        in_order = fill.repeat is None and end.repeat is None and fill.place < use.place < end.place
        if not alone or not in_order or len({one.superstep.phase for one in (use, fill, end)}) != 1:
            continue
        extent = uses.program.variables[dw].shape[2]
        if not all(is_whole(one, extent) for one in (filled, summed, table)):
            continue
        owner = _replica_of_sample(table, uses.program.variables[q].shape[0])
        if owner is not None:
            if q not in changes:  # one for all weights that the same currents came through
                changes[q] = _adjoint_lists(uses, memory, chains, q)
            lists = changes[q]
            deferred: _Deferred
            if lists is not None and lists.serves(use):
                lists.record_in(chains)
                deferred = _Replayed(uses, memory, (table, summed), use, owner, lists)
            else:
                deferred = _Kept(uses, memory, (table, summed), use, owner)
            chains.replaced |= {id(filled): None, id(table): deferred.record, id(summed): deferred.finish}


def _adjoint_lists(uses: Uses, memory: Memory, chains: Chains, q: str) -> AdjointLists | None:
    """What changes the adjoint that q is a scaled copy of; None where more than lists does."""
    adjoint = chains.adjoints.get(q)
    state = None if adjoint is None else replayable(uses, adjoint)
    return None if adjoint is None or state is None else AdjointLists(uses, memory, adjoint, state)


def _replica_of_sample(table: VertexTable, batch: int) -> np.ndarray | None:
    """Which replica a sample adds to (-1: none); None where a replica has several runs of samples, or samples two."""
    _, joined = widened(table)
    columns = dict(zip(table.codelet.columns, joined, strict=True))
    owner = np.full(batch, -1, np.int64)
    if len(np.unique(columns["replica"])) != len(columns["replica"]):
        return None
    for replica, first, last in zip(columns["replica"], columns["sample_start"], columns["sample_stop"], strict=True):
        if (owner[first:last] >= 0).any():
            return None
        owner[first:last] = replica
    return owner


class _Deferred:
    """The input lists of all turns of a repeat, kept until the sum over replicas."""

    def __init__(
        self, uses: Uses, memory: Memory, tables: tuple[VertexTable, VertexTable], use: Use, owner: np.ndarray
    ):
        table, summed = tables
        variables = uses.program.variables
        self._memory, self._owner, self._turns, self._reverse = memory, owner, use.timesteps, use.reverse
        self._q, self._ids, self._counts = (table.operands[name] for name in ("q", "ids", "counts"))
        self._total = summed.operands["total"]
        self._replicas, self._inputs, self._neurons = variables[table.operands["dw"]].shape
        batch, capacity = len(owner), variables[self._ids].shape[1]
        self._strips = -(-self._neurons // WIDTH)
        self._starts = np.zeros(use.timesteps * batch + 1, np.int64)
        self._listed = np.empty(use.timesteps * batch * capacity, np.int32)  # reserved; touched as far as spikes go

    def _turn(self, t: int) -> int:
        return self._turns - 1 - t if self._reverse else t

    def record(self, t: int) -> None:
        """In place of adding to the replicas."""
        arrays = self._memory.arrays
        kernels.record_lists(arrays[self._ids], arrays[self._counts], self._turn(t), self._starts, self._listed)

    def finish(self, _t: int) -> None:
        """The sums, in place of adding up replicas."""
        columns = np.empty(self._replicas * self._inputs + 2, np.int64)
        rows = np.empty(int(self._starts[-1]), np.int32)
        lists = (self._turns, self._starts, self._listed)
        kernels.sort_by_replica(self._owner, self._inputs, *lists, columns, rows)
        self._sum(self._memory.arrays[self._total], self._replicas, columns, rows)

    def _sum(self, *given: Any) -> None:
        raise NotImplementedError


class _Kept(_Deferred):
    """With the gradient of the currents of every turn."""

    def __init__(
        self, uses: Uses, memory: Memory, tables: tuple[VertexTable, VertexTable], use: Use, owner: np.ndarray
    ):
        super().__init__(uses, memory, tables, use, owner)
        self._history = aligned((self._strips, len(owner) * use.timesteps, WIDTH))

    def record(self, t: int) -> None:
        """As `_Deferred.record`."""
        super().record(t)
        kernels.record_rows(self._memory.arrays[self._q], self._turn(t), self._turns, self._history)

    def _sum(self, *given: Any) -> None:
        sums: Any = kernels.summed_weight_gradient
        self._memory.share(self._strips, lambda first, last: sums(*given, self._history, first, last))


class _Replayed(_Deferred):
    """With what changed the adjoint in every turn."""

    def __init__(
        self,
        uses: Uses,
        memory: Memory,
        tables: tuple[VertexTable, VertexTable],
        use: Use,
        owner: np.ndarray,
        lists: AdjointLists,
    ):
        super().__init__(uses, memory, tables, use, owner)
        self._lists = lists

    def _sum(self, *given: Any) -> None:
        sums: Any = adjoints.summed_weight_gradient
        known = self._lists.by_strip(self._strips)
        self._memory.share(self._strips, lambda first, last: sums(*given, known, first, last))
