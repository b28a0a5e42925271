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

What links carry of a phase of which only some readers are known: each stands for the readers around it.

A link sees what many tiles hear, so messages to a few of them, counted several times, would fill the links to these and
leave all others empty. Here the readers that one stands for hear the same from the same senders, and where a sender has
a single reader in the sample it is taken to lie as far from its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from mimdsim.base.cache import PerObject
from mimdsim.costs.fabric.model import BusiestTile, FabricModel, LinkLoads, Row, exchanges_of
from mimdsim.costs.fabric.network import Listed, Network
from mimdsim.costs.fabric.traffic import RESERVING, Ends, Phase, Traffic
from mimdsim.machine.mimd import Fabric
from mimdsim.numerics.columns import routes
from mimdsim.program import Exchange, Program
from mimdsim.program.mapping import repeat_each
from mimdsim.program.messages import Messages, all_messages

RATES = (  # keys of [exchange] that change no route
    "bytes_per_cycle", "link_bytes_per_cycle", "hop_cycles", "packet_bytes", "header_bytes", "acknowledge_bytes",
    "send_fragment_cycles", "receive_fragment_cycles", "switching",
)  # fmt: skip


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
    cycles of the busier port of each tile, or of the slowest path that leads to it; loads, takes float64[networks, 4,
    routers]: bytes over each link, and the cycles that it is in use, reserved included; hop_bytes: sum of the bytes.
    """

    cycles: np.ndarray
    paths: tuple[Path | None, ...]
    busy: np.ndarray
    loads: np.ndarray
    takes: np.ndarray
    hop_bytes: int


class _Weights(NamedTuple):
    """By option, at the rates of a machine: whether it is chosen; bytes of a message with headers, of answers to it,
    times that its sender sends it, cycles of reserving its tree, and those that links are held beside its bytes: also
    while the next packet of a series that keeps its tree is not there yet."""

    chosen: np.ndarray
    wire: np.ndarray
    answers: np.ndarray
    copies: np.ndarray
    reserve: np.ndarray
    held: np.ndarray

    @classmethod
    def of(cls, of: Traffic, fabric: Fabric, trees: np.ndarray | bool | None) -> _Weights:
        """trees: by option, whether it goes along one; None: where that takes its sender less time."""
        packets, rate = packets_of(of.size, of.fragments, fabric), fabric.bytes_per_cycle
        wire = of.size + packets * float(fabric.header_bytes)
        reserve, waits = np.zeros((2, len(packets)))
        requests = of.fragments * fabric.send_fragment_cycles
        if fabric.multicast in RESERVING:
            reserve = 2 * fabric.hop_cycles * of.depth * (packets if fabric.multicast == "reserved" else 1)
        if fabric.multicast == "linked":
            waits = np.maximum(requests - wire / (fabric.link_bytes_per_cycle or 1.0), 0)
        if trees is None:
            trees = wire / rate + reserve <= of.fanout * np.maximum(wire / rate, requests)
        tree = trees & (of.fanout > 1) & (fabric.multicast != "none")
        return cls(
            chosen=tree == of.along,
            wire=wire,
            answers=packets * fabric.acknowledge_bytes,
            copies=np.where(of.along, 1, of.fanout),
            reserve=reserve * (tree & of.along),
            held=(reserve + waits) * (tree & of.along),
        )

    def sums(self, of: Traffic, table: str, at: str, rows: int, *weights: np.ndarray) -> np.ndarray:
        """float64[weights, rows]: of the messages in a table, by what they are at."""
        found = np.zeros((rows, len(weights)))
        option, count = getattr(of, f"{table}_option"), getattr(of, f"{table}_count")
        weight = np.ascontiguousarray((self.chosen * np.stack(weights)).T)
        routes.sum_options(getattr(of, f"{table}_{at}"), option, count, weight, found)
        return found.T


class _Ports(NamedTuple):
    """float64[classes of tiles, networks]: cycles of ports out, of those in, and of the latter with what a tile does
    for every piece that it hears, which nothing on its way waits for."""

    out: np.ndarray
    into: np.ndarray
    heard: np.ndarray

    @classmethod
    def of(cls, of: Traffic, fabric: Fabric, weights: _Weights) -> _Ports:
        ports, rate, (_, wire, answers, copies, reserve, _) = len(of.several_in), fabric.bytes_per_cycle, weights
        sends, answered, reserving, copied = weights.sums(
            of, "sent", "port", ports, copies * wire, of.fanout * answers, reserve, of.fragments * copies
        ).reshape(4, -1, of.networks)
        hears, answering = weights.sums(of, "heard", "port", ports, wire, answers).reshape(2, -1, of.networks)
        first = np.arange(of.networks) == 0  # which is charged with what is in no message
        requests = of.pieces_sent * np.where(
            of.listed > 0, np.maximum(copied.sum(axis=1) / np.maximum(of.listed, 1), 1), 1
        )
        pieces = (of.pieces_received * fabric.receive_fragment_cycles)[:, None]
        control = (requests * fabric.send_fragment_cycles)[:, None] + pieces
        out = np.maximum((sends + answering + first * of.more_out[:, None]) / rate + reserving, control)
        into = (hears + answered + first * of.more_in[:, None]) / rate
        return cls(out, into, np.maximum(into, pieces))


@dataclass(frozen=True, kw_only=True, eq=False)
class Times:
    """Traffic at the rates of a machine, in cycles without the start of a phase. trees bool[options]: whether its
    messages go along trees; loads, takes float64[links]: bytes, and cycles in use; lines float64[2, lines]: cycles of
    the fullest link, and of the fullest that several senders and several readers share; busy float64[classes of tiles]:
    of the busier port; whole float64[routes]: what a route waits for, without its hops; cycles int64[places]; slowest,
    port int64[places]: the slowest route, -1 for none, and the class of tiles whose port takes longer still, such as
    with bytes from other chips; hop_bytes float64[phases]: over all links."""

    of: Traffic
    fabric: Fabric
    ports: _Ports
    trees: np.ndarray
    reserve: np.ndarray
    loads: np.ndarray
    takes: np.ndarray
    lines: np.ndarray
    busy: np.ndarray
    whole: np.ndarray
    cycles: np.ndarray
    slowest: np.ndarray
    port: np.ndarray
    hop_bytes: np.ndarray

    @classmethod
    def faster(cls, of: Traffic, fabric: Fabric) -> Times:
        """At the rates of `fabric`; where trees are reserved, without any in phases that these make slower: held links
        let others wait, which their senders do not see."""
        found = cls.at(of, fabric)
        if fabric.multicast not in RESERVING:
            return found
        slower = found.cycles > cls.at(of, fabric, False).cycles
        return cls.at(of, fabric, found.trees & ~slower[of.option_place]) if slower.any() else found

    @classmethod
    def at(cls, of: Traffic, fabric: Fabric, trees: np.ndarray | bool | None = None) -> Times:
        """At the rates of `fabric`, along trees as given, or where these take a sender less time."""
        weights = _Weights.of(of, fabric, trees)
        ports, places = _Ports.of(of, fabric, weights), of.extents["place"]
        loads, held = weights.sums(of, "carried", "link", len(of.link_line), weights.wire, weights.held)
        takes, shared = loads / (fabric.link_bytes_per_cycle or 1.0) + held, np.zeros(len(loads), bool)
        entries = of.carried_link, of.carried_option, of.carried_sender, of.carried_reader
        routes.are_shared(*entries, weights.chosen, shared)
        lines = np.zeros((2, of.extents["line"]))
        np.maximum.at(lines[0], of.link_line, takes)
        np.maximum.at(lines[1], of.link_line, takes * shared)
        # nothing is held while a whole tree is waited for, nor where packets do not stay on links
        reserve = np.zeros(0)
        if fabric.switching == "wormhole":
            reserve = (weights.chosen & of.along & (fabric.multicast in RESERVING)).astype(np.float64)
        whole, most, first = routes.slowest_routes(
            of.route_place, (of.route_out, of.route_in), (of.route_row, of.route_column), of.route_option,
            of.route_hops, places, tuple(ports), (of.several_in, of.several_out), lines, reserve,
            float(fabric.hop_cycles),
        )  # fmt: skip
        by_network = np.ceil(most).astype(np.int64)
        slowest = first[np.arange(places), by_network.argmax(axis=1)]
        busy = np.maximum(ports.out, ports.heard).max(axis=1)
        most, port = _largest(busy, of.tile_place, places)
        longest, of_route = np.ceil(most).astype(np.int64), by_network.max(axis=1)
        moved = weights.chosen * weights.wire * of.option_links
        return cls(
            of=of, fabric=fabric, ports=ports, trees=weights.chosen == of.along, reserve=reserve, loads=loads,
            takes=takes, lines=lines, busy=busy, whole=whole, cycles=np.maximum(longest, of_route), slowest=slowest,
            port=np.where(longest > of_route, port, -1),
            hop_bytes=np.bincount(of.option_place // of.chips, moved, places // of.chips),
        )  # fmt: skip

    def path(self, place: int) -> Path | None:
        """The slowest path of a place, the start of a phase included."""
        of, at, port = self.of, int(self.slowest[place]), int(self.port[place])
        cycles = int(self.cycles[place]) + self.fabric.fixed_cycles + self.fabric.route_cycles
        if port >= 0:
            tile, busy = int(of.tile[port]), float(self.busy[port])
            return Path(sender=tile, reader=tile, port_out=busy, row=0, column=0, port_in=0, hops=0, cycles=cycles)
        if at < 0:
            return None
        one, other, line = of.route_out[at], of.route_in[at], [of.route_row[at], of.route_column[at]]
        out, into, heard = (float(port.flat[end]) for port, end in zip(self.ports, (one, other, other), strict=True))
        alone = np.array([out, *self.lines[0][line], heard])
        held = np.array([out, *self.lines[1][line], into if of.several_in[other] else 0.0])
        waits = len(self.reserve) and of.several_out[one] and not self.reserve[of.route_option[at]]
        # of what takes longest at once, that is named alone
        named = np.where(np.arange(4) == alone.argmax(), alone, 0.0)
        parts = held if waits and held.sum() >= alone.max() else named
        port_out, row, column, port_in = parts.tolist()
        return Path(
            sender=int(of.route_sender[at]), reader=int(of.route_reader[at]), port_out=port_out, row=row, column=column,
            port_in=port_in, hops=int(of.route_hops[at]), cycles=cycles,
        )  # fmt: skip


def _largest(values: np.ndarray, group: np.ndarray, groups: int) -> tuple[np.ndarray, np.ndarray]:
    """(the largest value of each group, 0 for none; the first that is as large, -1 for none)."""
    most, at = np.zeros(groups), np.full(groups, -1)
    np.maximum.at(most, group, values)
    first = np.flatnonzero(values == most[group])[::-1]
    at[group[first]] = first
    return most, at


_PHASES: PerObject[Phase] = PerObject()  # of an exchange
_TRAFFIC: PerObject[Traffic] = PerObject()  # of all phases of a program
_TIMES: PerObject[Times] = PerObject()  # of traffic


class Routed(FabricModel):
    """Links between routers, which fill up."""

    rates = ("bytes_per_cycle", "link_bytes_per_cycle")

    @property
    def start(self) -> int:
        """Cycles of every phase beside those of its slowest path."""
        return self.fabric.fixed_cycles + self.fabric.route_cycles

    def cycles(self, program: Program, exchanges: Sequence[Exchange] | None = None) -> np.ndarray:
        cycles = self._times(self._traffic(program, exchanges)).cycles
        return np.where(cycles > 0, cycles + self.start, 0).reshape(-1, program.chips)

    def hop_bytes(self, program: Program) -> np.ndarray:
        return self._times(self._traffic(program)).hop_bytes.astype(np.int64)

    def estimate(self, wire_bytes: Any, sent: Any, received: Any) -> np.ndarray:
        """As of `FabricModel`, as if all tiles sent so much to tiles anywhere on the chip."""
        fabric, chip = self.fabric, self.chip
        packets = packets_of(wire_bytes, np.maximum(received, 1), fabric)
        wire = wire_bytes + packets * fabric.header_bytes
        control = sent * fabric.send_fragment_cycles + received * fabric.receive_fragment_cycles
        port = np.maximum(wire / fabric.bytes_per_cycle, control)
        network = Network.of(chip, fabric)
        hops = network.mean_hops
        links = wire * chip.tiles * hops / (network.links * (fabric.link_bytes_per_cycle or 1.0))
        busiest = port + links if fabric.switching == "wormhole" else np.maximum(port, links)
        start = self.start + fabric.hop_cycles * self.machine.diameter
        return np.where(wire_bytes > 0, np.ceil(busiest + start), 0).astype(np.int64)

    def tile_cycles(self, program: Program, exchange: Exchange) -> np.ndarray:
        """As of `FabricModel`: its ports, and the slowest path that leads to it."""
        phase = self._phase(program, exchange)
        busy = np.ceil(self._busy(phase, self._times(phase.traffic))).astype(np.int64)
        return np.where(busy > 0, busy + self.start, 0)

    def busiest(self, program: Program, exchanges: Sequence[Exchange] | None = None) -> list[BusiestTile | None]:
        """As of `FabricModel`: the reader of the slowest path."""
        found: list[BusiestTile | None] = []
        times = self._times(self._traffic(program, exchanges))
        slowest = times.cycles.reshape(-1, program.chips).argmax(axis=1).tolist()
        for number, exchange in enumerate(exchanges_of(program) if exchanges is None else exchanges):
            path = times.path(number * program.chips + slowest[number])
            if path is None:
                found.append(None)
                continue
            wire = np.maximum(exchange.column("bytes_sent"), exchange.column("bytes_received"))
            size = int(wire[np.searchsorted(exchange.tiles, path.reader)])
            found.append(BusiestTile(tile=path.reader, wire_bytes=size, control_cycles=0))
        return found

    def explain(self, program: Program, exchange: Exchange, tile: int, phase: int) -> list[Row]:
        """Of the slowest path of the tile's chip."""
        path = self._times(self._phase(program, exchange).traffic).path(tile // program.tiles_per_chip)
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

    def links(self, program: Program, exchange: Exchange) -> LinkLoads:
        """As of `FabricModel`: of all networks together, no two of which share a link in its direction."""
        network, phase = self._network(program), self.link_loads(program, exchange)
        column, row = network.places(np.arange(program.tiles_per_chip))
        return LinkLoads(
            loads=network.on_grid(phase.loads),
            cycles=network.on_grid(phase.takes),
            router_of=row * network.wide + column,
            crossbar=network.kind == routes.CROSSBAR,
        )

    def link_loads(self, program: Program, exchange: Exchange) -> RoutedPhase:
        """One exchange phase of a program with the loads of all its links."""
        phase = self._reduced(program, exchange, fullest=False)
        return self._figures(phase, self._network(program), self._times(phase.traffic))

    def phase_of(
        self, messages: Messages, ends: Ends, network: Network | None = None, trees: bool | None = None
    ) -> RoutedPhase:
        """A phase of messages that stay on their chips (network None: of one chip, tiles in rows), along trees as given
        (None: where that takes a sender less time)."""
        network = network or Network.of(self.chip, self.fabric)
        phase = Phase.of(Listed.of(messages), ends, network, self.fabric, fullest=False)
        return self._figures(phase, network, Times.at(phase.traffic, self.fabric, trees))

    def _figures(self, phase: Phase, network: Network, times: Times) -> RoutedPhase:
        """Of a phase of which all links were kept."""
        of = phase.traffic
        loads, takes = np.zeros((2, of.networks, 4, of.chips * network.wide * network.high))
        loads.reshape(-1)[of.link_number], takes.reshape(-1)[of.link_number] = times.loads, times.takes
        return RoutedPhase(
            cycles=np.where(times.cycles > 0, times.cycles + self.start, 0),
            paths=tuple(times.path(chip) for chip in range(of.chips)),
            busy=self._busy(phase, times),
            loads=loads,
            takes=takes,
            hop_bytes=int(times.hop_bytes[0]),
        )

    def _busy(self, phase: Phase, times: Times) -> np.ndarray:
        """float64[taking part]: cycles of the busier port of each tile, or of the slowest path that leads to it."""
        busy: np.ndarray = times.busy[phase.class_of]
        np.maximum.at(busy, phase.to, times.whole[phase.route] + self.fabric.hop_cycles * phase.hops)
        return busy

    def _times(self, traffic: Traffic) -> Times:
        rates = [getattr(self.fabric, name) for name in RATES]
        return _TIMES.get(traffic, rates, lambda: Times.faster(traffic, self.fabric))

    def _traffic(self, program: Program, exchanges: Sequence[Exchange] | None = None) -> Traffic:
        """Phases of a program (None: all)."""
        if exchanges is not None and len(exchanges) == 1:
            return self._phase(program, exchanges[0]).traffic
        chosen, networks = exchanges_of(program) if exchanges is None else exchanges, self._network(program).networks

        def join() -> Traffic:
            return Traffic.joined([self._phase(program, one).traffic for one in chosen], networks, program.chips)

        return join() if exchanges is not None else _TRAFFIC.get(program, self._shape(program), join)

    def _phase(self, program: Program, exchange: Exchange) -> Phase:
        """One exchange phase of a program, whatever the rates."""

        return _PHASES.get(exchange, self._shape(program), lambda: self._reduced(program, exchange))

    def _reduced(self, program: Program, exchange: Exchange, fullest: bool = True) -> Phase:
        messages, scale = all_messages(program, exchange)
        listed, on_links = Listed.of(messages, scale), None
        if exchange.stand_ins is not None:
            listed, on_links = spread(messages, exchange.stand_ins, program.tiles_per_chip)
        network, ends = self._network(program), ends_of(exchange)
        return Phase.of(listed, ends, network, self.fabric, on_links=on_links, fullest=fullest)

    def _network(self, program: Program) -> Network:
        return Network.of(self.chip, self.fabric, program.strip_columns, program.chips, program.tiles_per_chip)

    def _shape(self, program: Program) -> tuple[object, ...]:
        """All that decides routes, and which of them are alike."""
        fabric, chip = self.fabric, self.chip
        return (
            chip.tiles, chip.grid_columns, chip.grid, program.strip_columns, fabric.tiles_per_router, fabric.ways,
            fabric.ring_columns, fabric.ring_rows, fabric.multicast, fabric.acknowledge_bytes > 0,
        )  # fmt: skip


def ends_of(exchange: Exchange) -> Ends:
    names = ("bytes_sent", "bytes_received", "fragments_sent", "fragments_received")
    return Ends(exchange.tiles, *(exchange.column(name).astype(np.float64) for name in names))


def packets_of(size_bytes: Any, fragments: Any, fabric: Fabric) -> np.ndarray:
    """int64: packets of so many bytes in so many fragments of about the same size, at least 1; none holds parts of
    two."""
    whole, fragments = np.asarray(size_bytes), np.asarray(fragments)
    if not fabric.packet_bytes:
        return np.asarray((whole > 0) * fragments)
    return np.asarray(fragments * np.ceil(whole / (fragments * fabric.packet_bytes)).astype(np.int64))


MOST_PLACES = 8  # of the tiles that one stands for; enough that links of a line carry about the same


def spread(messages: Messages, stand_ins: np.ndarray, tiles_per_chip: int) -> tuple[Listed, Listed]:
    """(the messages with the readers that they stand for, the same at places of those readers, as links see them).

    stand_ins int64[2, tiles]: tiles, and the one that stands for each, as of `Exchange`.
    """
    tiles, of = stand_ins[:, np.lexsort(stand_ins)]
    begin, end = (np.searchsorted(of, messages.reader, side=side) for side in ("left", "right"))
    stood_for = np.maximum(end - begin, 1)
    fanout = np.diff(messages.first)
    readers = np.add.reduceat(np.append(stood_for, 0), messages.first[:-1]) if len(fanout) else fanout
    single = fanout == 1
    readers = np.where(single, 1, readers)
    which, number = repeat_each(np.minimum(stood_for, MOST_PLACES))
    places = np.minimum(stood_for, MOST_PLACES)[which]
    # not all of one reader's messages at the same places of those that it stands for
    turn = (number * stood_for[which] // places + which) % stood_for[which]
    known = (end > begin)[which]
    reader = np.where(known, tiles[np.minimum(begin[which] + turn, len(tiles) - 1)], messages.reader[which])
    message = np.repeat(np.arange(len(fanout)), fanout)[which]
    own = np.bincount(messages.sender[single], minlength=int(messages.sender.max(initial=0)) + 1)[messages.sender] == 1
    moved = messages.sender[message] + np.where((own & single)[message], reader - messages.reader[which], 0)
    first_of_chip = messages.sender[message] // tiles_per_chip * tiles_per_chip
    sender = np.clip(moved, first_of_chip, first_of_chip + tiles_per_chip - 1)
    alone = single[message]
    begins = np.flatnonzero(alone | (np.diff(message, prepend=-1) > 0))
    of_message = message[begins]
    carried = Messages(
        sender=sender[begins],
        size_bytes=messages.size_bytes[of_message],
        fragments=messages.fragments[of_message],
        first=np.append(begins, len(message)),
        reader=reader,
    )
    amount = np.where(alone, stood_for[which] / places, 1.0)[begins]
    return Listed(messages, readers, np.ones(len(fanout))), Listed(carried, readers[of_message], amount)
