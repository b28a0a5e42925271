"""Numbers that change from one training step to the next: the learning rate and second thresholds."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from mimdsim.graph import SpikingNetwork
from mimdsim.graph.names import LEARNING_RATE


@dataclass(frozen=True, kw_only=True)
class RateSchedule:
    """The rate rises linearly over the first training steps and then falls along half a cosine (Loshchilov & Hutter
    2017, without restarts)."""

    warm_up_training_steps: int = 0
    final_share: float = 0.0

    def at(self, training_step: int, total: int, highest: float) -> float:
        """The rate in a training step, counted from 0, of `total`."""
        if training_step < self.warm_up_training_steps:
            return highest * (training_step + 1) / self.warm_up_training_steps
        passed = (training_step - self.warm_up_training_steps) / max(1, total - self.warm_up_training_steps)
        wave = 0.5 * (1.0 + math.cos(math.pi * min(1.0, passed)))
        return highest * (self.final_share + (1.0 - self.final_share) * wave)


def scheduled_values(
    network: SpikingNetwork, rate: RateSchedule | None, training_step: int, total: int
) -> dict[str, np.ndarray]:
    """float32[1] by graph input for a training step, counted from 0: what `network.scheduled` names."""
    values = {}
    for name, target in network.scheduled.items():
        if name == LEARNING_RATE:
            number = target if rate is None else rate.at(training_step, total, target)
        else:
            assert network.threshold_schedule is not None
            number = network.threshold_schedule.at(training_step, target)
        values[name] = np.full(1, number, np.float32)
    return values
