"""Adjoints in all turns of a repeat at once, from what neurons listed and which of them fired, strip by strip.

A strip of neighbours goes through all timesteps, then weight and input gradients take its gradients of the currents
while they are in cache, before the next strip: neither potentials nor gradients of the currents of all timesteps need
to be written. That is possible where adjoints do not depend on the gradients that are made of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from mimdsim.functional.lists import Padded, walked
from mimdsim.functional.moves import Move, moved_from, moved_to
from mimdsim.functional.neurons import Neurons
from mimdsim.functional.shares import aligned
from mimdsim.functional.shortcuts import Adjoint, Follower, Instead, Memory
from mimdsim.functional.stages import Lying
from mimdsim.functional.uses import Use, Uses
from mimdsim.numerics.fused import turns as kernels
from mimdsim.numerics.fused.vectors import WIDTH
from mimdsim.numerics.lists import spikes
from mimdsim.program import Copy

Lists = tuple[Lying, Lying]  # ids and counts


@dataclass(kw_only=True, eq=False)
class AllTurns:
    """An adjoint in all turns at once; followers take the gradients of the currents, each with its lists."""

    adjoint: Adjoint
    neurons: Neurons
    memory: Memory
    followers: list[tuple[Follower, Lists]]
    reads: tuple[str, ...]
    writes: tuple[str, ...] = ()  # that calls read
    at_once: bool = True

    def __post_init__(self) -> None:
        self._first, self._strips = 0, aligned((0, 0, WIDTH))

    def before(self, t: int) -> None:
        """The first timestep."""
        self._first = t

    def __call__(self, read: dict[str, np.ndarray], made: dict[str, np.ndarray]) -> None:
        arrays = [self.memory.arrays[name] for name in self.adjoint.names]
        (_, dv, _, row, _, _, gain, decay, _), (g,), turns = arrays, read.values(), self.neurons.turns
        (batch, neurons), threads = dv.shape, self.memory.share.threads
        strips = -(-neurons // WIDTH)
        if not len(self._strips):
            span = max((follower.span for follower, _ in self.followers), default=1)
            self._strips = aligned((min(strips, threads + span - 1), turns * batch, WIDTH))
        for follower, (ids, counts) in self.followers:
            assert ids.turns is not None
            assert counts.turns is not None
            last = self._first + turns - 1
            follower.begin(Padded.of(ids.turns(last, turns), counts.turns(last, turns), turns), self._strips)
        threshold, slope, fired = self.adjoint.constants
        kept, capacity = self.neurons.spikes, row.shape[1]
        weighted = np.empty_like(kept.values)
        if len(g) < turns:  # zeros before the first timestep
            g = np.concatenate([g, np.zeros((turns - len(g), *g.shape[1:]), g.dtype)])
        given = kept.arrays, capacity, walked(g), (threshold, slope), weighted
        weigh: Any = kernels.weigh_values
        self.memory.share(turns, lambda first, last: weigh(first, last, *given))
        own = dv, (gain, decay), kept.arrays, weighted
        compute: Any = kernels.adjoint_turns
        for begin in range(0, strips, threads):
            end = min(begin + threads, strips)

            def some(first: int, last: int, begin: int = begin) -> None:
                for strip in range(begin + first, begin + last):
                    compute(strip, fired < np.inf, *own, self._strips[strip % len(self._strips)].reshape(-1))

            self.memory.share(end - begin, some)
            for follower, _ in self.followers:
                follower.take(begin, end)


def all_turns(
    uses: Uses, memory: Memory, instead: Instead, found: Adjoint, lying: Mapping[str, Lying]
) -> AllTurns | None:
    """The adjoint in all turns at once; None where it needs more than its neurons keep, or where something else reads
    the gradients of the currents. lying: variables that are read where they lie."""
    q, dv, v, g, ids, counts, gain, decay, before = found.names
    first, (_, _, fired), variables = found.known[0], found.constants, uses.program.variables
    here = [use for name in (q, dv) for use in uses.of[name] if use.repeat is first.repeat]
    readers = [use for use in here if use not in found.known]
    moves = {name: _moved(uses, first, name) for name in (v, ids, counts, before)}
    potentials = {v: 0} if fired == np.inf else {v: 0, before: -1}
    neurons = _neurons(uses, instead, found.known, {name: (moves[name], shift) for name, shift in potentials.items()})
    assert first.repeat is not None
    once = first.reverse and first.repeat.times == first.timesteps  # not in segments
    if neurons is None or neurons.chosen is None or not once or neurons.turns != first.timesteps:
        return None
    chosen = neurons.chosen
    listed = all(_stored(uses, each, moves[name]) for each, name in ((chosen.ids, ids), (chosen.counts, counts)))
    masked = fired == np.inf or 0 <= fired == chosen.threshold
    alike = variables[g].shape == variables[chosen.ids].shape and variables[g].dtype == variables[dv].dtype
    fixed = not any(uses.written_in(name, first.repeat) for name in (gain, decay))
    if not (listed and masked and alike and fixed) or q in uses.outside:
        return None
    followers = []
    for use in readers:
        follower = instead.followers.get(id(use.item))
        lists = [lying[name] for name in follower.lists if name in lying] if follower is not None else []
        if follower is None or use.place < first.place or len(lists) != 2 or any(each.turns is None for each in lists):
            return None
        followers.append((follower, (lists[0], lists[1])))
    if variables[q].shape[1] * first.timesteps * variables[q].shape[0] > np.iinfo(np.uint32).max:
        return None
    return AllTurns(adjoint=found, neurons=neurons, memory=memory, followers=followers, reads=(g,))


def _moved(uses: Uses, first: Use, name: str) -> Move | None:
    """The move that alone fills a variable in a repeat."""
    written = uses.written_in(name, first.repeat)
    return moved_from(uses, written[0]) if len(written) == 1 and written[0].place < first.place else None


def _neurons(
    uses: Uses, instead: Instead, known: list[Use], potentials: dict[str, tuple[Move | None, int]]
) -> Neurons | None:
    """Whose potentials these variables are, in timesteps so far back, and nobody but the adjoint's tables read any."""
    moves = [move for move, shift in potentials.values() if move is not None and move.shift == shift]
    if len(moves) != len(potentials) or len({move.sequence for move in moves}) != 1:
        return None
    sequence, filled = moves[0].sequence, [move.use for move in moves]
    others = [use for use in uses.of[sequence] if use not in filled and moved_to(uses, use) is None]
    others += [use for name in potentials for use in uses.of[name] if use not in known and use not in filled]
    writers = [use for use in uses.of[sequence] if sequence in use.writes]
    alone = not others and len(writers) == 1 and sequence not in uses.outside
    return instead.kept.get(sequence) if alone else None


def _stored(uses: Uses, name: str, move: Move | None) -> bool:
    """Whether a move is of this timestep of the sequence that a variable alone is moved to."""
    if move is None or move.shift:
        return False
    writers = [use for use in uses.of[move.sequence] if move.sequence in use.writes]
    stored = moved_to(uses, writers[0]) if len(writers) == 1 else None
    return stored is not None and stored.variable == name and not stored.shift


def keep_entries(uses: Uses, instead: Instead, made: Neurons) -> None:
    """Note the neurons whose potentials only follow in a sequence, beside what lists them."""
    v = made.writes[0]
    (own,) = (use for use in uses.all if use.item is made.table)
    here = [use for use in uses.of[v] if use.repeat is own.repeat and use is not own]
    moves = [move for use in here if (move := moved_to(uses, use)) is not None and not move.shift]
    flags = [use for use in here if not isinstance(use.item, Copy) and use.item.codelet.compute is spikes.flag_spikes]
    alone = len(moves) == len(flags) == 1 and len(here) == 2 and v not in uses.outside
    if made.chosen is not None and alone and own.timesteps == made.turns and not own.reverse:
        instead.kept[moves[0].sequence] = made
