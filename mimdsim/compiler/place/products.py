"""Where a planned product lies: which tile multiplies which blocks, holds which operands and sums which results; and
all the products that a network with dense spikes takes.

Operands and results keep the shape of the graph's values; a block is a box of them. Tiles are numbered rows first, then
columns, then the inner dimension: neighbours on one bus want the same block of B.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from mimdsim.base.shown import Shown
from mimdsim.codelets.products import TRANSPOSED
from mimdsim.compiler.place.product_plan import ProductPlan, plan_product
from mimdsim.machine import MimdMachine
from mimdsim.program import Codelet, TileMapping
from mimdsim.program.mapping import FLAT, PER_TIMESTEP


@dataclass(frozen=True, kw_only=True, eq=False)
class Blocks:
    """A matrix in boxes: rows row_start to row_stop and columns start to stop lie on `tiles[k]`.

    fastest: the axis whose neighbours lie together in a tile's memory, 0 or 1.
    """

    tiles: np.ndarray
    row_start: np.ndarray
    row_stop: np.ndarray
    start: np.ndarray
    stop: np.ndarray
    fastest: int

    @property
    def columns(self) -> dict[str, np.ndarray]:
        """Columns of a vertex table with one vertex per box."""
        return {"row_start": self.row_start, "row_stop": self.row_stop, "start": self.start, "stop": self.stop}

    @property
    def elements(self) -> np.ndarray:
        """int64[boxes]"""
        held: np.ndarray = (self.row_stop - self.row_start) * (self.stop - self.start)
        return held

    def mapping(self, shape: tuple[int, ...], *, sequence: bool = False) -> TileMapping:
        """The mapping of a matrix of `shape`, or of every timestep of a sequence of it; leading axes are held whole."""
        ends = [(np.zeros_like(self.start), np.full_like(self.start, extent)) for extent in shape[:-2]]
        ends += [(self.row_start, self.row_stop), (self.start, self.stop)]
        bounds = np.stack([np.stack(pair, axis=1) for pair in ends], axis=1)
        return TileMapping.of_boxes(self.tiles, bounds, shape, PER_TIMESTEP if sequence else FLAT)

    @property
    def by_row(self) -> Blocks:
        """The same with every box cut into its rows."""
        heights = self.row_stop - self.row_start
        box = np.repeat(np.arange(len(heights)), heights)
        row = np.concatenate([np.arange(*ends) for ends in zip(self.row_start, self.row_stop, strict=True)])
        return replace(self.some(box), row_start=row, row_stop=row + 1)

    def some(self, boxes: np.ndarray) -> Blocks:
        """Boxes by number, or those of a mask."""
        return replace(self, tiles=self.tiles[boxes], **{name: each[boxes] for name, each in self.columns.items()})

    def wider(self, times: int) -> Blocks:
        """Boxes of a matrix that has so many columns for each of this one's."""
        return replace(self, start=self.start * times, stop=self.stop * times)

    @property
    def transposed(self) -> Blocks:
        """The same boxes of the transposed matrix."""
        rows, columns = (
            {"start": self.row_start, "stop": self.row_stop},
            {"row_start": self.start, "row_stop": self.stop},
        )
        return replace(self, **rows, **columns, fastest=1 - self.fastest)


