"""Programs by hand: a builder, the library's vertices, and everything needed for custom codelets.

Reading order: builder -> elementwise -> reductions -> products. Tutorial: docs/write-a-kernel.md.
"""

from mimdsim.kernels import elementwise, products, reductions
from mimdsim.kernels.builder import Builder, KernelError
from mimdsim.kernels.products import PlannedProduct
from mimdsim.machine import MimdMachine, load_machine
from mimdsim.program import (
    Codelet,
    Column,
    Field,
    Length,
    Program,
    Size,
    Term,
    TileFormula,
    TileMapping,
    Variable,
    Vectors,
    WorkerBundles,
    shared_bundles,
)
from mimdsim.program.loops import Mix
from mimdsim.program.mapping import PER_TIMESTEP

__all__ = [
    "PER_TIMESTEP",
    "Codelet",
    "Column",
    "Field",
    "Kernel",
    "KernelError",
    "Length",
    "MimdMachine",
    "Mix",
    "PlannedProduct",
    "Program",
    "Size",
    "Term",
    "TileFormula",
    "TileMapping",
    "Variable",
    "Vectors",
    "WorkerBundles",
    "load_machine",
    "shared_bundles",
]


class Kernel(Builder):
    """A program written by hand for a tiled machine, for example:

        >>> k = mimdsim.Kernel("mean", "bow")
        >>> x = k.input(k.variable("x", (1024,)))
        >>> total = k.output(k.variable("total", (1,), tiles=0))
        >>> k.reduce(x, out=total)
        >>> k.elementwise("multiply", total, 1 / 1024, out=total)
        >>> program = k.program()

    name: of the program. machine: a tiled one, itself or by name.

    Library vertices cost what the vendor's formulas say. `fill` to `sort` take one superstep, or join the one that is
    open; the others take several. Every mistake raises a KernelError that names the caller's line.
    """

    fill = elementwise.fill
    copy = elementwise.copy
    cast = elementwise.cast
    broadcast = elementwise.broadcast
    sort = elementwise.sort
    scatter_add = reductions.scatter_add
    gather = reductions.gather
    reduce = reductions.reduce
    all_reduce = reductions.all_reduce
    plan_matmul = products.plan_matmul
    matmul = products.matmul
    elementwise = elementwise.elementwise  # after all that the module of this name gives
