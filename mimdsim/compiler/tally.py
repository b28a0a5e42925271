"""Count what an exchange means at every tile: bytes and fragments sent, received, shared on a bus, linked.

Parts are cut into pieces where the sending tile changes. What several tiles read is sent once, element by element, in
as many fragments as there are different pieces; pieces that a tile holds itself do not travel. The same box wanted by
many tiles is cut once, so that a broadcast costs as much as its pieces, not pieces times tiles.
"""

from __future__ import annotations

import numpy as np

from mimdsim.program import Delivery, Exchange, TileMapping, Variable
from mimdsim.program.mapping import FLAT
from mimdsim.program.records import EXCHANGE_COLUMNS
from mimdsim.program.rows import first_of_each, spatial_mapping, to_runs


class Tally:
    """Running totals of one exchange phase, by tile and by pair of chips."""

    def __init__(self, tiles: int, chips: int = 1):
        self.tiles, self.chips = tiles, chips
        self.total = {name: np.zeros(tiles, np.int64) for name in EXCHANGE_COLUMNS}
        self.link_bytes = np.zeros((chips, chips), np.int64)

    def count(self, variable: Variable, drop: bool, tiles: np.ndarray, boxes: np.ndarray) -> None:
        """Add the parts `boxes` of `variable` wanted on `tiles`, a timestep axis dropped or not."""
        mapping = spatial_mapping(variable, drop)
        if mapping.is_replicated:
            self._count_replicas(variable, drop, tiles, boxes)
            return
        self._count(mapping, variable, drop, tiles, boxes)

    def _count_replicas(self, variable: Variable, drop: bool, tiles: np.ndarray, boxes: np.ndarray) -> None:
        """A replicated variable is sent by its first holder on the reader's chip, else by the first of all."""
        per_chip = self.tiles // self.chips
        extent = (variable.shape[1:] if drop else variable.shape)[0]
        for chip in np.unique(tiles // per_chip).tolist():
            holders = variable.mapping.tiles[variable.mapping.tiles // per_chip == chip]
            sender = int(holders[0] if len(holders) else variable.mapping.tiles[0])
            here = tiles // per_chip == chip
            self._count(TileMapping.on(sender, 0, extent), variable, drop, tiles[here], boxes[here])

    def _count(
        self, mapping: TileMapping, variable: Variable, drop: bool, tiles: np.ndarray, boxes: np.ndarray
    ) -> None:
        shape = variable.shape[1:] if drop else variable.shape
        which, distinct = _distinct_boxes(boxes)
        box, mapping, _, runs = to_runs(mapping, np.zeros(len(distinct), np.int64), distinct, shape)
        piece_box, pieces, sender = _cut_at_intervals(mapping, box, runs)
        if not len(pieces):
            return
        flat_shape = shape if pieces.shape[1] == len(shape) else (int(np.prod(shape)),)
        fragments = _runs_beside(pieces, flat_shape, mapping.axis)
        volume = np.prod(pieces[:, :, 1] - pieces[:, :, 0], axis=1, dtype=np.int64) * variable.item_bytes
        own = _OwnPieces(piece_box, sender, volume, fragments, self.tiles)
        own_bytes, own_fragments = own.of(which, tiles)
        box_bytes = np.bincount(piece_box, weights=volume, minlength=len(distinct)).astype(np.int64)
        box_fragments = np.bincount(piece_box, weights=fragments, minlength=len(distinct)).astype(np.int64)
        received = box_bytes[which] - own_bytes
        np.add.at(self.total["bytes_received"], tiles, received)
        np.add.at(self.total["fragments_received"], tiles, box_fragments[which] - own_fragments)
        self._count_shared(which, tiles, received, box_bytes, own)
        self._count_sent(
            which, tiles, piece_box, pieces, sender, volume, fragments, shape=flat_shape, item_bytes=variable.item_bytes
        )

    def _count_shared(
        self, which: np.ndarray, tiles: np.ndarray, received: np.ndarray, box_bytes: np.ndarray, own: _OwnPieces
    ) -> None:
        """Bytes that both tiles of a pair receive alike: of the boxes that both want, what neither holds."""
        per_chip = self.tiles // self.chips
        chip = tiles // per_chip
        pair = chip * per_chip + (tiles - chip * per_chip) // 2
        order = np.lexsort((tiles, which, pair))
        one, two = order[:-1], order[1:]
        alike = (pair[one] == pair[two]) & (which[one] == which[two]) & (tiles[one] != tiles[two])
        one, two = one[alike], two[alike]
        common = np.minimum(received[one], received[two])
        lost = (box_bytes[which[one]] - received[one]) + (box_bytes[which[two]] - received[two])
        common = np.where(lost > 0, np.maximum(box_bytes[which[one]] - lost, 0), common)
        np.add.at(self.total["bytes_shared"], tiles[one], common)
        np.add.at(self.total["bytes_shared"], tiles[two], common)

    def _count_sent(
        self,
        which: np.ndarray,
        tiles: np.ndarray,
        piece_box: np.ndarray,
        pieces: np.ndarray,
        sender: np.ndarray,
        volume: np.ndarray,
        fragments: np.ndarray,
        *,
        shape: tuple[int, ...],
        item_bytes: int,
    ) -> None:
        """Every piece once at its sender if another tile wants it, and once over the links to every other chip."""
        readers = np.bincount(which, minlength=int(piece_box.max()) + 1)[piece_box]
        key = which * self.tiles + tiles
        readers -= np.isin(piece_box * self.tiles + sender, key)
        flat = np.column_stack([pieces.reshape(len(pieces), -1), sender])
        wanted = np.flatnonzero(readers > 0)
        first = wanted[first_of_each(flat[wanted])]
        owner, fresh = _fresh_elements(pieces[first], sender[first], shape)
        np.add.at(self.total["bytes_sent"], owner, fresh * item_bytes)
        np.add.at(self.total["fragments_sent"], sender[first], fragments[first])
        if self.chips == 1:
            return
        per_chip = self.tiles // self.chips
        wishes = np.unique(which * self.chips + tiles // per_chip)  # (box, chip that wants it)
        wish_box, wish_chip = wishes // self.chips, wishes % self.chips
        begin = np.searchsorted(wish_box, piece_box, side="left")
        count = np.searchsorted(wish_box, piece_box, side="right") - begin
        piece = np.repeat(np.arange(len(pieces)), count)
        at = begin[piece] + np.arange(len(piece)) - np.repeat(np.cumsum(count) - count, count)
        away = wish_chip[at] != sender[piece] // per_chip
        piece, target = piece[away], wish_chip[at][away]
        if len(piece):
            rows = np.column_stack([flat[piece], target])
            once = first_of_each(rows)
            self._count_links(pieces[piece[once]], sender[piece[once]] // per_chip, target[once], shape, item_bytes)

    def _count_links(
        self, pieces: np.ndarray, chip: np.ndarray, target: np.ndarray, shape: tuple[int, ...], item_bytes: int
    ) -> None:
        """Every element once per pair of chips, however many boxes on the target chip share it."""
        pair, fresh = _fresh_elements(pieces, chip * self.chips + target, shape)
        np.add.at(self.link_bytes, (pair // self.chips, pair % self.chips), fresh * item_bytes)

    def exchange(self, deliveries: tuple[Delivery, ...]) -> Exchange:
        """The record, with only the tiles that take part."""
        table = np.stack([self.total[name] for name in EXCHANGE_COLUMNS])
        taking_part = np.flatnonzero(table.any(axis=0))
        return Exchange(
            deliveries=deliveries,
            total_tiles=self.tiles,
            tiles=taking_part,
            columns=table[:, taking_part],
            link_bytes=self.link_bytes if self.link_bytes.any() else None,
        )


def _fresh_elements(pieces: np.ndarray, group: np.ndarray, shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """(group, elements) of runs, every element counted once per group however many pieces of the group share it."""
    if not len(pieces):
        return group, np.zeros(0, np.int64)
    if pieces.shape[1] == 1:
        row, starts, stops = np.arange(len(pieces)), pieces[:, 0, 0], pieces[:, 0, 1]
    else:
        whole = TileMapping(axis=FLAT, tiles=np.zeros(1, np.int64), starts=np.zeros(1), stops=np.ones(1))
        row, _, _, runs = to_runs(whole, group, pieces, shape)
        starts, stops = runs[:, 0, 0], runs[:, 0, 1]
    group = group[row]
    order = np.lexsort((starts, group))
    group, starts, stops = group[order], starts[order], stops[order]
    extent = int(stops.max()) + 1
    reached = np.maximum.accumulate(group * extent + stops)  # groups ascend: none reaches into the next
    begin = group * extent + starts
    fresh = group * extent + stops - np.maximum(begin, np.concatenate([[0], reached[:-1]]))
    return group, np.maximum(fresh, 0)


class _OwnPieces:
    """Bytes and fragments of a box that its reader holds itself."""

    def __init__(
        self, piece_box: np.ndarray, sender: np.ndarray, volume: np.ndarray, fragments: np.ndarray, tiles: int
    ):
        self.tiles = tiles
        keys, inverse = np.unique(piece_box * tiles + sender, return_inverse=True)
        self.keys = keys
        self.volume = np.bincount(inverse, weights=volume).astype(np.int64)
        self.fragments = np.bincount(inverse, weights=fragments).astype(np.int64)

    def of(self, which: np.ndarray, tiles: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        wanted = which * self.tiles + tiles
        at = np.minimum(np.searchsorted(self.keys, wanted), len(self.keys) - 1)
        held = self.keys[at] == wanted
        return np.where(held, self.volume[at], 0), np.where(held, self.fragments[at], 0)


def _distinct_boxes(boxes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(int64[rows]: which distinct box each row is, the distinct boxes)."""
    flat = boxes.reshape(len(boxes), -1)
    first = first_of_each(flat)
    if len(first) == 1:
        return np.zeros(len(boxes), np.int64), boxes[first]
    order = np.lexsort(flat.T[::-1])
    new = np.ones(len(order), bool)
    new[1:] = np.any(flat[order][1:] != flat[order][:-1], axis=1)
    which = np.empty(len(order), np.int64)
    which[order] = np.cumsum(new) - 1
    return which, boxes[first]


def _cut_at_intervals(
    mapping: TileMapping, box: np.ndarray, runs: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(box number, bounds, sending tile) of every piece of the runs; `box` says to which box a run belongs."""
    axis = mapping.axis
    first = np.searchsorted(mapping.stops, runs[:, axis, 0], side="right")
    count = np.searchsorted(mapping.starts, runs[:, axis, 1], side="left") - first
    row = np.repeat(np.arange(len(runs)), count)
    interval = first[row] + np.arange(len(row)) - np.repeat(np.cumsum(count) - count, count)
    pieces = runs[row]
    pieces[:, axis, 0] = np.maximum(pieces[:, axis, 0], mapping.starts[interval])
    pieces[:, axis, 1] = np.minimum(pieces[:, axis, 1], mapping.stops[interval])
    return box[row], pieces, mapping.tiles[interval]


def _runs_beside(boxes: np.ndarray, shape: tuple[int, ...], axis: int) -> np.ndarray:
    """int64[rows]: separate runs per interval of the mapped axis, whose own part counts as whole."""
    runs = np.ones(len(boxes), np.int64)
    joined = np.ones(len(boxes), bool)
    for other in range(boxes.shape[1] - 1, -1, -1):
        length = boxes[:, other, 1] - boxes[:, other, 0]
        whole = np.ones(len(boxes), bool) if other == axis else length == shape[other]
        extent = np.ones(len(boxes), np.int64) if other == axis else length
        runs = np.where(joined, runs, runs * extent)
        joined &= whole
    return runs
