"""Spiking Heidelberg Digits and Spiking Speech Commands: HDF5 files of spikes of 700 cochlea channels.

Format: Cramer et al. 2022, "The Heidelberg spiking data sets for the systematic evaluation of spiking neural networks",
IEEE TNNLS 33:2744. `/spikes/times` (seconds) and `/spikes/units` (channel) hold one list of equal length per sample,
`/labels` one class per sample: for SHD 0 to 9 English, 10 to 19 German digits; for SSC 35 words.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from mimdsim.base.errors import DataFileError
from mimdsim.workload.data.event_columns import label_advice
from mimdsim.workload.data.events import Events, Ints
from mimdsim.workload.data.hdf5 import plain_dataset, values_of

CHANNELS = 700
CLASSES = {"shd": 20, "ssc": 35}
MAX_SAMPLES = 1 << 20  # assumed: the published files have at most 75,466
MAX_SAMPLE_SECONDS = 60.0  # assumed: the published samples end before 1.4 s
EXPECTED = "/labels, /spikes/times, /spikes/units"


def layout(source: str) -> str:
    """The files of `source`, 'shd' or 'ssc'; the third one of SSC, for validation, is not read."""
    return f"{source}_train.h5 and {source}_test.h5, unpacked, as published"


def files(source: str) -> tuple[str, str]:
    """The names of what is trained on and what is tested on."""
    return f"{source}_train.h5", f"{source}_test.h5"


def read_labels(path: Path, *, source: str = "shd") -> Ints:
    """The class of every sample, int64[samples]; raises DataFileError, or MissingExtra without h5py."""
    (labels,) = _values(path, None, source)
    found: Ints = labels
    return found


def read_samples(path: Path, chosen: Iterable[int], *, source: str = "shd") -> Iterator[Events]:
    """The spikes of the samples `chosen`, in that order, one in memory at once (width 700, height 1, polarity 0).

    Raises DataFileError that names data set and sample for lists of unequal length, a channel or a time out of range.
    """
    values = _values(path, list(chosen), source)
    next(values)  # the labels
    for seconds, channels in zip(values, values, strict=True):
        t = np.rint(seconds * 1e6).astype(np.int64)
        none = np.zeros_like(channels)
        yield Events(x=channels, y=none, polarity=none, t_microseconds=t, width=CHANNELS, height=1, polarities=1)


def _values(path: Path, chosen: list[int] | None, source: str) -> Iterator[Any]:
    missing = f"no such file; 'data.path' must be a folder with {layout(source)}"
    return values_of(read, path, [CLASSES[source], chosen], purpose="reading SHD files", missing=missing)


def read(path: Path, wanted: tuple[int, list[int] | None]) -> Iterator[Any]:
    """In the process that opens the file: the labels, then seconds and channels of every chosen sample."""
    import h5py

    classes, chosen = wanted

    with h5py.File(path, "r") as file:
        labels = _labels(path, file, classes)
        yield labels
        if chosen is None:
            return
        times = _plain(path, file, "spikes/times", kinds="f", lists=True)
        units = _plain(path, file, "spikes/units", kinds="iu", lists=True)
        for name, found in (("spikes/times", times), ("spikes/units", units)):
            if found.shape != labels.shape:
                raise DataFileError(path, f"/{name} has shape {list(found.shape)}, /labels has {labels.size} samples")
        for sample in chosen:
            seconds = np.asarray(times[sample]).astype(np.float64)  # before scaling: the files' float16 ends at 65,504
            channels = np.asarray(units[sample])
            _check_sample(path, seconds, channels, sample)
            yield seconds
            yield channels.astype(np.int64)


def _check_sample(path: Path, seconds: npt.NDArray[np.float64], channels: npt.NDArray[Any], sample: int) -> None:
    if seconds.shape != channels.shape or seconds.ndim != 1:
        raise DataFileError(
            path, f"sample {sample}: /spikes/times has {seconds.size} entries, /spikes/units has {channels.size}"
        )
    late = ~((seconds >= 0) & (seconds <= MAX_SAMPLE_SECONDS))  # also true for NaN
    if late.any():
        worst = seconds[np.argmax(late)]
        raise DataFileError(
            path, f"/spikes/times, sample {sample}: {worst} s is outside 0 to {MAX_SAMPLE_SECONDS:g} seconds"
        )
    outside = (channels < 0) | (channels >= CHANNELS)
    if outside.any():
        worst = channels[np.argmax(outside)]
        raise DataFileError(path, f"/spikes/units, sample {sample}: channel {worst} is outside 0 to {CHANNELS - 1}")


def _labels(path: Path, file: Any, classes: int) -> npt.NDArray[np.int64]:
    found = _plain(path, file, "labels", kinds="iu", lists=False)
    if len(found.shape) != 1 or not 0 < found.shape[0] <= MAX_SAMPLES:
        raise DataFileError(path, f"/labels has shape {list(found.shape)}, not one entry for each of 1 or more samples")
    labels = np.asarray(found[:])
    outside = (labels < 0) | (labels >= classes)
    if outside.any():
        sample = int(np.argmax(outside))
        raise DataFileError(
            path,
            f"/labels, sample {sample}: class {labels[sample]} is outside 0 to {classes - 1}"
            f"{label_advice(labels, classes)}",
        )
    return labels.astype(np.int64)


def _plain(path: Path, file: Any, name: str, *, kinds: str, lists: bool) -> Any:
    """The data set `name`, if it is numbers (or lists of numbers) stored in this file."""
    import h5py

    found = plain_dataset(path, file, name, expected=EXPECTED)
    element = h5py.check_vlen_dtype(found.dtype)
    number = element if lists else found.dtype
    if not isinstance(number, np.dtype) or number.kind not in kinds or (element is not None) != lists:
        expected = {"f": "real numbers", "iu": "integers"}[kinds]
        raise DataFileError(path, f"/{name} does not hold {'lists of ' if lists else ''}{expected}")
    return found
