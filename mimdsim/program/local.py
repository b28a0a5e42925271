"""Which boxes lie on their own tile, and boxes cut at the bands of a variable."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from mimdsim.base.compressed_columns import wide
from mimdsim.numerics.columns import boxes as numerics
from mimdsim.numerics.columns import exchange_fragments
from mimdsim.program.mapping import BANDED, FLAT, SideBySide, TileMapping
from mimdsim.program.vertex_boxes import bounds_of

ByTile = tuple[int, np.ndarray]  # as from `interval_of_tiles`


def in_bands(
    mapping: TileMapping, tiles: np.ndarray, boxes: np.ndarray
) -> Iterator[tuple[tuple[TileMapping, ...], np.ndarray, np.ndarray, np.ndarray]]:
    """(mappings of the copies of a range, rows that touch it, their tiles, what of their boxes is in it)."""
    ranges = tuple(mapping.ranges())
    bounds, apart = bounds_of(boxes), np.zeros(len(boxes), np.int64)
    begins, stops = mapping.columns.edges
    row, within, inside = exchange_fragments.cut_at_ranges(bounds, mapping.bands[0].axis, begins, stops, apart, 0)
    order = np.argsort(within, kind="stable")
    row, within, inside = row[order], within[order], inside.take(order, axis=2)
    ends = np.searchsorted(within, np.arange(len(ranges)), side="right").tolist()
    for copies, begin, end in zip(ranges, [0, *ends], ends, strict=False):
        if begin < end:
            rows = row[begin:end]
            yield (
                tuple(band.mapping for band in copies),
                rows,
                tiles[rows],
                inside[:, :, begin:end].transpose(2, 0, 1),
            )


@dataclass(frozen=True, kw_only=True, eq=False)
class Cut:
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
        begins: np.ndarray = np.searchsorted(self.apart.mapping.starts, np.arange(self.apart.turns + 1) * self._extent)
        return begins

    def heads(self) -> np.ndarray:
        """int64[bands]: the first tile of each band."""
        tiles: np.ndarray = self.apart.mapping.tiles[self._begins()[self.apart.turn]]
        return tiles

    def held(self, tiles: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(part, band): the parts, wanted on `tiles`, of which the tile itself holds everything in a band."""
        part, band = self._bands_on(tiles) if self.apart.has_copies else (np.arange(len(tiles)), self.within)
        local = is_local(self.apart.mapping, tiles[part], self.at(part, band), self.shape)
        return part[local], band[local]

    def _bands_on(self, tiles: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(part, band): every band of a part's range of which its tile holds something."""
        first, begins, turn = self.apart.first, self._begins(), self.apart.turn
        bands, number = _spread(np.diff(begins)[turn])
        holders = self.apart.mapping.tiles[begins[turn[bands]] + number]
        most = int(max(holders.max(initial=0), tiles.max(initial=0))) + 1
        lies_in = np.repeat(np.arange(len(first) - 1), np.diff(first))
        found = np.unique(np.stack([lies_in[bands] * most + holders, bands]), axis=1)
        wanted = self.within * most + tiles
        begin, end = (np.searchsorted(found[0], wanted, side=side) for side in ("left", "right"))
        part, number = _spread(end - begin)
        return part, found[1][begin[part] + number]


def _spread(counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(which, number): every entry as often as counted, and how often it was there before."""
    which = np.repeat(np.arange(len(counts)), counts)
    return which, np.arange(len(which)) - np.repeat(np.cumsum(counts) - counts, counts)


def cut_side_by_side(mapping: TileMapping, boxes: np.ndarray, shape: tuple[int, ...]) -> Cut | None:
    """Boxes cut at the ranges of a BANDED mapping of `shape`; None if its bands do not lie side by side."""
    apart = mapping.side_by_side(shape)
    if apart is None:
        return None
    row, within, inside = np.arange(len(boxes)), np.zeros(len(boxes), np.int64), bounds_of(boxes)
    for axis, edges in apart.levels:
        begins, stops = np.ascontiguousarray(edges)
        of, within, inside = exchange_fragments.cut_at_ranges(inside, axis, begins, stops, within, shape[axis])
        row = row[of]
    axis = apart.mapping.axis
    room = (*shape[:axis], shape[axis] * apart.turns, *shape[axis + 1 :])
    return Cut(apart=apart, shape=room, row=row, within=within, inside=inside)


def is_local(
    mapping: TileMapping,
    tiles: np.ndarray,
    boxes: np.ndarray,
    shape: tuple[int, ...],
    known: dict[TileMapping, ByTile] | None = None,
) -> np.ndarray:
    """bool[rows]: whether every element of the box, if there is one, lies on the row's own tile. known: of mappings
    that do not change meanwhile, for parts of the rows one after another."""
    if mapping.axis == BANDED:
        apart = mapping.side_by_side(shape)
        if apart is not None:
            return apart.holds(tiles, bounds_of(boxes), shape)
        in_all = np.ones(len(tiles), bool)
        for copies, rows, on, inside in in_bands(mapping, tiles, boxes):
            in_all[rows] &= np.any([is_local(copy, on, inside, shape) for copy in copies], axis=0)
        return in_all
    if mapping.is_replicated:
        held: np.ndarray = np.isin(tiles, mapping.tiles)
        return held if held.all() else held | (boxes[:, :, 1] <= boxes[:, :, 0]).any(axis=1)
    by_tile = None if known is None else known.get(mapping)
    if by_tile is None:
        by_tile = numerics.interval_of_tiles(mapping.tiles)
        if known is not None:
            known[mapping] = by_tile
    axis = -1 if mapping.axis == FLAT else mapping.axis
    given = axis, np.array(shape, np.int64), wide(tiles), bounds_of(boxes)
    local: np.ndarray = numerics.local_boxes(mapping.tiles, mapping.starts, mapping.stops, by_tile, *given)
    return local
