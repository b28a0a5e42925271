"""What-if sweeps: every combination of field values, timed in local processes, resumable, as table and figure.

Spikes do not depend on the machine, so they are recorded once per network and data (`activity/`) and every point is
compiled and re-timed. A point is kept under the digest of its resolved descriptions (`points/`); running the sweep
again computes only what is missing.
"""

from __future__ import annotations

import csv
import hashlib
import io
import itertools
import json
import os
import tomllib
import zipfile
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from mimdsim.base.errors import DataFileError, DescriptionError, DoesNotFit, suggest
from mimdsim.base.files import dump_json, writable_folder, write_atomically
from mimdsim.base.schema import build
from mimdsim.machine import MimdMachine, load_machine
from mimdsim.program import RecordedActivity
from mimdsim.run import compile_workload, config_digest, half_warning, open_data, retime, train_workload
from mimdsim.workload import Workload, load_workload

WORKLOAD_SECTIONS = ("data", "network", "training", "mapping", "seed")
MACHINE_SECTIONS = ("chip", "tile", "exchange", "sync", "host", "links", "matrix", "energy")
MAX_POINTS = 10_000
RESULTS = (
    "ms_per_training_step",
    "ms_low",
    "ms_high",
    "compute_cycles",
    "exchange_cycles",
    "sync_cycles",
    "tile_balance",
    "tiles_used",
    "neurons_per_tile",
    "peak_bytes",
    "limit_bytes",
    "fits",
)


@dataclass(frozen=True, kw_only=True)
class Point:
    """One combination: what was changed, and the resolved descriptions."""

    changes: tuple[tuple[str, Any], ...]
    workload: Workload
    machine: MimdMachine
    activity_key: str

    @property
    def key(self) -> str:
        decides = f"{config_digest(self.workload, self.machine)}{self.activity_key}{code_digest()}"
        return hashlib.sha256(decides.encode()).hexdigest()


@lru_cache(maxsize=1)
def code_digest() -> str:
    """Digest of this package's sources: points of another version are not taken for this one's."""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def data_digest(path: str) -> str:
    """Digest of names, sizes and times of the files under `path`; '' without a path."""
    if not path:
        return ""
    digest = hashlib.sha256()
    root = Path(path)
    for file in sorted([root, *root.rglob("*")] if root.exists() else []):
        about = file.stat()
        digest.update(f"{file}{about.st_size}{about.st_mtime_ns}".encode())
    return digest.hexdigest()


def parse_value(text: str) -> Any:
    """A TOML value ('6', '1e9', '[64, 64]', 'true'), or the text itself ('624 KiB', 'adam')."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text.strip().strip("'\"")


def parse_axis(text: str) -> tuple[str, tuple[Any, ...]]:
    """'tile.sram_bytes=256 KiB,624 KiB' -> the key and its values; commas inside brackets do not separate."""
    key, equals, values = text.partition("=")
    if not equals or not values.strip():
        raise DescriptionError(f"--set {text}", ["write  --set section.key=value,value,..."])
    parts, depth = [""], 0
    for character in values:
        depth += (character == "[") - (character == "]")
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    found = tuple(parse_value(part.strip()) for part in parts if part.strip())
    if not found:
        raise DescriptionError(f"--set {text}", ["no value given; write  --set section.key=value,value,..."])
    return key.strip(), found


def split_changes(changes: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Changes of the workload and of the machine; raises DescriptionError for a key of neither."""
    workload: dict[str, Any] = {}
    machine: dict[str, Any] = {}
    for key, value in changes.items():
        section = key.split(".")[0]
        if section in WORKLOAD_SECTIONS:
            workload[key] = value
        elif section in MACHINE_SECTIONS:
            machine[key] = value
        else:
            known = [*WORKLOAD_SECTIONS, *MACHINE_SECTIONS]
            raise DescriptionError(f"--set {key}", [f"no section '{section}'{suggest(section, known)}"])
    return workload, machine


