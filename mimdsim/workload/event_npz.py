"""Files of named arrays as NPZ: zip archives of NPY arrays as numpy.savez and numpy.savez_compressed write them.

Arrays are read piece by piece from the archive, never through numpy.load: nothing is unpickled, and a member that would
unpack to more than its header says is refused before it is read. Format: numpy, "NPY format", versions 1.0 to 3.0.
"""

from __future__ import annotations

import contextlib
import re
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, BinaryIO

import numpy as np

from mimdsim.base.errors import DataFileError
from mimdsim.workload.event_columns import MAX_EVENTS, NAMES, Column, Values, kind_of, plain_values

MAX_HEADER_BYTES = 10_000  # numpy's own limit for headers of files that are not trusted
READ_BYTES = 1 << 20  # read and unpacked at once; also the most a zip directory may take, of some 60 bytes a member
_MAGIC = b"\x93NUMPY"
_HEADER = re.compile(
    r"\{'descr': (?P<descr>.+), 'fortran_order': (?P<fortran>True|False), 'shape': \((?P<shape>[0-9, ]*)\),? ?\} *\n"
)
_PLAIN_DTYPE = re.compile(r"'(?:[<>|=]?[iu][1248]|[<>=]?f[248]|\|?b1)'")
_DAMAGE = (
    zipfile.BadZipFile,
    zlib.error,
    EOFError,
    OSError,
    RuntimeError,  # also NotImplementedError, for what zipfile does not know
    ValueError,
    OverflowError,
    struct.error,
    SyntaxError,  # of headers, which numpy reads as Python
    tokenize.TokenError,
)


class NpzStore:
    """An opened NPZ file (a `ColumnStore`) of which the arrays `names` are read, those of `widths` as rows of so many.

    An array of rows is one column of all its numbers, row after row.
    """

    def __init__(self, path: Path, names: Collection[str] = NAMES, widths: Mapping[str, int] | None = None):
        self.path = path
        self._names, self._widths = names, widths or {}
        self.columns: dict[str, Column] = {}
        self._members: dict[str, _Member] = {}
        try:
            self._file = path.open("rb")
        except OSError as problem:
            raise DataFileError(path, f"cannot be read: {problem.strerror}") from None
        try:
            with _refusing(path, "is not an NPZ file, or damaged"):
                self._archive = zipfile.ZipFile(_Bounded(self._file))
            for info in self._archive.infolist():
                self._add(info)
        except BaseException:
            self._file.close()
            raise

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def pieces(self, names: Sequence[str], ranges: Sequence[tuple[int, int]]) -> Iterator[list[Values]]:
        """As `ColumnStore`; at the end the columns are read to theirs, which checks the sums that the archive keeps."""
        with contextlib.ExitStack() as stack:
            readers = [stack.enter_context(_Reader(self.path, self._archive, self._members[name])) for name in names]
            for first, stop in ranges:
                yield [reader.read(first, stop) for reader in readers]
            for reader in readers:
                reader.finish()

    def _add(self, info: zipfile.ZipInfo) -> None:
        name = info.filename.removesuffix(".npy")
        if name not in self._names or name == info.filename:
            return  # whatever else a user keeps in the archive is not read
        if name in self._members:
            raise DataFileError(self.path, f"has '{name}' twice", byte_offset=info.header_offset)
        if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            reason = f"'{name}' is packed by method {info.compress_type}; write it with numpy.savez_compressed"
            raise DataFileError(self.path, reason, byte_offset=info.header_offset)
        if info.flag_bits & 1:
            raise DataFileError(self.path, f"'{name}' is encrypted", byte_offset=info.header_offset)
        member = _Member(self.path, self._archive, info, self._widths.get(name, 0))
        self._members[name] = member
        self.columns[name] = Column(kind=kind_of(self.path, name, member.dtype), length=member.length)


