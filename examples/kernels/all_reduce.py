"""Every tile has a row of numbers; afterwards every tile has the sum of all rows.

Tiles sum shares of the columns, first over the rows of their own chip, then over chips, so that a link carries one row
per chip and not one per tile; the sums are sent to all.

    mimdsim check examples/kernels/all_reduce.py bow --set links.chips=4
"""

import numpy as np

from mimdsim.kernels import Kernel, MimdMachine, Program

WIDTH = 64


def build(machine: MimdMachine, width: int = WIDTH) -> Program:
    k = Kernel("all-reduce", machine)
    rows = k.input(k.variable("rows", (k.tiles, width)))  # one row on every tile
    total = k.output(k.variable("total", (width,), mapping=k.everywhere))
    k.all_reduce(rows, out=total)
    return k.program()


def reference(rows: np.ndarray) -> np.ndarray:
    return rows.sum(axis=0, dtype=np.float64)
