"""A program: what lies where, and the supersteps that a device runs, in repeats nested at most two deep."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Any, TypeAlias, Union

import numpy as np

from mimdsim.base.compressed_columns import single, uniform
from mimdsim.base.errors import MappingError, suggest
from mimdsim.base.shown import Sheet, Shown
from mimdsim.base.units import counted
from mimdsim.program.codelet import Codelet, Field, TileFormula
from mimdsim.program.loops import Column, Derived, Length, Recorded, Turns
from mimdsim.program.records import Superstep, Variable, VertexTable

Body: TypeAlias = tuple[Union["Superstep", "Repeat"], ...]


@dataclass(frozen=True, kw_only=True, eq=False)
class Repeat(Shown):
    """`body` once per turn, from the first to the last, or from the last to the first when `reverse`.

    A turn is one timestep or, if the body holds repeats (all with equally many turns, none with repeats in it), a
    segment of timesteps; supersteps next to these repeats belong to its first timestep. Raises ValueError otherwise.
    """

    times: int
    body: Body
    reverse: bool = False

    def __post_init__(self) -> None:
        inner = [item for item in self.body if isinstance(item, Repeat)]
        if any(item.times != inner[0].times for item in inner):
            raise ValueError(f"repeats within one repeat differ in their turns: {[item.times for item in inner]}")
        if any(isinstance(part, Repeat) for item in inner for part in item.body):
            raise ValueError("a repeat within a repeat within a repeat: a program may have at most two levels")

    @property
    def segment(self) -> int:
        """Timesteps of a turn."""
        return next((item.times for item in self.body if isinstance(item, Repeat)), 1)

    @property
    def timesteps(self) -> int:
        """Timesteps of all turns."""
        return self.times * self.segment


@dataclass(frozen=True, kw_only=True, eq=False)
class Stretch(Shown):
    """Consecutive supersteps, and the repeats that enclose them, outermost first."""

    body: tuple[Superstep, ...]
    repeats: tuple[Repeat, ...] = ()

    @property
    def times(self) -> int:
        """How often they run in all."""
        return math.prod(repeat.times for repeat in self.repeats)

    @property
    def reverse(self) -> bool:
        """Whether time runs backwards for them."""
        return bool(self.repeats) and all(repeat.reverse for repeat in self.repeats)

    @cached_property
    def timesteps(self) -> range:
        """The timesteps in which it runs, ascending: next to an inner repeat, the first one of every segment."""
        if not self.repeats:
            return range(1)
        every = self.repeats[0].segment if len(self.repeats) == 1 else 1
        return range(0, max(self.repeats[0].timesteps, 1), max(every, 1))


def _runs(body: Body) -> Iterator[tuple[Superstep, ...] | Repeat]:
    """The repeats of a body, and the supersteps between them, run by run."""
    run: list[Superstep] = []
    for item in body:
        if isinstance(item, Superstep):
            run.append(item)
            continue
        if run:
            yield tuple(run)
            run = []
        yield item
    if run:
        yield tuple(run)


def stretches(body: Body, around: tuple[Repeat, ...] = ()) -> Iterator[Stretch]:
    """All supersteps in program order, in runs that no repeat begins or ends within."""
    for item in _runs(body):
        if isinstance(item, Repeat):
            yield from stretches(item.body, (*around, item))
        else:
            yield Stretch(body=item, repeats=around)


def turns(body: Body, t: int, phases: Collection[str] | None) -> Iterator[tuple[Superstep, int]]:
    """The supersteps of `phases` (None: all) in the order in which they run, each with its timestep; `t` is the first.

    Repeats without supersteps of these phases are skipped.
    """
    for item in body:
        if not isinstance(item, Repeat):
            if phases is None or item.phase in phases:
                yield item, t
        elif any(phases is None or step.phase in phases for part in stretches(item.body) for step in part.body):
            for turn in range(item.times)[:: -1 if item.reverse else 1]:
                yield from turns(item.body, t + turn * item.segment, phases)


def map_runs(body: Body, change: Callable[[list[Superstep]], list[Superstep]]) -> Body:
    """The body with `change(stretch)` in place of every run of supersteps that no repeat begins or ends within."""
    made: list[Superstep | Repeat] = []
    for item in _runs(body):
        made += [replace(item, body=map_runs(item.body, change))] if isinstance(item, Repeat) else change(list(item))
    return tuple(made)


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
    passing: of layers whose spikes no sequence keeps, the variables of ids and counts, or of rows, that hold those of
    the current timestep. positions: of layers of planes, whose rows are positions of samples.
    """

    gradients: dict[str, str] = field(default_factory=dict)
    generators: tuple[str, ...] = ()
    potentials: dict[str, Potential] = field(default_factory=dict)
    passing: dict[str, tuple[str, ...]] = field(default_factory=dict)
    positions: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, eq=False)
