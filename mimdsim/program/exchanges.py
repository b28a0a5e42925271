"""Derive exchanges: what every superstep must deliver, and the resulting bytes and fragments at every tile.

Planner and verifier share this derivation (`checks/exchange.py`). How bytes and fragments are counted:
`exchange_traffic.py`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import replace
from weakref import WeakKeyDictionary

import numpy as np

from mimdsim.base.errors import MappingError
from mimdsim.numerics.columns.worker_load import digest
from mimdsim.program.checks.bounds import (
    check_copies,
    check_homes,
    check_operands,
    check_shapes,
    check_tiles,
    outside_boxes,
)
from mimdsim.program.checks.scope import Scope
from mimdsim.program.exchange_traffic import ExchangeCounter, Pairs, cut_at_senders
from mimdsim.program.mapping import BANDED, TileMapping
from mimdsim.program.program import Program
from mimdsim.program.records import Copy, Delivery, Exchange, Problem, Superstep, Variable
from mimdsim.program.vertex_boxes import (
    Part,
    bounds_of,
    boxes_on_tiles,
    by_tiles,
    cut_at_bands,
    distinct_boxes,
    equal_rows,
    is_local,
    spatial_mapping,
)

_Key = tuple[str, int | None]  # a variable and the shift of "@t"; None: all of it
_Parts = tuple[np.ndarray, np.ndarray]  # tiles, bounds
NAMES_AND_SHAPES = (check_copies, check_tiles, check_operands, check_shapes)  # what a plan rests on
# digest of an exchange and of what it was derived from, so that it need not be derived again to be trusted
_DERIVED: WeakKeyDictionary[Exchange, bytes] = WeakKeyDictionary()


def plan_exchanges(program: Program) -> Program:
    """The program with an exchange in every superstep in which vertices or copies need remote data.

    Raises MappingError, worded as in `verify`, for tiles and variables that do not exist and for boxes that do not fit.
    """
    _raise_first(check_homes(program, program.tiles))
    described: dict[TileMapping, bytes] = {}

    def planned(superstep: Superstep) -> Superstep:
        scope = Scope(program=program, superstep=superstep, tiles=program.tiles, described=described)
        return replace(superstep, exchange=derive_exchange(scope))

    return program.map_supersteps(planned)


def matches_derivation(scope: Scope) -> bool:
    """Whether the exchange of a superstep was derived from the superstep as it is now, and was not changed."""
    exchange = scope.superstep.exchange
    known = None if exchange is None else _DERIVED.get(exchange)
    return exchange is not None and known is not None and known == _exchange_digest(scope, exchange)


def _exchange_digest(scope: Scope, exchange: Exchange) -> bytes:
    """A key of everything an exchange depends on and of the exchange itself; arrays by content, as they may be
    changed."""
    program, superstep, described = scope.program, scope.superstep, scope.described
    parts: list[object] = [program.tiles, program.chips, superstep.copies]
    names = {name for copy in superstep.copies for name in (copy.source, copy.target)}
    for table in superstep.tables:
        parts += [table.codelet.fields, table.operands, table.tiles]
        parts += [part for column in sorted(table.columns.items()) for part in column]
        names |= set(table.operands.values())
    for name in sorted(names):
        variable = program.variables[name]
        if variable.mapping not in described:
            described[variable.mapping] = _digest_of(_content_of(variable.mapping))
        parts += [name, variable.shape, variable.item_bytes, described[variable.mapping]]
    parts += [exchange.total_tiles, exchange.tiles, exchange.columns, exchange.link_bytes, exchange.relayed]
    parts.append(exchange.link_pieces)
    for delivery in exchange.deliveries:
        parts += [delivery.variable, delivery.tiles, delivery.boxes.transpose(1, 2, 0)]  # as they lie
    return _digest_of(parts)


def _digest_of(parts: Sequence[object]) -> bytes:
    """Of the words of arrays and the text of anything else."""
    found = hashlib.blake2b(digest_size=16)
    for part in parts:
        if isinstance(part, np.ndarray):
            content = np.ascontiguousarray(part).reshape(-1).view(np.uint8)
            content = content if content.flags.writeable else content.copy()  # else it is compiled again
            words = len(content) // 8 * 8
            found.update(repr((part.dtype.str, part.shape)).encode())
            found.update(digest(content[:words].view(np.uint64)).data)
            found.update(content[words:].data)
        else:
            found.update(repr(part).encode())
    return found.digest()


def _content_of(mapping: TileMapping) -> list[np.ndarray]:
    """All that a mapping says: its numbers and those of its bands, then their intervals joined; of a mapping that
    several bands have, once."""
    numbers: list[np.ndarray] = []
    intervals: list[np.ndarray] = []
    number = {mapping: 0}
    within = [mapping]
    for one in within:
        columns = one.tiles, one.starts, one.stops
        numbers.append(np.array([one.axis, *(len(column) for column in columns), len(one.bands)]))
        intervals += columns
        if one.bands:
            bands = one.columns
            within += [each for each in bands.own if each not in number]
            own = np.array([number.setdefault(each, len(number)) for each in bands.own])
            numbers += [bands.axes, bands.starts, bands.stops, own[bands.which]]
    return [np.concatenate(numbers), np.concatenate(intervals)]


def _raise_first(problems: Iterable[Problem]) -> None:
    for problem in problems:
        raise MappingError(problem.message)


def derive_exchange(scope: Scope) -> Exchange | None:
    """What the vertices and copies of a superstep read from other tiles, with its bytes and pieces; None: nothing.

    Raises MappingError for names, shapes and boxes that a check refuses.
    """
    for check in NAMES_AND_SHAPES:
        _raise_first(check(scope))
    exchange = _derive(scope, None)
    if exchange is not None:
        _DERIVED[exchange] = _exchange_digest(scope, exchange)
    return exchange


def sampled_exchange(program: Program, superstep: Superstep, receiving: np.ndarray) -> Exchange | None:
    """The exchange of a superstep whose vertices are all on tiles of `receiving` bool[tiles], and of what its copies
    bring to these; the places that it names are not checked."""
    return _derive(Scope(program=program, superstep=superstep, tiles=program.tiles), receiving)


def copy_parts(program: Program, copy: Copy, receiving: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    """(tiles, int64[parts, axes, 2]): the parts of the source that each target tile needs, a timestep axis left out;
    only tiles of `receiving` bool[tiles], if given.

    Expects a copy in which `check_copies` finds no problem.
    """
    source, target = program.variables[copy.source], program.variables[copy.target]
    shape = source.shape[copy.source_shift is not None :]
    mapping = spatial_mapping(target, copy.target_shift is not None)
    return boxes_on_tiles(mapping if receiving is None else mapping.on_some(receiving), shape)


def bytes_within_tiles(program: Program) -> int:
    """Bytes that the copies in one turn of every superstep move within a tile, which takes no cycles."""
    within = 0
    for superstep, _, _ in program.supersteps():
        for copy in superstep.copies:
            source, tally = program.variables[copy.source], ExchangeCounter(program.tiles, program.chips)
            tiles, boxes = copy_parts(program, copy)
            tally.count(source, copy.source_shift is not None, tiles, boxes)
            elements = np.prod(boxes[:, :, 1] - boxes[:, :, 0], axis=1, dtype=np.int64).sum()
            within += int(elements) * source.item_bytes - int(tally.total["bytes_received"].sum())
    return within


def count_pairs(program: Program, exchange: Exchange, pairs: Pairs) -> None:
    """Add what an exchange brings from tile to tile of a chip to `pairs`; over one reader they sum to its bytes
    received, but for those from other chips."""
    tally = ExchangeCounter(program.tiles, program.chips, pairs)
    for delivery in exchange.deliveries:
        variable = program.variables[delivery.variable]
        drop = delivery.boxes.shape[1] < len(variable.shape)
        tally.count(variable, drop, delivery.tiles, delivery.boxes)


def _derive(scope: Scope, receiving: np.ndarray | None) -> Exchange | None:
    program, superstep = scope.program, scope.superstep
    tally = ExchangeCounter(program.tiles, program.chips)
    deliveries: list[Delivery] = []
    for name, shift, tiles, boxes in _remote_reads(scope):
        deliveries.append(Delivery(variable=name, tiles=tiles, boxes=boxes, shift=shift))
        tally.count(program.variables[name], shift is not None, tiles, boxes)
    for copy in superstep.copies:
        tiles, boxes = copy_parts(program, copy, receiving)
        if receiving is not None and not len(tiles):
            continue
        deliveries.append(
            Delivery(variable=copy.source, tiles=tiles, boxes=boxes, shift=copy.source_shift, target=copy.target)
        )
        tally.count(program.variables[copy.source], copy.source_shift is not None, tiles, boxes, copy.relay)
    if not deliveries:
        return None
    _count_arranged(scope, tally)
    return tally.exchange(tuple(deliveries))


def _remote_reads(scope: Scope) -> list[tuple[str, int | None, np.ndarray, np.ndarray]]:
    """(variable, shift of its timestep, tiles, boxes) of the distinct parts that are read from other tiles, in the
    order of the fields that read them first."""
    first: dict[_Key, int] = {}
    reads: dict[_Key, list[_Parts]] = {}
    for parts in by_tiles(scope.superstep.tables):
        for key, (field, wanted) in _remote_parts(scope, parts).items():
            first[key] = min(field, first.get(key, field))
            reads.setdefault(key, []).append(distinct_boxes(*_concatenate(wanted)))
    ordered = ((key, *_concatenate(reads[key])) for key in sorted(reads, key=first.__getitem__))
    return [(name, shift, tiles, bounds.transpose(2, 0, 1)) for (name, shift), tiles, bounds in ordered]


def _remote_parts(scope: Scope, parts: list[Part]) -> dict[_Key, tuple[int, list[_Parts]]]:
    """The number of the first field that reads a variable from other tiles, and what is read there, by vertex."""
    wanted: dict[_Key, tuple[int, list[_Parts]]] = {}
    parts_of = {id(table): part for table, part in zip(scope.superstep.tables, parts, strict=True)}
    local: set[tuple[int, TileMapping, tuple[str, ...], tuple[int, ...]]] = set()  # many fields are read alike
    for number, access in enumerate(scope.accesses):
        part, rows = parts_of[id(access.table)]
        if access.field.access != "read" or (access.table.vertices and not len(rows)):
            continue
        alike = id(access.table), access.variable.mapping, access.field.box, access.variable.shape
        if alike in local:
            continue
        here = access.on(part)
        boxes = here.boxes
        remote = np.flatnonzero(~is_local(here.mapping, part.tiles, boxes, here.shape))
        if not len(remote):
            local.add(alike)
        else:  # local boxes lie inside the variable, or do no harm until `verify` finds them
            bounds = bounds_of(boxes).take(remote, axis=2)
            _raise_first(outside_boxes(scope, access, bounds, rows[remote]))
            key = access.variable.name, access.shift
            wanted.setdefault(key, (number, []))[1].append((part.tiles[remote], bounds))
    return wanted


def _concatenate(parts: list[_Parts]) -> _Parts:
    if len(parts) == 1:
        return parts[0]
    tiles, bounds = (np.concatenate(part, axis=-1) for part in zip(*parts, strict=True))
    return tiles, bounds


def _count_arranged(scope: Scope, tally: ExchangeCounter) -> None:
    """Add the pieces that must be put into one row: boxes of `one_row` fields from several tiles, once per tile.

    Vertices of a tile that read the same box of a variable share its row; boxes that differ, even if they overlap, get
    separate rows. Derived, as the vendor's compiler is closed: PopLibs (7eac0f2) says that data not laid out as the
    vertices need it is rearranged "on every tile that receives the data" (Convolution.cpp), makes one copy per tile of
    what its vertices share, and plans memory for one (DynamicSlice.cpp, `baseCopies`, `sliceTempBytes`).
    """
    in_rows = [each for each in scope.accesses if each.field.one_row and not each.variable.mapping.is_replicated]
    tables = list({id(access.table): access.table for access in in_rows}.values())
    for parts in by_tiles(tables):
        part_of = {id(table): part for table, (part, _) in zip(tables, parts, strict=True)}
        wanted: dict[_Key, list[_Parts]] = {}
        for access in in_rows:
            part = part_of[id(access.table)]
            if part.vertices:
                bounds = bounds_of(access.on(part).boxes)
                wanted.setdefault((access.variable.name, access.shift), []).append((part.tiles, bounds))
        for (name, shift), rows_of in wanted.items():
            _count_rows(scope.program.variables[name], shift is not None, *_concatenate(rows_of), tally)


def _count_rows(variable: Variable, drop: bool, tiles: np.ndarray, bounds: np.ndarray, tally: ExchangeCounter) -> None:
    """Add the rows that hold these boxes of a variable, each once per tile."""
    _, one_of_each = equal_rows(np.vstack([tiles[None], bounds.reshape(-1, len(tiles))]))
    tiles, boxes = tiles[one_of_each], bounds.take(one_of_each, axis=2).transpose(2, 0, 1)
    pieces = _pieces_of(spatial_mapping(variable, drop), tiles, boxes, variable.shape[drop:])
    gathered = pieces > 1
    volume = np.prod(boxes[gathered, :, 1] - boxes[gathered, :, 0], axis=1, dtype=np.int64) * variable.item_bytes
    np.add.at(tally.total["fragments_arranged"], tiles[gathered], pieces[gathered])
    np.add.at(tally.total["bytes_arranged"], tiles[gathered], volume)


def _pieces_of(mapping: TileMapping, tiles: np.ndarray, boxes: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """int64[rows]: from how many fragments a box is put together; copies count as one."""
    if mapping.axis == BANDED:
        found = np.zeros(len(tiles), np.int64)
        for (copy, *_), rows, on, inside in cut_at_bands(mapping, tiles, boxes):
            found[rows] += _pieces_of(copy, on, inside, shape)
        return found
    if mapping.is_replicated:
        return np.ones(len(tiles), np.int64)
    cut = cut_at_senders(mapping, np.arange(len(tiles)), bounds_of(boxes), np.array(shape, np.int64))
    return np.bincount(cut.box, weights=cut.sizes()[1], minlength=len(tiles)).astype(np.int64)
