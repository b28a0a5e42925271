"""Exchange and sync on a chip: the endpoint model, the vendor's planner model, and schedules.

    endpoint: phase = fixed + route + hops + max over tiles of max( wire, control instructions for the fragments )
    planner:  phase = fixed + route + hops + max over tiles of wire
    wire = max(bytes sent, bytes received) / bytes_per_cycle
    hops = hop_cycles * hops, at most as many as the tiles that take part are apart; 0 where a machine does not say
    scheduled: as endpoint, or that of scheduling the messages one by one if longer (`exchange_scheduled.py`)

Neighbours on one bus receive common data at the rate of both; a tile whose neighbour is idle in the phase can receive
on both buses. Sources: C600 stack measurements (osmarks/ipu-stack cost.rs, within 3 % of two
measured phases; send and receive overlap), PopLibs planners (getTilesPerSharedExchangeBus), and the profile-derived
fixed part of an exchange on Mk1 (thorbenlouw/lbm-graphcore).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from mimdsim.base.cache import PerObject
from mimdsim.base.compressed_columns import wide
from mimdsim.base.errors import MappingError
from mimdsim.costs.exchange_scheduled import scheduled_cycles
from mimdsim.machine import MimdMachine
from mimdsim.machine.mimd import Chip, Fabric, Links
from mimdsim.machine.topology import Edge, next_chips, route_lengths
from mimdsim.numerics.columns.grouping import number_alike
from mimdsim.program import Exchange, Program


def endpoint_cycles(wire_bytes: Any, fragments_sent: Any, fragments_received: Any, fabric: Fabric) -> np.ndarray:
    """int64, by end: cycles that so many bytes on its wire and so many fragments take in a phase, without the fixed
    part: those of the wire or of the control instructions, whichever are more."""
    control = control_cycles(fragments_sent, fragments_received, fabric)
    cycles: np.ndarray = np.ceil(np.maximum(wire_bytes / fabric.bytes_per_cycle, control)).astype(np.int64)
    return cycles


def control_cycles(fragments_sent: Any, fragments_received: Any, fabric: Fabric) -> np.ndarray:
    """float64: cycles of the control instructions for fragments sent and received, which the planner ignores."""
    if fabric.model == "planner":
        return np.zeros(np.shape(fragments_sent))
    return np.asarray(
        fragments_sent * fabric.send_fragment_cycles + fragments_received * fabric.receive_fragment_cycles
    )


def phase_cycles(busiest: Any, fabric: Fabric, hop_latency: Any = 0) -> np.ndarray:
    """Cycles of whole phases from those of their busiest tiles; 0 where nothing moves."""
    return np.where(busiest > 0, busiest + fabric.fixed_cycles + fabric.route_cycles + hop_latency, 0)


def longest_hop_latency(chip: Chip, fabric: Fabric) -> int:
    """Cycles for the hops between the tiles of a chip that are farthest from each other."""
    return int(_hop_latency(np.int64(chip.diameter), fabric))


def _hop_latency(hops: Any, fabric: Fabric) -> Any:
    """int64: cycles for so many hops."""
    return np.rint(fabric.hop_cycles * hops).astype(np.int64)


def _wire_bytes(exchange: Exchange, fabric: Fabric, tiles_per_chip: int) -> np.ndarray:
    """int64[taking part]: bytes on each tile's wire."""
    saved = bytes_by_neighbour(exchange, fabric, tiles_per_chip)
    on_wire: np.ndarray = np.maximum(exchange.column("bytes_sent"), exchange.column("bytes_received") - saved)
    return on_wire


def bytes_by_neighbour(exchange: Exchange, fabric: Fabric, tiles_per_chip: int) -> np.ndarray | int:
    """int64[taking part]: received bytes that arrive over the neighbour's bus."""
    if fabric.tiles_per_bus == 1:
        return 0
    tiles = exchange.tiles
    within = tiles % tiles_per_chip
    partner = tiles - within + (within ^ 1)
    at = np.minimum(np.searchsorted(tiles, partner), len(tiles) - 1)
    # on a chip with an odd number of tiles the last one has no neighbour
    silent = (exchange.column("bytes_sent") == 0) & (exchange.column("bytes_received") == 0)
    idle = ((tiles[at] != partner) | silent[at]) & (within ^ 1 < tiles_per_chip)
    return np.where(idle, exchange.column("bytes_received"), exchange.column("bytes_shared")) // 2


