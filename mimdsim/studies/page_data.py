"""The page of a study: what it shows, as plain data for `report/page.py`, and its file; its figures as matplotlib axes,
for notebooks; and the rows of a sweep, which have them too."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mimdsim.base.errors import MimdsimError
from mimdsim.base.files import read_whole, write_atomically
from mimdsim.base.shown import Listed, Sheet
from mimdsim.base.units import common_unit, counted
from mimdsim.pipeline.overrides import load_tiled
from mimdsim.report.formatting import field_value, quantity
from mimdsim.report.page import StudyColumn, StudyPage, study_page
from mimdsim.report.sections import Section
from mimdsim.report.tables import Table, shown, table
from mimdsim.studies.answer_text import answer, collect_notes, firing_warnings, tables, would_change
from mimdsim.studies.description import write_study
from mimdsim.studies.files import STUDY_FILE
from mimdsim.studies.metrics import METRICS, Row
from mimdsim.studies.pareto import Ranking, rank
from mimdsim.studies.questions import kind_of
from mimdsim.studies.questions.sensitivity import effects_tables
from mimdsim.studies.results import is_number, table_cells
from mimdsim.studies.runner import StudyResult
from mimdsim.studies.sensitivity import Sensitivities

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from mimdsim.report.figures_studies import Judgement


MOST_DOUBTS, MOST_NOTES = 10, 40
SECTIONS_OF = {"exchange": "exchange", "sync": "sync", "loop": "sync"}  # first word of a source: the machine's section


def write_report(result: StudyResult, folder: Path) -> list[Path]:
    """The page of a study, and the study as a file; returns the paths."""
    paths = [folder / "report.html", folder / STUDY_FILE]
    write_study(result.study, paths[1])
    write_atomically(paths[0], study_page(page_of(result, read_whole(paths[1]).decode())))
    return paths


def page_of(result: StudyResult, source: str) -> StudyPage:
    """source: the text of the study file."""
    ranking, study = rank(result), result.study
    return StudyPage(
        title=study.question or f"A study of {', '.join(study.workloads)} on {study.machine_name}",
        facts=_facts(ranking),
        doubted=firing_warnings(result),
        answer=answer(ranking),
        sections=[section for section in _sections(ranking) if section is not None],
        columns=_columns(ranking),
        provenance=_provenance(ranking),
        provenance_tables=[each for each in (doubts_table(ranking), numbers_table(ranking)) if each.rows],
        source=source,
        change=would_change(ranking),
    )


def _provenance(ranking: Ranking) -> list[tuple[str, str]]:
    study, rows, draws = ranking.study, ranking.result.rows, ranking.draws
    seeds = sorted({row["seed"] for row in rows if row.get("seed") is not None})
    named = ", ".join(map(str, seeds[:6])) + (f" and {len(seeds) - 6} more" if len(seeds) > 6 else "")
    digests = hashlib.sha256("".join(str(row["digest"]) for row in rows if row.get("digest")).encode()).hexdigest()
    drawn = f"{counted(draws.count, 'Monte Carlo draw')} with seed {draws.seed}"
    said = [
        ("mimdsim", ", ".join(sorted({str(row["tool_version"]) for row in rows if row.get("tool_version")}))),
        ("machine", f"{study.machine_name}: {load_tiled(study.machine).title}"),
        ("seeds", f"workloads {named}; points of the study {study.sampling.seed}; {drawn}"),
        ("digest of all points", f"{digests} (of each: column 'digest' of results.csv)"),
        ("beside this page", "results.csv, results.parquet (with the seconds of every source), study.toml"),
    ]
    together = ("workloads together", "weighted geometric mean; of area, power, memory and tiles the largest")
    return [*said, together] if len(study.workloads) > 1 else said


def doubts_table(ranking: Ranking) -> Table:
    """What makes the answer's time most uncertain, over all workloads."""
    headers = ("source of uncertainty (kind)", "of the time", "plus or minus", "of the interval")
    if ranking.best is None:
        return table("doubts", "", headers, [])
    at = ranking.best * ranking.draws.width + np.arange(ranking.draws.width)
    reach, whole = ranking.draws.reach[at] * ranking.draws.seconds[at, None], ranking.draws.seconds[at].sum()
    seconds: dict[str, float] = {}
    for row in ranking.designs[ranking.best]:
        for name, part, _ in row["seconds_by_source"] or ():
            seconds[name] = seconds.get(name, 0.0) + part
    each, total = reach.sum(axis=0), reach.sum() or 1.0
    order = [int(place) for place in np.argsort(-each, kind="stable") if each[place] > 0]
    rows = [
        (
            name,
            shown(f"{100 * seconds[name] / whole:.1f} %", seconds[name]),
            shown(quantity("seconds", *[size] * 3), size),
            shown(f"{100 * size / total:.1f} %", size),
        )
        for name, size in ((ranking.draws.sources[place], float(each[place])) for place in order[:MOST_DOUBTS])
    ]
    left = len(order) - len(rows)
    note = f"{left:,} smaller ones are left out." if left else ""
    return table("doubts", "What makes the answer's time uncertain, largest first", headers, rows, note)


