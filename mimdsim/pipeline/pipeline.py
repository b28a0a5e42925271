"""One complete run: describe -> graph -> compile -> train for real -> time -> compare -> profile."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from mimdsim.base import __version__
from mimdsim.base.console import Progress, silent
from mimdsim.base.errors import DescriptionError, DoesNotFit
from mimdsim.base.files import digest_of
from mimdsim.base.identity import Input, code_digest
from mimdsim.base.processes import Background
from mimdsim.compiler import Compiled, compile_graph
from mimdsim.execution import (
    Checkpoints,
    Evaluation,
    InitialActivity,
    RateSchedule,
    TrainingLog,
    TrainingPlan,
    activity_profiles,
    engine_refusals,
    initial_weights,
    scaled_to_activity,
    train,
    without_smallest,
)
from mimdsim.graph import SpikingNetwork, training_graph
from mimdsim.graph.norms import folded
from mimdsim.machine import GpuMachine, MimdMachine, changed_machine
from mimdsim.pipeline.findings import absent_classes, event_findings, firing_findings, label_warning, learning_findings
from mimdsim.pipeline.identity import (
    changed_inputs_warning,
    config_digest,
    course_digest,
    earlier_code_warning,
    earlier_digests,
    named_files,
)
from mimdsim.pipeline.inference import accuracy_of_all_spikes, compile_inference, run_inference
from mimdsim.pipeline.result import Run, recorded_changes, training_profile
from mimdsim.pipeline.retiming import retime, time_on_gpus
from mimdsim.pipeline.warnings import (
    engine_note,
    fewer_slots,
    gpu_notes,
    half_warning,
    loss_warning,
    machine_warnings,
    no_detail,
    repeated_samples,
    rounded_tiles,
    stash_note,
    surplus_warning,
)
from mimdsim.pipeline.what_if import estimates
from mimdsim.profile import Finding, RunProfile, Training
from mimdsim.profile.records import SCHEMA_VERSION
from mimdsim.program import RecordedActivity
from mimdsim.workload import (
    MappingOptions,
    SpikeDataset,
    Workload,
    given_weights,
    inputs_of,
    network_of,
    open_dataset,
    unread_keys,
)

SCOPES = {"all": "stopped by the exchanges of all", "chip": "stopped by its own exchanges only"}
WORTH_LOOKING = 20_000_000  # simulated cycles of all training steps, which take longer than looking for advice
SHORT = 30  # training steps that take less time than estimates of all changes


def compile_workload(
    workload: Workload, machine: MimdMachine, *, dump: Path | None = None, must_fit: bool = True
) -> Compiled:
    """The compiled training step of `workload` on `machine`."""
    network = network_of(workload)
    graph = training_graph(network)
    return compile_graph(graph, network, machine, workload.mapping, dump=dump, must_fit=must_fit)


def simulate(
    workload: Workload,
    machine: MimdMachine,
    gpus: tuple[GpuMachine, ...] = (),
    *,
    beside: tuple[MimdMachine, ...] = (),
    mappings: Mapping[str, MappingOptions] | None = None,
    dump: Path | None = None,
    progress: Progress = silent,
    checkpoints: Checkpoints | None = None,
    described: tuple[Input, ...] = (),
    changes: Mapping[str, Any] | None = None,
    background: Background | None = None,
    inference: bool = False,
) -> Run:
    """Train `workload` on simulated tiles and profile one training step; `gpus` are timed on the same graph.

    beside: tiled machines for which the training step is compiled too, whether it fits them or not, and timed with the
    spikes recorded here; mappings: by the name of such a machine, where it has another than the workload's.
    checkpoints: where the training is saved, and whether it goes on from there. described: the
    files of the descriptions. changes: what `workload` and `machine` were loaded with, by dotted key; recorded in the
    profile. background: where changes are estimated for advice meanwhile. inference: time the forward pass
    alone too, with the spikes of test samples on the trained weights.
    """
    inputs, code = inputs_of(workload), code_digest()  # before anything is read
    progress("compiling", 0, 1)
    compiled = compile_workload(workload, machine, dump=dump)
    check_engine(workload, compiled)
    forward = compile_inference(workload, machine) if inference else None  # refused before anything is trained
    estimated = None
    if background is not None and not 0 < workload.training.max_training_steps < SHORT:
        estimated = estimates(compiled, machine, workload.mapping, background)
    own = mappings or {}
    others, left_out = list[tuple[MimdMachine, Compiled]](), list[str]()
    for other in beside:
        theirs = workload.model_copy(update={"mapping": own.get(other.name, workload.mapping)})
        try:
            others.append((other, compile_workload(theirs, other, must_fit=False)))
        except DoesNotFit as refusal:  # too few tiles: nothing to time
            left_out.append(f"{other.title} is left out: {str(refusal).splitlines()[0]}")
    data = open_data(workload, progress)
    if checkpoints is not None:
        checkpoints = replace(checkpoints, digest=course_digest(workload, machine), described=described)
        checkpoints = replace(checkpoints, earlier=earlier_digests(workload, machine), inputs=inputs, code=code)
    log = train_workload(workload, compiled, data, progress, checkpoints)
    progress("timing", 0, 1)
    all_spikes = accuracy_of_all_spikes(workload, compiled.network, machine, data, log)
    training = training_profile(log, compiled.network.batch, all_spikes)
    weights = folded(compiled.network.layers, log.weights)
    inferred = run_inference(forward, machine, gpus, weights, data, workload.seed) if forward is not None else ()
    run = Run(
        profile=_timed(workload, machine, compiled, log, training, gpus, others, own),
        compiled=compiled,
        log=log,
        machine=machine,
        workload=workload,
        estimated=estimated,
    )
    found, warnings = _findings_and_warnings(run, data, others, changes or {}, progress)
    of_gpus = (*stash_note(workload, gpus), *gpu_notes(gpus))
    profile = replace(
        run.profile,
        changes=recorded_changes(changes or {}),
        inputs=named_files((*described, *inputs)),
        code_sha256=code,
        inference=inferred,
        findings=found,
        warnings=(*left_out, *changed_inputs_warning(workload, inputs), *warnings, *of_gpus, *run.profile.warnings),
    )
    return replace(run, profile=profile)


def _timed(
    workload: Workload,
    machine: MimdMachine,
    compiled: Compiled,
    log: TrainingLog,
    training: Training,
    gpus: tuple[GpuMachine, ...],
    others: Sequence[tuple[MimdMachine, Compiled]],
    mappings: Mapping[str, MappingOptions],
) -> RunProfile:
    """The recorded training step on every machine; warnings: what GPUs cannot run."""
    network = compiled.network
    lineup, warnings = time_on_gpus(compiled.graph, gpus, log.activity)
    beside = (*_other_sync_scope(machine, compiled), *others)
    config = config_digest(workload, machine, *(other for other, _ in others), *gpus)
    if mappings:
        config = digest_of([config, {name: options.model_dump(mode="json") for name, options in mappings.items()}])
    return RunProfile(
        schema_version=SCHEMA_VERSION,
        tool_version=__version__,
        config_sha256=config,
        seed=workload.seed,
        workload=workload.name,
        workload_title=workload.title,
        network=network.summary,
        timesteps=network.timesteps,
        batch=network.batch,
        tiled=retime(compiled, machine, log.activity),
        tiled_beside=tuple(retime(theirs, other, log.activity) for other, theirs in beside),
        earlier_code_sha256=log.earlier_code,
        gpus=lineup,
        training=training,
        activity=activity_profiles(network, log.activity),
        warnings=warnings,
    )


def _findings_and_warnings(
    run: Run,
    data: tuple[SpikeDataset, SpikeDataset],
    others: Sequence[tuple[MimdMachine, Compiled]],
    changes: Mapping[str, Any],
    progress: Progress,
) -> tuple[tuple[Finding, ...], tuple[str, ...]]:
    """What is wrong with inputs, spikes and training; and what a reader is told before the numbers."""
    workload, machine, compiled, log = run.workload, run.machine, run.compiled, run.log
    again = partial(_retrain, machine, compiled, data)
    idle, unusual = firing_findings(workload, compiled, data[0], log, again, progress)
    warnings = (
        *earlier_code_warning(log),
        *surplus_warning(workload, data[0]),
        *(each.why for each in unread_keys(workload, changes)),
        *fewer_slots(workload, compiled.network),
        *repeated_samples(workload, data[0]),
        *absent_classes(workload, data),
        *unusual,
        *label_warning(workload, data, log),
        *machine_warnings(compiled, machine, changes),
        *(said for other, theirs in others for said in machine_warnings(theirs, other, named=f"{other.name}: ")),
        *no_detail(compiled.program),
        *rounded_tiles(workload, compiled.placement),
        *half_warning(workload),
        *engine_note(log),
        *loss_warning(log),
    )
    return (*idle, *event_findings(workload, data), *learning_findings(workload, data, log)), warnings


def is_worth_advice(run: Run) -> bool:
    """Whether the training took so long that looking for advice is little beside it."""
    return not run.tiled.incomparable and len(run.log.loss) * run.cycles >= WORTH_LOOKING


def _other_sync_scope(machine: MimdMachine, compiled: Compiled) -> tuple[tuple[MimdMachine, Compiled], ...]:
    """The machine with the other answer to what is not known of several chips: whether the exchange of one stops all.
    Its time stands beside the machine's own, each with its interval."""
    if compiled.placement.chips == 1:
        return ()
    scope = "all" if machine.sync.scope == "chip" else "chip"
    other = changed_machine(machine, {"sync.scope": scope})
    title = f"{SCOPES[scope]}: {machine.title}"  # comes after "4 chips, each"
    return ((other.model_copy(update={"name": f"{machine.name}-{scope}", "title": title}), compiled),)


