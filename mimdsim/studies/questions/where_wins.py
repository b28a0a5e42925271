"""Where one side is better than the other: the share of the points, and the value of a field that parts them best."""

from __future__ import annotations

import numpy as np

from mimdsim.base.residuals import LEVEL
from mimdsim.base.units import counted
from mimdsim.report.formatting import chance, field_value
from mimdsim.report.tables import Table, table
from mimdsim.studies.pareto import Ranking
from mimdsim.studies.questions.kind import (
    Contest,
    QuestionKind,
    better_word,
    contests,
    lacks_sides,
    level_interval,
    threshold_text,
)
from mimdsim.studies.results import is_number

MOST_ROWS = 5  # points of a side
MOST_NAMED = 4  # points that a sentence names one by one
EVEN = ("grid", "random", "latin-hypercube", "sobol")  # sampling whose points are spread over the space evenly


def answer(ranking: Ranking) -> list[str]:
    found = contests(ranking)
    if not found:
        return ["Not known: at no point do both sides have a result that fits."]
    return [line for contest in found for line in _words(ranking, contest)]


def _wins(lead: np.ndarray, threshold: float) -> np.ndarray:
    """int of a lead's shape: 1 where the first side is better, -1 the second, 0 without practical difference."""
    return np.asarray(np.where(np.abs(lead) > np.log1p(threshold), np.sign(lead), 0).astype(int))


def _words(ranking: Ranking, contest: Contest) -> list[str]:
    threshold, word = ranking.study.practical_difference, better_word(ranking.metrics[0])
    wins = _wins(contest.lead, threshold)
    (first, second), points = contest.sides, len(contest.points)
    ours, theirs, even = (int((wins == which).sum()) for which in (1, -1, 0))
    every = f"all {points:,} points that fit" if points > 1 else "the one point that fits"
    if points in (ours, theirs):
        winner, loser = contest.sides if ours else contest.sides[::-1]
        ends = sorted(range(points), key=lambda place: abs(contest.lead[place]))
        far = f" to {contest.factor(ends[-1])}" if points > 1 else ""
        said = [f"{contest.named(winner)} is {word} than {loser} in {every}, by {contest.factor(ends[0])}{far}."]
        if points > 1:
            said.append(f"{loser} comes nearest at {_place(ranking, contest, ends[0])}.")
    elif even == points:
        said = [f"{threshold_text(ranking.study).capitalize()} between {contest.named(first)} and {second} in {every}."]
    elif points <= MOST_NAMED:
        said = [_by_side(ranking, contest, wins)]
    else:
        spread = ", spread evenly" if ranking.study.sampling.kind in EVEN else ""
        low, high = level_interval((_wins(contest.drawn, threshold) > 0).mean(axis=0))
        reach = f", {100 * low:.0f} % to {100 * high:.0f} % in {LEVEL:.0%} of the draws" if low != high else ""
        share = f"{100 * ours / points:.0f} %{reach}"
        rest = f"; {threshold_text(ranking.study)} in {even:,}" if even else ""
        said = [
            f"{contest.named(first)} is {word} than {second} in {ours:,} of {points:,} points{spread} ({share})"
            f"{_most(contest, 1)}; {second} in {theirs:,}{_most(contest, -1)}{rest}."
        ]
        said.append(_border_words(ranking, contest, wins))
    if contest.unmatched:
        said.append(f"Not compared, as one side has no result or does not fit: {counted(contest.unmatched, 'point')}.")
    return said


def _by_side(ranking: Ranking, contest: Contest, wins: np.ndarray) -> str:
    """Each of a few points, by the side that is better there."""
    word, said = better_word(ranking.metrics[0]), []
    for which, side in ((1, contest.sides[0]), (-1, contest.sides[1]), (0, threshold_text(ranking.study))):
        at = [
            f"{_place(ranking, contest, place)}"
            + (f", by {contest.factor(place)}, with probability {_chance(contest, place)}" if which else "")
            for place in np.flatnonzero(wins == which).tolist()
        ]
        if at:
            side = contest.named(side) if which else side
            said.append(f"{side}{f' is {word}' if which else ''} at {' and at '.join(at)}")
    return f"{'; '.join(said)}."


def _chance(contest: Contest, place: int) -> str:
    """The probability that the better side of a point is better."""
    return chance(float((contest.drawn[place] * contest.lead[place] > 0).mean()))


def _most(contest: Contest, sign: int) -> str:
    place = int((sign * contest.lead).argmax())
    return f", by up to {contest.factor(place)}" if sign * contest.lead[place] > 0 else ""


def _place(ranking: Ranking, contest: Contest, place: int) -> str:
    """A point of a contest by the fields that do not tell its sides apart."""
    return ranking.name(contest.points[place], (contest.apart,)) or "the machine as it is"


def _border_words(ranking: Ranking, contest: Contest, wins: np.ndarray) -> str:
    """The value of one field that puts most points on their side, if more than without it."""
    decided = np.flatnonzero(wins)
    ours, said = wins[decided] > 0, "No value of a single number parts them."
    most = max(int(ours.sum()), int((~ours).sum()))
    for name in ranking.study.varied:
        column = [ranking.column(name)[contest.points[place]] for place in decided]
        if not all(map(is_number, column)):
            continue
        order = np.argsort(np.array(column, float), kind="stable")
        x, sorted_ours = np.array(column, float)[order], ours[order]
        below = np.cumsum(sorted_ours)[:-1] + np.cumsum(~sorted_ours[::-1])[::-1][1:]
        for right, side in ((below, "below"), (len(ours) - below, "above")):  # most points of the first side are there
            right = np.where(x[:-1] < x[1:], right, 0)
            if len(right) and right.max() > most:
                at = int(right.argmax())
                most = int(right[at])
                low, high = (field_value(name, float(f"{end:.3g}")) for end in x[at : at + 2])
                said = (
                    f"The border that parts them best is {name} between {low} and {high}, {contest.sides[0]} {side} "
                    f"it: it puts {most:,} of {len(decided):,} points on their side."
                )
    return said


def tables(ranking: Ranking) -> list[Table]:
    """For each contest the points at which a side leads most."""
    made = []
    for place, contest in enumerate(contests(ranking)):
        order = np.argsort(-contest.lead, kind="stable").tolist()
        chosen = order if len(order) <= 2 * MOST_ROWS else [*order[:MOST_ROWS], *order[-MOST_ROWS:]]
        fields = [name for name in ranking.study.varied if name != contest.apart]
        rows = []
        for at in chosen:
            values = ranking.values(contest.points[at])
            better = contest.sides[0] if contest.lead[at] > 0 else contest.sides[1]
            rows.append([*(values[name] for name in fields), better, contest.factor(at), _chance(contest, at)])
        headers = [*fields, "better", "by", "p it is better"]
        less = f", {len(chosen)} of {len(order):,}" if len(chosen) < len(order) else ""
        caption = f"Where {contest.sides[0]} and {contest.sides[1]} lead most{less}"
        made.append(table(f"wins-{place}", caption, headers, rows))
    return made


KIND = QuestionKind(name="where-wins", lacks=lacks_sides, answer=answer, tables=tables)
