"""The safetensors format, read and written: eight bytes of length, a JSON header, then the values of all tensors.

A reader of its own, not the package of that name: the format is a page long, the package's numpy side cannot read
bfloat16, and here every bound is in sight. Source: the format's description (github.com/huggingface/safetensors).
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from mimdsim.base.errors import DataFileError
from mimdsim.base.files import write_atomically
from mimdsim.workload.interchange.nir_nodes import MAX_VALUES

MAX_HEADER_BYTES = 4 << 20  # assumed: a tensor takes about 100 bytes of it; the format allows 100 MB
MAX_TENSORS = 16_384
MAX_DIMENSIONS = 8
_LENGTH = struct.Struct("<Q")
# How values are stored; BF16 is the upper half of a float32.
_STORED = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2"}
_OTHERS = {"I64": 8, "I32": 4, "I16": 2, "I8": 1, "U64": 8, "U32": 4, "U16": 2, "U8": 1, "BOOL": 1}  # passed over

Array = npt.NDArray[Any]


@dataclass(frozen=True, kw_only=True)
class _Tensor:
    name: str
    dtype: str
    shape: tuple[int, ...]
    first: int
    stop: int


def read_safetensors(path: Path) -> dict[str, Array]:
    """The tensors of floats in a file, float32 (float64 where they are kept so), in the order of their names.

    Raises DataFileError, with the byte where it can, for anything that the format does not allow or is over a bound.
    """
    try:
        with path.open("rb") as file:
            length = file.seek(0, 2)
            file.seek(0)
            tensors, start, _ = _tensors(path, file, length)
            return {tensor.name: _values(path, file, start, tensor) for tensor in tensors if tensor.dtype in _STORED}
    except OSError as problem:
        raise DataFileError(path, f"cannot be read: {problem.strerror}") from None


def read_notes(path: Path) -> dict[str, str]:
    """The notes in the header of a file; raises DataFileError as `read_safetensors` does."""
    try:
        with path.open("rb") as file:
            length = file.seek(0, 2)
            file.seek(0)
            return _tensors(path, file, length)[2]
    except OSError as problem:
        raise DataFileError(path, f"cannot be read: {problem.strerror}") from None


def write_safetensors(path: Path, arrays: Mapping[str, Array], notes: Mapping[str, str] | None = None) -> None:
    """Write float32 tensors and notes, whole or not at all; equal arrays and notes give equal bytes."""
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


def _tensors(path: Path, file: BinaryIO, length: int) -> tuple[list[_Tensor], int, dict[str, str]]:
    """(tensors by name, where values begin, notes)"""
    start = file.read(_LENGTH.size)
    if len(start) < _LENGTH.size:
        raise DataFileError(path, f"is {length} bytes long; a safetensors file begins with 8 bytes of length")
    (header_bytes,) = _LENGTH.unpack(start)
    if header_bytes > min(MAX_HEADER_BYTES, length - _LENGTH.size):
        limit = f"the file has {length} and {MAX_HEADER_BYTES} are the most"
        raise DataFileError(path, f"says its header has {header_bytes} bytes, {limit}; not safetensors, or cut off")
    text = file.read(header_bytes)
    try:
        header = json.loads(text.decode(), object_pairs_hook=_once)
    except (ValueError, RecursionError) as problem:
        raise DataFileError(path, f"has a header that is not JSON: {problem}", byte_offset=_LENGTH.size) from None
    if not isinstance(header, dict) or len(header) > MAX_TENSORS:
        raise DataFileError(path, f"has a header that does not name 1 to {MAX_TENSORS} tensors", byte_offset=8)
    notes = header.pop("__metadata__", {})
    if not isinstance(notes, dict) or not all(isinstance(value, str) for value in notes.values()):
        raise DataFileError(path, "has notes (__metadata__) that are not texts", byte_offset=8)
    tensors = [_tensor(path, name, about) for name, about in header.items()]
    _check_places(path, tensors, length - _LENGTH.size - header_bytes)
    if sum(math.prod(tensor.shape) for tensor in tensors if tensor.dtype in _STORED) > MAX_VALUES:
        raise DataFileError(path, f"has over {MAX_VALUES} values")
    return sorted(tensors, key=lambda tensor: tensor.name), _LENGTH.size + header_bytes, notes


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"'{next(name for name in names if names.count(name) > 1)[:80]}' is there twice")
    return made


def _tensor(path: Path, name: str, about: Any) -> _Tensor:
    def refused(what: str) -> DataFileError:
        return DataFileError(path, f"tensor '{name[:80]}' {what}")

    if not isinstance(about, dict) or about.keys() != {"dtype", "shape", "data_offsets"}:
        raise refused("is not described by dtype, shape and data_offsets alone")
    dtype, shape, place = about["dtype"], about["shape"], about["data_offsets"]
    width = _width(dtype)
    if width is None:
        raise refused(f"has dtype {str(dtype)[:20]!r}; known are {', '.join([*_STORED, *_OTHERS])}")
    if not _whole(shape) or len(shape) > MAX_DIMENSIONS:
        raise refused(f"has the shape {str(shape)[:80]}; at most {MAX_DIMENSIONS} whole numbers are needed")
    if not _whole(place) or len(place) != 2 or place[0] > place[1]:
        raise refused(f"lies at {str(place)[:80]}; two offsets in order are needed")
    needed = math.prod(shape) * width
    if needed != place[1] - place[0]:
        raise refused(f"needs {needed} bytes for shape {shape} of {dtype}, its offsets hold {place[1] - place[0]}")
    return _Tensor(name=name, dtype=dtype, shape=tuple(shape), first=place[0], stop=place[1])


def _width(dtype: Any) -> int | None:
    if not isinstance(dtype, str):
        return None
    return np.dtype(_STORED[dtype]).itemsize if dtype in _STORED else _OTHERS.get(dtype)


def _whole(numbers: Any) -> bool:
    return isinstance(numbers, list) and all(type(each) is int and 0 <= each < 1 << 62 for each in numbers)


def _check_places(path: Path, tensors: list[_Tensor], length: int) -> None:
    """Tensors fill the rest of the file one behind the other: none over another, no hole."""
    at = 0
    for tensor in sorted(tensors, key=lambda each: (each.first, each.stop)):
        if tensor.first != at:
            what = "overlaps the tensor before it" if tensor.first < at else "leaves a hole before it"
            raise DataFileError(path, f"tensor '{tensor.name[:80]}' begins at {tensor.first}, not {at}: it {what}")
        at = tensor.stop
    if at != length:
        raise DataFileError(path, f"has {length} bytes of values, its tensors take {at}; cut off or changed")


def _values(path: Path, file: BinaryIO, start: int, tensor: _Tensor) -> Array:
    file.seek(start + tensor.first)
    content = file.read(tensor.stop - tensor.first)
    if len(content) != tensor.stop - tensor.first:
        raise DataFileError(path, f"ends inside tensor '{tensor.name[:80]}'", byte_offset=start + tensor.first)
    values = np.frombuffer(content, _STORED[tensor.dtype])
    if tensor.dtype == "BF16":
        values = (values.astype(np.uint32) << 16).view(np.float32)
    with np.errstate(invalid="ignore"):  # some not-a-numbers make a noise when they are widened
        return values.reshape(tensor.shape).astype(np.float64 if tensor.dtype == "F64" else np.float32)
