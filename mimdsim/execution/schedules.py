"""Numbers that change from one training step to the next: the learning rate and second thresholds."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from math import isfinite

import numpy as np

from mimdsim.base.errors import MimdsimError
from mimdsim.execution.engines import Runner
from mimdsim.execution.execute import Executor
from mimdsim.graph import SpikingNetwork
from mimdsim.graph.names import LEARNING_RATE, delay_width_of

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
