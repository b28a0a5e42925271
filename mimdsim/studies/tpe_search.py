"""The best points within a study's limits, found by Optuna's tree-structured Parzen estimator (J. Bergstra et al.,
NeurIPS 2011; of all axes together, S. Falkner et al., ICML 2018).

Points are asked for in batches of the same size whatever computes them, so a study finds the same points by any number
of processes, and again when it goes on after a cut. The first batch has the point of the unchanged descriptions (or the
nearest to it that the axes allow) and the two with all axes at their low and high ends.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any

import numpy as np

from mimdsim.base.errors import MissingExtra
from mimdsim.studies.description import Study
from mimdsim.studies.metrics import METRICS, Constraint, Row
from mimdsim.studies.results import is_number
from mimdsim.studies.sampling import Design, DesignSpace, metric_of_designs, plain_value

BATCH = 10  # points asked for before the results of the last ones are looked at
UNKNOWN = 1.0  # how far a point without result counts as outside a limit, as a share of it
FITS = "fits tile memory"
HAS_RESULT = "metrics are known"


def search_plan(study: Study, varied: DesignSpace) -> Generator[list[Design], list[list[Row]], None]:
    """`study.sampling.points` points, in batches; raises MissingExtra without Optuna."""
    try:
        import optuna
    except ImportError:
        raise MissingExtra("optuna", "studies", 'sampling.kind = "search"') from None
    metrics = [METRICS[name] for name in study.metrics]
    space = {key: _distribution(optuna.distributions, varied, key) for key in study.axes}
    said = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)  # else it announces a study of its own
    try:
        sampler = optuna.create_study(
            sampler=optuna.samplers.TPESampler(seed=study.sampling.seed, multivariate=True),
            directions=["minimize"] * len(metrics),
        )
    finally:
        optuna.logging.set_verbosity(said)
    base = {key: varied.base(key) for key in study.axes}
    nearest = {key: _nearest(varied, key, value, space[key]) for key, value in base.items()}
    sampler.enqueue_trial({key: asked for key, (asked, _) in nearest.items()})
    for end in (0, -1):
        sampler.enqueue_trial({key: _ends(each)[end] for key, each in space.items()})
    worst = np.full(len(metrics), -np.inf)
    for done in range(0, study.sampling.points, BATCH):
        trials = [sampler.ask(space) for _ in range(min(BATCH, study.sampling.points - done))]
        designs = [{key: _value(varied, key, trial.params[key]) for key in space} for trial in trials]
        if not done:  # values of the base as they are, not by way of their places
            designs[0] |= {key: value for key, value in base.items() if nearest[key][1]}
        rows = yield [varied.design(each) for each in designs]
        values = [metric_of_designs(metric, rows, study) for metric in metrics]
        losses = np.array([each if of.better == "less" else -each for of, each in zip(metrics, values, strict=True)]).T
        worst = np.vstack([worst, losses[~np.isnan(losses).any(axis=1)]]).max(axis=0)
        for trial, design, loss in zip(trials, rows, losses, strict=True):
            if not np.isfinite(worst).all():  # nothing is known yet: Optuna learns nothing of the point
                sampler.tell(trial, state=optuna.trial.TrialState.FAIL)
                continue
            for limit, excess in _outside(study.limits, design, unknown=bool(np.isnan(loss).any())).items():
                trial.set_constraint(limit, excess)
            sampler.tell(trial, np.where(np.isnan(loss), worst, loss).tolist())  # the worst where it is unknown


def _value(varied: DesignSpace, key: str, asked: Any) -> Any:
    if values := varied.study.axes[key].values:
        return varied.item(key, values[asked])
    return asked if varied.whole(key) else varied.value(key, asked)


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


def _nearest(varied: DesignSpace, key: str, value: Any, space: Any) -> tuple[Any, bool]:
    """What to ask for to have the value, or the nearest to it (the first if it is no number), and whether the axis has
    the value itself."""
    low, high = _ends(space)
    values = [plain_value(key, item) for item in varied.study.axes[key].values]
    if value in values:
        return values.index(value), True
    if not is_number(value):
        return low, False
    if values:
        return int(np.argmin([abs(item - value) if is_number(item) else np.inf for item in values])), False
    first, last = varied.ends(key)
    asked = round(value) if varied.whole(key) else varied.place_in_range(key, value)
    return min(max(asked, low), high), first <= value <= last


def _outside(limits: Sequence[Constraint], rows: Sequence[Row], unknown: bool) -> dict[str, float]:
    """By limit, how far the worst row of a design is outside it, as a share of it; 0: all keep to it."""
    excess = {str(limit): max(0.0, *(_excess(limit, row) for row in rows)) for limit in limits}
    excess[FITS] = max(map(_overflow, rows))
    excess[HAS_RESULT] = UNKNOWN if unknown and not excess[FITS] else 0.0
    return excess


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
