"""A vertex of form 'table' gets whole arrays: whatever it writes outside its boxes is found, poison too."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from test_strict import CELLS, EACH, STARTS, TILES, program, step

from mimdsim.base.errors import MappingError
from mimdsim.execution import Executor, execute_strictly
from mimdsim.execution.scratch import KINDS
from mimdsim.program import Program

# statements with y [cells] written, x [cells] read, the slice a:b of a vertex and the cell k, of another vertex
PLACES = ("k", "slice(b, None)", "slice(a, None)", "slice(None, b)", "slice(None)", "[a, k]", "np.arange(CELLS) >= a")
STATEMENTS = (
    "y[P] = 1",  # a number
    "y[P] = 2 * x[P]",  # made of another memory's poison
    "y[P] = x[P]",  # another memory's poison
    "y[P] = y[P]",  # its own poison, at the same place
    "y[P] += 0",
    "y[P] *= 1",
    "y[P] += x[a]",
    "y[P] += x[P]",
    "y[P] = y[::-1][P]",  # its own poison, from another place
    "y[P] = np.maximum(y[P], x[P])",
    "np.copyto(y, y, where=masked(P))",
    "np.add(y, 0, out=y, where=masked(P))",
    "np.putmask(y, masked(P), y)",
    "np.add.at(y, np.flatnonzero(masked(P)), 0)",
)
WHOLE = (
    "y.sort()", "y[:] = np.roll(y, 1)", "np.put(y, [k], 3)", "y.fill(0)", "y.flat[k] = y[k]",
    "y.reshape(3, 4)[...] = 1", "y[::-1][CELLS - 1 - k] = y[k]", "y.T[k] = y[k]", "np.asarray(y)[k] = 5",
    "y[k:].ravel()[0] = y[k]", "np.multiply(x, 2, out=y)", "np.cumsum(y, out=y)",
)  # fmt: skip
MUTANTS = [one.replace("P", place) for one, place in product(STATEMENTS, PLACES)] + list(WHOLE)


def masked(key: Any) -> np.ndarray:
    found = np.zeros(CELLS, bool)
    found[key] = True
    return found


def twice(statement: str = "", vertex: int = 0) -> Program:
    """y = 2 x, in form 'table', with a statement more in one vertex."""
    code = compile(statement or "pass", "mutant", "exec")

    def compute(y: np.ndarray, x: np.ndarray, start: np.ndarray, stop: np.ndarray) -> None:
        for first, last in zip(start.tolist(), stop.tolist(), strict=True):
            if first == vertex * EACH:
                exec(code, {"np": np, "masked": masked, "CELLS": CELLS}, {
                    "y": y, "x": x, "a": first, "b": last, "k": (last + 1) % CELLS})  # fmt: skip
            y[first:last] = 2 * x[first:last]

    return program(step("sum", compute, "table", acc="write", x="read"), outputs={"out": "acc"})


def strictly(made: Program, kinds: tuple[Any, ...] = KINDS) -> str:
    """What strict runs say, '' if nothing."""
    for poison in kinds:
        executor = Executor(made)
        executor.write({"x": np.arange(CELLS), "ids": np.zeros(CELLS)})
        try:
            execute_strictly(executor, poison=poison)
        except MappingError as refused:
            return str(refused)
        np.testing.assert_array_equal(executor.read("out"), 2 * np.arange(CELLS))
    return ""


def test_what_stays_in_its_slices_is_left_alone() -> None:
    for statement in ("", "y[a:b] = 1", "y[a:b] += 0", "np.add(y, 1, out=y, where=masked(slice(a, b)))", "x[a:].sum()"):
        assert not strictly(twice(statement)), statement


@pytest.mark.parametrize("vertex", range(TILES))
def test_every_write_outside_a_slice_is_found(vertex: int) -> None:
    """100 mutants and more in each vertex, which write numbers, poison, or what is there already; all are named."""
    assert len(MUTANTS) >= 100
    inside = {"slice(a, None)": TILES - 1, "slice(b, None)": TILES - 1, "np.arange(CELLS) >= a": TILES - 1}
    inside["slice(None, b)"] = 0
    missed = [
        mutant
        for mutant in MUTANTS
        if not any(place in mutant and at == vertex for place, at in inside.items())
        and f"vertex {vertex} of Sum on tile {vertex} " not in strictly(twice(mutant, vertex))
    ]
    assert not missed


@pytest.mark.parametrize("dtype", ["float32", "int32", "uint8", "float16", "int64", "bool"])
@pytest.mark.parametrize("statement", ["y[a:] = x[a:]", "y[b:] = y[:-4][a:]", "y[k] = 1", "y[k] = 0"])
def test_a_library_codelet_is_held_by_what_it_leaves(
    dtype: str, statement: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without guards, as in the midst of a large table: by the bits outside its slices alone."""
    monkeypatch.setattr("mimdsim.execution.strict.is_library", lambda _: True)
    monkeypatch.setattr("mimdsim.execution.strict.GUARDED_ELEMENTS", 0)

    def compute(y: np.ndarray, x: np.ndarray, start: np.ndarray, stop: np.ndarray) -> None:
        for first, last in zip(start.tolist(), stop.tolist(), strict=True):
            y[first:last] = x[first:last]
            if first == 0:
                exec(statement, {}, {"y": y, "x": x, "a": first, "b": last, "k": last + 1})

    made = program(step("sum", compute, "table", acc="write", x="read"), outputs={}, dtype=dtype)
    said = ""
    for poison in KINDS:
        executor = Executor(made)
        executor.write({"x": np.arange(CELLS) % 2, "ids": np.zeros(CELLS)})
        try:
            execute_strictly(executor, poison=poison)
        except MappingError as refused:
            said = said or str(refused)
    assert "vertex 0 of Sum on tile 0 writes acc[" in said


def test_guards_follow_views() -> None:
    assert STARTS[1] == EACH
    for statement in (
        "y.reshape(3, 4)[1, 0] = y[4]",
        "y[2:][2] = y[4]",
        "y[::2][2] = y[4]",
        "y.reshape(3, 4).T[:, 1] += 0",
    ):
        assert "outside its slice acc[0:4]" in strictly(twice(statement), KINDS[:1]), statement
