"""A format of files, and what becomes of many mutants of a good one."""

from __future__ import annotations

import contextlib
import shutil
import time
import traceback
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from hostile.limits import LIMIT_BYTES, LIMIT_SECONDS, peak_bytes, time_limit
from mimdsim.base.errors import MimdsimError
from mimdsim.base.rng import stream

UNTOLD: Any = object()  # no other reading than the program's own is at hand


class Format(ABC):
    """One format; `folder` holds the good file, and mutants while they are read."""

    name = ""
    only_writes = False  # then nothing of it can be refused

    def __init__(self, folder: Path):
        self.folder = folder
        self.opened = contextlib.ExitStack()

    @abstractmethod
    def good(self) -> Path:
        """The good file."""

    @abstractmethod
    def mutant(self, number: int, rng: np.random.Generator) -> Path:
        """Write a mutant of the good file."""

    @abstractmethod
    def read(self, path: Path) -> Any:
        """What the program takes of a file, as plain values and arrays; raises MimdsimError to refuse it."""

    def says(self, path: Path) -> Any:
        """The same by another reading; UNTOLD where there is none, None where that reading refuses the file."""
        return UNTOLD

    def close(self) -> None:
        """Give back what was opened."""
        self.opened.close()


@dataclass
class Outcome:
    """Mutants by what became of them, and the failures: (number of the mutant, what happened)."""

    refused: int = 0
    as_it_says: int = 0
    untold: int = 0  # read, and held against nothing but the checks of the reader
    slowest_seconds: float = 0.0
    largest_bytes: int = 0
    failures: list[tuple[int, str]] = field(default_factory=list)

    def __str__(self) -> str:
        said = f"{self.refused} refused, {self.as_it_says} read as they say, {self.untold} read, nothing else to say"
        worst = f"slowest {self.slowest_seconds:.2f} s, most memory {self.largest_bytes / 1e6:.0f} MB"
        return f"{said}; {worst}; {len(self.failures)} failures"


def outcome_of(form: Format, count: int, seed: int, keep: Path | None = None) -> Outcome:
    """Read `count` mutants; those that fail are copied to `keep`."""
    found = Outcome()
    assert same(form.read(form.good()), form.says(form.good())) or form.says(form.good()) is UNTOLD
    for number in range(count):
        path = form.mutant(number, stream(seed, "hostile", form.name, number))
        failure = _one(form, path, found)
        if failure:
            found.failures.append((number, failure))
            if keep is not None and path.is_file():
                keep.mkdir(parents=True, exist_ok=True)
                (keep / f"{form.name.replace(' ', '-')}-{number}{path.suffix}").write_bytes(path.read_bytes())
        if path.is_dir() and path != form.good():
            shutil.rmtree(path)
        elif path != form.good():
            path.unlink()
    return found


def _one(form: Format, path: Path, found: Outcome) -> str:
    """What is wrong with how a mutant was treated; '' if nothing is."""
    before = peak_bytes(again=True)
    began = time.process_time()
    failure, read = "", UNTOLD
    try:
        with time_limit(3 * LIMIT_SECONDS):
            read = form.read(path)
    except MimdsimError as problem:
        found.refused += 1
        if len(str(problem)) > 20_000:
            failure = f"a message of {len(str(problem))} characters"
    except BaseException:
        failure = traceback.format_exc(limit=-4)
    seconds, memory = time.process_time() - began, peak_bytes() - before
    found.slowest_seconds = max(found.slowest_seconds, seconds)
    found.largest_bytes = max(found.largest_bytes, memory)
    if seconds > LIMIT_SECONDS or memory > LIMIT_BYTES:
        failure = failure or f"{seconds:.1f} s and {memory / 1e6:.0f} MB"
    if failure or read is UNTOLD:
        return failure
    said = form.says(path)
    if said is UNTOLD:
        found.untold += 1
    elif same(read, said):
        found.as_it_says += 1
    else:
        failure = f"read as something else than it says: {difference(read, said)}"
    return failure


def same(one: Any, other: Any) -> bool:
    """Equal values, not-a-numbers and dtypes of arrays included."""
    return not difference(one, other)


def difference(one: Any, other: Any, where: str = "") -> str:
    """The first place in which two readings differ; '' for none."""
    if isinstance(one, dict) and isinstance(other, dict):
        if one.keys() != other.keys():
            return f"{where}: {sorted(map(str, one.keys() ^ other.keys()))[:5]}"
        return next((found for key in one if (found := difference(one[key], other[key], f"{where}.{key}"))), "")
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        if len(one) != len(other):
            return f"{where}: {len(one)} and {len(other)} entries"
        pairs = enumerate(zip(one, other, strict=True))
        return next((found for at, (a, b) in pairs if (found := difference(a, b, f"{where}.{at}"))), "")
    if isinstance(one, np.ndarray) or isinstance(other, np.ndarray):
        a, b = np.asarray(one), np.asarray(other)
        equal = a.shape == b.shape and a.dtype == b.dtype and a.tobytes() == b.tobytes()
        return "" if equal else f"{where}: {a.dtype}{a.shape} and {b.dtype}{b.shape}, or other values"
    if isinstance(one, float) and isinstance(other, float) and one != one and other != other:
        return ""
    return (
        ""
        if one == other and isinstance(one, bool) == isinstance(other, bool)
        else f"{where}: {one!r}, {other!r}"[:300]
    )
