"""Weights in NPZ files (numpy.savez, numpy.savez_compressed)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from mimdsim.base.errors import DataFileError
from mimdsim.base.npz_reader import NpzFile
from mimdsim.workload.interchange.nir_nodes import MAX_VALUES

Array = npt.NDArray[Any]


def read_npz(path: Path) -> dict[str, Array]:
    """The arrays of floats in an NPZ file, float32 (float64 if stored so), in the order of their names.

    Raises DataFileError for files that numpy would not write, objects, damage, or sizes over a bound.
    """
    arrays: dict[str, Array] = {}
    seen: set[str] = set()
    values = 0
    with NpzFile(path) as file:
        for info in sorted(file.infos, key=lambda info: info.filename):
            name = info.filename.removesuffix(".npy")
            if name == info.filename or name in seen:
                raise DataFileError(
                    path, f"member '{name[:80]}' is {'given twice' if name in seen else 'not an array'}"
                )
            seen.add(name)
            member = file.member(info)
            values += member.entries
            if max(values, *member.shape, 0) > MAX_VALUES:
                raise member.refused(f"has the shape {member.shape}; with it there are over {MAX_VALUES} values")
            member.check_size()
            with file.reader(member) as reader:
                found = reader.read(0, member.entries)
                reader.finish()
            if member.dtype.kind == "f":
                kept = np.float64 if member.dtype.itemsize == 8 else np.float32
                array = found.reshape(member.shape, order="F" if member.by_column else "C")
                with np.errstate(invalid="ignore"):  # widening some NaNs raises warnings
                    arrays[name] = np.ascontiguousarray(array, dtype=kept).reshape(member.shape)
    return arrays
