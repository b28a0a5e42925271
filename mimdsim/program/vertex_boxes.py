"""Boxes of vertices as integer columns, and the tiles of their elements; for the verifier and the exchange planner."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from mimdsim.base.compressed_columns import wide
from mimdsim.base.errors import MappingError
from mimdsim.numerics.columns import boxes as numerics
from mimdsim.numerics.columns import exchange_fragments
from mimdsim.program.codelet import Field
from mimdsim.program.mapping import BANDED, FLAT, PER_TIMESTEP, TileMapping, repeat_each
from mimdsim.program.records import Variable, VertexTable


def spatial_mapping(variable: Variable, drop_axis: bool) -> TileMapping:
    """The mapping with its axis counted without the timestep axis; raises MappingError if the timestep axis is the one
    spread over tiles."""
    mapping = variable.mapping
    if mapping.axis == PER_TIMESTEP:
        return _flat_mapping(mapping, variable.shape, drop_axis)
    if drop_axis and mapping.is_cut_along(0):
        raise MappingError(
            f"variable '{variable.name}' is spread over tiles along its timesteps, but one timestep of it is taken: "
            "spread it along another axis, or every timestep alike (PER_TIMESTEP)"
        )
    return mapping.without_axis if drop_axis else mapping


def _flat_mapping(mapping: TileMapping, shape: tuple[int, ...], drop_axis: bool) -> TileMapping:
    """A PER_TIMESTEP mapping as a FLAT one, of one timestep or of the whole sequence."""
    if drop_axis:
        return TileMapping(axis=FLAT, tiles=mapping.tiles, starts=mapping.starts, stops=mapping.stops)
    times, each = shape[0], int(np.prod(shape[1:], dtype=np.int64))
    offset = np.repeat(np.arange(times) * each, len(mapping.tiles))
    starts, stops = np.tile(mapping.starts, times) + offset, np.tile(mapping.stops, times) + offset
    return TileMapping.split(FLAT, np.tile(mapping.tiles, times), starts, stops)


def boxes_of(table: VertexTable, field: Field, variable: Variable) -> np.ndarray:
    """int64[vertices, axes, 2]: start and stop per axis (timestep axis left out) of what each vertex touches.

    Raises ValueError when the box does not have as many axes as the variable, names an absent column, or leaves no axis
    besides the timestep's: a vertex needs a part of a tensor, and could not write to a single number.
    """
    shape = variable.shape[field.shift is not None :]
    where = f"codelet '{table.codelet.name}', field '{field.name}'"
    if len(field.space) != len(shape):
        raise ValueError(f"{where}: box {field.box} does not have the {len(variable.shape)} axes of '{variable.name}'")
    if not shape:
        raise ValueError(
            f"{where}: box {field.box} leaves no axis of '{variable.name}' {list(variable.shape)}; "
            f"give the variable one more, of extent 1: {[*variable.shape, 1]}"
        )
    boxes = np.empty((len(shape), 2, table.vertices), np.int64).transpose(2, 0, 1)  # bounds are contiguous by axis
    for axis, (entry, extent) in enumerate(zip(field.space, shape, strict=True)):
        if entry == ":":
            boxes[:, axis] = 0, extent
            continue
        names = entry.split(":")
        absent = [name for name in names if name not in table.columns]
        if absent:
            raise ValueError(f"{where}: box entry '{entry}' needs the column(s) {absent}")
        boxes[:, axis, 0] = table.columns[names[0]]
        boxes[:, axis, 1] = table.columns[names[1]] if len(names) == 2 else boxes[:, axis, 0] + 1
    return boxes


def bounds_of(boxes: np.ndarray) -> np.ndarray:
    """int64[axes, 2, rows], contiguous: boxes in columns, as `boxes_of` lays them out."""
    return np.ascontiguousarray(boxes.transpose(1, 2, 0), np.int64)


def runs_of_boxes(boxes: np.ndarray, shape: tuple[int, ...]) -> tuple[int, np.ndarray]:
    """(the axis after which all boxes are whole, int64[boxes]: the number of runs of consecutive elements of each)."""
    lengths = boxes[:, :, 1] - boxes[:, :, 0]
    last = len(shape) - 1
    while last > 0 and bool((lengths[:, last] == shape[last]).all()):
        last -= 1
    return last, np.prod(lengths[:, :last], axis=1, dtype=np.int64)


def boxes_of_runs(mapping: TileMapping, shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """(tiles, boxes) of a FLAT mapping's intervals, cut where the last axis of `shape` ends."""
    width = shape[-1]
    first, last = mapping.starts // width, (mapping.stops - 1) // width
    run, number = repeat_each(last - first + 1)
    row = first[run] + number
    boxes = np.empty((len(run), len(shape), 2), np.int64)
    boxes[:, -1, 0] = np.maximum(mapping.starts[run] - row * width, 0)
    boxes[:, -1, 1] = np.minimum(mapping.stops[run] - row * width, width)
    for axis in range(len(shape) - 2, -1, -1):
        boxes[:, axis, 0] = row % shape[axis]
        boxes[:, axis, 1] = boxes[:, axis, 0] + 1
        row = row // shape[axis]
    return mapping.tiles[run], boxes


