"""Loads of a program on a machine, whose tiles may be limited by the port of their memory.

All contexts of a tile share the port: a superstep keeps it busy for at least as long as its bytes take. What a
superstep adds to the longest sum since the last sync is exact where it begins with one; where tiles run on without, it
is the larger of what its cycles and its bytes add.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from mimdsim.base.cache import PerObject
from mimdsim.base.compressed_columns import compact
from mimdsim.costs.core_costs import with_moved_bytes
from mimdsim.costs.isa_costs import with_machine_costs
from mimdsim.machine import MimdMachine
from mimdsim.program import Program, RecordedActivity
from mimdsim.timing.recording import Recording
from mimdsim.timing.tile_cycles import TileIssue
from mimdsim.timing.worker_cycles import SuperstepLoad, program_loads

ONE_BYTE_A_CYCLE = TileIssue(  # a copy that arranges rows reads and writes
    contexts=1, issue_cycles=1, vector_bytes=8, arrange_fragment_bundles=0, copy_bytes_per_cycle=0.5
)
_LOADS: PerObject[PerObject[tuple[SuperstepLoad, ...]]] = PerObject()  # of an activity, those of a program


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

    return _LOADS.get(activity, None, PerObject).get(program, (machine.costs, issue, port), limited)


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
