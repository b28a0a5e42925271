"""Exchange phases on a network of routers, reduced to what their time depends on at any rates.

Messages of equal size, fragments, readers and depth are a class; a class that may go along a tree is two options, of
which rates choose one. How many messages of every option each port sends and hears and each link carries depends on the
network alone, so other rates are arithmetic: a weight for every option, sums over ports and links, and the largest over
lines and routes. Tiles whose ports see the same are one class. Of a line (a row or column in one direction) the fullest
links are kept, and of routes between the same classes of tiles along the same lines the first and the longest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Annotated, NamedTuple, get_type_hints

import numpy as np

from mimdsim.base.compressed_columns import distinct
from mimdsim.costs.fabric.network import Listed, Network
from mimdsim.machine.mimd import Fabric
from mimdsim.numerics.columns import routes
from mimdsim.numerics.columns.worker_load import number_alike, order_by
from mimdsim.program.mapping import repeat_each

RESERVING = ("reserved", "linked")  # of exchange.multicast
Columns = dict[str, np.ndarray]


class Ends(NamedTuple):
    """What the tiles that take part do, by tile, ascending: bytes sent (a multicast once) and received, also over links
    between chips; fragments sent (requests of the sender) and received; float64[taking part]."""

    tiles: np.ndarray
    sent: np.ndarray
    received: np.ndarray
    pieces_sent: np.ndarray
    pieces_received: np.ndarray


@dataclass(frozen=True, kw_only=True, eq=False)
class Traffic:
    """One phase or several. Columns say of which table they are, and which table's rows they number.

    Options: bytes, fragments, readers, depth (hops of the farthest, where trees are reserved), whether along a tree, a
    place of its phase (places are the chips of every phase), and the links that all its messages go along. Classes of
    tiles: the first, fragments sent in messages, bytes out and in beside them, pieces sent and received. Ports, by
    class of tiles and network: whether they hear or send to several tiles. Messages of an option that a port sends or
    hears, and that a link carries, with the sender and reader as of `routes.link_loads`. Links: their line and their
    number on the chips of a phase, as of `RoutedPhase.loads`. Routes: ports, lines, hops, the option whose reservation
    they wait for.
    """

    networks: int
    chips: int
    extents: dict[str, int]
    size: Annotated[np.ndarray, "option"]
    fragments: Annotated[np.ndarray, "option"]
    fanout: Annotated[np.ndarray, "option"]
    depth: Annotated[np.ndarray, "option"]
    along: Annotated[np.ndarray, "option"]
    option_place: Annotated[np.ndarray, "option", "place"]
    option_links: Annotated[np.ndarray, "option"]
    tile: Annotated[np.ndarray, "tile"]
    tile_place: Annotated[np.ndarray, "tile", "place"]
    listed: Annotated[np.ndarray, "tile"]
    more_out: Annotated[np.ndarray, "tile"]
    more_in: Annotated[np.ndarray, "tile"]
    pieces_sent: Annotated[np.ndarray, "tile"]
    pieces_received: Annotated[np.ndarray, "tile"]
    several_in: Annotated[np.ndarray, "port"]
    several_out: Annotated[np.ndarray, "port"]
    sent_port: Annotated[np.ndarray, "sent", "port"]
    sent_option: Annotated[np.ndarray, "sent", "option"]
    sent_count: Annotated[np.ndarray, "sent"]
    heard_port: Annotated[np.ndarray, "heard", "port"]
    heard_option: Annotated[np.ndarray, "heard", "option"]
    heard_count: Annotated[np.ndarray, "heard"]
    link_line: Annotated[np.ndarray, "link", "line"]
    link_number: Annotated[np.ndarray, "link"]
    carried_link: Annotated[np.ndarray, "carried", "link"]
    carried_option: Annotated[np.ndarray, "carried", "option"]
    carried_count: Annotated[np.ndarray, "carried"]
    carried_sender: Annotated[np.ndarray, "carried"]
    carried_reader: Annotated[np.ndarray, "carried"]
    route_place: Annotated[np.ndarray, "route", "place"]
    route_out: Annotated[np.ndarray, "route", "port"]
    route_in: Annotated[np.ndarray, "route", "port"]
    route_row: Annotated[np.ndarray, "route", "line"]
    route_column: Annotated[np.ndarray, "route", "line"]
    route_hops: Annotated[np.ndarray, "route"]
    route_option: Annotated[np.ndarray, "route", "option"]
    route_sender: Annotated[np.ndarray, "route"]
    route_reader: Annotated[np.ndarray, "route"]

    @classmethod
    def joined(cls, parts: Sequence[Traffic], networks: int, chips: int) -> Traffic:
        """Phases one after the other, all on networks of the same shape."""
        tables = {table for table, _ in _COLUMNS.values()} | {"place", "line"}
        before = {table: np.cumsum([0, *(part.extents[table] for part in parts)]).tolist() for table in tables}

        def column(name: str, numbers: str | None) -> np.ndarray:
            each = [getattr(part, name) for part in parts]
            if numbers is not None:
                each = [one + one.dtype.type(start) for one, start in zip(each, before[numbers], strict=False)]
            return np.concatenate([np.zeros(0, bool), *each]) if each else np.zeros(0, np.int64)

        extents = {table: starts[-1] for table, starts in before.items()}
        columns = {name: column(name, numbers) for name, (_, numbers) in _COLUMNS.items()}
        return cls(networks=networks, chips=chips, extents=extents, **columns)


_HINTS = get_type_hints(Traffic, include_extras=True)
_COLUMNS: dict[str, tuple[str, str | None]] = {
    field.name: (*_HINTS[field.name].__metadata__, None)[:2] for field in fields(Traffic) if "ndarray" in field.type
}


@dataclass(frozen=True, kw_only=True, eq=False)
class Phase:
    """Traffic of one phase, and which of its rows every tile and reading is: the tiles that take part, class_of
    int64[taking part]; to, route, hops int32[readings]: the place of the reader among them, and a route along the same
    lines between ports of the same classes."""

    traffic: Traffic
    tiles: np.ndarray
    class_of: np.ndarray
    to: np.ndarray
    route: np.ndarray
    hops: np.ndarray

    @classmethod
    def of(
        cls,
        listed: Listed,
        ends: Ends,
        network: Network,
        fabric: Fabric,
        *,
        on_links: Listed | None = None,
        fullest: bool = True,
    ) -> Phase:
        """Messages that stay on their chips. on_links: those that links carry, where only some are known to ports;
        fullest: leave out links that are never fuller than others of their line.

        Of the rates of `fabric` it matters only whether answers are sent at all.
        """
        tiles, moving = ends.tiles, ends.tiles
        if on_links is not None:
            moving = distinct(np.concatenate([on_links.messages.sender, on_links.messages.reader, tiles]))
        nets = network.around(moving)
        parts = _parts(listed, tiles, nets, fabric, 0)
        options = sum(len(one.size) for one in parts)
        carrying = parts if on_links is None else _parts(on_links, moving, nets, fabric, options)
        columns, class_of = _tiles_and_ports(listed, ends, parts, tiles // network.tiles_per_chip)
        every = parts if on_links is None else [*parts, *carrying]
        columns |= _links([one.carried() for one in carrying], carrying, network, fullest)
        found = [one.routes(tiles, class_of, number, len(parts)) for number, one in enumerate(parts)]
        columns |= {name: np.concatenate([each[name] for each, _ in found]) for name in found[0][0]}
        before = np.cumsum([0, *(len(each["route_hops"]) for each, _ in found)])
        columns |= {
            "size": np.concatenate([one.size for one in every]),
            "fragments": np.concatenate([one.fragments for one in every]),
            "fanout": np.concatenate([one.readers for one in every]),
            "depth": np.concatenate([one.depth for one in every]),
            "along": np.concatenate([one.along for one in every]) > 0,
        }
        columns["option_place"] = np.zeros_like(columns["size"])
        extents = {table: len(columns[name]) for name, (table, _) in _COLUMNS.items()}
        extents |= {"place": network.chips, "line": len(parts) * nets.lines}
        return cls(
            traffic=Traffic(networks=len(parts), chips=network.chips, extents=extents, **columns),
            tiles=tiles,
            class_of=class_of,
            to=np.concatenate([one.to for one in parts]).astype(np.int32),
            route=np.concatenate([at + start for (_, at), start in zip(found, before, strict=False)]).astype(np.int32),
            hops=np.concatenate([one.hops for one in parts]).astype(np.int32),
        )


def _parts(listed: Listed, tiles: np.ndarray, network: Network, fabric: Fabric, before: int) -> list[_Part]:
    parts: list[_Part] = []
    for number, part in enumerate(network.parted(listed)):
        parts.append(_Part(part, tiles, network.turned(number), fabric, before))
        before += len(parts[-1].size)
    return parts


class _Part:
    """The messages that go over one network, by their classes and options. at: the places of senders among the tiles
    that take part; by reading: its message (`which`), places of its sender and reader (begin, to), hops. size,
    fragments, fanout, depth, along: of every option; option_of int64[2, classes]: of each class, alone and along a
    tree, -1 for none, counted from `before`."""

    def __init__(self, listed: Listed, tiles: np.ndarray, network: Network, fabric: Fabric, before: int):
        messages, readers, self.amount = listed
        self.network, self.first, self.fanout, self.count = network, messages.first, np.diff(messages.first), len(tiles)
        self.at, self.to = np.searchsorted(tiles, messages.sender), np.searchsorted(tiles, messages.reader)
        self.which = np.repeat(np.arange(len(self.fanout)), self.fanout)
        self.begin, self.places = self.at[self.which], network.places(tiles)
        self.here, self.there = ((self.places[0][end], self.places[1][end]) for end in (self.begin, self.to))
        self.hops = network.hops(self.here, self.there)
        self.reserving = fabric.multicast in RESERVING
        depth = np.zeros_like(self.fanout)
        if self.reserving and len(depth):
            depth = np.where(readers > 1, np.maximum.reduceat(self.hops, messages.first[:-1]), 0)
        columns = np.stack([messages.size_bytes, messages.fragments, readers, depth], axis=1)
        self.class_of, first = number_alike(np.zeros_like(depth), 4 * np.arange(len(depth) + 1), columns.reshape(-1))
        trees = (readers[first] > 1) & (fabric.multicast != "none")
        allowed = np.stack([~trees | self.reserving, trees])
        self.option_of = np.where(allowed, before - 1 + np.cumsum(allowed).reshape(allowed.shape), -1)
        self.along, self.of_class = np.nonzero(allowed)
        self.size, self.fragments, self.readers, self.depth = columns[first[self.of_class]].T
        self.before = before
        if fabric.acknowledge_bytes:
            self.hops = self.hops + network.hops(self.there, self.here)

    def seen(self, at: np.ndarray, message: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Such messages at places of tiles, counted by their classes: places, options, and how many."""
        classes = self.class_of[message]
        number, first = number_alike(at, np.arange(len(at) + 1), classes)
        option = self.option_of[:, classes[first]]
        every = np.broadcast_arrays(at[first], option, np.bincount(number, self.amount[message], len(first)))
        where, option, count = (column[option >= 0] for column in every)
        return where, option, count

    def carried(self) -> tuple[np.ndarray, np.ndarray]:
        """What links carry: int64[4, entries]: link, option, sender, reader; float64[entries]: messages."""
        net = self.network
        loads = np.zeros(4 * net.chips * net.wide * net.high)
        senders, readers = np.full((2, len(loads)), routes.NONE)
        order, begins = order_by(self.class_of, self.option_of.shape[1])
        entries, counts = [np.zeros((4, 0), np.int64)], [np.zeros(0)]
        for option, (along, of_class) in enumerate(zip(self.along.tolist(), self.of_class.tolist(), strict=True)):
            chosen = order[begins[of_class] : begins[of_class + 1]]
            fanout = self.fanout[chosen]
            which, number = repeat_each(fanout)
            amount = self.amount[chosen]
            if not along:  # to all readers that are stood for
                amount = amount * self.readers[option] / fanout
            routes.link_loads(
                net.kind, net.wide, net.high, *self.places, self.at[chosen],
                amount, bool(along),
                np.concatenate([[0], np.cumsum(fanout)]), self.to[self.first[chosen][which] + number],
                *(column.reshape(4, -1) for column in (loads, senders, readers)),
            )  # fmt: skip
            link = np.flatnonzero(loads)
            entries.append(np.stack([link, np.full(len(link), self.before + option), senders[link], readers[link]]))
            counts.append(loads[link])
            loads[link], senders[link], readers[link] = 0.0, routes.NONE, routes.NONE
        return np.concatenate(entries, axis=1), np.concatenate(counts)

    def routes(self, tiles: np.ndarray, class_of: np.ndarray, number: int, networks: int) -> tuple[Columns, np.ndarray]:
        """Columns of the routes over the network of such a number, and the route of each reading."""
        chip = tiles // self.network.tiles_per_chip
        row, column = (
            line + number * self.network.lines * (line > 0)
            for line in self.network.lines_of_routes(self.here, self.there)
        )
        reserved = self.option_of.max(axis=0)[self.class_of] if self.reserving else np.zeros_like(self.class_of)
        ends = class_of[self.begin], class_of[self.to]
        words = np.stack([*ends, row, column, reserved[self.which]], axis=1)
        alike, first = number_alike(chip[self.begin], 5 * np.arange(len(words) + 1), words.reshape(-1))
        most = np.zeros(len(first), np.int64)
        np.maximum.at(most, alike, self.hops)
        longest = np.flatnonzero(self.hops == most[alike])[::-1]
        most[alike[longest]] = longest
        kept = distinct(np.concatenate([first, most]))
        columns = {
            "route_place": chip[self.begin],
            "route_out": ends[0] * networks + number,
            "route_in": ends[1] * networks + number,
            "route_row": row,
            "route_column": column,
            "route_hops": self.hops,
            "route_option": reserved[self.which],
            "route_sender": tiles[self.begin],
            "route_reader": tiles[self.to],
        }
        chosen = {name: values[kept].astype(np.int32) for name, values in columns.items()}
        return chosen, np.searchsorted(kept, first)[alike]


