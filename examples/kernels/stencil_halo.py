"""A 3 x 3 Gaussian blur of an image of four channels, one block per tile; a halo of one pixel comes by exchange.

Every worker context blurs a slice of its tile's block. Blocks and slices are cut as in a published program
(thorbenlouw/lbm-graphcore); for its image of 2200 x 1122 pixels on a Mk1 chip, compute, exchange and sync are within
15 % of its profile (references/stencil_phases.csv, tests/unit/test_kernels_examples.py). The compiler's copies
before and after the blur are left out here; mimdsim/validation/stencil/blur.py includes them.

    mimdsim check examples/kernels/stencil_halo.py bow --strict
"""

import numpy as np

from mimdsim.kernels import Codelet, Field, Kernel, Length, MimdMachine, Program, Term, TileMapping, WorkerBundles
from mimdsim.validation.stencil.boxes import Blocks, tile_blocks, worker_blocks

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
    k.vertices(
        BLUR,
        tiles=slices.tile,
        operands={"new": new, "old": old},
        columns={
            "top": slices.top,
            "bottom": slices.bottom,
            "left": slices.left,
            "right": slices.right,
            "below": slices.bottom + 2,
            "after": slices.right + 2,
        },
    )
    return k.program()


def framed(blocks: Blocks, height: int, width: int) -> TileMapping:
    top, left = (np.where(edge == 0, 0, edge + 1) for edge in (blocks.top, blocks.left))
    bottom = np.where(blocks.bottom == height, height + 2, blocks.bottom + 1)
    right = np.where(blocks.right == width, width + 2, blocks.right + 1)
    return in_boxes(blocks.tile, (top, bottom, left, right), (height + 2, width + 2, CHANNELS))


def unframed(blocks: Blocks, height: int, width: int) -> TileMapping:
    edges = (blocks.top, blocks.bottom, blocks.left, blocks.right)
    return in_boxes(blocks.tile, edges, (height, width, CHANNELS))


def in_boxes(tiles: np.ndarray, edges: tuple[np.ndarray, ...], shape: tuple[int, ...]) -> TileMapping:
    """A box of pixels, all channels, on each of `tiles`; edges: top, bottom, left, right."""
    channels = (np.zeros_like(tiles), np.full_like(tiles, shape[2]))
    bounds = np.stack([*edges, *channels], axis=1).reshape(len(tiles), 3, 2)
    return TileMapping.of_boxes(tiles, bounds, shape)


def reference(image: np.ndarray) -> np.ndarray:
    height, width = image.shape[0] - 2, image.shape[1] - 2
    wide = image.astype(np.float64)
    return sum(WEIGHTS[i, j] * wide[i : i + height, j : j + width] for i in range(3) for j in range(3))
