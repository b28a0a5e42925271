"""The figure of a study's axes: how a metric goes along each of them, whatever the others are."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib.style
import numpy as np
from matplotlib.figure import Figure

from mimdsim.base.units import counted
from mimdsim.report.colours import BLUE
from mimdsim.report.formatting import clipped, field_value, quantity
from mimdsim.report.style import STYLE, panels
from mimdsim.report.swept_axis import WIDE, number_of

MOST_AXES = 9
MOST_VALUES = 14  # of an axis; more are put together in bins of as many points each
BINS = 10
LABEL_ROOM = 0.24  # share of the axis
BAND = (10, 90)  # percentiles


@dataclass(frozen=True, kw_only=True)
class Step:
    """A value or a bin of an axis: where it is drawn, its name, and the percentiles 10, 50 and 90 of the metric."""

    place: float
    name: str
    low: float
    middle: float
    high: float


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
    with matplotlib.style.context(STYLE, after_reset=True):
        figure, made = panels(rows, columns, width=0.6 + 4.3 * columns, height=0.4 + 3.0 * rows, sharey=True)
        for panel, name in zip(made, drawn, strict=False):
            steps = found[name]
            x = [step.place for step in steps]
            panel.fill_between(
                x, [step.low for step in steps], [step.high for step in steps], color=BLUE, alpha=0.16, linewidth=0
            )
            panel.plot(x, [step.middle for step in steps], "o-", color=BLUE, linewidth=1.6, markersize=4)
            if x[0] > 0 and x[-1] / x[0] > WIDE:
                panel.set_xscale("log")
                panel.minorticks_off()
            some = _apart(steps, logarithmic=panel.get_xscale() == "log")
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
        "what does not fit or breaks a constraint counts too; doubts are left out",
        f"of axes with more than {MOST_VALUES} values, numbers are put together in {BINS} bins and names left out"
        if long
        else "",
        f"{counted(less, 'axis', 'axes')} with smaller effects {'is' if less == 1 else 'are'} left out" if less else "",
        f"{counted(out, 'point')} without this metric {'is' if out == 1 else 'are'} left out" if out else "",
    ]
    return figure, "; ".join(each for each in said if each) + "."


def _apart(steps: Sequence[Step], logarithmic: bool) -> list[Step]:
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
    percentiles = [np.percentile(values[some], (BAND[0], 50, BAND[1])) for _, _, some in groups]
    return [
        Step(place=place, name=words_of, low=float(low), middle=float(middle), high=float(high))
        for (words_of, place, _), (low, middle, high) in zip(groups, percentiles, strict=True)
    ]


def _effect(steps: Sequence[Step]) -> float:
    """The largest median over the least."""
    middles = [step.middle for step in steps]
    return max(middles) / min(middles) if min(middles) > 0 else float("inf") if max(middles) > 0 else 1.0
