"""Spiking neurons of a table for many turns at once, a block of neighbours after another, and what they list.

The published neuron (`LifUpdate`) with the selection that follows it, where one pass can make both. What is listed, and
what has fired, is kept with its potential: where an adjoint is made from that alone, nobody reads other potentials.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from mimdsim.functional.lists import Padded
from mimdsim.functional.shares import Shares, aligned, flat_turns, streams
from mimdsim.functional.wide import widened
from mimdsim.numerics.fused import turns
from mimdsim.numerics.fused.vectors import WIDTH
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


@dataclass(frozen=True, kw_only=True, eq=False)
class Kept:
    """What neurons listed and which of them fired, as `numerics.fused.turns` says."""

    fires: np.ndarray
    above: np.ndarray
    lanes: np.ndarray
    values: np.ndarray
    ends: np.ndarray
    ranks: np.ndarray

    @property
    def of_forward(self) -> tuple[np.ndarray, ...]:
        """What a forward pass keeps, as kernels take it."""
        return self.fires, self.above, self.lanes, self.values, self.ends

    @property
    def arrays(self) -> tuple[np.ndarray, ...]:
        """With the ranks in lists."""
        return *self.of_forward, self.ranks

    @classmethod
    def room(cls, blocks: int, turns: int, batch: int, each: int) -> Kept:
        """Room for so many values of each block."""
        fires, above = np.zeros((2, blocks, turns * batch), np.uint64)
        ranks, ends = np.zeros((2, blocks, turns * batch), np.int32), np.zeros((blocks, turns), np.int64)
        lanes, values = np.empty((blocks, each), np.int32), np.empty((blocks, each), np.float32)
        return cls(fires=fires, above=above, lanes=lanes, values=values, ends=ends, ranks=ranks)

    def larger(self) -> Kept:
        """With twice as much room."""
        lanes, values = (np.concatenate([each, np.empty_like(each)], axis=1) for each in (self.lanes, self.values))
        return replace(self, lanes=lanes, values=values)


@dataclass(kw_only=True, eq=False)
class Neurons:
    """All neurons of all samples, in so many turns; chosen: what is listed of them, if they list it themselves.

    potentials: whether they are written turn by turn; taken: whether those of what is listed are in `spikes`.
    """

    table: VertexTable
    turns: int
    arrays: dict[str, np.ndarray]
    share: Shares
    chosen: Chosen | None = None
    potentials: bool = True
    taken: bool = False
    at_once: bool = False
    reads: tuple[str, ...] = field(init=False)
    writes: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        self._v, self._w, *reads = (self.table.operands[item.name] for item in self.table.codelet.fields)
        self.reads = tuple(reads)
        self.writes = (self._v, *((self.chosen.ids, self.chosen.counts) if self.chosen else ()))
        self._blocks, self._next = -(-self.arrays[self._v].shape[1] // WIDTH), 0
        self._after = np.empty_like(self.arrays[self._v])
        self.spikes = Kept.room(0, self.turns, 0, 0)

    def before(self, _t: int) -> None:
        """The first of the turns comes next."""
        self._next = 0
        if not len(self.spikes.ends):
            batch = len(self._after)
            fewest = WIDTH + int(self.turns * batch * WIDTH * FEWEST) if self.taken else 0
            self.spikes = Kept.room(self._blocks, self.turns, batch, fewest)

    def __call__(self, read: dict[str, np.ndarray], made: dict[str, np.ndarray]) -> None:
        ids, counts = (read[name] for name in self.reads)
        state, every, chosen, none = self.arrays[self._v], made[self._v], self.chosen, np.float32(np.inf)
        starts, trues, _, padded = Padded.of(ids, counts, len(every)).arrays
        begins = np.append(0, np.cumsum(trues, dtype=np.int64))
        listed = np.empty(begins[-1], padded.dtype)  # every block reads them: end to end they stay in cache
        turns.end_to_end(starts, trues, padded, begins, listed)
        constants = tuple(self.table.constants[name] for name in ("decay", "scale", "threshold"))
        limits = (chosen.threshold, min(chosen.threshold, chosen.second_threshold)) if chosen else (none, none)
        given = (state, self._after), (begins, listed), constants, limits
        weights, begin = self.arrays[self._w], self._next
        written = every if self.potentials else every[:0]
        enough: list[bool] = [False]
        while not all(enough):
            enough.clear()
            arrays = *given, self.spikes.of_forward, written, streams(every)

            def blocks(first: int, last: int, arrays: Any = arrays) -> None:
                own = aligned((len(weights), WIDTH))
                enough.append(turns.forward_turns(first, last, begin, weights, own, *arrays))

            self.share(self._blocks, blocks)
            if not all(enough):
                self.spikes = self.spikes.larger()
        state[...] = self._after
        if chosen:
            self._list(chosen, made[chosen.ids], made[chosen.counts])
        self._next += len(every)

    def _list(self, chosen: Chosen, ids: np.ndarray, counts: np.ndarray) -> None:
        """Of the turns that were made last."""
        origin, kept, made = self._next * ids.shape[1], self.spikes, (flat_turns(ids), flat_turns(counts))
        given = kept.fires, kept.above, kept.ranks
        compute: Any = turns.list_turns

        def places(first: int, last: int) -> None:
            compute(origin + first, origin + last, origin, *given, *made)

        self.share(len(made[0]), places)
        for name, each in ((chosen.ids, ids), (chosen.counts, counts)):
            self.arrays[name][...] = each[-1]


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
    if not every or v.dtype != np.float32 or arrays[table.operands["w"]].dtype != np.float32:
        return None
    return Neurons(table=table, turns=turns, arrays=arrays, share=share, chosen=chosen)
