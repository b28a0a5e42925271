"""Augmentation of training samples: in every epoch they are shifted over the sensor by some pixels."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from mimdsim.base.rng import stream
from mimdsim.numerics.columns.augmentation import move
from mimdsim.workload.data.events import Ids, Ints


@dataclass(frozen=True, kw_only=True)
class Augmentation:
    """A shift of every sample by up to `shift_pixels` columns and as many lines, drawn by `seed` for every epoch.

    `columns` and `lines` are those of the pixels whose events are listed, after any crop and reduction.
    """

    seed: int
    columns: int
    lines: int
    shift_pixels: int

    def shifts(self, samples: int, epoch: int) -> Ints:
        """int64[samples, 2]: columns to the right and lines down, each uniform in -shift_pixels to shift_pixels.

        They depend only on seed and epoch, whatever the batches, so a resumed training uses the same ones.
        """
        # Scaled random numbers, not Generator.integers: the same shifts with every version of numpy.
        drawn = stream(self.seed, "shift", epoch).random((samples, 2))
        return np.floor(drawn * (2 * self.shift_pixels + 1)).astype(np.int64) - self.shift_pixels

    def change(self, ids: Ids, counts: Ids, indices: npt.NDArray[np.int64], samples: int, epoch: int) -> None:
        """Move a batch in place: ids int32[timesteps, batch, capacity] valid up to counts int32[timesteps, batch].

        `indices` int64[batch] say which of the `samples` they are. Events that leave the sensor are dropped.
        """
        across, down = np.ascontiguousarray(self.shifts(samples, epoch)[indices].T)
        move(ids, counts, across, down, self.columns, self.lines)
