"""Boxes of vertices as integer columns, and where their elements lie; for the verifier and the exchange planner."""

from __future__ import annotations

import numpy as np

from mimdsim.program.codelet import Field, now_shift
from mimdsim.program.mapping import FLAT, PER_TIMESTEP, TileMapping
from mimdsim.program.records import Variable, VertexTable


def takes_timestep(field: Field) -> bool:
    """Whether the field indexes the variable's first axis by the current timestep."""
    return bool(field.box) and now_shift(field.box[0]) is not None


def spatial_shape(variable: Variable, field: Field) -> tuple[int, ...]:
    """The variable's shape without a timestep axis taken by the field."""
    return variable.shape[1:] if takes_timestep(field) else variable.shape


def spatial_mapping(variable: Variable, drop_axis: bool) -> TileMapping:
    """The mapping with its axis counted without the timestep axis."""
    mapping = variable.mapping
    if mapping.axis == PER_TIMESTEP:
        return _flat_mapping(mapping, variable.shape, drop_axis)
    if not drop_axis or mapping.axis < 0:
        return mapping
    return TileMapping(axis=mapping.axis - 1, tiles=mapping.tiles, starts=mapping.starts, stops=mapping.stops)


def _flat_mapping(mapping: TileMapping, shape: tuple[int, ...], drop_axis: bool) -> TileMapping:
    """A PER_TIMESTEP mapping as a FLAT one: of one timestep, or of the whole sequence."""
    if drop_axis:
        return TileMapping(axis=FLAT, tiles=mapping.tiles, starts=mapping.starts, stops=mapping.stops)
    times, each = shape[0], int(np.prod(shape[1:], dtype=np.int64))
    offset = np.repeat(np.arange(times) * each, len(mapping.tiles))
    starts, stops = np.tile(mapping.starts, times) + offset, np.tile(mapping.stops, times) + offset
    return TileMapping.split(FLAT, np.tile(mapping.tiles, times), starts, stops)


def boxes_of(table: VertexTable, field: Field, variable: Variable) -> np.ndarray:
    """int64[vertices, axes, 2]: start and stop per axis (timestep axis left out) of what each vertex touches.

    Raises ValueError when the box has another number of axes than the variable or names an absent column.
    """
    entries = field.box[1:] if takes_timestep(field) else field.box
    shape = spatial_shape(variable, field)
    where = f"codelet '{table.codelet.name}', field '{field.name}'"
    if len(entries) != len(shape):
        raise ValueError(f"{where}: box {field.box} has not the {len(variable.shape)} axes of '{variable.name}'")
    boxes = np.empty((table.vertices, len(shape), 2), np.int64)
    for axis, (entry, extent) in enumerate(zip(entries, shape, strict=True)):
        if entry == ":":
            boxes[:, axis] = 0, extent
            continue
        names = entry.split(":")
        absent = [name for name in names if name not in table.columns]
        if absent:
            raise ValueError(f"{where}: box entry '{entry}' needs the column(s) {absent}")
        start = table.columns[names[0]]
        boxes[:, axis, 0] = start
        boxes[:, axis, 1] = table.columns[names[1]] if len(names) == 2 else start + 1
    return boxes


def to_runs(
    mapping: TileMapping, tiles: np.ndarray, boxes: np.ndarray, shape: tuple[int, ...]
) -> tuple[np.ndarray, TileMapping, np.ndarray, np.ndarray]:
    """(row of each run, mapping, tiles, boxes) for a FLAT mapping: every box cut into runs of consecutive elements.

    Other mappings come back as they are, one run per row.
    """
    rows = np.arange(len(tiles))
    if mapping.axis != FLAT:
        return rows, mapping, tiles, boxes
    along_elements = TileMapping(axis=0, tiles=mapping.tiles, starts=mapping.starts, stops=mapping.stops)
    strides = np.array([int(np.prod(shape[axis + 1 :], dtype=np.int64)) for axis in range(len(shape))])
    lengths = boxes[:, :, 1] - boxes[:, :, 0]
    last = len(shape) - 1
    while last > 0 and bool((lengths[:, last] == shape[last]).all()):
        last -= 1
    runs = np.prod(lengths[:, :last], axis=1, dtype=np.int64)
    row = np.repeat(rows, runs)
    number = np.arange(len(row)) - np.repeat(np.cumsum(runs) - runs, runs)
    start = boxes[row, last, 0] * strides[last]
    for axis in range(last - 1, -1, -1):
        start += (boxes[row, axis, 0] + number % lengths[row, axis]) * strides[axis]
        number //= lengths[row, axis]
    stop = start + lengths[row, last] * strides[last]
    return row, along_elements, tiles[row], np.stack([start, stop], axis=1)[:, None, :]