def _several(end: np.ndarray, other: np.ndarray, count: int) -> np.ndarray:
    """bool[count]: whether readings of an end have several at their other end."""
    least, most = np.full(count, np.iinfo(np.int64).max), np.full(count, -1)
    np.minimum.at(least, end, other)
    np.maximum.at(most, end, other)
    return np.asarray(least < most)


def _classes(
    chip: np.ndarray, columns: Sequence[np.ndarray], seen: Sequence[tuple[np.ndarray, ...]]
) -> tuple[np.ndarray, np.ndarray]:
    """(class of each tile, first tile of each class): tiles of a chip with equal columns that see equally many messages
    of every option at every port; seen: tile, code of port and option, count."""
    lines = np.stack(columns, axis=1).astype(np.float64)
    alike, _ = number_alike(chip, lines.shape[1] * np.arange(len(chip) + 1), lines.reshape(-1).view(np.int64))
    tile, code, count = (np.concatenate(each) for each in zip(*seen, strict=True))
    order = np.lexsort((code, tile))
    words = np.stack([code[order], count[order]], axis=1).reshape(-1)
    begins = 2 * np.searchsorted(tile[order], np.arange(len(chip) + 1))
    class_of, first = number_alike(alike, begins, words.view(np.int64))
    return class_of, first


