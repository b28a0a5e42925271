"""Input gradients, their sums over the tiles of a group and over groups, in one pass with the same bits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from mimdsim.functional.calls import Call
from mimdsim.functional.lists import Padded
from mimdsim.functional.shares import aligned, flat_turns
from mimdsim.functional.shortcuts import Instead, Memory, Substitute, undisturbed, uses_of
from mimdsim.functional.uses import Uses
from mimdsim.numerics.fused import gradients as kernels
from mimdsim.numerics.fused.nested import EIGHT, MOST_DEALT, pieces_of
from mimdsim.numerics.fused.vectors import WIDTH
from mimdsim.numerics.lists import spikes
from mimdsim.program import Shortcut

MOST_PADDING = 3.0  # numbers of a spread row per neuron; beyond, tiles one after another are as fast
SHORT_ROW = 2 * WIDTH  # numbers of a spread row that take less than calls of tables in every turn
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
        empty = np.ascontiguousarray(np.argwhere(source_of < 0))  # or kernels are compiled for either layout
        taken = np.maximum(source_of, 0).astype(np.uint32)  # unsigned: not looked at for numbers from the end
        return cls(taken=taken, empty=empty, ends=ends, form=(pieces, numbers))

    def order(self, taken: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """For kernels that take numbers from places of their own: (these, what is empty, bool[blocks]: where they
        follow one another, part after part, and are dealt as vectors)."""
        pieces, numbers = self.form
        following = np.arange(taken.shape[1]).reshape(pieces, EIGHT, numbers).swapaxes(1, 2).reshape(-1)
        adjoining = (taken == taken[:, :1] + following).all(axis=1) & (numbers <= MOST_DEALT)
        adjoining[self.empty[:, 0]] = False
        return taken, self.empty, adjoining


def take_input_gradient(uses: Uses, memory: Memory, shortcut: Shortcut, instead: Instead) -> None:
    """Weights spread by parts before the repeat; then, in every turn, everything at the place of the last table."""
    known = uses_of(uses, shortcut, COMPUTES)
    first, *sums, last = shortcut.tables
    if known is None or not undisturbed(uses, known) or uses.written_in(first.operands["w"], known[0].repeat):
        return
    w, q, ids, counts = (first.operands[name] for name in ("w", "q", "ids", "counts"))
    spread = Spread.of(*(shortcut.numbers[name] for name in ("starts", "stops", "group")))
    if spread.taken.size > max(SHORT_ROW, MOST_PADDING * uses.program.variables[w].shape[1]):
        return
    made = InputGradient(memory, spread, (w, q, ids, counts), last.operands["g"])
    reads, writes = frozenset((w, q, ids, counts)), frozenset(made.writes)
    instead.tables |= {id(table): None for table in (first, *sums)}
    instead.tables[id(last)] = Substitute(call=made.call, reads=reads, writes=writes, heavy=made)
    instead.followers[id(first)] = made
    instead.before.setdefault(id(known[0].repeat), []).append(made.spread_weights)


class InputGradient:
    """The input gradient of one turn or of several; or strip by strip, where gradients of the currents come so."""

    at_once = False

    def __init__(self, memory: Memory, spread: Spread, names: tuple[str, ...], writes: str):
        self._memory, self._spread = memory, spread
        self._w, *read = names
        self.reads: tuple[str, ...] = tuple(read)
        self.writes: tuple[str, ...] = (writes,)
        self.lists: tuple[str, str] = read[1], read[2]
        blocks, width = spread.taken.shape
        self._weights = aligned((blocks, len(memory.arrays[self._w]), width))
        self._rows, self._sums, self._begins = np.zeros(0, np.int64), aligned((0,)), np.zeros(1, np.int64)
        self._order = spread.order(spread.taken)
        self._followed: tuple[Padded, np.ndarray, Any] | None = None  # lists, strips, order of what is in these
        lowest, highest = (made(spread.taken // WIDTH, axis=1) for made in (np.min, np.max))
        # by block: the strip with which it can be summed, after the blocks before
        self._complete = np.maximum.accumulate(highest)
        self.span = int((self._complete - lowest).max()) + 1

    def before(self, _t: int) -> None:
        """Weights are spread before the repeat, for single turns too."""

    def spread_weights(self, _t: int) -> None:
        matrix, (_, numbers), compute = self._memory.arrays[self._w], self._spread.form, kernels.spread
        given = matrix, self._order, numbers, self._weights
        self._memory.share(len(self._weights), lambda first, last: compute(*given, first, last))

    @property
    def call(self) -> Call:
        """Of one turn."""
        names = *self.writes, *self.reads
        return Call(run=lambda _t, *arrays: self._make(*(each[None] for each in arrays)), names=names)

    def __call__(self, read: dict[str, np.ndarray], made: dict[str, np.ndarray]) -> None:
        (name,) = self.writes
        if self._followed is None:
            self._make(made[name], *(read[each] for each in self.reads))
        else:
            self._end(made[name], self._followed[0])
            self._followed = None
        self._memory.arrays[name][...] = made[name][-1]

    def _make(self, g: np.ndarray, q: np.ndarray, ids: np.ndarray, counts: np.ndarray) -> None:
        lists = Padded.of(ids, counts, len(g))
        self._begin(lists)
        self._add((0, len(self._weights)), q.reshape(-1), q.shape[2], self._order)
        self._end(g, lists)

    def begin(self, lists: Padded, strips: np.ndarray) -> None:
        self._begin(lists)
        strip, lane = np.divmod(self._spread.taken, np.uint32(WIDTH))
        places = (strip % len(strips) * strips[0].size + lane).astype(np.uint32)
        self._followed = lists, strips.reshape(-1), self._spread.order(places)

    def take(self, first: int, last: int) -> None:
        """Blocks that are complete with strips first..last-1."""
        assert self._followed is not None
        _, strips, order = self._followed
        blocks = np.searchsorted(self._complete, (first, last))
        self._add((int(blocks[0]), int(blocks[1])), strips, WIDTH, order)

    def _begin(self, lists: Padded) -> None:
        """Room for the sums of everything listed."""
        width, given = self._weights.shape[2], lists.arrays
        self._begins = np.zeros(len(lists.listed) + 1, np.int64)
        listed = kernels.in_eights(given, width, self._begins, self._rows[:0])
        if len(self._rows) < listed + EIGHT:  # twice as much, so that it seldom grows
            self._rows = np.zeros(2 * (listed + EIGHT), np.int64)
            self._sums = aligned((2 * len(self._rows),))
        kernels.in_eights(given, width, self._begins, self._rows)
        self._sums[: 2 * listed] = 0

    def _add(self, blocks: tuple[int, int], q: np.ndarray, each: int, order: Any) -> None:
        spread, compute = self._spread, _input_gradient
        given = blocks, self._sums, self._weights, q, each, order, self._rows, self._begins, spread.ends
        self._memory.share(len(self._begins) - 1, lambda first, last: compute(*given, spread.form, first, last))

    def _end(self, g: np.ndarray, lists: Padded) -> None:
        kernels.listed_gradients(flat_turns(g), self._sums, lists.listed, self._begins, 0, len(lists.listed))


_input_gradient: Any = kernels.input_gradient
