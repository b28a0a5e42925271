"""What the page of a study shows, as plain data for `report/study_page.py`."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mimdsim.base.units import counted
from mimdsim.pipeline.overrides import load_tiled
from mimdsim.report.formatting import common_unit, field_value, quantity
from mimdsim.report.study_page import StudyColumn, StudyPage, StudySection
from mimdsim.report.tables import Table, shown, table, text
from mimdsim.studies.answer_text import answer, best_table, firing_words, notes_of
from mimdsim.studies.answer_text_found import effects_table, how_found
from mimdsim.studies.metrics import METRICS, Metric
from mimdsim.studies.overturn import would_change
from mimdsim.studies.pareto import Judged, judged
from mimdsim.studies.phrases import interval, name_of
from mimdsim.studies.results import FIRING_COLUMN
from mimdsim.studies.runner import Studied
from mimdsim.studies.sensitivity import Sensitivities

if TYPE_CHECKING:
    from mimdsim.report.figures_front import Judgement


MOST_DOUBTS = 10
SECTIONS_OF = {"exchange": "exchange", "sync": "sync", "loop": "sync"}  # first word of a source: the machine's section


def facts_of(studied: Studied, found: Judged) -> list[tuple[str, str]]:
    study, rows = studied.study, studied.rows
    digests = hashlib.sha256("".join(str(row["digest"]) for row in rows if row.get("digest")).encode()).hexdigest()
    drawn = f"{counted(found.draws.count, 'draw')} of doubts with seed {found.draws.seed}"
    said = [
        ("mimdsim", ", ".join(sorted({str(row["tool_version"]) for row in rows if row.get("tool_version")}))),
        ("machine", f"{study.machine}: {load_tiled(study.machine).title}"),
        ("seeds", f"workloads {_seeds(rows)}; points of the study {study.sampling.seed}; {drawn}"),
        ("digest of all points", f"{digests} (of each: column 'digest' of results.csv)"),
        ("beside this page", "results.csv, results.parquet (with the seconds of every source), study.toml"),
    ]
    together = ("workloads together", "weighted geometric mean; of area, power, memory and tiles the largest")
    return [*said, together] if len(study.workloads) > 1 else said


def _seeds(rows: Sequence[Any]) -> str:
    seeds = sorted({row["seed"] for row in rows if row.get("seed") is not None})
    return ", ".join(map(str, seeds[:6])) + (f" and {len(seeds) - 6} more" if len(seeds) > 6 else "")


def doubts_table(found: Judged) -> Table:
    """The sources that the answer's time is most in doubt of, over all workloads."""
    headers = ("source of doubt (kind)", "of the time", "plus or minus", "of the interval")
    if found.best is None:
        return table("doubts", "", headers, [])
    at = found.best * found.draws.width + np.arange(found.draws.width)
    reach, whole = found.draws.reach[at], found.draws.seconds[at].sum()
    seconds: dict[str, float] = {}
    for row in found.designs[found.best].rows:
        for name, part, _ in row["seconds_by_source"] or ():
            seconds[name] = seconds.get(name, 0.0) + part
    each, total = reach.sum(axis=0), reach.sum() or 1.0
    order = [int(place) for place in np.argsort(-each, kind="stable") if each[place] > 0]
    rows = []
    for place in order[:MOST_DOUBTS]:
        name = found.draws.sources[place]
        rows.append(
            [
                text(name),
                shown(f"{100 * seconds[name] / whole:.1f} %", seconds[name]),
                shown(quantity("seconds", *[float(each[place])] * 3), float(each[place])),
                shown(f"{100 * each[place] / total:.1f} %", float(each[place])),
            ]
        )
    left = len(order) - len(rows)
    note = f"{left:,} smaller doubts are left out." if left else ""
    return table("doubts", "What the answer's time is in doubt of, widest first", headers, rows, note)


def numbers_table(found: Judged) -> Table:
    """The machine's numbers that the study varies or the widest doubts rest on, with their sources."""
    machine = load_tiled(found.study.machine)
    wide = [name.split()[0].rstrip(",") for name in _widest(found)]
    sections = {SECTIONS_OF[word] for word in wide if word in SECTIONS_OF}
    rows = []
    for section in type(machine).model_fields:
        part = getattr(machine, section)
        for field, said in getattr(part, "sources", {}).items():
            name = f"{section}.{field}"
            if section in sections or name in found.study.varied:
                rows.append([text(name), text(field_value(field, getattr(part, field, ""))), text(said)])
    note = "Values of the machine before the study changed them. Costs of codelets have their kind of source in the "
    note += "table above; docs/model.md tells of them."
    title = f"Numbers of {found.study.machine} that are varied or most in doubt"
    return table("numbers", title, ("number", "value", "source"), rows, note)


def _widest(found: Judged) -> list[str]:
    doubts = doubts_table(found)
    return [row[0].text for row in doubts.rows]


