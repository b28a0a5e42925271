"""Spike selection in one pass: flags, scans of workers and two combines, as the lists that they end in.

Workers scan neighbouring neurons, a tile joins the lists of its workers, and a sample those of its tiles. Where they
follow one another without gaps and no list on the way is too short, the sample's list is what one scan finds.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mimdsim.functional.calls import Call
from mimdsim.functional.neurons import Chosen
from mimdsim.functional.shares import flat_turns
from mimdsim.functional.shortcuts import Instead, Memory, Substitute, undisturbed
from mimdsim.functional.uses import Use, Uses
from mimdsim.numerics.fused.wide import select
from mimdsim.numerics.lists import spikes
from mimdsim.program import Copy, VertexTable

IDS, LIMITS = ("worker_ids", "tile_ids"), ("threshold", "second_threshold")
STEPS = (spikes.scan_flags, spikes.combine_workers, spikes.combine_tiles)  # each reads what the one before lists


def take_selections(uses: Uses, memory: Memory, instead: Instead) -> None:
    """Every selection of a repeat that one pass can make."""
    for use, _ in uses.computed_by(spikes.flag_spikes):
        chain = _chain(uses, use)
        if chain is None or not undisturbed(uses, [each for step in chain for each in step]):
            continue
        tables = [[each.item for each in step if isinstance(each.item, VertexTable)] for step in chain]
        (flagged,), (listing,) = tables[0], tables[3]
        v = flagged.operands["v"]
        ids, counts = (listing.operands[name] for name in ("ids", "counts"))
        found = _ranges(uses, tables, uses.program.variables[ids].shape[1])
        if found is None or memory.arrays[v].dtype != np.float32 or memory.arrays[v].ndim != 2:
            continue
        limits: Any = tuple(flagged.constants[each] for each in LIMITS)
        instead.tables |= {id(table): None for step in tables for table in step}
        made, writes = _Selection(memory, v, (ids, counts), found, limits), frozenset([ids, counts])
        instead.tables[id(listing)] = Substitute(call=made.call, reads=frozenset([v]), writes=writes, heavy=made)
        updated = _updating(uses, v, [each for step in chain for each in step])
        if updated is not None:
            threshold, second = limits
            chosen = Chosen(ids=ids, counts=counts, threshold=threshold, second_threshold=second)
            instead.chosen[id(updated)] = id(listing), chosen


def _chain(uses: Uses, flagging: Use) -> list[list[Use]] | None:
    """Flags, scans, combines of workers and of tiles, which alone use what is between them; None if others do."""
    chain = [[flagging]]
    for compute in STEPS:
        before = chain[-1]
        between = set().union(*(use.writes for use in before))
        readers = [use for use in uses.all if use.reads & between and use not in before]
        users = {id(use) for name in between for use in uses.of[name]}
        if not readers or between & uses.outside or users != {id(use) for use in (*before, *readers)}:
            return None
        if any(isinstance(use.item, Copy) or use.item.codelet.compute is not compute for use in readers):
            return None
        chain.append(readers)
    every = [use for step in chain for use in step]
    same = {(use.repeat, use.superstep.phase) for use in every}
    return chain if len(same) == 1 and len(chain[3]) == 1 else None


def _ranges(uses: Uses, tables: list[list[VertexTable]], most: int) -> tuple[np.ndarray, ...] | None:
    """The sample, first neuron and one past the last of every list; None where one scan would not find it."""
    of = uses.program.variables
    _, scans, joins, (listing,) = tables
    worker_lists, tile_lists = (of[step[0].operands[name]].shape for step, name in ((scans, IDS[0]), (joins, IDS[1])))
    scanned = _by_slot(scans, ("row", "sample", "start", "stop"), worker_lists[0])
    joined = _by_slot(joins, ("first", "last"), tile_lists[0])
    room = np.min([worker_lists[1], *(table.constants["capacity"] for table in scans)])
    sample, first, middle, last = (listing.column(each) for each in ("sample", "first", "middle", "last"))
    found = []
    for row, (begin, end) in enumerate(((first, middle), (middle, last))):
        tile, of_list = _runs(begin, end)
        worker, of_tile = _runs(*joined[:, tile])
        own = of_list[of_tile]
        rows, samples, start, stop = scanned[:, worker]
        lengths = np.bincount(of_tile, stop - start, minlength=len(tile))
        follows = own[1:] == own[:-1]
        whole = (rows == row).all() and (samples == sample[own]).all() and (start[1:] == stop[:-1])[follows].all()
        enough = (np.minimum(stop - start, most) <= room).all() and (np.minimum(lengths, most) <= tile_lists[1]).all()
        if not (whole and enough and np.array_equal(np.unique(own), np.arange(len(sample)))):
            return None
        opening, closing = np.append(True, ~follows), np.append(~follows, True)
        found.append((start[opening], stop[closing]))
    (starts, stops), near = found
    same = np.array_equal(starts, near[0]) and np.array_equal(stops, near[1])
    return (sample, starts, stops) if same else None


def _by_slot(tables: list[VertexTable], columns: tuple[str, ...], slots: int) -> np.ndarray:
    """int64[columns, slots]: of the vertex that fills a slot; -1, and so no list of the right row, where none does."""
    found = np.full((len(columns), slots), -1)
    for table in tables:
        found[:, table.columns["slot"]] = [table.columns[each] for each in columns]
    return found


def _runs(first: np.ndarray, last: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """first[0]..last[0]-1, then first[1]..last[1]-1 and so on; and which of them each number is of."""
    lengths = np.maximum(last - first, 0)
    owner = np.repeat(np.arange(len(first)), lengths)
    return np.arange(len(owner)) - (np.cumsum(lengths) - lengths)[owner] + first[owner], owner


def _updating(uses: Uses, v: str, chain: list[Use]) -> VertexTable | None:
    """The table that makes the potentials, if what follows it can be made with it: nothing else reads or writes them
    in between."""
    made = [use for use in uses.written_in(v, chain[0].repeat) if use.place < chain[0].place]
    if len(made) != 1 or not isinstance(made[0].item, VertexTable) or not undisturbed(uses, [made[0], *chain]):
        return None
    between = [use for use in uses.of[v] if use.repeat is made[0].repeat and made[0].place <= use.place]
    early = [use for use in between if use.place <= chain[-1].place and use not in (made[0], chain[0])]
    same = made[0].superstep.phase == chain[0].superstep.phase
    return made[0].item if same and not early else None


class _Selection:
    """The lists of spikes of one turn or of several."""

    at_once = False

    def __init__(self, memory: Memory, v: str, writes: tuple[str, str], ranges: Any, limits: Any):
        self._memory, self._limits = memory, limits
        self.reads: tuple[str, ...] = (v,)
        self.writes: tuple[str, ...] = writes
        self._ranges = tuple(np.ascontiguousarray(each, np.int64) for each in ranges)

    def before(self, _t: int) -> None:
        """Nothing is the same in all turns."""

    @property
    def call(self) -> Call:
        """Of one turn."""
        return Call(run=lambda _t, *arrays: self._make(*arrays), names=(*self.reads, *self.writes))

    def __call__(self, read: dict[str, np.ndarray], made: dict[str, np.ndarray]) -> None:
        self._make(*(flat_turns(each) for each in (*read.values(), *(made[name] for name in self.writes))))
        for name in self.writes:
            self._memory.arrays[name][...] = made[name][-1]

    def _make(self, v: np.ndarray, ids: np.ndarray, counts: np.ndarray) -> None:
        """Of samples, or of samples in several turns."""
        compute: Any = select
        (sample, start, stop), batch = self._ranges, len(self._memory.arrays[self.reads[0]])
        turns = len(v) // batch
        samples = (np.arange(turns)[:, None] * batch + sample).reshape(-1)
        given = samples, np.tile(start, turns), np.tile(stop, turns)
        self._memory.share(
            len(samples),
            lambda first, last: compute(v, ids, counts, *(each[first:last] for each in given), *self._limits),
        )
