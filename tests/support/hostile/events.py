"""Recordings of events (NPZ, HDF5, AEDAT, N-MNIST, SHD): bytes damaged, or arrays edited by what wrote them.

An edited event file says what numpy or h5py reads of it; damaged bytes of formats without sums say nothing that another
reading could tell, so there only time, memory and the reader's own checks count.
"""

from __future__ import annotations

import itertools
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from event_file_writing import pixel_arrays, write_events

from hostile.limits import one_process
from hostile.recordings import PIXELS, fields_of, mutated, subject
from hostile.running import Format
from hostile.tensors import edit_hdf5
from hostile.trees import pick
from mimdsim.workload.data.event_file import EventFile

WHERE = ("x", "y", "p", "t_microseconds")


class Damaged(Format):
    """Bytes of a recording changed; it is read, or refused."""

    def __init__(self, folder: Path):
        super().__init__(folder)
        self._good, self._target, self._load = self.opened.enter_context(subject(self.name, folder))
        self._content = self._good.read_bytes()
        self._fields = fields_of(self.name, self._content)

    def good(self) -> Path:
        self._good.write_bytes(self._content)  # some are read under their one name only
        return self._good

    def mutant(self, number: int, rng: np.random.Generator) -> Path:
        by_number = self._target.suffix == ".h5"  # HDF5 may hold a damaged file open under its old name
        path = self._target.with_stem(f"{self._target.stem}{number}") if by_number else self._target
        path.write_bytes(mutated(self.name, self._content, self._fields, rng))
        return path

    def read(self, path: Path) -> Any:
        self._load(path)
        return []


class Edited(Format):
    """An event file of which arrays were edited."""

    suffix = ""

    def __init__(self, folder: Path):
        super().__init__(folder)
        self.opened.enter_context(one_process())

    def good(self) -> Path:
        path = self.folder / f"good{self.suffix}"
        return path if path.exists() else write_events(path, pixel_arrays())

    def mutant(self, number: int, rng: np.random.Generator) -> Path:
        path = self.folder / f"mutant{number}{self.suffix}"
        if self.suffix == ".h5":
            path.write_bytes(self.good().read_bytes())
            edit_hdf5(path, rng)
            return path
        arrays = pixel_arrays()
        for _ in range(int(rng.integers(1, 3))):
            name = pick(list(arrays), rng)
            values = arrays[name]
            change = int(rng.integers(0, 6))
            if change <= 1 and values.dtype.kind in "fiub" and values.size:
                with np.errstate(invalid="ignore"):
                    arrays[name] = values.astype(pick((np.int64, np.float64, np.uint8, ">i4", "<f2"), rng))
                arrays[name].flat[int(rng.integers(0, values.size))] = pick((0, 1, 2, 3, 5, 6, 100), rng)
            elif change == 2:
                arrays[name] = pick((values[:-1], values[::-1], values[None], np.repeat(values, 2), values[:0]), rng)
            elif change == 3:
                arrays[name] = pick((np.float64([np.nan]), np.array(["a"]), np.array([{}]), np.int64([2**62])), rng)
            elif change == 4:
                del arrays[name]
                break
            else:
                arrays[name], arrays["x"] = arrays["x"], values
        (np.savez_compressed if rng.integers(0, 2) else np.savez)(path, **arrays)
        return path

    def read(self, path: Path) -> Any:
        with EventFile(path, sensor=PIXELS, classes=2) as file:
            samples = [
                [events.x, events.y, events.polarity, events.t_microseconds]
                for events in file.samples(range(file.labels.size))
            ]
            return [[[column.astype(np.int64) for column in columns] for columns in samples], file.labels]

    def says(self, path: Path) -> Any:
        if self.suffix == ".h5":
            import h5py

            with h5py.File(path, "r") as file:
                arrays = {name: file[name][()] for name in file}
        else:
            try:
                with np.load(path, allow_pickle=False) as stored:
                    arrays = {name: stored[name] for name in stored.files}
            except (ValueError, zipfile.BadZipFile):
                return None
        columns = [np.asarray(arrays[name]).astype(np.int64) if name in arrays else None for name in WHERE]
        offsets = np.asarray(arrays["offsets"]).astype(np.int64)
        zeros = np.zeros(int(offsets[-1]), np.int64)
        given = [zeros if column is None else column for column in columns]
        pairs = itertools.pairwise(offsets)
        return [[[column[a:b] for column in given] for a, b in pairs], np.asarray(arrays["labels"]).astype(np.int64)]


def _made(base: type[Format], name: str, **more: str) -> type[Format]:
    return type(name.title().replace(" ", ""), (base,), {"name": name, **more})


FORMS = (
    *("nmnist", "shd", "aedat", "csv", "trials", "npz", "npz packed", "npz members", "hdf5", "hdf5 packed"),
    *("braille", "braille packed", "braille members"),
)
EVENTS = (
    *(_made(Damaged, name) for name in FORMS),
    _made(Edited, "events npz", suffix=".npz"),
    _made(Edited, "events hdf5", suffix=".h5"),
)
