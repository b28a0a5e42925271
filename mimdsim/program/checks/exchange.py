"""Rules 3, 4, 5 and 8: what is read is local or delivered, what is written is local and written once, and an exchange
delivers and counts nothing else."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterator
from itertools import product

import numpy as np

from mimdsim.base.compressed_columns import wide
from mimdsim.base.errors import near
from mimdsim.numerics.columns import boxes as numerics
from mimdsim.numerics.columns import exchange_fragments
from mimdsim.program import vertex_boxes
from mimdsim.program.checks.bounds import NO_VARIABLE
from mimdsim.program.checks.scope import LOCAL_OR_DELIVERED, MEANWHILE, TWICE, Access, Scope, entries_taken
from mimdsim.program.codelet_closure import is_library
from mimdsim.program.exchanges import copy_parts, derive_exchange, matches_derivation
from mimdsim.program.mapping import FLAT, TileMapping
from mimdsim.program.program import Program
from mimdsim.program.records import (
    EXCHANGE_COLUMNS,
    Copy,
    Delivery,
    Exchange,
    Problem,
    Superstep,
    VertexTable,
    vertex_name,
)
from mimdsim.program.vertex_boxes import (
    bounds_of,
    boxes_on_tiles,
    describe_box,
    equal_rows,
    is_local,
    order_of,
    runs_of_boxes,
    spatial_mapping,
)

EXCHANGE_RULE = "an exchange delivers what is read"
WRITES_LOCAL = "writes are local"
WORD_BYTES = 4  # assumed; the least that a tile stores


def check_deliveries(scope: Scope) -> Iterator[Problem]:
    """Anything that an exchange names but that does not exist, so that its deliveries cannot be checked."""
    if scope.superstep.exchange is not None:
        yield from _exchange_problem(scope, _delivery_problem(scope.program, scope.superstep.exchange))


def check_exchange(scope: Scope) -> Iterator[Problem]:
    """What an exchange delivers though nothing reads it, or counts wrongly, compared with one derived from the boxes.

    Expects a superstep that keeps the other rules.
    """
    planned = scope.superstep.exchange
    if planned is None or matches_derivation(scope):
        return
    wanted = derive_exchange(scope)
    if wanted is None:
        nothing = np.zeros((len(EXCHANGE_COLUMNS), 0), np.int64)
        wanted = Exchange(deliveries=(), total_tiles=scope.program.tiles, tiles=np.zeros(0, np.int64), columns=nothing)
    yield from _exchange_problem(scope, _first_other_part(planned, wanted) or _first_other_count(planned, wanted))


def _exchange_problem(scope: Scope, text: str) -> Iterator[Problem]:
    """The problem `text` of an exchange; none if it is empty."""
    if text:
        yield scope.problem(EXCHANGE_RULE, f"its exchange {text}; plan the exchanges again (plan_exchanges)")


def _delivery_problem(program: Program, exchange: Exchange) -> str:
    """Deliveries of data, or to tiles, that do not exist."""
    if exchange.total_tiles != program.tiles:
        return f"is planned for {exchange.total_tiles} tiles, the program has {program.tiles}"
    for delivery in exchange.deliveries:
        variable = program.variables.get(delivery.variable)
        if variable is None:
            known = near(delivery.variable, program.variables)
            return f"delivers '{delivery.variable}', {NO_VARIABLE}{known}"
        shapes = [(len(delivery.tiles), axes, 2) for axes in (len(variable.shape), len(variable.shape) - 1) if axes]
        if delivery.boxes.shape not in shapes or delivery.tiles.ndim != 1:
            given = f"boxes of shape {list(delivery.boxes.shape)}, tiles of {list(delivery.tiles.shape)}"
            return f"delivers parts of '{variable.name}' in {given}; they must be [parts, axes, 2] and [parts]"
        strange = np.flatnonzero((delivery.tiles < 0) | (delivery.tiles >= program.tiles))
        if len(strange):
            row = int(strange[0])
            box = describe_box(variable.name, delivery.boxes[row])
            last = program.tiles - 1
            return f"delivers {box} to tile {int(delivery.tiles[row])}, the program is placed on tiles 0 to {last}"
        shape = np.array(variable.shape[len(variable.shape) - delivery.boxes.shape[1] :], np.int64)
        row = int(numerics.first_outside(bounds_of(delivery.boxes), shape)) if len(delivery.tiles) else -1
        if row >= 0:
            box = describe_box(variable.name, delivery.boxes[row])
            return f"delivers {box}, outside the variable's shape {shape.tolist()}"
    if exchange.columns.shape != (len(EXCHANGE_COLUMNS), len(exchange.tiles)):
        return f"has columns of shape {list(exchange.columns.shape)} for {len(exchange.tiles)} tiles"
    strange = np.flatnonzero((exchange.tiles < 0) | (exchange.tiles >= program.tiles))
    if len(strange):
        return f"counts bytes on tile {int(exchange.tiles[strange[0]])}, which is not there"
    twice = np.flatnonzero(exchange.tiles[1:] <= exchange.tiles[:-1])
    return f"names tile {int(exchange.tiles[twice[0] + 1])} out of order or twice" if len(twice) else ""


def _parts(exchange: Exchange) -> Counter[tuple[str, int, int, tuple[tuple[int, int], ...]]]:
    """How often each part is delivered: variable, number of axes, tile, box."""
    return Counter(
        (delivery.variable, len(box), tile, tuple(map(tuple, box)))
        for delivery in exchange.deliveries
        for tile, box in zip(delivery.tiles.tolist(), delivery.boxes.tolist(), strict=True)
    )


def _first_other_part(given: Exchange, wanted: Exchange) -> str:
    """The first part that is delivered but not wanted, or wanted but not delivered, counting repetitions."""
    here, there = _parts(given), _parts(wanted)
    differing = [] if here == there else [part for part in here | there if here[part] != there[part]]
    if not differing:
        return ""
    first = min(differing)
    name, _, tile, box = first
    part = f"{describe_box(name, np.array(box))} to tile {tile}"
    if here[first] < there[first]:
        return f"does not deliver {part}, where it is read"
    return f"delivers {part}{' more often than it is read' if there[first] else ', which nothing there reads'}"


def _first_other_count(given: Exchange, wanted: Exchange) -> str:
    """The first tile and column whose count differs from the sum of the parts."""
    tiles = np.union1d(given.tiles, wanted.tiles)
    sides = []
    for exchange in (given, wanted):
        spread = np.zeros((len(EXCHANGE_COLUMNS), len(tiles)), exchange.columns.dtype)
        spread[:, np.searchsorted(tiles, exchange.tiles)] = exchange.columns
        sides.append(spread)
    wrong = np.argwhere(sides[0] != sides[1])
    if len(wrong):
        column, at = wrong[0].tolist()
        return (
            f"counts {sides[0][column, at]} {EXCHANGE_COLUMNS[column].replace('_', ' ')} on tile {tiles[at]}, what it "
            f"delivers amounts to {sides[1][column, at]}"
        )
    # the planner records no link bytes if nothing crosses a link
    linked, amount = (
        None if each.link_bytes is None or not each.link_bytes.any() else np.stack([each.rounds, each.pieces_in_rounds])
        for each in (given, wanted)
    )
    same = linked is amount if linked is None or amount is None else np.array_equal(linked, amount)
    return "" if same else "does not count the bytes over links that it delivers"


# ---- what is read and written


def check_copies_delivered(scope: Scope) -> Iterator[Problem]:
    """Copies of data that the exchange does not deliver."""
    for copy in scope.superstep.copies:
        source, drop = scope.program.variables[copy.source], copy.source_shift is not None
        tiles, boxes = copy_parts(scope.program, copy)
        remote = np.flatnonzero(~is_local(spatial_mapping(source, drop), tiles, boxes, source.shape[drop:]))
        remote = remote[order_of(tiles[None, remote], [0])]  # parts are looked up tile by tile
        missing = remote[_missing_rows(scope.superstep, source.name, tiles[remote], boxes[remote])]
        if len(missing):
            text = (
                f"copies {describe_box(source.name, boxes[missing[0]])} to '{copy.target}' on tile "
                f"{int(tiles[missing[0]])}, which this superstep's exchange does not deliver; plan its exchange"
            )
            yield scope.problem(LOCAL_OR_DELIVERED, text)


def check_reach(scope: Scope) -> Iterator[Problem]:
    """The first vertex of each field that reads what is neither local nor delivered, or writes what is not local."""
    for access in scope.accesses:
        reached = (_reach_problem(scope, part, rows) for part, rows in access.parts())
        broken = next(filter(None, reached), None)
        if broken is not None:
            rule, text, vertex = broken
            yield scope.problem(rule, text, access.table, vertex)


def _reach_problem(scope: Scope, access: Access, rows: np.ndarray) -> tuple[str, str, int] | None:
    """(rule, what is wrong, vertex) of the first of these vertices, `rows` of a table, that breaks one."""
    boxes, tiles, mapping, shape = access.boxes, access.table.tiles, access.mapping, access.shape
    name, writes = access.variable.name, access.field.writes
    if writes and mapping.has_copies:
        text = f"writes one replica of '{name}', which {len(mapping.tiles)} tiles hold; the others would stay old"
        return WRITES_LOCAL, text, 0
    remote = np.flatnonzero(~is_local(mapping, tiles, boxes, shape))
    if not len(remote):
        return None
    row = int(remote[0])
    if writes:
        text = _describe_remote("writes", name, mapping, boxes[row], shape, int(tiles[row]))
        return WRITES_LOCAL, text, int(rows[row])
    if any(is_written_by(copy, name, access.shift) for copy in scope.superstep.copies):
        text = f"reads {describe_box(name, boxes[row])} of another tile while a copy of the same exchange writes it"
        return MEANWHILE, f"{text}; read it in the next superstep", int(rows[row])
    far = bounds_of(boxes).take(remote, axis=2).transpose(2, 0, 1)
    missing = remote[_missing_rows(scope.superstep, name, tiles[remote], far)]
    if not len(missing):
        return None
    row = int(missing[0])
    text = _describe_remote("reads", name, mapping, boxes[row], shape, int(tiles[row]))
    return LOCAL_OR_DELIVERED, f"{text} and is not delivered in this superstep's exchange", int(rows[row])


def _missing_rows(superstep: Superstep, variable: str, tiles: np.ndarray, boxes: np.ndarray) -> np.ndarray:
    """bool[rows]: not contained in any delivered box of the variable to that tile."""
    missing = np.ones(len(tiles), bool)
    if superstep.exchange is None:
        return missing
    for delivery in superstep.exchange.deliveries:
        # one timestep and the whole sequence are delivered separately, as boxes of different axes
        alike = delivery.variable == variable and delivery.boxes.shape[1] == boxes.shape[1]
        if alike and len(delivery.tiles) and len(tiles):
            missing &= ~_is_inside_delivery(delivery, tiles, boxes)
    return missing


def _is_inside_delivery(delivery: Delivery, tiles: np.ndarray, boxes: np.ndarray) -> np.ndarray:
    """bool[rows]: inside one delivered box."""
    owners, delivered = delivery.tiles, delivery.boxes
    if (owners[1:] < owners[:-1]).any():
        order = np.argsort(owners, kind="stable")
        owners, delivered = owners[order], delivered[order]
    first, last = bisect_left(owners, tiles.min()), bisect_right(owners, tiles.max())
    given = wide(owners[first:last]), bounds_of(delivered[first:last]), wide(tiles), bounds_of(boxes)
    return np.asarray(numerics.contained_boxes(*given))


def _describe_remote(
    does: str, name: str, mapping: TileMapping, box: np.ndarray, shape: tuple[int, ...], tile: int
) -> str:
    element, owner = _first_remote(mapping, box, shape, tile)
    part = "" if element == tuple(box[:, 0].tolist()) else f"from {name}{list(element)} on "
    return f"{does} {describe_box(name, box)}, which {part}lies on tile {owner}"


def _first_remote(
    mapping: TileMapping, box: np.ndarray, shape: tuple[int, ...], tile: int
) -> tuple[tuple[int, ...], int]:
    """(the first element of a box that lies on another tile than `tile`, that tile); box int64[axes, 2]."""
    tiles, held = boxes_on_tiles(mapping, shape)
    here = np.zeros(box[:, 1] - box[:, 0], bool)
    for start, stop in np.clip(held[tiles == tile], box[:, :1], box[:, 1:]).transpose(0, 2, 1) - box[:, 0]:
        here[tuple(map(slice, start, stop))] = True
    element = box[:, 0] + np.unravel_index(int(np.argmin(here)), here.shape)
    holds = ((held[:, :, 0] <= element) & (element < held[:, :, 1])).all(axis=1)
    return tuple(element.tolist()), int(tiles[np.argmax(holds)])


# ---- rule 5: nothing is written twice in a superstep, and nothing is read that another vertex or a copy of it writes


def check_copies_apart(scope: Scope) -> Iterator[Problem]:
    """Pairs of copies in a superstep where the second writes what the first reads or writes, as both happen at once."""
    copies = scope.superstep.copies
    for place, copy in enumerate(copies):
        for other in copies[:place] + copies[place + 1 :]:
            if is_written_by(other, copy.source, copy.source_shift):
                text = f"copies '{copy.source}' to '{copy.target}' while '{other.source}' is copied there"
                yield scope.problem(MEANWHILE, f"{text}; copy it in the next superstep")
        for other in copies[:place]:
            if is_written_by(other, copy.target, copy.target_shift):
                text = f"copies both '{other.source}' and '{copy.source}' to '{copy.target}'"
                yield scope.problem(TWICE, f"{text}; move one of them to another superstep")


def is_written_by(copy: Copy, variable: str, shift: int | None) -> bool:
    """Whether a copy writes the entry of a variable that "@t" and a shift take (None: all of it)."""
    return copy.target == variable and (shift == copy.target_shift or None in (shift, copy.target_shift))


def check_conflicts(scope: Scope) -> Iterator[Problem]:
    """For every variable written: the first element written twice and, for each field, the first one read meanwhile.

    Expects writes on their vertex's own tile.
    """
    timesteps = scope.stretch.timesteps
    by_variable: dict[str, list[Access]] = {}
    for access in scope.accesses:
        if access.table.vertices:
            by_variable.setdefault(access.variable.name, []).append(access)
    for name, group in by_variable.items():
        writers = _group_by_shift([access for access in group if access.field.writes])
        pair = _first_double_write(writers, timesteps)
        if pair is not None:
            (other, other_row), (access, row) = pair
            text = f"writes {describe_box(name, access.boxes[row])}, which {vertex_name(other.table, other_row)} writes"
            yield scope.problem(TWICE, f"{text} too", access.table, row)
        for reader in (access for access in group if not access.field.writes):
            pair = next(
                filter(None, (_overlap_between(part, [reader], timesteps, skip=True) for part in writers)), None
            )
            if pair is not None:
                (other, other_row), (_, row) = pair
                text = f"reads {describe_box(name, reader.boxes[row])} while {vertex_name(other.table, other_row)}"
                yield scope.problem(MEANWHILE, f"{text} writes it", reader.table, row)


def overlapping_fields(scope: Scope) -> Iterator[tuple[VertexTable, str]]:
    """What vertices read by one field and write by another, where the parts overlap without being the same: of every
    table by hand the first. No rule: numpy reads all of it before it writes, and a loop on a tile may not."""
    for table in scope.superstep.tables:
        own = [] if is_library(table.codelet.compute) else [one for one in scope.accesses if one.table is table]
        for read, written in product(own, own):
            if read.field.writes or not written.field.writes or read.variable is not written.variable:
                continue
            if read.shift != written.shift:
                continue
            (starts, stops), (from_, to) = read.boxes.transpose(2, 0, 1), written.boxes.transpose(2, 0, 1)
            partly = (np.maximum(starts, from_) < np.minimum(stops, to)).all(axis=1)
            partly &= (starts != from_).any(axis=1) | (stops != to).any(axis=1)
            if partly.any():
                row, name = int(partly.argmax()), read.variable.name
                yield (
                    table,
                    f"{vertex_name(table, row)} reads {describe_box(name, read.boxes[row])} by '{read.field.name}' and "
                    f"writes {describe_box(name, written.boxes[row])} by '{written.field.name}', which overlap: right "
                    "only if it reads all of it before it writes anything",
                )
                break


def shared_words(scope: Scope) -> Iterator[tuple[VertexTable, str]]:
    """For every variable of bytes or halves: two vertices of a tile, one by hand, that write parts of one word. No
    rule: which tiles can store less than a word is not known. Expects writes on their vertex's own tile."""
    groups: dict[tuple[str, int | None], list[Access]] = {}
    for access in scope.accesses:
        if access.field.writes and access.variable.item_bytes < WORD_BYTES and access.table.vertices:
            groups.setdefault((access.variable.name, access.shift), []).append(access)
    for (name, _), group in groups.items():
        mapping, libraries = group[0].mapping, (is_library(access.table.codelet.compute) for access in group)
        if all(libraries) or (len(mapping.tiles) > 1 and mapping.axis not in (0, FLAT)):
            continue
        each = WORD_BYTES // group[0].variable.item_bytes
        tiles, vertices = np.concatenate([wide(access.table.tiles) for access in group]), _number_vertices(group)
        start, stop = np.concatenate([_elements_on_tile(access) for access in group], axis=1)
        order = np.lexsort((start, tiles))
        order = order[stop[order] > start[order]]
        one, two = order[:-1], order[1:]
        shared = (tiles[one] == tiles[two]) & ((stop[one] - 1) // each >= start[two] // each)
        shared &= vertices[one] != vertices[two]
        for pair in np.stack([one, two], axis=1)[shared].tolist():
            parts = [_locate(group, row) for row in pair]
            table = next((each.table for each, _ in parts if not is_library(each.table.codelet.compute)), None)
            if table is not None:
                does = " and ".join(
                    f"{vertex_name(access.table, row)} ({describe_box(name, access.boxes[row])})"
                    for access, row in parts
                )
                yield (
                    table,
                    f"one word of 32 bits is written in part by {does}: a tile that stores 32 bits at least, as "
                    f"colossus does, loses one of the writes; cut at multiples of {each} elements",
                )
                break


def _elements_on_tile(access: Access) -> np.ndarray:
    """int64[2, vertices]: start and stop of boxes, counted in what their tile holds of a variable that is on one tile,
    or cut along its first axis or flat; empty where a box is not one run of that."""
    boxes, shape, mapping = access.boxes, access.shape, access.mapping
    strides = np.cumprod([1, *shape[:0:-1]])[::-1]
    first = boxes[:, :, 0] @ strides
    if len(mapping.tiles) > 1:
        scale = strides[0] if mapping.axis == 0 else 1
        starts, size = mapping.starts * scale, (mapping.stops - mapping.starts) * scale
        order = np.argsort(mapping.tiles, kind="stable")
        tiles, before, held = mapping.tiles[order], np.cumsum(size[order]) - size[order], np.empty_like(starts)
        held[order] = before - before[np.searchsorted(tiles, tiles)]
        interval = np.maximum(np.searchsorted(starts, first, side="right") - 1, 0)
        first = first - starts[interval] + held[interval]
    length = np.prod(boxes[:, :, 1] - boxes[:, :, 0], axis=1)
    return np.stack([first, first + np.where(runs_of_boxes(boxes, shape)[1] == 1, length, 0)])


Pair = tuple[tuple[Access, int], tuple[Access, int]]  # two vertices' boxes that share an element


def _group_by_shift(accesses: list[Access]) -> list[list[Access]]:
    """Grouped by the timestep that they take; those that take none form a group too."""
    found: dict[int | None, list[Access]] = {}
    for access in accesses:
        found.setdefault(access.shift, []).append(access)
    return list(found.values())


def _first_double_write(writers: list[list[Access]], timesteps: range) -> Pair | None:
    for place, part in enumerate(writers):
        pair = None if _is_surely_apart(part) else _overlap_within(part)
        for other in writers[:place]:
            pair = pair or _overlap_between(other, part, timesteps, skip=False)
        if pair is not None:
            return pair
    return None


def _is_surely_apart(accesses: list[Access]) -> bool:
    """Whether it is certain that no two of these boxes, each of which lies on one tile, share an element: tiles after
    tiles, as the boxes of many vertices at once would take several times the memory of the program."""
    if sum(access.table.vertices for access in accesses) <= vertex_boxes.ROWS_AT_ONCE:
        return False
    return all(
        _overlap_within([access.on(part) for access, (part, _) in zip(accesses, parts, strict=True)]) is None
        for parts in vertex_boxes.by_tiles([access.table for access in accesses])
    )


def _overlap_within(accesses: list[Access]) -> Pair | None:
    """Two of these boxes, all with the same axes, that share an element."""
    each = [bounds_of(access.boxes) for access in accesses]
    bounds = each[0] if len(each) == 1 else np.concatenate(each, axis=2)
    rows = bounds.shape[2]
    if exchange_fragments.are_apart(bounds):  # then boxes meet only if they are equal
        which, one_of_each = equal_rows(np.ascontiguousarray(bounds[:, 0]))
        if len(one_of_each) == rows:
            return None
        first = np.unique(which, return_index=True)[1]
        two = int((first[which] != np.arange(rows)).argmax())
        return _locate(accesses, int(first[which[two]])), _locate(accesses, two)
    pair = _first_meeting(bounds, np.arange(rows), bounds, np.arange(rows))
    return None if pair is None else (_locate(accesses, min(pair)), _locate(accesses, max(pair)))


def _overlap_between(left: list[Access], right: list[Access], timesteps: range, *, skip: bool) -> Pair | None:
    """A box of `left` and one of `right` that share an element; `skip`: ignoring pairs of the same vertex."""
    shifts = left[0].shift, right[0].shift
    if shifts[0] != shifts[1] and None not in shifts:
        return None  # in every timestep these are two different entries
    sides = []
    for accesses in (left, right):
        alike = shifts[0] == shifts[1]
        boxes = [access.boxes if alike else _boxes_with_timesteps(access, timesteps) for access in accesses]
        sides.append(bounds_of(np.concatenate(boxes)))
    vertices = _number_vertices(left + right) if skip else np.arange(sides[0].shape[2] + sides[1].shape[2])
    whose = np.split(vertices, [sides[0].shape[2]])
    pair = _first_meeting(sides[0], whose[0], sides[1], whose[1])
    return None if pair is None else (_locate(left, pair[0]), _locate(right, pair[1]))


def _boxes_with_timesteps(access: Access, timesteps: range) -> np.ndarray:
    """The boxes, with the entries taken in these timesteps as their first axis."""
    if access.shift is None:
        return access.boxes
    least, most = entries_taken(access.variable, access.shift, timesteps)
    first = np.broadcast_to(np.array([max(least, 0), most + 1]), (access.table.vertices, 1, 2))
    return np.concatenate([first, access.boxes], axis=1)


def _number_vertices(accesses: list[Access]) -> np.ndarray:
    """A number for every row of these, the same for the rows of one vertex."""
    first: dict[int, int] = {}
    count, numbers = 0, []
    for access in accesses:
        if id(access.table) not in first:
            first[id(access.table)] = count
            count += access.table.vertices
        numbers.append(first[id(access.table)] + np.arange(access.table.vertices))
    return np.concatenate(numbers)


def _locate(accesses: list[Access], row: int) -> tuple[Access, int]:
    for access in accesses:
        if row < access.table.vertices:
            return access, row
        row -= access.table.vertices
    raise IndexError(row)


def _first_meeting(
    left: np.ndarray, whose: np.ndarray, right: np.ndarray, whose_right: np.ndarray
) -> tuple[int, int] | None:
    """Rows of two boxes of different vertices that share an element, the first such row of `right`."""
    lengths, spans = (left[:, 1] - left[:, 0]).max(axis=1), left[:, 1].max(axis=1) - left[:, 0].min(axis=1)
    shortest = np.argsort(
        lengths / np.maximum(spans, 1), kind="stable"
    )  # along axes where boxes are short, few overlap
    along, beside = int(shortest[0]), int(shortest[min(1, len(shortest) - 1)])
    order = order_of(np.ascontiguousarray(left[[along, beside], 0]), [0, 1])
    one, two = numerics.first_meeting(left, whose, right, whose_right, order, along, beside)
    return None if one < 0 else (int(one), int(two))
