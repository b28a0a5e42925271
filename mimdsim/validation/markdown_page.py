"""The page 'Predicted and measured': every row of published figures in Markdown, with the rows that are out and why.

Why, says `references/disagreements.toml`, written by hand: which term would have to be wrong, by pattern of row. A row
that is out and has no note is an open question, and a note for a row that is no longer out is stale; tests fail on both
for the tables in the repository.
"""

from __future__ import annotations

import math
import textwrap
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, replace
from fnmatch import fnmatchcase
from html import escape
from itertools import chain
from pathlib import Path
from statistics import fmean, median
from typing import Any

from mimdsim.base import __version__
from mimdsim.base.errors import DescriptionError
from mimdsim.base.files import dump_json, write_atomically
from mimdsim.base.schema import Section, build, read_toml
from mimdsim.base.search_path import files_of
from mimdsim.base.units import counted
from mimdsim.report.formatting import clipped, plain, significant
from mimdsim.validation.reference_table import Row, grouped

# ---- rows of published figures as lines for a console of 160 columns and as JSON, with summaries by kind and by size


COLUMNS = 160
NAME_COLUMNS = 66
MOST_REASONS, MOST_REASON = 4, 60  # why rows are not compared: how many, characters of each
SIZES = (
    (1e9, "below 1 GFLOP"),
    (1e10, "1 to 10 GFLOP"),
    (1e11, "10 to 100 GFLOP"),
    (math.inf, "100 GFLOP and more"),
)  # what a product's operations are below, and the name of that range


class Summary:
    """Rows of one kind: how many are compared and within tolerance, and their relative errors (None: none has one).

    Upper bounds are compared, but have no error.
    """

    def __init__(self, rows: list[Row], kind: str = ""):
        compared = [row for row in rows if row.within is not None]
        measured = [row for row in compared if not row.upper_bound]
        errors = [row.error for row in measured]
        self.kind, self.rows, self.compared = kind, len(rows), len(compared)
        self.computed = sum(row.predicted is not None for row in rows)
        self.within = sum(row.within is True for row in rows)
        self.mean_error = fmean(errors) if errors else None
        self.median_error = median(errors) if errors else None
        self.worst = max(measured, key=lambda row: row.error) if measured else None


def range_of(row: Row) -> str:
    """The range of sizes that a row belongs to; '' for rows that are not summed up by size."""
    return "" if row.size is None else next(name for bound, name in SIZES if row.size < bound)


def ranges_of(rows: list[Row]) -> list[tuple[str, list[Row]]]:
    """The rows of every range of sizes, small ones first; ranges without a row are left out."""
    found = [(name, [row for row in rows if range_of(row) == name]) for _, name in SIZES]
    return [(name, chosen) for name, chosen in found if chosen]


def rows_as_json(rows: list[Row]) -> str:
    """All rows with ratio, verdict and range, and the mean errors of their table, of their kind and of their range."""
    listed: list[dict[str, Any]] = []
    for _, of_file in grouped(rows, "file"):
        table_error = Summary(of_file).mean_error
        kinds = {kind: Summary(chosen).mean_error for kind, chosen in grouped(of_file, "kind")}
        ranges = {
            (kind, name): Summary(chosen).mean_error
            for kind, of_kind in grouped(of_file, "kind")
            for name, chosen in ranges_of(of_kind)
        }
        for row in of_file:
            more = {
                "ratio": row.ratio,
                "second_ratio": row.second_ratio,
                "within": row.within,
                "range": range_of(row),
                "table_mean_error": table_error,
                "kind_mean_error": kinds[row.kind],
                "range_mean_error": ranges.get((row.kind, range_of(row))),
            }
            listed.append(asdict(replace(row, bearing=None)) | more)
            del listed[-1]["bearing"]
    return dump_json(listed)


def table(rows: list[Row]) -> list[str]:
    """Aligned lines per file, none longer than COLUMNS; followed by sources, notes and a summary; then that of all."""
    files = [[*_lines_of(file, chosen), ""] for file, chosen in grouped(rows, "file")]
    lines = [*chain.from_iterable(files), *_in_all(rows)]
    return [
        part
        for line in lines
        for part in textwrap.wrap(line, COLUMNS, subsequent_indent=" " * 8, break_on_hyphens=False) or [""]
    ]


