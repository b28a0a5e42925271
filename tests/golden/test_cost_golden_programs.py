"""Cycles of small programs by hand, worked out in each test's words from the machine's own numbers.

The tiny machine: 6 contexts that issue every sixth cycle; 4 bytes a cycle of exchange, two neighbours a bus, 100 cycles
before a phase, 2 for a fragment out and 2 for one in, 24 bundles to arrange one; 126 cycles a sync of the chip, 200 of
all chips, 40 a turn of a loop; 1 GHz; 1.27 us and 15 ns a hop before a global exchange, 1 GB/s a link.
"""

from __future__ import annotations

from dataclasses import replace
from math import exp, sqrt
from typing import Any

import numpy as np
import pytest
from by_hand import compute_cycles, timed, tiny

from mimdsim.base.residuals import RESIDUALS
from mimdsim.compiler import plan_exchanges
from mimdsim.compiler.merge import merge_supersteps
from mimdsim.compiler.place.placement import place_arrays
from mimdsim.compiler.place.products import ArrayPlacement
from mimdsim.program import (
    Codelet,
    Field,
    Length,
    Program,
    Repeat,
    Superstep,
    Term,
    TileFormula,
    TileMapping,
    Variable,
    VertexTable,
    WorkerBundles,
)
from mimdsim.workload import MappingOptions


def bundles(fixed: float, each: float = 0, pairable: float = 0) -> WorkerBundles:
    terms = (Term(bundles=each, extents=("cells",), pairable=pairable),)
    return WorkerBundles(fixed=fixed, terms=terms, kind="assumed", source="a test")


def variable(name: str, tiles: list[int], each: int, dtype: str = "float32") -> Variable:
    """`each` elements on every one of `tiles`, in their order."""
    starts = np.arange(len(tiles)) * each
    mapping = TileMapping.split(0, np.array(tiles), starts, starts + each)
    return Variable(name=name, shape=(len(tiles) * each,), dtype=dtype, mapping=mapping)


def add_one(out: np.ndarray, cells: np.ndarray) -> None:
    out[:] = cells[: len(out)] + 1


def table(
    cost: WorkerBundles | TileFormula,
    tiles: list[int],
    stops: list[int],
    reads: list[tuple[int, int]],
    operands: tuple[str, str] = ("new", "old"),
    one_row: bool = False,
) -> VertexTable:
    """One vertex per entry: it writes from the stop before to its stop, and reads a range of the other variable."""
    codelet = Codelet(
        name="AddOne",
        fields=(
            Field(name="out", access="write", box=("start:stop",)),
            Field(name="cells", access="read", box=("from:to",), one_row=one_row),
        ),
        columns=(),
        compute=add_one,
        form="vertex",
        cost=cost,
        flops=(Term(bundles=1, extents=("cells",)),),
        extents={"cells": Length("cells", 0)},
    )
    columns = {
        "start": np.array([0, *stops[:-1]]),
        "stop": np.array(stops),
        "from": np.array([start for start, _ in reads]),
        "to": np.array([stop for _, stop in reads]),
    }
    return VertexTable(
        codelet=codelet, tiles=np.array(tiles), operands=dict(zip(("out", "cells"), operands, strict=True)),
        columns=columns,
    )  # fmt: skip


def step(name: str, *tables: VertexTable, **given: Any) -> Superstep:
    return Superstep(name=name, tables=tables, **given)


def program(body: tuple[Any, ...], *variables: Variable, tiles: int = 16, chips: int = 1) -> Program:
    made = Program(
        tiles=tiles * chips, chips=chips, variables={one.name: one for one in variables}, body=body,
        inputs={"old": "old"}, outputs={"new": "new"},
    )  # fmt: skip
    return plan_exchanges(made)


RING = [0, 1, 2, 3]


def ring(cost: WorkerBundles | TileFormula, **given: Any) -> Superstep:
    """Every one of four tiles takes the three cells of the next."""
    return step("take", table(cost, RING, [3, 6, 9, 12], [(3, 6), (6, 9), (9, 12), (0, 3)]), **given)


