"""Samples that somebody has in memory, as an event file and a workload of it: recordings with labels, as tonic's data
sets and lists of structured arrays have them, arrays of spikes, batches of a PyTorch DataLoader, and CSV of events."""

from __future__ import annotations

import csv
import io
import itertools
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from mimdsim.base.errors import DataFileError, DescriptionError, shortened
from mimdsim.base.files import folder_to_make, read_bounded_text, write_atomically
from mimdsim.base.npz_reader import npz_bytes
from mimdsim.base.schema import toml_text
from mimdsim.workload.data.event_file import EventFile, sensor_of
from mimdsim.workload.description.workload import Workload, load_workload

Ints = npt.NDArray[np.int64]
NAMES = {  # of columns, as data sets and programs call them
    "t": ("t", "ts", "time", "timestamp"),
    "x": ("x",),
    "y": ("y",),
    "p": ("p", "pol", "polarity"),
    "unit": ("unit", "units", "channel"),
}
MICROSECONDS = {"us": 1.0, "ms": 1e3, "s": 1e6}  # of a unit of time
DENSE_BIN_SECONDS = 1e-3  # of a timestep of arrays, which have no clock
SHORTEST_BIN_SECONDS, LONGEST_BIN_SECONDS = 1e-6, 1e6  # event files count microseconds, up to this many seconds
FILE = "events.npz"
MOST_CSV_BYTES = 1 << 30
DEFAULT_HIDDEN = 256


class Recording(NamedTuple):
    """Events of one sample, by the columns of an event file: t_microseconds, and either x, y and p or unit."""

    label: int
    columns: dict[str, Ints]


