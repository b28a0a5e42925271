"""The verifier finds each broken rule, and exchanges deliver what is read, no less and sent once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from networks import MAPPINGS, SMALL, compiled, networks, small_network

from mimdsim.compiler import plan_exchanges
from mimdsim.graph import SpikingNetwork
from mimdsim.program import (
    Codelet,
    Exchange,
    Field,
    Program,
    Repeat,
    Superstep,
    TileMapping,
    Variable,
    VertexTable,
    WorkerBundles,
    verify,
)
from mimdsim.program.mapping import FLAT
from mimdsim.program.records import Problem
from mimdsim.program.vertex_boxes import spatial_mapping
from mimdsim.workload import MappingOptions

TILES = 24
PROGRAM = compiled(small_network((6, 5, 3), timesteps=3, batch=3, capacities=(4, 3)), tiles=TILES).program


def changed_tables(codelet: str, change: Callable[[VertexTable], VertexTable]) -> Program:
    """PROGRAM with `change` applied to the first table of `codelet`."""
    done: list[VertexTable] = []

    def change_superstep(superstep: Superstep) -> Superstep:
        tables = []
        for table in superstep.tables:
            if table.codelet.name == codelet and not done:
                done.append(table)
                table = change(table)
            tables.append(table)
        return replace(superstep, tables=tuple(tables))

    made = PROGRAM.map_supersteps(change_superstep)
    assert done
    return made


def with_entry(column: np.ndarray, row: int, value: int) -> np.ndarray:
    changed = column.copy()
    changed[row] = value
    return changed


def only_problem(program: Program, rule: str) -> Problem:
    """The first problem, which must break `rule` and name vertex and tile."""
    problems = verify(program, TILES)
    assert problems
    first = problems[0]
    assert first.rule == rule
    assert f"vertex {first.vertex} of {first.codelet}" in first.message
    assert f"on tile {first.tile}" in first.message
    assert f"superstep '{first.superstep}'" in first.message
    return first


def test_a_compiled_program_breaks_no_rule() -> None:
    assert verify(PROGRAM, TILES) == ()


def test_a_tile_beyond_the_machine() -> None:
    program = changed_tables("LifUpdate", lambda table: replace(table, tiles=with_entry(table.tiles, 4, TILES)))
    problem = only_problem(program, "tile exists")
    assert (problem.vertex, problem.tile, problem.codelet) == (4, TILES, "LifUpdate")
    assert "the program is placed on tiles 0 to 23; map it to these or place the program on more" in problem.message
    used = max(int(table.tiles.max()) for superstep, _, _ in PROGRAM.supersteps() for table in superstep.tables)
    smaller = verify(PROGRAM, used)[0]
    assert smaller.rule == "tile exists"
    wanted = f"the machine has tiles 0 to {used - 1}; map it to fewer tiles or choose a larger machine"
    assert wanted in smaller.message


def test_a_box_outside_its_variable() -> None:
    def widen(table: VertexTable) -> VertexTable:
        return replace(table, columns=table.columns | {"stop": with_entry(table.columns["stop"], 2, 7)})

    problem = only_problem(changed_tables("FillColumns", widen), "box inside variable")
    assert problem.vertex == 2
    assert "touches v.hidden0[0:3, 4:7], outside the variable's shape" in problem.message


def test_shapes_are_shown_as_numbers() -> None:
    program = changed_tables("FillColumns", lambda table: replace(table, columns={
        "start": table.columns["start"], "stop": with_entry(table.columns["stop"], 2, 7)
    }))  # fmt: skip
    assert verify(program, TILES)[0].message.endswith("outside the variable's shape [3, 5]")


def test_a_read_that_is_not_delivered() -> None:
    """Of every superstep in turn, one delivered part is taken away: the verifier must miss it."""
    tried = 0
    for wanted, _, _ in PROGRAM.supersteps():
        if wanted.exchange is None or wanted.copies:
            continue
        for index, delivery in enumerate(wanted.exchange.deliveries):
            less = replace(delivery, tiles=delivery.tiles[1:], boxes=delivery.boxes[1:])
            deliveries = tuple(less if k == index else d for k, d in enumerate(wanted.exchange.deliveries))
            exchange = replace(wanted.exchange, deliveries=deliveries)

            def change(superstep: Superstep, wanted: Superstep = wanted, exchange: Exchange = exchange) -> Superstep:
                return replace(superstep, exchange=exchange) if superstep is wanted else superstep

            problem = only_problem(PROGRAM.map_supersteps(change), "reads are local or delivered")
            assert problem.tile == delivery.tiles[0]
            assert f"reads {delivery.variable}[" in problem.message
            assert "is not delivered in this superstep's exchange" in problem.message
            tried += 1
    assert tried > 5


def test_a_program_without_exchanges_reads_what_is_not_there() -> None:
    program = PROGRAM.map_supersteps(lambda superstep: replace(superstep, exchange=None))
    assert {problem.rule for problem in verify(program, TILES)} == {"reads are local or delivered"}
    assert verify(plan_exchanges(program), TILES) == ()


def test_a_remote_write() -> None:
    program = changed_tables("FillColumns", lambda table: replace(table, tiles=with_entry(table.tiles, 1, 9)))
    problem = only_problem(program, "writes are local")
    assert (problem.vertex, problem.tile) == (1, 9)
    assert "writes v.hidden0[0:3, 2:4], which lies on tile 2" in problem.message


def test_a_double_write() -> None:
    def repeat_first(table: VertexTable) -> VertexTable:
        rows = np.array([0, 1, 2, 0])
        columns = {name: column[rows] for name, column in table.columns.items()}
        return replace(table, tiles=table.tiles[rows], columns=columns)

    problem = only_problem(changed_tables("FillColumns", repeat_first), "nothing is written twice")
    assert problem.vertex == 3
    assert "writes v.hidden0[0:3, 0:2], which vertex 0 of FillColumns" in problem.message


def test_a_double_write_that_overlaps_in_part() -> None:
    def widen(table: VertexTable) -> VertexTable:
        starts = np.array([0, 1, 4])
        tiles = table.tiles.copy()
        tiles[1] = table.tiles[0]
        return replace(table, tiles=tiles, columns={"start": starts, "stop": np.array([2, 2, 5])})

    only_problem(changed_tables("FillColumns", widen), "nothing is written twice")


def test_a_read_while_written() -> None:
    """Membrane potentials are flagged in the superstep that updates them."""
    updates = [step for step, _, _ in PROGRAM.supersteps() if step.stage == "LIF update"]
    flags = [step for step, _, _ in PROGRAM.supersteps() if step.stage == "flag spikes"]

    def join(superstep: Superstep) -> Superstep:
        if superstep is not updates[0]:
            return superstep
        return replace(superstep, tables=(*superstep.tables, *flags[0].tables))

    problem = only_problem(PROGRAM.map_supersteps(join), "nothing is read while written")
    assert problem.codelet == "FlagSpikes"
    assert "reads v.hidden0[0, 0] while vertex 0 of LifUpdate (hidden0) on tile 1 writes it" in problem.message


def test_a_timestep_outside_a_repeat() -> None:
    body: list[Superstep | Repeat] = []
    for item in PROGRAM.body:
        if isinstance(item, Repeat) and not item.reverse:
            body.append(next(step for step in item.body if step.name == "slice ids.input"))
        body.append(item)
    problem = only_problem(replace(PROGRAM, body=tuple(body)), "timestep in repeat")
    assert "takes the timestep of 'ids.input.sequence' outside a repeat" in problem.message


def test_a_variable_that_is_not_there() -> None:
    def rename(table: VertexTable) -> VertexTable:
        return replace(table, operands=table.operands | {"w": "w.nowhere"})

    problem = only_problem(changed_tables("LifUpdate", rename), "variable exists")
    assert "reads 'w.nowhere' through field 'w', which is not a variable of the program" in problem.message


def test_a_box_that_does_not_fit_the_variable() -> None:
    def swap(table: VertexTable) -> VertexTable:
        return replace(table, operands=table.operands | {"v": "labels"})

    problem = only_problem(changed_tables("LifUpdate", swap), "box fits variable")
    assert "does not have the 1 axes of 'labels'" in problem.message


# ---- exchanges

READ = Codelet(
    name="Read",
    fields=(
        Field(name="source", access="read", box=("start:stop",)),
        Field(name="target", access="write", box=("row", "start:stop")),
    ),
    columns=("row", "start", "stop"),
    compute=lambda *_: None,
    cost=WorkerBundles(fixed=1, terms=(), kind="assumed", source="for tests"),
)  # fmt: skip


def reading_program(owners: list[int], readers: list[tuple[int, int, int]]) -> Superstep:
    """`owners[k]` holds elements 4k to 4k+4 of 'source' (float32); readers: (tile, start, stop). Planned."""
    extent = 4 * len(owners)
    starts = np.arange(len(owners)) * 4
    rows = np.arange(len(readers))
    tiles, first, last = (np.array(column) for column in zip(*readers, strict=True))
    source = Variable(
        name="source", shape=(extent,), dtype="float32", category="weights",
        mapping=TileMapping.split(0, np.array(owners), starts, starts + 4),
    )  # fmt: skip
    target = Variable(
        name="target", shape=(len(readers), extent), dtype="float32", category="weights",
        mapping=TileMapping.split(0, tiles, rows, rows + 1),
    )  # fmt: skip
    table = VertexTable(
        codelet=READ, layer="", tiles=tiles, operands={"source": "source", "target": "target"},
        columns={"row": rows, "start": first, "stop": last},
    )  # fmt: skip
    program = Program(
        tiles=8, variables={"source": source, "target": target}, layers=(), inputs={"source": "source"}, outputs={},
        body=(Superstep(name="read", op="", phase="forward", stage="read", tables=(table,)),),
    )  # fmt: skip
    planned = plan_exchanges(program)
    assert verify(planned, 8) == ()
    return next(superstep for superstep, _, _ in planned.supersteps())


def moved(superstep: Superstep) -> tuple[list[int], list[int]]:
    """Bytes sent and received by tile."""
    assert superstep.exchange is not None
    return superstep.exchange.bytes_sent.tolist(), superstep.exchange.bytes_received.tolist()


def test_a_part_that_several_tiles_read_is_sent_once() -> None:
    sent, received = moved(reading_program([0, 1], [(2, 0, 4), (3, 0, 4), (4, 4, 8)]))
    assert sent == [16, 16, 0, 0, 0, 0, 0, 0]
    assert received == [0, 0, 16, 16, 16, 0, 0, 0]


def test_bytes_sent_are_bytes_received_when_every_part_has_one_reader() -> None:
    sent, received = moved(reading_program([0, 1, 2], [(3, 0, 6), (4, 6, 10), (5, 10, 12)]))
    assert sent == [16, 16, 16, 0, 0, 0, 0, 0]
    assert received == [0, 0, 0, 24, 16, 8, 0, 0]


def test_what_is_local_does_not_travel() -> None:
    assert reading_program([0, 1], [(0, 0, 4), (1, 5, 8)]).exchange is None


def test_a_tile_does_not_send_to_itself() -> None:
    sent, received = moved(reading_program([0, 1], [(0, 0, 8)]))
    assert received == [16, 0, 0, 0, 0, 0, 0, 0]
    assert sent == [0, 16, 0, 0, 0, 0, 0, 0]


def readers_of_elements(superstep: Superstep) -> int:
    """The most tiles that receive one element of a variable in a superstep."""
    assert superstep.exchange is not None
    readers: dict[tuple[str, tuple[int, ...]], set[int]] = {}
    for delivery in superstep.exchange.deliveries:
        for tile, box in zip(delivery.tiles.tolist(), delivery.boxes.tolist(), strict=True):
            for element in product(*(range(start, stop) for start, stop in box)):
                readers.setdefault((delivery.variable, element), set()).add(tile)
    return max(map(len, readers.values()), default=0)


LAW = settings(SMALL, max_examples=30, phases=(Phase.generate,))  # no shrinking: the programs are small as they are


@pytest.mark.parametrize("examples", [8, 30])
def test_every_compiled_program_verifies(examples: int) -> None:
    @settings(LAW, max_examples=examples)
    @given(network=networks(), options=MAPPINGS)
    def law(network: SpikingNetwork, options: MappingOptions) -> None:
        program = compiled(network, options=options).program
        assert verify(program, TILES) == ()
        for superstep, _, _ in program.supersteps():
            if superstep.exchange is not None:
                exchange: Any = superstep.exchange
                assert exchange.bytes_sent.sum() > 0
                assert exchange.bytes_received.sum() > 0
                assert ((exchange.bytes_received > 0) == (exchange.fragments_received > 0)).all()

    law()


@pytest.mark.slow
@LAW
@given(network=networks(), options=MAPPINGS)
def test_exchanges_are_conserved(network: SpikingNetwork, options: MappingOptions) -> None:
    """Bytes received >= bytes sent > 0; equal where no element has two receivers."""
    for superstep, _, _ in compiled(network, options=options).program.supersteps():
        if superstep.exchange is None:
            continue
        sent, received = int(superstep.exchange.bytes_sent.sum()), int(superstep.exchange.bytes_received.sum())
        assert received >= sent > 0
        if readers_of_elements(superstep) == 1:
            assert received == sent


def wanted_elements(program: Program, superstep: Superstep) -> tuple[np.ndarray, np.ndarray]:
    """(bytes sent, bytes received) by tile, element by element: each element that is wanted elsewhere is sent once."""
    sent, received = np.zeros((2, program.tiles), np.int64)
    wanted: dict[str, set[tuple[int, tuple[int, ...]]]] = {}
    for delivery in superstep.exchange.deliveries if superstep.exchange else ():
        for tile, box in zip(delivery.tiles.tolist(), delivery.boxes.tolist(), strict=True):
            elements = product(*(range(start, stop) for start, stop in box))
            wanted.setdefault(delivery.variable, set()).update((tile, element) for element in elements)
    for name, pairs in wanted.items():
        variable = program.variables[name]
        axes = {len(element) for _, element in pairs}
        mapping = spatial_mapping(variable, len(variable.shape) not in axes)
        shape = variable.shape[-axes.pop() :]
        travelling = set()
        for tile, element in pairs:
            along = np.ravel_multi_index(element, shape) if mapping.axis == FLAT else element[mapping.axis]
            (owner,) = mapping.owners(np.array([along]))
            if owner != tile:
                received[tile] += variable.item_bytes
                travelling.add((owner, element))
        for owner, _ in travelling:
            sent[owner] += variable.item_bytes
    return sent, received


@pytest.mark.parametrize("widths", [(6, 5, 3), (12, 13, 12, 10)])
def test_bytes_received_are_the_elements_a_tile_does_not_hold(widths: tuple[int, ...]) -> None:
    program = compiled(small_network(widths, batch=8, timesteps=2), tiles=TILES).program
    for superstep, _, _ in program.supersteps():
        if superstep.exchange is not None:
            np.testing.assert_array_equal(superstep.exchange.bytes_received, wanted_elements(program, superstep)[1])


def test_bytes_sent_are_the_elements_wanted_elsewhere_once() -> None:
    program = compiled(small_network((12, 13, 12, 10), batch=8, timesteps=2), tiles=TILES).program
    for superstep, _, _ in program.supersteps():
        if superstep.exchange is not None:
            np.testing.assert_array_equal(superstep.exchange.bytes_sent, wanted_elements(program, superstep)[0])


# ---- rules the verifier does not know yet


def test_a_repeat_longer_than_its_sequences() -> None:
    body = [replace(item, times=4) if isinstance(item, Repeat) else item for item in PROGRAM.body]
    assert verify(replace(PROGRAM, body=tuple(body)), TILES) != ()


def test_a_write_to_one_replica() -> None:
    replicated = TileMapping.replicated(np.arange(TILES))
    labels = replace(PROGRAM.variables["v.hidden0"], mapping=replicated)
    assert verify(replace(PROGRAM, variables=PROGRAM.variables | {"v.hidden0": labels}), TILES) != ()


def test_what_two_vertices_of_a_tile_share_arrives_once() -> None:
    """One tile wants [0, 50) and [10, 60) of a remote variable: 60 elements travel, not 100."""
    reader = Codelet(
        name="Read",
        fields=(
            Field(name="out", access="write", box=("slot",)),
            Field(name="x", access="read", box=("start:stop",)),
        ),
        columns=("slot", "start", "stop"),
        compute=lambda *_: None,
        cost=WorkerBundles(fixed=1, terms=(), kind="assumed", source="a test"),
    )
    table = VertexTable(
        codelet=reader,
        layer="",
        tiles=np.array([1, 1]),
        operands={"x": "x", "out": "out"},
        columns={"slot": np.array([0, 1]), "start": np.array([0, 10]), "stop": np.array([50, 60])},
    )
    variables = {
        "x": Variable(name="x", shape=(100,), dtype="float32", mapping=TileMapping.on(0, 0, 100), category="gradients"),
        "out": Variable(name="out", shape=(2,), dtype="float32", mapping=TileMapping.on(1, 0, 2), category="gradients"),
    }
    step = Superstep(name="read", op="read", phase="forward", stage="read", tables=(table,))
    program = Program(tiles=2, variables=variables, body=(step,), layers=(), inputs={}, outputs={})
    exchange = next(plan_exchanges(program).supersteps())[0].exchange
    assert exchange is not None
    assert exchange.bytes_received.tolist() == [0, 240]
    assert exchange.bytes_sent.tolist() == [240, 0]
