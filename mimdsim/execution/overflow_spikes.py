"""True spikes beyond a layer's capacity: no list holds them, so they are counted from the potentials."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import numpy as np

from mimdsim.execution.execute import Executor
from mimdsim.graph import SpikingNetwork
from mimdsim.program import RecordedActivity, Superstep


def run_recorded(
    executor: Executor, network: SpikingNetwork, phases: Collection[str] | None = None
) -> RecordedActivity:
    """Run one training step of the compiled program, or `phases` of it; its spikes, and how many were dropped."""
    watched = FiredBeyondStash(executor, network)
    executor.run(phases, observe=watched if watched.fired else None)
    activity = executor.activity()
    dropped = dropped_spikes(executor, network, activity) | watched.dropped(activity)
    return replace(activity, dropped=dropped)


def dropped_spikes(executor: Executor, network: SpikingNetwork, activity: RecordedActivity) -> dict[str, int]:
    """By layer, whole batch and sequence, where the program keeps the potentials of every timestep."""
    thresholds, dropped = _thresholds(network), {}
    for layer, potential in executor.program.observables.potentials.items():
        if potential.sequence:
            fired = int((executor.arrays[potential.sequence] > thresholds[layer]).sum())
            dropped[layer] = fired - int(activity.counts[layer][..., 0].sum())
    return dropped


class FiredBeyondStash:
    """Counts true spikes of layers whose potentials the program does not keep of every timestep, as it runs."""

    def __init__(self, executor: Executor, network: SpikingNetwork):
        potentials = executor.program.observables.potentials
        self._layer_of = {each.value: layer for layer, each in potentials.items() if not each.sequence}
        self.fired = dict.fromkeys(self._layer_of.values(), 0)
        self._thresholds = _thresholds(network)

    def __call__(self, superstep: Superstep, _t: int, executor: Executor) -> None:
        for variable, value in superstep.defines if superstep.phase == "forward" else ():
            if value in self._layer_of:
                layer = self._layer_of[value]
                self.fired[layer] += int((executor.arrays[variable] > self._thresholds[layer]).sum())

    def dropped(self, activity: RecordedActivity) -> dict[str, int]:
        """As `dropped_spikes`."""
        return {name: fired - int(activity.counts[name][..., 0].sum()) for name, fired in self.fired.items()}


def _thresholds(network: SpikingNetwork) -> dict[str, np.float32]:
    return {layer.name: np.float32(layer.selection.threshold) for layer in network.layers}
