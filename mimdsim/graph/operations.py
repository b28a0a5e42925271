"""The table of all operations. To add one, write its record in the file of its family and list the family here."""

from __future__ import annotations

from typing import Any

from mimdsim.graph.dense import DENSE
from mimdsim.graph.linear_neurons import LINEAR_NEURONS
from mimdsim.graph.losses import LOSS
from mimdsim.graph.read_outs import READ_OUTS
from mimdsim.graph.records import Graph, GraphBuilder, OpDef, Shapes
from mimdsim.graph.recurrence_and_bias import WIRING
from mimdsim.graph.scan import Observer, run_scan, scan_of
from mimdsim.graph.spikes import SPIKES
from mimdsim.graph.training import TRAINING
from mimdsim.graph.truncation import TRUNCATION

FAMILIES = (*DENSE, *SPIKES, *TRUNCATION, *WIRING, *LINEAR_NEURONS, *READ_OUTS, *LOSS, *TRAINING)
OPERATIONS: dict[str, OpDef] = {record.name: record for record in FAMILIES}
OPERATIONS["scan"] = scan_of(OPERATIONS)


def shapes_of(kind: str) -> Shapes:
    """How the shapes of an operation's outputs follow from its inputs."""
    return OPERATIONS[kind].shapes


def builder(phase: str) -> GraphBuilder:
    """An empty builder whose operations belong to `phase`."""
    return GraphBuilder(phase, shapes_of)


def interpret(graph: Graph, inputs: dict[str, Any], observe: Observer | None = None) -> dict[str, Any]:
    """All values of `graph`, by name, from the values of its inputs.

    Arrays keep their dtype: float64 weights give float64 gradients. Raises KeyError for a missing input.
    """
    values: dict[str, Any] = {name: inputs[name] for name in graph.inputs}
    for op in graph.operations:
        given = tuple(values[name] for name in op.inputs)
        if op.kind == "scan":
            made = run_scan(OPERATIONS, op.attributes, given, observe)
        else:
            made = OPERATIONS[op.kind].evaluate(op.attributes, *given)
        values.update(zip(op.outputs, made, strict=True))
    return values
