"""Mapping files: the section `mapping` of a workload in a file of its own, as `mimdsim place` writes it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import Field

from mimdsim.base.errors import DescriptionError, suggest
from mimdsim.base.files import write_atomically
from mimdsim.base.schema import Section, build, read_toml
from mimdsim.base.toml import toml_text
from mimdsim.graph import SpikingNetwork
from mimdsim.workload.description.mapping import MappingOptions

if TYPE_CHECKING:
    from mimdsim.workload.description.workload import Workload


class MappingFile(Section):
    """What a mapping file holds. `layers`: the neurons of every layer that it was found for; without them it is applied
    to any workload that has the layers of its splits. Options that `mapping` leaves out are the workload's."""

    title: str = ""
    workload: str = ""
    machine: str = ""
    layers: dict[str, int] = Field(default_factory=dict)
    mapping: MappingOptions


def read_mapping_file(path: Path) -> tuple[MappingFile, dict[str, Any]]:
    """A mapping file, and its table of options as given; raises DescriptionError that names file and line."""
    table, text = read_toml(path)
    if "mapping" not in table:
        raise DescriptionError(str(path), ["has no table [mapping]; mimdsim place WORKLOAD --out FILE writes one"])
    return build(MappingFile, table, where=str(path), text=text), table["mapping"]


def check_layers(path: Path, file: MappingFile, workload: Workload, network: SpikingNetwork) -> None:
    """Raise DescriptionError for a file that is for other layers than those of a workload."""
    has = {layer.name: layer.neurons for layer in network.layers}
    problems = [
        f"mapping.split.{name}: workload '{workload.name}' has no layer '{name}'{suggest(name, has)}"
        for name in file.mapping.split
        if name not in has
    ]
    if file.layers and file.layers != has:
        problems += [
            f"layer '{name}' has {_neurons(file.layers.get(name))} here and {_neurons(has.get(name))} in workload "
            f"'{workload.name}'"
            for name in dict.fromkeys((*file.layers, *has))
            if file.layers.get(name) != has.get(name)
        ]
    if problems:
        again = f"find one for these layers with  mimdsim place {workload.name} MACHINE --out FILE"
        raise DescriptionError(str(path), [*problems, again])


def _neurons(count: int | None) -> str:
    return "no neurons" if count is None else f"{count:,} neurons"


def write_mapping_file(
    path: Path, options: MappingOptions, network: SpikingNetwork, *, title: str, workload: str, machine: str
) -> None:
    """Write all options of a mapping, as a whole or not at all."""
    table = {
        "title": title,
        "workload": workload,
        "machine": machine,
        "layers": {layer.name: layer.neurons for layer in network.layers},
        "mapping": options.model_dump(mode="json"),
    }
    write_atomically(path, toml_text(table, comment=f"mimdsim run {workload} {machine} --mapping {path.name}"))
