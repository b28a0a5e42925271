"""The weights that a workload names to start from, and the layers of a model that it names."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from mimdsim.base.errors import DataFileError, DescriptionError
from mimdsim.base.files import with_home
from mimdsim.graph import Layer, SpikingNetwork
from mimdsim.workload.description.workload import Workload
from mimdsim.workload.interchange.layers import layers_of
from mimdsim.workload.interchange.model_file import arrays_of, read_model
from mimdsim.workload.interchange.weights_file import Array, check_weights, read_arrays, read_notes, write_safetensors


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
