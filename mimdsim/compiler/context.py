"""What the lowering rules write into: variables, storage of graph values, supersteps of the current block."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from mimdsim.compiler.placement import LayerPlacement, MappingOptions, Placement
from mimdsim.graph import Layer, SpikingNetwork, Value
from mimdsim.program import Copy, Program, Repeat, Superstep, TileMapping, Variable, VertexTable


@dataclass
class Lowering:
    """The state of one lowering. `storage` tells in which variables a graph value lies: one for an array, two (ids,
    counts) for sparse spikes."""

    network: SpikingNetwork
    placement: Placement
    options: MappingOptions
    variables: dict[str, Variable] = field(default_factory=dict)
    storage: dict[str, tuple[str, ...]] = field(default_factory=dict)
    body: list[Superstep | Repeat] = field(default_factory=list)
    block: list[Superstep] | None = None  # the open repeat's body
    inputs: dict[str, str] = field(default_factory=dict)
    outputs: dict[str, str] = field(default_factory=dict)
    recorded: dict[str, tuple[str, str]] = field(default_factory=dict)
    phase: str = "forward"
    values: dict[str, Value] = field(default_factory=dict)  # of the graph or body being lowered

    def layer(self, name: str) -> Layer:
        return next(layer for layer in self.network.layers if layer.name == name)

    def placed(self, name: str) -> LayerPlacement:
        return next(layer for layer in self.placement.layers if layer.name == name)

    def source_of(self, name: str) -> str:
        """The layer whose spikes layer `name` reads, or 'input'."""
        names = [layer.name for layer in self.network.layers]
        index = names.index(name)
        return names[index - 1] if index else "input"

    # ---- variables

    def variable(
        self,
        name: str,
        shape: tuple[int, ...],
        dtype: str,
        mapping: TileMapping,
        category: str,
        *,
        persistent: bool = False,
    ) -> str:
        """Declare a variable once; returns its name."""
        if name not in self.variables:
            self.variables[name] = Variable(
                name=name, shape=shape, dtype=dtype, mapping=mapping, category=category, persistent=persistent
            )
        return name

    def by_neuron(self, layer: str, axis: int) -> TileMapping:
        """Split along `axis` as the layer's neurons are."""
        placed = self.placed(layer)
        return TileMapping.split(axis, placed.tiles, placed.starts, placed.stops)

    def by_sample(self, axis: int) -> TileMapping:
        """One sample after another over the sample tiles."""
        index = np.arange(self.network.batch)
        return TileMapping.split(axis, self.placement.sample_tiles, index, index + 1)

    def spikes(self, name: str, capacity: int, mapping_axis: int, timesteps: int = 0) -> tuple[str, str]:
        """Ids and counts of sparse spikes, by sample; a whole sequence when `timesteps` is given."""
        lead = (timesteps,) if timesteps else ()
        mapping = self.by_sample(mapping_axis)
        batch = self.network.batch
        ids = self.variable(f"ids.{name}", (*lead, batch, capacity), "int32", mapping, "spike ids")
        counts = self.variable(f"counts.{name}", (*lead, batch, 2), "int32", mapping, "spike ids")
        return ids, counts

    # ---- supersteps

    def emit(
        self,
        stage: str,
        op: str,
        *,
        tables: tuple[VertexTable, ...] = (),
        copies: tuple[Copy, ...] = (),
        defines: tuple[tuple[str, str], ...] = (),
        mergeable: bool = True,
        layer: str = "",
    ) -> None:
        """Append a superstep to the open repeat, or to the program."""
        superstep = Superstep(
            name=f"{stage} {layer}".strip(),
            op=op,
            phase=self.phase,
            stage=stage,
            tables=tables,
            copies=copies,
            defines=defines,
            mergeable=mergeable,
        )
        if self.block is None:
            self.body.append(superstep)
        else:
            self.block.append(superstep)

    def open_repeat(self) -> None:
        self.block = []

    def close_repeat(self, times: int, reverse: bool) -> None:
        assert self.block is not None
        self.body.append(Repeat(times=times, body=tuple(self.block), reverse=reverse))
        self.block = None

    def program(self) -> Program:
        layer_of_tile = [""] * self.placement.tiles
        for layer in self.placement.layers:
            for tile in layer.tiles.tolist():
                layer_of_tile[tile] = layer.name
        return Program(
            tiles=self.placement.tiles,
            variables=dict(self.variables),
            body=tuple(self.body),
            layers=tuple(layer.name for layer in self.network.layers),
            inputs=dict(self.inputs),
            outputs=dict(self.outputs),
            layer_of_tile=tuple(layer_of_tile),
            recorded=dict(self.recorded),
        )


def defines_of(storage: tuple[str, ...], value: Value) -> tuple[tuple[str, str], ...]:
    """(variable, graph value) pairs; sparse spikes give '<value>.ids' and '<value>.counts'."""
    if value.form == "sparse":
        return (storage[0], f"{value.name}.ids"), (storage[1], f"{value.name}.counts")
    return ((storage[0], value.name),)
