"""Files that belong together are replaced together: a reader sees the files of one run, never a mixture of two.

Everything is written into a draft inside the folder, under a lock; only then are the old files replaced by
the new ones, by renaming. Locks belong to the operating system, so none outlives its process; the draft of a killed
process is removed by the next one to write.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from mimdsim.base.errors import DRAFT, MimdsimError, cannot_write
from mimdsim.base.files import writable_folder

LOCK = ".mimdsim.lock"
LONGEST_WAIT_SECONDS = 300.0  # drawing a report takes some seconds; a longer wait means the other process was stopped
LOOK_AGAIN_SECONDS = 0.05
HELD = {  # what a folder is of, by what is in it
    "study.toml": "a study or sweep",
    "points": "a study or sweep",
    "weights.safetensors": "the weights and report of a run",
    "profile.json": "the report of a kernel",
}
STUDY, RUN, KERNEL = HELD["study.toml"], HELD["weights.safetensors"], HELD["profile.json"]
HELD_ELSEWHERE = (errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES)


def refuse_other(folder: Path, *kinds: str) -> None:
    """Raise MimdsimError if a folder holds results of other kinds, some of whose files would be replaced."""
    held = next((what for name, what in HELD.items() if os.path.lexists(folder / name)), None)
    if held is not None and held not in kinds:
        raise MimdsimError(f"{folder}: holds {held}; choose another folder with --out")


@contextlib.contextmanager
def replace_files(folder: Path, known: Sequence[str]) -> Iterator[Path]:
    """A draft folder to write in; on leaving it, its files take the place of the `known` files of `folder`.

    known: all files that such a run may leave, in the order in which a reader opens them. Other files in `folder` stay.
    If the work in the draft fails, `folder` keeps what it has. Raises MimdsimError if `folder` cannot be written, or if
    another process has been writing there for LONGEST_WAIT_SECONDS.
    """
    writable_folder(folder)
    with _alone(folder):
        for left in folder.glob(f"{DRAFT}*"):  # left by a killed process: no other is active here
            shutil.rmtree(left, ignore_errors=True)
        try:
            draft = Path(tempfile.mkdtemp(prefix=DRAFT, dir=folder))
        except OSError as problem:
            raise cannot_write(folder, problem) from None
        try:
            yield writable_folder(draft / "new")
            _exchange(folder, draft, known)
        finally:
            shutil.rmtree(draft, ignore_errors=True)


def _exchange(folder: Path, draft: Path, known: Sequence[str]) -> None:
    """Move old files into the draft, then those of the draft into the folder; on an error nothing is changed."""
    new = [path.relative_to(draft / "new").as_posix() for path in (draft / "new").rglob("*") if path.is_file()]
    order = [*known, *sorted(set(new) - set(known))]
    moved: list[tuple[Path, Path]] = []
    try:
        for name in order:
            if (folder / name).is_dir():
                raise IsADirectoryError(errno.EISDIR, f"{name} is a folder there")
            if os.path.lexists(folder / name):
                _move(folder / name, draft / "old" / name, moved)
        for name in reversed(order):
            if name in new:
                _move(draft / "new" / name, folder / name, moved)
    except BaseException as problem:  # interrupted, too
        for before, after in reversed(moved):
            after.replace(before)
        raise cannot_write(folder, problem) if isinstance(problem, OSError) else problem from None


def _move(before: Path, after: Path, moved: list[tuple[Path, Path]]) -> None:
    after.parent.mkdir(parents=True, exist_ok=True)
    before.replace(after)
    moved.append((before, after))


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """The only process that writes to `folder`."""
    path = folder / LOCK
    until = time.monotonic() + LONGEST_WAIT_SECONDS
    while (held := _lock(path)) is None:
        if time.monotonic() > until:
            raise MimdsimError(
                f"{folder}: another mimdsim has been writing there for {LONGEST_WAIT_SECONDS:,.0f} s; stop it, or "
                "choose another folder"
            )
        time.sleep(LOOK_AGAIN_SECONDS)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):  # the folder may have become read-only
            path.unlink()
        os.close(held)


def _lock(path: Path) -> int | None:
    """The open lock file; None while another process has it."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    except OSError as problem:
        raise cannot_write(path, problem) from None
    with contextlib.ExitStack() as unless_ours:
        unless_ours.callback(os.close, descriptor)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(descriptor), path.stat()):
                unless_ours.pop_all()
                return descriptor
        except FileNotFoundError:  # removed by its previous owner
            pass
        except OSError as problem:
            if problem.errno not in HELD_ELSEWHERE:
                raise cannot_write(path, problem) from None
    return None
