"""Figures of time: by phase and part, and the supersteps that take most of it."""

from __future__ import annotations

from matplotlib.figure import Figure

from mimdsim.base.phases import in_order
from mimdsim.profile import RunProfile, Span, TiledProfile
from mimdsim.report.style import PART_COLOURS, heading, panels, stacked_bars, styled
from mimdsim.report.wording import clipped, interval, milliseconds, share, thousands

LONGEST = 12
PART_NAMES = ("compute", "internal exchange", "sync", "host exchange (exposed)")


@styled
def draw_time_by_phase(profile: RunProfile) -> Figure | None:
    """Milliseconds of a training step by phase, split into compute, exchange, sync and exposed host exchange."""
    tiled = profile.tiled
    if tiled is None or not tiled.spans:
        return None
    phases = in_order(span.phase for span in tiled.spans)
    rows = [(*_milliseconds(tiled, [span for span in tiled.spans if span.phase == phase]), 0.0) for phase in phases]
    rows.append((0.0, 0.0, 0.0, 1e3 * tiled.host_exposed_seconds))
    total = tiled.seconds_per_training_step
    figure, (axes,) = panels(height=1.3 + 0.42 * len(rows))
    notes = [f"{milliseconds(sum(row) / 1e3)} ms · {share(sum(row) / 1e3, total)}" for row in rows]
    stacked_bars(axes, rows, PART_NAMES, PART_COLOURS, notes)
    axes.set_yticks(range(len(rows)), [clipped(phase, 24) for phase in phases] + ["host"])
    reach = interval(tiled.seconds_low, tiled.seconds_high)
    heading(figure, f"One training step by phase: {milliseconds(total)} ms (interval {reach} ms)")
    axes.set_xlabel("milliseconds per training step")
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=4)
    return figure


@styled
def draw_longest_supersteps(profile: RunProfile) -> Figure | None:
    """The supersteps with the most cycles, each split into compute (slowest tile), exchange and sync."""
    tiled = profile.tiled
    if tiled is None or not tiled.spans:
        return None
    longest = sorted(tiled.spans, key=lambda span: -span.cycles)[:LONGEST]
    rows = [_milliseconds(tiled, [span]) for span in longest]
    figure, (axes,) = panels(height=1.3 + 0.36 * len(rows))
    notes = [
        f"{milliseconds(tiled.seconds(span.cycles))} ms · {thousands(span.times)}×{_waited_for(span)}"
        for span in longest
    ]
    stacked_bars(axes, rows, PART_NAMES[:3], PART_COLOURS[:3], notes)
    axes.set_yticks(range(len(rows)), [f"{clipped(span.name, 30)} ({clipped(span.phase, 10)})" for span in longest])
    many = thousands(len(tiled.spans))
    heading(figure, f"The {len(rows)} longest of {many} supersteps: total · executions · slowest tile")
    axes.set_xlabel("milliseconds per training step, all executions together")
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return figure


def _waited_for(span: Span) -> str:
    """The tile that takes longest: to compute, or where nothing is computed to exchange."""
    tile = span.slowest_tile if span.compute_cycles else span.exchange_tile
    return f" · tile {thousands(tile)}" if tile >= 0 else ""


def _milliseconds(tiled: TiledProfile, spans: list[Span]) -> tuple[float, float, float]:
    """Milliseconds of compute, exchange and sync of some spans together."""
    compute = sum(span.compute_cycles for span in spans)
    exchange = sum(span.exchange_cycles for span in spans)
    sync = sum(span.sync_cycles for span in spans)
    return 1e3 * tiled.seconds(compute), 1e3 * tiled.seconds(exchange), 1e3 * tiled.seconds(sync)
