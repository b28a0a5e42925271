"""`mimdsim validate`: predictions next to published figures. `calibrate`: the uncertain parameters of a machine, from
measurements. `reproduce`: the claims of the two papers that this project begins from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from mimdsim.base.console import FILE_TO_WRITE, PATH, Bars, say
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
    from mimdsim.validation.console_table import rows_as_json, table
    from mimdsim.validation.markdown_page import write_page
    from mimdsim.validation.reference_table import NOT_COMPUTED
    from mimdsim.validation.tables import check_files, default_files, find_table

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


@click.command("calibrate", short_help="Calibrate uncertain machine parameters against your measurements.")
@click.argument("machine")
@click.argument("tables", nargs=-1, required=True, metavar="TABLE...")
@click.option("--out", type=FILE_TO_WRITE, metavar="FILE.toml", help="Write the calibrated machine here.")
@click.option(
    "--spread",
    default=0.02,
    show_default=True,
    type=click.FloatRange(min=0, min_open=True, max=1),
    help="Standard deviation of a figure, as a share of it, where its row gives none.",
)
@DATA
@JSON
def calibrate_command(machine: str, tables: tuple[str, ...], out: Path | None, as_json: bool, **how: Any) -> None:
    """Calibrate the uncertain parameters of MACHINE against the rows of TABLEs that were measured on it.

    A TABLE has the columns of one in references/, and if wanted `spread`: one standard deviation of the figure, in its
    unit or as "3 %". MACHINE's own description stays as it is; FILE can be given wherever a machine can.
    """
    from mimdsim.base.files import folders_to_write
    from mimdsim.validation import calibrate
    from mimdsim.validation.calibration.result import narrowed_json, narrowed_lines

    with folders_to_write(*((out.parent,) if out else ())), Bars() as bars:
        found = calibrate(machine, tables, out=out, progress=bars.show, **how)
    if as_json:
        say(narrowed_json(found), nl=False)
        return
    for line in narrowed_lines(found):
        say(line)
    if out is not None:
        say(f"\nWritten: {out}; use it with  mimdsim run digits {out}")


@click.command("narrow", hidden=True, params=calibrate_command.params)
@click.pass_context
def narrow_command(context: click.Context, /, **given: Any) -> None:
    """The name of `mimdsim calibrate` in 0.1."""
    say("mimdsim narrow is  mimdsim calibrate  from 0.2 on", err=True)
    context.invoke(calibrate_command, **given)


@click.command("reproduce", short_help="Compute the claims of two papers on sparse and spiking training.")
@click.argument("names", nargs=-1, metavar="[CLAIM]...")
@click.option("--all", "every", is_flag=True, help="Every claim.")
@click.option("--full", is_flag=True, help="More networks, seeds and searches; minutes to hours instead of seconds.")
@click.option("--data", type=PATH, metavar="DIR", help="Recordings: DIR/nmnist, DIR/shd, DIR/dvs-gesture.")
@click.option("--page", type=FILE_TO_WRITE, metavar="FILE.md", help="Also write a page of all claims computed.")
@JSON
@click.pass_context
def reproduce_command(
    context: click.Context, /, names: tuple[str, ...], every: bool, page: Path | None, as_json: bool, **given: Any
) -> None:
    """Compute what CLAIMs of arXiv 2311.04386 and 2211.10725 say, and compare; without one, list them.

    A verdict is of intervals alone: confirmed, contradicted, cannot be said, or needs data that is not here. Exits with
    2 where a claim could not be computed for another reason.
    """
    from mimdsim.base.files import dump_json, folders_to_write, write_atomically
    from mimdsim.validation.reproduction.claims import claims, list_lines, page_text, reproduce, said_lines

    if every and names:
        raise DescriptionError("reproduce", ["--all takes every claim: leave out the names, or --all"])
    if not names and not every:
        if page or as_json:
            raise DescriptionError("reproduce", ["name a claim, or give --all; without one, claims are listed"])
        for line in list_lines(claims()):
            say(line)
        return
    with folders_to_write(*((page.parent,) if page else ())), Bars() as bars:
        made = reproduce(names, **given, progress=bars.show)
    if page:
        words = ["mimdsim reproduce", *(names or ("--all",)), *["--full"] * given["full"]]
        words += ["--data DIR"] * (given["data"] is not None)
        write_atomically(page, page_text(made, " ".join([*words, f"--page {page.name}"])))
    if as_json:
        say(dump_json([one.record for one in made]), nl=False)
    for one in () if as_json else made:
        for line in said_lines(one):
            say(line, bad=one.verdict in ("contradicted", "failed") and line.startswith(one.claim.name))
    context.exit(2 if any(one.verdict == "failed" for one in made) else 0)
