"""The weights that a workload names to start from, and the layers of a model that it names."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from mimdsim.base.errors import DescriptionError
from mimdsim.base.files import with_home
from mimdsim.graph import Layer, SpikingNetwork
from mimdsim.workload.description.workload import Workload
from mimdsim.workload.interchange.layers import Learning, layers_of
from mimdsim.workload.interchange.model_file import arrays_of, read_model
from mimdsim.workload.interchange.weights_file import checked_weights, read_arrays


def given_weights(workload: Workload, network: SpikingNetwork) -> dict[str, npt.NDArray[np.float32]] | None:
    """float32 arrays for everything that the network trains, from training.initial_weights or else network.imported;
    None if neither is given.

    Raises DataFileError if names or shapes are not those of the network.
    """
    if workload.training.initial_weights:
        path = with_home(workload.training.initial_weights)
        return checked_weights(path, read_arrays(path), network.shapes)
    if workload.network.imported:
        path = with_home(workload.network.imported)
        return checked_weights(path, arrays_of(read_model(path)), network.shapes)
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
    learning = Learning(
        capacities=tuple(layer.capacity for layer in described.layers),
        second_threshold=chosen.second_threshold,
        output_second_threshold=chosen.output_second_threshold,
        slope=chosen.surrogate_slope,
        reset_gradient=chosen.reset_gradient or "mask",
        surrogate=chosen.surrogate,
        truncation=chosen.truncation,
    )
    return layers_of(f"network.imported = '{chosen.imported}'", network, learning)
