"""The exchange phases of a whole program at once, on any machine.

Most tiles of a phase send and receive alike, so those that agree in bytes and fragments are costed once. What they are
depends on the machine only through `exchange.tiles_per_bus`; the rest are formulas over one column of all phases.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import numpy as np

from mimdsim.base.cache import kept
from mimdsim.base.compressed_columns import wide
from mimdsim.costs.exchange_endpoint import bytes_by_neighbour, control_of, hops_apart, longer, of_hops, with_fixed
from mimdsim.costs.exchange_scheduled import scheduled_cycles
from mimdsim.machine import MimdMachine
from mimdsim.machine.mimd import Exchange as Fabric
from mimdsim.numerics.columns.grouping import number_alike
from mimdsim.program import Exchange, Program

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
    longest = kept(_LONGEST.setdefault(phases, {}), key, lambda: _longest(program, phases, fabric), KEPT)
    way: np.ndarray | int = 0
    if fabric.hop_cycles:
        place = machine.chip.tiles, machine.chip.grid_columns
        columns, rows = kept(_APART.setdefault(phases, {}), place, lambda: _apart(program, phases, machine), KEPT)
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