def test_a_ring_of_four_tiles() -> None:
    """Each sends 12 bytes and receives 12: 3 cycles of wire, but 2 + 2 for its two fragments. 100 + 4, a sync of 126,
    and 5 + 3 x 2 bundles of a context, every sixth cycle."""
    made = program((ring(bundles(5, 2)),), variable("old", RING, 3), variable("new", RING, 3))
    (span,) = timed(made, tiny()).spans
    assert (span.exchange_cycles, span.sync_cycles, span.compute_cycles) == (104, 126, 66)
    assert (span.busy_cycles, span.bytes_received, span.flops, span.times) == (4 * 66, 48, 12, 1)
    assert (span.exchange_tile_bytes, span.exchange_tile_control_cycles) == (12, 4)


@pytest.mark.parametrize(
    ("changes", "exchange", "sync", "compute"),
    [
        ({"exchange_bytes_per_cycle": 1}, 100 + 12, 126, 66),  # the wire is longer now: all 12 bytes
        ({"exchange_route_cycles": 9, "exchange_fixed_cycles": 1}, 1 + 9 + 4, 126, 66),
        ({"exchange_send_fragment_cycles": 0}, 100 + 3, 126, 66),
        ({"exchange_receive_fragment_cycles": 2.5}, 100 + 5, 126, 66),  # 4.5, whole cycles
        ({"exchange_model": "planner"}, 100 + 3, 126, 66),
        ({"sync_exchange_share": 0.25}, 104, 126 + 26, 66),
        ({"tile_issue_cycles": 4}, 104, 126, 44),
        ({"tile_worker_contexts": 1}, 104, 126, 66),  # a context alone issues no faster
    ],
)
def test_a_ring_on_other_machines(changes: dict[str, Any], exchange: int, sync: int, compute: int) -> None:
    made = program((ring(bundles(5, 2)),), variable("old", RING, 3), variable("new", RING, 3))
    (span,) = timed(made, tiny(**changes)).spans
    assert (span.exchange_cycles, span.sync_cycles, span.compute_cycles) == (exchange, sync, compute)


def test_an_interval_of_a_ring() -> None:
    """66, 104 and 126 cycles of codelets, exchange and sync, of assumed numbers all, half of each in doubt: squares of
    33, 52 and 63 add up. The factor is that of programs."""
    made = program((ring(bundles(5, 2)),), variable("old", RING, 3), variable("new", RING, 3))
    profile = timed(replace(made, streamed={"old": 48}), tiny())
    assert profile.cycles == 296
    reach = exp(RESIDUALS["program on tiles"].factor * sqrt(33**2 + 52**2 + 63**2) / 296)
    assert [end * 1e9 for end in profile.device_ends] == pytest.approx([296 / reach, 296 * reach], rel=4e-3)
    # 48 bytes from the host at 8 GB/s, 20 us before them; the program's 296 ns hide as much of it
    assert profile.host_seconds == pytest.approx(20e-6 + 48 / 8e9)
    assert profile.host_exposed_seconds == pytest.approx(20e-6 + 6e-9 - 296e-9)
    # the step is as long as what the host takes, whose rate is assumed: half of it in doubt
    assert [profile.seconds_low, profile.seconds_high] == pytest.approx([0.5 * 20.006e-6, 1.5 * 20.006e-6])


def test_vertices_are_dealt_to_contexts_in_turn() -> None:
    """Eight vertices on a tile read 1 to 8 cells at 10 bundles each: contexts get 1 and 7, 2 and 8, 3 to 6. The longest
    has 100 bundles, 600 cycles; all together 360 bundles."""
    stops, reads = list(range(1, 9)), [(0, count) for count in range(1, 9)]
    made = program(
        (step("add", table(bundles(0, 10), [0] * 8, stops, reads)),), variable("old", [0], 8), variable("new", [0], 8)
    )
    assert compute_cycles(made, tiny()) == [600]
    # two contexts: 1 + 3 + 5 + 7 = 16 and 2 + 4 + 6 + 8 = 20 cells
    assert compute_cycles(made, tiny(tile_worker_contexts=2)) == [1200]
    assert compute_cycles(made, tiny(tile_worker_contexts=1)) == [6 * 360]
    # twelve contexts: eight work, the longest has 80 bundles every sixth cycle; all bundles take 360 cycles
    assert compute_cycles(made, tiny(tile_worker_contexts=12)) == [480]
    assert compute_cycles(made, tiny(tile_worker_contexts=12, tile_issue_cycles=1)) == [360]


