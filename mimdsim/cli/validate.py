"""`mimdsim validate`: predictions next to published figures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from mimdsim.base.console import FILE_TO_WRITE, Bars, say
from mimdsim.base.errors import DescriptionError
from mimdsim.cli.options import DATA, JSON

OUT_OF_TOLERANCE = 3
MOST_NAMED = 5  # of rows, where not one could be read or predicted


@click.command("validate", short_help="Compare predictions with published figures.")
@click.argument("files", nargs=-1, metavar="[FILE]...")
@DATA
@click.option("--page", type=FILE_TO_WRITE, metavar="FILE.md", help="Also write a page of all rows.")
@JSON
@click.pass_context
def validate_command(context: click.Context, /, **given: Any) -> None:
    """Compare predictions with tables of published figures, by path or by name (default: those that come with mimdsim).

    A row that cannot be read is given as refused, with its line. Exits with 3 where a row is outside its tolerance, and
    with 2 where not one could be read.
    """
    context.exit(compare_with_tables(**given))


def compare_with_tables(files: tuple[str, ...], data: Path | None, page: Path | None, as_json: bool) -> int:
    """Compare with these tables and print the rows; the exit code."""
    from mimdsim.base.files import folders_to_write
    from mimdsim.validation.markdown_page import figure_of, rows_as_json, table, write_page
    from mimdsim.validation.reference_table import NOT_COMPUTED
    from mimdsim.validation.tables import check_files, default_files, find_table

    if page:
        figure_of(page)  # refused before minutes of predicting
    with folders_to_write(*((page.parent,) if page else ())), Bars() as bars:
        tables = tuple(map(find_table, files))
        rows = check_files(tables or default_files(), data, bars.show)
    if page:
        write_page(page, rows, with_data=data is not None, files=tuple(path.name for path in tables))
    if as_json:
        say(rows_as_json(rows), nl=False)
    else:
        for line in table(rows):
            say(line)
    unread = [row for row in rows if row.kind == NOT_COMPUTED]
    if len(unread) == len(rows):
        raise DescriptionError("validate", [f"{row.file}, {row.name}: {row.note}" for row in unread[:MOST_NAMED]])
    return OUT_OF_TOLERANCE if any(row.within is False for row in rows) else 0
