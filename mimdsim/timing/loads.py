"""Compute cycles of every superstep, from the cost of its vertices and the recorded spikes.

A tile's worker contexts issue in strict round robin, each at most one bundle every `issue_cycles`. Vertices of a table
are dealt to the contexts in turn. A compute set takes a tile

    max(issue_cycles * longest context, all bundles together)  +  cycles of its library vertices
    + arranged fragments * arrange_fragment_bundles, the contexts sharing them, + arranged bytes at the copy's rate

and tiles that are not synchronised go on without waiting: between two syncs a chip takes the longest *sum*. An exchange
synchronises the chips whose tiles take part, one over links all of them.
The result depends on the machine only through what `Barrel` holds, and is kept for re-timing; what spikes do not
change of it (`mimdsim.timing.plan`) also for other activities.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from mimdsim.base.errors import MappingError
from mimdsim.numerics import loads as numerics
from mimdsim.program import Program, RecordedActivity, Repeat, Superstep
from mimdsim.program.codelet import UNCERTAINTY
from mimdsim.timing.extents import Recording, add_recorded, total_recorded
from mimdsim.timing.plan import Barrel, SuperstepPlan, library_cycles, program_plan, synchronised_chips


@dataclass(frozen=True, kw_only=True, eq=False)
class SuperstepLoad:
    """Compute of one superstep over all its executions, in tile cycles.

    cycles_by_execution int64[times, chips]: what it adds to the critical path of each chip; busy_part int64[tiles from
    first_tile on]; flops and issued bundles over all tiles and executions, a library vertex counted as one bundle a
    cycle; parts: (what costs, kind of source, share of the busy cycles).
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
        """Relative, of the compute cycles."""
        return sum(share * UNCERTAINTY[kind] for _, kind, share in self.parts)

    @property
    def cycles(self) -> int:
        """On the slowest chip of every execution."""
        return int(self.cycles_by_execution.max(axis=1).sum())

    @property
    def busy(self) -> np.ndarray:
        """int64[total_tiles]"""
        spread = np.zeros(self.total_tiles, np.int64)
        spread[self.first_tile : self.first_tile + len(self.busy_part)] = self.busy_part
        return spread

    @property
    def slowest_tile(self) -> int:
        return self.first_tile + int(self.busy_part.argmax()) if len(self.busy_part) else 0


@lru_cache(maxsize=8)
def program_loads(program: Program, activity: RecordedActivity, barrel: Barrel) -> tuple[SuperstepLoad, ...]:
    """One load per superstep in program order. Raises MappingError when activity lacks a layer the program needs."""
    for layer, names in program.recorded.items():
        batch = program.variables[names[0]].shape[-2]
        if layer in activity.counts and activity.counts[layer].shape[1] != batch:
            raise MappingError(
                f"recorded activity has a batch of {activity.counts[layer].shape[1]}, the program {batch}: "
                "record it with a run of the same batch"
            )
    loads: list[SuperstepLoad] = []
    for item in program.body:
        if isinstance(item, Repeat):
            loads += _stretch(program, item.body, item.times, activity, barrel)
    tops = _tops(program)
    single = {
        id(step): load
        for stretch in tops
        for step, load in zip(stretch, _stretch(program, tuple(stretch), 1, activity, barrel), strict=True)
    }
    repeated = iter(loads)
    return tuple(single[id(step)] if id(step) in single else next(repeated) for step, _, _ in program.supersteps())


def _tops(program: Program) -> list[list[Superstep]]:
    """Runs of supersteps outside repeats."""
    runs: list[list[Superstep]] = [[]]
    for item in program.body:
        if isinstance(item, Repeat):
            runs.append([])
        else:
            runs[-1].append(item)
    return runs


def _stretch(
    program: Program, body: tuple[Superstep, ...], times: int, activity: RecordedActivity, barrel: Barrel
) -> list[SuperstepLoad]:
    """Loads of consecutive supersteps; each turn of a repeat begins with a sync."""
    per_chip = program.tiles_per_chip
    since_sync = np.zeros((program.tiles, times), np.float64)
    longest = np.zeros((program.chips, times))
    plans = program_plan(program, barrel)
    recording = Recording(activity, times)
    busiest = [plan.tiles for plan in (plans[id(superstep)] for superstep in body) if plan.tables]
    most = max(busiest, default=0)
    # memory of the largest superstep for all: to ask for new pages costs more than to write to these
    scratch = np.empty((most * barrel.contexts, times)), np.empty((most, times))
    loads = []
    for superstep in body:
        plan = plans[id(superstep)]
        for chip in np.flatnonzero(plan.synchronised).tolist():
            since_sync[chip * per_chip : (chip + 1) * per_chip] = 0
            longest[chip] = 0
        cycles, weights = _tile_cycles(plan, times, recording, barrel, scratch)
        first, last = plan.first, plan.first + plan.tiles
        after = longest.copy()
        for chip in range(first // per_chip, -(-last // per_chip)):
            low, high = max(first, chip * per_chip), min(last, (chip + 1) * per_chip)
            numerics.advance(since_sync[low:high], after[chip], cycles[low - first : high - first])
        busy = cycles.sum(axis=1) * (times if cycles.shape[1] < times else 1)
        flops = plan.flops * times + sum(total_recorded(term, recording) for term in plan.counted_flops)
        whole = sum(weights.values())
        loads.append(
            SuperstepLoad(
                cycles_by_execution=(np.rint(after) - np.rint(longest)).astype(np.int64).T,
                first_tile=first,
                busy_part=np.rint(busy).astype(np.int64),
                total_tiles=program.tiles,
                flops=round(flops),
                parts=tuple((name, kind, weight / whole) for (name, kind), weight in weights.items() if weight),
                bundles=round(whole),
            )
        )
        longest = after
    return loads


def _tile_cycles(
    plan: SuperstepPlan, times: int, recording: Recording, barrel: Barrel, scratch: tuple[np.ndarray, np.ndarray]
) -> tuple[np.ndarray, dict[tuple[str, str], float]]:
    """float64[tiles, times] cycles of one superstep ([tiles, 1] where all executions are alike), and of what.

    They lie in `scratch` ([most cells, times] and [most tiles, times]) until the next call.
    """
    weights = {part: plan.weights.get(part, 0.0) * times for part in plan.order}
    if not plan.tables:
        return plan.library[:, None], weights
    bundles, cycles = scratch[0][: plan.tiles * barrel.contexts], scratch[1][: plan.tiles]
    bundles.fill(0)
    for table in plan.tables:
        load = bundles[table.first : table.last]
        added = sum(add_recorded(load, table.cell, term, recording) for term in table.terms)
        load += table.constant[:, None]
        weights[table.part] += added + float(table.constant.sum()) * times
    cycles[:] = plan.library[:, None]
    numerics.add_barrel(cycles, bundles, barrel.contexts, barrel.issue_cycles)
    return cycles, weights


__all__ = ["Barrel", "SuperstepLoad", "library_cycles", "program_loads", "synchronised_chips"]
