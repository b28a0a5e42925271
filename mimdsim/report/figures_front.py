"""Figures of a study's answer: the front of its metrics with probabilities, or the best points in one metric."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from mimdsim.base.units import counted
from mimdsim.report.colours import BLUE, GREY, INK, ORANGE
from mimdsim.report.formatting import chance, clipped
from mimdsim.report.style import LABEL_BOX, panels, styled

MOST_MARKED = 20  # points on the front with whiskers
MOST_LABELLED = 6
MOST_PANELS = 3
MOST_RANKED = 20
WIDE = 12  # times from the least to the largest: a logarithmic axis


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
        if low > 0 and high / low > WIDE:
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
    panel.set_yticks(range(len(order)), [clipped(found.names[at], 78) for at in order], fontsize=8.5)
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
