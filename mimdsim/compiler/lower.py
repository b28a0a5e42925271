"""Lowering: operations of a graph, of training or inference, fused where one vertex does the work of two, to
supersteps on tiles.

Each family file brings its rules: kinds of the fused operations -> function. A kind without a rule is refused by name.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import networkx as nx
import numpy as np

from mimdsim.base.errors import MappingError
from mimdsim.compiler import derived
from mimdsim.compiler import losses as lower_losses
from mimdsim.compiler import training as lower_training
from mimdsim.compiler.context import Lowering, Rules
from mimdsim.compiler.dense import layers as lower_arrays
from mimdsim.compiler.dense import time as lower_array_time
from mimdsim.compiler.dense.context import ArrayLowering
from mimdsim.compiler.layout import MOMENTS, WORD_BYTES
from mimdsim.compiler.place.layer_partition import Placement
from mimdsim.compiler.sparse import neurons as lower_neurons
from mimdsim.compiler.sparse import recurrence_and_bias as lower_wiring
from mimdsim.compiler.sparse import selection as lower_selection
from mimdsim.compiler.sparse import spikes as lower_spikes
from mimdsim.compiler.sparse import time as lower_time
from mimdsim.compiler.sparse.time import stash_of
from mimdsim.compiler.time_slices import count_where_read
from mimdsim.graph import Graph, Operation, Scan, SpikingNetwork
from mimdsim.graph.names import INPUT, LABELS, TRAINING_STEP, gradient_of, listed, spikes_of
from mimdsim.machine import MimdMachine
from mimdsim.program import Observables, Potential, Program, TileMapping
from mimdsim.workload.description.mapping import MappingOptions

RULES: Rules = {
    **lower_neurons.RULES,
    **lower_selection.RULES,
    **lower_spikes.RULES,
    **lower_wiring.RULES,
    **derived.RULES,
    **lower_losses.RULES,
    **lower_training.RULES,
}
ARRAY_RULES: Rules = {  # of dense spikes
    **lower_losses.OF_READINGS,
    **lower_training.RULES,
    **derived.OF_BOTH,
    **lower_arrays.RULES,
    **lower_neurons.ARRAY_RULES,
}
IDS, COUNTS = listed(INPUT)
BATCH = {INPUT, IDS, COUNTS, LABELS}
SPIKING = ("spike", "select_spikes")  # their first input is held against a threshold
# what writes its result over its first input
OVERWRITES = ("add_read_out", *lower_neurons.OVERWRITES)


def lower(
    graph: Graph, network: SpikingNetwork, placement: Placement, options: MappingOptions, machine: MimdMachine
) -> Program:
    """The program of a graph; raises MappingError for an operation that has no rule."""
    dense = placement.arrays is not None
    low = (ArrayLowering if dense else Lowering)(
        tiles=placement.tiles,
        chips=placement.chips,
        network=network,
        placement=placement,
        options=options,
        machine=machine,
        rules=ARRAY_RULES if dense else RULES,
        lower_body=_lower_body,
    )
    low.stash = stash_of(graph, network, options.stash, options.spike_exchange)
    low.values = graph.values
    _declare_inputs(low)
    for ops in fuse(graph, low.rules):
        low.phase = ops[0].phase
        low.values = graph.values
        if ops[0].kind == "scan":
            scans = lower_array_time if dense else lower_time
            (scans.lower_backward if ops[0].attributes.reverse else scans.lower_forward)(low, ops[0])
        elif ops[0].kind != "zeros":  # zeros are made where the scan declares its carries
            _apply(low, ops)
    program = count_where_read(low.program())
    return replace(
        program,
        streamed=streamed_bytes(program),
        bounds=_bounds(program, low.network),
        observables=_observables(low, graph),
    )


def _observables(low: Lowering, graph: Graph) -> Observables:
    """What a run may ask of the program by what it is."""
    potentials = {
        op.layer: Potential(value=op.inputs[0], sequence=low.sequences.get(op.inputs[0], ""))
        for scan in graph.scans("forward")
        for op in scan.attributes.body.operations
        if op.kind in SPIKING and not low.layer(op.layer).cell
    }
    gradients = {name: gradient_of(name) for name in low.network.trained}
    return Observables(
        gradients={name: gradient for name, gradient in gradients.items() if gradient in graph.outputs},
        generators=tuple(name for name in graph.inputs if graph.value(name).role == "generator"),
        potentials=potentials,
        passing=_passing(low),
        positions={layer.name: layer.positions for layer in low.network.layers if layer.positions > 1},
    )


def _passing(low: Lowering) -> dict[str, tuple[str, ...]]:
    """Where the spikes of layers lie that no sequence keeps."""
    emitted = {layer.name: spikes_of(layer.name) for layer in low.network.layers if layer.spiking}
    return {layer: low.storage[spikes] for layer, spikes in emitted.items() if layer not in low.recorded}


def _bounds(program: Program, network: SpikingNetwork) -> dict[str, tuple[int, int]]:
    """Of the whole numbers that the host writes: what is beyond them would be looked up outside of some array."""
    found = {
        IDS: (0, network.inputs - 1),
        COUNTS: (0, network.input_capacity),
        LABELS: (0, network.classes - 1),
        TRAINING_STEP: (1, (1 << 63) - 1),
    }
    return {name: each for name, each in found.items() if name in program.inputs}


def streamed_bytes(program: Program) -> dict[str, int]:
    """Bytes of a batch by input: dense input, or ids with one count per list; and labels."""
    found = {}
    for name in program.inputs.keys() & BATCH:
        variable = program.variables[program.inputs[name]]
        size = int(np.prod(variable.shape, dtype=np.int64)) * variable.item_bytes
        found[name] = size // 2 if name == COUNTS else size
    return dict(sorted(found.items()))


def _declare_inputs(low: Lowering) -> None:
    """What the host writes beside the input: whatever the graph takes of it."""
    network, taken = low.network, low.values
    for name, parameter in network.parameters.items():
        low.parameter(name, parameter.shape, "weights", parameter.layer)
        for state in filter(taken.__contains__, map(parameter.kept, network.optimiser.state)):
            low.parameter(state, parameter.shape, MOMENTS, parameter.layer)
    if LABELS in taken:
        labels = low.variable(LABELS, (network.batch,), "int32", low.by_sample(0), "gradients")
        low.inputs[LABELS] = labels
        low.storage[LABELS] = (labels,)
    if TRAINING_STEP in taken:
        everywhere = TileMapping.replicated(low.placement.usable_tiles)
        progress = low.variable(TRAINING_STEP, (1,), "int64", everywhere, "optimiser", persistent=True)
        low.inputs[TRAINING_STEP] = progress
        low.storage[TRAINING_STEP] = (progress,)
    for name in filter(taken.__contains__, network.scheduled):
        layer = low.values[name].layer  # none of a learning rate
        tiles = low.tiles_of(layer) if layer else low.placement.usable_tiles
        mapping = TileMapping.replicated(tiles)
        scalar = low.variable(name, (1,), "float32", mapping, "optimiser", persistent=True, stored_bytes=WORD_BYTES)
        low.inputs[name], low.storage[name] = scalar, (scalar,)


def _lower_body(low: Lowering, scan: Scan) -> None:
    low.scan_body = scan.body
    for ops in order_in_place(fuse(scan.body, low.rules), scan, low):
        _apply(low, ops)


def _apply(low: Lowering, ops: tuple[Operation, ...]) -> None:
    kinds = tuple(op.kind for op in ops)
    rules = low.rules
    rule = rules.get(kinds)
    if rule is None:
        form = "dense" if rules is ARRAY_RULES else "sparse"
        raise MappingError(
            f"operation '{ops[0].name}' of kind '{'+'.join(kinds)}' (layer '{ops[0].layer}') has no lowering of "
            f"{form} spikes to tiles; known: {sorted('+'.join(known) for known in rules)}. It runs on the GPU side and "
            f"in the interpreter"
        )
    low.operations = ops
    rule(low, *ops)


def order_in_place(groups: tuple[tuple[Operation, ...], ...], scan: Scan, low: Lowering) -> list[tuple[Operation, ...]]:
    """The body's groups in an order in which values may share storage.

    What reads a carry on entry comes before what makes it on leaving when both lie in the same variable, and what else
    reads an operand comes before the operation that overwrites it. Carried matrices for which there is no such order
    enter in a variable of their own. Raises MappingError when no order exists.
    """
    maker = {name: index for index, ops in enumerate(groups) for op in ops for name in op.outputs}
    same: dict[str, str] = {}  # what lies where another value does
    readers: dict[str, set[int]] = {}
    for index, ops in enumerate(groups):
        for op in ops:
            if op.kind == "rescale_gradient":
                same[op.outputs[0]] = same.get(op.inputs[0], op.inputs[0])
            for name in {*op.inputs, *(same[name] for name in op.inputs if name in same)}:
                readers.setdefault(name, set()).add(index)
    waits = nx.DiGraph()
    waits.add_nodes_from(range(len(groups)))
    for name, indices in readers.items():
        if name in maker:
            waits.add_edges_from((maker[name], index) for index in indices if index != maker[name])
    overwritten = [
        (carry.enters, index)
        for carry in scan.carries
        for name, index in maker.items()
        if carry.enters in low.storage and low.storage.get(name) == low.storage[carry.enters]
    ]
    entering = {carry.enters for carry in scan.carries}
    overwritten += [(op.inputs[0], index) for index, ops in enumerate(groups) for op in ops if op.kind in OVERWRITES]
    for name, writer in overwritten:
        for index in readers.get(name, set()) - {writer}:
            if not waits.has_edge(index, writer):  # what the writer reads of it, no variable more can spare
                waits.add_edge(index, writer, of=name)
    try:
        return [groups[index] for index in nx.lexicographical_topological_sort(waits)]
    except nx.NetworkXUnfeasible:
        cycle = nx.find_cycle(waits)
    for edge in cycle:
        name = waits.edges[edge].get("of")
        if isinstance(low, ArrayLowering) and name in entering and low.storage[name][0] in low.blocks:
            (held,), about = low.storage[name], scan.body.value(name)
            low.storage[name] = (low.copied(held, f"{held}.before", "neuron states", layer=about.layer),)
            return order_in_place(groups, scan, low)
    names = [groups[edge[0]][0].name for edge in cycle]
    raise MappingError(f"no order of {names} lets their values share storage; they need a buffer more")


def fuse(graph: Graph, rules: Collection[tuple[str, ...]] = RULES) -> tuple[tuple[Operation, ...], ...]:
    """Operations in order, a producer joined with its only consumer where one rule takes both."""
    fused = {kinds for kinds in rules if len(kinds) == 2}
    firsts = {kinds[0] for kinds in fused}
    consumers: dict[str, list[Operation]] = {}
    for op in graph.operations:
        for name in op.inputs:
            consumers.setdefault(name, []).append(op)
    partner: dict[str, Operation] = {}
    taken: set[str] = set()
    for op in graph.operations:
        if op.name in taken or op.kind not in firsts:
            continue
        # an adjoint of the potential that learned coefficients read too is made by itself
        apart = op.outputs if (op.kind, "neuron_readout_gradient") in fused else ()
        near = (*op.outputs, *op.inputs)
        joined = (name for name in near if name not in apart or len(consumers.get(name, ())) <= 1)
        for other in (other for name in joined for other in consumers.get(name, ())):
            # of layers without weights, the gradient of a current is that of another layer's spikes
            own = op.kind != "neuron_gradient" or op.layer == other.layer
            if own and (op.kind, other.kind) in fused and other.name not in taken and other.name != op.name:
                partner[op.name] = other
                taken.add(other.name)
                break
    left = (op for op in graph.operations if op.name not in taken)
    return tuple((op, partner[op.name]) if op.name in partner else (op,) for op in left)
