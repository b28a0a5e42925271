"""Floor 2, door 1: who computes what, when, from where. The vocabulary of a lowered program.

A program may be compiled or written by hand; engines cannot tell. Reading order: codelet -> mapping -> records -> rows
-> verify.
"""

from mimdsim.program.codelet import (
    Codelet,
    Field,
    Hits,
    Listed,
    Spikes,
    SpikesOver,
    Term,
    TileFormula,
    Within,
    WorkerBundles,
    shared_bundles,
)
from mimdsim.program.mapping import TileMapping
from mimdsim.program.records import (
    Copy,
    Delivery,
    Exchange,
    Program,
    RecordedActivity,
    Superstep,
    Variable,
    VertexTable,
)
from mimdsim.program.repeats import Repeat, Stretch
from mimdsim.program.verify import verify

__all__ = [
    "Codelet",
    "Copy",
    "Delivery",
    "Exchange",
    "Field",
    "Hits",
    "Listed",
    "Program",
    "RecordedActivity",
    "Repeat",
    "Spikes",
    "SpikesOver",
    "Stretch",
    "Superstep",
    "Term",
    "TileFormula",
    "TileMapping",
    "Variable",
    "VertexTable",
    "Within",
    "WorkerBundles",
    "shared_bundles",
    "verify",
]
