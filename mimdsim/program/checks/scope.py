"""What a check looks at, and how it says what is wrong there."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from mimdsim.program.codelet import Field
from mimdsim.program.mapping import TileMapping
from mimdsim.program.program import Program, Stretch
from mimdsim.program.records import Problem, Superstep, Variable, VertexTable, problem_in
from mimdsim.program.vertex_boxes import boxes_of, spatial_mapping

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

    @property
    def mapping(self) -> TileMapping:
        return spatial_mapping(self.variable, self.shift is not None)

    @property
    def boxes(self) -> np.ndarray:
        """As given by `boxes_of`; not kept, as most are of variables that nothing writes meanwhile."""
        return boxes_of(self.table, self.field, self.variable)


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

    @property
    def accesses(self) -> Iterator[Access]:
        """Of all fields whose operand is a variable of the program, table by table."""
        for table in self.superstep.tables:
            for item in table.codelet.fields:
                variable = self.program.variables.get(table.operands[item.name])
                if variable is not None:
                    yield Access(table=table, field=item, variable=variable)

    def problem(self, rule: str, text: str, table: VertexTable | None = None, vertex: int = 0) -> Problem:
        """As `problem_in` the superstep."""
        return problem_in(self.superstep, rule, text, table, vertex)


def entries_taken(variable: Variable, shift: int, timesteps: range) -> tuple[int, int]:
    """(least, most) index on the first axis that "@t" and a shift name in these timesteps."""
    # all segments are alike; all other entries ascend with time
    some = timesteps[: variable.segment] if variable.entries == "segment" else (timesteps[0], timesteps[-1])
    entries = [variable.entry(t, shift) for t in some]
    return min(entries), max(entries)
