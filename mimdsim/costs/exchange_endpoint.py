"""Exchange and sync on a chip: the endpoint model, the vendor's planner model, and schedules.

    endpoint: phase = fixed + route + way + max over tiles of max( wire, control instructions for the fragments )
    planner:  phase = fixed + route + way + max over tiles of wire
    wire = max(bytes sent, bytes received) / bytes_per_cycle
    way = hop_cycles * hops, at most as many as the tiles that take part are apart; 0 where a machine does not say
    scheduled: as endpoint, or the result of scheduling the messages one by one if that is longer (scheduling.py)

Neighbours on one bus receive common data at the rate of both; a tile whose neighbour is idle in the phase can receive
on both buses. Sources: C600 stack measurements (osmarks/ipu-stack cost.rs, within 3 % of two
measured phases; send and receive overlap), PopLibs planners (getTilesPerSharedExchangeBus), and the profile-derived
fixed part of an exchange on Mk1 (thorbenlouw/lbm-graphcore).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from mimdsim.base.compressed_columns import wide
from mimdsim.base.errors import MappingError
from mimdsim.base.processes import cached
from mimdsim.costs.exchange_scheduled import scheduled_cycles
from mimdsim.machine import MimdMachine
from mimdsim.machine.mimd import Chip, Links
from mimdsim.machine.mimd import Exchange as Fabric
from mimdsim.machine.topology import Edge, next_chips, route_lengths
from mimdsim.numerics.columns.grouping import number_alike
from mimdsim.program import Exchange, Program


@dataclass(frozen=True, kw_only=True)
class TilePart:
    """What one tile does in an exchange phase; cycles: the longer of wire_bytes / bytes_per_cycle and control_cycles.

    bytes_saved: received bytes that the neighbour's bus carries.
    """

    bytes_sent: int
    bytes_received: int
    bytes_saved: int
    fragments_sent: int
    fragments_received: int
    wire_bytes: int
    control_cycles: float
    cycles: int


def endpoint_cycles(
    bytes_sent: np.ndarray,
    bytes_received: np.ndarray,
    fragments_sent: np.ndarray,
    fragments_received: np.ndarray,
    fabric: Fabric,
    bytes_saved: np.ndarray | int = 0,
) -> np.ndarray:
    """int64[tiles]: cycles in which each tile takes part in one exchange phase, without the fixed part.

    bytes_saved: received bytes that the neighbour's bus carries.
    """
    wire, control = _wire_and_control(
        bytes_sent, bytes_received, fragments_sent, fragments_received, fabric, bytes_saved
    )
    return longer(wire, control, fabric)


def _wire_and_control(
    bytes_sent: np.ndarray,
    bytes_received: np.ndarray,
    fragments_sent: np.ndarray,
    fragments_received: np.ndarray,
    fabric: Fabric,
    bytes_saved: np.ndarray | int,
) -> tuple[np.ndarray, np.ndarray]:
    """[tiles]: bytes on each tile's wire, and cycles of its control instructions, which the planner ignores."""
    wire = np.maximum(bytes_sent, bytes_received - bytes_saved)
    return wire, control_of(fragments_sent, fragments_received, fabric)


def control_of(sent: np.ndarray, received: np.ndarray, fabric: Fabric) -> np.ndarray:
    """float64[tiles]: cycles of the control instructions for fragments sent and received, which the planner ignores."""
    if fabric.model == "planner":
        return np.zeros(len(sent))
    cycles: np.ndarray = sent * fabric.send_fragment_cycles + received * fabric.receive_fragment_cycles
    return cycles