class Program(Shown):
    """What a device runs: a lowered training step, or a program written by hand.

    `tiles` is the number of tiles it was placed on, over all chips; tile numbers continue from chip to chip. `inputs`
    names what the host writes, `bounds` the least and largest whole number that some of these may hold, `streamed` the
    bytes that it sends for every run; everything else is on the tiles. `observables`: what a run may ask for by kind.
    strip_columns: where on a chip's grid its tiles lie (`Chip.places`). behind_tiles: variables that lie in the memory
    behind the tiles of their mapping, which load and store what supersteps take of them.
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
    strip_columns: int = 0
    behind_tiles: tuple[str, ...] = ()

    def _sheet(self) -> Sheet:
        every = list(self.supersteps())
        rows = [
            (step.name, step.phase, f"{times:,}", f"{sum(table.vertices for table in step.tables):,}")
            for step, times, _ in every
        ]
        title = f"Program of {counted(len(every), 'superstep')} on {counted(self.tiles, 'tile')}, "
        head = ("superstep", "phase", "executions", "vertices")
        return Sheet(f"{title}{counted(len(self.variables), 'variable')}", rows, head)

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
        return replace(self, body=map_runs(self.body, lambda run: [change(superstep) for superstep in run]))

    def map_codelets(self, change: Callable[[Codelet], Codelet]) -> Program:
        """The program with `change(codelet)` in place of each codelet; called once of each."""
        old = {id(table.codelet): table.codelet for step, _, _ in self.supersteps() for table in step.tables}
        new = {key: change(codelet) for key, codelet in old.items()}

        def changed(superstep: Superstep) -> Superstep:
            tables = tuple(table.with_codelet(new[id(table.codelet)]) for table in superstep.tables)
            return superstep if tables == superstep.tables else replace(superstep, tables=tables)

        return self.map_supersteps(changed)

    def with_codelet(self, name: str, codelet: Codelet) -> Program:
        """The program with vertices of codelet `name` computed by `codelet`; raises MappingError if there are none."""
        known = {table.codelet.name for step, _, _ in self.supersteps() for table in step.tables}
        if name not in known:
            raise MappingError(f"no vertex of codelet '{name}' in the program{suggest(name, sorted(known))}")
        return self.map_codelets(lambda own: codelet if own.name == name else own)


# ---- what every program is written through, by hand or by the compiler: variables, vertices in supersteps, repeats


@dataclass(kw_only=True, eq=False)
class ProgramBuilder(Shown):
    """A program in the making on `tiles` tiles, those of `chips` chips one after another.

    What is added goes to the open superstep or, as one of its own, to the innermost open repeat. A kernel
    (`mimdsim.kernels`) adds library vertices and refuses mistakes by the caller's line; the lowering of a network
    (`mimdsim.compiler`) adds where its layers lie.
    """

    tiles: int
    chips: int = 1
    variables: dict[str, Variable] = field(default_factory=dict)
    inputs: dict[str, str] = field(default_factory=dict)  # what the host writes -> variable
    outputs: dict[str, str] = field(default_factory=dict)  # what the host reads -> variable
    bodies: list[list[Superstep | Repeat]] = field(default_factory=lambda: [[]])  # the program's, then open repeats'
    open_superstep: Superstep | None = None

    @property
    def body(self) -> list[Superstep | Repeat]:
        """What supersteps are appended to."""
        return self.bodies[-1]

    def add(self, more: Superstep) -> None:
        """Vertices and copies to the open superstep, or as a superstep of their own."""
        held = self.open_superstep
        if held is None:
            self.body.append(more)
        else:
            tables, copies = (*held.tables, *more.tables), (*held.copies, *more.copies)
            self.open_superstep = replace(held, tables=tables, copies=copies, defines=(*held.defines, *more.defines))

    def add_vertices(
        self,
        superstep: Superstep,
        codelet: Codelet,
        tiles: np.ndarray,
        operands: Mapping[str, str],
        columns: Mapping[str, np.ndarray],
        *,
        layer: str = "",
        extents: Mapping[str, np.ndarray | Recorded] | None = None,
        constants: Mapping[str, Any] | None = None,
    ) -> None:
        """One vertex of `codelet` for every entry of `tiles`, in `superstep` unless one is open."""
        table = VertexTable(
            codelet=codelet,
            layer=layer,
            tiles=tiles,
            operands=dict(operands),
            columns=dict(columns),
            extents=dict(extents or {}),
            constants=dict(constants or {}),
        )
        self.add(replace(superstep, tables=(table,)))

    def open_repeat(self) -> None:
        """What is added until `close_repeat` is the body of a loop."""
        self.bodies.append([])

    def close_repeat(self, times: int, *, reverse: bool) -> None:
        """What was added since `open_repeat` runs `times` times, "@t" from last to first if `reverse`."""
        body = self.bodies.pop()
        self.body.append(Repeat(times=times, body=tuple(body), reverse=reverse))

    @contextmanager
    def repeat(self, times: int, *, reverse: bool = False) -> Iterator[None]:
        """What is added within runs `times` times, "@t" from last to first if `reverse`."""
        self.open_repeat()
        yield
        self.close_repeat(times, reverse=reverse)

    def program(self, **about: Any) -> Program:
        """The program; about: fields that say more of it."""
        return Program(
            tiles=self.tiles,
            chips=self.chips,
            variables=dict(self.variables),
            body=tuple(self.bodies[0]),
            inputs=dict(self.inputs),
            outputs=dict(self.outputs),
            **about,
        )


# ---- how often the loops of a table's vertices run: by the codelet's declarations and the table's own extents


def extents_of(program: Program, table: VertexTable) -> dict[str, np.ndarray | Recorded]:
    """int64[vertices] or a recorded extent by name: given by the table, declared by its codelet, or counted as it runs.

    Long columns with one value for all vertices take no memory and are read-only.
    """
    found = dict(table.extents)
    for name, extent in table.codelet.extents.items():
        if isinstance(extent, Derived):
            turns = -(-_count(program.variables, table, extent) // extent.per)
            found[name] = uniform(np.broadcast_to(np.asarray(turns, np.int64), (table.vertices,)))
    if table.codelet.count is not None:
        for name in sorted(extents_named(table) - set(found)):
            found[name] = Turns(layer=f"{_places(program)[id(table)]}.{name}")
    return found


def stretch_of(program: Program, superstep: Superstep) -> Stretch:
    """The place of a superstep."""
    return next(stretch for stretch in program.stretches() if any(step is superstep for step in stretch.body))


def extents_named(table: VertexTable) -> set[str]:
    """Extents that the terms of a table's cost and flops name; formulas do not list names."""
    cost = table.codelet.cost
    terms = table.codelet.flops if isinstance(cost, TileFormula) else (*cost.terms, *table.codelet.flops)
    return {name for term in terms for name in term.extents}


