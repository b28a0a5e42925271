"""Runs of supersteps whose values in between nobody else reads, executed in one pass with the same bits.

Each finder checks everything that makes the short way equal to the long one (who else reads or writes what, that all
of a variable is covered) and leaves the program as it is where anything is missing: an unknown codelet in the middle,
a vertex that does less than all of its table.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from mimdsim.functional.neuron_chains import find_adjoints, find_selections
from mimdsim.functional.passes import Call, Chains, Memory, only_used_by
from mimdsim.functional.shares import aligned
from mimdsim.functional.uses import Use, Uses
from mimdsim.functional.weight_chains import find_weight_gradients
from mimdsim.functional.wide import is_whole
from mimdsim.numerics.arrays import dense
from mimdsim.numerics.fused import chains as kernels
from mimdsim.numerics.fused.vectors import GROUPS
from mimdsim.numerics.lists import spikes
from mimdsim.program import Copy, VertexTable
from mimdsim.program.codelet import now_shift

MOST_PADDING = 3.0  # lanes of a spread row per neuron; beyond, tiles one after another are as fast
MOVES = (dense.move_rows, dense.move_columns, dense.move_slots)


def find_chains(uses: Uses, memory: Memory) -> Chains:
    """Everything of a program that runs in fewer passes."""
    chains = Chains()
    for finder in (_views, find_selections, find_adjoints, _input_gradients, find_weight_gradients):
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
        if len(ends) != 1 or not only_used_by(uses, partial, [use, *(one for one, _ in sums)]):
            continue
        end, last = ends[0]
        if not only_used_by(uses, stage, [*(one for one, _ in sums), end]) or not _steady(uses, use, end, table):
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
        memory.share(listed, lambda first, stop: sums(*given, form, first, stop))

    return before, call
