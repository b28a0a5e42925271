"""Files written completely or not at all."""

from __future__ import annotations

import contextlib
import hashlib
import json
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mimdsim.base.errors import MimdsimError, cannot_write, shortened

PART_BYTES = 1 << 20


def read_bounded_text(path: Path, most: int) -> str:
    """The UTF-8 text of a file of at most `most` bytes; raises as `read_bounded`, and UnicodeDecodeError."""
    return read_bounded(path, most).decode("utf-8")


def read_bounded(path: Path, most: int) -> bytes:
    """The content of a file of at most `most` bytes.

    Raises OSError, also for what is not a regular file (a device may never end), and ValueError for a longer file.
    """
    if path.exists() and not path.is_file():
        raise IsADirectoryError(f"{path} is a folder") if path.is_dir() else OSError(f"{path} is not a regular file")
    with path.open("rb") as file:
        content = bytearray()
        while part := file.read(min(PART_BYTES, most + 1 - len(content))):  # `read` makes room for all that it may read
            content += part
    if len(content) > most:
        raise ValueError(f"is over {most:,} bytes")
    return bytes(content)


def write_atomically(path: Path, content: str | bytes) -> None:
    """Write to a temporary name next to `path`, then rename: a reader never sees half a file.

    Raises MimdsimError that says why it cannot be written; then nothing is left.
    """
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


def toml_value(value: object) -> str:
    """A number, text or list as TOML."""
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(toml_value, value))}]"
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace('"', '\\"')
        return '"' + "".join(c if c.isprintable() else f"\\U{ord(c):08x}" for c in escaped) + '"'
    return str(value).lower() if isinstance(value, bool) else str(value)


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
