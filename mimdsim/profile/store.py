"""Profiles on disk: canonical JSON with a digest of its values, written atomically, validated when read."""

from __future__ import annotations

import dataclasses
import math
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from mimdsim.base.errors import DataFileError, near, shortened
from mimdsim.base.files import are_plain, digest_of, dump_json, parse_json, read_bounded_text, write_atomically
from mimdsim.base.units import counted
from mimdsim.profile.records import OLDER_VERSIONS, SCHEMA_VERSION, RunProfile
from mimdsim.profile.validate import contradictions

MAX_PROFILE_BYTES = 512 << 20  # a tile takes 140 bytes, a chip has a million at most, and a file may have two
MOST_SAID = 3  # problems of a file listed in one message
DIGEST = "sha256"  # key of the digest; files of 0.1.0 and of other tools have none


def save_profile(path: Path | str, profile: RunProfile) -> None:
    """Write `profile` as canonical JSON: equal profiles are equal bytes.

    A loss that is not a number, as when a training diverged, is written as text ("nan"), because JSON has no such
    number.
    """
    table = _table_of(profile)
    if profile.training is not None:
        table["training"]["loss"] = [loss if math.isfinite(loss) else str(loss) for loss in profile.training.loss]
    write_atomically(Path(path), dump_json(table | {DIGEST: digest_of(_as_whole(table))}))


def load_profile(path: Path | str) -> RunProfile:
    """Read a profile; raises DataFileError for a missing, oversized, malformed, newer, contradictory or edited file.

    path: of a profile.json.

        >>> mimdsim.load_profile("mine/profile.json").tiled.cycles  # doctest: +SKIP
    """
    path = Path(path)
    table = _read_table(path)
    written = table.pop(DIGEST, None) if isinstance(table, dict) else None
    unchanged = written is None or written == digest_of(_as_whole(table))
    version = table.get("schema_version") if isinstance(table, dict) else None
    older = isinstance(version, int) and version in OLDER_VERSIONS
    if older:
        table = {**table, "schema_version": SCHEMA_VERSION}
    elif version != SCHEMA_VERSION:
        known = " or ".join(str(one) for one in (*OLDER_VERSIONS, SCHEMA_VERSION))
        raise DataFileError(path, f"has schema_version {shortened(repr(version))}; this mimdsim reads {known}")
    try:
        profile = _adapter().validate_python(table)
    except ValidationError as problem:
        first = problem.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise DataFileError(
            path, f"field '{shortened(where)}': {first['msg']} ({counted(problem.error_count(), 'problem')})"
        ) from None
    if other := _unfaithful_field(table, _table_of(profile), "", older=older):
        raise DataFileError(path, other)
    if wrong := contradictions(profile, MOST_SAID + 1):
        more = "; and more" if len(wrong) > MOST_SAID else ""
        raise DataFileError(path, "; ".join(wrong[:MOST_SAID]) + more)
    if not unchanged:  # last, since the others say where
        why = f"was changed after mimdsim wrote it: its values do not match its '{DIGEST}'"
        raise DataFileError(path, f"{why}; make it again, or, if the change is meant, delete its key '{DIGEST}'")
    return profile


def _table_of(value: Any) -> Any:
    """`dataclasses.asdict`, less its copies of columns, which have a number for every tile."""
    if dataclasses.is_dataclass(value):
        return {each.name: _table_of(getattr(value, each.name)) for each in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {name: _table_of(each) for name, each in value.items()}
    if isinstance(value, tuple) and not are_plain(value):
        return tuple(map(_table_of, value))
    return value


def _as_whole(value: Any) -> Any:
    """JSON with 1 for 1.0, which other programs write in its place."""
    if isinstance(value, dict):
        return {name: _as_whole(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return value if are_plain(value) and float not in map(type, value) else [_as_whole(each) for each in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _unfaithful_field(said: Any, read: Any, where: str, *, older: bool) -> str:
    """The first field of the file that was ignored, invented or converted when it was read; what an `older` version
    lacks has the value that the field has by default."""
    if isinstance(read, dict):
        if unknown := sorted(said.keys() - read.keys()):
            return f"field '{where}{shortened(unknown[0])}': no field has this name{near(unknown[0][:80], read)}"
        if (missing := sorted(read.keys() - said.keys())) and not older:
            return f"field '{where}{missing[0]}' is missing"
        entries = [(name, said[name], read[name]) for name in said]
    elif isinstance(read, tuple):
        if are_plain(read) and are_plain(said) and tuple(said) == read and bool not in map(type, (*said, *read)):
            return ""
        entries = [(index, one, other) for index, (one, other) in enumerate(zip(said, read, strict=True))]
    elif (said == read and isinstance(said, bool) == isinstance(read, bool)) or (
        isinstance(read, float) and not math.isfinite(read)
    ):  # a loss as text, checked elsewhere
        return ""
    else:
        return f"field '{where[:-1]}': {shortened(repr(said))} would be read as {shortened(repr(read))}"
    return next(
        (
            found
            for name, one, other in entries
            if (found := _unfaithful_field(one, other, f"{where}{name}.", older=older))
        ),
        "",
    )


@cache
def _adapter() -> TypeAdapter[RunProfile]:
    """The type checker; building it takes longer than most checks."""
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
        raise DataFileError(path, f"{problem}, not a mimdsim profile") from None
    try:
        return parse_json(text)
    except (ValueError, RecursionError) as problem:
        raise DataFileError(path, f"is not JSON: {shortened(str(problem), 300)}") from None
