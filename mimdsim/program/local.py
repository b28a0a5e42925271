"""Which boxes lie on their own tile, and boxes cut at the bands of a variable."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from mimdsim.numerics.columns import boxes as numerics
from mimdsim.numerics.columns import pieces
from mimdsim.program.mapping import BANDED, FLAT, TileMapping
from mimdsim.program.rows import bounds_of


def in_bands(
    mapping: TileMapping, tiles: np.ndarray, boxes: np.ndarray
) -> Iterator[tuple[tuple[TileMapping, ...], np.ndarray, np.ndarray, np.ndarray]]:
    """(mappings of the copies of a range, rows that touch it, their tiles, what of their boxes is in it)."""
    ranges = tuple(mapping.ranges())
    edges = np.array([(copies[0].start, copies[0].stop) for copies in ranges]).T
    row, within, inside = pieces.cut_at_ranges(bounds_of(boxes), mapping.bands[0].axis, *np.ascontiguousarray(edges))
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
class SideBySide:
    """Boxes cut at the ranges of a BANDED mapping whose bands lie side by side (`TileMapping.side_by_side`): the row of
    each part, its range, its bounds int64[axes, 2, parts]; first: the first band of each range, and the end.

    mapping, shape: of the variable with band after band further along the axis of their intervals.
    """

    mapping: TileMapping
    shape: tuple[int, ...]
    row: np.ndarray
    within: np.ndarray
    inside: np.ndarray
    first: np.ndarray

    def at(self, part: np.ndarray, band: np.ndarray) -> np.ndarray:
        """int64[parts, axes, 2]: parts where their bands lie."""
        moved = self.inside.take(part, axis=2)
        moved[self.mapping.axis] += band * self._extent
        return moved.transpose(2, 0, 1)

    @property
    def _extent(self) -> int:
        return self.shape[self.mapping.axis] // int(self.first[-1])

    def held(self, tiles: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(part, band): the parts, wanted on `tiles`, of which the tile itself holds everything in a band."""
        if len(self.first) == self.first[-1] + 1:  # a band each
            part, band = np.arange(len(tiles)), self.within
        else:
            part, band = self._bands_on(tiles)
        local = is_local(self.mapping, tiles[part], self.at(part, band), self.shape)
        return part[local], band[local]

    def _bands_on(self, tiles: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(part, band): every band of a part's range of which its tile holds something."""
        bands, holders = self.mapping.starts // self._extent, self.mapping.tiles
        most = int(max(holders.max(initial=0), tiles.max(initial=0))) + 1
        lies_in = np.repeat(np.arange(len(self.first) - 1), np.diff(self.first))
        found = np.unique(np.stack([lies_in[bands] * most + holders, bands]), axis=1)
        wanted = self.within * most + tiles
        begin, end = (np.searchsorted(found[0], wanted, side=side) for side in ("left", "right"))
        part = np.repeat(np.arange(len(tiles)), end - begin)
        number = np.arange(len(part)) - np.repeat(np.cumsum(end - begin) - (end - begin), end - begin)
        return part, found[1][begin[part] + number]


def cut_side_by_side(mapping: TileMapping, boxes: np.ndarray, shape: tuple[int, ...]) -> SideBySide | None:
    """Boxes cut at the ranges of a BANDED mapping of `shape`; None if its bands do not lie side by side."""
    apart = mapping.side_by_side(shape)
    if apart is None:
        return None
    joined, edges, first = apart
    axis, bands = joined.axis, len(mapping.bands)
    row, within, inside = pieces.cut_at_ranges(bounds_of(boxes), mapping.bands[0].axis, *np.ascontiguousarray(edges))
    room = (*shape[:axis], shape[axis] * bands, *shape[axis + 1 :])
    return SideBySide(mapping=joined, shape=room, row=row, within=within, inside=inside, first=first)


def is_local(mapping: TileMapping, tiles: np.ndarray, boxes: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """bool[rows]: whether every element of the box, if there is one, lies on the row's own tile."""
    if mapping.axis == BANDED:
        in_all = np.ones(len(tiles), bool)
        cut = cut_side_by_side(mapping, boxes, shape)
        if cut is not None:
            missing = np.ones(len(cut.row), bool)
            missing[cut.held(tiles[cut.row])[0]] = False
            in_all[cut.row[missing]] = False
            return in_all
        for copies, rows, on, inside in in_bands(mapping, tiles, boxes):
            in_all[rows] &= np.any([is_local(copy, on, inside, shape) for copy in copies], axis=0)
        return in_all
    if mapping.is_replicated:
        held: np.ndarray = np.isin(tiles, mapping.tiles)
        return held if held.all() else held | (boxes[:, :, 1] <= boxes[:, :, 0]).any(axis=1)
    axis = -1 if mapping.axis == FLAT else mapping.axis
    given = axis, np.array(shape, np.int64), np.ascontiguousarray(tiles), bounds_of(boxes)
    local: np.ndarray = numerics.local_boxes(mapping.tiles, mapping.starts, mapping.stops, *given)
    return local
