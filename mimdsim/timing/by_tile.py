"""What single tiles do in every superstep, beside the sums of `mimdsim.timing.loads`: their contexts, and their cycles
in some timesteps."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mimdsim.program import Program, RecordedActivity, TileFormula
from mimdsim.timing.classes import counted_cycles
from mimdsim.timing.dealing import dealt_program
from mimdsim.timing.plan import program_plan
from mimdsim.timing.recording import Recording
from mimdsim.timing.tile_cycles import Barrel, tile_cycles


def contexts_with_work(program: Program, barrel: Barrel) -> np.ndarray:
    """int64[supersteps, tiles]: worker contexts that have a vertex; a library vertex uses all that it starts."""
    deals = dealt_program(program)
    rows = [deals[superstep] for superstep, _, _ in program.supersteps()]
    found = np.zeros((len(rows), program.tiles), np.int64)
    for (superstep, _, _), deal, row in zip(program.supersteps(), rows, found, strict=True):
        for table, dealt in zip(superstep.tables, deal.dealt, strict=True):
            if isinstance(table.codelet.cost, TileFormula):
                row[table.tiles] = barrel.working
            elif dealt is not None:
                np.maximum.at(row, dealt.tile + deal.first, np.minimum(dealt.place + 1, barrel.contexts))
    return found


def cycles_in_timesteps(
    program: Program, activity: RecordedActivity, barrel: Barrel, timesteps: Sequence[int]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(timesteps int64[W] that the program has, supersteps int64[R] that run once in each, busy cycles of tiles
    int64[R, W, tiles])."""
    every = max((len(stretch.timesteps) for stretch in program.stretches()), default=1)
    chosen = np.array([timestep for timestep in timesteps if 0 <= timestep < every], np.int64)
    recording = Recording(activity)
    numbers, found, begin = [], [], 0
    for stretch, planned in zip(program.stretches(), program_plan(program, barrel), strict=True):
        first, begin = begin, begin + len(stretch.body)
        if len(stretch.timesteps) != every or every == 1:
            continue
        for index, plan in enumerate(planned.plans):
            workers, deal = plan.workers[None], plan.deal
            if deal.counting is not None:
                on = barrel.contexts, barrel.issue_cycles, barrel.compiled_dual_issue
                cycles = counted_cycles(deal.counting, planned.times, recording, *on)
                workers = cycles[chosen][:, deal.counting.row_of]  # by timestep, in whichever order they run
            row = np.zeros((len(chosen), program.tiles), np.int64)
            row[:, deal.first : deal.first + deal.tiles] = np.rint(tile_cycles(workers, plan.beside))
            numbers.append(first + index)
            found.append(row)
    columns = np.array(found, np.int64).reshape(len(numbers), len(chosen), program.tiles)
    return chosen, np.array(numbers, np.int64), columns
