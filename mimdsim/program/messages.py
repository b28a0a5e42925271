"""The messages of one exchange phase: which tile sends how much to which readers at once.

A message is everything that one tile sends to the same readers. Parts are cut where the sending tile changes; a part
that several tiles want is sent once to all of them. Only parts that stay on their chip are listed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from mimdsim.program.exchange_traffic import nearest_copy
from mimdsim.program.mapping import BANDED, FLAT, TileMapping, repeat_each
from mimdsim.program.program import Program
from mimdsim.program.records import Delivery, Exchange
from mimdsim.program.vertex_boxes import boxes_on_tiles, in_bands, is_local, runs_of_boxes, spatial_mapping, to_runs

MOST_READINGS = (
    2_000_000  # (part, reader) pairs of a phase that are listed; beyond it, nearly every tile receives from all others
)


@dataclass(frozen=True, kw_only=True, eq=False)
class Messages:
    """sender, size_bytes int64[messages]; message k is read by reader[first[k]:first[k + 1]], ascending tiles."""

    sender: np.ndarray
    size_bytes: np.ndarray
    first: np.ndarray
    reader: np.ndarray


# int64[6, readings]: number of a delivery, sender, elements start to stop, their bytes, reader
_Readings = np.ndarray


def messages_of(program: Program, exchange: Exchange) -> Messages | None:
    """The messages of a phase; None when it has more than MOST_READINGS parts and readers."""
    found: list[_Readings] = []
    for number, delivery in enumerate(exchange.deliveries):
        readings = _readings(program, number, delivery, MOST_READINGS - sum(part.shape[1] for part in found))
        if readings is None:
            return None
        found.append(readings)
    return _together(np.concatenate(found, axis=1))


def _readings(program: Program, number: int, delivery: Delivery, room: int) -> _Readings | None:
    """The readings of one delivery; None when there are more than `room`."""
    variable = program.variables[delivery.variable]
    drop = delivery.boxes.shape[1] < len(variable.shape)
    shape, mapping = variable.shape[drop:], spatial_mapping(variable, drop)
    if int(runs_of_boxes(delivery.boxes, shape)[1].sum()) > room:
        return None
    found = [np.zeros((6, 0), np.int64)]
    for holding, tiles, boxes in _by_copy(mapping, delivery, shape, program.tiles_per_chip):
        part = _readings_of(
            holding, tiles, boxes, shape, program.tiles_per_chip, room - sum(each.shape[1] for each in found)
        )
        if part is None:
            return None
        sender, start, stop, reader = part
        travels = (sender != reader) & (sender // program.tiles_per_chip == reader // program.tiles_per_chip)
        columns = np.full(len(start), number), sender, start, stop, (stop - start) * variable.item_bytes, reader
        found.append(np.stack(columns)[:, travels])
    return np.concatenate(found, axis=1)


def _by_copy(
    mapping: TileMapping, delivery: Delivery, shape: tuple[int, ...], per_chip: int
) -> Iterator[tuple[TileMapping, np.ndarray, np.ndarray]]:
    """(the mapping that sends, tiles, boxes) of what is wanted: of copies the nearest, and nothing that lies there."""
    if mapping.axis != BANDED or not mapping.has_copies:
        yield mapping, delivery.tiles, delivery.boxes
        return
    for copies, _, tiles, boxes in in_bands(mapping, delivery.tiles, delivery.boxes):
        wanting = ~np.any([is_local(copy, tiles, boxes, shape) for copy in copies[1:]], axis=0)
        tiles, boxes = tiles[np.broadcast_to(wanting, tiles.shape)], boxes[np.broadcast_to(wanting, tiles.shape)]
        nearest = nearest_copy(np.array([copy.tiles[0] for copy in copies]), tiles, per_chip)
        for which in np.unique(nearest).tolist():
            yield copies[which], tiles[nearest == which], boxes[nearest == which]


def _readings_of(
    mapping: TileMapping, tiles: np.ndarray, boxes: np.ndarray, shape: tuple[int, ...], per_chip: int, room: int
) -> tuple[np.ndarray, ...] | None:
    """(sender, start, stop, reader) of the boxes wanted on tiles; None when there are more than `room`."""
    whole = TileMapping(
        axis=FLAT, tiles=np.zeros(1, np.int64), starts=np.zeros(1, np.int64), stops=np.ones(1, np.int64)
    )
    _, _, reader, runs = to_runs(whole, tiles, boxes, shape)
    start, stop = runs[:, 0, 0], runs[:, 0, 1]
    if mapping.is_replicated:
        return _first_holder(mapping.tiles, reader, per_chip), start, stop, reader
    holders = _along_elements(mapping, shape, room)
    if holders is None:
        return None
    first = np.searchsorted(holders.stops, start, side="right")
    count = np.searchsorted(holders.starts, stop, side="left") - first
    if int(count.sum()) > room:
        return None
    run, turn = repeat_each(count)
    interval = first[run] + turn
    start, stop = np.maximum(start[run], holders.starts[interval]), np.minimum(stop[run], holders.stops[interval])
    return holders.tiles[interval], start, stop, reader[run]


def _first_holder(holders: np.ndarray, readers: np.ndarray, per_chip: int) -> np.ndarray:
    """int64[readers]: the reader itself if it holds the variable, else the first holder on its chip, else the first."""
    at = np.searchsorted(holders, readers // per_chip * per_chip)
    nearest = holders[np.minimum(at, len(holders) - 1)]
    nearest = np.where(nearest // per_chip == readers // per_chip, nearest, holders[0])
    return np.where(np.isin(readers, holders), readers, nearest)


def _along_elements(mapping: TileMapping, shape: tuple[int, ...], room: int) -> TileMapping | None:
    """Intervals along the elements in C order of a variable of `shape`; None when there are more than `room`."""
    if mapping.axis == FLAT:
        return mapping
    if mapping.axis == BANDED:
        return _along_bands(mapping, shape, room)
    before = int(np.prod(shape[: mapping.axis], dtype=np.int64))
    after = int(np.prod(shape[mapping.axis + 1 :], dtype=np.int64))
    if before * len(mapping.tiles) > room:
        return None
    offset = np.repeat(np.arange(before) * shape[mapping.axis] * after, len(mapping.tiles))
    return TileMapping(
        axis=FLAT,
        tiles=np.tile(mapping.tiles, before),
        starts=np.tile(mapping.starts * after, before) + offset,
        stops=np.tile(mapping.stops * after, before) + offset,
    )


def _along_bands(mapping: TileMapping, shape: tuple[int, ...], room: int) -> TileMapping | None:
    """As `_along_elements`, of bands without copies."""
    found = []
    for band, *_ in mapping.ranges():
        tiles, boxes = boxes_on_tiles(band.mapping, shape)
        found.append((tiles, band.clip(boxes)))
    tiles, boxes = (np.concatenate(part) for part in zip(*found, strict=True))
    if int(runs_of_boxes(boxes, shape)[1].sum()) > room:
        return None
    return TileMapping.of_boxes(tiles, boxes, shape)


def _together(parts: _Readings) -> Messages:
    """Merge equal parts of several readers, then everything that a tile sends to the same readers, into one message."""
    number, sender, start, stop, _, reader = parts
    order = np.lexsort((reader, stop, start, sender, number))
    *columns, size_bytes, reader = parts[:, order]
    begins = np.ones(len(order), bool)
    begins[1:] = np.any([column[1:] != column[:-1] for column in columns], axis=0) if len(order) else True
    first = np.flatnonzero(begins)
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
    return Messages(
        sender=sender[kept],
        size_bytes=np.bincount(group.ravel(), weights=size_bytes[first], minlength=len(kept)).astype(np.int64),
        first=np.concatenate([[0], np.cumsum(count)]).astype(np.int64),
        reader=reader[at],
    )
