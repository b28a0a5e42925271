"""Event files as NPZ: arrays of one dimension, or of rows, that are read piece by piece."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

from mimdsim.base.errors import DataFileError
from mimdsim.base.npz_reader import Member, NpzFile
from mimdsim.workload.data.files.event_columns import MAX_EVENTS, NAMES, Column, Values, kind_of, plain_values


class NpzStore:
    """An opened NPZ file (a `ColumnStore`) of which the arrays `names` are read, those in `widths` as rows of that
    many.

    An array of rows is one column of all its numbers, row after row. Everything else in the archive is ignored.
    """

    def __init__(self, path: Path, names: Collection[str] = NAMES, widths: Mapping[str, int] | None = None):
        self.path = path
        self.columns: dict[str, Column] = {}
        self._members: dict[str, Member] = {}
        self._file = NpzFile(path)
        try:
            for info in self._file.infos:
                name = info.filename.removesuffix(".npy")
                if name not in names or name == info.filename:
                    continue
                if name in self._members:
                    raise DataFileError(path, f"has '{name}' twice", byte_offset=info.header_offset)
                member = self._file.member(info)
                _check(member, (widths or {}).get(name, 0))
                self._members[name] = member
                self.columns[name] = Column(kind=kind_of(path, name, member.dtype), length=member.entries)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def pieces(self, names: Sequence[str], ranges: Sequence[tuple[int, int]]) -> Iterator[list[Values]]:
        """As `ColumnStore`; finally each column is read to its end, which verifies the archive's checksums."""
        with contextlib.ExitStack() as stack:
            readers = [stack.enter_context(self._file.reader(self._members[name])) for name in names]
            for first, stop in ranges:
                yield [plain_values(reader.read(first, stop)) for reader in readers]
            for reader in readers:
                reader.finish()


def _check(member: Member, width: int) -> None:
    """Raise DataFileError unless an array has one dimension, or rows of `width`, and the bytes that it needs."""
    if member.shape[1:] != ((width,) if width else ()) or not member.shape:
        wanted = f"(any number, {width})" if width else "one dimension"
        raise member.refused(f"has the shape {member.shape}; give {wanted}")
    if width and member.by_column:
        raise member.refused("is stored column by column; save numpy.ascontiguousarray of it")
    if member.entries > MAX_EVENTS:
        raise member.refused(f"has {member.entries} entries, over {MAX_EVENTS}")
    member.check_size()
