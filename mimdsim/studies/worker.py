"""What a process does for a study: record spikes, search mappings, time a batch of points. Nothing is written here, so
a process of a cluster needs no folder of the study."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from mimdsim.base import __version__
from mimdsim.base.errors import DoesNotFit, MimdsimError
from mimdsim.compiler import Compiled, fits_executable
from mimdsim.execution import activity_problem, constant_layers
from mimdsim.graph import SpikingNetwork, training_graph
from mimdsim.pipeline import (
    Programs,
    compile_workload,
    infer_single_samples,
    open_data,
    retime,
    time_on_gpus,
    train_workload,
)
from mimdsim.pipeline.findings import constant_layer_texts, sample_warnings
from mimdsim.pipeline.warnings import half_warning, machine_warnings
from mimdsim.profile import GpuProfile, TiledProfile, seconds_by_source
from mimdsim.program import RecordedActivity
from mimdsim.search import Aims, Case, best_of, search
from mimdsim.studies.metrics import ENERGY, TIME, Row, interval_columns
from mimdsim.studies.points import Point
from mimdsim.studies.results import (
    FIRING_COLUMN,
    INFERENCE_RESULTS,
    OF_TIME,
    POINT_RESULTS,
    SILICON,
    gpu_columns,
    gpu_ratio,
)
from mimdsim.studies.store import Spikes, load_activity
from mimdsim.workload import MappingOptions, filled_activity, network_of

PROGRAMS = Programs()  # of this process: points of one program come one after the other
SpikeSource = Path | Spikes  # local processes read a file of the study; to others the spikes are sent


def run_on_same_inputs(work: Callable[..., Any], points: Sequence[Point], *given: Any) -> Any:
    """What `work` makes of points; raises MimdsimError if what they read, here and by the end, is not what they were
    made of: rows are kept as results of that."""
    found = work(points, *given)
    for point in points:
        point.check()
    return found


def record(points: Sequence[Point], _: Mapping[str, SpikeSource]) -> Spikes | None:
    """Train the first point and take the spikes of the last training step; memory limits do not matter for values.
    None: too few tiles even on the largest machine; every point of this activity reports it."""
    point = points[0]
    # spikes do not depend on where they are selected, and the last tiles are too few for some points
    anywhere = point.workload.mapping.model_copy(update={"selection_tiles": "published"})
    workload = point.workload.model_copy(update={"mapping": anywhere})
    try:
        compiled = compile_workload(workload, point.machine, must_fit=False)
    except DoesNotFit:
        return None
    data = open_data(workload)
    log = train_workload(workload, compiled, data)
    by_epoch = log.test_accuracy_by_epoch
    accuracy = by_epoch[-1 if log.best_epoch is None else log.best_epoch] if by_epoch else None
    return log.activity, accuracy, sample_warnings(workload, data)


def best_mapping(points: Sequence[Point], spikes: Mapping[str, SpikeSource]) -> MappingOptions | None:
    """The best mapping of the first point that a search finds; the other points try it too."""
    point = points[0]
    case = _case_of(point, _spikes_of(point, spikes)[0])
    if case is None:
        return None
    with contextlib.suppress(DoesNotFit):
        found = search(case, Aims.of(point.machine), candidates=point.best_mapping, processes=1, explained=False)
        options = found.best.options
        if case.machine.links.chips == 1:
            options = options.model_copy(update={"tiles": options.tiles or case.machine.chip.tiles})
        return options
    return None


def time_points(
    points: Sequence[Point], spikes: Mapping[str, SpikeSource], mappings: Sequence[MappingOptions] = ()
) -> list[Row | Exception]:
    """A row for every point, or why there is none; `mappings`: what was found for a study's points."""
    found: list[Row | Exception] = []
    for point in points:
        try:
            found.append(_time_point(point, *_spikes_of(point, spikes), mappings))
        except Exception as problem:
            found.append(problem)
    return found


def _spikes_of(
    point: Point, spikes: Mapping[str, SpikeSource]
) -> tuple[RecordedActivity | None, float | None, tuple[str, ...]]:
    """Spikes of a point; None: its lists are filled, or its layers have too few tiles to record any."""
    given = spikes.get(point.activity_key)
    if given is None:
        return None, None, ()
    return _load_spikes(given, given.stat().st_mtime_ns) if isinstance(given, Path) else given


@lru_cache(maxsize=4)
def _load_spikes(path: Path, _: int) -> Spikes:
    return load_activity(path)


@lru_cache(maxsize=4)
def _fill_lists(network: SpikingNetwork, fill: float) -> RecordedActivity:
    """The same object for the same network, of which what is counted is kept."""
    return filled_activity(network, fill)


def _case_of(point: Point, activity: RecordedActivity | None) -> Case | None:
    """What a mapping of a point is searched for; None: its spikes are not known."""
    network = network_of(point.workload)
    if activity is not None and activity_problem(network, activity):
        return None  # said where its points are timed
    if activity is None and point.fill is not None:
        activity = _fill_lists(network, point.fill)
    return None if activity is None else Case.of(network, point.machine, activity, point.workload.mapping)


def _with_best_mapping(point: Point, activity: RecordedActivity | None, mappings: Sequence[MappingOptions]) -> Point:
    """The point with the best of the mappings; with the one it has if none fits."""
    case = _case_of(point, activity)
    best = None if case is None else best_of(case, Aims.of(point.machine), list(mappings))
    if best is None:
        return point
    return replace(point, workload=point.workload.model_copy(update={"mapping": best.options}))


