"""The arrays of a plain event file of either format: what is required and what is refused."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

from mimdsim.base.errors import DataFileError

MICROSECONDS, SECONDS = "t_microseconds", "t_seconds"
PLACES = ("x", "y", "p", "unit")
NAMES = ("offsets", "labels", "split", MICROSECONDS, SECONDS, *PLACES)

MAX_SAMPLES = 1 << 20  # assumed: SHD, the largest of the published sets read here, has 8,156 in one file
MAX_SAMPLE_EVENTS = 1 << 22  # assumed: a gesture of DVS-Gesture has some 400,000; bounds the memory a sample takes
MAX_EVENTS = 1 << 30  # assumed: DVS-Gesture has about half as many
MAX_TIME_SECONDS = 1e6  # assumed: no recording is longer

Ints = npt.NDArray[np.int64]
Values = npt.NDArray[np.int64] | npt.NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Column:
    """An array of a file, not read yet: `kind` is 'i' (whole numbers or booleans) or 'f' (real numbers)."""

    kind: Literal["i", "f"]
    length: int


class ColumnStore(Protocol):
    """An opened event file: columns by name (those of NAMES that it has), and their values in pieces.

    `pieces` gives, for each of `ranges` (ascending, not overlapping), one array per name, int64 or float64, and holds
    no more than one range in memory. Raises DataFileError for what is damaged.
    """

    path: Path
    columns: dict[str, Column]

    def pieces(self, names: Sequence[str], ranges: Sequence[tuple[int, int]]) -> Iterator[list[Values]]: ...

    def close(self) -> None: ...


@dataclass(frozen=True, kw_only=True)
class Contents:
    """What an event file says about its samples: `offsets` int64[samples + 1], `labels` int64[samples], `split` too
    where there is one; `time` is the name of the time column, `places` are those of where events are.
    """

    offsets: Ints
    labels: Ints
    split: Ints | None
    time: str
    places: tuple[str, ...]


def kind_of(path: Path, name: str, dtype: np.dtype[Any]) -> Literal["i", "f"]:
    """The kind of a column with numbers of at most 8 bytes; raises DataFileError for anything else."""
    if dtype.kind in "iub" and dtype.itemsize <= 8:
        return "i"
    if dtype.kind == "f" and dtype.itemsize <= 8:
        return "f"
    raise DataFileError(path, f"'{name}' has the dtype {dtype}; give integers, booleans or floats of 2 to 8 bytes")


def plain_values(values: npt.NDArray[Any]) -> Values:
    """As int64 or float64; what int64 cannot hold becomes its largest number, which is always out of range."""
    if values.dtype.kind == "f":
        return values.astype(np.float64)
    if values.dtype.kind == "b":
        return values.view(np.uint8).astype(np.int64)  # a byte over 1 is not a boolean and must be noticed
    if values.dtype.kind == "u" and values.dtype.itemsize == 8:
        values = np.minimum(values, np.uint64(np.iinfo(np.int64).max))
    return values.astype(np.int64)


def read_contents(store: ColumnStore, *, by_unit: bool, classes: int) -> Contents:
    """Offsets, labels and split of a file, checked; raises DataFileError that names array, entry and reason."""
    path, columns = store.path, store.columns
    time = _time_column(path, columns)
    places = _place_columns(path, columns, by_unit)
    for name in ("offsets", "labels"):
        _need(path, columns, name)
    samples = columns["labels"].length
    if not 0 < samples <= MAX_SAMPLES:
        raise DataFileError(path, f"'labels' has {samples} entries, not one for each of 1 to {MAX_SAMPLES} samples")
    for name, length in (("offsets", samples + 1), ("split", samples)):
        if name in columns and columns[name].length != length:
            raise DataFileError(path, f"'{name}' has {columns[name].length} entries; {samples} samples need {length}")
    events = columns[time].length
    for name in places:
        if columns[name].length != events:
            raise DataFileError(path, f"'{name}' has {columns[name].length} entries, '{time}' has {events}")
    if not 0 < events <= MAX_EVENTS:
        raise DataFileError(path, f"'{time}' has {events} entries, not 1 to {MAX_EVENTS} events")
    for name in ("offsets", "labels", "split", MICROSECONDS, *places):
        if name in columns and columns[name].kind != "i":
            raise DataFileError(path, f"'{name}' holds real numbers; give integers")
    offsets = whole_column(store, "offsets")
    check_offsets(path, offsets, events, most=MAX_SAMPLE_EVENTS)
    labels = whole_column(store, "labels")
    check_labels(path, "labels", labels, classes)
    split = whole_column(store, "split") if "split" in columns else None
    if split is not None:
        check_range(path, "split", split, 1)
        for half, what in enumerate(("training", "test")):
            if not (split == half).any():
                raise DataFileError(
                    path, f"'split' has no {half}, so there is no {what} sample; leave it out or correct it"
                )
    return Contents(offsets=offsets, labels=labels, split=split, time=time, places=places)


def check_range(path: Path, name: str, values: Values, most: float, *, first: int = 0, sample: int = -1) -> None:
    """Raise DataFileError for the first of `values` (entries from `first` on) that is not 0 to `most`."""
    outside = ~((values >= 0) & (values <= most))  # also true for NaN
    if outside.any():
        entry = int(np.argmax(outside))
        of_sample = f" (sample {sample})" if sample >= 0 else ""
        raise DataFileError(path, f"'{name}', entry {first + entry}{of_sample}: {values[entry]} is outside 0 to {most}")


def check_labels(path: Path, name: str, labels: Values, classes: int) -> None:
    """Raise DataFileError for the first label that is not 0 to classes - 1; says so where labels count from 1."""
    try:
        check_range(path, name, labels, classes - 1)
    except DataFileError as problem:
        raise DataFileError(path, f"{problem.reason}{label_advice(labels, classes)}") from None


def label_advice(labels: Values, classes: int) -> str:
    """What to do about labels beyond the classes."""
    low, high = int(labels.min()), int(labels.max())
    if low == 1 and high == classes:
        return "; are the labels 1-based? They count classes from 0: subtract 1 from each"
    if low >= 0:
        return f"; labels reach {high}, so there are at least {high + 1} classes, counted from 0"
    return "; classes are counted from 0"


def whole_column(store: ColumnStore, name: str) -> Ints:
    """All entries of a column of whole numbers, int64."""
    (((values,)),) = list(store.pieces([name], [(0, store.columns[name].length)]))
    return values.astype(np.int64)


def check_offsets(
    path: Path, offsets: Ints, entries: int, *, most: int, name: str = "offsets", of: str = "event"
) -> None:
    """Raise DataFileError unless `offsets` begin with 0, never fall, end with `entries` and hold `most` a sample."""
    if offsets[0] != 0:
        raise DataFileError(path, f"'{name}', entry 0: {offsets[0]}, but the first sample begins at {of} 0")
    check_range(path, name, offsets, entries)
    members = np.diff(offsets)
    if (members < 0).any():
        entry = int(np.argmax(members < 0)) + 1
        raise DataFileError(path, f"'{name}', entry {entry}: {offsets[entry]} follows {offsets[entry - 1]}; not sorted")
    if offsets[-1] != entries:
        raise DataFileError(path, f"'{name}' ends at {of} {offsets[-1]}, but there are {entries} {of}s")
    if members.max() > most:
        sample = int(np.argmax(members))
        raise DataFileError(path, f"sample {sample} has {members[sample]} {of}s, over {most}")


def _time_column(path: Path, columns: dict[str, Column]) -> str:
    given = [name for name in (MICROSECONDS, SECONDS) if name in columns]
    if len(given) != 1:
        raise DataFileError(
            path, f"has {' and '.join(given) or 'no times'}; give either '{MICROSECONDS}' or '{SECONDS}'"
        )
    return given[0]


def _place_columns(path: Path, columns: dict[str, Column], by_unit: bool) -> tuple[str, ...]:
    wanted = ("unit",) if by_unit else ("x", "y", *(["p"] if "p" in columns else []))
    said = "'data.inputs', so its events need 'unit'" if by_unit else "'data.sensor', so its events need 'x' and 'y'"
    for name in wanted:
        if name not in columns:
            raise DataFileError(path, f"has no array '{name}'; the description gives {said}")
    over = sorted(columns.keys() & set(PLACES) - set(wanted))
    if over:
        raise DataFileError(path, f"has an array '{over[0]}' too; the description gives {said} and nothing else")
    return wanted


def _need(path: Path, columns: dict[str, Column], name: str) -> None:
    if name not in columns:
        there = ", ".join(f"'{known}'" for known in columns)
        raise DataFileError(path, f"has no array '{name}', only {there}; docs/event-format.md says what is needed")
