"""The best points within a study's limits, found by Optuna's tree-structured Parzen estimator (J. Bergstra et al.,
NeurIPS 2011; of all axes together, S. Falkner et al., ICML 2018).

Points are asked for in batches of the same size whatever computes them, so a study finds the same points by any number
of processes, and again when it goes on after a cut. The first batch has the point of the unchanged descriptions (or the
nearest to it that the axes allow) and the two with all axes at their low and high ends.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mimdsim.base.errors import MissingExtra
from mimdsim.studies.description import Study
from mimdsim.studies.metrics import METRICS, Constraint, Metric, Row
from mimdsim.studies.sampling import (
    Design,
    DesignSpace,
    of_designs,
    place_in_list,
    plain_value,
)

BATCH = 10  # points asked for before the results of the last ones are looked at
MOST_NAMED = 5  # best points by one metric
UNKNOWN = 1.0  # how far a point without result counts as outside a limit, as a share of it
FITS = "fits tile memory"
HAS_RESULT = "metrics are known"


@dataclass(frozen=True, kw_only=True)
class Trial:
    """A point that was looked at. number: counted from 1. values: by metric, in the unit of its column; nan: not known.
    outside: by limit that it does not keep to, by how much, as a share of the limit."""

    number: int
    design: Design
    values: dict[str, float]
    outside: dict[str, float]


@dataclass(frozen=True, kw_only=True)
class BestTrials:
    """What a search found. points: within all limits; the best few by one metric, best first, or the front by several:
    those to which no other point is better in one and no worse in all. nearest: if there are none, the one least
    outside. base: the first point, nearest to the unchanged descriptions. Counts are of different designs; broken: by
    limit, how many do not keep to it."""

    points: tuple[Trial, ...]
    base: Trial
    nearest: Trial | None
    asked: int
    feasible: int
    broken: dict[str, int]


def search_plan(study: Study, varied: DesignSpace) -> Generator[list[Design], list[list[Row]], BestTrials]:
    """`study.sampling.points` points, in batches; raises MissingExtra without Optuna."""
    sampler = _Sampler(study, varied)
    tried: list[Trial] = []
    while len(tried) < study.sampling.points:
        designs = sampler.designs(min(BATCH, study.sampling.points - len(tried)))
        rows = yield designs
        values = {name: of_designs(METRICS[name], rows, study) for name in study.metrics}
        batch = [
            Trial(
                number=len(tried) + place + 1,
                design=design,
                values={name: float(found[place]) for name, found in values.items()},
                outside=_outside(study.limits, rows[place], [float(found[place]) for found in values.values()]),
            )
            for place, design in enumerate(designs)
        ]
        sampler.tell(batch)
        tried += batch
    return _best_of(tried, [METRICS[name] for name in study.metrics])


class _Sampler:
    """Optuna's side of a search: what it asks for as designs, and what became of them."""

    def __init__(self, study: Study, varied: DesignSpace):
        try:
            import optuna
        except ImportError:
            raise MissingExtra("optuna", "studies", 'sampling.kind = "search"') from None
        self.varied, self.metrics = varied, [METRICS[name] for name in study.metrics]
        self.limits = [*map(str, study.limits), FITS, HAS_RESULT]
        self.space = {key: _distribution(optuna.distributions, varied, key) for key in study.axes}
        said = optuna.logging.get_verbosity()
        optuna.logging.set_verbosity(optuna.logging.WARNING)  # else it announces a study of its own
        try:
            self.optuna = optuna.create_study(
                sampler=optuna.samplers.TPESampler(seed=study.sampling.seed, multivariate=True),
                directions=["minimize"] * len(self.metrics),
            )
        finally:
            optuna.logging.set_verbosity(said)
        self.failed = optuna.trial.TrialState.FAIL
        self.worst: list[float] = []
        self.trials: list[Any] = []
        base = {key: varied.base(key) for key in study.axes}
        nearest = {key: _nearest(varied, key, value, self.space[key]) for key, value in base.items()}
        self.base = {key: value for key, value in base.items() if _is_there(varied, key, value)}
        self.asked_base = False
        self.optuna.enqueue_trial(nearest)
        for end in (0, -1):
            self.optuna.enqueue_trial({key: _ends(space)[end] for key, space in self.space.items()})

    def designs(self, count: int) -> list[Design]:
        self.trials = [self.optuna.ask(self.space) for _ in range(count)]
        places = np.array([[self._place(key, trial.params[key]) for key in self.space] for trial in self.trials])
        designs = self.varied.at(places)
        if not self.asked_base:  # its values as they are, not by way of their places
            designs[:1] = self.varied.with_fixed(self.base).at(places[:1])
            self.asked_base = True
        return designs

    def tell(self, batch: Sequence[Trial]) -> None:
        """Unknown values count as the worst known ones; without any, Optuna learns nothing of the point."""
        losses = [
            [_loss(metric, value) for metric, value in zip(self.metrics, point.values.values(), strict=True)]
            for point in batch
        ]
        known = [loss for loss in [self.worst, *losses] if loss and not np.isnan(loss).any()]
        self.worst = [max(each) for each in zip(*known, strict=True)]
        for trial, point, loss in zip(self.trials, batch, losses, strict=True):
            if not self.worst:
                self.optuna.tell(trial, state=self.failed)
                continue
            for limit in self.limits:
                trial.set_constraint(limit, point.outside.get(limit, 0.0))
            self.optuna.tell(
                trial, [worst if np.isnan(each) else each for each, worst in zip(loss, self.worst, strict=True)]
            )

    def _place(self, key: str, asked: Any) -> float:
        values = self.varied.study.axes[key].values
        if values:
            return place_in_list(len(values), asked)
        return self.varied.place_in_range(key, asked) if self.varied.whole(key) else float(asked)


