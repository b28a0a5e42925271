"""Why a superstep takes its cycles: rows that sum to what the profile says, for any tile of any program."""

from __future__ import annotations

import math
import random
import re
import runpy
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import mimdsim as typed
from small_detail import SMALL

from mimdsim import run
from mimdsim.base.checksummed import write_sealed_arrays
from mimdsim.base.errors import MappingError
from mimdsim.checking.program import shrunk
from mimdsim.checking.test_inputs import DRAWS, drawn_inputs
from mimdsim.compiler import measure_memory
from mimdsim.costs.fabric import Row, fabric_of
from mimdsim.costs.isa_costs import with_machine_costs
from mimdsim.execution import Executor
from mimdsim.machine import MimdMachine, load_machine
from mimdsim.pipeline import compile_workload, memory_profile
from mimdsim.pipeline.result import Run
from mimdsim.profile import TiledProfile
from mimdsim.program import Program, RecordedActivity, TileFormula
from mimdsim.program.printer import listing
from mimdsim.timing import explain, program_loads, time_program
from mimdsim.timing.explanation import _numbered, formula_text
from mimdsim.timing.static_plan import superstep_placements
from mimdsim.timing.tile_cycles import TileIssue, library_cycles
from mimdsim.validation.products import matrix_vector_program
from mimdsim.validation.stencil.blur import make_program
from mimdsim.workload import filled_activity, load_workload

ROOT = Path(__file__).resolve().parents[2]
NOTHING = RecordedActivity(ids={}, counts={}, dropped={})


@cache
def machine(name: str, **changes: Any) -> MimdMachine:
    found = load_machine(name, {key.replace("__", "."): value for key, value in changes.items()})
    assert isinstance(found, MimdMachine)
    return found


def timed(program: Program, on: MimdMachine, activity: RecordedActivity) -> TiledProfile:
    return time_program(program, on, activity, memory_profile(program, measure_memory(program, on), on), must_fit=False)


def assert_explained(program: Program, on: MimdMachine, activity: RecordedActivity, others: int = 2) -> None:
    """Every span of the profile, from its slowest tile and from random ones."""
    profile, loads = timed(program, on, activity), program_loads(program, activity, TileIssue.of(on))
    draw = random.Random(0)
    for number, span in enumerate(profile.spans):
        for tile in (None, *(draw.randrange(program.tiles) for _ in range(others))):
            found = explain(program, on, number, tile, activity)
            told = found.compute_cycles, found.exchange_cycles, found.sync_cycles
            assert told == (span.compute_cycles, span.exchange_cycles, span.sync_cycles), (span.name, tile)
            assert found.cycles == span.cycles
            if number < len(loads):
                assert found.busy_cycles == loads[number].busy[found.tile], (span.name, tile)
            if number < len(loads) and tile is None and span.compute_cycles:
                assert found.tile == span.slowest_tile


WORKLOADS = [
    ("digits", {}, "bow", {}),
    ("digits", {"mapping.neurons_unit": 1}, "bow", {"links__chips": 3}),
    ("digits", {}, "mk1", {}),
    ("digits", {"mapping.stash": "every:2"}, "tiny", {}),
    ("digits", {"mapping.neurons_per_tile": 12}, "bow", {"tile__worker_contexts": 9, "tile__compiled_dual_issue": 0.5}),
    ("digits", {"network.spikes": "dense"}, "mk2", {}),
]


def recorded(name: str, changes: dict[str, Any], on: MimdMachine) -> tuple[Program, RecordedActivity]:
    compiled = compile_workload(shrunk(load_workload(name, changes), 6, 8, on), on, must_fit=False)
    executor = Executor(compiled.program)
    given = drawn_inputs(compiled.network, DRAWS[0])
    executor.write({key: value for key, value in given.items() if key in compiled.program.inputs})
    executor.run()
    return compiled.program, executor.activity()


@pytest.mark.parametrize(("name", "changes", "on", "fields"), WORKLOADS)
def test_the_rows_of_compiled_programs_sum_to_the_profile(
    name: str, changes: dict[str, Any], on: str, fields: dict[str, Any]
) -> None:
    chosen = machine(on, **fields)
    program, activity = recorded(name, changes, chosen)
    assert_explained(program, chosen, activity)


@pytest.mark.parametrize(("on", "fields"), [("bow", {}), ("mk1", {}), ("mk1", {"links__chips": 2})])
def test_the_rows_of_a_stencil_sum_to_the_profile(on: str, fields: dict[str, Any]) -> None:
    chosen = machine(on, **fields)
    assert_explained(make_program(chosen, "float", 96, 120, chosen.links.chips), chosen, NOTHING)


