"""Train a compiled network: initial weights, batches, training steps, evaluation, and one recorded training step."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, Protocol, runtime_checkable

import numpy as np

from mimdsim.base.console import Progress, silent
from mimdsim.base.errors import DataFileError, DescriptionError
from mimdsim.base.rng import stream
from mimdsim.base.shown import Shown
from mimdsim.base.units import counted
from mimdsim.execution.activity import activity_problem, run_recorded
from mimdsim.execution.checkpoint import Checkpoints, Course, engine_of, read_checkpoint, write_checkpoint
from mimdsim.execution.engines import (
    Engine,
    EngineName,
    FoldedNetwork,
    RateSchedule,
    Runner,
    folded_runner,
    refuse_diverged,
    scheduled_values,
)
from mimdsim.execution.execute import Executor
from mimdsim.execution.whole_tensors import WholeTensors
from mimdsim.graph import SpikingNetwork
from mimdsim.graph.learned_constants import first_value
from mimdsim.graph.names import INPUT, LABELS, LOSS, SCORES, TRAINING_STEP, listed
from mimdsim.graph.spikes import STATE_BITS
from mimdsim.program import Program, RecordedActivity

RECENT = 20  # training steps whose mean loss is shown


class Samples(Protocol):
    """What training needs of a data set."""

    @property
    def labels(self) -> np.ndarray:
        """int64[samples]"""

    def batch(self, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """ids int32[timesteps, batch, capacity], counts int32[timesteps, batch], labels int32[batch]."""


@dataclass(frozen=True, kw_only=True, eq=False)
class TrainingLog(Shown):
    """What a training run left: loss per training step, accuracies by epoch, weights, activity of the last step.

    train_accuracy_by_epoch: of the batches as they were trained on. scheduled: what the learning rate and the second
    thresholds were in every training step, by graph input. gradients: by parameter, of the recorded last training step;
    none where a resumed training had nothing left to do. engine: what trained, 'whole_tensors' or 'program';
    engine_reasons: why 'auto' chose the program.
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
    earlier_code: tuple[str, ...] = ()  # digests of other sources that computed a part before it was resumed
    engine: Literal["whole_tensors", "program"] = "program"
    engine_reasons: tuple[str, ...] = ()


def initial_weights(
    network: SpikingNetwork, seed: int, scale: float, offset: float, recurrent_scale: float = 0.2
) -> dict[str, np.ndarray]:
    """float32 by parameter: weights [inputs, neurons] uniform in +-scale*sqrt(6/inputs) plus `offset` (authors' rule);
    inputs: those of all layers that a layer reads.

    Synapses of a layer onto itself are uniform in +-recurrent_scale*sqrt(6/neurons), one to one as well as all to all
    (of a kernel: the neurons in it), without the offset, which would make a layer drive itself; biases start at zero
    (our choice: the authors have neither). Constants of neurons start as described; gains and running variances of
    batch norms at one, running means at zero. Everything that a layer of recurrent cells has is uniform in
    +-scale/sqrt(neurons), as in PyTorch, and the rows of cells start from their parameter. Delays are uniform over the
    ages.
    """
    weights = {}
    for layer in network.layers:
        window = layer.convolution.own if layer.convolution else None
        seen = layer.columns * window.taps if window else layer.neurons
        starts = {"weights": (scale, layer.fan_in, offset), "recurrent": (recurrent_scale, seen, 0.0)}
        if layer.delays:  # anywhere between the youngest and the oldest
            middle = (layer.delays.ages - 1) / 2
            starts["delay"] = (middle, 6, middle)
        for parameter in layer.parameters:
            drawn = np.full(parameter.shape, 1.0 if parameter.role in ("gain", "variance") else 0.0)
            factor, fan_in, more = starts.get(parameter.role, (0.0, 1, 0.0))
            limit = factor * (6.0 / fan_in) ** 0.5
            if layer.cell and parameter.role in layer.cell.of.rows:
                drawn, limit = np.full(parameter.shape, layer.cell.values[parameter.role]), 0.0
            elif layer.cell and layer.cell.of.recurrent:
                limit, more = scale * layer.neurons**-0.5, 0.0
            if limit:
                names = parameter.role, layer.name, *([parameter.source] if parameter.source else [])
                drawn = stream(seed, *names).uniform(-limit, limit, parameter.shape) + more
            for learned in layer.learned:
                if learned.name == parameter.constant:
                    drawn = first_value(learned)
            weights[parameter.name] = drawn.astype(np.float32)
    return weights


def without_smallest(weights: np.ndarray, share: float) -> np.ndarray:
    """The weights with that share of them, those next to zero, set to zero."""
    kept, flat = weights.copy(), np.abs(weights).ravel()
    kept.ravel()[np.argsort(flat, kind="stable")[: round(share * flat.size)]] = 0
    return kept


