"""A 3 x 3 Gaussian blur of an image of four channels, one block per tile; a halo of one pixel comes by exchange.

Every worker context blurs a slice of its tile's block. Blocks and slices are cut as in a published program
(thorbenlouw/lbm-graphcore); for its image of 2200 x 1122 pixels on a Mk1 chip, compute, exchange and sync are within
15 % of its profile (references/stencil_phases.csv, tests/unit/test_kernels_examples.py). The compiler's copies
before and after the blur are left out here; mimdsim/validation/stencil/blur.py includes them.

    mimdsim check examples/kernels/stencil_halo.py bow --strict
"""

import numpy as np

from mimdsim.kernels import Codelet, Field, Kernel, Length, MimdMachine, Program, Term, TileMapping, WorkerBundles
from mimdsim.validation.stencil.boxes import Boxes, tile_blocks, worker_blocks

HEIGHT, WIDTH, CHANNELS = 48, 64, 4
DTYPE = "float16"
TOLERANCE = 2e-3  # of halves, of the largest value
WEIGHTS = np.array([[1, 2, 1], [2, 4, 2], [1, 2, 1]]) / 16


def blur(new: np.ndarray, old: np.ndarray) -> None:
    """One vertex: new [h, w, 4], old [h + 2, w + 2, 4] with the halo; in the element type."""
    sixteenth, eighth, quarter = (new.dtype.type(weight / 16) for weight in (1, 2, 4))
    above, here, below = old[:-2], old[1:-1], old[2:]
    new[:] = (
        sixteenth * (above[:, :-2] + above[:, 2:] + below[:, :-2] + below[:, 2:])
        + quarter * here[:, 1:-1]
        + eighth * (here[:, 2:] + here[:, :-2] + below[:, 1:-1] + above[:, 1:-1])
    )


BLUR = Codelet(
    name="Blur",
    fields=(
        Field(name="new", access="write", box=("top:bottom", "left:right", ":")),
        Field(name="old", access="read", box=("top:below", "left:after", ":")),  # reaches into other tiles
    ),
    compute=blur,
    form="vertex",
    cost=WorkerBundles(
        fixed=62,
        terms=(
            Term(bundles=26, extents=("rows", "columns"), pairable=11),
            Term(bundles=6, extents=("rows",)),
        ),
        kind="derived",
        source="instructions of the published C++ codelet (thorbenlouw/lbm-graphcore, GaussianBlurCodelets half4), one "
        "bundle each: 9 loads, 3 multiplies, 8 adds and a store of four channels, 4 pointers and a branch a pixel",
    ),
    flops=(Term(bundles=CHANNELS * 11, extents=("rows", "columns")),),
    extents={"rows": Length("new", 0), "columns": Length("new", 1)},
)


def build(machine: MimdMachine, height: int = HEIGHT, width: int = WIDTH, dtype: str = DTYPE) -> Program:
    k = Kernel("stencil with halo", machine)
    blocks = tile_blocks(height, width, k.chips, machine.chip.tiles)
    slices = worker_blocks(blocks, machine.tile.worker_contexts)
    # pixel (0, 0) is element (1, 1) inside a frame of zeros, which goes to the outermost tiles
    old = k.input(k.variable("image", (height + 2, width + 2, CHANNELS), dtype, mapping=framed(blocks, height, width)))
    new = k.output(k.variable("blurred", (height, width, CHANNELS), dtype, mapping=unframed(blocks, height, width)))
    (top, bottom), (left, right) = slices.bounds.transpose(1, 2, 0)
    k.vertices(
        BLUR,
        tiles=slices.tiles,
        operands={"new": new, "old": old},
        columns={
            "top": top,
            "bottom": bottom,
            "left": left,
            "right": right,
            "below": bottom + 2,
            "after": right + 2,
        },
    )
    return k.program()


def framed(blocks: Boxes, height: int, width: int) -> TileMapping:
    bounds = blocks.bounds + 1 - (blocks.bounds == 0) + (blocks.bounds == [[height], [width]])
    return in_boxes(blocks.tiles, bounds, (height + 2, width + 2, CHANNELS))


def unframed(blocks: Boxes, height: int, width: int) -> TileMapping:
    return in_boxes(blocks.tiles, blocks.bounds, (height, width, CHANNELS))


def in_boxes(tiles: np.ndarray, bounds: np.ndarray, shape: tuple[int, ...]) -> TileMapping:
    """A box of pixels, all channels, on each of `tiles`; bounds: of rows and columns."""
    channels = np.broadcast_to([[0, shape[2]]], (len(tiles), 1, 2))
    return TileMapping.of_boxes(tiles, np.concatenate([bounds, channels], axis=1), shape)


def reference(image: np.ndarray) -> np.ndarray:
    height, width = image.shape[0] - 2, image.shape[1] - 2
    wide = image.astype(np.float64)
    return sum(WEIGHTS[i, j] * wide[i : i + height, j : j + width] for i in range(3) for j in range(3))
