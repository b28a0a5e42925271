"""The page of a study: one HTML file that works offline. It leads with the answer in words and ends with what would
change it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mimdsim.report.explorer_data import HERE
from mimdsim.report.formatting import plain
from mimdsim.report.page import data_uri, template
from mimdsim.report.tables import Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PIXELS_PER_INCH = 92
ROWS_AT_ONCE = 100  # of the table of all points


@dataclass(frozen=True, kw_only=True, eq=False)
class StudySection:
    """A numbered part of the page. lines: paragraphs; figures: each with what it shows and what it leaves out."""

    key: str
    title: str
    lines: Sequence[str] = ()
    figures: Sequence[tuple[Figure, str]] = ()
    tables: Sequence[Table] = ()


@dataclass(frozen=True, kw_only=True, eq=False)
class StudyColumn:
    """A column of the table of all points: numbers in one unit, or texts; None where there is none."""

    name: str
    unit: str
    values: Sequence[float | str | None]


@dataclass(frozen=True, kw_only=True, eq=False)
class StudyPage:
    """What the page shows, in its order: title and facts, the answer, sections, all points, provenance, and what would
    change the answer. facts: below the title; provenance: name and text; source: the study file; doubted: why the
    answer does not hold for a network that works, said before it."""

    title: str
    facts: Sequence[str]
    answer: Sequence[str]
    sections: Sequence[StudySection]
    columns: Sequence[StudyColumn]
    provenance: Sequence[tuple[str, str]]
    provenance_tables: Sequence[Table]
    source: str
    change: Sequence[str]
    doubted: Sequence[str] = ()


def study_page(page: StudyPage) -> str:
    """The page as text; the same study gives the same bytes."""
    drawn = {section.key: [_embedded(figure, said) for figure, said in section.figures] for section in page.sections}
    return template("study.html").render(
        page=page,
        pictures=drawn,
        points=max((len(column.values) for column in page.columns), default=0),
        rows_at_once=ROWS_AT_ONCE,
        data=packed_columns(page.columns),
        style=(HERE / "study.css").read_text(encoding="utf-8"),
        scripts=[(HERE / "scripts" / name).read_text(encoding="utf-8") for name in ("tables.js", "study_table.js")],
    )


def _embedded(figure: Figure, said: str) -> tuple[str, str, int]:
    """A figure for the page, its caption, and its width in pixels."""
    from mimdsim.report.style import picture

    return (
        data_uri(picture(figure)),
        said,
        round(PIXELS_PER_INCH * figure.get_figwidth()),
    )


def packed_columns(columns: Sequence[StudyColumn]) -> str:
    """The columns as JSON in which no text can end the element that holds it."""
    table: list[dict[str, Any]] = [
        {
            "name": plain(column.name),
            "unit": column.unit,
            "number": any(isinstance(value, (int, float)) for value in column.values),
            "values": [_cell(value) for value in column.values],
        }
        for column in columns
    ]
    text = json.dumps(table, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _cell(value: float | str | None) -> float | str | None:
    """A finite number in seven digits, or a text without control characters."""
    if isinstance(value, str):
        return plain(value)
    if value is None or value != value or value in (float("inf"), float("-inf")):
        return None
    short = float(f"{value:.7g}")
    return int(short) if short.is_integer() and abs(short) < 2**53 else short