def _in_all(rows: list[Row]) -> Iterator[str]:
    """How many rows there are, how many held, and why others were not compared."""
    yield f"In all {counted(len(rows), 'row')}: {verdict(Summary(rows))}"
    left_out = [row for row in rows if row.within is None]
    why = Counter(
        "nothing is published" if row.predicted is not None else " ".join(plain(row.note).split()) for row in left_out
    )
    if why:
        said = [f"{count} ({clipped(reason, MOST_REASON)})" for reason, count in why.most_common(MOST_REASONS)]
        others = sum(why.values()) - sum(count for _, count in why.most_common(MOST_REASONS))
        yield f"Not compared: {'; '.join([*said, *([f'{others} for other reasons'] if others else [])])}"


def _lines_of(file: str, rows: list[Row]) -> Iterator[str]:
    sources = list(dict.fromkeys(plain(row.source) for row in rows))
    width = min(max(len(plain(row.name)) for row in rows), NAME_COLUMNS)
    yield plain(file)
    heads = f"{'predicted':>10} {'published':>10} {'ratio':>6} {'tol.':>5}"
    yield f"  {'name':<{width}} {heads}      [interval] unit, source"
    for row in rows:
        mark = f" ({sources.index(plain(row.source)) + 1})" if len(sources) > 1 and row.predicted is not None else ""
        yield _line_of(row, width) + mark
    for number, source in enumerate(sources, start=1):
        yield f"  source{f' ({number})' if len(sources) > 1 else ''}: {source}"
    for note in dict.fromkeys(row.note for row in rows if row.note and row.ratio is not None):
        yield f"  note: {plain(note)}"
    kinds = grouped(rows, "kind")
    for kind, of_kind in kinds:
        if len(kinds) > 1 and any(row.ratio is not None for row in of_kind):
            yield f"  {plain(kind)}: {verdict(Summary(of_kind))}"
            yield from _by_size(of_kind)
    yield f"  {verdict(Summary(rows))}; {sum(row.predicted is None for row in rows)} not computed"
    yield from _by_size(rows)


def _by_size(rows: list[Row]) -> Iterator[str]:
    for name, chosen in ranges_of(rows):
        yield f"    {name}: {verdict(Summary(chosen))}"


def _line_of(row: Row, width: int) -> str:
    name = plain(row.name)
    name = name if len(name) <= width else name[: width - 3] + "..."
    published = "-" if row.published is None else f"{row.published:.6g}"
    if row.predicted is None:
        return f"  {name:<{width}} {'-':>10} {published:>10} {'-':>6} {'-':>5}  not computed: {plain(row.note)}"
    ratio = "-" if row.ratio is None else f"{row.ratio:.3f}"
    tolerance = "-" if row.ratio is None else "bound" if row.upper_bound else f"{row.tolerance:.0%}"
    out = "OUT" if row.within is False else ""
    interval = "" if row.low is None or row.low == row.high else f"[{row.low:.4g}, {row.high:.4g}] "
    noise = "" if row.noise is None else f", runs \u00b1{row.noise:.2g}"
    second = "" if row.second_ratio is None else f", {row.second_name} {row.second:.4g}: {row.second_ratio:.3f}"
    note = f"; {plain(row.note)}" if row.published is None else ""
    numbers = f"{row.predicted:>10.6g} {published:>10} {ratio:>6} {tolerance:>5} {out:<3}"
    return f"  {name:<{width}} {numbers}  {interval}{plain(row.unit)}{noise}{second}{note}"


def verdict(summary: Summary) -> str:
    """'16 of 18 within tolerance, mean error 7.1%, median 5.6%, worst 1.216: NAME'."""
    if summary.worst is None:
        return f"{summary.within} of {summary.compared} at most the bound" if summary.compared else "no row is compared"
    return (
        f"{summary.within} of {summary.compared} within tolerance, mean error {summary.mean_error:.1%}, "
        f"median {summary.median_error:.1%}"
        + (f", worst {summary.worst.ratio:.3f}: {plain(summary.worst.name)}" if summary.worst.ratio != 1 else "")
    )


class TableNote(Section):
    """A note on a whole table: file name, heading of its section, where its predictions come from."""

    file: str
    title: str
    about: str


class Disagreement(Section):
    """Rows of a table that are out, by patterns of their names, the term in question, and why."""

    file: str
    rows: tuple[str, ...]
    term: str
    note: str

    def matches(self, row: Row) -> bool:
        """Whether it applies to this row, in or out."""
        return row.file == self.file and any(fnmatchcase(row.name, pattern) for pattern in self.rows)


