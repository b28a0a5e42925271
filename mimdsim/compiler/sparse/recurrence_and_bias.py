"""Currents of their own on tiles: one variable per source of a layer's current, summed where its neurons lie.

Synapses of several sources share a superstep and its exchange; sums, bias and integration exchange nothing.
"""

from __future__ import annotations

import numpy as np

from mimdsim.codelets import recurrence_and_bias as codelets
from mimdsim.codelets.dense import SUM_REPLICAS
from mimdsim.codelets.fan_in import SYNAPSE_CURRENT_PART
from mimdsim.compiler.context import Lowering, in_bands
from mimdsim.compiler.sparse.selection import received
from mimdsim.compiler.sparse.spikes import (
    emit_reduction,
    listed_gradient,
    partial_sums,
    parts_of,
    replica_columns,
    replicate_spikes,
)
from mimdsim.graph import Operation
from mimdsim.program import Hits, Listed, Spikes, SpikesOver
from mimdsim.program.loop_extents import Recorded

Operations = tuple[Operation, ...]


def synapse_inputs(low: Lowering, op: Operation) -> tuple[dict[str, str], dict[str, np.ndarray | Recorded]]:
    """Operands and extents of a vertex that sums weights: of listed ids, or by a dense row."""
    spikes, weights = op.inputs
    source, (layer, shift) = received(low, spikes), low.origin(spikes)
    names = ("row",) if len(source) == 1 else ("ids", "counts")
    operands = {"w": low.storage[weights][0], **dict(zip(names, source, strict=True))}
    return operands, {"spikes": Spikes(layer=layer, shift=shift)}


def emit_current(low: Lowering, op: Operation) -> str:
    """The current [batch, neurons] from listed ids, in parts on their tiles and then summed with the states."""
    layer, (name,) = op.layer, op.outputs
    shape = (low.placed(layer).fan_in_parts, low.network.batch, low.layer(layer).neurons)
    placed = low.placed(layer)
    parts = (low.in_parts(placed, placed.batch_edges, placed.grid[:, part], 2) for part in range(shape[0]))
    mapping = in_bands(0, ((part, part + 1, each) for part, each in enumerate(parts)))
    partial = low.variable(f"{name}.parts", shape, "float32", mapping, "neuron states")
    operands, extents = synapse_inputs(low, op)
    source, shift = low.origin(op.inputs[0])
    hits = Hits(layer=source, shift=shift, which="spikes")
    tiles, columns = parts_of(low, layer, low.variables[operands["w"]].shape[0])
    operands, extents = {"current": partial, **operands}, {**extents, "hits": hits}
    low.compute("synapse current", op, SYNAPSE_CURRENT_PART, tiles, columns, operands, extents=extents)
    current = low.plane(name, layer, "neuron states")
    operands = {"replicas": partial, "total": current}
    low.compute("sum parts", op, *low.over_neurons(SUM_REPLICAS, layer), operands)
    return current


def lower_synapse(low: Lowering, ops: Operations) -> None:
    """synapse: the weights of listed ids, or of a dense row, summed per neuron."""
    (op,) = ops
    if low.placed(op.layer).fan_in_parts > 1:
        low.storage[op.outputs[0]] = (emit_current(low, op),)
        return
    operands, extents = synapse_inputs(low, op)
    codelet = codelets.SYNAPSE_CURRENT_DENSE if "row" in operands else codelets.SYNAPSE_CURRENT
    current = low.plane(op.outputs[0], op.layer, "neuron states")
    low.storage[op.outputs[0]] = (current,)
    where, operands = low.by_sample_and_tile(op.layer), {"current": current, **operands}
    defines = ((current, op.outputs[0]),)
    low.compute("synapse current", op, codelet, *where, operands, extents=extents, defines=defines)


def lower_self_synapse(low: Lowering, ops: Operations) -> None:
    """self_synapse: every neuron's own weight where it has fired."""
    (op,) = ops
    operands, extents = synapse_inputs(low, op)
    layer, shift = low.origin(op.inputs[0])
    extents["hits"] = Hits(layer=layer, shift=shift, which="spikes")
    codelet = codelets.SELF_SYNAPSE
    if "row" in operands:
        codelet, extents = codelets.SELF_SYNAPSE_DENSE, {}
    current = low.plane(op.outputs[0], op.layer, "neuron states")
    low.storage[op.outputs[0]] = (current,)
    where, operands = low.by_sample_and_tile(op.layer), {"current": current, "r": operands.pop("w"), **operands}
    defines = ((current, op.outputs[0]),)
    low.compute("synapse current", op, codelet, *where, operands, extents=extents, defines=defines)