def boxes_of_runs(mapping: TileMapping, shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """(tiles, boxes) of a FLAT mapping's intervals, cut where the last axis of `shape` ends."""
    width = shape[-1]
    first, last = mapping.starts // width, (mapping.stops - 1) // width
    count = last - first + 1
    run = np.repeat(np.arange(len(count)), count)
    row = first[run] + np.arange(len(run)) - np.repeat(np.cumsum(count) - count, count)
    boxes = np.empty((len(run), len(shape), 2), np.int64)
    boxes[:, -1, 0] = np.maximum(mapping.starts[run] - row * width, 0)
    boxes[:, -1, 1] = np.minimum(mapping.stops[run] - row * width, width)
    for axis in range(len(shape) - 2, -1, -1):
        boxes[:, axis, 0] = row % shape[axis]
        boxes[:, axis, 1] = boxes[:, axis, 0] + 1
        row = row // shape[axis]
    return mapping.tiles[run], boxes


def local_overlap(mapping: TileMapping, tiles: np.ndarray, boxes: np.ndarray) -> np.ndarray:
    """int64[rows]: how many indices of each box along the mapped axis lie on the row's own tile."""
    if mapping.is_replicated:
        holds = np.isin(tiles, mapping.tiles)
        return np.where(holds, np.iinfo(np.int64).max, 0)
    order = np.argsort(mapping.tiles, kind="stable")
    owner, starts, stops = mapping.tiles[order], mapping.starts[order], mapping.stops[order]
    before = np.concatenate([[0], np.cumsum(stops - starts)])  # indices held by the intervals before each one
    extent = int(max(stops.max(initial=0), boxes[:, mapping.axis].max(initial=0))) + 1
    keys = owner * extent + starts
    first = np.searchsorted(owner, tiles, side="left")

    def held_below(bound: np.ndarray) -> np.ndarray:
        """How many indices under `bound` lie on the row's own tile."""
        at = np.searchsorted(keys, tiles * extent + bound, side="right") - 1
        inside = at >= first
        at = np.maximum(at, 0)
        part = np.minimum(bound, stops[at]) - starts[at]
        return np.where(inside, before[at] - before[np.minimum(first, len(owner))] + part, 0)

    overlap: np.ndarray = held_below(boxes[:, mapping.axis, 1]) - held_below(boxes[:, mapping.axis, 0])
    return overlap


def is_local(mapping: TileMapping, tiles: np.ndarray, boxes: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """bool[rows]: whether every element of the box lies on the row's own tile."""
    if mapping.is_replicated:
        return local_overlap(mapping, tiles, boxes) > 0
    row, mapping, run_tiles, runs = to_runs(mapping, tiles, boxes, shape)
    wanted = runs[:, mapping.axis, 1] - runs[:, mapping.axis, 0]
    local = np.ones(len(tiles), bool)
    np.logical_and.at(local, row, local_overlap(mapping, run_tiles, runs) >= wanted)
    return local


def distinct(tiles: np.ndarray, boxes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The distinct (tile, box) rows in ascending order, runs along an axis joined, last axis first."""
    if not len(tiles):
        return tiles, boxes
    rows = np.column_stack([tiles, boxes.reshape(len(tiles), -1)])
    rows = sorted_unique(rows)
    axes = boxes.shape[1]
    for axis in range(axes - 1, -1, -1):
        rows = _join_runs(rows, 1 + 2 * axis)
    return rows[:, 0], rows[:, 1:].reshape(-1, axes, 2)


def sorted_unique(rows: np.ndarray) -> np.ndarray:
    """Distinct rows of a non-negative integer matrix in lexicographic order."""
    chosen: np.ndarray = rows[first_of_each(rows)]
    return chosen


def first_of_each(rows: np.ndarray) -> np.ndarray:
    """Index of the first occurrence of every distinct row of a non-negative integer matrix, in lexicographic order."""
    if not len(rows):
        return np.zeros(0, np.int64)
    radix = rows.max(axis=0).astype(object) + 1
    total = 1
    for extent in radix:
        total *= int(extent)
    if total < 2**63:
        keys = np.zeros(len(rows), np.int64)
        for column, extent in zip(rows.T, radix, strict=True):
            keys = keys * int(extent) + column
        first: np.ndarray = np.unique(keys, return_index=True)[1]
        return first
    by_rows: np.ndarray = np.unique(rows, axis=0, return_index=True)[1]
    return by_rows


def _join_runs(rows: np.ndarray, start: int) -> np.ndarray:
    """Join rows that differ only in [start, start+1] and touch there."""
    others = np.delete(rows, [start, start + 1], axis=1)
    order = np.lexsort((rows[:, start], *others.T[::-1]))
    rows, others = rows[order], others[order]
    begins = np.ones(len(rows), bool)
    begins[1:] = np.any(others[1:] != others[:-1], axis=1) | (rows[1:, start] != rows[:-1, start + 1])
    first = np.flatnonzero(begins)
    joined = rows[first].copy()
    joined[:, start + 1] = rows[np.append(first[1:], len(rows)) - 1, start + 1]
    return joined


def describe_box(variable: str, box: np.ndarray) -> str:
    """`w[0:32, 4:6]`"""
    parts = [f"{start}:{stop}" if stop - start != 1 else f"{start}" for start, stop in box.tolist()]
    return f"{variable}[{', '.join(parts)}]"
