"""The fast path: cycle sums of one training step, over all chips."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from mimdsim.base.errors import DoesNotFit, MappingError
from mimdsim.base.units import show_bytes
from mimdsim.costs.energy import energy_profile
from mimdsim.costs.fabric import busiest_tile, host_exposed_seconds
from mimdsim.machine import MimdMachine
from mimdsim.profile import Assumption, Doubt, EnergyProfile, MemoryProfile, Span, TileColumns, TiledProfile
from mimdsim.program import Program, RecordedActivity, Repeat, Superstep
from mimdsim.program.codelet import UNCERTAINTY
from mimdsim.program.verify import require_sound
from mimdsim.timing.loads import Barrel, SuperstepLoad, program_loads
from mimdsim.timing.path import PathPart, critical_path

EXCHANGE_KIND = "derived"  # the endpoint model is measured, its fixed part derived from profiles
SYNC_KIND = "derived"
LOOP_KIND = "assumed"


def time_program(
    program: Program,
    machine: MimdMachine,
    activity: RecordedActivity,
    memory: MemoryProfile,
    *,
    must_fit: bool = True,
) -> TiledProfile:
    """Cycles of every superstep of one run of `program` on `machine`, with the counts of `activity`.

    Raises MappingError for a program that breaks a rule of the machine or needs more tiles or chips than it has, and
    DoesNotFit for one that needs more tile memory; with must_fit False the profile says so instead.
    """
    refuse_other_machine(program, machine)
    require_sound(program)
    if must_fit and memory.peak_bytes > memory.limit_bytes:
        raise DoesNotFit(
            f"does not fit {machine.name}: tile {memory.peak_tile} needs {show_bytes(memory.peak_bytes)} of "
            f"{show_bytes(memory.limit_bytes)}: spread its variables over more tiles"
        )
    loads = program_loads(program, activity, barrel_of(machine))
    path = critical_path(program, machine, loads)
    moved = _moved(program)
    spans: list[Span] = []
    busy = np.zeros(program.tiles, np.int64)
    steps = zip(program.supersteps(), loads, path, moved.volumes, strict=True)
    for (superstep, times, _), load, part, volume in steps:
        busy[load.first_tile : load.first_tile + len(load.busy_part)] += load.busy_part
        spans.append(
            Span(
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
                **_exchange_tile(program, superstep, machine),
            )
        )
    spans += loop_spans(program, machine)
    loops = sum(span.sync_cycles for span in spans[len(loads) :])
    doubts = what_is_doubted(loads, path, loops, machine)
    clock = machine.chip.clock_hz
    sent = input_bytes(program)
    stream = sent / machine.host.bytes_per_second + machine.host.request_seconds if sent else 0.0
    cycles = sum(span.cycles for span in spans)
    exposed = host_exposed_seconds(stream, cycles / clock, machine.host.prefetch_depth)
    off = sum(doubt.half_width_cycles for doubt in doubts)
    return TiledProfile(
        machine=machine.name,
        title=machine.title if program.chips == 1 else f"{program.chips} chips, each {machine.title}",
        clock_hz=clock,
        tiles=program.tiles,
        chips=program.chips,
        tiles_used=int((busy > 0).sum()),
        worker_contexts=machine.tile.worker_contexts,
        spans=tuple(spans),
        tile_columns=TileColumns(
            grid_columns=machine.chip.grid_columns,
            busy_cycles=tuple(busy.tolist()),
            bytes_sent=moved.sent,
            bytes_received=moved.received,
            peak_bytes=memory.peak_bytes_by_tile,
            always_live_bytes=memory.always_live_bytes_by_tile,
            layer=program.layer_of_tile or ("",) * program.tiles,
        ),
        memory=memory,
        host_seconds=stream,
        host_exposed_seconds=exposed,
        seconds_low=(cycles - off) / clock + exposed,
        seconds_high=(cycles + off) / clock + exposed,
        doubts=doubts,
        exchange_cycles_other_model=_other_model_cycles(program, machine, loads),
        run_name="training step" if program.layers else "run",
        energy=_energy(program, machine, loads, tuple(spans), cycles / clock + exposed),
        assumptions=machine_assumptions(machine) + _program_assumptions(program),
    )


@dataclass(frozen=True, kw_only=True)
class _Moved:
    """Bytes of one training step: received by superstep, sent and received by tile, over links."""

    volumes: tuple[int, ...]
    sent: tuple[int, ...]
    received: tuple[int, ...]
    over_links: int


@lru_cache(maxsize=8)
def _moved(program: Program) -> _Moved:
    sent, received = np.zeros(program.tiles, np.int64), np.zeros(program.tiles, np.int64)
    volumes, over_links = [], 0
    for superstep, times, _ in program.supersteps():
        exchange = superstep.exchange
        volumes.append(0 if exchange is None else int(exchange.column("bytes_received").sum()) * times)
        if exchange is not None:
            sent[exchange.tiles] += exchange.column("bytes_sent") * times
            received[exchange.tiles] += exchange.column("bytes_received") * times
            over_links += 0 if exchange.link_bytes is None else int(exchange.link_bytes.sum()) * times
    return _Moved(
        volumes=tuple(volumes), sent=tuple(sent.tolist()), received=tuple(received.tolist()), over_links=over_links
    )


@lru_cache(maxsize=8)
def _program_assumptions(program: Program) -> tuple[Assumption, ...]:
    return format_assumptions(program) + codelet_assumptions(program)


def _energy(
    program: Program,
    machine: MimdMachine,
    loads: tuple[SuperstepLoad, ...],
    spans: tuple[Span, ...],
    seconds: float,
) -> EnergyProfile | None:
    """Energy of the training step; None if the machine has no energies."""
    if machine.energy is None:
        return None
    return energy_profile(
        machine.energy,
        (
            ("static power", "static_watts", seconds * program.chips),
            ("instructions and own memory", "bundle_joules", sum(load.bundles for load in loads)),
            ("arithmetic", "arithmetic_joules_per_flop", sum(span.flops for span in spans)),
            ("exchange on the chip", "exchange_joules_per_byte", sum(span.bytes_received for span in spans)),
            ("links between chips", "link_joules_per_byte", _moved(program).over_links),
            ("host link", "host_joules_per_byte", input_bytes(program)),
        ),
    )


def barrel_of(machine: MimdMachine) -> Barrel:
    """What compute cycles depend on in the machine's tiles."""
    return Barrel(
        contexts=machine.tile.worker_contexts,
        issue_cycles=machine.tile.issue_cycles,
        vector_bytes=machine.tile.vector_bytes,
        arrange_fragment_bundles=machine.exchange.arrange_fragment_bundles,
        copy_bytes_per_cycle=machine.tile.copy_bytes_per_cycle,
        compiled_dual_issue=machine.tile.compiled_dual_issue,
    )


