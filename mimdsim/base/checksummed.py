"""Files that mimdsim reads back: each holds a digest of its name and content, so that none is mistaken for another."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np

from mimdsim.base.errors import DataFileError
from mimdsim.base.files import dump_json, parse_json, read_bounded, write_atomically
from mimdsim.base.npz_reader import NpzFile, npz_bytes

DIGITS = 64
MAX_ENTRIES = 1 << 32
JSON_END = b'"\n}\n'


def write_sealed_json(path: Path, table: dict[str, Any]) -> None:
    """A table that is not empty as JSON, its last key the digest."""
    head = dump_json(table).encode().removesuffix(b"\n}\n") + b',\n "sha256": "'
    write_atomically(path, sealed(path, head, JSON_END))


def write_sealed_arrays(path: Path, arrays: dict[str, np.ndarray]) -> None:
    """Arrays as NPZ, the digest in the archive's comment, which ends the file."""
    without_comment = npz_bytes(arrays)[:-2]  # the last two bytes are its length
    write_atomically(path, sealed(path, without_comment + DIGITS.to_bytes(2, "little"), b""))


def read_sealed_json(path: Path, most: int, advice: str) -> dict[str, Any]:
    """What `write_sealed_json` wrote to this path; raises DataFileError with `advice` for anything else."""
    try:
        table = parse_json(_read(path, most, JSON_END, advice).decode())
        table.pop("sha256")
        return dict(table)
    except (ValueError, RecursionError, AttributeError, KeyError) as problem:
        raise DataFileError(path, f"is not JSON written by mimdsim ({problem}); {advice}") from None


def read_sealed_arrays(path: Path, most: int, advice: str, most_entries: int = MAX_ENTRIES) -> dict[str, np.ndarray]:
    """What `write_sealed_arrays` wrote to this path, in a file of at most so many bytes and with arrays of at most so
    many entries in all; raises DataFileError with `advice` for anything else."""
    _read(path, most, b"", advice)
    with NpzFile(path) as file:  # only a forged file can fail from here on
        members = [file.member(info) for info in file.infos]
        if (entries := sum(member.entries for member in members)) > most_entries:
            raise DataFileError(path, f"holds {entries:,} entries, over {most_entries:,}; {advice}")
        return {member.name: file.whole(member) for member in members}


def sealed(path: Path, head: bytes, tail: bytes) -> bytes:
    """The content of a file with its digest."""
    return head + _digest(path, head, tail) + tail


def _read(path: Path, most: int, tail: bytes, advice: str) -> bytes:
    try:
        content = read_bounded(path, most)
    except OSError as problem:
        raise DataFileError(path, f"cannot be read ({problem.strerror or problem}); {advice}") from None
    except ValueError as problem:
        raise DataFileError(path, f"{problem}; {advice}") from None
    end = len(content) - len(tail)
    head, digest = content[: max(0, end - DIGITS)], content[max(0, end - DIGITS) : end]
    if content[end:] != tail or digest != _digest(path, head, tail):
        raise DataFileError(path, f"is damaged, or was written under another name: its digest does not match; {advice}")
    return content


def _digest(path: Path, head: bytes, tail: bytes) -> bytes:
    return hashlib.sha256(path.name.encode() + b"\0" + head + tail).hexdigest().encode()
