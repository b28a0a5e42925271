"""Mappings in bands: what lies where, and that every rule of programs treats them as the boxes that they are."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from networks import SEEDS, SMALL

from mimdsim.program import Codelet, Delivery, Field, Program, Superstep, TileMapping, Variable, VertexTable, verify
from mimdsim.program.codelet import WorkerBundles
from mimdsim.program.exchange_traffic import ExchangeCounter
from mimdsim.program.exchanges import plan_exchanges
from mimdsim.program.mapping import FLAT, Band
from mimdsim.program.messages import messages_of
from mimdsim.program.vertex_boxes import boxes_on_tiles, is_local

ROWS, COLUMNS, TILES = 7, 9, 6


def drawn_bands(draw: np.random.Generator, copies: bool) -> TileMapping:
    """Of [ROWS, COLUMNS], cut along either axis; each band along the other one over tiles of its own."""
    axis = int(draw.integers(2))
    extents = (ROWS, COLUMNS)
    edges = np.unique([0, extents[axis], *draw.integers(1, extents[axis], 2)])
    bands = []
    for start, stop in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
        for _ in range(int(draw.integers(1, 3)) if copies else 1):
            cuts = np.unique([0, extents[1 - axis], *draw.integers(1, extents[1 - axis], 2)])
            tiles = draw.permutation(TILES)[: len(cuts) - 1]
            mapping = TileMapping.split(1 - axis, tiles, cuts[:-1], cuts[1:])
            bands.append(Band(axis=axis, start=start, stop=stop, mapping=mapping))
    return TileMapping.banded(tuple(bands))


def holders(mapping: TileMapping) -> np.ndarray:
    """bool[TILES, ROWS, COLUMNS], element by element."""
    held = np.zeros((TILES, ROWS, COLUMNS), bool)
    for tile, box in zip(*boxes_on_tiles(mapping, (ROWS, COLUMNS)), strict=True):
        held[tile, box[0, 0] : box[0, 1], box[1, 0] : box[1, 1]] = True
    return held


@SMALL
@given(seed=SEEDS, copies=st.booleans())
def test_bands_hold_what_their_boxes_say(seed: int, copies: bool) -> None:
    draw = np.random.default_rng(seed)
    mapping = drawn_bands(draw, copies)
    held = holders(mapping)
    assert held.any(axis=0).all()
    assert mapping.has_copies == bool((held.sum(axis=0) > 1).any()) or copies  # a copy may lie on the same tile
    bytes_held = mapping.bytes_by_tile((ROWS, COLUMNS), 4, TILES)
    if not copies:
        np.testing.assert_array_equal(bytes_held, held.sum(axis=(1, 2)) * 4)
    low, high = draw.integers(0, (ROWS, COLUMNS), (20, 2)), draw.integers(0, (ROWS + 1, COLUMNS + 1), (20, 2))
    boxes = np.stack([np.minimum(low, high), np.maximum(low, high)], axis=2)
    tiles = draw.integers(0, TILES, 20)
    expected = [
        held[tile, box[0, 0] : box[0, 1], box[1, 0] : box[1, 1]].all() for tile, box in zip(tiles, boxes, strict=True)
    ]
    local = is_local(mapping, tiles, boxes, (ROWS, COLUMNS))
    assert (local <= np.array(expected)).all()
    if not copies:  # parts of different copies on one tile do not count as one
        np.testing.assert_array_equal(local, expected)


@SMALL
@given(seed=SEEDS)
def test_an_exchange_counts_bands_as_the_same_elements_one_by_one(seed: int) -> None:
    """Against a FLAT mapping of the same elements: bytes sent and received, and messages."""
    draw = np.random.default_rng(seed)
    mapping = drawn_bands(draw, copies=False)
    flat = TileMapping.of_boxes(*boxes_on_tiles(mapping, (ROWS, COLUMNS)), (ROWS, COLUMNS), FLAT)
    low, high = draw.integers(0, (ROWS, COLUMNS), (5, 2)), draw.integers(1, (ROWS + 1, COLUMNS + 1), (5, 2))
    boxes = np.stack([np.minimum(low, high - 1), high], axis=2)
    tiles = draw.integers(0, TILES, 5)
    found = []
    for one in (mapping, flat):
        variable = Variable(name="x", shape=(ROWS, COLUMNS), dtype="float32", mapping=one)
        tally = ExchangeCounter(TILES)
        tally.count(variable, False, tiles, boxes)
        exchange = tally.exchange((Delivery(variable="x", tiles=tiles, boxes=boxes),))
        program = Program(tiles=TILES, variables={"x": variable}, body=())
        messages = messages_of(program, exchange)
        assert messages is not None
        found.append((tally.total["bytes_sent"], tally.total["bytes_received"], messages.size_bytes.sum()))
    np.testing.assert_array_equal(found[0][0], found[1][0])
    np.testing.assert_array_equal(found[0][1], found[1][1])
    assert found[0][2] == found[1][2]


@SMALL
@given(seed=SEEDS, chips=st.sampled_from([1, 2]))
def test_messages_bring_what_is_counted_as_received_of_the_nearest_copies(seed: int, chips: int) -> None:
    draw = np.random.default_rng(seed)
    mapping = drawn_bands(draw, copies=True)
    low, high = draw.integers(0, (ROWS, COLUMNS), (5, 2)), draw.integers(1, (ROWS + 1, COLUMNS + 1), (5, 2))
    boxes = np.stack([np.minimum(low, high - 1), high], axis=2)
    tiles = draw.permutation(TILES)[:5]
    variable = Variable(name="x", shape=(ROWS, COLUMNS), dtype="float32", mapping=mapping)
    tally = ExchangeCounter(TILES, chips)
    tally.count(variable, False, tiles, boxes)
    exchange = tally.exchange((Delivery(variable="x", tiles=tiles, boxes=boxes),))
    messages = messages_of(Program(tiles=TILES, chips=chips, variables={"x": variable}, body=()), exchange)
    assert messages is not None
    size = np.repeat(messages.size_bytes, np.diff(messages.first))
    received = np.bincount(messages.reader, weights=size, minlength=TILES)
    if exchange.link_bytes is None:
        np.testing.assert_array_equal(received, tally.total["bytes_received"])
    else:  # what comes over links is no message on the chip
        assert (received <= tally.total["bytes_received"]).all()


def doubled(x: np.ndarray, y: np.ndarray, row: np.ndarray, start: np.ndarray, stop: np.ndarray) -> None:
    for r, low, high in zip(row, start, stop, strict=True):
        y[r, low:high] = 2 * x[r, low:high]


BOX = ("row", "start:stop")
DOUBLE = Codelet(
    name="Double",
    fields=(Field(name="x", access="read", box=BOX), Field(name="y", access="write", box=BOX)),
    compute=doubled,
    cost=WorkerBundles(fixed=1, terms=(), kind="assumed", source="a test"),
)


def doubling(y_mapping: TileMapping, tiles: np.ndarray) -> Program:
    """y = 2 x row by row on `tiles`; x on tile 0."""
    x = Variable(
        name="x", shape=(4, 6), dtype="float32", mapping=TileMapping.on(0, 0, 4), values=np.ones((4, 6), np.float32)
    )
    y = Variable(name="y", shape=(4, 6), dtype="float32", mapping=y_mapping)
    rows = np.arange(4)
    columns = {"row": rows, "start": np.zeros(4, np.int64), "stop": np.full(4, 6)}
    table = VertexTable(codelet=DOUBLE, tiles=tiles, operands={"x": "x", "y": "y"}, columns=columns)
    step = Superstep(name="double", op="double", phase="forward", stage="double", tables=(table,))
    return Program(tiles=3, variables={"x": x, "y": y}, body=(step,), outputs={"y": "y"})


def whole(tile: int, axis: int = 1, extent: int = 6) -> TileMapping:
    return TileMapping.on(tile, axis, extent)


def test_writes_are_local_to_the_band_and_never_to_copies() -> None:
    bands = TileMapping.banded(
        (Band(axis=0, start=0, stop=2, mapping=whole(1)), Band(axis=0, start=2, stop=4, mapping=whole(2)))
    )
    assert verify(plan_exchanges(doubling(bands, np.array([1, 1, 2, 2]))), 3) == ()
    (problem,) = verify(plan_exchanges(doubling(bands, np.array([1, 1, 1, 2]))), 3)
    assert "writes y[2, 0:6], which lies on tile 2" in problem.message
    copies = TileMapping.banded(tuple(Band(axis=0, start=0, stop=4, mapping=whole(tile)) for tile in (1, 2)))
    (problem,) = verify(plan_exchanges(doubling(copies, np.array([1, 1, 2, 2]))), 3)
    assert "writes one replica of 'y', which 2 tiles hold" in problem.message


@pytest.mark.parametrize(
    ("bands", "said"),
    [
        (((0, 0, 2), (0, 3, 4)), "lacks a tile for 2 to 2 of its 4 indices of axis 0"),
        (((0, 0, 2), (0, 2, 5)), "is mapped from 0 to 5, it has 4 indices of axis 0"),
        (((2, 0, 2), (2, 2, 4)), "is cut into bands along axis 2, its shape"),
        (((1, 0, 2), (1, 2, 6)), "has bands along axis 1 that are spread along it"),
    ],
)
def test_what_bands_leave_out_is_found(bands: tuple[tuple[int, int, int], ...], said: str) -> None:
    made = TileMapping.banded(
        tuple(Band(axis=axis, start=start, stop=stop, mapping=whole(1)) for axis, start, stop in bands)
    )
    (problem,) = verify(doubling(made, np.array([1, 1, 1, 1])), 3)
    assert said in problem.message


def test_bands_that_overlap_are_refused() -> None:
    for ranges in (((0, 3), (2, 4)), ((2, 4), (0, 2))):
        with pytest.raises(ValueError, match=r"bands .* must ascend along one axis; only equal ones may overlap"):
            TileMapping.banded(tuple(Band(axis=0, start=low, stop=high, mapping=whole(1)) for low, high in ranges))