def numbers_table(ranking: Ranking) -> Table:
    """The machine's numbers that the study varies, or that cause most uncertainty, with their sources."""
    machine = load_tiled(ranking.study.machine)
    wide = [row[0].text.split()[0].rstrip(",") for row in doubts_table(ranking).rows]
    sections = {SECTIONS_OF[word] for word in wide if word in SECTIONS_OF}
    rows = []
    for section in type(machine).model_fields:
        part = getattr(machine, section)
        for field, said in getattr(part, "sources", {}).items():
            name = f"{section}.{field}"
            if section in sections or name in ranking.study.varied:
                rows.append((name, field_value(field, getattr(part, field, "")), said))
    note = "Values of the machine before the study changed them. Costs of codelets have their kind of source in the "
    note += "table above; docs/model.md describes them."
    title = f"Numbers of {ranking.study.machine_name} that are varied or most uncertain"
    return table("numbers", title, ("number", "value", "source"), rows, note)


def _facts(ranking: Ranking) -> list[str]:
    study = ranking.study
    names = [f"{name} (weight {weight:g})" for name, weight in study.workloads.items()]
    workloads = ", ".join(names if len(set(study.workloads.values())) > 1 else study.workloads)
    spikes = "recorded spikes" if study.fill is None else f"lists filled to {study.fill:.0%}"
    return [
        f"{workloads} on {study.machine_name}",
        f"{counted(len(ranking.designs), 'point')}, {study.sampling.kind}",
        f"mapping: {study.mapping}",
        spikes,
        *(f"constraint: {limit}" for limit in study.limits),
    ]


def _sections(ranking: Ranking) -> list[Section | None]:
    """The sections between the answer and the table of all points."""
    found, asked = ranking.result.found, kind_of(ranking)
    first: Section | None = best_section(ranking) if asked.name == "which-of" else None
    if first is None and ranking.metrics and asked.tables is not effects_tables and (made := asked.tables(ranking)):
        first = Section(key="evidence", title="What this rests on", tables=made)
    effects = None if found is None else _sensitivity(found, effects_tables(ranking))
    return [first, effects, effects_section(ranking), lines_section(ranking.result), _notes(ranking.result)]


def _sensitivity(found: Sensitivities, listed: Sequence[Table]) -> Section:
    """Tornado figures and tables, one for each metric."""
    from mimdsim.report.figures_studies import draw_tornado

    figures = []
    for each in found.metrics:
        median = f"the median, {METRICS[each.metric].shown(float(f'{each.median:.3g}'))}"
        drawn = draw_tornado(each.bars(), title=f"What changes the {each.metric.replace('_', ' ')} most", of=median)
        if drawn is not None:
            said = f"From one end of each range to the other, in percent of {median}; whiskers: a standard deviation."
            figures.append((drawn, said))
    return Section(key="sensitivity", title="What matters", figures=figures, tables=listed)


def best_section(ranking: Ranking) -> Section:
    from mimdsim.report.figures_studies import draw_front, draw_ranking

    listed = [replace(each, note=DRAWN.format(count=ranking.draws.count)) for each in tables(ranking)]
    if ranking.conditions:  # a figure of all points would rank workloads
        return Section(key="best", title="Best of each workload", tables=listed)
    several = len(ranking.metrics) > 1
    drawn = (draw_front if several else draw_ranking)(_judgement(ranking))
    return Section(
        key="best",
        title="The front" if several else "The best points",
        figures=[drawn] if drawn else [],
        tables=listed,
    )


DRAWN = (
    "Probabilities are shares of {count:,} Monte Carlo draws. Each draw places every source of uncertainty at random "
    "between its bounds, at the same place for all points: what makes one point slower makes others slower too."
)


