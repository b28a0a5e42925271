"""The figure of a sweep: milliseconds per training step and memory against the first swept field."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import matplotlib.style
from matplotlib.figure import Figure

from mimdsim.report.style import LAYER_COLOURS, STYLE, VERMILLION, panels

MAX_LINES = 12


def draw_sweep(rows: Sequence[dict[str, Any]], axes: Sequence[str]) -> Figure | None:
    """Two panels over the values of `axes[0]`; one line per combination of the others. None without rows or axes.

    Hollow marks: points that do not fit tile memory; values without tiles are left out.
    """
    timed = [row for row in rows if row["ms_per_training_step"] is not None]
    if not timed or not axes:
        return None
    first, others = axes[0], axes[1:]
    names = list(dict.fromkeys(str(row[first]) for row in timed))
    numeric = all(isinstance(row[first], (int, float)) and not isinstance(row[first], bool) for row in timed)
    lines: dict[str, list[dict[str, Any]]] = {}
    for row in timed:
        lines.setdefault(", ".join(f"{key} = {row[key]}" for key in others), []).append(row)
    with matplotlib.style.context(STYLE, after_reset=True):
        figure, (speed, memory) = panels(1, 2, width=10.5, height=4.2)
        for index, (label, line) in enumerate(list(lines.items())[:MAX_LINES]):
            colour = LAYER_COLOURS[index % len(LAYER_COLOURS)]
            x = [row[first] if numeric else names.index(str(row[first])) for row in line]
            middle = [row["ms_per_training_step"] for row in line]
            speed.plot(x, middle, color=colour, linewidth=1.5, label=label or None)
            speed.fill_between(
                x,
                [row["ms_low"] for row in line],
                [row["ms_high"] for row in line],
                color=colour,
                alpha=0.13,
                linewidth=0,
            )
            kib = [row["peak_bytes"] / 1024 for row in line]
            memory.plot(x, kib, color=colour, linewidth=1.5)
            for panel, values in ((speed, middle), (memory, kib)):
                for at, value, row in zip(x, values, line, strict=True):
                    face = colour if row["fits"] else "white"
                    panel.plot([at], [value], marker="o", color=colour, markerfacecolor=face, markersize=6)
        limits = sorted({row["limit_bytes"] / 1024 for row in timed})
        if len(limits) == 1:
            memory.axhline(limits[0], color=VERMILLION, linewidth=1.2, linestyle="--")
            memory.text(
                0.01, limits[0], " limit", color=VERMILLION, va="bottom", transform=memory.get_yaxis_transform()
            )
        for panel in (speed, memory):
            panel.set_xlabel(first)
            panel.grid(True)
            panel.set_ylim(0, 1.08 * panel.get_ylim()[1])
            if not numeric:
                panel.set_xticks(range(len(names)), names)
        speed.set_ylabel("ms per training step (band: interval)")
        memory.set_ylabel("KiB on the fullest tile (hollow: does not fit)")
        speed.set_title("Time")
        memory.set_title("Memory")
        if others:
            figure.legend(loc="outside lower center", ncols=min(4, len(lines)))
    return figure
