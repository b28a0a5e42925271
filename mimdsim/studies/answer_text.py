"""A study's answer in words: what is best and how sure that is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np

from mimdsim.base.units import counted
from mimdsim.report.formatting import chance, field_values, quantity
from mimdsim.studies.answer_text_found import effects_table, how_found, sensitivity_words
from mimdsim.studies.metrics import Constraint, over_workloads
from mimdsim.studies.overturn import would_change
from mimdsim.studies.pareto import Judged, judged
from mimdsim.studies.phrases import bounds, count_of, in_words, name_of, quantity_alone, values_of
from mimdsim.studies.results import FIRING_COLUMN, RATIOS, note_lines
from mimdsim.studies.runner import Studied
from mimdsim.studies.sensitivity import Sensitivities

MOST_ROWS, MOST_NOTES = 10, 8
MOST_NAMED = 4  # points in a sentence
OF_TIME = ("time", "ratio", "throughput")


def answer_lines(studied: Studied) -> Iterator[str]:
    """The question and its answer, the points it is about, notes, and what would change it."""
    found = judged(studied)
    if studied.study.question:
        yield studied.study.question
        yield ""
    yield from (f"! {line}" for line in firing_words(studied))
    yield from answer(studied, found)
    yield ""
    for title, header, rows, more in tables(studied, found):
        yield title
        cells = [header, *rows]
        widths = [max(len(line[column]) for line in cells) for column in range(len(header))]
        yield from ("  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)) for line in cells)
        yield from filter(None, [more])
        yield ""
    notes = notes_of(studied)
    yield from notes[:MOST_NOTES]
    if len(notes) > MOST_NOTES:
        yield f"! {counted(len(notes) - MOST_NOTES, 'more note')}: column 'note' of results.csv"
    yield "What would change this:"
    yield from (f"- {line}" for line in would_change(studied, found))


def answer(studied: Studied, found: Judged) -> list[str]:
    """Sentences, the most important first."""
    if isinstance(studied.found, Sensitivities):
        said = sensitivity_words(studied.found)
    else:
        said = [*_best(studied, found)] if found.best is not None else [_nothing_kept(found)]
        said += _several_metrics(found)
    said += [line for line in (_left_out(found), _unknown(found)) if line]
    done = len(found.designs)
    if studied.complete:
        said.append(f"All {done:,} points are done." if done > 1 else "The study has one point.")
    else:
        of = f"{done:,} of {counted(studied.designs, 'point')} {'is' if done == 1 else 'are'} done"
        said.append(f"Unfinished: {of}; the others may change the answer.")
    return said


def firing_words(studied: Studied) -> list[str]:
    """Which points are timed with spikes of layers that never fire, or always; nothing where none is."""
    names = [*(["workload"] if len(studied.study.workloads) > 1 else []), *studied.study.varied]
    points: dict[str, list[str]] = {}
    shown = {name: field_values(name, [row[name] for row in studied.rows]) for name in names}
    for at, row in enumerate(studied.rows):
        if row.get(FIRING_COLUMN):
            named = ", ".join(f"{name} = {values[at]}" for name, values in shown.items())
            points.setdefault(row[FIRING_COLUMN], []).append(named)
    found = []
    for said, those in points.items():
        several = len(those) < len(studied.rows)
        more = f"; and {len(those) - MOST_NAMED:,} more" if len(those) > MOST_NAMED else ""
        named = f" ({'; '.join(those[:MOST_NAMED])}{more})" if several else ""
        which = f"{len(those):,} of {count_of(len(studied.rows))}{named}" if several else "All points"
        found.append(f"{which}: {said}. Their times hold for such spikes only; mimdsim run says what mends it.")
    return found


def _best(studied: Studied, found: Judged) -> Iterator[str]:
    best = found.best
    assert best is not None
    first = found.metrics[0]
    of = f" of {len(found.designs):,} points" if len(found.designs) > 1 else ""
    yield f"Best in {first.name}{of}: {name_of(found, best) or 'the machine as it is'}."
    if any(row.get(FIRING_COLUMN) for row in found.designs[best].rows):
        yield "It has layers that never fire, or always: a network that works takes another time."
    values = "; ".join(
        f"{metric.name if metric.unit else metric.label} {in_words(found, place, best)}"
        for place, metric in enumerate(found.metrics)
    )
    yield f"At that point: {values}{_by_workload(found, best)}."
    if found.study.limits:
        yield f"Constraints there: {'; '.join(_limit_there(limit, found, best) for limit in found.study.limits)}."
    yield from _against_first(studied, found, best)
    others = np.flatnonzero(found.kept & (np.arange(len(found.designs)) != best))
    if not len(others):
        return
    wins, ties = found.compared(best, others)
    equal, rest = others[ties == 1], others[ties < 1]
    if len(equal):
        rows = [found.designs[at].rows[0] for at in (*equal, best)]
        apart = [name for name in found.study.varied if len({str(row[name]) for row in rows}) > 1]
        verb = "is" if len(equal) == 1 else "are"
        yield f"{count_of(len(equal))} {verb} exactly as good in {first.name}, with another {', '.join(apart)}."
    if len(rest):
        chances = (wins + ties / 2)[ties < 1]
        rival = int(rest[np.lexsort((found.signed(0)[rest], chances))[0]])
        alone = "it keeps to the constraints and is the best" if found.keeps_p[best] < 1 else "no point is better"
        yield (
            f"With probability {chance(float(chances.min()))} it is better than its strongest rival: "
            f"{name_of(found, rival)}, at {in_words(found, 0, rival)}. "
            f"With probability {chance(float(found.best_p[best]))} {alone}."
        )


def _limit_there(limit: Constraint, found: Judged, at: int) -> str:
    """A constraint and what the point has of it: of several workloads the one nearest to the limit."""
    nearest = max if limit.end == "max" else min
    row = nearest(found.designs[at].rows, key=lambda row: limit.metric.of(row) or 0.0)
    value = limit.metric.of(row)
    low, high = bounds(limit.metric, row) or (value, value)
    ends = [end * limit.metric.scale for end in (value, low, high) if end is not None]
    return f"{limit}: {quantity(limit.metric.unit, *ends)}"


def _against_first(studied: Studied, found: Judged, best: int) -> Iterator[str]:
    """How many times better than the reference, or than the first point."""
    first = next((at for at in range(len(found.designs)) if found.timed[at] and found.fits[at]), best)
    metric = found.metrics[0]
    named = found.study.reference
    if metric.name in OF_TIME:
        middle, low, high = (
            over_workloads(metric, [row[end] for row in found.designs[best].rows], list(found.study.workloads.values()))
            for end in RATIOS
        )
    elif named:
        return
    else:
        middle, low, high = found.ratio(best, first)
    if (first == best and not named) or not middle or not low or not high:
        return
    before = "" if all(found.fits[:first]) else " that fits"
    other = f"{named}" if named else f"the first point{before} ({name_of(found, first)})"
    if metric.name in OF_TIME:
        middle, low, high = 1 / middle, 1 / high, 1 / low
    ends = [f"{end:.3g}" for end in (middle, low, high)]
    reach = f" ({ends[1]} to {ends[2]})" if ends[1] != ends[2] else ""
    if abs(middle - 1) < 0.005:
        yield f"That differs by less than 0.5 % from {other}."
    elif metric.name in OF_TIME:
        yield f"That is {ends[0]} times{reach} {'faster than' if middle >= 1 else 'as fast as'} {other}."
    else:
        yield f"That is {ends[0]} times{reach} the {metric.name} of {other}."


def _by_workload(found: Judged, at: int) -> str:
    if len(found.study.workloads) == 1:
        return ""
    metric = found.metrics[0]
    values = [(row["workload"], metric.of(row)) for row in found.designs[at].rows]
    each = ", ".join(f"{name} {quantity_alone(metric, value)}" for name, value in values if value is not None)
    return f" ({metric.name} of each workload: {each})"


def _several_metrics(found: Judged) -> list[str]:
    names = [metric.name for metric in found.metrics]
    if len(names) < 2 or found.best is None:
        return []
    on = int((found.front_p > 0.5).sum())
    together = " and ".join([", ".join(names[:-1]), names[-1]])
    verb = "is" if on == 1 else "are"
    over = ""
    if len(found.study.workloads) > 1:
        over = " Workloads count together by the weighted geometric mean; the largest area, power, memory and tiles."
    return [
        f"{count_of(on)} {verb} on the front of {together} with a probability over 50 %: there no other is as good in "
        f"all and better in one.{over}"
    ]


def _nothing_kept(found: Judged) -> str:
    if not found.designs:
        return "No point is done."
    if not found.metrics:
        return f"No point has {' or '.join(metric.name for metric in found.unknown)}."
    likely = int(found.keeps_p.argmax())
    more = ""
    if found.keeps_p[likely] > 0:
        more = f"; {name_of(found, likely)} does with the greatest probability, {chance(float(found.keeps_p[likely]))}"
    return f"No point fits and keeps to all constraints{more}."


def _left_out(found: Judged) -> str:
    counts: Counter[str] = Counter()
    for at, design in enumerate(found.designs):
        if not found.timed[at]:
            few = all(row["fits"] is not None for row in design.rows)
            counts["without enough tiles" if few else "without result"] += 1
        elif not found.fits[at]:
            counts["beyond the memory of a tile"] += 1
        elif not found.within[at]:
            counts.update(f"beyond {limit}" for limit in found.study.limits if not all(map(limit.kept, design.rows)))
        elif not found.kept[at]:
            counts["with an unknown metric"] += 1
    out = int((~found.kept).sum())
    reasons = ", ".join(f"{count:,} {reason}" for reason, count in counts.most_common())
    return f"Left out of {counted(len(found.designs), 'point')}: {out:,} ({reasons})." if out else ""


def _unknown(found: Judged) -> str:
    names = [metric.name for metric in found.unknown]
    return f"Unknown of every point, so not asked: {', '.join(names)}." if names and found.metrics else ""


def tables(studied: Studied, found: Judged) -> Iterator[tuple[str, list[str], list[list[str]], str]]:
    """Title, header, cells, and what they are or leave out."""
    if isinstance(studied.found, Sensitivities):
        for each in studied.found.metrics:
            header, rows, more = effects_table(each)
            if rows:
                yield (
                    f"Effects on {each.metric}:",
                    header,
                    rows,
                    " ".join(filter(None, [more, how_found(studied.found)])),
                )
    else:
        title, header, rows = best_table(found)
        if rows:
            yield title, header, rows, ""


def best_table(found: Judged) -> tuple[str, list[str], list[list[str]]]:
    """Title, header and cells: the front if there are several metrics, else the best points."""
    if found.best is None:
        return "", [], []
    several = len(found.metrics) > 1
    share = found.front_p if several else found.best_p
    places = np.flatnonzero(found.front_p >= 0.05) if several else np.flatnonzero(found.kept)
    places = places[np.argsort(found.signed(0)[places], kind="stable")]
    shown = places[:MOST_ROWS]
    left = f", {len(shown)} of {len(places):,} by {found.metrics[0].name}" if len(places) > len(shown) else ""
    title = f"On the front with a probability of 5 % or more{left}:" if several else f"The best points{left}:"
    last = "p on the front" if several else "p best"
    header = [*found.study.varied, *(metric.name for metric in found.metrics), last]
    rows = [
        [
            *values_of(found, at),
            *(in_words(found, place, at) for place in range(len(found.metrics))),
            chance(float(share[at])),
        ]
        for at in map(int, shown)
    ]
    return title, header, rows


def notes_of(studied: Studied) -> list[str]:
    """Notes on points, each once."""
    study, rows = studied.study, list(studied.rows)
    names = [*(["workload"] if len(study.workloads) > 1 else []), *study.varied]
    lines = note_lines(rows, names, trained=study.fill is None)
    # which steps change no time can be told of a grid only: other points differ in all fields at once
    return lines if study.sampling.kind == "grid" else [line for line in lines if not line.startswith("= ")]
