"""What is said before the numbers when a training run went wrong."""

from __future__ import annotations

import numpy as np
import pytest

from mimdsim.functional import TrainingLog
from mimdsim.program import RecordedActivity
from mimdsim.run.cautions import loss_warning


def log(loss: list[float]) -> TrainingLog:
    nothing = RecordedActivity(ids={}, counts={}, dropped={})
    return TrainingLog(
        loss=tuple(loss),
        test_accuracy_by_epoch=(),
        train_accuracy=None,
        test_samples=0,
        weights={},
        activity=nothing,
    )


@pytest.mark.parametrize("wrong", [float("nan"), float("inf")])
def test_a_loss_that_is_no_number_is_said_with_its_training_step(wrong: float) -> None:
    (said,) = loss_warning(log([2.3, 2.2, wrong, wrong]))
    assert f"the loss was {wrong} in training step 3 of 4" in said
    assert "lower training.learning_rate" in said


def test_a_loss_that_rises_is_said() -> None:
    (said,) = loss_warning(log(np.linspace(2, 5, 40).tolist()))
    assert "the loss rose from 2.269 (first fifth of 40 training steps) to 4.731 (last)" in said


@pytest.mark.parametrize(
    "loss",
    [
        [],
        [2.3],
        [2.3, 9.0],  # too few to tell
        np.linspace(3, 1, 40).tolist(),
        [2.3 + 0.05 * (step % 3) for step in range(40)],
        np.linspace(-3, -4, 40).tolist(),
        np.linspace(0.001, 0.02, 40).tolist(),  # learned already
    ],
)
def test_other_losses_say_nothing(loss: list[float]) -> None:
    assert loss_warning(log(loss)) == ()
