"""What a kind of question is: what a study needs for it, the sentences that answer it, and the tables they rest on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mimdsim.base.residuals import LEVEL
from mimdsim.report.formatting import significant
from mimdsim.report.tables import Table
from mimdsim.studies.description import Axis, Study
from mimdsim.studies.metrics import Metric
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
    other = [at for at, name in enumerate(ranking.study.varied) if name in ranking.study.axes]
    other = [at for at in other if ranking.study.varied[at] not in (along, *apart)]
    numbers, found = ranking.column(along), dict[str, list[int]]()
    for place in places:
        values = ranking.values(place)
        found.setdefault(", ".join(f"{ranking.study.varied[at]} = {values[at]}" for at in other), []).append(place)
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
