"""The scan over timesteps, and its transpose: the gradient of a scan is a scan that runs the other way over a stash.

    body      :: [carry, slice, constant]                    -> [carry, stacked]
    transpose :: [d carry, d constant, d stacked, stash]     -> [d carry, d constant]

The stash is every forward value the gradient rules ask for. A carry on entry to timestep t is the stash of what left
timestep t - 1 (shift -1); a sequence or constant of the forward scan is read again and not stashed twice.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from mimdsim.graph.definition import OpDef
from mimdsim.graph.records import Graph, GraphBuilder, Operation, Scan, Slice, Value


def _scan_shapes(values: tuple[Value, ...], scan: Scan) -> tuple[tuple[str, Value], ...]:
    finals = [("final." + carry.leaves, scan.body.value(carry.leaves)) for carry in scan.carries]
    stacks = []
    for name in scan.stacked:
        inside = scan.body.value(name)
        stacks.append((name, replace(inside, shape=(scan.timesteps, *inside.shape))))
    return (*finals, *stacks)


def _evaluate(scan: Scan, *inputs: Any) -> tuple[Any, ...]:
    from mimdsim.graph.interpret import run_scan  # the interpreter knows all operations, this one included

    return run_scan(scan, inputs)


def _flops(_values: tuple[Value, ...], scan: Scan) -> int:
    from mimdsim.graph.operations import OPERATIONS

    body = scan.body
    once = 0
    for op in body.operations:
        values = tuple(body.value(name) for name in op.inputs)
        once += OPERATIONS[op.kind].flops(values, op.attributes)
    return scan.timesteps * once


SCAN = OpDef(name="scan", shapes=_scan_shapes, evaluate=_evaluate, flops=_flops)


@dataclass
class BodyBackward:
    """Writes the transposed body; remembers which forward values it had to read, and how they reach it."""

    scan: Scan
    build: GraphBuilder
    stash: list[str] = field(default_factory=list)  # forward body values to be stacked
    slices: list[tuple[str, Slice]] = field(default_factory=list)  # forward body value -> how it is read
    constants: list[str] = field(default_factory=list)

    def forward_value(self, name: str) -> Value:
        return self.scan.body.value(name)

    def one(self, kind: str, inputs: tuple[str, ...], name: str, *, layer: str = "", attributes: Any = None) -> str:
        return self.build.one(kind, inputs, name, layer=layer, attributes=attributes)

    def add(
        self, kind: str, inputs: tuple[str, ...], name: str, *, layer: str = "", attributes: Any = None
    ) -> tuple[str, ...]:
        return self.build.add(kind, inputs, name, layer=layer, attributes=attributes)

    def saved(self, name: str) -> str:
        from mimdsim.graph.operations import OPERATIONS

        """`name` where the transposed body reads it, declared or made anew there when it is first asked for."""
        inside = f"saved.{name}"
        if inside in self.build.values:
            return inside
        maker = self.scan.body.producer(name)
        if maker is not None and OPERATIONS[maker.kind].recomputed:
            inputs = tuple(self.saved(given) for given in maker.inputs)
            return self.one(maker.kind, inputs, inside, layer=maker.layer, attributes=maker.attributes)
        value = self.scan.body.value(name)
        self.build.declare(replace(value, name=inside, role="saved", of=name))
        if name in self.scan.constants:
            self.constants.append(name)
            return inside
        entering = {carry.enters: carry.leaves for carry in self.scan.carries}
        source = entering.get(name, name)
        shift = -1 if name in entering else 0
        forward_slices = [item.inside for item in self.scan.slices]
        if name not in forward_slices and source not in self.stash:
            self.stash.append(source)
        self.slices.append((source, Slice(inside=inside, shift=shift)))
        return inside


def without_unused(graph: Graph) -> Graph:
    """The operations that the outputs depend on, and no others."""
    wanted = set(graph.outputs)
    kept: list[Operation] = []
    for op in reversed(graph.operations):
        if wanted & set(op.outputs):
            kept.append(op)
            wanted |= set(op.inputs)
    return Graph(inputs=graph.inputs, outputs=graph.outputs, operations=tuple(reversed(kept)), values=graph.values)
