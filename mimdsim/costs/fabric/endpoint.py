"""Fabrics in which every tile reaches every other at the full rate: the endpoint model, the vendor's planner model, and
schedules.

    endpoint: phase = fixed + route + hops + max over tiles of max( wire, control instructions for the fragments )
    planner:  phase = fixed + route + hops + max over tiles of wire
    wire = max(bytes sent, bytes received) / bytes_per_cycle
    hops = hop_cycles * hops, at most as many as the tiles that take part are apart; 0 where a machine does not say
    scheduled: as endpoint, or that of scheduling the messages one by one if longer

Neighbours on one bus receive common data at the rate of both; a tile whose neighbour is idle in the phase can receive
on both buses. Sources: C600 stack measurements (osmarks/ipu-stack cost.rs, within 3 % of two
measured phases; send and receive overlap), PopLibs planners (getTilesPerSharedExchangeBus), and the profile-derived
fixed part of an exchange on Mk1 (thorbenlouw/lbm-graphcore).

An exchange phase scheduled message by message; the endpoint model only gives the bound set by the busiest end.

On the machine every tile listens to one other at a time, and the compiler fixes which: a message occupies its sender
and all its readers at once. Messages are tried in an arbitrary order and begin as soon as all their ends are free (list
scheduling). No schedule is shorter than the endpoint bound; where tiles talk to a few neighbours in both directions, a
carelessly chosen order takes up to half as long again. That order matters so much is published (two orders of one phase
on a C600: 484,530 and 741,414 cycles, osmarks/ipu-stack); the order that the vendor's compiler uses is unknown, so this
one is assumed: a fixed random permutation. Other permutations change the halo exchange of
`references/stencil_phases.csv` by 1 %.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from mimdsim.base.cache import PerObject
from mimdsim.base.compressed_columns import distinct, wide
from mimdsim.base.units import counted
from mimdsim.costs.fabric.model import BusiestTile, FabricModel, Row, exchanges_of, hops_apart, moving_tiles
from mimdsim.machine.mimd import Fabric
from mimdsim.numerics.columns.routes import arrivals
from mimdsim.numerics.columns.worker_load import number_alike
from mimdsim.program import Exchange, Program
from mimdsim.program.messages import Messages, arrivals_of, messages_of

# for machines that differ in other numbers only
_ALIKE: PerObject[np.ndarray] = PerObject()  # of an exchange
_PHASES: PerObject[_Phases] = PerObject()  # of a program
_LONGEST: PerObject[np.ndarray] = PerObject()  # of phases, as _APART
_APART: PerObject[np.ndarray] = PerObject()


class Endpoint(FabricModel):
    """The busiest tile decides: its bytes, or the control instructions of its fragments."""

    compared_with = "planner"
    limits = (
        "hops take time, but links are never full here: what tiles pass on for others is not counted, so exchanges in "
        "which many tiles send at once are lower bounds (docs/other-machines.md)"
    )

    @property
    def knows_distance(self) -> bool:
        sync = self.machine.sync
        return self.fabric.hop_cycles > 0 or (sync.model == "participants" and sync.hop_cycles > 0)

    def control_cycles(self, sent: Any, received: Any) -> np.ndarray:
        """float64: cycles of the control instructions for fragments sent and received."""
        fabric = self.fabric
        return np.asarray(sent * fabric.send_fragment_cycles + received * fabric.receive_fragment_cycles)

    def end_cycles(self, wire_bytes: Any, sent: Any, received: Any) -> np.ndarray:
        """int64, by end: cycles that so many bytes on its wire and so many fragments take in a phase, without the fixed
        part: those of the wire or of the control instructions, whichever are more."""
        control = self.control_cycles(sent, received)
        return np.asarray(np.ceil(np.maximum(wire_bytes / self.fabric.bytes_per_cycle, control)).astype(np.int64))

    def whole(self, busiest: Any, hop_latency: Any = 0) -> np.ndarray:
        """Cycles of whole phases from those of their busiest tiles; 0 where nothing moves."""
        fixed = self.fabric.fixed_cycles + self.fabric.route_cycles
        return np.where(busiest > 0, busiest + fixed + hop_latency, 0)

    def cycles(self, program: Program, exchanges: Sequence[Exchange] | None = None) -> np.ndarray:
        phases = self._phases(program, exchanges)
        fabric = self.fabric
        key = fabric.model, fabric.bytes_per_cycle, fabric.send_fragment_cycles, fabric.receive_fragment_cycles
        longest = _LONGEST.get(phases, key, lambda: self._longest(program, phases))
        return self.whole(longest, self._hop_latency(program, phases))

    def estimate(self, wire_bytes: Any, sent: Any, received: Any) -> np.ndarray:
        return self.whole(self.end_cycles(wire_bytes, sent, received), self._hops(np.int64(self.machine.diameter)))

    def tile_cycles(self, program: Program, exchange: Exchange) -> np.ndarray:
        """As of `FabricModel`: its own part, and all that the tiles it reads send."""
        pieces_sent, pieces_received = exchange.column("fragments_sent"), exchange.column("fragments_received")
        wire = _wire_bytes(exchange, self.fabric, program.tiles_per_chip)
        cycles = self.end_cycles(wire, pieces_sent, pieces_received)
        sends = self.end_cycles(exchange.column("bytes_sent"), pieces_sent, 0)
        arrivals = arrivals_of(program, exchange)
        at, sender = (np.searchsorted(exchange.tiles, tiles) for tiles in (arrivals.reader, arrivals.sender))
        np.maximum.at(cycles, np.repeat(at, np.diff(arrivals.first)), sends[sender])
        latency = self._hop_latency(program, self._phases(program, [exchange]))
        return self.whole(cycles, latency[0, exchange.tiles // program.tiles_per_chip])

    def busiest(self, program: Program, exchanges: Sequence[Exchange] | None = None) -> list[BusiestTile | None]:
        """As of `FabricModel`. The phase takes the longer of wire_bytes / bytes_per_cycle and control_cycles, plus the
        fixed part; a schedule may take even longer."""
        phases = self._phases(program, exchanges)
        cycles = self.end_cycles(phases.wire, phases.sent, phases.received)
        control = self.control_cycles(phases.sent, phases.received)
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

    def explain(self, program: Program, exchange: Exchange, tile: int, phase: int) -> list[Row]:
        fabric, own = self.fabric, self._own_part(program, exchange, tile)
        way = int(self._hop_latency(program, self._phases(program, [exchange]))[0, tile // program.tiles_per_chip])
        waiting = phase - fabric.fixed_cycles - fabric.route_cycles - way - (int(own.cycles) if own else 0)
        busiest = self.busiest(program, [exchange])[0]
        assert busiest is not None
        control = f", {busiest.control_cycles:,} cycles of control" if busiest.control_cycles else ""
        note = f"tile {busiest.tile} has {busiest.wire_bytes:,} bytes on its wire{control}"
        note += "; messages wait for each other" if fabric.model == Scheduled.__name__.lower() else ""
        hops = f"{fabric.hop_cycles:g} a hop, as far as its tiles are apart"
        return [
            *([] if own is None else [own]),
            Row(what="waits for the end of the exchange", how=f"{waiting:,}", cycles=waiting, note=note),
            Row(what="fixed part of an exchange", how=f"{fabric.fixed_cycles}", cycles=fabric.fixed_cycles),
            Row(what="route", how=f"{fabric.route_cycles}", cycles=fabric.route_cycles),
            Row(what="way", how=hops, cycles=way),
        ]

    def _own_part(self, program: Program, exchange: Exchange, tile: int) -> Row | None:
        """What the tile itself sends and receives in an exchange; None if it takes no part."""
        at, fabric = int(np.searchsorted(exchange.tiles, tile)), self.fabric
        if at == len(exchange.tiles) or exchange.tiles[at] != tile:
            return None
        names = ("bytes_sent", "bytes_received", "fragments_sent", "fragments_received")
        sent, received, pieces_sent, pieces_received = (int(exchange.column(name)[at]) for name in names)
        by_neighbour = bytes_by_neighbour(exchange, fabric, program.tiles_per_chip)
        saved = int(np.broadcast_to(by_neighbour, exchange.tiles.shape)[at])
        wire_bytes = max(sent, received - saved)
        control_takes = float(self.control_cycles(pieces_sent, pieces_received))
        cycles = int(self.end_cycles(wire_bytes, pieces_sent, pieces_received))
        wire = f"{wire_bytes:,} bytes / {fabric.bytes_per_cycle:g} a cycle"
        control = (
            f"{counted(pieces_sent, 'piece')} sent x {fabric.send_fragment_cycles:g} + "
            f"{pieces_received:,} received x {fabric.receive_fragment_cycles:g}"
        )
        if control_takes > wire_bytes / fabric.bytes_per_cycle:
            return Row(what="control of its pieces", how=control, cycles=cycles, note=f"its {wire} take less")
        note = f"sends {sent:,}, receives {received:,}"
        note += f", {saved:,} of them over its neighbour's bus" if saved else ""
        note += f"; control of {control} takes less" if control_takes else ""
        return Row(what="bytes on its wire", how=wire, cycles=cycles, note=note)

    def _phases(self, program: Program, exchanges: Sequence[Exchange] | None) -> _Phases:
        if exchanges is not None:
            return _phases_of(program, exchanges, self.fabric)
        key = self.fabric.tiles_per_bus
        return _PHASES.get(program, key, lambda: _phases_of(program, exchanges_of(program), self.fabric))

    def _longest(self, program: Program, phases: _Phases) -> np.ndarray:
        """int64[phases, chips]: cycles of the busiest tile, without the fixed part; read-only."""
        cycles = self.end_cycles(phases.wire, phases.sent, phases.received)
        longest = np.zeros((len(phases.exchanges), program.chips), np.int64)
        np.maximum.at(longest, (phases.phase, phases.tile // program.tiles_per_chip), cycles)
        self._schedule(program, phases.exchanges, longest)
        longest.flags.writeable = False
        return longest

    def _schedule(self, program: Program, exchanges: Sequence[Exchange], longest: np.ndarray) -> None:
        """Raise cycles of the busiest tile to those of a schedule, where the model has one."""

    def _hops(self, hops: Any) -> Any:
        """int64: cycles for so many hops."""
        return np.rint(self.fabric.hop_cycles * hops).astype(np.int64)

    def _hop_latency(self, program: Program, phases: _Phases) -> np.ndarray:
        """int64[phases, chips]: what the first byte of a phase takes for its hops, at most: `exchange.hop_cycles` for
        each between the farthest rows and columns of the chip's tiles that send or receive."""
        if not self.fabric.hop_cycles:
            return np.zeros((len(phases.exchanges), program.chips), np.int64)
        chip = self.chip
        moving = [moving_tiles(exchange) for exchange in phases.exchanges]
        place = chip.tiles, chip.grid_columns, chip.grid
        return np.asarray(self._hops(_APART.get(phases, place, lambda: hops_apart(program, moving, chip))))


