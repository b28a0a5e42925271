"""Tables of learning and spikes."""

from __future__ import annotations

import math

from mimdsim.base.units import counted
from mimdsim.profile import Activity, Training
from mimdsim.report.formatting import significant, thousands
from mimdsim.report.tables import Table, count, percent, shown, table, text

# what executed the training steps, by `training.engine` of a profile
ENGINES = {
    "whole_tensors": "whole tensors, within float32 rounding of the compiled program, which ran the recorded last step",
    "program": "the compiled program",
}


def training_table(training: Training) -> Table:
    """Results of the training, as facts."""

    def accuracy(value: float | None) -> str:
        return "not evaluated" if value is None else f"{100 * value:.1f} %"

    finite = [loss for loss in training.loss if math.isfinite(loss)]
    test = f"{accuracy(training.test_accuracy)} ({counted(training.test_samples, 'sample')})"
    rows = [
        (text("training steps"), text(f"{thousands(training.training_steps)} of batch {thousands(training.batch)}")),
        *([(text("trained by"), text(ENGINES[training.engine]))] if training.engine else []),
        (text("training samples"), text(thousands(training.samples))),
        (text("loss, first to last"), text(_first_to_last(training))),
        (text("lowest loss"), text(significant(min(finite)) if finite else "–")),
        (text("training accuracy"), text(accuracy(training.train_accuracy))),
        (text("test accuracy"), text(test)),
    ]
    held = training.validation_accuracy_by_epoch
    if held:
        chosen = len(held) - 1 if training.best_epoch is None else training.best_epoch
        where = "last epoch" if training.best_epoch is None else f"epoch {chosen + 1}, whose weights were kept"
        shown_accuracy = f"{accuracy(held[chosen])} ({counted(training.validation_samples, 'sample')}; {where})"
        rows.append((text("validation accuracy"), text(shown_accuracy)))
    for name, values in training.scheduled:
        ends = f"{significant(values[0])} to {significant(values[-1])}"
        rows.append((text(name.replace("_", " ").replace(".", ", ")), text(f"{ends}, by training step")))
    return table("training", "Results of the training", ("measure", "value"), rows)


def activity_table(layers: tuple[Activity, ...]) -> Table:
    """Spikes, list entries, capacity and losses of every layer."""
    rows = []
    for layer in layers:
        spikes, listed = layer.spikes_by_timestep, layer.listed_by_timestep
        mean = sum(spikes) / len(spikes) if spikes else 0.0
        entries = sum(listed) / len(listed) if listed else 0.0
        rows.append(
            (
                text(layer.layer),
                count(layer.neurons),
                shown(significant(mean), mean),
                percent(mean, layer.neurons),
                shown(significant(max(spikes, default=0.0)), max(spikes, default=0.0)),
                shown(significant(entries), entries),
                count(layer.capacity),
                percent(entries, layer.capacity),
                percent(layer.full_lists, 1.0),
                count(layer.dropped),
            )
        )
    return table(
        "activity",
        "Spikes per timestep and sample, mean over the batch of the recorded training step",
        (
            "layer", "neurons", "spikes", "firing share", "peak spikes", "listed", "capacity", "list filled",
            "full lists", "dropped",
        ),
        rows,
        "Listed: entries that are sent and processed, including those that only carry a gradient. Dropped: spikes "
        "beyond the capacity, over the whole batch and sequence.",
    )  # fmt: skip


def sparsity_table(layers: tuple[Activity, ...]) -> Table | None:
    """The work that each pass saves, layer by layer; None if nothing was recorded."""
    rows = []
    for layer in layers:
        found = layer.sparsity
        if found is None:
            continue
        rows.append(
            (
                text(layer.layer),
                percent(found.forward, 1.0),
                percent(found.state_gradient, 1.0),
                percent(found.weight_gradient, 1.0),
                percent(found.untouched_weights, 1.0),
                percent(found.dropped_share, 1.0),
            )
        )
    if not rows:
        return None
    return table(
        "sparsity",
        "Sparsity of the three passes: shares of zeros in the recorded training step",
        ("layer", "forward", "state gradient", "weight gradient", "untouched weights", "spikes dropped"),
        rows,
        "Forward: neurons that emit no spike. State gradient: neurons that are not listed and get no gradient "
        "through their spikes. Weight gradient: weights to which a timestep of a sample adds nothing, because their "
        "presynaptic neuron emitted no spike. Untouched: weights to which no timestep of any sample adds anything. "
        "Dropped: share of all true spikes that are beyond the capacity.",
    )


def _first_to_last(training: Training) -> str:
    if not training.loss:
        return "–"
    return f"{significant(training.loss[0])} to {significant(training.loss[-1])}"
