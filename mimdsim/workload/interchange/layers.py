"""Populations as layers of the training graph, and layers of a trained network as populations again;
the weights that a workload starts from."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from mimdsim.base.errors import DataFileError, DescriptionError
from mimdsim.base.files import with_home
from mimdsim.graph import OPERATIONS, Layer, SpikingNetwork
from mimdsim.graph.learned_constants import settled
from mimdsim.graph.linear_neurons import LinearNeuron
from mimdsim.graph.names import INPUT, Parameter
from mimdsim.graph.neuron_parts import Model, Parts, compose
from mimdsim.graph.sources import ADD, Source
from mimdsim.graph.spikes import Selection
from mimdsim.workload.description.workload import Workload
from mimdsim.workload.interchange.model_file import (
    RESETS,
    Dynamics,
    ImportedNetwork,
    Population,
    Reset,
    arrays_of,
    read_model,
)
from mimdsim.workload.interchange.nir_nodes import Reals
from mimdsim.workload.interchange.weights_file import Array, check_weights, read_arrays, read_notes, write_safetensors


def layers_of(
    where: str, network: ImportedNetwork, selections: Sequence[Selection], reset_gradients: Sequence[str]
) -> tuple[tuple[Layer, ...], int]:
    """(layers, timesteps from one layer to the next); raises DescriptionError for what layers cannot be.

    Delays that differ from layer to layer are those of what each reads. A model file does not say how many spikes a
    layer lists and how gradients pass them: `selections` do, whose second thresholds are shares of the layer's
    threshold, and `reset_gradients`.
    """
    delay = int({one.lag for sources in network.sources for one in sources if one.name != INPUT} == {1})
    silent = {name for name, each in network.layers if not each.spiking}
    layers: list[Layer] = []
    for index, ((name, each), sources) in enumerate(zip(network.layers, network.sources, strict=True)):
        if unsent := [one.name for one in sources if one.name in silent]:
            what = f"layer '{unsent[0]}' does not spike; only the last one may send its potential, which no other reads"
            raise _refused(where, f"{what} ('{name}' does)")
        before, usual = (layers[-1].name, delay) if layers else (INPUT, 0)
        plain = (Source(name=before, neurons=each.inputs, lag=usual),)
        neuron, selection = linear_neuron(each.dynamics, each.kind, reset_gradients[index]), selections[index]
        layers.append(
            Layer(
                name=name,
                inputs=each.inputs,
                neurons=each.neurons,
                neuron=neuron,
                selection=replace(
                    selection,
                    threshold=neuron.threshold,
                    second_threshold=selection.second_threshold * neuron.threshold,
                ),
                bias=each.bias is not None,
                recurrence=each.recurrence,
                spiking=each.spiking,
                convolution=each.convolution,
                sources=() if sources == plain else sources,
            )
        )
    return tuple(layers), delay


def linear_neuron(dynamics: Dynamics, kind: str, reset_gradient: str = "mask") -> LinearNeuron:
    """The neurons of a population in the graph's linear family; potentials are counted from `rest`."""
    matrix, drive = dynamics.matrices()
    states = ("potential", "current")[: dynamics.states]
    spiking = dynamics.threshold is not None
    threshold = dynamics.threshold - dynamics.rest if dynamics.threshold is not None else 1.0
    value = dynamics.reset_value - dynamics.rest if dynamics.reset_value is not None else 0.0
    parts = Parts(
        matrix=[[_short(entry) for entry in row] for row in matrix],
        drive=[_short(entry) for entry in drive],
        threshold=_short(threshold),
        offset=0.0 if spiking else _short(dynamics.rest),
        zero_when="after" if dynamics.reset == "zero_after" else "before",
        reset_value=_short(value),
        subtracts=None if dynamics.threshold is None else _short(dynamics.threshold),
        subtract_decays=dynamics.reset == "subtract_decayed",
    )
    reset = {"zero_after": "zero", "subtract_decayed": "subtract"}.get(dynamics.reset, dynamics.reset)
    model = Model(
        name=kind,
        states=states,
        parameters=(),
        resets=(reset,),
        parts=lambda _: parts,
        equation="of the model file",
        source="the model file",
        spiking=spiking,
    )
    return compose(model, parts, reset=reset, reset_by="state", reset_gradient=reset_gradient)


