"""What a study has done so far, in its folder: recorded spikes, mappings found, and rows of finished points.

Every file is written as a whole and carries a digest. Rows are kept by the key of their point, so the same study, or
another one with some of the same points, goes on from there. A process claims a point before it works on it: a lock on
one byte of the file `claims`, which ends with the process however it ends, so two processes on one folder share the
work and do nothing twice.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import IO

from mimdsim.base.checksummed import read_sealed_arrays, read_sealed_json, write_sealed_arrays, write_sealed_json
from mimdsim.base.errors import DataFileError, cannot_write
from mimdsim.base.files import writable_folder
from mimdsim.studies.metrics import Row
from mimdsim.studies.row_values import Spikes, row_problem, spike_arrays, spikes_of
from mimdsim.workload import MappingOptions

MAX_ROWS_BYTES = 1 << 26  # of one file of rows
MAX_MAPPING_BYTES = 1 << 20
MAX_ACTIVITY_BYTES = 1 << 32  # spikes of one training step, packed
ROWS = "points"  # folder of their files
TAKEN = (errno.EACCES, errno.EAGAIN)


class Store:
    """A study's folder. `rows`: finished points by key, as far as they were looked at; `damaged`: files that cannot
    be read, with why."""

    def __init__(self, folder: Path):
        self.folder = writable_folder(folder)
        self.rows: dict[str, Row] = {}
        self.damaged: dict[Path, str] = {}
        self._read: set[Path] = set()
        self._files: dict[str, Path] = {}  # of rows that were read, by their keys
        self._claims: IO[bytes] | None = None

    def __enter__(self) -> Store:
        try:
            self._claims = (self.folder / "claims").open("ab")
        except OSError as problem:
            raise cannot_write(self.folder / "claims", problem) from None
        self.look()
        return self

    def __exit__(self, *_: object) -> None:
        if self._claims is not None:
            self._claims.close()  # and all claims with it

    def look(self) -> None:
        """Read the rows that were added since: by this process or another one."""
        for path in sorted(self._rows_folder.glob("*.json")):
            if path in self._read:
                continue
            self._read.add(path)
            try:
                found = load_rows(path)
                self.rows |= found
                self._files |= dict.fromkeys(found, path)
            except DataFileError as problem:
                self.damaged[path] = str(problem)

    def need(self, key: str, columns: Iterable[str]) -> None:
        """Give up a row that was read, with a word of its file, if it lacks some of these columns."""
        lacks = [name for name in columns if name not in self.rows.get(key, {name: None})]
        if lacks:
            path = self._files.pop(key, self._rows_folder)
            self.damaged[path] = f"{path}: a row has no column '{lacks[0]}'; delete it; its points are computed again"
            del self.rows[key]

    def keep(self, rows: dict[str, Row]) -> None:
        """Add rows by key, all of them or none."""
        if not rows:
            return
        name = hashlib.sha256("".join(sorted(rows)).encode()).hexdigest()
        path = self._rows_folder / f"{name}.json"
        write_sealed_json(path, {"rows": rows})
        self._read.add(path)
        self.rows |= rows

    def claim(self, key: str) -> bool:
        """Whether a point is this process's to do, which it stays until `release` or the end of the process. A file
        system without locks leaves every point to everybody."""
        assert self._claims is not None
        try:
            fcntl.lockf(self._claims, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, _place(key))
        except OSError as problem:
            return problem.errno not in TAKEN
        return True

    def release(self, keys: Iterable[str]) -> None:
        assert self._claims is not None
        for key in keys:
            with contextlib.suppress(OSError):
                fcntl.lockf(self._claims, fcntl.LOCK_UN, 1, _place(key))

    @property
    def _rows_folder(self) -> Path:
        return self.folder / ROWS

    def activity_path(self, key: str) -> Path:
        return self.folder / "activity" / f"{key}.npz"

    def has_activity(self, key: str) -> bool:
        return self._is_whole(self.activity_path(key), load_activity)

    def keep_activity(self, key: str, spikes: Spikes) -> None:
        write_sealed_arrays(self.activity_path(key), spike_arrays(spikes))

    def has_mapping(self, key: str) -> bool:
        return self._is_whole(self._mapping_path(key), load_mapping)

    def keep_mapping(self, key: str, options: MappingOptions | None) -> None:
        """The best mapping found for a point; None: there is none."""
        found = None if options is None else options.model_dump(mode="json")
        write_sealed_json(self._mapping_path(key), {"mapping": found})

    def mappings(self) -> list[MappingOptions]:
        """What was found for the points of this folder, each once."""
        found: dict[str, MappingOptions] = {}
        for path in sorted((self.folder / "mappings").glob("*.json")):
            with contextlib.suppress(DataFileError):
                options = load_mapping(path)
                if options is not None:
                    found.setdefault(options.model_dump_json(), options)
        return list(found.values())

    def _is_whole(self, path: Path, load: Callable[[Path], object]) -> bool:
        """Whether a file is there and can be read; what is damaged is named and made again."""
        if not path.exists():
            return False
        try:
            load(path)
        except DataFileError as problem:
            self.damaged[path] = str(problem)
            return False
        return True

    def _mapping_path(self, key: str) -> Path:
        return self.folder / "mappings" / f"{key}.json"


def _place(key: str) -> int:
    """The byte of a point in `claims`: 60 bits of its digest."""
    return int(key[:15], 16)


def load_rows(path: Path) -> dict[str, Row]:
    """The rows of a file, by key; raises DataFileError, with what to do, for anything but what a study wrote there."""
    advice = "delete it; its points are computed again"
    rows = read_sealed_json(path, MAX_ROWS_BYTES, advice).get("rows")
    if not isinstance(rows, dict) or any(not isinstance(row, dict) for row in rows.values()):
        raise DataFileError(path, f"lacks results; {advice}")
    for key, row in rows.items():
        if wrong := row_problem(key, row):
            raise DataFileError(path, f"{wrong}; {advice}")
    return rows


def load_mapping(path: Path) -> MappingOptions | None:
    """A mapping that was found, None if none was; raises DataFileError for anything else."""
    table = read_sealed_json(path, MAX_MAPPING_BYTES, "the same command searches again").get("mapping")
    try:
        return None if table is None else MappingOptions.model_validate(table)
    except ValueError:  # of pydantic, and of what it cannot say
        raise DataFileError(path, "is no mapping; the same command searches again") from None


def load_activity(path: Path) -> Spikes:
    """Recorded spikes from disk; raises DataFileError for anything else."""
    advice = "the same command records them again"
    try:
        return spikes_of(read_sealed_arrays(path, MAX_ACTIVITY_BYTES, advice))
    except ValueError as problem:
        raise DataFileError(path, f"{problem}; {advice}") from None


def count_rows(folder: Path) -> int:
    """Finished points in a folder, as far as it can be read."""
    count = 0
    for path in (folder / ROWS).glob("*.json"):
        with contextlib.suppress(DataFileError):
            count += len(load_rows(path))
    return count
