"""The fast path: cycle sums of one training step, over all chips."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from mimdsim.base.compressed_columns import numbers
from mimdsim.base.errors import DoesNotFit, MappingError
from mimdsim.base.residuals import interval
from mimdsim.base.schema import sourced_numbers
from mimdsim.base.units import kind_of, uncertainty
from mimdsim.costs.area_power import energy_profile, silicon_profile, tiled_energy
from mimdsim.costs.chip_links import host_exposed_seconds
from mimdsim.costs.fabric import fabric_of
from mimdsim.costs.isa_costs import costs_of_another, with_machine_costs
from mimdsim.costs.memory_behind_tiles import transfers_of
from mimdsim.machine import MimdMachine
from mimdsim.machine.mimd import Host
from mimdsim.machine.topology import route_lengths
from mimdsim.profile import (
    Assumption,
    EnergyProfile,
    MemoryProfile,
    SiliconProfile,
    Span,
    SpanPart,
    TileColumns,
    TiledProfile,
)
from mimdsim.profile.records import half_width_cycles
from mimdsim.program import Program, RecordedActivity, WorkerBundles
from mimdsim.program.verify import require_sound
from mimdsim.timing.critical_path import PathPart, critical_path, loop_spans
from mimdsim.timing.tile_cycles import TileIssue
from mimdsim.timing.uncertainty import own_shares, residuals_on, uncertain_parts, with_correlation
from mimdsim.timing.worker_cycles import SuperstepLoad, machine_loads, program_loads

SECTIONS = ("chip", "tile", "exchange", "sync", "host", "links", "matrix", "energy", "area", "power", "costs", "memory")


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
    DoesNotFit if it needs more tile memory; with must_fit False, the profile says so instead.
    """
    refuse_other_machine(program, machine)
    require_sound(program)
    if must_fit and memory.peak_bytes > memory.limit_bytes:
        needs = f"tile {memory.peak_tile} needs {memory.peak_of_limit}: spread its variables over more tiles"
        raise DoesNotFit(f"does not fit {machine.name}: {needs}")
    of_another = costs_of_another(program, machine)
    loads = machine_loads(program, machine, activity)
    program = with_machine_costs(program, machine)
    path = critical_path(program, machine, loads)
    loops = loop_spans(program, machine)
    spans = (*_superstep_spans(program, machine, loads, path), *loops)
    own = own_shares(program, machine, loads)
    doubts = uncertain_parts(loads, path, sum(span.sync_cycles for span in loops), machine, own)
    doubts = with_correlation(doubts, own, machine)
    clock = machine.chip.clock_hz
    stream = host_stream_seconds(program, machine.host)
    cycles = sum(span.cycles for span in spans)
    exposed = host_exposed_seconds(stream, cycles / clock, machine.host.prefetch_depth)
    off = half_width_cycles(doubts) / cycles if cycles else 0.0
    residuals = residuals_on(machine, "training step" if program.observables.gradients else "program on tiles", off)
    ends = interval(cycles / clock, off, residuals.factor)
    low, high = (
        end + host_exposed_seconds(streamed, end, machine.host.prefetch_depth)
        for end, streamed in zip(ends, _stream_ends(program, machine.host), strict=True)
    )
    columns = _tile_columns(program, machine.chip.grid_columns, memory, loads)
    silicon = silicon_profile(machine)
    return TiledProfile(
        machine=machine.name,
        title=machine.title if program.chips == 1 else f"{program.chips} chips, each {machine.title}",
        clock_hz=clock,
        tiles=program.tiles,
        chips=program.chips,
        tiles_used=sum(busy > 0 for busy in columns.busy_cycles),
        worker_contexts=machine.tile.worker_contexts,
        spans=spans,
        tile_columns=columns,
        memory=memory,
        host_seconds=stream,
        host_exposed_seconds=exposed,
        seconds_low=low,
        seconds_high=high,
        doubts=doubts,
        residuals=residuals,
        costs_of_another=of_another,
        exchange_cycles_other_model=_other_model_cycles(program, machine, loads),
        run_name="training step" if program.observables.gradients else "run",
        energy=_energy(program, machine, silicon, loads, spans, cycles / clock + exposed),
        silicon=silicon,
        assumptions=_machine_assumptions(machine) + _program_assumptions(program),
    )


