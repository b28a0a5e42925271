"""How the published programs cut their grids: boxes of cells for chips, tiles and worker contexts, in restated rules.

The blur (github.com/thorbenlouw/lbm-graphcore, StructuredGridUtils.hpp): chips take strips along the axis that divides
more evenly; a chip's tiles form a grid about as wide for its height as the strip; a tile's contexts take slices along
the axis that divides more evenly. Longer parts come first.

The solvers on Mk2 chips, of two or three axes (simehaa/IPU and TszwangKo/FYP_IPU_DEVITO: workDivision, block_low and
createIpuPrograms of their utils.hpp and main.cpp): chips share the last axis, a chip's tiles form the grid of factors
with the least surface, contexts share the axes before the last. The grid carries a border that no vertex computes. What
a tile computes and what it holds follow from two different sums, so that they differ by a few cells near the edges of
blocks on several chips and wherever a stencil reaches further than one cell.

The copies that the compiler makes for the published stencil, as vertices: parts that a codelet reads as one piece.

A context walks its slice, what it writes and each edge of its halo as single pieces of memory (ONE_PTR in the published
codelets), while a tile keeps its block row by row. A slice as wide as its block is one piece already; of a narrower one
every row is copied together before the blur, and what was written is copied back after it ("pre copies" and "post
copies" of the published profile). An edge column beside another slice of the same tile is copied pixel by pixel. What
comes from other tiles is put in its place by the exchange.

The vendor's copies are not public. With the cited costs as they stand, 2 bundles for 8 bytes and 6 for every row of a
single pixel, post copies of half4 on one chip would be 1.35 times the published ones and pre copies twice; both changes
were made with these rows in view, for the reasons given in the sources.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from mimdsim.base.errors import MappingError
from mimdsim.kernels.parts import Parts, box_of
from mimdsim.program import Codelet, Field, Length, Size, Term, TileMapping, VertexTable, WorkerBundles
from mimdsim.program.mapping import Band

OWN = "low", "high"  # columns of the cells of a vertex
CONTEXTS = {2: (6,), 3: (2, 3)}  # parts of a solver's box on a tile along its first axes, one context each


class Boxes(Parts):
    """Boxes of cells or pixels on tiles."""

    def take(self, chosen: np.ndarray) -> Boxes:
        """Those at the places `chosen`, or where it is true."""
        return Boxes(bounds=self.bounds[chosen], tiles=self.tiles[chosen])

    def split(self, parts: tuple[int, ...], *, longest_first: bool = False) -> Boxes:
        """Every box in parts[k] parts along axis k, empty ones left out, as `cut` cuts."""
        numbers = np.array(list(itertools.product(*(range(each) for each in parts))), np.int64).reshape(-1, len(parts))
        bounds = np.repeat(self.bounds, len(numbers), axis=0)
        for axis, each in enumerate(parts):
            edges = self.bounds[:, axis, :1] + cut(self.lengths[:, axis, None], each, longest_first=longest_first)
            for side in (0, 1):
                bounds[:, axis, side] = edges[:, numbers[:, axis] + side].ravel()
        return Boxes(bounds=bounds, tiles=np.repeat(self.tiles, len(numbers)))._whole()

    def inside(self, pad: int, shape: tuple[int, ...]) -> Boxes:
        """What of each box is `pad` cells or more from every edge of the grid."""
        return Boxes(bounds=np.clip(self.bounds, pad, np.array(shape)[:, None] - pad), tiles=self.tiles)._whole()

    def _whole(self) -> Boxes:
        return self.take(np.all(self.lengths > 0, axis=1))


def cut(extent: Any, parts: int, *, longest_first: bool = False) -> np.ndarray:
    """Edges of `parts` parts that differ by at most one, int64[parts + 1] or, of extents int64[boxes, 1], of each."""
    number = np.arange(parts + 1)
    whole, longer = divmod(extent, parts)
    return np.asarray(number * whole + np.minimum(number, longer) if longest_first else number * extent // parts)


def tile_blocks(rows: int, columns: int, chips: int, tiles_per_chip: int) -> Boxes:
    """One block a tile that is used; neighbouring strips on neighbouring chips.

    Raises MappingError when there are more chips than rows or columns to cut.
    """
    along_rows = chips > 0 and rows % chips / rows < columns % chips / columns
    if not 1 <= chips <= (rows if along_rows else columns):
        raise MappingError(f"an image of {rows} x {columns} pixels cannot be cut into {chips} strips: use fewer chips")
    whole = Boxes(bounds=np.array([[[0, rows], [0, columns]]], np.int64), tiles=np.zeros(1, np.int64))
    strips = whole.split((chips, 1) if along_rows else (1, chips), longest_first=True)
    made = []
    for chip, (high, wide) in enumerate(strips.lengths.tolist()):
        across = min(tiles_per_chip, wide, math.ceil(math.sqrt(tiles_per_chip * wide / high)))
        down = min(tiles_per_chip // across, high)
        blocks = strips.take(np.array([chip])).split((down, across), longest_first=True)
        made.append(Boxes(bounds=blocks.bounds, tiles=chip * tiles_per_chip + np.arange(down * across)))
    return _joined(made)


def worker_blocks(blocks: Boxes, contexts: int) -> Boxes:
    """The slices of every block, at most `contexts` of them, in the order in which contexts take them."""
    rows, columns = (blocks.lengths % contexts / blocks.lengths).T
    kinds = ((rows <= columns, (contexts, 1)), (rows > columns, (1, contexts)))
    slices = _joined([blocks.take(chosen).split(parts, longest_first=True) for chosen, parts in kinds])
    return slices.take(np.argsort(slices.tiles, kind="stable"))


def _joined(boxes: list[Boxes]) -> Boxes:
    bounds, tiles = (np.concatenate([getattr(each, name) for each in boxes]) for name in ("bounds", "tiles"))
    return Boxes(bounds=bounds, tiles=tiles)


@dataclass(frozen=True, kw_only=True, eq=False)
class CutGrid:
    """A grid cut by planes: edges[k] int64[parts of axis k + 1]; the last axis holds the parts of all chips in turn."""

    edges: tuple[np.ndarray, ...]
    chips: int
    tiles_per_chip: int

    def filling(self, shape: tuple[int, ...]) -> CutGrid:
        """The same with the outermost blocks reaching the edges of the grid."""
        pairs = zip(self.edges, shape, strict=True)
        edges = tuple(np.concatenate([[0], inner[1:-1], [extent]]) for inner, extent in pairs)
        return CutGrid(edges=edges, chips=self.chips, tiles_per_chip=self.tiles_per_chip)

    def boxes(self) -> Boxes:
        """The box of every tile, in the order of tiles on a chip."""
        bounds, tiles = [], []
        for place in itertools.product(*(range(len(edges) - 1) for edges in self.edges)):
            bounds.append([edges[at : at + 2] for edges, at in zip(self.edges, place, strict=True)])
            tiles.append(self._tile(place))
        order = np.argsort(tiles, kind="stable")
        return Boxes(bounds=np.array(bounds, np.int64)[order], tiles=np.array(tiles, np.int64)[order])

    def mapping(self) -> TileMapping:
        """Every cell on the tile of its block: bands along the first axes, intervals along the last."""
        return self._mapping(())

    def _mapping(self, place: tuple[int, ...]) -> TileMapping:
        axis, edges = len(place), self.edges[len(place)]
        if axis == len(self.edges) - 1:
            tiles = np.array([self._tile((*place, at)) for at in range(len(edges) - 1)])
            return TileMapping.split(axis, tiles, edges[:-1], edges[1:])
        return TileMapping.banded(
            tuple(
                Band(axis=axis, start=int(start), stop=int(stop), mapping=self._mapping((*place, at)))
                for at, (start, stop) in enumerate(itertools.pairwise(edges))
            )
        )

    def _tile(self, place: tuple[int, ...]) -> int:
        each = (len(self.edges[-1]) - 1) // self.chips
        chip, tile = place[-1] // each, 0
        for at, edges in zip(place[:-1], self.edges[:-1], strict=True):
            tile = tile * (len(edges) - 1) + at
        return chip * self.tiles_per_chip + tile * each + place[-1] % each


def computed(shape: tuple[int, ...], pad: int, splits: tuple[int, ...], chips: int, tiles_per_chip: int) -> CutGrid:
    """What every tile computes: all cells but a border of `pad`."""

    def part(start: int, stop: int, parts: int) -> np.ndarray:
        return start + cut(stop - start, parts)

    return _cut_grid(shape, pad, pad + cut(shape[-1] - 2 * pad, chips), splits, tiles_per_chip, part)


def held(shape: tuple[int, ...], splits: tuple[int, ...], chips: int, tiles_per_chip: int) -> CutGrid:
    """What every tile holds: all cells, the outermost one with their block, whatever the reach of the stencil."""

    def part(start: int, stop: int, parts: int) -> np.ndarray:
        edges = start + 1 + cut(stop - start - 2, parts)
        edges[0], edges[-1] = start, stop
        return edges

    return _cut_grid(shape, 0, part(0, shape[-1], chips), splits, tiles_per_chip, part)


def _cut_grid(
    shape: tuple[int, ...],
    border: int,
    strips: np.ndarray,
    splits: tuple[int, ...],
    tiles_per_chip: int,
    part: Callable[[int, int, int], np.ndarray],
) -> CutGrid:
    """Axes but for a border in so many parts; strips: edges of the chips' shares of the last axis."""
    edges = [part(border, extent - border, parts) for extent, parts in zip(shape[:-1], splits[:-1], strict=True)]
    last = [part(start, stop, splits[-1])[:-1] for start, stop in itertools.pairwise(strips.tolist())]
    edges.append(np.concatenate([*last, strips[-1:]]))
    chips = len(strips) - 1
    if any((np.diff(each) < 1).any() for each in edges):
        into, size = ("x".join(map(str, each)) for each in (splits, shape))
        raise MappingError(
            f"a grid of {size} cells cannot be cut into {into} blocks on each of {chips} chips: some would be "
            "empty; give a larger grid or fewer chips"
        )
    return CutGrid(edges=tuple(edges), chips=chips, tiles_per_chip=tiles_per_chip)


