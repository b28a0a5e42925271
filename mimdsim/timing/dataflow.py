"""Tiles without barriers: each starts a superstep when its inputs have arrived.

A tile that takes part in an exchange begins it when it is done itself and when all tiles that it reads are, and is busy
with it for as long as its own part and what they send take (`FabricModel.tile_cycles`). What is sent is kept until it
is read, so senders do not wait for readers. Exchanges over links between chips keep their barrier, and loops are
counted by every tile for itself. With the same exchanges a barrier is never faster: there, the slowest tile of every
superstep counts.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mimdsim.base.errors import MimdsimError
from mimdsim.costs.fabric import fabric_of
from mimdsim.machine import MimdMachine
from mimdsim.numerics.columns.routes import latest_senders
from mimdsim.program import Program, Repeat, Superstep
from mimdsim.program.messages import arrivals_of
from mimdsim.timing.recording import Recording
from mimdsim.timing.worker_cycles import SuperstepLoad

COMPUTE, EXCHANGE, SYNC = range(3)
MOST_CELLS = 1 << 27  # executions of a superstep times its tiles, of all supersteps


def longest_path(
    program: Program,
    machine: MimdMachine,
    loads: Sequence[SuperstepLoad],
    sync_of_all: np.ndarray,
    link: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """(int64[supersteps, 3]: compute, exchange and waiting for all chips along the longest path; int64[tiles]: when
    each tile ends, loops counted). sync_of_all, link int64[supersteps]: cycles of the barrier of all chips and of the
    links, of supersteps that have them.

    Raises MimdsimError for a program too large.
    """
    steps = [superstep for superstep, _, _ in program.supersteps()]
    if sum(len(load.cycles_by_execution) * len(load.busy_part) for load in loads) > MOST_CELLS:
        raise MimdsimError(
            f'sync.model = "dataflow": over {MOST_CELLS:,} executions times tiles of {len(steps)} supersteps are not '
            "followed one by one; take fewer tiles or timesteps"
        )
    number = {id(superstep): at for at, superstep in enumerate(steps)}
    fabric = fabric_of(machine)
    own = [None if step.exchange is None else fabric.tile_cycles(program, step.exchange) for step in steps]
    activity = loads[0].activity() if loads else None
    if activity is None:
        raise RuntimeError("the activity of the loads is no longer there")
    recording = Recording(activity)
    busy = [load.by_tile(recording) for load in loads]
    ready, spent = np.zeros(program.tiles, np.int64), np.zeros((program.tiles, len(steps), 3), np.int64)

    def run(superstep: Superstep, turn: int) -> None:
        at = number[id(superstep)]
        exchange = superstep.exchange
        if exchange is not None:
            if sync_of_all[at] or link[at]:
                latest = int(ready.argmax())
                spent[:] = spent[latest]
                spent[:, at, SYNC] += sync_of_all[at]
                spent[:, at, EXCHANGE] += link[at]
                ready[:] = ready[latest] + sync_of_all[at] + link[at]
            arrivals = arrivals_of(program, exchange)
            later, sender = latest_senders(arrivals.reader, arrivals.first, arrivals.sender, ready)
            spent[later], ready[later] = spent[sender], ready[sender]
            ready[exchange.tiles] += own[at]
            spent[exchange.tiles, at, EXCHANGE] += own[at]
        cycles = busy[at][min(turn, len(busy[at]) - 1)]
        tiles = slice(loads[at].first_tile, loads[at].first_tile + len(cycles))
        ready[tiles] += cycles
        spent[tiles, at, COMPUTE] += cycles

    def walk(body: Sequence[Superstep | Repeat], before: int) -> None:
        for item in body:
            if not isinstance(item, Repeat):
                run(item, before)
                continue
            for turn in range(item.times)[:: -1 if item.reverse else 1]:
                ready[:] += machine.sync.loop_cycles
                walk(item.body, before * item.times + turn)

    walk(program.body, 0)
    return spent[int(ready.argmax())], ready
