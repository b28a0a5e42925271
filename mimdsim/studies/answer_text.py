"""What a study answers, in sentences and tables: what is best and how sure that is, what matters, and what would change
it. Console and page show the same."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np

from mimdsim.base.units import counted
from mimdsim.report.formatting import chance, field_value, field_values, percent_of, quantity
from mimdsim.report.tables import Table, table, text
from mimdsim.studies.metrics import METRICS, Constraint, Metric, over_workloads
from mimdsim.studies.pareto import Ranking, rank
from mimdsim.studies.results import FIRING_COLUMN, NO_EFFECT, RATIOS, align_columns, is_number, note_lines
from mimdsim.studies.runner import StudyResult
from mimdsim.studies.sensitivity import Effect, Sensitivities, Sensitivity

MOST_ROWS, MOST_NOTES = 10, 8
MOST_NAMED = 4  # points in a sentence
MOST_EFFECTS = 20  # rows of a table
MOST_RIVALS = 5
LIKELY = 0.1  # a rival that is better with more than this probability is named
STEADY = 0.9  # share of its size that the mean of an effect has if it goes one way
OF_TIME = ("time", "ratio", "throughput")


def answer_lines(result: StudyResult) -> Iterator[str]:
    """The question and its answer, the points it is about, notes, and what would change it."""
    ranking = rank(result)
    if result.study.question:
        yield result.study.question
        yield ""
    yield from (f"! {line}" for line in firing_warnings(result))
    yield from answer(ranking)
    yield ""
    for shown in tables(ranking):
        yield f"{shown.caption}:"
        yield from align_columns([shown.headers, *([cell.text for cell in row] for row in shown.rows)])
        yield from filter(None, [shown.note])
        yield ""
    notes = collect_notes(result)
    yield from notes[:MOST_NOTES]
    if len(notes) > MOST_NOTES:
        yield f"! {counted(len(notes) - MOST_NOTES, 'more note')}: column 'note' of results.csv"
    yield "What would change this:"
    yield from (f"- {line}" for line in would_change(ranking))


def answer(ranking: Ranking) -> list[str]:
    """Sentences, the most important first."""
    result, done = ranking.result, len(ranking.designs)
    if result.found is not None:
        said = sensitivity_words(result.found)
    else:
        said = [_no_best(ranking)] if ranking.best is None else [*_best(ranking, ranking.best), *_front(ranking)]
    said += _left_out(ranking)
    if ranking.unknown and ranking.metrics:
        said.append(f"Unknown for every point, so left out: {', '.join(metric.name for metric in ranking.unknown)}.")
    if result.complete:
        said.append(f"All {done:,} points are done." if done > 1 else "The study has one point.")
    else:
        of = f"{done:,} of {counted(result.designs, 'point')} {'is' if done == 1 else 'are'} done"
        said.append(f"Unfinished: {of}; the others may change the answer.")
    return said


def firing_warnings(result: StudyResult) -> list[str]:
    """Which points are timed with spikes of layers that never fire, or always; nothing where none is."""
    points: dict[str, list[str]] = {}
    shown = {name: field_values(name, [row[name] for row in result.rows]) for name in _named_by(result)}
    for at, row in enumerate(result.rows):
        if row.get(FIRING_COLUMN):
            named = ", ".join(f"{name} = {values[at]}" for name, values in shown.items())
            points.setdefault(row[FIRING_COLUMN], []).append(named)
    lines = []
    for said, those in points.items():
        which = "All points"
        if len(those) < len(result.rows):
            more = f"; and {len(those) - MOST_NAMED:,} more" if len(those) > MOST_NAMED else ""
            named = f"{'; '.join(those[:MOST_NAMED])}{more}"
            which = f"{len(those):,} of {counted(len(result.rows), 'point')} ({named})"
        lines.append(f"{which}: {said}. Their times hold for such spikes only; mimdsim run says how to fix it.")
    return lines


def collect_notes(result: StudyResult) -> list[str]:
    """Notes on points, each once."""
    lines = note_lines(list(result.rows), _named_by(result), trained=result.study.fill is None)
    # which steps change no time can be told of a grid only: other points differ in all fields at once
    return [line for line in lines if result.study.sampling.kind == "grid" or not line.startswith("= ")]


def _named_by(result: StudyResult) -> list[str]:
    """The columns that tell points apart."""
    return [*(["workload"] if len(result.study.workloads) > 1 else []), *result.study.varied]


def _best(ranking: Ranking, best: int) -> Iterator[str]:
    first, study = ranking.metrics[0], ranking.study
    of = f" of {len(ranking.designs):,} points" if len(ranking.designs) > 1 else ""
    yield f"Best in {first.name}{of}: {ranking.name(best) or 'the machine as it is'}."
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
    yield f"At that point: {values}{workloads}."
    if study.limits:
        yield f"Constraints there: {'; '.join(_limit_there(limit, ranking, best) for limit in study.limits)}."
    yield from _against_first(ranking, best)
    equal, rivals = ranking.rivals
    if equal:
        rows = [ranking.designs[at][0] for at in (*equal, best)]
        apart = [name for name in study.varied if len({str(row[name]) for row in rows}) > 1]
        verb = "is" if len(equal) == 1 else "are"
        yield f"{counted(len(equal), 'point')} {verb} exactly as good in {first.name}, with another {', '.join(apart)}."
    if rivals:
        rival, wins = rivals[0]
        alone = "it keeps to the constraints and is the best" if ranking.keeps_p[best] < 1 else "no point is better"
        yield (
            f"With probability {chance(wins)} it is better than its strongest rival: "
            f"{ranking.name(rival)}, at {ranking.shown(0, rival)}. "
            f"With probability {chance(float(ranking.best_p[best]))} {alone}."
        )


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
    of_time = metric.name in OF_TIME
    if named and not of_time:
        return
    if of_time:
        ratios = [[row[end] for row in ranking.designs[best]] for end in RATIOS]
        middle, low, high = map(float, over_workloads(metric, ratios, list(ranking.study.workloads.values())))
    else:
        middle, low, high = ranking.ratio(best, first)
    if (first == best and not named) or not all(end > 0 for end in (middle, low, high)):
        return
    before = "" if all(ranking.fits[:first]) else " that fits"
    other = named or f"the first point{before} ({ranking.name(first)})"
    if of_time:
        middle, low, high = 1 / middle, 1 / high, 1 / low
    ends = [f"{end:.3g}" for end in (middle, low, high)]
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


def _no_best(ranking: Ranking) -> str:
    if not ranking.designs:
        return "No point is done."
    if not ranking.metrics:
        return f"No point has {' or '.join(metric.name for metric in ranking.unknown)}."
    likely = int(ranking.keeps_p.argmax())
    p, more = float(ranking.keeps_p[likely]), ""
    if p > 0:
        more = f"; {ranking.name(likely)} does with the greatest probability, {chance(p)}"
    return f"No point fits and keeps to all constraints{more}."


def _left_out(ranking: Ranking) -> Iterator[str]:
    reasons: Counter[str] = Counter()
    for at, rows in enumerate(ranking.designs):
        problems = ranking.problems(at)
        if problems == ["no result"] and all(row["fits"] is not None for row in rows):
            problems = ["no tiles"]
        reasons.update(problems)
    said = {
        "no result": "without result",
        "no tiles": "without enough tiles",
        "does not fit": "beyond the memory of a tile",
        "metric unknown": "with an unknown metric",
    }
    if reasons:
        out = int((~ranking.kept).sum())
        why = ", ".join(f"{count:,} {said.get(reason, reason)}" for reason, count in reasons.most_common())
        yield f"Left out of {counted(len(ranking.designs), 'point')}: {out:,} ({why})."


def tables(ranking: Ranking) -> list[Table]:
    """Effects by metric of a sensitivity; else the front if there are several metrics, or the best points."""
    found = ranking.result.found
    made = [_effects_table(each, found) for each in found.metrics] if found is not None else []
    return [each for each in made or [_best_table(ranking)] if each.rows]


def _best_table(ranking: Ranking) -> Table:
    if ranking.best is None:
        return table("best", "", (), [])
    several = len(ranking.metrics) > 1
    share = ranking.front_p if several else ranking.best_p
    places = np.flatnonzero((share >= 0.05) if several else ranking.kept)
    places = places[np.argsort(ranking.signed(0)[places], kind="stable")]
    rows = [
        [
            *ranking.values(at),
            *(ranking.shown(place, at) for place in range(len(ranking.metrics))),
            chance(float(share[at])),
        ]
        for at in map(int, places[:MOST_ROWS])
    ]
    left = f", {len(rows)} of {len(places):,} by {ranking.metrics[0].name}" if len(places) > len(rows) else ""
    title = "On the front with a probability of 5 % or more" if several else "The best points"
    headers = [*ranking.study.varied, *(metric.name for metric in ranking.metrics)]
    headers.append("p on the front" if several else "p best")
    return table("best", f"{title}{left}", headers, [list(map(text, row)) for row in rows])


def sensitivity_words(found: Sensitivities) -> list[str]:
    """What matters most for each metric, then what is not known."""
    said = [line for each in found.metrics for line in _effects_of(each)]
    if found.constant:
        said.append(f"{', '.join(found.constant)}: the range rounds to a single value, so its effect is not known.")
    return said


def _effects_of(found: Sensitivity) -> Iterator[str]:
    metric = METRICS[found.metric]
    name = metric.name.replace("_", " ")
    if not found.effects:
        yield f"The {name} is known at too few points for the effect of any axis."
        return
    first, *others = found.effects
    if not first.size:
        yield f"Nothing that was varied changes the {name} ({_amount(metric, found.median)})."
    else:
        yield f"{first.axis} matters most for the {name}: {_effect(first, found, metric)}."
        if others and others[0].size:
            yield f"Then {others[0].axis}: {_effect(others[0], found, metric)}."
        hardly = [effect.axis for effect in found.effects if abs(found.percent(effect.size)) < 100 * NO_EFFECT]
        if hardly:
            yield f"These change the {name} by less than {NO_EFFECT:.1%}: {', '.join(hardly)}."
    if any(found.missing):
        count = " and ".join(f"{missing:,}" for missing in found.missing)
        stages = " in the two stages" if len(found.missing) > 1 else ""
        points = "point" if found.missing == (1,) else "points"
        yield f"Left out, as they have no {name} or do not fit: {count} {points}{stages}."
    if found.unknown:
        yield f"{', '.join(found.unknown)}: too few points on both sides have a {name}; effect unknown."


def _effect(effect: Effect, found: Sensitivity, metric: Metric) -> str:
    median = _amount(metric, found.median)
    if effect.mean is None:
        size = _amount(metric, effect.size)
        return f"from one of its values to another it changes by {size}, {_share(effect.size, found)} of {median}"
    verb = "falls" if effect.mean < 0 else "rises"
    turns = "" if _is_steady(effect) else "on the whole "
    size = f"{_amount(metric, abs(effect.mean))}, {_share(effect.mean, found)} of the median {median}"
    return f"from {effect.ends[0]} to {effect.ends[1]} it {turns}{verb} by {size}"


def _amount(metric: Metric, value: float) -> str:
    return metric.shown(float(f"{value:.3g}"))


def _share(value: float, found: Sensitivity) -> str:
    return percent_of(abs(found.percent(value)))


def _is_steady(effect: Effect) -> bool:
    return effect.mean is not None and abs(effect.mean) >= STEADY * effect.size


def _effects_table(found: Sensitivity, study: Sensitivities) -> Table:
    """Axis, ends, effect, how far it spreads, and shares of the variance."""
    metric = METRICS[found.metric]
    headers = ["axis", "from", "to", "effect", "of the median", "spread"]
    indices = any(effect.first_order for effect in found.effects)
    rows = []
    for effect in found.effects[:MOST_EFFECTS]:
        sign, value = "±", effect.size
        if effect.mean is not None and _is_steady(effect):
            sign, value = "+" if effect.mean > 0 else "-", abs(effect.mean)
        cells = [f"{sign}{_amount(metric, value)}", f"{sign}{_share(value, found)}"] if value else ["none", "-"]
        cells.append(_share(effect.spread, found))
        for index in (effect.first_order, effect.total) if indices else ():
            cells.append("-" if index is None else f"{index[0]:.2f} ±{index[1]:.2f}")
        rows.append(list(map(text, [effect.axis, *effect.ends, *cells])))
    more = len(found.effects) - MOST_EFFECTS
    left = f"Left out: {counted(more, 'more axis', 'more axes')} with smaller effects. " if more > 0 else ""
    headers += ["alone", "with others"] if indices else []
    return table(
        f"effects-{found.metric}", f"Effects on {found.metric}", headers, rows, f"{left}{how_estimated(study)}"
    )


def how_estimated(found: Sensitivities) -> str:
    """What the numbers of the tables are."""
    blocks = (
        f" Shares of the variance come from {found.blocks} blocks of points (Sobol), in which the axes without a share "
        "stay at their base values; half-widths of 95 % intervals."
        if found.blocks
        else ""
    )
    effects = [effect for each in found.metrics for effect in each.effects]
    shares = [index[0] for effect in effects for index in (effect.first_order, effect.total) if index]
    if any(not 0 <= round(share, 2) <= 1 for share in shares):
        blocks += f" Shares under 0 or over 1 cannot be: {found.blocks} blocks estimate them no better; more points do."
    return (
        f"Effects are means over {found.trajectories} trajectories through the ranges (Morris), from one end of a "
        f"range to the other; percentages are of the median over the points.{blocks}"
    )


def would_change(ranking: Ranking) -> list[str]:
    """Constraints that bind, rivals, the doubt that decides, ends of axes, and what is not known."""
    result, said = ranking.result, list[str]()
    if result.found is not None:  # which is not about the best point
        said.append("Every effect is over the range that was given, the other fields as the machine and the study say.")
    else:
        said += _binding(ranking)
        said += [] if ranking.best is None else [*_rivals(ranking, ranking.best), *_ends(ranking, ranking.best)]
    if not result.complete:
        said.append(f"{counted(result.designs - len(ranking.designs), 'point is', 'points are')} not done yet.")
    if result.failed:
        said.append(f"{counted(result.failed, 'point')} failed; the notes say why.")
    said += [f"The {metric.name} of no point is known." for metric in ranking.unknown]
    if result.study.fill is not None:
        said.append(f"Every list of spikes is filled to {result.study.fill:.0%}; recorded spikes may differ by layer.")
    else:
        said.append("Spikes are those of one training; no interval includes how they vary from training to training.")
    return said


def _binding(ranking: Ranking) -> Iterator[str]:
    best, limits = ranking.best, ranking.study.limits
    for place in (None, *range(len(limits))):
        other = ranking.best_without(place)
        if other is None or (best is not None and not ranking.signed(0)[other] < ranking.signed(0)[best]):
            continue
        limit = "the memory of a tile" if place is None else str(limits[place])
        more = ""
        if best is not None and ranking.middle[0, best] > 0 and ranking.middle[0, other] > 0:
            times = ranking.middle[0, best] / ranking.middle[0, other]
            more = f", {times if times > 1 else 1 / times:.3g} times better"
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
        if low or high:
            word = "smallest" if low else "largest"
            value = field_value(name, values[best])
            yield f"{name} = {value} is about the {word} value looked at; beyond may be better."
