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


@dataclass(frozen=True, kw_only=True, eq=False)
class Padded:
    """Lists of many places that each have room of their own: ids[starts[place]:starts[place] + listed[place]], of which
    `trues[place]` are true spikes."""

    starts: np.ndarray
    trues: np.ndarray
    listed: np.ndarray
    ids: np.ndarray

    @property
    def arrays(self) -> tuple[Any, ...]:
        """As kernels take them."""
        return self.starts, self.trues, self.listed, self.ids

    @classmethod
    def of(cls, ids: np.ndarray, counts: np.ndarray, turns: int) -> Padded:
        """Of ids [turns, batch, capacity] and counts [turns, batch, 2], in this order; of turns that they lack, nothing
        is listed."""
        _, batch, capacity = ids.shape
        flat, begin, step = walked(ids)
        starts, trues, listed = (np.zeros((turns, batch), kind) for kind in (np.int64, np.int32, np.int32))
        starts[:] = begin + step * np.arange(turns)[:, None] + capacity * np.arange(batch)
        trues[: len(counts)], listed[: len(counts)] = counts[..., 0], counts[..., 1]
        return cls(starts=starts.reshape(-1), trues=trues.reshape(-1), listed=listed.reshape(-1), ids=flat)


def walked(rows: np.ndarray) -> tuple[np.ndarray, int, int]:
    """What lies in memory turn after turn, or the other way: all numbers, where the first turn begins, and how much
    further the next one does."""
    each = rows[0].size if len(rows) else 0
    if rows.flags.c_contiguous:
        return rows.reshape(-1), 0, each
    return rows[::-1].reshape(-1), (len(rows) - 1) * each, -each


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