class _Member:
    """Where an array is in the archive, and what its header says: plain numbers, in one dimension or in rows."""

    def __init__(self, path: Path, archive: zipfile.ZipFile, info: zipfile.ZipInfo, width: int):
        self.info = info
        self.name = info.filename.removesuffix(".npy")
        with _refusing(path, f"'{self.name}' is damaged", info.header_offset), archive.open(info) as file:
            text, self.header_bytes = self._header(path, file)
        found = _HEADER.fullmatch(text)
        if not found:
            raise self._refused(path, f"has a header that numpy does not write: {text[:80]!r}")
        if not _PLAIN_DTYPE.fullmatch(found["descr"]):
            what = "Python objects, which are not unpickled" if "O" in found["descr"] else f"{found['descr'][:60]}"
            raise self._refused(path, f"holds {what}; give integers, truth values or floats of 2 to 8 bytes")
        self.dtype = np.dtype(found["descr"].strip("'"))
        rows, *row = (part.strip() for part in found["shape"].removesuffix(",").split(","))
        if not re.fullmatch("[0-9]{1,20}", rows) or row != ([str(width)] if width else []):
            wanted_shape = f"(any number, {width})" if width else "one dimension"
            raise self._refused(path, f"has the shape ({found['shape'][:60]}); give {wanted_shape}")
        if width and found["fortran"] == "True":
            raise self._refused(path, "lies column by column; write numpy.ascontiguousarray of it")
        self.length = int(rows) * max(width, 1)
        if self.length > MAX_EVENTS:
            raise self._refused(path, f"has {self.length} entries, over {MAX_EVENTS}")
        wanted, there = self.length * self.dtype.itemsize, info.file_size - self.header_bytes
        if wanted != there:
            raise self._refused(path, f"needs {wanted} bytes for its {self.length} entries, the archive has {there}")

    def _header(self, path: Path, file: IO[bytes]) -> tuple[str, int]:
        start = file.read(8)
        if start[:6] != _MAGIC or start[6:] not in (b"\x01\x00", b"\x02\x00", b"\x03\x00"):
            raise self._refused(path, "is not an NPY array of version 1 to 3")
        layout = struct.Struct("<H" if start[6] == 1 else "<I")
        field = file.read(layout.size)
        (length,) = layout.unpack(field)
        if length > MAX_HEADER_BYTES:
            raise self._refused(path, f"has a header of {length} bytes, over {MAX_HEADER_BYTES}")
        text = file.read(length)
        if len(text) != length:
            raise self._refused(path, f"ends inside its header ({len(text)} of {length} bytes)")
        return text.decode("utf-8" if start[6] == 3 else "latin1"), len(start) + len(field) + length

    def _refused(self, path: Path, reason: str) -> DataFileError:
        return DataFileError(path, f"'{self.name}' {reason}", byte_offset=self.info.header_offset)


class _Reader:
    """Reads one array from its first entry to its last, in pieces."""

    def __init__(self, path: Path, archive: zipfile.ZipFile, member: _Member):
        self._path, self._archive, self._member = path, archive, member
        self._at = 0  # bytes behind the header

    def __enter__(self) -> _Reader:
        with self._refusing():
            self._file = self._archive.open(self._member.info)
            self._file.read(self._member.header_bytes)
        return self

    def __exit__(self, *about: Any) -> None:
        self._file.close()

    def read(self, first: int, stop: int) -> Values:
        """Entries `first` to `stop`; what lies before them is passed over for good."""
        width = self._member.dtype.itemsize
        self._pass(first * width - self._at)
        content = bytearray()
        wanted = (stop - first) * width
        with self._refusing():
            while len(content) < wanted:
                part = self._file.read(min(wanted - len(content), READ_BYTES))
                if not part:
                    raise EOFError(f"ends at entry {first + len(content) // width}")
                content += part
        self._at += wanted
        return plain_values(np.frombuffer(content, dtype=self._member.dtype))

    def finish(self) -> None:
        """Read what is left, so that the archive's checksum is compared."""
        self._pass(self._member.length * self._member.dtype.itemsize - self._at)
        with self._refusing():
            self._file.read(1)

    def _pass(self, count: int) -> None:
        self._at += count
        with self._refusing():
            while count:
                part = self._file.read(min(count, READ_BYTES))
                if not part:
                    raise EOFError("ends early")
                count -= len(part)

    def _refusing(self) -> contextlib.AbstractContextManager[None]:
        return _refusing(self._path, f"'{self._member.name}' is damaged", self._member.info.header_offset)


class _Bounded:
    """A file that refuses to be read in larger pieces than READ_BYTES, whatever the archive's directory claims."""

    def __init__(self, file: BinaryIO):
        self._file = file
        self.seek, self.tell, self.seekable, self.close = file.seek, file.tell, file.seekable, file.close
        self._length = file.seek(0, 2)

    def read(self, count: int = -1) -> bytes:
        """At most `count` bytes (negative: all that is left)."""
        left = max(self._length - self._file.tell(), 0)
        wanted = left if count < 0 else min(count, left)
        if wanted > READ_BYTES:
            raise zipfile.BadZipFile(f"{wanted} bytes of directory, over {READ_BYTES}")
        return self._file.read(wanted)


@contextlib.contextmanager
def _refusing(path: Path, what: str, byte_offset: int | None = None) -> Iterator[None]:
    """Turn what zipfile and zlib raise on damaged archives into a DataFileError."""
    try:
        yield
    except _DAMAGE as problem:
        raise DataFileError(path, f"{what}: {problem or type(problem).__name__}", byte_offset=byte_offset) from None
