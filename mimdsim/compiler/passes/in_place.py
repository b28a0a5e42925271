"""A stash stays where it is made: vertices read and write its timesteps themselves.

A slice whose result only vertices on the same tile read goes, and they read the sequence; an update of what one vertex
per element has just left goes, and these vertices store it too. A slice that other tiles read stays: an exchange sends
from fixed addresses.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from mimdsim.codelets.in_place_time_slices import KEPT, can_store, read_in_place, store_in_place
from mimdsim.compiler.passes.dead import without_unused_variables
from mimdsim.program import Field, Program, Superstep, Variable, VertexTable
from mimdsim.program.program import map_runs
from mimdsim.program.vertex_boxes import boxes_of, is_local


@dataclass(frozen=True, kw_only=True, eq=False)
class _Use:
    """A field of a table that touches a variable: in which stretch, and at which place of the program."""

    stretch: int
    place: int
    table: VertexTable
    field: Field


def stash_in_place(program: Program) -> Program:
    """The program without slices and updates that vertices can do themselves; the same values."""
    program = _Rewriting(program).without_slices()
    return _Rewriting(program).without_updates()


class _Rewriting:
    def __init__(self, program: Program):
        self.program = program
        self.uses: dict[str, list[_Use]] = defaultdict(list)
        copied = set()
        place = 0
        for number, stretch in enumerate(program.stretches()):
            for superstep in stretch.body:
                copied |= {name for copy in superstep.copies for name in (copy.source, copy.target)}
                for table in superstep.tables:
                    for field in table.codelet.fields:
                        use = _Use(stretch=number, place=place, table=table, field=field)
                        self.uses[table.operands[field.name]].append(use)
                place += 1
        recorded = {name for names in program.recorded.values() for name in names}
        self.outside = {*program.inputs.values(), *program.outputs.values(), *recorded, *copied}
        self.changed: dict[int, VertexTable | None] = {}

    def without_slices(self) -> Program:
        for source, target, slicing in self._moves("sequence", "now"):
            readers = [use for use in self.uses[target] if use.table is not slicing]
            others = [use for use in self.uses[source] if use.field.writes]
            if (
                target not in self.outside
                and readers
                and all(use.field.access == "read" and self._after(use, slicing, target) for use in readers)
                and not any(use.stretch == readers[0].stretch for use in others)
                and all(self._is_local(use, self.program.variables[target]) for use in readers)
            ):
                shift = slicing.codelet.field("sequence").shift or 0
                for use in readers:
                    self._change(use.table, source, use.field.name, shift)
                self.changed[id(slicing)] = None
        return self._made()

    def without_updates(self) -> Program:
        for source, target, update in self._moves("now", "sequence"):
            field = update.codelet.field("sequence")
            before = [use for use in self.uses[source] if use.field.writes and self._before(use, update, source)]
            last = max(before, key=lambda use: use.place, default=None)
            if last is None or field.shift != 0 or id(last.table) in self.changed:
                continue
            alone = [use for use in before if use.place == last.place] == [last]
            between = [use for use in self.uses[target] if use.stretch == last.stretch and use.table is not update]
            storing = alone and not between and can_store(last.table.codelet, last.field.name)
            if storing and self._is_whole(last, source):
                codelet = store_in_place(last.table.codelet, last.field.name)
                operands = {**last.table.operands, KEPT: target}
                self.changed[id(last.table)] = replace(last.table, codelet=codelet, operands=operands)
                self.changed[id(update)] = None
        return self._made()

    def _moves(self, source: str, target: str) -> Iterator[tuple[str, str, VertexTable]]:
        """(variable read, variable written, table) of all tables that only move a timestep between these fields."""
        for superstep, _, _ in self.program.supersteps():
            for table in superstep.tables:
                names = [item.name for item in table.codelet.fields]
                if names == [source, target, "timestep"]:
                    yield table.operands[source], table.operands[target], table

    def _place(self, table: VertexTable, name: str) -> _Use:
        return next(use for use in self.uses[name] if use.table is table)

    def _after(self, use: _Use, table: VertexTable, name: str) -> bool:
        own = self._place(table, name)
        return use.stretch == own.stretch and use.place > own.place

    def _before(self, use: _Use, table: VertexTable, name: str) -> bool:
        own = self._place(table, name)
        return use.stretch == own.stretch and use.place < own.place

    def _is_local(self, use: _Use, variable: Variable) -> bool:
        if use.field.shift is not None or use.field.one_row:
            return False
        boxes = boxes_of(use.table, use.field, variable)
        return bool(is_local(variable.mapping, use.table.tiles, boxes, variable.shape).all())

    def _is_whole(self, use: _Use, name: str) -> bool:
        """Whether the vertices together write every element, each where the sequence has it."""
        variable = self.program.variables[name]
        boxes = boxes_of(use.table, use.field, variable)
        size = int(np.prod(boxes[:, :, 1] - boxes[:, :, 0], axis=1, dtype=np.int64).sum())
        return size == int(np.prod(variable.shape, dtype=np.int64)) and use.field.access in ("write", "update")

    def _change(self, table: VertexTable, source: str, field: str, shift: int) -> None:
        now = self.changed.get(id(table)) or table
        codelet, operands = read_in_place(now.codelet, field, shift), {**now.operands, field: source}
        self.changed[id(table)] = replace(now, codelet=codelet, operands=operands)

    def _made(self) -> Program:
        if not self.changed:
            return self.program

        def change(superstep: Superstep) -> Superstep:
            if not any(id(table) in self.changed for table in superstep.tables):
                return superstep
            tables = (self.changed.get(id(table), table) for table in superstep.tables)
            return replace(superstep, tables=tuple(table for table in tables if table is not None))

        def filled(stretch: list[Superstep]) -> list[Superstep]:
            return [step for step in map(change, stretch) if step.tables or step.copies]

        return without_unused_variables(replace(self.program, body=map_runs(self.program.body, filled)))