def _tiles_and_ports(
    listed: Listed, ends: Ends, parts: Sequence[_Part], chip: np.ndarray
) -> tuple[Columns, np.ndarray]:
    """Columns of classes of tiles and of their ports, and the class of each tile."""
    count, networks, messages = len(chip), len(parts), listed.messages
    at, to = np.searchsorted(ends.tiles, messages.sender), np.searchsorted(ends.tiles, messages.reader)
    size = messages.size_bytes * listed.amount
    listed_out = np.bincount(at, size, count)
    listed_in = np.bincount(to, np.repeat(size, np.diff(messages.first)), count)
    of_tiles = {
        "listed": np.bincount(at, messages.fragments * listed.amount, count),
        "more_out": np.maximum(ends.sent - listed_out, 0.0),
        "more_in": np.maximum(ends.received - listed_in, 0.0),
        "pieces_sent": ends.pieces_sent,
        "pieces_received": ends.pieces_received,
    }
    of_ports = {
        "several_in": np.stack([_several(one.to, one.begin, count) for one in parts], axis=1),
        "several_out": np.stack([_several(one.begin, one.to, count) for one in parts], axis=1),
    }
    sent = [one.seen(one.at, np.arange(len(one.at))) for one in parts]
    heard = [one.seen(one.to, one.which) for one in parts]
    tables: dict[str, list[np.ndarray]] = {}  # tile, network, option, count
    for table, each in (("sent", sent), ("heard", heard)):
        rows = [
            (where, np.full(len(where), number), option, amount) for number, (where, option, amount) in enumerate(each)
        ]
        tables[table] = [np.concatenate(column) for column in zip(*rows, strict=True)]
    options = sum(len(one.size) for one in parts)
    codes = [(where, number * options + option) for where, number, option, _ in tables.values()]
    seen = [(codes[0][0], 2 * codes[0][1], tables["sent"][3]), (codes[1][0], 2 * codes[1][1] + 1, tables["heard"][3])]
    flags = [column for flag in of_ports.values() for column in flag.T]
    class_of, first = _classes(chip, [*of_tiles.values(), *flags], seen)
    columns = {"tile": ends.tiles[first], "tile_place": chip[first]}
    columns |= {name: np.asarray(values[first], np.float64) for name, values in of_tiles.items()}
    columns |= {name: values[first].reshape(-1) for name, values in of_ports.items()}
    place = np.full(count, -1)
    place[first] = np.arange(len(first))
    for table, (where, number, option, amount) in tables.items():
        own = place[where] >= 0
        port = place[where] * networks + number
        columns |= {f"{table}_port": port[own], f"{table}_option": option[own], f"{table}_count": amount[own]}
    return columns, class_of


