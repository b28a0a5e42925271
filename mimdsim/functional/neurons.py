"""Spiking neurons of a table for many turns at once, a block of neighbours after another, and what they list.

The published neuron (`LifUpdate`) with the selection that follows it, where one pass can make both. What is listed, and
what has fired, is kept with its potential: where an adjoint is made from that alone, nobody reads other potentials.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mimdsim.functional.lists import Entries, Padded
from mimdsim.functional.shares import Shares, aligned, streams
from mimdsim.functional.wide import widened
from mimdsim.numerics.fused import published, whole_linear
from mimdsim.numerics.fused.vectors import WIDTH
from mimdsim.numerics.fused.whole_tensors import into_blocks
from mimdsim.numerics.lists.neurons import lif_update
from mimdsim.program import VertexTable
from mimdsim.program.codelet import now_shift

FEWEST = 1 / 16  # of a layer's neurons, for which there is room at first


@dataclass(frozen=True, kw_only=True, eq=False)
class Chosen:
    """What is listed of a layer: ids and counts, by the thresholds of true spikes and of gradient entries."""

    ids: str
    counts: str
    threshold: np.float32
    second_threshold: np.float32


@dataclass(kw_only=True, eq=False)
class Neurons:
    """All neurons of all samples, in so many turns; chosen: what is listed of them, if they list it themselves.

    kept: whether potentials are written turn by turn; those of what is listed, and of what fired, are in `entries`.
    """

    table: VertexTable
    turns: int
    arrays: dict[str, np.ndarray]
    share: Shares
    chosen: Chosen | None = None
    kept: bool = True
    at_once: bool = False
    reads: tuple[str, ...] = field(init=False)
    writes: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        self._v, self._w, *reads = (self.table.operands[item.name] for item in self.table.codelet.fields)
        self.reads = tuple(reads)
        self.writes = (self._v, *((self.chosen.ids, self.chosen.counts) if self.chosen else ()))
        self._blocks, self._next = aligned((0, 0, WIDTH)), 0
        self.entries = Entries.room(0, self.turns, 0)

    def before(self, _t: int) -> None:
        """What does not change from turn to turn: weights lie in blocks of neighbours meanwhile."""
        self._next = 0
        weights = self.arrays[self._w]
        if not len(self._blocks):
            inputs, neurons = weights.shape
            self._blocks = aligned((-(-neurons // WIDTH), inputs, WIDTH))
            fewest = int(self.turns * len(self.arrays[self._v]) * WIDTH * FEWEST) if self.chosen else 0
            self.entries = Entries.room(len(self._blocks), self.turns, WIDTH + fewest)
        into_blocks(weights, self._blocks)

    def __call__(self, read: dict[str, np.ndarray], made: dict[str, np.ndarray]) -> None:
        ids, counts = (read[name] for name in self.reads)
        state, every = self.arrays[self._v], made[self._v]
        turns = len(every)
        after = np.empty_like(state)
        starts, trues, _, listed = Padded.of(ids, counts, turns).arrays
        constants = tuple(self.table.constants[name] for name in ("decay", "scale", "threshold"))
        chosen, infinite = self.chosen, np.float32(np.inf)
        low = min(chosen.threshold, chosen.second_threshold) if chosen else infinite
        potentials = every if self.kept else every[:0]
        given = self._next, 0, self._blocks, (state, after), (starts, trues, listed), constants, low
        enough: list[bool] = [False]
        while not all(enough):
            enough.clear()
            arrays = *given, self.entries.arrays, potentials, streams(every)

            def blocks(first: int, last: int, arrays: Any = arrays) -> None:
                enough.append(published.forward_blocks(first, last, *arrays))

            self.share(len(self._blocks), blocks)
            if not all(enough):
                self.entries = self.entries.larger(2 * self.entries.places.shape[1])
        state[...] = after
        if chosen:
            self._list(chosen, made[chosen.ids], made[chosen.counts])
        self._next += turns

    def _list(self, chosen: Chosen, ids: np.ndarray, counts: np.ndarray) -> None:
        """Of the turns that were made last."""
        turns, batch, capacity = ids.shape
        first, entries, every = self._next, self.entries.arrays, self.turns * batch
        listed, trues = np.zeros((2, every), np.int32)
        begins = np.zeros((self.turns, batch), np.int64)
        whole_linear.count_listed(first, first + turns, entries, listed, trues)
        np.minimum(listed, capacity, out=listed)
        np.minimum(trues, capacity, out=trues)
        lists = capacity * np.arange(every), trues, listed, ids.reshape(-1), first * batch * capacity

        def timesteps(low: int, high: int) -> None:
            whole_linear.join(first + low, first + high, 1, begins, lists, entries)

        self.share(turns, timesteps)
        own = slice(first * batch, (first + turns) * batch)
        counts[..., 0], counts[..., 1] = (each[own].reshape(turns, batch) for each in (trues, listed))
        for name, made in ((chosen.ids, ids), (chosen.counts, counts)):
            self.arrays[name][...] = made[-1]


def neurons_of(
    table: VertexTable, turns: int, arrays: dict[str, np.ndarray], share: Shares, chosen: Chosen | None
) -> Neurons | None:
    """The neurons of a table of the published neuron that has all of all samples; None for any other."""
    codelet = table.codelet
    if codelet.compute is not lif_update or any(now_shift(item.box[0]) is not None for item in codelet.fields):
        return None
    v = arrays[table.operands["v"]]
    _, columns = widened(table)
    sample, start, stop = columns
    every = np.array_equal(np.sort(sample), np.arange(len(v))) and not start.any() and (stop == v.shape[1]).all()
    if not every or v.dtype != np.float32:
        return None
    return Neurons(table=table, turns=turns, arrays=arrays, share=share, chosen=chosen)
