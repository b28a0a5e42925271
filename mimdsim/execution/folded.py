"""What a network with batch norms makes of samples that it does not learn from: by its running averages.

What trains has the statistics of its batch in it. So these samples run by the forward pass of the network whose weights
have the running averages folded in: as whole tensors, or in the interpreter where the program trains.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from mimdsim.execution.execute import Executor
from mimdsim.execution.whole_tensors import WholeTensors
from mimdsim.graph import SpikingNetwork, inference_graph, inference_network, interpret
from mimdsim.graph.batch_norm import folded
from mimdsim.graph.names import INPUT


class FoldedNetwork:
    """Runs as an Executor does, with the parameters that one has now."""

    generators: Mapping[str, int] = {}
    inputs = (INPUT,)

    def __init__(self, executor: Executor, network: SpikingNetwork):
        held = {name: executor.arrays[executor.program.inputs[name]] for name in network.parameters}
        self.network = inference_network(network, network.batch)
        self._graph = inference_graph(self.network)
        self._given: dict[str, Any] = {**folded(network.layers, held)}
        self._given |= dict.fromkeys(self.network.delay_widths, np.float32(0))
        self._made: dict[str, Any] = {}

    def width(self, name: str) -> int:
        """Of the rows of the input."""
        return self.network.inputs

    def write(self, values: Mapping[str, Any]) -> None:
        """Set the input."""
        self._given |= values

    def run(self, phases: Collection[str] | None = None) -> None:
        """The forward pass, whatever the phases."""
        self._made = interpret(self._graph, self._given)

    def read(self, name: str) -> np.ndarray:
        """What the last run made."""
        return np.asarray(self._made[name])


def folded_runner(given: Executor | WholeTensors, network: SpikingNetwork) -> FoldedNetwork | WholeTensors:
    """What samples that are not learned from run on, with the parameters that `given` has now."""
    if isinstance(given, Executor):
        return FoldedNetwork(given, network)
    made = WholeTensors(inference_network(network, network.batch), given.threads)
    made.write(folded(network.layers, {name: given.read(name) for name in network.parameters}))
    return made
