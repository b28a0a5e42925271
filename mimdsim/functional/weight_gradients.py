"""Weight gradients of all timesteps, and their sum over replicas, in one pass at the end with the same bits.

What the gradient of the currents and the lists of spikes were in every timestep is kept until then.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from mimdsim.functional.calls import Call
from mimdsim.functional.shortcuts import Instead, Memory, uses_of
from mimdsim.functional.strips import Strips
from mimdsim.functional.uses import Use, Uses
from mimdsim.numerics.arrays import dense
from mimdsim.numerics.fused import gradients as kernels
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
        instead.calls |= {id(one): None for one in (filled, *sums)}
        instead.calls |= {id(table): deferred.recording, id(last): Call(run=deferred.finish)}
        instead.uses[id(table)] = frozenset(deferred.recording.names), frozenset()
        q = table.operands["q"]
        if q not in instead.strips:  # the second of two would have strips of its own
            instead.strips[q] = deferred.strips

            def only_lists(_strips: Strips) -> None:
                instead.calls[id(table)] = deferred.listing
                instead.uses[id(table)] = frozenset(deferred.listing.names), frozenset()

            instead.from_strips[id(table)] = only_lists


class _Deferred:
    """Lists of spikes and gradients of the currents of all turns of a repeat, until the sum over replicas."""

    def __init__(self, uses: Uses, memory: Memory, shortcut: Shortcut, use: Use):
        _, table, *_, summed = shortcut.tables
        variables = uses.program.variables
        self._memory, self._replica = memory, shortcut.numbers["replica"]
        self._copies = int(shortcut.numbers["copies"][0])
        self._turns = use.timesteps
        names = tuple(table.operands[name] for name in ("q", "ids", "counts"))
        self.recording = Call(run=self._record, names=names)  # in place of adding to the replicas
        self.listing = Call(run=self._list, names=names[1:])  # where q is in strips already
        self._total = summed.operands["total"]
        self._replicas, self._inputs, neurons = variables[table.operands["dw"]].shape
        batch, capacity = len(self._replica), variables[names[1]].shape[1]
        self._starts = np.zeros(use.timesteps * batch + 1, np.int64)
        self._listed = np.empty(use.timesteps * batch * capacity, np.int32)  # reserved; touched only by as many spikes
        self.strips = Strips(batch, neurons, use.timesteps, reverse=use.reverse)

    def _list(self, t: int, ids: np.ndarray, counts: np.ndarray) -> None:
        kernels.record_lists(ids, counts, self.strips.first_row(t), self._starts, self._listed)

    def _record(self, t: int, q: np.ndarray, ids: np.ndarray, counts: np.ndarray) -> None:
        self._list(t, ids, counts)
        kernels.record_rows(q, self.strips.first_row(t), self.strips.rows)

    def finish(self, _t: int) -> None:
        """The sums, in place of adding up replicas."""
        columns = np.empty(self._replicas * self._inputs + 2, np.int64)
        rows = np.empty(int(self._starts[-1]), np.int32)
        kernels.sort_by_replica(self._replica, self._inputs, self._turns, self._starts, self._listed, columns, rows)
        compute: Any = kernels.summed_weight_gradient
        given = self._memory.arrays[self._total], self._replicas, self._copies, columns, rows, self.strips.rows
        self._memory.share(len(self.strips.rows), lambda first, last: compute(*given, first, last))
