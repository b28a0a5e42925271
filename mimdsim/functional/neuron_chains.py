"""Supersteps that go over all neurons one after another, executed in one pass with the same bits.

Selection: flags, workers' scans and tiles' lists. Adjoint: its copy, the copy scaled, and its decay for the timestep
before. As in `mimdsim.functional.chains`, whatever is not exactly this is left as it is.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from mimdsim.functional.passes import Adjoint, Call, Chains, Found, Memory, only_used_by, operand
from mimdsim.functional.uses import Use, Uses
from mimdsim.functional.wide import is_whole
from mimdsim.numerics.arrays import dense
from mimdsim.numerics.fused import neuron_chains as kernels
from mimdsim.numerics.lists import neurons, spikes
from mimdsim.program import VertexTable
from mimdsim.program.codelet import now_shift


def _using(uses: Uses, compute: object, name: str) -> list[Found]:
    """Tables that this function computes with `name` as its first field."""
    return [pair for pair in uses.computed_by(compute) if operand(pair[1], 0) == name]


def _between(uses: Uses, name: str, first: Use, last: Use) -> list[Use]:
    """Uses of a variable in the repeat from the superstep of the first to that of the last."""
    return [use for use in uses.of[name] if use.repeat is first.repeat and first.place <= use.place <= last.place]


def _unchanged(uses: Uses, name: str, first: Use, last: Use) -> bool:
    return not any(name in use.writes for use in _between(uses, name, first, last))


def _one_after_another(found: list[Found]) -> bool:
    """Whether all are in one repeat and phase, each in a superstep after the one before, and take no sequence."""
    places = [use.place for use, _ in found]
    first = found[0][0]
    return (
        first.repeat is not None
        and all(use.repeat is first.repeat and use.superstep.phase == first.superstep.phase for use, _ in found)
        and all(one < other for one, other in pairwise(places))
        and all(now_shift(item.box[0]) is None for _, table in found for item in table.codelet.fields)
    )


# ---- which neurons spike, as lists of tiles


def find_selections(uses: Uses, memory: Memory, chains: Chains) -> None:
    """Flags, scans of workers and lists of tiles in one pass over the potentials."""
    for flag in uses.computed_by(spikes.flag_spikes):
        v, flags = operand(flag[1], 0), operand(flag[1], 1)
        scans = _using(uses, spikes.scan_flags, flags)
        if not scans or not only_used_by(uses, flags, [flag[0], *(use for use, _ in scans)]):
            continue
        lists, counts = operand(scans[0][1], 1), operand(scans[0][1], 2)
        ends = _using(uses, spikes.combine_workers, lists)
        known = [use for use, _ in (*scans, *ends)]
        if (
            ends
            and len({use.place for use, _ in ends}) == 1
            and all(_one_after_another([flag, scan, ends[0]]) for scan in scans)
            and only_used_by(uses, lists, known)
            and only_used_by(uses, counts, known)
            and _unchanged(uses, v, flag[0], ends[0][0])
            and len({(operand(table, 2), operand(table, 3)) for _, table in ends}) == 1
            and _every_neuron(flag[1], uses.program.variables[v].shape)
        ):
            call = _selection(uses, memory, flag[1], [table for _, table in scans], [table for _, table in ends])
            if call is not None:
                for _, table in (flag, *scans, *ends):
                    chains.replaced[id(table)] = None
                chains.replaced[id(ends[0][1])] = call


def _every_neuron(flag: VertexTable, shape: tuple[int, ...]) -> bool:
    """Whether the table flags every neuron of every sample once, against thresholds of the potentials' own kind."""
    batch, neurons_ = shape
    places = flag.columns["sample"] * neurons_ + flag.columns["neuron"]
    kinds = {type(flag.constants[name]) for name in ("threshold", "second_threshold")}
    return kinds == {np.float32} and len(places) == batch * neurons_ == len(np.unique(places))


