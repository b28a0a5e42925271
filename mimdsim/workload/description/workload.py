"""The description of a training workload: data, network, training, mapping. Read from `workloads/*.toml`."""

from __future__ import annotations

import copy
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import Field, model_validator

from mimdsim.base.errors import DescriptionError, MappingError, shortened
from mimdsim.base.files import with_home
from mimdsim.base.identity import Input, input_of
from mimdsim.base.schema import Section, build, changed_table, dotted_changes, files_named, given_keys, read_toml
from mimdsim.base.search_path import Name, Named, beside, find_description, names_of
from mimdsim.base.units import counted, exact_product
from mimdsim.graph.stash import stash_policy
from mimdsim.machine import list_machines
from mimdsim.workload.data.dataset import change_source, encodings_of, source_files
from mimdsim.workload.description.mapping import MappingOptions, check_layers, read_mapping_file
from mimdsim.workload.description.neuron import change_neuron, neurons_of
from mimdsim.workload.description.sections import (
    FILE_SOURCES,
    IMAGE_SOURCES,
    MAX_NEURONS,
    PER_LAYER,
    STEADY,
    Data,
    Network,
    TrainingRecipe,
    check_sources,
    loss_of,
)
from mimdsim.workload.description.unread import unread_keys

# keys that name files
PATHS = (("data", "path"), ("network", "imported"), ("network", "models"), ("training", "initial_weights"))
MOST_SHORT_IDS = (1 << 16) - 1
DECIDED_BY_MODEL = (
    *("decay", "current_gain", "threshold", "recurrence", "sources", "convolutions", "delay", "bias", "batch_norm"),
    *("delays", "weight_functions", "neuron", "neuron_parameters", "reset", "reset_by", "learned", "cells", "models"),
)


class Workload(Section):
    """A training workload. `name` is its file's stem."""

    name: Name
    title: str
    """What the workload is, in a line."""
    seed: int = Field(default=0, ge=0, lt=2**63)
    """The seed of everything that is drawn: weights, the order of samples, dropped ids."""
    data: Data
    network: Network
    training: TrainingRecipe
    mapping: MappingOptions = MappingOptions()

    def with_(self, changes: Mapping[str, Any] | None = None, /, **sections: Any) -> Workload:
        """The workload with changes, checked as those of `load_workload`; raises DescriptionError.

        changes: by dotted key. sections: keys of sections, or `seed`, by keyword. As a dict either may be nested.

            >>> mimdsim.load_workload("digits").with_(data={"timesteps": 10}, seed=3).data.timesteps
            10
        """
        changes = dotted_changes({**(changes or {}), **sections})
        return build_workload(given_keys(self), changes, f"workload '{self.name}'")

    @model_validator(mode="after")
    def _sizes_agree(self) -> Workload:
        network = self.network
        decided = [key for key in DECIDED_BY_MODEL if key in network.model_fields_set]
        if network.imported and decided:
            raise ValueError(f"network.{decided[0]}: is determined by the model in network.imported; leave it out")
        layers = len(network.hidden) + 1
        for key in PER_LAYER:
            value = getattr(network, key)
            if isinstance(value, tuple) and len(value) != layers and (value or key != "capacity"):
                raise ValueError(
                    f"network.{key}: {len(value)} values given for {counted(layers, 'layer')} ({layers - 1} hidden "
                    "and the output layer)"
                )
        try:
            check_sources(network)
            neurons_of(network)
            stash_policy(self.mapping.stash, self.data.timesteps)
            spiking = network.output == "spikes"
            loss_of(self.training, network.neurons_per_class).check_output("output", network.neurons_per_class, spiking)
        except MappingError as problem:
            raise ValueError(str(problem)) from None
        encodings = encodings_of(self.data.source)
        if self.data.encoding not in encodings:
            has = {"image": "images", "values": "values"}.get(self.data.encoding, "spikes")
            others = f", or take one of {', '.join(IMAGE_SOURCES)}" if self.data.encoding == STEADY else ""
            raise ValueError(f"data.encoding: source '{self.data.source}' has no {has}; write '{encodings[0]}'{others}")
        if self.data.encoding != "events" and network.spikes != "dense":
            what = "images" if self.data.encoding == STEADY else "values"
            raise ValueError(f"data.encoding: {what} are not spikes; set network.spikes = 'dense', or write 'events'")
        if self.data.path and self.data.source not in FILE_SOURCES:
            raise ValueError(f"data.path: source '{self.data.source}' reads no files; leave it out")
        if any(width < 1 or width > MAX_NEURONS for width in network.hidden):
            given = shortened(str(list(network.hidden)))
            raise ValueError(f"network.hidden: every width must be 1 to {MAX_NEURONS}, given {given}")
        if self.mapping.id_bytes == 2 and max(network.hidden, default=0) > MOST_SHORT_IDS:
            raise ValueError(
                f"mapping.id_bytes: ids of two bytes reach {MOST_SHORT_IDS:,}, a hidden layer has "
                f"{max(network.hidden):,} neurons; leave id_bytes at 4"
            )
        if self.training.second_threshold_share and network.spikes == "dense":
            raise ValueError(
                "training.second_threshold_share: dense spikes have no second threshold to schedule; leave it at 0 or "
                'set network.spikes = "sparse"'
            )
        if network.spikes == "sparse" and not network.capacity and not network.activity:
            raise ValueError(
                "network: give either 'capacity' (one per layer) or 'activity' (share of neurons), which says how many "
                "spikes a list holds; activity = 1.0: all"
            )
        if any(slots < 1 for slots in network.capacity):
            raise ValueError("network.capacity: every capacity must be at least 1")
        return self