def network_of_layers(
    network: SpikingNetwork, weights: Mapping[str, Array], dt_seconds: float
) -> tuple[ImportedNetwork, tuple[str, ...]]:
    """(a network with its weights as populations, their names); raises DescriptionError for neurons that do not fit."""
    populations = []
    for layer in (with_constants(each, weights) for each in network.layers):
        if layer.unweighted:
            raise _not_in_files(layer, "a layer without weights is not written to files")
        acting = _acting_weights(layer, weights)
        bias, recurrent = (
            next((values for each, values in acting.items() if each.role == role), None)
            for role in ("bias", "recurrent")
        )
        if recurrent is not None and layer.recurrence in ("one_to_one", "one_weight"):
            recurrent = recurrent.reshape(-1)
        read = network.sources(layer)
        matrices = (np.asarray(values, np.float64) for each, values in acting.items() if each.role == "weights")
        arrays = zip(read, matrices, strict=True)
        # the same weights for every term of a sum
        every = ((term, values) for each, values in arrays if values.any() or each == read[0] for term in each.terms)
        reads = tuple(every)
        if other := [each for one in read for each in one.combinations if each.by != ADD]:
            raise _not_in_files(layer, f"a {other[0].kind} of spikes has no counterpart in NIR")
        if layer.norm and (not layer.norm.averages or layer.norm.rows > 1):
            of = "samples" if not layer.norm.averages else "each timestep"
            raise _not_in_files(layer, f"norms of {of} have no counterpart in NIR")
        if layer.convolution and layer.convolution.own:
            raise _not_in_files(layer, "a kernel over a layer's own spikes is not written to files")
        if layer.convolution and len(reads) > 1:
            several = "several sources" if len(read) > 1 else "a sum of spikes"
            raise _not_in_files(layer, f"a convolution of {several} is not written to files")
        populations.append(
            Population(
                node=layer.name,
                kind="LIF" if layer.spiking else "LI",
                reads=reads,
                dynamics=_dynamics(layer),
                bias=None if bias is None else np.asarray(bias, np.float64).reshape(-1),
                recurrent=None if recurrent is None else np.asarray(recurrent, np.float64),
                convolution=layer.convolution,
            )
        )
    names = tuple(layer.name for layer in network.layers)
    return ImportedNetwork(populations=tuple(populations), dt_seconds=dt_seconds), names


def _not_in_files(layer: Layer, why: str) -> DescriptionError:
    return _refused(f"layer '{layer.name}'", f"{why}; nearest: a state dict by mimdsim.to_torch")


def _acting_weights(layer: Layer, weights: Mapping[str, Array]) -> dict[Parameter, Array]:
    """Weights and biases as timesteps read them; delays that were learned are rounded."""
    known = dict(weights)
    for each in layer.derived:
        given = [np.asarray(weights[own.name], np.float64) for own in each.of] + [np.zeros(1) for _ in each.scheduled]
        made = OPERATIONS[each.kind].evaluate(each.about, *given)
        known |= {own.name: values for own, values in zip(each.makes, made, strict=True)}
    return {
        each: known[each.name]
        for each in layer.acting
        if each.role in ("weights", "recurrent", "bias") and each.name in known
    }


def with_constants(layer: Layer, weights: Mapping[str, Array]) -> Layer:
    """The layer with what its neurons have learned of their constants, which are fixed then."""
    trained = [weights[each.name] for each in layer.parameters if each.constant]
    return replace(layer, neuron=settled(layer.acting_neuron, layer.columns, trained)) if trained else layer


