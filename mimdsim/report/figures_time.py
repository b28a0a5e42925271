"""Figures of time: by phase and part, and the supersteps that take most of it."""

from __future__ import annotations

import textwrap
from itertools import groupby
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from mimdsim.base.shown import in_order
from mimdsim.base.units import counted
from mimdsim.profile import RunProfile, Span, TiledProfile
from mimdsim.report.formatting import (
    BLUE,
    GREY,
    INK,
    PART_COLOURS,
    clipped,
    duration,
    in_unit,
    milliseconds,
    reach,
    share,
    thousands,
)
from mimdsim.report.machine_comparison import contenders, seconds_by_part
from mimdsim.report.style import (
    LABEL_BOX,
    heading,
    legend_beside,
    panels,
    plain_axis,
    stacked_bars,
    styled_plain,
    thousands_axis,
)
from mimdsim.report.tables_difference import both_tiled
from mimdsim.report.trace import critical_path

LONGEST = 12
NAMED_SHARE = 0.06  # of a timeline: shorter supersteps have no room for their names
PART_NAMES = ("compute", "internal exchange", "sync", "host exchange (exposed)")


@styled_plain
def draw_time_by_phase(profile: RunProfile) -> Figure | None:
    """Time of a run by phase, split into compute, exchange, sync and exposed host exchange."""
    tiled = profile.tiled
    if tiled is None or not tiled.spans:
        return None
    phases = in_order(span.phase for span in tiled.spans)
    rows = [(*seconds_by_part(tiled, [span for span in tiled.spans if span.phase == phase]), 0.0) for phase in phases]
    if tiled.host_exposed_seconds:
        rows.append((0.0, 0.0, 0.0, tiled.host_exposed_seconds))
    total = tiled.seconds_per_training_step
    names = [clipped(phase, 24) for phase in [*phases, "host"][: len(rows)]]
    notes = [f"{duration(tiled, sum(row))} · {share(sum(row), total)}" for row in rows]
    kinds = 4 if tiled.host_exposed_seconds else 3
    figure = _stacked(tiled, [row[:kinds] for row in rows], names, notes, height=0.42, per="", legend_columns=4)
    heading(figure, f"One {tiled.run_name} by phase: {duration(tiled, total)} (interval {reach(tiled)})")
    return figure


@styled_plain
def draw_longest_supersteps(profile: RunProfile) -> Figure | None:
    """The supersteps with the most cycles, each split into compute (slowest tile), exchange and sync."""
    tiled = profile.tiled
    if tiled is None or not tiled.spans:
        return None
    longest = sorted(tiled.spans, key=lambda span: -span.cycles)[:LONGEST]
    rows = [seconds_by_part(tiled, [span]) for span in longest]
    names = [f"{clipped(span.name, 30)} ({clipped(span.phase, 10)})" for span in longest]
    seconds = [duration(tiled, tiled.seconds(span.cycles)) for span in longest]
    notes = [f"{each} · {thousands(one.times)}×{_waited_for(one)}" for each, one in zip(seconds, longest, strict=True)]
    figure = _stacked(tiled, rows, names, notes, height=0.36, per=", all executions together", legend_columns=3)
    loops = sum(span.op == "repeat" for span in tiled.spans)  # control of a loop has a span of its own
    many = counted(len(tiled.spans) - loops, "superstep") + (f" and {counted(loops, 'loop')}" if loops else "")
    which = f"The {len(longest)} longest of {many}" if len(longest) < len(tiled.spans) else many
    heading(figure, f"{which}: total · executions · slowest tile")
    return figure


