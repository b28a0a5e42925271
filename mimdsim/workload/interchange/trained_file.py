"""Trained weights with a note of the neurons they were trained for, and whether a workload has the same."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from mimdsim.workload.description.workload import Workload
from mimdsim.workload.interchange.safetensors_file import read_notes, write_safetensors
from mimdsim.workload.interchange.weights_file import Array

# fields of [network] that determine the meaning of weights; how they were learned (surrogates, capacities) does not
MEANING = (
    "imported", "neuron", "neuron_parameters", "decay", "current_gain", "threshold", "reset", "reset_by",
    "recurrence", "delay", "bias", "output",
)  # fmt: skip
_NOTE = "mimdsim.network"


def write_trained(path: Path, weights: Mapping[str, Array], workload: Workload) -> None:
    """float32 arrays and, as a note, the fields of the workload's network that give them their meaning."""
    write_safetensors(path, weights, {_NOTE: json.dumps(_meaning(workload), sort_keys=True)})


def other_neurons(path: Path, workload: Workload) -> list[str]:
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
