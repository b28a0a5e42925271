"""Where the values of axes stand between the ends of their ranges, and what a design is worth: for plans that choose
their next points by the results of the last ones."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from math import log
from typing import Any

import numpy as np

from mimdsim.base.units import show_quantity
from mimdsim.studies.description import Axis, Study
from mimdsim.studies.metrics import Metric, Row, over_workloads
from mimdsim.studies.results import shown
from mimdsim.studies.sampling import Design, Varied, plain_value


def has_direction(varied: Varied, key: str) -> bool:
    """Whether an axis leads from one value to another; a list of three names or more does not."""
    return len(varied.study.axes[key].values) == 2 or is_ordered(varied, key)


def is_ordered(varied: Varied, key: str) -> bool:
    """Whether the values of an axis are numbers that rise or fall."""
    values = [plain_value(key, value) for value in varied.study.axes[key].values]
    if any(isinstance(value, bool) or not isinstance(value, (int, float)) for value in values):
        return False
    return len({one < other for one, other in pairwise(values)}) <= 1 and len(set(values)) == len(values)


def shown_value(key: str, value: Any) -> str:
    """A value for people: '1.85 GHz', 'endpoint'; numbers with fractions to four digits."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return str(shown(value))
    return show_quantity(float(f"{value:.4g}") if isinstance(value, float) else value, key.rsplit(".", 1)[-1])


def place_in_list(count: int, index: int) -> float:
    """The middle of an item's share of the axis, as `Varied.value` reads it."""
    return (index + 0.5) / count


def place_in_range(varied: Varied, key: str, value: float) -> float:
    """Where a number stands between the ends of a range: 0 at the low one, 1 at the high one."""
    low, high = varied.ends(key)
    if varied.study.axes[key].log:
        return log(max(value, low) / low) / log(high / low)  # a whole number may round to 0
    return (value - low) / (high - low)


def fixed(varied: Varied, values: Mapping[str, Any]) -> Varied:
    """The same axes, some of them at one value wherever a point lies."""
    kept = {key: Axis(values=(values[key],)) if key in values else axis for key, axis in varied.study.axes.items()}
    return replace(varied, study=varied.study.model_copy(update={"axes": kept}))


def base_values(varied: Varied, keys: Iterable[str]) -> Design:
    """What fields have in the unchanged machine and the first workload."""
    return {key: varied.base(key) for key in keys}


def of_designs(metric: Metric, rows: Sequence[Sequence[Row]], study: Study) -> np.ndarray:
    """float64[designs]: a metric of every design over its workloads; nan if one of them has no result, does not fit its
    memory, or does not know the metric."""
    weights = list(study.workloads.values())
    found = [
        over_workloads(metric, [metric.of(row) if row["fits"] else None for row in each], weights) for each in rows
    ]
    return np.array([np.nan if value is None else value for value in found], dtype=np.float64)
