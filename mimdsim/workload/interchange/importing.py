"""A model of another program turned into a workload: a TOML file that `mimdsim run` takes, and the model next to it."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from mimdsim.base.errors import DataFileError, DescriptionError
from mimdsim.base.files import writable_folder, write_atomically
from mimdsim.base.schema import read_toml, toml_text, toml_value
from mimdsim.graph.names import aged
from mimdsim.workload.description.workload import PATHS, find_beside, find_workload
from mimdsim.workload.interchange.model_file import ImportedNetwork, Population, write_model
from mimdsim.workload.interchange.nir_neurons import Discretisation
from mimdsim.workload.interchange.nir_reading import read_nir
from mimdsim.workload.interchange.nir_walk import network_of_nir
from mimdsim.workload.interchange.weights_file import (
    Assignment,
    chain_of,
    read_arrays,
    weights_of_state_dict,
    write_safetensors,
)

Array = npt.NDArray[Any]
Table = dict[str, Any]

# The data of a workload without its own: random spikes, long enough that neurons fire.
RANDOM_TIMESTEPS, RANDOM_ACTIVITY, RANDOM_BATCH = 50, 0.1, 16
# Keys of [network] that do not define the neurons, so they are kept with an imported model.
KEPT = (
    "spikes",
    "truncation",
    "neurons_per_class",
    "surrogate",
    "surrogate_slope",
    "reset_gradient",
    "second_threshold",
    "output_second_threshold",
)
# Second thresholds that every potential is above: gradients of all neurons, as the frameworks take them.
EVERY_GRADIENT = {"second_threshold": -100.0, "output_second_threshold": -100.0}


def without_lists(network: Table) -> Table:
    """The section [network] without what is for lists of spikes, where spikes are dense."""
    dense = network.get("spikes") == "dense"
    return {key: value for key, value in network.items() if not (dense and key in {"capacity", *EVERY_GRADIENT})}


def import_nir(path: Path, folder: Path, how: Discretisation, workload: str = "") -> tuple[Path, list[str]]:
    """Write the model in a NIR file and a workload for it to `folder`; returns (the workload's file, lines about it).

    Data, training and mapping are those of `workload`; without one, random spikes. Raises DataFileError and
    DescriptionError for what cannot be read or run.
    """
    network = network_of_nir(path, read_nir(path), how)
    name = model_name(path)
    base = base_table(workload, folder) if workload else random_table(network.inputs, network.outputs)
    old = base.get("network", {})
    threshold = old.get("threshold", 1.0)
    widths = [each.neurons for each in network.populations]
    kept = EVERY_GRADIENT | {key: old[key] for key in KEPT if key in old}
    for key in ("second_threshold", "output_second_threshold"):
        if key in old and isinstance(threshold, (int, float)) and isinstance(kept[key], (int, float)) and threshold:
            kept[key] = kept[key] / threshold  # shares of each layer's own threshold
    base["network"] = {"imported": f"{name}.safetensors", "hidden": widths[:-1], "capacity": widths, **kept}
    if not network.populations[-1].spiking:
        base["network"]["output"] = "membrane"
    if any(each.convolution for each in network.populations):
        base["network"] = without_lists(base["network"] | {"spikes": "dense"})
    base["title"] = f"{path.name}: {network.title}"
    writable_folder(folder)
    write_model(folder / f"{name}.safetensors", network)
    return _write_description(folder / f"{name}.toml", base, path), _describe(network)


def import_state_dict(
    path: Path, folder: Path, workload: str, given: tuple[Assignment, ...] = ()
) -> tuple[Path, list[str]]:
    """Write the weights of a PyTorch state dict and a workload that starts from them; returns as `import_nir`.

    The neurons are those of `workload`, because a state dict does not describe any.
    """
    weights, assigned, unused = weights_of_state_dict(path, read_arrays(path), given)
    if not workload:
        raise DescriptionError(
            str(path), ["holds weights, but no neurons; name a workload for them with  --workload NAME"]
        )
    layers, widths = chain_of(path, weights)
    base = base_table(workload, folder)
    network = base.setdefault("network", {})
    _fill(path, weights, layers, network)
    if len(network.get("hidden", ())) + 1 != len(layers) and "capacity" in network:
        network["capacity"] = list(widths[1:])
    network["hidden"] = list(widths[1:-1])
    name = model_name(path)
    base.setdefault("training", {})["initial_weights"] = f"{name}-weights.safetensors"
    base["title"] = f"{path.name}: {'-'.join(map(str, widths))}"
    writable_folder(folder)
    write_safetensors(folder / f"{name}-weights.safetensors", weights)
    lines = [f"{each.tensor} -> {each.target} {list(weights[each.target].shape)}" for each in assigned]
    if unused:
        lines.append(f"not used: {', '.join(unused)}")
    return _write_description(folder / f"{name}.toml", base, path), lines


def _fill(path: Path, weights: dict[str, Array], layers: tuple[str, ...], network: Table) -> None:
    """Say in `network` which layers have biases and recurrence, and add zeros to those that have none."""
    if "r.output" in weights:
        raise DataFileError(path, "has recurrent weights on its last layer; a workload has them on hidden layers")
    if any(name.startswith("b.") for name in weights):
        network["bias"] = True
        for layer in layers:
            weights.setdefault(f"b.{layer}", np.zeros(weights[f"w.{layer}"].shape[1]))
    recurrent = [weights[name] for name in weights if name.startswith("r.")]
    if recurrent:
        whole = any(each.ndim == 2 for each in recurrent)
        network["recurrence"] = "all_to_all" if whole else "one_to_one"
        for layer in layers[:-1]:
            values = weights.get(f"r.{layer}", np.zeros(weights[f"w.{layer}"].shape[1]))
            weights[f"r.{layer}"] = np.diag(values) if whole and values.ndim == 1 else values


def _describe(network: ImportedNetwork) -> list[str]:
    """One line per layer, and what was decided."""
    lines = [f"{network.title}, a timestep of {network.dt_seconds:g} s" if network.dt_seconds else network.title]
    for name, each in network.layers:
        read = " and ".join(aged(one.name, one.lag or 0) for one in each.sources)
        said = f", reads {read}" if len(each.reads) > 1 else ""
        lines.append(_describe_layer(name, each) + said)
    return [*lines, *(f"note: {note}" for note in network.notes)]


def _describe_layer(name: str, each: Population) -> str:
    dynamics = each.dynamics
    planes = f" ({each.convolution.result})" if each.convolution else ""
    parts = [f"{name} ({each.node}): {each.neurons} {each.kind}{planes}", f"decay {_range(dynamics.decay)}"]
    if dynamics.synapse_decay is not None:
        parts.append(f"of the current {_range(dynamics.synapse_decay)}")
    if dynamics.threshold is not None:
        parts.append(f"threshold {_range(dynamics.threshold)}, reset {dynamics.reset}")
    if each.bias is not None:
        parts.append("bias")
    if each.recurrence != "none":
        parts.append(f"recurrence {each.recurrence}")
    if len(each.reads) == 1 and each.sources[0].lag:
        parts.append(f"delay {each.sources[0].lag}")
    return ", ".join(parts)


def _range(values: Any) -> str:
    low, high = float(np.min(values)), float(np.max(values))
    return f"{low:.4g}" if low == high else f"{low:.4g} to {high:.4g}"


def model_name(path: Path) -> str:
    return re.sub("[^A-Za-z0-9_-]+", "-", path.stem).strip("-") or "model"


def base_table(workload: str, folder: Path) -> Table:
    """The table of a workload, to be overridden by what is imported."""
    found = find_workload(workload)
    table, _ = read_toml(found)
    find_beside(found, table)
    for section, key in PATHS:  # what lies beside that workload is found from the new one too
        named = table.get(section, {}).get(key)
        if named and not Path(named).is_absolute() and Path(named).exists():
            table[section][key] = os.path.relpath(named, folder)
    table.pop("name", None)
    return table


def random_table(inputs: int, classes: int) -> Table:
    """A workload of random spikes."""
    return {
        "seed": 1,
        "data": {
            "source": "random",
            "inputs": inputs,
            "classes": classes,
            "timesteps": RANDOM_TIMESTEPS,
            "activity": RANDOM_ACTIVITY,
            "input_capacity": inputs,
            "train_samples": 4 * RANDOM_BATCH,
            "test_samples": RANDOM_BATCH,
        },
        "training": {"batch": RANDOM_BATCH, "epochs": 1, "learning_rate": 0.001},
    }


def _write_description(path: Path, table: Table, source: Path) -> Path:
    """Write a description as TOML."""
    comment = f"Made from {toml_value(source.name)[1:-1]} by mimdsim import; edit freely."
    write_atomically(path, toml_text(table, comment=comment))
    return path
