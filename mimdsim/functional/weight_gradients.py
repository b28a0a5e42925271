"""Weight gradients of all timesteps, and their sum over replicas, in one pass at the end with the same bits.

What the gradient of the currents and the lists of spikes were in every timestep is kept until then.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from mimdsim.functional.calls import Call
from mimdsim.functional.lists import Padded
from mimdsim.functional.shares import aligned
from mimdsim.functional.shortcuts import Instead, Memory, Substitute, uses_of
from mimdsim.functional.uses import Use, Uses
from mimdsim.numerics.arrays import dense
from mimdsim.numerics.fused import gradients as kernels
from mimdsim.numerics.fused.vectors import WIDTH
from mimdsim.numerics.lists import spikes
from mimdsim.program import Shortcut

COMPUTES = (
    *(dense.fill_columns, dense.fill_replicas),
    spikes.weight_gradient,
    *(dense.sum_replicas, dense.sum_own_replicas),
)


def take_weight_gradient(uses: Uses, memory: Memory, shortcut: Shortcut, instead: Instead) -> None:
    """In every turn what is added is kept; the sums at the place of the last table."""
    known = uses_of(uses, shortcut, COMPUTES)
    if known is None:
        return
    before, use, *after = known
    filled, table, *sums, last = shortcut.tables
    outside = use.repeat is not None and all(one.repeat is None for one in (before, *after))
    if outside and all(one.place < other.place for one, other in pairwise(known)):
        deferred = _Deferred(uses, memory, shortcut, use)
        recording = deferred.recording
        instead.tables |= {id(one): None for one in (filled, *sums)}
        instead.tables[id(table)] = Substitute(call=recording, reads=frozenset(recording.names))
        instead.tables[id(last)] = Substitute(call=Call(run=deferred.finish))
        used = [one for one in uses.of[deferred.total] if one.place < known[-1].place]
        if deferred.total not in uses.program.inputs.values() and not used:
            instead.followers[id(table)] = deferred


class _Deferred:
    """Lists of spikes and gradients of the currents of all turns of a repeat, until the sum over replicas; or the sums
    strip by strip, where gradients of the currents come so."""

    span = 1  # strips that are read at once

    def __init__(self, uses: Uses, memory: Memory, shortcut: Shortcut, use: Use):
        _, table, *_, summed = shortcut.tables
        variables = uses.program.variables
        self._memory, self._replica = memory, shortcut.numbers["replica"]
        self._copies = int(shortcut.numbers["copies"][0])
        self.recording = Call(run=self._record, names=tuple(table.operands[name] for name in ("q", "ids", "counts")))
        self.lists: tuple[str, str] = table.operands["ids"], table.operands["counts"]
        self.total = summed.operands["total"]
        self._strips: np.ndarray | None = None
        self._replicas, self._inputs, self._neurons = variables[table.operands["dw"]].shape
        self._batch, capacity = len(self._replica), variables[self.lists[0]].shape[1]
        self._turns, self._reverse = use.timesteps, use.reverse
        places = use.timesteps * self._batch
        self._starts = np.zeros(places + 1, np.int64)
        self._listed = np.empty(places * capacity, np.int32)  # reserved; touched only by as many spikes
        self._rows = aligned((-(-self._neurons // WIDTH), places, WIDTH))  # reserved too
        self._sorted = np.zeros(0, np.int64), np.zeros(0, np.int32)

    def _record(self, t: int, q: np.ndarray, ids: np.ndarray, counts: np.ndarray) -> None:
        """In place of adding to the replicas."""
        first = self._batch * (self._turns - 1 - t if self._reverse else t)
        kernels.record_lists(ids, counts, first, self._starts, self._listed)
        kernels.record_rows(q, first, self._rows)

    def finish(self, _t: int) -> None:
        """The sums, in place of adding up replicas."""
        if self._strips is not None:  # all strips were taken
            self._strips = None
            return
        trues = np.diff(self._starts).astype(np.int32)
        self._sort((self._starts[:-1], trues, trues, self._listed))
        self._add(0, len(self._rows), self._rows)

    def begin(self, lists: Padded, strips: np.ndarray) -> None:
        self._sort(lists.arrays)
        self._strips = strips

    def take(self, first: int, last: int) -> None:
        assert self._strips is not None
        self._add(first, last, self._strips)

    def _sort(self, lists: tuple[np.ndarray, ...]) -> None:
        columns = np.empty(self._replicas * self._inputs + 2, np.int64)
        rows = np.empty(int(lists[1].sum()), np.int32)
        kernels.sort_by_replica(self._replica, self._inputs, lists, columns, rows)
        self._sorted = columns, rows

    def _add(self, first: int, last: int, strips: np.ndarray) -> None:
        compute: Any = kernels.summed_weight_gradient
        given = self._memory.arrays[self.total], self._replicas, self._copies, *self._sorted, strips
        self._memory.share(last - first, lambda low, high: compute(*given, first + low, first + high))
