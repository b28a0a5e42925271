"""Tables of users as CSV: one reader, which takes what spreadsheets and hands write: a byte order mark, spaces around
cells, other capitals in names of columns."""

from __future__ import annotations

import csv
import io
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from mimdsim.base.errors import DataFileError, near, shortened

MAX_COLUMNS = 200


class Line(dict[str, str]):
    """The cells of a row by column, and the line of the file that they stand on."""

    def __init__(self, cells: Mapping[str, str], line: int):
        super().__init__(cells)
        self.line = line


@dataclass(frozen=True, kw_only=True)
class Table:
    """Names of columns in the order of the file, and its rows; cells have no spaces around them."""

    path: Path
    columns: tuple[str, ...]
    rows: tuple[Line, ...]

    def spelt(self, known: Collection[str]) -> Table:
        """The same table with columns spelt as those of `known` that they name with other capitals."""
        by_letters = {name.casefold(): name for name in known}
        names = {name: name if name in known else by_letters.get(name.casefold(), name) for name in self.columns}
        if all(old == new for old, new in names.items()):
            return self
        _check_names(self.path, tuple(names.values()))
        rows = tuple(Line({names[name]: cell for name, cell in row.items()}, row.line) for row in self.rows)
        return Table(path=self.path, columns=tuple(names.values()), rows=rows)

    def check_misspelt(self, read: Collection[str], unread: Collection[str]) -> None:
        """Raise DataFileError for a column that looks like one of `read` that is missing, and is none of `unread`."""
        missing = [name for name in read if name not in self.columns]
        for name in self.columns:
            hint = "" if name in read or name in unread else near(name, missing)
            if hint:
                raise DataFileError(self.path, f"has an unknown column '{shortened(name)}'{hint} Rename or remove it")


def parse_table(path: Path, text: str) -> Table:
    """The table of a CSV text; raises DataFileError for names given twice and for rows longer or shorter than the
    header."""
    reader = csv.reader(io.StringIO(text, newline=""), strict=True, skipinitialspace=True)
    found: list[tuple[list[str], int]] = []  # cells, and the line that they end on
    try:
        for cells in reader:
            if cells:
                found.append(([cell.strip() for cell in cells], reader.line_num))
    except csv.Error as problem:
        raise DataFileError(path, f"is not a CSV table near line {found[-1][1] if found else 0}: {problem}") from None
    names = tuple(found[0][0]) if found else ()
    _check_names(path, names)
    for cells, line in found[1:]:
        if len(cells) != len(names):
            raise DataFileError(path, f"line {line} does not have the {len(names)} columns of the header")
    rows = tuple(Line(dict(zip(names, cells, strict=True)), line) for cells, line in found[1:])
    return Table(path=path, columns=names, rows=rows)


def _check_names(path: Path, names: tuple[str, ...]) -> None:
    if len(names) > MAX_COLUMNS:
        raise DataFileError(path, f"has {len(names):,} columns; at most {MAX_COLUMNS} are allowed")
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise DataFileError(path, f"has the column '{shortened(twice[0])}' twice")
