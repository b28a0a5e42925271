"""The linear neuron family on tiles: who fired, the update, and the adjoint, all where the neurons lie.

One vertex per tile and worker context, each with a share of the samples; per-neuron coefficients lie with the neurons
and are loaded with the program.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mimdsim.base.errors import MappingError
from mimdsim.codelets import library_linear_neurons, surrogates
from mimdsim.codelets import linear_neurons as codelets
from mimdsim.codelets.linear_terms import Packed, packed
from mimdsim.compiler.context import Lowering
from mimdsim.compiler.sparse.neurons import tile_sample_columns
from mimdsim.compiler.sparse.selection import received
from mimdsim.compiler.sparse.spikes import emit_reduction, listed_gradient, partial_sums, replicate_spikes
from mimdsim.graph import Operation
from mimdsim.graph.linear_neurons import Gradient, LinearNeuron
from mimdsim.program import Hits, Listed, Spikes, VertexTable

FLAG_THRESHOLD = 0.5  # between the zero and the one of a flag


def _codelets(low: Lowering) -> Any:
    """Vertices written by hand, or for dense spikes calls of the element-wise library."""
    return (
        library_linear_neurons if low.network.spikes == "dense" and low.options.dense_neurons != "fused" else codelets
    )


def _packed(low: Lowering, layer: str, *, switched: bool) -> tuple[Packed, dict[str, str]]:
    """The layer's coefficients, and the operand that holds those of every neuron its own."""
    made = packed(low.layer(layer).neuron, low.layer(layer).neurons, switched=switched)
    if made.own is None:
        return made, {}
    name = f"coefficients.{layer}" if switched else f"coefficients.quiet.{layer}"
    held = low.variable(
        name, made.own.shape, "float32", low.by_neuron(layer, 1), "neuron states", persistent=True, values=made.own
    )
    return made, {"own": held}


def _emit(low: Lowering, stage: str, op: Operation, codelet: Any, operands: Any, constants: Any, defines: Any) -> None:
    tiles, columns = low.by_context(op.layer)
    wanted = {item.name for item in codelet.fields}
    table = VertexTable(
        codelet=codelet,
        layer=op.layer,
        tiles=tiles,
        operands={name: held for name, held in operands.items() if name in wanted},
        columns=columns,
        constants=constants,
    )
    low.emit(stage, op.kind, tables=(table,), defines=tuple(defines), layer=op.layer)


def lower_fired(low: Lowering, ops: tuple[Operation, ...]) -> None:
    """fired: told by the potential itself; whoever needs it compares."""
    (op,) = ops
    low.storage[op.outputs[0]] = low.storage[op.inputs[0]]


def lower_emitted(low: Lowering, ops: tuple[Operation, ...]) -> None:
    """emitted: flags of a layer's own listed spikes where its neurons lie; a row of bytes is as good as flags."""
    (op,) = ops
    (spikes,) = op.inputs
    held = received(low, spikes)
    if len(held) == 1:
        low.storage[op.outputs[0]] = held
        return
    flags = low.plane(f"emitted.{op.layer}", op.layer, "neuron states", "int32")
    low.storage[op.outputs[0]] = (flags,)
    tiles, columns = tile_sample_columns(low.placed(op.layer), low.network.batch)
    layer, shift = low.origin(spikes)
    table = VertexTable(
        codelet=codelets.EMITTED_FLAGS,
        layer=op.layer,
        tiles=tiles,
        operands={"flags": flags, "ids": held[0], "counts": held[1]},
        columns=columns,
        extents={
            "spikes": Spikes(layer=layer, shift=shift),
            "hits": Hits(layer=layer, shift=shift, which="spikes"),
        },
    )
    low.emit("own spikes", op.kind, tables=(table,), layer=op.layer)


def _threshold(neuron: LinearNeuron) -> float:
    """What is compared with: potentials, or flags."""
    return neuron.threshold if neuron.reset_by == "state" else FLAG_THRESHOLD


