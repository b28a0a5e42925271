"""`mimdsim check`: whether a mapping or a kernel is right."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from mimdsim.base.console import FILE_TO_WRITE, PATH, Bars, say
from mimdsim.base.errors import DescriptionError
from mimdsim.cli.options import BATCH, JSON, MACHINE, SET, TIMESTEPS, WORKLOAD


@click.command("check", short_help="Check a mapping or a kernel: rules, memory and values.")
@WORKLOAD
@MACHINE
@click.option("--program", type=PATH, help="Python file with build(subject) -> Program.")
@click.option(
    "--reference", default="reference", metavar="NAME", help="A kernel's reference function (default: reference)."
)
@click.option("--out", type=PATH, help="Folder for the report of a kernel.")
@click.option("--strict", is_flag=True, help="Also run vertex by vertex on poisoned memory (slow).")
@TIMESTEPS
@BATCH
@click.option("--references", "references", is_flag=True, hidden=True)
@click.option("--data", type=PATH, hidden=True)
@click.option("--page", type=FILE_TO_WRITE, hidden=True)
@JSON
@click.argument("files", nargs=-1, type=PATH)
@SET
@click.pass_context
def check_command(
    context: click.Context,
    /,
    workload: str,
    machine: str,
    out: Path | None,
    references: bool,
    data: Path | None,
    page: Path | None,
    as_json: bool,
    files: tuple[Path, ...],
    changes: tuple[str, ...],
    **how: Any,
) -> None:
    """Check a mapping: rules, memory, and every value against an interpreter of the graph.

    A WORKLOAD that ends in .py is a kernel: a file with build(machine) and a numpy reference for its values.
    """
    if references:
        from mimdsim.cli.validate import compare_with_tables

        say("mimdsim check --references is  mimdsim validate  from 0.2 on", err=True)
        given = [text for text, default in ((workload, "digits"), (machine, "bow")) if text != default]
        context.exit(compare_with_tables((*given, *map(str, files)), data, page, as_json))
    if page:
        raise DescriptionError("check", [f"--page {page} is for  mimdsim validate --page {page}"])
    if files:
        raise DescriptionError("check", [f"unexpected arguments {[str(name) for name in files]}"])
    from mimdsim import api
    from mimdsim.base.files import folders_to_write
    from mimdsim.pipeline.overrides import parse_changes

    for_workload, for_machine = parse_changes(changes)
    with folders_to_write(*((out,) if out else ())), Bars() as bars:
        changed = for_workload | for_machine
        found = api.check(workload, machine, changes=changed, report=out, progress=bars.show, **how)
    if as_json:
        import dataclasses

        from mimdsim.base.files import dump_json

        say(dump_json([dataclasses.asdict(finding) for finding in found.findings]), nl=False)
    else:
        say(str(found))
        if out is not None:
            say(f"\nReport: {out / 'report.html'}")
    context.exit(0 if found.passed else 1)
