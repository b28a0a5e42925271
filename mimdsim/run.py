"""The walk of one run: describe -> graph -> compile -> train for real -> time -> compare -> profile."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mimdsim import __version__
from mimdsim.base.errors import DescriptionError, DoesNotFit, MappingError
from mimdsim.compiler import Compiled, MappingOptions, Memory, compile_graph
from mimdsim.functional import (
    Checkpoints,
    Evaluation,
    RateSchedule,
    TrainingLog,
    activity_profiles,
    initial_weights,
    train,
)
from mimdsim.gpu import time_on_gpu
from mimdsim.gpu.dependence import recurs
from mimdsim.gpu.inputs import InputEncoding
from mimdsim.graph import Graph, training_graph
from mimdsim.machine import GpuMachine, MimdMachine
from mimdsim.machine.gpu import Precision
from mimdsim.profile import (
    GpuProfile,
    Liveness,
    MemoryProfile,
    RunProfile,
    TiledProfile,
    Training,
)
from mimdsim.profile.records import SCHEMA_VERSION
from mimdsim.program import Program, RecordedActivity
from mimdsim.program.records import CATEGORIES
from mimdsim.timing import time_program
from mimdsim.workload import SpikeDataset, Workload, given_weights, network_of, open_dataset

# called with (what is going on, done, total)
Progress = Callable[[str, int, int], None]
# every comparison shows the published baseline and a strong one, so that nobody compares with a straw man
GPU_LINEUP: tuple[tuple[str, Precision], ...] = (
    ("as_published", "tf32"),
    ("as_published_synchronised", "tf32"),
    ("graph_replay", "tf32"),
    ("hoisted", "fp32"),
    ("hoisted", "tf32"),
    ("hoisted", "fp16"),
    ("persistent", "tf32"),
    ("persistent", "fp16"),
    ("lists_as_written", "fp32"),
    ("lists_ideal", "fp32"),
)
SOURCED_TILES = 1472  # largest chip behind the numbers in models/


@dataclass(frozen=True, kw_only=True, eq=False)
class Run:
    """What one run made: the profile that is written, and the live objects behind it."""

    profile: RunProfile
    compiled: Compiled
    log: TrainingLog


def silent(_what: str, _done: int, _total: int) -> None:
    """Progress for nobody."""


def options_of(workload: Workload) -> MappingOptions:
    """The workload's mapping choices in the compiler's own record."""
    return MappingOptions(**workload.mapping.model_dump())


def compile_workload(
    workload: Workload, machine: MimdMachine, *, dump: Path | None = None, must_fit: bool = True
) -> Compiled:
    """The compiled training step of `workload` on `machine`."""
    network = network_of(workload)
    graph = training_graph(network)
    return compile_graph(graph, network, machine, options_of(workload), dump=dump, must_fit=must_fit)


def simulate(
    workload: Workload,
    machine: MimdMachine,
    gpus: tuple[GpuMachine, ...] = (),
    *,
    dump: Path | None = None,
    progress: Progress = silent,
    checkpoint: Path | None = None,
    resume: bool = False,
) -> Run:
    """Train `workload` on simulated tiles and profile one training step; `gpus` are timed on the same graph.

    checkpoint: a file the training is written to after every epoch; resume: go on from what it holds.
    """
    compiled = compile_workload(workload, machine, dump=dump)
    data = open_data(workload, progress)
    checkpoints = None
    if checkpoint is not None:
        checkpoints = Checkpoints(path=checkpoint, digest=config_digest(workload, machine), resume=resume)
    log = train_workload(workload, compiled, data, progress, checkpoints)
    tiled = time_program(
        compiled.program, machine, log.activity, memory_profile(compiled.program, compiled.memory, machine)
    )
    lineup, warnings = time_on_gpus(compiled.graph, gpus, log.activity)
    profile = RunProfile(
        schema_version=SCHEMA_VERSION,
        tool_version=__version__,
        config_sha256=config_digest(workload, machine, *gpus),
        seed=workload.seed,
        workload=workload.name,
        workload_title=workload.title,
        network=compiled.network.title,
        timesteps=compiled.network.timesteps,
        batch=compiled.network.batch,
        tiled=tiled,
        gpus=lineup,
        training=training_profile(workload, log, compiled.network.batch),
        activity=activity_profiles(compiled.network, log.activity),
        warnings=surplus_warning(workload, data[0])
        + beyond_sources(machine)
        + unused_chips(compiled, machine)
        + half_warning(workload)
        + warnings,
    )
    return Run(profile=profile, compiled=compiled, log=log)


def open_data(workload: Workload, progress: Progress = silent) -> tuple[SpikeDataset, SpikeDataset]:
    """Training and test samples; raises DescriptionError when there is nothing to train on."""
    train_data, test_data = open_dataset(
        workload.data, workload.seed, lambda done, total: progress("reading data", done, total)
    )
    if len(train_data.labels) == 0:
        raise DescriptionError(f"workload '{workload.name}'", ["its data source holds no training samples"])
    return train_data, test_data


def train_workload(
    workload: Workload,
    compiled: Compiled,
    data: tuple[SpikeDataset, SpikeDataset],
    progress: Progress = silent,
    checkpoints: Checkpoints | None = None,
) -> TrainingLog:
    """Train the compiled program as the workload says."""
    recipe, network = workload.training, compiled.network
    drawn = initial_weights(network, workload.seed, recipe.weight_scale, recipe.weight_offset, recipe.recurrent_scale)
    weights = given_weights(workload, network) or drawn
    cosine = RateSchedule(warm_up_training_steps=recipe.warm_up_training_steps, final_share=recipe.final_rate_share)
    return train(
        compiled.program,
        network,
        *data,
        weights=weights,
        epochs=recipe.epochs,
        max_training_steps=recipe.max_training_steps,
        seed=workload.seed,
        evaluation=Evaluation(
            when=recipe.evaluate, validation_share=recipe.validation_share, keep_best=recipe.keep_best
        ),
        rate=cosine if recipe.schedule == "cosine" else None,
        checkpoints=checkpoints,
        progress=lambda done, total: progress("training", done, total),
    )


def surplus_warning(workload: Workload, data: SpikeDataset) -> tuple[str, ...]:
    """Whether input events beyond the input capacity were left out of the training samples."""
    kept = int(data.counts.sum(dtype=np.int64))
    if not data.surplus_events:
        return ()
    share = data.surplus_events / (kept + data.surplus_events)
    return (
        f"{data.surplus_events:,} of {kept + data.surplus_events:,} input events ({share:.1%}) were beyond the input "
        f"capacity of {workload.data.input_capacity} per timestep and left out at random: raise data.input_capacity",
    )


def unused_chips(compiled: Compiled, machine: MimdMachine) -> tuple[str, ...]:
    """Said when the layers fit fewer chips than the machine has."""
    used, asked = compiled.placement.chips, machine.links.chips
    if used >= asked:
        return ()
    return (f"{used} of {asked} chips used: {compiled.placement.what_fills_chips}",)


def beyond_sources(machine: MimdMachine) -> tuple[str, ...]:
    """Said when a machine has more tiles than the sources of its sync and exchange costs."""
    if machine.chip.tiles <= SOURCED_TILES:
        return ()
    return (
        f"{machine.chip.tiles:,} tiles: the costs of sync and exchange were taken from chips of at most "
        f"{SOURCED_TILES:,} tiles and do not grow with distance; set sync.internal_cycles and exchange.fixed_cycles",
    )


def half_warning(workload: Workload) -> tuple[str, ...]:
    """Said when values have the bytes and cycles of half but not its arithmetic."""
    if workload.mapping.value_bytes == 4:
        return ()
    return (
        "mapping.value_bytes = 2: memory, exchange and cycles are those of half, values are computed in float32; loss "
        "and accuracy do not show what half arithmetic does to them",
    )


def time_on_gpus(
    graph: Graph, gpus: tuple[GpuMachine, ...], activity: RecordedActivity | None = None
) -> tuple[tuple[GpuProfile, ...], tuple[str, ...]]:
    """The lineup of strategies on every GPU; what a GPU cannot run is told as a warning.

    Strategies that follow lists of spikes need `activity` and are left out without it.
    """
    profiles: list[GpuProfile] = []
    warnings: list[str] = []
    walks = recurs(graph)
    for gpu in gpus:
        for strategy, precision in GPU_LINEUP:
            if activity is None and strategy.startswith("lists"):
                continue
            if strategy == "persistent" and not walks:
                continue  # nothing to keep on the chip: the same as hoisted
            try:
                # the published program copies dense input; the strong ones get what the tiles get
                encoding: InputEncoding = "dense" if strategy.startswith("as_published") else "as_graph"
                profiles.append(
                    time_on_gpu(
                        graph,
                        gpu,
                        strategy=strategy,
                        precision=precision,
                        input_encoding=encoding,
                        activity=activity,
                    )
                )
            except (DoesNotFit, MappingError, DescriptionError) as refusal:
                warnings.append(f"{gpu.name}, {strategy}, {precision}: left out, {refusal}")
    return tuple(profiles), tuple(warnings)


def memory_profile(program: Program, memory: Memory, machine: MimdMachine) -> MemoryProfile:
    """The compiler's memory measurement as profile records."""
    peak_tile = memory.peak_tile
    largest = tuple((name, program.variables[name].category, size) for name, size in memory.largest(peak_tile, 12))
    curve = tuple(
        Liveness(
            superstep=name,
            phase=phase,
            fullest_tile=int(tile),
            fullest_tile_bytes=int(fullest),
            total_bytes=int(total),
        )
        for name, phase, tile, fullest, total in zip(
            memory.names, memory.phases, memory.fullest_tile, memory.fullest_bytes, memory.total_bytes, strict=True
        )
    )
    return MemoryProfile(
        limit_bytes=machine.tile.sram_bytes,
        peak_tile=peak_tile,
        peak_bytes=memory.peak_bytes,
        categories=CATEGORIES,
        bytes_by_category_and_tile=tuple(tuple(row.tolist()) for row in memory.by_category),
        peak_bytes_by_tile=tuple(memory.peak_by_tile.tolist()),
        always_live_bytes_by_tile=tuple(memory.always.tolist()),
        largest_on_peak_tile=largest,
        liveness=curve,
    )


