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
        Field(name="cells", access="read", box=("before:after",)),  # reaches into the neighbours' tiles
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
)


def make_program() -> Program:
    """Cells on four tiles, two vertices a tile; the outermost cells are kept."""
    edges = np.arange(TILES + 1) * CELLS // TILES
    mapping = TileMapping.split(0, np.arange(TILES), edges[:-1], edges[1:])
    starts = np.arange(2 * TILES) * CELLS // (2 * TILES)
    stops = starts + CELLS // (2 * TILES)
    inner_start, inner_stop = np.maximum(starts, 1), np.minimum(stops, CELLS - 1)
    table = VertexTable(
        codelet=SMOOTH,
        layer="",
        tiles=np.arange(2 * TILES) // 2,
        operands={"out": "new", "cells": "old"},
        columns={"start": inner_start, "stop": inner_stop, "before": inner_start - 1, "after": inner_stop + 1},
        extents={"cells": inner_stop - inner_start},
    )
    variables = {
        name: Variable(name=name, shape=(CELLS,), dtype="float32", mapping=mapping, category="neuron states")
        for name in ("old", "new")
    }
    program = Program(
        tiles=TILES,
        variables=variables,
        body=(Superstep(name="smooth", op="stencil", phase="forward", stage="smooth", tables=(table,)),),
        layers=(),
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
    cells = np.sin(np.arange(CELLS, dtype=np.float32))
    executor.write({"cells": cells})
    executor.run()
    expected = (cells[:-2] + cells[1:-1] + cells[2:]) / 3
    print("largest error:", float(np.abs(executor.read("smoothed")[1:-1] - expected).max()))
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
