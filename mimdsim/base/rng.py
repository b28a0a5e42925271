"""Named random streams: the same seed and names give the same numbers in every process and on every platform."""

from __future__ import annotations

import hashlib

import numpy as np


def stream(seed: int, *names: str | int) -> np.random.Generator:
    """An independent generator for `names`, e.g. `stream(seed, "weights", "hidden0")`."""
    digest = hashlib.sha256("/".join(str(name) for name in names).encode()).digest()
    words = np.frombuffer(digest, dtype="<u4")
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, *words.tolist()])))