def _stream_ends(program: Program, host: Host) -> Iterator[float]:
    """Seconds of streaming where each number of the host is off by the kind of its source, to the one side and to the
    other."""
    for sign in (-1, 1):
        rate, request = (
            1 + sign * uncertainty(kind_of(host.sources[key])) for key in ("bytes_per_second", "request_seconds")
        )
        other = {
            "bytes_per_second": host.bytes_per_second / rate if rate else math.inf,
            "request_seconds": host.request_seconds * request,
        }
        yield host_stream_seconds(program, host.model_copy(update=other))


@dataclass(frozen=True, kw_only=True, eq=False)
class GroupCycles:
    """Cycles by superstep and group of tiles, over all executions: compute and exchange int64[supersteps, groups] of
    the slowest tile of each group; waiting: of syncs and loop control; whole: all of them, as by `time_program`."""

    compute: np.ndarray
    exchange: np.ndarray
    waiting: int
    whole: int


def group_cycles(
    program: Program, machine: MimdMachine, activity: RecordedActivity, group: np.ndarray, groups: int
) -> GroupCycles:
    """What each group of tiles takes of a program's cycles, without checking it; group int64[tiles]: of every tile.

    From one sync to the next tiles go on without waiting for others: what they compute there is added up, and stands at
    the first superstep. A tile may be slow in another turn than others of its group.
    """
    loads = machine_loads(program, machine, activity)
    program = with_machine_costs(program, machine)
    path = critical_path(program, machine, loads)
    compute, exchange = np.zeros((2, len(loads), groups), np.int64)
    since_sync, first, row = np.zeros(program.tiles, np.int64), 0, 0
    for stretch in program.stretches():
        for place, superstep in enumerate(stretch.body):
            load, moved = loads[row], superstep.exchange
            if place == 0 or path[row].exchange + path[row].hidden + path[row].sync:
                np.maximum.at(compute[first], group, since_sync)
                since_sync[:], first = 0, row
            since_sync += load.busy
            if moved is not None:
                cycles = fabric_of(machine).tile_cycles(program, moved)
                np.maximum.at(exchange[row], group[moved.tiles], cycles * stretch.times)
            exchange[row] += path[row].memory  # whose channels all groups share
            exchange[row] = np.maximum(exchange[row] - path[row].hidden, 0)
            row += 1
    np.maximum.at(compute[first], group, since_sync)
    waiting = sum(part.sync for part in path) + sum(span.cycles for span in loop_spans(program, machine))
    whole = waiting + sum(part.compute + part.exchange for part in path)
    return GroupCycles(compute=compute, exchange=exchange, waiting=waiting, whole=whole)


def bundles_of(program: Program, machine: MimdMachine, activity: RecordedActivity) -> int:
    """Bundles that all tiles issue in one run of a program, without checking it."""
    return sum(
        load.bundles for load in program_loads(with_machine_costs(program, machine), activity, TileIssue.of(machine))
    )


@lru_cache(maxsize=8)
def _moved_bytes(program: Program) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], np.ndarray]:
    """Bytes of one training step: received by superstep, sent and received by tile, and from chip to chip."""
    sent, received = np.zeros(program.tiles, np.int64), np.zeros(program.tiles, np.int64)
    volumes, over_links = [], np.zeros((program.chips, program.chips), np.int64)
    for superstep, times, _ in program.supersteps():
        exchange = superstep.exchange
        volumes.append(0 if exchange is None else int(exchange.column("bytes_received").sum()) * times)
        if exchange is not None:
            sent[exchange.tiles] += exchange.column("bytes_sent") * times
            received[exchange.tiles] += exchange.column("bytes_received") * times
            over_links += 0 if exchange.link_bytes is None else exchange.link_bytes * times
    return tuple(volumes), numbers(sent), numbers(received), over_links


