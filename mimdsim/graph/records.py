"""The grammar of a graph: values, operations, and the one that holds a body, the scan.

    scan :: (carry -> slice -> (carry, stacked)) -> carry -> [slice] -> (carry, [stacked])

as eight lines of Python:

    def scan(body, carry, sequences, constants, timesteps, reverse):
        outputs = []
        for t in (reversed(range(timesteps)) if reverse else range(timesteps)):
            slices = [sequence[t + shift] if 0 <= t + shift else zero for sequence, shift in sequences]
            carry, stacked = body(carry, slices, constants)
            outputs.append((t, stacked))
        return carry, in_order_of_t(outputs)
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from mimdsim.base.shown import Shown

# how the elements of a value are stored: an array, or sparse spikes (ids and two counts per sample)
FORMS = ("array", "sparse")


@dataclass(frozen=True, kw_only=True)
class SparseSpikes:
    """Spikes as ids: `ids` int32[..., batch, capacity], `counts` int32[..., batch, 2].

    The first counts[..., 0] ids are true spikes (ascending from where the scan starts), those up to counts[..., 1] are
    gradient entries: neurons between the second threshold and the threshold. Ids beyond counts[..., 1] are stale and
    never read.
    """

    ids: np.ndarray
    counts: np.ndarray


@dataclass(frozen=True, kw_only=True)
class Value:
    """A value of the graph. `shape` is the dense meaning ([batch, neurons] for spikes, [timesteps, ...] if stacked);
    `capacity` is the most ids listed per sample, for form 'sparse' and for the cotangents of such values.

    role: what it holds, where that matters: 'spikes', the 'generator' of a layer's random numbers, a parameter
    ('weights', 'recurrent', 'bias'), 'saved' for gradient rules, an 'adjoint', or the 'gradient' summed over timesteps.
    layer: the layer it belongs to, 'input' for the network's input. shift: its timestep relative to the one it is read
    in. of: the forward value that it was saved from, or that it is the derivative with respect to.
    """

    name: str
    shape: tuple[int, ...]
    form: str = "array"
    capacity: int = 0
    role: str = ""
    layer: str = ""
    shift: int = 0
    of: str = ""


@dataclass(frozen=True, kw_only=True)
class Operation(Shown):
    """One operation: `kind` names its record in OPERATIONS; `attributes` is that record's own frozen dataclass."""

    name: str
    kind: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    phase: str
    layer: str = ""
    attributes: Any = None