def least_surface(shape: tuple[int, ...], tiles: int, chips: int) -> tuple[int, ...]:
    """Parts of every axis for the `tiles` of a chip: the factors whose blocks have the least surface.

    In two axes sides are whole cells; in three they are not, all orders of the factors are tried, but the factors are
    used in the order in which they were found, so that the published program cuts into 23x8x8 where 8x8x23 was best.
    Arithmetic is in float32 as published, which decides between equal surfaces: the last one is taken.
    """
    inner = [*(extent - 2 for extent in shape[:-1]), (shape[-1] - 2) // chips]
    best: tuple[int, ...] = ()
    least = np.float32(np.inf)
    for factors in _factors(tiles, len(shape)):
        for surface in _surfaces(inner, factors):
            if surface <= least:
                best, least = factors, surface
    return best


def squarest(shape: tuple[int, ...], tiles: int) -> tuple[int, ...]:
    """Two factors of `tiles`, the larger for the height unless the grid is wider, whose blocks are nearest to square;
    the first of equal ones."""
    high, wide = shape[0] - 2, shape[1] - 2
    best, least = (1, 1), np.inf
    for small in (number for number in range(1, tiles + 1) if number * number <= tiles and tiles % number == 0):
        rows, columns = (tiles // small, small) if high >= wide else (small, tiles // small)
        sides = high // rows, wide // columns
        if min(sides) and max(sides) / min(sides) < least:
            best, least = (rows, columns), max(sides) / min(sides)
    return best


def _factors(number: int, count: int) -> Iterator[tuple[int, ...]]:
    if count == 1:
        yield (number,)
        return
    for factor in (each for each in range(1, number + 1) if number % each == 0):
        for others in _factors(number // factor, count - 1):
            yield (factor, *others)


def _surfaces(inner: list[int], factors: tuple[int, ...]) -> list[np.float32]:
    if len(inner) == 2:
        sides = [extent // parts for extent, parts in zip(inner, factors, strict=True)]
        return [np.float32(max(2 * sum(sides) - 4, 0))]
    found = []
    for parts in itertools.permutations(factors):
        high, wide, deep = (np.float32(extent) / np.float32(part) for extent, part in zip(inner, parts, strict=True))
        found.append(np.float32(2 * (high * wide + deep * wide + deep * high)))
    return found


WORD_BYTES = 8  # of one load or store
CALL_BUNDLES = 49  # 294 tile cycles, six contexts
ROW_BUNDLES = 6
SOURCE = (
    "assumed after the strided copy of osmarks/ipu-stack (kernel/copy.rs, C600): 294 cycles a call of all contexts, "
    "6 bundles a row and 2 for every 8 bytes; {}"
)
PIXELS = (*box_of(2, OWN), ":")


class Placed:
    """Slices and where their operands are within the blocks of their tiles, bool[slices].

    in_rows: narrower than the block, so copied row by row; beside_west, beside_east: another slice of the same tile is
    there, so that edge is copied too.
    """

    def __init__(self, slices: Boxes, blocks: Boxes):
        of_block = blocks.take(np.searchsorted(blocks.tiles, slices.tiles)).bounds[:, 1]
        several = slices.lengths[:, 0] > 1  # of a single row, slice and edges are one piece each
        beside = (slices.bounds[:, 1] != of_block) & several[:, None]
        self.boxes, self.in_rows = slices, beside.any(axis=1)
        self.beside_west, self.beside_east = beside.T


def row_copies(slices: Placed, item_bytes: int, source: str, target: str) -> tuple[VertexTable, ...]:
    """Rows of narrow slices, from `source` to the same place in `target`; no table where no slice is narrow."""
    return copies(copy_codelet(item_bytes, PIXELS, 1), slices.boxes.take(slices.in_rows), source, target)


def column_copies(slices: Placed, item_bytes: int, source: str, target: str) -> tuple[VertexTable, ...]:
    """Edge columns that another slice of the same tile reads, from `source` to `target`."""
    codelet, boxes = copy_codelet(item_bytes, PIXELS), slices.boxes
    first, last = boxes.bounds.copy(), boxes.bounds.copy()
    first[:, 1, 1], last[:, 1, 0] = first[:, 1, 0] + 1, last[:, 1, 1] - 1
    both = slices.beside_west & (boxes.lengths[:, 1] == 1)  # then the last column is the first
    return (
        *copies(codelet, Boxes(bounds=first, tiles=boxes.tiles).take(slices.beside_west), source, target),
        *copies(codelet, Boxes(bounds=last, tiles=boxes.tiles).take(slices.beside_east & ~both), source, target),
    )


def copies(codelet: Codelet, boxes: Boxes, source: str, target: str) -> tuple[VertexTable, ...]:
    """A table of copies of boxes, from `source` to the same places in `target`; none of no boxes."""
    operands = {"source": source, "target": target}
    table = VertexTable(codelet=codelet, tiles=boxes.tiles, operands=operands, columns=boxes.columns(OWN))
    return (table,) if len(boxes.tiles) else ()


def copy_codelet(item_bytes: int, box: tuple[str, ...], row_axes: int = 0) -> Codelet:
    """A copy by one context of rows, which are counted along the first `row_axes` axes, from one box to the same or
    another one; without such axes, of single elements along a column."""
    axes = range(max(row_axes, 1))
    rows = {"rows" if axis == 0 else f"rows along axis {axis}": Length("target", axis) for axis in axes}
    each_row, each_word = (ROW_BUNDLES, 1) if row_axes else (0, 2)
    inner = "here nothing a row, as loads and stores take a stride themselves (our count)"
    if row_axes:
        inner = "here 1, load and store in one bundle (ldst64pace), as PopLibs' getMemcpyBytesPerCycle has it"
    return Codelet(
        name=f"strided copy, {'rows' if row_axes else 'column'}",
        fields=(
            Field(name="target", access="write", box=box),
            Field(name="source", access="read", box=tuple(entry.replace("target ", "source ") for entry in box)),
        ),
        columns=(),
        compute=copy_box,
        form="vertex",
        cost=WorkerBundles(
            fixed=CALL_BUNDLES,
            terms=(Term(bundles=each_row, extents=tuple(rows)), Term(bundles=each_word, extents=("words",))),
            kind="assumed",
            source=SOURCE.format(inner),
        ),
        flops=(),
        extents={**rows, "words": Size("target", per=WORD_BYTES // item_bytes)},
    )


def copy_box(target: np.ndarray, source: np.ndarray) -> None:
    """One vertex: both of the same shape, or the same but for axes of extent 1."""
    target[...] = source