def longer(wire_bytes: np.ndarray, control_cycles: np.ndarray, fabric: Fabric) -> np.ndarray:
    """int64[tiles]: cycles of the wire or of the control instructions, whichever takes longer."""
    cycles: np.ndarray = np.ceil(np.maximum(wire_bytes / fabric.bytes_per_cycle, control_cycles)).astype(np.int64)
    return cycles


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
    own = endpoint_cycles(*_endpoints(exchange, machine.exchange, program.tiles_per_chip))
    way = way_cycles(program, exchange, machine)[exchange.tiles // program.tiles_per_chip]
    return with_fixed(own, machine.exchange, way)


def way_cycles(program: Program, exchange: Exchange, machine: MimdMachine) -> np.ndarray:
    """int64[chips]: what the first byte of a phase takes for its hops, at most: `exchange.hop_cycles` for each between
    the farthest rows and columns of the chip's tiles that send or receive."""
    if not machine.exchange.hop_cycles:
        return np.zeros(program.chips, np.int64)
    columns, rows = hops_apart(program, exchange, machine)
    return np.asarray(of_hops(machine.chip.hops(columns, rows), machine.exchange))


def hops_apart(program: Program, exchange: Exchange, machine: MimdMachine) -> tuple[np.ndarray, np.ndarray]:
    """int64[chips], twice: columns and rows between the tiles of a phase that are farthest from each other."""
    moving = exchange.tiles[(exchange.column("bytes_sent") > 0) | (exchange.column("bytes_received") > 0)]
    chip, within = np.divmod(moving, program.tiles_per_chip)
    apart = []
    for place in np.divmod(within, machine.chip.grid_columns):
        least, most = np.full(program.chips, machine.chip.tiles), np.zeros(program.chips, np.int64)
        np.minimum.at(least, chip, place)
        np.maximum.at(most, chip, place)
        apart.append(np.maximum(most - least, 0))
    rows, columns = apart
    return columns, rows


def longest_way_cycles(chip: Chip, fabric: Fabric) -> int:
    """Cycles for the hops between the tiles of a chip that are farthest from each other."""
    return int(of_hops(np.int64(chip.diameter), fabric))


def of_hops(hops: Any, fabric: Fabric) -> Any:
    """int64: cycles for so many hops."""
    return np.rint(fabric.hop_cycles * hops).astype(np.int64)


def with_fixed(busiest: Any, fabric: Fabric, way: Any) -> np.ndarray:
    """Cycles of phases from those of their busiest tiles; 0 where nothing moves."""
    return np.where(busiest > 0, busiest + fabric.fixed_cycles + fabric.route_cycles + way, 0)


def part_of_tile(program: Program, exchange: Exchange, fabric: Fabric, tile: int) -> TilePart | None:
    """What `tile` does in an exchange phase; None if it takes no part."""
    at = int(np.searchsorted(exchange.tiles, tile))
    if at == len(exchange.tiles) or exchange.tiles[at] != tile:
        return None
    ends = _endpoints(exchange, fabric, program.tiles_per_chip)
    wire, control = _wire_and_control(*ends)
    saved = ends[-1]
    return TilePart(
        bytes_sent=int(ends[0][at]),
        bytes_received=int(ends[1][at]),
        bytes_saved=int(saved if np.ndim(saved) == 0 else saved[at]),
        fragments_sent=int(ends[2][at]),
        fragments_received=int(ends[3][at]),
        wire_bytes=int(wire[at]),
        control_cycles=float(control[at]),
        cycles=int(longer(wire, control, fabric)[at]),
    )


def _endpoints(exchange: Exchange, fabric: Fabric, tiles_per_chip: int) -> tuple[Any, ...]:
    """The arguments of `endpoint_cycles` for the tiles that take part."""
    columns = ("bytes_sent", "bytes_received", "fragments_sent", "fragments_received")
    return *map(exchange.column, columns), fabric, bytes_by_neighbour(exchange, fabric, tiles_per_chip)


def exchange_phase_cycles(tile_cycles: np.ndarray, fabric: Fabric, way: int = 0) -> int:
    """Cycles of the whole phase, which ends when the busiest tile is done; 0 when nothing moves. way: of its hops."""
    return int(with_fixed(tile_cycles.max(initial=0), fabric, way))


def host_exposed_seconds(stream_seconds: float, device_seconds: float, prefetch_depth: int) -> float:
    """Streaming that the device waits for: all of it without prefetch, else the part that exceeds the training step."""
    if prefetch_depth == 0:
        return stream_seconds
    return max(0.0, stream_seconds - device_seconds)


KEPT = 8  # results, for machines that differ in other numbers only
_ALIKE: WeakKeyDictionary[Exchange, dict[tuple[int, int], np.ndarray]] = WeakKeyDictionary()
_PHASES: WeakKeyDictionary[Program, dict[int, Phases]] = WeakKeyDictionary()
_LONGEST: WeakKeyDictionary[Phases, dict[tuple[object, ...], np.ndarray]] = WeakKeyDictionary()
_APART: WeakKeyDictionary[Phases, dict[tuple[int, int], np.ndarray]] = WeakKeyDictionary()


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
    known = _PHASES.setdefault(program, {})
    if fabric.tiles_per_bus not in known:
        exchanges = (superstep.exchange for superstep, _, _ in program.supersteps())
        known[fabric.tiles_per_bus] = _phases(program, [one for one in exchanges if one is not None], fabric)
    return known[fabric.tiles_per_bus]


def phase_cycles(program: Program, exchange: Exchange, machine: MimdMachine) -> np.ndarray:
    """int64[chips]: cycles of one exchange phase of `program` on every chip, 0 if nothing moves."""
    one: np.ndarray = cycles_of_phases(program, _phases(program, [exchange], machine.exchange), machine)[0]
    return one


def busiest_tile(program: Program, exchange: Exchange, fabric: Fabric) -> BusiestTile | None:
    """The tile that takes longest in an exchange phase, the first of several; None if nothing moves."""
    return busiest_tiles(_phases(program, [exchange], fabric), fabric)[0]


def cycles_of_phases(program: Program, phases: Phases, machine: MimdMachine) -> np.ndarray:
    """int64[phases, chips]: cycles of every phase, 0 where nothing moves."""
    fabric = machine.exchange
    key = fabric.model, fabric.bytes_per_cycle, fabric.send_fragment_cycles, fabric.receive_fragment_cycles
    longest = cached(_LONGEST.setdefault(phases, {}), key, lambda: _longest(program, phases, fabric), KEPT)
    way: np.ndarray | int = 0
    if fabric.hop_cycles:
        place = machine.chip.tiles, machine.chip.grid_columns
        columns, rows = cached(_APART.setdefault(phases, {}), place, lambda: _apart(program, phases, machine), KEPT)
        way = of_hops(machine.chip.hops(columns, rows), fabric)
    return with_fixed(longest, fabric, way)


def busiest_tiles(phases: Phases, fabric: Fabric) -> list[BusiestTile | None]:
    """The tile that takes longest in each phase, the first of several; None if nothing moves."""
    control = control_of(phases.sent, phases.received, fabric)
    cycles = longer(phases.wire, control, fabric)
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


def _phases(program: Program, exchanges: Sequence[Exchange], fabric: Fabric) -> Phases:
    each = [_alike(exchange, fabric, program.tiles_per_chip) for exchange in exchanges]
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


def _alike(exchange: Exchange, fabric: Fabric, tiles_per_chip: int) -> np.ndarray:
    """int64[4, entries] of one phase: first tile, bytes on its wire, fragments sent and received."""
    known, key = _ALIKE.setdefault(exchange, {}), (fabric.tiles_per_bus, tiles_per_chip)
    if key not in known:
        saved = bytes_by_neighbour(exchange, fabric, tiles_per_chip)
        wire = np.maximum(exchange.column("bytes_sent"), exchange.column("bytes_received") - saved)
        columns = wire, exchange.column("fragments_sent"), exchange.column("fragments_received")
        lines = np.stack(columns, axis=1).astype(np.int64)
        begins = np.arange(len(lines) + 1) * len(columns)
        _, first = number_alike(wide(exchange.tiles) // tiles_per_chip, begins, lines.reshape(-1))
        known[key] = np.vstack([exchange.tiles[first], lines[first].T])
    return known[key]


def _longest(program: Program, phases: Phases, fabric: Fabric) -> np.ndarray:
    """int64[phases, chips]: cycles of the busiest tile, without the fixed part; read-only."""
    cycles = longer(phases.wire, control_of(phases.sent, phases.received, fabric), fabric)
    longest = np.zeros((len(phases.exchanges), program.chips), np.int64)
    np.maximum.at(longest, (phases.phase, phases.tile // program.tiles_per_chip), cycles)
    if fabric.model == "scheduled":
        for row, exchange in zip(longest, phases.exchanges, strict=True):
            scheduled = scheduled_cycles(program, exchange, fabric)
            if scheduled is not None:
                np.maximum(row, scheduled, out=row)
    longest.flags.writeable = False
    return longest


def _apart(program: Program, phases: Phases, machine: MimdMachine) -> np.ndarray:
    """int64[2, phases, chips]: columns and rows between the tiles of each chip that are farthest from each other."""
    each = [hops_apart(program, exchange, machine) for exchange in phases.exchanges]
    return np.array(each).reshape(-1, 2, program.chips).swapaxes(0, 1)


def edge_bytes(traffic: np.ndarray, links: Links) -> dict[Edge, int]:
    """Bytes over every directed edge (from, to) that carries any, sorted by edge; a switch is numbered after the chips.

    traffic: int64[chips, chips], bytes from chip `row` to chip `column`; bytes that stay on a chip (the diagonal) use
    no link. Raises MappingError if the traffic is not a matrix of whole bytes for the machine's chips.
    """
    carried = _carried(traffic, links)
    return {(int(a), int(b)): int(carried[a, b]) for a, b in zip(*np.nonzero(carried), strict=True)}


def link_phase_seconds(traffic: np.ndarray, links: Links) -> float:
    """Seconds of one global exchange by the closed form; 0 when nothing moves. Traffic and errors as `edge_bytes`."""
    carried = _carried(traffic, links)
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


def _carried(traffic: np.ndarray, links: Links) -> np.ndarray:
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
