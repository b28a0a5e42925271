"""Published runs of the reference system, predicted: the mapping it printed, and milliseconds per training step.

The log's spike counts are unknown. They are taken from a run of the same network with the log's initial weights
(uniform in +-4*sqrt(6/inputs)) on N-MNIST recordings when a folder is given, else on random input with the recordings'
mean activity (12.7 ids per millisecond, at most 32); zero and full lists give the interval.

After the runs come figures derived from several of them: means, slopes, and the time with the tile-wise state gradient.
A configuration is a network with its capacities, run once per second threshold. Runs of it differ by chance more than
by the threshold, so their mean is the better figure; in slopes between configurations whatever they share cancels.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from operator import attrgetter
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from mimdsim.base.errors import DataFileError, MimdsimError, shortened, suggest
from mimdsim.base.residuals import interval
from mimdsim.base.schema import build
from mimdsim.compiler import Compiled, place
from mimdsim.machine import MimdMachine
from mimdsim.pipeline import compile_workload, open_data, retime, train_workload
from mimdsim.profile import TiledProfile
from mimdsim.program import RecordedActivity
from mimdsim.validation.claims import values_program
from mimdsim.validation.reference_table import (
    MOST,
    Asked,
    Cells,
    Fields,
    ReferenceTable,
    codelet_parts,
    comparable,
    grouped,
    refused,
    within_bounds,
)
from mimdsim.workload import Workload, network_of
from mimdsim.workload.description.mapping import MappingOptions

SLOPE_TOLERANCE = 0.20
SECOND = "ms_keras"
ONE_END = "interval: both ends low, both high"
NOTHING_PUBLISHED = "nothing published"


Ends = tuple[float, float, float]  # milliseconds of a training step: predicted, low and high


@dataclass(frozen=True, kw_only=True)
class Run:
    """One run, or the mean of `runs` of one configuration, which differ in the second threshold alone.

    configuration: the cells hidden, dense, sparse, batch and T; activity: the largest; total, keras: milliseconds by
    two clocks; spread: standard deviation of the totals over their mean, 0 for one run.
    """

    configuration: tuple[str, ...]
    activity: float | None
    total: float
    keras: float | None
    predicted: Ends
    runs: int = 1
    spread: float = 0.0

    @property
    def title(self) -> str:
        hidden, dense, sparse = self.configuration[:3]
        return f"{hidden} hidden, {sparse} of {dense}"

    @property
    def noise(self) -> float | None:
        """Standard error of the mean total, milliseconds; None for one run."""
        return self.spread * self.total / math.sqrt(self.runs) if self.runs > 1 else None

    @property
    def networks(self) -> tuple[str, ...]:
        """What configurations share whose capacities are compared: all cells but the capacities."""
        hidden, dense, _, batch, timesteps = self.configuration
        return hidden, dense, batch, timesteps

    @property
    def task(self) -> tuple[Any, ...]:
        """What configurations share whose widths are compared: input, batch, timesteps and largest activity."""
        _, dense, _, batch, timesteps = self.configuration
        return dense.split("-")[0], batch, timesteps, self.activity

    @property
    def width(self) -> int:
        return int(self.configuration[1].split("-")[1])

    @property
    def capacity(self) -> int:
        return int(self.configuration[2].split("-")[1])


def configurations(runs: list[Run]) -> list[Run]:
    """The mean of the runs of every configuration, in the order of the file."""
    found = []
    for _, alike in grouped(runs, "configuration"):
        totals, keras = [run.total for run in alike], [run.keras for run in alike if run.keras is not None]
        spread = stdev(totals) / fmean(totals) if len(alike) > 1 else 0.0
        clock, predicted = fmean(keras) if len(keras) == len(alike) else None, _mean([run.predicted for run in alike])
        mean = replace(alike[0], total=fmean(totals), keras=clock, predicted=predicted, runs=len(alike), spread=spread)
        found.append(mean)
    return found


def mean_rows(runs: list[Run], tolerance: float) -> Iterator[dict[str, Any]]:
    """The mean over the runs of every configuration that ran more than once.

    Tolerance: `tolerance`, or the standard deviation of the runs over their mean where that is larger.
    """
    for each in configurations(runs):
        if each.runs > 1:
            name, most = f"mean of {each.runs}: {each.title}", max(tolerance, each.spread)
            about = {"derived": True, "noise": each.noise, **_second(each.keras)}
            published = Cells.figure(name, "ms", each.total, most, "mean over second thresholds", **about)
            yield published | _rounded(each.predicted)


def slope_rows(runs: list[Run]) -> Iterator[dict[str, Any]]:
    """Differences between configurations: largest minus smallest capacity of a network, widest minus narrowest network.

    Widths are compared at the same largest activity, so of rows that say it.
    """
    found = configurations(runs)
    capacity, width = attrgetter("capacity"), attrgetter("width")
    for _, group in grouped(found, "networks"):
        small, large = min(group, key=capacity), max(group, key=capacity)
        if small.capacity < large.capacity:
            between = f"{large.capacity} less {small.capacity}"
            yield _slope(small, large, "slope in capacity", f"{large.configuration[0]} hidden, capacity {between}")
    for _, group in grouped([each for each in found if each.activity is not None], "task"):
        narrow, wide = min(group, key=width), max(group, key=width)
        if narrow.width < wide.width:
            (more, *_), (less, *_) = wide.configuration, narrow.configuration
            between = f"{more} less {less} hidden ({wide.width}, {narrow.width} wide)"
            yield _slope(narrow, wide, "slope in width", f"activity {wide.activity:g}, {between}")


def tilewise_rows(runs: list[Run], tilewise: dict[tuple[str, ...], list[Ends]]) -> Iterator[dict[str, Any]]:
    """Every configuration predicted with the tile-wise state gradient, from the same spikes; nothing to compare."""
    for each in configurations(runs):
        name, note = f"tile-wise: {each.title}", f"{NOTHING_PUBLISHED}; per batch: {each.predicted[0]:.3f} ms"
        published = Cells.figure(name, "ms", None, SLOPE_TOLERANCE, "tile-wise state gradient", note=note)
        yield published | _rounded(_mean(tilewise[each.configuration]))


def _slope(small: Run, large: Run, kind: str, name: str) -> dict[str, Any]:
    """The larger configuration minus the smaller one."""
    ends = [more - less for more, less in zip(large.predicted, small.predicted, strict=True)]
    noise = None if small.noise is None or large.noise is None else math.hypot(small.noise, large.noise)
    keras = None if large.keras is None or small.keras is None else large.keras - small.keras
    about = {"derived": True, "noise": noise, "note": ONE_END, **_second(keras)}
    published = Cells.figure(f"{kind}: {name}", "ms", large.total - small.total, SLOPE_TOLERANCE, kind, **about)
    return published | _rounded((ends[0], min(ends), max(ends)))


def _second(keras: float | None) -> dict[str, Any]:
    return {} if keras is None else {"second": keras, "second_name": SECOND}


def _mean(given: list[Ends]) -> Ends:
    predicted, low, high = map(fmean, zip(*given, strict=True))
    return predicted, low, high


def _rounded(ends: Ends) -> Fields:
    """The fields of a prediction, rounded to what is printed in JSON."""
    return within_bounds(*(round(end, 4) for end in ends))


MK2_TILES, WORKER_CONTEXTS = 1472, 6
TILEWISE = {"state_gradient": "tilewise"}
ONE_STEP = {"max_training_steps": 1, "evaluate": "never", "engine": "program"}  # for its spikes
MEAN_INPUT_IDS = 12.7  # N-MNIST, 1 ms bins, first 100 ms, at most 32 kept: mean of real recordings
STEP_TOLERANCE = 0.15
MACHINE = "bow"
SOURCE = "log of jrfinkbeiner/graphcore_snn, 12 September 2022, mean wall time; machine not stated, taken as Bow"
NOTE = (
    "with the per-batch state gradient used at the time of the log (mapping.state_gradient); see docs/model.md for "
    "what is left out"
)
ACTIVITY = {False: "activity of random input", True: "activity of N-MNIST recordings"}


def training_step_rows(lines: list[Cells], asked: Asked) -> Iterator[Fields]:
    """Rows for every measured run, then those of configurations with several runs, slopes, and the other gradient; on
    a Bow unless a machine is asked for."""
    machine, data = asked.machine_or(MACHINE), asked.data
    runs = []
    activities: dict[tuple[str, ...], tuple[Workload, list[RecordedActivity]]] = {}
    for number, row in enumerate(lines, start=1):
        try:
            workload = _workload_of(row, data)
            keras, activity = (
                row.number(name, above=0) if row.get(name) else None for name in ("ms_keras", "max_activity")
            )
            total = row.number("ms_total", above=0)
            compiled = compile_workload(workload, machine, must_fit=False)
        except MimdsimError as problem:
            yield _shared(data) | refused(row.place, problem)
            continue
        log = train_workload(workload, values_program(workload), open_data(workload))  # the same spikes, sooner
        timed = retime(compiled, machine, log.activity)
        run = Run(
            configuration=tuple(row[name] for name in ("hidden", "dense", "sparse", "batch", "T")),
            activity=activity,
            total=total,
            keras=keras,
            predicted=_predicted(timed),
        )
        runs.append(run)
        activities.setdefault(run.configuration, (workload, []))[1].append(log.activity)
        asked.progress("training steps of published runs", number, len(lines))
        again, parts = partial(_milliseconds, compiled, log.activity), codelet_parts(timed.doubts, 1e3 / timed.clock_hz)
        about = {**_second(run.keras), "bearing": row.bearing(machine.name, run.total, again, parts=parts)}
        name = f"{run.title}, th2 {row['second_threshold']}"
        published = Cells.figure(name, "ms", run.total, STEP_TOLERANCE, "one run", **about)
        yield _shared(data) | published | _rounded(run.predicted)
    tilewise: dict[tuple[str, ...], list[Ends]] = {}
    for configuration, (workload, recorded) in activities.items():
        other = workload.model_copy(update={"mapping": workload.mapping.model_copy(update=TILEWISE)})
        compiled = compile_workload(other, machine, must_fit=False)
        tilewise[configuration] = [_predicted(retime(compiled, machine, activity)) for activity in recorded]
    for fields in (*mean_rows(runs, STEP_TOLERANCE), *slope_rows(runs), *tilewise_rows(runs, tilewise)):
        yield {**_shared(data), **fields}


def _shared(data: Path | None) -> dict[str, str]:
    return {"unit": "ms", "source": SOURCE, "note": f"{NOTE}; {ACTIVITY[data is not None]}"}


def _predicted(timed: TiledProfile) -> Ends:
    """Of a training step; its spikes, which nobody counted, are part of what its class is off by."""
    milliseconds = 1e3 * timed.seconds_per_training_step
    return (milliseconds, *interval(milliseconds, timed.propagated))


def _milliseconds(compiled: Compiled, activity: RecordedActivity, machine: MimdMachine) -> float:
    """Of a training step of the same program with the same spikes."""
    return 1e3 * retime(compiled, machine, activity).seconds_per_training_step


def _workload_of(row: Cells, data: Path | None) -> Workload:
    batch, timesteps, second = row.whole("batch"), row.whole("T"), row.number("second_threshold")
    try:
        dense = [int(width) for width in row["dense"].split("-")]
        sparse = [int(capacity) for capacity in row["sparse"].split("-")]
    except ValueError as problem:
        raise MimdsimError(f"columns 'dense' and 'sparse': {shortened(str(problem), 120)}") from None
    if len(dense) != len(sparse) or len(dense) < 3:
        raise MimdsimError(f"{len(dense)} dense and {len(sparse)} sparse sizes; need as many, input first")
    source: dict[str, Any] = {
        "source": "random",
        "inputs": dense[0],
        "classes": dense[-1],
        "activity": MEAN_INPUT_IDS / dense[0],
        "train_samples": batch,
        "test_samples": 1,
    }
    if data is not None:
        source = {"source": "nmnist", "path": str(data), "train_samples": batch, "test_samples": 1}
    table = {
        "name": "published",
        "title": "a published run",
        "data": {**source, "timesteps": timesteps, "input_capacity": sparse[0]},
        "network": {"hidden": dense[1:-1], "capacity": sparse[1:], "second_threshold": second},
        "training": {"batch": batch, "learning_rate": 1e-3, "weight_scale": 4.0, **ONE_STEP},
        "mapping": {"state_gradient": "per_batch"},
    }
    return build(Workload, table, where=f"line {row.line}")


TRAINING_STEPS = ReferenceTable(
    needed={"hidden", "dense", "sparse", "batch", "T", "second_threshold", "ms_total"},
    also={"ms_keras", "max_activity"},
    ignored={"ms_median", "final_loss"},
    read_all=training_step_rows,
    figures="training step",
)


def golden_rows(path: Path, cases: Any) -> Iterator[Fields]:
    """Every entry of printed tile mappings against the placement rules, tolerance 0; of one that is refused, why."""
    if not isinstance(cases, list) or not any(isinstance(case, dict) and "dense" in case for case in cases):
        raise DataFileError(path, "is not a list of mappings with the key 'dense' (references/README.md)")
    for number, case in enumerate(cases, start=1):
        try:
            yield from list(_golden_entry(case))
        except MimdsimError as problem:
            yield refused(f"entry {number}", problem)


def _golden_entry(case: Any) -> Iterator[Fields]:
    if not isinstance(case, dict) or "dense" not in case:
        raise MimdsimError("is not a mapping with the key 'dense', the widths of a network, such as [784, 100, 10]")
    dense = [int(width) for width in _golden_numbers(case, "dense", "whole width", 1)]
    if len(dense) < 2:
        raise MimdsimError(f"key 'dense': {len(dense)} widths; give two or more, such as [784, 100, 10]")
    predicted = golden_columns(dense)
    for column in case:
        if column == "dense":
            continue
        if column not in predicted:
            known = ", ".join(predicted)
            raise MimdsimError(f"unknown key '{shortened(column)}'{suggest(column, predicted)}; known: dense, {known}")
        for index, value in enumerate(_golden_numbers(case, column)):
            found = float(predicted[column][index]) if index < len(predicted[column]) else None
            name, note = f"{'-'.join(map(str, dense))} {column}[{index}]", "more entries than layers" * (found is None)
            about = {"source": "printed by the authors' program (graphcore_snn, tile_mapping)", "note": note}
            published = Cells.figure(name, column, value, 0.0, "tile mapping", **about)
            yield published | {"predicted": found, "low": found, "high": found}


def _golden_numbers(case: dict[str, Any], key: str, what: str = "number", least: float = -MOST) -> list[float]:
    """The list of an entry's key; raises MimdsimError, naming the key and the place in the list, where it is none."""
    given = case[key]
    if not isinstance(given, list):
        raise MimdsimError(f"key '{key}': {_written(given)} is not a list of {what}s, such as [784, 100, 10]")
    for index, value in enumerate(given):
        number = isinstance(value, int | float) and not isinstance(value, bool) and comparable(value) and value >= least
        if not number or (least == 1 and value != int(value)):
            raise MimdsimError(f"key '{key}', number {index + 1} of the list: {_written(value)} is not a {what}")
    return [float(value) for value in given]


