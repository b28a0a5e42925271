"""Arrays of NPZ files: zip archives of NPY arrays as numpy.savez and numpy.savez_compressed write them.

Arrays are read piece by piece from the archive, never through numpy.load: nothing is unpickled, and a member that would
unpack to more than its header says is refused before it is read. Format: numpy, "NPY format", versions 1.0 to 3.0.
"""

from __future__ import annotations

import contextlib
import errno
import io
import math
import os
import struct
import zipfile
import zlib
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from mimdsim.base.errors import DataFileError, shortened
from mimdsim.base.files import open_data

MAX_HEADER_BYTES = 10_000  # numpy's own limit for headers of untrusted files
MAX_DIMENSIONS = 8
READ_BYTES = 1 << 20  # read and unpacked at once; also the most a zip directory may take, of some 60 bytes a member
_VERSIONS = tuple(b"\x93NUMPY" + version for version in (b"\x01\x00", b"\x02\x00", b"\x03\x00"))
_DAMAGE = (
    zipfile.BadZipFile,
    zlib.error,
    EOFError,
    OSError,
    RuntimeError,  # also NotImplementedError, for unsupported features of zip files
    ValueError,
    OverflowError,
    struct.error,
)


@dataclass(frozen=True, kw_only=True)
class Member:
    """An array in an archive, as described by its header: plain numbers. by_column: the first index runs fastest."""

    path: Path
    info: zipfile.ZipInfo
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    by_column: bool
    header_bytes: int

    @property
    def name(self) -> str:
        return self.info.filename.removesuffix(".npy")

    @property
    def entries(self) -> int:
        return math.prod(self.shape)

    def refused(self, reason: str) -> DataFileError:
        """The error with this text about the array."""
        return _refused(self.path, self.info, reason)

    def check_size(self) -> None:
        """Raise DataFileError if the archive has more or fewer bytes than the shape needs."""
        wanted, there = self.entries * self.dtype.itemsize, self.info.file_size - self.header_bytes
        if wanted != there:
            raise self.refused(f"needs {wanted} bytes for its {self.entries} entries, the archive has {there}")


def npz_bytes(arrays: Mapping[str, np.ndarray]) -> bytes:
    """A compressed archive of arrays of plain numbers."""
    packed = io.BytesIO()
    np.savez_compressed(packed, **arrays)  # type: ignore[arg-type]
    return packed.getvalue()


