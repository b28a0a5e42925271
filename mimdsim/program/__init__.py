"""The vocabulary of a lowered program (door 1 of ARCHITECTURE.md): which vertex computes what, when, from where.

A program may be compiled or written by hand; engines cannot tell. Reading order: codelet -> extents -> mapping ->
records -> program -> vertex_boxes -> verify.
"""

from mimdsim.program.codelet import (
    Codelet,
    Field,
    Term,
    TileFormula,
    WorkerBundles,
    fields_of,
    shared_bundles,
    terms_of,
)
from mimdsim.program.loops import (
    Column,
    Hits,
    Length,
    Listed,
    Lists,
    Recorded,
    Size,
    Spikes,
    SpikesOver,
    Vectors,
    Within,
)
from mimdsim.program.mapping import TileMapping
from mimdsim.program.program import Observables, Potential, Program, ProgramBuilder, Repeat, extents_of
from mimdsim.program.records import Copy, Delivery, Exchange, RecordedActivity, Relay, Superstep, Variable, VertexTable
from mimdsim.program.verify import verify

__all__ = [
    "Codelet",
    "Column",
    "Copy",
    "Delivery",
    "Exchange",
    "Field",
    "Hits",
    "Length",
    "Listed",
    "Lists",
    "Observables",
    "Potential",
    "Program",
    "ProgramBuilder",
    "Recorded",
    "RecordedActivity",
    "Relay",
    "Repeat",
    "Size",
    "Spikes",
    "SpikesOver",
    "Superstep",
    "Term",
    "TileFormula",
    "TileMapping",
    "Variable",
    "Vectors",
    "VertexTable",
    "Within",
    "WorkerBundles",
    "extents_of",
    "fields_of",
    "shared_bundles",
    "terms_of",
    "verify",
]
