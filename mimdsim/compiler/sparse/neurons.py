"""Neurons on tiles: who fired, the update, and the adjoint, all where the neurons lie.

Of any linear neuron: a vertex per tile and worker context, each with a share of the samples; per-neuron coefficients
lie with the neurons and are loaded with the program. Of a fused one, as published: the update, which sums the current
too, and the surrogate in a vertex per tile and sample, the factors of the adjoint in library vertices.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from mimdsim.base.errors import MappingError
from mimdsim.codelets import library_linear_neurons, surrogates
from mimdsim.codelets import linear_neurons as codelets
from mimdsim.codelets import neurons as fused
from mimdsim.codelets.dense import COPY_COLUMNS
from mimdsim.codelets.linear_terms import Packed, pack_terms
from mimdsim.compiler.context import Lowering, Rules, lower_in_place, together
from mimdsim.compiler.layout import entries_on
from mimdsim.compiler.sparse.recurrence_and_bias import emit_current, synapse_inputs
from mimdsim.compiler.sparse.selection import received
from mimdsim.compiler.sparse.spikes import emit_parts
from mimdsim.compiler.time_slices import fill
from mimdsim.graph import Layer, Operation
from mimdsim.graph.linear_neurons import Gradient, LinearNeuron, constants_of
from mimdsim.graph.names import coefficient_of
from mimdsim.program import Codelet, Copy
from mimdsim.program.loops import Recorded

FLAG_THRESHOLD = 0.5  # between the zero and the one of a flag

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
    low: Lowering,
    stage: str,
    op: Operation,
    codelet: Codelet,
    operands: dict[str, str],
    coefficients: Packed,
    **more: Any,
) -> None:
    """Vertices on boxes of neurons; more: constants beside the coefficients."""
    constants = vars(coefficients) | more
    low.compute(stage, op, codelet, *low.by_context(op.layer), operands, constants=constants)


def lower_emitted(low: Lowering, op: Operation) -> None:
    """emitted: flags of a layer's own listed spikes where its neurons lie; a row of bytes is as good as flags."""
    (spikes,) = op.inputs
    source = received(low, spikes)
    if len(source) == 1:
        low.storage[op.outputs[0]] = source
        return
    flags = low.plane(f"emitted.{op.layer}", op.layer, "neuron states", "int32")
    low.storage[op.outputs[0]] = (flags,)
    where, operands = low.by_sample_and_tile(op.layer), {"flags": flags, "ids": source[0], "counts": source[1]}
    low.compute("own spikes", op, codelets.EMITTED_FLAGS, *where, operands, follows=low.origin(spikes), defines=())


def flag_threshold(neuron: LinearNeuron) -> float:
    """What is compared with: potentials, or flags."""
    return neuron.threshold if neuron.reset_by == "state" else FLAG_THRESHOLD


def lower_neuron(low: Lowering, op: Operation) -> None:
    """neuron: one timestep of the layer's states, in place, and u."""
    layer, neuron = op.layer, op.attributes
    x, current = (low.storage[name][0] for name in op.inputs[:2])
    u = low.plane(f"u.{layer}", layer, "neuron states")
    low.storage[op.outputs[0]], low.storage[op.outputs[1]] = (x,), (u,)
    switched = len(op.inputs) - len(neuron.rows) == 3
    fired = low.storage[op.inputs[2]][0] if switched else ""
    source = ("u" if fired == u else "flags") if switched else ""
    coefficients, own = _packed(low, layer, switched)
    codelet = _codelets(low).update(coefficients.structure, source)
    operands = {"x": x, "u": u, "current": current, "flags": fired, **own}
    more = {"threshold": flag_threshold(neuron), "switched": switched}
    comparison = low.scan_body.producer(op.inputs[2]) if switched and low.scan_body else None
    served = together(comparison, op) if comparison and comparison.kind == "fired" else op
    _emit(low, "neuron update", served, codelet, operands, coefficients, **more)


