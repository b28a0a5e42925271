"""The figure of a sweep: milliseconds per training step and memory against the first swept field."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import matplotlib.style
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from mimdsim.report.colours import LAYER_COLOURS, VERMILLION
from mimdsim.report.formatting import field_value
from mimdsim.report.style import STYLE, panels
from mimdsim.report.swept_axis import swept_axis

T = TypeVar("T")
MAX_LINES = 12
LEGEND_CHARACTERS = 190  # in a line below the panels
DASHES = ("solid", (0, (6, 3)), (4, (2, 3)))  # used in turn: overlapping lines show through the gaps


def draw_sweep(rows: Sequence[dict[str, Any]], axes: Sequence[str]) -> Figure | None:
    """Three panels over the values of `axes[0]`; one line per combination of the others. None without rows or axes.

    Hollow marks: points that do not fit tile memory; values without tiles are left out. Dashes take
    turns and marks get smaller, so that overlapping lines all remain visible. Of many lines some are drawn, from the
    first to the last, and the legend says so.
    """
    timed = [row for row in rows if row["ms_per_training_step"] is not None]
    if not timed or not axes:
        return None
    first, others = axes[0], axes[1:]
    axis = swept_axis(first, timed)
    lines: dict[str, list[dict[str, Any]]] = {}
    for row in timed:
        lines.setdefault(", ".join(f"{key} = {field_value(key, row[key])}" for key in others), []).append(row)
    with matplotlib.style.context(STYLE, after_reset=True):
        figure, (speed, ratio, memory) = panels(1, 3, width=14.5, height=4.2)
        drawn = evenly(list(lines.items()), MAX_LINES)
        for index, (label, line) in enumerate(drawn):
            colour = LAYER_COLOURS[index % len(LAYER_COLOURS)]
            look = {"color": colour, "linestyle": DASHES[index % len(DASHES)], "label": label or None}
            mark = 4 + 4 * (1 - index / len(drawn))
            line = axis.ascending(line)
            x = [axis.at(row) for row in line]
            for panel, middle, low, high in (
                (speed, "ms_per_training_step", "ms_low", "ms_high"),
                (ratio, "ratio", "ratio_low", "ratio_high"),
            ):
                bounds = [_or_nan(row[low]) for row in line], [_or_nan(row[high]) for row in line]
                panel.fill_between(x, *bounds, color=colour, alpha=0.13, linewidth=0)
                _line(panel, x, [_or_nan(row[middle]) for row in line], line, look, mark)
            _line(memory, x, [row["peak_bytes"] / 1024 for row in line], line, look, mark)
        limits = sorted({row["limit_bytes"] / 1024 for row in timed})
        if len(limits) == 1:
            memory.axhline(limits[0], color=VERMILLION, linewidth=1.2, linestyle="--")
            memory.text(
                0.01, limits[0], " limit", color=VERMILLION, va="bottom", transform=memory.get_yaxis_transform()
            )
        for panel in (speed, ratio, memory):
            axis.draw(panel)
            panel.grid(True)
            panel.set_ylim(0, 1.08 * panel.get_ylim()[1])
        ratio.axhline(1, color="black", linewidth=0.8)
        speed.set_ylabel("ms per training step (band: interval)")
        ratio.set_ylabel("times the first point's (band: interval)")
        memory.set_ylabel("KiB on the fullest tile (hollow: does not fit)")
        speed.set_title("Time")
        ratio.set_title("Time relative to the first point")
        memory.set_title("Memory")
        if others:
            handles, labels = speed.get_legend_handles_labels()
            few = f"{len(drawn)} of {len(lines):,} combinations are drawn" if len(drawn) < len(lines) else None
            columns = max(1, min(4, len(drawn), LEGEND_CHARACTERS // (max(map(len, labels)) + 8)))
            figure.legend(handles, labels, loc="outside lower center", ncols=columns, title=few)
    return figure


def _or_nan(value: float | None) -> float:
    """What is not drawn where there is no value."""
    return float("nan") if value is None else value


def evenly(found: Sequence[T], most: int) -> list[T]:
    """At most so many, the first and the last among them."""
    if len(found) <= most:
        return list(found)
    return [found[round(place * (len(found) - 1) / (most - 1))] for place in range(most)]


def _line(
    panel: Axes,
    x: Sequence[float],
    values: Sequence[float],
    rows: Sequence[dict[str, Any]],
    look: dict[str, Any],
    mark: float,
) -> None:
    panel.plot(x, values, linewidth=1.6, **look)
    for at, value, row in zip(x, values, rows, strict=True):
        face = look["color"] if row["fits"] else "white"
        panel.plot([at], [value], marker="o", color=look["color"], markerfacecolor=face, markersize=mark)