def refuse_other_machine(program: Program, machine: MimdMachine) -> None:
    if program.tiles_per_chip > machine.chip.tiles or program.chips > machine.links.chips:
        raise MappingError(
            f"the program is placed on {program.chips} chip(s) of {program.tiles_per_chip} tiles, {machine.name} has "
            f"{machine.links.chips} of {machine.chip.tiles}: compile it for this machine"
        )


def _exchange_tile(program: Program, superstep: Superstep, machine: MimdMachine) -> dict[str, int]:
    """Fields of a span: the tile that its exchange waits for."""
    exchange = superstep.exchange
    found = None if exchange is None else busiest_tile(program, exchange, machine.exchange)
    if found is None:
        return {}
    return {
        "exchange_tile": found.tile,
        "exchange_tile_bytes": found.wire_bytes,
        "exchange_tile_control_cycles": found.control_cycles,
    }


def _other_model_cycles(program: Program, machine: MimdMachine, loads: tuple[SuperstepLoad, ...]) -> int:
    """Exchange cycles by the exchange model that is not selected."""
    return sum(part.exchange for part in critical_path(program, _other_model(machine), loads))


_OTHER_MODEL: list[tuple[MimdMachine, MimdMachine]] = []  # the last few used, by identity


def _other_model(machine: MimdMachine) -> MimdMachine:
    for one, changed in _OTHER_MODEL:
        if one is machine:
            return changed
    other = {"endpoint": "planner"}.get(machine.exchange.model, "endpoint")
    changed = machine.model_copy(update={"exchange": machine.exchange.model_copy(update={"model": other})})
    _OTHER_MODEL[:] = [*_OTHER_MODEL[-3:], (machine, changed)]
    return changed