MOST_NOTES = 40


def page_of(studied: Studied, source: str) -> StudyPage:
    """source: the text of the study file."""
    found = judged(studied)
    study = studied.study
    return StudyPage(
        title=study.question or f"A study of {', '.join(study.workloads)} on {study.machine}",
        facts=_facts(studied, found),
        doubted=firing_words(studied),
        answer=answer(studied, found),
        sections=[section for section in _sections(studied, found) if section is not None],
        columns=_columns(found),
        provenance=facts_of(studied, found),
        provenance_tables=[each for each in (doubts_table(found), numbers_table(found)) if each.rows],
        source=source,
        change=would_change(studied, found),
    )


def _facts(studied: Studied, found: Judged) -> list[str]:
    study = studied.study
    names = [f"{name} (weight {weight:g})" for name, weight in study.workloads.items()]
    workloads = ", ".join(names if len(set(study.workloads.values())) > 1 else study.workloads)
    spikes = "recorded spikes" if study.fill is None else f"lists filled to {study.fill:.0%}"
    return [
        f"{workloads} on {study.machine}",
        f"{counted(len(found.designs), 'point')}, {study.sampling.kind}",
        f"mapping: {study.mapping}",
        spikes,
        *(f"constraint: {limit}" for limit in study.limits),
    ]


def _sections(studied: Studied, found: Judged) -> list[StudySection | None]:
    """The sections between the answer and the table of all points."""
    first = _sensitivity(studied.found) if isinstance(studied.found, Sensitivities) else _best(found)
    return [first, _effects(studied, found), _sweeps(studied), _notes(studied)]


def _sensitivity(found: Sensitivities) -> StudySection:
    """Tornado figures and tables, one for each metric."""
    from mimdsim.report.figures_effects import draw_tornado

    figures, listed = [], []
    for each in found.metrics:
        metric = METRICS[each.metric]
        median = f"the median, {metric.shown(float(f'{each.median:.3g}'))}"
        drawn = draw_tornado(each.bars(), title=f"What changes the {each.metric.replace('_', ' ')} most", of=median)
        if drawn is not None:
            said = f"From one end of each range to the other, in percent of {median}; whiskers: a standard deviation."
            figures.append((drawn, said))
        header, rows, more = effects_table(each)
        if rows:
            cells = [[text(cell) for cell in row] for row in rows]
            note = " ".join(filter(None, [more, how_found(found)]))
            listed.append(table(f"effects-{each.metric}", f"Effects on {each.metric}", header, cells, note))
    return StudySection(key="sensitivity", title="What matters", figures=figures, tables=listed)


def _best(found: Judged) -> StudySection:
    from mimdsim.report.figures_front import draw_front, draw_ranking

    judgement = _judgement(found)
    drawn = draw_front(judgement) if len(found.metrics) > 1 else draw_ranking(judgement)
    title, header, rows = best_table(found)
    cells = [[text(cell) for cell in row] for row in rows]
    several = len(found.metrics) > 1
    return StudySection(
        key="best",
        title="The front" if several else "The best points",
        figures=[drawn] if drawn else [],
        tables=[table("best", title.rstrip(":"), header, cells, DRAWN.format(count=found.draws.count))] if rows else [],
    )


DRAWN = (
    "Probabilities are shares of {count:,} draws. A draw gives every source of doubt a position between its bounds, "
    "each as likely as any other, the same for all points: what makes one point slower makes others slower too."
)


def _judgement(found: Judged) -> Judgement:
    from mimdsim.report.figures_front import Judgement, Measure

    measures = []
    for place, metric in enumerate(found.metrics):
        factor, unit = common_unit(metric.unit, (float(value) * metric.scale for value in found.middle[place]))
        ends = np.array([interval(found, place, at) for at in range(len(found.designs))], float).reshape(-1, 2)
        ends *= metric.scale / factor
        middle = found.middle[place] * (metric.scale / factor)
        label = f"{metric.name}, {unit}" if unit else metric.label
        measures.append(
            Measure(name=metric.name, label=label, better=metric.better, middle=middle, low=ends[:, 0], high=ends[:, 1])
        )
    return Judgement(
        measures=tuple(measures),
        names=tuple(name_of(found, at) for at in range(len(found.designs))),
        kept=found.kept,
        share=found.front_p if len(found.metrics) > 1 else found.best_p,
        best=-1 if found.best is None else found.best,
    )


def _effects(studied: Studied, found: Judged) -> StudySection | None:
    """Medians along each field: of points that are spread evenly, else they tell of where the others were looked at."""
    from mimdsim.report.figures_effects import draw_effects

    if not found.metrics or studied.study.sampling.kind in ("sensitivity", "search"):
        return None
    metric = found.metrics[0]
    factor, unit = common_unit(metric.unit, (float(value) * metric.scale for value in found.middle[0]))
    axes = {name: [design.rows[0][name] for design in found.designs] for name in found.study.varied}
    label = f"{metric.name}, {unit}" if unit else metric.label
    drawn = draw_effects(axes, found.middle[0] * (metric.scale / factor), label)
    return StudySection(key="effects", title="What each field does", figures=[drawn]) if drawn else None


