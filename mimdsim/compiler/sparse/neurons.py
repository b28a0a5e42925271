"""Neurons on tiles: who fired, the update, and the adjoint, all where the neurons lie.

Of any linear neuron: a vertex per tile and worker context, each with a share of the samples; per-neuron coefficients
lie with the neurons and are loaded with the program. Of a fused one, as published: the update, which sums the current
too, and the surrogate in a vertex per tile and sample, the factors of the adjoint in library vertices.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mimdsim.base.errors import MappingError
from mimdsim.codelets import library_linear_neurons, surrogates
from mimdsim.codelets import linear_neurons as codelets
from mimdsim.codelets import neurons as fused
from mimdsim.codelets.dense import COPY_COLUMNS, FILL_VECTOR
from mimdsim.codelets.linear_terms import Packed, pack_terms
from mimdsim.compiler.context import Lowering
from mimdsim.compiler.sparse.recurrence_and_bias import emit_current, synapse_inputs
from mimdsim.compiler.sparse.selection import received
from mimdsim.compiler.sparse.spikes import emit_reduction, listed_gradient, partial_sums, replicate_spikes
from mimdsim.graph import Layer, Operation
from mimdsim.graph.linear_neurons import Gradient, LinearNeuron, constants_of
from mimdsim.graph.names import coefficient_of
from mimdsim.program import Codelet, Copy, Hits, Listed, Spikes, TileMapping

FLAG_THRESHOLD = 0.5  # between the zero and the one of a flag
Operations = tuple[Operation, ...]

# ---- any linear neuron


def _codelets(low: Lowering) -> Any:
    """Vertices written by hand, or for dense spikes calls of the element-wise library."""
    by_hand = low.network.spikes == "sparse" or low.options.dense_neurons == "fused"
    return codelets if by_hand else library_linear_neurons


def _packed(low: Lowering, layer: str, switched: bool | None = None) -> tuple[Packed, dict[str, str]]:
    """The layer's coefficients, by default those of the forward update, and the operand that holds those of every
    neuron its own."""
    neuron = low.layer(layer).acting_neuron
    switched = neuron.resets if switched is None else switched
    coefficients = pack_terms(neuron, low.layer(layer).columns, switched=switched)
    if neuron.rows:
        return coefficients, {"own": low.storage[coefficient_of(layer, 0)][0]}
    own = coefficients.own
    if own is None:
        return coefficients, {}
    name, mapping = f"coefficients.{'' if switched else 'quiet.'}{layer}", low.by_neuron(layer, 1)
    variable = low.variable(name, own.shape, "float32", mapping, "neuron states", persistent=True, values=own)
    return coefficients, {"own": variable}


def _emit(
    low: Lowering, stage: str, op: Operation, codelet: Codelet, operands: dict[str, str], constants: Any, defines: Any
) -> None:
    """Of the operands those that the codelet has fields for."""
    given = _read_by(codelet, operands)
    low.compute(stage, op, codelet, *low.by_context(op.layer), given, constants=constants, defines=tuple(defines))


def _read_by(codelet: Codelet, operands: dict[str, str]) -> dict[str, str]:
    fields = {item.name for item in codelet.fields}
    return {name: variable for name, variable in operands.items() if name in fields}


def lower_fired(low: Lowering, ops: Operations) -> None:
    """fired: told by the potential itself; whoever needs it compares."""
    (op,) = ops
    low.storage[op.outputs[0]] = low.storage[op.inputs[0]]


def lower_emitted(low: Lowering, ops: Operations) -> None:
    """emitted: flags of a layer's own listed spikes where its neurons lie; a row of bytes is as good as flags."""
    (op,) = ops
    (spikes,) = op.inputs
    source = received(low, spikes)
    if len(source) == 1:
        low.storage[op.outputs[0]] = source
        return
    flags = low.plane(f"emitted.{op.layer}", op.layer, "neuron states", "int32")
    low.storage[op.outputs[0]] = (flags,)
    layer, shift = low.origin(spikes)
    hits = Hits(layer=layer, shift=shift, which="spikes")
    low.compute(
        "own spikes",
        op,
        codelets.EMITTED_FLAGS,
        *low.by_sample_and_tile(op.layer),
        {"flags": flags, "ids": source[0], "counts": source[1]},
        extents={"spikes": Spikes(layer=layer, shift=shift), "hits": hits},
    )


