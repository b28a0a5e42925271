"""Who reads and who writes a variable of a program, superstep by superstep."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from mimdsim.program import Copy, Program, Repeat, Stretch, Superstep, VertexTable


@dataclass(frozen=True, kw_only=True, eq=False)
class Use:
    """A table or a copy: its place in program order, the repeat it is in (None: none; else the innermost) with all
    timesteps and their direction, what it reads and writes."""

    place: int
    repeat: Repeat | None
    timesteps: int
    reverse: bool
    superstep: Superstep
    item: VertexTable | Copy
    reads: frozenset[str]
    writes: frozenset[str]


class Uses:
    """All uses of all variables of a program."""

    def __init__(self, program: Program):
        self.program = program
        self.all: list[Use] = []
        place = 0
        for stretch in program.stretches():
            for superstep in stretch.body:
                for copy in superstep.copies:
                    reads, writes = frozenset([copy.source]), frozenset([copy.target])
                    self._add(place, stretch, superstep, copy, reads, writes)
                for table in superstep.tables:
                    fields = table.codelet.fields
                    reads = frozenset(table.operands[field.name] for field in fields if field.reads)
                    writes = frozenset(table.operands[field.name] for field in fields if field.writes)
                    self._add(place, stretch, superstep, table, reads, writes)
                place += 1
        self.of: dict[str, list[Use]] = defaultdict(list)
        for use in self.all:
            for name in use.reads | use.writes:
                self.of[name].append(use)
        self.outside = {*program.inputs.values(), *program.outputs.values()}
        self.outside |= {name for pair in program.recorded.values() for name in pair}

    def _add(
        self,
        place: int,
        stretch: Stretch,
        superstep: Superstep,
        item: VertexTable | Copy,
        reads: frozenset[str],
        writes: frozenset[str],
    ) -> None:
        self.all.append(
            Use(
                place=place,
                repeat=stretch.repeats[-1] if stretch.repeats else None,
                timesteps=stretch.times,
                reverse=stretch.reverse,
                superstep=superstep,
                item=item,
                reads=reads,
                writes=writes,
            )
        )

    def computed_by(self, compute: object) -> list[tuple[Use, VertexTable]]:
        """Tables that this function computes."""
        return [
            (use, use.item)
            for use in self.all
            if isinstance(use.item, VertexTable)
            and use.item.codelet.form == "table"
            and use.item.codelet.compute is compute
        ]

    def written_in(self, name: str, repeat: Repeat | None) -> list[Use]:
        """Uses within a repeat that write `name`."""
        return [use for use in self.of[name] if use.repeat is repeat and name in use.writes]
