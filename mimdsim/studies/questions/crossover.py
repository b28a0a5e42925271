"""From which value of the first axis of numbers on one side is better than the other.

Between two values that were looked at, the logarithm of how many times better one side is, is taken as straight (over
the logarithm of the value, where all are positive). A draw of the uncertain costs moves the crossover; the interval of
its value is that of the draws. How the lead bends between the two values is not part of it, so these are said too.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mimdsim.base.residuals import LEVEL
from mimdsim.base.units import counted
from mimdsim.report.formatting import field_value
from mimdsim.report.tables import Table, table
from mimdsim.studies.description import Study
from mimdsim.studies.pareto import Ranking
from mimdsim.studies.questions.kind import (
    Contest,
    QuestionKind,
    better_word,
    contests,
    curves,
    lacks_numbers,
    lacks_sides,
    level_interval,
    number_axes,
    threshold_text,
)


@dataclass(frozen=True, kw_only=True)
class Crossing:
    """Where the sides change places along a curve. better: the side that is better from there on. value: with the ends
    of its interval, infinite beyond the values looked at. between: the two values next to it. alike: where the sides
    differ by no practical difference."""

    better: str
    value: tuple[float, float, float]
    between: tuple[float, float]
    alike: tuple[float, float]


class Curve:
    """A contest along an axis; ends: its first and last value, the side that is better there, and how many times;
    alike: whether that is no practical difference."""

    def __init__(self, ranking: Ranking, contest: Contest, name: str, along: str, those: list[int]):
        x = np.array([ranking.column(along)[at] for at in those], float)
        rows, least = [contest.places[at] for at in those], ranking.study.practical_difference
        self.name, self.contest, self.crossings = name, contest, _crossings(contest, x, rows, least)
        self.ends = [
            (float(x[end]), contest.sides[int(contest.lead[rows[end]] < 0)], contest.factor(rows[end]))
            for end in (0, -1)
        ]
        self.alike = [abs(float(contest.lead[rows[end]])) < np.log1p(least) for end in (0, -1)]


def lacks(study: Study) -> str:
    return lacks_numbers(study) or lacks_sides(study)


def curves_of(ranking: Ranking) -> list[Curve]:
    along = number_axes(ranking.study)[0]
    return [
        Curve(ranking, contest, name, along, those)
        for contest in contests(ranking)
        for name, those in curves(ranking, along, contest.points, contest.apart).items()
    ]


def _crossings(contest: Contest, x: np.ndarray, rows: list[int], threshold: float) -> list[Crossing]:
    lead, drawn = contest.lead[rows], contest.drawn[rows]
    place = np.log(x) if (x > 0).all() else x
    back = np.exp if (x > 0).all() else np.asarray
    found = []
    for at in np.flatnonzero((lead[:-1] > 0) != (lead[1:] > 0)).tolist():
        falls = bool(lead[at] > 0)
        shares = (lead[at] - np.array([0.0, *np.log1p([threshold, -threshold])])) / (lead[at] - lead[at + 1])
        middle, low, high = back(place[at] + shares * (place[at + 1] - place[at])).tolist()
        each = _of_draws(place, drawn, at, falls)
        interval = level_interval(np.where(np.isinf(each), each, back(np.where(np.isinf(each), 0.0, each))))
        found.append(
            Crossing(
                better=contest.sides[int(falls)],
                value=(middle, *interval),
                between=(float(x[at]), float(x[at + 1])),
                alike=(min(low, high), max(low, high)),
            )
        )
    return found


def _of_draws(place: np.ndarray, drawn: np.ndarray, at: int, falls: bool) -> np.ndarray:
    """float64[draws]: of each draw the crossing in the same direction that is next to the one at `at`; infinite where
    one side is better throughout, nan where sides change places in the other direction only."""
    ahead = drawn > 0 if falls else drawn <= 0
    crosses = ahead[:-1] & ~ahead[1:]
    distance = np.abs(np.arange(len(place) - 1) - at)[:, None] + np.where(crosses, 0, len(place))
    nearest = distance.argmin(axis=0)
    draws = np.arange(drawn.shape[1])
    before, after = drawn[nearest, draws], drawn[nearest + 1, draws]
    with np.errstate(divide="ignore", invalid="ignore"):
        share = before / (before - after)
    value = place[nearest] + share * (place[nearest + 1] - place[nearest])
    none = np.where(ahead.all(axis=0), np.inf, np.where(~ahead.any(axis=0), -np.inf, np.nan))
    return np.asarray(np.where(crosses.any(axis=0), value, none))


def answer(ranking: Ranking) -> list[str]:
    found, along = curves_of(ranking), number_axes(ranking.study)[0]
    word, said = better_word(ranking.metrics[0]), list[str]()
    if not found:
        return ["No crossover is known: at no point do both sides have a result that fits."]
    crossed = [curve for curve in found if curve.crossings]
    if len(crossed) == 1:
        said.append(_crossing_words(crossed[0], along, word))
    elif crossed:
        values = [crossing.value[0] for curve in crossed for crossing in curve.crossings]
        low, high = (field_value(along, float(f"{end:.3g}")) for end in (min(values), max(values)))
        pairs = {curve.contest.sides for curve in crossed}
        of_pairs = [curve for curve in found if curve.contest.sides in pairs]
        one = crossed[0].contest
        side = f"The better of {one.named(one.sides[0])} and {one.sides[1]}" if len(pairs) == 1 else "The better side"
        said.append(
            f"{side} changes at {along} = {low} to {high}, at another value on each of "
            f"{len(crossed):,} of {counted(len(of_pairs), 'curve')}; the table has each with its interval."
        )
    said += _throughout(found, along, word)
    if crossed:
        said.append(
            f"Each value is interpolated between the two that were looked at around it; {LEVEL:.0%} of the draws of "
            "uncertain costs are in its interval."
        )
    if out := sum(contest.unmatched for contest in {id(curve.contest): curve.contest for curve in found}.values()):
        said.append(f"Not compared, as one side has no result or does not fit: {counted(out, 'pair')} of points.")
    return said


def _crossing_words(curve: Curve, along: str, word: str) -> str:
    where = f" ({curve.name})" if curve.name else ""
    parts = []
    for crossing in curve.crossings:
        named, other = curve.contest.named(crossing.better), curve.contest.other(crossing.better)
        parts.append(f"from {along} = {_value(along, crossing)} on, {named} is {word} than {other}")
    ends = " and ".join(f"{factor} at {field_value(along, x)} for {side}" for x, side, factor in curve.ends)
    text = "; ".join(parts)
    return f"{text[0].upper()}{text[1:]}{where}: {ends}."


def _throughout(found: list[Curve], along: str, word: str) -> list[str]:
    """Curves on which one side is better everywhere, by side, of the curves of both sides."""
    winners: dict[tuple[str, str], list[Curve]] = {}
    for curve in found:
        if not curve.crossings:
            side = curve.ends[0][1]
            winners.setdefault((curve.contest.named(side), curve.contest.other(side)), []).append(curve)
    said = []
    for (side, other), those in winners.items():
        low, high = (field_value(along, those[0].ends[end][0]) for end in (0, -1))
        factors = ", ".join(
            f"no practical difference at {at}" if alike else f"{end[2]} at {at}"
            for end, at, alike in zip(those[0].ends, (low, high), those[0].alike, strict=True)
        )
        both = sum(curve.contest.sides == those[0].contest.sides for curve in found)
        on = "" if both == 1 else f" on {len(those):,} of {counted(both, 'curve')}, such as {those[0].name}"
        said.append(f"{side} is {word} than {other} at every {along} looked at{on}: {factors}.")
    return said


def _value(along: str, crossing: Crossing) -> str:
    """'0.042 (0.036 to 0.048)', an end beyond what was looked at as such."""
    middle, low, high = (field_value(along, float(f"{end:.3g}")) for end in crossing.value)
    low = "below what was looked at" if np.isinf(crossing.value[1]) else low
    high = "above what was looked at" if np.isinf(crossing.value[2]) else high
    return f"{middle} ({low} to {high})" if low != high else middle


def tables(ranking: Ranking) -> list[Table]:
    """A row for each crossover of each curve, and for each curve without one."""
    along, rows = number_axes(ranking.study)[0], []
    for curve in curves_of(ranking):
        sides, ends = " or ".join(curve.contest.sides), [f"{side}, {factor}" for _, side, factor in curve.ends]
        for one in curve.crossings or (None,):
            cells = ["none", "-", "-", "-"]
            if one is not None:
                between, alike = (
                    " to ".join(field_value(along, float(f"{end:.3g}")) for end in pair)
                    for pair in (one.between, one.alike)
                )
                cells = [_value(along, one), one.better, between, alike]
            rows.append([curve.name or "-", sides, *cells, *ends])
    headers = ["curve", "sides", f"crossover in {along}", "better from there on", "interpolated between"]
    headers += [threshold_text(ranking.study), "at the first value", "at the last value"]
    return [table("crossover", "Crossovers", headers, rows)] if rows else []


def would_change(ranking: Ranking) -> list[str]:
    """Crossovers that a draw moves out of the values that were looked at, or that lie far from both neighbours."""
    along, said = number_axes(ranking.study)[0], list[str]()
    if not ranking.metrics or not ranking.kept.any():
        return said
    for curve in curves_of(ranking):
        for one in curve.crossings:
            low, high = (field_value(along, end) for end in one.between)
            name = f" ({curve.name})" if curve.name else ""
            said.append(f"Nothing is known between {along} = {low} and {high}{name}: a value there is more certain.")
            if not np.isfinite(one.value[1:]).all():
                said.append(f"Some draws have no crossover among the values looked at{name}; look at more of {along}.")
    return said[:4]


KIND = QuestionKind(name="crossover", lacks=lacks, answer=answer, tables=tables, would_change=would_change)