def _superstep_spans(
    program: Program, machine: MimdMachine, loads: Sequence[SuperstepLoad], path: Sequence[PathPart]
) -> Iterator[Span]:
    """One span per superstep, in program order."""
    busiest = iter(fabric_of(machine).busiest(program))
    volumes, *_ = _moved_bytes(program)
    rows = zip(program.supersteps(), loads, path, volumes, strict=True)
    for (superstep, times, _), load, part, volume in rows:
        slow = next(busiest) if superstep.exchange is not None else None
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
            memory_cycles=part.memory,
            hidden_cycles=part.hidden,
            parts=_parts(load, part.compute),
            exchange_tile=-1 if slow is None else slow.tile,
            exchange_tile_bytes=0 if slow is None else slow.wire_bytes,
            exchange_tile_control_cycles=0 if slow is None else slow.control_cycles,
        )


def _parts(load: SuperstepLoad, cycles: int) -> tuple[SpanPart, ...]:
    """The cycles that a superstep adds to the critical path by operation and layer: whole ones, which sum to them."""
    reached = np.cumsum([share for _, _, share in load.operations])
    ends = np.rint(cycles * reached / reached[-1]).astype(int) if len(reached) else []
    each = np.diff(ends, prepend=0).tolist() if cycles else []
    return tuple(
        SpanPart(operation=name, layer=layer, compute_cycles=own)
        for (name, layer, _), own in zip(load.operations, each, strict=False)
    )


def _tile_columns(
    program: Program, grid_columns: int, memory: MemoryProfile, loads: tuple[SuperstepLoad, ...]
) -> TileColumns:
    _, sent, received, _ = _moved_bytes(program)
    busy = sum((load.busy for load in loads), np.zeros(program.tiles, np.int64))
    return TileColumns(
        grid_columns=grid_columns,
        busy_cycles=numbers(busy),
        bytes_sent=sent,
        bytes_received=received,
        peak_bytes=memory.peak_bytes_by_tile,
        always_live_bytes=memory.always_live_bytes_by_tile,
        layer=program.layer_of_tile or ("",) * program.tiles,
    )


def _energy(
    program: Program,
    machine: MimdMachine,
    silicon: SiliconProfile | None,
    loads: tuple[SuperstepLoad, ...],
    spans: tuple[Span, ...],
    seconds: float,
) -> EnergyProfile | None:
    """Energy of one run; None if the machine has no energies."""
    found = tiled_energy(
        machine,
        silicon,
        seconds * program.chips,
        (
            ("instructions and own memory", "bundle_joules", sum(load.bundles for load in loads)),
            ("arithmetic", "arithmetic_joules_per_flop", sum(span.flops for span in spans)),
            ("exchange on the chip", "exchange_joules_per_byte", sum(span.bytes_received for span in spans)),
            ("links between routers", "hop_joules_per_byte", _hop_bytes(program, machine)),
            ("links between chips", "link_joules_per_byte", _edge_bytes(program, machine)),
            ("host link", "host_joules_per_byte", input_bytes(program)),
        ),
    )
    if found is None or not program.behind_tiles:
        return found
    counted = ("memory behind the tiles", "joules_per_byte", transfers_of(program).bytes_moved(program))
    return replace(found, parts=found.parts + energy_profile(machine.memory, (counted,)).parts)


def _edge_bytes(program: Program, machine: MimdMachine) -> int:
    """Bytes times edges between chips that they go along, in one run of the program."""
    edges = route_lengths(machine.links)[: program.chips, : program.chips]
    return int((_moved_bytes(program)[-1] * edges).sum())


