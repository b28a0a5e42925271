"""Rows of a table of published figures, as if read from a file, and those of the tables that come with mimdsim."""

from __future__ import annotations

from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path

from mimdsim.base.csv_table import Line, Table
from mimdsim.validation.markdown_page import Notes
from mimdsim.validation.reference_table import Row
from mimdsim.validation.tables import check_files, default_files

TRAINING = "ipu_training_step_ms.csv"  # the one table that recordings predict


def given(*rows: dict[str, str]) -> Table:
    """The rows with their lines after a header."""
    lines = tuple(Line(row, number) for number, row in enumerate(rows, start=2))
    return Table(path=Path("given.csv"), columns=tuple(rows[0]), rows=lines)


def published_rows(data: Path | None = None) -> list[Row]:
    """Every row of the tables that come with mimdsim and what is predicted; minutes, once in a process."""
    return [row for path in default_files() for row in _of_table(path, data if path.name == TRAINING else None)]


@cache
def _of_table(path: Path, data: Path | None) -> tuple[Row, ...]:
    return tuple(check_files((path,), data, lambda *_: None))


def stale(notes: Notes, rows: list[Row]) -> list[str]:
    """Patterns of tables in `rows` that match no row that is out, as 'file: pattern'."""
    out = [row for row in rows if row.within is False]
    files = {row.file for row in rows}
    return [
        f"{each.file}: {pattern}"
        for each in notes.disagreement
        for pattern in each.rows
        if each.file in files and not any(row.file == each.file and fnmatchcase(row.name, pattern) for row in out)
    ]
