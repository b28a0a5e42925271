"""The published stencil: a 3 x 3 Gaussian blur of an image of four channels on Mk1 chips, and its predicted phases.

Two buffers lie on the tiles in blocks; a step reads one and writes the other. Every worker context blurs a slice of its
tile's block: it walks its slice and what it writes as single pieces of memory, and takes the halo of one pixel as four
edges and four corners. What the published program does (github.com/thorbenlouw/lbm-graphcore, LowLevelStencil.cpp at
the commit of the profile, 97cd841): ten edges of a vertex, each a slice of the image; exchange and copies are left to
the compiler. What it copies is written out here (`boxes.py`). Differences: pixels outside the image are a frame of
zeros on the outermost tiles here, constants there.

Phases of one step, one figure a row of `references/stencil_phases.csv`, in cycles: compute; pre copies and post copies,
what is copied on a tile before and after the blur, and both together as copies; exchange on the chip; global exchange
over links; sync; sum. As in a profile that lists program steps, compute and each of the copies are those of the tile
that takes longest. No factor is fitted to a row, but these are not blind predictions: `exchange.fixed_cycles` and
`links.fixed_seconds` are what an exchange of this profile takes beyond its bytes, from the difference between 16 and 32
bit elements, `sync.internal_cycles` and `sync.exchange_share` are its syncs on one chip, a tenth of the exchange, and
`sync.external_cycles` and what copies cost were chosen with the rows in view (references/disagreements.toml).

A second table has the time of an iteration of two blurs, of an image that grows with the chips; `links.piece_seconds`
was taken from what its chips add.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache

import numpy as np

from mimdsim.base.errors import MappingError, MimdsimError, suggest
from mimdsim.base.units import UNCERTAINTY
from mimdsim.compiler import plan_exchanges
from mimdsim.machine import MimdMachine, changed_machine, tiled_machine
from mimdsim.pipeline import time_by_hand
from mimdsim.program import (
    Codelet,
    Field,
    Length,
    Program,
    ProgramBuilder,
    Size,
    Superstep,
    Term,
    TileMapping,
    Variable,
    VertexTable,
    WorkerBundles,
)
from mimdsim.program.records import NO_SPIKES
from mimdsim.timing.tile_cycles import TileIssue
from mimdsim.timing.worker_cycles import program_loads
from mimdsim.validation.reference_table import Asked, Cells, Fields, ReferenceTable
from mimdsim.validation.stencil.boxes import (
    OWN,
    PIXELS,
    Boxes,
    Placed,
    column_copies,
    row_copies,
    tile_blocks,
    worker_blocks,
)

CHANNELS = 4
PUBLISHED_ROWS, PUBLISHED_COLUMNS = 1122, 2200
LOADS, MULTIPLIES, ADDS, STORES = 9, 3, 8, 1  # of one vector: 1/16 (corners) + 4/16 (middle) + 2/16 (sides)
POINTERS, BRANCHES = 4, 1  # of one pixel: three input rows and an output row move on, and the loop
ROW_BUNDLES = 6  # four pointers to the next row, count, branch
STATE_LOADS, CHECKS = 12, 4  # ten pointers, width and height; is the slice large enough
CORNERS, CORNER_BUNDLES, LOOP_NESTS, LOOP_BUNDLES = 4, 4, 5, 6  # of nine regions; addresses of each before it begins
PROLOGUE_BUNDLES = STATE_LOADS + CHECKS + CORNERS * CORNER_BUNDLES + LOOP_NESTS * LOOP_BUNDLES
IN_ROWS, IN_COLUMNS, OUT_ROWS = "image in rows", "edges in columns", "blurred in rows"  # what is copied lies here


# codelets of the published program: element type, and how many vectors make a pixel of four channels
VARIANTS = {"half4": ("float16", 1), "float2": ("float32", 2), "float": ("float32", 4)}
_BEFORE, _OWN, _AFTER = "before{0}:low{0}", "low{0}:high{0}", "high{0}:after{0}"
_HALO = {
    "north": (_BEFORE, _OWN),
    "south": (_AFTER, _OWN),
    "west": (_OWN, _BEFORE),
    "east": (_OWN, _AFTER),
    "northwest": (_BEFORE, _BEFORE),
    "northeast": (_BEFORE, _AFTER),
    "southwest": (_AFTER, _BEFORE),
    "southeast": (_AFTER, _AFTER),
}
# fields that read the halo, by what they read: rows and columns of a box
HALO = {name: tuple(ends.format(axis) for axis, ends in enumerate(box)) for name, box in _HALO.items()}


def blur(
    new: np.ndarray,
    old: np.ndarray,
    north: np.ndarray,
    south: np.ndarray,
    west: np.ndarray,
    east: np.ndarray,
    northwest: np.ndarray,
    northeast: np.ndarray,
    southwest: np.ndarray,
    southeast: np.ndarray,
) -> None:
    """One vertex: new and old [h, w, 4], edges [1, w, 4] and [h, 1, 4], corners [1, 1, 4]; in the element type."""
    whole = np.concatenate(
        [
            np.concatenate(row, axis=1)
            for row in ((northwest, north, northeast), (west, old, east), (southwest, south, southeast))
        ]
    )
    sixteenth, eighth, quarter = (new.dtype.type(weight / 16) for weight in (1, 2, 4))
    above, here, below = whole[:-2], whole[1:-1], whole[2:]
    corners = above[:, :-2] + above[:, 2:] + below[:, :-2] + below[:, 2:]
    sides = here[:, 2:] + here[:, :-2] + below[:, 1:-1] + above[:, 1:-1]
    new[...] = sixteenth * corners + quarter * here[:, 1:-1] + eighth * sides


def blur_codelet(variant: str) -> Codelet:
    """The blur as compiled C++, every instruction a bundle of its own."""
    _, vectors = VARIANTS[variant]
    arithmetic = MULTIPLIES + ADDS
    pixel = vectors * (LOADS + arithmetic + STORES) + POINTERS + BRANCHES
    return Codelet(
        name=f"GaussianBlur {variant}",
        fields=(
            Field(name="new", access="write", box=PIXELS),
            Field(name="old", access="read", box=PIXELS),
            *(Field(name=name, access="read", box=(*box, ":")) for name, box in HALO.items()),
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
            source="instructions of the C++ codelet (thorbenlouw/lbm-graphcore, GaussianBlurCodelets), one bundle "
            "each: 9 loads, 3 multiplies, 8 adds, 1 store a vector; 4 pointers and a branch a pixel; the fixed part "
            "of its nine regions (four corners, five loops) is our count too",
        ),
        flops=(Term(bundles=CHANNELS * arithmetic, extents=("pixels",)),),
        extents={"rows": Length("new", 0), "pixels": Size("new", per=CHANNELS)},
    )


@lru_cache(maxsize=8)
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
    blocks = Boxes(bounds=blocks.bounds + 1, tiles=blocks.tiles)  # in the framed image
    slices = Placed(worker_blocks(blocks, machine.tile.worker_contexts), blocks)
    shape = (rows + 2, columns + 2, CHANNELS)
    mapping, dtype = _in_blocks(blocks, shape), VARIANTS[variant][0]
    buffers = {
        name: Variable(name=name, shape=shape, dtype=dtype, mapping=mapping, category="neuron states")
        for name in ("image", "blurred", IN_ROWS, IN_COLUMNS, OUT_ROWS)
    }
    # no vertex writes its frame, which must be zeros
    zeros = np.broadcast_to(np.zeros(1, dtype), shape)
    buffers["blurred"] = replace(buffers["blurred"], values=zeros)
    codelet = blur_codelet(variant)
    item_bytes = buffers["image"].item_bytes
    made = ProgramBuilder(
        tiles=chips * machine.chip.tiles,
        chips=chips,
        variables=buffers,
        inputs={"image": "image"},
        outputs={"blurred": ("image", "blurred")[steps % 2]},
    )
    for step in range(steps):
        old, new = ("image", "blurred") if step % 2 == 0 else ("blurred", "image")
        before = (*row_copies(slices, item_bytes, old, IN_ROWS), *column_copies(slices, item_bytes, old, IN_COLUMNS))
        after = row_copies(slices, item_bytes, OUT_ROWS, new)
        blurs = _tables(codelet, slices, old, new)
        for stage, tables in (("pre copies", before), ("blur", blurs), ("post copies", after)):
            if tables:
                name = f"{stage} {old} to {new}"
                made.add(Superstep(name=name, op="stencil", phase="forward", stage=stage, tables=tables))
    return plan_exchanges(made.program())


def _tables(codelet: Codelet, slices: Placed, old: str, new: str) -> tuple[VertexTable, ...]:
    """One vertex a slice, in tables of slices that find their operands in the same places."""
    tables = []
    where = np.stack([slices.in_rows, slices.beside_west, slices.beside_east])
    for in_rows, beside_west, beside_east in np.unique(where, axis=1).T.tolist():
        chosen = (where == [[in_rows], [beside_west], [beside_east]]).all(axis=0)
        operands = dict.fromkeys(HALO, old) | {"old": IN_ROWS if in_rows else old, "new": OUT_ROWS if in_rows else new}
        operands |= {name: IN_COLUMNS for name, here in (("west", beside_west), ("east", beside_east)) if here}
        boxes = slices.boxes.take(chosen)
        columns = boxes.columns(OWN) | boxes.columns(("before", "after"), reach=1)
        tables.append(VertexTable(codelet=codelet, tiles=boxes.tiles, operands=operands, columns=columns))
    return tuple(tables)


def _in_blocks(blocks: Boxes, shape: tuple[int, ...]) -> TileMapping:
    """Blocks of the framed image on their tiles, row of pixels by row of pixels; the frame goes to the outermost."""
    rows, columns, channels = shape
    bounds = blocks.bounds - (blocks.bounds == 1) + (blocks.bounds == [[rows - 1], [columns - 1]])
    return TileMapping.of_boxes(blocks.tiles, bounds * [[1], [channels]], (rows, columns * channels))


MACHINE = "mk1"
STEPS = 2  # of an iteration: there and back
STAGES = {"compute": "blur", "pre copies": "pre copies", "post copies": "post copies"}  # phase -> stage of supersteps
PHASES = (*STAGES, "copies", "exchange", "global exchange", "sync", "sum")
# the blur, exchange and sync are derived, what is copied is assumed
WIDTH = {phase: UNCERTAINTY["assumed" if "copies" in phase else "derived"] for phase in PHASES}


def stencil_row(row: Cells, asked: Asked) -> Iterator[Fields]:
    """Fields of a published figure, of Mk1 chips unless a machine is asked for."""
    chip = asked.machine_or(MACHINE)
    chips, published, tolerance = row.whole("chips"), row.number("cycles"), row.number("tolerance")
    phase = row["phase"]
    name = f"blur 2200x1122 {row['type']}, {chips} chip(s): {phase}"
    yield row.figure(name, "cycles a step", published, tolerance, phase, origin=ORIGIN)
    if published == 0:
        raise MimdsimError("0 was published; this run does not have that phase: no ratio")
    if phase not in PHASES:
        raise MimdsimError(f"phase '{phase}' is none of {', '.join(PHASES)}")
    yield row.predicted(chip, published, lambda on: _phases(on, chip, row["type"], chips)[phase], WIDTH[phase])
    if phase in ("copies", "sum"):  # from phases that have rows of their own
        yield {"bearing": None, "derived": True}


SCALING_TOLERANCE = 0.2
ORIGIN = "thorbenlouw/lbm-graphcore"


def scaling_row(row: Cells, asked: Asked) -> Iterator[Fields]:
    """Fields of a measured time of two blurs, of Mk1 chips unless a machine is asked for."""
    chip = asked.machine_or(MACHINE)
    chips, rows, columns = (row.whole(name) for name in ("chips", "rows", "columns"))
    measured = row.number("us_per_iteration", above=0)
    name = f"blur {columns}x{rows} {row['type']}, {chips} chip(s)"
    kind, figures = ("one chip", "solver step") if chips == 1 else ("several chips", "several chips")
    yield row.figure(name, "us an iteration", measured, SCALING_TOLERANCE, kind, figures=figures, origin=ORIGIN)

    def again(machine: MimdMachine) -> float:
        cycles = _phases(machine, chip, row["type"], chips, rows, columns)["sum"]
        return 1e6 * STEPS * cycles / machine.chip.clock_hz

    yield row.predicted(chip, measured, again, WIDTH["sum"])


def published_phases(
    variant: str, chips: int, rows: int = PUBLISHED_ROWS, columns: int = PUBLISHED_COLUMNS
) -> dict[str, float]:
    """Phases of one step of the published image, or of another of rows x columns pixels, on Mk1 chips, by name."""
    chip = tiled_machine(MACHINE, "")
    return _phases(chip, chip, variant, chips, rows, columns)


@lru_cache(maxsize=64)
def _phases(
    machine: MimdMachine,
    made_for: MimdMachine,
    variant: str,
    chips: int,
    rows: int = PUBLISHED_ROWS,
    columns: int = PUBLISHED_COLUMNS,
) -> dict[str, float]:
    """Of the program for one description of a chip, timed on another."""
    several = {"links.chips": chips}
    program = make_program(changed_machine(made_for, several), variant, rows, columns, chips=chips, steps=1)
    return phases(program, changed_machine(machine, several))


def phases(program: Program, machine: MimdMachine) -> dict[str, float]:
    """Cycles of one step of `program` by phase, from PHASES; steps of a longer program are averaged."""
    spans = time_by_hand(program, machine).spans
    loads = program_loads(program, NO_SPIKES, TileIssue.of(machine))
    stages = [superstep.stage for superstep, _, _ in program.supersteps()]
    if "blur" not in stages:
        raise MappingError("phases of a stencil: the program has no superstep of the stage 'blur'; see make_program")
    longest = {
        name: sum(int(load.busy.max()) for load, of in zip(loads, stages, strict=True) if of == stage)
        for name, stage in STAGES.items()
    }
    link = sum(span.link_cycles for span in spans)
    found: dict[str, float] = {
        **longest,
        "copies": longest["pre copies"] + longest["post copies"],
        "exchange": sum(span.exchange_cycles for span in spans) - link,
        "global exchange": link,
        "sync": sum(span.sync_cycles for span in spans),
    }
    found["sum"] = sum(cycles for name, cycles in found.items() if name != "copies")
    return {name: cycles / stages.count("blur") for name, cycles in found.items()}


STENCIL_PHASES = ReferenceTable(
    needed={"chips", "type", "phase", "cycles", "tolerance", "source"},
    read_row=stencil_row,
    figures="exchange or copy",
)
BLUR_SCALING = ReferenceTable(
    needed={"type", "chips", "rows", "columns", "us_per_iteration"},
    also={"source"},
    read_row=scaling_row,
    doing="blurs",
)
