"""The figures of weak scaling: milliseconds per training step and efficiency against the number of chips."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import matplotlib.style
from matplotlib.figure import Figure
from matplotlib.ticker import FixedFormatter, FixedLocator, NullLocator

from mimdsim.report.style import GREY, LAYER_COLOURS, STYLE, heading, panels

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
            panel.set_xscale("log", base=2)
            panel.xaxis.set_major_locator(FixedLocator(chips))
            panel.xaxis.set_major_formatter(FixedFormatter([str(count) for count in chips]))
            panel.xaxis.set_minor_locator(NullLocator())
            panel.set_xlabel("chips (the network grows with them)")
            panel.grid(True)
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
