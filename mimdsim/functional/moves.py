"""Tables and copies that only move a timestep between a variable and a sequence."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mimdsim.functional.uses import Use, Uses
from mimdsim.numerics.arrays import dense
from mimdsim.program import Copy, VertexTable
from mimdsim.program.codelet import Field, now_shift
from mimdsim.program.rows import boxes_of

MOVES = (dense.move_rows, dense.move_columns, dense.move_slots, dense.move_boxes)


@dataclass(frozen=True, kw_only=True, eq=False)
class Move:
    """All of a variable, and the timestep of a sequence ("@t" and a shift) that it is moved from or to."""

    use: Use
    variable: str
    sequence: str
    shift: int


@dataclass(kw_only=True, eq=False)
class CopiedTurns:
    """A variable copied to another, `last`, for many turns at once."""

    reads: tuple[str, ...]
    writes: tuple[str, ...]
    last: np.ndarray
    at_once: bool = False

    def before(self, _t: int) -> None:
        """Nothing is the same in all turns."""

    def __call__(self, read: dict[str, np.ndarray], made: dict[str, np.ndarray]) -> None:
        target, source = made[self.writes[0]], read[self.reads[0]]
        target[: len(source)], target[len(source) :] = source, 0
        self.last[...] = target[-1]


@dataclass(kw_only=True, eq=False)
class StoredTurns:
    """A variable moved to a sequence, timestep after timestep, for many turns at once."""

    reads: tuple[str, ...]
    sequence: np.ndarray
    writes: tuple[str, ...] = ()  # that others read
    at_once: bool = False
    _next: int = 0

    def before(self, t: int) -> None:
        self._next = t

    def __call__(self, read: dict[str, np.ndarray], made: dict[str, np.ndarray]) -> None:
        versions = read[self.reads[0]]
        self.sequence[self._next : self._next + len(versions)] = versions
        self._next += len(versions)


def moved_from(uses: Uses, use: Use) -> Move | None:
    """A move of a timestep of a sequence to a variable of the same type; None for anything else."""
    item = use.item
    if isinstance(item, Copy):
        source, name, shift = item.source, item.target, item.source_shift
        whole = item.target_shift is None
    else:
        if item.codelet.compute not in MOVES:
            return None
        read, written = item.codelet.fields[:2]
        source, name, shift = item.operands[read.name], item.operands[written.name], now_shift(read.box[0])
        whole = now_shift(written.box[0]) is None and _whole(uses, item, written)
    variables = uses.program.variables
    if shift is None or not whole or variables[source].dtype != variables[name].dtype:
        return None
    if variables[source].shape[1:] != variables[name].shape:
        return None
    return Move(use=use, variable=name, sequence=source, shift=shift)


def moved_to(uses: Uses, use: Use) -> Move | None:
    """A move by a table of a variable to a timestep of a sequence of the same type; None for anything else."""
    item, variables = use.item, uses.program.variables
    if isinstance(item, Copy) or item.codelet.compute not in MOVES:
        return None
    read, written = item.codelet.fields[:2]
    name, target, shift = item.operands[read.name], item.operands[written.name], now_shift(written.box[0])
    if shift is None or now_shift(read.box[0]) is not None or variables[name].dtype != variables[target].dtype:
        return None
    if variables[target].entries != "timesteps" or variables[name].shape != variables[target].shape[1:]:
        return None
    return Move(use=use, variable=name, sequence=target, shift=shift) if _whole(uses, item, read) else None


def _whole(uses: Uses, table: VertexTable, field: Field) -> bool:
    """Whether vertices, which take each number once, take all of a variable."""
    variable = uses.program.variables[table.operands[field.name]]
    boxes = boxes_of(table, field, variable)
    return int((boxes[..., 1] - boxes[..., 0]).prod(axis=1).sum()) == int(np.prod(variable.shape))
