"""The figure of convergence: test accuracy against epochs, one panel per data set, one line per variant."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import matplotlib.style
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from mimdsim.report.colours import LAYER_COLOURS
from mimdsim.report.style import STYLE, panels, plain_axis

Curves = Mapping[str, Mapping[str, Sequence[Sequence[float]]]]  # title -> variant -> accuracies by epoch, a run each
COLUMNS = 2
LOWEST_SHOWN = 40.0  # percent; the first epochs of slow starters are outside the panel


def draw_convergence(curves: Curves) -> Figure:
    """Mean over the seeds as a line, from the worst to the best seed as a band."""
    variants = list(dict.fromkeys(variant for of in curves.values() for variant in of))
    with matplotlib.style.context(STYLE, after_reset=True):
        rows = -(-len(curves) // COLUMNS)
        figure, axes = panels(rows, COLUMNS, width=10.5, height=0.9 + 2.9 * rows)
        for panel, (title, runs_of) in zip(axes, curves.items(), strict=False):
            lowest = 100.0
            for variant, runs in runs_of.items():
                accuracy = 100 * np.asarray(runs, dtype=float)
                epochs = np.arange(1, accuracy.shape[1] + 1)
                place = variants.index(variant)
                colour = LAYER_COLOURS[place % len(LAYER_COLOURS)]
                dashes = "--" if place >= len(LAYER_COLOURS) // 2 else "-"
                panel.fill_between(epochs, accuracy.min(axis=0), accuracy.max(axis=0), color=colour, alpha=0.13, lw=0)
                panel.plot(epochs, accuracy.mean(axis=0), color=colour, linestyle=dashes, label=variant)
                lowest = min(lowest, float(accuracy[:, len(epochs) // 4 :].min()))
            panel.set_title(title)
            panel.set_ylim(max(min(lowest - 2, 90.0), LOWEST_SHOWN), 100.5)
            panel.set_xlabel("epoch")
            panel.set_ylabel("test accuracy, %")
            panel.grid()
            plain_axis(panel.yaxis)
            panel.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=6))
        for spare in axes[len(curves) :]:
            spare.set_axis_off()
        named = {name: line for panel in axes for line, name in zip(*panel.get_legend_handles_labels(), strict=True)}
        figure.legend(named.values(), named.keys(), loc="outside lower center", ncols=3)
    return figure
