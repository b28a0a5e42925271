"""What is said of a training that taught nothing: a loss that does not move, an accuracy that guessing reaches too."""

from __future__ import annotations

import math

import numpy as np

from mimdsim.base.units import counted
from mimdsim.execution import TrainingLog
from mimdsim.profile import Finding
from mimdsim.workload import SpikeDataset, Workload

LEAST_TRAINED = 20  # assumed: training steps before which no accuracy is expected
LEAST_LOSSES = 100  # whose first and last fifths tell whether the loss moves
EXACT = 1e-6  # of the loss: scores that are all equal, within float32 rounding
STILL = 0.01  # of the loss: what it must have moved by
NEAR_GUESSING = 0.9  # of the loss of a guess: what a trained network that stays as good is below
MARGIN = 0.15  # assumed: how far above guessing an accuracy may be by chance and samples still tell
SURE = 1.645  # standard errors: one side of a normal distribution, 95 %


def learning_findings(
    workload: Workload, data: tuple[SpikeDataset, SpikeDataset], log: TrainingLog
) -> tuple[Finding, ...]:
    """What is wrong with a loss and an accuracy that no training brought about; nothing where labels are random."""
    found = [loss_stands(workload, data[0].classes, np.asarray(log.loss, np.float64))]
    if workload.data.source != "random":
        found.append(at_chance(data, log))
    text = ". ".join(filter(None, found))
    return (Finding(name="learning", passed=False, text=f"{text}."),) if text else ()


def nothing_to_learn(workload: Workload, data: tuple[SpikeDataset, SpikeDataset], log: TrainingLog) -> tuple[str, ...]:
    """Said of random samples, on which an accuracy is that of guessing."""
    if workload.data.source != "random" or not at_chance(data, log):
        return ()
    return (
        'data.source = "random": labels do not depend on spikes, so the test accuracy can only be that of guessing',
    )


def loss_stands(workload: Workload, classes: int, loss: np.ndarray) -> str:
    """Said of a loss that is that of guessing from first to last, or certainly moves by less than `STILL`."""
    recipe = workload.training
    guess = math.log(classes) * (workload.data.timesteps if recipe.reading == "every" else 1)
    entropy = recipe.loss == "cross_entropy" and not recipe.firing_strength
    named = f"ln {classes:,} = {math.log(classes):.4g}" + (" per timestep" if recipe.reading == "every" else "")
    if entropy and classes > 1 and len(loss) > 1 and (np.abs(loss - guess) <= EXACT * guess).all():
        return (
            f"The loss is that of a guess, {named}, in all {len(loss):,} training steps: the outputs are the same for "
            "every class"
        )
    part = len(loss) // 5
    if len(loss) < LEAST_LOSSES:
        return ""
    first, last = loss[:part], loss[-part:]
    fell = float(first.mean() - last.mean())
    off = math.sqrt((first.var() + last.var()) / part)
    if abs(fell) + SURE * off > STILL * abs(first.mean()) or (entropy and last.mean() < NEAR_GUESSING * guess):
        return ""
    against = f"; a guess has {named}" if entropy else ""
    return (
        f"The loss does not move: {first.mean():.4g} in the first fifth of {len(loss):,} training steps, "
        f"{last.mean():.4g} in the last{against}"
    )


def at_chance(data: tuple[SpikeDataset, SpikeDataset], log: TrainingLog) -> str:
    """Said of a test accuracy that naming the most frequent class reaches too, as far as so many samples can tell."""
    curve = log.test_accuracy_by_epoch
    labels = data[1].labels
    if not curve or not len(labels) or len(log.loss) < LEAST_TRAINED:
        return ""
    accuracy = curve[-1 if log.best_epoch is None else log.best_epoch]
    chance = float(np.bincount(labels).max() / len(labels))
    beyond = chance + SURE * math.sqrt(chance * (1 - chance) / len(labels))
    too_few = beyond - chance > MARGIN or beyond >= (1 + chance) / 2
    if accuracy > beyond or too_few:
        return ""
    return (
        f"The test accuracy, {accuracy:.1%} on {counted(len(labels), 'sample')}, is no better than naming the most "
        f"frequent class every time ({chance:.1%})"
    ).replace("%", " %") + f", after {counted(len(log.loss), 'training step')}"
