"""What a study answers, in sentences and tables, by the kind of its question (`questions/`), and what would change it.
Console and page show the same."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from mimdsim.base.units import counted
from mimdsim.report.console import folded_lines
from mimdsim.report.formatting import field_values
from mimdsim.report.tables import Table
from mimdsim.studies.pareto import Ranking, rank
from mimdsim.studies.questions import kind_of
from mimdsim.studies.questions.sensitivity import effects_tables
from mimdsim.studies.questions.which_of import MOST_NAMED, no_best
from mimdsim.studies.results import FIRING_COLUMN, align_columns, note_lines
from mimdsim.studies.runner import StudyResult

MOST_NOTES = 8
OF_GPUS = ("time", "ratio", "gpu_ratio")  # metrics beside which the times of GPUs are shown


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


def short_answer(result: StudyResult) -> Iterator[str]:
    """The question, what is wrong, the answer, what comes first of what would change it, and the first note on points,
    as a terminal shows it."""
    ranking = rank(result)
    change = [f"What would change this: {line}" for line in would_change(ranking)[:1]]
    wrong = (f"! {line}" for line in firing_warnings(result))
    question = [result.study.question] if result.study.question else []
    first, *others = [line for line in collect_notes(result) if line.startswith("!")] or [""]
    more = f"! {counted(len(others), 'more note')}: --verbose" if others else ""
    noted = [line for line in (first, more) if line]
    yield from folded_lines([*question, *wrong, *answer(ranking), *change, *noted])


def answer_record(result: StudyResult) -> dict[str, Any]:
    """The answer and the points that it rests on, for scripts: `--json`, documented in docs/using.md."""
    ranking = rank(result)
    return {
        "version": 1,
        "question": result.study.question,
        "complete": result.complete,
        "failed": result.failed,
        "answer": answer(ranking),
        "would_change": would_change(ranking),
        "warnings": [*firing_warnings(result), *result.warnings, *collect_notes(result)],
        "points": [dict(row) for row in result.rows],
    }


def answer(ranking: Ranking) -> list[str]:
    """Sentences, the most important first."""
    result, done = ranking.result, len(ranking.designs)
    asked = kind_of(ranking)
    known = not asked.of_kept or (ranking.metrics and ranking.kept.any())
    said = asked.answer(ranking) if known else [no_best(ranking)]
    said += _left_out(ranking)
    if ranking.unknown and ranking.metrics:
        said.append(f"Unknown for every point: {', '.join(ranking.unknown_words)}.")
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
    lines = note_lines(list(result.rows), _named_by(result), trained=result.study.fill is None, ratios=False)
    # which steps change no time can be told of a grid only: other points differ in all fields at once
    return [line for line in lines if result.study.sampling.kind == "grid" or not line.startswith("= ")]


def _named_by(result: StudyResult) -> list[str]:
    """The columns that tell points apart."""
    return [*(["workload"] if len(result.study.workloads) > 1 else []), *result.study.varied]


def _left_out(ranking: Ranking) -> Iterator[str]:
    reasons: Counter[str] = Counter()
    for at, rows in enumerate(ranking.designs):
        problems = ranking.problems(at)
        if problems == ["no result"] and all(row["fits"] is not None for row in rows):
            problems = ["unknown" if all(row["fits"] for row in rows) else "no tiles"]
        reasons.update(problems)
    said = {
        "no result": "without result",
        "no tiles": "without enough tiles",
        "unknown": "whose times are unknown",
        "does not fit": "beyond the memory of a tile",
        "metric unknown": "with an unknown metric",
    }
    if reasons:
        out = int((~ranking.kept).sum())
        why = ", ".join(f"{count:,} {said.get(reason, reason)}" for reason, count in reasons.most_common())
        yield f"Left out of {counted(len(ranking.designs), 'point')}: {out:,} ({why})."


def tables(ranking: Ranking) -> list[Table]:
    """What the answer rests on, and the effects of a sensitivity."""
    asked = kind_of(ranking)
    made = asked.tables(ranking) if ranking.metrics else []
    return [*made, *(effects_tables(ranking) if asked.tables is not effects_tables else [])]


def would_change(ranking: Ranking) -> list[str]:
    """What the kind of question says, such as constraints that bind and rivals, and what is not known."""
    result, said = ranking.result, kind_of(ranking).would_change(ranking)
    if not result.complete:
        said.append(f"{counted(result.designs - len(ranking.designs), 'point is', 'points are')} not done yet.")
    if result.failed:
        said.append(f"{counted(result.failed, 'point')} failed; the notes say why.")
    said += [f"No point has {words}." for words in ranking.unknown_words]
    if result.study.gpus and not any(each.name in OF_GPUS for each in (*ranking.metrics, *ranking.unknown)):
        said.append("The GPUs stand in no answer: of all metrics gpu_ratio alone compares them.")
    if result.study.fill is not None:
        said.append(f"Every list of spikes is filled to {result.study.fill:.0%}; recorded spikes may differ by layer.")
    else:
        said.append("Spikes are those of one training; no interval includes how they vary from training to training.")
    return said