def _sweeps(studied: Studied) -> StudySection | None:
    """Lines of a grid, and where GPUs are faster."""
    from mimdsim.report.figures_sweep import draw_crossover, draw_sweep

    study, rows = studied.study, list(studied.rows)
    if study.sampling.kind != "grid" or not study.axes:
        return None
    names = [*study.axes, *(["workload"] if len(study.workloads) > 1 else [])]
    gpus = [Path(name).stem for name in study.gpus]
    untimed = sum(row["ms_per_training_step"] is None for row in rows)
    out = f" {counted(untimed, 'point')} without a time {'is' if untimed == 1 else 'are'} left out." if untimed else ""
    figures = [
        (draw_sweep(rows, names), f"Every point along {names[0]}; bands: intervals.{out} Doubts that points share move "
         "them together: the panel in the middle takes that into account."),
        (draw_crossover(rows, names, gpus), "GPU time over tiled time; bands: intervals from opposite ends of both."),
    ]  # fmt: skip
    drawn = [(figure, said) for figure, said in figures if figure is not None]
    return StudySection(key="lines", title="Along the first field", figures=drawn) if drawn else None


def _notes(studied: Studied) -> StudySection | None:
    notes = notes_of(studied)
    more = [
        f"{counted(len(notes) - MOST_NOTES, 'more note is', 'more notes are')} left out: column 'note' of results.csv."
    ]
    lines = [*notes[:MOST_NOTES], *(more if len(notes) > MOST_NOTES else [])]
    return StudySection(key="notes", title="Notes", lines=lines) if lines else None


def _columns(found: Judged) -> list[StudyColumn]:
    """Of all points: what is varied, what became of them, metrics with their intervals, and probabilities."""
    designs = range(len(found.designs))
    columns = [_varied(name, [design.rows[0][name] for design in found.designs]) for name in found.study.varied]
    columns.append(StudyColumn(name="what", unit="", values=[_became(found, at) for at in designs]))
    for place, metric in enumerate(found.metrics):
        ends = [interval(found, place, at) for at in designs]
        middle = found.middle[place]
        factor, unit = common_unit(metric.unit, (float(value) * metric.scale for value in middle))
        columns.append(_numbered(metric.name, unit, middle * metric.scale / factor))
        if any(low != high for low, high in ends if low == low):
            for side, word in enumerate(("low", "high")):
                values = np.array([end[side] for end in ends], float) * metric.scale / factor
                columns.append(_numbered(f"{metric.name} {word}", unit, values))
        if len(found.study.workloads) > 1:
            columns += [_of_workload(found, metric, name, factor, unit) for name in found.study.workloads]
    judged_ones = found.fits & ~np.isnan(found.middle).any(axis=0)
    shares = {"front": found.front_p if len(found.metrics) > 1 else None, "best": found.best_p}
    shares["keeps"] = found.keeps_p if found.study.limits else None
    for name, share in shares.items():
        if share is not None:
            columns.append(_numbered(name, "%", np.where(judged_ones, 100 * share, np.nan)))
    return columns


def _of_workload(found: Judged, metric: Metric, name: str, factor: float, unit: str) -> StudyColumn:
    place = list(found.study.workloads).index(name)
    values = [metric.of(design.rows[place]) for design in found.designs]
    numbers = np.array([np.nan if value is None else value for value in values]) * metric.scale / factor
    return _numbered(f"{metric.name} {name}", unit, numbers)


def _varied(name: str, values: Sequence[Any]) -> StudyColumn:
    if not all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in values):
        return StudyColumn(name=name, unit="", values=[field_value(name, value) for value in values])
    factor, unit = common_unit(name.rsplit(".", 1)[-1], values)
    return StudyColumn(name=name, unit=unit, values=[value if factor == 1.0 else value / factor for value in values])


def _numbered(name: str, unit: str, values: np.ndarray) -> StudyColumn:
    return StudyColumn(name=name, unit=unit, values=[None if np.isnan(value) else float(value) for value in values])


def _became(found: Judged, at: int) -> str:
    idle = any(row.get(FIRING_COLUMN) for row in found.designs[at].rows)
    return _judged(found, at) + (", with layers that never fire, or always" if idle else "")


def _judged(found: Judged, at: int) -> str:
    if at == found.best:
        return "the answer"
    if found.kept[at]:
        return "kept"
    if not found.timed[at]:
        return "no result"
    if not found.fits[at]:
        return "does not fit"
    beyond = [str(limit) for limit in found.study.limits if not all(map(limit.kept, found.designs[at].rows))]
    return f"beyond {', '.join(beyond)}" if beyond else "metric unknown"
