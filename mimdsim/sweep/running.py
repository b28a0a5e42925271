"""What-if sweeps: every combination of field values, timed in local processes, resumable, as table and figure.

Spikes do not depend on the machine, so they are recorded once per network and data (`activity/`) and every point is
compiled and re-timed. A point is saved under the digest of its resolved descriptions (`points/`); running the sweep
again computes only what is missing.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import ValidationError

from mimdsim.base.errors import DataFileError, DoesNotFit
from mimdsim.base.files import writable_folder
from mimdsim.base.sealed import read_sealed_arrays, read_sealed_json, write_sealed_arrays, write_sealed_json
from mimdsim.compiler import fits_executable
from mimdsim.graph import training_graph
from mimdsim.profile import EnergyProfile, TiledProfile, seconds_by_source
from mimdsim.program import RecordedActivity
from mimdsim.run import (
    beyond_sources,
    compile_workload,
    half_warning,
    open_data,
    other_costs,
    retime,
    time_on_gpus,
    train_workload,
    unscaled_energy,
    unused_chips,
)
from mimdsim.search import Aims, Case, best_of, search
from mimdsim.sweep.points import Point
from mimdsim.sweep.pool import each_point
from mimdsim.sweep.results import POINT_RESULTS, SILICON, gpu_columns, load_point, shown, with_ratios
from mimdsim.workload import MappingOptions, filled_activity, network_of

MAX_MAPPING_BYTES = 1 << 20
MAX_ACTIVITY_BYTES = 1 << 32  # spikes of one training step, packed


def run_sweep(
    points: list[Point], folder: Path, processes: int, progress: Callable[[str, int, int], None]
) -> list[dict[str, Any]]:
    """Results of every point in order; computes what `folder` does not hold yet.

    A point that fails (a damaged file, missing data, a killed process) gets a row without results and with a note; the
    others continue. Raises the first reason if there is no result at all, and internal errors.
    """
    writable_folder(folder)
    roomiest: dict[str, Point] = {}  # values do not depend on the machine, but some machines have too few tiles
    for point in points:
        known = roomiest.setdefault(point.activity_key, point)
        if point.machine.chip.tiles > known.machine.chip.tiles:
            roomiest[point.activity_key] = point
    unknown = {key: point for key, point in roomiest.items() if point.fill is None}
    waiting = [point for key, point in unknown.items() if not activity_path(folder, key).exists()]
    problems: dict[str, Exception] = {}  # by the key of an activity or of a point
    with contextlib.closing(each_point(_record, waiting, folder, processes)) as recorded:
        for number, done in enumerate(recorded, start=1):
            progress("recording spikes", number, len(waiting))
            if done.problem is not None:
                problems[done.point.activity_key] = done.problem
    open_points = [
        point for point in points if point.activity_key not in problems and not point_path(folder, point.key).exists()
    ]
    unmapped = [point for point in open_points if point.best_mapping and not mapping_path(folder, point.key).exists()]
    with contextlib.closing(each_point(_search_point, unmapped, folder, processes)) as searched:
        for number, done in enumerate(searched, start=1):
            progress("searching mappings", number, len(unmapped))
            if done.problem is not None:
                problems[done.point.key] = done.problem
    open_points = [point for point in open_points if point.key not in problems]
    with contextlib.closing(each_point(_time_point, open_points, folder, processes)) as timed:
        for number, done in enumerate(timed, start=1):
            progress("timing points", number, len(open_points))
            if done.problem is not None:
                problems[done.point.key] = done.problem
    found = []
    for point in points:
        problem = problems.get(point.activity_key) or problems.get(point.key)
        try:
            found.append(
                load_point(point_path(folder, point.key)) if problem is None else _without_result(point, problem)
            )
        except DataFileError as damage:
            problems[point.key] = damage
            found.append(_without_result(point, damage))
    if problems and all(row["fits"] is None for row in found):
        raise next(iter(problems.values()))
    changes = ({key: shown(value) for key, value in point.changes} for point in points)
    return with_ratios([{**changed, **row} for changed, row in zip(changes, found, strict=True)])


def activity_path(folder: Path, key: str) -> Path:
    return folder / "activity" / f"{key}.npz"


def point_path(folder: Path, key: str) -> Path:
    return folder / "points" / f"{key}.json"


def mapping_path(folder: Path, key: str) -> Path:
    return folder / "mappings" / f"{key}.json"


def _without_result(point: Point, problem: Exception) -> dict[str, Any]:
    """The row of a point without results; only there `fits` is None."""
    columns = (*POINT_RESULTS, *(column for gpu in point.gpus for column in gpu_columns(gpu.name)))
    return dict.fromkeys(columns) | {"note": " ".join(str(problem).split())}


def _record(point: Point, folder: Path) -> None:
    """Train and keep the spikes of the last training step; memory limits do not matter for values."""
    # spikes do not depend on where they are selected, and the last tiles are too few for some points
    anywhere = point.workload.mapping.model_copy(update={"selection_tiles": "published"})
    workload = point.workload.model_copy(update={"mapping": anywhere})
    try:
        compiled = compile_workload(workload, point.machine, must_fit=False)
    except DoesNotFit:
        return  # too few tiles even on the largest machine: every point of this activity reports it
    log = train_workload(workload, compiled, open_data(workload))
    arrays: dict[str, np.ndarray] = {}
    for layer, ids in log.activity.ids.items():
        arrays[f"ids.{layer}"], arrays[f"counts.{layer}"] = ids, log.activity.counts[layer]
    write_sealed_arrays(activity_path(folder, point.activity_key), arrays)


def load_activity(path: Path) -> RecordedActivity:
    """Recorded spikes from disk; raises DataFileError for anything else."""
    stored = read_sealed_arrays(path, MAX_ACTIVITY_BYTES, "delete it to record again")
    ids = {name.removeprefix("ids."): array for name, array in stored.items() if name.startswith("ids.")}
    counts = {name.removeprefix("counts."): array for name, array in stored.items() if name.startswith("counts.")}
    return RecordedActivity(ids=ids, counts=counts, dropped={})


def _search_point(point: Point, folder: Path) -> None:
    """Search for the best mapping of a point and keep it: the other points try it too."""
    case = _case_of(point, _activity_of(point, folder))
    if case is None:
        return
    with contextlib.suppress(DoesNotFit):
        found = search(case, _aims_of(point), candidates=point.best_mapping, processes=1, explained=False)
        options = found.best.options
        if case.machine.links.chips == 1:
            options = options.model_copy(update={"tiles": options.tiles or case.machine.chip.tiles})
        write_sealed_json(mapping_path(folder, point.key), options.model_dump(mode="json"))


def _found_mappings(folder: Path) -> list[MappingOptions]:
    """What was found for the points of a sweep."""
    found = []
    for path in sorted((folder / "mappings").glob("*.json")):
        with contextlib.suppress(DataFileError, ValidationError):
            found.append(
                MappingOptions.model_validate(read_sealed_json(path, MAX_MAPPING_BYTES, "delete it to search again"))
            )
    return found


def _activity_of(point: Point, folder: Path) -> RecordedActivity | None:
    """Recorded spikes of a point; None: its lists are filled, or its layers have too few tiles to record any."""
    path = activity_path(folder, point.activity_key)
    return load_activity(path) if point.fill is None and path.exists() else None


def _case_of(point: Point, activity: RecordedActivity | None) -> Case | None:
    """What a mapping of a point is searched for; None: its spikes are not known."""
    network = network_of(point.workload)
    if activity is None and point.fill is not None:
        activity = filled_activity(network, point.fill)
    return None if activity is None else Case.of(network, point.machine, activity, point.workload.mapping)


def _aims_of(point: Point) -> Aims:
    return Aims(sram_bytes=point.machine.tile.sram_bytes, clock_hz=point.machine.chip.clock_hz)


def _best_mapped(point: Point, folder: Path) -> Point:
    """The point with the best mapping of those found for it and for others; with the one it has if none fits."""
    case = _case_of(point, _activity_of(point, folder))
    best = None if case is None else best_of(case, _aims_of(point), _found_mappings(folder))
    if best is None:
        return point
    return replace(point, workload=point.workload.model_copy(update={"mapping": best.options}))


def _time_point(given: Point, folder: Path) -> None:
    point, activity = given, None
    if given.best_mapping:
        point = _best_mapped(given, folder)
    try:
        compiled = compile_workload(point.workload, point.machine, must_fit=False)
    except DoesNotFit as refusal:  # too few tiles: nothing to time
        row: dict[str, Any] = dict.fromkeys(POINT_RESULTS)
        row |= {"fits": False, "note": str(refusal)}
    else:
        if given.fill is not None:
            activity = filled_activity(compiled.network, given.fill)
        else:
            activity = load_activity(activity_path(folder, given.activity_key))
        profile = retime(compiled, point.machine, activity)
        limit = point.machine.tile.sram_bytes
        cautions = (
            *beyond_sources(point.machine),
            *other_costs(compiled.program, point.machine),
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
            **_silicon(profile),
            "samples_per_second": round(point.workload.training.batch / profile.seconds_per_training_step, 3),
            "seconds_by_source": [[part.source, part.seconds, part.half_width] for part in seconds_by_source(profile)],
            "note": "; ".join(cautions),
        }
    row |= _on_gpus(point, activity)
    write_sealed_json(point_path(folder, given.key), row)


def _millijoules(energy: EnergyProfile | None) -> dict[str, float | None]:
    ends = (energy.joules, energy.joules_low, energy.joules_high) if energy else (None, None, None)
    names = ("millijoules", "millijoules_low", "millijoules_high")
    return {name: None if end is None else round(1e3 * end, 6) for name, end in zip(names, ends, strict=True)}


def _silicon(profile: TiledProfile) -> dict[str, float | None]:
    """Area and watts of all chips of the point, with their intervals; None where unknown."""
    found = (profile.area_mm2, profile.static_watts, profile.dynamic_watts)
    ends = [end for pair in found for end in ((pair[0], pair[0] - pair[1], sum(pair)) if pair else (None, None, None))]
    return {name: None if end is None else round(end, 6) for name, end in zip(SILICON, ends, strict=True)}


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
