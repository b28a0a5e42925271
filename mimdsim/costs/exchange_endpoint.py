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

from dataclasses import dataclass
from typing import Any

import numpy as np

from mimdsim.machine import MimdMachine
from mimdsim.machine.mimd import Chip
from mimdsim.machine.mimd import Exchange as Fabric
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
