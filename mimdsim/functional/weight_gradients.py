"""Weight gradients of all timesteps, and their sum over replicas, in one pass at the end with the same bits.

What the gradient of the currents and the lists of spikes were in every timestep is kept until then.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from mimdsim.functional.shares import aligned
from mimdsim.functional.shortcuts import Instead, Memory, uses_of
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
        instead.calls |= {id(one): None for one in (filled, *sums)}
        instead.calls |= {id(table): deferred.record, id(last): deferred.finish}
        instead.uses[id(table)] = frozenset(table.operands[name] for name in ("q", "ids", "counts")), frozenset()


class _Deferred:
    """Lists of spikes and gradients of the currents of all turns of a repeat, until the sum over replicas."""

    def __init__(self, uses: Uses, memory: Memory, shortcut: Shortcut, use: Use):
        _, table, *_, summed = shortcut.tables
        variables = uses.program.variables
        self._memory, self._replica = memory, shortcut.numbers["replica"]
        self._copies = int(shortcut.numbers["copies"][0])
        self._turns, self._reverse = use.timesteps, use.reverse
        self._q, self._ids, self._counts = (table.operands[name] for name in ("q", "ids", "counts"))
        self._total = summed.operands["total"]
        self._replicas, self._inputs, neurons = variables[table.operands["dw"]].shape
        batch, capacity = len(self._replica), variables[self._ids].shape[1]
        self._strips = -(-neurons // WIDTH)
        self._starts = np.zeros(use.timesteps * batch + 1, np.int64)
        self._listed = np.empty(use.timesteps * batch * capacity, np.int32)  # reserved; touched only by as many spikes
        self._history = aligned((self._strips, batch * use.timesteps, WIDTH))

    def record(self, t: int) -> None:
        """In place of adding to the replicas."""
        arrays, turn = self._memory.arrays, self._turns - 1 - t if self._reverse else t
        kernels.record_lists(arrays[self._ids], arrays[self._counts], turn, self._starts, self._listed)
        kernels.record_rows(arrays[self._q], turn, self._history)

    def finish(self, _t: int) -> None:
        """The sums, in place of adding up replicas."""
        columns = np.empty(self._replicas * self._inputs + 2, np.int64)
        rows = np.empty(int(self._starts[-1]), np.int32)
        kernels.sort_by_replica(self._replica, self._inputs, self._turns, self._starts, self._listed, columns, rows)
        compute: Any = kernels.summed_weight_gradient
        given = self._memory.arrays[self._total], self._replicas, self._copies, columns, rows, self._history
        self._memory.share(self._strips, lambda first, last: compute(*given, first, last))
