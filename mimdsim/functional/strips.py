"""What a variable was in every turn of a repeat, in strips of neighbouring neurons."""

from __future__ import annotations

import numpy as np

from mimdsim.functional.shares import aligned
from mimdsim.numerics.fused.vectors import WIDTH


class Strips:
    """A variable [batch, neurons] in every turn: `rows` [strips, turns * batch, WIDTH]. Sums over turns then read rows
    of a strip that are near each other."""

    def __init__(self, batch: int, neurons: int, turns: int, *, reverse: bool):
        self.batch, self._turns, self._reverse = batch, turns, reverse
        self.rows = aligned((-(-neurons // WIDTH), batch * turns, WIDTH))

    def first_row(self, t: int) -> int:
        """Where the samples of a timestep begin."""
        return self.batch * (self._turns - 1 - t if self._reverse else t)

    def begin(self, t: int) -> np.ndarray:
        """Every number from the first of a timestep on: of sample s, in this turn or the next ones, from s * WIDTH
        on."""
        flat: np.ndarray = self.rows.reshape(-1)
        return flat[self.first_row(t) * WIDTH :]

    def places(self, neurons: np.ndarray) -> np.ndarray:
        """uint32: where neurons of a sample lie, counted from its first number."""
        strip, lane = np.divmod(neurons.astype(np.int64), WIDTH)
        return (strip * self.rows.shape[1] * WIDTH + lane).astype(np.uint32)

    @property
    def near(self) -> bool:
        """Whether `places` can count as far as that."""
        return self.rows.size <= np.iinfo(np.uint32).max
