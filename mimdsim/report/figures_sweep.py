"""The figure of a sweep: milliseconds per training step and memory against the first swept field."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from mimdsim.base.units import dimension, parse_quantity
from mimdsim.report.formatting import INK, LAYER_COLOURS, VERMILION, clipped, field_value, field_values
from mimdsim.report.style import panels, styled

T = TypeVar("T")
Row = dict[str, Any]
WIDE = 8  # times from the least to the largest value: a logarithmic axis from there on
CHARACTERS = 56  # below a panel
WIDTH, HEIGHT, LEGEND_LINE = 14.5, 4.2, 0.23  # inches


@dataclass(frozen=True, kw_only=True)
class SweptAxis:
    """places: the position of each value of the field; names: what stands there. numbers: whether positions are the
    values themselves (in the base unit if given with units), or consecutive as for names."""

    key: str
    places: dict[str, float]
    names: dict[str, str]
    numbers: bool

    def at(self, row: Row) -> float:
        return self.places[str(row[self.key])]

    def ascending(self, rows: Iterable[Row]) -> list[Row]:
        """Rows in the order of the axis, so that a line never runs backwards, whatever the order of the given
        values."""
        return sorted(rows, key=self.at)

    def draw(self, panel: Axes) -> None:
        """Scale, ticks and name of the panel's x axis."""
        panel.set_xlabel(self.key)
        places = sorted(self.places.values())
        wide = self.numbers and len(places) > 2 and places[0] > 0 and places[-1] / places[0] > WIDE
        if wide:
            panel.set_xscale("log")
        units = self.numbers and any(name != value or not _plain(name) for value, name in self.names.items())
        if wide or units or not self.numbers:
            label_ticks(
                panel, places, [self.names[value] for value in sorted(self.places, key=self.places.__getitem__)]
            )


