"""What changes an adjoint from turn to turn, as lists: enough to make the gradient of the currents anew."""

from __future__ import annotations

from typing import Any

import numpy as np

from mimdsim.functional.passes import Adjoint, Chains, Found, Memory, operand
from mimdsim.functional.uses import Use, Uses
from mimdsim.functional.wide import is_whole, widened
from mimdsim.numerics.fused import adjoints
from mimdsim.numerics.lists import neurons
from mimdsim.program.codelet import now_shift


def replayable(uses: Uses, adjoint: Adjoint) -> Found | None:
    """What adds to the adjoint at listed neurons, where it, the copy and the decay are all that changes the adjoint and
    its copy in the turns of a repeat; else None."""
    (copied, _), (scaled, _), (decayed, _) = adjoint.copied, adjoint.scaled, adjoint.decayed
    dv, q, gain, decay, _ = adjoint.operands
    repeat = copied.repeat
    added = [pair for pair in uses.computed_by(neurons.state_gradient) if operand(pair[1], 0) == dv]
    if repeat is None or repeat.times != copied.timesteps or len(added) != 1:
        return None
    state, table = added[0]
    batch, extent = uses.program.variables[dv].shape
    in_order = state.repeat is repeat and state.place < copied.place
    one_phase = state.superstep.phase == copied.superstep.phase
    writers = {id(one) for one in uses.written_in(dv, repeat)} == {id(state), id(decayed)}
    copies = {id(one) for one in uses.written_in(q, repeat)} == {id(copied), id(scaled)}
    steady = not uses.written_in(gain, repeat) and not uses.written_in(decay, repeat)
    samples = widened(table)[1][table.codelet.columns.index("sample")]
    whole = is_whole(table, extent) and len(samples) == len(np.unique(samples)) == batch
    now = all(now_shift(item.box[0]) is None for item in table.codelet.fields)
    plain = isinstance(adjoint.threshold, np.float32) and uses.program.variables[dv].dtype == "float32"
    return (
        (state, table) if in_order and one_phase and writers and copies and steady and whole and now and plain else None
    )


class AdjointLists:
    """Of every turn of a repeat: what is added to whom, and who is set to zero."""

    def __init__(self, uses: Uses, memory: Memory, adjoint: Adjoint, state: Found):
        use, table = state
        self._memory, self._scaled = memory, adjoint.scaled[0]
        self._instead, self._recorded = (table, adjoint.copied[1]), False
        self._turns, self._reverse = use.timesteps, use.reverse
        self._adjoint, self._state = adjoint.operands, [operand(table, place) for place in range(5)]
        self._constants: tuple[Any, ...] = table.constants["threshold"], table.constants["slope"]
        self._limit = adjoint.threshold
        dv, _, gain, _, _ = self._adjoint
        self._batch, extent = memory.arrays[dv].shape
        places, capacity = self._turns * self._batch, uses.program.variables[self._state[3]].shape[1]
        self._first = np.zeros_like(memory.arrays[dv])
        self._factors = [np.zeros_like(memory.arrays[gain]) for _ in range(2)]
        # reserved; touched as far as spikes go
        self._added, self._values = np.empty(places * capacity, np.int32), np.empty(places * capacity, np.float32)
        self._zeroed = np.empty(places * extent, np.int32)
        self._added_starts, self._zeroed_starts = (np.zeros(places + 1, np.int64) for _ in range(2))

    def serves(self, use: Use) -> bool:
        """Whether the weight gradient `use` finds the scaled copy as this turn made it."""
        same = use.repeat is self._scaled.repeat and use.superstep.phase == self._scaled.superstep.phase
        return same and use.place > self._scaled.place

    def record_in(self, chains: Chains) -> None:
        """Record from now on, however often it is asked for."""
        if self._recorded:
            return
        self._recorded = True
        chains.before.setdefault(id(self._scaled.repeat), []).append(self.begin)
        chains.replaced |= {id(self._instead[0]): self.add, id(self._instead[1]): self.decay}

    def _turn(self, t: int) -> int:
        return self._turns - 1 - t if self._reverse else t

    def begin(self, _t: int) -> None:
        """Before the first turn."""
        dv, _, gain, decay, _ = self._adjoint
        for kept, name in zip((self._first, *self._factors), (dv, gain, decay), strict=True):
            kept[:] = self._memory.arrays[name]

    def add(self, t: int) -> None:
        """In place of the gradient of the state."""
        given = (self._memory.arrays[name] for name in self._state)
        compute: Any = adjoints.state_gradient
        compute(*given, *self._constants, self._turn(t), (self._added_starts, self._added, self._values))

    def decay(self, t: int) -> None:
        """In place of copy, scaling and decay."""
        given = (self._memory.arrays[name] for name in self._adjoint)
        compute: Any = adjoints.scaled_copy_and_decay
        compute(*given, self._limit, self._turn(t), (self._zeroed_starts, self._zeroed))

    def by_strip(self, strips: int) -> tuple[Any, ...]:
        """What `adjoints.replay` wants to know."""
        added = self._sorted(strips, self._added_starts, self._added)
        zeroed = self._sorted(strips, self._zeroed_starts, self._zeroed)
        return self._first, *self._factors, self._turns, added, self._values, zeroed

    def _sorted(self, strips: int, starts: np.ndarray, listed: np.ndarray) -> tuple[np.ndarray, ...]:
        begins = np.empty(strips * self._batch + 2, np.int64)
        where, places = (np.empty(int(starts[-1]), np.int32) for _ in range(2))
        adjoints.sort_by_strip(self._batch, starts, listed, begins, where, places)
        return begins, where, places
