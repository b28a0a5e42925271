"""The repeats of a program as parts of stages: what each call reads and writes, and slices that need no copying."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from mimdsim.functional.all_turns import AllTurns, all_turns, keep_entries
from mimdsim.functional.calls import Turn
from mimdsim.functional.moves import CopiedTurns, Move, StoredTurns, moved_from, moved_to
from mimdsim.functional.neurons import Chosen, Neurons, neurons_of
from mimdsim.functional.shortcuts import Instead
from mimdsim.functional.stages import Lying, Part, staged
from mimdsim.functional.uses import Use, Uses
from mimdsim.program import Copy, Repeat, VertexTable
from mimdsim.program.codelet import now_shift

if TYPE_CHECKING:
    from mimdsim.functional.execute import Executor


def stages_of(
    executor: Executor, uses: Uses, repeat: Repeat, instead: Instead, *, together: bool
) -> tuple[str, Turn] | None:
    """The phase of a repeat of one phase without repeats in it, and all its turns as one call; None where there is
    nothing in it for many turns at once. together: whether no phase ever runs without the others."""
    known = [use for use in uses.all if use.repeat is repeat]
    if any(not isinstance(use.item, Copy) and use.item.codelet.form != "table" for use in known):
        return None
    sequences = frozenset[str]().union(*(_sequences(use.item) for use in known))
    found = {id(use.item): instead.tables.get(id(use.item)) for use in known if together}
    possible = [number for number, each in found.items() if each is not None and each.adjoint is not None]
    while True:
        parts, lying = _parts(executor, uses, known, instead)
        made = {number: _at_once(executor, uses, instead, number, parts, lying) for number in possible}
        turns = staged(list(parts.values()), executor.arrays, sequences, repeat.turns_from, lying)
        lost = {number for number, together in made.items() if any(part.heavy is None for part in together)}
        if not lost:
            break
        possible = [number for number in possible if number not in lost]
    if turns is None:
        return None
    for part in parts.values():
        if isinstance(part.heavy, AllTurns):
            part.heavy.neurons.taken = True
            instead.unread.append(part.heavy.neurons)
        if isinstance(part.heavy, Neurons):
            keep_entries(uses, instead, part.heavy)
    return known[0].superstep.phase, turns


def _parts(
    executor: Executor, uses: Uses, known: list[Use], instead: Instead
) -> tuple[dict[int, Part], dict[str, Lying]]:
    """The parts of a repeat in order, by the id of their table or copy, and variables that lie elsewhere."""
    parts: dict[int, Part] = {}
    slices: list[_Slice] = []
    listing: dict[int, Use] = {}  # by the table that lists: the one that makes the potentials, made with it
    for use in known:
        if (listed := instead.chosen.get(id(use.item))) is not None and _neurons(executor, use, listed[1]) is not None:
            listing[listed[0]] = use
        elif (part := _part(executor, uses, use, instead, listing.get(id(use.item)))) is not None:
            parts[id(use.item)] = part
            if id(use.item) not in instead.tables and (found := _slice(executor, uses, use, part, slices)) is not None:
                slices.append(found)
    ordered = list(parts.values())
    lying = dict(_taken(ordered, slices))
    return {number: part for number, part in parts.items() if part in ordered}, lying


def _neurons(executor: Executor, use: Use, chosen: Chosen | None) -> Neurons | None:
    assert use.repeat is not None
    assert isinstance(use.item, VertexTable)
    return neurons_of(use.item, use.repeat.times, executor.arrays, executor.share, chosen)


def _part(executor: Executor, uses: Uses, use: Use, instead: Instead, potentials: Use | None) -> Part | None:
    """A table or a copy, or what stands in for it; None for nothing. potentials: the table that makes those that this
    one lists, to be made with it."""
    item = use.item
    if isinstance(item, Copy):
        part = Part(call=executor.prepare_copy(item), reads=use.reads, writes=use.writes)
        if item.target_shift is None:
            part.fills = use.writes
            if item.source_shift is None:
                last = executor.arrays[item.target]
                part.moves = CopiedTurns(reads=(item.source,), writes=(item.target,), last=last)
        return part
    if id(item) not in instead.tables:
        call, heavy = executor.prepare(use.superstep, item), _neurons(executor, use, None)
        part = Part(call=call, reads=use.reads, writes=use.writes, heavy=heavy, stored=_stored(executor, uses, use))
        part.fixed = item.codelet.count is None  # else its turns are recorded in each
        if part.stored is not None:
            name, sequence = part.stored
            part.reads = frozenset([name])  # to the timestep, whatever a variable says
            part.moves = StoredTurns(reads=(name,), sequence=sequence)
        return part
    given = instead.tables[id(item)]
    if given is None:
        return None
    if potentials is not None:
        assert isinstance(potentials.item, VertexTable)
        call = executor.prepare(potentials.superstep, potentials.item).then(given.call)
        _, chosen = instead.chosen[id(potentials.item)]
        heavy = _neurons(executor, potentials, chosen)
        reads, writes = given.reads | potentials.reads, given.writes | potentials.writes
        return Part(call=call, reads=reads, writes=writes, heavy=heavy)
    return Part(call=given.call, reads=given.reads, writes=given.writes, fills=given.fills, heavy=given.heavy)


def _at_once(
    executor: Executor, uses: Uses, instead: Instead, number: int, parts: dict[int, Part], lying: dict[str, Lying]
) -> list[Part]:
    """Make the adjoint of a table for all turns at once, if that can be done; that part and those that follow it."""
    given = instead.tables[number]
    assert given is not None
    assert given.adjoint is not None
    made = all_turns(uses, executor, instead, given.adjoint, lying)
    if made is None:
        return []
    q, own, following = given.adjoint.names[0], parts[number], [follower for follower, _ in made.followers]
    own.heavy = made
    nothing = executor.arrays[q][:0]
    lying[q] = Lying(at=lambda _t: nothing, turns=lambda _t, _count: nothing)  # followers are given it in strips
    together = [own]
    for each, part in list(parts.items()):
        if part is own or q not in part.reads:
            continue
        if part.heavy in following:
            together.append(part)
        else:
            del parts[each]  # it would keep what it reads turn by turn
    return together


def _sequences(item: VertexTable | Copy) -> set[str]:
    """Variables of which it takes a timestep."""
    if isinstance(item, Copy):
        shifts = (item.source, item.source_shift), (item.target, item.target_shift)
        return {name for name, shift in shifts if shift is not None}
    return {item.operands[each.name] for each in item.codelet.fields if now_shift(each.box[0]) is not None}


@dataclass(frozen=True, kw_only=True, eq=False)
class _Slice:
    """A part that moves a timestep to a variable, and where that lies; source: the variable that it is copied from, if
    it does not come from the sequence itself."""

    part: Part
    variable: str
    lying: Lying
    source: str | None = None


def _slice(executor: Executor, uses: Uses, use: Use, part: Part, before: list[_Slice]) -> _Slice | None:
    """A timestep of a sequence, or a copy of one that comes `before`; None for any other part."""
    move = moved_from(uses, use)
    if move is not None:
        lying = _lying(executor, uses, move)
        return None if lying is None else _Slice(part=part, variable=move.variable, lying=lying)
    item, variables = use.item, uses.program.variables
    if part.moves is None or not isinstance(item, Copy) or not _alone(uses, use, item.target):
        return None
    if variables[item.source].dtype != variables[item.target].dtype:
        return None
    found = next((each.lying for each in before if each.variable == item.source), None)
    return None if found is None else _Slice(part=part, variable=item.target, lying=found, source=item.source)


def _alone(uses: Uses, use: Use, name: str) -> bool:
    """Whether nothing but the repeat uses a variable, and nothing but `use` writes it."""
    if name in uses.outside or any(each.repeat is not use.repeat for each in uses.of[name]):
        return False
    return len(uses.written_in(name, use.repeat)) == 1


def _lying(executor: Executor, uses: Uses, move: Move) -> Lying | None:
    """Where a variable lies, if nothing in the repeat writes the sequence and the variable is the move's alone."""
    use, source, name = move.use, move.sequence, move.variable
    if uses.written_in(source, use.repeat) or not _alone(uses, use, name):
        return None
    at, sequence = executor.taken(source, move.shift), executor.arrays[source]
    if uses.program.variables[source].entries != "timesteps":
        return Lying(at=at)
    if _backwards(use):
        return Lying.backward(at, sequence, move.shift)
    return Lying.forward(at, sequence) if move.shift == 0 else Lying(at=at)


