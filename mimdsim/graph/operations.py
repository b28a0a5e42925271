"""The table of all operations. To add one, write its record in the file of its family and list the family here."""

from __future__ import annotations

from mimdsim.graph.definition import OpDef
from mimdsim.graph.dense import DENSE
from mimdsim.graph.linear_neurons import LINEAR_NEURONS
from mimdsim.graph.losses import LOSS
from mimdsim.graph.neurons import NEURONS
from mimdsim.graph.read_outs import READ_OUTS
from mimdsim.graph.records import GraphBuilder
from mimdsim.graph.recurrence_and_bias import WIRING
from mimdsim.graph.scan import scan_of
from mimdsim.graph.spikes import SPIKES
from mimdsim.graph.training import TRAINING
from mimdsim.graph.truncation import TRUNCATION

FAMILIES = (*DENSE, *SPIKES, *TRUNCATION, *WIRING, *NEURONS, *LINEAR_NEURONS, *READ_OUTS, *LOSS, *TRAINING)
OPERATIONS: dict[str, OpDef] = {record.name: record for record in FAMILIES}
OPERATIONS["scan"] = scan_of(OPERATIONS)


def builder(phase: str) -> GraphBuilder:
    """An empty builder whose operations belong to `phase`."""
    return GraphBuilder(phase, lambda kind: OPERATIONS[kind].shapes)
