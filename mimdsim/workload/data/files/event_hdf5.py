"""Event files as HDF5, read through a separate process because the HDF5 library can crash on a damaged file."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from mimdsim.base.errors import DataFileError
from mimdsim.workload.data.files.event_columns import Column, Values
from mimdsim.workload.data.files.hdf5_reading import FRAME_SECONDS, Hdf5Process

_MODULE, _PURPOSE = "mimdsim.workload.data.files.event_hdf5_process", "reading event files in HDF5"


class Hdf5Store:
    """An opened HDF5 file (a `ColumnStore`); `process` may be one that has read other files."""

    def __init__(self, path: Path, process: Hdf5Process | None = None):
        self.path = path
        self._given = process
        self._process = process or reading_process()
        try:
            ((_, content),) = self._answers(None)
            self.columns = {
                name: Column(kind=kind, length=length) for name, (kind, length) in json.loads(content).items()
            }
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End the process, unless it was given."""
        if self._given is None:
            self._process.stop()

    def pieces(self, names: Sequence[str], ranges: Sequence[tuple[int, int]]) -> Iterator[list[Values]]:
        """As `ColumnStore`."""
        values: list[Values] = []
        lengths = iter([stop - first for first, stop in ranges])
        for kind, content in self._answers([list(names), [list(piece) for piece in ranges]]):
            values.append(np.frombuffer(content, np.float64) if kind == b"F" else np.frombuffer(content, np.int64))
            if len(values) == len(names):
                wanted = next(lengths)
                for name, column in zip(names, values, strict=True):
                    if column.size != wanted:  # the file was changed between two requests
                        raise DataFileError(self.path, f"'{name}' gave {column.size} entries for {wanted}")
                yield values
                values = []

    def _answers(self, wanted: object) -> Iterator[tuple[bytes, bytes]]:
        return self._process.answers(self.path, wanted, missing="no such file")


def reading_process(frame_seconds: float = FRAME_SECONDS) -> Hdf5Process:
    """A process that can read any number of event files, one after the other."""
    return Hdf5Process(_MODULE, _PURPOSE, frame_seconds)