@pytest.mark.parametrize("variant", ["c++", "assembler"])
def test_the_rows_of_a_product_sum_to_the_profile(variant: str) -> None:
    on = machine("mk2")
    assert_explained(matrix_vector_program(on, 500, 300, variant), on, NOTHING)


# ---- what is said


def smoothing() -> tuple[Program, MimdMachine]:
    """Two vertices a tile, each 30 bundles and 5 for each of 4 cells."""
    found = runpy.run_path(str(ROOT / "examples" / "hand_written.py"))
    on = machine("tiny", chip__tiles=4)
    return found["build"](on), on


def test_the_table_of_a_program_by_hand() -> None:
    program, on = smoothing()
    found = explain(program, on, "smooth", 1)
    assert [one.number for one in found.contexts] == [0, 1]
    assert found.contexts[1].vertices == ("3 of Smooth",)
    assert found.work[0].vertices == (2, 3)
    assert found.work[0].how == "30 + 5 x 4 cells = 50 bundles"
    rows = {row.what: row for row in (*found.compute, *found.exchange, *found.sync)}
    assert rows["Smooth, to begin with"].cycles == 30 * 6
    assert rows["Smooth, for each of cells"].cycles == 5 * 4 * 6
    assert rows["Smooth, for each of cells"].how == "5 bundles x 4 turns x 6 issue cycles"
    assert rows["fixed part of an exchange"].cycles == on.exchange.fixed_cycles
    assert rows["barrier of the chip"].cycles == on.sync.internal_cycles
    text = str(found)
    assert f"takes {found.cycles:,} cycles on tiny: one execution, seen from tile 1" in text
    assert "longest context 50 bundles x 6 issue cycles = 300; all bundles 100: the longest context decides" in text
    assert all(len(line) <= 110 for line in text.splitlines())


def test_scarce_issue_slots_are_told() -> None:
    program, on = smoothing()
    crowded = on.model_copy(update={"tile": on.tile.model_copy(update={"issue_cycles": 1})})
    found = explain(program, crowded, "smooth", 1)
    assert found.busy_cycles == 100
    assert {row.note for row in found.compute} == {"in all contexts"}
    assert "the issue of all bundles decides" in str(found)


def test_a_cheaper_codelet_is_explained_cheaper() -> None:
    program, on = smoothing()
    (table,) = next(program.supersteps())[0].tables
    cost = replace(table.codelet.cost, fixed=10)
    found = explain(program.with_codelet("Smooth", replace(table.codelet, cost=cost)), on, "smooth")
    assert found.busy_cycles == (10 + 20) * 6


@pytest.mark.parametrize(
    ("name", "rows"),
    [("arranging_rows", (Row(what="invented", how="7", cycles=7.0),)), ("Workers.rows", [])],
    ids=["a row too many", "rows that are missing"],
)
def test_rows_that_are_not_what_the_engine_counts_are_a_fault(
    monkeypatch: pytest.MonkeyPatch, name: str, rows: Any
) -> None:
    program, on = smoothing()
    module = sys.modules["mimdsim.timing.explain"]  # the package has a function of this name
    owner, _, attribute = name.rpartition(".")
    monkeypatch.setattr(getattr(module, owner) if owner else module, attribute, lambda *_: rows)
    told = "307" if rows else "0"
    with pytest.raises(RuntimeError, match=rf"'smooth' on tile 1: the rows of compute sum to {told} .* counts 300"):
        explain(program, on, "smooth", 1)


def test_what_is_not_there_cannot_be_explained() -> None:
    program, on = smoothing()
    with pytest.raises(MappingError, match=r"no superstep 'smoth' in the program; did you mean 'smooth'\?"):
        explain(program, on, "smoth")
    with pytest.raises(MappingError, match="no superstep 7 in the program, which has 1, counted from 0"):
        explain(program, on, "7")
    with pytest.raises(MappingError, match="no tile 4: the program has tiles 0 to 3"):
        explain(program, on, "smooth", 4)
    with pytest.raises(MappingError, match="no timestep 1: the superstep runs 1 times, counted from 0"):
        explain(program, on, "smooth", timestep=1)
    twice = replace(program, body=(*program.body, replace(next(program.supersteps())[0])))
    with pytest.raises(MappingError, match=r"2 supersteps are called 'smooth': give the number of one, \[0, 1\]"):
        explain(twice, on, "smooth")
    assert explain(twice, on, 1).busy_cycles == 300


