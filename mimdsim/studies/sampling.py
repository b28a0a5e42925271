"""The points of a study's axes: a grid of their values, or points of the unit cube that fill it evenly."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import log
from typing import Any

import numpy as np

from mimdsim.base.errors import DescriptionError, MissingExtra, shortened, suggest
from mimdsim.base.units import parse_quantity, show_quantity
from mimdsim.studies.description import MAX_POINTS, Axis, Study
from mimdsim.studies.expressions import evaluate, names_in
from mimdsim.studies.metrics import Metric, Row, over_workloads
from mimdsim.studies.results import is_number, table_value

Design = dict[str, Any]  # a value for every varied field


@dataclass(frozen=True, kw_only=True)
class DesignSpace:
    """The axes of a study with the ends of their ranges in base units; `base` tells of fields of its machine and
    workload. Raises DescriptionError for an axis that does not fit its field."""

    study: Study
    base: Callable[[str], Any]  # a field's value in the unchanged descriptions

    def __post_init__(self) -> None:
        for key, axis in self.study.axes.items():
            seen: set[str] = set()
            for given in axis.values:
                value = self.item(key, given)
                said = repr(float(value) if is_number(value) else value)
                if said in seen:
                    raise DescriptionError("study", [f"axes.{key}: {shortened(str(given))} is given twice"])
                seen.add(said)

    def grid(self) -> list[Design]:
        """Every combination of the axes' values."""
        values = [self._listed(key, axis) for key, axis in self.study.axes.items()]
        total = int(np.prod([len(each) for each in values], dtype=np.float64))
        if total > MAX_POINTS:
            raise DescriptionError("study", [f"{total:,} points; at most {MAX_POINTS:,}: give fewer values"])
        return [self.design(dict(zip(self.study.axes, each, strict=True))) for each in itertools.product(*values)]

    def at(self, places: np.ndarray) -> list[Design]:
        """The points at float64[points, axes] in the unit cube."""
        keys = list(self.study.axes)
        values = [[self.value(key, float(u)) for u in places[:, column]] for column, key in enumerate(keys)]
        return [self.design(dict(zip(keys, each, strict=True))) for each in zip(*values, strict=True)]

    def value(self, key: str, place: float) -> Any:
        """The value of an axis at 0 to 1 of its range."""
        axis = self.study.axes[key]
        if axis.values:
            return self.item(key, axis.values[min(int(place * len(axis.values)), len(axis.values) - 1)])
        low, high = self.ends(key)
        return self._rounded(key, low * (high / low) ** place if axis.log else low + place * (high - low))

    def whole(self, key: str) -> bool:
        """Whether a field takes whole numbers, as it has one in the unchanged descriptions."""
        try:
            return isinstance(base := self.base(key), int) and not isinstance(base, bool)
        except DescriptionError:  # of a section that they lack
            return False

    def ends(self, key: str) -> tuple[float, float]:
        """The range of an axis in the base unit of its field."""
        axis = self.study.axes[key]
        if axis.within is not None:
            middle = self._number(key, self.base(key))
            return middle * (1 - axis.within), middle * (1 + axis.within)
        low, high = (self._number(key, end) for end in (axis.start, axis.to))
        if not 0 < high - low < np.inf or (axis.log and low <= 0):
            problem = "from must be less than to, both finite, and more than 0 if log = true"
            raise DescriptionError("study", [f"axes.{key}: {problem}"])
        return low, high

    def has_direction(self, key: str) -> bool:
        """Whether an axis leads from one value to another; a list of three names or more does not."""
        return len(self.study.axes[key].values) == 2 or self.is_ordered(key)

    def is_ordered(self, key: str) -> bool:
        """Whether the values of an axis are numbers that rise or fall."""
        values = [plain_value(key, value) for value in self.study.axes[key].values]
        if not all(map(is_number, values)):
            return False
        return len({one < other for one, other in pairwise(values)}) <= 1 and len(set(values)) == len(values)

    def place_in_range(self, key: str, value: float) -> float:
        """Where a number stands between the ends of a range: 0 at the low one, 1 at the high one."""
        low, high = self.ends(key)
        if self.study.axes[key].log:
            return log(max(value, low) / low) / log(high / low)  # a whole number may round to 0
        return (value - low) / (high - low)

    def _listed(self, key: str, axis: Axis) -> tuple[Any, ...]:
        if axis.values:
            return tuple(self.item(key, value) for value in axis.values)
        if axis.points is None and axis.step is None:
            raise DescriptionError("study", [f"axes.{key}: in a grid a range needs a step or a number of points"])
        if axis.points is not None:
            return tuple(dict.fromkeys(self.value(key, float(u)) for u in np.linspace(0, 1, axis.points)))
        low, high = self.ends(key)
        step = self._number(key, axis.step)
        if not 0 < step < np.inf or (high - low) / step > MAX_POINTS:
            raise DescriptionError(
                "study", [f"axes.{key}: the step must be more than 0, and at most {MAX_POINTS:,} fit"]
            )
        count = int(np.floor((high - low) / step * (1 + 1e-12))) + 1
        return tuple(dict.fromkeys(self._rounded(key, low + step * number) for number in range(count)))

    def design(self, design: Design) -> Design:
        """The values of the axes with those of the coupled fields."""
        waiting = dict(self.study.coupled)
        known: dict[str, Any] = dict(design)

        def number(name: str) -> float:
            given = known[name] if name in known else self.study.changes.get(name)
            return self._number(name, self.base(name) if given is None else given)

        while waiting:
            ready = [key for key, text in waiting.items() if not set(names_in(text)) & set(waiting)]
            if not ready:
                raise DescriptionError("study", [f"coupled: {', '.join(waiting)} depend on each other in a circle"])
            for key in ready:
                try:
                    known[key] = self._rounded(key, evaluate(waiting.pop(key), number, key))
                except ValueError as problem:
                    raise DescriptionError("study", [f"coupled.{key}: {problem}"]) from None
        return {key: known[key] for key in self.study.varied}

    def item(self, key: str, given: Any) -> Any:
        """A value of a list, as ranges give it: '1 GHz' as a number, so that tables sort and figures place it."""
        value = plain_value(key, given)
        return int(value) if isinstance(value, float) and self.whole(key) and value.is_integer() else value

    def _rounded(self, key: str, value: float) -> float | int:
        return round(value) if self.whole(key) else value

    def _number(self, key: str, given: Any) -> float:
        try:
            if isinstance(given, str):
                return parse_quantity(given, key.rsplit(".", 1)[-1])
            if not is_number(given):
                raise ValueError(f"a number is needed here, not {shortened(repr(given))}")
        except ValueError as wrong:
            raise DescriptionError("study", [f"{key}: {wrong}"]) from None
        return float(given)