def cycles_of_tiles(program: Program, exchange: Exchange, machine: MimdMachine) -> np.ndarray:
    """int64[taking part]: cycles of one exchange phase if no tile took longer than this one, schedules left aside."""
    wire = _wire_bytes(exchange, machine.exchange, program.tiles_per_chip)
    fragments = exchange.column("fragments_sent"), exchange.column("fragments_received")
    phases = exchange_phases(program, [exchange], machine.exchange)
    latency = hop_latency_cycles(program, phases, machine)[0, exchange.tiles // program.tiles_per_chip]
    return phase_cycles(endpoint_cycles(wire, *fragments, machine.exchange), machine.exchange, latency)


def hop_latency_cycles(program: Program, phases: Phases, machine: MimdMachine) -> np.ndarray:
    """int64[phases, chips]: what the first byte of a phase takes for its hops, at most: `exchange.hop_cycles` for each
    between the farthest rows and columns of the chip's tiles that send or receive."""
    if not machine.exchange.hop_cycles:
        return np.zeros((len(phases.exchanges), program.chips), np.int64)
    place = machine.chip.tiles, machine.chip.grid_columns
    columns, rows = _APART.get(phases, place, lambda: _hops_apart(program, phases, machine.chip))
    return np.asarray(_hop_latency(machine.chip.hops(columns, rows), machine.exchange))


def _hops_apart(program: Program, phases: Phases, chip: Chip) -> np.ndarray:
    """int64[2, phases, chips]: columns and rows between the tiles of each chip that are farthest from each other."""
    apart = np.zeros((2, len(phases.exchanges), program.chips), np.int64)
    for number, exchange in enumerate(phases.exchanges):
        moving = exchange.tiles[(exchange.column("bytes_sent") > 0) | (exchange.column("bytes_received") > 0)]
        on_chip, within = np.divmod(moving, program.tiles_per_chip)
        for axis, place in enumerate(reversed(np.divmod(within, chip.grid_columns))):
            least, most = np.full(program.chips, chip.tiles), np.zeros(program.chips, np.int64)
            np.minimum.at(least, on_chip, place)
            np.maximum.at(most, on_chip, place)
            apart[axis, number] = np.maximum(most - least, 0)
    return apart


def host_exposed_seconds(stream_seconds: float, device_seconds: float, prefetch_depth: int) -> float:
    """Streaming that the device waits for: all of it without prefetch, else the part that exceeds the training step."""
    if prefetch_depth == 0:
        return stream_seconds
    return max(0.0, stream_seconds - device_seconds)


# for machines that differ in other numbers only
_ALIKE: PerObject[np.ndarray] = PerObject()  # of an exchange
_PHASES: PerObject[Phases] = PerObject()  # of a program
_LONGEST: PerObject[np.ndarray] = PerObject()  # of phases, as _APART
_APART: PerObject[np.ndarray] = PerObject()


@dataclass(frozen=True, kw_only=True, eq=False)
class Phases:
    """Exchange phases of a program on machines with so many tiles per bus.

    Entries stand for tiles of a phase and chip that are alike, in order of phases and of their first tiles: int64
    phase, tile (the first), wire (bytes), sent and received (fragments).
    """

    exchanges: tuple[Exchange, ...]
    phase: np.ndarray
    tile: np.ndarray
    wire: np.ndarray
    sent: np.ndarray
    received: np.ndarray


@dataclass(frozen=True, kw_only=True)
class BusiestTile:
    """The tile that an exchange phase waits for: bytes on its wire, and cycles of its control instructions.

    The phase takes the longer of wire_bytes / bytes_per_cycle and control_cycles, plus the fixed part; a schedule may
    take even longer.
    """

    tile: int
    wire_bytes: int
    control_cycles: int


def phases_of(program: Program, fabric: Fabric) -> Phases:
    """All phases of a program, in program order."""
    exchanges = [superstep.exchange for superstep, _, _ in program.supersteps() if superstep.exchange is not None]
    return _PHASES.get(program, fabric.tiles_per_bus, lambda: exchange_phases(program, exchanges, fabric))


def busiest_tile(program: Program, exchange: Exchange, fabric: Fabric) -> BusiestTile | None:
    """The tile that takes longest in an exchange phase, the first of several; None if nothing moves."""
    return busiest_tiles(exchange_phases(program, [exchange], fabric), fabric)[0]


def cycles_of_phases(program: Program, phases: Phases, machine: MimdMachine) -> np.ndarray:
    """int64[phases, chips]: cycles of every phase, 0 where nothing moves."""
    fabric = machine.exchange
    key = fabric.model, fabric.bytes_per_cycle, fabric.send_fragment_cycles, fabric.receive_fragment_cycles
    longest = _LONGEST.get(phases, key, lambda: _busiest_cycles(program, phases, fabric))
    return phase_cycles(longest, fabric, hop_latency_cycles(program, phases, machine))


def busiest_tiles(phases: Phases, fabric: Fabric) -> list[BusiestTile | None]:
    """The tile that takes longest in each phase, the first of several; None if nothing moves."""
    cycles = endpoint_cycles(phases.wire, phases.sent, phases.received, fabric)
    control = control_cycles(phases.sent, phases.received, fabric)
    longest = np.zeros(len(phases.exchanges), np.int64)
    np.maximum.at(longest, phases.phase, cycles)
    where = np.flatnonzero(cycles == longest[phases.phase])
    numbers, first = np.unique(phases.phase[where], return_index=True)
    at = where[first]
    found: list[BusiestTile | None] = [None] * len(phases.exchanges)
    columns = numbers, phases.tile[at], phases.wire[at], np.ceil(control[at]).astype(np.int64)
    for number, tile, wire, instructions in zip(*(column.tolist() for column in columns), strict=True):
        found[number] = BusiestTile(tile=tile, wire_bytes=wire, control_cycles=instructions)
    return found


def exchange_phases(program: Program, exchanges: Sequence[Exchange], fabric: Fabric) -> Phases:
    """Phases of a program, not necessarily all."""
    per_chip = program.tiles_per_chip
    key = fabric.tiles_per_bus, per_chip
    each = [_ALIKE.get(exchange, key, partial(_group_alike, exchange, fabric, per_chip)) for exchange in exchanges]
    entries = np.concatenate([np.zeros((4, 0), np.int64), *each], axis=1)
    tile, wire, sent, received = (np.ascontiguousarray(column) for column in entries)
    return Phases(
        exchanges=tuple(exchanges),
        phase=np.repeat(np.arange(len(each)), [one.shape[1] for one in each]),
        tile=tile,
        wire=wire,
        sent=sent,
        received=received,
    )


def _group_alike(exchange: Exchange, fabric: Fabric, tiles_per_chip: int) -> np.ndarray:
    """int64[4, entries] of one phase: first tile, bytes on its wire, fragments sent and received."""
    wire = _wire_bytes(exchange, fabric, tiles_per_chip)
    columns = wire, exchange.column("fragments_sent"), exchange.column("fragments_received")
    lines = np.stack(columns, axis=1).astype(np.int64)
    begins = np.arange(len(lines) + 1) * len(columns)
    _, first = number_alike(wide(exchange.tiles) // tiles_per_chip, begins, lines.reshape(-1))
    return np.vstack([exchange.tiles[first], lines[first].T])


def _busiest_cycles(program: Program, phases: Phases, fabric: Fabric) -> np.ndarray:
    """int64[phases, chips]: cycles of the busiest tile, without the fixed part; read-only."""
    cycles = endpoint_cycles(phases.wire, phases.sent, phases.received, fabric)
    longest = np.zeros((len(phases.exchanges), program.chips), np.int64)
    np.maximum.at(longest, (phases.phase, phases.tile // program.tiles_per_chip), cycles)
    if fabric.model == "scheduled":
        for row, exchange in zip(longest, phases.exchanges, strict=True):
            scheduled = scheduled_cycles(program, exchange, fabric)
            if scheduled is not None:
                np.maximum(row, scheduled, out=row)
    longest.flags.writeable = False
    return longest


def edge_bytes(traffic: np.ndarray, links: Links) -> dict[Edge, int]:
    """Bytes over every directed edge (from, to) that carries any, sorted by edge; a switch is numbered after the chips.

    traffic: int64[chips, chips], bytes from chip `row` to chip `column`; bytes that stay on a chip (the diagonal) use
    no link. Raises MappingError if the traffic is not a matrix of whole bytes for the machine's chips.
    """
    carried = _edge_traffic(traffic, links)
    return {(int(a), int(b)): int(carried[a, b]) for a, b in zip(*np.nonzero(carried), strict=True)}


def link_phase_seconds(traffic: np.ndarray, links: Links) -> float:
    """Seconds of one global exchange by the closed form; 0 when nothing moves. Traffic and errors as `edge_bytes`."""
    carried = _edge_traffic(traffic, links)
    if not carried.any():
        return 0.0
    return link_start_seconds(traffic, links) + float((carried / edge_bytes_per_second(links)).max())


def link_start_seconds(traffic: np.ndarray, links: Links) -> float:
    """Seconds of one global exchange without the transfer of its bytes: fixed part and hops; 0 when nothing moves."""
    moving = moving_bytes(traffic, links) > 0
    if not moving.any():
        return 0.0
    return links.fixed_seconds + links.hop_seconds * int(route_lengths(links)[moving].max())


def edge_bytes_per_second(links: Links) -> np.ndarray:
    """float64[nodes, nodes]: bandwidth of the directed edge from node `row` to `column`, all its links together; nodes
    are the chips, and the switch if there is one."""
    group = np.arange(len(next_chips(links))) // (links.group_chips or 1)
    inside = (group[:, None] == group) & (links.group_chips > 0)
    if links.topology == "switch":
        inside[-1] = inside[:, -1] = False
    return np.where(inside, links.group_links_per_edge, links.links_per_edge) * links.bytes_per_second


def moving_bytes(traffic: np.ndarray, links: Links) -> np.ndarray:
    """int64[chips, chips]: the traffic that uses a link, so with an empty diagonal. Errors as `edge_bytes`."""
    given = np.asarray(traffic)
    if given.shape != (links.chips, links.chips):
        raise MappingError(
            f"global exchange: traffic has the shape {given.shape}, the machine has {links.chips} chips; "
            f"give bytes from each chip to each chip, shape ({links.chips}, {links.chips})"
        )
    if not np.issubdtype(given.dtype, np.integer):
        raise MappingError(f"global exchange: traffic is of type {given.dtype}; give whole bytes as int64")
    if given.min(initial=0) < 0:
        source, target = np.argwhere(given < 0)[0]
        raise MappingError(
            f"global exchange: {given[source, target]} bytes from chip {source} to chip {target}; give 0 or more"
        )
    moving = given.astype(np.int64)
    np.fill_diagonal(moving, 0)
    return moving


def _edge_traffic(traffic: np.ndarray, links: Links) -> np.ndarray:
    """int64[nodes, nodes]: bytes over the directed edge from node `row` to node `column`."""
    moving = moving_bytes(traffic, links)
    following = next_chips(links)
    carried = np.zeros((len(following),) * 2, np.int64)
    here, target = np.nonzero(moving)
    nbytes = moving[here, target]
    while here.size:  # all messages advance one edge at a time
        after = following[here, target]
        np.add.at(carried, (here, after), nbytes)
        onward = after != target
        here, target, nbytes = after[onward], target[onward], nbytes[onward]
    return carried
