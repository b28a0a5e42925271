"""The messages of one exchange phase: which tile sends how much to which readers at once.

A message is everything that one tile sends to the same readers. Parts are cut where the sending tile changes; a part
that several tiles want is sent once to all of them. Only parts that stay on their chip are listed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mimdsim.base.cache import PerObject
from mimdsim.base.compressed_columns import distinct, wide
from mimdsim.numerics.columns.exchange_fragments import element_runs
from mimdsim.program.exchange_traffic import ExchangeCounter, Pieces
from mimdsim.program.mapping import BANDED, TileMapping, repeat_each
from mimdsim.program.program import Program
from mimdsim.program.records import Exchange
from mimdsim.program.vertex_boxes import boxes_on_tiles, runs_of_boxes

MOST_READINGS = 2_000_000  # (part, reader) pairs of a phase that are listed
MOST_PAIRS = 4_000_000  # (sender, reader) of a phase that is not listed
GOLDEN = (5**0.5 - 1) / 2  # whose multiples fill the space from 0 to 1 evenly


@dataclass(frozen=True, kw_only=True, eq=False)
class Messages:
    """sender, size_bytes, fragments int64[messages]; message k is read by reader[first[k]:first[k + 1]], ascending
    tiles. fragments: runs in which the sender holds it, at least 1."""

    sender: np.ndarray
    size_bytes: np.ndarray
    fragments: np.ndarray
    first: np.ndarray
    reader: np.ndarray


_Readings = np.ndarray  # int64[7, readings]: number of a delivery, sender, elements start to stop, their bytes, the
# fragments that begin with them, reader


def messages_of(program: Program, exchange: Exchange) -> Messages | None:
    """The messages of a phase; None when it has more than MOST_READINGS parts and readers."""
    listed = _Listing(program.tiles, program.chips)
    for listed.delivery, delivery in enumerate(exchange.deliveries):
        variable = program.variables[delivery.variable]
        drop = delivery.boxes.shape[1] < len(variable.shape)
        listed.shape = variable.shape[drop:]
        listed.count(variable, drop, delivery.tiles, delivery.boxes)
    return None if listed.room < 0 else _together(np.concatenate(listed.readings, axis=1))


def all_messages(program: Program, exchange: Exchange) -> tuple[Messages, float]:
    """The messages of a phase, and how many times as many there are as are listed: 1, or of one with too many: where
    most tiles receive from most others, what each sends to all that receive (and where these are too many still, every
    so many-th sender stands for all); else as much as each sends and receives, between tiles that are chosen evenly."""
    listed = messages_of(program, exchange)
    if listed is not None:
        return listed, 1.0
    per_chip = program.tiles_per_chip
    sent, received = exchange.column("bytes_sent"), exchange.column("bytes_received")
    senders, readers = wide(exchange.tiles[sent > 0]), wide(exchange.tiles[received > 0])
    if 2 * received.sum() < sent.sum() * min(len(readers), per_chip):
        pieces = exchange.column("fragments_sent")[sent > 0], exchange.column("fragments_received")[received > 0]
        return _evenly(senders, sent[sent > 0], readers, received[received > 0], pieces, per_chip), 1.0
    stride = max(1, -(-len(senders) * min(len(readers), per_chip) // MOST_PAIRS))
    sender, chip = senders[::stride], readers // per_chip
    begin, end = (np.searchsorted(chip, sender // per_chip, side=side) for side in ("left", "right"))
    which, number = repeat_each(end - begin)
    first = np.concatenate([[0], np.cumsum(end - begin)]).astype(np.int64)
    size_bytes, fragments = (
        wide(exchange.column(f"{name}_sent"))[sent > 0][::stride] for name in ("bytes", "fragments")
    )
    reader = readers[begin[which] + number]
    every = Messages(sender=sender, size_bytes=size_bytes, fragments=fragments, first=first, reader=reader)
    return every, float(stride)


def _evenly(
    senders: np.ndarray,
    sent: np.ndarray,
    readers: np.ndarray,
    received: np.ndarray,
    pieces: tuple[np.ndarray, np.ndarray],
    per_chip: int,
) -> Messages:
    """Messages to one reader each, about as many of every sender as there are readings of its pieces. pieces: sent and
    received."""
    found = [np.zeros((3, 0), np.int64)]
    share = min(1.0, MOST_PAIRS / pieces[1].sum())
    for chip in distinct(readers // per_chip):
        mine, its = senders // per_chip == chip, readers // per_chip == chip
        if not mine.any():
            continue
        each = share * pieces[1][its].sum() / pieces[0][mine].sum()
        count = np.maximum(pieces[0][mine] * each, 1).astype(np.int64)
        ends, near = np.cumsum(received[its], dtype=np.float64), readers[its]
        at = np.searchsorted(ends, np.arange(count.sum()) * GOLDEN % 1.0 * ends[-1], side="right") % len(ends)
        sender = np.repeat(senders[mine], count)
        at = np.where(near[at] == sender, (at + 1) % len(ends), at)
        times = received[its].sum() / sent[mine].sum()  # as often as it is read
        size_bytes = np.ceil(np.repeat(sent[mine] * times / count, count))
        found.append(np.stack([sender, size_bytes.astype(np.int64), near[at]]))
    every = np.concatenate(found, axis=1)
    sender, size_bytes, reader = every[:, every[0] != every[2]]
    fragments = np.full(len(sender), round(1 / share))
    first = np.arange(len(reader) + 1)
    return Messages(sender=sender, size_bytes=size_bytes, fragments=fragments, first=first, reader=reader)


@dataclass(frozen=True, kw_only=True, eq=False)
class Arrivals:
    """Who waits for whom in an exchange on a chip: reader[k] for sender[first[k]:first[k + 1]]."""

    reader: np.ndarray
    first: np.ndarray
    sender: np.ndarray


_ARRIVALS: PerObject[Arrivals] = PerObject()  # of an exchange


def arrivals_of(program: Program, exchange: Exchange) -> Arrivals:
    """Of one phase, each sender of a reader once; those that `all_messages` lists."""
    return _ARRIVALS.get(exchange, None, lambda: _arrivals(program, exchange))


def _arrivals(program: Program, exchange: Exchange) -> Arrivals:
    messages, _ = all_messages(program, exchange)
    pairs = distinct(messages.reader * program.tiles + np.repeat(messages.sender, np.diff(messages.first)))
    reader = pairs // program.tiles
    first = np.flatnonzero(np.diff(reader, prepend=-1))
    return Arrivals(reader=reader[first], first=np.append(first, len(pairs)), sender=pairs % program.tiles)


class _Listing(ExchangeCounter):
    """Lists what is counted, piece by piece and reader by reader."""

    delivery: int
    shape: tuple[int, ...]

    def __init__(self, tiles: int, chips: int):
        super().__init__(tiles, chips)
        self.readings: list[_Readings] = [np.zeros((7, 0), np.int64)]
        self.room = MOST_READINGS

    def count_in(
        self, mapping: TileMapping, shape: tuple[int, ...], item_bytes: int, tiles: np.ndarray, boxes: np.ndarray
    ) -> None:
        """As of `ExchangeCounter`; bands are taken element by element, as runs go on from one to the next."""
        if mapping.axis == BANDED and not mapping.has_copies:
            holders, held = boxes_on_tiles(mapping, shape)
            if int(runs_of_boxes(held, shape)[1].sum()) > self.room:
                self.room = -1
                return
            mapping = TileMapping.of_boxes(holders, held, shape)
        super().count_in(mapping, shape, item_bytes, tiles, boxes)

    def count_pieces(self, cut: Pieces, item_bytes: int, which: np.ndarray, tiles: np.ndarray, _apart: bool) -> None:
        """As of `ExchangeCounter`: readings of pieces that stay on their chip."""
        bounds, shape = cut.bounds, cut.shape
        if len(shape) == len(self.shape):  # copies side by side lie further along the axis
            shape = np.array(self.shape, np.int64)
            bounds = bounds.copy()
            bounds[cut.axis] -= bounds[cut.axis, 0] // shape[cut.axis] * shape[cut.axis]
        piece, start, stop = element_runs(bounds, shape)
        length = shape[cut.axis :].prod()  # runs end with the axis that is spread, as the intervals of a tile do
        run, number = repeat_each((stop - 1) // length - start // length + 1)
        place = (start[run] // length + number) * length
        piece, start, stop = piece[run], np.maximum(start[run], place), np.minimum(stop[run], place + length)
        parts = np.bincount(piece, minlength=len(cut.sender))
        turn = np.arange(len(piece)) - (np.cumsum(parts) - parts)[piece]  # of the parts of a piece
        pieces, parts = cut.sizes()[1][piece], parts[piece]
        begun = (turn + 1) * pieces // parts - turn * pieces // parts  # some parts go on with the one before
        begin, end = (np.searchsorted(which, cut.box[piece], side=side) for side in ("left", "right"))
        self.room -= int((end - begin).sum())
        if self.room < 0:
            return
        run, number = repeat_each(end - begin)
        sender, reader = cut.sender[piece[run]], tiles[begin[run] + number]
        per_chip = self.tiles // self.chips
        travels = (sender != reader) & (sender // per_chip == reader // per_chip)
        size_bytes = (stop - start)[run] * item_bytes
        columns = np.full(len(run), self.delivery), sender, start[run], stop[run], size_bytes, begun[run], reader
        self.readings.append(np.stack(columns)[:, travels])


def _cut_apart(parts: _Readings) -> _Readings:
    """Readings of parts that overlap cut where one of them begins or ends, so that what both want is sent once."""
    number, sender, start, stop, size_bytes, *_ = parts
    base = (number * (int(sender.max(initial=0)) + 1) + sender) * (int(stop.max(initial=0)) + 1)
    ends = distinct(np.concatenate([base + start, base + stop]))
    begin, end = np.searchsorted(ends, base + start), np.searchsorted(ends, base + stop)
    which, at = repeat_each(end - begin)
    cut = parts[:, which]
    cut[2:4] = ends[begin[which] + at] - base[which], ends[begin[which] + at + 1] - base[which]
    cut[4] = size_bytes[which] // (stop - start)[which] * (cut[3] - cut[2])
    return cut


def _together(parts: _Readings) -> Messages:
    """Merge equal parts of several readers, then everything that a tile sends to the same readers, into one message."""
    number, sender, start, stop, *_, reader = parts
    order = np.lexsort((reader, stop, start, sender, number))
    *columns, size_bytes, fragments, reader = parts[:, order]
    begins = np.ones(len(order), bool)
    begins[1:] = np.any([column[1:] != column[:-1] for column in columns], axis=0) if len(order) else True
    first = np.flatnonzero(begins)
    begun, ended = np.stack(columns)[:, first[1:]], np.stack(columns)[:, first[:-1]]
    if ((begun[:2] == ended[:2]).all(axis=0) & (begun[2] < ended[3])).any():
        return _together(_cut_apart(parts))
    part = np.cumsum(begins) - 1
    # readers are compared by a sum of fixed random numbers: two sets agree by chance with probability 2**-64
    numbers = np.random.default_rng(0).integers(0, 2**63, int(reader.max(initial=0)) + 1, np.uint64)
    alike = np.zeros(len(first), np.uint64)
    np.add.at(alike, part, numbers[reader])
    sender = columns[1][first]
    _, kept, group = np.unique(np.rec.fromarrays([sender, alike]), return_index=True, return_inverse=True)
    count = np.diff(np.append(first, len(order)))[kept]
    which, number = repeat_each(count)
    at = first[kept][which] + number
    size_bytes, fragments = (
        np.bincount(group.ravel(), weights=each[first], minlength=len(kept)).astype(np.int64)
        for each in (size_bytes, fragments)
    )
    return Messages(
        sender=sender[kept],
        size_bytes=size_bytes,
        fragments=np.maximum(fragments, 1),
        first=np.concatenate([[0], np.cumsum(count)]).astype(np.int64),
        reader=reader[at],
    )