def _selection(
    uses: Uses, memory: Memory, flag: VertexTable, scans: list[VertexTable], ends: list[VertexTable]
) -> Call | None:
    """The pass; None where a worker's list is written twice or combined without having been written."""
    variables, arrays = uses.program.variables, memory.arrays
    v, tile_ids, tile_counts = operand(flag, 0), operand(ends[0], 2), operand(ends[0], 3)
    workers, room = variables[operand(scans[0], 1)].shape
    scan = {name: np.concatenate([table.columns[name] for table in scans]) for name in scans[0].codelet.columns}
    end = {name: np.concatenate([table.columns[name] for table in ends]) for name in ("first", "last", "slot")}
    slots = [np.full(table.vertices, min(int(np.asarray(table.constants["capacity"])), room)) for table in scans]
    by_worker = np.full((5, workers), -1, np.int64)
    names = ("row", "sample", "start", "stop")
    by_worker[:, scan["slot"]] = np.stack([*(scan[name] for name in names), np.concatenate(slots)])
    combined = np.zeros(workers + 1, np.int64)
    np.add.at(combined, end["first"], 1)
    np.add.at(combined, end["last"], -1)
    unknown = by_worker[0] < 0
    if len(np.unique(scan["slot"])) != len(scan["slot"]) or (unknown & (combined.cumsum()[:-1] != 0)).any():
        return None
    batch, count = variables[v].shape
    listed, found = np.zeros((2, batch, count + 1), np.int32), np.zeros((2, batch), np.int64)
    thresholds: tuple[Any, ...] = flag.constants["threshold"], flag.constants["second_threshold"]
    *joined, first, last = _joined_workers(by_worker, end["first"], end["last"])
    columns: Any = (tuple(joined), first, last, np.ascontiguousarray(end["slot"], np.int64))

    flagged: Any = kernels.list_flagged
    dealt: Any = kernels.deal_to_tiles

    def call(_t: int) -> None:
        flagged(arrays[v], *thresholds, listed, found)
        dealt(listed, found, *columns, arrays[tile_ids], arrays[tile_counts])

    return call


def _joined_workers(by_worker: np.ndarray, first: np.ndarray, last: np.ndarray) -> tuple[np.ndarray, ...]:
    """Workers [row, sample, start, stop, slots] with room for all of their neurons joined to those after them in the
    same tile's list, which gives the same list; and first and last of every tile's."""
    row, sample, start, stop, slots = by_worker
    begins = np.ones(len(row) + 1, bool)
    roomy = stop - start <= slots
    follows = (row[1:] == row[:-1]) & (sample[1:] == sample[:-1]) & (start[1:] == stop[:-1])
    begins[1:-1] = ~(follows & roomy[1:] & roomy[:-1])
    begins[first] = begins[last] = True
    number = begins.cumsum() - 1  # of what a worker becomes a part of
    heads = np.flatnonzero(begins[:-1])
    ends = np.append(heads[1:], len(row)) - 1
    merged = row[heads], sample[heads], start[heads], stop[ends], np.add.reduceat(slots, heads)
    return tuple(np.ascontiguousarray(column) for column in (*merged, number[first], number[last]))


# ---- gradient of currents from the adjoint, and the adjoint of the timestep before


def find_adjoints(uses: Uses, memory: Memory, chains: Chains) -> None:
    """Copies that are scaled at once; with the decay of what they are a copy of, where it comes later in the turn."""
    for copied in uses.computed_by(dense.copy_columns):
        dv, q = operand(copied[1], 0), operand(copied[1], 1)
        scaled = [pair for pair in _using(uses, neurons.scale_in_place, q) if _follows(uses, copied, pair, q)]
        if len(scaled) != 1 or not _whole(uses, [copied, *scaled]):
            continue
        gain = operand(scaled[0][1], 1)
        if not _unchanged(uses, gain, copied[0], scaled[0][0]):
            continue
        decays = [pair for pair in _using(uses, neurons.scale_unless_spiked, dv) if _follows(uses, copied, pair, dv)]
        decays = [pair for pair in decays if _whole(uses, [pair]) and _same_operands(uses, copied[0], pair)]
        chains.replaced |= {id(copied[1]): None, id(scaled[0][1]): None}
        if len(decays) != 1:
            chains.replaced[id(copied[1])] = _scaled_copy(memory, dv, q, gain)
            continue
        adjoint = Adjoint(copied=copied, scaled=scaled[0], decayed=decays[0])
        chains.adjoints[q] = adjoint
        chains.replaced[id(decays[0][1])] = None
        chains.replaced[id(copied[1])] = _with_decay(memory, adjoint)


def _follows(uses: Uses, copied: Found, other: Found, name: str) -> bool:
    """Whether `other` comes later in the same turns and nobody else uses the variable from the copy to it."""
    between = {id(use) for use in _between(uses, name, copied[0], other[0])}
    return _one_after_another([copied, other]) and between == {id(copied[0]), id(other[0])}


def _whole(uses: Uses, found: list[Found]) -> bool:
    return all(is_whole(table, uses.program.variables[operand(table, 0)].shape[1]) for _, table in found)


def _same_operands(uses: Uses, copied: Use, decay: Found) -> bool:
    """Whether the decay finds at the copy what it finds at its own place."""
    return all(_unchanged(uses, operand(decay[1], place), copied, decay[0]) for place in (1, 2))


def _scaled_copy(memory: Memory, dv: str, q: str, gain: str) -> Call:
    arrays = memory.arrays
    return lambda _t: kernels.scaled_copy(arrays[dv], arrays[q], arrays[gain])


def _with_decay(memory: Memory, adjoint: Adjoint) -> Call:
    arrays, names, threshold = memory.arrays, adjoint.operands, adjoint.threshold
    compute: Any = kernels.scaled_copy_and_decay

    def call(_t: int) -> None:
        compute(*(arrays[name] for name in names), threshold)

    return call
