"""Files written completely or not at all."""

from __future__ import annotations

import atexit
import contextlib
import errno
import hashlib
import json
import os
import secrets
import shutil
import stat
import tempfile
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


def digest_of(value: object) -> str:
    """sha256 of a value that JSON can hold."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def dump_json(value: Any) -> str:
    """JSON with sorted keys and a final newline, so that equal values are equal bytes."""
    return _indented(value, "\n") + "\n"


def _indented(value: Any, line: str) -> str:
    """As `json.dumps` with indent=1, which goes through every number of a column in Python. line: the end of a line and
    how far the next is indented."""
    inner = f"{line} "
    if isinstance(value, dict) and value and all(isinstance(key, str) for key in value):
        entries = [f"{json.dumps(key)}: {_indented(value[key], inner)}" for key in sorted(value)]
        return f"{{{inner}{f',{inner}'.join(entries)}{line}}}"
    if isinstance(value, list | tuple) and value:
        if are_plain(value):
            entries = [json.dumps(value, separators=(f",{inner}", ": "), allow_nan=False)[1:-1]]
        else:
            entries = [_indented(each, inner) for each in value]
        return f"[{inner}{f',{inner}'.join(entries)}{line}]"
    return json.dumps(value, sort_keys=True, indent=1, allow_nan=False)


def are_plain(values: Sequence[Any]) -> bool:
    """Whether values are numbers, texts, truth values or nothing, and none holds others."""
    return {int, float, str, bool, type(None)}.issuperset(map(type, values))


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