def open_data(workload: Workload, progress: Progress = silent) -> tuple[SpikeDataset, SpikeDataset]:
    """Training and test samples; raises DescriptionError when there is nothing to train on."""
    train_data, test_data = open_dataset(
        workload.data, workload.seed, lambda done, total: progress("reading data", done, total)
    )
    if len(train_data.labels) == 0:
        raise DescriptionError(f"workload '{workload.name}'", ["its data source holds no training samples"])
    return train_data, test_data


def check_engine(workload: Workload, compiled: Compiled) -> None:
    """Raises DescriptionError that names everything that training.engine cannot train."""
    problems = engine_refusals(workload.training.engine, compiled.program, compiled.network)
    if problems:
        raise DescriptionError(
            f"workload '{workload.name}', training.engine = \"{workload.training.engine}\"", problems
        )


def first_weights(workload: Workload, network: SpikingNetwork) -> dict[str, np.ndarray]:
    """By parameter: those that the workload names a file for, else drawn ones."""
    recipe = workload.training
    drawn = initial_weights(network, workload.seed, recipe.weight_scale, recipe.weight_offset, recipe.recurrent_scale)
    first = given_weights(workload, network) or drawn
    named = {parameter.public: name for name, parameter in network.parameters.items()}
    return first | {named[key]: without_smallest(first[named[key]], share) for key, share in recipe.pruned.items()}