def lower_readout_of_spikes(low: Lowering, gradient: Operation, readout: Operation) -> None:
    """select_gradient, or spike_gradient, + neuron_readout_gradient: the surrogate at listed ids, or of every neuron,
    into the adjoint of the states."""
    layer = low.layer(gradient.layer)
    dx = low.storage[readout.inputs[0]][0]
    low.storage[readout.outputs[0]] = (dx,)
    coefficients, own = _packed(low, layer.name)
    g, *spikes, u = (low.storage[name] for name in gradient.inputs)
    operands = {"dx": dx, "u": u[0], "g": g[0], **own}
    which = coefficients.structure, layer.selection.surrogate
    if not spikes:
        codelet = _codelets(low).dense_state_gradient(*which)
        _emit(low, "state gradient", gradient, codelet, operands, coefficients, **_surrogate(layer, float))
        return
    if low.options.state_gradient == "per_batch":
        raise MappingError(
            f'layer \'{layer.name}\': mapping.state_gradient = "per_batch" is for neuron = "lif" only: write '
            '"tilewise", or for "lif" reset = "zero" by state and reset_gradient = "pass" or "mask", as published'
        )
    constants = vars(coefficients) | _surrogate(layer, float)
    emit_at_ids(low, "state gradient", gradient, codelets.state_gradient(*which), {"dx": dx, **own}, constants)


def _surrogate(layer: Layer, number: Callable[[float], object] = np.float32) -> dict[str, object]:
    """The constants of vertices that evaluate a surrogate."""
    selection = layer.selection
    known = {"threshold": number(selection.threshold), "slope": number(selection.slope)}
    return known | {"surrogate": surrogates.kind_of(selection.surrogate)}


def emit_at_ids(
    low: Lowering, stage: str, op: Operation, codelet: Codelet, into: dict[str, str], constants: dict[str, object]
) -> None:
    """select_gradient: the surrogate at listed ids, added to what lies with the neurons."""
    g, spikes, u = (low.storage[name] for name in op.inputs)
    operands = {"u": u[0], "v": u[0], "g": g[0], "ids": spikes[0], "counts": spikes[1], **into}
    where, follows = low.by_sample_and_tile(op.layer), Recorded(layer=op.layer)
    low.compute(stage, op, codelet, *where, operands, follows=follows, constants=constants)


def lower_readout_gradient(low: Lowering, op: Operation) -> None:
    """neuron_readout_gradient: from an adjoint of u at every neuron."""
    dx, du = (low.storage[name][0] for name in op.inputs)
    low.storage[op.outputs[0]] = (dx,)
    coefficients, own = _packed(low, op.layer)
    codelet = _codelets(low).readout_gradient(coefficients.structure)
    _emit(low, "read-out gradient", op, codelet, {"dx": dx, "du": du, **own}, coefficients)


def lower_gradient(low: Lowering, op: Operation, *through: Operation) -> None:
    """neuron_gradient, and with it the surrogate of a reset by state where gradients go through resets."""
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
    more: dict[str, object] = {"threshold": flag_threshold(attributes.neuron), "switched": attributes.switched}
    codelet = _codelets(low).gradient(coefficients.structure, "fired" if attributes.switched else "")
    if attributes.of_fired:
        selection = low.layer(layer).selection
        surrogate = selection.surrogate if through else ""
        value = through[0].outputs[0] if through else op.outputs[2]
        low.storage[value] = low.storage.get(value) or (low.plane(f"d_fired.{layer}", layer, "gradients"),)
        operands["d_fired"] = low.storage[value][0]
        more |= {"slope": selection.slope, "surrogate": surrogates.kind_of(surrogate) if surrogate else -1}
        read = tuple(name for name in ("x", "current") if reads[name])
        if through:
            operands["fired"] = low.storage[through[0].inputs[1]][0]  # the potential, which says who fired too
        source = "fired" if "fired" in operands else ""
        codelet = _codelets(low).full_gradient(coefficients.structure, read, surrogate, source)
    _emit(low, "neuron gradient", op, codelet, {**operands, **own}, coefficients, **more)


