"""Programs by hand: a builder, the library's vertices, and everything needed for custom codelets.

Reading order: kernel -> builder -> elementwise -> reductions -> slices -> products. Tutorial: docs/write-a-kernel.md.
"""

from mimdsim.kernels.builder import KernelError
from mimdsim.kernels.kernel import Kernel
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
