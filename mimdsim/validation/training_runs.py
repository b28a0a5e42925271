"""Published runs of the reference system, predicted: the mapping it printed, and milliseconds per training step.

The log's spike counts are unknown. They are taken from a run of the same network with the log's initial weights
(uniform in +-4*sqrt(6/inputs)) on N-MNIST recordings when a folder is given, else on random input with the recordings'
mean activity (12.7 ids per millisecond, at most 32); zero and full lists give the interval. After the runs come the
figures derived from several of them, and the time with the tile-wise state gradient: see training_means.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from mimdsim.base.errors import DataFileError, MimdsimError, shortened
from mimdsim.base.schema import build
from mimdsim.compiler import Compiled, place
from mimdsim.machine import MimdMachine, load_machine
from mimdsim.pipeline import compile_workload, open_data, retime, train_workload
from mimdsim.program import RecordedActivity
from mimdsim.validation.derived_figures import Prediction, Run, mean_rows, slope_rows, tilewise_rows
from mimdsim.validation.reference_table import Asked, Cells, Fields, ReferenceTable, refused
from mimdsim.validation.sensitivity import Bearing, codelet_parts
from mimdsim.workload import Workload, network_of
from mimdsim.workload.description.mapping import MappingOptions

WORKER_CONTEXTS = 6
TILEWISE = {"state_gradient": "tilewise"}
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
    machine, data = asked.machine or load_machine(MACHINE), asked.data
    assert isinstance(machine, MimdMachine)
    runs = []
    activities: dict[tuple[str, ...], tuple[Workload, list[RecordedActivity]]] = {}
    for number, row in enumerate(lines, start=1):
        try:
            workload, times = _workload_of(row, data), _times(row)
            compiled = compile_workload(workload, machine, must_fit=False)
        except MimdsimError as problem:
            yield _shared(data) | refused(row, problem)
            continue
        log = train_workload(workload, compiled, open_data(workload))
        timed = retime(compiled, machine, log.activity)
        run = _run_of(row, times, _predicted(compiled, machine, log.activity))
        runs.append(run)
        activities.setdefault(run.configuration, (workload, []))[1].append(log.activity)
        asked.progress("training steps of published runs", number, len(lines))
        yield {
            **_shared(data),
            **run.predicted.columns(),
            "name": f"{run.title}, th2 {row['second_threshold']}",
            "kind": "one run",
            "published": run.total,
            "tolerance": STEP_TOLERANCE,
            **run.second(),
            "bearing": Bearing(
                line=row.line,
                machine=machine.name,
                measured=run.total,
                again=partial(_milliseconds, compiled, log.activity),
                parts=codelet_parts(timed.doubts, 1e3 / timed.clock_hz),
            ),
        }
    tilewise: dict[tuple[str, ...], list[Prediction]] = {}
    for configuration, (workload, recorded) in activities.items():
        other = workload.model_copy(update={"mapping": workload.mapping.model_copy(update=TILEWISE)})
        compiled = compile_workload(other, machine, must_fit=False)
        tilewise[configuration] = [_predicted(compiled, machine, activity) for activity in recorded]
    for fields in (*mean_rows(runs, STEP_TOLERANCE), *slope_rows(runs), *tilewise_rows(runs, tilewise)):
        yield {**_shared(data), **fields}


def _shared(data: Path | None) -> dict[str, str]:
    return {"unit": "ms", "source": SOURCE, "note": f"{NOTE}; {ACTIVITY[data is not None]}"}


def _predicted(compiled: Compiled, machine: MimdMachine, activity: RecordedActivity) -> Prediction:
    """Milliseconds of a training step; low and high with empty and full lists, where they are further out."""
    middle = retime(compiled, machine, activity)
    empty = retime(compiled, machine, _same_counts(compiled, activity, full=False))
    full = retime(compiled, machine, _same_counts(compiled, activity, full=True))
    return Prediction(
        middle=1e3 * middle.seconds_per_training_step,
        low=1e3 * min(empty.seconds_low, middle.seconds_low),
        high=1e3 * max(full.seconds_high, middle.seconds_high),
    )


def _milliseconds(compiled: Compiled, activity: RecordedActivity, machine: MimdMachine) -> float:
    """Of a training step of the same program with the same spikes."""
    return 1e3 * retime(compiled, machine, activity).seconds_per_training_step


def _times(row: Cells) -> tuple[float, float | None, float | None]:
    """ms_total, and ms_keras and max_activity where they are given."""
    keras, activity = (row.number(name, above=0) if row.get(name) else None for name in ("ms_keras", "max_activity"))
    return row.number("ms_total", above=0), keras, activity


def _run_of(row: Cells, times: tuple[float, float | None, float | None], predicted: Prediction) -> Run:
    total, keras, activity = times
    return Run(
        configuration=(row["hidden"], row["dense"], row["sparse"], row["batch"], row["T"]),
        activity=activity,
        total=total,
        keras=keras,
        predicted=predicted,
    )


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
        "training": {"batch": batch, "learning_rate": 1e-3, "weight_scale": 4.0, "max_training_steps": 1},
        "mapping": {"state_gradient": "per_batch"},
    }
    return build(Workload, table, where=f"line {row.line}")


def _same_counts(compiled: Compiled, activity: RecordedActivity, *, full: bool) -> RecordedActivity:
    """Activity with every list of the layers empty or full (lowest ids); the input stays."""
    ids, counts = dict(activity.ids), dict(activity.counts)
    for layer in compiled.network.layers:
        capacity = ids[layer.name].shape[2]
        spread = (np.arange(capacity) * layer.neurons) // capacity
        ids[layer.name] = np.broadcast_to(spread.astype(np.int32), ids[layer.name].shape).copy()
        counts[layer.name] = np.full_like(counts[layer.name], capacity if full else 0)
    return RecordedActivity(ids=ids, counts=counts, dropped={})


TRAINING_STEPS = ReferenceTable(
    needed={"hidden", "dense", "sparse", "batch", "T", "second_threshold", "ms_total"},
    also={"ms_keras", "max_activity"},
    ignored={"ms_median", "final_loss"},
    predict_all=training_step_rows,
)


def golden_rows(path: Path, cases: Any) -> Iterator[Fields]:
    """Every entry of printed tile mappings against the placement rules; tolerance 0."""
    if not isinstance(cases, list) or any(not isinstance(case, dict) or "dense" not in case for case in cases):
        raise DataFileError(path, "is not a list of mappings with the key 'dense' (references/README.md)")
    for case in cases:
        dense = [int(width) for width in case["dense"]]
        predicted = golden_columns(dense)
        for column, published in case.items():
            if column == "dense":
                continue
            if column not in predicted:
                raise DataFileError(path, f"unknown key '{column}'; known: dense, {', '.join(predicted)}")
            for index, value in enumerate(published):
                found = float(predicted[column][index]) if index < len(predicted[column]) else None
                yield {
                    "name": f"{'-'.join(map(str, dense))} {column}[{index}]",
                    "unit": column,
                    "predicted": found,
                    "published": float(value),
                    "tolerance": 0.0,
                    "low": found,
                    "high": found,
                    "source": "printed by the authors' program (graphcore_snn, tile_mapping)",
                    "note": "" if found is not None else "more entries than layers",
                    "kind": "tile mapping",
                }


def golden_columns(dense: list[int], batch: int = 48, tiles: int = 1472) -> dict[str, list[int]]:
    """The printed columns for a network of these widths, two neurons a tile unit, one chip."""
    table = {
        "name": "golden",
        "title": "golden mapping",
        "data": {"source": "random", "inputs": dense[0], "classes": dense[-1], "timesteps": 2, "input_capacity": 8},
        "network": {"hidden": dense[1:-1], "activity": 0.01},
        "training": {"batch": batch, "learning_rate": 1e-3},
    }
    network = network_of(build(Workload, table, where="golden mapping"))
    placement = place(network, tiles, WORKER_CONTEXTS, MappingOptions())
    reductions = list(placement.reductions.values())
    return {
        "start": [layer.first_tile for layer in placement.layers],
        "end": [layer.last_tile for layer in placement.layers],
        "spread": [layer.spread for layer in placement.layers],
        "workers": [layer.workers for layer in placement.layers],
        "states_per_worker": [
            -(-width // layer.workers) for width, layer in zip(dense[1:], placement.layers, strict=True)
        ],
        "reduce_tiles": [plan.tiles for plan in reductions],
        "occupied": [layer.occupied for layer in placement.layers[1:]],
        "exchange_group": [plan.group_size for plan in reductions],
        "num_groups": [plan.groups for plan in reductions],
    }