def _judgement(ranking: Ranking) -> Judgement:
    from mimdsim.report.figures_studies import Judgement, Measure

    measures = []
    for place, metric in enumerate(ranking.metrics):
        _, _, label, (middle, low, high) = _scale(ranking, place)
        measures.append(Measure(name=metric.name, label=label, better=metric.better, middle=middle, low=low, high=high))
    return Judgement(
        measures=tuple(measures),
        names=tuple(map(ranking.name, range(len(ranking.designs)))),
        kept=ranking.kept,
        share=ranking.front_p if len(ranking.metrics) > 1 else ranking.best_p,
        best=-1 if ranking.best is None else ranking.best,
    )


def _scale(ranking: Ranking, place: int) -> tuple[float, str, str, np.ndarray]:
    """What the columns of a metric are multiplied by to be in one unit for all points, that unit, a label, and
    float64[3, designs] in this unit: the metric and the ends of its intervals."""
    metric = ranking.metrics[place]
    factor, unit = common_unit(metric.unit, (float(value) * metric.scale for value in ranking.middle[place]))
    ends = np.array([ranking.interval(place, at) for at in range(len(ranking.designs))], float).reshape(-1, 2)
    values = np.vstack([ranking.middle[place], ends.T]) * (metric.scale / factor)
    return metric.scale / factor, unit, f"{metric.name}, {unit}" if unit else metric.label, values


def effects_section(ranking: Ranking) -> Section | None:
    """Medians along each field: of points that are spread evenly, else they tell of where the others were looked at."""
    from mimdsim.report.figures_studies import draw_effects

    if not ranking.metrics or ranking.study.sampling.kind in ("sensitivity", "search"):
        return None
    _, _, label, values = _scale(ranking, 0)
    axes = {name: ranking.column(name) for name in ranking.study.varied}
    drawn = draw_effects(axes, np.where(ranking.fits, values[0], np.nan), label)  # what does not fit takes no time
    return Section(key="effects", title="What each field does", figures=[drawn]) if drawn else None


def lines_section(result: StudyResult) -> Section | None:
    """Lines of a grid, and where GPUs are faster."""
    from mimdsim.report.figures_sweep import draw_crossover, draw_sweep

    study, rows = result.study, list(result.rows)
    if study.sampling.kind != "grid" or not study.axes:
        return None
    names = [*study.axes, *(["workload"] if len(study.workloads) > 1 else [])]
    gpus = [Path(name).stem for name in study.gpus]
    untimed = sum(row["ms_per_training_step"] is None for row in rows)
    out = f" {counted(untimed, 'point')} without a time {'is' if untimed == 1 else 'are'} left out." if untimed else ""
    figures = [
        (draw_sweep(rows, names), f"Every point along {names[0]}; bands: intervals.{out} "
         "Uncertainties that points share move them together: the panel in the middle takes that into account."),
        (draw_crossover(rows, names, gpus), "GPU time over tiled time; bands: intervals from opposite ends of both."),
    ]  # fmt: skip
    drawn = [(figure, said) for figure, said in figures if figure is not None]
    return Section(key="lines", title="Along the first field", figures=drawn) if drawn else None


def _notes(result: StudyResult) -> Section | None:
    notes = collect_notes(result)
    lines, more = notes[:MOST_NOTES], counted(len(notes) - MOST_NOTES, "more note is", "more notes are")
    lines += [f"{more} left out: column 'note' of results.csv."] if len(notes) > MOST_NOTES else []
    return Section(key="notes", title="Notes", lines=lines) if lines else None


def _columns(ranking: Ranking) -> list[StudyColumn]:
    """Of all points: what is varied, what became of them, metrics with their intervals, and probabilities."""
    designs = range(len(ranking.designs))
    columns = [_varied_column(name, ranking.column(name)) for name in ranking.study.varied]
    columns.append(StudyColumn(name="what", unit="", values=[_outcome(ranking, at) for at in designs]))
    for place, metric in enumerate(ranking.metrics):
        factor, unit, _, (middle, low, high) = _scale(ranking, place)
        columns.append(_number_column(metric.name, unit, middle))
        if ((low != high) & ~np.isnan(low)).any():
            columns.append(_number_column(f"{metric.name} low", unit, low))
            columns.append(_number_column(f"{metric.name} high", unit, high))
        if len(ranking.study.workloads) > 1:
            for number, name in enumerate(ranking.study.workloads):
                of_each = np.array([metric.of(rows[number]) for rows in ranking.designs], float)
                columns.append(_number_column(f"{metric.name} {name}", unit, of_each * factor))
    ranked = ranking.fits & ~np.isnan(ranking.middle).any(axis=0)
    shares = {"front": ranking.front_p if len(ranking.metrics) > 1 else None, "best": ranking.best_p}
    shares["keeps"] = ranking.keeps_p if ranking.study.limits else None
    for name, share in shares.items():
        if share is not None:
            columns.append(_number_column(name, "%", np.where(ranked, 100 * share, np.nan)))
    return columns


