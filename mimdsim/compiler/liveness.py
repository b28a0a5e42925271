"""Which variable is in memory when: bytes per tile by category, the peak, and the curve over the program.

A variable lives from its first write to its last read. Inside a repeat it lives for the whole repeat when it is also
used outside, indexed by timestep, or read before it is written. Exchange buffers live in their superstep; persistent
variables, vertices and code always.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mimdsim.machine import MimdMachine
from mimdsim.program import Program, Repeat, Superstep
from mimdsim.program.records import CATEGORIES
from mimdsim.program.rows import takes_timestep


@dataclass(frozen=True, kw_only=True, eq=False)
class Memory:
    """Bytes on tiles. by_category int64[categories, tiles] at the superstep where the fullest tile peaks.

    names, live int64[supersteps, tiles]; always int64[tiles]; spans: variable -> (first, last) superstep.
    """

    names: tuple[str, ...]
    phases: tuple[str, ...]
    live: np.ndarray
    always: np.ndarray
    by_category: np.ndarray
    spans: dict[str, tuple[int, int]]
    variable_bytes: dict[str, np.ndarray]
    overhead_bytes: dict[str, np.ndarray]  # 'vertices', 'code', 'exchange buffers' at the peak

    @property
    def peak_by_tile(self) -> np.ndarray:
        peak: np.ndarray = self.live.max(axis=0)
        return peak

    @property
    def peak_tile(self) -> int:
        return int(self.peak_by_tile.argmax())

    @property
    def peak_bytes(self) -> int:
        return int(self.peak_by_tile.max())

    @property
    def peak_superstep(self) -> int:
        return int(self.live[:, self.peak_tile].argmax())

    def largest(self, tile: int, count: int) -> list[tuple[str, int]]:
        """The variables that take most of a tile at the peak superstep."""
        at = self.peak_superstep
        held = [
            (name, int(held[tile]))
            for name, held in self.variable_bytes.items()
            if held[tile] and self.spans[name][0] <= at <= self.spans[name][1]
        ]
        return sorted(held, key=lambda item: (-item[1], item[0]))[:count]


def measure_memory(program: Program, machine: MimdMachine) -> Memory:
    """Memory of a planned program on `machine` (its limits are not checked here)."""
    supersteps = [superstep for superstep, _, _ in program.supersteps()]
    spans = _spans(program)
    tiles = program.tiles
    vertices, code = _fixed_bytes(supersteps, tiles, machine)
    always = vertices + code
    change = np.zeros((len(supersteps) + 1, tiles), np.int64)
    held: dict[str, np.ndarray] = {}
    for name, variable in program.variables.items():
        if name not in spans:
            continue
        held[name] = variable.mapping.bytes_by_tile(variable.shape, variable.item_bytes, tiles)
        first, last = spans[name]
        change[first] += held[name]
        change[last + 1] -= held[name]
        if variable.persistent:
            always = always + held[name]
    live = np.cumsum(change[:-1], axis=0) + vertices + code
    buffers = np.zeros_like(live)
    for index, superstep in enumerate(supersteps):
        if superstep.exchange is not None and not superstep.copies:
            buffers[index] = superstep.exchange.bytes_received
    live += buffers
    at = int(live.max(axis=1).argmax())
    overhead = {"exchange buffers": buffers[at], "vertices": vertices, "code": code}
    by_category = np.zeros((len(CATEGORIES), tiles), np.int64)
    for name, row in held.items():
        first, last = spans[name]
        if first <= at <= last:
            by_category[CATEGORIES.index(program.variables[name].category)] += row
    for category, row in overhead.items():
        by_category[CATEGORIES.index(category)] += row
    return Memory(
        names=tuple(superstep.name for superstep in supersteps),
        phases=tuple(step.phase for step in supersteps),
        live=live,
        always=always,
        by_category=by_category,
        spans=spans,
        variable_bytes=held,
        overhead_bytes=overhead,
    )


def _fixed_bytes(supersteps: list[Superstep], tiles: int, machine: MimdMachine) -> tuple[np.ndarray, np.ndarray]:
    """Vertex state, and code: library and control code, codelets present on a tile, exchange instructions."""
    vertices = np.zeros(tiles, np.int64)
    code = np.full(tiles, machine.tile.code_bytes, np.int64)
    present: dict[str, np.ndarray] = {}
    sizes: dict[str, int] = {}
    for superstep in supersteps:
        for table in superstep.tables:
            count = np.bincount(table.tiles, minlength=tiles)
            vertices += count * table.codelet.vertex_state_bytes
            name = table.codelet.name
            present[name] = present.get(name, np.zeros(tiles, bool)) | (count > 0)
            sizes[name] = table.codelet.code_bytes
        if superstep.exchange is not None:
            fragments = superstep.exchange.fragments_sent + superstep.exchange.fragments_received
            code += fragments * machine.exchange.fragment_code_bytes
    for name, mask in present.items():
        code += mask * sizes[name]
    return vertices, code


def _spans(program: Program) -> dict[str, tuple[int, int]]:
    """First and last superstep in which each used variable must be in memory."""
    accesses: dict[str, list[tuple[int, bool]]] = {}  # position, whether it is a whole write
    ranges: list[tuple[int, int]] = []
    position = 0
    for item in program.body:
        body = item.body if isinstance(item, Repeat) else (item,)
        if isinstance(item, Repeat):
            ranges.append((position, position + len(body) - 1))
        for superstep in body:
            for name, whole_write in _touches(superstep):
                accesses.setdefault(name, []).append((position, whole_write))
            position += 1
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
            first, last = 0, last_position
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
                writes.append((name, not takes_timestep(item)))
    return reads + writes
