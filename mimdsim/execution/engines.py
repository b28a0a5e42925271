"""What executes training steps and evaluations: whole tensors, or the compiled program.

Whole tensors hand their weights and moments to the compiled program before the last training step, which it executes
beside them for the spikes that are timed, and for every checkpoint, which is then that of a program.

What a network with batch norms makes of samples that it does not learn from: by its running averages.

What trains has the statistics of its batch in it. So these samples run by the forward pass of the network whose weights
have the running averages folded in: as whole tensors, or in the interpreter where the program trains.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Literal, get_args

import numpy as np

from mimdsim.base.errors import MappingError, suggest
from mimdsim.execution.execute import Executor, halves_of
from mimdsim.execution.whole_tensors import WholeTensors, refusals
from mimdsim.graph import SpikingNetwork, inference_graph, inference_network, interpret
from mimdsim.graph.batch_norm import folded
from mimdsim.graph.names import INPUT
from mimdsim.program import Program

EngineName = Literal["auto", "whole_tensors", "program"]
Runner = Executor | WholeTensors


def engine_refusals(name: str, program: Program, network: SpikingNetwork) -> list[str]:
    """Why engine `name` cannot train this program; nothing where it can."""
    if name not in get_args(EngineName):
        return [f"no such engine '{name}'{suggest(name, get_args(EngineName))}"]
    return _beyond_whole_tensors(program, network) if name == "whole_tensors" else []


def _beyond_whole_tensors(program: Program, network: SpikingNetwork) -> list[str]:
    """What of a network whole tensors cannot train, one by one."""
    problems = refusals(network)
    if halves_of(program):
        problems.append(
            "values or moments in half precision (mapping.value_bytes, mapping.moment_bytes): whole tensors hold "
            'float32; use training.engine = "program"'
        )
    return problems


class Engine:
    """The executor of a program and, unless that trains, whole tensors beside it; both start from the same memory.

    name: what trains, 'whole_tensors' or 'program'. reasons: why 'auto' chose the program.
    """

    def __init__(self, name: str, program: Program, network: SpikingNetwork):
        """Raises MappingError for an engine that is not known, or not able to train the network."""
        problems = engine_refusals(name, program, network)
        if problems:
            raise MappingError("\n".join(problems))
        self.reasons = tuple(_beyond_whole_tensors(program, network)) if name == "auto" else ()
        self.name: Literal["whole_tensors", "program"] = (
            "program" if name == "program" or self.reasons else "whole_tensors"
        )
        self._executor = Executor(program, rounded=True)
        self._tensors = WholeTensors(network) if self.name == "whole_tensors" else None

    @property
    def runner(self) -> Runner:
        """What runs training steps and evaluations."""
        return self._executor if self._tensors is None else self._tensors

    def program(self) -> Executor:
        """The executor with all that training has made so far in its memory."""
        if self._tensors is not None:
            self._executor.write({name: self._tensors.read(name) for name in self._tensors.memory})
        return self._executor

    def take(self, executor: Executor) -> None:
        """Go on from what `executor`, the one of `program`, has in its memory."""
        if self._tensors is not None:
            inputs = executor.program.inputs
            self._tensors.write({name: executor.arrays[inputs[name]] for name in self._tensors.memory})


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
