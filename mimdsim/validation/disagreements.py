"""Notes on published figures that the predictions miss: which term would have to be wrong, by pattern of row.

They are written by hand in `references/disagreements.toml`. A row that is out and has no note is an open question,
and a note for a row that is no longer out is stale; tests fail on both for the tables in the repository.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from pathlib import Path

from mimdsim.base.schema import Section, build, read_toml
from mimdsim.base.search_path import files_of
from mimdsim.validation.reference_table import Row


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

    def of_row(self, row: Row) -> list[Disagreement]:
        """The notes that apply to `row`."""
        return [each for each in self.disagreement if each.matches(row)]

    def of_table(self, file: str) -> TableNote | None:
        """The note on a whole table, None if there is none."""
        return next((each for each in self.table if each.file == file), None)

    def missing(self, rows: list[Row]) -> list[Row]:
        """Rows that are out without a note."""
        return [row for row in rows if row.within is False and not self.of_row(row)]

    def stale(self, rows: list[Row]) -> list[str]:
        """Patterns of tables in `rows` that match no row that is out, as 'file: pattern'."""
        out = [row for row in rows if row.within is False]
        files = {row.file for row in rows}
        return [
            f"{each.file}: {pattern}"
            for each in self.disagreement
            for pattern in each.rows
            if each.file in files and not any(row.file == each.file and fnmatchcase(row.name, pattern) for row in out)
        ]


def load_notes(path: Path | None = None) -> Notes:
    """The notes of `path`, by default `references/disagreements.toml`; raises DescriptionError with every problem."""
    path = path or files_of("references")["disagreements.toml"]
    given, text = read_toml(path)
    return build(Notes, given, where=path.name, text=text)