def lower_neuron(low: Lowering, ops: tuple[Operation, ...]) -> None:
    """neuron: one timestep of the layer's states, in place, and u."""
    (op,) = ops
    layer, neuron = op.layer, op.attributes
    x, current = (low.storage[name][0] for name in op.inputs[:2])
    u = low.plane(f"u.{layer}", layer, "neuron states")
    low.storage[op.outputs[0]], low.storage[op.outputs[1]] = (x,), (u,)
    switched = len(op.inputs) == 3
    fired = low.storage[op.inputs[2]][0] if switched else ""
    source = ("u" if fired == u else "flags") if switched else ""
    made, own = _packed(low, layer, switched=switched)
    _emit(
        low,
        "neuron update",
        op,
        _codelets(low).update(made.structure, source),
        {"x": x, "u": u, "current": current, "flags": fired, **own},
        {
            "terms": made.terms,
            "uniform": made.uniform,
            "readout": made.readout,
            "weights": made.weights,
            "threshold": _threshold(neuron),
            "switched": switched,
        },
        ((x, op.outputs[0]), (u, op.outputs[1])),
    )


def lower_state_gradient(low: Lowering, ops: tuple[Operation, ...]) -> None:
    """select_gradient + neuron_readout_gradient: the surrogate at listed ids, into the adjoint of the states."""
    gradient, readout = ops
    layer = low.layer(gradient.layer)
    _check_tilewise(low, layer.name)
    dx = low.storage[readout.inputs[0]][0]
    low.storage[readout.outputs[0]] = (dx,)
    g, spikes, u = (low.storage[name] for name in gradient.inputs)
    made, own = _packed(low, layer.name, switched=_switched(low, layer.name))
    tiles, columns = tile_sample_columns(low.placed(layer.name), low.network.batch)
    table = VertexTable(
        codelet=codelets.state_gradient(made.structure, layer.selection.surrogate),
        layer=layer.name,
        tiles=tiles,
        operands={"dx": dx, "u": u[0], "g": g[0], "ids": spikes[0], "counts": spikes[1], **own},
        columns=columns,
        extents={"listed": Listed(layer=layer.name), "hits": Hits(layer=layer.name)},
        constants={
            "readout": made.readout,
            "weights": made.weights,
            "threshold": layer.selection.threshold,
            "slope": layer.selection.slope,
            "surrogate": surrogates.kind_of(layer.selection.surrogate),
        },
    )
    low.emit("state gradient", gradient.kind, tables=(table,), defines=((dx, readout.outputs[0]),), layer=layer.name)


def _check_tilewise(low: Lowering, layer: str) -> None:
    if low.options.state_gradient == "per_batch":
        raise MappingError(
            f'layer \'{layer}\': mapping.state_gradient = "per_batch" is for neuron = "lif" only: write "tilewise", or '
            'for "lif" reset = "zero" by state and reset_gradient = "pass" or "mask", as published'
        )


def _switched(low: Lowering, layer: str) -> bool:
    """Whether the layer's forward update, whose coefficients are shared, chooses between two maps."""
    return low.layer(layer).neuron.resets


def lower_readout_gradient(low: Lowering, ops: tuple[Operation, ...]) -> None:
    """neuron_readout_gradient: from an adjoint of u at every neuron."""
    (op,) = ops
    dx, du = (low.storage[name][0] for name in op.inputs)
    low.storage[op.outputs[0]] = (dx,)
    made, own = _packed(low, op.layer, switched=_switched(low, op.layer))
    _emit(
        low,
        "read-out gradient",
        op,
        _codelets(low).readout_gradient(made.structure),
        {"dx": dx, "du": du, **own},
        {"readout": made.readout, "weights": made.weights},
        ((dx, op.outputs[0]),),
    )


