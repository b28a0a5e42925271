"""What executes training steps and evaluations: whole tensors, or the compiled program.

Whole tensors hand their weights and moments to the compiled program before the last training step, which it executes
beside them for the spikes that are timed, and for every checkpoint, which is then that of a program.

What a network with batch norms makes of samples that it does not learn from: by its running averages.

What trains has the statistics of its batch in it. So these samples run by the forward pass of the network whose weights
have the running averages folded in: as whole tensors, or in the interpreter where the program trains.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Any, Literal, get_args

import numpy as np

from mimdsim.base.errors import MappingError, MimdsimError, suggest
from mimdsim.execution.execute import Executor, halves_of
from mimdsim.execution.whole_tensors import WholeTensors, refusals
from mimdsim.graph import SpikingNetwork, inference_graph, inference_network, interpret
from mimdsim.graph.names import INPUT, LEARNING_RATE, delay_width_of
from mimdsim.graph.norms import folded
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


# ---- numbers that change from one training step to the next: the learning rate and second thresholds


RISING_SHARE, FIRST_DIVISOR, LAST_DIVISOR = 0.3, 25.0, 1e4  # of "one_cycle": the defaults of PyTorch's OneCycleLR


@dataclass(frozen=True, kw_only=True)
class RateSchedule:
    """How the rate moves from training step to training step.

    kind: 'cosine' falls along half a cosine to `final_share` (Loshchilov & Hutter 2017, without restarts); 'step' is
    multiplied by `factor` after every `epochs` (PyTorch's StepLR; ExponentialLR for every epoch); 'one_cycle' rises and
    falls as OneCycleLR does by default; 'table' takes a share of the rate from each of its training steps on. All but
    the last two may rise linearly over the first training steps.
    """

    kind: str = "cosine"
    warm_up_training_steps: int = 0
    final_share: float = 0.0
    factor: float = 1.0
    epochs: int = 1
    table: tuple[tuple[int, float], ...] = ()

    def at(self, training_step: int, total: int, highest: float, per_epoch: int = 1) -> float:
        """The rate in a training step, counted from 0, of `total`, so many to an epoch."""
        if training_step < self.warm_up_training_steps:
            return highest * (training_step + 1) / self.warm_up_training_steps
        if self.kind == "table":
            return highest * next((share for step, share in reversed(self.table) if step <= training_step), 1.0)
        if self.kind == "step":
            return highest * float(self.factor ** (training_step // per_epoch // self.epochs))
        if self.kind == "one_cycle":
            return highest * _one_cycle(training_step, total)
        passed = (training_step - self.warm_up_training_steps) / max(1, total - self.warm_up_training_steps)
        return highest * _between(1.0, self.final_share, min(1.0, passed))


def _between(first: float, last: float, passed: float) -> float:
    """Half a cosine from one to the other."""
    return last + (first - last) * 0.5 * (1.0 + math.cos(math.pi * passed))


def _one_cycle(training_step: int, total: int) -> float:
    """The share of the highest rate."""
    top, end = RISING_SHARE * total - 1, total - 1
    if training_step <= top:
        return _between(1 / FIRST_DIVISOR, 1.0, training_step / top)
    return _between(1.0, 1 / (FIRST_DIVISOR * LAST_DIVISOR), (training_step - top) / max(end - top, 1e-9))


def scheduled_values(
    network: SpikingNetwork, rate: RateSchedule | None, training_step: int, total: int, per_epoch: int = 1
) -> dict[str, np.ndarray]:
    """float32[1] by graph input for a training step, counted from 0: what `network.scheduled` names."""
    values = {}
    for name, target in network.scheduled.items():
        if name == LEARNING_RATE:
            number = target if rate is None else rate.at(training_step, total, target, per_epoch)
        elif name in network.kept_shares:
            number = target
        elif name in network.delay_widths:
            every = {delay_width_of(layer.name): layer.delays for layer in network.layers if layer.delays}
            number = every[name].at(training_step)
        else:
            assert network.threshold_schedule is not None
            number = network.threshold_schedule.at(training_step, target)
        values[name] = np.full(1, number, np.float32)
    return values


ADVICE = (
    "lower training.learning_rate or training.weight_scale, or clip gradients (training.largest_gradient_norm), and "
    "train again"
)
STATES = ("neuron states", "gradients", "weight gradients")  # categories of variables


class Diverged(MimdsimError):
    """Weights, states, gradients or the loss of a training are not finite."""


def refuse_diverged(
    runner: Runner, weights: Iterable[str], when: str, *, loss: float | None = None, states: bool = False
) -> None:
    """Raise Diverged if a weight or the loss is not finite; with `states` also for states and gradients of a program.

    when: 'after training step 3 of 12'.
    """
    if loss is not None and not isfinite(loss):
        raise Diverged(f"training diverged: the loss is {loss} {when}; {ADVICE}")
    if isinstance(runner, Executor):
        program, held = runner.program, runner.arrays
        found = [(name, held[program.inputs[name]]) for name in weights]
        if states:
            found += [(name, held[name]) for name, made in program.variables.items() if made.category in STATES]
    else:
        found = list(runner.weights.items())
    for name, array in found:
        if array.dtype.kind == "f" and not _finite(array):
            raise Diverged(f"training diverged: '{name}' holds values that are not finite {when}; {ADVICE}")


def _finite(array: np.ndarray) -> bool:
    """Whether all elements are; the sum of all tells it without a second array, unless it overflows itself."""
    with np.errstate(over="ignore", invalid="ignore"):
        return bool(np.isfinite(array.sum()) or np.isfinite(array).all())
