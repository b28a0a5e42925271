"""What a study has done so far, in its folder: recorded spikes, mappings found, and rows of finished points.

Every file is written as a whole and carries a digest. Rows are kept by the key of their point, so the same study, or
another one with some of the same points, goes on from there. A process claims a point before it works on it: a lock on
one byte of the file `claims`, which ends with the process however it ends, so two processes on one folder share the
work and do nothing twice. What a row may hold, types, ranges and what comes together, is checked where one is read from
a file or comes from a worker of a cluster, so that it is like our own.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import IO, Annotated, Any

import numpy as np
from pydantic import Field, StrictBool, TypeAdapter, ValidationError

from mimdsim.base.checksummed import read_sealed_arrays, read_sealed_json, write_sealed_arrays, write_sealed_json
from mimdsim.base.errors import DataFileError, MimdsimError, cannot_write, shortened
from mimdsim.base.files import writable_folder
from mimdsim.pipeline.recorded_run import activity_arrays, activity_of
from mimdsim.program import RecordedActivity
from mimdsim.studies.metrics import ENERGY, TIME, Row, interval_columns
from mimdsim.studies.results import GPU_RESULTS, INFERENCE_RESULTS, OF_TIME, POINT_RESULTS, SILICON
from mimdsim.workload import MappingOptions

MAX_ROWS_BYTES = 1 << 26  # of one file of rows
MAX_MAPPING_BYTES = 1 << 20
MAX_ACTIVITY_BYTES = 1 << 32  # spikes of one training step, packed
ROWS = "points"  # folder of their files
TAKEN = (errno.EACCES, errno.EAGAIN)
KEY = re.compile("[0-9a-f]{64}")
Text = Annotated[str, Field(strict=True, max_length=100_000)]
Number = Annotated[float, Field(strict=True, ge=0, lt=1e30)]
Signed = Annotated[float, Field(strict=True, gt=-1e30, lt=1e30)]
Whole = Annotated[int, Field(strict=True, ge=0, lt=1 << 63)]
KINDS: dict[str, Any] = {  # of columns with another kind than Number
    **dict.fromkeys(("compute_cycles", "exchange_cycles", "sync_cycles", "tiles_used"), Whole | None),
    **dict.fromkeys(("neurons_per_tile", "peak_bytes", "limit_bytes"), Whole | None),
    **dict.fromkeys(("note", "tool_version", "digest"), Text),
    "seed": Whole,
    "fits": Any,
    "accuracy": Annotated[Number, Field(le=1)] | None,
    # source, seconds (the rest beside all doubts may be a hair below zero) and half width
    "seconds_by_source": Annotated[list[tuple[Text, Signed, Number]], Field(max_length=10_000)] | None,
}
ORIGIN = ("asked", "inputs", "code")  # what a row is of; earlier ones do not say
LOW = ("_low", "_low_ms")  # ends of intervals that may reach below zero
TIMED = (  # where there is a time there are all of these
    *("ms_per_training_step", "ms_low", "ms_high", "compute_cycles", "exchange_cycles", "sync_cycles"),
    *("tile_balance", "tiles_used", "neurons_per_tile", "peak_bytes", "limit_bytes", "samples_per_second"),
    "seconds_by_source",
)
_OF_GPU = re.compile(f"(.+) ({'|'.join(GPU_RESULTS)})")
# of a training its last step, its test accuracy if there was a test, and what is wrong with its samples
Spikes = tuple[RecordedActivity, float | None, tuple[str, ...]]


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
        self.read_new_rows()
        return self

    def __exit__(self, *_: object) -> None:
        if self._claims is not None:
            self._claims.close()  # and all claims with it

    def read_new_rows(self) -> None:
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

    def require_columns(self, key: str, columns: Iterable[str]) -> None:
        """Give up a row that was read, with a word of its file, if it lacks some of these columns."""
        lacks = [name for name in columns if name not in self.rows.get(key, {name: None})]
        if lacks:
            path = self._files.pop(key, self._rows_folder)
            self.damaged[path] = f"{path}: a row has no column '{lacks[0]}'; delete it; its points are computed again"
            del self.rows[key]

    def add_rows(self, rows: dict[str, Row]) -> None:
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
            fcntl.lockf(self._claims, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, _claim_byte(key))
        except OSError as problem:
            return problem.errno not in TAKEN
        return True

    def release(self, keys: Iterable[str]) -> None:
        assert self._claims is not None
        for key in keys:
            with contextlib.suppress(OSError):
                fcntl.lockf(self._claims, fcntl.LOCK_UN, 1, _claim_byte(key))

    @property
    def _rows_folder(self) -> Path:
        return self.folder / ROWS

    def activity_path(self, key: str) -> Path:
        return self.folder / "activity" / f"{key}.npz"

    def has_activity(self, key: str) -> bool:
        return self._is_readable(self.activity_path(key), load_activity)

    def save_activity(self, key: str, spikes: Spikes | None) -> None:
        """Spikes that were recorded; None: there are none, as layers have too few tiles."""
        if spikes is not None:
            write_sealed_arrays(self.activity_path(key), spike_arrays(spikes))

    def has_mapping(self, key: str) -> bool:
        return self._is_readable(self._mapping_path(key), load_mapping)

    def save_mapping(self, key: str, options: MappingOptions | None) -> None:
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

    def _is_readable(self, path: Path, load: Callable[[Path], object]) -> bool:
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


def _claim_byte(key: str) -> int:
    """The byte of a point in `claims`: 60 bits of its digest."""
    return int(key[:15], 16)


def load_rows(path: Path) -> dict[str, Row]:
    """The rows of a file, by key; raises DataFileError, with what to do, for anything but what a study wrote there."""
    advice = "delete it; its points are computed again"
    rows = read_sealed_json(path, MAX_ROWS_BYTES, advice).get("rows")
    if not isinstance(rows, dict):
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


def row_problem(key: str, row: Any) -> str:
    """Why this is no row of a finished point; '' if it is one."""
    if not isinstance(row, dict):
        return f"the row of {shortened(key)} is no table"
    return next((f"{wrong} (row {key[:12]})" for wrong in _problems(key, row)), "")


def _problems(key: str, row: Row) -> Iterator[str]:
    if lacks := [name for name in (*POINT_RESULTS, "note") if name not in row]:
        yield f"column '{lacks[0]}' is missing"
        return
    if not KEY.fullmatch(key) or row["digest"] != key:
        yield f"column 'digest' is {shortened(repr(row['digest']))}, not that of its point"
    if "asked" in row and not _is_origin(row):
        yield "does not say what it is of"
    if others := [name for name, value in row.items() if name not in ORIGIN and not _is_value(name, value)]:
        yield f"column '{shortened(others[0])}' is {shortened(repr(row[others[0]]))}"
        return
    if not isinstance(row["fits"], bool):
        yield "column 'fits' is not true or false"
    timed = row["ms_per_training_step"] is not None
    for name in TIMED:
        if (row[name] is None) == timed and (timed or name in OF_TIME):
            yield f"column '{name}' is {shortened(repr(row[name]))} {'beside a time' if timed else 'without a time'}"
    if timed and isinstance(row["seconds_by_source"], list) and not _is_whole(row):
        yield f"column 'seconds_by_source' does not come to {row['ms_per_training_step']} ms"
    gpus = {found[1] for name in row if (found := _OF_GPU.fullmatch(name))}
    columns = (TIME, ENERGY, *SILICON, *(f"{gpu} strongest_ms" for gpu in sorted(gpus)), "gpu_ratio")
    for name in (*columns, *INFERENCE_RESULTS[::3]):
        if wrong := _interval(row, interval_columns(name)):
            yield wrong
    for gpu in sorted(gpus):
        if lacks := [name for name in GPU_RESULTS if f"{gpu} {name}" not in row]:
            yield f"column '{gpu} {lacks[0]}' is missing"


def _is_origin(row: Row) -> bool:
    """Whether a row says what it was asked for, from which inputs and by which code; older ones do not."""
    inputs = row.get("inputs")
    texts = (row["asked"], row.get("code"), *(inputs.values() if isinstance(inputs, dict) else (None,)))
    return all(isinstance(one, str) for one in texts)


def _interval(row: Row, names: Sequence[str]) -> str:
    """Why three columns are no number with an interval; '' if they are, or all are unknown."""
    values = [row.get(name) for name in names]
    if values == [None] * 3:
        return ""
    if None in values or not values[1] <= values[0] <= values[2]:  # type: ignore[operator]
        said = ", ".join(shortened(repr(value)) for value in values)
        return f"columns '{names[0]}', '{names[1]}' and '{names[2]}' are {said}, no number in an interval"
    return ""


@lru_cache(maxsize=1_000)
def _kind(name: str) -> TypeAdapter[Any]:
    """What a column may hold; one that is not known may hold any plain value."""
    of_gpu = _OF_GPU.fullmatch(name)
    number: Any = Signed if name.endswith(LOW) else Number
    text: Any = Text if of_gpu and of_gpu[2] == "strongest" else None
    kind: Any = (
        (text or number) if name in (*POINT_RESULTS, *INFERENCE_RESULTS) or of_gpu else StrictBool | Text | Signed
    )
    return TypeAdapter(KINDS.get(name, kind | None))


def _is_value(name: str, value: Any) -> bool:
    try:
        _kind(name).validate_python(value)
    except ValidationError:
        return False
    return True


def _is_whole(row: Row) -> bool:
    """Whether the parts of a time come to it."""
    seconds, whole = sum(part[1] for part in row["seconds_by_source"]), 1e-3 * row["ms_per_training_step"]
    return bool(whole > 0 and abs(seconds - whole) <= 1e-9 + 1e-6 * whole)


def spike_arrays(spikes: Spikes) -> dict[str, np.ndarray]:
    """Spikes as arrays, for a file or a network."""
    activity, accuracy, said = spikes
    arrays = activity_arrays(activity)
    if accuracy is not None:
        arrays["accuracy"] = np.array([accuracy])
    if said:
        arrays["said"] = np.frombuffer("\n".join(said).encode(), np.uint8)
    return arrays


def spikes_of(arrays: Mapping[str, np.ndarray]) -> Spikes:
    """What `spike_arrays` was given; raises ValueError for anything else."""
    accuracy, said = arrays.get("accuracy"), arrays.get("said", np.zeros(0, np.uint8))
    known = None if accuracy is None or accuracy.size != 1 else float(accuracy.reshape(-1)[0])
    if said.dtype != np.uint8 or not 0 <= (known or 0.0) <= 1:
        raise ValueError("holds no recorded spikes")
    activity = activity_of({name: each for name, each in arrays.items() if name not in ("accuracy", "said")})
    texts = tuple(said.tobytes().decode(errors="replace").splitlines())
    return activity, known, texts


def checked_result(found: Any, keys: Sequence[str]) -> Any:
    """What a worker of a cluster returned for points of these keys; raises MimdsimError for anything that no work
    returns."""
    try:
        if isinstance(found, list):
            if len(found) != len(keys):
                raise ValueError(f"{len(found)} rows for {len(keys)}")
            for key, row in zip(keys, found, strict=True):
                if not isinstance(row, Exception) and (wrong := row_problem(key, row)):
                    raise ValueError(wrong)
        elif isinstance(found, tuple):
            spikes_of(spike_arrays(found))
        elif found is not None and not isinstance(found, MappingOptions):
            raise TypeError("neither rows nor spikes nor a mapping")
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as problem:
        reason = shortened(f"{type(problem).__name__}: {problem}", 200)
        raise MimdsimError(f"a worker returned something else than results ({reason}); are all nodes yours?") from None
    return found
