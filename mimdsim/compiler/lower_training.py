"""Loss and update on tiles: per-sample work on the sample tiles, updates where the weights lie."""

from __future__ import annotations

import numpy as np

from mimdsim.codelets import training as codelets
from mimdsim.compiler.context import Lowering
from mimdsim.graph import Adam, Operation
from mimdsim.program import VertexTable


def _samples(low: Lowering) -> tuple[np.ndarray, np.ndarray]:
    index = np.arange(low.network.batch)
    return low.placement.sample_tiles, index


def lower_counts(low: Lowering, ops: tuple[Operation, ...]) -> None:
    """spike_counts: how often each output neuron fired, per sample."""
    (op,) = ops
    batch, classes = low.network.batch, low.network.classes
    totals = low.variable("totals", (batch, classes), "int32", low.by_sample(0), "gradients")
    low.storage[op.outputs[0]] = (totals,)
    low.outputs[op.outputs[0]] = totals
    ids, counts = low.storage[op.inputs[0]]
    tiles, index = _samples(low)
    table = VertexTable(
        codelet=codelets.COUNT_SPIKES,
        layer=op.layer,
        tiles=tiles,
        operands={"ids": ids, "counts": counts, "totals": totals},
        columns={"sample": index},
        extents={"timesteps": np.full(batch, low.network.timesteps), "classes": np.full(batch, classes)},
    )
    low.emit("count spikes", op.kind, tables=(table,), defines=((totals, op.outputs[0]),))


def lower_cross_entropy(low: Lowering, ops: tuple[Operation, ...]) -> None:
    """cross_entropy and its gradient in one vertex per sample."""
    loss, gradient = ops
    batch, classes = low.network.batch, low.network.classes
    losses = low.variable("losses", (batch,), "float64", low.by_sample(0), "gradients")
    d_counts = low.variable("d_counts", (batch, classes), "float32", low.by_sample(0), "gradients")
    low.storage[loss.outputs[0]] = (losses,)
    low.outputs[loss.outputs[0]] = losses
    low.storage[gradient.outputs[0]] = (d_counts,)
    tiles, index = _samples(low)
    totals, labels = (low.storage[name][0] for name in loss.inputs)
    table = VertexTable(
        codelet=codelets.CROSS_ENTROPY,
        layer=loss.layer,
        tiles=tiles,
        operands={"totals": totals, "labels": labels, "losses": losses, "gradient": d_counts},
        columns={"sample": index},
        extents={"classes": np.full(batch, classes)},
        constants={"scale": float(loss.attributes.scale)},
    )
    low.emit("cross-entropy", loss.kind, tables=(table,), defines=((d_counts, gradient.outputs[0]),))


def lower_counts_gradient(low: Lowering, ops: tuple[Operation, ...]) -> None:
    """spike_counts_gradient: the gradient of each listed output, for every timestep."""
    (op,) = ops
    network = low.network
    gradient, spikes = op.inputs
    ids, counts = low.storage[spikes]
    capacity = low.variables[ids].shape[2]
    shape = (network.timesteps, network.batch, capacity)
    g = low.variable("g.output.sequence", shape, "float32", low.by_sample(1), "gradients")
    low.storage[op.outputs[0]] = (g,)
    tiles, index = _samples(low)
    table = VertexTable(
        codelet=codelets.LIST_COUNT_GRADIENT,
        layer=op.layer,
        tiles=tiles,
        operands={"ids": ids, "counts": counts, "gradient": low.storage[gradient][0], "g": g},
        columns={"sample": index},
        extents={"timesteps": np.full(network.batch, network.timesteps), "capacity": np.full(network.batch, capacity)},
    )
    low.emit("list gradient", op.kind, tables=(table,), defines=((g, op.outputs[0]),))


def lower_update(low: Lowering, ops: tuple[Operation, ...]) -> None:
    """sgd or adam in place on the tiles that hold the weights."""
    (op,) = ops
    placed = low.placed(op.layer)
    fan_in = low.layer(op.layer).inputs
    columns = {"start": placed.starts, "stop": placed.stops}
    names = [low.storage[name][0] for name in op.inputs]
    optimiser = op.attributes
    if isinstance(optimiser, Adam):
        codelet = codelets.ADAM
        operands = dict(zip(("w", "gradient", "m", "v", "progress"), names, strict=True))
        constants: dict[str, object] = {
            "rate": float(optimiser.learning_rate),
            "beta1": float(optimiser.beta1),
            "beta2": float(optimiser.beta2),
            "epsilon": float(optimiser.epsilon),
        }
        made: tuple[str, ...] = (operands["w"], operands["m"], operands["v"])
    else:
        codelet = codelets.SGD
        operands = dict(zip(("w", "gradient"), names, strict=True))
        constants = {"rate": np.float32(optimiser.learning_rate)}
        made = (operands["w"],)
    for value, variable in zip(op.outputs, made, strict=True):
        low.storage[value] = (variable,)
        low.outputs[value] = variable
    table = VertexTable(
        codelet=codelet,
        layer=op.layer,
        tiles=placed.tiles,
        operands=operands,
        columns=columns,
        extents={"elements": (placed.stops - placed.starts) * fan_in},
        constants=constants,
    )
    low.emit("update weights", op.kind, tables=(table,), defines=((made[0], op.outputs[0]),), layer=op.layer)


RULES = {
    ("spike_counts",): lower_counts,
    ("cross_entropy", "cross_entropy_gradient"): lower_cross_entropy,
    ("spike_counts_gradient",): lower_counts_gradient,
    ("sgd",): lower_update,
    ("adam",): lower_update,
}
