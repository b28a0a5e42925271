"""The figure of a sweep with GPUs: each GPU's training step as a multiple of the tiled machine's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import matplotlib.style
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from mimdsim.report.colours import INK, LAYER_COLOURS
from mimdsim.report.figures_sweep import evenly
from mimdsim.report.formatting import clipped, field_value
from mimdsim.report.style import STYLE, panels
from mimdsim.report.swept_axis import swept_axis

# abstract of arXiv 2311.04386, of its own networks and as published: for orientation next to any other
CLAIMED = ((5.0, 10.0), "claimed for published networks on an A100: 5 to 10 times")
CLAIMED_MOST = (38.0, "claimed at higher sparsity: 38 times")
MAX_PANELS = 6
TITLE_CHARACTERS, LARGE_TITLE = 56, 40


def draw_crossover(rows: Sequence[dict[str, Any]], axes: Sequence[str], gpus: Sequence[str]) -> Figure | None:
    """GPU over tiled milliseconds along the values of `axes[0]`, one panel per combination of the other axes.

    Solid: the strongest strategy that fits, with the interval from opposite ends of both; dashed: as published.
    Above 1 the tiled machine is faster. Points that do not fit the tiled machine are hollow. None without GPUs.
    """
    timed = [row for row in rows if row["ms_per_training_step"] is not None]
    if not timed or not axes or not gpus:
        return None
    first, others = axes[0], axes[1:]
    lines: dict[str, list[dict[str, Any]]] = {}
    for row in timed:
        lines.setdefault(", ".join(f"{key} = {field_value(key, row[key])}" for key in others), []).append(row)
    shown = evenly(list(lines.items()), MAX_PANELS)
    with matplotlib.style.context(STYLE, after_reset=True):
        figure, made = panels(1, len(shown), width=3.0 + 4.2 * len(shown), height=4.6)
        for panel, (label, line) in zip(made, shown, strict=True):
            axis = swept_axis(first, line)
            line = axis.ascending(line)
            x = [axis.at(row) for row in line]
            for index, gpu in enumerate(gpus):
                _draw_gpu(panel, x, line, gpu, LAYER_COLOURS[index % len(LAYER_COLOURS)])
            panel.axhline(1, color=INK, linewidth=1)
            if any(gpu.startswith("a100") for gpu in gpus):
                panel.axhspan(*CLAIMED[0], color="#999999", alpha=0.18, linewidth=0, label=CLAIMED[1])
                panel.axhline(CLAIMED_MOST[0], color="#999999", linestyle=":", label=CLAIMED_MOST[1])
            panel.set_yscale("log")
            panel.yaxis.set_major_formatter(lambda value, _: f"{value:g}×")
            axis.draw(panel)
            title = clipped(label, TITLE_CHARACTERS) or "GPU time over tiled time"
            panel.set_title(title, fontsize=9 if len(label) > LARGE_TITLE else 11)
            panel.grid(True)
        made[0].set_ylabel("tiled machine faster above 1×")
        few = f"{len(shown)} of {len(lines):,} combinations are drawn" if len(shown) < len(lines) else None
        figure.legend(*made[0].get_legend_handles_labels(), loc="outside lower center", ncols=2, title=few)
    return figure


def _draw_gpu(panel: Axes, x: list[Any], line: list[dict[str, Any]], gpu: str, colour: str) -> None:
    known = [(at, row) for at, row in zip(x, line, strict=True) if row[f"{gpu} strongest_ms"]]
    if known:
        places = [at for at, _ in known]
        ratio = [row[f"{gpu} strongest_ms"] / row["ms_per_training_step"] for _, row in known]
        low = [row[f"{gpu} strongest_low_ms"] / row["ms_high"] for _, row in known]
        high = [row[f"{gpu} strongest_high_ms"] / max(row["ms_low"], 1e-9) for _, row in known]
        panel.plot(places, ratio, color=colour, linewidth=1.6, label=f"{gpu}, strongest strategy")
        panel.fill_between(places, low, high, color=colour, alpha=0.14, linewidth=0)
        for at, value, (_, row) in zip(places, ratio, known, strict=True):
            panel.plot([at], [value], "o", color=colour, markerfacecolor=colour if row["fits"] else "white")
    known = [(at, row) for at, row in zip(x, line, strict=True) if row[f"{gpu} published_ms"]]
    if known:
        ratio = [row[f"{gpu} published_ms"] / row["ms_per_training_step"] for _, row in known]
        panel.plot([at for at, _ in known], ratio, color=colour, linestyle="--", label=f"{gpu}, as published")
