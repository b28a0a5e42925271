"""Dense spikes on tiles: what has one number per neuron, a bias or a synapse of every neuron onto itself."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from mimdsim.codelets import rows as codelets
from mimdsim.compiler.dense.context import ArrayLowering
from mimdsim.graph import Operation
from mimdsim.program import Codelet, TileMapping

Operations = tuple[Operation, ...]


def _lower_with_row(low: ArrayLowering, op: Operation, codelet: Codelet, source: str, row: str) -> None:
    """target = source and a row that every tile receives anew."""
    target = low.result(op, low.blocks[source], "neuron states" if low.phase == "forward" else "gradients")
    operands = {"source": source, "row": row, "target": target}
    table = low.on_boxes(codelet, operands, low.blocks[target], op.layer)
    low.emit(op.kind.replace("_", " "), op.kind, tables=(table,), defines=((target, op.outputs[0]),), layer=op.layer)


def lower_bias(low: ArrayLowering, ops: Operations) -> None:
    """bias_add: the same row for every sample."""
    (op,) = ops
    current, row = (low.storage[name][0] for name in op.inputs)
    _lower_with_row(low, op, codelets.ADD_ROW, current, row)


def lower_self_synapse(low: ArrayLowering, ops: Operations) -> None:
    """self_synapse: every neuron's own spike times its weight."""
    (op,) = ops
    spikes, row = (low.storage[name][0] for name in op.inputs)
    _lower_with_row(low, op, codelets.MULTIPLY_ROW, spikes, row)


def lower_own_spike_gradient(low: ArrayLowering, ops: Operations) -> None:
    """self_synapse_spike_gradient: q times the weight."""
    (op,) = ops
    q, _, row = (low.storage[name][0] for name in op.inputs)
    _lower_with_row(low, op, codelets.MULTIPLY_ROW, q, row)


def lower_row_gradient(low: ArrayLowering, ops: Operations) -> None:
    """A gradient of a row and its sum over time: samples added up where they lie, then over tiles."""
    gradient, add = ops
    held = next(name for name in add.inputs if name not in gradient.outputs)
    total = low.storage[held][0]
    low.storage[add.outputs[0]] = (total,)
    names = [low.storage[name][0] for name in gradient.inputs]
    blocks, width = low.blocks[names[0]], low.variables[total].shape[1]
    spans, piece = np.unique(np.stack([blocks.row_start, blocks.row_stop], axis=1), axis=0, return_inverse=True)
    piece = piece.ravel()
    bounds = np.stack([np.stack([piece, piece + 1], axis=1), np.stack([blocks.start, blocks.stop], axis=1)], axis=1)
    shape = (len(spans), width)
    mapping = TileMapping.of_boxes(blocks.tiles, bounds, shape)
    pieces = low.variable(f"pieces.{gradient.name}", shape, "float32", mapping, "exchange buffers")
    bias = len(names) == 1
    operands = {"source": names[0]} if bias else {"one": names[0], "other": names[1]}
    table = low.on_boxes(
        codelets.SUM_SAMPLES if bias else codelets.SUM_PRODUCTS,
        {**operands, "pieces": pieces},
        blocks,
        gradient.layer,
        columns={"piece": piece},
    )
    layer = gradient.layer
    low.emit("sum samples", gradient.kind, tables=(table,), mergeable=False, layer=layer)
    ends = low.blocks[total]
    table = low.on_boxes(codelets.ADD_PIECES, {"total": total, "pieces": pieces}, ends, layer)
    done = ((total, add.outputs[0]),)
    low.emit("add pieces", gradient.kind, tables=(table,), defines=done, mergeable=False, layer=layer)


RULES: dict[tuple[str, ...], Callable[[ArrayLowering, Operations], None]] = {
    ("bias_add",): lower_bias,
    ("bias_gradient", "add"): lower_row_gradient,
    ("self_synapse",): lower_self_synapse,
    ("self_synapse_weight_gradient", "add"): lower_row_gradient,
    ("self_synapse_spike_gradient",): lower_own_spike_gradient,
}
