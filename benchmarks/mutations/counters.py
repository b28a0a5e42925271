"""Random changes of what counts the entries of sequences, and of who reads which counter."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from mimdsim.graph.names import before
from mimdsim.program import Program, Superstep, VertexTable
from mutations.operators import (
    Draw,
    Mutant,
    Operator,
    any_of,
    bodies_of,
    called,
    planned,
    steps_of,
    with_body,
    with_table,
)

OFFSET = "timestep"  # the field of a slice or update that says which entry it takes


def takes_entry(table: VertexTable) -> bool:
    """Whether a device takes an entry of a sequence at what an operand holds."""
    return table.codelet.name.startswith("Dynamic") and OFFSET in table.operands


def counters_of(program: Program) -> set[str]:
    """What slices and updates read as their offset, and what these offsets are made of."""
    tables = [table for step in steps_of(program) for table in step.tables]
    found = {table.operands[OFFSET] for table in tables if takes_entry(table)}
    made_of = {table.operands["previous"]: table.operands[OFFSET] for table in tables if "previous" in table.operands}
    return found | {source for made, source in made_of.items() if made in found}


def counting(program: Program) -> list[tuple[Superstep, VertexTable]]:
    """The tables that set, advance or copy counters."""
    counters = counters_of(program)
    return [
        (step, table)
        for step in steps_of(program)
        for table in step.tables
        if table.vertices and {table.operands[item.name] for item in table.codelet.fields if item.writes} <= counters
    ]


def _places(program: Program, step: Superstep, table: VertexTable) -> tuple[str, ...]:
    """What may be named: the superstep, its counters and what is made of them, and who reads these."""
    names = {table.operands[item.name] for item in table.codelet.fields}
    names |= {before(name) for name in names}
    readers = [each.name for each in steps_of(program) for one in each.tables if names & {*one.operands.values()}]
    return (step.name, *sorted(names), *readers)


def counter_dropped(program: Program, draw: Draw) -> Mutant | None:
    """A counter is not set, advanced or copied: on any tile, or on some."""
    step, table = any_of(draw, counting(program)) or (None, None)
    if step is None or table is None:
        return None
    rest = table.some(np.flatnonzero(draw.random(table.vertices) < 0.5)) if draw.random() < 0.3 else None
    made = with_table(program, step, table, rest)
    text = f"{called(step, table)} left out{'' if rest is None else ' on some tiles'}"
    return Mutant(program=made, text=text, places=_places(program, step, table))


def counter_moved(program: Program, draw: Draw) -> Mutant | None:
    """A counter is set, advanced or copied at another place of its body: before or behind those who read it."""
    step, table = any_of(draw, counting(program)) or (None, None)
    if step is None or table is None:
        return None
    body, place = next((body, place) for body, place in bodies_of(program.body) if body[place] is step)
    alone = replace(step, tables=(table,), copies=(), exchange=step.exchange if step.tables == (table,) else None)
    others = tuple(one for one in step.tables if one is not table)
    left = (replace(step, tables=others),) if others or step.copies else ()
    rest = (*body[:place], *left, *body[place + 1 :])
    to = any_of(draw, [each for each in range(len(rest) + 1) if each != place])
    if to is None:
        return None
    made = replace(program, body=with_body(program.body, body, (*rest[:to], alone, *rest[to:])))
    text = f"{called(step, table)} moved from place {place} to {to} of {len(rest)}"
    return Mutant(program=planned(made, draw), text=text, places=_places(program, step, table))


def counter_swapped(program: Program, draw: Draw) -> Mutant | None:
    """A slice, an update or a copy of a counter that reads another counter than its own."""
    counters = counters_of(program)
    readers = [
        (step, table, item.name)
        for step in steps_of(program)
        for table in step.tables
        for item in table.codelet.fields
        if table.vertices and item.access == "read" and table.operands[item.name] in counters
    ]
    step, table, field = any_of(draw, readers) or (None, None, "")
    if step is None or table is None:
        return None
    old = table.operands[field]
    shape = program.variables[old].shape
    whole = [name for name, each in program.variables.items() if each.shape == shape and each.dtype[0] in "iu"]
    other = any_of(draw, [name for name in whole if name != old])
    if other is None:
        return None
    made = with_table(program, step, table, replace(table, operands=table.operands | {field: other}))
    text = f"{called(step, table)}: '{field}' is '{other}', was '{old}'"
    return Mutant(program=made, text=text, places=(*_places(program, step, table), other))


def counter_changed(program: Program, draw: Draw) -> Mutant | None:
    """A counter is set to another number, advanced by another, or advanced twice."""
    step, table = any_of(draw, counting(program)) or (None, None)
    if step is None or table is None:
        return None
    places = _places(program, step, table)
    if draw.random() < 0.2:
        body, place = next((body, place) for body, place in bodies_of(program.body) if body[place] is step)
        twice = (*body[: place + 1], replace(step), *body[place + 1 :])
        made = replace(program, body=with_body(program.body, body, twice))
        return Mutant(program=made, text=f"superstep '{step.name}' twice", places=places)
    ((name, old),) = table.constants.items()
    assert isinstance(old, int)
    new = any_of(draw, [value for value in (old + 1, old - 1, -old, 0, 2 * old) if value != old])
    made = with_table(program, step, table, replace(table, constants={name: new}))
    return Mutant(program=made, text=f"{called(step, table)}: '{name}' {new}, was {old}", places=places)


COUNTERS: dict[str, Operator] = {
    "counter dropped": counter_dropped,
    "counter moved": counter_moved,
    "counter swapped": counter_swapped,
    "counter changed": counter_changed,
}
