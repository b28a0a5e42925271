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
    Field,
    Program,
    Term,
    TileFormula,
    TileMapping,
    Variable,
    WorkerBundles,
    shared_bundles,
)

__all__ = [
    "Codelet",
    "Field",
    "Kernel",
    "KernelError",
    "MimdMachine",
    "PlannedProduct",
    "Program",
    "Term",
    "TileFormula",
    "TileMapping",
    "Variable",
    "WorkerBundles",
    "load_machine",
    "shared_bundles",
]