def test_pairs_of_instructions_issue_together_where_the_compiler_makes_them() -> None:
    """4 + 8 cells x 3 bundles, of which 2 could go along: 28 bundles alone, 28 - 16 if all do, 28 - 4 for a quarter."""
    made = program(
        (step("add", table(bundles(4, 3, 2), [0], [8], [(0, 8)])),), variable("old", [0], 8), variable("new", [0], 8)
    )
    for share, expected in ((0, 28), (1, 12), (0.25, 24)):
        assert compute_cycles(made, tiny(tile_compiled_dual_issue=share)) == [6 * expected]


def test_library_vertices_take_a_tile_one_after_the_other() -> None:
    """Two calls on one tile of 100 + 7 a cell, of 2 and of 6 cells: 114 and 142. Beside them a context's vertices."""
    formula = TileFormula(
        cycles=lambda extents, contexts, vector: 100 + 7 * extents["cells"], kind="published", source="a test"
    )
    variables = variable("old", [0], 8), variable("new", [0], 8), variable("third", [0], 8)
    calls = table(formula, [0, 0], [2, 8], [(0, 2), (2, 8)])
    assert compute_cycles(program((step("call", calls),), *variables), tiny()) == [114 + 142]
    beside = table(bundles(5), [0], [8], [(0, 8)], ("third", "old"))
    assert compute_cycles(program((step("both", calls, beside),), *variables), tiny()) == [114 + 142 + 30]


def test_what_sources_and_operations_take_of_a_superstep_is_told_in_cycles() -> None:
    """A call of 114 cycles; a vertex of 5 bundles alone, for which its tile waits 30, once beside the call and once on
    its own; six of them at once, which take a tile 30 as well: 114 : 60 : 30 of 144, whatever the bundles."""
    formula = TileFormula(cycles=lambda *_: 114, kind="published", source="a test")
    variables = variable("old", [0], 8), variable("new", [0], 8), variable("third", [0, 1, 2], 6)
    call = replace(table(formula, [0], [8], [(0, 8)]), stage="call")
    alone = table(bundles(5), [0, 1], [1, 7], [(0, 8)] * 2, ("third", "old"))
    alone = replace(alone, columns=alone.columns | {"start": np.array([0, 6])}, stage="alone")
    six = table(bundles(5), [2] * 6, [13, 14, 15, 16, 17, 18], [(0, 8)] * 6, ("third", "old"))
    six = replace(six, columns=six.columns | {"start": np.arange(12, 18)}, stage="six")
    found = timed(program((step("all", call, alone, six),), *variables), tiny())
    (span,) = found.spans
    shares = [round(144 * share / 204) for share in (114, 174, 204)]
    assert span.compute_cycles == 144
    assert [(part.operation, part.compute_cycles) for part in span.parts] == list(
        zip(("call", "alone", "six"), np.diff(shares, prepend=0).tolist(), strict=True)
    )
    of_codelets = {doubt.kind: doubt.cycles for doubt in found.doubts if doubt.name == "codelet AddOne"}
    assert of_codelets == {"published": shares[0], "assumed": 144 - shares[0]}


def test_pieces_gathered_for_a_row_are_arranged_by_all_contexts() -> None:
    """Tile 3 gathers 8 bytes from each of three tiles: 24 bytes, 6 cycles of wire, 6 of control for three fragments.
    Then 3 x 24 bundles in all contexts, 72 cycles, and 24 bytes copied at 8 a cycle; the vertex itself 6 x 6."""
    variables = variable("old", [0, 1, 2], 2), variable("new", [3], 6)
    for one_row, arranged in ((True, 72 + 3), (False, 0)):
        made = program((step("gather", table(bundles(6), [3], [6], [(0, 6)], one_row=one_row)),), *variables)
        (span,) = timed(made, tiny()).spans
        assert (span.exchange_cycles, span.compute_cycles, span.slowest_tile) == (106, 36 + arranged, 3)


