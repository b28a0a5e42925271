"""A training that diverged is ended by name: whose numbers are none any more, and after which training step.

Weights are looked at after every training step, one pass over what the optimiser has just written; states and gradients
where the compiled program ran, at the end of every epoch and in the last training step, whose spikes are timed.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import isfinite

import numpy as np

from mimdsim.base.errors import MimdsimError
from mimdsim.execution.engines import Runner
from mimdsim.execution.execute import Executor

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
