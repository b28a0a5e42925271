"""Train a compiled network: initial weights, batches, training steps, evaluation, and one recorded training step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import numpy as np

from mimdsim.base.errors import DataFileError
from mimdsim.base.rng import stream
from mimdsim.functional.checkpoint import Checkpoints, Course, read_checkpoint, write_checkpoint
from mimdsim.functional.divergence import refuse_diverged
from mimdsim.functional.engines import Engine, EngineName, Runner
from mimdsim.functional.execute import Executor
from mimdsim.functional.schedules import RateSchedule, scheduled_values
from mimdsim.graph import SpikingNetwork, gradient_of
from mimdsim.graph.training import TRAINING_STEP
from mimdsim.graph.truncation import STATE_BITS, random_name
from mimdsim.program import Program, RecordedActivity, Superstep

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
    """What a training run left: loss per training step, accuracies by epoch, weights, activity of the last step.

    train_accuracy_by_epoch: of the batches as they were trained on. scheduled: what the learning rate and the second
    thresholds were in every training step, by graph input. gradients: by parameter, of the last training step, as its
    update took them; none where a resumed training had nothing left to do.
    """

    loss: tuple[float, ...]
    test_accuracy_by_epoch: tuple[float, ...]
    train_accuracy: float | None
    test_samples: int
    weights: dict[str, np.ndarray]
    activity: RecordedActivity
    train_accuracy_by_epoch: tuple[float, ...] = ()
    validation_accuracy_by_epoch: tuple[float, ...] = ()
    validation_samples: int = 0
    best_epoch: int | None = None  # counted from 0, where its weights were kept
    scheduled: dict[str, tuple[float, ...]] = field(default_factory=dict)
    gradients: dict[str, np.ndarray] = field(default_factory=dict)


def initial_weights(
    network: SpikingNetwork, seed: int, scale: float, offset: float, recurrent_scale: float = 0.2
) -> dict[str, np.ndarray]:
    """float32 by parameter: weights [inputs, neurons] uniform in +-scale*sqrt(6/inputs) plus `offset` (authors' rule).

    Synapses of a layer onto itself are uniform in +-recurrent_scale*sqrt(6/neurons), one to one as well as all to all,
    without the offset, which would make a layer drive itself; biases start at zero (our choice: the authors have
    neither).
    """
    weights = {}
    for layer in network.layers:
        starts = {"w": ("weights", scale, layer.inputs), "r": ("recurrent", recurrent_scale, layer.neurons)}
        for name, shape in layer.parameters.items():
            drawn = np.zeros(shape)
            if not name.startswith("b."):
                what, factor, fan_in = starts[name[0]]
                limit = factor * (6.0 / fan_in) ** 0.5
                drawn = stream(seed, what, layer.name).uniform(-limit, limit, shape)
            weights[name] = (drawn + offset if name.startswith("w.") else drawn).astype(np.float32)
    return weights


def unfolded(ids: np.ndarray, counts: np.ndarray, inputs: int) -> np.ndarray:
    """float32[timesteps, batch, inputs]: 1 at the first counts[t, sample] of ids [timesteps, batch, capacity]."""
    rows: np.ndarray = np.zeros((*counts.shape, inputs), np.float32)
    t, sample, slot = np.nonzero(np.arange(ids.shape[2]) < counts[..., None])
    rows[t, sample, ids[t, sample, slot]] = 1
    return rows


@runtime_checkable
class AugmentedSamples(Samples, Protocol):
    """A data set whose samples look different when they are trained on."""

    def training_batch(self, indices: np.ndarray, epoch: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """As `batch`; the same for the same epoch (from 0) and sample, whatever was asked for before."""


def load_batch(runner: Runner, data: Samples, indices: np.ndarray, *, epoch: int | None = None) -> np.ndarray:
    """Write one batch to the input variables, as lists, as dense rows or as images; returns its labels.

    With an `epoch` it is trained on and may be augmented, without one it is as recorded.
    """
    if epoch is not None and isinstance(data, AugmentedSamples):
        ids, counts, labels = data.training_batch(indices, epoch)
    else:
        ids, counts, labels = data.batch(indices)
    images: np.ndarray | None = getattr(data, "images", None)
    if images is not None:
        runner.write({"input": images[indices], "labels": labels})
        return labels
    if isinstance(runner, Executor) and "input" in runner.inputs:
        inputs = runner.program.variables[runner.program.inputs["input"]].shape[-1]
        runner.write({"input": unfolded(ids, counts, inputs), "labels": labels})
        return labels
    both = np.stack([counts, counts], axis=-1)  # the network input has no gradient entries
    runner.write({"input.ids": ids, "input.counts": both, "labels": labels})
    return labels


def draw_randomness(runner: Runner, *names: str | int) -> None:
    """Seed the generators of layers that drop spikes at random, from the stream `names`, whatever ran before.

    On a machine the tiles draw these numbers themselves.
    """
    if not isinstance(runner, Executor):
        return  # whole tensors know no such layer
    for name in runner.inputs:
        if name.startswith(random_name("")):
            batch = runner.arrays[name].size
            runner.write({name: stream(0, name, *names).integers(0, 1 << STATE_BITS, batch)})


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """What is held against samples that are not trained on, and when.

    when: 'each epoch', 'end' or 'never'. validation_share: of the training samples, drawn by the seed and set aside;
    keep_best: the weights after the epoch with the best accuracy on them are what is left at the end.
    """

    when: str = "each epoch"
    validation_share: float = 0.0
    keep_best: bool = False


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
    evaluation: Evaluation = Evaluation(),
    rate: RateSchedule | None = None,
    checkpoints: Checkpoints | None = None,
    progress: Progress | None = None,
    engine: EngineName = "program",
) -> TrainingLog:
    """Train for `epochs` (or `max_training_steps` when positive) and record the activity of the last training step.

    engine: 'whole_tensors' runs everything but the last training step as whole tensors, equal within rounding; the last
    one always runs as the compiled program. With `checkpoints` the state is written to a file after every epoch, and
    read from it first where it shall be resumed: the log is then that of a training that was never interrupted, byte
    for byte. Raises DataFileError for a file that is not a checkpoint of this training, MappingError for an engine that
    cannot train the network, Diverged as soon as weights or the loss are not finite.
    """
    trainer = Engine(engine, program, network)
    runner = trainer.runner
    runner.write(weights)
    refuse_diverged(runner, weights, "before the first training step")
    kept, held_out = split(len(train_data.labels), evaluation.validation_share, seed)
    batch = network.batch
    per_epoch = max(1, len(kept) // batch)
    total = min(epochs * per_epoch, max_training_steps or epochs * per_epoch)
    course = Course()
    if checkpoints is not None and checkpoints.resume:
        executor = trainer.program()
        course = read_checkpoint(checkpoints, executor, tuple(weights))
        if course.done > total:
            raise DataFileError(
                checkpoints.path,
                f"holds {course.done:,} training steps, {total:,} are asked for: raise training.epochs or "
                "training.max_training_steps, or leave out --resume to start anew",
            )
        trainer.take(executor)
    order = np.zeros(0, np.int64)
    gradients: dict[str, np.ndarray] = {}
    while course.done < total:
        number = course.done
        place = number % per_epoch
        if place == 0 or not len(order):
            order = kept[stream(seed, "order", number // per_epoch).permutation(len(kept))]
        last = number + 1 == total
        running = trainer.program() if last else runner
        scalars = scheduled_values(network, rate, number, total)
        running.write(scalars)
        indices = np.resize(order[place * batch : (place + 1) * batch], batch)
        labels = load_batch(running, train_data, indices, epoch=number // per_epoch)
        draw_randomness(running, seed, number)
        if TRAINING_STEP in network.optimiser.scalars:
            running.write({TRAINING_STEP: np.array([number + 1])})
        if isinstance(running, Executor) and last:
            course.activity = run_recorded(running, network)
            gradients = {name: running.read(gradient_of(name)) for name in weights}
            trainer.take(running)
        else:
            running.run()
        loss, ends = total_loss(running, network), last or place == per_epoch - 1
        when = f"after training step {number + 1:,} of {total:,}"
        refuse_diverged(running, weights, when, loss=loss, states=ends)
        course.add(loss, int((guesses(running) == labels).sum()), scalars)
        if place == per_epoch - 1:
            found = {"train": course.end_epoch(per_epoch, batch)}
            if evaluation.when == "each epoch":
                found |= _accuracies(runner, network, train_data, held_out, test_data)
            if course.end_evaluation(found) and evaluation.keep_best:
                course.best = _held(trainer, weights)
        if checkpoints is not None and ends:
            write_checkpoint(checkpoints, trainer.program(), course)
        if progress is not None:
            progress(course.done, total)
    if course.best:
        runner.write(course.best)
    if evaluation.when == "end":
        course.end_evaluation(_accuracies(runner, network, train_data, held_out, test_data))
    finished = total >= per_epoch and evaluation.when != "never"
    assert course.activity is not None
    tested = test_data is not None and course.curves["test"]
    return TrainingLog(
        loss=tuple(course.loss),
        test_accuracy_by_epoch=tuple(course.curves["test"]),
        train_accuracy=evaluate(runner, network, train_data, indices=kept[:1000]) if finished else None,
        test_samples=len(test_data.labels) if test_data is not None and tested else 0,
        weights=_held(trainer, weights),
        activity=course.activity,
        train_accuracy_by_epoch=tuple(course.curves["train"]),
        validation_accuracy_by_epoch=tuple(course.curves["validation"]),
        validation_samples=len(held_out),
        best_epoch=course.best_epoch if course.best else None,
        scheduled={name: tuple(values) for name, values in course.scheduled.items()},
        gradients=gradients,
    )


def run_recorded(executor: Executor, network: SpikingNetwork) -> RecordedActivity:
    """Run one training step of the compiled program; its spikes, and how many were dropped."""
    watched = FiredBeyondStash(executor, network)
    executor.run(observe=watched if watched.fired else None)
    activity = executor.activity()
    dropped = dropped_spikes(executor, network, activity) | watched.dropped(activity)
    return RecordedActivity(ids=activity.ids, counts=activity.counts, dropped=dropped)


def _held(engine: Engine, weights: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """What is trained, as it is now."""
    executor = engine.program()
    return {name: executor.arrays[executor.program.inputs[name]].copy() for name in weights}


def total_loss(runner: Runner, network: SpikingNetwork) -> float:
    """Mean over the batch, with what penalties add."""
    return float(runner.read("loss").mean() + sum(runner.read(name).sum() for name in network.penalties))


def split(samples: int, validation_share: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Indices that are trained on, and those set aside for validation, each ascending."""
    held_out = np.zeros(samples, bool)
    count = round(validation_share * samples)
    held_out[stream(seed, "validation").permutation(samples)[:count]] = True
    return np.flatnonzero(~held_out), np.flatnonzero(held_out)


def _accuracies(
    runner: Runner, network: SpikingNetwork, train_data: Samples, held_out: np.ndarray, test_data: Samples | None
) -> dict[str, float]:
    """Accuracy on the samples set aside and on the test samples, where there are any."""
    found = {}
    if len(held_out):
        found["validation"] = evaluate(runner, network, train_data, indices=held_out)
    if test_data is not None and len(test_data.labels):
        found["test"] = evaluate(runner, network, test_data)
    return found


def guesses(runner: Runner) -> np.ndarray:
    """int64[batch]: the class with the highest score of the last run (ties: lowest class)."""
    chosen: np.ndarray = runner.read("counts").argmax(axis=1)
    return chosen


def evaluate(runner: Runner, network: SpikingNetwork, data: Samples, indices: np.ndarray | None = None) -> float:
    """Share of samples (those of `indices`, or all) whose label has the highest score; forward supersteps only."""
    chosen = np.arange(len(data.labels)) if indices is None else indices
    right = 0
    for first in range(0, len(chosen), network.batch):
        part = chosen[first : first + network.batch]
        labels = load_batch(runner, data, np.resize(part, network.batch))
        draw_randomness(runner, "evaluation", first)
        runner.run(phases=("forward", "loss"))
        right += int((guesses(runner) == labels)[: len(part)].sum())
    return right / len(chosen) if len(chosen) else 0.0


def dropped_spikes(executor: Executor, network: SpikingNetwork, activity: RecordedActivity) -> dict[str, int]:
    """True spikes beyond a layer's capacity, whole batch and sequence."""
    dropped = {}
    for layer in network.layers:
        found = [name for name in (f"{kind}.{layer.name}.sequence" for kind in "vu") if name in executor.arrays]
        for name in found if layer.spiking else []:
            fired = int((executor.arrays[name] > np.float32(layer.selection.threshold)).sum())
            dropped[layer.name] = fired - int(activity.counts[layer.name][..., 0].sum())
    return dropped


class FiredBeyondStash:
    """Counts true spikes of layers whose potentials the program does not keep of every timestep, as it runs."""

    def __init__(self, executor: Executor, network: SpikingNetwork):
        self.fired = {
            layer.name: 0
            for layer in network.layers
            if layer.spiking and not any(f"{kind}.{layer.name}.sequence" in executor.arrays for kind in "vu")
        }
        self._thresholds = {layer.name: np.float32(layer.selection.threshold) for layer in network.layers}

    def __call__(self, superstep: Superstep, _t: int, executor: Executor) -> None:
        for variable, value in superstep.defines if superstep.phase == "forward" else ():
            kind, _, layer = value.partition(".")
            if kind in ("v", "u") and layer in self.fired:
                self.fired[layer] += int((executor.arrays[variable] > self._thresholds[layer]).sum())

    def dropped(self, activity: RecordedActivity) -> dict[str, int]:
        """True spikes beyond capacity, as `dropped_spikes`."""
        return {name: fired - int(activity.counts[name][..., 0].sum()) for name, fired in self.fired.items()}