def lower_emitted_gradient(low: Lowering, op: Operation) -> None:
    """emitted_gradient: each id's number from the tile of its neuron, brought together as partial sums are."""
    operands, grid = {"d_fired": low.storage[op.inputs[0]][0]}, low.placed(op.layer).homes
    emit_parts(low, op, "reset gradient", codelets.EMITTED_GRADIENT, operands, grid)


# ---- fused neurons


def lower_lif(low: Lowering, *ops: Operation) -> None:
    """lif, and the synapse before it: the current is summed from listed ids, or a dense row, and integrated in the same
    vertex; one that lies with the neurons is only integrated."""
    *synapses, lif = ops
    layer = lif.layer
    v = low.storage[lif.inputs[0]][0]
    low.storage[lif.outputs[0]] = (v,)
    where, constants = low.by_sample_and_tile(layer), constants_of(lif.attributes)._asdict()
    if synapses and low.placed(layer).fan_in_parts == 1:
        operands = synapse_inputs(low, synapses[0])
        codelet, stage = fused.LIF_UPDATE_DENSE if "row" in operands else fused.LIF_UPDATE, "LIF update"
        follows, served = low.origin(synapses[0].inputs[0]), together(*ops)
    else:
        current = emit_current(low, synapses[0]) if synapses else low.storage[lif.inputs[1]][0]
        codelet, stage, operands, follows = fused.LIF_INTEGRATE, "integrate", {"current": current}, None
        served = lif
    low.compute(stage, served, codelet, *where, {"v": v, **operands}, follows=follows, constants=constants)


def lower_state_gradient(low: Lowering, gradient: Operation, add: Operation) -> None:
    """select_gradient + add: the surrogate at listed ids, added to the adjoint in place."""
    dv, layer = low.accumulate(gradient, add), low.layer(gradient.layer)
    if low.options.state_gradient == "per_batch":
        _lower_state_gradient_rows(low, gradient, dv)
    else:
        codelet = surrogates.state_gradient(layer.selection.surrogate)
        emit_at_ids(low, "state gradient", gradient, codelet, {"dv": dv}, _surrogate(layer))


def lower_listed_adjoint(low: Lowering, op: Operation) -> None:
    """select_gradient whose result several read: the adjoint of the potential at every neuron, 0 where it is not
    listed."""
    layer = low.layer(op.layer)
    du = low.plane(f"du.{layer.name}", layer.name, "gradients")
    low.storage[op.outputs[0]] = (du,)
    fill(low, du, "zero potential adjoints", layer.name)
    codelet = surrogates.state_gradient(layer.selection.surrogate)
    emit_at_ids(low, "potential gradient", op, codelet, {"dv": du}, _surrogate(layer))


def _lower_state_gradient_rows(low: Lowering, op: Operation, dv: str) -> None:
    """One vertex per sample on whole rows, gathered from and scattered back to the neuron tiles."""
    layer, samples, tiles = low.layer(op.layer), np.arange(low.network.batch), low.placed(op.layer).combine_tiles
    row = low.variable(f"dv_row.{op.layer}", (len(samples), layer.neurons), "float32", entries_on(tiles), "gradients")
    g, spikes, v = (low.storage[name] for name in op.inputs)
    operands = {"row": row, "dv": dv, "threshold": f"threshold.{op.layer}", "v": v[0], "g": g[0]}
    operands |= {"ids": spikes[0], "counts": spikes[1]}
    low.compute(
        "state gradient",
        op,
        surrogates.state_gradient_row(layer.selection.surrogate),
        tiles,
        {"sample": samples},
        operands,
        follows=Recorded(layer=op.layer),
        constants=_surrogate(layer),
    )
    low.copies("scatter state gradient", op.kind, Copy(source=row, target=dv), layer=op.layer)


def declare_thresholds(low: Lowering, layer: str) -> None:
    """The layer's thresholds as a variable, for vertices that work on rows of all neurons."""
    threshold = np.float32(low.layer(layer).selection.threshold)
    low.constant("threshold", layer, threshold, "set thresholds", *low.over_row(layer))