def grid_of(rows: int, columns: int, parts: int) -> tuple[int, int]:
    """(cuts of the rows, cuts of the columns) into at most `parts` pieces whose largest is smallest; long runs of
    columns where several are as good."""
    by_rows = np.arange(1, min(rows, parts) + 1)
    by_columns = np.minimum(parts // by_rows, columns)
    largest = -(-rows // by_rows) * -(-columns // by_columns)
    best = np.lexsort((by_columns, by_rows * by_columns, largest))[0]
    return int(by_rows[best]), int(by_columns[best])


def largest_piece(rows: int, columns: int, parts: int) -> tuple[int, int]:
    """(elements, fragments) of the largest piece of a block of sums that is cut by `grid_of`: a run for every row."""
    down, across = grid_of(rows, columns, parts)
    height, width = -(-rows // down), -(-columns // across)
    return height * width, height if across > 1 else 1


@dataclass(frozen=True, kw_only=True, eq=False)
class ProductPlace:
    """C[m, n] = A[m, k] B[k, n] by `plan`, on tiles from `first_tile` on. Blocks of padding only are left out.

    groups: so many products of this size, of columns side by side, and rows of what is stored transposed for this
    `kind` of product, on as many tiles each; `abreast` at once, then the next. turned: the plan is that of the
    transposed product, in which the units hold B.
    """

    plan: ProductPlan
    first_tile: int
    groups: int = 1
    kind: str = "forward"
    group_tiles: int = 0
    abreast: int = 1
    turned: bool = False

    @classmethod
    def planned(cls, machine: MimdMachine, m: int, k: int, n: int, dtype: str, *, first_tile: int = 0) -> ProductPlace:
        """The product with the fewest cycles on one chip of `machine`; raises as `plan_product` does."""
        return cls(plan=plan_product(machine, m, k, n, dtype, pieces=largest_piece), first_tile=first_tile)

    @property
    def m(self) -> int:
        return self.plan.n if self.turned else self.plan.m

    @property
    def n(self) -> int:
        return self.plan.m if self.turned else self.plan.n

    @property
    def _axes(self) -> tuple[str, str]:
        """What the plan calls the rows and the columns."""
        return ("column", "row") if self.turned else ("row", "column")

    @cached_property
    def edges(self) -> dict[str, np.ndarray]:
        """int64 by axis: bounds of the blocks of rows, of all steps, of the inner dimension and of columns."""
        plan = self.plan
        extents = {"row": (plan.m, plan.rows), "inner": (plan.k, plan.inner), "column": (plan.n, plan.columns)}
        return {axis: np.append(np.arange(0, extent, share), extent) for axis, (extent, share) in extents.items()}

    def _blocks(self, *axes: str) -> tuple[np.ndarray, ...]:
        """Every combination of blocks along axes, the first running fastest."""
        return _grid(*(np.arange(len(self.edges[axis]) - 1) for axis in axes))

    @property
    def parts(self) -> int:
        """Partial products of every block that have to be added up."""
        return len(self.edges["inner"]) - 1

    def tile(self, row: np.ndarray, inner: np.ndarray, column: np.ndarray) -> np.ndarray:
        """The tile of block (row, inner, column); rows of later steps begin anew."""
        plan = self.plan
        place: np.ndarray = row % plan.row_splits + plan.row_splits * (column + plan.column_splits * inner)
        return self.first_tile + place

    @property
    def steps(self) -> int:
        """Of all groups."""
        return self.plan.steps * -(-self.groups // self.abreast)

    def vertices(self, step: int) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """(tiles, columns) of the partial products of a step: bounds of rows, inner dimension and columns; `part`; of
        groups also the bounds in the weights along the axis that all groups have there."""
        turn, step = divmod(step, self.plan.steps)
        row, column, inner = self._blocks("row", "column", "inner")
        now = row // self.plan.row_splits == step
        row, column, inner = row[now], column[now], inner[now]
        bounds = {}
        blocks = {"row": row, "inner": inner, "column": column}
        for axis, prefix in zip((self._axes[0], "inner", self._axes[1]), ("row_", "inner_", ""), strict=True):
            number = blocks[axis]
            bounds[f"{prefix}start"], bounds[f"{prefix}stop"] = self.edges[axis][number], self.edges[axis][number + 1]
        bounds["part"] = inner
        tiles = self.tile(row, inner, column)
        if self.groups == 1:
            return tiles, bounds
        left, right = TRANSPOSED[self.kind]
        shared = "row_" if left else "" if right else "inner_"
        bounds |= {f"weight_{end}": bounds[f"{shared}{end}"] for end in ("start", "stop")}
        group = np.arange(turn * self.abreast, min((turn + 1) * self.abreast, self.groups))
        at, group = _grid(np.arange(len(tiles)), group)
        bounds = {name: values[at] for name, values in bounds.items()}
        for prefix, apart in (("row_", left * self.m), ("inner_", (not left) * self.plan.k), ("", self.n)):
            for end in ("start", "stop"):
                bounds[f"{prefix}{end}"] = bounds[f"{prefix}{end}"] + group * apart
        return tiles[at] + group % self.abreast * self.group_tiles, bounds

    def _of_groups(self, blocks: Blocks, rows: int, columns: int) -> Blocks:
        """The same of every group, which are so many rows and columns apart."""
        if self.groups == 1:
            return blocks
        box, group = _grid(np.arange(len(blocks.tiles)), np.arange(self.groups))
        apart = {"row_start": rows, "row_stop": rows, "start": columns, "stop": columns}
        moved = {name: values[box] + group * apart[name] for name, values in blocks.columns.items()}
        return replace(blocks, tiles=blocks.tiles[box] + group % self.abreast * self.group_tiles, **moved)

    def supersteps(
        self, multiply: Codelet, add: Codelet
    ) -> list[tuple[str, Codelet, np.ndarray, dict[str, np.ndarray]]]:
        """(name, codelet, tiles, columns) of one after the other: the partial products of every step and, where there
        are several `parts`, their sums. Operands are "left", "right" and "partial", then "partial" and "total"."""
        found = [("multiply", multiply, *self.vertices(step)) for step in range(self.steps)]
        return found + [("sum", add, self.result.tiles, self.result.columns)] * (self.parts > 1)

    @cached_property
    def left(self) -> Blocks:
        """A [m, k]: every block spread evenly over the tiles that want it, one tile for each block of columns."""
        transposed = TRANSPOSED[self.kind][0]
        down, over = self._axes
        pieces = self._even_pieces(down, "inner", over, fastest=1)
        return self._of_groups(pieces, transposed * self.m, (not transposed) * self.plan.k)

    @cached_property
    def right(self) -> Blocks:
        """B [k, n]: every block spread evenly over the tiles that want it, one tile for each block of rows."""
        transposed = TRANSPOSED[self.kind][1]
        over, across = self._axes
        pieces = self._even_pieces("inner", across, over, fastest=0)
        return self._of_groups(pieces, transposed * self.plan.k, (not transposed) * self.n)

    @cached_property
    def result(self) -> Blocks:
        """C [m, n]: every block summed in shares by the tiles that hold its partial products."""
        return self._of_groups(self._even_pieces(*self._axes, "inner", fastest=int(self.turned)), 0, self.n)

    def _even_pieces(self, down: str, across: str, over: str, fastest: int) -> Blocks:
        """Blocks along two axes in even pieces, one for each block of a step along the third."""
        most = {"row": self.plan.rows, "inner": self.plan.inner, "column": self.plan.columns}
        parts = len(self.edges[over]) - 1
        grid = grid_of(most[down], most[across], min(parts, self.plan.row_splits) if over == "row" else parts)
        one, other = self._blocks(down, across)

        def tile(at: np.ndarray, part: np.ndarray) -> np.ndarray:
            return self.tile(**{down: one[at], across: other[at], over: part})

        return _cut(self.edges[down], self.edges[across], one, other, grid, tile, fastest)

    @cached_property
    def partials(self) -> TileMapping:
        """Of the partial products [parts, m, n], where they are made."""
        steps = [self.vertices(step) for step in range(self.steps)]
        tiles = np.concatenate([where for where, _ in steps])
        columns = {name: np.concatenate([found[name] for _, found in steps]) for name in steps[0][1]}
        rows = "weight" if self.groups > 1 and TRANSPOSED[self.kind][0] else "row"
        pairs = (
            (columns["part"], columns["part"] + 1),
            (columns[f"{rows}_start"], columns[f"{rows}_stop"]),
            (columns["start"], columns["stop"]),
        )
        bounds = np.stack([np.stack(pair, axis=1) for pair in pairs], axis=1)
        return TileMapping.of_boxes(tiles, bounds, (self.parts, self.m, self.groups * self.n))


def _grid(*axes: np.ndarray) -> tuple[np.ndarray, ...]:
    """Every combination, the first axis running fastest."""
    found = np.meshgrid(*reversed(axes), indexing="ij")
    return tuple(column.ravel() for column in reversed(found))


def _cut(
    row_edges: np.ndarray,
    column_edges: np.ndarray,
    row: np.ndarray,
    column: np.ndarray,
    grid: tuple[int, int],
    tile: Callable[[np.ndarray, np.ndarray], np.ndarray],
    fastest: int,
) -> Blocks:
    """Blocks (row[k], column[k]) cut into `grid` pieces, piece p of block k on tile(k, p); empty ones left out."""
    parts = np.arange(grid[0] * grid[1])
    part, at = _grid(parts, np.arange(len(row)))
    down, across = part // grid[1], part % grid[1]
    top, bottom = row_edges[row[at]], row_edges[row[at] + 1]
    left, right = column_edges[column[at]], column_edges[column[at] + 1]
    height, width = bottom - top, right - left
    found = {
        "tiles": tile(at, part),
        "row_start": top + down * height // grid[0],
        "row_stop": top + (down + 1) * height // grid[0],
        "start": left + across * width // grid[1],
        "stop": left + (across + 1) * width // grid[1],
    }
    kept = (found["row_stop"] > found["row_start"]) & (found["stop"] > found["start"])
    return Blocks(**{name: values[kept] for name, values in found.items()}, fastest=fastest)


LINEAR_BYTES, ITEM_BYTES = 128, 4  # the library maps linearly in runs of at least 128 bytes a tile (poputil)


@dataclass(frozen=True, kw_only=True, eq=False)
class ArrayPlacement(Shown):
    """Products of a network on one chip, planned as they are asked for; tiles before `first_tile` are left out."""

    machine: MimdMachine
    first_tile: int
    known: dict[tuple[int, int, int, int, str], ProductPlace] = field(default_factory=dict)
    rows: dict[int, Blocks] = field(default_factory=dict)
    evenly: dict[tuple[int, int], Blocks] = field(default_factory=dict)

    def product(self, m: int, k: int, n: int, groups: int = 1, kind: str = "forward") -> ProductPlace:
        """C[m, n] = A[m, k] B[k, n] in float32, A held by the matrix units, of each of `groups` on its share of the
        tiles, where what takes fewer cycles is held; raises DoesNotFit or DescriptionError."""
        key = m, k, n, groups, kind if groups > 1 else "forward"
        if key not in self.known:
            tiles = max(self.machine.chip.tiles - self.first_tile, 1)
            each = max(tiles // groups, 1)
            sizes = ((m, k, n), (n, k, m)) if groups > 1 else ((m, k, n),)
            plans = [
                ProductPlace.planned(self._of_tiles(each), *size, "f32", first_tile=self.first_tile) for size in sizes
            ]
            best = min(plans, key=lambda place: place.plan.cycles)
            shared: dict[str, Any] = {"groups": groups, "kind": key[-1], "group_tiles": each}
            self.known[key] = replace(best, **shared, abreast=min(groups, tiles), turned=best is not plans[0])
        return self.known[key]

    def row(self, width: int, rows: int = 1) -> Blocks:
        """One number for each of `width` neurons, or a column of so many, in runs as the library maps linearly."""
        if rows > 1:
            return replace(self.row(width), row_stop=np.full_like(self.row(width).row_stop, rows))
        if width not in self.rows:
            usable = self.machine.chip.tiles - self.first_tile
            run = max(LINEAR_BYTES // ITEM_BYTES, -(-width // usable))
            start = np.arange(0, width, run)
            self.rows[width] = Blocks(
                tiles=self.first_tile + np.arange(len(start)),
                row_start=np.zeros_like(start),
                row_stop=np.ones_like(start),
                start=start,
                stop=np.minimum(start + run, width),
                fastest=1,
            )
        return self.rows[width]

    def spread(self, rows: int, columns: int) -> Blocks:
        """A matrix in even shares over all tiles."""
        shape = rows, columns
        if shape not in self.evenly:
            tiles, only = self.machine.chip.tiles - self.first_tile, np.zeros(1, np.int64)
            edges = np.array([0, rows]), np.array([0, columns])
            grid = grid_of(rows, columns, tiles)
            self.evenly[shape] = _cut(*edges, only, only, grid, lambda _, part: self.first_tile + part, 1)
        return self.evenly[shape]

    def _of_tiles(self, tiles: int) -> MimdMachine:
        """The machine with so many tiles on a chip."""
        return self.machine.model_copy(update={"chip": self.machine.chip.model_copy(update={"tiles": tiles})})

    def by_head(self, samples: int, heads: int, rows: int, columns: int, inner: int) -> Blocks:
        """So many rows of every sample and columns of every head, cut as a product is planned for the tiles that each
        may have of its own; its inner dimension is never split."""
        tiles = self.machine.chip.tiles - self.first_tile
        sample, head = _grid(np.arange(samples), np.arange(heads))
        shared = self._of_tiles(max(tiles // len(sample), 1))
        plan = plan_product(shared, rows, inner, columns, "f32", pieces=largest_piece)
        grid = -(-rows // plan.rows), -(-columns // plan.columns)
        parts = grid[0] * grid[1]
        edges = np.arange(samples + 1) * rows, np.arange(heads + 1) * columns
        return _cut(*edges, sample, head, grid, lambda at, part: self.first_tile + (at * parts + part) % tiles, 1)

    def forward(self, rows: int, inputs: int, neurons: int, groups: int = 1) -> ProductPlace:
        """Currents [rows, neurons] from spikes [rows, groups * inputs] and weights [inputs, neurons]; rows are samples,
        or positions of samples."""
        return self.product(rows, inputs, neurons // groups, groups, "forward")

    def input_gradient(self, rows: int, inputs: int, neurons: int, groups: int = 1) -> ProductPlace:
        """Gradient of spikes [rows, groups * inputs] from that of currents [rows, neurons] and the transposed
        weights."""
        return self.product(rows, neurons // groups, inputs, groups, "input gradient")

    def weight_gradient(self, rows: int, inputs: int, neurons: int, groups: int = 1) -> ProductPlace:
        """Gradient of weights [inputs, neurons] from the transposed spikes and the gradient of currents."""
        return self.product(inputs, rows, neurons // groups, groups, "weight gradient")
