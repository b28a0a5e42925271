"""The page of all runs and studies below a folder: one table to filter, and two runs side by side."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

from mimdsim.base.errors import MimdsimError
from mimdsim.base.files import read_bounded_text
from mimdsim.base.schema import parse_toml
from mimdsim.base.units import show_bytes
from mimdsim.profile import RunProfile, load_profile
from mimdsim.report.formatting import changed_fields, clipped, interval, milliseconds, plain, reach
from mimdsim.report.page import script_json, template
from mimdsim.report.tables import Cell, Value, percent, shown, size, table, three_digits

MOST = 500  # runs and studies of one page
DEEPEST = 4  # folders within each other
MAX_STUDY_BYTES = 1 << 20
LONGEST = 160  # characters of a cell
NONE = "–"


def index_page(folder: Path, progress: Callable[[str, int, int], None] | None = None) -> str:
    """The page of every run and study below `folder`, newest first; what cannot be read is named with its reason.
    Raises MimdsimError where there is none."""
    found = _found(folder)
    if not found:
        raise MimdsimError(f"{folder}: holds no profile.json and no study; make one with  mimdsim run --out DIR")
    rows: list[Sequence[Value]] = []
    compared: list[dict[str, Any]] = []
    for number, path in enumerate(found[:MOST]):
        if progress is not None:
            progress("reading runs", number, min(len(found), MOST))
        name = path.parent.relative_to(folder).as_posix()
        try:
            rows.append(_study_row(path, folder) if path.suffix == ".toml" else _run_row(path, folder, compared))
        except (MimdsimError, OSError, ValueError) as problem:
            rows.append((name, "unreadable", clipped(str(problem), LONGEST), *[NONE] * 6, _date(path)))
    left = len(found) - len(rows)
    headers = (
        "folder", "what", "workload", "machine", "ms", "interval ms", "peak memory", "of limit", "balance", "date",
    )  # fmt: skip
    note = f"{left:,} older ones are left out." if left else ""
    runs = table("runs", "Newest first", headers, rows, f"{note} Times are per training step, or per run of a kernel.")
    return template("index.html").render(folder=folder.resolve().name, runs=runs, data=script_json(compared))


def _found(folder: Path) -> list[Path]:
    """Every profile.json and study.toml, newest first; links are not followed."""
    found = []
    for where, folders, files in os.walk(folder):
        within = Path(where)
        deep = len(within.relative_to(folder).parts)
        folders[:] = sorted(name for name in folders if not name.startswith(".") and deep < DEEPEST)
        name = next((name for name in ("study.toml", "profile.json") if name in files), None)
        if name is not None and (within / name).is_file():
            found.append(within / name)
    return sorted(found, key=lambda path: (-path.stat().st_mtime, path))


def _date(path: Path) -> str:
    return datetime.fromtimestamp(path.stat().st_mtime, UTC).strftime("%Y-%m-%d %H:%M")


def _folder_cell(path: Path, folder: Path) -> Cell:
    """The folder's name, which leads to its page if it has one."""
    within = path.parent.relative_to(folder)
    page = (within / "report.html").as_posix()
    there = (path.parent / "report.html").is_file()
    return Cell(text=clipped(within.as_posix(), LONGEST), link=f"./{quote(page)}" if there else "")


def _study_row(path: Path, folder: Path) -> Sequence[Value]:
    described = parse_toml(read_bounded_text(path, MAX_STUDY_BYTES), where=path.name)
    question = clipped(str(described.get("question", "")), LONGEST)
    what = ("study" if question else "sweep", question or NONE)
    return (_folder_cell(path, folder), *what, *[NONE] * 6, _date(path))


def _run_row(path: Path, folder: Path, compared: list[dict[str, Any]]) -> Sequence[Value]:
    profile = load_profile(path)
    tiled, name = profile.tiled, _folder_cell(path, folder)
    what = "run" if profile.network else "kernel"
    if tiled is None:
        return (name, what, clipped(profile.workload_title, LONGEST), *[NONE] * 6, _date(path))
    memory, milli = tiled.memory, 1e3 * tiled.seconds_per_training_step
    compared.append({"name": plain(name.text), "values": _measures(profile), "comparable": not tiled.incomparable})
    return (
        name,
        what,
        clipped(profile.workload_title, LONGEST),
        clipped(tiled.title, LONGEST),
        "unknown" if tiled.unknown else shown(milliseconds(milli / 1e3), milli),
        NONE if tiled.unknown else interval(tiled.seconds_low, tiled.seconds_high),
        size(memory.peak_bytes),
        percent(memory.peak_bytes, memory.limit_bytes),
        three_digits(tiled.tile_balance),
        _date(path),
    )


def _measures(profile: RunProfile) -> dict[str, tuple[float, str, bool]]:
    """Numbers of a run to compare, by name: value, text, and whether they are of its time."""
    tiled, training = profile.tiled, profile.training
    assert tiled is not None
    seconds = tiled.seconds_per_training_step
    found: dict[str, tuple[float, str, bool]] = {
        f"ms per {tiled.run_name}": (seconds, f"{milliseconds(seconds)} ({reach(tiled)})", True)
    }
    counts = {f"{part} cycles": getattr(tiled, f"{part}_cycles") for part in ("compute", "exchange", "sync")}
    found |= {name: (count, f"{count:,}", True) for name, count in counts.items()}
    found["tiles used"] = tiled.tiles_used, f"{tiled.tiles_used:,} of {tiled.tiles:,}", False
    found["tile balance"] = tiled.tile_balance, f"{tiled.tile_balance:.3f}", False
    found["time utilisation"] = tiled.time_utilisation, f"{100 * tiled.time_utilisation:.1f} %", False
    found["peak memory"] = tiled.memory.peak_bytes, tiled.memory.peak_of_limit, False
    received = sum(tiled.tile_columns.bytes_received)
    found["bytes received"] = received, show_bytes(received), False
    if training is not None and training.test_accuracy is not None:
        found["test accuracy"] = training.test_accuracy, f"{100 * training.test_accuracy:.1f} %", False
    found |= {f"{key}, changed": (0, value, False) for key, value in changed_fields(profile)}
    return {name: one for name, one in found.items() if math.isfinite(one[0])}
