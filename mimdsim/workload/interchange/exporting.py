"""The network of a workload, with trained weights, written as a NIR graph."""

from __future__ import annotations

from pathlib import Path

from mimdsim.base.errors import DescriptionError
from mimdsim.base.files import writable_folder
from mimdsim.workload.description.network import network_of
from mimdsim.workload.description.workload import Workload
from mimdsim.workload.interchange.layers import network_of_layers
from mimdsim.workload.interchange.nir_writing import nir_of_network, write_nir
from mimdsim.workload.interchange.start import given_weights
from mimdsim.workload.interchange.trained_file import other_neurons
from mimdsim.workload.interchange.weights_file import checked_weights, read_arrays


def export_nir(workload: Workload, weights: Path | None, out: Path, dt_seconds: float | None = None) -> list[str]:
    """Write the graph to `out`; returns lines about it. `weights`: a safetensors or NPZ file with w.<layer> and so on;
    None takes those that the workload starts from.

    Raises DescriptionError for neurons that NIR cannot express, DataFileError for weights of another network.
    """
    network = network_of(workload)
    if weights is not None:
        arrays = checked_weights(weights, read_arrays(weights), network.shapes)
    else:
        found = given_weights(workload, network)
        if found is None:
            raise DescriptionError(
                f"workload '{workload.name}'",
                ["names no weights; give trained ones, --weights reports/.../weights.safetensors"],
            )
        arrays = found
    dt = dt_seconds or workload.data.bin_seconds
    populations, names = network_of_layers(network, arrays, dt)
    writable_folder(out.parent)
    write_nir(out, nir_of_network(populations, names))
    lines = [f"{populations.title}, a timestep of {dt:g} s = tau / r, written to {out}"]
    if weights is not None and (differing := other_neurons(weights, workload)):
        lines.append(
            f"note: {weights} was trained with other neurons (network.{'; network.'.join(differing)}); the written "
            "file has the workload's"
        )
    noted = {each.dynamics.reset for each in populations.populations if each.spiking} - {"zero"}
    lines += [
        f"note: NIR resets to a value; '{reset}' is recorded in the metadata, which other programs do not read"
        for reset in noted
    ]
    if network.delay:
        lines.append(
            "note: layers read each other a timestep later, written as Delay nodes, which not all programs read"
        )
    return lines
