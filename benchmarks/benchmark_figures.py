"""Figures of the benchmarks: times over chips, and accuracies by epoch, in the style of the package's own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedFormatter, FixedLocator, MaxNLocator, NullLocator

from mimdsim.report.formatting import BLUE, GREY, INK, LAYER_COLOURS, ORANGE
from mimdsim.report.style import heading, panels, plain_axis, styled

Row = dict[str, Any]
MARKERS = "osD^vPX*"  # lines can be distinguished without colours too


@styled
def draw_scaling(rows: Sequence[Row], *, title: str) -> Figure:
    """Two panels over chips, one line per number of neurons per tile.

    rows: chips, neurons_per_tile, ms, ms_low, ms_high, fits. Efficiency is the time on the fewest chips of a line
    divided by the time on this many: 100 % if chips added with their share of the network cost no time. Hollow marks:
    a tile lacks memory.
    """
    lines: dict[int, list[Row]] = {}
    for row in sorted(rows, key=lambda row: (row["neurons_per_tile"], row["chips"])):
        lines.setdefault(row["neurons_per_tile"], []).append(row)
    chips = sorted({row["chips"] for row in rows})
    figure, (speed, efficiency) = panels(1, 2, width=10.5, height=4.4)
    for index, (neurons, line) in enumerate(lines.items()):
        colour, marker = LAYER_COLOURS[index % len(LAYER_COLOURS)], MARKERS[index % len(MARKERS)]
        x = [row["chips"] for row in line]
        kept = [100 * line[0]["ms"] / row["ms"] for row in line]
        speed.fill_between(
            x, [row["ms_low"] for row in line], [row["ms_high"] for row in line], color=colour, alpha=0.13, lw=0
        )
        for panel, values in ((speed, [row["ms"] for row in line]), (efficiency, kept)):
            panel.plot(x, values, color=colour, linewidth=1.5, marker=marker, label=f"{neurons} neurons per tile")
            for at, value, row in zip(x, values, line, strict=True):
                if not row["fits"]:
                    panel.plot([at], [value], marker=marker, color=colour, markerfacecolor="white")
    for panel in (speed, efficiency):
        _chips_axis(panel, chips, "chips (the network grows with them)")
    top = 1.06 * max((row["ms_high"] for row in rows), default=1.0)
    speed.set(title="Time", ylabel="ms per training step (band: interval)", ylim=(0, top))
    efficiency.axhline(100, color=GREY, linewidth=1.0, linestyle="--")
    efficiency.set(title="Weak-scaling efficiency", ylabel="time on the fewest chips / time, %", ylim=(0, 110))
    heading(figure, title)
    figure.legend(*speed.get_legend_handles_labels(), loc="outside lower center", ncols=min(4, max(len(lines), 1)))
    return figure


ANSWERS = (  # to what is not known: field, what it says, colour, marker
    ("all", "an exchange stops all chips", ORANGE, "s"),
    ("chip", "an exchange stops its own chip only", BLUE, "o"),
)


@styled
def draw_over_chips(strong: Sequence[Row], weak: Sequence[Row], *, samples: int, title: str) -> Figure:
    """Two panels over chips: a batch of `samples`, and so many samples on every chip.

    rows: chips; chip, all: (ms, low, high) if an exchange stops its own chip, or all; host_ms: what the host takes to
    send the batch. Bands reach from low to high. Dashed: no cost of several chips.
    """
    figure, axes = panels(1, 2, width=10.5, height=4.6)
    names = f"Strong scaling: {samples} samples in all", f"Weak scaling: {samples} samples on every chip"
    for panel, rows, name, shrinks in zip(axes, (strong, weak), names, (True, False), strict=True):
        chips = [row["chips"] for row in rows]
        for field, label, colour, marker in ANSWERS:
            middle, low, high = zip(*(row[field] for row in rows), strict=True)
            panel.fill_between(chips, low, high, color=colour, alpha=0.16, lw=0)
            for edge in (low, high):
                panel.plot(chips, edge, color=colour, linewidth=0.8, alpha=0.8)
            panel.plot(chips, middle, color=colour, linewidth=1.6, marker=marker, label=label)
        alone = rows[0]["chip"][0]
        ideal = [alone * chips[0] / count if shrinks else alone for count in chips]
        panel.plot(chips, ideal, color=GREY, linewidth=1.2, linestyle="--", label="if several chips cost nothing")
        host = [row["host_ms"] for row in rows]
        panel.plot(chips, host, color=INK, linewidth=1.2, linestyle=":", label="the host sends the batch")
        _chips_axis(panel, chips, "chips")
        top = 1.06 * max(max(row["chip"][2], row["all"][2]) for row in rows)
        panel.set(title=name, ylabel="ms per training step (band: interval)", ylim=(0, top))
    heading(figure, title)
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
    return figure


def _chips_axis(panel: Axes, chips: Sequence[int], label: str) -> None:
    panel.set_xscale("log", base=2)
    panel.xaxis.set_major_locator(FixedLocator(chips))
    panel.xaxis.set_major_formatter(FixedFormatter([str(count) for count in chips]))
    panel.xaxis.set_minor_locator(NullLocator())
    panel.set_xlabel(label)
    panel.grid(True)


Curves = Mapping[str, Mapping[str, Sequence[Sequence[float]]]]  # title -> variant -> accuracies by epoch, a run each
COLUMNS = 2
LOWEST_SHOWN = 40.0  # percent; the first epochs of slow starters are outside the panel


@styled
def draw_convergence(curves: Curves) -> Figure:
    """Mean over the seeds as a line, from the worst to the best seed as a band."""
    variants = list(dict.fromkeys(variant for of in curves.values() for variant in of))
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
        lowest = max(min(lowest - 2, 90.0), LOWEST_SHOWN)
        panel.set(title=title, ylim=(lowest, 100.5), xlabel="epoch", ylabel="test accuracy, %")
        panel.grid()
        plain_axis(panel.yaxis)
        panel.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=6))
    for spare in axes[len(curves) :]:
        spare.set_axis_off()
    named = {name: line for panel in axes for line, name in zip(*panel.get_legend_handles_labels(), strict=True)}
    figure.legend(named.values(), named.keys(), loc="outside lower center", ncols=3)
    return figure
