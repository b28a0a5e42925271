"""Input gradients, their sums over the tiles of a group and over groups, in one pass with the same bits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from mimdsim.functional.shares import aligned
from mimdsim.functional.shortcuts import Instead, Memory, undisturbed, uses_of
from mimdsim.functional.uses import Uses
from mimdsim.numerics.fused import gradients as kernels
from mimdsim.numerics.fused.vectors import GROUPS, PIECES
from mimdsim.numerics.lists import spikes
from mimdsim.program import Shortcut

MOST_PADDING = 3.0  # lanes of a spread row per neuron; beyond, tiles one after another are as fast
COMPUTES = (spikes.input_gradient, spikes.reduce_parts, spikes.reduce_groups)


@dataclass(frozen=True, kw_only=True, eq=False)
class Grouping:
    """Neurons as [bands of groups, pieces of a band, parts of a piece, numbers of a part, GROUPS], a lane per group.

    source_of [bands * pieces, the rest]: the neuron of every place, -1: none. width: places but for what fills pieces.
    """

    source_of: np.ndarray
    pieces: int
    numbers: int
    groups: int
    width: int

    @classmethod
    def of(cls, starts: np.ndarray, stops: np.ndarray, group: np.ndarray) -> Grouping:
        """Of parts of neurons, in groups."""
        of_group = np.bincount(group)
        first = np.concatenate([[0], np.cumsum(of_group)[:-1]])  # part of each group
        numbers, groups, most = int((stops - starts).max()), len(of_group), int(of_group.max())
        parts, bands = PIECES.get(numbers, 1), -(-groups // GROUPS)  # parts of a piece
        pieces = -(-most // parts)
        owner = np.repeat(np.arange(len(starts)), stops - starts)
        within, number = owner - first[group[owner]], np.arange(int(stops[-1])) - starts[owner]
        part = group[owner] // GROUPS * pieces * parts + within
        source_of = np.full((bands * pieces, parts * numbers * GROUPS), -1)
        source_of.reshape(-1)[(part * numbers + number) * GROUPS + group[owner] % GROUPS] = np.arange(len(owner))
        return cls(
            source_of=source_of,
            pieces=pieces,
            numbers=numbers,
            groups=groups,
            width=bands * most * numbers * GROUPS,
        )

    def room(self, rows: int) -> np.ndarray:
        """For so many rows of neurons in their places."""
        pieces, width = self.source_of.shape
        return aligned((pieces, rows, width))


def take_input_gradient(uses: Uses, memory: Memory, shortcut: Shortcut, instead: Instead) -> None:
    """Weights spread by groups before the repeat; then, in every turn, everything at the place of the last table."""
    known = uses_of(uses, shortcut, COMPUTES)
    first, *sums, last = shortcut.tables
    if known is None or not undisturbed(uses, known) or uses.written_in(first.operands["w"], known[0].repeat):
        return
    grouping = Grouping.of(*(shortcut.numbers[name] for name in ("starts", "stops", "group")))
    w, q, ids, counts = (first.operands[name] for name in ("w", "q", "ids", "counts"))
    if grouping.width > MOST_PADDING * uses.program.variables[w].shape[1]:
        return
    made = _InputGradient(memory, grouping, (w, q, ids, counts), last.operands["g"])
    instead.calls |= {id(table): None for table in (first, *sums)} | {id(last): made.call}
    instead.uses[id(last)] = frozenset((w, q, ids, counts)), frozenset([made.writes])
    instead.heavy[id(last)] = made
    instead.before.setdefault(id(known[0].repeat), []).append(made.before)


class _InputGradient:
    """The input gradient of one turn or of several."""

    def __init__(self, memory: Memory, grouping: Grouping, names: tuple[str, ...], writes: str):
        self._memory, self._grouping = memory, grouping
        self._w, *read = names
        self.reads, self.writes = tuple(read), writes
        self._weights = grouping.room(len(memory.arrays[self._w]))
        self._adjoints, self._stage = grouping.room(0), aligned((0, GROUPS))

    def before(self, _t: int) -> None:
        w = self._memory.arrays[self._w]
        kernels.spread_groups(w, self._grouping.source_of, 0, len(w), self._weights)

    def call(self, _t: int) -> None:
        arrays = self._memory.arrays
        q, ids, counts = (arrays[name] for name in self.reads)
        self._make(arrays[self.writes], q, ids, counts)

    def __call__(self, read: dict[str, np.ndarray], made: np.ndarray) -> None:
        q, ids, counts = (flat_turns(read[name]) for name in self.reads)
        self._make(flat_turns(made), q, ids, counts)
        self._memory.arrays[self.writes][...] = made[-1]

    def _make(self, g: np.ndarray, q: np.ndarray, ids: np.ndarray, counts: np.ndarray) -> None:
        """Of samples, or of samples in several turns."""
        starts, grouping = np.zeros(len(q), np.int64), self._grouping
        listed = kernels.starts_of(counts, starts)
        if self._adjoints.shape[1] < len(q):
            self._adjoints = grouping.room(len(q))
        if len(self._stage) < listed + kernels.TOGETHER:
            self._stage = aligned((2 * listed + kernels.TOGETHER, GROUPS))  # so that it seldom grows
        form = grouping.pieces, grouping.numbers, grouping.groups
        given: tuple[Any, ...] = (g, self._stage, self._weights, self._adjoints, ids, counts, starts, form)
        compute: Any = kernels.input_gradient

        def samples(first: int, last: int) -> None:
            kernels.spread_groups(q, grouping.source_of, first, last, self._adjoints)
            compute(*given, first, last)

        self._memory.share(len(q), samples)


def flat_turns(versions: np.ndarray) -> np.ndarray:
    """[turns * batch, ...] from [turns, batch, ...]."""
    return versions.reshape(-1, *versions.shape[2:])
