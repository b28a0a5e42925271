"""The errors a user can meet. Each says what is wrong, where, and what to do next.

A `MimdsimError` is for the user to fix: the command line prints it without traceback and exits with 2.
Any other exception is a bug: the command line exits with 4 and leaves its traceback in a file.
"""

from __future__ import annotations

import copyreg
import difflib
import errno
import re
import traceback
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

GENERATED = "<string>"  # the file of methods that dataclasses make
PACKAGE = Path(__file__).resolve().parents[1]
MOST_PROBLEMS = 10  # of one description listed in a message
DRAFT = ".mimdsim-draft-"  # of folders whose files are not in their place yet (`base/atomic_folder.py`)
FULL = (errno.ENOSPC, errno.EDQUOT)
TOO_MANY_OPEN = (errno.EMFILE, errno.ENFILE)
MACHINE_FAILURES = (
    *FULL, *TOO_MANY_OPEN, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO, errno.ENOMEM,
)  # fmt: skip


class MimdsimError(Exception):
    """Something the user can fix.

    >>> try:
    ...     mimdsim.load_machine("bo")
    ... except mimdsim.MimdsimError as problem:
    ...     "did you mean 'bow'?" in str(problem)
    True
    """

    def __reduce__(self) -> tuple[Any, ...]:  # of a worker process, it must reach the parent complete
        return copyreg.__newobj__, (type(self), *self.args), self.__dict__  # type: ignore[attr-defined]


AS_CHANGED = " (as changed)"  # of a value in a message; commands say what changed it


class DescriptionError(MimdsimError):
    """A machine or workload description is wrong; `problems` are the first ten mistakes, not only the first one.

    more: mistakes found in addition to those given.
    """

    def __init__(self, where: str, problems: Iterable[str], *, more: int = 0):
        given = tuple(problems)
        self.where, self.problems = where, given[:MOST_PROBLEMS]
        self.more = more + len(given) - len(self.problems)
        count = len(self.problems) + self.more
        lines = [*self.problems, *([f"and {self.more:,} more"] if self.more else ())]
        listed = "\n".join(f"  - {line}" for line in lines)
        super().__init__(f"{where}: {count:,} problem{'s' if count != 1 else ''}\n{listed}")


class DataFileError(MimdsimError):
    """An event or reference file is missing, truncated, corrupt or out of range."""

    def __init__(self, path: object, reason: str, *, byte_offset: int | None = None):
        self.path = str(path)
        self.byte_offset = byte_offset
        at = "" if byte_offset is None else f" at byte {byte_offset}"
        self.reason = reason
        super().__init__(f"{path}{at}: {reason}")


class NotAFile(OSError):
    """Something else than a regular file is in the place of one; `strerror` says what: "it is not a regular file but a
    named pipe"."""

    def __str__(self) -> str:
        return f"{self.filename} {str(self.strerror).removeprefix('it ')}"


def of_the_machine(failure: BaseException) -> bool:
    """Whether a failure comes from the computer: its disks, its permissions, where output goes."""
    return isinstance(failure, OSError) and (failure.errno in MACHINE_FAILURES or no_temporary_folder(failure))


def no_temporary_folder(failure: OSError) -> bool:
    """Whether nothing can be written where temporary files go: that is the one file not found that has no name."""
    return failure.errno == errno.ENOENT and failure.filename is None


def cannot_write(path: object, problem: OSError) -> MimdsimError:
    """The error for a `path` that could not be written: disk full, read-only, no permission, or no place for a file."""
    if problem.errno in TOO_MANY_OPEN:  # it may be a file to read, or none, and another place helps nothing
        return MimdsimError(f"{problem.strerror}; allow more in the shell with  ulimit -n 1024")
    advice = "free some space and try again" if problem.errno in FULL else "choose another place"
    path = re.sub(rf"{re.escape(DRAFT)}[^/]*/new/", "", str(path))  # where the file would have been in the end
    return MimdsimError(f"{path}: cannot be written ({problem.strerror}); {advice}")


class DoesNotFit(MimdsimError):
    """A program needs more tile memory than the machine has."""


class MappingError(MimdsimError):
    """A program breaks a rule of the machine: reads what is not delivered, writes twice, or leaves its tile."""


class MissingExtra(MimdsimError):
    """An optional package is needed."""

    def __init__(self, package: str, extra: str, purpose: str):
        super().__init__(f"{purpose} needs the package '{package}': type  pip install 'mimdsim[{extra}]'")


def shortened(text: str, most: int = 80) -> str:
    """`text`, cut after its first characters if it is longer than `most`, with its length; halves of characters, which
    no output takes, as escapes."""
    text = text.encode("utf-8", "backslashreplace").decode()
    return text if len(text) <= most else f"{text[: most // 2]}.. ({len(text):,} characters)"


MOST_KNOWN = 24  # words that are listed


def suggest(word: str, known: Iterable[str]) -> str:
    """`; did you mean 'x'?` for the known word nearest to `word`, or the known words when none is near, of many those
    that are nearest."""
    options = sorted(set(known))
    listed = options
    if more := max(len(options) - MOST_KNOWN, 0):
        listed = sorted(difflib.get_close_matches(word, options, n=MOST_KNOWN, cutoff=0.0))
    others = f" and {more} others" if more else ""
    return near(word, options) or (f"; known: {', '.join(listed)}{others}" if options else "")


def near(word: str, known: Iterable[str]) -> str:
    """`; did you mean 'x'?` for the known word nearest to `word`, or nothing when none is near."""
    options = {each.lower(): each for each in sorted(set(known))}
    found = difflib.get_close_matches(word.lower(), options, n=1, cutoff=0.6)
    return f"; did you mean '{options[found[0]]}'?" if found else ""


def check_choice(what: str, value: str, known: Collection[str]) -> None:
    """Raise MappingError where the value of `what` is none of the known words."""
    if value not in known:
        raise MappingError(f"{what} = {value!r} is not a valid choice{suggest(value, known)}")


def users_frame(failure: BaseException, file: str = "") -> traceback.FrameSummary | None:
    """Where the user's code raised: the innermost line in their `file`, else outside of this package, else at all."""
    frames = [frame for frame in traceback.extract_tb(failure.__traceback__) if frame.filename != GENERATED]
    theirs = [frame for frame in frames if file and same_file(frame.filename, file)]
    theirs = theirs or [frame for frame in frames if not Path(frame.filename).resolve().is_relative_to(PACKAGE)]
    return next(reversed(theirs or frames), None)


def same_file(one: str, other: str) -> bool:
    """Whether two paths, relative or not, name one file."""
    return Path(one).resolve() == Path(other).resolve()