def test_a_timestep_can_be_chosen() -> None:
    on = machine("bow")
    program, activity = recorded("digits", {}, on)
    shown = [explain(program, on, "state gradient", 12, activity, timestep) for timestep in range(6)]
    assert {one.cycles for one in shown} == {shown[0].cycles}  # all executions, whichever is shown
    longest = [max(context.bundles for context in one.contexts) for one in shown]
    assert len(set(longest)) > 1
    assert explain(program, on, "state gradient", 12, activity).timestep == int(np.argmax(longest))


def test_numbers_of_vertices_are_folded() -> None:
    assert _numbered([3]) == "vertex 3"
    assert _numbered([*range(312), 313]) == "vertices 0-311, 313"
    assert _numbered([4, 5, 9]) == "vertices 4, 5, 9"
    assert _numbered(range(0, 600, 2)).endswith(", 20, 22 and 288 more")


@pytest.mark.parametrize("spikes", ["sparse", "dense"])
def test_formulas_of_library_vertices_are_told_with_their_numbers(spikes: str) -> None:
    """What is written can be worked out, and comes to the cycles."""
    on, program = machine("bow"), recorded("digits", {"network.spikes": spikes}, machine("bow"))[0]
    issue, placements, told = TileIssue.of(on), superstep_placements(program), {}
    for superstep, _, _ in program.supersteps():
        for table, columns in zip(superstep.tables, placements[superstep].extents, strict=True):
            if isinstance(table.codelet.cost, TileFormula) and table.vertices:
                extents = {name: int(column[0]) for name, column in columns.items()}
                text = formula_text(table.codelet, extents, issue)
                told[table.codelet.name] = text
                if not text.startswith("its formula"):
                    alone = {name: np.array([value]) for name, value in extents.items()}
                    assert worked_out(text) == float(library_cycles(table.codelet, alone, issue, 1).reshape(-1)[0])
    followed = [name for name, text in told.items() if not text.startswith("its formula")]
    assert len(followed) > 0.7 * len(told)
    if spikes == "sparse":
        assert told["CopyColumns"].startswith("288 + floor(4 x ")
        assert told["FillColumns"].startswith("6 contexts x (23 + floor(ceil(")


def worked_out(text: str) -> float:
    sum_of = re.sub(r"(?<=[0-9)]) (?!x )[a-z_]+", "", text.replace(",", "")).replace(" x ", " * ")
    return float(eval(sum_of, {"ceil": math.ceil, "floor": math.floor, "max": max, "min": min}))


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Path]:
    folder = tmp_path_factory.mktemp("explained") / "run"
    small = {"network.hidden": [24], "network.capacity": [8, 10]}
    short = {**small, "data.timesteps": 5, "training.max_training_steps": 3, "training.evaluate": "never"}
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("mimdsim.report.page.FIGURES", ())
        return run("digits", "tiny", gpus=(), changes={**short, "tile.worker_contexts": 3}, report=folder), folder


def test_a_run_that_was_made_is_explained(ran: tuple[Run, Path]) -> None:
    made, folder = ran
    name = str(folder)
    assert typed("explain", name, "LIF UPDATE") == f"{made.explain('LIF update')}\n"
    at_tile = ("--tile", "5", "--timestep", "2")
    assert typed("explain", name, "state_gradient", *at_tile) == f"{made.explain('state gradient', 5, 2)}\n"
    listed = typed("explain", str(folder / "profile.json")).splitlines()
    assert listed[0] == f"{made.cycles:,} cycles a training step on tiny"
    assert len(listed) == 2 + len(made.tiled.spans)
    several = typed("explain", name, "backward")
    longest = max((span for span in made.tiled.spans if span.phase == "backward"), key=lambda span: span.cycles)
    assert f"superstep '{longest.name}' (backward) takes {longest.cycles:,} cycles" in several
    assert "of them, which take" in several.splitlines()[0]
    loop = typed("explain", name, "loop control forward")
    assert "counting on one tile" in loop


def test_a_tile_of_no_superstep_is_refused() -> None:
    said = typed("explain", "digits", "bow", "--tile", "3", code=2)
    assert "--tile and --timestep are of a superstep: name one behind the machine" in said