def lower_bias(low: Lowering, ops: Operations) -> None:
    """bias_add: in place on the current."""
    (op,) = ops
    current, bias = (low.storage[name][0] for name in op.inputs)
    low.storage[op.outputs[0]] = (current,)
    where = low.over_neurons(codelets.BIAS_ADD, op.layer, whole=("bias",))
    low.compute("add bias", op, *where, {"current": current, "bias": bias}, defines=((current, op.outputs[0]),))


def lower_add(low: Lowering, ops: Operations) -> None:
    """add: of two currents where the neurons lie, or of two gradients at the same listed ids; in place on one."""
    (op,) = ops
    total, other = (low.storage[name][0] for name in op.inputs)
    own = low.storage.get(op.outputs[0], ())
    if own == (other,) or (not own and op.inputs[0] in low.carried):  # a carry's old value may still be read
        total, other = other, total
    low.storage[op.outputs[0]] = (total,)
    operands, defines = {"total": total, "other": other}, ((total, op.outputs[0]),)
    if low.values[op.outputs[0]].capacity:
        low.compute("add gradients", op, codelets.ADD_SLOTS, *low.rows_of(total), operands, defines=defines)
    else:
        low.compute("add currents", op, *low.over_neurons(codelets.ADD_COLUMNS, op.layer), operands, defines=defines)


def lower_self_weight_gradient(low: Lowering, ops: Operations) -> None:
    """self_synapse_weight_gradient + add: every worker context adds its samples into a replica of its own."""
    gradient, add = ops
    dw = low.accumulate(gradient, add)
    q, spikes = gradient.inputs
    ids, counts = replicate_spikes(low, spikes, gradient.layer)
    layer, shift = low.origin(spikes)
    hits = Hits(layer=layer, shift=shift, which="spikes")
    low.compute(
        "weight gradient",
        gradient,
        codelets.SELF_WEIGHT_GRADIENT,
        *replica_columns(low, gradient.layer),
        {"dw": dw, "q": low.storage[q][0], "ids": ids, "counts": counts},
        extents={"spikes": SpikesOver(layer=layer, shift=shift), "hits": hits},
    )


def lower_bias_gradient(low: Lowering, ops: Operations) -> None:
    """bias_gradient + add: every worker context adds its samples into a replica of its own."""
    gradient, add = ops
    operands = {"db": low.accumulate(gradient, add), "q": low.storage[gradient.inputs[0]][0]}
    where = replica_columns(low, gradient.layer)
    low.compute("bias gradient", gradient, codelets.BIAS_GRADIENT, *where, operands)


def lower_self_input_gradient(low: Lowering, ops: Operations) -> None:
    """self_synapse_spike_gradient: each id's product on the tile of its neuron, brought together as partial sums are.

    Every other tile contributes zeros; which tile holds an id is known only when the spikes are.
    """
    (op,) = ops
    q, spikes, row = op.inputs
    ids, counts = replicate_spikes(low, spikes, op.layer)
    partial = partial_sums(low, op, low.placed(op.layer).homes)
    r, q = (low.storage[name][0] for name in (row, q))
    layer, shift = low.origin(spikes)
    low.compute(
        "input gradient",
        op,
        codelets.SELF_INPUT_GRADIENT,
        *low.by_sample_and_tile(op.layer, parts=True),
        {"partial": partial, "r": r, "q": q, "ids": ids, "counts": counts},
        extents={"listed": Listed(layer=layer, shift=shift), "hits": Hits(layer=layer, shift=shift)},
    )
    emit_reduction(low, op, partial, low.storage[spikes][1], listed_gradient(low, op))


RULES = {
    ("synapse",): lower_synapse,
    ("self_synapse",): lower_self_synapse,
    ("add",): lower_add,
    ("bias_add",): lower_bias,
    ("self_synapse_weight_gradient", "add"): lower_self_weight_gradient,
    ("self_synapse_spike_gradient",): lower_self_input_gradient,
    ("bias_gradient", "add"): lower_bias_gradient,
}
