"""Read-outs and losses on tiles: potentials where the neurons lie, everything else per sample on the sample tiles."""

from __future__ import annotations

from typing import Any

import numpy as np

from mimdsim.codelets import losses as codelets
from mimdsim.codelets import products
from mimdsim.codelets.elementwise import on_rows
from mimdsim.compiler.context import Lowering, Rules, together
from mimdsim.compiler.sparse.spikes import gradient_chips
from mimdsim.graph import Operation
from mimdsim.graph.losses import Targets
from mimdsim.graph.names import SCORES
from mimdsim.program import Codelet, Copy, TileMapping


def _per_sample(
    low: Lowering, stage: str, op: Operation, codelet: Codelet, operands: dict[str, str], constants: Any = None
) -> None:
    """One vertex per sample on its tile."""
    low.compute(stage, op, codelet, *low.per_sample, operands, constants=constants, named=False)


def keep(low: Lowering, op: Operation, variable: str) -> None:
    low.storage[op.outputs[0]] = (variable,)
    if op.outputs[0] == SCORES:
        low.outputs[SCORES] = variable


COUNTS = {  # by the variables of spikes, a matrix or ids and counts, and whether only the last timesteps count
    (1, False): products.COUNT_ARRAY,
    (1, True): products.COUNT_LAST_ARRAY,
    (2, False): codelets.COUNT_SPIKES,
    (2, True): codelets.COUNT_LAST,
}


def lower_counts(low: Lowering, op: Operation) -> None:
    """spike_counts: how often each output neuron fired, per sample."""
    about, spikes = op.attributes, low.storage[op.inputs[0]]
    totals = low.variable("totals", (low.network.batch, about.neurons), "int32", low.by_sample(0), "gradients")
    keep(low, op, totals)
    codelet = COUNTS[len(spikes), about.first > 0]
    operands = dict(zip((item.name for item in codelet.fields), (*spikes, totals), strict=True))
    _per_sample(low, "count spikes", op, codelet, operands, {"first": about.first})


def lower_emitted(low: Lowering, op: Operation) -> None:
    """spikes_by_timestep: a row of zeros and ones per sample and timestep."""
    shape = (low.network.timesteps, low.network.batch, op.attributes)
    rows = low.variable("emitted", shape, "int32", low.by_sample(1), "gradients")
    low.storage[op.outputs[0]] = (rows,)
    ids, counts = low.storage[op.inputs[0]]
    _per_sample(low, "emitted rows", op, codelets.EMITTED_ROWS, {"ids": ids, "counts": counts, "rows": rows})


def lower_loss(low: Lowering, loss: Operation, gradient: Operation) -> None:
    """A loss and its gradient in one vertex per sample."""
    scores, labels = (low.storage[name][0] for name in loss.inputs)
    shape = low.variables[scores].shape
    by_timestep = len(shape) == 3
    losses = low.variable("losses", (low.network.batch,), "float64", low.by_sample(0), "gradients")
    d_counts = low.variable("d_counts", shape, "float32", low.by_sample(len(shape) - 2), "gradients")
    low.storage[loss.outputs[0]] = (losses,)
    low.outputs[loss.outputs[0]] = losses
    low.storage[gradient.outputs[0]] = (d_counts,)
    about = loss.attributes
    if isinstance(about, Targets):
        codelet = codelets.SQUARED_ERROR_BY_TIMESTEP if by_timestep else codelets.SQUARED_ERROR
        stage = "squared error"
        constants = {name: float(getattr(about, name)) for name in ("correct", "incorrect", "divisor")}
    else:
        codelet = codelets.CROSS_ENTROPY_BY_TIMESTEP if by_timestep else codelets.CROSS_ENTROPY
        stage, constants = "cross-entropy", {"scale": float(about.scale)}
        if about.weight != 1:
            codelet, constants["weight"] = codelets.MEAN_CROSS_ENTROPY_BY_TIMESTEP, float(about.weight)
    operands = {"totals": scores, "labels": labels, "losses": losses, "gradient": d_counts}
    _per_sample(low, stage, together(gradient, loss), codelet, operands, constants)
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