def flag_threshold(neuron: LinearNeuron) -> float:
    """What is compared with: potentials, or flags."""
    return neuron.threshold if neuron.reset_by == "state" else FLAG_THRESHOLD


def lower_neuron(low: Lowering, ops: Operations) -> None:
    """neuron: one timestep of the layer's states, in place, and u."""
    (op,) = ops
    layer, neuron = op.layer, op.attributes
    x, current = (low.storage[name][0] for name in op.inputs[:2])
    u = low.plane(f"u.{layer}", layer, "neuron states")
    low.storage[op.outputs[0]], low.storage[op.outputs[1]] = (x,), (u,)
    switched = len(op.inputs) - len(neuron.rows) == 3
    fired = low.storage[op.inputs[2]][0] if switched else ""
    source = ("u" if fired == u else "flags") if switched else ""
    coefficients, own = _packed(low, layer, switched)
    constants = {name: getattr(coefficients, name) for name in ("terms", "uniform", "readout", "weights")}
    constants |= {"threshold": flag_threshold(neuron), "switched": switched}
    codelet = _codelets(low).update(coefficients.structure, source)
    operands = {"x": x, "u": u, "current": current, "flags": fired, **own}
    _emit(low, "neuron update", op, codelet, operands, constants, ((x, op.outputs[0]), (u, op.outputs[1])))


def _surrogate_constants(low: Lowering, layer: str, coefficients: Packed) -> dict[str, object]:
    selection = low.layer(layer).selection
    return {
        "readout": coefficients.readout,
        "weights": coefficients.weights,
        "threshold": selection.threshold,
        "slope": selection.slope,
        "surrogate": surrogates.kind_of(selection.surrogate),
    }


def lower_readout_of_spikes(low: Lowering, ops: Operations) -> None:
    """select_gradient, or spike_gradient, + neuron_readout_gradient: the surrogate at listed ids, or of every neuron,
    into the adjoint of the states."""
    gradient, readout = ops
    layer = low.layer(gradient.layer)
    dx = low.storage[readout.inputs[0]][0]
    low.storage[readout.outputs[0]] = (dx,)
    coefficients, own = _packed(low, layer.name)
    constants = _surrogate_constants(low, layer.name, coefficients)
    g, *spikes, u = (low.storage[name] for name in gradient.inputs)
    operands, defines = {"dx": dx, "u": u[0], "g": g[0], **own}, ((dx, readout.outputs[0]),)
    which = coefficients.structure, layer.selection.surrogate
    if not spikes:
        codelet = _codelets(low).dense_state_gradient(*which)
        _emit(low, "state gradient", gradient, codelet, operands, constants, defines)
        return
    if low.options.state_gradient == "per_batch":
        raise MappingError(
            f'layer \'{layer.name}\': mapping.state_gradient = "per_batch" is for neuron = "lif" only: write '
            '"tilewise", or for "lif" reset = "zero" by state and reset_gradient = "pass" or "mask", as published'
        )
    codelet = codelets.state_gradient(*which)
    low.compute(
        "state gradient",
        gradient,
        codelet,
        *low.by_sample_and_tile(layer.name),
        _read_by(codelet, operands) | dict(zip(("ids", "counts"), spikes[0], strict=True)),
        extents={"listed": Listed(layer=layer.name), "hits": Hits(layer=layer.name)},
        constants=constants,
        defines=defines,
    )


