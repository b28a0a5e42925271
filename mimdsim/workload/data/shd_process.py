"""The process that opens SHD and SSC files: started by `shd.py`, fed requests on standard input, answering in frames.

Requests and frames are those of `hdf5_serving.py`. Wanted is [classes, sample numbers], or null instead of the numbers
for labels only; frames are L labels, T seconds and U channels of one sample.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from mimdsim.base.errors import DataFileError
from mimdsim.workload.data.files.event_columns import label_advice
from mimdsim.workload.data.files.hdf5_serving import Frames, plain_dataset, serve

CHANNELS = 700
MAX_SAMPLES = 1 << 20  # assumed: the published files have at most 75,466
MAX_SAMPLE_SECONDS = 60.0  # assumed: the published samples end before 1.4 s
EXPECTED = "/labels, /spikes/times, /spikes/units"


def read(path: Path, wanted: tuple[int, list[int] | None]) -> Frames:
    """Frames: the labels, then seconds (float64) and channels (int64) of every chosen sample."""
    import h5py

    classes, chosen = wanted

    with h5py.File(path, "r") as file:
        labels = _labels(path, file, classes)
        yield b"L", labels.tobytes()
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
            yield b"T", seconds.tobytes()
            yield b"U", channels.astype(np.int64).tobytes()


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


if __name__ == "__main__":
    serve(sys.stdin.buffer, sys.stdout.buffer, read)
