"""Vertices a part at a time: boxes of all vertices of a machine of many tiles at once would take several times the
memory of the program, and their pages more time than the work on them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

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
    _, window = np.unique((np.cumsum(counts) - 1) // ROWS_AT_ONCE, return_inverse=True)
    window = window.astype(np.uint16)  # which numpy sorts digit by digit
    found = [_in_windows(table, window[table.tiles], int(window[-1]) + 1) for table in tables]
    for number in range(int(window[-1]) + 1):
        yield [
            (table.some(slice(*ends[number : number + 2])), rows[slice(*ends[number : number + 2])])
            for table, rows, ends in found
        ]


def _in_windows(table: VertexTable, window: np.ndarray, windows: int) -> tuple[VertexTable, np.ndarray, list[int]]:
    """(vertices in the order of their windows, their rows, where each window begins, and the end); window: of each."""
    ends = [0, *np.cumsum(np.bincount(window, minlength=windows)).tolist()]
    if (window[1:] >= window[:-1]).all():
        return table, np.arange(table.vertices), ends
    rows = np.argsort(window, kind="stable")
    return table.some(rows), rows, ends