def lower_readout_gradient(low: Lowering, ops: Operations) -> None:
    """neuron_readout_gradient: from an adjoint of u at every neuron."""
    (op,) = ops
    dx, du = (low.storage[name][0] for name in op.inputs)
    low.storage[op.outputs[0]] = (dx,)
    coefficients, own = _packed(low, op.layer)
    constants = {"readout": coefficients.readout, "weights": coefficients.weights}
    codelet = _codelets(low).readout_gradient(coefficients.structure)
    operands = {"dx": dx, "du": du, **own}
    _emit(low, "read-out gradient", op, codelet, operands, constants, ((dx, op.outputs[0]),))


def lower_gradient(low: Lowering, ops: Operations) -> None:
    """neuron_gradient, and with it the surrogate of a reset by state where gradients go through resets."""
    op, *through = ops
    layer, attributes = op.layer, op.attributes
    assert isinstance(attributes, Gradient)
    names = iter(op.inputs)
    dx = low.storage[next(names)][0]
    q = low.plane(f"q.{layer}", layer, "gradients")
    low.storage[op.outputs[0]], low.storage[op.outputs[1]] = (dx,), (q,)
    operands = {"dx": dx, "q": q}
    reads = {"fired": attributes.switched, "x": attributes.reads_state, "current": attributes.reads_current}
    operands |= {name: low.storage[next(names)][0] for name, read in reads.items() if read}
    coefficients, own = _packed(low, layer, attributes.switched or attributes.of_fired)
    constants: dict[str, object] = {
        "terms": coefficients.terms,
        "uniform": coefficients.uniform,
        "threshold": flag_threshold(attributes.neuron),
        "switched": attributes.switched,
    }
    defines = [(dx, op.outputs[0]), (q, op.outputs[1])]
    codelet = _codelets(low).gradient(coefficients.structure, "fired" if attributes.switched else "")
    if attributes.of_fired:
        selection = low.layer(layer).selection
        surrogate = selection.surrogate if through else ""
        value = through[0].outputs[0] if through else op.outputs[2]
        low.storage[value] = low.storage.get(value) or (low.plane(f"d_fired.{layer}", layer, "gradients"),)
        operands["d_fired"] = low.storage[value][0]
        defines.append((operands["d_fired"], value))
        constants |= {"slope": selection.slope, "surrogate": surrogates.kind_of(surrogate) if surrogate else -1}
        more = tuple(name for name in ("x", "current") if reads[name])
        if through:
            operands["fired"] = low.storage[through[0].inputs[1]][0]  # the potential, which says who fired too
        source = "fired" if "fired" in operands else ""
        codelet = _codelets(low).full_gradient(coefficients.structure, more, surrogate, source)
    _emit(low, "neuron gradient", op, codelet, {**operands, **own}, constants, defines)


def lower_emitted_gradient(low: Lowering, ops: Operations) -> None:
    """emitted_gradient: each id's number from the tile of its neuron, brought together as partial sums are."""
    (op,) = ops
    d_fired, spikes = op.inputs
    ids, counts = replicate_spikes(low, spikes, op.layer)
    partial = partial_sums(low, op, low.placed(op.layer).homes)
    layer, shift = low.origin(spikes)
    low.compute(
        "reset gradient",
        op,
        codelets.EMITTED_GRADIENT,
        *low.by_sample_and_tile(op.layer, parts=True),
        {"partial": partial, "d_fired": low.storage[d_fired][0], "ids": ids, "counts": counts},
        extents={"listed": Listed(layer=layer, shift=shift), "hits": Hits(layer=layer, shift=shift)},
    )
    emit_reduction(low, op, partial, low.storage[spikes][1], listed_gradient(low, op))


# ---- fused neurons