def what_is_doubted(
    loads: tuple[SuperstepLoad, ...], path: tuple[PathPart, ...], loops: int, machine: MimdMachine
) -> tuple[Doubt, ...]:
    """The parts of the interval's half width, widest first; machines with the same names share a source."""
    exchange = f"exchange on the chip, {machine.exchange.model} model"
    sync = "sync, a share of the exchange" if machine.sync.exchange_share else "sync"
    cycles: dict[tuple[str, str], float] = {}

    def add(name: str, kind: str, more: float) -> None:
        cycles[name, kind] = cycles.get((name, kind), 0.0) + more

    for load, part in zip(loads, path, strict=True):
        for name, kind, share in load.parts:
            add(name, kind, part.compute * share)
        add(exchange, EXCHANGE_KIND, part.exchange - part.link)
        add("exchange over links", EXCHANGE_KIND, part.link)
        add(sync, SYNC_KIND, part.sync)
    add("loop control", LOOP_KIND, loops)
    doubts = [
        Doubt(name=name, kind=kind, cycles=round(size), half_width_cycles=round(size * UNCERTAINTY[kind]))
        for (name, kind), size in cycles.items()
        if size > 0
    ]
    return tuple(sorted(doubts, key=lambda doubt: (-doubt.half_width_cycles, doubt.name)))


def loop_spans(program: Program, machine: MimdMachine) -> list[Span]:
    """Control of every repeat, once per timestep: counting on one tile, and the sync that tells all others."""
    spans = []
    sync = machine.sync.internal_cycles if program.chips == 1 else machine.sync.external_cycles
    turns: dict[Repeat, int] = {}
    phases: dict[Repeat, str] = {}
    for stretch in program.stretches():
        for depth, repeat in enumerate(stretch.repeats):
            turns[repeat] = repeat.times * (turns[stretch.repeats[0]] if depth else 1)
            phases.setdefault(repeat, stretch.body[0].phase)
    for repeat, times in turns.items():
        if times:
            spans.append(
                Span(
                    name=f"loop control {phases[repeat]}",
                    op="repeat",
                    phase=phases[repeat],
                    times=times,
                    compute_cycles=0,
                    exchange_cycles=0,
                    sync_cycles=(machine.sync.loop_cycles + sync) * times,
                    busy_cycles=0,
                    bytes_received=0,
                    flops=0,
                    slowest_tile=0,
                )
            )
    return spans


def input_bytes(program: Program) -> int:
    """Bytes that the host streams for each run of the program."""
    return sum(program.streamed.values())


def machine_assumptions(machine: MimdMachine) -> tuple[Assumption, ...]:
    """Every number of the machine with its source."""
    found = []
    for section_name in ("chip", "tile", "exchange", "sync", "host", "links", "matrix", "energy"):
        section = getattr(machine, section_name)
        if section is None:
            continue
        for field, text in section.sources.items():
            kind, _, source = text.partition(":")
            found.append(
                Assumption(
                    name=f"{section_name}.{field}",
                    value=f"{value:g}" if isinstance(value := getattr(section, field), int | float) else str(value),
                    kind=kind,
                    source=source.strip(),
                )
            )
    return tuple(found)


def format_assumptions(program: Program) -> tuple[Assumption, ...]:
    """Said when values are costed in a different format than the one they are computed in."""
    formats = {
        (held.dtype, held.stored_bytes)
        for held in program.variables.values()
        if held.stored_bytes and held.dtype.startswith("float")
    }
    return tuple(
        Assumption(
            name=f"{dtype} in {stored} bytes",
            value=f"bytes and cycles of {stored}-byte values; computed in {dtype}, rounded where a vertex writes them",
            kind="assumed",
            source=f"sums inside a vertex are those of {dtype}: what adding in {stored} bytes does to spikes, loss and "
            "accuracy is not simulated",
        )
        for dtype, stored in sorted(formats)
    )


def codelet_assumptions(program: Program) -> tuple[Assumption, ...]:
    """Every codelet of the program with the source of its cost."""
    known: dict[str, Assumption] = {}
    for superstep, _, _ in program.supersteps():
        for table in superstep.tables:
            codelet = table.codelet
            terms = getattr(codelet.cost, "terms", None)
            if terms is None:
                value = "library formula"
            else:
                fixed = getattr(codelet.cost, "fixed", 0)
                parts = [f"{term.bundles:g} per {' x '.join(term.extents)}" for term in terms]
                value = f"{fixed:g} bundles" + "".join(f" + {part}" for part in parts)
            known[codelet.name] = Assumption(
                name=f"codelet {codelet.name}", value=value, kind=codelet.cost.kind, source=codelet.cost.source
            )
    return tuple(known[name] for name in sorted(known))