def _dynamics(layer: Layer) -> Dynamics:
    """The constants of a layer's neurons."""
    wide = np.ones(layer.columns)
    if layer.cell:
        why = f"cells '{layer.cell.model}' have no counterpart in NIR, whose nodes are linear between spikes"
        raise _refused(f"layer '{layer.name}'", f"{why}; nearest: cuba_lif, or a state dict by mimdsim.to_torch")
    neuron = layer.acting_neuron
    states = len(neuron.states)
    matrix, drive, constant = (array * wide for array in neuron.quiet.arrays)
    plain = not constant.any() and np.array_equal(neuron.readout[0] * wide, wide) and not neuron.readout[1:].any()
    if states > 2 or not plain or (states == 2 and (matrix[1, 0].any() or not drive[1].all())):
        raise _refused(f"layer '{layer.name}'", f"neurons of model '{neuron.model}' have no counterpart in NIR")
    made = Dynamics(decay=matrix[0, 0], gain=drive[0], rest=0 * wide)
    if states == 2:
        made = replace(made, gain=drive[0] / drive[1], synapse_decay=matrix[1, 1], synapse_gain=drive[1])
        if not np.allclose(made.gain * matrix[1, 1], matrix[0, 1], rtol=1e-6):
            raise _refused(f"layer '{layer.name}'", f"neurons of model '{neuron.model}' have no counterpart in NIR")
    if not layer.spiking:
        return replace(made, rest=neuron.offset * wide)
    threshold = (neuron.threshold - neuron.offset) * wide
    for candidate in _resets(made, neuron, threshold):
        if _same(linear_neuron(candidate, neuron.model), neuron, layer.columns):
            return candidate
    raise _refused(f"layer '{layer.name}'", f"the reset of neurons of model '{neuron.model}' has no counterpart in NIR")


def _resets(quiet: Dynamics, neuron: LinearNeuron, threshold: Reals) -> list[Dynamics]:
    """What the neurons could be, one for every kind of reset."""
    made = []
    for reset in RESETS:
        value: Reals | None = None
        rest = quiet.rest
        if neuron.fired is not None:
            constant = neuron.fired.constant[0] * np.ones_like(threshold)
            leaks = np.where(quiet.decay == 0, 1.0, quiet.decay)
            value = {"zero": constant / leaks, "zero_after": constant}.get(reset)
            taken: dict[Reset, Reals] = {"subtract": -constant, "subtract_decayed": -constant / leaks}
            rest = taken[reset] - threshold if reset in taken else rest  # rest is not zero: more is subtracted
        rest = np.where(np.abs(rest) < 1e-6, 0.0, rest)
        value = None if value is None else value + rest
        made.append(replace(quiet, rest=rest, threshold=threshold + rest, reset=reset, reset_value=value))
    return made


def _same(one: LinearNeuron, other: LinearNeuron, neurons: int) -> bool:
    if (one.fired is None) != (other.fired is None):
        return False
    pairs = [*zip(one.quiet.arrays, other.quiet.arrays, strict=True)]
    if one.fired is not None and other.fired is not None:
        pairs += [*zip(one.fired.arrays, other.fired.arrays, strict=True)]
    wide = np.ones(neurons)
    return all(np.allclose(first * wide, second * wide, rtol=1e-6, atol=1e-9) for first, second in pairs)


def _short(values: Reals | float) -> Any:
    """One number if all neurons have the same."""
    array = np.asarray(values, np.float64)
    return float(array.flat[0]) if array.size and np.all(array == array.flat[0]) else array


def _refused(where: str, what: str) -> DescriptionError:
    return DescriptionError(where, [what])


# ---- the weights that a workload names to start from, and the layers of a model that it names


