"""What the lowering rules write into: variables, storage of graph values, supersteps of the current block."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from mimdsim.codelets.dense import FILL_VECTOR
from mimdsim.compiler.placement import LayerPlacement, MappingOptions, Placement
from mimdsim.graph import Layer, SpikingNetwork, Value
from mimdsim.program import Copy, Program, Repeat, Superstep, TileMapping, Variable, VertexTable
from mimdsim.program.mapping import FLAT, PER_TIMESTEP

LINEAR_ELEMENTS = 32  # of 4 bytes: the library maps linearly in runs of at least 128 bytes a tile (poputil)


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

    def chip_of(self, layer: str) -> int:
        """The chip of a layer; the input is on the chip of the first layer."""
        return self.placement.layers[0].chip if layer == "input" else self.placed(layer).chip

    def slots(self, width: int, chip: int, least: int = 1) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """Tiles and (sample, slot_start, slot_stop) of runs of a [batch, width] variable, spread over a chip's tiles.

        A run stays within a sample and has at least `least` elements where the sample has them.
        """
        batch, usable = self.network.batch, self.placement.usable_on(chip)
        run = min(width, max(least, -(-batch * width // len(usable))))
        runs = -(-width // run)
        sample, part = (column.ravel() for column in np.meshgrid(np.arange(batch), np.arange(runs), indexing="ij"))
        start = part * run
        # far more runs than tiles share tiles in turn
        tiles = usable[(np.arange(len(sample)) * len(usable)) // len(sample)]
        return tiles, {"sample": sample, "slot_start": start, "slot_stop": np.minimum(start + run, width)}

    def spread(
        self,
        name: str,
        width: int,
        dtype: str,
        category: str,
        chip: int,
        *,
        timesteps: int = 0,
        least: int = 1,
    ) -> str:
        """A [batch, width] variable, or a sequence of it, in runs over a chip's tiles as `slots` says."""
        tiles, columns = self.slots(width, chip, least)
        offset = columns["sample"] * width
        axis = PER_TIMESTEP if timesteps else FLAT
        mapping = TileMapping.split(axis, tiles, offset + columns["slot_start"], offset + columns["slot_stop"])
        shape = (timesteps, self.network.batch, width) if timesteps else (self.network.batch, width)
        return self.variable(name, shape, dtype, mapping, category)

    def spikes(self, name: str, capacity: int, chip: int, *, timesteps: int = 0, least: int = 1) -> tuple[str, str]:
        """Ids and counts of sparse spikes spread over a chip; a whole sequence when `timesteps` is given."""
        ids = self.spread(f"ids.{name}", capacity, "int32", "spike ids", chip, timesteps=timesteps, least=least)
        counts = self.spread(f"counts.{name}", 2, "int32", "spike ids", chip, timesteps=timesteps, least=least)
        return ids, counts

    def constant(self, name: str, layer: str, value: float) -> str:
        """A float per neuron of `layer`, set once, in runs over its chip as the library maps constants."""
        width = self.layer(layer).neurons
        usable = self.placement.usable_on(self.chip_of(layer))
        run = max(LINEAR_ELEMENTS, -(-width // len(usable)))
        starts = np.arange(0, width, run)
        stops = np.minimum(starts + run, width)
        tiles = usable[: len(starts)]
        mapping = TileMapping.split(0, tiles, starts, stops)
        held = self.variable(f"{name}.{layer}", (width,), "float32", mapping, "neuron states")
        table = VertexTable(
            codelet=FILL_VECTOR,
            layer=layer,
            tiles=tiles,
            operands={"target": held},
            columns={"start": starts, "stop": stops},
            extents={"elements": stops - starts},
            constants={"value": value},
        )
        self.emit("set constants", "zeros", tables=(table,), layer=layer)
        return held

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
            chips=self.placement.chips,
        )


def defines_of(storage: tuple[str, ...], value: Value) -> tuple[tuple[str, str], ...]:
    """(variable, graph value) pairs; sparse spikes give '<value>.ids' and '<value>.counts'."""
    if value.form == "sparse":
        return (storage[0], f"{value.name}.ids"), (storage[1], f"{value.name}.counts")
    return ((storage[0], value.name),)
