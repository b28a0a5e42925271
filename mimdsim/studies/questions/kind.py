"""What a kind of question is: what a study needs for it, the sentences that answer it, and the tables they rest on; and
two sides that a study compares point by point: two values of a field, or a tiled machine and the fastest GPU."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mimdsim.base.residuals import LEVEL
from mimdsim.report.formatting import field_values, significant
from mimdsim.report.tables import Table
from mimdsim.studies.description import Axis, Study
from mimdsim.studies.metrics import METRICS, Metric
from mimdsim.studies.pareto import Ranking
from mimdsim.studies.results import is_number
from mimdsim.studies.sampling import plain_value

OF_TIME = ("time", "ratio", "throughput", "latency", "gpu_ratio")


@dataclass(frozen=True, kw_only=True)
class QuestionKind:
    """One kind of question, as `question_kind` of a study names it.

    lacks: what a study has to have besides, in words that complete "needs ..."; '' if it has all. answer: sentences,
    the one that answers the question first. tables: what they rest on. would_change: what would change the answer.
    of_kept: whether it is about points that fit and keep to the constraints, so that there is no answer without any.
    """

    name: str
    lacks: Callable[[Study], str]
    answer: Callable[[Ranking], list[str]]
    tables: Callable[[Ranking], list[Table]]
    would_change: Callable[[Ranking], list[str]] = lambda ranking: []
    of_kept: bool = True


def number_axes(study: Study) -> list[str]:
    """The axes whose values are numbers."""
    return [key for key, axis in study.axes.items() if _of_numbers(key, axis)]


def named_axes(study: Study) -> list[str]:
    """The axes of at least two values that are no numbers."""
    return [key for key, axis in study.axes.items() if len(axis.values) > 1 and not _of_numbers(key, axis)]


def _of_numbers(key: str, axis: Axis) -> bool:
    return all(is_number(plain_value(key, value)) for value in axis.values)


def lacks_numbers(study: Study) -> str:
    return "" if number_axes(study) else "an axis of numbers"


def curves(ranking: Ranking, along: str, places: Sequence[int], *apart: str) -> dict[str, list[int]]:
    """The designs at `places` by what they have besides `along` and the fields `apart`, as text; along each the numbers
    rise. Coupled fields follow from others and tell no curves apart."""
    numbers, found = ranking.column(along), dict[str, list[int]]()
    for place in places:
        found.setdefault(ranking.name(place, (along, *apart, *ranking.study.coupled)), []).append(place)
    return {name: sorted(those, key=lambda at: numbers[at]) for name, those in found.items()}


def level_interval(drawn: Any) -> tuple[float, float]:
    """The ends between which the share LEVEL of draws lies."""
    known = np.asarray(drawn, float)
    known = np.sort(known[~np.isnan(known)])
    if not len(known):
        return np.nan, np.nan
    low, high = (known[min(int(share * len(known)), len(known) - 1)] for share in ((1 - LEVEL) / 2, (1 + LEVEL) / 2))
    return float(low), float(high)


def factor_text(middle: float, drawn: Any) -> str:
    """'1.34 times (1.3 to 1.38)': a factor and the interval of its draws."""
    low, high = level_interval(drawn)
    ends = [significant(end) for end in (middle, low, high)]
    return f"{ends[0]} times" + (f" ({ends[1]} to {ends[2]})" if ends[1] != ends[2] else "")


def threshold_text(study: Study) -> str:
    """'no practical difference (under 2 %)'."""
    return f"no practical difference (under {100 * study.practical_difference:.3g} %)"


def better_word(metric: Metric) -> str:
    return "faster" if metric.name in OF_TIME else f"better in {metric.name.replace('_', ' ')}"


class Contest:
    """How much better one side is than the other.

    sides: their names. apart: the field of which these are values, '' for machines. points: a design of the first side
    for each point at which both have a result. lead: float64[points], the logarithm of how many times as good as the
    second side the first is; drawn: float64[points, draws]. unmatched: points at which only one side has one.
    """

    def __init__(
        self,
        ranking: Ranking,
        sides: tuple[str, str],
        apart: str,
        pairs: Sequence[tuple[int, int | None]],
        unmatched: int,
    ):
        """Of designs of the first side, each with that of the second; without, the metric is the ratio of both."""
        self.sides, self.apart, self.unmatched = sides, apart, unmatched
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
        self.points, self.lead, self.drawn = tuple(map(int, first)), sign * lead, sign * drawn
        self.places = {at: place for place, at in enumerate(self.points)}

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
    if (study.gpus and study.metrics[0] == "gpu_ratio") or named_axes(study):
        return ""
    return 'two sides: an axis of names, such as "network.spikes", or gpus with metrics = ["gpu_ratio"]'


def contests(ranking: Ranking) -> list[Contest]:
    """The tiled machine against the fastest GPU where the first metric is their ratio; else the first value of the
    first field of names against each other one."""
    study, kept = ranking.study, [int(at) for at in np.flatnonzero(ranking.kept)]
    if ranking.metrics[0] is METRICS["gpu_ratio"]:
        gpus = [Path(name).stem for name in study.gpus]
        sides = study.machine_name, gpus[0] if len(gpus) == 1 else f"the fastest of {', '.join(gpus)}"
        return [Contest(ranking, sides, "", [(at, None) for at in kept], len(ranking.designs) - len(kept))]
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
            found.append(Contest(ranking, sides, name, both, len(by) - len(both)))
    return found
