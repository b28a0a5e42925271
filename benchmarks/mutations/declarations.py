"""Random changes of what a program declares: extents, exchanges, variables, inputs and outputs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from mimdsim.program import (
    Delivery,
    Hits,
    Listed,
    Program,
    Spikes,
    SpikesOver,
    Superstep,
    TileMapping,
    VertexTable,
    Within,
)
from mimdsim.program.loops import RECORDED, Column, Derived, Length, Size
from mimdsim.program.records import EXCHANGE_COLUMNS, Exchange
from mutations.counters import COUNTERS
from mutations.operators import (
    Draw,
    Mutant,
    Operator,
    across_repeat,
    any_of,
    called,
    changed_constant,
    dropped_superstep,
    dropped_vertex,
    dropped_vertices,
    duplicated_vertex,
    field_mode,
    missing_zero,
    moved_vertex,
    off_by_one_box,
    other_operand,
    planned,
    repeat_changed,
    steps_of,
    swapped_boxes,
    swapped_supersteps,
    table_of,
    with_step,
    with_table,
    wrong_shift,
)

# ---- extents and costs


def wrong_extent(program: Program, draw: Draw) -> Mutant | None:
    """An extent given by the table off by one, zero or twice what it is."""

    def counted(table: VertexTable) -> list[str]:
        return [name for name, each in table.extents.items() if not isinstance(each, RECORDED)]

    step, table = table_of(program, draw, lambda table: bool(counted(table)))
    if table is None:
        return None
    name = any_of(draw, counted(table))
    kind = any_of(draw, ["+1", "-1", "zero", "twice"])
    old = np.asarray(table.extents[name])
    new = {"+1": old + 1, "-1": np.maximum(old - 1, 0), "zero": 0 * old, "twice": 2 * old}[kind]
    made = with_table(program, step, table, replace(table, extents=table.extents | {name: new}))
    return Mutant(program=made, text=f"{called(step, table)}: extent '{name}' {kind}", places=(step.name,))


def wrong_recorded_extent(program: Program, draw: Draw) -> Mutant | None:
    """Another layer, timestep, kind or number of times of an extent that follows recorded spikes."""

    def recorded(table: VertexTable) -> list[str]:
        return [name for name, each in table.extents.items() if isinstance(each, RECORDED)]

    step, table = table_of(program, draw, lambda table: bool(recorded(table)))
    if table is None:
        return None
    name = any_of(draw, recorded(table))
    old: Any = table.extents[name]
    new: list[Any] = [replace(old, layer=layer) for layer in program.recorded if layer != old.layer]
    new.append(replace(old, shift=-1 if old.shift == 0 else 0))
    if isinstance(old, Spikes):
        new.append(Listed(layer=old.layer, shift=old.shift))
    if isinstance(old, Listed):
        new.append(Spikes(layer=old.layer, shift=old.shift))
    if isinstance(old, Hits):
        new += [replace(old, which=which) for which in ("listed", "spikes", "gradient") if which != old.which]
    if isinstance(old, Within):
        new.append(Listed(layer=old.layer, shift=old.shift))
    if isinstance(old, SpikesOver):
        new.append(np.zeros(table.vertices, np.int64))
    changed = any_of(draw, new)
    made = with_table(program, step, table, replace(table, extents=table.extents | {name: changed}))
    return Mutant(
        program=made, text=f"{called(step, table)}: extent '{name}' {changed}, was {old}", places=(step.name,)
    )


def declared_extent(program: Program, draw: Draw) -> Mutant | None:
    """What a codelet says an extent follows from: another axis, field or column, or another number a turn."""
    step, table = table_of(program, draw, lambda table: any(_follows(table)))
    if table is None:
        return None
    codelet = table.codelet
    name = any_of(draw, _follows(table))
    old: Any = codelet.extents[name]
    new: list[Any] = [replace(old, per=2 * old.per)]
    new += [Column(each) for each in codelet.columns if old != Column(each)]
    for item in codelet.fields:
        new += [Size(item.name)] if old != Size(item.name) else []
        axes = [axis for axis, entry in enumerate(item.box) if not entry.startswith("@")]
        new += [Length(item.name, axis) for axis in axes if old != Length(item.name, axis)]
    changed = any_of(draw, new)
    wrong = replace(codelet, extents={**codelet.extents, name: changed})
    made = with_table(program, step, table, table.with_codelet(wrong))
    return Mutant(program=made, text=f"{called(step, table)}: '{name}' {changed}, was {old}", places=(step.name,))


def _follows(table: VertexTable) -> list[str]:
    return [name for name, each in table.codelet.extents.items() if isinstance(each, Derived)]


def one_row_flipped(program: Program, draw: Draw) -> Mutant | None:
    """Whether a field's pieces are arranged into a row; the exchange planned for it."""
    step, table = table_of(program, draw, lambda table: any(item.one_row for item in table.codelet.fields))
    if table is None:
        return None
    item = any_of(draw, [item for item in table.codelet.fields if item.one_row])
    fields = tuple(replace(each, one_row=False) if each is item else each for each in table.codelet.fields)
    made = with_table(program, step, table, table.with_codelet(replace(table.codelet, fields=fields)))
    return Mutant(program=made, text=f"{called(step, table)}: '{item.name}' no row", places=(step.name,))


