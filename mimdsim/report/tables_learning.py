"""Tables of learning and spikes."""

from __future__ import annotations

import math

from mimdsim.base.units import counted
from mimdsim.profile import Activity, Training
from mimdsim.report.formatting import significant, thousands
from mimdsim.report.tables import Table, percent, table, three_digits

# what executed the training steps, by `training.engine` of a profile
ENGINES = {
    "whole_tensors": "whole tensors, within float32 rounding of the compiled program, which ran the recorded last step",
    "program": "the compiled program",
}


def training_table(training: Training) -> Table:
    """Results of the training, as facts."""

    def accuracy(value: float | None) -> str:
        return "not evaluated" if value is None else f"{100 * value:.1f} %"

    loss = training.loss
    finite = [each for each in loss if math.isfinite(each)]
    rows = [
        ("training steps", f"{thousands(training.training_steps)} of batch {thousands(training.batch)}"),
        *([("trained by", ENGINES[training.engine])] if training.engine else []),
        ("training samples", thousands(training.samples)),
        ("loss, first to last", f"{significant(loss[0])} to {significant(loss[-1])}" if loss else "–"),
        ("lowest loss", significant(min(finite)) if finite else "–"),
        ("training accuracy", accuracy(training.train_accuracy)),
        ("test accuracy", f"{accuracy(training.test_accuracy)} ({counted(training.test_samples, 'sample')})"),
    ]
    held = training.validation_accuracy_by_epoch
    if held:
        chosen = len(held) - 1 if training.best_epoch is None else training.best_epoch
        where = "last epoch" if training.best_epoch is None else f"epoch {chosen + 1}, whose weights were kept"
        samples = counted(training.validation_samples, "sample")
        rows.append(("validation accuracy", f"{accuracy(held[chosen])} ({samples}; {where})"))
    for name, values in training.scheduled:
        ends = f"{significant(values[0])} to {significant(values[-1])}, by training step"
        rows.append((name.replace("_", " ").replace(".", ", "), ends))
    return table("training", "Results of the training", ("measure", "value"), rows)


def activity_table(layers: tuple[Activity, ...]) -> Table:
    """Spikes, list entries, capacity and losses of every layer."""
    rows = []
    for layer in layers:
        spikes, entries = layer.spikes_by_timestep or (0.0,), layer.listed_by_timestep or (0.0,)
        mean, listed = sum(spikes) / len(spikes), sum(entries) / len(entries)
        rows.append(
            (
                layer.layer,
                layer.neurons,
                three_digits(mean),
                percent(mean, layer.neurons),
                three_digits(max(spikes)),
                three_digits(listed),
                layer.capacity,
                percent(listed, layer.capacity),
                percent(layer.full_lists),
                layer.dropped,
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
        title="Spikes per timestep and sample",
        page_only=("peak spikes", "list filled"),
    )  # fmt: skip


def sparsity_table(layers: tuple[Activity, ...]) -> Table | None:
    """The work that each pass saves, layer by layer; None if nothing was recorded."""
    rows = [
        (
            layer.layer,
            percent(found.forward),
            percent(found.state_gradient),
            percent(found.weight_gradient),
            percent(found.untouched_weights),
            percent(found.dropped_share),
        )
        for layer in layers
        if (found := layer.sparsity)
    ]
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
        title="Sparsity of the passes (share of zeros)",
    )
