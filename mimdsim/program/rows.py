"""Boxes of vertices as integer columns, and where their elements lie; for the verifier and the exchange planner."""

from __future__ import annotations

import math

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
    boxes = np.empty((len(shape), 2, table.vertices), np.int64).transpose(2, 0, 1)  # bounds lie together: used by axis
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
    last, runs = runs_of_boxes(boxes, shape)
    row = np.repeat(rows, runs)
    number = np.arange(len(row)) - np.repeat(np.cumsum(runs) - runs, runs)
    start = boxes[row, last, 0] * strides[last]
    for axis in range(last - 1, -1, -1):
        start += (boxes[row, axis, 0] + number % lengths[row, axis]) * strides[axis]
        number //= lengths[row, axis]
    stop = start + lengths[row, last] * strides[last]
    return row, along_elements, tiles[row], np.stack([start, stop], axis=1)[:, None, :]


def runs_of_boxes(boxes: np.ndarray, shape: tuple[int, ...]) -> tuple[int, np.ndarray]:
    """(the axis from which on all boxes are whole, int64[boxes] of runs of consecutive elements)."""
    lengths = boxes[:, :, 1] - boxes[:, :, 0]
    last = len(shape) - 1
    while last > 0 and bool((lengths[:, last] == shape[last]).all()):
        last -= 1
    return last, np.prod(lengths[:, :last], axis=1, dtype=np.int64)


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
    start, stop = runs[:, mapping.axis, 0], runs[:, mapping.axis, 1]
    at = np.maximum(np.searchsorted(mapping.starts, start, side="right") - 1, 0)
    begins_here = (mapping.tiles[at] == run_tiles) & (mapping.starts[at] <= start) & (start < mapping.stops[at])
    run_local = begins_here & (stop <= mapping.stops[at])
    # only a run that begins on its tile and goes on beyond the interval, or an empty one, needs a closer look
    open_still = np.flatnonzero((begins_here & ~run_local) | (stop <= start))
    if len(open_still):
        overlap = local_overlap(mapping, run_tiles[open_still], runs[open_still])
        run_local[open_still] = overlap >= (stop - start)[open_still]
    if len(row) == len(tiles):  # a run each
        return run_local
    local = np.ones(len(tiles), bool)
    local[row[~run_local]] = False
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
    found = _keys(rows)
    if found is None:
        chosen: np.ndarray = np.unique(rows, axis=0)
        return chosen
    keys, radix = found
    keys = np.sort(keys)
    keys = keys[np.append(True, keys[1:] != keys[:-1])] if len(keys) else keys
    distinct_rows = np.empty((len(keys), rows.shape[1]), rows.dtype)
    for column in range(rows.shape[1] - 1, -1, -1):
        keys, distinct_rows[:, column] = np.divmod(keys, radix[column])
    return distinct_rows


def first_of_each(rows: np.ndarray) -> np.ndarray:
    """Index of the first occurrence of every distinct row of a non-negative integer matrix, in lexicographic order."""
    found = _keys(rows)
    if found is None:
        by_rows: np.ndarray = np.unique(rows, axis=0, return_index=True)[1]
        return by_rows
    first: np.ndarray = np.unique(found[0], return_index=True)[1]
    return first


def _keys(rows: np.ndarray) -> tuple[np.ndarray, list[int]] | None:
    """(int64 keys in the lexicographic order of the rows, radix of every column), None where there are no such keys."""
    if not len(rows):
        return np.zeros(0, np.int64), [1] * rows.shape[1]
    if rows.min() < 0:
        return None
    radix = [int(extent) + 1 for extent in rows.max(axis=0)]
    if math.prod(radix) >= 2**63:
        return None
    keys = np.zeros(len(rows), np.int64)
    for column, extent in zip(rows.T, radix, strict=True):
        keys = keys * extent + column
    return keys, radix


def _join_runs(rows: np.ndarray, start: int) -> np.ndarray:
    """Join rows that differ only in [start, start+1] and touch or overlap there."""
    others = np.delete(rows, [start, start + 1], axis=1)
    found = _keys(np.column_stack([others, rows[:, start]]))
    order = np.lexsort((rows[:, start], *others.T[::-1])) if found is None else np.argsort(found[0], kind="stable")
    rows, others = rows[order], others[order]
    begins = np.ones(len(rows), bool)
    begins[1:] = np.any(others[1:] != others[:-1], axis=1)
    group = np.cumsum(begins)
    extent = int(rows[:, start + 1].max()) + 1
    reached = np.maximum.accumulate(group * extent + rows[:, start + 1])  # groups ascend: none reaches into the next
    begins[1:] |= group[1:] * extent + rows[1:, start] > reached[:-1]
    first = np.flatnonzero(begins)
    joined = rows[first].copy()
    last = np.append(first[1:], len(rows)) - 1
    joined[:, start + 1] = reached[last] - group[last] * extent
    return joined


def describe_box(variable: str, box: np.ndarray) -> str:
    """`w[0:32, 4:6]`"""
    parts = [f"{start}:{stop}" if stop - start != 1 else f"{start}" for start, stop in box.tolist()]
    return f"{variable}[{', '.join(parts)}]"
