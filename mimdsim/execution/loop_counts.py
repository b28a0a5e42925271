"""Turns of loops that a codelet counts itself as it runs (`Codelet.count`): recorded for timing, as spikes are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from mimdsim.base.errors import MappingError
from mimdsim.program import Program, Superstep, VertexTable
from mimdsim.program.codelet import Field, now_shift
from mimdsim.program.loops import Turns
from mimdsim.program.program import extents_of, stretch_of
from mimdsim.program.records import vertex_name
from mimdsim.program.vertex_boxes import boxes_of, describe_box

MOST = (1 << 31) - 1  # turns that are recorded
# called with (vertex or None for all, timestep, the arguments of compute)
Record = Callable[[int | None, int, tuple[Any, ...]], None]


class TurnCounts:
    """int32[executions, vertices, 2] by name, of the last run; both columns are alike, as nothing is listed."""

    def __init__(self, program: Program):
        self.program = program
        self.found: dict[str, np.ndarray] = {}

    def recorder(self, superstep: Superstep, table: VertexTable) -> Record | None:
        """What counts the turns of a table's vertices; None where its codelet counts none."""
        count = table.codelet.count
        if count is None:
            return None
        names = {name: each for name, each in extents_of(self.program, table).items() if isinstance(each, Turns)}
        timesteps = stretch_of(self.program, superstep).timesteps
        for extent in names.values():
            self.found[extent.layer] = np.zeros((len(timesteps), table.vertices, 2), np.int32)

        def record(vertex: int | None, t: int, given: tuple[Any, ...]) -> None:
            made = count(*given)
            who = table.codelet.name if vertex is None else vertex_name(table, vertex)
            where = f"superstep '{superstep.name}', timestep {t}: count of {who}"
            if not isinstance(made, dict) or set(made) != set(names):
                raise MappingError(f"{where} must return a dict of the extents {sorted(names)}, returned {made!r}")
            for name, turns in made.items():
                number = np.asarray(turns)
                if number.dtype.kind not in "iu" or (number.size and not 0 <= number.min() <= number.max() <= MOST):
                    raise MappingError(f"{where} gives {turns!r} turns of '{name}'; give whole numbers, 0 to {MOST:,}")
                try:
                    place = slice(None) if vertex is None else vertex
                    self.found[names[name].layer][timesteps.index(t), place] = number[..., None]
                except ValueError:
                    raise MappingError(
                        f"{where} gives {number.shape} turns of '{name}' for {table.vertices} vertices"
                    ) from None

        return record


Offset = Callable[[Mapping[str, np.ndarray], int], None]  # given the arrays of a program and the timestep


def offsets_of(program: Program, superstep: Superstep) -> list[Offset]:
    """What holds the operands of a superstep against its timestep, before its vertices run; each raises MappingError
    that names the first vertex whose operand holds another entry."""
    return [
        _offset(program, superstep, table, item)
        for table in superstep.tables
        for item in table.codelet.fields
        if item.entry_of and table.vertices
    ]


def _offset(program: Program, superstep: Superstep, table: VertexTable, item: Field) -> Offset:
    name, sequence = (table.operands[field] for field in (item.name, item.entry_of))
    held, variable = program.variables[name], program.variables[sequence]
    shift = now_shift(table.codelet.field(item.entry_of).box[0]) or 0
    boxes = boxes_of(table, item, held)
    vertices, places = _elements(boxes, held.shape)

    def require(arrays: Mapping[str, np.ndarray], t: int) -> None:
        entry = variable.entry(t, shift)
        values = arrays[name].reshape(-1)[places]
        if held.dtype[0] in "iu" and (values == entry).all():
            return
        first = int(np.argmax(values != entry))
        vertex = int(vertices[first])
        kind = "" if held.dtype[0] in "iu" else f" ({held.dtype}, which is no index)"
        raise MappingError(
            f"superstep '{superstep.name}', timestep {t}: {vertex_name(table, vertex)} takes the entry of '{sequence}' "
            f"that its field '{item.name}' says, and {describe_box(name, boxes[vertex])} holds {values[first]}{kind}; "
            f"the entry of timestep {t} is {entry}: was the counter set and counted before, and is it this sequence's?"
        )

    return require


def _elements(boxes: np.ndarray, shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """(vertex, flat index) int64 of every element of the boxes."""
    if len(shape) == 1 and bool((boxes[:, 0, 1] - boxes[:, 0, 0] == 1).all()):
        return np.arange(len(boxes)), boxes[:, 0, 0].copy()
    flat = [
        np.ravel_multi_index(np.ix_(*(np.arange(start, stop) for start, stop in box)), shape).reshape(-1)
        for box in boxes.tolist()
    ]
    return np.repeat(np.arange(len(flat)), [len(each) for each in flat]), np.concatenate(flat)
