"""What the claims of publications are compared with: a few kinds of figures, each from settings in `claims.toml`."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from statistics import fmean, pvariance
from typing import Any

from mimdsim import api
from mimdsim.base.errors import DataFileError
from mimdsim.base.residuals import LEVEL, combined, interval
from mimdsim.compiler import Compiled
from mimdsim.gpu import time_on_gpu
from mimdsim.graph import training_graph
from mimdsim.machine import tiled_machine
from mimdsim.machine.gpu import Precision
from mimdsim.pipeline import compile_workload, retime, time_on_gpus, train_workload
from mimdsim.pipeline.overrides import load_gpu, load_tiled, split_changes
from mimdsim.profile import GpuProfile, TiledProfile
from mimdsim.profile.ratios import Ratio, independent_ratio, ratio, ratio_of, ratio_to_gpu
from mimdsim.search import Aims, Case, search
from mimdsim.validation.framework_steps import NOTHING, loop_seconds, planned_product_cycles, timed_call
from mimdsim.workload import Workload, filled_activity, load_workload, network_of, open_dataset

FILL = 0.3  # natural lists of N-MNIST recordings are 30 to 60 % full
DEVIATIONS = 1.645  # of a normal distribution: LEVEL of it lies within so many on either side
EVERYTHING = {"network.second_threshold": -100.0, "network.activity": 1.0}  # lists that hold every neuron
assert LEVEL == 0.9

TILED = "claims are about tiled machines"
Changes = Mapping[str, Any]


class LacksData(DataFileError):
    """Recordings that a claim needs and that are not there."""


def tiled_step(workload: Workload, machine: Any, candidates: int = 0) -> TiledProfile:
    """A training step with lists filled to FILL; candidates: at the best mapping of so many."""
    network = network_of(workload)
    activity = filled_activity(network, FILL)
    if candidates:
        aims = Aims(sram_bytes=machine.tile.sram_bytes, clock_hz=machine.chip.clock_hz)
        case = Case.of(network, machine, activity, workload.mapping)
        processes = os.cpu_count() or 1
        found = search(case, aims, candidates=candidates, processes=processes, explained=False)
        workload = workload.model_copy(update={"mapping": found.best.options})
    return retime(compile_workload(workload, machine), machine, activity)


def gpu_over_tiles(
    *,
    cases: Sequence[Mapping[str, Any]],
    machine: str = "bow",
    gpu: str = "a100",
    strategy: str = "as_published",
    precision: Precision = "tf32",
    candidates: int = 0,
) -> Ratio:
    """The largest of the cases; strategy: 'strongest' takes the fastest that could be built, in any precision."""
    chip, beside = tiled_machine(machine, TILED), load_gpu(gpu)

    def compared(case: Mapping[str, Any]) -> Ratio:
        workload = load_workload(case["workload"], case.get("changes", {}))
        graph = training_graph(network_of(workload))
        if strategy == "strongest":
            lineup, _ = time_on_gpus(graph, (beside,), filled_activity(network_of(workload), FILL))
            timed = min((one for one in lineup if not one.never_built), key=_seconds)
        else:
            timed = time_on_gpu(graph, beside, strategy=strategy, precision=precision, input_encoding="dense")
        return ratio_to_gpu(timed, tiled_step(workload, chip, candidates))

    return max(map(compared, cases), key=lambda found: found.middle)


def _seconds(timed: GpuProfile) -> float:
    return timed.seconds_per_training_step


def step_over_step(
    *,
    workload: str,
    other_workload: str = "",
    one: Changes | None = None,
    other: Changes | None = None,
    by_weights: bool = False,
    machine: str = "bow",
) -> Ratio:
    """Time of one training step over that of another; by_weights: of a weight."""

    def timed(name: str, changes: Changes) -> tuple[TiledProfile, int]:
        for_workload, for_machine = split_changes(dict(changes))
        loaded = load_workload(name, for_workload)
        weights = sum(layer.neurons * layer.inputs for layer in network_of(loaded).layers)
        return tiled_step(loaded, load_tiled(machine, for_machine)), weights

    (ours, few), (theirs, many) = timed(workload, one or {}), timed(other_workload or workload, other or {})
    found, scale = ratio_of(ours, theirs), many / few if by_weights else 1.0
    return Ratio(low=scale * found.low, middle=scale * found.middle, high=scale * found.high)


def loop_over_framework(*, machine: str = "mk2", changes: Changes | None = None) -> Ratio:
    """snnTorch's loop on a GPU, bound by its host, over the same network through PopTorch."""
    return independent_ratio(loop_seconds(changes or {}), timed_call(machine, changes or {}).ends)