def lower_lif(low: Lowering, ops: Operations) -> None:
    """lif, and the synapse before it: the current is summed from listed ids, or a dense row, and integrated in the same
    vertex; one that lies with the neurons is only integrated."""
    *synapses, lif = ops
    layer = lif.layer
    v = low.storage[lif.inputs[0]][0]
    low.storage[lif.outputs[0]] = (v,)
    where, constants = low.by_sample_and_tile(layer), constants_of(lif.attributes)._asdict()
    if synapses and low.placed(layer).fan_in_parts == 1:
        operands, extents = synapse_inputs(low, synapses[0])
        codelet, stage = fused.LIF_UPDATE_DENSE if "row" in operands else fused.LIF_UPDATE, "LIF update"
    else:
        current = emit_current(low, synapses[0]) if synapses else low.storage[lif.inputs[1]][0]
        codelet, stage, operands, extents = fused.LIF_INTEGRATE, "integrate", {"current": current}, {}
    operands, defines = {"v": v, **operands}, ((v, lif.outputs[0]),)
    low.compute(stage, lif, codelet, *where, operands, extents=extents, constants=constants, defines=defines)


def _surrogate_constant(layer: Layer) -> dict[str, object]:
    """Which surrogate a vertex evaluates; the published codelets know theirs."""
    name = layer.selection.surrogate
    return {"slope": np.float32(layer.selection.slope)} | (
        {} if name == "superspike" else {"surrogate": surrogates.kind_of(name)}
    )


def lower_state_gradient(low: Lowering, ops: Operations) -> None:
    """select_gradient + add: the surrogate at listed ids, added to the adjoint in place."""
    gradient, add = ops
    layer = low.layer(gradient.layer)
    dv = low.accumulate(gradient, add)
    g, spikes, v = (low.storage[name] for name in gradient.inputs)
    operands = {"v": v[0], "g": g[0], "ids": spikes[0], "counts": spikes[1]}
    if low.options.state_gradient == "per_batch":
        _lower_state_gradient_rows(low, layer, dv, operands)
        return
    low.compute(
        "state gradient",
        gradient,
        surrogates.state_gradient(layer.selection.surrogate),
        *low.by_sample_and_tile(layer.name),
        {"dv": dv, **operands},
        extents={"listed": Listed(layer=layer.name), "hits": Hits(layer=layer.name)},
        constants={"threshold": np.float32(layer.selection.threshold), **_surrogate_constant(layer)},
        defines=((dv, add.outputs[0]),),
    )


def _lower_state_gradient_rows(low: Lowering, layer: Layer, dv: str, operands: dict[str, str]) -> None:
    """One vertex per sample on whole rows, gathered from and scattered back to the neuron tiles."""
    name, samples, tiles = layer.name, np.arange(low.network.batch), low.placed(layer.name).combine_tiles
    mapping = TileMapping.split(0, tiles, samples, samples + 1)
    row = low.variable(f"dv_row.{name}", (len(samples), layer.neurons), "float32", mapping, "gradients")
    low.compute(
        "state gradient",
        "select_gradient",
        surrogates.state_gradient_row(layer.selection.surrogate),
        tiles,
        {"sample": samples},
        {"row": row, "dv": dv, "threshold": f"threshold.{name}", **operands},
        layer=name,
        extents={"listed": Listed(layer=name)},
        constants=_surrogate_constant(layer),
    )
    low.copies("scatter state gradient", "select_gradient", Copy(source=row, target=dv), layer=name)


def declare_thresholds(low: Lowering, layer: str) -> None:
    """The layer's thresholds as a variable, for vertices that work on rows of all neurons."""
    width, where = low.layer(layer).neurons, low.over_row(layer)
    name = low.variable(f"threshold.{layer}", (width,), "float32", low.by_neuron(layer, 0), "neuron states")
    low.compute(
        "set thresholds",
        "zeros",
        FILL_VECTOR,
        *where,
        {"target": name},
        layer=layer,
        constants={"value": np.float32(low.layer(layer).selection.threshold)},
    )


def declare_constants(low: Lowering, layer: str) -> None:
    """decay and gain of the layer's neurons as variables, where the library puts constants: not with the neurons."""
    neuron = low.layer(layer).acting_neuron
    if neuron.fused:
        low.constant("decay", layer, float(constants_of(neuron).decay))
        low.constant("gain", layer, float(constants_of(neuron).scale))


