"""Figures derived from several published runs of one log: means, slopes, and the program with the other state gradient.

A configuration is a network with its capacities, run once per second threshold. Runs of it differ by chance more than
by the threshold, so their mean is the better figure; in slopes between configurations whatever they share cancels.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any

SLOPE_TOLERANCE = 0.20
SECOND = "ms_keras"
ONE_END = "interval: both ends with empty lists, both with full lists"
NOTHING_PUBLISHED = "nothing published"


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """Milliseconds of a training step and the interval around them."""

    middle: float
    low: float
    high: float

    def columns(self) -> dict[str, float]:
        """The columns of a row, rounded to what is printed in JSON."""
        return {"predicted": round(self.middle, 4), "low": round(self.low, 4), "high": round(self.high, 4)}


@dataclass(frozen=True, kw_only=True)
class Run:
    """One run: the cells hidden, dense, sparse, batch and T, largest activity, milliseconds by two clocks."""

    configuration: tuple[str, ...]
    activity: float | None
    total: float
    keras: float | None
    predicted: Prediction

    @property
    def title(self) -> str:
        hidden, dense, sparse = self.configuration[:3]
        return f"{hidden} hidden, {sparse} of {dense}"

    def second(self) -> dict[str, Any]:
        """Columns of the second published value."""
        return _second(self.keras)


@dataclass(frozen=True, kw_only=True)
class Configuration:
    """The runs of one configuration, which differ in the second threshold alone."""

    runs: tuple[Run, ...]

    @property
    def predicted(self) -> Prediction:
        """Means over the runs."""
        return _mean([run.predicted for run in self.runs])

    @property
    def total(self) -> float:
        return fmean(run.total for run in self.runs)

    @property
    def keras(self) -> float | None:
        times = [run.keras for run in self.runs if run.keras is not None]
        return fmean(times) if len(times) == len(self.runs) else None

    @property
    def spread(self) -> float:
        """Standard deviation of the published totals over their mean; 0 for one run."""
        return stdev(run.total for run in self.runs) / self.total if len(self.runs) > 1 else 0.0

    @property
    def noise(self) -> float | None:
        """Standard error of the mean total, milliseconds; None for one run."""
        return self.spread * self.total / math.sqrt(len(self.runs)) if len(self.runs) > 1 else None

    @property
    def activity(self) -> float | None:
        return self.runs[0].activity

    @property
    def hidden(self) -> str:
        return self.runs[0].configuration[0]

    @property
    def networks(self) -> tuple[str, ...]:
        """What configurations share whose capacities are compared: all cells but the capacities."""
        hidden, dense, _, batch, timesteps = self.runs[0].configuration
        return hidden, dense, batch, timesteps

    @property
    def task(self) -> tuple[Any, ...]:
        """What configurations share whose widths are compared: input, batch, timesteps and largest activity."""
        _, dense, _, batch, timesteps = self.runs[0].configuration
        return dense.split("-")[0], batch, timesteps, self.activity

    @property
    def width(self) -> int:
        return int(self.runs[0].configuration[1].split("-")[1])

    @property
    def capacity(self) -> int:
        return int(self.runs[0].configuration[2].split("-")[1])


def configurations(runs: list[Run]) -> list[Configuration]:
    """The runs of every configuration together, in the order of the file."""
    names = dict.fromkeys(run.configuration for run in runs)
    return [Configuration(runs=tuple(run for run in runs if run.configuration == name)) for name in names]


def mean_rows(runs: list[Run], tolerance: float) -> Iterator[dict[str, Any]]:
    """The mean over the runs of every configuration that ran more than once.

    Tolerance: `tolerance`, or the standard deviation of the runs over their mean where that is larger.
    """
    for each in configurations(runs):
        if len(each.runs) > 1:
            yield {
                "name": f"mean of {len(each.runs)}: {each.runs[0].title}",
                "kind": "mean over second thresholds",
                **each.predicted.columns(),
                "published": each.total,
                "tolerance": max(tolerance, each.spread),
                "noise": each.noise,
                **_second(each.keras),
            }


def slope_rows(runs: list[Run]) -> Iterator[dict[str, Any]]:
    """Differences between configurations: largest minus smallest capacity of a network, widest minus narrowest network.

    Widths are compared at the same largest activity, so of rows that say it.
    """
    found = configurations(runs)
    for group in _groups(found, lambda each: each.networks):
        small, large = min(group, key=_capacity), max(group, key=_capacity)
        if small.capacity < large.capacity:
            between = f"{large.capacity} less {small.capacity}"
            yield _slope(small, large, "slope in capacity", f"{large.hidden} hidden, capacity {between}")
    for group in _groups([each for each in found if each.activity is not None], lambda each: each.task):
        narrow, wide = min(group, key=_width), max(group, key=_width)
        if narrow.width < wide.width:
            between = f"{wide.hidden} less {narrow.hidden} hidden ({wide.width}, {narrow.width} wide)"
            yield _slope(narrow, wide, "slope in width", f"activity {wide.activity:g}, {between}")


def tilewise_rows(runs: list[Run], tilewise: dict[tuple[str, ...], list[Prediction]]) -> Iterator[dict[str, Any]]:
    """Every configuration predicted with the tile-wise state gradient, from the same spikes; nothing to compare."""
    for each in configurations(runs):
        mean = _mean(tilewise[each.runs[0].configuration])
        yield {
            "name": f"tile-wise: {each.runs[0].title}",
            "kind": "tile-wise state gradient",
            **mean.columns(),
            "published": None,
            "tolerance": SLOPE_TOLERANCE,
            "note": f"{NOTHING_PUBLISHED}; per batch: {each.predicted.middle:.3f} ms",
        }


def _slope(small: Configuration, large: Configuration, kind: str, name: str) -> dict[str, Any]:
    """The larger configuration minus the smaller one."""
    low, middle, high = (
        getattr(large.predicted, end) - getattr(small.predicted, end) for end in ("low", "middle", "high")
    )
    noise = None if small.noise is None or large.noise is None else math.hypot(small.noise, large.noise)
    return {
        "name": f"{kind}: {name}",
        "kind": kind,
        **Prediction(middle=middle, low=min(low, middle, high), high=max(low, middle, high)).columns(),
        "published": large.total - small.total,
        "tolerance": SLOPE_TOLERANCE,
        "noise": noise,
        "note": ONE_END,
        **_second(None if large.keras is None or small.keras is None else large.keras - small.keras),
    }


def _second(keras: float | None) -> dict[str, Any]:
    return {} if keras is None else {"second": keras, "second_name": SECOND}


def _mean(given: list[Prediction]) -> Prediction:
    return Prediction(
        middle=fmean(each.middle for each in given),
        low=fmean(each.low for each in given),
        high=fmean(each.high for each in given),
    )


def _groups(found: list[Configuration], key: Callable[[Configuration], Any]) -> list[list[Configuration]]:
    return [[each for each in found if key(each) == name] for name in dict.fromkeys(key(each) for each in found)]


def _capacity(each: Configuration) -> int:
    return each.capacity


def _width(each: Configuration) -> int:
    return each.width