def points_of(workload: str, machine: str, axes: list[tuple[str, tuple[Any, ...]]], training_steps: int) -> list[Point]:
    """Every combination of the axes' values, checked before anything runs."""
    names = [name for name, _ in axes]
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise DescriptionError("sweep", [f"{', '.join(repeated)} given twice; write all its values in one --set"])
    load_tiled(machine)  # says that a GPU is none before its fields are looked for
    total = int(np.prod([len(values) for _, values in axes], dtype=np.int64)) if axes else 1
    if total > MAX_POINTS:
        raise DescriptionError("sweep", [f"{total} points; at most {MAX_POINTS}: give fewer values"])
    points = []
    for values in itertools.product(*(values for _, values in axes)):
        changes = dict(zip((key for key, _ in axes), values, strict=True))
        for_workload, for_machine = split_changes(changes)
        resolved = load_workload(workload, for_workload)
        chosen = load_tiled(machine, for_machine)
        if training_steps:
            table = resolved.model_dump(mode="json")
            table["training"] |= {"max_training_steps": training_steps}
            resolved = build(Workload, table, where=workload)
        points.append(
            Point(
                changes=tuple(changes.items()),
                workload=resolved,
                machine=chosen,
                activity_key=activity_key(resolved),
            )
        )
    return points


def load_tiled(name: str, changes: dict[str, Any] | None = None) -> MimdMachine:
    """A tiled machine; raises DescriptionError for a GPU."""
    loaded = load_machine(name)
    if isinstance(loaded, MimdMachine):
        loaded = load_machine(name, changes)
    if not isinstance(loaded, MimdMachine):
        raise DescriptionError(f"machine '{name}'", ["is a GPU; give a tiled machine here (GPUs: run --gpu, compare)"])
    return loaded


def activity_key(workload: Workload) -> str:
    """Digest of what decides the spikes: sources, data files, and all of the workload but mapping and titles (mapping
    moves only rounding)."""
    table = workload.model_dump(mode="json", exclude={"mapping", "title", "name"})
    decides = json.dumps(table, sort_keys=True) + data_digest(workload.data.path) + code_digest()
    return hashlib.sha256(decides.encode()).hexdigest()[:24]


def run_sweep(
    points: list[Point], folder: Path, processes: int, progress: Callable[[str, int, int], None]
) -> list[dict[str, Any]]:
    """Results of every point in order; computes what `folder` does not hold yet."""
    writable_folder(folder)
    roomiest: dict[str, Point] = {}  # values do not depend on the machine, but some machines have too few tiles
    for point in points:
        known = roomiest.setdefault(point.activity_key, point)
        if point.machine.chip.tiles > known.machine.chip.tiles:
            roomiest[point.activity_key] = point
    waiting = [point for key, point in roomiest.items() if not (folder / "activity" / f"{key}.npz").exists()]
    for done, _ in enumerate(_in_processes(_record, waiting, folder, processes), start=1):
        progress("recording spikes", done, len(waiting))
    open_points = [point for point in points if not (folder / "points" / f"{point.key}.json").exists()]
    for done, _ in enumerate(_in_processes(_time_point, open_points, folder, processes), start=1):
        progress("timing points", done, len(open_points))
    rows = []
    for point in points:
        row = _load_point(folder / "points" / f"{point.key}.json")
        rows.append({**{key: _shown(value) for key, value in point.changes}, **row})
    return rows


def _in_processes(
    work: Callable[[Point, Path], None], points: list[Point], folder: Path, processes: int
) -> Iterator[None]:
    if processes <= 1 or len(points) <= 1:
        for point in points:
            work(point, folder)
            yield
        return
    with ProcessPoolExecutor(max_workers=min(processes, len(points))) as pool:
        yield from pool.map(work, points, itertools.repeat(folder))


def _record(point: Point, folder: Path) -> None:
    """Train and keep the spikes of the last training step; memory limits do not matter for values."""
    # spikes are the same wherever they are selected, and the last tiles are too few for some of the points
    anywhere = point.workload.mapping.model_copy(update={"selection_tiles": "published"})
    workload = point.workload.model_copy(update={"mapping": anywhere})
    try:
        compiled = compile_workload(workload, point.machine, must_fit=False)
    except DoesNotFit:
        return  # too few tiles even on the largest machine: every point of this activity says so
    log = train_workload(workload, compiled, open_data(workload))
    arrays: dict[str, np.ndarray] = {}
    for layer, ids in log.activity.ids.items():
        arrays[f"ids.{layer}"], arrays[f"counts.{layer}"] = ids, log.activity.counts[layer]
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)  # type: ignore[arg-type]
    write_atomically(folder / "activity" / f"{point.activity_key}.npz", buffer.getvalue())


