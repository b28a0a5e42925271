"""Operands that say which entry of a sequence a vertex takes, held against the entry that a run takes.

An engine takes the entry of the timestep (`Variable.entry`); a device takes the one that the operand holds. A counter
that is not set, not counted or another's changes no value of a run, and every value on the device.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from mimdsim.base.errors import MappingError
from mimdsim.program import Program, Superstep, VertexTable
from mimdsim.program.codelet import Field, now_shift
from mimdsim.program.diagnostics import vertex_name
from mimdsim.program.vertex_boxes import boxes_of, describe_box

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
