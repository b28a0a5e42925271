"""Which variable is in memory when: bytes per tile by category, the peak, and the curve over the program.

A variable lives from its first write to its last read. Inside a repeat it lives for the whole repeat when it is also
used outside, indexed by timestep, or read before it is written. Exchange buffers live in their superstep, and what is
sent early (`exchange.overlap`) also in those that compute meanwhile; persistent variables, vertices and code always. Of
a variable behind the tiles, two buffers of the largest piece that a superstep takes are on a tile, at most all of it,
from the superstep before the first that takes some to that after the last.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from mimdsim.base.compressed_columns import compact, wide
from mimdsim.base.shown import Sheet, Shown, in_order
from mimdsim.base.units import show_bytes
from mimdsim.costs.memory_behind_tiles import transfers_of
from mimdsim.machine import MimdMachine
from mimdsim.program import Program, Repeat, Superstep, TileFormula
from mimdsim.program.checks.bounds import require_homes
from mimdsim.program.mapping import TileMapping
from mimdsim.program.overlap import Overlap, overlaps_of
from mimdsim.program.records import CATEGORIES, OVERHEADS

Where = np.ndarray | slice  # tiles


@dataclass(frozen=True, kw_only=True, eq=False)
class Memory(Shown):
    """Bytes on tiles, kept for the tiles that hold something.

    Per superstep: names, phases, fullest_tile, fullest_bytes, total_bytes. Per tile: peak_by_tile, always int64[tiles].
    The peak is the most bytes of any tile: peak_superstep is the first superstep that reaches it, peak_tile the first
    tile that does so there. categories: those of the variables in use, then OVERHEADS; category: of each variable.
    spans: variable -> (first, last) superstep; held: variable -> (tiles, bytes); buffers: superstep -> (tiles, bytes)
    of what its exchange brings; bytes are `compact`.
    """

    names: tuple[str, ...]
    phases: tuple[str, ...]
    fullest_tile: np.ndarray
    fullest_bytes: np.ndarray
    total_bytes: np.ndarray
    peak_by_tile: np.ndarray
    peak_superstep: int
    always: np.ndarray
    vertices: np.ndarray
    code: np.ndarray
    categories: tuple[str, ...]
    category: dict[str, str]
    spans: dict[str, tuple[int, int]]
    held: dict[str, tuple[np.ndarray, np.ndarray]]
    buffers: dict[int, tuple[np.ndarray, np.ndarray]]

    def _sheet(self) -> Sheet:
        where = f"on tile {self.peak_tile:,} in '{self.names[self.peak_superstep]}'" if self.names else ""
        return Sheet(f"Memory: at most {show_bytes(self.peak_bytes)} {where}".rstrip(), super()._sheet().rows)

    @property
    def peak_tile(self) -> int:
        return int(self.fullest_tile[self.peak_superstep])

    @property
    def peak_bytes(self) -> int:
        return int(self.fullest_bytes[self.peak_superstep])

    def live(self, index: int) -> Iterator[tuple[str, str, Where, np.ndarray]]:
        """(variable or '', category, tiles, bytes there) of everything that is in memory in superstep `index`."""
        for name, (first, last) in self.spans.items():
            if first <= index <= last:
                yield name, self.category[name], *self.held[name]
        if index in self.buffers:
            yield "", "exchange buffers", *self.buffers[index]
        yield "", "vertices", slice(None), self.vertices
        yield "", "code", slice(None), self.code

    @property
    def by_category(self) -> np.ndarray:
        """int64[categories, tiles]: bytes in the superstep where the fullest tile peaks; made anew each time."""
        found = np.zeros((len(self.categories), len(self.always)), np.int64)
        for _, category, tiles, size in self.live(self.peak_superstep):
            found[self.categories.index(category), tiles] += size
        return found

    def largest(self, tile: int, count: int) -> list[tuple[str, int]]:
        """The variables that take most of a tile at the peak superstep."""
        found = []
        for name, _, tiles, size in self.live(self.peak_superstep):
            if name and (here := size[tiles == tile]).any():
                found.append((name, int(here[0])))
        return sorted(found, key=lambda item: (-item[1], item[0]))[:count]


def measure_memory(program: Program, machine: MimdMachine) -> Memory:
    """Memory of a planned program on `machine` (its limits are not checked here).

    Raises MappingError for a vertex or an element on a tile that the program does not have.
    """
    require_homes(program)
    return memory_of(program, machine)


def memory_of(program: Program, machine: MimdMachine) -> Memory:
    """`measure_memory` of a program whose vertices and elements are all on its tiles."""
    supersteps = [superstep for superstep, _, _ in program.supersteps()]
    early = overlaps_of(program) if machine.exchange.overlap else (None,) * len(supersteps)
    spans = _spans(program, early)
    tiles = program.tiles
    vertices, code = _fixed_bytes(supersteps, tiles, machine)
    always = vertices + code
    behind = frozenset(program.behind_tiles)
    begins: dict[int, list[str]] = defaultdict(list)
    ends: dict[int, list[str]] = defaultdict(list)
    held: dict[str, tuple[np.ndarray, np.ndarray]] = {}
    alike: dict[tuple[TileMapping, tuple[int, ...], int], tuple[np.ndarray, np.ndarray]] = {}  # many lie alike
    for name, (first, last) in spans.items():
        variable = program.variables[name]
        key = variable.mapping, variable.shape, variable.item_bytes
        if key not in alike:
            tiles_of, size = variable.mapping.held_bytes(*key[1:])
            alike[key] = tiles_of, compact(size)
        held[name] = alike[key]
        if name in behind:
            tiles_of, size = held[name]
            held[name] = tiles_of, compact(np.minimum(wide(size), 2 * transfers_of(program).pieces[name][tiles_of]))
        begins[first].append(name)
        ends[last].append(name)
        if variable.persistent and name not in behind:
            always[held[name][0]] += held[name][1]
    buffers = _buffers(supersteps, early, tiles)
    live = vertices + code
    peak_by_tile = np.zeros(tiles, np.int64)
    curve = np.zeros((3, len(supersteps)), np.int64)
    for index in range(len(supersteps)):
        for name in begins[index]:
            live[held[name][0]] += held[name][1]
        where, extra = buffers.get(index, (np.zeros(0, np.int64), np.zeros(0, np.int64)))
        live[where] += extra
        np.maximum(peak_by_tile, live, out=peak_by_tile)
        curve[:, index] = live.argmax(), live.max(), live.sum()
        live[where] -= extra
        for name in ends[index]:
            live[held[name][0]] -= held[name][1]
    category = {name: program.variables[name].category for name in spans}
    return Memory(
        names=tuple(superstep.name for superstep in supersteps),
        phases=tuple(step.phase for step in supersteps),
        fullest_tile=curve[0],
        fullest_bytes=curve[1],
        total_bytes=curve[2],
        peak_by_tile=peak_by_tile,
        peak_superstep=int(curve[1].argmax()),
        always=always,
        vertices=vertices,
        code=code,
        categories=in_order((*category.values(), *OVERHEADS), (*CATEGORIES, *OVERHEADS)),
        category=category,
        spans=spans,
        held=held,
        buffers=buffers,
    )


def _buffers(
    supersteps: list[Superstep], early: Sequence[Overlap | None], tiles: int
) -> dict[int, tuple[np.ndarray, np.ndarray]]:
    """superstep -> (tiles, bytes) of what its exchange brings, and of what comes early of the next one."""
    held: dict[int, np.ndarray] = {}
    buffers: dict[int, tuple[np.ndarray, np.ndarray]] = {}
    for index, (superstep, overlap) in enumerate(zip(supersteps, early, strict=True)):
        exchange = superstep.exchange
        if exchange is None or superstep.copies:
            continue
        buffers[index] = exchange.tiles, compact(exchange.column("bytes_received"))
        for before in range(index if overlap is None else overlap.first, index):
            assert overlap is not None
            held.setdefault(before, np.zeros(tiles, np.int64))[exchange.tiles] += overlap.early_bytes
    for index, more in held.items():
        if index in buffers:
            more[buffers[index][0]] += wide(buffers[index][1])
        buffers[index] = np.flatnonzero(more), compact(more[more > 0])
    return buffers


def _fixed_bytes(supersteps: list[Superstep], tiles: int, machine: MimdMachine) -> tuple[np.ndarray, np.ndarray]:
    """Vertex state with the scratch of those that run at once, and code: library and control code, codelets present on
    a tile, exchange instructions."""
    vertices = np.zeros(tiles, np.int64)
    code = np.full(tiles, machine.tile.code_bytes, np.int64)
    present: dict[str, np.ndarray] = {}
    sizes: dict[str, int] = {}
    scratch = np.zeros(tiles, np.int64)
    for superstep in supersteps:
        scratch = np.maximum(scratch, _scratch(superstep, tiles, machine.tile.worker_contexts))
        for table in superstep.tables:
            np.add.at(vertices, table.tiles, table.codelet.vertex_state_bytes)
            name = table.codelet.name
            present.setdefault(name, np.zeros(tiles, bool))[table.tiles] = True
            sizes[name] = table.codelet.code_bytes
        exchange = superstep.exchange
        if exchange is not None:
            fragments = exchange.column("fragments_sent") + exchange.column("fragments_received")
            code[exchange.tiles] += fragments * machine.exchange.fragment_code_bytes
    for name, mask in present.items():
        code += mask * sizes[name]
    return vertices + scratch, code


def _scratch(superstep: Superstep, tiles: int, contexts: int) -> np.ndarray | int:
    """int64[tiles]: what vertices of a superstep that run at once declare; those of the supervisor run one by one."""
    found: np.ndarray | int = 0
    for table in superstep.tables:
        if table.codelet.scratch_bytes:
            at_once = 1 if isinstance(table.codelet.cost, TileFormula) else contexts
            here = np.minimum(np.bincount(table.tiles, minlength=tiles), at_once)
            found = found + here * table.codelet.scratch_bytes
    return found


def _spans(program: Program, early: Sequence[Overlap | None]) -> dict[str, tuple[int, int]]:
    """First and last superstep in which each used variable must be in memory; targets of copies that are made early
    from the superstep on that computes meanwhile."""
    accesses: dict[str, list[tuple[int, bool]]] = {}  # position, whether it is a whole write
    position = 0
    extent: dict[Repeat, tuple[int, int]] = {}
    for stretch in program.stretches():
        for repeat in stretch.repeats:
            extent[repeat] = extent.get(repeat, (position, 0))[0], position + len(stretch.body) - 1
        for superstep in stretch.body:
            overlap = early[position]
            for name, whole_write in _touches(superstep):
                begins = overlap.first if overlap is not None and name in overlap.targets else position
                accesses.setdefault(name, []).append((begins, whole_write))
            position += 1
    ranges = sorted(extent.values(), key=lambda one: one[1] - one[0])  # those within others first
    last_position = position - 1
    from_host = set(program.inputs.values())
    spans: dict[str, tuple[int, int]] = {}
    for name, touched in accesses.items():
        first, last = touched[0][0], touched[-1][0]
        for begin, end in ranges:
            inside = [access for access in touched if begin <= access[0] <= end]
            if inside and (len(inside) < len(touched) or not inside[0][1]):
                first, last = min(first, begin), max(last, end)
        if name in from_host:
            first = 0
        if program.variables[name].persistent:
            is_behind = name in program.behind_tiles
            first, last = (max(first - 1, 0), min(last + 1, last_position)) if is_behind else (0, last_position)
        spans[name] = first, last
    return spans


def _touches(superstep: Superstep) -> list[tuple[str, bool]]:
    """Variables of a superstep, reads before writes, with whether the access writes the whole current value."""
    reads = [(copy.source, False) for copy in superstep.copies]
    writes = [(copy.target, copy.target_shift is None) for copy in superstep.copies]
    for table in superstep.tables:
        for item in table.codelet.fields:
            name = table.operands[item.name]
            if item.reads:
                reads.append((name, False))
            if item.access == "write":
                writes.append((name, item.shift is None))
    return reads + writes


# ---- which variables of a compiled program lie behind the tiles (`mapping.behind_tiles`)


OF_CATEGORY = {"optimiser": "optimiser", "weights": "weights"}
STASHED = ("neuron states", "spike ids")  # categories of what is kept for the backward pass


def variables_behind(program: Program, kinds: Collection[str]) -> tuple[str, ...]:
    """Names of the variables of some kinds, in the order of the program. "stash": sequences, an entry for each
    timestep, of spikes and states."""
    categories = {OF_CATEGORY[kind] for kind in kinds if kind != "stash"}
    supersteps = program.supersteps() if "stash" in kinds else ()
    sequences = set[str]().union(*(superstep.sequences for superstep, _, _ in supersteps))
    return tuple(
        name
        for name, variable in program.variables.items()
        if variable.category in categories or (name in sequences and variable.category in STASHED)
    )