def load_activity(path: Path) -> RecordedActivity:
    """Recorded spikes from disk; raises DataFileError for anything else."""
    try:
        with np.load(path, allow_pickle=False) as stored:
            ids = {name.removeprefix("ids."): stored[name] for name in stored.files if name.startswith("ids.")}
            counts = {name.removeprefix("counts."): stored[name] for name in stored.files if name.startswith("counts.")}
    except (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile) as problem:
        raise DataFileError(path, f"is no recorded activity ({problem}); delete it to record again") from None
    return RecordedActivity(ids=ids, counts=counts, dropped={})


def _time_point(point: Point, folder: Path) -> None:
    try:
        compiled = compile_workload(point.workload, point.machine, must_fit=False)
    except DoesNotFit as refusal:  # too few tiles: nothing to time
        row: dict[str, Any] = dict.fromkeys(RESULTS)
        row |= {"fits": False, "note": str(refusal)}
    else:
        activity = load_activity(folder / "activity" / f"{point.activity_key}.npz")
        profile = retime(compiled, point.machine, activity)
        limit = point.machine.tile.sram_bytes
        row = {
            "ms_per_training_step": round(1e3 * profile.seconds_per_training_step, 6),
            "ms_low": round(1e3 * profile.seconds_low, 6),
            "ms_high": round(1e3 * profile.seconds_high, 6),
            "compute_cycles": profile.compute_cycles,
            "exchange_cycles": profile.exchange_cycles,
            "sync_cycles": profile.sync_cycles,
            "tile_balance": round(profile.tile_balance, 4),
            "tiles_used": profile.tiles_used,
            "neurons_per_tile": compiled.placement.neurons_per_tile,
            "peak_bytes": compiled.memory.peak_bytes,
            "limit_bytes": limit,
            "fits": compiled.memory.peak_bytes <= limit,
            "note": "; ".join(half_warning(point.workload)),
        }
    write_atomically(folder / "points" / f"{point.key}.json", dump_json(row))


def _load_point(path: Path) -> dict[str, Any]:
    try:
        row = json.loads(path.read_text())
    except (OSError, ValueError) as problem:
        raise DataFileError(path, f"is no sweep point ({problem}); delete it to compute it again") from None
    if not isinstance(row, dict) or any(name not in row for name in RESULTS):
        raise DataFileError(path, "lacks results; delete it to compute it again")
    return row


def _shown(value: Any) -> Any:
    return "-".join(str(item) for item in value) if isinstance(value, (list, tuple)) else value


def write_results(rows: list[dict[str, Any]], axes: list[str], folder: Path) -> list[Path]:
    """sweep.csv and sweep.png; the first axis goes along x, the others make the lines."""
    from mimdsim.report.figures_sweep import draw_sweep
    from mimdsim.report.style import picture

    table = io.StringIO()
    writer = csv.DictWriter(table, fieldnames=[*axes, *RESULTS, "note"], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    paths = [folder / "sweep.csv"]
    write_atomically(paths[0], table.getvalue())
    figure = draw_sweep(rows, axes)
    if figure is not None:
        paths.append(folder / "sweep.png")
        write_atomically(paths[1], picture(figure, "png"))
    return paths


def table_lines(rows: list[dict[str, Any]], axes: list[str]) -> list[str]:
    """The table for the console: changed fields, milliseconds with interval, cycle shares, memory."""
    header = [*axes, "ms/step", "interval", "compute", "exchange", "sync", "peak KiB", "fits"]
    cells = [header]
    for row in rows:
        line = [str(row[key]) for key in axes]
        if row["ms_per_training_step"] is None:
            cells.append([*line, "-", "-", "-", "-", "-", "-", "no tiles"])
            continue
        total = max(1, row["compute_cycles"] + row["exchange_cycles"] + row["sync_cycles"])
        shares = [f"{100 * row[name] / total:.0f} %" for name in ("compute_cycles", "exchange_cycles", "sync_cycles")]
        interval = f"{row['ms_low']:.3g}-{row['ms_high']:.3g}"
        memory = f"{row['peak_bytes'] / 1024:.0f}"
        fits = "yes" if row["fits"] else f"no, {(row['peak_bytes'] - row['limit_bytes']) / 1024:.0f} KiB over"
        cells.append([*line, f"{row['ms_per_training_step']:.4g}", interval, *shares, memory, fits])
    widths = [max(len(line[column]) for line in cells) for column in range(len(header))]
    return ["  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)) for line in cells]


def default_processes() -> int:
    return os.cpu_count() or 1
