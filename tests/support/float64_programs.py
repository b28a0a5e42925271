"""A program on numbers of float64: what rounding does to it can be told from what is wrong with it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from mimdsim.program.program import Program
from mimdsim.program.records import Superstep, Variable, VertexTable


def in_float64(program: Program) -> Program:
    """The same vertices on float64 variables and constants; bytes and cycles stay those of float32.

    A constant that the program has rounded to float32 keeps that value.
    """

    def wider(variable: Variable) -> Variable:
        if variable.dtype != "float32":
            return variable
        return replace(variable, dtype="float64", stored_bytes=variable.item_bytes)

    changed = program.map_supersteps(_superstep)
    return replace(changed, variables={name: wider(variable) for name, variable in program.variables.items()})


def _superstep(superstep: Superstep) -> Superstep:
    return replace(superstep, tables=tuple(_table(table) for table in superstep.tables))


def _table(table: VertexTable) -> VertexTable:
    constants = {
        name: np.float64(value) if isinstance(value, np.float32) else value for name, value in table.constants.items()
    }
    return replace(table, constants=constants)