def _hop_bytes(program: Program, machine: MimdMachine) -> int:
    """Bytes times links between routers that they go along, in one run of the program."""
    times = [times for superstep, times, _ in program.supersteps() if superstep.exchange is not None]
    return int(fabric_of(machine).hop_bytes(program) @ np.array(times, np.int64))


def refuse_other_machine(program: Program, machine: MimdMachine, advice: str = "compile it for this machine") -> None:
    if program.tiles_per_chip > machine.chip.tiles or program.chips > machine.links.chips:
        raise MappingError(
            f"the program is placed on {program.chips} chip(s) of {program.tiles_per_chip} tiles, {machine.name} has "
            f"{machine.links.chips} of {machine.chip.tiles}: {advice}"
        )


def _other_model_cycles(program: Program, machine: MimdMachine, loads: tuple[SuperstepLoad, ...]) -> int:
    """Exchange cycles under the exchange model that is not selected."""
    exchange = machine.exchange.model_copy(update={"model": fabric_of(machine).compared_with})
    path = critical_path(program, machine.model_copy(update={"exchange": exchange}), loads)
    return sum(part.exchange for part in path)


def input_bytes(program: Program) -> int:
    """Bytes that the host streams for each run of the program."""
    return sum(program.streamed.values())


def host_stream_seconds(program: Program, host: Host) -> float:
    """Seconds of streaming one batch in, by the link to the host that carries most; 0 if nothing is streamed."""
    if not (total := input_bytes(program)):
        return 0.0
    of_chips = np.zeros(program.chips, np.int64)
    for name, sent in program.streamed.items():
        variable = program.variables[program.inputs[name]]
        held = variable.mapping.bytes_by_tile(variable.shape, variable.item_bytes, program.tiles)
        by_chip = held.reshape(program.chips, -1).sum(axis=1)
        of_chips += sent * (by_chip > 0) if variable.mapping.is_replicated else -(-sent * by_chip // by_chip.sum())
    each = host.chips or program.chips
    fullest = max(int(of_chips[first : first + each].sum()) for first in range(0, program.chips, each))
    return min(total, fullest) / host.bytes_per_second + host.request_seconds


def _machine_assumptions(machine: MimdMachine) -> tuple[Assumption, ...]:
    """Every number of the machine with its source."""
    return tuple(
        Assumption(
            name=f"{section}.{field}",
            value=f"{value:g}" if isinstance(value, int | float) else str(value),
            kind=kind,
            source=source,
        )
        for section, field, value, kind, source in sourced_numbers(machine, SECTIONS)
    )


@lru_cache(maxsize=8)
def _program_assumptions(program: Program) -> tuple[Assumption, ...]:
    """One for every format that values are counted in but not computed in, and for every codelet the source of its
    cost."""
    formats = {
        (held.dtype, held.stored_bytes, held.number_format)
        for held in program.variables.values()
        if held.stored_bytes and held.dtype.startswith("float")
    }
    found = [
        Assumption(
            name=f"{dtype} as {named}" if named else f"{dtype} in {stored} bytes",
            value=f"bytes and cycles of {named or f'{stored}-byte values'}; computed in {dtype}, "
            "rounded where a vertex writes them",
            kind="assumed",
            source=f"sums inside a vertex are those of {dtype}: what adding in {stored} bytes does to spikes, loss and "
            "accuracy is not simulated",
        )
        for dtype, stored, named in sorted(formats)
    ]
    costs = {table.codelet.name: table.codelet.cost for step, _, _ in program.supersteps() for table in step.tables}
    for name in sorted(costs):
        cost, value = costs[name], "library formula"
        if isinstance(cost, WorkerBundles):
            parts = [f" + {term.bundles:g} per {' x '.join(term.extents)}" for term in cost.terms]
            value = f"{cost.fixed:g} bundles{''.join(parts)}"
        found.append(Assumption(name=f"codelet {name}", value=value, kind=cost.kind, source=cost.source))
    return tuple(found)