def _stacked(
    tiled: TiledProfile,
    rows: list[tuple[float, ...]],
    names: list[str],
    notes: list[str],
    *,
    height: float,
    per: str,
    legend_columns: int,
    ax: Axes | None = None,
) -> Figure:
    """Bars of seconds by part, in the unit of the machine; height: inches of each."""
    figure, (axes,) = panels(ax=ax, height=1.3 + height * len(rows))
    values, kinds = [[in_unit(tiled, seconds) for seconds in row] for row in rows], len(rows[0])
    stacked_bars(axes, values, PART_NAMES[:kinds], PART_COLOURS[:kinds], notes)
    axes.set_yticks(range(len(rows)), names)
    axes.set_xlabel(f"{'milliseconds' if tiled.trains else 'cycles'} per {tiled.run_name}{per}")
    if not tiled.trains:
        thousands_axis(axes.xaxis)
    legend_beside(figure, axes, "lower center", within=ax is not None, columns=legend_columns)
    return figure


@styled_plain
def draw_timeline(profile: RunProfile, ax: Axes | None = None) -> Figure | None:
    """All supersteps to scale, in program order, the executions of each together: compute, exchange, sync in rows."""
    tiled = profile.tiled
    if tiled is None or not tiled.spans:
        return None
    path = list(critical_path(tiled, sum(span.op != "repeat" for span in tiled.spans)))
    figure, (axes,) = panels(ax=ax, height=2.9)
    scale = in_unit(tiled, tiled.seconds(1))
    parts = {
        "compute": [(one.compute, one.end) for one in path],
        "internal exchange": [(one.exchange, one.compute) for one in path],
        "sync": [(one.begin, one.exchange) for one in path],
    }
    for row, ((name, found), colour) in enumerate(zip(parts.items(), PART_COLOURS, strict=False)):
        bars = [(scale * begin, scale * (end - begin)) for begin, end in found if end > begin]
        axes.broken_barh(bars, (row - 0.4, 0.8), facecolors=colour, edgecolors="white", linewidth=0.3)
        axes.text(-0.01, row, name, ha="right", va="center", transform=axes.get_yaxis_transform())
    for one in path:
        if one.end - one.begin > NAMED_SHARE * (1 if ax is None else 2) * path[-1].end:
            middle, most = scale * (one.begin + one.end) / 2, int(70 * (one.end - one.begin) / path[-1].end)
            look: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": 8, "bbox": LABEL_BOX}
            axes.text(middle, 0, textwrap.fill(one.span.name, max(most, 8)), **look)
    for phase, group in groupby(path, key=lambda one: one.span.phase):
        inside = list(group)
        begin, end = scale * inside[0].begin, scale * inside[-1].end
        axes.axvline(begin, color=GREY, linewidth=0.6)
        if end - begin > NAMED_SHARE * scale * path[-1].end:
            axes.text((begin + end) / 2, -0.62, clipped(phase, 20), ha="center", va="bottom", fontsize=8.5, color=GREY)
    axes.set(xlim=(0, scale * path[-1].end), ylim=(2.6, -0.95), yticks=[])
    axes.set_xlabel("milliseconds" if tiled.trains else "cycles")
    plain_axis(axes.xaxis)
    axes.grid(axis="x")
    total = duration(tiled, tiled.seconds(path[-1].end))
    heading(figure, f"One {tiled.run_name} on {clipped(tiled.title, 50)}: {total}", ax)
    return figure


@styled_plain
def draw_two_runs(profile: RunProfile, other: RunProfile, ax: Axes | None = None) -> Figure | None:
    """Bars of two runs by phase, A above B, split into compute, exchange and sync."""
    one, two = both_tiled(profile, other)
    both = {"A": one, "B": two}
    phases = in_order(span.phase for tiled in both.values() for span in tiled.spans)
    rows, names, notes = [], [], []
    for phase in phases:
        for letter, tiled in both.items():
            rows.append(seconds_by_part(tiled, [span for span in tiled.spans if span.phase == phase]))
            names.append(f"{clipped(phase, 24)}  {letter}" if letter == "A" else letter)
            notes.append(duration(tiled, sum(rows[-1])))
    figure = _stacked(one, rows, names, notes, height=0.3, per="", legend_columns=3, ax=ax)
    said = [
        f"{letter}: {clipped(run.workload, 30)} on {clipped(tiled.machine, 30)}, "
        f"{duration(tiled, tiled.seconds_per_training_step)}"
        for (letter, tiled), run in zip(both.items(), (profile, other), strict=True)
    ]
    heading(figure, "\n".join(said), ax)
    return figure


