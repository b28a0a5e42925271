"""`mimdsim calibrate`: the uncertain parameters of a machine, from measurements."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from mimdsim.base.console import FILE_TO_WRITE, Bars, say
from mimdsim.cli.options import DATA, JSON


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
    from mimdsim.validation.calibration.fit import narrowed_json, narrowed_lines

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
