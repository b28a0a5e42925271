"""A program: what lies where, and the supersteps that a device runs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property

from mimdsim.base.errors import MappingError, suggest
from mimdsim.program.codelet import Codelet
from mimdsim.program.records import Superstep, Variable
from mimdsim.program.repeats import Body, Repeat, Stretch, changed, stretches, turns


@dataclass(frozen=True, kw_only=True)
class Potential:
    """What a layer compares with its threshold: a graph value that supersteps define, and the variable
    [timesteps, batch, neurons] that keeps it, '' if the program does not keep it for every timestep."""

    value: str
    sequence: str = ""


@dataclass(frozen=True, kw_only=True)
class Observables:
    """In addition to `Program.recorded`, the spikes by layer; a program written by hand may leave it all out.

    gradients: the output that holds the gradient, by trained input. generators: inputs that hold the states of random
    number generators, drawn afresh before every run. potentials: for layers that spike.
    """

    gradients: dict[str, str] = field(default_factory=dict)
    generators: tuple[str, ...] = ()
    potentials: dict[str, Potential] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, eq=False)
class Program:
    """What a device runs: a lowered training step, or a program written by hand.

    `tiles` is the number of tiles it was placed on, over all chips; tile numbers continue from chip to chip. `inputs`
    names what the host writes, `bounds` the least and largest whole number that some of these may hold, `streamed` the
    bytes that it sends for every run; everything else is on the tiles. `observables`: what a run may ask for by kind.
    """

    tiles: int
    variables: dict[str, Variable]
    body: Body
    layers: tuple[str, ...] = ()
    inputs: dict[str, str] = field(default_factory=dict)  # graph input -> variable
    outputs: dict[str, str] = field(default_factory=dict)  # graph value -> variable
    layer_of_tile: tuple[str, ...] = ()
    recorded: dict[str, tuple[str, ...]] = field(default_factory=dict)  # layer -> sequences of ids and counts, or a row
    chips: int = 1
    streamed: dict[str, int] = field(default_factory=dict)  # input -> bytes
    bounds: dict[str, tuple[int, int]] = field(default_factory=dict)  # input -> least and largest
    observables: Observables = field(default_factory=Observables)

    def __post_init__(self) -> None:
        if self.chips < 1 or self.tiles % self.chips:
            raise MappingError(f"a program of {self.tiles} tiles cannot be placed evenly on {self.chips} chips")

    @property
    def tiles_per_chip(self) -> int:
        return self.tiles // self.chips

    @property
    def timesteps(self) -> int:
        """Timesteps of the program's repeats."""
        return max((item.timesteps for item in self.body if isinstance(item, Repeat)), default=1)

    def stretches(self) -> Iterator[Stretch]:
        """All supersteps in program order, in runs that no repeat begins or ends within."""
        return iter(self._stretches)

    @cached_property
    def _stretches(self) -> tuple[Stretch, ...]:
        return tuple(stretches(self.body))

    def supersteps(self) -> Iterator[tuple[Superstep, int, bool]]:
        """Each superstep once, in program order, with its number of runs and whether time runs backwards."""
        for stretch in self.stretches():
            for superstep in stretch.body:
                yield superstep, stretch.times, stretch.reverse

    def turns(self, phases: Collection[str] | None = None) -> Iterator[tuple[Superstep, int]]:
        """The supersteps of `phases` (None: all) in the order in which they run, each with its timestep."""
        return turns(self.body, 0, phases)

    def map_supersteps(self, change: Callable[[Superstep], Superstep]) -> Program:
        """The program with `change(superstep) -> superstep` applied to each."""
        return replace(self, body=changed(self.body, change))

    def with_codelet(self, name: str, codelet: Codelet) -> Program:
        """The program with vertices of codelet `name` computed by `codelet`; raises MappingError if there are none."""
        found = False

        def change(superstep: Superstep) -> Superstep:
            nonlocal found
            hit = any(table.codelet.name == name for table in superstep.tables)
            found |= hit
            tables = tuple(
                table.with_codelet(codelet) if table.codelet.name == name else table for table in superstep.tables
            )
            return replace(superstep, tables=tables) if hit else superstep

        made = self.map_supersteps(change)
        if not found:
            known = sorted({table.codelet.name for step, _, _ in self.supersteps() for table in step.tables})
            raise MappingError(f"no vertex of codelet '{name}' in the program{suggest(name, known)}")
        return made
