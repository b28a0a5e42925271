"""Weights of a network in a file (safetensors or NPZ): read, distinguished from pickles, checked for names and
shapes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from mimdsim.base.errors import DataFileError, suggest
from mimdsim.base.files import open_data
from mimdsim.base.npz_reader import NpzFile
from mimdsim.workload.interchange.nir_nodes import MAX_VALUES
from mimdsim.workload.interchange.safetensors_file import read_safetensors

Array = npt.NDArray[Any]

_PICKLES = (".pt", ".pth", ".pkl", ".pickle", ".ckpt", ".bin")
_ZIP, _PICKLE = b"PK\x03\x04", b"\x80"
_INSTEAD = (
    'is a pickle, which runs code when it is read; if you trust it, type  python -c "import torch; from '
    "safetensors.torch import save_file; save_file(torch.load('{name}', weights_only=True), '{stem}.safetensors')\""
)


def read_arrays(path: Path) -> dict[str, Array]:
    """The arrays of floats in a .safetensors or .npz file.

    Raises DataFileError; for pickles it says what to type instead.
    """
    with open_data(path) as file:
        start = file.read(8)
    suffix = path.suffix.lower()
    if suffix in _PICKLES or (start[:1] == _PICKLE and start[1:2] in b"\x02\x03\x04\x05" and suffix != ".safetensors"):
        raise DataFileError(path, _INSTEAD.format(name=path.name, stem=path.stem))
    if suffix == ".npz":
        return _read_npz(path)
    if suffix == ".safetensors":
        return read_safetensors(path)
    raise DataFileError(path, f"ends in '{suffix}'; weights are read from .safetensors and .npz files")


def _read_npz(path: Path) -> dict[str, Array]:
    """The arrays of floats in an NPZ file (numpy.savez, numpy.savez_compressed), float32 (float64 if stored so), in the
    order of their names.

    Raises DataFileError for files that numpy would not write, objects, damage, or sizes over a bound.
    """
    arrays: dict[str, Array] = {}
    values = 0
    with NpzFile(path) as file:
        for info in sorted(file.infos, key=lambda info: info.filename):
            name = info.filename.removesuffix(".npy")
            if name == info.filename or name in arrays:
                what = "given twice" if name in arrays else "not an array"
                raise DataFileError(path, f"member '{name[:80]}' is {what}")
            member = file.member(info)
            values += member.entries
            if max(values, *member.shape, 0) > MAX_VALUES:
                raise member.refused(f"has the shape {member.shape}; with it there are over {MAX_VALUES} values")
            arrays[name] = file.whole(member)
    floats = {name: array for name, array in arrays.items() if array.dtype.kind == "f"}
    with np.errstate(invalid="ignore"):  # widening some NaNs raises warnings
        return {
            name: array.astype(np.float64 if array.dtype.itemsize == 8 else np.float32, order="C")
            for name, array in floats.items()
        }


def check_weights(
    path: Path, arrays: Mapping[str, Array], shapes: Mapping[str, tuple[int, ...]]
) -> dict[str, npt.NDArray[np.float32]]:
    """float32 arrays for every name of `shapes`; others in the file are ignored unless they are named like weights.

    Raises DataFileError that lists everything that is missing, has another shape or is not finite.
    """
    problems = []
    for name, shape in shapes.items():
        if name not in arrays:
            problems.append(f"'{name}' {list(shape)} is missing{suggest(name, arrays)}")
        elif not _same(arrays[name].shape, shape):
            problems.append(f"'{name}' has the shape {list(arrays[name].shape)}, the network's is {list(shape)}")
        elif not np.all(np.abs(arrays[name]) <= np.finfo(np.float32).max):
            problems.append(f"'{name}' holds values that are not finite in float32")
    unused = [name for name in arrays if name not in shapes and name[:2] in ("w.", "r.", "b.")]
    problems += [f"'{name}' belongs to no layer of the network{suggest(name, shapes)}" for name in unused]
    if problems:
        raise DataFileError(path, "; ".join(problems[:20]))
    return {name: np.ascontiguousarray(arrays[name], dtype=np.float32).reshape(shape) for name, shape in shapes.items()}


def _same(given: tuple[int, ...], wanted: tuple[int, ...]) -> bool:
    """Equal, or a row [1, neurons] given as [neurons]."""
    return given == wanted or (len(wanted) == 2 and wanted[0] == 1 and given == wanted[1:])
