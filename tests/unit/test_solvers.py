"""The published solvers on Mk2 chips as hand-made programs: cut, rules, values, counts, and their times as rows."""

from __future__ import annotations

import csv
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from reference_rows import given

from mimdsim.base.errors import MappingError
from mimdsim.execution import Executor
from mimdsim.machine import load_machine
from mimdsim.pipeline import time_by_hand
from mimdsim.program import extents_of, verify
from mimdsim.validation.reference_table import Asked
from mimdsim.validation.stencil.boxes import computed, held, least_surface, squarest
from mimdsim.validation.stencil.solver_program import SOLVERS, WEIGHTS, codelet_of, solver_program
from mimdsim.validation.stencil.solver_steps import (
    SOLVER_STEPS,
    solver_times,
    triad_codelet,
    triad_program,
    triad_times,
)
from mimdsim.validation.tables import check_files

ROOT = Path(__file__).resolve().parents[2]
TABLES = tuple(ROOT / "references" / name for name in ("stencil_mk2_chips.csv", "devito_ipu.csv"))
HEAT_2D, HEAT_3D = ("heat2d", 2, "HeatEquationOptimized"), ("heat3d", 2, "HeatEquationOptimized")
WAVE = ("wave", 4, "WaveEquationOptimised")
ALIEV_PANFILOV = ("aliev_panfilov", 2, "AlievPanfilov")
GRIDS = {2: (21, 46), 3: (14, 15, 34)}