def _stored(executor: Executor, uses: Uses, use: Use) -> tuple[str, np.ndarray] | None:
    """The variable and the sequence where a table moves the one to entry t of the other, t upwards, and nothing else in
    the repeat uses the sequence; None for any other table."""
    move = None if _backwards(use) else moved_to(uses, use)
    if move is None or move.shift or [each for each in uses.of[move.sequence] if each.repeat is use.repeat] != [use]:
        return None
    return move.variable, executor.arrays[move.sequence]


def _backwards(use: Use) -> bool:
    """Whether the turns of its own repeat go from the last to the first, whatever those of one around it do."""
    return use.repeat is not None and use.repeat.reverse


def _taken(parts: list[Part], slices: list[_Slice]) -> Iterator[tuple[str, Lying]]:
    """Variables whose readers, all after the move, can read the sequence in their place; the moves are then left
    out."""
    taken: set[str | None] = {None}
    for each in slices:
        readers = [part for part in parts if each.variable in part.reads]
        early = any(parts.index(part) < parts.index(each.part) for part in readers)
        if each.source not in taken or early or (each.lying.turns is None and any(part.heavy for part in readers)):
            continue
        for part in readers:
            part.reads -= {each.variable}
        parts.remove(each.part)
        taken.add(each.variable)
        yield each.variable, each.lying