def _time_point(
    given: Point,
    recorded: RecordedActivity | None,
    accuracy: float | None,
    said: Sequence[str],
    mappings: Sequence[MappingOptions],
) -> Row:
    point = _with_best_mapping(given, recorded, mappings) if given.best_mapping else given
    row: Row = dict.fromkeys((*POINT_RESULTS, *point.columns))
    activity = recorded
    try:
        compiled = PROGRAMS.compiled(point.workload, point.machine)
    except DoesNotFit as refusal:  # too few tiles: nothing to time
        row |= {"fits": False, "note": str(refusal)}
    else:
        if given.fill is not None:
            activity = _fill_lists(compiled.network, given.fill)
        if recorded is not None and (wrong := activity_problem(compiled.network, recorded)):
            raise MimdsimError(f"recorded activity/{given.activity_key}.npz: {wrong}; delete it: it is recorded again")
        assert activity is not None
        profile = retime(compiled, point.machine, activity)
        row |= _results(point, compiled, profile) | {"accuracy": accuracy}
        row["note"] = "; ".join(filter(None, [*said, row["note"]]))
        if given.fill is None:
            silent = constant_layer_texts(compiled.network, constant_layers(compiled.network, activity))
            if idle := ". ".join(silent):  # spikes that tell nothing
                row |= {FIRING_COLUMN: idle, "note": "; ".join(filter(None, [idle, row["note"]]))}
        if point.infers:
            row |= _inference(point, activity)
        if profile.unknown:  # counted by costs of other machine code, so no answer may rest on them
            row |= dict.fromkeys((*OF_TIME, *(INFERENCE_RESULTS if point.infers else ()))) | {
                "note": f"{row['note']}; by the costs that there are {row['ms_per_training_step']:.4g} ms"
            }
    described = {"seed": point.workload.seed, "tool_version": __version__, "digest": given.key}
    row |= described | _on_gpus(point, activity)
    timed = [gpu.name for gpu in point.gpus if row[f"{gpu.name} strongest_ms"]]
    fastest = min(timed, key=lambda name: float(row[f"{name} strongest_ms"]), default=None)
    return row | _rounded("gpu_ratio", gpu_ratio(row, fastest) if fastest else None)


def _results(point: Point, compiled: Compiled, profile: TiledProfile) -> Row:
    limit = point.machine.tile.sram_bytes
    cautions = (*machine_warnings(compiled, point.machine, dict(point.changes)), *half_warning(point.workload))
    batch = point.workload.training.batch
    energy = profile.energy
    millijoules = [1e3 * end for end in (energy.joules, energy.joules_low, energy.joules_high)] if energy else None
    return {
        **_rounded(TIME, _milliseconds(profile)),
        "compute_cycles": profile.compute_cycles,
        "exchange_cycles": profile.exchange_cycles,
        "sync_cycles": profile.sync_cycles,
        "tile_balance": round(profile.tile_balance, 4),
        "tiles_used": profile.tiles_used,
        "neurons_per_tile": compiled.placement.neurons_per_tile,
        "peak_bytes": compiled.memory.peak_bytes,
        "limit_bytes": limit,
        "fits": compiled.memory.peak_bytes <= limit and fits_executable(compiled.memory, point.machine),
        **_rounded(ENERGY, millijoules),
        **{column: end for name in SILICON for column, end in _rounded(name, _around(getattr(profile, name))).items()},
        "samples_per_second": round(batch / profile.seconds_per_training_step, 3),
        "samples_per_joule": round(batch / energy.joules, 3) if energy and energy.joules else None,
        "seconds_by_source": [[part.source, part.seconds, part.half_width] for part in seconds_by_source(profile)],
        "note": "; ".join([*filter(None, [profile.memory.code_alone]), *cautions]),
    }


def _inference(point: Point, activity: RecordedActivity) -> Row:
    """Latency and energy of single samples."""
    try:
        one = infer_single_samples(point.workload, point.machine, activity).tiled
    except DoesNotFit:
        return {}
    joules = None if one.joules is None else (one.joules, one.joules_low, one.joules_high)
    seconds = one.latency_seconds, one.latency_low, one.latency_high
    return _rounded("latency_ms", [1e3 * end for end in seconds]) | _rounded(
        "inference_millijoules", joules and [1e3 * end for end in joules]
    )


def _rounded(name: str, ends: Sequence[float] | None) -> Row:
    """A column and the ends of its interval; None where it is unknown."""
    values = [None] * 3 if not ends else [round(end, 6) for end in ends]
    return dict(zip(interval_columns(name), values, strict=True))


def _milliseconds(profile: TiledProfile | GpuProfile) -> list[float]:
    return [1e3 * end for end in (profile.seconds_per_training_step, profile.seconds_low, profile.seconds_high)]


def _around(pair: tuple[float, float] | None) -> tuple[float, float, float] | None:
    """The interval of a number and how far it may be off."""
    return pair and (pair[0], pair[0] - pair[1], sum(pair))


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
            found |= _rounded(f"{gpu.name} strongest_ms", _milliseconds(best))
            found[f"{gpu.name} strongest"] = f"{best.strategy}, {best.precision}"
            found[f"{gpu.name} strongest_mj"] = round(1e3 * best.energy.joules, 6) if best.energy else None
        columns |= found
    return columns
