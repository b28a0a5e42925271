"""User options for placement and lowering: the section `mapping` of a workload."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, Literal, get_args

from pydantic import Field, model_validator

from mimdsim.base.errors import DescriptionError, suggest
from mimdsim.base.files import write_atomically
from mimdsim.base.schema import Section, build, read_toml, toml_text
from mimdsim.graph import SpikingNetwork
from mimdsim.numerics.number_formats import FORMATS

VECTOR_BYTES = 8  # of the published codelets: a pair of floats, or four halves


class Split(Section):
    """Into how many parts a layer is cut."""

    batch: int = Field(default=1, ge=1)
    """Copies of the layer's weights, which share the samples."""
    inputs: int = Field(default=1, ge=1)
    """Parts of each part of the neurons, which share the weights of a neuron."""
    neurons: int = Field(default=0, ge=0)
    """Parts of each copy, which share the neurons; 0: as many as the published rule makes of the tiles that other
    layers leave."""
    replicas: int = Field(default=0, ge=0, le=64)
    """Partial sums of a weight gradient on a tile, each over a share of its samples; worker contexts beyond these share
    the neurons of a replica. 0: as mapping.weight_gradient_replicas."""
    chips: int = Field(default=1, ge=1)
    """Chips over which the parts lie in even shares, copy by copy."""


Rule = Literal["merge", "dead_code", "coarse_flags", "lists_apart", "stash_in_place", "fused_adjoint"]


Behind = Literal["stash", "optimiser", "weights"]


