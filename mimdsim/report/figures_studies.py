"""Figures of a study: the front of its metrics with probabilities, or the best points in one metric; its axes."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from mimdsim.base.units import counted
from mimdsim.report.figures_sweep import WIDE, label_ticks, number_of
from mimdsim.report.formatting import (
    BLUE,
    GREY,
    INK,
    ORANGE,
    PALE,
    chance,
    clipped,
    field_values,
    percent_of,
    plain,
    quantity,
)
from mimdsim.report.style import LABEL_BOX, heading, panels, plain_axis, styled

MOST_MARKED = 20  # points on the front with whiskers
MOST_LABELLED = 6
MOST_PANELS = 3
MOST_RANKED = 20
WIDE_FRONT = 12  # times from the least to the largest: a logarithmic axis


@dataclass(frozen=True, kw_only=True, eq=False)
class Measure:
    """A metric of all points. label: with its unit; better: "less" or "more" of it; middle, low, high: float64[points],
    nan where unknown."""

    name: str
    label: str
    better: str
    middle: np.ndarray
    low: np.ndarray
    high: np.ndarray


@dataclass(frozen=True, kw_only=True, eq=False)
class Judgement:
    """Points as the figures show them. names: what is varied; kept: bool[points], within memory and constraints; share:
    float64[points], the probability of being on the front, or the best in the only metric; best: the answer, or -1."""

    measures: tuple[Measure, ...]
    names: tuple[str, ...]
    kept: np.ndarray
    share: np.ndarray
    best: int


@styled
def draw_front(found: Judgement) -> tuple[Figure, str] | None:
    """The first metric over every other one, and what the figure shows and leaves out; None with one metric only."""
    others = found.measures[1 : 1 + MOST_PANELS]
    first = found.measures[0] if found.measures else None
    if first is None or not others or np.isnan(first.middle).all():
        return None
    on = [int(at) for at in np.argsort(-found.share, kind="stable") if found.share[at] >= 0.05]
    unlabelled = False
    figure, made = panels(1, len(others), width=1.5 + 5.4 * len(others), height=5.0)
    for panel, other in zip(made, others, strict=True):
        _draw_all(panel, found, first, other)
        for at in on[:MOST_MARKED]:
            _draw_likely(panel, found, first, other, at)
        unlabelled |= _label_likely(panel, found, first, other, on) < len(on)
        _set_limits(panel, first, other)
    figure.legend(*made[0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    unknown = int(np.isnan([measure.middle for measure in found.measures]).any(axis=0).sum())
    said = [
        f"{first.name} over {', '.join(other.name for other in others)}; better is "
        + ", ".join(f"{measure.better} {measure.name}" for measure in (first, *others)),
        "percentages: the probability of being on the front of all metrics",
        "whiskers: the interval of a point alone; points share most of their doubts and move together, which the "
        "percentages take into account and the whiskers cannot show",
    ]
    more = len(on) - MOST_MARKED
    if more > 0:
        less = counted(more, "less likely point of the front is", "less likely points of the front are")
        said.append(f"{less} drawn without whiskers")
    if unlabelled:
        said.append("percentages that would lie on others are left out")
    if unknown:
        of_points = counted(unknown, "point without these metrics is", "points without these metrics are")
        said.append(f"{of_points} left out")
    if len(found.measures) - 1 > MOST_PANELS:
        said.append(f"not drawn: {', '.join(measure.name for measure in found.measures[1 + MOST_PANELS :])}")
    return figure, "; ".join([*said, "whiskers may reach beyond the axes"]) + "."


def _draw_all(panel: Axes, found: Judgement, first: Measure, other: Measure) -> None:
    for kept, face, label in ((True, GREY, "within memory and constraints"), (False, "none", "not within")):
        some = found.kept == kept
        if some.any():
            panel.scatter(
                other.middle[some], first.middle[some], s=16, facecolors=face, edgecolors=GREY, linewidths=0.7,
                alpha=0.75, label=label,
            )  # fmt: skip
    panel.set(xlabel=other.label, ylabel=first.label)
    panel.grid(True)


def _draw_likely(panel: Axes, found: Judgement, first: Measure, other: Measure, at: int) -> None:
    x, y = other.middle[at], first.middle[at]
    colour = ORANGE if at == found.best else BLUE
    reach = [[[x - other.low[at]], [other.high[at] - x]], [[y - first.low[at]], [first.high[at] - y]]]
    panel.errorbar(x, y, xerr=reach[0], yerr=reach[1], color=colour, alpha=0.35, linewidth=1, capsize=2)
    label = "the answer" if at == found.best else None
    panel.plot([x], [y], "o", color=colour, markersize=4 + 4 * found.share[at], linestyle="none", label=label)


def _label_likely(panel: Axes, found: Judgement, first: Measure, other: Measure, on: Sequence[int]) -> int:
    """Percentages of points that are far enough from each other to be read; how many these are."""
    shown: list[tuple[float, float]] = []
    span = [np.nanmax(measure.middle) - np.nanmin(measure.middle) for measure in (other, first)]
    for at in sorted(on, key=lambda at: (at != found.best, -found.share[at])):
        place = (other.middle[at] / (span[0] or 1), first.middle[at] / (span[1] or 1))
        if len(shown) < MOST_LABELLED and all(abs(place[0] - x) > 0.14 or abs(place[1] - y) > 0.07 for x, y in shown):
            shown.append(place)
            words, where = chance(float(found.share[at])), (other.middle[at], first.middle[at])
            look: dict[str, Any] = {"fontsize": 8.5, "color": INK, "bbox": LABEL_BOX}
            panel.annotate(words, where, (7, 7), textcoords="offset points", **look)
    return len(shown)


def _set_limits(panel: Axes, first: Measure, other: Measure) -> None:
    """Room for the points rather than for the whiskers; logarithmic where the points are far from each other."""
    for values, scale, limits in (
        (other.middle, panel.set_xscale, panel.set_xlim),
        (first.middle, panel.set_yscale, panel.set_ylim),
    ):
        known = values[np.isfinite(values)]
        low, high = float(known.min()), float(known.max())
        if low > 0 and high / low > WIDE_FRONT:
            scale("log")
            limits(low / 1.3, high * 1.3)
        else:
            room = 0.12 * (high - low) or 0.1 * abs(high) or 1
            limits(low - room, high + room)


@styled
def draw_ranking(found: Judgement) -> tuple[Figure, str] | None:
    """The best points in the first metric with interval and probability; None if no point is kept."""
    if not found.measures or not found.kept.any():
        return None
    first = found.measures[0]
    places = np.flatnonzero(found.kept & np.isfinite(first.middle))
    order = places[np.argsort(np.abs(first.middle[places] - first.middle[found.best]), kind="stable")][:MOST_RANKED]
    figure, (panel,) = panels(height=1.2 + 0.3 * len(order))
    for height, at in enumerate(map(int, order)):
        middle = first.middle[at]
        reach = [[middle - first.low[at]], [first.high[at] - middle]]
        colour = ORANGE if at == found.best else BLUE
        panel.errorbar(middle, height, xerr=reach, fmt="o", color=colour, capsize=3, linewidth=1.2)
        share = chance(float(found.share[at]))
        panel.text(1.01, height, share, va="center", transform=panel.get_yaxis_transform())
    names = (textwrap.wrap(plain(found.names[at]), 78, max_lines=2, placeholder="..") for at in order)
    panel.set_yticks(range(len(order)), ["\n".join(lines) for lines in names], fontsize=8.5)
    panel.invert_yaxis()
    panel.set_xlabel(f"{first.label} (whiskers: interval; right: probability of being the best)")
    panel.grid(axis="x")
    left, out = len(places) - len(order), int((~found.kept).sum())
    fails = "point that does not fit, breaks a constraint or has no result is"
    fail = "points that do not fit, break a constraint or have no result are"
    said = [
        "points share most of their doubts and move together: the percentages take that into account, the whiskers "
        "cannot show it",
        f"{counted(left, 'worse point is', 'worse points are')} left out" if left else "",
        f"{counted(out, fails, fail)} left out" if out else "",
    ]
    return figure, "The best points; " + "; ".join(each for each in said if each) + "."


# ---- the figure of a study's axes: how a metric goes along each of them, whatever the others are


MOST_AXES = 9
MOST_VALUES = 14  # of an axis; more are put together in bins of as many points each
BINS = 10
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
        x, names, low, middle, high = zip(*steps, strict=True)
        panel.fill_between(x, low, high, color=BLUE, alpha=0.16, linewidth=0)
        panel.plot(x, middle, "o-", color=BLUE, linewidth=1.6, markersize=4)
        if x[0] > 0 and x[-1] / x[0] > WIDE:
            panel.set_xscale("log")
        label_ticks(panel, x, names, fontsize=8)
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


def steps_of(name: str, given: Sequence[Any], values: np.ndarray) -> list[Step]:
    """Percentiles of float64[points] at every value of an axis in ascending order; bins of a long axis of numbers."""
    found = [number_of(value, name) for value in given]
    numbers = [number for number in found if number is not None]
    keys: list[Any] = numbers if len(numbers) == len(given) else list(map(str, given))
    of_key, words = dict[Any, list[int]](), field_values(name, given)
    for at, key in enumerate(keys):
        of_key.setdefault(key, []).append(at)
    if keys is not numbers:
        some = list(of_key.items())[:MOST_VALUES]
        groups = [(words[each[0]], float(at), each) for at, (_, each) in enumerate(some)]
    elif len(of_key) <= MOST_VALUES:
        groups = [(words[each[0]], key, each) for key, each in sorted(of_key.items())]
    else:
        bins = np.array_split(np.argsort(numbers, kind="stable"), BINS)
        middles = [float(np.median([numbers[at] for at in each])) for each in bins]
        shown = [quantity(name.rsplit(".", 1)[-1], *[middle] * 3, beside=middles) for middle in middles]
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
