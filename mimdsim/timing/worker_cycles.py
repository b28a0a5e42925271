"""Compute cycles of every superstep, from the cost of its vertices and the recorded spikes.

Vertices of a table go to the contexts in turn. What they and the rest of its work take a tile is in
`mimdsim.timing.tile_cycles`; tiles that are not synchronised continue without waiting: between two syncs a chip takes
the longest *sum*. An exchange synchronises the chips whose tiles take part; one over links, all chips. The result
depends on the machine only through the fields of `TileIssue`, and is kept for re-timing; the part that does not depend
on spikes (`mimdsim.timing.static_plan`) is kept for other activities too.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from mimdsim.base.cache import PerObject
from mimdsim.base.compressed_columns import compact
from mimdsim.base.errors import MappingError
from mimdsim.base.units import uncertainty
from mimdsim.numerics.columns import worker_load as numerics
from mimdsim.program import Program, RecordedActivity
from mimdsim.timing.recording import Recording
from mimdsim.timing.static_plan import DataDependentSegment, StaticSegment, StraightLinePlan, straight_line_plans
from mimdsim.timing.tile_classes import counter_of
from mimdsim.timing.tile_cycles import TileIssue, tile_cycles
from mimdsim.timing.vertex_dispatch import synchronised_chips


@dataclass(frozen=True, kw_only=True, eq=False)
class SuperstepLoad:
    """Compute of one superstep over all its executions, in tile cycles.

    cycles_by_execution int64[times, chips]: what it adds to the critical path of each chip; busy_part int[tiles from
    first_tile on], `compact`; flops and issued bundles over all tiles and executions, a library vertex counted as one
    bundle per cycle; parts: (what costs, kind of source, share of the busy cycles).
    """

    cycles_by_execution: np.ndarray
    first_tile: int
    busy_part: np.ndarray
    total_tiles: int
    flops: int
    parts: tuple[tuple[str, str, float], ...]
    bundles: int = 0

    @property
    def uncertainty(self) -> float:
        """Relative uncertainty of the compute cycles."""
        return sum(share * uncertainty(kind) for _, kind, share in self.parts)

    @cached_property
    def cycles(self) -> int:
        """Cycles on the slowest chip of every execution."""
        return int(self.cycles_by_execution.max(axis=1).sum())

    @property
    def busy(self) -> np.ndarray:
        """int64[total_tiles]"""
        spread = np.zeros(self.total_tiles, np.int64)
        spread[self.first_tile : self.first_tile + len(self.busy_part)] = self.busy_part
        return spread

    @cached_property
    def busy_cycles(self) -> int:
        """Busy cycles of all tiles together."""
        return int(self.busy_part.sum(dtype=np.int64))

    @cached_property
    def slowest_tile(self) -> int:
        return self.first_tile + int(self.busy_part.argmax()) if len(self.busy_part) else 0


_Loads = tuple[SuperstepLoad, ...]
_LOADS: PerObject[PerObject[_Loads]] = PerObject()  # of an activity, those of a program
CYCLES_AT_ONCE = 1 << 22  # of classes in some turns


def program_loads(program: Program, activity: RecordedActivity, issue: TileIssue) -> _Loads:
    """One load per superstep in program order, kept for re-timing; later changes to the activity in place go unnoticed.
    Raises MappingError if the activity lacks a layer that the program needs."""
    of_activity = _LOADS.get(activity, None, PerObject)
    return of_activity.get(program, issue, lambda: _program_loads(program, activity, issue))


def _program_loads(program: Program, activity: RecordedActivity, issue: TileIssue) -> tuple[SuperstepLoad, ...]:
    for layer, names in program.recorded.items():
        batch = program.variables[names[0]].shape[-2]
        if layer in activity.counts and activity.counts[layer].shape[1] != batch:
            raise MappingError(
                f"recorded activity has a batch of {activity.counts[layer].shape[1]}, the program {batch}: "
                "record it with a run of the same batch"
            )
    recording = Recording(activity)
    return tuple(
        load
        for stretch, known in _static_loads(program, issue)
        for load in _loads_of(program, stretch, known, recording, issue)
    )


@lru_cache(maxsize=8)
def _static_loads(program: Program, issue: TileIssue) -> tuple[tuple[StraightLinePlan, dict[int, SuperstepLoad]], ...]:
    """Every straight line with the loads of its supersteps that do not depend on spikes, by position."""
    lines = []
    for stretch in straight_line_plans(program, issue):
        added = _AddedCycles(stretch, program, {})
        for segment in stretch.segments:
            if isinstance(segment, StaticSegment):
                added.add_static(segment)
        known = {
            index: _load(program, stretch, index, added, None, issue.compiled_dual_issue)
            for index in stretch.static_supersteps()
        }
        lines.append((stretch, known))
    return tuple(lines)


class _AddedCycles:
    """What the supersteps of a straight line, except those already known, add to the longest sum of every chip since
    its last sync, int64[times, chips], and to the sums of its tiles, float64[tiles]."""

    def __init__(self, stretch: StraightLinePlan, program: Program, known: Container[int]):
        self._stretch, self._per_chip = stretch, program.tiles_per_chip
        open_ones = [index for index in range(len(stretch.plans)) if index not in known]
        self.cycles = {index: np.zeros((stretch.times, program.chips), np.int64) for index in open_ones}
        self.busy = {index: np.zeros(stretch.plans[index].placement.tiles) for index in open_ones}
        self._busy: dict[tuple[int, int], np.ndarray] = {}  # of the classes of a chip in a superstep, so far

    def add_static(self, segment: StaticSegment) -> None:
        """Add a segment that does not depend on spikes."""
        each = np.diff(np.rint(segment.reached), prepend=0.0)
        for index, cycles in zip(segment.indices, each, strict=True):
            if index in self.cycles:
                plan = self._stretch.plans[index]
                own, _ = plan.placement.on_chip(segment.chip, self._per_chip)
                self.cycles[index][:, segment.chip] = cycles
                of_tiles = plan.cycles(own)
                assert of_tiles is not None
                self.busy[index][own] = of_tiles * self._stretch.times

    def add_data_dependent(
        self, segment: DataDependentSegment, turns: range, counted: Callable[[int], np.ndarray]
    ) -> None:
        """Add some turns, the first before the others, of any other segment; counted(index) gives cycles [turns, rows]
        of the supersteps that count spikes."""
        some = slice(turns.start, turns.stop)
        since_sync, (longest, before) = np.zeros((len(turns), segment.classes)), np.zeros((2, len(turns)))
        for member in segment.members:
            placement = self._stretch.plans[member.index].placement
            if placement.counting is None:
                workers = np.ascontiguousarray(member.workers)[None]
            else:
                workers = counted(member.index)[:, member.row]
            busy = self._busy.setdefault((segment.chip, member.index), np.zeros(segment.classes))
            cycles = tile_cycles(workers, np.ascontiguousarray(member.beside))
            numerics.advance(since_sync, longest, cycles, busy)
            after = np.rint(longest)
            self.cycles[member.index][some, segment.chip] = after - before
            if turns.stop == self._stretch.times:
                own, here = placement.on_chip(segment.chip, self._per_chip)
                self.busy[member.index][own] = self._busy.pop((segment.chip, member.index))[segment.class_of[here]]
            before = after


def _loads_of(
    program: Program, stretch: StraightLinePlan, known: dict[int, SuperstepLoad], recording: Recording, issue: TileIssue
) -> list[SuperstepLoad]:
    """Loads of consecutive supersteps; each turn of a repeat begins with a sync."""
    counters: dict[int, Callable[[range], np.ndarray]] = {}
    cycles: dict[int, np.ndarray] = {}

    def counted(index: int) -> np.ndarray:
        if index not in counters:
            counting = stretch.plans[index].placement.counting
            assert counting is not None
            counters[index] = counter_of(counting, stretch.times, recording, issue)
        if index not in cycles:
            cycles[index] = counters[index](turns)
        return cycles[index] if program.chips > 1 else cycles.pop(index)

    added = _AddedCycles(stretch, program, known)
    data_dependent = [segment for segment in stretch.segments if isinstance(segment, DataDependentSegment)]
    at_once = max(1, CYCLES_AT_ONCE // max((segment.classes for segment in data_dependent), default=1))
    for first in range(0, stretch.times, at_once):
        turns = range(first, min(first + at_once, stretch.times))
        cycles.clear()
        for segment in data_dependent:
            added.add_data_dependent(segment, turns, counted)
    for one in stretch.segments:
        if isinstance(one, StaticSegment):
            added.add_static(one)
    return [
        known[index] if index in known else _load(program, stretch, index, added, recording, issue.compiled_dual_issue)
        for index in range(len(stretch.plans))
    ]


def _load(
    program: Program,
    stretch: StraightLinePlan,
    index: int,
    added: _AddedCycles,
    recording: Recording | None,
    dual_issue: float,
) -> SuperstepLoad:
    """recording: None if nothing depends on it."""
    plan, times = stretch.plans[index], stretch.times
    weights = {part: weight * times for part, weight in plan.weights.items()}
    flops = plan.placement.flops * times
    if recording is not None:
        for part, term in plan.counted_weights:
            weights[part] += term.bundles(dual_issue) * recording.total(term, times)
        flops += sum(term.bundles(0) * recording.total(term, times) for term in plan.placement.counted_flops)
    whole = sum(weights.values())
    busy = compact(np.rint(added.busy.pop(index)).astype(np.int64))[:]
    for kept in (added.cycles[index], busy):  # for the next caller
        kept.flags.writeable = False
    return SuperstepLoad(
        cycles_by_execution=added.cycles[index],
        first_tile=plan.placement.first,
        busy_part=busy,
        total_tiles=program.tiles,
        flops=round(flops),
        parts=tuple((name, kind, weight / whole) for (name, kind), weight in weights.items() if weight),
        bundles=round(whole),
    )


__all__ = ["SuperstepLoad", "program_loads", "synchronised_chips"]
