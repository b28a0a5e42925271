"""The repeats of a program as parts of stages: what each call reads and writes, and slices that need no copying."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from mimdsim.functional.calls import Turn
from mimdsim.functional.moves import Move, moved_from, moved_to
from mimdsim.functional.shortcuts import Instead
from mimdsim.functional.stages import Lying, Part, staged
from mimdsim.functional.uses import Use, Uses
from mimdsim.functional.wide import over_turns
from mimdsim.program import Copy, Repeat, VertexTable
from mimdsim.program.codelet import now_shift

if TYPE_CHECKING:
    from mimdsim.functional.execute import Executor


def stages_of(executor: Executor, uses: Uses, repeat: Repeat, instead: Instead) -> tuple[str, Turn] | None:
    """The phase of a repeat of one phase without repeats in it, and all its turns as one call; None where there is
    nothing in it for many turns at once."""
    known = [use for use in uses.all if use.repeat is repeat]
    if any(not isinstance(use.item, Copy) and use.item.codelet.form != "table" for use in known):
        return None
    parts: list[Part] = []
    slices: list[tuple[Part, str, Lying]] = []
    for use in known:
        if (part := _part(executor, uses, use, instead)) is not None:
            parts.append(part)
            move = None if id(use.item) in instead.calls else moved_from(uses, use)
            if move is not None and (lying := _lying(executor, uses, move)) is not None:
                slices.append((part, move.variable, lying))
    sequences = frozenset[str]().union(*(_sequences(use.item) for use in known))
    elsewhere = instead.lying | dict(_taken(parts, slices))
    made = staged(parts, executor.arrays, sequences, repeat.turns_from, elsewhere)
    return None if made is None else (known[0].superstep.phase, made)


def _part(executor: Executor, uses: Uses, use: Use, instead: Instead) -> Part | None:
    """A table or a copy, or what stands in for it; None for nothing."""
    item = use.item
    if isinstance(item, Copy):
        fills = use.writes if item.target_shift is None else frozenset[str]()
        return Part(call=executor.prepare_copy(item), reads=use.reads, writes=use.writes, fills=fills)
    if id(item) not in instead.calls:
        call, heavy = executor.prepare(use.superstep, item), over_turns(item, executor.arrays, executor.share)
        stored = _stored(executor, uses, use)
        return Part(call=call, reads=use.reads, writes=use.writes, heavy=heavy, stored=stored)
    replaced = instead.calls[id(item)]
    if replaced is None:
        return None
    reads, writes = instead.uses[id(item)]
    fills = instead.fills.get(id(item), frozenset[str]())
    return Part(call=replaced, reads=reads, writes=writes, fills=fills, heavy=instead.heavy.get(id(item)))


def _sequences(item: VertexTable | Copy) -> set[str]:
    """Variables of which it takes a timestep."""
    if isinstance(item, Copy):
        shifts = (item.source, item.source_shift), (item.target, item.target_shift)
        return {name for name, shift in shifts if shift is not None}
    return {item.operands[each.name] for each in item.codelet.fields if now_shift(each.box[0]) is not None}


def _lying(executor: Executor, uses: Uses, move: Move) -> Lying | None:
    """Where a variable lies, if nothing in the repeat writes the sequence and nothing but the repeat uses the variable,
    which the move alone writes."""
    use, source, name = move.use, move.sequence, move.variable
    if uses.written_in(source, use.repeat) or name in uses.outside:
        return None
    if any(each.repeat is not use.repeat for each in uses.of[name]) or len(uses.written_in(name, use.repeat)) != 1:
        return None
    at, sequence = executor.taken(source, move.shift), executor.arrays[source]
    forward = not use.reverse and move.shift == 0 and uses.program.variables[source].entries == "timesteps"
    return Lying.forward(at, sequence) if forward else Lying(at=at)


def _stored(executor: Executor, uses: Uses, use: Use) -> tuple[str, np.ndarray] | None:
    """The variable and the sequence where a table moves the one to entry t of the other, t upwards, and nothing else in
    the repeat uses the sequence; None for any other table."""
    move = None if use.reverse else moved_to(uses, use)
    if move is None or move.shift or [each for each in uses.of[move.sequence] if each.repeat is use.repeat] != [use]:
        return None
    return move.variable, executor.arrays[move.sequence]


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