class Notes(Section):
    """The whole file of notes."""

    table: tuple[TableNote, ...] = ()
    disagreement: tuple[Disagreement, ...] = ()

    def of_table(self, file: str) -> TableNote | None:
        """The note on a whole table, None if there is none."""
        return next((each for each in self.table if each.file == file), None)

    def missing(self, rows: list[Row]) -> list[Row]:
        """Rows that are out without a note."""
        return [row for row in rows if row.within is False and not any(each.matches(row) for each in self.disagreement)]


def load_notes(path: Path | None = None) -> Notes:
    """The notes of `path`, by default `references/disagreements.toml`; raises DescriptionError with every problem."""
    path = path or files_of("references")["disagreements.toml"]
    given, text = read_toml(path)
    return build(Notes, given, where=path.name, text=text)


LABELS, PLOT, FIGURES = 320, 440, 190  # widths in pixels: left of the dots, the dots, right of the dots
HEAD, LINE, FOOT = 34, 20, 26
TICKS = (0.5, 0.7, 0.8, 0.9, 1.0, 1.1, 1.25, 1.4, 2.0)
LOW, HIGH = 0.5, 2.0  # ratios beyond are drawn at the edge
WITHIN, OUT, PALE = "#0072b2", "#d55e00", "#d0d0d0"


def ratios_svg(rows: list[Row]) -> str:
    """An SVG picture of predicted over published; the same rows give the same text."""
    groups = []
    for file, of_file in grouped(rows, "file"):
        for kind, chosen in grouped(of_file, "kind"):
            found = Summary(chosen, kind)
            if found.mean_error is not None:
                name = f"{file.rpartition('.')[0].replace('_', ' ')}{', ' + kind if kind else ''}"
                groups.append((found.mean_error, name, found.within, [row for row in chosen if row.ratio is not None]))
    groups.sort(key=lambda group: (-group[0], group[1]))
    width, height = LABELS + PLOT + FIGURES, HEAD + LINE * len(groups) + FOOT
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" '
        'font-size="12">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
        f'<text x="{LABELS}" y="16" font-weight="bold">predicted / published, every row</text>',
        f'<text x="{LABELS + PLOT + 14}" y="16" font-weight="bold">mean error, within</text>',
    ]
    bottom = HEAD + LINE * len(groups)
    for tick in TICKS:
        colour = "#606060" if tick == 1 else PALE
        lines.append(f'<line x1="{_x(tick)}" y1="{HEAD - 8}" x2="{_x(tick)}" y2="{bottom}" stroke="{colour}"/>')
        lines.append(f'<text x="{_x(tick)}" y="{bottom + 16}" text-anchor="middle">{tick:g}</text>')
    for number, (error, name, within, chosen) in enumerate(groups):
        y = HEAD + LINE * number + LINE // 2
        lines.append(f'<text x="{LABELS - 10}" y="{y + 4}" text-anchor="end">{escape(name)}</text>')
        for row in sorted(chosen, key=lambda row: row.within is False):  # dots that are out are drawn on top
            colour = OUT if row.within is False else WITHIN
            lines.append(
                f'<circle cx="{_x(row.ratio or LOW)}" cy="{y}" r="3.5" fill="{colour}" fill-opacity="0.55">'
                f"<title>{escape(row.name)}: {row.ratio:.3f}</title></circle>"
            )
        lines.append(f'<text x="{LABELS + PLOT + 14}" y="{y + 4}">{error:.1%}, {within} of {len(chosen)}</text>')
    return "\n".join([*lines, "</svg>"]) + "\n"


def _x(ratio: float) -> str:
    share = math.log(min(max(ratio, LOW), HIGH) / LOW) / math.log(HIGH / LOW)
    return f"{LABELS + PLOT * share:.1f}"


