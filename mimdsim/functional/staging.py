"""The repeats of a program as parts of stages: what each call reads and writes, and slices that need no copying."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from mimdsim.functional.shortcuts import Call, Instead
from mimdsim.functional.stages import Part, staged
from mimdsim.functional.uses import Use, Uses
from mimdsim.functional.wide import over_turns
from mimdsim.numerics.arrays import dense
from mimdsim.program import Copy, Repeat, VertexTable
from mimdsim.program.codelet import now_shift
from mimdsim.program.rows import boxes_of

if TYPE_CHECKING:
    from mimdsim.functional.execute import Executor

MOVES = (dense.move_rows, dense.move_columns, dense.move_slots, dense.move_boxes)


def stages_of(executor: Executor, uses: Uses, repeat: Repeat, instead: Instead) -> tuple[str, Call] | None:
    """The phase of a repeat of one phase without repeats in it, and all its turns as one call; None where there is
    nothing in it for many turns at once."""
    known = [use for use in uses.all if use.repeat is repeat]
    parts: list[Part] = []
    sequences: set[str] = set()
    slices: list[tuple[Part, str, Callable[[int], np.ndarray]]] = []
    for use in known:
        item = use.item
        if isinstance(item, Copy):
            sequences |= {item.source} if item.source_shift is not None else set()
            sequences |= {item.target} if item.target_shift is not None else set()
            whole = use.writes if item.target_shift is None else frozenset[str]()
            parts.append(Part(call=executor.prepare_copy(item), reads=use.reads, writes=use.writes, fills=whole))
            continue
        if item.codelet.form != "table":
            return None
        sequences |= {item.operands[each.name] for each in item.codelet.fields if now_shift(each.box[0]) is not None}
        if id(item) not in instead.calls:
            heavy = over_turns(item, executor.arrays, executor.share)
            call = executor.prepare(use.superstep, item)
            parts.append(Part(call=call, reads=use.reads, writes=use.writes, heavy=heavy))
            if (shift := _slice_of(uses, use, item)) is not None:
                source, target = (item.operands[each.name] for each in item.codelet.fields[:2])
                slices.append((parts[-1], target, executor.taken(source, shift)))
            parts[-1].stored = _stored(executor, uses, use, item)
        elif (replaced := instead.calls[id(item)]) is not None:
            reads, writes = instead.uses[id(item)]
            fills = instead.fills.get(id(item), frozenset[str]())
            parts.append(
                Part(call=replaced, reads=reads, writes=writes, fills=fills, heavy=instead.heavy.get(id(item)))
            )
    for moved, target, taken in slices:
        _take_where_it_lies(parts, moved, target, taken)
    made = staged(parts, executor.arrays, frozenset(sequences), repeat.turns_from)
    return None if made is None else (known[0].superstep.phase, made)


def _slice_of(uses: Uses, use: Use, table: VertexTable) -> int | None:
    """The shift of a table that moves a timestep of a sequence, which nothing in the repeat writes, into a whole
    variable that nothing but the repeat uses; None for any other table."""
    if table.codelet.compute not in MOVES:
        return None
    source, target = table.codelet.fields[:2]
    shift, name = now_shift(source.box[0]), table.operands[target.name]
    variable = uses.program.variables[name]
    if shift is None or uses.written_in(table.operands[source.name], use.repeat) or name in uses.outside:
        return None
    if variable.dtype != uses.program.variables[table.operands[source.name]].dtype:
        return None
    if any(each.repeat is not use.repeat for each in uses.of[name]) or len(uses.written_in(name, use.repeat)) != 1:
        return None
    boxes = boxes_of(table, target, variable)
    moved = int((boxes[..., 1] - boxes[..., 0]).prod(axis=1).sum())  # vertices write each number once
    return shift if moved == np.prod(variable.shape) else None


def _stored(executor: Executor, uses: Uses, use: Use, table: VertexTable) -> tuple[str, np.ndarray] | None:
    """The variable and the sequence where a table moves all of the one to entry t of the other, t upwards, and nothing
    else in the repeat uses the sequence; None for any other table."""
    if table.codelet.compute not in MOVES or use.reverse:
        return None
    source, target = table.codelet.fields[:2]
    name, sequence = table.operands[source.name], table.operands[target.name]
    variable, held = executor.arrays[name], executor.arrays[sequence]
    if now_shift(source.box[0]) is not None or now_shift(target.box[0]) != 0 or variable.dtype != held.dtype:
        return None
    if uses.program.variables[sequence].entries != "timesteps" or variable.shape != held.shape[1:]:
        return None
    if [each for each in uses.of[sequence] if each.repeat is use.repeat] != [use]:
        return None
    boxes = boxes_of(table, source, uses.program.variables[name])
    moved = int((boxes[..., 1] - boxes[..., 0]).prod(axis=1).sum())
    return (name, held) if moved == variable.size else None


def _take_where_it_lies(parts: list[Part], moved: Part, target: str, taken: Callable[[int], np.ndarray]) -> None:
    """Let all that reads a slice after it was taken read the sequence, in place of the slice."""
    readers = [part for part in parts if target in part.reads]
    if any(part.heavy or parts.index(part) < parts.index(moved) for part in readers):
        return
    for part in readers:
        part.taken.append((target, taken))
        part.reads -= {target}
    parts.remove(moved)
