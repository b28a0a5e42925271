"""Vertices a part at a time: boxes of all vertices of a machine of many tiles at once would take several times the
memory of the program, and their pages more time than the work on them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np

from mimdsim.program.records import VertexTable

ROWS_AT_ONCE = 1 << 16
Part = tuple[VertexTable, np.ndarray]  # some vertices of a table, and their rows in it


def by_rows(table: VertexTable) -> Iterator[Part]:
    """The vertices of a table, in order."""
    for first in range(0, table.vertices, ROWS_AT_ONCE):
        rows = slice(first, first + ROWS_AT_ONCE)
        yield table.some(rows), np.arange(*rows.indices(table.vertices))


def by_tiles(tables: Sequence[VertexTable]) -> Iterator[list[Part]]:
    """Parts of all tables, tiles after tiles: what vertices of a tile have in common is all in one of them."""
    if sum(table.vertices for table in tables) <= ROWS_AT_ONCE:
        yield [(table, np.arange(table.vertices)) for table in tables]
        return
    most = max(int(table.tiles.max(initial=0)) for table in tables) + 1
    counts = np.zeros(most, np.int64)
    for table in tables:
        counts += np.bincount(table.tiles, minlength=most)
    window = (np.cumsum(counts) - 1) // ROWS_AT_ONCE
    edges = [0, *(np.flatnonzero(np.diff(window)) + 1).tolist(), most]
    ascending = [bool((table.tiles[1:] >= table.tiles[:-1]).all()) for table in tables]
    for low, high in pairwise(edges):
        yield [_between(table, low, high, ascends) for table, ascends in zip(tables, ascending, strict=True)]


def _between(table: VertexTable, low: int, high: int, ascends: bool) -> Part:
    if ascends:
        first, last = (bisect_left(table.tiles, tile) for tile in (low, high))
        return table.some(slice(first, last)), np.arange(first, last)
    rows = np.flatnonzero((table.tiles >= low) & (table.tiles < high))
    return table.some(rows), rows
