"""Loads of a program on a machine, whose tiles may be limited by the port of their memory.

All contexts of a tile share the port: a superstep keeps it busy for at least as long as its bytes take. Of a superstep
that begins with a sync this is exact; where tiles run on without one, the larger counts of what its cycles and its
bytes add to the longest sum since the last sync. A tile's busy cycles over all executions are at least its bytes, too.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from mimdsim.base.compressed_columns import compact
from mimdsim.costs.isa_costs import with_machine_costs
from mimdsim.costs.moved_bytes import with_moved_bytes
from mimdsim.machine import MimdMachine
from mimdsim.program import Program, RecordedActivity
from mimdsim.timing.tile_cycles import TileIssue
from mimdsim.timing.worker_cycles import SuperstepLoad, program_loads

ONE_BYTE_A_CYCLE = TileIssue(  # a copy that arranges rows reads and writes
    contexts=1, issue_cycles=1, vector_bytes=8, arrange_fragment_bundles=0, copy_bytes_per_cycle=0.5
)


def machine_loads(program: Program, machine: MimdMachine, activity: RecordedActivity) -> tuple[SuperstepLoad, ...]:
    """One load per superstep of a program as compiled, with the machine's costs; raises as `program_loads`."""
    loads = program_loads(with_machine_costs(program, machine), activity, TileIssue.of(machine))
    port = machine.tile.sram_port_bytes_per_cycle
    if not port:
        return loads
    moved = program_loads(with_moved_bytes(program), activity, ONE_BYTE_A_CYCLE)
    return tuple(_limited(load, most, port) for load, most in zip(loads, moved, strict=True))


def _limited(load: SuperstepLoad, moved: SuperstepLoad, port: float) -> SuperstepLoad:
    """moved: bytes for cycles."""
    assert load.first_tile == moved.first_tile
    cycles, busy = (
        np.maximum(one, np.rint(other / port).astype(np.int64))
        for one, other in (
            (load.cycles_by_execution, moved.cycles_by_execution), (load.busy_part.astype(np.int64), moved.busy_part)
        )
    )  # fmt: skip
    busy = compact(busy)
    for column in (cycles, busy):  # for the next caller
        column.flags.writeable = False
    return replace(load, cycles_by_execution=cycles, busy_part=busy)
