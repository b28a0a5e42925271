"""Tiles without barriers: each starts a superstep when its inputs have arrived.

A tile that takes part in an exchange begins it when it is done itself and when all tiles that it reads are, and is busy
with it for as long as its own part and what they send take (`FabricModel.tile_cycles`). What is sent is kept until it
is read, so senders do not wait for readers. Exchanges over links between chips keep their barrier, and loops are
counted by every tile for itself. With the same exchanges a barrier is never faster: there, the slowest tile of every
superstep counts. What may be sent early (`exchange.overlap`) begins when these tiles begin to compute what comes before
it, since the exchange before that.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mimdsim.base.errors import MimdsimError
from mimdsim.costs.fabric import fabric_of
from mimdsim.machine import MimdMachine
from mimdsim.numerics.columns.routes import latest_senders
from mimdsim.program import Exchange, Program, Repeat, Superstep
from mimdsim.program.messages import arrivals_of
from mimdsim.program.overlap import overlaps_of
from mimdsim.timing.recording import Recording
from mimdsim.timing.worker_cycles import SuperstepLoad

COMPUTE, EXCHANGE, SYNC, HIDDEN = range(4)
MOST_CELLS = 1 << 27  # executions of a superstep times its tiles, of all supersteps


def longest_path(
    program: Program,
    machine: MimdMachine,
    loads: Sequence[SuperstepLoad],
    sync_of_all: np.ndarray,
    link: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """(int64[supersteps, 4]: compute, exchange, waiting for all chips and hidden exchange along the longest path;
    int64[tiles]: when each tile ends, loops counted). sync_of_all, link int64[supersteps]: cycles of the barrier of all
    chips and of the links, of supersteps that have them.

    Raises MimdsimError for a program too large.
    """
    steps = [superstep for superstep, _, _ in program.supersteps()]
    if sum(len(load.cycles_by_execution) * len(load.busy_part) for load in loads) > MOST_CELLS:
        raise MimdsimError(
            f'sync.model = "dataflow": over {MOST_CELLS:,} executions times tiles of {len(steps)} supersteps are not '
            "followed one by one; take fewer tiles or timesteps"
        )
    return _Tiles(program, machine, steps, loads, sync_of_all, link).ends()


class _Tiles:
    """Where every tile is, and what its longest path so far is made of."""

    def __init__(
        self,
        program: Program,
        machine: MimdMachine,
        steps: list[Superstep],
        loads: Sequence[SuperstepLoad],
        sync_of_all: np.ndarray,
        link: np.ndarray,
    ):
        self.program, self.loads, self.sync_of_all, self.link = program, loads, sync_of_all, link
        self.number = {id(superstep): at for at, superstep in enumerate(steps)}
        self.loop_cycles, fabric = machine.sync.loop_cycles, fabric_of(machine)
        self.own = [None if step.exchange is None else fabric.tile_cycles(program, step.exchange) for step in steps]
        overlap = machine.exchange.overlap
        self.early = _early_cycles(program, machine, steps, self.own) if overlap else [None] * len(steps)
        activity = loads[0].activity() if loads else None
        if activity is None:
            raise RuntimeError("the activity of the loads is no longer there")
        recording = Recording(activity)
        self.busy = [load.by_tile(recording) for load in loads]
        self.ready = np.zeros(program.tiles, np.int64)
        self.spent = np.zeros((program.tiles, len(steps), 4), np.int64)
        self.begun = np.zeros(program.tiles, np.int64)  # when tiles began to compute after the exchange before

    def ends(self) -> tuple[np.ndarray, np.ndarray]:
        self._walk(self.program.body, 0)
        return self.spent[int(self.ready.argmax())], self.ready

    def _walk(self, body: Sequence[Superstep | Repeat], before: int) -> None:
        """before: executions of this body before this one."""
        for item in body:
            if not isinstance(item, Repeat):
                at = self.number[id(item)]
                if item.exchange is not None:
                    self._exchange(item.exchange, at)
                self._compute(at, before)
                continue
            for turn in range(item.times)[:: -1 if item.reverse else 1]:
                self.ready += self.loop_cycles
                self.begun[:] = self.ready
                self._walk(item.body, before * item.times + turn)
            self.begun[:] = self.ready

    def _exchange(self, exchange: Exchange, at: int) -> None:
        ready, spent, begun = self.ready, self.spent, self.begun
        if self.sync_of_all[at] or self.link[at]:
            latest = int(ready.argmax())
            spent[:] = spent[latest]
            spent[:, at, SYNC] += self.sync_of_all[at]
            spent[:, at, EXCHANGE] += self.link[at]
            ready[:] = ready[latest] + self.sync_of_all[at] + self.link[at]
        arrivals = arrivals_of(self.program, exchange)
        later, sender = latest_senders(arrivals.reader, arrivals.first, arrivals.sender, ready)
        spent[later], ready[later] = spent[sender], ready[sender]
        takes, could = self.own[at], self.early[at]
        if could is not None:
            later, sender = latest_senders(arrivals.reader, arrivals.first, arrivals.sender, begun)
            begun[later] = begun[sender]
            hidden = np.minimum(could, (ready - begun)[exchange.tiles])
            takes = takes - hidden
            spent[exchange.tiles, at, HIDDEN] += hidden
        ready[exchange.tiles] += takes
        spent[exchange.tiles, at, EXCHANGE] += takes
        begun[:] = ready

    def _compute(self, at: int, turn: int) -> None:
        cycles = self.busy[at][min(turn, len(self.busy[at]) - 1)]
        first = self.loads[at].first_tile
        tiles = slice(first, first + len(cycles))
        self.ready[tiles] += cycles
        self.spent[tiles, at, COMPUTE] += cycles


def early_part(machine: MimdMachine, whole: np.ndarray, dependent: np.ndarray | int) -> np.ndarray:
    """int64: cycles of exchanges that may go on while the supersteps before them compute, of those of all of them and
    those of the part that waits for this compute."""
    cycles: np.ndarray = np.floor(machine.exchange.overlap * np.maximum(whole - dependent, 0)).astype(np.int64)
    return cycles


def _early_cycles(
    program: Program, machine: MimdMachine, steps: Sequence[Superstep], own: Sequence[np.ndarray | None]
) -> list[np.ndarray | None]:
    """int64[taking part] by superstep: `early_part` of every tile; None: nothing. own: all of their cycles."""
    found: list[np.ndarray | None] = [None] * len(steps)
    for at, (superstep, overlap, whole) in enumerate(zip(steps, overlaps_of(program), own, strict=True)):
        if overlap is None or superstep.exchange is None or whole is None:
            continue
        late = np.zeros(program.tiles, np.int64)
        if overlap.dependent is not None:
            late[overlap.dependent.tiles] = fabric_of(machine).tile_cycles(program, overlap.dependent)
        found[at] = early_part(machine, whole, late[superstep.exchange.tiles])
    return found
