"""What odd programs by hand move and cost: replicas, element-wise mappings, timesteps, empty parts, wrong columns."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mimdsim.base.errors import MappingError
from mimdsim.compiler import plan_exchanges
from mimdsim.program import (
    Codelet,
    Copy,
    Exchange,
    Field,
    Hits,
    Program,
    RecordedActivity,
    Repeat,
    Spikes,
    SpikesOver,
    Superstep,
    Term,
    TileMapping,
    Variable,
    VertexTable,
    WorkerBundles,
)
from mimdsim.program.mapping import FLAT
from mimdsim.timing import program_loads
from mimdsim.timing.tile_cycles import TileIssue

ISSUE = TileIssue(contexts=2, issue_cycles=2, vector_bytes=8, arrange_fragment_bundles=0)


def cost(*terms: Term) -> WorkerBundles:
    return WorkerBundles(fixed=1, terms=terms, kind="assumed", source="a test")


def reader(
    *boxes: tuple[str, ...], columns: dict[str, list[int]] | None = None, tiles: list[int], one_row: bool = False
) -> VertexTable:
    """Vertices on `tiles` that read the boxes of x and write nothing."""
    fields = tuple(
        Field(name=f"part{number}", access="read", box=box, one_row=one_row) for number, box in enumerate(boxes)
    )
    codelet = Codelet(name="Read", fields=fields, columns=(), compute=lambda *_: None, cost=cost())
    given = {name: np.array(column) for name, column in (columns or {}).items()}
    operands = {item.name: "x" for item in fields}
    return VertexTable(codelet=codelet, layer="", tiles=np.array(tiles), operands=operands, columns=given)


def planned(
    shape: tuple[int, ...], mapping: TileMapping, *tables: VertexTable, copies: tuple[Copy, ...] = (), chips: int = 1
) -> Exchange | None:
    """The exchange of one superstep on four tiles; x has 4 bytes an element, y is spread like it."""
    step = Superstep(name="s", op="", phase="forward", stage="s", tables=tables, copies=copies)
    variables = {
        name: Variable(name=name, shape=shape, dtype="float32", mapping=mapping, category="gradients") for name in "xy"
    }
    body = (Repeat(times=shape[0], body=(step,)),)
    made = Program(tiles=4, variables=variables, body=body, layers=(), inputs={}, outputs={}, chips=chips)
    ((superstep, _, _),) = plan_exchanges(made).supersteps()
    return superstep.exchange


def moved(exchange: Exchange | None, column: str) -> dict[int, int]:
    assert exchange is not None
    counts = zip(exchange.tiles.tolist(), exchange.column(column).tolist(), strict=True)
    return {tile: count for tile, count in counts if count}


def test_who_holds_a_replica_is_sent_none() -> None:
    exchange = planned((2,), TileMapping.replicated(np.array([0, 1])), copies=(Copy(source="x", target="y"),))
    assert moved(exchange, "bytes_sent") == moved(exchange, "bytes_received") == {}


def test_a_replica_is_sent_once_however_many_chips_listen() -> None:
    tables = reader(("first:last",), columns={"first": [0, 0, 0], "last": [4, 4, 4]}, tiles=[1, 2, 3])
    here = planned((4,), TileMapping.on(0, 0, 4), tables, chips=2)
    replicated = planned((4,), TileMapping.replicated(np.array([0])), tables, chips=2)
    for column in ("bytes_sent", "fragments_sent", "bytes_received"):
        assert moved(replicated, column) == moved(here, column)
    assert moved(replicated, "bytes_sent") == {0: 16}
    both = planned((4,), TileMapping.replicated(np.array([0, 3])), tables, chips=2)
    assert moved(both, "bytes_sent") == {0: 16, 3: 16}


def test_pieces_are_counted_for_each_chip_that_wants_them() -> None:
    """Chips of two tiles: one wants four elements of tile 0 on both its tiles, one two halves of them."""
    table = reader(("first:last",), columns={"first": [0, 0, 0, 2], "last": [4, 4, 2, 4]}, tiles=[2, 3, 4, 5])
    step = Superstep(name="s", op="", phase="forward", stage="s", tables=(table,))
    held = Variable(name="x", shape=(4,), dtype="float32", mapping=TileMapping.on(0, 0, 4), category="gradients")
    made = Program(tiles=6, variables={"x": held}, body=(step,), layers=(), inputs={}, outputs={}, chips=3)
    ((superstep, _, _),) = plan_exchanges(made).supersteps()
    exchange = superstep.exchange
    assert exchange is not None
    assert exchange.link_pieces is not None
    assert exchange.link_bytes is not None
    assert exchange.link_pieces.tolist() == [[[0, 1, 2], [0, 0, 0], [0, 0, 0]]]
    assert exchange.link_bytes[0].tolist() == [0, 16, 16]


def test_what_one_tile_reads_does_not_depend_on_what_another_reads() -> None:
    rows = {"row": [0, 0], "rows": [4, 1], "first": [0, 0], "last": [8, 4]}
    mapping = TileMapping.on(0, FLAT, 32)
    table = reader(("row:rows", "first:last"), columns=rows, tiles=[1, 2])
    exchange = planned((4, 8), mapping, table)
    assert moved(exchange, "fragments_received") == {1: 1, 2: 1}


@pytest.mark.parametrize("mapping", [TileMapping.on(0, axis, size) for axis, size in ((FLAT, 32), (0, 4), (1, 8))])
def test_fragments_are_runs_however_the_mapping_is_written(mapping: TileMapping) -> None:
    """A tile holds 4 rows of 8: a column is 4 runs, two whole rows are one, parts of two rows two."""
    boxes = {"row": [0, 0, 1], "rows": [4, 2, 3], "first": [5, 0, 2], "last": [6, 8, 7]}
    table = reader(("row:rows", "first:last"), columns=boxes, tiles=[1, 2, 3], one_row=True)
    exchange = planned((4, 8), mapping, table)
    assert moved(exchange, "fragments_received") == {1: 4, 2: 1, 3: 2}
    assert moved(exchange, "fragments_arranged") == {1: 4, 3: 2}


def test_two_timesteps_of_one_part_are_two_messages() -> None:
    mapping = TileMapping.on(0, 1, 4)
    exchange = planned((3, 4), mapping, reader(("@t", ":"), ("@t-1", ":"), tiles=[1]))
    assert moved(exchange, "bytes_received") == {1: 32}
    assert moved(planned((3, 4), mapping, reader(("@t", ":"), ("@t", ":"), tiles=[1])), "bytes_received") == {1: 16}


SPREAD = TileMapping.evenly(1, 4, np.arange(4))  # four columns, one on every tile


@pytest.mark.parametrize("mapping", [SPREAD, TileMapping.evenly(FLAT, 32, np.arange(4))])
def test_vertices_of_a_tile_that_read_one_box_share_its_row(mapping: TileMapping) -> None:
    """As it arrives once, so it is copied into a row once, for all fields and tables; on another tile once more."""
    one = reader((":", ":"), tiles=[1], one_row=True)
    four = reader((":", ":"), tiles=[1] * 4, one_row=True)
    apart = reader((":", ":"), tiles=[1, 2], one_row=True)
    twice = reader((":", ":"), (":", ":"), tiles=[1], one_row=True)
    pieces = moved(planned((8, 4), mapping, one), "fragments_arranged")
    assert set(pieces) == {1}
    assert pieces[1] > 1
    for same in ((four,), (twice,), (one, four)):
        exchange = planned((8, 4), mapping, *same)
        assert moved(exchange, "fragments_arranged") == pieces
        assert moved(exchange, "bytes_arranged") == {1: 8 * 4 * 4}
    assert moved(planned((8, 4), mapping, apart), "bytes_arranged") == {1: 8 * 4 * 4, 2: 8 * 4 * 4}


def test_boxes_that_differ_are_rows_of_their_own_even_where_they_overlap() -> None:
    columns = {"first": [0, 0, 1, 0], "last": [3, 3, 4, 4]}  # two alike, two others
    exchange = planned((8, 4), SPREAD, reader((":", "first:last"), columns=columns, tiles=[1] * 4, one_row=True))
    assert moved(exchange, "bytes_arranged") == {1: 8 * 4 * (3 + 3 + 4)}
    assert moved(exchange, "fragments_arranged") == {1: 3 + 3 + 4}
    timesteps = reader(("@t", ":"), ("@t-1", ":"), ("@t", ":"), tiles=[1], one_row=True)
    assert moved(planned((8, 4), SPREAD, timesteps), "bytes_arranged") == {1: 2 * 4 * 4}


@pytest.mark.parametrize("axis", [0, FLAT])
def test_a_timestep_of_what_lies_spread_along_timesteps_is_refused(axis: int) -> None:
    each = np.arange(4) * (1 if axis == 0 else 8)
    mapping = TileMapping.split(axis, np.arange(4), each, each + (1 if axis == 0 else 8))
    with pytest.raises(MappingError, match="'x' is spread over tiles along its timesteps"):
        planned((4, 8), mapping, reader(("@t", ":"), tiles=[1]))


def test_parts_without_elements_are_not_sent() -> None:
    table = reader((":", "first:last"), columns={"first": [2], "last": [2]}, tiles=[1])
    exchange = planned((4, 8), TileMapping.on(0, 0, 4), table)
    assert exchange is None or not exchange.columns.any()


def test_chips_of_a_program_are_alike() -> None:
    with pytest.raises(MappingError, match="5 tiles cannot be placed evenly on 2 chips"):
        Program(tiles=5, variables={}, body=(), layers=(), inputs={}, outputs={}, chips=2)


def loads(columns: dict[str, list[int]], extent: Any, counts: Any, ids: Any = ((0, 1, 2, 3),)) -> list[int]:
    """Cycles of one vertex per entry of the columns, each on a tile of its own, with a bundle for every spike."""
    codelet = Codelet(
        name="Count", fields=(), columns=(), compute=lambda *_: None, cost=cost(Term(bundles=1, extents=("spikes",)))
    )
    given = {name: np.array(column) for name, column in columns.items()}
    tiles = np.arange(len(next(iter(given.values()))))
    extents = {"spikes": extent}
    table = VertexTable(codelet=codelet, layer="h", tiles=tiles, operands={}, columns=given, extents=extents)
    step = Superstep(name="s", op="", phase="forward", stage="s", tables=(table,))
    made = Program(
        tiles=len(tiles), variables={}, body=(Repeat(times=1, body=(step,)),), layers=(), inputs={}, outputs={}
    )
    recorded = RecordedActivity(
        ids={"h": np.array([ids], np.int32)}, counts={"h": np.array([counts], np.int32)}, dropped={}
    )
    (load,) = program_loads(made, recorded, ISSUE)
    with pytest.raises(ValueError, match="read-only"):  # it is kept
        load.cycles_by_execution[:] = 0
    return load.busy.tolist()


def test_spikes_over_samples_are_those_of_the_range_whatever_other_columns_say() -> None:
    counts, ids = [[4, 4], [3, 3], [2, 2]], [[0, 1, 2, 3]] * 3
    columns = {"sample": [0], "sample_start": [0], "sample_stop": [3]}
    assert loads(columns, SpikesOver(layer="h"), counts, ids) == [2 * (1 + 9)]


def test_a_cost_that_counts_spikes_names_the_columns_it_lacks() -> None:
    with pytest.raises(MappingError, match=r"counts Spikes, which needs the column\(s\) \['sample'\]"):
        loads({"first": [0]}, Spikes(layer="h"), [[1, 1]])


def test_hits_of_two_vertices_on_one_neuron_are_refused() -> None:
    apart = {"sample": [0, 0], "start": [0, 2], "stop": [2, 4]}
    assert loads(apart, Hits(layer="h"), [[4, 4]]) == [6, 6]
    with pytest.raises(MappingError, match="the ranges in which two vertices count hits overlap"):
        loads(apart | {"stop": [3, 4]}, Hits(layer="h"), [[4, 4]])


@pytest.mark.parametrize(
    ("counts", "ids"), [([[3, 2]], [[0, 1, 2]]), ([[-1, 2]], [[0, 1, 2]]), ([[2, 2]], [[0, -1, 2]])]
)
def test_recordings_that_cannot_be_are_refused(counts: list[list[int]], ids: list[list[int]]) -> None:
    with pytest.raises(MappingError, match=r"layer 'h' (has a negative count|lists a negative id)"):
        loads({"sample": [0], "start": [0], "stop": [3]}, Hits(layer="h"), counts, ids)


def test_extents_of_another_length_are_refused() -> None:
    codelet = Codelet(name="C", fields=(), columns=(), compute=lambda *_: None, cost=cost())
    with pytest.raises(ValueError, match="extent 'e' has 2 entries for 3 vertices"):
        VertexTable(
            codelet=codelet, layer="", tiles=np.arange(3), operands={}, columns={}, extents={"e": np.array([1, 2])}
        )


def test_a_cost_is_a_record_with_a_source() -> None:
    number: Any = 30
    with pytest.raises(MappingError, match="its cost is a int, not WorkerBundles"):
        Codelet(name="C", fields=(), columns=(), compute=lambda *_: None, cost=number)


def test_a_mapping_has_as_many_starts_as_tiles() -> None:
    with pytest.raises(ValueError, match="2 tiles, 1 starts, 2 stops; give as many of each"):
        TileMapping.split(0, np.arange(2), np.arange(1), np.arange(2) + 1)


@pytest.mark.parametrize("pairable", [-1.0, 3.0])
def test_more_than_all_bundles_cannot_be_pairable(pairable: float) -> None:
    wrong = cost(Term(bundles=2, extents=("e",), pairable=pairable))
    with pytest.raises(MappingError, match="cannot be pairable: only 0 to all of them can"):
        Codelet(name="C", fields=(), columns=(), compute=lambda *_: None, cost=wrong)