# ---- exchanges


def _exchanging(program: Program, draw: Draw) -> tuple[Superstep, Exchange] | None:
    step = any_of(draw, [step for step in steps_of(program) if step.exchange is not None and step.exchange.deliveries])
    return None if step is None else (step, step.exchange)


def _delivered(program: Program, step: Superstep, deliveries: tuple[Delivery, ...]) -> Program:
    assert step.exchange is not None
    return with_step(program, step, replace(step, exchange=replace(step.exchange, deliveries=deliveries)))


def changed_delivery(program: Program, draw: Draw) -> Mutant | None:
    """A part dropped, sent twice, to another tile, cut short, of another place or of another variable."""
    found = _exchanging(program, draw)
    if found is None:
        return None
    step, exchange = found
    chosen = int(draw.integers(len(exchange.deliveries)))
    old = exchange.deliveries[chosen]
    row = int(draw.integers(len(old.tiles)))
    kind = any_of(draw, ["dropped", "dropped", "twice", "redirected", "redirected", "shortened", "moved", "other"])
    tiles, boxes, name = old.tiles.copy(), old.boxes.copy(), old.variable
    if kind in ("dropped", "twice"):
        rows = np.delete(np.arange(len(tiles)), row) if kind == "dropped" else np.append(np.arange(len(tiles)), row)
        tiles, boxes = tiles[rows], boxes[rows]
    elif kind == "redirected":
        tiles[row] = any_of(draw, [(tiles[row] + draw.integers(1, program.tiles)) % program.tiles, 9999])
    elif kind == "shortened":
        boxes[row, -1, 1] -= 1
    elif kind == "moved":
        boxes[row, 0] += 1
    else:
        name = any_of(draw, [*program.variables, "nowhere"])
    new = Delivery(variable=name, tiles=tiles, boxes=boxes)
    made = _delivered(program, step, (*exchange.deliveries[:chosen], new, *exchange.deliveries[chosen + 1 :]))
    text = f"superstep '{step.name}': delivery {row} of '{old.variable}' {kind}"
    return Mutant(program=made, text=text, places=(step.name,))