def lower_current_gradient(low: Lowering, ops: Operations) -> None:
    """q = dv * (1 - decay) * gain on the tile's neurons, all samples."""
    (op,) = ops
    dv, q = low.storage[op.inputs[0]][0], low.plane(f"q.{op.layer}", op.layer, "gradients")
    low.storage[op.outputs[0]] = (q,)
    if "fused_adjoint" in low.options.rules:
        _lower_adjoint(low, op, dv, q)
        return
    copy, scale = (low.over_neurons(codelet, op.layer) for codelet in (COPY_COLUMNS, fused.CURRENT_GRADIENT))
    low.compute("copy adjoint", op, *copy, {"source": dv, "target": q}, mergeable=False)
    operands, defines = {"q": q, "gain": f"gain.{op.layer}"}, ((q, op.outputs[0]),)
    low.compute("scale gradient", op, *scale, operands, defines=defines, mergeable=False)


def _lower_adjoint(low: Lowering, op: Operation, dv: str, q: str) -> None:
    """The gradient of the current and, in the same vertex, the decay that `lower_decay_gradient` then leaves out: what
    lies between reads the former only."""
    assert low.scan_body is not None
    decay = next(
        other
        for other in low.scan_body.operations
        if other.kind == "lif_state_gradient" and other.layer == op.layer and other.inputs[0] == op.inputs[0]
    )
    known, operands, codelet = constants_of(op.attributes)._asdict(), {"dv": dv, "q": q}, fused.ADJOINT_ROWS
    if len(decay.inputs) == 2:
        codelet = fused.MASKED_ADJOINT_ROWS
        operands["v_previous"] = low.storage[decay.inputs[1]][0]
    constants = {name: known[name] for name in codelet.constants}
    defines = ((q, op.outputs[0]), (dv, decay.outputs[0]))
    _emit(low, "gradient of currents", op, codelet, operands, constants, defines)


def lower_decay_gradient(low: Lowering, ops: Operations) -> None:
    """dv <- decay * dv in place, masked where the neuron was reset when the gradient does not pass resets."""
    (op,) = ops
    dv = low.storage[op.inputs[0]][0]
    low.storage[op.outputs[0]] = (dv,)
    if "fused_adjoint" in low.options.rules:  # done with the gradient of the current
        return
    operands, codelet = {"dv": dv, "decay": f"decay.{op.layer}"}, fused.DECAY_GRADIENT
    constants: dict[str, object] = {}
    if len(op.inputs) == 2:
        codelet = fused.MASKED_DECAY_GRADIENT
        operands["v_previous"] = low.storage[op.inputs[1]][0]
        constants["threshold"] = constants_of(op.attributes).threshold
    where, defines = low.over_neurons(codelet, op.layer), ((dv, op.outputs[0]),)
    low.compute("decay gradient", op, *where, operands, constants=constants, defines=defines, mergeable=False)


ARRAY_RULES = {
    ("fired",): lower_fired,
    ("neuron",): lower_neuron,
    ("spike_gradient", "neuron_readout_gradient"): lower_readout_of_spikes,
    ("neuron_readout_gradient",): lower_readout_gradient,
    ("neuron_gradient",): lower_gradient,
    ("neuron_gradient", "spike_gradient"): lower_gradient,
}
RULES = {
    ("fired",): lower_fired,
    ("emitted",): lower_emitted,
    ("neuron",): lower_neuron,
    ("select_gradient", "neuron_readout_gradient"): lower_readout_of_spikes,
    ("neuron_readout_gradient",): lower_readout_gradient,
    ("neuron_gradient",): lower_gradient,
    ("neuron_gradient", "spike_gradient"): lower_gradient,
    ("emitted_gradient",): lower_emitted_gradient,
    ("synapse", "lif"): lower_lif,
    ("lif",): lower_lif,
    ("select_gradient", "add"): lower_state_gradient,
    ("lif_current_gradient",): lower_current_gradient,
    ("lif_state_gradient",): lower_decay_gradient,
}
OVERWRITES = ("lif_state_gradient", "neuron_readout_gradient", "neuron_gradient")  # their first input, by their result