def training_profile(workload: Workload, log: TrainingLog, batch: int) -> Training:
    """Loss and accuracies as profile records."""
    by_epoch = log.test_accuracy_by_epoch
    at_end = len(by_epoch) - 1 if log.best_epoch is None else log.best_epoch
    held = log.validation_accuracy_by_epoch
    return Training(
        training_steps=len(log.loss),
        samples=len(log.loss) * batch,
        batch=batch,
        loss=log.loss,
        train_accuracy=log.train_accuracy,
        test_accuracy=by_epoch[at_end] if by_epoch else None,
        test_samples=log.test_samples,
        test_accuracy_by_epoch=by_epoch,
        train_accuracy_by_epoch=log.train_accuracy_by_epoch,
        validation_accuracy_by_epoch=held,
        validation_samples=log.validation_samples,
        best_epoch=log.best_epoch,
        scheduled=tuple(sorted(log.scheduled.items())),
    )


def config_digest(workload: Workload, *machines: MimdMachine | GpuMachine) -> str:
    """sha256 of everything that decides a result: the resolved descriptions."""
    resolved = [workload.model_dump(mode="json"), *(machine.model_dump(mode="json") for machine in machines)]
    return hashlib.sha256(json.dumps(resolved, sort_keys=True).encode()).hexdigest()


def retime(run_compiled: Compiled, machine: MimdMachine, activity: RecordedActivity) -> TiledProfile:
    """The same program and spikes on another machine with as many tiles."""
    program = run_compiled.program
    return time_program(program, machine, activity, memory_profile(program, run_compiled.memory, machine))


__all__ = [
    "GPU_LINEUP",
    "Run",
    "compile_workload",
    "config_digest",
    "memory_profile",
    "open_data",
    "options_of",
    "retime",
    "simulate",
    "time_on_gpus",
    "train_workload",
]
