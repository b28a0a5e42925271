"""Boxes in columns against their plain meaning, element by element."""

from __future__ import annotations

from itertools import pairwise, product

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from mimdsim.numerics.columns import boxes as numerics
from mimdsim.numerics.columns.exchange_fragments import are_apart
from mimdsim.numerics.columns.worker_load import number_alike
from mimdsim.program import TileMapping
from mimdsim.program.mapping import FLAT, Band
from mimdsim.program.vertex_boxes import bounds_of, distinct_boxes, equal_rows, is_local, order_of

TILES = 3
LAW = settings(max_examples=60, deadline=None)
SHAPES = st.tuples(st.integers(1, 4), st.integers(1, 5))
Row = tuple[int, tuple[tuple[int, int], ...]]


@st.composite
def boxes_on_tiles(draw: st.DrawFn) -> tuple[tuple[int, int], np.ndarray, np.ndarray]:
    """A shape, and boxes inside it on tiles; some are empty."""
    shape = draw(SHAPES)
    interval = [st.tuples(st.integers(0, extent), st.integers(0, extent)).map(sorted) for extent in shape]
    rows = draw(st.lists(st.tuples(st.integers(0, TILES - 1), *interval), min_size=1, max_size=12))
    tiles = np.array([row[0] for row in rows])
    return shape, tiles, np.array([row[1:] for row in rows], np.int64)


def elements(box: np.ndarray) -> set[tuple[int, ...]]:
    return set(product(*(range(start, stop) for start, stop in box.tolist())))


@LAW
@given(given=boxes_on_tiles(), axis=st.sampled_from([FLAT, 0, 1]), data=st.data())
def test_a_box_is_local_where_its_tile_holds_all_its_elements(
    given: tuple[tuple[int, int], np.ndarray, np.ndarray], axis: int, data: st.DataObject
) -> None:
    shape, tiles, boxes = given
    extent = shape[0] * shape[1] if axis == FLAT else shape[axis]
    owner = data.draw(st.lists(st.integers(-1, TILES - 1), min_size=extent, max_size=extent))  # -1: nobody holds it
    held = [index for index in range(extent) if owner[index] >= 0]
    index = np.array(held or [0])
    mapping = TileMapping(axis=axis, tiles=np.array(owner)[index], starts=index, stops=index + 1)
    if data.draw(st.booleans()):
        mapping = TileMapping.split(axis, mapping.tiles, mapping.starts, mapping.stops)
    for tile, box, local in zip(tiles.tolist(), boxes, is_local(mapping, tiles, boxes, shape), strict=True):
        along = [index[0] * shape[1] + index[1] if axis == FLAT else index[axis] for index in elements(box)]
        assert local == all(owner[number] == tile for number in along)


@LAW
@given(given=boxes_on_tiles(), along=st.sampled_from([0, 1]), data=st.data())
def test_a_box_is_local_where_its_tile_holds_it_in_some_copy_of_every_range(
    given: tuple[tuple[int, int], np.ndarray, np.ndarray], along: int, data: st.DataObject
) -> None:
    """Ranges of one axis, each with one to three copies spread along either axis."""
    shape, tiles, boxes = given
    edges = sorted({0, shape[along], *data.draw(st.lists(st.integers(0, shape[along])))})
    ranges = list(pairwise(edges))
    axis = data.draw(st.sampled_from([0, 1] if len(ranges) == 1 else [1 - along]))
    bands, holders = [], []
    for start, stop in ranges:
        owners = data.draw(
            st.lists(
                st.lists(st.integers(0, TILES - 1), min_size=shape[axis], max_size=shape[axis]), min_size=1, max_size=3
            )
        )
        holders.append(owners)
        index = np.arange(shape[axis])
        made = [TileMapping.split(axis, np.array(owner), index, index + 1) for owner in owners]
        bands += [Band(axis=along, start=start, stop=stop, mapping=one) for one in made]
    found = is_local(TileMapping.banded(tuple(bands)), tiles, boxes, shape)
    for tile, box, local in zip(tiles.tolist(), boxes, found, strict=True):
        inside = [[one for one in elements(box) if start <= one[along] < stop] for start, stop in ranges]
        assert local == all(
            any(all(owner[one[axis]] == tile for one in part) for owner in owners)
            for part, owners in zip(inside, holders, strict=True)
        )