def table(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("path", TABLES, ids=lambda path: path.stem)
def test_tiles_are_cut_as_published(path: Path) -> None:
    """Sizes of the smallest and the largest block; one row takes the other of two cuts with the same surface."""
    rows = [row for row in table(path) if row["tile_splits"]]
    assert len(rows) > 5
    for row in {(row["problem"], row.get("mesh") or row["grid"], row["chips"]): row for row in rows}.values():
        grid = tuple(int(part) for part in (row.get("mesh") or row["grid"]).split("x"))
        chips, pad = int(row["chips"]), int(row.get("space_order") or 2) // 2
        own_edges = row["problem"] == "aliev_panfilov"
        splits = squarest(grid, 1472) if own_edges else least_surface(grid, 1472, chips)
        shape = tuple(extent + 2 * own_edges for extent in grid)
        lengths = computed(shape, pad, splits, chips, 1472).boxes().lengths
        volume = lengths.prod(axis=1)
        found = [sorted(lengths[at].tolist()) for at in (volume.argmin(), volume.argmax())]
        given = [sorted(map(int, row[name].split("x"))) for name in ("smallest_tile", "largest_tile")]
        assert found == given
        if row["tile_splits"] != "23x8x8" or chips == 1:
            assert "x".join(map(str, splits)) == row["tile_splits"]


@pytest.mark.parametrize(("shape", "chips", "pad"), [((21, 46), 2, 1), ((14, 15, 34), 2, 2), ((9, 40), 1, 1)])
def test_every_cell_is_computed_and_held_once(shape: tuple[int, ...], chips: int, pad: int) -> None:
    splits = least_surface(shape, 16, chips)
    assert np.prod(splits) == 16
    for blocks, border in ((computed(shape, pad, splits, chips, 16), pad), (held(shape, splits, chips, 16), 0)):
        boxes = blocks.boxes()
        assert sorted(boxes.tiles.tolist()) == list(range(16 * chips))
        touched = np.zeros(shape, int)
        for bounds in boxes.split((6,)).bounds.tolist():
            touched[tuple(slice(*each) for each in bounds)] += 1
        inner = tuple(slice(border, extent - border) for extent in shape)
        assert (touched[inner] == 1).all()
        assert touched.sum() == touched[inner].sum()


def test_what_is_held_differs_from_what_is_computed_on_several_chips_and_beyond_order_two() -> None:
    one, two = (computed((8000, 8000), 1, (46, 32), chips, 1472).edges[1] for chips in (1, 2))
    assert (one[1:-1] == held((8000, 8000), (46, 32), 1, 1472).edges[1][1:-1]).all()
    assert np.abs(two - held((8000, 8000), (46, 32), 2, 1472).edges[1])[1:-1].max() == 1
    wide = computed((320, 320, 320), 4, (23, 8, 8), 1, 1472).edges[0]
    assert np.abs(wide - held((320, 320, 320), (23, 8, 8), 1, 1472).edges[0])[1:-1].max() == 3


def around(field: np.ndarray, pad: int, reach: int) -> np.ndarray:
    """Sum of the neighbours `reach` cells away along every axis, of the cells `pad` from the edges."""
    inner = (slice(pad, -pad),) * field.ndim
    return sum(np.roll(field, way, axis)[inner] for axis in range(field.ndim) for way in (reach, -reach))


def plain_turn(key: tuple[str, int, str], fields: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """One turn of the loop on whole grids in float64: a second implementation."""
    problem, order, _ = key
    pad, turning = order // 2, SOLVERS[key].turning
    found = {name: field.astype(np.float64) for name, field in fields.items()}
    for step in range(turning):
        old, new = (found[f"field {(step + turning - 2 + ahead) % turning}"] for ahead in (0, 1))
        inner = (slice(pad, -pad),) * old.ndim
        own = old[inner]
        change = old.ndim * WEIGHTS[pad][0] * own
        change = change + sum(weight * around(old, pad, at) for at, weight in enumerate(WEIGHTS[pad][1:], start=1))
        if problem == "wave":
            before = found[f"field {(step + turning - 3) % turning}"][inner]
            damp, mass = 10 * found["damp"][inner], 100 / found["velocity"][inner] ** 2
            new[inner] = (damp * own + mass * (2 * own - before) + change) / (mass + damp)
        elif problem == "aliev_panfilov":
            for at, line in ((0, 2), (-1, -3)):
                old[at, 1:-1], old[1:-1, at] = old[line, 1:-1], old[1:-1, line]
            recovery = found["recovery"][inner]
            change = around(old, 1, 1) - 4 * own
            growth = 8 * own * (own - 0.1) * (own - 1)
            slow = (-0.01 - 0.07 * recovery / (0.3 + own)) * (recovery + 8 * own * (own - 1.1))
            new[inner] = own + 1e-3 * (50 * change - growth - own * recovery)
            recovery += 1e-3 * slow
        else:
            new[inner] = own + 0.1 * change
    return found


@pytest.mark.parametrize("chips", [1, 2])
@pytest.mark.parametrize("key", SOLVERS, ids=lambda key: f"{key[0]} {key[1]} {key[2]}")
def test_a_turn_keeps_the_rules_and_equals_plain_numpy(key: tuple[str, int, str], chips: int) -> None:
    solver, machine = SOLVERS[key], load_machine("tiny", {"chip.tiles": 4, "links.chips": chips})
    program = solver_program(solver, GRIDS[solver.axes], machine, chips)
    assert not verify(program, program.tiles)
    rng = np.random.default_rng(5)
    fields = {name: rng.uniform(0.5, 1.5, program.variables[name].shape).astype(np.float32) for name in program.inputs}
    executor = Executor(program)
    executor.write(fields)
    executor.run()
    expected = plain_turn(key, fields)
    for name in program.outputs:
        np.testing.assert_allclose(executor.read(name), expected[name], rtol=3e-6, atol=3e-6)


def test_rows_are_copied_where_they_lie_in_pieces() -> None:
    """One chip, order 2: rows with a halo. Two chips: cells held by a neighbour are written back, too."""
    machine = load_machine("tiny", {"chip.tiles": 4, "links.chips": 2})
    one = solver_program(SOLVERS[HEAT_2D], GRIDS[2], machine, 1)
    assert [step.stage for step, _, _ in one.supersteps()] == ["pre copies", "compute"] * 2
    two = solver_program(SOLVERS[HEAT_2D], GRIDS[2], machine, 2)
    assert [step.stage for step, _, _ in two.supersteps()] == ["pre copies", "compute", "post copies"] * 2
    copied = {name for name in solver_program(SOLVERS[WAVE], GRIDS[3], machine, 1).variables if "in rows" in name}
    assert copied == {f"{role} in rows" for role in ("now", "before", "damp", "velocity", "computed")}
    assert [step.stage for step, _, _ in solver_program(SOLVERS[ALIEV_PANFILOV], (21, 46), machine, 1).supersteps()][
        :6
    ] == ["north edge", "south edge", "west edge", "east edge", "pre copies", "compute"]


@pytest.mark.parametrize(
    ("key", "extent", "bundles", "paired", "slowest"),
    [
        (HEAT_2D, "pairs", 16, 9, 20),  # 7 loads and stores, 7 operations, index and branch; 4 row pointers
        (HEAT_3D, "pairs", 20, 11, 26),
        (("heat3d", 2, "HeatEquationSimple"), "cells", 18, 10, 24),
        (("diffusion", 2, "DiffusionEquationSimple"), "cells", 26, 18, 34),
        (("diffusion", 4, "DiffusionEquationSimple"), "cells", 45, 31, 59),  # 10 row pointers: one too many
        (("diffusion", 8, "DiffusionEquationSimple"), "cells", 83, 57, 107),
        (WAVE, "cells", 59, 42, 75),
        (ALIEV_PANFILOV, "cells", 41, 31, 53),  # the published assembly: 38 issue slots, 54 instructions
    ],
)
def test_a_turn_costs_its_instructions(
    key: tuple[str, int, str], extent: str, bundles: int, paired: int, slowest: int
) -> None:
    (term,) = (term for term in codelet_of(SOLVERS[key]).cost.terms if term.extents == (extent,))
    assert (term.bundles, term.bundles - term.pairable) == (bundles, paired)
    (again,) = (term for term in codelet_of(SOLVERS[key], reloaded=True).cost.terms if term.extents == (extent,))
    assert again.bundles == slowest


def test_turns_of_a_row_in_pairs() -> None:
    """46 columns: 44 inner cells, both ends alone; on 2 chips halves of 22 and so on, some of odd length."""
    machine = load_machine("tiny", {"chip.tiles": 4, "links.chips": 2})
    program = solver_program(SOLVERS[HEAT_2D], (21, 47), machine, 2)
    step = next(step for step, _, _ in program.supersteps() if step.stage == "compute")
    turns = extents_of(program, step.tables[0])
    columns = step.tables[0].columns
    along = columns["high1"] - columns["low1"]
    assert set((along % 2).tolist()) == {0, 1}
    assert (turns["ends"] == turns["rows"] * np.where(along % 2, 1, 2)).all()
    assert (turns["ends"] + 2 * turns["pairs"] == turns["cells"]).all()


def test_a_triad_adds_and_takes_a_bundle_for_two_elements() -> None:
    machine = load_machine("tiny", {"chip.tiles": 2})
    for assembly in (False, True):
        program = triad_program(machine, 10, assembly=assembly)
        assert not verify(program, program.tiles)
        executor = Executor(program)
        b, c = np.random.default_rng(6).random((2, *program.variables["a"].shape), np.float32)
        executor.write({"b": b, "c": c})
        executor.run()
        np.testing.assert_allclose(executor.read("a"), b + 3 * c, rtol=1e-6)
    # 3,748 turns of 2 elements, 7 bundles around them, 16 of the state; loop control 40 and its barrier 126
    assert triad_times(7500, True).cycles == 6 * (3748 + 7 + 16) + 166
    assert triad_times(7500, False).cycles == 6 * (7 * 7500 + 16) + 166


def test_a_step_on_one_chip_is_the_sum_of_its_parts() -> None:
    """Largest tile 174 x 250: a context has 29 rows of 250, 124 pairs and both ends each."""
    found = solver_times(*HEAT_2D, (8000, 8000), 1)
    compute = 6 * (16 + 29 * (124 * 16 + 2 * 12 + 2 * (4 * 2 + 4)))
    copies = 6 * (49 + 30 * 6 + 30 * 251 // 2)  # blocks at the edges hold the border, too
    pieces = 2 * (174 + 1) + 4  # columns of a block lie apart; that many are sent and received, two cycles each
    assert found.cycles == compute + copies + 100 + 2 * 2 * pieces + 126 + (40 + 126) / 2
    assert found.turns == 29 * 124
    assert found.low < found.cycles < found.high
    assert found.slots_of(found.cycles) == 16
    assert found.slots_of(found.cycles + 6 * 29 * 124) == pytest.approx(17)
    assert found.memory.peak_bytes < found.memory.limit_bytes


@pytest.mark.first(3)
@pytest.mark.parametrize("changes", [{"issue_cycles": 4}, {"issue_cycles": 12}, {"worker_contexts": 8}])
def test_slots_are_told_in_the_machines_own_cycles(changes: dict[str, int]) -> None:
    """A bundle more in every turn is a slot more, also where contexts wait longer or share the issue with others."""
    machine = load_machine("mk2", {f"tile.{name}": number for name, number in changes.items()})
    found, codelet = triad_times(1000, False, machine), triad_codelet(assembly=False)
    (turn,) = codelet.cost.terms
    longer = replace(codelet, cost=replace(codelet.cost, terms=(replace(turn, bundles=turn.bundles + 1),)))
    program = triad_program(machine, 1000, assembly=False).with_codelet(codelet.name, longer)
    assert found.slots_of(sum(span.cycles for span in time_by_hand(program, machine).spans)) == found.slots + 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((*HEAT_2D, (8000,), 1), "2 axes of at least 1 cell"),
        ((*HEAT_2D, (10**6, 10**6), 1), r"at most 2\^33 cells"),
        ((*HEAT_2D, (40, 40), 1), "some would be empty"),
        ((*HEAT_2D, (8000, 8000), 65), "1 to 64"),
        (("heat3d", 6, "HeatEquationOptimized", (320, 320, 320), 1), "no program of heat3d of order 6"),
    ],
)
def test_programs_that_cannot_be_made_say_why(arguments: tuple[Any, ...], said: str) -> None:
    with pytest.raises(MappingError, match=said):
        solver_times(*arguments)
    with pytest.raises(MappingError, match="give 4 to"):
        triad_times(3, True)


def rows_of(*rows: dict[str, str]) -> list[dict[str, Any]]:
    return [vars(row) for row in SOLVER_STEPS[0].rows(given(*rows), Asked())]


ONE = dict.fromkeys(table(TABLES[0])[0], "") | {
    "problem": "heat2d",
    "processor": "IPU",
    "chips": "1",
    "tiles": "1472",
    "mesh": "8000x8000",
    "dtype": "float32",
    "iterations": "1000",
    "us_per_iteration_from_throughput": "299.85",
    "source_path": "x",
}
OTHER = dict.fromkeys(table(TABLES[1])[0], "") | {
    "problem": "heat",
    "space_order": "2",
    "vertex": "HeatEquationOptimized",
    "chips": "1",
    "tiles": "1472",
    "grid": "200x200x200",
    "dtype": "float32",
    "iterations": "1000",
    "fits": "yes",
    "us_per_iteration": "60",
    "source_path": "y",
}


@pytest.mark.parametrize(
    ("row", "change", "said"),
    [
        (ONE, {"processor": "CPU"}, "processor 'CPU'"),
        (ONE, {"dtype": "float16"}, "dtype 'float16'"),
        (ONE, {"tiles": "1216"}, "a Mk2 has 1472"),
        (ONE, {"problem": "tea"}, "no program of tea"),
        (ONE, {"mesh": "8000"}, "is not a number of cells"),
        (OTHER, {"space_order": "6"}, "no program of heat3d of order 6"),
        (OTHER, {"space_order": "2.5"}, "is not a whole number up to 64"),
        (OTHER, {"chips": "65", "tiles": ""}, "1 to 64"),
        (OTHER, {"us_per_iteration": "", "time_s": "", "GPts_per_s": ""}, "no time is given"),
    ],
)
def test_rows_that_cannot_be_computed_say_why(row: dict[str, str], change: dict[str, str], said: str) -> None:
    (found,) = rows_of(row | change)
    assert said in found["note"]
    assert (found["predicted"] is None) == (said != "no time is given")


@pytest.mark.parametrize(
    "change", [{"chips": "two"}, {"chips": "0"}, {"iterations": "nan"}, {"us_per_iteration": "-1"}]
)
def test_numbers_that_are_none_are_named(change: dict[str, str]) -> None:
    (column,) = change
    refused, other = rows_of(OTHER | change, OTHER)
    assert refused["name"] == "line 2"
    assert refused["note"] == f"column '{column}': '{change[column]}' is not a number above 0"
    assert other["predicted"] is not None


def test_time_is_read_from_whatever_column_has_it() -> None:
    times = ({"us_per_iteration": "60"}, {"time_s": "0.06"}, {"GPts_per_s": str(8e6 / 60e-6 / 1e9)})
    given = [OTHER | {"us_per_iteration": ""} | each for each in times]
    assert [row["published"] for row in rows_of(*given)] == pytest.approx([60, 60, 60])


def test_a_program_measured_twice_is_judged_by_the_nearer_end() -> None:
    """The other measurement of 8000 x 8000 comes from the tables of the package."""
    (found,) = rows_of(ONE)
    assert found["published"] == found["second"] == 299.85
    (found,) = rows_of(ONE | {"us_per_iteration_from_throughput": "235.465"})
    assert (found["published"], found["second"]) == (299.85, 235.465)
    assert found["second_name"] == "this measurement"
    (found,) = rows_of(OTHER | {"us_per_iteration": "30"})
    assert found["second"] is None
    assert found["published"] == pytest.approx(30)
    assert "issue slots a turn of the inner loop" in found["note"]


def test_author_and_sdk_say_which_rows_are_summed_up_together() -> None:
    kinds = [row["kind"] for row in rows_of(ONE, OTHER, OTHER | {"note": "the original author, Poplar SDK 2.2"})]
    assert kinds == ["simehaa/IPU, SDK 2.2", "TszwangKo/FYP_IPU_DEVITO, SDK 3.2", "simehaa/IPU, SDK 2.2"]


def test_what_did_not_fit_is_told_without_a_verdict() -> None:
    """The side of such rows leaves out the cells around the grid."""
    no = {"fits": "no", "us_per_iteration": "", "iterations": "", "bytes_on_worst_tile": "700000"}
    large, small = (OTHER | no | {"problem": "heat2d", "grid": f"{side}x{side}"} for side in (9998, 4998))
    large, small = rows_of(large, small)
    assert large["published"] is small["published"] is None
    assert "does not fit here either" in large["note"]
    assert "(published: 700000 B)" in large["note"]
    assert "would fit here" in small["note"]
    assert large["predicted"] == solver_times(*HEAT_2D, (10000, 10000), 1).memory.peak_bytes


@pytest.mark.slow
def test_all_steps_beside_the_published_ones() -> None:
    rows = [row for row in check_files(TABLES, None, lambda *_: None) if row.ratio is not None]
    assert len(rows) == 7 + 17
    assert all(row.within for row in rows)
    for kind in {row.kind for row in rows}:
        errors = [abs(row.ratio - 1) for row in rows if row.kind == kind]
        assert np.mean(errors) < 0.12
    assert all(row.low < row.published < row.high for row in rows if "triad" not in row.name)


@pytest.mark.slow
@pytest.mark.parametrize("make", [lambda: solver_times(*HEAT_2D, (28000, 28000), 16)], ids=["16 chips"])
def test_sixteen_chips_are_timed_without_an_array_of_cells(make: Callable[[], Any]) -> None:
    found = make()
    assert found.link_cycles > 1000
    assert found.cycles < 400_000
