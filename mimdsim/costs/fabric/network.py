"""Where the routers of a chip lie, and how many links a message goes along from one to another."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from mimdsim.machine.mimd import Chip, Fabric
from mimdsim.numerics.columns import routes
from mimdsim.program.messages import Messages

Places = tuple[np.ndarray, np.ndarray]  # columns and rows; rows are numbered over all chips


class Listed(NamedTuple):
    """Messages of a phase, all or some: of every message, how many readers each stands for int64[messages], which are
    those that are listed or more, and of how many such messages it stands float64[messages]."""

    messages: Messages
    readers: np.ndarray
    amount: np.ndarray

    @classmethod
    def of(cls, messages: Messages, amount: float = 1.0) -> Listed:
        """Messages with all their readers."""
        return cls(messages, np.diff(messages.first), np.full(len(messages.sender), amount))


@dataclass(frozen=True, kw_only=True, eq=False)
class Network:
    """The routers of `chips` chips of tiles_per_chip tiles: `tiles` of each, their columns and rows, and those of the
    rings that they are part of. corner: its first column and row among those of the chip."""

    chips: int
    tiles_per_chip: int
    tiles: int
    grid: Places
    wide: int
    high: int
    kind: int
    both: bool  # two networks of opposite ways
    corner: tuple[int, int] = (0, 0)

    @classmethod
    def of(cls, chip: Chip, fabric: Fabric, strip_columns: int = 0, chips: int = 1, tiles_per_chip: int = 0) -> Network:
        """tiles_per_chip: by which tiles are numbered, fewer than a chip has where a program was compiled for a smaller
        one (0: all)."""
        grid = chip.with_together(fabric.tiles_per_router).places(strip_columns)
        one_way = fabric.ways != "both"
        kinds = {"mesh": routes.MESH, "torus": routes.ONE_WAY if one_way else routes.TORUS, "crossbar": routes.CROSSBAR}
        columns, rows = (int(each.max()) + 1 for each in grid)
        ring = chip.grid == "torus"
        return cls(
            chips=chips,
            tiles_per_chip=tiles_per_chip or chip.tiles,
            tiles=fabric.tiles_per_router,
            grid=grid,
            wide=max(columns, fabric.ring_columns if ring else 0),
            high=max(rows, fabric.ring_rows if ring else 0),
            kind=kinds[chip.grid],
            both=ring and fabric.ways == "opposed",
        )

    @property
    def networks(self) -> int:
        return 1 + self.both

    @property
    def links(self) -> int:
        """Links of all routers of a chip, each in its direction."""
        each = {routes.MESH: 4, routes.TORUS: 4, routes.ONE_WAY: 4 if self.both else 2, routes.CROSSBAR: 2}[self.kind]
        edge = 2 * (self.wide + self.high) if self.kind == routes.MESH else 0
        return max(each * self.wide * self.high - edge, 1)

    @property
    def mean_hops(self) -> float:
        """Links on the way between two tiles, on average."""
        if self.kind == routes.CROSSBAR:
            return 2.0
        share = {routes.MESH: 1 / 3, routes.TORUS: 1 / 4, routes.ONE_WAY: 1 / 3 if self.both else 1 / 2}[self.kind]
        return share * (self.wide + self.high)

    def places(self, tile: np.ndarray) -> Places:
        """(column, row) of the router of each tile."""
        chip, within = np.divmod(np.asarray(tile, np.int64), self.tiles_per_chip)
        column, row = (each[within // self.tiles] for each in self.grid)
        return column, chip * self.high + row

    def steps(self, here: Places, there: Places) -> tuple[np.ndarray, np.ndarray]:
        """int64: links from router to router along the row and then the column, negative if against their order; of a
        crossbar one each, to the middle and from it."""
        across, down = there[0] - here[0], there[1] - here[1]
        if self.kind == routes.CROSSBAR:
            away = ((across != 0) | (down != 0)).astype(np.int64)
            return away, away
        if self.kind != routes.MESH:
            across, down = across % self.wide, down % self.high
        if self.kind == routes.TORUS:
            across = np.where(2 * across > self.wide, across - self.wide, across)
            down = np.where(2 * down > self.high, down - self.high, down)
        return across, down

    def hops(self, here: Places, there: Places) -> np.ndarray:
        """int64: links from router to router."""
        across, down = self.steps(here, there)
        return np.asarray(np.abs(across) + np.abs(down))

    def turned(self, number: int) -> Network:
        """The first network, or the second, of the other ways: its routes go along the column first, so that rows and
        columns change places, both counted from the other end."""
        if not number:
            return self
        column, row = self.grid
        return replace(self, grid=(self.high - 1 - row, self.wide - 1 - column), wide=self.high, high=self.wide)

    def on_grid(self, loads: np.ndarray) -> np.ndarray:
        """Loads float64[networks, 4, routers], each by the rows and columns of its own network, as float64[4, chips,
        rows, columns] by the direction and router on the chip."""
        each = [
            one.reshape(4, self.chips, *shape)
            for one, shape in zip(loads, ((self.high, self.wide), (self.wide, self.high)), strict=False)
        ]
        if self.both:  # as `turned`: east there is north here
            each[1] = each[1].swapaxes(2, 3)[::-1, :, ::-1, ::-1]
        return np.asarray(sum(each))

    def around(self, tiles: np.ndarray) -> Network:
        """The rectangle of a mesh that messages between such tiles do not leave; of other networks, all."""
        if self.kind != routes.MESH or not len(tiles):
            return self
        column, row = (each[tiles % self.tiles_per_chip // self.tiles] for each in self.grid)
        left, top = int(column.min()), int(row.min())
        grid = self.grid[0] - left, self.grid[1] - top
        wide, high = int(column.max()) - left + 1, int(row.max()) - top + 1
        return replace(self, grid=grid, wide=wide, high=high, corner=(left, top))

    def parted(self, listed: Listed) -> Iterator[Listed]:
        """The messages of each network: every reader is reached by the one with fewer hops, the first of two."""
        if not self.both:
            yield listed
            return
        messages, fanout = listed.messages, np.diff(listed.messages.first)
        sender = np.repeat(messages.sender, fanout)
        hops = [net.hops(net.places(sender), net.places(messages.reader)) for net in (self, self.turned(1))]
        for chosen in (hops[0] <= hops[1], hops[0] > hops[1]):
            count = np.add.reduceat(np.append(chosen, 0), messages.first[:-1]) if len(fanout) else fanout
            kept = count > 0
            part = Messages(
                sender=messages.sender[kept],
                size_bytes=messages.size_bytes[kept],
                fragments=messages.fragments[kept],
                first=np.concatenate([[0], np.cumsum(count[kept])]).astype(np.int64),
                reader=messages.reader[chosen],
            )
            readers = listed.readers[kept] * count[kept] // fanout[kept]
            yield Listed(part, readers, listed.amount[kept])

    def line_of_links(self, direction: int | np.ndarray, column: np.ndarray, row: np.ndarray) -> np.ndarray:
        """int64: the line that each link which leaves such a router is part of: all of a row or a column of a chip in
        one direction (0 to 3, as of `routes.link_loads`), counted from 1; of a crossbar every link is one."""
        routers = self.chips * self.wide * self.high
        if self.kind == routes.CROSSBAR:
            return np.asarray(1 + direction * routers + row * self.wide + column)
        rows, columns = self.chips * self.high, self.chips * self.wide
        of_column = 2 * rows + (direction - 2) * columns + row // self.high * self.wide + column
        return np.asarray(1 + np.where(np.asarray(direction) < 2, direction * rows + row, of_column))

    def lines_of_routes(self, here: Places, there: Places) -> tuple[np.ndarray, np.ndarray]:
        """int64: the lines that routes go along, first and last; 0 for none."""
        across, down = self.steps(here, there)
        east, west = (self.line_of_links(direction, *here) for direction in (0, 1))
        south, north = (self.line_of_links(direction, *there) for direction in (2, 3))
        return (
            np.where(across > 0, east, np.where(across < 0, west, 0)),
            np.where(down > 0, south, np.where(down < 0, north, 0)),
        )

    @property
    def lines(self) -> int:
        """Numbers of lines, with 0."""
        if self.kind == routes.CROSSBAR:
            return 1 + 4 * self.chips * self.wide * self.high
        return 1 + 2 * self.chips * (self.wide + self.high)
