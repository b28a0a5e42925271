"""What tiles load from the memory behind them and store there (`[memory]` of a machine), superstep by superstep.

It follows from the boxes of vertices alone: what a vertex may touch is streamed before it is known which rows a list of
spikes chooses. What several vertices of a tile take of an entry is loaded once, at most as a whole. Elements that other
tiles read come over the exchange, from the tile of their mapping, which then loads its part of the entry as a whole; so
does a copy.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from mimdsim.base.cache import PerObject
from mimdsim.base.errors import DoesNotFit, MappingError
from mimdsim.base.units import show_bytes
from mimdsim.machine import MimdMachine
from mimdsim.program import Program, Superstep, VertexTable
from mimdsim.program.codelet import Field
from mimdsim.program.vertex_boxes import boxes_of, is_local, spatial_mapping

READ, WRITTEN, TOUCHED = range(3)


@dataclass(frozen=True, kw_only=True, eq=False)
class Transfers:
    """moved int64[supersteps, tiles]: bytes that every tile loads and stores in one execution; pieces: variable ->
    int64[tiles]: most bytes of it that one superstep takes; held int64[tiles]: bytes that lie behind every tile."""

    moved: np.ndarray
    pieces: dict[str, np.ndarray]
    held: np.ndarray

    def bytes_moved(self, program: Program) -> int:
        """Loaded and stored by all tiles in one run of the program."""
        times = np.array([times for _, times, _ in program.supersteps()], np.int64)
        return int(times @ self.moved.sum(axis=1))


_TRANSFERS: PerObject[Transfers] = PerObject()


def transfers_of(program: Program) -> Transfers:
    """Of the variables of `program.behind_tiles`; the same on every machine."""
    return _TRANSFERS.get(program, None, lambda: _transfers(program))


def _transfers(program: Program) -> Transfers:
    steps = [superstep for superstep, _, _ in program.supersteps()]
    moved = np.zeros((len(steps), program.tiles), np.int64)
    pieces = {name: np.zeros(program.tiles, np.int64) for name in program.behind_tiles}
    for row, superstep in zip(moved, steps, strict=True):
        piece: dict[str, np.ndarray] = {}
        for name, taken in _taken(program, superstep):
            row += taken[READ] + taken[WRITTEN]
            piece[name] = piece.get(name, 0) + taken[TOUCHED]
        for name, size in piece.items():
            np.maximum(pieces[name], size, out=pieces[name])
    held = np.zeros(program.tiles, np.int64)
    for name in program.behind_tiles:
        held += _entry_bytes(program, name, None)
    return Transfers(moved=moved, pieces=pieces, held=held)


def _taken(program: Program, superstep: Superstep) -> Iterator[tuple[str, np.ndarray]]:
    """(variable, int64[3, tiles]: bytes read, written, touched) of every entry that a superstep takes."""
    behind = frozenset(program.behind_tiles)
    found: dict[tuple[str, int | None], np.ndarray] = {}

    def taken_of(name: str, shift: int | None) -> np.ndarray:
        return found.setdefault((name, shift), np.zeros((3, program.tiles), np.int64))

    for copy in superstep.copies:
        for name, shift, way in ((copy.source, copy.source_shift, READ), (copy.target, copy.target_shift, WRITTEN)):
            if name in behind:
                taken_of(name, shift)[[way, TOUCHED]] += _entry_bytes(program, name, shift)
    for table in superstep.tables:
        for field in table.codelet.fields:
            name = table.operands[field.name]
            if name in behind and table.vertices:
                ways = [way for way, takes in ((READ, field.reads), (WRITTEN, field.writes), (TOUCHED, True)) if takes]
                taken_of(name, field.shift)[ways] += _field_bytes(program, table, field)
    for (name, shift), taken in found.items():
        yield name, np.minimum(taken, _entry_bytes(program, name, shift))


def _field_bytes(program: Program, table: VertexTable, field: Field) -> np.ndarray:
    """int64[tiles]: bytes of the boxes of a field by tile; all of the entry if some are on other tiles."""
    name = table.operands[field.name]
    variable = program.variables[name]
    boxes = boxes_of(table, field, variable)
    mapping = spatial_mapping(variable, field.shift is not None)
    if not is_local(mapping, table.tiles, boxes, variable.shape[field.shift is not None :]).all():
        return _entry_bytes(program, name, field.shift)
    size = np.maximum(boxes[..., 1] - boxes[..., 0], 0).prod(axis=1) * variable.item_bytes
    found = np.zeros(program.tiles, np.int64)
    np.add.at(found, table.tiles, size)
    return found


def _entry_bytes(program: Program, name: str, shift: int | None) -> np.ndarray:
    """int64[tiles]: bytes of a variable on every tile, of one entry if a shift takes it at the timestep."""
    variable = program.variables[name]
    mapping, shape = variable.mapping, variable.shape
    if shift is not None:
        mapping, shape = spatial_mapping(variable, True), shape[1:]
    return mapping.bytes_by_tile(shape, variable.item_bytes, program.tiles)


def transfer_cycles(program: Program, machine: MimdMachine) -> np.ndarray:
    """int64[supersteps, chips]: cycles of one execution's transfers at the channel that carries most, the last one to
    its end, without their latency. The machine must have [memory]."""
    memory = machine.memory
    assert memory is not None
    by_chip = transfers_of(program).moved.reshape(-1, program.chips, program.tiles_per_chip)
    if memory.tiles_per_channel is None:
        most = by_chip.sum(axis=2) / (memory.channels or 1)
    else:
        first = np.arange(0, program.tiles_per_chip, memory.tiles_per_channel)
        most = np.add.reduceat(by_chip, first, axis=2).max(axis=2)
    return np.asarray(np.ceil(most / memory.bytes_per_cycle).astype(np.int64))


def whole_transfer_cycles(program: Program, machine: MimdMachine) -> int:
    """Cycles of all transfers of one run with their latencies, one after the other."""
    assert machine.memory is not None
    cycles = transfer_cycles(program, machine).max(axis=1)
    late = transfers_of(program).moved.any(axis=1) * machine.memory.latency_cycles
    return int(np.array([times for _, times, _ in program.supersteps()], np.int64) @ (cycles + late))


def refuse_behind_tiles(program: Program, machine: MimdMachine) -> None:
    """Raise MappingError for variables behind tiles that have no memory behind them, or no barriers, and DoesNotFit for
    more than a chip's memory holds."""
    if not program.behind_tiles:
        return
    if machine.memory is None:
        raise MappingError(
            f"mapping.behind_tiles: {machine.name} has no memory behind its tiles; describe it in [memory], or leave "
            "mapping.behind_tiles empty"
        )
    if machine.sync.model == "dataflow":
        raise MappingError('mapping.behind_tiles: transfers are timed by superstep, not with sync.model = "dataflow"')
    held = transfers_of(program).held.reshape(program.chips, -1).sum(axis=1)
    needed, limit = int(held.max()), machine.memory.capacity_bytes
    if needed > limit:
        raise DoesNotFit(
            f"does not fit {machine.name}: mapping.behind_tiles puts {needed:,} bytes ({show_bytes(needed)}) behind "
            f"the tiles of chip {int(held.argmax())}, memory.capacity_bytes is {limit:,} ({show_bytes(limit)})"
        )
