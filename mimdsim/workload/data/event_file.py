"""Users' own event files: plain arrays in NPZ or HDF5, described in `docs/event-format.md`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import numpy as np

from mimdsim.base.errors import DataFileError, DescriptionError
from mimdsim.workload.data.events import POLARITIES, Events
from mimdsim.workload.data.files.event_columns import (
    MAX_TIME_SECONDS,
    MICROSECONDS,
    ColumnStore,
    Values,
    check_range,
    read_contents,
)
from mimdsim.workload.data.files.event_hdf5 import Hdf5Store
from mimdsim.workload.data.files.event_npz import NpzStore
from mimdsim.workload.description.sections import Data

SUFFIXES: dict[str, Callable[[Path], ColumnStore]] = {".npz": NpzStore, ".h5": Hdf5Store, ".hdf5": Hdf5Store}
LAYOUT = "an event file (.npz, .h5 or .hdf5), or a folder with two called train and test (docs/event-format.md)"
MAX_PIXELS = 4096  # assumed: a side of a sensor; the largest event cameras have 1280
MAX_UNITS = 1 << 24  # the most neurons of a layer
MAX_CLASSES = 1 << 16  # assumed


@dataclass(frozen=True, kw_only=True)
class Sensor:
    """What events come from: pixels with one or two polarities, or (`by_unit`) a row of numbered units."""

    width: int
    height: int
    polarities: int
    by_unit: bool

    @property
    def inputs(self) -> int:
        """The number of inputs, before any crop or reduction."""
        return self.width * self.height * self.polarities


def sensor_of(data: Data) -> Sensor:
    """The sensor a description gives: 'data.sensor' or 'data.inputs'; raises DescriptionError unless one fits."""
    problems = []
    if bool(data.sensor) == bool(data.inputs):
        problems.append(
            "source 'events' needs 'data.sensor' = [width, height, polarities] or 'data.inputs' = number of units"
        )
    if not 0 < data.classes <= MAX_CLASSES:
        problems.append(f"'data.classes' is {data.classes}; source 'events' needs 1 to {MAX_CLASSES}")
    if data.sensor and not _is_sensor(data.sensor):
        problems.append(
            f"'data.sensor' is {list(data.sensor)}; give [width, height, polarities], "
            f"1 to {MAX_PIXELS} pixels a side and 1 or {POLARITIES} polarities, together at most {MAX_UNITS}"
        )
    if problems:
        raise DescriptionError("workload data", problems)
    if data.inputs:
        return Sensor(width=data.inputs, height=1, polarities=1, by_unit=True)
    width, height, polarities = data.sensor
    return Sensor(width=width, height=height, polarities=polarities, by_unit=False)


def _is_sensor(numbers: tuple[int, ...]) -> bool:
    limits = (MAX_PIXELS, MAX_PIXELS, POLARITIES)
    in_range = len(numbers) == 3 and all(0 < number <= limit for number, limit in zip(numbers, limits, strict=True))
    return in_range and numbers[0] * numbers[1] * numbers[2] <= MAX_UNITS


def half(folder: Path, name: str) -> Path:
    """The one event file of `folder` named `name`; raises DataFileError if there is none, or more than one."""
    found = [folder / f"{name}{suffix}" for suffix in SUFFIXES if os.path.lexists(folder / f"{name}{suffix}")]
    if len(found) != 1:
        has = f"has {' and '.join(path.name for path in found)}" if found else f"has no {name}.npz or {name}.h5"
        raise DataFileError(folder, f"{has}; a folder holds one file called train and one called test")
    return found[0]


class EventFile:
    """An opened event file: labels int64[samples], split (0 train, 1 test) or None, and samples one by one.

    Raises DataFileError with array, entry and reason for a file that is damaged or breaks a rule of the format,
    MissingExtra for an HDF5 file without h5py. Use it as a context manager.
    """

    def __init__(self, path: Path, *, sensor: Sensor, classes: int):
        if not os.path.lexists(path):
            raise DataFileError(path, f"no such file or folder; 'data.path' must name {LAYOUT}")
        if path.suffix not in SUFFIXES:
            raise DataFileError(path, f"is not {LAYOUT}")
        self.path = path
        self._sensor = sensor
        self._store = store = SUFFIXES[path.suffix](path)
        try:
            self._contents = read_contents(store, by_unit=sensor.by_unit, classes=classes)
        except BaseException:
            store.close()
            raise
        self.labels, self.split = self._contents.labels, self._contents.split

    def __enter__(self) -> EventFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._store.close()

    def samples(self, chosen: Sequence[int]) -> Iterator[Events]:
        """The events of the samples `chosen` (ascending), one in memory at once; only these are checked."""
        contents = self._contents
        ranges = [(int(contents.offsets[sample]), int(contents.offsets[sample + 1])) for sample in chosen]
        pieces = self._store.pieces([contents.time, *contents.places], ranges)
        # Not strict: exhausting the pieces lets an archive verify its checksums.
        for place, (time, *where) in enumerate(pieces):
            yield self._events(chosen[place], ranges[place][0], time, where)

    def _events(self, sample: int, first: int, time: Values, where: list[Values]) -> Events:
        contents, sensor = self._contents, self._sensor
        whole = contents.time == MICROSECONDS
        most = round(MAX_TIME_SECONDS * 1e6) if whole else MAX_TIME_SECONDS
        check_range(self.path, contents.time, time, most, first=first, sample=sample)
        t = time.astype(np.int64) if whole else np.rint(time * 1e6).astype(np.int64)
        columns = {name: np.zeros(t.size, dtype=np.int64) for name in ("x", "y", "p")}
        bounds = {"x": sensor.width, "unit": sensor.width, "y": sensor.height, "p": sensor.polarities}
        for name, values in zip(contents.places, where, strict=True):
            check_range(self.path, name, values, bounds[name] - 1, first=first, sample=sample)
            columns["x" if name == "unit" else name] = values.astype(np.int64)
        return Events(
            x=columns["x"],
            y=columns["y"],
            polarity=columns["p"],
            t_microseconds=t,
            width=sensor.width,
            height=sensor.height,
            polarities=sensor.polarities,
        )