def to_dense(ids: np.ndarray, counts: np.ndarray, inputs: int) -> np.ndarray:
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


def load_batch(
    runner: Runner | FoldedNetwork, data: Samples, indices: np.ndarray, *, epoch: int | None = None
) -> np.ndarray:
    """Write one batch to the input variables, as lists, as dense rows or as values, and its labels to a program that
    takes them; returns the labels.

    With an `epoch` it is trained on and may be augmented, without one it is as recorded.
    """
    if epoch is not None and isinstance(data, AugmentedSamples):
        ids, counts, labels = data.training_batch(indices, epoch)
    else:
        ids, counts, labels = data.batch(indices)
    values: np.ndarray | None = getattr(data, "values", None)
    judged = {LABELS: labels} if LABELS in runner.inputs else {}
    if values is not None:
        chosen = values[indices]
        runner.write({INPUT: chosen if values.ndim == 2 else np.ascontiguousarray(chosen.swapaxes(0, 1)), **judged})
        return labels
    if not isinstance(runner, WholeTensors) and INPUT in runner.inputs:
        runner.write({INPUT: to_dense(ids, counts, runner.width(INPUT)), **judged})
        return labels
    both = np.stack([counts, counts], axis=-1)  # the network input has no gradient entries
    runner.write({**dict(zip(listed(INPUT), (ids, both), strict=True)), **judged})
    return labels


def draw_randomness(runner: Runner | FoldedNetwork, *names: str | int) -> None:
    """Seed the generators of layers that drop spikes at random or have dropout, from the stream `names`, whatever ran
    before.

    On a machine the tiles draw these numbers themselves.
    """
    for name, samples in runner.generators.items():
        runner.write({name: stream(0, name, *names).integers(0, 1 << STATE_BITS, samples)})


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """What is held against samples that are not trained on, and when.

    when: 'each epoch', 'end' or 'never'. validation_share: of the training samples, drawn by the seed and set aside;
    keep_best: the weights after the epoch with the best accuracy on them are what is left at the end.
    """

    when: str = "each epoch"
    validation_share: float = 0.0
    keep_best: bool = False


@dataclass(frozen=True, kw_only=True)
class TrainingPlan:
    """How a network is trained: `epochs`, or `max_training_steps` of them where that is positive and fewer.

    seed: of the order of samples. rate: how a scheduled learning rate moves, None: not at all. engine: what trains;
    'auto' means whole tensors, equal within rounding, and the compiled program for networks that these do not know. The
    last training step runs as the compiled program in any case.
    """

    epochs: int
    max_training_steps: int = 0
    seed: int
    evaluation: Evaluation = Evaluation()
    rate: RateSchedule | None = None
    engine: EngineName = "auto"


def train(
    program: Program,
    network: SpikingNetwork,
    train_data: Samples,
    test_data: Samples | None,
    plan: TrainingPlan,
    *,
    weights: dict[str, np.ndarray],
    checkpoints: Checkpoints | None = None,
    progress: Progress = silent,
) -> TrainingLog:
    """Train from `weights` as planned and record the activity of the last training step.

    With `checkpoints` the state is written to a file after every epoch, and read from it first where it shall be
    resumed: the log is then that of a training that was never interrupted, byte for byte. Raises DataFileError for a
    file that is not a checkpoint of this training, MappingError for an engine that cannot train the network, Diverged
    as soon as weights or the loss are not finite, DescriptionError for a share that leaves no sample to train on or
    to validate with.
    """
    engine = Engine(plan.engine, program, network)
    if checkpoints is not None and checkpoints.resume:
        engine = _engine_of(checkpoints, engine, plan, program, network)
    training = _Training(engine, network, train_data, test_data, plan, weights)
    if checkpoints is not None and checkpoints.resume:
        training.resume(checkpoints)
    course = training.course
    while course.done < training.total:
        ends = training.step()
        if checkpoints is not None and ends:
            write_checkpoint(checkpoints, engine.program(), course, engine.name)
        progress(f"training, {training.progress_text()}", course.done, training.total)
    return training.log()


def _engine_of(
    checkpoints: Checkpoints, engine: Engine, plan: TrainingPlan, program: Program, network: SpikingNetwork
) -> Engine:
    """The engine that a checkpoint goes on with: the one that wrote it, which 'auto' leaves open."""
    wrote = engine_of(checkpoints)
    if wrote == engine.name:
        return engine
    if plan.engine != "auto":
        raise DataFileError(
            checkpoints.path,
            f'was written by training.engine = "{wrote}", and "{engine.name}" rounds otherwise: give "{wrote}" or '
            '"auto", or leave out --resume to start again',
        )
    return Engine(wrote, program, network)