def from_events(
    train: Any,
    test: Any = None,
    *,
    sensor: tuple[int, ...] | None = None,
    inputs: int = 0,
    classes: int = 0,
    timesteps: int = 0,
    bin_seconds: float = 0.0,
    time_unit: str = "",
    time_axis: int = 0,
    out: str | Path | None = None,
    changes: Mapping[str, Any] | None = None,
) -> Workload:
    """A workload whose data are your own samples, for `run`, `check`, `place`, `compare` and `from_torch`.

    train, test: samples (events, label), in a list, a data set as tonic has them, or anything else that yields them;
    without test, a fifth of train is held out. Events are a structured array or a mapping of columns t, x, y, p (or t,
    unit); or spikes of 0 and 1, dense or a sparse tensor, with time on `time_axis`, one sample each or, where the label
    is an array, a batch of samples on the first axis that is not time (a PyTorch DataLoader). Or the path of a CSV file
    with the columns sample, label, t and x, y, p or unit.

    sensor: width, height, polarities (default: the data set's `sensor_size`). inputs: number of units, for events
    without a position. classes: number of classes (default: up to the highest label). timesteps: of a sample (default:
    up to the last event of train, or those of the arrays). bin_seconds: width of a timestep (default: 1 ms). time_unit:
    "us" (default of whole numbers), "ms" or "s". time_axis: of arrays, the axis that is time. changes: keys of the made
    description, input_capacity and batch too. out: a folder for events.npz and events.toml, which all commands and
    `from_torch(workload=...)` take (default: one for this process).

    Polarities are 0 and 1, -1 and 1 or booleans. Raises DescriptionError, by sample, for what is not understood.

        >>> rows = [{"t": [10, 900, 2100], "unit": [3, 1, 3]}, {"t": [500], "unit": [0]}]  # microseconds
        >>> mimdsim.from_events([(rows[0], 0), (rows[1], 1)] * 8, inputs=4).data.timesteps
        3
    """
    if time_unit and time_unit not in MICROSECONDS:
        raise _refused(f"time_unit '{shortened(time_unit)}' is none of {', '.join(MICROSECONDS)}")
    sensor = sensor or getattr(train, "sensor_size", None)  # data sets of tonic say it
    sensor = None if sensor is None else _sides(sensor)
    if bin_seconds and not SHORTEST_BIN_SECONDS <= bin_seconds <= LONGEST_BIN_SECONDS:
        most = f"{SHORTEST_BIN_SECONDS:g} to {LONGEST_BIN_SECONDS:g} s"
        raise _refused(f"bin_seconds {bin_seconds} is no width of a timestep: give {most}")
    reading = _Reading(time_unit, time_axis, polarities=sensor[-1] if sensor is not None else 0)
    subsets = [[*reading.recordings(part)] for part in (train, test) if part is not None]
    if not subsets[0]:
        raise _refused("there are no samples to train on")
    if reading.shape is not None:
        sensor, inputs, timesteps = None, inputs or reading.shape[1], timesteps or reading.shape[0]
    if sensor is None and not inputs:
        raise _refused("say what recorded: sensor=(width, height, polarities), or inputs= for units without a position")
    bin_seconds = bin_seconds or DENSE_BIN_SECONDS
    every = [*itertools.chain.from_iterable(subsets)]
    last = max(int(each.columns["t_microseconds"].max(initial=0)) for each in subsets[0])
    timesteps = timesteps or max(1, int(last // (bin_seconds * 1e6)) + 1)
    classes = classes or max(each.label for each in every) + 1
    data: dict[str, Any] = {"source": "events", "path": FILE, "classes": classes, "timesteps": timesteps}
    data |= {"sensor": list(sensor)} if sensor is not None else {"inputs": inputs}
    data |= {"bin_seconds": bin_seconds, "input_capacity": _capacity(every, bin_seconds)}
    width = math.prod(sensor) if sensor is not None else inputs
    title = f"{len(every):,} recordings of one's own: {width}-{DEFAULT_HIDDEN}-{classes}"
    network = {"activity": 0.1, "output_capacity": classes}
    path = write_own(out, data, _event_file(subsets), title, network, len(subsets[0]))
    made = load_workload(path, dict(changes or {}))
    described = load_workload(path).data
    with EventFile(path.with_name(FILE), sensor=sensor_of(described), classes=described.classes) as file:
        for _ in file.samples(range(file.labels.size)):  # refuses what lies outside of sensor, inputs and classes
            pass
    return made


def write_own(
    out: str | Path | None, data: dict[str, Any], content: bytes, title: str, network: dict[str, Any], samples: int
) -> Path:
    """The description of a workload of `data`, now in a folder with the file that this names; samples: to train on."""
    maker = f"from_{data['source']}"
    path: Path = folder_to_make(out, maker.replace("_", "-")) / data["path"]
    write_atomically(path, content)
    table = {
        "title": title,
        "seed": 1,
        "data": data,
        "network": {"hidden": [DEFAULT_HIDDEN], **network, "reset_gradient": "mask"},
        "training": {"batch": min(48, samples), "epochs": 10, "learning_rate": 0.001},
    }
    path = path.with_suffix(".toml")
    write_atomically(path, toml_text(table, comment=f"Made by mimdsim.{maker}; edit freely."))
    return path


def _sides(sensor: Any) -> tuple[int, ...]:
    try:
        width, height, polarities = (int(number) for number in sensor)
    except (TypeError, ValueError, OverflowError):
        raise _refused(f"sensor is {shortened(repr(sensor))}; give (width, height, polarities)") from None
    return width, height, polarities


def _refused(problem: str) -> DescriptionError:
    return DescriptionError("from_events", [problem])


@dataclass
class _Reading:
    """How samples are read; polarities: of the sensor, 0 without one; shape: timesteps and inputs of the first array of
    spikes."""

    time_unit: str
    time_axis: int
    polarities: int
    shape: tuple[int, int] | None = None

    def recordings(self, samples: Any) -> Iterator[Recording]:
        if isinstance(samples, (str, os.PathLike)):
            yield from self._of_csv(Path(samples))
            return
        for where, events, labels in labelled(samples, "events", _refused):
            if (columns := _columns(events)) is not None:
                if labels.ndim:
                    raise _refused(f"{where}: columns of events have one label, here are {labels.size}")
                yield self._of_columns(columns, int(labels), where)
            else:
                yield from self._of_spikes(events, labels, where)

    def _of_columns(self, columns: Mapping[str, Any], label: int, where: str) -> Recording:
        """One sample of columns."""
        lowered = {str(name).lower(): values for name, values in columns.items()}
        found = {ours: next((lowered[one] for one in names if one in lowered), None) for ours, names in NAMES.items()}
        wanted = ("x", "y", "p") if self.polarities else ("unit",)
        if not self.polarities and found["unit"] is None:
            found["unit"] = found["x"]  # units as tonic's SHD has them
        if found["t"] is None or found[wanted[0]] is None:
            raise _refused(f"{where} has columns {', '.join(columns) or 'of no name'}; t and {wanted[0]} are needed")
        t = np.asarray(found["t"])
        made = {"t_microseconds": self._microseconds(t, where)}
        for name in wanted:
            values = np.zeros(t.shape, np.int64) if found[name] is None else np.asarray(found[name])
            if name == "p":
                made[name] = _polarity(values, self.polarities, where)
            else:
                made[name] = _whole(values, f"{where}, column '{name}'")
            if made[name].shape != t.shape:
                raise _refused(f"{where}: column '{name}' has {made[name].size} entries, t has {t.size}")
        return Recording(label_of(label, where, _refused), made)

    def _microseconds(self, t: npt.NDArray[Any], where: str) -> Ints:
        if t.ndim != 1 or t.dtype.kind not in "iuf":
            raise _refused(f"{where}: t is {t.dtype}{list(t.shape)}, not a column of numbers")
        if t.dtype.kind == "f" and t.size and not self.time_unit:
            raise _refused(f"{where}: times are {t.dtype}, whose unit nothing says; give time_unit='s', 'ms' or 'us'")
        # half-precision times would overflow in microseconds
        scaled = t.astype(np.float64) * MICROSECONDS[self.time_unit or "us"]
        if not np.isfinite(scaled).all() or scaled.min(initial=0) < 0 or scaled.max(initial=0) > 2**52:
            raise _refused(f"{where}: times must be finite, count from 0 and stay below 2^52 us")
        return np.rint(scaled).astype(np.int64)

    def _of_spikes(self, events: Any, labels: npt.NDArray[Any], where: str) -> Iterator[Recording]:
        """A sample, or a batch of them, as an array or a sparse tensor of 0 and 1."""
        shape, entries = _entries(events, where)
        batched = bool(labels.ndim)
        if len(shape) < 2 + batched or not -len(shape) <= self.time_axis < len(shape):
            raise _refused(f"{where}: spikes have the shape {list(shape)}; time and inputs are needed")
        axes = [*range(len(shape))]
        time = axes.pop(self.time_axis)
        if not batched:  # a batch of one
            shape, entries = (*shape, 1), np.vstack([entries, np.zeros_like(entries[:1])])
            axes.insert(0, len(shape) - 1)
        if shape[axes[0]] != labels.size:
            samples = f"{shape[axes[0]]} samples and {labels.size} labels"
            raise _refused(f"{where}: {samples}; time is on axis {self.time_axis}")
        sizes = tuple(shape[axis] for axis in axes[1:])
        self.shape = self.shape or (shape[time], int(np.prod(sizes)))
        unit = np.ravel_multi_index(tuple(entries[axes[1:]]), sizes).astype(np.int64)
        for number, label in enumerate(labels.reshape(-1)):
            mine = entries[axes[0]] == number
            columns = {"t_microseconds": entries[time][mine] * 1000, "unit": unit[mine]}
            yield Recording(label_of(int(label), where, _refused), columns)

    def _of_csv(self, path: Path) -> Iterator[Recording]:
        """Rows of events, samples in the order of their numbers."""
        try:
            text = read_bounded_text(path, MOST_CSV_BYTES).replace("\r\n", "\n").replace("\r", "\n")
        except (OSError, UnicodeDecodeError) as problem:
            raise DataFileError(path, f"cannot be read as text: {problem}") from None
        except ValueError as problem:
            raise DataFileError(path, f"{problem}; write an NPZ file (docs/event-format.md)") from None
        first, _, rest = text.partition("\n")
        header = [name.strip().lower() for name in next(csv.reader([first]), [])]
        for name in ("sample", "label"):
            if name not in header:
                raise DataFileError(path, f"has no column '{name}'; columns are sample, label, t and x, y, p or unit")
        if not rest.strip():
            return
        try:
            rows = np.loadtxt(io.StringIO(rest), delimiter=",", ndmin=2, dtype=np.float64)
        except ValueError as problem:
            raise DataFileError(path, f"events: {problem} (rows are counted below the header)") from None
        if rows.shape[1] != len(header):
            raise DataFileError(path, f"has {len(header)} columns in its header and {rows.shape[1]} below")
        table = dict(zip(header, rows.T, strict=True))
        sample, label = (_whole(table[name], f"{path}, column '{name}'") for name in ("sample", "label"))
        times = next((name for name in NAMES["t"] if name in table), None)
        if times is not None and not self.time_unit and (table[times] == np.rint(table[times])).all():
            with np.errstate(invalid="ignore"):  # what is too large becomes negative, and is refused as that
                table[times] = table[times].astype(np.int64)  # whole numbers are microseconds
        for number in np.unique(sample):
            mine = sample == number
            if len(set(label[mine].tolist())) > 1:
                raise DataFileError(path, f"sample {number} has more than one label")
            columns = {name: values[mine] for name, values in table.items() if name not in ("sample", "label")}
            yield self._of_columns(columns, int(label[mine][0]), f"{path}, sample {number}")


def labelled(
    samples: Any, what: str, refused: Callable[[str], DescriptionError]
) -> Iterator[tuple[str, Any, npt.NDArray[Any]]]:
    """(where it is, what is labelled, its label or, of a batch, labels) of a data set with a length and an index, which
    need not end a loop, or of anything that can be iterated; raises `refused` for what holds no such pairs."""
    items = samples
    if hasattr(samples, "__getitem__") and hasattr(samples, "__len__"):
        items = (samples[at] for at in range(len(samples)))
    if not isinstance(items, Iterable):
        raise refused(f"samples are {type(samples).__name__}, which holds no pairs of {what} and a label")
    for number, item in enumerate(items):
        where = f"sample {number}"
        try:
            given, label = item
            labels = np.asarray(label)
        except (TypeError, ValueError):
            raise refused(f"{where} is {type(item).__name__}, not a pair of {what} and a label") from None
        if labels.ndim > 1 or labels.dtype.kind not in "iub":
            raise refused(f"{where}: its label is {shortened(repr(label))}; whole numbers from 0 are needed")
        yield where, given, labels


def _columns(events: Any) -> Mapping[str, Any] | None:
    """Events by the name of their column; None where they are an array of spikes."""
    if isinstance(events, Mapping):
        return events
    names = getattr(getattr(events, "dtype", None), "names", None)
    return None if names is None else {name: events[name] for name in names}


def _entries(events: Any, where: str) -> tuple[tuple[int, ...], Ints]:
    """(shape, int64[axes, spikes]) of an array or sparse tensor of 0 and 1."""
    if getattr(events, "is_sparse", False):
        whole = events.coalesce()
        values, found = np.asarray(whole.values()), np.asarray(whole.indices())
        shape, found = tuple(int(size) for size in whole.shape), found[:, values != 0]
    else:
        array = np.asarray(events)
        if array.dtype.kind not in "biuf":
            raise _refused(f"{where}: events are {type(events).__name__}, neither columns nor an array of spikes")
        shape, found, values = array.shape, np.stack(np.nonzero(array)) if array.ndim else np.zeros((0, 0)), array
    if not np.isin(values, (0, 1)).all():
        raise _refused(
            f"{where}: an array of spikes holds 0 and 1; this holds {shortened(str(values.max()))}: for numbers, "
            "mimdsim.from_values"
        )
    return shape, found.astype(np.int64)


def _whole(values: npt.NDArray[Any], where: str) -> Ints:
    if values.dtype.kind not in "biuf" or not np.isfinite(values).all() or not (values == np.rint(values)).all():
        raise _refused(f"{where}: not whole numbers")
    if values.size and not 0 <= values.min() <= values.max() < 2**31:
        raise _refused(f"{where}: numbers from {values.min()} to {values.max()}; from 0 are needed")
    return values.astype(np.int64)


def _polarity(values: npt.NDArray[Any], polarities: int, where: str) -> Ints:
    if polarities == 1 and np.unique(values).size <= 1:
        return np.zeros(values.shape, np.int64)  # whatever it is called
    if polarities == 1:
        raise _refused(f"{where}: has two polarities, and sensor says one: give sensor=(width, height, 2)")
    if not (np.isin(values, (0, 1)).all() or np.isin(values, (-1, 1)).all()):
        raise _refused(f"{where}: polarities are {shortened(str(np.unique(values)[:5]))}, not 0 and 1 or -1 and 1")
    return (values > 0).astype(np.int64)


def label_of(label: int, where: str, refused: Callable[[str], DescriptionError]) -> int:
    if not 0 <= label < 65_536:
        raise refused(f"{where}: label {label} is not from 0 to 65,535")
    return label


def _capacity(recordings: Iterable[Recording], bin_seconds: float) -> int:
    """The most inputs that fire in a timestep of any sample, so that none is dropped."""
    most = 1
    for _, columns in recordings:
        bins = columns["t_microseconds"] // max(1, round(bin_seconds * 1e6))
        inputs = np.unique([bins, *(columns[name] for name in columns if name != "t_microseconds")], axis=1)[0]
        most = max(most, int(np.unique(inputs, return_counts=True)[1].max(initial=0)))
    return most


def _event_file(subsets: list[list[Recording]]) -> bytes:
    """An event file as NPZ (docs/event-format.md)."""
    labels, columns = zip(*itertools.chain.from_iterable(subsets), strict=True)
    arrays = {name: np.concatenate([each[name] for each in columns]) for name in columns[0]}
    arrays["labels"] = np.array(labels)
    arrays["offsets"] = np.cumsum([0, *(each["t_microseconds"].size for each in columns)])
    if len(subsets) > 1:
        arrays["split"] = np.repeat([0, 1], [len(subset) for subset in subsets])
    return npz_bytes(arrays)
