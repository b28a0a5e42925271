"""The plain meaning of a graph: operation by operation in numpy. Independent of the compiler and its codelets."""

from __future__ import annotations

from typing import Any

from mimdsim.graph.operations import OPERATIONS
from mimdsim.graph.records import Graph
from mimdsim.graph.scan import Observer, run_scan


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
