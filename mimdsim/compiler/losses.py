"""Read-outs and losses on tiles: potentials where the neurons lie, everything else per sample on the sample tiles."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from mimdsim.codelets import losses as codelets
from mimdsim.compiler.context import Lowering
from mimdsim.compiler.sparse.spikes import gradient_chips
from mimdsim.graph import Operation
from mimdsim.graph.losses import CountTargets
from mimdsim.graph.names import SCORES
from mimdsim.program import Codelet, Copy, TileMapping


def _per_sample(
    low: Lowering,
    stage: str,
    op: Operation,
    codelet: Codelet,
    operands: dict[str, str],
    made: str,
    constants: Any = None,
) -> None:
    """One vertex per sample on its tile, which makes the result of the operation."""
    defines = ((made, op.outputs[0]),)
    low.compute(stage, op, codelet, *low.per_sample, operands, constants=constants, defines=defines, named=False)


def _per_tile(
    low: Lowering,
    stage: str,
    op: Operation,
    codelet: Codelet,
    operands: dict[str, str],
    made: str,
    constants: Any = None,
) -> None:
    """One vertex per tile on the columns of its neurons, which makes the result of the operation."""
    where, defines = low.over_neurons(codelet, op.layer), ((made, op.outputs[0]),)
    low.compute(stage, op, *where, operands, constants=constants, defines=defines)


def keep(low: Lowering, op: Operation, variable: str) -> None:
    low.storage[op.outputs[0]] = (variable,)
    if op.outputs[0] == SCORES:
        low.outputs[SCORES] = variable


def lower_counts(low: Lowering, ops: tuple[Operation, ...]) -> None:
    """spike_counts: how often each output neuron fired, per sample."""
    (op,) = ops
    network, neurons, first = low.network, op.attributes.neurons, op.attributes.first
    totals = low.variable("totals", (network.batch, neurons), "int32", low.by_sample(0), "gradients")
    keep(low, op, totals)
    ids, counts = low.storage[op.inputs[0]]
    codelet = codelets.COUNT_LAST if first else codelets.COUNT_SPIKES
    operands = {"ids": ids, "counts": counts, "totals": totals}
    _per_sample(low, "count spikes", op, codelet, operands, totals, {"first": first})


def lower_emitted(low: Lowering, ops: tuple[Operation, ...]) -> None:
    """spikes_by_timestep: a row of zeros and ones per sample and timestep."""
    (op,) = ops
    network, neurons = low.network, op.attributes
    shape = (network.timesteps, network.batch, neurons)
    rows = low.variable("emitted", shape, "int32", low.by_sample(1), "gradients")
    low.storage[op.outputs[0]] = (rows,)
    ids, counts = low.storage[op.inputs[0]]
    operands = {"ids": ids, "counts": counts, "rows": rows}
    _per_sample(low, "emitted rows", op, codelets.EMITTED_ROWS, operands, rows)


def lower_loss(low: Lowering, ops: tuple[Operation, ...]) -> None:
    """A loss and its gradient in one vertex per sample."""
    loss, gradient = ops
    scores, labels = (low.storage[name][0] for name in loss.inputs)
    shape = low.variables[scores].shape
    by_timestep = len(shape) == 3
    losses = low.variable("losses", (low.network.batch,), "float64", low.by_sample(0), "gradients")
    d_counts = low.variable("d_counts", shape, "float32", low.by_sample(len(shape) - 2), "gradients")
    low.storage[loss.outputs[0]] = (losses,)
    low.outputs[loss.outputs[0]] = losses
    low.storage[gradient.outputs[0]] = (d_counts,)
    about = loss.attributes
    if isinstance(about, CountTargets):
        codelet, stage = codelets.SQUARED_ERROR, "squared error"
        constants = {name: float(getattr(about, name)) for name in ("correct", "incorrect", "timesteps")}
    else:
        codelet = codelets.CROSS_ENTROPY_BY_TIMESTEP if by_timestep else codelets.CROSS_ENTROPY
        stage, constants = "cross-entropy", {"scale": float(about.scale)}
        if about.weight != 1:
            codelet, constants["weight"] = codelets.MEAN_CROSS_ENTROPY_BY_TIMESTEP, float(about.weight)
    operands = {"totals": scores, "labels": labels, "losses": losses, "gradient": d_counts}
    defines = ((d_counts, gradient.outputs[0]),)
    low.compute(stage, loss, codelet, *low.per_sample, operands, constants=constants, defines=defines, named=False)
    _to_neurons(low, gradient, loss.inputs[0], d_counts)


def _to_neurons(low: Lowering, op: Operation, forward: str, gradient: str) -> None:
    """The gradient of a stack of potentials is moved to the tiles of the neurons, where the backward scan reads it."""
    held = low.variables[low.storage[forward][0]]
    if len(held.shape) < 3 or held.mapping.axis == 1:  # by sample
        return
    du = _potential_gradient(low, op.layer, held.shape)
    low.copies("scatter gradient", op.kind, Copy(source=gradient, target=du), layer=op.layer)
    low.storage[op.outputs[0]] = (du,)


def _potential_gradient(low: Lowering, layer: str, shape: tuple[int, ...]) -> str:
    return low.with_neurons(f"du.{layer}.sequence", shape, layer, "gradients")


def lower_list_gradient(low: Lowering, ops: tuple[Operation, ...]) -> None:
    """spike_counts_gradient and listed_of: the gradient of each listed output, for every timestep."""
    (op,) = ops
    network = low.network
    gradient, spikes = op.inputs
    ids, counts = low.storage[spikes]
    capacity = low.variables[ids].shape[2]
    shape = (network.timesteps, network.batch, capacity)
    g = low.variable("g.output.sequence", shape, "float32", low.by_sample(1), "gradients")
    low.storage[op.outputs[0]] = (g,)
    operands = {"ids": ids, "counts": counts, "g": g}
    given, constants = low.storage[gradient][0], {}
    if op.kind == "listed_of":
        codelet, operands["rows"] = codelets.LISTED_OF, given
    else:
        operands["gradient"] = given
        first = op.attributes.first
        codelet = codelets.LIST_LAST_GRADIENT if first else codelets.LIST_COUNT_GRADIENT
        constants = {"first": first}
    _per_sample(low, "list gradient", op, codelet, operands, g, constants)


def lower_pool(low: Lowering, ops: tuple[Operation, ...]) -> None:
    """pool_classes and spread_classes, per sample."""
    (op,) = ops
    given = low.storage[op.inputs[0]][0]
    shape = low.values[op.outputs[0]].shape
    pooling = op.kind == "pool_classes"
    dtype = low.variables[given].dtype if pooling else "float32"
    made = low.variable(op.name, shape, dtype, low.by_sample(len(shape) - 2), "gradients")
    keep(low, op, made)
    codelet = codelets.pool_codelet("Pool" if pooling else "Spread", len(shape) == 3)
    fields = [item.name for item in codelet.fields]
    operands = dict(zip(fields, (given, made), strict=True))
    _per_sample(low, op.kind.replace("_", " "), op, codelet, operands, made, {"each": op.attributes})
    if not pooling:
        _to_neurons(low, op, low.values[op.outputs[0]].of, made)


READ_OUTS = {
    "sum": (codelets.ADD_TIMESTEPS, codelets.SPREAD_TIMESTEPS),
    "mean": (codelets.ADD_TIMESTEPS, codelets.SPREAD_TIMESTEPS),
    "last": (codelets.TAKE_LAST, codelets.GIVE_LAST),
    "max": (codelets.HIGHEST, codelets.GIVE_HIGHEST),
}


def _factor(over: str, timesteps: int) -> dict[str, object]:
    return {"factor": np.float32(1.0 / timesteps if over == "mean" else 1.0)}


def lower_read_out(low: Lowering, ops: tuple[Operation, ...]) -> None:
    """read_out: over the timesteps, on the tiles that hold the potentials."""
    (op,) = ops
    u = low.storage[op.inputs[0]][0]
    timesteps, batch, neurons = low.variables[u].shape
    scores = low.with_neurons("scores", (batch, neurons), op.layer, "gradients")
    keep(low, op, scores)
    codelet, operands = READ_OUTS[op.attributes][0], {"u": u, "scores": scores}
    _per_tile(low, "read out", op, codelet, operands, scores, _factor(op.attributes, timesteps))


def lower_read_out_gradient(low: Lowering, ops: tuple[Operation, ...]) -> None:
    """read_out_gradient: for every timestep, on the tiles that hold the potentials."""
    (op,) = ops
    gradient, u = (low.storage[name][0] for name in op.inputs)
    shape = low.variables[u].shape
    du = _potential_gradient(low, op.layer, shape)
    low.storage[op.outputs[0]] = (du,)
    codelet = READ_OUTS[op.attributes][1]
    operands = {"gradient": gradient, "u": u, "du": du}
    wanted = {item.name: operands[item.name] for item in codelet.fields}
    _per_tile(low, "read out gradient", op, codelet, wanted, du, _factor(op.attributes, shape[0]))


def lower_add_read_out(low: Lowering, ops: tuple[Operation, ...]) -> None:
    """add_read_out: the read-out's gradient of this timestep added to the adjoint in place."""
    (op,) = ops
    adjoint, now = (low.storage[name][0] for name in op.inputs)
    low.storage[op.outputs[0]] = (adjoint,)
    _per_tile(low, "add read out", op, codelets.ADD_ADJOINTS, {"adjoint": adjoint, "now": now}, adjoint)