def _waited_for(span: Span) -> str:
    """The slowest tile: of the compute phase, or of the exchange if nothing is computed."""
    tile = span.slowest_tile if span.compute_cycles else span.exchange_tile
    return f" · tile {thousands(tile)}" if tile >= 0 else ""


FAR_APART = 8  # times of machines whose shortest could hardly be seen beside the longest
LEGEND = ("compute (GPU: bound by it)", "exchange (GPU: memory-bound)", "sync (GPU: launch-bound)", "host")


@styled_plain
def draw_comparison(profile: RunProfile, ax: Axes | None = None) -> Figure | None:
    """Bars of milliseconds per training step, split by what limits the time, with intervals and ratios."""
    found = contenders(profile)
    if not profile.gpus and not profile.tiled_beside:
        return None
    rows = [[1e3 * part for part in one.parts] for one in found]
    figure, (axes,) = panels(ax=ax, height=1.5 + 0.42 * len(rows))
    if ax is None:  # inches: on the page the letters are a little wider than in the layout
        figure.set_layout_engine("constrained", w_pad=0.18)
    longest = max((1e3 * max(one.high, one.seconds) for one in found), default=0.0)
    shortest = min((1e3 * (one.low or one.seconds) for one in found if one.seconds), default=0.0)
    seconds = [one.seconds for one in found]
    logarithmic = 0 < min(seconds) < max(seconds) / FAR_APART and shortest > 0
    if logarithmic:  # parts of a bar would mislead on such an axis, so there are none
        axes.scatter([1e3 * each for each in seconds], range(len(found)), color=BLUE, zorder=3)
        axes.set_xscale("log")
        axes.invert_yaxis()
        axes.grid(axis="x")
        plain_axis(axes.xaxis)
    else:
        stacked_bars(axes, rows, LEGEND, PART_COLOURS, [""] * len(rows))
    for height, one in enumerate(found):
        low, high = min(one.low, one.seconds), max(one.high, one.seconds)
        reach = [[1e3 * (one.seconds - low)], [1e3 * (high - one.seconds)]]
        if not (one.tiled and one.unknown):
            axes.errorbar(1e3 * one.seconds, height, xerr=reach, color=INK, capsize=3, linewidth=1.1)
        words = one.ratio_words if one.fits else "does not fit its memory"
        note = f"{milliseconds(one.seconds)} ms" + ("" if words == "–" else f" · {words}")
        beside = axes.get_yaxis_transform()  # a column to the right of the bars, for which the layout leaves room
        axes.text(1.01, height, note, va="center", fontsize=9, transform=beside)
    stars = ["★ " if one.strongest else "" for one in found]
    names = [star + clipped(one.label.replace("_", " "), 64) for star, one in zip(stars, found, strict=True)]
    axes.set_yticks(range(len(found)), names)
    for label, one in zip(axes.get_yticklabels(), found, strict=True):
        label.set_fontweight("bold" if one.tiled or one.strongest else "normal")
    heading(figure, "One training step on every machine (★ strongest strategy of its GPU; whiskers: interval)", ax)
    scale = ", logarithmic: from line to line ten times as long" if logarithmic else ""
    limits = (0.8 * shortest, 1.2 * longest) if logarithmic else (0, 1.03 * longest or None)
    axes.set(xlabel=f"milliseconds per training step{scale}", xlim=limits)
    if not logarithmic:
        legend_beside(figure, axes, "lower center", within=ax is not None, columns=4)
    return figure