def framework_over_framework(*, other: Changes, one: Changes | None = None, machine: str = "mk2") -> Ratio:
    """Two networks through PopTorch."""
    return ratio(timed_call(machine, one or {}).parts, timed_call(machine, other).parts)


def halves_over_floats(*, machine: str = "mk2") -> Ratio:
    """From a step through PopTorch in which products alone gain to the products alone; the middle of their ratios."""
    whole = timed_call(machine, {}).cycles
    full, half = (planned_product_cycles(machine, dtype) for dtype in ("f32", "f16"))
    low, high = whole / (whole - full + half), full / half
    return Ratio(low=low, middle=math.sqrt(low * high), high=high)


def values_program(workload: Workload) -> Compiled:
    """The training step compiled for few wide tiles, whatever their memory: quicker to run, the same values."""
    widest = max(layer.neurons for layer in network_of(workload).layers)
    changed = {"neurons_per_tile": widest + widest % 2, "weight_gradient_replicas": 1}
    wide = workload.model_copy(update={"mapping": workload.mapping.model_copy(update=changed)})
    return compile_workload(wide, tiled_machine("bow", TILED), must_fit=False)


def sparse_over_dense(
    *,
    data: Path,
    workload: str,
    changes: Changes,
    sparse: Changes | None = None,
    dense: Changes | None = None,
    seeds: int = 2,
    epochs: str = "last",
) -> Ratio:
    """Test accuracy with lists of 10 % over that with lists of every neuron; epochs: 'last' or the mean of 'all'.

    The interval takes the test samples as draws, and the seeds too where there are several.
    """
    path = _recordings(load_workload(workload, dict(changes)), data)

    def accuracy(variant: Changes) -> tuple[float, float]:
        """Mean over seeds, and its standard error as a share of it."""
        found, samples = [], 1
        for seed in range(1, seeds + 1):
            reached, samples = _accuracies(workload, json.dumps({**changes, **variant, **path, "seed": seed}))
            found.append(fmean(reached) if epochs == "all" else reached[-1])
        middle = fmean(found)
        certain = (middle * samples + 1) / (samples + 2)  # all right of few samples is not sure to be all right
        of_seeds = pvariance(found) / max(seeds - 1, 1)
        return middle, math.sqrt(certain * (1 - certain) / samples + of_seeds) / middle

    (ours, off), (theirs, theirs_off) = accuracy(sparse or {"network.activity": 0.1}), accuracy(dense or EVERYTHING)
    low, high = interval(ours / theirs, DEVIATIONS * combined((off, theirs_off)))
    return Ratio(low=low, middle=ours / theirs, high=high)


@lru_cache(maxsize=64)  # claims on accuracy and on convergence are about the same training
def _accuracies(workload: str, changes: str) -> tuple[tuple[float, ...], int]:
    """Test accuracy after every epoch, and of how many samples; changes: as JSON."""
    loaded = load_workload(workload, json.loads(changes))
    log = train_workload(loaded, values_program(loaded), open_dataset(loaded.data, loaded.seed))
    return log.test_accuracy_by_epoch, log.test_samples


def _recordings(workload: Workload, folder: Path) -> dict[str, str]:
    """Where the recordings of a workload are, as one of its changes; raises LacksData."""
    usual = workload.data.path
    if not usual:
        return {}
    place = folder / Path(usual).name
    if not place.exists():
        raise LacksData(place, f"no recordings '{place.name}': give the folder that holds them by  --data DIR")
    return {"data.path": str(place)}


def neurons_that_train(*, workload: str, models: Sequence[Changes], changes: Changes) -> Ratio:
    """How many of the models pass `check`: rules, memory and every value of a training step."""
    each = ({f"network.{key}": value for key, value in model.items()} for model in models)
    passed = sum(api.check(workload, changes={**changes, **one}).passed for one in each)
    return Ratio(low=passed, middle=passed, high=passed)


def memory_growth(*, workload: str, timesteps: tuple[int, int, int], machine: str = "mk2") -> Ratio:
    """Bytes of the fullest tile that the later timesteps add over those that as many earlier ones add."""
    chip = tiled_machine(machine, TILED)
    first, second, third = (
        retime(
            compile_workload(load_workload(workload, {"data.timesteps": count}), chip, must_fit=False), chip, NOTHING
        ).memory.peak_bytes
        for count in timesteps
    )
    found = (third - second) / (second - first)
    return Ratio(low=found, middle=found, high=found)


PREDICTORS: dict[str, Callable[..., Ratio]] = {
    one.__name__: one
    for one in (
        gpu_over_tiles, step_over_step, loop_over_framework, framework_over_framework, halves_over_floats,
        sparse_over_dense, neurons_that_train, memory_growth,
    )
}  # fmt: skip
