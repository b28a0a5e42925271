"""A network of routers: messages go along the links between them, which fill up.

Of every message its links, hops, packets and the ports of its ends are known, so what each link carries is exact. What
waiting for others comes to depends on how packets are switched:

    cut-through: a path takes what its fullest part takes: port of the sender, links of its row and of the reader's
                 column, port of the reader. No order of packets is faster.
    wormhole:    a packet holds what it has come along while it waits for what comes next, and those behind it, to other
                 tiles, wait too: where a tile sends to several, the parts of a path that it shares with other tiles are
                 waited for one after another: their sum. A link that carries messages of one tile only, or to one
                 only, is not waited for: those queue at the tile's port.
                 A tree that is reserved first is waited for as a whole, and its links are taken meanwhile.

A phase takes fixed and route cycles, and the slowest path with its hops (there, and back where readers answer). The sum
for wormholes stands for arbitration that is not simulated: it is between all parts at once (cut-through) and a schedule
in which every packet meets all others at every part.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from mimdsim.base.cache import PerObject
from mimdsim.costs.fabric.model import BusiestTile, FabricModel, Row, exchanges_of
from mimdsim.machine.mimd import Chip, Fabric
from mimdsim.numerics.columns import routes
from mimdsim.program import Exchange, Program
from mimdsim.program.messages import Messages, all_messages


@dataclass(frozen=True, kw_only=True)
class Path:
    """What the slowest path of a phase takes: cycles of its parts, hops, and the ends.

    Parts of 0 are not waited for: those that are less than the longest, where all take place at once.
    """

    sender: int
    reader: int
    port_out: float
    row: float
    column: float
    port_in: float
    hops: int
    cycles: int


@dataclass(frozen=True, kw_only=True, eq=False)
class RoutedPhase:
    """One phase: cycles int64[chips]; the slowest path of each chip (None: nothing moves); busy float64[taking part]:
    cycles of the busier port of each tile, or of the slowest path that leads to it; loads float64[networks, 4,
    routers]: bytes over each link, none in what is kept for programs; hop_bytes: their sum.
    """

    cycles: np.ndarray
    paths: tuple[Path | None, ...]
    busy: np.ndarray
    loads: np.ndarray
    hop_bytes: int


class Ends(NamedTuple):
    """What the tiles that take part do, by tile, ascending: bytes sent (a multicast once) and received, also over links
    between chips; fragments sent (requests of the sender) and received; float64[taking part]."""

    tiles: np.ndarray
    sent: np.ndarray
    received: np.ndarray
    pieces_sent: np.ndarray
    pieces_received: np.ndarray


_Line = Callable[[np.ndarray], np.ndarray]
_PHASES: PerObject[RoutedPhase] = PerObject()  # of an exchange
_TRAFFIC: PerObject[tuple[Messages, float, list[_Traffic]]] = PerObject()  # of an exchange
MOST_ROUTERS = 1 << 14  # of chips whose traffic is kept for machines with other rates


class Routed(FabricModel):
    """Links between routers, which fill up."""

    rates = ("bytes_per_cycle", "link_bytes_per_cycle")

    def cycles(self, program: Program, exchanges: Sequence[Exchange] | None = None) -> np.ndarray:
        chosen = exchanges_of(program) if exchanges is None else exchanges
        found = [self.phase(program, exchange).cycles for exchange in chosen]
        return np.array(found, np.int64).reshape(-1, program.chips)

    def hop_bytes(self, program: Program) -> np.ndarray:
        return np.array([self.phase(program, one).hop_bytes for one in exchanges_of(program)], np.int64)

    def estimate(self, wire_bytes: Any, sent: Any, received: Any) -> np.ndarray:
        """As of `FabricModel`, as if all tiles sent so much to tiles anywhere on the chip."""
        fabric, chip = self.fabric, self.chip
        packets = np.maximum(received, packets_of(wire_bytes, fabric))
        wire = wire_bytes + packets * fabric.header_bytes
        control = sent * fabric.send_fragment_cycles + received * fabric.receive_fragment_cycles
        port = np.maximum(wire / fabric.bytes_per_cycle, control)
        network = Network.of(chip, fabric)
        hops = network.mean_hops
        links = wire * chip.tiles * hops / (network.links * (fabric.link_bytes_per_cycle or 1.0))
        busiest = port + links if fabric.switching == "wormhole" else np.maximum(port, links)
        start = fabric.fixed_cycles + fabric.route_cycles + fabric.hop_cycles * chip.diameter
        return np.where(wire_bytes > 0, np.ceil(busiest + start), 0).astype(np.int64)

    def tile_cycles(self, program: Program, exchange: Exchange) -> np.ndarray:
        """As of `FabricModel`: its ports, and the slowest path that leads to it."""
        busy = np.ceil(self.phase(program, exchange).busy).astype(np.int64)
        return np.where(busy > 0, busy + self.fabric.fixed_cycles + self.fabric.route_cycles, 0)

    def busiest(self, program: Program, exchanges: Sequence[Exchange] | None = None) -> list[BusiestTile | None]:
        """As of `FabricModel`: the reader of the slowest path."""
        found: list[BusiestTile | None] = []
        for exchange in exchanges_of(program) if exchanges is None else exchanges:
            paths = [path for path in self.phase(program, exchange).paths if path is not None]
            slowest = max(paths, key=lambda path: path.cycles, default=None)
            if slowest is None:
                found.append(None)
                continue
            wire = np.maximum(exchange.column("bytes_sent"), exchange.column("bytes_received"))
            size = int(wire[np.searchsorted(exchange.tiles, slowest.reader)])
            found.append(BusiestTile(tile=slowest.reader, wire_bytes=size, control_cycles=0))
        return found

    def explain(self, program: Program, exchange: Exchange, tile: int, phase: int) -> list[Row]:
        """Of the slowest path of the tile's chip."""
        path = self.phase(program, exchange).paths[tile // program.tiles_per_chip]
        assert path is not None
        fabric = self.fabric
        ends = f"from tile {path.sender} to tile {path.reader}"
        parts = [
            ("port of the sender", path.port_out, f"tile {path.sender}: its bytes, headers and requests"),
            ("links along the row", path.row, "the fullest link that the path shares"),
            ("links along the column", path.column, "the fullest link that the path shares"),
            ("port of the reader", path.port_in, f"tile {path.reader}: what several tiles send to it"),
        ]
        found = [
            Row(what=what, how=f"{cycles:,.10g}", cycles=cycles, note=f"{note}; slowest path {ends}")
            for what, cycles, note in parts
        ]
        way = fabric.hop_cycles * path.hops
        found += [
            Row(what="way", how=f"{path.hops} hops x {fabric.hop_cycles:g}", cycles=way),
            Row(what="fixed part of an exchange", how=f"{fabric.fixed_cycles}", cycles=fabric.fixed_cycles),
            Row(what="route", how=f"{fabric.route_cycles}", cycles=fabric.route_cycles),
        ]
        rest = phase - sum(part.cycles for part in found)
        return [*found, Row(what="to whole cycles", how=f"{rest:,.3g}", cycles=rest)]

    def phase(self, program: Program, exchange: Exchange) -> RoutedPhase:
        """One exchange phase of a program."""
        fabric, chip = self.fabric, self.chip
        key = (
            fabric.model_dump_json(exclude={"sources"}),
            chip.tiles,
            chip.grid_columns,
            chip.grid,
            program.strip_columns,
        )
        return _PHASES.get(exchange, key, lambda: self._phase(program, exchange))

    def _phase(self, program: Program, exchange: Exchange) -> RoutedPhase:
        fabric, chip, per_chip = self.fabric, self.chip, program.tiles_per_chip
        network = Network.of(chip, fabric, program.strip_columns)

        def made() -> tuple[Messages, float, list[_Traffic]]:
            listed, scale = all_messages(program, exchange)
            return (
                listed,
                scale,
                self._traffic(listed, exchange.tiles, network, program.chips, per_chip, exchange.share),
            )

        cheap = {"sources", "link_bytes_per_cycle", "fixed_cycles", "route_cycles", "switching"}
        if fabric.multicast in ("tree", "none"):  # else these decide what goes along a tree
            cheap |= {"hop_cycles", "bytes_per_cycle", "send_fragment_cycles"}
        key = fabric.model_dump_json(exclude=cheap), chip.tiles, chip.grid_columns, chip.grid, program.strip_columns
        small = network.wide * network.high * program.chips <= MOST_ROUTERS
        listed, scale, traffic = _TRAFFIC.get(exchange, key, made) if small else made()
        traffic = [replace(net, fabric=fabric) for net in traffic]
        names = ("bytes_sent", "bytes_received", "fragments_sent", "fragments_received")
        ends = Ends(exchange.tiles, *(exchange.column(name).astype(np.float64) for name in names))
        share = exchange.share
        found = self.phase_of(listed, ends, network, program.chips, scale, share, per_chip, traffic)
        return replace(found, loads=np.zeros((0, 4, 0)))  # of a million routers 32 MB a phase

    def _traffic(
        self,
        messages: Messages,
        tiles: np.ndarray,
        network: Network,
        chips: int,
        tiles_per_chip: int,
        share: float,
    ) -> list[_Traffic]:
        """The messages of each network."""
        return [
            _Traffic.of(part, tiles, network.turned(number), self.fabric, chips, tiles_per_chip, share)
            for number, part in enumerate(network.parted(messages, tiles_per_chip))
        ]

    def phase_of(
        self,
        messages: Messages,
        ends: Ends,
        network: Network | None = None,
        chips: int = 1,
        scale: float = 1.0,
        share: float = 1.0,
        tiles_per_chip: int = 0,
        traffic: list[_Traffic] | None = None,
    ) -> RoutedPhase:
        """A phase of messages that stay on their chips (network None: of one chip, tiles in rows). scale: how many
        times as many messages there are as are listed; share: of the readers, those that are listed; tiles_per_chip:
        by which tiles are numbered, fewer than a chip has where a program was compiled for a smaller one (0: all)."""
        fabric, tiles = self.fabric, ends.tiles
        network, tiles_per_chip = network or Network.of(self.chip, fabric), tiles_per_chip or self.chip.tiles
        nets = traffic or self._traffic(messages, tiles, network, chips, tiles_per_chip, share)
        count, size, fanout = len(tiles), messages.size_bytes, np.diff(messages.first)
        at, to = np.searchsorted(tiles, messages.sender), np.searchsorted(tiles, messages.reader)
        listed_out = np.bincount(at, weights=size, minlength=count) * scale
        listed_in = np.bincount(to, weights=np.repeat(size, fanout), minlength=count) * scale
        elsewhere = np.maximum(ends.sent - listed_out, 0), np.maximum(ends.received - listed_in, 0)
        copies = sum(net.by_sender(net.messages.size_bytes * net.copies) for net in nets) * scale
        requests = ends.pieces_sent * np.where(listed_out > 0, np.maximum(copies / np.maximum(listed_out, 1), 1), 1)
        control = requests * fabric.send_fragment_cycles
        hears = ends.pieces_received * fabric.receive_fragment_cycles
        cycles, busy, by_path = np.zeros(chips), np.zeros(count), np.zeros(count)
        paths: list[Path | None] = [None] * chips
        start = fabric.fixed_cycles + fabric.route_cycles
        for number, net in enumerate(nets):
            more = elsewhere if number == 0 else (0.0, 0.0)
            reserving = net.by_sender(net.reserve) * scale
            out = (net.wire_out() * scale + more[0]) / fabric.bytes_per_cycle + reserving
            into = (net.wire_in() * scale + more[1]) / fabric.bytes_per_cycle
            out, heard = np.maximum(out, control + hears), np.maximum(into, hears)
            busy = np.maximum(busy, np.maximum(out, heard))
            found, arrived = net.slowest(out, into, heard, scale)
            by_path = np.maximum(by_path, arrived)
            for chip, path in enumerate(found):
                if path is not None and path.cycles > (0 if (known := paths[chip]) is None else known.cycles):
                    paths[chip] = path
        for chip in range(chips):
            own = np.flatnonzero((tiles // tiles_per_chip == chip) & (busy > 0))
            if not len(own):
                continue
            port = int(own[np.argmax(busy[own])])
            whole, slowest = int(np.ceil(busy[port])), paths[chip]
            if slowest is None or whole > slowest.cycles:  # such as bytes from other chips
                at_port = int(tiles[port])
                slowest = Path(
                    sender=at_port, reader=at_port, port_out=float(busy[port]), row=0.0, column=0.0, port_in=0.0,
                    hops=0, cycles=whole,
                )  # fmt: skip
            paths[chip] = slowest
            cycles[chip] = slowest.cycles + start
        loads = np.stack([net.loads * scale for net in nets])
        return RoutedPhase(
            cycles=cycles.astype(np.int64),
            paths=tuple(path if path is None else replace(path, cycles=path.cycles + start) for path in paths),
            busy=np.maximum(busy, by_path),
            loads=loads,
            hop_bytes=int(loads.sum()),
        )


def packets_of(size_bytes: Any, fabric: Fabric) -> np.ndarray:
    """int64: packets of messages of so many bytes."""
    whole = np.asarray(size_bytes)
    if not fabric.packet_bytes:
        return (whole > 0).astype(np.int64)
    return np.ceil(whole / fabric.packet_bytes).astype(np.int64)


@dataclass(frozen=True, kw_only=True, eq=False)
class Network:
    """The routers of a chip: `tiles` of each, their columns and rows, and those of the rings that they are part of."""

    tiles: int
    grid: tuple[np.ndarray, np.ndarray]
    wide: int
    high: int
    kind: int
    both: bool  # two networks of opposite ways

    @classmethod
    def of(cls, chip: Chip, fabric: Fabric, strip_columns: int = 0) -> Network:
        grid = chip.places(strip_columns, fabric.tiles_per_router)
        one_way = fabric.ways != "both"
        kinds = {"mesh": routes.MESH, "torus": routes.ONE_WAY if one_way else routes.TORUS, "crossbar": routes.CROSSBAR}
        columns, rows = (int(each.max()) + 1 for each in grid)
        ring = chip.grid == "torus"
        return cls(
            tiles=fabric.tiles_per_router,
            grid=grid,
            wide=max(columns, fabric.ring_columns if ring else 0),
            high=max(rows, fabric.ring_rows if ring else 0),
            kind=kinds[chip.grid],
            both=ring and fabric.ways == "opposed",
        )

    @property
    def links(self) -> int:
        """Links of all routers, each in its direction."""
        each = {routes.MESH: 4, routes.TORUS: 4, routes.ONE_WAY: 4 if self.both else 2, routes.CROSSBAR: 2}[self.kind]
        edge = 2 * (self.wide + self.high) if self.kind == routes.MESH else 0
        return max(each * self.wide * self.high - edge, 1)

    @property
    def mean_hops(self) -> float:
        """Links on the way between two tiles, on average."""
        if self.kind == routes.CROSSBAR:
            return 2.0
        share = {routes.MESH: 1 / 3, routes.TORUS: 1 / 4, routes.ONE_WAY: 1 / 3 if self.both else 1 / 2}[self.kind]
        return share * (self.wide + self.high)

    def places(self, tile: np.ndarray, tiles_per_chip: int) -> tuple[np.ndarray, np.ndarray]:
        """(column, row) of the router of each tile; rows are numbered over all chips."""
        chip, within = np.divmod(np.asarray(tile, np.int64), tiles_per_chip)
        column, row = (each[within // self.tiles] for each in self.grid)
        return column, chip * self.high + row

    def hops(self, here: tuple[np.ndarray, np.ndarray], there: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
        """int64: links from router to router."""
        if self.kind == routes.CROSSBAR:
            return np.where((here[0] != there[0]) | (here[1] != there[1]), 2, 0)
        hops: np.ndarray = np.zeros(np.shape(there[0]), np.int64)
        for axis, extent in ((0, self.wide), (1, self.high)):
            steps = there[axis] - here[axis]
            if self.kind != routes.MESH:
                steps = steps % extent
            hops += np.minimum(steps, extent - steps) if self.kind == routes.TORUS else np.abs(steps)
        return hops

    def turned(self, number: int) -> Network:
        """The first network, or the second, of the other ways: its routes go along the column first, so that rows and
        columns change places, both counted from the other end."""
        if not number:
            return self
        column, row = self.grid
        return replace(self, grid=(self.high - 1 - row, self.wide - 1 - column), wide=self.high, high=self.wide)

    def parted(self, messages: Messages, tiles_per_chip: int) -> Iterator[Messages]:
        """The messages of each network: every reader is reached by the one with fewer hops, the first of two."""
        if not self.both:
            yield messages
            return
        fanout = np.diff(messages.first)
        sender = np.repeat(messages.sender, fanout)
        hops = []
        for network in (self, self.turned(1)):
            hops.append(
                network.hops(network.places(sender, tiles_per_chip), network.places(messages.reader, tiles_per_chip))
            )
        for chosen in (hops[0] <= hops[1], hops[0] > hops[1]):
            count = np.add.reduceat(np.append(chosen, 0), messages.first[:-1]) if len(fanout) else fanout
            kept = count > 0
            yield Messages(
                sender=messages.sender[kept],
                size_bytes=messages.size_bytes[kept],
                first=np.concatenate([[0], np.cumsum(count[kept])]).astype(np.int64),
                reader=messages.reader[chosen],
            )


@dataclass(frozen=True, kw_only=True, eq=False)
class _Traffic:
    """The messages of one network: by message, bytes with headers, packets, copies (1 along a tree), cycles of
    reserving it; by reading, hops there and back; at and to: places of senders, by message, and readers among the
    `count` tiles that take part; by link, bytes, cycles for which trees are being reserved, and
    whether messages of several tiles to several share it."""

    messages: Messages
    network: Network
    fabric: Fabric
    chips: int
    tiles_per_chip: int
    at: np.ndarray
    to: np.ndarray
    count: int
    wire: np.ndarray
    packets: np.ndarray
    copies: np.ndarray
    reserve: np.ndarray
    hops: np.ndarray
    loads: np.ndarray
    held: np.ndarray
    shared: np.ndarray

    @classmethod
    def of(
        cls,
        messages: Messages,
        tiles: np.ndarray,
        network: Network,
        fabric: Fabric,
        chips: int,
        tiles_per_chip: int,
        share: float,
    ) -> _Traffic:
        fanout = np.diff(messages.first)
        packets = packets_of(messages.size_bytes, fabric)
        wire = (messages.size_bytes + packets * fabric.header_bytes).astype(np.float64)
        here = network.places(np.repeat(messages.sender, fanout), tiles_per_chip)
        there = network.places(messages.reader, tiles_per_chip)
        hops = network.hops(here, there)
        reserve = np.zeros(len(fanout))
        if fabric.multicast in ("reserved", "linked") and len(fanout):
            depth = np.maximum.reduceat(np.append(hops, 0), messages.first[:-1])
            reserve = 2 * fabric.hop_cycles * depth * (packets if fabric.multicast == "reserved" else 1)
        each = np.maximum(wire / fabric.bytes_per_cycle, packets * fabric.send_fragment_cycles)
        once = wire / fabric.bytes_per_cycle + reserve
        tree = (fanout > 1) & (once <= fanout * each) & (fabric.multicast != "none")
        routers = chips * network.wide * network.high
        (loads, held), ends = np.zeros((2, 4, routers)), np.full((2, 4, routers), routes.NONE)
        columns, rows = network.places(np.arange(chips * tiles_per_chip), tiles_per_chip)
        routes.link_loads(
            network.kind, network.wide, network.high, columns, rows, messages.sender,
            wire / np.where(fanout == 1, share, 1.0), tree * reserve, tree,
            messages.first, messages.reader, loads, held, ends[0], ends[1],
        )  # fmt: skip
        if fabric.acknowledge_bytes:
            hops = hops + network.hops(there, here)
        return cls(
            messages=messages, network=network, fabric=fabric, chips=chips, tiles_per_chip=tiles_per_chip,
            at=np.searchsorted(tiles, messages.sender), to=np.searchsorted(tiles, messages.reader), count=len(tiles),
            wire=wire,
            packets=packets, copies=np.where(tree, 1, fanout), reserve=np.where(tree, reserve, 0.0), hops=hops,
            loads=loads, held=held, shared=(ends == routes.SEVERAL).all(axis=0),
        )  # fmt: skip

    def wire_out(self) -> np.ndarray:
        """float64[taking part]: bytes on the port out of each tile, with headers and answers."""
        answers = self.by_reader(self.packets * self.fabric.acknowledge_bytes)
        return np.asarray(self.by_sender(self.wire * self.copies) + answers)

    def wire_in(self) -> np.ndarray:
        """float64[taking part]: bytes on the port into each tile, with headers and answers."""
        answers = self.packets * np.diff(self.messages.first) * self.fabric.acknowledge_bytes
        return np.asarray(self.by_reader(self.wire) + self.by_sender(answers))

    def by_sender(self, amount: np.ndarray) -> np.ndarray:
        """float64[taking part]: amounts of messages, added up by their senders."""
        found: np.ndarray = np.bincount(self.at, weights=amount, minlength=self.count)
        return found

    def by_reader(self, amount: np.ndarray) -> np.ndarray:
        """float64[taking part]: amounts of messages, added up by each of their readers."""
        each = np.repeat(amount, np.diff(self.messages.first))
        found: np.ndarray = np.bincount(self.to, weights=each, minlength=self.count)
        return found

    def slowest(
        self, out: np.ndarray, into: np.ndarray, heard: np.ndarray, scale: float
    ) -> tuple[list[Path | None], np.ndarray]:
        """The slowest path of every chip, and cycles of the slowest that leads to each tile float64[taking part].

        Given, by tile, too: cycles of the ports out, of those in, and of the latter with what a tile does for every
        piece that it hears, which nothing on its way waits for.
        """
        found: list[Path | None] = [None] * self.chips
        arrived = np.zeros(self.count)
        messages, fanout = self.messages, np.diff(self.messages.first)
        if not len(messages.reader):
            return found, arrived
        sender = np.repeat(messages.sender, fanout)
        at, to = np.repeat(self.at, fanout), self.to
        port_out, port_in = out[at], heard[to]
        per_cycle = self.fabric.link_bytes_per_cycle or 1.0
        take = (self.loads / per_cycle + self.held) * scale
        shared = take * self.shared
        along, across = self._lines(sender, messages.reader)
        row, column = along(take), across(take)
        alone = np.stack([port_out, row, column, port_in])
        whole = alone.max(axis=0)
        # of what takes longest at once, that is named alone
        parts = np.where(alone.argmax(axis=0) == np.arange(4)[:, None], alone, 0.0)
        if self.fabric.switching == "wormhole":
            port_in = np.where(_several(to, at, self.count), into[to], 0.0)
            held = np.stack([port_out, along(shared), across(shared), port_in])
            summed = np.where(_several(at, to, self.count), held.sum(axis=0), 0.0)
            summed[np.repeat(self.reserve > 0, fanout)] = 0.0  # nothing is held while the whole tree is waited for
            parts = np.where(summed >= whole, held, parts)
            whole = np.maximum(whole, summed)
        port_out, row, column, port_in = parts
        whole = whole + self.fabric.hop_cycles * self.hops
        np.maximum.at(arrived, to, whole)
        chip = sender // self.tiles_per_chip
        for number in np.unique(chip).tolist():
            own = np.flatnonzero(chip == number)
            k = int(own[np.argmax(whole[own])])
            found[number] = Path(
                sender=int(sender[k]), reader=int(messages.reader[k]), port_out=float(port_out[k]), row=float(row[k]),
                column=float(column[k]), port_in=float(port_in[k]), hops=int(self.hops[k]),
                cycles=int(np.ceil(whole[k])),
            )  # fmt: skip
        return found, arrived

    def _lines(self, sender: np.ndarray, reader: np.ndarray) -> tuple[_Line, _Line]:
        """Functions of float64[4, routers] that give by reading the most of the row that it leaves by, in its
        direction, and of the column that it arrives by."""
        network = self.network
        here, there = (network.places(tile, self.tiles_per_chip) for tile in (sender, reader))
        high, wide = network.high, network.wide
        if network.kind == routes.CROSSBAR:
            away = (here[0] != there[0]) | (here[1] != there[1])
            ends = here[1] * wide + here[0], there[1] * wide + there[0]
            return (lambda of: of[0, ends[0]] * away), (lambda of: of[2, ends[1]] * away)
        chip = here[1] // high

        def along(of: np.ndarray) -> np.ndarray:
            most: np.ndarray = of[:2].reshape(2, -1, wide).max(axis=2)
            return _toward(network.kind, there[0] - here[0], wide, most[0, here[1]], most[1, here[1]])

        def across(of: np.ndarray) -> np.ndarray:
            most = of[2:].reshape(2, self.chips, high, wide).max(axis=2)
            return _toward(network.kind, there[1] - here[1], high, most[0, chip, there[0]], most[1, chip, there[0]])

        return along, across


def _several(at: np.ndarray, other: np.ndarray, count: int) -> np.ndarray:
    """bool[readings]: whether the end `at`, of so many, has several at its other end."""
    least, most = np.full(count, np.iinfo(np.int64).max), np.full(count, -1)
    np.minimum.at(least, at, other)
    np.maximum.at(most, at, other)
    found: np.ndarray = (least != most)[at]
    return found


def _toward(kind: int, steps: np.ndarray, extent: int, ahead: np.ndarray, back: np.ndarray) -> np.ndarray:
    """float64: what lies in the direction of so many steps along a row or column; 0 for none."""
    if kind != routes.MESH:
        steps = steps % extent
        if kind == routes.TORUS:
            steps = np.where(2 * steps > extent, steps - extent, steps)
    found: np.ndarray = np.where(steps > 0, ahead, np.where(steps < 0, back, 0.0))
    return found
