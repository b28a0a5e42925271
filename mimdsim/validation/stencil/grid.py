"""How the published stencil cuts an image: strips for chips, a grid of blocks for tiles, slices for worker contexts.

The rules are those of the published program (github.com/thorbenlouw/lbm-graphcore, StructuredGridUtils.hpp), restated:
chips take strips along the axis that divides more evenly; a chip's tiles form a grid about as wide for its height as
the strip; a tile's contexts take slices along the axis that divides more evenly. Longer parts come first.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np

from mimdsim.base.errors import MappingError


@dataclass(frozen=True, kw_only=True, eq=False)
class Blocks:
    """Rectangles of pixels as int64 columns: rows top to bottom, columns left to right, and their tiles."""

    top: np.ndarray
    bottom: np.ndarray
    left: np.ndarray
    right: np.ndarray
    tile: np.ndarray

    @property
    def rows(self) -> np.ndarray:
        result: np.ndarray = self.bottom - self.top
        return result

    @property
    def columns(self) -> np.ndarray:
        result: np.ndarray = self.right - self.left
        return result

    def take(self, chosen: np.ndarray) -> Blocks:
        """Those at the places `chosen`."""
        return Blocks(
            top=self.top[chosen],
            bottom=self.bottom[chosen],
            left=self.left[chosen],
            right=self.right[chosen],
            tile=self.tile[chosen],
        )

    @staticmethod
    def of(rectangles: list[tuple[int, int, int, int, int]]) -> Blocks:
        """From (top, bottom, left, right, tile) of each."""
        top, bottom, left, right, tile = np.array(rectangles, np.int64).T
        return Blocks(top=top, bottom=bottom, left=left, right=right, tile=tile)


def tile_blocks(rows: int, columns: int, chips: int, tiles_per_chip: int) -> Blocks:
    """One block a tile that is used; neighbouring strips on neighbouring chips.

    Raises MappingError when there are more chips than rows or columns to cut.
    """
    along_rows = chips > 0 and _imbalance(rows, chips) < _imbalance(columns, chips)
    extent = rows if along_rows else columns
    if not 1 <= chips <= extent:
        raise MappingError(f"an image of {rows} x {columns} pixels cannot be cut into {chips} strips: use fewer chips")
    strip = cut(extent, chips)
    found: list[tuple[int, int, int, int, int]] = []
    for chip in range(chips):
        start, stop = strip[chip], strip[chip + 1]
        box = (start, stop, 0, columns) if along_rows else (0, rows, start, stop)
        found += _grid(box, tiles_per_chip, chip * tiles_per_chip)
    return Blocks.of(found)


def worker_blocks(blocks: Blocks, contexts: int) -> Blocks:
    """The slices of every block, at most `contexts` of them, in the order in which contexts take them."""
    found: list[tuple[int, int, int, int, int]] = []
    for top, bottom, left, right, tile in zip(
        blocks.top.tolist(),
        blocks.bottom.tolist(),
        blocks.left.tolist(),
        blocks.right.tolist(),
        blocks.tile.tolist(),
        strict=True,
    ):
        rows, columns = bottom - top, right - left
        if _imbalance(rows, contexts) <= _imbalance(columns, contexts):
            edges = [top + edge for edge in cut(rows, min(rows, contexts))]
            found += [(one, two, left, right, tile) for one, two in itertools.pairwise(edges)]
        else:
            edges = [left + edge for edge in cut(columns, min(columns, contexts))]
            found += [(top, bottom, one, two, tile) for one, two in itertools.pairwise(edges)]
    return Blocks.of(found)


def cut(extent: int, parts: int) -> list[int]:
    """Edges of `parts` parts that differ by at most one, the longer ones first."""
    whole, longer = divmod(extent, parts)
    return [number * whole + min(number, longer) for number in range(parts + 1)]


def _imbalance(extent: int, parts: int) -> float:
    return (extent % parts) / extent


def _grid(box: tuple[int, int, int, int], tiles: int, first_tile: int) -> list[tuple[int, int, int, int, int]]:
    """The blocks of one chip, row by row."""
    top, bottom, left, right = box
    rows, columns = bottom - top, right - left
    across = min(tiles, columns, math.ceil(math.sqrt(tiles * columns / rows)))
    down = min(tiles // across, rows)
    row_edges, column_edges = cut(rows, down), cut(columns, across)
    return [
        (top + row_edges[i], top + row_edges[i + 1], left + column_edges[j], left + column_edges[j + 1], tile)
        for tile, (i, j) in enumerate(((i, j) for i in range(down) for j in range(across)), start=first_tile)
    ]
