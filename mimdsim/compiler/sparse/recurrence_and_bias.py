"""Currents of their own on tiles: one variable per source of a layer's current, summed where its neurons lie.

Synapses of several sources share a superstep and its exchange; sums, bias and integration exchange nothing.
"""

from __future__ import annotations

import numpy as np

from mimdsim.codelets import recurrence_and_bias as codelets
from mimdsim.compiler.context import Lowering
from mimdsim.compiler.sparse.fan_in import emit_current
from mimdsim.compiler.sparse.neurons import integrate, tile_sample_columns
from mimdsim.compiler.sparse.selection import received
from mimdsim.compiler.sparse.spikes import (
    emit_reduction,
    listed_gradient,
    partial_sums,
    replica_columns,
    replicate_spikes,
)
from mimdsim.graph import Operation
from mimdsim.program import Hits, Listed, Spikes, SpikesOver, VertexTable


def _current_of(low: Lowering, op: Operation) -> str:
    """The variable of a current, split as the layer's neurons."""
    layer = low.layer(op.layer)
    shape = (low.network.batch, layer.neurons)
    held = low.variable(op.outputs[0], shape, "float32", low.on_neurons(layer.name, 1), "neuron states")
    low.storage[op.outputs[0]] = (held,)
    return held


def lower_synapse(low: Lowering, ops: tuple[Operation, ...]) -> None:
    """synapse: the weights of listed ids, or of a dense row, summed per neuron."""
    (op,) = ops
    placed = low.placed(op.layer)
    spikes, weights = op.inputs
    held = received(low, spikes)
    if placed.fan_in_parts > 1:
        given = (held[0], held[1]), low.storage[weights][0], op.outputs[0], low.origin(spikes)
        low.storage[op.outputs[0]] = (emit_current(low, op.layer, *given),)
        return
    dense = len(held) == 1
    tiles, columns = tile_sample_columns(placed, low.network.batch)
    layer, shift = low.origin(spikes)
    current = _current_of(low, op)
    table = VertexTable(
        codelet=codelets.SYNAPSE_CURRENT_DENSE if dense else codelets.SYNAPSE_CURRENT,
        layer=op.layer,
        tiles=tiles,
        operands={"current": current, "w": low.storage[weights][0], **_listed(held)},
        columns=columns,
        extents={"spikes": Spikes(layer=layer, shift=shift)},
    )
    low.emit("synapse current", op.kind, tables=(table,), defines=((current, op.outputs[0]),), layer=op.layer)


def lower_self_synapse(low: Lowering, ops: tuple[Operation, ...]) -> None:
    """self_synapse: every neuron's own weight where it has fired."""
    (op,) = ops
    spikes, row = op.inputs
    held = received(low, spikes)
    tiles, columns = tile_sample_columns(low.placed(op.layer), low.network.batch)
    layer, shift = low.origin(spikes)
    hits = Hits(layer=layer, shift=shift, which="spikes")
    current, dense = _current_of(low, op), len(held) == 1
    table = VertexTable(
        codelet=codelets.SELF_SYNAPSE_DENSE if dense else codelets.SELF_SYNAPSE,
        layer=op.layer,
        tiles=tiles,
        operands={"current": current, "r": low.storage[row][0], **_listed(held)},
        columns=columns,
        extents={} if dense else {"spikes": Spikes(layer=layer, shift=shift), "hits": hits},
    )
    low.emit("synapse current", op.kind, tables=(table,), defines=((current, op.outputs[0]),), layer=op.layer)


def _listed(held: tuple[str, ...]) -> dict[str, str]:
    """Operands of ids and counts, or of a row."""
    return dict(zip(("row",) if len(held) == 1 else ("ids", "counts"), held, strict=True))


def lower_bias(low: Lowering, ops: tuple[Operation, ...]) -> None:
    """bias_add: in place on the current."""
    (op,) = ops
    current, bias = (low.storage[name][0] for name in op.inputs)
    low.storage[op.outputs[0]] = (current,)
    codelet, tiles, columns = low.over_neurons(codelets.BIAS_ADD, op.layer, whole=("bias",))
    table = VertexTable(
        codelet=codelet,
        layer=op.layer,
        tiles=tiles,
        operands={"current": current, "bias": bias},
        columns=columns,
    )
    low.emit("add bias", op.kind, tables=(table,), defines=((current, op.outputs[0]),), layer=op.layer)


def lower_integrate(low: Lowering, ops: tuple[Operation, ...]) -> None:
    """lif: the neurons integrate a current that lies with them."""
    (op,) = ops
    before, current = (low.storage[name][0] for name in op.inputs)
    low.storage[op.outputs[0]] = (before,)
    integrate(low, op, before, current)


