"""Programs by hand: a builder, the library's vertices, and all that a codelet of one's own is made of.

Reading order: kernel -> builder -> elementwise -> reductions -> slices -> products. How to go about it:
docs/write-a-kernel.md.
"""

from mimdsim.kernels.kernel import Kernel
from mimdsim.kernels.lines import KernelError
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
    WorkerBundles,
    shared_bundles,
)

__all__ = [
    "Codelet",
    "Column",
    "Field",
    "Kernel",
    "KernelError",
    "Length",
    "MimdMachine",
    "PlannedProduct",
    "Program",
    "Size",
    "Term",
    "TileFormula",
    "TileMapping",
    "Variable",
    "WorkerBundles",
    "load_machine",
    "shared_bundles",
]