def given_weights(workload: Workload, network: SpikingNetwork) -> dict[str, npt.NDArray[np.float32]] | None:
    """float32 arrays for everything that the network trains, from training.initial_weights or else network.imported;
    None if neither is given.

    Raises DataFileError if names or shapes are not those of the network.
    """
    if workload.training.initial_weights:
        path = with_home(workload.training.initial_weights)
        if not path.exists():
            raise DataFileError(path, "no such file, though training.initial_weights names it")
        return check_weights(path, read_arrays(path), network.shapes)
    if workload.network.imported:
        path = with_home(workload.network.imported)
        return check_weights(path, arrays_of(read_model(path)), network.shapes)
    return None


def imported_layers(workload: Workload, described: SpikingNetwork) -> tuple[tuple[Layer, ...], int]:
    """(layers of the model that the workload names, delay between them), of the widths of the `described` network.

    Raises DataFileError for the file and DescriptionError if its widths differ.
    """
    chosen = workload.network
    network = read_model(with_home(chosen.imported))
    if network.title != described.title:
        widths = [each.neurons for each in network.populations]
        raise DescriptionError(
            f"workload '{workload.name}'",
            [
                f"network.imported: the model in {chosen.imported} is {network.title}, data and network.hidden are "
                f"{described.title}; give data with {network.inputs} inputs and {network.outputs} classes, and hidden "
                f"= {widths[:-1]}"
            ],
        )
    last = network.populations[-1]
    sent = "spikes" if last.spiking else "membrane"
    if chosen.output != sent:
        wanted = f'network.output: the last layer of {chosen.imported} is of kind {last.kind}; write "{sent}"'
        raise DescriptionError(f"workload '{workload.name}'", [wanted])
    selections = [layer.selection for layer in described.layers]
    gradients = [chosen.of_layer("reset_gradient", index) or "mask" for index in range(len(selections))]
    layers, delay = layers_of(f"network.imported = '{chosen.imported}'", network, selections, gradients)
    dropped = zip(layers, described.layers, strict=True)
    keys = ("dropout", "dropout_per", "dropout_of")
    return tuple(replace(one, **{key: getattr(each, key) for key in keys}) for one, each in dropped), delay


# fields of [network] that determine the meaning of weights; how they were learned (surrogates, capacities) does not
MEANING = (
    "imported", "neuron", "neuron_parameters", "learned", "decay", "current_gain", "threshold", "reset", "reset_by",
    "recurrence", "sources", "delays", "weight_functions", "weight_format", "delay", "bias", "output",
)  # fmt: skip
_NOTE, _ACCURACIES = "mimdsim.network", "mimdsim.accuracies"


def write_trained(path: Path, weights: Mapping[str, Array], workload: Workload, accuracies: str = "") -> None:
    """float32 arrays and, as notes, the fields of the workload's network that give them their meaning, and what they
    are right about with their lists and without, where that differs."""
    notes = {_NOTE: json.dumps(_meaning(workload), sort_keys=True)}
    write_safetensors(path, weights, notes | ({_ACCURACIES: accuracies} if accuracies else {}))


def accuracies_of(path: Path) -> str:
    """What `write_trained` noted of the accuracy of weights; '' for files without it."""
    return read_notes(path).get(_ACCURACIES, "")[:200] if path.suffix.lower() == ".safetensors" else ""


def neuron_differences(path: Path, workload: Workload) -> list[str]:
    """Fields in which the network that the weights were trained for differs: 'threshold 1.0, here 2.0'.

    Empty if all are the same, and for files without such a note.
    """
    if path.suffix.lower() != ".safetensors":
        return []
    try:
        trained = json.loads(read_notes(path).get(_NOTE, "{}"))
    except (ValueError, RecursionError):
        return []  # somebody else's note
    if not isinstance(trained, dict):
        return []
    here = _meaning(workload)
    return [
        f"{field} {json.dumps(trained[field])[:60]}, here {json.dumps(here[field])[:60]}"
        for field in MEANING
        if field in trained and trained[field] != here[field]
    ]


def _meaning(workload: Workload) -> dict[str, object]:
    return workload.network.model_dump(mode="json", include=set(MEANING))