class Planner(Endpoint):
    """As the vendor's planners: bytes decide, control instructions are left out."""

    compared_with = "endpoint"

    def control_cycles(self, sent: Any, received: Any) -> np.ndarray:
        return np.zeros(np.shape(sent))


class Scheduled(Endpoint):
    """Messages are sent one by one, each when its sender and all its readers are free."""

    compared_with = "endpoint"

    def tile_cycles(self, program: Program, exchange: Exchange) -> np.ndarray:
        """As of `FabricModel`: the whole phase, since schedules are made of phases, not of tiles."""
        return FabricModel.tile_cycles(self, program, exchange)

    def _schedule(self, program: Program, exchanges: Sequence[Exchange], longest: np.ndarray) -> None:
        for row, exchange in zip(longest, exchanges, strict=True):
            scheduled = scheduled_cycles(program, exchange, self.fabric)
            if scheduled is not None:
                np.maximum(row, scheduled, out=row)


def _wire_bytes(exchange: Exchange, fabric: Fabric, tiles_per_chip: int) -> np.ndarray:
    """int64[taking part]: bytes on each tile's wire."""
    saved = bytes_by_neighbour(exchange, fabric, tiles_per_chip)
    return np.asarray(np.maximum(exchange.column("bytes_sent"), exchange.column("bytes_received") - saved))


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