@lru_cache(maxsize=8)
def _places(program: Program) -> dict[int, str]:
    """Unique names, by identity, of tables whose codelet counts turns."""
    found: dict[int, str] = {}
    for number, (superstep, _, _) in enumerate(program.supersteps()):
        for index, table in enumerate(superstep.tables):
            if table.codelet.count is not None:
                if id(table) in found:
                    raise MappingError(
                        f"superstep '{superstep.name}': a table of '{table.codelet.name}', which counts its turns, "
                        "is used in two supersteps; make one for each"
                    )
                found[id(table)] = f"{number} {superstep.name}, table {index}"
    return found


def _count(variables: Mapping[str, Variable], table: VertexTable, extent: Derived) -> Any:
    if isinstance(extent, Column):
        return table.column(extent.name)
    item = table.codelet.field(extent.field)
    variable = variables[table.operands[item.name]]
    if isinstance(extent, Length):
        passed: Any = table.constants[extent.after] if extent.after else 0
        return _length(table, item, variable, extent.axis) - passed
    axes = range(item.shift is not None, len(item.box))
    return math.prod(_length(table, item, variable, axis) for axis in axes)


def _length(table: VertexTable, item: Field, variable: Variable, axis: int) -> Any:
    """The length of a field's box along an axis: one number, or int64[vertices]."""
    entry = item.box[axis]
    if entry == ":":
        return variable.shape[axis]
    start, _, stop = entry.partition(":")
    return single(uniform(np.subtract(table.columns[stop], table.columns[start], dtype=np.int64))) if stop else 1
