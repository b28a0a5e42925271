"""Runs of supersteps whose values in between nobody else reads, executed in one pass with the same bits.

Each finder checks everything that makes the short way equal to the long one (who else reads or writes what, that all
of a variable is covered) and leaves the program as it is where anything is missing: an unknown codelet in the middle,
a vertex that does less than all of its table.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from mimdsim.functional.shares import aligned
from mimdsim.functional.uses import Use, Uses
from mimdsim.functional.wide import is_whole, widened
from mimdsim.numerics import chains as kernels
from mimdsim.numerics import dense, spikes
from mimdsim.numerics.vectors import GROUPS, WIDTH
from mimdsim.program import Copy, VertexTable
from mimdsim.program.codelet import now_shift

Call = Callable[[int], None]
Share = Callable[[int, Callable[[int, int], None]], None]
MOST_PADDING = 3.0  # lanes of a spread row per neuron; beyond, tiles one after another are as fast
MOVES = (dense.move_rows, dense.move_columns, dense.move_slots)


class Memory(Protocol):
    """What a chain needs of an executor."""

    arrays: dict[str, np.ndarray]

    def taken(self, name: str, shift: int) -> Callable[[int], np.ndarray]:
        """What "@t" and a shift name of a sequence in a timestep."""

    def share(self, count: int, work: Callable[[int, int], None]) -> None:
        """`work(first, last)` on shares of 0..count-1."""


@dataclass(kw_only=True, eq=False)
class Chains:
    """What is done otherwise: tables left out or replaced by a call, calls before a repeat, and the variables whose
    array changes from turn to turn."""

    replaced: dict[int, Call | None] = field(default_factory=dict)
    before: dict[int, list[Call]] = field(default_factory=dict)
    moving: set[str] = field(default_factory=set)


def find_chains(uses: Uses, memory: Memory) -> Chains:
    """Everything of a program that runs in fewer passes."""
    chains = Chains()
    for finder in (_views, _input_gradients, _weight_gradients):
        finder(uses, memory, chains)
    return chains


# ---- a slice of a sequence that is only read is a view


def _views(uses: Uses, memory: Memory, chains: Chains) -> None:
    for compute in MOVES:
        for use, table in uses.computed_by(compute):
            source, target = (next(item for item in table.codelet.fields if item.name == name) for name in _ends(table))
            sequence, now = table.operands[source.name], table.operands[target.name]
            extent = uses.program.variables[now].shape[0 if compute is dense.move_rows else -1]
            only_writer = [other for other in uses.of[now] if now in other.writes] == [use]
            if (
                use.repeat is not None
                and source.name == "sequence"
                and only_writer
                and not uses.written_in(sequence, use.repeat)
                and all(other.repeat is use.repeat for other in uses.of[now])
                and now not in uses.outside
                and is_whole(table, extent)
                and _all_samples(table, uses.program.variables[now].shape[0], compute)
            ):
                chains.moving.add(now)
                chains.replaced[id(table)] = _view(memory, now, sequence, now_shift(source.box[0]) or 0)


def _ends(table: VertexTable) -> tuple[str, str]:
    names = [item.name for item in table.codelet.fields]
    return names[0], names[1]


def _all_samples(table: VertexTable, batch: int, compute: object) -> bool:
    return compute is not dense.move_slots or len(np.unique(table.columns["sample"])) == batch


def _view(memory: Memory, now: str, sequence: str, shift: int) -> Call:
    taken, arrays = memory.taken(sequence, shift), memory.arrays

    def call(t: int) -> None:
        arrays[now] = taken(t)

    return call


# ---- input gradient, sums over tiles, sums over groups


@dataclass(frozen=True, kw_only=True, eq=False)
class Grouping:
    """Neurons as [bands, parts of a group, numbers of a part, GROUPS], a lane per group; where[n]: a neuron's place."""

    where: np.ndarray
    parts: int
    numbers: int
    lanes: int
    groups: int

    @property
    def width(self) -> int:
        return self.parts * self.numbers * self.lanes


def _input_gradients(uses: Uses, memory: Memory, chains: Chains) -> None:
    for use, table in uses.computed_by(spikes.input_gradient):
        partial = table.operands["partial"]
        sums = [pair for pair in uses.computed_by(spikes.reduce_parts) if pair[1].operands["partial"] == partial]
        if not sums:
            continue
        stage = sums[0][1].operands["stage"]
        ends = [pair for pair in uses.computed_by(spikes.reduce_groups) if pair[1].operands["stage"] == stage]
        if len(ends) != 1 or not _only(uses, partial, [use, *(one for one, _ in sums)]):
            continue
        end, last = ends[0]
        if not _only(uses, stage, [*(one for one, _ in sums), end]) or not _steady(uses, use, end, table):
            continue
        if not _same_counts(uses, use, table.operands["counts"], {one.operands["counts"] for _, one in sums}):
            continue
        grouping = _grouping(uses, table, [one for _, one in sums], last)
        if grouping is None:
            continue
        for _, one in ((use, table), *sums):
            chains.replaced[id(one)] = None
        before, chains.replaced[id(last)] = _gather(uses, memory, table, last, grouping)
        assert use.repeat is not None
        chains.before.setdefault(id(use.repeat), []).append(before)