def capacity_by_activity(activity: float, neurons: int) -> int:
    """2*floor(activity*neurons/2), at least 2: the authors' rule (facts sparse-snn-on-tiles 4.1)."""
    return max(2 * math.floor(exact_product(activity, neurons) / 2), 2)


def list_workloads() -> tuple[str, ...]:
    """The names of all workloads, sorted: those of the package, of MIMDSIM_HOME and of the working folder.

    >>> "digits" in mimdsim.list_workloads()
    True
    """
    return names_of("workloads")


def find_workload(name: Named) -> Path:
    """The file of a workload given by name ('digits'; `base/search_path.py` says where it is searched) or by path."""
    if not isinstance(name, (str, os.PathLike)):
        kind = type(name).__name__
        raise DescriptionError(
            "workload", [f"is {kind}; give a name or a path, or what mimdsim.from_torch makes of it"]
        )
    name = os.fspath(name)
    if name in list_machines() and name not in list_workloads():
        raise DescriptionError(f"workload '{name}'", ["is a machine; the workload comes first: digits " + name])
    return find_description("workloads", "workload", name)


def load_workload(name: Named, changes: dict[str, Any] | None = None, mapping: str | Path | None = None) -> Workload:
    """The workload `name`, with the options of a mapping file and then `changes` of dotted keys ('training.batch')
    applied to its description. Raises DescriptionError, also for a mapping file of other layers.

    name: of a workload, or the path of its file. changes: by dotted key; if they select another neuron, the
    description's constants that it does not have are dropped; if they select another data source, so is what only the
    former one reads. mapping: a mapping file, as `place` writes it.

        >>> mimdsim.load_workload("digits", {"data": {"timesteps": 10}}).data.timesteps
        10
    """
    path = find_workload(name)
    table, text = read_toml(path)
    table.setdefault("name", path.stem)
    find_beside(path, table)
    changes = dotted_changes(changes)
    if mapping is None:
        return build_workload(table, changes, str(path), text, by_set=True)
    file, options = read_mapping_file(Path(mapping))
    own = table.get("mapping", {})
    with_file = {**table, "mapping": own | options if isinstance(own, dict) else own}
    try:
        made = build_workload(copy.deepcopy(with_file), changes, f"{mapping}, with {path}", by_set=True)
    except DescriptionError:
        build_workload(table, changes, str(path), text, by_set=True)  # raises what is wrong without the mapping file
        raise
    from mimdsim.workload.description.network import network_of  # which takes workloads

    check_layers(Path(mapping), file, made.name, network_of(made))
    return made


def build_workload(
    table: dict[str, Any], changes: Mapping[str, Any], where: str, text: str = "", *, by_set: bool = False
) -> Workload:
    """The workload of a table with changes of dotted keys, all of which must be read; text: of its file; by_set:
    whether changes are called those of `--set`."""
    change_description(table, changes, where)
    made = build(Workload, table, where=where, text=text, changed=changes if by_set else ())
    # a sweep may change both: what decides, and what is read on one side only
    unread = [each for each in unread_keys(made, changes) if each.key in changes and each.decided_by not in changes]
    if unread:
        raise DescriptionError(where, [each.why for each in unread])
    return made


def change_description(table: dict[str, Any], changes: Mapping[str, Any], where: str) -> None:
    """Write the changes into the table, and drop what another neuron or data source does not have."""
    if "network.neuron" in changes and isinstance(table.get("network"), dict):
        change_neuron(table["network"], changes["network.neuron"])
    if "data.source" in changes and isinstance(table.get("data"), dict):
        change_source(table["data"], changes["data.source"], [key.removeprefix("data.") for key in changes])
    changed_table(table, changes, where=where, example="training.batch")


def find_beside(path: Path, table: dict[str, Any]) -> None:
    """Write into the table of the description at `path` where the files and folders are that it names."""
    for section, key in PATHS:
        named = table[section].get(key) if isinstance(table.get(section), dict) else None
        if isinstance(named, str) and named:
            table[section][key] = beside(path, named)


RECORDINGS = "data.path"  # of which each source reads other files


def inputs_of(workload: Workload) -> tuple[Input, ...]:
    """The files of every key that names some, and those that come with a data source, hashed once in a process.

    Raises DataFileError for what is no file, or cannot be read; what is not there has no files.
    """
    named = dict(files_named(workload))
    recordings = source_files(workload.data)
    found = [input_of(key, path, [("", with_home(path))]) for key, path in named.items() if key != RECORDINGS]
    if recordings or RECORDINGS in named:
        key, path = (RECORDINGS, named[RECORDINGS]) if RECORDINGS in named else ("data.source", workload.data.source)
        found.append(input_of(key, path, recordings))
    return tuple(found)
