"""What an exchange on a chip costs: the questions that a fabric answers, asked by timing, search, planner, explain,
advice and trace, and answered nowhere else.

A fabric of one's own is a subclass in a Python file that the machine names, `exchange.model = "mine.py:Mine"`; it needs
`cycles` and `estimate`, the rest has answers that follow from them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from mimdsim.base.compressed_columns import wide
from mimdsim.base.units import counted
from mimdsim.machine import MimdMachine
from mimdsim.machine.mimd import Chip
from mimdsim.program import Exchange, Program


@dataclass(frozen=True, kw_only=True)
class BusiestTile:
    """The tile that an exchange phase waits for: bytes on its wire, and cycles of its control instructions."""

    tile: int
    wire_bytes: int
    control_cycles: int


@dataclass(frozen=True, kw_only=True)
class Row:
    """Cycles with one cause: the cause, how the number is computed, and remarks."""

    what: str
    how: str
    cycles: float
    note: str = ""

    def times(self, executions: int) -> Row:
        """The row for `executions` equal executions."""
        if executions == 1:
            return self
        each = f"({self.how})" if " + " in self.how else self.how
        return replace(self, how=f"{each} x {executions:,} executions", cycles=self.cycles * executions)


DIRECTIONS = ("east", "west", "south", "north")
OVER_THE_MIDDLE = ("to the middle", "", "from the middle", "")  # of a crossbar


@dataclass(frozen=True, kw_only=True, eq=False)
class LinkLoads:
    """What the links between routers carry in one phase. loads, cycles float64[4, chips, rows, columns]: bytes, and how
    long a link is in use for them, by direction and by the router that it leaves (of a crossbar: those to its middle,
    0, and from it, 2). router_of int64[tiles of a chip]: the router of each, row * columns + column."""

    loads: np.ndarray
    cycles: np.ndarray
    router_of: np.ndarray
    crossbar: bool

    def _router(self, chip: int, row: int, column: int) -> str:
        _, _, rows, columns = self.loads.shape
        row, column = row % rows, column % columns
        tiles = chip * len(self.router_of) + np.flatnonzero(self.router_of == row * columns + column)
        named = tiles[:: max(1, len(tiles) - 1)].tolist()
        of_tiles = f"tile{'s'[: len(tiles) > 1]} {' to '.join(map(str, named))}" if len(tiles) else "no tile"
        return f"column {column}, row {row} ({of_tiles})"

    def fullest(self, chip: int, cycles: int) -> str:
        """The fullest link of a chip, in words: its ends, its bytes, for how many of the `cycles` of the phase it is in
        use, and how many links are at least half as long; empty where none carries anything."""
        takes = self.cycles[:, chip]
        at = np.unravel_index(takes.argmax(), takes.shape)
        direction, row, column = (int(each) for each in at)
        most, load = float(takes[at]), float(self.loads[:, chip][at])
        if not most:
            return ""
        here = self._router(chip, row, column)
        if self.crossbar:
            way = f"{here} {OVER_THE_MIDDLE[direction]}"
        else:
            down, across = ((0, 1), (0, -1), (1, 0), (-1, 0))[direction]
            way = f"{here} {DIRECTIONS[direction]} to {self._router(chip, row + down, column + across)}"
        half, used = int(np.count_nonzero(takes >= most / 2)), counted(int(np.count_nonzero(takes)), "link")
        others = (
            f"{half:,} of {used} that carry anything {'is' if half == 1 else 'are'} in use for half as long or more"
        )
        return (
            f"{way}: {load:,.10g} bytes, in use for {most:,.0f} of {cycles:,} cycles ({100 * most / cycles:.0f} %) "
            f"each time; {others}"
        )


class FabricModel(ABC):
    """The exchange fabric of a machine. Cycles are whole and those of the machine's clock."""

    kind: ClassVar[str] = "derived"
    """Kind of source of all its cycles, which sets their interval (`base/units.py`)."""
    compared_with: ClassVar[str] = "endpoint"
    """The fabric whose cycles a profile gives beside its own."""
    rates: ClassVar[tuple[str, ...]] = ("bytes_per_cycle",)
    """Keys of [exchange] whose doubling advice tries."""

    limits: ClassVar[str] = ""
    """What a run with it has to say of what is not modelled."""

    def __init__(self, machine: MimdMachine):
        self.machine, self.fabric, self.chip = machine, machine.exchange, machine.chip

    @property
    def knows_distance(self) -> bool:
        """Whether it matters which tiles of a chip exchange."""
        return True

    @abstractmethod
    def cycles(self, program: Program, exchanges: Sequence[Exchange] | None = None) -> np.ndarray:
        """int64[phases, chips]: cycles of exchange phases of a program (None: all, in order), 0 where nothing moves."""

    @abstractmethod
    def estimate(self, wire_bytes: Any, sent: Any, received: Any) -> np.ndarray:
        """int64: cycles of phases over the whole chip, of which only so much is known: bytes on the wire of the busiest
        tile (sent or received, whichever are more), and the fragments that it sends and receives."""

    def hop_bytes(self, program: Program) -> np.ndarray:
        """int64[phases]: bytes times links between routers that they go along, for every exchange phase of a program;
        0 where there are no such links."""
        return np.zeros(len(exchanges_of(program)), np.int64)

    def links(self, program: Program, exchange: Exchange) -> LinkLoads | None:
        """What every link between routers carries in one phase; None where there are no such links."""
        return None

    def tile_cycles(self, program: Program, exchange: Exchange) -> np.ndarray:
        """int64[taking part]: cycles of one phase if no tile took longer than this one."""
        return np.asarray(self.cycles(program, [exchange])[0, exchange.tiles // program.tiles_per_chip])

    def busiest(self, program: Program, exchanges: Sequence[Exchange] | None = None) -> list[BusiestTile | None]:
        """The tile that takes longest in each phase, the first of several; None if nothing moves."""
        found: list[BusiestTile | None] = []
        for exchange in exchanges_of(program) if exchanges is None else exchanges:
            wire = np.maximum(exchange.column("bytes_sent"), exchange.column("bytes_received"))
            at = int(np.argmax(wire)) if len(wire) else 0
            busiest = BusiestTile(tile=int(exchange.tiles[at]), wire_bytes=int(wire[at]), control_cycles=0)
            found.append(busiest if wire[at] else None)
        return found

    def explain(self, program: Program, exchange: Exchange, tile: int, phase: int) -> list[Row]:
        """What a phase that takes `phase` cycles on the tile's chip spends them on, as one of its tiles sees it."""
        return [Row(what=f"exchange, {self.fabric.model}", how=f"{phase:,}", cycles=phase)]


def exchanges_of(program: Program) -> list[Exchange]:
    """The exchanges of all supersteps that have one, in program order."""
    return [superstep.exchange for superstep, _, _ in program.supersteps() if superstep.exchange is not None]


def moving_tiles(exchange: Exchange) -> np.ndarray:
    """int64: the tiles that send or receive."""
    return wide(exchange.tiles[(exchange.column("bytes_sent") > 0) | (exchange.column("bytes_received") > 0)])


def hops_apart(
    program: Program, groups: Sequence[np.ndarray], chip: Chip, together: int = 1, rings: tuple[int, int] = (0, 0)
) -> np.ndarray:
    """int64[groups, chips]: hops between the farthest rows and columns of each chip's tiles of every group; together:
    tiles that share a place; rings: places of a ring along a row and a column, where some have no tile."""
    grid = chip.with_together(together)
    places = grid.places(program.strip_columns)
    apart = np.zeros((2, len(groups), program.chips), np.int64)
    for number, tiles in enumerate(groups):
        on_chip, within = np.divmod(tiles, program.tiles_per_chip)
        for axis, place in enumerate(each[within // together] for each in places):
            if grid.grid == "torus":  # the way round the ring may be shorter
                held = np.zeros((program.chips, max(int(places[axis].max()) + 1, rings[axis])), bool)
                held[on_chip, place] = True
                for far in range(1, held.shape[1] // 2 + 1):
                    apart[axis, number, (held & np.roll(held, far, axis=1)).any(axis=1)] = far
                continue
            least, most = np.full(program.chips, chip.tiles), np.zeros(program.chips, np.int64)
            np.minimum.at(least, on_chip, place)
            np.maximum.at(most, on_chip, place)
            apart[axis, number] = np.maximum(most - least, 0)
    return np.asarray(grid.hops(apart[0], apart[1], rings))