class _Training:
    """A training under way: what runs it, its samples, and its course so far."""

    def __init__(
        self,
        engine: Engine,
        network: SpikingNetwork,
        train_data: Samples,
        test_data: Samples | None,
        plan: TrainingPlan,
        weights: dict[str, np.ndarray],
    ):
        self.engine, self.runner, self.network, self.plan = engine, engine.runner, network, plan
        self.train_data, self.test_data = train_data, test_data
        self.trained = tuple(weights)
        self.runner.write(weights)
        refuse_diverged(self.runner, self.trained, "before the first training step")
        share = plan.evaluation.validation_share
        self.kept, self.held_out = split(len(train_data.labels), share, plan.seed)
        refuse_empty(self.kept, self.held_out, share)
        self.per_epoch = max(1, len(self.kept) // network.batch)
        self.total = min(plan.epochs * self.per_epoch, plan.max_training_steps or plan.epochs * self.per_epoch)
        self.course = Course()
        self.order = np.zeros(0, np.int64)  # of the samples of this epoch
        self.gradients: dict[str, np.ndarray] = {}

    def resume(self, checkpoints: Checkpoints) -> None:
        """Go on from what a checkpoint holds."""
        executor = self.engine.program()
        self.course = read_checkpoint(checkpoints, executor, self.trained)
        if self.course.done > self.total:
            raise DataFileError(
                checkpoints.path,
                f"holds {self.course.done:,} training steps, {self.total:,} are asked for: raise training.epochs or "
                "training.max_training_steps, or leave out --resume to start again",
            )
        epochs = self.course.done // self.per_epoch
        lengths = {name: len(curve) for name, curve in self.course.curves.items()}
        whole = lengths.pop("train") == epochs and {0, epochs} >= set(lengths.values())
        if not whole or (self.course.done == self.total and self.course.activity is None):
            raise DataFileError(
                checkpoints.path,
                f"holds {self.course.done:,} training steps, but not what {epochs:,} epochs leave; leave out --resume "
                "to start again",
            )
        activity = self.course.activity
        if activity is not None and (wrong := activity_problem(self.network, activity)):
            raise DataFileError(checkpoints.path, f"{wrong}; leave out --resume to start again")
        self.engine.take(executor)

    def step(self) -> bool:
        """One training step; whether an epoch or the training ends with it."""
        number, course = self.course.done, self.course
        last, ends_epoch = number + 1 == self.total, (number + 1) % self.per_epoch == 0
        if last:
            labels, scalars = self._record(number)
        if not (last and isinstance(self.runner, Executor)):
            labels, scalars = self._load(self.runner, number)
            self.runner.run()
        loss = total_loss(self.runner, self.network)
        when = f"after training step {number + 1:,} of {self.total:,}"
        refuse_diverged(self.runner, self.trained, when, loss=loss, states=last or ends_epoch)
        course.add(loss, int((predictions(self.runner) == labels).sum()), scalars)
        if ends_epoch:
            self._end_epoch()
        return last or ends_epoch

    def _record(self, number: int) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """Run training step `number` as the compiled program, for the spikes that are timed; as `_load`.

        Whole tensors, if they train, run it too, and go on from their own results.
        """
        executor = self.engine.program()
        loaded = self._load(executor, number)
        self.course.activity = run_recorded(executor, self.network)
        held = executor.program.observables.gradients
        self.gradients = {name: executor.read(held[name]) for name in held}
        return loaded

    def _load(self, running: Runner, number: int) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """Write what training step `number`, counted from 0, takes; its labels and its scheduled scalars."""
        epoch, place = divmod(number, self.per_epoch)
        batch, seed = self.network.batch, self.plan.seed
        if place == 0 or not len(self.order):
            self.order = self.kept[stream(seed, "order", epoch).permutation(len(self.kept))]
        scalars = scheduled_values(self.network, self.plan.rate, number, self.total, self.per_epoch)
        running.write(scalars)
        indices = np.resize(self.order[place * batch : (place + 1) * batch], batch)
        labels = load_batch(running, self.train_data, indices, epoch=epoch)
        draw_randomness(running, seed, number)
        if TRAINING_STEP in self.network.optimiser.scalars:
            running.write({TRAINING_STEP: np.array([number + 1])})
        return labels, scalars

    def _end_epoch(self) -> None:
        """Its accuracies; the weights where they are the best so far."""
        found = {"train": self.course.end_epoch(self.per_epoch, self.network.batch)}
        if self.plan.evaluation.when == "each epoch":
            found |= self._accuracies()
        if self.course.end_evaluation(found) and self.plan.evaluation.keep_best:
            self.course.best = self._weights()

    def _accuracies(self) -> dict[str, float]:
        """On the samples set aside and on the test samples, where there are any."""
        found = {}
        if len(self.held_out):
            found["validation"] = evaluate(self.runner, self.network, self.train_data, indices=self.held_out)
        if self.test_data is not None and len(self.test_data.labels):
            found["test"] = evaluate(self.runner, self.network, self.test_data)
        return found

    def _weights(self) -> dict[str, np.ndarray]:
        """What is trained, as it is now."""
        executor = self.engine.program()
        return {name: executor.arrays[executor.program.inputs[name]].copy() for name in self.trained}

    def progress_text(self) -> str:
        """Epoch, mean loss of the last training steps, and accuracy on what this epoch has trained on, in words."""
        course = self.course
        epoch, place = divmod(course.done - 1, self.per_epoch)
        recent = course.loss[-min(RECENT, place + 1) :]
        seen = (place + 1) * self.network.batch
        accuracy = course.right / seen if place + 1 < self.per_epoch else course.curves["train"][-1]
        epochs = -(-self.total // self.per_epoch)
        loss = sum(recent) / len(recent)
        return f"epoch {epoch + 1:,} of {epochs:,}, loss {loss:.3g}, accuracy {100 * accuracy:.1f} %"

    def log(self) -> TrainingLog:
        """What the training left, with the best weights where these are kept."""
        course, when, test_data = self.course, self.plan.evaluation.when, self.test_data
        if course.best:
            self.runner.write(course.best)
        if when == "end":
            course.end_evaluation(self._accuracies())
        train_accuracy = None
        if self.total >= self.per_epoch and when != "never":
            train_accuracy = evaluate(self.runner, self.network, self.train_data, indices=self.kept[:1000])
        assert course.activity is not None
        return TrainingLog(
            loss=tuple(course.loss),
            test_accuracy_by_epoch=tuple(course.curves["test"]),
            train_accuracy=train_accuracy,
            test_samples=len(test_data.labels) if test_data is not None and course.curves["test"] else 0,
            weights=self._weights(),
            activity=course.activity,
            train_accuracy_by_epoch=tuple(course.curves["train"]),
            validation_accuracy_by_epoch=tuple(course.curves["validation"]),
            validation_samples=len(self.held_out),
            best_epoch=course.best_epoch if course.best else None,
            scheduled={name: tuple(values) for name, values in course.scheduled.items()},
            gradients=self.gradients,
            earlier_code=course.earlier_code,
            engine=self.engine.name,
            engine_reasons=self.engine.reasons,
        )


def total_loss(runner: Runner, network: SpikingNetwork) -> float:
    """Mean over the batch, with what penalties add."""
    return float(runner.read(LOSS).mean() + sum(runner.read(name).sum() for name in network.penalties))


def split(samples: int, validation_share: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Indices that are trained on, and those set aside for validation, each ascending."""
    held_out = np.zeros(samples, bool)
    count = round(validation_share * samples)
    held_out[stream(seed, "validation").permutation(samples)[:count]] = True
    return np.flatnonzero(~held_out), np.flatnonzero(held_out)


def refuse_empty(kept: np.ndarray, held_out: np.ndarray, validation_share: float) -> None:
    """Raise DescriptionError where a share of the samples leaves none to train on, or takes none to validate with."""
    samples = len(kept) + len(held_out)
    if len(kept) and (len(held_out) or not validation_share):
        return
    if not samples:
        raise DescriptionError("data", ["there are no samples to train on"])
    lacks = "to validate with" if len(kept) else "to train on"
    raise DescriptionError(
        "training.validation_share",
        [
            f"{validation_share:g} of {counted(samples, 'training sample')} are {len(held_out):,}, which leaves none "
            f"{lacks}: give a share that leaves at least one of each, or more samples"
        ],
    )


def predictions(runner: Runner | FoldedNetwork) -> np.ndarray:
    """int64[batch]: the class with the highest score of the last run (ties: lowest class)."""
    return np.asarray(runner.read(SCORES).argmax(axis=1))


def evaluate(given: Runner, network: SpikingNetwork, data: Samples, indices: np.ndarray | None = None) -> float:
    """Share of samples (those of `indices`, or all) whose label has the highest score; forward supersteps only, and
    batch norms by their running averages."""
    runner = folded_runner(given, network) if network.averages else given
    chosen = np.arange(len(data.labels)) if indices is None else indices
    right = 0
    if network.without_learning and runner is given:
        runner.write({name: np.full(1, number, np.float32) for name, number in network.without_learning.items()})
    for first in range(0, len(chosen), network.batch):
        part = chosen[first : first + network.batch]
        labels = load_batch(runner, data, np.resize(part, network.batch))
        draw_randomness(runner, "evaluation", first)
        runner.run(phases=("forward", "loss"))
        right += int((predictions(runner) == labels)[: len(part)].sum())
    return right / len(chosen) if len(chosen) else 0.0
