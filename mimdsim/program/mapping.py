"""Which tile holds which elements of a variable."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

REPLICATED = -1
FLAT = -2
PER_TIMESTEP = -3


def whole_numbers(what: str, values: ArrayLike) -> np.ndarray:
    """A column of integers as an array, unchanged if it already is one; raises ValueError for anything else."""
    column = np.asarray(values)
    if not column.size:
        return column.astype(np.int64, copy=False)
    if column.ndim != 1 or column.dtype.kind not in "iu":
        raise ValueError(f"{what} must be whole numbers in one column, given {column.dtype} {list(column.shape)}")
    return column


@dataclass(frozen=True, kw_only=True, eq=False)
class TileMapping:
    """Elements `starts[k]` to `stops[k]` along `axis` lie on `tiles[k]`; intervals ascend and do not overlap.

    axis FLAT: intervals count elements of the whole variable in C order. axis PER_TIMESTEP: the first axis is time, and
    every timestep is spread like a FLAT variable with the other axes. axis REPLICATED: every tile of `tiles` holds the
    whole variable; starts and stops are then empty.
    """

    axis: int
    tiles: np.ndarray
    starts: np.ndarray
    stops: np.ndarray

    def __post_init__(self) -> None:
        for name in ("tiles", "starts", "stops"):
            object.__setattr__(self, name, whole_numbers(f"mapping: {name}", getattr(self, name)))
        if self.axis != REPLICATED:
            if not len(self.tiles) == len(self.starts) == len(self.stops):
                raise ValueError(
                    f"mapping: {len(self.tiles)} tiles, {len(self.starts)} starts, {len(self.stops)} stops"
                )
            if np.any(self.stops <= self.starts) or np.any(self.starts[1:] < self.stops[:-1]):
                raise ValueError("mapping: intervals must ascend and not overlap")

    @staticmethod
    def split(axis: int, tiles: np.ndarray, starts: np.ndarray, stops: np.ndarray) -> TileMapping:
        """Intervals along an axis; neighbouring intervals on one tile are joined."""
        tiles, starts, stops = (np.asarray(column, np.int64) for column in (tiles, starts, stops))
        if not len(tiles) == len(starts) == len(stops):
            raise ValueError(
                f"mapping: {len(tiles)} tiles, {len(starts)} starts, {len(stops)} stops; give as many of each"
            )
        joined = np.ones(len(tiles), bool)
        joined[1:] = (tiles[1:] != tiles[:-1]) | (starts[1:] != stops[:-1])
        first = np.flatnonzero(joined)
        last = np.append(first[1:], len(tiles)) - 1
        return TileMapping(axis=axis, tiles=tiles[first], starts=starts[first], stops=stops[last])

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
        box = np.repeat(np.arange(len(tiles)), rows)
        number = np.arange(len(box)) - np.repeat(np.cumsum(rows) - rows, rows)
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
        return TileMapping(axis=REPLICATED, tiles=np.unique(np.asarray(tiles, np.int64)), starts=empty, stops=empty)

    @property
    def is_replicated(self) -> bool:
        return self.axis == REPLICATED

    def held_bytes(self, shape: tuple[int, ...], item_bytes: int) -> tuple[np.ndarray, np.ndarray]:
        """(tiles, bytes) of a variable of `shape`; only the tiles that hold some of it, ascending."""
        whole = int(np.prod(shape, dtype=np.int64))
        if self.is_replicated:
            return self.tiles, np.full(len(self.tiles), whole * item_bytes)
        each = item_bytes
        if self.axis == PER_TIMESTEP:
            each *= shape[0]
        elif self.axis != FLAT:
            each *= whole // max(shape[self.axis], 1)
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