def test_neighbours_hear_the_same_at_twice_the_rate() -> None:
    """Tile 4 sends 400 bytes that 0 and 1 both want: 100 cycles at the sender either way. From two senders each gets
    800 bytes alike: 200 cycles on a bus of its own, 100 on two shared ones. What each wants alone stays 200."""
    sources = variable("old", [4, 6], 100)
    alike = table(bundles(1), [0, 1], [100, 200], [(0, 200), (0, 200)])
    made = program((step("hear", alike),), sources, variable("new", [0, 1], 100))
    assert timed(made, tiny(exchange_tiles_per_bus=1)).exchange_cycles == 300
    assert timed(made, tiny(exchange_tiles_per_bus=2)).exchange_cycles == 200


def test_a_tile_whose_neighbour_is_silent_hears_on_both_buses() -> None:
    """80 bytes from tile 0 to tile 2: 20 cycles to send them either way; from 0 and 1, 160 bytes, 40 cycles on one bus
    and 20 on two. The last tile of a chip of three has no neighbour."""
    for tiles, expected in ((4, 120), (3, 140)):
        both = table(bundles(1), [2], [40], [(0, 40)])
        made = program((step("hear", both),), variable("old", [0, 1], 20), variable("new", [2], 40), tiles=tiles)
        assert timed(made, tiny(chip_tiles=tiles)).exchange_cycles == expected


def test_a_loop_counts_and_synchronises_every_turn() -> None:
    """Five turns of a ring: 5 x (104 + 126 + 66), and 5 x (40 + 126) for the loop; 66 alone without exchange."""
    body = (Repeat(times=5, body=(ring(bundles(5, 2)),)),)
    made = program(body, variable("old", RING, 3), variable("new", RING, 3))
    profile = timed(made, tiny())
    assert (profile.exchange_cycles, profile.compute_cycles) == (520, 330)
    assert profile.sync_cycles == 5 * 126 + 5 * 166
    assert timed(made, tiny(sync_loop_cycles=0)).sync_cycles == 5 * 126 + 5 * 126


def test_tiles_run_on_where_nothing_is_exchanged() -> None:
    """Tile 0 has 10 bundles and then 1, tile 1 has 1 and then 20: the chip takes the longer sum, 126, not 60 + 120."""
    variables = variable("old", [0, 1], 4), variable("new", [0, 1], 4), variable("third", [0, 1], 4)

    def work(first: int, second: int, operands: tuple[str, str]) -> tuple[VertexTable, VertexTable]:
        lower = table(bundles(first), [0], [4], [(0, 4)], operands)
        upper = table(bundles(second), [1], [8], [(4, 8)], operands)
        columns = {**upper.columns, "start": np.array([4])}
        return lower, VertexTable(codelet=upper.codelet, tiles=upper.tiles, operands=upper.operands, columns=columns)

    body = step("one", *work(10, 1, ("new", "old"))), step("two", *work(1, 20, ("third", "new")))
    profile = timed(program(body, *variables), tiny())
    assert (profile.cycles, profile.compute_cycles, profile.sync_cycles) == (126, 126, 0)
    assert sum(profile.tile_columns.busy_cycles) == 66 + 126


def test_a_ring_over_two_chips() -> None:
    """Tiles 0 and 1 on one chip, 16 and 17 on the other: two of the four messages cross, 12 bytes each way. A sync of
    all chips, 200; the phase of 104 on either chip, then 1,270 + 15 + 12 ns over the link at 1 GHz."""
    on = [0, 1, 16, 17]
    moved = step("take", table(bundles(5, 2), on, [3, 6, 9, 12], [(3, 6), (6, 9), (9, 12), (0, 3)]))
    made = program((moved,), variable("old", on, 3), variable("new", on, 3), chips=2)
    (span,) = timed(made, tiny(links_chips=2)).spans
    assert (span.exchange_cycles, span.link_cycles, span.sync_cycles) == (104 + 1297, 1297, 200)
    (span,) = timed(made, tiny(links_chips=2, links_links_per_edge=2, chip_clock_hz=2e9)).spans
    assert span.link_cycles == 2 * (1270 + 15 + 6)


