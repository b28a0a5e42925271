"""Profiles on disk: canonical JSON, written whole, validated when read."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from mimdsim.base.errors import DataFileError
from mimdsim.base.files import dump_json, write_atomically
from mimdsim.profile.records import SCHEMA_VERSION, RunProfile

MAX_PROFILE_BYTES = 64 << 20


def save_profile(path: Path, profile: RunProfile) -> None:
    """Write `profile` as canonical JSON: equal profiles are equal bytes."""
    write_atomically(path, dump_json(dataclasses.asdict(profile)))


def load_profile(path: Path) -> RunProfile:
    """Read a profile; raises DataFileError for a missing, oversized, malformed or newer file."""
    try:
        if path.stat().st_size > MAX_PROFILE_BYTES:
            raise DataFileError(path, f"is over {MAX_PROFILE_BYTES} bytes, not a profile of ours")
        table = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise DataFileError(path, "no such profile; make one with  mimdsim run --out DIR") from None
    except (OSError, UnicodeDecodeError, ValueError, RecursionError) as problem:
        raise DataFileError(path, f"is not JSON: {problem}") from None
    version = table.get("schema_version") if isinstance(table, dict) else None
    if version != SCHEMA_VERSION:
        raise DataFileError(path, f"has schema_version {version!r}; this mimdsim reads {SCHEMA_VERSION}")
    try:
        return TypeAdapter(RunProfile).validate_python(table)
    except ValidationError as problem:
        first = problem.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise DataFileError(path, f"field '{where}': {first['msg']} ({problem.error_count()} problems)") from None
