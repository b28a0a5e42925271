"""A model in one safetensors file: what `mimdsim import` makes and `network.imported` names in a workload.

Arrays by layer ('hidden0', ..., 'output'): w.<layer>, and where it has them b.<layer> and r.<layer>; the neurons'
constants as decay.<layer>, gain.<layer> and so on, named as the fields of `Dynamics`, one number per neuron. Notes give
the kind of every layer, its reset and delay, and the length of a timestep.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from mimdsim.base.errors import DataFileError
from mimdsim.workload.interchange.imported import RESETS, Dynamics, ImportedNetwork, Population
from mimdsim.workload.interchange.nir_nodes import Reals
from mimdsim.workload.interchange.state_dict import chain_of
from mimdsim.workload.interchange.weights_file import read_notes, read_safetensors, write_safetensors

FORM = "mimdsim model 1"
_CONSTANTS = tuple(each.name for each in fields(Dynamics) if each.name != "reset")
_NEEDED = ("decay", "gain", "rest")
MOST_DELAY = 10_000

Array = npt.NDArray[Any]


def arrays_of(network: ImportedNetwork) -> dict[str, Array]:
    """The weights of a network by the names that training gives them, float64."""
    arrays: dict[str, Array] = {}
    for layer, each in network.layers:
        arrays[f"w.{layer}"] = each.weights
        if each.bias is not None:
            arrays[f"b.{layer}"] = each.bias
        if each.recurrent is not None:
            arrays[f"r.{layer}"] = each.recurrent
    return arrays


def write_model(path: Path, network: ImportedNetwork) -> None:
    """Write a network whole or not at all, float32."""
    arrays = arrays_of(network)
    notes = {"form": FORM, "dt_seconds": repr(network.dt_seconds)}
    for layer, each in network.layers:
        for name in _CONSTANTS:
            values = getattr(each.dynamics, name)
            if values is not None:
                arrays[f"{name}.{layer}"] = values
        notes[f"{layer}.kind"] = each.kind
        notes[f"{layer}.reset"] = each.dynamics.reset
        notes[f"{layer}.delay"] = str(each.delay)
    write_safetensors(path, arrays, notes)


def read_model(path: Path) -> ImportedNetwork:
    """A network as `write_model` wrote it, float32 values; raises DataFileError for anything else."""
    notes = read_notes(path, "no such file; make it with  mimdsim import MODEL.nir")
    if notes.get("form") != FORM:
        raise DataFileError(
            path, "is not a model made by 'mimdsim import'; weights alone go to training.initial_weights"
        )
    arrays = {name: values.astype(np.float64) for name, values in read_safetensors(path).items()}
    for name, values in arrays.items():
        if not np.all(np.isfinite(values)):
            raise DataFileError(path, f"'{name}' holds values that are not finite")
    layers, _ = chain_of(path, {name: values for name, values in arrays.items() if name[:2] in ("w.", "r.", "b.")})
    populations = tuple(_population(path, layer, arrays, notes) for layer in layers)
    try:
        dt = float(notes.get("dt_seconds", "0"))
    except ValueError:
        raise DataFileError(path, f"says a timestep is {notes['dt_seconds'][:40]!r} seconds long") from None
    return ImportedNetwork(populations=populations, dt_seconds=dt if np.isfinite(dt) and dt > 0 else 0.0)


def _population(path: Path, layer: str, arrays: Mapping[str, Reals], notes: Mapping[str, str]) -> Population:
    weights = arrays[f"w.{layer}"]
    neurons = weights.shape[1]
    constants: dict[str, Reals] = {}
    for name in _CONSTANTS:
        values = arrays.get(f"{name}.{layer}")
        if values is None and name in _NEEDED:
            raise DataFileError(path, f"has no '{name}.{layer}'; create it again with  mimdsim import")
        if values is not None:
            if values.shape != (neurons,):
                raise DataFileError(path, f"'{name}.{layer}' has the shape {list(values.shape)} for {neurons} neurons")
            constants[name] = values
    if ("synapse_decay" in constants) != ("synapse_gain" in constants):
        raise DataFileError(path, f"layer '{layer}' has half of a synapse: synapse_decay and synapse_gain go together")
    reset = next((known for known in RESETS if known == notes.get(f"{layer}.reset")), None)
    delay = notes.get(f"{layer}.delay", "0")
    if reset is None or not (delay.isdecimal() and len(delay) < 6 and int(delay) <= MOST_DELAY):
        raise DataFileError(path, f"says reset '{notes.get(f'{layer}.reset')}' and delay '{delay[:20]}' of '{layer}'")
    recurrent = arrays.get(f"r.{layer}")
    return Population(
        node=layer,
        kind=notes.get(f"{layer}.kind", "LIF"),
        weights=weights,
        dynamics=Dynamics(**constants, reset=reset),
        bias=arrays.get(f"b.{layer}"),
        recurrence="none" if recurrent is None else "one_to_one" if recurrent.ndim == 1 else "all_to_all",
        recurrent=recurrent,
        delay=int(delay),
    )
