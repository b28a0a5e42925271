"""Which designs of a study are best, and how sure that is: shares of the draws of `monte_carlo.py`."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from mimdsim.report.formatting import field_values, quantity
from mimdsim.studies.description import Study
from mimdsim.studies.metrics import METRICS, TIME, Metric, over_workloads
from mimdsim.studies.monte_carlo import DRAWS, DesignRows, Draws, collect_designs
from mimdsim.studies.results import FIRING_COLUMN, NO_EFFECT, is_property
from mimdsim.studies.runner import StudyResult

BLOCK = 32  # designs compared at a time
LEADERS = 64
MOST_COMPARED, FEWEST = 3_000_000_000, 50  # pairs of designs in all draws of a front; draws of it


def resolution(study: Study) -> float:
    """The share of a metric by which points have to differ to be told apart."""
    return min(NO_EFFECT, study.practical_difference)


class Ranking:
    """The designs of a study's result by its metrics, and what so many draws say of them.

    metrics: those of the study that some design has; unknown: the others, and limited ones. middle: float64[metrics,
    designs], without doubts. timed, fits: bool[designs]; met: bool[constraints, designs], at the middle of their
    intervals. Shares of the draws, float64[designs]: keeps_p, all constraints are kept; front_p, nothing that is kept
    is as good in every metric and better in one; best_p, nothing that is kept is better in the first metric by more
    than the model resolves.

    conditions: varied fields that are properties of the workload. Designs are compared only with those that have the
    same values of them; group: int[designs], which these are.

    Ratios are to the rows of the reference machine, which is taken as certain without them; without such a machine they
    are to the first point of each workload.
    """

    def __init__(self, result: StudyResult, count: int = DRAWS, seed: int = 0):
        study, reference = result.study, result.reference
        self.result, self.study, self.designs = result, study, collect_designs(study, result.rows)
        if not reference and not study.reference:
            timed_rows = [row for row in result.rows if row["seconds_by_source"]]
            first = [next((row for row in timed_rows if row["workload"] == name), None) for name in study.workloads]
            reference = tuple(row for row in first if row is not None)
        self.draws = Draws(study, self.designs, reference, count, seed)
        asked = [METRICS[name] for name in study.metrics]
        values = {metric: _middle(metric, self.designs, study) for metric in asked}
        self.metrics = tuple(metric for metric in asked if not np.isnan(values[metric]).all())
        limited = [each for one in study.limits if np.isnan(_middle(each := one.metric, self.designs, study)).all()]
        self.unknown = tuple(dict.fromkeys([*(metric for metric in asked if metric not in self.metrics), *limited]))
        self.middle = np.array([values[metric] for metric in self.metrics]).reshape(
            len(self.metrics), len(self.designs)
        )
        self.timed = np.array([all(row[TIME] is not None for row in rows) for rows in self.designs], bool)
        self.fits = np.array([all(row["fits"] for row in rows) for rows in self.designs], bool)
        met = [[all(map(limit.is_met, rows)) for rows in self.designs] for limit in study.limits]
        self.met = np.array(met, bool).reshape(len(study.limits), len(self.designs))
        self.conditions = tuple(
            name for name in study.varied if is_property(name) and len(set(map(str, self.column(name)))) > 1
        )
        workloads = [tuple(str(rows[0][name]) for name in self.conditions) for rows in self.designs]
        numbers = {values: number for number, values in enumerate(dict.fromkeys(workloads))}
        self.group = np.array([numbers[values] for values in workloads], int)
        shares = np.zeros((3, len(self.designs)))
        usable = np.flatnonzero(self.fits & ~np.isnan(self.middle).any(axis=0))
        if len(usable) and self.metrics:
            shares[:, usable] = _shares(self.draws, usable, self.metrics, study, self.group[usable])
        self.keeps_p, self.front_p, self.best_p = shares

    @cached_property
    def kept(self) -> np.ndarray:
        """bool[designs]: fits, keeps to the constraints, and all metrics are known."""
        return np.asarray(self.fits & self.met.all(axis=0) & ~np.isnan(self.middle).any(axis=0))

    @property
    def unknown_words(self) -> list[str]:
        """The metrics that no point has, and where points have others what to write."""
        return [metric.unknown_words if self.timed.any() else metric.name for metric in self.unknown]

    def problems(self, at: int) -> list[str]:
        """Why a design is left out; nothing of one that is kept."""
        if not self.timed[at]:
            return ["no result"]
        if not self.fits[at]:
            return ["does not fit"]
        beyond = [
            f"{limit.metric.name} unknown" if limit.metric in self.unknown else f"beyond {limit}"
            for limit, met in zip(self.study.limits, self.met[:, at], strict=True)
            if not met
        ]
        return beyond or ([] if self.kept[at] else ["metric unknown"])

    @cached_property
    def _values(self) -> dict[str, list[str]]:
        """Of each changed field the values of all designs as text; different ones look different."""
        return {name: field_values(name, self.column(name)) for name in self.study.varied}

    def column(self, name: str) -> list[Any]:
        """The values of a changed field, of all designs."""
        return [rows[0][name] for rows in self.designs]

    def has_constant_layers(self, at: int) -> bool:
        """Whether some layer of a design never fires, or always."""
        return any(row.get(FIRING_COLUMN) for row in self.designs[at])

    def values(self, at: int) -> dict[str, str]:
        """The values of a design's changed fields as text."""
        return {name: values[at] for name, values in self._values.items()}

    def name(self, at: int, without: Collection[str] = ()) -> str:
        """'chip.tiles = 736, chip.clock_hz = 1.85 GHz', without some of the fields."""
        return ", ".join(f"{key} = {value}" for key, value in self.values(at).items() if key not in without)

    def interval(self, metric: int, at: int) -> tuple[float, float]:
        """The interval of a metric over all workloads, in the unit of its columns."""
        one, weights = self.metrics[metric], list(self.study.workloads.values())
        ends = [one.bounds(row) or (np.nan, np.nan) for row in self.designs[at]]
        found = np.maximum(over_workloads(one, np.transpose(ends), weights), 0.0)  # nothing is below
        low, high = map(float, np.where(np.isnan(found), self.middle[metric, at], found))
        return low, high

    def shown(self, metric: int, at: int) -> str:
        """A metric of a design with its interval: '1.12 ms (0.83 to 1.4)'."""
        one, ends = self.metrics[metric], (float(self.middle[metric, at]), *self.interval(metric, at))
        return quantity(one.unit, *(end * one.scale for end in ends), beside=self.middle[metric] * one.scale)

    @cached_property
    def best(self) -> int | None:
        """The kept design that is best in the first metric, of equals in the next; None: none is kept, or designs are
        of several workloads."""
        return None if self.conditions else self._first(self.kept)

    @cached_property
    def contests(self) -> list[tuple[int, list[int]]]:
        """Of every workload with several kept designs, in order, the best and the others from better to worse."""
        found = []
        for number in range(int(self.group.max(initial=-1)) + 1):
            among = self.kept & (self.group == number)
            best = self._first(among)
            if best is not None and among.sum() > 1:
                others = np.flatnonzero(among)
                others = others[np.argsort(self.signed(0)[others], kind="stable")]
                found.append((best, [int(at) for at in others if at != best]))
        return found

    def alike(self, best: int, others: Sequence[int]) -> list[int]:
        """Which of the others are worse than `best` by no practical difference."""
        ours = self.middle[0, best]
        return [at for at in others if abs(self.middle[0, at] - ours) <= self.study.practical_difference * abs(ours)]

    def _first(self, among: np.ndarray) -> int | None:
        places = np.flatnonzero(among)
        if not len(places) or not self.metrics:
            return None
        keys = [self.signed(metric)[places] for metric in reversed(range(len(self.metrics)))]
        return int(places[np.lexsort(keys)[0]])

    def best_without(self, limit: int | None) -> int | None:
        """The best if one constraint, or with None the memory, limited nothing."""
        fine = ~np.isnan(self.middle).any(axis=0)
        among = self.timed & fine if limit is None else self.fits & fine
        others = [place for place in range(len(self.met)) if place != limit]
        return self._first(among & self.met[others].all(axis=0))

    def signed(self, metric: int) -> np.ndarray:
        """float64[designs]: the middle of a metric so that less is better."""
        middle: np.ndarray = self.middle[metric]
        return -middle if self.metrics[metric].better == "more" else middle

    def compare(self, a: int, b: Sequence[int] | np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """float64[b] each: in which share of the draws design `a` is better in the first metric than each of `b`, and
        no different as far as the model resolves."""
        others = np.asarray(b, dtype=int)
        wins, ties = np.zeros((2, len(others)))
        for draws in self.draws.parts(len(others) + 1):
            less = _lower(self.draws, self.metrics[0], np.array([a, *others]), draws)
            even = resolution(self.study) * np.minimum(np.abs(less[1:]), np.abs(less[0]))
            wins += (less[1:] - less[0] > even).sum(axis=1)
            ties += (np.abs(less[1:] - less[0]) <= even).sum(axis=1)
        return wins / self.draws.count, ties / self.draws.count

    @cached_property
    def rivals(self) -> tuple[list[int], list[tuple[int, float]]]:
        """The other kept designs: those that the model does not tell from the best in the first metric in any draw; and
        the rest, strongest first, with the probability that the best is better."""
        others = self.kept.copy()
        if self.best is None:
            return [], []
        others[self.best] = False
        places = np.flatnonzero(others)
        if not len(places):
            return [], []
        wins, ties = self.compare(self.best, places)
        chances = wins + ties / 2
        order = np.lexsort((self.signed(0)[places], chances))
        rest = [(int(places[at]), float(chances[at])) for at in order if ties[at] < 1]
        return [int(at) for at in places[ties == 1]], rest

    def deciding_source(self, a: int, b: int) -> tuple[str, float, float] | None:
        """The source that moves the difference of two designs in the first metric most, and the probability that `a` is
        better where the source is in the lowest quarter of its interval, and in the highest. None: nothing does."""
        drawn = self.draws.metric(self.metrics[0], np.array([a, b]), slice(0, self.draws.count))
        ahead = (drawn[1] - drawn[0]) * (-1 if self.metrics[0].better == "more" else 1)
        names = self.draws.uncertain_sources(self.metrics[0])
        if not names or not ahead.std() > 1e-9 * np.abs(drawn).max():
            return None
        positions = np.array([self.draws.position_of(name) for name in names])
        most = int(np.abs((positions - positions.mean(axis=1)[:, None]) @ (ahead - ahead.mean())).argmax())
        place, better = positions[most], (ahead > 0) + 0.5 * (ahead == 0)
        return names[most], float(better[place < -0.5].mean()), float(better[place > 0.5].mean())

    def ratio(self, a: int, b: int) -> tuple[float, np.ndarray]:
        """The first metric of `a` over that of `b`: at the middle, and float64[draws]."""
        drawn = self.draws.metric(self.metrics[0], np.array([a, b]), slice(0, self.draws.count))
        with np.errstate(divide="ignore", invalid="ignore"):
            return float(self.middle[0, a] / self.middle[0, b]), np.asarray(drawn[0] / drawn[1])


rank = lru_cache(maxsize=1)(Ranking)  # once for lines and page


def _middle(metric: Metric, designs: Sequence[DesignRows], study: Study) -> np.ndarray:
    values = np.array([[metric.of(row) for row in rows] for rows in designs], float)
    return over_workloads(metric, values.reshape(len(designs), len(study.workloads)), list(study.workloads.values()))


def _lower(draws: Draws, metric: Metric, designs: np.ndarray, part: slice) -> np.ndarray:
    """float32[designs, draws]: less is better. Single precision, so that sums of the same parts in another order are
    equal."""
    found = draws.metric(metric, designs, part).astype(np.float32)
    return -found if metric.better == "more" else found


def _shares(
    draws: Draws, designs: np.ndarray, metrics: Sequence[Metric], study: Study, group: np.ndarray
) -> np.ndarray:
    """float64[3, designs]: shares of the draws in which a design is kept, on the front, and best, of its group."""
    order = np.argsort(group, kind="stable")
    groups = np.split(order, np.flatnonzero(np.diff(group[order])) + 1)
    counts, step, of_front = np.zeros((3, len(designs))), 0, 0
    for part in draws.parts(len(designs)):
        kept = np.ones((len(designs), part.stop - part.start), bool)
        for limit in study.limits:
            kept &= draws.satisfied(limit, designs, part)
        values = np.stack([_lower(draws, metric, designs, part) for metric in metrics])
        values[:, ~kept] = np.inf
        best, on = np.zeros((2, *kept.shape), bool)
        if not step:  # a front of thousands is found in some of the draws only
            compared = len(designs) * int(_front(values[:, :, 0]).sum())
            step = max(1, min(draws.count // FEWEST, draws.count * compared // MOST_COMPARED))
        on = on[:, ::step]
        for those in groups:
            least = values[0, those].min(axis=0)
            with np.errstate(invalid="ignore"):
                best[those] = kept[those] & (values[0, those] <= least + resolution(study) * np.abs(least))
            alone = len(those) == 1
            on[those] = kept[those, ::step] & (alone or nondominated(values[:, those, ::step]))
        counts += np.stack([kept.sum(axis=1), on.sum(axis=1), best.sum(axis=1)])
        of_front += on.shape[1]
    return np.asarray(counts / np.array([[draws.count], [of_front], [draws.count]]))


def nondominated(values: np.ndarray) -> np.ndarray:
    """bool[designs, draws] of [metrics, designs, draws], less is better: nothing is as good in all and better in one.

    What is infinite in all metrics is dominated.
    """
    if len(values) == 1:
        return np.asarray((values[0] == values[0].min(axis=0)) & np.isfinite(values[0]))
    found = np.zeros(values.shape[1:], bool)
    some = np.flatnonzero(~_always_dominated(values))
    for draw in range(values.shape[2]):
        found[some, draw] = _front(values[:, some, draw])
    return found


def _always_dominated(values: np.ndarray) -> np.ndarray:
    """bool[designs]: dominated in every draw by the same one of the designs on the front of the first; not all of
    them, but with doubts that are shared most."""
    out: np.ndarray = ~np.any(np.all(np.isfinite(values), axis=0), axis=1)
    for leader in np.flatnonzero(_front(values[:, :, 0]))[:LEADERS]:
        left = np.flatnonzero(~out)
        one, others = values[:, leader, None], values[:, left]
        out[left] |= np.all(np.all(one <= others, axis=0) & np.any(one < others, axis=0), axis=1)
    return out


def _front(values: np.ndarray) -> np.ndarray:
    """bool[designs] of [metrics, designs], block by block in the order of a sum of the metrics: only what has a smaller
    sum dominates."""
    left = np.flatnonzero(np.isfinite(values).all(axis=0))
    points = values[:, left]
    spread = points.max(axis=1, initial=-np.inf) - points.min(axis=1, initial=np.inf)
    total = (points / np.where(spread > 0, spread, 1)[:, None].astype(float)).sum(axis=0)
    order = np.argsort(total, kind="stable")
    left, points, total = left[order], points[:, order], total[order]
    found = np.zeros(values.shape[1], bool)
    while len(left):
        block, sums = points[:, :BLOCK], total[:BLOCK]
        on = ~_dominated(block, sums, block, sums)
        found[left[:BLOCK][on]] = True
        stays = ~_dominated(block[:, on], sums[on], points[:, BLOCK:], total[BLOCK:])
        left, points, total = left[BLOCK:][stays], points[:, BLOCK:][:, stays], total[BLOCK:][stays]
    return found


def _dominated(by: np.ndarray, sums: np.ndarray, points: np.ndarray, total: np.ndarray) -> np.ndarray:
    """bool[designs]: whether one of `by` is as good in every metric and better in one, which its sum tells."""
    found = sums[:, None] < total
    for one, other in zip(by, points, strict=True):
        found &= one[:, None] <= other
    return np.asarray(found.any(axis=0))
