"""The arrays of plain event files, in NPZ and HDF5: how they are read, what is required and what is refused."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol, Self

import numpy as np
import numpy.typing as npt

from mimdsim.base.errors import DataFileError
from mimdsim.base.npz_reader import Member, NpzFile
from mimdsim.workload.data.hdf5 import plain_dataset, values_of

MICROSECONDS, SECONDS = "t_microseconds", "t_seconds"
PLACES = ("x", "y", "p", "unit")
NAMES = ("offsets", "labels", "split", MICROSECONDS, SECONDS, *PLACES)

MAX_SAMPLES = 1 << 20  # assumed: SHD, the largest of the published sets read here, has 8,156 in one file
MAX_SAMPLE_EVENTS = 1 << 22  # assumed: a gesture of DVS-Gesture has some 400,000; bounds the memory a sample takes
MAX_EVENTS = 1 << 30  # assumed: DVS-Gesture has about half as many
MAX_TIME_SECONDS = 1e6  # assumed: no recording is longer

Ints = npt.NDArray[np.int64]
Values = npt.NDArray[np.int64] | npt.NDArray[np.float64]


class Column(NamedTuple):
    """An array of a file, not read yet: `kind` is 'i' (whole numbers or booleans) or 'f' (real numbers)."""

    kind: Literal["i", "f"]
    length: int


class ColumnStore(Protocol):
    """An opened event file: columns by name (those of NAMES that it has), and their values in pieces.

    `pieces` gives, for each of `ranges` (ascending, not overlapping), one array per name, int64 or float64, and holds
    no more than one range in memory. Raises DataFileError for what is damaged.
    """

    path: Path
    columns: dict[str, Column]

    def pieces(self, names: Sequence[str], ranges: Sequence[tuple[int, int]]) -> Iterator[list[Values]]: ...

    def close(self) -> None: ...


def kind_of(path: Path, name: str, dtype: np.dtype[Any]) -> Literal["i", "f"]:
    """The kind of a column with numbers of at most 8 bytes; raises DataFileError for anything else."""
    if dtype.kind in "iub" and dtype.itemsize <= 8:
        return "i"
    if dtype.kind == "f" and dtype.itemsize <= 8:
        return "f"
    raise DataFileError(path, f"'{name}' has the dtype {dtype}; give integers, booleans or floats of 2 to 8 bytes")


def plain_values(values: npt.NDArray[Any]) -> Values:
    """As int64 or float64; what int64 cannot hold becomes its largest number, which is always out of range."""
    if values.dtype.kind == "f":
        return values.astype(np.float64)
    if values.dtype.kind == "b":
        return values.view(np.uint8).astype(np.int64)  # a byte over 1 is not a boolean and must be noticed
    if values.dtype.kind == "u" and values.dtype.itemsize == 8:
        values = np.minimum(values, np.uint64(np.iinfo(np.int64).max))
    return values.astype(np.int64)


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
                _check_member(member, (widths or {}).get(name, 0))
                self._members[name] = member
                self.columns[name] = Column(kind_of(path, name, member.dtype), member.entries)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def pieces(self, names: Sequence[str], ranges: Sequence[tuple[int, int]]) -> Iterator[list[Values]]:
        """As `ColumnStore`; finally each column is read to its end, which verifies the archive's checksums."""
        columns = [self._file.pieces(self._members[name], ranges) for name in names]
        for values in zip(*columns, strict=True):
            yield [plain_values(each) for each in values]


def _check_member(member: Member, width: int) -> None:
    """Raise DataFileError unless an array has one dimension, or rows of `width`, and the bytes that it needs."""
    if member.shape[1:] != ((width,) if width else ()) or not member.shape:
        wanted = f"(any number, {width})" if width else "one dimension"
        raise member.refused(f"has the shape {member.shape}; give {wanted}")
    if width and member.by_column:
        raise member.refused("is stored column by column; save numpy.ascontiguousarray of it")
    if member.entries > MAX_EVENTS:
        raise member.refused(f"has {member.entries} entries, over {MAX_EVENTS}")
    member.check_size()


class Hdf5Store:
    """An HDF5 file (a `ColumnStore`)."""

    def __init__(self, path: Path):
        self.path = path
        (about,) = values_of(read, path, None, purpose="reading event files in HDF5")
        self.columns = {name: Column(*column) for name, column in about.items()}

    def close(self) -> None:
        """Nothing is open."""

    def pieces(self, names: Sequence[str], ranges: Sequence[tuple[int, int]]) -> Iterator[list[Values]]:
        """As `ColumnStore`."""
        columns = values_of(read, self.path, [names, ranges], purpose="reading event files in HDF5")
        for first, stop in ranges:
            values = [*itertools.islice(columns, len(names))]
            for name, found in zip(names, values, strict=True):
                if found.size != stop - first:  # the file was changed between two requests
                    raise DataFileError(self.path, f"'{name}' gave {found.size} entries for {stop - first}")
            yield values
        next(columns, None)  # the end of the answer


def read(path: Path, wanted: Any) -> Iterator[Any]:
    """In the process that opens the file: {name: [kind, length]} of its columns where None is wanted; of [names,
    ranges] the values of every range and name."""
    import h5py

    with h5py.File(path, "r") as file:
        if wanted is None:
            columns = {name: _column(path, file, name) for name in NAMES if name in file.keys()}  # noqa: SIM118
            yield {name: (kind_of(path, name, found.dtype), found.shape[0]) for name, found in columns.items()}
            return
        names, ranges = wanted
        columns = {name: _column(path, file, name) for name in names}
        for first, stop in ranges:
            for found in columns.values():
                yield plain_values(np.asarray(found[first:stop]))


