"""Files written completely or not at all.

Files that belong together are replaced together: a reader sees the files of one run, never a mixture of two.
Everything is written into a draft inside the folder, under a lock; only then are the old files replaced by the new
ones, by renaming. Locks belong to the operating system, so none outlives its process; the draft of a killed process is
removed by the next one to write.
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import fcntl
import hashlib
import json
import os
import secrets
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator, Sequence
from io import BufferedReader
from pathlib import Path
from typing import Any, BinaryIO

from mimdsim.base.errors import DataFileError, MimdsimError, NotAFile, cannot_write, shortened

PART_BYTES = 1 << 20
KINDS = {
    stat.S_IFDIR: "a folder", stat.S_IFIFO: "a named pipe", stat.S_IFSOCK: "a socket", stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}  # fmt: skip


LONGEST_NAME, LONGEST_PATH = 255, 4095  # bytes of a part, of all: NAME_MAX and PATH_MAX of Linux, less its ending zero


def path_problem(text: str) -> str:
    """Why no file can have this path, in words that follow it; '' if one can."""
    if not text.strip():
        return "is empty; give a name"
    try:
        path = text.encode()
    except UnicodeEncodeError:
        return "is not UTF-8; give another name"
    if b"\0" in path:
        return "holds a zero byte; give another name"
    if max(map(len, path.split(b"/"))) > LONGEST_NAME or len(path) > LONGEST_PATH:
        return "is too long for a file; give a shorter name"
    return ""


def open_regular(path: Path) -> BufferedReader:
    """A regular file, opened for reading; every file that others may have written is opened here.

    Raises NotAFile for a folder, pipe, socket or device, for which a reader could wait for ever, and for a link to
    nothing; else OSError.
    """
    try:
        _refuse_other_kinds(path, os.stat(path))  # before it is opened, which a device may take as a command
    except FileNotFoundError:
        if not os.path.islink(path):
            raise
        what = f"it is a link to '{shortened(os.readlink(path), 200)}', which does not exist"
        raise NotAFile(errno.ENOENT, what, str(path)) from None
    except ValueError:  # a zero byte
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path)) from None
    at_once = getattr(os, "O_NONBLOCK", 0)  # a pipe would wait for its writer
    file = open(path, "rb", opener=lambda name, flags: os.open(name, flags | at_once))  # noqa: SIM115
    try:
        _refuse_other_kinds(path, os.fstat(file.fileno()))
    except BaseException:
        file.close()
        raise
    return file


@contextlib.contextmanager
def open_data(path: Path, missing: str = "no such file") -> Iterator[BinaryIO]:
    """As `open_regular`; raises DataFileError with `missing` if there is no file, else with why it cannot be read."""
    try:
        with open_regular(path) as file:
            yield file
    except FileNotFoundError:
        raise DataFileError(path, missing) from None
    except OSError as problem:
        raise DataFileError(path, f"cannot be read: {problem.strerror}") from None


def other_kind(path: Path) -> str:
    """What is in the place of a file; '' for a file, a link, nothing, and a folder, which cannot be replaced by one."""
    try:
        kind = stat.S_IFMT(os.lstat(path).st_mode)
    except OSError:
        return ""
    return "" if kind in (stat.S_IFREG, stat.S_IFLNK, stat.S_IFDIR) else KINDS.get(kind, "something else")


def _refuse_other_kinds(path: Path, about: os.stat_result) -> None:
    kind = stat.S_IFMT(about.st_mode)
    if kind != stat.S_IFREG:
        what = f"it is not a regular file but {KINDS.get(kind, 'something else')}"
        raise NotAFile(errno.EISDIR if kind == stat.S_IFDIR else errno.EINVAL, what, str(path))


def with_home(text: str) -> Path:
    """A path as a description gives it, `~` being the home folder; as it is where there is no such folder."""
    try:
        return Path(text).expanduser()
    except RuntimeError:
        return Path(text)


def read_bounded_text(path: Path, most: int) -> str:
    """The UTF-8 text of a file of at most `most` bytes, without a byte order mark.

    Raises as `read_bounded`, and UnicodeDecodeError.
    """
    return read_bounded(path, most).decode("utf-8-sig")


def read_bounded(path: Path, most: int) -> bytes:
    """The content of a file of at most `most` bytes.

    Raises as `open_regular`, and ValueError for a longer file.
    """
    with open_regular(path) as file:
        content = bytearray()
        while part := file.read(min(PART_BYTES, most + 1 - len(content))):  # `read` makes room for all that it may read
            content += part
    if len(content) > most:
        raise ValueError(f"is over {most:,} bytes")
    return bytes(content)


def read_whole(path: Path) -> bytes:
    """The content of a regular file of any length; raises DataFileError."""
    with open_data(path) as file:
        return file.read()


def write_atomically(path: Path, content: str | bytes) -> None:
    """Write to a temporary name next to `path`, then rename: a reader never sees half a file.

    Raises MimdsimError that says why it cannot be written; then nothing is left.
    """
    if kind := other_kind(path):  # which would be replaced
        raise MimdsimError(f"{path}: is not a regular file but {kind}; choose another place")
    temporary = path.with_name(f".{secrets.token_hex(8)}.tmp")  # other machines may write to the same disk
    data = content.encode() if isinstance(content, str) else content
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_bytes(data)
        temporary.replace(path)
    except OSError as problem:
        raise cannot_write(path, problem) from None
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()


def writable_folder(path: Path) -> Path:
    """`path` as a folder that exists and can be written; raises MimdsimError before any work is wasted."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        probe = path / f".{secrets.token_hex(8)}.tmp"
        probe.write_bytes(b"")
        probe.unlink()
    except OSError as problem:
        raise MimdsimError(f"{path}: cannot be written as a folder ({problem.strerror}); choose another") from None
    return path


