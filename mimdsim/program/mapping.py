"""Which tile holds which elements of a variable."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike

from mimdsim.base.compressed_columns import ascends, distinct, wide
from mimdsim.base.shown import Shown
from mimdsim.numerics.columns import boxes as numerics

REPLICATED = -1
FLAT = -2
PER_TIMESTEP = -3
BANDED = -4


def whole_numbers(what: str, values: ArrayLike) -> np.ndarray:
    """A column of integers as an array, unchanged if it already is one; raises ValueError for anything else."""
    column = np.asarray(values)
    if not column.size:
        return column.astype(np.int64, copy=False)
    if column.ndim != 1 or column.dtype.kind not in "iu":
        raise ValueError(f"{what} must be whole numbers in one column, given {column.dtype} {list(column.shape)}")
    return column


def repeat_each(counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(which, number): every entry as often as counted, and how often it was there before."""
    which = np.repeat(np.arange(len(counts)), counts)
    return which, np.arange(len(which)) - np.repeat(np.cumsum(counts) - counts, counts)


@dataclass(frozen=True, kw_only=True, eq=False)
class TileMapping(Shown):
    """Elements `starts[k]` to `stops[k]` along `axis` lie on `tiles[k]`; intervals ascend and do not overlap.

    axis FLAT: intervals count elements of the whole variable in C order. axis PER_TIMESTEP: the first axis is time, and
    every timestep is spread like a FLAT variable of the other axes. axis REPLICATED: every tile of `tiles` holds the
    whole variable; starts and stops are then empty. axis BANDED: the variable is cut into `bands` along another axis,
    each with a mapping of its own; `tiles` are then all tiles that hold some of it.
    """

    axis: int
    tiles: np.ndarray
    starts: np.ndarray
    stops: np.ndarray
    bands: tuple[Band, ...] = ()

    def __post_init__(self) -> None:
        for name in ("tiles", "starts", "stops"):
            object.__setattr__(self, name, whole_numbers(f"mapping: {name}", getattr(self, name)))
        if self.axis not in (REPLICATED, BANDED):
            if not len(self.tiles) == len(self.starts) == len(self.stops):
                counts = f"{len(self.tiles)} tiles, {len(self.starts)} starts, {len(self.stops)} stops"
                raise ValueError(f"mapping: {counts}; give as many of each")
            if len(empty := np.flatnonzero(self.stops <= self.starts)):
                row = int(empty[0])
                where = f"{self.starts[row]}:{self.stops[row]} on tile {self.tiles[row]}"
                raise ValueError(f"mapping: interval {row}, {where}, is empty; leave out tiles that hold nothing")
            if (self.starts[1:] < self.stops[:-1]).any():
                raise ValueError("mapping: intervals must ascend and not overlap")

    @staticmethod
    def split(axis: int, tiles: np.ndarray, starts: np.ndarray, stops: np.ndarray) -> TileMapping:
        """Intervals along an axis; neighbouring intervals on one tile are joined."""
        tiles, starts, stops = (np.array(column, np.int64) for column in (tiles, starts, stops))
        whole = TileMapping(axis=axis, tiles=tiles, starts=starts, stops=stops)
        joined = np.ones(len(tiles), bool)
        joined[1:] = (tiles[1:] != tiles[:-1]) | (starts[1:] != stops[:-1])
        if joined.all():
            return whole
        first = np.flatnonzero(joined)
        last = np.append(first[1:], len(tiles)) - 1
        return TileMapping(axis=axis, tiles=tiles[first], starts=starts[first], stops=stops[last])

    @staticmethod
    def of_elements(tiles: np.ndarray) -> TileMapping:
        """Element k on tiles[k]."""
        begins = np.flatnonzero(np.append(True, tiles[1:] != tiles[:-1]))
        return TileMapping(axis=FLAT, tiles=wide(tiles[begins]), starts=begins, stops=np.append(begins[1:], len(tiles)))

    @staticmethod
    def evenly(axis: int, extent: int, tiles: np.ndarray) -> TileMapping:
        """`extent` indices over `tiles` in equal runs, spaced out when there are fewer indices than tiles."""
        used = min(extent, len(tiles))
        edges = (np.arange(used + 1) * extent) // used
        chosen = np.asarray(tiles)[(np.arange(used) * len(tiles)) // used]
        return TileMapping.split(axis, chosen, edges[:-1], edges[1:])

    @staticmethod
    def of_boxes(tiles: np.ndarray, bounds: np.ndarray, shape: tuple[int, ...], axis: int = FLAT) -> TileMapping:
        """Box k of a tensor of `shape` on `tiles[k]`: bounds int64[boxes, axes, 2]; row by row, in order of elements.

        axis PER_TIMESTEP: `shape` is that of one timestep. Raises ValueError when boxes overlap.
        """
        strides = [int(np.prod(shape[index + 1 :], dtype=np.int64)) for index in range(len(shape))]
        lengths = bounds[:, :, 1] - bounds[:, :, 0]
        rows = np.prod(lengths[:, :-1], axis=1, dtype=np.int64)
        box, number = repeat_each(rows)
        start = bounds[box, -1, 0].astype(np.int64)
        for index in range(len(shape) - 2, -1, -1):
            start += (bounds[box, index, 0] + number % lengths[box, index]) * strides[index]
            number //= lengths[box, index]
        order = np.argsort(start, kind="stable")
        stop = start + lengths[box, -1]
        return TileMapping.split(axis, np.asarray(tiles)[box][order], start[order], stop[order])

    @staticmethod
    def on(tile: int, axis: int, extent: int) -> TileMapping:
        """Everything on one tile."""
        return TileMapping.split(axis, np.array([tile]), np.array([0]), np.array([extent]))

    @staticmethod
    def replicated(tiles: np.ndarray) -> TileMapping:
        """A full copy on every tile of `tiles`."""
        empty = np.zeros(0, np.int64)
        return TileMapping(axis=REPLICATED, tiles=distinct(np.asarray(tiles, np.int64)), starts=empty, stops=empty)

    @staticmethod
    def banded(bands: tuple[Band, ...]) -> TileMapping:
        """Bands along one axis, ascending; those of the same range are copies, which no vertex may write.

        One band is its own mapping. Raises ValueError for bands of several axes, and for ranges that overlap without
        being the same.
        """
        if len(bands) == 1:
            return bands[0].mapping
        columns = BandColumns.of(bands)
        apart = columns.again[1:] | (columns.stops[:-1] <= columns.starts[1:])
        if (columns.axes != bands[0].axis).any() or not apart.all() or (columns.starts >= columns.stops).any():
            ranges = [(band.start, band.stop) for band in bands]
            raise ValueError(f"mapping: bands {ranges} must ascend along one axis; only equal ones may overlap")
        empty = np.zeros(0, np.int64)
        tiles = distinct(np.concatenate([leaf.tiles for leaf in _leaves(columns.own)]))
        made = TileMapping(axis=BANDED, tiles=tiles, starts=empty, stops=empty, bands=bands)
        made.__dict__["columns"] = columns
        return made

    @property
    def is_replicated(self) -> bool:
        return self.axis == REPLICATED

    @cached_property
    def has_copies(self) -> bool:
        """Whether several tiles hold the same elements."""
        if self.axis == BANDED:
            return bool(self.columns.again.any()) or any(one.has_copies for one in self.columns.own)
        return self.is_replicated and len(self.tiles) > 1

    def ranges(self) -> Iterator[tuple[Band, ...]]:
        """The bands of a BANDED mapping by range: more than one are copies."""
        for first, last in pairwise(self.columns.first.tolist()):
            yield self.bands[first:last]

    @cached_property
    def columns(self) -> BandColumns:
        """The bands of a BANDED mapping in columns."""
        return BandColumns.of(self.bands)

    @cached_property
    def without_axis(self) -> TileMapping:  # made once, so that what is derived from it is found again
        """The same counted without the first axis, along which it must not be spread."""
        bands = tuple(
            Band(axis=band.axis - 1, start=band.start, stop=band.stop, mapping=band.mapping.without_axis)
            for band in self.bands
        )
        made = object.__new__(TileMapping)  # its intervals were checked
        axis = self.axis - 1 if self.axis >= 0 else self.axis
        made.__dict__.update(axis=axis, tiles=self.tiles, starts=self.starts, stops=self.stops, bands=bands)
        return made

    def side_by_side(self, shape: tuple[int, ...]) -> SideBySide | None:
        """The bands of a BANDED mapping of `shape` one after another; None if they are not intervals along one axis,
        or are cut into bands of other axes than those beside them."""
        return _side_by_side(self, shape)

    def on_some(self, chosen: np.ndarray) -> TileMapping:
        """What lies on the tiles of `chosen` bool[tiles]."""
        kept = chosen[self.tiles]
        if self.axis == BANDED:
            bands = tuple(replace(band, mapping=band.mapping.on_some(chosen)) for band in self.bands)
            return replace(self, tiles=self.tiles[kept], bands=bands)
        if self.is_replicated:
            return replace(self, tiles=self.tiles[kept])
        return TileMapping(axis=self.axis, tiles=self.tiles[kept], starts=self.starts[kept], stops=self.stops[kept])

    def is_cut_along(self, axis: int) -> bool:
        """Whether indices of an axis lie on different tiles; FLAT ones count as cut along every axis."""
        if self.axis == BANDED:
            return any(band.axis == axis or band.mapping.is_cut_along(axis) for band in self.bands)
        return self.axis in (axis, FLAT) and len(self.tiles) > 1

    def held_bytes(self, shape: tuple[int, ...], item_bytes: int) -> tuple[np.ndarray, np.ndarray]:
        """(tiles, bytes) of a variable of `shape`, only the tiles that hold some of it, ascending."""
        each: dict[TileMapping, int] = {}
        self._count_each(shape, 1, each)
        if self.axis != BANDED:
            return self._held(each[self] * item_bytes)
        held = np.zeros(len(self.tiles), np.int64)
        for mapping, elements in each.items():
            tiles, size = mapping._held(elements * item_bytes)
            held[np.searchsorted(self.tiles, tiles)] += size
        return self.tiles, held

    def _count_each(self, shape: tuple[int, ...], times: int, each: dict[TileMapping, int]) -> None:
        """Add `times` the elements that one index of its intervals stands for; of a BANDED mapping, of those of its
        bands, over many chips mostly the same few."""
        if self.axis == BANDED:
            for (axis, extent, mapping), number in self.columns.alike.items():
                mapping._count_each((*shape[:axis], extent, *shape[axis + 1 :]), times * number, each)
            return
        elements = math.prod(shape)
        if self.axis == PER_TIMESTEP:
            elements = shape[0]
        elif self.axis == FLAT:
            elements = 1
        elif not self.is_replicated:
            elements //= max(shape[self.axis], 1)
        each[self] = each.get(self, 0) + times * elements

    def _held(self, each: int) -> tuple[np.ndarray, np.ndarray]:
        """(tiles, bytes) of a mapping without bands, `each` bytes for an index; tiles ascend."""
        if self.is_replicated:
            return self.tiles, np.full(len(self.tiles), each)
        if ascends(self.tiles):
            return self.tiles, (self.stops - self.starts) * each
        tiles, which = np.unique(self.tiles, return_inverse=True)
        held = np.zeros(len(tiles), np.int64)
        np.add.at(held, which, (self.stops - self.starts) * each)
        return tiles, held

    def bytes_by_tile(self, shape: tuple[int, ...], item_bytes: int, tiles: int) -> np.ndarray:
        """int64[tiles]: bytes of a variable of `shape` on every tile."""
        held = np.zeros(tiles, np.int64)
        holders, size = self.held_bytes(shape, item_bytes)
        held[holders] = size
        return held

    def owners(self, indices: np.ndarray) -> np.ndarray:
        """The tiles that hold `indices` along the axis; for a replicated variable, the first that holds it."""
        if self.is_replicated:
            return np.full(len(indices), self.tiles[0])
        return self.tiles[np.searchsorted(self.stops, indices, side="right")]


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class Band:
    """Indices `start` to `stop` of an axis; `mapping` says how they lie over tiles, in terms of the whole variable."""

    axis: int
    start: int
    stop: int
    mapping: TileMapping

    def clip(self, boxes: np.ndarray) -> np.ndarray:
        """int64[boxes, axes, 2]: what of each box is in the band; empty where nothing is."""
        inside = boxes.copy()
        inside[:, self.axis] = np.clip(inside[:, self.axis], self.start, self.stop)
        return inside


@dataclass(frozen=True, kw_only=True, eq=False)
class BandColumns:
    """Bands in columns, int64[bands]; own: their different mappings; which: of each band; again bool[bands]: it has the
    range of the band before."""

    axes: np.ndarray
    starts: np.ndarray
    stops: np.ndarray
    own: tuple[TileMapping, ...]
    which: np.ndarray
    again: np.ndarray

    @classmethod
    def of(cls, bands: tuple[Band, ...]) -> BandColumns:
        axes, starts, stops = np.array([(band.axis, band.start, band.stop) for band in bands], np.int64).T.copy()
        number: dict[TileMapping, int] = {}
        which = np.array([number.setdefault(band.mapping, len(number)) for band in bands])
        again = np.zeros(len(bands), bool)
        again[1:] = (starts[1:] == starts[:-1]) & (stops[1:] == stops[:-1])
        return cls(axes=axes, starts=starts, stops=stops, own=tuple(number), which=which, again=again)

    @cached_property
    def first(self) -> np.ndarray:
        """int64[ranges + 1]: the first band of each range, and the end."""
        return np.append(np.flatnonzero(~self.again), len(self.again))

    @property
    def edges(self) -> np.ndarray:
        """int64[2, ranges]: start and stop of each range."""
        first = self.first[:-1]
        return np.stack([self.starts[first], self.stops[first]])

    @cached_property
    def alike(self) -> Counter[tuple[int, int, TileMapping]]:
        """How many bands have the same axis, extent and mapping."""
        columns = (self.axes, self.stops - self.starts, self.which)
        return Counter(
            (axis, extent, self.own[one])
            for axis, extent, one in zip(*(each.tolist() for each in columns), strict=True)
        )


def _leaves(mappings: Iterable[TileMapping]) -> dict[TileMapping, None]:
    """Those that are not BANDED, of these and of their bands, each once."""
    found: dict[TileMapping, None] = {}
    within = list(mappings)
    for one in within:
        if one.axis == BANDED:
            within += one.columns.own
        else:
            found[one] = None
    return found


@dataclass(frozen=True, kw_only=True, eq=False)
class SideBySide:
    """The intervals of a BANDED mapping along one axis, one after another as if each were the shape further along it;
    those of bands that have the same mapping once: over many chips, there are far fewer mappings than bands.

    mapping: these. levels: (axis, int64[2, ranges]) of bands and, where each is cut into bands, of these: starts and
    stops of their ranges, those of each as if it were the shape further along. first int64[ranges + 1]: the first band
    of each range of the last level; more than one are copies. turn int64[bands]: how many shapes further along the
    intervals of each band are; turn_of int64[intervals]: the same of each interval.
    """

    mapping: TileMapping
    levels: tuple[tuple[int, np.ndarray], ...]
    first: np.ndarray
    turn: np.ndarray
    turn_of: np.ndarray

    @property
    def bands(self) -> int:
        return len(self.turn)

    @property
    def has_copies(self) -> bool:
        return self.bands > len(self.first) - 1

    @cached_property
    def turns(self) -> int:
        return int(self.turn.max()) + 1

    @cached_property
    def _lookup(self) -> tuple[tuple[np.ndarray, ...], tuple[np.ndarray, ...], tuple[int, np.ndarray, np.ndarray]]:
        """`levels`, `bands` and `by_tile` of `numerics.local_in_bands`."""
        along = np.array([axis for axis, _ in self.levels])
        begin = np.cumsum([0, *(edges.shape[1] for _, edges in self.levels)])
        ranges = np.ascontiguousarray(np.concatenate([edges for _, edges in self.levels], axis=1))
        within = np.repeat(np.arange(len(self.first) - 1), np.diff(self.first))
        turns = self.turn[np.lexsort((self.turn, within))]
        return (along, ranges, begin), (self.first, turns), numerics.intervals_by_tile(self.mapping.tiles)

    def holds(self, tiles: np.ndarray, bounds: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
        """bool[boxes]: whether everything in box k of bounds int64[axes, 2, boxes] lies on tiles[k]."""
        levels, bands, by_tile = self._lookup
        intervals = self.mapping.tiles, self.mapping.starts, self.mapping.stops, self.turn_of
        given = self.mapping.axis, np.array(shape, np.int64), wide(tiles), bounds
        return np.asarray(numerics.local_in_bands(levels, bands, intervals, by_tile, *given))


@lru_cache(maxsize=16)  # a variable is looked at by many fields in turn
def _side_by_side(mapping: TileMapping, shape: tuple[int, ...]) -> SideBySide | None:
    found = _levels(mapping, shape)
    if found is None:
        return None
    levels, first, own, turn = found
    turn_of = np.repeat(np.arange(len(own)), [len(one.tiles) for one in own])
    return SideBySide(mapping=_in_turn(own, shape), levels=levels, first=first, turn=turn, turn_of=turn_of)


_Levels = tuple[tuple[tuple[int, np.ndarray], ...], np.ndarray, list[TileMapping], np.ndarray]


def _levels(mapping: TileMapping, shape: tuple[int, ...]) -> _Levels | None:
    """`SideBySide.levels` and `first`, the different mappings of bands, and which each has; None as by
    `TileMapping.side_by_side`."""
    bands = mapping.columns
    level, own = (mapping.bands[0].axis, bands.edges), list(bands.own)
    if (level[1][0, 1:] < level[1][1, :-1]).any():
        return None
    if all(one.axis == own[0].axis for one in own) and own[0].axis >= 0:
        return (level,), bands.first, own, bands.which
    parts = [_levels(one, shape) for one in own if one.axis == BANDED]
    inner = [part for part in parts if part is not None]
    axes = {(*(axis for axis, _ in levels), leaves[0].axis) for levels, _, leaves, _ in inner}
    if bands.again.any() or len(inner) < len(own) or len(axes) > 1:
        return None
    inner = [inner[one] for one in bands.which]
    found, around = [level], np.arange(len(inner))
    for each in zip(*(levels for levels, *_ in inner), strict=True):
        axis, edges = each[0][0], [edges for _, edges in each]
        counts = [one.shape[1] for one in edges]
        found.append((axis, np.concatenate(edges, axis=1) + np.repeat(around * shape[axis], counts)))
        around = np.cumsum([0, *counts[:-1]])
    leaves_of = np.array([len(which) for *_, which in inner])
    befores = np.cumsum(leaves_of) - leaves_of
    starts = [first[:-1] + before for (_, first, *_), before in zip(inner, befores, strict=True)]
    first = np.append(np.concatenate(starts), leaves_of.sum())
    number: dict[TileMapping, int] = {}
    turns = []
    for *_, leaves, which in inner:
        turns.append(np.array([number.setdefault(leaf, len(number)) for leaf in leaves])[which])
    return tuple(found), first, list(number), np.concatenate(turns)


def _in_turn(mappings: list[TileMapping], shape: tuple[int, ...]) -> TileMapping:
    """Intervals of mappings along one axis, those of each as if it were the shape further along than those before."""
    axis = mappings[0].axis
    tiles, starts, stops = (
        np.concatenate([getattr(one, name) for one in mappings]) for name in ("tiles", "starts", "stops")
    )
    further = np.repeat(np.arange(len(mappings)) * shape[axis], [len(one.tiles) for one in mappings])
    made = object.__new__(TileMapping)  # the intervals of each were checked
    made.__dict__.update(axis=axis, tiles=tiles, starts=starts + further, stops=stops + further, bands=())
    return made
