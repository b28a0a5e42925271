"""What single tiles do in every superstep, beside the sums of `worker_cycles`: their contexts, their cycles in some
timesteps; and the bytes of memory that vertices access."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mimdsim.base.compressed_columns import wide
from mimdsim.program import Program, RecordedActivity, TileFormula
from mimdsim.program.vertex_boxes import boxes_of
from mimdsim.timing.recording import Recording
from mimdsim.timing.static_plan import program_plan
from mimdsim.timing.tile_classes import counter_of
from mimdsim.timing.tile_cycles import Barrel, tile_cycles
from mimdsim.timing.vertex_dispatch import dealt_program, table_flops


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
                np.maximum.at(row, wide(dealt.tiles), np.minimum(wide(dealt.place) + 1, barrel.contexts))
    return found


def bytes_accessed(program: Program, activity: RecordedActivity) -> np.ndarray:
    """int64[supersteps]: bytes of tile memory that vertices read and write, over all executions.

    Estimated from what codelets declare: a vertex accesses every element of its boxes once, an updated one twice; but
    of a box no more elements than the codelet has flops, if it has any, as lists of spikes choose rows of the weights.
    """
    recording, deals = Recording(activity), dealt_program(program)
    found = []
    for superstep, times, _ in program.supersteps():
        total = 0.0
        for table, own in zip(superstep.tables, deals[superstep].extents, strict=True):
            always, by_spikes = table_flops(table, own)
            most = always * times + sum(one.each(0) * recording.total(one.counted, times) for one in by_spikes)
            for field in table.codelet.fields:
                variable = program.variables[table.operands[field.name]]
                elements = float((np.diff(boxes_of(table, field, variable))[..., 0].prod(axis=1)).sum()) * times
                accesses = min(elements, most) if table.codelet.flops else elements
                total += accesses * variable.item_bytes * (1 + (field.access == "update"))
        found.append(round(total))
    return np.array(found, np.int64)


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
                cycles = counter_of(deal.counting, planned.times, recording, *on)(range(planned.times))
                workers = cycles[chosen][:, deal.counting.row_of]  # by timestep, in whichever order they run
            row = np.zeros((len(chosen), program.tiles), np.int64)
            row[:, deal.first : deal.first + deal.tiles] = np.rint(tile_cycles(workers, plan.beside))
            numbers.append(first + index)
            found.append(row)
    columns = np.array(found, np.int64).reshape(len(numbers), len(chosen), program.tiles)
    return chosen, np.array(numbers, np.int64), columns
