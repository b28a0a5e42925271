"""Neuron operations on tiles: one vertex per (tile, sample) forward and for the adjoint, one per tile for scaling."""

from __future__ import annotations

import numpy as np

from mimdsim.codelets import neurons as codelets
from mimdsim.codelets import surrogates
from mimdsim.codelets.dense import COPY_COLUMNS, FILL_VECTOR
from mimdsim.compiler.context import Lowering
from mimdsim.compiler.place.layer_partition import LayerPlacement
from mimdsim.compiler.sparse.fan_in import emit_current
from mimdsim.compiler.sparse.selection import received
from mimdsim.graph import Layer, Operation
from mimdsim.graph.neurons import constants_of
from mimdsim.program import Copy, Hits, Listed, Spikes, TileMapping, VertexTable


def tile_sample_columns(placed: LayerPlacement, batch: int) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """One vertex per (sample, tile), samples outermost so that neighbours touch neighbouring weights."""
    columns = {
        "sample": np.repeat(np.arange(batch), len(placed.starts)),
        "start": np.tile(placed.starts, batch),
        "stop": np.tile(placed.stops, batch),
    }
    return placed.homes[placed.copy_of].ravel(), columns


def lower_lif(low: Lowering, ops: tuple[Operation, ...]) -> None:
    """synapse + lif: the current is summed from listed ids, or a dense row, and integrated in the same vertex."""
    synapse, lif = ops
    layer = low.layer(lif.layer)
    placed = low.placed(layer.name)
    spikes, weights = synapse.inputs
    v = low.storage[lif.inputs[0]][0]
    low.storage[lif.outputs[0]] = (v,)
    source, shift = low.origin(spikes)
    tiles, columns = tile_sample_columns(placed, low.network.batch)
    held = received(low, spikes)
    if placed.fan_in_parts > 1:
        given = (held[0], held[1]), low.storage[weights][0], synapse.outputs[0], (source, shift)
        integrate(low, lif, v, emit_current(low, layer.name, *given))
        return
    dense = len(held) == 1  # a row of all neurons instead of ids and counts
    table = VertexTable(
        codelet=codelets.LIF_UPDATE_DENSE if dense else codelets.LIF_UPDATE,
        layer=layer.name,
        tiles=tiles,
        operands={
            "v": v,
            "w": low.storage[weights][0],
            **dict(zip(("row",) if dense else ("ids", "counts"), held, strict=True)),
        },
        columns=columns,
        extents={"spikes": Spikes(layer=source, shift=shift)},
        constants=constants_of(lif.attributes)._asdict(),
    )
    low.emit("LIF update", "lif", tables=(table,), defines=((v, lif.outputs[0]),), layer=layer.name)


def integrate(low: Lowering, lif: Operation, v: str, current: str) -> None:
    """The neurons integrate a current that lies with them."""
    tiles, columns = tile_sample_columns(low.placed(lif.layer), low.network.batch)
    table = VertexTable(
        codelet=codelets.LIF_INTEGRATE,
        layer=lif.layer,
        tiles=tiles,
        operands={"v": v, "current": current},
        columns=columns,
        constants=constants_of(lif.attributes)._asdict(),
    )
    low.emit("integrate", lif.kind, tables=(table,), defines=((v, lif.outputs[0]),), layer=lif.layer)


def surrogate_constant(layer: Layer) -> dict[str, object]:
    """Which surrogate a vertex evaluates; the published codelets know theirs."""
    name = layer.selection.surrogate
    return {} if name == "superspike" else {"surrogate": surrogates.kind_of(name)}


def lower_state_gradient(low: Lowering, ops: tuple[Operation, ...]) -> None:
    """select_gradient + add: the surrogate at listed ids, added to the adjoint in place."""
    gradient, add = ops
    layer = low.layer(gradient.layer)
    placed = low.placed(layer.name)
    held = next(name for name in add.inputs if name not in gradient.outputs)
    dv = low.storage[held][0]
    low.storage[add.outputs[0]] = (dv,)
    g, spikes, v = (low.storage[name] for name in gradient.inputs)
    if low.options.state_gradient == "per_batch":
        _lower_state_gradient_rows(low, layer, dv, {"v": v[0], "g": g[0], "ids": spikes[0], "counts": spikes[1]})
        return
    tiles, columns = tile_sample_columns(placed, low.network.batch)
    table = VertexTable(
        codelet=surrogates.state_gradient(layer.selection.surrogate),
        layer=layer.name,
        tiles=tiles,
        operands={"dv": dv, "v": v[0], "g": g[0], "ids": spikes[0], "counts": spikes[1]},
        columns=columns,
        extents={"listed": Listed(layer=layer.name), "hits": Hits(layer=layer.name)},
        constants={"threshold": np.float32(layer.selection.threshold), "slope": np.float32(layer.selection.slope)}
        | surrogate_constant(layer),
    )
    low.emit("state gradient", "select_gradient", tables=(table,), defines=((dv, add.outputs[0]),), layer=layer.name)


def _lower_state_gradient_rows(low: Lowering, layer: Layer, dv: str, operands: dict[str, str]) -> None:
    """One vertex per sample on whole rows, gathered from and scattered back to the neuron tiles."""
    placed = low.placed(layer.name)
    name, samples = layer.name, np.arange(low.network.batch)
    mapping = TileMapping.split(0, placed.combine_tiles, samples, samples + 1)
    shape = (len(samples), layer.neurons)
    row = low.variable(f"dv_row.{name}", shape, "float32", mapping, "gradients")
    table = VertexTable(
        codelet=surrogates.state_gradient_row(layer.selection.surrogate),
        layer=name,
        tiles=placed.combine_tiles,
        operands={"row": row, "dv": dv, "threshold": f"threshold.{name}", **operands},
        columns={"sample": samples},
        extents={"listed": Listed(layer=name)},
        constants={"slope": np.float32(layer.selection.slope)} | surrogate_constant(layer),
    )
    low.emit("state gradient", "select_gradient", tables=(table,), layer=name)
    low.emit("scatter state gradient", "select_gradient", copies=(Copy(source=row, target=dv),), layer=name)


