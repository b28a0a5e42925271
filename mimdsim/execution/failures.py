"""What vertices do that they may not, in words: which vertex, on which tile, through which field."""

from __future__ import annotations

from typing import Any

import numpy as np

from mimdsim.base.errors import MappingError
from mimdsim.program import Superstep, VertexTable
from mimdsim.program.codelet import Codelet, Field
from mimdsim.program.records import vertex_name


class VertexFailure(MappingError):
    """A vertex left its slices or wrote what it may only read."""

    def __init__(
        self,
        superstep: Superstep,
        table: VertexTable,
        vertex: int,
        t: int,
        failure: Exception,
        written: Field | None = None,
    ):
        self.vertex, self.tile = vertex, int(table.tiles[vertex])
        left = isinstance(failure, IndexError) or written is not None
        unfit = "does not fit its slices" if isinstance(failure, ValueError) else f"raised {type(failure).__name__}"
        what = "left its slices" if left else unfit
        why = f"{failure}" if written is None else f"it {written_though_read(written)} ({failure})"
        super().__init__(f"superstep '{superstep.name}', timestep {t}: {vertex_name(table, vertex)} {what}: {why}")


class GuardError(IndexError):
    """A vertex left its slice, or wrote what it may only read; the message names field and index."""


def written_though_read(field: Field) -> str:
    """What is wrong when a vertex writes a field that it may only read, and what to declare."""
    return f'writes its field \'{field.name}\', declared access="read"; declare "write", or "update" for both'


def _is_read_only(failure: Exception) -> bool:
    return any(word in str(failure) for word in ("read-only", "readonly"))  # as numpy and as numba put it


def field_written(
    codelet: Codelet, views: list[np.ndarray], numbers: tuple[Any, ...], failure: Exception
) -> Field | None:
    """The field that the vertex wrote though it may only read it: protected alone, it makes the vertex fail again."""
    for index, item in enumerate(codelet.fields) if _is_read_only(failure) else ():
        copies = [view.copy() for view in views]
        copies[index].setflags(write=item.writes)
        try:
            codelet.compute(*copies, *numbers)
        except Exception as again:
            if _is_read_only(again):
                return item
    return None
