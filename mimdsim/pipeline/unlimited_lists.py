"""What trained weights are worth where no list drops a spike: in PyTorch, in a NIR file, on another machine."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from mimdsim.base.errors import DescriptionError
from mimdsim.compiler import compile_graph
from mimdsim.execution import Executor, TrainingLog, WholeTensors
from mimdsim.execution.trainer import evaluate
from mimdsim.execution.whole_tensors import refusals
from mimdsim.graph import SpikingNetwork, training_graph
from mimdsim.machine import MimdMachine
from mimdsim.workload import SpikeDataset, Workload, open_dataset


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
