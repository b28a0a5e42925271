"""Figures of spikes: how many each layer lists per timestep, and which neurons fire when in one sample."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from mimdsim.base.units import counted
from mimdsim.profile import RunProfile
from mimdsim.report.colours import BLUE, INK, ORANGE, VERMILLION
from mimdsim.report.formatting import clipped, significant, thousands
from mimdsim.report.style import panels, plain_axis, styled, thousands_axis

MAX_PANELS = 8


@styled
def draw_activity(profile: RunProfile) -> Figure | None:
    """Spikes and list entries of every layer over the timesteps, with the line of its spike capacity."""
    recorded = [layer for layer in profile.activity if layer.spikes_by_timestep]
    layers = recorded[:MAX_PANELS]
    if not layers:
        return None
    figure, axes = panels(len(layers), 1, height=1.0 + 1.75 * len(layers), sharex=True)
    for panel, layer in zip(axes, layers, strict=True):
        timesteps = np.arange(len(layer.listed_by_timestep))
        panel.plot(timesteps, layer.listed_by_timestep, color=ORANGE, label="listed (spikes and gradient entries)")
        panel.plot(np.arange(len(layer.spikes_by_timestep)), layer.spikes_by_timestep, color=BLUE, label="spikes")
        highest = max(*layer.listed_by_timestep, *layer.spikes_by_timestep, 1e-9)
        above = ""
        # far above the curves, the capacity line would flatten them: then it is only named
        if layer.capacity <= 4 * highest:
            panel.axhline(layer.capacity, color=VERMILLION, linestyle="--", label="capacity")
            panel.set_ylim(0, 1.12 * max(layer.capacity, highest))
        else:
            panel.set_ylim(0, 1.12 * highest)
            above = " (above the panel)"
        mean = sum(layer.spikes_by_timestep) / len(layer.spikes_by_timestep)
        panel.set_title(
            f"{clipped(layer.layer, 30)}: {counted(layer.neurons, 'neuron')}, mean {significant(mean)} spikes"
            f" per timestep, capacity {thousands(layer.capacity)}{above}",
        )
        panel.set_ylabel("per sample")
        panel.grid()
        plain_axis(panel.yaxis)
    axes[-1].set_xlabel(_timestep_label(len(layers), len(recorded)))
    thousands_axis(axes[-1].xaxis)
    with_capacity = max(axes, key=lambda panel: len(panel.get_legend_handles_labels()[1]))
    figure.legend(*with_capacity.get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return figure


@styled
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
        panel.set_ylabel("neuron")
        panel.set_ylim(-0.5 - 0.01 * layer.neurons, layer.neurons - 0.5 + 0.01 * layer.neurons)
        panel.set_xlim(-0.5, profile.timesteps - 0.5)
        thousands_axis(panel.yaxis)
        if layer.neurons < 100:
            panel.yaxis.set_major_locator(MaxNLocator(integer=True, nbins=4))
    axes[-1].set_xlabel(_timestep_label(len(layers), len(recorded)))
    thousands_axis(axes[-1].xaxis)
    return figure


def _timestep_label(shown: int, recorded: int) -> str:
    """The label of the time axis, which says when there are more layers than panels."""
    return "timestep" if shown == recorded else f"timestep (the first {shown} of {thousands(recorded)} layers)"
