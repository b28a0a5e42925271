"""Two sides that a study compares point by point: two values of a field, or a tiled machine and the fastest GPU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mimdsim.report.formatting import field_values
from mimdsim.studies.description import Study
from mimdsim.studies.metrics import METRICS
from mimdsim.studies.pareto import Ranking
from mimdsim.studies.questions.kind import factor_text, named_axes


@dataclass(frozen=True, kw_only=True, eq=False)
class Contest:
    """How much better one side is than the other.

    sides: their names. apart: the field of which these are values, '' for machines. points: a design of the first side
    for each point at which both have a result. lead: float64[points], the logarithm of how many times as good as the
    second side the first is; drawn: float64[points, draws]. unmatched: points at which only one side has one.
    """

    sides: tuple[str, str]
    apart: str
    points: tuple[int, ...]
    lead: np.ndarray
    drawn: np.ndarray
    unmatched: int

    def named(self, side: str) -> str:
        """A side where a sentence mentions it first: 'network.spikes = dense', 'bow'."""
        return f"{self.apart} = {side}" if self.apart else side

    def other(self, side: str) -> str:
        return self.sides[1 - self.sides.index(side)]

    def factor(self, place: int) -> str:
        """How many times as good the better side is at one of `points`, with its interval."""
        sign = 1 if self.lead[place] >= 0 else -1
        return factor_text(float(np.exp(sign * self.lead[place])), np.exp(sign * self.drawn[place]))


def lacks_sides(study: Study) -> str:
    """A comparison with GPUs, or a field of names."""
    if _of_machines(study) or named_axes(study):
        return ""
    return 'two sides: an axis of names, such as "network.spikes", or gpus with metrics = ["gpu_ratio"]'


def _of_machines(study: Study) -> bool:
    return bool(study.gpus) and study.metrics[0] == "gpu_ratio"


def contests(ranking: Ranking) -> list[Contest]:
    """The tiled machine against the fastest GPU where the first metric is their ratio; else the first value of the
    first field of names against each other one."""
    study, kept = ranking.study, [int(at) for at in np.flatnonzero(ranking.kept)]
    if ranking.metrics[0] is METRICS["gpu_ratio"]:
        gpus = [Path(name).stem for name in study.gpus]
        sides = study.machine_name, gpus[0] if len(gpus) == 1 else f"the fastest of {', '.join(gpus)}"
        return [_contest(ranking, sides, "", [(at, None) for at in kept], len(ranking.designs) - len(kept))]
    name = named_axes(study)[0]
    column, names = ranking.column(name), field_values(name, ranking.column(name))
    values = list(dict.fromkeys(map(str, column)))
    shown = {str(value): text for value, text in zip(column, names, strict=True)}
    by: dict[tuple[str, ...], dict[str, int]] = {}
    for at in range(len(ranking.designs)):
        rest = tuple(str(ranking.designs[at][0][field]) for field in study.axes if field != name)
        by.setdefault(rest, {})[str(column[at])] = at
    found = []
    for other in values[1:]:
        pairs = [(one[values[0]], one[other]) for one in by.values() if values[0] in one and other in one]
        both = [(a, b) for a, b in pairs if ranking.kept[a] and ranking.kept[b]]
        if both:
            sides = shown[values[0]], shown[other]
            found.append(_contest(ranking, sides, name, both, len(by) - len(both)))
    return found


def _contest(
    ranking: Ranking, sides: tuple[str, str], apart: str, pairs: Sequence[tuple[int, int | None]], unmatched: int
) -> Contest:
    """Of designs of the first side, each with that of the second; without, the metric is the ratio of both."""
    first = np.array([a for a, _ in pairs], int)
    second = np.array([b for _, b in pairs if b is not None], int)
    metric, sign = ranking.metrics[0], 1 if ranking.metrics[0].better == "more" else -1
    part = next(ranking.draws.parts(2 * max(1, len(pairs))))

    def logarithm(values: np.ndarray) -> np.ndarray:
        return np.asarray(np.log(np.maximum(values, np.finfo(float).tiny)))

    lead, drawn = logarithm(ranking.middle[0, first]), logarithm(ranking.draws.metric(metric, first, part))
    if len(second):
        lead = lead - logarithm(ranking.middle[0, second])
        drawn = drawn - logarithm(ranking.draws.metric(metric, second, part))
    return Contest(
        sides=sides, apart=apart, points=tuple(map(int, first)), lead=sign * lead, drawn=sign * drawn,
        unmatched=unmatched,
    )  # fmt: skip
