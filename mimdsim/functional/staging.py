"""The repeats of a program as parts of stages: what each call reads and writes, and slices that need no copying."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from mimdsim.functional.calls import Turn
from mimdsim.functional.shortcuts import Instead
from mimdsim.functional.stages import Lying, Part, staged
from mimdsim.functional.uses import Use, Uses
from mimdsim.functional.wide import over_turns
from mimdsim.numerics.arrays import dense
from mimdsim.program import Copy, Repeat, VertexTable
from mimdsim.program.codelet import now_shift
from mimdsim.program.rows import boxes_of

if TYPE_CHECKING:
    from mimdsim.functional.execute import Executor

MOVES = (dense.move_rows, dense.move_columns, dense.move_slots, dense.move_boxes)


def stages_of(executor: Executor, uses: Uses, repeat: Repeat, instead: Instead) -> tuple[str, Turn] | None:
    """The phase of a repeat of one phase without repeats in it, and all its turns as one call; None where there is
    nothing in it for many turns at once."""
    known = [use for use in uses.all if use.repeat is repeat]
    parts: list[Part] = []
    sequences: set[str] = set()
    slices: list[tuple[Part, str, Lying]] = []
    for use in known:
        item = use.item
        if isinstance(item, Copy):
            sequences |= {item.source} if item.source_shift is not None else set()
            sequences |= {item.target} if item.target_shift is not None else set()
            whole = use.writes if item.target_shift is None else frozenset[str]()
            call = executor.prepare_copy(item)
            parts.append(Part(call=call, reads=use.reads, writes=use.writes, fills=whole))
            if item.target_shift is None and item.source_shift is not None:
                slices += _slice(executor, uses, use, (item.source, item.source_shift, item.target), parts[-1])
            continue
        if item.codelet.form != "table":
            return None
        sequences |= {item.operands[each.name] for each in item.codelet.fields if now_shift(each.box[0]) is not None}
        if id(item) not in instead.calls:
            heavy = over_turns(item, executor.arrays, executor.share)
            call = executor.prepare(use.superstep, item)
            parts.append(Part(call=call, reads=use.reads, writes=use.writes, heavy=heavy))
            if (moved := _moved(uses, item)) is not None:
                slices += _slice(executor, uses, use, moved, parts[-1])
            parts[-1].stored = _stored(executor, uses, use, item)
        elif (replaced := instead.calls[id(item)]) is not None:
            reads, writes = instead.uses[id(item)]
            fills = instead.fills.get(id(item), frozenset[str]())
            parts.append(
                Part(call=replaced, reads=reads, writes=writes, fills=fills, heavy=instead.heavy.get(id(item)))
            )
    elsewhere = instead.lying | dict(_taken(parts, slices))
    made = staged(parts, executor.arrays, frozenset(sequences), repeat.turns_from, elsewhere)
    return None if made is None else (known[0].superstep.phase, made)


def _moved(uses: Uses, table: VertexTable) -> tuple[str, int, str] | None:
    """The sequence, the shift and the variable of a table that moves a timestep of the one to all of the other; None
    for any other table."""
    if table.codelet.compute not in MOVES:
        return None
    source, target = table.codelet.fields[:2]
    shift, name = now_shift(source.box[0]), table.operands[target.name]
    if shift is None:
        return None
    variable = uses.program.variables[name]
    boxes = boxes_of(table, target, variable)
    moved = int((boxes[..., 1] - boxes[..., 0]).prod(axis=1).sum())  # vertices write each number once
    return (table.operands[source.name], shift, name) if moved == np.prod(variable.shape) else None


def _slice(
    executor: Executor, uses: Uses, use: Use, moved: tuple[str, int, str], part: Part
) -> list[tuple[Part, str, Lying]]:
    """The variable that a timestep of a sequence is moved to, and where it lies, if nothing in the repeat writes the
    sequence and nothing but the repeat uses the variable, which this alone writes."""
    source, shift, name = moved
    if uses.written_in(source, use.repeat) or name in uses.outside:
        return []
    if executor.arrays[name].dtype != executor.arrays[source].dtype:
        return []
    if any(each.repeat is not use.repeat for each in uses.of[name]) or len(uses.written_in(name, use.repeat)) != 1:
        return []
    at, sequence = executor.taken(source, shift), executor.arrays[source]
    forward = not use.reverse and shift == 0 and uses.program.variables[source].entries == "timesteps"
    return [(part, name, Lying.forward(at, sequence) if forward else Lying(at=at))]


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


def _taken(parts: list[Part], slices: list[tuple[Part, str, Lying]]) -> Iterator[tuple[str, Lying]]:
    """Variables whose readers, all after the move, can read the sequence in their place; the moves are then left
    out."""
    for moved, target, lying in slices:
        readers = [part for part in parts if target in part.reads]
        if any(parts.index(part) < parts.index(moved) or (part.heavy and lying.turns is None) for part in readers):
            continue
        for part in readers:
            part.reads -= {target}
        parts.remove(moved)
        yield target, lying
