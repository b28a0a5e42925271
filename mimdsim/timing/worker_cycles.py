"""Compute cycles of every superstep, from the cost of its vertices and the recorded spikes.

Vertices of a table go to the contexts in turn. What they and the rest of its work take a tile is in
`mimdsim.timing.tile_cycles`; tiles that are not synchronised continue without waiting: between two syncs a chip takes
the longest *sum*. An exchange synchronises the chips whose tiles take part; one over links, all chips. The result
depends on the machine only through the fields of `TileIssue`, and is kept for re-timing; the part that does not depend
on spikes (`mimdsim.timing.static_plan`) is kept for other activities too.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np

from mimdsim.base.cache import PerObject
from mimdsim.base.compressed_columns import compact
from mimdsim.base.errors import MappingError
from mimdsim.costs.core_costs import with_moved_bytes
from mimdsim.costs.isa_costs import with_machine_costs
from mimdsim.machine import MimdMachine
from mimdsim.numerics.columns import worker_load as numerics
from mimdsim.program import Program, RecordedActivity
from mimdsim.timing.recording import Recording
from mimdsim.timing.static_plan import (
    DataDependentSegment,
    StaticSegment,
    StraightLinePlan,
    SuperstepPlan,
    straight_line_plans,
)
from mimdsim.timing.tile_classes import PlacedTable, counter_of
from mimdsim.timing.tile_cycles import TileIssue, tile_cycles


@dataclass(frozen=True, kw_only=True, eq=False)
class SuperstepLoad:
    """Compute of one superstep over all its executions, in tile cycles.

    cycles_by_execution int64[times, chips]: what it adds to the critical path of each chip; busy_part int[tiles from
    first_tile on], `compact`; flops and issued bundles over all tiles and executions, a library vertex counted as one
    bundle per cycle in which a context may issue; parts: (what costs, kind of source, share of the busy cycles of all
    tiles); operations: (operation, layer, such a share), without arranging rows.
    """

    cycles_by_execution: np.ndarray
    first_tile: int
    busy_part: np.ndarray
    total_tiles: int
    flops: int
    parts: tuple[tuple[str, str, float], ...]
    operations: tuple[tuple[str, str, float], ...] = ()
    bundles: int = 0
    by_tile: Callable[[Recording], np.ndarray] = lambda _: np.zeros((1, 0), np.int64)
    """int64[times or 1, tiles from first_tile on]: busy cycles of every execution, by timestep; one if all are
    equal. Of the recording of the activity that the load was made with."""
    activity: Callable[[], RecordedActivity | None] = lambda: None
    """The activity, as long as others keep it."""

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


_LOADS: PerObject[PerObject[tuple[SuperstepLoad, ...]]] = PerObject()  # of an activity, those of a program
CYCLES_AT_ONCE = 1 << 22  # of classes in some turns


def program_loads(program: Program, activity: RecordedActivity, issue: TileIssue) -> tuple[SuperstepLoad, ...]:
    """One load per superstep in program order, kept for re-timing; later changes to the activity in place go unnoticed.
    Raises MappingError if the activity lacks a layer that the program needs."""
    of_activity = _LOADS.get(activity, None, PerObject)
    return of_activity.get(program, issue, lambda: _program_loads(program, activity, issue))


def _program_loads(program: Program, activity: RecordedActivity, issue: TileIssue) -> tuple[SuperstepLoad, ...]:
    for layer, names in program.recorded.items():
        batch = program.variables[names[0]].shape[-2] // program.observables.positions.get(layer, 1)
        if layer in activity.counts and activity.counts[layer].shape[1] != batch:
            raise MappingError(
                f"recorded activity has a batch of {activity.counts[layer].shape[1]}, the program {batch}: "
                "record it with a run of the same batch"
            )
    recording = Recording(activity)
    return tuple(
        load for line in straight_line_plans(program, issue) for load in _loads_of(program, line, recording, issue)
    )


def _loads_of(program: Program, line: StraightLinePlan, recording: Recording, issue: TileIssue) -> list[SuperstepLoad]:
    """Loads of consecutive supersteps; each turn of a repeat begins with a sync."""
    # what each superstep adds to the longest sum of every chip since its last sync, and to the sums of its tiles
    cycles = [np.zeros((line.times, program.chips), np.int64) for _ in line.plans]
    busy = [np.zeros(plan.placement.tiles) for plan in line.plans]
    for segment in line.segments:
        if isinstance(segment, StaticSegment):
            each = np.diff(np.rint(segment.reached), prepend=0.0)
            for index, added in zip(segment.indices, each, strict=True):
                own, _ = line.plans[index].placement.on_chip(segment.chip, program.tiles_per_chip)
                cycles[index][:, segment.chip] = added
                busy[index][own] = line.plans[index].cycles(own) * line.times
    _add_data_dependent(program, line, recording, issue, cycles, busy)
    return [
        _load(program, line, plan, recording, issue, cycles[index], busy[index])
        for index, plan in enumerate(line.plans)
    ]


def _add_data_dependent(
    program: Program,
    line: StraightLinePlan,
    recording: Recording,
    issue: TileIssue,
    cycles: list[np.ndarray],
    busy: list[np.ndarray],
) -> None:
    """Add the segments that count spikes, some turns at a time, to the cycles and busy cycles of the supersteps."""
    segments = [segment for segment in line.segments if isinstance(segment, DataDependentSegment)]
    counters: dict[int, Callable[[range], np.ndarray]] = {}
    counted: dict[int, np.ndarray] = {}  # cycles [turns, rows] of the supersteps that count spikes, in these turns
    of_classes: dict[tuple[int, int], np.ndarray] = {}  # busy cycles of those of a chip in a superstep, so far
    at_once = max(1, CYCLES_AT_ONCE // max((segment.classes for segment in segments), default=1))
    for first in range(0, line.times, at_once):
        turns = range(first, min(first + at_once, line.times))
        counted.clear()
        for segment in segments:
            since_sync, (longest, before) = np.zeros((len(turns), segment.classes)), np.zeros((2, len(turns)))
            for member in segment.members:
                placement, index = line.plans[member.index].placement, member.index
                workers = np.ascontiguousarray(member.workers)[None]
                if placement.counting is not None:
                    if index not in counters:
                        counters[index] = counter_of(placement.counting, line.times, recording, issue)
                    if index not in counted:
                        counted[index] = counters[index](turns)
                    workers = (counted[index] if program.chips > 1 else counted.pop(index))[:, member.row]
                so_far = of_classes.setdefault((segment.chip, index), np.zeros(segment.classes))
                each = tile_cycles(workers, np.ascontiguousarray(member.beside))
                numerics.advance(since_sync, longest, each, so_far)
                after = np.rint(longest)
                cycles[index][turns.start : turns.stop, segment.chip] = after - before
                if turns.stop == line.times:
                    own, here = placement.on_chip(segment.chip, program.tiles_per_chip)
                    busy[index][own] = of_classes.pop((segment.chip, index))[segment.class_of[here]]
                before = after


def tile_turns(plan: SuperstepPlan, times: int, issue: TileIssue, recording: Recording) -> np.ndarray:
    """int64[times or 1, tiles of the superstep]: as `SuperstepLoad.by_tile`."""
    workers, counting = plan.workers[None], plan.placement.counting
    if counting is not None:
        workers = counter_of(counting, times, recording, issue)(range(times))[:, counting.row_of]
    whole: np.ndarray = np.rint(tile_cycles(workers, plan.beside)).astype(np.int64)
    return whole


def _sums(cycles: Iterable[tuple[tuple[str, str], float]]) -> dict[tuple[str, str], float]:
    """Cycles that are not zero by their keys."""
    found: dict[tuple[str, str], float] = {}
    for key, each in cycles:
        if each:
            found[key] = found.get(key, 0.0) + each
    return found


def _cycles_by_table(bundles: Iterable[tuple[PlacedTable, np.ndarray]], cycles: np.ndarray) -> np.ndarray:
    """float64[tables]: the cycles float64[tiles] that workers take, those of each tile divided between the tables in
    the proportion of the bundles float64[vertices] of their vertices there."""
    issued = np.array([np.bincount(one.tile, weights=each, minlength=len(cycles)) for one, each in bundles])
    whole = issued.sum(axis=0)
    result: np.ndarray = issued @ np.divide(cycles, whole, out=np.zeros(len(cycles)), where=whole > 0)
    return result


def _load(
    program: Program,
    line: StraightLinePlan,
    plan: SuperstepPlan,
    recording: Recording,
    issue: TileIssue,
    cycles: np.ndarray,
    busy: np.ndarray,
) -> SuperstepLoad:
    dual_issue, times, beside = issue.compiled_dual_issue, line.times, plan.beside * float(line.times)
    counted = [
        sum(term.bundles(dual_issue) * recording.total(term, times) for term in one.terms) for _, one in plan.working
    ]
    bundles = sum(counted) + sum(one.total(dual_issue) for _, one in plan.working) * times
    parts = {part: each * times for part, each in plan.parts.items()}
    by_table = busy.sum(keepdims=True) - beside.sum()
    if len(plan.working) > 1:  # spikes are taken to be spread evenly over the vertices of a table
        spread = (
            (one, one.constant(dual_issue) * times + more / max(len(one.place), 1))
            for (_, one), more in zip(plan.working, counted, strict=True)
        )
        by_table = _cycles_by_table(spread, busy - beside)
    for (part, _), each in zip(plan.working, by_table.tolist(), strict=False):
        parts[part] += each
    by_source = _sums((part[:2], each) for part, each in parts.items())
    by_operation = _sums((part[2:], each) for part, each in parts.items())
    by_operation.pop(("", ""), None)
    flops = plan.placement.flops * times
    flops += sum(term.bundles(0) * recording.total(term, times) for term in plan.placement.counted_flops)
    whole = sum(parts.values())
    busy_part = compact(np.rint(busy).astype(np.int64))[:]
    for column in (cycles, busy_part):  # for the next caller
        column.flags.writeable = False
    return SuperstepLoad(
        cycles_by_execution=cycles,
        first_tile=plan.placement.first,
        busy_part=busy_part,
        total_tiles=program.tiles,
        flops=round(flops),
        parts=tuple((name, kind, each / whole) for (name, kind), each in by_source.items()),
        operations=tuple((name, layer, each / whole) for (name, layer), each in by_operation.items()),
        bundles=round(bundles + beside.sum() * issue.working / issue.issue_cycles),
        by_tile=partial(tile_turns, plan, times, issue),
        activity=weakref.ref(recording.activity),
    )


# ---- loads of a program on a machine, whose tiles may be limited by the port of their memory
#
# All contexts of a tile share the port: a superstep keeps it busy for at least as long as its bytes take. What a
# superstep adds to the longest sum since the last sync is exact where it begins with one; where tiles run on without,
# it is the larger of what its cycles and its bytes add.


ONE_BYTE_A_CYCLE = TileIssue(  # a copy that arranges rows reads and writes
    contexts=1, issue_cycles=1, vector_bytes=8, arrange_fragment_bundles=0, copy_bytes_per_cycle=0.5
)
_LIMITED: PerObject[PerObject[tuple[SuperstepLoad, ...]]] = PerObject()  # of an activity, those of a program


def machine_loads(program: Program, machine: MimdMachine, activity: RecordedActivity) -> tuple[SuperstepLoad, ...]:
    """One load per superstep of a program as compiled, with the machine's costs; kept, and raises, as
    `program_loads`."""
    issue, port = TileIssue.of(machine), machine.tile.sram_port_bytes_per_cycle
    loads = program_loads(with_machine_costs(program, machine), activity, issue)
    if not port:
        return loads

    def limited() -> tuple[SuperstepLoad, ...]:
        moved, recording = program_loads(with_moved_bytes(program), activity, ONE_BYTE_A_CYCLE), Recording(activity)
        return tuple(_limited(load, most, port, recording) for load, most in zip(loads, moved, strict=True))

    return _LIMITED.get(activity, None, PerObject).get(program, (machine.costs, issue, port), limited)


def _limited(load: SuperstepLoad, moved: SuperstepLoad, port: float, recording: Recording) -> SuperstepLoad:
    """moved: bytes for cycles."""
    assert load.first_tile == moved.first_tile

    def longer(cycles: np.ndarray, size: np.ndarray) -> np.ndarray:
        most: np.ndarray = np.maximum(cycles, np.rint(size / port).astype(np.int64))
        return most

    def by_tile(of: Recording) -> np.ndarray:
        return longer(load.by_tile(of), moved.by_tile(of))

    turns, cycles = by_tile(recording), longer(load.cycles_by_execution, moved.cycles_by_execution)
    busy = compact(turns.sum(axis=0) * (len(cycles) // len(turns)))
    for column in (cycles, busy):  # for the next caller
        column.flags.writeable = False
    return replace(load, cycles_by_execution=cycles, busy_part=busy, by_tile=by_tile)
