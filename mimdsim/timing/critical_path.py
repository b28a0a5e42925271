"""The critical path over chips: between two barriers, during which each runs its own supersteps, the slowest counts.

A superstep that moves bytes over links synchronises all chips, once; every turn of a repeat begins with a barrier. With
sync.scope = "all" every superstep that exchanges does.
What transfers of the memory behind the tiles take longer than a superstep's compute is waited for, as exchange. What
goes on of an exchange while the supersteps before it compute (`exchange.overlap`) is not.
Between barriers chips run on their own, each with the syncs of its own exchanges. With sync.model = "dataflow" there
are no barriers on a chip, and the path is the longest over tiles (`timing/dataflow.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np

from mimdsim.base.cache import PerObject
from mimdsim.base.compressed_columns import wide
from mimdsim.costs.chip_links import edge_bytes, link_phase_seconds, link_start_seconds, piece_seconds
from mimdsim.costs.fabric import fabric_of
from mimdsim.costs.fabric.model import hops_apart, moving_tiles
from mimdsim.costs.memory_behind_tiles import refuse_behind_tiles, transfer_cycles, transfers_of
from mimdsim.machine import MimdMachine
from mimdsim.machine.mimd import Chip, Links
from mimdsim.profile import Span
from mimdsim.program import Program, Repeat
from mimdsim.program.overlap import overlaps_of, synchronised_chips
from mimdsim.timing.dataflow import early_part, longest_path
from mimdsim.timing.discrete_event import global_exchange_seconds
from mimdsim.timing.worker_cycles import SuperstepLoad


@dataclass(frozen=True, kw_only=True)
class PathPart:
    """What one superstep adds to the critical path, over all its executions; link and memory are parts of exchange,
    hidden is none: what of it goes on while supersteps before it compute."""

    compute: int
    exchange: int
    sync: int
    link: int
    memory: int = 0
    hidden: int = 0


@dataclass(frozen=True, kw_only=True, eq=False)
class ExchangeWaits:
    """Cycles of the exchanges of all supersteps on a machine, per execution, independent of the loads.

    exchange, sync int64[supersteps, chips]: of every chip. closes bool[supersteps]: all chips wait for each other,
    which closes a segment; they then take sync_of_all and link int64[supersteps] cycles, and no sync of their own.
    late int64[supersteps, chips]: what of a sync is waiting for the last tile of the exchange, not the barrier itself.
    """

    exchange: np.ndarray
    sync: np.ndarray
    closes: np.ndarray
    sync_of_all: np.ndarray
    link: np.ndarray
    late: np.ndarray


_HOPS: PerObject[tuple[np.ndarray, int]] = PerObject()
_LINK_SECONDS: PerObject[np.ndarray] = PerObject()


def critical_path(program: Program, machine: MimdMachine, loads: tuple[SuperstepLoad, ...]) -> tuple[PathPart, ...]:
    """One part per superstep, in program order; their sum is the time of the program on all chips."""
    waiting = exchange_waits(program, machine)
    refuse_behind_tiles(program, machine)
    if machine.sync.model == "dataflow":
        all_times = [times for _, times, _ in program.supersteps()]
        spent, _ = longest_path(program, machine, loads, waiting.sync_of_all, waiting.link)
        return tuple(
            PathPart(compute=compute, exchange=exchange, sync=sync, link=link * runs, hidden=hidden)
            for (compute, exchange, sync, hidden), link, runs in zip(
                spent.tolist(), waiting.link.tolist(), all_times, strict=True
            )
        )
    memory = _memory_waits(program, machine, loads)
    hidden = _hidden_cycles(program, machine, loads, waiting.exchange)
    first, found = 0, []
    for stretch in program.stretches():
        last = first + len(stretch.body)
        closing = np.flatnonzero(waiting.closes[first + 1 : last]) + first + 1
        for begin, end in pairwise([first, *closing.tolist(), last]):
            segment = slice(begin, end)
            exchange, sync, more = waiting.exchange[segment], waiting.sync[segment], (memory[segment], hidden[segment])
            found.append(_slowest(loads[segment], exchange, sync, more, stretch.times))
        first = last
    times = np.array([times for _, times, _ in program.supersteps()], np.int64)
    compute, exchange, sync, waited, saved = np.concatenate([np.zeros((5, 0), np.int64), *found], axis=1)
    link = waiting.link * times
    columns = compute, exchange + link + waited - saved, sync + waiting.sync_of_all * times, link, waited, saved
    return tuple(
        PathPart(compute=one, exchange=two, sync=three, link=four, memory=five, hidden=six)
        for one, two, three, four, five, six in zip(*(column.tolist() for column in columns), strict=True)
    )


def _slowest(
    loads: Sequence[SuperstepLoad],
    exchange: np.ndarray,
    sync: np.ndarray,
    more: tuple[Sequence[np.ndarray | None], Sequence[np.ndarray | None]],
    times: int,
) -> np.ndarray:
    """int64[5, supersteps]: compute, exchange, sync, waits for memory and hidden exchange on the slowest chip of every
    turn of a segment; more: the last two."""
    if exchange.shape[1] == 1:  # no other chip could be slower
        columns = [[0 if each is None else int(each.sum()) for each in some] for some in more]
        return np.array(
            [[load.cycles for load in loads], exchange[:, 0] * times, sync[:, 0] * times, *columns], np.int64
        )
    compute = [load.cycles_by_execution for load in loads]
    waits, saved = ([each for each in some if each is not None] for some in more)
    slowest = (sum(compute) + sum(waits) - sum(saved) + (exchange + sync).sum(axis=0)).argmax(axis=1)
    turns = np.arange(times)
    own, *columns = (
        [0 if each is None else int(each[turns, slowest].sum()) for each in some] for some in (compute, *more)
    )
    return np.array([own, exchange[:, slowest].sum(axis=1), sync[:, slowest].sum(axis=1), *columns], np.int64)


def _hidden_cycles(
    program: Program, machine: MimdMachine, loads: Sequence[SuperstepLoad], exchange: np.ndarray
) -> tuple[np.ndarray | None, ...]:
    """int64[times, chips] by superstep: cycles of its exchange that go on while the supersteps since the barrier before
    it compute, at most as long as they do; None: none. exchange int64[supersteps, chips]: all cycles of it."""
    found: list[np.ndarray | None] = [None] * len(loads)
    for at, overlap in enumerate(overlaps_of(program) if machine.exchange.overlap else ()):
        if overlap is None:
            continue
        late = 0 if overlap.dependent is None else fabric_of(machine).cycles(program, [overlap.dependent])[0]
        room = np.zeros(loads[at].cycles_by_execution.shape, np.int64)
        for chip, first in enumerate(overlap.since.tolist()):
            room[:, chip] = sum(load.cycles_by_execution[:, chip] for load in loads[first:at])
        found[at] = np.minimum(room, early_part(machine, exchange[at], late))
    return tuple(found)


def _memory_waits(
    program: Program, machine: MimdMachine, loads: Sequence[SuperstepLoad]
) -> tuple[np.ndarray | None, ...]:
    """int64[times, chips] by superstep: what transfers of the memory behind the tiles take longer than compute, which
    hides them but for their latency; None: nothing is transferred."""
    if not program.behind_tiles:
        return (None,) * len(loads)
    assert machine.memory is not None
    moves = transfers_of(program).moved.reshape(len(loads), program.chips, -1).max(axis=2) > 0
    late = np.where(moves, machine.memory.latency_cycles, 0)
    rows = zip(loads, transfer_cycles(program, machine), late, moves, strict=True)
    return tuple(
        np.maximum(cycles - load.cycles_by_execution, 0) + latency if some.any() else None
        for load, cycles, latency, some in rows
    )


def exchange_waits(program: Program, machine: MimdMachine) -> ExchangeWaits:
    """The cycles of the exchanges of all supersteps on `machine`, in program order."""
    (exchanges, synchronised, barriers), sync = _synchronisation(program), machine.sync
    exchange = np.zeros(synchronised.shape, np.int64)
    exchange[exchanges] = fabric_of(machine).cycles(program)
    link = np.rint(_link_seconds(program, machine.links) * machine.chip.clock_hz).astype(np.int64)
    closes = barriers > 0
    if program.chips > 1 and sync.scope == "all" and sync.model != "dataflow":
        closes = closes | exchange.any(axis=1)
        barriers = np.maximum(barriers, 1)
    barrier, barrier_of_all, _ = _barriers(program, machine)
    late = _waits_for_last(machine, exchange)
    late_of_all = _waits_for_last(machine, exchange.max(axis=1, initial=0) + link)
    inside = synchronised & (exchange > 0) & ~closes[:, None] & (sync.model != "dataflow")
    return ExchangeWaits(
        exchange=exchange,
        sync=np.where(inside, barrier + late, 0),
        closes=closes,
        sync_of_all=np.where(closes, barriers * barrier_of_all + late_of_all, 0),
        link=link,
        late=np.where(closes[:, None], late_of_all[:, None], late),
    )


def _barriers(program: Program, machine: MimdMachine) -> tuple[np.ndarray | int, int, int]:
    """Cycles of a barrier: on a chip, of every superstep's exchange int64[supersteps, chips], or of any; of all chips;
    and of one turn of a loop."""
    several = program.chips > 1
    if machine.sync.model == "chip":
        own, every = (machine.barrier_cycles(all_chips=all_chips) for all_chips in (False, True))
        return own, every, every if several else own
    chip, together, rings = machine.chip, machine.exchange.tiles_at_a_place, machine.exchange.rings
    place = chip.tiles, chip.grid_columns, chip.grid, together, rings
    hops, of_all = _HOPS.get(program, place, lambda: _participants(program, chip, together, rings))
    internal = machine.sync.internal_cycles
    own_by_step = internal + np.rint(machine.sync.hop_cycles * hops).astype(np.int64)
    every = machine.barrier_cycles(all_chips=True, hops=of_all)
    turn = 0 if machine.sync.model == "dataflow" else machine.barrier_cycles(all_chips=several, hops=of_all)
    return own_by_step, every, turn


def _participants(program: Program, chip: Chip, together: int, rings: tuple[int, int]) -> tuple[np.ndarray, int]:
    """Hops between the farthest tiles that exchange in every superstep int64[supersteps, chips], and of any chip's that
    have work at all."""
    nobody, steps = np.zeros(0, np.int64), [step for step, _, _ in program.supersteps()]
    groups = [nobody if step.exchange is None else moving_tiles(step.exchange) for step in steps]
    used = np.zeros(program.tiles, bool)
    for group in (*groups, *(wide(table.tiles) for step in steps for table in step.tables)):
        used[group] = True
    every, whole = (hops_apart(program, those, chip, together, rings) for those in (groups, [np.flatnonzero(used)]))
    return every, int(whole.max())


def _waits_for_last(machine: MimdMachine, exchange: np.ndarray) -> np.ndarray:
    """int64: cycles of waiting for the last tile of an exchange."""
    cycles: np.ndarray = np.rint(machine.sync.exchange_share * exchange).astype(np.int64)
    return cycles


@lru_cache(maxsize=8)
def _synchronisation(program: Program) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """On any machine: the numbers of the supersteps that exchange, which chips each superstep synchronises
    bool[supersteps, chips], and how many rounds go over links int64[supersteps]."""
    supersteps = [superstep for superstep, _, _ in program.supersteps()]
    exchanges = [step.exchange for step in supersteps]
    rounds = [0 if one is None or one.link_bytes is None else len(one.rounds) for one in exchanges]
    synchronised = [synchronised_chips(program, step) for step in supersteps]
    return (
        np.array([at for at, one in enumerate(exchanges) if one is not None], np.int64),
        np.array(synchronised, bool).reshape(-1, program.chips),
        np.array(rounds, np.int64),
    )


def _link_seconds(program: Program, links: Links) -> np.ndarray:
    """float64[supersteps]: seconds of every superstep's exchange over links, 0 without one."""
    key = links.model_dump_json(exclude={"sources"})
    return _LINK_SECONDS.get(program, key, lambda: _seconds_over_links(program, links))


