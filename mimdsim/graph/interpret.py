"""The plain meaning of a graph: operation by operation in numpy. Independent of the compiler and its codelets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from mimdsim.graph.operations import OPERATIONS
from mimdsim.graph.records import Graph, Scan, SparseSpikes

# called with (value name, timestep, value) for every value made inside a scan
Observer = Callable[[str, int, Any], None]


def interpret(graph: Graph, inputs: dict[str, Any], observe: Observer | None = None) -> dict[str, Any]:
    """All values of `graph`, by name, from the values of its inputs.

    Arrays keep the dtype they come with: float64 weights give float64 gradients. Raises KeyError for a missing input.
    """
    values: dict[str, Any] = {name: inputs[name] for name in graph.inputs}
    for op in graph.operations:
        given = tuple(values[name] for name in op.inputs)
        if op.kind == "scan":
            made = run_scan(op.attributes, given, observe)
        else:
            made = OPERATIONS[op.kind].evaluate(op.attributes, *given)
        values.update(zip(op.outputs, made, strict=True))
    return values


def run_scan(scan: Scan, inputs: tuple[Any, ...], observe: Observer | None = None) -> tuple[Any, ...]:
    """Final carries and stacked values of a scan."""
    carries = list(inputs[: len(scan.carries)])
    sequences = inputs[len(scan.carries) : len(scan.carries) + len(scan.slices)]
    constants = dict(zip(scan.constants, inputs[len(scan.carries) + len(scan.slices) :], strict=True))
    stacks: dict[str, list[Any]] = {name: [None] * scan.timesteps for name in scan.stacked}
    order = range(scan.timesteps)
    for t in reversed(order) if scan.reverse else order:
        values = dict(constants)
        values.update({carry.enters: value for carry, value in zip(scan.carries, carries, strict=True)})
        for item, sequence in zip(scan.slices, sequences, strict=True):
            values[item.inside] = _at(sequence, t + item.shift)
        for op in scan.body.operations:
            made = OPERATIONS[op.kind].evaluate(op.attributes, *(values[name] for name in op.inputs))
            values.update(zip(op.outputs, made, strict=True))
            if observe is not None:
                for name in op.outputs:
                    observe(name, t, values[name])
        carries = [values[carry.leaves] for carry in scan.carries]
        for name in scan.stacked:
            stacks[name][t] = values[name]
    return (*carries, *(_stack(stacks[name]) for name in scan.stacked))


def _at(sequence: Any, t: int) -> Any:
    """The value at timestep `t`; nothing (zeros, no spikes) before the first."""
    if isinstance(sequence, SparseSpikes):
        if t < 0:
            return SparseSpikes(ids=np.zeros_like(sequence.ids[0]), counts=np.zeros_like(sequence.counts[0]))
        return SparseSpikes(ids=sequence.ids[t], counts=sequence.counts[t])
    return np.zeros_like(sequence[0]) if t < 0 else sequence[t]


def _stack(items: list[Any]) -> Any:
    if isinstance(items[0], SparseSpikes):
        return SparseSpikes(
            ids=np.stack([item.ids for item in items]), counts=np.stack([item.counts for item in items])
        )
    return np.stack(items)