def _distribution(distributions: Any, varied: DesignSpace, key: str) -> Any:
    """Items of a list by number, whole numbers, or the place between the ends of a range."""
    axis = varied.study.axes[key]
    count = len(axis.values)
    if count:
        if varied.is_ordered(key):
            return distributions.IntDistribution(0, count - 1)
        return distributions.CategoricalDistribution(list(range(count)))
    if not varied.whole(key):
        return distributions.FloatDistribution(0.0, 1.0)
    low, high = (max(1, round(end)) if axis.log else round(end) for end in varied.ends(key))
    return distributions.IntDistribution(low, high, log=axis.log)


def _ends(space: Any) -> tuple[Any, Any]:
    choices = getattr(space, "choices", None)
    return (choices[0], choices[-1]) if choices else (space.low, space.high)


def _nearest(varied: DesignSpace, key: str, value: Any, space: Any) -> Any:
    """What to ask for to have the value, or the nearest to it; the first if it is no number."""
    low, high = _ends(space)
    values = [plain_value(key, item) for item in varied.study.axes[key].values]
    if value in values:
        return values.index(value)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return low
    if values:
        numbers = [abs(item - value) if isinstance(item, (int, float)) else np.inf for item in values]
        return int(np.argmin(numbers))
    if varied.whole(key):
        return min(max(round(value), low), high)
    return min(max(varied.place_in_range(key, value), low), high)


def _is_there(varied: DesignSpace, key: str, value: Any) -> bool:
    """Whether an axis has a value."""
    values = [plain_value(key, item) for item in varied.study.axes[key].values]
    if values:
        return value in values
    low, high = varied.ends(key)
    return isinstance(value, (int, float)) and low <= value <= high


def _loss(metric: Metric, value: float) -> float:
    return value if metric.better == "less" else -value


def _outside(limits: Sequence[Constraint], rows: Sequence[Row], values: Sequence[float]) -> dict[str, float]:
    """How far the worst row of a design is outside, by limit; what it keeps to is left out."""
    found = {str(limit): max(_excess(limit, row) for row in rows) for limit in limits}
    found[FITS] = max(map(_overflow, rows))
    if np.isnan(values).any() and found[FITS] <= 0:
        found[HAS_RESULT] = UNKNOWN
    return {name: excess for name, excess in found.items() if excess > 0}


def _excess(limit: Constraint, row: Row) -> float:
    value = limit.metric.of(row)
    if value is None:
        return UNKNOWN
    excess = value - limit.value if limit.end == "max" else limit.value - value
    return excess / (abs(limit.value) or 1.0)


def _overflow(row: Row) -> float:
    if row["fits"]:
        return 0.0
    over = row["peak_bytes"] / row["limit_bytes"] - 1 if row["peak_bytes"] else UNKNOWN
    return over if over > 0 else UNKNOWN  # its code does not fit


def _best_of(tried: Sequence[Trial], metrics: Sequence[Metric]) -> BestTrials:
    different = list({str(point.design): point for point in reversed(tried)}.values())[::-1]
    feasible = [point for point in different if not point.outside]
    losses = {point.number: tuple(_loss(metric, point.values[metric.name]) for metric in metrics) for point in feasible}
    ranked = sorted(feasible, key=lambda point: (*losses[point.number], point.number))
    if len(metrics) == 1:
        chosen = ranked[:MOST_NAMED]
    else:
        chosen = []
        for point in ranked:  # whatever is better in the first metric comes before
            ours = losses[point.number]
            if not any(all(np.array(losses[other.number]) <= ours) for other in chosen):
                chosen.append(point)
    broken = [limit for point in different for limit in point.outside]
    return BestTrials(
        points=tuple(chosen),
        base=tried[0],
        nearest=None if chosen else min(different, key=lambda point: (sum(point.outside.values()), point.number)),
        asked=len(tried),
        feasible=len(feasible),
        broken={limit: broken.count(limit) for limit in dict.fromkeys(broken)},
    )