def _column(path: Path, file: Any, name: str) -> Any:
    found = plain_dataset(path, file, name, expected=", ".join(f"/{known}" for known in NAMES))
    if len(found.shape) != 1:
        raise DataFileError(path, f"/{name} has the shape {list(found.shape)}; give one dimension")
    if found.shape[0] > MAX_EVENTS:
        raise DataFileError(path, f"/{name} has {found.shape[0]} entries, over {MAX_EVENTS}")
    return found


def check_range(path: Path, name: str, values: Values, most: float, *, first: int = 0, sample: int = -1) -> None:
    """Raise DataFileError for the first of `values` (entries from `first` on) that is not 0 to `most`."""
    outside = ~((values >= 0) & (values <= most))  # also true for NaN
    if outside.any():
        entry = int(np.argmax(outside))
        of_sample = f" (sample {sample})" if sample >= 0 else ""
        raise DataFileError(path, f"'{name}', entry {first + entry}{of_sample}: {values[entry]} is outside 0 to {most}")


def label_advice(labels: Values, classes: int) -> str:
    """What to do about labels beyond the classes."""
    low, high = int(labels.min()), int(labels.max())
    if low == 1 and high == classes:
        return "; are the labels 1-based? They count classes from 0: subtract 1 from each"
    if low >= 0:
        return f"; labels reach {high}, so there are at least {high + 1} classes, counted from 0"
    return "; classes are counted from 0"


class SampleFile:
    """An opened file of samples one behind the other: `labels` int64[samples], and where samples begin and end.

    Use it as a context manager. Raises DataFileError with array, entry and reason for a file that is damaged or breaks
    a rule of its format.
    """

    labels: Ints
    offsets: Ints

    def __init__(self, store: ColumnStore):
        self.path, self._store, self._columns = store.path, store, store.columns
        try:
            self._open()
        except BaseException:
            store.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *about: object) -> None:
        self._store.close()

    def _open(self) -> None:
        """Check what the file says about its samples, and read it."""
        raise NotImplementedError

    def _need(self, names: Iterable[str], expected: str) -> None:
        for name in names:
            if name not in self._columns:
                there = ", ".join(f"'{known}'" for known in self._columns) or "none of them"
                raise DataFileError(self.path, f"has no array '{name}', only {there}; {expected}")

    def _need_whole_numbers(self, names: Iterable[str]) -> None:
        for name in names:
            if name in self._columns and self._columns[name].kind != "i":
                raise DataFileError(self.path, f"'{name}' holds real numbers; give integers")

    def _check_lengths(self, labels: str, offsets: str, *others: str) -> None:
        """Raise DataFileError unless there are samples, and as many entries of the other columns as they need."""
        samples = self._columns[labels].length
        if not 0 < samples <= MAX_SAMPLES:
            reason = f"'{labels}' has {samples} entries, not one for each of 1 to {MAX_SAMPLES} samples"
            raise DataFileError(self.path, reason)
        for name in (offsets, *others):
            needed = samples + 1 if name == offsets else samples
            if name in self._columns and self._columns[name].length != needed:
                reason = f"'{name}' has {self._columns[name].length} entries; {samples} samples need {needed}"
                raise DataFileError(self.path, reason)

    def _whole(self, name: str) -> Ints:
        """All entries of a column of whole numbers, int64."""
        (((values,)),) = list(self._store.pieces([name], [(0, self._columns[name].length)]))
        return values.astype(np.int64)

    def _read_offsets(self, name: str, *, entries: int, most: int, of: str) -> None:
        """Offsets that begin with 0, never fall, end with `entries` and hold `most` a sample."""
        path, offsets = self.path, self._whole(name)
        if offsets[0] != 0:
            raise DataFileError(path, f"'{name}', entry 0: {offsets[0]}, but the first sample begins at {of} 0")
        check_range(path, name, offsets, entries)
        members = np.diff(offsets)
        if (members < 0).any():
            entry = int(np.argmax(members < 0)) + 1
            follows = f"{offsets[entry]} follows {offsets[entry - 1]}"
            raise DataFileError(path, f"'{name}', entry {entry}: {follows}; not sorted")
        if offsets[-1] != entries:
            raise DataFileError(path, f"'{name}' ends at {of} {offsets[-1]}, but there are {entries} {of}s")
        if members.max() > most:
            sample = int(np.argmax(members))
            raise DataFileError(path, f"sample {sample} has {members[sample]} {of}s, over {most}")
        self.offsets = offsets

    def _read_labels(self, name: str, classes: int) -> None:
        """Labels from 0 to classes - 1; the error says so where they count from 1."""
        self.labels = self._whole(name)
        try:
            check_range(self.path, name, self.labels, classes - 1)
        except DataFileError as problem:
            raise DataFileError(self.path, f"{problem.reason}{label_advice(self.labels, classes)}") from None

    def _pieces(
        self, names: Sequence[str], chosen: Sequence[int], width: int = 1
    ) -> Iterator[tuple[int, int, list[Values]]]:
        """(sample, its first entry, its entries of every column) of samples in ascending order, one in memory at once;
        `width` entries of a column belong together."""
        edges = (self.offsets * width).tolist()
        ranges = [(edges[sample], edges[sample + 1]) for sample in chosen]
        # strict: exhausting the pieces lets an archive verify its checksums
        for sample, (first, _), values in zip(chosen, ranges, self._store.pieces(names, ranges), strict=True):
            yield sample, first, values
