"""Address events: filtered, binned into lists of input ids per timestep, and shifted when they are trained on."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import numpy.typing as npt

from mimdsim.base.compressed_columns import distinct
from mimdsim.base.errors import DescriptionError
from mimdsim.base.rng import stream
from mimdsim.base.units import show_quantity
from mimdsim.numerics.sparse.spikes import move

Ints = npt.NDArray[np.int64]
Ids = npt.NDArray[np.int32]

POLARITIES = 2  # 0 = OFF (darker), 1 = ON (brighter)
MAX_BIN_SECONDS = 1e6  # assumed: no recording is longer; keeps bin arithmetic far from the end of int64
_MAX_MICROSECONDS = 1 << 52  # times a thousand this still fits int64


def refused(*problems: str) -> DescriptionError:
    """The error for what a [data] table says."""
    return DescriptionError("workload data", problems)


@dataclass(frozen=True, kw_only=True)
class Events:
    """Events of one recording as int64 columns of equal length.

    `x` is 0..width-1, `y` is 0..height-1, `polarity` is 0 or 1, `t_microseconds` counts from the recording's start.
    `unread` events, the first of them at `unread_from_microseconds`, came after the time that was asked for.
    A sensor without polarity (cochlea channels) has polarity 0 only and height 1. Raises ValueError for columns that
    disagree or leave the sensor: readers refuse bad files before they get here.
    """

    x: Ints
    y: Ints
    polarity: Ints
    t_microseconds: Ints
    width: int
    height: int
    polarities: int = POLARITIES
    unread: int = 0
    unread_from_microseconds: int = 0

    def __post_init__(self) -> None:
        columns = {"x": self.x, "y": self.y, "polarity": self.polarity, "t_microseconds": self.t_microseconds}
        for name, column in columns.items():
            if column.dtype != np.int64 or column.shape != (self.x.size,):
                raise ValueError(f"{name} is {column.dtype}{list(column.shape)}, not int64[{self.x.size}]")
        for name, bound in (("x", self.width), ("y", self.height), ("polarity", self.polarities)):
            column = columns[name]
            if column.size and not 0 <= column.min() <= column.max() < bound:
                raise ValueError(f"{name} has values {column.min()} to {column.max()}, outside 0 to {bound - 1}")

    @property
    def count(self) -> int:
        """The number of events."""
        return int(self.x.size)

    def some(self, kept: npt.NDArray[np.bool_]) -> Events:
        """Those that are `kept`, on the same sensor."""
        columns = {name: getattr(self, name)[kept] for name in ("x", "y", "polarity", "t_microseconds")}
        return replace(self, **columns)


def smaller_grid(key: Literal["crop", "grid"], width: int, height: int, side: int) -> tuple[int, int]:
    """Width and height after the crop or reduction to `side` x `side` (0: as recorded).

    Raises DescriptionError for more than the sensor has: most inputs of a finer grid could never spike.
    """
    if not side:
        return width, height
    if side > min(width, height):
        pixels = f"{width} x {height} pixels; give 0 to {min(width, height)}"
        raise refused(f"'data.{key}' is {side}, but the sensor has {pixels}")
    return side, side


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


def bin_nanoseconds(bin_seconds: float) -> int:
    """The width of a timestep in whole nanoseconds; raises DescriptionError outside 1 ns to 1e6 s."""
    if not (math.isfinite(bin_seconds) and 1e-9 <= bin_seconds <= MAX_BIN_SECONDS):
        raise refused(f"'data.bin_seconds' is {bin_seconds}; give 1e-9 to {MAX_BIN_SECONDS:g} seconds")
    return round(bin_seconds * 1e9)


def duration_microseconds(timesteps: int, bin_seconds: float) -> int:
    """The first whole microsecond at or after the last of `timesteps` bins."""
    return min(-(-timesteps * bin_nanoseconds(bin_seconds) // 1000), _MAX_MICROSECONDS)


def pack_rows(
    keys: Ints, inputs: int, *, row_count: int, capacity: int, rng: np.random.Generator
) -> tuple[Ids, Ids, int]:
    """Lists of at most `capacity` ids a row: (ids int32[row_count, capacity], counts int32[row_count], surplus).

    `keys` are row * inputs + id, ascending and without repeats. Where a row holds more than `capacity` ids a uniformly
    random subset is kept (as in the authors' sparse IPU training code) and the rest counts as surplus. Ids stay
    ascending; unused entries are 0.
    """
    rows, ids = np.divmod(keys, inputs)
    totals = np.bincount(rows, minlength=row_count)
    surplus = int(np.maximum(totals - capacity, 0).sum())
    if surplus:
        crowded = np.flatnonzero(totals[rows] > capacity)
        shuffled = crowded[np.lexsort((rng.random(crowded.size), rows[crowded]))]
        kept = np.ones(rows.size, dtype=bool)
        kept[shuffled[rank_in_run(rows[shuffled]) >= capacity]] = False
        rows, ids = rows[kept], ids[kept]
    packed = np.zeros((row_count, capacity), dtype=np.int32)
    packed[rows, rank_in_run(rows)] = ids
    return packed, np.minimum(totals, capacity).astype(np.int32), surplus


def rank_in_run(rows: Ints) -> Ints:
    """0, 1, 2, ... within every run of equal `rows`."""
    if not rows.size:
        return rows
    starts = np.flatnonzero(np.r_[True, rows[1:] != rows[:-1]])
    lengths = np.diff(np.r_[starts, rows.size])
    return np.arange(rows.size) - np.repeat(starts, lengths)


def timesteps_of(events: Events, bin_seconds: float) -> Ints:
    """The timestep of every event, negative before time 0, int64[events].

    Whole nanoseconds and integer division: an event on the edge of a bin falls into the same bin everywhere.
    """
    t = np.clip(events.t_microseconds, -1, _MAX_MICROSECONDS)
    timesteps: Ints = t * 1000 // bin_nanoseconds(bin_seconds)
    return timesteps


def bin_events(events: Events, *, timesteps: int, bin_seconds: float, grid: int) -> Ints:
    """Events as ascending keys timestep * inputs + id, without repeats.

    The id is x + W*y + W*H*polarity, with W and H after the reduction to `grid` (floor(x*grid/width); 0: none). A pixel
    that fires several times in a bin appears once. Events before 0 or after the last bin are left out.
    """
    columns, lines = smaller_grid("grid", events.width, events.height, grid)
    bins = timesteps_of(events, bin_seconds)
    inside = (bins >= 0) & (bins < timesteps)
    x = events.x[inside] * columns // events.width
    y = events.y[inside] * lines // events.height
    inputs = columns * lines * events.polarities
    keys: Ints = distinct(bins[inside] * inputs + x + columns * (y + lines * events.polarity[inside]))
    return keys


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


@dataclass(frozen=True, kw_only=True)
class EventUse:
    """What became of the events of recordings, one entry a sample, int64[samples].

    read: all there are; used: those in one of the timesteps; late: those after the last one; first, last: when the
    first and the last event of the sample are, in units of `unit`, of which the timesteps cover `covered`. What is
    neither used nor late was filtered out (data.denoise_seconds, data.crop).
    """

    read: Ints
    used: Ints
    late: Ints
    first: Ints
    last: Ints
    unit: Literal["microseconds", "rows"]
    covered: int

    @classmethod
    def of(cls, samples: int, unit: Literal["microseconds", "rows"], covered: int) -> EventUse:
        """Of samples that are yet to be read."""
        read, used, late, first, last = np.zeros((5, samples), np.int64)
        return cls(read=read, used=used, late=late, first=first, last=last, unit=unit, covered=covered)

    @property
    def share(self) -> float:
        """Used of all events read."""
        return float(self.used.sum() / max(self.read.sum(), 1))

    def note(
        self, place: int, times: Ints, timesteps: Ints, count: int, *, unread: int = 0, unread_from: int = 0
    ) -> None:
        """Count the events of a recording, which are at `times` in our unit: `timesteps` are those of the events that
        filters leave, of which `count` are listed; `unread` more come later, from `unread_from` on."""
        at = [*([times.min(), times.max()] if times.size else []), *([unread_from] if unread else [])]
        self.read[place] = times.size + unread
        self.used[place] = ((timesteps >= 0) & (timesteps < count)).sum()
        self.late[place] = (timesteps >= count).sum() + unread
        self.first[place], self.last[place] = min(at, default=0), max(at, default=0)

    def shown(self, when: int) -> str:
        """A time with its unit."""
        if self.unit == "rows":
            return f"row {when:,}"
        return show_quantity(float(f"{1e-6 * when:.4g}"), "seconds")

    def ends(self) -> tuple[str, str]:
        """When the first and the last of all events are."""
        there = self.read > 0
        return self.shown(int(self.first[there].min())), self.shown(int(self.last[there].max()))


@dataclass(frozen=True, kw_only=True)
class Subset:
    """The samples that are trained on, or tested on, as a source reads or makes them.

    groups: (samples, keys, rng), where keys int64 are row * inputs + id of every spike of `samples`, ascending and
    without repeats, and rows are timesteps, one sample after the other; rng draws what a full list leaves out.
    use: what became of the events of recordings, known after the last group; None of samples that are made.
    """

    name: str
    labels: Ints
    groups: Iterable[tuple[Ints, Ints, np.random.Generator]]
    use: EventUse | None = None
