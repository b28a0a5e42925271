"""The critical path over chips: between two barriers, during which each runs its own supersteps, the slowest counts.

A superstep that moves bytes over links synchronises all chips, once; every turn of a repeat begins with a barrier. With
sync.scope = "all" every superstep that exchanges does.
Between barriers chips run on their own, each with the syncs of its own exchanges.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from weakref import WeakKeyDictionary

import numpy as np

from mimdsim.costs.fabric import phase_cycles
from mimdsim.machine import MimdMachine
from mimdsim.machine.mimd import Links
from mimdsim.program import Exchange, Program, Superstep
from mimdsim.timing.event import global_exchange_seconds
from mimdsim.timing.loads import SuperstepLoad, synchronised_chips


@dataclass(frozen=True, kw_only=True)
class PathPart:
    """What one superstep adds to the critical path, over all its executions; link is part of exchange."""

    compute: int
    exchange: int
    sync: int
    link: int


@dataclass(kw_only=True)
class _Member:
    """A superstep of the open segment; int64[chips] per execution."""

    index: int
    load: SuperstepLoad
    exchange: np.ndarray
    sync: np.ndarray


@dataclass(frozen=True, kw_only=True, eq=False)
class Waiting:
    """The cycles of a superstep's exchange on a machine, int64[chips] per execution, independent of the loads.

    once: (sync, link) cycles if all chips wait for each other, which closes a segment; else None.
    """

    exchange: np.ndarray
    sync: np.ndarray
    once: tuple[int, int] | None


# by exchange, then links; by program, then machine (compared, as records of machines hold dicts and cannot be keys)
_LINKED: WeakKeyDictionary[Exchange, list[tuple[Links, float]]] = WeakKeyDictionary()
_MOVING: WeakKeyDictionary[Program, list[tuple[MimdMachine, tuple[Waiting, ...]]]] = WeakKeyDictionary()
MACHINES_KEPT = 8


def critical_path(program: Program, machine: MimdMachine, loads: tuple[SuperstepLoad, ...]) -> tuple[PathPart, ...]:
    """One part per superstep, in program order; their sum is the time of the program on all chips."""
    parts: list[PathPart] = []
    waiting = zip(all_waiting(program, machine), loads, strict=True)
    for stretch in program.stretches():
        parts += _stretch_parts(stretch.times, list(islice(waiting, len(stretch.body))))
    return tuple(parts)


def all_waiting(program: Program, machine: MimdMachine) -> tuple[Waiting, ...]:
    """The cycles of every superstep's exchange on `machine`, in program order."""
    known = _MOVING.setdefault(program, [])
    for one, moving in known:
        if one is machine or _move_alike(one, machine):
            return moving
    made = tuple(_moving(program, machine, superstep) for superstep, _, _ in program.supersteps())
    del known[: max(0, len(known) + 1 - MACHINES_KEPT)]
    known.append((machine, made))
    return made


def _move_alike(one: MimdMachine, other: MimdMachine) -> bool:
    """Whether exchanges take the same cycles on both machines, whatever their tiles are."""
    return (one.exchange, one.sync, one.links, one.chip) == (other.exchange, other.sync, other.links, other.chip)


def _moving(program: Program, machine: MimdMachine, superstep: Superstep) -> Waiting:
    exchange = superstep.exchange
    moving = np.zeros(program.chips, np.int64)
    once: tuple[int, int] | None = None
    if exchange is not None:
        moving = phase_cycles(program, exchange, machine)
        if exchange.link_bytes is not None:
            link = round(_link_seconds(exchange, machine.links) * machine.chip.clock_hz)
            barriers = len(exchange.rounds) * machine.barrier_cycles(all_chips=True)
            once = _waiting(machine, barriers, moving.max(initial=0) + link), link
        elif program.chips > 1 and machine.sync.scope == "all" and moving.any():
            once = _waiting(machine, machine.barrier_cycles(all_chips=True), moving.max()), 0
    inside = synchronised_chips(program, superstep) & (moving > 0) & (once is None)
    own = [_waiting(machine, machine.barrier_cycles(all_chips=False), cycles) for cycles in moving.tolist()]
    return Waiting(exchange=moving, sync=np.where(inside, own, 0), once=once)


def _link_seconds(exchange: Exchange, links: Links) -> float:
    """Of all rounds of an exchange over links, message by message; other machines with the same links take as long."""
    known = _LINKED.setdefault(exchange, [])
    for one, seconds in known:
        if one is links or one == links:
            return seconds
    seconds = 0.0
    traffic = np.zeros((links.chips, links.chips), np.int64)  # chips that the program leaves out are idle
    for crossing in exchange.rounds:
        traffic[: len(crossing), : len(crossing)] = crossing
        seconds += global_exchange_seconds(traffic, links)
    del known[: max(0, len(known) + 1 - MACHINES_KEPT)]
    known.append((links, seconds))
    return seconds


def _waiting(machine: MimdMachine, barrier: int, exchange: int) -> int:
    """Cycles of a sync: those of the barrier, and the wait for the last tile of the exchange."""
    return barrier + round(machine.sync.exchange_share * int(exchange))


def _stretch_parts(times: int, supersteps: list[tuple[Waiting, SuperstepLoad]]) -> list[PathPart]:
    found: dict[int, PathPart] = {}
    segment: list[_Member] = []
    for index, (moving, load) in enumerate(supersteps):
        if moving.once is not None:
            _close(segment, times, found)
            segment = []
        segment.append(_Member(index=index, load=load, exchange=moving.exchange, sync=moving.sync))
    _close(segment, times, found)
    parts = []
    for index, (moving, _) in enumerate(supersteps):
        part = found[index]
        if moving.once is not None:
            sync, link = (each * times for each in moving.once)
            part = PathPart(compute=part.compute, exchange=part.exchange + link, sync=part.sync + sync, link=link)
        parts.append(part)
    return parts


def _close(segment: list[_Member], times: int, found: dict[int, PathPart]) -> None:
    """Find the slowest chip of every turn, and what each superstep of the segment took on it."""
    if not segment:
        return
    if segment[0].load.cycles_by_execution.shape[1] == 1:  # no other chip could be slower
        for member in segment:
            found[member.index] = PathPart(
                compute=member.load.cycles,
                exchange=int(member.exchange[0]) * times,
                sync=int(member.sync[0]) * times,
                link=0,
            )
        return
    whole = np.zeros_like(segment[0].load.cycles_by_execution)
    for member in segment:
        whole = whole + member.load.cycles_by_execution + member.exchange + member.sync
    slowest = whole.argmax(axis=1)
    turns = np.arange(times)
    for member in segment:
        found[member.index] = PathPart(
            compute=int(member.load.cycles_by_execution[turns, slowest].sum()),
            exchange=int(member.exchange[slowest].sum()),
            sync=int(member.sync[slowest].sum()),
            link=0,
        )