def declare_constants(low: Lowering, layer: str) -> None:
    """decay and gain of the layer's neurons as variables, where the library puts constants: not with the neurons."""
    neuron = low.layer(layer).acting_neuron
    if neuron.fused:
        known, where = constants_of(neuron), low.linear_runs(layer)
        for name, value in (("decay", known.decay), ("gain", known.scale)):
            low.constant(name, layer, float(value), "set constants", *where)


def lower_current_gradient(low: Lowering, op: Operation) -> None:
    """q = dv * (1 - decay) * gain on the tile's neurons, all samples."""
    dv, q = low.storage[op.inputs[0]][0], low.plane(f"q.{op.layer}", op.layer, "gradients")
    low.storage[op.outputs[0]] = (q,)
    if "fused_adjoint" in low.options.rules:
        _lower_adjoint(low, op, dv, q)
        return
    copy, scale = (low.over_neurons(codelet, op.layer) for codelet in (COPY_COLUMNS, fused.CURRENT_GRADIENT))
    low.compute("copy adjoint", op, *copy, {"source": dv, "target": q}, defines=(), mergeable=False)
    low.compute("scale gradient", op, *scale, {"q": q, "gain": f"gain.{op.layer}"}, mergeable=False)


def _lower_adjoint(low: Lowering, op: Operation, dv: str, q: str) -> None:
    """The gradient of the current and, in the same vertex, the decay that `lower_decay_gradient` then leaves out: what
    lies between reads the former only."""
    assert low.scan_body is not None
    decay = next(
        other
        for other in low.scan_body.operations
        if other.kind == "lif_state_gradient" and other.layer == op.layer and other.inputs[0] == op.inputs[0]
    )
    operands, codelet = {"dv": dv, "q": q}, fused.ADJOINT_ROWS
    if len(decay.inputs) == 2:
        codelet = fused.MASKED_ADJOINT_ROWS
        operands["v_previous"] = low.storage[decay.inputs[1]][0]
    where, defines = low.by_context(op.layer), ((q, op.outputs[0]), (dv, decay.outputs[0]))
    constants = constants_of(op.attributes)._asdict()
    low.compute(
        "gradient of currents", together(decay, op), codelet, *where, operands, constants=constants, defines=defines
    )


def lower_decay_gradient(low: Lowering, op: Operation) -> None:
    """dv <- decay * dv in place, masked where the neuron was reset when the gradient does not pass resets."""
    dv, *before = (low.storage[name][0] for name in op.inputs)
    low.storage[op.outputs[0]] = (dv,)
    if "fused_adjoint" in low.options.rules:  # done with the gradient of the current
        return
    operands, codelet = {"dv": dv, "decay": f"decay.{op.layer}"}, fused.DECAY_GRADIENT
    if before:
        codelet, operands["v_previous"] = fused.MASKED_DECAY_GRADIENT, before[0]
    where, constants = low.over_neurons(codelet, op.layer), constants_of(op.attributes)._asdict()
    low.compute("decay gradient", op, *where, operands, constants=constants, mergeable=False)


OF_BOTH: Rules = {
    ("fired",): lower_in_place,  # told by the potential itself; whoever needs it compares
    ("neuron",): lower_neuron,
    ("neuron_readout_gradient",): lower_readout_gradient,
    ("neuron_gradient",): lower_gradient,
    ("neuron_gradient", "spike_gradient"): lower_gradient,
}
ARRAY_RULES: Rules = {**OF_BOTH, ("spike_gradient", "neuron_readout_gradient"): lower_readout_of_spikes}
RULES: Rules = {
    **OF_BOTH,
    ("emitted",): lower_emitted,
    ("select_gradient", "neuron_readout_gradient"): lower_readout_of_spikes,
    ("emitted_gradient",): lower_emitted_gradient,
    ("synapse", "lif"): lower_lif,
    ("lif",): lower_lif,
    ("select_gradient", "add"): lower_state_gradient,
    ("select_gradient",): lower_listed_adjoint,
    ("lif_current_gradient",): lower_current_gradient,
    ("lif_state_gradient",): lower_decay_gradient,
}
OVERWRITES = ("lif_state_gradient", "neuron_readout_gradient", "neuron_gradient")  # their first input, by their result
