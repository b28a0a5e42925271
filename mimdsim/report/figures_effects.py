"""The figure of a study's axes: how a metric goes along each of them, whatever the others are."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from mimdsim.base.units import counted
from mimdsim.report.colours import BLUE, GREY, INK, ORANGE, PALE
from mimdsim.report.figures_sweep import WIDE, number_of
from mimdsim.report.formatting import clipped, field_value, percent_of, quantity
from mimdsim.report.style import heading, panels, plain_axis, styled

MOST_AXES = 9
MOST_VALUES = 14  # of an axis; more are put together in bins of as many points each
BINS = 10
LABEL_ROOM = 0.24  # share of the axis
BAND = (10, 90)  # percentiles


class Step(NamedTuple):
    """A value or a bin of an axis: where it is drawn, its name, and the percentiles 10, 50 and 90 of the metric."""

    place: float
    name: str
    low: float
    middle: float
    high: float


@styled
def draw_effects(axes: Mapping[str, Sequence[Any]], values: np.ndarray, label: str) -> tuple[Figure, str] | None:
    """Median and band of `values`, float64[points], along every axis, given by name as a value for each point; the axes
    that change the median most come first. None without axes that vary."""
    known = np.flatnonzero(np.isfinite(values))
    found = {name: steps_of(name, [given[at] for at in known.tolist()], values[known]) for name, given in axes.items()}
    found = {name: steps for name, steps in found.items() if len(steps) > 1}
    if not found:
        return None
    order = sorted(found, key=lambda name: -_effect(found[name]))
    drawn = order[:MOST_AXES]
    columns = min(3, len(drawn))
    rows = -(-len(drawn) // columns)
    figure, made = panels(rows, columns, width=0.6 + 4.3 * columns, height=0.4 + 3.0 * rows, sharey=True)
    for panel, name in zip(made, drawn, strict=False):
        steps = found[name]
        x, _, low, middle, high = zip(*steps, strict=True)
        panel.fill_between(x, low, high, color=BLUE, alpha=0.16, linewidth=0)
        panel.plot(x, middle, "o-", color=BLUE, linewidth=1.6, markersize=4)
        if x[0] > 0 and x[-1] / x[0] > WIDE:
            panel.set_xscale("log")
            panel.minorticks_off()
        some = _labels_with_room(steps, logarithmic=panel.get_xscale() == "log")
        panel.set_xticks([step.place for step in some], [clipped(step.name, 14) for step in some], fontsize=8)
        panel.set_title(f"{name}: {_effect(steps):.3g} times", fontsize=10)
        panel.grid(True)
    for panel in made[len(drawn) :]:
        panel.set_visible(False)
    for panel in made[::columns]:
        panel.set_ylabel(label)
    out, long = len(values) - len(known), any(len(set(map(str, axes[name]))) > MOST_VALUES for name in drawn)
    less = len(order) - len(drawn)
    said = [
        f"Line: median of all points at a value, band: the middle {BAND[1] - BAND[0]} % of them, as the other fields "
        "differ; title: the largest median over the least",
        "what breaks a constraint counts too; doubts are left out",
        f"of axes with more than {MOST_VALUES} values, numbers are put together in {BINS} bins and names left out"
        if long
        else "",
        f"{counted(less, 'axis', 'axes')} with smaller effects {'is' if less == 1 else 'are'} left out" if less else "",
        f"{counted(out, 'point')} without this metric {'is' if out == 1 else 'are'} left out" if out else "",
    ]
    return figure, "; ".join(each for each in said if each) + "."


def _labels_with_room(steps: Sequence[Step], logarithmic: bool) -> list[Step]:
    """The steps whose names have room below the axis: the ends, and from left to right what keeps its distance."""
    places = [math.log(step.place) if logarithmic else step.place for step in steps]
    room = LABEL_ROOM * (places[-1] - places[0])
    some, last = [steps[0]], places[0]
    for step, place in zip(steps[1:-1], places[1:-1], strict=True):
        if place - last >= room and places[-1] - place >= room:
            some.append(step)
            last = place
    return [*some, steps[-1]]


def steps_of(name: str, given: Sequence[Any], values: np.ndarray) -> list[Step]:
    """Percentiles of float64[points] at every value of an axis in ascending order; bins of a long axis of numbers."""
    found = [number_of(value, name) for value in given]
    numbers = [number for number in found if number is not None]
    keys: list[Any] = numbers if len(numbers) == len(given) else list(map(str, given))
    of_key: dict[Any, list[int]] = {}
    for at, key in enumerate(keys):
        of_key.setdefault(key, []).append(at)
    if keys is not numbers:
        some = list(of_key.items())[:MOST_VALUES]
        groups = [(field_value(name, given[each[0]]), float(at), each) for at, (_, each) in enumerate(some)]
    elif len(of_key) <= MOST_VALUES:
        groups = [(field_value(name, given[each[0]]), key, each) for key, each in sorted(of_key.items())]
    else:
        bins = np.array_split(np.argsort(numbers, kind="stable"), BINS)
        middles = [float(np.median([numbers[at] for at in each])) for each in bins]
        shown = [quantity(name.rsplit(".", 1)[-1], *[middle] * 3) for middle in middles]
        groups = [(word, middle, each.tolist()) for word, middle, each in zip(shown, middles, bins, strict=True)]
    percentiles = (BAND[0], 50, BAND[1])
    return [Step(place, word, *np.percentile(values[some], percentiles).tolist()) for word, place, some in groups]


def _effect(steps: Sequence[Step]) -> float:
    """The largest median over the least."""
    middles = [step.middle for step in steps]
    return max(middles) / min(middles) if min(middles) > 0 else float("inf") if max(middles) > 0 else 1.0


MOST_BARS = 20
LONGEST_NAME = 48
LEAST_SHARE = 0.005  # of the longest bar; shorter ones cannot be seen
BOTH_SIGNS = 0.98  # share of its size that the mean has at most where effects visibly have both signs
NEITHER = "#BDBDBD"


@styled
def draw_tornado(rows: Sequence[dict[str, Any]], *, title: str, of: str) -> Figure | None:
    """One bar per field, from zero to its mean effect; whiskers: a standard deviation to each side.

    rows: axis, ends (low and high, as text), mean (with sign; None: the field has no direction), size (mean of the
    sizes), spread, first_order and total (index and half-width, or None), largest first; effects in percent. An outline
    reaches as far as the mean size where effects have both signs, to both sides where a field has no direction. The
    second panel has the shares of the variance, if there are any. of: what the effects are percent of. None if no
    field has an effect.
    """
    drawn = [row for row in rows if row["size"] > 0][:MOST_BARS]
    if not drawn:
        return None
    visible = [row for row in drawn if row["size"] >= LEAST_SHARE * drawn[0]["size"]]
    shares = any(row["total"] for row in visible)
    height, width = 2.1 + 0.42 * len(visible), 12.0 if shares else 9.6
    ratios = [2, 1] if shares else [1]
    figure, axes = panels(1, len(ratios), width=width, height=height, sharey=True, width_ratios=ratios)
    looks = _effects(axes[0], visible, of) + (_shares(axes[1], visible) if shares else [])
    for panel in axes:
        panel.tick_params(axis="y", length=0)
        panel.grid(axis="x")
    heading(figure, title)
    figure.legend(handles=looks, loc="outside lower center", ncols=4)
    axes[0].set_title(_omissions(rows[len(visible) :]), fontsize=8.5, fontweight="normal")
    return figure


def _effects(panel: Axes, rows: Sequence[dict[str, Any]], of: str) -> list[Any]:
    """Draws the bars; returns what the legend says of them."""
    for height, row in enumerate(rows):
        mean, size = row["mean"], row["size"]
        if mean is None:
            panel.barh(height, 2 * size, left=-size, height=0.62, color=NEITHER, edgecolor=GREY)
            sign, edge = "±", size
        else:
            direction = 1 if mean > 0 else -1
            panel.barh(height, direction * size, height=0.62, color="none", edgecolor=GREY)
            panel.barh(height, mean, height=0.62, color=ORANGE if mean > 0 else BLUE)
            panel.errorbar(mean, height, xerr=row["spread"], color=INK, linewidth=1.0, capsize=3)
            sign, edge = "+" if mean > 0 else "−", direction * max(size, abs(mean) + row["spread"])
        note, side = f"{sign}{percent_of(size if mean is None else abs(mean))}", "left" if edge >= 0 else "right"
        moved = (4 if edge >= 0 else -4, 0)
        panel.annotate(note, (edge, height), moved, textcoords="offset points", va="center", ha=side, fontsize=9)
    panel.axvline(0, color=INK, linewidth=0.8)
    names = ((row["axis"], " to ".join(row["ends"])) for row in rows)
    panel.set_yticks(range(len(rows)), ["\n".join(clipped(each, LONGEST_NAME) for each in pair) for pair in names])
    panel.set(xlabel=f"change from the first to the last value, % of {of}", ylim=(len(rows) - 0.4, -0.6))
    panel.margins(x=0.16)
    plain_axis(panel.xaxis)
    looks: list[Any] = [Patch(color=BLUE, label="falls"), Patch(color=ORANGE, label="rises")]
    if any(row["mean"] is not None and abs(row["mean"]) < BOTH_SIGNS * row["size"] for row in rows):
        looks.append(Patch(facecolor="white", edgecolor=GREY, label="falls here, rises there: mean size"))
    if any(row["mean"] is None for row in rows):
        looks.append(Patch(facecolor=NEITHER, edgecolor=GREY, label="has no direction: mean size"))
    looks.append(Line2D([], [], color=INK, linewidth=1.0, marker="|", label="standard deviation of the effects"))
    return looks


def _shares(panel: Axes, rows: Sequence[dict[str, Any]]) -> list[Any]:
    for height, row in enumerate(rows):
        if row["total"] is None:
            panel.text(0.01, height, "at its base value", color=GREY, va="center", fontsize=8.5)
            continue
        (first, first_width), (total, total_width) = row["first_order"], row["total"]
        panel.barh(height, total, height=0.62, color=PALE, edgecolor=GREY)
        panel.errorbar(total, height - 0.15, xerr=total_width, color=GREY, linewidth=1.0, capsize=3)
        panel.errorbar(first, height + 0.15, xerr=first_width, color=INK, marker="o", markersize=5, capsize=3)
    left, right = panel.get_xlim()
    panel.set(xlabel="share of the variance (95 % intervals)", xlim=(min(0.0, left), max(1.0, right)))
    return [
        Patch(facecolor=PALE, edgecolor=GREY, label="variance with its interactions"),
        Line2D([], [], color=INK, marker="o", markersize=5, label="variance alone"),
    ]


def _omissions(rest: Sequence[dict[str, Any]]) -> str:
    """What is not drawn, and how large it is at most."""
    if not rest:
        return ""
    largest = max(row["size"] for row in rest)
    size = f"at most {percent_of(largest)} each" if largest else "no effect"
    names = ", ".join(row["axis"] for row in rest[:2])
    more = f" and {len(rest) - 2} more" if len(rest) > 2 else ""
    return f"Not drawn, {size}: {names}{more}"
