"""Count an exchange at every tile: bytes and fragments sent, received, shared on a bus, sent over links.

Parts are cut into pieces where the sending tile changes. Each element that several tiles read is sent once, in as many
fragments as there are different pieces; pieces that a tile already holds are not sent. A box wanted by many tiles is
cut once, so that the work of counting a broadcast grows with its pieces, not with pieces times tiles.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from mimdsim.base.compressed_columns import wide
from mimdsim.numerics.columns import exchange_fragments as numerics
from mimdsim.program.mapping import BANDED, FLAT, SideBySide, TileMapping, repeat_each
from mimdsim.program.records import EXCHANGE_COLUMNS, Delivery, Exchange, Relay, Variable
from mimdsim.program.vertex_boxes import (
    bounds_of,
    cut_at_bands,
    equal_rows,
    is_local,
    order_of,
    runs_of_boxes,
    spatial_mapping,
)

PIECES_AT_ONCE = 1 << 14  # so that they take little memory, which is used again


@dataclass(frozen=True, kw_only=True, eq=False)
class Pairs:
    """Bytes that go from tile to tile of a chip, int64[tiles, tiles of a chip] by sender and reader (or empty: not
    asked for), and from group to group, int64[groups, groups]; group_of int64[tiles]; times: what each byte counts."""

    by_tile: np.ndarray
    by_group: np.ndarray
    group_of: np.ndarray
    times: int = 1


def nearest_copy(heads: np.ndarray, tiles: np.ndarray, per_chip: int) -> np.ndarray:
    """int64[tiles]: which copy is sent to a tile: one on the chip whose number is nearest, the first of several.
    heads: the first tile of each copy."""
    return np.asarray(np.abs(heads[:, None] // per_chip - tiles // per_chip).argmin(axis=0))


class ExchangeCounter:
    """Running totals of one exchange phase, by tile and by pair of chips; or, if `pairs` are given, only these."""

    def __init__(self, tiles: int, chips: int = 1, pairs: Pairs | None = None):
        self.tiles, self.chips, self.pairs = tiles, chips, pairs
        self.table = np.zeros((len(EXCHANGE_COLUMNS), tiles), np.int64)
        self.total = dict(zip(EXCHANGE_COLUMNS, self.table, strict=True))
        self.link_bytes = np.zeros((1, chips, chips), np.int64)  # of every round
        self._linked: list[np.ndarray] = []  # fragments over links: int64[2, n], tile * chips + chip, and how many
        self._relayed_pieces = np.zeros((1, chips, chips), np.int64)  # of every round, of what chips pass on

    def count(
        self, variable: Variable, drop: bool, tiles: np.ndarray, boxes: np.ndarray, relay: Relay | None = None
    ) -> None:
        """Add the parts `boxes` of `variable` wanted on `tiles`, a timestep axis dropped or not."""
        mapping = spatial_mapping(variable, drop)
        if relay is None:
            self.count_in(mapping, variable.shape[drop:], variable.item_bytes, wide(tiles), boxes)
            return
        at_once, self.link_bytes = self.link_bytes, np.zeros_like(self.link_bytes[:1])
        others, self._linked = self._linked, []
        self.count_in(mapping, variable.shape[drop:], variable.item_bytes, wide(tiles), boxes)
        self.link_bytes = _sum_of_rounds(at_once, _in_rounds(self.link_bytes[0], relay))
        self._relayed_pieces = _sum_of_rounds(self._relayed_pieces, _in_rounds(self._most_pieces(), relay))
        self._linked = others

    def count_in(
        self, mapping: TileMapping, shape: tuple[int, ...], item_bytes: int, tiles: np.ndarray, boxes: np.ndarray
    ) -> None:
        """Add parts of a variable of `shape`."""
        if mapping.axis == BANDED:
            if not mapping.has_copies and numerics.are_apart(bounds_of(boxes)):
                wanted = _Wanted.of(tiles, boxes)  # each is cut once, however many tiles want it
                cut = _cut_at_bands(mapping, wanted.bounds.transpose(2, 0, 1), shape)
                if cut is not None:
                    parts = bounds_of(cut.at(np.arange(len(cut.row)), cut.within))
                    self._count_wanted(cut.apart.mapping, cut.shape, item_bytes, wanted, cut.row, parts)
                    return
            cut = _cut_at_bands(mapping, boxes, shape)
            if cut is not None:
                part, band = self._senders(cut, tiles[cut.row])
                on = tiles[cut.row[part]]
                self.count_in(cut.apart.mapping, cut.shape, item_bytes, on, cut.at(part, band))
                return
            for copies, _, on, inside in cut_at_bands(mapping, tiles, boxes):
                wanting = ~np.any([is_local(copy, on, inside, shape) for copy in copies[1:]], axis=0)
                on, inside = on[np.broadcast_to(wanting, on.shape)], inside[np.broadcast_to(wanting, on.shape)]
                nearest = nearest_copy(np.array([copy.tiles[0] for copy in copies]), on, self.tiles // self.chips)
                for which in np.unique(nearest).tolist():
                    self.count_in(copies[which], shape, item_bytes, on[nearest == which], inside[nearest == which])
        elif mapping.is_replicated:
            self._count_replicas(mapping.tiles, shape, item_bytes, tiles, boxes)
        elif len(boxes):
            wanted = _Wanted.of(tiles, boxes)
            self._count_wanted(mapping, shape, item_bytes, wanted, np.arange(wanted.bounds.shape[2]), wanted.bounds)

    def _senders(self, cut: _BandCut, tiles: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(part, band): the parts wanted on `tiles` that no copy but the first holds there, and which copy is sent."""
        first = cut.apart.first
        if not cut.apart.has_copies:
            return np.arange(len(tiles)), cut.within
        wanting = np.ones(len(tiles), bool)
        held, by = cut.held(tiles)
        wanting[held[by != first[cut.within[held]]]] = False
        part, heads = np.flatnonzero(wanting), cut.heads()
        per_chip = self.tiles // self.chips
        readers = np.arange(self.chips) * per_chip
        ends = pairwise(first.tolist())
        nearest = np.array([begin + nearest_copy(heads[begin:end], readers, per_chip) for begin, end in ends])
        return part, nearest[cut.within[part], tiles[part] // per_chip]

    def _count_replicas(
        self, holders: np.ndarray, shape: tuple[int, ...], item_bytes: int, tiles: np.ndarray, boxes: np.ndarray
    ) -> None:
        """A replicated variable is sent by its first holder on the reader's chip, else by the first of all; tiles that
        hold it need nothing."""
        per_chip = self.tiles // self.chips
        wanting = ~np.isin(tiles, holders)
        tiles, boxes = tiles[wanting], boxes[wanting]
        on_chip = np.full(self.chips, holders[0])
        first_chip, first = np.unique(holders // per_chip, return_index=True)
        on_chip[first_chip] = holders[first]
        senders = on_chip[tiles // per_chip]
        for sender in np.unique(senders).tolist():
            here = senders == sender
            holder = TileMapping.on(sender, 0, shape[0])
            self.count_in(holder, shape, item_bytes, tiles[here], boxes[here])

    def _count_wanted(
        self,
        mapping: TileMapping,
        given: tuple[int, ...],
        item_bytes: int,
        wanted: _Wanted,
        box: np.ndarray,
        parts: np.ndarray,
    ) -> None:
        """Add wanted boxes given as parts of them int64[axes, 2, parts]; box: of each part, ascending."""
        shape = np.array(given, np.int64)
        for first, last in pairwise(_edges(mapping, box, parts, shape, wanted.apart)):
            low, high = int(box[first]), int(box[last - 1]) + 1
            begin, end = np.searchsorted(wanted.which, (low, high))
            cut = cut_at_senders(mapping, box[first:last] - low, np.ascontiguousarray(parts[:, :, first:last]), shape)
            on = wanted.tiles[begin:end]
            self.count_pieces(cut, item_bytes, wanted.which[begin:end] - low, on, wanted.apart)

    def count_pieces(self, cut: Pieces, item_bytes: int, which: np.ndarray, tiles: np.ndarray, apart: bool) -> None:
        """Add pieces of boxes, box `which[k]` wanted on `tiles[k]`, in ascending order of both; apart: no two boxes
        share an element."""
        if not len(cut.sender):
            return
        boxes = int(which[-1]) + 1
        wishes, parts = (which, tiles, np.arange(len(which))), (cut.box, cut.sender)
        elements, fragments = cut.sizes()
        if self.pairs is not None:
            found = self.pairs.by_tile, self.pairs.group_of, self.pairs.by_group
            sizes = elements * (item_bytes * self.pairs.times)
            numerics.count_pairs(*wishes, *parts, sizes, boxes, self.tiles // self.chips, *found)
            return
        others = numerics.count_received(
            *(*wishes, *parts, elements * item_bytes, fragments, boxes),
            self.tiles // self.chips,
            tuple(self.total[name] for name in ("bytes_received", "fragments_received", "bytes_shared")),
        )
        sent = _Sent.of(cut, elements, np.flatnonzero(others > 0), apart)
        np.add.at(self.total["fragments_sent"], cut.sender[sent.different], fragments[sent.different])
        sent.once(sent.different, cut.sender[sent.different], item_bytes, self.total["bytes_sent"])
        if self.chips > 1:
            piece, chip = numerics.linked_pieces(*wishes, *parts, boxes, self.tiles // self.chips)
            pair = cut.sender[piece] // (self.tiles // self.chips) * self.chips + chip
            sent.once(piece, pair, item_bytes, self.link_bytes[0].reshape(-1))
            one = sent.one_of_each(piece, chip)
            self._linked.append(_sums(cut.sender[piece[one]] * self.chips + chip[one], fragments[piece[one]]))

    def exchange(self, deliveries: tuple[Delivery, ...]) -> Exchange:
        """The record, with only the tiles that take part."""
        taking_part = np.flatnonzero(np.bitwise_or.reduce(self.table))
        return Exchange(
            deliveries=deliveries,
            total_tiles=self.tiles,
            tiles=taking_part,
            columns=self.table[:, taking_part],
            link_bytes=self.link_bytes.sum(axis=0) if self.link_bytes.any() else None,
            relayed=self.link_bytes if len(self.link_bytes) > 1 and self.link_bytes.any() else None,
            link_pieces=_sum_of_rounds(self._most_pieces()[None], self._relayed_pieces)
            if self.link_bytes.any()
            else None,
        )

    def _most_pieces(self) -> np.ndarray:
        """int64[chips, chips]: most fragments that a tile of chip `row` sends to chip `column`."""
        most = np.zeros((self.chips, self.chips), np.int64)
        if self._linked:
            place, pieces = _sums(*np.concatenate(self._linked, axis=1))
            tile, chip = np.divmod(place, self.chips)
            np.maximum.at(most, (tile // (self.tiles // self.chips), chip), pieces)
        return most


@dataclass(frozen=True, kw_only=True, eq=False)
class _BandCut:
    """Boxes cut at the ranges of a BANDED mapping whose bands lie side by side: the row of each part, its range of the
    last level, its bounds int64[axes, 2, parts].

    apart: the bands; shape: of the variable with turn after turn further along the axis of their intervals.
    """

    apart: SideBySide
    shape: tuple[int, ...]
    row: np.ndarray
    within: np.ndarray
    inside: np.ndarray

    def at(self, part: np.ndarray, band: np.ndarray) -> np.ndarray:
        """int64[parts, axes, 2]: parts where their bands lie."""
        moved = self.inside.take(part, axis=2)
        moved[self.apart.mapping.axis] += self.apart.turn[band] * self._extent
        return moved.transpose(2, 0, 1)

    @property
    def _extent(self) -> int:
        return self.shape[self.apart.mapping.axis] // self.apart.turns

    def _begins(self) -> np.ndarray:
        """int64[turns + 1]: where the intervals of each turn begin, and the end."""
        return np.asarray(np.searchsorted(self.apart.mapping.starts, np.arange(self.apart.turns + 1) * self._extent))

    def heads(self) -> np.ndarray:
        """int64[bands]: the first tile of each band."""
        return np.asarray(self.apart.mapping.tiles[self._begins()[self.apart.turn]])

    def held(self, tiles: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(part, band): the parts, wanted on `tiles`, of which the tile itself holds everything in a band."""
        part, band = self._bands_on(tiles) if self.apart.has_copies else (np.arange(len(tiles)), self.within)
        local = is_local(self.apart.mapping, tiles[part], self.at(part, band), self.shape)
        return part[local], band[local]

    def _bands_on(self, tiles: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(part, band): every band of a part's range of which its tile holds something."""
        first, begins, turn = self.apart.first, self._begins(), self.apart.turn
        bands, number = repeat_each(np.diff(begins)[turn])
        holders = self.apart.mapping.tiles[begins[turn[bands]] + number]
        most = int(max(holders.max(initial=0), tiles.max(initial=0))) + 1
        lies_in = np.repeat(np.arange(len(first) - 1), np.diff(first))
        found = np.unique(np.stack([lies_in[bands] * most + holders, bands]), axis=1)
        wanted = self.within * most + tiles
        begin, end = (np.searchsorted(found[0], wanted, side=side) for side in ("left", "right"))
        part, number = repeat_each(end - begin)
        return part, found[1][begin[part] + number]


def _cut_at_bands(mapping: TileMapping, boxes: np.ndarray, shape: tuple[int, ...]) -> _BandCut | None:
    """Boxes cut at the ranges of a BANDED mapping of `shape`; None if its bands do not lie side by side."""
    apart = mapping.side_by_side(shape)
    if apart is None:
        return None
    row, within, inside = np.arange(len(boxes)), np.zeros(len(boxes), np.int64), bounds_of(boxes)
    for axis, edges in apart.levels:
        begins, stops = np.ascontiguousarray(edges)
        of, within, inside = numerics.cut_at_ranges(inside, axis, begins, stops, within, shape[axis])
        row = row[of]
    axis = apart.mapping.axis
    room = (*shape[:axis], shape[axis] * apart.turns, *shape[axis + 1 :])
    return _BandCut(apart=apart, shape=room, row=row, within=within, inside=inside)


def _sums(place: np.ndarray, number: np.ndarray) -> np.ndarray:
    """int64[2, places]: every place once, and the sum of its numbers."""
    places, at = np.unique(place, return_inverse=True)
    sums = np.zeros(len(places), np.int64)
    np.add.at(sums, at, number)
    return np.stack([places, sums])


def _sum_of_rounds(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """int64[rounds, chips, chips]: of as many rounds as the longer has."""
    total = np.zeros((max(len(first), len(second)), *first.shape[1:]), np.int64)
    total[: len(first)] += first
    total[: len(second)] += second
    return total


def _in_rounds(wanted: np.ndarray, relay: Relay) -> np.ndarray:
    """int64[rounds, chips, chips]: bytes or pieces over links round by round, of those wanted from each chip by each
    other one. A chip passes on what was for itself: where others want more through it, it gets as much."""
    step, parent = np.array(relay.step), np.array(relay.parent)
    passing, rounds = wanted.copy(), np.zeros((int(step.max(initial=1)), *wanted.shape), np.int64)
    for now in range(len(rounds), 0, -1):
        source, target = np.nonzero((step == now) & (parent >= 0) & (passing > 0))
        giver = parent[source, target]
        np.add.at(rounds[now - 1], (giver, target), passing[source, target])
        np.maximum.at(passing, (source, giver), np.where(giver == source, 0, passing[source, target]))
    source, target = np.nonzero((parent < 0) & (passing > 0))
    np.add.at(rounds[0], (source, target), passing[source, target])
    return rounds


@dataclass(frozen=True, kw_only=True, eq=False)
class _Wanted:
    """Boxes that are wanted on tiles, each once: bounds int64[axes, 2, boxes]; box which[k] on tiles[k], in ascending
    order of both; apart: no two boxes share an element."""

    bounds: np.ndarray
    which: np.ndarray
    tiles: np.ndarray
    apart: bool

    @classmethod
    def of(cls, tiles: np.ndarray, boxes: np.ndarray) -> _Wanted:
        bounds = bounds_of(boxes)
        which, one_of_each = equal_rows(bounds.reshape(-1, len(boxes)))
        alone = len(one_of_each) == len(tiles)  # then in the order of both
        order = one_of_each if alone else order_of(np.stack([which, tiles]), [0, 1])
        different = bounds.take(one_of_each, axis=2)
        return cls(bounds=different, which=which[order], tiles=tiles[order], apart=numerics.are_apart(different))


@dataclass(frozen=True, kw_only=True, eq=False)
class Pieces:
    """Pieces of distinct boxes, cut where the sender changes: the box of each, its sender, int64[axes, 2, pieces].

    For a FLAT mapping they are runs of elements with one axis; axis: the one that is cut; held: how long the interval
    is, of which each piece is cut, int64[pieces].
    """

    box: np.ndarray
    sender: np.ndarray
    bounds: np.ndarray
    shape: np.ndarray
    axis: int
    held: np.ndarray

    def sizes(self) -> tuple[np.ndarray, np.ndarray]:
        """int64[pieces]: elements, and fragments: runs in which the sender holds them."""
        elements, fragments = numerics.elements_and_fragments(self.bounds, self.shape, self.axis, self.held)
        return elements, fragments


def _edges(mapping: TileMapping, box: np.ndarray, bounds: np.ndarray, shape: np.ndarray, apart: bool) -> list[int]:
    """Where those parts of different boxes, in ascending order, begin that are counted together, and the end: parts of
    a box, and of boxes that share elements. apart: no two do."""
    parts = len(box)
    if mapping.axis == FLAT:
        few = len(mapping.tiles) <= PIECES_AT_ONCE  # then they are about as many as the boxes
        pieces = np.ones(parts, np.int64) if few else runs_of_boxes(bounds.transpose(2, 0, 1), tuple(shape.tolist()))[1]
    else:
        starts, stops = np.ascontiguousarray(bounds[mapping.axis])
        pieces = numerics.intervals_met(mapping.starts, mapping.stops, starts, stops)[1]
    pieces = np.cumsum(pieces)
    if not parts or pieces[-1] <= PIECES_AT_ONCE:
        return [0, parts][: parts + 1]
    wanted = np.flatnonzero(np.diff((pieces - 1) // PIECES_AT_ONCE)) + 1
    begins = np.flatnonzero(np.diff(box)) + 1
    if not apart:  # then only those that start at the same place along the first axis may share elements
        begins = np.flatnonzero(np.diff(bounds[0, 0])) + 1 if numerics.are_apart(bounds[:1]) else wanted[:0]
    wanted = np.unique(np.append(begins, parts)[np.searchsorted(begins, wanted)])
    return [0, *wanted[wanted < parts].tolist(), parts]


def cut_at_senders(mapping: TileMapping, of: np.ndarray, bounds: np.ndarray, shape: np.ndarray) -> Pieces:
    """The pieces of parts of boxes, of[k] the box of part k, of a variable of `shape`."""
    axis, box = mapping.axis, of
    if axis == FLAT:
        run, starts, stops = numerics.element_runs(bounds, shape)
        box = of[run]
        axis, bounds, shape = 0, np.stack([starts, stops])[None], shape.prod(keepdims=True)
    starts, stops = np.ascontiguousarray(bounds[axis])
    run, interval = numerics.cut_at_intervals(mapping.starts, mapping.stops, starts, stops)
    pieces = bounds.take(run, axis=2)
    np.maximum(pieces[axis, 0], mapping.starts[interval], out=pieces[axis, 0])
    np.minimum(pieces[axis, 1], mapping.stops[interval], out=pieces[axis, 1])
    held = (mapping.stops - mapping.starts)[interval]
    return Pieces(box=box[run], sender=mapping.tiles[interval], bounds=pieces, shape=shape, axis=axis, held=held)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Sent:
    """Pieces that are sent. different: one of those that are equal; number: of each piece, the same where they are
    equal (None: no two are); apart: whether those that differ share no element."""

    cut: Pieces
    elements: np.ndarray
    number: np.ndarray | None
    different: np.ndarray
    apart: bool

    @classmethod
    def of(cls, cut: Pieces, elements: np.ndarray, wanted: np.ndarray, apart: bool) -> _Sent:
        """apart: whether boxes share no element, so that no pieces do."""
        if apart:
            return cls(cut=cut, elements=elements, number=None, different=wanted, apart=True)
        bounds = cut.bounds.take(wanted, axis=2)
        which, one_of_each = equal_rows(bounds.reshape(2 * len(bounds), -1))
        number = np.full(len(elements), -1, np.int64)
        number[wanted] = which
        apart = numerics.are_apart(bounds.take(one_of_each, axis=2))
        return cls(cut=cut, elements=elements, number=number, different=wanted[one_of_each], apart=apart)

    def one_of_each(self, piece: np.ndarray, group: np.ndarray) -> np.ndarray:
        """Places of one of those pieces that are equal and of one group."""
        if self.number is None:
            return np.arange(len(piece))
        return np.asarray(equal_rows(np.stack([group, self.number[piece]]))[1])

    def once(self, piece: np.ndarray, group: np.ndarray, item_bytes: int, total: np.ndarray) -> None:
        """Add the bytes of pieces to total[group], each element once per group however many pieces of it share it."""
        if self.apart:
            chosen = self.one_of_each(piece, group)
            np.add.at(total, group[chosen], (item_bytes * self.elements[piece])[chosen])
            return
        run, starts, stops = numerics.element_runs(self.cut.bounds.take(piece, axis=2), self.cut.shape)
        group, fresh = group[run], np.zeros_like(total)
        numerics.add_fresh(group, starts, stops, order_of(np.stack([group, starts]), [0, 1]), fresh)
        total += item_bytes * fresh
