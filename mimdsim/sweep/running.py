"""What-if sweeps: every combination of field values, timed in local processes, resumable, as table and figure.

Spikes do not depend on the machine, so they are recorded once per network and data (`activity/`) and every point is
compiled and re-timed. A point is kept under the digest of its resolved descriptions (`points/`); running the sweep
again computes only what is missing.
"""

from __future__ import annotations

import io
import itertools
import os
import zipfile
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from mimdsim.base.errors import DataFileError, DoesNotFit
from mimdsim.base.files import dump_json, writable_folder, write_atomically
from mimdsim.compiler import fits_executable
from mimdsim.graph import training_graph
from mimdsim.profile import EnergyProfile, seconds_by_source
from mimdsim.program import RecordedActivity
from mimdsim.run import (
    beyond_sources,
    compile_workload,
    half_warning,
    open_data,
    retime,
    time_on_gpus,
    train_workload,
    unscaled_energy,
    unused_chips,
)
from mimdsim.sweep.points import Point
from mimdsim.sweep.results import POINT_RESULTS, gpu_columns, load_point, shown, with_ratios
from mimdsim.workload import filled_activity, network_of


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
    unknown = {key: point for key, point in roomiest.items() if point.fill is None}
    waiting = [point for key, point in unknown.items() if not (folder / "activity" / f"{key}.npz").exists()]
    for done, _ in enumerate(_in_processes(_record, waiting, folder, processes), start=1):
        progress("recording spikes", done, len(waiting))
    open_points = [point for point in points if not (folder / "points" / f"{point.key}.json").exists()]
    for done, _ in enumerate(_in_processes(_time_point, open_points, folder, processes), start=1):
        progress("timing points", done, len(open_points))
    rows = []
    for point in points:
        row = load_point(folder / "points" / f"{point.key}.json")
        rows.append({**{key: shown(value) for key, value in point.changes}, **row})
    return with_ratios(rows)


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
    activity: RecordedActivity | None = None
    try:
        compiled = compile_workload(point.workload, point.machine, must_fit=False)
    except DoesNotFit as refusal:  # too few tiles: nothing to time
        row: dict[str, Any] = dict.fromkeys(POINT_RESULTS)
        row |= {"fits": False, "note": str(refusal)}
    else:
        if point.fill is None:
            activity = load_activity(folder / "activity" / f"{point.activity_key}.npz")
        else:
            activity = filled_activity(compiled.network, point.fill)
        profile = retime(compiled, point.machine, activity)
        limit = point.machine.tile.sram_bytes
        cautions = (
            *beyond_sources(point.machine),
            *unscaled_energy(point.machine, dict(point.changes)),
            *unused_chips(compiled, point.machine),
            *half_warning(point.workload),
        )
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
            "fits": compiled.memory.peak_bytes <= limit and fits_executable(compiled.memory, point.machine),
            **_millijoules(profile.energy),
            "samples_per_second": round(point.workload.training.batch / profile.seconds_per_training_step, 3),
            "seconds_by_source": [[part.source, part.seconds, part.half_width] for part in seconds_by_source(profile)],
            "note": "; ".join(cautions),
        }
    row |= _on_gpus(point, activity)
    write_atomically(folder / "points" / f"{point.key}.json", dump_json(row))


def _millijoules(energy: EnergyProfile | None) -> dict[str, float | None]:
    ends = (energy.joules, energy.joules_low, energy.joules_high) if energy else (None, None, None)
    names = ("millijoules", "millijoules_low", "millijoules_high")
    return {name: None if end is None else round(1e3 * end, 6) for name, end in zip(names, ends, strict=True)}


def default_processes() -> int:
    return os.cpu_count() or 1


def _on_gpus(point: Point, activity: RecordedActivity | None) -> dict[str, Any]:
    """The same graph on every GPU of the point: as published, and by the strongest strategy that fits."""
    columns: dict[str, Any] = {}
    if not point.gpus:
        return columns
    graph = training_graph(network_of(point.workload))
    for gpu in point.gpus:
        timed, _ = time_on_gpus(graph, (gpu,), activity)
        found: dict[str, Any] = dict.fromkeys(gpu_columns(gpu.name))
        for profile in timed:
            if profile.strategy == "as_published":
                found[f"{gpu.name} published_ms"] = round(1e3 * profile.seconds_per_training_step, 6)
        timed = tuple(profile for profile in timed if not profile.never_built)
        if timed:
            best = min(timed, key=lambda profile: profile.seconds_per_training_step)
            values = (
                1e3 * best.seconds_per_training_step,
                1e3 * best.seconds_low,
                1e3 * best.seconds_high,
                f"{best.strategy}, {best.precision}",
                1e3 * best.energy.joules if best.energy else None,
            )
            named = gpu_columns(gpu.name)[1:]
            found |= dict(zip(named, (round(v, 6) if isinstance(v, float) else v for v in values), strict=True))
        columns |= found
    return columns
