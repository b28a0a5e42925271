"""Event files as HDF5."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mimdsim.base.errors import DataFileError
from mimdsim.workload.data.files.event_columns import MAX_EVENTS, NAMES, Column, Values, kind_of, plain_values
from mimdsim.workload.data.files.hdf5 import plain_dataset, values_of

_PURPOSE = "reading event files in HDF5"


class Hdf5Store:
    """An HDF5 file (a `ColumnStore`)."""

    def __init__(self, path: Path):
        self.path = path
        (about,) = values_of(read, path, None, purpose=_PURPOSE)
        self.columns = {name: Column(kind=kind, length=length) for name, (kind, length) in about.items()}

    def close(self) -> None:
        """Nothing is open."""

    def pieces(self, names: Sequence[str], ranges: Sequence[tuple[int, int]]) -> Iterator[list[Values]]:
        """As `ColumnStore`."""
        columns = values_of(read, self.path, [names, ranges], purpose=_PURPOSE)
        lengths = iter(ranges)
        values: list[Values] = []
        for column in columns:
            values.append(column)
            if len(values) == len(names):
                first, stop = next(lengths)
                for name, found in zip(names, values, strict=True):
                    if found.size != stop - first:  # the file was changed between two requests
                        raise DataFileError(self.path, f"'{name}' gave {found.size} entries for {stop - first}")
                yield values
                values = []


def read(path: Path, wanted: Any) -> Iterator[Any]:
    """In the process that opens the file: {name: [kind, length]} of its columns where None is wanted; of [names,
    ranges] the values of every range and name."""
    import h5py

    with h5py.File(path, "r") as file:
        if wanted is None:
            columns = {name: _column(path, file, name) for name in NAMES if name in file.keys()}  # noqa: SIM118
            yield {name: (kind_of(path, name, found.dtype), found.shape[0]) for name, found in columns.items()}
            return
        names, ranges = wanted
        columns = {name: _column(path, file, name) for name in names}
        for first, stop in ranges:
            for found in columns.values():
                yield plain_values(np.asarray(found[first:stop]))


def _column(path: Path, file: Any, name: str) -> Any:
    found = plain_dataset(path, file, name, expected=", ".join(f"/{known}" for known in NAMES))
    if len(found.shape) != 1:
        raise DataFileError(path, f"/{name} has the shape {list(found.shape)}; give one dimension")
    if found.shape[0] > MAX_EVENTS:
        raise DataFileError(path, f"/{name} has {found.shape[0]} entries, over {MAX_EVENTS}")
    return found
