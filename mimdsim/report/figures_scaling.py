"""The figures of scaling: milliseconds per training step and efficiency against the number of chips."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import matplotlib.style
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedFormatter, FixedLocator, NullLocator

from mimdsim.report.colours import BLUE, GREY, INK, LAYER_COLOURS, ORANGE
from mimdsim.report.style import STYLE, heading, panels

MARKERS = "osD^vPX*"  # lines can be distinguished without colours too


def draw_scaling(rows: Sequence[dict[str, Any]], *, title: str) -> Figure:
    """Two panels over chips, one line per number of neurons per tile.

    rows: chips, neurons_per_tile, ms, ms_low, ms_high, fits. Efficiency is the time on the fewest chips of a line
    divided by the time on this many: 100 % if chips added with their share of the network cost no time. Hollow marks:
    a tile lacks memory.
    """
    lines: dict[int, list[dict[str, Any]]] = {}
    for row in sorted(rows, key=lambda row: (row["neurons_per_tile"], row["chips"])):
        lines.setdefault(row["neurons_per_tile"], []).append(row)
    chips = sorted({row["chips"] for row in rows})
    with matplotlib.style.context(STYLE, after_reset=True):
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
        speed.set_ylim(0, 1.06 * max((row["ms_high"] for row in rows), default=1.0))
        speed.set_ylabel("ms per training step (band: interval)")
        speed.set_title("Time")
        efficiency.axhline(100, color=GREY, linewidth=1.0, linestyle="--")
        efficiency.set_ylim(0, 110)
        efficiency.set_ylabel("time on the fewest chips / time, %")
        efficiency.set_title("Weak-scaling efficiency")
        heading(figure, title)
        figure.legend(*speed.get_legend_handles_labels(), loc="outside lower center", ncols=min(4, max(len(lines), 1)))
    return figure


ANSWERS = (  # to what is not known: field, what it says, colour, marker
    ("all", "an exchange stops all chips", ORANGE, "s"),
    ("chip", "an exchange stops its own chip only", BLUE, "o"),
)


def draw_over_chips(
    strong: Sequence[dict[str, Any]], weak: Sequence[dict[str, Any]], *, samples: int, title: str
) -> Figure:
    """Two panels over chips: a batch of `samples`, and so many samples on every chip.

    rows: chips; chip, all: (ms, low, high) if an exchange stops its own chip, or all; host_ms: what the host takes to
    send the batch. Bands reach from low to high. Dashed: no cost of several chips.
    """
    with matplotlib.style.context(STYLE, after_reset=True):
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
            panel.set_ylim(0, 1.06 * max(max(row["chip"][2], row["all"][2]) for row in rows))
            panel.set_ylabel("ms per training step (band: interval)")
            panel.set_title(name)
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