class MappingOptions(Section):
    """Placement and number formats on a tiled machine; defaults are those of the published system (github.com/
    jrfinkbeiner/graphcore_snn, commit 0d81a25)."""

    neurons_per_tile: int = Field(default=0, ge=0)
    """Neurons of a layer on each of its tiles; 0: the smallest multiple of `neurons_unit` that fits."""
    neurons_unit: int = Field(default=2, gt=0)
    """Neurons per tile come in multiples of this."""
    reserved_tiles: int = Field(default=1, ge=0)
    """Tiles at the start of the first chip that hold no neurons (tile 0, where the published program declares loop
    counters)."""
    tiles: int = Field(default=0, ge=0)
    """Tiles of the chip that may be used, reserved ones included; 0: all."""
    weight_gradient_replicas: int = Field(default=6, gt=0, le=64)
    """Partial sums of a weight gradient on a tile, each over a share of its samples."""
    states_per_worker: int = Field(default=64, gt=0)
    """Neurons whose spikes a worker context selects, which sets how many tiles share the selection of a list."""
    strip_columns: int = Field(default=0, ge=0, le=4096)
    """Where distance counts, tiles that follow each other lie in strips of so many columns of the chip, down one and up
    the next, so that layers are blocks; 0: in whole rows."""
    reduce_exponent: float = Field(default=0.8, gt=0, le=2)
    """By 'work', the exponent of a layer's tiles in its share of those that add up input gradients."""
    reduce_group: int = Field(default=0, ge=0)
    """Tiles whose sums of an input gradient are added first; 0: half the batch."""
    state_gradient: Literal["tilewise", "per_batch"] = "tilewise"
    """Who computes the state gradient: every tile for its neurons, or one vertex per sample and layer on whole rows, as
    the authors' code did until 2022 ('per_batch')."""
    id_bytes: Literal[4, 2] = 4
    """Bytes of ids and counts of spikes: int32, or uint16 (at most 65,535 neurons)."""
    value_bytes: Literal[4, 2, "bfloat16"] = 4
    """Format of weights, states, gradients and moments: float32, halves (2) or bfloat16, rounded whenever a vertex
    writes them."""
    moment_bytes: Literal[0, 4] = 0
    """4 keeps the optimiser's moments in float32; 0: as other values."""
    spike_exchange: Literal["ids", "dense"] = "ids"
    """What the next layer receives: ids and counts, or a row of a byte per neuron."""
    selection_tiles: Literal["published", "last"] = "published"
    """Where spikes are selected: spread over the chip, or on the last tiles, one per sample and layer, as in the
    authors' older operation."""
    dense_neurons: Literal["calls", "fused", "traced"] = "calls"
    """With dense spikes, linear neurons run as calls of the element-wise library, one per operation; fused in a vertex
    written by hand; or 'traced': as calls, every timestep a call of a function that a framework made of its unrolled
    trace (docs/dense-spikes.md)."""
    reduce_rule: Literal["work", "even"] = "work"
    """How many tiles add up the input gradients of a layer: by its work, or as many for every layer."""
    stash: str = "everything"
    """Which forward values are kept for the backward pass: 'everything', 'carry' or 'every:K' (docs/stash.md)."""
    behind_tiles: tuple[Behind, ...] = ()
    """What lies in the memory behind the tiles (`[memory]` of a machine) and is streamed: the sequences of spikes and
    states that are kept for the backward pass, what the optimiser keeps, the weights."""
    split: dict[str, Split] = Field(default_factory=dict)
    """By layer, layers that are cut otherwise than by the published rule, which makes no copies and gives every tile of
    the chip the same number of neurons."""
    program: Literal["published", "best"] | tuple[Rule, ...] = "published"
    """Rules that make another program of the same training step, or 'best' for all of them (docs/mapping.md)."""

    @model_validator(mode="after")
    def _whole_vectors(self) -> MappingOptions:
        halves = VECTOR_BYTES // 2
        if self.item_bytes == 2 and self.neurons_per_tile % halves:
            raise ValueError(
                f"mapping.neurons_per_tile: {self.neurons_per_tile} must be a multiple of {halves} with value_bytes = "
                f"{self.value_bytes}, because vertices work on four halves at a time; 0 lets the compiler choose"
            )
        return self

    @property
    def item_bytes(self) -> int:
        """Bytes of a value, whatever its format."""
        return FORMATS[self.value_bytes].bytes if isinstance(self.value_bytes, str) else self.value_bytes

    @property
    def number_format(self) -> str:
        """Of values, where their bytes do not say it: 'bfloat16', else ''."""
        return self.value_bytes if isinstance(self.value_bytes, str) else ""

    @property
    def id_dtype(self) -> str:
        """numpy's name of the format of ids and counts."""
        return "int32" if self.id_bytes == 4 else "uint16"

    @property
    def rules(self) -> frozenset[str]:
        """The rules of `program`."""
        if isinstance(self.program, str):
            return frozenset(get_args(Rule) if self.program == "best" else ())
        return frozenset(self.program)

    @property
    def tile_unit(self) -> int:
        """Neurons per tile come in multiples of this: the given unit, and whole vectors of halves."""
        return self.neurons_unit if self.item_bytes == 4 else math.lcm(self.neurons_unit, VECTOR_BYTES // 2)


class MappingFile(Section):
    """What a mapping file holds."""

    title: str = ""
    """A title for people."""
    workload: str = ""
    """The workload that the mapping was found for."""
    machine: str = ""
    """The machine that the mapping was found for."""
    layers: dict[str, int] = Field(default_factory=dict)
    """The neurons of every layer that it was found for; without them it is applied to any workload that has the layers
    of its splits."""
    mapping: MappingOptions
    """The options; those that are left out are the workload's."""


def read_mapping_file(path: Path) -> tuple[MappingFile, dict[str, Any]]:
    """A mapping file, and its table of options as given; raises DescriptionError that names file and line."""
    table, text = read_toml(path)
    if "mapping" not in table:
        raise DescriptionError(str(path), ["has no table [mapping]; mimdsim place WORKLOAD --out FILE writes one"])
    return build(MappingFile, table, where=str(path), text=text), table["mapping"]


def check_layers(path: Path, file: MappingFile, workload: str, network: SpikingNetwork) -> None:
    """Raise DescriptionError for a file that is for other layers than those of the workload of that name."""
    has = {layer.name: layer.neurons for layer in network.layers}
    problems = [
        f"mapping.split.{name}: workload '{workload}' has no layer '{name}'{suggest(name, has)}"
        for name in file.mapping.split
        if name not in has
    ]
    if file.layers and file.layers != has:
        problems += [
            f"layer '{name}' has {_neurons(file.layers.get(name))} here and {_neurons(has.get(name))} in workload "
            f"'{workload}'"
            for name in dict.fromkeys((*file.layers, *has))
            if file.layers.get(name) != has.get(name)
        ]
    if problems:
        again = f"find one for these layers with  mimdsim place {workload} MACHINE --out FILE"
        raise DescriptionError(str(path), [*problems, again])


def _neurons(count: int | None) -> str:
    return "no neurons" if count is None else f"{count:,} neurons"


def write_mapping_file(
    path: Path, options: MappingOptions, network: SpikingNetwork, *, title: str, workload: str, machine: str
) -> None:
    """Write all options of a mapping, as a whole or not at all."""
    layers = {layer.name: layer.neurons for layer in network.layers}
    file = MappingFile(title=title, workload=workload, machine=machine, layers=layers, mapping=options)
    write_atomically(
        path, toml_text(file.model_dump(mode="json"), comment=f"mimdsim run {workload} {machine} --mapping {path.name}")
    )
