"""Training and changed fields of a run as profile records."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from mimdsim.execution import TrainingLog
from mimdsim.profile import Change, Training
from mimdsim.workload import Workload


def training_profile(workload: Workload, log: TrainingLog, batch: int) -> Training:
    """Loss and accuracies as profile records."""
    by_epoch = log.test_accuracy_by_epoch
    at_end = len(by_epoch) - 1 if log.best_epoch is None else log.best_epoch
    held = log.validation_accuracy_by_epoch
    return Training(
        training_steps=len(log.loss),
        samples=len(log.loss) * batch,
        batch=batch,
        loss=log.loss,
        train_accuracy=log.train_accuracy,
        test_accuracy=by_epoch[at_end] if by_epoch else None,
        test_samples=log.test_samples,
        test_accuracy_by_epoch=by_epoch,
        train_accuracy_by_epoch=log.train_accuracy_by_epoch,
        validation_accuracy_by_epoch=held,
        validation_samples=log.validation_samples,
        best_epoch=log.best_epoch,
        scheduled=tuple(sorted(log.scheduled.items())),
        engine=log.engine,
    )


def recorded_changes(changes: Mapping[str, Any]) -> tuple[Change, ...]:
    """Changed fields by key, so that their order does not change the profile; texts as typed."""
    shown = {key: value if isinstance(value, str) else json.dumps(value, default=str) for key, value in changes.items()}
    return tuple(Change(key=key, value=shown[key]) for key in sorted(shown))
