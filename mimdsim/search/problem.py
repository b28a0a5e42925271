"""What a mapping is searched for, and what is known of one."""

from __future__ import annotations

from dataclasses import dataclass, replace

from mimdsim.graph import Graph, SpikingNetwork, training_graph
from mimdsim.machine import MimdMachine
from mimdsim.program import RecordedActivity
from mimdsim.workload.description.mapping import MappingOptions


@dataclass(frozen=True, kw_only=True, eq=False)
class Case:
    """A network with its training graph, the machine, the spikes that it is timed with, and the options that every
    mapping shares."""

    network: SpikingNetwork
    graph: Graph
    machine: MimdMachine
    activity: RecordedActivity
    options: MappingOptions

    @classmethod
    def of(
        cls, network: SpikingNetwork, machine: MimdMachine, activity: RecordedActivity, options: MappingOptions
    ) -> Case:
        """The case of a network that is not yet differentiated."""
        graph = training_graph(network)
        return cls(network=network, graph=graph, machine=machine, activity=activity, options=options)

    @property
    def published(self) -> MappingOptions:
        """Every layer cut by the published rule, and the published program."""
        return self.options.model_copy(update={"split": {}, "program": "published"})

    def on_tiles(self, most: int) -> Case:
        """The case on at most so many tiles of a chip: all its mappings leave the others idle."""
        tiles = max(1, min(most, self.options.tiles or self.machine.chip.tiles))
        return replace(self, options=self.options.model_copy(update={"tiles": tiles}))

    @property
    def room(self) -> int:
        """Tiles for neurons."""
        every = self.machine.chip.tiles * self.machine.links.chips
        return min(every, self.options.tiles or every) - self.options.reserved_tiles


@dataclass(frozen=True, kw_only=True)
class Figures:
    """Of one training step: cycles, bytes on the fullest tile, tiles that compute (`TiledProfile.tiles_used`), joules
    (None: not known)."""

    cycles: int
    peak_bytes: int
    tiles: int
    joules: float | None = None


@dataclass(frozen=True, kw_only=True)
class Timed:
    """A mapping compiled and timed in full. seconds: of a training step; spans: (superstep, cycles) in program order;
    fits: whether it fits the tile memory; shares: of every layer (name, parts of batch, inputs, neurons; replicas);
    chips: in use; unknown: why its time cannot be told, or ''."""

    options: MappingOptions
    figures: Figures
    seconds: float
    spans: tuple[tuple[str, int], ...]
    fits: bool
    shares: tuple[tuple[str, int, int, int, int], ...]
    chips: int
    unknown: str = ""
