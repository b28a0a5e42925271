"""How points and metrics of a study are named in sentences."""

from __future__ import annotations

from mimdsim.base.units import counted
from mimdsim.report.formatting import quantity
from mimdsim.studies.metrics import METRICS, Metric, Row, over_workloads
from mimdsim.studies.monte_carlo import BY_TIME, ENERGY, TIME
from mimdsim.studies.pareto import Judged


def name_of(found: Judged, at: int) -> str:
    """'chip.tiles = 736, chip.clock_hz = 1.85 GHz'."""
    names = found.designs[at].changes(found.study)
    return ", ".join(f"{name} = {value}" for name, value in zip(names, values_of(found, at), strict=True))


def values_of(found: Judged, at: int) -> list[str]:
    """The values of a design's changed fields, each told from those of the other designs."""
    return [values[at] for values in found.shown_values]


def in_words(found: Judged, metric: int, at: int) -> str:
    """A metric of a design with its interval: '1.12 ms (0.83 to 1.4)'."""
    one = found.metrics[metric]
    low, high = interval(found, metric, at)
    return quantity(one.unit, *(end * one.scale for end in (float(found.middle[metric, at]), low, high)))


def interval(found: Judged, metric: int, at: int) -> tuple[float, float]:
    """The interval of a metric over all workloads, in the unit of its columns."""
    one, weights = found.metrics[metric], list(found.study.workloads.values())
    ends = [bounds(one, row) for row in found.designs[at].rows]
    low, high = (over_workloads(one, [end and end[side] for end in ends], weights) for side in (0, 1))
    middle = float(found.middle[metric, at])
    return (middle if low is None else low), (middle if high is None else high)


def bounds(metric: Metric, row: Row) -> tuple[float, float] | None:
    """Those of a column by time or energy follow from what it is divided by."""
    whole = {TIME: METRICS["time"], ENERGY: METRICS["energy"]}.get(BY_TIME.get(metric.columns[0], ""))
    known, middle = (whole.bounds(row), whole.of(row)) if whole else (None, None)
    value = metric.of(row)
    if known is None or middle is None or value is None or min(known) <= 0:
        return metric.bounds(row)
    return value * middle / known[1], value * middle / known[0]


def quantity_alone(metric: Metric, value: float) -> str:
    return quantity(metric.unit, *[value * metric.scale] * 3)


def count_of(count: int) -> str:
    return counted(count, "point")
