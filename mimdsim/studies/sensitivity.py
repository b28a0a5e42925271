"""Which axes matter, in two stages: Morris screening of all, then Sobol indices of the strongest.

Stage one changes one axis after the other along trajectories through the ranges (M. D. Morris, Technometrics 33, 1991).
The change of a metric, divided by how far the axis moved between its ends, is an elementary effect. Their mean has the
sign of the effect over the whole range; the mean of their sizes (F. Campolongo et al., Environmental Modelling &
Software 22, 2007) ranks the axes; their standard deviation is large if an axis acts on others or does not act linearly.

Stage two shares the variance of a metric out among the strongest axes, the others at their base values (A. Saltelli et
al., Computer Physics Communications 181, 2010): first order, what an axis does alone; total, with all its interactions.

Effects are taken over the distance between the values that the points really have: whole numbers and lists move in
steps. A point without result (it failed, does not fit its memory, or does not know the metric) takes with it the two
effects that it is an end of, and in stage two its block of points; both are counted.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from mimdsim.base.errors import DescriptionError, MimdsimError, MissingExtra
from mimdsim.base.shown import Shown
from mimdsim.studies.description import Study
from mimdsim.studies.metrics import METRICS, Row
from mimdsim.studies.sampling import Design, DesignSpace, metric_of_designs, value_text

LEVELS = 4  # of an axis in stage one: 0, 1/3, 2/3 and 1, two apart in each move (Morris)
LEAST_BLOCKS = 8  # of stage two; with fewer, confidence intervals say nothing


@dataclass(frozen=True, kw_only=True)
class Effect:
    """What an axis does to a metric, in the unit of the metric's column, from one end of its range to the other.

    ends: values there, as text. mean: with sign, None if the axis has no direction (a list of names). size: mean of the
    sizes. spread: standard deviation. count: elementary effects that it is of. Indices with the half-width of their
    95 % interval; None for an axis that stage two left at its base value.
    """

    axis: str
    ends: tuple[str, str]
    mean: float | None
    size: float
    spread: float
    count: int
    first_order: tuple[float, float] | None = None
    total: tuple[float, float] | None = None


@dataclass(frozen=True, kw_only=True)
class Sensitivity:
    """Effects on one metric, largest first. median: of the points of stage one. unknown: axes with fewer than two
    elementary effects. missing: points without the metric, by stage."""

    metric: str
    median: float
    effects: tuple[Effect, ...]
    unknown: tuple[str, ...]
    missing: tuple[int, ...]

    def percent(self, value: float) -> float:
        """A change of the metric as a share of its median."""
        return 100 * value / self.median if self.median else 0.0

    def bars(self) -> list[Row]:
        """The effects in percent of the median, as `report/figures_studies.py` draws them."""
        rows = [asdict(effect) for effect in self.effects]
        changes = ("mean", "size", "spread")
        return [row | {name: row[name] and self.percent(row[name]) for name in changes} for row in rows]


@dataclass(frozen=True, kw_only=True)
class Sensitivities(Shown):
    """What both stages found, by metric of the study. constant: axes whose range rounds to one value, left out.
    blocks: of stage two, each of the strongest axes plus two points."""

    metrics: tuple[Sensitivity, ...]
    trajectories: int
    blocks: int
    constant: tuple[str, ...]


def sensitivity_plan(study: Study, varied: DesignSpace) -> Generator[list[Design], list[list[Row]], Sensitivities]:
    """Points of both stages, at most `study.sampling.points` in each.

    Raises DescriptionError if these are too few, MissingExtra without SALib, and MimdsimError if the first metric is
    known at too few points.
    """
    screening = _Screening(study, varied)
    blocks = screening.blocks_of(study.sampling.strongest)  # too few points are reported before any is computed
    first = yield screening.designs
    found = [screening.effects(name, first) for name in study.metrics]
    if not found[0].effects:
        raise MimdsimError(
            f"sensitivity: '{study.metrics[0]}' is known at {len(first) - found[0].missing[0]} of {len(first)} points, "
            "too few for the effect of any axis; the other points failed, do not fit their memory or do not know it "
            "(column 'note'): give other ranges, another first metric or a larger machine"
        )
    chosen = [effect.axis for effect in found[0].effects if effect.size > 0][: study.sampling.strongest]
    if chosen:
        from SALib.sample import sobol

        blocks = screening.blocks_of(len(chosen))
        fixed = {key: varied.base(key) for key in study.axes if key not in chosen}
        places = sobol.sample(_cube(len(chosen)), blocks, calc_second_order=False, seed=study.sampling.seed)
        values = ({key: varied.value(key, float(u)) for key, u in zip(chosen, each, strict=True)} for each in places)
        second = yield [varied.design(fixed | each) for each in values]
        found = [_with_indices(each, second, chosen, study) for each in found]
    return Sensitivities(
        metrics=tuple(found),
        trajectories=screening.trajectories,
        blocks=blocks if chosen else 0,
        constant=screening.constant,
    )


class _Screening:
    """Trajectories of stage one. places: float64[points, live axes], where the values of `designs` stand in their
    ranges."""

    def __init__(self, study: Study, varied: DesignSpace):
        self.study, self.varied = study, varied
        levels = np.linspace(0, 1, LEVELS)
        settled = {key: [_value_and_place(varied, key, float(level)) for level in levels] for key in study.axes}
        self.live = [key for key in study.axes if len({place for _, place in settled[key]}) > 1]
        self.constant = tuple(key for key in study.axes if key not in self.live)
        if not self.live:
            raise DescriptionError("study", [f"axes.{key}: its range has one value" for key in self.constant])
        points, count = study.sampling.points, len(self.live)
        self.trajectories = points // (count + 1)
        if self.trajectories < 2:
            problem = f"a sensitivity of {count} axes needs at least {2 * (count + 1)}; {10 * (count + 1)} are usual"
            raise DescriptionError("study", [f"sampling.points = {points}: {problem}"])
        at_level = np.rint(_sample_morris(count, self.trajectories, study.sampling.seed) * (LEVELS - 1)).astype(int)
        points_at = [{key: settled[key][level] for key, level in zip(self.live, row, strict=True)} for row in at_level]
        self.places = np.array([[place for _, place in each.values()] for each in points_at])
        fixed = {key: settled[key][0][0] for key in self.constant}
        self.designs = [varied.design(fixed | {key: value for key, (value, _) in each.items()}) for each in points_at]

    def blocks_of(self, strongest: int) -> int:
        """A power of two, as many as fit in the study's points; 0 without a stage two."""
        size = min(strongest, len(self.live)) + 2
        if size == 2:
            return 0
        if self.study.sampling.points < LEAST_BLOCKS * size:
            problem = f"Sobol indices of {size - 2} axes need at least {LEAST_BLOCKS * size}; strongest = 0 leaves them"
            raise DescriptionError("study", [f"sampling.points = {self.study.sampling.points}: {problem}"])
        return 1 << (self.study.sampling.points // size).bit_length() - 1

    def effects(self, name: str, rows: Sequence[Sequence[Row]]) -> Sensitivity:
        values = metric_of_designs(METRICS[name], rows, self.study)
        shape = self.trajectories, len(self.live) + 1
        changes = np.diff(values.reshape(shape), axis=1)
        moves = np.diff(self.places.reshape(*shape, -1), axis=1)  # each of one axis
        effects, unknown = [], list[str]()
        for column, key in enumerate(self.live):
            chosen = np.isfinite(changes) & (moves[:, :, column] != 0)
            each = changes[chosen] / moves[:, :, column][chosen]
            if len(each) < 2:
                unknown.append(key)
                continue
            effects.append(
                Effect(
                    axis=key,
                    ends=(value_text(key, self.varied.value(key, 0.0)), value_text(key, self.varied.value(key, 1.0))),
                    mean=float(each.mean()) if self.varied.has_direction(key) else None,
                    size=float(np.abs(each).mean()),
                    spread=float(each.std(ddof=1)),
                    count=len(each),
                )
            )
        missing = int(np.isnan(values).sum())
        return Sensitivity(
            metric=name,
            median=float(np.nanmedian(values)) if missing < len(values) else 0.0,
            effects=tuple(sorted(effects, key=lambda effect: -effect.size)),
            unknown=tuple(unknown),
            missing=(missing,),
        )


def _value_and_place(varied: DesignSpace, key: str, level: float) -> tuple[Any, float]:
    """The value at a level, and where it stands in the range; items of a list are at equal distances."""
    if values := varied.study.axes[key].values:
        index = round(level * (len(values) - 1))
        return varied.item(key, values[index]), index / max(1, len(values) - 1)
    value = varied.value(key, level)
    return value, varied.place_in_range(key, value) if varied.whole(key) else level


def _with_indices(
    found: Sensitivity, rows: Sequence[Sequence[Row]], chosen: Sequence[str], study: Study
) -> Sensitivity:
    """`found` with first order and total index of the chosen axes, each with its half-width; without, where too few
    blocks, float64[blocks, axes + 2], are complete or nothing varies."""
    from SALib.analyze import sobol

    values = metric_of_designs(METRICS[found.metric], rows, study)
    found = replace(found, missing=(*found.missing, int(np.isnan(values).sum())))
    blocks = values.reshape(-1, len(chosen) + 2)
    blocks = blocks[np.isfinite(blocks).all(axis=1)]
    if len(blocks) < LEAST_BLOCKS or not np.ptp(blocks) > 0:
        return found
    # seed + 1: SALib takes the seed 0 as none
    analysis = sobol.analyze(_cube(len(chosen)), blocks.ravel(), calc_second_order=False, seed=study.sampling.seed + 1)
    columns = [map(float, analysis[name]) for name in ("S1", "S1_conf", "ST", "ST_conf")]
    indices = {key: ((one[0], one[1]), (one[2], one[3])) for key, *one in zip(chosen, *columns, strict=True)}
    effects = []
    for effect in found.effects:
        first, total = indices.get(effect.axis, (None, None))
        effects.append(replace(effect, first_order=first, total=total))
    return replace(found, effects=tuple(effects))


def _sample_morris(axes: int, trajectories: int, seed: int) -> np.ndarray:
    """float64[trajectories * (axes + 1), axes] in the unit cube."""
    try:
        from SALib.sample import morris
    except ImportError:
        raise MissingExtra("SALib", "studies", 'sampling.kind = "sensitivity"') from None
    return np.asarray(morris.sample(_cube(axes), trajectories, num_levels=LEVELS, seed=seed))


def _cube(axes: int) -> dict[str, Any]:
    return {"num_vars": axes, "names": [f"{number}" for number in range(axes)], "bounds": [[0, 1]] * axes}
