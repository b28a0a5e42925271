"""Schedules of the learning rate, training step by training step, against PyTorch's schedulers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from mimdsim.execution.engines import RateSchedule

torch = pytest.importorskip("torch")
schedulers: Any = torch.optim.lr_scheduler
PER_EPOCH, EPOCHS, RATE = 7, 6, 0.03

# ours, whether theirs steps by epochs, theirs
SCHEDULES: dict[str, tuple[RateSchedule, bool, Callable[[Any], Any]]] = {
    "StepLR": (RateSchedule(kind="step", factor=0.1, epochs=2), True, lambda o: schedulers.StepLR(o, 2, gamma=0.1)),
    "ExponentialLR": (RateSchedule(kind="step", factor=0.9), True, lambda o: schedulers.ExponentialLR(o, gamma=0.9)),
    "OneCycleLR": (
        RateSchedule(kind="one_cycle"), False,
        lambda o: schedulers.OneCycleLR(o, max_lr=RATE, total_steps=PER_EPOCH * EPOCHS),
    ),
    "CosineAnnealingLR": (
        RateSchedule(final_share=0.1), False,
        lambda o: schedulers.CosineAnnealingLR(o, T_max=PER_EPOCH * EPOCHS, eta_min=0.1 * RATE),
    ),
    "MultiStepLR": (
        RateSchedule(kind="table", table=((0, 1.0), (10, 0.5), (25, 0.25))), False,
        lambda o: schedulers.MultiStepLR(o, [10, 25], gamma=0.5),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SCHEDULES)
def test_a_schedule_moves_as_that_of_pytorch(name: str) -> None:
    ours, by_epoch, theirs = SCHEDULES[name]
    optimiser = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=RATE)
    scheduler, total = theirs(optimiser), PER_EPOCH * EPOCHS
    for number in range(total):
        found = ours.at(number, total, RATE, PER_EPOCH)
        np.testing.assert_allclose(found, optimiser.param_groups[0]["lr"], rtol=1e-9, err_msg=str(number))
        optimiser.step()
        if not by_epoch or (number + 1) % PER_EPOCH == 0:
            scheduler.step()