def lower_penalty(low: Lowering, ops: tuple[Operation, ...]) -> None:
    """firing_penalty and its gradient: spikes counted per sample, then added up on one tile."""
    penalty, _ = ops
    network, layer = low.network, penalty.layer
    _, counts = low.storage[penalty.inputs[0]]
    spikes = low.variable(f"spikes_of.{layer}", (network.batch,), "int32", low.by_sample(0), "gradients")
    low.compute("count firing", penalty, codelets.COUNT_LISTED, *low.per_sample, {"counts": counts, "spikes": spikes})
    add_penalty(low, ops, spikes)


def add_penalty(low: Lowering, ops: tuple[Operation, ...], spikes: str) -> None:
    """The penalty and its gradient from counts of spikes, on one tile."""
    penalty, gradient = ops
    network, layer, about = low.network, penalty.layer, penalty.attributes
    tile = int(low.placement.sample_tiles[0])
    home = TileMapping.on(tile, 0, 1)
    value = low.variable(f"penalty.{layer}", (1,), "float32", home, "gradients")
    even = low.variable(f"even.{layer}", (1,), "float32", home, "gradients")
    low.storage[penalty.outputs[0]], low.storage[gradient.outputs[0]] = (value,), (even,)
    low.outputs[penalty.outputs[0]] = value
    places = about.neurons * network.batch * network.timesteps
    low.compute(
        "firing penalty",
        penalty,
        codelets.FIRING_PENALTY,
        np.array([tile]),
        {"place": np.zeros(1, np.int64)},
        {"spikes": spikes, "penalty": value, "even": even},
        constants={"target": float(about.target), "strength": float(about.strength), "places": float(places)},
    )