def declare_thresholds(low: Lowering, layer: str) -> None:
    """The layer's thresholds as a variable, for vertices that work on rows of all neurons."""
    placed = low.placed(layer)
    width = low.layer(layer).neurons
    name = low.variable(f"threshold.{layer}", (width,), "float32", low.by_neuron(layer, 0), "neuron states")
    table = VertexTable(
        codelet=FILL_VECTOR,
        layer=layer,
        tiles=placed.tiles,
        operands={"target": name},
        columns={"start": placed.starts, "stop": placed.stops},
        constants={"value": np.float32(low.layer(layer).selection.threshold)},
    )
    low.emit("set thresholds", "zeros", tables=(table,), layer=layer)


def declare_constants(low: Lowering, layer: str) -> None:
    """decay and gain of the layer's neurons as variables, where the library puts constants: not with the neurons."""
    neuron = low.layer(layer).neuron
    if neuron.fused:
        low.constant("decay", layer, float(constants_of(neuron).decay))
        low.constant("gain", layer, float(constants_of(neuron).scale))


def lower_current_gradient(low: Lowering, ops: tuple[Operation, ...]) -> None:
    """q = dv * (1 - decay) * gain on the tile's neurons, all samples."""
    (op,) = ops
    layer = low.layer(op.layer)
    dv = low.storage[op.inputs[0]][0]
    shape = (low.network.batch, layer.neurons)
    q = low.variable(f"q.{layer.name}", shape, "float32", low.on_neurons(layer.name, 1), "gradients")
    low.storage[op.outputs[0]] = (q,)
    if "fused_adjoint" in low.options.rules:
        _lower_adjoint(low, op, dv, q)
        return
    copy, tiles, columns = low.over_neurons(COPY_COLUMNS, layer.name)
    copied = VertexTable(
        codelet=copy,
        layer=layer.name,
        tiles=tiles,
        operands={"source": dv, "target": q},
        columns=columns,
    )
    low.emit("copy adjoint", op.kind, tables=(copied,), mergeable=False, layer=layer.name)
    scale, tiles, columns = low.over_neurons(codelets.CURRENT_GRADIENT, layer.name)
    table = VertexTable(
        codelet=scale,
        layer=layer.name,
        tiles=tiles,
        operands={"q": q, "gain": f"gain.{layer.name}"},
        columns=columns,
    )
    low.emit(
        "scale gradient", op.kind, tables=(table,), defines=((q, op.outputs[0]),), mergeable=False, layer=layer.name
    )


def _lower_adjoint(low: Lowering, op: Operation, dv: str, q: str) -> None:
    """The gradient of the current and, in the same vertex, the decay that `lower_decay_gradient` then leaves out: what
    lies between reads the former only."""
    assert low.scan_body is not None
    decay = next(
        each
        for each in low.scan_body.operations
        if each.kind == "lif_state_gradient" and each.layer == op.layer and each.inputs[0] == op.inputs[0]
    )
    constants = constants_of(op.attributes)
    operands, values = {"dv": dv, "q": q}, {"decay": constants.decay, "scale": constants.scale}
    codelet = codelets.ADJOINT_ROWS
    if len(decay.inputs) == 2:
        codelet = codelets.MASKED_ADJOINT_ROWS
        operands["v_previous"] = low.storage[decay.inputs[1]][0]
        values["threshold"] = constants.threshold
    tiles, columns = low.by_context(op.layer)
    table = VertexTable(
        codelet=codelet,
        layer=op.layer,
        tiles=tiles,
        operands=operands,
        columns=columns,
        constants=dict(values),
    )
    defines = ((q, op.outputs[0]), (dv, decay.outputs[0]))
    low.emit("gradient of currents", op.kind, tables=(table,), defines=defines, layer=op.layer)


def lower_decay_gradient(low: Lowering, ops: tuple[Operation, ...]) -> None:
    """dv <- decay * dv in place, masked where the neuron was reset when the gradient does not pass resets."""
    (op,) = ops
    layer = low.layer(op.layer)
    dv = low.storage[op.inputs[0]][0]
    low.storage[op.outputs[0]] = (dv,)
    if "fused_adjoint" in low.options.rules:  # done with the gradient of the current
        return
    operands = {"dv": dv, "decay": f"decay.{layer.name}"}
    values: dict[str, object] = {}
    codelet = codelets.DECAY_GRADIENT
    if len(op.inputs) == 2:
        codelet = codelets.MASKED_DECAY_GRADIENT
        operands["v_previous"] = low.storage[op.inputs[1]][0]
        values["threshold"] = constants_of(op.attributes).threshold
    codelet, tiles, columns = low.over_neurons(codelet, layer.name)
    table = VertexTable(
        codelet=codelet,
        layer=layer.name,
        tiles=tiles,
        operands=operands,
        columns=columns,
        constants=values,
    )
    low.emit(
        "decay gradient", op.kind, tables=(table,), defines=((dv, op.outputs[0]),), mergeable=False, layer=layer.name
    )


RULES = {
    ("synapse", "lif"): lower_lif,
    ("select_gradient", "add"): lower_state_gradient,
    ("lif_current_gradient",): lower_current_gradient,
    ("lif_state_gradient",): lower_decay_gradient,
}

__all__ = ["RULES", "tile_sample_columns"]