TITLE = "Predicted and measured"
LAST = "What is out and which term would have to be wrong"
HOW_TO_READ = """\
Every figure in the tables below was published or measured by others; next to it is what mimdsim computes for the \
same case. Nothing is fitted to a row. Where a number or a choice in the model was taken from a table, or made with \
it in view, the table's section says so: such rows show that the model is consistent, not that it predicts.

- *Ratio* is predicted over published.
- A row is *within* when its ratio differs from 1 by no more than the *tolerance*, which belongs to the table and not \
to the prediction. Otherwise it is **OUT**: it is listed nevertheless, and the last section says which term would have \
to be wrong.
- *Interval* says how far the prediction itself could be off, given the certainty of the numbers it uses; a dash means \
that there is none.
- *Error* in the summary is the distance of the ratio from 1, over the rows that have both figures; *worst* is the row \
with the largest error.
- Where the tolerance is *bound*, only an upper bound was published: any prediction up to it is within, and there is \
no error.
- Rows that cannot be computed are listed with the reason and do not count towards the errors."""
NO_NOTE = "No note yet: an open question"
FIGURE = "predicted-and-measured.svg"
FIGURE_SAYS = (
    "Ratio of predicted to published for every row, one line per group, worst group first; red: out of tolerance"
)
DIGITS = 4
VERDICTS = {None: "–", True: "within", False: "**OUT**"}


def write_page(path: Path, rows: list[Row], *, with_data: bool, files: tuple[str, ...] = ()) -> None:
    """Write the page and, next to it, its figure; raises MimdsimError if they cannot be written."""
    figure = figure_of(path)
    lines = page_lines(rows, load_notes(), with_data=with_data, files=files, figure=figure.name)
    content = "\n".join(lines) + "\n"
    write_atomically(figure, ratios_svg(rows))
    write_atomically(path, content)


def figure_of(page: Path) -> Path:
    """Where the figure of a page goes; raises MimdsimError for a page of the same name."""
    figure = page.with_suffix(".svg")
    if page.suffix.casefold() == figure.suffix:
        raise DescriptionError("validate", [f"--page {page}: its figure is written there; name the page .md"])
    return figure


def page_lines(
    rows: list[Row], notes: Notes, *, with_data: bool, files: tuple[str, ...] = (), figure: str = FIGURE
) -> Iterator[str]:
    """Lines of the page. with_data: whether recordings gave the activity of the training runs; files: names given."""
    tables = grouped(rows, "file")
    command = " ".join(["mimdsim validate", *files, *(["--data N-MNIST"] * with_data), "--page FILE.md"])
    yield from apart(f"# {TITLE}", f"![{FIGURE_SAYS}]({figure})", "## Summary")
    yield from _summary(tables)
    yield from apart(
        "## How to read the tables",
        HOW_TO_READ,
        f"Made by mimdsim {__version__}: `{_code(command)}`"
        + (", where N-MNIST is the folder of the recordings" if with_data else "")
        + ". The same tables are printed without `--page`, and as JSON with `--json`.",
    )
    for file, chosen in tables:
        yield from _section(file, chosen, notes)
    yield from _not_computed(tables)
    yield from _what_is_out(tables, notes)


def apart(*paragraphs: str) -> Iterator[str]:
    """Paragraphs, each with an empty line after it."""
    for paragraph in paragraphs:
        yield paragraph
        yield ""


def _summary(tables: list[tuple[str, list[Row]]]) -> Iterator[str]:
    yield from heads("table", "figure", "*rows", "*computed", "*within", "*mean error", "*median error", "worst row")
    for file, chosen in tables:
        for kind, of_kind in grouped(chosen, "kind"):
            yield _summary_line(file, Summary(of_kind, kind))
            for size, of_size in ranges_of(of_kind):
                yield _summary_line(file, Summary(of_size, f"{kind}, {size}"))
    yield _summary_line("all", Summary([row for _, chosen in tables for row in chosen]))
    yield ""


def _summary_line(file: str, found: Summary) -> str:
    within = f"{found.within} of {found.compared}" if found.compared else "–"
    worst = "–"
    if found.worst is not None and found.worst.ratio is not None and found.worst.ratio != 1:
        worst = f"{cell(found.worst.name)} ({found.worst.ratio:.3f})"
    errors = (_as(".1%", found.mean_error), _as(".1%", found.median_error))
    return line(cell(file), cell(found.kind), str(found.rows), str(found.computed), within, *errors, worst)


