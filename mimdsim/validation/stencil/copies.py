"""The copies that the compiler makes for the published stencil, as vertices: parts that a codelet reads as one piece.

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

from dataclasses import dataclass

import numpy as np

from mimdsim.program import Codelet, Field, Length, Size, Term, VertexTable, WorkerBundles
from mimdsim.validation.stencil.boxes import Boxes, box_of

WORD_BYTES = 8  # of one load or store
CALL_BUNDLES = 49  # 294 tile cycles, six contexts
ROW_BUNDLES = 6
SOURCE = (
    "assumed after the strided copy of osmarks/ipu-stack (kernel/copy.rs, C600): 294 cycles a call of all contexts, "
    "6 bundles a row and 2 for every 8 bytes; {}"
)
PIXELS = (*box_of(2), ":")


@dataclass(frozen=True, kw_only=True, eq=False)
class Placed:
    """Slices and where their operands are, bool[slices].

    in_rows: narrower than the block, so copied row by row; beside_west, beside_east: another slice of the same tile is
    there, so that edge is copied too.
    """

    boxes: Boxes
    in_rows: np.ndarray
    beside_west: np.ndarray
    beside_east: np.ndarray


def placed(slices: Boxes, blocks: Boxes) -> Placed:
    """The places of slices within the blocks of their tiles."""
    of_block = blocks.take(np.searchsorted(blocks.tiles, slices.tiles)).bounds[:, 1]
    several = slices.lengths[:, 0] > 1  # of a single row, slice and edges are one piece each
    beside = (slices.bounds[:, 1] != of_block) & several[:, None]
    return Placed(boxes=slices, in_rows=beside.any(axis=1), beside_west=beside[:, 0], beside_east=beside[:, 1])


def row_codelet(item_bytes: int, box: tuple[str, ...], row_axes: int) -> Codelet:
    """A copy of rows, which are counted along the first `row_axes` axes, from one box to the same or another one."""
    return _copy("rows", item_bytes, each_row=ROW_BUNDLES, each_word=1, box=box, row_axes=row_axes)


def column_codelet(item_bytes: int, box: tuple[str, ...]) -> Codelet:
    """A copy of single elements along a column."""
    return _copy("column", item_bytes, each_row=0, each_word=2, box=box)


def row_copies(slices: Placed, item_bytes: int, source: str, target: str) -> tuple[VertexTable, ...]:
    """Rows of narrow slices, from `source` to the same place in `target`; no table where no slice is narrow."""
    return _copies(
        (row_codelet(item_bytes, PIXELS, 1), slices.boxes.take(slices.in_rows)), source=source, target=target
    )


def column_copies(slices: Placed, item_bytes: int, source: str, target: str) -> tuple[VertexTable, ...]:
    """Edge columns that another slice of the same tile reads, from `source` to `target`."""
    codelet, boxes = column_codelet(item_bytes, PIXELS), slices.boxes
    first, last = boxes.bounds.copy(), boxes.bounds.copy()
    first[:, 1, 1], last[:, 1, 0] = first[:, 1, 0] + 1, last[:, 1, 1] - 1
    both = slices.beside_west & (boxes.lengths[:, 1] == 1)  # then the last column is the first
    return _copies(
        (codelet, Boxes(bounds=first, tiles=boxes.tiles).take(slices.beside_west)),
        (codelet, Boxes(bounds=last, tiles=boxes.tiles).take(slices.beside_east & ~both)),
        source=source,
        target=target,
    )


def _copies(*made: tuple[Codelet, Boxes], source: str, target: str) -> tuple[VertexTable, ...]:
    return tuple(copy_table(codelet, boxes, source, target) for codelet, boxes in made if len(boxes.tiles))


def copy_table(codelet: Codelet, boxes: Boxes, source: str, target: str) -> VertexTable:
    """Copies of boxes, from `source` to the same places in `target`."""
    operands = {"source": source, "target": target}
    return VertexTable(codelet=codelet, tiles=boxes.tiles, operands=operands, columns=boxes.columns())


def _copy(
    what: str, item_bytes: int, *, each_row: int, each_word: int, box: tuple[str, ...], row_axes: int = 1
) -> Codelet:
    """A strided copy by one context; `each_word` 1 where load and store go into one bundle, else 2."""
    rows = {"rows" if axis == 0 else f"rows along axis {axis}": Length("target", axis) for axis in range(row_axes)}
    inner = (
        "here 1, load and store in one bundle (ldst64pace), as PopLibs' getMemcpyBytesPerCycle has it"
        if each_word == 1
        else "here nothing a row, as loads and stores take a stride themselves (our count)"
    )
    return Codelet(
        name=f"strided copy, {what}",
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
