"""Train a compiled network: initial weights, batches, training steps, evaluation, and one recorded training step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from mimdsim.base.rng import stream
from mimdsim.functional.execute import Executor
from mimdsim.graph import Adam, SpikingNetwork
from mimdsim.program import Program, RecordedActivity

Progress = Callable[[int, int], None]


class Samples(Protocol):
    """What training needs of a data set."""

    @property
    def labels(self) -> np.ndarray:
        """int64[samples]"""

    def batch(self, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """ids int32[timesteps, batch, capacity], counts int32[timesteps, batch], labels int32[batch]."""


@dataclass(frozen=True, kw_only=True, eq=False)
class TrainingLog:
    """What a training run left: loss per training step, accuracy by epoch, weights, activity of the last step."""

    loss: tuple[float, ...]
    test_accuracy_by_epoch: tuple[float, ...]
    train_accuracy: float | None
    test_samples: int
    weights: dict[str, np.ndarray]
    activity: RecordedActivity


def initial_weights(network: SpikingNetwork, seed: int, scale: float, offset: float) -> dict[str, np.ndarray]:
    """float32[inputs, neurons] per layer, uniform in +-scale*sqrt(6/inputs), plus `offset` (authors' rule)."""
    weights = {}
    for layer in network.layers:
        limit = scale * (6.0 / layer.inputs) ** 0.5
        draw = stream(seed, "weights", layer.name).uniform(-limit, limit, (layer.inputs, layer.neurons))
        weights[f"w.{layer.name}"] = (draw + offset).astype(np.float32)
    return weights


def load_batch(executor: Executor, data: Samples, indices: np.ndarray) -> np.ndarray:
    """Write one batch to the input variables; returns its labels."""
    ids, counts, labels = data.batch(indices)
    both = np.stack([counts, counts], axis=-1)  # the network input has no gradient entries
    executor.write({"input.ids": ids, "input.counts": both, "labels": labels})
    return labels


def train(
    program: Program,
    network: SpikingNetwork,
    train_data: Samples,
    test_data: Samples | None,
    *,
    weights: dict[str, np.ndarray],
    epochs: int,
    max_training_steps: int,
    seed: int,
    evaluate_each_epoch: bool = True,
    progress: Progress | None = None,
) -> TrainingLog:
    """Train for `epochs` (or `max_training_steps` when positive) and record the activity of the last training step."""
    executor = Executor(program)
    executor.write(weights)
    samples, batch = len(train_data.labels), network.batch
    per_epoch = max(1, samples // batch)
    total = min(epochs * per_epoch, max_training_steps or epochs * per_epoch)
    losses: list[float] = []
    accuracy: list[float] = []
    order = np.zeros(0, np.int64)
    activity: RecordedActivity | None = None
    for number in range(total):
        place = number % per_epoch
        if place == 0:
            order = stream(seed, "order", number // per_epoch).permutation(samples)
        indices = np.resize(order[place * batch : (place + 1) * batch], batch)
        load_batch(executor, train_data, indices)
        if isinstance(network.optimiser, Adam):
            executor.write({"training_step": np.array([number + 1])})
        executor.run()
        losses.append(float(executor.read("loss").mean()))
        if number == total - 1:
            activity = executor.activity()
            activity = RecordedActivity(
                ids=activity.ids, counts=activity.counts, dropped=dropped_spikes(executor, network, activity)
            )
        if evaluate_each_epoch and test_data is not None and len(test_data.labels) and place == per_epoch - 1:
            accuracy.append(evaluate(executor, network, test_data))
        if progress is not None:
            progress(number + 1, total)
    final = {name: executor.arrays[program.inputs[name]].copy() for name in weights}
    finished = total >= per_epoch and evaluate_each_epoch
    assert activity is not None
    return TrainingLog(
        loss=tuple(losses),
        test_accuracy_by_epoch=tuple(accuracy),
        train_accuracy=evaluate(executor, network, train_data, limit=1000) if finished else None,
        test_samples=len(test_data.labels) if test_data is not None and accuracy else 0,
        weights=final,
        activity=activity,
    )


def evaluate(executor: Executor, network: SpikingNetwork, data: Samples, limit: int = 0) -> float:
    """Share of samples whose label's output neuron fired most (ties: lowest class); runs forward supersteps only."""
    samples = min(len(data.labels), limit) if limit else len(data.labels)
    right = 0
    for first in range(0, samples, network.batch):
        indices = np.arange(first, min(first + network.batch, samples))
        labels = load_batch(executor, data, np.resize(indices, network.batch))
        executor.run(phases=("forward", "loss"))
        guess = executor.read("counts").argmax(axis=1)
        right += int((guess == labels)[: len(indices)].sum())
    return right / samples if samples else 0.0


def dropped_spikes(executor: Executor, network: SpikingNetwork, activity: RecordedActivity) -> dict[str, int]:
    """True spikes beyond a layer's capacity, whole batch and sequence."""
    dropped = {}
    for layer in network.layers:
        name = f"v.{layer.name}.sequence"
        if name in executor.arrays:
            fired = int((executor.arrays[name] > np.float32(layer.selection.threshold)).sum())
            dropped[layer.name] = fired - int(activity.counts[layer.name][..., 0].sum())
    return dropped
