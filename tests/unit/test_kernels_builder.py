"""The builder of programs by hand: what it makes, and that every mistake is told with the line of whoever made it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from by_hand import outcome, timed, tiny

from mimdsim.base.errors import MappingError
from mimdsim.execution import Executor
from mimdsim.kernels import Codelet, Field, Kernel, KernelError, Length, Term, TileMapping, WorkerBundles
from mimdsim.program import Repeat

TINY = tiny()
COST = WorkerBundles(fixed=1, terms=(Term(bundles=2, extents=("cells",)),), kind="assumed", source="a test")


def add(out: np.ndarray, x: np.ndarray) -> None:
    out[:] += x


ADD = Codelet(
    name="Add",
    fields=(
        Field(name="out", access="update", box=("start:stop",)),
        Field(name="x", access="read", box=("@t", "start:stop")),
    ),
    columns=(),
    compute=add,
    form="vertex",
    cost=COST,
    extents={"cells": Length("out", 0)},
)
TAKE = Codelet(
    name="Take",
    fields=(
        Field(name="out", access="write", box=("start:stop",)),
        Field(name="x", access="read", box=("from:to",)),
    ),
    columns=(),
    compute=lambda out, x: np.copyto(out, x),
    form="vertex",
    cost=COST,
    extents={"cells": Length("out", 0)},
)
START = np.arange(16) * 2


def take(k: Kernel, out: Any, x: Any, **changes: Any) -> None:
    """One vertex a tile, of two cells each."""
    columns = {"start": START, "stop": START + 2, "from": START, "to": START + 2} | changes.pop("columns", {})
    given = {"tiles": np.arange(16), "operands": {"out": out, "x": x}} | changes
    k.vertices(TAKE, columns=columns, **given)


def cells(k: Kernel, name: str, **changes: Any) -> Any:
    return k.variable(name, (32,), **changes)


def test_a_program_is_what_was_written_from_top_to_bottom() -> None:
    k = Kernel("sums", TINY)
    x = k.input(k.variable("x", (3, 32), spread=1), "given")
    total = k.output(cells(k, "total", category="sums"))
    k.fill(total, 0)
    with k.repeat(3):
        k.vertices(
            ADD,
            tiles=range(16),
            operands={"out": total, "x": x},
            columns={"start": START, "stop": START + 2},
        )
    program = k.program()
    assert [step.name for step, _, _ in program.supersteps()] == ["fill total", "Add"]
    assert [times for _, times, _ in program.supersteps()] == [1, 3]
    assert (program.inputs, program.outputs) == ({"given": "x"}, {"total": "total"})
    assert program.variables["total"].category == "sums"
    values = np.arange(96, dtype=np.float32).reshape(3, 32)
    np.testing.assert_array_equal(outcome(program, {"given": values})["total"], values.sum(axis=0))


def test_vertices_of_one_superstep_run_together_under_its_name_and_phase() -> None:
    k = Kernel("two", TINY)
    x, one, two = (k.input(cells(k, "x")), k.output(cells(k, "one")), k.output(cells(k, "two")))
    with k.superstep("both", phase="moving"):
        take(k, one, x)
        k.elementwise("add", x, 1, out=two)
    (step,) = [step for step, _, _ in k.program().supersteps()]
    assert (step.name, step.phase, len(step.tables)) == ("both", "moving", 2)


def test_exchanges_are_planned_and_timed() -> None:
    k = Kernel("shift", TINY)
    x, out = k.input(cells(k, "x")), k.output(cells(k, "out"))
    behind = np.roll(START, 1)
    take(k, out, x, columns={"from": behind, "to": behind + 2})
    program = k.program()
    (step,) = [step for step, _, _ in program.supersteps()]
    assert step.exchange is not None
    assert step.exchange.bytes_received.tolist() == [8] * 16
    (span,) = timed(program, TINY).spans
    assert span.compute_cycles == 6 * (1 + 2 * 2)  # one context works, six take turns
    values = np.arange(32, dtype=np.float32)
    np.testing.assert_array_equal(outcome(program, {"x": values})["out"], np.roll(values, 2))


def test_variables_are_spread_evenly_unless_said_otherwise() -> None:
    k = Kernel("variables", TINY)
    assert k.variable("all", (32, 4)).mapping.tiles.tolist() == list(range(16))
    assert k.variable("columns", (32, 4), spread=-1).mapping.axis == 1
    assert k.variable("one", (32, 4), tiles=5).mapping.tiles.tolist() == [5]
    assert k.variable("some", 32, tiles=[1, 3]).mapping.tiles.tolist() == [1, 3]
    assert k.variable("copies", 3, mapping=k.everywhere).mapping.is_replicated
    held = k.constant("held", [1.5, 2.5])
    assert (held.dtype, held.persistent, held.shape) == ("float32", True, (2,))
    assert k.constant("whole", [1, 2]).dtype == "int32"


def test_equal_names_of_supersteps_are_numbered() -> None:
    k = Kernel("names", TINY)
    x = k.input(cells(k, "x"))
    for _ in range(3):
        k.elementwise("add", x, 1, out=x)
    assert [step.name for step, _, _ in k.program().supersteps()] == ["add x", "add x 2", "add x 3"]


def test_repeats_nest_once() -> None:
    k = Kernel("repeats", TINY)
    x = k.input(cells(k, "x"))
    with k.repeat(2), k.repeat(5, reverse=True):
        k.elementwise("add", x, 1, out=x)
    (outer,) = k.program().body
    assert isinstance(outer, Repeat)
    assert (outer.times, outer.timesteps) == (2, 10)


@pytest.mark.parametrize(
    ("write", "text"),
    [
        (lambda k: cells(k, "x") and cells(k, "x"), "kernel 'wrong' already has a variable 'x'"),
        (lambda k: k.variable("x", (0, 3)), r"'x': shape \[0, 3\] must have at least 1 element along every axis"),
        (lambda k: k.variable("x", 2.5), "'x': shape must be whole numbers"),
        (lambda k: k.variable("x", 3, "float64"), "'x': format 'float64' is not one that tiles have; did you mean"),
        (lambda k: k.variable("x", 3, spread=1), r"'x' of shape \[3\] has no axis 1"),
        (lambda k: k.variable("x", 3, tiles=[]), "'x': no tile to be placed on"),
        (lambda k: k.variable("x", 3, tiles=99), "'x'.* tile number 99"),
        (lambda k: k.variable("x", 3, tiles=0, mapping=k.everywhere), "give a mapping, or spread and tiles"),
        (lambda k: k.variable("x", 3, mapping=TileMapping.on(0, 0, 2)), "'x'"),
        (lambda k: k.input("y"), "kernel 'wrong' has no variable 'y'"),
        (lambda k: k.output(cells(Kernel("other", TINY), "x")), "kernel 'wrong' has no variable 'x'"),
        (lambda k: k.output(3), "3 is not a variable; give one that k.variable"),
        (lambda k: k.output(cells(k, "x")) and k.output("x"), "kernel 'wrong' already has an output 'x'"),
        (lambda k: take(k, cells(k, "out"), "in"), "kernel 'wrong' has no variable 'in'"),
        (
            lambda k: take(k, cells(k, "out"), k.variable("x", (32, 2))),
            r"box \('from:to',\) does not have the 2 axes of 'x'",
        ),
        (lambda k: take(k, cells(k, "out"), cells(k, "x"), columns={"to": START + 3}), r"x\[30:33\].*outside"),
        (lambda k: take(k, cells(k, "out"), cells(k, "x"), tiles=np.arange(16) + 1), "tile 16"),
        (lambda k: take(k, cells(k, "out"), cells(k, "x"), columns={"from": START[:3]}), "column 'from' has 3 entries"),
        (lambda k: take(k, cells(k, "out"), cells(k, "x"), columns={"from": START / 2}), "column 'from' must be whole"),
        (lambda k: take(k, cells(k, "out"), cells(k, "x"), operands={"out": "out"}), r"no variable for field\(s\)"),
        (
            lambda k: take(k, cells(k, "out"), cells(k, "x"), operands={"out": "out", "y": "x"}),
            "codelet 'Take' has no field y; its fields are out, x",
        ),
        (lambda k: k.repeat(0).__enter__(), "a repeat of 0 turns"),
        (lambda k: k.program(), "kernel 'wrong' has no superstep"),
    ],
)
def test_a_mistake_names_the_line_of_whoever_made_it(write: Any, text: str) -> None:
    with pytest.raises(KernelError, match=rf"^test_kernels_builder\.py, line \d+: .*{text}"):
        write(Kernel("wrong", TINY))


def test_the_line_is_that_of_the_call() -> None:
    k = Kernel("wrong", TINY)
    here = test_the_line_is_that_of_the_call.__code__.co_firstlineno
    with pytest.raises(KernelError, match=rf"line {here + 4}: "):
        k.fill("y", 0)
    empty = k.superstep("empty")
    empty.__enter__()
    with pytest.raises(KernelError, match=rf"line {here + 8}: superstep 'empty' has no vertices"):
        empty.__exit__(None, None, None)


def test_what_takes_several_supersteps_does_not_stand_in_one() -> None:
    k = Kernel("wrong", TINY)
    x, out = cells(k, "x"), k.variable("out", 1)
    for write in (lambda: k.reduce(x, out=out), lambda: k.repeat(2).__enter__(), lambda: k.superstep("b").__enter__()):
        with pytest.raises(KernelError, match="superstep"), k.superstep("a"):
            write()
    with pytest.raises(KernelError, match="is still open"), k.superstep("a"):
        k.program()


def test_an_error_within_a_superstep_is_told_and_nothing_else() -> None:
    k = Kernel("wrong", TINY)
    with pytest.raises(ZeroDivisionError), k.superstep("a"):
        1 / 0  # noqa: B018
    k.fill(cells(k, "x"), 0)  # the superstep is closed
    assert len(k.program().body) == 1


@pytest.mark.parametrize(
    ("tiles", "message"),
    [
        (16, r"'x': tiles=16 is tile number 16, .* tiles 0 to 15; write range\(n\) for the first n tiles"),
        ([0, 3, 3], "'x': tiles names tile 3 more than once; name each once"),
        ([], "'x': no tile to be placed on; give at least one"),
    ],
)
def test_tiles_are_numbers_of_tiles_each_once(tiles: Any, message: str) -> None:
    with pytest.raises(KernelError, match=rf"test_kernels_builder\.py, line \d+: {message}"):
        Kernel("placed", "tiny").variable("x", 32, tiles=tiles)
    assert Kernel("placed", "tiny").variable("x", 32, tiles=4).mapping.tiles.tolist() == [4]


def test_a_function_of_slices_that_is_called_with_arrays_is_told_of_the_form() -> None:
    k = Kernel("forgotten form", "tiny")
    out, x = (k.output(cells(k, name)) for name in ("out", "x"))
    k.vertices(
        replace(TAKE, form="table", columns=("start", "stop", "from", "to")),
        tiles=np.arange(16),
        operands={"out": out, "x": x},
        columns={"start": START, "stop": START + 2, "from": START, "to": START + 2},
    )
    with pytest.raises(MappingError, match=r"takes 2 positional arguments but 6 were given; .* with form=\"vertex\""):
        Executor(k.program()).run()
