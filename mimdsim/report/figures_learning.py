"""Figures of learning and spikes: loss over training steps, accuracies over epochs, spikes over timesteps."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from mimdsim.base.units import counted
from mimdsim.profile import RunProfile
from mimdsim.report.formatting import BLUE, GREEN, INK, ORANGE, SKY, VERMILION, clipped, significant, thousands
from mimdsim.report.style import panels, plain_axis, styled_plain, thousands_axis

SMOOTHED_SHARE = 0.05  # the running mean spans one twentieth of the run
MAX_DRAWN_POINTS = 4_000


@styled_plain
def draw_training(profile: RunProfile) -> Figure | None:
    """Loss of every training step with its running mean, and test accuracy after every epoch."""
    training = profile.training
    if training is None or not training.loss:
        return None
    epochs = training.test_accuracy_by_epoch
    by_epoch = training.loss_by_epoch
    figure, axes = panels(1, 2 if epochs else 1, height=3.4)
    loss = np.asarray(training.loss, dtype=float)
    loss[~np.isfinite(loss)] = np.nan
    numbers = np.arange(1, len(loss) + 1)
    stride = -(-len(loss) // MAX_DRAWN_POINTS)
    axes[0].plot(numbers[::stride], loss[::stride], color=SKY, linewidth=0.8, label="every training step")
    span = max(round(len(loss) * SMOOTHED_SHARE), 1)
    if span > 1:
        mean = np.convolve(loss, np.full(span, 1 / span), mode="valid")
        label = f"mean of the last {thousands(span)}"
        axes[0].plot(numbers[span - 1 :: stride], mean[::stride], color=BLUE, linewidth=2, label=label)
        axes[0].legend(loc="upper right")
    if len(by_epoch) > 1:
        ends = (np.arange(len(by_epoch)) + 1) * (len(loss) // len(by_epoch))
        axes[0].plot(ends, by_epoch, color=GREEN, marker="o", markersize=3, label="mean of an epoch")
        axes[0].legend(loc="upper right")
    title = f"Loss over {counted(len(loss), 'training step')} of batch {thousands(training.batch)}"
    axes[0].set(title=title, xlabel="training step", ylabel="loss", xlim=(0, len(loss) + 1))
    axes[0].set_ylim(bottom=min(0.0, float(np.nanmin(loss))) if np.isfinite(loss).any() else 0.0)
    axes[0].grid()
    thousands_axis(axes[0].xaxis)
    plain_axis(axes[0].yaxis)
    if epochs:
        percent = 100 * np.asarray(epochs)
        axes[1].plot(np.arange(1, len(epochs) + 1), percent, color=GREEN, marker="o", label="test")
        last = (len(epochs), percent[-1])
        axes[1].annotate(f"{percent[-1]:.1f} %", last, xytext=(0, -15), textcoords="offset points", ha="right")
        for curve, colour, name in (
            (training.train_accuracy_by_epoch, SKY, "as trained"),
            (training.validation_accuracy_by_epoch, ORANGE, "validation"),
        ):
            if len(curve) > 1:
                axes[1].plot(np.arange(1, len(curve) + 1), 100 * np.asarray(curve), color=colour, label=name)
        if training.best_epoch is not None:
            axes[1].axvline(training.best_epoch + 1, color=SKY, linestyle=":", label="weights kept")
        if training.train_accuracy is not None:
            axes[1].axhline(100 * training.train_accuracy, color=ORANGE, linestyle="--", label="training, at the end")
        axes[1].legend(loc="lower right")
        title = f"Accuracy on {counted(training.test_samples, 'test sample')}"
        axes[1].set(title=title, xlabel="epoch", ylabel="per cent correct", ylim=(0, 104))
        axes[1].grid()
        thousands_axis(axes[1].xaxis)
    return figure


MAX_PANELS = 8


@styled_plain
def draw_activity(profile: RunProfile) -> Figure | None:
    """Spikes and list entries of every layer over the timesteps, with the line of its spike capacity."""
    recorded = [layer for layer in profile.activity if layer.spikes_by_timestep]
    layers = recorded[:MAX_PANELS]
    if not layers:
        return None
    figure, axes = panels(len(layers), 1, height=1.0 + 1.75 * len(layers), sharex=True)
    for panel, layer in zip(axes, layers, strict=True):
        timesteps = np.arange(len(layer.listed_by_timestep))
        lists, sent = layer.sends == "lists", "numbers that are not zero" if layer.sends == "numbers" else "spikes"
        if lists:
            panel.plot(timesteps, layer.listed_by_timestep, color=ORANGE, label="listed (spikes and gradient entries)")
        panel.plot(np.arange(len(layer.spikes_by_timestep)), layer.spikes_by_timestep, color=BLUE, label=sent)
        highest = max(*layer.listed_by_timestep, *layer.spikes_by_timestep, 1e-9)
        room = f", capacity {thousands(layer.capacity)}" if lists else ""
        above = " (above the panel)" if lists else ""
        # far above the curves, the capacity line would flatten them: then it is only named
        if lists and layer.capacity <= 4 * highest:
            panel.axhline(layer.capacity, color=VERMILION, linestyle="--", label="capacity")
            highest, above = max(layer.capacity, highest), ""
        mean = sum(layer.spikes_by_timestep) / len(layer.spikes_by_timestep)
        title = (
            f"{clipped(layer.layer, 30)}: {counted(layer.neurons, 'neuron')}, mean {significant(mean)} {sent}"
            f" per timestep{room}{above}"
        )
        panel.set(title=title, ylabel="per sample", ylim=(0, 1.12 * highest))
        panel.grid()
        plain_axis(panel.yaxis)
    axes[-1].set_xlabel(_timestep_label(len(layers), len(recorded)))
    thousands_axis(axes[-1].xaxis)
    with_capacity = max(axes, key=lambda panel: len(panel.get_legend_handles_labels()[1]))
    figure.legend(*with_capacity.get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return figure


@styled_plain
def draw_raster(profile: RunProfile) -> Figure | None:
    """A dot for every spike of one sample: neuron against timestep, one panel per layer."""
    recorded = [layer for layer in profile.activity if layer.raster]
    layers = recorded[:MAX_PANELS]
    if not layers:
        return None
    # wide layers get more height, but a layer of ten neurons stays readable
    most = max(layer.neurons for layer in layers)
    heights = [max((layer.neurons / most) ** 0.5, 0.35) for layer in layers]
    figure, axes = panels(
        len(layers), 1, height=0.9 + 0.55 * len(layers) + 1.7 * sum(heights), sharex=True, height_ratios=heights
    )
    for panel, layer in zip(axes, layers, strict=True):
        timesteps, neurons = np.asarray(layer.raster, dtype=float).T
        few = len(layer.raster) < 400
        mark, width, edge = ("|", 6.0, 1.2) if few else ("s", 1.1, 0.0)
        (dots,) = panel.plot(timesteps, neurons, marker=mark, linestyle="none", color=INK, rasterized=not few)
        dots.set(markersize=width, markeredgewidth=edge)
        panel.set_title(f"{clipped(layer.layer, 30)}: {counted(len(layer.raster), 'spike')} of one sample")
        room = 0.5 + 0.01 * layer.neurons
        panel.set(ylabel="neuron", ylim=(-room, layer.neurons - 1 + room), xlim=(-0.5, profile.timesteps - 0.5))
        thousands_axis(panel.yaxis)
        if layer.neurons < 100:
            panel.yaxis.set_major_locator(MaxNLocator(integer=True, nbins=4))
    axes[-1].set_xlabel(_timestep_label(len(layers), len(recorded)))
    thousands_axis(axes[-1].xaxis)
    return figure


def _timestep_label(shown: int, recorded: int) -> str:
    """The label of the time axis, which says when there are more layers than panels."""
    return "timestep" if shown == recorded else f"timestep (the first {shown} of {thousands(recorded)} layers)"