def plain_value(key: str, value: Any) -> Any:
    """A value in the base unit of its field; a name as it is."""
    if not isinstance(value, str):
        return value
    try:
        return parse_quantity(value, key.rsplit(".", 1)[-1])
    except ValueError:
        return value


def sample_unit_cube(kind: str, points: int, axes: int, seed: int) -> np.ndarray:
    """float64[points, axes] in [0, 1): random, or evenly spread by scipy's Latin hypercube or scrambled Sobol sequence.

    Raises MissingExtra without scipy.
    """
    if kind == "random":
        return np.random.default_rng(seed).random((points, axes))
    try:
        from scipy.stats import qmc
    except ImportError:
        raise MissingExtra("scipy", "studies", f'sampling.kind = "{kind}"') from None
    rng = np.random.default_rng(seed)
    if kind == "latin-hypercube":
        return np.asarray(qmc.LatinHypercube(axes, rng=rng).random(points))
    return np.asarray(qmc.Sobol(axes, rng=rng).random(1 << max(0, points - 1).bit_length())[:points])


def field_of(name: str, known: Mapping[str, Any]) -> Any:
    """The value of a dotted key in a description as a table; raises DescriptionError for a key that it lacks."""
    value: Any = known
    for part in name.split("."):
        if not isinstance(value, Mapping) or part not in value:
            names = value if isinstance(value, Mapping) else ()
            raise DescriptionError("study", [f"no field '{name}'{suggest(part, list(names))}"])
        value = value[part]
    return value


def value_text(key: str, value: Any) -> str:
    """A value for people: '1.85 GHz', 'endpoint'; numbers with fractions to four digits."""
    if not is_number(value):
        return str(table_value(value))
    return show_quantity(float(f"{value:.4g}") if isinstance(value, float) else value, key.rsplit(".", 1)[-1])


def metric_of_designs(metric: Metric, rows: Sequence[Sequence[Row]], study: Study) -> np.ndarray:
    """float64[designs]: a metric of every design over its workloads; nan if one of them has no result, does not fit its
    memory, or does not know the metric."""
    values = [[metric.of(row) if row["fits"] else None for row in each] for each in rows]
    return over_workloads(metric, values, list(study.workloads.values()))
