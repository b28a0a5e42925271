"""A program written by hand against the public records: a halo exchange and a three-point mean on four tiles.

Shows all there is to know: variables with tile mappings, a codelet of one's own with its cost, a vertex table, planned
exchanges, the rules checked, values executed, cycles told. Run it: python examples/hand_written.py
"""

import numpy as np

from mimdsim.compiler import measure_memory, plan_exchanges
from mimdsim.functional import Executor
from mimdsim.machine import load_machine
from mimdsim.program import (
    Codelet,
    Field,
    Length,
    Program,
    RecordedActivity,
    Superstep,
    Term,
    TileMapping,
    Variable,
    VertexTable,
    WorkerBundles,
    verify,
)
from mimdsim.run import memory_profile
from mimdsim.timing import time_program

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


def make_program() -> Program:
    """New cells from old ones, which have one more at either end; two vertices a tile."""
    vertices = min(2 * TILES, CELLS)  # none without cells
    edges = np.arange(vertices + 1) * CELLS // vertices  # their shares differ by one cell at most
    tiles, starts, stops = np.arange(vertices) // 2, edges[:-1], edges[1:]
    padded = np.array([0, *edges[1:-1] + 1, CELLS + 2])  # old cell n + 1 lies where new cell n does
    mappings = {
        "old": TileMapping.split(0, tiles, padded[:-1], padded[1:]),
        "new": TileMapping.split(0, tiles, starts, stops),
    }
    shapes = {"old": (CELLS + 2,), "new": (CELLS,)}
    table = VertexTable(
        codelet=SMOOTH,
        tiles=tiles,
        operands={"out": "new", "cells": "old"},
        columns={"start": starts, "stop": stops, "after": stops + 2},
    )
    variables = {
        name: Variable(name=name, shape=shapes[name], dtype="float32", mapping=mappings[name], category="cells")
        for name in ("old", "new")
    }
    program = Program(
        tiles=TILES,
        variables=variables,
        body=(Superstep(name="smooth", phase="smoothing", tables=(table,)),),  # phase: any name, used in reports
        inputs={"cells": "old"},
        outputs={"smoothed": "new"},
    )
    return plan_exchanges(program)


def main() -> None:
    program = make_program()
    machine = load_machine("tiny", {"chip.tiles": TILES})
    problems = verify(program, machine.chip.tiles)
    print("rules:", "kept" if not problems else problems[0].message)
    executor = Executor(program)
    cells = np.sin(np.arange(CELLS + 2, dtype=np.float32))
    executor.write({"cells": cells})
    executor.run()
    expected = (cells[:-2] + cells[1:-1] + cells[2:]) / 3
    print("largest error:", float(np.abs(executor.read("smoothed") - expected).max()))
    memory = measure_memory(program, machine)
    profile = time_program(
        program, machine, RecordedActivity(ids={}, counts={}, dropped={}), memory_profile(program, memory, machine)
    )
    span = profile.spans[0]
    print(f"cycles: compute {span.compute_cycles}, exchange {span.exchange_cycles}, sync {span.sync_cycles}")
    exchange = next(program.supersteps())[0].exchange
    print("bytes received by tile:", exchange.bytes_received.tolist())


if __name__ == "__main__":
    main()