# ---- merging: which supersteps share a sync


def chain(*steps: tuple[str, str, str]) -> list[str]:
    """Names of what is made of supersteps (stage, written, read), each on a tile of its own: 'a+b' for two joined."""
    names = sorted({name for _, *names in steps for name in names})
    variables = [variable(name, [0], 4) for name in names]
    body = tuple(
        Superstep(name=f"{stage}{number}", stage=stage, tables=(table(bundles(1), [0], [4], [(0, 4)], (out, read)),))
        for number, (stage, out, read) in enumerate(steps)
    )
    made = Program(tiles=1, variables={one.name: one for one in variables}, body=body, inputs={}, outputs={})
    of = {id(one): str(number) for number, item in enumerate(body) for one in item.tables}
    return ["+".join(of[id(one)] for one in merged.tables) for merged, _, _ in merge_supersteps(made).supersteps()]


def test_supersteps_of_a_stage_join_by_how_many_of_it_lie_before_them() -> None:
    # two layers, each an update that its second one waits for: first ones together, second ones together
    assert chain(("u", "b", "a"), ("u", "c", "b"), ("u", "y", "x"), ("u", "z", "y")) == ["0+2", "1+3"]
    # 1 waits for 0, 4 waits for 1, 2 waits for 3's like: 0 goes on alone, as its fellow 2 waits for 1's stage
    assert chain(("a", "b", "s"), ("p", "q", "s"), ("a", "d", "q"), ("a", "c", "b"), ("p", "e", "c")) == [
        "0", "3", "1+4", "2",
    ]  # fmt: skip
    # what is read is not written before it was read
    assert chain(("u", "b", "a"), ("w", "a", "x"), ("u", "d", "c")) == ["0+2", "1"]
    # another stage joins nobody
    assert chain(("u", "b", "a"), ("w", "d", "c")) == ["0", "1"]


# ---- placement of dense spikes


def test_rows_of_dense_layers_lie_in_runs_of_at_least_128_bytes() -> None:
    """32 floats a tile, or as many as 15 usable tiles make necessary."""
    machine = tiny()
    placed = ArrayPlacement(machine=machine, first_tile=1)
    few, many = placed.row(70), placed.row(15 * 40 - 1)
    assert (few.tiles.tolist(), few.start.tolist(), few.stop.tolist()) == ([1, 2, 3], [0, 32, 64], [32, 64, 70])
    assert (many.tiles.tolist(), many.stop.tolist()[-2:]) == (list(range(1, 16)), [560, 599])
    assert few.row_start.tolist() == [0, 0, 0]
    assert few.row_stop.tolist() == [1, 1, 1]


def test_samples_of_dense_spikes_lie_evenly_after_the_reserved_tiles() -> None:
    from networks import small_network

    network = small_network((4, 4, 2), batch=5, spikes="dense")
    for reserved, bus, first, samples in (
        (1, 2, 2, [1, 4, 7, 10, 13]),
        (3, 1, 3, [3, 5, 8, 10, 13]),
        (0, 2, 0, [0, 3, 6, 9, 12]),
    ):
        found = place_arrays(network, tiny(exchange_tiles_per_bus=bus), MappingOptions(reserved_tiles=reserved))
        assert found.sample_tiles.tolist() == samples
        assert found.arrays is not None
        assert found.arrays.first_tile == first
        assert (found.worker_contexts, found.chips, found.tiles) == (6, 1, 16)
    found = place_arrays(network, tiny(tile_worker_contexts=4), MappingOptions(reserved_tiles=99))
    assert found.sample_tiles.tolist() == [15] * 5
    assert found.worker_contexts == 4
    assert found.arrays is not None
    assert found.arrays.first_tile == 15
