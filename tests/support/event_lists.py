"""Recordings and films as lists, without a data set."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from mimdsim.workload.data import digits
from mimdsim.workload.data.events import Events, Ids, bin_events, pack_rows, smaller_grid


def binned(
    events: Events,
    *,
    rng: np.random.Generator,
    timesteps: int,
    bin_seconds: float = 1e-3,
    grid: int = 0,
    capacity: int,
) -> tuple[Ids, Ids, int]:
    """(ids int32[timesteps, capacity], counts int32[timesteps], surplus) of one recording."""
    keys = bin_events(events, timesteps=timesteps, bin_seconds=bin_seconds, grid=grid)
    columns, lines = smaller_grid("grid", events.width, events.height, grid)
    inputs = columns * lines * events.polarities
    return pack_rows(keys, inputs, row_count=timesteps, capacity=capacity, rng=rng)


def filmed(
    images: digits.Images,
    *,
    timesteps: int,
    grid: int,
    capacity: int,
    rng: np.random.Generator,
    progress: Callable[[int, int], None] = lambda *_: None,
) -> tuple[Ids, Ids, int]:
    """(ids int32[samples, timesteps, capacity], counts int32[samples, timesteps], surplus) of filmed images."""
    total = images.labels.size
    ids, counts = np.zeros((total, timesteps, capacity), np.int32), np.zeros((total, timesteps), np.int32)
    surplus = 0
    for samples, keys in digits.film(images, timesteps=timesteps, grid=grid):
        rows = samples.size * timesteps
        packed, filled, extra = pack_rows(keys, 2 * grid * grid, row_count=rows, capacity=capacity, rng=rng)
        ids[samples], counts[samples] = packed.reshape(-1, timesteps, capacity), filled.reshape(-1, timesteps)
        surplus += extra
        progress(int(samples[-1]) + 1, total)
    return ids, counts, surplus
