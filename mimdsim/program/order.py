"""Whether supersteps come in an order in which what is read has been written: till then it holds zeros."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from mimdsim.program.records import Program
from mimdsim.program.repeats import Repeat


@dataclass(kw_only=True)
class _Uses:
    """Of one variable: (moment in program order, superstep, the repeats it lies in)."""

    reads: list[tuple[int, str, tuple[Repeat, ...]]] = field(default_factory=list)
    writes: list[tuple[int, str, tuple[Repeat, ...]]] = field(default_factory=list)


def read_before_written(program: Program) -> Iterator[str]:
    """What is wrong with every variable that is read before the first superstep that writes it.

    Not asked: what the host gives, what is loaded with values, what nothing ever writes, what a superstep reads that
    writes it too, and what a later turn of a repeat reads of an earlier one.
    """
    given = {*program.inputs.values(), *(name for name, held in program.variables.items() if held.values is not None)}
    for name, uses in _uses(program).items():
        if name in given or not uses.reads or not uses.writes:
            continue
        moment, reader, around = uses.reads[0]
        first, writer, _ = uses.writes[0]
        turns = {id(repeat) for repeat in around}
        if moment < first and not any(id(repeat) in turns for _, _, those in uses.writes for repeat in those):
            yield (
                f"'{name}' is read in superstep '{reader}', before superstep '{writer}' writes it, so that zeros are "
                f"read; write it in an earlier superstep, or make '{name}' an input of the program"
            )


def _uses(program: Program) -> dict[str, _Uses]:
    found: dict[str, _Uses] = {}
    moment = 0  # the exchange of a superstep, then its vertices
    for stretch in program.stretches():
        for superstep in stretch.body:
            moment += 2
            here = moment + 1, superstep.name, stretch.repeats
            for copy in superstep.copies:
                found.setdefault(copy.source, _Uses()).reads.append((moment, superstep.name, stretch.repeats))
                found.setdefault(copy.target, _Uses()).writes.append((moment, superstep.name, stretch.repeats))
            for table in superstep.tables:
                if not table.vertices:
                    continue
                for item in table.codelet.fields:
                    uses = found.setdefault(table.operands[item.name], _Uses())
                    if item.writes:
                        uses.writes.append(here)
                    else:
                        uses.reads.append(here)
    return found
