"""What executes training steps and evaluations: whole tensors, or the compiled program.

Whole tensors hand their weights and moments to the compiled program before the last training step, which it executes
beside them for the spikes that are timed, and for every checkpoint, which is then that of a program.
"""

from __future__ import annotations

from typing import Literal, get_args

from mimdsim.base.errors import MappingError, suggest
from mimdsim.execution.execute import Executor, halves_of
from mimdsim.execution.whole_tensors import WholeTensors, refusals
from mimdsim.graph import SpikingNetwork
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
