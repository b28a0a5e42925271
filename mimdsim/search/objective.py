"""What is best, and what a mapping must keep to."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from mimdsim.base.errors import DescriptionError, shortened, suggest
from mimdsim.base.shown import Shown
from mimdsim.base.units import parse_quantity
from mimdsim.graph import Graph, SpikingNetwork, training_graph
from mimdsim.machine import MimdMachine
from mimdsim.program import RecordedActivity
from mimdsim.workload.description.mapping import MappingOptions


@dataclass(frozen=True, kw_only=True, eq=False)
class Case(Shown):
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
    (None: not known), seconds in which the host streams its batch in."""

    cycles: int
    peak_bytes: int
    tiles: int
    joules: float | None = None
    host_seconds: float = 0.0


@dataclass(frozen=True, kw_only=True)
class TimedMapping(Shown):
    """A mapping compiled and timed in full. seconds: of a training step, in exposed_seconds of which the chip waits for
    the host; spans: (superstep, cycles) in program order; fits: whether it fits the tile memory; shares: of every layer
    (name, parts of batch, inputs, neurons; replicas); chips: in use; unknown: why its time cannot be told, or '';
    code_alone: that its code leaves no room for variables, or ''."""

    options: MappingOptions
    figures: Figures
    seconds: float
    exposed_seconds: float = 0.0
    spans: tuple[tuple[str, int], ...]
    fits: bool
    shares: tuple[tuple[str, int, int, int, int], ...]
    chips: int
    unknown: str = ""
    code_alone: str = ""

    @property
    def waits_for_host(self) -> bool:
        """Whether the host, which streams batches ahead, sets the time."""
        return 0 < self.exposed_seconds < self.figures.host_seconds


Objective = Literal["time", "memory", "energy", "product"]
_LIMIT = re.compile(r"\s*max\s+([a-z]+)\s+(\S.*?)\s*")
UNITS = {"memory": "bytes", "tiles": "tiles", "time": "seconds", "cycles": "cycles", "energy": "joules"}
BEYOND = float("inf")
Number = float | np.ndarray


@dataclass(frozen=True, kw_only=True)
class Aims:
    """What is to be least: time, the bytes of the fullest tile, energy, or the product of time and these bytes; and
    limits by what they are of, in base units (`UNITS`)."""

    objective: Objective = "time"
    within: tuple[tuple[str, float], ...] = ()
    sram_bytes: int
    clock_hz: float
    prefetch_depth: int = 1

    @classmethod
    def of(cls, machine: MimdMachine, **more: Any) -> Aims:
        """The aims on a machine."""
        clock_hz, ahead = machine.chip.clock_hz, machine.host.prefetch_depth
        return cls(sram_bytes=machine.tile.sram_bytes, clock_hz=clock_hz, prefetch_depth=ahead, **more)

    @property
    def needs_energy(self) -> bool:
        """Whether what is best, or a limit, is of energy."""
        return self.objective == "energy" or "energy" in dict(self.within)

    def limited(self, case: Case) -> Case:
        """A case on one chip, all of whose mappings keep to the limit of tiles."""
        most = dict(self.within).get("tiles", BEYOND)
        return case if most >= case.machine.chip.tiles else case.on_tiles(int(most))

    def rank(self, found: Figures | None) -> tuple[float, float, int]:
        """Least for the best mapping: by how much it exceeds limits (as shares of them), then the objective; energy
        that is not known counts as time."""
        if found is None:
            return BEYOND, BEYOND, 0
        excess, aim = self._ranked(found.cycles, found.peak_bytes, found.tiles, found.host_seconds, found.joules)
        return float(excess), aim, found.cycles

    def order(self, cycles: np.ndarray, peak_bytes: np.ndarray, tiles: np.ndarray, host_seconds: float) -> np.ndarray:
        """int64[mappings]: mappings of unknown energy, best first; of those as good, the one that leaves most tiles to
        other layers, or of those that take as long because of the host the one of fewest cycles."""
        excess, aim = self._ranked(cycles, peak_bytes, tiles, host_seconds, None)
        return np.lexsort((cycles, tiles, *([cycles] if self.objective == "time" else []), aim, excess))

    def seconds(self, cycles: Number, host_seconds: float) -> Any:
        """Of a training step: the host streams the next batch while the chip computes, or after it."""
        device = cycles / self.clock_hz
        return np.maximum(device, host_seconds) if self.prefetch_depth else device + host_seconds

    def _ranked(
        self, cycles: Number, peak_bytes: Number, tiles: Number, host_seconds: float, joules: float | None
    ) -> tuple[Any, Any]:
        seconds = self.seconds(cycles, host_seconds)
        known = {
            "memory": peak_bytes,
            "tiles": tiles,
            "time": seconds,
            "cycles": cycles,
            "energy": 0.0 if joules is None else joules,
        }
        limits = (("memory", self.sram_bytes), *self.within)
        excess = sum(np.maximum(0.0, known[of] / most - 1) if most else BEYOND for of, most in limits)
        aim = {
            "time": seconds,
            "memory": peak_bytes,
            "energy": seconds if joules is None else joules,
            "product": seconds * peak_bytes,
        }
        return excess, aim[self.objective]


def parse_limits(text: str) -> tuple[tuple[str, float], ...]:
    """'max memory 400 KiB, max tiles 1000' -> what is limited, and to how much; raises DescriptionError."""
    found: dict[str, float] = {}
    for part in filter(str.strip, text.split(",")):
        match = _LIMIT.fullmatch(part)
        if match is None:
            problem = f"{shortened(part.strip())!r} is no limit; write e.g.  max memory 400 KiB, max tiles 1000"
            raise DescriptionError("--within", [problem])
        of, most = match.groups()
        if of not in UNITS:
            raise DescriptionError("--within", [f"no limit of '{of}'{suggest(of, UNITS)}; known: {', '.join(UNITS)}"])
        if of in found:
            raise DescriptionError("--within", [f"max {of} is given twice; give it one value"])
        try:
            found[of] = parse_quantity(most, UNITS[of], bare=False)
        except ValueError as problem:
            raise DescriptionError("--within", [f"max {of}: {problem}"]) from None
        if not found[of] > 0:
            raise DescriptionError("--within", [f"max {of}: {most} must be more than 0"])
    return tuple(found.items())
