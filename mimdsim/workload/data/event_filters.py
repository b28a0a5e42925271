"""Filters applied to a recording before binning: remove events without neighbours, and crop the sensor."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from mimdsim.base.rng import stream
from mimdsim.numerics.columns.augmentation import move
from mimdsim.workload.data.events import Events, Ids, Ints, smaller_grid


def crop_centre(events: Events, crop: int) -> Events:
    """The events in the `crop` x `crop` pixels in the middle (0: all), counted from their first column and line.

    The first column kept is floor((width - crop) / 2), the first line likewise.
    """
    width, height = smaller_grid("crop", events.width, events.height, crop)
    if (width, height) == (events.width, events.height):
        return events
    x, y = events.x - (events.width - width) // 2, events.y - (events.height - height) // 2
    kept = (x >= 0) & (x < width) & (y >= 0) & (y < height)
    return replace(events.some(kept), x=x[kept], y=y[kept], width=width, height=height)


def denoise(events: Events, window_seconds: float) -> Events:
    """The events that another one supports (0 seconds: all events).

    An event at time t is kept if one of the four adjacent pixels (left, right, above, below, of either polarity) had
    an earlier event less than `window_seconds` before t; of events at the same time, those first in the file count as
    earlier. Events with t below `window_seconds` are all kept, because what came before the recording is
    unknown. Both follow `Denoise` of the package tonic (github.com/neuromorphs/tonic, tonic/functional/denoise.py). A
    dropped event still supports others.
    """
    if not window_seconds or not events.count:
        return events
    window = round(window_seconds * 1e9)
    # Supporters are searched in a list sorted by pixel, then by order in time: two binary searches replace a scan.
    order = np.argsort(events.t_microseconds, kind="stable")
    x, y, t = events.x[order], events.y[order], events.t_microseconds[order]
    place = np.arange(events.count)
    width = events.width + 2  # with a border of pixels that have no events
    pixel = x + 1 + width * (y + 1)
    by_pixel = np.r_[-1, np.sort(pixel * events.count + place)]
    supported = t * 1000 < window
    for step in (-1, 1, -width, width):
        first = (pixel + step) * events.count
        # the last entry before the event's own place; below `first` it belongs to another pixel
        earlier = by_pixel[np.searchsorted(by_pixel, first + place) - 1] - first
        supported |= (earlier >= 0) & ((t - t[np.maximum(earlier, 0)]) * 1000 < window)
    kept = np.empty(events.count, dtype=bool)
    kept[order] = supported
    return events.some(kept)


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
