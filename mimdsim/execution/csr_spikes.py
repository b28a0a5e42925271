"""Spikes of many places end to end, and what every block of neurons lists."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(kw_only=True, eq=False)
class Lists:
    """Spikes of a layer end to end: ids[starts[place]:starts[place + 1]], `trues[place]` of them true spikes.

    over_starts: of the spikes beyond the capacity, which reset their neuron all the same. width: how many neurons there
    are.
    """

    starts: np.ndarray
    trues: np.ndarray
    ids: np.ndarray
    over_starts: np.ndarray
    width: int

    @property
    def arrays(self) -> tuple[Any, ...]:
        """As kernels take them."""
        return self.starts, self.trues, self.ids

    @classmethod
    def room(cls, places: int, neurons: int, capacity: int) -> Lists:
        """Room for the longest lists; memory beyond what is listed is reserved, never touched."""
        return cls(
            starts=np.zeros(places + 1, np.int64),
            trues=np.zeros(places, np.int32),
            ids=np.empty(places * capacity, np.int32),
            over_starts=np.zeros(places + 1, np.int64),
            width=neurons,
        )


@dataclass(kw_only=True, eq=False)
class Entries:
    """What every block of a layer lists, as `numerics.fused.whole_linear` says."""

    places: np.ndarray
    lanes: np.ndarray
    values: np.ndarray
    slots: np.ndarray
    ends: np.ndarray

    @property
    def arrays(self) -> tuple[Any, ...]:
        """As kernels take them."""
        return self.places, self.lanes, self.values, self.slots, self.ends

    @classmethod
    def room(cls, rows: int, timesteps: int, each: int) -> Entries:
        """Room for so many entries of each row, a block or a share of one."""
        most = rows, each
        return cls(
            places=np.empty(most, np.int32),
            lanes=np.empty(most, np.uint8),
            values=np.empty(most, np.float32),
            slots=np.empty(most, np.int64),
            ends=np.zeros((rows, timesteps), np.int64),
        )


def listed_of(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(ids int32[timesteps, batch, most that are not zero], counts int32[timesteps, batch, 2]) of dense spikes."""
    fired = rows != 0
    count = fired.sum(axis=2)
    ids: np.ndarray = np.zeros((*count.shape, max(1, int(count.max(initial=0)))), np.int32)
    ids[np.arange(ids.shape[2]) < count[..., None]] = np.nonzero(fired)[2]
    return ids, np.stack([count, count], axis=-1).astype(np.int32)
