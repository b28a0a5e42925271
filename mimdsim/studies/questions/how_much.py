"""By how much the first metric changes when each number is doubled.

All points that are kept are fitted together: the logarithm of the metric as a sum over the axes, straight over the
logarithm of a number (log2 x: one unit is a doubling), or over the number itself where its range begins at zero or
below (x over half its largest value: one unit is the doubling up to the largest). Intervals join what the uncertain
costs do to an effect, by draws, with the standard error of the fit: how far the points scatter about it.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from mimdsim.base.residuals import LEVEL
from mimdsim.report.formatting import field_value, percent_of, significant
from mimdsim.report.tables import Table, table
from mimdsim.studies.pareto import Ranking
from mimdsim.studies.questions.kind import QuestionKind, lacks_numbers, named_axes, number_axes, threshold_text

MOST_NAMED = 3
PARTS = ("compute", "exchange", "sync")
OF_ALL = "chip.clock_hz"  # which scales all of these


@dataclass(frozen=True, kw_only=True)
class Doubling:
    """What a doubling of `field` does: the metric becomes so many times as large, with the ends of its interval."""

    field: str
    doubled: str
    factor: tuple[float, float, float]


@dataclass(frozen=True, kw_only=True)
class Fit:
    """doublings: the largest first. unexplained: the share of the variance of the metric's logarithm that the fit
    leaves. fixed: numbers that have one value in all points."""

    doublings: tuple[Doubling, ...]
    unexplained: float
    fixed: tuple[str, ...]


def fit_of(ranking: Ranking) -> Fit | None:
    """None: there are too few points, numbers that move together only, or the metric is not above zero everywhere."""
    kept = np.flatnonzero(ranking.kept)
    numbers = {name: np.array([ranking.column(name)[at] for at in kept], float) for name in number_axes(ranking.study)}
    varied = [name for name, x in numbers.items() if len(kept) and np.ptp(x) > 0]
    columns, doubled = [np.ones(len(kept))], []
    for name in varied:
        x, largest = numbers[name], max(abs(numbers[name].min()), abs(numbers[name].max()))
        columns.append(np.log2(x) if x.min() > 0 else 2 * x / largest)
        ends = (field_value(name, float(f"{end:.4g}")) for end in (largest / 2, largest))
        doubled.append("any doubling" if x.min() > 0 else " to ".join(ends))
    for name in named_axes(ranking.study):
        values = [str(ranking.column(name)[at]) for at in kept]
        columns += [np.array([value == other for value in values], float) for other in dict.fromkeys(values)][1:]
    matrix = np.stack(columns, axis=1)
    middle = ranking.middle[0, kept]
    enough = len(kept) > matrix.shape[1] and np.linalg.matrix_rank(matrix) == matrix.shape[1]
    if not varied or not enough or not (middle > 0).all():
        return None
    inverse = np.linalg.pinv(matrix)
    logs = np.log(middle)
    effects = inverse @ logs
    rest, spread = logs - matrix @ effects, float(((logs - logs.mean()) ** 2).sum())
    variance = float((rest**2).sum()) / (len(kept) - matrix.shape[1])
    error = np.sqrt(variance * (inverse**2).sum(axis=1))
    part = next(ranking.draws.parts(len(kept)))
    drawn = ranking.draws.metric(ranking.metrics[0], kept, part)
    of_draws = (inverse @ np.log(np.maximum(drawn, np.finfo(float).tiny))).std(axis=1)
    reach = NormalDist().inv_cdf((1 + LEVEL) / 2) * np.hypot(error, of_draws)
    found = []
    for place, (name, said) in enumerate(zip(varied, doubled, strict=True), start=1):
        low, factor, high = (float(np.exp(effects[place] + side * reach[place])) for side in (-1, 0, 1))
        found.append(Doubling(field=name, doubled=said, factor=(factor, low, high)))
    return Fit(
        doublings=tuple(sorted(found, key=lambda each: -abs(np.log(each.factor[0])))),
        unexplained=float((rest**2).sum()) / spread if spread > 0 else 0.0,
        fixed=tuple(name for name in numbers if name not in varied),
    )


def answer(ranking: Ranking) -> list[str]:
    found, metric = fit_of(ranking), ranking.metrics[0].name.replace("_", " ")
    if found is None:
        why = f"too few points with a {metric} above zero, or numbers that only move together"
        return [f"Unknown: {why}; give more points, as a grid or evenly spread."]
    least = np.log1p(ranking.study.practical_difference)
    matter = [each for each in found.doublings if abs(np.log(each.factor[0])) > least]
    others = [each.field for each in found.doublings if each not in matter]
    said = []
    if matter:
        first, *rest = matter
        then = "; ".join(f"{each.field} {_factor(each)}" for each in rest[:MOST_NAMED])
        said.append(
            f"Doubling {first.field} changes the {metric} most, to {_factor(first)}"
            + (f"; then {then}." if then else ".")
        )
    if any(each.field == OF_ALL for each in matter):
        said.append(
            f"{OF_ALL} scales {', '.join(PARTS[:-1])} and {PARTS[-1]} alike: what of them limits, their shares say."
        )
    if others:
        said.append(f"Doubling makes {threshold_text(ranking.study)} in the {metric}: {', '.join(others)}.")
    said += _parts_of_time(ranking)
    said.append(
        f"Effects are those of one fit to all points, which leaves {percent_of(100 * found.unexplained)} of the "
        f"variance of the {metric}'s logarithm unexplained; their intervals are those of {LEVEL:.0%}."
    )
    return said


def _factor(each: Doubling) -> str:
    ends = [significant(end) for end in each.factor]
    at = "" if each.doubled == "any doubling" else f" from {each.doubled}"
    return f"{ends[0]} times ({ends[1]} to {ends[2]}){at}"


def _parts_of_time(ranking: Ranking) -> list[str]:
    """What the cycles of the kept points go to: medians of their shares."""
    shares = []
    for at in np.flatnonzero(ranking.kept):
        for row in ranking.designs[at]:
            cycles = [float(row.get(f"{name}_cycles") or 0) for name in PARTS]
            if any(cycles):
                shares.append([each / sum(cycles) for each in cycles])
    if not shares:
        return []
    low, middle, high = np.percentile(np.array(shares), [10, 50, 90], axis=0)
    named = (
        f"{name} {percent_of(100 * middle[at])} ({significant(100 * low[at], 2)} to {significant(100 * high[at], 2)})"
        for at, name in sorted(enumerate(PARTS), key=lambda each: -middle[each[0]])
    )
    return [f"Of the cycles, in the median of the points (in four of five of them): {', '.join(named)}."]


def tables(ranking: Ranking) -> list[Table]:
    found = fit_of(ranking) if ranking.metrics and ranking.kept.any() else None
    if found is None:
        return []
    metric = ranking.metrics[0].name
    rows = [[each.field, each.doubled, *(significant(end) for end in each.factor)] for each in found.doublings]
    rows += [[name, "one value in all points", "-", "-", "-"] for name in found.fixed]
    headers = ["number", "doubled", f"{metric} becomes, times", "low", "high"]
    return [table("doublings", "The effect of doubling each number", headers, rows)]


def would_change(ranking: Ranking) -> list[str]:
    return ["Every effect is that of the ranges that were given, the other fields as the machine and the study say."]


KIND = QuestionKind(name="how-much", lacks=lacks_numbers, answer=answer, tables=tables, would_change=would_change)
