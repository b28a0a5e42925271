"""The fast path: cycle sums of one training step on one chip."""

from __future__ import annotations

import numpy as np

from mimdsim.base.errors import MappingError
from mimdsim.costs.fabric import endpoint_cycles, exchange_phase_cycles, host_exposed_seconds
from mimdsim.machine import MimdMachine
from mimdsim.profile import Assumption, MemoryProfile, Span, TileColumns, TiledProfile
from mimdsim.program import Program, RecordedActivity, Repeat
from mimdsim.program.codelet import UNCERTAINTY
from mimdsim.timing.loads import Barrel, program_loads

EXCHANGE_UNCERTAINTY = UNCERTAINTY["derived"]  # the endpoint model is measured, its fixed part derived from profiles
SYNC_UNCERTAINTY = UNCERTAINTY["derived"]
# Published training times of the sparse layer are 0.9 to 1.25 times this model's (mimdsim check --references --data,
# natural activity). What is not explained is not put into the estimate but into the upper end of every interval.
UNEXPLAINED_RATIO = 1.25


def time_program(
    program: Program, machine: MimdMachine, activity: RecordedActivity, memory: MemoryProfile
) -> TiledProfile:
    """Cycles of every superstep of one training step of `program` on `machine`, with the spikes of `activity`."""
    if program.tiles > machine.chip.tiles:
        raise MappingError(
            f"the program is placed on {program.tiles} tiles, {machine.name} has {machine.chip.tiles}: compile it for "
            "this machine"
        )
    barrel = Barrel(
        contexts=machine.tile.worker_contexts,
        issue_cycles=machine.tile.issue_cycles,
        vector_bytes=machine.tile.vector_bytes,
        arrange_fragment_bundles=machine.exchange.arrange_fragment_bundles,
    )
    loads = program_loads(program, activity, barrel)
    spans: list[Span] = []
    busy = np.zeros(program.tiles, np.int64)
    sent, received = np.zeros(program.tiles, np.int64), np.zeros(program.tiles, np.int64)
    low, high = 0.0, 0.0
    for (superstep, times, _), load in zip(program.supersteps(), loads, strict=True):
        exchange = superstep.exchange
        moving = 0
        volume = 0
        if exchange is not None:
            endpoint = endpoint_cycles(
                exchange.bytes_sent,
                exchange.bytes_received,
                exchange.fragments_sent,
                exchange.fragments_received,
                machine.exchange,
            )
            moving = exchange_phase_cycles(endpoint, machine.exchange)
            volume = int(exchange.bytes_received.sum()) * times
            sent += exchange.bytes_sent * times
            received += exchange.bytes_received * times
        waiting = machine.sync.internal_cycles if moving else 0
        busy += load.busy
        low += load.cycles * (1 - load.uncertainty) + times * (
            moving * (1 - EXCHANGE_UNCERTAINTY) + waiting * (1 - SYNC_UNCERTAINTY)
        )
        high += load.cycles * (1 + load.uncertainty) + times * (
            moving * (1 + EXCHANGE_UNCERTAINTY) + waiting * (1 + SYNC_UNCERTAINTY)
        )
        spans.append(
            Span(
                name=superstep.name,
                op=superstep.op,
                phase=superstep.phase,
                times=times,
                compute_cycles=load.cycles,
                exchange_cycles=moving * times,
                sync_cycles=waiting * times,
                busy_cycles=int(load.busy.sum()),
                bytes_received=volume,
                flops=load.flops,
                slowest_tile=load.slowest_tile,
            )
        )
    spans += _loop_spans(program, machine)
    loops = sum(span.sync_cycles for span in spans[len(loads) :])
    low, high = low + loops * (1 - UNCERTAINTY["assumed"]), high + loops * (1 + UNCERTAINTY["assumed"])
    clock = machine.chip.clock_hz
    stream = input_bytes(program) / machine.host.bytes_per_second + machine.host.request_seconds
    cycles = sum(span.cycles for span in spans)
    exposed = host_exposed_seconds(stream, cycles / clock, machine.host.prefetch_depth)
    high = max(high, UNEXPLAINED_RATIO * cycles)
    return TiledProfile(
        machine=machine.name,
        title=machine.title,
        clock_hz=clock,
        tiles=program.tiles,
        tiles_used=int((busy > 0).sum()),
        worker_contexts=machine.tile.worker_contexts,
        spans=tuple(spans),
        tile_columns=TileColumns(
            grid_columns=machine.chip.grid_columns,
            busy_cycles=tuple(busy.tolist()),
            bytes_sent=tuple(sent.tolist()),
            bytes_received=tuple(received.tolist()),
            peak_bytes=memory.peak_bytes_by_tile,
            always_live_bytes=memory.always_live_bytes_by_tile,
            layer=program.layer_of_tile or ("",) * program.tiles,
        ),
        memory=memory,
        host_seconds=stream,
        host_exposed_seconds=exposed,
        seconds_low=low / clock + exposed,
        seconds_high=high / clock + exposed,
        assumptions=machine_assumptions(machine) + codelet_assumptions(program),
    )


def _loop_spans(program: Program, machine: MimdMachine) -> list[Span]:
    """Control of every repeat, once per timestep: counting on one tile, and the sync by which all learn of it."""
    spans = []
    for item in program.body:
        if isinstance(item, Repeat) and item.body:
            spans.append(
                Span(
                    name=f"loop control {item.body[0].phase}",
                    op="repeat",
                    phase=item.body[0].phase,
                    times=item.times,
                    compute_cycles=0,
                    exchange_cycles=0,
                    sync_cycles=(machine.sync.loop_cycles + machine.sync.internal_cycles) * item.times,
                    busy_cycles=0,
                    bytes_received=0,
                    flops=0,
                    slowest_tile=0,
                )
            )
    return spans


def input_bytes(program: Program) -> int:
    """Bytes the host streams per training step: input ids with one count per list, and labels."""
    total = 0
    for graph_input, name in program.inputs.items():
        variable = program.variables[name]
        size = int(np.prod(variable.shape, dtype=np.int64)) * variable.item_bytes
        if graph_input == "input.counts":
            total += size // 2
        elif graph_input in ("input.ids", "labels"):
            total += size
    return total


def machine_assumptions(machine: MimdMachine) -> tuple[Assumption, ...]:
    """Every number of the machine with its source."""
    found = [
        Assumption(
            name="upper end of the interval",
            value=f"at least {UNEXPLAINED_RATIO:g} times the estimate",
            kind="derived",
            source="published training times of the sparse layer are 0.9 to 1.25 times this model's "
            "with the per-batch state gradient (references/)",
        )
    ]
    for section_name in ("chip", "tile", "exchange", "sync", "host", "links"):
        section = getattr(machine, section_name)
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
