"""Inference after a training: the forward program alone, timed with the spikes of test samples on trained weights;
and their accuracy where no list drops a spike.

The program is executed at the workload's batch; what one sample fires is the same in a batch of one, so that programs
for single samples are timed with samples of these batches.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import fmean

import numpy as np

from mimdsim.base.errors import DescriptionError
from mimdsim.base.rng import stream
from mimdsim.compiler import Compiled, compile_graph
from mimdsim.execution import Executor, TrainingLog, WholeTensors, draw_randomness, load_batch, run_recorded
from mimdsim.execution.trainer import evaluate
from mimdsim.execution.whole_tensors import refusals
from mimdsim.gpu.strategies import STRATEGIES
from mimdsim.graph import SpikingNetwork, inference_graph, inference_network, training_graph
from mimdsim.machine import GpuMachine, MimdMachine
from mimdsim.machine.gpu import ELEMENT_BYTES
from mimdsim.pipeline.retiming import retime, time_on_gpus
from mimdsim.profile import GpuProfile, Inference, InferenceTime, TiledProfile
from mimdsim.program import Program, RecordedActivity
from mimdsim.workload import MappingOptions, SpikeDataset, Workload, network_of, open_dataset

SAMPLES = 16  # that are timed one by one, if there are as many; assumed to be enough for a mean
WORD_BYTES = 4  # of a score


def compile_inference(workload: Workload, machine: MimdMachine) -> tuple[Compiled, ...]:
    """The forward pass of `workload` alone, for single samples and for its batch unless that is one too, whether it
    fits or not; raises as `compile_graph`."""
    network = network_of(workload)
    return tuple(_compiled(network, batch, machine, workload.mapping) for batch in dict.fromkeys((1, network.batch)))


def _compiled(network: SpikingNetwork, batch: int, machine: MimdMachine, options: MappingOptions) -> Compiled:
    forward = inference_network(network, batch)
    return compile_graph(inference_graph(forward), forward, machine, _for_batch(options, batch), must_fit=False)


def _for_batch(options: MappingOptions, batch: int) -> MappingOptions:
    """No more copies of a layer than samples, on as many chips fewer."""
    split = {
        name: each.model_copy(
            update={"batch": min(each.batch, batch), "chips": max(1, each.chips * min(each.batch, batch) // each.batch)}
        )
        for name, each in options.split.items()
    }
    return options.model_copy(update={"split": split})


def record_inference(
    compiled: Compiled, weights: Mapping[str, np.ndarray], data: SpikeDataset, seed: int
) -> tuple[RecordedActivity, ...]:
    """The spikes of batches of samples drawn from `data`, as the forward program makes them: of SAMPLES samples, or of
    all where there are fewer, in whole batches."""
    batch, program = compiled.network.batch, compiled.program
    drawn = stream(seed, "inference").permutation(len(data.labels))[: max(SAMPLES, batch)]
    executor = Executor(program, rounded=True)
    executor.write(weights)
    found = []
    for first in range(0, len(drawn), batch):
        load_batch(executor, data, np.resize(drawn[first : first + batch], batch))
        draw_randomness(executor, "inference", first)
        found.append(run_recorded(executor, compiled.network))
    return tuple(found)


def run_inference(
    programs: tuple[Compiled, ...],
    machine: MimdMachine,
    gpus: Sequence[GpuMachine],
    weights: Mapping[str, np.ndarray],
    data: tuple[SpikeDataset, SpikeDataset],
    seed: int,
) -> tuple[Inference, ...]:
    """Inference of test samples with `weights`, any batch norm folded into them, of training samples where `data` has
    no others: one record a batch size, first that of single samples."""
    samples = next(part for part in reversed(data) if len(part.labels))
    recorded = record_inference(programs[-1], weights, samples, seed)
    alone = tuple(_single_samples(recorded))[: min(SAMPLES, len(samples.labels))]
    runs = (alone, recorded)
    return tuple(_timed(each, machine, gpus, of_it) for each, of_it in zip(programs, runs, strict=False))


def infer_single_samples(workload: Workload, machine: MimdMachine, activity: RecordedActivity) -> Inference:
    """Inference of single samples with the spikes of a training step: of SAMPLES of its batch, or of all."""
    compiled = _compiled(network_of(workload), 1, machine, workload.mapping)
    emitted = {name: counts[..., :1].repeat(2, axis=-1) for name, counts in activity.counts.items()}
    runs = _single_samples((replace(activity, counts=emitted),))
    return _timed(compiled, machine, (), tuple(runs)[:SAMPLES])


def _single_samples(recorded: Sequence[RecordedActivity]) -> Iterator[RecordedActivity]:
    for activity in recorded:
        for at in range(next(iter(activity.counts.values())).shape[1]):
            part = slice(at, at + 1)
            yield RecordedActivity(
                ids={name: ids[:, part] for name, ids in activity.ids.items()},
                counts={name: activity.counts[name][:, part] for name in activity.ids},
                dropped={},
            )


def _timed(
    compiled: Compiled, machine: MimdMachine, gpus: Sequence[GpuMachine], runs: Sequence[RecordedActivity]
) -> Inference:
    network, program = compiled.network, compiled.program
    timed = [retime(compiled, machine, run) for run in runs]
    typical = sorted(range(len(runs)), key=lambda at: timed[at].cycles)[len(runs) // 2]
    on_gpus = [time_on_gpus(compiled.graph, (gpu,), runs[typical])[0] for gpu in gpus]
    first = timed[0]
    turns = fmean(first.seconds(_cycles_of_turns(program, one)) for one in timed)
    device = fmean(one.seconds(one.cycles) for one in timed)
    scores_bytes = network.batch * network.classes * WORD_BYTES
    request = machine.host.request_seconds
    out = request + scores_bytes / machine.host.bytes_per_second
    energies = [one.energy for one in timed if one.energy is not None]
    return Inference(
        batch=network.batch,
        timesteps=network.timesteps,
        runs=len(runs),
        peak_bytes=first.memory.peak_bytes,
        limit_bytes=first.memory.limit_bytes,
        tiles_used=max(one.tiles_used for one in timed),
        slowest_seconds=max(one.seconds(one.cycles) for one in timed) + first.host_seconds + out,
        fixed_seconds=device - turns,
        incomparable=first.incomparable,
        tiled=InferenceTime(
            machine=first.machine,
            title=first.title,
            how="compiled to tiles",
            device_seconds=device,
            device_low=fmean(one.device_ends[0] for one in timed),
            device_high=fmean(one.device_ends[1] for one in timed),
            host_seconds=first.host_seconds + out,
            exposed_seconds=fmean(one.host_exposed_seconds for one in timed),
            timestep_seconds=turns / network.timesteps,
            timestep_host_seconds=request + (first.host_seconds - request) / network.timesteps + out,
            timestep_how="one turn of the repeat",
            joules=fmean(each.joules for each in energies) if energies else None,
            joules_low=fmean(each.joules_low for each in energies) if energies else 0.0,
            joules_high=fmean(each.joules_high for each in energies) if energies else 0.0,
        ),
        gpus=tuple(
            _on_gpu(profiles, gpu, network, scores_bytes)
            for gpu, profiles in zip(gpus, on_gpus, strict=True)
            if any(not profile.never_built for profile in profiles)
        ),
    )


def _cycles_of_turns(program: Program, tiled: TiledProfile) -> int:
    """Cycles within the repeat over the timesteps, its control among them."""
    within = [bool(stretch.repeats) for stretch in program.stretches() for _ in stretch.body]
    within += [True] * (len(tiled.spans) - len(within))  # control of loops has spans of its own, behind
    return sum(span.cycles for span, inside in zip(tiled.spans, within, strict=True) if inside)


def _on_gpu(
    profiles: Sequence[GpuProfile], gpu: GpuMachine, network: SpikingNetwork, scores_bytes: int
) -> InferenceTime:
    """The strongest strategy for whole samples, and the strongest of those that take one timestep after another."""
    built = [profile for profile in profiles if not profile.never_built]
    best = min(built, key=lambda one: _device_seconds(one) + one.host_seconds)
    device = _device_seconds(best)
    timesteps, convolutions = network.timesteps, any(layer.convolution for layer in network.layers)
    precision = next(name for name in ELEMENT_BYTES if name == best.precision)
    factor = best.residuals.factor if best.residuals else 1.0
    low, high = (end**factor for end in STRATEGIES[best.strategy].interval(precision, convolutions=convolutions))
    walking = [one for one in built if not STRATEGIES[one.strategy].hoisted]
    stepwise = min(walking, key=lambda one: _seconds_of_turns(one, timesteps), default=None)
    out = gpu.launch.host_synchronisation_seconds + scores_bytes / gpu.host.bytes_per_second
    energy = best.energy
    return InferenceTime(
        machine=gpu.name,
        title=gpu.title,
        how=f"{best.strategy}, {best.precision}",
        device_seconds=device,
        device_low=device * low,
        device_high=device * high,
        host_seconds=best.host_seconds + out,
        exposed_seconds=best.host_exposed_seconds,
        timestep_seconds=_seconds_of_turns(stepwise, timesteps) / timesteps if stepwise else None,
        timestep_host_seconds=best.host_seconds / timesteps + out,
        timestep_how=f"{stepwise.strategy}, {stepwise.precision}" if stepwise else "",
        joules=energy.joules if energy else None,
        joules_low=energy.joules_low if energy else 0.0,
        joules_high=energy.joules_high if energy else 0.0,
    )


def _device_seconds(profile: GpuProfile) -> float:
    return sum(span.seconds for span in profile.spans)


def _seconds_of_turns(profile: GpuProfile, timesteps: int) -> float:
    """Of kernels that are launched in every timestep."""
    return sum(span.seconds for span in profile.spans if span.times >= timesteps)


# ---- what trained weights are worth where no list drops a spike: in PyTorch, in a NIR file, on another machine


def unlimited(network: SpikingNetwork) -> SpikingNetwork:
    """The network with lists that hold every neuron; none is listed for its gradient alone."""
    layers = tuple(
        replace(
            layer,
            selection=replace(
                layer.selection,
                capacity=layer.neurons,
                second_threshold=layer.selection.threshold,
                truncation="lowest",
            ),
        )
        for layer in network.layers
    )
    return replace(network, layers=layers, input_capacity=network.inputs, threshold_schedule=None)


def accuracy_of_all_spikes(
    workload: Workload,
    network: SpikingNetwork,
    machine: MimdMachine,
    data: tuple[SpikeDataset, SpikeDataset],
    log: TrainingLog,
) -> float | None:
    """Share of the test samples that the trained weights have right in float32 with lists that hold every spike, of the
    layers and of the input; None where no list can drop one and nothing is rounded, or no test sample was evaluated."""
    limited = any(layer.spiking and layer.capacity < layer.neurons for layer in network.layers)
    surplus = data[1].surplus_events > 0
    if network.spikes == "dense" or not log.test_samples:
        return None
    if not limited and not surplus and workload.mapping.value_bytes == 4:
        return None
    test = _with_all_events(workload, network, data[1]) if surplus else data[1]
    if test is None:
        return None
    whole = unlimited(network)
    runner: Executor | WholeTensors
    if refusals(whole):
        options = workload.mapping.model_copy(update={"value_bytes": 4, "moment_bytes": 4})
        runner = Executor(compile_graph(training_graph(whole), whole, machine, options, must_fit=False).program)
    else:
        runner = WholeTensors(whole)
    runner.write(log.weights)
    return evaluate(runner, whole, _Widened(test, network.inputs))


def _with_all_events(workload: Workload, network: SpikingNetwork, test: SpikeDataset) -> SpikeDataset | None:
    """The same test samples with every input event; None where they are too large to be held."""
    wide = workload.data.model_copy(update={"input_capacity": network.inputs})
    try:
        found = open_dataset(wide, workload.seed, lambda *_: None)[1]
    except DescriptionError:
        return None
    return found if np.array_equal(found.labels, test.labels) else None


class _Widened:
    """Samples whose lists are padded to hold every input."""

    def __init__(self, data: SpikeDataset, inputs: int):
        self._data, self._inputs = data, inputs

    @property
    def labels(self) -> np.ndarray:
        return self._data.labels

    def batch(self, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """As of the samples, ids [timesteps, batch, inputs]."""
        ids, counts, labels = self._data.batch(indices)
        ids = ids[..., : self._inputs]  # lists may have more room than there are inputs
        return np.pad(ids, ((0, 0), (0, 0), (0, self._inputs - ids.shape[2]))), counts, labels
