"""A program written by hand: a halo exchange and a three-point mean on four tiles.

Shows the essentials: variables with tile mappings, a custom codelet with its cost, vertices whose exchange is planned,
the rules checked, values executed, cycles timed. Longer examples: examples/kernels. Run it:
python examples/hand_written.py
"""

import numpy as np
from mimdsim.check import check_kernel

from mimdsim.kernels import (
    Codelet,
    Field,
    Kernel,
    Length,
    MimdMachine,
    Program,
    Term,
    TileMapping,
    WorkerBundles,
    load_machine,
)

CELLS, TILES = 32, 4


def smooth(out, cells):
    """One vertex: out [n], cells [n + 2] with one neighbour on either side."""
    out[:] = (cells[:-2] + cells[1:-1] + cells[2:]) / 3


SMOOTH = Codelet(
    name="Smooth",
    fields=(
        Field(name="out", access="write", box=("start:stop",)),
        Field(name="cells", access="read", box=("start:after",)),  # reaches into the neighbours' tiles
    ),
    columns=(),
    compute=smooth,
    form="vertex",
    cost=WorkerBundles(
        fixed=30,
        terms=(Term(bundles=5, extents=("cells",)),),
        kind="assumed",
        source="three loads, two adds and a multiply, a store; two of them issue together",
    ),
    flops=(Term(bundles=3, extents=("cells",)),),
    extents={"cells": Length("out", 0)},  # the loop runs once for every cell of the first axis of the box of 'out'
)


def build(machine: MimdMachine) -> Program:
    """New cells from old ones, which have one more at either end; two vertices a tile."""
    vertices = min(2 * TILES, CELLS)  # none without cells
    edges = np.arange(vertices + 1) * CELLS // vertices  # their shares differ by one cell at most
    tiles, starts, stops = np.arange(vertices) // 2, edges[:-1], edges[1:]
    padded = np.array([0, *edges[1:-1] + 1, CELLS + 2])  # old cell n + 1 lies where new cell n does
    k = Kernel("smooth", machine)
    before, after = (TileMapping.split(0, tiles, edge[:-1], edge[1:]) for edge in (padded, edges))
    old = k.input(k.variable("old", CELLS + 2, mapping=before, category="cells"), "cells")
    new = k.output(k.variable("new", CELLS, mapping=after, category="cells"), "smoothed")
    with k.superstep("smooth", phase="smoothing"):  # a name of your own, under which its cycles are reported
        k.vertices(
            SMOOTH,
            tiles=tiles,
            operands={"out": new, "cells": old},
            columns={"start": starts, "stop": stops, "after": stops + 2},
        )
    return k.program()


def reference(cells: np.ndarray) -> np.ndarray:
    return (cells[:-2] + cells[1:-1] + cells[2:]) / 3


def main() -> None:
    machine = load_machine("tiny", {"chip.tiles": TILES})
    result = check_kernel(build, machine, reference=reference)
    print(result)
    step, _, _ = next(result.program.supersteps())
    print("bytes received by tile:", step.exchange.bytes_received.tolist())


if __name__ == "__main__":
    main()
