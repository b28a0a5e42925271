"""Whether the outputs of a program are written whole: what no vertex writes stays zero, and nobody is told."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import numpy as np

from mimdsim.numerics import pieces
from mimdsim.program.codelet import Field, now_shift
from mimdsim.program.records import Program, Variable, VertexTable
from mimdsim.program.rows import bounds_of, boxes_of, describe_box, spatial_shape, takes_timestep

Writers = list[tuple[VertexTable, Field, range]]  # with the timesteps in which they write


def unwritten_outputs(program: Program) -> Iterator[str]:
    """What is wrong with every output that vertices write, but not all of.

    Expects a program that keeps the other rules. Not asked: what the host gives, what is loaded with values, and what
    is copied whole or written both at a timestep and over all of them. An element that one timestep writes counts as
    written in all that any writes.
    """
    given = {*program.inputs.values(), *(name for name, held in program.variables.items() if held.values is not None)}
    copied = {copy.target for superstep, _, _ in program.supersteps() for copy in superstep.copies}
    asked = {name: value for value, name in program.outputs.items() if name not in given | copied}
    for name, supersteps in _writers(program, asked).items():
        never = _entries_never_written(program.variables[name], supersteps)
        found = _first_unwritten(program.variables[name], supersteps)
        if never:
            yield (
                f"output '{asked[name]}': {len(never)} of {program.variables[name].shape[0]} entries of '{name}' are "
                f"written in no timestep, the first is {never[0]}; give '{name}' as many as its repeat has timesteps"
            )
        elif found is not None:
            missing, total, box = found
            yield (
                f"output '{asked[name]}': {missing} of {total} elements of '{name}' are written by no vertex, the "
                f"first is {describe_box(name, box)}; let a vertex write them, or make '{name}' an input of the "
                "program too"
            )


def _writers(program: Program, names: Collection[str]) -> dict[str, list[Writers]]:
    """By variable of `names` that vertices write: the fields that do, superstep by superstep."""
    found: dict[str, list[Writers]] = {}
    for stretch in program.stretches():
        for superstep in stretch.body:
            here: dict[str, Writers] = {}
            for table in superstep.tables:
                for item in table.codelet.fields:
                    if item.writes and table.operands[item.name] in names:
                        here.setdefault(table.operands[item.name], []).append((table, item, stretch.timesteps))
            for name, writers in here.items():
                found.setdefault(name, []).append(writers)
    return found


def _entries_never_written(variable: Variable, supersteps: list[Writers]) -> list[int]:
    """Entries of the first axis that "@t" never names in a writer; none where a writer takes the whole axis."""
    shifts = {(now_shift(item.box[0]), timesteps) for writers in supersteps for _, item, timesteps in writers}
    written: set[int] = set()
    for shift, timesteps in shifts:
        if shift is None:
            return []
        written.update(variable.entry(t, shift) for t in timesteps)
    return sorted(set(range(variable.shape[0])) - written)


def _first_unwritten(variable: Variable, supersteps: list[Writers]) -> tuple[int, int, np.ndarray] | None:
    """(elements unwritten, elements in all, box of the first one), without a timestep axis that vertices take."""
    fields = [item for writers in supersteps for _, item, _ in writers]
    if len({takes_timestep(item) for item in fields}) > 1:
        return None
    shape = spatial_shape(variable, fields[0])
    parts: list[np.ndarray] = []
    for writers in supersteps:
        boxes = np.concatenate([boxes_of(table, item, variable) for table, item, _ in writers])
        # boxes of one superstep do not meet, so that their volumes tell when everything is written
        if int(np.prod(boxes[:, :, 1] - boxes[:, :, 0], axis=1, dtype=np.int64).sum()) >= np.prod(shape):
            return None
        parts.append(boxes)
    _, start, stop = pieces.element_runs(bounds_of(np.concatenate(parts)), np.array(shape, np.int64))
    return _gaps(start, stop, shape)


def _gaps(start: np.ndarray, stop: np.ndarray, shape: tuple[int, ...]) -> tuple[int, int, np.ndarray] | None:
    """What runs of elements leave out of a tensor of `shape`, as `_first_unwritten` tells it."""
    total = int(np.prod(shape, dtype=np.int64))
    order = np.argsort(start, kind="stable")
    begins = np.append(start[order], total)
    ended = np.maximum.accumulate(np.insert(stop[order], 0, 0))  # up to where all before is written or counted
    lacking = np.maximum(begins - ended, 0)
    if not lacking.any():
        return None
    first = np.unravel_index(int(ended[np.flatnonzero(lacking)[0]]), shape)
    return int(lacking.sum()), total, np.array([[index, index + 1] for index in first], np.int64)