def _section(file: str, rows: list[Row], notes: Notes) -> Iterator[str]:
    known = notes.of_table(file)
    title = f"## {cell(known.title)}: `{_code(file)}`" if known else f"## `{_code(file)}`"
    introduced = _paragraphs(known.about) if known else []
    sources = list(dict.fromkeys(row.source for row in rows))
    seconds = list(dict.fromkeys(row.second_name for row in rows if row.second is not None))
    remarks = list(dict.fromkeys(row.note for row in rows if row.note and row.predicted is not None))
    yield from apart(title, *introduced, f"<details markdown><summary>{len(rows)} rows, sources and remarks</summary>")
    beside = [cell for name in seconds for cell in (f"*{name}", "*its ratio")]
    figures, about = ("row", "*predicted", "*published", "unit", "*ratio"), ("interval", "source", "remark")
    yield from heads(*figures, *beside, "*tolerance", "", *about)
    for row in rows:
        if row.predicted is None:
            continue
        second = [
            cell
            for name in seconds
            for cell in ((_number(row.second), _as(".3f", row.second_ratio)) if row.second_name == name else ("–", "–"))
        ]
        noise = "" if row.noise is None else f" ± {significant(row.noise, 2)}"
        yield line(
            cell(row.name),
            _number(row.predicted),
            _number(row.published) + noise,
            cell(row.unit),
            _as(".3f", row.ratio),
            *second,
            "–" if row.ratio is None else "bound" if row.upper_bound else f"{row.tolerance:.0%}",
            VERDICTS[row.within],
            "–" if row.low is None or row.low == row.high else f"{_number(row.low)} to {_number(row.high)}",
            f"S{sources.index(row.source) + 1}" if row.source else "–",
            f"R{remarks.index(row.note) + 1}" if row.note else "",
        )
    yield ""
    for number, source in enumerate(sources, start=1):
        yield f"- S{number}: {cell(source) or '–'}"
    for number, remark in enumerate(remarks, start=1):
        yield f"- R{number}: {cell(remark)}"
    yield ""
    yield from apart("</details>")


def _not_computed(tables: list[tuple[str, list[Row]]]) -> Iterator[str]:
    yield from apart("## What cannot be computed, and why")
    left = [row for _, chosen in tables for row in chosen if row.predicted is None]
    if not left:
        yield "Every row is computed."
    else:
        yield from heads("table", "row", "*published", "unit", "why")
        for row in left:
            yield line(cell(row.file), cell(row.name), _number(row.published), cell(row.unit), cell(row.note))
    yield ""


def _what_is_out(tables: list[tuple[str, list[Row]]], notes: Notes) -> Iterator[str]:
    yield from apart(f"## {LAST}")
    out = [row for _, chosen in tables for row in chosen if row.within is False]
    if not out:
        yield "No row is out."
    groups: list[tuple[Disagreement | None, list[Row]]] = [
        (note, [row for row in out if note.matches(row)]) for note in notes.disagreement
    ]
    groups.append((None, notes.missing(out)))
    for note, chosen in groups:
        if not chosen:
            continue
        yield from apart(f"### {cell(note.term)}", *_paragraphs(note.note)) if note else apart(f"### {NO_NOTE}")
        for row in chosen:
            figures = f"{_number(row.predicted)} predicted, {_number(row.published)} published, {_as('.3f', row.ratio)}"
            yield f"- `{_code(row.file)}`, {cell(row.name)}: {figures}"
        yield ""


def heads(*names: str) -> Iterator[str]:
    """Head and rule of a table; a star before a name: a column of numbers, aligned right."""
    yield line(*(name.removeprefix("*") for name in names))
    yield line(*("---:" if name.startswith("*") else "---" for name in names))


def line(*cells: str) -> str:
    return "| " + " | ".join(cells) + " |"


def cell(text: str) -> str:
    """Foreign text in a table: on one line, escaping what would end the cell, make a tag or open emphasis."""
    for letter in "\\|<*_`":
        text = text.replace(letter, {"<": "&lt;"}.get(letter, "\\" + letter))
    return plain(text)


def _paragraphs(text: str) -> list[str]:
    """Foreign text with an empty line between paragraphs, each on one line."""
    return [plain(each) for each in text.split("\n\n")]


def _code(text: str) -> str:
    """Text between backticks, which needs no escapes but must not end there."""
    return plain(text).replace("`", "'")


def _number(value: float | None) -> str:
    """Whole numbers in full, others to four digits."""
    if value is None:
        return "–"
    return f"{value:,.0f}" if abs(value) >= 1000 or value == round(value) else significant(value, DIGITS)


def _as(form: str, value: float | None) -> str:
    return "–" if value is None else format(value, form)