class NpzFile:
    """An opened NPZ file. Raises DataFileError for one `missing` or not `kind`, in every method for a damaged one."""

    def __init__(self, path: Path, kind: str = "an NPZ file", missing: str = ""):
        self.path = path
        with contextlib.ExitStack() as opened:
            file = opened.enter_context(open_data(path, missing or f"cannot be read: {os.strerror(errno.ENOENT)}"))
            with _refusing(path, f"is not {kind}, or damaged"):
                self._archive = zipfile.ZipFile(Bounded(file))
            self.close = opened.pop_all().close

    def __enter__(self) -> NpzFile:
        return self

    def __exit__(self, *about: Any) -> None:
        self.close()

    @property
    def infos(self) -> list[zipfile.ZipInfo]:
        """Names in the directory; those of arrays end in .npy."""
        return self._archive.infolist()

    def member(self, info: zipfile.ZipInfo) -> Member:
        """The header of an array; its size is not checked yet."""
        if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            reason = f"is packed by method {info.compress_type}; write it with numpy.savez_compressed"
            raise _refused(self.path, info, reason)
        if info.flag_bits & 1:
            raise _refused(self.path, info, "is encrypted")
        with _refusing(self.path, f"{_shown(info)} is damaged", info.header_offset), self._archive.open(info) as file:
            head = io.BytesIO(file.read(MAX_HEADER_BYTES))
        if (version := head.read(8)) not in _VERSIONS:
            raise _refused(self.path, info, "is not an NPY array of version 1 to 3")
        parse = np.lib.format.read_array_header_1_0 if version == _VERSIONS[0] else np.lib.format.read_array_header_2_0
        try:
            shape, by_column, dtype = parse(head, max_header_size=MAX_HEADER_BYTES)
            if min(shape, default=0) < 0:
                raise ValueError(f"the shape {shape}")
        except Exception as problem:  # the text is evaluated as a literal, which fails in many ways
            reason = f"has a header that numpy does not write: {shortened(str(problem))}"
            raise _refused(self.path, info, reason) from None
        if dtype.kind not in "iufb" or dtype.itemsize > 8:
            what = "Python objects, which are not unpickled" if dtype.hasobject else shortened(repr(dtype.descr[0][1]))
            reason = f"holds {what}; give integers, booleans or floats of 2 to 8 bytes"
            raise _refused(self.path, info, reason)
        if len(shape) > MAX_DIMENSIONS:
            raise _refused(self.path, info, f"has the shape {shortened(str(shape))}")
        return Member(
            path=self.path, info=info, dtype=dtype, shape=shape, by_column=by_column, header_bytes=head.tell()
        )

    def whole(self, member: Member) -> npt.NDArray[Any]:
        """All entries of an array, in its shape."""
        member.check_size()
        (entries,) = self.pieces(member, [(0, member.entries)])
        return entries.reshape(member.shape, order="F" if member.by_column else "C")

    def pieces(self, member: Member, ranges: Iterable[tuple[int, int]]) -> Iterator[npt.NDArray[Any]]:
        """Entries `first` to `stop` of an array, as stored, for each of `ranges` (ascending, not overlapping); then the
        rest is read too, so that the archive's checksum is verified."""
        info, width = member.info, member.dtype.itemsize
        damaged = _refusing(self.path, f"{_shown(info)} is damaged", info.header_offset)
        with damaged, self._archive.open(info) as file:
            file.read(member.header_bytes)
            at = 0  # bytes behind the header

            def parts(stop: int) -> Iterator[bytes]:
                nonlocal at
                while at < stop:
                    part = file.read(min(stop - at, READ_BYTES))
                    if not part:
                        raise EOFError(f"ends at entry {at // width}")
                    at += len(part)
                    yield part

            for first, stop in ranges:
                deque(parts(first * width), maxlen=0)
                content = bytearray()
                for part in parts(stop * width):
                    content += part
                yield np.frombuffer(content, dtype=member.dtype)
            deque(parts(member.entries * width), maxlen=0)
            file.read(1)


def _shown(info: zipfile.ZipInfo) -> str:
    return f"'{info.filename.removesuffix('.npy')[:80]}'"


def _refused(path: Path, info: zipfile.ZipInfo, reason: str) -> DataFileError:
    return DataFileError(path, f"{_shown(info)} {reason}", byte_offset=info.header_offset)


class Bounded:
    """A file that refuses to be read in larger pieces than READ_BYTES, whatever the archive's directory claims."""

    def __init__(self, file: BinaryIO):
        self._file = file
        self.seek, self.tell, self.seekable, self.close = file.seek, file.tell, file.seekable, file.close
        self._length = file.seek(0, 2)

    def read(self, count: int = -1) -> bytes:
        """At most `count` bytes (negative: all remaining)."""
        left = max(self._length - self._file.tell(), 0)
        wanted = left if count < 0 else min(count, left)
        if wanted > READ_BYTES:
            raise zipfile.BadZipFile(f"{wanted} bytes of directory, over {READ_BYTES}")
        return self._file.read(wanted)


@contextlib.contextmanager
def _refusing(path: Path, what: str, byte_offset: int | None = None) -> Iterator[None]:
    """Turn the exceptions of zipfile and zlib on damaged archives into a DataFileError."""
    try:
        yield
    except _DAMAGE as problem:
        raise DataFileError(path, f"{what}: {problem or type(problem).__name__}", byte_offset=byte_offset) from None