def lower_add(low: Lowering, ops: tuple[Operation, ...]) -> None:
    """add: of two currents where the neurons lie, or of two gradients at the same listed ids; in place on one."""
    (op,) = ops
    value = low.values[op.outputs[0]]
    total, other = (low.storage[name][0] for name in op.inputs)
    kept = low.storage.get(op.outputs[0], ())
    if kept == (other,) or (not kept and op.inputs[0] in low.carried):  # a carry's old value may still be read
        total, other = other, total
    low.storage[op.outputs[0]] = (total,)
    defines = ((total, op.outputs[0]),)
    if value.capacity:
        tiles, columns = low.rows_of(total)
        operands = {"total": total, "other": other}
        table = VertexTable(
            codelet=codelets.ADD_SLOTS,
            layer=op.layer,
            tiles=tiles,
            operands=operands,
            columns=columns,
        )
        low.emit("add gradients", op.kind, tables=(table,), defines=defines, layer=op.layer)
        return
    codelet, tiles, columns = low.over_neurons(codelets.ADD_COLUMNS, op.layer)
    table = VertexTable(
        codelet=codelet,
        layer=op.layer,
        tiles=tiles,
        operands={"total": total, "other": other},
        columns=columns,
    )
    low.emit("add currents", op.kind, tables=(table,), defines=defines, layer=op.layer)


def _accumulators(ops: tuple[Operation, ...], low: Lowering) -> str:
    """The replicas that an accumulated gradient goes to."""
    gradient, add = ops
    held = next(name for name in add.inputs if name not in gradient.outputs)
    low.storage[add.outputs[0]] = low.storage[held]
    return low.storage[held][0]


def lower_self_weight_gradient(low: Lowering, ops: tuple[Operation, ...]) -> None:
    """self_synapse_weight_gradient + add: every worker context adds its samples into a replica of its own."""
    gradient, _ = ops
    dw = _accumulators(ops, low)
    q, spikes = gradient.inputs
    ids, counts = replicate_spikes(low, spikes, gradient.layer)
    tiles, columns = replica_columns(low, gradient.layer)
    layer, shift = low.origin(spikes)
    table = VertexTable(
        codelet=codelets.SELF_WEIGHT_GRADIENT,
        layer=gradient.layer,
        tiles=tiles,
        operands={"dw": dw, "q": low.storage[q][0], "ids": ids, "counts": counts},
        columns=columns,
        extents={
            "spikes": SpikesOver(layer=layer, shift=shift),
            "hits": Hits(layer=layer, shift=shift, which="spikes"),
        },
    )
    low.emit("weight gradient", gradient.kind, tables=(table,), layer=gradient.layer)


def lower_bias_gradient(low: Lowering, ops: tuple[Operation, ...]) -> None:
    """bias_gradient + add: every worker context adds its samples into a replica of its own."""
    gradient, _ = ops
    db = _accumulators(ops, low)
    tiles, columns = replica_columns(low, gradient.layer)
    table = VertexTable(
        codelet=codelets.BIAS_GRADIENT,
        layer=gradient.layer,
        tiles=tiles,
        operands={"db": db, "q": low.storage[gradient.inputs[0]][0]},
        columns=columns,
    )
    low.emit("bias gradient", gradient.kind, tables=(table,), layer=gradient.layer)


def lower_self_input_gradient(low: Lowering, ops: tuple[Operation, ...]) -> None:
    """self_synapse_spike_gradient: each id's product on the tile of its neuron, brought together as partial sums are.

    Every other tile contributes zeros; which tile holds an id is known only when the spikes are.
    """
    (op,) = ops
    q, spikes, row = op.inputs
    ids, counts = replicate_spikes(low, spikes, op.layer)
    partial = partial_sums(low, op, low.placed(op.layer).homes)
    tiles, columns = tile_sample_columns(low.placed(op.layer), low.network.batch)
    columns["part"] = np.tile(np.arange(len(low.placed(op.layer).starts)), low.network.batch)
    layer, shift = low.origin(spikes)
    table = VertexTable(
        codelet=codelets.SELF_INPUT_GRADIENT,
        layer=op.layer,
        tiles=tiles,
        operands={
            "partial": partial,
            "r": low.storage[row][0],
            "q": low.storage[q][0],
            "ids": ids,
            "counts": counts,
        },
        columns=columns,
        extents={"listed": Listed(layer=layer, shift=shift), "hits": Hits(layer=layer, shift=shift)},
    )
    low.emit("input gradient", op.kind, tables=(table,), layer=op.layer)
    emit_reduction(low, op, partial, low.storage[spikes][1], listed_gradient(low, op))


RULES = {
    ("synapse",): lower_synapse,
    ("self_synapse",): lower_self_synapse,
    ("add",): lower_add,
    ("bias_add",): lower_bias,
    ("lif",): lower_integrate,
    ("self_synapse_weight_gradient", "add"): lower_self_weight_gradient,
    ("self_synapse_spike_gradient",): lower_self_input_gradient,
    ("bias_gradient", "add"): lower_bias_gradient,
}