def label_ticks(panel: Axes, places: Sequence[float], names: Sequence[str], **look: Any) -> None:
    """Ticks at ascending places with those names that have room below the panel: the ends, and from left to right what
    reaches into no other."""
    names = [clipped(name, CHARACTERS // 2 - 2) for name in names]
    at = np.log(places) if panel.get_xscale() == "log" else np.asarray(places)
    half = np.array([len(name) + 2 for name in names]) / CHARACTERS / 2 * (at[-1] - at[0])
    some = [0]
    for place in range(1, len(names)):
        last = place == len(names) - 1
        while last and len(some) > 1 and at[some[-1]] + half[some[-1]] > at[-1] - half[-1]:
            some.pop()
        if last or at[place] - half[place] >= at[some[-1]] + half[some[-1]]:
            some.append(place)
    panel.set_xticks([places[place] for place in some], [names[place] for place in some], **look)
    panel.minorticks_off()


def swept_axis(key: str, rows: Iterable[Row]) -> SweptAxis:
    """The axis of the field `key` over the values that rows have."""
    values = list(dict.fromkeys(str(row[key]) for row in rows))
    given = {str(row[key]): row[key] for row in rows}
    names = dict(zip(values, field_values(key, [given[value] for value in values]), strict=True))
    found = [number_of(given[value], key) for value in values]
    numbers = [number for number in found if number is not None]
    whole = len(numbers) == len(values)
    places = dict(zip(values, numbers if whole else map(float, range(len(values))), strict=True))
    return SweptAxis(key=key, names=names, places=places, numbers=whole)


def number_of(value: Any, key: str) -> float | None:
    """A number in the base unit of its field; None for names, lists and booleans."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value)
    field = key.rsplit(".", 1)[-1]
    if isinstance(value, str) and dimension(field):
        try:
            return parse_quantity(value, field)
        except ValueError:
            return None
    return None


def _plain(value: str) -> bool:
    """Whether it was written without a unit."""
    try:
        float(value)
    except ValueError:
        return False
    return True


MAX_LINES = 12
LEGEND_CHARACTERS = 190  # in a line below the panels
DASHES = ("solid", (0, (6, 3)), (4, (2, 3)))  # used in turn: overlapping lines show through the gaps


@styled
def draw_sweep(rows: Sequence[Row], axes: Sequence[str]) -> Figure | None:
    """Three panels over the values of `axes[0]`; one line per combination of the others. None without rows or axes.

    Hollow marks: points that do not fit tile memory; values without tiles are left out. Dashes take
    turns and marks get smaller, so that overlapping lines all remain visible. Of many lines some are drawn, from the
    first to the last, and the legend says so.
    """
    timed = [row for row in rows if row["ms_per_training_step"] is not None]
    if not timed or not axes:
        return None
    axis = swept_axis(axes[0], timed)
    figure, (speed, ratio, memory) = panels(1, 3, width=WIDTH, height=HEIGHT)
    drawn, few = _combinations(timed, axes[1:], MAX_LINES)
    for index, (label, line) in enumerate(drawn):
        colour = LAYER_COLOURS[index % len(LAYER_COLOURS)]
        look = {"color": colour, "linestyle": DASHES[index % len(DASHES)], "label": label or None}
        size = 4 + 4 * (1 - index / len(drawn))
        line = axis.ascending(line)
        x = [axis.at(row) for row in line]
        for panel, middle, low, high in (
            (speed, "ms_per_training_step", "ms_low", "ms_high"),
            (ratio, "ratio", "ratio_low", "ratio_high"),
        ):
            bounds = [_or_nan(row[low]) for row in line], [_or_nan(row[high]) for row in line]
            panel.fill_between(x, *bounds, color=colour, alpha=0.13, linewidth=0)
            _line(panel, x, [_or_nan(row[middle]) for row in line], line, size, **look)
        _line(memory, x, [row["peak_bytes"] / 1024 for row in line], line, size, **look)
    limits = sorted({row["limit_bytes"] / 1024 for row in timed})
    if len(limits) == 1:
        memory.axhline(limits[0], color=VERMILION, linewidth=1.2, linestyle="--")
        memory.text(0.01, limits[0], " limit", color=VERMILION, va="bottom", transform=memory.get_yaxis_transform())
    for panel, title, label in (
        (speed, "Time", "ms per training step (band: interval)"),
        (ratio, "Time relative to the first point", "times the first point's (band: interval)"),
        (memory, "Memory", "KiB on the fullest tile (hollow: does not fit)"),
    ):
        axis.draw(panel)
        panel.grid(True)
        panel.set(title=title, ylabel=label, ylim=(0, 1.08 * panel.get_ylim()[1]))
    ratio.axhline(1, color="black", linewidth=0.8)
    if axes[1:]:
        handles, labels = speed.get_legend_handles_labels()
        columns = max(1, min(4, len(drawn), LEGEND_CHARACTERS // (max(map(len, labels)) + 8)))
        figure.legend(handles, labels, loc="outside lower center", ncols=columns, title=few or None)
        figure.set_size_inches(WIDTH, HEIGHT + LEGEND_LINE * (-(-len(labels) // columns) - 1))
    return figure


def _or_nan(value: float | None) -> float:
    """What is not drawn where there is no value."""
    return float("nan") if value is None else value


def _combinations(rows: Sequence[Row], others: Sequence[str], most: int) -> tuple[list[tuple[str, list[Row]]], str]:
    """Rows by the combination of their other axes, which is named; of many at most so many, and what is said then."""
    lines: dict[str, list[Row]] = {}
    for row in rows:
        lines.setdefault(", ".join(f"{key} = {field_value(key, row[key])}" for key in others), []).append(row)
    drawn = evenly(list(lines.items()), most)
    return drawn, f"{len(drawn)} of {len(lines):,} combinations are drawn" if len(drawn) < len(lines) else ""


def evenly(found: Sequence[T], most: int) -> list[T]:
    """At most so many, the first and the last among them."""
    if len(found) <= most:
        return list(found)
    return [found[round(place * (len(found) - 1) / (most - 1))] for place in range(most)]


def _line(panel: Axes, x: list[float], values: list[float], rows: list[Row], size: float, **look: Any) -> None:
    """A line with a mark for each point, hollow where it does not fit."""
    panel.plot(x, values, linewidth=1.6, **look)
    for at, value, row in zip(x, values, rows, strict=True):
        face = look["color"] if row["fits"] else "white"
        panel.plot([at], [value], marker="o", color=look["color"], markerfacecolor=face, markersize=size)


# abstract of arXiv 2311.04386, of its own networks and as published: for orientation next to any other
CLAIMED = ((5.0, 10.0), "claimed for published networks on an A100: 5 to 10 times")
CLAIMED_MOST = (38.0, "claimed at higher sparsity: 38 times")
MAX_PANELS = 6
TITLE_CHARACTERS, LARGE_TITLE = 56, 40


@styled
def draw_crossover(rows: Sequence[Row], axes: Sequence[str], gpus: Sequence[str]) -> Figure | None:
    """GPU over tiled milliseconds along the values of `axes[0]`, one panel per combination of the other axes.

    Solid: the strongest strategy that fits, with the interval from opposite ends of both; dashed: as published.
    Above 1 the tiled machine is faster. Points that do not fit the tiled machine are hollow. None without GPUs.
    """
    timed = [row for row in rows if row["ms_per_training_step"] is not None]
    if not timed or not axes or not gpus:
        return None
    shown, few = _combinations(timed, axes[1:], MAX_PANELS)
    figure, made = panels(1, len(shown), width=3.0 + 4.2 * len(shown), height=4.6)
    for panel, (label, line) in zip(made, shown, strict=True):
        axis = swept_axis(axes[0], line)
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
    figure.legend(*made[0].get_legend_handles_labels(), loc="outside lower center", ncols=2, title=few or None)
    return figure


def _draw_gpu(panel: Axes, x: list[Any], line: list[Row], gpu: str, colour: str) -> None:
    known = [(at, row) for at, row in zip(x, line, strict=True) if row[f"{gpu} strongest_ms"]]
    if known:
        places, fitting = [at for at, _ in known], [row for _, row in known]
        ratio = [row[f"{gpu} strongest_ms"] / row["ms_per_training_step"] for row in fitting]
        low = [row[f"{gpu} strongest_low_ms"] / row["ms_high"] for row in fitting]
        high = [row[f"{gpu} strongest_high_ms"] / max(row["ms_low"], 1e-9) for row in fitting]
        panel.plot(places, ratio, color=colour, linewidth=1.6, label=f"{gpu}, strongest strategy")
        panel.fill_between(places, low, high, color=colour, alpha=0.14, linewidth=0)
        for at, value, row in zip(places, ratio, fitting, strict=True):
            panel.plot([at], [value], "o", color=colour, markerfacecolor=colour if row["fits"] else "white")
    known = [(at, row) for at, row in zip(x, line, strict=True) if row[f"{gpu} published_ms"]]
    if known:
        ratio = [row[f"{gpu} published_ms"] / row["ms_per_training_step"] for _, row in known]
        panel.plot([at for at, _ in known], ratio, color=colour, linestyle="--", label=f"{gpu}, as published")
