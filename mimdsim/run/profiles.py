"""Memory, training and changed fields of a run as profile records."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from mimdsim.compiler import Memory
from mimdsim.functional import TrainingLog
from mimdsim.machine import MimdMachine
from mimdsim.profile import Change, Liveness, MemoryProfile, Training
from mimdsim.program import Program
from mimdsim.workload import Workload


def memory_profile(program: Program, memory: Memory, machine: MimdMachine) -> MemoryProfile:
    """The compiler's memory measurement as profile records."""
    peak_tile = memory.peak_tile
    largest = tuple((name, program.variables[name].category, size) for name, size in memory.largest(peak_tile, 12))
    curve = tuple(
        Liveness(
            superstep=name,
            phase=phase,
            fullest_tile=int(tile),
            fullest_tile_bytes=int(fullest),
            total_bytes=int(total),
        )
        for name, phase, tile, fullest, total in zip(
            memory.names, memory.phases, memory.fullest_tile, memory.fullest_bytes, memory.total_bytes, strict=True
        )
    )
    return MemoryProfile(
        limit_bytes=machine.tile.sram_bytes,
        peak_tile=peak_tile,
        peak_bytes=memory.peak_bytes,
        categories=memory.categories,
        bytes_by_category_and_tile=tuple(tuple(row.tolist()) for row in memory.by_category),
        peak_bytes_by_tile=tuple(memory.peak_by_tile.tolist()),
        always_live_bytes_by_tile=tuple(memory.always.tolist()),
        largest_on_peak_tile=largest,
        liveness=curve,
    )


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
    )


def recorded_changes(changes: Mapping[str, Any]) -> tuple[Change, ...]:
    """Changed fields by key, so that their order does not change the profile; texts as typed."""
    shown = {key: value if isinstance(value, str) else json.dumps(value, default=str) for key, value in changes.items()}
    return tuple(Change(key=key, value=shown[key]) for key in sorted(shown))