def lower_list_gradient(low: Lowering, op: Operation) -> None:
    """spike_counts_gradient and listed_of: the gradient of each listed output, for every timestep."""
    given, (ids, counts) = low.storage[op.inputs[0]][0], low.storage[op.inputs[1]]
    shape = (low.network.timesteps, low.network.batch, low.variables[ids].shape[2])
    g = low.variable("g.output.sequence", shape, "float32", low.by_sample(1), "gradients")
    low.storage[op.outputs[0]] = (g,)
    codelet, first = codelets.LISTED_OF, 0
    if op.kind == "spike_counts_gradient":
        first = op.attributes.first
        codelet = codelets.LIST_LAST_GRADIENT if first else codelets.LIST_COUNT_GRADIENT
    operands = {"ids": ids, "counts": counts, "g": g, "rows": given, "gradient": given}
    _per_sample(low, "list gradient", op, codelet, operands, {"first": first})


def lower_pool(low: Lowering, op: Operation) -> None:
    """pool_classes and spread_classes, per sample."""
    given = low.storage[op.inputs[0]][0]
    shape = low.values[op.outputs[0]].shape
    pooling = op.kind == "pool_classes"
    dtype = low.variables[given].dtype if pooling else "float32"
    made = low.variable(op.name, shape, dtype, low.by_sample(len(shape) - 2), "gradients")
    keep(low, op, made)
    codelet = codelets.pool_codelet("Pool" if pooling else "Spread", len(shape) == 3)
    fields = [item.name for item in codelet.fields]
    operands = dict(zip(fields, (given, made), strict=True))
    _per_sample(low, op.kind.replace("_", " "), op, codelet, operands, {"each": op.attributes})
    if not pooling:
        _to_neurons(low, op, low.values[op.outputs[0]].of, made)


def lower_late(low: Lowering, op: Operation) -> None:
    """after_burn_in and its gradient: a copy of the timesteps that are read, and zeros before their gradient."""
    given = low.storage[op.inputs[0]][0]
    held, shape = low.variables[given], low.values[op.outputs[0]].shape
    codelet = codelets.TAKE_LATE if op.kind == "after_burn_in" else codelets.GIVE_LATE
    if held.mapping.axis == 1:  # by sample
        made = low.variable(op.name, shape, held.dtype, low.by_sample(1), "gradients")
        tiles, columns = low.per_sample
        rows = {"row_start": columns["sample"], "row_stop": columns["sample"] + 1}
        where = on_rows(codelet), tiles, rows | {"start": np.zeros_like(tiles), "stop": np.full_like(tiles, shape[2])}
    else:
        made = low.with_neurons(op.name, shape, op.layer, "gradients")
        where = low.over_neurons(codelet, op.layer)
    low.storage[op.outputs[0]] = (made,)
    operands = dict(zip((item.name for item in codelet.fields), (given, made), strict=True))
    low.compute("burn-in", op, *where, operands, constants={"first": op.attributes})


READ_OUTS = {
    "sum": (codelets.ADD_TIMESTEPS, codelets.SPREAD_TIMESTEPS),
    "mean": (codelets.ADD_TIMESTEPS, codelets.SPREAD_TIMESTEPS),
    "last": (codelets.TAKE_LAST, codelets.GIVE_LAST),
    "max": (codelets.HIGHEST, codelets.GIVE_HIGHEST),
}


def lower_read_out(low: Lowering, op: Operation) -> None:
    """read_out: over the timesteps, on the tiles that hold the potentials; of a softmax per sample."""
    u = low.storage[op.inputs[0]][0]
    if op.attributes == "softmax":
        shape = low.variables[u].shape[1:]
        scores = low.variable("scores", shape, "float32", low.by_sample(0), "gradients")
        keep(low, op, scores)
        return _per_sample(low, "read out", op, codelets.SOFTMAX_SUM, {"u": u, "scores": scores})
    scores = low.with_neurons("scores", low.variables[u].shape[1:], op.layer, "gradients")
    keep(low, op, scores)
    _emit_read_out(low, "read out", op, READ_OUTS[op.attributes][0], {"u": u, "scores": scores})


