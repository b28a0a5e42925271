"""What a newcomer gets wrong in a program of their own: each mistake is named where it is made, none is passed over."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from mimdsim.base.errors import MappingError
from mimdsim.base.shown import PHASES, in_order
from mimdsim.compiler import measure_memory, plan_exchanges
from mimdsim.execution import Executor, execute_strictly
from mimdsim.execution.execute import VertexFailure
from mimdsim.machine import MimdMachine, load_machine
from mimdsim.pipeline import memory_profile
from mimdsim.program import (
    Codelet,
    Copy,
    Field,
    Program,
    RecordedActivity,
    Repeat,
    Superstep,
    TileMapping,
    Variable,
    VertexTable,
    WorkerBundles,
    verify,
)
from mimdsim.timing import time_program

TILES, EACH = 4, 3
CELLS = TILES * EACH
STARTS = np.arange(TILES) * EACH
COST = WorkerBundles(fixed=1, terms=(), kind="assumed", source="a test")


def copy_cells(out: np.ndarray, cells: np.ndarray, again: np.ndarray) -> None:
    out[:] = cells + again


def codelet(compute: Callable[..., None] = copy_cells, box: tuple[str, ...] = ("start:stop",)) -> Codelet:
    return Codelet(
        name="Take",
        fields=(
            Field(name="out", access="write", box=box),
            Field(name="cells", access="read", box=("from:to",)),
            Field(name="again", access="read", box=("from:to",)),
        ),
        columns=(),
        compute=compute,
        form="vertex",
        cost=COST,
    )


def variable(name: str, **changes: Any) -> Variable:
    mapping = TileMapping.split(0, np.arange(TILES), STARTS, STARTS + EACH)
    given = {"name": name, "shape": (CELLS,), "dtype": "float32", "mapping": mapping, "category": "neuron states"}
    return Variable(**(given | changes))


def program(compute: Callable[..., None] = copy_cells, shape: tuple[int, ...] = (CELLS,), **changes: Any) -> Program:
    """One vertex a tile; every one reads the cells of the next tile. Not planned; `changes` go into its table."""
    after = (STARTS + EACH) % CELLS
    columns = {"start": STARTS, "stop": STARTS + EACH, "from": after, "to": after + EACH} | changes.pop("columns", {})
    given: dict[str, Any] = {
        "codelet": codelet(compute), "layer": "", "tiles": np.arange(TILES), "columns": columns,
        "operands": {"out": "new", "cells": "old", "again": "old"},
    }  # fmt: skip
    table = VertexTable(**(given | changes))
    step = Superstep(name="take", op="", phase="forward", stage="take", tables=(table,))
    variables = {"old": variable("old", shape=shape), "new": variable("new")}
    return Program(
        tiles=TILES, variables=variables, body=(step,), layers=(), inputs={"old": "old"}, outputs={"taken": "new"}
    )


def same_refusal(wrong: Program, pattern: str) -> None:
    """Both the planner and the verifier refuse, in the same words."""
    with pytest.raises(MappingError, match=pattern) as refused:
        plan_exchanges(wrong)
    assert verify(wrong, TILES)[0].message == str(refused.value)


# ---- columns


def test_loops_run_a_whole_number_of_times_and_never_fewer_than_none() -> None:
    with pytest.raises(ValueError, match=r"extent 'cells' is -3 for vertex 1; a loop cannot run fewer than 0 times"):
        program(extents={"cells": np.array([2, -3, 2, 2])[:TILES]})
    with pytest.raises(ValueError, match=r"extent 'cells' must be whole numbers in one column, given float64"):
        program(extents={"cells": np.full(TILES, 0.5)})


@pytest.mark.parametrize("changes", [{"columns": {"to": np.full(TILES, 2.5)}}, {"tiles": np.arange(TILES) / 1}])
def test_columns_are_whole_numbers(changes: dict[str, Any]) -> None:
    what = "column 'to'" if "columns" in changes else "tiles"
    wanted = rf"table of 'Take': {what} must be whole numbers in one column, given float64 \[4\]"
    with pytest.raises(ValueError, match=wanted):
        program(**changes)


def test_intervals_of_a_mapping_are_whole_numbers() -> None:
    with pytest.raises(ValueError, match=r"mapping: starts must be whole numbers in one column, given float64 \[1\]"):
        TileMapping(axis=0, tiles=np.zeros(1, np.int64), starts=np.zeros(1), stops=np.ones(1, np.int64))
    listed = TileMapping(axis=0, tiles=[0, 1], starts=[0, 2], stops=[2, 6])  # type: ignore[arg-type]
    assert listed.owners(np.array([0, 3])).tolist() == [0, 1]


# ---- names of phases and categories are the program's own


@pytest.mark.parametrize("phase", [*PHASES, "smoothing", "2. Sum & carry"])
def test_any_phase_is_executed(phase: str) -> None:
    made = program()
    executor = Executor(plan_exchanges(made.map_supersteps(lambda step: replace(step, phase=phase))))
    old = np.arange(CELLS, dtype=np.float32)
    for phases, taken in ((("other",), 0 * old), ((phase,), 2 * np.roll(old, -EACH)), (None, 2 * np.roll(old, -EACH))):
        executor.write({"old": old})
        executor.run(phases)
        np.testing.assert_array_equal(executor.read("taken"), taken)


@pytest.mark.parametrize("name", ["", "two\nlines", " padded", "\x1b[31m", 41 * "x"])
def test_a_name_that_no_report_could_show_is_refused(name: str) -> None:
    wanted = "must be a name of 1 to 40 printable characters"
    with pytest.raises(MappingError, match=rf"superstep 'one': phase '{re.escape(name)}' {wanted}"):
        Superstep(name="one", phase=name)
    mapping = TileMapping.on(0, 0, 4)
    with pytest.raises(MappingError, match=rf"variable 'a': category '{re.escape(name)}' {wanted}"):
        Variable(name="a", shape=(4,), dtype="float32", mapping=mapping, category=name)


def test_names_come_in_the_order_of_their_first_use() -> None:
    assert in_order(["update", "forward", "update"]) == ("forward", "update")
    assert in_order(["update", "halo", "forward", "update"]) == ("update", "halo", "forward")
    made = program()
    kinds = dict(zip(made.variables, ("weights", "sums"), strict=False))
    variables = {name: replace(held, category=kinds[name]) for name, held in made.variables.items()}
    machine = load_machine("tiny")
    assert isinstance(machine, MimdMachine)
    memory = measure_memory(plan_exchanges(replace(made, variables=variables)), machine)
    assert memory.categories == ("weights", "sums", "exchange buffers", "vertices", "code")
    assert memory.by_category[:, memory.peak_tile].sum() == memory.peak_bytes


# ---- the planner refuses what the verifier would


def test_a_sound_program_is_planned_and_keeps_the_rules() -> None:
    assert verify(plan_exchanges(program()), TILES) == ()


@pytest.mark.parametrize("tile", [99, -1, TILES])
def test_a_vertex_on_a_tile_that_is_not_there_cannot_be_planned(tile: int) -> None:
    wanted = f"superstep 'take': vertex 2 of Take on tile {tile} but the program is placed on tiles 0 to 3; map it to"
    same_refusal(program(tiles=np.array([0, 1, tile, 3])), re.escape(wanted))


def test_a_variable_on_a_tile_that_is_not_there_cannot_be_planned() -> None:
    wrong = program()
    moved = TileMapping.split(0, np.array([0, 1, 7, 3]), STARTS, STARTS + EACH)
    wrong = replace(wrong, variables=wrong.variables | {"old": variable("old", mapping=moved)})
    same_refusal(wrong, "variable 'old' has elements on tile 7, but the program is placed on tiles 0 to 3; map it to")


def test_an_operand_that_is_no_variable_cannot_be_planned() -> None:
    wrong = program(operands={"out": "new", "cells": "odl", "again": "old"})
    same_refusal(
        wrong, r"reads 'odl' through field 'cells', which is not a variable of the program; did you mean 'old'\?"
    )
    same_refusal(program(operands={"out": "what", "cells": "old", "again": "old"}), "'what' through field 'out'")


def test_inputs_and_outputs_are_variables() -> None:
    made = replace(plan_exchanges(program()), inputs={"old": "Old"}, outputs={"taken": "news"})
    first, second = verify(made, TILES)
    assert first.message == "input 'old' is held in 'Old', which is not a variable of the program; did you mean 'old'?"
    assert second.message.startswith("output 'taken' is held in 'news', which is not a variable of the program")


def test_a_copy_of_what_is_no_variable_cannot_be_planned() -> None:
    copy = Copy(source="olds", target="new")
    wrong = program().map_supersteps(lambda step: replace(step, tables=(), copies=(copy,)))
    same_refusal(
        wrong, r"superstep 'take': copies 'olds', which is not a variable of the program; did you mean 'old'\?"
    )


def test_a_box_beyond_its_variable_cannot_be_planned() -> None:
    wrong = program(columns={"to": np.array([6, 9, 13, 3])})
    same_refusal(wrong, re.escape("vertex 2 of Take on tile 2 touches old[9:13], outside the variable's shape [12]"))


def test_a_box_that_ends_before_it_begins_is_told_so() -> None:
    turned = plan_exchanges(program(columns={"stop": np.array([3, 6, 5, 12])}))
    wanted = "vertex 2 of Take on tile 2 touches new[6:5], whose start lies beyond its stop on axis 0"
    assert wanted in verify(turned, TILES)[0].message


@pytest.mark.parametrize("change", [lambda made: made, plan_exchanges], ids=["unplanned", "planned"])
def test_a_program_of_fewer_tiles_than_it_uses_is_neither_measured_nor_timed(change: Callable[..., Program]) -> None:
    machine = load_machine("tiny")
    assert isinstance(machine, MimdMachine)
    few = replace(change(program()), tiles=2)
    wanted = "variable 'old' has elements on tile 2, but the program is placed on tiles 0 to 1"
    with pytest.raises(MappingError, match=wanted):
        measure_memory(few, machine)
    enough = plan_exchanges(program())
    memory = memory_profile(enough, measure_memory(enough, machine), machine)
    with pytest.raises(MappingError, match=wanted):
        time_program(few, machine, RecordedActivity(ids={}, counts={}, dropped={}), memory)
    here = {name: replace(each, mapping=TileMapping.on(0, 0, CELLS)) for name, each in few.variables.items()}
    with pytest.raises(MappingError, match="vertex 2 of Take on tile 2 but the program is placed on tiles 0 to 1"):
        measure_memory(replace(few, variables=here), machine)


def test_a_box_of_other_axes_cannot_be_planned() -> None:
    same_refusal(
        program(shape=(CELLS, 2)), r"vertex 0 of Take on tile 0 cannot be placed: .*does not have the 2 axes of 'old'"
    )


# ---- outputs: what is no output, and what is left out in part


def test_what_is_no_output_cannot_be_read() -> None:
    executor = Executor(plan_exchanges(program()))
    with pytest.raises(MappingError, match=r"the program has no output 'cc'; it has \['taken'\]"):
        executor.read("cc")


def left_out(start: list[int], stop: list[int]) -> tuple[str, ...]:
    columns = {"start": np.array(start), "stop": np.array(stop)}
    return tuple(problem.message for problem in verify(plan_exchanges(program(columns=columns)), TILES))


def test_an_output_that_is_written_in_part_is_reported() -> None:
    assert left_out([0, 4, 6, 9], [3, 6, 8, 12]) == (
        "output 'taken': 2 of 12 elements of 'new' are never written, the first is new[3]; "
        "superstep 'take' writes the others; let a vertex write them, or make 'new' an input of the program too",
    )
    assert "1 of 12 elements of 'new' are never written, the first is new[0]" in left_out(
        [1, 3, 6, 9], [3, 6, 9, 12]
    )[0]  # fmt: skip
    assert "1 of 12 elements of 'new' are never written, the first is new[11]" in left_out(
        [0, 3, 6, 9], [3, 6, 9, 11]
    )[0]  # fmt: skip


def test_what_the_host_gives_or_another_superstep_writes_is_not_left_out() -> None:
    part = plan_exchanges(program(columns={"start": STARTS + 1}))
    assert len(verify(part, TILES)) == 1
    assert verify(replace(part, inputs={"old": "old", "new": "new"}), TILES) == ()
    loaded = variable("new", values=np.ones(CELLS, np.float32), persistent=True)
    assert verify(replace(part, variables=part.variables | {"new": loaded}), TILES) == ()
    rest = plan_exchanges(program(columns={"stop": STARTS + 1}))
    assert len(verify(rest, TILES)) == 1
    assert verify(replace(part, body=(*part.body, *rest.body)), TILES) == ()


def test_an_output_over_timesteps_is_asked_about_all_of_them() -> None:
    made = program(codelet=codelet(box=("@t", "start:stop")), columns={"stop": np.array([3, 6, 9, 11])})
    mapping = TileMapping.split(1, np.arange(TILES), STARTS, STARTS + EACH)
    sequence = variable("new", shape=(5, CELLS), mapping=mapping)
    made = replace(made, variables=made.variables | {"new": sequence}, body=(Repeat(times=5, body=made.body),))
    (problem,) = verify(plan_exchanges(made), TILES)
    assert problem.rule == "outputs are written whole"
    assert "5 of 60 elements of 'new' are never written, the first is new[0, 11]" in problem.message


# ---- a field that is written though it may only be read


def write_again(out: np.ndarray, cells: np.ndarray, again: np.ndarray) -> None:
    out[:] = cells
    again[:] = 7


def scale_again(out: np.ndarray, cells: np.ndarray, again: np.ndarray) -> None:
    again *= 2
    out[:] = cells


@pytest.mark.parametrize("compute", [write_again, scale_again])
def test_a_vertex_that_writes_what_it_may_only_read_is_told_which_field(compute: Callable[..., None]) -> None:
    wanted = re.escape('writes its field \'again\', declared access="read"; declare "write", or "update" for both')
    executor = Executor(plan_exchanges(program(compute)))
    executor.write({"old": np.ones(CELLS, np.float32)})
    with pytest.raises(VertexFailure, match=rf"vertex 0 of Take on tile 0 left its slices: it {wanted} \(.*read-only"):
        executor.run()
    place = "superstep 'take', timestep 0: vertex 0 of Take on tile 0"
    with pytest.raises(VertexFailure, match=rf"{place} left its slices: it {wanted} \(index \[(:|\.\.\.)\]\)"):
        execute_strictly(executor)