def test_what_is_missing_or_too_much_for_a_saved_run_is_said(ran: tuple[Run, Path], tmp_path: Path) -> None:
    _, folder = ran
    told = typed("explain", str(folder), "mk2", "LIF update", code=2)
    assert "is a run that was made, with its machine: leave out 'mk2'" in told
    for name in ("profile.json", "detail.npz"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    assert typed("explain", str(tmp_path), "lif update").startswith("superstep 'LIF update'")  # what the page shows
    told = typed("explain", str(tmp_path), "lif update", "--tile", "3", code=2)
    assert "spikes.npz: no such file, which has the spikes of the run; make it again" in told
    (tmp_path / "spikes.npz").write_bytes(b"PK" + bytes(200))
    assert "is damaged" in typed("explain", str(tmp_path), "lif update", "--tile", "3", code=2)
    write_sealed_arrays(tmp_path / "spikes.npz", {"described": np.full(2 << 20, ord("["), np.uint8)})
    told = typed("explain", str(tmp_path), "lif update", "--tile", "3", code=2)
    assert "is not what this mimdsim writes (descriptions of 2,097,152 bytes)" in told


# ---- the program as text


def test_the_listing_tells_boxes_and_costs() -> None:
    program, _ = smoothing()
    lines = listing(program, [534]).splitlines()
    at = lines.index("smoothing: smooth, 24 bytes received, 534 cycles")
    assert lines[at + 1 : at + 7] == [
        "  exchange to 4 tiles, most to tile 1: 8 bytes",
        "    4 parts: old[4:10] to tile 0 .. old[24:30] to tile 3",
        "  Smooth 8 vertices on 4 tiles, 0 to 3",
        "    writes  out = new[start:stop]: [0:4] .. [28:32]",
        "    reads   cells = old[start:after]: [0:6] .. [28:34]",
        "    costs   30 bundles + 5 for each of cells (assumed); cells: 4",
    ]
    assert "  old: float32[34] cells, axis 0 over 4 tiles" in lines
    assert "cycles" not in listing(program).split("\n\n")[1]


def test_dumps_have_the_costs_of_the_machine(tmp_path: Path) -> None:
    """Not those of the instruction set that codelets are counted for."""
    typed("explain", str(ROOT / "examples" / "hand_written.py"), "spinnaker2", "--dump", str(tmp_path / "one.txt"))
    assert "costs   57 bundles + 7 for each of cells (assumed); cells: 4" in (tmp_path / "one.txt").read_text()
    on = machine("spinnaker2")
    made = compile_workload(load_workload("digits", SMALL), on, dump=tmp_path, must_fit=False)
    assert (tmp_path / "04_plan_exchanges.txt").read_text() == listing(with_machine_costs(made.program, on))


def test_the_listing_of_a_compiled_program_tells_what_spikes_set() -> None:
    program, _ = recorded("digits", {}, machine("bow"))
    text = listing(program)
    assert "reads   ids = ids.input[sample, :]: [0, :] .. [7, :]" in text
    assert "spikes: spikes of hidden0 at @t-1" in text
    assert "v.hidden0[:, start:stop]: [:, 0:2] .. [:, 254:256]" in text


def test_the_page_shows_what_is_printed() -> None:
    program, on = smoothing()
    page = (ROOT / "docs" / "explain.md").read_text()
    command = "$ mimdsim explain examples/hand_written.py tiny smooth --tile 1"
    assert f"```\n{command}\n{explain(program, on, 'smooth', 1)}\n```" in page
    assert f"```\n{listing(program, [534])}```" in page


@pytest.mark.parametrize("changes", [{}, {"chip__grid": "torus", "exchange__ways": "opposed"}])
def test_the_fullest_link_is_named(changes: dict[str, Any]) -> None:
    """Of a mesh that many tiles send over: its ends lie side by side, it is in use for part of the phase."""
    small = {"chip__tiles": 48, "chip__grid_columns": 8, **changes}
    on = machine("bow-mesh", **small)
    made = compile_workload(load_workload("digits", SMALL), on, must_fit=False)
    activity = filled_activity(made.network, 0.5)
    named = 0
    for number, (superstep, times, _) in enumerate(made.program.supersteps()):
        found = explain(made.program, on, number, None, activity)
        if superstep.exchange is None:
            assert not found.fullest_link
            continue
        links = fabric_of(on).links(made.program, superstep.exchange)
        assert links is not None
        takes = links.cycles[:, 0]
        way, row, column = np.unravel_index(takes.argmax(), takes.shape)
        assert takes.max() * times <= found.exchange_cycles
        assert found.fullest_link.startswith(
            f"column {column}, row {row} (tile {8 * row + column}) {('east', 'west', 'south', 'north')[way]} to column "
        )
        half = np.count_nonzero(takes >= takes.max() / 2)
        assert f"{half} of {np.count_nonzero(takes)} links that carry anything" in found.fullest_link
        assert f"bytes, in use for {takes.max():,.0f} of " in found.fullest_link
        assert "  fullest link" in str(found)
        named += 1
    assert named > 10
    assert not explain(made.program, machine("bow", chip__tiles=48), 0, None, activity).fullest_link
