"""The critical path over chips: between two barriers the slowest chip decides, chip by chip its own supersteps.

A superstep that moves bytes over links synchronises all chips, once; every turn of a repeat begins with a barrier. With
sync.scope = "all" every superstep that exchanges does.
Between barriers chips run on their own, each with the syncs of its own exchanges.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mimdsim.costs.fabric import phase_cycles
from mimdsim.machine import MimdMachine
from mimdsim.program import Program, Repeat, Superstep
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
    """A superstep of the open segment: int64[times, chips] or int64[chips] per execution."""

    index: int
    compute: np.ndarray
    exchange: np.ndarray
    sync: np.ndarray


def critical_path(program: Program, machine: MimdMachine, loads: tuple[SuperstepLoad, ...]) -> tuple[PathPart, ...]:
    """One part per superstep, in program order; their sum is the time of the program on all chips."""
    parts: list[PathPart] = []
    stretch: list[Superstep] = []
    waiting = iter(loads)
    for item in program.body:
        if isinstance(item, Repeat):
            parts += _stretch_parts(program, machine, stretch, 1, [next(waiting) for _ in stretch])
            stretch = []
            body = list(item.body)
            parts += _stretch_parts(program, machine, body, item.times, [next(waiting) for _ in body])
        else:
            stretch.append(item)
    return tuple(parts + _stretch_parts(program, machine, stretch, 1, [next(waiting) for _ in stretch]))


def _stretch_parts(
    program: Program, machine: MimdMachine, body: list[Superstep], times: int, loads: list[SuperstepLoad]
) -> list[PathPart]:
    found: dict[int, PathPart] = {}
    fixed: dict[int, tuple[int, int]] = {}  # (sync, link) cycles of one global exchange
    segment: list[_Member] = []
    for index, (superstep, load) in enumerate(zip(body, loads, strict=True)):
        exchange = superstep.exchange
        moving = np.zeros(program.chips, np.int64)
        if exchange is not None:
            moving = phase_cycles(exchange, machine.exchange, program.tiles_per_chip, program.chips)
            if exchange.link_bytes is not None:
                _close(segment, times, found)
                segment = []
                traffic = np.zeros((machine.links.chips, machine.links.chips), np.int64)  # chips left over are silent
                traffic[: program.chips, : program.chips] = exchange.link_bytes
                seconds = global_exchange_seconds(traffic, machine.links)
                fixed[index] = machine.sync.external_cycles, round(seconds * machine.chip.clock_hz)
            elif program.chips > 1 and machine.sync.scope == "all" and moving.any():
                _close(segment, times, found)
                segment = []
                fixed[index] = machine.sync.external_cycles, 0
        inside = synchronised_chips(program, superstep) & (moving > 0) & (index not in fixed)
        sync = np.where(inside, machine.sync.internal_cycles, 0)
        segment.append(_Member(index=index, compute=load.cycles_by_execution, exchange=moving, sync=sync))
    _close(segment, times, found)
    parts = []
    for index in range(len(body)):
        part = found[index]
        sync_once, link_once = fixed.get(index, (0, 0))
        parts.append(
            PathPart(
                compute=part.compute,
                exchange=part.exchange + link_once * times,
                sync=part.sync + sync_once * times,
                link=link_once * times,
            )
        )
    return parts


def _close(segment: list[_Member], times: int, found: dict[int, PathPart]) -> None:
    """The slowest chip of every turn, and what each superstep of the segment took on it."""
    if not segment:
        return
    whole = np.zeros_like(segment[0].compute)
    for member in segment:
        whole = whole + member.compute + member.exchange + member.sync
    slowest = whole.argmax(axis=1)
    turns = np.arange(times)
    for member in segment:
        found[member.index] = PathPart(
            compute=int(member.compute[turns, slowest].sum()),
            exchange=int(member.exchange[slowest].sum()),
            sync=int(member.sync[slowest].sum()),
            link=0,
        )
