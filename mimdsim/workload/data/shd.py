"""Spiking Heidelberg Digits and Spiking Speech Commands: HDF5 files of spikes of 700 cochlea channels.

Format: Cramer et al. 2022, "The Heidelberg spiking data sets for the systematic evaluation of spiking neural networks",
IEEE TNNLS 33:2744. `/spikes/times` (seconds) and `/spikes/units` (channel) hold one list of equal length per sample,
`/labels` one class per sample: for SHD 0 to 9 English, 10 to 19 German digits; for SSC 35 words.

Files are opened in a separate process (`shd_process.py`), because the HDF5 library can crash on a damaged one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType

import numpy as np
import numpy.typing as npt

from mimdsim.workload.data.events import Events
from mimdsim.workload.data.files.hdf5_reading import FRAME_SECONDS, Hdf5Process
from mimdsim.workload.data.shd_process import CHANNELS

__all__ = ["CHANNELS", "CLASSES", "ShdReader", "layout", "read_labels", "read_samples"]

CLASSES = {"shd": 20, "ssc": 35}


def layout(source: str) -> str:
    """The files of `source`, 'shd' or 'ssc'; the third one of SSC, for validation, is not read."""
    return f"{source}_train.h5 and {source}_test.h5, unpacked, as published"


def files(source: str) -> tuple[str, str]:
    """The names of what is trained on and what is tested on."""
    return f"{source}_train.h5", f"{source}_test.h5"


def read_labels(path: Path, *, source: str = "shd") -> npt.NDArray[np.int64]:
    """The class of every sample, int64[samples]; raises DataFileError, or MissingExtra without h5py."""
    with ShdReader(source=source) as reader:
        return reader.labels(path)


def read_samples(path: Path, chosen: Iterable[int], *, source: str = "shd") -> Iterator[Events]:
    """The spikes of the samples `chosen`, in that order, one in memory at once (width 700, height 1, polarity 0).

    Raises DataFileError that names data set and sample for lists of unequal length, a channel or a time out of range.
    """
    with ShdReader(source=source) as reader:
        yield from reader.samples(path, chosen)


class ShdReader:
    """The reading process, started when first needed and again after a crash; one request at a time."""

    def __init__(self, frame_seconds: float = FRAME_SECONDS, *, source: str = "shd"):
        self._classes = CLASSES[source]
        self._missing = f"no such file; 'data.path' must be a folder with {layout(source)}"
        self._process = Hdf5Process("mimdsim.workload.data.shd_process", "reading SHD files", frame_seconds)

    def __enter__(self) -> ShdReader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._process.stop()

    def labels(self, path: Path) -> npt.NDArray[np.int64]:
        """As `read_labels`."""
        ((_, content),) = list(self._process.answers(path, [self._classes, None], missing=self._missing))
        return np.frombuffer(content, dtype=np.int64)

    def samples(self, path: Path, chosen: Iterable[int]) -> Iterator[Events]:
        """As `read_samples`."""
        seconds = np.zeros(0)
        for kind, content in self._process.answers(path, [self._classes, list(chosen)], missing=self._missing):
            if kind == b"T":
                seconds = np.frombuffer(content, dtype=np.float64)
            elif kind == b"U":
                channels = np.frombuffer(content, dtype=np.int64)
                yield Events(
                    x=channels,
                    y=np.zeros_like(channels),
                    polarity=np.zeros_like(channels),
                    t_microseconds=np.rint(seconds * 1e6).astype(np.int64),
                    width=CHANNELS,
                    height=1,
                )
