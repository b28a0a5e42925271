"""Plan exchanges: what every superstep must deliver, and the bytes and fragments that makes at every tile.

Parts are cut where the sending tile changes. A piece that several tiles read is sent once; pieces that a tile holds
itself do not travel. Pieces of one tile that overlap without being equal are counted as sent separately.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from mimdsim.program import Delivery, Exchange, Program, Superstep, TileMapping, Variable
from mimdsim.program.mapping import FLAT
from mimdsim.program.rows import (
    boxes_of,
    distinct,
    first_of_each,
    is_local,
    spatial_mapping,
    spatial_shape,
    takes_timestep,
    to_runs,
)


def plan_exchanges(program: Program) -> Program:
    """The program with an exchange in every superstep whose vertices or copies need remote data."""
    changed: Program = program.map_supersteps(lambda superstep: _plan(program, superstep))
    return changed


def _plan(program: Program, superstep: Superstep) -> Superstep:
    tally = _Tally(program.tiles)
    deliveries: list[Delivery] = []
    for name, drop, tiles, boxes in _remote_reads(program, superstep):
        deliveries.append(Delivery(variable=name, tiles=tiles, boxes=boxes))
        tally.count(program.variables[name], drop, tiles, boxes)
    for copy in superstep.copies:
        source, target = program.variables[copy.source], program.variables[copy.target]
        drop = copy.source_shift is not None
        tiles, boxes = _copy_parts(source, target, drop, copy.target_shift is not None)
        deliveries.append(Delivery(variable=copy.source, tiles=tiles, boxes=boxes))
        tally.count(source, drop, tiles, boxes)
    if not deliveries:
        return replace(superstep, exchange=None)
    _count_arranged(program, superstep, tally.fragments_arranged)
    return replace(superstep, exchange=tally.exchange(tuple(deliveries)))


def _remote_reads(program: Program, superstep: Superstep) -> list[tuple[str, bool, np.ndarray, np.ndarray]]:
    """(variable, timestep axis dropped, tiles, boxes) of the distinct parts that are read away from home."""
    wanted: dict[tuple[str, bool], list[tuple[np.ndarray, np.ndarray]]] = {}
    for table in superstep.tables:
        for item in table.codelet.fields:
            if item.access != "read":
                continue
            variable = program.variables[table.operands[item.name]]
            boxes = boxes_of(table, item, variable)
            shape = spatial_shape(variable, item)
            mapping = spatial_mapping(variable, takes_timestep(item))
            remote = ~is_local(mapping, table.tiles, boxes, shape)
            if remote.any():
                key = (variable.name, takes_timestep(item))
                wanted.setdefault(key, []).append((table.tiles[remote], boxes[remote]))
    parts = []
    for (name, drop), rows in wanted.items():
        tiles = np.concatenate([part[0] for part in rows])
        boxes = np.concatenate([part[1] for part in rows])
        parts.append((name, drop, *distinct(tiles, boxes)))
    return parts


def _count_arranged(program: Program, superstep: Superstep, arranged: np.ndarray) -> None:
    """Add the pieces that must be put into one row, vertex by vertex: boxes of `one_row` fields from several tiles."""
    for table in superstep.tables:
        for item in table.codelet.fields:
            variable = program.variables[table.operands[item.name]]
            if not item.one_row or variable.mapping.is_replicated:
                continue
            shape = spatial_shape(variable, item)
            mapping = spatial_mapping(variable, takes_timestep(item))
            boxes = boxes_of(table, item, variable)
            row, mapping, _, runs = to_runs(mapping, table.tiles, boxes, shape)
            first = np.searchsorted(mapping.stops, runs[:, mapping.axis, 0], side="right")
            last = np.searchsorted(mapping.starts, runs[:, mapping.axis, 1], side="left")
            pieces = np.bincount(row, weights=last - first, minlength=table.vertices).astype(np.int64)
            np.add.at(arranged, table.tiles, np.where(pieces > 1, pieces, 0))


def _copy_parts(
    source: Variable, target: Variable, drop_source: bool, drop_target: bool
) -> tuple[np.ndarray, np.ndarray]:
    """What each tile of the target must receive."""
    shape = source.shape[1:] if drop_source else source.shape
    mapping = spatial_mapping(target, drop_target)
    whole = np.array([[0, extent] for extent in shape], np.int64)
    boxes = np.repeat(whole[None], len(mapping.tiles), axis=0)
    if mapping.axis == FLAT:
        raise ValueError(f"copy into '{target.name}': a flat mapping cannot be the target of a copy")
    if not mapping.is_replicated:
        boxes[:, mapping.axis, 0], boxes[:, mapping.axis, 1] = mapping.starts, mapping.stops
    return mapping.tiles, boxes


class _Tally:
    """Bytes and fragments at every tile."""

    def __init__(self, tiles: int):
        self.bytes_sent = np.zeros(tiles, np.int64)
        self.bytes_received = np.zeros(tiles, np.int64)
        self.fragments_sent = np.zeros(tiles, np.int64)
        self.fragments_received = np.zeros(tiles, np.int64)
        self.fragments_arranged = np.zeros(tiles, np.int64)

    def count(self, variable: Variable, drop: bool, tiles: np.ndarray, boxes: np.ndarray) -> None:
        """Add the parts `boxes` of `variable` wanted on `tiles`."""
        shape = variable.shape[1:] if drop else variable.shape
        mapping = spatial_mapping(variable, drop)
        if mapping.is_replicated:
            mapping = TileMapping.on(int(mapping.tiles[0]), 0, shape[0])
        _, mapping, tiles, boxes = to_runs(mapping, tiles, boxes, shape)
        tiles, boxes, interval = _cut_at_intervals(mapping, tiles, boxes)
        if not len(tiles):
            return
        runs = _runs_beside(boxes, shape if boxes.shape[1] == len(shape) else (int(np.prod(shape)),), mapping.axis)
        volume = np.prod(boxes[:, :, 1] - boxes[:, :, 0], axis=1, dtype=np.int64) * variable.item_bytes
        np.add.at(self.bytes_received, tiles, volume)
        np.add.at(self.fragments_received, tiles, runs)
        sent = first_of_each(boxes.reshape(len(boxes), -1))
        sender = mapping.tiles[interval[sent]]
        np.add.at(self.bytes_sent, sender, volume[sent])
        np.add.at(self.fragments_sent, sender, runs[sent])

    def exchange(self, deliveries: tuple[Delivery, ...]) -> Exchange:
        return Exchange(
            deliveries=deliveries,
            bytes_sent=self.bytes_sent,
            bytes_received=self.bytes_received,
            fragments_sent=self.fragments_sent,
            fragments_received=self.fragments_received,
            fragments_arranged=self.fragments_arranged,
        )


def _cut_at_intervals(
    mapping: TileMapping, tiles: np.ndarray, boxes: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(tiles, boxes, interval of the mapping) of the pieces, without those that the receiving tile holds itself."""
    axis = mapping.axis
    first = np.searchsorted(mapping.stops, boxes[:, axis, 0], side="right")
    count = np.searchsorted(mapping.starts, boxes[:, axis, 1], side="left") - first
    row = np.repeat(np.arange(len(boxes)), count)
    interval = first[row] + np.arange(len(row)) - np.repeat(np.cumsum(count) - count, count)
    away = mapping.tiles[interval] != tiles[row]
    row, interval = row[away], interval[away]
    pieces = boxes[row]
    pieces[:, axis, 0] = np.maximum(pieces[:, axis, 0], mapping.starts[interval])
    pieces[:, axis, 1] = np.minimum(pieces[:, axis, 1], mapping.stops[interval])
    return tiles[row], pieces, interval


def _runs_beside(boxes: np.ndarray, shape: tuple[int, ...], axis: int) -> np.ndarray:
    """int64[rows]: separate runs per interval of the mapped axis, whose own part counts as whole."""
    runs = np.ones(len(boxes), np.int64)
    joined = np.ones(len(boxes), bool)
    for other in range(boxes.shape[1] - 1, -1, -1):
        length = boxes[:, other, 1] - boxes[:, other, 0]
        whole = np.ones(len(boxes), bool) if other == axis else length == shape[other]
        extent = np.ones(len(boxes), np.int64) if other == axis else length
        runs = np.where(joined, runs, runs * extent)
        joined &= whole
    return runs
