"""Leave out what a program need not run: slices and updates that vertices do themselves, and what nothing reads.

A stash stays where it is made: vertices read and write its timesteps themselves. A slice whose result only vertices on
the same tile read goes, and they read the sequence; an update of what one vertex per element has just left goes, and
these vertices store it too. A slice that other tiles read stays: an exchange sends from fixed addresses.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from mimdsim.codelets.dense import KEPT, can_store, read_in_place, store_in_place
from mimdsim.compiler.merge import touched
from mimdsim.program import Copy, Program, Superstep, VertexTable
from mimdsim.program.checks.scope import Access, Scope
from mimdsim.program.program import map_runs
from mimdsim.program.vertex_boxes import is_local


def drop_dead_code(program: Program) -> Program:
    """The program without vertices and copies whose results are neither read nor outputs, recorded or kept, and
    without the variables that nothing uses then."""
    parts = -1
    while parts != (parts := sum(len(step.tables) + len(step.copies) for step, _, _ in program.supersteps())):
        program = _without_unread(program)
    return program


def _without_unread(program: Program) -> Program:
    read = _observed(program).union(*(touched(superstep)[0] for superstep, _, _ in program.supersteps()))

    def if_read(table: VertexTable) -> VertexTable | None:
        written = (table.operands[item.name] for item in table.codelet.fields if item.writes)
        return None if read.isdisjoint(written) else table

    return _rewritten(program, if_read, lambda copy: copy.target in read)


def _observed(program: Program) -> set[str]:
    """Variables that the host or the next run may read."""
    spikes = (*program.recorded.values(), *program.observables.passing.values())
    recorded = {name for names in spikes for name in names}
    persistent = {name for name, variable in program.variables.items() if variable.persistent}
    return {*program.inputs.values(), *program.outputs.values(), *recorded, *persistent}


def _rewritten(
    program: Program,
    table: Callable[[VertexTable], VertexTable | None],
    copy: Callable[[Copy], bool] = lambda _: True,
) -> Program:
    """The program with tables changed (None: left out) and some copies, without the supersteps that are empty then and
    the variables that nothing uses then."""

    def run(stretch: list[Superstep]) -> list[Superstep]:
        changed = []
        for step in stretch:
            tables = tuple(new for old in step.tables if (new := table(old)) is not None)
            copies = tuple(filter(copy, step.copies))
            if tables or copies:
                same = (tables, copies) == (step.tables, step.copies)
                changed.append(step if same else replace(step, tables=tables, copies=copies))
        return changed

    program = replace(program, body=map_runs(program.body, run))
    used = _observed(program).union(*(names for step, _, _ in program.supersteps() for names in touched(step)))
    return replace(program, variables={name: each for name, each in program.variables.items() if name in used})


# ---- stash in place


def stash_in_place(program: Program) -> Program:
    """The program without slices and updates that vertices can do themselves; the same values."""
    program = _Rewriting(program).without_slices()
    return _Rewriting(program).without_updates()


class _Rewriting:
    def __init__(self, program: Program):
        self.program = program
        self.uses: dict[str, list[Access]] = defaultdict(list)
        self.at: dict[int, tuple[int, int]] = {}  # by id of a table: its stretch, and its superstep there
        self.outside = _observed(program)
        for number, stretch in enumerate(program.stretches()):
            for place, superstep in enumerate(stretch.body):
                self.outside |= {name for copy in superstep.copies for name in (copy.source, copy.target)}
                for table in superstep.tables:
                    self.at[id(table)] = number, place
                for access in Scope(program=program, superstep=superstep, tiles=program.tiles).accesses:
                    self.uses[access.variable.name].append(access)
        self.changed: dict[int, VertexTable | None] = {}

    def without_slices(self) -> Program:
        for source, target, slicing in self._moves("sequence", "now"):
            readers = [use for use in self.uses[target] if use.table is not slicing]
            stretch = self.at[id(slicing)][0]
            if (
                target not in self.outside
                and readers
                and all(use.field.access == "read" and self._follows(slicing, use.table) for use in readers)
                and not any(use.field.writes and self.at[id(use.table)][0] == stretch for use in self.uses[source])
                and all(map(_is_local, readers))
            ):
                shift = slicing.codelet.field("sequence").shift or 0
                for use in readers:
                    self._change(use.table, source, use.field.name, shift)
                self.changed[id(slicing)] = None
        return self._result()

    def without_updates(self) -> Program:
        for source, target, update in self._moves("now", "sequence"):
            before = [use for use in self.uses[source] if use.field.writes and self._follows(use.table, update)]
            last = max(before, key=lambda use: self.at[id(use.table)], default=None)
            if last is None or update.codelet.field("sequence").shift != 0 or id(last.table) in self.changed:
                continue
            stretch, _ = at = self.at[id(last.table)]
            alone = [use for use in before if self.at[id(use.table)] == at] == [last]
            others = (use.table for use in self.uses[target] if use.table is not update)
            between = any(self.at[id(table)][0] == stretch for table in others)
            storing = alone and not between and can_store(last.table.codelet, last.field.name)
            if storing and _is_whole(last):
                codelet = store_in_place(last.table.codelet, last.field.name)
                operands = {**last.table.operands, KEPT: target}
                self.changed[id(last.table)] = replace(last.table, codelet=codelet, operands=operands)
                self.changed[id(update)] = None
        return self._result()

    def _moves(self, source: str, target: str) -> Iterator[tuple[str, str, VertexTable]]:
        """(variable read, variable written, table) of all tables that only move a timestep between these fields."""
        for superstep, _, _ in self.program.supersteps():
            for table in superstep.tables:
                names = [item.name for item in table.codelet.fields]
                if names == [source, target, "timestep"]:
                    yield table.operands[source], table.operands[target], table

    def _follows(self, first: VertexTable, later: VertexTable) -> bool:
        """Whether both are in one stretch, `later` in a later superstep."""
        (stretch, place), (other, after) = self.at[id(first)], self.at[id(later)]
        return stretch == other and place < after

    def _change(self, table: VertexTable, source: str, field: str, shift: int) -> None:
        now = self.changed.get(id(table)) or table
        codelet, operands = read_in_place(now.codelet, field, shift), {**now.operands, field: source}
        self.changed[id(table)] = replace(now, codelet=codelet, operands=operands)

    def _result(self) -> Program:
        return _rewritten(self.program, lambda table: self.changed.get(id(table), table))


def _is_local(use: Access) -> bool:
    if use.shift is not None or use.field.one_row:
        return False
    return bool(is_local(use.mapping, use.table.tiles, use.boxes, use.shape).all())


def _is_whole(use: Access) -> bool:
    """Whether the vertices together write every element, each where the sequence has it."""
    size = int(np.prod(use.boxes[:, :, 1] - use.boxes[:, :, 0], axis=1, dtype=np.int64).sum())
    return size == int(np.prod(use.variable.shape, dtype=np.int64)) and use.field.access in ("write", "update")