def lower_gradient(low: Lowering, ops: tuple[Operation, ...]) -> None:
    """neuron_gradient, and with it the surrogate of a reset by state where gradients go through resets."""
    op, *through = ops
    layer, attributes = op.layer, op.attributes
    assert isinstance(attributes, Gradient)
    neuron = attributes.neuron
    names = iter(op.inputs)
    dx = low.storage[next(names)][0]
    q = low.plane(f"q.{layer}", layer, "gradients")
    low.storage[op.outputs[0]], low.storage[op.outputs[1]] = (dx,), (q,)
    operands = {"dx": dx, "q": q}
    reads = {"fired": attributes.switched, "x": attributes.reads_state, "current": attributes.reads_current}
    operands |= {name: low.storage[next(names)][0] for name, read in reads.items() if read}
    made, own = _packed(low, layer, switched=attributes.switched or attributes.of_fired)
    constants: dict[str, Any] = {
        "terms": made.terms,
        "uniform": made.uniform,
        "threshold": _threshold(neuron),
        "switched": attributes.switched,
    }
    defines = [(dx, op.outputs[0]), (q, op.outputs[1])]
    codelet = _codelets(low).gradient(made.structure, "fired" if attributes.switched else "")
    if attributes.of_fired:
        selection = low.layer(layer).selection
        surrogate = selection.surrogate if through else ""
        made_by = through[0].outputs[0] if through else op.outputs[2]
        held = low.storage.get(made_by) or (low.plane(f"d_fired.{layer}", layer, "gradients"),)
        low.storage[made_by] = held
        operands["d_fired"] = held[0]
        defines.append((held[0], made_by))
        constants |= {"slope": selection.slope, "surrogate": surrogates.kind_of(surrogate) if surrogate else -1}
        more = tuple(name for name in ("x", "current") if reads[name])
        if through:
            operands["fired"] = low.storage[through[0].inputs[1]][0]  # the potential, which says who fired too
        codelet = _codelets(low).full_gradient(made.structure, more, surrogate, "fired" if "fired" in operands else "")
    _emit(low, "neuron gradient", op, codelet, {**operands, **own}, constants, defines)


def lower_emitted_gradient(low: Lowering, ops: tuple[Operation, ...]) -> None:
    """emitted_gradient: each id's number from the tile of its neuron, brought together as partial sums are."""
    (op,) = ops
    d_fired, spikes = op.inputs
    ids, counts = replicate_spikes(low, spikes, op.layer)
    partial = partial_sums(low, op, low.placed(op.layer).homes)
    tiles, columns = tile_sample_columns(low.placed(op.layer), low.network.batch)
    columns["part"] = np.tile(np.arange(len(low.placed(op.layer).starts)), low.network.batch)
    layer, shift = low.origin(spikes)
    table = VertexTable(
        codelet=codelets.EMITTED_GRADIENT,
        layer=op.layer,
        tiles=tiles,
        operands={"partial": partial, "d_fired": low.storage[d_fired][0], "ids": ids, "counts": counts},
        columns=columns,
        extents={"listed": Listed(layer=layer, shift=shift), "hits": Hits(layer=layer, shift=shift)},
    )
    low.emit("reset gradient", op.kind, tables=(table,), layer=op.layer)
    emit_reduction(low, op, partial, low.storage[spikes][1], listed_gradient(low, op))


def lower_dense_state_gradient(low: Lowering, ops: tuple[Operation, ...]) -> None:
    """spike_gradient + neuron_readout_gradient: the surrogate of every neuron, into the adjoint of the states."""
    gradient, readout = ops
    selection = gradient.attributes
    dx = low.storage[readout.inputs[0]][0]
    low.storage[readout.outputs[0]] = (dx,)
    g, u = (low.storage[name][0] for name in gradient.inputs)
    made, own = _packed(low, gradient.layer, switched=_switched(low, gradient.layer))
    constants = {
        "readout": made.readout,
        "weights": made.weights,
        "threshold": selection.threshold,
        "slope": selection.slope,
        "surrogate": surrogates.kind_of(selection.surrogate),
    }
    codelet = _codelets(low).dense_state_gradient(made.structure, selection.surrogate)
    operands = {"dx": dx, "g": g, "u": u, **own}
    _emit(low, "state gradient", gradient, codelet, operands, constants, ((dx, readout.outputs[0]),))


ARRAY_RULES = {
    ("fired",): lower_fired,
    ("neuron",): lower_neuron,
    ("spike_gradient", "neuron_readout_gradient"): lower_dense_state_gradient,
    ("neuron_readout_gradient",): lower_readout_gradient,
    ("neuron_gradient",): lower_gradient,
    ("neuron_gradient", "spike_gradient"): lower_gradient,
}
RULES = {
    ("fired",): lower_fired,
    ("emitted",): lower_emitted,
    ("neuron",): lower_neuron,
    ("select_gradient", "neuron_readout_gradient"): lower_state_gradient,
    ("neuron_readout_gradient",): lower_readout_gradient,
    ("neuron_gradient",): lower_gradient,
    ("neuron_gradient", "spike_gradient"): lower_gradient,
    ("emitted_gradient",): lower_emitted_gradient,
}
OVERWRITES = ("neuron_readout_gradient", "neuron_gradient")
