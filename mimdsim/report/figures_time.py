"""Figures of time: by phase and part, and the supersteps that take most of it."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from mimdsim.base.phases import in_order
from mimdsim.base.units import counted
from mimdsim.profile import RunProfile, Span, TiledProfile
from mimdsim.report.colours import INK, PART_COLOURS
from mimdsim.report.formatting import clipped, duration, in_unit, milliseconds, reach, share, thousands
from mimdsim.report.machine_comparison import contenders
from mimdsim.report.style import heading, panels, stacked_bars, styled_plain, thousands_axis

LONGEST = 12
PART_NAMES = ("compute", "internal exchange", "sync", "host exchange (exposed)")


@styled_plain
def draw_time_by_phase(profile: RunProfile) -> Figure | None:
    """Time of a run by phase, split into compute, exchange, sync and exposed host exchange."""
    tiled = profile.tiled
    if tiled is None or not tiled.spans:
        return None
    phases = in_order(span.phase for span in tiled.spans)
    rows = [(*_parts(tiled, [span for span in tiled.spans if span.phase == phase]), 0.0) for phase in phases]
    shown = [*phases, "host"] if tiled.host_seconds else [*phases]
    rows += [(0.0, 0.0, 0.0, tiled.host_exposed_seconds)][: len(shown) - len(phases)]
    total = tiled.seconds_per_training_step
    figure, (axes,) = panels(height=1.3 + 0.42 * len(rows))
    notes = [f"{duration(tiled, sum(row))} · {share(sum(row), total)}" for row in rows]
    kinds = len(PART_NAMES) if tiled.host_seconds else len(PART_NAMES) - 1
    stacked_bars(axes, _in_unit(tiled, rows), PART_NAMES[:kinds], PART_COLOURS[:kinds], notes)
    axes.set_yticks(range(len(rows)), [clipped(phase, 24) for phase in shown])
    heading(figure, f"One {tiled.run_name} by phase: {duration(tiled, total)} (interval {reach(tiled)})")
    axes.set_xlabel(f"{_unit(tiled)} per {tiled.run_name}")
    _thousands(tiled, axes)
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=4)
    return figure


@styled_plain
def draw_longest_supersteps(profile: RunProfile) -> Figure | None:
    """The supersteps with the most cycles, each split into compute (slowest tile), exchange and sync."""
    tiled = profile.tiled
    if tiled is None or not tiled.spans:
        return None
    longest = sorted(tiled.spans, key=lambda span: -span.cycles)[:LONGEST]
    rows = [_parts(tiled, [span]) for span in longest]
    figure, (axes,) = panels(height=1.3 + 0.36 * len(rows))
    notes = [
        f"{duration(tiled, tiled.seconds(span.cycles))} · {thousands(span.times)}×{_waited_for(span)}"
        for span in longest
    ]
    stacked_bars(axes, _in_unit(tiled, rows), PART_NAMES[:3], PART_COLOURS[:3], notes)
    axes.set_yticks(range(len(rows)), [f"{clipped(span.name, 30)} ({clipped(span.phase, 10)})" for span in longest])
    loops = sum(span.op == "repeat" for span in tiled.spans)  # control of a loop has a span of its own
    many = counted(len(tiled.spans) - loops, "superstep") + (f" and {counted(loops, 'loop')}" if loops else "")
    which = f"The {len(rows)} longest of {many}" if len(rows) < len(tiled.spans) else many
    heading(figure, f"{which}: total · executions · slowest tile")
    axes.set_xlabel(f"{_unit(tiled)} per {tiled.run_name}, all executions together")
    _thousands(tiled, axes)
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return figure


def _waited_for(span: Span) -> str:
    """The slowest tile: of the compute phase, or of the exchange if nothing is computed."""
    tile = span.slowest_tile if span.compute_cycles else span.exchange_tile
    return f" · tile {thousands(tile)}" if tile >= 0 else ""


def _parts(tiled: TiledProfile, spans: list[Span]) -> tuple[float, float, float]:
    """Seconds of compute, exchange and sync of some spans together."""
    compute = sum(span.compute_cycles for span in spans)
    exchange = sum(span.exchange_cycles for span in spans)
    sync = sum(span.sync_cycles for span in spans)
    return tiled.seconds(compute), tiled.seconds(exchange), tiled.seconds(sync)


def _in_unit(tiled: TiledProfile, rows: Sequence[tuple[float, ...]]) -> list[tuple[float, ...]]:
    return [tuple(in_unit(tiled, seconds) for seconds in row) for row in rows]


def _unit(tiled: TiledProfile) -> str:
    return "milliseconds" if tiled.trains else "cycles"


def _thousands(tiled: TiledProfile, axes: Axes) -> None:
    if not tiled.trains:
        thousands_axis(axes.xaxis)


LEGEND = ("compute (GPU: bound by it)", "exchange (GPU: memory-bound)", "sync (GPU: launch-bound)", "host")


@styled_plain
def draw_comparison(profile: RunProfile) -> Figure | None:
    """Bars of milliseconds per training step, split by what limits the time, with intervals and ratios."""
    found = contenders(profile)
    if not profile.gpus and not profile.tiled_beside:
        return None
    rows = [[1e3 * part for part in one.parts] for one in found]
    figure, (axes,) = panels(height=1.5 + 0.42 * len(rows))
    # inches: on the page the letters are a little wider than in the layout
    figure.set_layout_engine("constrained", w_pad=0.18)
    stacked_bars(axes, rows, LEGEND, PART_COLOURS, [""] * len(rows))
    longest = max((1e3 * max(one.high, one.seconds) for one in found), default=0.0)
    for height, one in enumerate(found):
        low, high = min(one.low, one.seconds), max(one.high, one.seconds)
        reach = [[1e3 * (one.seconds - low)], [1e3 * (high - one.seconds)]]
        axes.errorbar(1e3 * one.seconds, height, xerr=reach, color=INK, capsize=3, linewidth=1.1)
        words = one.ratio_words if one.fits else "does not fit its memory"
        note = f"{milliseconds(one.seconds)} ms" + ("" if words == "–" else f" · {words}")
        beside = axes.get_yaxis_transform()  # a column to the right of the bars, for which the layout leaves room
        axes.text(1.01, height, note, va="center", fontsize=9, transform=beside)
    stars = ["★ " if one.strongest else "" for one in found]
    names = [star + clipped(one.label, 64) for star, one in zip(stars, found, strict=True)]
    axes.set_yticks(range(len(found)), names)
    for label, one in zip(axes.get_yticklabels(), found, strict=True):
        label.set_fontweight("bold" if one.tiled or one.strongest else "normal")
    heading(figure, "One training step on every machine (★ strongest strategy of its GPU; whiskers: interval)")
    axes.set_xlabel("milliseconds per training step")
    axes.set_xlim(0, 1.03 * longest or None)
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=4)
    return figure
