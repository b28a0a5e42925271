"""Which of the design choices is best: of all points, or, where properties of the workload vary, for each workload."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from mimdsim.base.units import counted, show_bytes
from mimdsim.report.formatting import chance, field_value, quantity, rounded
from mimdsim.report.tables import Table, table
from mimdsim.studies.metrics import Constraint, Row, over_workloads
from mimdsim.studies.pareto import Ranking, resolution
from mimdsim.studies.questions.kind import QuestionKind, factor_text, level_interval, number_axes, threshold_text
from mimdsim.studies.results import RATIOS, is_number

MOST_ROWS, MOST_VALUES = 10, 6
MOST_NAMED = 4  # points in a sentence
MOST_RIVALS = 5
LIKELY = 0.1  # a rival that is better with more than this probability is named
RATIO_OF_TIME = ("time", "ratio", "throughput")  # which the ratio of two times tells


def which_of(ranking: Ranking) -> list[str]:
    best = ranking.best
    if best is None:
        return list(_by_workload(ranking))
    return [*_where_it_does_not_matter(ranking), *_best(ranking, best), *_front(ranking)]


def _where_it_does_not_matter(ranking: Ranking) -> Iterator[str]:
    """From which value of a single number on, or else up to which, it makes no practical difference."""
    along, *others = [*ranking.study.varied, ""]
    if others != [""] or [along] != number_axes(ranking.study):
        return
    rising = sorted(np.flatnonzero(ranking.kept).tolist(), key=lambda at: ranking.column(along)[at])
    for word, places in (("From {} on", rising[::-1]), ("Up to {}", rising)):
        values = ranking.middle[0, places]
        spread = np.maximum.accumulate(values) - np.minimum.accumulate(values)
        even = spread <= ranking.study.practical_difference * np.abs(values)
        if 1 < (flat := int(even.argmin())) < len(places):
            where = word.format(f"{along} = {ranking.values(places[flat - 1])[along]}")
            yield f"{where}, it makes {threshold_text(ranking.study)} in {ranking.metrics[0].name}."
            return


def _by_workload(ranking: Ranking) -> Iterator[str]:
    """What is best for each workload, from the choice that is best for most of them to the one for fewest."""
    first, names = ranking.metrics[0].name, " and ".join(ranking.conditions)
    one = len(ranking.conditions) == 1
    belong = f"which {'belongs' if one else 'belong'} to the workload and {'is no choice' if one else 'are no choices'}"
    if not ranking.contests:
        yield f"Nothing is ranked: no two points have the same {names}, {belong}."
        return
    winners: dict[str, list[str]] = {}
    for best, others in ranking.contests:
        what, *more = (ranking.name(at, ranking.conditions) for at in (best, *ranking.alike(best, others)))
        if more:
            what = f"{threshold_text(ranking.study)} between {_some([what, *more])}"
        winners.setdefault(what, []).append(_workload(ranking, best))
    likely = [float(ranking.best_p[best]) for best, others in ranking.contests if not ranking.alike(best, others)]
    sure = f"; the least certain of these with probability {chance(min(likely))}" if likely else ""
    said = [
        f"{what} ({_some(those)})" for what, those in sorted(winners.items(), key=lambda each: -len(each[1]))
    ]  # fmt: skip
    yield f"Best in {first} at each {names}, {belong}: {'; '.join(said[:MOST_NAMED])}{sure}."
    if len(said) > MOST_NAMED:
        yield f"{counted(len(said) - MOST_NAMED, 'more choice is', 'more choices are')} best for some workload."


def _some(names: Sequence[str]) -> str:
    last = names[-1] if len(names) <= MOST_NAMED + 1 else f"{len(names) - MOST_NAMED:,} more"
    return " and ".join(filter(None, [", ".join(names[: min(MOST_NAMED, len(names) - 1)]), last]))


def _workload(ranking: Ranking, at: int) -> str:
    named = ranking.values(at)
    single = len(ranking.conditions) == 1
    return ", ".join(named[key] if single else f"{key} = {named[key]}" for key in ranking.conditions)


def _workloads_table(ranking: Ranking) -> Table:
    metric = ranking.metrics[0].name
    headers = [*ranking.conditions, "best", metric, "next", f"its {metric} over the best's", "p best"]
    rows = []
    for best, (rival, *_) in ranking.contests:
        cells = [ranking.values(best)[name] for name in ranking.conditions]
        choice, next_one = (ranking.name(at, ranking.conditions) for at in (best, rival))
        cells += [choice, ranking.shown(0, best), next_one]
        rows.append([*cells, factor_text(*ranking.ratio(rival, best)), chance(float(ranking.best_p[best]))])
    return table("best", "Best of each workload", headers, rows)


def tables(ranking: Ranking) -> list[Table]:
    """The best of each workload; else the front if there are several metrics, or the best points."""
    made = [_workloads_table(ranking)] if ranking.conditions else [_best_table(ranking), _values_table(ranking)]
    return [each for each in made if each.rows]


def would_change(ranking: Ranking) -> list[str]:
    if ranking.best is None:
        return [] if ranking.conditions else list(_binding(ranking))
    ends = () if any(_where_it_does_not_matter(ranking)) else _ends(ranking, ranking.best)
    return [*_binding(ranking), *_rivals(ranking, ranking.best), *ends]


def _best(ranking: Ranking, best: int) -> Iterator[str]:
    first, study = ranking.metrics[0], ranking.study
    of = f" of {len(ranking.designs):,} points" if len(ranking.designs) > 1 else ""
    alike = [best, *(at for _, others in ranking.contests for at in ranking.alike(best, others))]
    margin = _margin(ranking, best, alike) if len(alike) > 1 or study.question_kind else ""
    if len(alike) > 1:
        yield f"{_alike_words(ranking, alike, of)}{margin}."
    else:
        yield f"Best in {first.name}{of}: {ranking.name(best) or 'the machine as it is'}{margin}."
    if ranking.has_constant_layers(best):
        yield "It has layers that never fire, or always: a network that works takes another time."
    values = "; ".join(
        f"{metric.name if metric.unit else metric.label} {ranking.shown(place, best)}"
        for place, metric in enumerate(ranking.metrics)
    )
    workloads = ""
    if len(study.workloads) > 1:
        known = [(row["workload"], first.of(row)) for row in ranking.designs[best]]
        parts = [
            f"{name} {quantity(first.unit, *[value * first.scale] * 3)}" for name, value in known if value is not None
        ]
        workloads = f" ({first.name} of each workload: {', '.join(parts)})"
    yield f"At {'that point' if len(alike) == 1 else 'the first of them'}: {values}{workloads}."
    if study.limits:
        yield f"Constraints there: {'; '.join(_limit_there(limit, ranking, best) for limit in study.limits)}."
    yield from _against_first(ranking, best)
    equal, rivals = ranking.rivals
    if equal:
        rows = [ranking.designs[at][0] for at in (*equal, best)]
        apart = [name for name in study.varied if len({str(row[name]) for row in rows}) > 1]
        verb = "is" if len(equal) == 1 else "are"
        exactly = f"as good to {100 * even:g} %" if (even := resolution(study)) else "exactly as good"
        yield f"{counted(len(equal), 'point')} {verb} {exactly} in {first.name}, with another {', '.join(apart)}."
    if rivals:
        rival, wins = rivals[0]
        alone = "it keeps to the constraints and is the best" if ranking.keeps_p[best] < 1 else "no point is better"
        yield (
            f"With probability {chance(wins)} it is better than its strongest rival: "
            f"{ranking.name(rival)}, at {ranking.shown(0, rival)}"
            f"{', by less than a practical difference' if rival in alike else ''}. "
            f"With probability {chance(float(ranking.best_p[best]))} {alone}."
        )


def _margin(ranking: Ranking, best: int, alike: Sequence[int]) -> str:
    """What the next point has of the first metric beside the best, and how likely it is worse."""
    following = [(at, wins) for at, wins in ranking.rivals[1] if at not in alike]
    if not following:
        return ""
    at, wins = min(following, key=lambda each: float(ranking.signed(0)[each[0]]))
    times = f"{factor_text(*ranking.ratio(at, best))} its {ranking.metrics[0].name}"
    return f"; the next, {ranking.name(at)}, has {times}, worse with probability {chance(wins)}"


def _alike_words(ranking: Ranking, alike: Sequence[int], of: str) -> str:
    """What points without practical difference share of the fields that vary, and in which values they differ."""
    shared, apart = [], []
    for name in ranking.study.varied:
        values = list(dict.fromkeys(ranking.values(at)[name] for at in alike))
        if name in ranking.study.coupled:  # it follows from the others
            continue
        if len(values) > 1:
            apart.append(f"{name} = {', '.join(values[:MOST_VALUES])}{', ...' if len(values) > MOST_VALUES else ''}")
        elif len(set(map(str, ranking.column(name)))) > 1:
            shared.append(f"{name} = {values[0]}")
    even, name = threshold_text(ranking.study), ranking.metrics[0].name
    if shared:
        return f"Best in {name}{of}: {', '.join(shared)}, with {even} between {len(alike):,} points: {'; '.join(apart)}"
    which = f"the best {len(alike):,}{of}" if len(alike) < len(ranking.designs) else f"all {len(alike):,} points"
    return f"{even[0].upper()}{even[1:]} in {name} between {which}: {'; '.join(apart)}"


def _values_table(ranking: Ranking) -> Table:
    """Every value of every field at the best of the others."""
    metric, best = ranking.metrics[0].name, ranking.best
    rows = []
    for field in ranking.study.varied:
        by: dict[str, list[int]] = {}
        for at in np.flatnonzero(ranking.kept).tolist():
            by.setdefault(ranking.values(at)[field], []).append(at)
        if best is None or field not in ranking.study.axes or not 1 < len(by) <= MOST_ROWS:
            continue
        for value, those in by.items():
            at = min(those, key=lambda each: float(ranking.signed(0)[each]))
            rows.append([field, value, ranking.shown(0, at), factor_text(*ranking.ratio(at, best))])
    fields = len({row[0] for row in rows})
    rows = rows if fields > 1 else []  # of a single field the points are its values
    headers = ["field", "value", metric, f"{metric} over the best's"]
    return table("values", "Each value at the best of the other fields", headers, rows)


def _limit_there(limit: Constraint, ranking: Ranking, at: int) -> str:
    """A constraint and what the point has of it: of several workloads the one nearest to the limit."""
    nearest = max if limit.end == "max" else min
    row = nearest(ranking.designs[at], key=lambda row: limit.metric.of(row) or 0.0)
    value = limit.metric.of(row)
    ends = [end * limit.metric.scale for end in (value, *(limit.metric.bounds(row) or ())) if end is not None]
    return f"{limit}: {quantity(limit.metric.unit, *ends)}"


def _against_first(ranking: Ranking, best: int) -> Iterator[str]:
    """How many times better than the reference, or than the first point."""
    first = next((at for at in range(len(ranking.designs)) if ranking.timed[at] and ranking.fits[at]), best)
    metric, named = ranking.metrics[0], ranking.study.reference
    of_time = metric.name in RATIO_OF_TIME
    if named and not of_time:
        return
    if of_time:
        ratios = [[row[end] for row in ranking.designs[best]] for end in RATIOS]
        middle, low, high = map(float, over_workloads(metric, ratios, list(ranking.study.workloads.values())))
    else:
        middle, drawn = ranking.ratio(best, first)
        low, high = level_interval(drawn)
    if (first == best and not named) or not all(end > 0 for end in (middle, low, high)):
        return
    before = "" if all(ranking.fits[:first]) else " that fits"
    other = named or f"the first point{before} ({ranking.name(first)})"
    if of_time:
        middle, low, high = 1 / middle, 1 / high, 1 / low
    ends = [rounded(end) for end in (middle, low, high)]
    reach = f" ({ends[1]} to {ends[2]})" if ends[1] != ends[2] else ""
    if abs(middle - 1) < 0.005:
        yield f"That differs by less than 0.5 % from {other}."
    elif of_time:
        yield f"That is {ends[0]} times{reach} {'faster than' if middle >= 1 else 'as fast as'} {other}."
    else:
        yield f"That is {ends[0]} times{reach} the {metric.name} of {other}."


def _front(ranking: Ranking) -> Iterator[str]:
    names = [metric.name for metric in ranking.metrics]
    if len(names) < 2:
        return
    on = int((ranking.front_p > 0.5).sum())
    together = " and ".join([", ".join(names[:-1]), names[-1]])
    over = ""
    if len(ranking.study.workloads) > 1:
        over = " Workloads count together by the weighted geometric mean; the largest area, power, memory and tiles."
    verb = "is" if on == 1 else "are"
    yield f"{counted(on, 'point')} {verb} Pareto-optimal in {together} with a probability over 50 %.{over}"


def no_best(ranking: Ranking) -> str:
    """Why no point is kept."""
    if not ranking.designs:
        return "No point is done."
    if all(lacking := [list(filter(_lacks_memory, rows)) for rows in ranking.designs]):
        at, row = min(
            ((at, max(rows, key=_share_of_memory)) for at, rows in enumerate(lacking)),
            key=lambda each: _share_of_memory(each[1]),
        )
        needs = f"{show_bytes(row['peak_bytes'])} of {show_bytes(row['limit_bytes'])} on its fullest tile"
        return f"No point fits: the nearest, {ranking.name(at)}, needs {needs}."
    if not ranking.metrics:
        why = next((f": {row['note']}" for rows in ranking.designs for row in rows if row.get("note")), "")
        return f"No point has {' or '.join(ranking.unknown_words)}{why}."
    likely = int(ranking.keeps_p.argmax())
    p, more = float(ranking.keeps_p[likely]), ""
    if p > 0:
        more = f"; {ranking.name(likely)} does with the greatest probability, {chance(p)}"
    return f"No point fits and keeps to all constraints{more}."


def _share_of_memory(row: Row) -> float:
    return float(row["peak_bytes"] / row["limit_bytes"])


def _lacks_memory(row: Row) -> bool:
    return row["fits"] is False and row["peak_bytes"] is not None and _share_of_memory(row) > 1


def _best_table(ranking: Ranking) -> Table:
    if ranking.best is None:
        return table("best", "", (), [])
    several = len(ranking.metrics) > 1
    share = ranking.front_p if several else ranking.best_p
    places = np.flatnonzero((share >= 0.05) if several else ranking.kept)
    places = places[np.argsort(ranking.signed(0)[places], kind="stable")]
    rows = [
        [
            *ranking.values(at).values(),
            *(ranking.shown(place, at) for place in range(len(ranking.metrics))),
            chance(float(share[at])),
        ]
        for at in map(int, places[:MOST_ROWS])
    ]
    left = f", {len(rows)} of {len(places):,} by {ranking.metrics[0].name}" if len(places) > len(rows) else ""
    title = "On the front with a probability of 5 % or more" if several else "The best points"
    headers = [*ranking.study.varied, *(metric.name for metric in ranking.metrics)]
    headers.append("p on the front" if several else "p best")
    return table("best", f"{title}{left}", headers, rows)


def _binding(ranking: Ranking) -> Iterator[str]:
    best, limits = ranking.best, ranking.study.limits
    for place in (None, *range(len(limits))):
        other = ranking.best_without(place)
        if other is None or (best is not None and not ranking.signed(0)[other] < ranking.signed(0)[best]):
            continue
        limit = "the memory of a tile" if place is None else str(limits[place])
        more = ""
        # what cannot run has no time to compare with
        if place is not None and best is not None and ranking.middle[0, best] > 0 and ranking.middle[0, other] > 0:
            times = ranking.middle[0, best] / ranking.middle[0, other]
            more = f", {rounded(times if times > 1 else 1 / times)} times better"
        if place is None:
            over = max(row["peak_bytes"] - row["limit_bytes"] for row in ranking.designs[other])
            lacks = f"{field_value('bytes', over)} on the fullest tile" if over > 0 else "executable memory"
            more += f"; it lacks {lacks}"
        yield f"Without {limit}, best would be {ranking.name(other)}: {ranking.shown(0, other)}{more}."
    if best is not None and limits and ranking.keeps_p[best] < 1:
        likely = np.argsort(-ranking.best_p, kind="stable")
        after = next((int(at) for at in likely if at != best and ranking.best_p[at] > 0), None)
        instead = "" if after is None else f"; else the likeliest best is {ranking.name(after)}"
        yield f"The answer keeps to the constraints with probability {chance(float(ranking.keeps_p[best]))}{instead}."


def _rivals(ranking: Ranking, best: int) -> Iterator[str]:
    likely: dict[tuple[float, float], list[int]] = {}  # points as good as each other are one rival
    for at, wins in ranking.rivals[1]:
        if 1 - wins > LIKELY:
            likely.setdefault((1 - wins, float(ranking.middle[0, at])), []).append(at)
    for (p, _), alike in list(likely.items())[:MOST_RIVALS]:
        more = f" (and {len(alike) - 1:,} exactly as good)" if len(alike) > 1 else ""
        yield f"{ranking.name(alike[0])}{more} is better with probability {chance(p)}."
    if len(likely) > MOST_RIVALS:
        yield f"{len(likely) - MOST_RIVALS:,} more are better with a probability over {LIKELY:.0%}."
    decided = ranking.deciding_source(best, ranking.rivals[1][0][0]) if ranking.rivals[1] else None
    if decided is not None and abs(decided[1] - decided[2]) > 0.01:
        name, low, high = decided
        yield (
            f"What decides most between the answer and its strongest rival is {name}: in the lowest quarter of its "
            f"interval the answer is better with probability {chance(low)}, in the highest {chance(high)}."
        )


def _ends(ranking: Ranking, best: int) -> Iterator[str]:
    """Fields whose best value is the first or last that was looked at."""
    for name in ranking.study.varied:
        values = ranking.column(name)
        numbers = sorted({value for value in values if is_number(value)})
        if len(numbers) < 2 or len(set(map(str, values))) > len(numbers):
            continue
        near = 0.02 * (numbers[-1] - numbers[0])  # points that fill a space have no point on its edge
        low, high = (abs(values[best] - end) <= near for end in (numbers[0], numbers[-1]))
        # of chips, contexts and the like there are none fewer
        least = type(values[best]) is int and values[best] in (0, 1)
        if (low and not least) or high:
            word = "smallest" if low else "largest"
            value = field_value(name, values[best])
            yield f"{name} = {value} is about the {word} value looked at; beyond may be better."


KIND = QuestionKind(name="which-of", lacks=lambda study: "", answer=which_of, tables=tables, would_change=would_change)
