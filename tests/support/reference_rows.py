"""Rows of a table of published figures, as if read from a file."""

from __future__ import annotations

from pathlib import Path

from mimdsim.base.csv_table import Line, Table


def given(*rows: dict[str, str]) -> Table:
    """The rows with their lines after a header."""
    lines = tuple(Line(row, number) for number, row in enumerate(rows, start=2))
    return Table(path=Path("given.csv"), columns=tuple(rows[0]), rows=lines)
