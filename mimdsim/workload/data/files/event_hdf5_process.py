"""The process that opens event files in HDF5: started by `event_hdf5.py`, answering in frames.

Requests and frames are those of `hdf5_serving.py`. Wanted is null, for one frame J with {name: [kind, length]} as JSON;
or [names, ranges], for a frame of every name and range: I int64 or F float64.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from mimdsim.base.errors import DataFileError
from mimdsim.workload.data.files.event_columns import MAX_EVENTS, NAMES, kind_of, plain_values
from mimdsim.workload.data.files.hdf5_serving import Frames, plain_dataset, serve


def read(path: Path, wanted: Any) -> Frames:
    """The frames of one request."""
    import h5py

    with h5py.File(path, "r") as file:
        if wanted is None:
            columns = {name: _column(path, file, name) for name in NAMES if name in file.keys()}  # noqa: SIM118
            about = {name: (kind_of(path, name, found.dtype), found.shape[0]) for name, found in columns.items()}
            yield b"J", json.dumps(about).encode()
            return
        names, ranges = wanted
        columns = {name: _column(path, file, name) for name in names}
        for first, stop in ranges:
            for found in columns.values():
                values = plain_values(np.asarray(found[first:stop]))
                yield (b"F" if values.dtype == np.float64 else b"I"), values.tobytes()


def _column(path: Path, file: Any, name: str) -> Any:
    found = plain_dataset(path, file, name, expected=", ".join(f"/{known}" for known in NAMES))
    if len(found.shape) != 1:
        raise DataFileError(path, f"/{name} has the shape {list(found.shape)}; give one dimension")
    if found.shape[0] > MAX_EVENTS:
        raise DataFileError(path, f"/{name} has {found.shape[0]} entries, over {MAX_EVENTS}")
    return found


if __name__ == "__main__":
    serve(sys.stdin.buffer, sys.stdout.buffer, read)