@dataclass(frozen=True, kw_only=True, eq=False)
class _Phases:
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


def _phases_of(program: Program, exchanges: Sequence[Exchange], fabric: Fabric) -> _Phases:
    """Phases of a program, not necessarily all."""
    per_chip = program.tiles_per_chip
    key = fabric.tiles_per_bus, per_chip
    each = [_ALIKE.get(exchange, key, partial(_group_alike, exchange, fabric, per_chip)) for exchange in exchanges]
    entries = np.concatenate([np.zeros((4, 0), np.int64), *each], axis=1)
    tile, wire, sent, received = (np.ascontiguousarray(column) for column in entries)
    return _Phases(
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


# sum over ends of (messages of the end)**2: about the cost of scheduling. A phase beyond it has nearly all tiles
# sending to all others, where some end has no gap and the endpoint bound is the schedule; it is not listed either.
MOST_WORK = 30_000_000


@dataclass(frozen=True, kw_only=True, eq=False)
class _Ends:
    """Messages in the order in which they are tried; ends are numbered, senders first, then ports. chip: by message."""

    sender: np.ndarray
    size_bytes: np.ndarray
    chip: np.ndarray
    first: np.ndarray
    port: np.ndarray
    of_end_first: np.ndarray
    of_end: np.ndarray
    senders: int


_ENDS: PerObject[_Ends | None] = PerObject()


def scheduled_cycles(program: Program, exchange: Exchange, fabric: Fabric) -> np.ndarray | None:
    """int64[chips]: cycles until the last message has arrived, without the fixed part; None for too many messages."""
    key = (fabric.tiles_per_bus, program.tiles_per_chip)
    ends = _ENDS.get(exchange, key, lambda: _ends(program, exchange, fabric.tiles_per_bus))
    if ends is None:
        return None
    duration = np.ceil(ends.size_bytes / fabric.bytes_per_cycle).astype(np.int64)
    places = np.full(len(ends.of_end_first) - 1, fabric.tiles_per_bus, np.int64)
    places[: ends.senders] = 1
    cycles = np.zeros(program.chips, np.int64)
    arrived = arrivals(ends.sender, duration, ends.first, ends.port, ends.of_end_first, ends.of_end, places)
    np.maximum.at(cycles, ends.chip, arrived)
    return cycles


def _ends(program: Program, exchange: Exchange, tiles_per_bus: int) -> _Ends | None:
    messages = messages_of(program, exchange)
    if messages is None:
        return None
    count = len(messages.sender)
    order = np.random.default_rng(0).permutation(count)
    rank = np.empty(count, np.int64)
    rank[order] = np.arange(count)
    senders, sender = np.unique(messages.sender[order], return_inverse=True)
    at, bus = _buses(messages, rank, program.tiles_per_chip, tiles_per_bus)
    buses, port = np.unique(bus, return_inverse=True)
    end = np.concatenate([sender.ravel(), len(senders) + port.ravel()])
    each = np.bincount(end, minlength=len(senders) + len(buses))
    if int((each.astype(np.int64) ** 2).sum()) > MOST_WORK:
        return None
    message = np.concatenate([np.arange(count), at])
    by_end = np.lexsort((message, end))
    return _Ends(
        sender=sender.ravel(),
        size_bytes=messages.size_bytes[order],
        chip=messages.sender[order] // program.tiles_per_chip,
        first=np.searchsorted(at, np.arange(count + 1)),
        port=len(senders) + port.ravel(),
        of_end_first=np.concatenate([[0], np.cumsum(each)]).astype(np.int64),
        of_end=message[by_end],
        senders=len(senders),
    )


def _buses(messages: Messages, rank: np.ndarray, per_chip: int, tiles_per_bus: int) -> tuple[np.ndarray, np.ndarray]:
    """(message by rank, bus) of all buses that messages occupy, ascending; neighbours hear a message on one of two."""
    per_bus = -(-per_chip // tiles_per_bus)
    bus = messages.reader // per_chip * per_bus + messages.reader % per_chip // tiles_per_bus
    at = np.repeat(rank, np.diff(messages.first))
    extent = int(bus.max(initial=0)) + 1
    key = distinct(at * extent + bus)
    return key // extent, key % extent