def _links(
    carried: Sequence[tuple[np.ndarray, np.ndarray]], parts: Sequence[_Part], network: Network, fullest: bool
) -> Columns:
    """Columns of links, by ascending line, and of what they carry."""
    lines, numbers = [], []
    for at, (part, ((link, *_), _)) in enumerate(zip(parts, carried, strict=True)):
        net, whole = part.network, network.turned(at)
        direction, router = np.divmod(link, net.chips * net.wide * net.high)
        row, column = np.divmod(router, net.wide)
        lines.append(at * net.lines + net.line_of_links(direction, column, row))
        left, top = net.corner
        row = row // net.high * whole.high + row % net.high + top
        numbers.append(((4 * at + direction) * net.chips * whole.high + row) * whole.wide + column + left)
    line, number = np.concatenate(lines), np.concatenate(numbers)
    entries, count = np.concatenate([one for one, _ in carried], axis=1), np.concatenate([two for _, two in carried])
    order = np.lexsort((number, line))  # options of a link stay in their order
    line, number, (_, option, sender, reader), count = line[order], number[order], entries[:, order], count[order]
    begins = np.append(np.flatnonzero(np.diff(number, prepend=-1)), len(number))
    kept = np.ones(len(begins) - 1, bool)
    if fullest:
        kept = routes.fullest_links(line[begins[:-1]], begins, option, count, sender, reader)
    link = np.repeat(np.arange(len(kept)), np.diff(begins))
    own = kept[link]
    return {
        "option_links": np.bincount(option, count, parts[-1].before + len(parts[-1].size)),
        "link_line": line[begins[:-1]][kept],
        "link_number": number[begins[:-1]][kept],
        "carried_link": (np.cumsum(kept) - 1)[link[own]],
        "carried_option": option[own],
        "carried_count": count[own],
        "carried_sender": sender[own],
        "carried_reader": reader[own],
    }
