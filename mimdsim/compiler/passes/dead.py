"""Leave out what a program computes and nothing reads."""

from __future__ import annotations

from dataclasses import replace

from mimdsim.compiler.passes.merge import touched
from mimdsim.program import Program, Superstep
from mimdsim.program.program import map_runs


def drop_dead_code(program: Program) -> Program:
    """The program without vertices and copies whose results are neither read nor outputs, recorded or kept, and
    without the variables that nothing uses then."""
    parts = -1
    while parts != (parts := sum(len(step.tables) + len(step.copies) for step, _, _ in program.supersteps())):
        program = _dropped_once(program)
    return without_unused_variables(program)


def observed(program: Program) -> set[str]:
    """Variables that the host or the next run may read."""
    recorded = {name for names in program.recorded.values() for name in names}
    persistent = {name for name, variable in program.variables.items() if variable.persistent}
    return {*program.inputs.values(), *program.outputs.values(), *recorded, *persistent}


def without_unused_variables(program: Program) -> Program:
    """The program with the variables that its supersteps touch or that are observed."""
    used = {name for superstep, _, _ in program.supersteps() for names in touched(superstep) for name in names}
    used |= observed(program)
    return replace(program, variables={name: each for name, each in program.variables.items() if name in used})


def _dropped_once(program: Program) -> Program:
    read = observed(program)
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
