"""An exchange delivers what is read, and counts it right: every change of a planned one is told, none is made up."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mimdsim.compiler import plan_exchanges
from mimdsim.program import (
    Codelet,
    Copy,
    Exchange,
    Field,
    Program,
    Superstep,
    TileMapping,
    Variable,
    VertexTable,
    WorkerBundles,
    verify,
)
from mimdsim.program.checks.exchange import EXCHANGE_RULE
from mimdsim.program.mapping import FLAT

COST = WorkerBundles(fixed=1, terms=(), kind="assumed", source="a test")
TILES, ROWS, COLUMNS = 6, 4, 6
READ = "reads are local or delivered"


def mappings(draw: st.DrawFn, rows: int, columns: int) -> TileMapping:
    kind = draw(st.sampled_from(["rows", "columns", "flat", "replicated"]))
    if kind == "replicated":
        return TileMapping.replicated(np.array(sorted(draw(st.sets(st.integers(0, TILES - 1), min_size=1)))))
    axis, extent = {"rows": (0, rows), "columns": (1, columns), "flat": (FLAT, rows * columns)}[kind]
    inner = draw(st.sets(st.integers(1, extent - 1), max_size=4))
    ends = np.array([0, *sorted(inner), extent])
    tiles = draw(st.lists(st.integers(0, TILES - 1), min_size=len(ends) - 1, max_size=len(ends) - 1))
    return TileMapping.split(axis, np.array(tiles), ends[:-1], ends[1:])


@st.composite
def programs(draw: st.DrawFn) -> Program:
    """x and z are read by vertices on all tiles, one row of z by a field that wants it in a row; z is copied from y."""
    x, y, z = (mappings(draw, ROWS, COLUMNS) for _ in "xyz")
    each = np.arange(TILES)
    shapes = {"x": x, "y": y, "z": z}
    variables = {
        name: Variable(name=name, shape=(ROWS, COLUMNS), dtype="float32", mapping=mapping)
        for name, mapping in shapes.items()
    }
    variables["w"] = Variable(
        name="w", shape=(TILES,), dtype="float16", mapping=TileMapping.split(0, each, each, each + 1)
    )
    columns = {"k": each, "m": each + 1}
    for place, extent in (("a", ROWS), ("b", COLUMNS), ("c", ROWS), ("d", COLUMNS)):
        ends = np.array([sorted(draw(st.tuples(*[st.integers(0, extent)] * 2))) for _ in range(TILES)])
        columns |= {f"{place}0": ends[:, 0], f"{place}1": ends[:, 1]}
    codelet = Codelet(
        name="Read",
        fields=(
            Field(name="out", access="write", box=("k:m",)),
            Field(name="one", access="read", box=("a0:a1", "b0:b1")),
            Field(name="two", access="read", box=("c0:c1", "d0:d1"), one_row=True),
        ),
        columns=(),
        compute=lambda *_: None,
        cost=COST,
    )
    table = VertexTable(
        codelet=codelet,
        tiles=each,
        operands={"out": "w", "one": "x", "two": draw(st.sampled_from("xz"))},
        columns=columns,
    )
    steps = (Superstep(name="copy", copies=(Copy(source="y", target="z"),)), Superstep(name="read", tables=(table,)))
    return Program(
        tiles=TILES,
        variables=variables,
        body=steps,
        inputs={"x": "x", "y": "y"},
        chips=draw(st.sampled_from([1, 2, 3])),
    )


def messages(made: Program) -> list[tuple[str, str]]:
    return [(problem.rule, problem.message) for problem in verify(made, made.tiles)]


def with_exchange(made: Program, name: str, changed: Exchange | None) -> Program:
    return made.map_supersteps(lambda step: replace(step, exchange=changed) if step.name == name else step)


Draw = Callable[[int], int]  # a number below another one


def other_delivery(given: Exchange, pick: Draw) -> Exchange:
    """One part left out, doubled, moved to another tile, or its box changed by one along an axis."""
    at = pick(len(given.deliveries))
    part = given.deliveries[at]
    row, kind = pick(len(part.tiles)), pick(4)
    rows = np.arange(len(part.tiles))
    if kind == 0:
        part = replace(part, tiles=part.tiles[rows != row], boxes=part.boxes[rows != row])
    elif kind == 1:
        twice = np.append(rows, row)
        part = replace(part, tiles=part.tiles[twice], boxes=part.boxes[twice])
    elif kind == 2:
        tiles = part.tiles.copy()
        tiles[row] = (tiles[row] + 1 + pick(9999 if pick(2) else TILES - 1)) % 9999
        tiles[row] = tiles[row] if tiles[row] != part.tiles[row] else 9999
        part = replace(part, tiles=tiles)
    else:
        boxes = part.boxes.copy()
        boxes[row, pick(boxes.shape[1]), pick(2)] += (-1, 1)[pick(2)]
        part = replace(part, boxes=boxes)
    return replace(given, deliveries=(*given.deliveries[:at], part, *given.deliveries[at + 1 :]))


def other_counts(given: Exchange, pick: Draw) -> Exchange:
    """One number of a column, the tiles that take part, all of them, or links counted otherwise."""
    kind = pick(7)
    columns, tiles = given.columns.copy(), given.tiles.copy()
    if kind == 0:
        return replace(given, columns=0 * columns) if columns.any() else replace(given, columns=columns + 1)
    if kind == 1:
        return replace(given, total_tiles=given.total_tiles + (-1, 1)[pick(2)])
    if kind == 2:
        links = np.ones((2, 2), np.int64) if given.link_bytes is None else given.link_bytes + 1
        return replace(given, link_bytes=links)
    if kind == 3 and given.link_bytes is not None:
        return replace(given, link_bytes=None)
    if kind == 4:
        twice = [*range(len(tiles)), pick(len(tiles))]
        return replace(given, tiles=tiles[twice], columns=columns[:, twice])
    if kind == 5:
        tiles[pick(len(tiles))] = (-1, TILES, 9999)[pick(3)]
        return replace(given, tiles=tiles)
    columns = columns.astype(np.float64) if pick(2) else columns
    columns[pick(len(columns)), pick(len(tiles))] += (0.5, 1)[columns.dtype.kind == "i"] * (-1, 1)[pick(2)]
    return replace(given, columns=columns)


@pytest.mark.parametrize("examples", [50, 150])
def test_every_change_of_an_exchange_is_told_and_nothing_else(examples: int) -> None:
    @settings(deadline=None, max_examples=examples)
    @given(made=programs(), data=st.data())
    def law(made: Program, data: st.DataObject) -> None:
        planned = plan_exchanges(made)
        assert messages(planned) == []
        again = planned.map_supersteps(lambda step: replace(step, exchange=step.exchange and replace(step.exchange)))
        assert messages(again) == []  # derived again and compared

        def pick(below: int) -> int:
            return data.draw(st.integers(0, below - 1))

        moving = [step for step, _, _ in planned.supersteps() if step.exchange is not None and len(step.exchange.tiles)]
        if not moving:
            return
        step = moving[pick(len(moving))]
        assert step.exchange is not None
        change = (other_delivery, other_counts)[pick(2)]
        wrong = with_exchange(planned, step.name, change(step.exchange, pick))
        found = messages(wrong)
        assert found  # a part that is missing is missed by every field that reads it
        for rule, message in found:
            assert rule in (EXCHANGE_RULE, READ)
            assert message.startswith(f"superstep '{step.name}': ")

    law()


@pytest.mark.parametrize("examples", [35, 100])
def test_bytes_are_those_of_the_elements_that_travel(examples: int) -> None:
    """Counted element by element: received once per reader that does not hold it, sent once by a holder."""

    @settings(deadline=None, max_examples=examples)
    @given(made=programs())
    def law(made: Program) -> None:
        planned = plan_exchanges(made)
        for step, _, _ in planned.supersteps():
            if step.exchange is None:
                continue
            received, sent = np.zeros(TILES, int), 0
            wanted: dict[str, set[tuple[int, int, int]]] = {}
            for delivery in step.exchange.deliveries:
                for tile, box in zip(delivery.tiles.tolist(), delivery.boxes.tolist(), strict=True):
                    cells = {(tile, i, j) for i in range(*box[0]) for j in range(*box[1])}
                    wanted[delivery.variable] = wanted.get(delivery.variable, set()) | cells
            for name, cells in wanted.items():
                mapping = planned.variables[name].mapping
                if mapping.is_replicated:
                    travelling = {cell for cell in cells if cell[0] not in mapping.tiles}
                else:
                    at = {0: lambda i, _: i, 1: lambda _, j: j, FLAT: lambda i, j: i * COLUMNS + j}[mapping.axis]
                    travelling = {(t, i, j) for t, i, j in cells if mapping.owners(np.array([at(i, j)]))[0] != t}
                for tile, _, _ in travelling:
                    received[tile] += 4
                per_chip = TILES // planned.chips
                if mapping.is_replicated:  # by the first holder on the reader's chip, else by the first of all
                    chips = set((mapping.tiles // per_chip).tolist())
                    senders = {(t // per_chip if t // per_chip in chips else -1, i, j) for t, i, j in travelling}
                    first = int(mapping.tiles[0]) // per_chip
                    sent += 4 * len({(first if chip < 0 else chip, i, j) for chip, i, j in senders})
                else:
                    sent += 4 * len({(i, j) for _, i, j in travelling})
            assert (step.exchange.bytes_received >= received).all()  # boxes that overlap bring an element twice
            assert int(step.exchange.bytes_sent.sum()) == sent

    law()


def far_and_near() -> Program:
    """Two vertices, each of which reads x of the other one's tile and y of its own."""
    each = np.arange(2)
    spread = TileMapping.split(0, each, each * 2, each * 2 + 2)
    held = {name: Variable(name=name, shape=(4,), dtype="float32", mapping=spread) for name in "xyw"}
    codelet = Codelet(
        name="Read",
        fields=(
            Field(name="out", access="write", box=("k:m",)),
            Field(name="far", access="read", box=("n:o",)),
            Field(name="near", access="read", box=("k:m",)),
        ),
        columns=(),
        compute=lambda *_: None,
        cost=COST,
    )
    columns = {"k": each * 2, "m": each * 2 + 2, "n": 2 - each * 2, "o": 4 - each * 2}
    table = VertexTable(codelet=codelet, tiles=each, operands={"out": "w", "far": "x", "near": "y"}, columns=columns)
    step = Superstep(name="s", tables=(table,))
    return plan_exchanges(Program(tiles=2, variables=held, body=(step,), inputs={"x": "x", "y": "y"}))