def _written(value: Any) -> str:
    """As JSON; of what may nest deeply, what it is."""
    if isinstance(value, list | dict):
        return "a list" if isinstance(value, list) else "an object"
    return shortened(json.dumps(value), 40)


def golden_columns(dense: list[int]) -> dict[str, list[int]]:
    """The printed columns for a network of these widths, batches of 48, two neurons a tile unit, one chip."""
    table = {
        "name": "golden",
        "title": "golden mapping",
        "data": {"source": "random", "inputs": dense[0], "classes": dense[-1], "timesteps": 2, "input_capacity": 8},
        "network": {"hidden": dense[1:-1], "activity": 0.01},
        "training": {"batch": 48, "learning_rate": 1e-3},
    }
    network = network_of(build(Workload, table, where="golden mapping"))
    placement = place(network, MK2_TILES, WORKER_CONTEXTS, MappingOptions())
    reductions = list(placement.reductions.values())
    return {
        "start": [int(layer.tiles[0]) for layer in placement.layers],
        "end": [int(layer.tiles[-1]) + 1 for layer in placement.layers],
        "spread": [layer.spread for layer in placement.layers],
        "workers": [layer.workers for layer in placement.layers],
        "states_per_worker": [
            -(-width // layer.workers) for width, layer in zip(dense[1:], placement.layers, strict=True)
        ],
        "reduce_tiles": [plan.tiles for plan in reductions],
        "occupied": [layer.tiles.size for layer in placement.layers[1:]],
        "exchange_group": [plan.group_size for plan in reductions],
        "num_groups": [plan.groups for plan in reductions],
    }