@LAW
@given(given=boxes_on_tiles())
def test_boxes_said_to_be_apart_share_no_element(given: tuple[tuple[int, int], np.ndarray, np.ndarray]) -> None:
    bounds = bounds_of(given[2])
    different = bounds.take(equal_rows(bounds.reshape(4, -1))[1], axis=2)
    boxes = [elements(box) for box in different.transpose(2, 0, 1)]
    assert not are_apart(different) or sum(map(len, boxes)) == len(set().union(*boxes))


def test_boxes_of_a_grid_are_apart() -> None:
    grid = np.array([[[row, row + 2], [column, column + 3]] for row in (0, 2, 6) for column in (0, 5)], np.int64)
    assert are_apart(bounds_of(grid))
    assert not are_apart(bounds_of(np.concatenate([grid, [[[1, 2], [0, 3]]]])))
    far = 1 << 40  # apart too far for a place each: told by their order
    assert are_apart(bounds_of(np.array([[[0, 1]], [[far, far + 1]], [[0, 1]]])))
    assert not are_apart(bounds_of(np.array([[[0, far]], [[far - 1, far + 1]]])))
    assert not are_apart(bounds_of(np.array([[[0, far]], [[0, far + 1]]])))


@LAW
@given(given=boxes_on_tiles())
def test_distinct_boxes_ascend_and_hold_the_same_elements(
    given: tuple[tuple[int, int], np.ndarray, np.ndarray],
) -> None:
    _, tiles, boxes = given
    found, bounds = distinct_boxes(tiles, bounds_of(boxes))
    rows = np.column_stack([found, bounds[1].T, bounds[0].T]).tolist()
    assert rows == sorted(rows)
    for tile in range(TILES):
        wanted = set().union(*(elements(box) for box in boxes[tiles == tile]))
        assert set().union(*(elements(box) for box in bounds.transpose(2, 0, 1)[found == tile])) == wanted
    again = distinct_boxes(found, bounds)
    assert len(again[0]) <= len(found) <= len(set(map(tuple, np.column_stack([tiles, boxes.reshape(-1, 4)]).tolist())))


@LAW
@given(given=boxes_on_tiles(), split=st.integers(0, 12))
def test_a_box_is_delivered_where_one_box_sent_to_its_tile_contains_it(
    given: tuple[tuple[int, int], np.ndarray, np.ndarray], split: int
) -> None:
    _, tiles, boxes = given
    order = np.argsort(tiles[:split], kind="stable")
    owners, delivered = tiles[:split][order], boxes[:split][order]
    inside = numerics.contained_boxes(owners, bounds_of(delivered), tiles, bounds_of(boxes))
    for tile, box, found in zip(tiles, boxes, inside, strict=True):
        parts = delivered[owners == tile]
        assert found == any((part[:, 0] <= box[:, 0]).all() and (part[:, 1] >= box[:, 1]).all() for part in parts)


@LAW
@given(rows=st.lists(st.tuples(st.integers(-2, 3), st.sampled_from([0, 1, 2**40]), st.integers(0, 2**30)), max_size=20))
def test_rows_are_ordered_and_numbered_like_tuples_even_where_no_key_tells_them_apart(
    rows: list[tuple[int, int, int]],
) -> None:
    columns = np.array(rows, np.int64).reshape(-1, 3).T.copy()
    assert [rows[row] for row in order_of(columns, [0, 1, 2])] == sorted(rows)
    which, one_of_each = equal_rows(columns)
    different = sorted(set(rows))
    assert [rows[row] for row in one_of_each] == different
    assert [different[number] for number in which] == rows


@LAW
@given(stretches=st.lists(st.tuples(st.integers(0, 1), st.lists(st.sampled_from([0.0, -0.0, 1.5]), max_size=3))))
def test_stretches_are_alike_where_their_bits_are(stretches: list[tuple[int, list[float]]]) -> None:
    words = np.array([word for _, part in stretches for word in part], np.float64)
    begins = np.cumsum([0, *(len(part) for _, part in stretches)])
    before = np.array([number for number, _ in stretches], np.int64)
    numbers: dict[tuple[int, bytes], int] = {}
    wanted = [numbers.setdefault((b, np.array(part).tobytes()), len(numbers)) for b, part in stretches]
    found, first = number_alike(before, begins, words.view(np.int64))
    assert found.tolist() == wanted
    assert first.tolist() == [wanted.index(number) for number in range(len(numbers))]
