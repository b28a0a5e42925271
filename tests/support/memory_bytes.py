"""Bytes of a compiled program's memory on every tile."""

from __future__ import annotations

import numpy as np

from mimdsim.compiler import Memory


def bytes_of(memory: Memory, name: str) -> np.ndarray:
    """int64[tiles]: what a variable takes on every tile."""
    spread = np.zeros(len(memory.always), np.int64)
    tiles, size = memory.held[name]
    spread[tiles] = size
    return spread


def live_at(memory: Memory, index: int) -> np.ndarray:
    """int64[tiles]: bytes in use in superstep `index`."""
    found = np.zeros(len(memory.always), np.int64)
    for _, _, tiles, size in memory.live(index):
        found[tiles] += size
    return found
