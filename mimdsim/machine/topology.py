"""Which chips have an edge between them, and the route of a message from chip to chip.

Chips are on a grid and are numbered in a snake (left to right, then right to left), so that chip c always has an edge
to chip c + 1: consecutive layers of a network are neighbours. Two columns make a ladder:

    line  0 - 1 - 2 - 3        ladder  0 - 1        torus  0 - 1 - 2    each row and
    ring  the same, and 3 - 0          |   |               |   |   |    column closed
                                       3 - 2               5 - 4 - 3    to a ring
                                       |   |               |   |   |
                                       4 - 5               6 - 7 - 8

A torus is as close to a square as its number of chips allows, so a prime number of chips makes a ring. Where a ring
has two chips its two edges are one. A switch is a node of its own, numbered after the chips, with an edge to each of
them; it passes on all that arrives at once (assumed), so that only the edges of the chips are shared.
"""

from __future__ import annotations

import math
from functools import lru_cache

import networkx as nx
import numpy as np

from mimdsim.machine.mimd import Links

Edge = tuple[int, int]  # directed: from chip, to chip


def topology_graph(links: Links) -> nx.Graph:
    """Undirected graph of the chips 0..chips-1, and of the switch if there is one; an edge for every pair with links
    between them.

    It is built again at every call, so the caller may change it.
    """
    return _graph(links.topology, links.chips)


def next_chips(links: Links) -> np.ndarray:
    """int64[nodes, chips], read-only: the node after `row` on the route from node `row` to chip `column`. Nodes are the
    chips, and the switch if there is one.

    A route is a shortest one, always the same: along the row first, then along the column (where the last row of a
    ladder lacks a chip, the other way round). Half way round a ring, chips at even places go up and those at odd places
    down: so that neither direction is favoured.
    """
    return _next_chips(links.topology, links.chips)


def route_lengths(links: Links) -> np.ndarray:
    """int64[chips, chips], read-only: edges of the route from chip `row` to chip `column`."""
    return _lengths(links.topology, links.chips)


# The caches are keyed by the plain fields that routes depend on: a Links record holds a dict and has no hash.


@lru_cache(maxsize=64)
def _next_chips(topology: str, chips: int) -> np.ndarray:
    lengths = _lengths(topology, chips)
    if topology == "all_to_all":
        following = np.tile(np.arange(chips), (chips, 1))
    elif topology == "switch":
        following = np.full((chips + 1, chips), chips)
        following[np.arange(chips), np.arange(chips)] = following[chips] = np.arange(chips)
    else:
        graph = _graph(topology, chips)
        rows, columns = _extents(topology, chips)
        following = np.tile(np.arange(chips)[:, None], (1, chips))
        for chip in range(chips):
            # least preferred first, so that the most preferred neighbour that is one edge nearer to the target wins
            for neighbour in sorted(graph[chip], key=lambda n: _rank(chip, n, rows, columns), reverse=True):
                following[chip, lengths[neighbour] == lengths[chip] - 1] = neighbour
    following.setflags(write=False)
    return following


@lru_cache(maxsize=64)
def _lengths(topology: str, chips: int) -> np.ndarray:
    if topology in ("all_to_all", "switch"):
        lengths = (1 if topology == "all_to_all" else 2) * (1 - np.eye(chips, dtype=np.int64))
    else:
        lengths = nx.floyd_warshall_numpy(_graph(topology, chips), range(chips)).astype(np.int64)
    lengths.setflags(write=False)
    return lengths


def _rank(chip: int, neighbour: int, rows: int, columns: int) -> tuple[bool, bool]:
    """Sort key, smallest first: first a neighbour in the same row, then the one in this chip's direction round a
    ring."""
    (row, column), (row_after, column_after) = _place(chip, columns), _place(neighbour, columns)
    if row == row_after:
        up, at = (column_after - column) % columns == 1, column
    else:
        up, at = (row_after - row) % rows == 1, row
    return row != row_after, up != (at % 2 == 0)


def _graph(topology: str, chips: int) -> nx.Graph:
    if topology == "all_to_all":
        return nx.complete_graph(chips)
    if topology == "switch":
        return nx.star_graph([chips, *range(chips)])
    rows, columns = _extents(topology, chips)
    closed = topology in ("ring", "torus")
    chip_at = {_place(chip, columns): chip for chip in range(chips)}
    graph = nx.Graph()
    graph.add_nodes_from(range(chips))
    for (row, column), chip in chip_at.items():
        for down, right in ((0, 1), (1, 0)):
            place = (row + down, column + right)
            if closed:
                place = (place[0] % rows, place[1] % columns)
            neighbour = chip_at.get(place, chip)  # beyond the border, or missing from the last row
            if neighbour != chip:
                graph.add_edge(chip, neighbour)
    return graph


def _extents(topology: str, chips: int) -> tuple[int, int]:
    """(rows, columns) of the grid of chips; only a ladder's last row may lack a chip."""
    if topology in ("line", "ring"):
        return 1, chips
    if topology == "ladder":
        return -(-chips // 2), 2
    rows = next(number for number in range(math.isqrt(chips), 0, -1) if chips % number == 0)
    return rows, chips // rows


def _place(chip: int, columns: int) -> tuple[int, int]:
    """(row, column) of a chip in snake order."""
    row, along = divmod(chip, columns)
    return row, along if row % 2 == 0 else columns - 1 - along
