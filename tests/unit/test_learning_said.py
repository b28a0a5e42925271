"""A loss that does not move and an accuracy of guessing are said; of trainings too short to tell, nothing is."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from invented_training import log, samples

from mimdsim.execution import TrainingLog
from mimdsim.pipeline.findings import label_warning, learning_findings, loss_plateau
from mimdsim.workload import Workload, load_workload

LN10 = math.log(10)
NOISE = 0.1 * np.random.default_rng(1).standard_normal(1000)


def digits(**changes: Any) -> Workload:
    return load_workload("digits", {key.replace("__", "."): value for key, value in changes.items()})


@pytest.mark.parametrize(
    ("loss", "changes", "said"),
    [
        ([LN10] * 2, {}, "The loss is that of a guess, ln 10 = 2.303, in all 2 training steps"),
        ([np.float32(LN10)] * 500, {}, "in all 500 training steps"),
        ([30 * LN10] * 3, {"training__reading": "every"}, "ln 10 = 2.303 per timestep, in all 3"),
        (LN10 + 0.2 * NOISE, {}, "The loss does not move: 2.30"),
        (4 + 0.2 * NOISE, {}, "4 in the last; a guess has ln 10"),  # worse than a guess, and as good at the end
        ([LN10], {}, ""),
        ([], {}, ""),
        ([LN10, LN10 + 0.001], {}, ""),  # too short to tell
        (LN10 + 0.2 * NOISE[:99], {}, ""),
        (LN10 + 30 * NOISE, {}, ""),  # so much noise that it may move
        (np.linspace(LN10, 0.96 * LN10, 1000), {}, ""),  # slowly, but it moves
        (0.5 + 0.02 * NOISE, {}, ""),  # learned before, as from given weights
        (np.linspace(2, 0.2, 1000), {}, ""),
    ],
)
def test_a_loss_that_does_not_move(loss: Any, changes: dict[str, Any], said: str) -> None:
    found = loss_plateau(digits(**changes), 10, np.asarray(loss, np.float64))
    assert said in found
    assert bool(said) == bool(found)


def test_a_squared_error_has_no_loss_of_guessing() -> None:
    squared = digits(training__loss="mean_squared_error")
    assert loss_plateau(squared, 10, np.full(3, LN10)) == ""
    said = loss_plateau(squared, 10, np.full(200, 0.5))
    assert said == "The loss does not move: 0.5 in the first fifth of 200 training steps, 0.5 in the last"


def trained(accuracy: float, steps: int = 348) -> TrainingLog:
    falling = log(np.linspace(2.3, 1.0, steps).tolist())
    return replace(falling, test_accuracy_by_epoch=(0.0, accuracy), test_samples=359)


EVEN = np.arange(359) % 10
SKEWED = np.where(np.arange(359) % 10 < 7, 0, np.arange(359) % 10)  # 70 % are of one class


@pytest.mark.parametrize(
    ("labels", "accuracy", "steps", "said"),
    [
        (EVEN, 0.10, 348, "The test accuracy, 10.0 % on 359 samples, is no better than naming the most frequent class"),
        (EVEN, 0.12, 348, "after 348 training steps"),
        (EVEN, 0.14, 348, ""),
        (EVEN, 0.10, 19, ""),  # hardly trained
        (SKEWED, 0.70, 348, "every time (70.2 %)"),
        (SKEWED, 0.78, 348, ""),
        (EVEN[:20], 0.10, 348, "on 20 samples"),
        (EVEN[:4], 0.25, 348, ""),  # four samples of four classes tell nothing
        (np.zeros(40, int), 1.0, 348, ""),  # one class only: absent classes are said
        (EVEN[:0], 0.1, 348, ""),
    ],
)
def test_an_accuracy_of_guessing(labels: np.ndarray, accuracy: float, steps: int, said: str) -> None:
    data = samples(EVEN), samples(labels)
    found = learning_findings(digits(), data, trained(accuracy, steps))
    assert bool(found) == bool(said)
    assert all(said in one.text and not one.passed and one.name == "learning" for one in found)
    assert not [*label_warning(digits(), data, trained(accuracy, steps))]


def test_random_labels_can_only_be_guessed() -> None:
    """Said as what it is, not as a fault of the training."""
    workload = load_workload("random-4")
    data = samples(EVEN), samples(EVEN)
    assert learning_findings(workload, data, trained(0.1)) == ()
    (said,) = label_warning(workload, data, trained(0.1))
    assert "labels do not depend on spikes" in said
    assert not [*label_warning(workload, data, trained(0.9))]
    assert [*label_warning(workload, (data[0], samples(EVEN[:4])), trained(0.25, 4))] == [said]
