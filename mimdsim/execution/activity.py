"""What the spikes of a training step come to, by layer: counts, lists, what was dropped, how sparse each pass is."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from functools import partial
from typing import Literal

import numpy as np

from mimdsim.execution.execute import Executor
from mimdsim.graph import Layer, SpikingNetwork
from mimdsim.graph.names import INPUT
from mimdsim.graph.sources import Source
from mimdsim.profile import Activity, Sparsity
from mimdsim.program import RecordedActivity, Superstep

RASTER_POINTS = 4000
Firing = Literal["never", "always"]


def constant_layers(network: SpikingNetwork, activity: RecordedActivity) -> dict[str, Firing]:
    """The layers, and the input, whose spikes of a training step tell nothing: none, or in every sample all neurons in
    every timestep from the first spike on, over half of the timesteps; dropped spikes count. Cells that send a number
    always tell something."""
    found: dict[str, Firing] = {}
    numbers = {layer.name for layer in network.layers if layer.sends_numbers}
    for name, neurons in _populations(network):
        if name in numbers:
            continue
        counts = activity.counts[name][..., 0]
        emitted = int(counts.sum(dtype=np.int64)) + activity.dropped.get(name, 0)
        if not emitted:
            found[name] = "never"
            continue
        since = int((len(counts) - (counts > 0).argmax(axis=0)).sum())  # timesteps from the first spike of each sample
        if name != INPUT and 2 * since > counts.size and emitted == neurons * since:
            found[name] = "always"
    return found


def spike_shares(network: SpikingNetwork, activity: RecordedActivity) -> dict[str, float]:
    """By layer, the share of its neurons that spike in a timestep; mean over timesteps and samples."""
    return {
        name: float(activity.counts[name][..., 0].mean()) / neurons
        for name, neurons in _populations(network)
        if name != INPUT
    }


def _populations(network: SpikingNetwork) -> list[tuple[str, int]]:
    """Name and neurons of what sends spikes: the input, if it does, and the layers."""
    return [(name, neurons) for name, neurons, _ in _sizes(network)[network.encoding != "events" :]]


def activity_profiles(network: SpikingNetwork, activity: RecordedActivity) -> tuple[Activity, ...]:
    """Spikes per layer of the recorded training step, the network input first."""
    profiles = []
    numbers = {layer.name for layer in network.layers if layer.cell and not layer.cell.of.spiking}
    numbers |= {INPUT} if network.encoding != "events" else set()
    for index, (name, neurons, capacity) in enumerate(_sizes(network)):
        ids, counts = activity.ids[name], activity.counts[name]
        t, slot = np.nonzero(np.arange(ids.shape[2]) < counts[:, 0, :1])
        points = np.column_stack([t, ids[t, 0, slot]])[:RASTER_POINTS]
        dropped = activity.dropped.get(name, 0)
        profiles.append(
            Activity(
                layer=name,
                neurons=neurons,
                capacity=capacity,
                spikes_by_timestep=tuple(counts[..., 0].mean(axis=1).round(4).tolist()),
                listed_by_timestep=tuple(counts[..., 1].mean(axis=1).round(4).tolist()),
                full_lists=float((counts[..., 1] >= capacity).mean().round(6)),
                dropped=dropped,
                raster=tuple((int(when), int(neuron)) for when, neuron in points if name not in numbers),
                sparsity=_sparsity(network, activity, index - 1, dropped) if index else None,
                sends="numbers" if name in numbers else "lists" if network.spikes == "sparse" else "dense",
                reads=_read_by(network, network.layers[index - 1]) if index else (),
            )
        )
    return tuple(profiles)


def _read_by(network: SpikingNetwork, layer: Layer) -> tuple[str, ...]:
    own = (layer.name,) if layer.recurs else ()
    return tuple(dict.fromkeys((*(each.name for each in network.terms(layer)), *own)))


def _sizes(network: SpikingNetwork) -> list[tuple[str, int, int]]:
    """(name, neurons, most spikes in one timestep) of the network input and of every layer that spikes."""
    sizes = [(INPUT, network.inputs, network.input_capacity)]
    return sizes + [
        (layer.name, layer.neurons, network.most_spikes(layer)) for layer in network.layers if layer.spiking
    ]


def activity_problem(network: SpikingNetwork, activity: RecordedActivity) -> str:
    """Why spikes read from a file cannot be those of a training step of the network; '' if they can."""
    for name, neurons, _ in _sizes(network):
        ids, counts = activity.ids.get(name), activity.counts.get(name)
        if ids is None or counts is None:
            return f"the spikes of '{name}' are missing"
        turns = [network.timesteps, network.batch]
        if ids.dtype != np.int32 or ids.ndim != 3 or [*ids.shape[:2]] != turns:
            return f"the ids of '{name}' are {ids.dtype}{[*ids.shape]}, not int32{[*turns, 'capacity']}"
        if counts.dtype != np.int32 or [*counts.shape] != [*turns, 2]:
            return f"the counts of '{name}' are {counts.dtype}{[*counts.shape]}, not int32{[*turns, 2]}"
        if counts.size and (counts.min() < 0 or counts.max() > neurons or counts[..., 0].max() > ids.shape[2]):
            return f"the counts of '{name}' are not from 0 to {min(neurons, ids.shape[2])}"
        listed = ids[np.arange(ids.shape[2]) < counts.max(axis=2, keepdims=True)]
        if listed.size and (listed.min() < 0 or listed.max() >= neurons):
            return f"the ids of '{name}' are not from 0 to {neurons - 1}"
    return ""


def _sparsity(network: SpikingNetwork, activity: RecordedActivity, index: int, dropped: int) -> Sparsity:
    """Of layer `index`, and of all spikes that its weights read."""
    layer = network.layers[index]
    counts = activity.counts[layer.name]
    emitted = int(counts[..., 0].sum())
    read, touched, presynaptic = np.sum(
        [_spikes_read(network, layer, each, activity) for each in network.sources(layer)], axis=0
    )
    return Sparsity(
        forward=_zeros(counts[..., 0].mean() / layer.neurons),
        # dense spikes are all given a gradient
        state_gradient=_zeros(counts[..., 1].mean() / layer.neurons) if network.spikes == "sparse" else 0.0,
        weight_gradient=_zeros(read / counts[..., 0].size / presynaptic),
        untouched_weights=_zeros(touched / presynaptic),
        dropped_share=round(dropped / (emitted + dropped), 6) if emitted + dropped else 0.0,
    )


def _spikes_read(
    network: SpikingNetwork, layer: Layer, source: Source, activity: RecordedActivity
) -> tuple[int, int, int]:
    """Of the presynaptic neurons of a source (of a convolution its planes, whose pixels share weights): those that
    spike, added up over timesteps and samples; those that ever do; and how many there are. What is made
    of several spikes where it is not zero."""
    timesteps, samples, _ = activity.counts[layer.name].shape
    convolution = layer.convolution_of(source.neurons)
    planes = convolution.planes.channels if convolution else source.neurons
    read, ever = 0, np.zeros(planes, bool)

    def spikes_at(t: int, term: Source) -> np.ndarray:
        spikes = np.zeros((samples, term.neurons), np.float32)
        if t >= (term.lag or 0):
            ids, counts = (of[term.name][t - (term.lag or 0)] for of in (activity.ids, activity.counts))
            sample, slot = np.nonzero(np.arange(ids.shape[1]) < counts[:, :1])
            spikes[sample, ids[sample, slot]] = 1
        return spikes

    for t in range(timesteps):
        spikes = source.values(partial(spikes_at, t), network.planes_of)
        of_planes = spikes.reshape(samples, planes, -1).any(axis=2)
        read += int(of_planes.sum())
        ever |= of_planes.any(axis=0)
    return read, int(ever.sum()), planes


def _zeros(share: float) -> float:
    return round(1.0 - float(share), 6)


class PassingSpikes:
    """Spikes of layers that a program passes on without keeping them, copied as they are made. Called after every
    superstep of a run."""

    def __init__(self, executor: Executor):
        program, self._names = executor.program, executor.program.observables.passing
        self._kept = {
            name: np.zeros((executor.timesteps, *executor.arrays[name].shape), executor.arrays[name].dtype)
            for names in self._names.values()
            for name in names
        }
        self._writes = {
            id(superstep): self._kept.keys() & {*superstep.variables_written}
            for superstep, _, _ in program.supersteps()
        }

    def __call__(self, superstep: Superstep, t: int, executor: Executor) -> None:
        for name in self._writes[id(superstep)]:
            self._kept[name][t] = executor.arrays[name]

    @property
    def layers(self) -> dict[str, tuple[np.ndarray, ...]]:
        """By layer: sequences of ids and counts, or of rows."""
        return {layer: tuple(self._kept[name] for name in names) for layer, names in self._names.items()}


def run_recorded(
    executor: Executor, network: SpikingNetwork, phases: Collection[str] | None = None
) -> RecordedActivity:
    """Run one training step of the compiled program, or `phases` of it; its spikes, and how many were dropped."""
    thresholds, passing = _thresholds(network), PassingSpikes(executor)
    beyond_stash = {
        each.value: layer for layer, each in executor.program.observables.potentials.items() if not each.sequence
    }
    fired = dict.fromkeys(beyond_stash.values(), 0)  # of layers whose potentials are not kept of every timestep

    def watch(superstep: Superstep, t: int, executor: Executor) -> None:
        passing(superstep, t, executor)
        for variable, value in superstep.defines if superstep.phase == "forward" else ():
            if value in beyond_stash:
                layer = beyond_stash[value]
                fired[layer] += int((executor.arrays[variable] > thresholds[layer]).sum())

    executor.run(phases, observe=watch if fired or passing.layers else None)
    activity = executor.activity(passing.layers)
    dropped = {name: spikes - int(activity.counts[name][..., 0].sum()) for name, spikes in fired.items()}
    return replace(activity, dropped=dropped_spikes(executor, network, activity) | dropped)


def dropped_spikes(executor: Executor, network: SpikingNetwork, activity: RecordedActivity) -> dict[str, int]:
    """By layer, whole batch and sequence, where the program keeps the potentials of every timestep."""
    thresholds, dropped = _thresholds(network), {}
    for layer, potential in executor.program.observables.potentials.items():
        if potential.sequence:
            fired = int((executor.arrays[potential.sequence] > thresholds[layer]).sum())
            dropped[layer] = fired - int(activity.counts[layer][..., 0].sum())
    return dropped


def _thresholds(network: SpikingNetwork) -> dict[str, np.float32]:
    return {layer.name: np.float32(layer.selection.threshold) for layer in network.layers}