@pytest.mark.parametrize("change", ["exchange", "tiles", "boxes", "column", "mapping"])
def test_what_is_changed_in_place_is_told(change: str) -> None:
    """An exchange that was derived is believed only as long as it, and what it follows from, is what it was."""
    made = far_and_near()
    ((step, _, _),) = made.supersteps()
    assert step.exchange is not None
    assert messages(made) == []
    array = {
        "exchange": step.exchange.columns,
        "tiles": step.exchange.deliveries[0].tiles,
        "boxes": step.exchange.deliveries[0].boxes[:, :, 0],
        "column": step.tables[0].columns["n"],
        "mapping": made.variables["x"].mapping.tiles,
    }[change]
    array[...] = 0
    assert messages(made)


def test_operands_and_columns_that_change_places_are_told() -> None:
    made = far_and_near()
    ((step, _, _),) = made.supersteps()
    table = step.tables[0]
    swapped = dict(zip(("n", "o", "k", "m"), table.columns.values(), strict=True))
    for other in (
        replace(table, operands={"out": "w", "near": "x", "far": "y"}),
        replace(table, columns=swapped | {"k": table.columns["k"], "m": table.columns["m"]}),
    ):
        assert messages(made.map_supersteps(lambda one, to=other: replace(one, tables=(to,))))
