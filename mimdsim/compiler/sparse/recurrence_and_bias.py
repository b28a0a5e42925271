"""Currents of their own on tiles: one variable per source of a layer's current, summed where its neurons lie.

Synapses of several sources share a superstep and its exchange; sums, bias and integration exchange nothing.
"""

from __future__ import annotations

from mimdsim.codelets import recurrence_and_bias as codelets
from mimdsim.codelets.dense import SUM_REPLICAS
from mimdsim.codelets.spikes import SYNAPSE_CURRENT_PART
from mimdsim.compiler.context import Lowering, Rules
from mimdsim.compiler.layout import in_bands
from mimdsim.compiler.sparse.selection import received
from mimdsim.compiler.sparse.spikes import emit_parts, parts_of, replica_columns, replicate_spikes
from mimdsim.graph import Operation
from mimdsim.program import Codelet


def synapse_inputs(low: Lowering, op: Operation) -> dict[str, str]:
    """Operands of a vertex that sums weights: of listed ids, or by a dense row."""
    source = received(low, op.inputs[0])
    names = ("row",) if len(source) == 1 else ("ids", "counts")
    return {"w": low.storage[op.inputs[1]][0], **dict(zip(names, source, strict=True))}


def emit_current(low: Lowering, op: Operation) -> str:
    """The current [batch, neurons] from listed ids, in parts on their tiles and then summed with the states."""
    layer, (name,) = op.layer, op.outputs
    shape = (low.placed(layer).fan_in_parts, low.network.batch, low.layer(layer).neurons)
    placed = low.placed(layer)
    parts = (low.in_parts(placed, placed.batch_edges, placed.grid[:, part], 2) for part in range(shape[0]))
    mapping = in_bands(0, ((part, part + 1, each) for part, each in enumerate(parts)))
    partial = low.variable(f"{name}.parts", shape, "float32", mapping, "neuron states")
    operands = {"current": partial, **synapse_inputs(low, op)}
    where, follows = parts_of(low, layer, low.variables[operands["w"]].shape[0]), low.origin(op.inputs[0])
    low.compute("synapse current", op, SYNAPSE_CURRENT_PART, *where, operands, follows=follows)
    current = low.plane(name, layer, "neuron states")
    operands = {"replicas": partial, "total": current}
    low.compute("sum parts", op, *low.over_neurons(SUM_REPLICAS, layer), operands)
    return current


def lower_synapse(low: Lowering, op: Operation) -> None:
    """synapse: the weights of listed ids, or of a dense row, summed per neuron; self_synapse: every neuron's own weight
    where it has fired."""
    if op.kind == "synapse" and low.placed(op.layer).fan_in_parts > 1:
        low.storage[op.outputs[0]] = (emit_current(low, op),)
        return
    operands = synapse_inputs(low, op)
    current = low.plane(op.outputs[0], op.layer, "neuron states")
    low.storage[op.outputs[0]] = (current,)
    where, operands = low.by_sample_and_tile(op.layer), {"current": current, "r": operands["w"], **operands}
    codelet = SYNAPSES[op.kind, "row" in operands]
    low.compute("synapse current", op, codelet, *where, operands, follows=low.origin(op.inputs[0]))


SYNAPSES: dict[tuple[str, bool], Codelet] = {  # by kind, from listed ids or a dense row
    ("synapse", False): codelets.SYNAPSE_CURRENT,
    ("synapse", True): codelets.SYNAPSE_CURRENT_DENSE,
    ("self_synapse", False): codelets.SELF_SYNAPSE,
    ("self_synapse", True): codelets.SELF_SYNAPSE_DENSE,
}


def lower_bias(low: Lowering, op: Operation) -> None:
    """bias_add: in place on the current."""
    current, bias = (low.storage[name][0] for name in op.inputs)
    low.storage[op.outputs[0]] = (current,)
    where = low.over_neurons(codelets.BIAS_ADD, op.layer, whole=("bias",))
    low.compute("add bias", op, *where, {"current": current, "bias": bias})


def lower_add(low: Lowering, op: Operation) -> None:
    """add: of two currents where the neurons lie, or of two gradients at the same listed ids; in place on one."""
    total, other = (low.storage[name][0] for name in op.inputs)
    own = low.storage.get(op.outputs[0], ())
    if own == (other,) or (not own and op.inputs[0] in low.carried):  # a carry's old value may still be read
        total, other = other, total
    low.storage[op.outputs[0]] = (total,)
    operands = {"total": total, "other": other}
    if low.values[op.outputs[0]].capacity:
        low.compute("add gradients", op, codelets.ADD_SLOTS, *low.rows_of(total), operands)
    else:
        low.compute("add currents", op, *low.over_neurons(codelets.ADD_COLUMNS, op.layer), operands)


def lower_self_weight_gradient(low: Lowering, gradient: Operation, add: Operation) -> None:
    """self_synapse_weight_gradient + add: every worker context adds its samples into a replica of its own."""
    q, spikes = gradient.inputs
    ids, counts = replicate_spikes(low, spikes, gradient.layer)
    operands = {"dw": low.accumulate(gradient, add), "q": low.storage[q][0], "ids": ids, "counts": counts}
    where, follows = replica_columns(low, gradient.layer), low.origin(spikes)
    low.compute("weight gradient", gradient, codelets.SELF_WEIGHT_GRADIENT, *where, operands, follows=follows)


def lower_bias_gradient(low: Lowering, gradient: Operation, add: Operation) -> None:
    """bias_gradient + add: every worker context adds its samples into a replica of its own."""
    operands = {"db": low.accumulate(gradient, add), "q": low.storage[gradient.inputs[0]][0]}
    where = replica_columns(low, gradient.layer)
    low.compute("bias gradient", gradient, codelets.BIAS_GRADIENT, *where, operands)


def lower_self_input_gradient(low: Lowering, op: Operation) -> None:
    """self_synapse_spike_gradient: each id's product on the tile of its neuron, brought together as partial sums are.

    Every other tile contributes zeros; which tile holds an id is known only when the spikes are.
    """
    q, _, row = (low.storage[name][0] for name in op.inputs)
    grid = low.placed(op.layer).homes
    emit_parts(low, op, "input gradient", codelets.SELF_INPUT_GRADIENT, {"r": row, "q": q}, grid)


RULES: Rules = {
    ("synapse",): lower_synapse,
    ("self_synapse",): lower_synapse,
    ("add",): lower_add,
    ("bias_add",): lower_bias,
    ("self_synapse_weight_gradient", "add"): lower_self_weight_gradient,
    ("self_synapse_spike_gradient",): lower_self_input_gradient,
    ("bias_gradient", "add"): lower_bias_gradient,
}
