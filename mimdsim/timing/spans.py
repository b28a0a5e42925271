"""Supersteps and loop control as spans of a profile, and what makes up the width of its interval."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from mimdsim.base.units import uncertainty
from mimdsim.costs.exchange_endpoint import busiest_tiles, phases_of
from mimdsim.machine import MimdMachine
from mimdsim.machine.mimd import Fabric
from mimdsim.profile import Doubt, Span
from mimdsim.program import Program, Repeat
from mimdsim.timing.critical_path import PathPart
from mimdsim.timing.worker_cycles import SuperstepLoad

EXCHANGE_KIND = "derived"  # the endpoint model is measured, its fixed part derived from profiles
SYNC_KIND = "derived"
LOOP_KIND = "assumed"


def superstep_spans(
    program: Program,
    fabric: Fabric,
    loads: Sequence[SuperstepLoad],
    path: Sequence[PathPart],
    volumes: Sequence[int],
) -> Iterator[Span]:
    """One span per superstep, in program order; volumes: bytes that each receives over all its executions."""
    busiest = iter(busiest_tiles(phases_of(program, fabric), fabric))
    for (superstep, times, _), load, part, volume in zip(program.supersteps(), loads, path, volumes, strict=True):
        slow = next(busiest) if superstep.exchange is not None else None
        waited_for = (
            {}
            if slow is None
            else {
                "exchange_tile": slow.tile,
                "exchange_tile_bytes": slow.wire_bytes,
                "exchange_tile_control_cycles": slow.control_cycles,
            }
        )
        yield Span(
            name=superstep.name,
            op=superstep.op,
            phase=superstep.phase,
            times=times,
            compute_cycles=part.compute,
            exchange_cycles=part.exchange,
            sync_cycles=part.sync,
            busy_cycles=load.busy_cycles,
            bytes_received=volume,
            flops=load.flops,
            slowest_tile=load.slowest_tile,
            link_cycles=part.link,
            **waited_for,
        )


@dataclass(frozen=True, kw_only=True)
class Waits:
    """Cycles in which no tile computes, by what they are spent on."""

    exchange: float
    link: float
    sync: float
    loops: float

    @staticmethod
    def of(path: Sequence[PathPart], loops: float) -> Waits:
        link = sum(part.link for part in path)
        exchange = sum(part.exchange for part in path) - link
        return Waits(exchange=exchange, link=link, sync=sum(part.sync for part in path), loops=loops)


@dataclass(frozen=True, kw_only=True)
class OwnShare:
    """What a number of the machine that has an interval of its own makes of the waits; sign: -1 if a larger number
    makes them shorter."""

    name: str
    kind: str
    waits: Waits
    sign: int = 1


def uncertain_parts(
    loads: Sequence[SuperstepLoad],
    path: Sequence[PathPart],
    loops: int,
    machine: MimdMachine,
    own: Sequence[OwnShare] = (),
) -> tuple[Doubt, ...]:
    """What makes up the half width of the interval, widest first; machines with the same names share a source.

    own: numbers whose cycles are doubted by their own intervals, where these are narrower than those of the waits that
    they are part of.
    """
    cycles: dict[tuple[str, str], float] = {}

    def add(name: str, kind: str, more: float) -> None:
        cycles[name, kind] = cycles.get((name, kind), 0.0) + more

    for load, part in zip(loads, path, strict=True):
        for name, kind, share in load.parts:
            add(name, kind, part.compute * share)
    waits = Waits.of(path, loops)
    for name, kind, wait in (
        (f"exchange on the chip, {machine.exchange.model} model", EXCHANGE_KIND, "exchange"),
        ("exchange over links", EXCHANGE_KIND, "link"),
        ("sync, a share of the exchange" if machine.sync.exchange_share else "sync", SYNC_KIND, "sync"),
        ("loop control", LOOP_KIND, "loops"),
    ):
        rest = getattr(waits, wait)
        for one in own:
            if uncertainty(one.kind) >= uncertainty(kind):
                continue
            part_of_it = min(max(getattr(one.waits, wait), 0.0), rest)
            add(one.name, one.kind, part_of_it)
            rest -= part_of_it
        add(name, kind, rest)
    doubts = [
        Doubt(name=name, kind=kind, cycles=round(size), half_width_cycles=round(size * uncertainty(kind)))
        for (name, kind), size in cycles.items()
        if size > 0
    ]
    return tuple(sorted(doubts, key=lambda doubt: (-doubt.half_width_cycles, doubt.name)))


def loop_spans(program: Program, machine: MimdMachine) -> list[Span]:
    """Control of every repeat, once per timestep: counting on one tile, and the sync that informs the others."""
    turn = machine.sync.loop_cycles + machine.barrier_cycles(all_chips=program.chips > 1)
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
