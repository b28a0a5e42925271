"""The published stencil as a program written by hand: a 3 x 3 Gaussian blur of an image of four channels.

Two buffers lie on the tiles in blocks; a step reads one and writes the other. Every worker context blurs a slice of its
tile's block and reads that slice with a halo of one pixel as a single row in memory, so that halos from other tiles and
the slice itself are copied together before it starts. What the published program does
(github.com/thorbenlouw/lbm-graphcore, GaussianBlurLowLevel.cpp): it concatenates nine slices of the image into the
vertex's input and leaves exchange and copies to the compiler. Differences: pixels outside the image are a frame of
zeros on the outermost tiles here, constants there.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mimdsim.base.errors import MappingError, suggest
from mimdsim.check.stencil_grid import Blocks, tile_blocks, worker_blocks
from mimdsim.compiler import plan_exchanges
from mimdsim.machine import MimdMachine
from mimdsim.program import (
    Codelet,
    Field,
    Program,
    Superstep,
    Term,
    TileMapping,
    Variable,
    VertexTable,
    WorkerBundles,
)
from mimdsim.program.mapping import FLAT

CHANNELS = 4
PUBLISHED_ROWS, PUBLISHED_COLUMNS = 1122, 2200
LOADS, MULTIPLIES, ADDS, STORES = 9, 3, 8, 1  # of one vector: 1/16 (corners) + 4/16 (middle) + 2/16 (sides)
POINTERS, BRANCHES = 4, 1  # of one pixel: three input rows and an output row move on, and the loop
ROW_BUNDLES = 6  # four pointers to the next row, count, branch
PROLOGUE_BUNDLES = 30


@dataclass(frozen=True, kw_only=True)
class Variant:
    """A codelet of the published program: its element type and how many vectors make a pixel of four channels."""

    dtype: str
    vectors_per_pixel: int


VARIANTS = {
    "half4": Variant(dtype="float16", vectors_per_pixel=1),
    "float2": Variant(dtype="float32", vectors_per_pixel=2),
    "float": Variant(dtype="float32", vectors_per_pixel=4),
}


def blur(new: np.ndarray, old: np.ndarray) -> None:
    """One vertex: new [h, w, 4], old [h + 2, w + 2, 4] with the halo; in the element type, like the codelet."""
    sixteenth, eighth, quarter = (new.dtype.type(weight / 16) for weight in (1, 2, 4))
    north, here, south = old[:-2], old[1:-1], old[2:]
    corners = north[:, :-2] + north[:, 2:] + south[:, :-2] + south[:, 2:]
    sides = here[:, 2:] + here[:, :-2] + south[:, 1:-1] + north[:, 1:-1]
    new[...] = sixteenth * corners + quarter * here[:, 1:-1] + eighth * sides


def blur_codelet(variant: str) -> Codelet:
    """The blur as compiled C++, every instruction a bundle of its own."""
    vectors = VARIANTS[variant].vectors_per_pixel
    arithmetic = MULTIPLIES + ADDS
    pixel = vectors * (LOADS + arithmetic + STORES) + POINTERS + BRANCHES
    return Codelet(
        name=f"GaussianBlur {variant}",
        fields=(
            Field(name="new", access="write", box=("top:bottom", "left:right", ":")),
            Field(name="old", access="read", box=("above:below", "before:after", ":"), one_row=True),
        ),
        columns=(),
        compute=blur,
        form="vertex",
        cost=WorkerBundles(
            fixed=PROLOGUE_BUNDLES,
            terms=(
                Term(bundles=pixel, extents=("pixels",), pairable=vectors * arithmetic),
                Term(bundles=ROW_BUNDLES, extents=("rows",)),
            ),
            kind="derived",
            source="instructions of the C++ expression (thorbenlouw/lbm-graphcore, GaussianBlurCodelets), one bundle "
            "each: 9 loads, 3 multiplies, 8 adds, 1 store a vector; 4 pointers and a branch a pixel; prologue assumed",
        ),
        flops=(Term(bundles=CHANNELS * arithmetic, extents=("pixels",)),),
    )


def make_program(
    machine: MimdMachine,
    variant: str,
    rows: int = PUBLISHED_ROWS,
    columns: int = PUBLISHED_COLUMNS,
    chips: int = 1,
    steps: int = 2,
) -> Program:
    """`steps` blurs of an image of rows x columns pixels over the tiles of `chips` chips, exchanges planned.

    Input 'image' and output 'blurred' are [rows + 2, columns + 2, 4] with a frame of zeros. Raises MappingError for an
    unknown variant, an image without pixels or one that cannot be cut for so many chips.
    """
    if variant not in VARIANTS:
        raise MappingError(f"no stencil variant '{variant}'{suggest(variant, sorted(VARIANTS))}")
    if rows < 1 or columns < 1 or steps < 1:
        raise MappingError(f"{steps} blurs of {rows} x {columns} pixels: each must be at least 1")
    blocks = tile_blocks(rows, columns, chips, machine.chip.tiles)
    slices = worker_blocks(blocks, machine.tile.worker_contexts)
    shape = (rows + 2, columns + 2, CHANNELS)
    mapping = _in_blocks(blocks, rows, columns)
    buffers = tuple(
        Variable(name=name, shape=shape, dtype=VARIANTS[variant].dtype, mapping=mapping, category="neuron states")
        for name in ("image", "blurred")
    )
    codelet = blur_codelet(variant)
    body = []
    for step in range(steps):
        old, new = buffers[step % 2], buffers[1 - step % 2]
        table = _table(codelet, slices, old.name, new.name)
        name = f"blur {old.name} to {new.name}"
        body.append(Superstep(name=name, op="stencil", phase="forward", stage="blur", tables=(table,)))
    program = Program(
        tiles=chips * machine.chip.tiles,
        chips=chips,
        variables={buffer.name: buffer for buffer in buffers},
        body=tuple(body),
        layers=(),
        inputs={"image": "image"},
        outputs={"blurred": buffers[steps % 2].name},
    )
    return plan_exchanges(program)


def _table(codelet: Codelet, slices: Blocks, old: str, new: str) -> VertexTable:
    """One vertex a slice; pixel (0, 0) is element (1, 1) inside the frame, so a halo begins at the slice's own edge."""
    return VertexTable(
        codelet=codelet,
        layer="",
        tiles=slices.tile,
        operands={"old": old, "new": new},
        columns={
            "top": slices.top + 1,
            "bottom": slices.bottom + 1,
            "left": slices.left + 1,
            "right": slices.right + 1,
            "above": slices.top,
            "below": slices.bottom + 2,
            "before": slices.left,
            "after": slices.right + 2,
        },
        extents={"pixels": slices.rows * slices.columns, "rows": slices.rows},
    )


def _in_blocks(blocks: Blocks, rows: int, columns: int) -> TileMapping:
    """Blocks of the framed image on their tiles, row of pixels by row of pixels; the frame goes to the outermost."""
    top = np.where(blocks.top == 0, 0, blocks.top + 1)
    bottom = np.where(blocks.bottom == rows, rows + 2, blocks.bottom + 1)
    left = np.where(blocks.left == 0, 0, blocks.left + 1)
    right = np.where(blocks.right == columns, columns + 2, blocks.right + 1)
    height = bottom - top
    block = np.repeat(np.arange(len(height)), height)
    row = np.arange(len(block)) - np.repeat(np.cumsum(height) - height, height) + top[block]
    starts = (row * (columns + 2) + left[block]) * CHANNELS
    stops = (row * (columns + 2) + right[block]) * CHANNELS
    order = np.argsort(starts)
    return TileMapping.split(FLAT, blocks.tile[block][order], starts[order], stops[order])
