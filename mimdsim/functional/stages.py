"""A repeat over timesteps in stages: each goes through a block of timesteps before the next one begins.

What a timestep computes depends on the layer before it and on the timestep before it, so the calls of one layer can be
made for many timesteps before those of the next layer. Products with weights (heavy calls) then find the weights in
cache. The bits are the same: every call gets the values that it gets timestep by timestep. A variable that one stage
writes and another reads is kept for every timestep of a block (a version).

The order of stages follows who reads what is written. All that writes a variable, and all that reads it in between,
is one part; parts that need each other, in the same timestep or the next, are one. Heavy parts of a single call have
stages of their own. Other parts go to the first stage in which all they read is known, or, where only later stages
read what they write, to the last one in time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import compress
from typing import Protocol

import networkx as nx
import numpy as np

from mimdsim.functional.calls import At, Call, Turn
from mimdsim.functional.shares import zeros

BLOCK_BYTES = 1 << 23  # of the versions of one variable: what a third-level cache can be expected to hold


class Heavy(Protocol):
    """A call for all timesteps of a block at once: reads versions, leaves those of what it writes."""

    reads: tuple[str, ...]
    writes: tuple[str, ...]
    at_once: bool  # whether it must have all turns in one block

    def before(self, t: int) -> None:
        """Prepare what does not change from turn to turn."""

    def __call__(self, read: dict[str, np.ndarray], made: dict[str, np.ndarray]) -> None:
        """Arrays [timesteps in order of turns, ...] of every variable."""


@dataclass(kw_only=True, eq=False)
class Part:
    """A call of a turn, what it reads and what it writes, maybe in part; `fills`: what it writes wholly."""

    call: Call
    reads: frozenset[str]
    writes: frozenset[str]
    fills: frozenset[str] = frozenset()
    heavy: Heavy | None = None
    moves: Heavy | None = None  # makes many turns at once where another part of the repeat is heavy
    bound: dict[str, int] = field(default_factory=dict)  # versions it reads: of this turn (1), the one before (0)
    stored: tuple[str, np.ndarray] | None = None  # it only moves this variable to entry t of this sequence
    fixed: bool = False  # it need only run once if all that it reads stays the same


@dataclass(frozen=True, kw_only=True, eq=False)
class Lying:
    """Where the values of a variable are that have no versions, as they lie elsewhere: at(t), and those of so many
    turns from t on, for heavy calls (None: not one after another); fewer where those before the first are zero."""

    at: At
    turns: Callable[[int, int], np.ndarray] | None = None

    @classmethod
    def forward(cls, at: At, sequence: np.ndarray) -> Lying:
        """In a sequence, turn after turn."""
        return cls(at=at, turns=lambda t, count: sequence[t : t + count])

    @classmethod
    def backward(cls, at: At, sequence: np.ndarray, shift: int) -> Lying:
        """In a sequence from its end, from timestep t + shift on."""
        return cls(at=at, turns=lambda t, count: sequence[max(t + shift - count + 1, 0) : t + shift + 1][::-1])


@dataclass(frozen=True, kw_only=True)
class Written:
    """The first and the last part in a turn that write a variable."""

    first: int
    last: int


def staged(
    parts: list[Part],
    arrays: dict[str, np.ndarray],
    sequences: frozenset[str],
    turns: Callable[[int], list[int]],
    elsewhere: Mapping[str, Lying] | None = None,
) -> Turn | None:
    """One call for all turns of a repeat, given its first timestep; None where stages are of no use.

    sequences: variables of which a timestep is taken; turns: the timesteps in order; elsewhere: variables that are
    read where they lie.
    """
    lying = dict(elsewhere or {})
    if not any(part.heavy for part in parts):
        return None
    in_any_order = {name for name, each in lying.items() if each.turns is None}
    for part in parts:
        if part.heavy is None and part.moves is not None and not in_any_order.intersection(part.moves.reads):
            part.heavy = part.moves
    graph, written = _dependences(parts, sequences, frozenset(lying))
    levels = _levels(graph, parts)
    if not any(part.heavy and part.heavy is not part.moves for part in parts):
        return None
    crossing: dict[str, None] = {name: None for part in parts if part.heavy for name in part.heavy.writes}
    for number, part in enumerate(parts):
        for name in sorted(part.reads - lying.keys() - sequences):
            if name in written and levels[written[name].last] != levels[number]:
                part.bound[name] = int(number > written[name].last)
                crossing[name] = None
    for part in parts:
        alone = all(written[name].first == written[name].last for name in part.writes)
        moving = written.keys() & part.reads | lying.keys() & {*part.call.names} | crossing.keys() & part.writes
        part.fixed = part.fixed and alone and not part.call.entries and not moving
    needless = _stored(parts, crossing, lying)
    stages = [
        [part for number, part in enumerate(parts) if levels[number] == level and part not in needless]
        for level in sorted({*levels})
    ]
    return _Staged([stage for stage in stages if stage], list(crossing), lying, arrays, turns)


def _stored(parts: list[Part], crossing: dict[str, None], lying: dict[str, Lying]) -> list[Part]:
    """Moves of variables whose versions may lie in the sequence that they are moved to, since a heavy call makes them
    and nobody reads those of the turn before: they are not needed, and what they move crosses no more."""
    found = []
    for part in parts:
        if part.stored is None:
            continue
        name, sequence = part.stored
        before = any(other.bound.get(name) == 0 for other in parts)
        if name in crossing and not before and any(other.heavy and name in other.heavy.writes for other in parts):
            lying[name] = Lying.forward(list(sequence).__getitem__, sequence)
            found.append(part)
            del crossing[name]
    return found


def _dependences(
    parts: list[Part], sequences: frozenset[str], lying: frozenset[str]
) -> tuple[nx.DiGraph, dict[str, Written]]:
    """Parts by number, from who writes to who reads; in circles where they must stay together."""
    graph = nx.DiGraph()
    graph.add_nodes_from(range(len(parts)))
    using, writing = defaultdict(list), defaultdict(list)
    for number, part in enumerate(parts):
        for name in part.reads | part.writes:
            using[name].append(number)
        for name in part.writes:
            writing[name].append(number)
    written = {name: Written(first=numbers[0], last=numbers[-1]) for name, numbers in writing.items()}
    for part in parts:
        changing = {name for name in part.reads if name in written} - part.writes
        if part.heavy and (changing & sequences or changing - lying != set(part.heavy.reads) - lying):
            part.heavy = None  # made for what it reads to change from turn to turn, and nothing else
    for name, ends in written.items():
        together = set(writing[name])
        if name in sequences:
            together.update(using[name])
        together.update(number for number in using[name] if ends.first < number < ends.last)
        ring = sorted(together)
        graph.add_edges_from(
            (one, other) for one, other in zip(ring, [*ring[1:], ring[0]], strict=True) if one != other
        )
        graph.add_edges_from((ends.last, number) for number in using[name] if number not in together)
    return graph, written


def _levels(graph: nx.DiGraph, parts: list[Part]) -> list[int]:
    """The stage of every part: odd where it is a heavy one."""
    groups = nx.condensation(graph)
    members = nx.get_node_attributes(groups, "members")
    order = list(nx.topological_sort(groups))
    heavy = {group: len(members[group]) == 1 and parts[min(members[group])].heavy is not None for group in order}
    level: dict[int, int] = {}
    for group in order:
        before = list(groups.predecessors(group))
        if heavy[group]:
            level[group] = max((level[each] + (2 if heavy[each] else 1) for each in before), default=1)
        else:
            level[group] = max((level[each] + heavy[each] for each in before), default=0)
    for group in reversed(order):
        after = [level[each] - heavy[each] for each in groups.successors(group)]
        if after and not heavy[group]:
            level[group] = min(after)
    found = [0] * len(parts)
    for group, numbers in members.items():
        for number in numbers:
            found[number] = level[group]
            if not heavy[group]:
                parts[number].heavy = None
    return found


def _crossing(stage: list[Part], crossing: list[str]) -> tuple[list[str], list[str]]:
    """What calls of a stage write for others: what must be copied to be kept, and what may be written where it is kept
    since the first call that uses it writes all of it."""
    kept: list[str] = []
    filled: list[str] = []
    light = [part for part in stage if not part.heavy]
    for name in crossing:
        if any(name in part.writes for part in light):
            first = next(part for part in light if name in part.reads | part.writes)
            (filled if name in first.fills - first.reads else kept).append(name)
    return kept, filled


class _Staged:
    """Stages with the versions that cross them."""

    def __init__(
        self,
        stages: list[list[Part]],
        crossing: list[str],
        lying: dict[str, Lying],
        arrays: dict[str, np.ndarray],
        turns: Callable[[int], list[int]],
    ):
        self._arrays, self._turns, self._lying = arrays, turns, lying
        every, most = len(turns(0)), max((arrays[name].nbytes for name in crossing), default=1)
        at_once = any(part.heavy.at_once for stage in stages for part in stage if part.heavy)
        self._block = every if at_once else max(1, min(every, BLOCK_BYTES // most))
        self._versions = {name: zeros((self._block + 1, *arrays[name].shape), arrays[name].dtype) for name in crossing}
        self._views = {name: [each[turn, ...] for turn in range(len(each))] for name, each in self._versions.items()}
        self._stages = [self._ready(stage, crossing) for stage in stages]
        self._heavy = [part.heavy for stage in stages for part in stage if part.heavy]

    def _ready(self, stage: list[Part], crossing: list[str]) -> _Stage:
        kept, filled = _crossing(stage, crossing)
        return _Stage(
            heavy=[part for part in stage if part.heavy],
            light=[self._resolved(part, filled) for part in stage if not part.heavy],
            again=[not part.fixed for part in stage if not part.heavy],
            kept=[(self._views[name], self._arrays[name]) for name in kept],
            filled=[(self._views[name], self._arrays[name]) for name in filled],
        )

    def _resolved(self, part: Part, filled: list[str]) -> _Resolved:
        """filled: variables whose versions the stage writes where they are kept."""
        at, versions = dict(part.call.entries), []
        shifts = part.bound | dict.fromkeys(filled, 1)
        for place, name in enumerate(part.call.names):
            if place in at:
                continue
            if name in self._lying:
                at[place] = self._lying[name].at
            elif name in shifts:
                versions.append((place, self._views[name], shifts[name]))
        given = [self._arrays[name] for name in part.call.names]
        return part.call.run, given, tuple(at.items()), tuple(versions)

    def __call__(self, first: int) -> None:
        every = self._turns(first)
        for heavy in self._heavy:
            heavy.before(first)
        for begin in range(0, len(every), self._block):
            block = every[begin : begin + self._block]
            for name, versions in self._versions.items():
                versions[0] = self._arrays[name]
            for stage in self._stages:
                self._run(stage, block)

    def _run(self, stage: _Stage, block: list[int]) -> None:
        for part in stage.heavy:
            assert part.heavy is not None
            read = {name: self._span(name, part.bound.get(name, 1), block) for name in part.heavy.reads}
            part.heavy(read, {name: self._span(name, 1, block) for name in part.heavy.writes})
        light = stage.light
        if not light:
            return
        for number, t in enumerate(block):
            if number == 1:
                light = list(compress(light, stage.again))
            for run, given, entries, versions in light:
                for place, at in entries:
                    given[place] = at(t)
                for place, views, shift in versions:
                    given[place] = views[number + shift]
                run(t, *given)
            for views, array in stage.kept:
                views[number + 1][...] = array
        for views, array in stage.filled:
            array[...] = views[len(block)]

    def _span(self, name: str, shift: int, block: list[int]) -> np.ndarray:
        """The versions of the turns of a block (1), or of the turns before them (0)."""
        if name not in self._lying:
            return self._versions[name][shift : shift + len(block)]
        turns = self._lying[name].turns
        assert turns is not None
        return turns(block[0], len(block))


# how a call runs, its arguments, those of them that are entries of sequences, and those that are versions with a shift
_Resolved = tuple[
    Callable[..., None], list[np.ndarray], tuple[tuple[int, At], ...], tuple[tuple[int, list[np.ndarray], int], ...]
]


@dataclass(frozen=True, kw_only=True, eq=False)
class _Stage:
    """A stage ready to run; which of its calls run again after the first turn of a block; of what it writes for others,
    the versions and the array: to be kept, and written where it is kept."""

    heavy: list[Part]
    light: list[_Resolved]
    again: list[bool]
    kept: list[tuple[list[np.ndarray], np.ndarray]]
    filled: list[tuple[list[np.ndarray], np.ndarray]]