def lower_read_out_gradient(low: Lowering, op: Operation) -> None:
    """read_out_gradient: for every timestep, on the tiles that hold the potentials."""
    gradient, u = (low.storage[name][0] for name in op.inputs)
    if op.attributes == "softmax":
        made = low.variable("d_softmax", low.variables[u].shape, "float32", low.by_sample(1), "gradients")
        low.storage[op.outputs[0]] = (made,)
        operands = {"gradient": gradient, "u": u, "du": made}
        _per_sample(low, "read out gradient", op, codelets.SOFTMAX_SUM_GRADIENT, operands)
        return _to_neurons(low, op, op.inputs[1], made)
    du = _potential_gradient(low, op.layer, low.variables[u].shape)
    low.storage[op.outputs[0]] = (du,)
    operands = {"gradient": gradient, "u": u, "du": du}
    _emit_read_out(low, "read out gradient", op, READ_OUTS[op.attributes][1], operands)


def _emit_read_out(low: Lowering, stage: str, op: Operation, codelet: Codelet, operands: dict[str, str]) -> None:
    over, timesteps = op.attributes, low.variables[operands["u"]].shape[0]
    constants = {"factor": np.float32(1.0 / timesteps if over == "mean" else 1.0)}
    low.compute(stage, op, *low.over_neurons(codelet, op.layer), operands, constants=constants)


def lower_add_read_out(low: Lowering, op: Operation) -> None:
    """add_read_out: the read-out's gradient of this timestep added to the adjoint in place."""
    adjoint, now = (low.storage[name][0] for name in op.inputs)
    low.storage[op.outputs[0]] = (adjoint,)
    where, operands = low.over_neurons(codelets.ADD_ADJOINTS, op.layer), {"adjoint": adjoint, "now": now}
    low.compute("add read out", op, *where, operands)


def lower_penalty(low: Lowering, penalty: Operation, gradient: Operation) -> None:
    """firing_penalty and its gradient: spikes counted per sample, then added up on one tile."""
    network, layer = low.network, penalty.layer
    _, counts = low.storage[penalty.inputs[0]]
    spikes = low.variable(f"spikes_of.{layer}", (network.batch,), "int32", low.by_sample(0), "gradients")
    low.compute("count firing", penalty, codelets.COUNT_LISTED, *low.per_sample, {"counts": counts, "spikes": spikes})
    add_penalty(low, penalty, gradient, spikes)


def add_penalty(low: Lowering, penalty: Operation, gradient: Operation, spikes: str) -> None:
    """The penalty and its gradient from counts of spikes, on one tile."""
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
        together(gradient, penalty),
        codelets.FIRING_PENALTY,
        np.array([tile]),
        {"place": np.zeros(1, np.int64)},
        {"spikes": spikes, "penalty": value, "even": even},
        constants={"target": float(about.target), "strength": float(about.strength), "places": float(places)},
    )


def lower_add_even(low: Lowering, op: Operation) -> None:
    """add_even: one number to the gradients of all listed ids of a layer."""
    g, even = (low.storage[name][0] for name in op.inputs)
    width = low.variables[g].shape[-1]
    chips = gradient_chips(low, op.layer)
    total = low.spread(f"g_even.{op.layer}", width, "float32", "gradients", chips, family=("gradients", op.layer))
    low.storage[op.outputs[0]] = (total,)
    operands = {"g": g, "even": even, "total": total}
    low.compute("add penalty", op, codelets.ADD_EVEN, *low.slots_of(total), operands)


OF_READINGS: Rules = {
    ("cross_entropy", "cross_entropy_gradient"): lower_loss,
    ("mean_squared_error", "mean_squared_error_gradient"): lower_loss,
    ("after_burn_in",): lower_late,
    ("after_burn_in_gradient",): lower_late,
    ("pool_classes",): lower_pool,
    ("spread_classes",): lower_pool,
    ("read_out",): lower_read_out,
    ("read_out_gradient",): lower_read_out_gradient,
    ("spike_counts",): lower_counts,
}
RULES: Rules = {
    **OF_READINGS,
    ("add_read_out",): lower_add_read_out,
    ("spikes_by_timestep",): lower_emitted,
    ("spike_counts_gradient",): lower_list_gradient,
    ("listed_of",): lower_list_gradient,
    ("firing_penalty", "firing_penalty_gradient"): lower_penalty,
    ("add_even",): lower_add_even,
}
