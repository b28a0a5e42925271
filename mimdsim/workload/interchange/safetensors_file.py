"""The safetensors format, read and written: eight bytes of length, a JSON header, then the values of all tensors.

Tensors are read with the package of that name, which executes nothing from a file. This module adds bounds, refuses
repeated names (the package takes the last), and reads bfloat16, which the package's numpy interface lacks.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, deserialize

from mimdsim.base.errors import DataFileError, shortened
from mimdsim.base.files import open_data, parse_json, write_atomically
from mimdsim.workload.interchange.nir_nodes import MAX_VALUES

MAX_HEADER_BYTES = 4 << 20  # assumed: a tensor takes about 100 bytes of it; the format allows 100 MB
MAX_FILE_BYTES = MAX_HEADER_BYTES + 8 * MAX_VALUES
MAX_TENSORS = 16_384
MAX_DIMENSIONS = 8
_LENGTH = struct.Struct("<Q")
# How values are stored; BF16 is the upper half of a float32. Whole numbers and booleans are ignored.
_STORED = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2"}

Array = npt.NDArray[Any]


def read_safetensors(path: Path) -> dict[str, Array]:
    """The tensors of floats in a file, float32 (float64 if stored so), in the order of their names.

    Raises DataFileError for anything that the format does not allow or that is over a bound.
    """
    with open_data(path) as file:
        _header(path, file)
        file.seek(0)
        content = file.read(MAX_FILE_BYTES + 1)
    if len(content) > MAX_FILE_BYTES:
        raise DataFileError(path, f"is over {MAX_FILE_BYTES:,} bytes long")
    try:
        tensors = deserialize(content)
    except SafetensorError as problem:
        raise DataFileError(path, f"is not safetensors, or damaged: {shortened(str(problem), 200)}") from None
    del content
    floats = sorted((each for each in tensors if each[1]["dtype"] in _STORED), key=lambda each: each[0])
    for name, about in floats:
        if len(about["shape"]) > MAX_DIMENSIONS or max(about["shape"], default=0) > MAX_VALUES:
            shape = shortened(str(about["shape"]))
            raise DataFileError(path, f"tensor '{shortened(name)}' has the shape {shape}, which no network has")
    if sum(math.prod(about["shape"]) for _, about in floats) > MAX_VALUES:
        raise DataFileError(path, f"has over {MAX_VALUES} values")
    return {name: _values(**about) for name, about in floats}


def read_notes(path: Path, missing: str = "no such file") -> dict[str, str]:
    """The notes in the header of a file; raises DataFileError for an invalid header, for notes that are not text, and
    with `missing` if there is no file."""
    with open_data(path, missing) as file:
        notes = _header(path, file).get("__metadata__", {})
    if not isinstance(notes, dict) or not all(isinstance(value, str) for value in notes.values()):
        raise DataFileError(path, "has notes (__metadata__) that are not text", byte_offset=_LENGTH.size)
    return notes


def write_safetensors(path: Path, arrays: Mapping[str, Array], notes: Mapping[str, str] | None = None) -> None:
    """Write float32 tensors and notes atomically; equal arrays and notes give equal bytes."""
    about: dict[str, Any] = {"__metadata__": dict(sorted(notes.items()))} if notes else {}
    content = bytearray()
    for name in sorted(arrays):
        values = np.ascontiguousarray(arrays[name], dtype="<f4").tobytes()
        place = [len(content), len(content) + len(values)]
        about[name] = {"dtype": "F32", "shape": list(arrays[name].shape), "data_offsets": place}
        content += values
    header = json.dumps(about, separators=(",", ":")).encode()
    header += b" " * (-len(header) % 8)  # so that values are aligned
    write_atomically(path, _LENGTH.pack(len(header)) + header + bytes(content))


def _header(path: Path, file: BinaryIO) -> dict[str, Any]:
    """The parsed header, without repeated names."""
    length = file.seek(0, 2)
    file.seek(0)
    start = file.read(_LENGTH.size)
    if len(start) < _LENGTH.size:
        raise DataFileError(path, f"is {length} bytes long; a safetensors file begins with 8 bytes of length")
    (header_bytes,) = _LENGTH.unpack(start)
    if header_bytes > min(MAX_HEADER_BYTES, length - _LENGTH.size):
        limit = f"the file has {length} and at most {MAX_HEADER_BYTES} are allowed"
        raise DataFileError(path, f"says its header has {header_bytes} bytes, {limit}; not safetensors, or cut off")
    try:
        header = parse_json(file.read(header_bytes).decode())
    except (ValueError, RecursionError) as problem:
        said = shortened(str(problem), 200)
        raise DataFileError(path, f"has a header that is not JSON: {said}", byte_offset=_LENGTH.size) from None
    if not isinstance(header, dict) or len(header) > MAX_TENSORS:
        what = f"has a header that does not name at most {MAX_TENSORS} tensors"
        raise DataFileError(path, what, byte_offset=_LENGTH.size)
    return header


def _values(dtype: str, shape: list[int], data: bytes) -> Array:
    values = np.frombuffer(data, _STORED[dtype])
    if dtype == "BF16":
        values = (values.astype(np.uint32) << 16).view(np.float32)
    with np.errstate(invalid="ignore"):  # widening some NaNs raises warnings
        return values.reshape(shape).astype(np.float64 if dtype == "F64" else np.float32, copy=False)
