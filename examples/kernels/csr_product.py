"""y = A x of a sparse matrix whose rows have very different lengths, in compressed sparse rows.

Rows are dealt to the tiles in blocks of eight; a tile keeps the values and columns of its blocks and receives all of x.
One vertex makes one row, so the tile with the longest rows determines the time; the report's tile balance shows how
much is lost.

    mimdsim check examples/kernels/csr_product.py bow --strict
"""

import numpy as np

from mimdsim.kernels import Codelet, Field, Kernel, MimdMachine, Program, Term, TileMapping, WorkerBundles

BLOCKS, ROWS, WIDTH = 96, 8, 256  # blocks of rows, rows of a block, elements of x
CAPACITY = 128  # nonzeros of a block at most


def multiply_row(y: np.ndarray, values: np.ndarray, columns: np.ndarray, ends: np.ndarray, x: np.ndarray) -> None:
    """One vertex: y [1], values and columns [CAPACITY] of the block, ends [2] of the row among them, x [WIDTH]."""
    first, last = int(ends[0]), int(ends[1])
    y[0] = np.dot(values[first:last], x[columns[first:last]])


def nonzeros(y: np.ndarray, values: np.ndarray, columns: np.ndarray, ends: np.ndarray, x: np.ndarray) -> dict[str, int]:
    """How often the loop of `multiply_row` runs; this depends on the data, so a run counts it for the timing."""
    return {"nonzeros": int(ends[1]) - int(ends[0])}


MULTIPLY_ROW = Codelet(
    name="MultiplyRow",
    fields=(
        Field(name="y", access="write", box=("row",)),
        Field(name="values", access="read", box=("block", ":")),
        Field(name="columns", access="read", box=("block", ":")),
        Field(name="ends", access="read", box=("block", "place:after")),
        Field(name="x", access="read", box=(":",)),
    ),
    compute=multiply_row,
    count=nonzeros,
    form="vertex",
    cost=WorkerBundles(
        fixed=34,
        terms=(Term(bundles=6, extents=("nonzeros",)),),
        kind="assumed",
        source="launch, frame, five pointers, two ends, a store; a nonzero: three loads (value, column, x), address, "
        "multiply and add",
    ),
    flops=(Term(bundles=2, extents=("nonzeros",)),),
)


def build(machine: MimdMachine) -> Program:
    k = Kernel("CSR product", machine)
    values = k.input(k.variable("values", (BLOCKS, CAPACITY)))
    columns = k.input(k.variable("columns", (BLOCKS, CAPACITY), "int32"))
    ends = k.input(k.variable("ends", (BLOCKS, ROWS + 1), "int32"))
    x = k.input(k.variable("x", (WIDTH,)))
    row = np.arange(BLOCKS * ROWS)
    tiles = values.mapping.owners(row // ROWS)
    y = k.output(k.variable("y", (BLOCKS * ROWS,), mapping=TileMapping.split(0, tiles, row, row + 1)))
    k.vertices(
        MULTIPLY_ROW,
        tiles=tiles,
        operands={"y": y, "values": values, "columns": columns, "ends": ends, "x": x},
        columns={"row": row, "block": row // ROWS, "place": row % ROWS, "after": row % ROWS + 2},
    )
    return k.program()


def inputs(rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Columns of the nonzeros, and where rows begin and end among those of their block; few rows are long."""
    lengths = np.minimum(rng.geometric(0.15, (BLOCKS, ROWS)) * rng.integers(1, 4, (BLOCKS, 1)), CAPACITY // ROWS)
    ends = np.zeros((BLOCKS, ROWS + 1), np.int32)
    ends[:, 1:] = np.cumsum(lengths, axis=1)
    return {"ends": ends, "columns": rng.integers(0, WIDTH, (BLOCKS, CAPACITY)).astype(np.int32)}


def reference(values: np.ndarray, columns: np.ndarray, ends: np.ndarray, x: np.ndarray) -> np.ndarray:
    dense = np.zeros((BLOCKS * ROWS, WIDTH))
    for row in range(BLOCKS * ROWS):
        block, place = divmod(row, ROWS)
        here = slice(ends[block, place], ends[block, place + 1])
        np.add.at(dense[row], columns[block, here], values[block, here])
    return dense @ x