@dataclass(frozen=True, kw_only=True)
class Graph(Shown):
    """Operations in an order that respects their inputs; `values` by name; `inputs` come from outside."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    operations: tuple[Operation, ...]
    values: dict[str, Value] = field(repr=False)

    def value(self, name: str) -> Value:
        return self.values[name]

    def producer(self, name: str) -> Operation | None:
        """The operation that makes `name`, or None for an input."""
        return next((op for op in self.operations if name in op.outputs), None)

    def scans(self, phase: str) -> tuple[Operation, ...]:
        """The scan operations of a phase ('forward' or 'backward'), in order."""
        return tuple(op for op in self.operations if op.kind == "scan" and op.phase == phase)

    def scan(self, phase: str) -> Operation:
        """The first scan operation of a phase: the only one, unless there are batch norms of whole sequences."""
        return self.scans(phase)[0]

    def renamed(self, names: dict[str, str]) -> Graph:
        """The same graph with other names for some values (old -> new, which no value has yet)."""

        def new(given: tuple[str, ...]) -> tuple[str, ...]:
            return tuple(names.get(name, name) for name in given)

        operations = [replace(op, inputs=new(op.inputs), outputs=new(op.outputs)) for op in self.operations]
        values = {
            names.get(name, name): replace(each, name=names.get(name, name)) for name, each in self.values.items()
        }
        return Graph(inputs=new(self.inputs), outputs=new(self.outputs), operations=tuple(operations), values=values)


@dataclass(frozen=True, kw_only=True)
class Carry:
    """A value handed from one timestep to the next: its name on entry to the body and on leaving it.

    detached: no gradient goes back through it.
    """

    enters: str
    leaves: str
    detached: bool = False


@dataclass(frozen=True, kw_only=True)
class Slice:
    """A sequence read at timestep t + shift; zero (no spikes) where that lies before the first timestep."""

    inside: str
    shift: int = 0


@dataclass(frozen=True, kw_only=True)
class Scan(Shown):
    """Attributes of a scan operation.

    The operation's inputs are the initial carries, the sequences and the constants, in the order of the three fields;
    its outputs are the final carries and then the `stacked` body values with a leading axis of timesteps.
    """

    body: Graph
    timesteps: int
    reverse: bool
    carries: tuple[Carry, ...]
    slices: tuple[Slice, ...]
    constants: tuple[str, ...]
    stacked: tuple[str, ...]

    def left_as(self, name: str) -> tuple[str, int]:
        """What a value of the body is before carries hand it on: the value that leaves, and how many timesteps later it
        is `name`."""
        leaving, age = {carry.enters: carry.leaves for carry in self.carries}, 0
        while name in leaving:
            name, age = leaving[name], age + 1
        return name, age


def unique_name(name: str, taken: Collection[str], by: str = ".") -> str:
    """`name`, or `name.2`, `name.3`, ... if taken."""
    number, unique = 2, name
    while unique in taken:
        unique, number = f"{name}{by}{number}", number + 1
    return unique


class GraphBuilder:
    """Collects operations in order and infers the shapes of their outputs."""

    def __init__(self, phase: str, shapes: Any):
        self.phase = phase
        self.values: dict[str, Value] = {}
        self.operations: list[Operation] = []
        self.inputs: list[str] = []
        self.elsewhere: set[str] = set()  # names of values and operations that no other may have here
        self._shapes = shapes  # kind -> function(values, attributes) -> output values; given to avoid an import cycle

    def begin_with(self, graph: Graph) -> None:
        """Everything that a graph has."""
        self.values, self.inputs, self.operations = dict(graph.values), list(graph.inputs), list(graph.operations)

    def declare(self, value: Value) -> str:
        """A value that comes from outside."""
        self.values[value.name] = value
        self.inputs.append(value.name)
        return value.name

    def fresh(self, name: str) -> str:
        """`name`, or `name.2`, `name.3`, ... if taken."""
        return unique_name(name, self.values.keys() | self.elsewhere)

    def add(
        self,
        kind: str,
        inputs: tuple[str, ...],
        name: str,
        *,
        layer: str = "",
        attributes: Any = None,
        names: tuple[str, ...] = (),
    ) -> tuple[str, ...]:
        """Append an operation; returns the names of its outputs: `names`, or `name` and `name.<suffix>` of each."""
        made = self._shapes(kind)(tuple(self.values[item] for item in inputs), attributes)
        outputs = []
        for index, (suffix, value) in enumerate(made):
            unique = self.fresh(names[index] if names else f"{name}.{suffix}" if suffix else name)
            self.values[unique] = replace(value, name=unique, layer=value.layer or layer)
            outputs.append(unique)
        self.operations.append(
            Operation(
                name=unique_name(name, {op.name for op in self.operations} | self.elsewhere),
                kind=kind,
                inputs=inputs,
                outputs=tuple(outputs),
                phase=self.phase,
                layer=layer,
                attributes=attributes,
            )
        )
        return tuple(outputs)

    def one(self, kind: str, inputs: tuple[str, ...], name: str, *, layer: str = "", attributes: Any = None) -> str:
        """`add` for an operation with one output."""
        return self.add(kind, inputs, name, layer=layer, attributes=attributes)[0]

    def rename(self, old: str, new: str) -> None:
        """Another name for a value that an operation has made; no value has it yet."""
        whole = self.graph(()).renamed({old: new})
        self.values, self.operations = dict(whole.values), list(whole.operations)

    def graph(self, outputs: tuple[str, ...]) -> Graph:
        return Graph(
            inputs=tuple(self.inputs), outputs=outputs, operations=tuple(self.operations), values=dict(self.values)
        )


class Backward(GraphBuilder):
    """Where a gradient rule writes its operations: into the graph that has the forward values."""

    def saved(self, name: str) -> str:
        """The name under which a forward value can be read."""
        return name

    def forward_value(self, name: str) -> Value:
        """Shape and form of a forward value."""
        return self.values[name]


Outputs = tuple[tuple[str, Value], ...]  # suffix of the name, and the value
Shapes = Callable[[tuple[Value, ...], Any], Outputs]
Flops = Callable[[tuple[Value, ...], Any], int]
Evaluate = Callable[..., tuple[Any, ...]]
Vjp = Callable[..., tuple[str | None, ...]]


@dataclass(frozen=True, kw_only=True)
class OpDef:
    """An operation.

    shapes(inputs, attributes) -> (suffix, value) per output. evaluate(attributes, *inputs) -> outputs, in plain numpy.
    vjp(backward, operation, *cotangents of the outputs) -> cotangents of the inputs; None means no gradient, which an
    only output has only if it is the loss.
    flops(inputs, attributes) -> floating-point operations of the dense meaning.
    recomputed: its outputs are computed again where a gradient rule reads them, and never stashed.
    through(operation, values) -> the outputs that depend on some of these inputs, where that is not all of them.
    """

    name: str
    shapes: Shapes
    evaluate: Evaluate
    flops: Flops
    vjp: Vjp | None = None
    recomputed: bool = False
    through: Callable[[Operation, set[str]], set[str]] | None = None


def shaped(shape: Callable[[tuple[Value, ...], Any], tuple[int, ...]]) -> Shapes:
    """One array, of the shape that follows from (inputs, attributes)."""
    return lambda values, attributes: (("", Value(name="", shape=shape(values, attributes))),)


def like(operand: int) -> Shapes:
    """One array of the shape of an input."""
    return shaped(lambda values, _: values[operand].shape)


def listed_like(operand: int) -> Shapes:
    """The same with the capacity of the input: of sparse spikes, a number per listed id."""
    return lambda values, _: (("", Value(name="", shape=values[operand].shape, capacity=values[operand].capacity)),)


scalar = shaped(lambda _values, _: ())


def per_element(flops: int, operand: int = 0) -> Flops:
    """So many for every element of an input."""
    return lambda values, _: flops * elements(values[operand])


no_flops = per_element(0)


def pulled_back_by(kind: str, name: str, *reads: int) -> Vjp:
    """The rule that makes the gradient of the first input by one operation, from that of the first output and from what
    the operation read and made, by number: inputs from 0 on, outputs from -1 back; other inputs get none. name: of the
    gradient, in terms of {layer} and {input}."""

    def vjp(build: Backward, op: Operation, gradient: str, *_: str | None) -> tuple[str | None, ...]:
        inputs = (gradient, *(build.saved((*op.inputs, *op.outputs)[at]) for at in reads))
        made = name.format(layer=op.layer, input=op.inputs[0])
        others = (None,) * (len(op.inputs) - 1)
        return build.one(kind, inputs, made, layer=op.layer, attributes=op.attributes), *others

    return vjp


def summed(rows: np.ndarray) -> np.ndarray:
    """[1, columns] of [rows, columns]: numpy adds many rows of float32 one by one, which rounds more than tiles do."""
    total: np.ndarray = rows.sum(axis=0, keepdims=True, dtype=np.float64).astype(rows.dtype)
    return total


def elements(value: Value) -> int:
    """Number of elements of the dense meaning."""
    count = 1
    for extent in value.shape:
        count *= extent
    return count
