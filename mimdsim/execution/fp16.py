"""Half precision: what a vertex writes to a half is rounded to one.

Emulated. Values are held in float32 arrays; after every superstep all that its vertices wrote to halves is rounded to
the nearest half. An element is written by one vertex of a superstep, so this rounds each vertex's results once. Sums
inside a vertex stay in float32, where a tile that adds four halves at a time would round every partial sum; constants
of codelets are float32 too. So this shows what storing halves does, and at least what adding in them would.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

import numpy as np
import numpy.typing as npt

from mimdsim.execution.execute import Executor
from mimdsim.numerics.halves import round_to_half
from mimdsim.program import Program, Superstep
from mimdsim.program.codelet import now_shift

HALF_BYTES = 2


def has_halves(program: Program) -> bool:
    """Whether any value of the program is a half that is held in a float32."""
    return any(_is_half(program, name) for name in program.variables)


def executor_of(program: Program) -> Executor:
    """What runs `program` for the values its formats hold."""
    return HalfExecutor(program) if has_halves(program) else Executor(program)


class HalfExecutor(Executor):
    """An executor whose halves are rounded: inputs when they are written, others after each superstep."""

    def __init__(self, program: Program):
        super().__init__(program)
        self._written: dict[int, tuple[tuple[str, int | None], ...]] = {}
        for superstep, _, _ in program.supersteps():
            self._written[id(superstep)] = tuple(sorted(_halves_written(program, superstep), key=str))

    def write(self, values: Mapping[str, npt.ArrayLike]) -> None:
        """As `Executor.write`."""
        super().write(values)
        for name in values:
            variable = self.program.inputs[name]
            if _is_half(self.program, variable):
                _round(self.arrays[variable])

    def steps(self, phases: Collection[str] | None = None) -> Iterator[tuple[Superstep, int]]:
        """As `Executor.steps`; whoever looks between two supersteps sees rounded values."""
        for superstep, t in super().steps(phases):
            for name, shift in self._written[id(superstep)]:
                array = self.arrays[name]
                _round(array if shift is None else array[self.program.variables[name].entry(t, shift)])
            yield superstep, t


def _is_half(program: Program, name: str) -> bool:
    variable = program.variables[name]
    return variable.item_bytes == HALF_BYTES and np.dtype(variable.dtype) == np.float32  # what is float16 is rounded


def _halves_written(program: Program, superstep: Superstep) -> set[tuple[str, int | None]]:
    """(variable, which timestep of it) of what the superstep's vertices write."""
    return {
        (table.operands[item.name], now_shift(item.box[0]))
        for table in superstep.tables
        for item in table.codelet.fields
        if item.writes and _is_half(program, table.operands[item.name])
    }


def _round(array: np.ndarray) -> None:
    flat = array.reshape(-1)
    assert np.shares_memory(flat, array) or not array.size  # contiguous, or nothing would be rounded
    round_to_half(flat, flat.view(np.uint32))
