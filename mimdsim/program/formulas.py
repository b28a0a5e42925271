"""The cycles that a codelet's formula gives, and what an author may have got wrong about it."""

from __future__ import annotations

from typing import Any

import numpy as np

from mimdsim.base.errors import MappingError
from mimdsim.base.units import counted
from mimdsim.program.codelet import Codelet, TileFormula

NEEDED = "it must return one number of tile cycles for every vertex, or one for all"


class LackingExtent(Exception):
    """A formula needs an extent that does not exist."""


def formula_cycles(
    codelet: Codelet, extents: dict[str, Any], contexts: int, vector_bytes: int, vertices: int
) -> np.ndarray:
    """float64[vertices], or float64 for all: what the TileFormula of a codelet gives for its `vertices`.

    Raises MappingError, which names the codelet, for a formula that fails or returns anything else.
    """
    assert isinstance(codelet.cost, TileFormula)
    where = f"codelet '{codelet.name}': its cost formula"
    try:
        given = codelet.cost.cycles(extents, contexts, vector_bytes)
        made = np.asarray(given)
    except LackingExtent:
        raise
    except Exception as failure:  # whatever a user's formula raises
        asked = f"called with the extents {', '.join(extents) or 'none'}"
        raise MappingError(f"{where} raised {type(failure).__name__}: {failure} ({asked})") from failure
    if made.dtype.kind not in "iuf":
        raise MappingError(f"{where} returned {given!r:.60}, a {type(given).__name__}; {NEEDED}")
    if made.shape not in ((), (vertices,)):
        size = counted(made.size, "number") if made.ndim == 1 else f"numbers of shape {list(made.shape)}"
        raise MappingError(f"{where} returned {size} for {counted(vertices, 'vertex', 'vertices')}; {NEEDED}")
    cycles = made.astype(np.float64)
    if cycles.size and not (np.isfinite(cycles).all() and cycles.min() >= 0):
        wrong = cycles.ravel()[np.argmin(np.where(np.isfinite(cycles), cycles, -np.inf))]
        raise MappingError(f"{where} gives {wrong} cycles; correct the formula")
    return cycles
