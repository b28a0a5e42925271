"""Turns of loops that a codelet counts itself as it runs (`Codelet.count`): recorded for timing, as spikes are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from mimdsim.base.errors import MappingError
from mimdsim.program import Program, Superstep, VertexTable
from mimdsim.program.diagnostics import vertex_name
from mimdsim.program.trip_counts import Turns, extents_of, stretch_of

MOST = (1 << 31) - 1  # turns that are recorded
# called with (vertex or None for all, timestep, the arguments of compute)
Record = Callable[[int | None, int, tuple[Any, ...]], None]


class TurnCounts:
    """int32[executions, vertices, 2] by name, of the last run; both columns are alike, as nothing is listed."""

    def __init__(self, program: Program):
        self.program = program
        self.found: dict[str, np.ndarray] = {}

    def recorder(self, superstep: Superstep, table: VertexTable) -> Record | None:
        """What counts the turns of a table's vertices; None where its codelet counts none."""
        count = table.codelet.count
        if count is None:
            return None
        names = {name: each for name, each in extents_of(self.program, table).items() if isinstance(each, Turns)}
        timesteps = stretch_of(self.program, superstep).timesteps
        for extent in names.values():
            self.found[extent.layer] = np.zeros((len(timesteps), table.vertices, 2), np.int32)

        def record(vertex: int | None, t: int, given: tuple[Any, ...]) -> None:
            made = count(*given)
            who = table.codelet.name if vertex is None else vertex_name(table, vertex)
            where = f"superstep '{superstep.name}', timestep {t}: count of {who}"
            if not isinstance(made, dict) or set(made) != set(names):
                raise MappingError(f"{where} must return a dict of the extents {sorted(names)}, returned {made!r}")
            for name, turns in made.items():
                number = np.asarray(turns)
                if number.dtype.kind not in "iu" or (number.size and not 0 <= number.min() <= number.max() <= MOST):
                    raise MappingError(f"{where} gives {turns!r} turns of '{name}'; give whole numbers, 0 to {MOST:,}")
                try:
                    place = slice(None) if vertex is None else vertex
                    self.found[names[name].layer][timesteps.index(t), place] = number[..., None]
                except ValueError:
                    raise MappingError(
                        f"{where} gives {number.shape} turns of '{name}' for {table.vertices} vertices"
                    ) from None

        return record
