"""How often each value occurs among numbers that favour the small ones: counts on every tile, then their sum.

Every worker context counts its own numbers into its own row, so that no context waits for a frequent value; the library
adds the rows.

    mimdsim check examples/kernels/histogram.py bow --strict
"""

import numpy as np

from mimdsim.kernels import Codelet, Field, Kernel, Length, MimdMachine, Program, Term, WorkerBundles

NUMBERS, BINS = 12_000, 32  # numbers to count, values that they may have


def count(counts: np.ndarray, values: np.ndarray) -> None:
    """One vertex: counts [BINS], values [n]."""
    counts[:] = 0
    for value in values:
        counts[value] += 1


COUNT = Codelet(
    name="Count",
    fields=(
        Field(name="counts", access="write", box=("row", ":")),
        Field(name="values", access="read", box=("start:stop",)),
    ),
    compute=count,
    form="vertex",
    cost=WorkerBundles(
        fixed=24,
        terms=(
            Term(bundles=1, extents=("bins",)),
            Term(bundles=5, extents=("values",)),
        ),
        kind="assumed",
        source="launch, frame and two pointers; a store for every count; load the value, load its count, add, store, "
        "and the loop, each alone",
    ),
    extents={"bins": Length("counts", 1), "values": Length("values", 0)},
)


def build(machine: MimdMachine, numbers: int = NUMBERS, bins: int = BINS) -> Program:
    k = Kernel("histogram", machine)
    contexts = machine.tile.worker_contexts
    row = np.arange(k.tiles * contexts)
    edges = np.arange(len(row) + 1) * numbers // len(row)
    values = k.input(k.variable("values", (numbers,), "int32"))
    counts = k.variable("counts", (len(row), bins), "int32")
    total = k.output(k.variable("total", (bins,), "int32"))
    k.vertices(
        COUNT,
        tiles=row // contexts,
        operands={"counts": counts, "values": values},
        columns={"row": row, "start": edges[:-1], "stop": edges[1:]},
    )
    k.reduce(counts, axis=0, out=total)
    return k.program()


def inputs(rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Skewed: half of the numbers are 0, a quarter 1, and so on."""
    return {"values": np.minimum(rng.geometric(0.5, NUMBERS) - 1, BINS - 1).astype(np.int32)}


def reference(values: np.ndarray) -> np.ndarray:
    return np.bincount(values, minlength=BINS)