def _only(uses: Uses, name: str, known: list[Use]) -> bool:
    """Whether nobody but these uses the variable, all in one repeat."""
    same = {id(use) for use in known} == {id(use) for use in uses.of[name]}
    return same and name not in uses.outside and len({id(use.repeat) for use in known}) == 1


def _steady(uses: Uses, first: Use, last: Use, table: VertexTable) -> bool:
    """Whether nobody writes what the table reads until the last of the chain, nor the weights in the whole repeat."""
    if first.repeat is None or first.repeat is not last.repeat or first.place > last.place:
        return False
    if uses.written_in(table.operands["w"], first.repeat):
        return False
    names = [table.operands[name] for name in ("q", "ids", "counts")]
    return not any(
        first.place <= use.place <= last.place for name in names for use in uses.written_in(name, first.repeat)
    )


def _same_counts(uses: Uses, use: Use, counts: str, others: set[str]) -> bool:
    """Whether the sums go by the counts that the products go by, or by what these are a copy of."""
    if others == {counts}:
        return True
    written = uses.written_in(counts, use.repeat)
    return len(written) == 1 and isinstance(written[0].item, Copy) and others == {written[0].item.source}


def _grouping(uses: Uses, table: VertexTable, sums: list[VertexTable], last: VertexTable) -> Grouping | None:
    """How neurons lie in parts and parts in groups; None where a table leaves anything out."""
    occupied, batch, capacity = uses.program.variables[table.operands["partial"]].shape
    neurons = uses.program.variables[table.operands["w"]].shape[1]
    start, stop = np.full(occupied, -1), np.full(occupied, -1)
    part = table.columns["part"]
    start[part], stop[part] = table.columns["start"], table.columns["stop"]
    if table.vertices != occupied * batch or not _covers(start, stop, neurons):
        return None
    if (start[part] != table.columns["start"]).any() or (stop[part] != table.columns["stop"]).any():
        return None
    groups = uses.program.variables[sums[0].operands["stage"]].shape[0]
    columns = {name: np.concatenate([one.columns[name] for one in sums]) for name in sums[0].columns}
    low, high = np.full(groups, -1), np.full(groups, -1)
    group = columns["group"]
    low[group], high[group] = columns["part_start"], columns["part_stop"]
    if len(group) != groups * batch * capacity or not _covers(low, high, occupied):
        return None
    if (low[group] != columns["part_start"]).any() or (high[group] != columns["part_stop"]).any():
        return None
    if not is_whole(last, capacity) or len(np.unique(last.columns["sample"])) != batch:
        return None
    parts, numbers = int((high - low).max()), int((stop - start).max())
    lanes = -(-groups // GROUPS) * GROUPS
    if parts * numbers * lanes > MOST_PADDING * neurons:
        return None
    owner = np.repeat(np.arange(occupied), stop - start)
    of_group = np.repeat(np.arange(groups), high - low)[owner]
    within, number = owner - low[of_group], np.arange(neurons) - start[owner]
    band = of_group // GROUPS * parts + within
    return Grouping(
        where=(band * numbers + number) * GROUPS + of_group % GROUPS,
        parts=parts,
        numbers=numbers,
        lanes=lanes,
        groups=groups,
    )


def _covers(start: np.ndarray, stop: np.ndarray, extent: int) -> bool:
    """Whether ranges follow one another from 0 to extent."""
    return bool(start[0] == 0 and stop[-1] == extent and (start[1:] == stop[:-1]).all() and (stop > start).all())


def _gather(uses: Uses, memory: Memory, table: VertexTable, last: VertexTable, grouping: Grouping) -> tuple[Call, Call]:
    """Weights spread before the repeat; then, in every turn, the whole chain."""
    w, q, ids, counts = (table.operands[name] for name in ("w", "q", "ids", "counts"))
    inputs, batch = uses.program.variables[w].shape[0], uses.program.variables[q].shape[0]
    weights, adjoints = aligned((inputs, grouping.width)), aligned((batch, grouping.width))
    most = batch * uses.program.variables[ids].shape[1]
    columns = np.zeros(inputs + 1, np.int64)
    sample, slot = np.zeros(most, np.int64), np.zeros(most, np.int64)
    g = last.operands["g"]
    arrays = memory.arrays

    def before(_t: int) -> None:
        kernels.spread_groups(arrays[w], grouping.where, weights)

    def call(_t: int) -> None:
        kernels.spread_groups(arrays[q], grouping.where, adjoints)
        listed = kernels.order_by_id(arrays[ids], arrays[counts], columns, sample, slot)
        given: tuple[Any, ...] = (arrays[g], weights, adjoints, arrays[ids], sample, slot)
        form = (grouping.parts, grouping.numbers, grouping.groups)
        sums: Any = kernels.input_gradient
        memory.share(listed, lambda first, stop: sums(*given, *form, first, stop))

    return before, call


# ---- weight gradients of all timesteps, and their sum over replicas


def _weight_gradients(uses: Uses, memory: Memory, chains: Chains) -> None:
    for use, table in uses.computed_by(spikes.weight_gradient):
        dw, q = table.operands["dw"], table.operands["q"]
        fills = [pair for pair in uses.computed_by(dense.fill_columns) if pair[1].operands["target"] == dw]
        sums = [pair for pair in uses.computed_by(dense.sum_replicas) if pair[1].operands["replicas"] == dw]
        if use.repeat is None or len(fills) != 1 or len(sums) != 1 or dw in uses.outside:
            continue
        (fill, filled), (end, summed) = fills[0], sums[0]
        alone = {id(one) for one in (use, fill, end)} == {id(one) for one in uses.of[dw]}
        in_order = fill.repeat is None and end.repeat is None and fill.place < use.place < end.place
        if not alone or not in_order or len({one.superstep.phase for one in (use, fill, end)}) != 1:
            continue
        neurons = uses.program.variables[dw].shape[2]
        if not all(is_whole(one, neurons) for one in (filled, summed, table)):
            continue
        owner = _replica_of_sample(table, uses.program.variables[q].shape[0])
        if owner is not None:
            deferred = _Deferred(uses, memory, table, summed, use, owner)
            chains.replaced |= {id(filled): None, id(table): deferred.record, id(summed): deferred.finish}


def _replica_of_sample(table: VertexTable, batch: int) -> np.ndarray | None:
    """Which replica a sample adds to (-1: none); None where a replica has several runs of samples, or samples two."""
    _, joined = widened(table)
    columns = dict(zip(table.codelet.columns, joined, strict=True))
    owner = np.full(batch, -1, np.int64)
    if len(np.unique(columns["replica"])) != len(columns["replica"]):
        return None
    for replica, first, last in zip(columns["replica"], columns["sample_start"], columns["sample_stop"], strict=True):
        if (owner[first:last] >= 0).any():
            return None
        owner[first:last] = replica
    return owner


class _Deferred:
    """The lists and current gradients of all turns of a repeat, kept until the sum over replicas."""

    def __init__(
        self, uses: Uses, memory: Memory, table: VertexTable, summed: VertexTable, use: Use, owner: np.ndarray
    ):
        variables = uses.program.variables
        self._memory, self._owner, self._turns, self._reverse = memory, owner, use.timesteps, use.reverse
        self._q, self._ids, self._counts = (table.operands[name] for name in ("q", "ids", "counts"))
        self._total = summed.operands["total"]
        self._replicas, self._inputs, self._neurons = variables[table.operands["dw"]].shape
        batch, capacity = len(owner), variables[self._ids].shape[1]
        self._history = aligned((-(-self._neurons // WIDTH), batch * use.timesteps, WIDTH))
        self._starts = np.zeros(use.timesteps * batch + 1, np.int64)
        self._listed = np.empty(use.timesteps * batch * capacity, np.int32)  # reserved; touched as far as spikes go

    def record(self, t: int) -> None:
        """In place of adding to the replicas."""
        arrays, turns = self._memory.arrays, self._turns
        turn = turns - 1 - t if self._reverse else t
        given = arrays[self._ids], arrays[self._counts], arrays[self._q]
        kernels.record(*given, turn, turns, self._starts, self._listed, self._history)

    def finish(self, _t: int) -> None:
        """The sums, in place of adding up replicas."""
        columns = np.empty(self._replicas * self._inputs + 2, np.int64)
        rows = np.empty(int(self._starts[-1]), np.int32)
        lists = (self._turns, self._starts, self._listed)
        kernels.sort_by_replica(self._owner, self._inputs, *lists, columns, rows)
        given = self._memory.arrays[self._total], self._replicas, columns, rows, self._history
        self._memory.share(len(self._history), lambda first, last: kernels.summed_weight_gradient(*given, first, last))
