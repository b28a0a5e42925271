"""Input gradients, their sums over the tiles of a group and over groups, in one pass with the same bits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from mimdsim.functional.calls import Call
from mimdsim.functional.shares import aligned, flat_turns
from mimdsim.functional.shortcuts import Instead, Memory, undisturbed, uses_of
from mimdsim.functional.strips import Strips
from mimdsim.functional.uses import Uses
from mimdsim.numerics.fused import gradients as kernels
from mimdsim.numerics.fused.nested import EIGHT, pieces_of
from mimdsim.numerics.fused.vectors import WIDTH
from mimdsim.numerics.lists import spikes
from mimdsim.program import Shortcut

MOST_PADDING = 3.0  # numbers of a spread row per neuron; beyond, tiles one after another are as fast
COMPUTES = (spikes.input_gradient, spikes.reduce_parts, spikes.reduce_groups)


@dataclass(frozen=True, kw_only=True, eq=False)
class Spread:
    """Neurons as [blocks, pieces, numbers of a part, EIGHT parts], which lets parts be summed side by side.

    taken uint32[blocks, the rest]: the neuron of every place; empty int64[places without, 2]: block and place in it,
    ascending. ends uint8[blocks * pieces]: bits say after which parts a group ends. form: pieces of a block, and
    numbers of a part.
    """

    taken: np.ndarray
    empty: np.ndarray
    ends: np.ndarray
    form: tuple[int, int]

    @classmethod
    def of(cls, starts: np.ndarray, stops: np.ndarray, group: np.ndarray) -> Spread:
        """Of parts of neurons, in groups."""
        numbers = int((stops - starts).max())
        pieces = pieces_of(numbers)
        blocks = -(-len(starts) // (pieces * EIGHT))
        part = np.repeat(np.arange(len(starts)), stops - starts)
        number = np.arange(len(part)) - (starts - starts[0])[part]
        source_of = np.full((blocks, pieces * numbers * EIGHT), -1)
        source_of.reshape(-1)[(part // EIGHT * numbers + number) * EIGHT + part % EIGHT] = starts[part] + number
        closing = np.zeros(blocks * pieces * EIGHT, bool)
        closing[: len(group)] = np.append(group[1:] != group[:-1], True)
        ends = np.packbits(closing.reshape(-1, EIGHT), axis=1, bitorder="little")[:, 0]
        empty = np.argwhere(source_of < 0)
        taken = np.maximum(source_of, 0).astype(np.uint32)  # unsigned: not looked at for numbers from the end
        return cls(taken=taken, empty=empty, ends=ends, form=(pieces, numbers))


def take_input_gradient(uses: Uses, memory: Memory, shortcut: Shortcut, instead: Instead) -> None:
    """Weights spread by parts before the repeat; then, in every turn, everything at the place of the last table."""
    known = uses_of(uses, shortcut, COMPUTES)
    first, *sums, last = shortcut.tables
    if known is None or not undisturbed(uses, known) or uses.written_in(first.operands["w"], known[0].repeat):
        return
    w, q, ids, counts = (first.operands[name] for name in ("w", "q", "ids", "counts"))
    spread = Spread.of(*(shortcut.numbers[name] for name in ("starts", "stops", "group")))
    if spread.taken.size > MOST_PADDING * uses.program.variables[w].shape[1]:
        return
    made = _InputGradient(memory, spread, (w, q, ids, counts), last.operands["g"])
    instead.calls |= {id(table): None for table in (first, *sums)} | {id(last): made.call}
    instead.uses[id(last)] = frozenset((w, q, ids, counts)), frozenset(made.writes)
    instead.heavy[id(last)] = made
    instead.from_strips[id(first)] = made.read_strips
    instead.before.setdefault(id(known[0].repeat), []).append(made.spread_weights)


class _InputGradient:
    """The input gradient of one turn or of several."""

    def __init__(self, memory: Memory, spread: Spread, names: tuple[str, ...], writes: str):
        self._memory, self._spread = memory, spread
        self._w, *read = names
        self.reads: tuple[str, ...] = tuple(read)
        self.writes: tuple[str, ...] = (writes,)
        blocks, width = spread.taken.shape
        self._taken, self._each = spread.taken, memory.arrays[read[0]].shape[1]
        self._strips: Strips | None = None
        self._weights = aligned((blocks, len(memory.arrays[self._w]), width))
        self._rows, self._sums = np.zeros(0, np.int64), aligned((0,))

    def before(self, _t: int) -> None:
        """Weights are spread before the repeat, for single turns too."""

    def spread_weights(self, _t: int) -> None:
        kernels.spread(self._memory.arrays[self._w], self._spread.taken, self._spread.empty, self._weights)

    def read_strips(self, strips: Strips) -> None:
        """From now on q is in strips."""
        self._taken, self._each, self._strips = strips.places(self._spread.taken), WIDTH, strips

    @property
    def call(self) -> Call:
        """Of one turn."""
        return Call(run=self._turn, names=(*self.writes, *self.reads))

    def _turn(self, t: int, g: np.ndarray, q: np.ndarray, ids: np.ndarray, counts: np.ndarray) -> None:
        self._make(g, q.reshape(-1) if self._strips is None else self._strips.begin(t), ids, counts)

    def __call__(self, read: dict[str, np.ndarray], made: dict[str, np.ndarray]) -> None:
        q, ids, counts = (read[name] for name in self.reads)
        (name,) = self.writes
        self._make(flat_turns(made[name]), q.reshape(-1), flat_turns(ids), flat_turns(counts))
        self._memory.arrays[name][...] = made[name][-1]

    def _make(self, g: np.ndarray, q: np.ndarray, ids: np.ndarray, counts: np.ndarray) -> None:
        """Of samples, or of samples in several turns; the adjoints of each begin in q after those before."""
        starts, spread = np.zeros(len(counts) + 1, np.int64), self._spread
        width = self._weights.shape[2]
        listed = kernels.in_eights(ids, counts, width, starts, self._rows[:0])
        if len(self._rows) < listed + EIGHT:
            self._rows, self._sums = (
                np.zeros(2 * (listed + EIGHT), np.int64),
                aligned((4 * listed,)),
            )  # so that it seldom grows
        kernels.in_eights(ids, counts, width, starts, self._rows)
        adjoints: tuple[Any, ...] = q, self._each, self._taken, spread.empty
        given = g, self._sums, self._weights, *adjoints, self._rows, counts, starts, spread.ends, spread.form
        compute: Any = kernels.input_gradient
        self._memory.share(len(counts), lambda first, last: compute(*given, first, last))