def folder_to_make(out: str | Path | None, name: str) -> Path:
    """`out`, as a folder that can be written, or without it one that is gone when the process ends."""
    if out is not None:
        return writable_folder(Path(out))
    folder = Path(tempfile.mkdtemp(prefix=f"mimdsim-{name}-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


@contextlib.contextmanager
def folders_to_write(*paths: Path) -> Iterator[None]:
    """`paths` as folders that can be written; those made here are removed if the work fails and leaves them empty.

    Raises MimdsimError before any work is wasted.
    """
    made: list[Path] = []
    try:
        for path in paths:
            made += [folder for folder in (*reversed(path.parents), path) if not folder.exists()]
            writable_folder(path)
        yield
    except BaseException:  # also for an interrupted run
        for folder in reversed(made):
            with contextlib.suppress(OSError):  # only an empty folder can be removed
                folder.rmdir()
        raise


def dump_json(value: Any) -> str:
    """JSON with sorted keys and a final newline, so that equal values are equal bytes."""
    return json.dumps(value, sort_keys=True, indent=1, allow_nan=False) + "\n"


def parse_json(text: str) -> Any:
    """The parsed JSON; raises ValueError or RecursionError for invalid JSON, and ValueError for a repeated key, where
    other readers would take one or the other."""
    return json.loads(text, object_pairs_hook=_each_once)


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for name, value in pairs:
        if name in made:
            raise ValueError(f"'{shortened(name)}' appears twice")
        made[name] = value
    return made


def changes_mark(changes: dict[str, Any]) -> str:
    """A suffix for a folder's name, so that a run changed with --set never replaces the report and weights of the
    unchanged run: a digest, the same for the same changes; empty without changes."""
    if not changes:
        return ""
    said = json.dumps(changes, sort_keys=True, default=str)
    return f"-set-{hashlib.sha256(said.encode()).hexdigest()[:6]}"


LOCK = ".mimdsim.lock"
DRAFT = ".mimdsim-draft-"
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