def altered_tallies(program: Program, draw: Draw) -> Mutant | None:
    """Bytes or pieces of an exchange zero, half or twice what they are, at one tile or at all."""
    found = _exchanging(program, draw)
    if found is None:
        return None
    step, exchange = found
    name = any_of(draw, [name for name in EXCHANGE_COLUMNS if exchange.column(name).any()])
    columns = exchange.columns.copy()
    row = EXCHANGE_COLUMNS.index(name)
    at: Any = slice(None) if draw.random() < 0.5 else any_of(draw, np.flatnonzero(columns[row]))
    kind = any_of(draw, ["zero", "half", "twice", "one more"])
    old = columns[row, at]
    columns[row, at] = {"zero": 0 * old, "half": old // 2, "twice": 2 * old, "one more": old + 4}[kind]
    made = with_step(program, step, replace(step, exchange=replace(exchange, columns=columns)))
    return Mutant(program=made, text=f"superstep '{step.name}': {name} {kind}", places=(step.name,))


def unplanned_exchange(program: Program, draw: Draw) -> Mutant | None:
    """An exchange taken away."""
    found = _exchanging(program, draw)
    if found is None:
        return None
    step, _ = found
    made = with_step(program, step, replace(step, exchange=None))
    return Mutant(program=made, text=f"superstep '{step.name}': exchange taken away", places=(step.name,))


def changed_copy(program: Program, draw: Draw) -> Mutant | None:
    """A copy left out, from or to another variable of the shape, or at another timestep."""
    step = any_of(draw, [step for step in steps_of(program) if step.copies])
    if step is None:
        return None
    copy = any_of(draw, step.copies)
    new: list[Any] = [None]
    for side in ("source", "target"):
        name = getattr(copy, side)
        alike = [each for each in program.variables.values() if each.shape == program.variables[name].shape]
        new += [replace(copy, **{side: each.name}) for each in alike if each.name != name]
        if getattr(copy, f"{side}_shift") is not None:
            new.append(replace(copy, **{f"{side}_shift": getattr(copy, f"{side}_shift") - 1}))
    chosen = any_of(draw, new)
    copies = tuple(chosen if each is copy else each for each in step.copies if each is not copy or chosen is not None)
    made = planned(with_step(program, step, replace(step, copies=copies)), draw)
    text = f"superstep '{step.name}': {copy} now {chosen}"
    return Mutant(program=made, text=text, places=(step.name, copy.target))


# ---- variables, inputs and outputs


def _with_variable(program: Program, name: str, **changes: Any) -> Program:
    return replace(program, variables=program.variables | {name: replace(program.variables[name], **changes)})


def _users(program: Program, name: str) -> tuple[str, ...]:
    return tuple(
        step.name
        for step in steps_of(program)
        if any(name in table.operands.values() for table in step.tables)
        or any(name in (copy.source, copy.target) for copy in step.copies)
    )


def moved_elements(program: Program, draw: Draw) -> Mutant | None:
    """An interval of a mapping on another tile, left out, or grown over what is not there."""
    spread = [each for each in program.variables.values() if len(each.mapping.starts)]
    variable = any_of(draw, spread)
    mapping = variable.mapping
    which = int(draw.integers(len(mapping.tiles)))
    kind = any_of(draw, ["moved", "moved", "moved edge", "gap", "beyond"])
    tiles, starts, stops = mapping.tiles.copy(), mapping.starts.copy(), mapping.stops.copy()
    if kind == "moved":
        tiles[which] = (tiles[which] + draw.integers(1, program.tiles)) % program.tiles
    elif kind == "gap":
        stops[which] -= 1
    elif kind == "beyond":
        stops[-1] += 1
    elif len(tiles) > 1:
        which = max(which, 1)
        starts[which] += 1
        stops[which - 1] += 1
    try:
        made = _with_variable(
            program, variable.name, mapping=TileMapping(axis=mapping.axis, tiles=tiles, starts=starts, stops=stops)
        )
    except ValueError:  # an interval of one element has no edge to move
        return None
    made = planned(made, draw)
    text = f"mapping of '{variable.name}': interval {which} {kind}"
    return Mutant(program=made, text=text, places=(variable.name, *_users(program, variable.name)))


def wrong_type(program: Program, draw: Draw) -> Mutant | None:
    """Another dtype, or other bytes in memory."""
    given = () if program.layers else program.inputs.values()  # of a kernel its author alone knows what they are
    variable = any_of(draw, [each for each in program.variables.values() if each.name not in given])
    if variable is None:
        return None
    if draw.random() < 0.5:
        kinds = (
            ["float32", "float16", "float64", "int32"] if variable.dtype[0] == "f" else ["uint8", "int64", "float32"]
        )
        dtype = any_of(draw, [kind for kind in kinds if kind != variable.dtype])
        made, text = _with_variable(program, variable.name, dtype=dtype), dtype
    else:
        size = any_of(draw, [size for size in (1, 2, 4, 8) if size != variable.item_bytes])
        made, text = _with_variable(program, variable.name, stored_bytes=size), f"{size} bytes"
    text = f"variable '{variable.name}': {text}, was {variable.dtype} of {variable.item_bytes} bytes"
    return Mutant(program=made, text=text, places=(variable.name, *_users(program, variable.name)))


def changed_values(program: Program, draw: Draw) -> Mutant | None:
    """What a variable is loaded with: another number, or nothing; or loaded with what it is not."""
    loaded = [each for each in program.variables.values() if each.values is not None]
    variable = any_of(draw, loaded)
    if variable is None:
        return None
    values = None
    if draw.random() < 0.7 and variable.values.size:
        values = variable.values.copy()
        values.reshape(-1)[int(draw.integers(values.size))] += 1
    made = _with_variable(program, variable.name, values=values)
    text = f"variable '{variable.name}' loaded with {'nothing' if values is None else 'another number'}"
    return Mutant(program=made, text=text, places=(variable.name, *_users(program, variable.name)))


def swapped_names(program: Program, draw: Draw) -> Mutant | None:
    """Two inputs or two outputs held in each other's variables, or one that is missing."""
    kind = any_of(draw, ["inputs", "outputs"])
    names = dict(getattr(program, kind))
    pairs = [
        (one, other)
        for one in names
        for other in names
        if one < other and program.variables[names[one]].shape == program.variables[names[other]].shape
    ]
    pair = any_of(draw, pairs)
    if pair is None or draw.random() < 0.2:
        one = any_of(draw, names)
        held = names.pop(one)
        text, places = f"{kind}: '{one}' left out", (one, held)
    else:
        one, other = pair
        names[one], names[other] = names[other], names[one]
        text, places = f"{kind} '{one}' and '{other}' swapped", (one, other, names[one], names[other])
    places += tuple(user for name in places for user in _users(program, name))
    return Mutant(program=replace(program, **{kind: names}), text=text, places=places)


def persistence_flipped(program: Program, draw: Draw) -> Mutant | None:
    """A variable that is kept between training steps is not, or the other way round."""
    kept = [each for each in program.variables.values() if each.persistent]
    variable = any_of(draw, kept if kept and draw.random() < 0.7 else program.variables.values())
    made = _with_variable(program, variable.name, persistent=not variable.persistent)
    text = f"variable '{variable.name}': persistent {not variable.persistent}"
    return Mutant(program=made, text=text, places=(variable.name, *_users(program, variable.name)))


OPERATORS: dict[str, Operator] = {
    "moved vertex": moved_vertex,
    "swapped boxes": swapped_boxes,
    "box off by one": off_by_one_box,
    "vertex dropped": dropped_vertex,
    "vertices dropped": dropped_vertices,
    "vertex duplicated": duplicated_vertex,
    "field mode": field_mode,
    "timestep shift": wrong_shift,
    "other operand": other_operand,
    "constant": changed_constant,
    "missing zero": missing_zero,
    "supersteps swapped": swapped_supersteps,
    "superstep dropped": dropped_superstep,
    "across a repeat": across_repeat,
    "repeat": repeat_changed,
    "extent": wrong_extent,
    "recorded extent": wrong_recorded_extent,
    "declared extent": declared_extent,
    "one row": one_row_flipped,
    "delivery": changed_delivery,
    "exchange tallies": altered_tallies,
    "exchange taken away": unplanned_exchange,
    "copy": changed_copy,
    "mapping": moved_elements,
    "type or bytes": wrong_type,
    "loaded values": changed_values,
    "input or output names": swapped_names,
    "persistence": persistence_flipped,
    **COUNTERS,
}