def _varied_column(name: str, values: Sequence[Any]) -> StudyColumn:
    if not all(map(is_number, values)):
        return StudyColumn(name=name, unit="", values=[field_value(name, value) for value in values])
    factor, unit = common_unit(name.rsplit(".", 1)[-1], values)
    return StudyColumn(name=name, unit=unit, values=[value if factor == 1.0 else value / factor for value in values])


def _number_column(name: str, unit: str, values: np.ndarray) -> StudyColumn:
    return StudyColumn(name=name, unit=unit, values=[None if np.isnan(value) else float(value) for value in values])


def _outcome(ranking: Ranking, at: int) -> str:
    """What became of a point."""
    problems = ", ".join(ranking.problems(at)).replace(", beyond ", ", ")
    said = "the answer" if at == ranking.best else problems or "kept"
    return f"{said}, with layers that never fire, or always" if ranking.has_constant_layers(at) else said


class StudyPlots:
    """The figures of a study. Each method draws a figure and returns its axes; a `MimdsimError` says if the study has
    nothing for it."""

    def __init__(self, result: StudyResult):
        self._result = result

    def __repr__(self) -> str:
        return "figures of a study: plot.best(), plot.effects(), plot.lines(), plot.crossover()"

    def best(self) -> list[Axes]:
        """The front of the metrics, or with one metric the best points, with intervals and probabilities.

        >>> len(swept.plot.best())
        1
        """
        return self._axes(lambda: best_section(rank(self._result)), 0, "points to rank")

    def effects(self) -> list[Axes]:
        """The first metric along every varied field.

        >>> [panel.get_title(loc="left").split(":")[0] for panel in swept.plot.effects()]
        ['tile.worker_contexts']
        """
        return self._axes(lambda: effects_section(rank(self._result)), 0, "fields that vary, evenly")

    def lines(self) -> list[Axes]:
        """Time, its ratio to the first point's, and memory along the first axis of a grid.

        >>> [panel.get_title(loc="left") for panel in swept.plot.lines()]
        ['Time', 'Time relative to the first point', 'Memory']
        """
        return self._axes(lambda: lines_section(self._result), 0, "grid with results")

    def crossover(self) -> list[Axes]:
        """GPU time over tiled time along the first axis of a grid; of studies with GPUs.

        >>> studied.plot.crossover()  # doctest: +SKIP
        """
        return self._axes(lambda: lines_section(self._result), 1, "grid beside GPUs")

    def _axes(self, drawn: Callable[[], Section | None], which: int, needed: str) -> list[Axes]:
        """The axes of a figure of a section of the page; others that were drawn for it are closed."""
        from mimdsim.report.style import on_pyplot

        with on_pyplot() as close:
            section = drawn()
            figures = [figure for figure, _ in section.figures] if section is not None else []
            for place, figure in enumerate(figures):
                if place != which:
                    close(figure)
        if len(figures) <= which:
            raise MimdsimError(f"there is nothing to draw: the study has no {needed}")
        return list(figures[which].axes)


class SweptRows(Listed[Row]):
    """The rows of a sweep, a dict each, with its figures."""

    def __init__(self, result: StudyResult):
        study = result.study
        axes, gpus = list(study.axes), tuple(Path(gpu).stem for gpu in study.gpus)

        def sheet(rows: Sequence[Row]) -> Sheet:
            cells = table_cells(list(rows), axes, gpus)
            first = sorted(range(len(cells[0])), key=lambda at: cells[0][at] in ("compute", "exchange", "sync"))
            head, *others = [[row[at] for at in first] for row in cells]
            return Sheet(f"{counted(len(rows), 'point')} of {' and '.join(study.workloads)}", others, tuple(head))

        super().__init__(map(dict, result.rows), sheet)
        self._result = result

    @property
    def plot(self) -> StudyPlots:
        """Its figures: plot.lines(), plot.crossover(), plot.effects(), plot.best()."""
        return StudyPlots(self._result)
