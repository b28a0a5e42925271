"""What a study asks for: metrics of a row of results, and the limits that a point must keep to."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any, Literal

import numpy as np

from mimdsim.base.errors import shortened, suggest
from mimdsim.base.units import parse_quantity, show_quantity

Row = dict[str, Any]
TIME, ENERGY, WATTS = "ms_per_training_step", "millijoules", ("static_watts", "dynamic_watts")  # columns
BY_TIME = {"samples_per_second": TIME, "samples_per_joule": ENERGY}  # inversely
_CONSTRAINT = re.compile(r"\s*(max|min)\s+([a-z_]+)\s+(\S.*?)\s*")


@dataclass(frozen=True, kw_only=True)
class Metric:
    """A number of a row.

    columns: whose sum it is, in multiples `scale` of the base unit; each may have bounds in NAME_low and NAME_high.
    better: whether less or more of it is better. unit: as a field's name ends in it (`base/units.py`); label: for
    tables and figures, with the unit of the columns. over: how the workloads of a study make one number: the weighted
    geometric mean, in which only ratios count, or the largest or least.
    """

    name: str
    label: str
    columns: tuple[str, ...]
    better: Literal["less", "more"] = "less"
    unit: str = ""
    scale: float = 1.0
    over: Literal["mean", "largest", "least"] = "mean"

    @property
    def unknown_words(self) -> str:
        """Its name where no point has it, and what to write."""
        return f"{self.name} (needs {NEEDS[self.name]})" if self.name in NEEDS else self.name

    def of(self, row: Row) -> float | None:
        """In the unit of the column; None where it is unknown."""
        return self._sum(row, 0)

    def bounds(self, row: Row) -> tuple[float, float] | None:
        """The interval of `of`; a column without bounds is certain, but one by time or energy has theirs."""
        middle, low, high = (self._sum(row, end) for end in range(3))
        if middle is None:
            return None
        whole = next((one for one in METRICS.values() if one.columns == (BY_TIME.get(self.columns[0]),)), None)
        ends, other = (whole.bounds(row), whole.of(row)) if whole else (None, None)
        if ends is not None and other is not None and min(ends) > 0:
            return middle * other / ends[1], middle * other / ends[0]
        return (middle if low is None else low, middle if high is None else high)

    def _sum(self, row: Row, end: int) -> float | None:
        named = ((interval_columns(column)[end], column) for column in self.columns)
        values = [row.get(name, row.get(column)) for name, column in named]
        return None if any(value is None for value in values) else float(sum(values))  # type: ignore[arg-type]

    def shown(self, value: float) -> str:
        return show_quantity(value * self.scale, self.unit) if self.unit else f"{value:.4g}"


def interval_columns(name: str) -> tuple[str, str, str]:
    """A column and those of the ends of its interval."""
    stem, unit = (name.removesuffix("_ms"), "_ms") if name.endswith(" strongest_ms") else (name, "")
    stem = "ms" if name == TIME else stem
    return name, f"{stem}_low{unit}", f"{stem}_high{unit}"


METRICS: dict[str, Metric] = {
    metric.name: metric
    for metric in (
        Metric(
            name="time", label="ms per training step", columns=("ms_per_training_step",), unit="seconds", scale=1e-3
        ),
        Metric(name="ratio", label="times the reference", columns=("ratio",)),
        Metric(name="gpu_ratio", label="times as fast as the GPU", columns=("gpu_ratio",), better="more"),
        Metric(name="energy", label="mJ per training step", columns=("millijoules",), unit="joules", scale=1e-3),
        Metric(name="area", label="mm²", columns=("area_mm2",), unit="mm2", over="largest"),
        Metric(name="power", label="W", columns=("static_watts", "dynamic_watts"), unit="watts", over="largest"),
        Metric(name="static_power", label="static W", columns=("static_watts",), unit="watts", over="largest"),
        Metric(name="memory", label="bytes of the fullest tile", columns=("peak_bytes",), unit="bytes", over="largest"),
        Metric(name="tiles", label="tiles used", columns=("tiles_used",), over="largest"),
        Metric(name="utilisation", label="tile balance", columns=("tile_balance",), better="more"),
        Metric(name="throughput", label="samples per second", columns=("samples_per_second",), better="more"),
        Metric(name="efficiency", label="samples per joule", columns=("samples_per_joule",), better="more"),
        Metric(name="latency", label="ms per single sample", columns=("latency_ms",), unit="seconds", scale=1e-3),
        Metric(
            name="inference_energy", label="mJ per single sample", columns=("inference_millijoules",), unit="joules",
            scale=1e-3,
        ),
        Metric(name="accuracy", label="test accuracy", columns=("accuracy",), better="more", over="least"),
    )
}  # fmt: skip
NEEDS = {  # what metrics are unknown without
    "area": "[area] in the machine's description",
    **dict.fromkeys(("power", "static_power"), "[area] and [power] in the machine's description"),
    **dict.fromkeys(("energy", "efficiency", "inference_energy"), "[energy] in the machine's description"),
    "gpu_ratio": 'gpus = ["a100"], or others, in the study',
    "accuracy": "spikes of a training instead of fill",
}
INFERENCE = ("latency", "inference_energy")  # metrics of the forward program alone, which they have compiled


@dataclass(frozen=True, kw_only=True)
class Constraint:
    """At most, or at least, so much of a metric, in the unit of its column."""

    metric: Metric
    end: Literal["max", "min"]
    value: float

    def is_met(self, row: Row) -> bool:
        """Whether a row keeps to it; what is unknown does not."""
        found = self.metric.of(row)
        return found is not None and (found <= self.value if self.end == "max" else found >= self.value)

    def __str__(self) -> str:
        return f"{self.end} {self.metric.name} {self.metric.shown(self.value)}"


def parse_constraint(text: str) -> Constraint:
    """'max area 826 mm2' or 'min throughput 1000'; raises ValueError that says what is wrong."""
    match = _CONSTRAINT.fullmatch(text)
    if match is None:
        raise ValueError(
            f"constraints: {shortened(text)!r} is none; write e.g.  max memory 400 KiB  or  min accuracy 0.9"
        )
    end, name, given = match.groups()
    if name not in METRICS:
        raise ValueError(f"constraints: no metric '{name}'{suggest(name, METRICS)}; known: {', '.join(METRICS)}")
    metric = METRICS[name]
    try:
        value = parse_quantity(given, metric.unit or "count", bare=False) / metric.scale
    except ValueError as problem:
        raise ValueError(f"constraints: {shortened(text)!r}: {problem}") from None
    if not isfinite(value):
        raise ValueError(f"constraints: {shortened(text)!r}: a finite number is needed")
    return Constraint(metric=metric, end="max" if end == "max" else "min", value=value)


def over_workloads(metric: Metric, values: Any, weights: Sequence[float]) -> np.ndarray:
    """A metric of [designs, workloads, ...] as one number of each design; nan (or None) where one is unknown."""
    values = np.asarray(values, float)
    found: np.ndarray
    if values.shape[1] == 1:
        found = values[:, 0]
    elif metric.over != "mean":
        found = values.max(axis=1) if metric.over == "largest" else values.min(axis=1)
    else:
        shares = np.array(weights, float) / sum(weights)
        positive = np.where(values > 0, values, np.where(np.isnan(values), np.nan, 1.0))
        logs = np.tensordot(np.log(positive), shares, axes=(1, 0))
        found = np.where((values <= 0).any(axis=1) & ~np.isnan(logs), 0.0, np.exp(logs))
    return found
