"""Timing refuses what no machine could run: unplanned exchanges, changed tallies, over-full tiles; turns are timed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from by_hand import timed, tiny

from mimdsim.base.errors import DoesNotFit, MappingError
from mimdsim.compiler import measure_memory
from mimdsim.execution import Executor
from mimdsim.kernels import Codelet, Field, Kernel, Program, Term, WorkerBundles
from mimdsim.pipeline import memory_profile
from mimdsim.program import RecordedActivity
from mimdsim.program.records import EXCHANGE_COLUMNS
from mimdsim.timing import time_program


def moved(elements: int = 64) -> Program:
    """Elements from a variable on one tile to one on others, through an exchange."""
    k = Kernel("moved", tiny(chip_tiles=4))
    old = k.input(k.variable("old", elements, tiles=[0]))
    new = k.output(k.variable("new", elements, tiles=[1, 2, 3]))
    k.copy(old, to=new)
    return k.program()


def test_an_unplanned_program_is_not_timed() -> None:
    program = moved()
    machine = tiny(chip_tiles=4)
    assert timed(program, machine).exchange_cycles > 0
    unplanned = program.map_supersteps(lambda step: replace(step, exchange=None))
    with pytest.raises(MappingError, match="not delivered in this superstep's exchange"):
        timed(unplanned, machine)


@pytest.mark.parametrize("column", EXCHANGE_COLUMNS)
def test_a_changed_tally_is_not_timed(column: str) -> None:
    def change(step):  # type: ignore[no-untyped-def]
        columns = step.exchange.columns.copy()
        columns[EXCHANGE_COLUMNS.index(column)] += 4
        return replace(step, exchange=replace(step.exchange, columns=columns))

    with pytest.raises(MappingError, match=f"counts .* {column.replace('_', ' ')} on tile"):
        timed(moved().map_supersteps(change), tiny(chip_tiles=4))


def test_an_over_full_tile_is_not_timed() -> None:
    program, machine = moved(400_000), tiny(chip_tiles=4)
    with pytest.raises(DoesNotFit, match=r"does not fit tiny: tile 0 needs 1\.\d+ MiB of 624\.0 KiB"):
        timed(program, machine)
    memory = memory_profile(program, measure_memory(program, machine), machine)
    nothing = RecordedActivity(ids={}, counts={}, dropped={})
    assert time_program(program, machine, nothing, memory, must_fit=False).cycles


def counting(form: str) -> Program:
    """Two vertices on two tiles, each running its loop as often as a number of its input says, in every turn."""

    def count(total, times, *row):  # type: ignore[no-untyped-def]
        return {"turns": int(times[0]) if form == "vertex" else times[row[0]]}

    def compute(total, times, *row):  # type: ignore[no-untyped-def]
        if form == "vertex":
            total[0] = times[0] * 2.0
        else:
            total[row[0]] = times[row[0]] * 2.0

    codelet = Codelet(
        name="Loop",
        fields=(Field(name="total", access="write", box=("row",)), Field(name="times", access="read", box=("row",))),
        columns=() if form == "vertex" else ("row",),
        compute=compute,
        count=count,
        form=form,
        cost=WorkerBundles(fixed=10, terms=(Term(bundles=3, extents=("turns",)),), kind="assumed", source="a test"),
    )
    k = Kernel("counting", tiny(chip_tiles=2))
    times = k.input(k.variable("times", 2, "int32"))
    total = k.output(k.variable("total", 2))
    row = np.arange(2)
    with k.repeat(3):
        k.vertices(codelet, tiles=row, operands={"total": total, "times": times}, columns={"row": row})
    return k.program()


@pytest.mark.parametrize("form", ["vertex", "table"])
def test_loops_that_data_decide_are_counted_in_every_turn(form: str) -> None:
    """The longer loop decides: 3 turns of 6 x (10 + 3 x 7)."""
    program, machine = counting(form), tiny(chip_tiles=2)
    executor = Executor(program)
    executor.write({"times": np.array([7, 4], np.int32)})
    executor.run()
    np.testing.assert_array_equal(executor.read("total"), [14.0, 8.0])
    memory = memory_profile(program, measure_memory(program, machine), machine)
    span = time_program(program, machine, executor.activity(), memory).spans[0]
    assert span.compute_cycles == 3 * 6 * (10 + 3 * 7)
    assert span.busy_cycles == 3 * 6 * (20 + 3 * (7 + 4))


def test_a_count_that_is_no_count_is_refused() -> None:
    program = counting("vertex")

    def wrong(step):  # type: ignore[no-untyped-def]
        (table,) = step.tables
        return replace(step, tables=(table.with_codelet(replace(table.codelet, count=lambda *_: {"turns": -1})),))

    executor = Executor(program.map_supersteps(wrong))
    with pytest.raises(MappingError, match="gives -1 turns of 'turns'"):
        executor.run()
