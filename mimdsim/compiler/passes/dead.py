"""Leave out what a program computes and nothing reads."""

from __future__ import annotations

from dataclasses import replace

from mimdsim.compiler.passes.merge import touched
from mimdsim.program import Program, Superstep
from mimdsim.program.program import map_runs


def drop_dead_code(program: Program) -> Program:
    """The program without vertices and copies whose results are neither read nor outputs, recorded or kept, and
    without the variables that nothing uses then."""
    while True:
        smaller = _dropped_once(program)
        if sum(1 for _ in _parts(smaller)) == sum(1 for _ in _parts(program)):
            break
        program = smaller
    used = {name for superstep, _, _ in program.supersteps() for names in touched(superstep) for name in names}
    used |= _outside(program)
    return replace(program, variables={name: each for name, each in program.variables.items() if name in used})


def _parts(program: Program) -> list[object]:
    return [part for superstep, _, _ in program.supersteps() for part in (*superstep.tables, *superstep.copies)]


def _outside(program: Program) -> set[str]:
    """Variables that the host or the next run may read."""
    recorded = {name for names in program.recorded.values() for name in names}
    kept = {name for name, variable in program.variables.items() if variable.persistent}
    return {*program.inputs.values(), *program.outputs.values(), *recorded, *kept}


def _dropped_once(program: Program) -> Program:
    read = _outside(program)
    for superstep, _, _ in program.supersteps():
        read |= {copy.source for copy in superstep.copies}
        read |= {table.operands[item.name] for table in superstep.tables for item in table.codelet.fields if item.reads}

    def without(superstep: Superstep) -> Superstep:
        tables = tuple(
            table
            for table in superstep.tables
            if any(table.operands[item.name] in read for item in table.codelet.fields if item.writes)
        )
        copies = tuple(copy for copy in superstep.copies if copy.target in read)
        if (len(tables), len(copies)) == (len(superstep.tables), len(superstep.copies)):
            return superstep
        return replace(superstep, tables=tables, copies=copies)

    def filled(stretch: list[Superstep]) -> list[Superstep]:
        changed = (without(superstep) for superstep in stretch)
        return [superstep for superstep in changed if superstep.tables or superstep.copies]

    return replace(program, body=map_runs(program.body, filled))
