"""The table of all operations, and the scan over timesteps with its transpose. To add an operation, write its record in
the file of its family and list the family here.

The gradient of a scan is a scan that runs the other way over a stash:

    body      :: [carry, slice, constant]                    -> [carry, stacked]
    transpose :: [d carry, d constant, d stacked, stash]     -> [d carry, d constant]

The stash is every forward value the gradient rules read. A carry on entry to timestep t is the stashed value that left
timestep t - 1 (shift -1); one that hands on another carry is that value k timesteps ago (shift -k); a sequence or
constant of the forward scan is read again and not stashed twice.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from mimdsim.graph.convolution import CONVOLUTION
from mimdsim.graph.derived import DELAYS, WEIGHT_FUNCTIONS
from mimdsim.graph.dropout import DROPOUT
from mimdsim.graph.elementwise import ELEMENTWISE
from mimdsim.graph.learned_constants import LEARNED_CONSTANTS
from mimdsim.graph.linear_neurons import LINEAR_NEURONS
from mimdsim.graph.losses import LOSS, READ_OUTS
from mimdsim.graph.norms import BATCH_NORM, SAMPLE_NORM
from mimdsim.graph.records import (
    Backward,
    Graph,
    GraphBuilder,
    OpDef,
    Operation,
    Scan,
    Shapes,
    Slice,
    SparseSpikes,
    Value,
)
from mimdsim.graph.spikes import SPIKES
from mimdsim.graph.synapses import DENSE, HEAD_PRODUCTS, WIRING
from mimdsim.graph.training import TRAINING

# called with (value name, timestep, value) for every value made inside a scan; may return another one in its place
Observer = Callable[[str, int, Any], Any]


def _scan_shapes(values: tuple[Value, ...], scan: Scan) -> tuple[tuple[str, Value], ...]:
    finals = [("final." + carry.leaves, scan.body.value(carry.leaves)) for carry in scan.carries]
    stacks = []
    for name in scan.stacked:
        inside = scan.body.value(name)
        stacks.append((name, replace(inside, shape=(scan.timesteps, *inside.shape))))
    return (*finals, *stacks)


def _scan_flops(_values: tuple[Value, ...], scan: Scan) -> int:
    body = scan.body
    values = (tuple(body.value(name) for name in op.inputs) for op in body.operations)
    each = zip(body.operations, values, strict=True)
    return scan.timesteps * sum(OPERATIONS[op.kind].flops(given, op.attributes) for op, given in each)


def _run_scan(scan: Scan, *inputs: Any, observe: Observer | None = None) -> tuple[Any, ...]:
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
                    if (instead := observe(name, t, values[name])) is not None:
                        values[name] = instead
        carries = [values[carry.leaves] for carry in scan.carries]
        for name in scan.stacked:
            stacks[name][t] = values[name]
    return (*carries, *(_stack(stacks[name]) for name in scan.stacked))


def _at(sequence: Any, t: int) -> Any:
    """The value at timestep `t`; zeros (no spikes) before the first."""
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


SCAN = OpDef(name="scan", shapes=_scan_shapes, evaluate=_run_scan, flops=_scan_flops)
FAMILIES = (
    *(SCAN, *DENSE, *ELEMENTWISE, *CONVOLUTION, *BATCH_NORM, *SAMPLE_NORM, *DROPOUT, *SPIKES, *WIRING, *LINEAR_NEURONS),
    *(*HEAD_PRODUCTS, *DELAYS, *WEIGHT_FUNCTIONS, *LEARNED_CONSTANTS, *READ_OUTS, *LOSS, *TRAINING),
)
OPERATIONS: dict[str, OpDef] = {record.name: record for record in FAMILIES}


def shapes_of(kind: str) -> Shapes:
    """How the shapes of an operation's outputs follow from its inputs."""
    return OPERATIONS[kind].shapes


def builder(phase: str) -> GraphBuilder:
    """An empty builder whose operations belong to `phase`."""
    return GraphBuilder(phase, shapes_of)


class BodyBackward(Backward):
    """Writes the transposed body; remembers which forward values it had to read, and how they reach it."""

    def __init__(self, scan: Scan):
        super().__init__("backward", shapes_of)
        self.scan = scan
        self.stash: list[str] = []  # forward body values to be stacked
        self.slices: list[tuple[str, Slice]] = []  # forward body value -> how it is read
        self.constants: list[str] = []

    def forward_value(self, name: str) -> Value:
        return self.scan.body.value(name)

    def saved(self, name: str) -> str:
        """The name under which the transposed body reads `name`, declared or recomputed there on first use."""
        inside = f"saved.{name}"
        if inside in self.values:
            return inside
        maker = self.scan.body.producer(name)
        if maker is not None and OPERATIONS[maker.kind].recomputed:
            inputs = tuple(self.saved(given) for given in maker.inputs)
            return self.one(maker.kind, inputs, inside, layer=maker.layer, attributes=maker.attributes)
        value = self.scan.body.value(name)
        self.declare(replace(value, name=inside, role="saved", of=name))
        if name in self.scan.constants:
            self.constants.append(name)
            return inside
        source, age = self.scan.left_as(name)
        forward_slices = {item.inside: item.shift for item in self.scan.slices}
        shift = forward_slices.get(name, -age)
        if name not in forward_slices and source not in self.stash:
            self.stash.append(source)
        self.slices.append((source, Slice(inside=inside, shift=shift)))
        return inside


def without_unused(graph: Graph) -> Graph:
    """The graph with only the operations that the outputs depend on."""
    wanted = set(graph.outputs)
    kept: list[Operation] = []
    for op in reversed(graph.operations):
        if wanted & set(op.outputs):
            kept.append(op)
            wanted |= set(op.inputs)
    return Graph(inputs=graph.inputs, outputs=graph.outputs, operations=tuple(reversed(kept)), values=graph.values)


def interpret(graph: Graph, inputs: dict[str, Any], observe: Observer | None = None) -> dict[str, Any]:
    """All values of `graph`, by name, from the values of its inputs.

    Arrays keep their dtype: float64 weights give float64 gradients. Raises KeyError for a missing input.
    """
    values: dict[str, Any] = {name: inputs[name] for name in graph.inputs}
    for op in graph.operations:
        given = tuple(values[name] for name in op.inputs)
        if op.kind == "scan":
            made = _run_scan(op.attributes, *given, observe=observe)
        else:
            made = OPERATIONS[op.kind].evaluate(op.attributes, *given)
        values.update(zip(op.outputs, made, strict=True))
    return values
