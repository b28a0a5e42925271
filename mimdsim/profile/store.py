"""Profiles on disk: canonical JSON, written whole, validated when read."""

from __future__ import annotations

import dataclasses
import json
import math
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from mimdsim.base.errors import DataFileError
from mimdsim.base.files import dump_json, read_bounded_text, write_atomically
from mimdsim.profile.meaning import contradictions
from mimdsim.profile.records import SCHEMA_VERSION, RunProfile

MAX_PROFILE_BYTES = 64 << 20
MOST_SAID = 3  # problems of a file that one message names


def save_profile(path: Path | str, profile: RunProfile) -> None:
    """Write `profile` as canonical JSON: equal profiles are equal bytes.

    A loss that is no number, as of a training that diverged, is written as text ("nan"): JSON has no such number.
    """
    table = dataclasses.asdict(profile)
    if profile.training is not None:
        table["training"]["loss"] = [loss if math.isfinite(loss) else str(loss) for loss in profile.training.loss]
    write_atomically(Path(path), dump_json(table))


def load_profile(path: Path | str) -> RunProfile:
    """Read a profile; raises DataFileError for a missing, oversized, malformed, newer or contradictory file."""
    path = Path(path)
    table = _read_table(path)
    version = table.get("schema_version") if isinstance(table, dict) else None
    if version != SCHEMA_VERSION:
        raise DataFileError(path, f"has schema_version {version!r}; this mimdsim reads {SCHEMA_VERSION}")
    try:
        profile = _adapter().validate_python(table)
    except ValidationError as problem:
        first = problem.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise DataFileError(path, f"field '{where}': {first['msg']} ({problem.error_count()} problems)") from None
    if wrong := contradictions(profile, MOST_SAID + 1):
        more = "; and more" if len(wrong) > MOST_SAID else ""
        raise DataFileError(path, "; ".join(wrong[:MOST_SAID]) + more)
    return profile


@cache
def _adapter() -> TypeAdapter[RunProfile]:
    """What checks types; building it takes longer than most checks."""
    return TypeAdapter(RunProfile)


def _read_table(path: Path) -> Any:
    try:
        text = read_bounded_text(path, MAX_PROFILE_BYTES)
    except FileNotFoundError:
        raise DataFileError(path, "no such profile; make one with  mimdsim run --out DIR") from None
    except UnicodeDecodeError as problem:
        raise DataFileError(path, f"is not JSON: {problem}") from None
    except OSError as problem:
        raise DataFileError(path, f"cannot be read: {problem}; name the profile.json that a run wrote") from None
    except ValueError as problem:
        raise DataFileError(path, f"{problem}, not a profile of ours") from None
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as problem:
        raise DataFileError(path, f"is not JSON: {problem}") from None