def train_workload(
    workload: Workload,
    compiled: Compiled,
    data: tuple[SpikeDataset, SpikeDataset],
    progress: Progress = silent,
    checkpoints: Checkpoints | None = None,
) -> TrainingLog:
    """Train the compiled program as the workload says, with the engine it names."""
    check_engine(workload, compiled)
    progress("preparing the training", 0, 1)
    recipe, network = workload.training, compiled.network
    weights = first_weights(workload, network)
    if recipe.initial_activity and not (checkpoints is not None and checkpoints.resume):
        wanted = InitialActivity(share=recipe.initial_activity, tolerance=recipe.initial_activity_tolerance)
        weights = scaled_to_activity(compiled.program, network, data[0], weights, wanted, workload.seed)
    rate = RateSchedule(
        kind=recipe.schedule,
        warm_up_training_steps=recipe.warm_up_training_steps,
        final_share=recipe.final_rate_share,
        factor=recipe.rate_factor,
        epochs=recipe.rate_epochs,
        table=recipe.rate_table,
    )
    plan = TrainingPlan(
        epochs=recipe.epochs,
        max_training_steps=recipe.max_training_steps,
        seed=workload.seed,
        evaluation=Evaluation(
            when=recipe.evaluate, validation_share=recipe.validation_share, keep_best=recipe.keep_best
        ),
        rate=None if recipe.schedule == "constant" else rate,
        engine=recipe.engine,
    )
    return train(
        compiled.program,
        network,
        *data,
        plan,
        weights=weights,
        checkpoints=checkpoints,
        progress=progress,
    )


def _with_few_training_steps(workload: Workload, training_steps: int) -> Workload:
    """Only so many training steps, for their spikes: nothing is evaluated."""
    recipe = {"max_training_steps": training_steps, "evaluate": "never", "keep_best": False, "engine": "program"}
    return workload.model_copy(update={"training": workload.training.model_copy(update=recipe)})


def _retrain(
    machine: MimdMachine,
    compiled: Compiled,
    data: tuple[SpikeDataset, SpikeDataset],
    workload: Workload,
    training_steps: int,
) -> TrainingLog:
    """So many training steps of a changed workload on the samples of another, compiled again if it must be."""
    workload = _with_few_training_steps(workload, training_steps)
    if network_of(workload) != compiled.network:
        compiled = compile_workload(workload, machine, must_fit=False)
    return train_workload(workload, compiled, data)


def recorded_spikes(
    workload: Workload, machine: MimdMachine, training_steps: int, progress: Progress = silent
) -> RecordedActivity:
    """The spikes of the last of so many training steps; memory limits do not matter for values."""
    workload = _with_few_training_steps(workload, training_steps)
    compiled = compile_workload(workload, machine, must_fit=False)
    return train_workload(workload, compiled, open_data(workload, progress), progress).activity
