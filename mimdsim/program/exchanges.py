"""Derive exchanges: what every superstep must deliver, and the resulting bytes and fragments at every tile.

Planner and verifier share this derivation (`exchange_rule.check_exchange`). How bytes and fragments are counted:
`tally.py`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from weakref import WeakKeyDictionary

import numpy as np

from mimdsim.base.errors import MappingError
from mimdsim.numerics.columns.grouping import digest
from mimdsim.program.codelet import Field, now_shift
from mimdsim.program.copies import copy_parts
from mimdsim.program.exchange_traffic import Pairs, Tally
from mimdsim.program.local import ByTile, in_bands, is_local
from mimdsim.program.mapping import BANDED, TileMapping
from mimdsim.program.places import check_boxes, check_homes, check_places, unfit_box
from mimdsim.program.program import Program
from mimdsim.program.records import Delivery, Exchange, Problem, Superstep, Variable, VertexTable
from mimdsim.program.vertex_boxes import (
    Part,
    bounds_of,
    boxes_of,
    by_tiles,
    distinct,
    equal_rows,
    spatial_mapping,
    spatial_shape,
    takes_timestep,
    to_runs,
)

_Key = tuple[str, int | None]  # a variable and the shift of "@t"; None: all of it
_Parts = tuple[np.ndarray, np.ndarray]  # tiles, bounds
Described = dict[TileMapping, bytes]  # what mappings say as they are now: for one walk over a program
# digest of an exchange and of what it was derived from, so that it need not be derived again to be trusted
_DERIVED: WeakKeyDictionary[Exchange, bytes] = WeakKeyDictionary()


def plan_exchanges(program: Program) -> Program:
    """The program with an exchange in every superstep in which vertices or copies need remote data.

    Raises MappingError, worded as in `verify`, for tiles and variables that do not exist and for boxes that do not fit.
    """
    _refuse(check_homes(program, program.tiles))
    described: Described = {}
    changed: Program = program.map_supersteps(
        lambda superstep: replace(superstep, exchange=derived_exchange(program, superstep, described))
    )
    return changed


def is_derived(program: Program, superstep: Superstep, described: Described) -> bool:
    """Whether the exchange of a superstep was derived from the superstep as it is now, and was not changed."""
    given = superstep.exchange
    known = None if given is None else _DERIVED.get(given)
    return given is not None and known is not None and known == _digest(program, superstep, given, described)


def _digest(program: Program, superstep: Superstep, exchange: Exchange, described: Described) -> bytes:
    """A key of everything an exchange depends on and of the exchange itself; arrays by content, as they may be
    changed."""
    parts: list[object] = [program.tiles, program.chips, superstep.copies]
    names = {name for copy in superstep.copies for name in (copy.source, copy.target)}
    for table in superstep.tables:
        parts += [table.codelet.fields, table.operands, table.tiles]
        parts += [part for column in sorted(table.columns.items()) for part in column]
        names |= set(table.operands.values())
    for name in sorted(names):
        variable = program.variables[name]
        if variable.mapping not in described:
            described[variable.mapping] = _key(_described(variable.mapping))
        parts += [name, variable.shape, variable.item_bytes, described[variable.mapping]]
    parts += [exchange.total_tiles, exchange.tiles, exchange.columns, exchange.link_bytes, exchange.relayed]
    for delivery in exchange.deliveries:
        parts += [delivery.variable, delivery.tiles, delivery.boxes.transpose(1, 2, 0)]  # as they lie
    return _key(parts)


def _key(parts: Sequence[object]) -> bytes:
    """Of the words of arrays and the text of anything else."""
    found = hashlib.blake2b(digest_size=16)
    for part in parts:
        if isinstance(part, np.ndarray):
            content = np.ascontiguousarray(part).reshape(-1).view(np.uint8)
            content = content if content.flags.writeable else content.copy()  # else kernels are compiled again
            words = len(content) // 8 * 8
            found.update(repr((part.dtype.str, part.shape)).encode())
            found.update(digest(content[:words].view(np.uint64)).data)
            found.update(content[words:].data)
        else:
            found.update(repr(part).encode())
    return found.digest()


def _described(mapping: TileMapping) -> list[np.ndarray]:
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


def _refuse(problems: list[Problem]) -> None:
    if problems:
        raise MappingError(problems[0].message)


def _boxes(superstep: Superstep, table: VertexTable, field: Field, variable: Variable) -> np.ndarray:
    try:
        return boxes_of(table, field, variable)
    except ValueError as mismatch:
        raise MappingError(unfit_box(superstep, table, mismatch).message) from mismatch


def derived_exchange(program: Program, superstep: Superstep, described: Described) -> Exchange | None:
    """What the vertices and copies of a superstep read from other tiles, with its bytes and pieces; None: nothing.

    Raises MappingError where `check_places` or `check_boxes` finds a problem.
    """
    _refuse(check_places(program, superstep, program.tiles))
    exchange = _exchange(program, superstep, None)
    if exchange is not None:
        _DERIVED[exchange] = _digest(program, superstep, exchange, described)
    return exchange


def sampled_exchange(program: Program, superstep: Superstep, receiving: np.ndarray) -> Exchange | None:
    """The exchange of a superstep whose vertices are all on tiles of `receiving` bool[tiles], and of what its copies
    bring to these; the places that it names are not checked."""
    return _exchange(program, superstep, receiving)


def count_pairs(program: Program, exchange: Exchange, pairs: Pairs) -> None:
    """Add what an exchange brings from tile to tile of a chip to `pairs`; over one reader they sum to its bytes
    received, but for those from other chips."""
    tally = Tally(program.tiles, program.chips, pairs)
    for delivery in exchange.deliveries:
        variable = program.variables[delivery.variable]
        drop = delivery.boxes.shape[1] < len(variable.shape)
        tally.count(variable, drop, delivery.tiles, delivery.boxes)


def _exchange(program: Program, superstep: Superstep, receiving: np.ndarray | None) -> Exchange | None:
    tally = Tally(program.tiles, program.chips)
    deliveries: list[Delivery] = []
    for name, drop, tiles, boxes in _remote_reads(program, superstep):
        deliveries.append(Delivery(variable=name, tiles=tiles, boxes=boxes))
        tally.count(program.variables[name], drop, tiles, boxes)
    for copy in superstep.copies:
        tiles, boxes = copy_parts(program, copy, receiving)
        if receiving is not None and not len(tiles):
            continue
        deliveries.append(Delivery(variable=copy.source, tiles=tiles, boxes=boxes))
        tally.count(program.variables[copy.source], copy.source_shift is not None, tiles, boxes, copy.relay)
    if not deliveries:
        return None
    _count_arranged(program, superstep, tally)
    return tally.exchange(tuple(deliveries))


def _remote_reads(program: Program, superstep: Superstep) -> list[tuple[str, bool, np.ndarray, np.ndarray]]:
    """(variable, timestep axis dropped, tiles, boxes) of the distinct parts that are read from other tiles, in the
    order of the fields that read them first."""
    asked: dict[_Key, int] = {}
    found: dict[_Key, list[_Parts]] = {}
    known: dict[TileMapping, ByTile] = {}
    for parts in by_tiles(superstep.tables):
        for key, (field, wanted) in _wanted_in(program, superstep, parts, known).items():
            asked[key] = min(field, asked.get(key, field))
            found.setdefault(key, []).append(distinct(*_joined(wanted)))
    reads = []
    for name, shift in sorted(found, key=asked.__getitem__):
        tiles, bounds = _joined(found[name, shift])
        reads.append((name, shift is not None, tiles, bounds.transpose(2, 0, 1)))
    return reads


def _wanted_in(
    program: Program, superstep: Superstep, parts: list[Part], known: dict[TileMapping, ByTile]
) -> dict[_Key, tuple[int, list[_Parts]]]:
    """The number of the first field that reads a variable from other tiles, and what is read there, by vertex."""
    wanted: dict[_Key, tuple[int, list[_Parts]]] = {}
    number = count()
    for table, (part, rows) in zip(superstep.tables, parts, strict=True):
        local: set[tuple[TileMapping, tuple[str, ...], tuple[int, ...]]] = set()  # many fields are read alike
        for item, field in zip(table.codelet.fields, number, strict=False):
            if item.access != "read" or (table.vertices and not len(rows)):
                continue
            variable = program.variables[table.operands[item.name]]
            if (alike := (variable.mapping, item.box, variable.shape)) in local:
                continue
            boxes = _boxes(superstep, part, item, variable)
            shape = spatial_shape(variable, item)
            mapping = spatial_mapping(variable, takes_timestep(item))
            remote = np.flatnonzero(~is_local(mapping, part.tiles, boxes, shape, known))
            if not len(remote):
                local.add(alike)
            else:  # local boxes lie inside the variable, or do no harm until `verify` finds them
                bounds = bounds_of(boxes).take(remote, axis=2)
                _refuse(check_boxes(superstep, table, item, variable, bounds, rows[remote]))
                key = (variable.name, now_shift(item.box[0]) if takes_timestep(item) else None)
                wanted.setdefault(key, (field, []))[1].append((part.tiles[remote], bounds))
    return wanted


def _joined(parts: list[_Parts]) -> _Parts:
    if len(parts) == 1:
        return parts[0]
    tiles, bounds = (np.concatenate(part, axis=-1) for part in zip(*parts, strict=True))
    return tiles, bounds


def _count_arranged(program: Program, superstep: Superstep, tally: Tally) -> None:
    """Add the pieces that must be put into one row: boxes of `one_row` fields from several tiles, once per tile.

    Vertices of a tile that read the same box of a variable share its row; boxes that differ, even if they overlap, get
    separate rows. Derived, as the vendor's compiler is closed: PopLibs (7eac0f2) says that data not laid out as the
    vertices need it is rearranged "on every tile that receives the data" (Convolution.cpp), makes one copy per tile of
    what its vertices share, and plans memory for one (DynamicSlice.cpp, `baseCopies`, `sliceTempBytes`).
    """
    arranging = [table for table in superstep.tables if any(item.one_row for item in table.codelet.fields)]
    for parts in by_tiles(arranging):
        wanted: dict[_Key, list[_Parts]] = {}
        for table, _ in parts:
            for item in table.codelet.fields:
                variable = program.variables[table.operands[item.name]]
                if item.one_row and not variable.mapping.is_replicated and table.vertices:
                    key = (variable.name, now_shift(item.box[0]) if takes_timestep(item) else None)
                    bounds = bounds_of(_boxes(superstep, table, item, variable))
                    wanted.setdefault(key, []).append((table.tiles, bounds))
        for (name, shift), rows_of in wanted.items():
            _count_rows(program.variables[name], shift is not None, *_joined(rows_of), tally)


def _count_rows(variable: Variable, drop: bool, tiles: np.ndarray, bounds: np.ndarray, tally: Tally) -> None:
    """Add the rows that hold these boxes of a variable, each once per tile."""
    _, one_of_each = equal_rows(np.vstack([tiles[None], bounds.reshape(-1, len(tiles))]))
    tiles, boxes = tiles[one_of_each], bounds.take(one_of_each, axis=2).transpose(2, 0, 1)
    pieces = _pieces(spatial_mapping(variable, drop), tiles, boxes, variable.shape[drop:])
    gathered = pieces > 1
    volume = np.prod(boxes[gathered, :, 1] - boxes[gathered, :, 0], axis=1, dtype=np.int64) * variable.item_bytes
    np.add.at(tally.total["fragments_arranged"], tiles[gathered], pieces[gathered])
    np.add.at(tally.total["bytes_arranged"], tiles[gathered], volume)


def _pieces(mapping: TileMapping, tiles: np.ndarray, boxes: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """int64[rows]: from how many pieces, each of one tile, a box is put together; copies count as one."""
    if mapping.axis == BANDED:
        found = np.zeros(len(tiles), np.int64)
        for (copy, *_), rows, on, inside in in_bands(mapping, tiles, boxes):
            found[rows] += _pieces(copy, on, inside, shape)
        return found
    if mapping.is_replicated:
        return np.ones(len(tiles), np.int64)
    row, mapping, _, runs = to_runs(mapping, tiles, boxes, shape)
    first = np.searchsorted(mapping.stops, runs[:, mapping.axis, 0], side="right")
    last = np.searchsorted(mapping.starts, runs[:, mapping.axis, 1], side="left")
    return np.bincount(row, weights=last - first, minlength=len(tiles)).astype(np.int64)
