"""Strict execution: every vertex runs alone and sees only its own boxes; everything else is poison.

Slow and exact: for small programs, in tests and in `mimdsim check`. Finds a codelet that reads outside its slices
(its result turns to NaN or an index leaves the array) or writes outside them.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np

from mimdsim.base.errors import MappingError
from mimdsim.functional.execute import Executor, Observer, VertexFailure, index_of, written_though_read
from mimdsim.program import Superstep, VertexTable
from mimdsim.program.problems import vertex_name
from mimdsim.program.rows import boxes_of

INTEGER_POISON = -(2**30)  # as an index it leaves every array, also counted from the end


def execute_strictly(
    executor: Executor, phases: Collection[str] | None = None, observe: Observer | None = None
) -> None:
    """Run the program of `executor` on its arrays; raises MappingError that names the vertex that broke a rule."""
    for superstep, t in executor.program.turns(phases):
        _run(executor, superstep, t)
        if observe is not None:
            observe(superstep, t, executor)


def _run(executor: Executor, superstep: Superstep, t: int) -> None:
    for copy in superstep.copies:
        executor._prepare_copy(copy)(t)
    commits: list[tuple[np.ndarray, tuple[slice, ...], np.ndarray]] = []
    for table in superstep.tables:
        program = executor.program
        boxes = [boxes_of(table, item, program.variables[table.operands[item.name]]) for item in table.codelet.fields]
        for vertex in range(table.vertices):
            commits += _run_vertex(executor, superstep, table, [box[vertex] for box in boxes], vertex, t)
    # all vertices of a compute set see the memory as it was before it
    for array, index, value in commits:
        array[index] = value


def _run_vertex(
    executor: Executor, superstep: Superstep, table: VertexTable, boxes: list[np.ndarray], vertex: int, t: int
) -> list[tuple[np.ndarray, tuple[slice, ...], np.ndarray]]:
    codelet = table.codelet
    real = [executor.at(table.operands[item.name], item.box[0], t) for item in codelet.fields]
    where = [tuple(slice(start, stop) for start, stop in box.tolist()) for box in boxes]
    seen = []
    for item, array, index in zip(codelet.fields, real, where, strict=True):
        shadow = np.full_like(array, _poison(array))
        if item.reads or array.dtype.kind != "f":
            shadow[index] = array[index]
        seen.append(shadow)
    before = [shadow.copy() for shadow in seen]
    constants = [table.constants[name] for name in codelet.constants]
    compute: Any = getattr(codelet.compute, "py_func", codelet.compute)
    name = f"superstep '{superstep.name}', timestep {t}: {vertex_name(table, vertex)}"
    try:
        if codelet.form == "vertex":
            views = [s[index_of(item.box, box)] for item, s, box in zip(codelet.fields, seen, boxes, strict=True)]
            compute(*views, *(int(table.columns[name][vertex]) for name in codelet.columns), *constants)
        else:
            columns = [np.asarray(table.columns[column][vertex : vertex + 1]) for column in codelet.columns]
            compute(*seen, *columns, *constants)
    except IndexError as failure:
        raise VertexFailure(superstep, table, vertex, t, failure) from failure
    commits = []
    for item, array, shadow, old, index in zip(codelet.fields, real, seen, before, where, strict=True):
        outside = np.ones(array.shape, bool)
        if item.writes:
            outside[index] = False
        if not np.array_equal(shadow[outside], old[outside], equal_nan=True):
            if not item.writes and not np.array_equal(shadow[index], old[index], equal_nan=True):
                raise MappingError(f"{name} {written_though_read(item)}")
            raise MappingError(f"{name} writes '{table.operands[item.name]}' outside its slice")
        if item.writes:
            value = shadow[index]
            if value.dtype.kind == "f":
                unwritten = np.isnan(value)
                if item.access == "update" and unwritten.any():
                    raise MappingError(f"{name} read data outside its slices (poison reached '{item.name}')")
                value = np.where(unwritten, array[index], value)
            commits.append((array, index, value))
    return commits


def _poison(array: np.ndarray) -> Any:
    if array.dtype.kind == "f":
        return np.nan
    # the largest number of a short format: an id or a count that leaves arrays of fewer elements, a flag that is set
    return INTEGER_POISON if array.dtype.itemsize >= 4 else np.iinfo(array.dtype).max if array.dtype.kind == "u" else 0
