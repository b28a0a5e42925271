"""Numbers of a study's points with their doubts, drawn together.

An interval alone says too little when two points are compared: a cost that is too low in one is too low in the other.
So a draw sets the position of every source once, for all points, and the logarithm of a point's time is off by the sum
of what its sources are. Sources are independent of each other, as in `profile/ratios.py`, and normal: between their
bounds with the chance that intervals are given at. Area, watts and energy, of which rows have
an interval only, share one position for each column; energy takes those of static and dynamic watts where these are its
parts. What has no interval does not vary.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import NormalDist

import numpy as np

from mimdsim.base.residuals import LEVEL
from mimdsim.studies.description import Study
from mimdsim.studies.metrics import BY_TIME, ENERGY, TIME, WATTS, Constraint, Metric, Row, over_workloads

DRAWS = 2_000  # a probability is off by 0.011 at most, one standard error
CELLS = 4_000_000  # numbers held at a time


DesignRows = tuple[Row, ...]  # of a design, one for every workload of the study, in its order


def collect_designs(study: Study, rows: Sequence[Row]) -> tuple[DesignRows, ...]:
    """The designs of which every workload is done, each once, in order."""
    found: dict[tuple[str, ...], dict[str, Row]] = {}
    for row in rows:
        found.setdefault(tuple(str(row[name]) for name in study.varied), {}).setdefault(row["workload"], row)
    return tuple(
        tuple(by[name] for name in study.workloads) for by in found.values() if len(by) == len(study.workloads)
    )


class Draws:
    """Seeded draws of the designs' numbers. The position of a source depends on the seed and its name alone, so the
    same point has the same draws in every study.

    reference: the row of every workload that ratios are to. `count`: of draws. `sources`: names of `positions`,
    float64[sources, draws], 1 at their bounds.
    """

    def __init__(
        self, study: Study, designs: Sequence[DesignRows], reference: Sequence[Row], count: int = DRAWS, seed: int = 0
    ):
        self.weights = list(study.workloads.values())
        self.count, self.seed, self.width = count, seed, len(study.workloads)
        self.rows = [row for rows in designs for row in rows]
        self.columns: dict[str, tuple[np.ndarray, np.ndarray, np.ndarray]] = {}
        sources: dict[str, int] = {}
        for row in (*self.rows, *reference):
            for name, _, reach in row["seconds_by_source"] or ():
                if reach:
                    sources.setdefault(name, len(sources))
        self.sources = tuple(sources)
        self.positions = np.array([self._position(name) for name in sources]).reshape(len(sources), count)
        self.seconds, self.reach = _by_source(self.rows, sources)
        self.reference = _by_source(reference, sources) if len(reference) == self.width else None

    def _position(self, name: str) -> np.ndarray:
        """float64[draws]: normal, in -1 to 1 with the chance LEVEL; one in each of as many equally likely parts, in an
        order of its own."""
        rng = np.random.default_rng((self.seed, *name.encode()))
        chances = (rng.permutation(self.count) + rng.random(self.count)) / self.count
        normal = NormalDist()
        return np.array([normal.inv_cdf(chance) for chance in chances]) / normal.inv_cdf((1 + LEVEL) / 2)

    def parts(self, designs: int) -> Iterator[slice]:
        """All draws in parts that fit memory with so many designs."""
        size = max(1, CELLS // max(1, designs * self.width))
        return (slice(begin, min(begin + size, self.count)) for begin in range(0, self.count, size))

    def metric(self, metric: Metric, designs: np.ndarray, draws: slice) -> np.ndarray:
        """float64[designs, draws] in the unit of the metric's columns, over all workloads; nan where unknown."""
        return over_workloads(metric, self._of_rows(metric, designs, draws), self.weights)

    def satisfied(self, limit: Constraint, designs: np.ndarray, draws: slice) -> np.ndarray:
        """bool[designs, draws]: whether every workload keeps to a constraint."""
        values = self._of_rows(limit.metric, designs, draws).astype(np.float32)  # a ratio to itself is exactly one
        end = np.float32(limit.value)
        within = values <= end if limit.end == "max" else values >= end
        return np.asarray(within.all(axis=1))

    def position_of(self, name: str) -> np.ndarray:
        """float64[draws] of a source or a column with an interval."""
        known = self.sources.index(name) if name in self.sources else None
        return self._position(f"column {name}") if known is None else self.positions[known]

    def uncertain_sources(self, metric: Metric) -> tuple[str, ...]:
        """The sources and columns whose positions a metric depends on."""
        names: dict[str, None] = {}
        for column in metric.columns:
            column = BY_TIME.get(column, column)
            if column in (TIME, "ratio"):
                names |= dict.fromkeys(self.sources)
            elif column == ENERGY:
                names |= dict.fromkeys((*WATTS, ENERGY))
            elif self._differs(column):
                names[column] = None
        return tuple(names)

    def _of_rows(self, metric: Metric, designs: np.ndarray, draws: slice) -> np.ndarray:
        """float64[designs, workloads, draws]."""
        at = (designs[:, None] * self.width + np.arange(self.width)).ravel()
        total = sum(self._column(name, at, draws) for name in metric.columns)
        return np.broadcast_to(total, (len(at), draws.stop - draws.start)).reshape(len(designs), self.width, -1)

    def _column(self, name: str, at: np.ndarray, draws: slice) -> np.ndarray:
        """float64[rows, draws] or [rows, 1]."""
        result: np.ndarray
        if name == TIME:
            result = 1e3 * self.seconds[at, None] * np.exp(self.reach[at] @ self.positions[:, draws])
            return result
        middle, low, high = (ends[at, None] for ends in self._ends(name))
        if name == "ratio":
            times = self._column(TIME, at, draws) / 1e3
            if self.reference is None:  # not known: taken as certain
                result = middle * times / self.seconds[at, None]
                return result
            seconds, reach = self.reference
            drawn = seconds[:, None] * np.exp(reach @ self.positions[:, draws])
            return np.asarray(times / np.tile(drawn, (len(at) // self.width, 1)))
        if name in BY_TIME:
            other = BY_TIME[name]
            whole = 1e3 * self.seconds[at, None] if other == TIME else self._ends(other)[0][at, None]
            result = middle * whole / np.maximum(self._column(other, at, draws), np.finfo(float).tiny)
            return result
        if name == ENERGY:
            static, dynamic = (self._ends(part)[0][at, None] for part in WATTS)
            whole, drawn = static + dynamic, sum(self._column(part, at, draws) for part in WATTS)
            alone = self._between(name, middle, low, high, draws)
            return np.where(np.isnan(whole) | (whole == 0), alone, middle * drawn / np.where(whole == 0, 1, whole))
        return self._between(name, middle, low, high, draws)

    def _between(self, name: str, middle: np.ndarray, low: np.ndarray, high: np.ndarray, draws: slice) -> np.ndarray:
        """At the column's position: -1 is the lower bound, 0 the value, 1 the upper bound, by equal factors."""
        if not self._differs(name):
            return middle
        place, tiny = self.position_of(name)[None, draws], np.finfo(float).tiny
        factor = np.where(place < 0, low, high) / np.where(middle == 0, 1, middle)
        return np.asarray(middle * np.maximum(factor, tiny) ** np.abs(place))

    def _differs(self, name: str) -> bool:
        middle, low, high = self._ends(name)
        return bool(((low < middle) | (high > middle)).any())

    def _ends(self, name: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """float64[rows]: a column and its bounds, the value itself where it has none."""
        if name not in self.columns:
            middle, low, high = (
                np.array([np.nan if row.get(name + end) is None else float(row[name + end]) for row in self.rows])
                for end in ("", "_low", "_high")
            )
            self.columns[name] = middle, np.where(np.isnan(low), middle, low), np.where(np.isnan(high), middle, high)
        return self.columns[name]


def _by_source(rows: Sequence[Row], sources: dict[str, int]) -> tuple[np.ndarray, np.ndarray]:
    """Seconds of rows, float64[rows], nan where there are none, and by what share of them each source leaves them off,
    float64[rows, sources]."""
    seconds, reach = np.full(len(rows), np.nan), np.zeros((len(rows), len(sources)))
    for place, row in enumerate(rows):
        parts = row["seconds_by_source"] or ()
        if parts:
            seconds[place] = sum(part[1] for part in parts)
        for name, _, off in parts:
            if off:
                reach[place, sources[name]] += off / seconds[place]
    return seconds, reach