def lower_add_even(low: Lowering, ops: tuple[Operation, ...]) -> None:
    """add_even: one number to the gradients of all listed ids of a layer."""
    (op,) = ops
    g, even = (low.storage[name][0] for name in op.inputs)
    width = low.variables[g].shape[-1]
    chips = gradient_chips(low, op.layer)
    total = low.spread(f"g_even.{op.layer}", width, "float32", "gradients", chips, family=("gradients", op.layer))
    low.storage[op.outputs[0]] = (total,)
    operands = {"g": g, "even": even, "total": total}
    low.compute("add penalty", op, codelets.ADD_EVEN, *low.slots_of(total), operands)


Rules = dict[tuple[str, ...], Callable[[Lowering, tuple[Operation, ...]], None]]
OF_READINGS: Rules = {
    ("cross_entropy", "cross_entropy_gradient"): lower_loss,
    ("mean_squared_error", "mean_squared_error_gradient"): lower_loss,
    ("pool_classes",): lower_pool,
    ("spread_classes",): lower_pool,
    ("read_out",): lower_read_out,
    ("read_out_gradient",): lower_read_out_gradient,
}
RULES: Rules = {
    **OF_READINGS,
    ("add_read_out",): lower_add_read_out,
    ("spike_counts",): lower_counts,
    ("spikes_by_timestep",): lower_emitted,
    ("spike_counts_gradient",): lower_list_gradient,
    ("listed_of",): lower_list_gradient,
    ("firing_penalty", "firing_penalty_gradient"): lower_penalty,
    ("add_even",): lower_add_even,
}