def boxes_on_tiles(mapping: TileMapping, shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """(tiles, int64[parts, axes, 2]): what each tile holds of a variable of `shape`, as few boxes as the mapping is
    made of; copies are listed with every tile that holds one."""
    if mapping.axis == FLAT:
        return boxes_of_runs(mapping, shape)
    if mapping.axis == BANDED:
        parts = [(band, *boxes_on_tiles(band.mapping, shape)) for band in mapping.bands]
        tiles = np.concatenate([tiles for _, tiles, _ in parts])
        return tiles, np.concatenate([band.clip(boxes) for band, _, boxes in parts])
    whole = np.array([[0, extent] for extent in shape], np.int64)
    boxes = np.repeat(whole[None], len(mapping.tiles), axis=0)
    if not mapping.is_replicated:
        boxes[:, mapping.axis, 0], boxes[:, mapping.axis, 1] = mapping.starts, mapping.stops
    return mapping.tiles, boxes


def distinct_boxes(tiles: np.ndarray, bounds: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The distinct (tile, box) rows in ascending order, runs along an axis joined, last axis first; boxes as bounds."""
    axes, _, rows = bounds.shape
    columns = np.vstack([tiles[None], bounds.reshape(2 * axes, rows)])
    for start in range(2 * axes - 1, 0, -2):
        others = [column for column in range(len(columns)) if column not in (start, start + 1)]
        columns = numerics.join_touching(columns, order_of(columns, [*others, start]), start)
        if (columns[0, 1:] > columns[0, :-1]).all():  # one row of each tile, and nothing left to join
            break
    return columns[0], columns[1:].reshape(axes, 2, -1)


def equal_rows(columns: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(int64[rows]: the number of each distinct row, one row of each), numbered in lexicographic order."""
    which, one_of_each = numerics.number_equal(columns, order_of(columns, list(range(len(columns)))))
    return which, one_of_each


def order_of(columns: np.ndarray, chosen: list[int]) -> np.ndarray:
    """int64[rows]: the rows of int64[columns, rows] in the order of the chosen columns, the first before the others."""
    if not columns.shape[1]:
        return np.zeros(0, np.int64)
    keys, ascending = numerics.keys_of(columns, np.array(chosen))
    if not len(keys):  # then two are less work than all columns
        halves = [numerics.keys_of(columns, np.array(part))[0] for part in np.array_split(chosen, 2)]
        return np.lexsort(halves[::-1] if all(map(len, halves)) else columns[chosen[::-1]])
    # vertices come in ascending runs, one per worker context or sample, which a stable sort merges
    return np.arange(len(keys)) if ascending else np.argsort(keys, kind="stable")


def describe_box(variable: str, box: np.ndarray) -> str:
    """`w[0:32, 4:6]`"""
    parts = [f"{start}:{stop}" if stop - start != 1 else f"{start}" for start, stop in box.tolist()]
    return f"{variable}[{', '.join(parts)}]"


def describe_element(variable: str, where: Sequence[int]) -> str:
    """`w[3, 7]`"""
    return f"{variable}[{', '.join(map(str, where))}]"


ROWS_AT_ONCE = 1 << 16
Part = tuple[VertexTable, np.ndarray]  # some vertices of a table, and their rows in it


def by_rows(table: VertexTable) -> Iterator[Part]:
    """The vertices of a table, in order; a table of few is its own only part."""
    if 0 < table.vertices <= ROWS_AT_ONCE:
        yield table, np.arange(table.vertices)
        return
    for first in range(0, table.vertices, ROWS_AT_ONCE):
        rows = slice(first, first + ROWS_AT_ONCE)
        yield table.some(rows), np.arange(*rows.indices(table.vertices))


def by_tiles(tables: Sequence[VertexTable]) -> Iterator[list[Part]]:
    """Parts of all tables, tiles after tiles: what vertices of a tile have in common is all in one of them."""
    if sum(table.vertices for table in tables) <= ROWS_AT_ONCE:
        yield [(table, np.arange(table.vertices)) for table in tables]
        return
    most = max(int(table.tiles.max(initial=0)) for table in tables) + 1
    counts = np.zeros(most, np.int64)
    for table in tables:
        counts += np.bincount(table.tiles, minlength=most)
    _, window = np.unique((np.cumsum(counts) - 1) // ROWS_AT_ONCE, return_inverse=True)
    window = window.astype(np.uint16)  # which numpy sorts digit by digit
    found = [_in_windows(table, window[table.tiles], int(window[-1]) + 1) for table in tables]
    for number in range(int(window[-1]) + 1):
        yield [
            (table.some(slice(*ends[number : number + 2])), rows[slice(*ends[number : number + 2])])
            for table, rows, ends in found
        ]


def _in_windows(table: VertexTable, window: np.ndarray, windows: int) -> tuple[VertexTable, np.ndarray, list[int]]:
    """(vertices in the order of their windows, their rows, where each window begins, and the end); window: of each."""
    ends = [0, *np.cumsum(np.bincount(window, minlength=windows)).tolist()]
    if (window[1:] >= window[:-1]).all():
        return table, np.arange(table.vertices), ends
    rows = np.argsort(window, kind="stable")
    return table.some(rows), rows, ends


def cut_at_bands(
    mapping: TileMapping, tiles: np.ndarray, boxes: np.ndarray
) -> Iterator[tuple[tuple[TileMapping, ...], np.ndarray, np.ndarray, np.ndarray]]:
    """(mappings of the copies of a range, rows that touch it, their tiles, what of their boxes is in it)."""
    ranges = tuple(mapping.ranges())
    bounds, apart = bounds_of(boxes), np.zeros(len(boxes), np.int64)
    begins, stops = mapping.columns.edges
    row, within, inside = exchange_fragments.cut_at_ranges(bounds, mapping.bands[0].axis, begins, stops, apart, 0)
    order = np.argsort(within, kind="stable")
    row, within, inside = row[order], within[order], inside.take(order, axis=2)
    ends = np.searchsorted(within, np.arange(len(ranges)), side="right").tolist()
    for copies, begin, end in zip(ranges, [0, *ends], ends, strict=False):
        if begin < end:
            rows = row[begin:end]
            yield (
                tuple(band.mapping for band in copies),
                rows,
                tiles[rows],
                inside[:, :, begin:end].transpose(2, 0, 1),
            )


def is_local(mapping: TileMapping, tiles: np.ndarray, boxes: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """bool[rows]: whether every element of the box, if there is one, lies on the row's own tile."""
    if mapping.axis == BANDED:
        apart = mapping.side_by_side(shape)
        if apart is not None:
            return apart.holds(tiles, bounds_of(boxes), shape)
        in_all = np.ones(len(tiles), bool)
        for copies, rows, on, inside in cut_at_bands(mapping, tiles, boxes):
            in_all[rows] &= np.any([is_local(copy, on, inside, shape) for copy in copies], axis=0)
        return in_all
    if mapping.is_replicated:
        held: np.ndarray = np.isin(tiles, mapping.tiles)
        return held if held.all() else held | (boxes[:, :, 1] <= boxes[:, :, 0]).any(axis=1)
    by_tile = numerics.intervals_by_tile(mapping.tiles)
    axis = -1 if mapping.axis == FLAT else mapping.axis
    given = axis, np.array(shape, np.int64), wide(tiles), bounds_of(boxes)
    return np.asarray(numerics.local_boxes(mapping.tiles, mapping.starts, mapping.stops, by_tile, *given))
