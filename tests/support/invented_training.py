"""Logs and samples of trainings that never were."""

from __future__ import annotations

import numpy as np

from mimdsim.execution import TrainingLog
from mimdsim.program import RecordedActivity
from mimdsim.workload import SpikeDataset


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


def samples(labels: np.ndarray, classes: int = 10) -> SpikeDataset:
    nothing = np.zeros((len(labels), 1, 1), np.int32)
    return SpikeDataset(
        ids=nothing, counts=nothing[..., 0], labels=labels.astype(np.int32), inputs=1, classes=classes, surplus_events=0
    )