def _seconds_over_links(program: Program, links: Links) -> np.ndarray:
    seconds: list[float] = []
    known: dict[bytes, float] = {}  # most supersteps move the same as others
    for superstep, _, _ in program.supersteps():
        exchange = superstep.exchange
        seconds.append(0.0)
        if exchange is None or exchange.link_bytes is None:
            continue
        for crossing in zip(exchange.rounds, exchange.pieces_in_rounds, strict=True):
            key = b"".join(each.tobytes() for each in crossing[: 1 + (links.piece_seconds > 0)])
            if key not in known:
                traffic, pieces = of_all = np.zeros((2, links.chips, links.chips), np.int64)  # other chips are idle
                of_all[:, : program.chips, : program.chips] = crossing
                known[key] = _crossing_seconds(traffic, pieces, links)
            seconds[-1] += known[key]
    return np.array(seconds)


def _crossing_seconds(traffic: np.ndarray, pieces: np.ndarray, links: Links) -> float:
    """Seconds of a global exchange; message by message only if some have to wait for others on an edge."""
    alone = max(edge_bytes((traffic > 0).astype(np.int64), links).values(), default=0) <= 1
    of_bytes = link_phase_seconds(traffic, links) if alone else global_exchange_seconds(traffic, links)
    return max(of_bytes, link_start_seconds(traffic, links) + piece_seconds(pieces, links))


def loop_spans(program: Program, machine: MimdMachine) -> list[Span]:
    """Control of every repeat, once per timestep: counting on one tile, and the sync that informs the others."""
    turn = machine.sync.loop_cycles + _barriers(program, machine)[2]
    turns: dict[Repeat, int] = {}
    phases: dict[Repeat, str] = {}
    for stretch in program.stretches():
        for depth, repeat in enumerate(stretch.repeats):
            turns[repeat] = repeat.times * (turns[stretch.repeats[0]] if depth else 1)
            phases.setdefault(repeat, stretch.body[0].phase)
    return [
        Span(
            name=f"loop control {phases[repeat]}",
            op="repeat",
            phase=phases[repeat],
            times=times,
            compute_cycles=0,
            exchange_cycles=0,
            sync_cycles=turn * times,
            busy_cycles=0,
            bytes_received=0,
            flops=0,
            slowest_tile=0,
        )
        for repeat, times in turns.items()
        if times
    ]
