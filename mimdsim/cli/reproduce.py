"""`mimdsim reproduce`: the claims of the two papers that this project begins from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from mimdsim.base.console import FILE_TO_WRITE, PATH, Bars, say
from mimdsim.base.errors import DescriptionError
from mimdsim.cli.options import JSON


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
    from mimdsim.validation.claims import claims, list_lines, page_text, reproduce, said_lines

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
