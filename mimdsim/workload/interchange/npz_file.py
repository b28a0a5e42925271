"""Arrays of an NPZ file (numpy.savez, numpy.savez_compressed), with every size bounded before anything is read.

Not numpy.load: a member may unpack to far more than its header says, and a directory may name millions of members.
"""

from __future__ import annotations

import math
import struct
import tokenize
import zipfile
import zlib
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from mimdsim.base.errors import DataFileError
from mimdsim.workload.interchange.nir_nodes import MAX_VALUES

MAX_DIRECTORY_BYTES = 1 << 20  # some 60 bytes a member
MAX_HEADER_BYTES = 10_000  # numpy's own limit for headers of files that are not trusted
MAX_DIMENSIONS = 8
_END = struct.Struct("<4s4H2LH")  # zip, "end of central directory record"
_LONG_LOCATOR = b"PK\x06\x07"  # zip64: directories of over 4 GB
_DAMAGE = (
    zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, ValueError, OverflowError, struct.error, SyntaxError,
    tokenize.TokenError,
)  # fmt: skip

Array = npt.NDArray[Any]


def read_npz(path: Path) -> dict[str, Array]:
    """The arrays of floats in an NPZ file, float32 (float64 where they are kept so), in the order of their names.

    Raises DataFileError for what numpy does not write, objects, damage, or what is over a bound.
    """
    try:
        with path.open("rb") as file:
            _check_directory(path, file)
            with zipfile.ZipFile(file) as archive:
                return _arrays(path, archive)
    except _DAMAGE as problem:
        raise DataFileError(path, f"is not an NPZ file, or damaged: {problem or type(problem).__name__}") from None
    except OSError as problem:
        raise DataFileError(path, f"cannot be read: {problem.strerror}") from None


def _check_directory(path: Path, file: BinaryIO) -> None:
    length = file.seek(0, 2)
    tail = min(length, _END.size + (1 << 16))
    file.seek(length - tail)
    content = file.read(tail)
    at = content.rfind(b"PK\x05\x06")
    if at < 0 or len(content) - at < _END.size:
        raise DataFileError(path, "is not an NPZ file, or cut off: the end of a zip archive is missing")
    directory_bytes = _END.unpack_from(content, at)[5]
    if directory_bytes > MAX_DIRECTORY_BYTES or content[max(at - 20, 0) : at].startswith(_LONG_LOCATOR):
        raise DataFileError(path, f"has a directory of over {MAX_DIRECTORY_BYTES} bytes")


def _arrays(path: Path, archive: zipfile.ZipFile) -> dict[str, Array]:
    arrays: dict[str, Array] = {}
    values = 0
    for info in sorted(archive.infolist(), key=lambda member: member.filename):
        name = info.filename.removesuffix(".npy")
        if name == info.filename or name in arrays:
            raise DataFileError(path, f"member '{name[:80]}' is {'there twice' if name in arrays else 'not an array'}")
        if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) or info.flag_bits & 1:
            raise DataFileError(path, f"'{name[:80]}' is encrypted or packed by method {info.compress_type}")
        with archive.open(info) as member:
            dtype, shape, by_column = _header(path, name, member)
            count = math.prod(shape)
            values += count
            if values > MAX_VALUES:
                raise DataFileError(path, f"has over {MAX_VALUES} values up to '{name[:80]}' of shape {list(shape)}")
            content = member.read(count * dtype.itemsize)
            if len(content) != count * dtype.itemsize or member.read(1):
                there = f"more than {len(content)}" if len(content) == count * dtype.itemsize else f"{len(content)}"
                raise DataFileError(path, f"'{name[:80]}' of shape {list(shape)} has {there} bytes of {dtype}")
        if dtype.kind == "f":
            kept = np.float64 if dtype.itemsize == 8 else np.float32
            array = np.frombuffer(content, dtype).reshape(shape, order="F" if by_column else "C")
            with np.errstate(invalid="ignore"):  # some not-a-numbers make a noise when they are widened
                arrays[name] = np.ascontiguousarray(array, dtype=kept).reshape(shape)
    return arrays


def _header(path: Path, name: str, member: Any) -> tuple[np.dtype[Any], tuple[int, ...], bool]:
    """(dtype, shape, whether the first index runs fastest)"""
    version = np.lib.format.read_magic(member)
    read = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}.get(version)
    if read is None:
        raise DataFileError(path, f"'{name[:80]}' is an NPY array of version {version}; 1.0 and 2.0 are read")
    shape, by_column, dtype = read(member, max_header_size=MAX_HEADER_BYTES)
    if dtype.kind not in "fiub" or dtype.itemsize > 8:
        raise DataFileError(path, f"'{name[:80]}' holds {dtype}, not numbers; objects are not unpickled")
    if len(shape) > MAX_DIMENSIONS or any(not 0 <= extent < 1 << 62 for extent in shape):
        raise DataFileError(path, f"'{name[:80]}' has the shape {str(shape)[:80]}")
    return dtype, shape, by_column
