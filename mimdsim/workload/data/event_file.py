"""Users' own event files: plain arrays in NPZ or HDF5, described in `docs/event-format.md`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mimdsim.base.errors import DataFileError
from mimdsim.workload.data import event_columns
from mimdsim.workload.data.event_columns import (
    MAX_TIME_SECONDS,
    MICROSECONDS,
    PLACES,
    SECONDS,
    ColumnStore,
    Hdf5Store,
    NpzStore,
    SampleFile,
    check_range,
)
from mimdsim.workload.data.events import POLARITIES, Events, Ints, refused
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
        raise refused(*problems)
    if data.inputs:
        return Sensor(width=data.inputs, height=1, polarities=1, by_unit=True)
    width, height, polarities = data.sensor
    return Sensor(width=width, height=height, polarities=polarities, by_unit=False)


def _is_sensor(numbers: tuple[int, ...]) -> bool:
    limits = (MAX_PIXELS, MAX_PIXELS, POLARITIES)
    in_range = len(numbers) == 3 and all(0 < number <= limit for number, limit in zip(numbers, limits, strict=True))
    return in_range and numbers[0] * numbers[1] * numbers[2] <= MAX_UNITS


def file_of_subset(folder: Path, name: str) -> Path:
    """The one event file of `folder` named `name`; raises DataFileError if there is none, or more than one."""
    found = [folder / f"{name}{suffix}" for suffix in SUFFIXES if os.path.lexists(folder / f"{name}{suffix}")]
    if len(found) != 1:
        has = f"has {' and '.join(path.name for path in found)}" if found else f"has no {name}.npz or {name}.h5"
        raise DataFileError(folder, f"{has}; a folder holds one file called train and one called test")
    return found[0]


class EventFile(SampleFile):
    """An opened event file: labels, split (0 train, 1 test) or None, and samples.

    Raises MissingExtra for an HDF5 file without h5py.
    """

    def __init__(self, path: Path, *, sensor: Sensor, classes: int):
        if not os.path.lexists(path):
            raise DataFileError(path, f"no such file or folder; 'data.path' must name {LAYOUT}")
        if path.suffix not in SUFFIXES:
            raise DataFileError(path, f"is not {LAYOUT}")
        self._sensor, self._classes = sensor, classes
        self.split: Ints | None = None
        super().__init__(SUFFIXES[path.suffix](path))

    def samples(self, chosen: Sequence[int]) -> Iterator[Events]:
        """The events of the samples `chosen` (ascending), one in memory at once; only these are checked."""
        sensor, whole = self._sensor, self._time == MICROSECONDS
        most = round(MAX_TIME_SECONDS * 1e6) if whole else MAX_TIME_SECONDS
        bounds = {"x": sensor.width, "unit": sensor.width, "y": sensor.height, "p": sensor.polarities}
        for sample, first, (time, *where) in self._pieces([self._time, *self._places], chosen):
            check_range(self.path, self._time, time, most, first=first, sample=sample)
            columns: dict[str, Any] = {name: np.zeros(time.size, np.int64) for name in ("x", "y", "polarity")}
            for name, values in zip(self._places, where, strict=True):
                check_range(self.path, name, values, bounds[name] - 1, first=first, sample=sample)
                columns[{"unit": "x", "p": "polarity"}.get(name, name)] = values.astype(np.int64)
            yield Events(
                **columns,
                t_microseconds=time.astype(np.int64) if whole else np.rint(time * 1e6).astype(np.int64),
                width=sensor.width,
                height=sensor.height,
                polarities=sensor.polarities,
            )

    def _open(self) -> None:
        columns = self._columns
        given = [name for name in (MICROSECONDS, SECONDS) if name in columns]
        if len(given) != 1:
            reason = f"has {' and '.join(given) or 'no times'}; give either '{MICROSECONDS}' or '{SECONDS}'"
            raise DataFileError(self.path, reason)
        self._time = given[0]
        self._places = self._place_columns()
        self._need(("offsets", "labels"), "docs/event-format.md says what is needed")
        self._check_lengths("labels", "offsets", "split")
        events = columns[self._time].length
        for name in self._places:
            if columns[name].length != events:
                reason = f"'{name}' has {columns[name].length} entries, '{self._time}' has {events}"
                raise DataFileError(self.path, reason)
        if not 0 < events <= event_columns.MAX_EVENTS:
            reason = f"'{self._time}' has {events} entries, not 1 to {event_columns.MAX_EVENTS} events"
            raise DataFileError(self.path, reason)
        self._need_whole_numbers(("offsets", "labels", "split", MICROSECONDS, *self._places))
        self._read_offsets("offsets", entries=events, most=event_columns.MAX_SAMPLE_EVENTS, of="event")
        self._read_labels("labels", self._classes)
        if "split" in columns:
            self.split = self._whole("split")
            check_range(self.path, "split", self.split, 1)
            for number, what in enumerate(("training", "test")):
                if not (self.split == number).any():
                    reason = f"'split' has no {number}, so there is no {what} sample; leave it out or correct it"
                    raise DataFileError(self.path, reason)

    def _place_columns(self) -> tuple[str, ...]:
        columns, by_unit = self._columns, self._sensor.by_unit
        wanted = ("unit",) if by_unit else ("x", "y", *(["p"] if "p" in columns else []))
        said = (
            "'data.inputs', so its events need 'unit'" if by_unit else "'data.sensor', so its events need 'x' and 'y'"
        )
        for name in wanted:
            if name not in columns:
                raise DataFileError(self.path, f"has no array '{name}'; the description gives {said}")
        over = sorted(columns.keys() & set(PLACES) - set(wanted))
        if over:
            reason = f"has an array '{over[0]}' too; the description gives {said} and nothing else"
            raise DataFileError(self.path, reason)
        return wanted
