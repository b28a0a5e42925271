"""Spiking Heidelberg Digits: `shd_train.h5` and `shd_test.h5`, spikes of 700 cochlea channels.

Format: Cramer et al. 2022, "The Heidelberg spiking data sets for the systematic evaluation of spiking neural networks",
IEEE TNNLS 33:2744. `/spikes/times` (seconds) and `/spikes/units` (channel) hold one list of equal length per sample,
`/labels` one class per sample: 0 to 9 English, 10 to 19 German digits.

Files are opened in a process of their own (`shd_process.py`), because the HDF5 library can crash on a damaged one.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType

import numpy as np
import numpy.typing as npt

from mimdsim.base.errors import DataFileError, MissingExtra
from mimdsim.workload.events import Events
from mimdsim.workload.shd_process import CHANNELS, CLASSES, FRAME

__all__ = ["CHANNELS", "CLASSES", "LAYOUT", "ShdReader", "read_labels", "read_samples"]

LAYOUT = "shd_train.h5 and shd_test.h5, unpacked, as published"
FRAME_SECONDS = 60.0  # assumed: a sample takes under a millisecond to read; longer means HDF5 is lost in the file


def read_labels(path: Path) -> npt.NDArray[np.int64]:
    """The class of every sample, int64[samples]; raises DataFileError, or MissingExtra without h5py."""
    with ShdReader() as reader:
        return reader.labels(path)


def read_samples(path: Path, chosen: Iterable[int]) -> Iterator[Events]:
    """The spikes of the samples `chosen`, in that order, one in memory at once (width 700, height 1, polarity 0).

    Raises DataFileError that names data set and sample for lists of unequal length, a channel or a time out of range.
    """
    with ShdReader() as reader:
        yield from reader.samples(path, chosen)


class ShdReader:
    """The reading process, started when first needed and again after a crash; one request at a time."""

    def __init__(self, frame_seconds: float = FRAME_SECONDS):
        self._frame_seconds = frame_seconds
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> ShdReader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stop()

    def labels(self, path: Path) -> npt.NDArray[np.int64]:
        """As `read_labels`."""
        ((_, content),) = list(self._answers(path, None))
        return np.frombuffer(content, dtype=np.int64)

    def samples(self, path: Path, chosen: Iterable[int]) -> Iterator[Events]:
        """As `read_samples`."""
        seconds = np.zeros(0)
        for kind, content in self._answers(path, list(chosen)):
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

    def _answers(self, path: Path, chosen: list[int] | None) -> Iterator[tuple[bytes, bytes]]:
        if importlib.util.find_spec("h5py") is None:
            raise MissingExtra("h5py", "data", "reading SHD files")
        if not path.is_file():
            raise DataFileError(path, f"no such file; 'data.path' must be a folder with {LAYOUT}")
        process = self._started()
        assert process.stdin is not None
        finished = False
        try:
            with contextlib.suppress(BrokenPipeError):  # a process that is gone is noticed when the answer is read
                process.stdin.write(json.dumps([str(path), chosen]).encode() + b"\n")
                process.stdin.flush()
            while True:
                kind, content = self._frame(path, process)
                finished = kind in b"EZ"
                if kind == b"E":
                    raise DataFileError(path, content.decode())
                if finished:
                    return
                yield kind, content
        finally:
            if not finished:  # a crash, or a caller who wants no more: what is left in the pipe is nobody's
                self._stop()

    def _frame(self, path: Path, process: subprocess.Popen[bytes]) -> tuple[bytes, bytes]:
        assert process.stdout is not None
        watch = threading.Timer(self._frame_seconds, process.kill)
        watch.start()
        try:
            header = process.stdout.read(FRAME.size)
            if len(header) == FRAME.size:
                kind, length = FRAME.unpack(header)
                content = process.stdout.read(length)
                if len(content) == length:
                    return kind, content
        finally:
            watch.cancel()
        status = f"status {process.wait()}"
        raise DataFileError(path, f"is damaged: the HDF5 library crashed or hung on it ({status}); fetch it again")

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            root = str(Path(__file__).resolve().parents[2])
            environment = {
                **os.environ,
                "PYTHONPATH": os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")])),
                "HDF5_PLUGIN_PRELOAD": "::",  # HDF5's switch for "load no plug-ins"
                "OPENBLAS_NUM_THREADS": "1",  # or numpy alone could use up the process's memory limit
            }
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "mimdsim.workload.shd_process"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=environment,
            )
        return self._process

    def _stop(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        with process:  # closes the pipes and waits
            pass
