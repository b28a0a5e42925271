"""What a check looks at, and how it says what is wrong there."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from mimdsim.program import vertex_boxes
from mimdsim.program.codelet import Field
from mimdsim.program.mapping import TileMapping
from mimdsim.program.program import Program, Stretch
from mimdsim.program.records import Problem, Superstep, Variable, VertexTable, problem_in
from mimdsim.program.vertex_boxes import boxes_of, by_rows, spatial_mapping

ON_A_TILE = "every element is on a tile"
IN_REPEAT = "timestep in repeat"
LOCAL_OR_DELIVERED = "reads are local or delivered"
TWICE, MEANWHILE = "nothing is written twice", "nothing is read while written"


@dataclass(frozen=True, kw_only=True, eq=False)
class Access:
    """What the vertices of a table touch of a variable through a field."""

    table: VertexTable
    field: Field
    variable: Variable

    @property
    def shift(self) -> int | None:
        """The shift of the timestep; None: the first axis is not a timestep axis."""
        return self.field.shift

    @property
    def shape(self) -> tuple[int, ...]:
        return self.variable.shape[self.shift is not None :]

    @cached_property
    def mapping(self) -> TileMapping:
        return spatial_mapping(self.variable, self.shift is not None)

    @property
    def boxes(self) -> np.ndarray:
        """As given by `boxes_of`; kept for several checks unless they are many, most of which nothing writes
        meanwhile."""
        return self._kept_boxes if self.is_small else boxes_of(self.table, self.field, self.variable)

    @cached_property
    def _kept_boxes(self) -> np.ndarray:
        return boxes_of(self.table, self.field, self.variable)

    @property
    def is_small(self) -> bool:
        """Whether its vertices are looked at all at once."""
        return self.table.vertices <= vertex_boxes.ROWS_AT_ONCE

    def on(self, part: VertexTable) -> Access:
        """The same of some of the vertices."""
        return self if part is self.table else replace(self, table=part)

    def parts(self) -> Iterator[tuple[Access, np.ndarray]]:
        """The same of the vertices in order, many at once, and their rows in the table."""
        return ((self.on(part), rows) for part, rows in by_rows(self.table))


@dataclass(frozen=True, kw_only=True, eq=False)
class Scope:
    """A superstep of a program, checked for a machine of so many tiles.

    stretch: its place, where it matters when it runs. described: what mappings say as they are now, for one walk over a
    program.
    """

    program: Program
    superstep: Superstep
    tiles: int
    stretch: Stretch = field(default_factory=lambda: Stretch(body=()))
    described: dict[TileMapping, bytes] = field(default_factory=dict)

    @cached_property
    def accesses(self) -> list[Access]:
        """Of all fields whose operand is a variable of the program, table by table."""
        variables = self.program.variables
        return [
            Access(table=table, field=item, variable=variables[table.operands[item.name]])
            for table in self.superstep.tables
            for item in table.codelet.fields
            if table.operands[item.name] in variables
        ]

    def problem(self, rule: str, text: str, table: VertexTable | None = None, vertex: int = 0) -> Problem:
        """As `problem_in` the superstep."""
        return problem_in(self.superstep, rule, text, table, vertex)


def entries_taken(variable: Variable, shift: int, timesteps: range) -> tuple[int, int]:
    """(least, most) index on the first axis that "@t" and a shift name in these timesteps."""
    # all segments are alike; all other entries ascend with time
    some = timesteps[: variable.segment] if variable.entries == "segment" else (timesteps[0], timesteps[-1])
    entries = [variable.entry(t, shift) for t in some]
    return min(entries), max(entries)
